use super::*;
use crate::entry::{Identity, Metadata};
use crate::placement::Striping;
use crate::units::EntryId;

const TUNING: Tuning = Tuning::DEFAULT;

/// A file of this many bytes that begins on this OST of the source.
fn file(id: u32, source_ost: u32, bytes: u64) -> Entry {
    let identity = Identity { size: bytes, ..Identity::default() };
    let kind = Kind::File {
        identity,
        data_bytes: bytes,
        striping: Striping::default(),
        source_ost: OstId(source_ost),
        is_different: false,
    };
    entry(id.into(), kind)
}

fn entry(id: u64, kind: Kind) -> Entry {
    let metadata = Metadata::default();
    Entry { id: EntryId(id), parent: EntryId::ROOT, name: vec![b'a'], kind, metadata }
}

/// Of this many files of ten bytes on each of these OSTs of the source, all that may be placed.
fn next_all(ahead: &mut Ahead) -> Vec<(u64, Placed)> {
    let next = std::iter::from_fn(|| ahead.take_next());
    next.map(|(entry, placed)| (entry.id.0, placed.expect("files have data"))).collect()
}

fn ids(placed: &[(u64, Placed)]) -> Vec<u64> {
    placed.iter().map(|(id, _)| *id).collect()
}

#[test]
fn each_source_ost_gets_its_share_whatever_was_announced_first() {
    let mut ahead = Ahead::new(&TUNING, Some(20));
    (0..10).for_each(|id| ahead.push(file(id, 0, 10)));
    (10..20).for_each(|id| ahead.push(file(id, 7, 10)));
    assert_eq!(ids(&next_all(&mut ahead)), [0, 10]);
    assert!(!ahead.has_next());
}

#[test]
fn the_one_with_least_in_hand_is_next() {
    let mut ahead = Ahead::new(&TUNING, Some(60));
    (0..10).for_each(|id| ahead.push(file(id, 0, 10)));
    (10..20).for_each(|id| ahead.push(file(id, 7, 10)));
    let mut placed = next_all(&mut ahead);
    assert_eq!(ids(&placed), [0, 10, 1, 11, 2, 12]);
    let now = Instant::START;
    ahead.on_come(now, &mut placed[1].1, 10);
    assert_eq!(ids(&next_all(&mut ahead)), [13]);
}

#[test]
fn as_much_is_in_hand_as_came_lately() {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    ahead.push(file(0, 0, 50));
    (1..20).for_each(|id| ahead.push(file(id, 0, 10)));
    let mut first = next_all(&mut ahead);
    assert_eq!(ids(&first), [0]);
    ahead.on_come(Instant::START + TUNING.come_interval / 2, &mut first[0].1, 20);
    assert!(!ahead.has_next(), "30 are left, and 20 came");
    ahead.on_come(Instant::START + TUNING.come_interval / 2, &mut first[0].1, 15);
    assert_eq!(ids(&next_all(&mut ahead)), [1, 2], "15 were left, and 35 came");
    ahead.on_come(Instant::START + TUNING.come_interval * 3, &mut first[0].1, 5);
    assert_eq!(ids(&next_all(&mut ahead)), [3], "30 were left; 35 in the interval before");
    ahead.on_given_up(&mut first[0].1, u64::MAX);
    assert_eq!(first[0].1.bytes, 0);
    assert_eq!(ids(&next_all(&mut ahead)), [4]);
}

#[test]
fn only_what_is_placed_next_is_coming_and_everything_is_part_of_the_transfer() {
    let mut ahead = Ahead::new(&TUNING, Some(20));
    (0..10).for_each(|id| ahead.push(file(id, 0, 50)));
    assert_eq!((ahead.coming_bytes(), ahead.transfer_bytes()), (50, 500), "one at a time");
    ahead.push(file(10, 7, 3));
    assert_eq!((ahead.coming_bytes(), ahead.transfer_bytes()), (53, 503), "of each source OST");
    let mut placed = next_all(&mut ahead);
    assert_eq!(ids(&placed), [0, 10]);
    assert_eq!((ahead.coming_bytes(), ahead.transfer_bytes()), (53, 503), "not yet decided");
    ahead.on_decided(&mut placed[0].1, OstId(2));
    assert_eq!((ahead.coming_bytes(), ahead.transfer_bytes()), (3, 503), "the others wait");
    ahead.on_come(Instant::START, &mut placed[0].1, 50);
    assert_eq!((ahead.coming_bytes(), ahead.transfer_bytes()), (53, 503), "and now come");
}

#[test]
fn without_a_limit_any_number_may_be_coming() {
    let ahead = Ahead::new(&TUNING, None);
    assert_eq!((ahead.coming_bytes(), ahead.transfer_bytes()), (u64::MAX, u64::MAX));
}

