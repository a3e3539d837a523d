//! Which of the frames that wait at a sink is written next. What has arrived for one track is
//! written by any that has nothing to do; a file that its file system locks is written by one
//! thread at a time.

mod ends;

use ends::{BLOCK, sink_config};
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::frame::{Header, Row};
use lads_core::journal::BlockRecord;
use lads_core::layout::Layout;
use lads_core::message::{Ending, Message};
use lads_core::placement::{Striping, Wish};
use lads_core::schedule::OstSpec;
use lads_core::sink::{
    BufferId, Committed, Event, Examined, Sink, SinkConfig, StageConfig, Task, Write,
};
use lads_core::units::{Block, EntryId, Instant, OstId};
use std::time::Duration;

const FILE: EntryId = EntryId(1);
const OTHER: EntryId = EntryId(2);

/// A sink with two tracks of one target and one of another, and an OST that is no track. A file of
/// this many blocks is wanted, all of them on the first track.
fn sink_of(blocks: u32) -> Sink {
    let track = |name: &str| OstSpec { is_track: true, ..OstSpec::new(name, 1) };
    let osts = vec![track("mount"), track("mount"), track("other"), OstSpec::new("mount", 1)];
    sink_with(&SinkConfig { osts, ..sink_config() }, blocks)
}

fn sink_with(config: &SinkConfig, blocks: u32) -> Sink {
    let mut sink = Sink::new(config);
    sink.handle(Instant::START, Event::Message(Message::Roots(Vec::new()))).expect("our own word");
    announce(&mut sink, FILE, blocks);
    let layout = Layout::on(OstId(0));
    let want = Examined::Want { done: Vec::new(), layout, extents: Vec::new() };
    examined(&mut sink, FILE, want);
    sink
}

/// The source has found a file of this many blocks, and a thread looks at what is there.
fn announce(sink: &mut Sink, file: EntryId, blocks: u32) {
    let size = u64::from(blocks) * u64::from(BLOCK);
    let entry = Entry {
        id: file,
        parent: EntryId::ROOT,
        name: format!("file {}", file.0).into_bytes(),
        kind: Kind::File {
            identity: Identity { size, inode: 1, ..Identity::default() },
            data_bytes: size,
            striping: Striping::default(),
            source_ost: OstId(0),
            is_different: false,
        },
        metadata: Metadata::default(),
    };
    let message = Event::Message(Message::NewFile(vec![entry]));
    sink.handle(Instant::START, message).expect("as it should be");
    assert!(matches!(sink.next_task(Instant::START), Some(Task::Examine(_))));
}

fn examined(sink: &mut Sink, file: EntryId, found: Examined) {
    sink.handle(Instant::START, Event::Examined(vec![(file, found)])).expect("our own word");
    while sink.next_message().is_some() {}
}

/// The same with a file of 16 blocks.
fn sink() -> Sink {
    sink_of(16)
}

/// The first blocks of the file, this many, arrive and wait.
fn arrive(sink: &mut Sink, count: u32) {
    (0..count).for_each(|number| arrive_one(sink, number, number + 1 == count));
}

fn arrive_one(sink: &mut Sink, number: u32, is_last_grant: bool) {
    arrive_of(sink, FILE, number, BufferId(number), is_last_grant);
}

/// A block of a file arrives, and waits in a buffer.
fn arrive_of(sink: &mut Sink, entry: EntryId, number: u32, buffer: BufferId, is_last_grant: bool) {
    arrive_with(sink, entry, number, buffer, &Header { is_last_grant, ..HEADER });
}

/// The header of a frame of one block, for the first OST.
const HEADER: Header = Header {
    count: 1,
    payload_bytes: BLOCK,
    table_crc: 0,
    number: 0,
    sink_ost: OstId(0),
    is_last_grant: false,
    has_only_sums: false,
};

fn arrive_with(sink: &mut Sink, entry: EntryId, number: u32, buffer: BufferId, header: &Header) {
    let offset = u64::from(number) * u64::from(BLOCK);
    let row = Row { block: Block { entry, offset, length: BLOCK }, is_whole: false, checksum: 0 };
    sink.admit(header, &[row]).expect("there is room");
    let at_once = sink.on_frame(Instant::START, buffer, header, &[(row, true)]);
    assert_eq!(at_once, None);
}

fn next_write(sink: &mut Sink) -> Option<Write> {
    let has_task = sink.may_have_task();
    match sink.next_task(Instant::START) {
        Some(Task::Write(write)) => {
            assert!(has_task, "a thread that sleeps would not be woken");
            Some(write)
        }
        None => None,
        Some(other) => panic!("{other:?}"),
    }
}

