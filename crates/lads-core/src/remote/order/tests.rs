use super::*;
use crate::issue::Operation;
use crate::units::Block;

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
    let of = FrameOf { view, write: WriteNumber(0), is_announced: false };
    let block = Block { entry: of.entry(), offset, length };
    Row { block, is_whole: false, checksum: 0 }
}

fn placed(order: &mut Order) -> Vec<(u64, Option<Failure>)> {
    std::iter::from_fn(|| order.next_placed(|_| false)).map(|it| (it.frame, it.failure)).collect()
}

#[test]
fn frames_are_placed_once_and_in_order() {
    let mut order = order();
    for offset in [0, 10, 20] {
        order.on_frame(&[row(VIEW, offset, 10)]).unwrap();
    }
    assert_eq!(placed(&mut order), [(0, None), (1, None), (2, None)]);
    assert_eq!(placed(&mut order), []);
}

/// A client gives a frame of short records a view of its own, and sends the next one through the
/// view that it had: where that overtook the first, old bytes were written over new ones.
#[test]
fn a_frame_does_not_overtake_an_earlier_one_whose_view_is_not_known() {
    let mut order = order();
    order.on_frame(&[row(ViewNumber(2), 0, 10)]).unwrap();
    order.on_frame(&[row(VIEW, 5, 10)]).unwrap();
    assert_eq!(placed(&mut order), []);
    assert!(!order.is_ready(1, &FLUSH, true), "it may be of this file");
    order.set_view(ViewNumber(2), FILE, 9, Ok(View::whole())).unwrap();
    assert_eq!(placed(&mut order), [(0, None), (1, None)]);
}

#[test]
fn an_announced_frame_waits_for_its_announcement() {
    let mut order = order();
    let mut announced = row(VIEW, 7, 10);
    let of = FrameOf { view: VIEW, write: WriteNumber(5), is_announced: true };
    announced.block.entry = of.entry();
    order.on_frame(&[announced]).unwrap();
    order.on_frame(&[row(VIEW, 50, 10)]).unwrap();
    assert_eq!(placed(&mut order), [], "the second may have bytes in common");
    let first = order.next_placed(|write| write == WriteNumber(5)).unwrap();
    assert!(first.is_announced);
    assert_eq!(placed(&mut order), [(1, None)]);
}

#[test]
fn a_request_waits_for_the_frames_that_were_sent_before_it() {
    let mut order = order();
    let set = Call::View { view: VIEW, file: FILE, displacement: 0, filetype: Vec::new() };
    let read = Call::Read { view: VIEW, position: 0, length: 1 };
    let fence = Call::Fence { unsent: Vec::new() };
    for call in [&FLUSH, &set, &read, &fence] {
        assert!(order.is_ready(0, call, true));
        assert!(!order.is_ready(1, call, true), "it has not come");
    }
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    assert!(order.is_ready(1, &set, true));
    for call in [&FLUSH, &read, &fence] {
        assert!(!order.is_ready(1, call, true), "nobody has taken it");
        assert!(order.is_ready(0, call, true), "it was sent after the request");
    }
    placed(&mut order);
    assert!([&FLUSH, &read, &fence].iter().all(|call| order.is_ready(1, call, true)));
}

#[test]
fn what_is_written_to_a_file_that_could_not_be_opened_fails_as_opening_did() {
    let mut order = Order::default();
    let failure = Failure { operation: Operation::Open, errno: 2 };
    order.open(FILE, Some(failure)).unwrap();
    order.set_view(VIEW, FILE, 9, Ok(View::whole())).unwrap();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    assert_eq!(placed(&mut order), [(0, Some(failure))]);
    assert_eq!(order.failure_of(FILE), Ok(Some(failure)));
}

#[test]
fn what_is_written_through_no_view_fails() {
    let mut order = Order::default();
    let failure = Failure { operation: Operation::Write, errno: 22 };
    order.open(FILE, None).unwrap();
    order.set_view(VIEW, FILE, 9, Err(failure)).unwrap();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    assert_eq!(placed(&mut order), [(0, Some(failure))]);
}

#[test]
fn what_lies_beyond_the_largest_file_fails() {
    let mut order = order();
    order.on_frame(&[row(VIEW, i64::MAX as u64 + 1, 10)]).unwrap();
    assert_eq!(placed(&mut order), [(0, Some(BEYOND))]);
}

#[test]
fn a_frame_whose_view_is_forgotten_is_written_all_the_same() {
    let mut order = order();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    order.forget(VIEW);
    let first = order.next_placed(|_| false).unwrap();
    assert_eq!(first.failure, None);
    // One that was refused comes again, as long as the first keeps the view.
    order.on_frame(&[row(VIEW, 5, 10)]).unwrap();
    assert_eq!(placed(&mut order), [(1, None)]);
    drop(first);
    order.on_frame(&[row(VIEW, 5, 10)]).unwrap();
    assert_eq!(placed(&mut order), []);
}

#[test]
fn a_frame_for_a_file_that_was_closed_fails() {
    let mut order = order();
    order.on_frame(&[row(VIEW, 0, 10)]).unwrap();
    order.close(FILE);
    assert_eq!(placed(&mut order), [(0, Some(CLOSED))]);
}

#[test]
fn breaches_are_told() {
    let mut order = order();
    for (number, expected) in [
        (1, Err(Breach::Request)),
        (0, Ok(())),
        (0, Err(Breach::Request)),
        (1, Ok(())),
        (3, Err(Breach::Request)),
    ] {
        assert_eq!(order.on_request(number), expected);
    }
    order.begin_to_skip();
    for (number, expected) in
        [(7, Ok(())), (7, Err(Breach::Request)), (8, Ok(())), (u64::MAX, Err(Breach::Request))]
    {
        assert_eq!(order.on_request(number), expected);
    }
    assert_eq!(order.open(FILE, None), Err(Breach::Number));
    assert_eq!(order.set_view(VIEW, FILE, 9, Ok(View::whole())), Err(Breach::Number));
    let other = order.set_view(ViewNumber(9), FileNumber(9), 9, Ok(View::whole()));
    assert_eq!(other, Err(Breach::Unknown));
    assert_eq!(order.on_frame(&[]), Err(Breach::Frame));
    assert_eq!(order.on_frame(&[row(VIEW, 0, 1); 2]), Err(Breach::Frame));
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
    let written = order.next_placed(|_| false).unwrap();
    order.forget(large);
    let filetype = vec![0; most];
    let set = Call::View { view: large, file: FILE, displacement: 0, filetype };
    assert!(!order.is_ready(0, &set, true), "the frame is being written");
    assert!(order.is_ready(0, &set, false), "nothing will make room");
    drop(written);
    assert!(order.is_ready(0, &set, true));
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
    let failure = Failure { operation: Operation::Examine, errno: 22 };
    assert_eq!(order.set_view(ViewNumber(2), FILE, 9, Err(failure)), Ok(Some(failure)));
    order.on_frame(&[row(ViewNumber(2), 0, 10)]).unwrap();
    assert_eq!(placed(&mut order), [(0, None), (1, Some(failure))]);
    assert_eq!(order.failure_of(FILE), Ok(Some(failure)));
}
