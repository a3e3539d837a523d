//! The numbers of policy of remote files: how long, how many, how often, which part.
//!
//! Each has its unit in its type or name, its reason, and what half and double of it do. A sentence
//! that begins with *half* and has figures is of the simulated program of `outlook/tests.rs`, over
//! phases in which 30 to 90 % of an output can be sent, steady or up to 30 % longer and shorter,
//! with a disk of 50 and 500 MB/s: staged while writing 5.8 % of all bytes, in the background 0.84
//! of what the model needs. What a peer may ask for at most is in [`crate::limits`].

use super::message::CLIENT_READS_MAX;
use std::time::Duration;

/// How many buffers that wait stay in memory while others are staged in the background: the one
/// that is sent next and the one behind it, so that the network does not wait for the disk. *Half*:
/// 5.7 %, 0.84; double: 6.0 %, 0.82.
pub const WAITING_IN_MEMORY: usize = 2;

/// The buffers that stay in memory are at most one of this many. A client with 5 buffers, of which
/// 2 are in flight, would stage nothing if 2 more stayed. With half, one with 8 buffers keeps 2,
/// and stages at most 2; with double, the network waits for the disk of one with 16.
pub const WAITING_PART: u32 = 8;

/// Writes that are further apart belong to two outputs. A library that writes a snapshot needs
/// milliseconds between two writes; a time slice of the system must not count as computing. *Half*:
/// 5.8 %, 0.84; double: 5.9 %, 0.83, and phases shorter than that are not seen.
pub const OUTPUT_GAP: Duration = Duration::from_millis(50);

/// What a rate is measured over, in seconds: half of what was measured before counts after as much
/// time. With half, the pauses of a disk show as another rate; with double, a change of the network
/// is seen in 8 s. The simulated network does not change, so half and double are the same there.
pub const RATE_SECONDS: f64 = 4.0;

/// The part of the time until the next output over which buffers are staged. Early ones help when
/// the program writes sooner than expected; late ones are staged less often for nothing. *Half*:
/// 4.7 %, 0.88; all of the time: 6.6 %, 0.80.
pub const STAGING_SPREAD: f64 = 0.75;

/// For how many times the time that a frame takes alone, frames are in flight. Of a simulated
/// program with snapshots of 16 MB and as much memory, over 11.7 MB/s, 45 to 90 % of which can be
/// sent in phases that are up to 15 % longer or shorter, 1.4 % is staged while it writes, 1.12 of
/// what the model needs in the background, and a write waits 0.4 ms. With half, each gap of the
/// line stays; double: 1.8 %, 1.16, 0.6 ms. With half of all buffers in flight: 16 %, 0.85, 10 ms.
pub const WINDOW_BASES: f64 = 2.0;

/// Number of further frames in flight: the one that is sent, and the one whose end is being
/// reported. With half, a server that is slow for a moment leaves the line idle; double, of the
/// same program: 1.8 %, 1.16, 0.6 ms.
pub const WINDOW_EXTRA: f64 = 2.0;

/// What the rate of frames is measured over, in seconds, as with [`RATE_SECONDS`]. A line that
/// becomes 40 times as fast is full again after a second. With half, a short pause of the server
/// shows; with double, that takes twice as long.
pub const WINDOW_SECONDS: f64 = 1.0;

/// A client has at least as many buffers, if they need not be shorter than [`BUFFER_BYTES_MIN`] for
/// that. What a program writes waits, or is staged, in whole ones. With half, the same program:
/// 2.6 %, 1.23, 0.1 ms; with double 0.9 %, 1.04, 0.4 ms, and twice as many frames and wakings.
pub const BUFFERS_MIN: u64 = 64;

/// The shortest buffers of a client, in bytes: a server writes one in a tenth of a millisecond.
/// With half, a frame has more work beside its bytes than for them; with double, a client with
/// 4 MiB has only 32 of them.
pub const BUFFER_BYTES_MIN: u64 = 64 << 10;

/// How often it is asked whether a buffer is to be staged in the background. With half, a thread
/// beside the computation wakes twice as often; with double, a phase of 0.5 s is seen too late for
/// a fifth of it.
pub const STAGING_INTERVAL: Duration = Duration::from_millis(50);

/// How many buffers may be on their way to the local disk at a time: the one that a thread stages
/// in the background, and those of threads of the program that write. With half, such a thread
/// waits for the network if there are more than three; double is of use for 15.
pub const STAGING_MAX: u32 = 8;

/// How long a buffer that is not full waits for more before it is sent. A program that writes
/// records of 1 KiB one after the other fills a buffer in 1 ms. With half, a busy machine sends
/// more of them half full; double is as much later until a last piece goes out.
pub const TAIL_WAIT: Duration = Duration::from_millis(5);

