use super::*;
use crate::issue::Operation;
use crate::remote::message::LockKind;
use crate::units::{Block, EntryId};
use crate::view::Datatype;

const FILE: FileNumber = FileNumber(1);
const VIEW: ViewNumber = ViewNumber(1);
const FLUSH: Call = Call::Flush { file: FILE };

/// A client that has a file open and sees all of it.
fn order() -> Order {
    let mut order = Order::default();
    order.open(FILE, None).unwrap();
    order.set_view(VIEW, FILE, 9, Ok(View::whole())).unwrap();
    order
}

fn row(view: ViewNumber, offset: u64, length: u32) -> Row {
    let block = Block { entry: view.entry(), offset, length };
    Row { block, is_whole: false, checksum: 0 }
}

fn starts(order: &mut Order) -> Vec<u64> {
    order.take_starts().into_iter().map(|start| start.frame).collect()
}

#[test]
fn frames_of_other_bytes_are_written_at_the_same_time() {
    let mut order = order();
    for offset in [0, 10, 20] {
        order.on_frame(&[row(VIEW, offset, 10)]).unwrap();
    }
    assert_eq!(starts(&mut order), [0, 1, 2]);
    assert_eq!(starts(&mut order), [0; 0], "each of them once");
}

#[test]
fn a_frame_waits_for_those_before_it_that_have_bytes_in_common() {
    let mut order = order();
    for (offset, length) in [(0, 10), (5, 10), (12, 10), (30, 1)] {
        order.on_frame(&[row(VIEW, offset, length)]).unwrap();
    }
    assert_eq!(starts(&mut order), [0, 3]);
    order.on_written(0);
    // The third has nothing in common with the first, but waits for the second, which waited.
    assert_eq!(starts(&mut order), [1]);
    order.on_written(1);
    assert_eq!(starts(&mut order), [2]);
}

#[test]
fn the_same_bytes_of_another_file_are_not_waited_for() {
    let mut order = order();
    order.open(FileNumber(2), None).unwrap();
    order.set_view(ViewNumber(2), FileNumber(2), 9, Ok(View::whole())).unwrap();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    order.on_frame(&[row(ViewNumber(2), 0, 10)]).unwrap();
    assert_eq!(starts(&mut order), [0, 1]);
}

#[test]
fn frames_of_two_views_meet_in_the_file() {
    let mut order = order();
    let bytes = Box::new(Datatype::Bytes(4));
    let other = View::new(100, &Datatype::Resized { begin: 0, extent: 8, of: bytes }).unwrap();
    order.set_view(ViewNumber(2), FILE, 9, Ok(other)).unwrap();
    order.on_frame(&[row(VIEW, 108, 2)]).unwrap();
    // Positions 4 to 8 are bytes 108 to 112.
    order.on_frame(&[row(ViewNumber(2), 4, 4)]).unwrap();
    order.on_frame(&[row(ViewNumber(2), 8, 4)]).unwrap();
    assert_eq!(starts(&mut order), [0, 2]);
}

/// A client gives a frame of short records a view of its own, and sends the next one through the
/// view that it had: where that overtook the first, old bytes were written over new ones.
#[test]
fn a_frame_does_not_overtake_an_earlier_one_whose_view_is_not_known() {
    let mut order = order();
    order.on_frame(&[row(ViewNumber(2), 0, 10)]).unwrap();
    order.on_frame(&[row(VIEW, 5, 10)]).unwrap();
    order.on_frame(&[row(VIEW, 500, 10)]).unwrap();
    assert_eq!(starts(&mut order), [0; 0]);
    order.set_view(ViewNumber(2), FILE, 9, Ok(View::whole())).unwrap();
    assert_eq!(starts(&mut order), [0, 2]);
    order.on_written(0);
    assert_eq!(starts(&mut order), [1]);
}

