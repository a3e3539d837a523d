//! A source and a sink that talk without delay, in a world where every task succeeds unless a
//! test says otherwise.

mod ends;

use ends::{BLOCK, osts, sink_config, source_config};
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::frame::{HEADER_BYTES, Header, Row, put_head};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::layout::Layout;
use lads_core::message::{Answer, Ending, Message, Verb};
use lads_core::placement::Striping;
use lads_core::range::RangeSet;
use lads_core::sink::{BufferId, Committed, Compared, Examined, Sink};
use lads_core::source::{
    Found, LinkName, Outcome, ProtocolError, ReadOutcome, Source, SourceConfig,
};
use lads_core::units::{Block, EntryId, Instant, OstId, StreamId};
use lads_core::{sink, source};
use std::collections::HashMap;
use std::time::Duration;

/// Fewer than entries, so that it is these that hold up the walk.
const WINDOW_DIRECTORIES: u64 = 50;

/// What a test makes go wrong, and what happened.
#[derive(Default)]
struct World {
    /// Blocks that arrive damaged, each once.
    damaged: Vec<Block>,
    /// Files that are found changed when checked, this many times.
    changing: HashMap<EntryId, u32>,
    /// Files that the sink cannot commit.
    refused: Vec<EntryId>,
    /// What the sink has of a file from before.
    left_over: HashMap<EntryId, Vec<sink::SyncFile>>,
    /// What is at the sink already, and is to be compared: whether a block of it is different.
    there: HashMap<EntryId, Option<Block>>,
    /// Blocks of which only the checksums were sent.
    compared: Vec<Block>,
    frames: HashMap<u32, (OstId, Vec<(Row, bool)>)>,
    events: Vec<String>,
    blocks_sent: Vec<Block>,
    next_id: u64,
}

struct Pair {
    source: Source,
    sink: Sink,
    world: World,
    outcomes: HashMap<EntryId, Outcome>,
    now: Instant,
    found: HashMap<EntryId, Found>,
    frame_number: u64,
}

impl Pair {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(bytes_per_second: Option<u64>) -> Self {
        let window_directories = WINDOW_DIRECTORIES;
        let config = SourceConfig { window_directories, bytes_per_second, ..source_config() };
        let source = Source::new(config, &osts());
        let sink = Sink::new(&sink_config());
        let mut pair = Self {
            source,
            sink,
            world: World { next_id: 1000, ..World::default() },
            outcomes: HashMap::new(),
            now: Instant::START,
            found: HashMap::new(),
            frame_number: 0,
        };
        let ready = Message::Ready {
            ost_count: 1,
            open_files_max: 100,
            is_renamed: false,
            time_unit_nanos: 1,
        };
        pair.tell_source(source::Event::Message(ready));
        pair.tell_sink(sink::Event::Message(Message::Roots(Vec::new())));
        pair
    }

    fn tell_source(&mut self, event: source::Event) {
        self.source.handle(self.now, event).expect("the sink keeps the protocol");
    }

    fn tell_sink(&mut self, event: sink::Event) {
        self.sink.handle(self.now, event).expect("the source keeps the protocol");
    }

    fn find(&mut self, id: u64, parent: u64, kind: Kind, link: Option<LinkName>) {
        let entry = Entry {
            id: EntryId(id),
            parent: EntryId(parent),
            name: format!("n{id}").into_bytes(),
            kind,
            metadata: Metadata::default(),
        };
        let layout = Layout::on(OstId(0));
        let found = Found { layout, link, ..Found::new(entry) };
        self.found.insert(EntryId(id), found.clone());
        self.tell_source(source::Event::Found(Box::new(found)));
    }

    fn find_file(&mut self, id: u64, size: u64) {
        self.find(id, 0, file(size), None);
    }

    fn find_link(&mut self, id: u64) {
        self.find_link_at(id, format!("n{id}"));
    }

    fn find_link_at(&mut self, id: u64, path: String) {
        let path = path.into_bytes();
        let link = LinkName { device: 1, inode: 7, name_count: 3, path };
        self.find(id, 0, file(10), Some(link));
    }

    /// Runs until nothing is left to do, then says that the walk has ended and runs to the end.
    fn run(&mut self) {
        self.tell_source(source::Event::WalkEnded);
        for _ in 0..10_000 {
            if !self.step() {
                self.now = self.now + Duration::from_millis(100);
                if self.source.is_over() {
                    return;
                }
            }
        }
        panic!("no end: {:?}\n{:?}", self.source, self.sink);
    }

