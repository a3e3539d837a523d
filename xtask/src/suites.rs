//! Runs the MPI-IO test suites of other projects (ROMIO, MPICH, mpi4py) on a local file and on a
//! remote file, and compares the results; and of HDF5 and PnetCDF the programs that synchronise by
//! messages alone.
//!
//! The sources are those of the releases that Debian has: `apt-get source` fetches them (those of
//! MPICH contain ROMIO), and pip those of mpi4py. Each test program runs with the same MPI on both
//! files: as it is, and with two libraries preloaded. The first gives its files names that begin
//! with `rfs:` (`suites/renamed.c`) and the second is the shim. A test that passes on a local file
//! must pass on a remote one. Programs of MPICH preload `suites/yielding.c` in both cases.

mod programs;

use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use lads_shims::Mpi;
use programs::{Program, Suite};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The longest test takes 20 seconds on two processors. Tests of MPIs can hang on a local file.
const DEADLINE_SECONDS: &str = "120";

/// Debian's own Python, which has mpi4py.
const PYTHON: &str = "/usr/bin/python3";

/// What is to be run
#[derive(Args, Debug)]
#[command(
    about = "Run MPI-IO tests of ROMIO, MPICH, mpi4py, HDF5 and PnetCDF on local and remote files"
)]
pub(crate) struct Arguments {
    /// Only tests with this in `MPI/SUITE/NAME`, such as mpich/romio or shared_fp
    filter: Option<String>,
    /// How often each test runs on a remote file
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeats: u32,
}

/// An MPI of Debian.
#[derive(Clone, Copy, Debug)]
struct Implementation {
    name: &'static str,
    mpi: Mpi,
}

const IMPLEMENTATIONS: [Implementation; 2] = [
    Implementation { name: "mpich", mpi: Mpi::Mpich },
    Implementation { name: "openmpi", mpi: Mpi::OpenMpi },
];

impl Implementation {
    fn command(self, name: &str) -> String {
        format!("{name}.{}", self.name)
    }
}

/// The result of a test on one file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// With the first line of its output that is about an error.
    Failed(String),
}

/// The place of the files of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilePlace {
    Local,
    Remote,
}

/// The libraries that a program preloads.
#[derive(Debug)]
struct Preloaded {
    always: Vec<String>,
    for_remote: [String; 2],
}

impl Preloaded {
    /// Returns the value of `LD_PRELOAD`, which may be empty.
    fn by(&self, files: FilePlace) -> String {
        let remote = if files == FilePlace::Remote { &self.for_remote[..] } else { &[] };
        [&self.always[..], remote].concat().join(":")
    }
}

/// The numbers of tests of a suite with one MPI.
#[derive(Debug, Default, PartialEq)]
struct Row {
    passed_locally: usize,
    passed_remotely: usize,
    /// Tests that pass on a local file and fail on a remote one.
    worse: Vec<String>,
    /// Tests that fail on a local file and pass on a remote one.
    better: Vec<String>,
    failed_on_both: Vec<String>,
    /// Tests that cannot be compiled with this MPI.
    not_compiled: Vec<String>,
}

/// Runs the tests and prints a table.
///
/// # Errors
/// If a test passes on a local file and fails on a remote one, or if tests cannot be run.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let bed = Bed::new()?;
    let suites = programs::all(&bed.sources)?;
    let preloaded: Result<Vec<_>> =
        IMPLEMENTATIONS.map(|it| bed.preloaded(it)).into_iter().collect();
    let preloaded = preloaded?;
    let mut worse = Vec::new();
    println!(
        "| MPI | suite | pass on a local file | pass on a remote file | fail only on a remote file |"
    );
    println!("|---|---|---|---|---|");
    for (implementation, preloaded) in IMPLEMENTATIONS.into_iter().zip(preloaded) {
        for suite in &suites {
            let row = bed.row(implementation, suite, &preloaded, arguments)?;
            if row == Row::default() {
                continue;
            }
            println!(
                "| {} | {} | {} | {} | {} |",
                implementation.mpi.title(),
                suite.title,
                row.passed_locally,
                row.passed_remotely,
                row.worse.len()
            );
            row.print_names();
            worse.extend(row.worse);
        }
    }
    match worse.len() {
        0 => Ok(()),
        count => bail!("{count} tests pass on a local file and fail on a remote one"),
    }
}

