//! Compares LADS with its rivals in one table, from the kept tables of all benchmarks.
//!
//! Each benchmark that has rivals is one row. A ratio is the median time of a rival divided by the
//! median time of LADS with default options, both of the same stage. A rival that ran with several
//! sets of options counts with the fastest one.

use lads_plot::groups::Spread;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The names of LADS with default options.
const LADS: [&str; 3] = ["lads", "lads check", "LADS"];

/// The rivals in the order of their columns. Other programs follow by name.
const RIVALS: [&str; 7] = ["bare program", "as WDT does", "cp", "rsync", "GridFTP", "scp", "diff"];

/// The medians of one contest, in seconds, by the name of the mover.
type Contest = Vec<(String, f64)>;

/// The smallest and the greatest ratio of a rival over all stages of a benchmark.
type Ratios = BTreeMap<String, [f64; 2]>;

/// Returns the summary as markdown, in the order of the names; `None` if nothing is compared with
/// a rival.
pub(super) fn summary(names: &[&str], kept: &BTreeMap<&str, Value>) -> Option<String> {
    let rows: Vec<(&str, &str, Ratios)> = names
        .iter()
        .filter_map(|&name| {
            let value = kept.get(name)?;
            let ratios = ratios(&contests(value));
            let title = value["title"].as_str().unwrap_or(name);
            (!ratios.is_empty()).then_some((name, title, ratios))
        })
        .collect();
    let rivals = columns(rows.iter().map(|(.., ratios)| ratios));
    let mut text = format!("| scenario | `cargo xtask bench` | {} |\n", rivals.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(rivals.len() + 2));
    for (name, title, ratios) in &rows {
        let cells: Vec<String> = rivals.iter().map(|&rival| cell(ratios.get(rival))).collect();
        let _ = writeln!(text, "| {title} | `{name}` | {} |", cells.join(" | "));
    }
    (!rows.is_empty()).then_some(text)
}

/// All contests of a benchmark: its races on one machine, or its stages in the machine room.
fn contests(value: &Value) -> Vec<Contest> {
    let races = each(&value["tables"]).map(|table| {
        let median = |row: &Value| row["elapsed_seconds"]["median"].as_f64();
        let of = |row: &Value| Some((row["mover"].as_str()?.to_owned(), median(row)?));
        each(&table["rows"]).filter_map(of).collect()
    });
    let stages = each(&value["stages"]).map(|stage| {
        // LADS with varied options has a value at which it stands.
        let is_default = |standing: &&Value| standing["at"].is_null();
        each(&stage["standings"]).filter(is_default).filter_map(median_of_standing).collect()
    });
    races.chain(stages).collect()
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The name and the median of a mover; `None` if it failed.
fn median_of_standing(standing: &Value) -> Option<(String, f64)> {
    let rows = standing["rows"].as_array().filter(|rows| !rows.is_empty())?;
    let seconds = rows.iter().filter_map(|row| row["elapsed_seconds"].as_f64());
    Some((standing["line"].as_str()?.to_owned(), Spread::of(seconds).median))
}

fn ratios(contests: &[Contest]) -> Ratios {
    let mut ratios = Ratios::new();
    for contest in contests {
        let Some((_, lads)) = contest.iter().find(|(name, _)| LADS.contains(&name.as_str())) else {
            continue;
        };
        let mut fastest: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, seconds) in contest.iter().filter(|(name, _)| !is_lads(name)) {
            let own = fastest.entry(program(name)).or_insert(*seconds);
            *own = own.min(*seconds);
        }
        for (program, seconds) in fastest {
            let ratio = seconds / lads;
            let [min, max] = ratios.entry(program.to_owned()).or_insert([ratio; 2]);
            (*min, *max) = (min.min(ratio), max.max(ratio));
        }
    }
    ratios
}

fn is_lads(mover: &str) -> bool {
    program(mover).eq_ignore_ascii_case("lads")
}

/// The program that a mover runs: its name without options and without the number of copies.
fn program(mover: &str) -> &str {
    let one = mover.split_once(" × ").map_or(mover, |(_, program)| program);
    let is_own = |rival: &&&str| one.strip_prefix(**rival).is_some_and(|rest| !is_word(rest));
    let first = || one.split([' ', ',']).next().unwrap_or(one);
    RIVALS.iter().find(is_own).copied().unwrap_or_else(first)
}

