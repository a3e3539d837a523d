//! Checks that an emulated file system is as fast as it should be on this machine, and no faster.
//!
//! It starts one, keeps it busy with [`crate::load`], and compares the results with what the rates
//! allow. On a machine that is busy with other work, the figures are lower, so the load average is
//! printed with them.

use crate::daemon::Daemon;
use crate::load::{LoadMode, Plan};
use anyhow::{Context, Result};
use lads_core::units::OstId;
use serde_json::json;
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const OSTS: u32 = 8;
const MB: f64 = 1e6;

/// How long to look.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// How often to measure; medians are compared
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Only figures whose name has this in it
    #[arg(long, default_value = "")]
    only: String,
}

/// One figure.
struct Figure {
    name: &'static str,
    unit: &'static str,
    allowed: RangeInclusive<f64>,
    values: Vec<f64>,
}

/// One measurement.
struct Scene {
    /// The name of its throughput figure, and the range that is good enough.
    throughput: (&'static str, RangeInclusive<f64>),
    /// The name of its processor figure, if that matters.
    cpu: Option<&'static str>,
    mode: LoadMode,
    osts: std::ops::Range<u32>,
    threads: u32,
    /// The orders to give once the load runs; before that, nothing is limited.
    orders: &'static str,
}

/// Measures, and prints a line of JSON for each figure. Fails if a figure is out of its range.
///
/// # Errors
/// If no emulated file system can run here.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(obstacle) = crate::daemon::obstacle() {
        anyhow::bail!("nothing can be measured: {obstacle}");
    }
    let time = Duration::try_from_secs_f64(args.seconds)?;
    let mut figures: Vec<Figure> = Vec::new();
    for _ in 0..args.repeats.max(1) {
        let daemon = Daemon::start(&std::env::current_exe()?, ["--osts", "8"])?;
        for scene in scenes().iter().filter(|it| it.throughput.0.contains(&args.only)) {
            measure(scene, &daemon, time, &mut figures)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "it is shown as MiB")]
        let memory = daemon.usage()?.memory_max as f64 / f64::from(1 << 20);
        add(&mut figures, ("memory", "MiB", 0.0..=256.0), memory);
        daemon.stop()?;
    }
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let mut is_good = true;
    for figure in &mut figures {
        is_good &= figure.tell(load.trim())?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn scenes() -> Vec<Scene> {
    use LoadMode::{Read, Write};
    let scene = |throughput, cpu, mode, osts, threads, orders| Scene {
        throughput,
        cpu,
        mode,
        osts,
        threads,
        orders,
    };
    let (all, one) = (0..OSTS, 3..4);
    let (enough, exactly) = (380.0..=402.0, 47.0..=51.0);
    let (usual, slow, free) = ("rate all 50MB", "rate all 50MB\nrate 3 10MB", "");
    let (cpu_read, cpu_write) = (Some("cpu of eight reads"), Some("cpu of eight writes"));
    vec![
        scene(("eight read", enough.clone()), cpu_read, Read, all.clone(), 8, usual),
        scene(("eight write", enough), cpu_write, Write, all.clone(), 8, usual),
        scene(("one read", exactly.clone()), None, Read, one.clone(), 8, usual),
        scene(("one write", exactly), None, Write, one, 8, usual),
        scene(("seven and a slow one read", 340.0..=362.0), None, Read, all, 8, slow),
        scene(("unlimited read", 2500.0..=f64::MAX), None, Read, 0..2, 2, free),
    ]
}

fn measure(
    scene: &Scene,
    daemon: &Daemon,
    time: Duration,
    figures: &mut Vec<Figure>,
) -> Result<()> {
    daemon.order("rate all unlimited")?;
    let plan = Plan {
        directory: daemon.mount().to_owned(),
        osts: scene.osts.clone().map(OstId).collect(),
        mode: scene.mode,
        threads: scene.threads,
        block_bytes: 1 << 20,
    };
    let load = plan.start()?;
    daemon.order(scene.orders)?;
    std::thread::sleep(time / 8);
    let (bytes, cpu, began) = (load.bytes(), daemon.usage()?.cpu, Instant::now());
    std::thread::sleep(time);
    let (bytes, cpu) = (load.bytes() - bytes, daemon.usage()?.cpu - cpu);
    let seconds = began.elapsed().as_secs_f64();
    load.stop()?;
    let (name, allowed) = scene.throughput.clone();
    #[expect(clippy::cast_precision_loss, reason = "it is shown as MB/s")]
    add(figures, (name, "MB/s", allowed), bytes as f64 / seconds / MB);
    if let Some(name) = scene.cpu {
        add(figures, (name, "cores", 0.0..=0.3), cpu.as_secs_f64() / seconds);
    }
    Ok(())
}

fn add(
    figures: &mut Vec<Figure>,
    (name, unit, allowed): (&'static str, &'static str, RangeInclusive<f64>),
    value: f64,
) {
    match figures.iter_mut().find(|it| it.name == name) {
        Some(figure) => figure.values.push(value),
        None => figures.push(Figure { name, unit, allowed, values: vec![value] }),
    }
}

impl Figure {
    /// Prints it; returns whether it is in its range.
    fn tell(&mut self, load_average: &str) -> Result<bool> {
        self.values.sort_by(f64::total_cmp);
        let median = *self.values.get(self.values.len() / 2).context("nothing was measured")?;
        let is_good = self.allowed.contains(&median);
        let line = json!({
            "figure": self.name,
            "unit": self.unit,
            "median": median,
            "values": self.values,
            "at_least": self.allowed.start(),
            "at_most": self.allowed.end(),
            "is_good": is_good,
            "load_average": load_average,
        });
        writeln!(std::io::stdout(), "{line}")?;
        Ok(is_good)
    }
}
