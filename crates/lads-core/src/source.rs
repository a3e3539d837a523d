//! The source's session: from entries found to blocks sent and files ended.
//!
//! ```text
//!              NEW_FILE                FILE_ID                       all blocks done
//!   found ───────────────► announced ───────────► moving ─────────────────────────────► checking
//!                             │  │                  │  ▲                                    │
//!          FILE_ID: have it   │  │ FILE_ID: failed  │  └─── BLOCK_BAD ──┐    same file, FILE_DONE
//!                 ┌───────────┘  └───────┐          │ read error, file  │                  ▼
//!                 ▼                      ▼          ▼ changed           └───────────── finishing
//!               ended ◄─────────────── ended ◄── dropping                   FILE_DONE       │
//!                 ▲                                                                         │
//!                 └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A file of a single block skips `checking`: its frame says that the file was the same after it
//! was read. A directory ends when the walk has finished with it and everything in it has ended, so
//! that its time of change is set last.
//!
//! `source/file.rs` lists all states of a file and all transitions between them. Each part keeps
//! its own tables, and sees no table of another part; [`Source`] joins them:
//!
//! | part | knows |
//! |---|---|
//! | `files.rs`, `file.rs`, `blocks.rs` | what was found, and what the sink has of each file |
//! | `directories.rs` | which directories have not ended, and what is in them |
//! | `links.rs` | names that wait for another name of their file |
//! | `settling.rs` | files that changed a moment ago and are announced a moment later |
//! | `window.rs` | how many entries are under way |
//! | `schedule.rs` of the crate | blocks that wait for their OSTs, room at the sink, the stage |
//! | `limit.rs` | what the person's limit lets through |
//! | `starving.rs` | how long the source waited for others |
//! | `streams.rs` | frames that went out and may be lost |
//! | `checking.rs` | files that are looked at once more |
//! | `removing.rs` | entries that the sink has and that are being removed here |
//! | `questions.rs` | what the sink asks before it removes anything |
//! | `course.rs` | whether the transfer goes on |
//! | `outbox.rs` | what is to be said to the sink and to the owner |
//!
//! `finding.rs`, `answers.rs` and `ending.rs` hold functions of [`Source`] that would make this
//! file too long. Like all other functions of [`Source`], they use only the public interface of
//! each part.

mod answers;
mod blocks;
mod checking;
mod config;
mod course;
mod directories;
mod ending;
mod event;
mod file;
mod files;
mod finding;
mod limit;
mod links;
mod outbox;
mod questions;
mod removing;
mod settling;
mod starving;
mod streams;
mod window;

use crate::entry::Timestamp;
use crate::frame::Row;
pub use crate::gate::ProtocolError;
use crate::gate::{AtSource, impossible};
use crate::issue::{Failure, Operation, Reason, Side};
use crate::limits::{AGAIN_MAX, ENTRIES_OPEN_MAX, RESENDS_MAX};
use crate::message::{BlockRange, Counters, Ending, Message, Presence, Question};
use crate::pool::Requests;
use crate::schedule::{OstSpec, OstStats, Schedule, Way, Work, earlier, is_whole};
use crate::units::{Block, EntryId, Instant, StreamId};
use blocks::{Blocks, Purpose, Word};
use checking::Checking;
pub use config::SourceConfig;
use course::Course;
use directories::Directories;
pub use event::{Event, Found, LinkName, Note, Outcome, ReadOutcome, Task};
use file::{File, Step};
use files::Files;
use limit::Limit;
use links::Links;
use outbox::Outbox;
use questions::Questions;
use removing::Removals;
use settling::Settling;
use starving::Starving;
use std::time::Duration;
use streams::Streams;
use window::Window;

