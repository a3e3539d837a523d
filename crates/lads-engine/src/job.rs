//! What a transfer is asked to do.

use lads_core::filter::{Rule, Verdict};
use lads_core::message::wire::{Reader, Wire, WireError, Writer};
use lads_core::schedule::Policy;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A place: a path, here or on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// `host` or `user@host`, as ssh takes it; `None` for here.
    pub host: Option<String>,
    /// The path, as given; a slash at its end means what is in it.
    pub path: Vec<u8>,
}

impl Location {
    /// Reads `[user@]host:path` or `path`, by rsync's rule: a colon before the first slash parts
    /// a host from a path. `None` if the host is not text.
    #[must_use]
    pub fn parse(argument: &OsStr) -> Option<Self> {
        let bytes = argument.as_bytes();
        let colon = bytes.iter().position(|&byte| byte == b':' || byte == b'/');
        match colon.filter(|&at| at > 0 && bytes[at] == b':') {
            Some(at) => {
                let host = String::from_utf8(bytes[..at].to_vec()).ok()?;
                let path = if at + 1 == bytes.len() { b".".to_vec() } else { bytes[at + 1..].to_vec() };
                Some(Self { host: Some(host), path })
            }
            None => Some(Self { host: None, path: bytes.to_vec() }),
        }
    }

    /// The path as the operating system takes it.
    #[must_use]
    pub fn os_path(&self) -> OsString {
        OsString::from_vec(self.path.clone())
    }
}

/// How files are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Whatever is best here: past the page cache for large reads where the file system takes it,
    /// through it for writes.
    #[default]
    Auto,
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Through the page cache.
    Buffered,
}

/// How far data is checked at the sink before it counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Verify {
    /// Every block's checksum, from the source's memory to the sink's, before it is written.
    #[default]
    Wire,
    /// That, and every block read back from storage past the page cache.
    Media,
}

/// What both ends need to know of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// No block is longer, in bytes; a multiple of 4096 from 64 KiB to 64 MiB.
    pub block_size: u32,
    /// Memory for blocks at each end, in bytes. Nothing beyond it grows with the data.
    pub buffers_bytes: u64,
    /// TCP connections that carry data; zero to choose.
    pub streams: u16,
    /// I/O threads at the source; zero to follow the number of its OSTs.
    pub source_threads: u16,
    /// I/O threads at the sink; zero to follow the number of its OSTs.
    pub sink_threads: u16,
    /// By which rule blocks are handed to I/O threads.
    pub schedule: Policy,
    /// Where the source's layouts come from: `auto` or `synthetic:…`.
    pub source_layout: String,
    /// Where the sink's layouts come from: `auto` or `synthetic:…`.
    pub sink_layout: String,
    /// How files are read.
    pub source_io: IoMode,
    /// How files are written.
    pub sink_io: IoMode,
    /// Whether space is reserved before a file is written.
    pub preallocate: bool,
    /// Whether finished blocks are recorded, so that an interrupted transfer goes on in mid-file.
    pub journal: bool,
    /// How far data is checked.
    pub verify: Verify,
    /// Whether only to say what would be done.
    pub dry_run: bool,
    /// Whether to say what is done with every path.
    pub lists_paths: bool,
    /// Whether devices are moved.
    pub devices: bool,
    /// Whether FIFOs and sockets are moved.
    pub specials: bool,
    /// Whether permissions are kept.
    pub permissions: bool,
    /// Whether times of change are kept.
    pub times: bool,
    /// Whether owner and group are kept, as far as permitted.
    pub owners: bool,
    /// Whether extended attributes and ACLs are kept.
    pub xattrs: bool,
    /// Whether files with several names stay one file.
    pub hard_links: bool,
    /// Whether files of the same size and time of change are looked at all the same (re-sent).
    pub ignores_times: bool,
    /// A peer that is silent for so long is dead, in seconds.
    pub timeout_seconds: u32,
    /// The most to send in a second, in bytes; zero for no limit.
    pub bytes_per_second: u64,
    /// What is left out.
    pub filters: Vec<Rule>,
    /// Only these paths below the one source named, if set.
    pub files_from: Option<Vec<Vec<u8>>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_size: 1 << 20,
            buffers_bytes: 256 << 20,
            streams: 0,
            source_threads: 0,
            sink_threads: 0,
            schedule: Policy::Layout,
            source_layout: "auto".to_owned(),
            sink_layout: "auto".to_owned(),
            source_io: IoMode::Auto,
            sink_io: IoMode::Auto,
            preallocate: true,
            journal: true,
            verify: Verify::Wire,
            dry_run: false,
            lists_paths: false,
            devices: false,
            specials: false,
            permissions: true,
            times: true,
            owners: true,
            xattrs: true,
            hard_links: true,
            ignores_times: false,
            timeout_seconds: 30,
            bytes_per_second: 0,
            filters: Vec::new(),
            files_from: None,
        }
    }
}

/// How the other end is started and reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteShell {
    /// Command that runs a command on another host, `ssh` by default; the host and the command
    /// are put behind it.
    pub command: Vec<String>,
    /// What LADS is called there.
    pub lads: String,
    /// Whether data goes through the remote shell, too, instead of connections of its own.
    pub tunnel: bool,
    /// Address to connect the data streams to, instead of the one that ssh reached.
    pub data_address: Option<String>,
    /// TCP ports that the other end may listen on, first and last; any by default.
    pub ports: Option<(u16, u16)>,
}

impl Default for RemoteShell {
    fn default() -> Self {
        Self {
            command: vec!["ssh".to_owned()],
            lads: "lads".to_owned(),
            tunnel: false,
            data_address: None,
            ports: None,
        }
    }
}

/// A transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What to move; all on the same host.
    pub sources: Vec<Location>,
    /// Where to.
    pub target: Location,
    /// How.
    pub options: Options,
    /// How the other end is started, if one is on another host.
    pub remote: RemoteShell,
}
