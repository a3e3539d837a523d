//! Nothing is made that was not asked for, and nobody's rights are lent to others.

use crate::trace::{Call, Trace};
use crate::tree::{Seen, describe, set_acl, set_mtime, set_xattr};
use crate::world::{
    Ended, RUN_HERE, Rng, World, has, is_root, lads, run, start, there, wait_until_gone,
};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid, chownat, mknodat};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;
/// How long the attacker tries to act between two calls of the sink. Before metadata was set
/// through descriptors, three runs were enough, a tenth of this time.
const ATTACK: Duration = Duration::from_secs(3);

/// `lads cp --json SOURCE/ TARGET`, without the options that other tests add.
fn plain(world: &World) -> Command {
    let mut command = lads::<&str>(&[]);
    command.arg(world.source_contents()).arg(world.target());
    command
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn own(path: &Path, id: u32) {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn make_fifo(path: &Path, mode: u32) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    set_mode(path, mode);
}

/// Makes files with set-id bits, and entries that may keep their special bits.
fn with_set_id_bits() -> World {
    let world = World::new();
    for (name, mode) in [("user", 0o4755), ("group", 0o2711), ("plain", 0o755), ("sticky", 0o1644)]
    {
        set_mode(&world.write(format!("src/{name}"), name.as_bytes()), mode);
    }
    fs::create_dir(world.source().join("directory")).unwrap();
    set_mode(&world.source().join("directory"), 0o3775);
    world
}

/// Returns the numbers of entries without set-id bits or other privileges, as reported.
fn told(ended: &Ended) -> Vec<u64> {
    let reports = ended.events_of("reduced").into_iter();
    let privileges = reports.filter(|report| report["kind"] == "privileges");
    privileges.map(|report| report["entries"].as_u64().unwrap()).collect()
}

#[test]
fn set_id_bits_are_left_out_unless_asked_for_which_is_told_once() {
    let world = with_set_id_bits();
    let modes = || {
        ["user", "group", "plain", "sticky", "directory"].map(|it| mode(&world.target().join(it)))
    };
    for _ in 0..2 {
        let ended = run(plain(&world)).expect(0);
        assert_eq!(modes(), [0o755, 0o711, 0o755, 0o1644, 0o3775]);
        assert_eq!(told(&ended), [2]);
    }
    // If asked for, they are repaired, and then there is nothing more to do.
    let ended = run(world.cp(&[])).expect(0);
    assert_eq!(modes(), [0o4755, 0o2711, 0o755, 0o1644, 0o3775]);
    assert_eq!((told(&ended), ended.count("bytes_sent")), (vec![], 0));
}

#[test]
fn what_is_left_out_is_told_wherever_the_sink_is() {
    let world = with_set_id_bits();
    let shell = world.fake_shell(RUN_HERE);
    let there_to = format!("there:{}", world.path("pushed").display());
    let there_from = format!("there:{}", world.source_contents());
    let pulled = world.path("pulled").display().to_string();
    for [from, to] in [[world.source_contents(), there_to], [there_from, pulled]] {
        let mut command = there(&shell);
        command.args([&from, &to]);
        let told = told(&run(command).expect(0));
        assert_eq!(told.len(), 1, "{from} to {to}: {told:?}");
    }
    assert_eq!(mode(&world.path("pushed/user")), 0o755);
    assert_eq!(mode(&world.path("pulled/user")), 0o755);
}

#[test]
fn capabilities_and_trusted_attributes_are_left_out_unless_asked_for() {
    // The form that the kernel takes: revision 2, effective, CAP_NET_RAW.
    const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.write("src/file", b"file");
    set_xattr(&file, b"security.capability", &CAPABILITY);
    set_xattr(&file, b"trusted.told", b"root");
    set_xattr(&file, b"user.origin", b"here");
    let value = |name: &str| {
        let mut value = [0; 64];
        let count = rustix::fs::lgetxattr(world.target().join("file"), name, &mut value[..]);
        count.map(|count| value[..count].to_vec()).ok()
    };
    let values =
        || ["security.capability", "trusted.told", "user.origin"].map(|name| value(name).is_some());
    assert_eq!(told(&run(plain(&world)).expect(0)).len(), 1);
    assert_eq!(values(), [false, false, true]);
    let before = describe(&world.target());
    assert_eq!(told(&run(plain(&world)).expect(0)).len(), 1);
    assert_untouched(&before, &describe(&world.target()), "file");
    let ended = run(world.cp(&[])).expect(0);
    assert_eq!((values(), told(&ended).len()), ([true; 3], 0));
    assert_eq!(value("security.capability").unwrap(), CAPABILITY);
    // If not asked for, existing attributes are neither compared nor removed.
    let before = describe(&world.target());
    assert_eq!(told(&run(plain(&world)).expect(0)).len(), 1);
    assert_untouched(&before, &describe(&world.target()), "file");
    assert_eq!(values(), [true; 3]);
}

/// Asserts that not even the entry's metadata was set again to the same values.
fn assert_untouched(before: &BTreeMap<PathBuf, Seen>, after: &BTreeMap<PathBuf, Seen>, name: &str) {
    assert_eq!(before[Path::new(name)], after[Path::new(name)]);
}

#[test]
fn a_rerun_does_not_touch_links_and_special_files() {
    let world = World::new();
    world.write("src/file", b"file");
    symlink("nowhere", world.source().join("link")).unwrap();
    make_fifo(&world.source().join("fifo"), 0o4640);
    set_mtime(&world.source().join("link"), 1_000_000_000, 7);
    set_mtime(&world.source().join("fifo"), 1_000_000_000, 7);
    let command = || {
        let mut command = plain(&world);
        command.arg("--specials");
        command
    };
    run(command()).expect(0);
    assert_eq!(mode(&world.target().join("fifo")), 0o640);
    let before = describe(&world.target());
    assert_eq!(told(&run(command()).expect(0)).len(), 1);
    let after = describe(&world.target());
    for name in ["file", "link", "fifo"] {
        assert_untouched(&before, &after, name);
    }
    set_mtime(&world.source().join("link"), 1_100_000_000, 8);
    set_mode(&world.source().join("fifo"), 0o600);
    run(command()).expect(0);
    assert_eq!(mode(&world.target().join("fifo")), 0o600);
    let mtime = world.target().join("link").symlink_metadata().unwrap().mtime();
    assert_eq!(mtime, 1_100_000_000);
}

/// Returns the properties of a file outside the transfer that must not change.
fn canary(path: &Path) -> (u32, u32, u32, i64, Option<Vec<u8>>) {
    let it = path.symlink_metadata().unwrap();
    let bytes = it.is_file().then(|| fs::read(path).unwrap());
    (it.mode(), it.uid(), it.gid(), it.mtime(), bytes)
}

/// Gives the target to an unprivileged user; the source gets the same owner, so that this stays so.
fn target_of_nobody(world: &World) {
    fs::create_dir(world.target()).unwrap();
    own(&world.source(), NOBODY);
    own(&world.target(), NOBODY);
}

#[test]
fn root_changes_nothing_that_was_put_in_the_way_of_its_metadata() {
    if !is_root() {
        return;
    }
    let world = World::new();
    for number in 0..FIFOS {
        let fifo = world.source().join(format!("fifo{number}"));
        fs::create_dir_all(world.source()).unwrap();
        make_fifo(&fifo, 0o666);
        own(&fifo, 1234);
        set_mtime(&fifo, 1_000_000_000, 0);
    }
    target_of_nobody(&world);
    let canaries = [world.write("canary/file", b"secret"), world.path("canary/fifo")];
    make_fifo(&canaries[1], 0o600);
    set_mode(&canaries[0], 0o600);
    let (is_over, swaps) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| swap_names(&world, &canaries, &is_over, &swaps));
        let _over = SetWhenDropped(&is_over);
        move_while_attacked(&world, &canaries, &swaps, || {
            for name in fs::read_dir(world.target()).unwrap() {
                let name = name.unwrap().path();
                // The attacker may have changed it meanwhile.
                let _ = fs::remove_file(&name).or_else(|_| fs::remove_dir_all(&name));
            }
        });
    });
    assert!(swaps.into_inner() > 0, "nobody got in between");
}

