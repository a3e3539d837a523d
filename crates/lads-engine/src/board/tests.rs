use super::*;
use lads_core::issue::Operation;
use lads_core::message::Verb;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

fn notice(text: &str) -> Happening {
    Happening::Notice(text.to_owned())
}

/// What a thread that puts without end has put when it has to wait.
fn flood(board: &Arc<Board>, text: &'static str) -> (std::thread::JoinHandle<()>, usize) {
    let (filler, put) = (Arc::clone(board), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&put);
    let thread = std::thread::spawn(move || {
        while !lock(&filler.happenings).is_closed {
            filler.put_told(notice(text));
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let is_full = |it: &Happenings| it.told >= TOLD_MAX || it.told_bytes >= TOLD_BYTES_MAX;
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !is_full(&lock(&board.happenings)) {
        assert!(std::time::Instant::now() < until, "it never fills");
        std::thread::yield_now();
    }
    let (told, put) = (lock(&board.happenings).told, put.load(Ordering::Relaxed));
    assert!(put <= told);
    (thread, told)
}

#[test]
fn what_the_other_end_tells_waits_for_room() {
    let board = Arc::new(Board::new(String::new(), true));
    let (thread, told) = flood(&board, "x");
    assert_eq!(told, TOLD_MAX);
    assert_eq!(board.take_happenings().len(), TOLD_MAX);
    let (second, _) = flood(&board, "x");
    assert_eq!(lock(&board.happenings).list.len(), TOLD_MAX);
    board.close();
    thread.join().unwrap();
    second.join().unwrap();
}

/// Ten thousand failures at a time, however many there are, and all of them are told and counted.
#[test]
fn failures_of_this_end_wait_for_room_and_none_is_lost() {
    const COUNT: usize = 2 * OWN_MAX + 5;
    let board = Arc::new(Board::new(String::new(), true));
    let failing = Arc::clone(&board);
    let thread = std::thread::spawn(move || {
        let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(28));
        (0..COUNT).for_each(|number| {
            failing.issue_when_room(number.to_string().into_bytes(), failure);
        });
    });
    let mut told = 0;
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while told < COUNT {
        assert!(std::time::Instant::now() < until, "{told} of {COUNT} are told");
        let waiting = lock(&board.happenings).own_count();
        assert!(waiting <= OWN_MAX, "{waiting} wait to be shown");
        if waiting == OWN_MAX || told + waiting == COUNT {
            assert_eq!(board.own_room(), OWN_MAX - waiting);
            told += board.take_happenings().len();
        }
        std::thread::yield_now();
    }
    thread.join().unwrap();
    assert_eq!(board.exit_code(), (ExitCode::SinkRefuses, COUNT as u64));
}

#[test]
fn long_texts_are_fewer() {
    const TEXT: &str = match std::str::from_utf8(&[b'x'; 64 << 10]) {
        Ok(text) => text,
        Err(_) => panic!("it is text"),
    };
    let board = Arc::new(Board::new(String::new(), true));
    let (thread, told) = flood(&board, TEXT);
    assert_eq!(told, TOLD_BYTES_MAX / TEXT.len());
    board.close();
    thread.join().unwrap();
}

#[test]
fn only_the_latest_of_what_osts_did_is_kept() {
    let board = Board::new(String::new(), true);
    for elapsed_micros in 0..100 {
        board.put_osts(Side::Sink, OstBytes { elapsed_micros, bytes: vec![1] });
    }
    let [Happening::OstBytes(Side::Sink, osts)] = &board.take_happenings()[..] else {
        panic!("there is one")
    };
    assert_eq!(osts.elapsed_micros, 99);
}

#[test]
fn silence_counts_only_while_we_listen() {
    let at = |seconds| Instant::after_start(Duration::from_secs(seconds));
    let board = Board::new(String::new(), true);
    board.on_listening(at(1));
    assert_eq!(board.silence(at(4)), Duration::from_secs(3));
    board.on_heard();
    assert_eq!(board.silence(at(100)), Duration::ZERO, "we are busy with what was said");
    board.on_listening(at(100));
    board.on_absence(at(200), false);
    assert_eq!(board.silence(at(201)), Duration::from_secs(1));
}

#[test]
fn a_write_counts_from_its_beginning_to_its_end() {
    let at = |seconds| Instant::after_start(Duration::from_secs(seconds));
    let board = Board::new(String::new(), true);
    assert_eq!(board.unread(at(50)), Duration::ZERO);
    board.on_writing(Some(at(50)));
    assert_eq!(board.unread(at(57)), Duration::from_secs(7));
    board.on_writing(None);
    assert_eq!(board.unread(at(90)), Duration::ZERO);
}

/// The most important failure decides, whatever was reported first and however often.
#[test]
fn of_failures_of_several_kinds_the_most_important_decides_about_the_exit_code() {
    let failure = |side, reason| Failure::new(side, Operation::Examine, reason);
    // The most important first.
    let failures = [
        (failure(Side::Sink, Reason::Os(28)), ExitCode::SinkRefuses),
        (failure(Side::Sink, Reason::Checksum), ExitCode::Mismatch),
        (failure(Side::Source, Reason::Changed), ExitCode::SourceChanged),
        (failure(Side::Source, Reason::Os(13)), ExitCode::SourceUnreadable),
        (failure(Side::Sink, Reason::Limit), ExitCode::Limit),
    ];
    let ends_with = |reported: &[Failure]| {
        let board = Board::new(String::new(), true);
        board.line(Line { verb: Verb::OtherSize, path: b"difference".to_vec(), bytes: 1 });
        board.issue(b"special".to_vec(), failure(Side::Source, Reason::Special));
        reported.iter().for_each(|failure| board.issue(b"path".to_vec(), *failure));
        board.exit_code()
    };
    assert_eq!(ends_with(&[]), (ExitCode::Different, 0));
    for (place, (more, code)) in failures.iter().enumerate() {
        assert_eq!(ends_with(&[*more]), (*code, 1));
        for (less, _) in &failures[place..] {
            assert_eq!(ends_with(&[*more, *less, *less]), (*code, 3), "{more:?}, {less:?}");
            assert_eq!(ends_with(&[*less, *less, *more]), (*code, 3), "{less:?}, {more:?}");
        }
    }
}
