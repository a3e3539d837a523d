//! Dynamic programs and libraries, which packages contain. They use the C library of their host.
//!
//! Zig links them, because it knows the functions of each version of glibc: a program that the
//! compiler of this machine links needs the glibc of this machine.

use super::machine::{Machine, same_everywhere};
use crate::{setup, shell};
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc, that of Red Hat 8 and Debian 10.
pub(super) const GLIBC: &str = "2.28";

/// Packages of PyPI, both under the MIT licence.
const PACKAGES: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];

/// Libraries that are part of glibc.
const OF_GLIBC: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-"];

/// The directory of Zig.
#[derive(Debug)]
pub(super) struct Zig(PathBuf);

impl Zig {
    /// Installs Zig if it is missing.
    pub(super) fn prepare() -> Result<Self> {
        let directory = shell::target_dir()?.join("wheels/zig");
        if !directory.join("bin/cargo-zigbuild").exists() {
            setup::from_pypi(&PACKAGES.map(str::to_owned), &directory)?;
        }
        Ok(Self(directory.join("bin")))
    }

    /// Returns a command of the directory, which finds Zig.
    fn command(&self, name: &str) -> Result<Command> {
        let mut path = OsString::from(&self.0);
        path.push(":");
        path.push(std::env::var_os("PATH").context("PATH is not set")?);
        let mut command = shell::command(self.0.join(name));
        command.env("PATH", path).env("CARGO_INCREMENTAL", "0");
        Ok(command)
    }

    /// Builds the program, without symbols, and the static library of the shims, whose path it
    /// returns.
    pub(super) fn build(&self, machine: &Machine, directory: &Path, to: &Path) -> Result<PathBuf> {
        let mut cargo = self.command("cargo-zigbuild")?;
        cargo.args(["build", "--locked", "--profile", "dist"]);
        cargo.args(["--package", "lads-cli", "--package", "lads-mpiio"]);
        cargo.args(["--target", &format!("{}.{GLIBC}", machine.target), "--target-dir"]);
        cargo.arg(directory).env("CARGO_ENCODED_RUSTFLAGS", same_everywhere(&[])?);
        shell::run(&mut cargo)?;
        let built = directory.join(machine.target).join("dist");
        let mut strip = shell::command(machine.tool("strip"));
        shell::run(strip.arg("-o").arg(to).arg(built.join("lads")))?;
        check(to, &[])?;
        Ok(built.join("liblads_mpiio.a"))
    }

    /// Writes a script that is a compiler for C for the machine.
    pub(super) fn compiler(&self, machine: &Machine, to: &Path) -> Result<()> {
        let target = machine.target.replace("-unknown", "");
        let zig = self.0.join("python-zig");
        let line = format!("exec '{}' cc -target {target}.{GLIBC} \"$@\"", zig.display());
        Ok(lads_tried::write_script(to, &line)?)
    }
}

/// Checks that a program or library needs no other libraries than these and glibc, and no newer
/// glibc than [`GLIBC`].
pub(super) fn check(path: &Path, others: &[&str]) -> Result<()> {
    let read = |option| shell::output(shell::command("readelf").args(["-W", option]).arg(path));
    for library in between(&read("--dynamic")?, "(NEEDED)", '[', ']') {
        let is_known = OF_GLIBC.iter().any(|it| library.starts_with(it));
        ensure!(is_known || others.contains(&library.as_str()), "{path:?} needs {library}");
    }
    let needs = read("--version-info")?;
    let versions: Vec<_> = between(&needs, "Name: GLIBC_", '_', ' ').collect();
    ensure!(!versions.is_empty(), "{path:?} needs no version of glibc");
    for version in versions {
        ensure!(is_at_most(&version, GLIBC), "{path:?} needs glibc {version}");
    }
    Ok(())
}

/// Returns the words between two characters in the lines that contain `mark`.
fn between(text: &str, mark: &str, from: char, to: char) -> impl Iterator<Item = String> {
    let word = move |line: &str| {
        let (_, rest) = line.split_at_checked(line.find(mark)?)?;
        let (_, rest) = rest.split_once(from)?;
        Some(rest.split(to).next()?.trim().to_owned())
    };
    text.lines().filter_map(word).collect::<Vec<_>>().into_iter()
}

/// Compares versions such as `2.3.4`. A version that is not a number, such as `PRIVATE`, is at most
/// no other version.
fn is_at_most(version: &str, maximum: &str) -> bool {
    let numbers = |text: &str| text.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>();
    matches!((numbers(version), numbers(maximum)), (Ok(one), Ok(other)) if one <= other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for version in ["2.2.5", "2.3.4", "2.17", "2.28"] {
            assert!(is_at_most(version, "2.28"), "{version}");
        }
        for version in ["2.28.1", "2.29", "2.100", "3.0", "PRIVATE"] {
            assert!(!is_at_most(version, "2.28"), "{version}");
        }
    }

    #[test]
    fn the_needs_of_a_program_are_read() {
        let program = std::env::current_exe().unwrap();
        assert!(check(&program, &[]).is_err(), "a test needs libgcc_s and a newer glibc");
        let lines =
            "  0x0010:   Name: GLIBC_2.28  Flags: none  Version: 5\n  000000:  Name: GCC_3\n";
        let versions: Vec<_> = between(lines, "Name: GLIBC_", '_', ' ').collect();
        assert_eq!(versions, ["2.28"]);
    }
}
