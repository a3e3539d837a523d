//! What a session refuses that the gate alone cannot: lies about files that it knows of.

mod ends;

use ends::{osts, sink_config, source_config};
use lads_core::entry::{Entry, Identity, Kind, Metadata, Timestamp, UNSIZED_BYTES, Xattr};
use lads_core::frame::{Header, Row};
use lads_core::issue::Reason;
use lads_core::journal::BlockRecord;
use lads_core::layout::Layout;
use lads_core::limits::{ENTRY_BYTES_MAX, RANGES_MAX, RANGES_PER_MESSAGE, RESENDS_MAX};
use lads_core::message::{Answer, BlockRange, Ending, Message};
use lads_core::pass::Pass;
use lads_core::placement::Striping;
use lads_core::range::RangeSet;
use lads_core::room::Lot;
use lads_core::schedule::Work;
use lads_core::sink::{self, BufferId, Compared, Examined, Sink, Write};
use lads_core::source::{self, Found, Outcome, ProtocolError, ReadOutcome, Source, SourceConfig};
use lads_core::units::{Block, EntryId, Instant, OstId};
use std::time::Duration;

const PAGE: u64 = 4096;
const BLOCK: u64 = ends::BLOCK as u64;
const FILE: EntryId = EntryId(1);

fn file(size: u64) -> Entry {
    let identity = Identity { size, inode: 1, ..Identity::default() };
    let (striping, source_ost) = (Striping::default(), OstId(0));
    let kind = Kind::File { identity, data_bytes: size, striping, source_ost, is_different: false };
    let (name, metadata) = (b"file".to_vec(), Metadata::default());
    Entry { id: FILE, parent: EntryId::ROOT, name, kind, metadata }
}

fn source() -> Source {
    let mut source = Source::new(source_config(), &osts());
    hear(
        &mut source,
        Message::Ready { ost_count: 1, open_files_max: 100, is_renamed: false, time_unit_nanos: 1 },
    )
    .expect("a sound word");
    source
}

fn hear(source: &mut Source, message: Message) -> Result<(), ProtocolError> {
    source.handle(Instant::START, source::Event::Message(message))
}

fn find(source: &mut Source, entry: Entry) {
    let found = source::Event::Found(Box::new(Found::new(entry)));
    source.handle(Instant::START, found).expect("it comes from the walk");
}

fn announce(source: &mut Source) {
    while source.next_message().is_some() {}
}

fn want(done: RangeSet) -> Message {
    let layout = Layout::on(OstId(0));
    Message::FileId(vec![(FILE, Answer::Want { done, layout })])
}

/// A source with a file of this many bytes that the sink wants.
fn moving(size: u64) -> Source {
    let mut source = source();
    find(&mut source, file(size));
    announce(&mut source);
    hear(&mut source, want(RangeSet::new())).expect("a sound answer");
    source
}

fn range(offset: u64, length: u64) -> BlockRange {
    BlockRange { entry: FILE, offset, length }
}

#[test]
fn nothing_is_said_of_an_entry_before_it_was_announced() {
    let directory = Entry { kind: Kind::Directory, ..file(0) };
    for entry in [file(10), directory] {
        let words = [
            Message::FileId(vec![(FILE, Answer::Made)]),
            Message::FileDone(vec![(FILE, Ending::Failed(failure()))]),
            Message::BlockDone(vec![range(0, 10)]),
            Message::BlockBad(vec![range(0, 10)]),
        ];
        for word in words {
            let mut source = source();
            find(&mut source, entry.clone());
            let taken = hear(&mut source, word.clone());
            let is_harmless = entry.is_directory() && !matches!(word, Message::FileId(_));
            assert!(taken.is_err() || is_harmless, "{word:?}");
            assert_eq!(source.next_note(), None, "nothing has ended by {word:?}");
        }
    }
}

#[test]
fn nothing_is_said_of_an_entry_that_there_is_not() {
    let mut source = moving(PAGE);
    for entry in [EntryId::ROOT, EntryId(FILE.0 + 1)] {
        let range = BlockRange { entry, offset: 0, length: PAGE };
        for word in [Message::BlockDone(vec![range]), Message::BlockBad(vec![range])] {
            hear(&mut source, word.clone()).expect_err(&format!("{word:?}"));
        }
    }
    hear(&mut source, Message::BlockDone(vec![range(0, PAGE)])).expect("of the file that there is");
}

