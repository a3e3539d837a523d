//! What people type out of habit: common commands of rsync do what rsync does, or LADS says what to
//! type instead.

use crate::world::{LADS, World, has, run};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Makes a source, and a target with older, newer, equal and other files.
fn trees() -> World {
    let world = World::new();
    for name in ["a.txt", "b.tmp", "below/c.txt", "below/deep/d", "-dash", "with space", "equal"] {
        world.write(format!("src/{name}"), name.as_bytes());
    }
    world.write("more/e.txt", b"e");
    symlink("a.txt", world.path("src/link")).unwrap();
    symlink("../../more", world.path("src/below/directory-link")).unwrap();
    for name in ["a.txt", "equal"] {
        world.write(format!("dst/{name}"), b"other");
    }
    world.write("dst/below/c.txt", b"same length");
    world.write("dst/only-here/f", b"f");
    world.write("dst/only-here.txt", b"g");
    world.write("list", b"a.txt\nbelow/deep/d\n");
    let touch = |name: &str, time: &str| {
        let mut touch = Command::new("touch");
        assert!(touch.args(["-d", time]).arg(world.path(name)).status().unwrap().success());
    };
    // rsync compares times in seconds.
    touch("dst/a.txt", "2001-01-01");
    touch("dst/below/c.txt", "2001-01-01");
    touch("dst/equal", "2037-01-01");
    world
}

/// Runs a command of a program in a world, as a person types it there.
fn typed(program: &str, words: &str, world: &World) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{program} {words}")).current_dir(world.path(""));
    let ended = run(shell);
    (ended.code, ended.stderr)
}

/// What differs between two directories; LADS's own files do not count.
fn difference(one: &Path, other: &Path) -> String {
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference", "-x", ".lads-*"]).args([one, other]);
    String::from_utf8(diff.output().unwrap().stdout).unwrap()
}

/// `-rtv` is not among them: LADS keeps links without `-l`.
const COMMANDS: [&str; 26] = [
    "-a src/ dst/",
    "-a src dst/",
    "-avP src/ dst",
    "-avz src/ dst/",
    "-avh --progress src/ dst/",
    "-rltv src/ dst/",
    "-aHAXS src/ dst/",
    "-a --delete src/ dst/",
    "-av --delete --max-delete=9 src/ dst/",
    "-avn --delete src/ dst/",
    "-a --exclude='*.tmp' src/ dst/",
    "-a --exclude '*.tmp' --delete src/ dst/",
    "-a --exclude=/below src/ dst/",
    "-a --include='*/' --include='*.txt' --exclude='*' src/ dst/",
    "-aL src/ dst/",
    "-au src/ dst/",
    "-ac src/ dst/",
    "-aI src/ dst/",
    "-a --ignore-existing src/ dst/",
    "-a --existing src/ dst/",
    "-ax src/ dst/",
    "-a --remove-source-files src/ dst/",
    "-a --files-from=list src/ dst/",
    "-a src/a.txt src/below more dst/",
    "-a --bwlimit=10m --partial --stats src/ dst/",
    "-a src/a.txt dst/new-name",
];

#[test]
fn common_commands_do_what_rsync_does() {
    if !has("rsync") {
        return;
    }
    let mut unlike = String::new();
    for words in COMMANDS {
        let (ours, theirs) = (trees(), trees());
        let by_rsync = typed("rsync", words, &theirs);
        let by_lads = typed(&format!("{LADS} cp"), words, &ours);
        let is_same_end = (by_rsync.0 == Some(0)) == (by_lads.0 == Some(0));
        if !is_same_end {
            unlike += &format!("{words}: {by_rsync:?} {by_lads:?}\n");
        }
        for tree in ["src", "dst"] {
            let difference = difference(&theirs.path(tree), &ours.path(tree));
            if !difference.is_empty() {
                unlike += &format!("{words}: {difference}\n");
            }
        }
    }
    assert!(unlike.is_empty(), "{unlike}");
}

const REFUSED: [&str; 8] = [
    "-aR src/below dst/",
    "-a --inplace src/ dst/",
    "-a --append src/ dst/",
    "-a --link-dest=../old src/ dst/",
    "-a --backup src/ dst/",
    "-a --size-only src/ dst/",
    "-am src/ dst/",
    "-a -f '- *.tmp' src/ dst/",
];

#[test]
fn what_is_not_possible_is_refused_with_what_to_type_instead() {
    for words in REFUSED {
        let (before, world) = (trees(), trees());
        let (code, stderr) = typed(&format!("{LADS} cp"), words, &world);
        assert_eq!(code, Some(2), "{words}: {stderr}");
        assert!(stderr.contains(" is not possible: "), "{words}: {stderr}");
        assert_eq!(difference(&before.path("dst"), &world.path("dst")), "", "{words}");
    }
}
