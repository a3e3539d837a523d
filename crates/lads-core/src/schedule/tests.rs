use super::shelf::PAGE_BYTES;
use super::*;
use crate::layout::Layout;
use crate::range::RangeSet;
use crate::room::Lot;
use proptest::prelude::*;

const TUNING: Tuning = Tuning::DEFAULT;
const BLOCK: u32 = 1 << 20;

fn osts(count: usize, in_flight_max: u32) -> Vec<OstSpec> {
    (0..count).map(|i| OstSpec::new(format!("{i}"), in_flight_max)).collect()
}

fn plan(size: u64, source_ost: u32, sink_ost: u32) -> Plan {
    Plan {
        size,
        source: Layout::on(OstId(source_ost)),
        mirrors: Vec::new(),
        sink: Layout::on(OstId(sink_ost)),
        block_size: BLOCK,
        data: None,
        done: RangeSet::new(),
        taken: RangeSet::new(),
        disk_offset: None,
        is_begun: false,
        is_in_order: false,
        is_comparison: false,
    }
}

fn schedule(policy: Policy, source_osts: usize) -> Schedule {
    let mut schedule =
        Schedule::new(policy, Threshold::default(), &TUNING, &osts(source_osts, 1), BLOCK);
    for ost in 0..4 {
        grant(&mut schedule, OstId(ost), 100);
    }
    schedule
}

fn grant(schedule: &mut Schedule, ost: OstId, count: u32) {
    schedule.on_grant(&Lot::of(vec![(ost, count)]));
}

fn entries(work: &Work) -> Vec<u64> {
    work.blocks.iter().map(|block| block.entry.0).collect()
}

