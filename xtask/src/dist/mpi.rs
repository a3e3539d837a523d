//! The shims, which MPI programs preload, as a package.

use super::dynamic::{self, Zig};
use super::files;
use super::machine::Machine;
use crate::scratch::Scratch;
use crate::{setup, shell};
use anyhow::{Context, Result, anyhow};
use lads_shims::Mpi;
use std::fs;
use std::path::{Path, PathBuf};

/// The documentation in the package.
const PAGES: [&str; 3] = ["docs/remote.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// The compilers of the oldest MPIs whose programs can use the shims, and their Debian packages.
const COMPILERS: [(&str, &str); 2] =
    [("mpicc.mpich", "libmpich-dev"), ("mpicc.openmpi", "libopenmpi-dev")];

/// The system for which a package is built. Debian has its own name for the library of MPICH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    Debian,
    Other,
}

/// Returns the name of the library of an MPI.
fn soname(mpi: Mpi, system: System) -> &'static str {
    match (mpi, system) {
        (Mpi::Mpich, System::Debian) => "libmpich.so.12",
        (Mpi::Mpich, System::Other) => "libmpi.so.12",
        (Mpi::OpenMpi, _) => "libmpi.so.40",
        (Mpi::StandardAbi, _) => "libmpi_abi.so.1",
    }
}

/// Installs the headers of all MPIs.
pub(super) fn prepare() -> Result<()> {
    setup::install(&setup::missing(&COMPILERS))?;
    setup::wheel("mpich").map(drop)
}

/// Builds all shims in a directory. `library` is `lads-mpiio` as a static library.
///
/// A shim needs the library of its MPI only by name: an empty library has that name here.
pub(super) fn build(
    zig: &Zig,
    machine: &Machine,
    library: &Path,
    system: System,
    to: &Path,
) -> Result<()> {
    let scratch = Scratch::new(to.parent().context("a directory has a parent")?, "shims")?;
    let compiler = scratch.join("cc");
    zig.compiler(machine, &compiler)?;
    fs::create_dir_all(to)?;
    for mpi in Mpi::ALL {
        let (soname, named) = (soname(mpi, system), scratch.join(mpi.name()));
        fs::create_dir_all(&named)?;
        let mut empty = shell::command(&compiler);
        empty.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(named.join("libnamed.so"));
        shell::run_quietly(empty.arg(format!("-Wl,-soname,{soname}")))?;
        let link = ["-Wl,-s", "-Wl,--build-id=none", "-Wl,--no-as-needed", "-lnamed"];
        let link = link.map(str::to_owned).into_iter().chain([format!("-L{}", named.display())]);
        let options: Vec<_> = headers(mpi)?.into_iter().chain(link).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let shim = to.join(mpi.library());
        let compiler = compiler.to_str().context("a path is not text")?;
        lads_shims::compile(mpi, compiler, library, &shim, &options)
            .map_err(|text| anyhow!(text))?;
        dynamic::check(&shim, &[soname])?;
    }
    Ok(())
}

/// Returns the options with which the compiler of an MPI finds its headers.
fn headers(mpi: Mpi) -> Result<Vec<String>> {
    let compiler = match mpi {
        Mpi::Mpich => PathBuf::from("mpicc.mpich"),
        Mpi::OpenMpi => PathBuf::from("mpicc.openmpi"),
        Mpi::StandardAbi => setup::wheel("mpich")?.join("bin/mpicc_abi"),
    };
    let line = shell::output(shell::command(compiler).arg("-show"))?;
    let is_for_headers = |word: &&str| word.starts_with("-I") || word.starts_with("-D");
    Ok(line.split_whitespace().filter(is_for_headers).map(str::to_owned).collect())
}

/// Creates the tree of the installed package.
pub(super) fn installed(shims: &Path, root: &Path) -> Result<()> {
    place(shims, &root.join("usr/lib/lads"))?;
    files::pages(&PAGES, &root.join("usr/share/doc/lads-mpi"))
}

/// Creates the directory of an archive, which is unpacked in the `PREFIX` of `PREFIX/bin/lads`.
pub(super) fn unpacked(shims: &Path, root: &Path) -> Result<()> {
    place(shims, &root.join("lib/lads"))?;
    files::pages(&PAGES, &root.join("share/doc/lads-mpi"))
}

fn place(shims: &Path, to: &Path) -> Result<()> {
    let names = Mpi::ALL.map(Mpi::library);
    names.iter().try_for_each(|name| files::place(&shims.join(name), &to.join(name), 0o755))
}
