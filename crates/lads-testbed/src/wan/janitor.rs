//! Who tidies up when the process that laid a line has ended, in whatever way.
//!
//! A second process waits for the first to end: it reads from a pipe whose other end the first
//! never writes to. Then it ends whatever runs in the first's namespaces and removes them. So a
//! line goes away in one way only, be it taken down, interrupted, or its process killed.

use super::namespace::Namespace;
use anyhow::{Context as _, Result};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

/// Tidies up when dropped, or when this process ends.
pub(crate) struct Janitor {
    process: Child,
}

impl Janitor {
    /// Starts it, out of reach of what a terminal sends to this process.
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
        // Waiting closes the pipe first.
        let _ = self.process.wait();
    }
}

/// What the second process does.
pub(crate) fn run(pid: u32) -> Result<ExitCode> {
    // Whatever ends the wait, the other process is gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    for namespace in Namespace::kept_by(pid) {
        namespace.remove()?;
    }
    Ok(ExitCode::SUCCESS)
}
