//! A server that was started again, and the clients of the one before.

use super::*;
use crate::limits::CLIENT_ANNOUNCED_MAX;
use crate::remote::message::Fenced;
use crate::remote::order;

const UNTIL: Duration = Duration::from_secs(30);
const OTHER: FileId = FileId { device: 1, inode: 2 };

fn ticket(client: usize) -> Ticket {
    Ticket([u8::try_from(client).unwrap(); 16])
}

/// A server that expects these clients. Each had the file open.
fn expecting(clients: &[usize]) -> Server {
    let mut server = Server::new("host".to_owned(), 4, 2, 9);
    let known = || Known::from([(FILE, (ID, true))]);
    let expected = clients.iter().map(|client| (ticket(*client), known()));
    server.expect(expected.collect(), Vec::new(), NOW + UNTIL);
    server
}

fn open() -> Call {
    let mode = OpenMode { reads: true, writes: true, creates: true, is_new: true };
    Call::Open { file: FILE, path: Vec::new(), mode, group: [7; 16] }
}

fn view() -> Call {
    let mut filetype = Vec::new();
    Datatype::Bytes(1).write(&mut filetype);
    Call::View { view: VIEW, file: FILE, displacement: 0, filetype }
}

fn write(position: u64, length: u32) -> Unsent {
    Unsent { write: WriteNumber(1), view: VIEW, position, length }
}

impl World {
    /// Two clients; those of them that are expected are here again, the others are new.
    fn again(expected: &[usize]) -> Self {
        let mut server = expecting(expected);
        let clients = [0, 1].map(|client| match expected.contains(&client) {
            true => server.readmit(ticket(client), (vec![3], vec![4]), NOW).unwrap(),
            false => server.connect(ticket(client), NOW),
        });
        let requests = [0, 1].map(|client| if expected.contains(&client) { 10 } else { 0 });
        Self { server, clients, requests }
    }

    /// Only the first of two expected clients is here.
    fn alone() -> Self {
        let mut server = expecting(&[0, 1]);
        let first = server.readmit(ticket(0), (Vec::new(), Vec::new()), NOW).unwrap();
        Self { server, clients: [first, ClientNumber(u64::MAX)], requests: [10; 2] }
    }

    fn try_ask(&mut self, client: usize, call: Call) -> Result<(), Breach> {
        let request = Request { number: self.requests[client], frames_before: 0, call };
        self.requests[client] += 1;
        self.server.on_message(self.clients[client], ToServer::Request(request), NOW)
    }

    fn opened(&mut self, client: usize, id: FileId) -> OpenMode {
        self.ask(client, open());
        let Some(Task { request, act: Act::Open { mode, .. } }) = self.task(client) else {
            panic!("a client that returns opens its files")
        };
        self.server.on_opened(self.clients[client], request, Ok(id), NOW).unwrap();
        mode
    }

    /// A client has its file and its view again.
    fn open_again(&mut self, client: usize) {
        self.opened(client, ID);
        self.ask(client, view());
    }

    fn back(&mut self, client: usize, frames: u64, writes: Vec<Fenced>) {
        self.ask(client, Call::Return { frames, writes });
        // What follows has the numbers that it had before.
        self.requests[client] = 2;
    }

    fn read(&mut self, client: usize, position: u64) -> u64 {
        self.ask(client, Call::Read { view: VIEW, position, length: 1 })
    }

    fn end_of_time(&mut self) {
        assert_eq!(self.server.silent(NOW + UNTIL, Duration::ZERO, SILENCE_MAX), []);
    }
}

const BREACH: Breach = Breach::Order(order::Breach::Request);

