use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

fn striping(unit: u32, count: u32, object_size: u32) -> ObjectStriping {
    ObjectStriping::new(unit, count, object_size).unwrap()
}

#[test]
fn a_layout_is_read_as_a_real_cluster_tells_it() {
    let text = "stripe_unit=1048576 stripe_count=4 object_size=4194304 pool=data";
    let layout = FileLayout::parse(text.as_bytes()).unwrap();
    assert_eq!(layout.striping, striping(MIB, 4, 4 * MIB));
    assert_eq!((layout.pool.as_str(), layout.namespace.as_str()), ("data", ""));
    assert_eq!(layout.to_string(), text);
    let apart = format!("{text} pool_namespace=lab");
    let layout = FileLayout::parse(apart.as_bytes()).unwrap();
    assert_eq!(layout.namespace, "lab");
    assert_eq!(layout.to_string(), apart);
}

#[test]
fn one_value_is_read_by_its_key() {
    assert_eq!(Field::of("stripe_unit", "65536"), Some(Field::StripeUnit(65536)));
    assert_eq!(Field::of("pool", "cephfs.data"), Some(Field::Pool("cephfs.data".to_owned())));
    assert_eq!(Field::of("pool_namespace", ""), Some(Field::PoolNamespace(String::new())));
    for (key, value) in [("stripe_unit", "+1"), ("stripe_count", ""), ("pool", ""), ("pool", "a\0")]
    {
        assert_eq!(Field::of(key, value), None, "{key}={value}");
    }
}

#[test]
fn what_is_no_layout_is_refused() {
    let refused = |text: &str| FileLayout::parse(text.as_bytes()).is_err();
    assert!(refused(""));
    assert!(refused("stripe_unit=1 stripe_count=1 object_size=1"));
    assert!(refused("stripe_unit=0 stripe_count=1 object_size=1 pool=a"));
    assert!(refused("stripe_unit=2 stripe_count=1 object_size=3 pool=a"));
    assert!(refused("stripe_unit=1 stripe_unit=1 stripe_count=1 object_size=1 pool=a"));
    assert!(refused("stripe_unit=99999999999 stripe_count=1 object_size=1 pool=a"));
    assert!(refused(&format!("pool={}", "a".repeat(5000))));
    assert!(FileLayout::parse(&[0xff; 40]).is_err());
}

#[test]
fn stripes_go_round_the_objects_of_a_set() {
    let striping = striping(MIB, 4, 2 * MIB);
    let found = |mib: u64| {
        let at = striping.locate(mib << 20 | 5);
        (at.object, at.offset)
    };
    let second = u64::from(MIB) + 5;
    assert_eq!([0, 1, 3, 4, 7].map(found), [(0, 5), (1, 5), (3, 5), (0, second), (3, second)]);
    assert_eq!([8, 9, 12].map(found), [(4, 5), (5, 5), (4, second)]);
    assert_eq!(striping.run_end(5), u64::from(MIB));
    assert_eq!(striping.set_bytes(), 8 << 20);
    let objects = [0, 1, 1 << 20, (1 << 20) + 1, 8 << 20, (8 << 20) + 1];
    assert_eq!(objects.map(|size| striping.object_count(size)), [0, 1, 1, 2, 4, 5]);
}

#[test]
fn one_object_after_the_other_needs_no_stripes() {
    let striping = striping(64 * KIB, 1, 4 * MIB);
    assert_eq!(striping.locate(9 << 20), ObjectByte { object: 2, offset: 1 << 20 });
    assert_eq!(striping.run_end(9 << 20), 12 << 20);
    assert_eq!(striping.object_count(9 << 20), 3);
}

/// What `ceph osd map` of 16.2.15 says of a pool of 32 groups.
#[test]
fn objects_are_in_the_groups_in_which_a_real_cluster_has_them() {
    let pool = |group_count| Pool { id: 2, name: "data".to_owned(), group_count };
    let known = [
        (object_name(0x100_0000_0001, 0), 0x0c9e_0747, 0x7),
        (object_name(0x100_0000_0001, 1), 0xb1e4_64af, 0xf),
        (object_name(0x100_0000_0002, 0xff), 0x5e4d_b419, 0x19),
        (object_name(0x1_0000_0000_0123, 0xffff), 0x5d80_9ddf, 0x1f),
        ("abc".to_owned(), 0x251e_4793, 0x13),
        ("x".to_owned(), 0xd6d9_af33, 0x13),
    ];
    for (name, hash, group) in known {
        assert_eq!(rjenkins(name.as_bytes()), hash, "{name}");
        assert_eq!(pool(32).group("", &name), group, "{name}");
        assert_eq!(pool(u32::MAX).group("", &name), hash, "{name}");
        assert_eq!(pool(1).group("", &name), 0);
    }
    assert_eq!(pool(1 << 31).group("ns1", "10000000001.00000000"), 0x6d36_af07);
}

#[test]
fn a_group_that_is_not_there_yet_is_folded_into_one_that_is() {
    let pool = |group_count| Pool { id: 2, name: String::new(), group_count };
    // 0x1f of 32, when there are but 24.
    let name = object_name(0x1_0000_0000_0123, 0xffff);
    assert_eq!(pool(24).group("", &name), 0xf);
}

proptest! {
    #[test]
    fn every_byte_is_in_exactly_one_object(
        unit in 1u32..9, count in 1u32..6, units in 1u32..5, size in 1u64..400) {
        let striping = striping(unit, count, unit * units);
        let mut seen = BTreeSet::new();
        let mut start = 0;
        while start < size {
            let (first, end) = (striping.locate(start), striping.run_end(start).min(size));
            prop_assert!(end > start);
            for at in start..end {
                let expected = ObjectByte { offset: first.offset + (at - start), ..first };
                prop_assert_eq!(striping.locate(at), expected);
                prop_assert!(seen.insert((expected.object, expected.offset)));
                prop_assert!(expected.offset < u64::from(striping.object_size()));
            }
            start = end;
        }
        let objects: BTreeSet<_> = seen.iter().map(|(object, _)| object).collect();
        prop_assert_eq!(objects.len() as u64, striping.object_count(size));
        prop_assert_eq!(objects.last(), Some(&&(objects.len() as u64 - 1)));
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes: Vec<u8>) {
        let _ = FileLayout::parse(&bytes);
    }

    #[test]
    fn what_is_written_is_read(
        unit in 1u32..100, count: u32, units in 1u32..100, pool in "[a-z0-9._-]{1,9}",
        namespace in "[a-z]{0,5}") {
        let striping = striping(unit, count.max(1), unit * units);
        let layout = FileLayout { striping, pool, namespace };
        prop_assert_eq!(FileLayout::parse(layout.to_string().as_bytes()), Ok(layout));
    }

    #[test]
    fn a_group_is_one_of_those_there_are(
        group_count in 1u32.., inode: u64, object in 0u64..1 << 40) {
        let pool = Pool { id: 1, name: String::new(), group_count };
        prop_assert!(pool.group("", &object_name(inode, object)) < group_count);
    }
}
