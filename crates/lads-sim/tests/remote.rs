//! Worlds of remote files: fixed ones, some that were never run before, and those that once broke a
//! promise.
//!
//! `lads-sim --remote SEED --trace` prints everything that happens in a world.

use lads_sim::remote::{Stats, run};
use std::hash::{BuildHasher, RandomState};

fn sum(seeds: impl IntoIterator<Item = u64>) -> Stats {
    let world = |seed| run(seed).unwrap_or_else(|failure| panic!("{failure}"));
    seeds.into_iter().map(world).fold(Stats::default(), Stats::plus)
}

/// The minimum number of events of each kind.
const EVENTS_MIN: u64 = 50;

#[test]
fn promises_are_kept_in_fixed_worlds_where_everything_happens() {
    let stats = sum(0..3000);
    let rare: Vec<_> = stats.all().into_iter().filter(|(_, count)| *count < EVENTS_MIN).collect();
    assert!(rare.is_empty(), "{rare:?} of {stats:?}");
}

#[test]
fn promises_are_kept_in_worlds_never_seen_before() {
    let first = RandomState::new().hash_one("remote files");
    println!("first seed: {first}");
    sum((0..1000).map(|step| first.wrapping_add(step)));
}

#[test]
fn the_same_seed_makes_the_same_world() {
    for seed in 0..50 {
        assert_eq!(sum([seed]), sum([seed]), "seed {seed}");
    }
}

/// A frame that was refused arrived again after its client had asked for the file to be closed, and
/// failed with `EBADF`.
#[test]
fn a_file_is_closed_after_its_refused_frames() {
    sum([14, 34, 103, 195]);
}

/// Bytes that were read for a client that was gone were not sent to it, and the server kept its
/// locks.
#[test]
fn a_client_that_is_gone_is_forgotten() {
    sum([18, 22, 47, 227]);
}

/// A view of a file that was closed before was set again although the file was not opened again.
#[test]
fn a_file_that_was_closed_is_opened_again_for_what_is_not_answered() {
    sum([800_385, 819_401]);
}

/// A write that was on its way to the disk took the place of a later one that was lost.
#[test]
fn what_is_lost_stays_lost_after_an_earlier_write() {
    sum([10_071_240]);
}

/// A chunk that lay before what another process had written and not sent ended at the end of the
/// file, and the chunk behind it was not asked for.
#[test]
fn a_read_does_not_end_before_what_is_announced() {
    sum([3_059_062]);
}

/// A view was forgotten before its frame came, at the second server that was started again.
#[test]
fn a_view_is_forgotten_after_its_frames_at_each_server() {
    sum([11_722]);
}

/// The server before had given the lock to another client, and had not said so.
#[test]
fn a_lock_is_given_back_once_although_the_server_was_started_again() {
    sum([351_043]);
}

/// The server could not open the file again, and gave the lock to another client. The client learns
/// of it with its next call for this file.
#[test]
fn the_lock_of_a_file_that_cannot_be_opened_again_is_lost() {
    sum([1_795_973_785_405]);
}
