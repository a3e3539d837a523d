//! The source that a sink talks with, as far as it is honest: what it announces, sends and vouches
//! for.

use super::owner::Books;
use crate::choices::Choices;
use crate::nonsense::Topic;
use lads_core::entry::{Entry, Identity, Kind, Metadata, Timestamp, UNSIZED_BYTES};
use lads_core::frame::Row;
use lads_core::layout::Layout;
use lads_core::limits::ALIGNMENT_BYTES;
use lads_core::message::{Answer, BlockRange, Ending, Message};
use lads_core::placement::Striping;
use lads_core::range::RangeSet;
use lads_core::sink::SinkConfig;
use lads_core::units::{Block, EntryId, OstId};
use std::collections::BTreeMap;

/// Entries that are announced and have not ended, at most.
const ENTRIES_MAX: usize = 40;

/// Whole pages in the largest file.
const PAGES_MAX: u32 = 24;

/// Whether a file of this number is unsized when it is announced first. No choice, so that inputs
/// that were found before mean what they did.
fn is_unsized(id: EntryId) -> bool {
    id.0 % 5 == 4
}

/// What became of a frame.
#[derive(Debug)]
pub(super) enum Sent {
    Arrived,
    Lost(OstId, Vec<Row>),
}

/// What the source knows of an entry that is not a directory.
#[derive(Debug)]
struct File {
    size: u64,
    /// Whether its size is told only at its end.
    is_unsized: bool,
    state: State,
    /// Whether the sink has asked for it to be announced anew, which it may do once.
    is_placed_again: bool,
    /// Whether it is dropped for that.
    is_replaced: bool,
    /// Whether the sink has asked for its checksums only.
    is_compared: bool,
}

#[derive(Debug)]
enum State {
    Announced,
    Moving(Moving),
    /// The source has said the last word on it.
    Ending,
    Vouched(Moving),
}

#[derive(Debug)]
struct Moving {
    layout: Layout,
    /// What need not be sent, for it is there or on its way.
    sent: RangeSet,
    done: RangeSet,
}

/// An honest source.
#[derive(Debug, Default)]
pub(super) struct Peer {
    entry_last: u64,
    /// Frames that may be sent, in all and for each OST.
    frames_granted: u32,
    granted: Vec<u32>,
    files: BTreeMap<EntryId, File>,
    directories: BTreeMap<EntryId, Directory>,
    /// Files that the sink wants to be dropped, and sizes of those that are to be announced anew.
    to_drop: Vec<EntryId>,
    anew: Vec<u64>,
    /// Numbers of files that were dropped, those first that ended first.
    dropped: Vec<EntryId>,
    is_finish_said: bool,
    is_stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directory {
    Announced,
    Answered,
    /// The source has said that all in it has ended.
    Closing,
}

impl Peer {
    /// What there is to talk nonsense about.
    pub(super) fn topic(&self, config: &SinkConfig) -> Topic {
        Topic {
            entry_last: self.entry_last,
            ost_count: u32::try_from(config.osts.len()).expect("few"),
            block_bytes: config.buffer_bytes,
        }
    }

    /// Grants that are left for an OST.
    pub(super) fn granted(&self, ost: OstId) -> u32 {
        self.granted.get(ost.index()).copied().unwrap_or(0)
    }

    /// Bytes of files that are announced and not vouched for.
    pub(super) fn bytes_left(&self) -> u64 {
        self.files.values().map(|file| file.size).sum()
    }

    /// The transfer is to stop: nothing new is announced.
    pub(super) fn stop(&mut self) -> Message {
        self.is_stopped = true;
        Message::Stop("asked".to_owned())
    }

    pub(super) fn use_grant(&mut self, ost: OstId) {
        let granted = self.granted.get_mut(ost.index()).filter(|granted| **granted > 0);
        *granted.expect("a frame without a grant is refused") -= 1;
        self.frames_granted = self.frames_granted.checked_sub(1).expect("no frame beyond these");
    }

    pub(super) fn announce(&mut self, choices: &mut Choices<'_>) -> Option<Message> {
        let is_full = self.files.len() + self.directories.len() >= ENTRIES_MAX;
        if is_full || self.is_finish_said || self.is_stopped {
            return None;
        }
        let count = 1 + choices.below(3);
        let entries: Vec<Entry> = (0..count).map(|_| self.entry(choices)).collect();
        Some(Message::NewFile(entries))
    }

