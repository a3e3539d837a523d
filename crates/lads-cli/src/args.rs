//! The command line.
//!
//! The texts of `lads --help`, the manual pages and the shell completions all come from here;
//! rsync's options that are only taken or refused come from [`crate::refusals`].

mod bench;
mod check;
mod choice;
mod config;
mod daemon;
mod deploy;
mod doctor;
mod ends;
mod imbalance;
mod ls;
mod mpi;
mod processors;
mod rfs;
mod settings;
mod text;
mod there;
mod threshold;

use crate::refusals;
use clap::builder::ValueHint;
use clap::{Arg, ArgAction, Args, Command, ValueEnum, value_parser};
use lads_core::issue::Side;
use lads_core::placement::Place;
use lads_core::protection::DataLevel;
use lads_core::schedule::Policy;
use lads_core::sizes;
use lads_engine::{IoMode, Verify};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use bench::{BenchArgs, only_for_one_path};
pub(crate) use check::{CheckArgs, only_for_copy};
use choice::ChoiceArgs;
pub(crate) use config::ConfigArgs;
pub(crate) use daemon::{DialArgs, KeyArgs, ServeArgs, access_of, level_of};
pub(crate) use deploy::DeployArgs;
pub(crate) use doctor::{DoctorEndArgs, HostDoctorArgs};
use ends::EndsArgs;
pub(crate) use ends::OrderArg;
pub(crate) use imbalance::ImbalanceArgs;
pub(crate) use ls::LsArgs;
pub(crate) use mpi::{DoctorArgs, MpiEnvArgs, ShimArgs};
use processors::ProcessorArgs;
pub(crate) use rfs::{ReplayArgs, ServeFilesArgs};
pub(crate) use settings::{
    EndSettings, HOLDS_SETTINGS, LabSettings, SinkSettings, SourceSettings, parse,
};
pub(crate) use text::{COPY_EXAMPLES, COPY_NOTES};
pub(crate) use there::{COMMANDS, EXPAND, can_expand};

/// Help that begins with examples.
const EXAMPLES_FIRST: &str =
    "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// The whole command.
pub(crate) fn command() -> Command {
    with_copy(refusals::add_to(copy_command()))
}

/// The command as completions offer it: without options that are only taken to be refused, or to
/// say that they do nothing.
pub(crate) fn offered_command() -> Command {
    with_copy(copy_command())
}

fn with_copy(copy_command: Command) -> Command {
    there::with_expansion(with_hidden(with_all(copy_command)))
}

fn with_all(copy_command: Command) -> Command {
    Command::new("lads")
        .version(&**text::VERSION)
        .about("Moves large data sets between parallel file systems")
        .long_about(text::ABOUT)
        .after_help("`lads cp --help` has examples, all options and the exit codes.")
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(copy_command)
        .subcommand(check::command())
        .subcommand(ls::command())
        .subcommand(
            LayoutArgs::augment_args(Command::new("layout"))
                .about("Shows which storage target holds which part of a file"),
        )
        .subcommand(
            OstsArgs::augment_args(Command::new("osts"))
                .about("Shows the storage targets of a file system, their state and space"),
        )
        .subcommand(
            ProbeArgs::augment_args(Command::new("probe"))
                .about("Shows the capabilities of a file system that lads can use"),
        )
        .subcommand(bench::command())
        .subcommand(
            CleanArgs::augment_args(Command::new("clean"))
                .about("Removes unfinished files of killed transfers from a directory")
                .long_about(text::CLEAN_ABOUT)
                .before_help(text::CLEAN_EXAMPLES)
                .help_template(EXAMPLES_FIRST),
        )
        .subcommand(deploy::command())
        .subcommand(doctor::command())
        .subcommand(config::command())
        .subcommand(
            ImbalanceArgs::augment_args(Command::new("imbalance"))
                .about("Analyses the imbalance of storage targets in recorded bandwidth")
                .long_about(text::IMBALANCE_ABOUT)
                .before_help(text::IMBALANCE_EXAMPLES)
                .after_long_help(text::IMBALANCE_NOTES)
                .help_template(EXAMPLES_FIRST),
        )
        .subcommand(daemon::serve())
        .subcommand(daemon::key())
        .subcommand(rfs::command())
        .subcommand(mpi::command())
        .subcommand(
            ManArgs::augment_args(Command::new("man"))
                .about("Writes the manual pages into a directory"),
        )
        .subcommand(
            CompletionsArgs::augment_args(Command::new("completions"))
                .about("Prints completions for a shell"),
        )
}