/// The source's session.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    /// What the sink has said of itself, and so what it may say now.
    gate: AtSource,
    files: Files,
    directories: Directories,
    links: Links<Box<Found>>,
    settling: Settling,
    window: Window,
    schedule: Schedule,
    limit: Limit,
    streams: Streams,
    checking: Checking,
    removals: Removals,
    questions: Questions,
    course: Course,
    outbox: Outbox,
    starving: Starving,
    is_walk_ended: bool,
    counters: Counters,
}

/// The walk waits when this many entries have ended that the owner has not read: then nobody reads
/// how they ended, not even that they failed. With an owner that asks 20 times a second, this
/// allows 300,000 small files a second; half would still be enough. With the double, the tables of
/// an end whose terminal is stopped are twice as large.
const NOTES_MAX: usize = ENTRIES_OPEN_MAX;

impl Source {
    /// A session that reads from these OSTs.
    #[must_use]
    pub fn new(config: SourceConfig, osts: &[OstSpec]) -> Self {
        let SourceConfig { policy, threshold, tuning, block_size, .. } = &config;
        let mut schedule = Schedule::new(*policy, *threshold, tuning, osts, *block_size);
        schedule.set_begun_max(config.open_files_max);
        schedule.set_stage(config.stage_bytes, config.stage_threads_max);
        Self {
            gate: AtSource::new(config.stream_count),
            files: Files::new(),
            directories: Directories::new(),
            links: Links::default(),
            settling: Settling::default(),
            window: Window::new(&config),
            schedule,
            limit: Limit::new(config.bytes_per_second, &config.tuning),
            streams: Streams::default(),
            checking: Checking::default(),
            removals: Removals::default(),
            questions: Questions::default(),
            course: Course::new(),
            outbox: Outbox::new(config.tuning),
            starving: Starving::default(),
            is_walk_ended: false,
            counters: Counters::default(),
            config,
        }
    }

    /// From now on at most `most` reads are in flight at a time, or fewer if these are better
    /// ([`crate::matching`]).
    pub fn match_requests(&mut self, most: u32) {
        self.schedule.match_requests(most);
    }

    /// Checks whether the sink may send this message now, except for what concerns a single file:
    /// [`Self::handle`] checks both.
    ///
    /// # Errors
    /// If it breaks the protocol; the session cannot go on.
    pub fn check(&self, message: &Message) -> Result<(), ProtocolError> {
        self.gate.check(message)?;
        match message {
            Message::AreThere(question) => self.check_question(question),
            Message::Removed(count) => self.check_removed(*count),
            _ => Ok(()),
        }
    }

    /// Takes in what happened.
    ///
    /// # Errors
    /// If the sink broke the protocol; the session cannot go on.
    pub fn handle(&mut self, now: Instant, event: Event) -> Result<(), ProtocolError> {
        self.starving.on_time(now);
        self.counters.starved_micros = self.starving.micros();
        match event {
            Event::Found(found) => self.on_found(now, found),
            Event::Listed { directory, subdirectory_count } => {
                self.directories.on_listed(directory, subdirectory_count);
                self.close_directory_if_done(directory);
            }
            Event::NotListed { directory, failure } => {
                self.directories.on_failed(directory, failure);
                self.directories.on_listed(directory, 0);
                self.close_directory_if_done(directory);
            }
            Event::Unreadable { entry, parent, is_counted, failure } => {
                if !is_counted {
                    self.directories.on_child(parent);
                }
                self.on_unreadable(entry, parent, failure);
            }
            Event::Passed { entry, parent, pass } => self.on_passed(entry, parent, pass),
            Event::Gone { entry, failure } => self.on_gone(entry, failure),
            Event::WalkEnded => {
                self.is_walk_ended = true;
                self.count_walk();
                self.directories.on_listed(EntryId::ROOT, 0);
                self.close_directory_if_done(EntryId::ROOT);
            }
            Event::Message(message) => {
                self.check(&message)?;
                return self.on_message(message);
            }
            Event::Read { work, service, outcomes } => {
                self.on_read(now, &work, service, &outcomes);
            }
            Event::EndMet { entry, size, mtime } => self.on_end_met(entry, size, mtime),
            Event::Staged { work, rows } => self.on_staged(&work, rows),
            Event::NotStaged { work } => {
                self.schedule.close_stage();
                self.read_again(work);
            }
            Event::NotDrained { work } => {
                self.schedule.close_stage();
                self.schedule.on_not_sent(work.sink_ost);
                self.read_again(work);
            }
            Event::Sent { stream, number, work } => self.on_sent(stream, number, work),
            Event::NotSent { work } => self.on_lost(work),
            Event::Checked { entry, outcome } => self.on_checked(entry, outcome),
            Event::Removed { entry, failure } => self.on_removed(entry, failure),
            Event::LookedUp { question, answers } => self.on_looked_up(&question, answers),
            Event::Stop(reason) => self.stop(reason),
        }
        Ok(())
    }