    fn step(&mut self) -> bool {
        let mut has_moved = false;
        let expected = self.source.has_message();
        while let Some(message) = self.source.next_message() {
            assert!(expected, "nobody would have been woken for {message:?}");
            self.tell_sink(sink::Event::Message(message));
            has_moved = true;
        }
        let expected = self.sink.has_message();
        while let Some(message) = self.sink.next_message() {
            assert!(expected, "nobody would have been woken for {message:?}");
            self.tell_source(source::Event::Message(message));
            has_moved = true;
        }
        while let Some(note) = self.source.next_note() {
            self.outcomes.insert(note.entry, note.outcome);
        }
        let expected = self.source.may_have_task();
        if let Some(task) = self.source.next_task(self.now, 0) {
            assert!(expected, "nobody would have been woken for {task:?}");
            self.do_source_task(task);
            has_moved = true;
        }
        let expected =
            self.sink.may_have_task() || self.sink.next_timeout().is_some_and(|at| at <= self.now);
        if let Some(task) = self.sink.next_task(self.now) {
            assert!(expected, "nobody would have been woken for {task:?}");
            self.do_sink_task(task);
            has_moved = true;
        }
        has_moved
    }

    fn do_source_task(&mut self, task: source::Task) {
        match task {
            source::Task::Read(work) => self.read_and_send(work),
            source::Task::Check(entry) => {
                let left = self.world.changing.get_mut(&entry).filter(|left| **left > 0);
                let outcome = match left {
                    Some(left) => {
                        *left -= 1;
                        ReadOutcome::Changed
                    }
                    None => ReadOutcome::Good,
                };
                self.tell_source(source::Event::Checked { entry, outcome });
            }
            source::Task::Examine(old) => {
                let id = EntryId(self.world.next_id);
                self.world.next_id += 1;
                let mut found = self.found[&old].clone();
                found.entry.id = id;
                found.replaces = Some(old);
                if let Some(&left) = self.world.changing.get(&old) {
                    self.world.changing.insert(id, left);
                }
                self.found.insert(id, found.clone());
                self.tell_source(source::Event::Found(Box::new(found)));
            }
            source::Task::LookUp(_) | source::Task::Remove(_) => {
                unreachable!("nothing is removed here")
            }
        }
    }

    fn read_and_send(&mut self, work: lads_core::schedule::Work) {
        let outcomes = vec![ReadOutcome::Good; work.blocks.len()];
        let service = Duration::from_millis(1);
        self.tell_source(source::Event::Read { work: work.clone(), service, outcomes });
        let sent = match work.is_comparison {
            true => &mut self.world.compared,
            false => &mut self.world.blocks_sent,
        };
        sent.extend(&work.blocks);
        let rows: Vec<Row> = work
            .blocks
            .iter()
            .map(|&block| {
                let size = self.found[&block.entry].entry.size();
                Row { block, is_whole: u64::from(block.length) == size, checksum: 0 }
            })
            .collect();
        let bound = lads_core::frame::Bound {
            sink_ost: work.sink_ost,
            is_last_grant: work.is_last_grant,
            has_only_sums: work.is_comparison,
        };
        let mut head = Vec::new();
        put_head(&rows, self.frame_number, bound, &mut head);
        let header = Header::take(&head[..HEADER_BYTES]).expect("a sound header");
        self.sink.admit(&header, &rows).expect("room was granted");
        let checked: Vec<(Row, bool)> = rows
            .into_iter()
            .map(|row| {
                let at = self.world.damaged.iter().position(|block| *block == row.block);
                if let Some(at) = at {
                    self.world.damaged.swap_remove(at);
                }
                (row, at.is_none())
            })
            .collect();
        let buffer = BufferId(u32::try_from(self.frame_number % 32).expect("below 32"));
        self.world.frames.insert(buffer.0, (work.sink_ost, checked.clone()));
        let at_once = self.sink.on_frame(self.now, buffer, &header, &checked);
        if let Some(write) = at_once {
            if write.rows.is_empty() {
                self.sink.on_empty_frame(write.ost);
            } else {
                self.write(write);
            }
        }
        let (stream, number) = (StreamId(0), self.frame_number);
        self.frame_number += 1;
        self.tell_source(source::Event::Sent { stream, number, work });
    }

