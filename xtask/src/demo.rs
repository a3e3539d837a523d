//! Shows LADS at work in a minute. LADS copies the Rust compiler, on this host and over ssh, and
//! the copies are compared. Then it copies files between two emulated parallel file systems with
//! slow OSTs.

use crate::bench::room::show;
use crate::scratch::Scratch;
use crate::sshd::Sshd;
use crate::{shell, tree};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Builds LADS and shows it at work.
pub(crate) fn run() -> Result<()> {
    println!(
        "LADS copies the Rust compiler that is installed here to another directory, and over ssh. \
         Then, as root, it copies files between two emulated file systems with some slow disks, \
         compared with cp and rsync. This takes a minute, after LADS is compiled (a minute or two \
         on two cores, unless `cargo build --release` has done that). Only compiled files remain."
    );
    part("Compiling lads");
    let lads = shell::build_quickly("lads-cli", "lads")?;
    show_toolchain(&lads)?;
    part("4. Between two emulated parallel file systems, with a slow OST at each end");
    let missing = show::missing()?;
    if !missing.is_empty() {
        println!("skipped; missing: {}", missing.join("; "));
        return Ok(());
    }
    let testbed = shell::build_quickly("lads-testbed", "lads-testbed")?;
    show::run(&lads, &testbed)
}

fn part(what: &str) {
    println!("\n{what}");
}

fn show_toolchain(lads: &Path) -> Result<()> {
    let sysroot = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
    // The 50,000 pages of documentation are left out: on a slow disk it takes too long to make that
    // many files durable.
    let source = Path::new(sysroot.trim()).join("lib");
    let extent = tree::extent(&source)?;
    let scratch = Scratch::new(&std::env::temp_dir(), "lads-demo")?;
    println!(
        "\nData set: {}, {} files, {} MiB",
        source.display(),
        extent.files,
        extent.bytes >> 20
    );

    part("1. To another directory here: one process reads, another one writes");
    let target = scratch.join("here");
    move_tree(lads, &[], &source, &slashed(&target))?;
    compare(&source, &target)?;

    part("2. The same command again: no work is left");
    move_tree(lads, &[], &source, &slashed(&target))?;
    fs::remove_dir_all(&target).context("cannot remove the first copy")?;

    part("3. To another host, over ssh (this machine, with a separate sshd)");
    let keys = scratch.join("keys");
    fs::create_dir(&keys)?;
    let Some(sshd) = Sshd::start(&keys)? else {
        println!("skipped: sshd is missing; `cargo xtask setup` installs it");
        return Ok(());
    };
    let target = scratch.join("there");
    let remote_shell = sshd.remote_shell();
    let remote_lads = lads.display().to_string();
    let options = ["-e", &remote_shell, "--remote-lads", &remote_lads];
    move_tree(lads, &options, &source, &format!("localhost:{}", slashed(&target)))?;
    compare(&source, &target)
}

fn move_tree(lads: &Path, options: &[&str], source: &Path, target: &str) -> Result<()> {
    let start = Instant::now();
    shell::run(shell::command(lads).arg("cp").args(options).args([&slashed(source), target]))?;
    println!("took {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Compares bytes. If rsync is installed, it compares metadata too, as an independent judge.
fn compare(source: &Path, target: &Path) -> Result<()> {
    if shell::find("rsync").is_none() {
        tree::compare(source, target)?;
        println!(
            "compared: every byte is the same (metadata was not compared, because rsync is \
             missing)"
        );
        return Ok(());
    }
    let arguments = ["-aHAXSnci", "--delete"];
    let paths = [slashed(source), slashed(target)];
    let differences = shell::output(shell::command("rsync").args(arguments).args(&paths))?;
    if !differences.is_empty() {
        bail!("rsync {} finds differences:\n{differences}", arguments.join(" "));
    }
    println!(
        "compared: rsync {} finds no difference in data, owners, permissions, times, links",
        arguments.join(" ")
    );
    Ok(())
}

/// The path with a slash at its end, which means the content of the directory, not the directory
/// itself.
fn slashed(path: &Path) -> String {
    format!("{}/", path.display())
}
