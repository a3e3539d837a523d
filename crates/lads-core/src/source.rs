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
//! A file of a single block skips the checking: its block carries the word that the file was the
//! same after it was read. A directory is ended when the walk is through with it and everything
//! in it has ended, so that its time of change is set last.

mod answers;
mod comparison;
mod directories;
mod event;
mod links;
mod questions;
mod streams;

use crate::congestion::Threshold;
use crate::entry::{Entry, Kind};
use crate::frame::Row;
pub use crate::gate::ProtocolError;
use crate::gate::{AtSource, impossible, is_aligned};
use crate::issue::{Failure, Operation, Reason, Side};
use crate::layout::Layout;
use crate::limits::{
    AGAIN_MAX, DIRECTORY_METADATA_BYTES_MAX, ENTRY_BYTES_MAX, METADATA_BYTES_MAX, RESENDS_MAX,
};
use crate::message::{BlockRange, Counters, Ending, Message, Verb};
use crate::pace::Pace;
use crate::range::RangeSet;
use crate::schedule::{OstSpec, OstStats, Policy, Schedule, Way, Work};
use crate::units::{Block, EntryId, Instant};
use directories::Directories;
pub use event::{Event, Found, LinkName, Note, Outcome, ReadOutcome, Task};
use links::{LinkKey, LinkRole, Links};
use questions::Questions;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use streams::Stream;

/// How a source behaves.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// By which rule blocks are handed to I/O threads.
    pub policy: Policy,
    /// What is slow, for [`Policy::Threshold`].
    pub threshold: Threshold,
    /// No block is longer, in bytes; a multiple of 4096.
    pub block_size: u32,
    /// Files and links announced and not ended, and directories that are being ended; memory grows
    /// with this, not with the tree.
    pub window_entries: u64,
    /// Data streams to the sink.
    pub stream_count: u16,
    /// Whether nothing is moved, and only told what would be.
    pub is_dry_run: bool,
    /// Whether the sink may pass entries over, because the person asked for it.
    pub may_pass: bool,
    /// Whether the sink may ask which names there are, to remove what is not.
    pub may_be_asked: bool,
    /// Whether all that the person named is there.
    pub is_all_there: bool,
    /// Whether the sink may ask for checksums of files that it has, to compare them.
    pub is_comparing: bool,
    /// Directories announced and not ended, that of the target included. The walk goes depth
    /// first, so all of them end without it but those on the way to where it is: at most
    /// [`DEPTH_MAX`](crate::limits::DEPTH_MAX), that of the target, and those that it has met and
    /// not yet told. With room for more than these it never waits for itself.
    pub window_directories: u64,
    /// Files open at a time.
    pub open_files_max: u32,
    /// How often a file that changed while it moved is tried again.
    pub retries_max: u32,
    /// The most to send in a second, if there is a limit.
    pub bytes_per_second: Option<u64>,
    /// Bytes of the stage; none if zero.
    pub stage_bytes: u64,
    /// Threads that may be busy reading for the stage and writing to it at a time.
    pub stage_threads_max: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To be announced: NEW_FILE has not been handed out.
    Found,
    Announced,
    Moving,
    Checking,
    Finishing,
    /// The sink was told to drop it: for what went wrong, or only to place it again.
    Dropping(Option<Failure>),
    Replacing,
}

#[derive(Debug)]
struct Open {
    parent: EntryId,
    verb: Verb,
    phase: Phase,
    data_bytes: u64,
    attempt: u32,
    /// Whether the sink has asked for it to be announced anew; it may do so once.
    is_placed_again: bool,
    /// What a comparison with the sink's has found, if there was one.
    comparison: Comparison,
    /// Kept until the sink says where the file will lie.
    place: Option<Place>,
    link: Option<LinkKey>,
    /// What the sink has, durable.
    confirmed: RangeSet,
    /// Bytes of it that the counters count as done; of these, bytes of an earlier attempt.
    done_bytes: u64,
    skipped_bytes: u64,
    size: u64,
    /// How often the sink has asked for blocks of it again.
    bad_count: u32,
    /// What it takes to announce it, in bytes.
    metadata_bytes: u64,
}