#[test]
fn a_client_that_returns_hears_what_was_done_and_gets_no_other_ticket() {
    let mut world = World::again(&[0]);
    let messages = world.server.next_messages(world.clients[0]).unwrap();
    let hello = ToClient::Hello { version: VERSION, name: "host".to_owned() };
    assert_eq!(messages, [hello, ToClient::Restarted { written: vec![3], done: vec![4] }]);
    assert_eq!(world.server.find(ticket(0)), Some(world.clients[0]));
    assert!(
        !world.server.has_messages(world.clients[0]),
        "no room for frames whose number is open"
    );
    world.back(0, 5, Vec::new());
    let messages = world.server.next_messages(world.clients[0]).unwrap();
    assert_eq!(messages, [ToClient::Grant(4)], "no answer");
}

#[test]
fn nothing_is_done_for_anybody_until_all_clients_have_returned() {
    let mut world = World::again(&[0, 1]);
    let new = world.server.connect(ticket(5), NOW);
    let delete = Request { number: 0, frames_before: 0, call: Call::Delete { path: Vec::new() } };
    world.server.on_message(new, ToServer::Request(delete), NOW).unwrap();
    world.open_again(0);
    world.back(0, 5, Vec::new());
    world.server.next_messages(world.clients[0]).unwrap();
    assert_eq!(world.send(0, 0..10, false), None);
    let read = Call::Read { view: VIEW, position: 0, length: 1 };
    let request = Request { number: 7, frames_before: 6, call: read };
    world.server.on_message(world.clients[0], ToServer::Request(request), NOW).unwrap();
    world.open_again(1);
    assert_eq!((world.task(0), world.server.has_task(new)), (None, false));
    world.back(1, 0, Vec::new());
    assert!(world.server.has_task(new));
    let first = world.clients[0];
    let work = world.server.next_work();
    assert!(matches!(work, Some(Work::Write { client, frame: 5, .. }) if client == first));
    assert_eq!(world.task(0), None, "it waits for the write");
    world.server.on_written(first, 5, None, NOW).unwrap();
    assert_eq!(world.task(0).map(|task| task.request), Some(7));
}

#[test]
fn the_time_for_clients_that_return_ends() {
    let mut world = World::alone();
    world.open_again(0);
    world.back(0, 0, Vec::new());
    let size = world.ask(0, Call::Size { file: FILE });
    let before = NOW + UNTIL.checked_sub(Duration::from_secs(1)).unwrap();
    assert_eq!(world.server.silent(before, Duration::ZERO, SILENCE_MAX), []);
    assert_eq!(world.task(0), None);
    let stopped = Duration::from_secs(2);
    assert_eq!(world.server.silent(NOW + UNTIL, stopped, SILENCE_MAX), []);
    assert_eq!(world.task(0), None, "the server was stopped for two of these seconds");
    assert_eq!(world.server.silent(NOW + UNTIL + stopped, Duration::ZERO, SILENCE_MAX), []);
    assert_eq!(world.task(0).map(|task| task.request), Some(size));
}

#[test]
fn a_client_that_comes_or_returns_too_late_is_refused() {
    let mut world = World::alone();
    assert!(world.server.knows(ticket(0)) && world.server.knows(ticket(1)));
    assert!(!world.server.knows(ticket(2)));
    world.opened(0, ID);
    world.server.next_messages(world.clients[0]).unwrap();
    world.end_of_time();
    assert!(world.server.is_over(world.clients[0]), "it has begun and not returned");
    let messages = world.server.next_messages(world.clients[0]).unwrap();
    assert!(messages.contains(&ToClient::Fatal(LATE.to_owned())), "{messages:?}");
    for client in [0, 1] {
        assert_eq!(world.server.readmit(ticket(client), (Vec::new(), Vec::new()), NOW), None);
        assert!(!world.server.knows(ticket(client)));
    }
}

const LATE: &str = "the server was started again, and this client did not return in time";

#[test]
fn nothing_is_held_up_if_nobody_is_expected() {
    let mut world = World::again(&[]);
    assert_eq!(world.server.readmit(ticket(0), (Vec::new(), Vec::new()), NOW), None);
    world.ask(0, Call::Delete { path: Vec::new() });
    assert!(world.task(0).is_some());
}