/// Moves everything again and again, and asserts that the canaries do not change. Goes on for
/// longer if no attack has succeeded in time yet, because on a busy machine the attacker may wait
/// for long.
fn move_while_attacked(
    world: &World,
    canaries: &[PathBuf; 2],
    attacks: &AtomicU32,
    between: impl Fn(),
) {
    let before = canaries.each_ref().map(|it| canary(it));
    let started = Instant::now();
    let wanted = || if attacks.load(Ordering::Relaxed) > 0 { ATTACK } else { 20 * ATTACK };
    while started.elapsed() < wanted() {
        let mut command = plain(world);
        command.args(["--specials", "--lab=journal=no"]);
        let ended = run(command);
        // An entry that was replaced is reported as failed.
        assert!(matches!(ended.code, Some(0 | 6)), "{ended:?}");
        assert_eq!(canaries.each_ref().map(|it| canary(it)), before, "{ended:?}");
        between();
    }
}

/// Ends the attack, also when the test fails.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// There are few, so that the attacker gets to each one often.
const FIFOS: usize = 4;

/// Takes away what appears under a temporary name, and puts there a canary, a link to one, or a
/// directory with one. Counts the swaps. It can do more than the owner of the directory could,
/// because root may make further names of any file.
fn swap_names(
    world: &World,
    canaries: &[PathBuf; 2],
    is_over: &AtomicBool,
    swap_count: &AtomicU32,
) {
    let is_ours = |name: &PathBuf| name.extension().is_some_and(|end| end == "part");
    while !is_over.load(Ordering::Relaxed) {
        // Each transfer uses other names.
        let there = fs::read_dir(world.target()).into_iter().flatten().filter_map(Result::ok);
        for name in there.map(|name| name.path()).filter(is_ours) {
            let swaps = swap_count.load(Ordering::Relaxed) + 1;
            let taken = world.target().join(format!("taken{swaps}"));
            if fs::rename(&name, &taken).is_err() {
                continue;
            }
            swap_count.store(swaps, Ordering::Relaxed);
            // The next temporary file may exist already.
            let _ = match swaps % 8 {
                0 => symlink(&canaries[0], &name),
                1 => fs::hard_link(&canaries[0], &name),
                2 => symlink(canaries[0].parent().unwrap(), &name),
                3 => put_directory(&name, &canaries[1]),
                _ => link_for_moments(&canaries[1], &name),
            };
        }
    }
}

