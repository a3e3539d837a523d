//! Measures the cost of comparing two equal trees, with `lads check` and with the programs that a
//! user would use instead.

use super::moves::{self, Uniform};
use super::race::{Mover, take_turns};
use super::table::Table;
use super::{Bench, measure, movers};
use crate::scratch::Scratch;
use crate::{shell, tree};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The number of bytes that the largest data set fills.
pub(super) fn space() -> u64 {
    moves::space("big")
}

/// Lets LADS and its rivals compare each of the data sets of `big`, `medium` and `small`.
pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    ["big", "medium", "small"].into_iter().map(|name| of_set(bench, name)).collect()
}

fn of_set(bench: &Bench, name: &str) -> Result<Table> {
    let set = Uniform::of(name);
    let scratch = Scratch::new(&bench.memory, "lads-bench")?;
    let [source, target] = ["source", "target"].map(|name| scratch.join(name));
    let extent = set.make(&source)?;
    shell::run(shell::command("cp").arg("-a").args([&source, &target]))?;
    let lads = bench.lads.clone();
    let contestants = [
        comparer("lads check", &target, move |source, target| {
            let mut command = shell::command(&lads);
            command.args(["check", "-q"]).args(movers::slashed(source, target));
            (command, |output| output.status.code() == Some(11))
        }),
        comparer("rsync -nac (no network)", &target, |source, target| {
            let mut command = shell::command("rsync");
            command.args(["-nac", "--out-format=%n"]).args(movers::slashed(source, target));
            (command, |output| output.status.success() && !output.stdout.is_empty())
        }),
        comparer("diff -rq (no network)", &target, |source, target| {
            let mut command = shell::command("diff");
            command.arg("-rq").args([source, target]);
            (command, |output| output.status.code() == Some(1))
        }),
    ];
    see_that_a_difference_is_found(&source, &target, &contestants)?;
    let run = |mover: &Mover<'_>| measure::measure(|| (mover.run)(&source, &mover.target));
    let results = take_turns(&contestants, run)?;
    let title = format!("check: 2 × {} × {} bytes, tmpfs, the same", set.files, set.bytes_each);
    Ok(Table::of_race(&title, extent, &results))
}

/// Tells from the output of a comparer whether it has found a difference.
type HasFound = fn(&Output) -> bool;

/// The error of a run that has found a difference.
const DIFFERENT: &str = "there is a difference";

fn comparer<'a>(
    name: &str,
    target: &Path,
    command: impl Fn(&Path, &Path) -> (Command, HasFound) + 'a,
) -> Mover<'a> {
    Mover::new(name, target.to_owned(), move |source, target| {
        let (mut command, has_found) = command(source, target);
        let (elapsed, output) = timed(&mut command)?;
        ensure!(!has_found(&output), DIFFERENT);
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(elapsed)
    })
}

fn timed(command: &mut Command) -> Result<(Duration, Output)> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    Ok((start.elapsed(), output))
}

/// Checks that each contestant finds a difference: one changed byte in the middle of the last file,
/// whose modification time stays the same.
fn see_that_a_difference_is_found(
    source: &Path,
    target: &Path,
    contestants: &[Mover<'_>],
) -> Result<()> {
    let files = tree::files(target)?;
    let (path, bytes) = files.last().context("there are files")?;
    let path = target.join(path);
    let modified = fs::metadata(&path)?.modified()?;
    let file = File::options().read(true).write(true).open(&path)?;
    let flip = || -> Result<()> {
        let mut byte = [0];
        file.read_exact_at(&mut byte, bytes / 2)?;
        file.write_all_at(&[!byte[0]], bytes / 2)?;
        Ok(file.set_modified(modified)?)
    };
    flip()?;
    for contestant in contestants {
        match (contestant.run)(source, target) {
            Err(error) if error.to_string() == DIFFERENT => {}
            outcome => bail!("{} did not find the difference: {outcome:?}", contestant.name),
        }
    }
    flip()
}
