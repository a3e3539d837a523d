//! A read of a program: what is kept is copied, what is missing is asked for, what is coming is
//! waited for.

use super::RemoteError;
use super::link::{After, Link, Wanted};
use lads_core::remote::message::{CLIENT_READS_MAX, Call, FileNumber, ViewNumber};
use lads_core::remote::reading::Found;
use std::collections::VecDeque;
use std::ops::Range;

/// Where a read goes on.
pub(super) struct Source<'a> {
    pub(super) link: &'a Link,
    pub(super) file: FileNumber,
    /// The file, for messages.
    pub(super) name: &'a str,
    pub(super) view: ViewNumber,
    pub(super) after: After,
    /// The number of frames of the connection up to the last one that the program wrote to the file
    /// before.
    pub(super) frames: u64,
    /// How often the file had been changed when the read began.
    pub(super) changes: u64,
}

/// A read that is not done.
struct Work<'a, 'b, 'c> {
    source: Source<'a>,
    to: Pieces<'b, 'c>,
    /// Positions that nobody has looked for.
    todo: VecDeque<Range<u64>>,
    /// Positions that are coming because somebody else has asked for them, and that request.
    coming: Vec<(u64, Range<u64>)>,
    /// Requests of this read, and their positions.
    asked: VecDeque<Asked>,
    /// Here the file ended.
    end: u64,
    /// All that the program wrote before is at the server.
    is_flushed: bool,
    failure: Option<RemoteError>,
    /// It may ask for more.
    is_asking: bool,
}

struct Asked {
    number: u64,
    positions: Range<u64>,
    /// An end of the file is where the server says that it is: nothing that the program wrote
    /// before was on its way.
    is_end_certain: bool,
}

impl Source<'_> {
    /// Reads into pieces from a position on. Returns how many bytes there were before the end of
    /// the file.
    pub(super) fn read(
        self,
        positions: Range<u64>,
        pieces: &mut [&mut [u8]],
    ) -> Result<u64, RemoteError> {
        let start = positions.start;
        let (to, end) = (Pieces::new(pieces, start), positions.end);
        let (coming, asked) = (Vec::new(), VecDeque::new());
        let todo = VecDeque::from([positions]);
        let mut work = Work {
            source: self,
            to,
            todo,
            coming,
            asked,
            end,
            is_flushed: false,
            failure: None,
            is_asking: true,
        };
        while work.step() {}
        work.failure.map_or(Ok(work.end - start), Err)
    }
}

impl Work<'_, '_, '_> {
    /// Does something. Returns `false` when nothing is left.
    fn step(&mut self) -> bool {
        if self.failure.is_some() {
            self.todo.clear();
            self.coming.clear();
        }
        if self.todo.is_empty() && std::mem::take(&mut self.is_asking) {
            self.source.link.end_asking();
        }
        if let Some(mut positions) = self.todo.pop_front() {
            positions.end = positions.end.min(self.end);
            if !positions.is_empty() {
                self.look_for(positions);
            }
        } else if !self.asked.is_empty() {
            self.take_answer();
        } else if let Some((number, _)) = self.coming.first() {
            match self.source.link.wait_until_come(*number) {
                Ok(()) => self.todo.extend(self.coming.drain(..).map(|(_, positions)| positions)),
                Err(error) => self.failure = Some(error),
            }
        } else {
            return false;
        }
        true
    }

    fn look_for(&mut self, positions: Range<u64>) {
        let Source { link, file, .. } = self.source;
        let start = positions.start;
        let found = match link.find(file, &positions) {
            Found::Here(bytes, part) => {
                self.to.put(start, &bytes[part.clone()]);
                link.on_cached(part.len());
                part.len() as u64
            }
            Found::OnDisk(load, part) => {
                let Some(bytes) = link.load(load) else {
                    // It has failed, and is not looked at again.
                    return self.todo.push_front(positions);
                };
                self.to.put(start, &bytes[part.clone()]);
                link.on_cached(part.len());
                part.len() as u64
            }
            Found::Coming(number, coming) => {
                let length = coming.end - start;
                self.coming.push((number, coming));
                length
            }
            Found::Missing(missing) => {
                // Whoever waits for a place must have none whose answer it has not taken: others
                // may wait for that one.
                let may_wait = self.asked.is_empty();
                if self.asked.len() >= CLIENT_READS_MAX as usize || !link.begin_read(may_wait) {
                    self.take_answer();
                    return self.todo.push_front(positions);
                }
                let Source { view, after, changes, .. } = &self.source;
                let wanted = Wanted { file, view: *view, positions: missing.clone() };
                let length = missing.end - start;
                let (number, is_all_written) = link.ask_to_read(after, wanted, *changes);
                let is_end_certain = is_all_written || self.is_flushed;
                self.asked.push_back(Asked { number, positions: missing, is_end_certain });
                length
            }
        };
        if start + found < positions.end {
            self.todo.push_front(start + found..positions.end);
        }
    }

    fn take_answer(&mut self) {
        let Some(asked) = self.asked.pop_front() else { return };
        let Asked { number, positions, is_end_certain } = asked;
        match self.source.link.wait_for_bytes(number, self.source.name) {
            Ok(bytes) => {
                let count = bytes.as_ref().map_or(0, |(_, part)| part.len());
                let got = positions.start + count as u64;
                if got < positions.end && is_end_certain {
                    self.end = self.end.min(got);
                } else if got < positions.end {
                    self.todo.push_front(got..positions.end);
                    self.flush();
                }
                // What lies behind the end is not there, even if somebody has made the file longer.
                if let Some((buffer, part)) = bytes
                    && positions.start < self.end
                {
                    let count = part.len().min(usize_of(self.end - positions.start));
                    self.to.put(positions.start, &buffer[part][..count]);
                }
            }
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }

    /// Waits until all that the program wrote before is at the server: it may make the file longer.
    fn flush(&mut self) {
        if self.is_flushed {
            return;
        }
        self.is_flushed = true;
        let Source { link, file, frames, name, .. } = self.source;
        let asked = link.ask(&After::Frames { file, count: frames }, Call::Flush { file });
        self.failure = link.wait_for(asked, name).err();
    }
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
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
            let place = usize_of(position - self.starts[index]);
            let to = &mut self.pieces[index][place..];
            let count = bytes.len().min(to.len());
            to[..count].copy_from_slice(&bytes[..count]);
            (position, bytes, index) = (position + count as u64, &bytes[count..], index + 1);
        }
    }
}
