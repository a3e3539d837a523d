use super::super::message::{FileNumber, ViewNumber};
use super::*;
use crate::issue::Operation;
use crate::units::{Block, EntryId, OstId};

const FILE: FileNumber = FileNumber(1);
const READ: Call = Call::Read { view: ViewNumber(1), position: 100, length: 10 };
const MAX: u64 = i64::MAX as u64;

fn hello() -> ToClient {
    ToClient::Hello { version: VERSION, name: "there".to_owned() }
}

/// A gate of a client that was greeted, and has made these requests.
fn greeted(calls: &[Call]) -> Gate {
    let mut gate = Gate::default();
    gate.admit(hello(), |_| false).unwrap();
    (0..).zip(calls).for_each(|(number, call)| gate.on_asked(number, call));
    gate
}

fn reply(gate: &mut Gate, number: u64, outcome: Outcome) -> Result<(), Breach> {
    gate.admit(ToClient::Reply { number, outcome }, |_| false).map(drop)
}

fn failed(errno: i32) -> Outcome {
    Outcome::Failed(Failure { operation: Operation::Read, errno })
}

/// A frame of a server: the request, and the place of its bytes.
fn frame(gate: &mut Gate, number: u64, offset: u64, length: u32) -> Result<u64, Breach> {
    frame_of(gate, &[row(number, offset, length)], length, false)
}

fn row(number: u64, offset: u64, length: u32) -> Row {
    let block = Block { entry: EntryId(number), offset, length };
    Row { block, is_whole: false, checksum: 0 }
}

fn frame_of(
    gate: &mut Gate,
    rows: &[Row],
    payload_bytes: u32,
    has_only_sums: bool,
) -> Result<u64, Breach> {
    let count = u16::try_from(rows.len()).unwrap();
    let (table_crc, number, sink_ost) = (0, 0, OstId(0));
    let header = Header {
        count,
        payload_bytes,
        table_crc,
        number,
        sink_ost,
        is_last_grant: false,
        has_only_sums,
    };
    gate.admit_frame(&header, rows)
}

#[test]
fn the_greeting_is_first_and_comes_once() {
    for message in [ToClient::Heartbeat, ToClient::Grant(1), ToClient::Fatal(String::new())] {
        assert_eq!(Gate::default().admit(message, |_| false), Err(Breach::Greeting));
    }
    assert_eq!(greeted(&[]).admit(hello(), |_| false), Err(Breach::Greeting));
    let other = ToClient::Hello { version: VERSION + 1, name: String::new() };
    assert_eq!(Gate::default().admit(other, |_| false), Err(Breach::Version(VERSION + 1)));
    let name = "x".repeat(TEXT_BYTES_MAX + 1);
    let long = ToClient::Hello { version: VERSION, name };
    assert_eq!(Gate::default().admit(long, |_| false), Err(Breach::Text));
}

#[test]
fn each_request_is_answered_once_with_what_it_asks_for() {
    let (view, path, mode) = (
        ViewNumber(1),
        Vec::new(),
        super::super::message::OpenMode {
            reads: true,
            writes: true,
            creates: false,
            is_new: false,
        },
    );
    let done = [
        Call::Open { file: FILE, path: path.clone(), mode, group: [0; 16] },
        Call::View { view, file: FILE, displacement: 0, filetype: Vec::new() },
        Call::Forget { view },
        Call::Sync { file: FILE },
        Call::Flush { file: FILE },
        Call::Close { file: FILE },
        Call::SetSize { file: FILE, size: 1 },
        Call::Preallocate { file: FILE, size: 1 },
        Call::SetShared { file: FILE, position: 1 },
        Call::Delete { path },
        Call::Lock { file: FILE, kind: super::super::message::LockKind::Shared },
        Call::Unlock { file: FILE },
    ];
    let numbers = [
        Call::Size { file: FILE },
        Call::End { view },
        Call::AddShared { file: FILE, bytes: 1 },
        Call::Fence { unsent: Vec::new() },
    ];
    let number = Outcome::Number(MAX);
    for (calls, right, wrong) in
        [(&done[..], Outcome::Done, number), (&numbers[..], number, Outcome::Done)]
    {
        for call in calls {
            let of = || greeted(std::slice::from_ref(call));
            assert_eq!(reply(&mut of(), 0, wrong), Err(Breach::Answer), "{call:?}");
            assert_eq!(reply(&mut of(), 1, right), Err(Breach::Unasked));
            let mut gate = of();
            assert_eq!(reply(&mut gate, 0, right), Ok(()), "{call:?}");
            assert_eq!(reply(&mut gate, 0, right), Err(Breach::Unasked));
            let mut gate = of();
            assert_eq!(reply(&mut gate, 0, failed(5)), Ok(()), "{call:?}");
            assert_eq!(reply(&mut gate, 0, right), Err(Breach::Unasked));
            assert_eq!(frame(&mut of(), 0, 0, 1), Err(Breach::Frame), "{call:?}");
        }
    }
    for number in [MAX + 1, u64::MAX] {
        let outcome = Outcome::Number(number);
        assert_eq!(reply(&mut greeted(&numbers), 2, outcome), Err(Breach::Number));
    }
}

