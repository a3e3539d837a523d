mod absence;
mod loss;
mod restart;

use super::*;
use crate::issue::Operation;
use crate::remote::message::{OpenMode, Request, VERSION, WriteNumber};
use crate::remote::outbox::Place;
use crate::remote::outlook::Told;
use crate::remote::policy::{COPY_WAIT, TAIL_WAIT};
use crate::remote::reading::Prefetch;
use crate::units::{Block, EntryId, OstId};
use crate::view::View;
use std::sync::Arc;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const BUFFER: u32 = 64;
const CHUNK: u64 = FRAME_BYTES as u64;
const MODE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: false };

/// A file that another thread of the program writes.
const OTHER: FileNumber = FileNumber(u32::MAX);

/// A buffer without bytes.
#[derive(Clone, Debug)]
struct Chunk;

impl ChunkBytes for Chunk {
    fn take_in(&mut self, _: &Self, _: Range<usize>) -> bool {
        true
    }
}

/// A program with an open file, and its server.
struct Program {
    client: Client<u32, Chunk>,
    tail: Tail<u32>,
    now: Duration,
}

impl Program {
    fn new(stage_bytes: Option<u64>) -> Self {
        let mut program = Self::unconnected(stage_bytes);
        program.client.on_connected(Duration::ZERO);
        program.deliver(ToClient::Hello { version: VERSION, name: "host".to_owned() });
        for (number, ..) in program.calls() {
            program.reply(number, Outcome::Done);
        }
        assert_eq!(program.client.take_reply(0), Some(Ok(0)));
        program
    }

    fn unconnected(stage_bytes: Option<u64>) -> Self {
        let settings = Settings {
            buffers: 16,
            buffer_bytes: BUFFER,
            chunks_max: 4,
            read_cache_bytes: 0,
            stage: stage_bytes.map(|bytes_max| StageSettings {
                bytes_max,
                in_foreground: true,
                in_background: true,
                is_synced: false,
                told: Told::default(),
            }),
            timeout: Duration::from_secs(60),
            stall_timeouts: 10,
            has_other_servers: false,
        };
        let mut client = Client::new(settings);
        let (file, path) = (FileNumber(client.next_number()), b"new");
        client.open(file, path, MODE, [0; 16], false).unwrap();
        let target = client.begin_view((file, path), (0, &[], View::whole()), Prefetch::Auto);
        let (tail, now) = (Tail::new(target, Prefetch::Auto), Duration::ZERO);
        Self { client, tail, now }
    }

    fn file(&self) -> FileNumber {
        self.tail.target().file
    }

    fn deliver(&mut self, message: ToClient) {
        let staged = self.client.on_message(message, self.now).unwrap();
        self.client.free(&staged);
    }

    fn reply(&mut self, number: u64, outcome: Outcome) {
        self.deliver(ToClient::Reply { number, outcome });
    }

    fn written(&mut self, frame: u64) {
        self.deliver(ToClient::Written(vec![Written { frame, failure: None }]));
    }

    /// Requests to be sent now: number, frames before, call.
    fn calls(&mut self) -> Vec<(u64, u64, Call)> {
        let has_messages = self.client.has_messages();
        let messages = self.client.next_messages();
        assert_eq!(has_messages, !messages.is_empty());
        let requests = messages.into_iter().filter_map(|message| match message {
            ToServer::Request(Request { number, frames_before, call }) => {
                Some((number, frames_before, call))
            }
            _ => None,
        });
        requests.collect()
    }

    /// Copies bytes into buffers.
    fn fill(&mut self, position: u64, length: u32) {
        let (client, file) = (&mut self.client, self.tail.target().file);
        let positions = position..position + u64::from(length);
        if !self.tail.takes(&positions, || client.reserve_view(file)) {
            self.tail.seal(&mut self.client, self.now);
            self.tail.begin(position, 0, BUFFER);
        }
        self.tail.advance(length);
    }

    fn seal(&mut self) {
        self.tail.seal(&mut self.client, self.now);
    }

    /// Writes a frame.
    fn put(&mut self, position: u64) {
        self.fill(position, BUFFER);
        self.seal();
    }

    /// Sends all frames that may be sent now. Returns their positions.
    fn send(&mut self) -> Vec<u64> {
        let mut positions = Vec::new();
        loop {
            let has_frame = self.client.has_frame(self.now);
            let next = self.client.next_frame(self.now);
            assert_eq!(has_frame, next.is_some());
            let Some(next) = next else { return positions };
            positions.push(next.about.position);
        }
    }