fn written(sink: &mut Sink, write: Write) {
    let (service, failures) = (Duration::ZERO, vec![None; write.rows.len()]);
    let event = Event::Written { write, service, failures };
    sink.handle(Instant::START, event).expect("our own word");
}

#[test]
fn an_idle_track_writes_what_waits_for_another_track_of_its_target() {
    let mut sink = sink();
    arrive(&mut sink, 4);
    let first = next_write(&mut sink).expect("its track is free");
    let second = next_write(&mut sink).expect("the other track is free");
    assert_eq!([first.ost, second.ost], [OstId(0), OstId(1)]);
    assert_eq!(next_write(&mut sink), None, "neither another target nor an OST takes part");
    assert!(!sink.may_have_task());
    written(&mut sink, second);
    let third = next_write(&mut sink).expect("a track is free again");
    assert_eq!((third.ost, third.room), (OstId(1), OstId(0)));
}

#[test]
fn an_idle_track_takes_over_nothing_if_enough_is_in_flight() {
    let mut sink = sink();
    sink.match_requests(1);
    arrive(&mut sink, 4);
    let first = next_write(&mut sink).expect("one write is allowed");
    assert_eq!(next_write(&mut sink), None);
    assert!(!sink.may_have_task());
    written(&mut sink, first);
    assert!(next_write(&mut sink).is_some());
}

#[test]
fn the_room_of_what_another_track_has_written_is_granted_again_where_it_was() {
    let mut sink = sink();
    arrive(&mut sink, 4);
    let mut writes = Vec::new();
    for _ in 0..2 {
        let both = [next_write(&mut sink), next_write(&mut sink)];
        both.into_iter().for_each(|write| {
            let write = write.expect("both tracks are free");
            writes.push(write.rows[0].0.block.offset);
            written(&mut sink, write);
        });
    }
    writes.sort_unstable();
    assert_eq!(writes, [0, 1, 2, 3].map(|number| number * u64::from(BLOCK)));
    let granted = std::iter::from_fn(|| sink.next_message()).find_map(|message| match message {
        Message::Grant(lot) => Some(lot.osts),
        _ => None,
    });
    assert_eq!(granted, Some(vec![(OstId(0), 4)]));
}

/// A sink whose only OST takes four requests, and may lock files; and two files.
fn sink_that_locks(locks_files: bool) -> Sink {
    let ost = OstSpec { locks_files, ..OstSpec::new("memory", 4) };
    let mut sink = sink_with(&SinkConfig { osts: vec![ost], ..sink_config() }, 4);
    announce(&mut sink, OTHER, 4);
    let layout = Layout::on(OstId(0));
    examined(&mut sink, OTHER, Examined::Want { done: Vec::new(), layout, extents: Vec::new() });
    for (number, file) in [FILE, FILE, OTHER, FILE].into_iter().enumerate() {
        let number = u32::try_from(number).expect("there are four");
        arrive_of(&mut sink, file, number, BufferId(number), false);
    }
    sink
}

fn file_of(write: &Write) -> EntryId {
    write.rows[0].0.block.entry
}

#[test]
fn a_file_that_is_locked_while_it_is_written_is_passed_by_others() {
    let mut sink = sink_that_locks(true);
    let first = next_write(&mut sink).expect("nothing is locked");
    let second = next_write(&mut sink).expect("the other file is not locked");
    assert_eq!([file_of(&first), file_of(&second)], [FILE, OTHER]);
    assert_eq!(next_write(&mut sink), None, "all that waits is of a locked file");
    assert!(!sink.may_have_task(), "a thread would be woken for nothing");
    written(&mut sink, second);
    assert_eq!(next_write(&mut sink), None, "another file is written, the lock is held");
    written(&mut sink, first);
    let third = next_write(&mut sink).expect("it is not locked any more");
    assert_eq!((file_of(&third), next_write(&mut sink)), (FILE, None));
    written(&mut sink, third);
    assert!(next_write(&mut sink).is_some());
}

#[test]
fn several_blocks_of_a_file_are_written_at_a_time_where_it_is_not_locked() {
    let mut sink = sink_that_locks(false);
    let files: Vec<_> =
        (0..4).filter_map(|_| next_write(&mut sink)).map(|it| file_of(&it)).collect();
    assert_eq!(files, [FILE, FILE, OTHER, FILE]);
}

