use super::*;
use crate::congestion::Threshold;
use crate::entry::{Entry, Identity, Kind, Metadata};
use crate::layout::Layout;
use crate::message::{Answer, Ending, Verb};
use crate::pass::Pass;
use crate::placement::Striping;
use crate::range::RangeSet;
use crate::room::Lot;
use crate::schedule::Policy;
use crate::units::OstId;

const BLOCK_BYTES: u32 = 4096;

fn source() -> Source {
    source_with(config())
}

fn config() -> SourceConfig {
    SourceConfig {
        tuning: crate::tuning::Tuning::DEFAULT,
        policy: Policy::Layout,
        threshold: Threshold::default(),
        block_size: BLOCK_BYTES,
        window_entries: 100,
        stream_count: 2,
        is_in_order: false,
        is_dry_run: false,
        may_pass: false,
        may_be_asked: false,
        removes_sources: false,
        is_all_there: true,
        is_comparing: false,
        window_directories: 100,
        open_files_max: 100,
        retries_max: 1,
        bytes_per_second: None,
        stage_bytes: 0,
        stage_threads_max: 0,
    }
}

fn source_with(config: SourceConfig) -> Source {
    source_of(config, 1)
}

fn source_of(config: SourceConfig, ost_count: u32) -> Source {
    let specs: Vec<_> = (0..ost_count).map(|ost| OstSpec::new(format!("OST{ost}"), 8)).collect();
    let mut source = Source::new(config, &specs);
    hear(
        &mut source,
        Message::Ready { ost_count: 1, open_files_max: 100, is_renamed: false, time_unit_nanos: 1 },
    );
    source
}

fn hear(source: &mut Source, message: Message) {
    source.handle(Instant::START, Event::Message(message)).expect("a sound word");
}

fn tell(source: &mut Source, event: Event) {
    source.handle(Instant::START, event).expect("our own word");
}

/// A file of two blocks is found, and the sink wants it; the first block of it is read.
fn read_of_new_file(source: &mut Source, id: EntryId) -> Work {
    read_of_file_with(source, id, None)
}

/// The same, if it has data only there.
fn read_of_file_with(source: &mut Source, id: EntryId, data: Option<RangeSet>) -> Work {
    wanted(source, id, data);
    hear(source, Message::Grant(Lot::of(vec![(OstId(0), 1)])));
    read(source, ReadOutcome::Good)
}

/// A file of two blocks, with data only there, is found, and the sink wants it.
fn wanted(source: &mut Source, id: EntryId, data: Option<RangeSet>) {
    let size = u64::from(BLOCK_BYTES) * 2;
    let data_bytes = data.as_ref().map_or(size, RangeSet::byte_count);
    let identity = Identity { size, ..Identity::default() };
    let (striping, source_ost) = (Striping::default(), OstId(0));
    let kind = Kind::File { identity, data_bytes, striping, source_ost, is_different: false };
    let name = id.0.to_string().into_bytes();
    let entry = Entry { id, parent: EntryId::ROOT, name, kind, metadata: Metadata::default() };
    tell(source, Event::Found(Box::new(Found { data, ..Found::new(entry) })));
    while source.next_message().is_some() {}
    let want = Answer::Want { done: RangeSet::new(), layout: Layout::on(OstId(0)) };
    hear(source, Message::FileId(vec![(id, want)]));
}

/// The next block is read, with this outcome.
fn read(source: &mut Source, outcome: ReadOutcome) -> Work {
    let task = source.next_task(Instant::START, 0);
    let Some(Task::Read(work)) = task else { panic!("{task:?} instead of a block") };
    let outcomes = vec![outcome; work.blocks.len()];
    tell(source, Event::Read { work: work.clone(), service: Duration::ZERO, outcomes });
    work
}

/// The number of every file that failed was kept to the end, in case a frame of it was lost.
#[test]
fn of_files_that_failed_only_those_with_blocks_under_way_are_kept() {
    let mut source = source();
    for number in 0..1000 {
        let id = EntryId(number + 1);
        let work = read_of_new_file(&mut source, id);
        tell(&mut source, Event::Sent { stream: StreamId(0), number, work });
        let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(5));
        hear(&mut source, Message::FileDone(vec![(id, Ending::Failed(failure))]));
        assert!(source.files.has_failed(id), "its frame may be lost");
        assert!(source.files.failed_count() <= 2, "{} are kept", source.files.failed_count());
    }
}

