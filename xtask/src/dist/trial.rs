//! Tests the built files: transfers within each kind of machine and between them, in empty roots,
//! and with an older C library; installed packages and images.

use super::machine::{MACHINES, Machine};
use super::programs;
use crate::scratch::Scratch;
use crate::{setup, shell};
use anyhow::{Context, Result, ensure};
use lads_shims::Mpi;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Moves a tree with each program, from each static program to each, and from each dynamic program
/// to the static program of the same machine. Programs are in the order of [`MACHINES`].
pub(super) fn run(programs: &[PathBuf], dynamic: &[PathBuf], roots: &Scratch) -> Result<()> {
    let scratch = Scratch::new(&roots.join(""), "trial")?;
    fs::create_dir_all(scratch.join("from/below"))?;
    fs::write(scratch.join("from/below/file"), vec![7; 3_000_000])?;
    fs::write(scratch.join("from/empty"), "")?;
    let statics = starters(programs, "static", &scratch)?;
    for (here, program) in &statics {
        for (there, other) in &statics {
            over_a_shell(program, other, &scratch)
                .with_context(|| format!("from {} to {}", here.name, there.name))?;
            println!("tried: {} to {}", here.name, there.name);
        }
    }
    let dynamics = starters(dynamic, "dynamic", &scratch)?;
    for ((machine, program), (_, other)) in dynamics.iter().zip(&statics) {
        over_a_shell(program, other, &scratch).with_context(|| machine.name)?;
        println!("tried: dynamic {} to static", machine.name);
    }
    // An emulated program that starts its own file starts the emulator.
    for (_, program) in statics.iter().chain(&dynamics).filter(|(it, _)| it.is_this()) {
        moves(shell::command(program), &[], "", &scratch)?;
    }
    if !setup::is_root() {
        println!("not tried: other roots need root");
        return Ok(());
    }
    let own = MACHINES.iter().position(Machine::is_this);
    let own = own.context("there is no program for this machine")?;
    in_an_empty_root(&programs[own], &scratch)?;
    debian_11(roots)?;
    with_old_resolver(&programs[own], "getent finds no address for it", roots)?;
    with_old_resolver(&dynamic[own], "failed to lookup address information", roots)?;
    println!("tried: static and dynamic with the C library of Debian 11");
    Ok(())
}

/// Returns the machines whose programs run here, with scripts that start them.
fn starters(
    programs: &[PathBuf],
    kind: &str,
    scratch: &Scratch,
) -> Result<Vec<(&'static Machine, PathBuf)>> {
    let mut starters = Vec::new();
    for (machine, program) in MACHINES.iter().zip(programs) {
        if machine.runs(program).is_none() {
            println!("not tried for {}: qemu-{}-static is missing", machine.name, machine.name);
            continue;
        }
        starters.push((machine, starter(machine, program, kind, scratch)?));
    }
    Ok(starters)
}

/// Moves the tree from one program to another one, which a remote shell starts.
fn over_a_shell(program: &Path, other: &Path, scratch: &Scratch) -> Result<()> {
    let shell = scratch.join("shell");
    lads_tried::write_script(&shell, "shift; exec \"$@\"")?;
    let words = [
        format!("--rsh={}", shell.display()),
        format!("--remote-lads={}", other.display()),
        "--data-address=127.0.0.1".to_owned(),
    ];
    moves(shell::command(program), &words, "there:", scratch)
}

