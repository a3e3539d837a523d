use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Four stripes of 1 MiB on OSTs 7, 2, 5 and 11.
const PLAIN: &str = "
d0 0b d1 0b 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 10 00 04 00 ff ff
07 10 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 07 00 00 00 02 10 00 00 00 00 00 00
00 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00 05 10 00 00 00 00 00 00 00 00 00 00 01 00 00 00
00 00 00 00 05 00 00 00 0b 10 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 0b 00 00 00";

/// A wish for three stripes of 4 MiB on OSTs 12, 3 and 30.
const SPECIFIC: &str = "
d0 0b d5 0b 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 40 00 03 00 ff ff
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 0c 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 03 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 1e 00 00 00";

/// 1 MiB on the MDT, up to 16 MiB on OST 4, up to 1 GiB three stripes of 4 MiB on OSTs 9, 1 and 6,
/// and the rest not instantiated.
const COMPOSITE: &str = "
d0 0b d6 0b c0 01 00 00 03 00 00 00 00 00 04 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
01 00 00 00 10 00 00 00 00 00 00 00 00 00 00 00 00 00 10 00 00 00 00 00 e0 00 00 00 20 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02 00 00 00 10 00 00 00 00 00 10 00 00 00 00 00
00 00 00 01 00 00 00 00 00 01 00 00 38 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
03 00 00 00 10 00 00 00 00 00 00 01 00 00 00 00 00 00 00 40 00 00 00 00 38 01 00 00 68 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 00 00 00 40 00 00 00 00
ff ff ff ff ff ff ff ff a0 01 00 00 20 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
d0 0b d1 0b 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 10 00 00 00 ff ff
d0 0b d1 0b 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 10 00 01 00 ff ff
01 20 00 00 00 00 00 00 00 04 00 40 02 00 00 00 00 00 00 00 04 00 00 00 d0 0b d1 0b 01 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 40 00 03 00 ff ff 02 20 00 00 00 00 00 00
00 04 00 40 02 00 00 00 00 00 00 00 09 00 00 00 02 20 00 00 00 00 00 00 00 04 00 40 02 00 00 00
00 00 00 00 01 00 00 00 02 20 00 00 00 00 00 00 00 04 00 40 02 00 00 00 00 00 00 00 06 00 00 00
d0 0b d1 0b 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 40 00 08 00 ff ff";

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn parsed(hex: &str) -> Lov {
    Lov::parse(&bytes_of(hex)).unwrap()
}

fn stripes(lov: &Lov) -> &Stripes {
    match &lov.components[0].body {
        Body::Stripes(stripes) => stripes,
        Body::Foreign(_) => panic!("no stripes"),
    }
}

/// Where a byte is: the place and the offset in the object.
fn place(lov: &Lov, offset: u64) -> (Place, u64) {
    let replica = lov.usual_replica_at(offset).unwrap();
    (replica.place, replica.object_offset)
}

fn ost(number: u32) -> Place {
    Place::Ost(OstId(number))
}

fn object(ost: u32) -> Object {
    Object { ost: OstId(ost), ..Object::default() }
}

/// Stripes of 1 MiB on these OSTs, as a component.
fn component(id: u32, flags: u32, extent: Range<u64>, osts: &[u32]) -> Component {
    let Lov { mut components, .. } = Lov::wish(1 << 20, u16::try_from(osts.len()).unwrap());
    let mut component = components.remove(0);
    if let Body::Stripes(stripes) = &mut component.body {
        stripes.objects = osts.iter().map(|&ost| object(ost)).collect();
    }
    Component { id, flags, extent, ..component }
}

fn mirrored(components: Vec<Component>) -> Lov {
    let composite = Composite { mirror_state: 1, extra_mirrors: 1, ..Composite::default() };
    Lov { composite: Some(composite), components }
}

#[test]
fn a_plain_layout_says_where_each_byte_is() {
    let lov = parsed(PLAIN);
    assert_eq!(lov.encode(), bytes_of(PLAIN));
    assert_eq!(place(&lov, 0), (ost(7), 0));
    assert_eq!(place(&lov, MIB), (ost(2), 0));
    assert_eq!(place(&lov, 3 * MIB + 5), (ost(11), 5));
    assert_eq!(place(&lov, 4 * MIB), (ost(7), MIB));
    assert_eq!(place(&lov, 9 * MIB + 100), (ost(2), 2 * MIB + 100));
    assert_eq!(lov.usual_replica_at(4 * MIB + 3).unwrap().end, 5 * MIB);
}

