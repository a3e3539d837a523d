//! The messages that source and sink exchange on the control channel.
//!
//! A message is its length (four bytes, little endian; the number of bytes after it), its type (one
//! byte) and its fields ([`wire`]). Names follow the paper: NEW_FILE, FILE_ID, NEW_BLOCK,
//! BLOCK_DONE and FILE_DONE (LADS, FAST '15, section 3.3); NEW_BLOCK is the data frame
//! ([`crate::frame`]). Everything about single files travels in batches. `docs/protocol.md` shows
//! the bytes.

mod counters;
mod greeting;
pub mod wire;

use crate::ceph::ObjectStriping;
use crate::congestion::Threshold;
use crate::cpu_share::{CpuShare, CpuUnit};
use crate::entry::{Entry, Identity, Kind, Metadata, Timestamp, Xattr};
use crate::filter::{Rule, Verdict};
use crate::issue::{Failure, Issue, Operation, Reason, Side};
use crate::layout::{Layout, Part};
use crate::limits::{NAME_OVERHEAD_BYTES, RANGES_PER_MESSAGE};
use crate::matching::Why;
use crate::pass::{Pass, PassCounts};
use crate::placement::{Place, Striping};
use crate::pool::{Io, Requests};
use crate::protection::Protection;
use crate::range::RangeSet;
use crate::reduction::ReducedCounts;
use crate::room::Lot;
use crate::schedule::Policy;
use crate::units::{EntryId, OstId};
use crate::{wire_enum, wire_list, wire_struct};
use wire::{Reader, Wire, WireError, Writer};

pub use crate::limits::MESSAGE_BYTES_MAX;
pub use greeting::{DataPort, Hello, MAGIC, SchemaDigest, VERSION, VERSION_MIN};

/// The longest job, in bytes. A job holds the list of `--files-from`: some 800,000 paths of 80
/// bytes. People have had lists of half this length; for a list twice as long, a directory is the
/// better way.
pub const JOB_BYTES_MAX: usize = 64 << 20;

/// The longest JOB message, in bytes: the job with its type and its length.
pub const JOB_MESSAGE_BYTES_MAX: usize = JOB_BYTES_MAX + 16;

/// The length of the length before each message, in bytes.
pub const LENGTH_BYTES: usize = 4;

/// The sink's answer to an announced entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send the file, except the bytes that are done.
    Want {
        /// The bytes that the sink has from an earlier attempt, durable and on record.
        done: RangeSet,
        /// Which sink OST will hold which byte.
        layout: Layout,
    },
    /// The sink has it already, with the same size and time of change; its metadata is set.
    Have,
    /// The sink made it at once: a directory, a link, a device.
    Made,
    /// A dry run: it would be moved.
    Would,
    /// The sink cannot take it.
    Failed(Failure),
    /// The bytes that the sink has from an earlier attempt do not fit into one message: another
    /// answer follows.
    Begun {
        /// Bytes that the sink has, durable and journalled.
        done: RangeSet,
    },
    /// It stays as it is at the sink, as the user asked.
    Passed(Pass),
    /// The sink has a file of the same size: send the checksum of each block, without its bytes.
    Compare {
        /// Which sink OST holds which byte of it.
        layout: Layout,
    },
}

/// How an entry ended, as one end says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// From the source: all blocks were read from the same unchanged file; give it its own name.
    /// From the sink: it has its own name, and is durable and verified.
    Complete,
    /// From the source: drop what you have of it; it changed or cannot be read.
    /// From the sink: dropped.
    Dropped,
    /// From the sink: it could not be finished.
    Failed(Failure),
    /// From the sink: it was compared and found the same.
    Same,
    /// From the sink: it was compared and found different.
    Different,
    /// From the source, for a directory: everything that was announced in it has ended, but it has
    /// further entries that could not be announced.
    Incomplete,
    /// From the source, for an unsized file, in place of [`Self::Complete`]: the sink has all of
    /// it.
    CompleteAt {
        /// How long it is, in bytes.
        size: u64,
        /// When its data last changed.
        mtime: Timestamp,
    },
}