    fn entry(&mut self, choices: &mut Choices<'_>) -> Entry {
        self.entry_last += 1;
        let id = EntryId(self.entry_last);
        let open = self.directories.iter().filter(|(_, state)| **state != Directory::Closing);
        let parents: Vec<EntryId> =
            [EntryId::ROOT].into_iter().chain(open.map(|(&id, _)| id)).collect();
        let kind = match choices.below(8) {
            6 => Kind::Directory,
            7 => Kind::Symlink { target: b"somewhere".to_vec() },
            _ => file(choices),
        };
        let parent = choices.one_of(&parents);
        let name = format!("n{}", id.0).into_bytes();
        let mut entry = Entry { id, parent, name, kind, metadata: Metadata::default() };
        if entry.is_directory() {
            self.directories.insert(id, Directory::Announced);
            return entry;
        }
        self.keep(&entry, false);
        if let Kind::File { identity, data_bytes, .. } = &mut entry.kind
            && is_unsized(id)
        {
            (identity.size, *data_bytes) = (UNSIZED_BYTES, UNSIZED_BYTES);
            self.files.get_mut(&id).expect("it was kept").is_unsized = true;
        }
        entry
    }

    /// A file under the number of one that was dropped, of which something may still be being
    /// written. No honest source does this.
    pub(super) fn use_again(&mut self, choices: &mut Choices<'_>) -> Option<Message> {
        let id = self.dropped.pop()?;
        let (parent, name) = (EntryId::ROOT, format!("n{}", id.0).into_bytes());
        let entry = Entry { id, parent, name, kind: file(choices), metadata: Metadata::default() };
        self.keep(&entry, false);
        Some(Message::NewFile(vec![entry]))
    }

    fn keep(&mut self, entry: &Entry, is_placed_again: bool) {
        let (size, state, is_replaced) = (entry.size(), State::Announced, false);
        let (is_unsized, is_compared) = (false, false);
        let file = File { size, is_unsized, state, is_placed_again, is_replaced, is_compared };
        self.files.insert(entry.id, file);
    }

    /// Blocks for one OST for which there is room, at most this many, not more than fit a buffer;
    /// and whether only their checksums go.
    pub(super) fn next_frame(
        &mut self,
        count_max: u32,
        config: &SinkConfig,
    ) -> Option<(OstId, Vec<Row>, bool)> {
        let mut frame: Option<(OstId, Vec<Row>)> = None;
        let mut has_only_sums = false;
        let mut bytes_left = u64::from(config.buffer_bytes);
        let (frames, granted) = (self.frames_granted, &self.granted);
        let has_room =
            |ost: OstId| frames > 0 && granted.get(ost.index()).is_some_and(|&count| count > 0);
        for (&entry, file) in &mut self.files {
            if frame.is_none() {
                has_only_sums = file.is_compared;
            } else if file.is_compared != has_only_sums {
                continue;
            }
            let State::Moving(moving) = &mut file.state else { continue };
            while let Some((ost, range)) = moving.next(file.size, bytes_left) {
                let (to, rows) = match &mut frame {
                    None if has_room(ost) => frame.insert((ost, Vec::new())),
                    Some(frame) if frame.0 == ost => frame,
                    _ => break,
                };
                if rows.len() == count_max as usize {
                    break;
                }
                assert_eq!(*to, ost);
                let length = u32::try_from(range.end - range.start).expect("fits a buffer");
                bytes_left -= u64::from(length);
                let block = Block { entry, offset: range.start, length };
                let is_whole = u64::from(length) == file.size && !file.is_unsized;
                rows.push(Row { block, is_whole, checksum: 0 });
                moving.sent.insert(range);
            }
        }
        let (ost, rows) = frame?;
        self.use_grant(ost);
        Some((ost, rows, has_only_sums))
    }

    /// Frames that did not arrive go again, and their grants were not used.
    pub(super) fn on_lost(&mut self, sent: Option<Sent>) {
        let Some(Sent::Lost(ost, rows)) = sent else { return };
        self.granted[ost.index()] += 1;
        self.frames_granted += 1;
        for row in rows {
            self.send_again(row.block.entry, row.block.offset, row.block.length.into());
        }
    }

    fn send_again(&mut self, entry: EntryId, offset: u64, length: u64) {
        let Some(file) = self.files.get_mut(&entry) else { return };
        let state = std::mem::replace(&mut file.state, State::Ending);
        file.state = match state {
            State::Moving(mut moving) | State::Vouched(mut moving) => {
                moving.sent.remove(offset..offset + length);
                moving.done.remove(offset..offset + length);
                State::Moving(moving)
            }
            other => other,
        };
    }

