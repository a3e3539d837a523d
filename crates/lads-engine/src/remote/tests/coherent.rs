//! What one client has written and not sent is seen by another one.

use super::*;

/// The server knows of all writes before it has one.
#[test]
fn a_fence_does_not_wait_for_the_data_that_others_read_afterwards() {
    let place = Place::new();
    let (one, two) = (place.metered(), place.client());
    let bytes = some_bytes(5 * MIB + 17);
    let written = one.open(b"new", CREATE, GROUP, true).unwrap();
    written.write(3, &[&bytes]).unwrap();
    one.fence();
    assert_eq!(one.sent(), 0);
    let file = two.open(b"new", READ_WRITE, GROUP, false).unwrap();
    assert_eq!(file.size().unwrap(), bytes.len() as u64 + 3);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&file, 3 + 2 * MIB as u64, 100));
        one.allow_all();
        assert_eq!(reader.join().unwrap(), bytes[2 * MIB..][..100]);
    });
    assert_eq!(read(&file, 3, bytes.len()), bytes);
    one.finish().unwrap();
}

#[test]
fn the_later_of_two_writes_wins_whichever_is_sent_first() {
    let place = Place::new();
    let (one, two) = (place.metered(), place.client());
    let earlier = one.open(b"new", CREATE, GROUP, false).unwrap();
    let later = two.open(b"new", READ_WRITE, GROUP, false).unwrap();
    earlier.write(0, &[&vec![1; 3 * MIB]]).unwrap();
    one.fence();
    later.write(MIB as u64 / 2, &[&vec![2; MIB]]).unwrap();
    two.fence();
    std::thread::scope(|scope| {
        // Its frame is refused, and sent again when the earlier ones are there.
        let flushed = scope.spawn(|| later.flush());
        one.allow_all();
        flushed.join().unwrap().unwrap();
    });
    earlier.flush().unwrap();
    let mut expected = vec![1; 3 * MIB];
    expected[MIB / 2..][..MIB].fill(2);
    assert!(place.bytes("new") == expected);
}

/// Rows of several processes alternate: none waits for another.
#[test]
fn rows_that_alternate_do_not_wait_for_each_other() {
    let place = Place::new();
    let (one, two) = (place.metered(), place.client());
    let (first, second) = (
        one.open(b"new", CREATE, GROUP, false).unwrap(),
        two.open(b"new", READ_WRITE, GROUP, false).unwrap(),
    );
    first.set_view(0, &every(512, 1024)).unwrap();
    second.set_view(512, &every(512, 1024)).unwrap();
    first.write(0, &[&vec![1; 2 * MIB]]).unwrap();
    one.fence();
    second.write(0, &[&vec![2; 2 * MIB]]).unwrap();
    second.sync().unwrap();
    assert_eq!(one.sent(), 0, "nothing was recalled");
    one.allow_all();
    first.sync().unwrap();
    let bytes = place.bytes("new");
    assert!(bytes.chunks(1024).all(|it| it[..512] == [1; 512] && it[512..] == [2; 512]));
}

#[test]
fn what_a_lost_client_did_not_send_cannot_be_read() {
    let place = Place::new();
    let (one, two) = (place.metered(), place.client());
    let written = one.open(b"new", CREATE, GROUP, false).unwrap();
    let file = two.open(b"new", READ_WRITE, GROUP, false).unwrap();
    file.write(0, &[&vec![7; 2 * MIB]]).unwrap();
    file.sync().unwrap();
    written.write(100, &[&[1; 100]]).unwrap();
    one.fence();
    one.cut();
    let error = file.read(150, &mut [&mut [0; 10]]).unwrap_err();
    assert!(error.errno == EIO && error.text.contains("another process"), "{error}");
    assert_eq!(read(&file, 200, 10), [7; 10]);
    file.write(100, &[&[8; 100]]).unwrap();
    assert_eq!(read(&file, 150, 10), [8; 10]);
}
