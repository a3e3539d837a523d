use super::*;
use proptest::prelude::*;

const SLOT_BYTES: u32 = 1 << 20;
const FILE: FileNumber = FileNumber(1);

fn outbox(slots: u64) -> Outbox<u64, u64> {
    let mut outbox = Outbox::new(16, Slots::new(slots * u64::from(SLOT_BYTES), SLOT_BYTES, 2));
    outbox.on_grant(u32::MAX);
    outbox
}

fn goes(start: u64) -> Goes {
    Goes { file: FILE, view: ViewNumber(1), positions: start..start + 1, reach: start..start + 1 }
}

fn filled(slots: u64, frames: u64) -> Outbox<u64, u64> {
    let mut outbox = outbox(slots);
    (0..frames).for_each(|frame| outbox.put(goes(frame), frame, frame));
    outbox
}

fn written(outbox: &mut Outbox<u64, u64>, number: u64) -> Option<u64> {
    let gone = outbox.on_written(number)?;
    assert_eq!(gone.file, FILE);
    gone.staged.into_iter().for_each(|(_, slot)| outbox.free(slot));
    Some(gone.about)
}

fn stage(outbox: &mut Outbox<u64, u64>) -> Option<(u64, Slot)> {
    let Staging { id, slot, .. } = outbox.start_staging_ahead()?;
    outbox.on_staged(id, slot);
    Some((id, slot))
}

/// The next frame, and whether it is in memory.
fn next(outbox: &mut Outbox<u64, u64>, is_waited_for: bool) -> Option<(u64, bool)> {
    assert_eq!(outbox.has_next(), outbox.find_next(is_waited_for).is_some());
    let Next { about, place, .. } = outbox.next(is_waited_for)?;
    Some((about, matches!(place, Place::Memory(_))))
}

#[test]
fn little_memory_is_cut_into_shorter_buffers() {
    let of_mib = |mib: u64| buffer_bytes(mib << 20) >> 10;
    assert_eq!([0, 1, 8, 17, 63, 64, 1 << 43].map(of_mib), [64, 64, 128, 256, 512, 1024, 1024]);
}

#[test]
fn frames_are_sent_in_order_and_kept_until_they_are_written() {
    let mut outbox = filled(0, 2);
    assert!(outbox.is_unsent(FILE, 1) && !outbox.is_unsent(FileNumber(2), 2));
    assert_eq!(next(&mut outbox, false), Some((0, true)));
    assert!(!outbox.is_unsent(FILE, 1) && outbox.is_unsent(FILE, 2));
    assert_eq!(written(&mut outbox, 1), None, "it was not sent");
    assert_eq!(next(&mut outbox, false), Some((1, true)));
    assert_eq!(next(&mut outbox, false), None);
    assert!(!outbox.is_unsent_of_view(ViewNumber(1)));
    assert_eq!((outbox.under_way(), outbox.in_memory()), (2, 2));
    assert!(outbox.is_in_flight(0) && outbox.is_in_flight(1) && !outbox.is_in_flight(2));
    assert!(outbox.is_unwritten(FILE) && !outbox.is_unwritten(FileNumber(2)));
    assert_eq!(written(&mut outbox, 1), Some(1));
    assert!(!outbox.is_in_flight(1));
    assert_eq!(written(&mut outbox, 1), None, "it was said before");
    assert_eq!(written(&mut outbox, 0), Some(0));
    assert!(outbox.is_empty() && outbox.in_memory() == 0 && !outbox.is_unwritten(FILE));
}

