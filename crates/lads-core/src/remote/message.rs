//! The messages between a client and a server of remote files.
//!
//! They are written as those of a transfer are ([`crate::message`]): length, type, fields. A client
//! asks in [`ToServer::Request`]s, and numbers them. It need not wait for a reply before it asks
//! again. Bytes to be written come in frames: the entry of the row is the number of the view, the
//! offset is the position in the stream of the view. Bytes that were read come in frames, too: the
//! entry of the row is the number of the request.

use crate::issue::Operation;
use crate::limits::VIEW_PARTS_MAX;
pub use crate::limits::{CLIENT_READS_MAX, FRAME_BYTES};
use crate::message::LENGTH_BYTES;
use crate::message::wire::{Reader, Wire, WireError, Writer};
use crate::units::EntryId;
use crate::{wire_enum, wire_struct};

/// The version of what is said here.
pub const VERSION: u16 = 4;

/// The longest message to a server, in bytes: the largest filetype, with a little beside it.
pub const TO_SERVER_BYTES_MAX: usize = 25 * VIEW_PARTS_MAX + (64 << 10);

/// The longest message to a client, in bytes: what has become of all frames that can be in flight.
pub const TO_CLIENT_BYTES_MAX: usize = 1 << 20;

/// The longest path of a remote file, in bytes (Linux's `PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;

/// A file that a client has opened, as the client numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileNumber(pub u32);

/// A view that a client has set, as the client numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewNumber(pub u32);

/// What a client shows when it connects again: random, and known to it and its server alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub [u8; 16]);

/// A write that is one frame, as its client numbers it: below 2^31. A number may be used again when
/// its write is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriteNumber(pub u32);

impl WriteNumber {
    /// The number of the write that comes after this many.
    #[must_use]
    pub fn after(count: u64) -> Self {
        Self((count & WRITE_BITS).try_into().expect("it has 31 bits"))
    }
}

/// The entry in the row of a frame of remote files: view, write number, and whether the write was
/// announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameOf {
    /// The view through which it is written.
    pub view: ViewNumber,
    /// The write.
    pub write: WriteNumber,
    /// Whether the write was announced: the frame waits for the announcement.
    pub is_announced: bool,
}

const WRITE_BITS: u64 = (1 << 31) - 1;
const WRITE_SHIFT: u32 = 32;
const ANNOUNCED: u64 = 1 << 63;

impl FrameOf {
    /// As the entry of a row: bits 0 to 31 are the view, 32 to 62 the write, 63 whether it was
    /// announced.
    #[must_use]
    pub fn entry(self) -> EntryId {
        let Self { view, write, is_announced } = self;
        let write = (u64::from(write.0) & WRITE_BITS) << WRITE_SHIFT;
        EntryId(u64::from(view.0) | write | if is_announced { ANNOUNCED } else { 0 })
    }

    /// Reads it back.
    #[must_use]
    pub fn of_entry(EntryId(entry): EntryId) -> Self {
        let low = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("it has 32 bits");
        let write = WriteNumber(low((entry >> WRITE_SHIFT) & WRITE_BITS));
        Self { view: ViewNumber(low(entry)), write, is_announced: entry & ANNOUNCED != 0 }
    }
}

/// A message to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToServer {
    /// The first message.
    Hello {
        /// [`VERSION`] of the client.
        version: u16,
        /// The program and its host, for messages to a user.
        name: String,
    },
    /// The first message of a client that was connected before.
    Resume {
        /// [`VERSION`] of the client.
        version: u16,
        /// What it got with the first connection.
        ticket: Ticket,
        /// As in [`Self::Heartbeat`].
        heard: u64,
    },
    /// Something to be done.
    Request(Request),
    /// This end is alive.
    Heartbeat {
        /// The number of messages that it has heard since it connected for the first time
        /// ([`ToClient::is_counted`]).
        heard: u64,
    },
    /// This end asks for nothing more: when the connection ends, it does not connect again.
    Bye,
}

