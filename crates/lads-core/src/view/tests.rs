use super::*;
use proptest::prelude::*;

/// The place of each byte of a datatype in the order of its type map, and its bounds, by the
/// definitions of the standard and without any tree.
fn type_map(datatype: &Datatype) -> (Vec<i64>, i64, i64) {
    match datatype {
        Datatype::Bytes(count) => {
            let count = i64::try_from(*count).unwrap();
            ((0..count).collect(), 0, count)
        }
        Datatype::Resized { begin, extent, of } => (type_map(of).0, *begin, begin + extent),
        Datatype::Vector { count, block, stride, of } => {
            let blocks = (0..*count).map(|number| (*block, number as i64 * stride, &**of));
            all_of(blocks.collect())
        }
        Datatype::Indexed { blocks, of } => {
            all_of(blocks.iter().map(|(block, at)| (*block, *at, &**of)).collect())
        }
        Datatype::Struct(parts) => {
            all_of(parts.iter().map(|part| (part.block, part.at, &part.of)).collect())
        }
        Datatype::Subarray { is_fortran, slices, of } => {
            let sizes: Vec<u64> = slices.iter().map(|slice| slice.size).collect();
            elements_of(&sizes, *is_fortran, of, |index| {
                slices
                    .iter()
                    .zip(index)
                    .all(|(slice, index)| (slice.start..slice.start + slice.length).contains(index))
            })
        }
        Datatype::Darray { is_fortran, rank, dimensions, of } => {
            let sizes: Vec<u64> = dimensions.iter().map(|it| it.size).collect();
            elements_of(&sizes, *is_fortran, of, |index| {
                let owner = dimensions.iter().zip(index).fold(0, |owner, (dimension, index)| {
                    let processes = dimension.processes;
                    let block = match dimension.distribution {
                        Distribution::Block(None) => dimension.size.div_ceil(processes),
                        Distribution::Block(Some(block)) | Distribution::Cyclic(block) => block,
                        Distribution::None => dimension.size,
                    };
                    owner * processes + index / block % processes
                });
                owner == *rank
            })
        }
    }
}

/// Blocks of copies: how many, where, of what.
fn all_of(blocks: Vec<(u64, i64, &Datatype)>) -> (Vec<i64>, i64, i64) {
    let (mut places, mut bounds) = (Vec::new(), None);
    for (block, at, of) in blocks {
        let (bytes, begin, end) = type_map(of);
        for copy in 0..i64::try_from(block).unwrap() {
            let at = at + copy * (end - begin);
            places.extend(bytes.iter().map(|byte| at + byte));
            let (least, most) = bounds.unwrap_or((at + begin, at + end));
            bounds = Some((least.min(at + begin), most.max(at + end)));
        }
    }
    let (begin, end) = bounds.unwrap_or((0, 0));
    (places, begin, end)
}

/// The elements of an array that are `wanted`, in the order of memory.
fn elements_of(
    sizes: &[u64],
    is_fortran: bool,
    of: &Datatype,
    wanted: impl Fn(&[u64]) -> bool,
) -> (Vec<i64>, i64, i64) {
    let (bytes, begin, end) = type_map(of);
    let count: u64 = sizes.iter().product();
    let mut places = Vec::new();
    for number in 0..count {
        let (mut rest, mut index) = (number, vec![0; sizes.len()]);
        let quickest_first: Vec<usize> =
            if is_fortran { (0..sizes.len()).collect() } else { (0..sizes.len()).rev().collect() };
        for dimension in quickest_first {
            index[dimension] = rest % sizes[dimension];
            rest /= sizes[dimension];
        }
        if wanted(&index) {
            let at = number as i64 * (end - begin);
            places.extend(bytes.iter().map(|byte| at + byte));
        }
    }
    (places, 0, count as i64 * (end - begin))
}

