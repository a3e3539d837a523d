//! `lads deploy`: sends LADS to hosts before a transfer needs it there, or removes it.

use crate::args::DeployArgs;
use crate::{complain, display};
use anyhow::{Context, Result, anyhow};
use lads_engine::{ExitCode, RemoteShell, StopFlag, deploy, version};
use std::io::{self, Write};
use std::path::Path;

/// Goes through the hosts. A failure at one of them does not stop the others; the exit code is that
/// of the first failure.
pub(crate) fn run(args: &DeployArgs) -> std::process::ExitCode {
    let mut code = 0;
    let command = RemoteShell::words(&args.rsh).map_err(|error| anyhow!("--rsh {error}"));
    let remote = match command {
        Ok(command) => RemoteShell { command, ..RemoteShell::default() },
        Err(error) => {
            complain(&format!("{error:#}"));
            return std::process::ExitCode::from(ExitCode::Usage as u8);
        }
    };
    for host in &args.hosts {
        let done = match is_option(host) {
            true => Err((ExitCode::Usage, "a host cannot begin with a dash".to_owned())),
            false if args.remove => remove(&remote, host),
            false => bring(&remote, host),
        };
        if let Err((failed, text)) = done {
            complain(&format!("{host}: {text}"));
            code = if code == 0 { failed as u8 } else { code };
        }
    }
    std::process::ExitCode::from(code)
}

/// Whether ssh would take a host for an option, which can run commands here.
fn is_option(host: &str) -> bool {
    host.is_empty() || host.starts_with('-')
}

fn bring(remote: &RemoteShell, host: &str) -> Result<(), (ExitCode, String)> {
    let own = Path::new("/proc/self/exe");
    let is_sent = deploy(remote, host, own, &StopFlag::new())?;
    let (did, version) = (if is_sent { "was sent" } else { "was already present" }, version());
    print(&format!("{}: {version} {did}", display::message(host)))
}

fn remove(remote: &RemoteShell, host: &str) -> Result<(), (ExitCode, String)> {
    let removed = || -> Result<String> {
        let output = remote.removal_on(host).stderr(std::process::Stdio::inherit()).output();
        let output = output.context("cannot start the remote shell")?;
        anyhow::ensure!(output.status.success(), "{} of the remote shell", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let paths = removed().map_err(|error| (ExitCode::Network, format!("{error:#}")))?;
    for path in paths.lines() {
        print(&format!("{}: removed {}", display::message(host), display::message(path)))?;
    }
    match paths.is_empty() {
        true => print(&format!("{}: nothing to remove", display::message(host))),
        false => Ok(()),
    }
}

fn print(line: &str) -> Result<(), (ExitCode, String)> {
    writeln!(io::stdout(), "{line}").map_err(|error| (ExitCode::Other, error.to_string()))
}
