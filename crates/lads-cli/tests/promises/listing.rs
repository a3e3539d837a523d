//! Paths that dry runs, `-v` and `-vv` list, the length of the summary, and the names in both.

use crate::world::{Ended, LADS, RUN_HERE, World, check, has, is_root, lads, run, there};
use std::fs;
use std::process::Command;

/// `lads cp` with output for the user.
fn in_words(world: &World, options: &[&str]) -> Ended {
    let mut command = Command::new(LADS);
    command.args(["cp", "--no-progress"]).args(options);
    run({
        command.arg(world.source_contents()).arg(world.target());
        command
    })
}

fn out(ended: &Ended) -> String {
    String::from_utf8(ended.stdout.clone()).unwrap()
}

#[test]
fn skipped_files_are_listed_only_with_vv() {
    let world = World::new();
    for number in 0..100 {
        world.write(format!("src/{number}"), b"the same");
    }
    run(world.cp(&[])).expect(0);
    for option in ["-n", "-v", "-nv"] {
        let ended = in_words(&world, &[option]).expect(0);
        assert_eq!(out(&ended), "", "{option}");
        assert!(ended.stderr.contains("100 files skipped"), "{option}: {ended:?}");
    }
    for options in [&["-vv"][..], &["-n", "-vv"]] {
        let listed = out(&in_words(&world, options).expect(0));
        assert_eq!(listed.matches("skip       ").count(), 100, "{options:?}: {listed}");
    }
    world.write("src/new", b"new");
    world.write("dst/passed", b"there");
    world.write("src/passed", b"other");
    for option in ["-n", "-v"] {
        let listed = out(&in_words(&world, &[option, "--ignore-existing"]).expect(0));
        let names: Vec<_> = listed.lines().skip(1).collect();
        assert_eq!(names, ["send       new (3 B)"], "{option}");
        fs::remove_file(world.target().join("new")).unwrap_or_default();
    }
    assert_eq!(run(world.cp(&["-n"])).expect(0).events_of("line").len(), 2);
    assert_eq!(run(world.cp(&["-n", "-vv"])).expect(0).events_of("line").len(), 102);
}

#[test]
fn a_short_transfer_has_a_summary_of_one_line_and_the_figures_are_asked_for() {
    let world = World::new();
    world.write("src/a", &[1; 5000]);
    let summary = |options: &[&str]| -> Vec<String> {
        let ended = in_words(&world, options).expect(0);
        ended.stderr.lines().map(str::to_owned).collect()
    };
    let brief = summary(&["-I"]);
    assert_eq!(brief.len(), 1, "{brief:?}");
    assert!(brief[0].starts_with("lads: done: 1 file (4.9 KiB) moved in "), "{brief:?}");
    assert_eq!(summary(&["-I", "-q"]), [""; 0]);
    for options in [&["-I", "-v"][..], &["-I", "--stats"], &["-I", "-q", "--stats"]] {
        let full = summary(options);
        assert!(full.iter().any(|line| line.starts_with("      CPU ")), "{options:?}: {full:?}");
        assert!(!full.iter().any(|line| line.contains("in storage")), "{options:?}: {full:?}");
    }
    assert!(summary(&["-I", "-vv"]).iter().any(|line| line.contains("in storage")));
}

/// In all directions, for a target without a file and one with a file of that name.
#[test]
fn a_file_under_a_new_name_is_reported_under_that_name() {
    let world = World::new();
    let shell = world.fake_shell(RUN_HERE);
    let source = world.write("src/old", b"four").display().to_string();
    let target = world.path("dir/new").display().to_string();
    fs::create_dir(world.path("dir")).unwrap();
    let ways: [(Command, String, String); 3] = [
        (lads::<&str>(&[]), source.clone(), target.clone()),
        (there(&shell), source.clone(), format!("there:{target}")),
        (there(&shell), format!("there:{source}"), target.clone()),
    ];
    for (mut command, from, to) in ways {
        let ended = run({
            command.args(["-n", &from, &to]);
            command
        })
        .expect(0);
        let lines = ended.events_of("line");
        assert_eq!((lines.len(), &lines[0]["path"]), (1, &"new".into()), "{from} {to}: {ended:?}");
    }
    let mut command = Command::new(LADS);
    command.args(["cp", "-n", "--no-progress", "../src/old", "new"]);
    let ended = run({
        command.current_dir(world.path("dir"));
        command
    });
    assert_eq!(out(&ended), "into ./\nsend       new (4 B)\n");
    let told = out(&run({
        let mut command = Command::new(LADS);
        command.args(["cp", "-v", "--no-progress", &source, &target]);
        command
    }));
    let directory = world.path("dir").display().to_string();
    assert_eq!(told, format!("into {directory}/\nsend       new (4 B)\n"));
    assert_eq!(fs::read(&target).unwrap(), b"four");
    fs::write(&target, b"FIVE!").unwrap();
    let ended = run(check(&[&source, &target])).expect(11);
    assert_eq!(ended.differences(), ["other-size new"]);
}

