//! How many requests an end should have in flight on storage that hides its OSTs.
//!
//! Where OSTs are hidden, many requests meet many of them, so more requests are better
//! (docs/decisions/24-hidden-osts.md). But behind a mount there may also be one rotating disk, or a
//! server that gets slower when it has many requests. No file system reports this. So an end starts
//! with the number of requests that is best on most storage, and sometimes probes smaller numbers.
//! It keeps a smaller number only if it gains ([`Tuning::match_gain_min`]), and goes back as soon
//! as more requests lose nothing.
//!
//! ```text
//!           the hold is over
//!   Hold ────────────────────► Probe ──┐ the rate is still as high:
//!     ▲                          │ ▲   │ half as many, or twice as many
//!     │   the rate has fallen,   │ └───┘
//!     └── or nothing is left to ─┘
//!         try: the best of all
//! ```
//!
//! A hold and each step of a probe are measured in epochs: an epoch has some hundred completions,
//! and counts only if storage was what limited the end. A probe goes on through numbers at which
//! the rate is the same, because many servers have the same rate with 128 requests as with 4, and
//! another one with 1. On hidden OSTs the rate falls with the first step, and the probe ends there.
//! What a probe has cost decides how long the next hold lasts ([`Tuning::match_cost_parts`]).
//!
//! If the rate changes much during a hold, the next probe follows at once.

use crate::tuning::Tuning;
use crate::units::Instant;
use std::time::Duration;

/// Finds how many requests in flight an end should have.
#[derive(Debug)]
pub struct Matching {
    tuning: Tuning,
    /// The number that is best on most storage; never more.
    most: u32,
    /// The number that was best so far.
    home: u32,
    /// The number that holds now.
    limit: u32,
    state: State,
    epoch: Epoch,
    /// How long the last hold was to last; zero if the rate has changed since.
    hold: Duration,
    /// When a request was last complete.
    last: Instant,
    why: Why,
    gain: f64,
}

/// Why an end has as many requests in flight as it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The number is that of the threads that a user asked for.
    Fixed,
    /// It is the number that is best for most storage of its kind.
    Guess,
    /// Fewer gained.
    Less,
    /// More gained, or lost nothing.
    More,
}

#[derive(Debug)]
enum State {
    Hold(Hold),
    Probe(Probe),
}

/// The number of requests stays.
#[derive(Debug)]
struct Hold {
    /// When the next probe may begin; `None` until a request is complete.
    until: Option<Instant>,
    way: Way,
    /// Whether a probe the other way follows before the hold gets longer.
    is_second_way: bool,
    /// The rate in the latest epochs; `None` if storage did not limit this end.
    rate: Option<Rate>,
    /// How many epochs in a row had quite another rate.
    other_count: u32,
}

/// Other numbers of requests are tried.
#[derive(Debug)]
struct Probe {
    way: Way,
    is_second_way: bool,
    began: Instant,
    step_began: Instant,
    bytes: u64,
    /// The numbers that were tried, and their rates; first the one before the probe.
    tried: Vec<(u32, Rate)>,
}

/// Which numbers are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Fewer,
    More,
}

/// What was complete in a second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    bytes: f64,
    requests: f64,
}

/// The time over which a rate is measured.
#[derive(Debug, Default)]
struct Epoch {
    began: Option<Instant>,
    /// This number of completions says nothing: these requests began before the epoch.
    skipped: u32,
    count: u32,
    busy_count: u32,
    bytes: u64,
}

/// When an epoch is over: when `count` requests are complete and the time `took` is over. Sooner,
/// if fewer bytes come in a second than would be a clear loss.
#[derive(Clone, Copy, Debug)]
struct Goal {
    count: u32,
    took: Duration,
    clear_loss: f64,
}

/// What an epoch that is over has shown.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Rate(Rate),
    /// Storage did not limit this end.
    Idle,
}

