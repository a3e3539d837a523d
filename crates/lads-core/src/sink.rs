//! The sink's session: from entries announced to files durable under their own names.
//!
//! ```text
//!                     want it            a block arrived, its OST is free
//!   NEW_FILE ─► examine ─────► receiving ──────────────────────────────► write
//!                  │               ▲                                       │
//!      have it,    │               └───────────────────────────────────────┤ batch full, or late,
//!      made it     ▼               BLOCK_DONE                              │ or the file is whole
//!               FILE_ID            ▲                                       ▼
//!                                  └──── journal record ◄──── data durable (sync)
//!
//!   all bytes durable and FILE_DONE from the source ─► commit (metadata, fsync, rename, fsync of
//!   the directory) ─► FILE_DONE to the source
//! ```
//!
//! A file of a single block goes from its write straight to commit, without journal. The buffer of
//! a frame is free again, and is granted again, as soon as the frame is written. The states of a
//! file are in `sink/file.rs`.
//!
//! Each part keeps its own books and does not see those of other parts; [`Sink`] joins them:
//!
//! | part | knows |
//! |---|---|
//! | `files.rs`, `file.rs`, `blocks.rs` | what was announced, and what became of each file so far |
//! | `ahead.rs` of the crate, `again.rs` | which file is looked at next, which gets another place |
//! | `frames.rs`, `aside.rs` | frames that arrive and wait, room for them, buffers, the stage |
//! | `placing.rs` | where files go, and what is to be written on each OST |
//! | `growing.rs` | which frames of files that grow go elsewhere |
//! | `recording.rs` | blocks that are written and not on record |
//! | `committing.rs` | files that get their names or are dropped, directories that are closed |
//! | `removal.rs` | what is asked about names that the source may not have |
//! | `course.rs` | whether the transfer goes on |
//! | `outbox.rs` | what is to be said to the source |
//!
//! `examined.rs`, `written.rs`, `ending.rs` and `asking.rs` hold further functions of [`Sink`].
//! Like the functions in this file, they use only the interfaces of the parts.

mod again;
mod aside;
mod asking;
mod blocks;
mod committing;
mod config;
mod course;
mod ending;
mod event;
mod examined;
mod file;
mod files;
mod frames;
mod growing;
mod outbox;
mod placing;
mod recording;
mod removal;
mod written;

use crate::ahead::Ahead;
use crate::entry::Entry;
use crate::frame::{Header, Row};
pub use crate::gate::ProtocolError;
use crate::limits::RANGES_MAX;
use crate::message::{Counters, Ending, Message};
use crate::placement::{NewFile, Striping, Wish};
use crate::pool::Requests;
use crate::room::Lot;
use crate::schedule::{OstStats, earlier};
use crate::tuning::Tuning;
use crate::units::{EntryId, Instant, OstId};
use again::Again;
pub use aside::StageConfig;
use blocks::Blocks;
use committing::Committing;
pub use config::SinkConfig;
use course::{Course, End};
pub use event::{
    BufferId, Commit, Committed, Compared, Discard, Event, Examined, Place, SyncFile, Task, Write,
};
use file::{File, Step};
use files::Files;
use frames::{Drain, Frames};
use growing::{Growing, Outlook};
use outbox::Outbox;
use placing::Placing;
pub use placing::{Placement, PlacingConfig};
use recording::Recording;
use removal::Removal;
pub use removal::{Permission, RemovalConfig};

/// The sink's session.
#[derive(Debug)]
pub struct Sink {
    /// Bytes in each buffer.
    tuning: Tuning,
    buffer_bytes: u32,
    /// Whether files are read back from storage before they count as done.
    verifies_media: bool,
    /// How often a block that arrived damaged is asked for again.
    resends_max: u32,
    files: Files,
    ahead: Ahead,
    again: Again,
    placing: Placing,
    frames: Frames,
    growing: Growing,
    recording: Recording,
    committing: Committing,
    removal: Removal,
    course: Course,
    outbox: Outbox,
    counters: Counters,
}