#[test]
fn what_a_client_may_have_written_that_does_not_come_is_lost_for_those_with_the_file_open() {
    for is_written in [false, true] {
        let mut server = Server::new("host".to_owned(), 4, 2, 9);
        let mine = Known::from([(FILE, (ID, true))]);
        let other = Known::from([(FILE, (ID, is_written))]);
        let expected = [(ticket(0), mine), (ticket(1), other)];
        server.expect(expected.into(), Vec::new(), NOW + UNTIL);
        let first = server.readmit(ticket(0), (Vec::new(), Vec::new()), NOW).unwrap();
        let second = server.connect(ticket(2), NOW);
        let mut world = World { server, clients: [first, second], requests: [10, 0] };
        world.open_again(0);
        world.back(0, 0, Vec::new());
        world.end_of_time();
        world.replies(0);
        let read = world.read(0, 5);
        assert_eq!(world.replies(0), if is_written { vec![(read, Outcome::Lost)] } else { vec![] });
        assert_eq!(world.task(0).is_some(), !is_written);
    }
}

#[test]
fn what_was_lost_before_is_lost_as_long_as_the_file_is_open() {
    let mut server = Server::new("host".to_owned(), 4, 2, 9);
    let known = Known::from([(FILE, (ID, true))]);
    server.expect([(ticket(0), known)].into(), vec![OTHER, ID], NOW + UNTIL);
    assert_eq!(server.lost(), [ID, OTHER], "the server may be killed again");
    let clients = [0, 1].map(|client| match client {
        0 => server.readmit(ticket(0), (Vec::new(), Vec::new()), NOW).unwrap(),
        _ => server.connect(ticket(1), NOW),
    });
    let mut world = World { server, clients, requests: [10, 0] };
    world.open_again(0);
    world.back(0, 0, Vec::new());
    world.replies(0);
    let read = world.read(0, 5);
    assert_eq!(world.replies(0), [(read, Outcome::Lost)]);
    assert_eq!(world.server.lost(), [ID], "nobody has the other one open");
    world.ask(0, Call::Close { file: FILE });
    let Some(Task { request, .. }) = world.task(0) else { panic!("it is closed") };
    world.server.on_done(world.clients[0], request, Outcome::Done, NOW).unwrap();
    assert_eq!(world.server.lost(), []);
}

#[test]
fn a_client_that_has_returned_and_is_gone_before_the_others_is_expected_again() {
    for is_leaving in [false, true] {
        let mut world = World::again(&[0, 1]);
        world.open_again(0);
        world.open_again(1);
        world.back(0, 0, Vec::new());
        if is_leaving {
            world.server.on_message(world.clients[0], ToServer::Bye, NOW).unwrap();
            assert!(!world.server.on_broken(world.clients[0], NOW), "it does not come back");
        }
        world.server.on_gone(world.clients[0], None);
        world.back(1, 0, Vec::new());
        assert_eq!(world.server.knows(ticket(0)), !is_leaving);
        if !is_leaving {
            world.end_of_time();
        }
        world.replies(1);
        let read = world.read(1, 0);
        let lost = if is_leaving { vec![] } else { vec![(read, Outcome::Lost)] };
        assert_eq!(world.replies(1), lost, "one that leaves has written all");
    }
}

/// All others waited for it.
#[test]
fn a_client_that_leaves_before_it_has_returned_is_not_waited_for() {
    let mut world = World::again(&[0, 1]);
    world.open_again(1);
    world.back(1, 0, Vec::new());
    world.server.on_message(world.clients[0], ToServer::Bye, NOW).unwrap();
    assert!(!world.server.on_broken(world.clients[0], NOW));
    world.server.on_gone(world.clients[0], None);
    assert!(!world.server.knows(ticket(0)));
    world.replies(1);
    world.read(1, 0);
    assert!(world.task(1).is_some());
}

