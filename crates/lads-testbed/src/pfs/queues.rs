//! Computes when a storage target has served each request.
//!
//! Each OST serves one piece of a request at a time, first come, first served. First the latency
//! passes, then the bytes move, at the rate that holds while they move. All OSTs of an OSS that
//! move bytes share its rate, max-min fair. Rates change only at moments that the model knows: when
//! a piece begins or ends to move, or when a rate is set. Between these moments everything is
//! arithmetic, so the end of each piece is exact to the nanosecond, no matter when it is asked for.
//! Hence nothing drifts, a change of a rate takes effect at once, and no thread needs to wake up in
//! between.
//!
//! There is no clock here: time is an argument and never goes backwards.

use super::share::max_min;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes per second; `None` means no limit.
pub(super) type Rate = Option<u64>;

/// The request that a piece belongs to, as numbered by the caller that submitted it.
pub(super) type Ticket = u64;

/// The direction in which bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From an OST.
    Read,
    /// To an OST.
    Write,
}

/// The part of a request that one OST serves at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The request that it belongs to.
    pub(super) ticket: Ticket,
    /// The number of bytes.
    pub(super) bytes: u64,
    /// Whether it reads or writes.
    pub(super) direction: Direction,
    /// Where its request begins.
    pub(super) start: Start,
}

/// Where a request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The number of the file.
    pub(super) file: u64,
    /// The offset in the file.
    pub(super) offset: u64,
}

/// The counts of an OST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The number of bytes read.
    pub(super) read_bytes: u64,
    /// The number of bytes written.
    pub(super) written_bytes: u64,
    /// The number of pieces read.
    pub(super) reads: u64,
    /// The number of pieces written.
    pub(super) writes: u64,
    /// The time with at least one piece.
    pub(super) busy: Duration,
    /// The most pieces that waited or were served at the same time.
    pub(super) in_flight_max: usize,
    /// The most pieces that waited while another one was served.
    pub(super) queued_max: usize,
}

/// All OSTs with their queues.
pub(super) struct Queues {
    osts: Vec<Ost>,
    oss_rates: Vec<Rate>,
    now: Duration,
    chance: fastrand::Rng,
}

struct Ost {
    oss: usize,
    rate: Rate,
    latency: Duration,
    jitter: Duration,
    /// What a piece takes longer that does not begin where the one before it has ended.
    seek: Duration,
    /// Where the last piece that was begun ends.
    arm: Option<Start>,
    waiting: VecDeque<Piece>,
    serving: Option<Serving>,
    tally: Tally,
}

struct Serving {
    piece: Piece,
    began: Duration,
    phase: Phase,
}

enum Phase {
    /// No bytes move yet.
    Latency { until: Duration },
    /// Bytes move: `left` bytes were left at `since`; from then on, `speed` bytes move per second.
    Moving { left: f64, speed: f64, since: Duration },
}

impl Queues {
    /// Makes idle OSTs without limits and latency; `oss_of` names the OSS of each.
    pub(super) fn new(oss_of: &[usize], seed: u64, now: Duration) -> Self {
        let oss_count = oss_of.iter().max().map_or(0, |last| last + 1);
        Self {
            osts: oss_of.iter().map(|&oss| Ost::new(oss)).collect(),
            oss_rates: vec![None; oss_count],
            now,
            chance: fastrand::Rng::with_seed(seed),
        }
    }

    /// Lets time pass until `now`; appends the pieces that ended, in order.
    pub(super) fn advance(&mut self, now: Duration, ended: &mut Vec<Ticket>) {
        while let Some((at, ost)) = self.next_event().filter(|(at, _)| *at <= now) {
            self.now = self.now.max(at);
            self.step(ost, ended);
        }
        self.now = self.now.max(now);
    }

