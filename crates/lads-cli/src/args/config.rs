//! The arguments of `lads config`.

use super::{EXAMPLES_FIRST, text};
use clap::builder::ValueHint;
use clap::{Args, Command};

/// `lads config`.
pub(super) fn command() -> Command {
    ConfigArgs::augment_args(Command::new("config"))
        .about("Shows the defaults that files and variables give to options")
        .long_about(text::CONFIG_ABOUT)
        .before_help(text::CONFIG_EXAMPLES)
        .help_template(EXAMPLES_FIRST)
}

/// The arguments of `lads config`.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Show what applies to this host, too
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub(crate) host: Option<String>,
}
