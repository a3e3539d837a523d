//! What a peer or a disk can say that nobody thought of: libFuzzer looks for it.
//!
//! The targets are programs of their own (`fuzz/`), built here with the flags that cargo-fuzz would
//! give, so that neither it nor a nightly toolchain need be installed: instrumentation for coverage
//! is an LLVM pass that the stable compiler runs, too. A C++ compiler is needed, for libFuzzer is
//! C++.
//!
//! libFuzzer looks at each target for a while, beginning with the committed seeds and with what it
//! has found to be of interest before (`fuzz/corpus`, not committed). An input that ends badly is
//! kept in `fuzz/artifacts`, and it is said how to play it again.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

/// For how long each target is run if nothing is said, in seconds. In a minute a target takes some
/// 100,000 inputs or more on a slow machine, which is far beyond where new coverage comes quickly;
/// two would add four minutes to CI and hardly ever an input.
pub(crate) const SECONDS: u32 = 60;

/// Longest time that one input may take, in seconds: all take milliseconds. Half might be too short
/// where many other programs run.
const INPUT_SECONDS_MAX: u32 = 10;

/// The most memory that a target may have, libFuzzer's own and the corpus included, in MiB. What an
/// input may allocate is limited far lower, in `crates/lads-fuzz`.
const RSS_MIB_MAX: u32 = 512;

/// What cargo-fuzz gives for instrumentation: counters at each edge, and what is compared.
const RUSTFLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Look for inputs that end badly, of one target or of all; or play inputs again
#[derive(Debug, PartialEq, Eq, clap::Parser)]
pub(crate) struct Arguments {
    /// One target, instead of all
    target: Option<String>,
    /// Inputs to play again, instead of looking for new ones
    inputs: Vec<PathBuf>,
    // To libFuzzer, zero is without end.
    /// For how long each target is run
    #[arg(long, value_name = "N", default_value_t = SECONDS)]
    seconds: u32,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { target: None, inputs: Vec::new(), seconds: SECONDS }
    }
}

/// Runs what was asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let all = targets()?;
    let targets = match &arguments.target {
        None => all,
        Some(one) if all.contains(one) => vec![one.clone()],
        Some(other) => bail!("no target is called {other}; there are: {}", all.join(" ")),
    };
    let programs = build(&targets)?;
    match arguments.inputs.is_empty() {
        true => look(&programs, &targets, arguments.seconds),
        false => play(&programs.join(&targets[0]), &arguments.inputs),
    }
}

/// The names of all targets, as their programs are called.
fn targets() -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(directory().join("targets"))? {
        let path = entry?.path();
        let name =
            path.file_stem().and_then(|stem| stem.to_str()).context("the name of a target")?;
        targets.push(name.to_owned());
    }
    targets.sort();
    Ok(targets)
}

fn directory() -> PathBuf {
    shell::root().join("fuzz")
}

/// Builds the programs of some targets; says in which directory they are.
fn build(targets: &[String]) -> Result<PathBuf> {
    let host = host()?;
    let target_dir = directory().join("target");
    let mut cargo = shell::cargo();
    // With the machine named as target, build scripts are compiled without these flags.
    cargo.args(["build", "--quiet", "--release", "--locked", "--target", &host]);
    cargo.arg("--manifest-path").arg(directory().join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target_dir);
    targets.iter().for_each(|target| {
        cargo.args(["--bin", target]);
    });
    shell::run(cargo.env("RUSTFLAGS", RUSTFLAGS.join(" ")))?;
    Ok(target_dir.join(host).join("release"))
}

