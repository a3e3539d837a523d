//! An OST is congested if it is slower than other OSTs, and slower than it used to be.
//!
//! A request is compared with requests of about the same size that had as many requests before
//! them. So neither small requests nor our own queue look like congestion. `--polite` is the same
//! rule with other numbers: one other program with one request at a time makes four of our requests
//! take 1.25 times as long. It compares with the shortest time that requests take, not with the
//! usual time, as transports do that yield to others (LEDBAT, RFC 6817).

use super::{Judge, Verdict};
use crate::tuning::Tuning;
use crate::units::{Instant, OstId};
use std::time::Duration;

/// Judges OSTs by comparing them.
#[derive(Debug)]
pub(super) struct Comparison {
    tuning: Tuning,
    temper: Temper,
    osts: Vec<Record>,
    /// What requests of each kind usually take, over all OSTs.
    usual: Vec<Usual>,
    /// When an OST was last seen congested.
    congested_at: Option<Instant>,
    pub(super) enough: Option<Enough>,
}

/// The limits of one rule, from [`Tuning`]: how soon it calls an OST congested.
#[derive(Clone, Copy, Debug)]
struct Temper {
    slow_min: f64,
    floor_doubles_seconds: f64,
    window_min: f64,
    window_up: f64,
    /// Whether threads take from a congested OST last. Not so with `--polite`, which only gives it
    /// fewer requests.
    is_avoided: bool,
    usual_up: f64,
    usual_down: f64,
}

impl Temper {
    fn adaptive(tuning: &Tuning) -> Self {
        Self {
            slow_min: 1.0 + tuning.slow_excess,
            floor_doubles_seconds: tuning.floor_doubles_after.as_secs_f64(),
            window_min: tuning.window_min,
            window_up: tuning.window_up,
            is_avoided: true,
            usual_up: 1.0 + tuning.usual_step,
            usual_down: 1.0 + tuning.usual_step,
        }
    }

    fn polite(tuning: &Tuning) -> Self {
        Self {
            slow_min: 1.0 + tuning.polite_slow_excess,
            floor_doubles_seconds: tuning.polite_floor_doubles_after.as_secs_f64(),
            window_min: tuning.polite_window_min,
            window_up: tuning.polite_window_up,
            is_avoided: false,
            usual_up: 1.0 + tuning.polite_usual_up,
            usual_down: 1.0 + tuning.polite_usual_down,
        }
    }
}

/// Kinds of requests: the size in powers of two, and the number of requests in flight before it.
const SIZES: usize = 26;
const DEPTHS: usize = 9;

/// The number of requests at a time that keeps an OST busy: the time that one request takes alone,
/// divided by the time between two completions of a busy OST. With fewer requests the OST is idle
/// at times; with more they only wait for each other (Kleinrock's operating point, which BBR uses
/// for a network).
#[derive(Debug)]
pub(super) struct Enough {
    /// The number of requests that is enough, as far as is known.
    pub(super) count: u32,
    /// The largest size class of requests seen. Only these are measured; shorter ones are rare, or
    /// probes.
    size: usize,
    /// How long a request takes that is alone on its OST.
    alone: Usual,
    /// The time between two completions of an OST that has more than enough requests.
    gap: Usual,
}

/// What is known of one OST.
#[derive(Clone, Debug)]
struct Record {
    /// When each request in flight began, and of which kind it is, oldest first.
    in_flight: Vec<(Instant, usize)>,
    begun_count: u32,
    /// Whether it still had a request in flight when it last completed one.
    is_busy: bool,
    is_congested: bool,
    /// The numbers of slow requests, and of requests that were clearly not slow, in a row.
    slow_run: u32,
    clear_run: u32,
    /// How many times as long as usual its requests take, smoothed.
    slowness: f64,
    /// The same, of the last request alone.
    slowness_last: f64,
    /// When the first of the current row of slow requests began.
    slow_since: Instant,
    /// The least value that `slowness` has had; rises slowly ([`Tuning::floor_doubles_after`]).
    floor: f64,
    /// When it last completed a request.
    last: Instant,
    /// How many requests it should have in flight: grows additively, shrinks multiplicatively.
    window: f64,
    window_max: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    seconds: f64,
    count: u32,
}

impl Comparison {
    /// The rule that finds congested OSTs.
    pub(super) fn adaptive(tuning: &Tuning, in_flight_max: &[u32]) -> Self {
        Self::new(Temper::adaptive(tuning), tuning, in_flight_max)
    }

    /// The rule that finds OSTs which others use at the same time.
    pub(super) fn polite(tuning: &Tuning, in_flight_max: &[u32]) -> Self {
        Self::new(Temper::polite(tuning), tuning, in_flight_max)
    }