/// Whether a file is compared with what the sink has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// It is not, and need not have been.
    None,
    /// Its checksums are on their way.
    Running,
    /// It was, and is different.
    Different,
}

/// Where a file lies, and where it has data.
#[derive(Debug)]
struct Place {
    layout: Layout,
    mirrors: Vec<Layout>,
    data: Option<RangeSet>,
    disk_offset: Option<u64>,
}

/// The source's session.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    /// What the sink has said of itself and may say.
    gate: AtSource,
    schedule: Schedule,
    pace: Option<Pace>,
    /// Whether a thread found something to send that the limit did not let through yet.
    waits_for_limit: bool,
    open: HashMap<EntryId, Open>,
    directories: Directories,
    links: Links<Box<Found>>,
    streams: Vec<Stream>,
    /// Files that ended badly after blocks of them were handed out.
    failed: HashSet<EntryId>,
    /// Entries announced (or held back) and not ended.
    outstanding: u64,
    /// Of these, names and attributes in bytes.
    metadata_bytes: u64,
    /// Separate ranges of bytes that the sink has, of all files together.
    range_count: usize,
    announced_last: EntryId,
    is_ready: bool,
    stop: Stop,
    is_finished: bool,
    checks: VecDeque<Task>,
    questions: Questions,
    new_files: VecDeque<Entry>,
    endings: VecDeque<(EntryId, Ending)>,
    messages: VecDeque<Message>,
    /// What the sink was last told of the stage.
    staged_bytes_told: u64,
    notes: VecDeque<Note>,
    counters: Counters,
}

#[derive(Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// Said to the sink, which has not yet said that all is on record.
    Asked,
    Done,
}

/// Bytes of entries in one NEW_FILE, about.
const NEW_FILE_BYTES: usize = 64 << 10;

/// The sink is told when the stage holds this many bytes more or less: what it places in any case.
const STAGED_STEP_BYTES: u64 = 8 << 20;

/// Entries in one FILE_DONE.
const FILE_DONE_COUNT: usize = 1000;

impl Source {
    /// A session that reads from these OSTs.
    #[must_use]
    pub fn new(config: SourceConfig, osts: &[OstSpec]) -> Self {
        let mut schedule = Schedule::new(config.policy, config.threshold, osts, config.block_size);
        schedule.set_begun_max(config.open_files_max);
        schedule.set_stage(config.stage_bytes, config.stage_threads_max);
        Self {
            schedule,
            pace: Pace::new(config.bytes_per_second),
            waits_for_limit: false,
            gate: AtSource::new(config.stream_count),
            config,
            open: HashMap::new(),
            directories: Directories::new(),
            links: Links::default(),
            streams: Vec::new(),
            failed: HashSet::new(),
            outstanding: 0,
            metadata_bytes: 0,
            range_count: 0,
            announced_last: EntryId::ROOT,
            is_ready: false,
            stop: Stop::No,
            is_finished: false,
            checks: VecDeque::new(),
            questions: Questions::default(),
            new_files: VecDeque::new(),
            endings: VecDeque::new(),
            messages: VecDeque::new(),
            staged_bytes_told: 0,
            notes: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Whether the sink may say this now, as far as no single file is concerned; [`Self::handle`]
    /// asks again, and looks at the files.
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
        match event {
            Event::Found(found) => self.on_found(found),
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
                self.outstanding += 1;
                self.end(entry, parent, Outcome::Failed(failure));
            }
            Event::Passed { entry, parent, pass } => {
                self.directories.on_child(parent);
                self.outstanding += 1;
                self.counters.files_found += 1;
                self.counters.passed.add(pass);
                self.end(entry, parent, Outcome::Passed);
            }
            Event::Gone { entry, failure } => {
                if let Some(open) = self.open.remove(&entry) {
                    self.end_file(entry, &open, Outcome::Failed(failure));
                }
            }
            Event::WalkEnded => {
                self.counters.is_walk_ended = true;
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
            Event::LookedUp { question, answers } => self.on_looked_up(&question, answers),
            Event::Stop(reason) => self.stop(reason),
        }
        Ok(())
    }

    /// Whether the walk should go on now; otherwise enough is under way.
    #[must_use]
    pub fn wants_entries(&self) -> bool {
        self.is_ready
            && self.stop == Stop::No
            && self.outstanding < self.config.window_entries
            && self.metadata_bytes < METADATA_BYTES_MAX
            && self.directories.open_count() < self.config.window_directories
    }

    /// What the I/O thread numbered `worker` should do now, if anything.
    pub fn next_task(&mut self, now: Instant, worker: usize) -> Option<Task> {
        if self.stop != Stop::No {
            return None;
        }
        if let Some(task) = self.checks.pop_front() {
            return Some(task);
        }
        if let Some(question) = self.questions.waiting.pop_front() {
            return Some(Task::LookUp(question));
        }
        let is_paced = self.pace.as_ref().is_some_and(|pace| pace.ready_at() > now);
        if is_paced || !self.has_few_unsettled() {
            self.waits_for_limit |= is_paced && self.schedule.may_have_work();
            return None;
        }
        let work = self.schedule.next(now, worker);
        let has_waited = std::mem::take(&mut self.waits_for_limit);
        let work = work?;
        if let Some(pace) = &mut self.pace
            && !matches!(work.way, Way::Stage(_))
            && !work.is_comparison
        {
            pace.on_sent(now, work.bytes());
            self.counters.bytes_limited += if has_waited { work.bytes() } else { 0 };
        }
        Some(Task::Read(work))
    }

    /// When [`Self::next_task`] may have something to do although nothing happens till then.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.pace.as_ref().map(Pace::ready_at)
    }