/// What the compiler calls this machine.
fn host() -> Result<String> {
    let version = shell::output(shell::command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV does not say what machine this is")?.to_owned())
}

/// Runs each target for a while, as many at a time as there are processors.
fn look(programs: &Path, targets: &[String], seconds: u32) -> Result<()> {
    let waiting: Mutex<VecDeque<&String>> = Mutex::new(targets.iter().collect());
    let failures: Mutex<Vec<String>> = Mutex::default();
    let next = || waiting.lock().expect("no thread panics").pop_front();
    let look_at_next = || {
        while let Some(target) = next() {
            if let Err(error) = look_at(programs, target, seconds) {
                failures.lock().expect("no thread panics").push(format!("{error:#}"));
            }
        }
    };
    thread::scope(|scope| {
        let count = thread::available_parallelism().map_or(1, usize::from).min(targets.len());
        (0..count).for_each(|_| {
            scope.spawn(look_at_next);
        });
    });
    let failures = failures.into_inner().expect("no thread panics");
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
}

/// Runs one target for a while.
fn look_at(programs: &Path, target: &str, seconds: u32) -> Result<()> {
    let [corpus, seeds, regressions, artifacts] =
        ["corpus", "seeds", "regressions", "artifacts"].map(|it| directory().join(it).join(target));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let log = artifacts.join("log");
    let mut fuzzer = fuzzer(&programs.join(target));
    // Zero is without end.
    fuzzer.arg(format!("-max_total_time={}", seconds.max(1)));
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
    // What is new goes into the first directory; the others are only read.
    fuzzer.arg(corpus).args([seeds, regressions].iter().filter(|path| path.is_dir()));
    let output = fs::File::create(&log)?;
    let status = fuzzer.stdout(output.try_clone()?).stderr(output).status();
    let status = status.with_context(|| format!("cannot start {target}"))?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() {
        println!("fuzz: {target}: {}", summary(&said));
        return Ok(());
    }
    // The input stands near the end, in full where it is short, with what was wrong above it.
    println!("{}", tail(&said));
    let Some(input) = input_of(&said) else {
        bail!("{target} failed ({status}), without an input; all that it said: {}", log.display());
    };
    bail!(
        "{target} failed ({status}) with {input}; again: cargo xtask fuzz {target} {input}; \
         mended, that input belongs to fuzz/regressions/{target}"
    )
}

/// Runs a target with inputs that are there.
fn play(program: &Path, inputs: &[PathBuf]) -> Result<()> {
    shell::run(fuzzer(program).args(inputs).env("RUST_BACKTRACE", "1"))
}

fn fuzzer(program: &Path) -> Command {
    let mut fuzzer = shell::command(program);
    fuzzer.stdin(Stdio::null());
    fuzzer.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    fuzzer.arg(format!("-rss_limit_mb={RSS_MIB_MAX}"));
    fuzzer
}

/// How much was tried: libFuzzer's last word, and the coverage of its last report.
fn summary(said: &str) -> String {
    let done = said.lines().rev().find(|line| line.starts_with("Done ")).unwrap_or("it is done");
    let report = said.lines().rev().find_map(|line| line.split_once(" cov: "));
    let coverage = report.and_then(|(_, rest)| rest.split_whitespace().next());
    coverage.map_or_else(|| done.to_owned(), |edges| format!("{done}, {edges} edges covered"))
}

/// The path of the input that a fuzzer has kept.
fn input_of(said: &str) -> Option<&str> {
    said.lines().rev().find_map(|line| line.split_once("Test unit written to ")).map(|(_, it)| it)
}

fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_target_its_inputs_and_a_time_are_asked_for() {
        let parse = |words: &[&str]| Arguments::try_parse_from([&["fuzz"], words].concat());
        assert_eq!(parse(&[]).unwrap(), Arguments::default());
        let inputs = ["a", "b"].map(PathBuf::from).to_vec();
        let one = Arguments { target: Some("frame".to_owned()), seconds: 5, inputs };
        assert_eq!(parse(&["frame", "--seconds", "5", "a", "b"]).unwrap(), one);
        assert!(parse(&["--seconds"]).is_err());
        assert!(parse(&["--minutes", "5"]).is_err());
    }

    #[test]
    fn the_last_words_of_a_fuzzer_are_understood() {
        let good = "#2\tINITED cov: 10 ft: 11\n#9\tpulse  cov: 12 ft: 13 corp: 2/5b\n\
                    Done 9 runs in 2 second(s)\n";
        assert_eq!(summary(good), "Done 9 runs in 2 second(s), 12 edges covered");
        let bad =
            "thread panicked\nartifact_prefix='a/'; Test unit written to a/crash-1\nBase64: AA==\n";
        assert_eq!(input_of(bad), Some("a/crash-1"));
    }

    /// Each target has a program, and the manifest knows of it.
    #[test]
    fn every_target_is_built() {
        let manifest = fs::read_to_string(directory().join("Cargo.toml")).unwrap();
        let targets = targets().unwrap();
        assert!(targets.len() >= 7, "{targets:?}");
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
        }
    }
}