    fn new(temper: Temper, tuning: &Tuning, in_flight_max: &[u32]) -> Self {
        let record = |most: &u32| Record {
            in_flight: Vec::new(),
            begun_count: 0,
            is_busy: false,
            is_congested: false,
            slow_run: 0,
            clear_run: 0,
            slowness: 1.0,
            slowness_last: 1.0,
            slow_since: Instant::START,
            floor: 1.0,
            last: Instant::START,
            window: f64::from(*most),
            window_max: f64::from(*most),
        };
        Self {
            tuning: *tuning,
            temper,
            osts: in_flight_max.iter().map(record).collect(),
            usual: vec![Usual::default(); SIZES * DEPTHS],
            congested_at: None,
            enough: None,
        }
    }

    /// When the oldest request in flight began, if that request is overdue; otherwise `None`.
    fn overdue_since(&self, ost: OstId, now: Instant) -> Option<Instant> {
        let record = &self.osts[ost.index()];
        let (began, kind) = *record.in_flight.first()?;
        let usual = self.usual[kind];
        let patience = usual.seconds * self.tuning.overdue_min * record.floor;
        let is_overdue = now.since(began).as_secs_f64() > patience;
        (usual.count >= self.tuning.samples_min && is_overdue).then_some(began)
    }
}

impl Judge for Comparison {
    fn spare(&mut self) {
        self.enough =
            Some(Enough { count: 1, size: 0, alone: Usual::default(), gap: Usual::default() });
    }

    fn on_start(&mut self, ost: OstId, now: Instant, bytes: u64) {
        let record = &mut self.osts[ost.index()];
        record.begun_count = record.begun_count.saturating_add(1);
        let kind = kind(bytes, record.in_flight.len());
        record.in_flight.push((now, kind));
    }

    fn on_finish(&mut self, ost: OstId, now: Instant, _bytes: u64, service: Duration) {
        let Self { tuning, temper, .. } = self;
        let record = &mut self.osts[ost.index()];
        // The caller does not say which request this was. It is taken to be the one whose start is
        // nearest to the start that `service` implies.
        let started = now.since_start().saturating_sub(service);
        let distance = |(at, _): &(Instant, usize)| at.since_start().abs_diff(started);
        let nearest = record.in_flight.iter().enumerate().min_by_key(|(_, it)| distance(it));
        let Some((index, &(began, kind))) = nearest else { return };
        let depth = record.in_flight.len();
        record.in_flight.remove(index);
        let gap = record.is_busy.then(|| now.since(record.last));
        record.is_busy = depth > 1;
        let usual = &mut self.usual[kind];
        let seconds = service.as_secs_f64().max(1e-9);
        let mut is_slow = false;
        if usual.count >= tuning.samples_min {
            let age = now.since(record.last);
            let slowness = seconds / usual.seconds;
            record.learn(*temper, tuning, slowness, age.as_secs_f64(), began);
            is_slow = slowness > temper.slow_min;
        }
        usual.learn((temper.usual_up, temper.usual_down), tuning, seconds);
        record.last = now;
        // Requests to a slow OST say nothing about the other OSTs.
        if let Some(enough) = self.enough.as_mut().filter(|_| !is_slow) {
            enough.learn(tuning, kind, depth, seconds, gap);
        }
    }

    fn verdict(&mut self, ost: OstId, now: Instant) -> Verdict {
        let overdue_since = self.overdue_since(ost, now);
        let record = &mut self.osts[ost.index()];
        if let Some(began) = overdue_since
            && !record.is_congested
        {
            (record.is_congested, record.slow_since) = (true, began);
        }
        if record.is_congested {
            self.congested_at = Some(now);
        }
        let is_calm = self.is_calm(now);
        let Self { temper, tuning, .. } = self;
        self.osts[ost.index()].verdict(*temper, tuning, now, is_calm)
    }

    fn is_congested(&self, ost: OstId) -> bool {
        self.osts[ost.index()].is_congested
    }

    fn is_calm(&self, now: Instant) -> bool {
        self.congested_at.is_none_or(|at| now.since(at) >= self.tuning.calm_after)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 1 to what the provider said, which is of this type"
    )]
    fn window(&self, ost: OstId) -> u32 {
        let record = &self.osts[ost.index()];
        let is_first = record.begun_count < self.tuning.first_count;
        let enough = self.enough.as_ref();
        let enough = enough.map_or(u32::MAX, |it| it.window(&self.tuning, record.begun_count));
        if is_first { 1 } else { (record.window as u32).min(enough) }
    }

    fn slowness(&self, ost: OstId) -> f64 {
        self.osts[ost.index()].slowness
    }

    fn slowness_recent(&self, ost: OstId) -> f64 {
        let record = &self.osts[ost.index()];
        record.slowness.max(record.slowness_last)
    }

    /// While an OST has nothing to do, its slowness counts half as much after each
    /// [`Tuning::forgotten_after`].
    fn slowness_expected(&self, ost: OstId, now: Instant) -> f64 {
        let record = &self.osts[ost.index()];
        let silence = match record.in_flight.is_empty() {
            true => now.since(record.last).as_secs_f64(),
            false => 0.0,
        };
        let weight = (-silence / self.tuning.forgotten_after.as_secs_f64()).exp2();
        1.0 + (record.slowness - 1.0).max(0.0) * weight
    }

    fn slow_for(&self, ost: OstId, now: Instant) -> Duration {
        let record = &self.osts[ost.index()];
        if record.is_congested { now.since(record.slow_since) } else { Duration::ZERO }
    }
}

