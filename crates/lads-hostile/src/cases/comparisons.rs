//! Lies about files that are there already and are compared by their checksums. A source that lies
//! about a sum could as well send other bytes, and a sink that does has the file sent or not: what
//! matters is that nothing is written, read or said that should not be.

use crate::case::Case;
use crate::entries::{Changed as _, content_of, directory, file};
use crate::frame::Frame;
use crate::peer::{Heard, Peer, Told, want, wrong};
use crate::world::World;
use lads_core::entry::Kind;
use lads_core::layout::Layout;
use lads_core::message::{Answer, Ending, Line, Message, Verb};
use lads_core::room::Lot;
use lads_core::units::{EntryId, OstId};
use std::fs;

/// A file at the target that is right.
fn with_a_file(world: &World) {
    fs::write(world.target().join("a"), content_of(b"a", SIZE)).unwrap();
}

/// Bytes of it.
const SIZE: usize = 100 << 10;

/// What is at the target belongs to whoever runs the tests, not always to the honest end.
const COMPARED: &[&str] = &["--checksum", "--no-owner", "--no-perms", "--no-times"];

/// A case in which the file `a` is at the target already, and is compared.
const fn of_a_source(name: &'static str, lie: fn(&mut Peer) -> Told) -> Case {
    Case::source(name, lie).options(COMPARED).setup(with_a_file)
}

/// A case in which an honest source was asked to compare.
const fn of_a_sink(name: &'static str, lie: fn(&mut Peer) -> Told) -> Case {
    Case::sink(name, lie).options(&["--checksum"])
}

