//! Datatypes as MPI programs make them, how they travel, and where their bytes lie.
//!
//! A client takes a datatype apart with `MPI_Type_get_envelope` and `MPI_Type_get_contents`, and
//! writes it in preorder (the RFS paper, section 3.1): its tag, its numbers, then the datatype that
//! it is made of. All numbers are little-endian, of 8 bytes if nothing else is said.
//!
//! | tag | datatype | numbers |
//! |---|---|---|
//! | 0 | bytes | how many; nothing follows |
//! | 1 | resized | lower bound, extent |
//! | 2 | vector | blocks, copies in each, stride in bytes |
//! | 3 | indexed | parts (4 bytes); of each: copies, place in bytes |
//! | 4 | struct | parts (4 bytes); of each: copies, place in bytes, the datatype |
//! | 5 | subarray | whether Fortran, dimensions (1 byte each); of each: size, length, start |
//! | 6 | darray | whether Fortran (1 byte), rank, dimensions (1 byte); of each: see below |
//!
//! A dimension of a darray: size; distribution (1 byte: 0 block, 1 cyclic, 2 none); its argument,
//! or 0 for the default; processes.
//!
//! A block is a number of copies of the datatype, one after the other.

use super::ViewError;
use super::shape::{Laid, sum};
use crate::limits::{VIEW_LEVELS_MAX, VIEW_PARTS_MAX};

/// A datatype, as a program makes it (MPI 4.0, chapter 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datatype {
    /// This many bytes that follow each other: all named datatypes.
    Bytes(u64),
    /// A datatype that begins and ends elsewhere.
    Resized {
        /// Its lower bound.
        begin: i64,
        /// The distance from there to its upper bound.
        extent: i64,
        /// The datatype.
        of: Box<Self>,
    },
    /// Blocks at equal distances.
    Vector {
        /// The number of blocks.
        count: u64,
        /// Copies in each block.
        block: u64,
        /// From one block to the next, in bytes.
        stride: i64,
        /// The datatype.
        of: Box<Self>,
    },
    /// Blocks at places of their own: copies in each, and its place in bytes.
    Indexed {
        /// The blocks.
        blocks: Vec<(u64, i64)>,
        /// The datatype.
        of: Box<Self>,
    },
    /// Blocks of different datatypes.
    Struct(Vec<Part>),
    /// A part of an array.
    Subarray {
        /// Whether the first dimension is the one whose elements follow each other.
        is_fortran: bool,
        /// What is taken of each dimension.
        slices: Vec<Slice>,
        /// An element.
        of: Box<Self>,
    },
    /// The share of one process in an array that is distributed over a grid of processes.
    Darray {
        /// Whether the first dimension is the one whose elements follow each other.
        is_fortran: bool,
        /// The process, counted along the last dimension of the grid first.
        rank: u64,
        /// The dimensions.
        dimensions: Vec<Dimension>,
        /// An element.
        of: Box<Self>,
    },
}

/// A block of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Copies.
    pub block: u64,
    /// Its place, in bytes.
    pub at: i64,
    /// The datatype.
    pub of: Datatype,
}

/// What a subarray takes of a dimension, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Elements of the array.
    pub size: u64,
    /// Elements of the part.
    pub length: u64,
    /// The first of them.
    pub start: u64,
}

/// A dimension of a distributed array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// Elements of the array.
    pub size: u64,
    /// How they are dealt out.
    pub distribution: Distribution,
    /// Processes that share them.
    pub processes: u64,
}

/// How the elements of a dimension are dealt to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// One block each, of this many elements; `None`: as few as are enough.
    Block(Option<u64>),
    /// Blocks of this many elements, in turn.
    Cyclic(u64),
    /// All to one process.
    None,
}

/// Where the bytes of a datatype lie, and its bounds.
#[derive(Clone, Debug)]
pub(super) struct Lowered {
    /// `None` if it has no bytes. An error that they are not in order, or too far apart, does not
    /// matter if no copy is made of them.
    pub(super) bytes: Result<Option<Laid>, ViewError>,
    pub(super) begin: i64,
    pub(super) end: i64,
}

