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
//! A file of a single block goes from its write straight to commit, without journal. A frame's
//! buffer is free again, and granted anew, as soon as it is written.

mod again;
mod comparison;
mod event;
mod growing;
mod record;
mod removal;
mod stage;

use crate::ahead::{Ahead, Placed};
use crate::congestion::Threshold;
use crate::entry::{Entry, Kind};
use crate::frame::{Header, Row};
pub use crate::gate::ProtocolError;
use crate::gate::{self, AtSink};
use crate::growth::{self, Growth, GrowthConfig};
use crate::issue::{Failure, Operation, Reason, Side};
use crate::journal::BlockRecord;
use crate::layout::Layout;
use crate::limits::{BLOCK_BYTES_MAX, RANGES_MAX, RANGES_PER_MESSAGE};
use crate::message::{Answer, BlockRange, Counters, Ending, Message};
use crate::range::RangeSet;
use crate::room::Grants;
use crate::schedule::{OstQueues, OstSpec, OstStats, PACKED_BYTES_MAX, Policy};
use crate::units::{EntryId, Instant, OstId};
pub use event::{
    BufferId, Commit, Committed, Compared, Discard, Event, Examined, Place, SyncFile, Task, Write,
};
use removal::Removal;
pub use removal::{Permission, RemovalConfig};
use stage::Aside;
pub use stage::StageConfig;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// How a sink behaves.
#[derive(Clone, Debug)]
pub struct SinkConfig {
    /// By which rule frames are handed to I/O threads.
    pub policy: Policy,
    /// What is slow, for [`Policy::Threshold`].
    pub threshold: Threshold,
    /// Its OSTs.
    pub osts: Vec<OstSpec>,
    /// This many bytes of new files may be placed before they come, in any case; `None` if
    /// it does not matter when they are placed.
    pub placed_bytes_min: Option<u64>,
    /// Buffers in its arena, each for one frame; at least one for each OST besides those of
    /// [`Self::kept_count`].
    pub buffer_count: u32,
    /// Bytes in each buffer.
    pub buffer_bytes: u32,
    /// Whether blocks are recorded in a journal, and count as done only then.
    pub has_journal: bool,
    /// When this many bytes are written and not on record, they are put on record.
    pub batch_bytes: u64,
    /// When bytes have been written and not on record for so long, they are put on record.
    pub batch_interval: Duration,
    /// Whether files are read back from storage before they count as done.
    pub verifies_media: bool,
    /// Commits that may run side by side; the rest gathers, to be made durable together. Each has
    /// a buffer if files are read back.
    pub commits_max: u32,
    /// A write that usually takes less than this is done by whoever received it.
    pub at_once_max: Duration,
    /// How files grow while they are written, if any may.
    pub growth: Option<GrowthConfig>,
    /// How often a block that arrived damaged is asked for again.
    pub resends_max: u32,
    /// What is removed that the source does not have, if anything is.
    pub removal: Option<RemovalConfig>,
    /// Its stage, if it has one.
    pub stage: Option<StageConfig>,
}

impl SinkConfig {
    /// Buffers that are never granted to the source: for frames that are brought back from the
    /// stage, and for files that are read back. A thread that waited for one of those that are
    /// granted could be the thread that has to free it.
    #[must_use]
    pub fn kept_count(&self) -> u32 {
        let drains = self.stage.map_or(0, |stage| stage.drains_max);
        let reads = if self.verifies_media { self.commits_max } else { 0 };
        drains + reads
    }
}

