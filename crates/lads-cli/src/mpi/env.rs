//! `lads mpi env`: prints what to set for an MPI program.
//!
//! The lines that set something come first: an `eval` whose argument is not quoted makes one line
//! of all, of which a comment would hide the rest.

use super::preload::{self, entries, is_meant_as_shim};
use super::problem::{Problem, quoted};
use super::program::{Program, mpi_of};
use super::shims::Shims;
use super::token;
use crate::args::MpiEnvArgs;
use anyhow::Result;
use lads_shims::Mpi;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What is to be set.
#[derive(Debug)]
struct Setting {
    mpi: Mpi,
    /// What is preloaded: the shim, behind what is preloaded already.
    preload: String,
    token: Option<PathBuf>,
    program: Option<String>,
    /// Why this MPI.
    because: String,
}

/// Prints it.
pub(crate) fn run(args: &MpiEnvArgs) -> Result<()> {
    let setting = Setting::for_program(args)?;
    Ok(setting.write(&mut io::stdout().lock())?)
}

impl Setting {
    fn for_program(args: &MpiEnvArgs) -> Result<Self, Problem> {
        let shims = Shims::of(&args.shim);
        let program = args.program.as_deref();
        let (mpi, because) = match (program, args.shim.mpi) {
            (Some(name), told) => mpi_of(name, Program::open(name)?.as_ref(), told)?,
            (None, Some(mpi)) => (mpi, format!("for programs that use {}", mpi.title())),
            (None, None) => only_one(&shims)?,
        };
        let preload = with_what_is_preloaded(&shims.of_mpi(mpi)?)?;
        let program = program.map(|it| quoted(&it.display().to_string()));
        let token = token::named().or_else(token::usual);
        let token = token.map(|path| std::path::absolute(&path).unwrap_or(path));
        Ok(Self { mpi, preload, token, program, because })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let exports = self.variables();
        for (name, value) in &exports {
            writeln!(out, "export {name}={value}")?;
        }
        writeln!(out, "\n# {}", self.because)?;
        if self.token.is_none() {
            let Problem { what, todo } = token::missing();
            writeln!(out, "# {what}:\n#   {todo}")?;
        }
        let program = self.program.as_deref().unwrap_or("PROGRAM");
        writeln!(
            out,
            "#\n# For one command, without the above (mpirun is that of {}):",
            self.mpi.title()
        )?;
        writeln!(out, "#   mpirun -n 4 {} {program} ...", self.for_mpirun(&exports))?;
        writeln!(out, "#   srun -n 4 {} {program} ...", for_srun(&exports))?;
        writeln!(out, "#\n# Is it in force?\n#   lads mpi doctor -- mpirun -n 4 {program} ...")
    }

    /// Names and values, quoted for a shell.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let token = self.token.as_ref().map(|path| path.display().to_string());
        let token = token.map(|path| (token::VARIABLE, quoted(&path)));
        [(preload::VARIABLE, quoted(&self.preload))].into_iter().chain(token).collect()
    }

    /// The options of mpirun that give variables to the processes on all hosts. Those of MPICH are
    /// of its launcher, hydra, which most that use MPICH or the standard ABI have.
    fn for_mpirun(&self, variables: &[(&str, String)]) -> String {
        let option = |(name, value): &(&str, String)| match self.mpi {
            Mpi::OpenMpi => format!("-x {name}={value}"),
            Mpi::Mpich | Mpi::StandardAbi => format!("-env {name} {value}"),
        };
        variables.iter().map(option).collect::<Vec<_>>().join(" ")
    }
}

fn for_srun(variables: &[(&str, String)]) -> String {
    let list: String = variables.iter().map(|(name, value)| format!(",{name}={value}")).collect();
    format!("--export=ALL{list}")
}

/// The MPI for which there is a shim, if there is no other.
fn only_one(shims: &Shims) -> Result<(Mpi, String), Problem> {
    match shims.all().as_slice() {
        [mpi] => {
            Ok((*mpi, format!("for programs that use {}: there is no other shim", mpi.title())))
        }
        [] => Err(Problem::new(
            format!("there is no shim in {}", shims.directory().display()),
            "install the package lads-mpi; or build them, in a checkout of LADS: cargo xtask \
             shims; or give their directory: --shims DIR",
        )),
        several => {
            let names: Vec<_> = several.iter().map(|mpi| mpi.name()).collect();
            Err(Problem::new(
                format!("there are shims for several MPIs: {}", names.join(", ")),
                "give the program, or its MPI: --mpi MPI",
            ))
        }
    }
}

/// What `LD_PRELOAD` must be: other libraries stay, other shims go. A library that looks at calls
/// of MPI must stand before the shim to see them.
fn with_what_is_preloaded(shim: &Path) -> Result<String, Problem> {
    let shown = shim.display().to_string();
    if shown.contains([' ', ':']) {
        return Err(Problem::new(
            format!("{} cannot contain {shown}: it has a blank or colon", preload::VARIABLE),
            "put the shim into another directory: cargo xtask shims --out DIR",
        ));
    }
    let value = preload::value();
    let others = entries(&value).filter(|it| !is_meant_as_shim(it));
    let all = others.map(|it| it.display().to_string()).chain([shown]);
    Ok(all.collect::<Vec<_>>().join(":"))
}
