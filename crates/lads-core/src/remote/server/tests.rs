mod returning;

use super::*;
use crate::remote::message::{FrameOf, LockKind, Unsent, ViewNumber, WriteNumber};
use crate::remote::policy::SILENCE_MAX;
use crate::units::{Block, OstId};
use crate::view::Datatype;
use std::ops::Range;
use std::time::Duration;

const FILE: FileNumber = FileNumber(1);
const VIEW: ViewNumber = ViewNumber(1);
const ID: FileId = FileId { device: 1, inode: 1 };
const NOW: Instant = Instant::START;

/// A server and two clients, each with the file open and a view of all of it.
struct World {
    server: Server,
    clients: [ClientNumber; 2],
    requests: [u64; 2],
}

impl World {
    fn new() -> Self {
        let mut server = Server::new("host".to_owned(), 4, 2, 1);
        let clients = [0, 1].map(|number| server.connect(Ticket([number; 16]), NOW));
        let mut world = Self { server, clients, requests: [0; 2] };
        for client in 0..2 {
            let mode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
            world.ask(client, Call::Open { file: FILE, path: Vec::new(), mode, group: [7; 16] });
            let request = world.task(client).unwrap().request;
            world.server.on_opened(world.clients[client], request, Ok(ID), NOW).unwrap();
            let mut filetype = Vec::new();
            Datatype::Bytes(1).write(&mut filetype);
            world.ask(client, Call::View { view: VIEW, file: FILE, displacement: 0, filetype });
            world.replies(client);
        }
        world
    }

    fn ask(&mut self, client: usize, call: Call) -> u64 {
        let number = self.requests[client];
        self.requests[client] += 1;
        let request = Request { number, frames_before: 0, call };
        let message = ToServer::Request(request);
        self.server.on_message(self.clients[client], message, NOW).unwrap();
        number
    }

    fn task(&mut self, client: usize) -> Option<Task> {
        self.server.next_task(self.clients[client])
    }

    fn replies(&mut self, client: usize) -> Vec<(u64, Outcome)> {
        let messages = self.server.next_messages(self.clients[client]).unwrap().into_iter();
        let reply = |message| match message {
            ToClient::Reply { number, outcome } => Some((number, outcome)),
            _ => None,
        };
        messages.filter_map(reply).collect()
    }

    fn announce(&mut self, client: usize, position: u64, length: u32) -> u64 {
        let unsent = vec![Unsent { write: WriteNumber(1), view: VIEW, position, length }];
        self.ask(client, Call::Fence { unsent })
    }

    /// A frame of a client arrives. Returns the decision about a frame that follows.
    fn send(&mut self, client: usize, block: Range<u64>, is_announced: bool) -> Option<Work> {
        let of = FrameOf { view: VIEW, write: WriteNumber(1), is_announced };
        let length = u32::try_from(block.end - block.start).unwrap();
        let block = Block { entry: of.entry(), offset: block.start, length };
        let rows = [Row { block, is_whole: false, checksum: 0 }];
        let header = Header {
            count: 1,
            payload_bytes: length,
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant: false,
            has_only_sums: false,
        };
        self.server.on_head(self.clients[client], &header, &rows).unwrap();
        self.server.on_frame(self.clients[client], &rows, NOW).unwrap();
        self.server.next_work()
    }
}