#[derive(Debug)]
struct File {
    size: u64,
    data_bytes: u64,
    /// Where it will lie, once it is known that it is wanted.
    layout: Option<Layout>,
    /// Where it lies by now, if it grows.
    growth: Option<Growth>,
    /// Bytes written, or there from an earlier attempt.
    written: RangeSet,
    /// Of these, bytes on record.
    on_record: RangeSet,
    /// Blocks written and not on record.
    unsynced: Vec<BlockRecord>,
    /// All blocks, if the file will be read back, by offset and length. After an attempt with
    /// another block size some overlap.
    records: BTreeMap<(u64, u32), BlockRecord>,
    /// Bytes of it that are placed and have not come, once it is looked at.
    ahead: Option<Placed>,
    /// Whether the source was asked to announce it anew, to get another place.
    is_placed_again: bool,
    /// Blocks of it with an I/O thread, or waiting for one.
    in_flight: u32,
    /// Whether it arrived as one block that vouches for the whole.
    is_whole: bool,
    /// Whether the source said that all blocks were of one and the same file.
    is_vouched: bool,
    /// Whether a sync of it runs.
    is_syncing: bool,
    /// Whether the source gave it up while it was about to get its name.
    is_given_up: bool,
    /// Whether a file that is there is compared with the source's, and nothing is written.
    is_compared: bool,
    /// Whether that has shown that it is not the same.
    is_different: bool,
    resends: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receiving,
    Committing,
    /// To be dropped when nothing of it is in flight. Only then is the source told: it may send the
    /// file anew, or end the directory that it lies in.
    Dropping {
        is_kept: bool,
        /// What went wrong here; `None` if the source gave it up.
        failure: Option<Failure>,
    },
    /// An I/O thread drops it, or will.
    Discarding {
        failure: Option<Failure>,
    },
}

impl Phase {
    fn is_ending(self) -> bool {
        matches!(self, Self::Dropping { .. } | Self::Discarding { .. })
    }
}

/// The sink's session.
#[derive(Debug)]
pub struct Sink {
    config: SinkConfig,
    grants: Grants,
    queues: OstQueues<Write>,
    /// What the source has announced and may speak of.
    announced: AtSink,
    files: HashMap<EntryId, File>,
    /// Blocks of files that have ended that are still being written.
    late: HashMap<EntryId, u32>,
    /// Files that may grow.
    growing_count: usize,
    /// Separate ranges of bytes that are written, of all files together.
    range_count: usize,
    ahead: Ahead,
    aside: Aside,
    /// When it was last looked at whether files are better placed again.
    looked_at: Instant,
    to_release: Vec<Write>,
    to_commit: VecDeque<Commit>,
    to_close: Vec<EntryId>,
    to_discard: Vec<Discard>,
    commits_running: u32,
    /// Files with blocks that are not on record.
    unsynced: Vec<EntryId>,
    unsynced_bytes: u64,
    unsynced_since: Option<Instant>,
    /// A file is whole, or the source is going: do not wait for the batch to fill.
    is_sync_urgent: bool,
    is_syncing: bool,
    removal: Removal,
    finish: Finish,
    stop: Stop,
    answers: VecDeque<(EntryId, Answer)>,
    block_dones: VecDeque<BlockRange>,
    endings: VecDeque<(EntryId, Ending)>,
    messages: VecDeque<Message>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    No,
    Asked { is_complete: bool },
    Running,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    Asked,
    Done,
}

/// Entries looked at in one go by one thread, and bytes of their files.
const EXAMINE_COUNT: usize = 64;
const EXAMINE_BYTES: u64 = 4 << 20;
/// Files committed in one go by one thread.
const COMMIT_COUNT: usize = 64;
/// Rows in one message.
const ROWS_PER_MESSAGE: usize = 1000;
/// Bytes of answers in one message, about: one may be some hundred KiB by itself.
const ANSWERS_BYTES: usize = 64 << 10;