/// A range of bytes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The file.
    pub entry: EntryId,
    /// Where the range begins.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// A path that the source was told to move, with what the sink needs to find the target's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Last component of the path.
    pub name: Vec<u8>,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether only the entries in it are meant (`source/`, with a slash), not the directory
    /// itself.
    pub is_contents_only: bool,
}

/// How far one end has come: sums since the transfer began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Files, links and special files found so far; directories are counted apart.
    pub files_found: u64,
    /// Directories found so far.
    pub directories_found: u64,
    /// Bytes of data found so far.
    pub bytes_found: u64,
    /// Whether the whole tree has been walked, so that the sums found are final.
    pub is_walk_ended: bool,
    /// Files moved, or links made.
    pub files_moved: u64,
    /// Entries that the sink had already.
    pub files_skipped: u64,
    /// Entries that failed.
    pub files_failed: u64,
    /// At the source: bytes that the sink has recorded as durable, in this attempt or an earlier
    /// one. At the sink: bytes that this attempt has written; bytes of dropped files do not count.
    pub bytes_done: u64,
    /// At the source: of `bytes_done`, bytes of files that the sink had already, and of blocks done
    /// in an earlier attempt.
    pub bytes_skipped: u64,
    /// Bytes sent, including every copy of bytes that were sent again.
    pub bytes_sent: u64,
    /// Blocks sent, including every copy.
    pub blocks_sent: u64,
    /// Blocks sent again, after a bad checksum, a lost stream or a file that changed.
    pub blocks_resent: u64,
    /// Processor time used, user and system, in microseconds.
    pub cpu_micros: u64,
    /// Largest memory held, in bytes.
    pub memory_bytes_peak: u64,
    /// The OST that was busy longest.
    pub busiest_ost: Option<BusyOst>,
    /// Time that the threads of this end spent in storage calls, in microseconds, summed over
    /// threads.
    pub storage_micros: u64,
    /// Time that the threads of this end waited for the network, in microseconds, summed over
    /// threads.
    pub network_micros: u64,
    /// Time that threads of this end were ready to run and waited for a processor, in microseconds,
    /// summed over threads.
    pub cpu_delay_micros: u64,
    /// Time that the processors on which this end may run had nothing to do, in microseconds,
    /// summed over processors.
    pub cpu_idle_micros: u64,
    /// At the source: time in which a thread found nothing to read although storage was free,
    /// because the rest of the path held it up or nothing was left; in microseconds.
    pub starved_micros: u64,
    /// Bytes that this end staged.
    pub bytes_staged: u64,
    /// Bytes that were ready to be read and sent, but had to wait for the user's rate limit.
    pub bytes_limited: u64,
    /// Time in which at least one thread of this end waited because of the user's share of the
    /// processors, in microseconds.
    pub cpu_limited_micros: u64,
    /// Entries that were passed over.
    pub passed: PassCounts,
    /// Entries that were removed at the sink, or would be.
    pub entries_removed: u64,
    /// Of `files_moved`, the files with every block's checksum compared at the sink: regular files.
    /// Other entries have no data.
    pub files_verified: u64,
    /// Of `files_skipped`, the files that nobody read: their size and time are the same.
    pub files_unread: u64,
    /// The bytes of `files_unread`.
    pub bytes_unread: u64,
    /// Of `files_skipped`, the files that were compared and found the same.
    pub files_compared: u64,
    /// The bytes of `files_compared`.
    pub bytes_compared: u64,
    /// What the requests of this end to its storage are like.
    pub requests: Option<Requests>,
    /// The data streams that this end has, or had before they were lost.
    pub stream_count: u32,
    /// Entries that did not get all of their metadata because of this end.
    pub reduced: ReducedCounts,
}

/// How long one OST worked for this transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyOst {
    /// The name of the OST, as its layout provider gives it.
    pub name: String,
    /// How long it had at least one request of ours, in microseconds.
    pub busy_micros: u64,
    /// Bytes that it served.
    pub bytes: u64,
}

