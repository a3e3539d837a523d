//! Looks for faults that no test notices: cargo-mutants adds small faults to the code, one by one,
//! and runs the tests that should fail.
//!
//! A fault is first tried on the unit tests of its own crate, which take seconds. If they do not
//! notice it, it is tried on slower tests: other tests of the crate and simulated worlds for the
//! core, the real command for the engine.
//! A fault that none of them notices is listed. Faults that make no difference, or that no test can
//! see, are in `docs/testing.md` with the reason, and are listed separately.

use crate::shell;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The default time to try faults, in seconds: enough for some eighty faults of the core on a small
/// machine. All faults take hours.
const SECONDS: u64 = 1200;

/// The longest time that the tests of one fault may take, in seconds: several times what they take
/// without the fault. This limit detects a fault that makes them hang.
const TEST_SECONDS_MAX: u32 = 120;

const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A part of the code in which a fault would lose data or give rights, and the tests that should
/// notice it.
struct Part {
    /// The directory of its results.
    name: &'static str,
    package: &'static str,
    /// File patterns below the package's `src`.
    files: &'static [&'static str],
    /// Modules without faults whose unit tests take long.
    skipped: &'static [&'static str],
    /// Tests of the faults that no unit test notices.
    slower: &'static [Slower],
}

struct Slower {
    package: &'static str,
    programs: &'static [&'static str],
    /// Words in the names of the tests; all tests if empty.
    names: &'static [&'static str],
}

const PARTS: [Part; 3] = [
    Part {
        name: "core",
        package: "lads-core",
        files: &[
            "gate.rs",
            "gate/*.rs",
            "limits.rs",
            "filter.rs",
            "journal.rs",
            "range.rs",
            "remote/*.rs",
            "remote/*/*.rs",
            "room.rs",
            "plan.rs",
            "staging.rs",
            "sink.rs",
            "sink/*.rs",
            "source.rs",
            "source/*.rs",
        ],
        skipped: &["matching::", "cpu_share::", "schema::"],
        slower: &[
            // Building these takes several times as long as building the unit tests.
            Slower { package: "lads-core", programs: &["pair", "removal", "lies"], names: &[] },
            Slower { package: "lads-sim", programs: &["seeds", "remote"], names: &[] },
            // Its other tests take longer than one fault may.
            Slower {
                package: "lads-sim",
                programs: &["congestion"],
                names: &["where_files_grow", "few_large_files"],
            },
        ],
    },
    Part {
        name: "engine",
        package: "lads-engine",
        files: &[
            "journal.rs",
            "journal/*.rs",
            "paths.rs",
            "metadata/permitted.rs",
            "sink.rs",
            "sink/*.rs",
            "sink/*/*.rs",
            "source/lookup.rs",
            "source/read.rs",
        ],
        skipped: &[],
        slower: &[Slower {
            package: "lads-cli",
            programs: &["promises"],
            names: &[
                "order::",
                "resume::",
                "names::",
                "storage::",
                "media::",
                "check::",
                "truth::",
                "delete::",
            ],
        }],
    },
    Part {
        name: "engine-remote",
        package: "lads-engine",
        files: &["remote/*.rs", "remote/*/*.rs", "remote/*/*/*.rs"],
        skipped: &[],
        slower: &[Slower { package: "lads-mpiio", programs: &["mpi"], names: &[] }],
    },
];

/// Put small faults in one by one, and list those that no test notices
#[derive(Debug, PartialEq, Eq, clap::Parser)]
pub(crate) struct Arguments {
    /// Only faults with this in their names, which begin with their places: a regular expression
    ///
    /// Faults that leave out a field are always tried: cargo-mutants 27 does not filter them.
    filter: Option<String>,
    /// Only every N-th of all faults, from the K-th on, such as 0/20
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// For how long faults are tried
    #[arg(long, value_name = "N", default_value_t = SECONDS)]
    seconds: u64,
    /// Faults at a time
    #[arg(long, value_name = "J", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
}

/// Runs what was asked for.
///
/// # Errors
/// If the tests do not notice a fault that is not in `docs/testing.md`, or if nothing could be
/// tried.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if shell::output(shell::cargo().args(["mutants", "--version"])).is_err() {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let page = std::fs::read_to_string(shell::root().join("docs/testing.md"))?;
    let (mut tried, mut unknown) = (0, Vec::new());
    for (part, parts_left) in PARTS.iter().zip((1..=PARTS.len()).rev()) {
        let outcome = part.run(arguments, share_until(until, parts_left))?;
        tried += outcome.caught + outcome.passed.len();
        for fault in outcome.passed {
            let is_known = is_listed(&page, &fault);
            println!("{} {fault}", if is_known { "listed  " } else { "UNSEEN  " });
            unknown.extend((!is_known).then_some(fault));
        }
    }
    println!("{tried} faults were tried; no test noticed {} of them", unknown.len());
    match (tried, unknown.len()) {
        (0, _) => bail!("no faults were tried: check the name and the time limit"),
        (_, 0) => Ok(()),
        (_, count) => bail!("{count} faults were not noticed"),
    }
}

/// The end of the first of this number of steps, if all steps get equal shares of the time left.
fn share_until(until: Instant, steps: usize) -> Instant {
    let now = Instant::now();
    now + until.saturating_duration_since(now) / u32::try_from(steps).unwrap_or(u32::MAX)
}

