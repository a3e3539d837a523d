//! Arguments of `lads doctor`.

use super::{EXAMPLES_FIRST, parse_ports, text};
use clap::{Args, Command};
use std::ffi::OsString;
use std::path::PathBuf;

/// `lads doctor`.
pub(super) fn command() -> Command {
    HostDoctorArgs::augment_args(Command::new("doctor"))
        .about("Checks the way to another host, and both ends of it")
        .long_about(text::DOCTOR_ABOUT)
        .before_help(text::DOCTOR_EXAMPLES)
        .help_template(EXAMPLES_FIRST)
}

/// Arguments of `lads doctor`.
#[derive(Args, Debug)]
pub(crate) struct HostDoctorArgs {
    /// The host, and a directory there [default: the home directory]
    #[arg(value_name = "HOST[:PATH]", required = true)]
    pub(crate) host: OsString,

    /// A directory here
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,

    /// Command that runs a command on another host
    #[arg(short = 'e', long, value_name = "COMMAND", default_value = "ssh")]
    pub(crate) rsh: String,

    /// Path of lads on the other host [default: as for lads cp]
    #[arg(long, value_name = "PATH")]
    pub(crate) remote_lads: Option<String>,

    /// Do not send LADS to a host that does not have it
    #[arg(long)]
    pub(crate) no_deploy: bool,

    /// TCP ports that the other end may open for data, for example 5000-5009
    #[arg(long, value_name = "A-B", value_parser = parse_ports)]
    pub(crate) ports: Option<(u16, u16)>,

    /// Address for the data connections, if not that of the host
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) data_address: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of the part of `lads doctor` on the other host.
#[derive(Args, Debug)]
pub(crate) struct DoctorEndArgs {
    /// First and last port for the trial connection; 0 for any
    #[arg(value_name = "PORT")]
    pub(crate) port_first: u16,

    /// Last port
    #[arg(value_name = "PORT")]
    pub(crate) port_last: u16,

    /// Directory whose storage is examined
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
}
