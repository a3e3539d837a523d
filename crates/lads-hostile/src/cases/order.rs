//! Messages that have no meaning where they come, or not from this side.

use crate::case::Case;
use crate::entries::{below, directory, file};
use crate::frame::Frame;
use crate::peer::{Opening, Peer, Told, hello, listens, root, want};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::message::{BlockRange, Counters, Ending, Message};
use lads_core::room::Lot;
use lads_core::units::{EntryId, OstId};

pub(super) const CASES: &[Case] = &[
    Case::source("finish_before_roots", |peer| peer.say(&Message::Finish { is_complete: true }))
        .at(Opening::Connected),
    Case::source("new_file_before_roots", |peer| {
        peer.say(&Message::NewFile(vec![file(1, "a", 9)]))
    })
    .at(Opening::Connected)
    .served_too(),
    Case::source("finish_with_a_file_open", |peer| {
        peer.offer(&file(1, "a", 9))?;
        peer.say(&Message::Finish { is_complete: true })
    })
    .served_too(),
    Case::source("finish_with_a_directory_open", |peer| {
        peer.announce(&[directory(1, "d")])?;
        peer.expect_answer(1)?;
        peer.say(&Message::Finish { is_complete: true })
    })
    .exits(&[0, 5]),
    Case::source("finish_twice", |peer| {
        peer.say(&Message::Finish { is_complete: true })?;
        peer.say(&Message::Finish { is_complete: true })
    })
    .exits(&[0, 5]),
    Case::source("new_file_after_finish", |peer| {
        peer.say(&Message::Finish { is_complete: true })?;
        peer.say(&Message::NewFile(vec![file(1, "../canary/new", 9), file(2, "b", 9)]))
    })
    .exits(&[0, 5]),
    Case::source("roots_twice", |peer| peer.say(&Message::Roots(vec![root()]))).served_too(),
    Case::source("hello_twice", |peer| peer.say(&Message::Hello(hello()))),
    Case::source("job_in_the_middle", |peer| {
        let job = peer.job().to_vec();
        peer.say(&Message::Job(job))
    })
    .served_too(),
    Case::source("listen_in_the_middle", |peer| {
        peer.say(&listens("127.0.0.1".to_owned(), 1, vec![[0; 32]]))
    }),
    Case::source("source_says_ready", |peer| {
        peer.say(&Message::Ready {
            ost_count: 1,
            open_files_max: 1,
            is_renamed: false,
            time_unit_nanos: 1,
        })
    }),
    Case::source("source_says_file_id", |peer| {
        peer.say(&Message::FileId(vec![(EntryId(1), want(OstId(0)))]))
    }),
    Case::source("source_says_grant", |peer| {
        peer.say(&Message::Grant(Lot::of(vec![(OstId(0), u32::MAX)])))
    }),
    Case::source("source_says_block_done", |peer| peer.say(&Message::BlockDone(vec![range()]))),
    Case::source("source_says_block_bad", |peer| peer.say(&Message::BlockBad(vec![range()]))),
    Case::source("source_says_stream_end", |peer| {
        peer.say(&Message::StreamEnd { stream: 0, frames: 0 })
    }),
    Case::source("source_says_stream_end_of_no_stream", |peer| {
        peer.say(&Message::StreamEnd { stream: u16::MAX, frames: u64::MAX })
    }),
    Case::source("source_says_place_again", |peer| {
        peer.say(&Message::PlaceAgain(vec![EntryId(1)]))
    }),
    Case::source("source_says_finished", |peer| peer.say(&Message::Finished(Counters::default()))),
    Case::source("source_ends_a_file_as_failed", |peer| {
        peer.offer(&file(1, "a", 9))?;
        let failure = Failure::new(Side::Source, Operation::Read, Reason::Os(5));
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Failed(failure))]))
    }),
    Case::source("directory_ends_before_what_is_in_it", |peer| {
        let inner = below(1, file(2, "x", 9));
        peer.announce(&[directory(1, "d")])?;
        peer.offer(&inner)?;
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Complete)]))?;
        peer.expect_ending(1)?;
        peer.say(&Message::Finish { is_complete: true })
    })
    .exits(&[5]),
    Case::source("file_is_complete_without_data", |peer| {
        peer.offer(&file(1, "a", 300 << 10))?;
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Complete)]))?;
        peer.say(&Message::Finish { is_complete: true })
    })
    .served_too(),
    Case::source("file_is_complete_before_it_is_answered", |peer| {
        let ending = (EntryId(1), Ending::Complete);
        peer.announce(&[file(1, "a", 300 << 10)])?;
        peer.say(&Message::FileDone(vec![ending]))?;
        peer.say(&Message::Finish { is_complete: true })
    })
    .served_too(),
    Case::source("file_is_complete_with_half_its_data", |peer| {
        let half = file(1, "a", 128 << 10);
        peer.offer(&half)?;
        peer.send(0, &Frame::of(1, 0, &crate::entries::content_of(b"a", 64 << 10)))?;
        peer.say(&Message::FileDone(vec![(EntryId(1), Ending::Complete)]))?;
        peer.say(&Message::Finish { is_complete: true })
    })
    .served_too(),
    Case::source("stop_at_once", |peer| peer.say(&Message::Stop("\x1b[2J".repeat(1000))))
        .exits(&[5, 9]),
    Case::source("stop_and_go_on", |peer| {
        peer.say(&Message::Stop(String::new()))?;
        peer.say(&Message::NewFile(vec![file(1, "a", 9)]))?;
        peer.say(&Message::Finish { is_complete: true })
    })
    .exits(&[5, 9]),
    Case::sink("sink_says_roots", |peer| peer.say(&Message::Roots(vec![root()]))),
    Case::sink("sink_says_new_file", |peer| {
        peer.say(&Message::NewFile(vec![file(1, "../canary/new", 9)]))
    })
    .served_too(),
    Case::sink("sink_says_finish", |peer| peer.say(&Message::Finish { is_complete: true })),
    Case::sink("sink_says_job", |peer| peer.say(&Message::Job(vec![0; 100]))),
    Case::sink("sink_says_staged", |peer| peer.say(&Message::Staged(1))),
    Case::sink("sink_says_hello_twice", |peer| peer.say(&Message::Hello(hello()))),
    Case::sink("ready_twice", |peer| ready(peer, 1, 100)).exits(&[5]),
    Case::sink("ready_of_no_osts", |peer| ready(peer, 0, 100)).at(Opening::Connected).exits(&[5]),
    Case::sink("ready_of_all_osts", |peer| ready(peer, u32::MAX, u32::MAX))
        .at(Opening::Connected)
        .exits(&[5]),
    Case::sink("ready_of_no_files", |peer| ready(peer, 1, 0)).at(Opening::Connected).exits(&[5]),
    Case::sink("ready_of_times_in_units_of_four_seconds", |peer| {
        let time_unit_nanos = u32::MAX;
        let (ost_count, open_files_max, is_renamed) = (1, 100, false);
        peer.say(&Message::Ready { ost_count, open_files_max, is_renamed, time_unit_nanos })
    })
    .at(Opening::Connected)
    .exits(&[5]),
    Case::sink("a_new_name_for_a_tree", |peer| {
        peer.say(&Message::Ready {
            ost_count: 1,
            open_files_max: 1,
            is_renamed: true,
            time_unit_nanos: 1,
        })
    })
    .at(Opening::Connected),
    Case::sink("answers_before_it_is_ready", |peer| {
        peer.say(&Message::FileId(vec![(EntryId(1), want(OstId(0)))]))
    })
    .at(Opening::Connected),
];

fn range() -> BlockRange {
    BlockRange { entry: EntryId(1), offset: 0, length: 1 }
}

fn ready(peer: &mut Peer, ost_count: u32, open_files_max: u32) -> Told {
    peer.say(&Message::Ready { ost_count, open_files_max, is_renamed: false, time_unit_nanos: 1 })
}
