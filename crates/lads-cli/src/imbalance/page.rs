//! The page with plots, as one file that needs no others, for a browser or a mail; and the plots as
//! one picture.

use super::{Finding, table};
use lads_core::imbalance::{Distribution, Imbalance, Moment, Threshold};
use lads_plot::curves::{Axis, CELL, Layer, Plot, Quantity, STYLE};
use lads_plot::escaped;

/// The number of points of a curve: about as many as the columns to draw them in.
const CURVE_POINTS: usize = 400;
/// The most points of a cloud: more would hide each other.
const CLOUD_POINTS: usize = 4000;
/// A distribution is drawn on a logarithmic axis if its greatest value is between 30 and 10,000
/// times its median. With a larger ratio the median is practically zero, which a logarithmic axis
/// cannot show.
const HEAVY_TAIL: std::ops::Range<f64> = 30.0..10_000.0;

const PAGE_STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1c2330; background: #fff;
  max-width: 1180px; margin: 2em auto; padding: 0 1em; }
@media (prefers-color-scheme: dark) { body { color: #e6e9ef; background: #14181f; } }
h1, h2 { font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1.5em; }
pre { overflow-x: auto; font-size: 13px; }
svg { width: 100%; height: auto; }
";

/// The pixels between the plots of a picture, and around them.
const GAP: f64 = 24.0;
/// The number of plots side by side in a picture.
const COLUMNS: usize = 2;

/// Returns the plots of all series as a picture, one series below the other.
pub(super) fn picture_of(findings: &[Finding]) -> String {
    let plots: Vec<Plot<'_>> = findings.iter().flat_map(plots).collect();
    let size = |cells: usize, cell: f64| GAP + cells as f64 * (cell + GAP);
    let (width, height) = (size(COLUMNS, CELL.0), size(plots.len().div_ceil(COLUMNS), CELL.1));
    let at = |(index, plot): (usize, &Plot<'_>)| {
        plot.svg_at(size(index % COLUMNS, CELL.0), size(index / COLUMNS, CELL.1))
    };
    let plots: String = plots.iter().enumerate().map(at).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
         <style>\n{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n{plots}</svg>\n"
    )
}

/// Returns the page.
pub(super) fn of(findings: &[Finding]) -> String {
    let sections: String = findings.iter().map(section).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Imbalance of storage targets</title>\n\
         <style>\n{PAGE_STYLE}{STYLE}</style></head>\n\
         <body>\n<h1>Imbalance of storage targets</h1>\n{sections}</body></html>\n"
    )
}

fn section(finding: &Finding) -> String {
    let mut text = Vec::new();
    table::write(finding, &mut text).expect("a Vec takes everything");
    let text = String::from_utf8(text).expect("it was made of strings");
    let plots: String = plots(finding).iter().map(Plot::svg).collect();
    format!(
        "<h2>{}</h2>\n<p>{}</p>\n<div class=\"plots\">\n{plots}</div>\n\
         <details><summary>All figures</summary><pre>{}</pre></details>\n",
        escaped(&finding.name),
        escaped(&table::heading(finding)),
        escaped(&text)
    )
}

/// The figures of the paper, and what they are made from.
fn plots(finding: &Finding) -> Vec<Plot<'static>> {
    let moments = finding.series.moments();
    vec![over_time(moments), bandwidths(finding), deviations(finding), dispersion(finding)]
        .into_iter()
        .chain([lifetimes(finding), distances(finding)])
        .collect()
}

fn over_time(moments: &[Moment]) -> Plot<'static> {
    let begin = moments.first().map_or(0.0, |it| it.at);
    // Of the moments that fall on one column, the most uneven one is drawn, because it matters
    // most.
    let step = moments.len().div_ceil(CURVE_POINTS).max(1);
    let columns: Vec<&Moment> = moments
        .chunks(step)
        .filter_map(|it| it.iter().max_by(|a, b| a.deviation.total_cmp(&b.deviation)))
        .collect();
    let layer = |name: &str, of: fn(&Moment) -> f64| {
        line(name, columns.iter().map(|it| (it.at - begin, of(it))).collect())
    };
    Plot {
        title: "Bandwidth of targets over time",
        x: times("since the beginning", false),
        y: rates("bandwidth", false),
        layers: vec![
            layer("mean", |it| it.mean),
            layer("least", |it| it.minimum),
            layer("greatest", |it| it.maximum),
            layer("deviation", |it| it.deviation),
        ],
        marks: Vec::new(),
    }
}

