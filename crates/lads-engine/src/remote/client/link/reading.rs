//! The bytes that are read: how they get into the memory of the program.

use super::super::read_cache::ReadBuffer;
use super::{Link, OwnClient};
use crate::board::lock;
use crate::remote::error::RemoteError;
use lads_core::remote::client::{Read, Step};
use lads_core::remote::policy::LOOK_INTERVAL;
use lads_core::remote::reading::Load;
use lads_sys::Buffer;
use std::sync::{Arc, Weak};
use twox_hash::XxHash3_64;

impl Link {
    /// Reads into pieces, from a position on; `what` goes into an error. Returns how many bytes
    /// there were before the end of the file.
    pub(in crate::remote::client) fn read(
        &self,
        read: &mut Read,
        start: u64,
        pieces: &mut [&mut [u8]],
        what: &str,
    ) -> Result<u64, RemoteError> {
        let mut to = Pieces::new(pieces, start);
        loop {
            let step = self.ask_with(|client, _| client.step(read));
            self.wake_saver();
            match step {
                Step::Copy(position, bytes, part) => to.put(position, &bytes[part]),
                Step::Load(position, load, part) => match self.load(load) {
                    Some(bytes) => to.put(position, &bytes[part]),
                    None => read.again(position..position + part.len() as u64),
                },
                Step::Wait(wait) => drop(self.wait(&wait)),
                Step::End(result) => return result.map_err(|error| self.error(error, what)),
            }
        }
    }

    /// Bytes that were asked for have come.
    pub(super) fn on_bytes(&self, number: u64, mut buffer: Buffer, count: usize) {
        let place = self.lock().client.place_of(number);
        if place > 0 {
            buffer.copy_within(..count, place);
        }
        let bytes = ReadBuffer(Arc::new(buffer));
        self.event(|client, now| client.on_bytes(number, bytes, place..place + count, now));
        self.wake_saver();
    }

    /// Brings a chunk back from the disk. `None` if that has failed.
    fn load(&self, load: Load) -> Option<ReadBuffer> {
        let cache = self.read_cache.as_ref().expect("it was put there");
        let _one = lock(&cache.loading);
        let mut buffer = self.for_reading.take();
        let length = load.length as usize;
        let read = cache.file.read(load.slot, &mut buffer, length);
        let is_whole = || XxHash3_64::oneshot(&buffer[..length]) == load.checksum;
        let is_read = read.is_ok() && is_whole();
        let mut buffer = is_read.then(|| ReadBuffer(Arc::new(buffer)));
        self.event(|client, _| client.on_loaded(load, buffer.as_mut()));
        buffer
    }

    /// Puts chunks on the disk until the connection is lost.
    pub(super) fn save(link: &Weak<Self>) {
        loop {
            let Some(link) = link.upgrade() else { return };
            let mut session = link.lock();
            if session.client.loss().is_some() {
                return;
            }
            let Some(save) = session.client.next_save() else {
                drop(link.wakes.disks.wait_timeout(session, LOOK_INTERVAL));
                continue;
            };
            drop(session);
            let cache = link.read_cache.as_ref().expect("this thread is there for it");
            let length = save.length as usize;
            let written = cache.file.write(save.slot, &save.bytes, length);
            let checksum = written.is_ok().then(|| XxHash3_64::oneshot(&save.bytes[..length]));
            link.event(|client: &mut OwnClient, _| client.on_saved(save, checksum));
        }
    }

    /// There may be a chunk to be put on the disk.
    fn wake_saver(&self) {
        if self.read_cache.is_some() {
            self.wakes.disks.notify_all();
        }
    }
}

/// Memory of the program, filled in any order.
struct Pieces<'a, 'b> {
    pieces: &'a mut [&'b mut [u8]],
    /// The position of the first byte of each.
    starts: Vec<u64>,
}

impl<'a, 'b> Pieces<'a, 'b> {
    fn new(pieces: &'a mut [&'b mut [u8]], start: u64) -> Self {
        let mut next = start;
        let starts = pieces.iter().map(|piece| {
            let start = next;
            next = next.saturating_add(piece.len() as u64);
            start
        });
        let starts = starts.collect();
        Self { pieces, starts }
    }

    fn put(&mut self, mut position: u64, mut bytes: &[u8]) {
        let mut index = self.starts.partition_point(|start| *start <= position) - 1;
        while !bytes.is_empty() {
            let place = usize::try_from(position - self.starts[index]).unwrap_or(usize::MAX);
            let to = &mut self.pieces[index][place..];
            let count = bytes.len().min(to.len());
            to[..count].copy_from_slice(&bytes[..count]);
            (position, bytes, index) = (position + count as u64, &bytes[count..], index + 1);
        }
    }
}
