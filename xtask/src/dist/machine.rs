//! Machines that LADS is built for.

use crate::setup;
use crate::shell;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum size of the program, in bytes.
const BYTES_MAX: u64 = 8_000_000;

/// Functions of glibc that load libraries of the host. The functions that they call, and `dlopen`,
/// are linked into every program, because `fork` refers to them; they are not evidence.
const FORBIDDEN: [&str; 13] = [
    "getaddrinfo",
    "getnameinfo",
    "gethostbyname",
    "gethostbyname2",
    "gethostbyaddr",
    "getpwnam",
    "getpwuid",
    "getpwent",
    "getgrnam",
    "getgrgid",
    "getgrent",
    "getgrouplist",
    "initgroups",
];

/// A kind of machine.
#[derive(Debug)]
pub(super) struct Machine {
    /// In the words of `uname -m` and of rpm.
    pub(super) name: &'static str,
    /// In the words of Debian.
    pub(super) debian: &'static str,
    /// In the words of OCI.
    pub(super) oci: &'static str,
    pub(super) target: &'static str,
    /// Prefix of the names of the cross compiler and binutils.
    prefix: &'static str,
}

/// All machines. The static programs use glibc, because the allocator of musl is slower.
pub(super) const MACHINES: [Machine; 2] = [
    Machine {
        name: "x86_64",
        debian: "amd64",
        oci: "amd64",
        target: "x86_64-unknown-linux-gnu",
        prefix: "x86_64-linux-gnu-",
    },
    Machine {
        name: "aarch64",
        debian: "arm64",
        oci: "arm64",
        target: "aarch64-unknown-linux-gnu",
        prefix: "aarch64-linux-gnu-",
    },
];

impl Machine {
    /// Reports whether programs for the machine run here without an emulator.
    pub(super) fn is_this(&self) -> bool {
        self.name == std::env::consts::ARCH
    }

    /// Returns a command that runs a program for the machine; `None` if that is impossible here.
    pub(super) fn runs(&self, program: &Path) -> Option<Command> {
        if self.is_this() {
            return Some(shell::command(program));
        }
        let mut command = shell::command(shell::find(&format!("qemu-{}-static", self.name))?);
        // The loader and the C library of dynamic programs.
        command.args(["-L", &format!("/usr/{}", self.prefix.trim_end_matches('-'))]).arg(program);
        Some(command)
    }

    /// Returns the name of a program of binutils, or the compiler, for the machine.
    pub(super) fn tool(&self, name: &str) -> String {
        if self.is_this() { name.to_owned() } else { format!("{}{name}", self.prefix) }
    }

    /// Installs the compiler and libraries for the machine.
    pub(super) fn prepare(&self) -> Result<()> {
        let installed =
            shell::output(shell::command("rustup").args(["target", "list", "--installed"]));
        let has_target = installed.is_ok_and(|list| list.lines().any(|it| it == self.target));
        if !has_target {
            shell::run(shell::command("rustup").args(["target", "add", self.target]))?;
        }
        if self.is_this() {
            return Ok(());
        }
        let (compiler, library) = (
            format!("{}gcc", self.prefix),
            format!("/usr/{}/lib/libc.a", &self.prefix[..self.prefix.len() - 1]),
        );
        if shell::find(&compiler).is_none() || !Path::new(&library).exists() {
            let packages = [
                format!("gcc-{}", self.prefix.trim_end_matches('-')),
                format!("libc6-dev-{}-cross", self.debian),
                "qemu-user-static".to_owned(),
            ];
            setup::install(&packages.each_ref().map(String::as_str))?;
        }
        Ok(())
    }

    /// Builds the static program, and removes its symbols.
    pub(super) fn build(&self, directory: &Path, to: &Path) -> Result<()> {
        let flags =
            ["-Ctarget-feature=+crt-static".to_owned(), format!("-Clinker={}", self.tool("gcc"))];
        let mut cargo = shell::cargo();
        cargo.args(["build", "--locked", "--profile", "dist", "--package", "lads-cli"]);
        cargo.args(["--target", self.target, "--target-dir"]).arg(directory);
        shell::run(cargo.env("CARGO_ENCODED_RUSTFLAGS", same_everywhere(&flags)?))?;
        let built = directory.join(self.target).join("dist/lads");
        let symbols = shell::output(shell::command(self.tool("nm")).arg(&built))?;
        ensure!(symbols.contains(" T main\n"), "{} has no symbols", built.display());
        ensure!(!has_forbidden(&symbols), "{} is not for all hosts", built.display());
        shell::run(shell::command(self.tool("strip")).arg("-o").arg(to).arg(&built))?;
        let bytes = fs::metadata(to)?.len();
        ensure!(bytes <= BYTES_MAX, "{}: {bytes} bytes, at most {BYTES_MAX}", to.display());
        Ok(())
    }
}

/// Adds the flags of the compiler that make the bytes independent of the directories of this
/// machine. Returns all flags as cargo reads them.
pub(super) fn same_everywhere(flags: &[String]) -> Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let home = home.context("there is no home directory")?;
    let ours = [
        "-Clink-arg=-Wl,--build-id=none".to_owned(),
        format!("--remap-path-prefix={}=/lads", shell::root().display()),
        format!("--remap-path-prefix={}=/cargo", home.display()),
    ];
    Ok([flags, &ours].concat().join("\x1f"))
}

/// Reports and prints the forbidden functions of a program, as listed by `nm`.
fn has_forbidden(listed: &str) -> bool {
    let name = |line: &str| line.split_whitespace().last().unwrap_or_default().to_owned();
    let is_forbidden = |name: &String| {
        let plain = name.trim_start_matches('_');
        FORBIDDEN.contains(&plain.strip_suffix("_r").unwrap_or(plain))
    };
    let found: Vec<_> = listed.lines().map(name).filter(is_forbidden).collect();
    if !found.is_empty() {
        println!("these programs need libraries of the host: {}", found.join(", "));
    }
    !found.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_load_libraries_are_found_under_all_their_names() {
        for name in ["main", "memcpy", "getgroups", "_nss_files_getpwnam_r", "dlopen"] {
            assert!(!has_forbidden(&format!("0000000000000000 T {name}\n")), "{name}");
        }
        for name in ["getaddrinfo", "__getpwuid_r", "getpwnam_r", "getgrouplist"] {
            let is_found = has_forbidden(&format!("0000000000000000 T main\n0000 T {name}\n"));
            assert!(is_found, "{name}");
        }
    }
}