impl Datatype {
    /// Where its bytes lie.
    ///
    /// # Errors
    /// If its bounds are too far apart, or it has no part of an array.
    pub(super) fn lower(&self) -> Result<Lowered, ViewError> {
        match self {
            Self::Bytes(0) => Ok(Lowered { bytes: Ok(None), begin: 0, end: 0 }),
            Self::Bytes(count) => {
                let run = Laid::run(0, *count)?;
                Ok(Lowered { begin: 0, end: run.end(), bytes: Ok(Some(run)) })
            }
            Self::Resized { begin, extent, of } => {
                let bytes = of.lower()?.bytes;
                Ok(Lowered { bytes, begin: *begin, end: sum(*begin, *extent)? })
            }
            Self::Vector { block: 0, .. } => Ok(Lowered { bytes: Ok(None), begin: 0, end: 0 }),
            Self::Vector { count, block, stride, of } => {
                of.lower()?.copies(*block)?.repeated(*count, *stride)
            }
            Self::Indexed { blocks, of } => {
                let one = of.lower()?;
                let blocks = blocks.iter().filter(|(block, _)| *block > 0);
                join(blocks.map(|(block, at)| one.clone().copies(*block)?.moved(*at)))
            }
            Self::Struct(parts) => {
                let parts = parts.iter().filter(|part| part.block > 0);
                join(parts.map(|part| part.of.lower()?.copies(part.block)?.moved(part.at)))
            }
            Self::Subarray { is_fortran, slices, of } => in_order_of_memory(slices, *is_fortran)
                .try_fold(of.lower()?, |inner, slice| slice.of(inner)),
            Self::Darray { is_fortran, rank, dimensions, of } => {
                let places = places_in_grid(*rank, dimensions)?;
                let both: Vec<(Dimension, u64)> = dimensions.iter().copied().zip(places).collect();
                in_order_of_memory(&both, *is_fortran)
                    .try_fold(of.lower()?, |inner, (dimension, place)| dimension.of(inner, *place))
            }
        }
    }

    /// Writes it as it travels.
    pub fn write(&self, out: &mut Vec<u8>) {
        let words = |out: &mut Vec<u8>, words: &[u64]| {
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        };
        let place = |out: &mut Vec<u8>, block: u64, at: i64| {
            words(out, &[block, at.cast_unsigned()]);
        };
        let count = |out: &mut Vec<u8>, count: usize| {
            let count = u32::try_from(count).expect("at most VIEW_PARTS_MAX");
            out.extend_from_slice(&count.to_le_bytes());
        };
        let dimensions = |count: usize| u8::try_from(count).expect("at most VIEW_LEVELS_MAX");
        match self {
            Self::Bytes(count) => {
                out.push(0);
                words(out, &[*count]);
            }
            Self::Resized { begin, extent, of } => {
                out.push(1);
                words(out, &[begin.cast_unsigned(), extent.cast_unsigned()]);
                of.write(out);
            }
            Self::Vector { count, block, stride, of } => {
                out.push(2);
                words(out, &[*count, *block, stride.cast_unsigned()]);
                of.write(out);
            }
            Self::Indexed { blocks, of } => {
                out.push(3);
                count(out, blocks.len());
                blocks.iter().for_each(|(block, at)| place(out, *block, *at));
                of.write(out);
            }
            Self::Struct(parts) => {
                out.push(4);
                count(out, parts.len());
                for part in parts {
                    place(out, part.block, part.at);
                    part.of.write(out);
                }
            }
            Self::Subarray { is_fortran, slices, of } => {
                out.extend([5, u8::from(*is_fortran), dimensions(slices.len())]);
                slices.iter().for_each(|it| words(out, &[it.size, it.length, it.start]));
                of.write(out);
            }
            Self::Darray { is_fortran, rank, dimensions: all, of } => {
                out.extend([6, u8::from(*is_fortran)]);
                words(out, &[*rank]);
                out.push(dimensions(all.len()));
                for Dimension { size, distribution, processes } in all {
                    let (tag, argument) = match distribution {
                        Distribution::Block(argument) => (0, argument.unwrap_or(0)),
                        Distribution::Cyclic(argument) => (1, *argument),
                        Distribution::None => (2, 0),
                    };
                    words(out, &[*size]);
                    out.push(tag);
                    words(out, &[argument, *processes]);
                }
                of.write(out);
            }
        }
    }

    /// Takes one apart that has travelled; it must be all of the bytes.
    ///
    /// # Errors
    /// If the bytes are not one, or it is deeper or has more parts than is allowed. Whether its
    /// parts are in order shows only when a view is made of it.
    pub fn take(bytes: &[u8]) -> Result<Self, ViewError> {
        let mut reader = Reader { bytes, at: 0, part_count: 0 };
        let datatype = reader.datatype(0)?;
        match reader.at == bytes.len() {
            true => Ok(datatype),
            false => Err(ViewError::Damaged(reader.at)),
        }
    }
}

impl Lowered {
    /// Copies that follow each other.
    fn copies(self, count: u64) -> Result<Self, ViewError> {
        let extent = self.end.checked_sub(self.begin).ok_or(ViewError::TooLarge)?;
        self.repeated(count, extent)
    }

