use super::*;
use crate::view::View;
use std::sync::Arc;

const FILE: FileId = FileId { device: 1, inode: 1 };
const ONE: ClientNumber = ClientNumber(1);
const TWO: ClientNumber = ClientNumber(2);
const A: WriteNumber = WriteNumber(7);
const B: WriteNumber = WriteNumber(8);

fn extent(start: u64, end: u64) -> Extent {
    Extent::new(Arc::new(View::whole()), start..end)
}

fn actions(writes: &mut Writes) -> Vec<Action> {
    std::iter::from_fn(|| writes.next_action()).collect()
}

fn start(client: ClientNumber, frame: u64, extent: Extent) -> Action {
    Action::Start { client, frame, extent }
}

#[test]
fn writes_of_other_bytes_do_not_wait_for_each_other() {
    let mut writes = Writes::default();
    for (client, from) in [(ONE, 0), (TWO, 10)] {
        writes.arrive(client, FILE, A, 0, extent(from, from + 10));
        assert_eq!(actions(&mut writes), [start(client, 0, extent(from, from + 10))]);
    }
    assert_eq!(writes.end_of(FILE), 20);
}

#[test]
fn a_write_waits_for_an_earlier_one_of_the_same_bytes() {
    let mut writes = Writes::default();
    writes.arrive(ONE, FILE, A, 0, extent(0, 10));
    writes.arrive(TWO, FILE, A, 0, extent(5, 15));
    writes.arrive(TWO, FILE, B, 1, extent(12, 20));
    assert_eq!(actions(&mut writes), [start(ONE, 0, extent(0, 10))]);
    writes.on_written(ONE, 0, true);
    assert_eq!(actions(&mut writes), [start(TWO, 0, extent(5, 15))]);
    writes.on_written(TWO, 0, true);
    assert_eq!(actions(&mut writes), [start(TWO, 1, extent(12, 20))]);
}

#[test]
fn a_frame_that_comes_before_an_announced_write_is_sent_again() {
    let mut writes = Writes::default();
    writes.announce(ONE, FILE, A, extent(0, 10)).unwrap();
    writes.arrive(TWO, FILE, A, 0, extent(5, 15));
    assert_eq!(
        actions(&mut writes),
        [Action::Refuse { client: TWO, frame: 0 }, Action::Recall { client: ONE, write: A }]
    );
    assert_eq!(writes.holding_up(), BTreeSet::from([ONE]));
    writes.arrive(ONE, FILE, A, 0, extent(0, 10));
    // It can come while the first is being written.
    let again = Action::Again { client: TWO, frame: 0 };
    assert_eq!(actions(&mut writes), [start(ONE, 0, extent(0, 10)), again]);
    writes.arrive(TWO, FILE, A, 1, extent(5, 15));
    assert_eq!(actions(&mut writes), []);
    writes.on_written(ONE, 0, true);
    assert_eq!(actions(&mut writes), [start(TWO, 1, extent(5, 15))]);
    writes.on_written(TWO, 1, true);
    assert_eq!(writes.holding_up(), BTreeSet::new());
}

#[test]
fn a_read_waits_for_announced_writes_of_the_same_bytes_alone() {
    let mut writes = Writes::default();
    writes.announce(ONE, FILE, A, extent(0, 10)).unwrap();
    writes.announce(ONE, FILE, B, extent(20, 30)).unwrap();
    let read = |from, to| Access::Read(extent(from, to));
    assert_eq!(writes.ask(TWO, 0, FILE, read(10, 20)), Turn::Now);
    assert_eq!(writes.ask(TWO, 1, FILE, read(9, 20)), Turn::Later);
    assert_eq!(actions(&mut writes), [Action::Recall { client: ONE, write: A }]);
    // What is announced later is not waited for.
    writes.announce(ONE, FILE, WriteNumber(9), extent(0, 10)).unwrap();
    writes.arrive(ONE, FILE, A, 0, extent(0, 10));
    assert_eq!(actions(&mut writes), [start(ONE, 0, extent(0, 10))]);
    writes.on_written(ONE, 0, true);
    let ready = Action::Ready { client: TWO, request: 1, is_lost: false };
    assert_eq!(actions(&mut writes), [ready]);
}

#[test]
fn a_cut_waits_for_what_reaches_beyond_it_and_for_its_own_client() {
    let mut writes = Writes::default();
    writes.announce(ONE, FILE, A, extent(0, 10)).unwrap();
    assert_eq!(writes.ask(TWO, 0, FILE, Access::Cut(10)), Turn::Now);
    assert_eq!(writes.ask(TWO, 1, FILE, Access::Cut(9)), Turn::Later);
    assert_eq!(writes.ask(ONE, 0, FILE, Access::Cut(10)), Turn::Later);
    assert_eq!(writes.ask(TWO, 2, FILE, Access::Own), Turn::Now);
    assert_eq!(writes.ask(ONE, 1, FILE, Access::Own), Turn::Later);
}

