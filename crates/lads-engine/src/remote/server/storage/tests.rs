//! What several clients write side by side, and the number of calls that write it.

use super::super::session::{Limits, Shared};
use super::*;
use crate::remote::line::{Connection, both_ways};
use crate::remote::tests::{CREATE, GROUP, MIB, every, some_bytes};
use crate::remote::{Client, ClientOptions, FileHandle};
use crate::transport::tcp::socket_pair;
use lads_core::remote::name::Server;
use lads_core::view::Run;
use std::thread::scope;

/// A server whose storage does nothing until the test runs it.
struct Place {
    directory: tempfile::TempDir,
    shared: Arc<Shared>,
}

impl Place {
    fn new(layout: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let layouts = crate::layout::open(layout, directory.path()).unwrap();
        let reach = Reach::below(directory.path()).unwrap();
        let limits = Limits { clients: 2, away: 0, files: 9 };
        let shared = Shared::open(reach, layouts, limits, 8 << 20, |_| None).unwrap();
        Self { directory, shared }
    }

    fn storage(&self) -> &Storage {
        &self.shared.storage
    }

    fn client(&self, options: &ClientOptions) -> Client {
        let (own, served) = socket_pair().unwrap();
        let connection = both_ways(&served).unwrap();
        self.shared.admit(Box::new(served), connection).unwrap();
        let (transport, channel) = both_ways(&own).unwrap();
        let connection = Connection { line: Box::new(own), transport, channel };
        Client::over(connection, Server::At("it".to_owned()), options).unwrap()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.directory.path().join(name)).unwrap()
    }

    fn threads(&self) -> u32 {
        writing_threads(0, &self.storage().layouts.osts())
    }

    /// Waits until this number of jobs is queued for the first OST.
    fn wait_for(&self, count: usize) {
        while self.storage().lock().queues.waiting_count(OstId(0)) < count {
            std::thread::yield_now();
        }
    }

    /// Runs the threads of the storage until `act` returns. Returns the number of calls that wrote.
    fn run(&self, act: impl FnOnce()) -> u64 {
        scope(|scope| {
            let work = || {
                self.storage().work();
                own_writes()
            };
            let threads: Vec<_> = (0..self.threads()).map(|_| scope.spawn(work)).collect();
            let end = End(self.storage());
            act();
            drop(end);
            threads.into_iter().map(|it| it.join().unwrap()).sum()
        })
    }
}

/// Ends the threads of a storage when it is dropped, also if the test fails.
struct End<'a>(&'a Storage);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Returns the number of system calls that have written on behalf of this thread.
fn own_writes() -> u64 {
    let counters = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let count = counters.lines().find_map(|line| line.strip_prefix("syscw: "));
    count.unwrap().parse().unwrap()
}

/// Writes every other piece of some bytes, from one of the first two on.
fn write_every_other(file: &FileHandle, of: usize, piece_bytes: usize, bytes: &[u8]) {
    let period = 2 * i64::try_from(piece_bytes).unwrap();
    file.set_view((of * piece_bytes) as u64, &every(piece_bytes as u64, period)).unwrap();
    let own = bytes.chunks(piece_bytes).skip(of).step_by(2).collect::<Vec<_>>();
    file.write(0, &own).unwrap();
}

/// Two clients that write every other piece of a file, which the server begins to write when it has
/// all of it. Returns the number of calls that wrote it.
fn writes_of_two(piece_bytes: usize, count: usize, name: [&str; 2]) -> (Place, u64) {
    let place = Place::new("auto");
    let clients = [0, 1].map(|_| place.client(&ClientOptions::default()));
    let opened = |of: usize| clients[of].open(name[of].as_bytes(), CREATE, GROUP, false).unwrap();
    let files = [0, 1].map(opened);
    let bytes = some_bytes(2 * piece_bytes * count);
    for (of, file) in files.iter().enumerate() {
        write_every_other(file, of, piece_bytes, &bytes);
    }
    let calls = scope(|scope| {
        let flushed = files.each_ref().map(|file| scope.spawn(|| file.flush()));
        place.wait_for(2 * (piece_bytes * count).div_ceil(MIB));
        place.run(|| flushed.into_iter().for_each(|it| it.join().unwrap().unwrap()))
    });
    if name[0] == name[1] {
        assert!(place.bytes(name[0]) == bytes);
    }
    (place, calls)
}

#[test]
fn short_pieces_that_lie_side_by_side_are_written_by_one_call() {
    // 512 pieces: 256 KiB, and at most 1,024 pieces at a time.
    assert_eq!(writes_of_two(512, 256, ["new"; 2]).1, 1);
    // 2 MiB in eight places, each with 512 pieces.
    assert_eq!(writes_of_two(512, 2048, ["new"; 2]).1, 8);
    // 5 MiB in frames of 1 MiB; a frame of one client ends within a piece.
    let calls = writes_of_two(3000, 900, ["new"; 2]).1;
    assert!(calls < 40, "{calls} calls");
}