/// Interval at which it is checked whether a thread still fills a buffer after a loss. With half,
/// the check disturbs the thread; with double, a lost connection is reported that much later.
pub const TAILS_INTERVAL: Duration = Duration::from_millis(1);

/// How long sending waits at most while a program copies the first bytes after a pause into
/// buffers: on a machine whose processors all compute, sending takes processor and memory from the
/// copying. A snapshot of 134 MB in rows of 2 KiB, on two processors: a write takes 30 ms without
/// this wait, 25 ms with half of it, 24 ms with all of it and with double, 26 ms if nothing is
/// sent at all. The line is idle for as long, once in an output.
pub const COPY_WAIT: Duration = Duration::from_millis(50);

/// Records up to this length, in bytes, that do not follow each other share a frame: a frame costs
/// a tenth of a millisecond beside its bytes, copying 32 KiB a hundredth. With half, records of 32
/// KiB have a frame each, which takes as long as three times their bytes; with double, those of 64
/// KiB gain less than a half.
pub const GATHERED_RECORD_BYTES_MAX: u64 = 32 << 10;

/// The maximum number of records in a frame that do not follow each other: their places travel in
/// 16 bytes each, and a server keeps [`crate::limits::CLIENT_FILETYPES_BYTES_MAX`] of a client,
/// which are 16 KiB for each view. With half, a record of 64 bytes costs a microsecond of a frame
/// in place of half of that; with double, a client with all its views might have to wait.
pub const GATHERED_RUNS_MAX: usize = 1000;

/// A read that begins at most this far behind the end of the one before follows it, in bytes:
/// processes that read records in turn need what lies between for each other. With half, records of
/// 4 KiB have a request each; double is read for nothing by a program that needs every second
/// record alone.
pub const NEAR_BYTES: u64 = 4 << 10;

/// A write of as many bytes is copied past the cache: it does not stay there until it is sent. The
/// write above takes 15 ms in place of 25 ms. With half, writes of 2 MiB gain less than 0.1 ms;
/// with double, those of 4 MiB take 1.1 ms in place of 0.8 ms.
pub const PAST_CACHE_BYTES: u64 = 4 << 20;

/// Maximum number of reads ahead in flight: one place remains for a read that the program waits
/// for. With half, a line of 1 Gbit/s and 26.8 ms is a third full; with all places, each read would
/// wait for one that may not be needed.
pub const AHEAD_MAX: usize = CLIENT_READS_MAX as usize - 1;

/// How far is read ahead the first time, in bytes, if the reads are not longer. With half, a
/// program with small reads waits once more for the network before that is hidden; double is read
/// for nothing twice as often when a program stops after two reads.
pub const FIRST_AHEAD_BYTES: u64 = 128 << 10;

/// The most reads in a row that must be regular before something is read ahead. With half, a
/// program that is often regular by chance reads ahead twice as often for nothing; with double, one
/// that has become regular waits for the network twice as long.
pub const REGULAR_READS_MAX: u32 = 16;

/// Memory of a client for what was written and is not at the server, in bytes, if the user says
/// nothing. A process of the paper's simulation has a snapshot of half of it. With half, a snapshot
/// of this size is only half hidden behind the computation; double is memory that the program may
/// want itself.
pub const BUFFERS_BYTES: u64 = 64 << 20;

/// The same for what was read. A line of 1 Gbit/s and 26.8 ms holds 3.3 MB: while a program uses
/// the 4 MiB that have come, the next are on their way. With half, a program that reads 4 MiB at a
/// time waits for each; double is memory that the program may want itself.
pub const READ_BYTES: u64 = 16 << 20;

/// A server that says nothing for as long is lost, if the user says nothing else. With half, a
/// server whose storage hangs for half a minute is given up; with double, a program waits twice as
/// long for one that is gone.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A server that says that it lives, and does nothing of what it was asked for, for as many times
/// [`TIMEOUT`] is lost: its storage hangs. With half, a parallel file system that moves a target to
/// another server, which takes some minutes, ends the program; with double, a program of many
/// nodes waits 20 minutes for nothing.
pub const STALL_TIMEOUTS: u32 = 10;

/// How often a server says that it is alive: a client waits for [`TIMEOUT`]. With half, it says so
/// twice as often for nothing; with double, one word that is late is half of that time.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// A client whose connection is broken tries for as many times [`TIMEOUT`] to connect again. With
/// half, a line that is down for a minute ends the program; with double, a program waits four
/// minutes for a server that is gone.
pub const AWAY_TIMEOUTS: u32 = 2;

