//! Messages that no honest peer would send, made so that a session is likely to look at them: with
//! numbers of entries that exist, and bytes of files that do.

use crate::choices::Choices;
use lads_core::ceph::ObjectStriping;
use lads_core::entry::UNSIZED_BYTES;
use lads_core::entry::{Entry, Identity, Kind, Metadata, Timestamp, Xattr};
use lads_core::frame::{ROWS_MAX, Row};
use lads_core::issue::{Failure, Issue, Operation, Reason, Side};
use lads_core::layout::{Layout, Part};
use lads_core::message::{Answer, BlockRange, Counters, Ending, Hello, MAGIC, Message, OstBytes};
use lads_core::message::{Presence, Question, Root, SchemaDigest, decode};
use lads_core::pass::Pass;
use lads_core::placement::Striping;
use lads_core::range::RangeSet;
use lads_core::room::Lot;
use lads_core::units::{Block, EntryId, OstId};

/// What nonsense is about, mostly.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// The highest number of an entry in use.
    pub entry_last: u64,
    /// How many OSTs the sink has.
    pub ost_count: u32,
    /// Block size, in bytes.
    pub block_bytes: u32,
}

/// Elements of a list of nonsense.
const LIST_MAX: u32 = 6;

/// Lists that are long, to find what grows with their length.
const LONG_LIST_MAX: u32 = 300;

/// Longest message that is taken from the input as it is, in bytes.
const RAW_BYTES_MAX: u32 = 255;

/// A message of any type, or bytes that happen to be one; `None` if they are not.
pub fn message(choices: &mut Choices<'_>, topic: &Topic) -> Option<Message> {
    if choices.is_one_in(4) {
        return decode(choices.bytes(RAW_BYTES_MAX)).ok();
    }
    let message = match choices.below(16) {
        0 => Message::NewFile(list(choices, |it| entry(it, topic))),
        1 => Message::FileId(list(choices, |it| (entry_id(it, topic), answer(it, topic)))),
        2 => Message::Grant(Lot::of(list(choices, |it| (ost(it, topic), grant_count(it))))),
        3 => Message::BlockDone(list(choices, |it| range(it, topic))),
        4 => Message::BlockBad(list(choices, |it| range(it, topic))),
        5 | 6 => Message::FileDone(list(choices, |it| (entry_id(it, topic), ending(it)))),
        7 => Message::PlaceAgain(list(choices, |it| entry_id(it, topic))),
        8 => Message::StreamEnd { stream: stream(choices), frames: choices.number() },
        9 => Message::Staged(choices.number()),
        10 => Message::Finish { is_complete: true },
        11 => Message::Finished(Counters::default()),
        12 => Message::Stop("nonsense".to_owned()),
        13 => of_removal(choices).unwrap_or_else(|| frames(choices, topic)),
        14 => ready(choices),
        _ => talk(choices),
    };
    Some(message)
}

/// Rows of a frame: blocks of entries that exist, or not. None is what no row can be
/// ([`lads_core::frame::take_rows`]).
pub fn rows(choices: &mut Choices<'_>, topic: &Topic) -> Vec<Row> {
    let row = |choices: &mut Choices<'_>| {
        let BlockRange { entry, offset, length } = range(choices, topic);
        let length = u32::try_from(length.min(topic.block_bytes.into())).expect("at most a block");
        let length = length.max(1);
        let offset = offset.min(u64::MAX - u64::from(length));
        let (is_whole, checksum) = (choices.is_one_in(3), 0);
        Row { block: Block { entry, offset, length }, is_whole, checksum }
    };
    let mut rows = list(choices, row);
    if rows.is_empty() {
        rows.push(row(choices));
    }
    // A receiver refuses a frame that has more, or is longer than its buffer.
    rows.truncate(ROWS_MAX);
    let mut bytes = 0;
    rows.retain(|row| {
        bytes += row.block.length;
        bytes <= topic.block_bytes
    });
    rows
}