impl Enough {
    /// How many requests an OST may have that has had `begun_count` requests so far. First one,
    /// until the time of a single request is known. Then any number, until the time between
    /// completions is known. Then as many as are enough, and now and then one more, to see whether
    /// that is better.
    fn window(&self, tuning: &Tuning, begun_count: u32) -> u32 {
        if self.alone.count < tuning.samples_min {
            return 1;
        }
        if self.gap.count < tuning.samples_min {
            return u32::MAX;
        }
        let is_tried = begun_count.is_multiple_of(tuning.one_more_every);
        self.count.saturating_add(u32::from(is_tried))
    }

    /// Takes in a request that is complete. `depth` is the number of requests that were in flight
    /// on its OST, itself included; `gap` is the time since the OST completed the request before
    /// it, if the OST had requests in flight all that time.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of requests, cut off where it is too large"
    )]
    fn learn(
        &mut self,
        tuning: &Tuning,
        kind: usize,
        depth: usize,
        seconds: f64,
        gap: Option<Duration>,
    ) {
        // Both steps lean towards fewer requests.
        let (little, much) = (1.0 + tuning.enough_step_little, 1.0 + tuning.enough_step_much);
        let (alone_steps, gap_steps) = ((little, much), (much, little));
        let size = kind / DEPTHS;
        if size < self.size {
            return;
        }
        if size > self.size {
            let (alone, gap) = (Usual::default(), Usual::default());
            *self = Self { size, count: self.count, alone, gap };
        }
        if kind.is_multiple_of(DEPTHS) {
            self.alone.learn(alone_steps, tuning, seconds);
        }
        if let Some(gap) = gap.filter(|_| depth > self.count as usize) {
            self.gap.learn(gap_steps, tuning, gap.as_secs_f64().max(1e-9));
        }
        let samples_min = tuning.samples_min;
        if self.alone.count >= samples_min && self.gap.count >= samples_min {
            let part = tuning.enough_part;
            self.count = ((self.alone.seconds / self.gap.seconds * part).ceil() as u32).max(1);
        }
    }
}

impl Record {
    fn verdict(&self, temper: Temper, tuning: &Tuning, now: Instant, is_calm: bool) -> Verdict {
        let is_idle = self.in_flight.is_empty();
        let is_first = self.begun_count < tuning.first_count;
        // After one good answer the next probe follows at once.
        let is_due = self.clear_run > 0 || now.since(self.last) >= tuning.probe_interval;
        match self.is_congested {
            true if !temper.is_avoided => Verdict::Clear,
            true if is_idle && is_due => Verdict::Probe,
            true => Verdict::Congested,
            false if is_first => Verdict::Probe,
            false if !is_calm && is_idle && now.since(self.last) >= tuning.stale_after => {
                Verdict::Probe
            }
            false => Verdict::Clear,
        }
    }

    /// Takes in a request that took `slowness` times as long as usual, began at `began`, and was
    /// completed `age_seconds` after the one before it.
    fn learn(
        &mut self,
        temper: Temper,
        tuning: &Tuning,
        slowness: f64,
        age_seconds: f64,
        began: Instant,
    ) {
        self.slowness_last = slowness;
        self.slowness += (slowness - self.slowness) * tuning.slowness_weight;
        let risen = self.floor * (age_seconds / temper.floor_doubles_seconds).exp2();
        self.floor = risen.min(self.slowness.max(1.0));
        if slowness > temper.slow_min * self.floor {
            if self.slow_run == 0 && !self.is_congested {
                self.slow_since = began;
            }
            (self.slow_run, self.clear_run) = (self.slow_run + 1, 0);
        } else {
            (self.slow_run, self.clear_run) = (0, self.clear_run + 1);
        }
        if self.slow_run >= tuning.run_min {
            self.is_congested = true;
            self.window = (self.window / 2.0).max(self.window_max.min(temper.window_min));
        } else if self.clear_run >= tuning.run_min {
            self.is_congested = false;
            let up = temper.window_up / self.window;
            self.window = (self.window + up).min(self.window_max);
        }
    }
}

impl Usual {
    fn learn(&mut self, (up, down): (f64, f64), tuning: &Tuning, seconds: f64) {
        self.count = self.count.saturating_add(1);
        let first = 1.0 + tuning.first_usual_step;
        let (up, down) = match self.count <= tuning.first_usual_count {
            true => (first, first),
            false => (up, down),
        };
        self.seconds = match self.count {
            1 => seconds,
            _ if seconds > self.seconds => (self.seconds * up).min(seconds),
            _ => (self.seconds / down).max(seconds),
        };
    }
}

/// The kind of a request of this many bytes that finds `in_flight` requests before it.
fn kind(bytes: u64, in_flight: usize) -> usize {
    let size = (u64::BITS - bytes.leading_zeros()) as usize;
    size.min(SIZES - 1) * DEPTHS + in_flight.min(DEPTHS - 1)
}
