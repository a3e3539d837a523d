//! Servers that cannot be reached, or do not do what they should.

use super::by_hand::{in_clear, met};
use super::staged::{named_list, opened};
use super::*;
use crate::remote::line::Connection;
use crate::remote::line::both_ways;
use crate::remote::wire::{hear, say};
use crate::transport::Channel;
use crate::transport::tcp::socket_pair;
use lads_core::issue::Operation;
use lads_core::remote::message::{
    Call, Failure, Outcome, Request, ToClient, ToServer, VERSION, Written,
};
use lads_core::remote::name::Server;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

/// Where nobody listens any more.
fn nowhere() -> String {
    Place::new().at.clone()
}

fn deferred(options: ClientOptions) -> ClientOptions {
    ClientOptions { defers_connecting: true, ..options }
}

#[test]
fn a_server_that_cannot_be_reached_is_told_later_if_connecting_is_deferred() {
    let place = Place::new();
    let error = Client::connect(&nowhere(), &place.token, &ClientOptions::default()).unwrap_err();
    assert!(error.text.contains("cannot reach"), "{error}");
    let client = Client::connect(&nowhere(), &place.token, &deferred(ClientOptions::default()));
    let client = client.unwrap();
    let file = client.open(b"new", CREATE, GROUP, true).unwrap();
    // The connection may have failed by now, or not.
    let _ = file.write(0, &[b"x"]);
    let error = file.sync().unwrap_err();
    assert!(error.text.contains("cannot reach"), "{error}");
    assert!(client.is_lost());
    client.finish().unwrap_err();
}

#[test]
fn what_is_written_before_the_server_is_reached_arrives() {
    let place = Place::new();
    let options = deferred(ClientOptions::default());
    let client = Client::connect(&place.at, &place.token, &options).unwrap();
    let file = client.open(b"new", CREATE, GROUP, true).unwrap();
    file.set_view(3, &every(2, 5)).unwrap();
    let bytes = some_bytes(3 * MIB);
    file.write(0, &[&bytes]).unwrap();
    file.close(true).unwrap();
    client.finish().unwrap();
    let there = place.bytes("new");
    let seen: Vec<u8> = there[3..].chunks(5).flat_map(|it| &it[..2]).copied().collect();
    assert!(seen == bytes);
}

#[test]
fn what_a_server_that_is_never_reached_should_have_is_kept() {
    let place = Place::new();
    let options = deferred(staged::options(&place.stage(), 64 * MIB));
    // The address is resolved and refused only when all is written.
    let (sender, is_written) = std::sync::mpsc::sync_channel(0);
    let connect = move || {
        is_written.recv().unwrap();
        Err(RemoteError { errno: EIO, text: "nobody is there".to_owned() })
    };
    let client = Client::begin(Server::At(nowhere()), &options, connect).unwrap();
    let file = client.open(b"new", CREATE, GROUP, true).unwrap();
    let bytes = some_bytes(20 * MIB);
    file.write(0, &[&bytes]).unwrap();
    sender.send(()).unwrap();
    let error = file.sync().unwrap_err();
    assert!(error.text.starts_with("nobody is there; 20.0 MiB of 20.0 MiB"), "{error}");
    drop((file, client));
    opened(&named_list(&error)).send(&place.client(), |_| {}).unwrap();
    assert!(place.bytes("new") == bytes);
}

#[test]
fn a_thread_that_panics_while_it_connects_holds_up_nobody() {
    let connect = || panic!("as a test");
    let begun = Client::begin(Server::Here, &ClientOptions::default(), connect);
    assert!(begun.unwrap_err().text.contains("panicked"));
}

