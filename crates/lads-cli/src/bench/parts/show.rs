//! The parts and the verdict, as a table or as JSON.

use super::{Figure, Findings, Part, Verdict, part_name};
use crate::args::BenchArgs;
use crate::display::{PathText, escape_text};
use anyhow::Result;
use lads_core::sizes;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// The length of the longest bar.
const BAR_COLUMNS: u8 = 32;

/// Below this share of its slowest part, a transfer is held up by something that no part alone
/// shows. The median of three runs differs by some per cent from run to run; half of the distance
/// to 1 would be within that.
const SHARE_GOOD: f64 = 0.9;
/// Above this share, the figures contradict each other by more than that.
const SHARE_MUCH: f64 = 1.1;

/// Writes what was found, as the user asked for it.
pub(super) fn write(args: &BenchArgs, findings: &Findings, out: &mut dyn Write) -> Result<()> {
    let verdict = findings.verdict();
    if args.json {
        writeln!(out, "{}", object(args, findings, &verdict))?;
    } else {
        let paths: Vec<_> =
            args.paths.iter().map(|it| escape_text(&it.to_string_lossy())).collect();
        writeln!(out, "{}: measured for {}\n", paths.join(" to "), sizes::span(findings.elapsed))?;
        for line in table(findings).into_iter().chain([String::new()]).chain(words(&verdict)) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out.flush()?)
}

/// A line for each part: its median, its least and most, and a bar.
fn table(findings: &Findings) -> Vec<String> {
    let most = findings.figures.iter().map(Figure::median).fold(0.0, f64::max);
    let row = |figure: &Figure| {
        let spread = format!("[{} to {}]", sizes::rate(figure.least()), sizes::rate(figure.most()));
        let filled = f64::from(BAR_COLUMNS) * figure.median() / most;
        let columns = (1..=BAR_COLUMNS).filter(|&it| f64::from(it) <= filled + 0.5).count();
        let (name, rate) = (part_name(figure.part), sizes::rate(figure.median()));
        format!("{name:<15}{rate:>10}  {spread:<27}{}", "█".repeat(columns.max(1)))
    };
    findings.figures.iter().map(row).collect()
}

/// What the figures mean.
fn words(verdict: &Verdict) -> Vec<String> {
    let name = |part: Part| match part {
        Part::Read => "reading",
        Part::Network => "the network",
        Part::Write => "writing",
        Part::Together => "all",
    };
    let first = if verdict.rivals.is_empty() {
        let next = verdict.headroom;
        format!(
            "limits    {}: the next part alone is {next:.1} times as fast",
            name(verdict.slowest)
        )
    } else {
        let parts: Vec<_> =
            [verdict.slowest].iter().chain(&verdict.rivals).map(|it| name(*it)).collect();
        format!("limits    {}: the measurements vary too much to tell which", parts.join(" or "))
    };
    let percent = (100.0 * verdict.share).round();
    let mut lines = vec![first, format!("together  {percent} % of what that part reaches alone")];
    let why: &[&str] = match verdict.share {
        ..SHARE_GOOD => &[
            "the parts slow each other down: they share processors, memory or storage,",
            "or round trips are too long for so little data",
        ],
        SHARE_MUCH.. => &["rates vary from run to run: use a longer --time"],
        _ => &[],
    };
    lines.extend(why.iter().map(|line| format!("          {line}")));
    lines
}

#[derive(Serialize)]
struct Object {
    version: u32,
    source: PathText,
    target: PathText,
    elapsed_seconds: f64,
    parts: Vec<Row>,
    limits: &'static str,
    may_limit_too: Vec<&'static str>,
    headroom: f64,
    share: f64,
}

#[derive(Serialize)]
struct Row {
    part: &'static str,
    /// The median.
    bytes_per_second: f64,
    bytes_per_second_each: Vec<f64>,
}

fn object(args: &BenchArgs, findings: &Findings, verdict: &Verdict) -> String {
    let row = |figure: &Figure| Row {
        part: figure.part.word(),
        bytes_per_second: figure.median().round(),
        bytes_per_second_each: figure.rates.iter().map(|rate| rate.round()).collect(),
    };
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let path = |index: usize| PathText::new(args.paths[index].as_os_str().as_bytes());
    let object = Object {
        version: 1,
        source: path(0),
        target: path(1),
        elapsed_seconds: rounded(findings.elapsed.as_secs_f64()),
        parts: findings.figures.iter().map(row).collect(),
        limits: verdict.slowest.word(),
        may_limit_too: verdict.rivals.iter().map(|it| it.word()).collect(),
        headroom: rounded(verdict.headroom),
        share: rounded(verdict.share),
    };
    serde_json::to_string(&object).expect("it has nothing that JSON cannot hold")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_person_sees_rates_bars_and_what_limits() {
        let rates = [[800e6, 812e6, 790e6], [118e6, 117e6, 118e6], [402e6; 3], [90e6; 3]];
        let figures = Part::ALL.into_iter().zip(rates);
        let figures = figures.map(|(part, rates)| Figure { part, rates: rates.to_vec() });
        let findings = Findings { figures: figures.collect(), elapsed: Duration::ZERO };
        let lines = [table(&findings), words(&findings.verdict())].concat().join("\n");
        expect_test::expect![[r#"
            read alone       800 MB/s  [790 MB/s to 812 MB/s]     ████████████████████████████████
            network alone    118 MB/s  [117 MB/s to 118 MB/s]     █████
            write alone      402 MB/s  [402 MB/s to 402 MB/s]     ████████████████
            all together    90.0 MB/s  [90.0 MB/s to 90.0 MB/s]   ████
            limits    the network: the next part alone is 3.4 times as fast
            together  76 % of what that part reaches alone
                      the parts slow each other down: they share processors, memory or storage,
                      or round trips are too long for so little data"#]]
        .assert_eq(&lines);
    }
}