    /// Returns when [`Self::advance`] next has something to do.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.next_event().map(|(at, _)| at)
    }

    /// Puts a piece at the end of an OST's queue, at the time of the last [`Self::advance`].
    /// Returns `false` if it was served at once, so that there is nothing to wait for.
    pub(super) fn submit(&mut self, ost: usize, piece: Piece) -> bool {
        let is_instant = self.is_instant(ost);
        let it = &mut self.osts[ost];
        if is_instant {
            it.tally.in_flight_max = it.tally.in_flight_max.max(1);
            it.tally.count(piece);
            return false;
        }
        it.waiting.push_back(piece);
        if it.serving.is_none() {
            self.begin(ost);
        }
        let it = &mut self.osts[ost];
        it.tally.queued_max = it.tally.queued_max.max(it.waiting.len());
        it.tally.in_flight_max = it.tally.in_flight_max.max(it.waiting.len() + 1);
        true
    }

    /// Removes all pieces of an OST, and returns their tickets.
    pub(super) fn abandon(&mut self, ost: usize) -> Vec<Ticket> {
        let it = &mut self.osts[ost];
        let served = it.serving.take().map(|serving| serving.piece);
        let tickets = served.into_iter().chain(it.waiting.drain(..)).map(|piece| piece.ticket);
        let tickets = tickets.collect();
        self.share(self.osts[ost].oss);
        tickets
    }

    /// Sets an OST's rate, also for the piece that it serves now.
    pub(super) fn set_rate(&mut self, ost: usize, rate: Rate) {
        self.osts[ost].rate = rate;
        self.share(self.osts[ost].oss);
    }

    /// Sets the rate that all OSTs of an OSS share.
    pub(super) fn set_oss_rate(&mut self, oss: usize, rate: Rate) {
        self.oss_rates[oss] = rate;
        self.share(oss);
    }

    /// Returns an OST's latency.
    pub(super) fn latency(&self, ost: usize) -> Duration {
        self.osts[ost].latency
    }

    /// Sets an OST's latency, from the next piece on.
    pub(super) fn set_latency(&mut self, ost: usize, latency: Duration) {
        self.osts[ost].latency = latency;
    }

    /// Sets the jitter of an OST, from the next piece on: each piece takes a random time between
    /// zero and this longer than the latency.
    pub(super) fn set_jitter(&mut self, ost: usize, jitter: Duration) {
        self.osts[ost].jitter = jitter;
    }

    /// Sets what a piece takes longer that does not begin where the one before it has ended: the
    /// time in which the arm of a disk moves. Pieces of striped files always take longer.
    pub(super) fn set_seek(&mut self, ost: usize, seek: Duration) {
        self.osts[ost].seek = seek;
    }

    /// Clears the counts.
    pub(super) fn reset_tallies(&mut self) {
        for ost in &mut self.osts {
            ost.tally = Tally::default();
            if let Some(serving) = &mut ost.serving {
                serving.began = self.now;
            }
        }
    }

    /// Returns the counts of an OST since the last reset.
    pub(super) fn tally(&self, ost: usize) -> Tally {
        let it = &self.osts[ost];
        let busy_now = it.serving.as_ref().map_or(Duration::ZERO, |it| self.now - it.began);
        Tally { busy: it.tally.busy + busy_now, ..it.tally }
    }

    /// Returns how many pieces wait while another one is served.
    pub(super) fn queued(&self, ost: usize) -> usize {
        self.osts[ost].waiting.len()
    }

    /// Returns an OST's rate.
    pub(super) fn rate(&self, ost: usize) -> Rate {
        self.osts[ost].rate
    }

    /// Returns the rate that all OSTs of an OSS share.
    pub(super) fn oss_rate(&self, oss: usize) -> Rate {
        self.oss_rates[oss]
    }

    /// Returns the OSS of an OST.
    pub(super) fn oss(&self, ost: usize) -> usize {
        self.osts[ost].oss
    }

    /// Returns the number of OSTs.
    pub(super) fn ost_count(&self) -> usize {
        self.osts.len()
    }

    /// Returns the number of OSSes.
    pub(super) fn oss_count(&self) -> usize {
        self.oss_rates.len()
    }

    /// Returns the time of the last [`Self::advance`].
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    fn next_event(&self) -> Option<(Duration, usize)> {
        let ends = self.osts.iter().enumerate();
        ends.filter_map(|(index, ost)| Some((ost.serving.as_ref()?.phase.end()?, index))).min()
    }

    fn is_instant(&self, ost: usize) -> bool {
        let it = &self.osts[ost];
        let is_unlimited = it.rate.is_none() && self.oss_rates[it.oss].is_none();
        let has_no_delay = it.latency.is_zero() && it.jitter.is_zero() && it.seek.is_zero();
        is_unlimited && has_no_delay && it.serving.is_none()
    }

    /// Begins the next phase, or the next piece, when a phase of the piece that an OST serves has
    /// ended.
    fn step(&mut self, ost: usize, ended: &mut Vec<Ticket>) {
        let (now, it) = (self.now, &mut self.osts[ost]);
        let Some(serving) = &mut it.serving else { return };
        if let Phase::Latency { .. } = serving.phase {
            serving.phase = Phase::moving(serving.piece, now);
        } else {
            ended.push(serving.piece.ticket);
            it.tally.count(serving.piece);
            it.tally.busy += now - serving.began;
            it.serving = None;
            self.begin(ost);
        }
        self.share(self.osts[ost].oss);
    }

    /// Begins to serve the next piece, if there is one.
    fn begin(&mut self, ost: usize) {
        let (now, it) = (self.now, &mut self.osts[ost]);
        let Some(piece) = it.waiting.pop_front() else { return };
        let jitter = it.jitter.mul_f64(self.chance.f64());
        let seek = if it.arm == Some(piece.start) { Duration::ZERO } else { it.seek };
        it.arm = Some(Start { offset: piece.start.offset + piece.bytes, ..piece.start });
        let latency = it.latency + jitter + seek;
        let phase = match latency {
            Duration::ZERO => Phase::moving(piece, now),
            _ => Phase::Latency { until: now + latency },
        };
        it.serving = Some(Serving { piece, began: now, phase });
        self.share(self.osts[ost].oss);
    }

    /// Divides an OSS's rate again among those of its OSTs that move bytes.
    fn share(&mut self, oss: usize) {
        let now = self.now;
        let mut moving = Vec::new();
        for ost in self.osts.iter_mut().filter(|ost| ost.oss == oss) {
            let limit = limit(ost.rate);
            if let Some(Serving { phase: phase @ Phase::Moving { .. }, .. }) = &mut ost.serving {
                phase.settle(now);
                moving.push((phase, limit));
            }
        }
        let limits: Vec<f64> = moving.iter().map(|(_, limit)| *limit).collect();
        let speeds = max_min(&limits, limit(self.oss_rates[oss]));
        for ((phase, _), share) in moving.into_iter().zip(speeds) {
            if let Phase::Moving { speed, .. } = phase {
                *speed = share;
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "no storage target is so fast")]
fn limit(rate: Rate) -> f64 {
    rate.map_or(f64::INFINITY, |rate| rate as f64)
}

impl Ost {
    fn new(oss: usize) -> Self {
        Self {
            oss,
            rate: None,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            seek: Duration::ZERO,
            arm: None,
            waiting: VecDeque::new(),
            serving: None,
            tally: Tally::default(),
        }
    }
}

impl Tally {
    fn count(&mut self, piece: Piece) {
        let (bytes, pieces) = match piece.direction {
            Direction::Read => (&mut self.read_bytes, &mut self.reads),
            Direction::Write => (&mut self.written_bytes, &mut self.writes),
        };
        *bytes += piece.bytes;
        *pieces += 1;
    }
}

impl Phase {
    #[expect(clippy::cast_precision_loss, reason = "a piece is at most a request")]
    fn moving(piece: Piece, now: Duration) -> Self {
        Self::Moving { left: piece.bytes as f64, speed: 0.0, since: now }
    }

    /// Returns when it ends if no rate changes; `None` if never.
    fn end(&self) -> Option<Duration> {
        match *self {
            Self::Latency { until } => Some(until),
            Self::Moving { left, since, .. } if left <= 0.0 => Some(since),
            Self::Moving { speed: 0.0, .. } => None,
            Self::Moving { left, speed, since } => {
                let seconds = left / speed;
                // Rounded up, so that nothing is left when it ends.
                let time = Duration::try_from_secs_f64(seconds).ok()? + Duration::from_nanos(1);
                Some(since + if seconds == 0.0 { Duration::ZERO } else { time })
            }
        }
    }

    /// Records how much has moved until now.
    fn settle(&mut self, now: Duration) {
        if let Self::Moving { left, speed, since } = self {
            let moved = if *since == now { 0.0 } else { *speed * (now - *since).as_secs_f64() };
            *left = (*left - moved).max(0.0);
            *since = now;
        }
    }
}

#[cfg(test)]
mod tests;
