//! What a transfer is asked to do.

mod deletion;
mod passing;

use crate::event::ExitCode;
use crate::fatal::Fatal;
use lads_core::congestion::Threshold;
use lads_core::filter::Rule;
use lads_core::issue::Side;
use lads_core::limits::STREAMS_MAX;
use lads_core::placement::Place;
use lads_core::schedule::Policy;
pub use lads_core::shares::BUFFERS_BYTES;
use lads_core::shares::SinkNeeds;
use lads_core::{wire_enum, wire_struct};
use rustix::fs::FileType;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Most extents of a new file that grows, unless another number is asked for: none grows, until it
/// is known of each OST before it gets an extent whether it is up and has space.
pub const PLACE_EXTENTS: u32 = 0;

pub use deletion::Deletion;
pub use passing::Passing;

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
    /// a host from a path. The address of a host may stand in brackets, which it must if it has
    /// colons: `[::1]:path`. `None` if the host is not text.
    #[must_use]
    pub fn parse(argument: &OsStr) -> Option<Self> {
        let bytes = argument.as_bytes();
        if let Some((host, path)) = part_brackets(bytes) {
            let host = String::from_utf8(host).ok()?;
            return Some(Self { host: Some(host), path: path.to_vec() });
        }
        let colon = bytes.iter().position(|&byte| byte == b':' || byte == b'/');
        match colon.filter(|&at| at > 0 && bytes[at] == b':') {
            Some(at) => {
                let host = String::from_utf8(bytes[..at].to_vec()).ok()?;
                let path =
                    if at + 1 == bytes.len() { b".".to_vec() } else { bytes[at + 1..].to_vec() };
                Some(Self { host: Some(host), path })
            }
            None => Some(Self { host: None, path: bytes.to_vec() }),
        }
    }

    /// A place on this host, whatever characters are in its path.
    #[must_use]
    pub fn here(path: impl AsRef<Path>) -> Self {
        Self { host: None, path: path.as_ref().as_os_str().as_bytes().to_vec() }
    }

    /// The path as the operating system takes it.
    #[must_use]
    pub fn os_path(&self) -> OsString {
        OsString::from_vec(self.path.clone())
    }
}

/// The host without its brackets and the path, if there are brackets around the host.
fn part_brackets(argument: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let open = argument.iter().position(|byte| b"[:/".contains(byte))?;
    let (user, rest) = argument.split_at(open);
    let rest = rest.strip_prefix(b"[")?;
    if !user.is_empty() && !user.ends_with(b"@") {
        return None;
    }
    let close = rest.windows(2).position(|pair| pair == b"]:")?;
    let (address, path) = (&rest[..close], &rest[close + 2..]);
    let is_host = !address.is_empty() && !address.contains(&b'/');
    let path = if path.is_empty() { b".".as_slice() } else { path };
    is_host.then(|| ([user, address].concat(), path))
}

/// A host as it is written before a colon and a path: with brackets if it has colons itself.
#[must_use]
pub fn shown_host(host: &str) -> String {
    let (user, address) = match host.rsplit_once('@') {
        Some((user, address)) => (format!("{user}@"), address),
        None => (String::new(), host),
    };
    if address.contains(':') { format!("{user}[{address}]") } else { host.to_owned() }
}

/// How files are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Whatever is best here: past the page cache for large reads where the file system takes it,
    /// and for large writes where that is known to be better.
    #[default]
    Auto,
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Through the page cache.
    Buffered,
}

/// From this length on, in bytes, [`IoMode::Auto`] reads and writes a file past the page cache.
/// Below it that gains nothing and costs a wait for the device.
pub(crate) const DIRECT_BYTES_MIN: u64 = 1 << 20;

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
    /// Memory for blocks at the source, in bytes. Nothing beyond it grows with the data.
    pub source_buffers_bytes: u64,
    /// Memory for blocks at the sink, in bytes; a block for each of its OSTs at least. Zero for
    /// [`BUFFERS_BYTES`], or twice what is needed if that is more.
    pub sink_buffers_bytes: u64,
    /// TCP connections that carry data, or streams in the one pipe of a tunnel; zero to choose.
    pub streams: u16,
    /// I/O threads at the source; zero to follow the number of its OSTs.
    pub source_threads: u16,
    /// I/O threads at the sink; zero to follow the number of its OSTs.
    pub sink_threads: u16,
    /// By which rule blocks are handed to I/O threads.
    pub schedule: Policy,
    /// What is slow, for [`Policy::Threshold`].
    pub threshold: Threshold,
    /// Where the source's layouts come from: `auto` or `synthetic:…`.
    pub source_layout: String,
    /// Where the sink's layouts come from: `auto` or `synthetic:…`.
    pub sink_layout: String,
    /// By which rule new files are placed at the sink, where its file system heeds wishes.
    pub place: Place,
    /// Most extents of a new file that grows while it is written; none does if this is less than 2.
    pub place_extents: u32,
    /// Whether files whose data is in an archive are moved, which brings it back first.
    pub restore: bool,
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
    /// Whether set-user-id and set-group-id bits of files, capabilities and `trusted.` attributes
    /// are kept: what gives rights to whoever uses a file.
    pub privileges: bool,
    /// Whether files with several names stay one file.
    pub hard_links: bool,
    /// Whether files of the same size and time of change are looked at all the same (re-sent).
    pub ignores_times: bool,
    /// What is left as it is at the sink.
    pub passing: Passing,
    /// What is removed at the sink, if anything is.
    pub deletion: Option<Deletion>,
    /// Whether what is mounted below a source on another file system is left out.
    pub one_file_system: bool,
    /// Whether directories above the target that are not there are made.
    pub makes_parents: bool,
    /// Whether files of the same size are compared by their contents, instead of by their times.
    pub checksum: bool,
    /// Whether source and sink are only compared, and differences told. Goes with
    /// [`Self::dry_run`] and [`Self::checksum`].
    pub check: bool,
    /// A peer that is silent for so long is dead, in seconds.
    pub timeout_seconds: u32,
    /// A transfer in which nothing moves for so long ends, in seconds; zero for never.
    pub stall_timeout_seconds: u32,
    /// The most to send in a second, in bytes; zero for no limit.
    pub bytes_per_second: u64,
    /// Directory for blocks that wait for a congested OST of the sink, on local flash of the end
    /// that [`Self::stage_at`] says; `None` for no stage.
    pub stage: Option<Vec<u8>>,
    /// The stage takes up no more than this, in bytes.
    pub stage_bytes: u64,
    /// Which end stages blocks.
    pub stage_at: Side,
    /// What is left out.
    pub filters: Vec<Rule>,
    /// Only these paths below the one source named, if set.
    pub files_from: Option<Vec<Vec<u8>>>,
}

