//! Measures small accesses through the shared pointer of a remote file, over loopback, compared
//! with the same calls on a file of this host, on each MPI.

use super::super::table::Table;
use super::rfs::{Said, Server, number};
use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Result, anyhow};
use lads_plot::groups::Spread;
use lads_shims::Mpi;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const TITLE: &str =
    "rfs: records of 64 B at the shared pointer, two processes, loopback";

const ROUNDS: usize = 3;
/// A process makes this number of calls of each function.
const CALLS: u32 = 5000;
const FUNCTIONS: [&str; 4] = ["write_shared", "read_shared", "write_ordered", "read_ordered"];

const LIBRARIES: [(Mpi, &str, &str, &str); 2] = [
    (Mpi::Mpich, "MPICH", "mpicc.mpich", "mpirun.mpich"),
    (Mpi::OpenMpi, "Open MPI", "mpicc.openmpi", "mpirun.openmpi"),
];

/// The programs that the benchmark starts in addition to those of MPICH.
pub(in crate::bench) const PROGRAMS: [&str; 2] = ["mpicc.openmpi", "mpirun.openmpi"];

/// An MPI with its shim and the program.
struct Library {
    name: &'static str,
    launcher: &'static str,
    is_open_mpi: bool,
    shim: PathBuf,
    program: PathBuf,
}

impl Library {
    fn build(which: &(Mpi, &'static str, &str, &'static str), scratch: &Scratch) -> Result<Self> {
        let (mpi, name, compiler, launcher) = *which;
        let built = shell::target_dir()?.join("release");
        let of_shims = |text: String| anyhow!(text);
        let library = lads_shims::newest_static_library(&built).map_err(of_shims)?;
        let shim = lads_shims::build(mpi, compiler, &library, &scratch.join(""), &[]);
        let program = scratch.join(launcher);
        let source =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/lads-mpiio/examples/records.c");
        let mut compile = Command::new(compiler);
        compile.args(["-std=gnu11", "-O2", source, "-o"]).arg(&program);
        shell::run(&mut compile)?;
        let shim = shim.map_err(of_shims)?;
        Ok(Self { name, launcher, is_open_mpi: mpi == Mpi::OpenMpi, shim, program })
    }

    /// The seconds that the calls of each function take with a file, which is remote if there is a
    /// token.
    fn seconds(&self, file: &str, token: Option<&Path>) -> Result<[f64; FUNCTIONS.len()]> {
        let mut command = Command::new(self.launcher);
        command.args(["-n", "2"]);
        for (name, value) in [
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ] {
            command.env(name, value);
        }
        if let Some(token) = token {
            command.env("LADS_RFS_TOKEN_FILE", token);
            match self.is_open_mpi {
                true => command.args(["-x", &format!("LD_PRELOAD={}", self.shim.display())]),
                false => command.args(["-env", "LD_PRELOAD"]).arg(&self.shim),
            };
        }
        command.arg(&self.program).args(["64", &CALLS.to_string(), file]);
        let said = Said::by(&mut command)?;
        let mut seconds = [0.0; FUNCTIONS.len()];
        for (function, seconds) in FUNCTIONS.iter().zip(&mut seconds) {
            *seconds = number(said.text(), &format!("{function}="))?;
        }
        Ok(seconds)
    }
}

/// Measures all functions on each MPI, local and remote files in turn, after a round that warms up.
pub(super) fn measure(lads: &Path) -> Result<Table> {
    let scratch = Scratch::new(Path::new("/dev/shm"), "lads-records")?;
    let root = scratch.join("root");
    fs::create_dir(&root)?;
    let server = Server::listen(Command::new(lads), "127.0.0.1", &scratch.join("token"), &root, 2)?;
    let mut rows = Vec::new();
    for which in &LIBRARIES {
        let library = Library::build(which, &scratch)?;
        let (remote, local) = (format!("rfs:{}:records", server.at), scratch.join("local"));
        let mut rounds = Vec::new();
        for _ in 0..=ROUNDS {
            let local = library.seconds(&local.display().to_string(), None)?;
            rounds.push([local, library.seconds(&remote, Some(&server.token))?]);
        }
        for (index, function) in FUNCTIONS.iter().enumerate() {
            let micros = |of: usize| {
                let counted = rounds[1..].iter();
                Spread::of(counted.map(|it| it[of][index] * 1e6 / f64::from(CALLS)))
            };
            let (local, remote) = (micros(0), micros(1));
            let shown = |it: Spread| format!("{:.1} [{:.1}–{:.1}]", it.median, it.min, it.max);
            let times = format!("{:.2} ×", remote.median / local.median);
            rows.push(vec![
                format!("{}, MPI_File_{function}", library.name),
                shown(local),
                shown(remote),
                times,
            ]);
        }
    }
    let head = ["case", "µs a call, local [min–max]", "remote", "of local"];
    Ok(Table::of_words(TITLE, &head, rows))
}
