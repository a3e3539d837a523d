//! The bytes of remote files: each stands for the write that put it there, and buffers are counted.

use lads_core::remote::reading::ChunkBytes;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The number of a write; 0 stands for what a file contains before all writes.
pub(super) type Stamp = u32;

/// A buffer of a client that is filled by the program.
pub(super) type WriteBuffer = Rc<Buffer<Vec<Stamp>>>;

/// Buffers of one kind, which are free again when nothing refers to them.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    in_use: Rc<Cell<u32>>,
    count: u32,
}

/// A buffer of a pool.
#[derive(Debug)]
pub(super) struct Buffer<T> {
    pub(super) content: T,
    in_use: Rc<Cell<u32>>,
}

impl Pool {
    pub(super) fn new(count: u32) -> Self {
        Self { in_use: Rc::default(), count }
    }

    /// Takes a buffer, if one is free.
    pub(super) fn take<T>(&self, content: T) -> Option<Buffer<T>> {
        if !self.has_free() {
            return None;
        }
        self.in_use.set(self.in_use.get() + 1);
        Some(Buffer { content, in_use: Rc::clone(&self.in_use) })
    }

    pub(super) fn has_free(&self) -> bool {
        self.in_use.get() < self.count
    }

    pub(super) fn in_use(&self) -> u32 {
        self.in_use.get()
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.in_use.set(self.in_use.get() - 1);
    }
}

/// A buffer with bytes that were read, by their places in the chunk; zeros are not listed.
#[derive(Clone, Debug)]
pub(super) struct ReadBuffer(Rc<Buffer<BTreeMap<usize, Stamp>>>);

impl ReadBuffer {
    pub(super) fn new(buffer: Buffer<BTreeMap<usize, Stamp>>) -> Self {
        Self(Rc::new(buffer))
    }

    pub(super) fn bytes(&self) -> &BTreeMap<usize, Stamp> {
        &self.0.content
    }
}

impl ChunkBytes for ReadBuffer {
    fn take_in(&mut self, from: &Self, part: Range<usize>) -> bool {
        let Some(buffer) = Rc::get_mut(&mut self.0) else { return false };
        buffer.content.retain(|place, _| !part.contains(place));
        buffer.content.extend(from.bytes().range(part));
        true
    }
}
