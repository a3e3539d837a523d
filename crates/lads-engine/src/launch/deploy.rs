//! LADS on another host: a script that finds it there, or receives it, and starts it.
//!
//! The script (`deploy.sh`) is the command that ssh executes. If it finds a LADS of the same
//! version and wire, it starts it, and nothing else is sent or received. Otherwise it writes a line
//! that begins with `LADS-NEED`, and reads on its standard input the length and the SHA-256 of the
//! program, then the program, compressed by gzip. It writes `LADS-READY` and starts the program, or
//! writes `LADS-FAIL` and the reason.

use super::other::involves_ssh;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::RemoteShell;
use crate::thread::{NoThread, spawn_in};
use flate2::Compression;
use flate2::write::GzEncoder;
use lads_core::message::SchemaDigest;
use lads_core::schema::DIGEST;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};
use twox_hash::XxHash3_64;

/// The scripts, with comments.
const SCRIPT: &str = include_str!("deploy.sh");
const REMOVAL: &str = include_str!("remove.sh");
/// The machines, in the words of `uname -m`, for which LADS is built.
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];
/// The first word of each line of the script; all have the same length.
pub(super) const NEED: &str = "LADS-NEED";
const READY: &str = "LADS-READY";
pub(super) const FAIL: &str = "LADS-FAIL";
/// The longest line of the script, in bytes. It may contain the first line of an error message of
/// the loader, with two paths.
pub(super) const LINE_BYTES_MAX: usize = 10 << 10;
/// The level of compression. A static program of 7.6 MB becomes 3.5 MB in 0.20 s of one processor;
/// at level 1 3.7 MB in 0.15 s, at level 6 3.4 MB in 0.45 s. Over 100 Mbit/s, levels 1 and 3 take
/// the same time.
const LEVEL: u32 = 3;
/// The number of parts that are compressed at the same time. Each is a member of the gzip file. On
/// two processors, two or four parts take 0.10 s, and one part takes 0.18.
const PARTS: usize = 4;

/// Returns the version and wire of this build, as `lads --version` prints them.
#[must_use]
pub fn version() -> String {
    let wire = SchemaDigest(Some(DIGEST));
    format!("lads {} (wire {wire})", env!("CARGO_PKG_VERSION"))
}

/// The builds of LADS that this host can send to another one.
#[derive(Debug)]
pub(super) struct Builds {
    own: PathBuf,
    /// Whether the user lets LADS send one.
    pub(super) may_be_sent: bool,
    found: Vec<Build>,
}

/// One file of LADS.
#[derive(Debug)]
struct Build {
    machine: &'static str,
    path: PathBuf,
    bytes: u64,
    /// The name in a cache: two builds have two names.
    name: String,
}

/// A line of the script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// LADS is not there; the system and the machine, in the words of `uname`.
    Need { system: String, machine: String },
    /// LADS was received and starts.
    Ready,
    /// The reason why LADS cannot be started there.
    Fail(String),
}

