//! Arguments of `lads ls`.

use super::{EXAMPLES_FIRST, text};
use clap::builder::ValueHint;
use clap::{Args, Command};
use std::path::PathBuf;

/// `lads ls`.
pub(super) fn command() -> Command {
    LsArgs::augment_args(Command::new("ls"))
        .about("Lists files, also on another host")
        .before_help(text::LS_EXAMPLES)
        .help_template(EXAMPLES_FIRST)
}

/// Arguments of `lads ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Files and directories, also as host:path; there, *, ? and [...] match names
    #[arg(value_name = "PATH", default_value = ".", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Print permissions, owner, group, size and time of change (UTC), too
    #[arg(short = 'l')]
    pub(crate) long: bool,

    /// Print names that begin with a dot, too
    #[arg(short = 'a', long)]
    pub(crate) all: bool,

    /// Print directories themselves, not their entries
    #[arg(short = 'd', long)]
    pub(crate) directory: bool,

    /// Print a JSON object per entry
    #[arg(long)]
    pub(crate) json: bool,
}
