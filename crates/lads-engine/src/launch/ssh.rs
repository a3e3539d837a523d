//! What ssh would do with the host that the user named: to which host name it connects, and
//! whether its wait for a connection has a limit.

use super::process::{Process, start};
use crate::fatal::Fatal;
use crate::job::RemoteShell;
use crate::patience::Patience;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// The most bytes that are read from `ssh -G`, which prints about 4 KiB.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// How long ssh may take to connect and to agree on keys, in seconds, by default; a password is
/// asked for after that. A lost packet that opens a connection is sent again after 1, 3 and 7 s.
/// Half of this would give up after the third, or on a login node under load. Without a limit,
/// Linux tries for more than two minutes; with the double, a host with two addresses would take one
/// minute.
const CONNECT_SECONDS: u32 = 15;

/// ssh's settings for one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ssh {
    /// The host name to which it connects: its configuration may replace the name that was typed.
    pub(super) host_name: Option<String>,
    /// Whether the user has limited the time to connect.
    has_connect_timeout: bool,
}

impl Ssh {
    /// Asks `ssh -G`. `None` if the remote shell is not ssh, or if ssh does not answer.
    pub(super) fn ask(
        mut command: Command,
        host: &str,
        patience: &Patience<'_>,
    ) -> Result<Option<Self>, Fatal> {
        if !is_ssh(&command) {
            return Ok(None);
        }
        command.arg("-G").arg(host);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = start(&mut command) else { return Ok(None) };
        let stdout = child.stdout.take().expect("piped above");
        // The process ends with this function: ssh's configuration may run commands that hang.
        let _process = Process::new(child);
        let read = move || {
            let mut text = String::new();
            let _ = stdout.take(CONFIG_BYTES_MAX).read_to_string(&mut text);
            text
        };
        let text = patience.result_of("lads-ssh-config", read);
        let text = text.map_err(|cut| cut.fatal("ssh -G"))?;
        Ok(Self::from_told(&text))
    }

    fn from_told(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(key));
            values.find_map(|rest| rest.strip_prefix(' ')).map(str::to_owned)
        };
        let host_name = value("hostname");
        let has_connect_timeout = value("connecttimeout").is_some_and(|it| it != "none");
        host_name.is_some().then_some(Self { host_name, has_connect_timeout })
    }

    /// The same remote shell, with a limit on the time in which ssh connects.
    pub(super) fn made_impatient(&self, remote: &RemoteShell) -> RemoteShell {
        let mut remote = remote.clone();
        if !self.has_connect_timeout {
            let limit = remote.connect_timeout_seconds.unwrap_or(CONNECT_SECONDS);
            let seconds = CONNECT_SECONDS.min(limit);
            remote.command.extend(["-o".to_owned(), format!("ConnectTimeout={seconds}")]);
        }
        remote
    }
}

/// Whether a command is ssh.
pub(super) fn is_ssh(command: &Command) -> bool {
    Path::new(command.get_program()).file_name().is_some_and(|name| name == "ssh")
}

#[cfg(test)]
mod tests {
    use super::*;
    fn command(told: &str, connect_timeout_seconds: u32) -> Vec<String> {
        let connect_timeout_seconds = Some(connect_timeout_seconds);
        let remote = RemoteShell { connect_timeout_seconds, ..RemoteShell::default() };
        Ssh::from_told(told).unwrap().made_impatient(&remote).command
    }

    #[test]
    fn ssh_gives_up_in_time_unless_the_person_said_when() {
        let nothing_said = "host a\nhostname dtn2\nconnecttimeout none\n";
        assert_eq!(command(nothing_said, 300), ["ssh", "-o", "ConnectTimeout=15"]);
        assert_eq!(command(nothing_said, 3), ["ssh", "-o", "ConnectTimeout=3"]);
        assert_eq!(command("hostname dtn2\nconnecttimeout 60\n", 300), ["ssh"]);
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        assert_eq!(Ssh::from_told("usage: ssh\n"), None);
        let name = Ssh::from_told("hostname dtn2.example\n").unwrap().host_name;
        assert_eq!(name.as_deref(), Some("dtn2.example"));
    }
}