/// Options in `lads cp -h` and `lads check -h`, which fit on a screen.
const SHORT_HELP: &[&str] = &[
    "help",
    "paths",
    "dry_run",
    "exclude",
    "files_from",
    "checksum",
    "update",
    "copy_links",
    "delete",
    "devices_and_specials",
    "privileges",
    "metadata",
    "verbose",
    "quiet",
    "json",
    "retry_for",
    "rsh",
    "tunnel",
    "ports",
    "bwlimit",
    "polite",
];

/// Shows only the most important options in short help.
fn with_short_help(command: Command) -> Command {
    command.mut_args(|argument| {
        let is_shown = SHORT_HELP.contains(&argument.get_id().as_str());
        argument.hide_short_help(!is_shown)
    })
}

/// Adds commands that people do not type, or type by habit.
fn with_hidden(command: Command) -> Command {
    command
        .subcommand(
            Command::new("help")
                .about("Prints the help of lads or of a command")
                .arg(Arg::new("command").value_name("COMMAND"))
                .hide(true),
        )
        .subcommand(Command::new("version").about("Prints the version").hide(true))
        .subcommand(daemon::dial())
        .subcommand(
            DoctorEndArgs::augment_args(Command::new("doctor-end"))
                .about("The part of `lads doctor` on the other host; started by it")
                .hide(true),
        )
        .subcommand(
            Command::new("complete")
                .about("Prints the paths on another host that begin with a word host:path")
                .arg(Arg::new("word").required(true).value_parser(value_parser!(OsString)))
                .hide(true),
        )
}

/// `lads cp`, without rsync's options that have no meaning of their own.
fn copy_command() -> Command {
    with_short_help(CopyArgs::augment_args(Command::new("cp")))
        .about("Moves files and directories, also to, from and between other hosts")
        .long_about(text::COPY_ABOUT)
        .override_usage("lads cp [OPTIONS] SRC... DST")
        .help_template(EXAMPLES_FIRST)
        .before_help(text::COPY_EXAMPLES_SHORT)
        .before_long_help(text::examples_help())
        .after_help("`lads cp --help` has all options, details and exit codes.")
        .after_long_help(COPY_NOTES)
        .disable_help_flag(true)
        .args_override_self(true)
}

/// Arguments of `lads layout`.
#[derive(Args, Debug)]
pub(crate) struct LayoutArgs {
    /// Files, also as host:path; for a directory, the layout of new files is printed
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Print JSON, one object per path and line
    #[arg(long)]
    pub(crate) json: bool,

    /// Source of layouts: auto, or as in `lads cp --source layout=SPEC`
    #[arg(long, value_name = "SPEC", default_value = "auto")]
    pub(crate) layout: String,
}

/// Arguments of `lads osts`.
#[derive(Args, Debug)]
pub(crate) struct OstsArgs {
    /// Any path on the file system, also as host:path
    #[arg(value_name = "PATH", default_value = ".", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// Print JSON, one object per target and line
    #[arg(long)]
    pub(crate) json: bool,

    /// Source of layouts: auto, or as in `lads cp --source layout=SPEC`
    #[arg(long, value_name = "SPEC", default_value = "auto")]
    pub(crate) layout: String,
}

/// Arguments of `lads probe`.
#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    /// A file or directory, also as host:path; if LADS can choose the OSTs of new files there, it
    /// creates empty files in the directory and removes them
    #[arg(value_name = "PATH", default_value = ".", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Create no file
    #[arg(long)]
    pub(crate) read_only: bool,
}

/// Arguments of `lads clean`.
#[derive(Args, Debug)]
pub(crate) struct CleanArgs {
    /// The directory, also as host:path; subdirectories are included
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,

