//! The connection breaks, and a server that was started again is there.

use super::*;
use crate::remote::message::{Fenced, LockKind, Unsent, ViewNumber};

const VIEW: ViewNumber = ViewNumber(2);
const FAILURE: Failure = Failure { operation: Operation::Examine, errno: 37 };

/// A request: its number, the frames before it, and what is asked for.
type Asked = (u64, u64, Call);

impl Program {
    /// The connection breaks; a server that was started again has written these frames and done
    /// these requests.
    fn restart(&mut self, written: &[u64], done: &[u64]) {
        assert!(self.client.on_broken("cut", self.now));
        assert!(self.calls().is_empty() && self.send().is_empty());
        self.client.on_connected(self.now);
        self.deliver(ToClient::Hello { version: VERSION, name: "host".to_owned() });
        let (written, done) = (written.to_vec(), done.to_vec());
        self.deliver(ToClient::Restarted { written, done });
    }

    /// The file as it was opened, and its view.
    fn standing(&self) -> Vec<Asked> {
        let path = b"new".to_vec();
        let open = Call::Open { file: self.file(), path, mode: MODE, group: [0; 16] };
        vec![(0, 0, open), (1, 0, self.tail.target().call())]
    }

    /// Takes the messages up to the return. Returns what was made again before it, the first frame
    /// and the writes that it names, and what follows.
    fn returned(&mut self) -> (Vec<u64>, u64, Vec<Fenced>, Vec<Asked>) {
        let mut calls = self.calls();
        let at = calls.iter().position(|(.., call)| matches!(call, Call::Return { .. }));
        let after = calls.split_off(at.expect("it returns") + 1);
        let Some((_, 0, Call::Return { frames, writes })) = calls.pop() else { unreachable!() };
        assert_eq!(calls[..2], self.standing());
        (calls.into_iter().map(|(number, ..)| number).collect(), frames, writes, after)
    }

    /// Sends all frames. Returns the number, the write and the flag of each.
    fn frames(&mut self) -> Vec<(u64, u32, bool)> {
        self.deliver(ToClient::Grant(16));
        let next = |_| self.client.next_frame(self.now);
        let frames = (0..16).map_while(next);
        frames.map(|it| (it.number, it.of.write.0, it.of.is_announced)).collect()
    }
}

fn unsent(write: u32, position: u64) -> Unsent {
    Unsent { write: WriteNumber(write), view: VIEW, position, length: BUFFER }
}

#[test]
fn frames_that_were_under_way_are_sent_again_first_with_new_numbers() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(3));
    (0..5).for_each(|it| program.put(100 * it));
    assert_eq!(program.send(), [0, 100, 200]);
    program.written(1);
    program.restart(&[], &[]);
    assert!(program.send().is_empty(), "without new grants");
    assert_eq!(program.returned(), (vec![0, 1], 3, vec![], vec![]));
    let expected = [(3, 0), (4, 2), (5, 3), (6, 4)].map(|(number, id)| (number, id, false));
    assert_eq!(program.frames(), expected);
    (3..7).for_each(|frame| program.written(frame));
    assert!(program.client.is_written() && program.calls().is_empty());
}

#[test]
fn frames_that_a_second_restart_finds_unsent_keep_their_order() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(3));
    (0..3).for_each(|it| program.put(100 * it));
    program.send();
    program.restart(&[], &[]);
    program.returned();
    program.deliver(ToClient::Grant(1));
    assert_eq!(program.send(), [0]);
    program.restart(&[], &[]);
    assert_eq!(program.returned().1, 4);
    assert_eq!(program.frames(), [(4, 0, false), (5, 1, false), (6, 2, false)]);
}

#[test]
fn what_was_written_and_done_is_not_sent_again() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(3));
    (0..3).for_each(|it| program.put(100 * it));
    program.send();
    let (file, after) = (program.file(), After::Nothing);
    let delete = program.client.ask(&after, Call::Delete { path: b"b".to_vec() });
    let size = program.client.ask(&after, Call::Size { file });
    let set = program.client.ask(&after, Call::SetSize { file, size: 5 });
    program.calls();
    program.restart(&[1, 7, 1], &[delete, size, 1 << 40, delete]);
    assert_eq!(program.client.take_reply(delete), Some(Ok(0)));
    assert_eq!(program.client.take_reply(size), None, "it can be repeated, and has an answer");
    let (_, frames, _, after) = program.returned();
    assert_eq!(after.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [size, set]);
    assert_eq!(frames, 3);
    assert_eq!(program.frames(), [(3, 0, false), (4, 2, false)]);
    program.reply(set, Outcome::Done);
    let again = program
        .client
        .on_message(ToClient::Reply { number: delete, outcome: Outcome::Done }, program.now);
    assert!(again.is_err(), "it is answered");
}