#[test]
fn a_file_that_the_sink_has_was_not_read_unless_it_is_empty() {
    for (size, unread) in [(10, (1, 10)), (0, (0, 0))] {
        let mut source = source();
        find(&mut source, file(size));
        announce(&mut source);
        hear(&mut source, Message::FileId(vec![(FILE, Answer::Have)])).expect("a sound answer");
        let counters = source.counters();
        assert_eq!((counters.files_unread, counters.bytes_unread), unread);
        assert_eq!((counters.files_skipped, counters.bytes_skipped), (1, size));
    }
}

/// Read back at the sink, a block may turn out not to be what was written.
#[test]
fn what_is_bad_after_all_counts_as_neither_done_nor_skipped() {
    let mut source = source();
    find(&mut source, file(3 * PAGE));
    announce(&mut source);
    hear(&mut source, want(std::iter::once(0..PAGE).collect())).expect("a sound answer");
    hear(&mut source, Message::BlockDone(vec![range(PAGE, PAGE)])).expect("it was sent");
    let counted = |source: &Source| {
        (
            source.counters().bytes_done,
            source.counters().bytes_skipped,
            source.counters().blocks_resent,
        )
    };
    assert_eq!(counted(&source), (2 * PAGE, PAGE, 0));
    hear(&mut source, Message::BlockBad(vec![range(PAGE, PAGE)])).expect("it may be damaged");
    assert_eq!(counted(&source), (PAGE, PAGE, 1));
    hear(&mut source, Message::BlockBad(vec![range(0, PAGE)])).expect("it may be damaged");
    assert_eq!(counted(&source), (0, 0, 2));
}

/// To pass everything over would look like a transfer that ended well.
#[test]
fn nothing_is_passed_over_unless_the_person_asked_for_it() {
    let directory = Entry { kind: Kind::Directory, ..file(0) };
    for (entry, may_pass) in [(file(10), false), (directory, false), (file(10), true)] {
        let mut source = Source::new(SourceConfig { may_pass, ..source_config() }, &osts());
        let ready = Message::Ready {
            ost_count: 1,
            open_files_max: 100,
            is_renamed: false,
            time_unit_nanos: 1,
        };
        hear(&mut source, ready).expect("a sound word");
        find(&mut source, entry);
        announce(&mut source);
        let taken = hear(&mut source, Message::FileId(vec![(FILE, Answer::Passed(Pass::Newer))]));
        assert_eq!(taken.is_ok(), may_pass);
        assert_eq!(source.counters().passed.newer, u64::from(may_pass));
    }
}

fn failure() -> lads_core::issue::Failure {
    use lads_core::issue::{Failure, Operation, Side};
    Failure::new(Side::Sink, Operation::Write, Reason::Os(5))
}

#[test]
fn an_entry_is_answered_once() {
    let mut source = moving(10);
    hear(&mut source, want(RangeSet::new())).expect_err("a second FILE_ID");
}

#[test]
fn what_the_sink_has_lies_in_the_file_and_on_pages() {
    let sets =
        [[0..PAGE + 1, 0..0], [1..PAGE, 0..0], [0..4 * PAGE, 0..0], [0..PAGE, PAGE + 1..2 * PAGE]];
    for set in sets {
        let mut source = source();
        find(&mut source, file(3 * PAGE));
        announce(&mut source);
        hear(&mut source, want(set.clone().into_iter().collect())).expect_err(&format!("{set:?}"));
    }
    let mut source = moving(3 * PAGE - 1);
    for (offset, length) in [(0, 1), (1, PAGE - 1), (0, 3 * PAGE), (3 * PAGE, PAGE)] {
        let done = Message::BlockDone(vec![range(offset, length)]);
        hear(&mut source, done).expect_err(&format!("{offset}+{length}"));
    }
    let end = Message::BlockDone(vec![range(2 * PAGE, PAGE - 1)]);
    hear(&mut source, end).expect("the last page is not whole");
}

