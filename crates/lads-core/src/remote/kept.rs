//! The list of what a client has on its local disk and has not sent: after the program, or the
//! connection, has ended, it can be sent from there.
//!
//! The bytes are in another file, in slots ([`crate::staging::Slot`]). A record of a frame is added
//! when its bytes are in their slot, and another when they are written at the server.
//!
//! ```text
//!  +------+-------+------+------+------+------+------+------+------+-----+
//!  | mark | Begin | mark | View | mark | Kept | mark | Gone | mark | End |
//!  +------+-------+------+------+------+------+------+------+------+-----+
//! ```
//!
//! Each record has a checksum ([`crate::record`]). After a damaged record, reading resumes at the
//! next mark that a whole record follows, so that damage hides no other record. The list ends with
//! an `End`, which the next records overwrite: a list without it is truncated.

use super::message::{FRAME_BYTES, FileNumber, ViewNumber};
use super::name::Server;
use crate::limits::CLIENT_FILETYPES_BYTES_MAX;
use crate::message::wire::Writer;
use crate::record::{self, Next};
use crate::staging::Slot;
use crate::{wire_enum, wire_struct};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use thiserror::Error;

/// The version of the format.
const FORMAT: u32 = 3;

/// The bytes before each record: no text, and no length of a record, begins like this.
const MARK: [u8; 8] = *b"\xf3RFS\xa5\x0d\x0a\x96";

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
    /// The end of the list.
    End,
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
    5 => End,
});

/// The first record of a list, for frames that go to a server and are in slots of this length.
#[must_use]
pub fn begin(server: Server, slot_bytes: u32) -> Record {
    Record::Begin { format: FORMAT, server, slot_bytes }
}

/// Appends a mark and a record.
///
/// # Panics
/// If it is a view with a filetype that is longer than any server takes.
pub fn encode(record: &Record, to: &mut Writer) {
    to.extend_from_slice(&MARK);
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
    /// The damage to the list, if it is not whole. Frames that were sent may then count as unsent.
    pub damage: Option<Damage>,
}

/// The part of a list that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The bytes of the list before the first damaged one.
    pub offset: u64,
    /// The number of damaged bytes of the list.
    pub bytes: u64,
    /// Whether the end of the list is missing.
    pub is_truncated: bool,
    /// The number of bytes of frames that cannot be sent because their view is missing.
    pub frame_bytes: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, bytes, is_truncated, frame_bytes } = self;
        let mut separator = "";
        if *bytes > 0 {
            write!(f, "{bytes} bytes of the list cannot be read, the first at offset {offset}")?;
            separator = "; ";
        }
        if *is_truncated {
            write!(f, "{separator}the end of the list is missing")?;
            separator = "; ";
        }
        if *frame_bytes > 0 {
            write!(f, "{separator}it is unknown where {frame_bytes} bytes belong")?;
        }
        Ok(())
    }
}

/// The reason why nothing of a list can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ListError {
    /// The file is something else.
    #[error("it is not a list of unsent data")]
    Other,
    /// The list has another format.
    #[error("another version of LADS wrote it")]
    Version,
    /// The first record is damaged, or a record holds an impossible value.
    #[error("the list is damaged, and it is unknown where its data belongs")]
    Damaged,
}

/// Reads a list. Records that are damaged are skipped, and counted in [`List::damage`].
///
/// # Errors
/// If the bytes are no list, a list of another version, or the first record cannot be read.
pub fn read(bytes: &[u8]) -> Result<List, ListError> {
    let mut reading = Reading::default();
    let mut at = 0;
    while at < bytes.len() {
        match record_at(bytes, at) {
            Some((record, length)) => {
                reading.take(record)?;
                at += length;
            }
            None => {
                let next = next_record(bytes, at + 1);
                reading.skip(at..next);
                at = next;
            }
        }
    }
    // Files of format 2 have no marks.
    let is_older =
        matches!(record::next(bytes, BODY_BYTES_MAX), Next::Record(Record::Begin { .. }, _));
    match reading.end() {
        Err(ListError::Other) if is_older => Err(ListError::Version),
        Err(ListError::Other) if MARK.starts_with(&bytes[..bytes.len().min(MARK.len())]) => {
            Err(ListError::Damaged)
        }
        read => read,
    }
}

/// Returns the record at an offset and its length with the mark, if both are whole.
fn record_at(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    match record::next(bytes[at..].strip_prefix(&MARK)?, BODY_BYTES_MAX) {
        Next::Record(record, length) => Some((record, MARK.len() + length)),
        Next::Incomplete | Next::Damaged => None,
    }
}

/// Returns the offset of the next whole record; the length of the list if there is none.
fn next_record(bytes: &[u8], from: usize) -> usize {
    let is_record = |at: &usize| bytes[*at..].starts_with(&MARK) && record_at(bytes, *at).is_some();
    (from..bytes.len()).find(is_record).unwrap_or(bytes.len())
}

/// The records of a list that have been read so far.
#[derive(Default)]
struct Reading {
    begun: Option<(Server, u32)>,
    views: HashMap<ViewNumber, KeptView>,
    frames: BTreeMap<u64, Kept>,
    has_records: bool,
    is_ended: bool,
    damage: Damage,
}

impl Reading {
    fn take(&mut self, record: Record) -> Result<(), ListError> {
        self.has_records = true;
        self.is_ended = record == Record::End;
        match record {
            Record::Begin { format, .. } if format != FORMAT => return Err(ListError::Version),
            Record::Begin { server, slot_bytes, .. } => self.begun = Some((server, slot_bytes)),
            Record::View { view, file, path, displacement, filetype } => {
                self.views.insert(view, KeptView { file, path, displacement, filetype });
            }
            Record::Kept(kept) => drop(self.frames.insert(kept.id, kept)),
            Record::Gone { id } => drop(self.frames.remove(&id)),
            Record::End => {}
        }
        Ok(())
    }

