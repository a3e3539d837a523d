//! Uses libFuzzer to look for input from a peer or a disk that the code does not handle.
//!
//! The targets are separate programs (`fuzz/`). They are built here with the flags that cargo-fuzz
//! would pass, so that neither cargo-fuzz nor a nightly toolchain has to be installed: coverage
//! instrumentation is an LLVM pass, and the stable compiler can run it, too. A C++ compiler is
//! needed, because libFuzzer is written in C++.
//!
//! libFuzzer runs each target for a while. It begins with the committed seeds and with interesting
//! inputs from earlier runs (`fuzz/corpus`, not committed). An input on which a target fails is
//! kept in `fuzz/artifacts`, and the output says how to play it again.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

/// The default time to run each target, in seconds. In a minute a target takes at least some
/// 100,000 inputs on a slow machine; long before that, new coverage has become rare. Two minutes
/// would add four minutes to CI and would hardly ever find another input.
pub(crate) const SECONDS: u32 = 60;

/// The longest time that one input may take, in seconds. All inputs take milliseconds, but half of
/// this limit might be too short where many other programs run.
const INPUT_SECONDS_MAX: u32 = 10;

/// The most memory that a target may use, in MiB, including libFuzzer itself and the corpus. What
/// an input may allocate has a far lower limit, in `crates/lads-fuzz`.
const RSS_MIB_MAX: u32 = 512;

/// The instrumentation flags of cargo-fuzz: counters at each edge, and tracing of comparisons.
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
    // For libFuzzer, zero means no limit.
    /// For how long each target is run
    #[arg(long, value_name = "N", default_value_t = SECONDS)]
    seconds: u32,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { target: None, inputs: Vec::new(), seconds: SECONDS }
    }
}

/// Runs the requested targets or inputs.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let all = targets()?;
    let targets = match &arguments.target {
        None => all,
        Some(one) if all.contains(one) => vec![one.clone()],
        Some(other) => bail!("unknown target {other}; the targets are: {}", all.join(" ")),
    };
    let programs = build(&targets)?;
    match arguments.inputs.is_empty() {
        true => look(&programs, &targets, arguments.seconds),
        false => play(&programs.join(&targets[0]), &arguments.inputs),
    }
}

/// The names of all targets, which are also the names of their programs.
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

/// Builds the programs of these targets. Returns the directory that holds them.
fn build(targets: &[String]) -> Result<PathBuf> {
    let host = host()?;
    let target_dir = directory().join("target");
    let mut cargo = shell::cargo();
    // With an explicit `--target`, build scripts are compiled without these flags.
    cargo.args(["build", "--quiet", "--release", "--locked", "--target", &host]);
    cargo.arg("--manifest-path").arg(directory().join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target_dir);
    targets.iter().for_each(|target| {
        cargo.args(["--bin", target]);
    });
    shell::run(cargo.env("RUSTFLAGS", RUSTFLAGS.join(" ")))?;
    Ok(target_dir.join(host).join("release"))
}

/// The compiler's name for this machine.
fn host() -> Result<String> {
    let version = shell::output(shell::command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV does not print the host")?.to_owned())
}

/// Runs each target for a while, with one target at a time for each processor.
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
    // For libFuzzer, zero means no limit.
    fuzzer.arg(format!("-max_total_time={}", seconds.max(1)));
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
    // New inputs go into the first directory. The other directories are only read.
    fuzzer.arg(corpus).args([seeds, regressions].iter().filter(|path| path.is_dir()));
    let output = fs::File::create(&log)?;
    let status = fuzzer.stdout(output.try_clone()?).stderr(output).status();
    let status = status.with_context(|| format!("cannot start {target}"))?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() {
        println!("fuzz: {target}: {}", summary(&said));
        return Ok(());
    }
    // The input is near the end of the output, in full if it is short, and the error is above it.
    println!("{}", tail(&said));
    let Some(input) = input_of(&said) else {
        bail!("{target} failed ({status}), without an input; its output: {}", log.display());
    };
    bail!(
        "{target} failed ({status}) with {input}; again: cargo xtask fuzz {target} {input}; after \
         a fix, add that input to fuzz/regressions/{target}"
    )
}

/// Runs a target with existing inputs.
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

/// How much was tried: libFuzzer's final line, and the coverage in its last report.
fn summary(said: &str) -> String {
    let done = said.lines().rev().find(|line| line.starts_with("Done ")).unwrap_or("it is done");
    let report = said.lines().rev().find_map(|line| line.split_once(" cov: "));
    let coverage = report.and_then(|(_, rest)| rest.split_whitespace().next());
    coverage.map_or_else(|| done.to_owned(), |edges| format!("{done}, {edges} edges covered"))
}

/// The path of the input that the fuzzer has saved.
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