#[test]
fn what_a_client_announced_and_never_sent_is_lost_until_other_data_covers_it() {
    let mut writes = Writes::default();
    writes.open(FILE);
    writes.announce(ONE, FILE, A, extent(0, 10)).unwrap();
    let read = |from, to| Access::Read(extent(from, to));
    assert_eq!(writes.ask(TWO, 7, FILE, read(0, 1)), Turn::Later);
    writes.arrive(TWO, FILE, A, 0, extent(5, 15));
    actions(&mut writes);
    writes.on_gone(ONE);
    let again = Action::Again { client: TWO, frame: 0 };
    let ready = Action::Ready { client: TWO, request: 7, is_lost: true };
    assert_eq!(actions(&mut writes), [again, ready]);
    writes.arrive(TWO, FILE, A, 1, extent(5, 15));
    writes.on_written(TWO, 1, true);
    assert_eq!(writes.ask(TWO, 8, FILE, read(0, 1)), Turn::Lost, "a part was replaced");
    assert_eq!(writes.ask(TWO, 9, FILE, read(10, 20)), Turn::Now);
    writes.arrive(TWO, FILE, A, 2, extent(0, 10));
    writes.on_written(TWO, 2, true);
    assert_eq!(writes.ask(TWO, 10, FILE, read(0, 10)), Turn::Now);
}

/// Bytes that were lost were read as those before them, after another client had failed to write
/// there.
#[test]
fn what_is_lost_stays_lost_if_other_data_cannot_be_written() {
    let mut writes = Writes::default();
    writes.open(FILE);
    writes.announce(ONE, FILE, A, extent(0, 10)).unwrap();
    writes.on_gone(ONE);
    for (frame, is_done, turn) in [(0, false, Turn::Lost), (1, true, Turn::Now)] {
        writes.arrive(TWO, FILE, A, frame, extent(0, 10));
        writes.on_written(TWO, frame, is_done);
        assert_eq!(writes.ask(TWO, frame, FILE, Access::Read(extent(0, 1))), turn);
    }
}

/// It was on its way to the disk when its client was gone, and old bytes were read.
#[test]
fn what_is_lost_stays_lost_if_an_earlier_write_is_done() {
    let mut writes = Writes::default();
    writes.open(FILE);
    writes.announce(ONE, FILE, A, extent(0, 10)).unwrap();
    writes.announce(ONE, FILE, B, extent(0, 10)).unwrap();
    writes.arrive(ONE, FILE, A, 0, extent(0, 10));
    writes.on_gone(ONE);
    writes.on_written(ONE, 0, true);
    assert_eq!(writes.ask(TWO, 0, FILE, Access::Read(extent(0, 1))), Turn::Lost);
}

#[test]
fn lost_writes_are_forgotten_with_the_last_close_and_limited_before() {
    let mut writes = Writes::default();
    writes.open(FILE);
    for number in 0..=u32::try_from(FILE_LOST_MAX).unwrap() {
        let bytes = extent(u64::from(number) * 2, u64::from(number) * 2 + 1);
        writes.announce(ONE, FILE, WriteNumber(number), bytes).unwrap();
    }
    writes.on_gone(ONE);
    let far = || Access::Read(extent(1 << 40, 1 << 41));
    assert_eq!(writes.ask(TWO, 0, FILE, far()), Turn::Lost, "more than is remembered");
    writes.close(FILE);
    assert_eq!(writes.ask(TWO, 1, FILE, far()), Turn::Now);
}

#[test]
fn announcements_are_limited_and_unique() {
    let mut writes = Writes::default();
    let most = u32::try_from(CLIENT_ANNOUNCED_MAX).unwrap();
    let mut announce = |number| writes.announce(ONE, FILE, WriteNumber(number), extent(0, 1));
    announce(0).unwrap();
    assert_eq!(announce(0), Err(NotAnnounced::Twice));
    (1..most).for_each(|number| announce(number).unwrap());
    assert_eq!(announce(most), Err(NotAnnounced::TooMany));
}

#[test]
fn a_write_that_cannot_be_done_holds_up_nobody() {
    let mut writes = Writes::default();
    writes.announce(ONE, FILE, A, extent(0, 10)).unwrap();
    writes.arrive(TWO, FILE, A, 0, extent(0, 10));
    actions(&mut writes);
    writes.withdraw(ONE, A);
    assert_eq!(actions(&mut writes), [Action::Again { client: TWO, frame: 0 }]);
}
