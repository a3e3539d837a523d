//! What the sink says of an entry that was announced (FILE_ID), and what follows from it.

use super::{Outcome, Phase, Place, ProtocolError, Source};
use crate::gate::{impossible, is_aligned};
use crate::layout::Layout;
use crate::limits::RANGES_MAX;
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
        let Some(open) = self.open.get_mut(&entry) else {
            return self.check_was_announced(entry);
        };
        if open.phase != Phase::Announced {
            return Err(ProtocolError::OutOfPlace("FILE_ID"));
        }
        let outcome = match answer {
            Answer::Want { done, layout } => return self.on_wanted(entry, &done, layout),
            Answer::Begun { done } => return self.on_begun(entry, &done),
            Answer::Compare { layout } => return self.on_compare(entry, layout),
            Answer::Have => {
                self.counters.files_skipped += 1;
                self.counters.bytes_skipped += open.data_bytes;
                self.counters.bytes_done += open.data_bytes;
                if open.size > 0 {
                    self.counters.files_unread += 1;
                    self.counters.bytes_unread += open.data_bytes;
                }
                Outcome::Done(Verb::Skip, open.data_bytes)
            }
            Answer::Passed(pass) if self.config.may_pass => {
                self.counters.passed.add(pass);
                self.counters.bytes_found -= open.data_bytes;
                Outcome::Passed
            }
            Answer::Made if open.verb != Verb::Send => {
                self.counters.files_moved += 1;
                Outcome::Done(open.verb, 0)
            }
            Answer::Would if self.config.is_dry_run => Outcome::Done(open.verb, open.data_bytes),
            Answer::Made | Answer::Would | Answer::Passed(_) => {
                return Err(ProtocolError::OutOfPlace("FILE_ID for what is to be moved"));
            }
            Answer::Failed(failure) => Outcome::Failed(failure),
        };
        self.end_open(entry, outcome);
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
                return Err(ProtocolError::OutOfPlace("FILE_ID that passes a directory over"));
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
        let open = self.open.get_mut(&entry).expect("looked up by the caller");
        let size = open.size;
        let is_piece = |range: &Range<u64>| {
            range.end <= size
                && is_aligned(range.start)
                && (is_aligned(range.end) || range.end == size)
        };
        if let Some(range) = done.iter().find(|range| !is_piece(range)) {
            let length = range.end - range.start;
            return Err(impossible(&BlockRange { entry, offset: range.start, length }));
        }
        let ranges_before = open.confirmed.range_count();
        for range in done.iter() {
            open.confirmed.insert(range);
        }
        self.range_count = self.range_count + open.confirmed.range_count() - ranges_before;
        self.check_range_count()
    }

    pub(super) fn check_range_count(&self) -> Result<(), ProtocolError> {
        let is_bounded = self.range_count <= RANGES_MAX;
        if is_bounded { Ok(()) } else { Err(ProtocolError::TooMuch("separate pieces of files")) }
    }

    fn on_wanted(
        &mut self,
        entry: EntryId,
        done: &RangeSet,
        sink: Layout,
    ) -> Result<(), ProtocolError> {
        self.on_begun(entry, done)?;
        let open = self.open.get_mut(&entry).expect("looked up by the caller");
        let done = open.confirmed.clone();
        let Some(Place { layout: source, mirrors, data, disk_offset }) = open.place.take() else {
            return Err(ProtocolError::OutOfPlace("FILE_ID that wants a link"));
        };
        open.phase = Phase::Moving;
        let plan = Plan {
            size: open.size,
            source,
            mirrors,
            sink,
            block_size: self.config.block_size,
            data,
            done: done.clone(),
            taken: RangeSet::new(),
            disk_offset,
            is_begun: false,
            is_comparison: false,
        };
        // Count as done only what the file still has: what is data here, and was done there.
        let skipped = match &plan.data {
            Some(data) => data.iter().map(|range| done.byte_count_in(range)).sum(),
            None => done.byte_count(),
        };
        (open.done_bytes, open.skipped_bytes) = (skipped, skipped);
        self.counters.bytes_done += skipped;
        self.counters.bytes_skipped += skipped;
        self.schedule.add(entry, plan);
        self.check_if_complete(entry);
        Ok(())
    }
}
