//! Tests whether LADS keeps its promises whatever happens: with random trees, random options and
//! several accidents at a time, in rounds. Each round follows from a seed and can be played again.
//!
//! A round grows a tree ([`tree`]), runs `lads cp` with random options ([`options`]), and lets
//! accidents happen meanwhile ([`accident`]). After each run, the result is judged ([`judge`]):
//! every file at the target is one version of itself, the exit code is explained and true, what is
//! missing is reported, and nothing else was touched. At the end the same command runs once more
//! without accidents. Then everything must be there, and nothing may be left over. docs/testing.md
//! says more.

mod accident;
mod changes;
mod history;
mod judge;
mod kinds;
mod moves;
mod options;
mod plan;
mod process;
mod removal;
mod report;
mod room;
mod round;
mod rsync;
mod selection;
mod tree;
mod view;

use crate::not_tried::NotTriedList;
use crate::shell;
use anyhow::{Context, Result};
use lads_trees::Rng;
use plan::Plan;
use report::Report;
use round::Round;
use std::fs;
use std::num::{NonZero, ParseIntError};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The default number of rounds.
const ROUNDS: u64 = 100;
/// The number of rounds in CI: first with the same seeds each time, so that the effect of a change
/// shows, then with the seeds of the day.
const CI_FIXED_ROUNDS: u64 = 50;
const CI_FRESH_ROUNDS: u64 = 50;
/// The first of the fixed seeds.
const FIXED_SEED: u64 = 1;
/// The default number of rounds at a time. A round spends more time waiting than computing.
const JOBS: usize = 2;
const SECONDS_A_DAY: u64 = 86_400;
/// The distance between the first seeds of two days. It is greater than the number of rounds in a
/// day.
const SEEDS_A_DAY: u64 = 1_000_000;
/// This environment variable is set in a process whose mounts only it and its children see.
const INSIDE: &str = "LADS_CHAOS_INSIDE";

/// The programs that a round starts.
#[derive(Debug)]
struct Tools {
    lads: PathBuf,
    testbed: PathBuf,
}

/// What is possible on this machine.
#[derive(Debug)]
struct Abilities {
    can_mount: bool,
    can_mount_images: bool,
    can_use_fuse: bool,
    can_drop_privileges: bool,
}

/// Play rounds of random trees, options and accidents
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Parser)]
pub(crate) struct Request {
    /// The number of rounds
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: u64,
    /// The seed of the first round; without it, another one each day
    #[arg(long, value_name = "S", default_value_t = seed_of_the_day(), hide_default_value = true)]
    seed: u64,
    /// Rounds at a time
    #[arg(long, value_name = "J", default_value_t = JOBS, value_parser = at_least_one)]
    jobs: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let count: NonZero<usize> = text.parse().map_err(|error: ParseIntError| error.to_string())?;
    Ok(count.get())
}

/// A seed that stays the same for a day.
fn seed_of_the_day() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs() / SECONDS_A_DAY * SEEDS_A_DAY
}

/// Plays the requested rounds. Returns a failure if one of them failed.
pub(crate) fn run(request: &Request) -> Result<ExitCode> {
    if may_mount_apart() && std::env::var_os(INSIDE).is_none() {
        return run_inside(request);
    }
    let Some(abilities) = Abilities::here()? else { return Ok(ExitCode::SUCCESS) };
    let tools = Tools::build()?;
    let report = Mutex::new(Report::default());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..request.jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= request.rounds {
                        return;
                    }
                    let done = play(request.seed.wrapping_add(number), &tools, &abilities);
                    report.lock().expect("no round panics").merge(done);
                }
            });
        }
    });
    let report = report.into_inner().expect("no round panics");
    println!("{report}");
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays rounds with the fixed seeds, and rounds with the seeds of the day.
///
/// This goes through cargo, because earlier steps may have rebuilt our program. Then the file that
/// this process was started from is gone.
pub(crate) fn ci(list: &NotTriedList) -> Result<()> {
    for (count, seed) in [(CI_FIXED_ROUNDS, FIXED_SEED), (CI_FRESH_ROUNDS, seed_of_the_day())] {
        let (count, seed) = (count.to_string(), seed.to_string());
        let words = ["xtask", "chaos", "--rounds", &count, "--seed", &seed];
        shell::run(shell::cargo().args(words).envs([list.variable()]))?;
    }
    Ok(())
}

/// Whether this process can have a mount namespace of its own.
fn may_mount_apart() -> bool {
    let probe =
        shell::run_quietly(Command::new("unshare").args(["-m", "mount", "--make-rprivate", "/"]));
    rustix::process::geteuid().is_root() && probe.is_ok()
}