#[test]
fn what_waits_for_a_congested_ost_is_hardly_in_hand() {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    (0..10).for_each(|id| ahead.push(file(id, 0, 80)));
    let mut placed = next_all(&mut ahead);
    ahead.on_decided(&mut placed[0].1, OstId(2));
    assert!(!ahead.has_next());
    ahead.on_congestion([false, false, true].into_iter(), true);
    assert!(!ahead.has_next(), "an eighth counts");
    let now = Instant::START;
    let mut first = placed[0].1;
    ahead.on_given_up(&mut first, 8);
    assert_eq!(ids(&next_all(&mut ahead)), [1]);
    ahead.on_congestion([false, false, false].into_iter(), true);
    assert!(!ahead.has_next());
    ahead.on_come(now, &mut first, 72);
    assert_eq!(ids(&next_all(&mut ahead)), Vec::<u64>::new(), "80 are left of the other");
}

#[test]
fn more_is_in_hand_unless_it_is_calm() {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    (0..10).for_each(|id| ahead.push(file(id, 0, 10)));
    assert_eq!(ids(&next_all(&mut ahead)), [0]);
    ahead.on_congestion([false].into_iter(), false);
    assert_eq!(ids(&next_all(&mut ahead)), [1]);
    ahead.on_congestion([false].into_iter(), true);
    assert!(!ahead.has_next());
}

#[test]
fn more_is_in_hand_of_striped_files() {
    assert_eq!(in_hand_of(1, true), [0]);
    assert_eq!(in_hand_of(4, true), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn not_so_much_more_while_the_sink_is_congested() {
    assert_eq!(in_hand_of(4, false), [0, 1]);
}

/// Which of twenty files with this many stripes are placed if one may always be.
fn in_hand_of(stripe_count: u32, is_calm: bool) -> Vec<u64> {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    ahead.on_congestion([false].into_iter(), is_calm);
    for id in 0..20 {
        let mut entry = file(id, 0, 10);
        let Kind::File { striping, .. } = &mut entry.kind else { unreachable!() };
        striping.count = stripe_count;
        ahead.push(entry);
    }
    ids(&next_all(&mut ahead))
}

#[test]
fn little_is_in_hand_of_the_last_files() {
    let mut ahead = Ahead::new(&TUNING, Some(16));
    (0..8).for_each(|id| ahead.push(file(id, 0, 5)));
    let mut placed = next_all(&mut ahead);
    assert_eq!(ids(&placed), [0, 1, 2, 3], "20 are in hand; four files wait");
    (0..3).for_each(|at| ahead.on_given_up(&mut placed[at].1, 5));
    assert!(!ahead.has_next(), "5 are in hand, and of these files 4 may be");
    ahead.on_given_up(&mut placed[3].1, 2);
    assert_eq!(ids(&next_all(&mut ahead)), [4]);
}

#[test]
fn what_is_staged_does_not_count() {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    (0..8).for_each(|id| ahead.push(file(id, 0, 12)));
    assert_eq!(ids(&next_all(&mut ahead)), [0]);
    ahead.on_staged(3);
    assert_eq!(ids(&next_all(&mut ahead)), [1]);
    ahead.on_staged(0);
    assert!(!ahead.has_next());
}

#[test]
fn a_file_larger_than_the_limit_is_placed_by_itself() {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    (0..2).for_each(|id| ahead.push(file(id, 0, u64::MAX)));
    let mut placed = next_all(&mut ahead);
    assert_eq!(ids(&placed), [0]);
    ahead.on_given_up(&mut placed[0].1, u64::MAX);
    assert_eq!(ids(&next_all(&mut ahead)), [1]);
}

#[test]
fn what_has_no_data_never_waits_nor_anything_without_a_limit() {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    ahead.push(file(0, 0, 1 << 40));
    ahead.push(file(1, 0, 1 << 40));
    ahead.push(entry(2, Kind::Directory));
    ahead.push(file(3, 0, 0));
    let order: Vec<u64> = std::iter::from_fn(|| ahead.take_next()).map(|(it, _)| it.id.0).collect();
    assert_eq!(order, [2, 3, 0]);
    let mut ahead = Ahead::new(&TUNING, None);
    (0..3).for_each(|id| ahead.push(file(id, id, 1 << 60)));
    assert_eq!(std::iter::from_fn(|| ahead.take_next()).count(), 3);
}

#[test]
fn nothing_is_left_of_an_ost_without_files() {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    (0..100).for_each(|id| ahead.push(file(id, id, 10)));
    let placed = next_all(&mut ahead);
    assert_eq!(placed.len(), 100);
    for (_, mut placed) in placed {
        ahead.on_decided(&mut placed, OstId(1));
        ahead.on_come(Instant::START, &mut placed, 10);
    }
    assert!(ahead.sources.is_empty() && ahead.open.is_empty());
}

#[test]
fn nothing_comes_after_the_end() {
    let mut ahead = Ahead::new(&TUNING, Some(10));
    (0..10).for_each(|id| ahead.push(file(id, 0, 10)));
    ahead.close();
    assert!(!ahead.has_next() && ahead.take_next().is_none());
}
