//! The test programs of each suite: their sources, and how each is compiled and started.

use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A test suite.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) title: &'static str,
    pub(super) programs: Vec<Program>,
}

/// A test program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) processes: usize,
    language: Language,
    /// The directory of its source.
    directory: PathBuf,
    arguments: Vec<String>,
}

/// The language of a program, with the files that its suite adds to each program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    /// A program of ROMIO's own suite.
    Romio,
    C,
    Fortran77,
    Fortran08,
    Python,
    /// A program of HDF5's own suite, with the shared or the static library.
    Hdf5 {
        is_static: bool,
    },
    /// A program of PnetCDF's own suite.
    Pnetcdf,
}

/// ROMIO's programs, with the number of processes and the arguments of its own `runtests`.
const ROMIO: [(&str, usize, &[&str]); 25] = [
    ("simple", 4, &["-fname", "test"]),
    ("async", 4, &["-fname", "test"]),
    ("async-multiple", 4, &["-fname", "test"]),
    ("atomicity", 4, &["-fname", "test"]),
    ("coll_test", 4, &["-fname", "test"]),
    ("excl", 4, &["-fname", "test"]),
    ("file_info", 4, &["-fname", "test"]),
    ("i_noncontig", 2, &["-fname", "test"]),
    ("noncontig", 2, &["-fname", "test"]),
    ("noncontig_coll", 2, &["-fname", "test"]),
    ("noncontig_coll2", 4, &["-fname", "test"]),
    ("aggregation1", 4, &["-h", "-f", "test"]),
    ("aggregation2", 4, &["test"]),
    ("hindexed", 4, &["test"]),
    ("misc", 4, &["-fname", "test"]),
    ("shared_fp", 4, &["-fname", "test"]),
    ("ordered_fp", 4, &["-fname", "test"]),
    ("split_coll", 4, &["-fname", "test"]),
    ("psimple", 4, &["-fname", "test"]),
    ("error", 1, &["-fname", "test"]),
    ("status", 1, &["-fname", "test"]),
    ("types_with_zeros", 2, &["test"]),
    ("darray_read", 4, &["test"]),
    ("creat_excl", 4, &["-fname", "test"]),
    ("external32", 1, &["test"]),
];

/// Directories of MPICH's tests with tests of files, and their titles in the table.
const MPICH: [(&str, &str, Language); 4] = [
    ("io", "MPICH, C", Language::C),
    ("errors/io", "MPICH, errors", Language::C),
    ("f77/io", "MPICH, Fortran 77", Language::Fortran77),
    ("f08/io", "MPICH, Fortran 2008", Language::Fortran08),
];

/// Programs in Fortran that have functions in C.
const SECOND_SOURCES: [(&str, &str); 2] =
    [("c2f2ciof", "c2f2cio.c"), ("c2f2ciof90", "c2f902cio.c")];

/// Libraries that HDF5's static library needs.
const HDF5_NEEDS: [&str; 5] = ["-lcrypto", "-lcurl", "-lsz", "-lz", "-ldl"];

/// Programs of HDF5 and PnetCDF whose processes synchronise by messages alone between a write and
/// a read.
const HDF5: [&str; 2] = ["t_mpi", "t_shapesame"];
const PNETCDF: &str = "test_vard_multiple";

/// The numbers of processes with which these run.
const PROCESSES: [usize; 3] = [1, 2, 4];

/// Returns all suites, whose sources are in this directory.
pub(super) fn all(sources: &Path) -> Result<Vec<Suite>> {
    let mpich = sources.join("mpich");
    let settings = mpich.join("test/mpi/include/mpitestconf.h");
    fs::write(settings, include_str!("mpitestconf.h"))?;
    let directory = mpich.join("src/mpi/romio/test");
    let of_romio = ROMIO.map(|(name, processes, arguments)| Program {
        name: name.to_owned(),
        processes,
        language: Language::Romio,
        directory: directory.clone(),
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
    });
    let mut suites = vec![Suite { title: "ROMIO", programs: of_romio.into() }];
    for (below, title, language) in MPICH {
        let directory = mpich.join("test/mpi").join(below);
        suites.push(Suite { title, programs: listed(&directory, language)? });
    }
    let python = Program {
        name: "test_io".to_owned(),
        processes: 2,
        language: Language::Python,
        directory: sources.join("mpi4py/test"),
        arguments: Vec::new(),
    };
    let alone = Program { name: "test_io, alone".to_owned(), processes: 1, ..python.clone() };
    suites.push(Suite { title: "mpi4py", programs: vec![python, alone] });
    suites.extend(of_libraries(sources)?);
    Ok(suites)
}

