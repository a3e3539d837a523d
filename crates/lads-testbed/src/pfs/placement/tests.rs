use super::*;
use crate::pfs::space::TargetState;

const DEFAULTS: Defaults = Defaults { stripe_size: 1 << 20, stripe_count: 1 };

fn space() -> Space {
    Space::new(8, 1 << 30)
}

/// Returns the OSTs of a new file, or the error.
fn place_in(space: &mut Space, wish: &Lov) -> Result<Vec<usize>, Errno> {
    place(wish, DEFAULTS, space).map(|lov| osts(&lov.components[0]))
}

fn placed(wish: &Lov) -> Result<Vec<usize>, Errno> {
    place_in(&mut space(), wish)
}

fn osts(component: &Component) -> Vec<usize> {
    let Body::Stripes(stripes) = &component.body else { panic!("{component:?}") };
    stripes.objects.iter().map(|object| object.ost.index()).collect()
}

fn on(osts: &[u32]) -> Lov {
    let osts: Vec<OstId> = osts.iter().copied().map(OstId).collect();
    Lov::wish_on(1 << 20, &osts)
}

fn with(mut wish: Lov, change: impl FnOnce(&mut Stripes)) -> Lov {
    let Body::Stripes(stripes) = &mut wish.components[0].body else { panic!("no stripes") };
    change(stripes);
    wish
}

#[test]
fn files_get_their_stripes_in_turn() {
    let mut space = space();
    assert_eq!(place_in(&mut space, &Lov::wish(0, 3)), Ok(vec![0, 1, 2]));
    assert_eq!(place_in(&mut space, &Lov::wish(0, 0)), Ok(vec![3]));
    assert_eq!(
        place_in(&mut space, &Lov::wish(0, lov::ALL_OSTS)),
        Ok(vec![4, 5, 6, 7, 0, 1, 2, 3])
    );
    assert_eq!(place_in(&mut space, &Lov::wish(0, 100)).map(|osts| osts.len()), Ok(8));
}

#[test]
fn a_list_is_obeyed_in_its_order() {
    assert_eq!(placed(&on(&[5, 0, 3])), Ok(vec![5, 0, 3]));
    assert_eq!(placed(&on(&[6])), Ok(vec![6]));
    assert_eq!(placed(&on(&[2, 2, 5])), Ok(vec![2, 2, 5]));
    assert_eq!(placed(&with(on(&[5, 0, 3]), |it| it.first_ost = 0)), Ok(vec![0, 3, 5]));
}

#[test]
fn what_the_mds_would_refuse_is_refused() {
    let repeated = with(on(&[2, 2]), |it| it.pattern = pattern::RAID0);
    let elsewhere = with(on(&[5, 0]), |it| it.first_ost = 1);
    let odd = with(Lov::wish(0, 1), |it| it.stripe_size = 65537);
    let mirrored = with(Lov::wish(0, 1), |it| it.pattern = 0x2);
    for wish in [repeated, elsewhere, odd, mirrored, on(&[8]), on(&[0, 8])] {
        assert_eq!(placed(&wish), Err(Errno::INVAL), "{wish:?}");
    }
}

#[test]
fn an_ost_asked_for_that_takes_no_files_says_why() {
    let states = [
        (TargetState::Down, Errno::REMOTEIO),
        (TargetState::Full, Errno::NOSPC),
        (TargetState::NoCreate, Errno::NOBUFS),
    ];
    for (state, error) in states {
        let mut space = space();
        space.set_state(5, state);
        assert_eq!(place_in(&mut space, &on(&[1, 5])), Err(error));
        assert_eq!(place_in(&mut space, &on(&[5])), Err(error));
        assert_eq!(place_in(&mut space, &Lov::wish(0, 8)).map(|osts| osts.len()), Ok(7));
    }
}

#[test]
fn a_degraded_ost_that_was_asked_for_comes_first_all_the_same() {
    let mut space = space();
    space.set_state(5, TargetState::Degraded);
    let wish = with(Lov::wish(0, 3), |it| it.first_ost = 5);
    assert_eq!(place_in(&mut space, &wish), Ok(vec![5, 6, 7]));
}