    /// Until blocks of both have come that nobody has written.
    fn send_of_two_files(&mut self) {
        (1..=2).for_each(|id| self.find_file(id, 2 * u64::from(BLOCK)));
        while (1..=2).any(|id| self.world.blocks_sent.iter().all(|it| it.entry != EntryId(id))) {
            match self.source.next_task(self.now, 0) {
                Some(task) => self.do_source_task(task),
                None => assert!(self.step()),
            }
        }
    }

    fn write(&mut self, write: sink::Write) {
        if write.is_comparison {
            return self.compare(write);
        }
        let failures = vec![None; write.rows.len()];
        let service = Duration::from_millis(1);
        self.tell_sink(sink::Event::Written { write, service, failures });
    }

    fn compare(&mut self, write: sink::Write) {
        let compare = |row: &Row| match self.world.there.get(&row.block.entry) {
            Some(Some(other)) if *other == row.block => Compared::Different,
            _ => Compared::Same,
        };
        let results = write.rows.iter().map(|(row, _)| compare(row)).collect();
        let service = Duration::from_millis(1);
        self.tell_sink(sink::Event::Compared { write, service, results });
    }

    fn do_sink_task(&mut self, task: sink::Task) {
        match task {
            sink::Task::Examine(entries) => {
                let results = entries.iter().map(|entry| (entry.id, self.examine(entry))).collect();
                self.tell_sink(sink::Event::Examined(results));
            }
            sink::Task::Write(write) => self.write(write),
            sink::Task::Stage(..) => panic!("there is no stage"),
            sink::Task::Release(writes) => self.tell_sink(sink::Event::Released(writes)),
            sink::Task::Sync(files) => {
                self.world.events.push("sync".into());
                let results = files.into_iter().map(|file| (file, None)).collect();
                self.tell_sink(sink::Event::Synced(results));
            }
            sink::Task::Commit(commits) => {
                let results = commits
                    .iter()
                    .map(|commit| {
                        self.world.events.push(format!("commit {}", commit.entry.0));
                        let is_refused = self.world.refused.contains(&commit.entry);
                        let committed = if is_refused {
                            let reason = Reason::Os(13);
                            let failure = Failure::new(Side::Sink, Operation::Rename, reason);
                            Committed::Failed(failure)
                        } else if self.world.there.contains_key(&commit.entry) {
                            Committed::Same
                        } else {
                            Committed::Complete
                        };
                        (commit.entry, committed)
                    })
                    .collect();
                self.tell_sink(sink::Event::Committed(results));
            }
            sink::Task::Close(entries) => {
                for entry in &entries {
                    self.world.events.push(format!("close {}", entry.0));
                }
                let results = entries.into_iter().map(|entry| (entry, None)).collect();
                self.tell_sink(sink::Event::Closed(results));
            }
            sink::Task::Discard(entries) => {
                for sink::Discard { entry, is_kept, .. } in &entries {
                    self.world.events.push(format!("discard {} {is_kept}", entry.0));
                }
                let entries = entries.into_iter().map(|discard| discard.entry).collect();
                self.tell_sink(sink::Event::Discarded(entries));
            }
            sink::Task::Remove { .. } => unreachable!("nothing is removed here"),
            sink::Task::Finish { .. } => self.tell_sink(sink::Event::Finished),
        }
    }

    fn examine(&mut self, entry: &Entry) -> Examined {
        match &entry.kind {
            Kind::File { is_different: false, .. } if self.world.there.contains_key(&entry.id) => {
                Examined::Compare { layout: Layout::on(OstId(0)) }
            }
            Kind::File { .. } => {
                let left = self.world.left_over.remove(&entry.id).unwrap_or_default();
                let done = left.into_iter().flat_map(|file| file.blocks).collect();
                Examined::Want { done, layout: Layout::on(OstId(0)), extents: Vec::new() }
            }
            Kind::HardLink { target } => {
                let target = String::from_utf8_lossy(target).into_owned();
                self.world.events.push(format!("link {} to {target}", entry.id.0));
                Examined::Answer(Answer::Made)
            }
            _ => Examined::Answer(Answer::Made),
        }
    }

    fn is_done(&self, id: u64) -> bool {
        matches!(self.outcomes.get(&EntryId(id)), Some(Outcome::Done(..)))
    }
}

fn file(size: u64) -> Kind {
    let identity = Identity { size, ..Identity::default() };
    Kind::File {
        identity,
        data_bytes: size,
        striping: Striping::default(),
        source_ost: OstId(0),
        is_different: false,
    }
}