#[test]
fn writes_of_all_clients_are_done_in_the_order_of_their_fences() {
    for fences in [[4, 6], [6, 4]] {
        let mut world = World::again(&[0, 1]);
        for client in [0, 1] {
            world.open_again(client);
            let unsent = write(5 * client as u64, 10);
            world.back(client, 0, vec![Fenced { fence: fences[client], unsent }]);
        }
        let [first, second] = if fences[0] < fences[1] { [0, 1] } else { [1, 0] };
        let messages = [0, 1].map(|it| world.server.next_messages(world.clients[it]).unwrap());
        assert!(messages.iter().flatten().all(|it| !matches!(it, ToClient::Recall(_))));
        let range = |client: usize| 5 * client as u64..5 * client as u64 + 10;
        let refused = Work::Drop { client: world.clients[second], frame: 0 };
        assert_eq!(world.send(second, range(second), true), Some(refused));
        let work = world.send(first, range(first), true);
        let client = world.clients[first];
        assert!(matches!(work, Some(Work::Write { client: it, .. }) if it == client), "{work:?}");
    }
}

#[test]
fn a_fence_after_the_restart_has_a_larger_number_than_those_before() {
    let mut world = World::again(&[0]);
    world.open_again(0);
    world.back(0, 0, Vec::new());
    world.replies(0);
    let fence = world.announce(0, 0, 10);
    assert_eq!(world.replies(0), [(fence, Outcome::Number(9))]);
}

#[test]
fn what_a_returning_client_names_and_does_not_have_ends_its_connection() {
    let unsent = write(0, 10);
    let wrong = Unsent { view: ViewNumber(5), ..unsent };
    for writes in [vec![wrong], vec![unsent; 2]] {
        let mut world = World::again(&[0]);
        world.open_again(0);
        world.back(0, 0, writes.iter().map(|&unsent| Fenced { fence: 1, unsent }).collect());
        assert!(world.server.is_over(world.clients[0]));
    }
    let mut world = World::again(&[0]);
    let far = Call::Return { frames: u64::MAX, writes: Vec::new() };
    let writes = vec![Fenced { fence: 1, unsent }; CLIENT_ANNOUNCED_MAX + 1];
    for call in [far, Call::Return { frames: 0, writes }] {
        assert_eq!(world.try_ask(0, call), Err(Breach::Order(order::Breach::Number)));
    }
}

#[test]
fn a_known_file_is_neither_made_nor_has_to_be_new() {
    let mut world = World::again(&[0]);
    let mode = world.opened(0, ID);
    assert!(!mode.creates && !mode.is_new && mode.reads && mode.writes);
    world.back(0, 0, Vec::new());
    let mode = world.opened(1, ID);
    assert!(mode.creates && mode.is_new, "the other client is new");
}

#[test]
fn another_file_than_the_one_that_was_open_is_stale() {
    let mut world = World::again(&[0]);
    world.opened(0, OTHER);
    assert_eq!(world.replies(0), [(10, Outcome::Failed(STALE))]);
    world.back(0, 0, Vec::new());
    let size = world.ask(0, Call::Flush { file: FILE });
    assert_eq!(world.replies(0), [(size, Outcome::Failed(STALE))]);
}

#[test]
fn a_lock_that_was_held_is_held_again() {
    let lock = || Call::Lock { file: FILE, kind: LockKind::Exclusive };
    let mut world = World::again(&[0, 1]);
    world.open_again(0);
    world.open_again(1);
    // The other one had waited for it, and asks again after its return.
    world.back(1, 0, Vec::new());
    let waits = world.ask(1, lock());
    world.ask(0, lock());
    assert!(world.replies(0).contains(&(12, Outcome::Done)));
    world.back(0, 0, Vec::new());
    assert!(!world.replies(1).contains(&(waits, Outcome::Done)));
    world.ask(0, UNLOCK);
    assert_eq!(world.replies(1), [(waits, Outcome::Done)]);
}

