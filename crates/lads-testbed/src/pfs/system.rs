//! The emulated file system as a whole, without the part that talks to the kernel: names, files,
//! storage targets, statistics and orders.

use super::control::{Counts, Order};
use super::file::Store;
use super::service::{Answer, Service};
use super::settings::Settings;
use super::space::TargetState;
use super::tree::Tree;
use crate::clock::monotonic;
use fuser::{INodeNo, Notifier};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The emulated file system.
pub(super) struct System {
    /// The settings with which it was mounted.
    pub(super) settings: Settings,
    /// The threads that serve requests.
    pub(super) service: Service,
    /// The room and the bytes.
    pub(super) store: Arc<Store>,
    /// Whether files take further components.
    pub(super) lets_grow: AtomicBool,
    tree: Mutex<Tree>,
    metadata_latency_nanos: AtomicU64,
    layout_latency_nanos: AtomicU64,
    metadata_operations: AtomicU64,
    last_error: Mutex<String>,
    kernel: OnceLock<Notifier>,
}

fn keep(nanos: &AtomicU64, latency: Duration) {
    nanos.store(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Longer than any file here, in bytes.
const LONG_BYTES: u64 = 1 << 50;

/// A storage target in the statistics.
#[derive(Serialize)]
struct OstReport {
    ost: usize,
    oss: usize,
    state: TargetState,
    rate_bytes_per_second: Option<u64>,
    capacity_bytes: u64,
    used_bytes: u64,
    files: u64,
    read_bytes: u64,
    written_bytes: u64,
    reads: u64,
    writes: u64,
    busy_seconds: f64,
    queued: usize,
    in_flight_max: usize,
    queued_max: usize,
}

impl System {
    /// Makes a file system with no files.
    pub(super) fn new(settings: Settings, service: Service, store: Arc<Store>, tree: Tree) -> Self {
        let system = Self {
            settings,
            service,
            store,
            lets_grow: AtomicBool::new(true),
            tree: Mutex::new(tree),
            metadata_latency_nanos: AtomicU64::new(0),
            layout_latency_nanos: AtomicU64::new(0),
            metadata_operations: AtomicU64::new(0),
            last_error: Mutex::new(String::new()),
            kernel: OnceLock::new(),
        };
        let Settings { metadata_latency, layout_latency, .. } = system.settings;
        keep(&system.metadata_latency_nanos, Duration::from_micros(metadata_latency));
        keep(&system.layout_latency_nanos, Duration::from_micros(layout_latency));
        system
    }

    /// Stores the channel to the kernel, which can be used from now on.
    pub(super) fn on_mounted(&self, kernel: Notifier) {
        let _ = self.kernel.set(kernel);
    }

    /// Makes the kernel take a file to be longer than any, until the kernel asks for its
    /// attributes. A program that asks for the size still gets the true one from this file system.
    /// With writeback, the kernel trusts its own size and would never ask, so nothing is done then.
    pub(super) fn lengthen(&self, number: u64) {
        if let Some(kernel) = self.kernel.get().filter(|_| !self.settings.writeback) {
            // Stores one byte far beyond the end. The kernel drops its page when it learns the true
            // size. If the kernel does not know the file, nothing needs to change.
            let _ = kernel.store(INodeNo(number), LONG_BYTES - 1, &[0]);
        }
    }

    /// Locks the tree of names.
    pub(super) fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().expect("no thread panics while it holds the lock")
    }

    /// Answers an operation on names after the latency of the metadata server.
    pub(super) fn answer_metadata(&self, answer: impl FnOnce() + Send + 'static) {
        self.answer_after(0, answer);
    }

    /// Like [`Self::answer_metadata`], for an operation that sets or extends a layout.
    pub(super) fn answer_layout(&self, answer: impl FnOnce() + Send + 'static) {
        self.answer_after(self.layout_latency_nanos.load(Ordering::Relaxed), answer);
    }

    fn answer_after(&self, more_nanos: u64, answer: impl FnOnce() + Send + 'static) {
        self.metadata_operations.fetch_add(1, Ordering::Relaxed);
        let nanos = self.metadata_latency_nanos.load(Ordering::Relaxed).saturating_add(more_nanos);
        if nanos == 0 {
            return answer();
        }
        let answer: Answer = Box::new(move |_| answer());
        self.service.delay(Duration::from_nanos(nanos), answer);
    }

    /// Executes all orders in a text, one per line; stops at the first wrong one.
    ///
    /// # Errors
    /// `EINVAL`; [`Self::last_error`] returns the reason.
    pub(super) fn obey(&self, text: &[u8]) -> Result<(), Errno> {
        let text = String::from_utf8_lossy(text);
        let counts = Counts { osts: self.settings.osts, osses: self.settings.osses };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match Order::parse(line, counts) {
                Ok(order) => self.carry_out(order),
                Err(reason) => {
                    *self.last_error.lock().expect("as in `tree`") = reason;
                    return Err(Errno::INVAL);
                }
            }
        }
        Ok(())
    }

    /// Returns why the last order was refused.
    pub(super) fn last_error(&self) -> String {
        format!("{}\n", self.last_error.lock().expect("as in `tree`"))
    }

    /// Returns the contents of `.pfs/stats`.
    pub(super) fn stats(&self) -> String {
        let stats = json!({
            "now_seconds": monotonic().as_secs_f64(),
            "process": std::process::id(),
            "osts": self.ost_reports(),
            "osses": self.oss_reports(),
            "metadata_operations": self.metadata_operations.load(Ordering::Relaxed),
            "settings": self.settings,
        });
        format!("{stats}\n")
    }

    /// Returns the contents of `.pfs/osts`.
    pub(super) fn osts(&self) -> String {
        let mut table = String::new();
        for it in self.ost_reports() {
            let state = serde_json::to_value(it.state).expect("it is a word");
            let state = state.as_str().expect("it is a word");
            let (capacity, used) = (it.capacity_bytes, it.used_bytes);
            writeln!(table, "{} {} {state} {capacity} {used}", it.ost, it.oss)
                .expect("a string takes all");
        }
        table
    }

    /// Returns the contents of `.pfs/series`.
    pub(super) fn series(&self) -> String {
        self.service.with_model(|model| {
            let lines = model.record().map(serde_json::to_string);
            lines.map(|line| line.expect("its keys are names") + "\n").collect()
        })
    }

    fn carry_out(&self, order: Order) {
        match order {
            Order::MetadataLatency(latency) => keep(&self.metadata_latency_nanos, latency),
            Order::LayoutLatency(latency) => keep(&self.layout_latency_nanos, latency),
            Order::Grow(lets_grow) => self.lets_grow.store(lets_grow, Ordering::Relaxed),
            Order::State(osts, state) => {
                osts.into_iter().for_each(|ost| self.set_state(ost, state));
            }
            Order::Capacity(osts, bytes) => {
                let mut space = self.store.space();
                osts.into_iter().for_each(|ost| space.set_capacity(ost, bytes));
            }
            Order::ResetStats => {
                self.metadata_operations.store(0, Ordering::Relaxed);
                self.service.with_model(super::model::Model::reset);
            }
            order => self.service.with_model(|model| match order {
                Order::Rate(osts, rate) => osts.into_iter().for_each(|it| model.set_rate(it, rate)),
                Order::Latency(osts, time) => {
                    osts.into_iter().for_each(|it| model.set_latency(it, time));
                }
                Order::Jitter(osts, time) => {
                    osts.into_iter().for_each(|it| model.set_jitter(it, time));
                }
                Order::Seek(osts, time) => osts.into_iter().for_each(|it| model.set_seek(it, time)),
                Order::OssRate(osses, rate) => {
                    osses.into_iter().for_each(|it| model.set_oss_rate(it, rate));
                }
                Order::Congest { pattern, rate, seed } => model.congest(pattern, rate, seed),
                Order::CongestOff => model.end_congestion(),
                Order::Record(is_on) => model.set_sampling(is_on),
                _ => unreachable!("the others have nothing to do with the model"),
            }),
        }
    }

    fn set_state(&self, ost: usize, state: TargetState) {
        self.store.space().set_state(ost, state);
        if state == TargetState::Down {
            self.service.abandon(ost, Errno::IO);
        }
    }

    fn ost_reports(&self) -> Vec<OstReport> {
        let targets = self.store.space().targets().to_vec();
        self.service.with_model(|model| {
            let report = |(ost, target): (usize, super::space::Target)| {
                let tally = model.tally(ost);
                OstReport {
                    ost,
                    oss: model.queues().oss(ost),
                    state: target.state,
                    rate_bytes_per_second: model.queues().rate(ost),
                    capacity_bytes: target.capacity,
                    used_bytes: target.used,
                    files: target.objects,
                    read_bytes: tally.read_bytes,
                    written_bytes: tally.written_bytes,
                    reads: tally.reads,
                    writes: tally.writes,
                    busy_seconds: tally.busy.as_secs_f64(),
                    queued: model.queues().queued(ost),
                    in_flight_max: tally.in_flight_max,
                    queued_max: tally.queued_max,
                }
            };
            targets.into_iter().enumerate().map(report).collect()
        })
    }

    fn oss_reports(&self) -> Vec<serde_json::Value> {
        self.service.with_model(|model| {
            let queues = model.queues();
            let report = |oss| {
                let osts = (0..queues.ost_count()).filter(|ost| queues.oss(*ost) == oss);
                let tallies = osts.map(|ost| model.tally(ost));
                let bytes: u64 = tallies.map(|it| it.read_bytes + it.written_bytes).sum();
                json!({"oss": oss, "rate_bytes_per_second": queues.oss_rate(oss), "bytes": bytes})
            };
            (0..queues.oss_count()).map(report).collect()
        })
    }
}
