//! Runs rsync, which shows what a command has to do.
//!
//! With `--hard-links`, rsync 3.5.0 sometimes loses track of its list of files: if several names of
//! a file are taken by entries of other kinds, or excluded. Then it ends with an error, or hangs.

use super::process::within;
use anyhow::{Context, Result};
use std::process::{Command, Output};

/// The exit code of rsync if some entries could not be copied.
pub(super) const PARTIAL: i32 = 23;

/// The exit code of rsync if its processes do not understand each other.
const PROTOCOL: i32 = 2;

/// The limit for a run of rsync, in seconds. It takes a fraction of a second.
const LIMIT: &str = "20";

/// The exit codes of `timeout` if the time was over: after SIGTERM, and after SIGKILL.
const TIMED_OUT: [i32; 2] = [124, 137];

/// Runs rsync. Returns `None` if it lost track of its list of files.
pub(super) fn run(command: &Command) -> Result<Option<Output>> {
    let output = within(&["timeout", "--kill-after=1", LIMIT], command).output()?;
    let code = output.status.code().context("a signal ended rsync")?;
    Ok((code != PROTOCOL && !TIMED_OUT.contains(&code)).then_some(output))
}
