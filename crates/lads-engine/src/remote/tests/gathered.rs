//! Short records that do not follow each other.

use super::*;

const RECORD: usize = 64;
const RECORDS: usize = 3000;

/// Writes every second record of a stream.
fn write_records(file: &FileHandle, bytes: &[u8]) {
    for (index, record) in bytes.chunks(RECORD).enumerate() {
        file.write((2 * index * RECORD) as u64, &[record]).unwrap();
    }
}

/// The stream that these records are part of; zeros between them.
fn spread(bytes: &[u8]) -> Vec<u8> {
    let mut all: Vec<u8> =
        bytes.chunks(RECORD).flat_map(|record| record.iter().copied().chain([0; RECORD])).collect();
    all.truncate(all.len() - RECORD);
    all
}

#[test]
fn short_records_share_frames() {
    let place = Place::new();
    let client = place.metered();
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(RECORD * RECORDS);
    write_records(&file, &bytes);
    client.allow_all();
    file.flush().unwrap();
    assert!(place.bytes("new") == spread(&bytes));
    assert!(client.sent() <= 4, "{} frames", client.sent());
}

#[test]
fn a_process_sees_the_short_records_that_it_has_just_written() {
    let place = Place::new();
    let file = place.client().open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(RECORD * 40);
    write_records(&file, &bytes);
    assert!(read(&file, 0, 80 * RECORD) == spread(&bytes));
    // Over them, in part, and back and forth.
    let mut all = spread(&bytes);
    for (position, length) in [(1000, 200), (30, 10), (500, 1), (35, 40), (200, 700), (900, 150)] {
        file.write(position as u64, &[&vec![9; length]]).unwrap();
        all[position..position + length].fill(9);
    }
    assert!(read(&file, 0, 80 * RECORD) == all);
    file.close(false).unwrap();
    assert!(place.bytes("new") == all);
}

#[test]
fn short_records_go_where_the_view_shows_them() {
    let place = Place::new();
    let file = place.client().open(b"new", CREATE, GROUP, false).unwrap();
    let bytes = some_bytes(RECORD * 300);
    // Records are whole, or cut by the view.
    for (displacement, length) in [(5, 2 * RECORD), (7, RECORD + 1), (3, RECORD * 10_000)] {
        file.set_size(0).unwrap();
        file.set_view(displacement, &every(length as u64, 2 * length as i64)).unwrap();
        write_records(&file, &bytes);
        let all = spread(&bytes);
        assert!(read(&file, 0, all.len()) == all);
        file.flush().unwrap();
        let found = place.bytes("new");
        for (position, byte) in all.iter().enumerate() {
            let first = usize::try_from(displacement).unwrap();
            let offset = first + position / length * 2 * length + position % length;
            assert_eq!(found[offset], *byte, "at {position}");
        }
    }
}

/// The views of frames that wait do not fill the places that the server has for those of files.
#[test]
fn frames_of_short_records_that_wait_need_no_more_views_than_the_server_takes() {
    let place = Place::new();
    let options = ClientOptions { buffers_bytes: 256 << 20, ..ClientOptions::default() };
    let client = place.metered_with(&options);
    let file = client.open(b"new", CREATE, GROUP, false).unwrap();
    // Each pair goes back: it has a frame of its own.
    for index in (0..200_u64).rev() {
        file.write(1000 * index, &[&[1; 3]]).unwrap();
        file.write(1000 * index + 500, &[&[2; 3]]).unwrap();
    }
    client.allow_all();
    file.close(false).unwrap();
    let found = place.bytes("new");
    assert!((0..200).all(|index| found[1000 * index] == 1 && found[1000 * index + 500] == 2));
}