#[test]
fn takes_osts_in_turn_and_skips_the_busy() {
    let mut schedule = schedule(Policy::Layout, 3);
    for entry in 0..3 {
        schedule.add(EntryId(entry), plan(4 * u64::from(BLOCK), u32::try_from(entry).unwrap(), 0));
    }
    let first: Vec<_> = (0..3).map(|_| schedule.next(Instant::START, 0).unwrap()).collect();
    assert_eq!(first.iter().map(|work| work.source_ost.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(schedule.next(Instant::START, 0), None, "every OST has its one request in flight");
    schedule.on_read(Instant::START, &first[1], Duration::from_millis(1));
    assert_eq!(schedule.next(Instant::START, 0).unwrap().source_ost, OstId(1));
}

#[test]
fn a_sink_ost_without_room_does_not_hold_up_the_others() {
    let mut schedule =
        Schedule::new(Policy::Layout, Threshold::default(), &TUNING, &osts(1, 9), BLOCK);
    grant(&mut schedule, OstId(1), 2);
    schedule.add(EntryId(1), plan(u64::from(BLOCK), 0, 0));
    schedule.add(EntryId(2), plan(u64::from(BLOCK), 0, 1));
    assert_eq!(entries(&schedule.next(Instant::START, 0).unwrap()), [2]);
    assert_eq!(schedule.next(Instant::START, 0), None);
    grant(&mut schedule, OstId(0), 1);
    assert_eq!(entries(&schedule.next(Instant::START, 0).unwrap()), [1]);
}

/// The sink OSTs of the frames that are sent if each of three files has this many stripes of two
/// blocks and goes to an OST of its own, with room for four frames.
fn sink_osts_of_frames(stripe_count: u32) -> Vec<u32> {
    let mut schedule =
        Schedule::new(Policy::Adaptive, Threshold::default(), &TUNING, &osts(2, 9), BLOCK);
    for sink_ost in 0..3 {
        grant(&mut schedule, OstId(sink_ost), 4);
        let osts: Vec<OstId> = (0..stripe_count).map(OstId).collect();
        let source = Layout::striped(BLOCK.into(), osts).unwrap();
        let size = u64::from(2 * stripe_count * BLOCK);
        let plan = Plan { source, ..plan(size, 0, sink_ost) };
        schedule.add(EntryId(sink_ost.into()), plan);
    }
    iter::from_fn(|| schedule.next(Instant::START, 0)).map(|work| work.sink_ost.0).collect()
}

#[test]
fn stripes_go_where_least_is_under_way_and_whole_files_one_after_the_other() {
    assert_eq!(sink_osts_of_frames(2), [0, 1, 2].repeat(4));
    assert_eq!(sink_osts_of_frames(1), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn small_files_share_a_frame() {
    let mut schedule = schedule(Policy::Layout, 1);
    for entry in 0..100 {
        schedule.add(EntryId(entry), plan(4000, 0, 0));
    }
    let work = schedule.next(Instant::START, 0).unwrap();
    assert_eq!(work.blocks.len(), TUNING.packed_count_max);
    schedule.on_read(Instant::START, &work, Duration::ZERO);
    assert_eq!(
        schedule.next(Instant::START, 0).unwrap().blocks.len(),
        100 - TUNING.packed_count_max
    );
}

/// Files are placed on all OSTs in turn. With a frame for each file, the grants of a long line were
/// used up by a few files.
#[test]
fn small_files_for_one_ost_of_the_sink_share_a_frame_although_others_lie_between() {
    let mut schedule = schedule(Policy::Layout, 1);
    (0..3).for_each(|ost| grant(&mut schedule, OstId(ost), 9));
    for entry in 0..30 {
        schedule.add(EntryId(entry), plan(4000, 0, u32::try_from(entry % 3).unwrap()));
    }
    let frames: Vec<Vec<u64>> = iter::from_fn(|| {
        let work = schedule.next(Instant::START, 0)?;
        schedule.on_read(Instant::START, &work, Duration::ZERO);
        Some(entries(&work))
    })
    .collect();
    let each = |ost: u64| (0..30).filter(|entry| entry % 3 == ost).collect::<Vec<_>>();
    assert_eq!(frames, (0..3).map(each).collect::<Vec<_>>());
}

#[test]
fn a_disk_that_turns_does_not_go_back_for_a_frame() {
    let mut schedule = schedule(Policy::Layout, 1);
    (0..2).for_each(|ost| grant(&mut schedule, OstId(ost), 9));
    for (entry, sink_ost) in [(1, 0), (2, 0), (3, 1), (4, 0)] {
        let sink = plan(4000, 0, sink_ost).sink;
        schedule.add(EntryId(entry), Plan { size: 4000, sink, ..on_disk(entry << 20) });
    }
    assert_eq!(entries(&schedule.next(Instant::START, 0).unwrap()), [1, 2]);
}

#[test]
fn a_frame_of_small_files_fits_in_a_buffer() {
    let mut schedule = schedule(Policy::Layout, 1);
    for entry in 0..40 {
        schedule.add(EntryId(entry), plan(100 << 10, 0, 0));
    }
    let work = schedule.next(Instant::START, 0).unwrap();
    let bytes: u64 = work.blocks.iter().map(|block| u64::from(block.length)).sum();
    assert!(bytes <= u64::from(BLOCK) && work.blocks.len() == 10, "{} files", work.blocks.len());
}

/// A file in stripes of 64 KiB over two OSTs, to another in stripes of this many bytes over two.
fn in_short_stripes(size: u64, sink_stripe_size: u64) -> Plan {
    let striped = |size| Layout::striped(size, vec![OstId(0), OstId(1)]).unwrap();
    Plan { source: striped(64 << 10), sink: striped(sink_stripe_size), ..plan(size, 0, 0) }
}

#[test]
fn short_stripes_of_one_ost_share_a_frame() {
    let mut schedule = schedule(Policy::Layout, 2);
    schedule.add(EntryId(1), in_short_stripes(3 << 20, 64 << 10));
    let work = schedule.next(Instant::START, 0).unwrap();
    let offsets: Vec<_> = work.blocks.iter().map(|block| block.offset >> 16).collect();
    assert_eq!(offsets, (0..16).map(|stripe| stripe * 2).collect::<Vec<_>>());
    assert_eq!(work.bytes(), u64::from(BLOCK));
    let other = schedule.next(Instant::START, 0).unwrap();
    assert_eq!((other.source_ost, other.blocks[0].offset), (OstId(1), 64 << 10));
    schedule.on_read(Instant::START, &work, Duration::ZERO);
    let rest = schedule.next(Instant::START, 0).unwrap();
    assert_eq!((rest.blocks.len(), rest.blocks[0].offset), (8, 2 << 20));
}

#[test]
fn a_frame_of_short_stripes_is_for_one_ost_of_the_sink() {
    let mut schedule = schedule(Policy::Layout, 2);
    let size = 16 << 20;
    let plan = in_short_stripes(size, 96 << 10);
    schedule.add(EntryId(1), plan.clone());
    let mut seen = RangeSet::new();
    let mut frames = 0;
    while let Some(work) = schedule.next(Instant::START, 0) {
        for block in &work.blocks {
            assert_eq!(plan.source.ost_at(block.offset), work.source_ost);
            assert_eq!(plan.sink.ost_at(block.offset), work.sink_ost);
            seen.insert(block.offset..block.end());
        }
        schedule.on_read(Instant::START, &work, Duration::ZERO);
        frames += 1;
    }
    assert_eq!(seen.byte_count(), size);
    // Two OSTs at each end, each pair with a fourth of the data; the first of a lane goes alone.
    assert!(frames <= 16 + 4 + 2, "{frames} frames");
}

#[test]
fn a_mirrored_file_is_read_from_whichever_copy_is_free() {
    let mut schedule = schedule(Policy::Layout, 3);
    let mirrored = Plan { mirrors: vec![Layout::on(OstId(2))], ..plan(9 * u64::from(BLOCK), 1, 0) };
    schedule.add(EntryId(1), mirrored);
    let [first, second] = [(); 2].map(|()| schedule.next(Instant::START, 0).unwrap());
    assert_eq!([first.mirror, second.mirror], [0, 1]);
    assert_eq!([first.source_ost, second.source_ost], [OstId(1), OstId(2)]);
    assert_eq!(schedule.next(Instant::START, 0), None);
    // The one copy stays busy: the other serves all the rest, and no block twice.
    let mut offsets = vec![first.blocks[0].offset];
    let mut work = second;
    loop {
        assert_eq!(work.source_ost, OstId(2));
        offsets.push(work.blocks[0].offset);
        schedule.on_read(Instant::START, &work, Duration::from_millis(1));
        let Some(next) = schedule.next(Instant::START, 0) else { break };
        work = next;
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (0..9).map(|block| block * u64::from(BLOCK)).collect::<Vec<_>>());
}

#[test]
fn by_file_each_thread_keeps_to_its_own_file() {
    let mut schedule = schedule(Policy::File, 1);
    for entry in 0..2 {
        schedule.add(EntryId(entry), plan(3 * u64::from(BLOCK), 0, 0));
    }
    let taken: Vec<_> = [0, 1, 0, 1, 0, 1]
        .iter()
        .map(|&w| entries(&schedule.next(Instant::START, w).unwrap())[0])
        .collect();
    assert_eq!(taken, [0, 1, 0, 1, 0, 1]);
    assert_eq!(schedule.next(Instant::START, 0), None);
}

#[test]
fn by_file_one_file_keeps_one_thread_busy() {
    let mut schedule = schedule(Policy::File, 1);
    schedule.add(EntryId(0), plan(3 * u64::from(BLOCK), 0, 0));
    assert!(schedule.next(Instant::START, 0).is_some());
    assert_eq!(schedule.next(Instant::START, 1), None);
}

#[test]
fn blocks_to_send_again_go_first() {
    let mut schedule = schedule(Policy::Layout, 2);
    schedule.add(EntryId(1), plan(4 * u64::from(BLOCK), 0, 0));
    let first = schedule.next(Instant::START, 0).unwrap();
    schedule.on_read(Instant::START, &first, Duration::ZERO);
    schedule.push_again(first.blocks[0]);
    assert_eq!(schedule.next(Instant::START, 0).unwrap().blocks, first.blocks);
}

#[test]
fn a_forgotten_file_is_not_handed_out() {
    let mut schedule = schedule(Policy::Layout, 1);
    schedule.add(EntryId(1), plan(4 * u64::from(BLOCK), 0, 0));
    schedule.remove(EntryId(1));
    assert_eq!(schedule.next(Instant::START, 0), None);
}

#[test]
fn only_a_quick_and_idle_ost_is_served_at_once() {
    let mut queues: OstQueues<u8> = OstQueues::new(Rule::Never, &TUNING, &osts(1, 1));
    let (ost, limit) = (OstId(0), Duration::from_millis(1));
    assert!(!queues.start_at_once(Instant::START, ost, 1, limit), "nothing is known of it yet");
    queues.push(ost, 1, 1);
    queues.next(Instant::START, |_, waiting, _| Some((waiting.pop_front()?, 1))).unwrap();
    queues.finish(Instant::START, ost, 1, Duration::from_micros(100));
    assert!(queues.start_at_once(Instant::START, ost, 1, limit));
    assert!(
        !queues.start_at_once(Instant::START, ost, 1, limit),
        "it has its one request in flight"
    );
    queues.finish(Instant::START, ost, 1, Duration::from_secs(1));
    assert!(!queues.start_at_once(Instant::START, ost, 1, limit), "it has become slow");
}

#[test]
fn no_more_files_are_begun_than_can_be_open() {
    let mut schedule =
        Schedule::new(Policy::Layout, Threshold::default(), &TUNING, &osts(1, 9), BLOCK);
    grant(&mut schedule, OstId(0), 100);
    schedule.set_begun_max(2);
    for entry in 0..4 {
        schedule.add(EntryId(entry), plan(2 * u64::from(BLOCK), 0, 0));
    }
    let taken: Vec<_> =
        iter::from_fn(|| schedule.next(Instant::START, 0)).map(|w| entries(&w)[0]).collect();
    assert_eq!(taken, [0, 0, 1, 1]);
    schedule.remove(EntryId(0));
    assert_eq!(entries(&schedule.next(Instant::START, 0).unwrap()), [2]);
}

#[test]
fn open_files_do_not_wait_behind_files_that_must_not_be_opened_yet() {
    let mut schedule = schedule(Policy::Layout, 2);
    schedule.set_begun_max(1);
    for entry in 0..100 {
        schedule.add(EntryId(entry), plan(4 * u64::from(BLOCK), 0, 0));
    }
    let both = Layout::striped(u64::from(BLOCK), vec![OstId(1), OstId(0)]).unwrap();
    schedule.add(EntryId(100), Plan { source: both, ..plan(2 * u64::from(BLOCK), 0, 0) });
    // OST0 is busy, so that the file that lies on both OSTs is begun first.
    schedule.queues.start(Instant::START, OstId(0), 1);
    assert_eq!(entries(&schedule.next(Instant::START, 0).unwrap()), [100]);
    schedule.queues.finish(Instant::START, OstId(0), 1, Duration::ZERO);
    assert_eq!(
        entries(&schedule.next(Instant::START, 0).unwrap()),
        [100],
        "the rest of it, before 100 others"
    );
    assert_eq!(schedule.next(Instant::START, 0), None);
}

#[test]
fn a_sink_ost_without_room_does_not_hold_up_the_rest_of_a_file() {
    let mut schedule =
        Schedule::new(Policy::Layout, Threshold::default(), &TUNING, &osts(1, 99), BLOCK);
    let both = Layout::striped(u64::from(BLOCK), vec![OstId(0), OstId(1)]).unwrap();
    schedule.add(EntryId(1), Plan { sink: both, ..plan(8 * u64::from(BLOCK), 0, 0) });
    grant(&mut schedule, OstId(0), 1);
    grant(&mut schedule, OstId(1), 3);
    let mut offsets = || {
        let works = iter::from_fn(|| schedule.next(Instant::START, 0));
        works.map(|work| work.blocks[0].offset / u64::from(BLOCK)).collect::<Vec<_>>()
    };
    assert_eq!(offsets(), [0, 1, 3, 5], "OST0 has no room for block 2, OST1 for 3 and 5");
    grant(&mut schedule, OstId(0), 9);
    grant(&mut schedule, OstId(1), 9);
    let mut offsets = || {
        let works = iter::from_fn(|| schedule.next(Instant::START, 0));
        works.map(|work| work.blocks[0].offset / u64::from(BLOCK)).collect::<Vec<_>>()
    };
    assert_eq!(offsets(), [2, 4, 6, 7]);
}

/// Takes all that there is, a file at a time.
fn take_all(schedule: &mut Schedule) -> Vec<u64> {
    let mut taken = Vec::new();
    while let Some(work) = schedule.next(Instant::START, 0) {
        grant(schedule, work.sink_ost, 1);
        schedule.on_read(Instant::START, &work, Duration::ZERO);
        taken.extend(entries(&work));
    }
    taken.dedup();
    taken
}

fn on_disk(disk_offset: u64) -> Plan {
    Plan { disk_offset: Some(disk_offset), ..plan(2 * u64::from(BLOCK), 0, 0) }
}

#[test]
fn files_on_a_disk_that_turns_are_read_in_the_order_in_which_they_lie_there() {
    let mut schedule = schedule(Policy::Layout, 1);
    for offset in [50, 90, 10, 70, 30] {
        schedule.add(EntryId(offset), on_disk(offset << 20));
    }
    assert_eq!(take_all(&mut schedule), [50, 70, 90, 10, 30]);
}

#[test]
fn a_file_that_the_arm_has_passed_waits_for_the_next_sweep() {
    let mut schedule = schedule(Policy::Layout, 1);
    for offset in [40, 60, 80] {
        schedule.add(EntryId(offset), on_disk(offset));
    }
    let begun = schedule.next(Instant::START, 0).unwrap();
    schedule.on_read(Instant::START, &begun, Duration::ZERO);
    for offset in [70, 20, 90] {
        schedule.add(EntryId(offset), on_disk(offset));
    }
    assert_eq!(take_all(&mut schedule), [40, 60, 70, 80, 90, 20], "first the one that is begun");
}

#[test]
fn small_files_on_a_disk_that_turns_share_a_frame_in_the_order_in_which_they_lie_there() {
    let mut schedule = schedule(Policy::Layout, 1);
    for offset in [3, 1, 4, 2] {
        schedule.add(EntryId(offset), Plan { size: 4000, ..on_disk(offset) });
    }
    assert_eq!(entries(&schedule.next(Instant::START, 0).unwrap()), [3, 4, 1, 2]);
}

proptest! {
    #[test]
    fn whatever_came_when_the_arm_turns_back_once_at_most_for_all_that_waits(
        steps in prop::collection::vec(prop::option::weighted(0.6, 1u64..1000), 1..60)) {
        let mut schedule = schedule(Policy::Layout, 1);
        // One small file a frame.
        schedule.frame_bytes_max = PAGE_BYTES;
        let mut offsets = std::collections::HashMap::new();
        for (entry, step) in (0..).map(EntryId).zip(steps) {
            if let Some(offset) = step {
                schedule.add(entry, Plan { size: 4000, ..on_disk(offset) });
                offsets.insert(entry.0, offset);
            } else if let Some(work) = schedule.next(Instant::START, 0) {
                grant(&mut schedule, work.sink_ost, 1);
                schedule.on_read(Instant::START, &work, Duration::ZERO);
                offsets.remove(&entries(&work)[0]);
            }
        }
        let taken: Vec<_> =
            take_all(&mut schedule).iter().map(|entry| offsets.remove(entry).unwrap()).collect();
        prop_assert!(offsets.is_empty(), "left behind: {offsets:?}");
        let turns = taken.windows(2).filter(|pair| pair[1] < pair[0]).count();
        prop_assert!(turns <= 1, "{taken:?}");
    }
}

#[test]
fn no_ost_is_passed_over_for_ever() {
    let mut queues = OstQueues::new(Rule::Adaptive, &TUNING, &osts(4, 1));
    let take = |_, waiting: &mut VecDeque<u64>, _| {
        let bytes = waiting.pop_front()?;
        Some((bytes, bytes))
    };
    queues.push(OstId(3), 1 << 20, 1 << 20);
    let mut passes = 0;
    // One thread, and others' queues that are always longer.
    loop {
        for ost in 0..3 {
            queues.push(OstId(ost), 1 << 30, 1 << 30);
        }
        let (ost, bytes) = queues.next_best(Instant::START, true, take).unwrap();
        if ost == OstId(3) {
            break;
        }
        queues.finish(Instant::START, ost, bytes, Duration::from_millis(1));
        passes += 1;
    }
    assert!(passes <= TUNING.passes_max * 4, "{passes}");
}

/// Two blocks each for the sink's OSTs 0 and 1, one file each, read from two OSTs.
fn with_stage(slots: u64) -> Schedule {
    let mut schedule =
        Schedule::new(Policy::Layout, Threshold::default(), &TUNING, &osts(2, 9), BLOCK);
    schedule.set_stage(slots * u64::from(BLOCK), 9);
    for entry in 0..2 {
        schedule.add(EntryId(entry.into()), plan(2 * u64::from(BLOCK), entry, entry));
    }
    schedule
}

fn next(schedule: &mut Schedule) -> Option<Work> {
    schedule.next(Instant::START, 0)
}

fn put_into_stage(schedule: &mut Schedule, work: &Work) {
    let Way::Stage(slot) = work.way else { panic!("not to be staged: {work:?}") };
    schedule.on_read(Instant::START, work, Duration::ZERO);
    let row = |block: &Block| Row { block: *block, is_whole: false, checksum: 7 };
    schedule.on_staged(slot, work, work.blocks.iter().map(row).collect());
}

#[test]
fn only_what_the_sink_has_no_room_for_is_staged() {
    let mut schedule = with_stage(9);
    grant(&mut schedule, OstId(0), 2);
    let works: Vec<_> = iter::from_fn(|| next(&mut schedule)).collect();
    let is_staged = |work: &Work| matches!(work.way, Way::Stage(_));
    assert_eq!(works.iter().map(|work| work.sink_ost.0).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_eq!(works.iter().map(is_staged).collect::<Vec<_>>(), [false, false, true, true]);
}

#[test]
fn what_is_only_compared_is_never_staged() {
    let mut schedule = with_stage(9);
    while next(&mut schedule).is_some() {}
    let compared = Plan { is_comparison: true, ..plan(u64::from(BLOCK), 0, 3) };
    schedule.add(EntryId(9), compared);
    assert_eq!(next(&mut schedule), None);
    grant(&mut schedule, OstId(3), 1);
    let work = next(&mut schedule).unwrap();
    assert_eq!((work.way.clone(), work.is_comparison, entries(&work)), (Way::Send, true, vec![9]));
}

#[test]
fn what_is_sent_and_what_is_only_compared_share_no_frame() {
    let mut schedule = schedule(Policy::Adaptive, 1);
    for entry in 0..4 {
        let is_comparison = entry >= 2;
        schedule.add(EntryId(entry), Plan { is_comparison, ..plan(100, 0, 0) });
    }
    let sent = next(&mut schedule).unwrap();
    assert_eq!((entries(&sent), sent.is_comparison), (vec![0, 1], false));
    schedule.on_read(Instant::START, &sent, Duration::ZERO);
    let compared = next(&mut schedule).unwrap();
    assert_eq!((entries(&compared), compared.is_comparison), (vec![2, 3], true));
}

#[test]
fn what_is_staged_goes_before_what_is_not() {
    let mut schedule = with_stage(1);
    let work = next(&mut schedule).unwrap();
    put_into_stage(&mut schedule, &work);
    assert_eq!(schedule.staged_bytes(), BLOCK.into());
    assert_eq!(next(&mut schedule), None, "the stage is full");
    grant(&mut schedule, work.sink_ost, 2);
    let drained = next(&mut schedule).unwrap();
    let Way::Drain(slot, rows) = &drained.way else { panic!("{drained:?}") };
    assert_eq!((&drained.blocks, rows[0].checksum), (&work.blocks, 7));
    assert_eq!(schedule.staged_bytes(), 0);
    let sent = next(&mut schedule).unwrap();
    assert_eq!((sent.way, sent.sink_ost), (Way::Send, work.sink_ost));
    assert_eq!(next(&mut schedule), None, "what was staged still has its place");
    schedule.on_drained(*slot);
    assert!(matches!(next(&mut schedule).unwrap().way, Way::Stage(_)));
}

#[test]
fn a_closed_stage_takes_nothing_and_gives_what_it_has() {
    let mut schedule = with_stage(9);
    let work = next(&mut schedule).unwrap();
    put_into_stage(&mut schedule, &work);
    schedule.close_stage();
    assert_eq!(next(&mut schedule), None);
    grant(&mut schedule, work.sink_ost, 1);
    assert!(matches!(next(&mut schedule).unwrap().way, Way::Drain(..)));
}

#[test]
fn blocks_of_forgotten_files_leave_the_stage() {
    let mut schedule = with_stage(1);
    let work = next(&mut schedule).unwrap();
    put_into_stage(&mut schedule, &work);
    schedule.remove(work.blocks[0].entry);
    schedule.clear_stage();
    assert_eq!(schedule.staged_bytes(), 0);
    assert!(matches!(next(&mut schedule).unwrap().way, Way::Stage(_)), "its place is free");
}

#[test]
fn what_is_staged_leaves_half_of_the_open_files_to_what_can_be_sent() {
    let mut schedule =
        Schedule::new(Policy::Layout, Threshold::default(), &TUNING, &osts(1, 99), BLOCK);
    schedule.set_stage(99 * u64::from(BLOCK), 99);
    schedule.set_begun_max(4);
    for entry in 0..9 {
        schedule.add(EntryId(entry), plan(u64::from(BLOCK), 0, 0));
    }
    for entry in 9..12 {
        schedule.add(EntryId(entry), plan(u64::from(BLOCK), 0, 1));
    }
    assert_eq!(iter::from_fn(|| next(&mut schedule)).count(), 2);
    grant(&mut schedule, OstId(1), 9);
    let sent: Vec<_> = iter::from_fn(|| next(&mut schedule)).map(|w| entries(&w)[0]).collect();
    assert_eq!(sent, [9, 10]);
}

#[test]
fn what_waits_long_at_the_sink_is_sent_after_what_does_not() {
    let mut schedule =
        Schedule::new(Policy::Adaptive, Threshold::default(), &TUNING, &osts(1, 9), BLOCK);
    (0..2).for_each(|ost| grant(&mut schedule, OstId(ost), 8));
    schedule.add(EntryId(0), plan(u64::from(6 * BLOCK), 0, 0));
    for _ in 0..6 {
        let work = schedule.next(Instant::START, 0).unwrap();
        schedule.on_read(Instant::START, &work, Duration::from_millis(1));
    }
    schedule.add(EntryId(1), plan(u64::from(BLOCK), 0, 0));
    schedule.add(EntryId(2), plan(u64::from(BLOCK), 0, 1));
    let first = schedule.next(Instant::START, 0).unwrap();
    assert_eq!(entries(&first), [2], "less waits at the sink for its OST");
    schedule.on_read(Instant::START, &first, Duration::from_millis(1));
    assert_eq!(entries(&schedule.next(Instant::START, 0).unwrap()), [1]);
}

/// A schedule for one target that is divided into this number of tracks.
fn on_tracks(count: usize) -> Schedule {
    let track = OstSpec { is_track: true, ..OstSpec::new("mount", 1) };
    let osts = vec![track; count];
    let mut schedule = Schedule::new(Policy::Adaptive, Threshold::default(), &TUNING, &osts, BLOCK);
    grant(&mut schedule, OstId(0), 10_000);
    schedule
}

#[test]
fn the_first_request_to_an_ost_is_short_and_to_a_track_is_not() {
    let first = |osts: &[OstSpec]| {
        let mut schedule =
            Schedule::new(Policy::Adaptive, Threshold::default(), &TUNING, osts, BLOCK);
        grant(&mut schedule, OstId(0), 10);
        schedule.add(EntryId(1), plan(8 * u64::from(BLOCK), 0, 0));
        schedule.next(Instant::START, 0).unwrap().blocks[0].length
    };
    assert_eq!(first(&osts(4, 1)), TUNING.probe_bytes);
    let track = OstSpec { is_track: true, ..OstSpec::new("mount", 1) };
    assert_eq!(first(&vec![track; 4]), BLOCK);
}

#[test]
fn an_idle_track_takes_over_the_later_half_of_the_files_that_wait_for_another() {
    let mut schedule = on_tracks(2);
    for entry in 0..4 {
        schedule.add(EntryId(entry), plan(BLOCK.into(), 0, 0));
    }
    let taken: Vec<_> = iter::from_fn(|| schedule.next(Instant::START, 0)).collect();
    let taken: Vec<_> = taken.iter().map(|work| (work.source_ost.0, entries(work)[0])).collect();
    assert_eq!(taken, [(0, 0), (1, 2)]);
}

#[test]
fn idle_tracks_divide_a_long_file_after_an_odd_number_of_blocks() {
    let mut schedule = on_tracks(3);
    schedule.add(EntryId(1), plan(64 * u64::from(BLOCK), 0, 0));
    let taken: Vec<_> = iter::from_fn(|| schedule.next(Instant::START, 0)).collect();
    let blocks: Vec<_> = taken.iter().map(|work| work.blocks[0].offset >> 20).collect();
    assert_eq!(blocks, [0, 32, 47], "halves of 1..64, then of 32..64");
}

#[test]
fn the_rest_of_a_short_file_does_not_wait_behind_a_read_while_a_track_is_idle() {
    let mut schedule = on_tracks(2);
    schedule.add(EntryId(1), plan(2 * u64::from(BLOCK), 0, 0));
    let first = schedule.next(Instant::START, 0).unwrap();
    assert!(schedule.may_have_work(), "the other track can take over the second block");
    let second = schedule.next(Instant::START, 0).unwrap();
    assert_eq!((first.source_ost, second.source_ost), (OstId(0), OstId(1)));
    assert!(!schedule.may_have_work());
}

#[test]
fn what_waits_for_tracks_of_another_target_is_not_taken_over() {
    let track = |name: &str| OstSpec { is_track: true, ..OstSpec::new(name, 1) };
    let osts = [track("one"), track("one"), track("other"), OstSpec::new("one", 1)];
    let mut schedule = Schedule::new(Policy::Adaptive, Threshold::default(), &TUNING, &osts, BLOCK);
    grant(&mut schedule, OstId(0), 100);
    for entry in 0..8 {
        schedule.add(EntryId(entry), plan(BLOCK.into(), 0, 0));
    }
    let taken: Vec<_> = iter::from_fn(|| schedule.next(Instant::START, 0)).collect();
    assert_eq!(taken.iter().map(|work| work.source_ost.0).collect::<Vec<_>>(), [0, 1]);
}

proptest! {
    #[test]
    fn tracks_read_every_byte_once_whoever_takes_over(
        track_count in 1usize..9,
        files in prop::collection::vec((0u64..40_000_000, 0u32..8, 1u32..4), 1..12),
        open_max in 1u32..6,
        turns in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
    ) {
        let mut schedule = on_tracks(track_count);
        schedule.set_begun_max(open_max);
        let mut wanted: EntryMap<u64> = EntryMap::default();
        for (entry, (size, track, stripe_count)) in files.into_iter().enumerate() {
            let entry = EntryId(entry as u64);
            let track = track % u32::try_from(track_count).unwrap();
            let stripes = (0..stripe_count).map(OstId).collect();
            let sink = Layout::striped(3 << 20, stripes).unwrap();
            (0..stripe_count).for_each(|ost| grant(&mut schedule, OstId(ost), 1000));
            schedule.add(entry, Plan { sink, ..plan(size, track, 0) });
            wanted.insert(entry, size);
        }
        let (mut under_way, mut turns) = (Vec::new(), turns.iter().cycle());
        let mut read: EntryMap<RangeSet> = EntryMap::default();
        wanted.retain(|_, size| *size > 0);
        while !wanted.is_empty() {
            let hints_at_work = schedule.may_have_work();
            let work = schedule.next(Instant::START, 0);
            prop_assert!(work.is_none() || hints_at_work);
            if let Some(work) = work {
                under_way.push(work);
                continue;
            }
            prop_assert!(!under_way.is_empty(), "nothing is under way, and {wanted:?} is left");
            let at = turns.next().expect("cycled").index(under_way.len());
            let work = under_way.swap_remove(at);
            schedule.on_read(Instant::START, &work, Duration::from_millis(1));
            for block in &work.blocks {
                let seen = read.entry(block.entry).or_default();
                prop_assert_eq!(seen.insert(block.offset..block.end()), u64::from(block.length));
                if seen.byte_count() == wanted[&block.entry] {
                    wanted.remove(&block.entry);
                    schedule.remove(block.entry);
                }
            }
        }
        prop_assert_eq!(schedule.next(Instant::START, 0), None);
    }
}