impl Builds {
    /// Looks for builds next to the program `own` (`lads-x86_64`, `lads-aarch64`), and in
    /// `PREFIX/lib/lads` if it is `PREFIX/bin/lads`. The program itself is the build for its
    /// machine if there is no such file.
    fn beside(own: &Path, may_be_sent: bool) -> Self {
        let real = fs::read_link(own).unwrap_or_else(|_| own.to_owned());
        let find = |machine: &'static str| {
            let is_own = machine == std::env::consts::ARCH;
            let places = [".", "../lib/lads"].into_iter();
            let mut places =
                places.map(|it| real.with_file_name(it).join(format!("lads-{machine}")));
            let named =
                places.find(|it| is_trusted(it, own)).and_then(|it| Build::of(machine, &it));
            named.or_else(|| is_own.then(|| Build::of(machine, own)).flatten())
        };
        Self { found: MACHINES.into_iter().filter_map(find).collect(), own: real, may_be_sent }
    }

    /// The builds for a host that is reached by this remote shell. `None` if the user says where
    /// LADS is, or if the remote shell is not ssh: it may not lead to a shell.
    pub(super) fn for_shell(remote: &RemoteShell, own: &Path) -> Option<Self> {
        (remote.lads.is_none() && involves_ssh(remote)).then(|| Self::beside(own, remote.deploys))
    }

    /// The command, in the words of the remote shell's user, that starts LADS with these words.
    /// Before it is known whether LADS is there, `early_bytes` are sent to it.
    pub(super) fn words(&self, early_bytes: usize, words: &[Vec<u8>]) -> Vec<Vec<u8>> {
        executing(&self.script(early_bytes)).into_iter().chain(words.iter().cloned()).collect()
    }

    fn script(&self, early_bytes: usize) -> String {
        let case = |Build { machine, name, bytes, .. }: &Build| {
            format!("{machine}) build={name}; bytes={bytes};;")
        };
        let builds: Vec<_> = self.found.iter().map(case).collect();
        let largest = self.found.iter().map(|build| build.bytes).max().unwrap_or(0);
        in_one_line(SCRIPT)
            .replace("@VERSION@", &version())
            .replace("@BUILDS@", &builds.join(" "))
            .replace("@ROOM_MIB@", &largest.div_ceil(1 << 20).to_string())
            .replace("@MAY_RECEIVE@", if self.may_be_sent { "yes" } else { "" })
            .replace("@EARLY_BYTES@", &early_bytes.to_string())
    }

    /// Returns the bytes that the script on `host` reads: length, digest and compressed program.
    ///
    /// # Errors
    /// If no build for that machine exists here, with the remedy.
    pub(super) fn parcel(&self, host: &str, system: &str, machine: &str) -> Result<Vec<u8>, Fatal> {
        let build = self.found.iter().find(|build| system == "Linux" && build.machine == machine);
        let Some(build) = build else {
            let (own, version) = (self.own.display(), env!("CARGO_PKG_VERSION"));
            let text = format!(
                "there is no LADS {version} on {host}, and no build for {system} {machine} here: \
                 put lads-{machine} of that version next to {own}, or install LADS on {host}"
            );
            return Err(Fatal::new(ExitCode::Usage, text).when_reached());
        };
        let read = || -> io::Result<Vec<u8>> {
            let bytes = fs::read(&build.path)?;
            let (digest, packed) = (Sha256::digest(&bytes), compressed(&bytes)?);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok([format!("{} {digest}\n", packed.len()).into_bytes(), packed].concat())
        };
        read().map_err(|error| {
            let path = build.path.display();
            Fatal::new(ExitCode::Other, format!("cannot read {path} to send it to {host}: {error}"))
        })
    }
}

impl Build {
    /// Returns `None` if the file cannot be read.
    fn of(machine: &'static str, path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let hash = XxHash3_64::oneshot(&bytes);
        let name = format!("lads-{}-{machine}-{hash:016x}", env!("CARGO_PKG_VERSION"));
        Some(Self { machine, path: path.to_owned(), bytes: bytes.len() as u64, name })
    }
}

/// Returns the words of the command that removes all copies of LADS that were sent to a host.
pub(super) fn removal() -> Vec<Vec<u8>> {
    executing(&in_one_line(REMOVAL))
}

/// The words of a command, for any shell, that executes a script. `$0` is `lads`.
fn executing(script: &str) -> Vec<Vec<u8>> {
    ["exec", "/bin/sh", "-c", script, "lads"].map(|word| word.as_bytes().to_vec()).to_vec()
}

/// A script without comments.
fn in_one_line(script: &str) -> String {
    let lines = script.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Whether a file next to the program belongs to the owner of the program or to root. In a
/// directory where others may create files, it may be theirs.
fn is_trusted(file: &Path, program: &Path) -> bool {
    let owner = |path: &Path| fs::metadata(path).map(|it| it.uid());
    owner(file).is_ok_and(|it| it == 0 || owner(program).is_ok_and(|of| of == it))
}

/// Compresses in parts, at the same time.
fn compressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let pack = |part: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        encoder.write_all(part)?;
        encoder.finish()
    };
    let parts = bytes.chunks(bytes.len().div_ceil(PARTS).max(1));
    let packed: io::Result<Vec<Vec<u8>>> = thread::scope(|scope| {
        let begin = |part| spawn_in(scope, "lads-pack", move || pack(part));
        let threads: Vec<_> = parts.map(begin).collect();
        let finish = |it: Result<ScopedJoinHandle<'_, _>, NoThread>| {
            it.map_err(io::Error::other)?.join().expect("it does not panic")
        };
        threads.into_iter().map(finish).collect()
    });
    Ok(packed?.concat())
}

impl Line {
    /// `None` if the script does not write such lines.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, rest.split_once(' ')) {
            (NEED, Some((system, machine))) => {
                Some(Self::Need { system: system.to_owned(), machine: machine.to_owned() })
            }
            (READY, _) => Some(Self::Ready),
            (FAIL, _) => Some(Self::Fail(rest.to_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
