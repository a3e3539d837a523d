//! Answers of a hostile sink: layouts, ranges and grants that no honest one would name. A source
//! plans and keeps queues by them.

use crate::case::Case;
use crate::peer::{Opening, Peer, Told, want};
use crate::raw::{Raw, kind};
use crate::world::World;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::layout::Layout;
use lads_core::message::{Answer, Message};
use lads_core::range::RangeSet;
use lads_core::room::Lot;
use lads_core::units::{EntryId, OstId};
use std::fs;
use std::ops::Range;

/// What may come of an answer that a source can live with: nobody goes on with the transfer.
const LOST: &[i32] = &[5];

/// A file of 8 MiB, to be cut into as many pieces as a sink can ask for.
fn with_a_large_file(world: &World) {
    fs::write(world.source().join("large"), vec![7; 8 << 20]).unwrap();
}

pub(super) const CASES: &[Case] = &[
    Case::sink("answer_for_an_unknown_entry", |peer| answer(peer, 9_999, want(OstId(0))))
        .served_too(),
    Case::sink("answer_for_the_root", |peer| answer(peer, 0, want(OstId(0)))),
    Case::sink("answer_twice", |peer| {
        let id = peer.large_file().id.0;
        answer(peer, id, want(OstId(0)))?;
        answer(peer, id, want(OstId(0)))
    })
    .served_too(),
    Case::sink("answer_that_a_file_was_made", |peer| {
        let id = peer.large_file().id.0;
        answer(peer, id, Answer::Made)
    }),
    Case::sink("answer_that_a_file_would_be_made", |peer| {
        let id = peer.large_file().id.0;
        answer(peer, id, Answer::Would)
    }),
    Case::sink("answer_that_a_directory_is_wanted", |peer| {
        let directory = peer.directory().id.0;
        answer(peer, directory, want(OstId(0)))
    }),
    Case::sink("answer_that_the_source_failed", |peer| {
        let id = peer.large_file().id.0;
        let failure = Failure::new(Side::Source, Operation::Read, Reason::Vanished);
        answer(peer, id, Answer::Failed(failure))
    })
    .exits(&[5, 8]),
    Case::sink("stripes_of_one_byte", |peer| {
        layout(peer, Layout::striped(1, (0..2000).map(OstId).collect()).unwrap())
    })
    .setup(with_a_large_file)
    .exits(LOST),
    Case::sink("stripes_of_no_bytes", |peer| {
        // One part without end, of stripes of 0 bytes: read as stripes without end.
        layout_by_hand(peer, |raw| raw.number(1).number(0).number(0).number(0))
    }),
    Case::sink("layout_of_no_osts", |peer| {
        layout_by_hand(peer, |raw| raw.number(1).number(0).number(65_536).number(0))
    }),
    Case::sink("layout_on_the_last_ost", |peer| layout(peer, Layout::on(OstId(u32::MAX)))),
    Case::sink("layout_of_2001_osts", |peer| {
        layout_by_hand(peer, |raw| {
            let raw = raw.number(1).number(0).number(65_536).number(2001);
            (0..2001).fold(raw, Raw::number)
        })
    }),
    Case::sink("layout_of_4097_positions", |peer| {
        layout_by_hand(peer, |raw| {
            // Parts that are alike would count as one.
            (1..=4097).fold(raw.number(4097), |raw, part| {
                let end = if part == 4097 { 0 } else { part * 65_536 };
                raw.number(end).number(65_536).number(1).number(part % 2)
            })
        })
    }),
    Case::sink("layout_of_parts_that_overlap", |peer| {
        layout_by_hand(peer, |raw| {
            let part = |raw: Raw, end| raw.number(end).number(65_536).number(1).number(0);
            part(part(raw.number(2), 1 << 20), 1 << 16)
        })
    }),
    Case::sink("layout_that_ends_before_its_file", |peer| {
        layout_by_hand(peer, |raw| raw.number(1).number(4096).number(4096).number(1).number(0))
    }),
    Case::sink("layout_of_16385_objects", |peer| {
        layout_by_hand(peer, |raw| {
            let raw = raw.number(0).number(65_536).number(1).number(65_536).number(16_385);
            (0..16_385).fold(raw, |raw, _| raw.number(0))
        })
    }),
    Case::sink("layout_of_objects_of_no_bytes", |peer| {
        layout_by_hand(peer, |raw| raw.number(0).number(0).number(0).number(0).number(1).number(0))
    }),
    Case::sink("done_is_beyond_the_file", |peer| {
        let size = peer.large_file().size();
        done(peer, size + 1..size + 2)
    }),
    Case::sink("done_is_all_there_can_be", |peer| done(peer, 0..u64::MAX)),
    Case::sink("done_ends_beyond_all_bytes", |peer| {
        done_by_hand(peer, |raw| raw.number(1).number(u64::MAX).number(u64::MAX))
    }),
    Case::sink("done_overlaps", |peer| {
        // The gap wraps round: the second range begins before the first one ends.
        done_by_hand(peer, |raw| {
            raw.number(2).number(0).number(4096).number(u64::MAX - 4095).number(1)
        })
    }),
    Case::sink("done_of_empty_ranges", |peer| {
        done_by_hand(peer, |raw| (0..1000).fold(raw.number(1000), |raw, _| raw.number(0).number(0)))
    })
    .exits(LOST),
    Case::sink("done_of_4_million_ranges", |peer| {
        done_by_hand(peer, |raw| {
            let ranges = vec![1; 8_000_000];
            raw.number(4_000_000).bytes(&ranges)
        })
    })
    .setup(with_a_large_file)
    .exits(LOST),
    Case::sink("done_of_more_ranges_than_there_are", |peer| {
        done_by_hand(peer, |raw| raw.number(1 << 63))
    }),
    Case::sink("all_is_done_already", |peer| {
        let size = peer.large_file().size();
        done(peer, 0..size)?;
        peer.stay_silent()
    })
    .exits(LOST),
    Case::sink("grants_of_all_ones_for_all_osts", |peer| {
        let osts = (0..16_000).map(|ost| (OstId(ost), u32::MAX)).collect();
        let all = Message::Grant(Lot { frames: u32::MAX, osts });
        peer.say(&all)?;
        peer.say(&all)?;
        peer.sink_honestly()
    })
    .exits(&[0, 5]),
    Case::sink("more_frames_than_any_memory_has", |peer| {
        peer.say(&Message::Grant(Lot { frames: u32::MAX, osts: vec![(OstId(0), 1)] }))
    }),
    Case::sink("grants_and_no_frames", |peer| {
        peer.say(&Message::Grant(Lot { frames: 0, osts: vec![(OstId(0), 100)] }))?;
        peer.stay_silent()
    })
    .exits(LOST),
    Case::sink("grant_for_the_last_ost", |peer| {
        peer.say(&Message::Grant(Lot::of(vec![(OstId(u32::MAX), 1)])))
    }),
    Case::sink("grants_before_it_is_ready", |peer| {
        peer.say(&Message::Grant(Lot::of(vec![(OstId(0), 5)])))
    })
    .at(Opening::Connected)
    .exits(&[5]),
    Case::sink("grants_by_the_million", |peer| {
        let grants = (0..1_000_000).map(|at| (OstId(at % 2000), 1)).collect();
        let grants = Message::Grant(Lot::of(grants));
        (0..40).try_for_each(|_| peer.say(&grants))
    })
    .exits(LOST),
];

