//! Counts and floods: memory must not grow with what a peer says (rsync CVE-2026-70453 and -70455,
//! hash chains and threads of the peer's choosing; rclone #7974, memory by the object).

use super::metadata::begins_on;
use crate::case::Case;
use crate::entries::{Changed, directory, file, with_xattr};
use crate::peer::{Opening, Peer, Told};
use lads_core::entry::Entry;
use lads_core::issue::{Failure, Issue, Operation, Reason, Side};
use lads_core::message::{Counters, Ending, Line, Message, OstBytes, Root, Verb};
use lads_core::units::EntryId;
use std::time::{Duration, Instant};

/// Entries in one message of a flood.
const BATCH: u64 = 4096;

/// A flood that may take its time lasts no longer.
const FLOOD_DURATION: Duration = Duration::from_secs(5);

/// What is said for the person may be shown as far as it goes; then something ends it.
const SHOWN: &[i32] = &[1, 3, 5, 6, 8, 9];

pub(super) const CASES: &[Case] = &[
    Case::source("attributes_of_a_mebibyte_for_600_files", |peer| {
        let value = vec![7; 1 << 20];
        flood(peer, 600, 8, |id| {
            with_xattr(file(id, format!("f{id}"), 300 << 10), "user.a", &value)
        })
    }),
    Case::source("directories_that_never_end", |peer| {
        flood(peer, 100_000, BATCH, |id| directory(id, format!("d{id}")))
    }),
    Case::source("files_that_never_come", |peer| {
        flood(peer, 1_000_000, BATCH, |id| file(id, format!("f{id}"), 300 << 10))
    }),
    Case::source("source_osts_by_the_million", |peer| {
        flood(peer, 1_000_000, BATCH, |id| {
            let ost = u32::try_from(id * 4000 % u64::from(u32::MAX)).unwrap();
            file(id, format!("f{id}"), 9).with(|entry| begins_on(entry, ost))
        })
    }),
    Case::source("roots_by_the_million", |peer| {
        let root = Root { name: b"a".to_vec(), is_directory: true, is_contents_only: true };
        peer.say(&Message::Roots(vec![root; 300_000]))
    })
    .at(Opening::Connected)
    .exits(&[5]),
    Case::source("issues_by_the_million", |peer| again(peer, 200, &issues())).exits(SHOWN).flood(),
    Case::sink("issues_by_the_million_from_a_sink", |peer| again(peer, 200, &issues()))
        .exits(SHOWN)
        .flood(),
    Case::source("lines_by_the_million", |peer| again(peer, 200, &lines())).exits(SHOWN).flood(),
    Case::source("notices_by_the_mebibyte", |peer| {
        again(peer, 300, &Message::Notice("n".repeat(1 << 20)))
    })
    .exits(SHOWN)
    .flood(),
    Case::source("progress_for_ever", |peer| {
        let counters =
            Counters { bytes_done: u64::MAX, files_found: u64::MAX, ..Counters::default() };
        again(peer, 300_000, &Message::Progress(counters))
    })
    .exits(SHOWN)
    .flood(),
    Case::sink("progress_for_ever_from_a_sink", |peer| {
        let counters =
            Counters { bytes_done: u64::MAX, bytes_sent: u64::MAX, ..Counters::default() };
        again(peer, 300_000, &Message::Progress(counters))
    })
    .exits(SHOWN)
    .flood(),
    Case::source("osts_by_the_million", |peer| {
        let bytes = vec![u64::MAX; 1_000_000];
        again(peer, 10, &Message::OstBytes(OstBytes { elapsed_micros: u64::MAX, bytes }))
    })
    .exits(SHOWN)
    .flood(),
    Case::source("endings_of_what_is_unknown", |peer| {
        peer.say(&Message::FileDone(
            (500..1000).map(|id| (EntryId(id), Ending::Complete)).collect(),
        ))
    }),
    Case::source("endings_of_one_directory_for_ever", |peer| {
        peer.announce(&[directory(1, "d")])?;
        peer.expect_answer(1)?;
        let endings = vec![(EntryId(1), Ending::Complete); 100_000];
        again(peer, 200, &Message::FileDone(endings))
    })
    .exits(&[5])
    .flood(),
    Case::source("endings_of_one_file_for_ever", |peer| {
        peer.deliver(&file(1, "a", 9), 0)?;
        let endings = vec![(EntryId(1), Ending::Dropped); 100_000];
        again(peer, 200, &Message::FileDone(endings))
    })
    .exits(&[5])
    .flood(),
    Case::source("stage_of_all_ones", |peer| {
        peer.say(&Message::Staged(u64::MAX))?;
        peer.say(&Message::Staged(u64::MAX))?;
        peer.deliver(&file(1, "a", 9), 0)?;
        peer.finish()
    })
    .exits(&[0, 5])
    .arrives(&[("a", 9)]),
    Case::source("frames_of_65536_streams", |peer| {
        peer.say(&Message::Frames(vec![u64::MAX; 65_536]))?;
        again(peer, 200, &Message::Frames(vec![1; 65_536]))
    })
    .exits(&[5]),
    Case::source("frames_that_were_never_sent", |peer| {
        peer.say(&Message::Frames(vec![u64::MAX; 2]))?;
        peer.stay_alive(true)
    })
    .options(&["--stall-timeout", "3"])
    .exits(&[5]),
];

/// Announces entries without ever ending one, as many to a message as `batch`.
fn flood(peer: &mut Peer, count: u64, batch: u64, entry: impl Fn(u64) -> Entry) -> Told {
    let mut id = 1;
    while id <= count {
        let end = (id + batch).min(count + 1);
        peer.say(&Message::NewFile((id..end).map(&entry).collect()))?;
        id = end;
    }
    Ok(())
}

/// Says the same again and again, until the honest end has had enough time to drown. One that
/// reads no faster than it can show what it reads is right to take its time.
fn again(peer: &mut Peer, count: u32, message: &Message) -> Told {
    let until = Instant::now() + FLOOD_DURATION;
    (0..count).take_while(|_| Instant::now() < until).try_for_each(|_| peer.say(message))
}

fn issues() -> Message {
    let failure = Failure::new(Side::Sink, Operation::Write, Reason::Os(5));
    Message::Issues(vec![Issue { path: b"a\x1b[2Jb".to_vec(), failure }; 10_000])
}

fn lines() -> Message {
    Message::Lines(vec![Line { verb: Verb::Send, path: b"a\x1b[2Jb".to_vec(), bytes: 1 }; 10_000])
}
