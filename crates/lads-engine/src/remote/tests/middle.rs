//! Somebody between a client and a server, who sees all bytes and may do anything with them.

use super::by_hand::met_with;
use super::*;
use crate::transport::handshake::{Handshake, Purpose};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

/// Changes bytes that go this way, of which as many were sent before on this connection; they are
/// counted from 0.
type Change = dyn Fn(Way, usize, usize, &mut Vec<u8>) + Send + Sync;

/// The one between.
struct Middle {
    at: String,
    /// Where connections lead, from now on.
    to: Arc<Mutex<String>>,
    connections: Arc<AtomicUsize>,
    /// The sockets of all connections.
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Middle {
    fn new(
        place: &Place,
        change: impl Fn(Way, usize, usize, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let middle = Self {
            at: listener.local_addr().unwrap().to_string(),
            to: Arc::new(Mutex::new(place.at.clone())),
            connections: Arc::default(),
            open: Arc::default(),
        };
        let (to, count) = (Arc::clone(&middle.to), Arc::clone(&middle.connections));
        let (open, change) = (Arc::clone(&middle.open), Arc::new(change));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (client, server) = (client.unwrap(), TcpStream::connect(&*to.lock().unwrap()));
                let server = server.unwrap();
                let again = |it: &TcpStream| it.try_clone().unwrap();
                let ways = [
                    (Way::ToServer, again(&client), again(&server)),
                    (Way::ToClient, again(&server), again(&client)),
                ];
                open.lock().unwrap().extend([client, server]);
                for (way, from, to) in ways {
                    let change: Arc<Change> = Arc::clone(&change) as Arc<Change>;
                    std::thread::spawn(move || {
                        carry(from, to, |sent, bytes| change(way, number, sent, bytes));
                    });
                }
            }
        });
        middle
    }

    fn client(&self, place: &Place) -> Result<Client, RemoteError> {
        Client::connect(&self.at, &place.token, &ClientOptions::default())
    }

    fn break_off(&self) {
        for socket in self.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, change: impl Fn(usize, &mut Vec<u8>)) {
    let (mut part, mut sent) = (vec![0; 1 << 14], 0);
    while let Ok(count @ 1..) = from.read(&mut part) {
        let mut bytes = part[..count].to_vec();
        change(sent, &mut bytes);
        sent += count;
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Bytes that are in no other place by chance.
fn distinct_bytes(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

#[test]
fn neither_the_token_nor_a_name_nor_data_goes_over_the_line_in_clear() {
    let place = Place::new();
    let seen = Arc::<Mutex<Vec<u8>>>::default();
    let sees = Arc::clone(&seen);
    let middle = Middle::new(&place, move |_, _, _, bytes| sees.lock().unwrap().extend(&*bytes));
    let bytes = distinct_bytes(2 * MIB);
    let client = middle.client(&place).unwrap();
    let file = client.open(b"a-name-that-nobody-sees", CREATE, GROUP, false).unwrap();
    file.write(0, &[&bytes]).unwrap();
    file.sync().unwrap();
    assert!(read(&file, 0, bytes.len()) == bytes);
    file.close(false).unwrap();
    client.finish().unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 4 * MIB, "all of it went this way");
    let text = std::fs::read_to_string(place.directory.path().join("token")).unwrap();
    let digits = text.trim().as_bytes().chunks(2).map(|it| str::from_utf8(it).unwrap());
    let token: Vec<u8> = digits.map(|it| u8::from_str_radix(it, 16).unwrap()).collect();
    let mut secrets: Vec<&[u8]> = vec![b"a-name-that-nobody-sees", text.trim().as_bytes()];
    // Not even a part of it.
    secrets.extend(token.chunks(8).chain(bytes.chunks(16).step_by(997)));
    for secret in secrets {
        assert!(position_of(&seen, secret).is_none(), "{}", secret.escape_ascii());
    }
}

fn position_of(all: &[u8], part: &[u8]) -> Option<usize> {
    let first = all.iter().enumerate().filter(|(_, byte)| **byte == part[0]);
    first.map(|(at, _)| at).find(|&at| all[at..].starts_with(part))
}

/// Its name, and what it does.
type Alteration = (&'static str, fn(&mut Vec<u8>));

/// What is done once with bytes on their way.
const ALTERATIONS: [Alteration; 6] = [
    ("flip", |bytes| bytes[0] ^= 0x10),
    ("cut", |bytes| drop(bytes.drain(..1))),
    ("cut all", Vec::clear),
    ("insert", |bytes| bytes.insert(0, 0)),
    ("repeat", |bytes| bytes.extend_from_within(..)),
    ("swap", |bytes| bytes.rotate_left(1)),
];

/// Writes and reads over a line that is changed once, after this number of bytes.
fn changed_once(way: Way, after: usize, (what, change): Alteration) {
    let place = Place::new();
    let is_changed = AtomicUsize::new(0);
    let middle = Middle::new(&place, move |its, _, sent, bytes| {
        if its == way && sent + bytes.len() > after && is_changed.swap(1, Ordering::SeqCst) == 0 {
            change(bytes);
        }
    });
    let bytes = distinct_bytes(2 * MIB);
    let used = middle.client(&place).and_then(|client| {
        let file = client.open(b"new", CREATE, GROUP, false)?;
        file.write(0, &[&bytes])?;
        file.sync()?;
        let mut back = vec![0; bytes.len()];
        let count = file.read(0, &mut [&mut back])?;
        assert!(count == bytes.len() as u64 && back == bytes, "{way:?} {after} {what}");
        file.close(false)?;
        client.finish()
    });
    let there = std::fs::read(place.path("new")).unwrap_or_default();
    match used {
        Ok(()) => assert!(there == bytes, "{way:?} {after} {what}"),
        // Only what is written before there is a ticket is lost: nothing.
        Err(error) => assert!(there.is_empty(), "{way:?} {after} {what}: {error}"),
    }
}

#[test]
fn a_line_that_is_changed_gives_an_error_or_another_connection_and_never_wrong_data() {
    for change in ALTERATIONS {
        std::thread::scope(|scope| {
            // Within the handshake, within the first messages, and within data.
            for after in [100, 300, 700, 1100, 100_000, 1_500_000] {
                for way in [Way::ToServer, Way::ToClient] {
                    scope.spawn(move || changed_once(way, after, change));
                }
            }
        });
    }
}

#[test]
fn what_was_said_on_one_connection_is_nothing_on_another() {
    let place = Place::new();
    let said = Arc::<Mutex<Vec<u8>>>::default();
    let hears = Arc::clone(&said);
    let middle = Middle::new(&place, move |way, _, _, bytes| {
        if way == Way::ToServer {
            hears.lock().unwrap().extend(&*bytes);
        }
    });
    let client = middle.client(&place).unwrap();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[b"x"]).unwrap();
    file.close(false).unwrap();
    drop(client);
    std::fs::remove_file(place.path("new")).unwrap();
    let mut again = TcpStream::connect(&place.at).unwrap();
    // The server may have closed the connection.
    let _ = again.write_all(&said.lock().unwrap());
    let _ = again.read_to_end(&mut Vec::new());
    // Whatever was asked for before is done.
    place.client().open(b"other", CREATE, GROUP, false).unwrap().close(false).unwrap();
    assert!(!place.path("new").exists());
}

#[test]
fn each_connection_has_a_handshake_of_its_own() {
    let place = Place::new();
    let firsts = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let sees = Arc::clone(&firsts);
    let middle = Middle::new(&place, move |way, _, sent, bytes| {
        if way == Way::ToServer && sent == 0 {
            sees.lock().unwrap().push(bytes.clone());
        }
    });
    let client = middle.client(&place).unwrap();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    for round in 0..3 {
        file.write(0, &[&[round; 1000]]).unwrap();
        middle.break_off();
        assert_eq!(read(&file, 0, 1000), [round; 1000]);
    }
    file.close(false).unwrap();
    let firsts = firsts.lock().unwrap();
    assert!(firsts.len() > 1 && firsts.len() as u64 == client.reconnections() + 1);
    assert!(firsts.iter().all(|first| first.starts_with(&[22, 3])), "a record of TLS");
    assert!(firsts.windows(2).all(|two| two[0] != two[1]));
}

/// The client tried for two minutes.
#[test]
fn a_server_that_has_another_token_when_it_comes_back_is_an_error_at_once() {
    let (place, other) = (Place::new(), Place::new());
    let middle = Middle::new(&place, |_, _, _, _| ());
    let client = middle.client(&place).unwrap();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[b"x"]).unwrap();
    file.sync().unwrap();
    (*middle.to.lock().unwrap()).clone_from(&other.at);
    middle.break_off();
    let error = file.read(0, &mut [&mut [0; 10]]).unwrap_err();
    assert_eq!(error.errno, EACCES);
    let expected = format!(
        "the server of remote files {} has another token: copy the token file of the server to \
         here",
        middle.at
    );
    assert!(error.text.starts_with(&expected), "{error}");
    assert!(client.is_lost());
}

#[test]
fn strangers_by_the_thousand_keep_nobody_out() {
    crate::raise_open_files_limit();
    let place = Place::new();
    // It is real for the server as far as it goes.
    let keys = (place.token.of_clients(), place.token.of_server().public());
    let hello = Handshake::client(&keys.0, keys.1, Purpose::Files).unwrap().output();
    let strangers: Vec<_> = (0..1000)
        .map(|index| {
            let mut stranger = TcpStream::connect(&place.at).unwrap();
            let said = [&b""[..], &hello[..hello.len() / 2], &hello, b"LADSFILE"][index % 4];
            // It may be closed already.
            let _ = stranger.write_all(said);
            stranger
        })
        .collect();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[b"x"]).unwrap();
    file.close(false).unwrap();
    assert_eq!(place.bytes("new"), b"x");
    drop(strangers);
}

#[test]
fn whoever_has_another_token_is_refused_by_both_ends() {
    let place = Place::new();
    let path = place.directory.path().join("other");
    make_token(&path).unwrap();
    let other = read_token(&path).unwrap();
    // A client that does not look at the key of the server has no key for the server.
    let mixed = |client: &Token, server: &Token| {
        let keys = (client.of_clients(), server.of_server().public());
        let mut stream = TcpStream::connect(&place.at).unwrap();
        let handshake = Handshake::client(&keys.0, keys.1, Purpose::Files).unwrap();
        crate::transport::handshake::meet(handshake, &mut stream).map(|_| stream)
    };
    let mut stranger = mixed(&other, &place.token).unwrap();
    assert_eq!(stranger.read(&mut [0]).unwrap_or(0), 0, "the server has closed the connection");
    mixed(&place.token, &other).unwrap_err();
    met_with(&place.at, &other).err().unwrap();
    met_with(&place.at, &place.token).unwrap();
}
