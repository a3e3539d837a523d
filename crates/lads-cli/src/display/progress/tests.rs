use super::*;
use expect_test::expect;
use lads_core::message::Counters;

const MIB: u64 = 1 << 20;

/// A recorded transfer, one row a second: bytes and files found, bytes and files done, whether the
/// tree has been walked. A file changes after eight seconds, and its 200 MiB are taken back.
const TRACE: [(u64, u64, u64, u64, bool); 14] = [
    (100, 10, 0, 0, false),
    (400, 40, 90, 8, false),
    (900, 90, 180, 17, false),
    (900, 90, 270, 26, true),
    (900, 90, 360, 35, true),
    (900, 90, 450, 44, true),
    (900, 90, 540, 53, true),
    (900, 90, 630, 62, true),
    (900, 90, 430, 62, true),
    (900, 90, 520, 64, true),
    (900, 90, 610, 66, true),
    (900, 90, 700, 70, true),
    (900, 90, 800, 80, true),
    (900, 90, 900, 90, true),
];

fn progress(second: usize) -> Progress {
    let (bytes_found, files_found, bytes_done, files_moved, is_walk_ended) = TRACE[second];
    let source = Counters {
        bytes_found: bytes_found * MIB,
        bytes_done: bytes_done * MIB,
        files_found,
        files_moved,
        is_walk_ended,
        ..Counters::default()
    };
    let elapsed = Duration::from_secs(second as u64);
    let bottleneck = (second > 4).then_some(Bottleneck::SinkStorage);
    Progress { elapsed, source, bottleneck, ..Progress::default() }
}

fn replay() -> Vec<Figures> {
    let mut meter = Meter::default();
    (0..TRACE.len()).map(|second| meter.take(&progress(second))).collect()
}

#[test]
fn a_recorded_transfer_is_shown_as_ever() {
    let lines: String = replay().iter().map(|figures| figures.line(90) + "\n").collect();
    expect![[r#"
        0 B of 100.0 MiB, scanning…  0 of 10 files  0 B/s  0:00
        90.0 MiB of 400.0 MiB, scanning…  8 of 40 files  94.4 MB/s  0:01
        180.0 MiB of 900.0 MiB, scanning…  17 of 90 files  94.4 MB/s  0:02
         30%  270.0 MiB of 900.0 MiB  26 of 90 files  94.4 MB/s  0:03  0:07 left
         40%  360.0 MiB of 900.0 MiB  35 of 90 files  94.4 MB/s  0:04  0:06 left
         50%  450.0 MiB of 900.0 MiB  44 of 90 files  94.4 MB/s  0:05  0:05 left
         60%  540.0 MiB of 900.0 MiB  53 of 90 files  94.4 MB/s  0:06  0:04 left
         70%  630.0 MiB of 900.0 MiB  62 of 90 files  94.4 MB/s  0:07  0:03 left
         70%  630.0 MiB of 900.0 MiB  62 of 90 files  76.8 MB/s  0:08  0:03 left
         70%  630.0 MiB of 900.0 MiB  64 of 90 files  63.5 MB/s  0:09  0:04 left
         70%  630.0 MiB of 900.0 MiB  66 of 90 files  53.0 MB/s  0:10  0:05 left
         77%  700.0 MiB of 900.0 MiB  70 of 90 files  56.2 MB/s  0:11  0:03 left
         88%  800.0 MiB of 900.0 MiB  80 of 90 files  63.6 MB/s  0:12  0:01 left
        100%  900.0 MiB of 900.0 MiB  90 of 90 files  69.6 MB/s  0:13  0:00 left
    "#]]
    .assert_eq(&lines);
}

#[test]
fn nothing_that_is_shown_goes_back() {
    for pair in replay().windows(2) {
        assert!(pair[0].bytes_done <= pair[1].bytes_done);
        assert!(pair[0].bytes_found <= pair[1].bytes_found);
        assert!(pair[0].files_done <= pair[1].files_done);
        assert!(pair[0].percent <= pair[1].percent);
        assert!(pair[0].bytes_per_second >= 0.0);
    }
}

#[test]
fn percent_and_time_to_go_wait_for_the_whole_sum() {
    let figures = replay();
    assert!(figures[..3].iter().all(|it| it.percent.is_none() && it.remaining.is_none()));
    assert_eq!(figures[3].percent, Some(30));
    assert_eq!(figures[13].percent, Some(100));
}

#[test]
fn a_steady_transfer_knows_when_it_will_end() {
    let mut meter = Meter::default();
    for tenth in 0..1000u64 {
        let mut progress = progress(3);
        progress.elapsed = Duration::from_millis(100 * tenth);
        progress.source.bytes_found = 1000 * MIB;
        progress.source.bytes_done = tenth * MIB;
        let figures = meter.take(&progress);
        if let Some(remaining) = figures.remaining {
            let right = Duration::from_millis(100 * (1000 - tenth));
            assert!(remaining.abs_diff(right) < right / 10, "{remaining:?} is not {right:?}");
        }
    }
}

#[test]
fn what_was_there_already_is_not_counted_as_speed() {
    let mut meter = Meter::default();
    meter.take(&progress(0));
    let mut skipping = progress(5);
    skipping.source.bytes_skipped = skipping.source.bytes_done;
    assert_eq!(meter.take(&skipping).bytes_per_second, 0.0);
}

#[test]
fn a_transfer_without_data_is_counted_in_files() {
    let mut meter = Meter::default();
    let mut empty = progress(5);
    (empty.source.bytes_found, empty.source.bytes_done) = (0, 0);
    assert_eq!(meter.take(&empty).percent, Some(48));
}

#[test]
fn a_narrow_terminal_gets_the_most_important() {
    let figures = &replay()[7];
    let lines: Vec<String> =
        [90, 70, 60, 40, 30, 10].map(|columns| format!("[{}]", figures.line(columns))).into();
    expect![[r#"
        [ 70%  630.0 MiB of 900.0 MiB  62 of 90 files  94.4 MB/s  0:07  0:03 left]
        [ 70%  630.0 MiB of 900.0 MiB  94.4 MB/s  0:07  0:03 left]
        [ 70%  630.0 MiB of 900.0 MiB  94.4 MB/s  0:07  0:03 left]
        [ 70%  630.0 MiB of 900.0 MiB  94.4 MB/s]
        [ 70%  630.0 MiB of 900.0 MiB]
        [ 70%  630.]"#]]
    .assert_eq(&lines.join("\n"));
    for columns in 0..120 {
        assert!(figures.line(columns).chars().count() <= columns);
    }
}

#[test]
fn the_current_file_takes_what_room_is_left_and_is_kept_between_two() {
    let mut meter = Meter::default();
    let current = Some(b"run7/deep/down/ckpt.0041".to_vec());
    meter.take(&Progress { current, ..progress(6) });
    let figures = meter.take(&progress(7));
    let path = |columns| {
        let line = figures.line(columns);
        line.split_once("sink storage").map(|(_, path)| path.to_owned())
    };
    assert_eq!(path(usize::MAX).as_deref(), Some("  run7/deep/down/ckpt.0041"));
    assert_eq!(path(121).as_deref(), Some("  run7/deep/down/ckpt.0041"));
    assert_eq!(path(110).as_deref(), Some("  …wn/ckpt.0041"));
    // The room is too small for any useful part of the path.
    assert_eq!(path(100).as_deref(), Some(""));
    for columns in 0..150 {
        assert!(figures.line(columns).chars().count() <= columns);
    }
}
