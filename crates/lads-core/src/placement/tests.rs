use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn placer(rule: Place, seed: u64) -> Placer {
    Placer::new(rule, &Tuning::DEFAULT, MIB, 2000, seed)
}

fn file(size: u64) -> NewFile {
    // Far more is left than this file.
    let source = Striping { size: 4 * MIB, count: 3 };
    NewFile { size, coming_bytes: 1 << 50, transfer_bytes: 1 << 50, source }
}

/// This many OSTs, two to a server, all alike.
fn alike(count: u32) -> Vec<Candidate> {
    let of = |index| Candidate { server: index / 2, ..Candidate::default() };
    (0..count).map(of).collect()
}

fn osts(wish: Wish) -> Vec<u32> {
    match wish {
        Wish::On { osts, .. } => osts.iter().map(|ost| ost.0).collect(),
        _ => Vec::new(),
    }
}

/// Places this many files of 1 MiB, each written before the next if `is_written`, and says how many
/// came to each OST.
fn placed(rule: Place, candidates: &[Candidate], files: usize, is_written: bool) -> Vec<u64> {
    let mut placer = placer(rule, 7);
    let mut candidates = candidates.to_vec();
    let mut counts = vec![0; candidates.len()];
    for _ in 0..files {
        for ost in osts(placer.wish(&file(MIB), &candidates)) {
            counts[ost as usize] += 1;
            if !is_written {
                candidates[ost as usize].queued_bytes += MIB;
            }
        }
    }
    counts
}

/// Pearson's statistic against all OSTs having the same number of files.
fn chi_square(counts: &[u64]) -> f64 {
    let number = |count: u64| f64::from(u32::try_from(count).unwrap());
    let expected = number(counts.iter().sum()) / number(counts.len() as u64);
    counts.iter().map(|&count| (number(count) - expected).powi(2) / expected).sum()
}

/// With 15 degrees of freedom, chance alone gives more in one of a thousand cases.
const CHI_SQUARE_15_MAX: f64 = 37.7;

#[test]
fn files_come_to_all_osts_alike() {
    for rule in [Place::Spread, Place::Aware] {
        for is_written in [true, false] {
            let counts = placed(rule, &alike(16), 1600, is_written);
            assert!(chi_square(&counts) < CHI_SQUARE_15_MAX, "{rule:?}: {counts:?}");
        }
    }
}

/// Places files of these MiB on this many OSTs, all announced before the first; none is written
/// meanwhile. Says how many stripes each got, and what the fullest OST has, in MiB.
fn striped(candidates: &[Candidate], files: &[u64]) -> (Vec<usize>, u64) {
    let mut candidates = candidates.to_vec();
    let transfer_bytes = files.iter().sum::<u64>() * MIB;
    let mut coming_bytes = transfer_bytes;
    let mut placer = placer(Place::Aware, 3);
    let mut counts = Vec::new();
    for mib in files {
        let file = NewFile { coming_bytes, transfer_bytes, ..file(mib * MIB) };
        let osts = osts(placer.wish(&file, &candidates));
        for &ost in &osts {
            candidates[ost as usize].queued_bytes += (mib * MIB).div_ceil(osts.len() as u64);
        }
        coming_bytes -= mib * MIB;
        counts.push(osts.len());
    }
    (counts, candidates.iter().map(|it| it.queued_bytes).max().unwrap() / MIB)
}

#[test]
fn a_file_that_is_alone_lies_on_all_osts_unless_it_is_short() {
    assert_eq!(striped(&alike(8), &[512]), (vec![8], 64));
    assert_eq!(striped(&alike(8), &[96]), (vec![8], 12));
    assert_eq!(striped(&alike(32), &[96]), (vec![12], 8));
    assert_eq!(striped(&alike(8), &[32]), (vec![4], 8));
    assert_eq!(striped(&alike(8), &[15]), (vec![1], 15));
}

#[test]
fn a_few_large_files_fill_all_osts_alike() {
    assert_eq!(striped(&alike(8), &[96; 2]), (vec![8; 2], 24));
    assert_eq!(striped(&alike(8), &[96; 3]), (vec![8; 3], 36));
    assert_eq!(striped(&alike(8), &[96; 5]), (vec![8; 5], 60));
}