impl Sink {
    /// A session that writes to these OSTs.
    ///
    /// # Panics
    /// If fewer buffers can be granted than there are OSTs.
    #[must_use]
    pub fn new(config: &SinkConfig) -> Self {
        Self {
            tuning: config.tuning,
            buffer_bytes: config.buffer_bytes,
            verifies_media: config.verifies_media,
            resends_max: config.resends_max,
            files: Files::default(),
            ahead: Ahead::new(&config.tuning, config.placed_bytes_min)
                .where_files_grow(config.growth.is_some()),
            again: Again::new(config.tuning),
            placing: Placing::new(&config.placing, &config.tuning, config.osts.len()),
            frames: Frames::new(config),
            growing: Growing::new(config),
            recording: Recording::new(config),
            committing: Committing::new(config.commits_max, &config.tuning),
            removal: Removal::new(config.removal),
            course: Course::new(),
            outbox: Outbox::new(config.tuning),
            counters: Counters::default(),
        }
    }

    /// Reports whether the source may say this now. A caller that keeps its own tables of what the
    /// source announces asks this first; [`Self::handle`] asks again.
    ///
    /// # Errors
    /// If it breaks the protocol; the session cannot go on.
    pub fn check(&self, message: &Message) -> Result<(), ProtocolError> {
        self.files.check(message)?;
        match message {
            Message::Finish { .. } if self.course.is_finish_asked() => {
                Err(ProtocolError::OutOfPlace("a second FINISH"))
            }
            Message::NewFile(_) if self.course.is_finish_asked() => {
                Err(ProtocolError::OutOfPlace("NEW_FILE after FINISH"))
            }
            Message::There { number, answers } => self.removal.check(*number, answers),
            _ => Ok(()),
        }
    }