    fn repeated(self, count: u64, stride: i64) -> Result<Self, ViewError> {
        let Some(steps) = count.checked_sub(1) else {
            return Ok(Self { bytes: Ok(None), begin: 0, end: 0 });
        };
        let steps = i64::try_from(steps).map_err(|_| ViewError::TooLarge)?;
        let way = steps.checked_mul(stride).ok_or(ViewError::TooLarge)?;
        let (begin, end) = (sum(self.begin, way.min(0))?, sum(self.end, way.max(0))?);
        let repeated = |bytes: Option<Laid>| bytes.map(|it| it.repeated(count, stride)).transpose();
        let bytes = self.bytes.and_then(repeated);
        Ok(Self { bytes, begin, end })
    }

    fn moved(self, by: i64) -> Result<Self, ViewError> {
        let bytes = self.bytes.and_then(|bytes| bytes.map(|it| it.moved(by)).transpose());
        Ok(Self { bytes, begin: sum(self.begin, by)?, end: sum(self.end, by)? })
    }
}

impl Slice {
    /// This part of an array of `inner`, which has bounds that follow each other.
    fn of(&self, inner: Lowered) -> Result<Lowered, ViewError> {
        let last = self.start.checked_add(self.length);
        if self.length == 0 || last.is_none_or(|last| last > self.size) {
            return Err(ViewError::OutsideArray);
        }
        let (extent, whole) = row(&inner, self.size)?;
        let at = product(extent, self.start)?;
        let part = inner.repeated(self.length, extent)?.moved(at)?;
        Ok(Lowered { bytes: part.bytes, begin: 0, end: whole })
    }
}

impl Dimension {
    /// The share of the process at a place of this dimension of the grid.
    fn of(&self, inner: Lowered, place: u64) -> Result<Lowered, ViewError> {
        let (extent, whole) = row(&inner, self.size)?;
        let block = match self.distribution {
            Distribution::Block(None) => self.size.div_ceil(self.processes),
            Distribution::Block(Some(block)) | Distribution::Cyclic(block) => block,
            Distribution::None => self.size,
        };
        let round = block.checked_mul(self.processes).ok_or(ViewError::TooLarge)?;
        let is_too_few = matches!(self.distribution, Distribution::Block(_)) && round < self.size;
        let is_shared = self.distribution == Distribution::None && self.processes != 1;
        if block == 0 || is_too_few || is_shared {
            return Err(ViewError::OutsideArray);
        }
        // Elements from the first block of this process on.
        let start = block.checked_mul(place).ok_or(ViewError::TooLarge)?;
        let left = self.size.saturating_sub(start);
        let whole_blocks = left.checked_sub(block).map_or(0, |more| more / round + 1);
        let rest_at = whole_blocks.checked_mul(round).ok_or(ViewError::TooLarge)?;
        let rest = left.saturating_sub(rest_at).min(block);
        let mut parts = Vec::new();
        if whole_blocks > 0 {
            let blocks = inner.clone().repeated(block, extent)?;
            parts.push(blocks.repeated(whole_blocks, product(extent, round)?)?);
        }
        if rest > 0 {
            parts.push(inner.repeated(rest, extent)?.moved(product(extent, rest_at)?)?);
        }
        let at = product(extent, start.min(self.size))?;
        let parts = parts.into_iter().map(|part| part.bytes).collect::<Result<Vec<_>, _>>();
        let bytes = parts.and_then(|parts| {
            Laid::joined(parts.into_iter().flatten())?.map(|it| it.moved(at)).transpose()
        });
        Ok(Lowered { bytes, begin: 0, end: whole })
    }
}

/// The distance between two elements of a row, and the length of a row of this many.
fn row(inner: &Lowered, count: u64) -> Result<(i64, i64), ViewError> {
    let extent = inner.end.checked_sub(inner.begin).ok_or(ViewError::TooLarge)?;
    Ok((extent, product(extent, count)?))
}

fn product(extent: i64, count: u64) -> Result<i64, ViewError> {
    let count = i64::try_from(count).map_err(|_| ViewError::TooLarge)?;
    extent.checked_mul(count).ok_or(ViewError::TooLarge)
}

/// Parts one after the other.
fn join(parts: impl Iterator<Item = Result<Lowered, ViewError>>) -> Result<Lowered, ViewError> {
    let (mut bounds, mut all) = (None, Vec::new());
    for part in parts {
        let Lowered { bytes, begin, end } = part?;
        let (least, most) = bounds.unwrap_or((begin, end));
        bounds = Some((begin.min(least), end.max(most)));
        all.push(bytes);
    }
    let (begin, end) = bounds.unwrap_or((0, 0));
    let all = all.into_iter().collect::<Result<Vec<_>, _>>();
    let bytes = all.and_then(|all| Laid::joined(all.into_iter().flatten()));
    Ok(Lowered { bytes, begin, end })
}

/// The dimensions of an array, first the one whose elements follow each other.
fn in_order_of_memory<T>(dimensions: &[T], is_fortran: bool) -> impl Iterator<Item = &T> {
    let count = dimensions.len();
    (0..count).map(move |step| &dimensions[if is_fortran { step } else { count - 1 - step }])
}

