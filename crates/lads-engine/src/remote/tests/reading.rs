//! What is read ahead, and what is kept of what was read.

use super::*;
use std::sync::Barrier;

/// Numbers that a seed chooses (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

impl Place {
    /// A client with this memory for what is read, in MiB, and with as much of a disk.
    fn keeping(&self, memory: u64, disk: u64) -> Client {
        let directory = self.directory.path().to_owned();
        let cache = ReadCacheOptions { directory, bytes_max: disk << 20 };
        let read_cache = (disk > 0).then_some(cache);
        let read_bytes = memory << 20;
        let options = ClientOptions { read_bytes, read_cache, ..ClientOptions::default() };
        Client::connect(&self.at, &self.token, &options).unwrap()
    }

    pub(super) fn make(&self, name: &str, count: usize) -> Vec<u8> {
        let bytes = some_bytes(count);
        std::fs::write(self.path(name), &bytes).unwrap();
        bytes
    }
}

fn opened(client: &Client, prefetch: Prefetch) -> FileHandle {
    let file = client.open(b"there", READ_WRITE, GROUP, true).unwrap();
    file.set_prefetch(prefetch);
    file
}

#[test]
fn what_follows_is_read_ahead() {
    let place = Place::new();
    let bytes = place.make("there", 9 * MIB + 77);
    let client = place.client();
    let file = client.open(b"there", READ_WRITE, GROUP, false).unwrap();
    for (index, piece) in bytes.chunks(50_000).enumerate() {
        assert!(read(&file, index as u64 * 50_000, 50_000) == piece, "piece {index}");
    }
    assert!(read(&file, bytes.len() as u64, 10).is_empty());
    let ReadBytes { ahead, kept } = client.read_bytes();
    // On a busy machine, the reader sometimes comes first.
    let all = bytes.len() as u64;
    assert!((all / 2..=all).contains(&ahead) && kept > 0, "{ahead}, {kept}");
}

#[test]
fn with_a_hint_the_beginning_is_read_as_soon_as_the_file_is_open() {
    let place = Place::new();
    let bytes = place.make("there", 20 * MIB);
    let client = place.keeping(8, 0);
    let always = opened(&client, Prefetch::Always);
    // All but one of the chunks that there is room for.
    while client.read_bytes().ahead < 7 << 20 {
        std::thread::yield_now();
    }
    assert!(read(&always, 0, 7 * MIB) == bytes[..7 * MIB]);
    assert_eq!(client.read_bytes().kept, 7 << 20);
    let client = place.keeping(8, 0);
    let never = opened(&client, Prefetch::Never);
    for _ in 0..2 {
        (0..40).for_each(|it| assert_eq!(read(&never, it * 1000, 1000).len(), 1000));
    }
    assert_eq!(client.read_bytes(), ReadBytes { ahead: 0, kept: 40_000 });
}

#[test]
fn what_is_read_again_comes_from_the_disk() {
    let place = Place::new();
    let bytes = place.make("there", 12 * MIB + 5);
    let client = place.keeping(3, 40);
    let file = client.open(b"there", READ_WRITE, GROUP, false).unwrap();
    // Chunks that the disk was too slow for come again.
    loop {
        let before = client.read_bytes().kept;
        for piece in 0..13 {
            let there = read(&file, piece * MIB as u64, MIB);
            let expected = &bytes[usize::try_from(piece).unwrap() * MIB..];
            assert!(there == expected[..MIB.min(expected.len())], "piece {piece}");
        }
        if client.read_bytes().kept == before + bytes.len() as u64 {
            break;
        }
    }
    std::fs::write(place.path("there"), vec![1; 12 * MIB]).unwrap();
    assert!(read(&file, 0, MIB) == bytes[..MIB], "nobody has asked for what is new");
    file.sync().unwrap();
    assert!(read(&file, 0, 20 * MIB) == [1; 12 * MIB]);
}