/// A grant is given back only for a frame that did not arrive.
#[test]
fn frames_of_files_that_failed_are_lost_unless_a_later_frame_arrived() {
    for is_first_durable in [false, true] {
        let mut source = source();
        let block = 0..u64::from(BLOCK_BYTES);
        let data = Some(std::iter::once(block).collect());
        let first = read_of_file_with(&mut source, FILE, data);
        sent(&mut source, 0, first);
        is_to_be_checked(&mut source);
        let second = read_of_new_file(&mut source, EntryId(2));
        sent(&mut source, 1, second);
        let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(5));
        hear(&mut source, Message::FileDone(vec![(EntryId(2), Ending::Failed(failure))]));
        source.streams.settle(&mut source.files);
        if is_first_durable {
            let length = u64::from(BLOCK_BYTES);
            let range = BlockRange { entry: FILE, offset: 0, length };
            hear(&mut source, Message::BlockDone(vec![range]));
            source.streams.settle(&mut source.files);
        }
        let lost = source.streams.on_end(StreamId(0), 1, &mut source.files);
        assert_eq!(lost.unsure, [OstId(0)], "an earlier frame says nothing of it");
    }
}

#[test]
fn an_entry_that_is_passed_over_is_counted_and_ends() {
    let mut source = source();
    let (entry, parent, pass) = (EntryId(1), EntryId::ROOT, Pass::Size);
    tell(&mut source, Event::Passed { entry, parent, pass });
    assert_eq!(source.next_note(), Some(Note { entry, outcome: Outcome::Passed }));
    assert_eq!(source.counters().files_found, 1);
}

fn found_directory(source: &mut Source, id: u64, parent: u64) {
    found(source, id, EntryId(parent), Kind::Directory);
}

fn found(source: &mut Source, id: u64, parent: EntryId, kind: Kind) {
    let (id, name, metadata) = (EntryId(id), b"name".to_vec(), Metadata::default());
    let entry = Entry { id, parent, name, kind, metadata };
    tell(source, Event::Found(Box::new(Found::new(entry))));
}

/// Each level of a tree took a round trip at the end.
#[test]
fn all_levels_of_a_tree_are_closed_at_once_with_finish() {
    let mut source = source();
    let listed = |directory, subdirectory_count| Event::Listed { directory, subdirectory_count };
    tell(&mut source, listed(EntryId::ROOT, 1));
    for level in 1..=3 {
        found_directory(&mut source, level, level - 1);
        tell(&mut source, listed(EntryId(level), u64::from(level < 3)));
    }
    tell(&mut source, Event::WalkEnded);
    while source.next_message().is_some() {}
    let made = (1..=3).map(|level| (EntryId(level), Answer::Made)).collect();
    hear(&mut source, Message::FileId(made));
    let complete = |level| (EntryId(level), Ending::Complete);
    let told = source.next_message();
    assert_eq!(told, Some(Message::FileDone([3, 2, 1].map(complete).to_vec())));
    assert_eq!(source.next_message(), Some(Message::Finish { is_complete: true }));
    let failure = Failure::new(Side::Sink, Operation::SetMetadata, Reason::Os(5));
    hear(&mut source, Message::FileDone(vec![complete(1), complete(2)]));
    assert!(!source.directories.are_all_over(), "the sink still has to close one");
    hear(&mut source, Message::FileDone(vec![(EntryId(3), Ending::Failed(failure))]));
    assert_eq!(source.counters().files_failed, 1);
    hear(&mut source, Message::Finished(Counters::default()));
    assert!(source.is_finished());
}

/// The sink would remove what the source could not list.
#[test]
fn what_failed_in_a_directory_is_known_before_the_sink_has_closed_it() {
    let mut source = source();
    tell(&mut source, Event::Listed { directory: EntryId::ROOT, subdirectory_count: 1 });
    found_directory(&mut source, 1, 0);
    let failure = Failure::new(Side::Source, Operation::List, Reason::Os(13));
    tell(&mut source, Event::NotListed { directory: EntryId(1), failure });
    tell(&mut source, Event::WalkEnded);
    while source.next_message().is_some() {}
    hear(&mut source, Message::FileId(vec![(EntryId(1), Answer::Made)]));
    let told = source.next_message();
    assert_eq!(told, Some(Message::FileDone(vec![(EntryId(1), Ending::Incomplete)])));
    assert_eq!(source.next_message(), Some(Message::Finish { is_complete: false }));
}