/// Runs the same request in a process with its own mount namespace. All its mounts disappear when
/// the last process in the namespace ends.
fn run_inside(request: &Request) -> Result<ExitCode> {
    let Request { rounds, seed, jobs } = request;
    let mut command = Command::new("unshare");
    command.arg("-m").arg(std::env::current_exe()?).arg("chaos").env(INSIDE, "1");
    command.arg(format!("--rounds={rounds}")).arg(format!("--seed={seed}"));
    command.arg(format!("--jobs={jobs}"));
    Err(command.exec()).context("cannot become `unshare`")
}

impl Tools {
    fn build() -> Result<Self> {
        let packages = ["--package", "lads-cli", "--package", "lads-testbed", "--bins"];
        shell::run(shell::cargo().args(["build", "--quiet"]).args(packages))?;
        let built = shell::target_dir()?.join("debug");
        Ok(Self { lads: built.join("lads"), testbed: built.join("lads-testbed") })
    }
}

impl Abilities {
    /// Prints what cannot be tried here. Returns `None` if nothing can be tried.
    fn here() -> Result<Option<Self>> {
        // rsync judges what arrived.
        if !lads_tried::has("rsync") {
            return Ok(None);
        }
        let can_mount = std::env::var_os(INSIDE).is_some();
        let has_images =
            shell::find("mkfs.ext4").is_some() && Path::new("/dev/loop-control").exists();
        let fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let can_use_fuse = fuse.is_ok() && (can_mount || shell::find("fusermount3").is_some());
        let abilities = Self {
            can_mount,
            can_mount_images: can_mount && has_images,
            can_use_fuse,
            can_drop_privileges: rustix::process::geteuid().is_root()
                && shell::find("setpriv").is_some(),
        };
        for (is_possible, what) in [
            (abilities.can_mount, "a full file system, which needs root"),
            (abilities.can_mount_images, "ext4, which needs root, mkfs.ext4 and a loop device"),
            (abilities.can_use_fuse, "storage that fails, which needs FUSE"),
            (abilities.can_drop_privileges, "another user, which needs root and setpriv"),
        ] {
            if !is_possible {
                lads_tried::not_tried(&format!("in chaos: {what}"));
            }
        }
        Ok(Some(abilities))
    }
}

/// Plays the round of one seed. If it fails, prints that and keeps its directory.
fn play(seed: u64, tools: &Tools, abilities: &Abilities) -> Report {
    let parent = Path::new("/dev/shm");
    let parent = if parent.is_dir() { parent.to_owned() } else { std::env::temp_dir() };
    let directory = parent.join(format!("lads-chaos-{}-{seed}", std::process::id()));
    let caught = std::panic::catch_unwind(|| play_in(&directory, seed, tools, abilities));
    let (mut report, failure) = caught.unwrap_or_else(|_| {
        (Report::default(), Some(anyhow::anyhow!("chaos itself failed; see above")))
    });
    report.rounds = 1;
    match failure {
        None => {
            let _ = fs::remove_dir_all(&directory);
        }
        Some(error) => {
            report.failed = 1;
            println!("\nFAILED: round {seed}: {error:#}");
            println!("  again: cargo xtask chaos --seed {seed} --rounds 1");
            println!("  kept:  {}", directory.display());
        }
    }
    report
}

fn play_in(
    directory: &Path,
    seed: u64,
    tools: &Tools,
    abilities: &Abilities,
) -> (Report, Option<anyhow::Error>) {
    let mut rng = Rng::new(seed);
    let mut plan = Plan::draw(&mut rng);
    plan.limit_to(abilities);
    let mut round = match Round::new(&plan, directory.to_owned(), tools) {
        Ok(round) => round,
        Err(error) => return (Report::default(), Some(error)),
    };
    let failure = round.play(&plan, &mut rng).err();
    if failure.is_some()
        && let Err(error) = round.keep()
    {
        println!("cannot keep the record of the round: {error:#}");
    }
    (std::mem::take(&mut round.report), failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let parse = |words: &[&str]| Request::try_parse_from([&["chaos"], words].concat());
        let request = parse(&["--seed", "7", "--rounds", "3", "--jobs", "4"]).unwrap();
        assert_eq!(request, Request { rounds: 3, seed: 7, jobs: 4 });
        assert!(parse(&["--seed"]).is_err());
        assert!(parse(&["--what", "1"]).is_err());
        assert!(parse(&["--jobs", "0"]).is_err());
    }

    #[test]
    fn the_same_seed_plans_the_same_round() {
        let plan = |seed| format!("{:?}", Plan::draw(&mut Rng::new(seed)));
        assert_eq!(plan(3), plan(3));
        assert_ne!(plan(3), plan(4));
    }
}
