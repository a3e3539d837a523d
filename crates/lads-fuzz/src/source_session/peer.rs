//! The sink that a source talks with, as far as it is honest: what it answers, grants and has
//! written.

use crate::choices::Choices;
use crate::nonsense::{self, Topic};
use lads_core::entry::{Entry, Kind};
use lads_core::frame::Row;
use lads_core::issue::Side;
use lads_core::layout::Layout;
use lads_core::limits::{ALIGNMENT_BYTES, RESENDS_MAX};
use lads_core::message::{Answer, BlockRange, Counters, Ending, Message};
use lads_core::range::RangeSet;
use lads_core::room::Lot;
use lads_core::schedule::Work;
use lads_core::source::SourceConfig;
use lads_core::units::{EntryId, OstId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// OSTs of the sink.
pub(super) const OST_COUNT: u32 = 3;

/// Grants that one OST has at most.
const GRANTS_MAX: u32 = 4;

/// An honest sink.
#[derive(Debug, Default)]
pub(super) struct Peer {
    entry_last: u64,
    unanswered: VecDeque<Entry>,
    /// Files that are wanted, and where each will lie.
    wanted: BTreeMap<EntryId, Layout>,
    /// Of these, files of which only checksums are asked for.
    compared: BTreeSet<EntryId>,
    /// How often blocks of each file were asked for again.
    resends: BTreeMap<EntryId, u32>,
    /// Entries of which the end is to be told, and how they end.
    to_end: Vec<(EntryId, Ending)>,
    is_finish_said: bool,
    is_stop_said: bool,
}

impl Peer {
    /// What there is to talk nonsense about.
    pub(super) fn topic(&self, config: &SourceConfig) -> Topic {
        let block_bytes = config.block_size;
        Topic { entry_last: self.entry_last, ost_count: OST_COUNT, block_bytes }
    }

    /// Whether a frame goes where its files lie.
    pub(super) fn check(&self, work: &Work) {
        for block in &work.blocks {
            let Some(layout) = self.wanted.get(&block.entry) else { continue };
            let is_comparison = self.compared.contains(&block.entry);
            assert_eq!(work.is_comparison, is_comparison, "{work:?}");
            assert_eq!(layout.ost_at(block.offset), work.sink_ost, "{work:?}");
            assert!(block.end() <= layout.stripe_end(block.offset), "{work:?}");
        }
    }

    /// What becomes of the entry that was announced first.
    pub(super) fn answer(&mut self, choices: &mut Choices<'_>) -> Option<Message> {
        let entry = self.unanswered.pop_front()?;
        let id = entry.id;
        let answer = match &entry.kind {
            _ if choices.is_one_in(12) => Answer::Failed(nonsense::failure(choices, Side::Sink)),
            _ if choices.is_one_in(12) => Answer::Have,
            Kind::File { .. } if entry.size() == 0 => {
                return Some(Message::FileDone(vec![(id, Ending::Complete)]));
            }
            Kind::File { is_different: false, .. } if is_for_comparison(id) => {
                let layout = layout(choices);
                self.wanted.insert(id, layout.clone());
                self.compared.insert(id);
                Answer::Compare { layout }
            }
            Kind::File { .. } => {
                let layout = layout(choices);
                self.wanted.insert(id, layout.clone());
                Answer::Want { done: done(entry.size(), choices), layout }
            }
            _ => Answer::Made,
        };
        Some(Message::FileId(vec![(id, answer)]))
    }

    /// Room for some frames of one OST.
    pub(super) fn grant(
        &mut self,
        choices: &mut Choices<'_>,
        room: &mut BTreeMap<OstId, u32>,
    ) -> Option<Message> {
        grant(OstId(choices.below(OST_COUNT)), 1 + choices.below(GRANTS_MAX), room)
            .map(|grant| Message::Grant(Lot::of(vec![grant])))
    }

    /// Room for as many frames as there may be.
    pub(super) fn grant_all(&mut self, room: &mut BTreeMap<OstId, u32>) -> Option<Message> {
        let grants = (0..OST_COUNT).filter_map(|ost| grant(OstId(ost), GRANTS_MAX, room));
        let grants: Vec<(OstId, u32)> = grants.collect();
        (!grants.is_empty()).then_some(Message::Grant(Lot::of(grants)))
    }

    /// A frame has come, and is written and put on record, or some of it was damaged.
    pub(super) fn take_in(
        &mut self,
        (ost, rows): (OstId, Vec<Row>),
        choices: &mut Choices<'_>,
    ) -> Option<Message> {
        match choices.below(4) {
            0 if self.count_resends(&rows) => {
                Some(Message::BlockBad(rows.iter().map(range_of).collect()))
            }
            0 | 1 => {
                let failure = nonsense::failure(choices, Side::Sink);
                // Nothing more is said of this frame: every file in it has to end.
                let failed: Vec<_> = (rows.iter())
                    .map(|row| row.block.entry)
                    .filter(|entry| self.wanted.remove(entry).is_some())
                    .map(|entry| (entry, Ending::Failed(failure)))
                    .collect();
                (!failed.is_empty()).then_some(Message::FileDone(failed))
            }
            _ => self.take_in_well((ost, rows)),
        }
    }

    /// Counts these blocks as asked for again. Whether that may still be done, for all their files.
    fn count_resends(&mut self, rows: &[Row]) -> bool {
        for row in rows {
            *self.resends.entry(row.block.entry).or_default() += 1;
        }
        rows.iter().all(|row| self.resends[&row.block.entry] <= RESENDS_MAX)
    }

    /// The same, and all is well.
    pub(super) fn take_in_well(&mut self, (_, rows): (OstId, Vec<Row>)) -> Option<Message> {
        let mut done = Vec::new();
        for row in &rows {
            let entry = row.block.entry;
            if !self.wanted.contains_key(&entry) {
                continue;
            }
            let is_compared = self.compared.contains(&entry);
            let is_ending = self.to_end.iter().any(|(ending, _)| *ending == entry);
            if is_compared && is_ending {
                continue;
            }
            match row.is_whole {
                _ if is_compared && is_different(entry) => {
                    self.wanted.remove(&entry);
                    self.to_end.push((entry, Ending::Different));
                }
                true if is_compared => self.to_end.push((entry, Ending::Same)),
                true => self.to_end.push((entry, Ending::Complete)),
                false => done.push(range_of(row)),
            }
        }
        (!done.is_empty()).then_some(Message::BlockDone(done))
    }

    /// Tells how one entry ended that has.
    pub(super) fn end_one(&mut self, choices: &mut Choices<'_>) -> Option<Message> {
        let place = choices.place_in(self.to_end.len())?;
        let (entry, ending) = self.to_end.remove(place);
        self.wanted.remove(&entry);
        Some(Message::FileDone(vec![(entry, ending)]))
    }

    /// A file would be better off elsewhere.
    pub(super) fn place_again(&mut self, choices: &mut Choices<'_>) -> Option<Message> {
        let place = choices.place_in(self.wanted.len())?;
        let entry = *self.wanted.keys().nth(place)?;
        Some(Message::PlaceAgain(vec![entry]))
    }

    /// FINISHED, if there is nothing more to come.
    pub(super) fn finished(&mut self, is_honest: bool) -> Option<Message> {
        let is_time = self.is_finish_said || self.is_stop_said || !is_honest;
        is_time.then(|| Message::Finished(Counters::default()))
    }

    /// The source said something, which must be true.
    pub(super) fn on_message(&mut self, message: Message, unchanged: &BTreeSet<EntryId>) {
        match message {
            Message::NewFile(entries) => {
                for entry in entries {
                    self.entry_last = self.entry_last.max(entry.id.0);
                    self.unanswered.push_back(entry);
                }
            }
            Message::FileDone(endings) => {
                for (entry, ending) in endings {
                    let is_file = self.wanted.contains_key(&entry);
                    let is_true = ending == Ending::Dropped || unchanged.contains(&entry);
                    assert!(is_true || !is_file, "{entry} was not looked at");
                    self.on_ending(entry, ending);
                }
            }
            Message::Finish { .. } => self.is_finish_said = true,
            Message::Stop(_) => self.is_stop_said = true,
            Message::Staged(_) | Message::There { .. } => {}
            other => panic!("no source says {other:?}"),
        }
    }

    /// What the source vouches for gets its name; what it drops is dropped. If all of a file has
    /// come as one block, it may have its name already.
    fn on_ending(&mut self, entry: EntryId, ending: Ending) {
        match self.to_end.iter_mut().find(|(other, _)| *other == entry) {
            Some(_) if ending == Ending::Dropped => {
                self.to_end.retain(|(other, _)| *other != entry);
                self.to_end.push((entry, ending));
            }
            Some(_) => {}
            // It has ended meanwhile.
            None if self.compared.contains(&entry) && !self.wanted.contains_key(&entry) => {}
            None if ending == Ending::Complete && self.compared.contains(&entry) => {
                self.to_end.push((entry, Ending::Same));
            }
            None if ending == Ending::Incomplete => self.to_end.push((entry, Ending::Complete)),
            None => self.to_end.push((entry, ending)),
        }
    }
}

/// Whether a file is there already at the sink, in the same size; no choice, so that inputs that
/// were found before there were comparisons mean what they did.
fn is_for_comparison(entry: EntryId) -> bool {
    entry.0 % 7 == 5
}

/// Whether it is there with other bytes.
fn is_different(entry: EntryId) -> bool {
    entry.0.is_multiple_of(2)
}

fn grant(ost: OstId, most: u32, room: &mut BTreeMap<OstId, u32>) -> Option<(OstId, u32)> {
    let room = room.entry(ost).or_default();
    let count = GRANTS_MAX.saturating_sub(*room).min(most);
    *room += count;
    (count > 0).then_some((ost, count))
}

fn range_of(row: &Row) -> BlockRange {
    let block = row.block;
    BlockRange { entry: block.entry, offset: block.offset, length: block.length.into() }
}

/// What is there from an earlier attempt.
fn done(size: u64, choices: &mut Choices<'_>) -> RangeSet {
    let mut done = RangeSet::new();
    if choices.is_one_in(4) {
        let start = u64::from(choices.below(8)) * ALIGNMENT_BYTES;
        done.insert(start.min(size)..(start + ALIGNMENT_BYTES).min(size));
    }
    done
}

fn layout(choices: &mut Choices<'_>) -> Layout {
    let (first, count) = (choices.below(OST_COUNT), 1 + choices.below(OST_COUNT));
    let osts = (0..count).map(|stripe| OstId((first + stripe) % OST_COUNT)).collect();
    Layout::striped(ALIGNMENT_BYTES << choices.below(3), osts).expect("it has a size and OSTs")
}
