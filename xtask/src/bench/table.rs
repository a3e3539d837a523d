//! Shows measurements: as rows for a program, and as a markdown table for people.

use super::race::Timing;
use crate::tree::Extent;
use lads_plot::groups::Spread;
use serde::Serialize;
use std::fmt;

/// One row: a mover and its results.
#[derive(Clone, Debug, Serialize)]
struct Row {
    mover: String,
    elapsed_seconds: Spread,
    cpu_seconds: Spread,
    foreign_cpu_seconds: Spread,
    bytes_per_second: f64,
    files_per_second: f64,
    /// How many times as long it took as the first row.
    times_first: f64,
}

/// A table of words, for results that are not from a race.
#[derive(Clone, Debug, Serialize)]
struct Words {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// One table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Table {
    title: String,
    files: u64,
    bytes: u64,
    rows: Vec<Row>,
    words: Option<Words>,
}

impl Table {
    /// The table of a race over a data set.
    pub(super) fn of_race(title: &str, extent: Extent, results: &[Timing]) -> Self {
        let first = results.first().map_or(1.0, |result| elapsed(result).median);
        let rows = results.iter().map(|result| row(extent, result, first)).collect();
        let Extent { files, bytes } = extent;
        Self { title: title.to_owned(), files, bytes, rows, words: None }
    }

    /// A table of words.
    pub(super) fn of_words(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Self {
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        let words = Some(Words { head, rows });
        Self { title: title.to_owned(), files: 0, bytes: 0, rows: Vec::new(), words }
    }
}

fn elapsed(result: &Timing) -> Spread {
    Spread::of(result.samples.iter().map(|sample| sample.elapsed_seconds))
}

fn row(extent: Extent, result: &Timing, first: f64) -> Row {
    let elapsed_seconds = elapsed(result);
    Row {
        mover: result.name.clone(),
        elapsed_seconds,
        cpu_seconds: Spread::of(result.samples.iter().map(|sample| sample.cpu_seconds)),
        foreign_cpu_seconds: Spread::of(result.samples.iter().map(|s| s.foreign_cpu_seconds)),
        bytes_per_second: extent.bytes as f64 / elapsed_seconds.median,
        files_per_second: extent.files as f64 / elapsed_seconds.median,
        times_first: elapsed_seconds.median / first,
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "### {}\n", self.title)?;
        if let Some(words) = &self.words {
            write_line(f, &words.head)?;
            write_line(f, &vec!["---".to_owned(); words.head.len()])?;
            return words.rows.iter().try_for_each(|row| write_line(f, row));
        }
        write_line(f, &HEAD.map(str::to_owned))?;
        write_line(f, &["---"; HEAD.len()].map(str::to_owned))?;
        self.rows.iter().try_for_each(|row| write_line(f, &self.cells(row)))
    }
}

const HEAD: [&str; 6] =
    ["mover", "seconds [min–max]", "rate", "CPU s", "times first", "foreign CPU s"];

impl Table {
    fn cells(&self, row: &Row) -> [String; HEAD.len()] {
        let Spread { median, min, max } = row.elapsed_seconds;
        let cpu = row.cpu_seconds.median;
        // The interesting rate: the number of bytes for large files, the number of files for small
        // ones.
        let (rate, share) = if self.bytes >= self.files << 20 {
            let per_gb = cpu / (self.bytes as f64 / 1e9);
            (format!("{:.2} GB/s", row.bytes_per_second / 1e9), format!("{per_gb:.2} a GB"))
        } else {
            let micros = cpu * 1e6 / self.files as f64;
            (format!("{:.0} files/s", row.files_per_second), format!("{micros:.0} µs a file"))
        };
        [
            row.mover.clone(),
            format!("{median:.2} [{min:.2}–{max:.2}]"),
            rate,
            format!("{cpu:.2} ({share})"),
            format!("{:.2}", row.times_first),
            format!("{:.2}", row.foreign_cpu_seconds.median),
        ]
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, cells: &[String]) -> fmt::Result {
    writeln!(f, "| {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_sample_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 9.0, 2.0, 5.0].into_iter());
        assert_eq!(spread, Spread { median: 3.0, min: 1.0, max: 9.0 });
    }

    #[test]
    fn a_table_of_words_is_markdown() {
        let rows = vec![vec!["1".to_owned(), "2".to_owned()]];
        let table = Table::of_words("title", &["a", "b"], rows);
        assert_eq!(table.to_string(), "### title\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n");
    }
}
