//! Whether what waits for an OST moves on, however many others are quicker.
//!
//! Every few milliseconds it is looked which OSTs could have a request and have none. One that is
//! found so all the time from one of its requests to the next was passed over; that may last only
//! as long as [`Tuning::passes_max`](lads_core::tuning::Tuning::passes_max) promises.

use crate::findings::Checked;
use crate::options::Options;
use lads_core::issue::Side;
use lads_core::schedule::Policy;
use lads_core::tuning::Tuning;
use lads_core::units::{Instant, OstId};
use std::time::Duration;

/// How often it is looked: far less than a request takes.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Watches the OSTs of both ends.
#[derive(Debug)]
pub(crate) struct Watch {
    source: End,
    sink: End,
    /// When each read began, and how long it took.
    reads: Vec<(Instant, Duration)>,
}

#[derive(Debug)]
struct End {
    thread_count: u32,
    passes_max: usize,
    /// Whether its policy promises anything: the papers' rule skips an OST for as many threads as
    /// it is told.
    is_bounded: bool,
    /// Since when each OST has had nothing in flight although it could.
    since: Vec<Option<Instant>>,
    /// The longest that a request took.
    service_max: Duration,
    wait_max: Duration,
}

impl End {
    fn new(ost_count: usize, thread_count: u32, policy: Policy, tuning: &Tuning) -> Self {
        Self {
            thread_count,
            passes_max: tuning.passes_max,
            is_bounded: policy != Policy::Threshold,
            since: vec![None; ost_count],
            service_max: Duration::ZERO,
            wait_max: Duration::ZERO,
        }
    }

    /// How long an OST may be passed over: this many requests to others, by this many threads.
    fn wait_allowed(&self) -> Duration {
        let passes = (self.passes_max + 1) * self.since.len();
        let rounds = u32::try_from(passes).expect("a few OSTs").div_ceil(self.thread_count) + 1;
        self.service_max * rounds + LOOK_INTERVAL
    }

    fn look(&mut self, now: Instant, is_neglected: impl Iterator<Item = bool>) -> Checked {
        for (ost, is_neglected) in is_neglected.enumerate() {
            let since = &mut self.since[ost];
            *since = is_neglected.then(|| since.unwrap_or(now));
            let wait = since.map_or(Duration::ZERO, |since| now.since(since));
            self.wait_max = self.wait_max.max(wait);
            let allowed = self.wait_allowed();
            if self.is_bounded && wait > allowed {
                return Err(format!("OST {ost} was passed over for {wait:?}, not {allowed:?}"));
            }
        }
        Ok(())
    }
}

impl Watch {
    /// Of a world with these.
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            source: End::new(
                options.source_osts.len(),
                options.source_workers,
                options.source.policy,
                &options.source.tuning,
            ),
            sink: End::new(
                options.sink_osts.len(),
                options.sink_workers,
                options.sink.policy,
                &options.sink.tuning,
            ),
            reads: Vec::new(),
        }
    }

    /// A thread takes something of an OST, which will take so long.
    pub(crate) fn on_taking(&mut self, at: Side, ost: OstId, now: Instant, service: Duration) {
        if at == Side::Source {
            self.reads.push((now, service));
        }
        let end = if at == Side::Source { &mut self.source } else { &mut self.sink };
        if let Some(since) = end.since[ost.index()].take() {
            end.wait_max = end.wait_max.max(now.since(since));
        }
        end.service_max = end.service_max.max(service);
    }

    /// Looks which OSTs of each end could have a request and have none.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        source: impl Iterator<Item = bool>,
        sink: impl Iterator<Item = bool>,
    ) -> Checked {
        self.source.look(now, source)?;
        self.sink.look(now, sink)
    }

    /// When each read began and how long it took, in seconds.
    pub(crate) fn reads(&self) -> Vec<(f64, f64)> {
        let seconds = |(at, service): &(Instant, Duration)| {
            (at.since_start().as_secs_f64(), service.as_secs_f64())
        };
        self.reads.iter().map(seconds).collect()
    }

    /// The longest that an OST of either end was passed over.
    pub(crate) fn wait_max(&self) -> Duration {
        self.source.wait_max.max(self.sink.wait_max)
    }
}