/// Returns the suites of HDF5 and PnetCDF.
fn of_libraries(sources: &Path) -> Result<[Suite; 3]> {
    let hdf5 = sources.join("hdf5/testpar");
    // `configure` writes this one.
    fs::write(hdf5.join("H5srcdir_str.h"), "const char *config_srcdir = \".\";\n")?;
    let programs = |names: &[&str], directory: &Path, language, arguments: &[&str]| {
        let program = |(name, processes): (&&str, usize)| Program {
            name: format!("{name}, {processes}"),
            processes,
            language,
            directory: directory.to_owned(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        };
        let runs = names.iter().flat_map(|name| PROCESSES.map(|processes| (name, processes)));
        runs.map(program).collect()
    };
    let of_hdf5 = |is_static| programs(&HDF5, &hdf5, Language::Hdf5 { is_static }, &[]);
    let pnetcdf = sources.join("pnetcdf/test/testcases");
    let of_pnetcdf = programs(&[PNETCDF], &pnetcdf, Language::Pnetcdf, &["test.nc"]);
    Ok([
        Suite { title: "HDF5", programs: of_hdf5(false) },
        Suite { title: "HDF5, static", programs: of_hdf5(true) },
        Suite { title: "PnetCDF", programs: of_pnetcdf },
    ])
}

/// Returns the programs in the list of a directory of MPICH's tests. Those that need gigabytes of
/// memory are left out.
fn listed(directory: &Path, language: Language) -> Result<Vec<Program>> {
    let list = ["testlist.in", "testlist"].map(|name| directory.join(name));
    let list = list.iter().find(|path| path.exists()).context("a directory has a list")?;
    let text = fs::read_to_string(list)?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("mem="));
    Ok(lines.filter_map(|line| program(line, directory, language)).collect())
}

/// Returns the program in a line such as `rdwrord 4 arg=file`.
fn program(line: &str, directory: &Path, language: Language) -> Option<Program> {
    let mut words = line.split_whitespace();
    let (name, processes) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let arguments = words.filter_map(|word| word.strip_prefix("arg=")).map(str::to_owned);
    let (directory, arguments) = (directory.to_owned(), arguments.collect());
    Some(Program { name, processes, language, directory, arguments })
}

impl Program {
    /// Compiles the program in an empty directory. `tool` returns the command of a compiler of the
    /// MPI, such as `mpicc`. Returns the words that start it; `None` if it cannot be compiled.
    pub(super) fn build(
        &self,
        build: &Path,
        tool: impl Fn(&str) -> String,
    ) -> Result<Option<Vec<String>>> {
        if self.language == Language::Python {
            // Debian's mpi4py is for Open MPI.
            let is_usable = tool("mpicc").ends_with("openmpi");
            return Ok(self.python(build).filter(|_| is_usable));
        }
        if matches!(self.language, Language::Hdf5 { .. } | Language::Pnetcdf) {
            let compiler = tool("mpicc");
            // Debian's PnetCDF is for Open MPI, too.
            let is_usable = self.language != Language::Pnetcdf || compiler.ends_with("openmpi");
            let words = self.build_of_library(build, &compiler)?;
            return Ok(words.filter(|_| is_usable));
        }
        let tests = self.directory.ancestors().find(|path| path.join("util/mtest.c").exists());
        let tests = tests.unwrap_or(&self.directory);
        let source = self.source(build, tests)?;
        let program = build.join("program");
        let mut command = Command::new(tool(if is_c(&source) { "mpicc" } else { "mpifort" }));
        command.arg("-w").arg("-o").arg(&program);
        for directory in [build, &self.directory, &tests.join("include"), &tests.join("util")] {
            command.arg("-I").arg(directory);
        }
        let util = |name: &str| tests.join("util").join(name);
        match self.language {
            Language::Romio => {}
            _ if is_c(&source) => {
                command.args(["mtest.c", "mtest_common.c", "mtest_thread.c"].map(util));
                command.arg("-lpthread");
            }
            Language::Fortran77 => {
                command.args(["-std=legacy", "-fallow-argument-mismatch"]).arg(util("mtest_f77.f"));
            }
            _ => {
                command.arg("-fallow-argument-mismatch").arg(util("mtest_f08.f90"));
            }
        }
        let second = SECOND_SOURCES.iter().find(|(name, _)| *name == self.name);
        command.arg(&source).args(second.map(|(_, name)| self.directory.join(name)));
        command.current_dir(build).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status()?.success() {
            return Ok(None);
        }
        let words = std::iter::once(program.display().to_string());
        Ok(Some(words.chain(self.arguments.iter().cloned()).collect()))
    }