#[test]
fn a_wish_for_chosen_osts_lists_them() {
    let osts = [OstId(12), OstId(3), OstId(30)];
    let wish = Lov::wish_on(4 << 20, &osts);
    assert_eq!(wish.encode(), bytes_of(SPECIFIC));
    assert_eq!(parsed(SPECIFIC), wish);
}

#[test]
fn a_wish_for_one_ost_takes_the_short_form() {
    let wish = Lov::wish_on(1 << 20, &[OstId(5)]);
    assert_eq!((stripes(&wish).form, stripes(&wish).first_ost), (Form::V1, 5));
    assert_eq!(wish.encode().len(), 32);
}

#[test]
fn a_wish_for_an_ost_twice_asks_for_overstriping() {
    let wish = Lov::wish_on(1 << 20, &[OstId(5), OstId(6), OstId(5)]);
    assert_eq!(stripes(&wish).pattern, pattern::RAID0 | pattern::OVERSTRIPED);
}

#[test]
fn a_composite_layout_counts_stripes_from_the_beginning_of_the_file() {
    let lov = parsed(COMPOSITE);
    assert_eq!(lov.encode(), bytes_of(COMPOSITE));
    assert_eq!(lov.composite.unwrap().generation, 3);
    assert_eq!(place(&lov, 0), (Place::Mdt, 0));
    assert_eq!(place(&lov, MIB - 1), (Place::Mdt, MIB - 1));
    assert_eq!(place(&lov, MIB), (ost(4), MIB));
    assert_eq!(place(&lov, 16 * MIB - 1), (ost(4), 16_777_215));
    assert_eq!(place(&lov, 16 * MIB), (ost(1), 4_194_304));
    assert_eq!(place(&lov, 20 * MIB), (ost(6), 4_194_304));
    assert_eq!(place(&lov, 24 * MIB + 7), (ost(9), 8_388_615));
    assert_eq!(place(&lov, GIB - 1), (ost(9), 360_710_143));
    assert_eq!(place(&lov, GIB).0, Place::Nowhere);
}

#[test]
fn a_schedule_sees_a_composite_layout_as_parts_and_numbers_for_what_has_no_ost() {
    let stand = Stand { mdt: OstId(40), elsewhere: OstId(41) };
    let layout = parsed(COMPOSITE).layout(stand);
    let found = [0, MIB, 16 * MIB, 20 * MIB, 24 * MIB, GIB].map(|at| layout.ost_at(at).0);
    assert_eq!(found, [40, 4, 1, 6, 9, 41]);
    assert_eq!(layout.parts().len(), 4);
}

#[test]
fn bytes_of_a_pool_come_back() {
    let mut lov = Lov::wish(1 << 20, ALL_OSTS);
    if let Body::Stripes(stripes) = &mut lov.components[0].body {
        (stripes.form, stripes.pool) = (Form::V3, b"flash".to_vec());
    }
    let bytes = lov.encode();
    assert_eq!((bytes.len(), &bytes[..4]), (48, &[0xd0, 0x0b, 0xd3, 0x0b][..]));
    assert_eq!(Lov::parse(&bytes), Ok(lov));
}

#[test]
fn the_other_byte_order_is_read_too() {
    let mut bytes = bytes_of(PLAIN);
    let header = [4, 4, 8, 8, 4, 2, 2];
    let objects = [8, 8, 4, 4].repeat(4);
    let mut at = 0;
    for width in header.into_iter().chain(objects) {
        bytes[at..at + width].reverse();
        at += width;
    }
    assert_eq!(at, bytes.len());
    assert_eq!(Lov::parse(&bytes), Ok(parsed(PLAIN)));
}

