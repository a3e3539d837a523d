//! Which OST to leave alone for now.
//!
//! Storage is shared: at any moment a few targets are slow, for seconds, and never the same ones.
//! A [`Judge`] hears how long each request took and says of each OST whether threads should rather
//! go elsewhere. It never forbids: when nothing else is ready, a congested OST is served, too, so
//! a wrong verdict costs little and no work waits for one to be lifted.
//!
//! [`Rule::Threshold`] is that of the papers (LADS, FAST '15, section 3.4). It has to be told what
//! is slow, and forgets in between. [`Rule::Adaptive`] needs no telling: an OST is congested if its
//! requests take longer than those of its siblings *and* longer than its own used to. Requests are
//! compared with others of their size that had as many before them, so that neither small requests
//! nor our own queue look like congestion. [`Rule::Polite`] asks the same, but is out for less than
//! congestion: one program besides ours, with one request at a time, makes four of ours take five
//! quarters of their time. It compares with the least that requests take, not with what they
//! usually take, as transports do that yield to others (LEDBAT, RFC 6817).

use crate::units::{Instant, OstId};
use std::time::Duration;

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

/// The papers' rule: if the mean service time of the last `window` requests is above `limit`, the
/// next `skips` threads skip the OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Requests whose mean is taken (W); at least one.
    pub window: u32,
    /// The longest mean service time of an OST that is not congested, in microseconds for 1 MiB
    /// (T).
    pub limit_micros: u32,
    /// Threads that skip a congested OST (M).
    pub skips: u32,
}