fn answer(peer: &mut Peer, id: u64, answer: Answer) -> Told {
    peer.say(&Message::FileId(vec![(EntryId(id), answer)]))
}

fn layout(peer: &mut Peer, layout: Layout) -> Told {
    let id = peer.large_file().id.0;
    // With room everywhere, so that it goes as far as it can.
    peer.say(&Message::Grant(Lot::of((0..2000).map(|ost| (OstId(ost), 1000)).collect())))?;
    answer(peer, id, Answer::Want { done: RangeSet::new(), layout })
}

/// FILE_ID that wants the large file, nothing done, and this for a layout.
fn layout_by_hand(peer: &mut Peer, layout: fn(Raw) -> Raw) -> Told {
    let id = peer.large_file().id.0;
    let raw = Raw::message(kind::FILE_ID).number(1).number(id).number(0).number(0);
    peer.say_raw(&layout(raw).framed())
}

fn done(peer: &mut Peer, range: Range<u64>) -> Told {
    let id = peer.large_file().id.0;
    let done = [range].into_iter().collect();
    answer(peer, id, Answer::Want { done, layout: Layout::on(OstId(0)) })
}

/// FILE_ID that wants the large file, with these ranges done, on OST 0.
fn done_by_hand(peer: &mut Peer, done: fn(Raw) -> Raw) -> Told {
    let id = peer.large_file().id.0;
    let raw = Raw::message(kind::FILE_ID).number(1).number(id).number(0);
    peer.say_raw(&done(raw).number(1).number(0).number(0).number(1).number(0).framed())
}
