//! Clients of a server that was started again.

use super::*;
use crate::limits::CLIENT_ANNOUNCED_MAX;
use crate::remote::message::Fenced;
use crate::remote::policy::RETURN_MAX;
use crate::remote::server::Known;

const OTHER: FileId = FileId { device: 1, inode: 2 };
const MODE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: true };

fn ticket(client: usize) -> Ticket {
    Ticket([u8::try_from(client).unwrap(); 16])
}

fn fenced(fence: u64, position: u64, length: u32) -> Fenced {
    let unsent = Unsent { write: WriteNumber(1), view: VIEW, position, length };
    Fenced { fence, unsent }
}

impl World {
    /// Two clients are expected that had the file open, and both have come.
    fn started_again() -> Self {
        let mut server = Server::new("host".to_owned(), 4, 2, 50);
        let known = || Known::from([(FILE, (ID, true))]);
        let expected = [0, 1].map(|client| (ticket(client), known()));
        server.expect(expected.into(), NOW + RETURN_MAX);
        let none = || (Vec::new(), Vec::new());
        let clients = [0, 1].map(|it| server.readmit(ticket(it), none(), NOW).unwrap());
        Self { server, clients, requests: [5; 2] }
    }

    fn open_again(&mut self, client: usize, id: FileId) {
        self.ask(client, Call::Open { file: FILE, path: Vec::new(), mode: MODE, group: [7; 16] });
        let Task { request, act } = self.task(client).unwrap();
        let Act::Open { mode, .. } = act else { panic!("{act:?}") };
        assert!(!mode.creates && !mode.is_new, "it is there");
        self.server.on_opened(self.clients[client], request, Ok(id), NOW).unwrap();
        let mut filetype = Vec::new();
        Datatype::Bytes(1).write(&mut filetype);
        self.ask(client, Call::View { view: VIEW, file: FILE, displacement: 0, filetype });
    }

    fn come_back(&mut self, client: usize, writes: Vec<Fenced>) {
        self.open_again(client, ID);
        self.ask(client, Call::Return { frames: 0, writes });
        self.requests[client] = 3;
    }

    fn breaches(&mut self, client: usize, call: Call) {
        let request = Request { number: self.requests[client], frames_before: 0, call };
        let message = ToServer::Request(request);
        self.server.on_message(self.clients[client], message, NOW).unwrap_err();
    }
}

#[test]
fn nothing_is_done_for_anybody_until_all_have_returned() {
    let mut world = World::started_again();
    let new = world.server.connect(Ticket([9; 16]), NOW);
    let call = Call::Open { file: FILE, path: Vec::new(), mode: MODE, group: [1; 16] };
    let open = ToServer::Request(Request { number: 0, frames_before: 0, call });
    world.server.on_message(new, open, NOW).unwrap();
    let is_grant = |it: &ToClient| matches!(it, ToClient::Grant(_));
    let grants = |world: &mut World, client: usize| {
        let number = world.clients[client];
        world.server.next_messages(number).unwrap().iter().any(is_grant)
    };
    assert!(!grants(&mut world, 0), "the numbers of its frames are not known");
    world.come_back(0, Vec::new());
    assert!(grants(&mut world, 0));
    world.ask(0, Call::Size { file: FILE });
    assert_eq!((world.task(0), world.server.next_task(new)), (None, None));
    world.come_back(1, Vec::new());
    assert_eq!(world.task(0).unwrap().act, Act::Size(FILE));
    let task = world.server.next_task(new).unwrap();
    assert!(matches!(task.act, Act::Open { mode: MODE, .. }), "it is a new client");
}

#[test]
fn writes_are_done_in_the_order_of_their_fences() {
    let mut world = World::started_again();
    world.come_back(0, vec![fenced(9, 0, 10)]);
    world.come_back(1, vec![fenced(5, 5, 10)]);
    // Both take their grants.
    (0..2).for_each(|client| drop(world.replies(client)));
    let [first, second] = world.clients;
    assert_eq!(world.send(0, 0..10, true), Some(Work::Drop { client: first, frame: 0 }));
    let Some(Work::Write { client, .. }) = world.send(1, 5..15, true) else {
        panic!("nothing is before it");
    };
    assert_eq!(client, second);
    let fence = world.ask(0, Call::Fence { unsent: Vec::new() });
    assert!(world.replies(0).contains(&(fence, Outcome::Number(50))));
}