/// Nothing comes later that would be said together with it.
#[test]
fn what_is_asked_for_before_the_server_is_reached_is_asked_for_then() {
    let place = Place::new();
    let (sender, may_connect) = std::sync::mpsc::sync_channel(0);
    let socket: std::os::fd::OwnedFd = stranger(&place).into();
    let connect = move || {
        may_connect.recv().unwrap();
        let (transport, channel) = both_ways(&socket).unwrap();
        Ok(Connection { line: Box::new(socket.try_clone().unwrap()), transport, channel })
    };
    let options = deferred(ClientOptions::default());
    let client = Client::begin(Server::At(place.at.clone()), &options, connect).unwrap();
    let _file = client.open(b"new", CREATE, GROUP, true).unwrap();
    sender.send(()).unwrap();
    client.finish().unwrap();
    assert_eq!(place.bytes("new"), b"");
}

/// Otherwise another process that knows of the close could remove the file before it is created.
#[test]
fn a_deferred_close_returns_after_the_answer_to_the_deferred_open() {
    let place = Place::new();
    let (sender, may_connect) = std::sync::mpsc::sync_channel(0);
    let (is_closed, is_connected) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let socket: std::os::fd::OwnedFd = stranger(&place).into();
    let (closed, connected) = (Arc::clone(&is_closed), Arc::clone(&is_connected));
    let connect = move || {
        may_connect.recv().unwrap();
        // A close that does not wait has time to return.
        std::thread::park_timeout(Duration::from_millis(50));
        assert!(!closed.load(Ordering::SeqCst), "closed before the server was reached");
        connected.store(true, Ordering::SeqCst);
        let (transport, channel) = both_ways(&socket).unwrap();
        Ok(Connection { line: Box::new(socket.try_clone().unwrap()), transport, channel })
    };
    let options = deferred(ClientOptions::default());
    let client = Client::begin(Server::At(place.at.clone()), &options, connect).unwrap();
    let file = client.open(b"new", CREATE, GROUP, true).unwrap();
    sender.send(()).unwrap();
    file.close(true).unwrap();
    is_closed.store(true, Ordering::SeqCst);
    assert!(is_connected.load(Ordering::SeqCst));
    place.client().delete(b"new").unwrap();
    client.finish().unwrap();
    assert!(!place.path("new").exists());
}

#[test]
fn a_client_says_its_version_and_a_server_that_then_says_nothing_is_lost() {
    let (own, served) = socket_pair().unwrap();
    let (_, Channel { mut input, output: _open }) = both_ways(&served).unwrap();
    let (transport, channel) = both_ways(&own).unwrap();
    let connection = Connection { line: Box::new(own), transport, channel };
    let client = Client::over(connection, Server::Here, &impatient()).unwrap();
    let hello: ToServer = hear(&mut *input, 100).unwrap();
    assert_eq!(hello, ToServer::Hello { version: VERSION, name: String::new() });
    let error = client.open(b"new", CREATE, GROUP, false).unwrap_err();
    assert!(error.text.contains("it sent nothing for "), "{error}");
}

/// What a server does beside saying that it lives.
#[derive(Clone, Copy)]
struct Lazy {
    /// The requests that it answers; but there is no file `none`. Data never arrives.
    answers: fn(&Call) -> bool,
    /// How many frames it lets come. It takes none out of the way.
    room: u32,
    /// It says that a frame is written from time to time, for those before a request.
    writes: bool,
}

const IDLE: Lazy = Lazy { answers: |_| true, room: 0, writes: false };