impl Row {
    fn add(&mut self, name: String, local: &Outcome, remote: &Outcome) {
        let passed = |outcome: &Outcome| usize::from(*outcome == Outcome::Passed);
        self.passed_locally += passed(local);
        self.passed_remotely += passed(remote);
        match (local, remote) {
            (Outcome::Passed, Outcome::Failed(why)) => self.worse.push(format!("{name}: {why}")),
            (Outcome::Failed(_), Outcome::Passed) => self.better.push(name),
            (Outcome::Failed(_), Outcome::Failed(_)) => self.failed_on_both.push(name),
            (Outcome::Passed, Outcome::Passed) => {}
        }
    }

    /// Prints the tests that do not pass on both files, on standard error.
    #[expect(clippy::print_stderr, reason = "the table on standard output has only numbers")]
    fn print_names(&self) {
        for (names, what) in [
            (&self.worse, "fails only on a remote file"),
            (&self.better, "fails only on a local file"),
            (&self.failed_on_both, "fails on both"),
            (&self.not_compiled, "cannot be compiled"),
        ] {
            names.iter().for_each(|name| eprintln!("{what}: {name}"));
        }
    }
}

/// The directory of a run, the sources of the tests, and a server.
struct Bed {
    server: Server,
    sources: PathBuf,
    static_library: PathBuf,
    /// This is the last field, so that it is removed when the server has stopped.
    scratch: Scratch,
}

impl Bed {
    fn new() -> Result<Self> {
        let lads = shell::build_lads()?;
        let build = ["build", "--release", "--quiet", "--package", "lads-mpiio"];
        shell::run(shell::cargo().args(build))?;
        let target = shell::target_dir()?;
        let library = lads_shims::newest_static_library(&target.join("release"));
        let static_library = library.map_err(|text| anyhow!(text))?;
        let sources = target.join("suites");
        fetch(&sources)?;
        let scratch = Scratch::new(&std::env::temp_dir(), "lads-suites")?;
        fs::create_dir(scratch.join("root"))?;
        fs::create_dir(scratch.join("local"))?;
        let server = Server::start(&lads, &scratch)?;
        Ok(Self { server, sources, static_library, scratch })
    }

    /// Builds the libraries that a program of an MPI preloads.
    fn preloaded(&self, implementation: Implementation) -> Result<Preloaded> {
        let (mpi, compiler) = (implementation.mpi, implementation.command("mpicc"));
        let directory = self.scratch.join("");
        let shim = lads_shims::build(mpi, &compiler, &self.static_library, &directory, &[]);
        let shim = shim.map_err(|text| anyhow!(text))?;
        let compiled = |name: &str| -> Result<String> {
            let library = self.scratch.join(&format!("{name}-{}.so", implementation.name));
            let source = format!("{}/src/suites/{name}.c", env!("CARGO_MANIFEST_DIR"));
            let mut compile = Command::new(&compiler);
            compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
            shell::run_quietly(compile.arg("-ldl"))?;
            Ok(library.display().to_string())
        };
        let always = match mpi {
            // An environment variable lets its processes yield.
            Mpi::OpenMpi => Vec::new(),
            _ => vec![compiled("yielding")?],
        };
        Ok(Preloaded { always, for_remote: [compiled("renamed")?, shim.display().to_string()] })
    }

