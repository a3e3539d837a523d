//! Shows a transfer to a user, to a log and to another program.
//!
//! For a person: issues and notices as they happen, progress and a summary on stderr, paths on
//! stdout. For a program (`--json`): one event a line on stdout, and nothing on stderr. Everything
//! is paced by the transfer's own clock, so that a recorded transfer can be shown again.

mod advice;
mod again;
mod changes;
mod differences;
mod errno;
mod issue;
mod json;
mod line;
mod place;
mod progress;
mod reduced;
mod style;
mod summary;

use lads_core::issue::{Issue, Reason, Side};
use lads_core::matching::Why;
use lads_core::message::{Line, OstBytes, Verb};
use lads_core::reduction::Reduction;
use lads_core::sizes;
use lads_engine::{
    ExitCode, Happening, Observer, Progress, Report, Retry, StopFlag, Verify, Waiting,
};
use std::io::{self, Write};
use std::time::Duration;

use changes::Changes;
use differences::Differences;
pub(crate) use json::PathText;
pub(crate) use lads_core::text::{escape, escape_text};
pub(crate) use place::Places;
use progress::Follower;
pub(crate) use style::{Style, message};

/// The most issues that are shown. The rest are counted, and are in the log.
const ISSUES_SHOWN_MAX: u64 = 20;

/// The shortest time between two redraws of a line: a faster change cannot be read.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// How often progress is reported to a program.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// What to show, and how.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Whether to show only what went wrong.
    pub(crate) is_quiet: bool,
    /// The detail of the summary.
    pub(crate) detail: Detail,
    /// Whether a program reads the output.
    pub(crate) is_json: bool,
    /// Whether nothing is moved.
    pub(crate) is_dry_run: bool,
    /// Whether source and sink are only compared.
    pub(crate) is_check: bool,
    /// How data is checked; `None` if the sink keeps nothing.
    pub(crate) verify: Option<Verify>,
    /// False if the sink is a pipe or a character device, which cannot make data durable.
    pub(crate) is_durable: bool,
    /// The name of the log of failed entries.
    pub(crate) log: Option<String>,
    /// Whether to use colours.
    pub(crate) style: Style,
    /// How progress is shown.
    pub(crate) meters: Meters,
}

/// The detail of the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// No summary if all went well.
    None,
    /// The outcome and the bottleneck.
    Brief,
    /// A table of figures as well.
    Full,
    /// Figures of single resources as well.
    Everything,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meters {
    /// It is not shown.
    None,
    /// In one line of a terminal, which is redrawn again and again.
    Redrawn {
        /// How many columns the terminal has now.
        columns: fn() -> usize,
    },
    /// On a new line at every interval.
    Plain {
        /// The time between two lines.
        interval: Duration,
    },
}

/// Shows a transfer.
pub(crate) struct Display<'a> {
    settings: Settings,
    places: Places,
    out: Output<'a>,
    err: Box<dyn Write + 'a>,
    log: Option<Output<'a>>,
    stop: Option<StopFlag>,
    follower: Follower,
    /// When to show progress next.
    next_shown: Duration,
    /// Whether it was shown that data has begun to move.
    has_begun: bool,
    /// The number of requests of each end that was told last, and why it is that number.
    matching_told: [Option<(u32, Why)>; 2],
    has_status_line: bool,
    /// Whether something is written in the line below the cursor.
    has_line_below: bool,
    /// Whether the user was told that the other end has not answered yet.
    is_wait_told: bool,
    issues: IssueCount,
    differences: Differences,
    changes: Changes,
    /// A directory that `lads check` was to compare and that the sink does not have.
    missing_root: Option<Vec<u8>>,
}

/// The numbers of issues.
#[derive(Debug, Default)]
struct IssueCount {
    shown: u64,
    hidden: u64,
    /// The number of entries that failed.
    failed: u64,
    /// The number of devices, FIFOs and sockets that were left out; these are not failures.
    special: u64,
    /// How many of the failed entries failed because the sink has no space, or because something
    /// else has their name there.
    sink_full: u64,
    in_the_way: u64,
}

/// The time from the beginning of an attempt until progress is shown.
fn first_shown(settings: &Settings) -> Duration {
    match settings.meters {
        Meters::Plain { interval } => interval,
        _ => Duration::ZERO,
    }
}

