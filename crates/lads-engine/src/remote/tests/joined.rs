//! What several clients write side by side.

use super::*;
use crate::remote::server::storage::Storage;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Two clients that write every other piece of a file, which the server begins to write when it has
/// all of it. Returns how often it asked its storage.
fn writes_of_two(piece_bytes: usize, count: usize, name: [&str; 2]) -> (Place, u64) {
    let mut storage: Option<Arc<Storage>> = None;
    let place = Place::with("auto", |server| storage = Some(server.storage()));
    let storage = storage.unwrap();
    let clients = [place.client(), place.client()];
    let opened = |of: usize| clients[of].open(name[of].as_bytes(), CREATE, GROUP, false).unwrap();
    let files = [0, 1].map(opened);
    storage.watched.is_held.store(true, Ordering::Relaxed);
    let bytes = some_bytes(2 * piece_bytes * count);
    for (of, file) in files.iter().enumerate() {
        let period = 2 * i64::try_from(piece_bytes).unwrap();
        file.set_view((of * piece_bytes) as u64, &every(piece_bytes as u64, period)).unwrap();
        let own = bytes.chunks(piece_bytes).skip(of).step_by(2).collect::<Vec<_>>();
        file.write(0, &own).unwrap();
    }
    std::thread::scope(|scope| {
        let flushed = files.each_ref().map(|file| scope.spawn(|| file.flush()));
        let all = 2 * (piece_bytes * count).div_ceil(MIB);
        while storage.waiting_count() < all {
            std::thread::yield_now();
        }
        storage.release();
        flushed.into_iter().for_each(|it| it.join().unwrap().unwrap());
    });
    if name[0] == name[1] {
        assert!(place.bytes(name[0]) == bytes);
    }
    (place, storage.watched.writes.load(Ordering::Relaxed))
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
/// the server has begun with those of the first. Returns how often the server asked its storage.
fn writes_of_a_late_one(buffers_bytes: u64, frames: usize) -> u64 {
    let mut storage: Option<Arc<Storage>> = None;
    let place = Place::with("auto", |server| storage = Some(server.storage()));
    let storage = storage.unwrap();
    let options = ClientOptions { buffers_bytes, ..ClientOptions::default() };
    let client = || Client::connect(&place.at, &place.token, &options).unwrap();
    let clients = [client(), client()];
    let files = [0, 1].map(|of: usize| clients[of].open(b"new", CREATE, GROUP, false).unwrap());
    storage.watched.holds_when_it_writes.store(true, Ordering::Relaxed);
    let bytes = some_bytes(2 * 512 * 512);
    std::thread::scope(|scope| {
        for (of, file) in files.iter().enumerate() {
            file.set_view((of * 512) as u64, &every(512, 1024)).unwrap();
            let own = bytes.chunks(512).skip(of).step_by(2).collect::<Vec<_>>();
            file.write(0, &own).unwrap();
            scope.spawn(|| file.flush().unwrap());
            let deadline = Instant::now() + Duration::from_secs(10);
            let is_held = || storage.watched.is_held.load(Ordering::Relaxed);
            // If they do not come, there are more calls than there should be.
            while !(is_held() && storage.waiting_count() == frames * (of + 1))
                && Instant::now() < deadline
            {
                std::thread::yield_now();
            }
        }
        storage.release();
    });
    assert!(place.bytes("new") == bytes);
    storage.watched.writes.load(Ordering::Relaxed)
}

/// The frames of two processes do not come at the same time. Each thread has written some of the
/// first pieces, and their neighbours are alone.
#[test]
fn pieces_are_joined_with_those_that_come_while_the_first_are_written() {
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
    let place = Place::with_layout("synthetic:osts=1,stripe_size=64K");
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.set_view(0, &every(200, 100)).unwrap();
    let bytes = some_bytes(200 * 3000);
    file.write(0, &[&bytes]).unwrap();
    file.flush().unwrap();
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
        let mut storage: Option<Arc<Storage>> = None;
        let place = Place::with("auto", |server| storage = Some(server.storage()));
        let storage = storage.unwrap();
        let client = place.client();
        let file = client.open(b"new", CREATE, GROUP, false).unwrap();
        storage.watched.is_held.store(true, Ordering::Relaxed);
        file.write(0, &[&some_bytes(3 * MIB)]).unwrap();
        std::thread::scope(|scope| {
            let resizing = scope.spawn(|| match is_reserved {
                true => file.preallocate(5),
                false => file.set_size(5),
            });
            while storage.waiting_count() < 3 {
                std::thread::yield_now();
            }
            // A server that does not wait would have changed it soon.
            for _ in 0..1000 {
                assert_eq!(place.bytes("new").len(), 0, "the writes are first");
                std::thread::yield_now();
            }
            storage.release();
            resizing.join().unwrap().unwrap();
        });
        let expected = if is_reserved { 3 * MIB } else { 5 };
        assert!(place.bytes("new") == some_bytes(expected));
    }
}