    fn skip(&mut self, range: Range<usize>) {
        if self.damage.bytes == 0 {
            self.damage.offset = range.start as u64;
        }
        self.damage.bytes += range.len() as u64;
    }

    fn end(mut self) -> Result<List, ListError> {
        let unusable = if self.has_records { ListError::Damaged } else { ListError::Other };
        let (server, slot_bytes) = self.begun.ok_or(unusable)?;
        let is_length = slot_bytes <= FRAME_BYTES && slot_bytes.is_power_of_two();
        if !is_length || self.frames.values().any(|it| it.length > slot_bytes) {
            return Err(ListError::Damaged);
        }
        let views = self.views;
        let unplaced = self.frames.extract_if(.., |_, it| !views.contains_key(&it.view));
        self.damage.frame_bytes = unplaced.map(|(_, it)| u64::from(it.length)).sum();
        self.damage.is_truncated = !self.is_ended;
        let damage = (self.damage != Damage::default()).then_some(self.damage);
        let frames = self.frames.into_values().collect();
        Ok(List { server, slot_bytes, views, frames, damage })
    }
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

    fn view() -> Record {
        Record::View {
            view: ViewNumber(2),
            file: FileNumber(1),
            path: b"a".to_vec(),
            displacement: 4,
            filetype: vec![0, 1],
        }
    }

    /// The records of a list, each as it is written.
    fn records() -> Vec<Vec<u8>> {
        let kept = [kept(3), kept(1), kept(2)].map(Record::Kept);
        let records = [begin(server(), 16), view()].into_iter().chain(kept);
        records.chain([Record::Gone { id: 1 }, Record::End]).map(|it| encoded(&it)).collect()
    }

    fn encoded(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(record, &mut bytes);
        bytes
    }

    fn sample() -> Vec<u8> {
        records().concat()
    }

    fn ids(list: &List) -> Vec<u64> {
        list.frames.iter().map(|it| it.id).collect()
    }

    #[test]
    fn what_was_not_sent_is_on_the_list_in_the_order_of_the_program() {
        let list = read(&sample()).unwrap();
        assert_eq!((list.server, list.slot_bytes, list.views.len()), (server(), 16, 1));
        assert_eq!((list.frames, list.damage), (vec![kept(2), kept(3)], None));
    }

    #[test]
    fn damage_to_one_record_hides_no_other_record_and_is_located() {
        let records = records();
        let starts: Vec<usize> =
            (0..records.len()).map(|index| records[..index].concat().len()).collect();
        for bit in 0..sample().len() * 8 {
            let mut bytes = sample();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damaged = starts.partition_point(|start| *start <= bit / 8) - 1;
            let Ok(list) = read(&bytes) else {
                assert_eq!((damaged, read(&bytes)), (0, Err(ListError::Damaged)));
                continue;
            };
            let damage = list.damage.unwrap();
            assert_eq!(damage.offset, starts[damaged] as u64, "bit {bit}");
            assert_eq!(damage.bytes, records[damaged].len() as u64, "bit {bit}");
            assert_eq!(damage.is_truncated, damaged == 6);
            assert_eq!(damage.frame_bytes, if damaged == 1 { 20 } else { 0 });
            let expected: &[u64] = match damaged {
                1 => &[],
                2 => &[2],
                4 => &[3],
                5 => &[1, 2, 3],
                _ => &[2, 3],
            };
            assert_eq!(ids(&list), expected, "bit {bit}");
        }
    }

    #[test]
    fn a_truncated_list_is_never_taken_for_a_whole_one() {
        let (bytes, begin) = (sample(), records()[0].len());
        for length in 0..bytes.len() {
            match read(&bytes[..length]) {
                Ok(list) => assert!(list.damage.unwrap().is_truncated && length >= begin),
                Err(error) => assert!(error == ListError::Damaged && length < begin),
            }
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(read(&longer).unwrap().damage.unwrap().bytes, 1);
    }

    #[test]
    fn damage_is_described() {
        let all = Damage { offset: 7, bytes: 9, is_truncated: true, frame_bytes: 20 };
        let text = "9 bytes of the list cannot be read, the first at offset 7; the end of the list \
                    is missing; it is unknown where 20 bytes belong";
        assert_eq!(all.to_string(), text);
        let truncated = Damage { is_truncated: true, ..Damage::default() };
        assert_eq!(truncated.to_string(), "the end of the list is missing");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert_eq!(read(b"something else"), Err(ListError::Other));
        let other =
            encoded(&Record::Begin { format: FORMAT + 1, server: server(), slot_bytes: 16 });
        assert_eq!(read(&other), Err(ListError::Version));
        assert_eq!(read(&other[MARK.len()..]), Err(ListError::Version), "format 2 has no marks");
        for slot_bytes in [0, 24, 2 << 20] {
            assert_eq!(read(&encoded(&begin(server(), slot_bytes))), Err(ListError::Damaged));
        }
        let too_long = encoded(&Record::Kept(Kept { length: 17, ..kept(4) }));
        assert_eq!(read(&[sample(), too_long].concat()), Err(ListError::Damaged));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = read(&bytes);
            let after = [sample(), bytes.clone()].concat();
            prop_assert_eq!(read(&after).unwrap().damage.is_none(), bytes.is_empty());
        }
    }
}