/// The frame failed with `EBADF`: its client had sent it before it asked for the file to be closed.
#[test]
fn a_refused_frame_is_written_although_its_file_is_closing() {
    let mut world = World::new();
    world.announce(0, 0, 10);
    let [first, second] = world.clients;
    assert_eq!(world.send(1, 5..15, false), Some(Work::Drop { client: second, frame: 0 }));
    let close = world.ask(1, Call::Close { file: FILE });
    let Some(Work::Write { client, frame, .. }) = world.send(0, 0..10, true) else {
        panic!("nothing is before it");
    };
    assert_eq!((client, world.task(1)), (first, None));
    world.server.on_written(first, frame, None, NOW).unwrap();
    let messages = world.server.next_messages(second).unwrap();
    assert!(messages.contains(&ToClient::Again(0)), "{messages:?}");
    let Some(Work::Write { client, frame, file, .. }) = world.send(1, 5..15, true) else {
        panic!("it is expected");
    };
    assert_eq!((client, file, world.task(1)), (second, FILE, None));
    world.server.on_written(second, frame, None, NOW).unwrap();
    let act = Act::Close { file: FILE, is_usable: true };
    assert_eq!(world.task(1), Some(Task { request: close, act }));
}

/// The server kept the locks of such a client for ever.
#[test]
fn a_client_that_is_gone_is_not_sent_what_it_read() {
    let mut world = World::new();
    let read = world.ask(0, Call::Read { view: VIEW, position: 0, length: 10 });
    assert_eq!(world.task(0).map(|task| task.request), Some(read));
    assert_eq!(world.server.on_read(world.clients[0], read, Ok(10)), Ok(Some(10)));
    assert!(!world.server.is_ended(world.clients[0]));
    world.server.on_gone(world.clients[0], None);
    assert!(world.server.is_ended(world.clients[0]));
    assert_eq!(world.server.on_sent(world.clients[0], read, 10, NOW), Ok(()), "it was late");
    assert!(world.server.is_ended(world.clients[0]));
}

/// It ended there, and the program did not ask for what came behind.
#[test]
fn a_read_before_what_is_announced_does_not_end_at_the_end_of_the_file() {
    let mut world = World::new();
    let read = |world: &mut World| {
        let read = world.ask(1, Call::Read { view: VIEW, position: 0, length: 10 });
        assert_eq!(world.task(1).map(|task| task.request), Some(read));
        world.server.on_read(world.clients[1], read, Ok(4))
    };
    assert_eq!(read(&mut world), Ok(Some(4)));
    world.announce(0, 100, 10);
    assert_eq!(read(&mut world), Ok(Some(10)));
    world.server.on_gone(world.clients[0], None);
    assert_eq!(read(&mut world), Ok(Some(4)));
}

/// Who is busy is never silent, and others wait for it.
#[test]
fn what_was_being_sent_when_a_connection_broke_is_not_being_done() {
    let mut world = World::new();
    let client = world.clients[0];
    let read = world.ask(0, Call::Read { view: VIEW, position: 0, length: 10 });
    assert_eq!(world.task(0).map(|task| task.request), Some(read));
    assert_eq!(world.server.on_read(client, read, Ok(10)), Ok(Some(10)));
    assert!(world.server.on_broken(client, NOW));
    assert_eq!(world.server.resume(client, 0, NOW), Ok(true));
    assert_eq!(world.server.on_sent(client, read, 10, NOW), Ok(()), "it was late");
    world.announce(0, 0, 10);
    world.ask(1, Call::Read { view: VIEW, position: 5, length: 1 });
    let limit = Duration::from_secs(60);
    assert_eq!(world.server.silent(NOW + limit, Duration::ZERO, limit), [client]);
}

/// A program that closes a file and writes the next one did not get on until the first was durable.
#[test]
fn a_fence_does_not_wait_until_a_file_is_durable() {
    let mut world = World::new();
    let sync = world.ask(0, Call::Sync { file: FILE });
    assert_eq!(world.task(0), Some(Task { request: sync, act: Act::Sync(FILE) }));
    let fence = world.announce(0, 0, 10);
    assert_eq!(world.replies(0), [(fence, Outcome::Number(1))]);
    world.server.on_done(world.clients[0], sync, Outcome::Done, NOW).unwrap();
    assert_eq!(world.replies(0), [(sync, Outcome::Done)]);
}