/// How much the OSTs of one end have done for this transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OstBytes {
    /// When, in microseconds on that end's own clock.
    pub elapsed_micros: u64,
    /// The bytes that each OST has served so far, in the order of their numbers.
    pub bytes: Vec<u64>,
}

/// One message on the control channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who this end is.
    Hello(Hello),
    /// From the end that a user started to the other one: what to do, as the engine encodes it.
    Job(Vec<u8>),
    /// From the other end: it has taken up the job.
    Listen {
        /// Where data streams may connect; empty if this end connects, or if they share the pipes.
        port: DataPort,
        /// What protects the streams.
        protection: Protection,
    },
    /// From the end that a user started: the other one connects the data streams to it.
    Connect(DataPort),
    /// From the source: the paths that are going to be moved.
    Roots(Vec<Root>),
    /// From the sink: it is ready to receive entries.
    Ready {
        /// The number of its OSTs.
        ost_count: u32,
        /// The number of files that it can keep open.
        open_files_max: u32,
        /// Whether the target is a new name for the only source, a file, and no directory.
        is_renamed: bool,
        /// The unit of the target's times, in nanoseconds: at most 2 s; 1 if no times are kept.
        time_unit_nanos: u32,
    },
    /// From the source: entries, each after its parent directory.
    NewFile(Vec<Entry>),
    /// From the sink: its answer to each entry.
    FileId(Vec<(EntryId, Answer)>),
    /// From the sink: room for further frames.
    Grant(Lot),
    /// From the sink: these blocks are durable, and on record.
    BlockDone(Vec<BlockRange>),
    /// From the sink: these blocks did not match their checksum; send them again.
    BlockBad(Vec<BlockRange>),
    /// From both: how entries ended.
    FileDone(Vec<(EntryId, Ending)>),
    /// From the sink: a data stream ended after this many whole frames.
    StreamEnd {
        /// Which stream.
        stream: u16,
        /// Frames that arrived whole.
        frames: u64,
    },
    /// This end is alive.
    Heartbeat,
    /// From the source: the number of frames sent so far on each data stream. A frame that does not
    /// arrive was lost on the way.
    Frames(Vec<u64>),
    /// From the source: its stage holds this many bytes. They do not count as placed too early.
    Staged(u64),
    /// From the sink: these files lie on OSTs that have turned slow, while other OSTs have little
    /// to do. Drop them and announce them again, so that they get another place.
    PlaceAgain(Vec<EntryId>),
    /// From the sink, when everything has ended: which of these names does the source have?
    AreThere(Question),
    /// From the source: what it has under each of those names.
    There {
        /// The number of the question.
        number: u64,
        /// One answer for each name, in the order of the names.
        answers: Vec<Presence>,
    },
    /// From the sink: the number of entries that it has removed so far, or would remove.
    Removed(u64),
    /// How far this end has come.
    Progress(Counters),
    /// What each OST of this end has done so far.
    OstBytes(OstBytes),
    /// For the user: failed entries.
    Issues(Vec<Issue>),
    /// For the user: actions on paths, or planned ones in a dry run.
    Lines(Vec<Line>),
    /// For the user: a text.
    Notice(String),
    /// From the source: every entry has ended.
    Finish {
        /// Whether nothing failed at the source. Then temporary files of an earlier attempt are of
        /// no use any more.
        is_complete: bool,
    },
    /// From the sink: everything is durable. From both: the final counters.
    Finished(Counters),
    /// Stop now, in a state from which the same command can go on; the text says why.
    Stop(String),
    /// This end cannot go on: exit code and a text for the user.
    Fatal {
        /// The exit code, as documented.
        code: u8,
        /// The text for the user.
        text: String,
    },
}

/// Which of these names are in a directory of the source?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The number that the answer repeats.
    pub number: u64,
    /// The path of the directory below the root; empty for the root.
    pub directory: Vec<u8>,
    /// Names that this directory has at the sink.
    pub names: Vec<Vec<u8>>,
}

