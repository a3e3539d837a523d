//! The list of what a client has on its local disk and has not sent: after the program, or the
//! connection, has ended, it can be sent from there.
//!
//! The bytes are in another file, in slots ([`crate::staging::Slot`]). A record of a frame is added
//! when its bytes are in their slot, and another when they are written at the server.

use super::message::{FRAME_BYTES, FileNumber, ViewNumber};
use super::name::Server;
use crate::limits::CLIENT_FILETYPES_BYTES_MAX;
use crate::message::wire::Writer;
use crate::record::{self, Next};
use crate::staging::Slot;
use crate::{wire_enum, wire_struct};
use std::collections::{BTreeMap, HashMap};

/// The version of the format.
const FORMAT: u32 = 2;

/// The longest body of a record, in bytes: the largest filetype, with a little beside it.
const BODY_BYTES_MAX: usize = CLIENT_FILETYPES_BYTES_MAX + (64 << 10);

/// A record of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record.
    Begin {
        /// `FORMAT`.
        format: u32,
        /// The server.
        server: Server,
        /// The bytes of a slot.
        slot_bytes: u32,
    },
    /// A view, before the first frame of it.
    View {
        /// Its number.
        view: ViewNumber,
        /// Its file.
        file: FileNumber,
        /// The path of the file below the root of the server.
        path: Vec<u8>,
        /// Where the view begins, in bytes.
        displacement: u64,
        /// The filetype ([`crate::view::Datatype`]).
        filetype: Vec<u8>,
    },
    /// A frame is on the local disk.
    Kept(Kept),
    /// A frame is written at the server.
    Gone {
        /// Its number.
        id: u64,
    },
}

/// A frame on the local disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The number of frames that the program wrote before it.
    pub id: u64,
    /// Its view.
    pub view: ViewNumber,
    /// The position of its first byte in the stream of the view.
    pub position: u64,
    /// How many bytes it has.
    pub length: u32,
    /// Where they are.
    pub slot: Slot,
    /// xxh3 (64 bits) of its bytes.
    pub checksum: u64,
}

wire_enum!(Server { 1 => At(at), 2 => StartedOn(host), 3 => Here });
wire_struct!(Slot { 0 });
wire_struct!(Kept { id, view, position, length, slot, checksum });
wire_enum!(Record {
    1 => Begin { format, server, slot_bytes },
    2 => View { view, file, path, displacement, filetype },
    3 => Kept(kept),
    4 => Gone { id },
});

/// The first record of a list, for frames that go to a server and are in slots of this length.
#[must_use]
pub fn begin(server: Server, slot_bytes: u32) -> Record {
    Record::Begin { format: FORMAT, server, slot_bytes }
}

/// Appends a record.
///
/// # Panics
/// If it is a view with a filetype that is longer than any server takes.
pub fn encode(record: &Record, to: &mut Writer) {
    record::encode(record, BODY_BYTES_MAX, to);
}

/// A view on the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptView {
    /// The number of its file.
    pub file: FileNumber,
    /// The path of the file.
    pub path: Vec<u8>,
    /// Where the view begins.
    pub displacement: u64,
    /// The filetype.
    pub filetype: Vec<u8>,
}

/// What is on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The server to which the program wrote.
    pub server: Server,
    /// The bytes of a slot.
    pub slot_bytes: u32,
    /// Views, by number.
    pub views: HashMap<ViewNumber, KeptView>,
    /// Frames that were not sent, in the order in which the program wrote them.
    pub frames: Vec<Kept>,
}

/// Reads a list as far as it is whole; a torn record at its end counts as never written.
///
/// # Errors
/// If it is no list, or one of another version: a text for a person.
pub fn read(mut bytes: &[u8]) -> Result<List, &'static str> {
    let mut frames = BTreeMap::new();
    let mut views = HashMap::new();
    let mut begun = None;
    while let Next::Record(record, length) = record::next(bytes, BODY_BYTES_MAX) {
        bytes = &bytes[length..];
        match record {
            Record::Begin { format, .. } if format != FORMAT => {
                return Err("another version of LADS made it");
            }
            Record::Begin { server, slot_bytes, .. } => begun = Some((server, slot_bytes)),
            Record::View { view, file, path, displacement, filetype } => {
                views.insert(view, KeptView { file, path, displacement, filetype });
            }
            Record::Kept(kept) => drop(frames.insert(kept.id, kept)),
            Record::Gone { id } => drop(frames.remove(&id)),
        }
    }
    let (server, slot_bytes) = begun.ok_or("it is not a list of what was kept")?;
    let is_length = slot_bytes <= FRAME_BYTES && slot_bytes.is_power_of_two();
    if !is_length || frames.values().any(|it| it.length > slot_bytes) {
        return Err("it is damaged");
    }
    let frames = frames.into_values().filter(|it| views.contains_key(&it.view)).collect();
    Ok(List { server, slot_bytes, views, frames })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(id: u64) -> Kept {
        let slot = Slot(u32::try_from(id).unwrap());
        Kept { id, view: ViewNumber(2), position: id * 10, length: 10, slot, checksum: 5 }
    }

    fn server() -> Server {
        Server::StartedOn("me@h".to_owned())
    }

    fn sample() -> Vec<u8> {
        let view = Record::View {
            view: ViewNumber(2),
            file: FileNumber(1),
            path: b"a".to_vec(),
            displacement: 4,
            filetype: vec![0, 1],
        };
        let mut bytes = Vec::new();
        let records = [kept(3), kept(1), kept(2)].map(Record::Kept);
        let gone = Record::Gone { id: 1 };
        for record in [begin(server(), 16), view].iter().chain(&records).chain([&gone]) {
            encode(record, &mut bytes);
        }
        bytes
    }

    #[test]
    fn what_was_not_sent_is_on_the_list_in_the_order_of_the_program() {
        let list = read(&sample()).unwrap();
        assert_eq!((list.server, list.slot_bytes, list.views.len()), (server(), 16, 1));
        assert_eq!(list.frames, [kept(2), kept(3)]);
    }

    #[test]
    fn a_torn_end_counts_as_never_written() {
        let bytes = sample();
        let list = read(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(list.frames, [kept(1), kept(2), kept(3)]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert!(read(b"something else").is_err());
        let mut other = Vec::new();
        encode(&Record::Begin { format: FORMAT + 1, server: server(), slot_bytes: 16 }, &mut other);
        assert_eq!(read(&other), Err("another version of LADS made it"));
        for slot_bytes in [0, 24, 2 << 20] {
            let mut damaged = Vec::new();
            encode(&begin(server(), slot_bytes), &mut damaged);
            assert_eq!(read(&damaged), Err("it is damaged"));
        }
        let mut damaged = sample();
        encode(&Record::Kept(Kept { length: 17, ..kept(4) }), &mut damaged);
        assert_eq!(read(&damaged), Err("it is damaged"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = read(&bytes);
            let mut after = sample();
            after.extend(bytes);
            prop_assert!(read(&after).is_ok());
        }
    }
}
