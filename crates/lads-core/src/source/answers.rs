//! What the sink answers for an announced entry (FILE_ID), and what follows from it.
//!
//! If the sink has a file of the same size already, it may want its blocks only compared. Then the
//! source reads them and computes their checksums as if to send them, from the same queues. Only
//! the checksums go to the sink, which compares them with its own.

use super::blocks::{Blocks, Purpose};
use super::event::Outcome;
use super::file::{File, Known, Place, Step};
use super::{ProtocolError, Source};
use crate::gate::{impossible, is_aligned};
use crate::layout::Layout;
use crate::message::{Answer, BlockRange, Verb};
use crate::plan::Plan;
use crate::range::RangeSet;
use crate::units::EntryId;
use std::ops::Range;

impl Source {
    pub(super) fn on_answer(
        &mut self,
        entry: EntryId,
        answer: Answer,
    ) -> Result<(), ProtocolError> {
        if self.directories.is_open(entry) {
            return self.on_directory_answer(entry, &answer);
        }
        let Some(file) = self.files.get(entry) else {
            return self.files.check_was_announced(entry);
        };
        if !file.is_announced() {
            return Err(ProtocolError::OutOfPlace("FILE_ID"));
        }
        let (verb, bytes) = (file.verb(), file.data_bytes());
        let outcome = match answer {
            Answer::Have | Answer::Compare { .. } | Answer::Begun { .. } if file.is_unsized() => {
                return Err(ProtocolError::OutOfPlace("FILE_ID with blocks of an unsized file"));
            }
            Answer::Want { ref done, .. } if file.is_unsized() && !done.is_empty() => {
                return Err(ProtocolError::OutOfPlace("FILE_ID with blocks of an unsized file"));
            }
            Answer::Want { done, layout } => return self.on_wanted(entry, &done, layout),
            Answer::Begun { done } => return self.on_begun(entry, &done),
            Answer::Compare { layout } => return self.on_compare(entry, layout),
            Answer::Have => {
                self.counters.files_skipped += 1;
                self.counters.bytes_skipped += bytes;
                self.counters.bytes_done += bytes;
                if file.size() > 0 {
                    self.counters.files_unread += 1;
                    self.counters.bytes_unread += bytes;
                }
                Outcome::Done(Verb::Skip, bytes)
            }
            Answer::Passed(pass) if self.config.may_pass => {
                self.counters.passed.add(pass);
                self.counters.bytes_found -= bytes;
                Outcome::Passed
            }
            Answer::Made if verb != Verb::Send => {
                self.counters.files_moved += 1;
                Outcome::Done(verb, 0)
            }
            Answer::Would if self.config.is_dry_run => Outcome::Done(verb, bytes),
            Answer::Made | Answer::Would | Answer::Passed(_) => {
                return Err(ProtocolError::OutOfPlace("FILE_ID for an entry to be moved"));
            }
            Answer::Failed(failure) => Outcome::Failed(failure),
        };
        self.end_file(entry, outcome);
        Ok(())
    }

    fn on_directory_answer(
        &mut self,
        entry: EntryId,
        answer: &Answer,
    ) -> Result<(), ProtocolError> {
        if !self.directories.may_be_answered(entry) {
            return Err(ProtocolError::OutOfPlace("FILE_ID for a directory"));
        }
        match answer {
            Answer::Made | Answer::Would => self.directories.on_new(entry),
            Answer::Have => {}
            Answer::Passed(_) if self.config.may_pass => {}
            Answer::Failed(failure) => self.directories.on_failed(entry, *failure),
            Answer::Passed(_) => {
                return Err(ProtocolError::OutOfPlace("FILE_ID that skips a directory"));
            }
            Answer::Want { .. } | Answer::Begun { .. } | Answer::Compare { .. } => {
                return Err(ProtocolError::OutOfPlace("FILE_ID that wants a directory"));
            }
        }
        self.directories.on_answered(entry);
        self.close_directory_if_done(entry);
        Ok(())
    }

    /// The sink has bytes of a file from an earlier attempt.
    fn on_begun(&mut self, entry: EntryId, done: &RangeSet) -> Result<(), ProtocolError> {
        let size = self.files.known(entry).size();
        let is_piece = |range: &Range<u64>| {
            range.end <= size
                && is_aligned(range.start)
                && (is_aligned(range.end) || range.end == size)
        };
        if let Some(range) = done.iter().find(|range| !is_piece(range)) {
            let length = range.end - range.start;
            return Err(impossible(&BlockRange { entry, offset: range.start, length }));
        }
        self.files.with(entry, |file| file.on_begun(done));
        self.files.check_range_count()
    }

    fn on_wanted(
        &mut self,
        entry: EntryId,
        done: &RangeSet,
        sink: Layout,
    ) -> Result<(), ProtocolError> {
        self.on_begun(entry, done)?;
        let done = self.files.known(entry).confirmed().cloned().unwrap_or_default();
        let Some(place) = self.files.with(entry, File::take_place).flatten() else {
            return Err(ProtocolError::OutOfPlace("FILE_ID that wants a link"));
        };
        // Only ranges that are data here and done at the sink count as done.
        let skipped_bytes = match &place.data {
            Some(data) => data.iter().map(|range| done.byte_count_in(range)).sum(),
            None => done.byte_count(),
        };
        self.counters.bytes_done += skipped_bytes;
        self.counters.bytes_skipped += skipped_bytes;
        let blocks = Blocks::new(Purpose::Send, done, skipped_bytes);
        self.start_moving(entry, place, sink, blocks);
        self.check_if_complete(entry);
        Ok(())
    }

    /// The sink has a file of the same size, with this layout, and wants it compared.
    fn on_compare(&mut self, entry: EntryId, sink: Layout) -> Result<(), ProtocolError> {
        let file = self.files.known(entry);
        let may_be_compared = self.config.is_comparing
            && file.known() == Known::Nothing
            && file.confirmed().is_none_or(RangeSet::is_empty)
            && file.size() > 0;
        let place = self.files.with(entry, File::take_place).flatten();
        let Some(place) = place.filter(|_| may_be_compared) else {
            return Err(ProtocolError::OutOfPlace("FILE_ID that asks for checksums"));
        };
        // Holes are compared, too: where one end has a hole, the other may have bytes.
        self.counters.bytes_found += self.files.with(entry, File::fill_holes).unwrap_or(0);
        let blocks = Blocks::new(Purpose::Compare, RangeSet::new(), 0);
        self.start_moving(entry, Place { data: None, ..place }, sink, blocks);
        Ok(())
    }

    /// Blocks of a file are wanted: from now on they wait for their OSTs.
    fn start_moving(&mut self, entry: EntryId, place: Place, sink: Layout, blocks: Blocks) {
        let Place { layout: source, mirrors, data, disk_offset } = place;
        let file = self.files.known(entry);
        let is_in_order = self.config.is_in_order || file.is_unsized();
        let (source, mirrors) = match is_in_order {
            // What is read in order needs one queue.
            true => (Layout::on(source.ost_at(0)), Vec::new()),
            false => (source, mirrors),
        };
        let plan = Plan {
            size: file.size(),
            source,
            mirrors,
            sink,
            block_size: self.config.block_size,
            data,
            done: blocks.confirmed().clone(),
            taken: RangeSet::new(),
            disk_offset,
            is_begun: false,
            is_in_order,
            is_comparison: blocks.purpose() == Purpose::Compare,
        };
        self.files.step(entry, Step::Wanted(blocks));
        self.schedule.add(entry, plan);
    }
}
