//! The program that will run: which MPI it uses, and whether something can be preloaded into it.
//!
//! What it loads is asked of its own loader, which knows better than anyone (search paths, caches,
//! what is preloaded), and runs nothing of the program to say it, as with ldd(1).

use super::elf::Elf;
use super::problem::{Problem, quoted};
use lads_shims::Mpi;
use rustix::fs::{Access, getxattr};
use rustix::process::{getegid, geteuid};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries of an MPI that are not the MPI itself: for Fortran, C++ and Java.
const BINDINGS: [&str; 8] = [
    "libmpichfort",
    "libmpichcxx",
    "libmpifort",
    "libmpicxx",
    "libmpi_mpifh",
    "libmpi_usempi",
    "libmpi_cxx",
    "libmpi_java",
];

/// A program that is linked dynamically.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Its name as the person gave it.
    name: String,
    path: PathBuf,
    interpreter: PathBuf,
}

/// A library that is loaded with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Library {
    soname: String,
    path: PathBuf,
}

/// What the loader says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loaded {
    libraries: Vec<Library>,
    /// What it complains of, and goes on.
    pub(super) complaints: String,
}

impl Program {
    /// Finds a program, as a shell does, and sees whether something can be preloaded into it.
    /// `None` if it is a script: the program that runs it decides.
    pub(super) fn open(name: &Path) -> Result<Option<Self>, Problem> {
        let shown = name.display();
        let path = found(name).ok_or_else(|| {
            let todo = "give its path, or load the module that puts it into PATH";
            Problem::new(format!("there is no program {shown}"), todo)
        })?;
        if rustix::fs::access(&path, Access::EXEC_OK).is_err() {
            let todo = format!("chmod +x {}", quoted(&path.display().to_string()));
            return Err(Problem::new(format!("{shown} is not executable"), todo));
        }
        let elf = Elf::read(&path).map_err(|error| {
            let what = format!("cannot read the program {shown}: {error}");
            Problem::new(what, "the user that starts it must have permission to read it")
        })?;
        let Some(elf) = elf else { return Ok(None) };
        if elf.has_mpi {
            return Err(Problem::new(
                format!("{shown} is linked statically with its MPI: a shim cannot replace it"),
                "link it against the shared library of the MPI, not against its libmpi.a",
            ));
        }
        let interpreter = elf.interpreter.ok_or_else(|| {
            Problem::new(
                format!("{shown} is linked statically: LD_PRELOAD has no effect on it"),
                "link it dynamically, without -static",
            )
        })?;
        Ok(Some(Self { name: shown.to_string(), path, interpreter }))
    }

    /// Its name as the person gave it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What is loaded with it, if this is preloaded.
    pub(super) fn loaded(&self, preload: &OsStr) -> Result<Loaded, Problem> {
        let mut command = Command::new(&self.interpreter);
        command.arg("--list").arg(&self.path).env("LD_PRELOAD", preload);
        let output = command.output().map_err(|error| {
            let loader = self.interpreter.display();
            Problem::new(
                format!("cannot start the loader {loader} of {}: {error}", self.name),
                "the program may be for another architecture: run the check on a host where it \
                 runs",
            )
        })?;
        let complaints = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if !output.status.success() {
            return Err(Problem::new(
                format!("{} cannot be loaded here: {complaints}", self.name),
                "load the modules that it needs, or run the check on a host where it runs",
            ));
        }
        let libraries = parse_list(&String::from_utf8_lossy(&output.stdout));
        Ok(Loaded { libraries, complaints })
    }

    /// Its MPI, and the library that this is; `None` if it loads none when it starts.
    fn mpi(&self) -> Result<Option<(Mpi, Library)>, Problem> {
        let loaded = self.loaded(OsStr::new(""))?;
        match loaded.mpis().as_slice() {
            [] => Ok(None),
            [(mpi, library)] => Ok(Some((*mpi, (*library).clone()))),
            [(_, one), (_, other), ..] => Err(Problem::new(
                format!("{} loads two MPIs: {one} and {other}", self.name),
                "one of its libraries was built with another MPI: build all of them with the same \
                 MPI",
            )),
        }
    }

    /// Why the loader takes no notice of what is to be preloaded, if it does not: the program has
    /// other rights than whoever starts it (ld.so(8), secure-execution mode).
    pub(super) fn privileges(&self) -> Option<Problem> {
        let file = self.path.metadata().ok()?;
        let is_other_user = file.mode() & 0o4000 != 0 && file.uid() != geteuid().as_raw();
        let is_other_group = file.mode() & 0o2010 == 0o2010 && file.gid() != getegid().as_raw();
        let has_capabilities =
            getxattr(&self.path, "security.capability", &mut [0; 64][..]).is_ok();
        let is_told = match (is_other_user, is_other_group, has_capabilities) {
            (true, ..) => "runs as another user (set-user-id)",
            (_, true, _) => "runs as another group (set-group-id)",
            (_, _, true) if !geteuid().is_root() => "has capabilities",
            _ => return None,
        };
        Some(Problem::new(
            format!("{} {is_told}: the loader ignores LD_PRELOAD", self.name),
            "run a copy without these privileges: cp creates one",
        ))
    }
}