#[test]
fn a_sink_that_finishes_before_it_has_closed_all_directories_has_stopped() {
    let mut source = source();
    tell(&mut source, Event::Listed { directory: EntryId::ROOT, subdirectory_count: 1 });
    found_directory(&mut source, 1, 0);
    tell(&mut source, Event::Listed { directory: EntryId(1), subdirectory_count: 0 });
    tell(&mut source, Event::WalkEnded);
    while source.next_message().is_some() {}
    hear(&mut source, Message::FileId(vec![(EntryId(1), Answer::Made)]));
    while source.next_message().is_some() {}
    hear(&mut source, Message::Finished(Counters::default()));
    assert!(source.is_over() && !source.is_finished());
}

/// A terminal that stands still, and a tree in which everything fails.
#[test]
fn the_walk_waits_for_whoever_is_told_what_failed() {
    let mut source = source();
    let failure = Failure::new(Side::Source, Operation::Examine, Reason::Os(13));
    let (parent, is_counted) = (EntryId::ROOT, false);
    let mut count = 0;
    while source.wants_entries() {
        count += 1;
        let entry = EntryId(count);
        tell(&mut source, Event::Unreadable { entry, parent, is_counted, failure });
    }
    assert_eq!(count, NOTES_MAX as u64);
    source.next_note().expect("one for each");
    assert!(source.wants_entries());
}

/// How a directory ends at the source if the sink answers this.
fn outcome_of_directory(answer: Answer) -> Outcome {
    let mut source = source();
    tell(&mut source, Event::Listed { directory: EntryId::ROOT, subdirectory_count: 1 });
    found_directory(&mut source, 1, 0);
    tell(&mut source, Event::Listed { directory: EntryId(1), subdirectory_count: 0 });
    tell(&mut source, Event::WalkEnded);
    while source.next_message().is_some() {}
    hear(&mut source, Message::FileId(vec![(EntryId(1), answer)]));
    while source.next_message().is_some() {}
    hear(&mut source, Message::FileDone(vec![(EntryId(1), Ending::Complete)]));
    source.next_note().expect("it has ended").outcome
}

#[test]
fn only_directories_that_are_new_count_as_done() {
    assert_eq!(outcome_of_directory(Answer::Made), Outcome::Done(Verb::Directory, 0));
    assert_eq!(outcome_of_directory(Answer::Have), Outcome::There);
}

#[test]
fn a_source_is_stopping_once_the_sink_has_asked_for_it() {
    let mut source = source();
    assert!(!source.is_stopping());
    hear(&mut source, Message::Stop("enough".to_owned()));
    assert!(source.is_stopping());
}

/// Threads that find no block because all OSTs are busy do not wait for the other end.
#[test]
fn only_time_without_work_for_free_storage_counts_as_starved() {
    let at = |seconds| Instant::after_start(Duration::from_secs(seconds));
    let mut source = Source::new(config(), &[OstSpec::new("OST0", 1)]);
    hear(
        &mut source,
        Message::Ready { ost_count: 1, open_files_max: 100, is_renamed: false, time_unit_nanos: 1 },
    );
    wanted(&mut source, EntryId(1), None);
    hear(&mut source, Message::Grant(Lot::of(vec![(OstId(0), 2)])));
    assert!(matches!(source.next_task(at(1), 0), Some(Task::Read(_))));
    assert_eq!(source.next_task(at(1), 1), None, "the OST takes one request at a time");
    source.handle(at(3), Event::WalkEnded).expect("our own word");
    assert_eq!(source.counters().starved_micros, 0);
}

const FILE: EntryId = EntryId(1);

/// Both blocks of a file are read and sent; a thread checks the file.
fn sent_and_being_checked() -> Source {
    let mut source = source();
    let first = read_of_new_file(&mut source, FILE);
    sent(&mut source, 0, first);
    hear(&mut source, Message::Grant(Lot::of(vec![(OstId(0), 3)])));
    let second = read(&mut source, ReadOutcome::Good);
    sent(&mut source, 1, second);
    is_to_be_checked(&mut source);
    source
}

