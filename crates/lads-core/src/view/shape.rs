//! Where the bytes of a filetype lie, as a tree that can be walked from any byte on.
//!
//! Parts that are equal share one shape. So the tree of a datatype takes no more memory than its
//! description, however many copies of copies it has.

use super::ViewError;
use std::sync::Arc;

/// Some bytes, at least one, in the order of their places relative to an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The number of bytes.
    pub(super) size: u64,
    /// Where the first run begins.
    pub(super) first: i64,
    /// Where the last run begins.
    pub(super) last: i64,
    /// Where the run ends that ends last.
    pub(super) end: i64,
    /// Whether a byte of the file comes twice.
    pub(super) overlaps: bool,
    pub(super) form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Bytes that follow each other, from the origin on.
    Run,
    /// At least two equal parts at equal distances.
    Strided { count: u64, stride: i64, part: Laid },
    /// At least two parts, each with the number of bytes in those before it.
    Parts(Vec<(u64, Laid)>),
}

/// A shape at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Laid {
    /// Where its origin lies.
    pub(super) at: i64,
    pub(super) shape: Arc<Shape>,
}

impl Laid {
    /// A run of this many bytes, at least one.
    ///
    /// # Errors
    /// If a file cannot have as many.
    ///
    /// # Panics
    /// If it is none.
    pub(super) fn run(at: i64, size: u64) -> Result<Self, ViewError> {
        let end = i64::try_from(size).map_err(|_| ViewError::TooLarge)?;
        assert!(end > 0, "a run without bytes");
        Self::of(Shape { size, first: 0, last: 0, end, overlaps: false, form: Form::Run }).moved(at)
    }

    fn of(shape: Shape) -> Self {
        Self { at: 0, shape: Arc::new(shape) }
    }

    /// The same bytes, this much farther on.
    pub(super) fn moved(self, by: i64) -> Result<Self, ViewError> {
        let at = sum(self.at, by)?;
        // So that no place in it overflows.
        sum(at, self.shape.first)?;
        sum(at, self.shape.end)?;
        Ok(Self { at, ..self })
    }

    /// Where its first run begins.
    pub(super) fn first(&self) -> i64 {
        self.at + self.shape.first
    }

    /// Where its last run begins.
    pub(super) fn last(&self) -> i64 {
        self.at + self.shape.last
    }

    /// Where the run ends that ends last.
    pub(super) fn end(&self) -> i64 {
        self.at + self.shape.end
    }

    fn is_run(&self) -> bool {
        matches!(self.shape.form, Form::Run)
    }

    /// This many copies, at least one, each at this distance from the one before.
    ///
    /// # Errors
    /// If they are not in order, or too far apart.
    pub(super) fn repeated(self, count: u64, stride: i64) -> Result<Self, ViewError> {
        if count == 1 {
            return Ok(self);
        }
        let size = bytes(self.shape.size.checked_mul(count))?;
        let next = sum(self.first(), stride)?;
        if next < self.last() {
            return Err(ViewError::NotInOrder);
        }
        if self.is_run() && next == self.end() {
            return Self::run(self.at, size);
        }
        let way = i64::try_from(count - 1).ok().and_then(|steps| steps.checked_mul(stride));
        let way = way.ok_or(ViewError::TooLarge)?;
        Ok(Self::of(Shape {
            size,
            first: self.first(),
            last: sum(self.last(), way)?,
            end: sum(self.end(), way)?,
            overlaps: self.shape.overlaps || next < self.end(),
            form: Form::Strided { count, stride, part: self },
        }))
    }

    /// These parts, one after the other; `None` if there are none. Runs that touch become one.
    ///
    /// # Errors
    /// If they are not in order, or are more bytes than a file has.
    pub(super) fn joined(parts: impl IntoIterator<Item = Self>) -> Result<Option<Self>, ViewError> {
        let mut joined: Vec<(u64, Self)> = Vec::new();
        let (mut size, mut end, mut overlaps) = (0_u64, i64::MIN, false);
        for part in parts {
            let before = size;
            size = bytes(before.checked_add(part.shape.size))?;
            overlaps |= part.shape.overlaps;
            if let Some((_, last)) = joined.last_mut() {
                if part.first() < last.last() {
                    return Err(ViewError::NotInOrder);
                }
                overlaps |= part.first() < end;
                if last.is_run() && part.is_run() && last.end() == part.at {
                    *last = Self::run(last.at, last.shape.size + part.shape.size)?;
                    end = end.max(last.end());
                    continue;
                }
            }
            end = end.max(part.end());
            joined.push((before, part));
        }
        let (Some((_, first)), Some((_, last))) = (joined.first(), joined.last()) else {
            return Ok(None);
        };
        let (first, last) = (first.first(), last.last());
        if joined.len() == 1 {
            return Ok(joined.pop().map(|(_, only)| only));
        }
        joined.shrink_to_fit();
        let form = Form::Parts(joined);
        Ok(Some(Self::of(Shape { size, first, last, end, overlaps, form })))
    }
}

/// The sum of two places.
pub(super) fn sum(one: i64, other: i64) -> Result<i64, ViewError> {
    one.checked_add(other).ok_or(ViewError::TooLarge)
}

/// A number of bytes that a file can have.
fn bytes(count: Option<u64>) -> Result<u64, ViewError> {
    count.filter(|&count| i64::try_from(count).is_ok()).ok_or(ViewError::TooLarge)
}