/// The interval between two attempts to connect again. With half, twice as many attempts meet a
/// server that has many clients and is just back; with double, a program waits twice as long after
/// a line was down for a moment.
pub const CONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// An attempt to connect again takes at most this long. With half, it fails over a line that has
/// just lost the first packets; with double, a line that is up again is noticed twice as late.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);

/// For this long a server keeps everything of a client whose connection is broken, if no other
/// client waits for it ([`SILENCE_MAX`]): as long as the client tries to connect again. With half,
/// it tries in vain half of the time; with double, files of programs that were killed stay open for
/// four minutes.
pub const AWAY_MAX: Duration = Duration::from_secs(120);

/// A server that was started again waits at most this long for its clients before it goes on
/// without those that have not come. A client tries every second, for at most 5 s each time. With
/// half, one whose first attempt is lost comes too late; with double, all wait longer for a
/// program that has ended meanwhile.
pub const RETURN_MAX: Duration = Duration::from_secs(15);

/// A client confirms when it has heard this many messages. With half, it sends twice as many for
/// that; double is memory of the server.
pub const CONFIRM_MESSAGES: u64 = 64;

/// A server keeps this many messages that a client has not confirmed; beyond, the client cannot
/// connect again. A line of 1 s with 1,000 frames in a second holds a quarter of it. Half is enough
/// for that, too, but not for a client that is stopped for a moment; double is memory of the
/// server.
pub const UNCONFIRMED_MAX: usize = 4096;

/// A client that has a lock for which others wait, and says nothing for as long though nothing is
/// done for it, is cut off: as long as a client waits for a server that is silent. With half, a
/// program that a debugger stops for a moment is lost; with double, all others wait twice as long.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How often a thread looks whether the other end is silent. An end that is lost is noticed as much
/// later; with half, a thread beside the computation wakes twice as often.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Memory of a server within the process of its client, in bytes: eight frames are written at a
/// time. With half, a file in eight stripes is not written to all of them at a time; what double
/// would hold, the buffers of the client hold as well.
pub const HERE_BUFFERS_BYTES: u64 = 8 << 20;

/// Pieces that are shorter on average, in bytes, are joined with those of other processes before
/// they are written. With half, pieces of 32 KiB cost a disk that takes a millisecond for each
/// request twice as much as their bytes; with double, those of 64 KiB are joined, which a disk of
/// 100 MB/s writes nearly as fast apart.
pub const JOINED_PIECE_BYTES_MAX: u64 = 64 << 10;

/// The place of a file in which pieces are joined, in bytes. Two processes with pieces of 512
/// bytes, a disk of 1.95 MB/s that takes 0.15 ms for each request, and no line between: 0.96 of
/// what it carries. With a quarter 0.97, and requests that are a quarter as long; with four times
/// as much 0.88; without joining 0.65.
pub const JOINED_BYTES: u64 = 256 << 10;

/// At least as many pieces of a process are written at a time, however far apart they are: between
/// two, a thread looks at all that waits. With half, it looks twice as often for nothing; with
/// double, pieces that come meanwhile wait longer to be joined.
pub const JOINED_PIECES: usize = 64;

/// As long as nothing waits that could be joined, this many writes of pieces are made before a
/// thread looks again: what other processes write to the same place may be on its way. Two
/// processes with pieces of 512 bytes, a line of 11.7 MB/s, and a disk of 1.95 MB/s that takes half
/// a millisecond for each request: 0.93 of what it carries. With four times as many 0.91; all at
/// once 0.76. In memory, where to look again costs most, the three do not differ.
pub const JOINED_ALONE: usize = 8;

/// The maximum number of replies that wait for a client; until it takes some, no further request of
/// it is done. A reply takes 40 bytes. A client may ask for all its views at a time: with half,
/// that would wait for the network once more; double is memory that only a client that does not
/// listen uses.
pub const REPLIES_MAX: usize = 2048;

/// The maximum number of connections to a server whose handshake is not done. With half, strangers
/// who connect faster than a round trip would more often push out a client far away; double would
/// take more of a process's 1,024 descriptors than the clients do.
pub const VISITORS_MAX: u64 = 100;

/// Maximum number of runs that are compared to find out whether two extents have bytes in common.
/// Beyond, they count as having some, which may let one wait for nothing, and changes no data. Of
/// views that repeat themselves, one period is compared. Two frames of short records have
/// 2,000 runs: with a quarter, such frames of processes that write records in turn wait for each
/// other; with double, a comparison takes twice as long at most.
pub const RUNS_COMPARED_MAX: usize = 4096;