impl Question {
    /// About how many bytes it takes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_names: usize = self.names.iter().map(|name| name.len() + NAME_OVERHEAD_BYTES).sum();
        self.directory.len() + of_names
    }
}

/// What the source has under one of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nothing, or an entry that was left out (`--exclude`).
    Absent,
    /// An entry that is not a directory, moved or not.
    Other,
    /// A directory.
    Directory,
    /// Unknown: the directory is not the one that was listed.
    Unknown,
}

/// What is done, or would be done, with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What is done.
    pub verb: Verb,
    /// The path below the target directory.
    pub path: Vec<u8>,
    /// The bytes of data that this concerns.
    pub bytes: u64,
}

/// The kinds of things that are done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Its data is moved.
    Send,
    /// It exists already, and stays as it is.
    Skip,
    /// A directory is made, or exists already.
    Directory,
    /// A symbolic link is made.
    Symlink,
    /// A hard link is made.
    HardLink,
    /// A device, FIFO or socket is made.
    Special,
    /// It is removed: the source has nothing of that name. The path of a directory ends in a slash.
    Delete,
    /// A difference: only the source has it.
    OnlyAtSource,
    /// A difference: only the sink has it.
    OnlyAtSink,
    /// A difference: the two are not of the same kind, for example a link and a file.
    OtherKind,
    /// A difference: the sizes of the files differ.
    OtherSize,
    /// A difference: the bytes of the files differ.
    OtherContents,
    /// A difference: the targets of the links differ, or the device numbers.
    OtherTarget,
    /// A difference: mode, owner, time of change or attributes differ.
    OtherMetadata,
}

impl Verb {
    /// Reports whether it is a difference between source and sink.
    #[must_use]
    pub fn is_difference(self) -> bool {
        !matches!(
            self,
            Self::Send
                | Self::Skip
                | Self::Directory
                | Self::Symlink
                | Self::HardLink
                | Self::Special
                | Self::Delete
        )
    }
}

