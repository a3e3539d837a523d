//! Which bytes of a file an MPI program sees: its file view (MPI 4.0, section 14.3).
//!
//! A view begins at a displacement and repeats a *filetype* from there on. The filetype is a tree:
//! runs of bytes, and parts at distances. The program sees the bytes in the runs as one stream, and
//! says positions in it. This module says where in the file a piece of the stream lies.
//!
//! A filetype arrives as the tree by which the program made it ([`Datatype`]), not as a list of
//! runs: one block of a three-dimensional array has thousands of runs and a tree of a hundred
//! bytes. It comes from a peer, so it is checked when it is taken apart: its size, its depth, and
//! that its runs are in order. From then on no sum can overflow.

mod datatype;
mod shape;

use crate::limits::{VIEW_LEVELS_MAX, VIEW_PARTS_MAX};
use datatype::Lowered;
pub use datatype::{Datatype, Dimension, Distribution, Part, Slice};
use shape::{Form, Laid, Shape, sum};
use std::ops::Range;
use thiserror::Error;

/// Why something is not a view, or a position not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ViewError {
    /// The bytes do not describe a datatype.
    #[error("the description of a datatype is damaged at byte {0}")]
    Damaged(usize),
    /// There are more levels than [`VIEW_LEVELS_MAX`].
    #[error("a datatype with more than {VIEW_LEVELS_MAX} levels")]
    TooDeep,
    /// There are more parts than [`VIEW_PARTS_MAX`].
    #[error("a datatype with more than {VIEW_PARTS_MAX} parts")]
    TooManyParts,
    /// A number of the datatype, or a place in the file, is beyond what a file can have.
    #[error("a datatype or a position beyond the largest file")]
    TooLarge,
    /// A part lies before the part that precedes it, or before the beginning of the file.
    #[error("the parts of a filetype are not in the order of their offsets")]
    NotInOrder,
    /// Its parts overlap in a file that is open for writing.
    #[error("the parts of a filetype overlap in a file that is open for writing")]
    Overlapping,
    /// It has no bytes.
    #[error("a filetype without bytes")]
    Empty,
    /// An array has a part that is not inside, or is shared by no processes.
    #[error("a part of an array that is outside of the array")]
    OutsideArray,
}

/// What a program sees of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The filetype, where it lies first.
    filetype: Laid,
    /// The distance between two filetypes in the file; at least 1.
    extent: i64,
}

/// A run of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it begins in the file.
    pub offset: u64,
    /// The number of its bytes; at least 1.
    pub length: u64,
}

impl View {
    /// The view of a file that was just opened: all bytes.
    #[must_use]
    pub fn whole() -> Self {
        Self { filetype: Laid::run(0, 1).expect("one byte is not too much"), extent: 1 }
    }

    /// The view that begins at a displacement, in bytes, and repeats a filetype.
    ///
    /// A filetype whose second copy would go back behind the first is there once: only positions in
    /// the first copy lie in the file. HDF5 makes such filetypes and uses one copy: the bounds of a
    /// struct are those of its resized parts alone, if it has any (MPI 4.0, section 5.1.6).
    ///
    /// # Errors
    /// If the filetype has no bytes, its parts are not in order, or it is too large.
    pub fn new(displacement: u64, filetype: &Datatype) -> Result<Self, ViewError> {
        let Lowered { bytes, begin, end } = filetype.lower()?;
        let displacement = i64::try_from(displacement).map_err(|_| ViewError::TooLarge)?;
        let filetype = bytes?.ok_or(ViewError::Empty)?.moved(displacement)?;
        let extent = end.checked_sub(begin).ok_or(ViewError::TooLarge)?;
        let next = sum(filetype.first(), extent)?;
        if filetype.first() < 0 {
            return Err(ViewError::NotInOrder);
        }
        let is_once = extent < 1 || next < filetype.last();
        // So far that the second copy ends beyond the largest file.
        let extent = if is_once { i64::MAX - filetype.first() } else { extent };
        Ok(Self { filetype, extent })
    }

    /// Returns the distance between two filetypes in the file, in bytes; at least 1.
    #[must_use]
    pub fn extent(&self) -> u64 {
        self.extent.unsigned_abs()
    }

    /// Reports whether two positions can be the same byte of the file. Such a view is only for
    /// reading.
    #[must_use]
    pub fn overlaps(&self) -> bool {
        let Laid { shape, .. } = &self.filetype;
        shape.overlaps || self.filetype.first() + self.extent < self.filetype.end()
    }

    /// Reports whether parts of one copy of the filetype overlap.
    #[must_use]
    pub fn has_overlapping_filetype(&self) -> bool {
        self.filetype.shape.overlaps
    }

    /// The bytes of the file from the first to the last of some positions, or all of them where
    /// runs overlap; none if they lie beyond the largest file.
    #[must_use]
    pub fn reach(&self, positions: &Range<u64>) -> Range<u64> {
        if positions.is_empty() {
            return 0..0;
        }
        if self.overlaps() {
            return 0..u64::MAX;
        }
        match (self.offset_of(positions.start), self.offset_of(positions.end - 1)) {
            (Ok(first), Ok(last)) => first..last + 1,
            _ => 0..0,
        }
    }

