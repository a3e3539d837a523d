//! What a transfer is asked to do: its places and options.

mod daemon_place;
mod deletion;
pub(crate) mod null;
mod passing;
mod remote_shell;
pub(crate) mod stdio;

use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::paths::Making;

use lads_core::congestion::Threshold;
use lads_core::cpu_share::CpuShare;
use lads_core::filter::Rule;
use lads_core::issue::Side;
use lads_core::limits::STREAMS_MAX;
use lads_core::message::Verb;
use lads_core::placement::Place;
use lads_core::protection::DataLevel;
use lads_core::retry::RetryConfig;
use lads_core::schedule::Policy;
pub use lads_core::shares::BUFFERS_BYTES;
use lads_core::shares::SinkNeeds;
use lads_core::{wire_enum, wire_struct};
use rustix::fs::FileType;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The default for the most extents of a growing file. Between emulated file systems, 32 OSTs of
/// which four of the sink are slow, medians of four: 9.09 s without growing, 9.04 with 4, 8.42
/// with 8 and 8.44 with 16. More extents make a layout that takes longer to read.
pub const PLACE_EXTENTS: u32 = 8;

use daemon_place::SCHEME;
pub use daemon_place::{DaemonPlace, PORT};
pub use deletion::Deletion;
use null::{is_null_sink, is_without_storage};
pub use passing::Passing;
pub use remote_shell::{RemoteShell, Tunnel};
use stdio::{is_stdio, on_other_host};

/// A place: a path, here or on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// `host` or `user@host`, as ssh takes it; `None` for here.
    pub host: Option<String>,
    /// The path, as given; a slash at its end means "what is in the directory". `null:`,
    /// `null:SIZE` and `zero:SIZE` stand for no file: a sink that keeps nothing, and sources whose
    /// bytes lie on no storage. `-` is standard input or output of this process.
    pub path: Vec<u8>,
}

impl Location {
    /// Reads `[user@]host:path`, `lads://host[:port]/path` or `path`, by rsync's rule: a colon
    /// before the first slash separates a host from a path. The host may be an address in brackets;
    /// an address with colons must be: `[::1]:path`. `null:`, `null:SIZE`, `zero:SIZE` and `-` have
    /// no host. `None` if the host is not valid.
    #[must_use]
    pub fn parse(argument: &OsStr) -> Option<Self> {
        let bytes = argument.as_bytes();
        if is_without_storage(bytes) || is_stdio(bytes) {
            return Some(Self { host: None, path: bytes.to_vec() });
        }
        if let Some(rest) = bytes.strip_prefix(SCHEME.as_bytes()) {
            return of_daemon(rest);
        }
        if let Some((host, path)) = part_brackets(bytes) {
            let host = String::from_utf8(host).ok()?;
            return Some(Self { host: Some(host), path: on_other_host(path) });
        }
        let colon = bytes.iter().position(|&byte| byte == b':' || byte == b'/');
        match colon.filter(|&at| at > 0 && bytes[at] == b':') {
            Some(at) => {
                let host = String::from_utf8(bytes[..at].to_vec()).ok()?;
                let path = if at + 1 == bytes.len() { b"." } else { &bytes[at + 1..] };
                let path = on_other_host(path);
                Some(Self { host: Some(host), path })
            }
            None => Some(Self { host: None, path: bytes.to_vec() }),
        }
    }

    /// A place on this host, whatever characters are in its path.
    #[must_use]
    pub fn here(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().as_os_str().as_bytes();
        let is_word = is_without_storage(path) || is_stdio(path);
        let prefix: &[u8] = if is_word { b"./" } else { b"" };
        Self { host: None, path: [prefix, path].concat() }
    }

    /// Reports whether a sink there keeps what it gets: any but `null:`.
    #[must_use]
    pub fn keeps_data(&self) -> bool {
        !is_null_sink(&self.path)
    }

    /// The path as the operating system takes it.
    #[must_use]
    pub fn os_path(&self) -> OsString {
        OsString::from_vec(self.path.clone())
    }
}

/// A path below the directory that a daemon offers.
fn of_daemon(rest: &[u8]) -> Option<Location> {
    let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let place = DaemonPlace::parse(&format!("{SCHEME}{}", std::str::from_utf8(host).ok()?))?;
    let begin = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    let path = if begin == path.len() { b"." } else { &path[begin..] };
    Some(Location { host: Some(place.to_string()), path: path.to_vec() })
}

/// The host without its brackets, and the path, if the host is in brackets.
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

/// A host as it is written before a colon and a path: in brackets if the host itself has colons.
#[must_use]
pub fn shown_host(host: &str) -> String {
    let (user, address) = match host.rsplit_once('@') {
        Some((user, address)) => (format!("{user}@"), address),
        None => (String::new(), host),
    };
    let has_brackets = address.contains(':') && !is_daemon(host);
    if has_brackets { format!("{user}[{address}]") } else { host.to_owned() }
}

