//! What the source knows of frames that were under way when a stream was lost.

mod ends;

use ends::{BLOCK, osts, source_config};
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::layout::Layout;
use lads_core::message::{Answer, Ending, Message};
use lads_core::placement::Striping;
use lads_core::range::RangeSet;
use lads_core::room::Lot;
use lads_core::schedule::{OstSpec, Policy, Work};
use lads_core::source::{Event, Found, ReadOutcome, Source, SourceConfig, Task};
use lads_core::units::{EntryId, Instant, OstId, StreamId};
use std::time::Duration;

fn source() -> Source {
    let config =
        SourceConfig { policy: Policy::Layout, stream_count: 4, retries_max: 0, ..source_config() };
    let mut source = Source::new(config, &[OstSpec { in_flight_max: 9, ..osts().remove(0) }]);
    hear(
        &mut source,
        Message::Ready { ost_count: 1, open_files_max: 100, is_renamed: false, time_unit_nanos: 1 },
    );
    source
}

fn hear(source: &mut Source, message: Message) {
    source.handle(Instant::START, Event::Message(message)).expect("the sink keeps to the protocol");
}

/// A file of this many blocks, which the sink wants.
fn add(source: &mut Source, id: u64, block_count: u64) {
    let size = block_count * u64::from(BLOCK);
    let identity = Identity { size, inode: id, ..Identity::default() };
    let entry = Entry {
        id: EntryId(id),
        parent: EntryId::ROOT,
        name: id.to_string().into_bytes(),
        kind: Kind::File {
            identity,
            data_bytes: size,
            striping: Striping::default(),
            source_ost: OstId(0),
            is_different: false,
        },
        metadata: Metadata::default(),
    };
    let layout = Layout::on(OstId(0));
    let found = Found { layout: layout.clone(), ..Found::new(entry) };
    source
        .handle(Instant::START, Event::Found(Box::new(found)))
        .expect("the sink keeps to the protocol");
    while source.next_message().is_some() {}
    let want = Answer::Want { done: RangeSet::new(), layout };
    hear(source, Message::FileId(vec![(EntryId(id), want)]));
}

fn read(source: &mut Source) -> Option<Work> {
    let Some(Task::Read(work)) = source.next_task(Instant::START, 0) else { return None };
    let outcomes = vec![ReadOutcome::Good; work.blocks.len()];
    let service = Duration::from_millis(1);
    source
        .handle(Instant::START, Event::Read { work: work.clone(), service, outcomes })
        .expect("the sink keeps to the protocol");
    Some(work)
}

fn send(source: &mut Source, number: u64) {
    let work = read(source).expect("there is room");
    source
        .handle(Instant::START, Event::Sent { stream: StreamId(0), number, work })
        .expect("the sink keeps to the protocol");
}

/// The grant of a frame was lost for good when the stream was, if its file had failed meanwhile
/// and another frame had gone out since: nothing more was needed of it, so it was forgotten.
#[test]
fn the_grant_of_a_lost_frame_comes_back_although_its_file_failed() {
    let mut source = source();
    hear(&mut source, Message::Grant(Lot::of(vec![(OstId(0), 2)])));
    add(&mut source, 1, 2);
    send(&mut source, 0);
    let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(5));
    hear(&mut source, Message::FileDone(vec![(EntryId(1), Ending::Failed(failure))]));
    add(&mut source, 2, 3);
    send(&mut source, 1);
    assert_eq!(read(&mut source), None, "both grants are used");
    hear(&mut source, Message::StreamEnd { stream: 0, frames: 0 });
    assert!(read(&mut source).is_some());
    assert!(read(&mut source).is_some(), "the second grant came back, too");
    assert_eq!(read(&mut source), None);
}