/// The attack above may come too late each time; this test always shows the result.
#[test]
fn root_makes_special_files_where_nobody_else_may_write() {
    if !is_root() {
        return;
    }
    let world = World::new();
    fs::create_dir(world.source()).unwrap();
    make_fifo(&world.path("src/fifo"), 0o640);
    symlink("nowhere", world.path("src/link")).unwrap();
    target_of_nobody(&world);
    let Some(trace) = Trace::of_sink(&world, &["--specials"]) else { return };
    for name in ["fifo", "link"] {
        let renames = || trace.calls.iter().filter_map(Call::renames);
        let (from, _) = renames().find(|(_, to)| *to == world.target().join(name)).unwrap();
        let workshop = from.parent().unwrap();
        assert_ne!(workshop, world.target());
        assert!(!workshop.exists(), "it is removed");
    }
    assert_eq!(mode(&world.target().join("fifo")), 0o640);
}

/// Gives a canary another name, and removes it before the names can be counted.
fn link_for_moments(canary: &Path, name: &Path) -> std::io::Result<()> {
    for _ in 0..3 {
        fs::hard_link(canary, name)?;
        fs::remove_file(name)?;
    }
    Ok(())
}

/// Puts a directory of an unprivileged user there, in which a canary has the same name.
fn put_directory(name: &Path, canary: &Path) -> std::io::Result<()> {
    fs::create_dir(name)?;
    lchown(name, Some(NOBODY), None)?;
    fs::hard_link(canary, name.join(name.file_name().unwrap()))
}

