//! The end around a source's session: its walk, its tasks, its streams, and what its storage does.

use super::peer::Peer;
use super::walk::{OST_COUNT, Walk};
use crate::choices::Choices;
use crate::growth::{Growth, rows_of};
use crate::nonsense;
use crate::steps::STEPS_MAX;
use lads_core::congestion::Threshold;
use lads_core::frame::Row;
use lads_core::issue::Side;
use lads_core::limits::STREAMS_MAX;
use lads_core::message::{Message, Presence};
use lads_core::schedule::{OstSpec, Policy, Way, Work};
use lads_core::source::{Event, ProtocolError, ReadOutcome, Source, SourceConfig, Task};
use lads_core::tuning::Tuning;
use lads_core::units::{EntryId, Instant, OstId, StreamId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Threads that ask for tasks.
const WORKERS: usize = 2;

/// A task, or what is left of one.
#[derive(Debug)]
enum Job {
    Do(Task),
    /// Blocks are in a buffer, to be sent.
    Send(Work),
}

/// The owner of a session.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) source: Source,
    pub(super) config: SourceConfig,
    /// Files that were looked at, after their last block, and had not changed.
    pub(super) unchanged: BTreeSet<EntryId>,
    /// Frames that may be sent to each OST of the sink, as far as is known here.
    pub(super) room: BTreeMap<OstId, u32>,
    walk: Walk,
    now: Instant,
    jobs: Vec<Job>,
    /// The stream that frames go out on, and those that have not arrived, each with its number.
    stream: StreamId,
    frames_sent: u64,
    under_way: VecDeque<Work>,
    ended: BTreeSet<EntryId>,
    growth: Growth,
}

impl Owner {
    /// A source with a few OSTs, as the input says.
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        let config = config(choices);
        let spec = |ost: u32| OstSpec::new(ost.to_string(), 1 + ost);
        let osts: Vec<OstSpec> = (0..OST_COUNT).map(spec).collect();
        Self {
            source: Source::new(config.clone(), &osts),
            config,
            unchanged: BTreeSet::new(),
            room: BTreeMap::new(),
            walk: Walk::new(),
            now: Instant::START,
            jobs: Vec::new(),
            stream: StreamId(0),
            frames_sent: 0,
            under_way: VecDeque::new(),
            ended: BTreeSet::new(),
            growth: Growth::default(),
        }
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Tells what happened here, which is never refused.
    pub(super) fn tell(&mut self, event: Event) {
        self.growth.on_told(1);
        let result = self.source.handle(self.now, event);
        assert_eq!(result, Ok(()), "only a peer is refused");
    }

    /// Passes on what the sink says; an error if it is refused.
    pub(super) fn tell_message(&mut self, message: Message) -> Option<ProtocolError> {
        self.growth.on_told(rows_of(&message));
        self.source.handle(self.now, Event::Message(message)).err()
    }

    pub(super) fn next_message(&mut self) -> Option<Message> {
        let is_expected = self.source.has_message();
        let message = self.source.next_message()?;
        assert!(is_expected, "nobody would have been woken for {message:?}");
        self.growth.on_said(rows_of(&message));
        Some(message)
    }

    /// How entries ended: each once.
    pub(super) fn take_notes(&mut self) {
        while let Some(note) = self.source.next_note() {
            assert!(self.ended.insert(note.entry), "{note:?} comes twice");
        }
    }

    /// Meets what comes next, if enough has ended meanwhile.
    pub(super) fn walk_on(&mut self, choices: &mut Choices<'_>, is_good: bool) {
        if self.source.may_go_on(self.now).is_ok()
            && let Some(event) = self.walk.next(choices, is_good)
        {
            self.tell(event);
        }
    }

    /// Walks to the end, finding nothing more.
    pub(super) fn come_home(&mut self, choices: &mut Choices<'_>) {
        while self.source.may_go_on(self.now).is_ok()
            && let Some(event) = self.walk.last(choices)
        {
            self.tell(event);
        }
    }