/// Where a file lies at the sink, in ways that no file system would have it.
pub fn layout(choices: &mut Choices<'_>, topic: &Topic) -> Layout {
    let of_one = Layout::on(ost(choices, topic));
    let osts = |choices: &mut Choices<'_>| -> Vec<OstId> {
        (0..=choices.below(4)).map(|_| ost(choices, topic)).collect()
    };
    let found = match choices.below(4) {
        0 => None,
        1 => Layout::striped(bytes(choices, topic), osts(choices)),
        2 => {
            let (unit, count) = (choices.number32(), 1 + choices.below(4));
            let object_size = unit.saturating_mul(1 + choices.below(4));
            let striping = ObjectStriping::new(unit, count, object_size);
            striping.and_then(|striping| Layout::in_objects(striping, &osts(choices)))
        }
        _ => {
            let first = Part {
                end: bytes(choices, topic),
                stripe_size: bytes(choices, topic),
                osts: osts(choices),
            };
            let stripe_size = bytes(choices, topic);
            let last = Part { end: u64::MAX, stripe_size, osts: osts(choices) };
            Layout::composite([first, last])
        }
    };
    found.unwrap_or(of_one)
}

/// Something that went wrong.
pub fn failure(choices: &mut Choices<'_>, side: Side) -> Failure {
    let reason = match choices.below(6) {
        0 => Reason::Os(5),
        1 => Reason::Os(28),
        2 => Reason::Changed,
        3 => Reason::Checksum,
        4 => Reason::Special,
        _ => Reason::Vanished,
    };
    Failure::new(side, choices.one_of(&Operation::ALL), reason)
}

fn list<T>(choices: &mut Choices<'_>, mut one: impl FnMut(&mut Choices<'_>) -> T) -> Vec<T> {
    let most = if choices.is_one_in(16) { LONG_LIST_MAX } else { LIST_MAX };
    (0..choices.below(most)).map(|_| one(choices)).collect()
}

fn entry_id(choices: &mut Choices<'_>, topic: &Topic) -> EntryId {
    if choices.is_one_in(8) {
        return EntryId(choices.number());
    }
    // One further than there are, so that a number that was never announced comes, too.
    let last = u32::try_from(topic.entry_last).unwrap_or(u32::MAX - 2);
    EntryId(choices.below(last + 2).into())
}

fn ost(choices: &mut Choices<'_>, topic: &Topic) -> OstId {
    let count = topic.ost_count;
    OstId(if choices.is_one_in(8) { choices.number32() } else { choices.below(count) })
}

/// A stripe size, an offset, a length: near a border of blocks, mostly.
fn bytes(choices: &mut Choices<'_>, topic: &Topic) -> u64 {
    let block_bytes = u64::from(topic.block_bytes);
    match choices.below(4) {
        0 => u64::from(choices.below(8)) * block_bytes,
        1 => u64::from(choices.below(8)) * block_bytes + u64::from(choices.below(3)),
        2 => u64::from(choices.below(topic.block_bytes)),
        _ => choices.number(),
    }
}

fn range(choices: &mut Choices<'_>, topic: &Topic) -> BlockRange {
    let entry = entry_id(choices, topic);
    BlockRange { entry, offset: bytes(choices, topic), length: bytes(choices, topic) }
}

fn grant_count(choices: &mut Choices<'_>) -> u32 {
    if choices.is_one_in(4) { choices.number32() } else { choices.below(4) }
}

fn stream(choices: &mut Choices<'_>) -> u16 {
    let stream = if choices.is_one_in(8) { choices.number32() } else { choices.below(4) };
    u16::try_from(stream).unwrap_or(u16::MAX)
}

fn entry(choices: &mut Choices<'_>, topic: &Topic) -> Entry {
    let names: [&[u8]; 6] = [b"a", b".", b"..", b"a/b", b"", b"c"];
    let mut kind = match choices.below(6) {
        0..=2 => Kind::File {
            identity: Identity { size: bytes(choices, topic), ..Identity::default() },
            data_bytes: bytes(choices, topic),
            striping: Striping { size: bytes(choices, topic), count: choices.below(9) },
            source_ost: ost(choices, topic),
            is_different: choices.is_one_in(4),
        },
        3 => Kind::Directory,
        4 => Kind::HardLink { target: choices.one_of(&names).to_vec() },
        _ => Kind::Special { file_type: choices.number32(), device: choices.number() },
    };
    let xattrs = list(choices, |it| Xattr { name: b"user.a".to_vec(), value: it.bytes(9).into() });
    let id = entry_id(choices, topic);
    if let Kind::File { identity, data_bytes, .. } = &mut kind
        && id.0 % 5 == 4
    {
        (identity.size, *data_bytes) = (UNSIZED_BYTES, UNSIZED_BYTES);
    }
    Entry {
        id,
        parent: entry_id(choices, topic),
        name: choices.one_of(&names).to_vec(),
        kind,
        metadata: Metadata { mode: choices.number32(), xattrs, ..Metadata::default() },
    }
}

