//! Builds the files to download: a static program that runs on any Linux, an archive with its
//! pages, packages, an image, and a list of all components.
//!
//! A static program of glibc must call nothing for which glibc loads a library of the host: it is
//! aborted there if the host has another version of glibc. So the resolver of names, the data base
//! of users and `dlopen` must not be in it (`lads_engine`, `names.rs`). Packages contain a dynamic
//! program, which has them, and the static programs, which it sends to other hosts.

mod dynamic;
mod files;
mod machine;
mod mpi;
mod packages;
mod programs;
mod recipes;
mod sbom;
mod trial;

use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result, ensure};
use dynamic::Zig;
use machine::MACHINES;
use mpi::System;
use packages::Package;
use std::fs;
use std::path::{Path, PathBuf};

/// The time of all files in archives and packages, in seconds since 1970: the same inputs give the
/// same bytes.
const TIME: &str = "1700000000";

/// Build and test the files to download, for x86-64 and aarch64, in target/dist; needs PyPI (Zig)
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Build a second time in another directory, and compare the bytes
    #[arg(long)]
    twice: bool,
}

/// Builds into `target/dist`, tests the files, and prints their sizes.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let out = make()?;
    if arguments.twice { compare(&out) } else { Ok(()) }
}

/// Builds a clone of this directory, and compares the digests of all files.
fn compare(out: &Path) -> Result<()> {
    let changed = shell::output(shell::command("git").args(["status", "--porcelain"]))?;
    ensure!(changed.is_empty(), "a clone would lack these uncommitted changes:\n{changed}");
    let scratch = Scratch::new(&shell::target_dir()?, "dist-again")?;
    let clone = scratch.join("another/directory");
    shell::run(shell::command("git").args(["clone", "--quiet"]).arg(shell::root()).arg(&clone))?;
    shell::run(shell::cargo().args(["xtask", "dist"]).current_dir(&clone))?;
    let sums = |out: &Path| fs::read_to_string(out.join("SHA256SUMS"));
    let (first, second) = (sums(out)?, sums(&clone.join("target/dist"))?);
    ensure!(first == second, "the builds differ:\n{first}\n{second}");
    println!("tried: a build in another directory has the same bytes");
    Ok(())
}

fn make() -> Result<PathBuf> {
    MACHINES.iter().try_for_each(machine::Machine::prepare)?;
    packages::prepare()?;
    mpi::prepare()?;
    let zig = Zig::prepare()?;
    let target = shell::target_dir()?;
    let out = target.join("dist");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot empty {}", out.display()))?;
    }
    fs::create_dir_all(&out)?;
    let scratch = Scratch::new(&out, "trees")?;
    let (mut programs, mut dynamic, mut libraries) = (Vec::new(), Vec::new(), Vec::new());
    for machine in &MACHINES {
        let program = out.join(format!("lads-{}", machine.name));
        machine.build(&target.join("dist-build"), &program)?;
        programs.push(program);
        let program = dynamic_program(&target, machine.name);
        libraries.push(zig.build(machine, &target.join("dist-dynamic"), &program)?);
        dynamic.push(program);
    }
    trial::run(&programs, &dynamic, &scratch)?;
    let mut made = programs.clone();
    let own = MACHINES.iter().position(machine::Machine::is_this);
    let speaker = &programs[own.context("there is no build of LADS for this machine")?];
    for (index, machine) in MACHINES.iter().enumerate() {
        let program = &programs[index];
        let name = files::name(machine);
        files::unpacked(program, speaker, &scratch.join(&name))?;
        made.push(files::archive(&scratch.join(&name), &out.join(format!("{name}.tar")))?);
        let tree = scratch.join(&format!("{name}-tree"));
        files::installed(&dynamic[index], &programs, speaker, &tree)?;
        let package = Package::of_lads();
        let deb = packages::deb(&package, machine, &tree, &out)?;
        let rpm = packages::rpm(&package, machine, &tree, &out)?;
        let image = packages::image(machine, program, &out)?;
        made.extend([deb.clone(), rpm.clone(), image.clone()]);
        // The headers of the MPIs are those of this machine.
        if machine.is_this() {
            let shims = shims(&zig, machine, &libraries[index], &scratch, &out)?;
            trial::packages(&[&deb, &shims[0]], &[&rpm, &shims[1]], &image, &scratch)?;
            made.extend(shims);
        }
    }
    drop(scratch);
    made.push(sbom::write(&out)?);
    let sources = recipes::sources(&out)?;
    made.extend(recipes::write(&sources, &out)?);
    made.push(sources);
    sum_up(&out, &made)?;
    for path in made.iter().chain([&out.join("SHA256SUMS")]) {
        println!("{:>9} bytes  {}", fs::metadata(path)?.len(), path.display());
    }
    Ok(out)
}

/// The path of the dynamic program for a machine, without symbols, below the directory of cargo.
pub(crate) fn dynamic_program(target: &Path, machine: &str) -> PathBuf {
    target.join("dist-dynamic").join(format!("lads-{machine}"))
}

/// Builds the shims, and packs them for Debian, for Red Hat, and as an archive.
fn shims(
    zig: &Zig,
    machine: &machine::Machine,
    library: &Path,
    scratch: &Scratch,
    out: &Path,
) -> Result<[PathBuf; 3]> {
    let package = Package::of_shims();
    let tree = |system| {
        let (shims, tree) = (scratch.join("shims"), scratch.join(&format!("mpi-{system:?}")));
        mpi::build(zig, machine, library, system, &shims)?;
        mpi::installed(&shims, &tree)?;
        Ok::<_, anyhow::Error>(tree)
    };
    let deb = packages::deb(&package, machine, &tree(System::Debian)?, out)?;
    let rpm = packages::rpm(&package, machine, &tree(System::Other)?, out)?;
    let name = files::name(machine).replace("lads-", "lads-mpi-");
    mpi::unpacked(&scratch.join("shims"), &scratch.join(&name))?;
    let archive = files::archive(&scratch.join(&name), &out.join(format!("{name}.tar")))?;
    Ok([deb, rpm, archive])
}

/// Writes the digests of files, as `sha256sum -c` reads them.
fn sum_up(out: &Path, paths: &[PathBuf]) -> Result<()> {
    let mut lines = String::new();
    for path in paths {
        let name = path.strip_prefix(out)?.display();
        lines += &format!("{}  {name}\n", packages::digest(path)?);
    }
    Ok(fs::write(out.join("SHA256SUMS"), lines)?)
}
