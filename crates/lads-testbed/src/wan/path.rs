//! Joins source and sink: three network namespaces, two cables, and the line between them.
//!
//! ```text
//!    SOURCE                        ROUTER                          SINK
//!   10.78.1.2 wan ──── source 10.78.1.1 │ 10.78.2.1 sink ──── wan 10.78.2.2
//!                               └── queue 1 ──►
//!                                ◄── queue 2 ──┘
//! ```
//!
//! Packets that the router forwards go to a netfilter queue, one for each direction. Each queue has
//! its own thread, so that neither direction waits for the other.

use super::delay::{Line, carry};
use super::janitor::Janitor;
use super::namespace::{Namespace, run};
use super::options::LineOptions;
use super::queue::Queue;
use super::statistics::Statistics;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The address of the source.
pub(crate) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 2);
/// The address of the sink.
pub(crate) const SINK: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 2);
/// The delay line runs before all other threads, because a packet must leave in time no matter how
/// busy the machine is.
const PRIORITY: u8 = 50;
/// The memory that TCP may use for one connection, to receive and to send, in bytes: the least, at
/// first, and the most. The most is 163 ms at 6 GB/s.
const TUNED: (&str, &str) = ("4096 131072 1073741824", "4096 65536 1073741824");
/// The same where nobody has tuned it: the numbers of Linux on hosts with more than 1 GiB of memory
/// (`tcp_init`).
const UNTUNED: (&str, &str) = ("4096 131072 6291456", "4096 16384 4194304");
const TO_SINK: u16 = 1;
const TO_SOURCE: u16 = 2;

/// A line that is up. It is taken down when this is dropped.
pub(crate) struct Path {
    pub(crate) source: Namespace,
    pub(crate) sink: Namespace,
    router: Namespace,
    to_sink: Carrier,
    to_source: Carrier,
    /// The last field, because it removes what the others use.
    _janitor: Janitor,
}

/// What each direction carried.
#[derive(Debug, Serialize)]
pub(crate) struct Carried {
    source_to_sink: Statistics,
    sink_to_source: Statistics,
}

impl Path {
    /// Sets up a line, after removing the remains of processes that are gone.
    pub(crate) fn lay(name: &str, options: &LineOptions) -> Result<Self> {
        for namespace in Namespace::stale() {
            // Two processes may do this at the same time; then the second one fails.
            let _ = namespace.remove();
        }
        let janitor = Janitor::start()?;
        let [source, router, sink] =
            ["source", "router", "sink"].map(|role| Namespace::add(name, role));
        let (source, router, sink) = (source?, router?, sink?);
        join(&source, &router, "source", 1, options)?;
        join(&sink, &router, "sink", 2, options)?;
        for end in [&source, &sink] {
            end.inside(|| set_up_tcp(options))?;
            // Some servers look up the name of every address, and no name server can be reached.
            end.add_hosts(&format!("{SOURCE} source\n{SINK} sink\n"))?;
        }
        router.inside(|| set("net/ipv4/ip_forward", "1"))?;
        let to_sink = Carrier::start(&router, TO_SINK, options)?;
        let to_source = Carrier::start(&router, TO_SOURCE, options)?;
        router.inside(|| {
            divert("source", TO_SINK)?;
            divert("sink", TO_SOURCE)
        })?;
        Ok(Self { source, sink, router, to_sink, to_source, _janitor: janitor })
    }

    /// Takes the line down; returns what it carried.
    pub(crate) fn take_down(mut self) -> Result<Carried> {
        Ok(Carried {
            source_to_sink: self.to_sink.stop().context("from source to sink")?,
            sink_to_source: self.to_source.stop().context("from sink to source")?,
        })
    }

