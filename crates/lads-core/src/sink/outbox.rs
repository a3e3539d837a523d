//! What waits to be said to the source, and how much of it goes into one message.

use crate::journal::BlockRecord;
use crate::layout::Layout;
use crate::limits::RANGES_PER_MESSAGE;
use crate::message::{Answer, BlockRange, Ending, Message};
use crate::range::RangeSet;
use crate::tuning::Tuning;
use crate::units::EntryId;
use std::collections::VecDeque;

/// What is to be said, each kind in its order. Answers go before what becomes of their files.
#[derive(Debug)]
pub(super) struct Outbox {
    tuning: Tuning,
    answers: VecDeque<(EntryId, Answer)>,
    block_dones: VecDeque<BlockRange>,
    endings: VecDeque<(EntryId, Ending)>,
    messages: VecDeque<Message>,
}

impl Outbox {
    /// Nothing is to be said yet.
    pub(super) fn new(tuning: Tuning) -> Self {
        Self {
            tuning,
            answers: VecDeque::new(),
            block_dones: VecDeque::new(),
            endings: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    /// What there is under an entry's name, or whether it is wanted.
    pub(super) fn answer(&mut self, entry: EntryId, answer: Answer) {
        self.answers.push_back((entry, answer));
    }

    /// A file is wanted, and this of it is there; in several answers if that is long.
    pub(super) fn answer_in_parts(&mut self, entry: EntryId, mut done: RangeSet, layout: Layout) {
        while done.range_count() > RANGES_PER_MESSAGE {
            let part = done.split_first(RANGES_PER_MESSAGE);
            self.answers.push_back((entry, Answer::Begun { done: part }));
        }
        self.answers.push_back((entry, Answer::Want { done, layout }));
    }

    /// These blocks are recorded, or need not be.
    pub(super) fn tell_done(&mut self, entry: EntryId, blocks: &[BlockRecord]) {
        self.block_dones.extend(blocks.iter().map(|block| range_of(entry, block)));
    }

    /// Nothing will be left of a file: what was to be said of its blocks is no longer true.
    pub(super) fn take_back(&mut self, entry: EntryId) {
        self.block_dones.retain(|range| range.entry != entry);
    }

    /// A file failed, and only what is recorded is left of it: what was to be said of its other
    /// blocks is no longer true.
    pub(super) fn take_back_all_but(&mut self, entry: EntryId, on_record: &RangeSet) {
        let is_on_record =
            |done: &BlockRange| on_record.contains(done.offset..done.offset + done.length);
        self.block_dones.retain(|done| done.entry != entry || is_on_record(done));
    }

    /// These blocks of a file are wanted once more: it is no longer true that they are done.
    pub(super) fn ask_again(&mut self, ranges: Vec<BlockRange>) {
        self.block_dones.retain(|done| !ranges.contains(done));
        self.messages.push_back(Message::BlockBad(ranges));
    }

    /// How an entry ended.
    pub(super) fn tell_ending(&mut self, entry: EntryId, ending: Ending) {
        self.endings.push_back((entry, ending));
    }

    /// Anything else, after all that was told before.
    pub(super) fn tell(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// Whether nothing waits to be said.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
            && self.block_dones.is_empty()
            && self.endings.is_empty()
            && self.messages.is_empty()
    }

    /// What is said next.
    pub(super) fn next(&mut self) -> Option<Message> {
        if !self.answers.is_empty() {
            return Some(Message::FileId(take_answers(&mut self.answers, &self.tuning)));
        }
        if !self.block_dones.is_empty() {
            return Some(Message::BlockDone(take_rows(&mut self.block_dones, &self.tuning)));
        }
        if !self.endings.is_empty() {
            return Some(Message::FileDone(take_rows(&mut self.endings, &self.tuning)));
        }
        self.messages.pop_front()
    }
}

/// Where a block lies in its file.
pub(super) fn range_of(entry: EntryId, block: &BlockRecord) -> BlockRange {
    BlockRange { entry, offset: block.offset, length: u64::from(block.length) }
}

/// As many answers as fit well into a message.
fn take_answers(
    answers: &mut VecDeque<(EntryId, Answer)>,
    tuning: &Tuning,
) -> Vec<(EntryId, Answer)> {
    let mut taken = Vec::new();
    let mut bytes = 0;
    while taken.len() < tuning.rows_per_message
        && bytes < tuning.answers_bytes
        && let Some((entry, answer)) = answers.pop_front()
    {
        bytes += bytes_of(&answer);
        taken.push((entry, answer));
    }
    taken
}

/// What an answer takes in a message, about: it is mostly ranges and OSTs.
fn bytes_of(answer: &Answer) -> usize {
    const RANGE_BYTES: usize = 10;
    match answer {
        Answer::Want { done, layout } => done.range_count() * RANGE_BYTES + layout_bytes(layout),
        Answer::Compare { layout } => layout_bytes(layout),
        Answer::Begun { done } => done.range_count() * RANGE_BYTES,
        Answer::Have | Answer::Made | Answer::Would | Answer::Failed(_) | Answer::Passed(_) => 0,
    }
}

/// What a layout takes in a message, about.
fn layout_bytes(layout: &Layout) -> usize {
    const OST_BYTES: usize = 3;
    let object_count = layout.objects().map_or(0, |objects| objects.places().len());
    object_count.max(layout.position_count()) * OST_BYTES
}

fn take_rows<T>(rows: &mut VecDeque<T>, tuning: &Tuning) -> Vec<T> {
    let count = rows.len().min(tuning.rows_per_message);
    rows.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::OstId;

    #[test]
    fn a_block_that_is_asked_for_again_is_not_said_to_be_done() {
        let mut outbox = Outbox::new(Tuning::DEFAULT);
        let block = |offset| BlockRecord { offset, length: 100, checksum: 0 };
        let range = |offset| range_of(EntryId(1), &block(offset));
        outbox.tell_done(EntryId(1), &[block(0), block(100)]);
        outbox.ask_again(vec![range(100)]);
        assert_eq!(outbox.next(), Some(Message::BlockDone(vec![range(0)])));
        assert_eq!(outbox.next(), Some(Message::BlockBad(vec![range(100)])));
        assert_eq!(outbox.next(), None);
    }

    #[test]
    fn a_message_has_fewer_answers_if_their_layouts_are_long() {
        let osts = (0..100).map(OstId).collect();
        let layout = Layout::striped(1 << 20, osts).expect("it is sound");
        let tuning = Tuning { answers_bytes: 300, ..Tuning::DEFAULT };
        let count = |layout: &Layout| {
            let mut outbox = Outbox::new(tuning);
            let answer = || Answer::Compare { layout: layout.clone() };
            (0..9).for_each(|entry| outbox.answer(EntryId(entry), answer()));
            match outbox.next() {
                Some(Message::FileId(answers)) => answers.len(),
                message => panic!("{message:?} instead of answers"),
            }
        };
        assert_eq!((count(&layout), count(&Layout::on(OstId(0)))), (1, 9));
    }
}