#[test]
fn what_a_client_wrote_that_does_not_come_is_lost_when_the_time_is_over() {
    let mut world = World::started_again();
    world.come_back(0, Vec::new());
    let read = world.ask(0, Call::Read { view: VIEW, position: 0, length: 10 });
    // Its connection breaks before it has returned.
    let late = world.clients[1];
    assert!(!world.server.on_broken(late, NOW));
    world.server.on_gone(late, None);
    assert!(world.server.knows(ticket(1)) && world.server.find(ticket(1)).is_none());
    let end = NOW + RETURN_MAX;
    world.server.silent(end, Duration::ZERO, SILENCE_MAX);
    assert!(world.replies(0).contains(&(read, Outcome::Lost)));
    assert!(!world.server.knows(ticket(1)));
    assert_eq!(world.server.readmit(ticket(1), (Vec::new(), Vec::new()), end), None);
}

#[test]
fn a_client_whose_connection_breaks_before_it_has_returned_comes_again() {
    let mut world = World::started_again();
    world.come_back(0, Vec::new());
    let size = world.ask(0, Call::Size { file: FILE });
    world.server.on_gone(world.clients[1], None);
    world.clients[1] = world.server.readmit(ticket(1), (vec![1], vec![2]), NOW).unwrap();
    let said = world.server.next_messages(world.clients[1]).unwrap();
    let expected = ToClient::Restarted { written: vec![1], done: vec![2] };
    assert!(matches!(said[0], ToClient::Hello { .. }) && said[1] == expected, "{said:?}");
    world.requests[1] = 5;
    world.come_back(1, Vec::new());
    assert_eq!(world.task(0), Some(Task { request: size, act: Act::Size(FILE) }));
}

#[test]
fn a_connected_client_that_does_not_return_in_time_is_given_up() {
    let mut world = World::started_again();
    world.come_back(0, Vec::new());
    world.server.silent(NOW + RETURN_MAX, RETURN_MAX, SILENCE_MAX);
    assert!(!world.server.is_over(world.clients[1]), "this process was stopped");
    world.server.silent(NOW + RETURN_MAX * 2, Duration::ZERO, SILENCE_MAX);
    assert!(world.server.is_over(world.clients[1]) && !world.server.is_over(world.clients[0]));
}

#[test]
fn a_file_that_was_replaced_cannot_be_used() {
    let mut world = World::started_again();
    world.open_again(0, OTHER);
    let stale = |(_, outcome): &(u64, Outcome)| *outcome == Outcome::Failed(STALE);
    assert!(world.replies(0).iter().any(stale));
}

#[test]
fn locks_are_held_again() {
    let mut world = World::started_again();
    world.open_again(0, ID);
    let lock = |kind| Call::Lock { file: FILE, kind };
    let held = world.ask(0, lock(LockKind::Exclusive));
    assert!(world.replies(0).contains(&(held, Outcome::Done)));
    world.ask(0, Call::Return { frames: 0, writes: Vec::new() });
    world.requests[0] = 3;
    world.come_back(1, Vec::new());
    let waits = world.ask(1, lock(LockKind::Shared));
    assert!(world.replies(1).iter().all(|(request, _)| *request != waits));
    world.ask(0, Call::Unlock { file: FILE });
    assert_eq!(world.replies(1), [(waits, Outcome::Done)]);
}

/// It did not hear of the answer, and another client has the lock.
#[test]
fn a_lock_that_was_given_back_before_is_given_back_once() {
    let mut world = World::started_again();
    let lock = || Call::Lock { file: FILE, kind: LockKind::Exclusive };
    for client in [1, 0] {
        world.open_again(client, ID);
        world.ask(client, lock());
    }
    for client in 0..2 {
        world.ask(client, Call::Return { frames: 0, writes: Vec::new() });
        world.requests[client] = 3;
        drop(world.replies(client));
    }
    let unlock = world.ask(0, Call::Unlock { file: FILE });
    // Its lock was asked for again with the third request.
    assert_eq!(world.replies(0), [(7, Outcome::Done), (unlock, Outcome::Done)]);
    let waits = world.ask(0, lock());
    assert!(world.replies(0).is_empty(), "the other one has it");
    world.ask(1, Call::Unlock { file: FILE });
    assert_eq!(world.replies(0), [(waits, Outcome::Done)]);
}

#[test]
fn a_client_that_returns_wrongly_breaks_the_protocol() {
    let back = |frames, writes| Call::Return { frames, writes };
    let mut world = World::new();
    world.breaches(0, back(0, Vec::new()));
    let mut world = World::started_again();
    world.open_again(0, ID);
    world.breaches(0, Call::Close { file: FILE });
    let mut world = World::started_again();
    world.breaches(0, back(u64::MAX, Vec::new()));
    world.breaches(1, back(0, vec![fenced(1, 0, 1); CLIENT_ANNOUNCED_MAX + 1]));
    // Those of a view that it does not have.
    let mut world = World::started_again();
    world.ask(0, back(0, vec![fenced(1, 0, 1)]));
    world.come_back(1, Vec::new());
    assert!(world.server.is_over(world.clients[0]) && !world.server.is_over(world.clients[1]));
    world.breaches(1, back(0, Vec::new()));
}
