//! Tracks of a sink: what has arrived for one track is written by any that has nothing to do.

mod ends;

use ends::{BLOCK, sink_config};
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::frame::{Header, Row};
use lads_core::layout::Layout;
use lads_core::message::{Ending, Message};
use lads_core::placement::Striping;
use lads_core::schedule::OstSpec;
use lads_core::sink::{BufferId, Event, Examined, Sink, SinkConfig, StageConfig, Task, Write};
use lads_core::units::{Block, EntryId, Instant, OstId};
use std::time::Duration;

const FILE: EntryId = EntryId(1);

/// A sink with two tracks of one target and one of another, and an OST that is no track. A file of
/// this many blocks is wanted, all of them on the first track.
fn sink_of(blocks: u32) -> Sink {
    let track = |name: &str| OstSpec { is_track: true, ..OstSpec::new(name, 1) };
    let osts = vec![track("mount"), track("mount"), track("other"), OstSpec::new("mount", 1)];
    sink_with(&SinkConfig { osts, ..sink_config() }, blocks)
}

fn sink_with(config: &SinkConfig, blocks: u32) -> Sink {
    let mut sink = Sink::new(config);
    let size = u64::from(blocks) * u64::from(BLOCK);
    let entry = Entry {
        id: FILE,
        parent: EntryId::ROOT,
        name: b"file".to_vec(),
        kind: Kind::File {
            identity: Identity { size, inode: 1, ..Identity::default() },
            data_bytes: size,
            striping: Striping::default(),
            source_ost: OstId(0),
            is_different: false,
        },
        metadata: Metadata::default(),
    };
    for message in [Message::Roots(Vec::new()), Message::NewFile(vec![entry])] {
        sink.handle(Instant::START, Event::Message(message)).expect("as it should be");
    }
    assert!(matches!(sink.next_task(Instant::START), Some(Task::Examine(_))));
    let layout = Layout::on(OstId(0));
    let want = Examined::Want { done: Vec::new(), layout, extents: Vec::new() };
    sink.handle(Instant::START, Event::Examined(vec![(FILE, want)])).expect("our own word");
    while sink.next_message().is_some() {}
    sink
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
    let offset = u64::from(number) * u64::from(BLOCK);
    let row =
        Row { block: Block { entry: FILE, offset, length: BLOCK }, is_whole: false, checksum: 0 };
    let header = Header {
        count: 1,
        payload_bytes: BLOCK,
        table_crc: 0,
        number: 0,
        sink_ost: OstId(0),
        is_last_grant,
        has_only_sums: false,
    };
    sink.admit(&header, &[row]).expect("there is room");
    let at_once = sink.on_frame(Instant::START, BufferId(number), &header, &[(row, true)]);
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