    /// List what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Headings of the help text.
const SELECTION: &str = "Selection";
const TELLING: &str = "Output";
const SAFETY: &str = "Safety";
const NETWORK: &str = "Network";
const STORAGE: &str = "Storage and memory";

const SOURCE_HELP: &str = "Settings of the source: threads, buffers, io, layout, pin, stage";
const SINK_HELP: &str = "Settings of the sink: those of --source, and place, preallocate";
const LAB_HELP: &str = "Settings for experiments and comparisons, which transfers do not need";

// Not doc comments: rustdoc takes the brackets for a link.
const PATHS_HELP: &str = "SRC... DST: sources and target, also as [user@]host:path";
const PATHS_LONG_HELP: &str = "\
SRC... DST: sources and target, also as [user@]host:path

As in rsync, the source `dir` corresponds to DST/dir, and `dir/` to DST itself. All sources must \
be on the same host. A local name with a colon is written ./na:me. On another host, ~ at the \
beginning is a home directory, and *, ? and [...] in a source match names there: write such a \
source in quotes (dtn2:'run*/out.h5'). If several sources contain the same name, the first source \
wins; directories win over files and are merged.

If SRC and DST are on other hosts, LADS runs on the host of SRC, with the configuration of that \
host, and data goes straight to the host of DST. The host of SRC must be able to log in there; -e \
and --remote-lads apply to both hosts.";

/// Arguments of `lads cp`.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Sources, and the target last.
    #[arg(help = PATHS_HELP, long_help = PATHS_LONG_HELP)]
    #[arg(value_name = "PATH", required_unless_present = "help_short", num_args = 1..)]
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<OsString>,

    /// List the changes that would be made, and make none
    #[arg(short = 'n', long, help_heading = SELECTION)]
    pub(crate) dry_run: bool,

    /// Exclude matching paths, as rsync does
    ///
    /// --exclude, --include, --exclude-from and --include-from are tried in the given order; the
    /// first matching pattern decides. A pattern that ends in / matches only directories, one that
    /// begins with / matches below SRC; * matches all characters except /, ** also /, [a-z] and
    /// [[:digit:]] one character. In a pattern with any of these, \ makes the next character
    /// literal.
    #[expect(rustdoc::broken_intra_doc_links, reason = "[:digit:] is no link, and help shows it")]
    #[arg(long, value_name = "PATTERN", help_heading = SELECTION, action = ArgAction::Append)]
    pub(crate) exclude: Vec<OsString>,

    /// Include matching paths, even if a later --exclude matches them
    #[arg(long, value_name = "PATTERN", help_heading = SELECTION, action = ArgAction::Append)]
    pub(crate) include: Vec<OsString>,

    /// Read exclude patterns from a file, one per line; - is stdin
    #[arg(long, value_name = "FILE", help_heading = SELECTION, action = ArgAction::Append)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) exclude_from: Vec<PathBuf>,

    /// Read include patterns from a file, one per line; - is stdin
    #[arg(long, value_name = "FILE", help_heading = SELECTION, action = ArgAction::Append)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) include_from: Vec<PathBuf>,

    /// Use only the paths that a file lists, relative to SRC; - is stdin
    ///
    /// One path per line; SRC must be one directory. Empty lines and lines that begin with # or ;
    /// are ignored: write ./#name for such a name. A path may lead through symbolic links, which
    /// become directories at the sink; with a slash at its end, it means the directory that a link
    /// leads to. A path that does not exist is reported, and the exit code is then 3.
    #[arg(long, value_name = "FILE", help_heading = SELECTION, value_hint = ValueHint::FilePath)]
    pub(crate) files_from: Option<PathBuf>,

    /// Entries in the files named by --*-from end with a zero byte
    #[arg(short = '0', long, help_heading = SELECTION)]
    pub(crate) from0: bool,

    /// Also send files with the same size and time of change
    #[arg(short = 'I', long, help_heading = SELECTION)]
    pub(crate) ignore_times: bool,

    /// Compare files of the same size by their contents, not by their time
    ///
    /// Both ends read such files at the same time, block by block, and only checksums cross the
    /// network. Files that differ are sent; the others get the source's metadata. By default, a
    /// file with the same size and time of change is skipped without being read.
    #[arg(short = 'c', long, help_heading = SELECTION)]
    pub(crate) checksum: bool,

    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,

