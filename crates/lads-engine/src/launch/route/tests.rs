use super::super::other::shell_command;
use super::*;
use crate::job::RemoteShell;
use crate::stop::StopFlag;
use crate::transport::Transport as _;
use crate::transport::seal::token;
use crate::transport::tcp::OPENING_BYTES;
use lads_core::units::StreamId;
use lads_tried::Stopwatch;
use std::io::{IoSlice, Read, Write};
use std::net::TcpListener;

fn shell(command: &[&str]) -> RemoteShell {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    RemoteShell { command, ..RemoteShell::default() }
}

/// Returns a route to a port of this host.
fn route(port: u16) -> Route {
    let (data_address, host, ssh, told) = (None, None, None, String::new());
    let protection = Protection::Plain;
    Route { data_address, host, ssh, told, port, protection, contact_limit: None }
}

/// Where data goes to a host, if the other end says that it was reached at `told`.
fn addresses(remote: RemoteShell, host: &str, told: &str) -> Result<Vec<String>, String> {
    let stop = StopFlag::new();
    let patience = &Patience::new(&stop, Duration::from_secs(30));
    let ssh = Ssh::ask(shell_command(&remote), host, patience).map_err(|fatal| fatal.text)?;
    let (data_address, host) = (remote.data_address, Some(host.to_owned()));
    let route = Route { data_address, host, ssh, told: told.to_owned(), ..route(7) };
    let addresses = route.addresses(patience).map_err(|fatal| fatal.text)?;
    Ok(addresses.iter().map(SocketAddr::to_string).collect())
}

#[test]
fn data_goes_where_the_name_leads_whatever_the_other_end_says() {
    let other = || shell(&["rsh"]);
    let here = Ok(vec!["127.0.0.1:7".to_owned()]);
    assert_eq!(addresses(other(), "127.0.0.1", "192.0.2.1"), here);
    assert_eq!(addresses(other(), "me@127.0.0.1", ""), here);
    let error = addresses(other(), "nowhere.invalid", "192.0.2.1").unwrap_err();
    assert!(error.contains("data would go to 192.0.2.1"), "{error}");
    // What is no address is not repeated.
    let error = addresses(other(), "nowhere.invalid", "\x1b[31mRED").unwrap_err();
    assert!(!error.contains("RED"), "{error}");
}

#[test]
fn what_a_person_says_goes_first() {
    let remote =
        |address: &str| RemoteShell { data_address: Some(address.to_owned()), ..shell(&["rsh"]) };
    let found = |address: &str| addresses(remote(address), "nowhere.invalid", "192.0.2.1").unwrap();
    assert_eq!(found("192.0.2.9"), ["192.0.2.9:7"]);
    assert_eq!(found("192.0.2.9:8"), ["192.0.2.9:8"]);
    assert_eq!(found("::1"), ["[::1]:7"]);
    assert_eq!(found("[::1]"), ["[::1]:7"]);
    assert_eq!(found("[::1]:8"), ["[::1]:8"]);
}

#[test]
fn ssh_is_asked_for_the_name_behind_an_alias() {
    let directory = tempfile::tempdir().unwrap();
    let ssh = directory.path().join("ssh");
    let script = "[ \"$1 $2 $3\" = '-p 22 -G' ] || exit 1\n\
                  echo port 22; echo \"hostname 127.0.0.2\"; echo hostnamex wrong";
    lads_tried::write_script(&ssh, script).unwrap();
    let remote = shell(&[ssh.to_str().unwrap(), "-p", "22"]);
    assert_eq!(addresses(remote, "alias.invalid", ""), Ok(vec!["127.0.0.2:7".to_owned()]));
}

#[test]
fn whoever_was_sent_away_unopened_tries_again() {
    for is_sure in [true, false] {
        is_opened_at_the_fourth_attempt(is_sure);
    }
}

fn is_opened_at_the_fourth_attempt(is_sure: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let door = std::thread::spawn(move || {
        for _ in 0..3 {
            drop(listener.accept().unwrap());
        }
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; OPENING_BYTES]).unwrap();
        stream.write_all(&[1]).unwrap();
    });
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, Duration::from_secs(30));
    let streams = Tcp::opening(1, Duration::from_secs(30));
    let contact = Contact::within(None);
    let opening = Opening {
        index: 0,
        key: (&Secret([7; 32]), Protection::Plain),
        streams: &streams,
        contact: &contact,
    };
    opening.connect_patiently(address, is_sure, &patience).unwrap();
    assert!(!streams.wants(0));
    door.join().unwrap();
}

#[test]
fn data_waits_for_the_answer_where_the_other_end_may_not_be() {
    let (stranger, other) = (TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
    let (stranger, other) = (stranger.unwrap(), other.unwrap());
    let addresses = [stranger.local_addr().unwrap(), other.local_addr().unwrap()];
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, Duration::from_secs(30));
    let streams = Tcp::opening(1, Duration::from_secs(30));
    let contact = Contact::within(None);
    let opening = Opening {
        index: 0,
        key: (&Secret([7; 32]), Protection::Plain),
        streams: &streams,
        contact: &contact,
    };
    let route = route(7);
    std::thread::scope(|scope| {
        scope.spawn(|| route.connect_one(&addresses, &opening, &patience).unwrap());
        let sent = scope.spawn(|| streams.send(StreamId(0), &mut [IoSlice::new(b"data")]).unwrap());
        let (mut stream, _) = stranger.accept().unwrap();
        stream.read_exact(&mut [0; OPENING_BYTES]).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        stream.read(&mut [0]).unwrap_err();
        stream.write_all(&[0]).unwrap();
        let (mut stream, _) = other.accept().unwrap();
        let mut read = [0; OPENING_BYTES + 4];
        stream.read_exact(&mut read[..OPENING_BYTES]).unwrap();
        stream.write_all(&[1]).unwrap();
        stream.read_exact(&mut read[OPENING_BYTES..]).unwrap();
        assert_eq!(read[OPENING_BYTES..], *b"data");
        sent.join().unwrap();
    });
}

