//! Files that the sink has already: their blocks are read and summed up as if they were to be sent,
//! in the same queues, but only the checksums go to the sink, which compares them with its own.

use super::{Comparison, Outcome, Phase, Place, ProtocolError, Source, Stop};
use crate::issue::Reason;
use crate::layout::Layout;
use crate::message::Verb;
use crate::plan::Plan;
use crate::range::RangeSet;
use crate::units::EntryId;

impl Source {
    /// The sink has a file of the same size, which lies there so.
    pub(super) fn on_compare(&mut self, entry: EntryId, sink: Layout) -> Result<(), ProtocolError> {
        let open = self.open.get_mut(&entry).expect("looked up by the caller");
        let may_be_compared = self.config.is_comparing
            && open.comparison == Comparison::None
            && open.confirmed.is_empty()
            && open.size > 0;
        let place = open.place.take().filter(|_| may_be_compared);
        let Some(Place { layout: source, mirrors, disk_offset, .. }) = place else {
            return Err(ProtocolError::OutOfPlace("FILE_ID that asks for checksums"));
        };
        open.phase = Phase::Moving;
        open.comparison = Comparison::Running;
        // Where one end has a hole, the other may have bytes.
        self.counters.bytes_found += open.size - open.data_bytes;
        open.data_bytes = open.size;
        let plan = Plan {
            size: open.size,
            source,
            mirrors,
            sink,
            block_size: self.config.block_size,
            data: None,
            done: RangeSet::new(),
            taken: RangeSet::new(),
            disk_offset,
            is_begun: false,
            is_comparison: true,
        };
        self.schedule.add(entry, plan);
        Ok(())
    }

    /// The sink has compared a file, or as much of it as it took to see that it is different.
    pub(super) fn on_compared(
        &mut self,
        entry: EntryId,
        is_same: bool,
    ) -> Result<(), ProtocolError> {
        let open = self.open.get_mut(&entry).expect("looked up by the caller");
        if open.comparison != Comparison::Running || open.phase == Phase::Replacing {
            return Err(ProtocolError::OutOfPlace("FILE_DONE of a comparison"));
        }
        let bytes = open.data_bytes;
        match (is_same, open.phase) {
            (true, Phase::Dropping(Some(_))) => {}
            (true, _) => {
                self.counters.files_skipped += 1;
                self.counters.bytes_skipped += bytes;
                self.counters.files_compared += 1;
                self.counters.bytes_compared += bytes;
                self.counters.bytes_done += bytes.saturating_sub(open.done_bytes);
                self.end_open(entry, Outcome::Done(Verb::Skip, bytes));
            }
            // The sink has dropped it before it heard that it should.
            (false, Phase::Dropping(Some(failure))) => {
                let is_tried_again =
                    failure.reason == Reason::Changed && open.attempt < self.config.retries_max;
                if is_tried_again && self.stop == Stop::No {
                    self.retry(entry, true);
                } else {
                    self.end_open(entry, Outcome::Failed(failure));
                }
            }
            _ if self.config.is_dry_run => {
                self.forget_blocks(entry);
                self.end_open(entry, Outcome::Done(Verb::Send, bytes));
            }
            _ if self.stop == Stop::No => {
                open.comparison = Comparison::Different;
                self.forget_blocks(entry);
                self.retry(entry, false);
            }
            // It is left to the next attempt.
            _ => {}
        }
        Ok(())
    }

    /// Blocks of a file that were handed out count no more, whether or not they arrive.
    fn forget_blocks(&mut self, entry: EntryId) {
        self.schedule.remove(entry);
        self.schedule.clear_stage();
        self.failed.insert(entry);
    }
}
