//! Before the transfer begins: who speaks, and where data is to go (rsync CVE-2026-53791 and
//! -70464; bbcp's tokens; croc's relay).

use crate::case::Case;
use crate::peer::{
    OPENING_BYTES, Opening, Peer, Told, accept_within, hello, listens, opening, wrong,
};
use crate::raw::{Raw, kind};
use lads_core::message::wire::Wire as _;
use lads_core::message::{Hello, Message, SchemaDigest};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::sink("login_script_prints", |peer| {
        peer.say_raw(b"Welcome to \x1b[31mdtn2\x1b[0m!\r\n\x07")
    })
    .at(Opening::Nothing)
    .exits(&[2]),
    Case::sink("login_script_prints_for_ever", |peer| {
        loop {
            peer.say_raw(&[b'y', b'\n'].repeat(1 << 15))?;
        }
    })
    .at(Opening::Nothing)
    .exits(&[2]),
    Case::sink("hello_of_another_magic", |peer| {
        say_hello(peer, Hello { magic: *b"\x00RSYNC\r\n", ..hello() })
    })
    .at(Opening::Nothing)
    .exits(&[2]),
    Case::sink("hello_of_later_versions", |peer| {
        say_hello(peer, Hello { version_min: 900, version: 999, ..hello() })
    })
    .at(Opening::Nothing)
    .exits(&[2]),
    Case::sink("hello_of_versions_the_wrong_way_round", |peer| {
        say_hello(peer, Hello { version_min: 2, version: 0, ..hello() })
    })
    .at(Opening::Nothing)
    .exits(&[2, 5]),
    Case::sink("hello_of_escapes", |peer| {
        let text = "\x1b]0;mine\x07\x1b[2J\u{9b}31m".to_owned();
        let hello = Hello { version_min: 900, version: 999, software: text.clone(), ..hello() };
        say_hello(peer, Hello { host: text, ..hello })
    })
    .at(Opening::Nothing)
    .exits(&[2, 5]),
    Case::sink("hello_of_a_host_of_escapes", |peer| {
        say_hello(peer, Hello { host: "\x1b]0;mine\x07\x1b[2J\u{9b}31m".to_owned(), ..hello() })?;
        peer.stay_silent()
    })
    .at(Opening::Nothing)
    .exits(&[2, 5]),
    Case::sink("hello_of_a_mebibyte", |peer| {
        say_hello(peer, Hello { host: "h".repeat(15 << 20), ..hello() })?;
        peer.stay_silent()
    })
    .at(Opening::Nothing)
    .exits(&[2, 5]),
    Case::sink("hello_of_all_features", |peer| {
        say_hello(peer, Hello { features: u64::MAX, ..hello() })?;
        peer.stay_silent()
    })
    .at(Opening::Nothing)
    .exits(&[5]),
    Case::sink("hello_of_another_wire", |peer| {
        say_hello(peer, Hello { schema: SchemaDigest(Some([7; 8])), ..hello() })
    })
    .at(Opening::Nothing)
    .exits(&[2])
    .served_too(),
    Case::sink("hello_of_no_wire", |peer| {
        say_hello(peer, Hello { schema: SchemaDigest(None), ..hello() })
    })
    .at(Opening::Nothing)
    .exits(&[2])
    .served_too(),
    Case::sink("hello_of_half_a_wire", |peer| {
        let mut fields = Vec::new();
        hello().put(&mut fields);
        fields.truncate(fields.len() - 4);
        peer.say_raw(&Raw::message(kind::HELLO).bytes(&fields).framed())
    })
    .at(Opening::Nothing)
    .exits(&[5]),
    Case::sink("hello_cut_short", |peer| {
        peer.say_raw(&[40, 0, 0, 0, kind::HELLO])?;
        peer.hang_up();
        Ok(())
    })
    .at(Opening::Nothing)
    .exits(&[2, 5]),
    Case::sink("half_a_hello_then_silence", |peer| {
        peer.say_raw(&[40, 0, 0, 0, kind::HELLO, 0, b'L'])?;
        peer.stay_silent()
    })
    .at(Opening::Nothing)
    .exits(&[5]),
    Case::sink("hello_a_byte_a_second", a_byte_a_second).at(Opening::Nothing).exits(&[5]),
    Case::source("hello_a_byte_a_second_from_a_source", a_byte_a_second)
        .at(Opening::Nothing)
        .exits(&[5]),
    Case::sink("something_else_than_hello", |peer| {
        peer.say(&Message::Finish { is_complete: true })
    })
    .at(Opening::Nothing)
    .exits(&[2, 5]),
    Case::sink("something_else_than_listen", |peer| {
        peer.say(&Message::Finish { is_complete: true })
    })
    .at(Opening::Employed)
    .exits(&[5]),
    Case::sink("listen_of_no_tokens", |peer| listen(peer, 0)).at(Opening::Employed).exits(&[5]),
    Case::sink("listen_of_fewer_tokens", |peer| listen(peer, 1)).at(Opening::Employed).exits(&[5]),
    Case::sink("listen_of_5000_tokens", |peer| listen(peer, 5000))
        .at(Opening::Employed)
        .exits(&[5]),
    Case::source("listen_of_5000_tokens_from_a_source", |peer| listen(peer, 5000))
        .at(Opening::Employed)
        .exits(&[5]),
    Case::sink("listen_of_500000_tokens", |peer| {
        let tokens = vec![[7; 32]; 500_000];
        peer.say(&listens(String::new(), 9, tokens))
    })
    .at(Opening::Employed)
    .exits(&[5]),
    Case::sink("listen_on_port_zero", |peer| {
        let tokens = vec![[7; 32]; 2];
        peer.say(&listens(String::new(), 0, tokens))
    })
    .at(Opening::Employed)
    .exits(&[5]),
    Case::sink("listen_at_an_address_of_a_mebibyte", |peer| {
        let (address, tokens) = ("9".repeat(1 << 20), vec![[7; 32]; 2]);
        peer.say(&listens(address, 9, tokens))
    })
    .at(Opening::Employed)
    .without_data_address()
    .exits(&[5]),
    Case::sink("listen_at_an_address_of_escapes", |peer| {
        let (address, tokens) = ("\x1b]0;mine\x07\x1b[2J".to_owned(), vec![[7; 32]; 2]);
        peer.say(&listens(address, 9, tokens))
    })
    .at(Opening::Employed)
    .without_data_address()
    .exits(&[5]),
    Case::sink("listen_at_somebody_elses_address", elsewhere)
        .at(Opening::Employed)
        .without_data_address()
        .exits(&[5]),
    Case::source("listen_at_somebody_elses_address_for_a_pull", elsewhere)
        .at(Opening::Employed)
        .without_data_address()
        .exits(&[5]),
    Case::sink("nobody_answers_the_token", |peer| {
        let listener = own_port(peer, 2)?;
        let _first = accept_within(&listener, Duration::from_secs(5));
        peer.stay_silent()
    })
    .at(Opening::Employed)
    .exits(&[5]),
    Case::sink("token_is_answered_with_no", |peer| {
        let listener = own_port(peer, 2)?;
        if let Some(mut first) = accept_within(&listener, Duration::from_secs(5)) {
            let _ = first.write_all(&[0]);
        }
        peer.see_it_go()
    })
    .at(Opening::Employed)
    .exits(&[5]),
    Case::sink("token_is_answered_by_closing", |peer| {
        let listener = own_port(peer, 2)?;
        drop(accept_within(&listener, Duration::from_secs(5)));
        drop(listener);
        peer.see_it_go()
    })
    .at(Opening::Employed)
    .exits(&[5]),
    Case::sink("token_is_answered_byte_by_byte_with_garbage", |peer| {
        let listener = own_port(peer, 2)?;
        if let Some(mut first) = accept_within(&listener, Duration::from_secs(5)) {
            let mut said = [0; OPENING_BYTES];
            let _ = first.read_exact(&mut said);
            let _ = first.write_all(&opening(0, &[9; 32]));
        }
        peer.see_it_go()
    })
    .at(Opening::Employed)
    .exits(&[5]),
    Case::sink("fatal_instead_of_listen", |peer| {
        peer.say(&Message::Fatal { code: 0, text: "\x1b[2J".repeat(100_000) })
    })
    .at(Opening::Employed)
    .exits(&[1, 5]),
];