/// The other name is gone when the names of the file are counted. The file then has only one name,
/// and that is not the one under which it was opened.
#[test]
fn root_mends_nothing_that_had_a_name_in_the_target_for_a_moment() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let kinds = ["file", "fifo"];
    let canaries = [world.write("canary/file", b"same"), world.path("canary/fifo")];
    let sources = [world.write("src/file", b"same"), world.path("src/fifo")];
    make_fifo(&canaries[1], 0o600);
    make_fifo(&sources[1], 0o666);
    for (source, canary) in sources.iter().zip(&canaries) {
        own(source, 1234);
        set_mode(source, 0o666);
        set_mode(canary, 0o600);
        [source, canary].into_iter().for_each(|it| set_mtime(it, 1_000_000_000, 0));
    }
    target_of_nobody(&world);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (kind, canary) in kinds.iter().zip(&canaries) {
                    let name = world.target().join(kind);
                    let _ = fs::remove_file(&name);
                    let _ = fs::hard_link(canary, &name);
                }
            }
        });
        let _over = SetWhenDropped(&is_over);
        // The attacker does not count its attacks, so this runs for the shorter time.
        move_while_attacked(&world, &canaries, &AtomicU32::new(1), || {});
    });
}

#[test]
fn root_does_not_mend_what_may_be_somebody_elses_by_another_name() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let sources =
        [world.write("src/file", b"same"), world.path("src/fifo"), world.path("src/link")];
    make_fifo(&sources[1], 0o666);
    symlink("same", &sources[2]).unwrap();
    set_mode(&sources[0], 0o666);
    target_of_nobody(&world);
    let canaries =
        [world.write("canary/file", b"same"), world.path("canary/fifo"), world.path("canary/link")];
    make_fifo(&canaries[1], 0o600);
    symlink("same", &canaries[2]).unwrap();
    set_mode(&canaries[0], 0o600);
    for (source, canary) in sources.iter().zip(&canaries) {
        own(source, 1234);
        set_mtime(source, 1_000_000_000, 0);
        fs::hard_link(canary, world.target().join(canary.file_name().unwrap())).unwrap();
    }
    // Size and time are those of the source, so that only the metadata is to be repaired.
    set_mtime(&canaries[0], 1_000_000_000, 0);
    let before = canaries.clone().map(|it| canary(&it));
    let mut command = plain(&world);
    run({
        command.arg("--specials");
        command
    })
    .expect(0);
    assert_eq!(canaries.clone().map(|it| canary(&it)), before);
    for source in &sources {
        let there = world.target().join(source.file_name().unwrap());
        assert_eq!(canary(&there), canary(source), "{}", there.display());
    }
    assert!(world.target().join("fifo").symlink_metadata().unwrap().file_type().is_fifo());
}

/// Nobody else writes in the target, so names of others cannot be there by an attack; but a
/// further name may be.
#[test]
fn an_entry_with_a_further_name_elsewhere_is_replaced_and_not_mended() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let sources = [world.path("src/fifo"), world.path("src/link")];
    let elsewhere = [world.path("elsewhere/fifo"), world.path("elsewhere/link")];
    for directory in ["src", "elsewhere", "dst"] {
        fs::create_dir(world.path(directory)).unwrap();
    }
    for [fifo, link] in [&sources, &elsewhere] {
        make_fifo(fifo, 0o600);
        symlink("same", link).unwrap();
    }
    set_mode(&sources[0], 0o666);
    for (source, other) in sources.iter().zip(&elsewhere) {
        own(source, 1234);
        fs::hard_link(other, world.target().join(other.file_name().unwrap())).unwrap();
    }
    let before = elsewhere.each_ref().map(|it| canary(it));
    let mut command = plain(&world);
    command.arg("--specials");
    run(command).expect(0);
    assert_eq!(elsewhere.each_ref().map(|it| canary(it)), before);
    for source in &sources {
        let there = world.target().join(source.file_name().unwrap());
        assert_eq!(canary(&there), canary(source), "{}", there.display());
    }
}

