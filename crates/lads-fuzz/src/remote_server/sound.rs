//! A client that keeps to the protocol: it is never refused, and all that it says is done.

use super::{Client, Host, Phase};
use lads_core::remote::message::{
    CLIENT_READS_MAX, Call, FileNumber, FrameOf, LockKind, Outcome, Request, Unsent, ViewNumber,
    WriteNumber, Written,
};
use lads_core::units::Block;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

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
    pub(super) announced: Vec<Unsent>,
    /// Writes that are not done.
    pub(super) writes: BTreeMap<WriteNumber, Write>,
    pub(super) fences: Vec<Fence>,
    /// Requests that are not answered.
    pub(super) made: BTreeMap<u64, Request>,
    /// Answered requests for files, views and locks, and those that forgot a view.
    pub(super) standing: BTreeMap<u64, Call>,
    pub(super) forgotten: HashMap<ViewNumber, Request>,
    /// After a restart of the server: what is said before all else, the writes that are sent before
    /// all others, and those that are announced.
    pub(super) returning: VecDeque<Request>,
    pub(super) first: VecDeque<WriteNumber>,
    pub(super) known: BTreeSet<WriteNumber>,
    /// Requests that are not answered and must be.
    pub(super) owed: BTreeSet<u64>,
    /// Reads that are not answered and may be.
    pub(super) reads: BTreeSet<u64>,
}

/// A write that is not done.
pub(super) struct Write {
    pub(super) unsent: Unsent,
    /// If it was sent: the numbers of the first frame at this server, and of the last.
    pub(super) number: Option<u64>,
    last: Option<u64>,
}

/// A fence, and the last write that it covers.
pub(super) struct Fence {
    pub(super) number: u64,
    pub(super) last: WriteNumber,
    /// What it was answered with.
    pub(super) answer: Option<u64>,
}

impl Sound {
    fn open(&mut self) -> Call {
        let file = FileNumber(self.files_so_far);
        self.files_so_far += 1;
        self.files.push(file);
        super::open(file)
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

    fn next_write(&mut self, view: ViewNumber, position: u64, length: u32) -> Unsent {
        self.writes_so_far += 1;
        let write = WriteNumber(self.writes_so_far);
        let unsent = Unsent { write, view, position, length };
        self.writes.insert(write, Write { unsent, number: None, last: None });
        unsent
    }

    /// These frames are written, or cannot be.
    pub(super) fn on_written(&mut self, frames: &[u64]) {
        self.writes.retain(|_, it| it.last.is_none_or(|number| !frames.contains(&number)));
    }

    /// A write is sent in the frame with this number.
    fn on_sent(&mut self, write: WriteNumber, number: u64) {
        if let Some(write) = self.writes.get_mut(&write) {
            write.number.get_or_insert(number);
            write.last = Some(number);
        }
    }

    /// Whether a request through a view is not answered.
    fn uses(&self, view: ViewNumber) -> bool {
        let is_of = |call: &Call| match call {
            Call::End { view: of } | Call::Read { view: of, .. } => *of == view,
            _ => false,
        };
        self.made.values().any(|it| is_of(&it.call))
    }

    /// Whether the answer to a request could be another one if a file was closed now.
    fn awaits(&self) -> bool {
        let is_of_file = |it: &Request| {
            matches!(it.call, Call::Open { .. } | Call::View { .. } | Call::Forget { .. })
        };
        let is_another = |it: &Request| !matches!(it.call, Call::Fence { .. } | Call::Close { .. });
        self.made.values().any(|it| !is_of_file(it) && is_another(it))
    }

    pub(super) fn returning_count(&self) -> usize {
        self.returning.len()
    }
}

impl Client {
    pub(super) fn on_reply(&mut self, number: u64, outcome: Outcome) {
        let Some(sound) = &mut self.sound else { return };
        sound.owed.remove(&number);
        sound.reads.remove(&number);
        sound.on_answered(number, outcome);
    }

    pub(super) fn on_written(&mut self, written: &[Written]) {
        let frames: Vec<_> = written.iter().map(|it| it.frame).collect();
        self.sound.iter_mut().for_each(|sound| sound.on_written(&frames));
    }

    /// The server has forgotten its reads.
    pub(super) fn on_resumed(&mut self) {
        let Some(sound) = &mut self.sound else { return };
        sound.reads.clear();
        sound.made.retain(|_, it| !matches!(it.call, Call::Read { .. }));
    }

