//! Starts an emulated file system for a program that needs one, and makes sure that it ends.

use crate::kernel_mount::{self, Users};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A running, mounted emulated file system; it ends when this value is dropped.
pub struct Daemon {
    process: Child,
    mount: TempDir,
}

/// The resources that a process has used so far.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    /// Processor time of all threads.
    pub cpu: Duration,
    /// The most memory that it used at any time, in bytes.
    pub memory_max: u64,
}

/// Returns why no emulated file system can run here; `None` if one can.
#[must_use]
pub fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root");
    }
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.is_err().then_some("no /dev/fuse")
}

impl Daemon {
    /// Starts `lads-testbed pfs` with these settings on a new directory.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn start(
        program: &Path,
        settings: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        let mount = tempfile::Builder::new().prefix("lads-mount-").tempdir()?;
        let mut command = Command::new(program);
        command.arg("pfs").args(settings).arg(mount.path());
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut daemon = Self { process, mount };
        let output = daemon.process.stdout.take().context("it is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line != "ready\n" {
            bail!("the emulated file system does not start");
        }
        Ok(daemon)
    }

    /// Returns the directory where it is mounted.
    #[must_use]
    pub fn mount(&self) -> &Path {
        self.mount.path()
    }

    /// Returns a path in it.
    #[must_use]
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mount().join(name)
    }

    /// Gives it an order.
    ///
    /// # Errors
    /// If it refuses.
    pub fn order(&self, order: &str) -> std::io::Result<()> {
        std::fs::write(self.path(".pfs/control"), format!("{order}\n"))
    }

    /// Returns its statistics.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn stats(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(self.path(".pfs/stats"))?)?)
    }

    /// Returns the resources that it has used so far.
    ///
    /// # Errors
    /// If it has ended.
    pub fn usage(&self) -> Result<ProcessUsage> {
        let process = PathBuf::from(format!("/proc/{}", self.process.id()));
        let stat = std::fs::read_to_string(process.join("stat"))?;
        // The name is in parentheses and may have spaces; user and system time are fields 14 and
        // 15, the state behind the name is field 3 (proc_pid_stat(5)).
        let fields = stat.rsplit(')').next().context("no name")?.split_whitespace();
        let ticks = fields.skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.sum::<Result<_, _>>()?;
        let status = std::fs::read_to_string(process.join("status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.split_whitespace().next()).context("no VmHWM")?;
        let cpu =
            Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second())?;
        Ok(ProcessUsage { cpu, memory_max: kib.parse::<u64>()? * 1024 })
    }

    /// Tells it to end, and waits until it has.
    ///
    /// # Errors
    /// If it ends with an error.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.process.try_wait()?.is_none() {
            let pid = Pid::from_raw(i32::try_from(self.process.id())?).context("no process")?;
            kill_process(pid, Signal::TERM)?;
        }
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the emulated file system ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.end().is_err() {
            // Otherwise the directory could not be removed.
            let _ = kernel_mount::unmount(self.mount.path(), Users::Fail);
        }
    }
}
