//! An OST is congested that is slower than its siblings, and than it used to be.
//!
//! Requests are compared with others of their size that had as many before them, so that neither
//! small requests nor our own queue look like congestion. `--polite` is the same with another
//! temper: one program besides ours, with one request at a time, makes four of ours take five
//! quarters of their time. It compares with the least that requests take, not with what they
//! usually take, as transports do that yield to others (LEDBAT, RFC 6817).

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
    /// When an OST was congested, last.
    congested_at: Option<Instant>,
    pub(super) enough: Option<Enough>,
}

/// How soon a rule calls an OST congested: [`Tuning`], as that rule has it.
#[derive(Clone, Copy, Debug)]
struct Temper {
    slow_min: f64,
    clear_max: f64,
    floor_doubles_seconds: f64,
    window_min: f64,
    window_up: f64,
    /// Whether threads should rather go elsewhere.
    is_avoided: bool,
    usual_up: f64,
    usual_down: f64,
}

impl Temper {
    fn adaptive(tuning: &Tuning) -> Self {
        Self {
            slow_min: 1.0 + tuning.slow_excess,
            clear_max: 1.0 + tuning.clear_excess,
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
            clear_max: 1.0 + tuning.polite_clear_excess,
            floor_doubles_seconds: tuning.polite_floor_doubles_after.as_secs_f64(),
            window_min: tuning.polite_window_min,
            window_up: tuning.polite_window_up,
            is_avoided: false,
            usual_up: 1.0 + tuning.polite_usual_up,
            usual_down: 1.0 + tuning.polite_usual_down,
        }
    }
}

/// Kinds of requests: by size, in powers of two, and by how many were in flight before them.
const SIZES: usize = 26;
const DEPTHS: usize = 9;

/// How many requests at a time keep an OST busy: as many as fit into the time that one takes alone,
/// if they come back as fast as the OST can serve them. With fewer it is idle at times, with more
/// they only wait for each other (Kleinrock's operating point, as BBR has it for a network).
#[derive(Debug)]
pub(super) struct Enough {
    /// So many are enough, as far as known.
    pub(super) count: u32,
    /// The longest requests that there are: others are rare, or probes.
    size: usize,
    /// How long one takes that is alone on its OST.
    alone: Usual,
    /// How soon an OST that has more than enough serves one after the other.
    gap: Usual,
}

/// What is known of one OST.
#[derive(Clone, Debug)]
struct Record {
    /// When each request in flight began, and of which kind it is, oldest first.
    in_flight: Vec<(Instant, usize)>,
    begun_count: u32,
    /// Whether it had a request in flight when it last finished one.
    is_busy: bool,
    is_congested: bool,
    /// Slow requests, and requests that were not, in a row.
    slow_run: u32,
    clear_run: u32,
    /// How many times as long as usual its requests take, smoothed.
    slowness: f64,
    /// The same of its last request.
    slowness_last: f64,
    /// When the first began of those that were slow in a row.
    slow_since: Instant,
    /// The least that this has been, rising slowly.
    floor: f64,
    /// When it last finished a request.
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
    /// Which OSTs are congested.
    pub(super) fn adaptive(tuning: &Tuning, in_flight_max: &[u32]) -> Self {
        Self::new(Temper::adaptive(tuning), tuning, in_flight_max)
    }

    /// Which OSTs others use at the same time.
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

    /// When the oldest request in flight began, if it should have been back long ago.
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
        // Which one it was is not said: that which began when it must have, as near as can be.
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
        // What a slow OST does says nothing of the others.
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

    /// What was heard of an OST that has nothing to do means half as much after each half second.
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
    /// How many requests an OST may have that has been given this many so far: one until it is
    /// known how long that takes, then any number until it is known how soon they come back, then
    /// as many as are enough, and now and then one more, to see whether that is better.
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
        // Both lean towards fewer requests.
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
        // One good answer is followed up at once.
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

    /// Takes in how many times as long as usual a request took that began at a moment and is back
    /// `age_seconds` after the last.
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
        } else if slowness < temper.clear_max * self.floor {
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

/// The kind of a request of this many bytes with this many in flight before it.
fn kind(bytes: u64, in_flight: usize) -> usize {
    let size = (u64::BITS - bytes.leading_zeros()) as usize;
    size.min(SIZES - 1) * DEPTHS + in_flight.min(DEPTHS - 1)
}