fn datatypes() -> impl Strategy<Value = Datatype> {
    let leaf = (0_u64..5).prop_map(Datatype::Bytes);
    leaf.prop_recursive(4, 40, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let block_and_place = (0_u64..4, -2_i64..60);
        prop_oneof![
            (-3_i64..4, 0_i64..60, boxed.clone())
                .prop_map(|(begin, extent, of)| Datatype::Resized { begin, extent, of }),
            (0_u64..4, 0_u64..4, -4_i64..60, boxed.clone()).prop_map(
                |(count, block, stride, of)| Datatype::Vector { count, block, stride, of }
            ),
            (prop::collection::vec(block_and_place.clone(), 0..4), any::<bool>(), boxed.clone())
                .prop_map(|(mut blocks, is_sorted, of)| {
                    if is_sorted {
                        blocks.sort_by_key(|(_, at)| *at);
                    }
                    Datatype::Indexed { blocks, of }
                }),
            prop::collection::vec((block_and_place, inner), 0..4).prop_map(|mut parts| {
                parts.sort_by_key(|((_, at), _)| *at);
                let part = |((block, at), of)| Part { block, at, of };
                Datatype::Struct(parts.into_iter().map(part).collect())
            }),
            (
                any::<bool>(),
                prop::collection::vec((1_u64..4, 0_u64..3, 0_u64..3), 1..4),
                boxed.clone()
            )
                .prop_map(|(is_fortran, slices, of)| {
                    let slice = |(length, start, rest)| Slice {
                        size: start + length + rest,
                        length,
                        start,
                    };
                    let slices = slices.into_iter().map(slice).collect();
                    Datatype::Subarray { is_fortran, slices, of }
                }),
            (any::<bool>(), any::<u64>(), prop::collection::vec(dimensions(), 1..4), boxed)
                .prop_map(|(is_fortran, rank, dimensions, of)| {
                    let processes: u64 = dimensions.iter().map(|it| it.processes).product();
                    Datatype::Darray { is_fortran, rank: rank % processes, dimensions, of }
                }),
        ]
    })
}

fn dimensions() -> impl Strategy<Value = Dimension> {
    (1_u64..7, 1_u64..4, 0_u64..4, 0_u8..3).prop_map(|(size, processes, more, kind)| {
        let enough = size.div_ceil(processes);
        match kind {
            0 => {
                let block = (more > 0).then_some(enough + more - 1);
                Dimension { size, distribution: Distribution::Block(block), processes }
            }
            1 => Dimension { size, distribution: Distribution::Cyclic(more.max(1)), processes },
            _ => Dimension { size, distribution: Distribution::None, processes: 1 },
        }
    })
}