#[test]
fn the_newest_are_staged_and_two_stay() {
    let mut outbox = filled(9, 4);
    assert_eq!(stage(&mut outbox), Some((3, Slot(0))));
    assert_eq!(stage(&mut outbox), Some((2, Slot(1))));
    assert_eq!(stage(&mut outbox), None);
    assert_eq!(outbox.in_memory(), 2);
    let last = outbox.start_staging().expect("the program waits");
    assert_eq!(last.id, 1);
    outbox.on_staged(1, last.slot);
    let sent: Vec<_> = std::iter::from_fn(|| next(&mut outbox, false)).collect();
    assert_eq!(sent, [(0, true), (1, false), (2, false), (3, false)]);
    assert_eq!(outbox.on_written(0).unwrap().staged, None);
    let gone = Gone { file: FILE, about: 2, staged: Some((2, Slot(1))) };
    assert_eq!(outbox.on_written(2), Some(gone));
    (4..7).for_each(|frame| outbox.put(goes(frame), frame, frame));
    let unused = outbox.start_staging().expect("three wait");
    assert_eq!(unused.slot, Slot(3), "nobody has said that the place of 2 is free");
    outbox.on_staged(unused.id, unused.slot);
    outbox.put(goes(7), 7, 7);
    outbox.free(Slot(1));
    assert_eq!(stage(&mut outbox), Some((7, Slot(1))), "its place is free again");
}

#[test]
fn of_few_buffers_all_that_wait_may_be_staged() {
    let mut outbox = Outbox::new(7, Slots::new(9 << 20, SLOT_BYTES, 2));
    outbox.put(goes(0), 0, 0);
    assert_eq!(stage(&mut outbox), Some((0, Slot(0))));
}

#[test]
fn of_eight_buffers_one_stays_beside_those_that_are_under_way() {
    let mut outbox = Outbox::new(8, Slots::new(9 << 20, SLOT_BYTES, 2));
    outbox.on_grant(8);
    (0..4).for_each(|frame| outbox.put(goes(frame), frame, frame));
    next(&mut outbox, false);
    next(&mut outbox, false);
    assert_eq!(stage(&mut outbox), Some((3, Slot(0))));
    assert_eq!(stage(&mut outbox), None, "though three are in memory");
    outbox.put(goes(4), 4, 4);
    assert_eq!(stage(&mut outbox), Some((4, Slot(1))));
}

#[test]
fn what_is_in_memory_overtakes_what_is_staged_unless_bytes_are_the_same() {
    let mut outbox = filled(9, 3);
    stage(&mut outbox);
    outbox.put(goes(3), 3, 3);
    outbox.put(goes(2), 4, 4);
    outbox.put(Goes { file: FileNumber(2), ..goes(2) }, 5, 5);
    let sent: Vec<_> = std::iter::from_fn(|| next(&mut outbox, false)).collect();
    let ids: Vec<_> = sent.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [0, 1, 3, 5, 2, 4]);
}

#[test]
fn what_somebody_waits_for_comes_in_order() {
    let mut outbox = filled(9, 3);
    stage(&mut outbox);
    outbox.put(goes(3), 3, 3);
    assert!(outbox.is_unsent_in(FILE, &(2..3), 4) && !outbox.is_unsent_in(FILE, &(4..9), 4));
    let sent: Vec<_> = std::iter::from_fn(|| next(&mut outbox, true)).collect();
    assert_eq!(sent, [(0, true), (1, true), (2, false), (3, true)]);
}

#[test]
fn a_frame_on_its_way_to_the_disk_is_not_sent() {
    let mut outbox = filled(9, 3);
    let Staging { id, slot, .. } = outbox.start_staging().unwrap();
    assert!(outbox.is_staging());
    next(&mut outbox, true);
    next(&mut outbox, true);
    assert_eq!(next(&mut outbox, true), None);
    assert_eq!(next(&mut outbox, false), None);
    outbox.put(goes(3), 3, 3);
    assert_eq!(next(&mut outbox, true), Some((3, true)), "another need not wait");
    outbox.on_staged(id, slot);
    assert!(!outbox.is_staging());
    assert_eq!(next(&mut outbox, false), Some((2, false)));
}

/// `has_next` reported a frame, and `next` returned none.
#[test]
fn a_recalled_frame_on_its_way_to_the_disk_holds_up_no_staged_one() {
    let mut outbox = filled(9, 2);
    let newest = outbox.start_staging().unwrap();
    let oldest = outbox.start_staging().unwrap();
    outbox.on_staged(oldest.id, oldest.slot);
    outbox.recall(WriteNumber(1));
    assert_eq!(next(&mut outbox, false), Some((0, false)));
    assert_eq!(next(&mut outbox, false), None);
    outbox.on_staged(newest.id, newest.slot);
    assert_eq!(next(&mut outbox, false), Some((1, false)));
}

