#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a simulation of small numbers"
)]

use super::*;
use expect_test::expect;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const MIB: u64 = 1 << 20;
const MOST: u32 = 128;
/// Requests of each file.
const FILE_REQUESTS: u32 = 8;

/// Storage that does not tell how it is built. Each OST serves requests one after the other.
#[derive(Clone, Copy, Debug)]
struct Storage {
    osts: usize,
    /// Of each OST.
    bytes_per_second: f64,
    /// What a request costs that does not follow the one before.
    seek: f64,
    /// With more requests in flight than this, each takes twice as long.
    knee: u32,
    latency: f64,
    /// A request takes longer or shorter by up to this part.
    noise: f64,
    /// For some seconds at a time, everything takes longer by up to this part.
    gusts: f64,
}

const HIDDEN_8: Storage = Storage {
    osts: 8,
    bytes_per_second: 25e6,
    seek: 0.0,
    knee: u32::MAX,
    latency: 0.001,
    noise: 0.0,
    gusts: 0.0,
};
const HIDDEN_32: Storage = Storage { osts: 32, bytes_per_second: 12.5e6, ..HIDDEN_8 };
const DISK: Storage = Storage { osts: 1, bytes_per_second: 100e6, seek: 0.008, ..HIDDEN_8 };
const KNEE: Storage = Storage { osts: 2, bytes_per_second: 100e6, knee: 8, ..HIDDEN_8 };
const SERVER: Storage = Storage { osts: 1, bytes_per_second: 400e6, ..HIDDEN_8 };

/// A file under way.
#[derive(Clone, Copy, Debug)]
struct Track {
    file: u64,
    ost: usize,
    left: u32,
    is_busy: bool,
}

/// An end that reads from such storage.
struct World {
    storage: Storage,
    /// `None`: the number of requests is fixed.
    matching: Option<Matching>,
    limit: u32,
    now: f64,
    free_at: Vec<f64>,
    last_file: Vec<u64>,
    tracks: Vec<Track>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    files: u64,
    chance: u64,
    in_flight: u32,
    requests: u64,
    /// When each number of requests began to hold.
    log: Vec<(f64, u32)>,
}

impl World {
    fn new(storage: Storage, limit: u32, is_matching: bool, seed: u64) -> Self {
        let mut world = Self {
            storage,
            matching: is_matching.then(|| Matching::new(&Tuning::DEFAULT, limit)),
            limit,
            now: 0.0,
            free_at: vec![0.0; storage.osts],
            last_file: vec![0; storage.osts],
            tracks: Vec::new(),
            ends: BinaryHeap::new(),
            files: 0,
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            in_flight: 0,
            requests: 0,
            log: vec![(0.0, limit)],
        };
        for _ in 0..MOST.min(limit) {
            let track = world.next_file();
            world.tracks.push(track);
        }
        world
    }

    fn chance(&mut self) -> f64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next_file(&mut self) -> Track {
        self.files += 1;
        let ost = (self.chance() * self.storage.osts as f64) as usize;
        Track { file: self.files, ost, left: FILE_REQUESTS, is_busy: false }
    }

    fn change(&mut self, storage: Storage) {
        self.storage = storage;
        self.free_at.resize(storage.osts, self.now);
        self.last_file.resize(storage.osts, 0);
        for index in 0..self.tracks.len() {
            let ost = (self.chance() * storage.osts as f64) as usize;
            self.tracks[index].ost = ost;
        }
    }

    fn run(&mut self, until: f64) {
        loop {
            self.start_all();
            let Some(Reverse((micros, index))) = self.ends.pop() else { return };
            if micros as f64 / 1e9 > until {
                self.ends.push(Reverse((micros, index)));
                self.now = until;
                return;
            }
            self.now = micros as f64 / 1e9;
            self.finish(index);
        }
    }

    fn start_all(&mut self) {
        while self.in_flight < self.limit {
            let Some(index) = self.tracks.iter().position(|track| !track.is_busy) else { return };
            self.start(index);
        }
    }

    fn start(&mut self, index: usize) {
        let Storage { bytes_per_second, seek, knee, latency, noise, gusts, .. } = self.storage;
        let Track { file, ost, .. } = self.tracks[index];
        self.tracks[index].is_busy = true;
        self.in_flight += 1;
        let gust = 1.0 + gusts * (self.now / 3.0 + (self.now / 7.0).sin()).sin();
        let noise = 1.0 + noise * (2.0 * self.chance() - 1.0);
        let mut service = MIB as f64 / bytes_per_second * noise * gust;
        if self.last_file[ost] != file {
            service += seek;
        }
        if self.in_flight > knee {
            service *= 2.0;
        }
        self.last_file[ost] = file;
        let ends = self.free_at[ost].max(self.now) + service;
        self.free_at[ost] = ends;
        self.ends.push(Reverse((((ends + latency) * 1e9) as u64, index)));
    }

    fn finish(&mut self, index: usize) {
        let track = &mut self.tracks[index];
        track.is_busy = false;
        track.left -= 1;
        if track.left == 0 {
            self.tracks[index] = self.next_file();
        }
        self.requests += 1;
        if let Some(matching) = &mut self.matching {
            let now = Instant::after_start(Duration::from_secs_f64(self.now));
            matching.on_finish(now, MIB, self.in_flight, true);
            let limit = matching.limit();
            if limit != self.limit {
                self.log.push((self.now, limit));
            }
            self.limit = limit;
        }
        self.in_flight -= 1;
    }
}

