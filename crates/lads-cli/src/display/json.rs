//! The output for another program: events, each a line of JSON. `docs/json.md` describes them and
//! `docs/lads-events.schema.json` defines them. Within a version, keys are only added.

use super::Settings;
use super::differences::Differences;
use super::errno::named;
use super::issue::Described;
use super::line::verb;
use super::place::Places;
use super::reduced;
use super::summary::mean_rate;
use lads_core::bottleneck::Bottleneck;
use lads_core::issue::{Issue, Operation, Reason, Side};
use lads_core::matching::Why;
use lads_core::message::{Counters, Line, OstBytes};
use lads_core::pool::{Io, Requests};
use lads_core::progress::Figures;
use lads_core::protection::{DataLevel, Protection};
use lads_engine::{ExitCode, Location, Progress, Report, Retry, Verify};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

const VERSION: u32 = 1;

#[derive(Serialize)]
struct Event<T> {
    version: u32,
    event: &'static str,
    #[serde(flatten)]
    body: T,
}

fn event<T: Serialize>(event: &'static str, body: T) -> String {
    let event = Event { version: VERSION, event, body };
    serde_json::to_string(&event).expect("all keys are strings, and no number is infinite")
}

/// A path, with its bytes in hexadecimal if it is not valid UTF-8.
#[derive(Serialize)]
pub(crate) struct PathText {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl PathText {
    pub(crate) fn new(path: &[u8]) -> Self {
        let path_hex = std::str::from_utf8(path).is_err().then(|| {
            path.iter().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").expect("a String takes everything");
                hex
            })
        });
        Self { path: String::from_utf8_lossy(path).into_owned(), path_hex }
    }
}

#[derive(Serialize)]
struct PlaceText {
    host: Option<String>,
    #[serde(flatten)]
    path: PathText,
}

impl PlaceText {
    fn new(location: &Location) -> Self {
        Self { host: location.host.clone(), path: PathText::new(&location.path) }
    }
}

/// The event that says what is going to be done.
pub(super) fn start(places: &Places, settings: &Settings) -> String {
    #[derive(Serialize)]
    struct Start {
        software: &'static str,
        sources: Vec<PlaceText>,
        target: PlaceText,
        is_dry_run: bool,
        is_check: bool,
    }
    event(
        "start",
        Start {
            software: concat!("lads ", env!("CARGO_PKG_VERSION")),
            sources: places.sources.iter().map(PlaceText::new).collect(),
            target: PlaceText::new(&places.target),
            is_dry_run: settings.is_dry_run,
            is_check: settings.is_check,
        },
    )
}

#[derive(Serialize)]
struct Sums {
    elapsed_seconds: f64,
    is_walk_ended: bool,
    directories_found: u64,
    files_found: u64,
    files_moved: u64,
    files_skipped: u64,
    files_unread: u64,
    files_compared: u64,
    files_failed: u64,
    files_newer: u64,
    files_existing: u64,
    files_missing: u64,
    files_by_size: u64,
    entries_deleted: u64,
    bytes_found: u64,
    bytes_done: u64,
    bytes_skipped: u64,
    bytes_unread: u64,
    bytes_compared: u64,
    bytes_sent: u64,
    blocks_sent: u64,
    blocks_resent: u64,
    bytes_staged: u64,
    bytes_per_second: f64,
    bottleneck: Option<&'static str>,
}

impl Sums {
    fn new(progress: &Progress, bytes_per_second: f64) -> Self {
        let source = &progress.source;
        Self {
            elapsed_seconds: rounded(progress.elapsed.as_secs_f64()),
            is_walk_ended: source.is_walk_ended,
            directories_found: source.directories_found,
            files_found: source.files_found,
            files_moved: source.files_moved,
            files_skipped: source.files_skipped,
            files_unread: source.files_unread,
            files_compared: source.files_compared,
            files_failed: source.files_failed,
            files_newer: source.passed.newer,
            files_existing: source.passed.there,
            files_missing: source.passed.missing,
            files_by_size: source.passed.size,
            entries_deleted: source.entries_removed.max(progress.sink.entries_removed),
            bytes_found: source.bytes_found,
            bytes_done: source.bytes_done,
            bytes_skipped: source.bytes_skipped,
            bytes_unread: source.bytes_unread,
            bytes_compared: source.bytes_compared,
            bytes_sent: source.bytes_sent,
            blocks_sent: source.blocks_sent,
            blocks_resent: source.blocks_resent.max(progress.sink.blocks_resent),
            bytes_staged: source.bytes_staged + progress.sink.bytes_staged,
            bytes_per_second: bytes_per_second.round(),
            bottleneck: progress.bottleneck.map(bottleneck),
        }
    }
}

