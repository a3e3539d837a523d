use super::*;
use crate::layout::contract::Check;
use std::fs::File;

/// Any file system can keep these.
const FAKE_ATTRIBUTES: Attributes =
    Attributes { file: "user.ceph.file.layout", directory: "user.ceph.dir.layout" };

fn striping(unit: u32, count: u32, object_size: u32) -> ObjectStriping {
    ObjectStriping::new(unit, count, object_size).unwrap()
}

/// Has a real one keep the contract, if there is one.
pub(super) fn keep_the_contract(check: Check) {
    let Some(mount) = std::env::var_os("LADS_TEST_CEPH") else {
        lads_tried::not_tried("LADS_TEST_CEPH names no CephFS: `cargo xtask ceph up` makes one");
        return;
    };
    let directory = tempfile::tempdir_in(mount).unwrap();
    let layouts = crate::layout::open("auto", directory.path()).unwrap();
    assert_eq!(layouts.kind(), "ceph");
    assert!(layouts.osts().len() > 2, "the cluster is known: {:?}", layouts.osts());
    check(layouts.as_ref(), directory.path());
}

fn faked() -> Ceph {
    Ceph::over(FAKE_ATTRIBUTES, cluster::tests::of_four())
}

fn text(striping: ObjectStriping) -> String {
    format!("{striping} pool=data")
}

const MIB: u32 = 1 << 20;

#[test]
fn osds_are_numbered_without_gaps_and_there_is_one_more_number() {
    let ceph = faked();
    let names: Vec<_> = ceph.osts().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["osd.0", "osd.1", "osd.5", "osd.7", "elsewhere"]);
    let targets = ceph.targets();
    let states: Vec<_> = targets.iter().map(|it| it.state).collect();
    assert_eq!(states, [OstState::Up, OstState::Up, OstState::Down, OstState::NoCreate]);
    let servers: Vec<_> = targets.iter().map(|it| it.server.as_str()).collect();
    assert_eq!(servers, ["node1", "node1", "node2", "10.0.0.7"]);
}

#[test]
fn each_object_is_on_the_osd_of_its_group() {
    let ceph = faked();
    // Groups 7 and f of 32, by the golden names; both OSDs have gaps before them.
    let layout = ceph.layout(text(striping(MIB, 2, 2 * MIB)).as_bytes(), 0x100_0000_0001, 2 << 20);
    let (first, second) = (layout.ost_at(0), layout.ost_at(1 << 20));
    assert_eq!((first, second), (OstId(2), OstId(3)));
    assert_eq!(layout.objects().unwrap().places().len(), 2);
}

#[test]
fn hosts_are_osts_where_there_are_very_many_osds() {
    let osd = |id: i64| Osd {
        id,
        host: format!("node{:03}", id / 3),
        capacity_bytes: 10,
        is_flash: Some(true),
        state: if id % 3 == 0 { OstState::Down } else { OstState::Up },
        ..Osd::default()
    };
    let of = |count| {
        let mut cluster = Cluster::default();
        cluster.osds = (0..count).map(osd).collect();
        Ceph::over(FAKE_ATTRIBUTES, cluster)
    };
    let ceph = of(300);
    assert_eq!((ceph.targets().len(), ceph.osts().len()), (100, 101));
    assert_eq!(
        (ceph.osts[&0], ceph.osts[&299], ceph.elsewhere()),
        (OstId(0), OstId(99), OstId(100))
    );
    let target = &ceph.targets()[5];
    assert_eq!((target.name.as_str(), target.state), ("node005", OstState::Up));
    assert_eq!((target.capacity_bytes, target.is_flash), (30, Some(true)));
    assert_eq!(of(3000).targets().len(), OSTS_MAX);
}

#[test]
fn what_is_not_known_is_elsewhere() {
    let ceph = faked();
    let of = |text: &str| ceph.layout(text.as_bytes(), 1, 1);
    let elsewhere = Layout::on(OstId(4));
    assert_eq!(of(""), elsewhere);
    assert_eq!(of("stripe_unit=1 stripe_count=1 object_size=1 pool=gone"), elsewhere);
    let alone = Ceph::over(FAKE_ATTRIBUTES, Cluster::default());
    assert_eq!(alone.osts().len(), 1);
    assert_eq!(alone.layout(text(striping(1, 1, 1)).as_bytes(), 1, 1), Layout::on(OstId(0)));
}

#[test]
fn a_wish_is_heeded_as_far_as_it_says_how_to_cut() {
    let given = striping(4 * MIB, 1, 4 * MIB);
    let striped = |stripe_size, stripe_count| Wish::Striped { stripe_size, stripe_count };
    let on =
        |stripe_size, count: u32| Wish::On { stripe_size, osts: (0..count).map(OstId).collect() };
    let of = |wish: &Wish| wished(wish, given);
    assert_eq!(of(&Wish::Default), None);
    assert_eq!(of(&striped(1 << 20, 4)), Some(striping(MIB, 4, 4 * MIB)));
    assert_eq!(of(&striped(1 << 20, 1)), Some(given));
    assert_eq!(of(&striped(3 << 20, 2)), Some(striping(3 * MIB, 2, 6 * MIB)));
    assert_eq!(of(&striped(1 << 40, 2)), Some(striping(128 * MIB, 2, 128 * MIB)));
    assert_eq!(of(&on(1 << 20, 1)), None);
    assert_eq!(of(&on(1 << 20, 3)), Some(striping(MIB, 3, 4 * MIB)));
    assert_eq!(wished(&on(1 << 20, 3), striping(MIB, 8, MIB)), None);
}

#[test]
fn a_new_file_is_asked_what_it_has_after_it_was_told() {
    let directory = tempfile::tempdir().unwrap();
    let handle = OwnedFd::from(File::open(directory.path()).unwrap());
    let made = handle_of_new(&handle);
    let given = text(striping(4 * MIB, 1, 4 * MIB));
    if fsetxattr(&made, FAKE_ATTRIBUTES.file, given.as_bytes(), XattrFlags::empty()).is_err() {
        lads_tried::not_tried("the file system of temporary files has no extended attributes");
        return;
    }
    let wish = Wish::Striped { stripe_size: 1 << 20, stripe_count: 2 };
    let file = new_file(&handle, &wish);
    // It takes the text as it is: without a pool, so that what it has is no layout.
    let placed = faked().settle(&made, &file).unwrap();
    assert!(placed.is_made);
    assert_eq!(placed.layout, Layout::on(OstId(4)));
    let difference = placed.difference.unwrap();
    assert!(
        difference.contains("stripe_count=2") && difference.contains("unknown"),
        "{difference}"
    );
}

fn new_file<'a>(directory: &'a OwnedFd, wish: &'a Wish) -> NewFile<'a> {
    NewFile::new(directory, "new", 9, wish)
}

fn handle_of_new(directory: &OwnedFd) -> OwnedFd {
    make(&new_file(directory, &Wish::Default), OFlags::empty()).unwrap()
}