#[test]
fn mirrors_are_readable_unless_stale_and_a_preferred_one_is_usual() {
    let init = flag::INSTANTIATED;
    let stale = component(0x0001_0001, init | flag::STALE, 0..u64::MAX, &[1]);
    let second = component(0x0002_0001, init, 0..u64::MAX, &[2]);
    let third = component(0x0003_0001, init | flag::PREFERRED_FOR_READS, 0..u64::MAX, &[3, 4]);
    let lov = mirrored(vec![stale, second, third]);
    let mirrors: Vec<_> = lov.replicas_at(MIB).map(|it| (it.mirror, it.place)).collect();
    assert_eq!(mirrors, [(2, ost(2)), (3, ost(4))]);
    assert_eq!(place(&lov, MIB), (ost(4), 0));
    let stand = Stand { mdt: OstId(40), elsewhere: OstId(41) };
    let [second, third] = &lov.mirrors(stand)[..] else { panic!("not two") };
    assert_eq!((second.0, second.1.ost_at(MIB)), (2, OstId(2)));
    assert_eq!((third.0, &third.1), (3, &lov.layout(stand)));
    assert!(parsed(PLAIN).mirrors(stand).is_empty());
    assert_eq!(Lov::parse(&lov.encode()), Ok(lov));
}

#[test]
fn room_for_growth_and_erasure_codes_hold_no_data() {
    let init = flag::INSTANTIATED;
    let first = component(1, init, 0..64 * MIB, &[1]);
    let extension = component(2, flag::EXTENSION, 64 * MIB..u64::MAX, &[]);
    let codes = component(0x0001_0003, init | flag::PARITY, 0..u64::MAX, &[9]);
    let lov = mirrored(vec![first, extension, codes]);
    assert_eq!(lov.replicas_at(0).count(), 1);
    assert_eq!(lov.replicas_at(64 * MIB).count(), 0);
    let layout = lov.layout(Stand { mdt: OstId(40), elsewhere: OstId(41) });
    assert_eq!([0, 64 * MIB].map(|at| layout.ost_at(at).0), [1, 41]);
}

#[test]
fn data_in_an_archive_is_known_as_such() {
    let mut lov = parsed(PLAIN);
    if let Body::Stripes(stripes) = &mut lov.components[0].body {
        stripes.objects.clear();
        stripes.pattern |= pattern::RELEASED;
    }
    assert!(lov.is_released());
    assert!(!parsed(PLAIN).is_released());
    assert_eq!(place(&Lov::parse(&lov.encode()).unwrap(), 5).0, Place::Archive);
}

#[test]
fn a_foreign_layout_has_no_ost() {
    let foreign = Foreign { kind: 4, flags: 0, value: b"bucket/key".to_vec() };
    let lov = Lov::single(Body::Foreign(foreign));
    assert_eq!(Lov::parse(&lov.encode()), Ok(lov.clone()));
    assert_eq!(place(&lov, 5), (Place::Foreign, 5));
}

#[test]
fn an_overstriped_file_meets_an_ost_several_times() {
    let mut lov = parsed(PLAIN);
    if let Body::Stripes(stripes) = &mut lov.components[0].body {
        stripes.pattern |= pattern::OVERSTRIPED;
        stripes.objects[2].ost = OstId(7);
    }
    assert_eq!([0, 2 * MIB].map(|at| place(&lov, at).0), [ost(7), ost(7)]);
}

#[test]
fn a_template_has_no_object_however_wide() {
    for stripe_count in [0, WIDE_STRIPE_COUNT_MIN, ALL_OSTS] {
        let mut bytes = Lov::wish(1 << 20, stripe_count).encode();
        bytes.extend([0; 240]);
        let lov = Lov::parse(&bytes).unwrap();
        assert_eq!((stripes(&lov).objects.len(), place(&lov, 0).0), (0, Place::Nowhere));
    }
}

#[test]
fn bytes_that_are_no_layout_are_refused() {
    assert_eq!(Lov::parse(&[]), Err(LovError::Truncated));
    assert_eq!(Lov::parse(&bytes_of(PLAIN)[..31]), Err(LovError::Truncated));
    assert_eq!(Lov::parse(&[0xd0, 0x0b, 0xdf, 0x0b]), Err(LovError::UnknownMagic(0x0bdf_0bd0)));
    let mut outside = bytes_of(COMPOSITE);
    outside[32 + 24] = 0xff;
    outside[32 + 25] = 0xff;
    assert!(matches!(Lov::parse(&outside), Err(LovError::Unsound(_))));
}