wire_enum!(Verb {
    0 => Send,
    1 => Skip,
    2 => Directory,
    3 => Symlink,
    4 => HardLink,
    5 => Special,
    6 => Delete,
    7 => OnlyAtSource,
    8 => OnlyAtSink,
    9 => OtherKind,
    10 => OtherSize,
    11 => OtherContents,
    12 => OtherTarget,
    13 => OtherMetadata,
});
wire_enum!(Presence { 0 => Absent, 1 => Other, 2 => Directory, 3 => Unknown });
wire_struct!(Question { number, directory, names });
wire_struct!(Line { verb, path, bytes });
wire_struct!(Root { name, is_directory, is_contents_only });
wire_struct!(BlockRange { entry, offset, length });
wire_struct!(Lot { frames, osts });
wire_struct!(OstBytes { elapsed_micros, bytes });
wire_struct!(BusyOst { name, busy_micros, bytes });
wire_struct!(Counters {
    files_found,
    directories_found,
    bytes_found,
    is_walk_ended,
    files_moved,
    files_skipped,
    files_failed,
    bytes_done,
    bytes_skipped,
    bytes_sent,
    blocks_sent,
    blocks_resent,
    cpu_micros,
    memory_bytes_peak,
    busiest_ost,
    storage_micros,
    network_micros,
    cpu_delay_micros,
    cpu_idle_micros,
    starved_micros,
    bytes_staged,
    bytes_limited,
    cpu_limited_micros,
    passed,
    entries_removed,
    files_verified,
    files_unread,
    bytes_unread,
    files_compared,
    bytes_compared,
    requests,
    stream_count,
    reduced,
});
wire_struct!(Requests { in_flight, files, request_bytes, limit, why, gain_per_mille, io });
wire_enum!(Why { 0 => Fixed, 1 => Guess, 2 => Less, 3 => More });
wire_enum!(Io { 0 => Buffered, 1 => Direct, 2 => Uncached, 3 => Absent });
wire_struct!(PassCounts { newer, there, missing, size });
wire_struct!(ReducedCounts {
    privileges,
    owner,
    owner_refused,
    set_id_bits,
    permissions,
    attributes,
    acls,
    large_attributes,
    attributes_refused,
    attributes_unreadable,
    times,
});
wire_enum!(Pass { 0 => Newer, 1 => There, 2 => Missing, 3 => Size });
wire_struct!(Rule { verdict, pattern });
wire_enum!(Verdict { 0 => Include, 1 => Exclude });
wire_enum!(Place { 0 => Inherit, 1 => Same, 2 => Spread, 3 => Aware });
wire_enum!(Policy { 0 => File, 1 => Layout, 2 => Threshold, 3 => Adaptive, 4 => Polite });
wire_struct!(Threshold { window, limit_micros, skips });
wire_struct!(CpuShare { thousandths, of });
wire_enum!(CpuUnit { 0 => Processor, 1 => Host });
wire_struct!(EntryId { 0 });
wire_struct!(OstId { 0 });
wire_struct!(Timestamp { seconds, nanos });
wire_struct!(Identity { size, mtime, ctime, inode });
wire_struct!(Striping { size, count });
wire_struct!(Xattr { name, value });
wire_struct!(Metadata { mode, uid, gid, mtime, xattrs });
wire_struct!(Entry { id, parent, name, kind, metadata });
wire_struct!(Failure { side, operation, reason, block, ost });
wire_struct!(Issue { path, failure });
wire_enum!(Side { 0 => Source, 1 => Sink });
wire_enum!(Reason {
    0 => Os(errno),
    1 => Changed,
    2 => Vanished,
    3 => Checksum,
    4 => Media,
    5 => Special,
    6 => InTheWay,
    7 => ParentFailed,
    8 => UnsafeName,
    9 => Archived,
    10 => LargeMetadata,
    11 => TooDeep,
    12 => Limit,
    13 => ManyNames,
    14 => Dangling,
    15 => Loop,
    16 => SameFile,
});
wire_enum!(Kind {
    0 => File { identity, data_bytes, striping, source_ost, is_different },
    1 => Directory,
    2 => Symlink { target },
    3 => HardLink { target },
    4 => Special { file_type, device },
});
wire_enum!(Answer {
    0 => Want { done, layout },
    1 => Have,
    2 => Made,
    3 => Would,
    4 => Failed(failure),
    5 => Begun { done },
    6 => Passed(pass),
    7 => Compare { layout },
});
wire_enum!(Ending {
    0 => Complete,
    1 => Dropped,
    2 => Failed(failure),
    3 => Same,
    4 => Different,
    5 => Incomplete,
    6 => CompleteAt { size, mtime },
});
wire_enum!(Message {
    1 => Hello(hello),
    2 => Job(job),
    3 => Listen { port, protection },
    4 => Roots(roots),
    5 => Ready { ost_count, open_files_max, is_renamed, time_unit_nanos },
    6 => NewFile(entries),
    7 => FileId(answers),
    8 => Grant(lot),
    9 => BlockDone(ranges),
    10 => BlockBad(ranges),
    11 => FileDone(endings),
    12 => StreamEnd { stream, frames },
    13 => Heartbeat,
    14 => Progress(counters),
    15 => Issues(issues),
    16 => Lines(lines),
    17 => Notice(text),
    18 => Finish { is_complete },
    19 => Finished(counters),
    20 => Stop(reason),
    21 => Fatal { code, text },
    22 => Frames(counts),
    23 => Staged(bytes),
    24 => OstBytes(osts),
    25 => PlaceAgain(entries),
    26 => AreThere(question),
    27 => There { number, answers },
    28 => Removed(count),
    29 => Connect(port),
});
wire_list!(
    Rule,
    Root,
    Entry,
    Xattr,
    Issue,
    Line,
    BlockRange,
    EntryId,
    OstId,
    Presence,
    (EntryId, Answer),
    (EntryId, Ending),
    (OstId, u32),
);

impl Wire for Operation {
    fn put(&self, to: &mut Writer) {
        to.push(*self as u8);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let number = usize::from(u8::take(from)?);
        Self::ALL.get(number).copied().ok_or(WireError::OutOfRange("operation"))
    }
}

