//! Short records of a file that do not follow each other, in one buffer.
//!
//! A frame for each record would cost a hundred times the copying of its bytes. A program whose
//! processes write records in turn, as through a shared pointer, writes nothing else. So the
//! records share a buffer, and the frame has a view of its own, which shows their places in the
//! file as one stream.

use super::tail::Target;
use crate::remote::message::ViewNumber;
use crate::remote::policy::GATHERED_RUNS_MAX;
use crate::view::{Datatype, Run, View};
use std::ops::Range;

/// The records of a buffer, in the order of their places.
#[derive(Debug)]
pub(super) struct Gathered {
    /// The number that is reserved for the view.
    view: ViewNumber,
    runs: Vec<Run>,
}

/// Returns the bytes of the file at positions of a view, if they follow each other there.
pub(super) fn run_of(shape: &View, positions: &Range<u64>) -> Option<Run> {
    if shape.overlaps() || positions.is_empty() {
        return None;
    }
    let offset = shape.offset_of(positions.start).ok()?;
    let length = positions.end - positions.start;
    // Places ascend with positions: if as many bytes lie between both ends, none is missing.
    let last = shape.offset_of(positions.end - 1).ok()?;
    (last.checked_sub(offset)? == length - 1).then_some(Run { offset, length })
}

impl Gathered {
    pub(super) fn new(view: ViewNumber, first: Run) -> Self {
        Self { view, runs: vec![first] }
    }

    /// Adds a record. Returns `false` if its place is before the end of the last one, or there are
    /// too many.
    pub(super) fn add(&mut self, run: Run) -> bool {
        let count = self.runs.len();
        let last = &mut self.runs[count - 1];
        let end = last.offset + last.length;
        if run.offset == end {
            last.length += run.length;
        } else if run.offset > end && count < GATHERED_RUNS_MAX {
            self.runs.push(run);
        } else {
            return false;
        }
        true
    }

    /// Returns a view of the file of another one, which shows these records.
    pub(super) fn target(self, of: &Target) -> Target {
        let displacement = self.runs[0].offset;
        let place = |run: &Run| {
            let at = i64::try_from(run.offset - displacement).expect("a place in a file fits");
            (run.length, at)
        };
        let blocks = self.runs.iter().map(place).collect();
        let datatype = Datatype::Indexed { blocks, of: Box::new(Datatype::Bytes(1)) };
        let shape = View::new(displacement, &datatype).expect("runs in order make a view");
        let mut filetype = Vec::new();
        datatype.write(&mut filetype);
        let (file, path, view) = (of.file, of.path.clone(), self.view);
        Target { file, path, view, displacement, filetype, shape }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::message::FileNumber;

    fn run(offset: u64, length: u64) -> Run {
        Run { offset, length }
    }

    #[test]
    fn records_are_the_stream_of_one_view() {
        let mut gathered = Gathered::new(ViewNumber(7), run(100, 10));
        assert!(gathered.add(run(110, 5)));
        assert!(gathered.add(run(200, 1)));
        assert!(!gathered.add(run(200, 1)), "it overlaps");
        assert!(!gathered.add(run(50, 1)), "it goes back");
        assert!(gathered.add(run(300, 4)));
        let of = Target {
            file: FileNumber(3),
            path: b"a".to_vec(),
            view: ViewNumber(1),
            displacement: 0,
            filetype: Vec::new(),
            shape: View::whole(),
        };
        let target = gathered.target(&of);
        assert_eq!((target.file, target.view, target.displacement), (of.file, ViewNumber(7), 100));
        let runs: Vec<_> = target.shape.runs(0..20).unwrap().collect();
        assert_eq!(runs, [run(100, 15), run(200, 1), run(300, 4)]);
        let taken = Datatype::take(&target.filetype).unwrap();
        assert_eq!(View::new(100, &taken), Ok(target.shape));
    }

    #[test]
    fn a_filetype_does_not_grow_beyond_its_share() {
        let mut gathered = Gathered::new(ViewNumber(7), run(0, 1));
        let added = (1..).take_while(|index| gathered.add(run(2 * index, 1))).count();
        assert_eq!(added + 1, GATHERED_RUNS_MAX);
    }

    #[test]
    fn positions_are_a_record_if_their_bytes_follow_each_other() {
        let datatype =
            Datatype::Vector { count: 4, block: 1, stride: 100, of: Box::new(Datatype::Bytes(10)) };
        let view = View::new(7, &datatype).unwrap();
        assert_eq!(run_of(&view, &(10..20)), Some(run(107, 10)));
        assert_eq!(run_of(&view, &(12..15)), Some(run(109, 3)));
        assert_eq!(run_of(&view, &(15..25)), None);
    }
}