/// The kernel clears the bits when the owner changes.
#[test]
fn set_id_bits_that_are_right_are_set_again_if_the_owner_was_wrong() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let source = world.write("src/file", b"file");
    set_mode(&source, 0o6755);
    run(world.cp(&[])).expect(0);
    let copy = world.target().join("file");
    own(&copy, 1234);
    set_mode(&copy, 0o6755);
    let ended = run(world.cp(&[])).expect(0);
    assert_eq!(canary(&copy), canary(&source));
    assert_eq!(ended.count("bytes_sent"), 0);
}

/// The file would give the rights of the user who runs the command, or of one of its groups.
#[test]
fn set_id_bits_are_left_out_where_only_the_group_can_be_set() {
    const GROUP: u32 = 1234;
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = World::new();
    let source = world.write("src/file", b"file");
    chownat(CWD, &source, None, Some(Gid::from_raw(GROUP)), AtFlags::empty()).unwrap();
    set_mode(&source, 0o6755);
    fs::create_dir(world.target()).unwrap();
    own(&world.target(), NOBODY);
    let copy = world.target().join("file");
    for _ in 0..2 {
        let cp = world.cp(&[]);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", &format!("--groups={GROUP}"), "--"]);
        command.arg(cp.get_program()).args(cp.get_args());
        run(command);
        let it = copy.metadata().unwrap();
        assert_eq!((it.uid(), it.gid(), mode(&copy)), (NOBODY, GROUP, 0o755));
    }
}

#[test]
fn a_new_target_is_closed_to_others_until_the_end_even_of_a_later_attempt() {
    let world = World::new();
    world.write("src/file", &Rng::new(1).bytes(8 << 20));
    set_mode(&world.source(), 0o751);
    // Compare with a directory that is made here without a given mode.
    let other = world.path("other");
    fs::create_dir(&other).unwrap();
    let file = world.source().join("file").display().to_string();
    let target = format!("{}/", world.target().display());
    for (source, options, expected, kept) in [
        (world.source_contents(), &[][..], 0o751, 0o751),
        (world.source_contents(), &["--no-perms"], 0o751 & mode(&other), 0o700),
        (file, &[], mode(&other), 0o700),
    ] {
        let command = |more: &[&str]| {
            let mut command = lads(options);
            command.args(more).args([&source, &target]);
            command
        };
        let mut running = start(command(&["--bwlimit", "20M"]));
        let sink = running.other_end();
        assert!(running.runs_until_written(sink, 1 << 20), "it is over before it was looked at");
        assert_eq!(mode(&world.target()), 0o700);
        running.signal("KILL");
        running.end();
        wait_until_gone(sink);
        assert_eq!(mode(&world.target()), 0o700);
        run(command(&[])).expect(0);
        assert_eq!(mode(&world.target()), expected, "{source} {options:?}");
        // From now on, the mode of the target is decided by others.
        set_mode(&world.target(), 0o700);
        run(command(&["-I"])).expect(0);
        assert_eq!(mode(&world.target()), kept, "{source} {options:?}");
        fs::remove_dir_all(world.target()).unwrap();
    }
}

#[test]
fn a_new_target_gets_the_mode_that_its_parent_gives() {
    let world = World::new();
    let file = world.write("src/file", b"file");
    fs::create_dir(world.path("above")).unwrap();
    set_acl(&world.path("above"), b"system.posix_acl_default", &mut Rng::new(1));
    set_mode(&world.path("above"), 0o2755);
    fs::create_dir(world.path("above/other")).unwrap();
    run({
        let mut command = lads::<&str>(&[]);
        command.arg(file).arg(format!("{}/", world.path("above/new").display()));
        command
    })
    .expect(0);
    let [new, other] = ["above/new", "above/other"].map(|it| {
        let mut acl = [0; 256];
        let count =
            rustix::fs::lgetxattr(world.path(it), "system.posix_acl_access", &mut acl[..]).unwrap();
        (mode(&world.path(it)), acl[..count].to_vec())
    });
    assert_eq!(new, other);
}
