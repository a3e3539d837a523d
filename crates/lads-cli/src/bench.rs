//! `lads bench`: shows how fast storage is in which mode, as tables, as JSON and as a page with
//! heat maps. With two paths, it is about the parts of a transfer ([`parts`]).

mod json;
mod page;
mod parts;
mod table;

use crate::args::{BenchArgs, only_for_one_path};
use crate::display::escape_text;
use crate::progress_line::ProgressLine;
use crate::{code_of_printing, complain, front, parsed};
use anyhow::{Context, Result};
use clap::ArgMatches;
use lads_core::mode::{Caching, Direction, Figure};
use lads_core::sizes;
use lads_engine::{BenchConfig, BenchError, BenchReport, ExitCode, StopFlag, bench};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// How long storage is measured, and how long the file is at most, if nothing is said.
const TIME: Duration = Duration::from_secs(60);
const SIZE_BYTES: u64 = 1 << 30;

/// Measures storage, or the parts of a transfer.
pub(crate) fn run(matches: &ArgMatches) -> std::process::ExitCode {
    let args: BenchArgs = parsed(matches);
    let meaningless = only_for_one_path(matches);
    match (args.paths.len(), meaningless.first()) {
        (1, _) if args.options.is_empty() => measure_storage(&args),
        (1, _) => refuse("options of lads cp are for lads bench SRC DST"),
        (_, Some(name)) => refuse(&format!("--{name} is for lads bench PATH, not for SRC and DST")),
        _ => parts::run(&args),
    }
}

fn refuse(text: &str) -> std::process::ExitCode {
    complain(text);
    std::process::ExitCode::from(ExitCode::Usage as u8)
}

fn measure_storage(args: &BenchArgs) -> std::process::ExitCode {
    front::run(|stop| match measure(args, stop) {
        Ok(report) => code_of_printing(show(args, &report), ExitCode::Other),
        Err(error) => {
            complain(&error.to_string());
            let code = match error {
                BenchError::Stopped(_) => ExitCode::Interrupted,
                BenchError::NoRoom { .. } | BenchError::Failed { .. } => ExitCode::SinkRefuses,
                BenchError::NoThread(_) => ExitCode::Other,
            };
            code as u8
        }
    })
}

fn measure(args: &BenchArgs, stop: &StopFlag) -> Result<BenchReport, BenchError> {
    let config = BenchConfig {
        directory: args.paths[0].as_os_str().as_bytes().to_vec(),
        size_bytes: args.size.unwrap_or(SIZE_BYTES),
        time: args.time.unwrap_or(TIME),
        request_bytes: sorted(&args.requests),
        thread_counts: sorted(&args.threads),
    };
    let mut line = ProgressLine::new(args.quiet);
    bench(&config, stop, &mut |done, all| {
        line.show(done == all, || format!("{done} of {all} measurements"));
    })
}

/// In order, each value once.
fn sorted<T: Ord + Copy>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

fn show(args: &BenchArgs, report: &BenchReport) -> Result<()> {
    if let Some(path) = &args.html {
        let page = page::of(&title(args, report), report);
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", json::object(&args.paths[0], report))?;
    } else {
        writeln!(out, "{}\n", title(args, report))?;
        table::write(report, &mut out)?;
    }
    Ok(out.flush()?)
}

fn title(args: &BenchArgs, report: &BenchReport) -> String {
    format!(
        "{}: a file of {}, measured for {}",
        escape_text(&args.paths[0].to_string_lossy()),
        sizes::bytes(report.size_bytes),
        sizes::span(report.elapsed)
    )
}

/// The modes of a table: one direction, one way.
struct Group<'a> {
    title: &'static str,
    figures: Vec<&'a Figure>,
}

/// Reading and writing, past the page cache and through it, as far as there are figures.
fn groups(report: &BenchReport) -> Vec<Group<'_>> {
    let all = [
        ("reading, bypassing the page cache", Direction::Read, Caching::Direct),
        ("reading, through the page cache", Direction::Read, Caching::Buffered),
        ("writing, bypassing the page cache", Direction::Write, Caching::Direct),
        ("writing, through the page cache", Direction::Write, Caching::Buffered),
    ];
    let group = |(title, direction, caching)| {
        let is_in = |it: &&Figure| it.mode.direction == direction && it.mode.caching == caching;
        Group { title, figures: report.figures.iter().filter(is_in).collect() }
    };
    all.into_iter().map(group).filter(|group| !group.figures.is_empty()).collect()
}

impl Group<'_> {
    fn request_bytes(&self) -> Vec<u32> {
        sorted(&self.figures.iter().map(|it| it.mode.request_bytes).collect::<Vec<_>>())
    }

    fn thread_counts(&self) -> Vec<u16> {
        sorted(&self.figures.iter().map(|it| it.mode.thread_count).collect::<Vec<_>>())
    }

    fn figure(&self, request_bytes: u32, thread_count: u16) -> Option<&Figure> {
        let is_it = |it: &&&Figure| {
            it.mode.request_bytes == request_bytes && it.mode.thread_count == thread_count
        };
        self.figures.iter().find(is_it).copied()
    }
}