fn answer(choices: &mut Choices<'_>, topic: &Topic) -> Answer {
    match choices.below(7) {
        0 | 1 => {
            let range = |choices: &mut Choices<'_>| {
                let start = bytes(choices, topic);
                start..start.saturating_add(bytes(choices, topic))
            };
            let done: RangeSet = list(choices, range).into_iter().collect();
            Answer::Want { done, layout: layout(choices, topic) }
        }
        2 => Answer::Have,
        3 => Answer::Made,
        4 if choices.is_one_in(2) => Answer::Passed(Pass::Newer),
        4 => Answer::Would,
        5 => Answer::Compare { layout: layout(choices, topic) },
        _ => Answer::Failed(failure(choices, Side::Sink)),
    }
}

fn ending(choices: &mut Choices<'_>) -> Ending {
    match choices.below(6) {
        0 => Ending::Complete,
        1 => Ending::Dropped,
        3 => Ending::Same,
        4 => Ending::Different,
        5 => Ending::Incomplete,
        // No choice, so that inputs that were found before mean what they did.
        _ => match failure(choices, Side::Sink) {
            Failure { reason: Reason::Os(number), .. } if number % 2 == 1 => {
                let size = u64::from(number.unsigned_abs()) * 512;
                Ending::CompleteAt { size, mtime: Timestamp::default() }
            }
            failure => Ending::Failed(failure),
        },
    }
}

fn frames(choices: &mut Choices<'_>, topic: &Topic) -> Message {
    Message::Frames(list(choices, |it| bytes(it, topic)))
}

fn of_removal(choices: &mut Choices<'_>) -> Option<Message> {
    Some(match choices.below(4) {
        0 => Message::AreThere(question(choices)),
        1 => Message::There { number: choices.below(5).into(), answers: presences(choices) },
        2 => Message::Removed(choices.number()),
        _ => return None,
    })
}

fn question(choices: &mut Choices<'_>) -> Question {
    let name = |choices: &mut Choices<'_>| choices.bytes(4).to_vec();
    Question { number: choices.number(), directory: name(choices), names: list(choices, name) }
}

fn presences(choices: &mut Choices<'_>) -> Vec<Presence> {
    let all = [Presence::Absent, Presence::Other, Presence::Directory, Presence::Unknown];
    list(choices, |choices| choices.one_of(&all))
}

fn ready(choices: &mut Choices<'_>) -> Message {
    let (ost_count, open_files_max) = (choices.number32(), choices.number32());
    let is_renamed = ost_count % 2 == 1;
    Message::Ready { ost_count, open_files_max, is_renamed, time_unit_nanos: choices.number32() }
}

/// What is no business of a session.
fn talk(choices: &mut Choices<'_>) -> Message {
    match choices.below(8) {
        0 => Message::Heartbeat,
        1 => Message::Progress(Counters::default()),
        2 => Message::OstBytes(OstBytes::default()),
        3 => Message::Notice(String::new()),
        4 => {
            Message::Issues(vec![Issue { path: Vec::new(), failure: failure(choices, Side::Sink) }])
        }
        5 => Message::Roots(vec![Root {
            name: b"..".to_vec(),
            is_directory: true,
            is_contents_only: false,
        }]),
        6 => Message::Hello(Hello {
            magic: MAGIC,
            version_min: 0,
            version: u16::MAX,
            features: u64::MAX,
            software: String::new(),
            host: String::new(),
            schema: SchemaDigest(None),
        }),
        _ => Message::Job(choices.bytes(9).to_vec()),
    }
}