    /// The word that a file is whole, or that a directory is done, if there is one.
    pub(super) fn vouch(&mut self) -> Option<Message> {
        let entry = self.vouch_for_file().or_else(|| self.close_directory())?;
        let ending = match self.files.get(&entry) {
            Some(File { is_unsized: true, size, .. }) => {
                Ending::CompleteAt { size: *size, mtime: Timestamp::default() }
            }
            _ => Ending::Complete,
        };
        Some(Message::FileDone(vec![(entry, ending)]))
    }

    fn vouch_for_file(&mut self) -> Option<EntryId> {
        for (&entry, file) in &mut self.files {
            let state = std::mem::replace(&mut file.state, State::Ending);
            match state {
                State::Moving(moving) if moving.done.byte_count() == file.size => {
                    file.state = State::Vouched(moving);
                    return Some(entry);
                }
                other => file.state = other,
            }
        }
        None
    }

    /// The last directory goes first, for the others may hold it.
    fn close_directory(&mut self) -> Option<EntryId> {
        let is_all_answered = self.directories.values().all(|it| *it == Directory::Answered);
        if !self.files.is_empty() || !self.anew.is_empty() || !is_all_answered {
            return None;
        }
        let mut last = self.directories.last_entry()?;
        last.insert(Directory::Closing);
        Some(*last.key())
    }

    /// What the sink asked to be placed again: dropped, or announced anew when that is done.
    pub(super) fn place_again(&mut self) -> Option<Message> {
        if let Some(entry) = self.to_drop.pop() {
            return Some(Message::FileDone(vec![(entry, Ending::Dropped)]));
        }
        let size = self.anew.pop().filter(|_| !self.is_stopped)?;
        self.entry_last += 1;
        let id = EntryId(self.entry_last);
        let name = format!("n{}", id.0).into_bytes();
        let (parent, metadata) = (EntryId::ROOT, Metadata::default());
        let entry = Entry { id, parent, name, kind: file_of(size, OstId(0), 1), metadata };
        self.keep(&entry, true);
        Some(Message::NewFile(vec![entry]))
    }

    /// A file changed, or cannot be read.
    pub(super) fn drop_one(&mut self, choices: &mut Choices<'_>) -> Option<Message> {
        let moving: Vec<EntryId> = (self.files.iter())
            .filter(|(_, file)| matches!(file.state, State::Moving(_)))
            .map(|(&entry, _)| entry)
            .collect();
        let entry = moving[choices.place_in(moving.len())?];
        self.files.get_mut(&entry)?.state = State::Ending;
        Some(Message::FileDone(vec![(entry, Ending::Dropped)]))
    }

    /// FINISH, once everything has ended.
    pub(super) fn finish(&mut self) -> Option<Message> {
        let is_all = self.files.is_empty() && self.directories.is_empty() && self.anew.is_empty();
        let is_first = is_all && !self.is_stopped && !self.is_finish_said;
        is_first.then(|| {
            self.is_finish_said = true;
            Message::Finish { is_complete: true }
        })
    }

    /// The sink said something, which must be true.
    pub(super) fn on_message(&mut self, message: Message, books: &Books) {
        match message {
            Message::Grant(lot) => {
                self.frames_granted += lot.frames;
                for (ost, count) in lot.osts {
                    if self.granted.len() <= ost.index() {
                        self.granted.resize(ost.index() + 1, 0);
                    }
                    self.granted[ost.index()] += count;
                }
            }
            Message::FileId(answers) => {
                for (entry, answer) in answers {
                    self.on_answer(entry, answer);
                }
            }
            Message::BlockDone(ranges) => {
                for range in ranges {
                    self.on_block_done(&range, books);
                }
            }
            Message::BlockBad(ranges) => {
                for range in ranges {
                    self.send_again(range.entry, range.offset, range.length);
                }
            }
            Message::FileDone(endings) => {
                for (entry, ending) in endings {
                    let is_true = match ending {
                        Ending::Complete => {
                            books.complete.contains(&entry) && !books.compared.contains(&entry)
                        }
                        Ending::Same => {
                            books.complete.contains(&entry) && !books.different.contains(&entry)
                        }
                        Ending::Different => books.different.contains(&entry),
                        _ => true,
                    };
                    assert!(is_true, "{entry} has not ended so: {ending:?}");
                    self.on_ended(entry, &ending);
                }
            }
            Message::PlaceAgain(entries) => {
                for entry in entries {
                    self.on_place_again(entry);
                }
            }
            Message::Stop(_) => self.is_stopped = true,
            Message::AreThere(question) => {
                assert!(!question.names.is_empty(), "it asks for nothing");
            }
            Message::Finished(_) | Message::StreamEnd { .. } | Message::Removed(_) => {}
            other => panic!("no sink says {other:?}"),
        }
    }

