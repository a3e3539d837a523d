//! Everyday tasks of people who know rsync and scp: what they type out of habit does what they want
//! at the first attempt. docs/testing.md has the list for people.

use crate::world::{LADS, World, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// Task, command, and a condition in the words of a shell. The command runs in the home directory
/// `here`; `dtn` and `other` are hosts, whose home directories are `$DTN` and `$OTHER`.
const TASKS: [(&str, &str, &str); 42] = [
    ("a file to another host", "lads cp a.txt dtn:", "cmp a.txt $DTN/a.txt"),
    ("under a new name", "lads cp a.txt dtn:new.txt", "cmp a.txt $DTN/new.txt"),
    ("to an absolute path", "lads cp a.txt me@dtn:$DTN/old/", "cmp a.txt $DTN/old/a.txt"),
    ("to the home directory there", "lads cp a.txt dtn:~/", "cmp a.txt $DTN/a.txt"),
    ("several files", "lads cp a.txt b.txt dtn:old", "cmp b.txt $DTN/old/b.txt"),
    ("a directory", "lads cp -r run dtn:", "diff -r run $DTN/run"),
    ("the contents of a directory", "lads cp -a run/ dtn:copy", "diff -r run $DTN/copy"),
    ("a file from another host", "lads cp dtn:data.h5 .", "cmp data.h5 $DTN/data.h5"),
    ("a directory from there", "lads cp -a dtn:old .", "diff -r old $DTN/old"),
    ("a pattern there", "lads cp 'dtn:*.h5' got/ --mkpath", "test $(ls got | wc -l) = 2"),
    ("from host to host", "lads cp dtn:data.h5 other:", "cmp $DTN/data.h5 $OTHER/data.h5"),
    ("within this host", "lads cp -a run backup/", "diff -r run backup/run"),
    ("what would be done", "lads cp -avn run dtn: | grep -q h5", "test ! -e $DTN/run"),
    ("with progress", "lads cp -avP run dtn:", "diff -r run $DTN/run"),
    ("compressed, as rsync -z", "lads cp -avz run dtn:", "diff -r run $DTN/run"),
    (
        "without temporary files",
        "lads cp -a --exclude='*.tmp' run dtn:",
        "test ! -e $DTN/run/x.tmp",
    ),
    ("a list of exclusions", "lads cp -a --exclude-from=list run dtn:", "test ! -e $DTN/run/x.tmp"),
    (
        "only one kind of file",
        "lads cp -a --include='*/' --include='*.h5' --exclude='*' run dtn:",
        "test -e $DTN/run/deep/1.h5 -a ! -e $DTN/run/x.tmp",
    ),
    ("a mirror", "lads cp -a --delete run/ dtn:old/", "diff -r run $DTN/old"),
    (
        "a mirror, with care",
        "lads cp -a --delete --max-delete=9 run/ dtn:old",
        "diff -r run $DTN/old",
    ),
    (
        "a list of deletions of the mirror",
        "lads cp -an --delete run/ dtn:old",
        "test -e $DTN/old/only",
    ),
    ("newer files only", "lads cp -au run/ dtn:old", "grep -q newer $DTN/old/x.tmp"),
    ("new files only", "lads cp -a --ignore-existing run/ dtn:old", "grep -q newer $DTN/old/x.tmp"),
    ("compared by contents", "lads cp -ac run/ dtn:old", "cmp run/x.tmp $DTN/old/x.tmp"),
    ("the targets of links", "lads cp -aL run dtn:", "test -f $DTN/run/link -a ! -L $DTN/run/link"),
    ("hard links and holes", "lads cp -aHS run dtn:", "test $DTN/run/n1 -ef $DTN/run/n2"),
    ("ACLs and attributes", "lads cp -aAX run dtn:", "diff -r run $DTN/run"),
    ("at a limited rate", "lads cp -a --bwlimit=50m run dtn:", "diff -r run $DTN/run"),
    ("moved, not copied", "lads cp -a --remove-source-files run dtn:", "test ! -e run/x.tmp"),
    ("into a new directory", "lads cp -a --mkpath run dtn:p/q/", "diff -r run $DTN/p/q/run"),
    (
        "the files that find lists",
        "find . -name '*.h5' -print0 | lads cp -0 --files-from=- . dtn:some",
        "cmp run/deep/1.h5 $DTN/some/run/deep/1.h5",
    ),
    ("the output of a program", "tar c run | lads cp - dtn:run.tar", "tar tf $DTN/run.tar"),
    ("to the input of a program", "lads cp dtn:data.h5 - | cmp - $DTN/data.h5", "true"),
    ("in a cron job", "test -z \"$(lads cp -aq run dtn: 2>&1)\"", "diff -r run $DTN/run"),
    ("until the morning", "lads cp -a --stop-after=8h run dtn:", "diff -r run $DTN/run"),
    ("over outages", "lads cp -a --retry-for=1h run dtn:", "diff -r run $DTN/run"),
    ("through ssh only", "lads cp -a --tunnel run dtn:", "diff -r run $DTN/run"),
    (
        "interrupted, and again",
        "lads cp --bwlimit=1m --stop-after=1s big dtn:; lads cp big dtn:",
        "cmp big $DTN/big",
    ),
    ("a listing of a directory there", "lads ls -l dtn: | grep -q data.h5", "true"),
    ("are they the same?", "lads cp -a run dtn: && lads check run dtn:", "true"),
    ("what differs", "lads check run/ dtn:old/ | grep -q x.tmp", "true"),
    ("remains of killed transfers", "lads clean dtn:", "test -e $DTN/data.h5"),
];

/// The directories of this host and the two others, and the command that leads to them as ssh does.
fn hosts() -> (World, String) {
    let world = World::new();
    for (name, text) in [
        ("here/a.txt", "a"),
        ("here/b.txt", "b"),
        ("here/run/deep/1.h5", "1"),
        ("here/run/x.tmp", "older"),
        ("here/run/n1", "n"),
        ("here/list", "*.tmp\n"),
        ("dtn/data.h5", "data"),
        ("dtn/more.h5", "more"),
        ("dtn/old/x.tmp", "newer"),
        ("dtn/old/only", "only there"),
        ("other/.keep", ""),
    ] {
        world.write(name, text.as_bytes());
    }
    world.write("here/big", &vec![5; 4 << 20]);
    symlink("deep/1.h5", world.path("here/run/link")).unwrap();
    fs::hard_link(world.path("here/run/n1"), world.path("here/run/n2")).unwrap();
    let mut touch = Command::new("touch");
    touch.args(["-d", "2001-01-01"]).arg(world.path("here/run/x.tmp"));
    assert!(touch.status().unwrap().success());
    let home = world.path("").display().to_string();
    let home = home.trim_end_matches('/');
    let script = format!("host=${{1#*@}}; shift; export HOME={home}/$host; cd; eval \"$*\"");
    let shell = world.fake_shell(&script);
    (world, shell)
}

#[test]
fn everyday_tasks_succeed_by_habit() {
    let mut failed = String::new();
    let directory: PathBuf = PathBuf::from(LADS).parent().unwrap().to_owned();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    for (task, command, condition) in TASKS {
        let (world, shell) = hosts();
        let typed = |words: &str| {
            let mut sh = Command::new("sh");
            sh.args(["-c", words]).current_dir(world.path("here")).env("PATH", &path);
            sh.env("LADS_RSH", &shell).env("LADS_REMOTE_LADS", LADS);
            // What `ssh -G` resolves for real hosts.
            sh.env("LADS_DATA_ADDRESS", "127.0.0.1");
            for (name, home) in [("DTN", "dtn"), ("OTHER", "other")] {
                sh.env(name, world.path(home));
            }
            run(sh)
        };
        let (done, judged) = (typed(command), typed(condition));
        if done.code != Some(0) || judged.code != Some(0) {
            failed += &format!("{task}: {command}: {done:?}, {judged:?}\n");
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn the_list_for_people_has_these_tasks() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
    let page = fs::read_to_string(page).unwrap();
    for (task, command, _) in TASKS {
        let row = format!("| {task} | `{}` |", command.replace('|', "\\|"));
        assert!(page.contains(&row), "docs/testing.md has no row {row}");
    }
}
