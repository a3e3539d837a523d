//! Tests that `lads imbalance` finds slowdowns of known length at known moments.

use serde_json::Value;
use std::fs;
use std::process::{Command, Output, Stdio};

fn lads(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lads"));
    command.arg("imbalance").args(arguments);
    command.stdin(Stdio::null()).output().expect("it can be started")
}

/// The number of samples per second of an emulated file system (`record on`).
const SAMPLES_PER_SECOND: u32 = 10;
const INTERVAL: f64 = 1.0 / SAMPLES_PER_SECOND as f64;

/// The times, from and to, in seconds, at which one of eight OSTs had a tenth of its rate. None is
/// exactly at a sample.
const PLANTED: [(f64, f64); 5] =
    [(3.04, 7.21), (9.03, 9.98), (15.02, 33.03), (40.03, 40.52), (50.01, 51.5)];
const SECONDS: u32 = 60;

/// Returns the `.pfs/series` of an emulated file system for these slowdowns: a record for every
/// change of a rate, and, ten times per second, how many bytes each OST has read and written so
/// far.
fn series() -> String {
    let mut record = String::new();
    let mut sums = [0.0; 8];
    for sample in 0..=SECONDS * SAMPLES_PER_SECOND {
        let to = f64::from(sample) * INTERVAL;
        let from = to - INTERVAL;
        let within = |&(begin, end): &(f64, f64)| (end.min(to) - begin.max(from)).max(0.0);
        let slow: f64 = PLANTED.iter().map(within).sum::<f64>() / INTERVAL;
        for (ost, sum) in sums.iter_mut().enumerate().filter(|_| sample > 0) {
            // The rates all differ a little, and change from moment to moment.
            let even = 2e6 + 1e5 * (f64::from(sample) * 1.7 + ost as f64 * 2.3).sin();
            *sum += if ost == 5 { even * (1.0 - 0.9 * slow) } else { even };
        }
        let osts: Vec<String> = sums.iter().map(|sum| format!("[0,{sum:.0},3]")).collect();
        record +=
            &format!("{{\"t\":{to:.6},\"event\":\"sample\",\"osts\":[{}]}}\n", osts.join(","));
        record += &format!("{{\"t\":{to:.6},\"event\":\"rates\",\"ost_bytes_per_s\":[1,2]}}\n");
    }
    record
}

fn imbalance_of(record: &str, arguments: &[&str]) -> Value {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("series");
    fs::write(&path, record).expect("it can be written");
    let path = path.to_str().expect("it is text");
    let output = lads(&[arguments, &["--json", path]].concat());
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_str(&told).expect("it is one object");
    found["imbalances"][0].clone()
}

/// Without any option, the command finds the planted slowdowns. It used to call the most uneven
/// fifth of the time imbalance, whatever had happened.
#[test]
fn slowdowns_in_the_record_of_an_emulated_file_system_are_found_as_planted() {
    let found = imbalance_of(&series(), &[]);
    let is_near = |found: &Value, planted: f64| {
        found.as_f64().is_some_and(|found| (found - planted).abs() <= INTERVAL + 1e-9)
    };
    let periods = found["longest_periods"].as_array().expect("there is a list");
    assert_eq!((periods.len(), &found["periods"]), (PLANTED.len(), &PLANTED.len().into()));
    for (period, (begin, end)) in periods.iter().zip(PLANTED) {
        assert!(is_near(&period["begin_seconds"], begin), "{period}: {begin} to {end}");
        assert!(is_near(&period["lifetime_seconds"], end - begin), "{period}: {begin} to {end}");
    }
    let lifetimes = &found["lifetime_seconds"];
    assert!(is_near(&lifetimes["max"], 18.01) && is_near(&lifetimes["p5"], 0.49), "{lifetimes}");
    assert!(is_near(&lifetimes["p50"], 1.49), "{lifetimes}");
    // The distances between them are 1.82, 5.04, 7.00 and 9.49 seconds.
    let distances = &found["distance_seconds"];
    let expected = [("p25", 1.82), ("p50", 5.04), ("p75", 7.0), ("max", 9.49)];
    assert!(expected.iter().all(|(key, it)| is_near(&distances[*key], *it)), "{distances}");
    let planted: f64 = PLANTED.iter().map(|(begin, end)| end - begin).sum();
    let share = found["time_share"].as_f64().expect("it is a number");
    assert!((share - planted / f64::from(SECONDS)).abs() < 0.005, "{share}");
}

#[test]
fn the_papers_percentiles_are_there_for_who_asks() {
    let found = imbalance_of(&series(), &["--above", "p80"]);
    assert_eq!(found["percentile"], 80.0);
    let share = found["time_share"].as_f64().expect("it is a number");
    assert!((share - 0.2).abs() < 0.01, "{share}: by construction");
}

/// `--above 30%` could mean a percentile or a share of the mean, so it must not be accepted
/// silently.
#[test]
fn a_threshold_that_could_be_two_things_is_refused_with_both() {
    for text in ["30", "30%"] {
        let output = lads(&["--above", text, "series"]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("30%mean") && told.contains("p30"), "{told}");
    }
}

#[test]
fn plots_are_a_page_and_a_picture() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let (record, page, picture) = (path("series"), path("page.html"), path("picture.svg"));
    fs::write(&record, series()).expect("it can be written");
    let output = lads(&["--html", &page, "--svg", &picture, &record]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for path in [page, picture] {
        let text = fs::read_to_string(&path).expect("it is there");
        assert_eq!(text.matches("<polyline").count(), 11, "{path}");
        assert!(text.contains("since the beginning (s)") && text.contains("(MB/s)"), "{path}");
    }
}