#[test]
fn a_frame_that_comes_before_its_view_waits_for_it() {
    let mut order = order();
    order.on_frame(&[row(ViewNumber(2), 0, 10)]).unwrap();
    assert_eq!(starts(&mut order), [0; 0]);
    assert!(!order.is_ready(1, &FLUSH), "it may be of this file");
    order.set_view(ViewNumber(2), FILE, 9, Ok(View::whole())).unwrap();
    assert_eq!(starts(&mut order), [0]);
}

#[test]
fn a_request_waits_for_the_frames_that_were_sent_before_it() {
    let mut order = order();
    assert!(order.is_ready(0, &FLUSH));
    let set = Call::View { view: VIEW, file: FILE, displacement: 0, filetype: Vec::new() };
    assert!(!order.is_ready(1, &FLUSH) && !order.is_ready(1, &set), "it has not come");
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    assert!(order.is_ready(1, &set));
    assert!(!order.is_ready(1, &FLUSH), "it is not written");
    let read = Call::Read { view: VIEW, position: 0, length: 1 };
    assert!(!order.is_ready(1, &read), "it may be what is to be read");
    assert!(order.is_ready(0, &FLUSH), "it was sent after the request");
    order.on_written(0);
    assert!(order.is_ready(1, &FLUSH) && order.is_ready(1, &read));
}

#[test]
fn a_read_waits_only_for_frames_that_have_bytes_in_common_with_it() {
    let mut order = order();
    order.on_frame(&[row(VIEW, 10, 10)]).unwrap();
    let read = |view, position| Call::Read { view, position, length: 5 };
    let is_ready = |order: &Order, position| order.is_ready(1, &read(VIEW, position));
    assert!(!is_ready(&order, 0), "nobody has looked where the frame goes");
    assert_eq!(starts(&mut order), [0]);
    let ready: Vec<_> = [0, 5, 6, 19, 20].map(|it| is_ready(&order, it)).into();
    assert_eq!(ready, [true, true, false, false, true]);
    // The same bytes through another view.
    let bytes = Box::new(Datatype::Bytes(4));
    let other = View::new(12, &Datatype::Resized { begin: 0, extent: 8, of: bytes }).unwrap();
    order.set_view(ViewNumber(2), FILE, 9, Ok(other)).unwrap();
    assert!(!order.is_ready(1, &read(ViewNumber(2), 0)));
    assert!(!order.is_ready(1, &read(ViewNumber(2), 3)), "it begins at byte 15");
    assert!(order.is_ready(1, &read(ViewNumber(2), 4)), "it begins at byte 20");
    order.open(FileNumber(2), None).unwrap();
    order.set_view(ViewNumber(3), FileNumber(2), 9, Ok(View::whole())).unwrap();
    assert!(order.is_ready(1, &read(ViewNumber(3), 12)), "of another file");
    order.on_frame(&[row(ViewNumber(4), 100, 10)]).unwrap();
    assert!(!order.is_ready(2, &read(VIEW, 0)), "it may go anywhere");
}

#[test]
fn a_lock_is_given_back_when_everything_is_written() {
    let mut order = order();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    starts(&mut order);
    assert!(order.is_ready(1, &Call::Lock { file: FILE, kind: LockKind::Exclusive }));
    assert!(!order.is_ready(1, &Call::Unlock { file: FILE }));
    assert!(order.is_writing());
    order.on_written(0);
    assert!(order.is_ready(1, &Call::Unlock { file: FILE }) && !order.is_writing());
}

#[test]
fn a_request_does_not_wait_for_frames_of_another_file() {
    let mut order = order();
    order.open(FileNumber(2), None).unwrap();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    starts(&mut order);
    assert!(order.is_ready(1, &Call::Sync { file: FileNumber(2) }));
    assert!(!order.is_ready(1, &Call::Delete { path: b"x".to_vec() }), "it may be that file");
}