/// Something that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number; one more than that of the request before.
    pub number: u64,
    /// The number of frames that the client sent before.
    pub frames_before: u64,
    /// What is to be done.
    pub call: Call,
}

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Open a file.
    Open {
        /// What the client calls it from now on.
        file: FileNumber,
        /// Its path below the root of the server.
        path: Vec<u8>,
        /// How it is opened.
        mode: OpenMode,
        /// The group of clients that open it together.
        group: [u8; 16],
    },
    /// Set a view of a file.
    View {
        /// What the client calls it from now on.
        view: ViewNumber,
        /// The file.
        file: FileNumber,
        /// Where the view begins, in bytes.
        displacement: u64,
        /// The filetype ([`crate::view::Datatype`]).
        filetype: Vec<u8>,
    },
    /// Forget a view.
    Forget {
        /// The view.
        view: ViewNumber,
    },
    /// Read from a position of a view; at most [`FRAME_BYTES`] bytes.
    Read {
        /// The view.
        view: ViewNumber,
        /// The position.
        position: u64,
        /// How many bytes.
        length: u32,
    },
    /// Make durable what was written.
    Sync {
        /// The file.
        file: FileNumber,
    },
    /// Answer when everything is written.
    Flush {
        /// The file.
        file: FileNumber,
    },
    /// Make durable what was written, and close the file.
    Close {
        /// The file.
        file: FileNumber,
    },
    /// How long is the file?
    Size {
        /// The file.
        file: FileNumber,
    },
    /// Cut or extend the file.
    SetSize {
        /// The file.
        file: FileNumber,
        /// Its new length in bytes.
        size: u64,
    },
    /// Reserve space for the first bytes of the file.
    Preallocate {
        /// The file.
        file: FileNumber,
        /// How many bytes.
        size: u64,
    },
    /// Which position of the view is at the end of the file, or behind it?
    End {
        /// The view.
        view: ViewNumber,
    },
    /// Add to the pointer that the group shares; what was it before?
    AddShared {
        /// The file.
        file: FileNumber,
        /// How much, in bytes of the view.
        bytes: i64,
    },
    /// Set the pointer that the group shares.
    SetShared {
        /// The file.
        file: FileNumber,
        /// The position, in bytes of the view.
        position: u64,
    },
    /// Remove a file.
    Delete {
        /// Its path below the root of the server.
        path: Vec<u8>,
    },
    /// Answer when nobody else has a lock of the file that excludes this one. Requests that follow
    /// are done meanwhile.
    Lock {
        /// The file.
        file: FileNumber,
        /// What may be done beside it.
        kind: LockKind,
    },
    /// Give the lock back when everything is written.
    Unlock {
        /// The file.
        file: FileNumber,
    },
    /// Answer when all writes of the client are known here, those that it has not sent too
    /// ([`super::writes`]): with a number that is larger than those of all fences before, at this
    /// server and before it was started again.
    Fence {
        /// The writes that it has not sent and has not announced before.
        unsent: Vec<Unsent>,
    },
    /// After [`ToClient::Restarted`]: the files, views and locks that the client had are there
    /// again; what follows was not done. There is no answer.
    Return {
        /// The number of the next frame.
        frames: u64,
        /// Writes that are not done and that a fence covers, in their order.
        writes: Vec<Fenced>,
    },
}

impl Call {
    /// Reports whether a server that was started again must not do it a second time: what others
    /// wrote meanwhile could be lost, or it could fail.
    #[must_use]
    pub fn is_done_once(&self) -> bool {
        matches!(self, Self::SetSize { .. } | Self::Preallocate { .. } | Self::Delete { .. })
    }
}

/// A write that is not done and that a fence covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// What the first fence that covers it was answered with.
    pub fence: u64,
    /// The write.
    pub unsent: Unsent,
}

/// A write that a client has not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// The write.
    pub write: WriteNumber,
    /// The view.
    pub view: ViewNumber,
    /// Its first position.
    pub position: u64,
    /// How many bytes.
    pub length: u32,
}

/// What may be done with a file beside what it is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Others may lock it for the same: reading.
    Shared,
    /// Nobody else may lock it: writing.
    Exclusive,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// Whether it is read.
    pub reads: bool,
    /// Whether it is written.
    pub writes: bool,
    /// Whether it is made if it is not there.
    pub creates: bool,
    /// Whether it must not be there.
    pub is_new: bool,
}

