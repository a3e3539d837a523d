//! Compares LADS and its rivals on one large file, on many medium files and on very many small
//! files.

use super::bare::Way;
use super::race::{Mover, Timing, race};
use super::table::Table;
use super::{Bench, movers};
use crate::scratch::Scratch;
use crate::shell;
use crate::tree::{self, Extent};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A data set of files with the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uniform {
    /// The number of files.
    pub(super) files: u64,
    /// The number of bytes in each file.
    pub(super) bytes_each: u64,
}

/// The number of files in a directory, a usual one.
const FILES_PER_DIRECTORY: u64 = 1000;

impl Uniform {
    /// The data set of a benchmark.
    pub(super) fn of(name: &str) -> Self {
        match name {
            "big" => Self { files: 1, bytes_each: 2 << 30 },
            "medium" => Self { files: 1000, bytes_each: 1 << 20 },
            _ => Self { files: 20_000, bytes_each: 4 << 10 },
        }
    }

    /// Makes the files. Each has different bytes.
    pub(super) fn make(self, root: &Path) -> Result<Extent> {
        let mut noise = Noise::new(1);
        let mut buffer = vec![0; usize::try_from(self.bytes_each.min(1 << 20))?];
        for number in 0..self.files {
            let directory = root.join(format!("d{:04}", number / FILES_PER_DIRECTORY));
            if number % FILES_PER_DIRECTORY == 0 {
                fs::create_dir_all(&directory)?;
            }
            let mut file = File::create(directory.join(format!("f{number:07}")))?;
            let mut left = self.bytes_each;
            while left > 0 {
                noise.fill(&mut buffer);
                let count = left.min(buffer.len() as u64);
                file.write_all(&buffer[..usize::try_from(count)?])?;
                left -= count;
            }
        }
        tree::extent(root)
    }
}

/// Pseudorandom bytes, which no file system or network can compress (xorshift, Marsaglia 2003).
pub(super) struct Noise(u64);

impl Noise {
    /// The bytes that follow from this seed.
    pub(super) fn new(seed: u64) -> Self {
        // Zero is the one state that this generator never leaves.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).max(1))
    }

    /// Fills a buffer with the next bytes.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// A number from 0 to 1, without 1.
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The most bytes that a benchmark fills: source, target and some reserve.
pub(super) fn space(name: &str) -> u64 {
    let Uniform { files, bytes_each } = Uniform::of(name);
    files * bytes_each * 2 + (256 << 20)
}

/// Which congestion control the movers have.
const NETWORKS: [(&str, Option<&str>); 2] = [
    ("all movers with the same congestion control (Reno)", Some("reno")),
    ("congestion control as the machine is set up", None),
];

/// Lets LADS and its rivals move one of these data sets, from memory to memory.
pub(super) fn run(bench: &Bench, name: &str) -> Result<Vec<Table>> {
    let set = Uniform::of(name);
    let scratch = Scratch::new(&bench.memory, "lads-bench")?;
    let source = scratch.join("source");
    let extent = set.make(&source)?;
    let tables = NETWORKS.iter().map(|(words, congestion)| {
        let congestion = congestion.map(str::to_owned);
        let (lads, source) = (bench.lads.clone(), source.clone());
        let (target, is_small) = (scratch.join("target"), name != "big");
        let results = Course { lads, source, target, congestion, is_small, ssh: None }.hold()?;
        let (files, bytes) = (set.files, set.bytes_each);
        let title = format!("{name}: {files} × {bytes} bytes, tmpfs to tmpfs, {words}");
        Ok(Table::of_race(&title, extent, &results))
    });
    tables.collect()
}

/// Lets LADS and its rivals, which encrypt, move each of the data sets from memory to memory. All
/// log in through ssh.
/// `word`: only the data set with it in its name.
pub(super) fn run_encrypted(bench: &Bench, word: Option<&str>) -> Result<Vec<Table>> {
    let one = |name| {
        let set = Uniform::of(name);
        let scratch = Scratch::new(&bench.memory, "lads-bench")?;
        let [source, target, ssh] = ["source", "target", "ssh"].map(|name| scratch.join(name));
        let extent = set.make(&source)?;
        fs::create_dir(&ssh)?;
        let (lads, congestion, ssh) = (bench.lads.clone(), Some("reno".to_owned()), Some(ssh));
        let is_small = name != "big";
        let results = Course { lads, source, target, congestion, is_small, ssh }.hold()?;
        let (files, bytes) = (set.files, set.bytes_each);
        let title = format!("{name}: {files} × {bytes} bytes, tmpfs to tmpfs, encrypted");
        Ok(Table::of_race(&title, extent, &results))
    };
    let is_chosen = |name: &&str| word.is_none_or(|word| name.contains(word));
    ["big", "medium", "small"].into_iter().filter(is_chosen).map(one).collect()
}

/// What a process needs to let all movers race in a network of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct Course {
    lads: PathBuf,
    source: PathBuf,
    target: PathBuf,
    /// The congestion control of this network namespace, which has no devices yet; without it, the
    /// network is that of the machine
    #[arg(long)]
    congestion: Option<String>,
    /// Whether all files are small
    #[arg(long)]
    is_small: bool,
    /// A directory for the keys of an ssh server: all movers encrypt
    #[arg(long)]
    ssh: Option<PathBuf>,
}

