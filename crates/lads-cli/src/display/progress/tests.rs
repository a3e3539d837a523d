use super::*;
use expect_test::expect;
use lads_core::message::Counters;

const MIB: u64 = 1 << 20;

/// A recorded transfer, one row a second: bytes and entries found, bytes recorded and written,
/// entries done, whether the tree has been walked.
const TRACE: [(u64, u64, u64, u64, u64, bool); 8] = [
    (100, 10, 0, 0, 0, false),
    (400, 40, 0, 90, 8, false),
    (900, 90, 64, 180, 17, false),
    (900, 90, 128, 270, 26, true),
    (900, 90, 320, 360, 35, true),
    (900, 90, 384, 450, 44, true),
    (900, 90, 512, 540, 53, true),
    (900, 90, 630, 630, 62, true),
];

fn progress(second: usize) -> Progress {
    let (bytes_found, files_found, recorded, written, files_moved, is_walk_ended) = TRACE[second];
    let source = Counters {
        bytes_found: bytes_found * MIB,
        bytes_done: recorded * MIB,
        files_found,
        files_moved,
        is_walk_ended,
        ..Counters::default()
    };
    let sink = Counters { bytes_done: written * MIB, ..Counters::default() };
    let elapsed = Duration::from_secs(second as u64);
    let bottleneck = (second > 4).then_some(Bottleneck::SinkStorage);
    Progress { elapsed, source, sink, bottleneck, ..Progress::default() }
}

fn replay() -> Vec<Shown> {
    let mut follower = Follower::default();
    (0..TRACE.len()).map(|second| follower.take(&progress(second))).collect()
}

#[test]
fn a_recorded_transfer_has_these_lines() {
    let lines: String = replay().iter().map(|shown| shown.line(90) + "\n").collect();
    expect![[r#"
        0 B of 100.0 MiB, scanning…  0 of 10 entries  0 B/s  0:00
        90.0 MiB of 400.0 MiB, scanning…  8 of 40 entries  94.4 MB/s  0:01
        180.0 MiB of 900.0 MiB, scanning…  17 of 90 entries  94.4 MB/s  0:02
         30%  270.0 MiB of 900.0 MiB  26 of 90 entries  94.4 MB/s  0:03  0:07 left
         40%  360.0 MiB of 900.0 MiB  35 of 90 entries  94.4 MB/s  0:04  0:06 left
         50%  450.0 MiB of 900.0 MiB  44 of 90 entries  94.4 MB/s  0:05  0:05 left
         60%  540.0 MiB of 900.0 MiB  53 of 90 entries  94.4 MB/s  0:06  0:04 left
         70%  630.0 MiB of 900.0 MiB  62 of 90 entries  94.4 MB/s  0:07  0:03 left
    "#]]
    .assert_eq(&lines);
}

#[test]
fn a_narrow_terminal_gets_the_most_important_parts() {
    let shown = &replay()[7];
    let lines: Vec<String> =
        [92, 70, 60, 40, 30, 10].map(|columns| format!("[{}]", shown.line(columns))).into();
    expect![[r#"
        [ 70%  630.0 MiB of 900.0 MiB  62 of 90 entries  94.4 MB/s  0:07  0:03 left]
        [ 70%  630.0 MiB of 900.0 MiB  94.4 MB/s  0:07  0:03 left]
        [ 70%  630.0 MiB of 900.0 MiB  94.4 MB/s  0:07  0:03 left]
        [ 70%  630.0 MiB of 900.0 MiB  94.4 MB/s]
        [ 70%  630.0 MiB of 900.0 MiB]
        [ 70%  630.]"#]]
    .assert_eq(&lines.join("\n"));
    for columns in 0..120 {
        assert!(shown.line(columns).chars().count() <= columns);
    }
}

#[test]
fn the_current_file_takes_the_remaining_columns_and_is_kept_between_two() {
    let mut follower = Follower::default();
    let current = Some(b"run7/deep/down/ckpt.0041".to_vec());
    follower.take(&Progress { current, ..progress(6) });
    let shown = follower.take(&progress(7));
    let path = |columns| {
        let line = shown.line(columns);
        line.split_once("sink storage").map(|(_, path)| path.to_owned())
    };
    let without = Shown { current: None, ..shown.clone() }.line(usize::MAX).chars().count();
    assert_eq!(path(usize::MAX).as_deref(), Some("  run7/deep/down/ckpt.0041"));
    assert_eq!(path(without + 26).as_deref(), Some("  run7/deep/down/ckpt.0041"));
    assert_eq!(path(without + 15).as_deref(), Some("  …wn/ckpt.0041"));
    // Too few columns are left for any useful part of the path.
    assert_eq!(path(without + 10).as_deref(), Some(""));
    for columns in 0..150 {
        assert!(shown.line(columns).chars().count() <= columns);
    }
}
