//! A pipe that messages and data streams share (`--tunnel`): packets that lie. What is no packet
//! ends the transfer; what is no frame costs its stream, and nobody else waits for that.

use super::frames::{right_frame, stream_costs};
use crate::case::Case;
use crate::entries::file;
use crate::peer::{Heard, Opening, Peer, Told, listens};
use lads_core::limits::PACKET_BYTES_MAX;
use lads_core::message::{Ending, Message};
use lads_core::packet::{Channel, Packet};
use lads_core::units::{EntryId, StreamId};

const TUNNEL: &[&str] = &["--tunnel"];

/// A lie of a source through a pipe.
const fn piped(name: &'static str, lie: fn(&mut Peer) -> Told) -> Case {
    Case::source(name, lie).options(TUNNEL)
}

/// A lie that ends the transfer, whoever is at the other end of the pipe.
const fn breaks_the_pipe(name: &'static str, lie: fn(&mut Peer) -> Told) -> Case {
    piped(name, lie).served_too()
}

pub(super) const CASES: &[Case] = &[
    piped("honest_source_through_a_pipe", honest)
        .exits(&[0])
        .arrives(&[("one", 300 << 10), ("two", 10)])
        .served_too(),
    Case::sink("honest_sink_through_a_pipe", |peer| {
        peer.note_lie();
        peer.sink_honestly()
    })
    .options(TUNNEL)
    .exits(&[0])
    .served_too(),
    breaks_the_pipe("packet_of_no_stream", |peer| put(peer, 3, 1)),
    breaks_the_pipe("packet_of_stream_65535", |peer| put(peer, u16::MAX, 1)),
    breaks_the_pipe("packet_of_no_bytes", |peer| put(peer, 1, 0)),
    breaks_the_pipe("packet_of_a_byte_too_many", |peer| put(peer, 1, PACKET_BYTES_MAX + 1)),
    breaks_the_pipe("packet_of_4_gib_of_messages", |peer| put(peer, 0, u32::MAX)),
    breaks_the_pipe("garbage_between_packets", |peer| {
        peer.put_raw(b"Last login: Mon Nov 23 04:00:00 from dtn1\r\n")?;
        peer.see_it_go()
    }),
    Case::sink("packet_of_data_from_a_sink", |peer| put(peer, 1, 64)).options(TUNNEL).served_too(),
    Case::sink("packets_instead_of_listen", |peer| {
        peer.put_raw(&packet(0, 1))?;
        peer.see_it_go()
    })
    .at(Opening::Employed)
    .options(TUNNEL)
    .exits(&[5]),
    Case::sink("tokens_where_nobody_listens", |peer| {
        let tokens = vec![[7; 32]; 2];
        peer.say(&listens(String::new(), 9, tokens))
    })
    .at(Opening::Employed)
    .options(TUNNEL),
    piped("stream_of_garbage_through_a_pipe", |peer| stream_costs(peer, |_| vec![0xa5; 200_000]))
        .exits(&[0])
        .arrives(&[("a", 9)]),
    piped("frame_of_another_number_through_a_pipe", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.number = Some(u64::MAX)).bytes(0))
    })
    .exits(&[0])
    .arrives(&[("a", 9)]),
    piped("frame_longer_than_a_block_through_a_pipe", |peer| {
        stream_costs(peer, |frame| {
            let frame = frame.with(|it| {
                it.payload = vec![7; 1 << 20];
                it.rows[0].length = 1 << 20;
            });
            frame.bytes(0)
        })
    })
    .exits(&[0])
    .arrives(&[("a", 9)]),
    piped("frame_without_a_grant_through_a_pipe", |peer| {
        for _ in 0..10_000 {
            peer.send(0, &right_frame())?;
        }
        peer.see_it_go()
    })
    .flood()
    .served_too(),
    piped("frame_cut_by_packets_of_the_other_stream", interleaved)
        .exits(&[0])
        .arrives(&[("a", 60_000), ("b", 60_000)]),
    piped("half_a_frame_and_no_more_through_a_pipe", |peer| {
        peer.offer(&file(1, "a", 9))?;
        let bytes = right_frame().bytes(0);
        peer.send_raw(0, &bytes[..bytes.len() - 1])?;
        peer.stay_silent()
    })
    .exits(&[5]),
    Case::sink("alive_but_does_not_read_the_pipe", |peer| peer.stay_alive(false))
        .at(Opening::Ready)
        .options(&["--tunnel", "--stall-timeout", "3"])
        .setup(super::silence::with_many_files)
        .exits(&[5]),
    piped("pipe_closed_within_a_packet", |peer| {
        peer.put_raw(&packet(1, 100))?;
        peer.hang_up();
        peer.see_it_go()
    })
    .exits(&[5])
    .served_too(),
];

fn honest(peer: &mut Peer) -> Told {
    peer.note_lie();
    peer.deliver(&file(1, "one", 300 << 10), 0)?;
    peer.deliver(&file(2, "two", 10), 1)?;
    peer.finish()
}

/// The head of a packet, with this number of its channel.
fn packet(channel: u16, bytes: u32) -> [u8; 8] {
    let channel = match channel.checked_sub(1) {
        None => Channel::Messages,
        Some(stream) => Channel::Stream(StreamId(stream)),
    };
    Packet { channel, bytes }.head()
}

/// The head of a packet that cannot be, and enough behind it to be told from one that was cut.
fn put(peer: &mut Peer, channel: u16, bytes: u32) -> Told {
    peer.put_raw(&packet(channel, bytes))?;
    peer.put_raw(&[0; 4096])?;
    peer.see_it_go()
}

/// Two frames, each cut into packets of 100 bytes that take turns.
fn interleaved(peer: &mut Peer) -> Told {
    let files = [file(1, "a", 60_000), file(2, "b", 60_000)];
    let frames = [whole_frame(peer, &files[0])?, whole_frame(peer, &files[1])?];
    let parts = frames[0].chunks(100).zip(frames[1].chunks(100));
    for (first, second) in parts {
        peer.send_raw(0, first)?;
        peer.send_raw(1, second)?;
    }
    // In one message or in two, in any order.
    let mut left = vec![EntryId(1), EntryId(2)];
    while !left.is_empty() {
        let endings = peer.expect(|heard| match heard {
            Heard::Said(Message::FileDone(endings)) => Some(endings.clone()),
            _ => None,
        })?;
        left.retain(|id| !endings.contains(&(*id, Ending::Complete)));
    }
    peer.finish()
}

/// A file that is wanted, as the one frame that it is.
fn whole_frame(peer: &mut Peer, file: &lads_core::entry::Entry) -> Told<Vec<u8>> {
    let layout = peer.offer(file)?;
    let ost = layout.ost_at(0).0;
    let content = crate::entries::content_of(&file.name, usize::try_from(file.size()).unwrap());
    let frame = crate::frame::Frame::of(file.id.0, 0, &content).whole();
    Ok(frame.with(|frame| frame.sink_ost = ost).bytes(0))
}
