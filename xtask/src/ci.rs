//! What must hold before a change goes in: format, lints, docs, licences, tests, simulation,
//! fuzzing, accidents.
//!
//! Every step runs, even after another one has failed, so that one run reports everything. The last
//! line is the sum of all test results, as printed by the test runner.

use crate::ceph::{self, ForTests};
use crate::not_tried::NotTriedList;
use crate::{chaos, fuzz, licences, shell, sim};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The step whose failures are counted one by one.
const TESTS: &str = "tests";

/// Runs all steps; fails if one of them failed.
pub(crate) fn run() -> Result<ExitCode> {
    let mut steps = Steps::default();
    steps.run("format", || shell::run(shell::cargo().args(["fmt", "--all", "--check"])));
    steps.run("licences", licences::run);
    steps.run("lints", lints);
    steps.run("docs", docs);
    let mut tally = Tally::default();
    let list = NotTriedList::begin();
    // The cluster stops when this is dropped, even if the tests fail.
    let mut cluster = None;
    steps.run("ceph", || {
        cluster = ceph::for_tests()?;
        Ok(())
    });
    steps.run(TESTS, || tests(&mut tally, cluster.as_ref(), &list));
    steps.run("ceph down", || cluster.map_or(Ok(()), ForTests::down));
    steps.run("simulation", sim::ci);
    steps.run("fuzzing", || fuzz::run(&fuzz::Arguments::default()));
    steps.run("chaos", || chaos::ci(&list));
    steps.run("tests not tried", || list.judge());

    if !tally.told.is_empty() {
        println!("\n=== output of failed tests\n{}", tally.told);
    }
    println!("\n{:>8}  step", "seconds");
    for step in &steps.done {
        let mark = if step.is_good { "" } else { "  FAILED" };
        println!("{:>8.1}  {}{mark}", step.elapsed.as_secs_f64(), step.name);
    }
    // Any other step that fails counts as one failed test, so that the last line never claims
    // success.
    let others = steps.done.iter().filter(|step| !step.is_good && step.name != TESTS);
    let failed = tally.failed + others.count() as u64;
    println!("\n{} passed, {failed} failed", tally.passed);
    let is_good = steps.done.iter().all(|step| step.is_good);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Step {
    name: &'static str,
    elapsed: Duration,
    is_good: bool,
}

#[derive(Default)]
struct Steps {
    done: Vec<Step>,
}

impl Steps {
    fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) {
        println!("\n=== {name}");
        let start = Instant::now();
        let result = step();
        if let Err(error) = &result {
            println!("=== {name} FAILED: {error:#}");
        }
        self.done.push(Step { name, elapsed: start.elapsed(), is_good: result.is_ok() });
    }
}

fn lints() -> Result<()> {
    let clippy = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    shell::run(shell::cargo().args(clippy))
}

fn docs() -> Result<()> {
    let doc = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
    shell::run(shell::cargo().args(doc).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Results of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// The number of tests that passed.
    passed: u64,
    /// The number of tests that failed.
    failed: u64,
    /// Output of the failed tests, in lines. It is printed again at the end.
    told: String,
    /// Whether the runner is showing what failed tests said.
    is_telling: bool,
}

fn tests(tally: &mut Tally, cluster: Option<&ForTests>, list: &NotTriedList) -> Result<()> {
    let mut child = shell::cargo()
        .args(["test", "--workspace", "--no-fail-fast"])
        .envs(cluster.into_iter().flat_map(ForTests::variables))
        .envs([list.variable()])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test")?;
    let stdout = child.stdout.take().expect("piped above");
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        tally.add(&line);
    }
    if child.wait()?.success() {
        return Ok(());
    }
    // A test that does not compile has no result line, but it counts as failed.
    tally.failed = tally.failed.max(1);
    bail!("cargo test")
}

impl Tally {
    /// Counts a line such as `test result: ok. 12 passed; 0 failed; 0 ignored; …`. Keeps the lines
    /// from the first `failures:`, under which the runner shows what failed tests said, to the
    /// second, under which it lists their names.
    fn add(&mut self, line: &str) {
        if line == "failures:" {
            self.is_telling = !self.is_telling;
        } else if self.is_telling {
            self.told += line;
            self.told.push('\n');
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        self.passed += count_before(result, "passed");
        self.failed += count_before(result, "failed");
    }
}

/// The number before a word, as in `3 passed;`.
fn count_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', ';', '.']).filter(|part| !part.is_empty()).collect();
    let at = words.iter().position(|&part| part == word);
    at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_up_what_the_test_runner_printed() {
        let mut tally = Tally::default();
        tally.add("running 3 tests");
        tally.add("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        for line in ["failures:", "---- a stdout ----", "it broke", "failures:", "    a"] {
            tally.add(line);
        }
        tally.add("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered");
        let told = "---- a stdout ----\nit broke\n".to_owned();
        assert_eq!(tally, Tally { passed: 14, failed: 1, told, is_telling: false });
    }
}