fn sent(source: &mut Source, number: u64, work: Work) {
    tell(source, Event::Sent { stream: StreamId(0), number, work });
}

fn is_to_be_checked(source: &mut Source) {
    assert_eq!(source.next_task(Instant::START, 0), Some(Task::Check(FILE)));
}

fn is_unchanged(source: &mut Source) {
    tell(source, Event::Checked { entry: FILE, outcome: ReadOutcome::Good });
}

/// The file was the same, and the sink is told.
fn gives_its_word(source: &mut Source) {
    is_unchanged(source);
    let word = Message::FileDone(vec![(FILE, Ending::Complete)]);
    assert_eq!(source.next_message(), Some(word));
}

fn has_nothing_to_do(source: &mut Source) {
    assert_eq!(source.next_task(Instant::START, 0), None);
    assert_eq!(source.next_message(), None);
}

/// The stream of both frames is lost, and the sink has neither.
fn is_lost(source: &mut Source) {
    hear(source, Message::StreamEnd { stream: 0, frames: 0 });
}

fn is_durable(source: &mut Source) {
    let length = u64::from(BLOCK_BYTES) * 2;
    hear(source, Message::BlockDone(vec![BlockRange { entry: FILE, offset: 0, length }]));
}

fn ends_well(source: &mut Source) {
    is_durable(source);
    has_nothing_to_do(source);
    hear(source, Message::FileDone(vec![(FILE, Ending::Complete)]));
    assert_eq!(source.counters().files_moved, 1);
}

/// It cost a round trip at the end of a transfer that the word was given when all was durable.
#[test]
fn the_word_is_given_once_when_all_was_read() {
    let mut source = sent_and_being_checked();
    gives_its_word(&mut source);
    has_nothing_to_do(&mut source);
    ends_well(&mut source);
}

#[test]
fn the_word_holds_for_what_is_lost_after_it() {
    let mut source = sent_and_being_checked();
    gives_its_word(&mut source);
    is_lost(&mut source);
    (0..2).for_each(|_| drop(read(&mut source, ReadOutcome::Good)));
    ends_well(&mut source);
}

#[test]
fn what_changed_before_it_was_read_again_is_dropped_in_spite_of_the_word() {
    let mut source = sent_and_being_checked();
    gives_its_word(&mut source);
    is_lost(&mut source);
    read(&mut source, ReadOutcome::Changed);
    let dropped = Message::FileDone(vec![(FILE, Ending::Dropped)]);
    assert_eq!(source.next_message(), Some(dropped));
    has_nothing_to_do(&mut source);
}

#[test]
fn a_check_during_which_blocks_are_lost_does_not_count() {
    let mut source = sent_and_being_checked();
    is_lost(&mut source);
    (0..2).for_each(|_| drop(read(&mut source, ReadOutcome::Good)));
    // One thread at a time checks a file: of two, the later could end first.
    has_nothing_to_do(&mut source);
    is_unchanged(&mut source);
    is_to_be_checked(&mut source);
    gives_its_word(&mut source);
    ends_well(&mut source);
    // The sink has all of it before the check has ended.
    let mut source = sent_and_being_checked();
    is_lost(&mut source);
    (0..2).for_each(|_| drop(read(&mut source, ReadOutcome::Good)));
    is_durable(&mut source);
    is_unchanged(&mut source);
    is_to_be_checked(&mut source);
    gives_its_word(&mut source);
    ends_well(&mut source);
}

#[test]
fn a_file_that_was_bad_when_it_was_read_back_needs_another_word() {
    for is_durable_first in [true, false] {
        let mut source = sent_and_being_checked();
        gives_its_word(&mut source);
        if is_durable_first {
            is_durable(&mut source);
        }
        let length = u64::from(BLOCK_BYTES) * 2;
        hear(&mut source, Message::BlockBad(vec![BlockRange { entry: FILE, offset: 0, length }]));
        (0..2).for_each(|_| drop(read(&mut source, ReadOutcome::Good)));
        is_to_be_checked(&mut source);
        gives_its_word(&mut source);
        ends_well(&mut source);
    }
}