/// Random reads, writes, views and syncs of one process beside a model of the file.
fn play(seed: u64, memory: u64, disk: u64) {
    const BYTES: usize = 5 * MIB;
    let place = Place::with_layout("synthetic:osts=3,stripe_size=64K");
    let mut there = place.make("there", BYTES);
    let client = place.keeping(memory, disk);
    let prefetch = if seed.is_multiple_of(2) { Prefetch::Auto } else { Prefetch::Always };
    let file = opened(&client, prefetch);
    let mut random = Random(seed * 2 + 1);
    // Every `period` bytes from `start` on, `length`: where a position lies.
    let (mut start, mut length, mut period) = (0, 1, 1);
    for step in 0..400 {
        let place_of = |position: usize| start + position / length * period + position % length;
        let positions = (BYTES - start) / period * length;
        let at = random.below(positions);
        let longest = if random.below(3) == 0 { MIB * 2 } else { 70_000 };
        let count = (random.below(longest) + 1).min(positions - at);
        match random.below(10) {
            0..2 => {
                let value = u8::try_from(step % 256).unwrap();
                file.write(at as u64, &[&vec![value; count]]).unwrap();
                (at..at + count).for_each(|it| there[place_of(it)] = value);
            }
            2 if random.below(3) == 0 => {
                length = random.below(5000) + 1;
                period = length + random.below(3) * 1000;
                start = random.below(10_000);
                let tree = every(length as u64, i64::try_from(period).unwrap());
                file.set_view(start as u64, &tree).unwrap();
            }
            3 if random.below(4) == 0 => file.sync().unwrap(),
            4..7 => {
                // Several that follow each other, in either direction.
                let count = count.min(50_000);
                for index in 0..random.below(12) {
                    let at = if step % 2 == 0 {
                        at + index * count
                    } else {
                        at.saturating_sub(index * count)
                    };
                    let count = count.min(positions.saturating_sub(at));
                    let expected: Vec<_> = (at..at + count).map(|it| there[place_of(it)]).collect();
                    assert!(read(&file, at as u64, count) == expected, "seed {seed}, step {step}");
                }
            }
            _ => {
                let expected: Vec<_> = (at..at + count).map(|it| there[place_of(it)]).collect();
                assert!(read(&file, at as u64, count) == expected, "seed {seed}, step {step}");
            }
        }
    }
    file.close(false).unwrap();
    assert!(place.bytes("there") == there, "seed {seed}");
}

#[test]
fn a_process_sees_what_it_wrote_whatever_is_kept() {
    for seed in 0..4 {
        play(seed, 3, 0);
        play(seed + 100, 2, 4);
        play(seed + 200, 16, 100);
    }
}

#[test]
fn after_sync_barrier_sync_others_see_what_was_written() {
    const BYTES: usize = 4 * MIB;
    let place = Place::new();
    place.make("there", BYTES);
    let barrier = Barrier::new(2);
    let rank = |rank: u8| {
        // Told at the end: the other one must not wait for one that has failed.
        let mut wrong = Vec::new();
        let client = place.keeping(8, 8);
        let prefetch = if rank == 0 { Prefetch::Auto } else { Prefetch::Always };
        let file = opened(&client, prefetch);
        for round in 0..12u8 {
            if round % 2 == rank {
                file.write(u64::from(round), &[&vec![round; BYTES - 20]]).unwrap();
            } else {
                // It may see anything, and keeps it.
                (0..20).for_each(|it| drop(read(&file, it * 100_000, 100_000)));
            }
            file.sync().unwrap();
            barrier.wait();
            file.sync().unwrap();
            for piece in 0..20 {
                let there = read(&file, 50 + piece * 100_000, 100_000);
                if there != [round; 100_000] {
                    wrong.push((round, piece));
                }
            }
            // Whoever writes next does so when all have read.
            barrier.wait();
        }
        wrong
    };
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|it| scope.spawn(move || rank(it)));
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), []));
    });
}

#[test]
fn who_has_the_lock_sees_what_was_written_under_it() {
    let place = Place::new();
    place.make("there", MIB);
    let rank = || {
        let client = place.client();
        let file = client.open(b"there", READ_WRITE, GROUP, false).unwrap();
        for _ in 0..40 {
            file.lock(LockKind::Exclusive).unwrap();
            let there = read(&file, 0, 1);
            file.write(0, &[&[there[0].wrapping_add(1)]]).unwrap();
            file.unlock();
        }
        file.close(false).unwrap();
    };
    std::thread::scope(|scope| {
        let threads = [0, 1, 2].map(|_| scope.spawn(rank));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(place.bytes("there")[0], 120, "none was lost");
}

/// A read had no bytes in common with the write, found the file as short as it was before, and took
/// that for its end.
#[test]
fn a_file_is_as_long_as_what_was_written_last_though_it_is_on_its_way() {
    let place = Place::new();
    let client = place.metered();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    for from in [1, 7, 11].map(|it| it * MIB) {
        file.write(from as u64, &[b"x"]).unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| read(&file, from as u64 - 1000, 500));
            while client.awaited() == 0 && !reading.is_finished() {
                std::thread::yield_now();
            }
            client.allow(1);
            assert_eq!(reading.join().unwrap(), [0; 500]);
        });
        assert_eq!(read(&file, from as u64 - 10, 3 * MIB), b"\0\0\0\0\0\0\0\0\0\0x");
    }
}

