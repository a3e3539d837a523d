//! A long line between two network namespaces: the number of streams of a transfer.

use crate::faultfs::testbed;
use crate::world::{LADS, Stopwatch, World, not_tried, write_script};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// The end whose host uses another congestion control than the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reno {
    Nowhere,
    OwnEnd,
    OtherEnd,
}

impl Reno {
    /// Returns the command that sets it up on the host of an end.
    fn command(self, end: Self) -> &'static str {
        match self == end {
            true => "echo reno > /proc/sys/net/ipv4/tcp_congestion_control;",
            false => "",
        }
    }
}

const PUSH: [&str; 2] = ["", "sink:"];
const PULL: [&str; 2] = ["sink:", ""];
const BYTES: usize = 20 << 20;
const UNTUNED: &[&str] = &["--untuned"];

/// The exit code of a host on which the connections cannot be limited.
const CANNOT_LIMIT: i32 = 77;

/// A transfer of one file between two hosts.
#[derive(Clone, Copy, Debug)]
struct Transfer<'a> {
    rtt: &'a str,
    line: &'a [&'a str],
    /// The host of the source and that of the target.
    way: [&'a str; 2],
    bytes: usize,
    options: &'a str,
    reno: Reno,
    /// The number of connections at which the transfer is stopped, instead of being completed.
    stops_at: Option<usize>,
    /// The number of connections that can be opened; the packets of others are lost.
    connections_max: Option<usize>,
}

impl Default for Transfer<'_> {
    fn default() -> Self {
        Self {
            rtt: "100ms",
            line: UNTUNED,
            way: PUSH,
            bytes: BYTES,
            options: "",
            reno: Reno::Nowhere,
            stops_at: None,
            connections_max: None,
        }
    }
}

impl Transfer<'_> {
    /// Runs the transfer, and returns its summary; `None` where this is not possible.
    fn summary(&self) -> Option<Value> {
        let has_all = lads_tried::is_root()
            && ["ip", "ss", "iptables-legacy", "unshare"].into_iter().all(lads_tried::has);
        if !has_all {
            return None;
        }
        let world = World::new();
        let content: Vec<u8> =
            (0..self.bytes).map(|at| (at * 7 + at / 251).to_le_bytes()[0]).collect();
        world.write("src/file", &content);
        let mut wan = Command::new(testbed());
        wan.args(["wan", "--rtt", self.rtt, "--rate", "1Gbit"]).args(self.line);
        wan.args(["--source", &self.script(&world)]);
        let output = wan.output().unwrap();
        if output.status.code() == Some(CANNOT_LIMIT) {
            not_tried("the number of connections cannot be limited here");
            return None;
        }
        let expected = if self.stops_at.is_some() { 9 } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "{output:?}");
        let is_copied = || fs::read(world.target()).unwrap() == content;
        assert!(self.stops_at.is_some() || is_copied(), "the file is another one");
        let text = String::from_utf8(output.stdout).unwrap();
        let last = serde_json::from_str::<Value>(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["event"], "summary", "{text}");
        Some(last)
    }

    /// Returns the shell script for the host where the command is started.
    fn script(&self, world: &World) -> String {
        let shell = world.path("shell");
        let there = self.reno.command(Reno::OtherEnd);
        let text = format!("shift\nexec ip netns exec \"$SINK_NAMESPACE\" sh -c \"{there} $*\"");
        write_script(&shell, &text).unwrap();
        let limit = self.connections_max.map_or_else(String::new, |max| {
            format!(
                "iptables-legacy -A OUTPUT -p tcp --syn -m connlimit --connlimit-above {max} \
                 -j DROP || exit {CANNOT_LIMIT};"
            )
        });
        // Standard input ends when there are enough connections, or after a minute.
        let (feed, option) = self.stops_at.map_or_else(Default::default, |count| {
            // A connection that was accepted has received the answer to its token.
            let open = "$(ss -tin state established | grep -c bytes_received)";
            let wait =
                format!("for i in $(seq 600); do [ {open} -lt {count} ] || break; sleep 0.1; done");
            (format!("{{ {wait}; }} |"), "--stop-with-stdin")
        });
        let [from, to] = self.way;
        format!(
            "{here} {limit} {feed} LADS_REMOTE_LADS={LADS} {LADS} cp --json -e {shell} \
             --data-address $SINK_ADDRESS {option} {options} {from}{source}/file {to}{target}",
            here = self.reno.command(Reno::OwnEnd),
            shell = shell.display(),
            options = self.options,
            source = world.source().display(),
            target = world.target().display(),
        )
    }

    /// Asserts that many streams are opened. The transfer does not end by itself before that.
    fn has_many_streams(self) {
        let transfer = Transfer { options: "--bwlimit 64K", stops_at: Some(MANY), ..self };
        let Some(summary) = transfer.summary() else { return };
        // The last of these connections may not count as a stream at the own end yet.
        let is_many = |count| (FEW + 1..=MANY_MAX).contains(&count);
        assert!(streams(&summary).into_iter().all(is_many), "{self:?}: {summary}");
    }

    /// Asserts that few streams are opened while data is sent for two seconds.
    fn has_few_streams(self) {
        let Some(summary) = (Transfer { options: "--bwlimit 10M", ..self }).summary() else {
            return;
        };
        let [source, sink] = streams(&summary);
        assert!(source == sink && (4..=FEW).contains(&sink), "{self:?}: {summary}");
    }
}