/// What is before a path on another host: `dtn2:`, or `lads://dtn2/`.
#[must_use]
pub fn shown_before_path(host: &str) -> String {
    format!("{}{}", shown_host(host), if is_daemon(host) { '/' } else { ':' })
}

/// Reports whether a host is reached through its daemon, and not by a remote shell.
#[must_use]
pub fn is_daemon(host: &str) -> bool {
    host.starts_with(SCHEME)
}

/// Paths that are reported with what is done with them, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Listing {
    /// No path.
    #[default]
    None,
    /// Paths that are created, replaced or removed.
    Changes,
    /// Those, and skipped files.
    All,
}

impl Listing {
    /// Reports whether paths with this verb are in the list.
    pub(crate) fn has(self, verb: Verb) -> bool {
        match self {
            Self::None => false,
            Self::Changes => verb != Verb::Skip,
            Self::All => true,
        }
    }
}

/// How files are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// The best way here: bypassing the page cache for large reads if the file system allows that,
    /// and for large writes where that is known to be better.
    #[default]
    Auto,
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Through the page cache.
    Buffered,
    /// Through the page cache, and nothing stays there (`RWF_DONTCACHE`, where the kernel and the
    /// file system know it).
    Uncached,
}

/// Files of at least this length, in bytes, are read and written bypassing the page cache with
/// [`IoMode::Auto`]. For shorter files that gains nothing and costs a wait for the device.
pub(crate) const DIRECT_BYTES_MIN: u64 = 1 << 20;

/// How data is checked at the sink before it counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Verify {
    /// Every block's checksum is compared before the block is written: from the source's memory to
    /// the sink's.
    #[default]
    Wire,
    /// In addition, every block is read back from storage bypassing the page cache.
    Media,
}

/// What both ends need to know of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest block, in bytes: a multiple of 4096, from 64 KiB to 64 MiB.
    pub block_size: u32,
    /// Memory for blocks at the source, in bytes. No other memory grows with the data.
    pub source_buffers_bytes: u64,
    /// Memory for blocks at the sink, in bytes; at least a block for each of its OSTs. Zero for the
    /// larger of [`BUFFERS_BYTES`] and twice what is needed.
    pub sink_buffers_bytes: u64,
    /// The number of TCP connections that carry data, or of streams in the one pipe of a tunnel;
    /// zero to let LADS choose.
    pub streams: u16,
    /// The number of I/O threads at the source; zero to follow the number of its OSTs.
    pub source_threads: u16,
    /// The number of I/O threads at the sink; zero to follow the number of its OSTs.
    pub sink_threads: u16,
    /// The rule by which blocks are handed to I/O threads.
    pub schedule: Policy,
    /// Which service time counts as slow, for [`Policy::Threshold`].
    pub threshold: Threshold,
    /// Where the source's layouts come from: `auto` or `synthetic:…`.
    pub source_layout: String,
    /// Where the sink's layouts come from: `auto` or `synthetic:…`.
    pub sink_layout: String,
    /// The rule by which new files are placed at the sink, where its file system respects such
    /// wishes.
    pub place: Place,
    /// The most extents of a new file that grows while it is written. With less than 2, no file
    /// grows.
    pub place_extents: u32,
    /// Whether files whose data is in an archive are moved; reading them brings the data back
    /// first.
    pub restore: bool,
    /// How files are read.
    pub source_io: IoMode,
    /// How files are written.
    pub sink_io: IoMode,
    /// Whether space is reserved before a file is written.
    pub preallocate: bool,
    /// Whether finished blocks are recorded, so that an interrupted transfer can go on in the
    /// middle of a file.
    pub journal: bool,
    /// How data is checked at the sink.
    pub verify: Verify,
    /// Whether LADS only says what it would do.
    pub dry_run: bool,
    /// Paths that are reported with what is done with them.
    pub listing: Listing,
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
    /// Whether attributes are kept that give rights to whoever uses a file: set-user-id and
    /// set-group-id bits, capabilities and `trusted.` attributes.
    pub privileges: bool,
    /// Whether a file with several names stays one file.
    pub hard_links: bool,
    /// Whether files with the same size and time of change are sent all the same.
    pub ignores_times: bool,
    /// Which entries are left as they are at the sink.
    pub passing: Passing,
    /// What is removed at the sink, if anything is.
    pub deletion: Option<Deletion>,
    /// Whether a directory at the sink is removed with all that is in it if the source has
    /// something else under its name; [`Self::deletion`] includes this.
    pub force: bool,
    /// Whether files, links and special files are removed at the source when they are durable at
    /// the sink. Cannot be combined with [`Self::deletion`] and [`Self::force`].
    pub removes_sources: bool,
    /// Whether other file systems that are mounted below a source are left out.
    pub one_file_system: bool,
    /// Whether the files and directories that symbolic links lead to are copied instead of the
    /// links.
    pub copy_links: bool,
    /// Whether missing directories above the target are made.
    pub makes_parents: bool,
    /// Whether files of the same size are compared by their contents instead of their times.
    pub checksum: bool,
    /// Whether source and sink are only compared, and differences reported. Requires
    /// [`Self::dry_run`] and [`Self::checksum`].
    pub check: bool,
    /// How data is protected between two hosts; lower than [`DataLevel::Encrypted`] only if the
    /// settings of the other host permit it.
    pub data: DataLevel,
    /// A peer that is silent for this many seconds counts as dead.
    pub timeout_seconds: u32,
    /// A transfer in which nothing moves for this many seconds ends; zero for no limit.
    pub stall_timeout_seconds: u32,
    /// The rate limit in bytes per second; zero for no limit.
    pub bytes_per_second: u64,
    /// The most processor time that each end may use; `None` for no limit.
    pub max_cpu: Option<CpuShare>,
    /// The processors on which the source runs, as [`lads_core::cpu_list::Pin`] reads them; empty
    /// for any. Other threads of the program run where they did.
    pub source_pin: String,
    /// The same for the sink.
    pub sink_pin: String,
    /// The directory for the stage, on local flash at the end that [`Self::stage_at`] names; `None`
    /// for no stage.
    pub stage: Option<Vec<u8>>,
    /// The largest size of the stage, in bytes.
    pub stage_bytes: u64,
    /// Which end stages blocks.
    pub stage_at: Side,
    /// What is left out.
    pub filters: Vec<Rule>,
    /// If set, only these paths below the single source are moved.
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Whether the blocks of each file are read in the order of their offsets.
    pub in_order: bool,
    /// Whether a source that is a FIFO or a device is read as if it were a file.
    pub copy_devices: bool,
    /// Whether a target that is a FIFO or a device is written to as if it were a file; so with `-`.
    /// What is written is read in order then.
    pub write_devices: bool,
    /// The single source is a file that grows; it is at its end when it has not grown for this many
    /// seconds. Zero if it does not grow.
    pub follow_seconds: u32,
}