#[test]
fn as_many_files_as_osts_have_one_each_and_what_is_over_fills_the_gaps() {
    assert_eq!(striped(&alike(8), &[12; 8]), (vec![1; 8], 12));
    assert_eq!(striped(&alike(8), &[96; 8]), (vec![1; 8], 96));
    let (counts, most) = striped(&alike(8), &[96; 10]);
    assert_eq!((counts, most), (vec![1, 1, 1, 1, 1, 1, 1, 1, 4, 4], 120));
}

#[test]
fn of_many_files_each_lies_on_one_ost() {
    assert_eq!(striped(&alike(8), &[8; 160]), (vec![1; 160], 160));
    assert_eq!(striped(&alike(32), &[8; 320]), (vec![1; 320], 80));
    let (counts, most) = striped(&alike(8), &[96; 100]);
    assert!(counts[..96].iter().all(|&count| count == 1), "{counts:?}");
    assert!(most <= 1200 + 32, "{most}");
}

#[test]
fn a_large_file_among_many_small_ones_lies_on_more_only_if_they_do_not_fill_the_others() {
    let (counts, most) = striped(&alike(8), &[[8; 100].as_slice(), &[96]].concat());
    assert_eq!((&counts[..100], counts[100], most), ([1; 100].as_slice(), 4, 120));
    let (counts, _) = striped(&alike(8), &[[96].as_slice(), &[8; 100]].concat());
    assert_eq!(counts, [1; 101]);
}

#[test]
fn stripes_keep_away_from_an_ost_that_is_slow_or_busy() {
    let mut slow = alike(8);
    slow[2].slowness = 10 * SLOWNESS_ONE;
    assert_eq!(striped(&slow, &[96]), (vec![7], 13));
    let mut busy = alike(8);
    busy[2].queued_bytes = 96 * MIB;
    assert_eq!(striped(&busy, &[96]).0, [7]);
}

#[test]
fn what_is_written_already_counts_for_how_many_there_are() {
    let left = |transfer_bytes| {
        let file = NewFile { coming_bytes: 32 * MIB, transfer_bytes, ..file(32 * MIB) };
        osts(placer(Place::Aware, 3).wish(&file, &alike(8))).len()
    };
    assert_eq!(left(32 * MIB), 4, "it is alone");
    assert_eq!(left(100 * GIB), 1, "it is the last of many");
}

#[test]
fn where_stripes_fit_nowhere_else_there_are_fewer_or_more() {
    let mut small = alike(4);
    for candidate in &mut small {
        (candidate.capacity_bytes, candidate.free_bytes) = (GIB, 10 * MIB);
    }
    assert_eq!(striped(&small, &[40]), (vec![4], 10));
    assert_eq!(striped(&small, &[41]).0, [0]);
    small[0].free_bytes = GIB;
    let many = NewFile { size: 60 * MIB, ..file(60 * MIB) };
    assert_eq!(osts(placer(Place::Aware, 3).wish(&many, &small)), [0]);
}

#[test]
fn spread_files_go_to_another_server_each_time() {
    let candidates = alike(6);
    let mut placer = placer(Place::Spread, 1);
    let order: Vec<_> = (0..7).flat_map(|_| osts(placer.wish(&file(MIB), &candidates))).collect();
    assert_eq!(order, [0, 2, 4, 1, 3, 5, 0]);
}

#[test]
fn an_ost_that_is_slow_or_almost_full_gets_fewer_files() {
    let mut candidates = alike(8);
    candidates[3].slowness = 8 * SLOWNESS_ONE;
    candidates[5].state = OstState::Degraded;
    for candidate in &mut candidates {
        (candidate.capacity_bytes, candidate.free_bytes) = (100 * GIB, 80 * GIB);
    }
    candidates[6].free_bytes = 8 * GIB;
    let counts = placed(Place::Aware, &candidates, 1000, false);
    for slow in [3, 5, 6] {
        assert!(counts[slow] * 2 < counts[0], "{counts:?}");
    }
}