/// A server that does less than it should, and says that it lives so often as the counter says.
fn lazy(lazy: Lazy) -> (Connection, Arc<AtomicU32>) {
    let Lazy { answers, room, writes } = lazy;
    let (own, served) = socket_pair().unwrap();
    let (_, Channel { mut input, mut output }) = both_ways(&served).unwrap();
    let (heard, asked) = std::sync::mpsc::channel();
    let beats = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&beats);
    std::thread::spawn(move || {
        while let Ok(message) = hear::<ToServer>(&mut *input, 1 << 20) {
            if let ToServer::Request(Request { number, call, frames_before }) = message
                && answers(&call)
            {
                let none = Failure { operation: Operation::Open, errno: ENOENT };
                let outcome = match call {
                    Call::Open { path, .. } if path == b"none" => Outcome::Failed(none),
                    Call::Read { .. } | Call::Size { .. } => Outcome::Number(5),
                    _ => Outcome::Done,
                };
                heard.send((number, frames_before, outcome)).unwrap();
            }
        }
    });
    std::thread::spawn(move || {
        let hello = ToClient::Hello { version: VERSION, name: String::new() };
        let mut said = say(&mut *output, [hello, ToClient::Grant(room)]);
        let (mut requests, mut frame) = (VecDeque::new(), 0);
        while said.is_ok() {
            requests.extend(asked.recv_timeout(Duration::from_millis(20)));
            let beats = counter.fetch_add(1, Ordering::Relaxed);
            let message = match requests.front() {
                Some(&(number, frames, outcome)) if !writes || frame == frames => {
                    requests.pop_front();
                    ToClient::Reply { number, outcome }
                }
                Some(_) if beats.is_multiple_of(20) => {
                    frame += 1;
                    ToClient::Written(vec![Written { frame: frame - 1, failure: None }])
                }
                _ => ToClient::Heartbeat,
            };
            said = say(&mut *output, [message]);
        }
    });
    let (transport, channel) = both_ways(&own).unwrap();
    (Connection { line: Box::new(own), transport, channel }, beats)
}

/// A server may send only heartbeats for three seconds. That is far more than the time between two
/// of its heartbeats, also on a busy machine.
fn impatient() -> ClientOptions {
    let timeout = Duration::from_secs(3);
    ClientOptions { timeout, stall_timeouts: 1, ..ClientOptions::default() }
}

/// It would wait for ever: there is always a sign of life.
#[test]
fn a_server_that_lives_and_does_nothing_is_lost_after_a_while() {
    for answers in [|_: &Call| true, |call: &Call| !matches!(call, Call::Read { .. })] {
        let lazy = lazy(Lazy { answers, ..IDLE }).0;
        let client = Client::over(lazy, Server::Here, &impatient()).unwrap();
        let file = client.open(b"new", CREATE, GROUP, false).unwrap();
        let error = file.read(0, &mut [&mut [0; 10]]).unwrap_err();
        assert!(error.text.contains("made no progress for 3 s"), "{error}");
    }
}

/// The program waits for nothing but a buffer, or for the end.
#[test]
fn a_server_that_writes_nothing_or_answers_nothing_that_was_deferred_is_lost_too() {
    let options = ClientOptions { buffers_bytes: 2 << 20, ..impatient() };
    for room in [0, 1, 9] {
        let lazy = lazy(Lazy { room, ..IDLE }).0;
        let client = Client::over(lazy, Server::Here, &options).unwrap();
        let file = client.open(b"new", CREATE, GROUP, false).unwrap();
        let error = file.write(0, &[&some_bytes(5 * MIB)]).unwrap_err();
        assert!(error.text.contains("made no progress for 3 s"), "{error}");
    }
    let lazy = lazy(Lazy { answers: |_| false, ..IDLE }).0;
    let client = Client::over(lazy, Server::Here, &options).unwrap();
    let _file = client.open(b"new", CREATE, GROUP, true).unwrap();
    let error = client.finish().unwrap_err();
    assert!(error.text.contains("made no progress for 3 s"), "{error}");
}

#[test]
fn a_server_that_does_little_at_a_time_is_waited_for() {
    let (connection, _) = lazy(Lazy { room: 12, writes: true, ..IDLE });
    let client = Client::over(connection, Server::Here, &impatient()).unwrap();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    // Twelve frames, which take more than four seconds.
    (0..12).for_each(|it| file.write(it * 10, &[b"x"]).unwrap());
    file.sync().unwrap();
    let answers = |call: &Call| !matches!(call, Call::Sync { .. });
    let connection = lazy(Lazy { answers, ..IDLE }).0;
    let client = Client::over(connection, Server::Here, &impatient()).unwrap();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    std::thread::scope(|scope| {
        let (syncing, begun) = (scope.spawn(|| file.sync()), Instant::now());
        while begun.elapsed() < Duration::from_secs(5) {
            file.size().unwrap();
        }
        let error = syncing.join().unwrap().unwrap_err();
        assert!(error.text.contains("made no progress for 3 s"), "{error}");
    });
}

