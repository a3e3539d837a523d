//! When a program writes next, how much, and how much of what waits is to be staged until then
//! (the RFS paper, section 3.2, equation 1).
//!
//! A simulation computes for a while, writes a snapshot, and computes again. While it computes,
//! buffers are sent. If the time is too short to send as much as the next snapshot needs, part of
//! what waits goes to the local disk in the background, so that the program finds free memory.

use super::policy::{OUTPUT_GAP, RATE_SECONDS, STAGING_SPREAD};
use super::rate::Rate;
use std::time::Duration;

/// What is known about the outputs of a program, and about how fast its bytes go away.
#[derive(Debug)]
pub struct Outlook {
    told: Told,
    /// When the output before ended; at first, when the program began.
    output_end: Duration,
    /// Bytes of the output that is being written, or was last.
    output_bytes: u64,
    has_written: bool,
    /// From the end of an output to the next.
    interval: Option<Duration>,
    /// The bytes of the outputs before.
    output_size: Option<u64>,
    /// From when on there has always been something to send, since the last bytes were written.
    remote_from: Option<Duration>,
    /// Bytes in a second.
    remote: Rate,
    local: Rate,
    staged_at: Duration,
}

/// What the user tells about the outputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// From the end of an output to the next.
    pub interval: Option<Duration>,
    /// The bytes of one.
    pub output_bytes: Option<u64>,
}

/// The memory for what waits.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All of it, in bytes.
    pub all_bytes: u64,
    /// What is free, in bytes.
    pub free_bytes: u64,
    /// Of one buffer.
    pub buffer_bytes: u32,
}

impl Outlook {
    /// Of a program that begins now, at zero.
    #[must_use]
    pub fn new(told: Told) -> Self {
        Self {
            told,
            output_end: Duration::ZERO,
            output_bytes: 0,
            has_written: false,
            interval: None,
            output_size: None,
            remote_from: None,
            remote: Rate::over(RATE_SECONDS),
            local: Rate::over(RATE_SECONDS),
            staged_at: Duration::ZERO,
        }
    }

    /// The program begins to write.
    pub fn on_write(&mut self, now: Duration) {
        let pause = now.saturating_sub(self.output_end);
        if pause > OUTPUT_GAP {
            // What was seen long ago counts little.
            self.interval = Some(self.interval.map_or(pause, |before| (before + pause) / 2));
            if self.has_written {
                self.output_size = self.next_bytes();
            }
            self.output_bytes = 0;
        }
        self.has_written = true;
    }

    /// The program has written this many bytes.
    pub fn on_write_done(&mut self, now: Duration, bytes: u64) {
        self.output_end = now;
        self.output_bytes += bytes;
    }

    /// There is something to send.
    pub fn on_put(&mut self, now: Duration) {
        self.remote_from.get_or_insert(now);
    }

    /// Bytes are written at the server; is more left to be written?
    pub fn on_written(&mut self, now: Duration, bytes: u64, is_left: bool) {
        if let Some(from) = self.remote_from {
            self.remote.add(bytes as f64, now.saturating_sub(from));
        }
        self.remote_from = is_left.then_some(now);
    }

    /// Bytes were staged, which took this time.
    pub fn on_staged(&mut self, now: Duration, bytes: u64, took: Duration) {
        self.local.add(bytes as f64, took);
        self.staged_at = now;
    }

    /// How many bytes are to be staged until the next output.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no more than the memory of a host, and not below zero"
    )]
    pub fn to_stage(&self, now: Duration, memory: Memory) -> u64 {
        let next_bytes = self.told.output_bytes.or_else(|| self.next_bytes());
        let Some(next_bytes) = next_bytes else { return 0 };
        let needed = memory.all_bytes.min(next_bytes) as f64;
        let remote = self.remote.get().unwrap_or(0.0);
        // A local disk whose rate is not known yet counts as far faster than the network.
        let ratio = self.local.get().map_or(0.0, |local| remote / local);
        if ratio >= 1.0 {
            return 0;
        }
        let sent = self.remaining(now).as_secs_f64() * remote;
        let bytes = (needed - memory.free_bytes as f64 - sent) / (1.0 - ratio);
        bytes.max(0.0) as u64
    }

    /// In how long the next buffer is to be staged; `None` if none is needed.
    #[must_use]
    pub fn next_staging(&self, now: Duration, memory: Memory) -> Option<Duration> {
        let is_writing = now.saturating_sub(self.output_end) < OUTPUT_GAP;
        let bytes = self.to_stage(now, memory);
        if bytes == 0 || is_writing {
            return None;
        }
        let buffers = bytes.div_ceil(u64::from(memory.buffer_bytes));
        let pause = self.remaining(now).mul_f64(STAGING_SPREAD / buffers as f64);
        let last = self.staged_at.max(self.output_end);
        Some(last.saturating_add(pause).saturating_sub(now))
    }

    /// How long it is until the next output.
    fn remaining(&self, now: Duration) -> Duration {
        let interval = self.told.interval.or(self.interval).unwrap_or(Duration::ZERO);
        self.output_end.saturating_add(interval).saturating_sub(now)
    }

    /// How many bytes the outputs so far had.
    fn next_bytes(&self) -> Option<u64> {
        let now = self.output_bytes;
        let mean = self.output_size.map_or(now, |before| u64::midpoint(before, now));
        self.has_written.then_some(mean)
    }
}

#[cfg(test)]
mod tests;