/// A message to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToClient {
    /// The first message.
    Hello {
        /// [`VERSION`] of the server.
        version: u16,
        /// The host of the server, for messages to a user.
        name: String,
    },
    /// What the client shows if it connects again.
    Ticket(Ticket),
    /// The client is connected again: nothing is lost of what the server had, and what it had not
    /// is to be sent again.
    Resumed {
        /// How many requests the server has.
        requests: u64,
        /// How many frames.
        frames: u64,
    },
    /// The client is connected again, and the server was started again meanwhile: it knows the
    /// client, and has nothing of it. The client opens its files again, sets its views, takes its
    /// locks, and sends [`Call::Return`] and all that is not done.
    Restarted {
        /// Of the frames that are not confirmed, those that were written.
        written: Vec<u64>,
        /// Of the requests that are not confirmed, some that were done and cannot be repeated.
        done: Vec<u64>,
    },
    /// A request is done.
    Reply {
        /// Its number.
        number: u64,
        /// What came of it.
        outcome: Outcome,
    },
    /// Frames are written, or cannot be.
    Written(Vec<Written>),
    /// Room for this many further frames.
    Grant(u32),
    /// A frame had to be refused, and can be sent again now. It is the number of frames that the
    /// client sent before it.
    Again(u64),
    /// Another client waits for a write that was announced.
    Recall(WriteNumber),
    /// This end is alive.
    Heartbeat,
    /// The connection ends; the text says why.
    Fatal(String),
}

impl ToClient {
    /// Reports whether the message is counted: the server keeps those that the client has not
    /// confirmed, and sends them again on the next connection.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        match self {
            Self::Reply { .. } | Self::Written(_) | Self::Grant(_) => true,
            Self::Again(_) | Self::Recall(_) => true,
            Self::Hello { .. } | Self::Ticket(_) | Self::Resumed { .. } => false,
            Self::Restarted { .. } | Self::Heartbeat | Self::Fatal(_) => false,
        }
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It is done, and this is the answer: a length, a position, or how many bytes were read.
    Number(u64),
    /// It cannot be done.
    Failed(Failure),
    /// It cannot be read: another client wrote there, and is gone before it has sent its data.
    Lost,
}

/// Why something cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was being done.
    pub operation: Operation,
    /// Linux's `errno`.
    pub errno: i32,
}

/// What has become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of frames that the client sent before it.
    pub frame: u64,
    /// Why it could not be written, if it could not.
    pub failure: Option<Failure>,
}

wire_struct!(FileNumber { 0 });
wire_struct!(ViewNumber { 0 });
wire_struct!(Ticket { 0 });
wire_struct!(Request { number, frames_before, call });
wire_struct!(OpenMode { reads, writes, creates, is_new });
wire_struct!(Failure { operation, errno });
wire_struct!(Written { frame, failure });
wire_struct!(WriteNumber { 0 });
wire_struct!(Unsent { write, view, position, length });
wire_struct!(Fenced { fence, unsent });
crate::wire_list!(Written);
crate::wire_list!(Unsent);
crate::wire_list!(Fenced);
wire_enum!(LockKind { 0 => Shared, 1 => Exclusive });
wire_enum!(Outcome { 0 => Done, 1 => Number(number), 2 => Failed(failure), 3 => Lost });
wire_enum!(ToServer {
    1 => Hello { version, name },
    2 => Request(request),
    3 => Heartbeat { heard },
    4 => Resume { version, ticket, heard },
    5 => Bye,
});
wire_enum!(ToClient {
    1 => Hello { version, name },
    2 => Reply { number, outcome },
    3 => Written(written),
    4 => Grant(count),
    5 => Heartbeat,
    6 => Fatal(text),
    7 => Again(frame),
    8 => Recall(write),
    9 => Ticket(ticket),
    10 => Resumed { requests, frames },
    11 => Restarted { written, done },
});
wire_enum!(Call {
    1 => Open { file, path, mode, group },
    2 => View { view, file, displacement, filetype },
    3 => Forget { view },
    4 => Read { view, position, length },
    5 => Sync { file },
    6 => Flush { file },
    7 => Close { file },
    8 => Size { file },
    9 => SetSize { file, size },
    10 => Preallocate { file, size },
    11 => End { view },
    12 => AddShared { file, bytes },
    13 => SetShared { file, position },
    14 => Delete { path },
    15 => Lock { file, kind },
    16 => Unlock { file },
    17 => Fence { unsent },
    18 => Return { frames, writes },
});

