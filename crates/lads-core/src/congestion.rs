//! Which OST to leave alone for now.
//!
//! Storage is shared: at any moment a few targets are slow, for seconds, and never the same ones.
//! A [`Judge`] hears how long each request took and says of each OST whether threads should rather
//! go elsewhere. It never forbids: when nothing else is ready, a congested OST is served, too, so
//! a wrong verdict costs little and no work waits for one to be lifted.
//!
//! Each [`Rule`] is a judge of its own, and all that the queues, the sessions and the simulator
//! know of it is what [`Judge`] says. [`Rule::Threshold`] is that of the papers (`threshold.rs`):
//! it has to be told what is slow, and forgets in between. [`Rule::Adaptive`] needs no telling: an
//! OST is congested if its requests take longer than those of its siblings *and* longer than its
//! own used to (`comparison.rs`). [`Rule::Polite`] compares in the same way, and counts a
//! smaller difference: that of another program which uses the OST.

mod comparison;
mod never;
mod threshold;

use crate::tuning::Tuning;
use crate::units::{Instant, OstId};
use comparison::Comparison;
use never::Never;
use std::fmt;
use std::time::Duration;
use threshold::ByThreshold;
pub use threshold::Threshold;

/// By which rule OSTs are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Rule {
    /// None is ever congested.
    #[default]
    Never,
    /// Those that are slower than they were told they may be.
    Threshold(Threshold),
    /// Those that are slower than others, and than they were.
    Adaptive,
    /// The same, told by less: those that somebody else uses at the same time.
    Polite,
}

/// What a thread that looks for work should do about an OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take its work.
    Clear,
    /// Take its work only if nothing else is ready.
    Congested,
    /// It is congested, but has not been asked for a while: take a little of its work, to see
    /// whether it still is.
    Probe,
}

/// Hears of requests and judges the OSTs of one end.
///
/// A rule says all of it, for there is more to a congested OST than whether to avoid it: files are
/// placed, and placed again, by how slow it is and for how long it has been.
pub trait Judge: fmt::Debug + Send {
    /// OSTs should get as few requests at a time as keep them busy, if the rule can tell: what is
    /// under way to one that turns slow cannot be called back.
    fn spare(&mut self);

    /// A request of this many bytes begins.
    fn on_start(&mut self, ost: OstId, now: Instant, bytes: u64);

    /// A request of this many bytes is complete that took `service`.
    fn on_finish(&mut self, ost: OstId, now: Instant, bytes: u64, service: Duration);

    /// What a thread should do about this OST now.
    fn verdict(&mut self, ost: OstId, now: Instant) -> Verdict;

    /// Whether an OST was congested when it was last heard of.
    fn is_congested(&self, ost: OstId) -> bool;

    /// Whether no OST has been congested for a while: then nothing is gained by staying with those
    /// that are known to be quick.
    fn is_calm(&self, now: Instant) -> bool;

    /// How many requests the OST should have in flight; at least one.
    fn window(&self, ost: OstId) -> u32;

    /// How many times as long as usual requests to this OST take; 1 if nothing is known.
    fn slowness(&self, ost: OstId) -> f64;

    /// The same, or that of its last request if that is more: an OST that has just turned slow is
    /// slower than the smoothed number says.
    fn slowness_recent(&self, ost: OstId) -> f64;

    /// The same of one that begins now, as far as what was heard is still to be believed; at
    /// least 1.
    fn slowness_expected(&self, ost: OstId, now: Instant) -> f64;

    /// For how long a congested OST has been slow; nothing for one that is not congested.
    fn slow_for(&self, ost: OstId, now: Instant) -> Duration;
}

impl Rule {
    /// A judge of OSTs that should have at most this many requests each at a time; all are clear.
    #[must_use]
    pub fn judge(
        self,
        tuning: &Tuning,
        in_flight_max: impl Iterator<Item = u32>,
    ) -> Box<dyn Judge> {
        let in_flight_max: Vec<u32> = in_flight_max.map(|most| most.max(1)).collect();
        let has_siblings = in_flight_max.len() >= tuning.osts_min;
        match self {
            Self::Threshold(threshold) => Box::new(ByThreshold::new(threshold, in_flight_max)),
            Self::Adaptive if has_siblings => {
                Box::new(Comparison::adaptive(tuning, &in_flight_max))
            }
            Self::Polite => Box::new(Comparison::polite(tuning, &in_flight_max)),
            Self::Adaptive | Self::Never => Box::new(Never::new(in_flight_max)),
        }
    }
}

#[cfg(test)]
mod tests;
