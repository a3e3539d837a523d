//! How long each read took, with and without avoidance of congested OSTs: figure 7 of
//! "Layout-Aware I/O Scheduling for Terabits Data Movement" (2013), as a page.

use lads_core::schedule::Policy;
use lads_plot::curves::{Axis, Layer, Plot, Quantity, STYLE};
use lads_sim::bed::{Congestion, Rules, Scenario, Size};
use std::path::Path;

/// As in the paper: eight OSTs, four threads.
const OSTS: usize = 8;
const THREADS: u32 = 4;
const SEED: u64 = 1;

const ABOUT: &str = "8 OSTs of 25 MiB/s at the source, one at a fifth of its rate, another after a \
                     while; 4 threads, 1 MiB blocks. Simulated.";

/// Writes the page; whether that went well.
pub(crate) fn write(path: &Path) -> bool {
    let policies =
        [("Without avoidance: layout", Policy::Layout), ("With: adaptive", Policy::Adaptive)];
    let drawn = policies.map(|(name, policy)| Ok(draw(name, reads(policy)?)));
    let page = match drawn.into_iter().collect::<Result<String, String>>() {
        Ok(plots) => plots,
        Err(failure) => {
            println!("{failure}");
            return false;
        }
    };
    let title = "Service times of reads";
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>\n:root {{ color-scheme: light dark; }}\n{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>{ABOUT}</p>\n{page}</body></html>\n"
    );
    std::fs::write(path, page).is_ok()
}

fn reads(policy: Policy) -> Result<Vec<(f64, f64)>, String> {
    let congestion = Congestion::Source;
    let scenario = Scenario {
        ost_count: OSTS,
        congestion,
        stripe_count: 1,
        is_placed: true,
        is_growing: false,
    };
    let size = Size { threads: Some(THREADS), ..Size::full(OSTS) };
    let outcome = scenario.run(SEED, size, &Rules::of(policy));
    outcome.map(|outcome| outcome.reads).map_err(|failure| failure.to_string())
}

/// The reads of one run: when each began, and how long it took, in seconds.
fn draw(name: &str, reads: Vec<(f64, f64)>) -> String {
    let times: Vec<f64> = reads.iter().map(|it| it.1 * 1000.0).collect();
    let Moments { mean, deviation, kurtosis } = Moments::of(&times);
    let last = reads.iter().map(|it| it.0 + it.1).fold(0.0, f64::max);
    let seconds = |label| Axis { label, quantity: Quantity::Time, is_logarithmic: false };
    let layer = Layer { name: "one read".to_owned(), points: reads, is_line: false };
    let plot = Plot {
        title: name,
        x: seconds("begin"),
        y: seconds("service time"),
        layers: vec![layer],
        marks: Vec::new(),
    };
    format!(
        "<h2>{name}</h2><p>{last:.1} s; mean {mean:.0} ms, deviation {deviation:.0} ms, kurtosis \
         {kurtosis:.1}</p>\n{}",
        plot.svg()
    )
}

/// What the paper says of its series.
struct Moments {
    mean: f64,
    deviation: f64,
    /// Above that of a normal distribution.
    kurtosis: f64,
}

impl Moments {
    fn of(numbers: &[f64]) -> Self {
        let count = numbers.len().max(1) as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let central = |power| numbers.iter().map(|it| (it - mean).powi(power)).sum::<f64>() / count;
        let variance = central(2);
        Self { mean, deviation: variance.sqrt(), kurtosis: central(4) / variance.powi(2) - 3.0 }
    }
}
