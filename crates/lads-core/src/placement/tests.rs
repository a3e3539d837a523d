use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn placer(rule: Place, seed: u64) -> Placer {
    Placer::new(rule, MIB, 2000, seed)
}

fn file(size: u64) -> NewFile {
    // Far more is left than this file.
    NewFile { size, unplaced_bytes: 1 << 50, source: Striping { size: 4 * MIB, count: 3 } }
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

#[test]
fn a_file_that_is_long_among_those_left_lies_on_more_osts() {
    let stripes = |size, unplaced_bytes, queued_bytes| {
        let mut candidates = alike(8);
        candidates[0].queued_bytes = queued_bytes;
        let file = NewFile { unplaced_bytes, ..file(size) };
        osts(placer(Place::Aware, 3).wish(&file, &candidates)).len()
    };
    assert_eq!(stripes(512 * MIB, 512 * MIB, 0), 8, "it is alone");
    assert_eq!(stripes(512 * MIB, 1024 * MIB, 0), 4, "there is another");
    assert_eq!(stripes(512 * MIB, 512 * MIB, 512 * MIB), 4, "another has its place already");
    assert_eq!(stripes(512 * MIB, 100 * GIB, 0), 1, "there are many");
    assert_eq!(stripes(100 * MIB, 100 * MIB, 0), 3, "stripes are long");
    assert_eq!(stripes(8 * MIB, 8 * MIB, 0), 1, "it is short");
    assert_eq!(stripes(4 * GIB, 100 * GIB, 0), 4, "one for each GiB in any case");
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