#[test]
fn components_that_all_point_to_the_same_bytes_are_refused() {
    let large = component(1, flag::INSTANTIATED, 0..u64::MAX, &[3; 1000]);
    let mut lov = mirrored(vec![large]);
    let small = component(2, flag::INSTANTIATED, 0..u64::MAX, &[]);
    lov.components.extend(std::iter::repeat_n(small, 300));
    let mut bytes = lov.encode();
    let place: [u8; 8] = bytes[32 + 24..32 + 32].try_into().unwrap();
    for entry in bytes[32..32 + 48 * 301].chunks_exact_mut(48) {
        entry[24..32].copy_from_slice(&place);
    }
    assert_eq!(Lov::parse(&bytes), Err(LovError::Unsound("components overlap")));
}

fn stripes_strategy() -> impl Strategy<Value = Stripes> {
    let form = prop_oneof![Just(Form::V1), Just(Form::V3), Just(Form::Specific)];
    let objects = prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), 0u32..99), 0..9);
    (form, any::<u32>(), any::<u32>(), any::<u16>(), "[a-z0-9_.-]{0,15}", objects).prop_map(
        |(form, pattern, stripe_size, first_ost, pool, objects)| Stripes {
            form,
            pattern,
            stripe_size,
            stripe_count: u16::try_from(objects.len()).unwrap(),
            first_ost,
            pool: if form == Form::V1 { Vec::new() } else { pool.into_bytes() },
            objects: objects
                .into_iter()
                .map(|(id, sequence, generation, ost)| Object {
                    id,
                    sequence,
                    generation,
                    ost: OstId(ost),
                })
                .collect(),
        },
    )
}

fn body_strategy() -> impl Strategy<Value = Body> {
    let foreign = (any::<u32>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(kind, flags, value)| Body::Foreign(Foreign { kind, flags, value }));
    prop_oneof![5 => stripes_strategy().prop_map(Body::Stripes), 1 => foreign]
}

fn lov_strategy() -> impl Strategy<Value = Lov> {
    let component = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), body_strategy())
        .prop_map(|(id, flags, start, end, body)| Component {
            id,
            flags,
            extent: start.min(end)..start.max(end),
            body,
        });
    let composite = (any::<u32>(), any::<u16>(), any::<u16>()).prop_map(
        |(generation, mirror_state, extra_mirrors)| Composite {
            generation,
            mirror_state,
            extra_mirrors,
        },
    );
    let composite = (composite, prop::collection::vec(component, 0..6))
        .prop_map(|(composite, components)| Lov { composite: Some(composite), components });
    prop_oneof![body_strategy().prop_map(Lov::single), composite]
}

/// Asks everything that can be asked; what comes of it does not matter.
fn ask_everything(lov: &Lov, offset: u64) {
    let layout = lov.layout(Stand { mdt: OstId(1000), elsewhere: OstId(1001) });
    let is_known = lov.replicas_at(offset).count() > 0;
    assert_eq!(is_known, lov.usual_replica_at(offset).is_some());
    let _ = (lov.is_released(), layout.ost_at(offset), layout.stripe_end(offset));
}

proptest! {
    #[test]
    fn what_is_written_is_read(lov in lov_strategy(), offset: u64) {
        prop_assert_eq!(Lov::parse(&lov.encode()), Ok(lov.clone()));
        ask_everything(&lov, offset);
    }

    #[test]
    fn the_schedule_and_the_layout_agree_where_a_byte_is(lov in lov_strategy(), offset: u64) {
        let stand = Stand { mdt: OstId(1000), elsewhere: OstId(1001) };
        let expected = match lov.usual_replica_at(offset).map(|replica| replica.place) {
            Some(Place::Ost(ost)) => ost,
            Some(Place::Mdt) => stand.mdt,
            _ => stand.elsewhere,
        };
        prop_assert_eq!(lov.layout(stand).ost_at(offset), expected);
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes: Vec<u8>, offset: u64) {
        if let Ok(lov) = Lov::parse(&bytes) {
            ask_everything(&lov, offset);
        }
    }

    #[test]
    fn damaged_layouts_are_refused_or_read(
        lov in lov_strategy(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        kept in any::<prop::sample::Index>(),
        offset: u64,
    ) {
        let mut bytes = lov.encode();
        for (at, byte) in damage {
            *at.get_mut(&mut bytes) = byte;
        }
        for bytes in [&bytes[..], &bytes[..kept.index(bytes.len())]] {
            if let Ok(lov) = Lov::parse(bytes) {
                prop_assert!(lov.components.len() <= bytes.len());
                ask_everything(&lov, offset);
            }
        }
    }
}