impl Default for Threshold {
    /// As published: 40 requests, 50 ms, 16 threads.
    fn default() -> Self {
        Self { window: 40, limit_micros: 50_000, skips: 16 }
    }
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

/// With fewer OSTs than this there is nothing to compare with, and nowhere to go.
const OSTS_MIN: usize = 3;

/// How soon a rule calls an OST congested.
#[derive(Clone, Copy, Debug)]
struct Temper {
    /// A request is slow if it takes this many times as long as others of its kind usually do, and
    /// so many times as long as the best that this OST has been.
    slow_min: f64,
    /// It is not if it takes at most this many times as long.
    clear_max: f64,
    /// An OST that has always been slow is not congested: it is what it is. Its floor doubles in
    /// this many seconds until it meets what is measured.
    floor_doubles_seconds: f64,
    /// A congested OST has this many requests in flight at least, if it may have them.
    window_min: f64,
    /// A good answer makes the window larger by this part of one by the window.
    window_up: f64,
    /// Whether threads should rather go elsewhere.
    is_avoided: bool,
    /// A request that took longer than usual makes what is usual so much longer, one that took
    /// less makes it so much shorter.
    usual_up: f64,
    usual_down: f64,
}

/// Half of all requests take longer than usual. Of two requests in flight, one keeps the OST busy
/// while the other is on its way.
const ADAPTIVE: Temper = Temper {
    slow_min: 2.0,
    clear_max: 1.5,
    floor_doubles_seconds: 20.0,
    window_min: 2.0,
    window_up: 1.0,
    is_avoided: true,
    usual_up: 1.05,
    usual_down: 1.05,
};

/// About one request in forty takes less than usual: that is what an OST does for us alone. Others
/// that use it for minutes do not become what is usual. Who gives way takes turns, and need not go
/// away: an OST that is shared always has one request of ours, or there would be no share for us.
/// Where one at a time is rare, it is learned from that OST what one takes, and others are part of
/// it: then a second is tried now and then, and it is seen that they are there. So seldom.
const POLITE: Temper = Temper {
    slow_min: 1.15,
    clear_max: 1.08,
    floor_doubles_seconds: 600.0,
    window_min: 1.0,
    window_up: 0.1,
    is_avoided: false,
    usual_up: 1.0005,
    usual_down: 1.02,
};
/// The length of a request that only looks whether an OST is still congested, in bytes.
pub const PROBE_BYTES: u32 = 128 << 10;

/// A congested OST without requests in flight is probed after this long.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// After this long, nothing is known of an OST that was not congested, either, unless it is calm.
const STALE: Duration = Duration::from_millis(500);
/// Files are not placed on an OST that was congested when it was last heard of, and if it has none
/// it is not heard of: so what is known of it means half as much after each of these.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(500);
/// If no OST was congested for so long, it is calm. What is slow is so for seconds, and other OSTs
/// are next, at once or soon.
const CALM_AFTER: Duration = Duration::from_secs(5);
/// The first requests to every OST are short, and one at a time: so it is known what a probe
/// usually takes.
const FIRST_COUNT: u32 = 2;

/// This many in a row tell.
const RUN_MIN: u32 = 2;
/// A request that is not back after this many times the usual time tells by itself.
const OVERDUE_MIN: f64 = 3.0;
/// What is new weighs a quarter in the mean.
const WEIGHT: f64 = 0.25;
/// Requests of a kind to have seen before any is called slow.
const SAMPLES_MIN: u32 = 4;
/// Until this many have been seen, what is usual moves by more: a slow start is soon forgotten.
const USUAL_STEP_FIRST: f64 = 1.2;
const USUAL_FIRST_COUNT: u32 = 16;

/// This part of what an OST can do is enough. With 0.9 an OST of a latency of a tenth of its
/// service time would have one request, and be idle for as long; with 1 each would have two,
/// however short the latency.
const ENOUGH: f64 = 0.95;
/// Of this number of requests to an OST, one may start while the number that is enough is in
/// flight, to see whether one more would be better. With a fourth of it, 32 OSTs of which none is
/// slow reach 95 % of the bound, not 97; with four times as many, a change is noticed later, and
/// nothing else differs (simulator). Half and double of it were not tried.
const ONE_MORE_EVERY: u32 = 64;

/// Kinds of requests: by size, in powers of two, and by how many were in flight before them.
const SIZES: usize = 26;
const DEPTHS: usize = 9;

/// Hears of requests and judges the OSTs of one end.
#[derive(Debug)]
pub struct Judge {
    rule: Rule,
    temper: Temper,
    osts: Vec<Record>,
    /// What requests of each kind usually take, over all OSTs.
    usual: Vec<Usual>,
    /// When an OST was congested, last.
    congested_at: Option<Instant>,
    enough: Option<Enough>,
}

/// How many requests at a time keep an OST busy: as many as fit into the time that one takes alone,
/// if they come back as fast as the OST can serve them. With fewer it is idle at times, with more
/// they only wait for each other (Kleinrock's operating point, as BBR has it for a network).
#[derive(Debug)]
struct Enough {
    /// So many are enough, as far as known.
    count: u32,
    /// The longest requests that there are: others are rare, or probes.
    size: usize,
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
    /// When the first began of those that were slow in a row.
    slow_since: Instant,
    /// The least that this has been, rising slowly.
    floor: f64,
    /// When it last finished a request.
    last: Instant,
    /// How many requests it should have in flight: grows additively, shrinks multiplicatively.
    window: f64,
    window_max: f64,
    by_threshold: Mean,
}

/// For the papers' rule: requests and service time since the last mean, and skips left.
#[derive(Clone, Debug, Default)]
struct Mean {
    count: u32,
    sum: Duration,
    skips: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    seconds: f64,
    count: u32,
}

impl Rule {
    fn needs_no_telling(self) -> bool {
        matches!(self, Self::Adaptive | Self::Polite)
    }
}

impl Judge {
    /// A judge of OSTs that should have at most this many requests each at a time; all are clear.
    #[must_use]
    pub fn new(rule: Rule, in_flight_max: impl Iterator<Item = u32>) -> Self {
        let record = |most: u32| Record {
            in_flight: Vec::new(),
            begun_count: 0,
            is_busy: false,
            is_congested: false,
            slow_run: 0,
            clear_run: 0,
            slowness: 1.0,
            slow_since: Instant::START,
            floor: 1.0,
            last: Instant::START,
            window: f64::from(most.max(1)),
            window_max: f64::from(most.max(1)),
            by_threshold: Mean::default(),
        };
        let osts: Vec<_> = in_flight_max.map(record).collect();
        let has_siblings = osts.len() >= OSTS_MIN;
        let rule = if rule == Rule::Adaptive && !has_siblings { Rule::Never } else { rule };
        let temper = if rule == Rule::Polite { POLITE } else { ADAPTIVE };
        let usual = vec![Usual::default(); SIZES * DEPTHS];
        Self { rule, temper, osts, usual, congested_at: None, enough: None }
    }