    fn row(
        &self,
        implementation: Implementation,
        suite: &Suite,
        preloaded: &Preloaded,
        arguments: &Arguments,
    ) -> Result<Row> {
        let mut row = Row::default();
        for program in &suite.programs {
            let name = format!("{}/{}/{}", implementation.name, suite.title, program.name);
            if arguments.filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str())) {
                continue;
            }
            let build = self.scratch.join("build");
            let _ = fs::remove_dir_all(&build);
            fs::create_dir(&build)?;
            let Some(command) = program.build(&build, |tool| implementation.command(tool))? else {
                row.not_compiled.push(name);
                continue;
            };
            let test = |place| self.test(implementation, program, &command, preloaded, place);
            let local = test(FilePlace::Local)?;
            let remote = repeated(arguments.repeats, || test(FilePlace::Remote))?;
            row.add(name, &local, &remote);
        }
        Ok(row)
    }

    /// Runs a test in an empty directory. With remote files, the directory is that of the server:
    /// some tests look at their files without MPI.
    fn test(
        &self,
        implementation: Implementation,
        program: &Program,
        words: &[String],
        preloaded: &Preloaded,
        files: FilePlace,
    ) -> Result<Outcome> {
        let place = self.scratch.join(if files == FilePlace::Remote { "root" } else { "local" });
        clear(&place)?;
        // `zero_count` reads its own program.
        let own = self.scratch.join("build/program");
        if own.exists() {
            fs::copy(own, place.join("program"))?;
        }
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", DEADLINE_SECONDS, &implementation.command("mpirun")]);
        command.args(["-n", &program.processes.to_string()]);
        let libraries = preloaded.by(files);
        if !libraries.is_empty() {
            match implementation.mpi {
                Mpi::OpenMpi => command.args(["-x", &format!("LD_PRELOAD={libraries}")]),
                _ => command.args(["-env", "LD_PRELOAD", &libraries]),
            };
        }
        if files == FilePlace::Remote {
            command.env("LADS_SUITE_PREFIX", format!("rfs:{}:", self.server.at));
            command.env("LADS_RFS_TOKEN_FILE", &self.server.token);
        }
        for (name, value) in [
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
            ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
        ] {
            command.env(name, value);
        }
        command.args(words).current_dir(place).stdin(Stdio::null());
        Ok(judge(&command.output().context("cannot start timeout")?))
    }
}

/// Repeats a test. It passes if it passes every time.
fn repeated(times: u32, test: impl Fn() -> Result<Outcome>) -> Result<Outcome> {
    let outcomes: Vec<_> = (0..times).map(|_| test()).collect::<Result<_>>()?;
    let failures = outcomes.iter().filter(|it| **it != Outcome::Passed).count();
    Ok(match outcomes.into_iter().find(|it| *it != Outcome::Passed) {
        Some(Outcome::Failed(why)) => Outcome::Failed(format!("{failures} of {times}: {why}")),
        _ => Outcome::Passed,
    })
}

/// Empties a directory. It stays the same one, because the server has it open.
fn clear(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.is_dir() {
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
    }
    Ok(())
}

/// Judges a test by its exit code and its output: some programs print errors and end with 0.
fn judge(output: &Output) -> Outcome {
    let told = [&output.stdout[..], &output.stderr[..]].concat();
    let told = String::from_utf8_lossy(&told);
    let is_error = |line: &&str| {
        let line = line.to_ascii_lowercase();
        line.contains("error") && !line.contains("no errors") && !line.contains(" 0 errors")
    };
    match told.lines().find(is_error) {
        Some(line) => Outcome::Failed(line.to_owned()),
        None if output.status.success() => Outcome::Passed,
        None => Outcome::Failed(told.lines().last().unwrap_or("no output").to_owned()),
    }
}

/// Fetches and unpacks the sources of the tests, unless they are present.
fn fetch(sources: &Path) -> Result<()> {
    fs::create_dir_all(sources)?;
    for package in ["mpich", "hdf5", "pnetcdf"] {
        if !sources.join(package).exists() {
            fetch_package(package, sources)?;
            unpack(package, &format!("{package}_*.orig.tar.*"), sources)?;
        }
    }
    if !sources.join("mpi4py").exists() {
        fetch_release("mpi4py", sources)?;
        unpack("mpi4py", "mpi4py-*.tar.gz", sources)?;
    }
    Ok(())
}