    #[command(flatten)]
    pub(crate) ends: EndsArgs,

    /// Copy devices and special files, too
    ///
    /// --devices stands for devices only, which needs root at the sink; --specials for FIFOs and
    /// sockets only.
    #[arg(short = 'D', help_heading = SELECTION, overrides_with_all = NO_SPECIALS)]
    pub(crate) devices_and_specials: bool,

    /// Copy device files, too (needs root at the sink)
    #[arg(long, help_heading = SELECTION, hide_long_help = true)]
    #[arg(overrides_with_all = NO_SPECIALS)]
    pub(crate) devices: bool,

    /// Copy FIFOs and sockets, too
    #[arg(long, help_heading = SELECTION, hide_long_help = true)]
    #[arg(overrides_with_all = NO_SPECIALS)]
    pub(crate) specials: bool,

    /// Copy no devices, FIFOs and sockets, which is the default
    #[arg(long = "no-D", aliases = ["no-devices", "no-specials"], hide = true)]
    pub(crate) no_specials: bool,

    /// Keep set-user-id bits, capabilities and trusted.* attributes
    ///
    /// Also set-group-id bits. They give rights to each user of a file. By default, the sink
    /// creates no file with them, and a notice at the end reports the number of such files.
    /// Directories always keep theirs. rsync's -a and -X keep them.
    #[arg(long, help_heading = SELECTION)]
    pub(crate) privileges: bool,

    /// Accepted: lads keeps what -a keeps, except devices and specials (-D) and --privileges
    ///
    /// Also accepted: -r -l -p -t -o -g -H -A -X -S -W -s --numeric-ids --partial. By default, lads
    /// recurses into directories and keeps links, permissions, times, owners, ACLs, extended
    /// attributes and holes. Two parts of rsync's -a have options of their own: -D, and
    /// --privileges for set-user-id and set-group-id bits.
    #[arg(short = 'a', long, help_heading = SELECTION)]
    pub(crate) archive: bool,

    /// Do not keep permissions and ACLs; also: --no-times --no-owner --no-xattrs --no-hard-links
    ///
    /// With --no-perms, new entries get the default permissions (umask). With --no-times,
    /// everything is sent again next time. --no-owner keeps neither owner nor group, --no-xattrs
    /// neither extended attributes nor ACLs. With --no-hard-links, each name of a file with several
    /// names becomes a separate file.
    #[arg(long, alias = "no-p", help_heading = SELECTION)]
    pub(crate) no_perms: bool,

    /// Do not keep times of change; everything is sent again next time
    #[arg(long, alias = "no-t", help_heading = SELECTION, hide_long_help = true)]
    pub(crate) no_times: bool,

    /// Keep neither owner nor group
    #[arg(long, alias = "no-o", help_heading = SELECTION, hide_long_help = true)]
    pub(crate) no_owner: bool,

    /// Keep neither extended attributes nor ACLs
    #[arg(long, alias = "no-X", help_heading = SELECTION, hide_long_help = true)]
    pub(crate) no_xattrs: bool,

    /// Copy each name of a file with several names as a separate file
    #[arg(long, alias = "no-H", help_heading = SELECTION, hide_long_help = true)]
    pub(crate) no_hard_links: bool,

    /// List changed paths and print more figures at the end; twice: skipped files, too
    ///
    /// --stats prints only the figures, also with -q.
    #[arg(short = 'v', long, help_heading = TELLING, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Print errors only
    #[arg(short = 'q', long, help_heading = TELLING)]
    pub(crate) quiet: bool,

    /// Show progress: continuously on a terminal, otherwise one line every 10 seconds
    ///
    /// This is the default unless -q or --no-progress is given. With =SECONDS, one line is printed
    /// per interval, also on a terminal.
    #[arg(short = 'P', long, value_name = "SECONDS", help_heading = TELLING)]
    #[arg(overrides_with = "no_progress")]
    #[arg(num_args = 0..=1, require_equals = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) progress: Option<Option<u32>>,

    /// Do not show progress
    #[arg(long, help_heading = TELLING, overrides_with = "progress", hide_long_help = true)]
    pub(crate) no_progress: bool,