    fn copy_elsewhere(&mut self, is_awaited: bool) {
        self.client.begin_write(OTHER, &(0..0), is_awaited, self.now).unwrap();
    }

    fn end_copying(&mut self, is_awaited: bool) {
        self.client.end_write(OTHER, is_awaited, (0, false), self.now).unwrap();
    }

    fn read(&mut self, positions: Range<u64>) -> Read {
        self.client.begin_read(&mut self.tail, positions, self.now).unwrap()
    }

    /// Bytes of a read arrive.
    fn arrive(&mut self, number: u64, position: u64, length: u32) {
        let block = Block { entry: EntryId(number), offset: position, length };
        let header = Header {
            count: 1,
            payload_bytes: length,
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant: false,
            has_only_sums: false,
        };
        let row = Row { block, is_whole: false, checksum: 0 };
        self.client.on_head(&header, &[row]).unwrap();
        let place = self.client.place_of(number);
        let part = place..place + length as usize;
        self.client.on_bytes(number, Chunk, part, self.now);
        self.reply(number, Outcome::Number(length.into()));
    }

    fn lose(&mut self) {
        self.client.on_lost(Loss { errno: 5, text: "cut".to_owned() });
    }

    /// Looks every second for a time, while the server sends heartbeats or nothing.
    fn look_for(&mut self, seconds: u32, has_heartbeats: bool) -> Option<Trouble> {
        (0..seconds).find_map(|_| {
            self.now += SECOND;
            if has_heartbeats {
                self.deliver(ToClient::Heartbeat);
            }
            self.client.look(self.now)
        })
    }
}

fn read_call(program: &Program, position: u64, length: u32) -> Call {
    Call::Read { view: program.tail.target().view, position, length }
}

#[test]
fn sending_rests_while_the_program_copies() {
    let mut program = Program::new(None);
    program.deliver(ToClient::Grant(9));
    program.copy_elsewhere(false);
    program.put(0);
    assert!(program.send().is_empty());
    assert_eq!(program.client.next_timeout(program.now), program.now + COPY_WAIT);
    program.now += COPY_WAIT - MS;
    assert!(program.send().is_empty());
    program.end_copying(false);
    assert_eq!(program.send(), [0]);
    program.written(0);
    program.copy_elsewhere(false);
    program.put(100);
    program.now += COPY_WAIT;
    assert_eq!(program.send(), [100], "a copy may take long");
}

#[test]
fn sending_does_not_rest_for_a_call_that_waits_for_frames() {
    let mut program = Program::new(None);
    program.deliver(ToClient::Grant(9));
    program.copy_elsewhere(false);
    program.put(0);
    let wait = Wait::Sent(After::Frames { file: program.file(), count: 1 });
    program.client.begin_wait(&wait);
    assert_eq!(program.send(), [0]);
    assert!(!program.client.is_waiting(&wait));
    program.client.end_wait(&wait);
    program.written(0);
    program.put(100);
    assert!(program.send().is_empty());
    program.copy_elsewhere(true);
    assert_eq!(program.send(), [100], "the end of that write is awaited");
    program.end_copying(true);
    program.written(1);
    program.put(200);
    assert!(program.send().is_empty());
    assert!(program.client.start_staging().is_empty(), "a write waits for a buffer");
    assert_eq!(program.send(), [200]);
}

#[test]
fn a_buffer_that_is_not_full_is_due_once_and_a_moment_after_the_first_write() {
    let mut program = Program::new(None);
    let file = program.file();
    for position in [0, 10] {
        program.client.begin_write(file, &(position..position + 10), false, program.now).unwrap();
        program.fill(position, 10);
        program.client.end_write(file, false, (10, true), program.now).unwrap();
        assert!(!program.client.take_tails_due(program.now));
        assert_eq!(program.client.next_timeout(program.now), TAIL_WAIT);
        program.now += MS;
    }
    program.now = TAIL_WAIT;
    assert!(program.client.take_tails_due(program.now));
    assert!(!program.client.take_tails_due(program.now));
    assert_eq!(program.client.next_timeout(program.now), program.now + LOOK_INTERVAL);
}

