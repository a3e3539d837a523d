//! When sending rests because the program copies.

use super::*;
use lads_core::remote::message::FileNumber;
use std::time::Instant;

/// A file that another thread of the program writes: it copies as long as its write has not ended.
const OTHER: FileNumber = FileNumber(u32::MAX);

/// A client whose clock stands still: what ends after a time alone never ends.
fn timeless(place: &Place, buffers_bytes: u64) -> Client {
    let begun = Instant::now() + Duration::from_secs(3600);
    let options = ClientOptions { begun, buffers_bytes, ..ClientOptions::default() };
    Client::connect(&place.at, &place.token, &options).unwrap()
}

#[test]
fn nothing_is_sent_while_the_program_copies_and_all_when_it_has_copied() {
    let place = Place::new();
    place.make("there", 2 * MIB);
    let client = timeless(&place, 64 << 20);
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    for round in 0..3 {
        client.link.event(|it, _| it.begin_write(OTHER, &(0..0), false, Duration::ZERO)).unwrap();
        file.write(round * MIB as u64, &[&some_bytes(MIB)]).unwrap();
        // The thread that would send it reads ahead meanwhile.
        let ahead = client.read_bytes().ahead;
        let other = client.open(b"there", READ_WRITE, GROUP, false).unwrap();
        other.set_prefetch(Prefetch::Always);
        while client.read_bytes().ahead < ahead + 2 * MIB as u64 {
            std::thread::yield_now();
        }
        assert_eq!(client.sent(), round);
        client.link.event(|it, _| it.end_write(OTHER, false, (0, false), Duration::ZERO)).unwrap();
        while client.sent() == round {
            std::thread::yield_now();
        }
        file.sync().unwrap();
    }
}

#[test]
fn who_waits_for_the_server_or_for_a_buffer_does_not_wait_until_all_is_copied() {
    let place = Place::new();
    let client = timeless(&place, 2 << 20);
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(5 * MIB);
    client.link.event(|it, _| it.begin_write(OTHER, &(0..0), false, Duration::ZERO)).unwrap();
    file.write(0, &[&bytes[..MIB]]).unwrap();
    // Each of these would wait for ever.
    file.sync().unwrap();
    file.write(0, &[&bytes]).unwrap();
    file.sync().unwrap();
    assert!(place.bytes("new") == bytes);
}

#[test]
fn a_buffer_that_is_not_full_is_sent_although_nobody_waits() {
    let place = Place::new();
    let client = place.client();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.write(0, &[b"short"]).unwrap();
    while place.bytes("new") != b"short" {
        std::thread::yield_now();
    }
}