#[test]
fn the_bytes_of_a_read_are_those_that_were_asked_for() {
    let right = |gate: &mut Gate| {
        assert_eq!(frame(gate, 0, 100, 7), Ok(0));
        assert_eq!(reply(gate, 0, Outcome::Number(7)), Ok(()));
    };
    let mut gate = greeted(&[READ]);
    right(&mut gate);
    assert_eq!(frame(&mut gate, 0, 100, 7), Err(Breach::Frame), "again");
    assert_eq!(reply(&mut gate, 0, Outcome::Number(7)), Err(Breach::Unasked), "again");
    let mut gate = greeted(&[READ]);
    reply(&mut gate, 0, Outcome::Number(7)).unwrap();
    assert_eq!(frame(&mut gate, 0, 100, 7), Ok(0), "the answer may come first");
    assert_eq!(frame(&mut gate, 0, 100, 7), Err(Breach::Frame));
    for (number, offset, length) in [(1, 100, 7), (0, 99, 7), (0, 100, 11), (0, 100, 0)] {
        let found = frame(&mut greeted(&[READ]), number, offset, length);
        assert_eq!(found, Err(Breach::Frame), "{number} {offset} {length}");
    }
    let row = row(0, 100, 7);
    for (rows, payload_bytes, has_only_sums) in
        [(&[][..], 7, false), (&[row, row], 7, false), (&[row], 6, false), (&[row], 7, true)]
    {
        let found = frame_of(&mut greeted(&[READ]), rows, payload_bytes, has_only_sums);
        assert_eq!(found, Err(Breach::Frame));
    }
}

#[test]
fn the_answer_to_a_read_is_about_the_bytes_that_arrive() {
    for outcome in [Outcome::Number(0), failed(5)] {
        let mut gate = greeted(&[READ]);
        assert_eq!(reply(&mut gate, 0, outcome), Ok(()));
        assert_eq!(frame(&mut gate, 0, 100, 7), Err(Breach::Frame));
    }
    let after_frame = [Outcome::Number(0), Outcome::Number(6), failed(5), Outcome::Done];
    for outcome in after_frame {
        let mut gate = greeted(&[READ]);
        frame(&mut gate, 0, 100, 7).unwrap();
        assert_eq!(reply(&mut gate, 0, outcome), Err(Breach::Answer), "{outcome:?}");
    }
    let mut gate = greeted(&[READ]);
    reply(&mut gate, 0, Outcome::Number(8)).unwrap();
    assert_eq!(frame(&mut gate, 0, 100, 7), Err(Breach::Frame));
    let mut gate = greeted(&[READ]);
    reply(&mut gate, 0, Outcome::Number(8)).unwrap();
    assert_eq!(reply(&mut gate, 0, Outcome::Number(8)), Err(Breach::Answer), "twice");
    assert_eq!(reply(&mut greeted(&[READ]), 0, Outcome::Number(11)), Err(Breach::Answer));
}

#[test]
fn errors_have_numbers_that_exist() {
    for errno in [0, -1, ERRNO_MAX + 1, i32::MIN] {
        for call in [READ, Call::Sync { file: FILE }] {
            assert_eq!(reply(&mut greeted(&[call]), 0, failed(errno)), Err(Breach::Errno));
        }
        let failure = Some(Failure { operation: Operation::Write, errno });
        let written = ToClient::Written(vec![Written { frame: 3, failure }]);
        assert_eq!(greeted(&[]).admit(written, |_| true), Err(Breach::Errno));
    }
    assert_eq!(reply(&mut greeted(&[READ]), 0, failed(ERRNO_MAX)), Ok(()));
}