#[test]
fn requests_are_held_until_their_frames_are_sent() {
    let mut program = Program::new(None);
    program.put(0);
    let (file, view) = (program.file(), program.tail.target().view);
    let target = Arc::clone(program.tail.target());
    program.client.end_view(&target);
    program.client.unlock_later(file, 1);
    program.client.close_later(&target, 1);
    assert!(program.calls().is_empty());
    assert!(program.client.is_waiting(&Wait::Closed(b"./new".to_vec())));
    program.deliver(ToClient::Grant(1));
    assert!(program.calls().is_empty());
    assert_eq!(program.send(), [0]);
    assert!(program.client.is_waiting(&Wait::Sent(After::Frames { file, count: 0 })));
    let calls = [Call::Forget { view }, Call::Unlock { file }, Call::Close { file }];
    let calls: Vec<_> = (2..).zip(calls).map(|(number, call)| (number, 1, call)).collect();
    assert_eq!(program.calls(), calls);
    assert!(!program.client.is_waiting(&Wait::Sent(After::Frames { file, count: 0 })));
    for (number, ..) in calls {
        assert!(program.client.is_waiting(&Wait::Closed(b"new".to_vec())));
        program.reply(number, Outcome::Done);
    }
    assert!(!program.client.is_waiting(&Wait::Closed(b"new".to_vec())));
    assert!(!program.client.is_waiting(&Wait::Finished));
}

#[test]
fn a_read_that_ends_early_flushes_once_and_asks_again() {
    let mut program = Program::new(None);
    program.deliver(ToClient::Grant(1));
    program.put(500);
    assert_eq!(program.send(), [500]);
    let mut read = program.read(0..100);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(2))));
    assert_eq!(program.calls(), [(2, 1, read_call(&program, 0, 100))]);
    program.arrive(2, 0, 40);
    assert!(matches!(program.client.step(&mut read), Step::Copy(0, _, part) if part == (0..40)));
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(3))));
    assert_eq!(program.calls(), [(3, 1, Call::Flush { file: program.file() })]);
    program.reply(3, Outcome::Done);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(4))));
    assert_eq!(program.calls(), [(4, 1, read_call(&program, 40, 60))]);
    program.arrive(4, 40, 10);
    assert!(matches!(program.client.step(&mut read), Step::Copy(40, _, part) if part == (40..50)));
    assert!(matches!(program.client.step(&mut read), Step::End(Ok(50))));
    assert!(program.calls().is_empty());
}

#[test]
fn a_read_ends_where_the_file_ends_if_everything_is_written() {
    let mut program = Program::new(None);
    let mut read = program.read(0..100);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(2))));
    assert_eq!(program.calls().len(), 1);
    program.reply(2, Outcome::Number(0));
    assert!(matches!(program.client.step(&mut read), Step::End(Ok(0))));
    assert!(program.calls().is_empty());
}

/// The first request of a read was answered before a write was done that was announced and lies in
/// the second: the read found the end of the file before bytes that were written.
#[test]
fn a_file_that_becomes_longer_during_a_read_does_not_end_before_that() {
    let mut program = Program::new(None);
    let mut read = program.read(CHUNK - 4..CHUNK + 4);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(2))));
    let calls = [(2, 0, read_call(&program, CHUNK - 4, 4)), (3, 0, read_call(&program, CHUNK, 4))];
    assert_eq!(program.calls(), calls);
    program.reply(2, Outcome::Number(0));
    program.arrive(3, CHUNK, 4);
    let mut copied = Vec::new();
    let end = loop {
        match program.client.step(&mut read) {
            Step::Copy(position, _, part) => copied.push((position, part.len())),
            Step::Wait(Wait::Reply(4)) => {
                assert_eq!(program.calls()[0], (4, 0, read_call(&program, CHUNK - 4, 4)));
                program.arrive(4, CHUNK - 4, 4);
            }
            step => break step,
        }
    };
    assert!(matches!(end, Step::End(Ok(8))), "{end:?}");
    copied.sort_unstable();
    assert_eq!(copied, [(CHUNK - 4, 4), (CHUNK, 4)]);
}

#[test]
fn records_share_a_frame_with_a_view_of_its_own() {
    let mut program = Program::new(None);
    program.fill(100, 8);
    program.fill(200, 8);
    program.fill(300, 8);
    assert!(program.calls().is_empty());
    program.seal();
    let (number, frames_before, call) = program.calls().remove(0);
    let Call::View { view, file, displacement: 100, .. } = call else { panic!("{call:?}") };
    assert_eq!((number, frames_before, file), (2, 0, program.file()));
    assert!(program.calls().is_empty());
    program.deliver(ToClient::Grant(1));
    let next = program.client.next_frame(program.now).unwrap();
    assert_eq!((next.of.view, next.about.position, next.about.length), (view, 0, 24));
    assert_eq!(program.calls(), [(3, 1, Call::Forget { view })]);
}