/// Rounds to milliseconds, which is exact enough.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

fn bottleneck(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::SourceStorage => "source-storage",
        Bottleneck::SourceCpu => "source-cpu",
        Bottleneck::Network => "network",
        Bottleneck::SinkCpu => "sink-cpu",
        Bottleneck::SinkStorage => "sink-storage",
        Bottleneck::Limit => "limit",
        Bottleneck::CpuLimit => "cpu-limit",
    }
}

/// The event that shows progress. If sums went back, it shows the earlier ones.
pub(super) fn progress(progress: &Progress, figures: &Figures) -> String {
    #[derive(Serialize)]
    struct Shown {
        #[serde(flatten)]
        sums: Sums,
        bytes_written: u64,
        percent: Option<u64>,
        remaining_seconds: Option<f64>,
    }
    let sums = Sums {
        bytes_done: figures.bytes_done,
        bytes_found: figures.bytes_found,
        files_found: figures.files_found,
        ..Sums::new(progress, figures.bytes_per_second)
    };
    let remaining_seconds = figures.remaining.map(|remaining| rounded(remaining.as_secs_f64()));
    let Figures { bytes_written, percent, .. } = *figures;
    event("progress", Shown { sums, bytes_written, percent, remaining_seconds })
}

/// The event that shows what the OSTs of one end have done so far.
pub(super) fn ost_bytes(side: Side, osts: &OstBytes) -> String {
    #[derive(Serialize)]
    struct Told<'a> {
        elapsed_seconds: f64,
        side: &'static str,
        bytes: &'a [u64],
    }
    let elapsed_seconds = osts.elapsed_micros as f64 / 1e6;
    event("osts", Told { elapsed_seconds, side: side.word(), bytes: &osts.bytes })
}

/// The event that shows what is, or would be, done with a path.
pub(super) fn line(line: &Line) -> String {
    #[derive(Serialize)]
    struct Done {
        verb: &'static str,
        #[serde(flatten)]
        path: PathText,
        bytes: u64,
    }
    let path = PathText::new(&line.path);
    let kind = if line.verb.is_difference() { "difference" } else { "line" };
    event(kind, Done { verb: verb(line.verb), path, bytes: line.bytes })
}

/// The event for an entry that failed.
pub(super) fn issue(issue: &Issue, described: &Described, places: &Places) -> String {
    #[derive(Serialize)]
    struct Failed<'a> {
        is_failure: bool,
        side: &'static str,
        host: Option<&'a str>,
        #[serde(flatten)]
        path: PathText,
        operation: &'static str,
        reason: &'static str,
        errno: Option<i32>,
        errno_name: Option<&'static str>,
        block_offset: Option<u64>,
        block_bytes: Option<u32>,
        ost: Option<u32>,
        message: &'a str,
        advice: &'a str,
    }
    let failure = &issue.failure;
    let errno = if let Reason::Os(errno) = failure.reason { Some(errno) } else { None };
    event(
        "issue",
        Failed {
            is_failure: described.is_failure,
            side: failure.side.word(),
            host: places.host(failure.side),
            path: PathText::new(&places.path(failure.side, &issue.path)),
            operation: operation(failure.operation),
            reason: reason(failure.reason),
            errno,
            errno_name: errno.and_then(lads_core::errno::name),
            block_offset: failure.block.map(|(offset, _)| offset),
            block_bytes: failure.block.map(|(_, length)| length),
            ost: failure.ost.map(|ost| ost.0),
            message: &described.message,
            advice: &described.advice,
        },
    )
}

fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Examine => "examine",
        Operation::List => "list",
        Operation::Open => "open",
        Operation::Read => "read",
        Operation::Create => "create",
        Operation::Write => "write",
        Operation::Sync => "sync",
        Operation::SetMetadata => "set-metadata",
        Operation::Rename => "rename",
        Operation::Verify => "verify",
        Operation::Journal => "journal",
        Operation::Preallocate => "preallocate",
        Operation::Remove => "remove",
        Operation::Link => "link",
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Os(_) => "os",
        Reason::Changed => "changed",
        Reason::Vanished => "vanished",
        Reason::Checksum => "checksum",
        Reason::Media => "media",
        Reason::Special => "special",
        Reason::InTheWay => "in-the-way",
        Reason::ParentFailed => "parent-failed",
        Reason::UnsafeName => "unsafe-name",
        Reason::Archived => "archived",
        Reason::LargeMetadata => "large-metadata",
        Reason::TooDeep => "too-deep",
        Reason::Limit => "limit",
        Reason::ManyNames => "many-names",
        Reason::Dangling => "dangling",
        Reason::Loop => "loop",
        Reason::SameFile => "same-file",
    }
}

/// The event for a kind of metadata that entries did not get.
pub(super) fn reduced(described: &reduced::Described) -> String {
    #[derive(Serialize)]
    struct Reduced<'a> {
        kind: &'static str,
        entries: u64,
        is_loss: bool,
        message: &'a str,
        advice: &'a str,
    }
    let reduced::Described { kind, entries, message, advice } = described;
    let (word, is_loss) = (reduced::word(*kind), kind.is_loss());
    event("reduced", Reduced { kind: word, entries: *entries, is_loss, message, advice })
}

/// The event for a notice.
pub(super) fn notice(text: &str) -> String {
    #[derive(Serialize)]
    struct Notice {
        text: String,
    }
    event("notice", Notice { text: named(text) })
}

#[derive(Serialize)]
struct End<'a> {
    cpu_seconds: f64,
    memory_bytes_peak: u64,
    storage_seconds: f64,
    network_seconds: f64,
    streams: u32,
    busiest_ost: Option<BusiestOst<'a>>,
    matching: Option<Matching>,
}

/// What the requests of an end to its storage are like.
#[derive(Serialize)]
struct Matching {
    in_flight: u32,
    in_flight_max: u32,
    files: u32,
    request_bytes: u64,
    io: &'static str,
    reason: &'static str,
    gain: f64,
}

impl Matching {
    fn new(requests: &Requests) -> Self {
        let reason = match requests.why {
            Why::Fixed => "fixed",
            Why::Guess => "guess",
            Why::Less => "less",
            Why::More => "more",
        };
        Self {
            in_flight: requests.in_flight,
            in_flight_max: requests.limit,
            files: requests.files,
            request_bytes: requests.request_bytes,
            io: io(requests.io),
            reason,
            gain: f64::from(requests.gain_per_mille) / 1000.0,
        }
    }
}

/// The word for how bytes go to and from storage.
pub(super) fn io(io: Io) -> &'static str {
    match io {
        Io::Buffered => "buffered",
        Io::Direct => "direct",
        Io::Uncached => "uncached",
        Io::Absent => "none",
    }
}

/// The event that says that an end has another number of requests in flight, and why.
pub(super) fn matching(elapsed: Duration, side: Side, requests: &Requests) -> String {
    #[derive(Serialize)]
    struct Told {
        elapsed_seconds: f64,
        side: &'static str,
        #[serde(flatten)]
        matching: Matching,
    }
    let elapsed_seconds = rounded(elapsed.as_secs_f64());
    let matching = Matching::new(requests);
    event("matching", Told { elapsed_seconds, side: side.word(), matching })
}

#[derive(Serialize)]
struct BusiestOst<'a> {
    name: &'a str,
    busy_seconds: f64,
    bytes: u64,
}

