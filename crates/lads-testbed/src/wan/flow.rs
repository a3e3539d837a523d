//! Measures the throughput of TCP connections through the line, without storage and without any
//! other program.

use super::path::{Path, SINK};
use anyhow::{Context as _, Result};
use rustix::net::sockopt::tcp_congestion;
use serde::Serialize;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FlowArgs {
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    streams: usize,

    /// How long to send
    #[arg(long, value_name = "SECONDS", default_value_t = 6.0)]
    seconds: f64,
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Flow {
    streams: usize,
    congestion_control: String,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    /// The throughput in the second half of the time, when connections have found their pace.
    second_half_bytes_per_second: f64,
}

/// Sends from source to sink for the given time.
pub(crate) fn measure(path: &Path, args: &FlowArgs) -> Result<Flow> {
    let time = Duration::try_from_secs_f64(args.seconds).context("no such time")?;
    let received = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = start(scope, path, args.streams, &received, &stop)?;
        let started = Instant::now();
        std::thread::sleep(time / 2);
        let half = (received.load(Ordering::Relaxed), started.elapsed());
        std::thread::sleep(time.saturating_sub(half.1));
        let end = (received.load(Ordering::Relaxed), started.elapsed());
        stop.store(true, Ordering::Relaxed);
        Ok(Flow {
            streams: args.streams,
            congestion_control: running.congestion_control,
            bytes: end.0,
            seconds: end.1.as_secs_f64(),
            bytes_per_second: end.0 as f64 / end.1.as_secs_f64(),
            second_half_bytes_per_second: (end.0 - half.0) as f64 / (end.1 - half.1).as_secs_f64(),
        })
    })
}

/// Connections that send until they are told to stop.
pub(crate) struct Running {
    congestion_control: String,
}

/// Starts sending; its threads end when `stop` is set.
pub(crate) fn start<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    path: &Path,
    streams: usize,
    received: &'scope AtomicU64,
    stop: &'scope AtomicBool,
) -> Result<Running> {
    let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot listen");
    let listener = path.sink.inside(listen)?;
    let port = listener.local_addr()?.port();
    let mut congestion_control = String::new();
    for _ in 0..streams {
        let connect = || TcpStream::connect((SINK, port)).context("cannot connect");
        let source = path.source.inside(connect)?;
        congestion_control = tcp_congestion(&source)?;
        let (sink, _) = listener.accept()?;
        // A write to a line that carries nothing any more must not block the thread for ever.
        source.set_write_timeout(Some(Duration::from_millis(100)))?;
        scope.spawn(move || send(&source, stop));
        scope.spawn(move || receive(sink, received));
    }
    Ok(Running { congestion_control })
}

fn send(mut source: &TcpStream, stop: &AtomicBool) {
    let chunk = vec![0; CHUNK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match source.write(&chunk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    let _ = source.shutdown(Shutdown::Write);
}

fn receive(mut sink: TcpStream, received: &AtomicU64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(bytes @ 1..) = sink.read(&mut chunk) {
        received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