    /// OSTs get as few requests at a time as keep them busy: what is under way to one that turns
    /// slow cannot be called back.
    #[must_use]
    pub fn sparing(self) -> Self {
        let enough = Enough { count: 1, size: 0, gap: Usual::default() };
        Self { enough: self.rule.needs_no_telling().then_some(enough), ..self }
    }

    /// A request of this many bytes begins.
    pub fn on_start(&mut self, ost: OstId, now: Instant, bytes: u64) {
        if self.rule.needs_no_telling() {
            let record = &mut self.osts[ost.index()];
            record.begun_count = record.begun_count.saturating_add(1);
            let kind = kind(bytes, record.in_flight.len());
            record.in_flight.push((now, kind));
        }
    }

    /// A request is complete that took `service`.
    pub fn on_finish(&mut self, ost: OstId, now: Instant, bytes: u64, service: Duration) {
        match self.rule {
            Rule::Never => {}
            Rule::Threshold(rule) => {
                self.osts[ost.index()].by_threshold.on_finish(rule, bytes, service);
            }
            Rule::Adaptive | Rule::Polite => self.on_finish_adaptive(ost, now, service),
        }
    }

    /// What a thread should do about this OST now. By the papers' rule, a thread that is told
    /// [`Verdict::Congested`] has skipped it once.
    pub fn verdict(&mut self, ost: OstId, now: Instant) -> Verdict {
        match self.rule {
            Rule::Never => Verdict::Clear,
            Rule::Threshold(_) => self.osts[ost.index()].by_threshold.verdict(),
            Rule::Adaptive | Rule::Polite => {
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
                self.osts[ost.index()].verdict(self.temper, now, is_calm)
            }
        }
    }

    /// Whether no OST has been congested for a while: then nothing is gained by staying with those
    /// that are known to be quick.
    #[must_use]
    pub fn is_calm(&self, now: Instant) -> bool {
        self.congested_at.is_none_or(|at| now.since(at) >= CALM_AFTER)
    }

    /// Whether an OST was congested when it was last heard of.
    #[must_use]
    pub fn is_congested(&self, ost: OstId) -> bool {
        let record = &self.osts[ost.index()];
        record.is_congested || record.by_threshold.skips > 0
    }

    /// How many requests the OST should have in flight; at least one.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 1 to what the provider said, which is of this type"
    )]
    pub fn window(&self, ost: OstId) -> u32 {
        let record = &self.osts[ost.index()];
        let is_first = self.rule.needs_no_telling() && record.begun_count < FIRST_COUNT;
        let enough = self.enough.as_ref().map_or(u32::MAX, |it| it.window(record.begun_count));
        if is_first { 1 } else { (record.window as u32).min(enough) }
    }

    /// How many times as long as usual requests to this OST take; 1 if nothing is known.
    #[must_use]
    pub fn slowness(&self, ost: OstId) -> f64 {
        self.osts[ost.index()].slowness
    }

    /// The same, as far as it is still to be believed: what was heard of an OST that has nothing to
    /// do means half as much after each half second.
    #[must_use]
    pub fn slowness_expected(&self, ost: OstId, now: Instant) -> f64 {
        let record = &self.osts[ost.index()];
        let silence = match record.in_flight.is_empty() {
            true => now.since(record.last).as_secs_f64(),
            false => 0.0,
        };
        let weight = (-silence / FORGOTTEN_AFTER.as_secs_f64()).exp2();
        1.0 + (record.slowness - 1.0).max(0.0) * weight
    }

    /// For how long a congested OST has been slow; nothing for one that is not congested.
    #[must_use]
    pub fn slow_for(&self, ost: OstId, now: Instant) -> Duration {
        let record = &self.osts[ost.index()];
        if record.is_congested { now.since(record.slow_since) } else { Duration::ZERO }
    }

    /// When the oldest request in flight began, if it should have been back long ago.
    fn overdue_since(&self, ost: OstId, now: Instant) -> Option<Instant> {
        let record = &self.osts[ost.index()];
        let (began, kind) = *record.in_flight.first()?;
        let usual = self.usual[kind];
        let patience = usual.seconds * OVERDUE_MIN * record.floor;
        let is_overdue = now.since(began).as_secs_f64() > patience;
        (usual.count >= SAMPLES_MIN && is_overdue).then_some(began)
    }

    fn on_finish_adaptive(&mut self, ost: OstId, now: Instant, service: Duration) {
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
        if usual.count >= SAMPLES_MIN {
            let age = now.since(record.last);
            record.learn(self.temper, seconds / usual.seconds, age.as_secs_f64(), began);
        }
        usual.learn(self.temper, seconds);
        record.last = now;
        if let Some(enough) = &mut self.enough {
            enough.learn(self.temper, kind, depth, gap, &self.usual);
        }
    }
}

