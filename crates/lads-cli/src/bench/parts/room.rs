//! The directory at the sink that transfers write into, and that is removed in the end.

use anyhow::{Context, Result, ensure};
use lads_engine::{Job, RemoteShell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes the directory `$1`, and says how much space there is.
const MAKE: &str = r#"mkdir -- "$1" && df -Pk -- "$1""#;
const EMPTY: &str = r#"rm -rf -- "$1" && mkdir -- "$1""#;
const REMOVE: &str = r#"rm -rf -- "$1""#;

/// A directory of our own, on the host of the sink.
pub(super) struct Room {
    host: Option<String>,
    remote: RemoteShell,
    /// Its path on that host.
    pub(super) path: Vec<u8>,
    /// The space that was free at first.
    pub(super) free_bytes: u64,
    is_there: bool,
}

impl Room {
    /// Makes a directory in the target of a job.
    pub(super) fn make(job: &Job) -> Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!(".lads-bench-{}-{:x}", std::process::id(), since.as_millis());
        let mut room = Self {
            host: job.target.host.clone(),
            remote: job.remote.clone(),
            path: [&super::local(&job.target), &b"/"[..], name.as_bytes()].concat(),
            free_bytes: 0,
            is_there: false,
        };
        let told = room.shell(MAKE).context("DST must be a writable directory")?;
        room.is_there = true;
        room.free_bytes = free_bytes(&told).context("df does not print the free space")?;
        Ok(room)
    }

    /// The path, as a directory into which things are put.
    pub(super) fn inside(&self) -> Vec<u8> {
        [&*self.path, b"/"].concat()
    }

    /// Removes what is in it.
    pub(super) fn empty(&mut self) -> Result<()> {
        self.shell(EMPTY).map(drop)
    }

    /// Removes it.
    pub(super) fn remove(mut self) -> Result<()> {
        self.is_there = false;
        self.shell(REMOVE).map(drop)
    }

    /// Runs a script on the host of the sink, with the path as its argument. Returns what it tells.
    fn shell(&self, script: &str) -> Result<String> {
        let words: [&[u8]; 5] = [b"sh", b"-c", script.as_bytes(), b"sh", &self.path];
        let mut command = match &self.host {
            Some(host) => self.remote.command_on(host, &words),
            None => {
                let mut command = Command::new("sh");
                command.args(words[1..].iter().map(|word| OsStr::from_bytes(word)));
                command
            }
        };
        // What goes wrong is on standard error, and the user reads it there.
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().context("cannot start a shell")?;
        let path = String::from_utf8_lossy(&self.path);
        ensure!(output.status.success(), "{path} at the sink cannot be created or removed");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Room {
    /// Whatever went wrong, nothing is left.
    fn drop(&mut self) {
        if self.is_there {
            let _ = self.shell(REMOVE);
        }
    }
}

/// The free space, from what `df -Pk` says of one file system.
fn free_bytes(told: &str) -> Option<u64> {
    let line = told.lines().last()?;
    // The name of the device may have blanks, and so may the path.
    let percent = line.split_whitespace().position(|word| word.ends_with('%'))?;
    let kibibytes = line.split_whitespace().nth(percent.checked_sub(1)?)?;
    kibibytes.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_what_df_says() {
        let head = "Filesystem 1024-blocks Used Available Capacity Mounted on\n";
        let told = format!("{head}10.0.0.1@tcp:/big fs 4000 1000 3000 25% /scratch/a b\n");
        assert_eq!(free_bytes(&told), Some(3000 << 10));
        assert_eq!(free_bytes(head), None);
        assert_eq!(free_bytes(""), None);
    }
}
