//! The arguments of `lads deploy`.

use clap::Args;
use clap::builder::ValueHint;

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
    #[arg(env = "LADS_RSH", hide_env_values = true, default_value = "ssh")]
    pub(crate) rsh: String,
}
