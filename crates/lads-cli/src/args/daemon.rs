//! The arguments of `lads serve`, `lads key` and `lads dial`.

use super::EXAMPLES_FIRST;
use clap::builder::ValueHint;
use clap::{Args, Command};
use lads_core::offer::Access;
use lads_core::protection::DataLevel;
use lads_engine::{DaemonPlace, PublicKey};
use std::path::PathBuf;

const SERVE_EXAMPLES: &str = "\
Examples:
  lads serve --config /etc/lads/serve.toml
      serves the hosts whose keys are in the file
  lads serve --config /etc/lads/serve.toml --check
      checks the file, and shows who may do what
";

const SERVE_ABOUT: &str = "\
Serves transfers with hosts that have no ssh between them.

The configuration names the keys of other users or hosts (`lads key`), and for each the directory,
the user of this host and the access of its sessions. Each session is a process of its own, of that
user, which can use no other files. At the other host, paths are lads://HOST/PATH, relative to that
directory. docs/serve.md has an example.

Without --config, this is the other end of a transfer, on standard input and output, as `lads cp` \
starts it through ssh.";

const KEY_EXAMPLES: &str = "\
Examples:
  lads key
      prints your public key, for the administrators of hosts with `lads serve`
  lads key --trust lads://dtn1.example.org ed25519:1f0c...
      from now on, the host dtn1.example.org is the one with this key
  lads key --file /etc/lads/serve.key
      prints the public key of a host; makes the private one if there is none
";

/// `lads serve`.
pub(super) fn serve() -> Command {
    ServeArgs::augment_args(Command::new("serve"))
        .about("Serves transfers with hosts that have no ssh between them")
        .long_about(SERVE_ABOUT)
        .before_help(SERVE_EXAMPLES)
        .help_template(EXAMPLES_FIRST)
}

/// `lads key`.
pub(super) fn key() -> Command {
    KeyArgs::augment_args(Command::new("key"))
        .about("Prints your public key for lads:// hosts, or trusts the key of one")
        .before_help(KEY_EXAMPLES)
        .help_template(EXAMPLES_FIRST)
}

/// `lads dial`.
pub(super) fn dial() -> Command {
    DialArgs::augment_args(Command::new("dial"))
        .about("The connection to a daemon, on stdin and stdout; started by `lads cp`")
        .hide(true)
}

/// The arguments of `lads serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Job of the transfer, if it fits into an argument
    #[arg(value_name = "JOB", hide = true, conflicts_with = "config")]
    pub(crate) job: Option<String>,

    /// Who may do what
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Check the configuration and show who may do what, then exit
    #[arg(long, requires = "config")]
    pub(crate) check: bool,

    /// Log sessions as JSON, one line each
    #[arg(long, requires = "config")]
    pub(crate) json: bool,

    /// Serve the connection on standard input
    #[arg(long, hide = true, requires = "config")]
    pub(crate) session: bool,

    /// Log the connection only if a peer has made it
    #[arg(long, hide = true, requires = "session")]
    pub(crate) only_peers: bool,

    /// Use only files below the current directory, in this way
    #[arg(long, hide = true, value_name = "ACCESS", value_parser = access_of)]
    #[arg(conflicts_with_all = ["config", "job"])]
    pub(crate) confined: Option<Access>,

    /// Protect data at least like this
    #[arg(long, hide = true, value_name = "LEVEL", value_parser = level_of, requires = "confined")]
    pub(crate) data: Option<DataLevel>,

    /// Listen for data on these ports
    #[arg(long, hide = true, value_name = "FIRST-LAST", value_parser = super::parse_ports)]
    #[arg(requires = "confined")]
    pub(crate) ports: Option<(u16, u16)>,
}

/// The arguments of `lads key`.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Private key to print the public one of; made if there is none [default: ~/.config/lads/key]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// Trust a host that shows this key
    #[arg(long, num_args = 2, value_names = ["HOST", "KEY"], conflicts_with = "file")]
    pub(crate) trust: Option<Vec<String>>,
}

impl KeyArgs {
    /// The host and the key that are to be trusted.
    pub(crate) fn trusted(&self) -> Result<Option<(DaemonPlace, PublicKey)>, String> {
        let Some([host, key]) = self.trust.as_deref() else { return Ok(None) };
        let place = DaemonPlace::parse(host).ok_or_else(|| {
            format!("a host is lads://NAME or lads://NAME:PORT, and not {host:?}")
        })?;
        Ok(Some((place, key.parse()?)))
    }
}

/// The arguments of `lads dial`.
#[derive(Args, Debug)]
pub(crate) struct DialArgs {
    /// The daemon
    #[arg(value_name = "lads://HOST", value_parser = place_of)]
    pub(crate) place: DaemonPlace,

    /// What a remote shell would run there; the daemon runs the same
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

fn place_of(text: &str) -> Result<DaemonPlace, String> {
    DaemonPlace::parse(text)
        .ok_or_else(|| "write it like lads://host or lads://host:5237".to_owned())
}

/// Reads an access by its name.
pub(crate) fn access_of(name: &str) -> Result<Access, String> {
    let known = Access::ALL.into_iter().find(|it| it.name() == name);
    known.ok_or_else(|| format!("{name:?} is no access: read, write or read-write"))
}

/// Reads a level of protection by its name.
pub(crate) fn level_of(name: &str) -> Result<DataLevel, String> {
    let known = DataLevel::ALL.into_iter().find(|it| it.name() == name);
    known.ok_or_else(|| format!("{name:?} is no level: encrypted, authenticated or plain"))
}