/// The maximum number of streams to a host nearby.
const FEW: u64 = 8;
/// The number of streams to a host far away: at least, and at most.
const MANY: usize = 24;
const MANY_MAX: u64 = 32;

fn streams(summary: &Value) -> [u64; 2] {
    ["source", "sink"].map(|side| summary[side]["streams"].as_u64().unwrap())
}

#[test]
fn to_a_host_far_away_there_are_more_streams() {
    let lossy = &["--congestion-control", "reno"][..];
    for (way, line) in [(PUSH, UNTUNED), (PULL, UNTUNED), (PUSH, lossy)] {
        Transfer { way, line, ..Transfer::default() }.has_many_streams();
    }
}

/// A stream that carries no data for long was closed, and its frames were sent again.
#[test]
fn with_many_streams_nothing_is_sent_twice() {
    for way in [PUSH, PULL] {
        let Some(summary) = (Transfer { way, ..Transfer::default() }).summary() else { return };
        let counts = ["bytes_sent", "blocks_resent"].map(|key| summary[key].as_u64().unwrap());
        assert_eq!(counts, [BYTES as u64, 0], "{summary}");
    }
}

/// Losses make the windows of the sending host smaller. In a pull, that is the other end.
#[test]
fn the_number_of_streams_depends_on_the_congestion_control_of_the_source() {
    for (way, many, few) in
        [(PULL, Reno::OtherEnd, Reno::OwnEnd), (PUSH, Reno::OwnEnd, Reno::OtherEnd)]
    {
        let transfer = Transfer { way, line: &[], ..Transfer::default() };
        Transfer { reno: many, ..transfer }.has_many_streams();
        Transfer { reno: few, ..transfer }.has_few_streams();
    }
}

#[test]
fn to_a_host_next_door_there_are_a_few_streams() {
    Transfer { rtt: "1ms", ..Transfer::default() }.has_few_streams();
}

#[test]
fn a_number_of_streams_that_is_asked_for_is_opened() {
    let transfer = Transfer { options: "--bwlimit 10M --streams 3", ..Transfer::default() };
    let Some(summary) = transfer.summary() else { return };
    assert_eq!(streams(&summary), [3, 3], "{summary}");
}

/// Further streams are tried for ten seconds.
#[test]
fn a_transfer_does_not_wait_for_streams_that_cannot_be_opened() {
    let watch = Stopwatch::start();
    let transfer = Transfer { bytes: 10, connections_max: Some(4), ..Transfer::default() };
    let Some(summary) = transfer.summary() else { return };
    assert_eq!(streams(&summary), [4, 4], "{summary}");
    assert!(watch.elapsed() < Duration::from_secs(10), "{summary}");
}

/// Each of 256 OSTs had a share of two buffers, so one file to one of them took a round trip for
/// two blocks: 20 s for the data alone.
#[test]
fn one_of_many_osts_fills_a_long_line() {
    let watch = Stopwatch::start();
    let transfer = Transfer {
        rtt: "1s",
        line: &[],
        bytes: 40 << 20,
        options: "--sink layout=synthetic:osts=256,stripe_count=1,stripe_size=1G",
        ..Transfer::default()
    };
    let Some(summary) = transfer.summary() else { return };
    assert!(watch.elapsed() < Duration::from_secs(20), "{summary}");
}