#[test]
fn without_memory_for_reads_all_is_read_from_the_server() {
    let place = Place::new();
    let bytes = place.make("there", 5 * MIB);
    let client = place.keeping(0, 8);
    let file = opened(&client, Prefetch::Always);
    for _ in 0..2 {
        assert!(read(&file, 3, 5 * MIB) == bytes[3..]);
    }
    assert_eq!(client.read_bytes(), ReadBytes::default());
}

/// Each of them wants more places than there are.
#[test]
fn threads_that_read_at_the_same_time_all_come_to_an_end() {
    let place = Place::with_layout("synthetic:osts=2,latency_ms=1");
    let bytes = place.make("there", 24 * MIB);
    let client = place.keeping(4, 30);
    let file = client.open(b"there", READ_WRITE, GROUP, false).unwrap();
    std::thread::scope(|scope| {
        let (file, bytes) = (&file, &bytes);
        for thread in 0..6 {
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                for _ in 0..8 {
                    let at = random.below(16 * MIB);
                    assert!(read(file, at as u64, 7 * MIB) == bytes[at..at + 7 * MIB]);
                }
            });
        }
    });
}

#[test]
fn two_handles_of_a_file_in_a_process_agree_after_a_sync() {
    let place = Place::new();
    place.make("there", MIB);
    let client = place.client();
    let [one, other] = [0, 1].map(|it| {
        let file = client.open(b"there", READ_WRITE, [it; 16], false);
        file.unwrap()
    });
    for round in 0..9u8 {
        let before = read(&other, 0, 1000);
        one.write(0, &[&[round; 500]]).unwrap();
        one.sync().unwrap();
        let there = read(&other, 0, 1000);
        assert!(there[..500] == [round; 500] && there[500..] == before[500..]);
    }
}

#[test]
fn what_is_read_ahead_when_the_connection_is_lost_is_an_error() {
    let place = Place::with_layout("synthetic:osts=1,latency_ms=20");
    place.make("there", 30 * MIB);
    let client = place.client();
    let file = opened(&client, Prefetch::Always);
    while client.read_bytes().ahead == 0 {
        std::thread::yield_now();
    }
    client.cut();
    let mut bytes = vec![0; 30 * MIB];
    assert_eq!(file.read(0, &mut [&mut bytes]).unwrap_err().errno, EIO);
}

#[test]
fn a_file_that_became_shorter_is_read_up_to_its_new_end() {
    let place = Place::new();
    let bytes = place.make("there", 5 * MIB);
    let client = place.client();
    let file = opened(&client, Prefetch::Always);
    assert!(read(&file, 0, 6 * MIB) == bytes);
    file.set_size(3 << 20).unwrap();
    assert!(read(&file, 0, 6 * MIB) == bytes[..3 * MIB]);
    file.write(4 << 20, &[b"x"]).unwrap();
    let there = read(&file, 0, 6 * MIB);
    assert!(there.len() == 4 * MIB + 1 && there[3 * MIB..4 * MIB] == [0; MIB]);
}

/// A file of this process without a name, in a directory.
fn unnamed_in(directory: &std::path::Path) -> std::fs::File {
    let is_it = |path: &PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.starts_with(directory) && target.to_string_lossy().ends_with("(deleted)")
    };
    let mut handles = std::fs::read_dir("/proc/self/fd").unwrap().map(|it| it.unwrap().path());
    let handle = handles.find(is_it).expect("the cache is there");
    std::fs::File::options().write(true).open(handle).unwrap()
}

#[test]
fn bytes_that_return_damaged_from_the_local_disk_are_read_from_the_server() {
    let place = Place::new();
    let bytes = place.make("there", 12 * MIB);
    let client = place.keeping(2, 20);
    let file = opened(&client, Prefetch::Auto);
    // When all that is read is kept, most of it is on the disk.
    loop {
        let before = client.read_bytes().kept;
        assert!(read(&file, 0, 12 * MIB) == bytes);
        if client.read_bytes().kept == before + bytes.len() as u64 {
            break;
        }
    }
    let cache = unnamed_in(place.directory.path());
    let length = usize::try_from(cache.metadata().unwrap().len()).unwrap();
    assert!(length >= 9 * MIB);
    std::os::unix::fs::FileExt::write_all_at(&cache, &vec![1; length], 0).unwrap();
    assert!(read(&file, 0, 12 * MIB) == bytes);
}