/// One block after another that lies apart from all others would fill any memory.
#[test]
fn pieces_that_lie_apart_are_bounded() {
    let mut source = moving(1 << 50);
    let rows = |from: u64| (from..from + 1000).map(|n| range(2 * n * PAGE, PAGE)).collect();
    let refused = (0..)
        .step_by(1000)
        .find(|&from| hear(&mut source, Message::BlockDone(rows(from))).is_err());
    assert_eq!(refused, Some(RANGES_MAX as u64 / 1000 * 1000));
}

/// A source with a file of this many bytes hears this answer.
fn answered(size: u64, answer: Answer) -> Result<Source, ProtocolError> {
    let mut source = source();
    find(&mut source, file(size));
    announce(&mut source);
    hear(&mut source, Message::FileId(vec![(FILE, answer)]))?;
    Ok(source)
}

#[test]
fn a_file_without_bytes_is_not_compared() {
    let compare = || Answer::Compare { layout: Layout::on(OstId(0)) };
    assert!(answered(0, compare()).is_err());
    assert!(answered(PAGE, compare()).is_ok());
}

#[test]
fn only_a_file_that_is_compared_is_the_same_or_different() {
    for ending in [Ending::Same, Ending::Different] {
        let done = || Message::FileDone(vec![(FILE, ending.clone())]);
        hear(&mut moving(PAGE), done()).expect_err("it is sent");
        let compare = Answer::Compare { layout: Layout::on(OstId(0)) };
        let mut source = answered(PAGE, compare).expect("it may be compared");
        hear(&mut source, done()).expect("it is compared");
    }
}

#[test]
fn blocks_are_asked_for_again_so_often_and_no_more() {
    let mut source = moving(1 << 30);
    for _ in 0..RESENDS_MAX {
        hear(&mut source, Message::BlockBad(vec![range(0, PAGE)])).expect("it may be damaged");
    }
    let error = hear(&mut source, Message::BlockBad(vec![range(0, PAGE)]));
    assert!(matches!(error, Err(ProtocolError::TooMuch(_))), "{error:?}");
}

#[test]
fn an_entry_with_more_attributes_than_can_be_told_fails_alone() {
    let xattr = Xattr { name: b"user.a".to_vec(), value: vec![0; 60 << 10] };
    let count = ENTRY_BYTES_MAX / xattr.value.len() + 1;
    let metadata = Metadata { xattrs: vec![xattr; count], ..Metadata::default() };
    let mut source = source();
    find(&mut source, Entry { metadata: metadata.clone(), ..file(10) });
    let note = source.next_note().expect("it has ended");
    assert!(
        matches!(note.outcome, Outcome::Failed(failure) if failure.reason == Reason::LargeMetadata),
        "{note:?}"
    );
    assert!(source.next_message().is_none(), "it is not announced");
    // What is in a directory is moved all the same.
    find(&mut source, Entry { kind: Kind::Directory, metadata, ..file(0) });
    let Some(Message::NewFile(entries)) = source.next_message() else { panic!("no NEW_FILE") };
    assert!(entries[0].metadata.xattrs.is_empty());
}

fn sink() -> Sink {
    let mut sink = Sink::new(&sink_config());
    tell(&mut sink, Message::Roots(Vec::new())).expect("the first word");
    sink
}

fn tell(sink: &mut Sink, message: Message) -> Result<(), ProtocolError> {
    sink.handle(Instant::START, sink::Event::Message(message))
}

fn examined(sink: &mut Sink, done: Vec<BlockRecord>) {
    assert!(matches!(sink.next_task(Instant::START), Some(sink::Task::Examine(_))));
    let want = Examined::Want { done, layout: Layout::on(OstId(0)), extents: Vec::new() };
    sink.handle(Instant::START, sink::Event::Examined(vec![(FILE, want)])).expect("our own word");
}

fn admit(sink: &mut Sink, offset: u64, length: u32) -> Result<(), ProtocolError> {
    admit_of_kind(sink, offset, length, false)
}

/// A frame of one block with its bytes, or only with its checksum.
fn admit_of_kind(
    sink: &mut Sink,
    offset: u64,
    length: u32,
    has_only_sums: bool,
) -> Result<(), ProtocolError> {
    sink.admit(&header(length, has_only_sums), &[row(offset, length)])
}

fn row(offset: u64, length: u32) -> Row {
    Row { block: Block { entry: FILE, offset, length }, is_whole: false, checksum: 0 }
}