impl<'a> Display<'a> {
    /// Makes a display that writes to stdout and stderr, or to writers in their place.
    pub(crate) fn new(
        settings: Settings,
        places: Places,
        out: Box<dyn Write + 'a>,
        err: Box<dyn Write + 'a>,
    ) -> Self {
        let next_shown = first_shown(&settings);
        Self {
            settings,
            places,
            out: Output::new(out),
            err,
            log: None,
            stop: None,
            follower: Follower::default(),
            next_shown,
            has_begun: false,
            matching_told: [None; 2],
            has_status_line: false,
            has_line_below: false,
            is_wait_told: false,
            issues: IssueCount::default(),
            differences: Differences::default(),
            changes: Changes::default(),
            missing_root: None,
        }
    }

    /// Writes failed entries to this file as well.
    pub(crate) fn log_to(&mut self, log: Box<dyn Write + 'a>) {
        self.log = Some(Output::new(log));
    }

    /// Sets the flag if nobody reads stdout any more, because a dry run is useless then.
    pub(crate) fn stop_without_reader(&mut self, stop: StopFlag) {
        self.stop = Some(stop);
    }

    /// Shows what is going to be done.
    pub(crate) fn start(&mut self) {
        if self.settings.is_json {
            let event = json::start(&self.places, &self.settings);
            self.out.line(&event);
        }
    }

    /// Shows how the transfer ended. Returns the exit code.
    pub(crate) fn finish(&mut self, report: &Report) -> u8 {
        self.erase_status();
        if let Some(notice) = self.missing_root.take().map(|it| self.places.not_compared(&it)) {
            self.on_notice(&notice);
        }
        self.show_reduced(report);
        if self.settings.is_json {
            let event = json::summary(report, &self.settings, &self.places, &self.differences);
            self.out.line(&event);
        } else {
            self.summarize(report);
        }
        self.out.flush();
        if let Some(log) = &mut self.log {
            log.flush();
        }
        let errors = [self.log.as_ref(), Some(&self.out)].into_iter().flatten();
        let lost =
            errors.filter_map(|output| output.error.as_ref()).map(ToString::to_string).next();
        let Some(error) = lost else { return report.exit_code as u8 };
        self.tell(&format!("lads: cannot write the output or the log: {error}"));
        let code =
            if report.exit_code == ExitCode::Ok { ExitCode::Other } else { report.exit_code };
        code as u8
    }

    /// Shows the kinds of metadata that entries did not get. Without privileges, owners are the
    /// rule, so they are shown only on request.
    fn show_reduced(&mut self, report: &Report) {
        for described in report.progress.reductions().map(reduced::Described::new) {
            let kind = described.kind;
            let is_shown = kind.is_loss()
                || !self.settings.is_quiet
                    && (kind != Reduction::Owner || self.settings.detail == Detail::Everything);
            if self.settings.is_json {
                self.out.line(&json::reduced(&described));
            } else if is_shown {
                described.lines(self.settings.style).iter().for_each(|line| self.tell(line));
            }
        }
    }

    fn summarize(&mut self, report: &Report) {
        if self.issues.hidden > 0 {
            let line = summary::hidden_issues(self.issues.hidden, self.settings.log.as_deref());
            self.tell(&line);
        }
        let (issues, differences, changes) = (&self.issues, &self.differences, &self.changes);
        let counted = summary::Counted { issues, differences, changes };
        let lines = summary::lines(report, &self.settings, &self.places, counted);
        for line in lines {
            self.tell(&line);
        }
    }

    fn on_progress(&mut self, progress: &Progress) {
        let shown = self.follower.take(progress);
        // Lines and issues are flushed at least this often.
        self.out.flush();
        // A program that wants to know how fast data moves must know when it began to move.
        self.tell_matching(progress);
        let begins = self.settings.is_json && !self.has_begun && progress.source.bytes_sent > 0;
        self.has_begun |= begins;
        if progress.elapsed < self.next_shown && !begins {
            return;
        }
        let interval = match self.settings.meters {
            _ if self.settings.is_json => {
                self.out.line(&json::progress(progress, &shown.figures));
                self.out.flush();
                EVENT_INTERVAL
            }
            Meters::None => return,
            Meters::Redrawn { columns } => {
                // The last column is left free: a terminal may wrap after it.
                let line = shown.line(columns().saturating_sub(1));
                self.tell_status(&line);
                REDRAW_INTERVAL
            }
            Meters::Plain { interval } => {
                self.tell(&format!("lads: {}", shown.line(usize::MAX)));
                interval
            }
        };
        self.next_shown = progress.elapsed + interval;
    }

