//! Files of one block have no name until they are durable, where the file system has such files.

use crate::tree::{assert_nothing_left_over, is_own_name, visit};
use crate::world::{
    Mounted, Rng, World, assert_identical, has, is_root, not_tried, run, start, wait_for,
    wait_until_gone,
};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const FILE_COUNT: usize = 300;

/// Makes files of one block.
fn fill(world: &World) {
    let mut rng = Rng::new(1);
    for number in 0..FILE_COUNT {
        let bytes = [0, 1, 100, 4096, 5000, 70_000][rng.below(6)];
        world.write(format!("src/d{}/f{number}", number % 7), &rng.bytes(bytes));
    }
}

/// Returns how many files have temporary names.
fn left_over(target: &Path) -> usize {
    let mut count = 0;
    visit(target, &mut |path, _| count += usize::from(is_part(path)));
    count
}

fn is_part(path: &Path) -> bool {
    is_own_name(path) && path.extension().is_some_and(|it| it == "part")
}

/// What storage holds at the end of a transfer is what there is after a power cut: the image is
/// copied while it is mounted, and the copy is mounted.
#[test]
fn what_got_its_only_name_is_there_after_a_power_cut() {
    let ext4 = ["mkfs.ext4", "-q", "-F"];
    let xfs = ["mkfs.xfs", "-q", "-f"];
    for (make, options) in [(ext4, "loop"), (xfs, "loop,nouuid")] {
        let world = World::new();
        fill(&world);
        let [image, cut] = ["image", "cut"].map(|name| world.path(name));
        let Some(mounted) = Mounted::new_image(&world.target(), &image, &make) else { continue };
        // Only ext4 has this, and the source has not.
        let _ = fs::remove_dir(mounted.seen().join("lost+found"));
        run(mounted.command(&world.cp(&[]))).expect(0);
        let mut copy = Command::new("cp");
        assert!(copy.arg("--sparse=always").args([&image, &cut]).status().unwrap().success());
        let Some(after) = Mounted::image(&world.path("after"), &cut, options) else { return };
        after.assert_identical_to(&world.source());
        assert_eq!(left_over(&after.seen()), 0);
    }
}

#[test]
fn nothing_of_them_is_left_when_both_ends_are_killed() {
    if !is_root() || !has("unshare") {
        return;
    }
    let world = World::new();
    fill(&world);
    let Some(mounted) = Mounted::tmpfs(&world.target(), "size=64m") else { return };
    let running = start(mounted.command(&world.cp(&["--bwlimit", "2M"])));
    let is_named = |path: &Path, named: &mut bool| *named |= path.is_file() && !is_own_name(path);
    wait_for("some files", || {
        let mut named = false;
        visit(&mounted.seen(), &mut |path, _| is_named(path, &mut named));
        named.then_some(())
    });
    running.kill_both_ends(|| ());
    assert_eq!(left_over(&mounted.seen()), 0);
    let ended = run(mounted.command(&world.cp(&[]))).expect(0);
    assert!(ended.count("files_moved") < FILE_COUNT as u64, "it was over before it was killed");
    mounted.assert_identical_to(&world.source());
}

#[test]
fn each_gets_its_only_name_by_a_link() {
    if !is_root() || !has("unshare") || !has("strace") {
        return;
    }
    let world = World::new();
    fill(&world);
    let Some(mounted) = Mounted::tmpfs(&world.target(), "size=64m") else { return };
    let path = world.path("trace");
    let traced = |options: &[&str]| {
        let (cp, mut strace) = (world.cp(options), Command::new("strace"));
        strace.args(["-f", "-e", "trace=linkat,renameat", "-o"]).arg(&path);
        strace.arg(cp.get_program()).args(cp.get_args());
        let output = mounted.command(&strace).output().unwrap();
        let trace = fs::read_to_string(&path).unwrap_or_default();
        let count = |word| trace.lines().filter(|line| line.contains(word)).count();
        (output.status.code() == Some(0)).then(|| [count("linkat("), count("renameat(")])
    };
    // The journal is renamed, too.
    match traced(&[]) {
        None => return not_tried("strace may trace nothing here"),
        counts => assert_eq!(counts, Some([FILE_COUNT, 1])),
    }
    mounted.assert_identical_to(&world.source());
    assert_eq!(traced(&["--ignore-times"]), Some([0, FILE_COUNT + 1]), "nothing is replaced");
    mounted.assert_identical_to(&world.source());
}

/// A file of several blocks has a temporary name. With longer blocks it is one block, which needs
/// none.
#[test]
fn what_an_attempt_with_shorter_blocks_has_left_is_removed() {
    let world = World::new();
    world.write("src/file", &Rng::new(1).bytes(900_000));
    for options in [&[][..], &["--lab=journal=no"]] {
        let pace = ["--lab", "block-size=64K", "--bwlimit", "256K"];
        let mut running = start(world.cp(&[&pace, options].concat()));
        let sink = running.other_end();
        assert!(running.runs_until_written(sink, 128 << 10), "over before it was killed");
        running.kill_both_ends(|| ());
        wait_until_gone(sink);
        assert_eq!(left_over(&world.target()), 1);
        // The file is another one now, so nothing of it can be used.
        world.write("src/file", &Rng::new(2).bytes(900_000));
        run(world.cp(options)).expect(0);
        assert_identical(&world.source(), &world.target());
        assert_nothing_left_over(&world.target());
        fs::remove_dir_all(world.target()).unwrap();
    }
}

/// A file of several blocks is made with another mode, and under a name.
#[test]
fn they_get_the_mode_and_the_acl_that_longer_files_get() {
    if !is_root() || !has("unshare") {
        return;
    }
    let world = World::new();
    const MODES: [u32; 5] = [0o644, 0o600, 0o777, 0o444, 0o1660];
    for mode in MODES {
        for (name, bytes) in [("short", 4), ("long", 300_000)] {
            let path = world.write(format!("src/{name}{mode}"), &Rng::new(1).bytes(bytes));
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    let Some(mounted) = Mounted::tmpfs(&world.target(), "size=64m") else { return };
    for has_acl in [false, true] {
        if has_acl {
            setxattr(mounted.seen(), DEFAULT_ACL, &an_acl(), XattrFlags::empty()).unwrap();
        }
        for options in [&[][..], &["--no-perms"], &["--no-xattrs"], &["--no-perms", "--no-xattrs"]]
        {
            let cp = world.cp(&[options, &["--lab", "block-size=64K", "-I"]].concat());
            run(mounted.command(&cp)).expect(0);
            for mode in MODES {
                let [short, long] = ["short", "long"]
                    .map(|name| mode_and_acl(&mounted.seen().join(format!("{name}{mode}"))));
                assert_eq!(short, long, "{mode:o} {options:?} {has_acl}");
            }
            for file in fs::read_dir(mounted.seen()).unwrap() {
                fs::remove_file(file.unwrap().path()).unwrap();
            }
        }
    }
}

const DEFAULT_ACL: &str = "system.posix_acl_default";
const ACL: &str = "system.posix_acl_access";

/// Returns an ACL as the kernel takes it: user::rwx, user:1234:rwx, group::r-x, mask::rwx,
/// other::---.
fn an_acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, 1234), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()));
        acl.extend(id.to_le_bytes());
    }
    acl
}

fn mode_and_acl(path: &Path) -> (u32, Vec<u8>) {
    let mut acl = [0; 256];
    let count = getxattr(path, ACL, &mut acl[..]).unwrap_or(0);
    (fs::metadata(path).unwrap().permissions().mode(), acl[..count].to_vec())
}
