//! The remaining time that is shown, compared with the time that was really left, over recorded
//! runs of the simulator.

use lads_core::progress::Meter;
use lads_sim::bed::{Conditions, Congestion, End, Scenario, Size};
use std::time::Duration;

/// The error that the median of the runs may have, as a part of the time that was left.
const MEDIAN_ERROR_MAX: f64 = 0.1;

/// What is recorded.
#[derive(Clone, Copy, Debug)]
struct Run {
    scenario: Scenario,
    size: Size,
    conditions: Conditions,
    seed: u64,
}

/// Fifty runs of about half a minute: one large file and many files, limited by the user, with
/// storage that takes half a second to make bytes durable, resumed, and with slow OSTs at the
/// source or the sink.
fn runs() -> Vec<Run> {
    let clear = Scenario {
        ost_count: 8,
        congestion: Congestion::Clear,
        stripe_count: 4,
        is_placed: true,
        is_growing: false,
    };
    let size = Size { bytes_per_second: 40.0 * (1 << 20) as f64, ..Size::full(8) };
    let one_file = Size { file_count: 1, file_blocks: 1280, ..size };
    let small = Size { file_count: 1280, file_blocks: 1, ..size };
    let limited = Conditions { bytes_per_second: Some(20_000_000), ..Conditions::default() };
    let slow_syncs = Conditions { sync_micros_max: 1_000_000, ..Conditions::default() };
    let resumed = Conditions { is_resumed: true, ..Conditions::default() };
    let with = |congestion| Scenario { congestion, ..clear };
    let kinds = [
        (clear, size, Conditions::default()),
        (clear, one_file, Conditions::default()),
        (clear, small, Conditions::default()),
        (clear, one_file, limited),
        (clear, size, limited),
        (clear, size, slow_syncs),
        (clear, one_file, slow_syncs),
        (clear, size, resumed),
        (with(Congestion::Source), size, Conditions::default()),
        (with(Congestion::SlowServer(End::Sink)), size, Conditions::default()),
    ];
    let seeds = 0..5;
    let all = kinds.into_iter().flat_map(|(scenario, size, conditions)| {
        seeds.clone().map(move |seed| Run { scenario, size, conditions, seed })
    });
    all.collect()
}

/// Returns the error of the estimate after a tenth of the time, as a part of the time that was
/// left; 1 if there was no estimate.
fn error_after_a_tenth(run: &Run) -> f64 {
    let Run { scenario, size, conditions, seed } = *run;
    let samples = scenario.record(seed, size, conditions).unwrap_or_else(|it| panic!("{it}"));
    let whole = samples.last().expect("the end is recorded").elapsed;
    let mut meter = Meter::default();
    let tenth = samples.iter().find_map(|sample| {
        let figures = meter.take(sample.elapsed, &sample.source, &sample.sink);
        (sample.elapsed >= whole / 10).then_some(figures)
    });
    let left = (whole - whole / 10).as_secs_f64();
    match tenth.and_then(|figures| figures.remaining) {
        Some(remaining) => (remaining.as_secs_f64() - left).abs() / left,
        None => 1.0,
    }
}

#[test]
fn after_a_tenth_the_remaining_time_is_known_to_a_tenth() {
    let mut errors: Vec<(f64, Run)> =
        runs().into_iter().map(|run| (error_after_a_tenth(&run), run)).collect();
    assert_eq!(errors.len(), 50);
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, quarter) = (errors[25].0, errors[37].0);
    let worst: Vec<String> =
        errors[37..].iter().map(|(error, run)| format!("{error:.3} {run:?}")).collect();
    println!("median {median:.3}, three quarters below {quarter:.3}; worst: {worst:#?}");
    assert!(median <= MEDIAN_ERROR_MAX, "median {median:.3}: {worst:#?}");
}

/// The line of progress moves, however long syncs take.
#[test]
fn written_bytes_never_stand_still_for_seconds() {
    for run in runs().into_iter().filter(|run| run.scenario.congestion == Congestion::Clear) {
        let Run { scenario, size, conditions, seed } = run;
        let samples = scenario.record(seed, size, conditions).unwrap_or_else(|it| panic!("{it}"));
        let mut meter = Meter::default();
        let mut moved = (Duration::ZERO, 0);
        for sample in &samples {
            let figures = meter.take(sample.elapsed, &sample.source, &sample.sink);
            let is_all = figures.is_walk_ended && figures.bytes_written == figures.bytes_found;
            // Before the first byte, the sink looks at what an earlier attempt has left.
            if figures.bytes_written > moved.1 || is_all || sample.sink.bytes_done == 0 {
                moved = (sample.elapsed, figures.bytes_written);
            }
            let still = sample.elapsed - moved.0;
            assert!(still < Duration::from_secs(2), "{still:?} at {:?}: {run:?}", sample.elapsed);
        }
    }
}
