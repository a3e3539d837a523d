//! Which OST holds which part of a piece of a view.

use crate::layout::Layout;
use crate::limits::RUNS_MAX;
use crate::units::OstId;
use crate::view::{Run, View, ViewError};
use std::collections::BTreeMap;
use std::ops::Range;

/// A run of bytes on one OST, and where the bytes are in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Where the run is in the file.
    pub run: Run,
    /// Where its bytes are in the frame.
    pub place: u32,
}

/// The parts of some positions of a view, by OST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scattered {
    /// For each OST, its runs, in the order of the stream.
    pub osts: BTreeMap<OstId, Vec<Spot>>,
    /// The position after the last one that was looked at: less than was asked for if there are
    /// more than [`RUNS_MAX`] runs.
    pub end: u64,
}

/// Finds the OSTs of some positions. `first` is the position of the first byte of the frame.
///
/// # Errors
/// If positions lie beyond the largest file.
pub fn scatter(
    view: &View,
    layout: &Layout,
    first: u64,
    positions: Range<u64>,
) -> Result<Scattered, ViewError> {
    let mut scattered = Scattered { osts: BTreeMap::new(), end: positions.start };
    let mut count = 0;
    for mut run in view.runs(positions.clone())? {
        while run.length > 0 {
            if count == RUNS_MAX {
                return Ok(scattered);
            }
            let length = run.length.min(layout.stripe_end(run.offset) - run.offset);
            let place = u32::try_from(scattered.end - first).map_err(|_| ViewError::TooLarge)?;
            let spot = Spot { run: Run { offset: run.offset, length }, place };
            scattered.osts.entry(layout.ost_at(run.offset)).or_default().push(spot);
            scattered.end += length;
            count += 1;
            run = Run { offset: run.offset + length, length: run.length - length };
        }
    }
    Ok(scattered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Datatype;

    /// Every other block of 10 bytes.
    fn view() -> View {
        let bytes = Box::new(Datatype::Bytes(10));
        View::new(100, &Datatype::Resized { begin: 0, extent: 20, of: bytes }).unwrap()
    }

    #[test]
    fn runs_are_cut_at_stripe_borders() {
        let layout = Layout::striped(32, vec![OstId(0), OstId(1)]).unwrap();
        let found = scatter(&view(), &layout, 5, 5..25).unwrap();
        let spot = |offset, length, place| Spot { run: Run { offset, length }, place };
        // Bytes 105 to 110, 120 to 130 and 140 to 145 of the file; 128 is a border.
        let expected = BTreeMap::from([
            (OstId(0), vec![spot(128, 2, 13), spot(140, 5, 15)]),
            (OstId(1), vec![spot(105, 5, 0), spot(120, 8, 5)]),
        ]);
        assert_eq!(found, Scattered { osts: expected, end: 25 });
    }

    #[test]
    fn many_runs_are_found_in_parts() {
        let layout = Layout::on(OstId(0));
        let all = 10 * (RUNS_MAX as u64 + 3);
        let first = scatter(&view(), &layout, 0, 0..all).unwrap();
        assert_eq!(first.end, 10 * RUNS_MAX as u64);
        let rest = scatter(&view(), &layout, 0, first.end..all).unwrap();
        assert_eq!((rest.end, rest.osts[&OstId(0)].len()), (all, 3));
        let place = u64::from(rest.osts[&OstId(0)][0].place);
        assert_eq!(place, first.end, "counted from the beginning of the frame");
    }
}
