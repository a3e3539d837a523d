//! What can be said to `lads rfs`.

use super::EXAMPLES_FIRST;
use clap::builder::ValueHint;
use clap::{Args, Command};
use lads_core::offer::Access;
use lads_core::sizes;
use std::net::SocketAddr;
use std::path::PathBuf;

const SERVE_EXAMPLES: &str = "\
Examples:
  lads rfs serve --root /scratch/results --token-file ~/.rfs-token
      for programs on this host; prints where it listens
  lads rfs serve --listen 192.0.2.7:7000 --root /scratch/results --token-file ~/.rfs-token
      for programs on other hosts, which name files rfs:192.0.2.7:7000:run1/out.nc

rfs:HOST:PATH needs no running server: the program starts one through ssh.
";

const SERVE_ABOUT: &str = "\
Lets MPI programs write and read files below a directory of this host.

Programs need the same token: copy the file to their host, readable by you only, and set
LADS_RFS_TOKEN_FILE to its path. The file is created if it does not exist. All connections are
encrypted, with keys that follow from the token, which never travels.";

const REPLAY_EXAMPLES: &str = "\
Examples:
  lads rfs replay /local/stage/lads-5f2a40b1c3d4e5f6.rfs
      sends the unsent data of a program to the server that it wrote to
  lads rfs replay --server 192.0.2.7:7001 /local/stage/*.rfs
      if the server now listens at another address
";

const REPLAY_ABOUT: &str = "\
Sends data that an MPI program wrote to remote files and could not send.

A program that stages on a local disk (hint rfs_cache_dir) leaves two files there if it is killed,
or loses its server, before all data is sent; the error message names them. Bytes are written at the
offsets and in the order of the program, and made durable; then both files are removed. After a
failure, the same command can be run again.

If a part of the data cannot be read, the rest is sent, both files stay, and the exit code is 7. If
the list itself is damaged or truncated, nothing is sent unless --send-readable is given, because
it is unknown which data the server has already.";

/// `lads rfs`.
pub(super) fn command() -> Command {
    Command::new("rfs")
        .about("Remote files for MPI programs: rfs:host:port:path")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(
            ServeFilesArgs::augment_args(Command::new("serve"))
                .about("Serves the files below a directory to MPI programs")
                .long_about(SERVE_ABOUT)
                .before_help(SERVE_EXAMPLES)
                .help_template(EXAMPLES_FIRST),
        )
        .subcommand(
            ReplayArgs::augment_args(Command::new("replay"))
                .about("Sends data that a program wrote to remote files and could not send")
                .long_about(REPLAY_ABOUT)
                .before_help(REPLAY_EXAMPLES)
                .help_template(EXAMPLES_FIRST),
        )
}

/// Arguments of `lads rfs serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeFilesArgs {
    /// Address to listen on; port 0 is any port
    ///
    /// With a fixed port, programs continue when the server is restarted on this host.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    #[arg(value_parser = parse_address)]
    pub(crate) listen: SocketAddr,

    /// Serve one client on standard input and output, then exit; used through ssh
    ///
    /// No token is needed. Without --root the client can use all files that this user can, and
    /// paths that do not begin with / are below the working directory.
    #[arg(long, conflicts_with_all = ["listen", "token_file", "sessions"])]
    pub(crate) stdio: bool,

    /// Use no other files, in this way
    #[arg(long, hide = true, value_name = "ACCESS", value_parser = super::access_of)]
    #[arg(requires = "stdio")]
    pub(crate) confined: Option<Access>,

    /// The directory that clients see
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(required_unless_present = "stdio")]
    pub(crate) root: Option<PathBuf>,

    /// The file with the token; created if it does not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "stdio")]
    pub(crate) token_file: Option<PathBuf>,

    /// With --stdio and without --root: directory for the lookup of layouts [default: .]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath, requires = "stdio")]
    #[arg(hide_short_help = true, allow_hyphen_values = true)]
    pub(crate) near: Option<PathBuf>,

    /// Maximum number of client processes
    #[arg(long, value_name = "N", default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) sessions: u32,

    /// Memory for pending writes of all clients [default: 1G, or 64M for one]
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) buffers: Option<u64>,

    /// Source of layouts: auto, or as in `lads cp --source layout=SPEC`
    #[arg(long, value_name = "SPEC", default_value = "auto")]
    pub(crate) layout: String,
}

/// Arguments of `lads rfs replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// Lists that programs left behind, with their data next to them
    #[arg(required = true, value_name = "LIST", value_hint = ValueHint::FilePath)]
    pub(crate) lists: Vec<PathBuf>,

    /// Also send the readable data of a damaged list
    ///
    /// Data that the program sent before may be sent again, and replace newer data. Both files
    /// stay.
    #[arg(long)]
    pub(crate) send_readable: bool,

    /// The server, if it has another address now
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) server: Option<String>,

    /// The file with the token of the server; not needed for one that ssh starts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(env = "LADS_RFS_TOKEN_FILE", hide_env_values = true)]
    pub(crate) token_file: Option<PathBuf>,

    /// Command that runs a command on another host, for rfs:HOST:PATH
    ///
    /// The default is that of programs: LADS_RSH, or ssh.
    #[arg(short = 'e', long, value_name = "COMMAND")]
    pub(crate) rsh: Option<String>,

    /// Path of lads on the other host
    ///
    /// The default is that of programs: LADS_REMOTE_LADS, or lads.
    #[arg(long, value_name = "PATH")]
    pub(crate) remote_lads: Option<String>,
}

/// Reads a host, by name or address, and a port.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    lads_engine::address_of(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_names_or_addresses() {
        assert_eq!(parse_address("127.0.0.1:7").unwrap().port(), 7);
        assert_eq!(parse_address("[::1]:7").unwrap().port(), 7);
        assert!(parse_address("localhost:7").unwrap().ip().is_loopback());
        for text in ["", ":7", "7000", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", "::1:7"] {
            parse_address(text).unwrap_err();
        }
    }
}