/// It did not hear of the answer, and another client has the lock.
#[test]
fn a_lock_that_was_given_back_before_is_given_back_once() {
    let mut world = World::again(&[0, 1]);
    let lock = || Call::Lock { file: FILE, kind: LockKind::Exclusive };
    for client in [1, 0] {
        world.open_again(client);
        world.ask(client, lock());
    }
    for client in 0..2 {
        world.back(client, 0, Vec::new());
        drop(world.replies(client));
    }
    let unlock = world.ask(0, UNLOCK);
    // Its lock was asked for again with the third request.
    assert_eq!(world.replies(0), [(12, Outcome::Done), (unlock, Outcome::Done)]);
    let waits = world.ask(0, lock());
    assert!(world.replies(0).is_empty(), "the other one has it");
    world.ask(1, UNLOCK);
    assert_eq!(world.replies(0), [(waits, Outcome::Done)]);
}

#[test]
fn a_client_whose_connection_breaks_before_it_has_returned_may_come_again() {
    let mut world = World::again(&[0, 1]);
    world.open_again(1);
    world.back(1, 0, Vec::new());
    let broken = world.clients[0];
    world.ask(0, open());
    let late = world.task(0).unwrap();
    assert!(!world.server.on_broken(broken, NOW), "nothing of it is kept");
    world.server.on_gone(broken, None);
    assert!(world.server.knows(ticket(0)) && world.server.find(ticket(0)).is_none());
    assert!(world.server.on_opened(broken, late.request, Ok(ID), NOW).is_ok());
    assert!(world.server.is_ended(broken));
    world.clients[0] = world.server.readmit(ticket(0), (Vec::new(), Vec::new()), NOW).unwrap();
    world.requests[0] = 10;
    let mode = world.opened(0, ID);
    assert!(!mode.creates, "it is known still");
    world.server.forget(broken);
    world.back(0, 0, Vec::new());
    world.replies(1);
    let add = world.ask(1, Call::AddShared { file: FILE, bytes: 1 });
    let Outcome::Failed(failure) = world.replies(1)[0].1 else { panic!("{add}") };
    assert_eq!(failure.errno, 116, "the pointer of the group is not known");
}

#[test]
fn a_client_whose_connection_breaks_after_its_return_resumes() {
    let mut world = World::again(&[0, 1]);
    world.open_again(0);
    world.back(0, 5, Vec::new());
    let heard = world.server.next_messages(world.clients[0]).unwrap();
    let heard = heard.iter().filter(|it| it.is_counted()).count() as u64;
    assert!(world.server.on_broken(world.clients[0], NOW));
    assert_eq!(world.server.readmit(ticket(0), (Vec::new(), Vec::new()), NOW), None);
    assert_eq!(world.server.resume(world.clients[0], heard, NOW), Ok(true));
    let resumed = ToClient::Resumed { requests: 0, frames: 5 };
    assert_eq!(world.server.next_messages(world.clients[0]).unwrap()[1..], [resumed]);
    world.open_again(1);
    world.back(1, 0, Vec::new());
    world.read(0, 0);
    assert!(world.task(0).is_some());
}

#[test]
fn a_client_that_returns_asks_for_nothing_else_before() {
    let calls = [
        Call::Close { file: FILE },
        Call::Read { view: VIEW, position: 0, length: 1 },
        Call::Fence { unsent: Vec::new() },
        Call::Delete { path: Vec::new() },
        Call::Forget { view: VIEW },
        Call::SetSize { file: FILE, size: 0 },
    ];
    for call in calls {
        let mut world = World::again(&[0]);
        world.open_again(0);
        assert_eq!(world.try_ask(0, call.clone()), Err(BREACH), "{call:?}");
    }
}

#[test]
fn only_a_client_that_returns_says_so_and_once() {
    let back = || Call::Return { frames: 0, writes: Vec::new() };
    let mut world = World::again(&[0]);
    world.back(0, 0, Vec::new());
    assert_eq!(world.try_ask(0, back()), Err(BREACH), "twice");
    assert_eq!(world.try_ask(1, back()), Err(BREACH), "it is new");
}
