//! Ends without storage: sources whose bytes are made up, a sink that keeps nothing.

use crate::world::{Ended, Rng, World, lads, run};
use std::fs;
use std::process::Command;

/// Runs `lads cp --json` with these words.
fn cp(words: &[&str], in_directory: &std::path::Path) -> Ended {
    let mut command: Command = lads(words);
    command.current_dir(in_directory);
    run(command)
}

#[test]
fn a_source_of_a_size_becomes_a_file_of_that_size() {
    let world = World::new();
    let here = world.target();
    fs::create_dir(&here).unwrap();
    for word in ["null", "zero"] {
        // Three blocks, the last one of them a short one.
        let source = format!("{word}:2097153");
        let ended = cp(&["--sink=io=buffered", &source, "."], &here).expect(0);
        assert_eq!(ended.summary()["bytes_done"], 2_097_153);
        assert_eq!(ended.summary()["verified"], "wire");
        assert!(fs::read(world.target().join(word)).unwrap() == vec![0; 2_097_153], "{word}");
        cp(&[&source, "named"], &here).expect(0);
        assert_eq!(fs::metadata(here.join("named")).unwrap().len(), 2_097_153);
    }
    cp(&["zero:0", "empty"], &here).expect(0);
    assert_eq!(fs::metadata(here.join("empty")).unwrap().len(), 0);
}

#[test]
fn a_sink_that_keeps_nothing_takes_all_and_leaves_nothing() {
    let world = World::with_files(&mut Rng::new(1));
    std::os::unix::fs::symlink("nowhere", world.path("src/link")).unwrap();
    let flash = world.path("flash");
    fs::create_dir(&flash).unwrap();
    let (source, stage) = (world.source_contents(), format!("stage={}", flash.display()));
    for options in [&[][..], &["--sink", &stage], &["--lab=journal=no"], &["-c"]] {
        let words = [options, &[&source, "null:"]].concat();
        let summary = cp(&words, &flash).expect(0).summary();
        assert_eq!([&summary["files_moved"], &summary["files_failed"]], [45, 0], "{options:?}");
        assert_eq!(summary["verified"], "none", "it does not say that something is kept");
        assert_eq!(summary["bytes_sent"], summary["bytes_found"]);
    }
    assert_eq!(fs::read_dir(&flash).unwrap().count(), 0);
    let dry = cp(&["-n", &source, "null:"], &flash).expect(0).summary();
    assert_eq!(dry["bytes_sent"], 0);
}

#[test]
fn a_stop_before_a_sink_that_keeps_nothing_promises_no_unfinished_files() {
    let kept = "unfinished files stay";
    let scratch = World::new();
    let stopped = |target: &str| {
        cp(&["--stop-after", "1s", "--bwlimit", "10M", "null:1T", target], &scratch.path("."))
            .expect(9)
            .summary()
            .to_string()
    };
    let (nowhere, here) = (stopped("null:"), stopped("here"));
    assert!(!nowhere.contains(kept), "{nowhere}");
    assert!(here.contains(kept), "{here}");
}

#[test]
fn what_has_no_meaning_without_storage_is_refused() {
    let world = World::with_files(&mut Rng::new(2));
    let source = world.source_contents();
    for (arguments, told) in [
        (["--delete", &source, "null:"], "null: discards it"),
        (["--verify=media", &source, "null:"], "null: discards it"),
        (["-q", "null:", "null:"], "needs a size"),
        (["null:1", &source, "null:"], "must be the only source"),
    ] {
        let ended = cp(&arguments, &world.path("src")).expect(2);
        let message = ended.summary()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(told), "{arguments:?}: {message}");
    }
}
