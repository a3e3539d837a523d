//! Whether any bytes are refused as a datatype, or are one whose bytes lie where they can.

use lads_core::view::{Datatype, Run, View};

/// The displacement of the view, and the position that is looked at, before the datatype.
const HEAD_BYTES: usize = 16;
/// The number of positions that are looked at. A view may have as many runs as positions.
const POSITIONS: u64 = 256;

/// Reads bytes as a displacement, a position, and a datatype; looks where some positions lie.
///
/// # Panics
/// If the datatype is not the same when it is written again, or a position lies where it cannot.
pub fn run(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return };
    let Ok(datatype) = Datatype::take(rest) else { return };
    let mut again = Vec::new();
    datatype.write(&mut again);
    assert_eq!(Datatype::take(&again).as_ref(), Ok(&datatype), "written and read again");
    let (displacement, position) = head.split_at(HEAD_BYTES / 2);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of the head"));
    let (displacement, position) = (word(displacement), word(position));
    let Ok(view) = View::new(displacement, &datatype) else { return };
    let end = position.saturating_add(POSITIONS);
    let Ok(runs) = view.runs(position..end) else { return };
    let runs: Vec<Run> = runs.collect();
    assert_eq!(runs.iter().map(|run| run.length).sum::<u64>(), end - position, "{runs:?}");
    for (index, run) in runs.iter().enumerate() {
        assert!(run.length > 0 && run.offset.checked_add(run.length).is_some(), "{run:?}");
        let is_behind = |before: &Run| before.offset + before.length < run.offset;
        let is_in_order = index == 0 || is_behind(&runs[index - 1]);
        assert!(is_in_order || view.overlaps(), "{runs:?}");
    }
    if let Some(first) = runs.first() {
        assert_eq!(view.offset_of(position), Ok(first.offset));
        let found = view.position_at(first.offset).expect("it is in the file");
        assert!(found == position || view.overlaps(), "{found} is not {position}");
    }
}