impl Sink {
    /// A session that writes to these OSTs.
    ///
    /// # Panics
    /// If fewer buffers can be granted than there are OSTs.
    #[must_use]
    pub fn new(config: SinkConfig) -> Self {
        let in_flight_max = config.osts.iter().map(|ost| ost.in_flight_max);
        Self {
            grants: Grants::new(config.buffer_count - config.kept_count(), in_flight_max),
            aside: Aside::new(config.stage, config.buffer_bytes),
            queues: {
                let queues = OstQueues::new(config.policy.rule(config.threshold), &config.osts);
                // What waits here can go elsewhere, what is under way cannot.
                if config.growth.is_some() { queues.sparing() } else { queues }
            },
            ahead: Ahead::new(config.placed_bytes_min),
            removal: Removal::new(config.removal),
            config,
            announced: AtSink::default(),
            files: HashMap::new(),
            late: HashMap::new(),
            growing_count: 0,
            range_count: 0,
            looked_at: Instant::START,
            to_release: Vec::new(),
            to_commit: VecDeque::new(),
            to_close: Vec::new(),
            to_discard: Vec::new(),
            commits_running: 0,
            unsynced: Vec::new(),
            unsynced_bytes: 0,
            unsynced_since: None,
            is_sync_urgent: false,
            is_syncing: false,
            finish: Finish::No,
            stop: Stop::No,
            answers: VecDeque::new(),
            block_dones: VecDeque::new(),
            endings: VecDeque::new(),
            messages: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Whether the source may say this now. Whoever keeps tables of his own for what the source
    /// announces asks this first; [`Self::handle`] asks again.
    ///
    /// # Errors
    /// If it breaks the protocol; the session cannot go on.
    pub fn check(&self, message: &Message) -> Result<(), ProtocolError> {
        self.announced.check(message)?;
        match message {
            Message::Finish { .. } if self.finish != Finish::No => {
                Err(ProtocolError::OutOfPlace("FINISH again"))
            }
            Message::There { number, answers } => self.removal.check(*number, answers),
            _ => Ok(()),
        }
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
            Event::Staged(write) => self.on_staged(write),
            Event::NotStaged { write, slot } => self.on_not_staged(write, slot),
            Event::NotDrained { write, service } => self.on_not_drained(now, &write, service),
            Event::Released(writes) => self.on_released(&writes),
            Event::Synced(results) => self.on_synced(results),
            Event::Committed(results) => {
                self.commits_running -= 1;
                for (entry, committed) in results {
                    self.on_committed(entry, committed);
                }
            }
            Event::Closed(results) => {
                for (entry, failure) in results {
                    self.removal.has_failed |= failure.is_some();
                    self.announced.on_ended(entry);
                    let ending = failure.map_or(Ending::Complete, Ending::Failed);
                    self.endings.push_back((entry, ending));
                }
            }
            Event::Discarded(entries) => self.on_discarded(&entries),
            Event::RemovalOver => self.on_removal_over(),
            Event::Finished => {
                self.finish = Finish::Done;
                self.messages.push_back(Message::Finished(self.counters.clone()));
            }
            Event::StreamEnded { stream, frames } => {
                self.messages.push_back(Message::StreamEnd { stream, frames });
            }
            Event::Stop => {
                // Said before FINISHED, so that the source does not take that for the end.
                self.messages.push_back(Message::Stop("the sink was stopped".to_owned()));
                self.on_stop();
            }
        }
        self.finish_stop_if_idle();
        Ok(())
    }

    /// A frame begins to arrive: may it?
    ///
    /// # Errors
    /// If the source broke the protocol: a block that cannot be, or no room was granted.
    pub fn admit(&mut self, header: &Header, rows: &[Row]) -> Result<(), ProtocolError> {
        let ost = header.sink_ost;
        if self.range_count > RANGES_MAX {
            return Err(ProtocolError::TooMuch("separate pieces of files"));
        }
        for row in rows {
            let block = row.block;
            let Some(file) = self.files.get(&block.entry) else {
                // Blocks of a file that has ended meanwhile are let in, and dropped.
                self.announced.check_was_announced(block.entry)?;
                continue;
            };
            if !file.may_hold(row, header, self.config.buffer_bytes) {
                return Err(ProtocolError::ImpossibleBlock {
                    entry: block.entry,
                    offset: block.offset,
                    length: u64::from(block.length),
                });
            }
        }
        let is_granted = self.grants.on_arrival(ost, header.is_last_grant);
        if is_granted { Ok(()) } else { Err(ProtocolError::OverGrant) }
    }

    /// A frame has arrived that [`Self::admit`] let in; for each block, whether it matches its
    /// checksum. Returns what the caller should write itself, at once; otherwise it is queued.
    pub fn on_frame(
        &mut self,
        now: Instant,
        buffer: BufferId,
        header: &Header,
        rows: &[(Row, bool)],
    ) -> Option<Write> {
        let ost = header.sink_ost;
        let mut good = Vec::with_capacity(rows.len());
        let mut place = 0;
        for (row, is_good) in rows {
            // While it arrived its file may have ended, and another may have got its number.
            if let Some(file) = self.files.get_mut(&row.block.entry)
                && file.phase == Phase::Receiving
                && file.may_hold(row, header, self.config.buffer_bytes)
            {
                if *is_good {
                    file.in_flight += 1;
                    if let Some(placed) = &mut file.ahead {
                        self.ahead.on_come(now, placed, row.block.length.into());
                    }
                    good.push((*row, place));
                } else {
                    self.on_damaged(row, ost);
                }
            }
            place += row.block.length;
        }
        let (place, is_comparison) = (Place::Buffer(buffer), header.has_only_sums);
        let mut write =
            Write { place, ost, room: ost, extents: Vec::new(), rows: good, is_comparison };
        let (bytes, at_once_max) = (write.bytes(), self.config.at_once_max);
        if write.rows.is_empty() {
            return Some(write);
        }
        write.ost = self.ost_of(&write);
        if self.queues.start_at_once(now, write.ost, bytes, at_once_max) {
            self.grow(&mut write);
            return Some(write);
        }
        self.queues.push(write.ost, write, bytes);
        None
    }

    /// A frame that [`Self::admit`] let in did not arrive whole.
    pub fn on_frame_lost(&mut self, ost: OstId) {
        self.grants.on_lost(ost);
        self.finish_stop_if_idle();
    }

    /// A frame of which nothing was left to write; its buffer is free.
    pub fn on_empty_frame(&mut self, ost: OstId) {
        self.grants.on_release(ost);
        self.finish_stop_if_idle();
    }

    /// What an I/O thread should do now, if anything.
    pub fn next_task(&mut self, now: Instant) -> Option<Task> {
        if let Some(task) = self.next_release().or_else(|| self.next_sync(now)) {
            return Some(task);
        }
        // The source waits to hear of these, and may have another file in their place.
        if !self.to_discard.is_empty() {
            return Some(Task::Discard(std::mem::take(&mut self.to_discard)));
        }
        if self.stop == Stop::No
            && let Some(task) = self.next_commit_or_examine()
        {
            return Some(task);
        }
        if let Some(write) = self.next_write(now) {
            return Some(Task::Write(write));
        }
        if let Some(task) = self.next_to_stage() {
            return Some(task);
        }
        if !self.to_close.is_empty() && self.stop == Stop::No {
            return Some(Task::Close(std::mem::take(&mut self.to_close)));
        }
        if let Some(is_permitted) = self.next_removal() {
            return Some(Task::Remove { is_permitted });
        }
        if let Finish::Asked { is_complete } = self.finish
            && self.removal.is_over()
            && self.stop == Stop::No
        {
            self.finish = Finish::Running;
            return Some(Task::Finish { is_complete });
        }
        None
    }

    /// When [`Self::next_task`] may have something to do although nothing happens till then.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.is_syncing {
            return None;
        }
        self.unsynced_since.map(|since| since + self.config.batch_interval)
    }

    /// Whether [`Self::next_task`] may find something, but for what only time makes due: worth a
    /// thread's while to ask.
    #[must_use]
    pub fn may_have_task(&self) -> bool {
        let has_commit =
            !self.to_commit.is_empty() && self.commits_running < self.config.commits_max;
        let has_sync = !self.is_syncing
            && !self.unsynced.is_empty()
            && (self.is_sync_urgent || self.unsynced_bytes >= self.config.batch_bytes);
        has_commit
            || has_sync
            || !self.to_release.is_empty()
            || self.ahead.has_next()
            || (self.may_write() && (self.queues.has_ready() || self.may_steal()))
            || self.may_stage()
            || !self.to_discard.is_empty()
            || !self.to_close.is_empty()
            || (matches!(self.finish, Finish::Asked { .. }) && !self.removal.is_running())
    }

    /// Whether [`Self::next_message`] has something.
    #[must_use]
    pub fn has_message(&self) -> bool {
        self.grants.has_new()
            || !self.answers.is_empty()
            || !self.block_dones.is_empty()
            || !self.endings.is_empty()
            || !self.messages.is_empty()
    }

    /// The next message for the source, if any.
    pub fn next_message(&mut self) -> Option<Message> {
        let grants = self.grants.take_new();
        if !grants.is_empty() {
            return Some(Message::Grant(grants));
        }
        if !self.answers.is_empty() {
            return Some(Message::FileId(take_answers(&mut self.answers)));
        }
        if !self.block_dones.is_empty() {
            return Some(Message::BlockDone(take_rows(&mut self.block_dones)));
        }
        if !self.endings.is_empty() {
            return Some(Message::FileDone(take_rows(&mut self.endings)));
        }
        self.messages.pop_front()
    }

    /// Whether either end has asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop != Stop::No
    }

    /// Whether everything that was asked is done, and the last word is out or waiting to go.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.finish == Finish::Done || self.stop == Stop::Done
    }

    /// Whether everything was ended, not stopped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finish == Finish::Done
    }

    /// How far it has come.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of the files that are placed now, or before anything else has come.
    #[must_use]
    pub fn coming_bytes(&self) -> u64 {
        self.ahead.coming_bytes()
    }

    /// Bytes of the files that have got a place so far, and of those that have none yet.
    #[must_use]
    pub fn transfer_bytes(&self) -> u64 {
        self.ahead.transfer_bytes()
    }

    /// How long the first extent of a file is that is placed now, in bytes: one that is longer may
    /// grow. `None` if none should.
    #[must_use]
    pub fn extent_bytes(&self) -> Option<u64> {
        let left = self.ahead.transfer_bytes().saturating_sub(self.counters.bytes_done);
        let can_grow = self.config.growth.is_some() && self.ahead.is_limited();
        let unit_bytes = self.extent_unit_bytes();
        can_grow.then(|| growth::extent_bytes(left, self.queues.ost_count(), unit_bytes))
    }

    /// Extents begin at multiples of this, so that a block is on one OST, and no file grows that is
    /// in a frame with others.
    fn extent_unit_bytes(&self) -> u64 {
        let unit_bytes = self.config.growth.map_or(1, |config| config.unit_bytes);
        u64::from(self.config.buffer_bytes).max(PACKED_BYTES_MAX).next_multiple_of(unit_bytes)
    }

    /// How many times as long as usual requests to each OST are expected to take, in thousandths;
    /// 1000 for those that are not congested.
    pub fn slowness(&self, now: Instant) -> impl Iterator<Item = u32> + '_ {
        self.queues.slowness(now)
    }

    /// What each sink OST did.
    pub fn ost_stats(&self) -> impl Iterator<Item = &OstStats> {
        self.queues.stats()
    }

    fn next_write(&mut self, now: Instant) -> Option<Write> {
        if !self.may_write() {
            return None;
        }
        let is_stopping = self.stop != Stop::No;
        let Self { aside, queues, .. } = self;
        let take = |_, waiting: &mut VecDeque<Write>, _| {
            let write = aside.take(waiting, is_stopping)?;
            let bytes = write.bytes();
            Some((write, bytes))
        };
        let next = match self.config.policy.takes_best() {
            true => queues.next_best(now, false, take),
            false => queues.next(now, take),
        };
        let Some((_, mut write)) = next else { return self.next_stolen(now) };
        self.grow(&mut write);
        Some(write)
    }

    fn next_commit_or_examine(&mut self) -> Option<Task> {
        if !self.to_commit.is_empty() && self.commits_running < self.config.commits_max {
            self.commits_running += 1;
            let count = self.to_commit.len().min(COMMIT_COUNT);
            return Some(Task::Commit(self.to_commit.drain(..count).collect()));
        }
        self.next_examine()
    }

    /// Entries to look at, as many as may be placed. Those of large files are few, so that the
    /// threads share them: the first blocks come when the first files have their place.
    fn next_examine(&mut self) -> Option<Task> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        while entries.len() < EXAMINE_COUNT
            && bytes < EXAMINE_BYTES
            && let Some((entry, placed)) = self.ahead.take_next()
        {
            bytes = placed.map_or(bytes, |placed| placed.bytes.saturating_add(bytes));
            match (self.files.get_mut(&entry.id), placed) {
                (Some(file), placed) => file.ahead = placed,
                (None, Some(mut placed)) => self.ahead.on_given_up(&mut placed, u64::MAX),
                (None, None) => {}
            }
            entries.push(entry);
        }
        (!entries.is_empty()).then_some(Task::Examine(entries))
    }

    /// Acts on a message that passed [`Self::check`].
    fn on_message(&mut self, message: Message) {
        match message {
            Message::Roots(_) => self.announced.on_roots(),
            Message::NewFile(entries) => self.on_new_files(entries),
            Message::FileDone(endings) => {
                for (entry, ending) in endings {
                    self.on_source_ending(entry, &ending);
                }
            }
            Message::Finish { is_complete } => self.finish = Finish::Asked { is_complete },
            Message::Stop(_) => self.on_stop(),
            Message::Staged(bytes) => self.ahead.on_staged(bytes),
            Message::There { number, answers } => self.removal.on_answer(number, answers),
            _ => {}
        }
    }

    fn on_new_files(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.announced.on_announced(&entry);
            if let Kind::File { identity, data_bytes, .. } = entry.kind {
                self.files.insert(entry.id, File::new(identity.size, data_bytes));
            }
            self.ahead.push(entry);
        }
    }

    fn on_examined(&mut self, entry: EntryId, examined: Examined) {
        let (mut done, layout, extents) = match examined {
            Examined::Want { done, layout, extents } => (done, layout.in_pages(), extents),
            Examined::Compare { layout } => return self.compare(entry, layout.in_pages()),
            Examined::Answer(answer) => return self.on_answered(entry, answer),
        };
        let unit_bytes = self.extent_unit_bytes();
        let config = self.config.growth.map(|config| GrowthConfig { unit_bytes, ..config });
        let Some(file) = self.files.get_mut(&entry) else { return };
        file.layout = Some(layout.clone());
        file.growth = config.and_then(|config| Growth::new(file.size, extents, config));
        self.growing_count += usize::from(file.growth.is_some());
        // What no attempt of this program can have left is not there.
        done.retain(|block| file.is_block(block.offset, u64::from(block.length)));
        let ranges: RangeSet =
            done.iter().map(|b| b.offset..b.offset + u64::from(b.length)).collect();
        self.range_count += ranges.range_count();
        if self.config.verifies_media {
            file.records = done.iter().map(|b| ((b.offset, b.length), *b)).collect();
        }
        file.written = ranges.clone();
        file.on_record = ranges.clone();
        if let Some(placed) = &mut file.ahead {
            self.ahead.on_decided(placed, layout.ost_at(0));
            self.ahead.on_given_up(placed, ranges.byte_count());
        }
        if file.size == 0 {
            // There is nothing to send: the file is whole as announced.
            file.is_whole = true;
            self.commit_if_complete(entry);
            return;
        }
        self.answer_in_parts(entry, ranges, layout);
    }

    /// What is under an entry's name, if that needs no data. Of a directory more will be heard.
    fn on_answered(&mut self, entry: EntryId, answer: Answer) {
        self.removal.has_failed |= matches!(answer, Answer::Failed(_));
        self.forget(entry);
        if !self.announced.is_directory(entry) {
            self.announced.on_ended(entry);
        }
        self.answers.push_back((entry, answer));
    }

    /// Says that a file is wanted, and what of it is there; in several answers if that is long.
    fn answer_in_parts(&mut self, entry: EntryId, mut done: RangeSet, layout: Layout) {
        while done.range_count() > RANGES_PER_MESSAGE {
            let part = done.split_first(RANGES_PER_MESSAGE);
            self.answers.push_back((entry, Answer::Begun { done: part }));
        }
        self.answers.push_back((entry, Answer::Want { done, layout }));
    }

    fn on_source_ending(&mut self, entry: EntryId, ending: &Ending) {
        let Some(file) = self.files.get_mut(&entry) else {
            // Of a file that has failed here meanwhile both know.
            if self.announced.on_closing(entry) {
                self.to_close.push(entry);
            }
            return;
        };
        match ending {
            Ending::Complete => {
                file.is_vouched = true;
                self.commit_if_complete(entry);
            }
            // What failed here already is about to be dropped.
            Ending::Dropped if file.phase.is_ending() => {}
            // It was to be placed again, and its only block was under way already.
            Ending::Dropped if file.phase == Phase::Committing => file.is_given_up = true,
            Ending::Dropped => {
                self.give_up(entry);
                self.discard_if_idle(entry);
            }
            Ending::Failed(_) | Ending::Same | Ending::Different | Ending::Incomplete => {
                unreachable!("the gate takes none of these from a source")
            }
        }
    }

    fn on_damaged(&mut self, row: &Row, ost: OstId) {
        let file = self.files.get_mut(&row.block.entry).expect("looked up by the caller");
        file.resends += 1;
        if file.resends > self.config.resends_max {
            let failure = Failure::new(Side::Sink, Operation::Verify, Reason::Checksum);
            let (offset, length) = (row.block.offset, row.block.length);
            self.fail(row.block.entry, failure.of_block(offset, length, ost));
            return;
        }
        self.counters.blocks_resent += 1;
        self.messages.push_back(Message::BlockBad(vec![BlockRange {
            entry: row.block.entry,
            offset: row.block.offset,
            length: u64::from(row.block.length),
        }]));
    }

    fn on_written(
        &mut self,
        now: Instant,
        write: &Write,
        service: Duration,
        failures: &[Option<Failure>],
    ) {
        self.queues.finish(now, write.ost, write.bytes(), service);
        if self.ahead.is_limited() {
            self.ahead.on_congestion(self.queues.congested(), self.queues.is_calm(now));
        }
        match write.place {
            Place::Buffer(_) => self.grants.on_release(write.room),
            Place::Stage(slot) => self.aside.on_drained(slot),
        }
        for ((row, _), failure) in write.rows.iter().zip(failures) {
            match failure {
                Some(failure) => {
                    self.release_block(row.block.entry);
                    self.fail(row.block.entry, *failure);
                }
                None => self.on_block_written(now, row),
            }
        }
        self.place_again(now);
    }

    fn on_block_written(&mut self, now: Instant, row: &Row) {
        let entry = row.block.entry;
        self.release_block(entry);
        let Some(file) = self.files.get_mut(&entry) else { return };
        if file.phase != Phase::Receiving {
            self.discard_if_idle(entry);
            return;
        }
        let record = BlockRecord {
            offset: row.block.offset,
            length: row.block.length,
            checksum: row.checksum,
        };
        let ranges_before = file.written.range_count();
        let new_bytes = file.written.insert(row.block.offset..row.block.end());
        self.range_count = self.range_count + file.written.range_count() - ranges_before;
        self.counters.bytes_done += new_bytes;
        if self.config.verifies_media {
            file.records.insert((record.offset, record.length), record);
        }
        file.is_whole |= row.is_whole;
        if file.is_whole {
            self.commit_if_complete(entry);
        } else if self.config.has_journal {
            if file.unsynced.is_empty() {
                self.unsynced.push(entry);
            }
            file.unsynced.push(record);
            self.unsynced_bytes += u64::from(row.block.length);
            self.unsynced_since.get_or_insert(now);
            self.is_sync_urgent |= file.written.byte_count() >= file.data_bytes;
        } else {
            file.on_record.insert(row.block.offset..row.block.end());
            self.block_dones.push_back(range_of(entry, &record));
            self.commit_if_complete(entry);
        }
    }

    fn release_block(&mut self, entry: EntryId) {
        if let Some(file) = self.files.get_mut(&entry) {
            file.in_flight -= 1;
        } else if let Some(count) = self.late.get_mut(&entry) {
            *count -= 1;
            if *count == 0 {
                self.late.remove(&entry);
                self.announced.on_written(entry);
            }
        }
    }

    fn fail(&mut self, entry: EntryId, failure: Failure) {
        let Some(file) = self.files.get_mut(&entry) else { return };
        if !file.phase.is_ending() {
            let has_journal = self.config.has_journal && !file.is_compared;
            let is_kept = has_journal && !file.on_record.is_empty();
            file.phase = Phase::Dropping { is_kept, failure: Some(failure) };
            if !is_kept {
                self.take_back(entry);
            }
        }
        self.discard_if_idle(entry);
    }

    /// A file is no longer wanted: nothing more of it is written, and nothing of it is kept.
    fn give_up(&mut self, entry: EntryId) {
        let Some(file) = self.files.get_mut(&entry) else { return };
        file.phase = Phase::Dropping { is_kept: false, failure: None };
        if let Some(placed) = &mut file.ahead {
            self.ahead.on_given_up(placed, u64::MAX);
        }
        self.take_back(entry);
        self.release_waiting(entry);
    }

    /// Nothing will be left of a file: what was to be said of its blocks is no longer true.
    fn take_back(&mut self, entry: EntryId) {
        self.block_dones.retain(|range| range.entry != entry);
    }

    /// Drops a file if nothing is done with it. One that is to be announced anew does not wait for
    /// what is being written of it: that is for an OST that has turned slow, and goes to a file
    /// that nobody reads any more.
    fn discard_if_idle(&mut self, entry: EntryId) {
        if let Some(file) = self.files.get_mut(&entry)
            && let Phase::Dropping { is_kept, failure } = file.phase
            && (file.in_flight == 0 || failure.is_none())
            && !file.is_syncing
        {
            file.phase = Phase::Discarding { failure };
            file.unsynced.clear();
            self.to_discard.push(Discard { entry, is_kept, failure });
        }
    }

    fn forget(&mut self, entry: EntryId) -> Option<File> {
        let mut file = self.files.remove(&entry)?;
        match file.in_flight {
            0 => self.announced.on_ended(entry),
            count => {
                self.announced.on_ended_early(entry);
                self.late.insert(entry, count);
            }
        }
        self.range_count -= file.written.range_count();
        self.growing_count -= usize::from(file.growth.is_some());
        if let Some(placed) = &mut file.ahead {
            self.ahead.on_given_up(placed, u64::MAX);
        }
        Some(file)
    }

    fn on_discarded(&mut self, entries: &[EntryId]) {
        for &entry in entries {
            let Some(file) = self.forget(entry) else { continue };
            let Phase::Discarding { failure } = file.phase else { continue };
            self.removal.has_failed |= failure.is_some();
            let ending = match failure {
                Some(failure) => Ending::Failed(failure),
                None if file.is_different => Ending::Different,
                None => Ending::Dropped,
            };
            self.endings.push_back((entry, ending));
        }
    }

    fn on_stop(&mut self) {
        // What has all ended is as quickly finished as stopped, if nothing is to be removed.
        let is_removing = self.finish != Finish::No && !self.removal.is_over();
        if self.stop == Stop::No && (self.finish == Finish::No || is_removing) {
            self.stop = Stop::Asked;
            self.ahead.close();
        }
    }

    fn finish_stop_if_idle(&mut self) {
        if self.stop != Stop::Asked {
            return;
        }
        self.is_sync_urgent = true;
        let is_idle = self.grants.held_count() == 0
            && !self.aside.is_draining()
            && !self.is_syncing
            && !self.removal.is_running()
            && self.unsynced.is_empty()
            && self.commits_running == 0;
        if is_idle {
            self.stop = Stop::Done;
            self.messages.push_back(Message::Finished(self.counters.clone()));
        }
    }
}