    /// Takes the next task, to be done later. Says whether there was one.
    pub(super) fn take_task(&mut self, peer: &Peer, is_honest: bool) -> bool {
        let is_expected = self.source.may_have_task();
        let mut workers = 0..WORKERS;
        let next = workers.find_map(|worker| self.source.next_task(self.now, worker));
        let Some(task) = next else { return false };
        assert!(is_expected, "nobody would have been woken for {task:?}");
        if let Task::Read(work) = &task {
            self.growth.on_said(work.blocks.len());
            self.check(work);
            if is_honest {
                peer.check(work);
                self.use_room(work);
            }
        } else {
            self.growth.on_said(1);
        }
        self.jobs.push(Job::Do(task));
        true
    }

    /// Whether it is one frame of blocks that there are.
    fn check(&self, work: &Work) {
        assert!(!work.blocks.is_empty(), "{work:?}");
        assert!(work.bytes() <= self.config.block_size.into(), "{work:?}");
        assert!(work.source_ost.0 < OST_COUNT, "{work:?}");
        for block in &work.blocks {
            let found = &self.walk.found[&block.entry];
            assert!(block.length > 0 && block.end() <= found.entry.size(), "{work:?}");
            let copy = match (work.mirror, &work.way) {
                // What is staged is read no more, and it does not matter where it was read.
                (_, Way::Drain(..)) => continue,
                (0, _) => &found.layout,
                (mirror, _) => &found.mirrors[usize::from(mirror) - 1],
            };
            let copy = copy.clone().in_pages();
            if self.config.is_in_order {
                // What is read in order has one queue, wherever it lies.
                continue;
            }
            assert_eq!(copy.ost_at(block.offset), work.source_ost, "{work:?}");
            // What is sent again may have been cut for another copy than the one it is read from.
            let is_one_stripe = block.end() <= copy.stripe_end(block.offset);
            assert!(is_one_stripe || !found.mirrors.is_empty(), "{work:?}");
        }
    }

    fn use_room(&mut self, work: &Work) {
        if !matches!(work.way, Way::Stage(_)) {
            let room = self.room.entry(work.sink_ost).or_default();
            *room = room.checked_sub(1).expect("no frame without a grant");
        }
    }

    fn give_room_back(&mut self, ost: OstId) {
        *self.room.entry(ost).or_default() += 1;
    }

    /// Does one of the tasks taken, and tells how it went. Says whether there was one.
    pub(super) fn do_task(&mut self, choices: &mut Choices<'_>, is_good: bool) -> bool {
        let Some(place) = choices.place_in(self.jobs.len()) else { return false };
        let is_bad = |choices: &mut Choices<'_>| !is_good && choices.is_one_in(2);
        match self.jobs.remove(place) {
            Job::Do(Task::Read(work)) if matches!(work.way, Way::Drain(..)) => {
                match is_bad(choices) {
                    true => self.not_drained(work),
                    false => self.jobs.push(Job::Send(work)),
                }
            }
            Job::Do(Task::Read(work)) => self.read(work, choices, is_good),
            Job::Do(Task::Check(entry)) => {
                let outcome = if is_bad(choices) { bad(choices) } else { ReadOutcome::Good };
                if outcome == ReadOutcome::Good {
                    self.unchanged.insert(entry);
                }
                self.tell(Event::Checked { entry, outcome });
            }
            Job::Do(Task::Examine(entry)) => {
                let event = if is_bad(choices) {
                    Event::Gone { entry, failure: nonsense::failure(choices, Side::Source) }
                } else {
                    Event::Found(Box::new(self.walk.find_again(entry)))
                };
                self.tell(event);
            }
            Job::Do(Task::Remove(entry)) => {
                let failure = is_bad(choices).then(|| nonsense::failure(choices, Side::Source));
                self.tell(Event::Removed { entry, failure });
            }
            Job::Do(Task::LookUp(question)) => {
                let presences = [Presence::Absent, Presence::Other, Presence::Directory];
                let answers = vec![choices.one_of(&presences); question.names.len()];
                self.tell(Event::LookedUp { question, answers });
            }
            Job::Send(work) if is_bad(choices) => {
                self.give_room_back(work.sink_ost);
                self.tell(Event::NotSent { work });
            }
            Job::Send(work) => self.send(work),
        }
        true
    }

