//! Checks how exact the line is: measures round trips while it is idle, while it is full, and while
//! the processors are busy.
//!
//! A datagram goes to the other end and back. Both ends run under `SCHED_FIFO`, so that the result
//! shows the line and not the wait for a processor.

use super::flow;
use super::options::LineOptions;
use super::path::{Path, SINK};
use super::statistics::{Histogram, Quantiles};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Below the priority of the line, above all others.
const PRIORITY: u8 = 40;
/// A datagram that is late by more than this counts as lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// The least time between two datagrams, so that a line without delay is not flooded.
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProbeArgs {
    /// How long to measure under each load
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
}

/// What else happens while round trips are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Load {
    Idle,
    Flow,
    FlowAndBusyProcessors,
}

/// The round trips under one load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Probe {
    load: Load,
    load_average: f64,
    round_trip: Quantiles,
    /// The 99th percentile as a multiple of the round trip time asked for.
    p99_share: f64,
    least_seconds: f64,
    lost: u64,
}

/// Measures under each load, and passes each figure on as soon as it is known.
pub(crate) fn measure(
    path: &Path,
    line: &LineOptions,
    args: &ProbeArgs,
    mut found: impl FnMut(&Probe) -> Result<()>,
) -> Result<()> {
    let time = Duration::try_from_secs_f64(args.seconds).context("no such time")?;
    for load in [Load::Idle, Load::Flow, Load::FlowAndBusyProcessors] {
        found(&measure_under(load, path, line, time)?)?;
    }
    Ok(())
}

fn measure_under(load: Load, path: &Path, line: &LineOptions, time: Duration) -> Result<Probe> {
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // The threads must end, even if something fails here.
        let _stopped = StopOnDrop(&stop);
        if load != Load::Idle {
            flow::start(scope, path, 1, &received, &stop)?;
        }
        if load == Load::FlowAndBusyProcessors {
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..count {
                scope.spawn(|| spin(&stop));
            }
        }
        if load != Load::Idle {
            // Wait until the line is full.
            std::thread::sleep(line.rtt() * 20);
        }
        round_trips(load, path, line, time)
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn spin(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

fn round_trips(load: Load, path: &Path, line: &LineOptions, time: Duration) -> Result<Probe> {
    let echo = path.sink.inside(socket)?;
    let port = echo.local_addr()?.port();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = StopOnDrop(&is_done);
        scope.spawn(|| answer(&echo, &is_done));
        let ask = || {
            lads_sys::run_before_others(PRIORITY)?;
            let socket = socket()?;
            socket.connect((SINK, port))?;
            socket.set_read_timeout(Some(line.rtt() + PATIENCE))?;
            ask(&socket, time)
        };
        let asked = path.source.inside(ask)?;
        let round_trip = asked.times.summary();
        Ok(Probe {
            load,
            load_average: load_average(),
            p99_share: round_trip.p99_seconds / line.rtt().as_secs_f64(),
            round_trip,
            least_seconds: asked.least.as_secs_f64(),
            lost: asked.lost,
        })
    })
}

fn socket() -> Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a UDP socket")
}

/// Sends back each datagram that comes.
fn answer(socket: &UdpSocket, is_done: &AtomicBool) {
    // This cannot fail for lack of privileges: the line itself needs them, too.
    let _ = lads_sys::run_before_others(PRIORITY);
    let _ = socket.set_read_timeout(Some(Duration::from_millis(50)));
    let mut bytes = [0; 64];
    while !is_done.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..length], from);
        }
    }
}

struct Asked {
    times: Histogram,
    least: Duration,
    lost: u64,
}

/// Sends one datagram after the other and waits for each to come back.
fn ask(socket: &UdpSocket, time: Duration) -> Result<Asked> {
    let mut asked = Asked { times: Histogram::default(), least: Duration::MAX, lost: 0 };
    let started = Instant::now();
    let mut number = 0_u64;
    while started.elapsed() < time {
        number += 1;
        let sent = Instant::now();
        socket.send(&number.to_le_bytes())?;
        if comes_back(socket, number) {
            let took = sent.elapsed();
            asked.times.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            asked.least = asked.least.min(took);
        } else {
            asked.lost += 1;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(asked)
}

/// Returns whether the datagram of this number comes back. Skips earlier ones that were given up.
fn comes_back(socket: &UdpSocket, number: u64) -> bool {
    let mut bytes = [0; 8];
    while let Ok(length) = socket.recv(&mut bytes) {
        if length == bytes.len() && u64::from_le_bytes(bytes) == number {
            return true;
        }
    }
    false
}

/// The load average of the last minute.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}
