//! One transfer, and how fast it moved data.

use crate::not_started;
use anyhow::{Context, Result, bail, ensure};
use lads_engine::{ExitCode, StopFlag};
use serde::Deserialize;
use std::error::Error;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often to see whether the user wants to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How much longer than its time a transfer may take to begin and to end. A second factor that
/// comes by telephone takes a minute or two; a stop takes up to 5 seconds.
const GRACE: Duration = Duration::from_secs(300);

/// When a transfer stops, if it has not come to its end.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

/// What a transfer showed.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) bytes_per_second: f64,
    pub(super) files_found: u64,
    pub(super) bytes_found: u64,
}

/// A transfer that failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// Its exit code, which tells a program what was wrong.
    pub(super) code: u8,
    pub(super) message: String,
}

impl Error for Failed {}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

/// The events `progress` and `summary` of `lads cp --json`, as far as they matter here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
struct Told {
    event: String,
    #[serde(default)]
    exit_code: Option<u8>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    elapsed_seconds: f64,
    #[serde(default)]
    files_found: u64,
    #[serde(default)]
    bytes_found: u64,
    #[serde(default)]
    bytes_done: u64,
    #[serde(default)]
    bytes_sent: u64,
}

/// What was told of a transfer so far.
#[derive(Debug, Default)]
struct Course {
    /// When data had begun to move, and when the first of it was done.
    first: Option<Told>,
    first_done: Option<Told>,
    last: Option<Told>,
    summary: Option<Told>,
}

impl Course {
    fn on_line(&mut self, line: &str) {
        let Ok(told) = serde_json::from_str::<Told>(line) else { return };
        match told.event.as_str() {
            "progress" if told.bytes_sent > 0 => {
                self.first.get_or_insert_with(|| told.clone());
                if told.bytes_done > 0 {
                    self.first_done.get_or_insert_with(|| told.clone());
                }
                self.last = Some(told);
            }
            "summary" => self.summary = Some(told),
            _ => {}
        }
    }

    fn bytes_sent(&self) -> u64 {
        self.last.as_ref().map_or(0, |it| it.bytes_sent)
    }

    /// How fast bytes were done until the transfer ended or was stopped; what happens after a stop
    /// does not count. Bytes are done a while after they moved, so it counts from when the first
    /// were done; if that was late, because few files are made durable at the end, from when data
    /// had begun to move. If most was done by then, it counts from the start.
    fn bytes_per_second(&self) -> Option<f64> {
        let summary = self.summary.as_ref()?;
        let is_whole = summary.exit_code != Some(ExitCode::Interrupted as u8);
        let stopped = self.last.as_ref().filter(|it| it.bytes_done > 0 && !is_whole);
        // If nothing was done before a stop, data is made durable after it.
        let end = stopped.unwrap_or(summary);
        let moved = self.first.as_ref();
        let is_early = |it: &&Told| {
            let began_seconds = moved.map_or(0.0, |it| it.elapsed_seconds);
            2.0 * (end.elapsed_seconds - it.elapsed_seconds) >= end.elapsed_seconds - began_seconds
        };
        let has_most_after_it = |it: &&Told| 2 * it.bytes_done <= end.bytes_done;
        let begin = self.first_done.as_ref().filter(is_early).or(moved).filter(has_most_after_it);
        // A short transfer tells nothing in between, or only when most of it is done.
        let start = Told::default();
        let begin = begin.unwrap_or(&start);
        let seconds = end.elapsed_seconds - begin.elapsed_seconds;
        let bytes = end.bytes_done.saturating_sub(begin.bytes_done);
        (seconds > 0.0 && bytes > 0).then(|| bytes as f64 / seconds)
    }
}

/// Runs a transfer and measures it.
pub(super) fn measure(mut command: Command, limits: &Limits, stop: &StopFlag) -> Result<Measured> {
    ensure!(!stop.is_set(), "stopped");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let course = follow(&mut child, limits, stop);
    if course.is_err() {
        // It has ended, or answers to nothing.
        let _ = child.kill();
    }
    let _ = child.wait();
    let course = course?;
    ensure!(!stop.is_set(), "stopped");
    let Some(summary) = &course.summary else { bail!("the transfer ended without a summary") };
    let was_stopped = summary.exit_code == Some(ExitCode::Interrupted as u8);
    if let Some((code, message)) = summary.exit_code.zip(summary.message.clone())
        && !was_stopped
    {
        bail!(Failed { code, message });
    }
    let bytes_per_second =
        course.bytes_per_second().context("no data was moved in this time: use a longer --time")?;
    let Told { files_found, bytes_found, .. } = *summary;
    Ok(Measured { bytes_per_second, files_found, bytes_found })
}