/// The requests that are complete after a time, with a fixed number in flight.
fn fixed(storage: Storage, limit: u32, seconds: f64) -> f64 {
    let mut world = World::new(storage, limit, false, 7);
    world.run(seconds);
    world.requests as f64
}

/// Requests from one moment to another.
fn served(world: &mut World, seconds: f64) -> f64 {
    let before = world.requests;
    let until = world.now + seconds;
    world.run(until);
    (world.requests - before) as f64
}

fn best_fixed(storage: Storage, seconds: f64) -> f64 {
    (0..8).map(|power| fixed(storage, 1 << power, seconds)).fold(0.0, f64::max)
}

fn noisy(storage: Storage) -> Storage {
    Storage { noise: 0.2, ..storage }
}

/// The share of a time in which a number of requests held.
fn share_at(world: &World, limit: u32, from: f64, until: f64) -> f64 {
    let ends = world.log.iter().skip(1).map(|(at, _)| *at).chain([until]);
    let spans = world.log.iter().zip(ends).filter(|((_, held), _)| *held == limit);
    let time: f64 =
        spans.map(|((began, _), end)| (end.min(until) - began.max(from)).max(0.0)).sum();
    time / (until - from)
}

#[test]
fn where_the_guess_is_right_next_to_nothing_is_lost() {
    for storage in [HIDDEN_8, HIDDEN_32, SERVER].into_iter().flat_map(|it| [it, noisy(it)]) {
        let (mut matched, mut plain, mut share) = (0.0, 0.0, 0.0);
        for seed in 1..=40 {
            let mut world = World::new(storage, MOST, true, seed);
            matched += served(&mut world, 60.0);
            share += share_at(&world, MOST, 0.0, 60.0) / 40.0;
            plain += served(&mut World::new(storage, MOST, false, seed), 60.0);
        }
        assert!(matched / plain > 0.985, "{} of {storage:?}", matched / plain);
        assert!(share > 0.8, "{share} of the time on {storage:?}");
    }
}

/// Checks the figures of docs/decisions/25-matching-requests.md and of the numbers of policy.
#[test]
fn the_rates_of_the_page() {
    let mut rows = String::new();
    let storages = [HIDDEN_8, HIDDEN_32, SERVER, DISK, KNEE];
    for storage in storages.map(noisy) {
        let rate = |is_matching| {
            let world = |seed| World::new(storage, MOST, is_matching, seed);
            (1..=100).map(|seed| served(&mut world(seed), 60.0)).sum::<f64>() / 100.0
        };
        let (plain, matched) = (rate(false), rate(true));
        let best = best_fixed(storage, 60.0);
        rows += &format!("{:.0} {:.1}\n", 100.0 * best / plain, 100.0 * matched / plain);
    }
    expect![[r#"
        102 99.4
        99 99.4
        100 99.7
        148 140.6
        182 155.5
    "#]]
    .assert_eq(&rows);
}

#[test]
fn one_disk_gets_one_request_at_a_time_within_15_seconds_and_keeps_it() {
    for storage in [DISK, noisy(DISK)] {
        for seed in 1..=20 {
            let mut world = World::new(storage, MOST, true, seed);
            world.run(15.0);
            let matched = served(&mut world, 105.0);
            let share = share_at(&world, 1, 15.0, 120.0);
            assert!(share > 0.95, "{share} of the time, seed {seed}");
            let best = fixed(storage, 1, 105.0);
            assert!(matched > 0.97 * best, "{matched} of {best}, seed {seed}");
        }
    }
}

#[test]
fn a_server_that_is_slower_with_many_requests_gets_few() {
    for storage in [KNEE, noisy(KNEE)] {
        let (best, guess) = (best_fixed(storage, 105.0), fixed(storage, MOST, 105.0));
        let mut sum = 0.0;
        for seed in 1..=40 {
            let mut world = World::new(storage, MOST, true, seed);
            world.run(15.0);
            sum += served(&mut world, 105.0) / 40.0;
        }
        assert!(guess < 0.6 * best && sum > 0.85 * best, "{sum} of {best}, not {guess}");
    }
}

#[test]
fn a_change_is_followed_within_15_seconds() {
    for seed in 1..=20 {
        let mut world = World::new(noisy(HIDDEN_8), MOST, true, seed);
        world.run(60.0);
        world.change(noisy(DISK));
        world.run(120.0);
        assert!(share_at(&world, 1, 75.0, 120.0) > 0.95, "seed {seed}: {:?}", world.log);
        world.change(noisy(HIDDEN_8));
        world.run(200.0);
        assert!(share_at(&world, MOST, 135.0, 200.0) > 0.85, "seed {seed}: {:?}", world.log);
    }
}

#[test]
fn nothing_is_tried_while_storage_does_not_limit_this_end() {
    let mut matching = Matching::new(&Tuning::DEFAULT, MOST);
    for request in 0..100_000 {
        let now = Instant::after_start(Duration::from_millis(request));
        matching.on_finish(now, MIB, 20, request % 4 == 0);
        assert_eq!(matching.limit(), MOST);
    }
}

#[test]
fn requests_that_hang_do_not_keep_all_others_waiting() {
    let mut world = World::new(DISK, MOST, true, 1);
    world.run(20.0);
    let matching = world.matching.as_mut().unwrap();
    assert_eq!((matching.home(), matching.reason().0), (1, Why::Less));
    assert!(matching.reason().1 > 1.4, "{:?}", matching.reason());
    let at = matching.next_timeout().expect("not all may begin");
    matching.on_time(at);
    assert_eq!((matching.limit(), matching.reason()), (MOST, (Why::More, 1.0)));
    assert_eq!(matching.next_timeout(), None);
}