impl Matching {
    /// Begins with `most` requests in flight, at least one.
    #[must_use]
    pub fn new(tuning: &Tuning, most: u32) -> Self {
        let most = most.max(1);
        Self {
            tuning: *tuning,
            most,
            home: most,
            limit: most,
            state: State::Hold(Hold::new(None, Way::Fewer, false, None)),
            epoch: Epoch::after(0),
            hold: tuning.match_hold_min,
            last: Instant::START,
            why: Why::Guess,
            gain: 1.0,
        }
    }

    /// Returns how many requests this end may have in flight.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Reports whether fewer requests than at the beginning are, or may be, better: then few files
    /// should be in flight, each from beginning to end.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.limit < self.most
    }

    /// The number that was best so far.
    #[must_use]
    pub fn home(&self) -> u32 {
        self.home
    }

    /// Why it is this number, and the rate that was measured with it, divided by the rate with the
    /// number before; 1 if nothing was measured.
    #[must_use]
    pub fn reason(&self) -> (Why, f64) {
        (self.why, self.gain)
    }

    /// A request begins while no other is in flight.
    pub fn on_first(&mut self, now: Instant) {
        self.last = now;
    }

    /// A request of this many bytes is complete. `in_flight` counts it still. `is_busy` says
    /// whether storage limited this end: work waited that could have begun, if more requests were
    /// allowed.
    pub fn on_finish(&mut self, now: Instant, bytes: u64, in_flight: u32, is_busy: bool) {
        self.last = now;
        match &mut self.state {
            State::Hold(hold) => _ = hold.until.get_or_insert(now + self.hold),
            State::Probe(probe) => {
                probe.bytes += bytes;
                if in_flight > self.limit {
                    return self.on_draining(now, in_flight);
                }
            }
        }
        let goal = self.goal();
        let Some(shown) = self.epoch.on_finish(&self.tuning, &goal, now, bytes, is_busy) else {
            return;
        };
        self.epoch = Epoch::after(0);
        self.epoch.began = Some(now);
        match &mut self.state {
            State::Hold(_) => self.on_held(now, shown),
            State::Probe(_) => self.on_probed(now, shown),
        }
    }

    /// When the present epoch is over.
    fn goal(&self) -> Goal {
        let Tuning { match_count_min, match_epoch_min, .. } = self.tuning;
        match &self.state {
            // A hold has time.
            State::Hold(_) => Goal {
                count: self.limit.max(4 * match_count_min),
                took: 2 * match_epoch_min,
                clear_loss: 0.0,
            },
            State::Probe(probe) => Goal {
                count: self.limit.max(match_count_min),
                took: match_epoch_min,
                clear_loss: probe.best() * (1.0 - self.tuning.match_clear_loss),
            },
        }
    }

    /// Returns when [`Self::on_time`] has something to do, if nothing is complete before.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.is_narrow().then(|| self.last + self.tuning.match_silence_max)
    }

    /// Requests that do not return must not keep all others from beginning: if none has returned
    /// for long, the end begins again with the first number.
    pub fn on_time(&mut self, now: Instant) {
        if self.next_timeout().is_some_and(|at| at <= now) {
            self.last = now;
            self.set_home(self.most, Why::More, 1.0);
            self.hold_for(now, self.tuning.match_hold_min, Way::Fewer, false, None);
        }
    }

    /// More requests than may be are still in flight. Usually that takes as long as their number
    /// takes; much longer if some are on an OST that hangs.
    fn on_draining(&mut self, now: Instant, in_flight: u32) {
        let State::Probe(probe) = &self.state else { return };
        let drained = f64::from(self.limit.max(1)) + f64::from(in_flight);
        let usual = drained / probe.tried[0].1.requests;
        let patience = 2.0 * usual + self.tuning.match_epoch_min.as_secs_f64();
        if now.since(probe.step_began).as_secs_f64() > patience {
            self.end_probe(now);
        }
    }

    fn on_held(&mut self, now: Instant, shown: Shown) {
        let (tuning, home) = (&self.tuning, self.home);
        let State::Hold(hold) = &mut self.state else { return };
        if hold.take_in(tuning, now, shown) {
            self.hold = Duration::ZERO;
        }
        let is_over = hold.until.is_some_and(|until| until <= now) && hold.other_count == 0;
        let Some(rate) = hold.rate.filter(|_| is_over) else { return };
        let (way, is_second_way) = (hold.way, hold.is_second_way);
        let Some(limit) = self.beyond(home, way) else { return };
        self.state = State::Probe(Probe {
            way,
            is_second_way,
            began: now,
            step_began: now,
            bytes: 0,
            tried: vec![(home, rate)],
        });
        self.try_next(now, limit);
    }

    fn on_probed(&mut self, now: Instant, shown: Shown) {
        let limit = self.limit;
        let loss_max = self.tuning.match_loss_max;
        let State::Probe(probe) = &mut self.state else { return };
        let Shown::Rate(rate) = shown else { return self.end_probe(now) };
        let best = probe.best();
        probe.tried.push((limit, rate));
        let way = probe.way;
        match self.beyond(limit, way) {
            Some(next) if rate.bytes >= best * (1.0 - loss_max) => self.try_next(now, next),
            _ => self.end_probe(now),
        }
    }

    /// The next number to try; `None` if there is none.
    fn beyond(&self, limit: u32, way: Way) -> Option<u32> {
        let next = match way {
            Way::Fewer => limit / 2,
            Way::More => limit.saturating_mul(2).min(self.most),
        };
        (next > 0 && next != limit).then_some(next)
    }

    fn try_next(&mut self, now: Instant, limit: u32) {
        // With more, those that are in flight already say nothing of it. With fewer, they do: the
        // epoch begins only when no more than these are left.
        self.epoch = Epoch::after(if limit > self.limit { self.limit } else { 0 });
        self.limit = limit;
        if let State::Probe(probe) = &mut self.state {
            probe.step_began = now;
        }
    }

    /// Takes the best of all that were tried, and holds it.
    fn end_probe(&mut self, now: Instant) {
        let State::Probe(probe) = &self.state else { return };
        let (way, is_second_way) = (probe.way, probe.is_second_way);
        let (before, after) = (probe.tried[0].1.bytes, probe.choice(&self.tuning));
        let rate = Some(after.1);
        let lost = probe.lost_seconds(now);
        if after.0 != self.home {
            let why = if after.0 < self.home { Why::Less } else { Why::More };
            self.set_home(after.0, why, after.1.bytes / before);
            // Whether that was chance shows soon.
            self.hold = self.tuning.match_hold_min;
            let back = if after.0 == self.most { Way::Fewer } else { Way::More };
            return self.hold_for(now, self.hold, back, false, rate);
        }
        let other = match way {
            Way::Fewer if self.home < self.most => Way::More,
            Way::More if self.home > 1 => Way::Fewer,
            same => same,
        };
        if other != way && !is_second_way {
            return self.hold_for(now, Duration::ZERO, other, true, rate);
        }
        let paid = Duration::from_secs_f64(lost * f64::from(self.tuning.match_cost_parts));
        // After a change, the rate before may have been measured too early.
        let (hold, rate) = match self.hold {
            Duration::ZERO => (self.tuning.match_hold_min, None),
            hold => ((hold * 2).max(paid), rate),
        };
        self.hold = hold.min(self.tuning.match_hold_max);
        self.hold_for(now, self.hold, other, false, rate);
    }

    fn set_home(&mut self, home: u32, why: Why, gain: f64) {
        if home != self.home {
            (self.home, self.why, self.gain) = (home, why, gain);
        }
    }

    fn hold_for(
        &mut self,
        now: Instant,
        time: Duration,
        way: Way,
        is_second_way: bool,
        rate: Option<Rate>,
    ) {
        self.epoch = Epoch::after(if self.home > self.limit { self.limit } else { 0 });
        self.limit = self.home;
        self.state = State::Hold(Hold::new(Some(now + time), way, is_second_way, rate));
    }
}

