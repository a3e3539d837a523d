//! Decides when each packet leaves the line, and whether it is lost.
//!
//! A packet first waits until the bottleneck has sent all packets before it. Then it takes the time
//! of its own bytes, and then it travels for half a round trip. A packet that finds the
//! bottleneck's buffer full is dropped; of the others, some are lost at random. The order never
//! changes.

use super::options::LineOptions;
use super::queue::{Packet, Queue, Received};
use super::statistics::Statistics;
use anyhow::Result;
use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a line that carries nothing sleeps before it checks whether it should end.
const IDLE: Duration = Duration::from_millis(50);
/// The number of packets taken in before the line looks for packets that are due: this takes a few
/// microseconds.
const TAKEN_AT_ONCE: usize = 8;

/// Carries packets from the queue until told to stop.
pub(crate) fn carry(queue: &mut Queue, mut line: Line, stop: &AtomicBool) -> Result<Statistics> {
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_nanos()).expect("below 500 years");
    while !stop.load(Ordering::Relaxed) {
        wait(queue, line.next_due(), now())?;
        for _ in 0..TAKEN_AT_ONCE {
            match queue.receive()? {
                Received::Packet(packet) if line.admit(now(), packet) => {}
                Received::Packet(packet) => queue.drop_packet(packet.id)?,
                Received::Complaint => {}
                Received::Nothing => break,
            }
        }
        if let Some(id) = line.release(now()) {
            queue.accept_through(id)?;
        }
    }
    line.statistics.dropped_kernel = queue.dropped_by_kernel();
    Ok(line.statistics)
}