fn header(length: u32, has_only_sums: bool) -> Header {
    Header {
        count: 1,
        payload_bytes: if has_only_sums { 0 } else { length },
        table_crc: 0,
        number: 0,
        sink_ost: OstId(0),
        is_last_grant: false,
        has_only_sums,
    }
}

/// A page arrives, of which this frame was let in; what is to be done at once, or next.
fn arrive(sink: &mut Sink, offset: u64, has_only_sums: bool) -> Option<Write> {
    let (header, rows) = (header(4096, has_only_sums), [(row(offset, 4096), true)]);
    let write = sink.on_frame(Instant::START, BufferId(0), &header, &rows);
    write.or_else(|| match sink.next_task(Instant::START) {
        Some(sink::Task::Write(write)) => Some(write),
        _ => None,
    })
}

#[test]
fn no_block_comes_before_its_file_is_wanted() {
    let mut sink = sink();
    while sink.next_message().is_some() {}
    tell(&mut sink, Message::NewFile(vec![file(10 * PAGE)])).expect("a sound file");
    admit(&mut sink, 0, 4096).expect_err("it is not known where it will lie");
    examined(&mut sink, Vec::new());
    admit(&mut sink, 0, 4096).expect("it is wanted");
}

#[test]
fn blocks_lie_on_pages() {
    let mut sink = sink();
    while sink.next_message().is_some() {}
    tell(&mut sink, Message::NewFile(vec![file(10 * PAGE + 1)])).expect("a sound file");
    examined(&mut sink, Vec::new());
    for (offset, length) in [(1, 4095), (0, 4095), (0, 1), (10 * PAGE, 2), (u64::MAX, 1)] {
        admit(&mut sink, offset, length).expect_err(&format!("{offset}+{length}"));
    }
    for (offset, length) in [(0, 4096), (PAGE, 8192), (10 * PAGE, 1)] {
        admit(&mut sink, offset, length).expect("whole pages, or the end");
    }
}

/// A long list of what there is goes in several messages, and is one list at the source.
#[test]
fn what_an_earlier_attempt_left_is_told_in_pieces_however_much_it_is() {
    let count = 3 * RANGES_PER_MESSAGE as u64 + 5;
    let record = |n| BlockRecord { offset: 2 * n * PAGE, length: 4096, checksum: n };
    let size = 2 * count * PAGE;
    let (mut sink, mut source) = (sink(), source());
    find(&mut source, file(size));
    while let Some(message) = source.next_message() {
        tell(&mut sink, message).expect("a sound file");
    }
    examined(&mut sink, (0..count).map(record).collect());
    let mut answers = 0;
    while let Some(message) = sink.next_message() {
        answers += usize::from(matches!(message, Message::FileId(_)));
        let mut bytes = Vec::new();
        lads_core::message::encode(&message, &mut bytes);
        let back = lads_core::message::decode(&bytes[4..]).expect("it fits");
        hear(&mut source, back).expect("the sink keeps to the protocol");
    }
    assert_eq!(answers, 4);
    assert_eq!(source.counters().bytes_skipped, count * PAGE);
}

/// A journal that somebody wrote, or that is damaged, says of a file what cannot be.
#[test]
fn what_no_attempt_can_have_left_does_not_count() {
    let mut sink = sink();
    tell(&mut sink, Message::NewFile(vec![file(10 * PAGE)])).expect("a sound file");
    let record = |offset, length| BlockRecord { offset, length, checksum: 0 };
    let done =
        vec![record(0, 4096), record(PAGE + 1, 4096), record(9 * PAGE, 8192), record(u64::MAX, 2)];
    examined(&mut sink, done);
    let answers = std::iter::from_fn(|| sink.next_message()).find_map(|message| match message {
        Message::FileId(answers) => Some(answers),
        _ => None,
    });
    let expected: RangeSet = std::iter::once(0..PAGE).collect();
    let answer = answers.expect("it was looked at").remove(0).1;
    assert!(matches!(&answer, Answer::Want { done, .. } if *done == expected), "{answer:?}");
}

