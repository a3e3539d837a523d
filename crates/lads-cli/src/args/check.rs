//! Options of `lads cp` that `lads check` takes, too, and its own.

use super::{CopyArgs, EXAMPLES_FIRST, SELECTION, settings, text};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};

/// Options of `lads cp` that `lads check` takes, too.
const CHECK_TAKES: &[&str] = &[
    "paths",
    "exclude",
    "include",
    "exclude_from",
    "include_from",
    "files_from",
    "from0",
    "one_file_system",
    "copy_links",
    "restore",
    "quiet",
    "progress",
    "no_progress",
    "stats",
    "json",
    "log",
    "timeout",
    "retries",
    "retry_for",
    "stop_after",
    "stall_timeout",
    "rsh",
    "remote_lads",
    "no_deploy",
    "data",
    "tunnel",
    "no_tunnel",
    "connect_timeout",
    "connect",
    "data_address",
    "ports",
    "streams",
    "buffers",
    "source",
    "sink",
    "lab",
    "polite",
    "max_cpu",
    "help_short",
    "help",
];

/// Settings in `--source`, `--sink` and `--lab` that `lads check` takes, too.
const CHECK_KEYS: &[&str] =
    &["threads", "buffers", "io", "layout", "pin", "schedule", "threshold", "block-size"];

/// `lads check`: what it has in common with `lads cp` is read by the same code, and means the same.
pub(super) fn command() -> Command {
    let command = CheckArgs::augment_args(CopyArgs::augment_args(Command::new("check")));
    let command = super::with_short_help(command);
    let own = CheckArgs::augment_args(Command::new("own"));
    let is_taken = |id: &str| {
        CHECK_TAKES.contains(&id) || own.get_arguments().any(|argument| argument.get_id() == id)
    };
    command
        .mut_args(|argument| match is_taken(argument.get_id().as_str()) {
            true => argument,
            false => argument.hide(true),
        })
        .about("Compares source and sink by the contents of their files, and changes nothing")
        .long_about(text::CHECK_ABOUT)
        .override_usage("lads check [OPTIONS] SRC... DST")
        .help_template(EXAMPLES_FIRST)
        .before_help(text::CHECK_EXAMPLES)
        .after_long_help(text::CHECK_NOTES)
        .disable_help_flag(true)
        .args_override_self(true)
}

/// Options that were given to `lads check` and that only `lads cp` takes, as they are written.
pub(crate) fn only_for_copy(matches: &ArgMatches) -> Vec<String> {
    let own = CopyArgs::augment_args(Command::new("own"));
    let is_given = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        let source = matches.value_source(id);
        !CHECK_TAKES.contains(&id) && source == Some(ValueSource::CommandLine)
    };
    let mut refused: Vec<String> = own.get_arguments().filter(is_given).map(written).collect();
    for option in settings::HOLDS_SETTINGS {
        let texts = matches.get_many(option).into_iter().flatten();
        let keys = texts.flat_map(settings::keys).filter(|key| !CHECK_KEYS.contains(&key.as_str()));
        refused.extend(keys.map(|key| format!("--{option} {key}")));
    }
    refused
}

fn written(argument: &Arg) -> String {
    match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => argument.get_id().to_string(),
    }
}

/// Arguments of `lads check` in addition to those of `lads cp`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Also compare permissions, owners, times of change, extended attributes and ACLs
    #[arg(long, help_heading = SELECTION)]
    pub(crate) metadata: bool,
}
