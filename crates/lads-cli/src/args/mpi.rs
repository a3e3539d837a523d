//! Arguments of `lads mpi`.

use super::EXAMPLES_FIRST;
use clap::builder::{PossibleValuesParser, TypedValueParser, ValueHint};
use clap::{Args, Command};
use lads_shims::Mpi;
use std::ffi::OsString;
use std::path::PathBuf;

const ENV_ABOUT: &str = "\
Prints the shell commands that let an MPI program use files named rfs:HOST:PORT:PATH: they set the \
shim for its MPI, which is preloaded, and the file with the token of the server. Comments show how \
to pass the environment through mpirun and srun.

Shims are in the package lads-mpi, or are built in a checkout of LADS: cargo xtask shims";

const ENV_EXAMPLES: &str = "Examples:
  lads mpi env ./simulation             detects its MPI, and prints the environment
  eval \"$(lads mpi env ./simulation)\"   sets it in this shell
  lads mpi env --mpi openmpi            if it cannot be detected: a script, Python

";

const DOCTOR_ABOUT: &str = "\
Checks whether an MPI program can use remote files. Each check has one line: OK, or not OK and the \
remedy. The checks apply to this host and this shell. With a command after --, it runs the command \
and counts the processes in which the shim is in force.";

const DOCTOR_EXAMPLES: &str = "Examples:
  lads mpi doctor                             the environment of this shell
  lads mpi doctor ./simulation                the same, for a program
  lads mpi doctor ./simulation rfs:dtn2:7000:run1/out
                                              also asks the server, which must have the token
  lads mpi doctor -- mpirun -n 4 ./simulation rfs:dtn2:7000:run1/out
                                              runs it, and counts its processes
  LADS_RFS_VERBOSE=1 mpirun -n 4 ./simulation rfs:dtn2:7000:run1/out
                                              without the doctor: its first process prints it

";

const DOCTOR_NOTES: &str = "Exit status:
  0  all is OK
  1  a check failed
  2  the command line is wrong";

/// `lads mpi`.
pub(super) fn command() -> Command {
    Command::new("mpi")
        .about("Sets up remote files for an MPI program, and checks the setup")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(
            MpiEnvArgs::augment_args(Command::new("env"))
                .about("Prints the environment for an MPI program")
                .long_about(ENV_ABOUT)
                .before_help(ENV_EXAMPLES)
                .help_template(EXAMPLES_FIRST),
        )
        .subcommand(
            DoctorArgs::augment_args(Command::new("doctor"))
                .about(
                    "Checks whether remote files are in force for a program, and prints remedies",
                )
                .override_usage(
                    "lads mpi doctor [OPTIONS] [PROGRAM] [rfs:HOST:PORT:PATH] [-- COMMAND...]",
                )
                .long_about(DOCTOR_ABOUT)
                .before_help(DOCTOR_EXAMPLES)
                .after_help(DOCTOR_NOTES)
                .help_template(EXAMPLES_FIRST),
        )
}

/// Directory and choice of the shim.
#[derive(Args, Debug)]
pub(crate) struct ShimArgs {
    /// MPI of the program, if it cannot be detected
    #[arg(long, value_name = "MPI", value_parser = mpi_parser())]
    pub(crate) mpi: Option<Mpi>,

    /// Directory of the shims [default: lib/lads next to the bin of this lads]
    #[arg(long, value_name = "DIR", env = "LADS_SHIMS", hide_env_values = true)]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) shims: Option<PathBuf>,
}

/// Arguments of `lads mpi env`.
#[derive(Args, Debug)]
pub(crate) struct MpiEnvArgs {
    #[command(flatten)]
    pub(crate) shim: ShimArgs,

    /// The program that will run
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub(crate) program: Option<PathBuf>,
}

/// Arguments of `lads mpi doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) shim: ShimArgs,

    /// The program that will run, and a file that it will use
    #[arg(value_name = "PROGRAM or FILE", num_args = 0..=2)]
    #[arg(value_hint = ValueHint::ExecutablePath)]
    pub(crate) subjects: Vec<OsString>,

    /// A command to run, such as mpirun with its arguments; its output goes to stderr
    #[arg(value_name = "COMMAND", last = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn mpi_parser() -> impl TypedValueParser<Value = Mpi> {
    let names = Mpi::ALL.map(Mpi::name);
    PossibleValuesParser::new(names).map(|name| Mpi::named(&name).expect("it is one of them"))
}