#[test]
fn what_is_written_to_a_file_that_could_not_be_opened_fails_as_opening_did() {
    let mut order = Order::default();
    let failure = Failure { operation: Operation::Open, errno: 2 };
    order.open(FILE, Some(failure)).unwrap();
    order.set_view(VIEW, FILE, 9, Ok(View::whole())).unwrap();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    assert_eq!(order.take_failed(), [Written { frame: 0, failure: Some(failure) }]);
    assert_eq!(starts(&mut order), [0; 0]);
    assert!(order.is_ready(1, &FLUSH));
    assert_eq!(order.failure_of(FILE), Ok(Some(failure)));
}

#[test]
fn what_is_written_through_no_view_fails() {
    let mut order = Order::default();
    let failure = Failure { operation: Operation::Write, errno: 22 };
    order.open(FILE, None).unwrap();
    order.set_view(VIEW, FILE, 9, Err(failure)).unwrap();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    assert_eq!(order.take_failed(), [Written { frame: 0, failure: Some(failure) }]);
}

#[test]
fn what_lies_beyond_the_largest_file_fails() {
    let mut order = order();
    order.on_frame(&[row(VIEW, i64::MAX as u64 + 1, 10)]).unwrap();
    assert_eq!(order.take_failed(), [Written { frame: 0, failure: Some(BEYOND) }]);
}

#[test]
fn a_frame_whose_view_is_forgotten_is_written_all_the_same() {
    let mut order = order();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    assert_eq!(starts(&mut order), [0]);
    order.on_frame(&[row(VIEW, 5, 10)]).unwrap();
    // Before anybody has looked where the second one goes.
    order.forget(VIEW);
    assert_eq!(starts(&mut order), [0; 0]);
    order.on_written(0);
    assert_eq!(starts(&mut order), [1]);
}

#[test]
fn a_frame_for_a_file_that_was_closed_fails() {
    let mut order = order();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    order.close(FILE);
    assert_eq!(order.take_failed(), [Written { frame: 0, failure: Some(CLOSED) }]);
}

#[test]
fn a_view_that_shows_a_byte_twice_is_written_in_order() {
    let mut order = order();
    let bytes = Box::new(Datatype::Bytes(8));
    let view = View::new(0, &Datatype::Resized { begin: 0, extent: 4, of: bytes }).unwrap();
    order.set_view(ViewNumber(2), FILE, 9, Ok(view)).unwrap();
    order.on_frame(&[row(ViewNumber(2), 0, 8)]).unwrap();
    order.on_frame(&[row(ViewNumber(2), 64, 8)]).unwrap();
    assert_eq!(starts(&mut order), [0]);
}

#[test]
fn breaches_are_told() {
    let mut order = order();
    assert_eq!(order.on_request(1), Err(Breach::Request));
    assert_eq!(order.on_request(0), Ok(()));
    assert_eq!(order.open(FILE, None), Err(Breach::Number));
    assert_eq!(order.set_view(VIEW, FILE, 9, Ok(View::whole())), Err(Breach::Number));
    let other = order.set_view(ViewNumber(9), FileNumber(9), 9, Ok(View::whole()));
    assert_eq!(other, Err(Breach::Unknown));
    assert_eq!(order.on_frame(&[]), Err(Breach::Frame));
    assert_eq!(order.on_frame(&[row(VIEW, 0, 1); 2]), Err(Breach::Frame));
    let mut no_view = row(VIEW, 0, 1);
    no_view.block.entry = EntryId(u64::MAX);
    assert_eq!(order.on_frame(&[no_view]), Err(Breach::Frame));
    assert_eq!(order.view(ViewNumber(9)), Err(Breach::Unknown));
}

