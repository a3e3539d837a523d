//! A long line between two network namespaces: how many streams a transfer has.

use crate::faultfs::testbed;
use crate::world::{LADS, World};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// Which end's host uses another congestion control than the line's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reno {
    Nowhere,
    OwnEnd,
    OtherEnd,
}

impl Reno {
    /// The command that makes it so on a host which is or is not the own end's.
    fn command(self, end: Self) -> &'static str {
        match self == end {
            true => "echo reno > /proc/sys/net/ipv4/tcp_congestion_control;",
            false => "",
        }
    }
}

/// What a transfer of this many bytes says at its end, if the other end is so far away. `way` says
/// which of the two places is there.
fn summary(line: (&str, &[&str]), way: [&str; 2], bytes: usize, options: &str) -> Option<Value> {
    summary_with(line, way, bytes, options, Reno::Nowhere)
}

fn summary_with(
    (rtt, line): (&str, &[&str]),
    way: [&str; 2],
    bytes: usize,
    options: &str,
    reno: Reno,
) -> Option<Value> {
    let has_all = lads_tried::is_root()
        && ["ip", "iptables-legacy", "unshare"].into_iter().all(lads_tried::has);
    if !has_all {
        return None;
    }
    let world = World::new();
    let content: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251).to_le_bytes()[0]).collect();
    world.write("src/file", &content);
    let shell = world.path("shell");
    let there = reno.command(Reno::OtherEnd);
    let text =
        format!("#!/bin/sh\nshift\nexec ip netns exec \"$SINK_NAMESPACE\" sh -c \"{there} $*\"\n");
    fs::write(&shell, text).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let [from, to] = way;
    let command = format!(
        "{here} LADS_REMOTE_LADS={LADS} {LADS} cp --json -e {shell} --data-address $SINK_ADDRESS \
         {options} {from}{source}/file {to}{target}",
        here = reno.command(Reno::OwnEnd),
        shell = shell.display(),
        source = world.source().display(),
        target = world.target().display(),
    );
    let mut wan = Command::new(testbed());
    wan.args(["wan", "--rtt", rtt, "--rate", "1Gbit", "--source", &command]).args(line);
    let output = wan.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(world.target()).unwrap() == content, "the file is another one");
    let text = String::from_utf8(output.stdout).unwrap();
    let last = serde_json::from_str::<Value>(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "summary", "{text}");
    Some(last)
}

fn streams(summary: &Value) -> [u64; 2] {
    ["source", "sink"].map(|side| summary[side]["streams"].as_u64().unwrap())
}

const PUSH: [&str; 2] = ["", "sink:"];
const PULL: [&str; 2] = ["sink:", ""];
/// So that a transfer takes two seconds, in which all streams are opened.
const SLOWLY: &str = "--bwlimit 10M";
const BYTES: usize = 20 << 20;
const UNTUNED: &[&str] = &["--untuned"];

#[test]
fn to_a_host_far_away_there_are_more_streams() {
    let lossy = &["--congestion-control", "reno"][..];
    for (way, line) in [(PUSH, UNTUNED), (PULL, UNTUNED), (PUSH, lossy)] {
        let Some(summary) = summary(("100ms", line), way, BYTES, SLOWLY) else { return };
        // A round trip takes a little longer than the line does.
        let [source, sink] = streams(&summary);
        assert!(source == sink && (24..=32).contains(&sink), "{way:?} {line:?}: {summary}");
        // Nothing had to be sent again because a stream was silent for 30 s.
        assert!(summary["elapsed_seconds"].as_f64().unwrap() < 25.0, "{summary}");
    }
}

/// Losses make the windows of whoever sends smaller. In a pull, that is the other end.
#[test]
fn the_number_of_streams_depends_on_the_congestion_control_of_the_source() {
    for (way, reno, least, most) in [
        (PULL, Reno::OtherEnd, 24, 32),
        (PULL, Reno::OwnEnd, 4, 8),
        (PUSH, Reno::OtherEnd, 4, 8),
        (PUSH, Reno::OwnEnd, 24, 32),
    ] {
        let Some(summary) = summary_with(("100ms", &[]), way, BYTES, SLOWLY, reno) else { return };
        let [source, sink] = streams(&summary);
        assert!(source == sink && (least..=most).contains(&sink), "{way:?} {reno:?}: {summary}");
    }
}

#[test]
fn to_a_host_next_door_there_are_a_few_streams() {
    let Some(summary) = summary(("1ms", UNTUNED), PUSH, BYTES, SLOWLY) else { return };
    let [source, sink] = streams(&summary);
    assert!(source == sink && (4..=8).contains(&sink), "{summary}");
}

#[test]
fn whoever_says_how_many_streams_there_are_gets_as_many() {
    let Some(summary) = summary(("100ms", UNTUNED), PUSH, BYTES, "--bwlimit 10M --streams 3")
    else {
        return;
    };
    assert_eq!(streams(&summary), [3, 3], "{summary}");
}

#[test]
fn a_transfer_that_is_over_before_all_streams_are_open_does_not_wait_for_them() {
    let Some(summary) = summary(("200ms", UNTUNED), PUSH, 10, "") else { return };
    let seconds = summary["elapsed_seconds"].as_f64().unwrap();
    assert!(seconds < 5.0, "{summary}");
}

/// Each of 256 OSTs had a share of two buffers, so one file to one of them moved two blocks in a
/// round trip: it took more than three times as long as to a single OST.
#[test]
fn one_of_many_osts_fills_a_long_line() {
    let seconds = |layout: &str| {
        let options = format!("--sink-layout {layout}");
        let summary = summary(("100ms", &[]), PUSH, 60 << 20, &options)?;
        summary["elapsed_seconds"].as_f64()
    };
    let many = seconds("synthetic:osts=256,stripe_count=1,stripe_size=1G");
    let (Some(many), Some(one)) = (many, seconds("local")) else { return };
    assert!(many < 2.0 * one, "{many} s to one of many OSTs, {one} s to the only one");
}