impl Hold {
    fn new(until: Option<Instant>, way: Way, is_second_way: bool, rate: Option<Rate>) -> Self {
        Self { until, way, is_second_way, rate, other_count: 0 }
    }

    /// Takes in an epoch. Says whether the rate is another one than it was; then the hold is over.
    fn take_in(&mut self, tuning: &Tuning, now: Instant, shown: Shown) -> bool {
        let Shown::Rate(rate) = shown else {
            self.rate = None;
            return false;
        };
        let old = *self.rate.get_or_insert(rate);
        if (rate.bytes / old.bytes - 1.0).abs() <= tuning.match_change {
            (self.rate, self.other_count) = (Some(old.mean(rate)), 0);
        } else if self.other_count == 0 {
            self.other_count = 1;
        } else {
            (self.rate, self.until, self.other_count) = (Some(rate), Some(now), 0);
            return true;
        }
        false
    }
}

impl Probe {
    fn best(&self) -> f64 {
        self.tried.iter().map(|(_, rate)| rate.bytes).fold(0.0, f64::max)
    }

    /// The number to stay with. To leave the first guess takes a gain, to come back to it takes no
    /// more than no loss. Of numbers that are about as good, the one with most requests.
    fn choice(&self, tuning: &Tuning) -> (u32, Rate) {
        let best = self.best();
        let before = self.tried[0];
        if self.way == Way::Fewer && best < before.1.bytes * (1.0 + tuning.match_gain_min) {
            return before;
        }
        let is_good = |(_, rate): &&(u32, Rate)| rate.bytes >= best * (1.0 - tuning.match_loss_max);
        let good = self.tried.iter().filter(is_good);
        good.max_by_key(|(limit, _)| *limit).copied().unwrap_or(before)
    }