    /// Print a table of figures at the end, also with -q
    #[arg(long, help_heading = TELLING, hide_long_help = true)]
    pub(crate) stats: bool,

    /// Report everything as JSON on stdout, one event per line
    ///
    /// stderr then has only errors in the command line, and the output of the remote shell. The
    /// last event is always `summary`. docs/json.md describes the events.
    #[arg(long, help_heading = TELLING)]
    pub(crate) json: bool,

    /// Write each failed entry to a file, as a line of JSON
    #[arg(long, value_name = "FILE", help_heading = TELLING, value_hint = ValueHint::FilePath)]
    pub(crate) log: Option<PathBuf>,

    /// Check of data at the sink before it counts as done
    #[arg(long, value_name = "HOW", help_heading = SAFETY, default_value = "wire")]
    pub(crate) verify: VerifyArg,

    /// Time without any message after which the peer counts as lost; 0: unlimited
    #[arg(long, value_name = "SECONDS", help_heading = SAFETY, default_value_t = 30)]
    pub(crate) timeout: u32,

    /// Retry after an outage, at most this number of times
    #[arg(long, value_name = "N", help_heading = SAFETY)]
    #[arg(hide_short_help = true, hide_long_help = true)]
    pub(crate) retries: Option<u32>,

    /// Retry after outages until one has lasted this long: 45s, 10m, 1.5h, 2d
    ///
    /// An outage: the other host cannot be reached, or the connection was lost (exit status 5). The
    /// first wait is 1 s, and each further wait is twice as long, up to 60 s. With --retries N,
    /// also or instead, there are at most N attempts in a row without progress. There is no further
    /// attempt after five in a row that reach the other host and fail in the same way at the same
    /// point.
    #[arg(long, value_name = "TIME", help_heading = SAFETY, value_parser = sizes::parse_span)]
    pub(crate) retry_for: Option<Duration>,

    /// Stop after this time, as on a signal: 30s, 45m, 8h
    ///
    /// A number without a letter is rejected, because rsync would treat it as minutes.
    #[arg(long, value_name = "TIME", help_heading = SAFETY)]
    #[arg(alias = "time-limit", value_parser = sizes::parse_span_with_unit)]
    pub(crate) stop_after: Option<Duration>,

    /// Stop when standard input ends, for programs that start this one
    #[arg(long, hide = true)]
    pub(crate) stop_with_stdin: bool,

    /// Time without progress after which the command ends; 0: unlimited [default: 600]
    ///
    /// Heartbeats do not count as progress. With --restore the default is unlimited, because a tape
    /// takes hours.
    #[arg(long, value_name = "SECONDS", help_heading = SAFETY)]
    pub(crate) stall_timeout: Option<u32>,

    /// Command that runs a command on another host
    #[arg(short = 'e', long, value_name = "COMMAND", help_heading = NETWORK)]
    #[arg(default_value = "ssh")]
    pub(crate) rsh: String,

    /// Path of lads on the other host [default: it is found or sent there]
    ///
    /// By default, LADS is searched in PATH, ~/.local/bin, ~/bin and ~/.cargo/bin, and then among
    /// the copies that were sent earlier. If none has the version of this one, a copy is sent to
    /// $LADS_CACHE, ~/.cache/lads, /var/tmp/lads-UID or $XDG_RUNTIME_DIR/lads.
    #[arg(long, value_name = "PATH", help_heading = NETWORK)]
    pub(crate) remote_lads: Option<String>,

    /// Do not send LADS to a host that does not have it
    #[arg(long, help_heading = NETWORK)]
    pub(crate) no_deploy: bool,

    /// Protection of data between two hosts
    ///
    /// Each data connection has its own keys, which are sent through ssh. A lower level than
    /// encrypted is used only if both hosts permit it: set it here or in a configuration file, and
    /// in a configuration file of the other host (data = "plain").
    #[arg(long, help_heading = NETWORK, value_enum, default_value_t = DataArg::Encrypted)]
    pub(crate) data: DataArg,