/// A block that begins in data may end in a hole: bytes that were read do not tell enough.
#[test]
fn of_a_file_with_holes_all_data_is_read_before_the_word() {
    let mut source = source();
    let mut data = RangeSet::new();
    data.insert(0..100);
    data.insert(4096..4196);
    let first = read_of_file_with(&mut source, FILE, Some(data));
    assert!(first.bytes() >= 200, "{first:?}");
    sent(&mut source, 0, first);
    hear(&mut source, Message::Grant(Lot::of(vec![(OstId(0), 2)])));
    read(&mut source, ReadOutcome::Good);
    is_to_be_checked(&mut source);
}

/// A file that changed a moment ago, and is not read before this time.
fn found_late(source: &mut Source, id: u64, settled_at: Instant) {
    found_settling(source, id, Some(settled_at), None);
}

/// A file that changed a moment ago, and shows any change from these times on: in its status, and
/// in units of two seconds.
fn found_settling(
    source: &mut Source,
    id: u64,
    settled_at: Option<Instant>,
    settled_at_sink: Option<Instant>,
) {
    let identity = Identity { size: 4096, ..Identity::default() };
    let (striping, source_ost) = (Striping::default(), OstId(0));
    let kind = Kind::File { identity, data_bytes: 4096, striping, source_ost, is_different: false };
    let (id, name) = (EntryId(id), id.to_string().into_bytes());
    let entry = Entry { id, parent: EntryId::ROOT, name, kind, metadata: Metadata::default() };
    let found = Found { settled_at, settled_at_sink, ..Found::new(entry) };
    tell(source, Event::Found(Box::new(found)));
}

/// The files that are announced now.
fn announced(source: &mut Source) -> Vec<u64> {
    let mut ids = Vec::new();
    while let Some(message) = source.next_message() {
        if let Message::NewFile(entries) = message {
            ids.extend(entries.iter().map(|entry| entry.id.0));
        }
    }
    ids
}

/// If each file were waited for, many files in a tree that was just written would take hours.
#[test]
fn files_that_changed_a_moment_ago_are_waited_for_together() {
    let at = |millis| Instant::after_start(Duration::from_millis(millis));
    let mut source = source();
    for id in 1..=90 {
        found_late(&mut source, id, at(900 + id));
    }
    found_late(&mut source, 91, Instant::START);
    assert_eq!(announced(&mut source), [91], "others do not wait");
    assert!(source.may_have_task(), "no thread knows when to ask");
    assert_eq!(source.next_task(at(10), 0), None);
    assert_eq!(source.next_timeout(), Some(at(901)));
    assert!(!source.may_have_task(), "a thread asks again at that time");
    assert_eq!(source.next_task(at(901), 0), None);
    assert_eq!(announced(&mut source), [1]);
    assert_eq!(source.next_timeout(), Some(at(902)));
    assert_eq!(source.next_task(at(990), 0), None);
    assert_eq!(announced(&mut source), (2..=90).collect::<Vec<_>>());
    assert_eq!(source.next_timeout(), None);
}

/// A change within the unit of the sink would leave the same time there, and the next transfer
/// would skip the file.
#[test]
fn a_file_is_announced_when_any_change_shows_in_the_times_of_the_sink() {
    let at = |millis| Some(Instant::after_start(Duration::from_millis(millis)));
    let now = |source: &mut Source, millis| {
        let task = source.next_task(at(millis).unwrap(), 0);
        assert_eq!(task, None);
        announced(source)
    };
    for (time_unit_nanos, expected) in [(1, 101), (1_000_000_000, 1100), (2_000_000_000, 2100)] {
        let mut source = Source::new(config(), &[OstSpec::new("OST0", 8)]);
        found_settling(&mut source, 1, None, at(2100));
        found_settling(&mut source, 2, at(40), at(2100));
        found_settling(&mut source, 3, at(40), None);
        assert_eq!(now(&mut source, 39), []);
        assert_eq!(now(&mut source, 41), [3], "the others wait for READY");
        let (open_files_max, is_renamed) = (100, false);
        let ready = Message::Ready { ost_count: 1, open_files_max, is_renamed, time_unit_nanos };
        hear(&mut source, ready);
        assert_eq!(source.may_have_task(), expected < 2100, "a thread must ask earlier");
        assert_eq!(now(&mut source, expected - 1), [], "{time_unit_nanos}");
        assert_eq!(now(&mut source, expected), [1, 2], "{time_unit_nanos}");
        found_settling(&mut source, 4, None, at(4000));
        let until = Duration::from_secs(2) + Duration::from_nanos(time_unit_nanos.into());
        assert_eq!(source.next_timeout(), Some(Instant::after_start(until)));
    }
}

