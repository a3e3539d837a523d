//! Tests the built files: transfers within each kind of machine and between them, in empty roots,
//! and with an older C library; installed packages and images.

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
    if !setup::is_root() {
        println!("not tried: other roots need root");
        return Ok(());
    }
    let own = MACHINES.iter().zip(programs).find(|(machine, _)| machine.is_this());
    let (_, program) = own.context("there is no program for this machine")?;
    in_an_empty_root(program, &scratch)?;
    in_debian_11(program, &scratch)
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
fn in_an_empty_root(program: &Path, scratch: &Scratch) -> Result<()> {
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

/// Runs the program with the C library of Debian 11, which looks names up for it.
fn in_debian_11(program: &Path, scratch: &Scratch) -> Result<()> {
    let mut script = shell::command("unshare");
    script.args(["-m", "sh"]).arg(shell::root().join("xtask/src/dist/debian-11.sh"));
    shell::run_quietly(script.arg(scratch.join("debian-11")).arg(program))?;
    println!("tried: with the C library of Debian 11");
    Ok(())
}

/// Installs packages for this machine in bare roots, runs what they install, and removes them.
pub(super) fn packages(deb: &Path, rpm: &Path, image: &Path, out: &Path) -> Result<()> {
    if !setup::is_root() {
        println!("not tried: installing packages needs root");
        return Ok(());
    }
    let scratch = Scratch::new(out, "trial")?;
    let root = scratch.join("debian");
    fs::create_dir_all(root.join("var/lib/dpkg/info"))?;
    fs::create_dir_all(root.join("var/lib/dpkg/updates"))?;
    for name in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(name), "")?;
    }
    let dpkg = |words: &[&str]| {
        let mut dpkg = shell::command("dpkg");
        dpkg.arg(format!("--root={}", root.display())).args(words);
        shell::run_quietly(&mut dpkg)
    };
    dpkg(&["--install", &deb.display().to_string()])?;
    is_installed(&root)?;
    dpkg(&["--purge", "lads"])?;
    is_removed(&root)?;
    let root = scratch.join("red-hat");
    fs::create_dir_all(&root)?;
    let run = |words: &[&str]| {
        let mut rpm = shell::command("rpm");
        rpm.arg(format!("--root={}", root.display())).args(["--dbpath", "/var/lib/rpm"]);
        shell::run_quietly(rpm.args(words))
    };
    run(&["--initdb"])?;
    run(&["--install", "--ignoreos", &rpm.display().to_string()])?;
    is_installed(&root)?;
    run(&["--erase", "lads"])?;
    is_removed(&root)?;
    println!("tried: installing packages and removing them");
    in_an_image(image, &scratch)
}

fn is_installed(root: &Path) -> Result<()> {
    let version =
        shell::output(shell::command("chroot").arg(root).args(["/usr/bin/lads", "--version"]))?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version} is installed");
    for path in ["share/man/man1/lads-cp.1.gz", "share/bash-completion/completions/lads"] {
        ensure!(root.join("usr").join(path).exists(), "usr/{path} is not installed");
    }
    Ok(())
}

fn is_removed(root: &Path) -> Result<()> {
    let mut find = shell::command("find");
    find.current_dir(root).args([".", "-path", "./usr/*", "-name", "*lads*"]);
    let left = shell::output(&mut find)?;
    ensure!(left.is_empty(), "removing the package leaves {left}");
    Ok(())
}

/// Checks the digests of an image, unpacks its layers, and runs its entry point.
fn in_an_image(image: &Path, scratch: &Scratch) -> Result<()> {
    let (layout, root) = (scratch.join("layout"), scratch.join("unpacked"));
    fs::create_dir_all(&layout)?;
    fs::create_dir_all(&root)?;
    shell::run_quietly(shell::command("tar").arg("-xf").arg(image).arg("-C").arg(&layout))?;
    let blob = |described: &serde_json::Value| -> Result<PathBuf> {
        let digest = described["digest"].as_str().and_then(|it| it.strip_prefix("sha256:"));
        let digest = digest.context("a part of the image has no digest")?;
        let path = layout.join("blobs/sha256").join(digest);
        ensure!(super::packages::digest(&path)? == digest, "{} is damaged", path.display());
        Ok(path)
    };
    let json = |path: &Path| -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    };
    let manifest = json(&blob(&json(&layout.join("index.json"))?["manifests"][0])?)?;
    let config = json(&blob(&manifest["config"])?)?;
    for layer in manifest["layers"].as_array().context("the image has no layers")? {
        shell::run_quietly(
            shell::command("tar").arg("-xzf").arg(blob(layer)?).arg("-C").arg(&root),
        )?;
    }
    let program = config["config"]["Entrypoint"][0].as_str().context("the image has no program")?;
    shell::run_quietly(shell::command("chroot").arg(&root).args([program, "--version"]))?;
    println!("tried: the image");
    Ok(())
}
