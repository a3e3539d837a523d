//! How many frames may be in flight to the server: as many as keep the way there full, and few
//! more.
//!
//! What is in flight can neither be staged nor let the program go on. With as many as there is
//! memory for, half of a pool of 16 MiB is 0.7 s in flight over a line of 11.7 MB/s, and a program
//! that writes 50 ms sooner than expected waits for 50 ms. A frame that was sent when no other was
//! in flight tells how long the way takes without a queue. So many frames as are written in twice
//! that time leave no gap (Little's law), whatever the way is like.

use super::policy::{WINDOW_BASES, WINDOW_EXTRA, WINDOW_SECONDS};
use super::rate::Rate;
use std::time::Duration;

/// What the frames of late tell about the way.
#[derive(Debug)]
pub struct Window {
    /// The frame that was sent when no other was in flight, and when.
    alone: Option<(u64, Duration)>,
    /// From sending such a frame until it was written.
    base: Option<Duration>,
    /// From when on something is in flight, since the last frame was written.
    busy_from: Option<Duration>,
    /// Frames in a second in which something is in flight.
    rate: Rate,
}

impl Default for Window {
    fn default() -> Self {
        Self { alone: None, base: None, busy_from: None, rate: Rate::over(WINDOW_SECONDS) }
    }
}

impl Window {
    /// A frame is sent while `under_way` others are. One that is not full tells nothing of others:
    /// it is faster.
    pub fn on_sent(&mut self, number: u64, now: Duration, is_full: bool, under_way: usize) {
        if under_way > 0 {
            return;
        }
        self.busy_from = Some(now);
        self.alone = is_full.then_some((number, now));
    }

    /// A frame is written; `under_way` others are not.
    pub fn on_written(&mut self, number: u64, now: Duration, under_way: usize) {
        if let Some((_, from)) = self.alone.take_if(|(alone, _)| *alone == number) {
            self.base = Some(now.saturating_sub(from));
        }
        if let Some(from) = self.busy_from {
            self.rate.add(1.0, now.saturating_sub(from));
        }
        self.busy_from = (under_way > 0).then_some(now);
    }

    /// How many frames may be in flight, of a client with as many buffers.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no more than there are buffers, and not below zero"
    )]
    pub fn frames_max(&self, buffers: u32) -> usize {
        let half = f64::from((buffers / 2).max(1));
        let needed = self.base.zip(self.rate.get()).map_or(half, |(base, rate)| {
            (WINDOW_BASES * base.as_secs_f64() * rate).ceil() + WINDOW_EXTRA
        });
        needed.min(half) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A line that carries as many frames in a second, and takes as long for each beside that.
    struct Line {
        frames_per_second: f64,
        latency: Duration,
    }

    /// Sends for some seconds, after which nothing is in flight. Returns how many frames were
    /// written, and the most that were in flight.
    fn send(window: &mut Window, line: &Line, begin: Duration, seconds: u64) -> (u64, usize) {
        let end = begin + Duration::from_secs(seconds);
        let each = Duration::from_secs_f64(1.0 / line.frames_per_second);
        let mut under_way: VecDeque<(u64, Duration)> = VecDeque::new();
        let (mut now, mut free_at, mut written, mut most) = (begin, begin, 0, 0);
        for number in 0.. {
            while under_way.len() >= window.frames_max(64) || now >= end {
                let Some((number, at)) = under_way.pop_front() else { return (written, most) };
                now = at;
                window.on_written(number, now, under_way.len());
                written += 1;
            }
            window.on_sent(number, now, true, under_way.len());
            free_at = free_at.max(now) + each;
            under_way.push_back((number, free_at + line.latency));
            // Nothing is known yet when the first half of the buffers is sent.
            most = if number < 32 { 0 } else { most.max(under_way.len()) };
        }
        unreachable!("it ends")
    }

    #[test]
    fn a_line_is_full_and_little_is_under_way() {
        for (frames_per_second, latency_ms, most_max) in
            [(47.0, 0, 5), (450.0, 0, 5), (119.0, 27, 11), (1000.0, 10, 24), (7.0, 100, 6)]
        {
            let line = Line { frames_per_second, latency: Duration::from_millis(latency_ms) };
            let mut window = Window::default();
            send(&mut window, &line, Duration::ZERO, 2);
            let (written, most) = send(&mut window, &line, Duration::from_secs(9), 10);
            let share = written as f64 / (10.0 * frames_per_second);
            assert!(share > 0.97, "{frames_per_second} {latency_ms}: {share}");
            assert!(most <= most_max, "{frames_per_second} {latency_ms}: {most}");
        }
    }

    #[test]
    fn a_line_that_becomes_faster_is_full_again_soon() {
        let latency = Duration::from_millis(27);
        let mut window = Window::default();
        let slow = Line { frames_per_second: 10.0, latency };
        send(&mut window, &slow, Duration::ZERO, 10);
        let fast = Line { frames_per_second: 400.0, latency };
        let (written, _) = send(&mut window, &fast, Duration::from_secs(20), 5);
        assert!(written > 1800, "{written} of 2000");
    }

    #[test]
    fn half_of_the_buffers_until_something_is_known() {
        let mut window = Window::default();
        assert_eq!((window.frames_max(64), window.frames_max(1)), (32, 1));
        window.on_sent(0, Duration::ZERO, false, 0);
        window.on_written(0, Duration::from_millis(1), 0);
        assert_eq!(window.frames_max(64), 32, "a short frame tells nothing");
        window.on_sent(1, Duration::from_secs(1), true, 0);
        window.on_written(1, Duration::from_millis(1010), 0);
        assert!(window.frames_max(64) < 10);
    }
}
