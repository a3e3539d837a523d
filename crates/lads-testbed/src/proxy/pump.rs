//! Moves bytes one way through one connection, and applies the faults to them.
//!
//! There are two threads. One reads chunks and stamps each with the time. The other waits until a
//! chunk's time has come, applies the rules, and writes. No more data lies between them than has to
//! wait for its time, so that a stopped connection takes in very little and its sender notices.

use super::rule::{Fault, Way};
use super::{Connection, State};
use fastrand::Rng;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 16 << 10;
/// The most chunks in progress while there is a delay: 16 MiB.
const CHUNKS_MAX: usize = 1024;
/// How often an idle thread looks for rules whose time has come.
pub(super) const TICK: Duration = Duration::from_millis(10);

struct Chunk {
    came: Instant,
    bytes: Vec<u8>,
}

/// Starts both threads; they end with the connection.
pub(super) fn start(state: &Arc<State>, connection: &Arc<Connection>, way: Way) {
    let (to, from) = sync_channel(0);
    let reader = Arc::clone(connection);
    std::thread::spawn(move || read(&reader, way, &to));
    let chance = Rng::with_seed(state.seed ^ connection.number << 1 ^ u64::from(way == Way::Back));
    let pump = Pump {
        state: Arc::clone(state),
        connection: Arc::clone(connection),
        way,
        waiting: VecDeque::new(),
        position: 0,
        effects: Effects::default(),
        done: Vec::new(),
        epoch: 0,
        chance,
    };
    std::thread::spawn(move || pump.run(&from));
}