#[test]
fn a_server_that_owes_nothing_or_only_a_lock_is_waited_for() {
    let answers = |call: &Call| !matches!(call, Call::Lock { .. });
    let (connection, beats) = lazy(Lazy { answers, ..IDLE });
    let client = Client::over(connection, Server::Here, &impatient()).unwrap();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let wait = |seconds: u32| {
        let end = beats.load(Ordering::Relaxed) + 50 * seconds;
        while beats.load(Ordering::Relaxed) < end && !client.is_lost() {
            std::thread::yield_now();
        }
        assert!(!client.is_lost());
    };
    assert_eq!(client.open(b"none", READ_WRITE, GROUP, false).unwrap_err().errno, ENOENT);
    wait(5);
    std::thread::scope(|scope| {
        let locking = scope.spawn(|| file.lock(LockKind::Shared));
        wait(5);
        client.cut();
        locking.join().unwrap().unwrap_err();
    });
}

/// Bytes of a file that occur nowhere else in a connection.
const FILLER: [u8; 64] = [0xa7; 64];

/// Copies bytes until one end is closed, and flips a bit in the middle of the first [`FILLER`].
fn flip(mut from: impl std::io::Read, mut to: impl std::io::Write) {
    let (mut bytes, mut sent, mut is_flipped) = (Vec::new(), 0, false);
    let mut part = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut part)
        && count > 0
    {
        bytes.extend_from_slice(&part[..count]);
        if let Some(at) = bytes.windows(64).position(|it| it == FILLER).filter(|_| !is_flipped) {
            bytes[at + 32] ^= 1;
            is_flipped = true;
        }
        // The beginning of it may have arrived.
        let end = if is_flipped { bytes.len() } else { bytes.len().saturating_sub(63).max(sent) };
        let end = if bytes.ends_with(&[0xa7]) { end } else { bytes.len() };
        if to.write_all(&bytes[sent..end]).is_err() {
            return;
        }
        sent = end;
    }
}

/// A client whose connection damages a byte of a file in one direction.
fn damaged(place: &Place, to_server: bool) -> Client {
    use std::fs::File;
    let server = stranger(place);
    let (own, through) = socket_pair().unwrap();
    let through = File::from(through);
    let again = |file: &File| file.try_clone().unwrap();
    let ends = [(again(&through), again(&server)), (server, through)];
    for (index, (mut from, mut to)) in ends.into_iter().enumerate() {
        std::thread::spawn(move || {
            match (index == 0) == to_server {
                true => flip(from, &to),
                false => drop(std::io::copy(&mut from, &mut to)),
            }
            crate::transport::tcp::end_socket(&to.into());
        });
    }
    let (transport, channel) = both_ways(&own).unwrap();
    let connection = Connection { line: Box::new(own), transport, channel };
    Client::over(connection, Server::Here, &ClientOptions::default()).unwrap()
}

#[test]
fn a_frame_that_is_damaged_on_the_way_to_the_server_is_not_written() {
    let place = Place::new();
    let client = damaged(&place, true);
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[&[0xa7; 1000]]).unwrap();
    let error = file.sync().unwrap_err();
    assert!(error.text.contains("a frame that is damaged"), "{error}");
    assert!(client.is_lost());
    assert_eq!(place.bytes("new"), b"");
}