    /// From now on at most `most` writes are in flight at a time, or fewer if these are better
    /// ([`crate::matching`]).
    pub fn match_requests(&mut self, most: u32) {
        self.frames.match_requests(most);
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// If the source broke the protocol; the session cannot go on.
    pub fn handle(&mut self, now: Instant, event: Event) -> Result<(), ProtocolError> {
        match event {
            Event::Message(message) => {
                self.check(&message)?;
                self.on_message(message);
            }
            Event::Osts(known) => self.placing.on_osts(&known),
            Event::RoundTrip(time) => {
                self.frames.on_round_trip(time, self.buffer_bytes, &self.tuning);
            }
            Event::Examined(results) => {
                for (entry, examined) in results {
                    self.on_examined(entry, examined);
                }
            }
            Event::Written { write, service, failures } => {
                self.on_written(now, &write, service, &failures);
            }
            Event::Compared { write, service, results } => {
                self.on_compared(now, &write, service, &results);
            }
            Event::Staged(write) => {
                let write = self.follow(write);
                self.counters.bytes_staged += self.frames.on_staged(write);
            }
            Event::NotStaged { write, slot } => {
                let write = self.follow(write);
                self.frames.on_not_staged(write, slot);
            }
            Event::NotDrained { write, service } => self.on_not_drained(now, &write, service),
            Event::Released(writes) => self.frames.on_released(&writes),
            Event::Synced(results) => self.on_synced(now, results),
            Event::Committed(results) => {
                self.committing.on_committed();
                for (entry, committed) in results {
                    self.on_committed(entry, committed);
                }
            }
            Event::Closed(results) => {
                for (entry, failure) in results {
                    self.on_closed(entry, failure);
                }
            }
            Event::Discarded(entries) => self.on_discarded(&entries),
            Event::RemovalOver => {
                self.removal.on_over();
                self.outbox.tell(Message::Removed(self.counters.entries_removed));
            }
            Event::Finished => {
                self.course.on_finished();
                self.placing.check_empty();
                self.outbox.tell(Message::Finished(self.counters.clone()));
            }
            Event::StreamEnded { stream, frames } => {
                self.outbox.tell(Message::StreamEnd { stream, frames });
            }
            Event::Stop => {
                // Said before FINISHED, so that the source does not take that for the end.
                self.outbox.tell(Message::Stop("the sink was stopped".to_owned()));
                self.on_stop();
            }
        }
        self.finish_stop_if_idle();
        Ok(())
    }

    /// Reports whether a frame that begins to arrive may be received.
    ///
    /// # Errors
    /// If the source broke the protocol: a block that cannot be, or no room was granted.
    pub fn admit(&mut self, header: &Header, rows: &[Row]) -> Result<(), ProtocolError> {
        if self.files.range_count() > RANGES_MAX {
            return Err(ProtocolError::TooMuch("separate pieces of files"));
        }
        for row in rows {
            let block = row.block;
            let Some(file) = self.files.get(block.entry) else {
                // Blocks of a file that has ended meanwhile are let in, and dropped.
                self.files.check_was_announced(block.entry)?;
                continue;
            };
            if !file.may_hold(row, header, self.buffer_bytes) {
                return Err(ProtocolError::ImpossibleBlock {
                    entry: block.entry,
                    offset: block.offset,
                    length: u64::from(block.length),
                });
            }
        }
        let is_granted = self.frames.on_arrival(header);
        if is_granted { Ok(()) } else { Err(ProtocolError::OverGrant) }
    }

    /// A frame that [`Self::admit`] let in has arrived. Each row comes with whether its block
    /// matches its checksum. Returns what the caller should write itself, at once; otherwise the
    /// frame is queued.
    pub fn on_frame(
        &mut self,
        now: Instant,
        buffer: BufferId,
        header: &Header,
        rows: &[(Row, bool)],
    ) -> Option<Write> {
        let ost = header.sink_ost;
        self.frames.on_arrived(ost);
        let mut good = Vec::with_capacity(rows.len());
        let mut place = 0;
        for (row, is_good) in rows {
            if !self.is_wanted(row, header) {
                // Its file ended while it arrived, or another file has got the number.
            } else if *is_good {
                self.on_block_come(now, row);
                good.push((*row, place));
            } else {
                self.on_damaged(row, ost);
            }
            place += row.block.length;
        }
        let (place, is_comparison) = (Place::Buffer(buffer), header.has_only_sums);
        let write = Write { place, ost, room: ost, extents: Vec::new(), rows: good, is_comparison };
        if write.rows.is_empty() {
            return Some(write);
        }
        let mut write = self.follow(write);
        if self.frames.start_at_once(now, &write) {
            self.grow(&mut write);
            return Some(write);
        }
        self.frames.push(write);
        None
    }

    /// A frame that [`Self::admit`] let in did not arrive whole.
    pub fn on_frame_lost(&mut self, ost: OstId) {
        self.frames.on_lost(ost);
        self.finish_stop_if_idle();
    }

    /// Nothing of a frame was left to be written; its buffer is free.
    pub fn on_empty_frame(&mut self, ost: OstId) {
        self.frames.on_empty(ost);
        self.finish_stop_if_idle();
    }

    /// What an I/O thread should do now, if anything.
    pub fn next_task(&mut self, now: Instant) -> Option<Task> {
        self.frames.on_time(now);
        if let Some(task) = self.frames.next_release().or_else(|| self.next_sync(now)) {
            return Some(task);
        }
        // The source waits for these answers before it announces more files.
        if let Some(task) = self.committing.next_discard() {
            return Some(task);
        }
        if self.course.goes_on()
            && let Some(task) = self.committing.next_commit().or_else(|| self.next_examine())
        {
            return Some(task);
        }
        if let Some(write) = self.next_write(now) {
            return Some(Task::Write(write));
        }
        if !self.course.goes_on() {
            return None;
        }
        if let Some(task) = self.frames.next_to_stage().or_else(|| self.committing.next_close()) {
            return Some(task);
        }
        if let Some(is_permitted) = self.removal.start(self.end_of_all()) {
            return Some(Task::Remove { is_permitted });
        }
        match self.end_of_all() {
            Some(_) if self.removal.is_over() => self.course.next_finish(),
            _ => None,
        }
    }

    /// How everything has ended, if it has and what follows has not begun. FINISH may come while
    /// directories are still being closed.
    fn end_of_all(&self) -> Option<End> {
        self.course.end().filter(|_| self.files.have_all_ended())
    }

    /// Returns when [`Self::next_task`] may have something to do even if nothing happens until
    /// then.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        earlier(self.recording.due_at(), self.frames.queues().next_timeout())
    }