    /// Reports whether the walk should go on now. If not, enough entries are in flight. The walk
    /// does not wait for READY: the sink takes messages in order, so entries may follow ROOTS at
    /// once.
    #[must_use]
    pub fn wants_entries(&self) -> bool {
        let bytes = self.files.metadata_bytes() + self.settling.metadata_bytes();
        let directories = self.directories.open_count();
        self.course.goes_on()
            && self.window.has_room(bytes, directories)
            && self.outbox.note_count() < NOTES_MAX
    }

    /// The walk has more entries and asks whether it should go on.
    ///
    /// # Errors
    /// When to ask again, if nothing happens until then, because it should not.
    pub fn may_go_on(&mut self, now: Instant) -> Result<(), Option<Instant>> {
        if !self.wants_entries() {
            let again_at = self.window.on_waiting(now, self.schedule.has_idle_ost());
            if !self.wants_entries() {
                return Err(again_at);
            }
        }
        self.window.on_going_on();
        Ok(())
    }

    /// What the I/O thread numbered `worker` should do now, if anything.
    pub fn next_task(&mut self, now: Instant, worker: usize) -> Option<Task> {
        if !self.course.goes_on() {
            return None;
        }
        self.announce_settled(now);
        let task = self.find_task(now, worker);
        self.settling.on_asked(task.is_some());
        task
    }

    fn find_task(&mut self, now: Instant, worker: usize) -> Option<Task> {
        self.schedule.on_time(now);
        if let Some(task) = self.checking.next() {
            return Some(task);
        }
        if let Some(question) = self.questions.next() {
            return Some(Task::LookUp(question));
        }
        if self.limit.is_reached(now) {
            if self.schedule.may_have_work() {
                self.limit.on_waiting();
            }
            return None;
        }
        if self.streams.is_full() {
            self.streams.settle(&mut self.files);
        }
        if self.streams.is_full() {
            return None;
        }
        let work = self.schedule.next(now, worker);
        self.starving.on_asked(now, work.is_none() && !self.schedule.is_storage_busy());
        let is_sent = |work: &&Work| !matches!(work.way, Way::Stage(_)) && !work.is_comparison;
        let sent_bytes = work.as_ref().filter(is_sent).map_or(0, Work::bytes);
        self.counters.bytes_limited += self.limit.on_sent(now, sent_bytes);
        let work = work?;
        // Blocks that come back from the stage were handed out when they were staged.
        if !matches!(work.way, Way::Drain(..)) {
            self.files.on_out(&work.blocks);
        }
        Some(Task::Read(work))
    }

