//! The figures as one JSON object, for a program.

use super::table::word;
use crate::display::PathText;
use lads_core::mode::{Caching, Direction, Figure, best};
use lads_engine::BenchReport;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Serialize)]
struct Object<'a> {
    version: u32,
    #[serde(flatten)]
    path: PathText,
    file_bytes: u64,
    elapsed_seconds: f64,
    figures: Vec<Row>,
    orders: Vec<Row>,
    best_read: Option<Row>,
    best_write: Option<Row>,
    notices: &'a [String],
}

#[derive(Serialize)]
struct Row {
    direction: &'static str,
    io: &'static str,
    order: &'static str,
    request_bytes: u32,
    threads: u16,
    /// The median; `None` if it was not measured.
    bytes_per_second: Option<f64>,
    bytes_per_second_each: Vec<f64>,
}

impl Row {
    fn of(figure: &Figure) -> Self {
        let mode = &figure.mode;
        Self {
            direction: match mode.direction {
                Direction::Read => "read",
                Direction::Write => "write",
            },
            io: match mode.caching {
                Caching::Direct => "direct",
                Caching::Buffered => "buffered",
            },
            order: word(mode.order),
            request_bytes: mode.request_bytes,
            threads: mode.thread_count,
            bytes_per_second: figure.median().map(f64::round),
            bytes_per_second_each: figure.rates.iter().map(|rate| rate.round()).collect(),
        }
    }
}

/// Returns the object, as one line.
pub(super) fn object(path: &Path, report: &BenchReport) -> String {
    let rows = |figures: &[Figure]| figures.iter().map(Row::of).collect();
    let best = |direction| best(&report.figures, direction).map(Row::of);
    let object = Object {
        version: 1,
        path: PathText::new(path.as_os_str().as_bytes()),
        file_bytes: report.size_bytes,
        elapsed_seconds: report.elapsed.as_secs_f64(),
        figures: rows(&report.figures),
        orders: rows(&report.orders),
        best_read: best(Direction::Read),
        best_write: best(Direction::Write),
        notices: &report.notices,
    };
    serde_json::to_string(&object).expect("it has nothing that JSON cannot hold")
}