/// The results of trying the faults of a part.
struct Outcome {
    caught: usize,
    /// The faults that no test noticed, each with its place.
    passed: Vec<String>,
}

impl Part {
    fn run(&self, arguments: &Arguments, until: Instant) -> Result<Outcome> {
        let output = shell::target_dir()?.join("mutants").join(self.name);
        // Results of an earlier run belong to other sources.
        let _ = std::fs::remove_dir_all(&output);
        std::fs::create_dir_all(&output)?;
        let mut commands = vec![self.own_command(arguments, &output)];
        commands.extend(self.slower.iter().map(|slower| {
            let mut command = self.command(arguments, &output);
            command.args(["--iterate", "--baseline", "skip", "--test-package", slower.package]);
            command.args(slower.programs.iter().map(|name| format!("--cargo-arg=--test={name}")));
            command.args(["--", "--"]).args(slower.names);
            command
        }));
        let list = |name: &str| lines(&output.join("mutants.out").join(name));
        let mut caught = 0;
        for (index, command) in commands.iter_mut().enumerate() {
            if run_until(command, share_until(until, self.slower.len() + 1 - index))? {
                caught += list("caught.txt").len() + list("timeout.txt").len();
            }
        }
        Ok(Outcome { caught, passed: list("missed.txt") })
    }

    fn own_command(&self, arguments: &Arguments, output: &Path) -> Command {
        let mut command = self.command(arguments, output);
        command.args(["--cargo-arg=--lib", "--", "--"]);
        command.args(self.skipped.iter().flat_map(|module| ["--skip", module]));
        command
    }

    fn command(&self, arguments: &Arguments, output: &Path) -> Command {
        let mut command = shell::cargo();
        command.args(["mutants", "--package", self.package, "--no-shuffle", "--colors", "never"]);
        for file in self.files {
            command.arg("--file").arg(format!("crates/{}/src/{file}", self.package));
        }
        command.arg("--timeout").arg(TEST_SECONDS_MAX.to_string());
        command.arg("--jobs").arg(arguments.jobs.to_string());
        command.arg("--output").arg(output);
        let shard = arguments.shard.iter();
        command.args(shard.flat_map(|shard| ["--sharding", "round-robin", "--shard", shard]));
        command.args(arguments.filter.iter().flat_map(|filter| ["--re", filter]));
        // The build takes half the time without debug symbols.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }
}

/// Runs cargo-mutants to its end, or stops it when the time is over; then its lists have the faults
/// tried before. Failing tests are no error, because they have noticed a fault. Returns false if no
/// time was left.
fn run_until(command: &mut Command, until: Instant) -> Result<bool> {
    if Instant::now() >= until {
        return Ok(false);
    }
    let mut child = command.spawn().context("cannot start cargo mutants")?;
    while child.try_wait()?.is_none() {
        if Instant::now() >= until {
            println!("the time limit is reached");
            stop(&mut child)?;
            break;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(true)
}

fn stop(child: &mut Child) -> Result<()> {
    // cargo-mutants ends its tests, too.
    let _ = kill_process(Pid::from_child(child), Signal::INT);
    child.wait()?;
    Ok(())
}

/// The lines of a file; empty if the file does not exist.
fn lines(path: &PathBuf) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Whether a fault, given as `FILE:LINE:COLUMN: WHAT`, is in the page as `` `FILE: WHAT` ``. The
/// page has no line numbers, because they change. In a table, a bar has a backslash before it.
fn is_listed(page: &str, fault: &str) -> bool {
    let mut fields = fault.splitn(4, ':');
    let (Some(file), Some(what)) = (fields.next(), fields.nth(2)) else { return false };
    let file = file.strip_prefix("crates/").unwrap_or(file).replace("/src/", "/");
    page.replace("\\|", "|").contains(&format!("`{file}:{what}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_fault_is_listed_by_its_file_and_what_it_is() {
        let page = "| `lads-core/room.rs: replace > with >= in Room::has` | why |";
        let fault = "crates/lads-core/src/room.rs:162:61: replace > with >= in Room::has";
        assert!(is_listed(page, fault));
        assert!(!is_listed(page, &fault.replace("has", "take")));
        assert!(!is_listed(page, "something else"));
        let page = "| `lads-core/room.rs: replace \\|\\| with && in Room::has` | why |";
        assert!(is_listed(
            page,
            "crates/lads-core/src/room.rs:9:9: replace || with && in Room::has"
        ));
    }

    #[test]
    fn a_filter_and_limits_can_be_given() {
        let (filter, shard) = (Some("room".to_owned()), Some("1/9".to_owned()));
        let parse = |words: &[&str]| Arguments::try_parse_from([&["mutants"], words].concat());
        let expected = Arguments { filter, shard, seconds: 60, jobs: 2 };
        let words = ["--jobs", "2", "room", "--seconds", "60", "--shard", "1/9"];
        assert_eq!(parse(&words).unwrap(), expected);
        let wrong: [&[&str]; 5] =
            [&["--second"], &["--seconds", "x"], &["--jobs"], &["--shard"], &["a", "b"]];
        for wrong in wrong {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_file_with_faults_is_there() {
        for part in &PARTS {
            let source = shell::root().join("crates").join(part.package).join("src");
            for file in part.files {
                let path = source.join(file.split("/*").next().unwrap());
                assert!(path.exists(), "{}", path.display());
            }
        }
    }
}
