//! Worlds that are run with every change: a few hundred fixed ones, some that nobody has seen
//! before, and those that once broke a promise.
//!
//! A world that fails prints its seed and what happened in it; `cargo xtask sim SEED` runs it
//! again.
//! What a seed means changes when the simulator draws its choices otherwise; a failing seed is
//! still worth keeping, because its story says what to draw.

use lads_sim::Stats;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Worlds with the troubles that earlier seeds do not have.
const TROUBLED: Range<u64> = 50_000..50_300;

fn check(seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        if let Err(failure) = lads_sim::run(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn promises_are_kept_in_fixed_worlds() {
    check(0..250);
}

/// The worlds above would say nothing about stages if they had none, or none that failed.
#[test]
fn stages_are_used_and_fail() {
    let stats: Vec<_> = (0..200).map(|seed| lads_sim::run(seed).unwrap()).collect();
    assert!(stats.iter().filter(|stats| stats.blocks_staged > 0).count() >= 15);
    assert!(stats.iter().filter(|stats| stats.stage_faults > 0).count() >= 4);
}

/// Where ends fall silent, calls never return, and files get their names in several steps.
#[test]
fn promises_are_kept_in_troubled_worlds() {
    check(TROUBLED);
}

/// The worlds above would say nothing if they had no such troubles.
#[test]
fn worlds_are_troubled() {
    let stats: Vec<_> = TROUBLED.map(|seed| lads_sim::run(seed).unwrap()).collect();
    let count = |is_so: fn(&Stats) -> bool| stats.iter().filter(|stats| is_so(stats)).count();
    assert!(count(|stats| stats.silences > stats.thaws) >= 10, "ends that are given up");
    assert!(count(|stats| stats.thaws > 0) >= 10, "ends that go on");
    assert!(count(|stats| stats.hangs > 0) >= 10, "calls that never return");
    assert!(count(|stats| stats.renames_lost > 0) >= 2, "renames that were not durable");
}

#[test]
fn promises_are_kept_in_worlds_never_seen_before() {
    let first = RandomState::new().hash_one("lads-sim");
    println!("first seed: {first}");
    let until = Instant::now() + Duration::from_secs(10);
    check((0..50).map(|step| first.wrapping_add(step)).take_while(|_| Instant::now() < until));
}

#[test]
fn the_same_seed_makes_the_same_world() {
    for seed in 0..20 {
        assert_eq!(lads_sim::run(seed).unwrap(), lads_sim::run(seed).unwrap(), "seed {seed}");
    }
}

/// The sink has the source's word before it has said that the last blocks are done, and reads the
/// file back at once: a block may rot before it is said to be done.
#[test]
fn a_file_may_rot_before_its_last_blocks_are_said_to_be_done() {
    check([2270, 300_091, 301_479, 303_119, 303_406]);
}

/// A stop that found nothing under way was never answered: the check for it ran only after what
/// threads had done, not after the message that asked to stop.
#[test]
fn a_stop_is_answered_when_nothing_is_under_way() {
    check([19, 67, 109]);
}

/// The same when the last frame under way held nothing that was still wanted.
#[test]
fn a_stop_is_answered_after_a_frame_of_nothing() {
    check([950, 2544]);
}

/// A file that changed while it moved was announced again while an I/O thread still had to drop
/// what there was of it: by path, and so also what the new entry had begun.
#[test]
fn a_file_begins_anew_only_after_what_there_was_of_it_is_dropped() {
    check([31, 383]);
}

/// An empty directory was closed while another thread was still making it.
#[test]
fn a_directory_is_closed_only_after_it_was_made() {
    check([16, 32, 34, 46, 98, 128]);
}

/// Bytes of further names, of changed files and of blocks sent again were found or done twice.
#[test]
fn no_byte_is_counted_twice() {
    check([1, 3, 33, 50, 129, 154]);
}

/// A block that was on record twice was asked for twice, and one copy was still being written when
/// the file got its name.
#[test]
fn a_block_is_asked_for_once() {
    check([129, 4126]);
}

/// Blocks sent again did not count as those of an open file.
#[test]
fn no_more_files_are_open_than_may_be() {
    check([2269]);
}

/// What rotted was kept for another attempt, which failed the same way.
#[test]
fn what_rotted_is_not_kept() {
    check([836]);
}

/// A FORGET that was not durable let a new file under the old temporary name pass for what was on
/// record before.
#[test]
fn what_is_forgotten_stays_forgotten() {
    check([7375, 7637, 16797]);
}

/// The sink stopped, and the source, which had just sent FINISH, took it for finished.
#[test]
fn a_stop_is_not_taken_for_the_end() {
    check([12328, 16144, 39697]);
}

/// Files that were open waited in an OST's queue behind 64 files that must not be opened before
/// those were closed.
#[test]
fn open_files_do_not_wait_for_files_that_are_not() {
    check([6386]);
}

/// A first name was replaced by another file while it moved, and the further names of the old file
/// were linked to the new one.
#[test]
fn further_names_are_linked_to_their_own_file() {
    check([211]);
}

/// Without a journal, blocks of a file that was dropped to be placed again were still said to be
/// done after it was gone.
#[test]
fn nothing_is_said_to_be_done_of_a_file_that_is_gone() {
    check([1_795_325_216_970]);
}

/// A write hung until the end, of a file that was dropped meanwhile to be placed again: the
/// transfer ends without it, and the check of the books missed its buffer.
#[test]
fn a_write_that_hangs_keeps_its_buffer_when_all_else_has_ended() {
    check([7_101_759]);
}

/// A frame that waited in the sink's stage went to another OST, for its part of the file had got an
/// extent there: the simulator counted what is staged by the OST that it was for.
#[test]
fn what_is_staged_of_a_file_that_grows_may_go_elsewhere() {
    check([9_300_929]);
}

/// A thread that frees a buffer asks nothing of storage, and the simulator had it hang.
#[test]
fn a_thread_that_only_frees_a_buffer_does_not_hang() {
    check([1_374_289_037_548_787_329]);
}

/// A frame was on its way to the sink's stage, in no queue, while the part of the file that it
/// belongs to got an extent on another OST. It was written for the OST that it had waited for.
#[test]
fn a_frame_on_its_way_to_the_stage_goes_where_its_file_has_grown() {
    check([77_020_714, 78_004_420]);
}

/// A stream was lost while a frame was sent, after its head had arrived. The source used the grant
/// for another frame before the sink had seen the end of the stream, and the sink refused a frame
/// that was not granted.
#[test]
fn a_grant_is_not_used_again_while_the_head_of_a_lost_frame_may_arrive() {
    check([77_042_513]);
}

/// The simulated file system gave a file that was placed again an extent although the session had
/// closed growing, or the simulated sink had asked for the file before without reason.
#[test]
fn a_file_that_cannot_grow_is_placed_again_once() {
    check([77_000_708, 77_003_061, 77_006_492]);
}

/// A thread that waited for an answer of one that never returned looked for it again and again, and
/// the simulator took this for a transfer that does not end.
#[test]
fn a_removal_waits_for_a_call_that_never_returns_until_it_is_killed() {
    check([77_048_240]);
}

/// Lanes of which nothing was left stood before the only one that could be read, and the simulator
/// did not count them.
#[test]
fn lanes_of_which_nothing_is_left_count_for_the_lookahead() {
    check([77_024_359]);
}

/// Buffers of a dropped file were still being freed when everything had ended, and the simulator
/// took only its writes to be harmless.
#[test]
fn buffers_of_a_dropped_file_may_be_freed_after_all_has_ended() {
    check([90_001_865]);
}