#[test]
fn of_what_is_there_only_the_sums_go_and_what_is_the_same_is_skipped() {
    let mut pair = Pair::new();
    for (id, size) in [(1, 5), (2, u64::from(BLOCK)), (3, (3 << 20) + 7)] {
        pair.find_file(id, size);
        pair.world.there.insert(EntryId(id), None);
    }
    pair.find_file(4, 100);
    pair.run();
    assert_eq!(pair.world.blocks_sent.len(), 1);
    assert_eq!(pair.outcomes[&EntryId(4)], Outcome::Done(Verb::Send, 100));
    assert_eq!(pair.outcomes[&EntryId(3)], Outcome::Done(Verb::Skip, (3 << 20) + 7));
    let counters = pair.source.counters();
    assert_eq!((counters.files_compared, counters.files_skipped, counters.files_moved), (3, 3, 1));
    assert_eq!((counters.files_unread, counters.files_verified, counters.bytes_sent), (0, 1, 100));
    assert_eq!(counters.bytes_done, counters.bytes_found);
    assert_eq!(counters.bytes_skipped, counters.bytes_found - 100);
    assert_eq!(pair.sink.counters().files_moved, 1);
    let discarded = pair.world.events.iter().any(|it| it.starts_with("discard"));
    assert!(!discarded && !pair.world.events.contains(&"sync".to_owned()), "nothing is written");
}

#[test]
fn what_is_there_and_different_is_announced_anew_and_sent_whole() {
    let mut pair = Pair::new();
    let size = 5 * u64::from(BLOCK);
    pair.find_file(1, size);
    let entry = EntryId(1);
    let other = Block { entry, offset: 2 * u64::from(BLOCK), length: BLOCK };
    pair.world.there.insert(entry, Some(other));
    pair.run();
    assert_eq!(pair.outcomes[&entry], Outcome::Replaced);
    assert_eq!(pair.outcomes[&EntryId(1000)], Outcome::Done(Verb::Send, size));
    assert!(pair.world.blocks_sent.iter().all(|block| block.entry == EntryId(1000)));
    let counters = pair.source.counters();
    assert_eq!((counters.files_compared, counters.files_moved, counters.bytes_sent), (0, 1, size));
    assert_eq!(
        (counters.bytes_found, counters.bytes_done, counters.bytes_skipped),
        (size, size, 0)
    );
}

#[test]
fn a_source_that_changes_while_it_is_compared_is_compared_anew() {
    let mut pair = Pair::new();
    pair.find_file(1, 3 * u64::from(BLOCK));
    pair.world.there.insert(EntryId(1), None);
    pair.world.there.insert(EntryId(1000), None);
    pair.world.changing.insert(EntryId(1), 1);
    pair.run();
    assert_eq!(pair.outcomes[&EntryId(1)], Outcome::Replaced);
    let skipped = Outcome::Done(Verb::Skip, 3 * u64::from(BLOCK));
    assert_eq!(pair.outcomes[&EntryId(1000)], skipped);
    assert_eq!(pair.source.counters().bytes_done, 3 * u64::from(BLOCK));
}

#[test]
fn files_of_every_size_arrive() {
    let mut pair = Pair::new();
    for (id, size) in [(1, 0), (2, 1), (3, u64::from(BLOCK)), (4, 20 << 20), (5, (3 << 20) + 7)] {
        pair.find_file(id, size);
    }
    pair.run();
    assert!((1..=5).all(|id| pair.is_done(id)), "{:?}", pair.outcomes);
    assert!(pair.source.is_finished() && pair.sink.is_finished());
    assert_eq!(pair.source.counters().bytes_done, 1 + (1 << 20) + (20 << 20) + (3 << 20) + 7);
    assert_eq!(pair.source.counters().bytes_done, pair.source.counters().bytes_found);
}

#[test]
fn a_file_that_is_all_written_is_made_durable_once_with_its_name() {
    let mut pair = Pair::new();
    pair.find_file(1, 3 << 20);
    pair.run();
    assert_eq!(pair.world.events, ["commit 1"]);
    assert!(pair.is_done(1));
}

#[test]
fn a_file_of_one_block_needs_no_journal() {
    let mut pair = Pair::new();
    pair.find_file(1, 1000);
    pair.run();
    assert_eq!(pair.world.events, ["commit 1"]);
}

