//! How much the other end may make us hold, and what it may ask for at most.
//!
//! The other end is not trusted. Each number here bounds one thing that it chooses; the gate
//! ([`crate::gate`]) compares every message with them before anything else sees it. Honest ends
//! stay far below: where an end must hold itself back to do so, the constant says it.
//!
//! Together they bound the memory of an end beside its buffers:
//!
//! | what | at most |
//! |---|---|
//! | one message, as bytes and taken apart | 2 MiB, 120 MiB |
//! | entries that have not ended, with their tables | 64 MiB |
//! | their names and attributes, in tables and queues | 256 MiB |
//! | which bytes of their files are there | 160 MiB |
//! | names that are asked for before something is removed | 4 MiB |
//! | where their files lie, and what is queued of them | 320 MiB |

use crate::entry::{NAME_BYTES_MAX, PATH_BYTES_MAX};

/// The longest message, in bytes. A batch is about 64 KiB, the longest part of one message
/// ([`ENTRY_BYTES_MAX`]) 1 MiB. Half would leave no room for both; taken apart, a message of many
/// short rows is sixty times as large.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Rows in one list of a message. Batches have 1,000, a list of OSTs 16,384. Half would do; with
/// double, a list that a lying peer sends takes twice the memory.
pub const LIST_COUNT_MAX: usize = 65_536;

/// OSTs of one end. The largest Lustre installations have some thousands, which half would still
/// hold; the tables of both ends have a row for each, some hundred bytes, so double is 2 MiB more.
pub const OSTS_MAX: u32 = 16_384;

/// Data streams of one transfer. Each takes a handle, a thread at the sink, and a token of 32 bytes
/// in LISTEN, which is bounded. With double they would take half of the 1,024 handles that a
/// process has by default.
pub const STREAMS_MAX: u16 = 256;

/// The most bytes of one channel before those of another may follow, where messages and frames
/// share a pipe: as many as a pipe holds. So much may go before a message, beside what is in the
/// pipe already. Half of it is twice as many heads and calls for the same bytes; with double of it,
/// a message waits twice as long.
pub const PACKET_BYTES_MAX: u32 = 64 << 10;

/// Stripes and blocks begin and end at multiples of this, in bytes, but for the end of a file. All
/// known file systems cut files so; direct I/O wants it; and no file is in more pieces than it has
/// pages. A file that its file system cuts otherwise is taken to be on one OST.
pub const ALIGNMENT_BYTES: u64 = 4096;

/// The longest block, in bytes. A buffer holds one, and there is one for each OST at least: with
/// double, a sink with 32 OSTs would need 4 GiB.
pub const BLOCK_BYTES_MAX: u32 = 64 << 20;

/// The largest file, in bytes: what a file offset can express (`i64`).
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Directories one below the other, at most: the depth of a directory below the root, in levels. A
/// deeper one is one failed entry.
///
/// A tree that people made is a few dozen levels deep; one that a program made by mistake is
/// thousands. Each level takes a handle or two and an entry of the window as long as anything in it
/// is in flight, so there must be an end to it. Half of it would do for all trees met so far; with
/// double of it the directories that wait for what is below them would no longer fit into
/// [`DIRECTORIES_OPEN_MAX`], and the walk would stand still.
pub const DEPTH_MAX: u32 = 10_000;

/// Entries, directories left out, that a source announces before they have ended: enough for 30,000
/// small files a second at half a second's distance. Memory grows with it at both ends; half would
/// slow small files down over long distances.
pub const ENTRIES_OPEN_MAX: usize = 16_384;

/// Directories that a source announces before they have ended: as many again. Of these,
/// [`DEPTH_MAX`], the root and those of the last batch may need the walk to go on before they can
/// end; all others end without it. With half of it there would be no room for these, and the walk
/// could wait for itself; with double of it both ends take a few MiB more.
pub const DIRECTORIES_OPEN_MAX: usize = 16_384;

/// A source holds back further entries when those that have not ended have names and attributes of
/// this many bytes. Ordinary entries have 100 to 200 bytes, so this is rarely met.
pub const METADATA_BYTES_MAX: u64 = 16 << 20;

