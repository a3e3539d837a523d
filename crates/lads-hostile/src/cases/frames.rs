//! Data frames that lie. What damages a stream costs that stream only; what breaks the protocol
//! ends the transfer; what does not match its sum is never written.

use crate::case::Case;
use crate::entries::{below, content_of, directory, file};
use crate::frame::Frame;
use crate::peer::{Heard, Opening, Peer, Stop, Told, wrong};
use lads_core::message::{Ending, Message};
use lads_core::units::EntryId;

/// A stream is lost, the file arrives on the other.
const A_STREAM: Case = Case::source("", |_| Ok(())).exits(&[0]).arrives(&[("a", 9)]);

/// A case in which these bytes cost the first stream, and nothing else.
const fn costs_a_stream(name: &'static str, lie: fn(&mut Peer) -> Told) -> Case {
    Case { name, lie, ..A_STREAM }
}

pub(super) const CASES: &[Case] = &[
    costs_a_stream("stream_of_garbage", |peer| stream_costs(peer, |_| vec![0xa5; 4096])),
    costs_a_stream("frame_of_no_rows", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.count = Some(0)).bytes(0))
    }),
    costs_a_stream("frame_of_257_rows", |peer| {
        stream_costs(peer, |frame| {
            let row = frame.rows[0];
            frame.with(|it| it.rows = vec![row; 257]).bytes(0)
        })
    }),
    costs_a_stream("frame_of_65535_rows", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.count = Some(u16::MAX)).bytes(0))
    }),
    costs_a_stream("frame_with_a_damaged_header", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.header_crc = Some(7)).bytes(0))
    }),
    costs_a_stream("frame_with_a_damaged_table", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.table_crc = Some(7)).bytes(0))
    }),
    costs_a_stream("frame_of_another_number", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.number = Some(u64::MAX)).bytes(0))
    }),
    costs_a_stream("frame_with_less_payload_than_it_says", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.payload_bytes = Some(8)).bytes(0))
    }),
    costs_a_stream("frame_with_4_gib_of_payload", |peer| {
        stream_costs(peer, |frame| {
            let all = |it: &mut Frame| {
                (it.payload_bytes, it.rows[0].length) = (Some(u32::MAX), u32::MAX);
            };
            frame.with(all).bytes(0)
        })
    }),
    costs_a_stream("frame_longer_than_a_block", |peer| {
        stream_costs(peer, |_| Frame::of(1, 0, &vec![7; 128 << 10]).bytes(0))
    }),
    costs_a_stream("frame_of_a_block_of_no_bytes", |peer| {
        stream_costs(peer, |frame| {
            frame.with(|it| (it.rows[0].length, it.payload) = (0, Vec::new())).bytes(0)
        })
    }),
    costs_a_stream("frame_that_ends_beyond_all_bytes", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.rows[0].offset = u64::MAX).bytes(0))
    }),
    costs_a_stream("frame_with_unknown_flags", |peer| {
        stream_costs(peer, |frame| frame.with(|it| it.rows[0].flags = 0xff00).bytes(0))
    }),
    costs_a_stream("stream_closed_in_the_middle_of_a_frame", |peer| {
        let file = file(1, "a", 9);
        let layout = peer.offer(&file)?;
        let bytes = right_frame().bytes(0);
        peer.send_raw(0, &bytes[..bytes.len() - 4])?;
        peer.close_stream(0);
        goes_on(peer, &file, &layout)
    }),
    costs_a_stream("half_a_frame_then_silence", |peer| {
        let file = file(1, "a", 9);
        let layout = peer.offer(&file)?;
        let bytes = right_frame().bytes(0);
        peer.send_raw(0, &bytes[..bytes.len() - 4])?;
        // The sink knows that something is missing only because it is told.
        peer.say(&Message::Frames(vec![1, 0]))?;
        await_stream_end_alive(peer)?;
        peer.send_data(&file, &layout, 1)?;
        peer.expect_complete(1)?;
        peer.finish()
    }),
    Case::source("all_streams_closed", |peer| {
        peer.offer(&file(1, "a", 9))?;
        peer.close_stream(0);
        peer.close_stream(1);
        Ok(())
    })
    .exits(&[5]),
    Case::source("frame_of_an_unknown_entry", |peer| send(peer, &Frame::of(99, 0, b"abc")))
        .served_too(),
    Case::source("frame_before_roots", |peer| send(peer, &right_frame())).at(Opening::Connected),
    Case::source("frame_before_its_file_is_placed", |peer| {
        peer.announce(&[file(1, "a", 9)])?;
        send(peer, &right_frame())
    })
    .exits(&[0, 5]),
    Case::source("frame_of_a_directory", |peer| {
        peer.announce(&[directory(1, "d"), below(1, directory(2, "e"))])?;
        peer.expect_answer(1)?;
        send(peer, &Frame::of(1, 0, b"abc"))?;
        peer.stay_alive(true)
    })
    .exits(&[5])
    .options(&["--stall-timeout", "3"]),
    Case::source("frame_beyond_the_file", |peer| {
        peer.offer(&file(1, "a", 9))?;
        send(peer, &Frame::of(1, 5, b"abcdefgh"))
    })
    .served_too(),
    Case::source("frame_far_beyond_the_file", |peer| {
        peer.offer(&file(1, "a", 9))?;
        send(peer, &Frame::of(1, 1 << 62, b"abcdefgh"))
    }),
    Case::source("frame_across_a_stripe", |peer| {
        peer.offer(&file(1, "a", 256 << 10))?;
        send(peer, &Frame::of(1, 32 << 10, &vec![7; 64 << 10]))
    })
    .options(&["--sink", "layout=synthetic:osts=2,stripe_size=64K,stripe_count=2"]),
    Case::source("frame_for_another_ost", |peer| {
        let layout = peer.offer(&file(1, "a", 256 << 10))?;
        let other = 1 - layout.ost_at(0).0;
        let bytes = content_of(b"a", 64 << 10);
        send(peer, &Frame::of(1, 0, &bytes).with(|it| it.sink_ost = other))
    })
    .options(&["--sink", "layout=synthetic:osts=2,stripe_size=64K,stripe_count=2"]),
    Case::source("frame_for_an_ost_that_there_is_not", |peer| {
        peer.deliver(&file(1, "a", 9), 0)?;
        // Of a file that has ended no layout is known any more.
        send(peer, &right_frame().with(|it| it.sink_ost = u32::MAX))
    }),
    Case::source("frames_without_a_grant", |peer| {
        let bytes = content_of(b"a", 64 << 10);
        peer.offer(&file(1, "a", 64 << 20))?;
        // A write takes 300 ms: what is granted is used up long before it is granted again.
        for block in 0..1000 {
            peer.send(0, &Frame::of(1, block * (64 << 10), &bytes))?;
        }
        Ok(())
    })
    .options(&["--sink", "layout=synthetic:osts=1,latency_ms=300"])
    .served_too(),
    Case::source("part_that_says_it_is_whole", |peer| {
        peer.offer(&file(1, "a", 256 << 10))?;
        send(peer, &Frame::of(1, 0, &content_of(b"a", 64 << 10)).whole())
    })
    .served_too(),
    Case::source("block_that_never_matches", never_matches).exits(&[6, 7]).arrives(&[("b", 9)]),
    Case::source("block_that_does_not_match_once", |peer| {
        let file = file(1, "a", 9);
        let layout = peer.offer(&file)?;
        peer.send(0, &right_frame().with(|it| it.rows[0].checksum ^= 1))?;
        expect_bad(peer)?;
        peer.send_data(&file, &layout, 1)?;
        peer.expect_complete(1)?;
        peer.finish()
    })
    .exits(&[0])
    .arrives(&[("a", 9)]),
    Case::source("block_that_comes_twice", |peer| {
        let file = file(1, "a", 128 << 10);
        let layout = peer.offer(&file)?;
        let first = Frame::of(1, 0, &content_of(b"a", 64 << 10));
        send(peer, &first)?;
        peer.send_data(&file, &layout, 1)?;
        peer.expect_complete(1)?;
        peer.finish()
    })
    .exits(&[0, 5])
    .arrives(&[("a", 128 << 10)]),
    Case::source("frame_after_its_file_has_ended", |peer| {
        peer.deliver(&file(1, "a", 9), 0)?;
        send(peer, &Frame::of(1, 0, b"otherwise").whole())?;
        peer.deliver(&file(2, "b", 9), 1)?;
        peer.finish()
    })
    .exits(&[0, 5])
    .arrives(&[("a", 9), ("b", 9)]),
    Case::source("dropped_file_is_sent_on", |peer| {
        peer.offer(&file(1, "a", 128 << 10))?;
        let bytes = content_of(b"a", 128 << 10);
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Dropped)]))?;
        peer.send(0, &Frame::of(1, 0, &bytes[..64 << 10]))?;
        peer.send(0, &Frame::of(1, 64 << 10, &bytes[64 << 10..]))?;
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Complete)]))?;
        peer.stay_silent()
    })
    .exits(&[5]),
];