    /// Returns names and addresses, so that others can use the line.
    pub(crate) fn described(&self, options: &LineOptions) -> serde_json::Value {
        serde_json::json!({
            "source": {"namespace": self.source.name(), "address": SOURCE},
            "sink": {"namespace": self.sink.name(), "address": SINK},
            "router": {"namespace": self.router.name()},
            "rtt_seconds": options.rtt().as_secs_f64(),
            "rate_bytes_per_second": options.rate,
            "buffer_bytes": options.buffer_bytes(),
            "loss": options.loss,
            "mtu_bytes": options.mtu,
            "congestion_control": options.congestion_control,
            "seed": options.seed,
            "pid": std::process::id(),
        })
    }
}

/// Joins an end with the router by a cable, in the network 10.78.`network`.0.
fn join(
    end: &Namespace,
    router: &Namespace,
    role: &str,
    network: u8,
    options: &LineOptions,
) -> Result<()> {
    let mtu = options.mtu.to_string();
    let peer = ["peer", "name", "wan", "mtu", &mtu, "netns", end.name()];
    router.ip(&[&["link", "add", role, "mtu", &mtu, "type", "veth"], &peer[..]].concat())?;
    let (ours, theirs) = (format!("10.78.{network}.1"), format!("10.78.{network}.2/24"));
    router.ip(&["address", "add", &format!("{ours}/24"), "dev", role])?;
    end.ip(&["address", "add", &theirs, "dev", "wan"])?;
    if options.splits() {
        end.ip(&["link", "set", "wan", "gso_max_segs", "1"])?;
    }
    router.ip(&["link", "set", role, "up"])?;
    end.ip(&["link", "set", "wan", "up"])?;
    end.ip(&["route", "add", "default", "via", &ours])
}

/// Sends the packets that come from a cable to a queue.
fn divert(from: &str, queue: u16) -> Result<()> {
    let queue = queue.to_string();
    let rule = ["-i", from, "-j", "NFQUEUE", "--queue-num", &queue];
    // The rule must not be in the nft tables, because not every kernel can queue from there.
    run("iptables-legacy", &[&["-w", "-t", "mangle", "-A", "FORWARD"], &rule[..]].concat())
}

/// Sets up TCP at an end, so that memory does not limit a connection, or as it does where nobody
/// has tuned TCP; and so that no connection uses what an earlier one learned about the path.
fn set_up_tcp(options: &LineOptions) -> Result<()> {
    let (receive, send) = if options.untuned { UNTUNED } else { TUNED };
    set("net/ipv4/tcp_rmem", receive)?;
    set("net/ipv4/tcp_wmem", send)?;
    set("net/ipv4/tcp_no_metrics_save", "1")?;
    let Some(name) = &options.congestion_control else { return Ok(()) };
    set("net/ipv4/tcp_congestion_control", name).with_context(|| {
        format!(
            "congestion control {name} cannot be a default here: the host must have it (sysctl \
             net.ipv4.tcp_available_congestion_control) and allow it to namespaces: sysctl -w \
             net.ipv4.tcp_allowed_congestion_control=\"$(sysctl -n \
             net.ipv4.tcp_available_congestion_control)\""
        )
    })
}

/// Sets a system variable of the network namespace of the calling thread.
fn set(name: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/{name}");
    fs::write(&path, value).with_context(|| format!("cannot write {value} to {path}"))
}

/// The thread that carries one direction.
struct Carrier {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Statistics>>>,
}

impl Carrier {
    /// Opens the queue before it returns, so that no packet comes before the queue exists.
    fn start(router: &Namespace, number: u16, options: &LineOptions) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (opened, is_open) = std::sync::mpsc::channel();
        let line = Line::new(options, options.seed.wrapping_mul(2).wrapping_add(number.into()));
        let (router, is_stopped) = (router.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let queue = router.enter().and_then(|()| {
                lads_sys::run_before_others(PRIORITY).context("cannot run under SCHED_FIFO")?;
                Queue::open(number)
            });
            match queue {
                Ok(mut queue) => {
                    let _ = opened.send(Ok(()));
                    carry(&mut queue, line, &is_stopped)
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                    Ok(Statistics::default())
                }
            }
        });
        is_open.recv().context("the delay line died")??;
        Ok(Self { stop, thread: Some(thread) })
    }

    fn stop(&mut self) -> Result<Statistics> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(Statistics::default()) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
