use super::super::door::tests::SECOND;
use super::*;
use std::cell::RefCell;
use std::net::Ipv4Addr;

const VISITORS_MAX: usize = 5;

fn key(seed: u8) -> KeyPair {
    KeyPair::from_seed(&[seed; 32])
}

/// A service of the owner of key 1, for that of key 2.
fn service() -> Service {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    Service::open(address, &key(1), key(2).public(), VISITORS_MAX).unwrap()
}

/// Serves until `while_served` returns. Returns what was said of strangers.
fn served<T>(
    service: &mut Service,
    mut guests: impl FnMut(Guest),
    while_served: impl FnOnce(SocketAddr) -> T + Send,
) -> (T, Vec<String>)
where
    T: Send,
{
    let (stop, said, address) = (StopFlag::new(), RefCell::new(Vec::new()), service.address());
    let result = std::thread::scope(|scope| {
        let stopping = stop.clone();
        let done = scope.spawn(move || {
            let result = while_served(address);
            stopping.set("the test is over");
            result
        });
        let told = |line: &str| said.borrow_mut().push(line.to_owned());
        while !stop.is_set() {
            service.accept(&stop, &told).into_iter().for_each(&mut guests);
        }
        done.join().unwrap()
    });
    (result, said.into_inner())
}

fn connected(address: SocketAddr, own: u8, server: u8) -> Result<(OwnedFd, Seals), Refusal> {
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, 30 * SECOND);
    connect_to_service(address, (&key(own), key(server).public()), &patience, 30 * SECOND)
}

/// Waits until the other end has closed a connection. Returns what it said before.
fn end_of(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(30 * SECOND)).unwrap();
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("it stays open"),
        _ => said,
    }
}

#[test]
fn both_ends_must_have_their_keys() {
    let mut guests = 0;
    let ((), said) = served(
        &mut service(),
        |_| guests += 1,
        |address| {
            connected(address, 2, 1).unwrap();
            let other = connected(address, 2, 9).err().unwrap();
            assert!(matches!(other, Refusal::OtherKey(key_) if key_ == key(1).public()), "{other}");
            // Its own handshake is done when its key is looked at.
            let (socket, _) = connected(address, 9, 1).unwrap();
            assert!(end_of(socket.into()).is_empty());
        },
    );
    assert_eq!(guests, 1);
    // The second one is only counted.
    assert!(said.len() == 1 && said[0].ends_with("is rejected: it has another token"), "{said:?}");
}

#[test]
fn strangers_are_refused_at_once_and_told_about_now_and_then() {
    let token_in_clear = [&b"LADSFILE\0\0"[..], &[7; 48]].concat();
    let first = [&token_in_clear[..], b"G", &[22, 2], &[22, 3, 1, 0xff, 0xff]];
    let (answers, said) = served(
        &mut service(),
        |_| panic!("it is a stranger"),
        |address| {
            first.map(|bytes| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(bytes).unwrap();
                end_of(stream)
            })
        },
    );
    assert!(answers.iter().all(Vec::is_empty), "{answers:?}");
    let old = "it shows its token in clear: its LADS is older than this one";
    assert!(said.len() == 1 && said[0].ends_with(old), "{said:?}");
    let (mut refusals, lines) = (Refusals::default(), RefCell::new(Vec::new()));
    let (peer, start) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 9)), Instant::now());
    for seconds in 0..=10 {
        let told = |line: &str| lines.borrow_mut().push(line.to_owned());
        refusals.tell(peer, "why", start + seconds * SECOND, &told);
    }
    let expected =
        ["127.0.0.1:9 is rejected: why", "127.0.0.1:9 is rejected: why; so were 9 others before"];
    assert_eq!(lines.into_inner(), expected);
}

#[test]
fn whoever_wants_something_else_is_refused() {
    let ((), said) = served(
        &mut service(),
        |_| panic!("it is a stranger"),
        |address| {
            let transfer = Handshake::client(&key(2), key(1).public(), Purpose::Transfer).unwrap();
            let refusal = meet(transfer, &mut TcpStream::connect(address).unwrap()).err().unwrap();
            assert!(matches!(refusal, Refusal::Broken(_)), "{refusal}");
        },
    );
    assert_eq!(said.len(), 1, "{said:?}");
}

/// What a client says first.
fn hello() -> Vec<u8> {
    Handshake::client(&key(2), key(1).public(), Purpose::Files).unwrap().output()
}

#[test]
fn unfinished_handshakes_end_in_time_and_take_no_more_than_their_places() {
    let mut service = service();
    let address = service.address();
    let connect = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let hello = hello();
    let strangers: Vec<_> =
        (0..20).map(|index| connect(&hello[..hello.len() * (index % 3) / 2])).collect();
    let until = Instant::now() + 30 * SECOND;
    let begun = |service: &Service| service.lobby.undecided().filter(|it| it.has_begun()).count();
    // Those who have said all that a client says first stay, and others go.
    while begun(&service) < VISITORS_MAX {
        assert!(Instant::now() < until && service.look(Instant::now(), &|_| ()).is_empty());
        assert!(service.lobby.undecided().count() <= VISITORS_MAX);
    }
    let silent: Vec<_> = (0..20).map(|_| connect(&[])).collect();
    // A few are accepted at a time.
    for _ in 0..9 {
        service.look(Instant::now(), &|_| ());
        assert_eq!(service.lobby.undecided().count(), VISITORS_MAX);
    }
    service.look(Instant::now() + 10 * SECOND, &|_| ());
    assert_eq!(service.lobby.undecided().count(), 0);
    strangers.into_iter().chain(silent).for_each(|it| drop(end_of(it)));
}

#[test]
fn a_client_that_comes_byte_by_byte_is_let_in() {
    let mut names = Vec::new();
    let (port, _) = served(
        &mut service(),
        |guest| names.push(guest.name),
        |address| {
            let mut handshake =
                Handshake::client(&key(2), key(1).public(), Purpose::Files).unwrap();
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            loop {
                for byte in handshake.output() {
                    stream.write_all(&[byte]).unwrap();
                }
                let mut byte = [0];
                if handshake.wants() == 0 {
                    break;
                }
                stream.read_exact(&mut byte).unwrap();
                handshake.hear(&byte).unwrap();
            }
            // It is closed when nobody has it as a guest.
            let port = stream.local_addr().unwrap().port();
            assert!(end_of(stream).is_empty());
            port
        },
    );
    assert_eq!(names, [format!("127.0.0.1:{port}")]);
}

/// It was pushed out by strangers, or its server is just being started again.
#[test]
fn a_client_that_is_closed_out_tries_again() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 1..ATTEMPTS_MAX {
                drop(listener.accept().unwrap());
            }
            let listening = Listening::new(&key(1), &[Purpose::Files]).unwrap();
            let mut stream = listener.accept().unwrap().0;
            meet(Handshake::server(&listening).unwrap(), &mut stream).unwrap();
        });
        connected(address, 2, 1).unwrap();
    });
}
