//! The figures as heat maps on one page that needs no other file.

use super::table::{megabytes, request, rows};
use super::{Group, groups};
use lads_core::mode::{Direction, Figure, best};
use lads_engine::BenchReport;
use lads_plot::escaped;
use std::fmt::Write as _;

const STYLE: &str = "\
:root { color-scheme: light dark; --cold: #f4f6fb; --hot: #2f6fd0; --ink: #1c2330; }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: Canvas;
  max-width: 1180px; margin: 2em auto; padding: 0 1em; }
@media (prefers-color-scheme: dark) {
  :root { --cold: #1b2130; --hot: #4d8df0; --ink: #e6e9ef; } }
h1, h2 { font-weight: 600; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1.5em; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; font-weight: 600; padding-bottom: .4em; }
th { font-weight: 400; padding: .3em .6em; text-align: right; }
td { padding: .5em .6em; text-align: right; font-variant-numeric: tabular-nums;
  background: color-mix(in srgb, var(--hot) var(--heat), var(--cold)); }
td.best { outline: 2px solid var(--ink); outline-offset: -2px; font-weight: 600; }
dt { font-weight: 600; } dd { margin: 0 0 .4em 0; }
";

/// Returns the page.
pub(super) fn of(title: &str, report: &BenchReport) -> String {
    let best = [Direction::Read, Direction::Write].map(|it| best(&report.figures, it));
    let maps: String = groups(report).iter().map(|group| map(group, best)).collect();
    let mut list = String::new();
    for (title, text) in best.into_iter().flatten().flat_map(|it| rows(report, it)) {
        if !title.is_empty() {
            let _ = write!(list, "<dt>{title}</dt>");
        }
        let _ = writeln!(list, "<dd>{}</dd>", escaped(&text));
    }
    let notices: String =
        report.notices.iter().map(|it| format!("<p>{}</p>\n", escaped(it))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Modes of storage</title>\n<style>\n{STYLE}</style></head>\n\
         <body>\n<h1>{}</h1>\n<dl>\n{list}</dl>\n{notices}\
         <div class=\"maps\">\n{maps}</div>\n</body></html>\n",
        escaped(title)
    )
}

/// One heat map. Its fastest mode has the full colour.
fn map(group: &Group<'_>, best: [Option<&Figure>; 2]) -> String {
    let highest = group.figures.iter().filter_map(|it| it.median()).fold(0.0, f64::max);
    let threads = group.thread_counts();
    let head: String = threads.iter().map(|it| format!("<th scope=\"col\">{it}</th>")).collect();
    let mut out = format!(
        "<table><caption>{}: MB/s, by size of request and number of threads</caption>\n\
         <tr><th></th>{head}</tr>\n",
        group.title
    );
    for request_bytes in group.request_bytes() {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", request(request_bytes));
        for &thread_count in &threads {
            let figure = group.figure(request_bytes, thread_count);
            let is_best = best.into_iter().flatten().any(|it| Some(it) == figure);
            let class = if is_best { " class=\"best\"" } else { "" };
            let rate = figure.and_then(Figure::median);
            let heat = rate.map_or(0.0, |it| 100.0 * it / highest);
            let text = rate.map_or_else(|| "–".to_owned(), megabytes);
            let _ = write!(out, "<td{class} style=\"--heat: {heat:.0}%\">{text}</td>");
        }
        out.push_str("</tr>\n");
    }
    out + "</table>\n"
}
