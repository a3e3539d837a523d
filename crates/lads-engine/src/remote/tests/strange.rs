//! Servers that cannot be reached, or do not do what they should.

use super::staged::{named_list, opened};
use super::*;
use crate::remote::client::Connection;
use crate::remote::line::both_ways;
use crate::remote::wire::{hear, say};
use crate::transport::Channel;
use crate::transport::tcp::socket_pair;
use lads_core::remote::message::{Call, Outcome, Request, ToClient, ToServer};
use lads_core::remote::name::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// A server that says that it lives, so often as the counter says, and answers some requests with
/// a number; data never comes.
fn lazy(answers: fn(&Call) -> bool) -> (Connection, Arc<AtomicU32>) {
    let (own, served) = socket_pair().unwrap();
    let (_, Channel { mut input, mut output }) = both_ways(&served).unwrap();
    let (heard, asked) = std::sync::mpsc::channel();
    let beats = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&beats);
    std::thread::spawn(move || {
        while let Ok(Some(message)) = hear::<ToServer>(&mut *input, 1 << 20) {
            if let ToServer::Request(Request { number, call, .. }) = message
                && answers(&call)
            {
                heard.send(number).unwrap();
            }
        }
    });
    std::thread::spawn(move || {
        loop {
            let number = asked.recv_timeout(Duration::from_millis(20));
            let outcome = Outcome::Number(5);
            let reply = number.map(|number| ToClient::Reply { number, outcome });
            if say(&mut *output, [reply.unwrap_or(ToClient::Heartbeat)]).is_err() {
                return;
            }
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (transport, channel) = both_ways(&own).unwrap();
    (Connection { line: Box::new(own), transport, channel }, beats)
}

/// A stall is one of a second.
fn impatient() -> ClientOptions {
    ClientOptions { timeout: Duration::from_millis(100), ..ClientOptions::default() }
}

/// It would wait for ever: there is always a sign of life.
#[test]
fn a_server_that_lives_and_does_nothing_is_lost_after_a_while() {
    for answers in [|_: &Call| true, |call: &Call| !matches!(call, Call::Read { .. })] {
        let client = Client::over(lazy(answers).0, Server::Here, &impatient()).unwrap();
        let file = client.open(b"new", CREATE, GROUP, false).unwrap();
        let error = file.read(0, &mut [&mut [0; 10]]).unwrap_err();
        assert!(error.text.contains("did nothing for 1 s"), "{error}");
    }
}

#[test]
fn a_server_that_owes_nothing_or_only_a_lock_is_waited_for() {
    let (connection, beats) = lazy(|call| !matches!(call, Call::Lock { .. }));
    let client = Client::over(connection, Server::Here, &impatient()).unwrap();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let wait = |seconds: u32| {
        let end = beats.load(Ordering::Relaxed) + 50 * seconds;
        while beats.load(Ordering::Relaxed) < end && !client.is_lost() {
            std::thread::yield_now();
        }
        assert!(!client.is_lost());
    };
    wait(3);
    std::thread::scope(|scope| {
        let locking = scope.spawn(|| file.lock(LockKind::Shared));
        wait(3);
        client.cut();
        locking.join().unwrap().unwrap_err();
    });
}