#[test]
fn frames_are_written_once_and_only_if_they_were_sent() {
    let written = |frames: &[u64]| {
        let of = |frame: &u64| Written { frame: *frame, failure: None };
        let message = ToClient::Written(frames.iter().map(of).collect());
        greeted(&[]).admit(message, |frame| frame < 3).map(drop)
    };
    assert_eq!(written(&[2, 0]), Ok(()));
    assert_eq!(written(&[0, 3]), Err(Breach::Written));
    assert_eq!(written(&[1, 0, 1]), Err(Breach::Written));
}

#[test]
fn texts_are_short_and_no_commands_of_a_terminal() {
    let fatal = |text: &str| greeted(&[]).admit(ToClient::Fatal(text.to_owned()), |_| false);
    assert_eq!(fatal("a\x1b]0;b\nc"), Ok(ToClient::Fatal("a\\u{1b}]0;b\\nc".to_owned())));
    assert!(fatal(&"x".repeat(TEXT_BYTES_MAX)).is_ok());
    assert_eq!(fatal(&"x".repeat(TEXT_BYTES_MAX + 1)), Err(Breach::Text));
}

#[test]
fn only_a_frame_that_is_in_flight_is_sent_again() {
    let mut gate = greeted(&[]);
    assert_eq!(gate.admit(ToClient::Again(3), |frame| frame == 3), Ok(ToClient::Again(3)));
    assert_eq!(gate.admit(ToClient::Again(4), |frame| frame == 3), Err(Breach::Refused));
}

#[test]
fn only_what_is_read_can_be_lost() {
    let mut gate = greeted(&[READ, Call::Sync { file: FILE }, READ]);
    assert_eq!(reply(&mut gate, 0, Outcome::Lost), Ok(()));
    assert_eq!(reply(&mut gate, 1, Outcome::Lost), Err(Breach::Answer));
    frame(&mut gate, 2, 100, 10).unwrap();
    assert_eq!(reply(&mut gate, 2, Outcome::Lost), Err(Breach::Answer), "its bytes are here");
}

const RESUMED: ToClient = ToClient::Resumed { requests: 0, frames: 0 };
const RESTARTED: ToClient = ToClient::Restarted { written: Vec::new(), done: Vec::new() };

#[test]
fn a_server_resumes_or_was_restarted_once_and_only_after_a_break() {
    for message in [RESUMED, RESTARTED] {
        let mut gate = Gate::default();
        assert_eq!(gate.admit(message.clone(), |_| false), Err(Breach::Greeting));
        assert_eq!(greeted(&[]).admit(message.clone(), |_| false), Err(Breach::Greeting));
        gate = greeted(&[]);
        gate.on_connected_again();
        assert_eq!(gate.admit(message.clone(), |_| false), Err(Breach::Greeting), "no greeting");
        for second in [RESUMED, RESTARTED] {
            gate = greeted(&[]);
            gate.on_connected_again();
            gate.admit(hello(), |_| false).unwrap();
            assert_eq!(gate.admit(message.clone(), |_| false), Ok(message.clone()));
            assert_eq!(gate.admit(second, |_| false), Err(Breach::Greeting), "{message:?} before");
        }
    }
}

#[test]
fn a_fence_is_answered_with_a_number() {
    let mut gate = greeted(&[Call::Fence { unsent: Vec::new() }]);
    assert_eq!(reply(&mut gate, 0, Outcome::Done), Err(Breach::Answer));
    assert_eq!(reply(&mut gate, 0, Outcome::Number(5)), Ok(()));
}

#[test]
fn no_answer_is_owed_for_the_return_of_a_client() {
    let back = Call::Return { frames: 0, writes: Vec::new() };
    for outcome in [Outcome::Done, Outcome::Number(u64::MAX), Outcome::Lost] {
        let mut gate = greeted(std::slice::from_ref(&back));
        assert_eq!(reply(&mut gate, 0, outcome), Ok(()), "it is not looked at");
        assert_eq!(reply(&mut gate, 0, outcome), Err(Breach::Unasked));
    }
    assert_eq!(frame(&mut greeted(&[back]), 0, 0, 1), Err(Breach::Frame));
}

#[test]
fn a_request_that_was_done_before_a_restart_is_not_answered() {
    let mut gate = greeted(&[Call::Delete { path: Vec::new() }]);
    assert!(gate.settle(0) && !gate.settle(0) && !gate.settle(1));
    assert_eq!(reply(&mut gate, 0, Outcome::Done), Err(Breach::Unasked));
}