/// I/O threads at an end that a person, or the other end, may ask for: far more than help anyone.
/// Each takes 512 KiB of address space for its stack; ten times as many may be more than a host
/// lets one user have.
const THREADS_MAX: u16 = 1024;

impl Options {
    /// Sees that an end can do what is asked for, whoever asks.
    ///
    /// # Errors
    /// What it cannot do.
    pub(crate) fn check(&self) -> Result<(), Fatal> {
        let has_too_many = self.source_threads.max(self.sink_threads) > THREADS_MAX;
        let text = match () {
            () if has_too_many => {
                format!("at most {THREADS_MAX} I/O threads at an end (--threads)")
            }
            () if self.streams > STREAMS_MAX => format!("at most {STREAMS_MAX} --streams"),
            () => return Ok(()),
        };
        Err(Fatal::new(ExitCode::Usage, text))
    }

    /// Memory for blocks at a sink with this number of OSTs, in bytes.
    pub(crate) fn sink_buffers_bytes(&self, ost_count: usize) -> u64 {
        match self.sink_buffers_bytes {
            0 => self.sink_needs().buffers_bytes(ost_count, self.block_size),
            bytes => bytes,
        }
    }

    /// What the sink needs buffers for.
    pub(crate) fn sink_needs(&self) -> SinkNeeds {
        let verifies_media = self.verify == Verify::Media;
        SinkNeeds { has_stage: self.has_stage(Side::Sink), verifies_media }
    }

    /// Whether special files of this sort are moved.
    pub(crate) fn moves_special(&self, sort: FileType) -> bool {
        match sort {
            FileType::BlockDevice | FileType::CharacterDevice => self.devices,
            _ => self.specials,
        }
    }