/// Two clients with as much memory write 512 pieces each, in as many frames. The second begins when
/// each thread of the server has written some pieces of the first. Returns the number of calls that
/// wrote.
fn writes_of_a_late_one(buffers_bytes: u64, frames: usize) -> u64 {
    let place = Place::new("auto");
    let options = ClientOptions { buffers_bytes, ..ClientOptions::default() };
    let clients = [0, 1].map(|_| place.client(&options));
    let files = [0, 1].map(|of: usize| clients[of].open(b"new", CREATE, GROUP, false).unwrap());
    let bytes = some_bytes(2 * 512 * 512);
    let begin = || {
        let (ost, work) = place.storage().next().unwrap();
        place.storage().act(ost, work);
        own_writes()
    };
    let mut calls = 0;
    scope(|scope| {
        let mut flushed = Vec::new();
        for (of, file) in files.iter().enumerate() {
            write_every_other(file, of, 512, &bytes);
            flushed.push(scope.spawn(|| file.flush()));
            place.wait_for(frames * (of + 1));
            if of == 0 {
                let threads: Vec<_> = (0..place.threads()).map(|_| scope.spawn(begin)).collect();
                calls += threads.into_iter().map(|it| it.join().unwrap()).sum::<u64>();
            }
        }
        calls += place.run(|| flushed.into_iter().for_each(|it| it.join().unwrap().unwrap()));
    });
    assert!(place.bytes("new") == bytes);
    calls
}

/// The frames of two processes do not arrive at the same time. Each thread has written some of the
/// first pieces, and their neighbours are alone.
#[test]
fn pieces_are_joined_with_those_that_arrive_while_the_first_are_written() {
    for (buffers_bytes, frames) in [(64 << 20, 1), (4 << 20, 4)] {
        let calls = writes_of_a_late_one(buffers_bytes, frames);
        assert!(calls < 512 / 2, "{calls} calls with {frames} frames");
    }
}

#[test]
fn long_pieces_and_those_of_other_files_are_written_apart() {
    assert_eq!(writes_of_two(128 << 10, 4, ["new"; 2]).1, 8);
    let (place, calls) = writes_of_two(512, 100, ["one", "other"]);
    assert_eq!(calls, 200);
    let bytes = some_bytes(2 * 512 * 100);
    let pieces = bytes.chunks(512).enumerate();
    let own = |(index, piece): (usize, &[u8])| {
        if index % 2 == 0 { piece.to_vec() } else { vec![0; 512] }
    };
    let one: Vec<u8> = pieces.flat_map(own).collect();
    assert!(place.bytes("one") == one[..one.len() - 512]);
}

/// MPI forbids it, but a client may send what it wants. Where a stripe ends, pieces are not even in
/// the order of the file.
#[test]
fn what_a_view_shows_twice_is_written_in_the_order_of_the_view() {
    let place = Place::new("synthetic:osts=1,stripe_size=64K");
    let client = place.client(&ClientOptions::default());
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.set_view(0, &every(200, 100)).unwrap();
    let bytes = some_bytes(200 * 3000);
    file.write(0, &[&bytes]).unwrap();
    place.run(|| file.flush().unwrap());
    let mut expected = vec![0; 100 * 3000 + 100];
    for (index, piece) in bytes.chunks(200).enumerate() {
        expected[index * 100..][..200].copy_from_slice(piece);
    }
    assert!(place.bytes("new") == expected);
}

/// A file that was cut before earlier writes were done was longer afterwards.
#[test]
fn a_new_length_comes_after_everything_that_was_written_before() {
    for is_reserved in [false, true] {
        let place = Place::new("auto");
        let client = place.client(&ClientOptions::default());
        let file = client.open(b"new", CREATE, GROUP, false).unwrap();
        file.write(0, &[&some_bytes(3 * MIB)]).unwrap();
        scope(|scope| {
            let resizing = scope.spawn(|| match is_reserved {
                true => file.preallocate(5),
                false => file.set_size(5),
            });
            place.wait_for(3);
            // A server that does not wait would have changed it soon.
            for _ in 0..1000 {
                assert_eq!(place.bytes("new").len(), 0, "the writes are first");
                std::thread::yield_now();
            }
            place.run(|| resizing.join().unwrap().unwrap());
        });
        let expected = if is_reserved { 3 * MIB } else { 5 };
        assert!(place.bytes("new") == some_bytes(expected));
    }
}

/// Else a frame is said to be written before it is.
#[test]
fn parts_are_counted_when_they_are_split() {
    let spot = |offset| Spot { run: Run { offset, length: 1 }, place: 0 };
    let (mut spots, parts) = (vec![spot(0), spot(2), spot(4)], AtomicU32::new(1));
    assert_eq!(split(&mut spots, &(5..9), &parts), None);
    assert_eq!(parts.load(Ordering::Relaxed), 1);
    assert_eq!(split(&mut spots, &(0..1), &parts), Some(vec![spot(0)]));
    assert_eq!(parts.load(Ordering::Relaxed), 2);
    assert_eq!(split(&mut spots, &(0..9), &parts), Some(vec![spot(2), spot(4)]));
    assert_eq!((spots.len(), parts.load(Ordering::Relaxed)), (0, 2));
}
