use super::*;

const MIB: u64 = 1 << 20;

/// Counters of a source that has found 1000 MiB in 100 files, with this much recorded.
fn source(recorded_mib: u64) -> Counters {
    Counters {
        bytes_found: 1000 * MIB,
        bytes_done: recorded_mib * MIB,
        files_found: 100,
        is_walk_ended: true,
        ..Counters::default()
    }
}

fn sink(written_mib: u64) -> Counters {
    Counters { bytes_done: written_mib * MIB, ..Counters::default() }
}

fn tenths(count: u64) -> Duration {
    Duration::from_millis(100 * count)
}

/// A regression test: a transfer of 20 MB/s whose blocks became durable every 8 to 11 s showed a
/// rate that fell in between, and a growing remaining time.
#[test]
fn progress_follows_written_bytes_while_they_become_durable_in_batches() {
    let mut meter = Meter::default();
    let mut before = Duration::MAX;
    for tenth in 0..=1000 {
        let recorded = tenth / 90 * 90;
        let figures = meter.take(tenths(tenth), &source(recorded), &sink(tenth));
        assert_eq!(figures.bytes_written, tenth * MIB);
        assert_eq!(figures.bytes_done, recorded * MIB);
        assert_eq!(figures.percent, Some(tenth / 10));
        let Some(remaining) = figures.remaining else { continue };
        let right = tenths(1000 - tenth);
        assert!(remaining.abs_diff(right) <= right / 50, "{remaining:?} is not {right:?}");
        assert!(remaining <= before, "it grew to {remaining:?}");
        let off = figures.bytes_per_second / (10 * MIB) as f64 - 1.0;
        assert!(off.abs() < 0.02, "{figures:?}");
        before = remaining;
    }
}

/// A file changes: its written and recorded bytes no longer count.
#[test]
fn the_figures_never_go_back() {
    let mut meter = Meter::default();
    let written = [0, 100, 300, 500, 200, 300, 499, 600, 1000];
    let recorded = [0, 64, 256, 448, 192, 256, 448, 576, 1000];
    let mut before = Figures::default();
    for (second, (written, recorded)) in (0..).zip(written.into_iter().zip(recorded)) {
        let now = Duration::from_secs(second);
        let figures = meter.take(now, &source(recorded), &sink(written));
        assert!(before.bytes_written <= figures.bytes_written, "{figures:?}");
        assert!(before.bytes_done <= figures.bytes_done, "{figures:?}");
        assert!(before.percent <= figures.percent, "{figures:?}");
        assert!(figures.bytes_per_second >= 0.0, "{figures:?}");
        before = figures;
    }
    assert_eq!(before.percent, Some(100));
}

/// The counters of the other end are a little older.
#[test]
fn recorded_bytes_are_written_even_if_the_sink_has_not_reported_them_yet() {
    let figures = Meter::default().take(tenths(1), &source(64), &sink(10));
    assert_eq!((figures.bytes_written, figures.bytes_done), (64 * MIB, 64 * MIB));
}

#[test]
fn percent_and_remaining_time_wait_for_the_end_of_the_walk() {
    let mut meter = Meter::default();
    for second in 0..10 {
        let walking = Counters { is_walk_ended: false, ..source(0) };
        let figures = meter.take(Duration::from_secs(second), &walking, &sink(second));
        assert_eq!((figures.percent, figures.remaining), (None, None));
    }
    let figures = meter.take(Duration::from_secs(10), &source(0), &sink(10));
    assert_eq!((figures.percent, figures.remaining.is_some()), (Some(1), true));
}

/// Both ends connect, and may wait for a password.
#[test]
fn time_before_the_first_byte_counts_for_no_rate() {
    let mut meter = Meter::default();
    for second in 0..=60 {
        let idle = meter.take(Duration::from_secs(second), &source(0), &sink(0));
        assert_eq!(idle.remaining, None);
    }
    for second in 61..=64 {
        let figures = meter.take(Duration::from_secs(second), &source(0), &sink(second - 60));
        assert!((figures.bytes_per_second / MIB as f64 - 1.0).abs() < 0.01, "{figures:?}");
        let right = Duration::from_secs(1000 - (second - 60));
        let is_near = |it: Duration| it.abs_diff(right) < right / 100;
        assert_eq!(figures.remaining.is_some_and(is_near), second >= 62, "{figures:?}");
    }
}

#[test]
fn bytes_of_an_earlier_attempt_count_as_progress_and_not_as_rate() {
    let mut meter = Meter::default();
    for second in 0..=10 {
        let resumed = Counters { bytes_skipped: 500 * MIB, ..source(500) };
        let now = Duration::from_secs(second);
        let figures = meter.take(now, &resumed, &sink(10 * second));
        assert_eq!(figures.percent, Some((500 + 10 * second) / 10));
        if second > 2 {
            assert!((figures.bytes_per_second / MIB as f64 - 10.0).abs() < 0.1, "{figures:?}");
            let right = Duration::from_secs(50 - second);
            assert!(figures.remaining.unwrap().abs_diff(right) < right / 50, "{figures:?}");
        }
    }
}

#[test]
fn a_transfer_without_data_is_counted_in_files() {
    let empty = Counters { bytes_found: 0, files_moved: 44, ..source(0) };
    assert_eq!(Meter::default().take(tenths(1), &empty, &sink(0)).percent, Some(44));
}

#[test]
fn many_small_files_are_estimated_by_their_number() {
    let mut meter = Meter::default();
    let mut last = None;
    for second in 0..=10 {
        // One large file was first; the small ones have nearly no bytes.
        let files_moved = 100 * second;
        let many = Counters { files_found: 11_000, files_moved, ..source(900) };
        last = meter.take(Duration::from_secs(second), &many, &sink(900)).remaining;
    }
    let right = Duration::from_secs(100);
    assert!(last.is_some_and(|it| it.abs_diff(right) < right / 50), "{last:?}");
}

#[test]
fn after_a_change_of_rate_the_shown_rate_follows_within_seconds() {
    let mut meter = Meter::default();
    let mut written = 0;
    let mut rate = 0.0;
    for second in 0..124 {
        written += if second < 100 { 5 } else { 10 };
        rate = meter.take(Duration::from_secs(second), &source(0), &sink(written)).bytes_per_second;
    }
    assert!(rate > (9 * MIB) as f64, "{rate}");
}

/// A file changed, and is sent again with its new length.
#[test]
fn the_share_does_not_go_back_if_more_is_found() {
    let mut meter = Meter::default();
    assert_eq!(meter.take(tenths(10), &source(0), &sink(500)).percent, Some(50));
    let grown = Counters { bytes_found: 2000 * MIB, ..source(0) };
    assert_eq!(meter.take(tenths(20), &grown, &sink(510)).percent, Some(50));
}

/// Queues fill meanwhile.
#[test]
fn the_first_moments_count_for_no_estimate() {
    let mut meter = Meter::default();
    let mut figures = meter.take(tenths(0), &source(0), &sink(0));
    for step in 1..=6 {
        figures = meter.take(tenths(5 * step), &source(0), &sink(1 + 5 * (step - 1)));
    }
    let right = Duration::from_secs((1000 - 26) / 10);
    assert!(figures.remaining.is_some_and(|it| it.abs_diff(right) < right / 50), "{figures:?}");
}