/// A hole has no data, but at the sink there may be bytes in its place.
#[test]
fn nothing_is_the_same_before_all_of_it_was_compared() {
    let mut sink = sink();
    let mut holes = file(2 * PAGE);
    if let Kind::File { data_bytes, .. } = &mut holes.kind {
        *data_bytes = PAGE;
    }
    tell(&mut sink, Message::NewFile(vec![holes])).expect("a sound file");
    assert!(matches!(sink.next_task(Instant::START), Some(sink::Task::Examine(_))));
    let compare = Examined::Compare { layout: Layout::on(OstId(0)) };
    sink.handle(Instant::START, sink::Event::Examined(vec![(FILE, compare)])).expect("our word");
    while sink.next_message().is_some() {}
    tell(&mut sink, Message::FileDone(vec![(FILE, Ending::Complete)])).expect("of a file");
    for offset in [0, PAGE] {
        assert_eq!(sink.next_task(Instant::START), None, "bytes from {offset} on are missing");
        compared(&mut sink, offset);
    }
    assert!(matches!(sink.next_task(Instant::START), Some(sink::Task::Commit(_))));
}

/// Has a page compared, which is the same.
fn compared(sink: &mut Sink, offset: u64) {
    admit_of_kind(sink, offset, 4096, true).expect("it is to be compared");
    let write = arrive(sink, offset, true).expect("there is a block to compare");
    let (service, results) = (Duration::ZERO, vec![Compared::Same]);
    sink.handle(Instant::START, sink::Event::Compared { write, service, results }).expect("ours");
}

/// Bytes would be written that never came, or beyond the end of a file.
#[test]
fn a_frame_counts_for_no_other_file_that_has_got_the_number_while_it_arrived() {
    // Of which kind the file and the frame are, and the file that has the number then; and where
    // the block is.
    let cases = [(false, true, 0), (true, false, 0), (false, false, 9 * PAGE)];
    for (was_compared, is_compared, offset) in cases {
        let mut sink = sink();
        announce_to(&mut sink, 10 * PAGE, was_compared);
        admit_of_kind(&mut sink, offset, 4096, was_compared).expect("it is sound");
        tell(&mut sink, Message::FileDone(vec![(FILE, Ending::Dropped)])).expect("it is moved");
        let Some(sink::Task::Discard(_)) = sink.next_task(Instant::START) else {
            panic!("nothing of it is under way")
        };
        sink.handle(Instant::START, sink::Event::Discarded(vec![FILE])).expect("our own word");
        announce_to(&mut sink, PAGE, is_compared);
        let write = arrive(&mut sink, offset, was_compared).expect("its buffer is free again");
        assert_eq!(write.rows, []);
    }
}

/// A sink that wants an unsized file, of which the first page has been written.
fn unsized_sink() -> Sink {
    let mut sink = sink();
    announce_to(&mut sink, UNSIZED_BYTES, false);
    admit_of_kind(&mut sink, 0, 4096, false).expect("it is sound");
    let write = arrive(&mut sink, 0, false).expect("there is a block to write");
    let (service, failures) = (Duration::ZERO, vec![None]);
    sink.handle(Instant::START, sink::Event::Written { write, service, failures }).expect("ours");
    sink
}

fn complete_at(size: u64) -> Message {
    Message::FileDone(vec![(FILE, Ending::CompleteAt { size, mtime: Timestamp::default() })])
}

#[test]
fn an_unsized_file_is_as_long_as_what_was_written_of_it() {
    for size in [0, PAGE - 1, PAGE + 1, 2 * PAGE, UNSIZED_BYTES] {
        tell(&mut unsized_sink(), complete_at(size)).expect_err(&format!("{size} bytes"));
    }
    let unsaid = Message::FileDone(vec![(FILE, Ending::Complete)]);
    tell(&mut unsized_sink(), unsaid).expect_err("its length is not said");
    let mut sink = unsized_sink();
    tell(&mut sink, complete_at(PAGE)).expect("all of it was written");
    let Some(sink::Task::Commit(commits)) = sink.next_task(Instant::START) else {
        panic!("it is not committed")
    };
    assert_eq!(commits[0].end, Some((PAGE, Timestamp::default())));
    tell(&mut sink, complete_at(2 * PAGE)).expect_err("it had another length before");
}