    /// Whether [`Self::next_task`] may find something: worth a thread's while to ask.
    #[must_use]
    pub fn may_have_task(&self) -> bool {
        self.stop == Stop::No
            && (!self.checks.is_empty()
                || !self.questions.waiting.is_empty()
                || self.schedule.may_have_work())
    }

    /// Whether [`Self::next_message`] has something.
    #[must_use]
    pub fn has_message(&self) -> bool {
        !self.new_files.is_empty()
            || !self.endings.is_empty()
            || !self.messages.is_empty()
            || self.has_stage_news()
    }

    /// The next message for the sink, if any.
    pub fn next_message(&mut self) -> Option<Message> {
        if !self.new_files.is_empty() {
            let mut bytes = 0;
            let mut entries = Vec::new();
            while bytes < NEW_FILE_BYTES
                && let Some(entry) = self.new_files.pop_front()
            {
                bytes += 100 + entry.variable_bytes();
                self.on_announced(entry.id);
                entries.push(entry);
            }
            return Some(Message::NewFile(entries));
        }
        if !self.endings.is_empty() {
            let count = self.endings.len().min(FILE_DONE_COUNT);
            return Some(Message::FileDone(self.endings.drain(..count).collect()));
        }
        if self.has_stage_news() {
            self.staged_bytes_told = self.schedule.staged_bytes();
            return Some(Message::Staged(self.staged_bytes_told));
        }
        self.messages.pop_front()
    }