fn read(connection: &Connection, way: Way, to: &SyncSender<Chunk>) {
    let mut socket = connection.reads_from(way);
    loop {
        let mut bytes = vec![0; CHUNK_BYTES];
        match socket.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => bytes.truncate(length),
            Err(error) if is_timeout(&error) && !connection.is_gone() => continue,
            Err(_) => {
                // The sender has reset its connection, so reset the other one.
                connection.reset();
                break;
            }
        }
        if to.send(Chunk { came: Instant::now(), bytes }).is_err() {
            break;
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The effects of faults that last.
#[derive(Default)]
struct Effects {
    delay: Duration,
    rate: Option<u64>,
    recut: Option<usize>,
    has_stopped: bool,
    is_black_hole: bool,
    is_closed: bool,
}

struct Pump {
    state: Arc<State>,
    connection: Arc<Connection>,
    way: Way,
    /// The chunks that must still wait for their time.
    waiting: VecDeque<Chunk>,
    /// The number of bytes that went this way.
    position: u64,
    effects: Effects,
    /// The numbers of the rules that have happened here.
    done: Vec<u64>,
    /// The number of times that the rules had been cleared, when last looked at.
    epoch: u64,
    chance: Rng,
}

impl Pump {
    fn run(mut self, from: &Receiver<Chunk>) {
        while !self.connection.is_gone() {
            self.apply_due(0);
            let until_due = self.until_due();
            if self.effects.has_stopped
                || (self.waiting.len() >= CHUNKS_MAX && !until_due.is_zero())
            {
                std::thread::sleep(until_due.clamp(Duration::from_millis(1), TICK));
            } else if until_due.is_zero() {
                self.take_next();
            } else {
                match from.recv_timeout(until_due.min(TICK)) {
                    Ok(chunk) => self.waiting.push_back(chunk),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) if self.waiting.is_empty() => break,
                    Err(RecvTimeoutError::Disconnected) => std::thread::sleep(until_due.min(TICK)),
                }
            }
        }
        let to = self.connection.writes_to(self.way);
        // A connection that is being reset must not send FIN before its RST.
        if !self.effects.is_black_hole && !self.connection.is_gone() {
            let _ = to.shutdown(Shutdown::Write);
        }
        self.state.on_way_ended(&self.connection, self.way, self.position);
    }

    /// Returns how long the next chunk must wait; very long, if there is none.
    fn until_due(&self) -> Duration {
        let delay = self.effects.delay;
        let next = self.waiting.front();
        next.map_or(Duration::MAX, |chunk| delay.saturating_sub(chunk.came.elapsed()))
    }

    /// Passes on the next chunk, in pieces that end where a fault happens.
    fn take_next(&mut self) {
        let Some(Chunk { mut bytes, .. }) = self.waiting.pop_front() else { return };
        while !bytes.is_empty() && !self.connection.is_gone() {
            let piece_bytes = self.bytes_until_next(bytes.len());
            if piece_bytes == 0 {
                if self.apply_due(1) {
                    let mask = 1 << self.chance.u8(..8);
                    bytes[0] ^= mask;
                }
                while self.effects.has_stopped && !self.connection.is_gone() {
                    std::thread::sleep(TICK);
                    self.apply_due(0);
                }
                continue;
            }
            let rest = bytes.split_off(piece_bytes);
            self.position += piece_bytes as u64;
            self.state.bytes.fetch_add(piece_bytes as u64, Ordering::Relaxed);
            self.pass(&bytes);
            bytes = rest;
        }
    }

    /// Returns the number of bytes before the next fault; 0 if one happens now.
    fn bytes_until_next(&self, bytes_max: usize) -> usize {
        let rules = self.state.rules.lock().expect("no thread panics with the rules");
        let pending = rules.iter().filter(|(number, rule)| {
            !self.is_done(*number) && self.concerns(rule) && self.is_time(rule)
        });
        let distances = pending.map(|(_, rule)| rule.after.saturating_sub(self.count(rule)));
        let nearest = distances.min().and_then(|bytes| usize::try_from(bytes).ok());
        nearest.unwrap_or(bytes_max).min(bytes_max)
    }

    /// Applies the rules that are due here and now. Returns whether to flip a bit of the next byte;
    /// that happens only if there is a next byte.
    fn apply_due(&mut self, next_bytes: usize) -> bool {
        self.forget_cleared_rules();
        let due: Vec<(u64, Fault, bool)> = {
            let rules = self.state.rules.lock().expect("no thread panics with the rules");
            let is_due = |number, rule: &super::Rule| {
                let has_bytes = rule.fault != Fault::Flip || next_bytes > 0;
                let is_here = rule.after <= self.count(rule) && self.is_time(rule);
                !self.is_done(number) && self.concerns(rule) && is_here && has_bytes
            };
            let due = rules.iter().filter(|(number, rule)| is_due(*number, rule));
            due.map(|(number, rule)| (*number, rule.fault, rule.counts_all)).collect()
        };
        let mut flips = false;
        for (number, fault, happens_once) in due {
            self.done.push(number);
            if happens_once && !self.state.is_first(number) {
                continue;
            }
            self.state.on_fault(fault, &self.connection, self.way, self.position);
            flips |= fault == Fault::Flip;
            self.begin(fault);
        }
        flips
    }

    fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Delay(time) => self.effects.delay = time,
            Fault::Rate(rate) => self.effects.rate = Some(rate),
            Fault::Recut(bytes) => self.effects.recut = Some(bytes),
            Fault::Reset => self.connection.reset(),
            Fault::ResetAll => self.state.reset_all(),
            Fault::Close => {
                self.effects.is_closed = true;
                let _ = self.connection.writes_to(self.way).shutdown(Shutdown::Write);
            }
            Fault::Stop => self.effects.has_stopped = true,
            Fault::BlackHole => self.effects.is_black_hole = true,
            Fault::Flip | Fault::Reorder(_) => {}
        }
    }

    /// Ends the lasting effects if the rules were cleared. A closed way stays closed.
    fn forget_cleared_rules(&mut self) {
        let epoch = self.state.epoch.load(Ordering::Relaxed);
        if epoch != self.epoch {
            self.epoch = epoch;
            let is_closed = self.effects.is_closed;
            self.effects = Effects { is_closed, ..Effects::default() };
        }
    }

    fn is_done(&self, number: u64) -> bool {
        self.done.contains(&number) || self.state.has_happened(number)
    }

    fn concerns(&self, rule: &super::Rule) -> bool {
        let is_here = rule.connection.is_none_or(|number| number == self.connection.number);
        is_here
            && rule.way.is_none_or(|way| way == self.way)
            && !matches!(rule.fault, Fault::Reorder(_))
    }

    fn is_time(&self, rule: &super::Rule) -> bool {
        rule.at.is_none_or(|at| self.connection.accepted.elapsed() >= at)
    }

    /// Returns the number of bytes that a rule's `after` is compared with.
    fn count(&self, rule: &super::Rule) -> u64 {
        if rule.counts_all { self.state.bytes.load(Ordering::Relaxed) } else { self.position }
    }

    /// Writes bytes, with the present effects applied.
    fn pass(&mut self, bytes: &[u8]) {
        if self.effects.is_black_hole || self.effects.is_closed {
            return;
        }
        let Some(most) = self.effects.recut else {
            self.write(bytes);
            return;
        };
        let mut rest = bytes;
        while !rest.is_empty() && !self.connection.is_gone() {
            let length = self.chance.usize(1..=most).min(rest.len());
            let (piece, after) = rest.split_at(length);
            self.write(piece);
            rest = after;
        }
    }

    fn write(&self, bytes: &[u8]) {
        let started = Instant::now();
        let mut to: &TcpStream = self.connection.writes_to(self.way);
        let mut rest = bytes;
        while !rest.is_empty() && !self.connection.is_gone() {
            match to.write(rest) {
                Ok(length) => rest = &rest[length..],
                Err(error) if is_timeout(&error) => {}
                // The receiver has reset its connection, so reset the other one.
                Err(_) => self.connection.reset(),
            }
        }
        if let Some(rate) = self.effects.rate {
            let time = Duration::from_secs_f64(bytes.len() as f64 / rate as f64);
            self.wait_until(started + time);
        }
    }

    /// Waits until a moment, but no longer than the connection exists.
    fn wait_until(&self, until: Instant) {
        while !self.connection.is_gone() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TICK));
        }
    }
}
