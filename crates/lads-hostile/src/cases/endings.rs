//! What a hostile sink says of blocks, streams and endings, and what it makes the person read.

use crate::case::Case;
use crate::peer::{Heard, Opening, Peer, Told, want};
use crate::world::World;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::message::{BlockRange, Counters, Ending, Message, OstBytes};
use lads_core::room::Lot;
use lads_core::units::{EntryId, OstId};
use std::fs;

/// What may come of it when the peer stops to play its part.
const LOST: &[i32] = &[5];

fn with_8_mib(world: &World) {
    fs::write(world.source().join("large"), vec![7; 8 << 20]).unwrap();
}

pub(super) const CASES: &[Case] = &[
    Case::sink("bad_block_of_an_unknown_entry", |peer| bad(peer, 9_999, 0, 1)),
    Case::sink("bad_block_before_its_file_is_wanted", |peer| {
        let id = peer.large_file().id.0;
        bad(peer, id, 0, 1)
    }),
    Case::sink("bad_block_that_was_never_sent", |peer| {
        let id = wanted(peer)?;
        bad(peer, id, 4096, 5)?;
        peer.sink_honestly()
    })
    .exits(&[0, 5]),
    Case::sink("bad_block_beyond_the_file", |peer| {
        let id = wanted(peer)?;
        bad(peer, id, u64::MAX, 1)
    })
    .served_too(),
    Case::sink("bad_block_of_no_bytes", |peer| {
        let id = wanted(peer)?;
        bad(peer, id, 0, 0)
    }),
    Case::sink("bad_blocks_for_ever", |peer| {
        let (file, id) = (peer.large_file(), wanted(peer)?);
        loop {
            bad(peer, id, 0, file.size())?;
            peer.say(&Message::Grant(Lot::of(vec![(OstId(0), 200)])))?;
        }
    })
    .setup(with_8_mib)
    .exits(&[5, 7]),
    Case::sink("done_of_an_unknown_entry", |peer| done(peer, 9_999, 0, 1)),
    Case::sink("done_before_its_file_is_wanted", |peer| {
        let id = peer.large_file().id.0;
        done(peer, id, 0, 1)
    }),
    Case::sink("done_of_bytes_beyond_the_file", |peer| {
        let id = wanted(peer)?;
        done(peer, id, 1 << 40, 1)
    })
    .served_too(),
    Case::sink("done_of_bytes_beyond_all_bytes", |peer| {
        let id = wanted(peer)?;
        done(peer, id, u64::MAX, u64::MAX)
    }),
    Case::sink("done_of_every_second_byte", |peer| {
        let id = EntryId(wanted(peer)?);
        for piece in 0..40u64 {
            let at = |byte: u64| (piece * 100_000 + byte) * 2;
            let ranges = (0..100_000).map(|b| BlockRange { entry: id, offset: at(b), length: 1 });
            peer.say(&Message::BlockDone(ranges.collect()))?;
        }
        Ok(())
    })
    .setup(with_8_mib)
    .exits(LOST),
    Case::sink("done_of_bytes_that_were_never_sent", |peer| {
        let (file, id) = (peer.large_file(), wanted(peer)?);
        done(peer, id, 0, file.size())?;
        peer.stay_silent()
    })
    .exits(LOST),
    Case::sink("ending_of_an_unknown_entry", |peer| end(peer, 9_999, Ending::Complete)),
    Case::sink("all_is_complete_without_data", |peer| {
        for entry in peer.files() {
            end(peer, entry.id.0, Ending::Complete)?;
        }
        peer.stay_silent()
    })
    .exits(LOST),
    Case::sink("file_is_complete_before_it_is_wanted", |peer| {
        let id = peer.large_file().id.0;
        end(peer, id, Ending::Complete)
    })
    .exits(LOST),
    Case::sink("file_is_complete_before_all_is_sent", |peer| {
        let id = wanted(peer)?;
        end(peer, id, Ending::Complete)?;
        peer.stay_silent()
    })
    .exits(LOST),
    Case::sink("file_is_dropped_that_was_not", |peer| {
        let id = wanted(peer)?;
        end(peer, id, Ending::Dropped)
    })
    .served_too(),
    Case::sink("directory_ends_that_was_not_closed", |peer| {
        let id = peer.directory().id.0;
        end(peer, id, Ending::Complete)
    })
    .exits(LOST),
    Case::sink("file_fails_with_every_number", |peer| {
        let id = wanted(peer)?;
        let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(i32::MIN));
        let failure = failure.of_block(u64::MAX, u32::MAX, OstId(u32::MAX));
        end(peer, id, Ending::Failed(failure))?;
        peer.stay_silent()
    })
    .exits(&[5, 6]),
    Case::sink("finished_early", |peer| peer.say(&Message::Finished(Counters::default())))
        .exits(&[5, 9]),
    Case::sink("finished_before_it_is_ready", |peer| {
        peer.say(&Message::Finished(Counters::default()))
    })
    .at(Opening::Connected)
    .exits(&[5, 9]),
    Case::sink("stream_end_of_no_stream", |peer| stream_end(peer, u16::MAX, 0)).exits(LOST),
    Case::sink("stream_end_of_more_frames_than_were_sent", |peer| stream_end(peer, 0, u64::MAX))
        .exits(LOST),
    Case::sink("stream_end_again_and_again", |peer| {
        (0..100_000u64).try_for_each(|frames| stream_end(peer, 1, 100_000 - frames))
    })
    .exits(LOST),
    Case::sink("place_again_for_ever", |peer| {
        let entries: Vec<EntryId> = peer.files().iter().map(|entry| entry.id).collect();
        for _ in 0..2000 {
            peer.say(&Message::PlaceAgain(entries.clone()))?;
        }
        peer.sink_honestly()
    })
    .exits(&[0, 5]),
    Case::sink("place_again_of_an_unknown_entry", |peer| {
        peer.say(&Message::PlaceAgain(vec![EntryId(9_999)]))
    }),
    Case::sink("counters_of_all_ones", |peer| {
        // Only when the source has read something do its own counts come on top.
        wanted(peer)?;
        let all = u64::MAX;
        let counters = Counters {
            files_found: all,
            bytes_found: all,
            bytes_done: all,
            bytes_skipped: all,
            cpu_micros: all,
            memory_bytes_peak: all,
            storage_micros: all,
            network_micros: all,
            cpu_delay_micros: all,
            cpu_idle_micros: all,
            starved_micros: all,
            ..Counters::default()
        };
        peer.say(&Message::Progress(counters))?;
        peer.say(&Message::OstBytes(OstBytes { elapsed_micros: all, bytes: vec![all; 10] }))?;
        peer.await_heartbeat()?;
        peer.stay_silent()
    })
    .exits(LOST),
    Case::sink("fatal_of_a_mebibyte_of_escapes", |peer| {
        fatal(peer, 6, &"\x1b]0;mine\x07\x1b[2J\u{9b}31m".repeat(50_000))
    })
    .exits(&[5, 6]),
    Case::source("fatal_of_escapes_from_a_source", |peer| {
        fatal(peer, 3, "\x1b]0;mine\x07\x1b[2J\u{9b}31m\r\u{202e}")
    })
    .exits(&[3, 5]),
    Case::sink("fatal_with_the_code_of_success", |peer| fatal(peer, 0, "all is well"))
        .exits(&[1, 5]),
    Case::sink("fatal_with_an_unknown_code", |peer| fatal(peer, 255, "x")).exits(&[1, 5]),
    Case::sink("notice_of_escapes", |peer| {
        peer.say(&Message::Notice(
            "\x1b]0;mine\x07\x1b[2J\u{9b}31m\nlads: all is well".to_owned(),
        ))?;
        peer.sink_honestly()
    })
    .exits(&[0]),
    Case::sink("failure_named_with_escapes", |peer| {
        let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(5));
        let path = b"\x1b]0;mine\x07\x1b[2Ja".to_vec();
        peer.say(&Message::Issues(vec![lads_core::issue::Issue { path, failure }]))?;
        peer.sink_honestly()
    })
    .exits(&[0, 5, 6]),
];

/// Says that the large file is wanted; its number.
fn wanted(peer: &mut Peer) -> Told<u64> {
    let id = peer.large_file().id;
    peer.answer_honestly(id, want(OstId(0)))?;
    peer.expect(|heard| matches!(heard, Heard::Frame(_)).then_some(()))?;
    Ok(id.0)
}

fn bad(peer: &mut Peer, entry: u64, offset: u64, length: u64) -> Told {
    peer.say(&Message::BlockBad(vec![BlockRange { entry: EntryId(entry), offset, length }]))
}

fn done(peer: &mut Peer, entry: u64, offset: u64, length: u64) -> Told {
    peer.say(&Message::BlockDone(vec![BlockRange { entry: EntryId(entry), offset, length }]))
}

fn end(peer: &mut Peer, entry: u64, ending: Ending) -> Told {
    peer.say(&Message::FileDone(vec![(EntryId(entry), ending)]))
}

fn stream_end(peer: &mut Peer, stream: u16, frames: u64) -> Told {
    peer.say(&Message::StreamEnd { stream, frames })
}

fn fatal(peer: &mut Peer, code: u8, text: &str) -> Told {
    peer.say(&Message::Fatal { code, text: text.to_owned() })
}