    /// Only a program gets this while it happens; a person sees it at the end.
    fn tell_matching(&mut self, progress: &Progress) {
        if !self.settings.is_json {
            return;
        }
        let ends = [(Side::Source, &progress.source), (Side::Sink, &progress.sink)];
        for ((side, counters), told) in ends.into_iter().zip(&mut self.matching_told) {
            let Some(requests) = &counters.requests else { continue };
            let what = (requests.limit, requests.why);
            if told.replace(what) != Some(what) {
                self.out.line(&json::matching(progress.elapsed, side, requests));
            }
        }
    }

    /// Only a program gets this; a person sees the busiest OST at the end.
    fn on_ost_bytes(&mut self, side: Side, bytes: &OstBytes) {
        if self.settings.is_json {
            self.out.line(&json::ost_bytes(side, bytes));
        }
    }

    fn on_issue(&mut self, issue: &Issue) {
        let described = issue::describe(issue, &self.places);
        if self.settings.is_json || self.log.is_some() {
            let event = json::issue(issue, &described, &self.places);
            if let Some(log) = &mut self.log {
                log.line(&event);
            }
            if self.settings.is_json {
                return self.out.line(&event);
            }
        }
        let is_special = issue.failure.reason == Reason::Special;
        self.issues.special += u64::from(is_special);
        self.issues.failed += u64::from(!is_special);
        self.issues.sink_full += u64::from(issue.failure.is_sink_full());
        self.issues.in_the_way += u64::from(issue.failure.reason == Reason::InTheWay);
        if is_special && self.settings.is_quiet {
            return;
        }
        if self.issues.shown == ISSUES_SHOWN_MAX {
            self.issues.hidden += 1;
            return;
        }
        self.issues.shown += 1;
        for line in described.lines(self.settings.style) {
            self.tell(&line);
        }
    }

    /// Shows a notice, from the transfer or about the command line.
    pub(crate) fn on_notice(&mut self, text: &str) {
        if self.settings.is_json {
            self.out.line(&json::notice(text));
        } else if !self.settings.is_quiet {
            self.tell(&format!("lads: {}", style::indented(&message(text))));
        }
    }

    /// The other end has not answered yet. On a terminal this is shown below the cursor: ssh may
    /// ask for a password at the cursor, and its question must not be overwritten.
    fn on_waiting(&mut self, waiting: &Waiting) {
        if self.settings.is_quiet {
            return;
        }
        let text = progress::waiting(waiting);
        match self.settings.meters {
            Meters::Redrawn { columns } if !self.settings.is_json => {
                let line: String = text.chars().take(columns().saturating_sub(1)).collect();
                self.tell_below(&line);
            }
            _ if !self.is_wait_told => self.on_notice(&text),
            _ => {}
        }
        self.is_wait_told = true;
    }

    /// What was counted of the attempt before is counted again.
    fn on_retry(&mut self, retry: &Retry) {
        if self.settings.is_json {
            self.out.line(&json::retry(retry));
        } else if !self.settings.is_quiet {
            let Retry { attempt, message: reason, wait } = retry;
            let (reason, wait) = (style::indented(&message(reason)), sizes::span(*wait));
            self.tell(&format!("lads: {reason}"));
            if !retry.wait.is_zero() {
                self.tell(&format!("lads: attempt {attempt} starts in {wait}"));
            }
        }
        self.out.flush();
        (self.issues, self.differences) = (IssueCount::default(), Differences::default());
        (self.changes, self.missing_root) = (Changes::default(), None);
        (self.follower, self.is_wait_told) = (Follower::default(), false);
        (self.next_shown, self.has_begun) = (first_shown(&self.settings), false);
        self.matching_told = [None; 2];
    }