#[test]
fn a_large_file_gets_a_stripe_for_each_gibibyte_on_different_osts() {
    let mut placer = placer(Place::Aware, 3);
    let candidates = alike(8);
    let mut count = |size| {
        let mut osts = osts(placer.wish(&file(size), &candidates));
        osts.sort_unstable();
        osts.dedup();
        osts.len()
    };
    assert_eq!([0, 1, GIB, GIB + 1, 4 * GIB, 99 * GIB].map(&mut count), [1, 1, 1, 2, 4, 8]);
}

#[test]
fn the_same_striping_as_at_the_source_is_wished_for_without_saying_where() {
    let mut placer = placer(Place::Same, 3);
    let wish = placer.wish(&file(GIB), &alike(8));
    assert_eq!(wish, Wish::Striped { stripe_size: 4 * MIB, stripe_count: 3 });
    let wish = placer.wish(&file(GIB), &alike(2));
    assert_eq!(wish, Wish::Striped { stripe_size: 4 * MIB, stripe_count: 2 });
    let unknown = NewFile { source: Striping::default(), ..file(1) };
    assert_eq!(placer.wish(&unknown, &alike(2)), Wish::Default);
}

#[test]
fn odd_stripe_sizes_become_those_that_can_be_had() {
    let odd = NewFile { source: Striping { size: 100_000, count: 2 }, ..file(1) };
    let wish = placer(Place::Same, 3).wish(&odd, &alike(8));
    assert_eq!(wish, Wish::Striped { stripe_size: 128 << 10, stripe_count: 2 });
}

#[test]
fn without_an_ost_that_takes_files_the_file_system_decides() {
    let full = Candidate { state: OstState::Full, ..Candidate::default() };
    for rule in [Place::Spread, Place::Aware, Place::Inherit] {
        assert_eq!(placer(rule, 1).wish(&file(1), &[full, full]), Wish::Default);
        assert_eq!(placer(rule, 1).wish(&file(1), &[]), Wish::Default);
    }
}

fn candidate_strategy() -> impl Strategy<Value = Candidate> {
    use OstState::{Absent, Degraded, Down, Full, NoCreate, Up};
    let state = prop::sample::select(vec![Up, Up, Up, Degraded, Full, NoCreate, Down, Absent]);
    let space = prop_oneof![
        Just((0, 0)),
        (1..=u64::MAX, any::<u64>()).prop_map(|(capacity, free)| (capacity, free.min(capacity))),
        (1..4 * GIB, 0..4 * GIB),
    ];
    let queued = prop_oneof![Just(0), 0..GIB, any::<u64>()];
    (state, 0u32..4, space, queued, any::<u32>()).prop_map(
        |(state, server, (capacity_bytes, free_bytes), queued_bytes, slowness)| Candidate {
            state,
            server,
            capacity_bytes,
            free_bytes,
            queued_bytes,
            slowness,
        },
    )
}

proptest! {
    #[test]
    fn no_file_goes_where_none_can_be_made_or_where_it_does_not_fit(
        candidates in prop::collection::vec(candidate_strategy(), 0..12),
        is_aware: bool,
        size in prop_oneof![0..GIB, any::<u64>()],
        seed: u64,
    ) {
        let rule = if is_aware { Place::Aware } else { Place::Spread };
        let chosen = osts(placer(rule, seed).wish(&file(size), &candidates));
        let mut seen = chosen.clone();
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), chosen.len(), "an OST twice: {:?}", chosen);
        let fits = |it: &Candidate, stripes: usize| {
            let free = it.free_bytes.saturating_sub(it.queued_bytes);
            let has_room = it.capacity_bytes == 0 || free >= size.div_ceil(stripes as u64);
            it.state.takes_files() && has_room
        };
        for ost in &chosen {
            prop_assert!(fits(&candidates[*ost as usize], chosen.len()));
        }
        let fits_one = candidates.iter().any(|it| fits(it, 1));
        prop_assert!(!fits_one || !chosen.is_empty(), "one stripe would fit");
    }
}