/// The most I/O threads at an end that a user, or the other end, may ask for: far more than help
/// anyone. Each takes 512 KiB of address space for its stack. Ten times as many may be more than a
/// host allows one user.
const THREADS_MAX: u16 = 1024;

impl Options {
    /// Checks that an end can do what is asked for, whoever asks.
    ///
    /// # Errors
    /// What the end cannot do.
    pub(crate) fn check(&self) -> Result<(), Fatal> {
        let has_too_many = self.source_threads.max(self.sink_threads) > THREADS_MAX;
        let both = |option| {
            format!(
                "{option} would remove files that --remove-source-files has moved: use only one \
                 of them"
            )
        };
        let text = match () {
            () if has_too_many => {
                format!(
                    "at most {THREADS_MAX} I/O threads at an end (--source threads=N, --sink threads=N)"
                )
            }
            () if self.streams > STREAMS_MAX => format!("at most {STREAMS_MAX} --streams"),
            // The sink asks at the end which names the source has.
            () if self.removes_sources && self.deletion.is_some() => both("--delete"),
            // An earlier run has moved files into a directory that is another entry now.
            () if self.removes_sources && self.force => both("--force"),
            () if self.removes_sources && self.check => {
                "lads check does not remove files: omit --remove-source-files".to_owned()
            }
            () => return Ok(()),
        };
        Err(Fatal::new(ExitCode::Usage, text))
    }

    /// What happens when the sink opens a directory that does not exist.
    pub(crate) fn making(&self) -> Making {
        match (self.passing.missing, self.passing.there) {
            _ if self.dry_run => Making::Never,
            (false, false) => Making::Always,
            (true, false) => Making::InPlaceOfOthers,
            (false, true) => Making::IfMissing,
            (true, true) => Making::Never,
        }
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

    /// Whether files are removed at the source in this transfer.
    pub(crate) fn is_move(&self) -> bool {
        self.removes_sources && !self.dry_run
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
            listing: Listing::None,
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
            force: false,
            removes_sources: false,
            one_file_system: false,
            copy_links: false,
            makes_parents: false,
            checksum: false,
            check: false,
            data: DataLevel::Encrypted,
            timeout_seconds: 30,
            stall_timeout_seconds: 600,
            bytes_per_second: 0,
            max_cpu: None,
            source_pin: String::new(),
            sink_pin: String::new(),
            stage: None,
            stage_bytes: 8 << 30,
            stage_at: Side::Source,
            filters: Vec::new(),
            files_from: None,
            in_order: false,
            copy_devices: false,
            write_devices: false,
            follow_seconds: 0,
        }
    }
}