/// The time from which on the rate limit let something through was over. No thread waited until the
/// file's time then, and the transfer hung.
#[test]
fn a_file_that_waits_is_announced_under_a_rate_limit() {
    let mut source = source_with(SourceConfig { bytes_per_second: Some(1 << 20), ..config() });
    read_of_new_file(&mut source, EntryId(1));
    let late = Instant::after_start(Duration::from_secs(9));
    found_late(&mut source, 2, late);
    assert_eq!(source.next_task(Instant::after_start(Duration::from_secs(5)), 0), None);
    assert_eq!(source.next_timeout(), Some(late));
}

/// The thread that was to ask again may have found something else to do meanwhile.
#[test]
fn another_thread_is_woken_for_a_file_that_waits_if_the_first_has_a_task() {
    let mut source = source();
    let late = Instant::after_start(Duration::from_secs(1));
    found_late(&mut source, 7, late);
    assert_eq!(source.next_task(Instant::START, 0), None);
    let work = read_of_new_file(&mut source, EntryId(8));
    assert!(source.may_have_task(), "nobody asks again");
    assert_eq!(source.next_task(Instant::START, 1), None);
    assert!(!source.may_have_task());
    tell(&mut source, Event::Sent { stream: StreamId(0), number: 0, work });
    source.next_task(late, 1);
    assert_eq!(announced(&mut source), [7]);
}

#[test]
fn a_thread_is_woken_for_a_file_that_waits_less_long_than_all_others() {
    let at = |seconds| Instant::after_start(Duration::from_secs(seconds));
    let mut source = source();
    found_late(&mut source, 1, at(20));
    assert_eq!(source.next_task(Instant::START, 0), None);
    found_late(&mut source, 2, at(30));
    assert!(!source.may_have_task(), "a thread asks again before");
    found_late(&mut source, 3, at(10));
    assert!(source.may_have_task());
}

#[test]
fn a_directory_does_not_end_before_a_file_in_it_that_changed_a_moment_ago() {
    let mut source = source();
    found_late(&mut source, 1, Instant::after_start(Duration::from_secs(1)));
    tell(&mut source, Event::WalkEnded);
    while let Some(message) = source.next_message() {
        assert!(!matches!(message, Message::Finish { .. }), "{message:?}");
    }
    source.next_task(Instant::after_start(Duration::from_secs(1)), 0);
    assert_eq!(announced(&mut source), [1]);
    hear(&mut source, Message::FileId(vec![(EntryId(1), Answer::Have)]));
    assert!(matches!(source.next_message(), Some(Message::Finish { is_complete: true })));
}

/// A file is removed at the source before it ends, and only if the sink has it.
#[test]
fn an_entry_ends_when_it_was_removed() {
    let mut source = source_with(SourceConfig { removes_sources: true, ..config() });
    for id in 1..=3 {
        found_late(&mut source, id, Instant::START);
    }
    tell(&mut source, Event::WalkEnded);
    assert_eq!(announced(&mut source), [1, 2, 3]);
    let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(5));
    let answers = [Answer::Have, Answer::Failed(failure), Answer::Have];
    let answers = (1..=3).map(EntryId).zip(answers).collect();
    hear(&mut source, Message::FileId(answers));
    assert_eq!(source.next_note().map(|note| note.entry), Some(EntryId(2)), "it is not removed");
    for id in [1, 3].map(EntryId) {
        assert_eq!(source.next_note(), None, "{id} has not been removed");
        assert!(source.may_have_task());
        assert_eq!(source.next_task(Instant::START, 0), Some(Task::Remove(id)));
        let failure = Failure::new(Side::Source, Operation::Remove, Reason::Changed);
        let failure = Some(failure).filter(|_| id == EntryId(3));
        let outcome = failure.map_or(Outcome::Done(Verb::Skip, 4096), Outcome::Failed);
        tell(&mut source, Event::Removed { entry: id, failure });
        assert_eq!(source.next_note(), Some(Note { entry: id, outcome }));
    }
    assert_eq!(source.counters().files_failed, 2);
    assert!(matches!(source.next_message(), Some(Message::Finish { is_complete: false })));
    // A sink that repeats itself changes nothing.
    hear(&mut source, Message::FileDone(vec![(EntryId(1), Ending::Complete)]));
    assert_eq!(source.next_task(Instant::START, 0), None);
}