#[test]
fn the_size_of_a_file_counts_what_is_announced() {
    let mut world = World::new();
    world.announce(0, 100, 10);
    for (call, expected) in [(Call::Size { file: FILE }, 110), (Call::End { view: VIEW }, 110)] {
        let request = world.ask(1, call);
        assert_eq!(world.task(1), Some(Task { request, act: Act::Size(FILE) }));
        world.server.on_done(world.clients[1], request, Outcome::Number(5), NOW).unwrap();
        assert_eq!(world.replies(1), [(request, Outcome::Number(expected))]);
    }
}

#[test]
fn a_read_recalls_what_another_client_announced_and_fails_if_that_is_gone() {
    let mut world = World::new();
    world.announce(0, 0, 10);
    let read = world.ask(1, Call::Read { view: VIEW, position: 5, length: 1 });
    assert_eq!((world.task(1), world.replies(1)), (None, Vec::new()));
    let messages = world.server.next_messages(world.clients[0]).unwrap();
    assert!(messages.contains(&ToClient::Recall(WriteNumber(1))), "{messages:?}");
    world.server.on_gone(world.clients[0], None);
    assert_eq!(world.replies(1), [(read, Outcome::Lost)]);
    assert!(world.server.is_ended(world.clients[0]));
}

#[test]
fn a_client_that_does_not_send_what_others_wait_for_is_silent() {
    let mut world = World::new();
    world.announce(0, 0, 10);
    let limit = Duration::from_secs(60);
    let late = NOW + limit;
    assert_eq!(world.server.silent(late, Duration::ZERO, limit), []);
    world.ask(1, Call::Read { view: VIEW, position: 5, length: 1 });
    assert_eq!(world.server.silent(late, Duration::from_secs(1), limit), [], "it was stopped");
    let later = late + Duration::from_secs(1);
    assert_eq!(world.server.silent(later, Duration::ZERO, limit), [world.clients[0]]);
}

#[test]
fn a_lock_that_a_client_does_not_have_is_not_given_back() {
    let mut world = World::new();
    let kind = LockKind::Exclusive;
    let lock = world.ask(0, Call::Lock { file: FILE, kind });
    let waits = world.ask(1, Call::Lock { file: FILE, kind });
    assert_eq!(world.replies(0), [(lock, Outcome::Done)]);
    let request = Request { number: world.requests[1], frames_before: 0, call: UNLOCK };
    let told = world.server.on_message(world.clients[1], ToServer::Request(request), NOW);
    assert_eq!(told, Err(Breach::Order(super::super::order::Breach::Unknown)));
    world.ask(0, UNLOCK);
    assert_eq!(world.replies(1), [(waits, Outcome::Done)]);
}

const UNLOCK: Call = Call::Unlock { file: FILE };

/// A client could make a server keep requests without limit.
#[test]
fn requests_of_a_client_that_wait_are_limited() {
    let mut world = World::new();
    world.announce(0, 0, 10);
    let mut count = 0;
    while world.server.has_room_for_message(world.clients[0]) {
        world.ask(0, Call::Flush { file: FILE });
        count += 1;
    }
    assert!(count > 1000 && count < 10_000, "{count}");
}

/// What was being sent to a client when its connection broke counted as work for it: it kept its
/// lock although it was silent.
#[test]
fn a_client_that_is_away_is_given_up_although_bytes_were_being_sent_to_it() {
    let mut world = World::new();
    world.ask(0, Call::Lock { file: FILE, kind: LockKind::Exclusive });
    let read = world.ask(0, Call::Read { view: VIEW, position: 0, length: 4 });
    world.task(0).unwrap();
    assert_eq!(world.server.on_read(world.clients[0], read, Ok(4)), Ok(Some(4)));
    world.ask(1, Call::Lock { file: FILE, kind: LockKind::Exclusive });
    assert!(world.server.on_broken(world.clients[0], NOW));
    let later = NOW + SILENCE_MAX;
    assert_eq!(world.server.silent(later, Duration::ZERO, SILENCE_MAX), [world.clients[0]]);
}