/// The same for directories that have not ended. The walk cannot wait for them, for they wait for
/// what is below them: beyond, directories go without their attributes, and are listed. 3 KiB for
/// each directory that may be open; an ACL has 100 to 500 bytes.
pub const DIRECTORY_METADATA_BYTES_MAX: u64 = 48 << 20;

/// A source looks at the limits above once for each batch of the walk, so it may announce as much
/// as this beyond them, in bytes: 64 of the largest entries.
pub const BATCH_BYTES_MAX: u64 = 64 * ENTRY_BYTES_MAX as u64;

/// The same, in entries.
pub const BATCH_ENTRIES_MAX: usize = 4096;

/// The name, the attributes and the target of one entry together, in bytes. Linux holds a list of
/// attributes to 64 KiB, and ext4 all values of a file to about as much. An entry with more fails.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// The longest name of an attribute, in bytes (Linux's `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// The longest value of an attribute, in bytes (Linux's `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// The longest target of a link, in bytes (Linux's `PATH_MAX`).
pub const LINK_BYTES_MAX: usize = 4096;

/// The largest sum of anything that an end tells of a transfer (bytes, entries, microseconds): 2^60
/// bytes are an exbibyte. Some of them can be added without overflow.
pub const SUM_MAX: u64 = 1 << 60;

/// The longest text in a message that is for the user, in bytes. An end cuts its own to this.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// Separate ranges of bytes of all files that have not ended, as an end keeps them of what is done.
/// A file whose slowest OST is behind by the whole file has one for each of its rounds: 10 TB in
/// stripes of 1 MiB over eight OSTs take 1.2 million. Each takes about 40 bytes, twice.
pub const RANGES_MAX: usize = 2 << 20;

/// Ranges of data of all files with holes that a source announces before they have ended. The sink
/// keeps a range for each of them, so they must fit into [`RANGES_MAX`], with as many left for
/// files that arrive out of order. If there are more, the shortest holes are sent as zeros.
pub const DATA_RANGES_MAX: usize = RANGES_MAX / 2;

/// Ranges of data that every file with holes may have, also if no more of [`DATA_RANGES_MAX`] are
/// free. All entries that may be open have half a million of them.
pub const DATA_RANGES_MIN: usize = 32;

const _: () = assert!(DATA_RANGES_MAX + ENTRIES_OPEN_MAX * DATA_RANGES_MIN < RANGES_MAX);

/// Ranges of bytes in one message: 160 KiB, well below [`MESSAGE_BYTES_MAX`]. What is longer comes
/// in parts; with half there are twice as many.
pub const RANGES_PER_MESSAGE: usize = 16_384;

/// How often blocks of one file are sent again because they arrived damaged, or came back so from
/// storage. Then the file fails: its way is broken. A file of 10 TB over a line that damages one
/// block in 100,000 has that many; with double, one that never arrives is sent 200 times.
pub const RESENDS_MAX: u32 = 100;

/// Blocks that a sink may have asked for again and that have not been sent since: all that memory
/// of 4 GiB holds, in the shortest blocks. Each takes 24 bytes.
pub const AGAIN_MAX: usize = 65_536;

/// Frames that a source sends before it has heard what became of the blocks in them: 64 GiB in the
/// shortest blocks. Each takes about 100 bytes; half would hold up a sink whose journal is slow at
/// 10 GB/s after three seconds.
pub const FRAMES_UNSETTLED_MAX: usize = 1 << 20;

/// Names in one question of the sink (ARE_THERE). Half of it would make twice as many messages of a
/// large directory; double of it would not save a round trip, for many questions are in flight.
pub const QUESTION_NAMES_MAX: usize = 1000;

/// What one question takes, in bytes: this many names, each as long as a name can be, with a few
/// bytes beside it, and the longest path. Most take a tenth of it.
pub const QUESTION_BYTES_MAX: usize =
    QUESTION_NAMES_MAX * (NAME_BYTES_MAX + NAME_OVERHEAD_BYTES) + PATH_BYTES_MAX;