#[test]
fn a_disk_that_fails_is_not_used_again() {
    let mut outbox = filled(9, 5);
    let first = outbox.start_staging().unwrap();
    outbox.on_not_staged(first.id, first.slot);
    assert_eq!(outbox.start_staging(), None);
    let sent: Vec<_> = std::iter::from_fn(|| next(&mut outbox, false)).collect();
    assert_eq!(sent.len(), 5);
    assert_eq!(sent[4], (4, true));
}

#[test]
fn what_finds_no_room_on_the_disk_is_forgotten_in_the_end() {
    let mut outbox = filled(1, 4);
    next(&mut outbox, false);
    let Staging { id, slot, .. } = outbox.start_keeping().unwrap();
    outbox.on_staged(id, slot);
    assert_eq!(outbox.start_keeping(), None);
    assert_eq!(outbox.forget_in_memory(), [1, 2, 3]);
    assert_eq!((outbox.in_memory(), outbox.has_next()), (0, false));
    assert_eq!(outbox.all().collect::<Vec<_>>(), [&0]);
}

#[test]
fn what_was_sent_and_not_written_is_kept_too() {
    let mut outbox = filled(9, 4);
    stage(&mut outbox);
    next(&mut outbox, false);
    next(&mut outbox, false);
    written(&mut outbox, 0);
    let mut kept = Vec::new();
    while let Some(Staging { id, slot, .. }) = outbox.start_keeping() {
        outbox.on_staged(id, slot);
        kept.push(id);
    }
    assert_eq!(kept, [1, 2]);
    assert_eq!(outbox.all().collect::<Vec<_>>(), [&1, &2, &3]);
    assert_eq!(outbox.in_memory(), 0);
}

proptest! {
    /// Whatever happens in whatever order, every frame is sent once, with its bytes, and after
    /// all earlier ones for the same bytes.
    #[test]
    fn all_are_sent_and_none_overtakes_its_like(steps: Vec<u8>) {
        let mut outbox = outbox(5);
        let (mut disk, mut staging, mut under_way) = (HashMap::new(), Vec::new(), Vec::new());
        let mut last_of_place = HashMap::new();
        let mut sent = 0;
        let mut step = |outbox: &mut Outbox<u64, u64>, what: u8| {
            let is_unsent = !outbox.unsent.is_empty();
            assert_eq!(outbox.is_unsent_of_view(ViewNumber(1)), is_unsent);
            match what % 7 {
                0 | 1 => {
                    let id = outbox.count();
                    outbox.put(goes(u64::from(what / 7 % 6)), id, id);
                }
                2 => staging.extend(outbox.start_staging()),
                3 if !staging.is_empty() => {
                    let Staging { id, buffer, slot, .. } = staging.remove(0);
                    disk.insert(slot, buffer);
                    outbox.on_staged(id, slot);
                }
                4 | 5 => {
                    let Some(Next { number, about, place, .. }) = outbox.next(what % 7 == 4)
                    else {
                        return;
                    };
                    let bytes = match place {
                        Place::Memory(bytes) | Place::Staging(bytes) => bytes,
                        Place::Staged(slot) => disk[&slot],
                    };
                    assert_eq!((number, bytes), (sent, about));
                    let start = outbox.frames[&about].goes.reach.start;
                    let before = last_of_place.insert(start, about);
                    assert!(before < Some(about));
                    sent += 1;
                    under_way.push(number);
                }
                6 if !under_way.is_empty() => {
                    let number = under_way.swap_remove(usize::from(what) % under_way.len());
                    assert!(written(outbox, number).is_some());
                }
                _ => {}
            }
        };
        for what in steps {
            step(&mut outbox, what);
        }
        for what in [3, 3, 4, 6].repeat(outbox.count().try_into().unwrap()) {
            step(&mut outbox, what);
        }
        prop_assert!(outbox.is_empty() && outbox.in_memory() == 0);
        prop_assert_eq!(sent, outbox.count());
    }
}
