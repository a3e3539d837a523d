//! As many files and views as a server takes, and more.

use super::*;
use lads_core::limits::{CLIENT_FILES_MAX, CLIENT_VIEWS_MAX};

const EMFILE: i32 = 24;

/// The connection was lost, and all files with it.
#[test]
fn a_file_too_many_is_an_error_and_the_others_go_on() {
    let place = Place::new();
    let client = place.metered();
    let open = |defers| client.open(b"new", CREATE, GROUP, defers);
    let mut files: Vec<_> = (0..CLIENT_FILES_MAX).map(|_| open(true).unwrap()).collect();
    for defers in [false, true] {
        let error = open(defers).unwrap_err();
        assert_eq!(error.errno, EMFILE);
        assert!(error.text.contains("has 1024 files open there"), "{error}");
    }
    files[7].write(0, &[b"x"]).unwrap();
    client.allow(1);
    files[7].sync().unwrap();
    // Its close goes behind what is written, and is waited for.
    files[9].write(1, &[b"y"]).unwrap();
    files.swap_remove(9).close(true).unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| client.open(b"other", CREATE, GROUP, false));
        while client.awaited() == 0 && !opening.is_finished() {
            std::thread::yield_now();
        }
        client.allow_all();
        files.push(opening.join().unwrap().unwrap());
    });
    assert_eq!(open(false).unwrap_err().errno, EMFILE);
    files.pop().unwrap().close(false).unwrap();
    open(false).unwrap().sync().unwrap();
    client.finish().unwrap();
    assert_eq!(place.bytes("new"), b"xy");
}

/// Each of them stayed at the server, and the connection was lost in the end.
#[test]
fn files_that_cannot_be_opened_may_be_any_number() {
    let place = Place::new();
    let client = place.client();
    for _ in 0..=CLIENT_FILES_MAX {
        let error = client.open(b"none", READ_WRITE, GROUP, false).unwrap_err();
        assert_eq!(error.errno, ENOENT);
    }
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    file.sync().unwrap();
    client.finish().unwrap();
}

/// Views are forgotten when their frames are sent. With a slow network and much of a local disk,
/// that was too late, and the connection was lost.
#[test]
fn views_are_set_as_soon_as_the_server_has_room_for_them() {
    let place = Place::new();
    let options = staged::options(&place.stage(), 2 * CLIENT_VIEWS_MAX * MIB);
    let client = place.metered_with(&options);
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let count = CLIENT_VIEWS_MAX as u64 + 10;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for round in 0..count {
                file.set_view(round, &every(1, 2)).unwrap();
                file.write(0, &[&[u8::try_from(round % 251).unwrap()]]).unwrap();
            }
        });
        while client.awaited() == 0 && !writing.is_finished() {
            std::thread::yield_now();
        }
        client.allow_all();
        writing.join().unwrap();
    });
    file.sync().unwrap();
    let expected: Vec<_> = (0..count).map(|round| u8::try_from(round % 251).unwrap()).collect();
    assert_eq!(place.bytes("new"), expected);
}