    /// Reports whether [`Self::next_task`] may find something now. Tasks that only become due by
    /// time do not count.
    #[must_use]
    pub fn may_have_task(&self) -> bool {
        self.committing.has_commit()
            || self.recording.is_due()
            || self.frames.has_release()
            || self.ahead.has_next()
            || (self.frames.may_write() && (self.frames.has_ready() || self.may_steal()))
            || (self.course.goes_on() && self.frames.may_stage())
            || self.committing.has_discard()
            || self.committing.has_close()
            || (self.end_of_all().is_some() && !self.removal.is_running())
    }

    /// Reports whether [`Self::next_message`] has something.
    #[must_use]
    pub fn has_message(&self) -> bool {
        self.frames.has_grants() || !self.outbox.is_empty()
    }

    /// The next message for the source, if any.
    pub fn next_message(&mut self) -> Option<Message> {
        let lot = self.frames.take_grants();
        if lot != Lot::default() {
            return Some(Message::Grant(lot));
        }
        self.outbox.next()
    }

    /// Reports whether either end has asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        !self.course.goes_on()
    }

    /// Reports whether everything is done, and the last message has been sent or waits to be sent.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.course.is_over()
    }

    /// Reports whether the transfer came to its end and was not stopped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.course.is_finished()
    }

    /// The progress of the transfer.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns where a file that is wanted should go; `source` is how it is striped at the source.
    /// From now on the file is booked there, until it is known where it lies. Otherwise all files
    /// that are placed at the same moment would go to the same OST.
    pub fn place(&mut self, now: Instant, entry: EntryId, source: Striping) -> Placement {
        let nowhere = Placement { wish: Wish::Default, first_extent_bytes: None };
        let Some(file) = self.files.get(entry) else { return nowhere };
        let Some((data_bytes, _)) = file.examined() else { return nowhere };
        let (size, is_unsized) = (file.placed_size(), file.is_unsized());
        // A file that gets one stripe in any case does not need this.
        let is_short = size <= self.tuning.stripe_bytes_min && !self.growing.is_allowed();
        let (coming_bytes, transfer_bytes) = match is_short {
            true => (size, size),
            false => (self.ahead.coming_bytes(), self.ahead.transfer_bytes()),
        };
        let new_file = NewFile { size, coming_bytes, transfer_bytes, source };
        let wish = self.placing.choose(entry, &new_file, self.frames.queues().slowness(now));
        // Nothing is written to a hole, so an extent there would never get its place.
        let is_dense = data_bytes == size && !is_unsized;
        let is_on_one = matches!(&wish, Wish::On { osts, .. } if osts.len() == 1);
        let first_extent_bytes =
            self.extent_bytes().filter(|&bytes| is_on_one && is_dense && size > bytes);
        Placement { wish, first_extent_bytes }
    }

    /// The length in bytes of an extent that begins now; `None` if there should be none.
    fn extent_bytes(&self) -> Option<u64> {
        if !self.ahead.is_limited() {
            return None;
        }
        let left_bytes = self.ahead.transfer_bytes().saturating_sub(self.counters.bytes_done);
        self.growing.extent_bytes(left_bytes, self.frames.queues().ost_count())
    }

    /// What the latest writes were like; `None` before the first.
    #[must_use]
    pub fn requests(&self) -> Option<Requests> {
        self.frames.requests()
    }

    /// What each sink OST did.
    pub fn ost_stats(&self) -> impl Iterator<Item = &OstStats> {
        self.frames.stats()
    }

    /// The files whose new blocks are to be recorded now, if it is time.
    fn next_sync(&mut self, now: Instant) -> Option<Task> {
        let batch = self.recording.next(now)?;
        if batch.is_empty() {
            self.finish_stop_if_idle();
            return None;
        }
        Some(Task::Sync(batch))
    }

    fn next_write(&mut self, now: Instant) -> Option<Write> {
        if !self.frames.may_write() {
            return None;
        }
        let drain = if self.course.goes_on() { Drain::Allowed } else { Drain::Stopped };
        let outlook = self.outlook();
        let left_alone = match &outlook {
            Some(outlook) => self.growing.left_alone(&self.files, self.frames.queues(), outlook),
            None => Vec::new(),
        };
        if let Some(mut write) = self.frames.next(now, drain, &left_alone) {
            self.grow(&mut write);
            return Some(write);
        }
        self.growing.steal(&mut self.files, &mut self.frames, &outlook?, now)
    }

    /// What is left of the transfer, and how soon OSTs write it; `None` if no file can grow now.
    fn outlook(&self) -> Option<Outlook> {
        if !self.files.has_growing() || !self.course.goes_on() {
            return None;
        }
        let (queues, transfer_bytes) = (self.frames.queues(), self.ahead.transfer_bytes());
        Some(self.growing.outlook(queues, &self.placing, transfer_bytes))
    }

    /// Whether an OST that has nothing to do would take a block that waits for another OST.
    fn may_steal(&self) -> bool {
        let outlook = self.outlook();
        outlook.is_some_and(|it| self.growing.may_steal(&self.files, self.frames.queues(), &it))
    }

    /// The frame for the OST that it is written to. If its file grows, that may have been decided
    /// while the frame was on its way to the stage and in no queue.
    fn follow(&self, write: Write) -> Write {
        Write { ost: self.growing.ost_of(&self.files, &write), ..write }
    }

    /// Fixes what a frame is written to, if its file grows.
    fn grow(&mut self, write: &mut Write) {
        if self.files.has_growing() {
            let extent_bytes = self.extent_bytes().unwrap_or(0);
            self.growing.grow(&mut self.files, write, extent_bytes);
        }
    }

    /// Entries to look at, at most as many as may be placed. A task has few entries if the files
    /// are large, so that threads share them and the first blocks can come early.
    fn next_examine(&mut self) -> Option<Task> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        while entries.len() < self.tuning.examined_count
            && bytes < self.tuning.examined_bytes
            && let Some((entry, placed)) = self.ahead.take_next()
        {
            bytes = placed.map_or(bytes, |placed| placed.bytes.saturating_add(bytes));
            self.files.step(entry.id, Step::Taken(placed));
            entries.push(entry);
        }
        (!entries.is_empty()).then_some(Task::Examine(entries))
    }

    /// Acts on a message that passed [`Self::check`].
    fn on_message(&mut self, message: Message) {
        match message {
            Message::Roots(_) => self.files.on_roots(),
            Message::NewFile(entries) => self.on_new_files(entries),
            Message::FileDone(endings) => {
                for (entry, ending) in endings {
                    self.on_source_ending(entry, &ending);
                }
            }
            Message::Finish { is_complete } => {
                self.course.on_finish(End::of(is_complete && !self.removal.has_failed()));
            }
            Message::Stop(_) => self.on_stop(),
            Message::Staged(bytes) => self.ahead.on_staged(bytes),
            Message::There { number, answers } => self.removal.on_answer(number, answers),
            _ => {}
        }
    }

    fn on_new_files(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.files.on_announced(&entry);
            self.ahead.push(entry);
        }
    }

    fn on_source_ending(&mut self, entry: EntryId, ending: &Ending) {
        let Some(file) = self.files.get(entry) else {
            // If the file has failed here meanwhile, the source is told of that.
            if self.files.on_closing(entry) {
                self.committing.close(entry);
            }
            return;
        };
        match ending {
            Ending::Complete => {
                self.files.with(entry, |file| file.blocks_mut().map(Blocks::on_vouched));
                self.commit_if_complete(entry);
            }
            Ending::CompleteAt { size, mtime } => {
                self.files.with(entry, |file| file.on_end_met(*size, *mtime));
                self.commit_if_complete(entry);
            }
            Ending::Dropped if file.receiving().is_some() => {
                self.give_up(entry, Step::GivenUp);
                self.discard_if_idle(entry);
            }
            // It is about to get its name, or failed here already and is about to be dropped.
            Ending::Dropped => self.files.step(entry, Step::GivenUp),
            Ending::Failed(_) | Ending::Same | Ending::Different | Ending::Incomplete => {
                unreachable!("the gate takes none of these from a source")
            }
        }
    }

    /// Whether a block that has arrived in a frame is wanted.
    fn is_wanted(&self, row: &Row, header: &Header) -> bool {
        let file = self.files.get(row.block.entry);
        file.is_some_and(|file| {
            file.receiving().is_some() && file.may_hold(row, header, self.buffer_bytes)
        })
    }

    /// A block has arrived whole.
    fn on_block_come(&mut self, now: Instant, row: &Row) {
        let ahead = &mut self.ahead;
        let come = |file: &mut File| {
            let blocks = file.receiving_mut().expect("it is wanted");
            blocks.on_come();
            if let Some(placed) = blocks.placed_mut() {
                ahead.on_come(now, placed, row.block.length.into());
            }
        };
        self.files.with(row.block.entry, come);
    }

    /// What the sink has of a file differs from what the source has.
    fn on_different(&mut self, entry: EntryId) {
        let Some(file) = self.files.get(entry) else { return };
        if !file.is_ending() {
            self.give_up(entry, Step::Different);
        }
        self.discard_if_idle(entry);
    }

    /// Asks the source to announce again files that should get another place, if it is time to look
    /// and no other file waits to be placed.
    fn place_again(&mut self, now: Instant) {
        // A file that grows goes on elsewhere without this.
        let may_be = self.ahead.is_limited() && !self.growing.is_allowed();
        let is_time = self.again.is_due(now) && self.course.goes_on() && self.ahead.is_empty();
        if !may_be || !is_time {
            return;
        }
        let entries = self.again.look(now, &self.files, self.frames.queues());
        for &entry in &entries {
            self.files.with(entry, |file| file.blocks_mut().map(Blocks::place_again));
        }
        if !entries.is_empty() {
            self.outbox.tell(Message::PlaceAgain(entries));
        }
    }

    fn on_stop(&mut self) {
        // If everything has ended and nothing is to be removed, finishing is as quick as stopping.
        let is_removing = self.course.is_finish_asked() && !self.removal.is_over();
        if (!self.course.is_finish_asked() || is_removing) && self.course.stop() {
            self.ahead.close();
            for (entry, waiting) in self.committing.stop() {
                self.recording.put_back(entry, waiting);
            }
        }
    }

    fn finish_stop_if_idle(&mut self) {
        if !self.course.is_stopping() {
            return;
        }
        self.recording.hurry();
        let is_idle = self.frames.is_idle()
            && self.recording.is_idle()
            && !self.removal.is_running()
            && !self.committing.is_running();
        if is_idle {
            self.course.on_stopped();
            self.outbox.tell(Message::Finished(self.counters.clone()));
        }
    }
}