/// The places of the bytes of the runs, one by one.
fn places(view: &View, positions: Range<u64>) -> Vec<u64> {
    let runs = view.runs(positions).unwrap();
    runs.flat_map(|run| run.offset..run.offset + run.length).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_view_shows_the_bytes_of_the_type_map(
        datatype in datatypes(),
        displacement in 0_u64..100,
        from in 0_u64..200,
        length in 0_u64..100,
    ) {
        let (bytes, begin, end) = type_map(&datatype);
        let (size, extent) = (bytes.len() as u64, end - begin);
        let rises = bytes.windows(2).all(|pair| pair[0] < pair[1]);
        let is_sound = !bytes.is_empty()
            && rises
            && bytes[0] + displacement as i64 >= 0
            && extent > 0
            && bytes[0] + extent > bytes[bytes.len() - 1];
        let view = View::new(displacement, &datatype);
        prop_assert!(view.is_ok() || !is_sound, "{:?} of {:?}", view, bytes);
        let Ok(view) = view else { return Ok(()) };
        let is_once = view.offset_of(size).is_err();
        prop_assert!(is_sound != (is_once || view.overlaps()), "{:?}", bytes);
        let last = if is_once { size } else { u64::MAX };
        let (from, length) = (from.min(last - 1), length.min(last - from.min(last - 1)));
        let place = |position: u64| {
            let tile = (position / size) as i64 * extent;
            let byte = bytes[usize::try_from(position % size).unwrap()];
            u64::try_from(displacement as i64 + tile + byte).unwrap()
        };
        let wanted: Vec<u64> = (from..from + length).map(place).collect();
        prop_assert_eq!(&places(&view, from..from + length), &wanted);
        prop_assert_eq!(view.offset_of(from).unwrap(), place(from));
        let runs: Vec<Run> = view.runs(from..from + length).unwrap().collect();
        prop_assert!(runs.windows(2).all(|pair| pair[0].offset + pair[0].length != pair[1].offset));
        if is_sound {
            let offset = displacement + from;
            let first = (0..).find(|&position| place(position) >= offset).unwrap();
            prop_assert_eq!(view.position_at(offset).unwrap(), first);
        }
    }

    #[test]
    fn a_datatype_arrives_as_it_left(datatype in datatypes(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        datatype.write(&mut bytes);
        prop_assert_eq!(Datatype::take(&bytes), Ok(datatype));
        let cut = cut.index(bytes.len());
        prop_assert!(matches!(Datatype::take(&bytes[..cut]), Err(ViewError::Damaged(_))));
        bytes.push(0);
        prop_assert_eq!(Datatype::take(&bytes), Err(ViewError::Damaged(bytes.len() - 1)));
    }

    #[test]
    fn no_bytes_are_a_datatype_that_panics(
        bytes in prop::collection::vec(prop_oneof![0_u8..7, any::<u8>()], 0..300),
        displacement in any::<u64>(),
        from in any::<u64>(),
        length in 0_u64..20,
    ) {
        if let Ok(view) = Datatype::take(&bytes).and_then(|it| View::new(displacement, &it))
            && let Ok(runs) = view.runs(from..from.saturating_add(length))
        {
            prop_assert!(runs.map(|run| run.length).sum::<u64>() <= length);
        }
    }

    #[test]
    fn numbers_of_any_size_are_refused_or_hold(
        words in prop::collection::vec(prop_oneof![
            Just(0_u64), Just(1), 2_u64..100, Just(u64::MAX), Just(1 << 63), Just((1 << 63) - 1),
            Just(1 << 32), any::<u64>(),
        ], 12),
        tag in 0_u8..7,
        from in prop_oneof![0_u64..10, any::<u64>()],
    ) {
        let word = |index: usize| words[index % words.len()];
        let place = |index: usize| word(index).cast_signed();
        let of = || Box::new(Datatype::Bytes(word(0)));
        let datatype = match tag {
            0 => Datatype::Bytes(word(1)),
            1 => Datatype::Resized { begin: place(1), extent: place(2), of: of() },
            2 => Datatype::Vector { count: word(1), block: word(2), stride: place(3), of: of() },
            3 => {
                let blocks = vec![(word(1), place(2)), (word(3), place(4))];
                Datatype::Indexed { blocks, of: of() }
            }
            4 => Datatype::Struct(vec![
                Part { block: word(1), at: place(2), of: *of() },
                Part { block: word(3), at: place(4), of: Datatype::Bytes(word(5)) },
            ]),
            5 => Datatype::Subarray {
                is_fortran: false,
                slices: vec![
                    Slice { size: word(1), length: word(2), start: word(3) },
                    Slice { size: word(4), length: word(5), start: word(6) },
                ],
                of: of(),
            },
            _ => Datatype::Darray {
                is_fortran: true,
                rank: word(1),
                dimensions: vec![
                    Dimension {
                        size: word(2),
                        distribution: Distribution::Cyclic(word(3)),
                        processes: word(4),
                    },
                    Dimension {
                        size: word(5),
                        distribution: Distribution::Block(Some(word(6))),
                        processes: word(7),
                    },
                ],
                of: of(),
            },
        };
        if let Ok(view) = View::new(word(8), &datatype) {
            let _ = (view.overlaps(), view.position_at(word(9)), view.offset_of(from));
            if let Ok(runs) = view.runs(from..from.saturating_add(9)) {
                let bytes: u64 = runs.map(|run| run.length).sum();
                prop_assert_eq!(bytes, from.saturating_add(9) - from);
            }
        }
    }
}

#[test]
fn a_block_of_a_large_array_is_a_small_tree() {
    let slice = |start| Slice { size: 4096, length: 2048, start };
    let slices = vec![slice(0), slice(2048), slice(0)];
    let of = Box::new(Datatype::Bytes(8));
    let datatype = Datatype::Subarray { is_fortran: false, slices, of };
    let mut bytes = Vec::new();
    datatype.write(&mut bytes);
    assert_eq!(bytes.len(), 3 + 3 * 24 + 9);
    let view = View::new(512, &Datatype::take(&bytes).unwrap()).unwrap();
    let row = 2048 * 8;
    let last = 2048 * 2048 * row - 1;
    let plane = 4096 * 4096 * 8;
    let far = 512 + 2047 * plane + 4095 * 4096 * 8 + row - 1;
    assert_eq!(view.offset_of(last), Ok(far), "at once, far inside");
    let runs: Vec<Run> = view.runs(last..last + 2).unwrap().collect();
    let next = 512 + 4096 * plane + 2048 * 4096 * 8;
    assert_eq!(runs, [Run { offset: far, length: 1 }, Run { offset: next, length: 1 }]);
}

#[test]
fn all_bytes_of_a_file_are_one_run() {
    let all = View::whole();
    let runs: Vec<Run> = all.runs(5..1 << 40).unwrap().collect();
    assert_eq!(runs, [Run { offset: 5, length: (1 << 40) - 5 }]);
    let rows =
        Datatype::Vector { count: 1 << 20, block: 4, stride: 32, of: Box::new(Datatype::Bytes(8)) };
    let rows = View::new(100, &rows).unwrap();
    assert_eq!(rows.runs(7..1 << 40).unwrap().count(), 1, "nothing lies between its blocks");
    assert!(all.runs(0..u64::MAX).is_err(), "no file is that long");
}

#[test]
fn copies_of_copies_take_no_more_memory_than_their_description() {
    // Each level doubles the number of runs.
    let mut datatype = Datatype::Bytes(1);
    for level in 0..30 {
        let gap = 3_i64 << level;
        datatype = Datatype::Indexed { blocks: vec![(1, 0), (1, gap)], of: Box::new(datatype) };
    }
    let view = View::new(0, &datatype).unwrap();
    assert_eq!(view.offset_of((1 << 30) - 1).unwrap(), 3 * ((1 << 30) - 1));
}

#[test]
fn what_is_too_deep_or_has_too_many_parts_is_refused() {
    let mut deep = Vec::new();
    for _ in 0..VIEW_LEVELS_MAX {
        deep.push(1);
        deep.extend([0; 16]);
    }
    assert_eq!(Datatype::take(&deep), Err(ViewError::TooDeep));
    let mut wide = vec![3];
    wide.extend(u32::try_from(VIEW_PARTS_MAX + 1).unwrap().to_le_bytes());
    assert_eq!(Datatype::take(&wide), Err(ViewError::TooManyParts));
    let mut short = vec![3];
    short.extend(1000_u32.to_le_bytes());
    assert_eq!(Datatype::take(&short), Err(ViewError::Damaged(1)), "before room is made for it");
}

#[test]
fn what_is_not_copied_need_not_be_in_order() {
    let back =
        Datatype::Indexed { blocks: vec![(1, 19), (1, 0)], of: Box::new(Datatype::Bytes(1)) };
    let of = || Box::new(back.clone());
    let dimension = Dimension { size: 1, distribution: Distribution::Block(None), processes: 3 };
    for none in [
        Datatype::Indexed { blocks: Vec::new(), of: of() },
        Datatype::Indexed { blocks: vec![(0, 3)], of: of() },
        Datatype::Vector { count: 0, block: 1, stride: 5, of: of() },
        Datatype::Darray { is_fortran: false, rank: 1, dimensions: vec![dimension], of: of() },
    ] {
        let part = |of| Part { block: 1, at: 0, of };
        let datatype = Datatype::Struct(vec![part(Datatype::Bytes(1)), part(none)]);
        let view = View::new(0, &datatype).expect("the array has no element of this process");
        assert_eq!(places(&view, 0..1), [0]);
    }
}

#[test]
fn parts_that_go_back_are_no_filetype() {
    let bytes = |count| Box::new(Datatype::Bytes(count));
    let back = Datatype::Indexed { blocks: vec![(1, 8), (1, 0)], of: bytes(4) };
    assert_eq!(View::new(0, &back), Err(ViewError::NotInOrder));
    let before = Datatype::Indexed { blocks: vec![(1, -8)], of: bytes(4) };
    assert_eq!(View::new(0, &before), Err(ViewError::NotInOrder), "before the file");
    assert!(View::new(8, &before).is_ok(), "not with this displacement");
    assert_eq!(View::new(0, &Datatype::Bytes(0)), Err(ViewError::Empty));
    let apart = Datatype::Vector { count: 2, block: 1, stride: 100, of: bytes(4) };
    let of = Box::new(apart);
    let woven = Datatype::Resized { begin: 0, extent: 10, of: of.clone() };
    let woven = View::new(3, &woven).expect("the first filetype is in order");
    assert_eq!(places(&woven, 0..8), [3, 4, 5, 6, 103, 104, 105, 106]);
    assert_eq!(woven.offset_of(8), Err(ViewError::TooLarge), "the second one goes back");
    assert_eq!(woven.position_at(1 << 40), Ok(8));
    assert!(!woven.overlaps());
    let behind = Datatype::Resized { begin: 0, extent: 104, of };
    assert!(View::new(0, &behind).is_ok());
    let window = Datatype::Vector { count: 3, block: 1, stride: 2, of: bytes(4) };
    let window = View::new(0, &window).expect("it can be read");
    assert!(window.overlaps(), "and not be written");
}

#[test]
fn a_filetype_far_behind_its_origin_holds_no_sum_that_overflows() {
    let away = 1 << 62;
    let of = Box::new(Datatype::Bytes(4));
    let of = Box::new(Datatype::Indexed { blocks: vec![(1, away), (1, away + 8)], of });
    let of = Box::new(Datatype::Indexed { blocks: vec![(1, -away)], of });
    let view = View::new(0, &Datatype::Resized { begin: 0, extent: away, of }).unwrap();
    assert!(!view.overlaps());
    assert_eq!(places(&view, 3..5), [3, 8]);
}

#[test]
fn a_share_of_an_array_lies_in_the_array() {
    let share = |rank, distribution, processes| {
        let dimensions = vec![Dimension { size: 10, distribution, processes }];
        let of = Box::new(Datatype::Bytes(4));
        View::new(0, &Datatype::Darray { is_fortran: false, rank, dimensions, of })
    };
    assert!(share(2, Distribution::Block(Some(4)), 3).is_ok());
    let outside = Err(ViewError::OutsideArray);
    assert_eq!(share(0, Distribution::Block(Some(3)), 3), outside, "an element is nobody's");
    assert_eq!(share(3, Distribution::Cyclic(1), 3), outside, "there are three processes");
    assert_eq!(share(0, Distribution::None, 2), outside, "only one can have them all");
    assert_eq!(share(0, Distribution::Cyclic(1), 0), outside);
    let slice = |length, start| {
        let slices = vec![Slice { size: 10, length, start }];
        let of = Box::new(Datatype::Bytes(4));
        View::new(0, &Datatype::Subarray { is_fortran: false, slices, of })
    };
    assert!(slice(7, 3).is_ok());
    for (length, start) in [(8, 3), (0, 3), (1, 10), (u64::MAX, 3)] {
        assert_eq!(slice(length, start), outside, "{length} from {start}");
    }
}