#[test]
fn only_an_unsized_file_gets_its_length_at_its_end() {
    let mut sink = sink();
    announce_to(&mut sink, PAGE, false);
    tell(&mut sink, complete_at(PAGE)).expect_err("its length was announced");
    let mut source = moving(PAGE);
    hear(&mut source, complete_at(PAGE)).expect_err("only a source says so");
}

#[test]
fn of_an_unsized_file_the_sink_has_nothing() {
    let answers = [
        Answer::Have,
        Answer::Compare { layout: Layout::on(OstId(0)) },
        Answer::Begun { done: std::iter::once(0..PAGE).collect() },
        Answer::Want { done: std::iter::once(0..PAGE).collect(), layout: Layout::on(OstId(0)) },
    ];
    for answer in answers {
        let mut source = source();
        find(&mut source, file(UNSIZED_BYTES));
        announce(&mut source);
        let word = Message::FileId(vec![(FILE, answer)]);
        hear(&mut source, word.clone()).expect_err(&format!("{word:?}"));
    }
}

/// Of a pipe nobody knows how long it is while it is read: blocks may be handed out that it does
/// not have.
#[test]
fn an_unsized_file_ends_where_its_end_was_met() {
    let mut source = moving(UNSIZED_BYTES);
    hear(&mut source, Message::Grant(Lot::of(vec![(OstId(0), 3)]))).expect("a sound word");
    let works: Vec<Work> = std::iter::from_fn(|| match source.next_task(Instant::START, 0)? {
        source::Task::Read(work) => Some(work),
        task => panic!("{task:?}"),
    })
    .collect();
    let offsets: Vec<u64> = works.iter().map(|work| work.blocks[0].offset).collect();
    assert_eq!(offsets, [0, BLOCK, 2 * BLOCK], "in order");
    let size = BLOCK + 7;
    let read = |source: &mut Source, work: &Work, outcome| {
        let (work, service, outcomes) = (work.clone(), Duration::ZERO, vec![outcome]);
        source.handle(Instant::START, source::Event::Read { work, service, outcomes }).unwrap();
    };
    read(&mut source, &works[0], ReadOutcome::Good);
    assert_eq!(source.counters().bytes_found, BLOCK);
    source.handle(Instant::START, source::Event::WalkEnded).unwrap();
    assert!(!source.counters().is_walk_ended, "more may come");
    let end = source::Event::EndMet { entry: FILE, size, mtime: Timestamp::default() };
    source.handle(Instant::START, end).unwrap();
    read(&mut source, &works[1], ReadOutcome::Good);
    read(&mut source, &works[2], ReadOutcome::BeyondEnd);
    let counters = source.counters();
    assert_eq!((counters.bytes_found, counters.is_walk_ended), (size, true));
    let beyond = Message::BlockDone(vec![range(2 * BLOCK, PAGE)]);
    hear(&mut source, beyond).expect_err("there is no such block");
    hear(&mut source, Message::BlockDone(vec![range(0, size)])).expect("all of it");
    assert_eq!(source.next_task(Instant::START, 0), Some(source::Task::Check(FILE)));
    let outcome = ReadOutcome::Good;
    source.handle(Instant::START, source::Event::Checked { entry: FILE, outcome }).unwrap();
    assert!(std::iter::from_fn(|| source.next_message()).any(|word| word == complete_at(size)));
}

/// Announces the file, which is to be compared, or sent.
fn announce_to(sink: &mut Sink, size: u64, is_compared: bool) {
    tell(sink, Message::NewFile(vec![file(size)])).expect("a sound file");
    assert!(matches!(sink.next_task(Instant::START), Some(sink::Task::Examine(_))));
    let layout = Layout::on(OstId(0));
    let examined = match is_compared {
        true => Examined::Compare { layout },
        false => Examined::Want { done: Vec::new(), layout, extents: Vec::new() },
    };
    sink.handle(Instant::START, sink::Event::Examined(vec![(FILE, examined)])).expect("our word");
    while sink.next_message().is_some() {}
}

