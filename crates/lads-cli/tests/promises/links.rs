//! `--copy-links`: the files and directories that symbolic links lead to are copied, as by rsync.

use crate::choice::names_and_bytes;
use crate::faultfs::FaultFs;
use crate::tree::set_xattr;
use crate::world::{Rng, World, check, for_seeds, has, run, start};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 5] = ["a", "b", "file", "link", "x.log"];

/// Makes a tree whose links lead to names in another tree, some of which do not exist.
fn grow_links(rng: &mut Rng, root: &Path, far: &Path, depth: usize) {
    fs::create_dir_all(root).unwrap();
    for name in NAMES {
        let path = root.join(name);
        match rng.below(6) {
            0 if depth > 0 => grow_links(rng, &path, far, depth - 1),
            1 => fs::write(&path, name).unwrap(),
            2 | 3 => symlink(far.join(rng.pick(&NAMES)), &path).unwrap(),
            4 => symlink(rng.pick(&["file", "b/file"]), &path).unwrap(),
            _ => {}
        }
    }
}

#[test]
fn what_links_lead_to_is_what_rsync_copies() {
    if !has("rsync") {
        return;
    }
    for_seeds(20, 1000, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        // Links of the far tree lead into a third, which has none: no link leads back.
        grow_links(&mut rng, &world.path("third"), Path::new("/nowhere"), 1);
        grow_links(&mut rng, &world.path("far"), &world.path("third"), 1);
        grow_links(&mut rng, &world.source(), &world.path("far"), 2);
        let mut options = vec!["-L"];
        if rng.is_one_in(2) {
            options
                .extend([rng.pick(&["--exclude", "--include"]), rng.pick(&["a", "link/", "/b"])]);
            options.extend(["--exclude", "x.log"]);
        }
        if rng.is_one_in(3) {
            options.push("--delete");
        }
        let theirs = world.path("theirs");
        for target in [&world.target(), &theirs] {
            for extra in ["a/only here", "link/only here", "b only here"] {
                let path = target.join(extra);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, b"extra").unwrap();
            }
        }
        let mut command = Command::new("rsync");
        command.arg("-aH").args(&options).arg(world.source_contents()).arg(&theirs);
        let code = command.output().unwrap().status.code();
        let ours = run(world.cp(&options));
        // What has another kind at the sink is replaced by rsync only.
        let in_the_way = |issue: &serde_json::Value| issue["reason"] == "in-the-way";
        if ours.events_of("issue").iter().any(in_the_way) {
            return;
        }
        assert_eq!(ours.code == Some(3), code == Some(23), "{options:?} {ours:?}");
        let entries = [&world.target(), &theirs].map(|it| names_and_bytes(it));
        assert_eq!(entries[0], entries[1], "seed {seed}: {options:?}");
    });
}

/// A tree with a link to a file and a link to a directory that lie elsewhere.
fn world_with_links() -> World {
    let world = World::new();
    world.write("far/file", b"bytes");
    world.write("far/directory/inner", b"more bytes");
    world.write("src/own", b"own");
    symlink("../far/file", world.path("src/file")).unwrap();
    symlink(world.path("far/directory"), world.path("src/directory")).unwrap();
    world
}

#[test]
fn links_that_lead_nowhere_or_back_are_reported_and_the_rest_is_copied() {
    let world = world_with_links();
    fs::create_dir(world.path("src/deep")).unwrap();
    let too_long = "y".repeat(256);
    for (target, name) in [
        ("nowhere", "dangling"),
        ("self", "self"),
        (".", "deep/here"),
        ("../..", "deep/up"),
        (&too_long, "too-long"),
    ] {
        symlink(target, world.path(format!("src/{name}"))).unwrap();
    }
    let ended = run(world.cp(&["-L", "--exclude", "/deep/up/dst"])).expect(3);
    let mut issues: Vec<String> = ended
        .events_of("issue")
        .iter()
        .map(|issue| {
            let path = Path::new(issue["path"].as_str().unwrap());
            let path = path.strip_prefix(world.source()).unwrap();
            format!("{} {}", path.display(), issue["reason"].as_str().unwrap())
        })
        .collect();
    issues.sort();
    let expected = [
        "dangling dangling",
        "deep/here loop",
        "deep/up/src loop",
        "self dangling",
        "too-long dangling",
    ];
    assert_eq!(issues, expected);
    assert_eq!(fs::read(world.target().join("file")).unwrap(), b"bytes");
    let through = world.target().join("deep/up/far/directory/inner");
    assert_eq!(fs::read(through).unwrap(), b"more bytes");
}