/// After the first name was moved and removed, the last name has no other name any more.
#[test]
fn a_further_name_is_linked_though_the_first_was_removed_and_another_file_is_not() {
    for (size, is_link) in [(4096, true), (8192, false)] {
        let mut source = source_with(SourceConfig { removes_sources: true, ..config() });
        for (id, size, name_count) in [(1, 4096, 2), (2, size, 1)] {
            let identity = Identity { size, inode: 7, ..Identity::default() };
            let (striping, source_ost) = (Striping::default(), OstId(0));
            let kind = Kind::File {
                identity,
                data_bytes: size,
                striping,
                source_ost,
                is_different: false,
            };
            let (id, name) = (EntryId(id), id.to_string().into_bytes());
            let path = name.clone();
            let entry =
                Entry { id, parent: EntryId::ROOT, name, kind, metadata: Metadata::default() };
            let link = Some(LinkName { device: 1, inode: 7, name_count, path });
            tell(&mut source, Event::Found(Box::new(Found { link, ..Found::new(entry) })));
            if id == EntryId(1) {
                announced(&mut source);
                hear(&mut source, Message::FileId(vec![(id, Answer::Have)]));
            }
        }
        let Some(Message::NewFile(entries)) = source.next_message() else { panic!("no file") };
        assert_eq!(matches!(entries[0].kind, Kind::HardLink { .. }), is_link, "{entries:?}");
    }
}

fn found_link(source: &mut Source, id: u64) {
    found(source, id, EntryId::ROOT, Kind::Symlink { target: b"target".to_vec() });
}

/// A source whose window has at first two entries, and is full: of a link and a file, or of two
/// links.
fn source_with_full_window(policy: Policy, ost_count: u32, has_file: bool) -> Source {
    let tuning = crate::tuning::Tuning { window_entries: 2, ..config().tuning };
    let mut source = source_of(SourceConfig { tuning, policy, ..config() }, ost_count);
    found_link(&mut source, 1);
    match has_file {
        true => wanted(&mut source, EntryId(2), None),
        false => found_link(&mut source, 2),
    }
    source
}

fn at(millis: u64) -> Instant {
    Instant::after_start(Duration::from_millis(millis))
}

#[test]
fn the_window_widens_if_it_keeps_one_of_the_osts_idle() {
    for (policy, ost_count, has_file, is_one_idle) in [
        (Policy::Layout, 1, false, true),
        (Policy::Layout, 1, true, false),
        (Policy::Layout, 2, true, true),
        // No thread has taken the file.
        (Policy::File, 1, true, false),
    ] {
        let mut source = source_with_full_window(policy, ost_count, has_file);
        assert_eq!(source.may_go_on(at(0)), Err(Some(at(5))));
        assert_eq!(source.may_go_on(at(3)), Err(Some(at(if is_one_idle { 5 } else { 8 }))));
        let expected = if is_one_idle { Ok(()) } else { Err(Some(at(10))) };
        assert_eq!(source.may_go_on(at(5)), expected, "{policy:?} {ost_count} {has_file}");
    }
}

#[test]
fn an_ost_has_to_be_idle_again_after_the_walk_continued() {
    let mut source = source_with_full_window(Policy::Layout, 2, true);
    assert_eq!(source.may_go_on(at(0)), Err(Some(at(5))));
    let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(5));
    hear(&mut source, Message::FileDone(vec![(EntryId(2), Ending::Failed(failure))]));
    assert_eq!(source.may_go_on(at(4)), Ok(()));
    found_link(&mut source, 3);
    assert_eq!(source.may_go_on(at(5)), Err(Some(at(10))));
}
