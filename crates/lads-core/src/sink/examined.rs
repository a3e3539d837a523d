//! What was found under the names of announced entries, and what follows.

use super::Sink;
use super::blocks::{Blocks, Purpose};
use super::event::Examined;
use super::file::Step;
use crate::ahead::Placed;
use crate::growth::Extent;
use crate::journal::BlockRecord;
use crate::layout::Layout;
use crate::message::Answer;
use crate::range::RangeSet;
use crate::units::EntryId;

impl Sink {
    /// An I/O thread has looked at an entry.
    pub(super) fn on_examined(&mut self, entry: EntryId, examined: Examined) {
        match examined {
            Examined::Want { done, layout, extents } => {
                self.on_wanted(entry, done, layout.in_pages(), extents);
            }
            Examined::Compare { layout } => self.on_to_compare(entry, layout.in_pages()),
            Examined::Answer(answer) => self.on_answered(entry, answer),
        }
    }

    /// A file is to be sent, except for what an earlier attempt left.
    fn on_wanted(
        &mut self,
        entry: EntryId,
        mut done: Vec<BlockRecord>,
        layout: Layout,
        extents: Vec<Extent>,
    ) {
        let Some(file) = self.files.get(entry) else { return };
        let Some((data_bytes, placed)) = file.examined() else { return };
        let (size, placed_size) = (file.size(), file.placed_size());
        // Blocks that no attempt of this program can have left count as missing.
        done.retain(|block| file.is_block(block.offset, u64::from(block.length)));
        let ranges: RangeSet =
            done.iter().map(|b| b.offset..b.offset + u64::from(b.length)).collect();
        let placed = self.decide(placed, &layout, ranges.byte_count());
        self.placing.book(entry, &layout, placed_size, ranges.iter());
        let mut blocks = Blocks::new(Purpose::Write, data_bytes, layout.clone())
            .placed(placed)
            .growing(self.growing.begin(size, extents))
            .with_done(ranges.clone());
        if self.verifies_media {
            blocks = blocks.with_records(&done);
        }
        if size == 0 {
            self.files.step(entry, Step::Wanted(blocks.empty()));
            self.commit_if_complete(entry);
            return;
        }
        self.files.step(entry, Step::Wanted(blocks));
        self.outbox.answer_in_parts(entry, ranges, layout);
    }

    /// Asks the source for the checksums of a file that is there.
    fn on_to_compare(&mut self, entry: EntryId, layout: Layout) {
        let Some(file) = self.files.get(entry) else { return };
        let Some((_, placed)) = file.examined() else { return };
        // Where one end has a hole, the other may have bytes.
        let data_bytes = file.size();
        let placed = self.decide(placed, &layout, 0);
        let blocks = Blocks::new(Purpose::Compare, data_bytes, layout.clone()).placed(placed);
        self.files.step(entry, Step::Wanted(blocks));
        self.outbox.answer(entry, Answer::Compare { layout });
    }

    /// The place of a file is known, and how many of its bytes need not come.
    fn decide(
        &mut self,
        placed: Option<Placed>,
        layout: &Layout,
        done_bytes: u64,
    ) -> Option<Placed> {
        let mut placed = placed?;
        self.ahead.on_decided(&mut placed, layout.ost_at(0));
        self.ahead.on_given_up(&mut placed, done_bytes);
        Some(placed)
    }

    /// The answer for an entry that needs no data. A directory ends later.
    fn on_answered(&mut self, entry: EntryId, answer: Answer) {
        if matches!(answer, Answer::Failed(_)) {
            self.removal.on_failed();
        }
        self.end(entry, Step::Answered);
        if !self.files.is_directory(entry) {
            self.files.on_ended(entry);
        }
        self.outbox.answer(entry, answer);
    }
}