    /// The next entry that ended, if any.
    pub fn next_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// Whether either end has asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop != Stop::No
    }

    /// Whether the sink has said that all is durable and on record: the session is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_finished || self.stop == Stop::Done
    }

    /// Whether everything was ended, not stopped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// How far it has come.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What each source OST did.
    pub fn ost_stats(&self) -> impl Iterator<Item = &OstStats> {
        self.schedule.stats()
    }

    /// An entry is handed out to be announced: from now on the sink may speak of it.
    fn on_announced(&mut self, entry: EntryId) {
        match self.open.get_mut(&entry) {
            Some(open) => open.phase = Phase::Announced,
            None => self.directories.on_announced(entry),
        }
        self.announced_last = self.announced_last.max(entry);
    }

    /// Whether the sink should be told how much is in the stage.
    fn has_stage_news(&self) -> bool {
        let (bytes, told) = (self.schedule.staged_bytes(), self.staged_bytes_told);
        bytes.abs_diff(told) >= STAGED_STEP_BYTES || (bytes == 0 && told > 0)
    }

    fn on_found(&mut self, mut found: Box<Found>) {
        let parent = found.entry.parent;
        self.count_found(&found);
        if found.entry.is_directory() {
            self.on_directory(found.entry);
            return;
        }
        if found.entry.variable_bytes() > ENTRY_BYTES_MAX {
            self.on_too_large(&found);
            return;
        }
        if let Some(old) = found.replaces {
            let Some(open) = self.open.remove(&old) else { return };
            self.forget_tables(&open);
            let before = (open.attempt, open.is_placed_again);
            if let Kind::File { is_different, .. } = &mut found.entry.kind {
                *is_different = open.comparison == Comparison::Different;
            }
            self.failed.insert(old);
            let key = self.keep_link(&found.entry, open.link);
            self.counters.bytes_found -= open.data_bytes;
            self.notes.push_back(Note { entry: old, outcome: Outcome::Replaced });
            self.open_file(*found, before, key);
            return;
        }
        self.outstanding += 1;
        self.directories.on_child(parent);
        let mut key = None;
        if let Some(name) = found.link.take() {
            key = Some(LinkKey { device: name.device, inode: name.inode });
            match self.links.on_found(&name) {
                LinkRole::First => {}
                LinkRole::Waits => {
                    found.link = Some(name);
                    self.links.hold(found);
                    return;
                }
                LinkRole::Further { target } => return self.open_further(*found, target),
            }
        }
        self.open_file(*found, (0, false), key);
    }

    /// A directory goes without its attributes if they are too many, so that what is in it arrives.
    fn on_directory(&mut self, mut entry: Entry) {
        let bytes = entry.variable_bytes();
        let all_bytes = self.directories.metadata_bytes().saturating_add(bytes as u64);
        let is_too_large = bytes > ENTRY_BYTES_MAX || all_bytes > DIRECTORY_METADATA_BYTES_MAX;
        if is_too_large {
            entry.metadata.xattrs.clear();
        }
        self.directories.on_found(entry.id, entry.parent, entry.variable_bytes() as u64);
        if is_too_large {
            self.directories.on_failed(entry.id, large_metadata());
        }
        self.new_files.push_back(entry);
    }

    /// An entry that is no directory has more attributes than can be told at a time.
    fn on_too_large(&mut self, found: &Found) {
        let outcome = Outcome::Failed(large_metadata());
        if let Some(old) = found.replaces {
            if let Some(open) = self.open.remove(&old) {
                self.end_file(old, &open, outcome);
            }
            return;
        }
        self.directories.on_child(found.entry.parent);
        self.outstanding += 1;
        self.end(found.entry.id, found.entry.parent, outcome);
    }

    /// A further name of a file that the sink has under another. If that one lies too deep to be
    /// told, the name fails: sent as a file of its own, it would not be a name of the same file.
    fn open_further(&mut self, mut found: Found, target: Option<Vec<u8>>) {
        let Some(target) = target else {
            let failure = Failure::new(Side::Source, Operation::Examine, Reason::TooDeep);
            return self.end(found.entry.id, found.entry.parent, Outcome::Failed(failure));
        };
        found.entry.kind = Kind::HardLink { target };
        self.open_file(found, (0, false), None);
    }

    /// The link of a first name that is looked at anew, if that still leads to the same file;
    /// otherwise the next name is first.
    fn keep_link(&mut self, entry: &Entry, link: Option<LinkKey>) -> Option<LinkKey> {
        let key = link?;
        if matches!(entry.kind, Kind::File { identity, .. } if identity.inode == key.inode) {
            return Some(key);
        }
        for (found, role) in self.links.on_first_ended(key, false) {
            self.release_link(found, role, key);
        }
        None
    }

    /// `before` says how often it was tried before, and whether it was placed again.
    fn open_file(&mut self, found: Found, before: (u32, bool), link: Option<LinkKey>) {
        let (attempt, is_placed_again) = before;
        let Found { entry, layout, mirrors, data, disk_offset, .. } = found;
        let layout = layout.in_pages();
        let mirrors = mirrors.into_iter().map(Layout::in_pages).collect();
        let metadata_bytes = entry.variable_bytes() as u64;
        self.metadata_bytes += metadata_bytes;
        let (verb, data_bytes) = match &entry.kind {
            Kind::File { data_bytes, .. } => (Verb::Send, *data_bytes),
            Kind::HardLink { .. } => (Verb::HardLink, 0),
            Kind::Symlink { .. } => (Verb::Symlink, 0),
            Kind::Special { .. } | Kind::Directory => (Verb::Special, 0),
        };
        let open = Open {
            parent: entry.parent,
            verb,
            phase: Phase::Found,
            data_bytes,
            attempt,
            is_placed_again,
            comparison: match &entry.kind {
                Kind::File { is_different: true, .. } => Comparison::Different,
                _ => Comparison::None,
            },
            place: entry.is_file().then_some(Place { layout, mirrors, data, disk_offset }),
            link,
            confirmed: RangeSet::new(),
            done_bytes: 0,
            skipped_bytes: 0,
            size: entry.size(),
            bad_count: 0,
            metadata_bytes,
        };
        self.counters.bytes_found += data_bytes;
        self.open.insert(entry.id, open);
        self.new_files.push_back(entry);
    }

    fn count_found(&mut self, found: &Found) {
        if found.entry.is_directory() {
            self.counters.directories_found += 1;
        } else if found.replaces.is_none() {
            self.counters.files_found += 1;
        }
    }

    fn on_message(&mut self, message: Message) -> Result<(), ProtocolError> {
        match message {
            Message::Ready { ost_count, open_files_max } => {
                self.is_ready = true;
                self.gate.on_ready(ost_count);
                self.schedule.set_begun_max(self.config.open_files_max.min(open_files_max));
            }
            Message::FileId(answers) => {
                for (entry, answer) in answers {
                    self.on_answer(entry, answer)?;
                }
            }
            Message::Grant(grants) => {
                for (ost, count) in grants {
                    self.schedule.on_grant(ost, count);
                }
            }
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
                    self.on_file_done(entry, ending)?;
                }
            }
            Message::PlaceAgain(entries) => {
                for entry in entries {
                    self.place_again(entry)?;
                }
            }
            Message::AreThere(question) => self.on_question(question),
            Message::Removed(count) => self.counters.entries_removed = count,
            Message::StreamEnd { stream, frames } => {
                self.gate.on_stream_end(stream);
                self.on_stream_end(stream, frames);
            }
            // The sink stops of its own accord: FINISHED follows.
            Message::Stop(_) if self.stop == Stop::No => self.stop = Stop::Asked,
            Message::Stop(_) => {}
            Message::Finished(_) => {
                // Before everything has ended, it is the sink that stops.
                if self.stop == Stop::No && self.directories.is_root_closed() {
                    self.is_finished = true;
                } else {
                    self.stop = Stop::Done;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_if_complete(&mut self, entry: EntryId) {
        let Some(open) = self.open.get_mut(&entry) else { return };
        if open.phase != Phase::Moving {
            return;
        }
        let is_complete = self.schedule.plan(entry).is_some_and(|plan| match &plan.data {
            Some(data) => data.iter().all(|range| open.confirmed.contains(range)),
            None => open.confirmed.contains(0..plan.size),
        });
        if is_complete {
            open.phase = Phase::Checking;
            self.checks.push_back(Task::Check(entry));
        }
    }

    fn on_block_done(&mut self, range: BlockRange) -> Result<(), ProtocolError> {
        let Some(open) = self.open.get_mut(&range.entry) else {
            return self.check_was_announced(range.entry);
        };
        let Some(end) = open.end_of(&range) else { return Err(impossible(&range)) };
        let ranges_before = open.confirmed.range_count();
        let new_bytes = open.confirmed.insert(range.offset..end);
        self.range_count = self.range_count + open.confirmed.range_count() - ranges_before;
        open.done_bytes += new_bytes;
        self.counters.bytes_done += new_bytes;
        self.check_if_complete(range.entry);
        self.check_range_count()
    }

    fn on_block_bad(&mut self, range: BlockRange) -> Result<(), ProtocolError> {
        let Some(open) = self.open.get_mut(&range.entry) else {
            return self.check_was_announced(range.entry);
        };
        let Some(end) = open.end_of(&range) else { return Err(impossible(&range)) };
        open.bad_count += 1;
        if open.bad_count > RESENDS_MAX || self.schedule.again_count() > AGAIN_MAX {
            return Err(ProtocolError::TooMuch("blocks that are to be sent again"));
        }
        if matches!(open.phase, Phase::Dropping(_) | Phase::Replacing) {
            return Ok(());
        }
        open.phase = Phase::Moving;
        let ranges_before = open.confirmed.range_count();
        let bytes_before = open.confirmed.byte_count();
        let blocks = self.schedule.push_range_again(range.entry, range.offset..end);
        self.counters.blocks_resent += blocks.len() as u64;
        for block in &blocks {
            open.confirmed.remove(block.offset..block.end());
        }
        self.range_count = self.range_count + open.confirmed.range_count() - ranges_before;
        let lost_bytes = (bytes_before - open.confirmed.byte_count()).min(open.done_bytes);
        open.done_bytes -= lost_bytes;
        self.counters.bytes_done -= lost_bytes;
        let unskipped_bytes = open.skipped_bytes.saturating_sub(open.done_bytes);
        open.skipped_bytes -= unskipped_bytes;
        self.counters.bytes_skipped -= unskipped_bytes;
        Ok(())
    }

    fn send_again(&mut self, block: Block) {
        self.counters.blocks_resent += 1;
        self.schedule.push_again(block);
    }

    fn on_file_done(&mut self, entry: EntryId, ending: Ending) -> Result<(), ProtocolError> {
        if self.directories.is_open(entry) {
            let failure = match ending {
                Ending::Failed(failure) => Some(failure),
                _ => None,
            };
            self.end_directory(entry, failure);
            return Ok(());
        }
        let Some(open) = self.open.get(&entry) else {
            return self.check_was_announced(entry);
        };
        let outcome = match (ending, open.phase) {
            (_, Phase::Found) => return Err(ProtocolError::UnknownEntry(entry)),
            (Ending::Failed(failure), _) => Outcome::Failed(failure),
            (Ending::Same, _) => return self.on_compared(entry, true),
            (Ending::Different, _) => return self.on_compared(entry, false),
            (Ending::Complete, _) if open.comparison == Comparison::Running => {
                return Err(ProtocolError::OutOfPlace("FILE_DONE for a file that is compared"));
            }
            (Ending::Complete, Phase::Dropping(Some(_))) => return Ok(()),
            (Ending::Complete, _) => {
                self.counters.files_moved += 1;
                self.counters.files_verified += u64::from(open.verb == Verb::Send);
                self.counters.bytes_done += open.data_bytes.saturating_sub(open.done_bytes);
                Outcome::Done(open.verb, open.data_bytes)
            }
            (Ending::Dropped, Phase::Dropping(failure)) => {
                let is_tried_again = failure.is_none_or(|failure| {
                    failure.reason == Reason::Changed && open.attempt < self.config.retries_max
                });
                if is_tried_again && self.stop == Stop::No {
                    self.retry(entry, failure.is_some());
                    return Ok(());
                }
                // What was only to be placed again is left to the next attempt.
                let Some(failure) = failure else { return Ok(()) };
                Outcome::Failed(failure)
            }
            (Ending::Dropped, _) => {
                return Err(ProtocolError::OutOfPlace("FILE_DONE for a file not dropped"));
            }
            (Ending::Incomplete, _) => {
                return Err(ProtocolError::OutOfPlace("FILE_DONE as of a source"));
            }
        };
        self.end_open(entry, outcome);
        Ok(())
    }

    fn retry(&mut self, entry: EntryId, has_changed: bool) {
        let open = self.open.get_mut(&entry).expect("looked up by the caller");
        open.phase = Phase::Replacing;
        open.attempt += u32::from(has_changed);
        self.counters.bytes_done -= open.done_bytes;
        self.counters.bytes_skipped -= open.skipped_bytes;
        self.checks.push_back(Task::Examine(entry));
    }

    fn on_read(&mut self, now: Instant, work: &Work, service: Duration, outcomes: &[ReadOutcome]) {
        self.schedule.on_read(now, work, service);
        let mut good_count = 0;
        for (block, outcome) in work.blocks.iter().zip(outcomes) {
            match outcome {
                ReadOutcome::Good => good_count += 1,
                ReadOutcome::Failed(failure) => self.drop_file(block.entry, *failure),
                ReadOutcome::Changed => self.drop_file(block.entry, changed()),
            }
        }
        match work.way {
            _ if good_count > 0 => {}
            Way::Stage(slot) => self.schedule.on_not_staged(slot),
            Way::Send | Way::Drain(..) => self.schedule.on_not_sent(work.sink_ost),
        }
    }

    fn on_staged(&mut self, work: &Work, rows: Vec<Row>) {
        self.counters.bytes_staged += work.bytes();
        if let Way::Stage(slot) = work.way {
            self.schedule.on_staged(slot, work, rows);
        }
    }

    /// Blocks did not get into the stage, or not out of it: they are where they were before.
    fn read_again(&mut self, work: Work) {
        let work = self.free_slot(work);
        for block in work.blocks {
            if !is_settled(&self.open, &block) {
                self.schedule.push_again(block);
            }
        }
    }

    /// What was in the stage is in memory, or nowhere.
    fn free_slot(&mut self, mut work: Work) -> Work {
        match std::mem::replace(&mut work.way, Way::Send) {
            Way::Send => {}
            Way::Stage(slot) => self.schedule.on_not_staged(slot),
            Way::Drain(slot, _) => self.schedule.on_drained(slot),
        }
        work
    }

    /// The sink wants a file to be announced anew. If all of it is there already, or it is about to
    /// be announced anew for another reason, that is over.
    fn place_again(&mut self, entry: EntryId) -> Result<(), ProtocolError> {
        let Some(open) = self.open.get_mut(&entry) else {
            return self.check_was_announced(entry);
        };
        let is_first = !std::mem::replace(&mut open.is_placed_again, true);
        if is_first && open.phase == Phase::Moving {
            self.drop_data(entry, None);
        }
        Ok(())
    }

    /// The sink is to drop what it has of a file, because something went wrong.
    fn drop_file(&mut self, entry: EntryId, failure: Failure) {
        self.drop_data(entry, Some(failure));
    }

    fn drop_data(&mut self, entry: EntryId, failure: Option<Failure>) {
        let Some(open) = self.open.get_mut(&entry) else { return };
        if matches!(open.phase, Phase::Dropping(Some(_)) | Phase::Replacing) {
            return;
        }
        let is_told = matches!(open.phase, Phase::Dropping(None));
        open.phase = Phase::Dropping(failure);
        if is_told {
            return;
        }
        self.schedule.remove(entry);
        self.schedule.clear_stage();
        self.endings.push_back((entry, Ending::Dropped));
    }

    fn on_checked(&mut self, entry: EntryId, outcome: ReadOutcome) {
        let Some(open) = self.open.get_mut(&entry) else { return };
        match outcome {
            ReadOutcome::Good if open.phase == Phase::Checking => {
                open.phase = Phase::Finishing;
                self.endings.push_back((entry, Ending::Complete));
            }
            ReadOutcome::Good => {}
            ReadOutcome::Failed(failure) => self.drop_file(entry, failure),
            ReadOutcome::Changed => self.drop_file(entry, changed()),
        }
    }

    fn stop(&mut self, reason: String) {
        if self.stop == Stop::No {
            self.stop = Stop::Asked;
            self.messages.push_back(Message::Stop(reason));
        }
    }

    fn end_open(&mut self, entry: EntryId, outcome: Outcome) {
        let open = self.open.remove(&entry).expect("looked up by the caller");
        self.end_file(entry, &open, outcome);
    }

    /// A file leaves the tables.
    fn forget_tables(&mut self, open: &Open) {
        self.metadata_bytes -= open.metadata_bytes;
        self.range_count -= open.confirmed.range_count();
    }

    fn end_file(&mut self, entry: EntryId, open: &Open, outcome: Outcome) {
        self.forget_tables(open);
        self.schedule.remove(entry);
        if matches!(outcome, Outcome::Failed(_)) && open.phase != Phase::Announced {
            self.failed.insert(entry);
            self.schedule.clear_stage();
        }
        if let Some(key) = open.link {
            let is_there = matches!(outcome, Outcome::Done(..));
            for (found, role) in self.links.on_first_ended(key, is_there) {
                self.release_link(found, role, key);
            }
        }
        self.end(entry, open.parent, outcome);
    }

    fn release_link(&mut self, mut found: Box<Found>, role: LinkRole, key: LinkKey) {
        found.link = None;
        match role {
            LinkRole::Further { target } => self.open_further(*found, target),
            LinkRole::First | LinkRole::Waits => self.open_file(*found, (0, false), Some(key)),
        }
    }

    fn end(&mut self, entry: EntryId, parent: EntryId, outcome: Outcome) {
        if let Outcome::Failed(failure) = outcome {
            self.directories.on_child_failed(parent);
            if failure.reason != Reason::Special {
                self.counters.files_failed += 1;
            }
            if failure.is_sink_full() {
                self.stop("the sink is full".to_owned());
            }
        }
        self.outstanding -= 1;
        self.notes.push_back(Note { entry, outcome });
        self.directories.on_child_ended(parent);
        self.close_directory_if_done(parent);
    }

    fn close_directory_if_done(&mut self, directory: EntryId) {
        if !self.directories.start_closing_if_done(directory) {
            return;
        }
        if directory == EntryId::ROOT {
            let is_complete = self.counters.files_failed == 0 && self.config.is_all_there;
            self.messages.push_back(Message::Finish { is_complete });
        } else {
            self.outstanding += 1;
            self.endings.push_back((directory, self.directories.ending(directory)));
        }
    }

    fn end_directory(&mut self, directory: EntryId, failure: Option<Failure>) {
        let Some(closed) = self.directories.on_closed(directory) else { return };
        let outcome = match closed.failure.or(failure) {
            Some(failure) => Outcome::Failed(failure),
            None if closed.is_new => Outcome::Done(Verb::Directory, 0),
            None => Outcome::There,
        };
        self.end(directory, closed.parent, outcome);
    }

    fn check_was_announced(&self, entry: EntryId) -> Result<(), ProtocolError> {
        let was_announced = entry != EntryId::ROOT && entry <= self.announced_last;
        if was_announced { Ok(()) } else { Err(ProtocolError::UnknownEntry(entry)) }
    }
}

impl Open {
    /// Where a range ends that the sink names; `None` if it cannot speak of such a one.
    fn end_of(&self, range: &BlockRange) -> Option<u64> {
        let end = range.offset.checked_add(range.length)?;
        let is_wanted = !matches!(self.phase, Phase::Found | Phase::Announced);
        let is_piece = range.length > 0
            && is_aligned(range.offset)
            && (end == self.size || end < self.size && is_aligned(end));
        (is_wanted && is_piece).then_some(end)
    }
}

/// Whether nothing more has to happen for a block that was sent.
fn is_settled(open: &HashMap<EntryId, Open>, block: &Block) -> bool {
    open.get(&block.entry).is_none_or(|open| open.confirmed.contains(block.offset..block.end()))
}

fn large_metadata() -> Failure {
    Failure::new(Side::Source, Operation::Examine, Reason::LargeMetadata)
}

fn changed() -> Failure {
    Failure::new(Side::Source, Operation::Read, Reason::Changed)
}