#[test]
fn requests_come_after_the_same_frames_as_before() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(8));
    let file = program.file();
    let all = After::Frames { file, count: 8 };
    let mut flushes = Vec::new();
    for position in [0, 100, 200] {
        program.put(position);
        program.send();
        flushes.push(program.client.ask(&all, Call::Flush { file }));
    }
    program.calls();
    program.restart(&[1], &[]);
    let (_, frames, _, after) = program.returned();
    assert_eq!(frames, 3);
    let expected = [(flushes[0], 4), (flushes[1], 4), (flushes[2], 5)];
    assert_eq!(after.iter().map(|(n, before, _)| (*n, *before)).collect::<Vec<_>>(), expected);
}

#[test]
fn an_unanswered_fence_lists_again_what_is_not_written_and_was_sent_after_it() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(1));
    (0..4).for_each(|it| program.put(100 * it));
    assert_eq!(program.send(), [0]);
    let fence = program.client.fence().unwrap();
    program.calls();
    program.deliver(ToClient::Grant(2));
    assert_eq!(program.send(), [100, 200]);
    program.put(400);
    program.restart(&[1], &[]);
    let (_, frames, writes, after) = program.returned();
    assert_eq!((frames, writes), (3, vec![]));
    let unsent = vec![unsent(2, 200), unsent(3, 300)];
    assert_eq!(after, [(fence, 4, Call::Fence { unsent })], "the first frame was sent before it");
    let expected = [(3, 0, false), (4, 2, true), (5, 3, true), (6, 4, false)];
    assert_eq!(program.frames(), expected);
}

#[test]
fn writes_that_an_answered_fence_covers_are_named_with_its_answer() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(1));
    program.put(0);
    program.put(100);
    program.send();
    for answer in [5, 8] {
        let fence = program.client.fence().unwrap();
        program.calls();
        program.reply(fence, Outcome::Number(answer));
        program.put(200);
    }
    for _ in 0..2 {
        program.restart(&[], &[]);
        let expected = [(5, 0, 0), (5, 1, 100), (8, 2, 200)];
        let fenced = |(fence, write, position)| Fenced { fence, unsent: unsent(write, position) };
        let (_, _, writes, after) = program.returned();
        assert_eq!((writes, after), (expected.map(fenced).to_vec(), vec![]));
    }
    let expected = [(1, 0, true), (2, 1, true), (3, 2, true), (4, 3, false)];
    assert_eq!(program.frames(), expected);
}

/// The frames counted as announced, and no message announced them.
#[test]
fn a_fence_that_failed_covers_nothing() {
    let mut program = Program::with_ticket();
    program.put(0);
    let fence = program.client.fence().unwrap();
    program.calls();
    program.reply(fence, Outcome::Failed(FAILURE));
    program.restart(&[], &[]);
    assert_eq!(program.returned(), (vec![0, 1], 0, vec![], vec![]));
    assert_eq!(program.frames(), [(0, 0, false)]);
}

/// The server closed the file before the frame came again, and the frame failed.
#[test]
fn a_request_comes_after_a_frame_that_was_refused_before_the_restart() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(3));
    (0..3).for_each(|it| program.put(100 * it));
    program.send();
    let file = program.file();
    let sync = program.client.ask(&After::Frames { file, count: 3 }, Call::Sync { file });
    program.calls();
    program.deliver(ToClient::Again(1));
    program.put(300);
    program.restart(&[], &[]);
    let (_, frames, _, after) = program.returned();
    assert_eq!((frames, after), (3, vec![(sync, 6, Call::Sync { file })]));
    assert!(!program.client.is_waiting(&Wait::Sent(After::Frames { file, count: 3 })));
    assert_eq!(program.frames(), [(3, 0, false), (4, 1, false), (5, 2, false), (6, 3, false)]);
}

#[test]
fn a_refused_frame_that_was_sent_again_has_its_first_place_after_a_restart() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(3));
    (0..2).for_each(|it| program.put(100 * it));
    program.send();
    let file = program.file();
    let flush = program.client.ask(&After::Frames { file, count: 1 }, Call::Flush { file });
    program.calls();
    program.put(200);
    for number in [0, 2] {
        program.deliver(ToClient::Again(number));
        assert_eq!(program.send(), [0]);
        program.deliver(ToClient::Grant(1));
    }
    program.restart(&[], &[]);
    let (_, frames, _, after) = program.returned();
    assert_eq!((frames, after), (4, vec![(flush, 6, Call::Flush { file })]));
    assert_eq!(program.frames(), [(4, 0, false), (5, 1, false), (6, 2, false)]);
    program.written(4);
    program.restart(&[], &[]);
    assert_eq!(program.returned().1, 7);
    assert_eq!(program.frames(), [(7, 1, false), (8, 2, false)]);
}