/// What an honest source would send of the file `a` of 9 bytes.
pub(super) fn right_frame() -> Frame {
    Frame::of(1, 0, &content_of(b"a", 9)).whole()
}

/// Sends a frame on the first stream.
fn send(peer: &mut Peer, frame: &Frame) -> Told {
    peer.send(0, frame)
}

/// These bytes end the first stream; the file goes on the second.
pub(super) fn stream_costs(peer: &mut Peer, bytes: fn(Frame) -> Vec<u8>) -> Told {
    let file = file(1, "a", 9);
    let layout = peer.offer(&file)?;
    // The sink may end the stream before it has taken all of it.
    match peer.send_raw(0, &bytes(right_frame())) {
        Ok(()) | Err(Stop::Gone) => peer.note_lie(),
        Err(error) => return Err(error),
    }
    goes_on(peer, &file, &layout)
}

fn goes_on(
    peer: &mut Peer,
    file: &lads_core::entry::Entry,
    layout: &lads_core::layout::Layout,
) -> Told {
    let frames = peer.expect(stream_end)?;
    if frames != 0 {
        return wrong(format!("{frames} frames are said to have arrived whole"));
    }
    peer.send_data(file, layout, 1)?;
    peer.expect_complete(1)?;
    peer.finish()
}

fn stream_end(heard: &Heard) -> Option<u64> {
    match heard {
        Heard::Said(Message::StreamEnd { stream: 0, frames }) => Some(*frames),
        _ => None,
    }
}

/// Waits for the sink to end a stream on which nothing comes; says that we are alive meanwhile.
fn await_stream_end_alive(peer: &mut Peer) -> Told {
    peer.hear_alive(stream_end).map(drop)
}

fn expect_bad(peer: &mut Peer) -> Told {
    peer.expect(|heard| matches!(heard, Heard::Said(Message::BlockBad(_))).then_some(()))
}

/// A block is asked for again a hundred times; then its file fails, and the rest goes on.
fn never_matches(peer: &mut Peer) -> Told {
    const ASKED_AGAIN: usize = 100;
    peer.offer(&file(1, "a", 9))?;
    for _ in 0..ASKED_AGAIN {
        peer.send(0, &right_frame().with(|it| it.rows[0].checksum ^= 1))?;
        expect_bad(peer)?;
    }
    peer.send(0, &right_frame().with(|it| it.rows[0].checksum ^= 1))?;
    match peer.expect_ending(1)? {
        Ending::Failed(_) => {}
        ending => return wrong(format!("a file that never matches ends with {ending:?}")),
    }
    peer.deliver(&file(2, "b", 9), 1)?;
    peer.finish()
}