/// The MPI that a program uses, and why, in words: what was found, or else what the person says.
/// `program` is what [`Program::open`] gave for the name.
pub(super) fn mpi_of(
    name: &Path,
    program: Option<&Program>,
    told: Option<Mpi>,
) -> Result<(Mpi, String), Problem> {
    let shown = name.display();
    let found = program.map(Program::mpi).transpose()?.flatten();
    match (found, told) {
        (Some((mpi, library)), Some(told)) if mpi != told => Err(Problem::new(
            format!("{shown} uses {}, not {}: {library}", mpi.title(), told.title()),
            "omit --mpi",
        )),
        (Some((mpi, library)), _) => Ok((mpi, format!("{shown} uses {}: {library}", mpi.title()))),
        (None, Some(told)) => Ok((told, format!("{shown}, with {}", told.title()))),
        (None, None) => {
            let lack = match program {
                Some(_) => "loads no MPI that LADS supports when it starts",
                None => "is a script",
            };
            Err(Problem::new(
                format!("{shown} {lack}"),
                "give the MPI that it uses: --mpi mpich, openmpi or mpiabi. For Python, this \
                 prints it: python3 -c 'from mpi4py import MPI; print(MPI.Get_library_version())'",
            ))
        }
    }
}

impl Loaded {
    /// The MPIs that are loaded, the one that is used first.
    pub(super) fn mpis(&self) -> Vec<(Mpi, &Library)> {
        let is_binding = |it: &Library| BINDINGS.iter().any(|stem| it.soname.starts_with(stem));
        let libraries = self.libraries.iter().filter(|it| !is_binding(it));
        libraries.filter_map(|it| Some((mpi_of_soname(&it.soname)?, it))).collect()
    }

    /// Whether this file is loaded.
    pub(super) fn has(&self, path: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        self.libraries.iter().any(|it| real(&it.path).is_some_and(|it| Some(it) == real(path)))
    }
}

impl std::fmt::Display for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The MPI of a library, by the library's soname.
///
/// MPICH and what has its interface agreed on the version 12, under several names. Open MPI 2 has
/// 20, later ones have 40.
pub(super) fn mpi_of_soname(soname: &str) -> Option<Mpi> {
    let (stem, version) = soname.split_once(".so.")?;
    let version = version.split('.').next()?;
    match (stem, version) {
        ("libmpi_abi", _) => Some(Mpi::StandardAbi),
        (stem, "12") if stem.starts_with("libmpi") => Some(Mpi::Mpich),
        (stem, "20" | "40") if stem.starts_with("libmpi") => Some(Mpi::OpenMpi),
        _ => None,
    }
}

/// Where a program is: a name without a slash is looked for in PATH.
fn found(name: &Path) -> Option<PathBuf> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return name.is_file().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|it| it.is_file())
}

/// Reads lines such as `libmpich.so.12 => /lib/libmpich.so.12 (0x00007fd7fcc00000)`, and
/// `/opt/librfs_mpich.so (0x…)` for what is preloaded.
fn parse_list(text: &str) -> Vec<Library> {
    let library = |line: &str| {
        let line = line.trim();
        let line = line.rsplit_once(" (0x").map_or(line, |(before, _)| before);
        let (soname, path) = line
            .split_once(" => ")
            .unwrap_or_else(|| (line.rsplit('/').next().unwrap_or(line), line));
        path.starts_with('/').then(|| Library { soname: soname.to_owned(), path: path.into() })
    };
    text.lines().filter_map(library).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_belongs_to_one_mpi() {
        for (soname, mpi) in [
            ("libmpich.so.12", Some(Mpi::Mpich)),
            ("libmpi.so.12", Some(Mpi::Mpich)),
            ("libmpi.so.12.2.2", Some(Mpi::Mpich)),
            ("libmpi_cray.so.12", Some(Mpi::Mpich)),
            ("libmpichfort.so.12", Some(Mpi::Mpich)),
            ("libmpi.so.40", Some(Mpi::OpenMpi)),
            ("libmpi_usempif08.so.40", Some(Mpi::OpenMpi)),
            ("libmpi_abi.so.1", Some(Mpi::StandardAbi)),
            ("libmpi.so.1", None),
            ("libmpi.so", None),
            ("libmpfr.so.6", None),
            ("libopen-pal.so.40", None),
        ] {
            assert_eq!(mpi_of_soname(soname), mpi, "{soname}");
        }
    }

    #[test]
    fn what_a_loader_prints_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007fee31176000)\n\
                    \t/opt/a b/librfs_mpich.so (0x00007fee30c00000)\n\
                    \tlibmpichfort.so.12 => /lib/libmpichfort.so.12 (0x00007fee30ac2000)\n\
                    \tlibmpi.so.40 => /lib/libmpi.so.40 (0x00007fee30ac1000)\n\
                    \tlibmpich.so.12 => /lib/libmpich.so.12 (0x00007fee2e000000)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007fee31178000)\n";
        let loaded = Loaded { libraries: parse_list(text), complaints: String::new() };
        let mpis: Vec<_> =
            loaded.mpis().into_iter().map(|(mpi, library)| (mpi, library.to_string())).collect();
        let expected = [(Mpi::OpenMpi, "/lib/libmpi.so.40"), (Mpi::Mpich, "/lib/libmpich.so.12")];
        assert_eq!(mpis, expected.map(|(mpi, path)| (mpi, path.to_owned())));
        assert_eq!(loaded.libraries[0].path, Path::new("/opt/a b/librfs_mpich.so"));
        assert_eq!(loaded.libraries.len(), 5);
    }
}