/// It was being put on the local disk, and was sent from there too soon.
#[test]
fn a_refused_frame_on_its_way_to_the_disk_is_sent_when_it_is_there() {
    let mut program = Program::new(Some(1 << 10));
    program.deliver(ToClient::Ticket(crate::remote::message::Ticket([7; 16])));
    program.deliver(ToClient::Grant(1));
    program.put(0);
    program.send();
    program.deliver(ToClient::Again(0));
    let frames = program.client.start_staging();
    assert_eq!(frames.len(), 1);
    program.restart(&[], &[]);
    program.returned();
    program.deliver(ToClient::Grant(4));
    program.put(100);
    assert!(program.send().is_empty(), "the first is on its way");
    program.client.on_staged(&frames, Some(MS), Why::Write, program.now);
    assert_eq!(program.send(), [0, 100]);
}

#[test]
fn locks_are_taken_again_unless_they_failed_or_were_given_back() {
    let mut program = Program::with_ticket();
    let (file, kind) = (program.file(), LockKind::Exclusive);
    let lock = |program: &mut Program, outcome| {
        let number = program.client.ask(&After::Nothing, Call::Lock { file, kind });
        program.calls();
        program.reply(number, outcome);
        number
    };
    lock(&mut program, Outcome::Failed(FAILURE));
    let held = lock(&mut program, Outcome::Done);
    program.restart(&[], &[]);
    assert_eq!(program.returned().0, [0, 1, held]);
    assert!(program.client.take_failure(file).is_ok());
    program.reply(held, Outcome::Failed(FAILURE));
    assert_eq!(program.client.take_failure(file), Err(CallError::Failed(FAILURE)), "it is gone");
    program.client.unlock_later(file, 0);
    let unlock = program.calls()[0].0;
    program.restart(&[], &[]);
    let (before, _, _, after) = program.returned();
    assert_eq!((before, after[0].0), (vec![0, 1, held], unlock));
    program.reply(unlock, Outcome::Done);
    program.restart(&[], &[]);
    assert_eq!(program.returned().0, [0, 1]);
}

/// A program that looked whether a file is there heard at its end that it was not.
#[test]
fn a_file_that_could_not_be_opened_does_not_fail_a_second_time() {
    let mut program = Program::with_ticket();
    let file = FileNumber(program.client.next_number());
    let open = program.client.open(file, b"none", MODE, [0; 16], false).unwrap();
    program.calls();
    program.reply(open, Outcome::Failed(FAILURE));
    assert_eq!(program.client.take_reply(open), Some(Err(CallError::Failed(FAILURE))));
    program.client.close_unopened(file);
    let close = program.calls()[0].0;
    program.restart(&[], &[]);
    let (before, _, _, after) = program.returned();
    assert_eq!((before, after[0].0), (vec![0, 1, open], close));
    program.reply(open, Outcome::Failed(FAILURE));
    program.reply(close, Outcome::Failed(FAILURE));
    assert_eq!(program.client.finish(), Ok(()));
    program.restart(&[], &[]);
    assert_eq!(program.returned().0, [0, 1], "it is closed");
}

/// Another process deleted it when it had heard of its own close.
#[test]
fn a_file_that_was_closed_and_deleted_before_does_not_fail() {
    let mut program = Program::with_ticket();
    let file = program.file();
    let close = program.client.request(false, Call::Close { file }, None);
    program.calls();
    // No server says so that did not close it: one that is started twice says it once.
    for done in [vec![close], Vec::new()] {
        program.restart(&[], &done);
        let (before, _, _, after) = program.returned();
        assert_eq!((before, after[0].0), (vec![0, 1], close));
    }
    for number in [0, 1, close] {
        program.reply(number, Outcome::Failed(FAILURE));
    }
    assert_eq!(program.client.take_reply(close), Some(Ok(0)));
    assert_eq!(program.client.finish(), Ok(()));
}

#[test]
fn a_failure_of_what_was_there_before_is_returned_by_a_later_call() {
    let mut program = Program::with_ticket();
    program.restart(&[], &[]);
    program.returned();
    program.reply(0, Outcome::Failed(FAILURE));
    program.reply(1, Outcome::Failed(FAILURE));
    let (file, now) = (program.file(), program.now);
    let failed = program.client.begin_write(file, &(0..1), false, now);
    assert_eq!(failed, Err(CallError::Failed(FAILURE)));
}

