//! Tries what was built: programs in a root with nothing else in it, within each kind of machine
//! and between them.

use super::machine::{MACHINES, Machine};
use crate::scratch::Scratch;
use crate::{setup, shell};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Moves a tree with each program, and from each to each. `programs` are in the order of
/// [`MACHINES`].
pub(super) fn run(programs: &[PathBuf], out: &Path) -> Result<()> {
    let scratch = Scratch::new(out, "trial")?;
    fs::create_dir_all(scratch.join("from/below"))?;
    fs::write(scratch.join("from/below/file"), vec![7; 3_000_000])?;
    fs::write(scratch.join("from/empty"), "")?;
    let mut starters = Vec::new();
    for (machine, program) in MACHINES.iter().zip(programs) {
        if machine.runs(program).is_none() {
            println!("not tried for {}: qemu-{}-static is missing", machine.name, machine.name);
            continue;
        }
        starters.push((machine, starter(machine, program, &scratch)?));
    }
    for (here, program) in &starters {
        // An emulated program that starts its own file starts the emulator.
        if here.is_this() {
            moves(shell::command(program), &[], "", &scratch)?;
        }
        for (there, other) in &starters {
            let shell = scratch.join("shell");
            lads_tried::write_script(&shell, "shift; exec \"$@\"")?;
            let words = [
                format!("--rsh={}", shell.display()),
                format!("--remote-lads={}", other.display()),
                "--data-address=127.0.0.1".to_owned(),
            ];
            moves(shell::command(program), &words, "there:", &scratch)
                .with_context(|| format!("from {} to {}", here.name, there.name))?;
            println!("tried: {} to {}", here.name, there.name);
        }
    }
    in_an_empty_root(programs, &scratch)
}

/// A script that starts a program, with an emulator if it needs one.
fn starter(machine: &Machine, program: &Path, scratch: &Scratch) -> Result<PathBuf> {
    let path = scratch.join(&format!("lads-for-{}", machine.name));
    let command = machine.runs(program).context("it cannot be run here")?;
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|it| format!("'{}'", it.to_string_lossy())).collect();
    lads_tried::write_script(&path, &format!("exec {} \"$@\"", words.join(" ")))?;
    Ok(path)
}

/// Moves the tree, and compares the copy.
fn moves(mut lads: Command, options: &[String], host: &str, scratch: &Scratch) -> Result<()> {
    let (from, to) = (scratch.join("from"), scratch.join("to"));
    lads.arg("cp").arg("-q").args(options).arg(format!("{}/", from.display()));
    shell::run_quietly(lads.arg(format!("{host}{}", to.display())))?;
    shell::run_quietly(
        shell::command("diff").arg("-r").args(["-x", ".lads-*"]).args([&from, &to]),
    )?;
    Ok(fs::remove_dir_all(to)?)
}

/// Runs the program for this machine where there are no libraries and no files of the system.
fn in_an_empty_root(programs: &[PathBuf], scratch: &Scratch) -> Result<()> {
    if !setup::is_root() {
        println!("not tried in an empty root: this needs root");
        return Ok(());
    }
    let own = MACHINES.iter().zip(programs).find(|(machine, _)| machine.is_this());
    let (_, program) = own.context("there is no program for this machine")?;
    let root = scratch.join("root");
    fs::create_dir_all(root.join("from"))?;
    fs::copy(program, root.join("lads"))?;
    fs::write(root.join("from/file"), "file")?;
    let mut lads = shell::command("unshare");
    lads.args(["-m", "sh", "-c"]);
    lads.arg(
        "mkdir $0/proc && mount -t proc proc $0/proc && exec chroot $0 /lads cp -q /from/ /to",
    );
    shell::run_quietly(lads.arg(&root))?;
    ensure!(fs::read(root.join("to/file"))? == b"file", "an empty root: the copy is different");
    println!("tried: in an empty root");
    Ok(())
}