    /// Returns where the bytes of the stream from one position to another lie in the file, in the
    /// order of the stream. Runs that touch are one.
    ///
    /// # Errors
    /// If they lie beyond the largest file.
    pub fn runs(&self, positions: Range<u64>) -> Result<Runs<'_>, ViewError> {
        let size = self.filetype.shape.size;
        let left = positions.end.saturating_sub(positions.start);
        if left > 0 {
            self.origin((positions.end - 1) / size)?;
        }
        let pieces = Pieces {
            view: self,
            filetypes: positions.start / size,
            levels: Vec::new(),
            skip: positions.start % size,
            left,
        };
        Ok(Runs { pieces, next: None })
    }

    /// Returns where a position of the stream lies in the file (`MPI_File_get_byte_offset`).
    ///
    /// # Errors
    /// If that is beyond the largest file.
    pub fn offset_of(&self, position: u64) -> Result<u64, ViewError> {
        let end = position.checked_add(1).ok_or(ViewError::TooLarge)?;
        let first = self.runs(position..end)?.next();
        Ok(first.expect("one byte is asked for").offset)
    }

    /// The first position that lies at a place of the file, or behind it: where `MPI_SEEK_END`
    /// leads if the file has this size.
    ///
    /// # Errors
    /// If that is beyond the largest file.
    pub fn position_at(&self, offset: u64) -> Result<u64, ViewError> {
        // Each filetype has a byte at least, and its last byte lies before its end.
        let extent = self.extent.unsigned_abs();
        let past = (offset / extent).checked_add(1).ok_or(ViewError::TooLarge)?;
        let (mut low, mut high) = (0, past.saturating_mul(self.filetype.shape.size));
        while low < high {
            let middle = low + (high - low) / 2;
            // What is too far lies behind every place.
            let is_before = self.offset_of(middle).is_ok_and(|it| it < offset);
            (low, high) = if is_before { (middle + 1, high) } else { (low, middle) };
        }
        Ok(low)
    }

    /// Whether nothing lies between one filetype and the next, nor within.
    fn is_dense(&self) -> bool {
        let Shape { form, end, .. } = &*self.filetype.shape;
        *form == Form::Run && *end == self.extent
    }

    /// The origin of a filetype in the file.
    ///
    /// # Errors
    /// If it does not lie within the largest file.
    fn origin(&self, number: u64) -> Result<i64, ViewError> {
        let way = i64::try_from(number).ok().and_then(|number| number.checked_mul(self.extent));
        let origin = sum(self.filetype.at, way.ok_or(ViewError::TooLarge)?)?;
        sum(origin, self.filetype.shape.end)?;
        Ok(origin)
    }
}

/// The runs of a piece of the stream, in order; see [`View::runs`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    pieces: Pieces<'a>,
    /// A piece that may go on in the next one.
    next: Option<Run>,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut run = self.next.take().or_else(|| self.pieces.next())?;
        for piece in self.pieces.by_ref() {
            if piece.offset != run.offset + run.length {
                self.next = Some(piece);
                break;
            }
            run.length += piece.length;
        }
        Some(run)
    }
}

/// The same, but runs that touch are not put together.
#[derive(Clone, Debug)]
struct Pieces<'a> {
    view: &'a View,
    /// The number of the next filetype.
    filetypes: u64,
    /// The way from the filetype down to the part that comes next.
    levels: Vec<Level<'a>>,
    /// The bytes of the stream before the first one that is asked for, from here on.
    skip: u64,
    /// The bytes that are still to come.
    left: u64,
}

/// A part of a filetype, some of whose own parts are done.
#[derive(Clone, Debug)]
struct Level<'a> {
    shape: &'a Shape,
    origin: i64,
    done: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let filetype = &self.view.filetype;
        if self.left > 0 && self.view.is_dense() {
            let before = self.filetypes * filetype.shape.size + self.skip;
            let run = Run { offset: filetype.at.unsigned_abs() + before, length: self.left };
            self.left = 0;
            return Some(run);
        }
        while self.left > 0 {
            let Some(level) = self.levels.last_mut() else {
                let origin = self.view.origin(self.filetypes).expect("the last one was looked at");
                self.filetypes += 1;
                self.levels.push(Level { shape: &filetype.shape, origin, done: 0 });
                continue;
            };
            let Level { shape, origin, .. } = *level;
            let part = match &shape.form {
                Form::Run => {
                    let offset = origin.unsigned_abs() + self.skip;
                    let length = (shape.size - self.skip).min(self.left);
                    self.levels.pop();
                    (self.skip, self.left) = (0, self.left - length);
                    return Some(Run { offset, length });
                }
                Form::Strided { count, stride, part } => {
                    level.done += self.skip / part.shape.size;
                    self.skip %= part.shape.size;
                    let steps = i64::try_from(level.done).expect("a file has more bytes");
                    level.done += 1;
                    if level.done == *count {
                        self.levels.pop();
                    }
                    Level { shape: &part.shape, origin: origin + part.at + steps * stride, done: 0 }
                }
                Form::Parts(parts) => {
                    let mut index = usize::try_from(level.done).expect("parts are in memory");
                    if self.skip > 0 {
                        let place = parts[index].0 + self.skip;
                        index = parts.partition_point(|(before, _)| *before <= place) - 1;
                        self.skip = place - parts[index].0;
                    }
                    level.done = index as u64 + 1;
                    if index + 1 == parts.len() {
                        self.levels.pop();
                    }
                    let part = &parts[index].1;
                    Level { shape: &part.shape, origin: origin + part.at, done: 0 }
                }
            };
            self.levels.push(part);
        }
        None
    }
}

#[cfg(test)]
mod tests;