/// The place of a process in each dimension of the grid (in C order, also for Fortran arrays).
fn places_in_grid(rank: u64, dimensions: &[Dimension]) -> Result<Vec<u64>, ViewError> {
    let mut rest = rank;
    let mut places = Vec::new();
    for dimension in dimensions.iter().rev() {
        if dimension.processes == 0 {
            return Err(ViewError::OutsideArray);
        }
        places.push(rest % dimension.processes);
        rest /= dimension.processes;
    }
    places.reverse();
    if rest == 0 { Ok(places) } else { Err(ViewError::OutsideArray) }
}

/// Takes the description of a datatype apart.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    part_count: usize,
}

impl Reader<'_> {
    fn datatype(&mut self, depth: usize) -> Result<Datatype, ViewError> {
        if depth >= VIEW_LEVELS_MAX {
            return Err(ViewError::TooDeep);
        }
        let start = self.at;
        Ok(match self.byte()? {
            0 => Datatype::Bytes(self.word()?),
            1 => {
                let (begin, extent) = (self.place()?, self.place()?);
                Datatype::Resized { begin, extent, of: self.inner(depth)? }
            }
            2 => {
                let (count, block, stride) = (self.word()?, self.word()?, self.place()?);
                Datatype::Vector { count, block, stride, of: self.inner(depth)? }
            }
            3 => {
                let blocks = self.list(|it| Ok((it.word()?, it.place()?)))?;
                Datatype::Indexed { blocks, of: self.inner(depth)? }
            }
            4 => Datatype::Struct(self.list(|it| {
                let (block, at) = (it.word()?, it.place()?);
                Ok(Part { block, at, of: it.datatype(depth + 1)? })
            })?),
            5 => {
                let (is_fortran, count) = (self.flag()?, self.dimension_count(depth)?);
                let slice = |it: &mut Self| {
                    Ok(Slice { size: it.word()?, length: it.word()?, start: it.word()? })
                };
                let slices = (0..count).map(|_| slice(self)).collect::<Result<_, _>>()?;
                Datatype::Subarray { is_fortran, slices, of: self.inner(depth + count)? }
            }
            6 => {
                let (is_fortran, rank) = (self.flag()?, self.word()?);
                let count = self.dimension_count(depth)?;
                let dimensions = (0..count).map(|_| self.dimension()).collect::<Result<_, _>>()?;
                Datatype::Darray { is_fortran, rank, dimensions, of: self.inner(depth + count)? }
            }
            _ => return Err(ViewError::Damaged(start)),
        })
    }

    fn inner(&mut self, depth: usize) -> Result<Box<Datatype>, ViewError> {
        self.datatype(depth + 1).map(Box::new)
    }

    /// A list whose rows have 16 bytes or more.
    fn list<T>(
        &mut self,
        row: impl Fn(&mut Self) -> Result<T, ViewError>,
    ) -> Result<Vec<T>, ViewError> {
        let start = self.at;
        let count = u32::from_le_bytes(self.array()?) as usize;
        self.part_count += count;
        if self.part_count > VIEW_PARTS_MAX {
            return Err(ViewError::TooManyParts);
        }
        if count > (self.bytes.len() - self.at) / 16 {
            return Err(ViewError::Damaged(start));
        }
        (0..count).map(|_| row(self)).collect()
    }

    /// Each dimension becomes a level of the tree, or two.
    fn dimension_count(&mut self, depth: usize) -> Result<usize, ViewError> {
        let count = usize::from(self.byte()?);
        if depth + count < VIEW_LEVELS_MAX { Ok(count) } else { Err(ViewError::TooDeep) }
    }

    fn dimension(&mut self) -> Result<Dimension, ViewError> {
        let (size, start) = (self.word()?, self.at);
        let (tag, argument, processes) = (self.byte()?, self.word()?, self.word()?);
        let distribution = match tag {
            0 => Distribution::Block((argument > 0).then_some(argument)),
            1 => Distribution::Cyclic(argument.max(1)),
            2 => Distribution::None,
            _ => return Err(ViewError::Damaged(start)),
        };
        Ok(Dimension { size, distribution, processes })
    }

    fn flag(&mut self) -> Result<bool, ViewError> {
        let start = self.at;
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ViewError::Damaged(start)),
        }
    }

    fn byte(&mut self) -> Result<u8, ViewError> {
        self.array().map(|[byte]| byte)
    }

    fn word(&mut self) -> Result<u64, ViewError> {
        self.array().map(u64::from_le_bytes)
    }

    fn place(&mut self) -> Result<i64, ViewError> {
        self.array().map(i64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ViewError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let taken = *taken.ok_or(ViewError::Damaged(self.at))?;
        self.at += N;
        Ok(taken)
    }
}
