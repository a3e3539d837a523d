//! The page that shows a scenario: one file that needs no network, with a light and a dark theme.

use super::contest::Standing;
use super::paper::Paper;
use super::scenario::Scenario;
use super::{Held, machine_text};
use crate::bench::machine::Machine;
use lads_plot::escaped;
use lads_plot::groups::{Plot, Spread};
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub(super) fn page(
    scenario: &Scenario,
    machine: &Machine,
    held: &[Held],
    plots: &[(Plot, Option<Paper>)],
) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n\
         <style>{STYLE}</style>\n<h1>{0}</h1>\n<p>{1}</p>\n<p class=\"soft\">{2}</p>\n",
        escaped(&format!("{}: {}", scenario.name, scenario.title)),
        escaped(scenario.about),
        escaped(&machine_text(machine))
    );
    pictures(plots, &mut out);
    for stage in held {
        stage_text(stage, &mut out);
    }
    out.push_str(
        "<p class=\"soft\">The share is that of the fluid bound: the minimum time for a fluid at \
         the rates that both file systems and the network had during that run, divided by the \
         measured time. Times end when every byte is on an OST of the sink. Foreign CPU is that of \
         all other processes on the machine, including the file systems.</p>\n",
    );
    out
}

/// Puts each of our plots next to the paper's plot. Consecutive plots of ours without one share a
/// row.
fn pictures(plots: &[(Plot, Option<Paper>)], out: &mut String) {
    for row in plots.chunk_by(|left, right| left.1.is_none() && right.1.is_none()) {
        out.push_str("<div class=\"pair\">");
        for (ours, paper) in row {
            let svg = ours.svg();
            let _ = write!(
                out,
                "<figure>{svg}<figcaption>Here. Medians; whiskers are minimum and \
                 maximum.</figcaption></figure>"
            );
            if let Some(paper) = paper {
                let (svg, source) = (paper.plot.svg(), escaped(paper.source));
                let _ = write!(out, "<figure>{svg}<figcaption>{source}</figcaption></figure>");
            }
        }
        out.push_str("</div>\n");
    }
}

fn stage_text(stage: &Held, out: &mut String) {
    let _ = write!(
        out,
        "<h2>{}</h2>\n<p class=\"soft\">{}</p>\n",
        escaped(&stage.name),
        escaped(&stage.settings)
    );
    out.push_str(
        "<div class=\"scroll\"><table><tr><th>mover</th><th>seconds [min to max]</th>\
         <th>MB/s</th><th>share of bound</th><th>CPU s</th></tr>\n",
    );
    for standing in &stage.standings {
        let _ = writeln!(out, "<tr>{}</tr>", standing_cells(standing));
    }
    out.push_str("</table></div>\n");
    for missing in &stage.missing {
        let _ = writeln!(out, "<p class=\"soft\">{}</p>", escaped(missing));
    }
    out.push_str("<details><summary>every run</summary><div class=\"scroll\"><table>\n");
    raw_rows(&stage.standings, out);
    out.push_str("</table></div></details>\n");
}

fn standing_cells(standing: &Standing) -> String {
    let name = escaped(&super::name_of(standing));
    if let Some(failure) = &standing.failure {
        return format!(
            "<td>{name}</td><td class=\"no\" colspan=\"4\">no figure: {}</td>",
            escaped(failure)
        );
    }
    let figures = |index: usize| Spread::of(standing.each(|row| row.figures()[index]).into_iter());
    let [seconds, rate, share] = [0, 1, 2].map(figures);
    let cpu = Spread::of(standing.each(super::contest::Row::cpu_seconds).into_iter());
    format!(
        "<td>{name}</td><td>{:.2} [{:.2} to {:.2}]</td><td>{:.0}</td><td>{:.0} %</td><td>{:.2}</td>",
        seconds.median,
        seconds.min,
        seconds.max,
        rate.median / 1e6,
        share.median * 100.0,
        cpu.median
    )
}

/// Every run with all numbers that were kept.
fn raw_rows(standings: &[Standing], out: &mut String) {
    let rows: Vec<serde_json::Value> = standings
        .iter()
        .flat_map(|standing| &standing.rows)
        .map(|row| serde_json::to_value(row).expect("numbers and words"))
        .collect();
    let Some(serde_json::Value::Object(first)) = rows.first() else { return };
    let keys: Vec<&String> = first.keys().collect();
    let heads: Vec<String> = keys.iter().map(|key| format!("<th>{key}</th>")).collect();
    let _ = writeln!(out, "<tr>{}</tr>", heads.concat());
    for row in &rows {
        let cells = keys.iter().map(|key| format!("<td>{}</td>", cell(&row[key.as_str()])));
        let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
    }
}

fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            if number.abs() >= 1e4 { format!("{number:.0}") } else { format!("{number:.3}") }
        }
        serde_json::Value::String(text) => escaped(text),
        other => escaped(&other.to_string().replace('"', "")),
    }
}
