//! A client that says anything. Most of it is nearly sound.

use super::{Host, Phase};
use lads_core::limits::FRAME_BYTES;
use lads_core::remote::message::{
    Call, FileNumber, FrameOf, LockKind, Request, Unsent, ViewNumber, WriteNumber,
};
use lads_core::units::{Block, EntryId};
use lads_core::view::Datatype;

impl Host<'_> {
    /// Most often with the number that is next.
    pub(super) fn any_request(&mut self, index: usize) -> Request {
        let client = &self.clients[index];
        let is_lie = self.choices.is_one_in(64);
        let number = if is_lie { self.choices.number() } else { client.next };
        let frames_before = match self.choices.below(8) {
            0 => self.choices.number(),
            1 => client.frames.saturating_add(1),
            2 => 0,
            _ => client.frames,
        };
        let is_early = client.phase == Phase::Begun && !self.choices.is_one_in(16);
        let call = if is_early { self.any_return(index) } else { self.call() };
        Request { number, frames_before, call }
    }

    pub(super) fn call(&mut self) -> Call {
        let (file, view) = (self.file(), self.view());
        match self.choices.below(19) {
            0 => super::open(file),
            1 | 2 => {
                let displacement = self.choices.number();
                Call::View { view, file, displacement, filetype: self.filetype() }
            }
            3 => Call::Forget { view },
            4 => Call::Read { view, position: self.choices.number(), length: self.length() },
            5 => Call::Sync { file },
            6 => Call::Flush { file },
            7 => Call::Close { file },
            8 => Call::Size { file },
            9 => Call::SetSize { file, size: self.choices.below(256).into() },
            10 => Call::Preallocate { file, size: 0 },
            11 => Call::End { view },
            12 => Call::AddShared { file, bytes: 0 },
            13 => {
                let kinds = [LockKind::Shared, LockKind::Exclusive];
                Call::Lock { file, kind: self.choices.one_of(&kinds) }
            }
            14 => Call::Unlock { file },
            15 | 16 => Call::Fence { unsent: vec![self.unsent(view)] },
            17 if self.choices.is_one_in(4) => {
                Call::Return { frames: self.choices.number(), writes: self.any_fenced() }
            }
            _ => Call::Delete { path: Vec::new() },
        }
    }

    pub(super) fn unsent(&mut self, view: ViewNumber) -> Unsent {
        let (write, position) = (self.write(), self.choices.below(256).into());
        Unsent { write, view, position, length: self.length() }
    }

    fn write(&mut self) -> WriteNumber {
        WriteNumber(self.choices.below(16))
    }

    fn file(&mut self) -> FileNumber {
        FileNumber(self.choices.below(3))
    }

    pub(super) fn view(&mut self) -> ViewNumber {
        ViewNumber(if self.choices.is_one_in(16) {
            self.choices.number32()
        } else {
            self.choices.below(4)
        })
    }

    /// Most are short: a long one may have a million runs, which take long to find.
    pub(super) fn length(&mut self) -> u32 {
        let is_long = self.choices.is_one_in(250);
        1 + self.choices.below(if is_long { FRAME_BYTES } else { 64 })
    }

    /// A few sound ones, and anything.
    fn filetype(&mut self) -> Vec<u8> {
        match self.choices.is_one_in(4) {
            true => self.choices.bytes(256).to_vec(),
            false => self.sound_filetype(),
        }
    }

    pub(super) fn sound_filetype(&mut self) -> Vec<u8> {
        let run = |length| Box::new(Datatype::Bytes(length));
        let (length, extent) = (1 + u64::from(self.choices.below(16)), self.choices.below(64));
        let datatype = match self.choices.below(3) {
            0 => Datatype::Bytes(length),
            1 => Datatype::Resized { begin: 0, extent: extent.into(), of: run(length) },
            _ => {
                let stride = i64::from(extent);
                Datatype::Vector { count: length, block: 1, stride, of: run(length) }
            }
        };
        let mut bytes = Vec::new();
        datatype.write(&mut bytes);
        bytes
    }

    /// As the transport lets it through: not empty, and no position overflows.
    pub(super) fn any_block(&mut self) -> Option<Block> {
        let (view, write) = (self.view(), self.write());
        let of = FrameOf { view, write, is_announced: self.choices.is_one_in(4) };
        let entry = match self.choices.is_one_in(64) {
            true => EntryId(self.choices.number()),
            false => of.entry(),
        };
        let is_far = self.choices.is_one_in(8);
        let offset = if is_far { self.choices.number() } else { self.choices.below(256).into() };
        let length = self.length();
        offset.checked_add(length.into()).map(|_| Block { entry, offset, length })
    }
}