/// Waits until a packet comes or is due, but not for long.
fn wait(queue: &Queue, due: Option<u64>, now: u64) -> Result<()> {
    let until_due = due.map(|due| Duration::from_nanos(due.saturating_sub(now)));
    let timeout = until_due.unwrap_or(IDLE).min(IDLE);
    let timeout = Timespec::try_from(timeout).expect("50 ms at most");
    match poll(&mut [PollFd::new(queue, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// One direction of the line. All times are in nanoseconds on its owner's clock.
pub(crate) struct Line {
    options: LineOptions,
    delay_nanos: u64,
    chance: Rng,
    /// The time when the bottleneck will have sent all that it took.
    free_at: u64,
    under_way: VecDeque<UnderWay>,
    statistics: Statistics,
}

struct UnderWay {
    due: u64,
    id: u32,
}

impl Line {
    /// Makes an empty line; the two directions need different seeds.
    pub(crate) fn new(options: &LineOptions, seed: u64) -> Self {
        Self {
            options: options.clone(),
            delay_nanos: u64::try_from((options.rtt() / 2).as_nanos()).expect("seconds at most"),
            chance: Rng::with_seed(seed),
            free_at: 0,
            under_way: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    /// Takes a packet in; returns `false` if it is to be dropped.
    pub(crate) fn admit(&mut self, now: u64, packet: Packet) -> bool {
        let (packets, bytes) = self.options.on_the_wire(packet.bytes.into());
        self.statistics.packets += 1;
        self.statistics.wire_packets += packets;
        self.statistics.bytes += u64::from(packet.bytes);
        let Some(sent_at) = self.pass_bottleneck(now, bytes) else {
            self.statistics.dropped_full += 1;
            return false;
        };
        // The packet is lost after the bottleneck, so it has taken the bottleneck's time.
        if self.chance.f64() < self.options.loss {
            self.statistics.dropped_loss += 1;
            return false;
        }
        self.under_way.push_back(UnderWay { due: sent_at + self.delay_nanos, id: packet.id });
        let count = &mut self.statistics.packets_under_way_max;
        *count = self.under_way.len().max(*count);
        true
    }

    /// Returns when the bottleneck will have sent these bytes; `None` if they do not fit in its
    /// buffer.
    fn pass_bottleneck(&mut self, now: u64, bytes: u64) -> Option<u64> {
        let (Some(rate), Some(buffer)) = (self.options.rate, self.options.buffer_bytes()) else {
            return Some(now);
        };
        let waiting = self.free_at.saturating_sub(now);
        let waiting_bytes = scale(waiting, rate, 1_000_000_000);
        if waiting_bytes + bytes > buffer {
            return None;
        }
        let most = &mut self.statistics.queue_bytes_max;
        *most = (*most).max(waiting_bytes + bytes);
        self.free_at = self.free_at.max(now) + scale(bytes, 1_000_000_000, rate);
        Some(self.free_at)
    }

    /// Releases all packets that are due; returns the id of the last one, if there are any.
    pub(crate) fn release(&mut self, now: u64) -> Option<u32> {
        let mut last = None;
        while let Some(packet) = self.under_way.pop_front_if(|packet| packet.due <= now) {
            self.statistics.late.add(now - packet.due);
            last = Some(packet.id);
        }
        self.statistics.verdict_batches += u64::from(last.is_some());
        last
    }

    /// Returns when the next packet must leave.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.under_way.front().map(|packet| packet.due)
    }
}

/// Returns `value * by / of`, without overflow on the way.
fn scale(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    const MILLISECOND: u64 = 1_000_000;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        line: LineOptions,
    }

    fn line(words: &str) -> Line {
        let words = ["line"].into_iter().chain(words.split_whitespace());
        Line::new(&Program::parse_from(words).line, 1)
    }

    fn packet(id: u32, bytes: u32) -> Packet {
        Packet { id, bytes }
    }

    #[test]
    fn a_packet_travels_half_a_round_trip() {
        let mut line = line("--rtt 20ms");
        assert!(line.admit(5 * MILLISECOND, packet(1, 1000)));
        assert_eq!(line.next_due(), Some(15 * MILLISECOND));
        assert_eq!(line.release(15 * MILLISECOND - 1), None);
        assert_eq!(line.release(15 * MILLISECOND), Some(1));
    }

    #[test]
    fn packets_that_are_due_leave_together() {
        let mut line = line("--rtt 20ms");
        (1..=3).for_each(|id| assert!(line.admit(id.into(), packet(id, 1000))));
        assert!(line.admit(MILLISECOND, packet(4, 1000)));
        assert_eq!(line.release(10 * MILLISECOND + 500), Some(3));
        assert_eq!(line.next_due(), Some(11 * MILLISECOND));
    }

    #[test]
    fn the_bottleneck_sends_one_after_the_other() {
        // 1 MB/s: 1000 bytes take a millisecond.
        let mut line = line("--rtt 20ms --rate 1MB");
        (1..=3).for_each(|id| assert!(line.admit(0, packet(id, 1000))));
        assert_eq!(line.release(12 * MILLISECOND), Some(2));
        assert_eq!(line.next_due(), Some(13 * MILLISECOND));
    }

    #[test]
    fn what_finds_the_buffer_full_is_dropped_until_there_is_room() {
        let mut line = line("--rtt 20ms --rate 1MB --buffer 2000");
        assert!(line.admit(0, packet(1, 1000)));
        assert!(line.admit(0, packet(2, 1000)));
        assert!(!line.admit(0, packet(3, 1000)));
        assert!(line.admit(MILLISECOND, packet(4, 1000)));
        assert_eq!(line.statistics.dropped_full, 1);
        assert_eq!(line.statistics.queue_bytes_max, 2000);
    }

    #[test]
    fn losses_are_as_many_as_asked_for_and_the_same_for_the_same_seed() {
        let lost = |seed| {
            let mut line = line("--loss 0.01");
            line.chance = Rng::with_seed(seed);
            let admitted = (0..100_000).map(|id| line.admit(0, packet(id, 1000)));
            admitted.enumerate().filter(|(_, kept)| !kept).map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert!((900..1100).contains(&lost(1).len()));
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }
}