pub(super) const CASES: &[Case] = &[
    of_a_source("honest_comparison", |peer| {
        offer_to_compare(peer)?;
        send_sums(peer, 0)?;
        match peer.expect_ending(1)? {
            Ending::Same => peer.finish(),
            ending => wrong(format!("what is the same ended with {ending:?}")),
        }
    })
    .exits(&[0])
    .arrives(&[("a", SIZE)])
    .served_too(),
    of_a_source("sums_that_lie", |peer| {
        offer_to_compare(peer)?;
        send_sums(peer, 1)?;
        match peer.expect_ending(1)? {
            Ending::Different => {}
            ending => return wrong(format!("other sums ended with {ending:?}")),
        }
        let again = file(2, "a", SIZE as u64).with(|entry| {
            if let Kind::File { is_different, .. } = &mut entry.kind {
                *is_different = true;
            }
        });
        peer.deliver(&again, 0)?;
        peer.finish()
    })
    .exits(&[0])
    .arrives(&[("a", SIZE)])
    .served_too(),
    of_a_source("file_that_is_given_up_after_its_sums", |peer| {
        offer_to_compare(peer)?;
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Dropped)]))?;
        peer.expect_ending(1)?;
        peer.finish()
    })
    .exits(&[0])
    .arrives(&[("a", SIZE)]),
    of_a_source("bytes_of_a_file_that_is_compared", |peer| {
        offer_to_compare(peer)?;
        peer.send(0, &first_block())
    })
    .served_too(),
    Case::source("sums_of_a_file_that_is_sent", |peer| {
        peer.offer(&file(1, "a", SIZE as u64))?;
        peer.send(0, &first_block().only_sums())
    })
    .served_too(),
    of_a_source("sums_beyond_the_file", |peer| {
        offer_to_compare(peer)?;
        peer.send(0, &Frame::of(1, 1 << 30, &[7; 4096]).only_sums())
    }),
    of_a_source("sums_without_a_grant", |peer| {
        offer_to_compare(peer)?;
        (0..1000).try_for_each(|_| peer.send(0, &first_block().only_sums()))
    })
    .options(&[
        "--checksum",
        "--no-owner",
        "--sink",
        "layout=synthetic:osts=1,latency_ms=300",
    ]),
    of_a_source("sums_with_bytes", |peer| {
        offer_to_compare(peer)?;
        peer.send(0, &first_block().with(|frame| frame.flags = 2))?;
        // That stream is lost, and nothing else.
        peer.expect(|heard| {
            matches!(heard, Heard::Said(Message::StreamEnd { stream: 0, frames: 0 })).then_some(())
        })?;
        peer.stay_silent()
    })
    .exits(&[5]),
    Case::source("source_says_that_a_file_is_the_same", |peer| {
        peer.offer(&file(1, "a", 9))?;
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Same)]))
    })
    .served_too(),
    Case::source("source_says_that_a_file_is_different", |peer| {
        peer.offer(&file(1, "a", 9))?;
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Different)]))
    }),
    Case::source("source_ends_a_file_as_a_directory", |peer| {
        peer.offer(&file(1, "a", 9))?;
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Incomplete)]))
    }),
    Case::source("directory_ends_twice_as_incomplete", |peer| {
        peer.announce(&[directory(1, "d")])?;
        peer.expect_answer(1)?;
        let ending = Message::FileDone(vec![(EntryId(1), Ending::Incomplete)]);
        peer.say(&ending)?;
        peer.say(&ending)
    })
    .exits(&[0, 5]),
    Case::source("differences_from_a_source", |peer| {
        let line = Line { verb: Verb::OtherContents, path: b"a".to_vec(), bytes: 9 };
        peer.say(&Message::Lines(vec![line]))
    }),
    Case::sink("differences_that_nobody_asked_for", |peer| {
        let line = Line { verb: Verb::OnlyAtSink, path: b"a".to_vec(), bytes: 9 };
        peer.say(&Message::Lines(vec![line]))
    }),
    Case::sink("sums_that_nobody_asked_for", |peer| ask_for_sums(peer).map(drop)).served_too(),
    of_a_sink("sums_from_an_ost_that_there_is_not", |peer| {
        let id = peer.large_file().id;
        let layout = Layout::on(OstId(9));
        peer.say(&Message::FileId(vec![(id, Answer::Compare { layout })]))
    }),
    of_a_sink("sums_of_a_directory", |peer| {
        let id = peer.directory().id;
        peer.say(&Message::FileId(vec![(id, compare())]))
    }),
    of_a_sink("sums_twice", |peer| {
        let id = ask_for_sums(peer)?;
        peer.say(&Message::FileId(vec![(id, compare())]))
    }),
    of_a_sink("sums_of_a_file_that_is_known_to_be_different", |peer| {
        let id = ask_for_sums(peer)?;
        peer.say(&Message::FileDone(vec![(id, Ending::Different)]))?;
        let again = peer.expect(|heard| match heard {
            Heard::Said(Message::NewFile(entries)) => entries.first().cloned(),
            _ => None,
        })?;
        if !matches!(again.kind, Kind::File { is_different: true, .. }) {
            return wrong(format!("it is announced as {:?}", again.kind));
        }
        peer.say(&Message::FileId(vec![(again.id, compare())]))
    })
    .served_too(),
    of_a_sink("same_of_a_file_that_is_sent", |peer| {
        let id = peer.large_file().id;
        peer.say(&Message::FileId(vec![(id, want(OstId(0)))]))?;
        peer.say(&Message::FileDone(vec![(id, Ending::Same)]))
    }),
    of_a_sink("complete_of_a_file_that_is_compared", |peer| {
        let id = ask_for_sums(peer)?;
        peer.say(&Message::FileDone(vec![(id, Ending::Complete)]))
    })
    .served_too(),
    of_a_sink("same_before_any_sum", |peer| {
        let id = ask_for_sums(peer)?;
        peer.say(&Message::FileDone(vec![(id, Ending::Same)]))?;
        peer.stay_silent()
    })
    .exits(&[5]),
    of_a_sink("wanted_after_its_sums", |peer| {
        let id = ask_for_sums(peer)?;
        peer.say(&Message::FileId(vec![(id, want(OstId(0)))]))
    }),
    of_a_sink("sums_that_are_asked_for_again_for_ever", |peer| {
        let (file, id) = (peer.large_file(), ask_for_sums(peer)?);
        let range = lads_core::message::BlockRange { entry: id, offset: 0, length: file.size() };
        loop {
            peer.say(&Message::BlockBad(vec![range]))?;
            peer.say(&Message::Grant(Lot::of(vec![(OstId(0), 200)])))?;
        }
    })
    .exits(&[5, 7]),
];

fn compare() -> Answer {
    Answer::Compare { layout: Layout::on(OstId(0)) }
}

/// Asks an honest source for the checksums of its large file; its number.
fn ask_for_sums(peer: &mut Peer) -> Told<EntryId> {
    let id = peer.large_file().id;
    peer.say(&Message::FileId(vec![(id, compare())]))?;
    Ok(id)
}

/// Announces a file that is at the target already, and hears that its checksums are wanted.
fn offer_to_compare(peer: &mut Peer) -> Told {
    peer.announce(&[file(1, "a", SIZE as u64)])?;
    match peer.expect_answer(1)? {
        Answer::Compare { .. } => Ok(()),
        answer => wrong(format!("a file of the same size is answered by {answer:?}")),
    }
}

fn first_block() -> Frame {
    Frame::of(1, 0, &content_of(b"a", SIZE)[..64 << 10])
}

/// Sends the checksums of all of it, changed so, and vouches for it.
fn send_sums(peer: &mut Peer, change: u64) -> Told {
    let content = content_of(b"a", SIZE);
    for (block, bytes) in (0..).zip(content.chunks(64 << 10)) {
        let frame = Frame::of(1, block * (64 << 10), bytes).only_sums();
        peer.send(0, &frame.with(|frame| frame.rows[0].checksum ^= change))?;
    }
    if change == 0 {
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Complete)]))?;
    }
    Ok(())
}