    fn on_line(&mut self, line: Line) {
        self.differences.count(line.verb);
        self.changes.count(&line);
        if line.verb == Verb::OnlyAtSource && self.places.is_named_directory(&line.path) {
            self.missing_root = Some(line.path.clone());
        }
        let line = Line { path: self.places.below_target(line.path), ..line };
        if self.settings.is_json {
            return self.out.line(&json::line(&line));
        }
        if !self.settings.is_quiet {
            self.erase_status();
            if !self.out.is_used {
                self.out.line(&line::target(&self.places, self.settings.is_check));
            }
            self.out.line(&line::text(&line));
        }
    }

    /// Writes one line to stderr. Flushes stdout first, because both may go to the same place. If
    /// the write fails, there is no way to report it.
    fn tell(&mut self, line: &str) {
        self.out.flush();
        self.erase_status();
        let _ = writeln!(self.err, "{line}");
    }

    fn tell_status(&mut self, line: &str) {
        if self.has_line_below {
            self.erase_status();
        }
        self.has_status_line = true;
        // ESC [ K erases the rest of an earlier, longer line.
        let _ = write!(self.err, "\r{line}\x1b[K").and_then(|()| self.err.flush());
    }

    /// Writes a line below that of the cursor, which stays where it is.
    fn tell_below(&mut self, line: &str) {
        self.has_line_below = true;
        // ESC D and ESC [ A go down a line and up again, so that there is one below; ESC 7 and
        // ESC 8 keep the place of the cursor meanwhile.
        let _ = write!(self.err, "\x1bD\x1b[A\x1b7\r\n{line}\x1b[J\x1b8")
            .and_then(|()| self.err.flush());
    }

    fn erase_status(&mut self) {
        if std::mem::take(&mut self.has_line_below) {
            // Everything after the cursor: if the user has typed a line, the text is one line below
            // now.
            let _ = write!(self.err, "\x1b[J").and_then(|()| self.err.flush());
        }
        if std::mem::take(&mut self.has_status_line) {
            let _ = write!(self.err, "\r\x1b[K").and_then(|()| self.err.flush());
        }
    }
}

impl Observer for Display<'_> {
    fn on(&mut self, happening: Happening) {
        match happening {
            Happening::Progress(progress) => self.on_progress(&progress),
            Happening::OstBytes(side, bytes) => self.on_ost_bytes(side, &bytes),
            Happening::Renamed => self.places.is_renamed = true,
            Happening::Line(line) => self.on_line(line),
            Happening::Issue(issue) => self.on_issue(&issue),
            Happening::Notice(text) => self.on_notice(&text),
            Happening::Waiting(waiting) => self.on_waiting(&waiting),
            Happening::Retry(retry) => self.on_retry(&retry),
        }
        if self.out.has_no_reader
            && let Some(stop) = self.stop.take()
        {
            stop.set("the output was closed");
        }
    }
}

/// Reports to a program that the command did not start.
pub(crate) fn tell_refusal(out: &mut dyn Write, code: ExitCode, message: &str) {
    // The message is also on stderr. A program that does not read stdout has the exit code.
    let _ = writeln!(out, "{}", json::refusal(code, message));
}

/// A writer for lines that must not get lost without a message.
struct Output<'a> {
    to: Box<dyn Write + 'a>,
    is_used: bool,
    /// The reader has gone, as `head` has after ten lines. This is no error, but there is no use in
    /// going on.
    has_no_reader: bool,
    error: Option<io::Error>,
}

impl<'a> Output<'a> {
    fn new(to: Box<dyn Write + 'a>) -> Self {
        Self { to, is_used: false, has_no_reader: false, error: None }
    }

    fn line(&mut self, line: &str) {
        self.is_used = true;
        if !self.is_lost() {
            let outcome = writeln!(self.to, "{line}");
            self.record(outcome);
        }
    }

    /// Writes out all lines. An output that is closed is no error if no line was written to it.
    fn flush(&mut self) {
        if self.is_used && !self.is_lost() {
            let outcome = self.to.flush();
            self.record(outcome);
        }
    }

    fn is_lost(&self) -> bool {
        self.has_no_reader || self.error.is_some()
    }

    fn record(&mut self, outcome: io::Result<()>) {
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.has_no_reader = true,
            outcome => self.error = outcome.err(),
        }
    }
}

#[cfg(test)]
mod tests;