impl Course {
    /// Has the race run by a process of its own.
    fn hold(&self) -> Result<Vec<Timing>> {
        let own = std::env::current_exe()?;
        let mut command = match self.congestion {
            Some(_) => shell::command("unshare"),
            None => shell::command(&own),
        };
        if let Some(congestion) = &self.congestion {
            command.args(["--net", "--"]).arg(own).args(["race", "--congestion", congestion]);
        } else {
            command.arg("race");
        }
        if self.is_small {
            command.arg("--is-small");
        }
        if let Some(ssh) = &self.ssh {
            command.arg("--ssh").arg(ssh);
        }
        let said = shell::output(command.args([&self.lads, &self.source, &self.target]))?;
        serde_json::from_str(&said).context("the results of a race")
    }

    /// Lets the movers race, and prints the results.
    pub(crate) fn run(&self) -> Result<()> {
        if let Some(congestion) = &self.congestion {
            shell::run_quietly(shell::command("ip").args(["link", "set", "lo", "up"]))?;
            fs::write("/proc/sys/net/ipv4/tcp_congestion_control", congestion)
                .with_context(|| format!("cannot use the congestion control {congestion}"))?;
        }
        let contestants = match &self.ssh {
            Some(ssh) => self.encrypting(ssh),
            None => self.usual(),
        };
        println!("{}", serde_json::to_string(&race(&self.source, &contestants)?)?);
        Ok(())
    }

    fn encrypting(&self, ssh: &Path) -> Vec<Mover<'static>> {
        let target = || self.target.clone();
        let lads = |name, level| {
            movers::lads_through_ssh(name, target(), (ssh.to_owned(), self.lads.clone()), level)
        };
        vec![
            lads("lads", "encrypted"),
            lads("lads, authenticated", "authenticated"),
            lads("lads, plain", "plain"),
            movers::bare_through_ssh("as WDT does, AES-128-GCM", target(), ssh.to_owned()),
            movers::rsync_through_ssh(target(), ssh.to_owned()),
            movers::scp(target(), ssh.to_owned()),
            movers::rclone(target(), ssh.to_owned()),
        ]
    }

    fn usual(&self) -> Vec<Mover<'static>> {
        let target = || self.target.clone();
        let mut contestants = vec![
            movers::bare("bare program", Way::Blocks, target()),
            movers::bare("as WDT does", Way::Slices, target()),
            movers::bare("as WDT does, crc32c", Way::SlicesWithSums, target()),
            movers::program(&self.lads, "lads", target(), &[]),
            movers::rsync_daemon(target()),
            movers::cp(target()),
        ];
        if self.is_small {
            // Only files of one block are possible.
            contestants.push(movers::bare("with promises", Way::Promises, target()));
        }
        contestants
    }
}
