//! A fixed amount of memory for blocks, cut into equal buffers that direct I/O can use.
//!
//! Buffers are handed out most recently used first: they are warm in the cache, and memory that
//! was never needed is never touched, so a transfer that keeps up uses a few MiB of it.

use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The memory and the list of its free buffers.
#[derive(Debug, Clone)]
pub struct Arena {
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Memory {
    start: *mut c_void,
    buffer_count: u32,
    buffer_bytes: usize,
    free: Mutex<Free>,
    freed: Condvar,
}

#[derive(Debug)]
struct Free {
    /// Indices of free buffers; the last was used last.
    buffers: Vec<u32>,
    waiting: u32,
}

// SAFETY: the memory belongs to this value until it is dropped, and each part of it is reached
// only through the one `Buffer` that holds its index.
unsafe impl Send for Memory {}
// SAFETY: as above; the list of free buffers is behind a mutex.
unsafe impl Sync for Memory {}

/// One buffer, for as long as this value lives.
#[derive(Debug)]
pub struct Buffer {
    memory: Arc<Memory>,
    index: u32,
}

impl Arena {
    /// Reserves `buffer_count` buffers of `buffer_bytes` bytes. Nothing is touched yet.
    ///
    /// # Errors
    /// If the system does not give the address space.
    ///
    /// # Panics
    /// If there is no buffer, or `buffer_bytes` is not a positive multiple of 4096.
    pub fn new(buffer_count: u32, buffer_bytes: usize) -> io::Result<Self> {
        assert!(buffer_count > 0 && buffer_bytes > 0 && buffer_bytes.is_multiple_of(4096));
        let bytes = (buffer_count as usize)
            .checked_mul(buffer_bytes)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let buffers = (0..buffer_count).rev().collect();
        let free = Mutex::new(Free { buffers, waiting: 0 });
        let freed = Condvar::new();
        let memory = Memory { start, buffer_count, buffer_bytes, free, freed };
        Ok(Self { memory: Arc::new(memory) })
    }

    /// Asks for pages of 2 MiB, so that the first use of a buffer takes a tenth of the time. What a
    /// system does not give is no error.
    pub fn prefer_huge_pages(&self) {
        let memory = &*self.memory;
        // SAFETY: the range was mapped by `Arena::new`; the advice does not change what is in it.
        let _ = unsafe {
            rustix::mm::madvise(memory.start, memory.bytes(), rustix::mm::Advice::LinuxHugepage)
        };
    }

    /// A free buffer, as soon as there is one.
    #[must_use]
    pub fn take(&self) -> Buffer {
        let mut free = self.memory.lock();
        loop {
            if let Some(index) = free.buffers.pop() {
                return Buffer { memory: Arc::clone(&self.memory), index };
            }
            free.waiting += 1;
            free = self.memory.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
            free.waiting -= 1;
        }
    }

    /// A free buffer, if there is one now.
    #[must_use]
    pub fn try_take(&self) -> Option<Buffer> {
        let index = self.memory.lock().buffers.pop()?;
        Some(Buffer { memory: Arc::clone(&self.memory), index })
    }

    /// How many buffers there are, free or not.
    #[must_use]
    pub fn buffer_count(&self) -> u32 {
        self.memory.buffer_count
    }
}

impl Memory {
    fn bytes(&self) -> usize {
        self.buffer_count as usize * self.buffer_bytes
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `Arena::new`, and no `Buffer` is left: each holds an Arc.
        let _ = unsafe { rustix::mm::munmap(self.start, self.bytes()) };
    }
}

impl Buffer {
    /// Its number in the arena.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    fn start(&self) -> *mut u8 {
        let offset = self.index as usize * self.memory.buffer_bytes;
        // SAFETY: the index is below the count, so the offset lies inside the mapping.
        unsafe { self.memory.start.cast::<u8>().add(offset) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `buffer_bytes` bytes from there are mapped (zero until written), and only this
        // value reaches them.
        unsafe { std::slice::from_raw_parts(self.start(), self.memory.buffer_bytes) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.memory.buffer_bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.memory.lock();
        free.buffers.push(self.index);
        if free.waiting > 0 {
            self.memory.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_the_buffer_used_last() {
        let arena = Arena::new(3, 4096).unwrap();
        let (a, b) = (arena.take(), arena.take());
        let index = b.index();
        drop(b);
        assert_eq!(arena.take().index(), index);
        drop(a);
    }

    #[test]
    fn hands_out_no_more_than_there_are() {
        let arena = Arena::new(2, 4096).unwrap();
        let held = [arena.take(), arena.take()];
        assert!(arena.memory.lock().buffers.is_empty());
        drop(held);
        assert_eq!(arena.memory.lock().buffers.len(), 2);
    }

    #[test]
    fn buffers_do_not_overlap() {
        let arena = Arena::new(4, 8192).unwrap();
        let mut buffers: Vec<_> = (0..4).map(|_| arena.take()).collect();
        for (value, buffer) in (0u8..).zip(&mut buffers) {
            buffer.fill(value);
        }
        for (value, buffer) in (0u8..).zip(&buffers) {
            assert!(buffer.iter().all(|&byte| byte == value));
            assert!(buffer.as_ptr().addr().is_multiple_of(4096));
        }
    }

    #[test]
    fn a_waiter_gets_the_buffer_that_is_freed() {
        let arena = Arena::new(1, 4096).unwrap();
        let held = arena.take();
        let other = arena.clone();
        let waiter = std::thread::spawn(move || other.take().index());
        drop(held);
        assert_eq!(waiter.join().unwrap(), 0);
    }
}
