//! Which OSTs are congested, so that threads take from others first.
//!
//! Storage is shared: at any moment a few targets are slow for some seconds, then other targets. A
//! [`Judge`] hears how long each request took, and says of each OST whether threads should prefer
//! another one. A judge never forbids an OST: when nothing else is ready, threads take from a
//! congested OST, too. So a wrong verdict costs little, and no work waits until a verdict is
//! lifted.
//!
//! Each [`Rule`] has its own judge. The queues, the sessions and the simulator know a rule only
//! through [`Judge`]. [`Rule::Threshold`] is the papers' rule (`threshold.rs`): it must be told
//! which service time is slow, and it forgets what it saw after each mean. [`Rule::Adaptive`] needs
//! no such number: an OST is congested if its requests take longer than those of other OSTs *and*
//! longer than its own used to (`comparison.rs`). [`Rule::Polite`] compares in the same way, but
//! reacts to a smaller difference: that of another program which uses the OST.

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
    /// No OST is ever congested.
    #[default]
    Never,
    /// An OST is congested if its mean service time is above a given limit.
    Threshold(Threshold),
    /// An OST is congested if it is slower than other OSTs, and slower than it was itself.
    Adaptive,
    /// As [`Rule::Adaptive`], with a lower limit: finds OSTs that another program uses at the same
    /// time.
    Polite,
}

/// What a thread that looks for work should do about an OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take its work.
    Clear,
    /// Take its work only if nothing else is ready.
    Congested,
    /// The OST was congested when it was last used, and has not been asked for a while: take a
    /// little of its work, to see whether it still is. Also the first requests to an OST.
    Probe,
}

/// Hears of all requests of one end and judges its OSTs.
///
/// The trait offers more than a verdict, because the sink places files, and places files again, by
/// how slow an OST is and for how long it has been slow.
pub trait Judge: fmt::Debug + Send {
    /// From now on [`Judge::window`] is the least number of requests that keeps an OST busy, if the
    /// rule can tell: requests in flight to an OST that turns slow cannot be called back.
    fn spare(&mut self);

    /// A request of this many bytes begins.
    fn on_start(&mut self, ost: OstId, now: Instant, bytes: u64);

    /// A request of this many bytes is complete; it took `service`.
    fn on_finish(&mut self, ost: OstId, now: Instant, bytes: u64, service: Duration);

    /// What a thread should do about this OST now.
    fn verdict(&mut self, ost: OstId, now: Instant) -> Verdict;

    /// Whether the OST was congested when its last request ended.
    fn is_congested(&self, ost: OstId) -> bool;

    /// Whether no OST has been congested for a while. Then threads take from OSTs in turn: to stay
    /// with an OST that is known to be quick gains nothing.
    fn is_calm(&self, now: Instant) -> bool;

    /// How many requests the OST should have in flight; at least one.
    fn window(&self, ost: OstId) -> u32;

    /// How many times as long as usual requests to this OST take, smoothed; 1 if nothing is known.
    fn slowness(&self, ost: OstId) -> f64;

    /// The larger of [`Judge::slowness`] and the slowness of the last request: an OST that has just
    /// turned slow is slower than the smoothed number says.
    fn slowness_recent(&self, ost: OstId) -> f64;

    /// The slowness to expect of a request that begins now; at least 1. What was measured counts
    /// less and less while the OST has no requests.
    fn slowness_expected(&self, ost: OstId, now: Instant) -> f64;

    /// For how long a congested OST has been slow; zero if the OST is not congested.
    fn slow_for(&self, ost: OstId, now: Instant) -> Duration;
}

impl Rule {
    /// A judge of OSTs that should each have at most this many requests at a time. All OSTs start
    /// as not congested.
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
