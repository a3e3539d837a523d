//! When the sink may remove what the source does not have, what it asks, and what may be answered.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod ends;

use ends::{osts, sink_config, source_config};
use lads_core::entry::{Entry, Kind, Metadata};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::limits::{QUESTION_NAMES_MAX, QUESTIONS_BYTES_MAX, QUESTIONS_OPEN_MAX};
use lads_core::message::{Answer, Ending, Message, Presence, Question};
use lads_core::sink::{self, Examined, Permission, RemovalConfig, Sink, SinkConfig};
use lads_core::source::{self, ProtocolError, Source, SourceConfig};
use lads_core::units::{EntryId, Instant};

const EVERYTHING: RemovalConfig = RemovalConfig { after_errors: false, count_max: None };

fn sink(removal: RemovalConfig) -> Sink {
    let mut sink = Sink::new(&SinkConfig { removal: Some(removal), ..sink_config() });
    hear(&mut sink, Message::Roots(Vec::new())).expect("the first word");
    sink
}

fn hear(sink: &mut Sink, message: Message) -> Result<(), ProtocolError> {
    sink.handle(Instant::START, sink::Event::Message(message))
}

/// A sink to which the source has said that everything has ended, and that asks.
fn removing(removal: RemovalConfig) -> Sink {
    let mut sink = sink(removal);
    hear(&mut sink, Message::Finish { is_complete: true }).unwrap();
    assert_eq!(next_task(&mut sink), Some(sink::Task::Remove { is_permitted: true }));
    sink
}

fn next_task(sink: &mut Sink) -> Option<sink::Task> {
    sink.next_task(Instant::START)
}

/// What becomes of a sink in which a link or directory fails, if anything does.
fn is_permitted(fail: Option<fn(&mut Sink)>, is_complete: bool, after_errors: bool) -> bool {
    let mut sink = sink(RemovalConfig { after_errors, ..EVERYTHING });
    fail.inspect(|fail| fail(&mut sink));
    hear(&mut sink, Message::Finish { is_complete }).unwrap();
    match next_task(&mut sink) {
        Some(sink::Task::Remove { is_permitted }) => is_permitted,
        task => panic!("{task:?}"),
    }
}

fn failure() -> Failure {
    Failure::new(Side::Sink, Operation::Create, Reason::Os(5))
}

fn announce_directory(sink: &mut Sink, answer: Answer) {
    let (name, metadata) = (b"d".to_vec(), Metadata::default());
    let entry =
        Entry { id: EntryId(1), parent: EntryId::ROOT, name, kind: Kind::Directory, metadata };
    hear(sink, Message::NewFile(vec![entry])).unwrap();
    assert!(matches!(next_task(sink), Some(sink::Task::Examine(_))));
    let examined = vec![(EntryId(1), Examined::Answer(answer))];
    sink.handle(Instant::START, sink::Event::Examined(examined)).unwrap();
    hear(sink, Message::FileDone(vec![(EntryId(1), Ending::Complete)])).unwrap();
    assert!(matches!(next_task(sink), Some(sink::Task::Close(_))));
}

fn close(sink: &mut Sink, failure: Option<Failure>) {
    sink.handle(Instant::START, sink::Event::Closed(vec![(EntryId(1), failure)])).unwrap();
}

/// Whatever the source says of it: it may keep quiet about what failed here.
#[test]
fn nothing_is_removed_after_a_failure_at_either_end() {
    let not_made: fn(&mut Sink) = |sink| {
        announce_directory(sink, Answer::Failed(failure()));
        close(sink, None);
    };
    let not_closed: fn(&mut Sink) = |sink| {
        announce_directory(sink, Answer::Made);
        close(sink, Some(failure()));
    };
    let nothing: fn(&mut Sink) = |sink| {
        announce_directory(sink, Answer::Made);
        close(sink, None);
    };
    assert!(is_permitted(Some(nothing), true, false));
    for (fail, is_complete) in [(Some(not_made), true), (Some(not_closed), true), (None, false)] {
        assert!(!is_permitted(fail, is_complete, false));
        assert!(is_permitted(fail, is_complete, true));
    }
}

#[test]
fn nothing_is_removed_unless_asked_for() {
    let mut sink = Sink::new(&sink_config());
    hear(&mut sink, Message::Roots(Vec::new())).unwrap();
    hear(&mut sink, Message::Finish { is_complete: true }).unwrap();
    assert_eq!(next_task(&mut sink), Some(sink::Task::Finish { is_complete: true }));
}

/// FINISH does not wait for the directories that are being closed; what follows it does.
#[test]
fn what_follows_finish_waits_for_directories_and_knows_what_failed_in_closing_them() {
    for (removal, failure) in [(None, None), (None, Some(failure())), (Some(EVERYTHING), None)] {
        let mut sink = Sink::new(&SinkConfig { removal, ..sink_config() });
        hear(&mut sink, Message::Roots(Vec::new())).unwrap();
        announce_directory(&mut sink, Answer::Made);
        hear(&mut sink, Message::Finish { is_complete: true }).unwrap();
        assert!(next_task(&mut sink).is_none() && !sink.may_have_task());
        close(&mut sink, failure);
        let task = match removal {
            Some(_) => sink::Task::Remove { is_permitted: true },
            None => sink::Task::Finish { is_complete: failure.is_none() },
        };
        assert_eq!(next_task(&mut sink), Some(task));
    }
}

#[test]
fn the_transfer_ends_when_the_removal_has() {
    let mut sink = removing(EVERYTHING);
    assert_eq!(next_task(&mut sink), None);
    sink.handle(Instant::START, sink::Event::RemovalOver).unwrap();
    assert_eq!(next_task(&mut sink), Some(sink::Task::Finish { is_complete: true }));
}