impl Enough {
    /// How many requests an OST may have that has been given this many so far: now and then one
    /// more than is enough, to see whether that would be better.
    fn window(&self, begun_count: u32) -> u32 {
        let is_known = self.gap.count >= SAMPLES_MIN;
        let is_tried = !is_known || begun_count.is_multiple_of(ONE_MORE_EVERY);
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
        temper: Temper,
        kind: usize,
        depth: usize,
        gap: Option<Duration>,
        usual: &[Usual],
    ) {
        let size = kind / DEPTHS;
        if size < self.size {
            return;
        }
        if size > self.size {
            *self = Self { size, count: self.count, gap: Usual::default() };
        }
        if let Some(gap) = gap.filter(|_| depth > self.count as usize) {
            self.gap.learn(temper, gap.as_secs_f64().max(1e-9));
        }
        let alone = usual[size * DEPTHS];
        if alone.count >= SAMPLES_MIN && self.gap.count >= SAMPLES_MIN {
            self.count = ((alone.seconds / self.gap.seconds * ENOUGH).ceil() as u32).max(1);
        }
    }
}

impl Record {
    fn verdict(&self, temper: Temper, now: Instant, is_calm: bool) -> Verdict {
        let is_idle = self.in_flight.is_empty();
        let is_first = self.begun_count < FIRST_COUNT;
        // One good answer is followed up at once.
        let is_due = self.clear_run > 0 || now.since(self.last) >= PROBE_INTERVAL;
        match self.is_congested {
            true if !temper.is_avoided => Verdict::Clear,
            true if is_idle && is_due => Verdict::Probe,
            true => Verdict::Congested,
            false if is_first => Verdict::Probe,
            false if !is_calm && is_idle && now.since(self.last) >= STALE => Verdict::Probe,
            false => Verdict::Clear,
        }
    }

    /// Takes in how many times as long as usual a request took that began at a moment and is back
    /// `age_seconds` after the last.
    fn learn(&mut self, temper: Temper, slowness: f64, age_seconds: f64, began: Instant) {
        self.slowness += (slowness - self.slowness) * WEIGHT;
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
        if self.slow_run >= RUN_MIN {
            self.is_congested = true;
            self.window = (self.window / 2.0).max(self.window_max.min(temper.window_min));
        } else if self.clear_run >= RUN_MIN {
            self.is_congested = false;
            let up = temper.window_up / self.window;
            self.window = (self.window + up).min(self.window_max);
        }
    }
}

impl Mean {
    fn on_finish(&mut self, rule: Threshold, bytes: u64, service: Duration) {
        // What is shorter than 1 MiB is not made out to be slower than it was.
        let mebibytes = (bytes as f64 / f64::from(1 << 20)).max(1.0);
        self.sum += service.div_f64(mebibytes);
        self.count += 1;
        if self.count >= rule.window.max(1) {
            if self.sum / self.count > Duration::from_micros(rule.limit_micros.into()) {
                self.skips = rule.skips;
            }
            (self.count, self.sum) = (0, Duration::ZERO);
        }
    }

    fn verdict(&mut self) -> Verdict {
        match self.skips {
            0 => Verdict::Clear,
            _ => {
                self.skips -= 1;
                Verdict::Congested
            }
        }
    }
}

impl Usual {
    fn learn(&mut self, temper: Temper, seconds: f64) {
        self.count = self.count.saturating_add(1);
        let (up, down) = match self.count <= USUAL_FIRST_COUNT {
            true => (USUAL_STEP_FIRST, USUAL_STEP_FIRST),
            false => (temper.usual_up, temper.usual_down),
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

#[cfg(test)]
mod tests;