#[test]
fn a_second_run_skips_what_was_copied_and_a_comparison_finds_no_difference() {
    let world = world_with_links();
    run(world.cp(&["--copy-links"])).expect(0);
    let before = names_and_bytes(&world.target());
    assert_eq!(run(world.cp(&["-L", "--delete"])).expect(0).count("files_skipped"), 3);
    assert_eq!(names_and_bytes(&world.target()), before);
    let words = ["-L".to_owned(), world.source_contents(), world.target().display().to_string()];
    run(check(&words)).expect(0);
    assert!(!run(check(&words[1..])).expect(11).differences().is_empty());
    fs::remove_file(world.path("far/file")).unwrap();
    run(check(&words)).expect(3);
}

#[test]
fn nothing_is_deleted_behind_a_link_that_leads_nowhere() {
    let world = world_with_links();
    run(world.cp(&["-L"])).expect(0);
    world.write("dst/extra", b"extra");
    world.write("dst/directory/extra", b"extra");
    fs::rename(world.path("far"), world.path("gone")).unwrap();
    let before = names_and_bytes(&world.target());
    run(world.cp(&["-L", "--delete"])).expect(3);
    assert_eq!(names_and_bytes(&world.target()), before);
    run(world.cp(&["-L", "--delete", "--ignore-errors"])).expect(3);
    assert!(!world.target().join("extra").exists());
    assert!(
        world.target().join("directory/inner").exists() && world.target().join("file").exists()
    );
    fs::rename(world.path("gone"), world.path("far")).unwrap();
    run(world.cp(&["-L", "--delete"])).expect(0);
    assert!(!world.target().join("directory/extra").exists());
}

#[test]
fn a_link_to_another_file_system_is_an_empty_directory_with_one_file_system() {
    let world = world_with_links();
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let device = |path: &Path| std::os::unix::fs::MetadataExt::dev(&fs::metadata(path).unwrap());
    if device(elsewhere.path()) == device(&world.source()) {
        return crate::world::not_tried("all directories for tests are on one file system");
    }
    fs::write(elsewhere.path().join("file"), b"x").unwrap();
    symlink(elsewhere.path(), world.path("src/elsewhere")).unwrap();
    symlink(elsewhere.path().join("file"), world.path("src/single")).unwrap();
    run(world.cp(&["-Lx"])).expect(0);
    assert_eq!(fs::read_dir(world.target().join("elsewhere")).unwrap().count(), 0);
    assert!(
        world.target().join("single").exists() && world.target().join("directory/inner").exists()
    );
}

#[test]
fn a_link_that_is_named_and_links_in_a_list_are_followed() {
    let world = world_with_links();
    let list = world.write("list", b"directory\nfile\n");
    run(world.cp(&["-L", "--files-from", list.to_str().unwrap()])).expect(0);
    let expected = [" /", "directory /", "directory/inner more bytes", "file bytes"];
    assert_eq!(names_and_bytes(&world.target()), expected.map(str::to_owned).into());
    let mut command = crate::world::lads(&["-L"]);
    command.arg(world.path("src/directory")).arg(world.path("named/"));
    run(command).expect(0);
    assert!(world.path("named/directory/inner").exists());
    let mut command = crate::world::lads(&["-L"]);
    command.arg(world.path("src/directory")).arg(world.path("missing"));
    run(command).expect(0);
    assert!(world.path("missing/directory/inner").exists(), "a directory goes into the target");
    // What a named link leads to may hold the link itself, which then leads back.
    symlink(".", world.path("src/itself")).unwrap();
    let mut command = crate::world::lads(&["-L"]);
    command.arg(world.path("src/itself")).arg(world.path("named/"));
    run(command).expect(3);
    assert_eq!(fs::read(world.path("named/itself/own")).unwrap(), b"own");
    assert!(!world.path("named/itself/itself").exists());
}