#[test]
fn a_frame_that_is_damaged_on_the_way_to_the_client_is_not_read() {
    let place = Place::new();
    std::fs::write(place.path("there"), [0xa7; 1000]).unwrap();
    let client = damaged(&place, false);
    let file = client.open(b"there", READ_WRITE, GROUP, false).unwrap();
    let mut there = [0; 1000];
    let error = file.read(0, &mut [&mut there]).unwrap_err();
    assert!(error.text.contains("damaged in transit"), "{error}");
    assert_eq!(there, [0; 1000]);
}

/// The server's reason arrives before the end of the connection. A write that fails earlier does
/// not hide it.
#[test]
fn the_reason_of_a_server_that_closes_the_connection_is_reported() {
    let (own, server) = socket_pair().unwrap();
    let hello = ToClient::Hello { version: VERSION, name: "host".to_owned() };
    let reason = ToClient::Fatal("it has too many clients".to_owned());
    let bytes = [packet(&hello), packet(&reason)].concat();
    rustix::io::write(&server, &bytes).unwrap();
    drop(server);
    let (transport, channel) = both_ways(&own).unwrap();
    let connection = Connection { line: Box::new(own), transport, channel };
    let error = Client::over(connection, Server::Here, &ClientOptions::default()).unwrap_err();
    assert!(error.text.contains("it has too many clients"), "{error}");
}

/// A client that asks and does not read the answers: their number grew without limit.
#[test]
fn a_client_that_takes_no_replies_is_not_read_further_and_others_go_on() {
    use lads_core::remote::message::FileNumber;
    use std::io::{Read, Write};
    // Far more than sockets hold.
    const REQUESTS: u64 = 2_000_000;
    let place = Place::new();
    let (socket, seals) = met(&place);
    // On a busy machine, what follows takes longer than a client waits for a server that reads
    // nothing.
    rustix::net::sockopt::set_tcp_user_timeout(&socket, 0).unwrap();
    // The kernel lets a receive buffer grow to tens of megabytes unless its size is set.
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 64 << 10).unwrap();
    let socket = std::os::unix::net::UnixStream::from(in_clear(socket, seals));
    let hello = ToServer::Hello { version: VERSION, name: String::new() };
    let open =
        Call::Open { file: FileNumber(1), path: b"new".to_vec(), mode: CREATE, group: GROUP };
    let first = ToServer::Request(Request { number: 0, frames_before: 0, call: open });
    let mut to = &socket;
    to.write_all(&[packet(&hello), packet(&first)].concat()).unwrap();
    // A server that reads on takes all of it. One that does not is not waited for.
    socket.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
    let mut numbers = 1..REQUESTS;
    let (mut unsent, mut asked) = (Vec::new(), 0);
    while unsent.is_empty() && !numbers.is_empty() {
        for number in numbers.by_ref().take(1000) {
            let call = Call::Size { file: FileNumber(1) };
            let request = Request { number, frames_before: 0, call };
            unsent.extend(packet(&ToServer::Request(request)));
        }
        while let Ok(count) = to.write(&unsent)
            && count > 0
        {
            unsent.drain(..count);
            if unsent.is_empty() {
                asked = numbers.start - 1;
                break;
            }
        }
    }
    assert!(!unsent.is_empty(), "all requests were read, and no reply was taken");
    let client = place.client();
    client.open(b"other", CREATE, GROUP, false).unwrap().close(false).unwrap();
    // When replies are taken, further requests are done.
    let last = ToClient::Reply { number: asked, outcome: Outcome::Number(0) };
    let mut bytes = Vec::new();
    lads_core::remote::message::encode(&last, &mut bytes);
    let (mut tail, mut part) = (Vec::new(), vec![0; 1 << 16]);
    while !tail.windows(bytes.len()).any(|it| it == bytes) {
        let count = (&socket).read(&mut part).unwrap();
        assert!(count > 0, "the server has closed the connection");
        let kept = tail.len().min(bytes.len() + 8);
        tail.drain(..tail.len() - kept);
        tail.extend_from_slice(&part[..count]);
    }
}
