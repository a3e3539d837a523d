//! The figures as tables, and what is best, for a person.

use super::{Group, groups};
use lads_core::mode::{Caching, Direction, Figure, Order, best};
use lads_core::sizes;
use lads_engine::BenchReport;
use std::io::{self, Write};

/// Writes a table for each direction and each way, then the best modes.
pub(super) fn write(report: &BenchReport, out: &mut dyn Write) -> io::Result<()> {
    let best = [Direction::Read, Direction::Write].map(|it| best(&report.figures, it));
    for group in groups(report) {
        write_group(&group, best, out)?;
        writeln!(out)?;
    }
    for figure in best.into_iter().flatten() {
        for (title, text) in rows(report, figure) {
            writeln!(out, "{title:<14}{text}")?;
        }
    }
    for notice in &report.notices {
        writeln!(out, "{:<14}{notice}", "note")?;
    }
    Ok(())
}

fn write_group(
    group: &Group<'_>,
    best: [Option<&Figure>; 2],
    out: &mut dyn Write,
) -> io::Result<()> {
    let threads = group.thread_counts();
    write!(out, "{}: MB/s with this number of threads\n{:>9}", group.title, "request")?;
    threads.iter().try_for_each(|count| write!(out, "{count:>9}"))?;
    writeln!(out)?;
    for request_bytes in group.request_bytes() {
        write!(out, "{:>9}", request(request_bytes))?;
        for &thread_count in &threads {
            let figure = group.figure(request_bytes, thread_count);
            let is_best = best.into_iter().flatten().any(|it| Some(it) == figure);
            let mark = if is_best { "*" } else { "" };
            let rate = figure.and_then(Figure::median);
            let text = rate.map_or_else(|| "-".to_owned(), |it| format!("{mark}{}", megabytes(it)));
            write!(out, "{text:>9}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// What is best for a direction, how to ask for it, and what the order of requests does.
pub(super) fn rows(report: &BenchReport, best: &Figure) -> Vec<(&'static str, String)> {
    let mode = &best.mode;
    let (title, end) = match mode.direction {
        Direction::Read => ("read best", "source"),
        Direction::Write => ("write best", "sink"),
    };
    let (way, io) = match mode.caching {
        Caching::Direct => ("bypassing the page cache", "direct"),
        Caching::Buffered => ("through the page cache", "buffered"),
    };
    let threads = sizes::counted(mode.thread_count.into(), "thread");
    let request = request(mode.request_bytes);
    let (least, most) = best.spread().unwrap_or_default();
    let rate = sizes::rate(best.median().unwrap_or_default());
    let of_direction = report.orders.iter().filter(|it| it.mode.direction == mode.direction);
    let orders: Vec<String> = of_direction
        .filter_map(|it| Some(format!("{} {}", word(it.mode.order), sizes::rate(it.median()?))))
        .collect();
    vec![
        (
            title,
            format!(
                "{rate} [{} to {}]: requests of {request}, {threads}, {way}",
                sizes::rate(least),
                sizes::rate(most)
            ),
        ),
        ("", format!("lads cp --{end} threads={},io={io}", mode.thread_count)),
        ("", format!("by the order of requests: {}", orders.join(", "))),
    ]
}

/// The name of an order, as XDD has it.
pub(super) fn word(order: Order) -> &'static str {
    match order {
        Order::None => "none",
        Order::Loose => "loose",
        Order::Serial => "serial",
    }
}

/// `64 KiB`, `1 MiB`
pub(super) fn request(bytes: u32) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

/// Three digits that matter.
pub(super) fn megabytes(rate: f64) -> String {
    let megabytes = rate / 1e6;
    match megabytes {
        it if it < 9.95 => format!("{it:.2}"),
        it if it < 99.5 => format!("{it:.1}"),
        it => format!("{it:.0}"),
    }
}