#[test]
fn the_dry_run_lists_what_is_behind_links() {
    let world = world_with_links();
    let paths = |options: &[&str]| -> Vec<String> {
        let lines = run(world.cp(options)).expect(0).events_of("line").into_iter();
        let mut paths: Vec<_> = lines.map(|it| it["path"].as_str().unwrap().to_owned()).collect();
        paths.sort();
        paths
    };
    let planned = paths(&["-Ln"]);
    assert!(!world.target().exists());
    assert_eq!(planned, paths(&["-Lv"]));
    assert!(planned.iter().any(|path| path.ends_with("directory/inner")), "{planned:?}");
}

/// Returns the value of a user attribute.
fn attribute(path: &Path) -> Vec<u8> {
    let mut value = [0; 16];
    let count = rustix::fs::getxattr(path, "user.origin", &mut value[..]).unwrap_or(0);
    value[..count].to_vec()
}

/// The attributes of a link itself are others, and a link has no holes.
#[test]
fn copies_have_the_attributes_and_the_holes_of_what_links_lead_to() {
    let world = world_with_links();
    for name in ["file", "directory"] {
        set_xattr(&world.path("far").join(name), b"user.origin", name.as_bytes());
    }
    fs::File::create(world.path("far/sparse")).unwrap().set_len(64 << 20).unwrap();
    symlink("../far/sparse", world.path("src/sparse")).unwrap();
    run(world.cp(&["-L"])).expect(0);
    for name in ["file", "directory"] {
        assert_eq!(attribute(&world.target().join(name)), name.as_bytes(), "{name}");
    }
    let sparse = fs::metadata(world.target().join("sparse")).unwrap();
    assert!(sparse.len() == 64 << 20 && sparse.blocks() < 1024, "{sparse:?}");
}

#[test]
fn a_file_that_changes_while_it_is_read_through_a_link_is_read_again() {
    let world = World::new();
    let Some(far) = FaultFs::mount(&world, "far") else { return };
    world.write("far/file", &[7; 200_000]);
    fs::create_dir(world.source()).unwrap();
    symlink("../far/file", world.path("src/file")).unwrap();
    far.command("hang read path=file nth=1");
    let running = start(world.cp(&["-L", "--lab=block-size=64K"]));
    far.wait_for_fault("hang");
    let changed = fs::metadata(far.path("file")).unwrap().modified().unwrap();
    let changed = changed + std::time::Duration::from_secs(5);
    fs::File::open(far.path("file")).unwrap().set_modified(changed).unwrap();
    far.command("clear");
    running.end().expect(0);
    let copy = world.target().join("file");
    assert_eq!(fs::metadata(&copy).unwrap().modified().unwrap(), changed);
    assert_eq!(fs::read(copy).unwrap(), [7; 200_000]);
}

/// The name in the source is removed, and the file behind the link stays.
#[test]
fn a_link_whose_file_is_moved_is_removed_and_its_file_stays() {
    let world = world_with_links();
    fs::remove_file(world.path("src/directory")).unwrap();
    run(world.cp(&["-L", "--remove-source-files"])).expect(0);
    assert_eq!(fs::read_dir(world.source()).unwrap().count(), 0);
    assert_eq!(fs::read(world.path("far/file")).unwrap(), b"bytes");
    assert_eq!(fs::read(world.target().join("file")).unwrap(), b"bytes");
}