#[test]
fn a_stream_that_nobody_wants_any_more_is_not_opened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, Duration::from_secs(30));
    let streams = Tcp::opening(1, Duration::from_secs(30));
    let route = route(address.port());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            route.connect_all(&[address, address], &[Secret([7; 32])], &patience, &streams)
        });
        // Its token is not answered.
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; OPENING_BYTES]).unwrap();
        streams.end(StreamId(0));
        let since = Stopwatch::start();
        connecting.join().unwrap().unwrap();
        assert!(since.elapsed() < CONNECT_DEADLINE / 2, "{:?}", since.elapsed());
    });
}

#[test]
fn data_is_early_only_where_the_other_end_surely_is() {
    let told = |told: &str| {
        let route = Route { told: told.to_owned(), ..route(7) };
        ["192.0.2.1:7", "[::ffff:192.0.2.1]:7", "192.0.2.2:7", "[::1]:7"]
            .map(|address| route.is_told(&address.parse().unwrap()))
    };
    assert_eq!(told("192.0.2.1"), [true, true, false, false]);
    assert_eq!(told("::ffff:192.0.2.1"), [true, true, false, false]);
    assert_eq!(told(""), [false; 4]);
}

#[test]
fn streams_that_may_come_or_not_are_opened_as_far_as_they_can_be() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let door = std::thread::spawn(move || {
        let mut kept = Vec::new();
        while kept.len() < 2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut shown = [0; OPENING_BYTES];
            stream.read_exact(&mut shown).unwrap();
            // The token of stream 2 is refused.
            if shown[10..42] == token(&[2; 32]) {
                stream.write_all(&[0]).unwrap();
                continue;
            }
            stream.write_all(&[1]).unwrap();
            kept.push(stream);
        }
        kept
    });
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, Duration::from_secs(30));
    let streams = Tcp::opening(1, Duration::from_secs(30)).and_more(3);
    let route = route(7);
    let opened = std::sync::Mutex::new(Vec::new());
    route.connect_more(
        &[address],
        &[1, 2, 3].map(|it| Secret([it; 32])),
        &patience,
        &streams,
        |id| {
            opened.lock().unwrap().push(id);
        },
    );
    let mut opened = opened.into_inner().unwrap();
    opened.sort();
    assert_eq!(opened, [StreamId(1), StreamId(3)]);
    assert_eq!([1, 2, 3].map(|id| streams.is_there(StreamId(id))), [true, false, true]);
    drop(door.join().unwrap());
}

/// Opens a port that never replies. Also returns the sockets that keep its queue full.
fn silent() -> (SocketAddr, impl Sized) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let short = Duration::from_millis(200);
    let connect = || std::net::TcpStream::connect_timeout(&address, short).ok();
    let waiting: Vec<_> = std::iter::from_fn(connect).take(100).collect();
    (address, (socket, waiting))
}

#[test]
fn only_the_first_connection_has_the_limit_for_a_contact() {
    let (address, _kept) = silent();
    let stop = StopFlag::new();
    let streams = Tcp::opening(1, Duration::MAX);
    let limit = Duration::from_millis(300);
    let cut_of = |contact: &Contact| {
        let patience = Patience::new(&stop, limit * 4);
        let opening = Opening {
            index: 0,
            key: (&Secret([7; 32]), Protection::Plain),
            streams: &streams,
            contact,
        };
        match Cut::of(&opening.reach(address, &patience).unwrap_err()) {
            // A busy machine may look at the time only when it is over.
            Some(Cut::Silent(limit) | Cut::Late(limit)) => limit,
            other => panic!("{other:?}"),
        }
    };
    let contact = Contact::within(Some(limit));
    assert_eq!(cut_of(&contact), limit);
    contact.is_made.store(true, Ordering::Relaxed);
    assert_eq!(cut_of(&contact), limit * 4);
    assert_eq!(cut_of(&Contact::within(None)), limit * 4);
}

#[test]
fn a_port_counts_as_blocked_only_if_no_connection_was_made() {
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, Duration::from_secs(20));
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let contact_limit = Some(Duration::from_millis(300));
    let blocked = |addresses: &[SocketAddr]| {
        let streams = Tcp::opening(1, Duration::MAX);
        let route =
            Route { host: Some("there".to_owned()), contact_limit, ..route(addresses[0].port()) };
        let result = route.connect_all(addresses, &[Secret([7; 32])], &patience, &streams);
        result.unwrap_err().blocked
    };
    let (silent, _kept) = silent();
    let text = blocked(&[silent, refusing]).unwrap();
    assert!(text.contains(&silent.to_string()) && text.contains("refused"), "{text}");
    // A port that closes connections is not blocked.
    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closing.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                drop(closing.accept());
            }
            drop(closing);
        });
        assert_eq!(blocked(&[address]), None);
    });
}
