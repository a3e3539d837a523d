//! Whether what a file system says of where a file lies is refused, or makes a layout that has each
//! byte in one place.

use crate::choices::Choices;
use lads_core::ceph::{FileLayout, ObjectStriping};
use lads_core::layout::{Layout, Part};
use lads_core::lov::{Lov, Stand};
use lads_core::units::OstId;
use lads_core::{beegfs, orangefs};

/// Positions of a layout that are looked at; each is asked for at each place.
const POSITIONS_MAX: usize = 40;

/// Reads the bytes after the first as what the first byte says: something that Lustre, Ceph, BeeGFS
/// or OrangeFS may answer, or choices that make a layout.
///
/// # Panics
/// If what is read contradicts itself, or a layout does.
pub fn run(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    match first % 6 {
        0 => run_lustre(bytes),
        1 => run_ceph(bytes),
        2 => run_beegfs(bytes),
        3 => run_orangefs(bytes),
        4 => run_objects(&mut Choices::new(bytes)),
        _ => run_parts(&mut Choices::new(bytes)),
    }
}

fn run_lustre(bytes: &[u8]) {
    let Ok(lov) = Lov::parse(bytes) else { return };
    assert_eq!(Lov::parse(&lov.encode()).as_ref(), Ok(&lov), "what is written is what was read");
    let stand = Stand { mdt: OstId(1000), elsewhere: OstId(1001) };
    check(&lov.layout(stand));
    for (_, layout) in lov.mirrors(stand) {
        check(&layout);
    }
    let borders = lov.components.iter().flat_map(|it| [it.extent.start, it.extent.end]);
    for offset in borders.take(2 * POSITIONS_MAX) {
        assert_eq!(
            lov.replicas_at(offset).next().is_some(),
            lov.usual_replica_at(offset).is_some(),
            "there is a usual one where there is any",
        );
        assert!(lov.replicas_at(offset).all(|replica| replica.end > offset), "at {offset}");
    }
    let _ = lov.is_released();
}

fn run_ceph(bytes: &[u8]) {
    let Ok(layout) = FileLayout::parse(bytes) else { return };
    assert_eq!(FileLayout::parse(layout.to_string().as_bytes()), Ok(layout));
}

fn run_beegfs(bytes: &[u8]) {
    if let Some(striping) = beegfs::Striping::parse(bytes) {
        let targets = (0..u32::from(striping.target_count)).map(OstId).collect();
        if let Some(layout) = striping.layout(targets) {
            check(&layout);
        }
    }
    let _ = beegfs::Stripe::parse(bytes);
    let entry = beegfs::Entry::parse(bytes);
    assert!(entry.is_none_or(|entry| !entry.id.is_empty() && !entry.id.contains(&0)));
    let targets = beegfs::parse_targets(&String::from_utf8_lossy(bytes));
    assert!(targets.windows(2).all(|two| two[0].id < two[1].id), "{targets:?}");
}

fn run_orangefs(bytes: &[u8]) {
    let osts = vec![OstId(0), OstId(1), OstId(2)];
    if let Some(layout) = orangefs::Distribution::parse(bytes).and_then(|it| it.layout(osts)) {
        check(&layout);
    }
    assert_eq!(orangefs::parse_handles(bytes).count(), bytes.len() / 8);
    let servers = orangefs::parse_config(&String::from_utf8_lossy(bytes), "");
    assert!(servers.iter().all(|server| !server.alias.is_empty()), "{servers:?}");
}

fn run_objects(choices: &mut Choices<'_>) {
    let (unit, count) = (choices.number32(), choices.number32());
    let object_size = unit.saturating_mul(1 + choices.below(8));
    let Some(striping) = ObjectStriping::new(unit, count, object_size) else { return };
    let mut osts = vec![OstId(choices.below(4))];
    while !choices.is_empty() {
        osts.push(OstId(choices.below(4)));
    }
    if let Some(layout) = Layout::in_objects(striping, &osts) {
        check(&layout);
    }
}

fn run_parts(choices: &mut Choices<'_>) {
    let mut parts = Vec::new();
    while !choices.is_empty() {
        let osts = (0..=choices.below(4)).map(|_| OstId(choices.below(8))).collect();
        let part = Part { end: choices.number(), stripe_size: choices.number(), osts };
        parts.push(part);
    }
    if let Some(last) = parts.last_mut() {
        last.end = u64::MAX;
    }
    if let Some(layout) = Layout::composite(parts) {
        check(&layout);
    }
}

/// Looks at a layout near all places where something may begin or end.
fn check(layout: &Layout) {
    let parts = layout.parts();
    let ends = parts.iter().take(POSITIONS_MAX).map(|part| part.end);
    let stripes = parts.iter().take(POSITIONS_MAX).map(|part| part.stripe_size);
    let places = [0, 1 << 20, 1 << 40, u64::MAX].into_iter().chain(ends).chain(stripes);
    for place in places {
        for offset in [place.saturating_sub(1), place] {
            check_at(layout, offset);
        }
    }
    // Of objects that take turns, only the first: one set of them after the other is looked at.
    let turn_bytes = layout.objects().map_or(1 << 30, |it| it.striping().set_bytes());
    let size = parts[0].end.min(turn_bytes);
    let held: u64 = layout.bytes_per_ost(0..size).values().sum();
    assert_eq!(held, size, "each byte is in one place");
}

fn check_at(layout: &Layout, offset: u64) {
    // No file has a byte at the very last offset.
    let Some(last) = layout.stripe_end(offset).checked_sub(1).filter(|_| offset < u64::MAX) else {
        return;
    };
    assert!(last >= offset, "the stripe at {offset} ends at {last} in {layout:?}");
    assert_eq!(layout.ost_at(last.min(u64::MAX - 1)), layout.ost_at(offset), "one stripe, one OST");
    for (position, ost) in layout.osts().enumerate().take(POSITIONS_MAX) {
        let Some(next) = layout.next_at(position, offset).filter(|&next| next < u64::MAX) else {
            continue;
        };
        assert!(next >= offset, "{next} comes after {offset} in {layout:?}");
        assert_eq!(layout.ost_at(next), ost, "{next} is at position {position} of {layout:?}");
    }
}