    /// How much sooner the same bytes would have been complete without the probe.
    fn lost_seconds(&self, now: Instant) -> f64 {
        let took = now.since(self.began).as_secs_f64();
        (took - self.bytes as f64 / self.tried[0].1.bytes).max(0.0)
    }
}

impl Rate {
    fn mean(self, other: Self) -> Self {
        Self {
            bytes: f64::midpoint(self.bytes, other.bytes),
            requests: f64::midpoint(self.requests, other.requests),
        }
    }
}

impl Epoch {
    fn after(skipped: u32) -> Self {
        Self { skipped, ..Self::default() }
    }

    /// Takes in a completion. Says what the epoch has shown, when it is over.
    fn on_finish(
        &mut self,
        tuning: &Tuning,
        goal: &Goal,
        now: Instant,
        bytes: u64,
        is_busy: bool,
    ) -> Option<Shown> {
        if self.skipped > 0 {
            self.skipped -= 1;
            return None;
        }
        let began = *self.began.get_or_insert(now);
        if began == now {
            return None;
        }
        self.count += 1;
        self.busy_count += u32::from(is_busy);
        self.bytes += bytes;
        let took = now.since(began);
        let count_min = tuning.match_count_min;
        let bytes_per_second = self.bytes as f64 / took.as_secs_f64();
        let is_full = self.count >= goal.count && took >= goal.took;
        let is_late = self.count >= count_min && took >= tuning.match_epoch_max;
        let is_clear = self.count * 2 >= count_min && bytes_per_second < goal.clear_loss;
        (is_full || is_late || is_clear).then(|| match self.busy_count * 4 >= self.count * 3 {
            false => Shown::Idle,
            true => Shown::Rate(Rate {
                bytes: bytes_per_second,
                requests: f64::from(self.count) / took.as_secs_f64(),
            }),
        })
    }
}

#[cfg(test)]
mod tests;