    /// Returns when [`Self::next_task`] may have something to do even if nothing happens until
    /// then.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let of_data = earlier(self.limit.ready_at(), self.schedule.next_timeout());
        earlier(of_data, self.settling.next_time())
    }

    /// Reports whether [`Self::next_task`] may find something, so that it is worth waking a thread.
    #[must_use]
    pub fn may_have_task(&self) -> bool {
        self.course.goes_on()
            && (!self.checking.is_empty()
                || self.questions.is_waiting()
                || self.settling.is_unwatched()
                || self.schedule.may_have_work())
    }

    /// Reports whether [`Self::next_message`] has something.
    #[must_use]
    pub fn has_message(&self) -> bool {
        !self.outbox.is_empty(self.schedule.staged_bytes())
    }

    /// The next message for the sink, if any.
    pub fn next_message(&mut self) -> Option<Message> {
        let entries = self.outbox.next_new_files();
        if entries.is_empty() {
            return self.outbox.next(self.schedule.staged_bytes());
        }
        // From now on the sink may send messages about these entries.
        for entry in &entries {
            if !self.files.on_announced(entry.id) {
                self.directories.on_announced(entry.id);
            }
        }
        Some(Message::NewFile(entries))
    }

    /// The next entry that ended, if any.
    pub fn next_note(&mut self) -> Option<Note> {
        self.outbox.next_note()
    }

    /// Reports whether either end has asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        !self.course.goes_on()
    }

    /// Reports whether the sink has said that everything is durable and on record: then the session
    /// is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.course.is_over()
    }

    /// Reports whether everything has ended and the transfer was not stopped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.course.is_finished()
    }

    /// The counters of this end.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the latest reads were like; `None` before the first.
    #[must_use]
    pub fn requests(&self) -> Option<Requests> {
        self.schedule.requests()
    }

    /// Counters of each source OST.
    pub fn ost_stats(&self) -> impl Iterator<Item = &OstStats> {
        self.schedule.stats()
    }

    /// Acts on a message that passed [`Self::check`].
    fn on_message(&mut self, message: Message) -> Result<(), ProtocolError> {
        match message {
            Message::Ready { ost_count, open_files_max, time_unit_nanos, .. } => {
                self.gate.on_ready(ost_count);
                self.settling.on_sink_unit(Duration::from_nanos(time_unit_nanos.into()));
                self.schedule.set_begun_max(self.config.open_files_max.min(open_files_max));
            }
            Message::FileId(answers) => {
                for (entry, answer) in answers {
                    self.on_answer(entry, answer)?;
                }
            }
            Message::Grant(lot) => self.schedule.on_grant(&lot),
            Message::BlockDone(ranges) => {
                for range in ranges {
                    self.on_block_done(range)?;
                }
            }
            Message::BlockBad(ranges) => {
                for range in ranges {
                    self.on_block_bad(range)?;
                }
            }
            Message::FileDone(endings) => {
                for (entry, ending) in endings {
                    self.on_file_done(entry, &ending)?;
                }
            }
            Message::PlaceAgain(entries) => {
                for entry in entries {
                    self.place_again(entry)?;
                }
            }
            Message::AreThere(question) => self.questions.push(question),
            Message::Removed(count) => self.counters.entries_removed = count,
            Message::StreamEnd { stream, frames } => self.on_stream_end(stream, frames),
            // The sink stops of its own accord: FINISHED follows.
            Message::Stop(_) => {
                self.course.stop();
            }
            Message::Finished(_) => {
                // Before everything has ended, it is the sink that stops.
                if self.course.goes_on() && self.directories.are_all_over() {
                    self.course.on_finished();
                } else {
                    self.course.on_stopped();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks whether the sink may ask this now: everything else has ended, and few of its
    /// questions are open.
    fn check_question(&self, question: &Question) -> Result<(), ProtocolError> {
        if !self.config.may_be_asked || !self.directories.are_all_over() {
            return Err(ProtocolError::OutOfPlace("ARE_THERE"));
        }
        self.questions.check(question)
    }

    /// An I/O thread has looked up what the sink asked.
    fn on_looked_up(&mut self, question: &Question, answers: Vec<Presence>) {
        self.questions.on_looked_up(question);
        self.outbox.tell(Message::There { number: question.number, answers });
    }

    /// The sink says that it has removed this many entries; the number may not go down.
    fn check_removed(&self, count: u64) -> Result<(), ProtocolError> {
        let may_be = self.config.may_be_asked && self.directories.are_all_over();
        match may_be && count >= self.counters.entries_removed {
            true => Ok(()),
            false => Err(ProtocolError::OutOfPlace("REMOVED")),
        }
    }

    /// If the sink has all of a file, the file must still be the same; a thread checks that, unless
    /// one has.
    fn check_if_complete(&mut self, entry: EntryId) {
        let Some(file) = self.files.get(entry).filter(|file| file.is_moving()) else { return };
        let Some(blocks) = file.blocks() else { return };
        let plan = self.schedule.plan(entry);
        if plan.is_some_and(|plan| plan.is_all_in(blocks.confirmed())) {
            let word = blocks.word();
            self.files.step(entry, Step::Complete);
            match word {
                Word::Nobody => self.ask_word(entry),
                Word::Asked | Word::Stale => {}
                Word::Given => self.files.step(entry, Step::Unchanged),
            }
        }
    }

    /// If all of a file was read, a thread checks whether the file is still the same, while blocks
    /// are still in flight. A file of a single block needs no other word than its frame's. A
    /// comparison may end early, and the end of an unsized file is its word.
    fn check_if_read(&mut self, entry: EntryId) {
        let Some(file) = self.files.get(entry).filter(|file| file.is_moving()) else { return };
        let Some(blocks) = file.blocks() else { return };
        let may_be_asked = blocks.word() == Word::Nobody && blocks.purpose() == Purpose::Send;
        // Cheaper than to look at all ranges after each block.
        let may_be_all = blocks.read().byte_count() >= file.data_bytes();
        if !may_be_asked || !may_be_all || file.is_unsized() {
            return;
        }
        if self.schedule.plan(entry).is_some_and(|plan| plan.is_all_in(blocks.read())) {
            self.ask_word(entry);
        }
    }

    fn ask_word(&mut self, entry: EntryId) {
        self.files.with(entry, |file| file.blocks_mut().map(Blocks::on_word_asked));
        self.checking.check(entry);
    }

    fn on_block_done(&mut self, range: BlockRange) -> Result<(), ProtocolError> {
        let entry = range.entry;
        let Some(file) = self.files.get(entry) else {
            return self.files.check_was_announced(entry);
        };
        let Some(end) = file.end_of(&range) else { return Err(impossible(&range)) };
        let done = |file: &mut File| file.blocks_mut().map(|blocks| blocks.on_done(&range, end));
        self.counters.bytes_done += self.files.with(entry, done).flatten().unwrap_or(0);
        self.check_if_complete(entry);
        self.files.check_range_count()
    }

    fn on_block_bad(&mut self, range: BlockRange) -> Result<(), ProtocolError> {
        let entry = range.entry;
        let Some(file) = self.files.get(entry) else {
            return self.files.check_was_announced(entry);
        };
        let Some(end) = file.end_of(&range) else { return Err(impossible(&range)) };
        let is_dropped = file.dropping().is_some() || file.is_replacing();
        let asked = |file: &mut File| file.blocks_mut().map(Blocks::on_asked_again);
        let count = self.files.with(entry, asked).flatten().unwrap_or(0);
        if count > RESENDS_MAX || self.schedule.again_count() > AGAIN_MAX {
            return Err(ProtocolError::TooMuch("blocks that are to be sent again"));
        }
        if is_dropped {
            return Ok(());
        }
        self.files.step(entry, Step::Bad);
        let blocks = self.schedule.push_range_again(entry, range.offset..end);
        self.counters.blocks_resent += blocks.len() as u64;
        let lost = |file: &mut File| file.blocks_mut().map(|of_file| of_file.on_lost(&blocks));
        if let Some((lost_bytes, unskipped_bytes)) = self.files.with(entry, lost).flatten() {
            self.counters.bytes_done -= lost_bytes;
            self.counters.bytes_skipped -= unskipped_bytes;
        }
        Ok(())
    }

    /// The sink wants a file to be announced again. Does nothing if the sink has all of it, or if
    /// the file will be announced again for another reason anyway.
    fn place_again(&mut self, entry: EntryId) -> Result<(), ProtocolError> {
        let Some(is_first) = self.files.with(entry, File::on_place_again) else {
            return self.files.check_was_announced(entry);
        };
        let file = self.files.known(entry);
        // Most unsized files cannot be read again.
        if is_first && file.is_moving() && !file.is_unsized() {
            self.drop_file(entry, Step::Unplaced);
        }
        Ok(())
    }

    fn on_read(&mut self, now: Instant, work: &Work, service: Duration, outcomes: &[ReadOutcome]) {
        self.schedule.on_read(now, work, service);
        let mut good_count = 0;
        for (block, outcome) in work.blocks.iter().zip(outcomes) {
            let failure = match outcome {
                ReadOutcome::Good => {
                    good_count += 1;
                    self.on_block_read(block);
                    continue;
                }
                ReadOutcome::BeyondEnd => {
                    self.files.on_back(&[*block]);
                    continue;
                }
                ReadOutcome::Failed(failure) => *failure,
                ReadOutcome::Changed => changed(),
            };
            self.files.on_back(&[*block]);
            self.drop_file(block.entry, Step::Failed(failure));
        }
        match work.way {
            _ if good_count > 0 => {}
            Way::Stage(slot) => self.schedule.on_not_staged(slot),
            Way::Send | Way::Drain(..) => self.schedule.on_not_sent(work.sink_ost),
        }
    }

    fn on_block_read(&mut self, block: &Block) {
        let is_whole = self.schedule.plan(block.entry).is_some_and(|plan| is_whole(plan, block));
        let read = |file: &mut File| {
            if !is_whole && let Some(blocks) = file.blocks_mut() {
                blocks.on_read(block);
            }
            file.on_unsized_read(block.end())
        };
        self.counters.bytes_found += self.files.with(block.entry, read).unwrap_or(0);
        if !is_whole {
            self.check_if_read(block.entry);
        }
    }

    /// A block must be read and sent again, unless the sink has it.
    fn push_again(&mut self, block: Block) -> bool {
        if self.files.is_settled(&block) {
            return false;
        }
        let again = |file: &mut File| file.blocks_mut().map(|blocks| blocks.on_again(&block));
        self.files.with(block.entry, again);
        self.schedule.push_again(block);
        true
    }

    /// The length of an unsized file is known now. Blocks beyond its end may have been handed out.
    fn on_end_met(&mut self, entry: EntryId, size: u64, mtime: Timestamp) {
        let Some(file) = self.files.get(entry).filter(|file| file.is_still_unsized()) else {
            return;
        };
        self.counters.bytes_found = self.counters.bytes_found - file.data_bytes() + size;
        self.files.with(entry, |file| file.on_end_met(size, mtime));
        self.schedule.shorten(entry, size);
        self.count_walk();
        self.check_if_complete(entry);
    }

    /// What is found is final when the walk has ended and the length of every file is known.
    fn count_walk(&mut self) {
        self.counters.is_walk_ended = self.is_walk_ended && !self.files.has_unsized();
    }

    fn on_staged(&mut self, work: &Work, rows: Vec<Row>) {
        self.counters.bytes_staged += work.bytes();
        if let Way::Stage(slot) = work.way {
            let dropped = self.schedule.on_staged(slot, work, rows);
            self.files.on_back(&dropped);
        }
    }

    /// Frees the slots of the stage that hold blocks of dropped files.
    fn clear_stage(&mut self) {
        let dropped = self.schedule.clear_stage();
        self.files.on_back(&dropped);
    }

    /// Blocks could not be staged, or could not be read back: they go back to where they were
    /// before.
    fn read_again(&mut self, work: Work) {
        let work = self.free_slot(work);
        self.files.on_back(&work.blocks);
        for block in work.blocks {
            self.push_again(block);
        }
    }

    /// Frees the slot of a drained frame; its blocks are in memory, or lost.
    fn free_slot(&mut self, mut work: Work) -> Work {
        match std::mem::replace(&mut work.way, Way::Send) {
            Way::Send => {}
            Way::Stage(slot) => self.schedule.on_not_staged(slot),
            Way::Drain(slot, _) => self.schedule.on_drained(slot),
        }
        work
    }

    /// A frame was sent; `number` frames were sent before it on this stream.
    fn on_sent(&mut self, stream: StreamId, number: u64, work: Work) {
        let work = self.free_slot(work);
        if !work.is_comparison {
            self.counters.blocks_sent += work.blocks.len() as u64;
            self.counters.bytes_sent += work.bytes();
        }
        if let Some(work) = self.streams.on_sent(stream, number, work, &mut self.files) {
            self.on_lost(work);
        }
    }

    /// When the stream ended, the sink had this many whole frames of it.
    fn on_stream_end(&mut self, stream: u16, frames: u64) {
        self.gate.on_stream_end(stream);
        let lost = self.streams.on_end(StreamId(stream), frames, &mut self.files);
        lost.frames.into_iter().for_each(|work| self.on_lost(work));
        lost.unsure.into_iter().for_each(|sink_ost| self.schedule.on_not_sent(sink_ost));
    }

    /// A frame did not arrive whole. Its grant was not used, and its blocks must be sent again.
    fn on_lost(&mut self, work: Work) {
        let work = self.free_slot(work);
        self.schedule.on_not_sent(work.sink_ost);
        self.files.on_back(&work.blocks);
        for block in work.blocks {
            self.counters.blocks_resent += u64::from(self.push_again(block));
        }
    }

    /// Tells the sink to drop what it has of a file, because something went wrong, or because the
    /// file gets another place.
    fn drop_file(&mut self, entry: EntryId, step: Step) {
        let Some(file) = self.files.get(entry) else { return };
        let is_told = file.dropping().is_some() || file.is_replacing();
        self.files.step(entry, step);
        if !is_told {
            self.schedule.remove(entry);
            self.clear_stage();
            self.outbox.tell_ending(entry, Ending::Dropped);
        }
    }

    fn on_checked(&mut self, entry: EntryId, outcome: ReadOutcome) {
        let Some(file) = self.files.get(entry) else { return };
        match outcome {
            ReadOutcome::Good if file.is_moving() || file.is_checking() => {
                self.on_unchanged(entry);
            }
            ReadOutcome::Good | ReadOutcome::BeyondEnd => {}
            ReadOutcome::Failed(failure) => self.drop_file(entry, Step::Failed(failure)),
            ReadOutcome::Changed => self.drop_file(entry, Step::Failed(changed())),
        }
    }

    /// A thread found that a file was still the same.
    fn on_unchanged(&mut self, entry: EntryId) {
        let checked = |file: &mut File| file.blocks_mut().is_some_and(Blocks::on_checked);
        let counts = self.files.with(entry, checked).expect("looked up by the caller");
        let file = self.files.known(entry);
        match (counts, file.is_checking()) {
            (true, is_complete) => {
                let ending = file.good_ending();
                if is_complete {
                    self.files.step(entry, Step::Unchanged);
                }
                self.outbox.tell_ending(entry, ending);
            }
            (false, true) => self.ask_word(entry),
            (false, false) => self.check_if_read(entry),
        }
    }

    fn stop(&mut self, reason: String) {
        if self.course.stop() {
            self.outbox.tell(Message::Stop(reason));
        }
    }
}

fn changed() -> Failure {
    Failure::new(Side::Source, Operation::Read, Reason::Changed)
}

#[cfg(test)]
mod tests;
