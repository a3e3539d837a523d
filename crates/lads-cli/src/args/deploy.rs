//! The arguments of `lads deploy`.

use super::{EXAMPLES_FIRST, text};
use clap::builder::ValueHint;
use clap::{Args, Command};

/// `lads deploy`.
pub(super) fn command() -> Command {
    DeployArgs::augment_args(Command::new("deploy"))
        .about("Sends lads to hosts that do not have it, or removes it there")
        .long_about(text::DEPLOY_ABOUT)
        .before_help(text::DEPLOY_EXAMPLES)
        .help_template(EXAMPLES_FIRST)
}

/// The arguments of `lads deploy`.
#[derive(Args, Debug)]
pub(crate) struct DeployArgs {
    /// The hosts, as for ssh
    #[arg(required = true, value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub(crate) hosts: Vec<String>,

    /// Remove all copies that were sent to these hosts
    #[arg(long)]
    pub(crate) remove: bool,

    /// Command that runs a command on another host
    #[arg(short = 'e', long, value_name = "COMMAND")]
    #[arg(default_value = "ssh")]
    pub(crate) rsh: String,
}