/// A script that starts a program, with an emulator if it needs one.
fn starter(machine: &Machine, program: &Path, kind: &str, scratch: &Scratch) -> Result<PathBuf> {
    let path = scratch.join(&format!("{kind}-lads-for-{}", machine.name));
    let command = machine.runs(program).context("it does not run here")?;
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

/// The root with the C library of Debian 11.
fn debian_11(roots: &Scratch) -> Result<()> {
    let mut script = shell::command("sh");
    script.arg(shell::root().join("xtask/src/dist/debian-11.sh"));
    shell::run_quietly(script.arg(roots.join("debian-11")))
}

/// Moves a tree, and looks up names, in the root with the C library of Debian 11.
fn with_old_resolver(program: &Path, message: &str, roots: &Scratch) -> Result<()> {
    let mut script = shell::command("unshare");
    script.args(["-m", "sh"]).arg(shell::root().join("xtask/src/dist/resolver.sh"));
    shell::run_quietly(script.arg(roots.join("debian-11/root")).arg(program).arg(message))
}

/// Installs packages for this machine in roots with the C library of Debian 11, runs what they
/// install, and removes them. [`run`] has made the first root.
pub(super) fn packages(
    debs: &[&Path],
    rpms: &[&Path],
    image: &Path,
    roots: &Scratch,
) -> Result<()> {
    if !setup::is_root() {
        println!("not tried: installing packages needs root");
        return Ok(());
    }
    let from = roots.join("debian-11/root");
    let root = |name: &str| {
        let root = roots.join(name);
        shell::run_quietly(shell::command("cp").arg("-a").args([&from, &root]))?;
        Ok::<_, anyhow::Error>(root)
    };
    as_debian(debs, &root("debian")?)?;
    as_red_hat(rpms, &root("red-hat")?)?;
    println!("tried: installing packages and removing them");
    in_an_image(image, roots)
}

fn as_debian(debs: &[&Path], root: &Path) -> Result<()> {
    let below = root.join("var/lib/dpkg");
    fs::create_dir_all(below.join("info"))?;
    fs::create_dir_all(below.join("updates"))?;
    fs::write(below.join("available"), "")?;
    let libc = |version: &str| {
        let package = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\n\
                       Maintainer: nobody\nDescription: none\n";
        fs::write(below.join("status"), format!("{package}Version: {version}\n"))
    };
    let dpkg = |words: &[&str], packages: &[&Path]| {
        let mut dpkg = shell::command("dpkg");
        dpkg.arg(format!("--root={}", root.display())).args(words).args(packages);
        shell::run_quietly(&mut dpkg)
    };
    libc("2.27-1")?;
    let refusal = dpkg(&["--install"], debs).err().map(|it| it.to_string());
    let is_refused = refusal.is_some_and(|it| it.contains("depends on libc6 (>= 2.28)"));
    ensure!(is_refused, "Debian's package does not depend on its C library");
    dpkg(&["--purge", "lads-mpi", "lads"], &[])?;
    libc("2.28-1")?;
    dpkg(&["--install"], debs)?;
    is_installed(root)?;
    programs::run(root, &programs::of_debian())?;
    dpkg(&["--purge", "lads-mpi", "lads"], &[])?;
    is_removed(root)
}

fn as_red_hat(rpms: &[&Path], root: &Path) -> Result<()> {
    let rpm = |words: &[&str], packages: &[&Path]| {
        let mut rpm = shell::command("rpm");
        rpm.arg(format!("--root={}", root.display())).args(["--dbpath", "/var/lib/rpm"]);
        shell::run_quietly(rpm.args(words).args(packages))
    };
    rpm(&["--initdb"], &[])?;
    let install = ["--install", "--ignoreos"];
    let refusal = rpm(&install, rpms).err().map(|it| it.to_string());
    let is_refused = refusal.is_some_and(|it| it.contains("libc.so.6(GLIBC_2.28)(64bit)"));
    ensure!(is_refused, "Red Hat's package does not depend on its C library");
    rpm(&[&install[..], &["--nodeps"]].concat(), rpms)?;
    is_installed(root)?;
    programs::run(root, &programs::of_wheels()?)?;
    rpm(&["--erase", "lads-mpi", "lads"], &[])?;
    is_removed(root)
}

/// Checks that installed programs run in a root, and find the shims.
fn is_installed(root: &Path) -> Result<()> {
    let lads = |words: &[&str]| {
        let mut lads = shell::command("unshare");
        lads.args(["-m", "sh", "-c"]);
        lads.arg("mount -t proc proc $0/proc && exec chroot $0 /usr/bin/lads \"$@\"");
        shell::output(lads.arg(root).args(words))
    };
    let version = lads(&["--version"])?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version} is installed");
    for path in ["share/man/man1/lads-cp.1.gz", "share/bash-completion/completions/lads"] {
        ensure!(root.join("usr").join(path).exists(), "usr/{path} is not installed");
    }
    for mpi in Mpi::ALL {
        let printed = lads(&["mpi", "env", "--mpi", mpi.name()])?;
        let expected = format!("export LD_PRELOAD=/usr/lib/lads/{}\n", mpi.library());
        ensure!(printed.starts_with(&expected), "the shim is not found: {printed}");
    }
    Ok(())
}

fn is_removed(root: &Path) -> Result<()> {
    let mut find = shell::command("find");
    find.current_dir(root).args([".", "-path", "./usr/*"]);
    let left = shell::output(find.args(["(", "-name", "*lads*", "-o", "-name", "librfs*", ")"]))?;
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