    /// Send data through the remote shell, too: no port is needed
    ///
    /// By default, data goes over separate TCP connections to a port that the other end opens (see
    /// --data). With --tunnel, it goes through ssh, at a lower rate.
    ///
    /// If no data connection opens within 2 s, a notice is printed, ssh is started again (and may
    /// ask for a password again), and the transfer continues as with --tunnel; with --no-tunnel, or
    /// if SRC or DST is a pipe, it fails.
    #[arg(long, help_heading = NETWORK, overrides_with = "no_tunnel")]
    pub(crate) tunnel: bool,

    /// Fail if the port for data is blocked, instead of sending data through ssh
    #[arg(long, help_heading = NETWORK, overrides_with = "tunnel", hide = true)]
    pub(crate) no_tunnel: bool,

    /// Time to wait for the first reply
    ///
    /// Default: 300 s if the remote shell is ssh (it may prompt for a password), otherwise
    /// --timeout. A notice is printed after 3 s.
    #[arg(long, value_name = "SECONDS", help_heading = NETWORK)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connect_timeout: Option<u32>,

    /// End that opens the data connections, if not the one on this host
    ///
    /// The other end opens a port for them. If a firewall lets connections pass only from one host
    /// to the other, name the end on the first one.
    #[arg(long, value_name = "END", help_heading = NETWORK, value_enum)]
    pub(crate) connect: Option<EndArg>,

    /// Address for the data connections, if not that of the host
    ///
    /// Add :PORT if that port is forwarded to the port that is opened for data. By default, data
    /// goes to an address to which the host name resolves here (for ssh, the name that `ssh -G`
    /// prints); if --connect names the other end, to the address from which ssh came. An address
    /// that only the other end claims is not used.
    #[arg(long, value_name = "ADDRESS", help_heading = NETWORK, value_hint = ValueHint::Hostname)]
    pub(crate) data_address: Option<String>,

    /// TCP ports that may be opened for data, for example 5000-5009
    #[arg(long, value_name = "A-B", help_heading = NETWORK, value_parser = parse_ports)]
    pub(crate) ports: Option<(u16, u16)>,

    /// Maximum rate per second, in KiB or with a unit (100M)
    ///
    /// As in rsync, K, M and G are powers of 1024, KB, MB and GB powers of 1000; 0 is no limit.
    #[arg(long, value_name = "RATE", help_heading = NETWORK, value_parser = sizes::parse_rate)]
    pub(crate) bwlimit: Option<u64>,

    /// TCP connections that carry data, or with --tunnel streams through ssh; 0: automatic
    ///
    /// By default twice the number of processors, 4 to 8. To a distant host up to 32, one per 4 ms
    /// of round-trip time, if TCP is not tuned or its congestion control reacts to losses (all but
    /// BBR).
    #[arg(long, value_name = "N", help_heading = NETWORK)]
    #[arg(default_value_t = 0)]
    pub(crate) streams: u16,

    /// Memory for data at each end [default: 256M]
    ///
    /// By default, a sink with very many OSTs uses two blocks per OST if that is more.
    #[arg(long, value_name = "SIZE", help_heading = STORAGE)]
    #[arg(value_parser = sizes::parse_bytes)]
    pub(crate) buffers: Option<u64>,

    /// Settings of the source.
    #[arg(long, value_name = "KEY=VALUE,...", help_heading = STORAGE, action = ArgAction::Append)]
    #[arg(help = SOURCE_HELP, long_help = settings::source_help())]
    pub(crate) source: Vec<OsString>,

    /// Settings of the sink.
    #[arg(long, value_name = "KEY=VALUE,...", help_heading = STORAGE, action = ArgAction::Append)]
    #[arg(help = SINK_HELP, long_help = settings::sink_help())]
    pub(crate) sink: Vec<OsString>,

    /// Settings for experiments.
    #[arg(long, value_name = "KEY=VALUE,...", help_heading = STORAGE, action = ArgAction::Append)]
    #[arg(help = LAB_HELP, long_help = settings::lab_help())]
    pub(crate) lab: Vec<OsString>,

    /// Yield to other programs: one request at a time to an OST that they use
    ///
    /// An OST that is shared with another program responds later than when LADS is alone. LADS then
    /// keeps one request in flight there, and more elsewhere.
    #[arg(long, help_heading = STORAGE)]
    pub(crate) polite: bool,