fn bandwidths(finding: &Finding) -> Plot<'static> {
    let it = &finding.analysis;
    let is_heavy = has_heavy_tail(&it.mean);
    Plot {
        title: "Bandwidth of targets at each moment (figure 3a)",
        x: rates("bandwidth", is_heavy),
        y: shares(),
        layers: vec![
            curve("mean", &it.mean),
            curve("least", &it.minimum),
            curve("greatest", &it.maximum),
        ],
        marks: Vec::new(),
    }
}

fn deviations(finding: &Finding) -> Plot<'static> {
    let it = &finding.analysis;
    let mark = |it: &Imbalance| Some((it.rate?, table::threshold(it.threshold)));
    Plot {
        title: "Deviation across targets (figure 3b)",
        x: rates("instant standard deviation", has_heavy_tail(&it.deviation)),
        y: shares(),
        layers: vec![curve("deviation", &it.deviation)],
        marks: it.imbalances.iter().filter_map(mark).collect(),
    }
}

fn dispersion(finding: &Finding) -> Plot<'static> {
    let moments = finding.series.moments();
    let of_mean = &finding.analysis.mean;
    let range = [of_mean.percentile(0.0), of_mean.maximum()];
    let border = |it: &Imbalance| match it.threshold {
        Threshold::OfMean(share) => {
            let points = range.map(|mean| (mean, share * mean));
            Some(line(&table::threshold(it.threshold), points.into()))
        }
        Threshold::Rate(_) | Threshold::Percentile(_) => None,
    };
    let step = moments.len().div_ceil(CLOUD_POINTS).max(1);
    let points = moments.iter().step_by(step).map(|it| (it.mean, it.deviation)).collect();
    let cloud = Layer { name: "a moment".to_owned(), points, is_line: false };
    let borders = finding.analysis.imbalances.iter().filter_map(border);
    Plot {
        title: "Deviation against bandwidth (figure 3c)",
        x: rates("mean bandwidth of all targets", false),
        y: rates("deviation", false),
        layers: std::iter::once(cloud).chain(borders).collect(),
        marks: Vec::new(),
    }
}

fn lifetimes(finding: &Finding) -> Plot<'static> {
    of_periods(finding, "Lifetime of imbalance (figure 4a)", "lasts", |it| &it.lifetimes)
}

fn distances(finding: &Finding) -> Plot<'static> {
    let title = "Time between periods of imbalance (figure 4b)";
    of_periods(finding, title, "from the end of one to the next", |it| &it.distances)
}

fn of_periods(
    finding: &Finding,
    title: &'static str,
    label: &'static str,
    of: fn(&Imbalance) -> &Distribution,
) -> Plot<'static> {
    let imbalances = &finding.analysis.imbalances;
    let layer =
        |it: &Imbalance| curve(&format!("above {}", table::threshold(it.threshold)), of(it));
    Plot {
        title,
        x: times(label, imbalances.iter().any(|it| has_heavy_tail(of(it)))),
        y: shares(),
        layers: imbalances.iter().map(layer).collect(),
        marks: Vec::new(),
    }
}

/// Returns a cumulative curve, in steps from zero percent on.
fn curve(name: &str, distribution: &Distribution) -> Layer {
    let mut before = 0.0;
    let step = |(value, part)| [(value, std::mem::replace(&mut before, part)), (value, part)];
    line(name, distribution.curve(CURVE_POINTS).flat_map(step).collect())
}

fn line(name: &str, points: Vec<(f64, f64)>) -> Layer {
    Layer { name: name.to_owned(), points, is_line: true }
}

fn has_heavy_tail(distribution: &Distribution) -> bool {
    let median = distribution.percentile(50.0);
    median > 0.0 && HEAVY_TAIL.contains(&(distribution.maximum() / median))
}

fn rates(label: &'static str, is_logarithmic: bool) -> Axis<'static> {
    Axis { label, quantity: Quantity::Rate, is_logarithmic }
}

fn times(label: &'static str, is_logarithmic: bool) -> Axis<'static> {
    Axis { label, quantity: Quantity::Time, is_logarithmic }
}

fn shares() -> Axis<'static> {
    Axis { label: "not greater", quantity: Quantity::Share, is_logarithmic: false }
}
