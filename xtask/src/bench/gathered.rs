//! Gathers the tables of all benchmarks into one page, if they are all from the same commit. A
//! summary of the ratios of LADS to its rivals is the first table. `docs/benchmarks.md` is written
//! from this page.
//!
//! Figures from two commits cannot be compared with each other, and figures from a tree with
//! uncommitted changes cannot be measured again. So there is no page for either.

use super::summary::summary;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The file that the tables are written to, below the directory of the benchmarks.
const PAGE: &str = "tables.md";

/// The text above the summary.
const SUMMARY: &str = "Time of each rival divided by the time of LADS with default options: above \
                       1, LADS is faster. A range covers all stages of a scenario. Each rival has \
                       the options with which it is fastest in a stage.";

/// Gathers what these benchmarks have kept in a directory, writes the page there, and prints its
/// path.
pub(super) fn run(directory: &Path, names: &[&str]) -> Result<()> {
    let mut kept = BTreeMap::new();
    for &name in names {
        let path = directory.join(format!("{name}.json"));
        if let Ok(text) = fs::read_to_string(&path) {
            let value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            kept.insert(name, value);
        }
    }
    let page = gathered(names, &kept)?;
    let path = directory.join(PAGE);
    fs::write(&path, page).with_context(|| path.display().to_string())?;
    println!("kept in {}", path.display());
    Ok(())
}

/// Returns a page with the summary and all tables, in the order of the names.
fn gathered(names: &[&str], kept: &BTreeMap<&str, Value>) -> Result<String> {
    let commit = the_commit(kept)?;
    let mut page = format!("All of commit {commit}.\n");
    if let Some(summary) = summary(names, kept) {
        let _ = write!(page, "\n## Summary\n\n{SUMMARY}\n\n{summary}");
    }
    let mut seconds = 0.0;
    for name in names {
        let Some(value) = kept.get(name) else { continue };
        let took = value["took_seconds"].as_f64().context("its duration is missing")?;
        seconds += took;
        let _ = write!(page, "\n## {name}\n\n{}\n", text_of(&value["said"], "said")?);
        for table in value["markdown"].as_array().context("no tables")? {
            let _ = write!(page, "\n{}", text_of(table, "a table")?);
        }
        let _ = write!(page, "\nThis took {took:.0} s.\n");
    }
    let _ = write!(page, "\nAll together took {:.0} minutes.\n", seconds / 60.0);
    for name in names.iter().filter(|name| !kept.contains_key(*name)) {
        let _ = writeln!(page, "Not measured: {name}.");
    }
    Ok(page)
}

/// The commit that all tables are from.
fn the_commit(kept: &BTreeMap<&str, Value>) -> Result<String> {
    let mut names_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (&name, value) in kept {
        let commit = value["machine"]["commit"].as_str().context("no commit")?;
        names_of.entry(commit).or_default().push(name);
    }
    let all: Vec<String> =
        names_of.iter().map(|(commit, names)| format!("{}: {commit}", names.join(", "))).collect();
    match all.len() {
        0 => bail!("there are no results yet"),
        1 => {}
        _ => bail!(
            "the results are of several commits:\n  {}\nmeasure some of them again",
            all.join("\n  ")
        ),
    }
    let commit = names_of.keys().next().expect("one, as was just seen");
    if commit.contains(' ') {
        bail!("measured with uncommitted changes: {commit}");
    }
    Ok((*commit).to_owned())
}

fn text_of<'a>(value: &'a Value, what: &str) -> Result<&'a str> {
    value
        .as_str()
        .with_context(|| format!("{what} is not text: the results are older than this field"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(commit: &str, table: &str) -> Value {
        let machine = json!({ "commit": commit });
        json!({ "machine": machine, "said": "here", "markdown": [table], "took_seconds": 90.0 })
    }

    /// A kept race of LADS and a rival.
    fn race(commit: &str) -> Value {
        let row =
            |mover, median| json!({ "mover": mover, "elapsed_seconds": { "median": median } });
        let mut kept = of(commit, "| r |\n");
        kept["tables"] = json!([{ "rows": [row("lads", 2.0), row("cp -r", 3.0)] }]);
        kept
    }

    fn said(kept: &[(&'static str, Value)]) -> Result<String, String> {
        let kept = kept.iter().cloned().collect();
        gathered(&["big", "small", "fig7"], &kept).map_err(|error| error.to_string())
    }

    #[test]
    fn tables_of_one_commit_make_a_page_that_says_what_is_missing() {
        let page = said(&[("small", of("abc", "| s |\n")), ("big", of("abc", "| b |\n"))]).unwrap();
        let expected = "All of commit abc.\n\n## big\n\nhere\n\n| b |\n\nThis took 90 s.\n\n\
                        ## small\n\nhere\n\n| s |\n\nThis took 90 s.\n\n\
                        All together took 3 minutes.\nNot measured: fig7.\n";
        assert_eq!(page, expected);
    }

    #[test]
    fn ratios_to_rivals_are_the_first_table() {
        let page = said(&[("big", race("abc"))]).unwrap();
        let expected = format!(
            "All of commit abc.\n\n## Summary\n\n{SUMMARY}\n\n\
             | scenario | `cargo xtask bench` | cp |\n\
             |---|---|---|\n| big | `big` | 1.50 |\n\n## big\n"
        );
        assert!(page.starts_with(&expected), "{page}");
    }

    #[test]
    fn tables_of_two_commits_or_of_none_make_no_page() {
        let two = said(&[("small", of("abc", "")), ("big", of("def", ""))]).unwrap_err();
        assert_eq!(
            two,
            "the results are of several commits:\n  small: abc\n  big: def\nmeasure some of them again"
        );
        let changed = said(&[("big", of("abc with changes", ""))]).unwrap_err();
        assert!(changed.contains("uncommitted changes"), "{changed}");
        assert_eq!(said(&[]).unwrap_err(), "there are no results yet");
    }

    #[test]
    fn what_was_kept_in_another_way_is_refused() {
        let old = json!({ "machine": { "commit": "abc" }, "tables": [] });
        assert!(said(&[("big", old)]).is_err());
    }
}
