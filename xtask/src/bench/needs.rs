//! Checks whether a benchmark can be run here, and says what is missing if not.

use super::measure;
use crate::{setup, shell};
use anyhow::{Context, Result};
use std::path::Path;

/// What a benchmark needs.
#[derive(Debug, Default)]
pub(super) struct Needs<'a> {
    programs: Vec<&'static str>,
    spaces: Vec<(&'a Path, u64)>,
    devices: Vec<&'a Path>,
    files: Vec<&'a Path>,
    /// What only root can do here, in words.
    for_root: Option<&'static str>,
    is_measured: bool,
}

impl<'a> Needs<'a> {
    /// Adds a program that the benchmark starts.
    pub(super) fn program(mut self, name: &'static str) -> Self {
        self.programs.push(name);
        self
    }

    /// Adds the space that the benchmark needs in a directory, in bytes.
    pub(super) fn space(mut self, directory: &'a Path, bytes: u64) -> Self {
        self.spaces.push((directory, bytes));
        self
    }

    /// Adds a device that the benchmark needs.
    pub(super) fn device(mut self, path: &'a Path) -> Self {
        self.devices.push(path);
        self
    }

    /// Adds a file of the kernel's that the benchmark needs.
    pub(super) fn file(mut self, path: &'a Path) -> Self {
        self.files.push(path);
        self
    }

    /// Adds that the benchmark needs root, and what for.
    pub(super) fn root(mut self, what_for: &'static str) -> Self {
        self.for_root = Some(what_for);
        self
    }

    /// Adds that the benchmark measures the time of processors.
    pub(super) fn processor_time(mut self) -> Self {
        self.is_measured = true;
        self
    }

    /// Everything that is needed but missing here, in words.
    pub(super) fn missing(&self) -> Result<Vec<String>> {
        let mut missing: Vec<String> = self
            .programs
            .iter()
            .filter(|program| shell::find(program).is_none())
            .map(|program| format!("the program {program}"))
            .collect();
        let devices = self.devices.iter().filter(|path| !path.exists());
        missing.extend(devices.map(|path| format!("the device {}", path.display())));
        let files = self.files.iter().filter(|path| !path.exists());
        missing.extend(files.map(|path| format!("the file {}", path.display())));
        if let Some(what_for) = self.for_root.filter(|_| !setup::is_root()) {
            missing.push(format!("root ({what_for})"));
        }
        if self.is_measured && !measure::is_possible() {
            missing.push("control groups, version 2, and root (for processor times)".to_owned());
        }
        for (directory, bytes) in &self.spaces {
            let free = free_bytes(directory)?;
            if free < *bytes {
                let gib = |bytes: u64| bytes.div_ceil(1 << 30);
                let place = directory.display();
                missing.push(format!("{} GiB in {place} ({} free)", gib(*bytes), free >> 30));
            }
        }
        Ok(missing)
    }
}

/// The number of bytes that can still be written in a directory. For memory, it is at most the
/// available memory of the machine.
fn free_bytes(directory: &Path) -> Result<u64> {
    if !directory.is_dir() {
        return Ok(0);
    }
    let df = ["--output=avail,fstype", "-B1"];
    let text = shell::output(shell::command("df").args(df).arg(directory))?;
    let mut words = text.lines().nth(1).context("df")?.split_whitespace();
    let free = words.next().context("df")?.parse().context("df")?;
    if words.next() == Some("tmpfs") { Ok(available_memory()?.min(free)) } else { Ok(free) }
}

fn available_memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|l| l.split_whitespace().next()).context("meminfo")?.parse()?;
    Ok(kib << 10)
}
