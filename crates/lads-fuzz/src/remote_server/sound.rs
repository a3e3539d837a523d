//! A client that keeps to the protocol: it is never refused, and all that it says is done.

use super::{Client, Host, MODE};
use lads_core::remote::message::{
    CLIENT_READS_MAX, Call, FileNumber, FrameOf, LockKind, Request, Unsent, ViewNumber, WriteNumber,
};
use lads_core::units::Block;
use std::collections::BTreeSet;

/// Files and views that a client has at a time.
const FILES_MAX: usize = 3;
const VIEWS_MAX: usize = 4;

/// What a client remembers.
#[derive(Default)]
pub(super) struct Sound {
    files_so_far: u32,
    views_so_far: u32,
    writes_so_far: u32,
    files: Vec<FileNumber>,
    views: Vec<(ViewNumber, FileNumber)>,
    /// Writes that are announced and not sent.
    announced: Vec<Unsent>,
    /// Requests that are not answered and must be.
    owed: BTreeSet<u64>,
    /// Reads that are not answered and may be.
    reads: BTreeSet<u64>,
}

impl Sound {
    fn open(&mut self) -> Call {
        let file = FileNumber(self.files_so_far);
        self.files_so_far += 1;
        self.files.push(file);
        Call::Open { file, path: Vec::new(), mode: MODE, group: [0; 16] }
    }

    fn close(&mut self, file: FileNumber) -> Call {
        self.files.retain(|it| *it != file);
        self.views.retain(|(_, of)| *of != file);
        Call::Close { file }
    }

    fn forget(&mut self, view: ViewNumber) -> Call {
        self.views.retain(|(it, _)| *it != view);
        Call::Forget { view }
    }

    fn next_view(&mut self, file: FileNumber) -> ViewNumber {
        let view = ViewNumber(self.views_so_far);
        self.views_so_far += 1;
        self.views.push((view, file));
        view
    }

    fn next_write(&mut self) -> WriteNumber {
        self.writes_so_far += 1;
        WriteNumber(self.writes_so_far)
    }
}

impl Client {
    pub(super) fn on_reply(&mut self, number: u64) {
        let Some(sound) = &mut self.sound else { return };
        sound.owed.remove(&number);
        sound.reads.remove(&number);
    }

    /// The server has forgotten its reads.
    pub(super) fn on_resumed(&mut self) {
        self.sound.iter_mut().for_each(|sound| sound.reads.clear());
    }

    /// A frame was refused: its write counts as announced.
    pub(super) fn on_again(&mut self, frame: u64) {
        let Some(sound) = &mut self.sound else { return };
        let frame = usize::try_from(frame).expect("inputs are short");
        let Block { entry, offset, length } = self.sent[frame].block;
        let FrameOf { view, write, .. } = FrameOf::of_entry(entry);
        sound.announced.push(Unsent { write, view, position: offset, length });
    }

    fn has_announced(&self) -> bool {
        self.sound.as_ref().is_some_and(|sound| !sound.announced.is_empty())
    }
}

impl Host<'_> {
    fn sound(&mut self, index: usize) -> &mut Sound {
        self.clients[index].sound.as_mut().expect("it is one")
    }

    pub(super) fn sound_request(&mut self, index: usize) -> Request {
        let (number, call) = (self.clients[index].requests, self.sound_call(index));
        let sound = self.sound(index);
        match call {
            Call::Read { .. } => _ = sound.reads.insert(number),
            // Another client decides when it is answered.
            Call::Lock { .. } => {}
            _ => _ = sound.owed.insert(number),
        }
        let frames_before = match call {
            Call::Open { .. } | Call::View { .. } | Call::Lock { .. } => 0,
            _ => self.clients[index].sent.len() as u64,
        };
        Request { number, frames_before, call }
    }

    fn sound_call(&mut self, index: usize) -> Call {
        let kind = self.choices.below(14);
        let Sound { files, views, announced, reads, .. } = self.sound(index);
        let (files, views, is_bare) = (files.clone(), views.clone(), announced.is_empty());
        let may_read = reads.len() < CLIENT_READS_MAX as usize;
        let file = self.choices.place_in(files.len()).map(|place| files[place]);
        let Some(file) = file else { return self.sound(index).open() };
        let view = self.choices.place_in(views.len()).map(|place| views[place].0);
        let Some(view) = view else { return self.sound_view(index, file) };
        let position = self.choices.below(256).into();
        match kind {
            0 if files.len() < FILES_MAX => self.sound(index).open(),
            1 | 2 if views.len() < VIEWS_MAX => self.sound_view(index, file),
            3 if is_bare => self.sound(index).forget(view),
            4 if is_bare => self.sound(index).close(file),
            6 => Call::SetSize { file, size: position },
            7 => {
                let kinds = [LockKind::Shared, LockKind::Exclusive];
                Call::Lock { file, kind: self.choices.one_of(&kinds) }
            }
            8 => Call::Flush { file },
            9 => Call::End { view },
            5 | 10 => {
                let (write, length) = (self.sound(index).next_write(), self.length());
                let unsent = Unsent { write, view, position, length };
                self.sound(index).announced.push(unsent);
                Call::Fence { unsent: vec![unsent] }
            }
            11.. if may_read => Call::Read { view, position, length: self.length() },
            _ => Call::Size { file },
        }
    }

    fn sound_view(&mut self, index: usize, file: FileNumber) -> Call {
        let displacement = self.choices.below(256).into();
        let filetype = self.sound_filetype();
        let view = self.sound(index).next_view(file);
        Call::View { view, file, displacement, filetype }
    }

    /// A write that was announced, or a new one.
    pub(super) fn sound_block(&mut self, index: usize) -> Option<Block> {
        let announced = self.sound(index).announced.len();
        let place = self.choices.place_in(announced).filter(|_| !self.choices.is_one_in(4));
        let is_announced = place.is_some();
        let unsent = match place {
            Some(place) => self.sound(index).announced.swap_remove(place),
            None => {
                let views = self.sound(index).views.clone();
                let (view, _) = views[self.choices.place_in(views.len())?];
                let (position, length) = (self.choices.below(256).into(), self.length());
                Unsent { write: self.sound(index).next_write(), view, position, length }
            }
        };
        let Unsent { write, view, position: offset, length } = unsent;
        let entry = FrameOf { view, write, is_announced }.entry();
        Some(Block { entry, offset, length })
    }

    /// At the end, a sound client sends all that it has promised.
    pub(super) fn send_all(&mut self, index: usize) {
        let has_any = |it: &Client| it.unsent() > 0 || it.has_announced() && it.room > 0;
        while self.clients[index].may_talk() && has_any(&self.clients[index]) {
            let (number, done) = (self.clients[index].number, self.send(index));
            self.end_at_breach(number, done);
            self.begin();
        }
    }

    /// At the end, nothing is left of what a sound client has said, unless another one that is
    /// there has not done what it promised.
    pub(super) fn check_sound(&self) {
        let is_done = |it: &Client| it.is_over || it.sound.is_some();
        if !self.clients.iter().all(is_done) {
            return;
        }
        for client in self.clients.iter().filter(|client| !client.is_over) {
            let owed = client.sound.iter().flat_map(|it| &it.owed).collect::<Vec<_>>();
            assert!(owed.is_empty(), "requests {owed:?} are never answered");
            assert!(client.here.is_empty() && client.unsent() == 0 && !client.has_announced());
        }
    }
}