#[test]
fn only_the_damaged_block_is_sent_again() {
    let mut pair = Pair::new();
    let damaged = Block { entry: EntryId(1), offset: 2 << 20, length: BLOCK };
    pair.world.damaged.push(damaged);
    pair.find_file(1, 5 << 20);
    pair.run();
    assert!(pair.is_done(1));
    assert_eq!(pair.world.blocks_sent.len(), 6);
    assert_eq!(pair.world.blocks_sent.iter().filter(|block| **block == damaged).count(), 2);
    assert_eq!(pair.source.counters().blocks_resent, 1);
}

#[test]
fn a_block_that_is_always_damaged_fails_its_file_only() {
    let mut pair = Pair::new();
    let damaged = Block { entry: EntryId(1), offset: 0, length: 10 };
    pair.world.damaged = vec![damaged; 10];
    pair.find_file(1, 10);
    pair.find_file(2, 20);
    pair.run();
    let outcome = pair.outcomes[&EntryId(1)];
    assert!(matches!(outcome, Outcome::Failed(f) if f.reason == Reason::Checksum), "{outcome:?}");
    assert!(pair.is_done(2));
    let times = pair.world.blocks_sent.iter().filter(|block| **block == damaged).count();
    assert_eq!(times, 1 + 3, "as often as the sink asks for it again");
    assert!(pair.world.events.contains(&"discard 1 false".to_owned()), "nothing is on record");
}

#[test]
fn what_is_on_record_of_a_file_that_fails_is_kept_for_the_next_attempt() {
    let mut pair = Pair::new();
    let damaged = Block { entry: EntryId(1), offset: 20 << 20, length: BLOCK };
    pair.world.damaged = vec![damaged; 10];
    pair.find_file(1, 21 << 20);
    pair.run();
    assert!(!pair.is_done(1));
    assert!(pair.world.events.contains(&"sync".to_owned()));
    assert!(pair.world.events.contains(&"discard 1 true".to_owned()), "{:?}", pair.world.events);
}

#[test]
fn a_file_that_changed_is_tried_again() {
    let mut pair = Pair::new();
    pair.world.changing.insert(EntryId(1), 2);
    pair.find_file(1, 3 << 20);
    pair.run();
    assert_eq!(pair.outcomes[&EntryId(1)], Outcome::Replaced);
    assert!(pair.is_done(1001), "{:?}", pair.outcomes);
    assert_eq!(pair.source.counters().files_moved, 1);
    assert_eq!(pair.source.counters().bytes_done, 3 << 20);
}

#[test]
fn a_file_that_keeps_changing_is_reported() {
    let mut pair = Pair::new();
    pair.world.changing.insert(EntryId(1), 99);
    pair.find_file(1, 3 << 20);
    pair.run();
    let outcome = pair.outcomes[&EntryId(1002)];
    assert!(matches!(outcome, Outcome::Failed(f) if f.reason == Reason::Changed), "{outcome:?}");
    assert!(!pair.world.events.iter().any(|event| event.starts_with("commit")));
}

/// Found by fuzzing: what was staged for such an OST went into a table that grew to its number.
#[test]
fn a_sink_that_places_a_file_on_an_ost_that_cannot_be_is_refused() {
    let mut pair = Pair::new();
    pair.find_file(1, 10);
    let layout = Layout::on(OstId(u32::MAX));
    let answer = Answer::Want { done: RangeSet::new(), layout };
    let message = Message::FileId(vec![(EntryId(1), answer)]);
    let refused = pair.source.handle(pair.now, source::Event::Message(message));
    assert!(matches!(refused, Err(ProtocolError::Impossible(_))), "{refused:?}");
}

#[test]
fn a_file_that_is_to_be_placed_again_is_announced_anew_once() {
    let mut pair = Pair::new();
    pair.find_file(1, 20 * u64::from(BLOCK));
    while pair.world.blocks_sent.len() < 6 {
        assert!(pair.step());
    }
    let again = |entry| source::Event::Message(Message::PlaceAgain(vec![EntryId(entry)]));
    pair.tell_source(again(1));
    while pair.world.blocks_sent.iter().all(|block| block.entry != EntryId(1000)) {
        assert!(pair.step());
    }
    pair.tell_source(again(1000));
    pair.run();
    assert_eq!(pair.outcomes[&EntryId(1)], Outcome::Replaced);
    assert!(pair.is_done(1000));
    assert!(pair.world.events.contains(&"discard 1 false".into()));
    assert!(!pair.world.events.contains(&"discard 1000 false".into()));
}