impl File {
    fn new(size: u64, data_bytes: u64) -> Self {
        Self {
            size,
            data_bytes,
            layout: None,
            growth: None,
            written: RangeSet::new(),
            on_record: RangeSet::new(),
            unsynced: Vec::new(),
            records: BTreeMap::new(),
            ahead: None,
            is_placed_again: false,
            in_flight: 0,
            is_whole: false,
            is_vouched: false,
            is_syncing: false,
            is_given_up: false,
            is_compared: false,
            is_different: false,
            resends: 0,
            phase: Phase::Receiving,
        }
    }

    /// Whether a block can be one of this file, as far as its place and length tell.
    fn is_block(&self, offset: u64, length: u64) -> bool {
        let end = offset.checked_add(length);
        (1..=u64::from(BLOCK_BYTES_MAX)).contains(&length)
            && gate::is_aligned(offset)
            && end.is_some_and(|end| end == self.size || end < self.size && gate::is_aligned(end))
    }

    /// Whether a row of a frame can be one of this file, in such a buffer.
    fn may_hold(&self, row: &Row, header: &Header, buffer_bytes: u32) -> bool {
        let block = row.block;
        self.is_compared == header.has_only_sums
            && self.is_block(block.offset, block.length.into())
            && block.length <= buffer_bytes
            && self.layout.as_ref().is_some_and(|layout| {
                layout.ost_at(block.offset) == header.sink_ost
                    && block.end() <= layout.stripe_end(block.offset)
            })
            && (!row.is_whole || u64::from(block.length) == self.size)
    }
}

/// As many answers as fit well into a message.
fn take_answers(answers: &mut VecDeque<(EntryId, Answer)>) -> Vec<(EntryId, Answer)> {
    let mut taken = Vec::new();
    let mut bytes = 0;
    while taken.len() < ROWS_PER_MESSAGE
        && bytes < ANSWERS_BYTES
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

fn take_rows<T>(rows: &mut VecDeque<T>) -> Vec<T> {
    let count = rows.len().min(ROWS_PER_MESSAGE);
    rows.drain(..count).collect()
}

fn range_of(entry: EntryId, block: &BlockRecord) -> BlockRange {
    BlockRange { entry, offset: block.offset, length: u64::from(block.length) }
}
