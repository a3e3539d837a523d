//! Reports about what a transfer has moved, skipped, verified and read contain only what is true.

use crate::faultfs::FaultFs;
use crate::world::{
    Ended, LADS, Mounted, RUN_HERE, Rng, World, assert_identical, check, lads, run, start, there,
    wait_until_gone,
};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

/// Moves a tree, then damages one file of it at the target and restores the file's time.
fn damaged() -> World {
    let world = World::on_disk();
    let mut rng = Rng::new(7);
    for number in 0..3 {
        world.write(format!("src/large{number}"), &rng.bytes(3 << 20));
        world.write(format!("src/small/{number}"), &rng.bytes(5000));
    }
    world.write("src/empty", b"");
    std::os::unix::fs::symlink("large0", world.path("src/link")).unwrap();
    run(world.cp(&[])).expect(0);
    world.damage("large1", 2 << 20);
    world
}

/// Returns the output for a person, without the figures about the machine.
fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    String::from_utf8(output.stderr).unwrap()
}

fn in_words(world: &World, options: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.arg("cp").args(options).arg(world.source_contents()).arg(world.target());
    command
}

fn verified(ended: &Ended) -> String {
    ended.summary()["verified"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_skipped_for_its_time_is_said_not_to_be_read_and_nothing_is_said_to_be_verified() {
    let world = damaged();
    let ended = run(world.cp(&["--verify", "media"])).expect(0);
    assert_eq!(verified(&ended), "none");
    assert_eq!((ended.count("files_unread"), ended.count("files_moved")), (6, 0));
    assert_eq!(ended.count("bytes_unread"), 3 * (3 << 20) + 15_000);
    let said = said(in_words(&world, &["--verify", "media"]));
    let expected = "done: nothing was moved; 6 files skipped (same size and time, not read); \
                    2 other entries unchanged (links, special or empty files)\n";
    assert!(said.contains(expected), "{said}");
    assert!(!said.contains("verified") && !said.contains("durable"), "{said}");
}

#[test]
fn what_was_moved_is_told_apart_from_what_was_skipped() {
    let world = damaged();
    world.write("src/new", b"something");
    let said = said(in_words(&world, &["--verify", "media"]));
    assert!(said.contains("done: 1 file (9 B) moved in "), "{said}");
    let expected =
        ", durable and verified (media); 6 files skipped (same size and time, not read); ";
    assert!(said.contains(expected), "{said}");
    world.write("src/newer", b"something");
    assert_eq!(verified(&run(world.cp(&["--verify", "media"])).expect(0)), "media");
}

#[test]
fn with_checksum_exactly_the_file_with_other_bytes_is_moved() {
    let world = damaged();
    let dry = run(world.cp(&["-c", "-n"])).expect(0);
    assert_eq!(sent(&dry), ["large1"]);
    assert_eq!((dry.count("bytes_sent"), verified(&dry).as_str()), (0, "none"));
    let ended = run(world.cp(&["-c", "-v"])).expect(0);
    assert_eq!(sent(&ended), ["large1"]);
    assert_eq!((ended.count("bytes_sent"), ended.count("files_moved")), (3 << 20, 1));
    assert_eq!((ended.count("files_compared"), ended.count("files_unread")), (5, 0));
    assert_eq!(ended.count("bytes_compared"), 2 * (3 << 20) + 15_000);
    assert_identical(&world.source(), &world.target());
    let again = run(world.cp(&["-c"])).expect(0);
    assert_eq!((again.count("files_compared"), again.count("bytes_sent")), (6, 0));
    assert_eq!(verified(&again), "none");
    let said = said(in_words(&world, &["-c"]));
    assert!(
        said.contains("nothing was moved; 6 files unchanged (same checksums at both ends);"),
        "{said}"
    );
}

/// Returns the names of files whose data was, or would be, sent.
fn sent(ended: &Ended) -> Vec<String> {
    let lines = ended.events_of("line").into_iter().filter(|line| line["verb"] == "send");
    lines.map(|line| line["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn with_checksum_a_file_of_the_same_bytes_and_another_time_is_not_sent_and_gets_its_time() {
    let world = damaged();
    run(world.cp(&["-c"])).expect(0);
    let path = world.target().join("large0");
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH)
        .unwrap();
    let ended = run(world.cp(&["-c"])).expect(0);
    assert_eq!((ended.count("bytes_sent"), ended.count("files_compared")), (0, 6));
    assert_identical(&world.source(), &world.target());
}

#[test]
fn with_checksum_holes_and_zeros_are_the_same() {
    let world = World::on_disk();
    let mut bytes = vec![0; 2 << 20];
    bytes[1 << 20..(1 << 20) + 4096].fill(7);
    world.write("src/sparse", &bytes);
    // The hole is first at the source only, then at the sink only.
    let hole = |name: &str| {
        let file = fs::File::create(world.path(name)).unwrap();
        file.set_len(2 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 1 << 20).unwrap();
    };
    hole("src/sparse");
    world.write("dst/sparse", &bytes);
    assert_eq!(run(world.cp(&["-c"])).expect(0).count("files_compared"), 1);
    world.write("src/sparse", &bytes);
    hole("dst/sparse");
    assert_eq!(run(world.cp(&["-c"])).expect(0).count("files_compared"), 1);
    world.damage("sparse", 0);
    assert_eq!(run(world.cp(&["-c"])).expect(0).count("files_moved"), 1);
    assert_eq!(fs::read(world.target().join("sparse")).unwrap(), bytes);
}

#[test]
fn with_checksum_a_push_and_a_pull_move_what_differs() {
    let world = damaged();
    let shell = world.fake_shell(RUN_HERE);
    let places = [
        [world.source_contents(), format!("there:{}", world.target().display())],
        [format!("there:{}", world.source_contents()), world.target().display().to_string()],
    ];
    for (place, options) in places.iter().zip([&["-c", "--tunnel"][..], &["-c"]]) {
        let mut command = there(&shell);
        let ended = run({
            command.arg("--privileges").args(options).args(place);
            command
        });
        let ended = ended.expect(0);
        assert_eq!((ended.count("files_moved"), ended.count("files_compared")), (1, 5));
        world.damage("small/2", 100);
    }
    assert_eq!(run(world.cp(&["-c"])).expect(0).count("files_moved"), 1);
    assert_identical(&world.source(), &world.target());
}

/// Uses layouts with different stripe lengths at both ends, little memory, few threads, and a
/// stage.
#[test]
fn with_checksum_any_layout_and_any_memory_gives_the_same() {
    let world = damaged();
    let layouts = [
        ["synthetic:osts=3,stripe_size=64K,stripe_count=3", "synthetic:osts=2,stripe_size=256K"],
        ["local", "synthetic:osts=5,stripe_size=128K,stripe_count=2"],
    ];
    for [source, sink] in layouts {
        let stage = world.path("stage");
        fs::create_dir_all(&stage).unwrap();
        let staged_at = |end| format!("--{end}=stage={}", stage.display());
        for rest in ["--lab=schedule=file".to_owned(), staged_at("sink"), staged_at("source")] {
            let source = format!("--source=layout={source},threads=2");
            let sink = format!("--sink=layout={sink},threads=2");
            let options = ["-c", &source, &sink, "--lab=block-size=64K", "--buffers=2M", &rest];
            let ended = run(world.cp(&options)).expect(0);
            assert_eq!((ended.count("files_moved"), ended.count("files_compared")), (1, 5));
            assert_identical(&world.source(), &world.target());
            world.damage("large2", 3 << 19);
        }
    }
}

#[test]
fn an_interrupted_comparison_goes_on_and_moves_what_differs() {
    let world = damaged();
    world.write("src/zlong", &Rng::new(3).bytes(8 << 20));
    world.write("dst/zlong", &Rng::new(4).bytes(8 << 20));
    let options = ["-c", "--bwlimit", "4M", "--lab", "block-size=64K"];
    let mut stopped = start(world.cp(&options));
    let sink = stopped.other_end();
    assert!(stopped.runs_until_written(sink, 1 << 20), "over before stopped");
    stopped.signal("TERM");
    let stopped = stopped.end().expect(9);
    wait_until_gone(sink);
    assert_eq!(stopped.count("files_moved") == 0, verified(&stopped) == "none", "{stopped:?}");
    let ended = run(world.cp(&["-c", "--lab", "block-size=64K"])).expect(0);
    assert_eq!(stopped.count("files_moved") + ended.count("files_moved"), 2);
    assert!(ended.count("bytes_sent") < 11 << 20, "it goes on: {ended:?}");
    assert_identical(&world.source(), &world.target());
}

#[test]
fn of_a_full_disk_nothing_is_said_to_be_verified_that_was_not_moved() {
    let world = World::new();
    world.write("src/large", &Rng::new(1).bytes(8 << 20));
    let Some(mount) = Mounted::tmpfs(&world.target(), "size=4m") else { return };
    let ended = run(mount.command(&world.cp(&[]))).expect(6);
    assert_eq!((ended.count("files_moved"), verified(&ended).as_str()), (0, "none"));
    let said = said(mount.command(&in_words(&world, &[])));
    assert!(!said.contains("verified") && !said.contains("durable"), "{said}");
}

#[test]
fn of_a_file_that_failed_nothing_is_said_but_that() {
    let world = damaged();
    world.write("dst/new/kept", b"in the way");
    world.write("src/new", b"new");
    let ended = run(world.cp(&[])).expect(6);
    assert_eq!(verified(&ended), "none");
    assert_eq!((ended.count("files_failed"), ended.count("files_unread")), (1, 6));
}

#[test]
fn nothing_at_all_is_verified_where_there_is_nothing() {
    let world = World::new();
    fs::create_dir(world.source()).unwrap();
    assert_eq!(verified(&run(world.cp(&[])).expect(0)), "none");
    let said = said(in_words(&world, &[]));
    assert!(said.contains("lads: done: nothing was moved\n"), "{said}");
    let refused = run(lads(&["h1:a", "h2:b", "c"])).expect(2);
    assert_eq!(verified(&refused), "none");
}

/// Makes a world with the same file of three blocks at both ends. One end is on storage that fails
/// on command.
fn same_file_with(storage: &str) -> Option<(World, FaultFs)> {
    let world = World::on_disk();
    let storage = FaultFs::mount(&world, storage)?;
    world.write("src/large", &Rng::new(5).bytes(3 << 20));
    run(world.cp(&["--no-perms", "--no-owner"])).expect(0);
    Some((world, storage))
}

/// Options to compare one block after the other.
const IN_TURN: &[&str] = &["--source=threads=1", "--sink=threads=1", "--lab=block-size=1M"];

#[test]
fn what_is_changed_at_the_sink_after_it_was_compared_is_not_said_to_be_the_same() {
    let Some((world, sink)) = same_file_with("dst") else { return };
    let change_while_read = |command: Command| {
        sink.command("clear\nhang read path=large nth=3");
        let running = start(command);
        sink.wait_for_fault("hang");
        // The last block is being read; the first one was compared and found the same.
        let file = fs::File::options().write(true).open(sink.path("large")).unwrap();
        file.write_all_at(b"changed", 0).unwrap();
        drop(file);
        sink.command("release");
        running.end()
    };
    let mut check = check(IN_TURN);
    check.arg(world.source_contents()).arg(world.target());
    let ended = change_while_read(check).expect(8);
    assert_eq!((ended.issue()["reason"].as_str(), ended.differences().len()), (Some("changed"), 0));
    world.write("dst/large", &Rng::new(5).bytes(3 << 20));
    let mut options = vec!["-c", "--no-perms", "--no-owner"];
    options.extend(IN_TURN);
    let ended = change_while_read(world.cp(&options)).expect(0);
    assert_eq!((ended.count("files_moved"), ended.count("files_compared")), (1, 0));
    assert_eq!(fs::read(world.path("src/large")).unwrap(), fs::read(sink.path("large")).unwrap());
}

#[test]
fn what_is_changed_at_the_sink_before_it_is_read_is_not_said_to_be_different() {
    let Some((world, source)) = same_file_with("src") else { return };
    source.command("hang read path=large nth=1");
    let mut check = check(IN_TURN);
    check.arg(world.source_contents()).arg(world.target());
    let running = start(check);
    source.wait_for_fault("hang");
    // The sink has examined the file, and will compare the state that it saw.
    world.write("dst/large", &Rng::new(6).bytes(3 << 20));
    source.command("release");
    let ended = running.end().expect(8);
    assert_eq!((ended.issue()["reason"].as_str(), ended.differences().len()), (Some("changed"), 0));
}