#[test]
fn a_composite_file_gets_objects_where_it_is_written() {
    let mut space = space();
    let wish = Lov::wish_composite([
        (1 << 20, Lov::wish(0, 1)),
        (1 << 24, on(&[6, 7])),
        (u64::MAX, Lov::wish(1 << 22, 4)),
    ]);
    let mut lov = place(&wish, DEFAULTS, &mut space).unwrap();
    assert_eq!(
        told(&lov).components.iter().map(|it| osts(it).len()).collect::<Vec<_>>(),
        [1, 0, 0]
    );
    assert!(instantiate(&mut lov, 0..(1 << 20) + 1, DEFAULTS, &mut space).unwrap());
    assert_eq!(osts(&lov.components[1]), [6, 7]);
    assert!(!instantiate(&mut lov, 0..1 << 24, DEFAULTS, &mut space).unwrap());
    assert!(instantiate(&mut lov, 1 << 30..1 << 31, DEFAULTS, &mut space).unwrap());
    assert_eq!(osts(&lov.components[2]).len(), 4);
    assert_eq!(lov.composite.unwrap().generation, 4);
    remove_objects(&lov, &mut space);
    assert!(space.targets().iter().all(|target| target.objects == 0));
}

#[test]
fn components_without_objects_say_how_many_stripes_they_will_have() {
    let wish = Lov::wish_composite([(1 << 20, Lov::wish(0, 1)), (u64::MAX, Lov::wish(0, 4))]);
    let lov = place(&wish, DEFAULTS, &mut space()).unwrap();
    let lov = told(&lov);
    let Body::Stripes(stripes) = &lov.components[1].body else { panic!("{lov:?}") };
    assert_eq!((stripes.stripe_count, stripes.objects.len()), (4, 0));
    assert_eq!(lov.components[1].flags & flag::INSTANTIATED, 0);
}

#[test]
fn composites_have_no_gaps() {
    for ends in [vec![1000, u64::MAX], vec![1 << 20, 1 << 20, u64::MAX]] {
        let wish = Lov::wish_composite(ends.into_iter().map(|end| (end, Lov::wish(0, 1))));
        assert_eq!(placed(&wish), Err(Errno::INVAL), "{wish:?}");
    }
}

#[test]
fn components_can_be_added_where_a_composite_file_is_open() {
    let mut space = space();
    let mut lov = place(&Lov::wish_composite([(1 << 20, on(&[2]))]), DEFAULTS, &mut space).unwrap();
    assert!(is_covered(&lov, &(0..1 << 20)) && !is_covered(&lov, &(0..(1 << 20) + 1)));
    let count = space.targets().len();
    let generation = lov.composite.unwrap().generation;
    let next = Lov::wish_components(1 << 20, [(2 << 20, on(&[5])), (3 << 20, on(&[1]))]);
    add(&mut lov, &next, count).unwrap();
    assert_eq!(lov.composite.unwrap().generation, generation + 1);
    assert!(instantiate(&mut lov, 0..2 << 20, DEFAULTS, &mut space).unwrap());
    assert_eq!(osts(&lov.components[1]), [5]);
    assert_eq!(lov.components[2].flags & flag::INSTANTIATED, 0);
    assert_eq!(lov.components.iter().map(|it| it.id).collect::<Vec<_>>(), [1, 2, 3]);
    let before = lov.clone();
    for refused in [
        Lov::wish_components(2 << 20, [(4 << 20, on(&[5]))]),
        Lov::wish_components(3 << 20, [((3 << 20) + 1, on(&[5]))]),
        Lov::wish_components(3 << 20, [(4 << 20, on(&[99]))]),
        on(&[5]),
    ] {
        assert_eq!(add(&mut lov, &refused, count), Err(Errno::INVAL), "{refused:?}");
    }
    assert_eq!(lov, before);
    add(&mut lov, &Lov::wish_components(3 << 20, [(u64::MAX, on(&[0]))]), count).unwrap();
    let more = Lov::wish_components(u64::MAX, [(u64::MAX, on(&[0]))]);
    assert_eq!(add(&mut lov, &more, count), Err(Errno::INVAL), "it has no end");
    let mut plain = place(&on(&[5]), DEFAULTS, &mut space).unwrap();
    assert_eq!(add(&mut plain, &next, count), Err(Errno::INVAL), "it is not composite");
}

#[test]
fn a_failed_placement_leaves_no_objects() {
    let mut space = space();
    space.set_state(5, TargetState::Down);
    let first = Lov::wish_composite([(1 << 20, Lov::wish(0, 1)), (u64::MAX, on(&[5]))]);
    let mut lov = place(&first, DEFAULTS, &mut space).unwrap();
    let before = lov.clone();
    let failed = instantiate(&mut lov, 0..1 << 21, DEFAULTS, &mut space);
    assert_eq!((failed, lov), (Err(Errno::REMOTEIO), before));
    assert_eq!(space.targets().iter().map(|target| target.objects).sum::<u64>(), 1);
}
