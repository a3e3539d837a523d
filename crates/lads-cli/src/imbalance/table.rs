//! The tables for people.

use super::Finding;
use lads_core::imbalance::{Distribution, Imbalance, Threshold};
use lads_core::sizes;
use std::io::{self, Write};
use std::time::Duration;

/// The percentiles shown of bandwidth.
const PERCENTILES: [f64; 5] = [5.0, 50.0, 80.0, 95.0, 99.0];
/// The percentiles shown of times.
const TIME_PERCENTILES: [f64; 3] = [50.0, 90.0, 99.0];
/// If there are more targets than this, they are only counted.
const TARGETS_MAX: usize = 16;

const LABEL_COLUMNS: usize = 24;
const VALUE_COLUMNS: usize = 11;
/// As wide as `20 % of mean` and two blanks.
const THRESHOLD_COLUMNS: usize = 14;

/// Writes the analysis.
pub(super) fn write(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {}", finding.name, heading(finding))?;
    for note in notes(finding) {
        writeln!(out, "  {note}")?;
    }
    write_bandwidth(finding, out)?;
    write_imbalances(finding, out)?;
    write_bands(finding, out)?;
    write_targets(finding, out)
}

/// `24 targets, 43,200 moments, one in 2.0 s, over 24 h 00 min`.
pub(super) fn heading(finding: &Finding) -> String {
    let (series, analysis) = (&finding.series, &finding.analysis);
    let targets = sizes::counted(series.targets().count() as u64, "target");
    let moments = sizes::counted(series.moments().len() as u64, "moment");
    let (interval, all) = (time(analysis.interval_seconds), time(analysis.seconds));
    format!("{targets}, {moments}, one in {interval}, {all} in all")
}

/// Returns what was left out of the analysis.
pub(super) fn notes(finding: &Finding) -> Vec<String> {
    let (lone, resets) = (finding.series.lone_count(), finding.series.reset_count());
    let lone = (lone > 0).then(|| {
        let moments = sizes::counted(lone, "moment");
        format!("skipped: {moments} with a value of only one target")
    });
    let resets = (resets > 0).then(|| {
        let values = sizes::counted(resets, "value");
        format!("skipped: {values} after a reset of a counter")
    });
    lone.into_iter().chain(resets).collect()
}

fn write_bandwidth(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let analysis = &finding.analysis;
    let titles = PERCENTILES.map(|percent| format!("{percent} %")).into_iter();
    let titles = titles.chain(["mean", "max"].map(str::to_owned));
    write_row("\nAt each moment", titles, out)?;
    for (label, distribution) in [
        ("minimum of targets", &analysis.minimum),
        ("mean of targets", &analysis.mean),
        ("maximum of targets", &analysis.maximum),
        ("deviation", &analysis.deviation),
    ] {
        let values = PERCENTILES.map(|percent| distribution.percentile(percent)).into_iter();
        let values = values.chain([distribution.mean(), distribution.maximum()]);
        write_row(label, values.map(sizes::rate), out)?;
    }
    let it = &analysis.relative_deviation;
    let values = PERCENTILES.map(|percent| it.percentile(percent)).into_iter();
    let values = values.chain([it.mean(), it.maximum()]);
    write_row("deviation / mean", values.map(percent), out)
}

fn write_imbalances(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let imbalances = &finding.analysis.imbalances;
    if imbalances.is_empty() {
        return Ok(());
    }
    let row = |label: &str, of: &dyn Fn(&Imbalance) -> String, out: &mut dyn Write| {
        write_wide_row(label, imbalances.iter().map(of), THRESHOLD_COLUMNS, out)
    };
    row("\nImbalance, above", &|it| threshold(it.threshold), out)?;
    if imbalances.iter().any(|it| matches!(it.threshold, Threshold::Percentile(_))) {
        let rate = |it: &Imbalance| it.rate.map_or_else(|| "-".to_owned(), sizes::rate);
        row("a deviation of", &rate, out)?;
    }
    row("share of the time", &|it| percent(it.share), out)?;
    row("periods", &|it| sizes::count(it.lifetimes.count() as u64), out)?;
    for percent in TIME_PERCENTILES {
        row(&format!("lifetime, {percent} %"), &|it| time_at(&it.lifetimes, percent), out)?;
    }
    row("lifetime, longest", &|it| time_at(&it.lifetimes, 100.0), out)?;
    for percent in TIME_PERCENTILES {
        row(&format!("distance, {percent} %"), &|it| time_at(&it.distances, percent), out)?;
    }
    row("distance, longest", &|it| time_at(&it.distances, 100.0), out)
}

fn write_bands(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let titles = ["moments", "50 %", "95 %", "max"].map(str::to_owned);
    write_row("\nDeviation while mean is", titles.into_iter(), out)?;
    for band in &finding.analysis.bands {
        let label = format!("{} to {}", sizes::rate(band.from), sizes::rate(band.to));
        let deviation = &band.deviation;
        let count = sizes::count(deviation.count() as u64);
        let values = [50.0, 95.0, 100.0].map(|it| sizes::rate(deviation.percentile(it)));
        write_row(&label, std::iter::once(count).chain(values), out)?;
    }
    match finding.analysis.correlation {
        Some(correlation) => {
            writeln!(out, "  correlation of mean and deviation: {correlation:.2}")
        }
        None => Ok(()),
    }
}

fn write_targets(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let mut targets: Vec<_> = finding.series.targets().collect();
    targets.sort_by(|a, b| b.1.total_cmp(&a.1));
    write_row("\nTargets, by mean", ["mean", "max"].map(str::to_owned).into_iter(), out)?;
    for (name, mean, most) in targets.iter().take(TARGETS_MAX) {
        let name = crate::display::escape_text(name);
        write_row(&name, [sizes::rate(*mean), sizes::rate(*most)].into_iter(), out)?;
    }
    match targets.len().saturating_sub(TARGETS_MAX) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more (--json has all)"),
    }
}

/// Describes the threshold of imbalance: `20 % of mean`, `50.0 MB/s`, `p80`.
pub(super) fn threshold(threshold: Threshold) -> String {
    match threshold {
        // The share comes from a division; rounding restores a round percentage.
        Threshold::OfMean(share) => format!("{} % of mean", (share * 1e6).round() / 1e4),
        Threshold::Rate(rate) => sizes::rate(rate),
        Threshold::Percentile(percentile) => format!("p{percentile}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn write_row(
    label: &str,
    values: impl Iterator<Item = String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write_wide_row(label, values, VALUE_COLUMNS, out)
}

/// Writes a row. A title begins with a line break, and is indented less than its rows.
fn write_wide_row(
    label: &str,
    values: impl Iterator<Item = String>,
    columns: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (indent, label) = match label.strip_prefix('\n') {
        Some(title) => ("\n", format!("{title:<0$}", LABEL_COLUMNS + 2)),
        None => ("  ", format!("{label:<LABEL_COLUMNS$}")),
    };
    let values: String = values.map(|value| format!("{value:>columns$}")).collect();
    writeln!(out, "{indent}{label}{values}")
}

fn time_at(distribution: &Distribution, percent: f64) -> String {
    match distribution.count() {
        0 => "-".to_owned(),
        _ => time(distribution.percentile(percent)),
    }
}

/// Formats seconds for people; the result of a subtraction may not be a valid time.
pub(super) fn time(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "-".to_owned(), sizes::span)
}