impl<'a> End<'a> {
    fn new(counters: &'a Counters) -> Self {
        let seconds = |micros: u64| rounded(micros as f64 / 1e6);
        Self {
            cpu_seconds: seconds(counters.cpu_micros),
            memory_bytes_peak: counters.memory_bytes_peak,
            storage_seconds: seconds(counters.storage_micros),
            network_seconds: seconds(counters.network_micros),
            streams: counters.stream_count,
            busiest_ost: counters.busiest_ost.as_ref().map(|ost| BusiestOst {
                name: &ost.name,
                busy_seconds: seconds(ost.busy_micros),
                bytes: ost.bytes,
            }),
            matching: counters.requests.as_ref().map(Matching::new),
        }
    }
}

/// The event that says that another attempt follows.
pub(super) fn retry(retry: &Retry) -> String {
    #[derive(Serialize)]
    struct Again {
        attempt: u32,
        message: String,
        wait_seconds: f64,
    }
    let Retry { attempt, message, wait } = retry;
    let wait_seconds = rounded(wait.as_secs_f64());
    event("retry", Again { attempt: *attempt, message: named(message), wait_seconds })
}

/// The event that shows how the transfer ended.
pub(super) fn summary(
    report: &Report,
    settings: &Settings,
    places: &Places,
    differences: &Differences,
) -> String {
    let verified = match settings.verify {
        _ if report.progress.source.files_verified == 0 => "none",
        Some(Verify::Wire) => "wire",
        Some(Verify::Media) => "media",
        None => "none",
    };
    let protection = match report.protection.map(Protection::level) {
        Some(DataLevel::Plain) => "none",
        Some(level) => level.name(),
        None if places.has_remote() => "ssh",
        None => "local",
    };
    let differences = settings.is_check.then(|| differences.sum());
    summary_of(report, verified, protection, differences)
}

/// Returns the summary of a command that did not start.
pub(super) fn refusal(exit_code: ExitCode, message: &str) -> String {
    let report = Report {
        exit_code,
        message: Some(message.to_owned()),
        progress: Progress::default(),
        issue_count: 0,
        protection: None,
        is_port_blocked: false,
        attempt_count: 1,
    };
    summary_of(&report, "none", "local", None)
}

fn summary_of(
    report: &Report,
    verified: &'static str,
    protection: &'static str,
    difference_count: Option<u64>,
) -> String {
    #[derive(Serialize)]
    struct Summary<'a> {
        exit_code: u8,
        outcome: &'static str,
        message: Option<String>,
        #[serde(flatten)]
        sums: Sums,
        issue_count: u64,
        reduced: BTreeMap<&'static str, u64>,
        attempts: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        difference_count: Option<u64>,
        verified: &'static str,
        is_clear: bool,
        is_port_blocked: bool,
        data_protection: &'static str,
        source: End<'a>,
        sink: End<'a>,
    }
    event(
        "summary",
        Summary {
            exit_code: report.exit_code as u8,
            outcome: outcome(report.exit_code),
            message: report.message.as_deref().map(named),
            sums: Sums::new(&report.progress, mean_rate(report)),
            issue_count: report.issue_count,
            reduced: report.progress.reductions().map(|(it, n)| (reduced::word(it), n)).collect(),
            attempts: report.attempt_count,
            difference_count,
            verified,
            is_clear: report.protection.is_some_and(|it| it.level() < DataLevel::Encrypted),
            is_port_blocked: report.is_port_blocked,
            data_protection: protection,
            source: End::new(&report.progress.source),
            sink: End::new(&report.progress.sink),
        },
    )
}

fn outcome(code: ExitCode) -> &'static str {
    match code {
        ExitCode::Ok => "ok",
        ExitCode::Other => "other",
        ExitCode::Usage => "usage",
        ExitCode::SourceUnreadable => "source-unreadable",
        ExitCode::Refused => "refused",
        ExitCode::Network => "network",
        ExitCode::SinkRefuses => "sink-refuses",
        ExitCode::Mismatch => "mismatch",
        ExitCode::SourceChanged => "source-changed",
        ExitCode::Interrupted => "interrupted",
        ExitCode::Limit => "limit",
        ExitCode::Different => "different",
        ExitCode::Running => "running",
        ExitCode::Reduced => "reduced",
    }
}

#[cfg(test)]
mod tests;
