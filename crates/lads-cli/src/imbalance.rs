//! `lads imbalance`: shows how unevenly storage targets were used, from the records of a collector.
//!
//! The analysis is in [`lads_core::imbalance`]. Here samples are read ([`read`]), and the results
//! are shown as tables, as JSON and as a page with plots.

mod json;
mod moment;
mod page;
mod read;
mod table;

use crate::args::ImbalanceArgs;
use crate::complain;
use crate::display::escape_text;
use anyhow::{Context, Result, ensure};
use lads_core::imbalance::{Analysis, Sampling, Series, Threshold, Values};
use lads_core::sizes;
use lads_sys::Standard;
use read::{Parts, Reading};
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

/// The analysis of one series.
struct Finding {
    /// The name of the file, and the side in it.
    name: String,
    series: Series,
    analysis: Analysis,
}

/// Analyses all files and shows the results.
pub(crate) fn run(args: &ImbalanceArgs) -> Result<()> {
    let findings = findings(args)?;
    if let Some(path) = &args.html {
        let page = page::of(&findings);
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.svg {
        let picture = page::picture_of(&findings);
        fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = io::stdout().lock();
    for (index, finding) in findings.iter().enumerate() {
        if args.json {
            writeln!(out, "{}", json::object(finding))?;
        } else {
            if index > 0 {
                writeln!(out)?;
            }
            table::write(finding, &mut out)?;
        }
    }
    Ok(())
}

fn findings(args: &ImbalanceArgs) -> Result<Vec<Finding>> {
    let values = if args.sums { Values::Sums } else { Values::Rates };
    let sampling = Sampling { values, every_seconds: args.every };
    let reading = Reading { sampling, unit: args.unit.bytes() };
    let count = if args.join { args.files.len() } else { 1 };
    let mut findings = Vec::new();
    for files in args.files.chunks(count) {
        let mut parts = Parts::new(reading);
        for file in files {
            read_file(file, &mut parts).with_context(|| name(file))?;
        }
        let found = analyse(&joined_name(files), parts, &args.above)?;
        findings.extend(found);
    }
    Ok(findings)
}

fn read_file(path: &Path, parts: &mut Parts) -> Result<()> {
    if path == Path::new("-") {
        ensure!(!Standard::Input.was_closed(), "it is closed");
        return parts.read(io::stdin().lock());
    }
    let file = File::open(path).context("cannot be opened")?;
    parts.read(BufReader::with_capacity(1 << 20, file))
}

/// Analyses all series of a file. A series with nothing to compare is an error only if no other has
/// anything; otherwise it is just reported.
fn analyse(name: &str, parts: Parts, above: &[Threshold]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut lone = Vec::new();
    for part in parts.into_parts() {
        let name = match &part.side {
            Some(side) => format!("{name}, {side}"),
            None => name.to_owned(),
        };
        match Analysis::of(&part.series, above) {
            Some(analysis) => findings.push(Finding { name, series: part.series, analysis }),
            None => lone.push(format!("{name}: {}", nothing_of(&part.series))),
        }
    }
    let found = !findings.is_empty();
    ensure!(found || !lone.is_empty(), "{name}: no samples; is it a log of `lads cp --json`?");
    ensure!(found, "{}", lone.join("; "));
    lone.iter().for_each(|told| complain(told));
    Ok(findings)
}

/// Returns why a series has no usable moment.
fn nothing_of(series: &Series) -> String {
    let targets = series.targets().count();
    if targets < 2 {
        let targets = sizes::counted(targets as u64, "target");
        return format!("{targets}: there is nothing to compare");
    }
    match series.lone_count() {
        0 => "too few samples for a rate: --sums needs two".to_owned(),
        lone => format!(
            "{} with a value of only one target, none with more: gather samples with --every",
            sizes::counted(lone, "moment")
        ),
    }
}

fn joined_name(files: &[PathBuf]) -> String {
    match files {
        [] => String::new(),
        [file] => name(file),
        [first, .., last] => {
            format!("{} to {} ({} files)", name(first), name(last), files.len())
        }
    }
}

fn name(file: &Path) -> String {
    match file == Path::new("-") {
        true => "stdin".to_owned(),
        false => escape_text(&file.to_string_lossy()),
    }
}

#[cfg(test)]
mod tests;