    /// A frame was refused: its write counts as announced.
    pub(super) fn on_again(&mut self, frame: u64) {
        let Some(sound) = &mut self.sound else { return };
        let frame = usize::try_from(frame - self.first_frame).expect("inputs are short");
        let Block { entry, offset, length } = self.sent[frame].block;
        let FrameOf { view, write, .. } = FrameOf::of_entry(entry);
        sound.announced.push(Unsent { write, view, position: offset, length });
    }

    fn has_announced(&self) -> bool {
        let is_any = |it: &Sound| !it.announced.is_empty() || !it.first.is_empty();
        self.sound.as_ref().is_some_and(is_any)
    }
}

impl Host<'_> {
    fn sound(&mut self, index: usize) -> &mut Sound {
        self.clients[index].sound.as_mut().expect("it is one")
    }

    pub(super) fn sound_request(&mut self, index: usize) -> Request {
        if let Some(request) = self.sound(index).next_returning() {
            return request;
        }
        let (number, call) = (self.clients[index].next, self.sound_call(index));
        let sound = self.sound(index);
        match call {
            Call::Read { .. } => _ = sound.reads.insert(number),
            // Another client decides when it is answered.
            Call::Lock { .. } => {}
            _ => _ = sound.owed.insert(number),
        }
        let frames_before = match call {
            Call::Open { .. } | Call::View { .. } | Call::Lock { .. } => 0,
            _ => self.next_frame(index),
        };
        let request = Request { number, frames_before, call };
        let sound = self.sound(index);
        if let Call::Fence { .. } = &request.call {
            let last = WriteNumber(sound.writes_so_far);
            sound.fences.push(Fence { number, last, answer: None });
        }
        sound.made.insert(number, request.clone());
        request
    }

    /// The number of the next frame that was never sent.
    fn next_frame(&mut self, index: usize) -> u64 {
        let first = self.sound(index).first.len() as u64;
        self.clients[index].first_frame + self.clients[index].sent.len() as u64 + first
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
            3 if is_bare && !self.sound(index).uses(view) => self.sound(index).forget(view),
            4 if is_bare && !self.sound(index).awaits() => self.sound(index).close(file),
            6 => Call::SetSize { file, size: position },
            7 => {
                let kinds = [LockKind::Shared, LockKind::Exclusive];
                Call::Lock { file, kind: self.choices.one_of(&kinds) }
            }
            8 => Call::Flush { file },
            9 => Call::End { view },
            5 | 10 => {
                let length = self.length();
                let unsent = self.sound(index).next_write(view, position, length);
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
        let Client { first_frame, ref sent, .. } = self.clients[index];
        let number = first_frame + sent.len() as u64;
        let first = self.sound(index).next_first();
        let block = match first {
            Some(first) => first,
            None => self.other_block(index)?,
        };
        let write = FrameOf::of_entry(block.entry).write;
        self.sound(index).on_sent(write, number);
        Some(block)
    }

    fn other_block(&mut self, index: usize) -> Option<Block> {
        let announced = self.sound(index).announced.len();
        let place = self.choices.place_in(announced).filter(|_| !self.choices.is_one_in(4));
        let is_announced = place.is_some();
        let unsent = match place {
            Some(place) => self.sound(index).announced.swap_remove(place),
            None => {
                let views = self.sound(index).views.clone();
                let (view, _) = views[self.choices.place_in(views.len())?];
                let (position, length) = (self.choices.below(256).into(), self.length());
                self.sound(index).next_write(view, position, length)
            }
        };
        let Unsent { write, view, position: offset, length } = unsent;
        let entry = FrameOf { view, write, is_announced }.entry();
        Some(Block { entry, offset, length })
    }

    /// At the end, a sound client sends all that it has promised.
    pub(super) fn send_all(&mut self, index: usize) {
        let is_returning = |it: &Client| it.sound.iter().any(|it| it.returning_count() > 0);
        let number = self.clients[index].number;
        while self.clients[index].may_talk()
            && is_returning(&self.clients[index])
            && self.server.has_room_for_message(number)
        {
            let asked = self.ask(index);
            self.end_at_breach(number, asked);
            self.begin();
        }
        if self.clients[index].phase != Phase::Here {
            return;
        }
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
            assert!(client.phase == Phase::Here, "it has not returned");
            assert!(client.sound.iter().all(|it| it.returning_count() == 0), "it has more to say");
            assert!(client.here.is_empty() && client.unsent() == 0 && !client.has_announced());
        }
    }
}