#[test]
fn several_blocks_of_a_file_are_compared_at_a_time() {
    let ost = OstSpec { locks_files: true, ..OstSpec::new("memory", 4) };
    let mut sink = Sink::new(&SinkConfig { osts: vec![ost], ..sink_config() });
    sink.handle(Instant::START, Event::Message(Message::Roots(Vec::new()))).expect("our own word");
    announce(&mut sink, FILE, 4);
    examined(&mut sink, FILE, Examined::Compare { layout: Layout::on(OstId(0)) });
    let header = Header { payload_bytes: 0, has_only_sums: true, ..HEADER };
    for number in 0..2 {
        arrive_with(&mut sink, FILE, number, BufferId(number), &header);
    }
    let both = [next_write(&mut sink), next_write(&mut sink)];
    assert!(both.iter().flatten().filter(|write| write.is_comparison).count() == 2, "{both:?}");
}

/// How many grants the first of 64 tracks gets over a long line when it has written its share of
/// two frames.
fn grants_after_its_share(stage: Option<StageConfig>) -> u32 {
    let osts = vec![OstSpec { is_track: true, ..OstSpec::new("mount", 1) }; 64];
    let mut config = SinkConfig { osts, stage, ..sink_config() };
    config.buffer_count = 128 + config.kept_count();
    let mut sink = sink_with(&config, 16);
    let far = Event::RoundTrip(Duration::from_secs(1));
    sink.handle(Instant::START, far).expect("our own word");
    while sink.next_message().is_some() {}
    arrive(&mut sink, 2);
    while let Some(write) = next_write(&mut sink) {
        written(&mut sink, write);
    }
    let messages = std::iter::from_fn(|| sink.next_message());
    let lots = messages.filter_map(|message| match message {
        Message::Grant(lot) => Some(lot.osts),
        _ => None,
    });
    lots.flatten().map(|(_, count)| count).sum()
}

#[test]
fn a_track_gets_more_than_its_share_unless_what_waits_is_to_be_staged() {
    let stage = StageConfig { bytes: 1 << 30, threads_max: 1, drains_max: 4, writes_max: 4 };
    assert_eq!(grants_after_its_share(None), 4);
    assert_eq!(grants_after_its_share(Some(stage)), 2);
}

/// Frames that wait in buffers which other OSTs could use, while as many are written as may be.
#[test]
fn what_waits_for_an_ost_without_grants_is_staged() {
    let stage = StageConfig { bytes: 1 << 30, threads_max: 1, drains_max: 4, writes_max: 1 };
    let mut config = SinkConfig { stage: Some(stage), ..sink_config() };
    config.buffer_count = 8 + config.kept_count();
    let mut sink = sink_with(&config, 16);
    let row = |number: u32| {
        let offset = u64::from(number) * u64::from(BLOCK);
        Row { block: Block { entry: FILE, offset, length: BLOCK }, is_whole: false, checksum: 0 }
    };
    let granted = (0..16).take_while(|&number| sink.admit(&HEADER, &[row(number)]).is_ok());
    let granted: Vec<u32> = granted.collect();
    for &number in &granted {
        sink.on_frame(Instant::START, BufferId(number), &HEADER, &[(row(number), true)]);
    }
    assert!(matches!(sink.next_task(Instant::START), Some(Task::Write(_))));
    assert!(sink.may_have_task());
    let task = sink.next_task(Instant::START);
    assert!(matches!(task, Some(Task::Stage(..))), "{task:?} of {granted:?}");
}

/// Does the next task, which records blocks, or commits a file; then it is not done yet.
fn is_committing(sink: &mut Sink) -> bool {
    match sink.next_task(Instant::START) {
        Some(Task::Commit(_)) => return true,
        Some(Task::Sync(files)) => {
            let synced = files.into_iter().map(|file| (file, None)).collect();
            sink.handle(Instant::START, Event::Synced(synced)).expect("our own word");
        }
        task => panic!("{task:?}"),
    }
    false
}