fn say_hello(peer: &mut Peer, hello: Hello) -> Told {
    peer.say(&Message::Hello(hello))
}

/// One byte of HELLO a second: each comes in time, all of them never do.
fn a_byte_a_second(peer: &mut Peer) -> Told {
    let mut fields = Vec::new();
    hello().put(&mut fields);
    for byte in Raw::message(kind::HELLO).bytes(&fields).framed() {
        peer.say_raw(&[byte])?;
        std::thread::sleep(Duration::from_secs(1));
    }
    wrong("a HELLO of one byte a second was waited for to its end")
}

fn own_port(peer: &mut Peer, tokens: usize) -> Told<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let tokens = vec![[7; 32]; tokens];
    peer.say(&listens(String::new(), port, tokens))?;
    Ok(listener)
}

/// Another number of tokens than streams that were asked for: nobody connects more than a few
/// times.
fn listen(peer: &mut Peer, tokens: usize) -> Told {
    const CONNECTIONS_MAX: usize = 256;
    let listener = own_port(peer, tokens)?;
    let mut streams = Vec::new();
    while let Some(mut stream) = accept_within(&listener, Duration::from_secs(1)) {
        let mut said = [0; OPENING_BYTES];
        if stream.read_exact(&mut said).is_ok() {
            let _ = stream.write_all(&[1]);
        }
        streams.push(stream);
        if streams.len() > CONNECTIONS_MAX {
            return wrong(format!("it opens {} connections", streams.len()));
        }
    }
    peer.stay_silent()
}

/// Names an address that nobody asked to connect to, and sees whether somebody comes.
fn elsewhere(peer: &mut Peer) -> Told {
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let listener = TcpListener::bind((other, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (address, tokens) = (other.to_string(), vec![[7; 32]; 2]);
    peer.say(&listens(address, port, tokens))?;
    match accept_within(&listener, Duration::from_secs(3)) {
        Some(_) => wrong(format!("it connects to {other}, which the peer named")),
        None => peer.see_it_go(),
    }
}