/// The second restart put the request to forget the view before the frame: the frame waited for its
/// view for ever.
#[test]
fn a_view_that_frames_need_is_set_and_forgotten_again_after_them() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(8));
    program.put(500);
    program.fill(100, 8);
    program.fill(200, 8);
    program.seal();
    assert_eq!(program.send(), [500, 0]);
    let (view, forget) = (program.calls(), program.calls());
    assert!(forget.is_empty());
    let [(set, ..), (forget, 2, Call::Forget { view })] = view[..] else { panic!("{view:?}") };
    program.reply(set, Outcome::Done);
    program.reply(forget, Outcome::Done);
    let expected = |before| vec![(forget, before, Call::Forget { view })];
    program.restart(&[], &[]);
    let (before, frames, _, after) = program.returned();
    assert_eq!((before, frames, after), (vec![0, 1, set], 2, expected(4)));
    program.deliver(ToClient::Grant(1));
    assert_eq!(program.send(), [500]);
    program.restart(&[], &[]);
    let (before, frames, _, after) = program.returned();
    assert_eq!((before, frames, after), (vec![0, 1, set], 3, expected(5)));
    program.reply(forget, Outcome::Done);
    program.restart(&[4], &[]);
    assert_eq!(program.returned().0, [0, 1, set], "this frame was not sent");
    program.frames();
    program.restart(&[4], &[]);
    assert_eq!(program.returned().0, [0, 1], "nothing needs it");
}

#[test]
fn reads_are_made_again_under_other_numbers_and_answered_ones_are_not() {
    let mut program = Program::with_ticket();
    let mut first = program.read(0..100);
    assert!(matches!(program.client.step(&mut first), Step::Wait(Wait::Reply(2))));
    let mut second = program.read(1 << 30..(1 << 30) + 100);
    assert!(matches!(program.client.step(&mut second), Step::Wait(Wait::Reply(3))));
    program.calls();
    program.arrive(3, 1 << 30, 100);
    program.restart(&[], &[]);
    assert_eq!(program.returned().3, [(4, 0, read_call(&program, 0, 100))]);
    for number in [2, 3] {
        let block = Block { entry: EntryId(number), offset: 0, length: 1 };
        let header = Header {
            count: 1,
            payload_bytes: 1,
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant: false,
            has_only_sums: false,
        };
        let rows = [Row { block, is_whole: false, checksum: 0 }];
        assert!(program.client.on_head(&header, &rows).is_err(), "bytes of request {number}");
    }
    program.arrive(4, 0, 100);
    for (read, position) in [(&mut first, 0), (&mut second, 1 << 30)] {
        let copy = program.client.step(read);
        assert!(matches!(copy, Step::Copy(at, _, part) if at == position && part == (0..100)));
    }
}

#[test]
fn messages_are_counted_anew_after_a_restart() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(1));
    program.restart(&[], &[]);
    program.deliver(ToClient::Grant(1));
    assert!(program.client.on_broken("cut", program.now));
    let greeting = program.client.greeting();
    assert!(matches!(greeting, ToServer::Resume { heard: 1, .. }), "{greeting:?}");
    assert_eq!(program.client.reconnections(), 1);
}

#[test]
fn a_server_that_resumes_after_a_restart_has_fewer_requests_than_were_answered() {
    let mut program = Program::with_ticket();
    program.restart(&[], &[]);
    program.returned();
    program.come_back(0, 0);
    assert!(program.calls().is_empty(), "nothing is left to be asked");
    let size = program.client.ask(&After::Nothing, Call::Size { file: program.file() });
    assert_eq!(program.calls()[0].0, size);
}

/// A server that did nothing else kept its client for ever.
#[test]
fn a_server_that_is_restarted_again_and_again_makes_no_progress() {
    let mut program = Program::with_ticket();
    program.client.ask(&After::Nothing, Call::Size { file: program.file() });
    program.calls();
    let trouble = (0..20).find_map(|_| {
        program.now += 40 * SECOND;
        program.restart(&[], &[]);
        program.calls();
        program.client.look(program.now)
    });
    assert!(matches!(&trouble, Some(Trouble::Lost(text)) if text.contains("no progress")));
    assert!(program.now > 600 * SECOND, "{:?}", program.now);
}

#[test]
fn a_connection_that_breaks_before_the_return_is_sent_forgets_it_once() {
    let mut program = Program::with_ticket();
    program.deliver(ToClient::Grant(1));
    program.put(0);
    program.send();
    program.restart(&[], &[]);
    program.restart(&[], &[]);
    assert_eq!(program.returned(), (vec![0, 1], 1, vec![], vec![]));
    program.restart(&[], &[]);
    assert_eq!(program.returned(), (vec![0, 1], 1, vec![], vec![]), "it was sent and not heard");
    assert_eq!(program.frames(), [(1, 0, false)]);
}