/// What a name takes beside its bytes in a list, in bytes.
pub const NAME_OVERHEAD_BYTES: usize = 24;

/// Questions of the sink that are not answered. A directory takes one at least, so at a distance of
/// 100 ms it is 10,000 directories a second; half would be half of that.
pub const QUESTIONS_OPEN_MAX: usize = 1024;

/// The same, in bytes of their names and paths. Each end keeps as much; half would hold up large
/// directories at long distances, which have one question for 1,000 names.
pub const QUESTIONS_BYTES_MAX: usize = 4 << 20;

/// One file's queue is split into at most this many parts, by OSTs of both ends. Beyond, blocks for
/// one OST of the sink may wait for those before them.
pub const SPLIT_LANES_MAX: usize = 1024;

/// The most levels of an MPI datatype. A hyperslab of HDF5 has two for each dimension, of which
/// there are at most 32. Half would refuse it; double is as many frames more on the stack.
pub const VIEW_LEVELS_MAX: usize = 72;

/// The most parts of an MPI datatype that are listed one by one: as many as the cells that a
/// process has of an unstructured mesh. They take 25 MiB as they travel, and 184 bytes each when
/// they are taken apart. With half, such a mesh needs two views; with double, a client that lies
/// takes twice the memory.
pub const VIEW_PARTS_MAX: usize = 1 << 20;

/// The most bytes in a frame of a remote file. Half costs twice as many system calls and frames;
/// with double, a client with little memory waits longer for each buffer.
pub const FRAME_BYTES: u32 = 1 << 20;

/// Requests of a client of remote files to read that are done at a time; each has a buffer of
/// [`FRAME_BYTES`] at either end. With half, a line of 1 Gbit/s and 26.8 ms, which holds 3.3 MB, is
/// not full; double is twice the memory for a client that does not take what it asked for.
pub const CLIENT_READS_MAX: u32 = 4;

/// Files that a client of remote files may have open: as many as a process has handles by default.
/// Half would refuse programs that run without a server; with double, one client could use up the
/// handles of a server that has only a few thousand.
pub const CLIENT_FILES_MAX: usize = 1024;

/// Views that a client of remote files may have. A file has one, and a second one while the first
/// is being forgotten; so half is too few, and double is of no use.
pub const CLIENT_VIEWS_MAX: usize = 2 * CLIENT_FILES_MAX;

/// Writes that a client of remote files may have announced and not sent: with frames of 1 MiB, 64
/// GiB in its memory and on its local disk. With half, a client with 64 GiB waits at a message of
/// its program until half of them are sent; a server keeps 200 bytes of each, so double would let a
/// client that lies take 26 MB.
pub const CLIENT_ANNOUNCED_MAX: usize = 1 << 16;

/// Lost writes of a file that are remembered one by one; all its bytes count as lost if there are
/// more. With half, a process with 4 GiB of unsent data may spoil a whole file when it dies; double
/// is twice the memory for it.
pub const FILE_LOST_MAX: usize = 1 << 13;

/// The bytes of all filetypes of a client, as they travel: one of the largest, and many small ones.
/// Half would refuse the largest; taken apart, they take seven times as much.
pub const CLIENT_FILETYPES_BYTES_MAX: usize = 32 << 20;

/// Locks that a client of remote files may have or wait for: one for each thread that is in an
/// access in atomic mode. Half would do for most machines; each takes 40 bytes at the server, and
/// all who wait for a file are looked at once a second, so with double of it a client that lies
/// makes this take twice as long.
pub const CLIENT_LOCKS_MAX: usize = 256;

/// The most runs of a view that are found at a time: 24 bytes each. A frame of 1 MiB has as many if
/// its runs have 64 bytes. With half, frames of short runs wait twice as often for the slowest OST;
/// double is memory that a client with the shortest runs makes the server take.
pub const RUNS_MAX: usize = 16_384;

/// Maximum number of lines in the log about strangers, for each minute. Half would hide a peer with
/// a new key sooner among the hosts that probe all ports; with double, a flood of connections takes
/// twice the space: 17 MB a day.
pub const STRANGER_LINES_MAX: u32 = 60;
