//! Buffers without bytes: written ones that are counted, and read ones that know which positions
//! they hold.

use lads_core::remote::message::ViewNumber;
use lads_core::remote::reading::ChunkBytes;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// A buffer with written bytes. All clones are one buffer.
#[derive(Clone, Debug)]
pub(super) struct Buffer(#[expect(dead_code, reason = "it is dropped")] Rc<Counted>);

/// The number of buffers that exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Rc<Cell<u32>>);

#[derive(Debug)]
struct Counted(Pool);

impl Pool {
    pub(super) fn take(&self) -> Buffer {
        self.0.set(self.0.get() + 1);
        Buffer(Rc::new(Counted(self.clone())))
    }

    pub(super) fn in_use(&self) -> u32 {
        self.0.get()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let pool = &self.0.0;
        pool.set(pool.get() - 1);
    }
}

/// A buffer with bytes that were read.
#[derive(Clone, Debug)]
pub(super) struct Chunk(Rc<Vec<Piece>>);

/// Bytes of a buffer that are those of a view from a position on.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) part: Range<usize>,
    pub(super) view: ViewNumber,
    pub(super) position: u64,
    /// Time at which the bytes were requested.
    pub(super) asked: u64,
}

impl Piece {
    /// The part of the piece that lies in a part of the buffer.
    fn within(&self, part: &Range<usize>) -> Self {
        let start = self.part.start.max(part.start);
        let position = self.position + (start - self.part.start) as u64;
        Self { part: start..self.part.end.min(part.end), position, ..self.clone() }
    }
}

impl Chunk {
    pub(super) fn new(piece: Piece) -> Self {
        Self(Rc::new(vec![piece]))
    }

    /// Copies the bytes to another buffer.
    pub(super) fn copied(&self) -> Self {
        Self(Rc::new(Vec::clone(&self.0)))
    }

    /// Returns the pieces that a part of the buffer consists of.
    ///
    /// # Panics
    /// If the buffer does not hold all of the part.
    pub(super) fn pieces(&self, part: &Range<usize>) -> Vec<Piece> {
        let (mut at, mut pieces) = (part.start, Vec::new());
        while at < part.end {
            // The last one that was copied there counts, up to where a later one begins.
            let last = self.0.iter().rposition(|piece| piece.part.contains(&at));
            let last = last.unwrap_or_else(|| panic!("no bytes at {at} of {self:?}"));
            let later = self.0[last + 1..].iter().map(|piece| piece.part.start);
            let later = later.filter(|start| *start > at).min().unwrap_or(usize::MAX);
            let end = self.0[last].part.end.min(later).min(part.end);
            pieces.push(self.0[last].within(&(at..end)));
            at = end;
        }
        pieces
    }
}

impl ChunkBytes for Chunk {
    fn take_in(&mut self, from: &Self, part: Range<usize>) -> bool {
        let Some(own) = Rc::get_mut(&mut self.0) else { return false };
        own.retain(|piece| !(part.start <= piece.part.start && piece.part.end <= part.end));
        own.extend(from.pieces(&part));
        true
    }
}
