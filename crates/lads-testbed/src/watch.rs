//! Shows what every OST of a source and of a sink is doing at the moment.
//!
//! Each OST has a line, with a bar for each side: its throughput against its rate, and how many
//! requests wait for it. An OST that is far slower than most of its siblings is marked. On a
//! terminal the picture is redrawn in place; otherwise a line is printed every second.

use crate::stats::{OstStats, Stats};
use anyhow::Result;
use clap::Args;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Show what each OST of a source and of a sink does, until a mount is gone
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Where the source is mounted
    #[arg(value_name = "SOURCE_MOUNT")]
    source: PathBuf,
    /// Where the sink is mounted
    #[arg(value_name = "SINK_MOUNT")]
    sink: PathBuf,
}

/// The interval on a terminal: five pictures per second are smooth enough.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// The interval elsewhere.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// An OST below this share of its siblings' median rate counts as congested.
const CONGESTED_SHARE: f64 = 0.75;

const BAR_COLUMNS: usize = 12;

/// Draws until a mount can no longer be read.
///
/// # Errors
/// If there is no emulated file system at one of the paths, or if the output cannot be written.
pub fn run(args: &WatchArgs) -> Result<ExitCode> {
    let read = || -> Result<[Stats; 2]> {
        Ok([
            Stats::read(&args.source.join(".pfs/stats"))?,
            Stats::read(&args.sink.join(".pfs/stats"))?,
        ])
    };
    let mut out = io::stdout();
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let redraws = out.is_terminal() && !is_dumb;
    let paint = if redraws && !is_set("NO_COLOR") { Paint::Colours } else { Paint::Plain };
    let mut before = read()?;
    let start = before[0].now_seconds;
    let mut drawn_lines = 0;
    loop {
        thread::sleep(if redraws { REDRAW_INTERVAL } else { LINE_INTERVAL });
        let Ok(now) = read() else { return Ok(ExitCode::SUCCESS) };
        let sides = [
            Side::of("source", &before[0], &now[0], |ost| ost.read_bytes),
            Side::of("sink", &before[1], &now[1], |ost| ost.written_bytes),
        ];
        if redraws {
            let picture = picture(&sides, paint);
            let up = if drawn_lines > 0 { format!("\x1b[{drawn_lines}A") } else { String::new() };
            drawn_lines = picture.lines().count();
            write!(out, "{up}{picture}")?;
        } else {
            writeln!(out, "{}", line(now[0].now_seconds - start, &sides))?;
        }
        out.flush()?;
        before = now;
    }
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paint {
    Colours,
    Plain,
}

/// What one end is doing.
#[derive(Debug)]
struct Side {
    name: &'static str,
    osts: Vec<Activity>,
}

/// What one OST is doing.
#[derive(Clone, Copy, Debug)]
struct Activity {
    bytes_per_second: f64,
    rate_bytes_per_second: Option<f64>,
    queued: u64,
    is_congested: bool,
}

impl Side {
    fn of(
        name: &'static str,
        before: &Stats,
        now: &Stats,
        bytes: impl Fn(&OstStats) -> u64,
    ) -> Self {
        let seconds = (now.now_seconds - before.now_seconds).max(1e-3);
        let usual = median(now.osts.iter().filter_map(|ost| ost.rate_bytes_per_second));
        let osts = now.osts.iter().zip(&before.osts).map(|(now, before)| Activity {
            bytes_per_second: bytes(now).saturating_sub(bytes(before)) as f64 / seconds,
            rate_bytes_per_second: now.rate_bytes_per_second,
            queued: now.queued,
            is_congested: now
                .rate_bytes_per_second
                .is_some_and(|rate| rate < usual * CONGESTED_SHARE),
        });
        Self { name, osts: osts.collect() }
    }

    fn bytes_per_second(&self) -> f64 {
        self.osts.iter().map(|ost| ost.bytes_per_second).sum()
    }
}

fn median(rates: impl Iterator<Item = f64>) -> f64 {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

/// Returns one line for each OST and one above them. Each ends with a line feed and erases what was
/// there before.
fn picture(sides: &[Side; 2], paint: Paint) -> String {
    let osts = sides.iter().flat_map(|side| &side.osts);
    let possible = osts.map(|ost| ost.rate_bytes_per_second.unwrap_or(ost.bytes_per_second));
    let full = possible.fold(0.0, f64::max);
    let count = sides.iter().map(|side| side.osts.len()).max().unwrap_or(0);
    let mut text = "      ".to_owned();
    for side in sides {
        let head = format!("{} {:.0} MB/s", side.name, side.bytes_per_second() / 1e6);
        let _ = write!(text, " {head:36}");
    }
    text.truncate(text.trim_end().len());
    text.push_str("\x1b[K\n");
    for index in 0..count {
        let _ = write!(text, "OST {index:2}");
        for side in sides {
            text.push(' ');
            match side.osts.get(index) {
                Some(ost) => text.push_str(&cell(ost, full, paint)),
                None => text.push_str(&" ".repeat(36)),
            }
        }
        text.push_str("\x1b[K\n");
    }
    text
}

/// Draws an OST of one side in 36 columns: `██████······  48.9/50.0 q  2 slow  `.
fn cell(ost: &Activity, full: f64, paint: Paint) -> String {
    let rate = ost.rate_bytes_per_second;
    let columns = |bytes: f64| {
        let share = if full > 0.0 { (bytes / full).clamp(0.0, 1.0) } else { 0.0 };
        let is_filled = |&column: &usize| (column as f64 + 0.5) / BAR_COLUMNS as f64 <= share;
        (0..BAR_COLUMNS).filter(is_filled).count()
    };
    let done = columns(ost.bytes_per_second);
    let possible = columns(rate.unwrap_or(full)).max(done);
    let bar = format!(
        "{}{}{}",
        "█".repeat(done),
        "░".repeat(possible - done),
        " ".repeat(BAR_COLUMNS - possible)
    );
    let limit = rate.map_or_else(|| "  any".to_owned(), |rate| format!("{:5.1}", rate / 1e6));
    let mark = if ost.is_congested { "slow" } else { "" };
    let now = ost.bytes_per_second / 1e6;
    let text = format!("{bar} {now:6.1}/{limit} q{:3} {mark:4} ", ost.queued);
    match paint {
        Paint::Colours if ost.is_congested => format!("\x1b[33m{text}\x1b[0m"),
        Paint::Colours => format!("\x1b[32m{bar}\x1b[0m{}", &text[bar.len()..]),
        Paint::Plain => text,
    }
}

/// Returns everything in one line, for an output where a picture cannot be redrawn.
fn line(seconds: f64, sides: &[Side; 2]) -> String {
    let mut text = format!("{seconds:5.1} s");
    for side in sides {
        let _ = write!(text, "  {} {:.0} MB/s", side.name, side.bytes_per_second() / 1e6);
        let congested: Vec<String> = side
            .osts
            .iter()
            .enumerate()
            .filter(|(_, ost)| ost.is_congested)
            .map(|(index, ost)| format!("OST {index} at {:.0} MB/s", ost.bytes_per_second / 1e6))
            .collect();
        if !congested.is_empty() {
            let _ = write!(text, " (slow: {})", congested.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system of four OSTs of 50 MB/s, the third slowed to 10, all busy.
    fn side(name: &'static str, moved: u64) -> Side {
        let at = |now_seconds: f64, moved: u64| Stats {
            now_seconds,
            osts: (0..4)
                .map(|ost| OstStats {
                    ost,
                    rate_bytes_per_second: Some(if ost == 2 { 10e6 } else { 50e6 }),
                    read_bytes: if ost == 2 { moved / 5 } else { moved },
                    queued: if ost == 2 { 7 } else { 1 },
                    ..OstStats::default()
                })
                .collect(),
            ..Stats::default()
        };
        Side::of(name, &at(10.0, 0), &at(11.0, moved), |ost| ost.read_bytes)
    }

    #[test]
    fn the_picture_shows_which_ost_is_slow() {
        let sides = [side("source", 50_000_000), side("sink", 25_000_000)];
        let picture = picture(&sides, Paint::Plain).replace("\x1b[K", "");
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!(lines[0], "       source 160 MB/s                      sink 80 MB/s");
        let quick =
            "OST  0 ████████████   50.0/ 50.0 q  1       ██████░░░░░░   25.0/ 50.0 q  1      ";
        let slow =
            "OST  2 ██             10.0/ 10.0 q  7 slow  █░              5.0/ 10.0 q  7 slow ";
        assert_eq!(lines[1], quick);
        assert_eq!(lines[3], slow);
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let sides = [side("source", 50_000_000), side("sink", 25_000_000)];
        let picture = picture(&sides, Paint::Plain).replace("\x1b[K", "");
        assert!(picture.lines().all(|line| line.chars().count() <= 80), "{picture}");
    }

    #[test]
    fn a_line_names_the_slow_osts() {
        let sides = [side("source", 50_000_000), side("sink", 25_000_000)];
        assert_eq!(
            line(3.0, &sides),
            "  3.0 s  source 160 MB/s (slow: OST 2 at 10 MB/s)  sink 80 MB/s (slow: OST 2 at 5 MB/s)"
        );
    }

    #[test]
    fn colours_change_no_letter() {
        let sides = [side("source", 50_000_000), side("sink", 25_000_000)];
        let mut coloured = picture(&sides, Paint::Colours);
        for code in ["\x1b[32m", "\x1b[33m", "\x1b[0m"] {
            coloured = coloured.replace(code, "");
        }
        assert_eq!(coloured, picture(&sides, Paint::Plain));
    }
}