/// Appends a message with its length before it.
///
/// # Panics
/// If it is longer than 4 GiB.
pub fn encode(message: &impl Wire, to: &mut Writer) {
    let start = to.len();
    to.extend_from_slice(&[0; LENGTH_BYTES]);
    message.put(to);
    let length = u32::try_from(to.len() - start - LENGTH_BYTES).expect("messages are shorter");
    to[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// Reads a message from the bytes after its length.
///
/// # Errors
/// If the bytes are not such a message.
pub fn decode<M: Wire>(body: &[u8]) -> Result<M, WireError> {
    M::take(&mut Reader::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn comes_back<M: Wire + PartialEq + std::fmt::Debug>(message: &M) {
        let mut bytes = Writer::new();
        encode(message, &mut bytes);
        assert_eq!(decode::<M>(&bytes[LENGTH_BYTES..]).as_ref(), Ok(message));
    }

    #[test]
    fn messages_come_back() {
        let (file, view, path) = (FileNumber(3), ViewNumber(7), b"a/b".to_vec());
        let write = WriteNumber(9);
        let unsent = Unsent { write, view, position: 1 << 50, length: 7 };
        let mode = OpenMode { reads: true, writes: false, creates: true, is_new: false };
        let calls = [
            Call::Open { file, path: path.clone(), mode, group: [9; 16] },
            Call::View { view, file, displacement: 5, filetype: vec![1, 2] },
            Call::Forget { view },
            Call::Read { view, position: 8, length: 9 },
            Call::Sync { file },
            Call::Flush { file },
            Call::Close { file },
            Call::Size { file },
            Call::SetSize { file, size: 1 << 40 },
            Call::Preallocate { file, size: 4 },
            Call::End { view },
            Call::AddShared { file, bytes: -5 },
            Call::SetShared { file, position: 6 },
            Call::Delete { path },
            Call::Lock { file, kind: LockKind::Shared },
            Call::Lock { file, kind: LockKind::Exclusive },
            Call::Unlock { file },
            Call::Fence { unsent: vec![unsent] },
            Call::Return { frames: 4, writes: vec![Fenced { fence: 8, unsent }] },
        ];
        for (number, call) in (0..).zip(calls) {
            comes_back(&ToServer::Request(Request { number, frames_before: 2, call }));
        }
        comes_back(&ToServer::Hello { version: VERSION, name: "me".to_owned() });
        let ticket = Ticket([7; 16]);
        comes_back(&ToServer::Resume { version: VERSION, ticket, heard: 1 << 40 });
        comes_back(&ToServer::Heartbeat { heard: 9 });
        comes_back(&ToServer::Bye);
        comes_back(&ToClient::Ticket(ticket));
        comes_back(&ToClient::Resumed { requests: 1, frames: 2 });
        comes_back(&ToClient::Restarted { written: vec![1], done: vec![2, 3] });
        let failure = Failure { operation: Operation::Write, errno: 28 };
        let written = vec![Written { frame: 3, failure: Some(failure) }];
        comes_back(&ToClient::Written(written));
        comes_back(&ToClient::Reply { number: 4, outcome: Outcome::Failed(failure) });
        comes_back(&ToClient::Reply { number: 5, outcome: Outcome::Lost });
        comes_back(&ToClient::Grant(5));
        comes_back(&ToClient::Again(6));
        comes_back(&ToClient::Recall(write));
    }

    #[test]
    fn writes_are_numbered_with_31_bits() {
        assert_eq!(WriteNumber::after((1 << 31) + 5), WriteNumber(5));
        for is_announced in [false, true] {
            let (view, write) = (ViewNumber(u32::MAX), WriteNumber((1 << 31) - 1));
            let of = FrameOf { view, write, is_announced };
            assert_eq!(FrameOf::of_entry(of.entry()), of);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes: Vec<u8>) {
            let _ = decode::<ToServer>(&bytes);
            let _ = decode::<ToClient>(&bytes);
        }
    }
}
