//! Reads of the program: each gets all bytes, those of its view, and none that are older than it.

use super::Host;
use super::buffers::Chunk;
use super::program::{Then, meets};
use lads_core::limits::FRAME_BYTES;
use lads_core::range::RangeSet;
use lads_core::remote::client::{Read, Step};
use lads_core::remote::message::{FileNumber, ViewNumber};
use lads_core::remote::reading::Load;
use std::ops::Range;

/// A read of the program.
pub(super) struct Reading {
    read: Read,
    pub(super) view: ViewNumber,
    /// Time of its begin.
    pub(super) begun: u64,
    start: u64,
    missing: RangeSet,
}

impl Host<'_> {
    pub(super) fn begin_read(&mut self, place: usize) {
        let start = match self.choices.is_one_in(2) {
            true => u64::from(self.choices.below(6)) * u64::from(FRAME_BYTES),
            false => self.position(),
        };
        let length = match self.choices.below(8) {
            0 => u64::from(self.choices.below(3 * FRAME_BYTES)),
            1 => FRAME_BYTES.into(),
            _ => self.choices.below(256).into(),
        };
        let file = &self.files[place];
        if file.is_copying() || length == 0 || self.has_many_calls() {
            return;
        }
        self.seal(place);
        let begun = self.tick();
        let file = &mut self.files[place];
        let positions = start..start.saturating_add(length);
        let (number, view) = (file.number, file.tail.target().view);
        let read = self.client.begin_read(&mut file.tail, positions.clone(), self.now);
        assert!(read.is_err() || !self.is_over, "there is a connection");
        let Ok(read) = read else { return };
        let missing = RangeSet::from_iter([positions]);
        let reading = Box::new(Reading { read, view, begun, start, missing });
        self.go_on(Some(number), Then::Read(reading));
    }

    /// Makes a read go on until it waits.
    pub(super) fn go_on_reading(&mut self, file: FileNumber, mut reading: Box<Reading>) {
        loop {
            self.stepping = Some(reading.begun);
            let step = self.client.step(&mut reading.read);
            if !self.is_over {
                self.say();
            }
            self.stepping = None;
            match step {
                Step::Copy(position, bytes, part) => {
                    self.check_copy(file, &mut reading, position, &bytes, part);
                }
                Step::Load(position, load, part) => {
                    let length = part.len() as u64;
                    match self.load(load) {
                        Some(it) => self.check_copy(file, &mut reading, position, &it, part),
                        None => reading.read.again(position..position + length),
                    }
                }
                Step::Wait(wait) => {
                    assert!(!self.is_over, "{wait:?} after the loss");
                    return self.wait_for(Some(file), wait, Then::Read(reading));
                }
                Step::End(result) => {
                    let Ok(length) = result else { return };
                    let end = reading.start + length;
                    let missing = reading.missing.next_from(reading.start);
                    assert!(missing.is_none_or(|it| it.start >= end), "not all is copied");
                    self.reached.reads += 1;
                    return;
                }
            }
        }
    }

    /// Copied bytes are those of the positions, and none that were changed before the read began.
    fn check_copy(
        &self,
        file: FileNumber,
        reading: &mut Reading,
        position: u64,
        bytes: &Chunk,
        part: Range<usize>,
    ) {
        let file = self.files.iter().find(|it| it.number == file).expect("it is open");
        for piece in bytes.pieces(&part) {
            let from = position + (piece.part.start - part.start) as u64;
            let positions = from..from + piece.part.len() as u64;
            assert_eq!((piece.view, piece.position), (reading.view, from), "other bytes");
            let is_old = |(at, changed): &(u64, Range<u64>)| {
                piece.asked < *at && *at < reading.begun && meets(changed, &positions)
            };
            assert!(!file.changes.iter().any(is_old), "old bytes at {positions:?}");
        }
        reading.missing.remove(position..position + part.len() as u64);
    }

    fn load(&mut self, load: Load) -> Option<Chunk> {
        let is_failed = self.choices.is_one_in(16);
        let mut bytes = (!is_failed).then(|| self.disk[&load.slot].copied());
        self.reached.loaded += u64::from(!is_failed);
        self.client.on_loaded(load, bytes.as_mut());
        bytes
    }
}