/// A file of one block is written and read back, and the block differs.
#[test]
fn a_block_that_rotted_is_asked_for_again() {
    let config = SinkConfig { verifies_media: true, resends_max: 1, ..sink_config() };
    let mut sink = sink_with(&config, 1);
    for attempt in 0..2 {
        arrive(&mut sink, 1);
        let write = next_write(&mut sink).expect("it waits");
        written(&mut sink, write);
        let ending = Message::FileDone(vec![(FILE, Ending::Complete)]);
        sink.handle(Instant::START, Event::Message(ending)).expect("all was sent");
        while !is_committing(&mut sink) {}
        let record = BlockRecord { offset: 0, length: BLOCK, checksum: 0 };
        let bad = Event::Committed(vec![(FILE, Committed::Bad(vec![record]))]);
        sink.handle(Instant::START, bad).expect("our own word");
        let messages: Vec<Message> = std::iter::from_fn(|| sink.next_message()).collect();
        let is_asked_for = messages.iter().any(|it| matches!(it, Message::BlockBad(_)));
        assert_eq!(is_asked_for, attempt == 0, "{messages:?}");
    }
}

/// How many OSTs a new file of this many blocks gets.
fn osts_for(blocks: u32) -> usize {
    let osts = (0..8).map(|number| OstSpec::new(format!("OST{number}"), 4)).collect();
    let mut sink = Sink::new(&SinkConfig { osts, ..sink_config() });
    sink.handle(Instant::START, Event::Message(Message::Roots(Vec::new()))).expect("our own word");
    announce(&mut sink, FILE, blocks);
    match sink.place(Instant::START, FILE, Striping::default()).wish {
        Wish::On { osts, .. } => osts.len(),
        Wish::Striped { stripe_count, .. } => stripe_count,
        wish @ Wish::Default => panic!("{wish:?}"),
    }
}

#[test]
fn large_files_are_spread_over_more_osts_than_small_ones() {
    assert_eq!(osts_for(1), 1);
    assert!(osts_for(64 << 10) > 1, "{}", osts_for(64 << 10));
}

#[test]
fn buffers_are_kept_for_drains_and_for_files_that_are_read_back() {
    let stage = StageConfig { bytes: 1 << 30, threads_max: 1, drains_max: 4, writes_max: 4 };
    let kept = |stage, verifies_media| {
        SinkConfig { stage, verifies_media, commits_max: 3, ..sink_config() }.kept_count()
    };
    assert_eq!([kept(None, false), kept(Some(stage), false), kept(None, true)], [0, 4, 3]);
    assert_eq!(kept(Some(stage), true), 7);
}

/// A file that was whole when the transfer stopped, and had not begun to get its name, was sent
/// again, as far as it was not on record yet.
#[test]
fn all_that_was_written_when_it_stops_goes_on_record() {
    for late_count in 0..=2 {
        let mut sink = sink_of(4);
        arrive(&mut sink, 4);
        let all_sent = Message::FileDone(vec![(FILE, Ending::Complete)]);
        sink.handle(Instant::START, Event::Message(all_sent)).expect("as it should be");
        let (mut count, mut late) = (0, Vec::new());
        while count < 4 {
            let write = next_write(&mut sink).expect("there is more to write");
            count += write.rows.len();
            match count > 4 - late_count {
                true => late.push(write),
                false => written(&mut sink, write),
            }
        }
        sink.handle(Instant::START, Event::Stop).expect("our own word");
        late.into_iter().for_each(|write| written(&mut sink, write));
        assert_eq!(put_on_record(&mut sink), 4);
        assert!(!sink.may_have_task(), "its threads would not sleep");
    }
}

/// Puts on record what waits for that. Returns the number of blocks.
fn put_on_record(sink: &mut Sink) -> usize {
    let mut count = 0;
    while let Some(Task::Sync(files)) = sink.next_task(Instant::START) {
        count += files.iter().map(|it| it.blocks.len()).sum::<usize>();
        let results = files.into_iter().map(|it| (it, None)).collect();
        sink.handle(Instant::START, Event::Synced(results)).expect("our own word");
    }
    count
}

/// A source that gives up has frames under way. The last block of a file, which came when the sink
/// had stopped, was said to be done, and was not on record.
#[test]
fn what_comes_when_it_has_stopped_is_not_done() {
    let mut sink = sink_of(4);
    arrive(&mut sink, 3);
    while let Some(write) = next_write(&mut sink) {
        written(&mut sink, write);
    }
    sink.handle(Instant::START, Event::Stop).expect("our own word");
    assert_eq!(put_on_record(&mut sink), 3);
    assert!(sink.is_over());
    arrive_one(&mut sink, 3, true);
    let write = next_write(&mut sink).expect("its threads still run");
    written(&mut sink, write);
    let messages = std::iter::from_fn(|| sink.next_message());
    let done = messages.filter_map(|message| match message {
        Message::BlockDone(ranges) => Some(ranges.len()),
        _ => None,
    });
    assert_eq!(done.sum::<usize>(), 3, "the fourth is not on record");
}