    /// Nothing more is said of an entry, unless the sink asked for it to be announced anew.
    fn on_ended(&mut self, entry: EntryId, ending: &Ending) {
        self.directories.remove(&entry);
        let Some(file) = self.files.remove(&entry) else { return };
        if *ending == Ending::Dropped {
            self.dropped.push(entry);
            self.anew.extend(file.is_replaced.then_some(file.size));
        }
        if *ending == Ending::Different {
            self.anew.push(file.size);
        }
    }

    fn on_place_again(&mut self, entry: EntryId) {
        let Some(file) = self.files.get_mut(&entry).filter(|file| !file.is_placed_again) else {
            return;
        };
        file.is_placed_again = true;
        if matches!(file.state, State::Moving(_)) && !file.is_unsized {
            (file.state, file.is_replaced) = (State::Ending, true);
            self.to_drop.push(entry);
        }
    }

    fn on_answer(&mut self, entry: EntryId, answer: Answer) {
        if let Some(directory) = self.directories.get_mut(&entry) {
            *directory = Directory::Answered;
            return;
        }
        let Some(file) = self.files.get_mut(&entry) else { return };
        match answer {
            Answer::Begun { .. } => panic!("no file is in so many pieces"),
            Answer::Want { done, layout } => {
                assert!(layout.is_aligned(ALIGNMENT_BYTES), "{layout:?}");
                file.state = State::Moving(Moving { layout, sent: done.clone(), done });
            }
            Answer::Compare { layout } => {
                let (sent, done) = (RangeSet::new(), RangeSet::new());
                file.is_compared = true;
                file.state = State::Moving(Moving { layout, sent, done });
            }
            _ => {
                self.files.remove(&entry);
            }
        }
    }

    fn on_block_done(&mut self, range: &BlockRange, books: &Books) {
        // Of a file that it gave up, the source does not know any more what was there before.
        if matches!(self.files.get(&range.entry), Some(File { state: State::Ending, .. })) {
            return;
        }
        let bytes = range.offset..range.offset + range.length;
        let durable = books.durable.get(&range.entry);
        let is_durable = durable.is_some_and(|durable| durable.contains(bytes.clone()));
        // Of an unsized file nothing could go on: it is told what is written.
        let is_unsized = is_unsized(range.entry);
        let is_written =
            books.written.get(&range.entry).is_some_and(|written| written.contains(bytes.clone()));
        let is_true =
            is_durable || self.is_all_written(range.entry, books) || is_unsized && is_written;
        assert!(is_true, "{range:?} is not durable, nor is all of its file written");
        if let Some(File { state: State::Moving(moving), .. }) = self.files.get_mut(&range.entry) {
            moving.done.insert(bytes);
        }
    }

    /// Whether all of a file is written, or was there.
    fn is_all_written(&self, entry: EntryId, books: &Books) -> bool {
        let (Some(file), Some(written)) = (self.files.get(&entry), books.written.get(&entry))
        else {
            return false;
        };
        let mut written = written.clone();
        if let State::Moving(moving) | State::Vouched(moving) = &file.state {
            for range in moving.done.iter() {
                written.insert(range);
            }
        }
        written.contains(0..file.size)
    }
}

impl Moving {
    /// The next block that is to be sent, no longer than this, and where it goes. It is whole
    /// pages, or ends with its file.
    fn next(&self, size: u64, bytes_max: u64) -> Option<(OstId, std::ops::Range<u64>)> {
        let mut start = 0;
        let mut end = size;
        for sent in self.sent.iter() {
            if sent.start > start {
                end = sent.start;
                break;
            }
            start = sent.end;
        }
        let mut end = end.min(size).min(self.layout.stripe_end(start)).min(start + bytes_max);
        if end < size {
            end -= end % ALIGNMENT_BYTES;
        }
        (start < end).then(|| (self.layout.ost_at(start), start..end))
    }
}

fn file(choices: &mut Choices<'_>) -> Kind {
    let rest = u64::from(choices.below(2));
    let size = u64::from(choices.below(PAGES_MAX)) * ALIGNMENT_BYTES + rest;
    file_of(size, OstId(choices.below(3)), 1 + choices.below(2))
}

fn file_of(size: u64, source_ost: OstId, stripe_count: u32) -> Kind {
    let identity = Identity { size, ..Identity::default() };
    let striping = Striping { size: 0, count: stripe_count };
    Kind::File { identity, data_bytes: size, striping, source_ost, is_different: false }
}