    /// Whether this end has a stage.
    pub(crate) fn has_stage(&self, side: Side) -> bool {
        self.stage.is_some() && self.stage_at == side && !self.dry_run
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_size: 1 << 20,
            source_buffers_bytes: BUFFERS_BYTES,
            sink_buffers_bytes: 0,
            streams: 0,
            source_threads: 0,
            sink_threads: 0,
            schedule: Policy::Adaptive,
            threshold: Threshold::default(),
            source_layout: "auto".to_owned(),
            sink_layout: "auto".to_owned(),
            place: Place::Aware,
            place_extents: PLACE_EXTENTS,
            restore: false,
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
            privileges: false,
            hard_links: true,
            ignores_times: false,
            passing: Passing::default(),
            deletion: None,
            one_file_system: false,
            makes_parents: false,
            checksum: false,
            check: false,
            timeout_seconds: 30,
            stall_timeout_seconds: 600,
            bytes_per_second: 0,
            stage: None,
            stage_bytes: 8 << 30,
            stage_at: Side::Source,
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
    /// Address to connect the data streams to, instead of those of the host; `host:port` if the
    /// port is forwarded from another.
    pub data_address: Option<String>,
    /// TCP ports that the other end may listen on, first and last; any by default.
    pub ports: Option<(u16, u16)>,
    /// How long the command may say nothing at first, in seconds. `None`: with ssh as long as it
    /// takes to connect, and to ask a person for a password (300); with any other command as long
    /// as any peer may be silent ([`Options::timeout_seconds`]).
    pub connect_timeout_seconds: Option<u32>,
}

impl Default for RemoteShell {
    fn default() -> Self {
        Self {
            command: vec!["ssh".to_owned()],
            lads: "lads".to_owned(),
            tunnel: false,
            data_address: None,
            ports: None,
            connect_timeout_seconds: None,
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
    /// The `lads` program, of which a transfer within one host runs a second process. A name
    /// without a slash is looked for in `PATH`.
    pub program: PathBuf,
    /// What becomes of what the other end says beside the transfer.
    pub stderr: Stderr,
}

impl Job {
    /// A transfer with all options as they are by default, with the `lads` that is in `PATH`, of
    /// which this process prints nothing.
    #[must_use]
    pub fn new(sources: Vec<Location>, target: Location) -> Self {
        Self {
            sources,
            target,
            options: Options::default(),
            remote: RemoteShell::default(),
            program: PathBuf::from("lads"),
            stderr: Stderr::Kept,
        }
    }
}

/// What becomes of what the other end, or the remote shell, writes to its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stderr {
    /// It is kept, and its last words are told if they say why there is no other end.
    #[default]
    Kept,
    /// It goes to the standard error of this process, where a person reads it.
    PassedOn,
}

/// What the end that a person started tells the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Which end the other is.
    pub(crate) side: Side,
    /// What to read, or the one place to write to.
    pub(crate) paths: Vec<Vec<u8>>,
    pub(crate) options: Options,
    /// What the person calls the host that the other is on; empty for their own.
    pub(crate) host: String,
    /// Stands for this command, so that the same command finds what it left.
    pub(crate) job_key: u64,
    /// Whether data connections come from the same host.
    pub(crate) is_local: bool,
    /// Whether data comes through the pipes that messages come through, not over connections.
    pub(crate) is_piped: bool,
    /// First and last port to listen on; zero for any.
    pub(crate) port_first: u16,
    pub(crate) port_last: u16,
}

wire_struct!(Assignment {
    side,
    paths,
    options,
    host,
    job_key,
    is_local,
    is_piped,
    port_first,
    port_last,
});
wire_enum!(IoMode { 0 => Auto, 1 => Direct, 2 => Buffered });
wire_enum!(Verify { 0 => Wire, 1 => Media });
wire_struct!(Options {
    block_size,
    source_buffers_bytes,
    sink_buffers_bytes,
    streams,
    source_threads,
    sink_threads,
    schedule,
    threshold,
    source_layout,
    sink_layout,
    place,
    place_extents,
    restore,
    source_io,
    sink_io,
    preallocate,
    journal,
    verify,
    dry_run,
    lists_paths,
    devices,
    specials,
    permissions,
    times,
    owners,
    xattrs,
    hard_links,
    ignores_times,
    timeout_seconds,
    stall_timeout_seconds,
    bytes_per_second,
    stage,
    stage_bytes,
    stage_at,
    filters,
    files_from,
    privileges,
    passing,
    deletion,
    one_file_system,
    makes_parents,
    checksum,
    check,
});

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::message::wire::{Reader, Wire};

    fn parse(text: &str) -> (Option<String>, Vec<u8>) {
        let location = Location::parse(OsStr::new(text)).unwrap();
        (location.host, location.path)
    }

    #[test]
    fn a_colon_before_the_first_slash_parts_host_from_path() {
        assert_eq!(parse("dtn:/a"), (Some("dtn".into()), b"/a".to_vec()));
        assert_eq!(parse("me@dtn:a b"), (Some("me@dtn".into()), b"a b".to_vec()));
        assert_eq!(parse("dtn:"), (Some("dtn".into()), b".".to_vec()));
        assert_eq!(parse("./a:b"), (None, b"./a:b".to_vec()));
        assert_eq!(parse("/a:b"), (None, b"/a:b".to_vec()));
    }

    #[test]
    fn an_address_with_colons_stands_in_brackets() {
        let host = |text: &str| Some(text.to_owned());
        assert_eq!(parse("[::1]:/a"), (host("::1"), b"/a".to_vec()));
        assert_eq!(parse("[::1]:"), (host("::1"), b".".to_vec()));
        assert_eq!(parse("me@[fe80::1%eth0]:a:b"), (host("me@fe80::1%eth0"), b"a:b".to_vec()));
        assert_eq!(parse("[dtn]:a"), (host("dtn"), b"a".to_vec()));
        for local in ["./[::1]:a", "[a]", "[a/b]:c", "a[1]"] {
            assert_eq!(parse(local).0, None, "{local}");
        }
        assert_eq!(parse("a[1]:b"), (host("a[1]"), b"b".to_vec()));
        assert_eq!([shown_host("me@::1"), shown_host("dtn")], ["me@[::1]", "dtn"]);
    }

    #[test]
    fn an_assignment_comes_back_from_the_wire() {
        let assignment = Assignment {
            side: Side::Sink,
            paths: vec![b"/x".to_vec()],
            options: Options { files_from: Some(vec![b"a".to_vec()]), ..Options::default() },
            host: "dtn".to_owned(),
            job_key: 7,
            is_local: true,
            is_piped: true,
            port_first: 0,
            port_last: 0,
        };
        let mut bytes = Vec::new();
        assignment.put(&mut bytes);
        assert_eq!(Assignment::take(&mut Reader::new(&bytes)), Ok(assignment));
    }
}
