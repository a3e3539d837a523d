//! Builds what people download: one file of LADS that runs on any Linux, and an archive with its
//! pages.
//!
//! The file is static. A static program of glibc must call nothing for which glibc loads a library
//! of the host: it is aborted there if the host has another version of glibc. So the resolver of
//! names, the data base of users and `dlopen` must not be in it (`lads_engine`, `names.rs`).

use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The machine that is built for, in the words of `uname -m`, and its target.
const MACHINE: &str = "x86_64";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The largest file that is offered.
const BYTES_MAX: u64 = 8_000_000;
/// Functions of glibc that load libraries of the host.
const FORBIDDEN: [&str; 4] = ["getaddrinfo", "gethostbyname", "getpw", "getgr"];
/// The time of all files in an archive: the same inputs give the same bytes.
const TIME: &str = "@1700000000";

/// Builds into `target/dist`, and prints the files with their sizes.
pub(crate) fn run() -> Result<()> {
    let target = shell::target_dir()?;
    let out = target.join("dist");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot empty {}", out.display()))?;
    }
    fs::create_dir_all(&out)?;
    let built = build(&target.join("dist-build"))?;
    let symbols = shell::output(shell::command("nm").arg(&built))?;
    ensure!(symbols.contains(" T main\n"), "{} has no symbols", built.display());
    ensure!(!has_forbidden(&symbols), "{} is not for all hosts", built.display());
    let file = out.join(format!("lads-{MACHINE}"));
    shell::run(shell::command("strip").arg("-o").arg(&file).arg(&built))?;
    let bytes = fs::metadata(&file)?.len();
    ensure!(
        bytes <= BYTES_MAX,
        "{} has {bytes} bytes, and {BYTES_MAX} are allowed",
        file.display()
    );
    let archive = archive(&file, &out)?;
    sum_up(&out, &[&file, &archive])?;
    for path in [&file, &archive, &out.join("SHA256SUMS")] {
        println!("{:>9} bytes  {}", fs::metadata(path)?.len(), path.display());
    }
    Ok(())
}

/// Builds the static program, with symbols.
fn build(directory: &Path) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let home = home.context("there is no home directory")?;
    // Paths of this machine are not in it.
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Clink-arg=-Wl,--build-id=none".to_owned(),
        format!("--remap-path-prefix={}=/lads", shell::root().display()),
        format!("--remap-path-prefix={}=/cargo", home.display()),
    ];
    let mut cargo = shell::cargo();
    cargo.args(["build", "--locked", "--profile", "dist", "--package", "lads-cli"]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(directory);
    shell::run(cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")))?;
    Ok(directory.join(TARGET).join("dist/lads"))
}

/// Prints the functions of a program, as `nm` lists them, that must not be in it.
fn has_forbidden(listed: &str) -> bool {
    let name = |line: &str| line.split_whitespace().last().unwrap_or_default().to_owned();
    let is_forbidden = |name: &String| {
        let plain = name.trim_start_matches('_');
        FORBIDDEN.iter().any(|it| plain.starts_with(it)) || plain.contains("dlopen")
    };
    let found: Vec<_> = listed.lines().map(name).filter(is_forbidden).collect();
    if !found.is_empty() {
        println!("these need libraries of the host: {}", found.join(", "));
    }
    !found.is_empty()
}

/// An archive of the program, its manual pages, completions and licences.
fn archive(program: &Path, out: &Path) -> Result<PathBuf> {
    let name = format!("lads-{}-{MACHINE}-linux", env!("CARGO_PKG_VERSION"));
    let scratch = Scratch::new(out, "archive")?;
    let root = scratch.join(&name);
    fs::create_dir_all(root.join("completions"))?;
    fs::copy(program, root.join("lads"))?;
    fs::set_permissions(root.join("lads"), fs::Permissions::from_mode(0o755))?;
    for page in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(shell::root().join(page), root.join(page))?;
    }
    shell::run_quietly(shell::command(program).arg("man").arg(root.join("man")))?;
    for language in ["bash", "zsh", "fish"] {
        let text = shell::output(shell::command(program).args(["completions", language]))?;
        fs::write(root.join("completions").join(format!("lads.{language}")), text)?;
    }
    let plain = out.join(format!("{name}.tar"));
    let mut tar = shell::command("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+rw,a-s"]);
    tar.args(["--format=ustar", "--mtime", TIME, "-cf"]).arg(&plain);
    shell::run_quietly(tar.arg("-C").arg(scratch.join("")).arg(&name))?;
    // Without the name and the time of the file.
    shell::run_quietly(shell::command("gzip").args(["-9", "-n", "-f"]).arg(&plain))?;
    Ok(out.join(format!("{name}.tar.gz")))
}

/// Writes the digests of files, as `sha256sum -c` reads them.
fn sum_up(out: &Path, paths: &[&PathBuf]) -> Result<()> {
    let names: Vec<_> = paths.iter().filter_map(|path| path.file_name()).collect();
    if names.len() < paths.len() {
        bail!("a path without a name");
    }
    let sums = shell::output(shell::command("sha256sum").args(names).current_dir(out))?;
    Ok(fs::write(out.join("SHA256SUMS"), sums)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_load_libraries_are_found_under_all_their_names() {
        assert!(!has_forbidden("0000 T main\n0000 t memcpy\n         w pthread_create\n"));
        for name in ["getaddrinfo", "__libc_dlopen_mode", "__getpwuid_r", "getpwnam_r", "dlopen"] {
            let is_found = has_forbidden(&format!("0000000000000000 T main\n0000 T {name}\n"));
            assert!(is_found, "{name}");
        }
    }
}
