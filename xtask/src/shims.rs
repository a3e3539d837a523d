//! Builds the libraries that MPI programs preload, for each MPI that is here.

use crate::shell;
use anyhow::{Result, anyhow, bail};
use clap::Args;
use lads_shims::Mpi;
use std::path::{Path, PathBuf};

/// The compilers that are tried, the user's own first: of two for the same MPI the first counts.
const COMPILERS: [&str; 5] = ["mpicc", "mpicc.mpich", "mpicc.openmpi", "mpicc_abi", "mpicc.mpiabi"];

/// What `cargo xtask shims` is told.
#[derive(Args, Debug)]
#[command(about = "Build the libraries that MPI programs preload, for each installed MPI")]
pub(crate) struct Arguments {
    /// The compiler wrapper of an MPI; may be repeated [default: all that are in PATH]
    #[arg(long, value_name = "COMMAND")]
    mpicc: Vec<String>,

    /// Where to put them [default: lib/lads beside the bin of the installed lads]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Builds them, and says where they are.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let compilers = match arguments.mpicc.as_slice() {
        [] => found()?,
        named => named_by_user(named)?,
    };
    let directory = arguments.out.clone().map_or_else(beside_lads, Ok)?;
    shell::run(shell::cargo().args(["build", "--release", "--quiet", "--package", "lads-mpiio"]))?;
    let built = shell::target_dir()?.join("release");
    let library = lads_shims::newest_static_library(&built).map_err(|text| anyhow!(text))?;
    println!();
    for (mpi, compiler) in &compilers {
        let shim = lads_shims::build(*mpi, compiler, &library, &directory, &[]);
        let shim = shim.map_err(|text| anyhow!(text))?;
        println!("{}  for {}, by {compiler}", shim.display(), mpi.title());
    }
    println!("\nEnvironment for a program: {} mpi env PROGRAM", command_for(&directory));
    Ok(())
}

/// A compiler for each MPI that is in PATH.
fn found() -> Result<Vec<(Mpi, String)>> {
    let mut all: Vec<(Mpi, String)> = Vec::new();
    for compiler in COMPILERS.into_iter().filter(|name| shell::find(name).is_some()) {
        match lads_shims::mpi_of(compiler) {
            Ok(mpi) if all.iter().any(|(other, _)| *other == mpi) => {}
            Ok(mpi) => all.push((mpi, compiler.to_owned())),
            Err(text) => println!("skipped: {text}"),
        }
    }
    if all.is_empty() {
        bail!(
            "found no MPI: none of {} is in PATH. Load its module, or install it (Debian: \
             libmpich-dev, libopenmpi-dev), or give its compiler: --mpicc COMMAND",
            COMPILERS.join(", ")
        );
    }
    Ok(all)
}

/// The compilers that were named. Two for the same MPI would write the same file.
fn named_by_user(named: &[String]) -> Result<Vec<(Mpi, String)>> {
    let mut all: Vec<(Mpi, String)> = Vec::new();
    for compiler in named {
        let mpi = lads_shims::mpi_of(compiler).map_err(|text| anyhow!(text))?;
        if let Some((_, other)) = all.iter().find(|(it, _)| *it == mpi) {
            bail!("{other} and {compiler} are both for {}: give each an --out", mpi.title());
        }
        all.push((mpi, compiler.clone()));
    }
    Ok(all)
}

/// Beside the `lads` in PATH, or where `cargo install` puts it.
fn beside_lads() -> Result<PathBuf> {
    let command = shell::find("lads").and_then(|path| path.canonicalize().ok());
    let directory = command.as_deref().and_then(lads_shims::directory_beside);
    directory.or_else(|| Some(cargo_root()?.join("lib/lads"))).ok_or_else(|| {
        anyhow!("lads is not in PATH, and there is no home directory: give --out DIR")
    })
}

/// Where cargo installs programs, below `bin`.
fn cargo_root() -> Option<PathBuf> {
    let root = ["CARGO_INSTALL_ROOT", "CARGO_HOME"].into_iter().find_map(std::env::var_os);
    root.map(PathBuf::from).or_else(|| Some(std::env::home_dir()?.join(".cargo")))
}

/// The command that finds shims in a directory by itself, or is told of it.
fn command_for(directory: &Path) -> String {
    let is_found =
        beside_lads().is_ok_and(|it| it.canonicalize().ok() == directory.canonicalize().ok());
    match is_found {
        true => "lads".to_owned(),
        false => format!("LADS_SHIMS={} lads", directory.display()),
    }
}