#[test]
fn what_is_dropped_does_not_wait_for_what_is_to_be_written() {
    let mut pair = Pair::new();
    pair.send_of_two_files();
    let dropped = Message::FileDone(vec![(EntryId(2), Ending::Dropped)]);
    pair.tell_sink(sink::Event::Message(dropped));
    let tasks = std::iter::from_fn(|| pair.sink.next_task(pair.now));
    let kinds: Vec<&str> = (tasks.take(3))
        .map(|task| match task {
            sink::Task::Release(_) => "release",
            sink::Task::Discard(_) => "discard",
            sink::Task::Write(_) => "write",
            _ => "another",
        })
        .collect();
    assert_eq!(kinds, ["release", "discard", "write"]);
}

/// The OST that it is being written to may need seconds for it.
#[test]
fn what_is_dropped_does_not_wait_for_what_is_being_written() {
    let mut pair = Pair::new();
    pair.send_of_two_files();
    let mut tasks = std::iter::from_fn(|| pair.sink.next_task(pair.now));
    let write = tasks.find_map(|task| match task {
        sink::Task::Write(write) => Some(write),
        _ => None,
    });
    let write = write.expect("blocks came");
    let entry = write.rows[0].0.block.entry;
    let dropped = Message::FileDone(vec![(entry, Ending::Dropped)]);
    pair.tell_sink(sink::Event::Message(dropped));
    let Some(sink::Task::Discard(entries)) = pair.sink.next_task(pair.now) else {
        panic!("it is not dropped")
    };
    assert_eq!(entries, [sink::Discard { entry, is_kept: false, failure: None }]);
    pair.tell_sink(sink::Event::Discarded(vec![entry]));
    let failures = vec![None];
    pair.tell_sink(sink::Event::Written { write, service: Duration::ZERO, failures });
    let said: Vec<Message> = std::iter::from_fn(|| pair.sink.next_message()).collect();
    assert!(said.contains(&Message::FileDone(vec![(entry, Ending::Dropped)])), "{said:?}");
}

#[test]
fn what_an_earlier_attempt_left_is_not_sent_again() {
    let mut pair = Pair::new();
    let block =
        |n: u64| lads_core::journal::BlockRecord { offset: n << 20, length: BLOCK, checksum: 0 };
    let left = sink::SyncFile { entry: EntryId(1), blocks: vec![block(0), block(2)] };
    pair.world.left_over.insert(EntryId(1), vec![left]);
    pair.find_file(1, 4 << 20);
    pair.run();
    let offsets: Vec<_> = pair.world.blocks_sent.iter().map(|block| block.offset >> 20).collect();
    assert_eq!(offsets, [1, 3]);
    assert_eq!(pair.source.counters().bytes_skipped, 2 << 20);
    assert_eq!(pair.source.counters().bytes_done, 4 << 20);
}

#[test]
fn further_names_are_linked_when_the_first_has_its_name() {
    let mut pair = Pair::new();
    (1..=3).for_each(|id| pair.find_link(id));
    pair.run();
    assert_eq!(pair.world.events, ["commit 1", "link 2 to n1", "link 3 to n1"]);
    assert_eq!(pair.outcomes[&EntryId(3)], Outcome::Done(Verb::HardLink, 0));
}

#[test]
fn if_the_first_name_fails_the_next_takes_its_place() {
    let mut pair = Pair::new();
    pair.world.refused.push(EntryId(1));
    (1..=3).for_each(|id| pair.find_link(id));
    pair.run();
    assert!(matches!(pair.outcomes[&EntryId(1)], Outcome::Failed(_)));
    assert!(pair.is_done(2) && pair.is_done(3), "{:?}", pair.outcomes);
    assert!(pair.world.events.contains(&"link 3 to n2".to_owned()), "{:?}", pair.world.events);
}

/// The path of a first name was longer than a peer may name: the sink took it for a breach.
#[test]
fn further_names_of_a_file_whose_path_cannot_be_told_fail_and_it_arrives() {
    let mut pair = Pair::new();
    for id in 1..=2 {
        pair.find_link_at(id, format!("{}{id}", "d/".repeat(2048)));
    }
    pair.run();
    pair.find_link(3);
    pair.run();
    assert_eq!(pair.world.events, ["commit 1"]);
    let failure = Failure::new(Side::Source, Operation::Examine, Reason::TooDeep);
    for id in 2..=3 {
        assert_eq!(pair.outcomes[&EntryId(id)], Outcome::Failed(failure), "held back or not");
    }
}

