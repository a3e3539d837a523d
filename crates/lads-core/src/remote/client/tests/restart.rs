//! The server is started again.

use super::*;
use crate::remote::message::{Fenced, Ticket, Unsent};

impl Program {
    /// The connection breaks, and is made again by a server that was started again.
    fn meet_again(&mut self, written: &[u64], done: &[u64]) {
        assert!(self.client.on_broken("cut", self.now));
        self.client.on_connected(self.now);
        self.deliver(ToClient::Hello { version: VERSION, name: "host".to_owned() });
        let (written, done) = (written.to_vec(), done.to_vec());
        self.deliver(ToClient::Restarted { written, done });
    }

    /// Sends all frames. Returns their numbers, positions, and whether they were announced.
    fn sent(&mut self) -> Vec<(u64, u64, bool)> {
        let next = std::iter::from_fn(|| self.client.next_frame(self.now));
        next.map(|it| (it.number, it.about.position, it.of.is_announced)).collect()
    }

    fn unsent(&self, id: u32, position: u64) -> Unsent {
        let view = self.tail.target().view;
        Unsent { write: WriteNumber(id), view, position, length: BUFFER }
    }

    /// What it says first.
    fn standing(&mut self, frames: u64, writes: Vec<Fenced>) -> Vec<(u64, u64, Call)> {
        let (file, target) = (self.file(), self.tail.target());
        let open = Call::Open { file, path: b"new".to_vec(), mode: MODE, group: [0; 16] };
        let last = (self.client.requests.count, 0, Call::Return { frames, writes });
        vec![(0, 0, open), (1, 0, target.call()), last]
    }
}

fn program() -> Program {
    let mut program = Program::new(None);
    program.deliver(ToClient::Ticket(Ticket([7; 16])));
    program
}

#[test]
fn what_is_not_done_is_sent_again_in_its_order() {
    let mut program = program();
    program.deliver(ToClient::Grant(3));
    program.put(0);
    program.put(100);
    assert_eq!(program.send(), [0, 100]);
    let first = program.client.fence().unwrap();
    program.calls();
    program.reply(first, Outcome::Number(7));
    program.put(200);
    let second = program.client.fence().unwrap();
    program.put(300);
    assert_eq!(program.send(), [200]);
    let file = program.file();
    let size = program.client.ask(&After::Frames { file, count: 3 }, Call::Size { file });
    program.meet_again(&[0, 0, 9], &[]);
    let writes = vec![Fenced { fence: 7, unsent: program.unsent(1, 100) }];
    let mut expected = program.standing(3, writes);
    let fence = Call::Fence { unsent: vec![program.unsent(2, 200)] };
    expected.extend([(second, 4, fence.clone()), (size, 5, Call::Size { file })]);
    assert_eq!(program.calls(), expected);
    assert!(program.sent().is_empty(), "the server has granted nothing");
    program.deliver(ToClient::Grant(2));
    assert_eq!(program.sent(), [(3, 100, true), (4, 200, true)]);
    // Once more, before all are sent.
    program.meet_again(&[3], &[]);
    let mut expected = program.standing(5, Vec::new());
    expected.extend([(second, 5, fence), (size, 6, Call::Size { file })]);
    assert_eq!(program.calls(), expected);
    program.deliver(ToClient::Grant(2));
    assert_eq!(program.sent(), [(5, 200, true), (6, 300, false)]);
    program.reply(second, Outcome::Number(9));
    program.reply(size, Outcome::Number(11));
    assert_eq!(program.client.take_reply(size), Some(Ok(11)));
    [5, 6].into_iter().for_each(|frame| program.written(frame));
    assert!(program.client.is_written());
}

#[test]
fn a_request_that_was_done_is_not_made_again() {
    let mut program = program();
    let file = program.file();
    let [done, other] =
        [5, 6].map(|size| program.client.ask(&After::Nothing, Call::SetSize { file, size }));
    let size = program.client.ask(&After::Nothing, Call::Size { file });
    program.calls();
    // The answer to the last one is a number.
    program.meet_again(&[], &[done, size, 77]);
    assert_eq!(program.client.take_reply(done), Some(Ok(0)));
    let again: Vec<_> = program.calls().into_iter().skip(3).map(|(number, ..)| number).collect();
    assert_eq!(again, [other, size]);
}

#[test]
fn a_file_that_is_not_there_any_more_fails() {
    let mut program = program();
    program.meet_again(&[], &[]);
    program.calls();
    let failure = Failure { operation: Operation::Open, errno: 116 };
    program.reply(0, Outcome::Failed(failure));
    let file = program.file();
    assert_eq!(program.client.take_failure(file), Err(CallError::Failed(failure)));
    assert_eq!(program.client.take_failure(file), Ok(()));
}

#[test]
fn reads_are_made_again_and_views_that_frames_need() {
    let mut program = program();
    program.deliver(ToClient::Grant(1));
    program.put(0);
    assert_eq!(program.send(), [0]);
    let ended = Arc::clone(program.tail.target());
    let path = ended.path.clone();
    let new =
        program.client.begin_view((ended.file, &path), (0, &[], View::whole()), Prefetch::Auto);
    program.tail.set_target(new);
    program.client.end_view(&ended);
    let answered = program.calls();
    answered.into_iter().for_each(|(number, ..)| program.reply(number, Outcome::Done));
    let mut read = program.read(0..100);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(4))));
    program.calls();
    program.meet_again(&[], &[]);
    let again = program.calls();
    let is_view = |(.., call): &&(u64, u64, Call)| matches!(call, Call::View { .. });
    assert_eq!(again.iter().filter(is_view).count(), 2, "{again:?}");
    let forget = (3, 2, Call::Forget { view: ended.view });
    assert_eq!(again[4], forget, "after its frame");
    assert_eq!(again[5], (5, 2, read_call(&program, 0, 100)));
    program.deliver(ToClient::Grant(1));
    assert_eq!(program.sent(), [(1, 0, false)]);
    program.written(1);
    program.meet_again(&[], &[]);
    assert_eq!(program.calls().iter().filter(is_view).count(), 1, "it is not needed any more");
}
