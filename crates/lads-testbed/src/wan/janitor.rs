//! Cleans up when the process that set up a line has ended, in whatever way.
//!
//! A second process waits for the first to end: it reads from a pipe that the first never writes
//! to. Then it ends all processes in the first one's namespaces and removes the namespaces. So
//! there is only one way in which a line goes away, whether it is taken down or interrupted, or its
//! process is killed.

use super::namespace::Namespace;
use anyhow::{Context as _, Result};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

/// Cleans up when dropped, or when this process ends.
pub(crate) struct Janitor {
    process: Child,
}

impl Janitor {
    /// Starts the second process, so that signals from a terminal to this process do not reach it.
    pub(crate) fn start() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find our own program")?;
        let process = Command::new(program)
            .args(["wan", "janitor", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start the process that tidies up")?;
        Ok(Self { process })
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        // `wait` closes the pipe first.
        let _ = self.process.wait();
    }
}

/// The main function of the second process.
pub(crate) fn run(pid: u32) -> Result<ExitCode> {
    // No matter how the read ends, the other process is gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    for namespace in Namespace::kept_by(pid) {
        namespace.remove()?;
    }
    Ok(ExitCode::SUCCESS)
}