/// Fetches a source package of Debian. The lists of the machine need not name its sources.
fn fetch_package(package: &str, sources: &Path) -> Result<()> {
    let lists = sources.join("lists");
    fs::create_dir_all(lists.join("partial"))?;
    let list = sources.join("sources.list");
    let release = shell::output(
        Command::new("sh").args(["-c", ". /etc/os-release; echo $VERSION_CODENAME"]),
    )?;
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let server =
        format!("deb-src [signed-by={key}] http://deb.debian.org/debian {} main\n", release.trim());
    fs::write(&list, server)?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-qq").current_dir(sources);
        command.arg("-o").arg(format!("Dir::Etc::sourcelist={}", list.display()));
        command.arg("-o").arg("Dir::Etc::sourceparts=-");
        command.arg("-o").arg(format!("Dir::State::lists={}", lists.display()));
        shell::run_quietly(command.args(words))
    };
    apt(&["update"])?;
    apt(&["source", "--download-only", package])?;
    Ok(fs::remove_dir_all(&lists)?)
}

/// Fetches the sources of a Python package from PyPI, in the version that Debian's Python has.
fn fetch_release(package: &str, sources: &Path) -> Result<()> {
    let print = format!("import {package}; print({package}.__version__)");
    let version = shell::output(Command::new(PYTHON).args(["-c", &print]))?;
    let environment = sources.join("venv");
    shell::run_quietly(Command::new(PYTHON).args(["-m", "venv"]).arg(&environment))?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--no-binary", package, &format!("{package}=={}", version.trim())]);
    shell::run_quietly(pip.current_dir(sources))?;
    Ok(fs::remove_dir_all(&environment)?)
}

/// Unpacks the archive of this name into a directory.
fn unpack(directory: &str, archive: &str, sources: &Path) -> Result<()> {
    let unpack = format!(
        "rm -rf new && mkdir new && tar xf {archive} --strip-components=1 -C new && \
         mv new {directory}"
    );
    shell::run_quietly(Command::new("sh").args(["-ec", &unpack]).current_dir(sources))
}

/// A server of remote files on loopback.
struct Server {
    child: Child,
    at: String,
    token: PathBuf,
}

impl Server {
    fn start(lads: &Path, scratch: &Scratch) -> Result<Self> {
        let token = scratch.join("token");
        let mut command = Command::new(lads);
        command.args(["rfs", "serve", "--sessions", "64", "--listen", "127.0.0.1:0", "--root"]);
        command.arg(scratch.join("root")).arg("--token-file").arg(&token);
        let mut child =
            command.stdout(Stdio::piped()).spawn().context("cannot start the server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped above")).read_line(&mut line)?;
        let at = line.trim().strip_prefix("listening on ").map(str::to_owned);
        // Dropped, and so stopped, if it printed something else.
        let server = Self { child, at: at.clone().unwrap_or_default(), token };
        at.map(|_| server).with_context(|| format!("the server printed: {line}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    #[test]
    fn a_test_that_prints_an_error_has_failed_whatever_its_exit_code() {
        let judged = |code: i32, text: &str| {
            judge(&Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: text.as_bytes().to_vec(),
                stderr: Vec::new(),
            })
        };
        assert_eq!(judged(0, " No Errors\n"), Outcome::Passed);
        assert_eq!(judged(0, "done\n"), Outcome::Passed);
        assert_eq!(judged(0, "Found 0 errors\n"), Outcome::Passed);
        assert!(matches!(judged(0, " Found 3 errors\n"), Outcome::Failed(_)));
        assert!(matches!(judged(1, "done\n"), Outcome::Failed(_)));
    }

    #[test]
    fn a_test_counts_where_it_passes() {
        let failed = Outcome::Failed("why".to_owned());
        let mut row = Row::default();
        row.add("both".to_owned(), &Outcome::Passed, &Outcome::Passed);
        row.add("worse".to_owned(), &Outcome::Passed, &failed);
        row.add("better".to_owned(), &failed, &Outcome::Passed);
        row.add("neither".to_owned(), &failed, &failed);
        assert_eq!((row.passed_locally, row.passed_remotely), (2, 2));
        assert_eq!(row.worse, ["worse: why"]);
        assert_eq!(
            (row.better, row.failed_on_both),
            (vec!["better".to_owned()], vec!["neither".to_owned()])
        );
    }
}