#[test]
fn nothing_is_read_ahead_while_a_call_asks() {
    let mut program = Program::new(None);
    program.client.set_prefetch(&mut program.tail, Prefetch::Always, program.now);
    let mut read = program.read(0..100);
    assert!(program.calls().is_empty());
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(2))));
    let calls = program.calls();
    let ahead = read_call(&program, 100, FRAME_BYTES - 100);
    assert_eq!(calls[..2], [(2, 0, read_call(&program, 0, 100)), (3, 0, ahead)]);
}

#[test]
fn nothing_is_read_ahead_over_unsent_bytes() {
    let mut program = Program::new(None);
    program.client.set_prefetch(&mut program.tail, Prefetch::Always, program.now);
    program.put(500);
    let mut read = program.read(0..100);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(2))));
    assert_eq!(program.calls(), [(2, 0, read_call(&program, 0, 100))]);
    program.deliver(ToClient::Grant(1));
    assert_eq!(program.send(), [500]);
    assert_eq!(program.calls()[0], (3, 1, read_call(&program, 100, FRAME_BYTES - 100)));
}

#[test]
fn a_fence_announces_each_frame_once() {
    let mut program = Program::new(None);
    assert_eq!(program.client.fence(), None, "everything is known");
    let mut announced = Vec::new();
    for position in [0, 100, 200] {
        program.put(position);
        assert!(program.client.fence().is_some());
        let (_, _, call) = program.calls().remove(0);
        let Call::Fence { unsent } = call else { panic!("{call:?}") };
        announced.push(unsent.iter().map(|it| (it.write, it.position)).collect::<Vec<_>>());
    }
    let expected = [(0, 0), (1, 100), (2, 200)].map(|(id, at)| vec![(WriteNumber(id), at)]);
    assert_eq!(announced, expected);
    program.deliver(ToClient::Grant(2));
    assert_eq!(program.send(), [0, 100]);
    assert!(program.client.fence().is_some());
    assert!(matches!(&program.calls()[0].2, Call::Fence { unsent } if unsent.is_empty()));
    program.deliver(ToClient::Grant(1));
    assert_eq!(program.send(), [200]);
    (0..3).for_each(|frame| program.written(frame));
    assert_eq!(program.client.fence(), None);
}

#[test]
fn reads_ahead_that_fail_leave_their_places_to_others() {
    let mut program = Program::new(None);
    program.client.set_prefetch(&mut program.tail, Prefetch::Always, program.now);
    let mut read = program.read(0..100);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(2))));
    assert_eq!(program.calls().len(), 4);
    assert!(program.client.is_waiting(&Wait::RoomForRead));
    program.reply(3, Outcome::Lost);
    assert!(!program.client.is_waiting(&Wait::RoomForRead));
    program.reply(4, Outcome::Number(0));
    program.arrive(5, 2 * CHUNK, 10);
    program.arrive(2, 0, 100);
    assert!(matches!(program.client.step(&mut read), Step::Copy(0, _, part) if part == (0..100)));
    assert!(matches!(program.client.step(&mut read), Step::End(Ok(100))));
    assert!(program.calls().is_empty(), "nothing is there");
}

#[test]
fn frames_that_cannot_be_staged_are_sent_from_memory() {
    let mut program = Program::new(Some(1 << 10));
    program.put(0);
    let frames = program.client.start_staging();
    assert_eq!(frames.len(), 1);
    assert!(program.client.is_staging());
    program.client.on_staged(&frames, None, Why::Write, program.now);
    program.put(100);
    assert!(program.client.start_staging().is_empty(), "the disk is not used again");
    program.deliver(ToClient::Grant(1));
    let next = program.client.next_frame(program.now).unwrap();
    assert_eq!((next.about.position, next.place), (0, Place::Memory(0)));
    assert_eq!(program.client.staged(), StagedBytes::default());
}

#[test]
fn a_failed_write_is_returned_by_one_later_call() {
    let mut program = Program::new(None);
    program.deliver(ToClient::Grant(1));
    program.put(0);
    assert_eq!(program.send(), [0]);
    let failure = Failure { operation: Operation::Write, errno: 28 };
    program.deliver(ToClient::Written(vec![Written { frame: 0, failure: Some(failure) }]));
    let (file, now) = (program.file(), program.now);
    let failed = program.client.begin_write(file, &(0..1), true, now);
    assert_eq!(failed, Err(CallError::Failed(failure)));
    assert_eq!(program.client.awaited(), 0);
    assert_eq!(program.client.begin_write(file, &(0..1), true, now), Ok(()));
    assert_eq!(program.client.finish(), Ok(()));
}
