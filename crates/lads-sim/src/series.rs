//! How long each read took, with and without avoidance of congested OSTs: figure 7 of
//! "Layout-Aware I/O Scheduling for Terabits Data Movement" (2013), as a page.

use lads_core::schedule::Policy;
use lads_sim::bed::{Congestion, Rules, Scenario, Size};
use std::fmt::Write;
use std::path::Path;

/// As in the paper: eight OSTs, four threads.
const OSTS: usize = 8;
const THREADS: u32 = 4;
const SEED: u64 = 1;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 50.0;
const BOTTOM: f64 = 24.0;

const HEAD: &str = "\
<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Service times of reads</title><style>
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 960px; margin: 2em auto; }
svg { width: 100%; } svg text { fill: currentColor; font-size: 12px; }
svg path { stroke: #2f6fde; stroke-width: 3; stroke-linecap: round; stroke-opacity: .6; }
svg line { stroke: currentColor; stroke-opacity: .25; }
</style></head><body><h1>Service times of reads</h1>
<p>8 OSTs of 25 MiB/s at the source, one at a fifth of its rate, another after a while; 4 threads, \
1 MiB blocks. Simulated.</p>
";

/// Writes the page; whether that went well.
pub(crate) fn write(path: &Path) -> bool {
    let (mut page, mut is_ok) = (HEAD.to_owned(), true);
    let policies =
        [("Without avoidance: layout", Policy::Layout), ("With: adaptive", Policy::Adaptive)];
    let runs: Vec<_> = policies.iter().map(|(name, policy)| (*name, reads(*policy))).collect();
    let most = |of: fn(&(f64, f64)) -> f64| {
        let reads = runs.iter().filter_map(|(_, reads)| reads.as_ref().ok()).flatten();
        reads.map(of).fold(0.0, f64::max)
    };
    let (end, longest) = (most(|it| it.0), most(|it| it.1));
    for (name, reads) in &runs {
        match reads {
            Ok(reads) => draw(name, reads, end, longest, &mut page),
            Err(failure) => (_, is_ok) = (page.write_str(failure), false),
        }
    }
    page.push_str("</body></html>\n");
    is_ok && std::fs::write(path, page).is_ok()
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

fn draw(name: &str, reads: &[(f64, f64)], end: f64, longest: f64, out: &mut String) {
    let times: Vec<f64> = reads.iter().map(|it| it.1 * 1000.0).collect();
    let Moments { mean, deviation, kurtosis } = Moments::of(&times);
    let last = reads.iter().map(|it| it.0 + it.1).fold(0.0, f64::max);
    let x = |at: f64| LEFT + at / end * (WIDTH - LEFT);
    let y = |time: f64| (HEIGHT - BOTTOM) * (1.0 - time / longest);
    let dots: String =
        reads.iter().map(|(at, time)| format!("M{:.1} {:.1}h0", x(*at), y(*time))).collect();
    let _ = write!(
        out,
        "<h2>{name}</h2><p>{last:.1} s; mean {mean:.0} ms, deviation {deviation:.0} ms, kurtosis \
         {kurtosis:.1}</p>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{name}\">"
    );
    for step in 0..=4 {
        let time = longest * f64::from(step) / 4.0;
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>\
             <text x=\"0\" y=\"{1:.1}\">{2:.0} ms</text>",
            y(time),
            y(time) + 10.0,
            time * 1000.0
        );
    }
    let ticks = (0..).map(|step| f64::from(step) * 2.0).take_while(|at| *at <= end);
    for at in ticks {
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{}\">{at} s</text>", x(at), HEIGHT - 6.0);
    }
    let _ = writeln!(out, "<path fill=\"none\" d=\"{dots}\"/></svg>");
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