    /// Include files whose data is in an archive (HSM), and restore them to disk first
    ///
    /// By default they count as failed: restoring may take hours and fill the source.
    #[arg(long, help_heading = SELECTION)]
    pub(crate) restore: bool,

    #[command(flatten)]
    pub(crate) processors: ProcessorArgs,

    /// Print short help, if given without paths
    ///
    /// With paths, it has rsync's meaning: human-readable numbers, which lads always prints.
    #[arg(short = 'h', hide_long_help = true)]
    pub(crate) help_short: bool,

    /// Print all options; -h prints the most important ones
    #[arg(long, action = ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,
}

/// What `-D` and its parts undo, and what undoes them.
const NO_SPECIALS: [&str; 1] = ["no_specials"];

/// `lads man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory for the pages; created if it does not exist
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// `lads completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Check of data at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyArg {
    /// Checksum of every block, from the memory of the source to that of the sink
    Wire,
    /// Also reads every block back from storage, bypassing the page cache
    Media,
}

impl From<VerifyArg> for Verify {
    fn from(argument: VerifyArg) -> Self {
        match argument {
            VerifyArg::Wire => Self::Wire,
            VerifyArg::Media => Self::Media,
        }
    }
}

/// Rule by which I/O threads choose blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Schedule {
    /// A thread reads whole files, as most programs do; for comparison
    File,
    /// A thread takes a block of any file on the next free OST
    Layout,
    /// As layout, but an OST that is slower than `threshold` is skipped for a while
    Threshold,
    /// As layout, but OSTs that are slower than others, and than before, come last
    Adaptive,
}

impl From<Schedule> for Policy {
    fn from(argument: Schedule) -> Self {
        match argument {
            Schedule::File => Self::File,
            Schedule::Layout => Self::Layout,
            Schedule::Threshold => Self::Threshold,
            Schedule::Adaptive => Self::Adaptive,
        }
    }
}

/// Protection of data between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataArg {
    /// Nobody in the network can read or change it: AES-128-GCM, or `ChaCha20` without AES-NI
    Encrypted,
    /// Nobody in the network can change it
    Authenticated,
    /// An attacker who controls the network can read and change it
    Plain,
}

impl From<DataArg> for DataLevel {
    fn from(argument: DataArg) -> Self {
        match argument {
            DataArg::Encrypted => Self::Encrypted,
            DataArg::Authenticated => Self::Authenticated,
            DataArg::Plain => Self::Plain,
        }
    }
}

/// An end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EndArg {
    Source,
    Sink,
}

impl From<EndArg> for Side {
    fn from(argument: EndArg) -> Self {
        match argument {
            EndArg::Source => Self::Source,
            EndArg::Sink => Self::Sink,
        }
    }
}

/// Rule by which new files are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlaceArg {
    /// Chosen by the file system
    Inherit,
    /// With the stripes of the source, on OSTs that the file system chooses
    Same,
    /// One OST per file, servers in turn; for comparison
    Spread,
    /// On OSTs with little work and enough space, large files on several
    Aware,
}

impl From<PlaceArg> for Place {
    fn from(argument: PlaceArg) -> Self {
        match argument {
            PlaceArg::Inherit => Self::Inherit,
            PlaceArg::Same => Self::Same,
            PlaceArg::Spread => Self::Spread,
            PlaceArg::Aware => Self::Aware,
        }
    }
}

/// Access to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Io {
    /// The best mode for the file system
    Auto,
    /// Bypassing the page cache
    Direct,
    /// Through the page cache
    Buffered,
    /// Through the page cache, without leaving pages in it
    ///
    /// With RWF_DONTCACHE (Linux 6.14 and later) if the file system supports it; otherwise the
    /// kernel is asked to drop the pages afterwards.
    Uncached,
}

impl From<Io> for IoMode {
    fn from(argument: Io) -> Self {
        match argument {
            Io::Auto => Self::Auto,
            Io::Direct => Self::Direct,
            Io::Buffered => Self::Buffered,
            Io::Uncached => Self::Uncached,
        }
    }
}

/// `5000-5009`, or one port.
pub(crate) fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err("write it like 5000-5009".to_owned()),
    }
}

#[cfg(test)]
mod tests;
