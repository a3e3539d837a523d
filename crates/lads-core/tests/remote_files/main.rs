//! Clients of remote files and a server, on one thread, in any order: what a seed chooses.
//!
//! The real [`Server`](lads_core::remote::server::Server) and
//! [`scatter`](lads_core::remote::scatter::scatter) decide; clients, network and disk are
//! simulated. Messages and frames overtake each other, storage does its work in any order and may
//! fail, a connection may be lost at any time, and the server may crash. Bytes are not simulated: a
//! byte of a file holds the number of the write that put it there, so that nothing can be mixed up
//! unnoticed.
//!
//! What is checked: a read sees the client's own earlier writes and no later one; each frame and
//! each request is answered once, with what has become of it; all that is asked for is done; after
//! a crash a byte is what was synced, or what was written later.
//!
//! A seed that fails is printed; it is run again by a test that calls `run` with it.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod client;
mod disk;
mod rng;
mod server;
mod world;

use std::hash::{BuildHasher, RandomState};
use std::panic::catch_unwind;
use world::{Stats, World};

fn run(seed: u64) -> Stats {
    catch_unwind(|| World::new(seed).run()).unwrap_or_else(|_| panic!("seed {seed} failed"))
}

fn sum(seeds: impl IntoIterator<Item = u64>) -> Stats {
    seeds.into_iter().map(run).fold(Stats::default(), Stats::plus)
}

#[test]
fn promises_are_kept_in_fixed_worlds() {
    let stats = sum(0..1500);
    // The worlds would say nothing if nothing happened in them.
    let Stats { writes, failures, reads, syncs, refusals, losses, crashes, overtakings } = stats;
    let counts = [writes, failures, reads, syncs, refusals, losses, crashes, overtakings];
    assert!(counts.iter().all(|&count| count >= 100), "{stats:?}");
}

#[test]
fn promises_are_kept_in_worlds_never_seen_before() {
    let first = RandomState::new().hash_one("remote files");
    sum((0..300).map(|step| first.wrapping_add(step)));
}

#[test]
fn the_same_seed_makes_the_same_world() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