fn is_word(rest: &str) -> bool {
    rest.starts_with(char::is_alphanumeric)
}

/// The rivals of all rows, in the order of the columns.
fn columns<'a>(rows: impl Iterator<Item = &'a Ratios>) -> Vec<&'a str> {
    let mut rivals: Vec<&str> = rows.flat_map(BTreeMap::keys).map(String::as_str).collect();
    let place = |rival: &str| RIVALS.iter().position(|own| *own == rival).unwrap_or(RIVALS.len());
    rivals.sort_by_key(|rival| (place(rival), *rival));
    rivals.dedup();
    rivals
}

fn cell(ratios: Option<&[f64; 2]>) -> String {
    let Some(&ratios) = ratios else { return String::new() };
    let [min, max] = ratios.map(|it| format!("{it:.*}", if it < 10.0 { 2 } else { 1 }));
    if min == max { min } else { format!("{min}–{max}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn race(rows: &[(&str, f64)]) -> Value {
        let row = |(name, median): &(&str, f64)| {
            let spread = json!({ "median": median });
            json!({ "mover": name, "elapsed_seconds": spread })
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        json!({ "rows": rows })
    }

    fn standing(line: &str, at: Option<&str>, seconds: &[f64]) -> Value {
        let rows: Vec<Value> = seconds.iter().map(|it| json!({ "elapsed_seconds": it })).collect();
        json!({ "line": line, "at": at, "rows": rows })
    }

    #[test]
    fn each_benchmark_with_rivals_is_a_row() {
        let big = race(&[("bare program", 0.9), ("lads", 1.0), ("rsync daemon -aW", 2.5)]);
        let journal = race(&[("lads --no-journal", 1.0), ("lads", 1.1)]);
        let first = json!({ "standings": [
            standing("LADS", None, &[2.0, 1.0, 9.0]),
            standing("LADS, --schedule file", Some("8"), &[0.5]),
            standing("8 × cp", None, &[3.0]),
            standing("128 × cp", None, &[1.7]),
            standing("GridFTP, two servers", None, &[30.0]),
        ]});
        let second = json!({ "standings": [
            standing("LADS", None, &[1.0]),
            standing("cp -r", None, &[2.0]),
            standing("scp -r", None, &[]),
            standing("wdt", None, &[4.0]),
        ]});
        let kept = BTreeMap::from([
            ("big", json!({ "title": "one file", "tables": [big] })),
            ("journal", json!({ "tables": [journal] })),
            ("sizes", json!({ "title": "many", "stages": [first, second] })),
        ]);
        let expected = "\
            | scenario | `cargo xtask bench` | bare program | cp | rsync | GridFTP | wdt |\n\
            |---|---|---|---|---|---|---|\n\
            | one file | `big` | 0.90 |  | 2.50 |  |  |\n\
            | many | `sizes` |  | 0.85–2.00 |  | 15.0 | 4.00 |\n";
        let text = summary(&["big", "journal", "sizes", "fig7"], &kept);
        assert_eq!(text.as_deref(), Some(expected));
    }

    #[test]
    fn nothing_is_compared_without_rivals_or_without_default_options() {
        let lads = race(&[("lads", 1.0), ("lads --no-journal", 1.0)]);
        let threads = json!({ "standings": [
            standing("LADS, --schedule layout", Some("8"), &[1.0]),
            standing("scp -r", None, &[2.0]),
        ]});
        let kept = BTreeMap::from([
            ("journal", json!({ "tables": [lads] })),
            ("fig7", json!({ "stages": [threads] })),
        ]);
        assert_eq!(summary(&["journal", "fig7"], &kept), None);
    }

    #[test]
    fn a_mover_is_counted_with_its_program() {
        let movers = ["bare program", "128 × cp", "cp -r (no network)", "rsync -a, one host"];
        assert_eq!(movers.map(program), ["bare program", "cp", "cp", "rsync"]);
        let movers = ["GridFTP, two servers, -pp -p 4 -cc 8", "scp -r, AES-GCM", "cpx -r"];
        assert_eq!(movers.map(program), ["GridFTP", "scp", "cpx"]);
    }
}