/// Found by fuzzing: the end of a write that was late counted for the file that had its number by
/// then, and the sink panicked.
#[test]
fn a_number_is_not_free_while_something_of_it_is_written() {
    let mut sink = sink();
    tell(&mut sink, Message::NewFile(vec![file(2 * PAGE)])).expect("a sound file");
    let write = drop_while_writing(&mut sink);
    let refused = tell(&mut sink, Message::NewFile(vec![file(PAGE)]));
    assert!(matches!(refused, Err(ProtocolError::OutOfPlace(_))), "{refused:?}");
    written(&mut sink, write);
    tell(&mut sink, Message::NewFile(vec![file(PAGE)])).expect("the number is free");
    examined(&mut sink, Vec::new());
    admit(&mut sink, 0, 4096).expect("it is wanted");
}

#[test]
fn a_late_write_does_not_hold_up_the_end() {
    let mut sink = sink();
    tell(&mut sink, Message::NewFile(vec![file(2 * PAGE)])).expect("a sound file");
    let write = drop_while_writing(&mut sink);
    tell(&mut sink, Message::Finish { is_complete: true }).expect("everything has ended");
    assert_eq!(sink.next_task(Instant::START), Some(sink::Task::Finish { is_complete: true }));
    sink.handle(Instant::START, sink::Event::Finished).expect("our own word");
    assert!(sink.is_finished());
    written(&mut sink, write);
}

/// Has the source drop the file that it has announced while a block of it is being written, and
/// the sink end it. Returns what is being written.
fn drop_while_writing(sink: &mut Sink) -> Write {
    while sink.next_message().is_some() {}
    examined(sink, Vec::new());
    admit(sink, 0, 4096).expect("it is wanted");
    let write = arrive(sink, 0, false).expect("there is a block to write");
    tell(sink, Message::FileDone(vec![(FILE, Ending::Dropped)])).expect("it is being moved");
    let Some(sink::Task::Discard(discards)) = sink.next_task(Instant::START) else {
        panic!("it does not wait for what is being written")
    };
    let entries = discards.iter().map(|discard| discard.entry).collect();
    sink.handle(Instant::START, sink::Event::Discarded(entries)).expect("our own word");
    let mut endings = std::iter::from_fn(|| sink.next_message());
    let expected = Message::FileDone(vec![(FILE, Ending::Dropped)]);
    assert!(endings.any(|message| message == expected));
    write
}

fn written(sink: &mut Sink, write: Write) {
    let (service, failures) = (Duration::ZERO, vec![None; write.rows.len()]);
    let event = sink::Event::Written { write, service, failures };
    sink.handle(Instant::START, event).expect("our own word");
}

/// It would get its name, or be dropped, while a thread looks what is under that name.
#[test]
fn a_file_does_not_end_before_it_is_answered() {
    for ending in [Ending::Complete, Ending::Dropped] {
        let word = Message::FileDone(vec![(FILE, ending)]);
        let mut sink = sink();
        tell(&mut sink, Message::NewFile(vec![file(PAGE)])).expect("a sound file");
        tell(&mut sink, word.clone()).expect_err("nobody has looked for it");
        assert!(matches!(sink.next_task(Instant::START), Some(sink::Task::Examine(_))));
        tell(&mut sink, word.clone()).expect_err("it is being looked for");
        let (done, layout, extents) = (Vec::new(), Layout::on(OstId(0)), Vec::new());
        let want = Examined::Want { done, layout, extents };
        let event = sink::Event::Examined(vec![(FILE, want)]);
        sink.handle(Instant::START, event).expect("our own word");
        tell(&mut sink, word).expect("it is being moved");
    }
}

/// A file may fail here while the source vouches for it: nobody answers that any more.
#[test]
fn a_flood_of_endings_is_not_answered() {
    let mut sink = sink();
    while sink.next_message().is_some() {}
    tell(&mut sink, Message::NewFile(vec![file(10)])).expect("a sound file");
    let no = Examined::Answer(Answer::Failed(failure()));
    assert!(sink.next_task(Instant::START).is_some());
    sink.handle(Instant::START, sink::Event::Examined(vec![(FILE, no)])).expect("our own word");
    while sink.next_message().is_some() {}
    for ending in [Ending::Complete, Ending::Dropped] {
        for _ in 0..1000 {
            tell(&mut sink, Message::FileDone(vec![(FILE, ending.clone())])).expect("late words");
        }
    }
    assert!(!sink.has_message());
    assert_eq!(sink.next_task(Instant::START), None);
}
