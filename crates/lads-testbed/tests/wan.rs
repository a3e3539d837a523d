//! Tests that the long-distance network has the delay, rate and loss that were asked for, and that
//! it is removed at the end.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TESTBED: &str = env!("CARGO_BIN_EXE_lads-testbed");
/// Nothing here takes this long; a test that does, hangs.
const HANG: Duration = Duration::from_secs(60);

/// Returns whether a network can be set up here; if not, the test prints what is missing.
fn can_lay() -> bool {
    let has_all = lads_tried::is_root()
        && ["ip", "iptables-legacy", "unshare"].into_iter().all(lads_tried::has);
    if !has_all {
        return false;
    }
    let succeeds = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let may = succeeds("unshare", &["-n", "true"]);
    if !may {
        lads_tried::not_tried("network namespaces are not permitted here");
    }
    may
}

fn wan(words: &[&str]) -> Command {
    let mut command = Command::new(TESTBED);
    command.arg("wan").args(words);
    command
}

fn ran(words: &[&str]) -> Output {
    wan(words).output().unwrap()
}

/// Returns the lines on stdout, and the report of the line.
fn measured(words: &[&str]) -> (Vec<Value>, Value) {
    let output = ran(words);
    assert!(output.status.success(), "{output:?}");
    let json = |text: &[u8]| serde_json::from_slice(text).unwrap();
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    (lines.map(json).collect(), json(&output.stderr))
}

#[test]
fn commands_run_at_both_ends_and_the_source_says_how_it_ended() {
    if !can_lay() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark").display().to_string();
    // The sink's command does not end by itself for a long time; the source's waits for its mark.
    let sink = format!("echo $SINK_ADDRESS > {mark}; exec sleep 1000");
    let wait = format!("until grep -q 10.78 {mark} 2> /dev/null; do sleep 0.01; done");
    let source = format!("{wait}; grep -q \"^$SINK_ADDRESS sink$\" /etc/hosts && exit 7");
    let output = ran(&["--rtt", "1ms", "--sink", &sink, "--source", &source]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

#[test]
fn a_sink_that_ends_before_it_listens_is_an_error() {
    if !can_lay() {
        return;
    }
    let output = ran(&["--wait-for-port", "5000", "--sink", "exit 3", "--source", "true"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("exit status: 3"), "{output:?}");
}

#[test]
fn no_round_trip_is_shorter_than_asked_for() {
    if !can_lay() {
        return;
    }
    let (probes, line) = measured(&["--rtt", "20ms", "probe", "--seconds", "0.3"]);
    assert_eq!(probes.len(), 3);
    for probe in &probes {
        assert!(probe["least_seconds"].as_f64().unwrap() >= 0.020, "{probe}");
        assert!(probe["round_trip"]["count"].as_u64().unwrap() > 0, "{probe}");
    }
    assert_eq!(line["source_to_sink"]["dropped_loss"], 0, "{line}");
    assert_eq!(line["source_to_sink"]["dropped_full"], 0, "{line}");
}

#[test]
fn no_more_gets_through_than_the_rate_and_no_more_waits_than_the_buffer() {
    if !can_lay() {
        return;
    }
    let rate = ["--rtt", "10ms", "--rate", "20MB", "--buffer", "512K", "flow", "--seconds", "1"];
    let (flow, line) = measured(&rate);
    let rate = flow[0]["bytes_per_second"].as_f64().unwrap();
    assert!(rate > 0.0 && rate < 22e6, "{flow:?}");
    let waited = line["source_to_sink"]["queue_bytes_max"].as_u64().unwrap();
    assert!((1..=512 << 10).contains(&waited), "{line}");
}

#[test]
fn wire_packets_are_lost_one_by_one() {
    if !can_lay() {
        return;
    }
    let (_, line) = measured(&["--rtt", "2ms", "--loss", "0.02", "flow", "--seconds", "1"]);
    let count = |name: &str| line["source_to_sink"][name].as_u64().unwrap();
    assert_eq!(count("packets"), count("wire_packets"), "super-packets were not split: {line}");
    assert!(count("packets") > 100, "{line}");
    assert!(count("dropped_loss") * 10 < count("packets"), "{line}");
}

/// A line that is kept up for others.
struct Up {
    process: Child,
    described: Value,
}

impl Up {
    fn new(name: &str) -> Self {
        let mut command = wan(&["--rtt", "1ms", "up", name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, described: serde_json::from_str(&line).unwrap() }
    }

    fn is_there(&self) -> bool {
        let names = ["source", "sink", "router"].map(|end| &self.described[end]["namespace"]);
        let is_there = |name: &Value| {
            let name = name.as_str().unwrap();
            let places = ["/run/netns", "/etc/netns"].map(|place| format!("{place}/{name}"));
            places.iter().any(|place| fs::exists(place).unwrap())
        };
        names.into_iter().any(is_there)
    }

    #[track_caller]
    fn goes_away(&mut self) {
        let started = Instant::now();
        while self.process.try_wait().unwrap().is_none() || self.is_there() {
            assert!(started.elapsed() < HANG, "it stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_line_that_is_up_goes_when_stdin_closes() {
    if !can_lay() {
        return;
    }
    let mut up = Up::new("closes");
    assert!(up.is_there());
    assert!(up.process.try_wait().unwrap().is_none());
    drop(up.process.stdin.take());
    up.goes_away();
}

#[test]
fn a_line_goes_when_its_process_is_asked_to_end_or_killed() {
    if !can_lay() {
        return;
    }
    for signal in ["TERM", "INT", "KILL"] {
        let mut up = Up::new(&signal.to_lowercase());
        assert!(up.is_there());
        let name = up.described["sink"]["namespace"].as_str().unwrap().to_owned();
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &name, "sleep", "1000"]).stdin(Stdio::null());
        let mut inside = inside.spawn().unwrap();
        let pid = up.process.id().to_string();
        assert!(Command::new("kill").args([format!("-{signal}"), pid]).status().unwrap().success());
        up.goes_away();
        // A process inside may have started just after all processes inside were ended.
        let _ = inside.kill();
        let _ = inside.wait();
    }
}