/// A transfer: what to move, where to, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What to move; all on the same host.
    pub sources: Vec<Location>,
    /// Where to move it.
    pub target: Location,
    /// The options.
    pub options: Options,
    /// How the other end is started, if one is on another host.
    pub remote: RemoteShell,
    /// The `lads` program. A transfer within one host runs it as its second process. A name without
    /// a slash is looked up in `PATH`.
    pub program: PathBuf,
    /// What happens to the standard error of the other end.
    pub stderr: Stderr,
    /// Whether the transfer begins again by itself after an outage.
    pub retry: RetryConfig,
}

impl Job {
    /// A transfer with default options, with the `lads` in `PATH`. This process prints nothing of
    /// what the other end writes to standard error.
    #[must_use]
    pub fn new(sources: Vec<Location>, target: Location) -> Self {
        Self {
            sources,
            target,
            options: Options::default(),
            remote: RemoteShell::default(),
            program: PathBuf::from("lads"),
            stderr: Stderr::Kept,
            retry: RetryConfig::default(),
        }
    }
}

/// What happens to what the other end, or the remote shell, writes to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stderr {
    /// It is kept. Its last words are shown if they explain why there is no other end.
    #[default]
    Kept,
    /// It goes to the standard error of this process.
    PassedOn,
}

/// The assignment that the end that a user started gives to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Whether the other end is the source or the sink.
    pub(crate) side: Side,
    /// The paths to read, or the one path to write to.
    pub(crate) paths: Vec<Vec<u8>>,
    pub(crate) options: Options,
    /// The other end's host, as the user calls it; empty for the user's own host.
    pub(crate) host: String,
    /// A number for this command, so that the same command finds what it left.
    pub(crate) job_key: u64,
    /// Whether data connections come from the same host.
    pub(crate) is_local: bool,
    /// Whether data comes through the pipes that carry messages, and not over connections.
    pub(crate) is_piped: bool,
    /// Whether the other end connects the data streams; CONNECT says where.
    pub(crate) connects: bool,
    /// The first and last port to listen on; zero for any.
    pub(crate) port_first: u16,
    pub(crate) port_last: u16,
    /// The number of streams that may be opened besides, if the other end is far away.
    pub(crate) more_streams: u16,
    /// Whether the host that asks has instructions for AES.
    pub(crate) has_aes: bool,
}

wire_struct!(Assignment {
    side,
    paths,
    options,
    host,
    job_key,
    is_local,
    is_piped,
    connects,
    port_first,
    port_last,
    more_streams,
    has_aes,
});
wire_enum!(IoMode { 0 => Auto, 1 => Direct, 2 => Buffered, 3 => Uncached });
wire_enum!(Verify { 0 => Wire, 1 => Media });
wire_enum!(Listing { 0 => None, 1 => Changes, 2 => All });
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
    listing,
    devices,
    specials,
    permissions,
    times,
    owners,
    xattrs,
    hard_links,
    ignores_times,
    data,
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
    force,
    removes_sources,
    one_file_system,
    copy_links,
    makes_parents,
    checksum,
    check,
    in_order,
    copy_devices,
    write_devices,
    follow_seconds,
    max_cpu,
    source_pin,
    sink_pin,
});

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::message::wire::{Reader, Wire};

    /// An earlier run has moved them, and the source does not have them any more.
    #[test]
    fn what_removes_moved_files_at_the_sink_is_refused() {
        let moving = || Options { removes_sources: true, ..Options::default() };
        assert!(moving().check().is_ok());
        let deletion = Some(Deletion { excluded: false, after_errors: false, count_max: None });
        let deleting = Options { deletion, ..moving() };
        let forcing = Options { force: true, ..moving() };
        for (options, named) in [(deleting, "--delete"), (forcing, "--force")] {
            let text = options.check().unwrap_err().text;
            assert!(text.starts_with(named), "{text}");
        }
    }

    #[test]
    fn parts_the_remote_shell_as_a_shell_does() {
        let command = r#"ssh -o 'ProxyCommand=nc %h %p' -i "a b" c\ d "#;
        let expected = ["ssh", "-o", "ProxyCommand=nc %h %p", "-i", "a b", "c d"];
        assert_eq!(RemoteShell::words(command).unwrap(), expected);
        for nothing in ["", " ", "'ssh", "a \"b"] {
            RemoteShell::words(nothing).unwrap_err();
        }
    }

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
            connects: true,
            port_first: 0,
            port_last: 0,
            has_aes: true,
            more_streams: 28,
        };
        let mut bytes = Vec::new();
        assignment.put(&mut bytes);
        assert_eq!(Assignment::take(&mut Reader::new(&bytes)), Ok(assignment));
    }
}