#[test]
fn an_answer_is_one_to_a_question_with_an_answer_for_each_name() {
    let mut sink = removing(EVERYTHING);
    let there = |number, count| Message::There { number, answers: vec![Presence::Absent; count] };
    hear(&mut sink, there(1, 1)).expect_err("nothing was asked");
    let number = sink.ask(Vec::new(), vec![b"a".to_vec(), b"b".to_vec()]);
    for count in [0, 1, 3] {
        hear(&mut sink, there(number, count)).expect_err("other names");
    }
    hear(&mut sink, there(number, 2)).expect("the answer");
    assert!(sink.has_answer());
    assert_eq!(sink.take_answer(), Some((number, vec![Presence::Absent; 2])));
    assert!(!sink.has_answer());
    hear(&mut sink, there(number, 2)).expect_err("an answer again");
}

#[test]
fn no_more_is_removed_than_allowed() {
    let mut sink = removing(RemovalConfig { count_max: Some(2), ..EVERYTHING });
    for _ in 0..2 {
        assert_eq!(sink.permission(), Permission::Granted);
        sink.on_removed();
    }
    assert_eq!(sink.permission(), Permission::LimitReached);
}

/// A stop that comes while names are removed is heard, and the transfer has not ended well.
#[test]
fn a_stop_ends_the_removal() {
    for stop in [sink::Event::Stop, sink::Event::Message(Message::Stop("enough".to_owned()))] {
        let mut running = removing(EVERYTHING);
        running.handle(Instant::START, stop.clone()).unwrap();
        assert_eq!(running.permission(), Permission::Stopped);
        assert!(!running.is_over());
        running.handle(Instant::START, sink::Event::RemovalOver).unwrap();
        assert!(running.is_over() && !running.is_finished());
        let mut waiting = sink(EVERYTHING);
        hear(&mut waiting, Message::Finish { is_complete: true }).unwrap();
        waiting.handle(Instant::START, stop).unwrap();
        assert_eq!(next_task(&mut waiting), None);
        assert!(waiting.is_over() && !waiting.is_finished());
    }
}

/// What one end asks at most is what the other takes.
#[test]
fn questions_are_as_many_as_the_source_takes() {
    for (length, names) in [(1, 1), (255, QUESTION_NAMES_MAX)] {
        let mut sink = removing(EVERYTHING);
        let mut source = ended(true);
        let mut count = 0;
        while sink.may_ask() {
            sink.ask(Vec::new(), vec![vec![b'x'; length]; names]);
            let message = sink.next_message().expect("the question");
            source.handle(Instant::START, source::Event::Message(message)).expect("it is taken");
            count += 1;
        }
        assert!(count <= QUESTIONS_OPEN_MAX && count * names * length <= QUESTIONS_BYTES_MAX);
    }
}

/// A source in which everything has ended.
fn ended(may_be_asked: bool) -> Source {
    let mut source = Source::new(SourceConfig { may_be_asked, ..source_config() }, &osts());
    source.handle(Instant::START, source::Event::WalkEnded).unwrap();
    while source.next_message().is_some() {}
    source
}

fn question(names: usize) -> Message {
    let names = vec![vec![b'x'; 255]; names];
    Message::AreThere(Question { number: 1, directory: Vec::new(), names })
}

fn ask(source: &mut Source, message: Message) -> Result<(), ProtocolError> {
    source.handle(Instant::START, source::Event::Message(message))
}

#[test]
fn a_source_is_asked_when_everything_has_ended_if_something_is_to_be_removed() {
    ask(&mut ended(true), question(1)).expect("a sound question");
    ask(&mut ended(false), question(1)).expect_err("nothing is to be removed");
    ask(&mut ended(false), Message::Removed(1)).expect_err("nothing is to be removed");
    let config = SourceConfig { may_be_asked: true, ..source_config() };
    let mut early = Source::new(config, &osts());
    ask(&mut early, question(1)).expect_err("not everything has ended");
    ask(&mut early, Message::Removed(1)).expect_err("not everything has ended");
}

#[test]
fn questions_without_an_answer_are_bounded() {
    for names in [1, QUESTION_NAMES_MAX] {
        let mut source = ended(true);
        let taken =
            (0..=QUESTIONS_OPEN_MAX).take_while(|_| ask(&mut source, question(names)).is_ok());
        assert!(taken.count() <= QUESTIONS_OPEN_MAX);
        let Some(source::Task::LookUp(question)) = source.next_task(Instant::START, 0) else {
            panic!("nothing is looked up");
        };
        let answers = vec![Presence::Other; names];
        source.handle(Instant::START, source::Event::LookedUp { question, answers }).unwrap();
        ask(&mut source, self::question(names)).expect("there is room again");
    }
}

#[test]
fn what_was_removed_does_not_come_back() {
    let mut source = ended(true);
    for (count, is_taken) in [(3, true), (2, false), (3, true)] {
        assert_eq!(ask(&mut source, Message::Removed(count)).is_ok(), is_taken);
    }
    assert_eq!(source.counters().entries_removed, 3);
}

/// A source of which something that was named is missing does not say that all is well.
#[test]
fn a_source_that_is_missing_is_a_failure() {
    for is_all_there in [true, false] {
        let config = SourceConfig { is_all_there, ..source_config() };
        let mut source = Source::new(config, &osts());
        source.handle(Instant::START, source::Event::WalkEnded).unwrap();
        let finish = Message::Finish { is_complete: is_all_there };
        assert_eq!(source.next_message(), Some(finish));
    }
}