    /// Reads blocks; those that were read well go on.
    fn read(&mut self, mut work: Work, choices: &mut Choices<'_>, is_good: bool) {
        let outcomes: Vec<ReadOutcome> = (work.blocks.iter())
            .map(|_| match is_good || !choices.is_one_in(2) {
                true => ReadOutcome::Good,
                false => bad(choices),
            })
            .collect();
        let service = Duration::from_micros(u64::from(choices.below(8)) * 1000);
        self.growth.on_told(outcomes.len());
        self.tell(Event::Read { work: work.clone(), service, outcomes: outcomes.clone() });
        let mut outcomes = outcomes.iter();
        work.blocks.retain(|_| outcomes.next() == Some(&ReadOutcome::Good));
        let is_staged = matches!(work.way, Way::Stage(_));
        match (work.blocks.is_empty(), is_staged) {
            (true, true) => {}
            (true, false) => self.give_room_back(work.sink_ost),
            (false, false) => self.jobs.push(Job::Send(work)),
            (false, true) if is_good => {
                let rows = work.blocks.iter().map(|&block| self.row(block)).collect();
                self.tell(Event::Staged { work, rows });
            }
            (false, true) => self.tell(Event::NotStaged { work }),
        }
    }

    fn row(&self, block: lads_core::units::Block) -> Row {
        let size = self.walk.found[&block.entry].entry.size();
        Row { block, is_whole: u64::from(block.length) == size, checksum: 0 }
    }

    fn not_drained(&mut self, work: Work) {
        self.give_room_back(work.sink_ost);
        self.tell(Event::NotDrained { work });
    }

    fn send(&mut self, work: Work) {
        self.growth.on_told(work.blocks.len());
        let (stream, number) = (self.stream, self.frames_sent);
        self.frames_sent += 1;
        self.under_way.push_back(work.clone());
        self.tell(Event::Sent { stream, number, work });
    }

    /// The frame that arrives next.
    pub(super) fn next_frame(&mut self, _: &mut Choices<'_>) -> Option<(OstId, Vec<Row>)> {
        let work = self.under_way.pop_front()?;
        Some((work.sink_ost, work.blocks.iter().map(|&block| self.row(block)).collect()))
    }

    /// The stream ends, with all frames that have not arrived; the next frame takes another.
    /// The last stream does not end.
    pub(super) fn end_stream(&mut self) -> Option<Message> {
        let next = self.stream.0.checked_add(1).filter(|&next| next < STREAMS_MAX)?;
        let frames = self.frames_sent - self.under_way.len() as u64;
        for work in std::mem::take(&mut self.under_way) {
            self.give_room_back(work.sink_ost);
        }
        let ended = std::mem::replace(&mut self.stream, StreamId(next));
        self.frames_sent = 0;
        Some(Message::StreamEnd { stream: ended.0, frames })
    }
}

fn bad(choices: &mut Choices<'_>) -> ReadOutcome {
    match choices.below(2) {
        0 => ReadOutcome::Changed,
        _ => ReadOutcome::Failed(nonsense::failure(choices, Side::Source)),
    }
}

fn config(choices: &mut Choices<'_>) -> SourceConfig {
    let policies =
        [Policy::Adaptive, Policy::Layout, Policy::Threshold, Policy::Polite, Policy::File];
    let block_size = 4096 << choices.below(3);
    let policy = choices.one_of(&policies);
    let window_entries = 4 + u64::from(choices.below(30));
    SourceConfig {
        tuning: Tuning::DEFAULT,
        policy,
        threshold: Threshold::default(),
        block_size,
        window_entries,
        // Room for more than a walk of that many steps can have open: this one need not go depth
        // first, and with less it would wait for itself.
        window_directories: 2 * u64::from(STEPS_MAX),
        stream_count: STREAMS_MAX,
        // No choice, so that inputs that were found before mean what they did.
        is_in_order: window_entries % 8 == 3,
        is_dry_run: false,
        may_pass: block_size == 4096,
        may_be_asked: block_size > 4096,
        removes_sources: window_entries.is_multiple_of(3),
        is_all_there: true,
        is_comparing: true,
        open_files_max: 1 + choices.below(20),
        retries_max: choices.below(3),
        bytes_per_second: choices.is_one_in(6).then_some(1 << 20),
        stage_bytes: u64::from(choices.below(4)) * u64::from(block_size),
        stage_threads_max: 1 + choices.below(2),
    }
}