/// The end of a part and its stripe size are often so large that they mean "without end". That is
/// sent as zero.
impl Wire for Part {
    fn put(&self, to: &mut Writer) {
        zero_for_endless(self.end).put(to);
        zero_for_endless(self.stripe_size).put(to);
        wire::put_list(&self.osts, to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let end = endless_for_zero(u64::take(from)?);
        let stripe_size = endless_for_zero(u64::take(from)?);
        Ok(Self { end, stripe_size, osts: wire::take_list(from)? })
    }
}

fn zero_for_endless(bytes: u64) -> u64 {
    if bytes == u64::MAX { 0 } else { bytes }
}

fn endless_for_zero(bytes: u64) -> u64 {
    if bytes == 0 { u64::MAX } else { bytes }
}

impl Wire for Layout {
    fn put(&self, to: &mut Writer) {
        // No layout has zero parts, so a zero says that objects follow.
        let Some(objects) = self.objects() else { return wire::put_list(&self.parts(), to) };
        to.push(0);
        let striping = objects.striping();
        for number in [striping.unit(), striping.count(), striping.object_size()] {
            number.put(to);
        }
        wire::put_list(&objects.places().collect::<Vec<_>>(), to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let parts: Vec<Part> = wire::take_list(from)?;
        let layout = if parts.is_empty() { take_objects(from)? } else { Self::composite(parts) };
        layout.ok_or(WireError::OutOfRange("layout"))
    }
}

fn take_objects(from: &mut Reader<'_>) -> Result<Option<Layout>, WireError> {
    let [unit, count, object_size] = [u32::take(from)?, u32::take(from)?, u32::take(from)?];
    let osts: Vec<OstId> = wire::take_list(from)?;
    let striping = ObjectStriping::new(unit, count, object_size);
    Ok(striping.and_then(|striping| Layout::in_objects(striping, &osts)))
}

/// Ranges are sent as distances: the gap from the end of the last range, then the length.
impl Wire for RangeSet {
    fn put(&self, to: &mut Writer) {
        (self.range_count() as u64).put(to);
        let mut end_before = 0;
        for range in self.iter() {
            (range.start - end_before).put(to);
            (range.end - range.start).put(to);
            end_before = range.end;
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let count = u64::take(from)?;
        if count > RANGES_PER_MESSAGE as u64 {
            return Err(WireError::LongList(count));
        }
        let mut set = Self::new();
        let mut end_before = 0u64;
        for _ in 0..count {
            let gap = u64::take(from)?;
            let length = u64::take(from)?;
            let start = end_before.checked_add(gap).ok_or(WireError::OutOfRange("range"))?;
            end_before = start.checked_add(length).ok_or(WireError::OutOfRange("range"))?;
            set.insert(start..end_before);
        }
        Ok(set)
    }
}

/// Appends a message with its length before it.
///
/// # Panics
/// If the message is longer than [`MESSAGE_BYTES_MAX`]: batches are far smaller. A job may be
/// longer ([`JOB_BYTES_MAX`]); whoever makes a job makes sure that it is not longer than that.
pub fn encode(message: &Message, to: &mut Writer) {
    let start = to.len();
    to.extend_from_slice(&[0; LENGTH_BYTES]);
    message.put(to);
    let length = to.len() - start - LENGTH_BYTES;
    let length_max =
        if matches!(message, Message::Job(_)) { JOB_MESSAGE_BYTES_MAX } else { MESSAGE_BYTES_MAX };
    assert!(length <= length_max, "a message of {length} bytes");
    let length = u32::try_from(length).expect("checked above");
    to[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// Reads a message from the bytes after its length.
///
/// Bytes after the known fields are ignored, so that later versions may append fields.
///
/// # Errors
/// If the bytes are not a message of this protocol.
pub fn decode(body: &[u8]) -> Result<Message, WireError> {
    Message::take(&mut Reader::new(body))
}

#[cfg(test)]
mod tests;