    /// Compiles a program of a library with the compiler of an MPI.
    fn build_of_library(&self, build: &Path, compiler: &str) -> Result<Option<Vec<String>>> {
        let program = build.join("program");
        let name = self.name.split(',').next().unwrap_or(&self.name);
        let beside = |name: &str| self.directory.join("..").join(name);
        let mut command = Command::new(compiler);
        command.args(["-w", "-o"]).arg(&program).arg(self.directory.join(format!("{name}.c")));
        if let Language::Hdf5 { is_static } = self.language {
            let mpi = compiler.rsplit('.').next().unwrap_or(compiler);
            command.arg(format!("-I/usr/include/hdf5/{mpi}")).arg("-I").arg(&self.directory);
            command.arg("-I").arg(beside("src")).arg("-I").arg(beside("test"));
            command.args(["h5test.c", "testframe.c"].map(|name| beside("test").join(name)));
            let libraries = format!("/usr/lib/{}-linux-gnu/hdf5/{mpi}", std::env::consts::ARCH);
            match is_static {
                true => command.arg(format!("{libraries}/libhdf5.a")).args(HDF5_NEEDS),
                false => command.arg(format!("-L{libraries}")).arg("-lhdf5"),
            };
            command.arg("-lm");
        } else {
            command.arg("-I").arg(beside("common")).arg(beside("common/testutils.c"));
            command.arg("-lpnetcdf");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let words = std::iter::once(program.display().to_string());
        let words = words.chain(self.arguments.iter().cloned()).collect();
        Ok(command.status()?.success().then_some(words))
    }

    /// Returns the path of the source. Some are made from templates: `configure` fills in types,
    /// and MPICH's `testmerge` writes the Fortran programs of each kind of access.
    fn source(&self, build: &Path, tests: &Path) -> Result<PathBuf> {
        let template = self.directory.join(format!("{}.c.in", self.name));
        if template.exists() {
            let text = fs::read_to_string(template)?;
            let text = text.replace("@LL@", "lld");
            let path = build.join(format!("{}.c", self.name));
            fs::write(&path, text)?;
            return Ok(path);
        }
        if matches!(self.language, Language::Fortran77 | Language::Fortran08) {
            for (name, text) in [
                ("iooffset.h", "        integer*8 offset\n"),
                ("iodisp.h", "        integer*8 disp\n"),
                ("ioaint.h", "        integer*8 aint\n"),
            ] {
                fs::write(build.join(name), text)?;
            }
            let script = fs::read_to_string(tests.join("maint/testmerge.in"))?;
            fs::write(build.join("testmerge"), script.replace("@PERL@", "/usr/bin/perl"))?;
            let mut merge = Command::new("perl");
            merge.arg("testmerge");
            merge.arg(format!("-defn={}", tests.join("maint/common.defn").display()));
            merge.arg(self.directory.join("ioharness.defn"));
            merge.arg(self.directory.join("ioharness.tlt"));
            shell::run_quietly(merge.current_dir(build))?;
        }
        let endings = ["c", "f", "f90"];
        let paths = [build, &self.directory]
            .into_iter()
            .flat_map(|place| endings.map(|ending| place.join(format!("{}.{ending}", self.name))));
        let mut paths = paths.filter(|path| path.exists());
        paths.next().with_context(|| format!("{} has no source", self.name))
    }

    /// mpi4py's tests create each file with `mkstemp`; the name that this returns is only opened
    /// by MPI.
    fn python(&self, build: &Path) -> Option<Vec<String>> {
        let start = build.join("start.py");
        let text = format!(
            "import sys, unittest\nsys.path.insert(0, {:?})\nimport test_io\nunittest.main(test_io)\n",
            self.directory.display().to_string()
        );
        fs::write(&start, text).ok()?;
        Some(vec![super::PYTHON.to_owned(), start.display().to_string()])
    }
}

fn is_c(source: &Path) -> bool {
    source.extension().is_some_and(|ending| ending == "c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_list_names_a_program_its_processes_and_its_arguments() {
        let read = |line| program(line, Path::new("/io"), Language::C);
        let found = read("simple_collective 1 arg=simple.file").unwrap();
        assert_eq!((found.name.as_str(), found.processes), ("simple_collective", 1));
        assert_eq!(found.arguments, ["simple.file"]);
        assert!(read("").is_none());
    }
}