#[test]
fn a_client_has_a_limited_number_of_files_and_views() {
    let mut order = Order::default();
    for number in 0..CLIENT_FILES_MAX {
        let file = FileNumber(u32::try_from(number).unwrap());
        order.open(file, None).unwrap();
    }
    assert_eq!(order.open(FileNumber(u32::MAX), None), Err(Breach::Number));
    for number in 0..CLIENT_VIEWS_MAX {
        let view = ViewNumber(u32::try_from(number).unwrap());
        order.set_view(view, FileNumber(0), 9, Ok(View::whole())).unwrap();
    }
    let more = order.set_view(ViewNumber(u32::MAX), FileNumber(0), 9, Ok(View::whole()));
    assert_eq!(more, Err(Breach::Number));
    order.close(FileNumber(0));
    assert_eq!(order.view(ViewNumber(0)), Err(Breach::Unknown), "views go with the file");
    order.open(FileNumber(0), None).unwrap();
}

#[test]
fn the_filetypes_of_a_client_have_a_limited_number_of_bytes() {
    let mut order = order();
    let mut set =
        |number, bytes| order.set_view(ViewNumber(number), FILE, bytes, Ok(View::whole()));
    assert_eq!(set(2, CLIENT_FILETYPES_BYTES_MAX - 9), Ok(None));
    assert_eq!(set(3, 1), Ok(Some(NO_ROOM)), "an error of the file, not the end of the connection");
    assert_eq!(order.failure_of(FILE), Ok(Some(NO_ROOM)));
}

/// A client could make a server keep as many of the largest views as it has frames under way.
#[test]
fn views_that_are_forgotten_count_as_long_as_frames_need_them() {
    let mut order = order();
    let (large, most) = (ViewNumber(2), CLIENT_FILETYPES_BYTES_MAX - 9);
    order.set_view(large, FILE, most, Ok(View::whole())).unwrap();
    order.on_frame(&[row(large, 0, 10)]).unwrap();
    assert_eq!(starts(&mut order), [0]);
    order.forget(large);
    let filetype = vec![0; most];
    let set = Call::View { view: large, file: FILE, displacement: 0, filetype };
    assert!(!order.is_ready(0, &set), "the frame is being written");
    order.on_written(0);
    assert!(order.is_ready(0, &set));
    assert_eq!(order.set_view(large, FILE, most, Ok(View::whole())), Ok(None));
    order.on_frame(&[row(large, 0, 10)]).unwrap();
    order.close(FILE);
    order.open(FILE, None).unwrap();
    assert_eq!(order.set_view(large, FILE, most, Ok(View::whole())), Ok(Some(NO_ROOM)));
}

/// What came before a view that is none failed with it.
#[test]
fn what_was_written_before_a_view_that_is_none_is_written() {
    let mut order = order();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    assert_eq!(starts(&mut order), [0]);
    let failure = Failure { operation: Operation::Examine, errno: 22 };
    assert_eq!(order.set_view(ViewNumber(2), FILE, 9, Err(failure)), Ok(Some(failure)));
    order.on_frame(&[row(ViewNumber(2), 0, 10)]).unwrap();
    assert_eq!(order.take_failed(), [Written { frame: 2, failure: Some(failure) }]);
    order.on_written(0);
    assert_eq!(starts(&mut order), [1]);
    assert_eq!(order.failure_of(FILE), Ok(Some(failure)));
}

/// A file that was cut while earlier frames were written was longer afterwards.
#[test]
fn a_new_length_waits_for_all_frames_before_it() {
    for call in [Call::SetSize { file: FILE, size: 5 }, Call::Preallocate { file: FILE, size: 5 }] {
        let mut order = order();
        order.on_frame(&[row(VIEW, 100, 10)]).unwrap();
        assert!(!order.is_ready(1, &call), "{call:?}: the frame has arrived");
        assert_eq!(starts(&mut order), [0]);
        assert!(!order.is_ready(1, &call), "{call:?}: the frame is being written");
        order.on_frame(&[row(VIEW, 200, 10)]).unwrap();
        order.on_written(0);
        assert!(order.is_ready(1, &call), "{call:?}: later frames are not waited for");
        assert!(!order.is_ready(3, &call), "{call:?}: a frame has not arrived");
    }
}