/// Directories that nothing was in did not count as under way until they were closed: of a tree of
/// empty ones all were announced at once.
#[test]
fn the_walk_waits_when_many_directories_have_not_ended() {
    let mut pair = Pair::new();
    let listed = |directory| source::Event::Listed {
        directory: EntryId(directory),
        subdirectory_count: u64::from(directory == 0) * (WINDOW_DIRECTORIES - 1),
    };
    pair.tell_source(listed(0));
    for id in 1..WINDOW_DIRECTORIES {
        assert!(pair.source.wants_entries(), "directory {id}");
        pair.find(id, 0, Kind::Directory, None);
        pair.tell_source(listed(id));
    }
    assert!(!pair.source.wants_entries(), "with the root, all are under way that may be");
    pair.run();
    assert!(pair.source.wants_entries());
    assert_eq!(pair.outcomes.len() as u64, WINDOW_DIRECTORIES - 1);
}

#[test]
fn a_directory_is_closed_when_all_in_it_has_ended() {
    let mut pair = Pair::new();
    let listed = |directory, subdirectory_count| source::Event::Listed {
        directory: EntryId(directory),
        subdirectory_count,
    };
    pair.tell_source(listed(0, 1));
    pair.find(1, 0, Kind::Directory, None);
    pair.find(3, 1, file(5 << 20), None);
    pair.tell_source(listed(1, 1));
    pair.find(2, 1, Kind::Directory, None);
    pair.tell_source(listed(2, 0));
    pair.run();
    assert_eq!(pair.world.events.last().unwrap(), "close 1", "{:?}", pair.world.events);
    assert!(pair.world.events.contains(&"close 2".to_owned()), "{:?}", pair.world.events);
    assert_eq!(pair.outcomes[&EntryId(1)], Outcome::Done(Verb::Directory, 0));
}

#[test]
fn stopping_puts_on_record_what_was_written() {
    let mut pair = Pair::new();
    pair.find_file(1, 50 << 20);
    while pair.world.blocks_sent.len() < 20 {
        pair.step();
    }
    pair.tell_source(source::Event::Stop("asked".into()));
    pair.run();
    assert!(pair.source.is_over() && !pair.source.is_finished());
    assert!(pair.source.counters().bytes_done >= 19 << 20, "{:?}", pair.source.counters());
}

#[test]
fn layouts_are_known_of_files_under_way_and_of_no_others() {
    let mut pair = Pair::new();
    // Whatever either end knows is in what it says of itself.
    let known = |pair: &Pair| {
        let all = format!("{:?}{:?}", pair.source, pair.sink);
        all.matches("Plain(").count() + all.matches("Composite(").count()
    };
    let mut most = 0;
    for id in 1..=2000 {
        while !pair.source.wants_entries() {
            if !pair.step() {
                pair.now = pair.now + Duration::from_millis(100);
            }
        }
        pair.find_file(id, if id % 7 == 0 { 3 * u64::from(BLOCK) } else { 10 });
        if id % 25 == 0 {
            most = most.max(known(&pair));
        }
    }
    // At the source where it lies and where it will, at the sink where it will.
    assert!((100..=300).contains(&most), "{most} layouts of at most 100 files");
    pair.run();
    assert_eq!(known(&pair), 0, "when a file has ended, so has its layout");
    assert!((1..=2000).all(|id| pair.is_done(id)));
}

/// Bytes of twenty blocks that waited for a limit of so many blocks a second.
fn blocks_limited(blocks_per_second: Option<u64>) -> u64 {
    let block = u64::from(BLOCK);
    let bytes_per_second = blocks_per_second.map(|count| count * block);
    let mut pair = Pair::with(bytes_per_second);
    pair.find_file(1, 20 * block);
    pair.run();
    assert_eq!(pair.source.counters().bytes_done, 20 * block);
    pair.source.counters().bytes_limited / block
}

#[test]
fn what_waits_for_the_limit_is_counted_and_nothing_else() {
    assert_eq!(blocks_limited(None), 0);
    assert_eq!(blocks_limited(Some(1 << 30)), 0);
    // Of a tenth of a second's worth that may go at once there is one block.
    assert!(blocks_limited(Some(10)) >= 18, "{}", blocks_limited(Some(10)));
}
