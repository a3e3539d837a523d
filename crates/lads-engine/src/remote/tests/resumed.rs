//! Connections that break and are made again.

use super::*;
use lads_core::remote::message::{Ticket, ToServer, VERSION};
use lads_core::remote::name::Server;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A line between a client and a server, which can break.
struct Middle {
    at: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_down: bool,
    connections: Vec<[TcpStream; 2]>,
    /// How many there were.
    count: u32,
}

impl Middle {
    fn new(place: &Place) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let state = Arc::<Mutex<State>>::default();
        let (to, of_thread) = (place.at.clone(), Arc::clone(&state));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let mut state = of_thread.lock().unwrap();
                if state.is_down {
                    continue;
                }
                let server = TcpStream::connect(&to).unwrap();
                let again = |it: &TcpStream| it.try_clone().unwrap();
                carry(again(&client), again(&server));
                carry(again(&server), again(&client));
                state.count += 1;
                state.connections.push([client, server]);
            }
        });
        Self { at, state }
    }

    fn client(&self, place: &Place) -> Client {
        Client::connect(&self.at, &place.token, &ClientOptions::default()).unwrap()
    }

    /// All connections break.
    fn break_off(&self) {
        for end in self.state.lock().unwrap().connections.drain(..).flatten() {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// There are no connections from now on, or again.
    fn set_down(&self, is_down: bool) {
        self.state.lock().unwrap().is_down = is_down;
        self.break_off();
    }

    fn count(&self) -> u32 {
        self.state.lock().unwrap().count
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let mut part = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut part) {
            if to.write_all(&part[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

#[test]
fn what_is_written_and_read_survives_broken_connections() {
    const PART: usize = MIB / 2 + 77;
    let place = Place::with_layout("synthetic:osts=2,latency_ms=1");
    let middle = Middle::new(&place);
    let client = middle.client(&place);
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(40 * PART);
    for (index, part) in bytes.chunks(PART).enumerate() {
        let at = (index * PART) as u64;
        file.write(at, &[part]).unwrap();
        if index % 8 == 3 {
            middle.break_off();
        }
        if index % 8 == 5 {
            assert!(read(&file, at, PART) == part);
        }
        if index % 16 == 11 {
            file.sync().unwrap();
        }
    }
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|half| {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                for index in 0..20 {
                    let at = (half * 20 + index) * PART;
                    assert!(read(file, at as u64, PART) == bytes[at..at + PART]);
                }
            })
        });
        middle.break_off();
        readers.into_iter().for_each(|it| it.join().unwrap());
    });
    file.close(false).unwrap();
    client.finish().unwrap();
    assert!(place.bytes("new") == bytes);
    // Before each break, the connection was made again.
    assert!(client.reconnections() >= 5 && u64::from(middle.count()) > client.reconnections());
}

#[test]
fn locks_and_shared_pointers_survive_a_broken_connection() {
    let place = Place::new();
    let middle = Middle::new(&place);
    let clients = [middle.client(&place), place.client()];
    let [file, other] =
        [0, 1].map(|it: usize| clients[it].open(b"new", CREATE, GROUP, false).unwrap());
    file.lock(LockKind::Exclusive).unwrap();
    assert_eq!(file.add_shared(100).unwrap(), 0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            other.lock(LockKind::Exclusive).unwrap();
            read(&other, 0, 10)
        });
        middle.set_down(true);
        file.write(0, &[&[1; 10]]).unwrap();
        middle.set_down(false);
        assert_eq!(file.add_shared(5).unwrap(), 100);
        file.write(0, &[&[2; 10]]).unwrap();
        assert!(!waiting.is_finished(), "it has the lock, too");
        file.unlock();
        assert_eq!(waiting.join().unwrap(), [2; 10]);
    });
}

/// Nobody says that the process is gone: the server waits for another connection, and then lets
/// others have what it held.
#[test]
fn a_client_that_does_not_come_back_is_given_up_when_others_wait() {
    let short = Duration::from_millis(300);
    let place = Place::with("auto", |server| server.silence_max = short);
    let middle = Middle::new(&place);
    let (gone, waits) = (middle.client(&place), place.client());
    let held = gone.open(b"new", CREATE, GROUP, false).unwrap();
    let file = waits.open(b"new", CREATE, GROUP, false).unwrap();
    held.lock(LockKind::Exclusive).unwrap();
    middle.set_down(true);
    file.lock(LockKind::Exclusive).unwrap();
    // It is too late.
    middle.set_down(false);
    let error = held.size().unwrap_err();
    assert!(error.text.contains("does not know this client"), "{error}");
    file.unlock();
}

/// It cannot be told from one that is down for a moment, until then.
#[test]
fn a_server_that_does_not_come_back_is_lost() {
    let place = Place::new();
    let middle = Middle::new(&place);
    let options = ClientOptions { timeout: Duration::from_millis(600), ..ClientOptions::default() };
    let client = Client::connect(&middle.at, &place.token, &options).unwrap();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    middle.set_down(true);
    let error = file.size().unwrap_err();
    assert!(error.text.contains("no new connection in"), "{error}");
}

/// The places are for clients that are connected.
#[test]
fn clients_that_are_away_hold_up_no_new_ones() {
    let place = Place::new();
    // It cannot connect again.
    let once = || {
        let server = Server::At(place.at.clone());
        Client::over(place.connection(), server, &ClientOptions::default()).ok()
    };
    let mut away = Vec::new();
    for _ in 0..3 {
        // The server may not have noticed that others are away.
        let opened = |client: Client| {
            let file = client.open(b"new", CREATE, GROUP, false).ok()?;
            Some((client, file))
        };
        let clients = (0..4).map(|_| {
            let mut tries = std::iter::repeat_with(|| once().and_then(opened));
            tries.find_map(|it| it).unwrap()
        });
        let clients: Vec<_> = clients.collect();
        clients.iter().for_each(|(client, _)| client.break_line());
        away.extend(clients);
    }
    assert_eq!(away.len(), 12);
}

/// The server has not noticed that the first connection is broken.
#[test]
fn a_client_comes_back_before_the_server_knows_that_it_was_away() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    for round in 0..5u8 {
        file.write(0, &[&[round; 1000]]).unwrap();
        client.break_line();
        assert_eq!(read(&file, 0, 1000), [round; 1000]);
    }
    file.close(false).unwrap();
    assert_eq!(place.bytes("new"), [4; 1000]);
}

#[test]
fn a_ticket_that_nobody_has_is_refused_with_a_reason() {
    let place = Place::new();
    let resume = ToServer::Resume { version: VERSION, ticket: Ticket([9; 16]), heard: 0 };
    let (mut stranger, mut said) = (stranger(&place), Vec::new());
    stranger.write_all(&packet(&resume)).unwrap();
    stranger.read_to_end(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("does not know this client"), "{said}");
}
