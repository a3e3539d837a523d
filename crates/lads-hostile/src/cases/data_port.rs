//! The port that an honest `lads serve` opens, and who may come in: whoever shows a token, once
//! (bbcp's 32-bit tokens in `ps`; croc, where a third party took the file; half-open connections).

use crate::case::Case;
use crate::entries::file;
use crate::peer::{OPENING, Opening, Peer, Told, opening, wrong};
use std::io::Write as _;
use std::net::TcpStream;

/// What arrives all the same.
const ARRIVES: &[(&str, usize)] = &[("a", 9)];

/// A case in which somebody else is at the door, and the transfer goes on.
const fn at_the_door(name: &'static str, lie: fn(&mut Peer) -> Told) -> Case {
    Case::client_source(name, lie).at(Opening::Employed).exits(&[0]).arrives(ARRIVES)
}

pub(super) const CASES: &[Case] = &[
    at_the_door("token_is_wrong", |peer| refused(peer, &opening(0, &[0; 32]))),
    at_the_door("token_of_another_stream", |peer| {
        peer.hear_listen()?;
        let other = peer.right_opening(1);
        let shown = [&peer.right_opening(0)[..10], &other[10..]].concat();
        knocks_in_vain(peer, &shown)?;
        goes_on(peer)
    }),
    at_the_door("token_for_a_stream_that_there_is_not", |peer| {
        peer.hear_listen()?;
        let right = peer.right_opening(0);
        let shown = [&OPENING[..], &u16::MAX.to_le_bytes(), &right[10..]].concat();
        knocks_in_vain(peer, &shown)?;
        goes_on(peer)
    }),
    at_the_door("token_with_one_bit_wrong", |peer| {
        peer.hear_listen()?;
        let mut shown = peer.right_opening(0);
        shown[41] ^= 1;
        knocks_in_vain(peer, &shown)?;
        goes_on(peer)
    }),
    at_the_door("token_is_shown_again", |peer| {
        peer.hear_listen()?;
        let shown = peer.right_opening(0);
        let first = peer.knock(&shown)?;
        peer.note_lie();
        if first.is_none() || peer.knock(&shown)?.is_some() {
            return wrong("a token is good for one connection, the first");
        }
        peer.adopt(first.unwrap());
        peer.connect()?;
        arrives(peer)
    }),
    at_the_door("token_is_cut_short", |peer| {
        peer.hear_listen()?;
        let mut short = TcpStream::connect(peer.data_port()).unwrap();
        short.write_all(&peer.right_opening(0)[..20]).unwrap();
        peer.note_lie();
        goes_on(peer)
    }),
    at_the_door("garbage_at_the_door", |peer| refused(peer, &[0xa5; 4096])),
    at_the_door("http_at_the_door", |peer| {
        refused(peer, b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n\r\n")
    }),
    at_the_door("two_thousand_idle_connections", |peer| crowd(peer, b"")).rounds(3),
    at_the_door("two_thousand_half_tokens", |peer| crowd(peer, &OPENING)).rounds(3),
    at_the_door("two_thousand_wrong_tokens", |peer| crowd(peer, &opening(0, &[7; 32]))).rounds(3),
    at_the_door("token_is_shown_after_all_are_in", |peer| {
        peer.hear_listen()?;
        peer.connect()?;
        peer.note_lie();
        let shown = peer.right_opening(1);
        // Nobody listens any more, or nobody lets in.
        if let Ok(Some(_)) = peer.knock(&shown) {
            return wrong("a token let somebody in when all streams were connected");
        }
        arrives(peer)
    }),
    Case::client_source("nobody_comes_to_the_port", Peer::stay_silent)
        .at(Opening::Employed)
        .exits(&[5]),
    Case::client_source("client_is_gone_after_job", |peer| {
        peer.hear_listen()?;
        peer.hang_up();
        Ok(())
    })
    .at(Opening::Employed)
    .exits(&[5]),
    Case::client_source("client_says_nothing", Peer::stay_silent).at(Opening::Nothing).exits(&[5]),
    Case::client_source("client_greets_and_says_nothing", Peer::stay_silent)
        .at(Opening::Greeted)
        .exits(&[5]),
    Case::client_source("client_sends_no_job", |peer| {
        peer.say(&lads_core::message::Message::Finish { is_complete: true })
    })
    .at(Opening::Greeted),
    Case::client_source("job_of_garbage", |peer| {
        peer.say(&lads_core::message::Message::Job(vec![0xff; 1000]))
    })
    .at(Opening::Greeted),
    Case::client_source("job_of_no_bytes", |peer| {
        peer.say(&lads_core::message::Message::Job(Vec::new()))
    })
    .at(Opening::Greeted),
    Case::client_source("job_twice", |peer| {
        let job = peer.job().to_vec();
        peer.say(&lads_core::message::Message::Job(job))?;
        goes_on(peer)
    })
    .at(Opening::Employed),
    Case::client_source("job_of_more_memory_than_there_is", goes_on)
        .options(&["--buffers", "1000000T"])
        .at(Opening::Employed)
        .exits(&[1, 2, 5]),
    // Of both ends 1,001 threads, as numbers of two bytes: then 16,383.
    Case::client_source("job_of_16383_threads", |peer| {
        peer.note_lie();
        peer.hear_listen()
    })
    .options(&["--sink=threads=1001", "--source=threads=1001"])
    .forging_job(b"\xe9\x07\xe9\x07", b"\xff\x7f\xff\x7f")
    .at(Opening::Employed)
    .exits(&[2]),
];

/// What is shown first lets nobody in, and the transfer goes on.
fn refused(peer: &mut Peer, shown: &[u8]) -> Told {
    peer.hear_listen()?;
    knocks_in_vain(peer, shown)?;
    goes_on(peer)
}

fn knocks_in_vain(peer: &mut Peer, shown: &[u8]) -> Told {
    peer.note_lie();
    match peer.knock(shown)? {
        None => Ok(()),
        Some(_) => wrong("somebody was let in who did not show the token"),
    }
}

/// Whoever has the tokens comes in, and moves a file.
fn goes_on(peer: &mut Peer) -> Told {
    if !peer.has_port() {
        peer.note_lie();
        peer.hear_listen()?;
    }
    peer.connect()?;
    arrives(peer)
}

fn arrives(peer: &mut Peer) -> Told {
    peer.make_ready()?;
    peer.deliver(&file(1, "a", 9), 0)?;
    peer.finish()
}

/// Two thousand others are at the door, before and while the right one comes.
fn crowd(peer: &mut Peer, shown: &[u8]) -> Told {
    const CROWD: usize = 2000;
    peer.hear_listen()?;
    peer.note_lie();
    let mut others = Vec::new();
    for _ in 0..CROWD {
        // What is refused is as well.
        let Ok(mut other) = TcpStream::connect(peer.data_port()) else { continue };
        let _ = other.write_all(shown);
        others.push(other);
    }
    peer.connect_patiently()?;
    arrives(peer)
}