/// Reads what a transfer tells until it ends. It stops by itself in time; it is stopped earlier
/// when it has moved enough, or when the user wants to stop.
fn follow(child: &mut Child, limits: &Limits, stop: &StopFlag) -> Result<Course> {
    let stdout = child.stdout.take().context("it has no output")?;
    let (teller, told) = mpsc::channel();
    let tell = move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        lines.take_while(|line| teller.send(line.clone()).is_ok()).for_each(drop);
    };
    std::thread::Builder::new().spawn(tell).map_err(not_started)?;
    let mut course = Course::default();
    let deadline = Instant::now() + limits.time + GRACE;
    loop {
        match told.recv_timeout(LOOK_INTERVAL) {
            Ok(line) => course.on_line(&line),
            Err(RecvTimeoutError::Disconnected) => return Ok(course),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.is_set() || course.bytes_sent() >= limits.bytes {
            // That is its sign to stop, on another host, too.
            drop(child.stdin.take());
        }
        ensure!(Instant::now() < deadline, "the transfer does not end");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(lines: &[&str]) -> Course {
        let mut course = Course::default();
        lines.iter().for_each(|line| course.on_line(line));
        course
    }

    #[test]
    fn the_time_before_data_moves_does_not_count() {
        let lines = [
            r#"{"event":"progress","elapsed_seconds":1.0,"bytes_done":0,"bytes_sent":0}"#,
            r#"{"event":"progress","elapsed_seconds":2.0,"bytes_done":10,"bytes_sent":90}"#,
            r#"{"event":"osts","elapsed_seconds":2.5,"side":"sink","bytes":[0]}"#,
            r#"{"event":"summary","exit_code":0,"elapsed_seconds":4.0,"bytes_done":110}"#,
        ];
        assert_eq!(course(&lines).bytes_per_second(), Some(50.0));
    }

    #[test]
    fn what_happens_after_a_stop_does_not_count() {
        let lines = [
            r#"{"event":"progress","elapsed_seconds":1.0,"bytes_done":0,"bytes_sent":9}"#,
            r#"{"event":"progress","elapsed_seconds":3.0,"bytes_done":40,"bytes_sent":50}"#,
            r#"{"event":"summary","exit_code":9,"elapsed_seconds":8.0,"bytes_done":50}"#,
        ];
        assert_eq!(course(&lines).bytes_per_second(), Some(20.0));
        assert_eq!(course(&lines[..1]).bytes_per_second(), None, "it has no end");
        let late = course(&[lines[0], lines[2]]).bytes_per_second();
        assert_eq!(late, Some(50.0 / 7.0), "it was made durable after the stop");
    }

    #[test]
    fn bytes_count_from_when_the_first_were_done_unless_that_was_late() {
        let began = r#"{"event":"progress","elapsed_seconds":1.0,"bytes_done":0,"bytes_sent":9}"#;
        let line = |at: u32| {
            format!(
                r#"{{"event":"progress","elapsed_seconds":{at},"bytes_done":40,"bytes_sent":50}}"#
            )
        };
        let end = r#"{"event":"summary","exit_code":0,"elapsed_seconds":7.0,"bytes_done":100}"#;
        assert_eq!(course(&[began, &line(2), end]).bytes_per_second(), Some(12.0));
        assert_eq!(course(&[began, &line(4), end]).bytes_per_second(), Some(20.0));
        assert_eq!(course(&[began, &line(5), end]).bytes_per_second(), Some(100.0 / 6.0));
    }

    #[test]
    fn a_short_transfer_counts_from_its_start() {
        let line = r#"{"event":"summary","exit_code":0,"elapsed_seconds":0.5,"bytes_done":100}"#;
        assert_eq!(course(&[line, "noise"]).bytes_per_second(), Some(200.0));
        let late = |done: u32| {
            let event = r#""event":"progress","elapsed_seconds":0.5,"bytes_sent":100"#;
            format!(r#"{{{event},"bytes_done":{done}}}"#)
        };
        assert_eq!(course(&[&late(60), line]).bytes_per_second(), Some(200.0));
        assert_eq!(course(&[&late(100), line]).bytes_per_second(), Some(200.0));
    }
}