/// Storage that refuses the first call gets its reason by name and advice that fits, and no claim
/// that the same command would resume.
#[test]
fn a_sink_that_refuses_at_the_start_is_reported_with_advice() {
    if !is_root() || !has("setpriv") || !has("unshare") {
        return;
    }
    let world = World::new();
    world.write("src/a", b"a");
    fs::create_dir(world.path("dst")).unwrap();
    fs::create_dir(world.path("ro")).unwrap();
    let refused = |script: &str, words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).current_dir(world.path("")).env("LADS", LADS);
        let ended = run(command).expect(6);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{words:?}: {ended:?}");
        let is_wrong = ["resume", "os error"].iter().any(|word| ended.stderr.contains(word));
        assert!(!is_wrong, "{ended:?}");
    };
    let full = "mount -t tmpfs -o size=4k tmpfs dst && head -c 4096 /dev/zero > dst/full && exec \
                $LADS cp --no-progress src/ dst";
    refused(full, &["No space left on device (ENOSPC)", "free space or inodes there"]);
    let denied = "exec setpriv --reuid=4242 --clear-groups $LADS cp --no-progress src/";
    for target in ["ro", "ro/new"] {
        let words =
            ["Permission denied (EACCES)", "get permission to do that, or choose another DST"];
        refused(&format!("{denied} {target}"), &words);
    }
    let missing = "exec $LADS cp --no-progress src/ no/such/directory";
    refused(missing, &["its parent directory does not exist", "--mkpath"]);
}

/// `lads check d1 d2` compares d1 with d2/d1, as `lads cp d1 d2` would create that.
#[test]
fn a_comparison_with_a_directory_that_does_not_exist_is_explained() {
    let world = World::new();
    world.write("d1/a", b"a");
    world.write("d2/a", b"a");
    let (one, two) = (world.path("d1"), world.path("d2"));
    let ended = run(check(&[&one, &two])).expect(11);
    assert_eq!(ended.differences(), ["only-at-source d1/"]);
    let notices = ended.events_of("notice");
    let text = notices[0]["text"].as_str().unwrap();
    let missing = format!("{}/d1, which does not exist", two.display());
    assert!(text.contains(&missing) && text.contains("add a slash"), "{text}");
    let contents = format!("{}/", one.display());
    let ended = run(check(&[contents.as_str(), two.to_str().unwrap()])).expect(0);
    assert_eq!(ended.events_of("notice").len(), 0);
    fs::create_dir_all(two.join("d1/sub")).unwrap();
    let ended = run(check(&[&one, &two])).expect(11);
    assert_eq!(ended.events_of("notice").len(), 0, "{ended:?}");
}

/// A directory of the same name as the only source is no new name for it.
#[test]
fn a_file_that_goes_into_a_directory_keeps_its_name() {
    let world = World::new();
    let source = world.write("src/a", b"four").display().to_string();
    fs::create_dir(world.path("a")).unwrap();
    let ended = run(lads(&["-n", &source, world.path("a").to_str().unwrap()])).expect(0);
    assert_eq!(ended.events_of("line")[0]["path"], "a");
    fs::create_dir_all(world.path("a/a/not empty")).unwrap();
    let ended = run(lads(&[&source, world.path("a").to_str().unwrap()])).expect(6);
    assert_eq!(ended.issue()["path"], world.path("a/a").to_str().unwrap());
}

#[test]
fn a_failure_of_a_file_under_a_new_name_names_the_target() {
    let world = World::new();
    let source = world.write("src/old", b"four").display().to_string();
    let target = world.path("x".repeat(256)).display().to_string();
    let ended = run(lads(&[&source, &target])).expect(6);
    let named = format!("{:?}", ended.events());
    assert!(!named.contains(&format!("{target}/old")), "{named}");
}
