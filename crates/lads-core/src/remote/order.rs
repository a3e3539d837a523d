//! In which order a server does what one client asks for.
//!
//! A client's requests are done one after the other, in the order of their numbers; the requests of
//! other clients are not waited for (the RFS paper, section 3.3). Frames are written as they come,
//! several at a time. A request waits until all frames that were sent before it have come and their
//! place in the file is known. Which writes it waits for then, and which writes wait for each
//! other, is decided for all clients together ([`super::writes`]).
//!
//! Messages and frames overtake each other on the way: a frame may come before its view or its
//! announcement. Then it waits for them, and so do all later frames of the client, which may have
//! bytes in common with it. For the same reason, a client sends nothing that could change the
//! answer to a request before it has the answer.

use super::extent::Extent;
use super::message::{Call, Failure, FileNumber, FrameOf, ViewNumber, WriteNumber};
use crate::frame::Row;
use crate::limits::{CLIENT_FILES_MAX, CLIENT_FILETYPES_BYTES_MAX, CLIENT_VIEWS_MAX};
use crate::view::View;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};
use thiserror::Error;

/// How a client breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Breach {
    /// A request does not have the next number, or must not come now.
    #[error("a request out of order")]
    Request,
    /// A frame is not one piece of a view.
    #[error("a frame that is not one piece of a view")]
    Frame,
    /// A number is in use already, or there are too many.
    #[error("a number that is in use, or too many files or views")]
    Number,
    /// There is no such file or view.
    #[error("a file or a view that does not exist")]
    Unknown,
    /// More reads than a client may have at a time.
    #[error("too many reads at a time")]
    Reads,
}

/// A frame whose place is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The number of frames that came before it.
    pub frame: u64,
    /// The file.
    pub file: FileNumber,
    /// The write.
    pub write: WriteNumber,
    /// Whether the client had announced it.
    pub is_announced: bool,
    /// Where its bytes belong.
    pub extent: Extent,
    /// Why it cannot be written, if it cannot.
    pub failure: Option<Failure>,
}

/// What one client has asked for, and what has become of it.
#[derive(Debug, Default)]
pub struct Order {
    files: HashMap<FileNumber, File>,
    views: HashMap<ViewNumber, Seen<Arc<View>>>,
    /// Views that were forgotten while writes still needed them: they take memory, too, and refused
    /// frames come again.
    forgotten: HashMap<ViewNumber, Seen<Weak<View>>>,
    /// The number of the next request.
    requests: u64,
    /// Whether it may be a larger one.
    skips: bool,
    /// The number of the next frame.
    frames: u64,
    /// Of these, those whose place was not taken yet.
    coming: VecDeque<Frame>,
}

/// A view that is set, or was.
#[derive(Clone, Debug)]
struct Seen<V> {
    file: FileNumber,
    view: V,
    /// The bytes of its filetype as it travelled.
    bytes: usize,
    /// Why nothing can be written through it.
    failure: Option<Failure>,
}

impl<V> Seen<V> {
    fn with<W>(&self, view: W) -> Seen<W> {
        Seen { file: self.file, view, bytes: self.bytes, failure: self.failure }
    }
}

#[derive(Debug, Default)]
struct File {
    /// Why it cannot be used.
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Frame {
    number: u64,
    of: FrameOf,
    positions: Range<u64>,
    /// Its view, if that is known: the client may forget it.
    seen: Option<Seen<Arc<View>>>,
}

impl Order {
    /// A request comes.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub fn on_request(&mut self, number: u64) -> Result<(), Breach> {
        if number != self.requests && !(self.skips && number > self.requests) {
            return Err(Breach::Request);
        }
        self.requests = number.checked_add(1).ok_or(Breach::Request)?;
        Ok(())
    }

    /// Numbers of requests are left out from now on: the server was started again, and these were
    /// done before.
    pub fn begin_to_skip(&mut self) {
        self.skips = true;
    }

    /// The files and views are there that the client had at the server before that was started
    /// again. The requests that follow begin with any number, the frames with this one.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub fn begin_again(&mut self, frames: u64) -> Result<(), Breach> {
        if frames > u64::MAX / 2 {
            return Err(Breach::Number);
        }
        (self.requests, self.frames) = (0, frames);
        Ok(())
    }

    /// Reports whether all that was sent before a request has come. `frames_before` is the number
    /// in the request; `is_writing` tells whether frames that were placed are not written.
    #[must_use]
    pub fn is_ready(&self, frames_before: u64, call: &Call, is_writing: bool) -> bool {
        let is_coming = || self.coming.front().is_some_and(|it| it.number < frames_before);
        match call {
            _ if self.frames < frames_before => false,
            Call::Open { .. } | Call::Forget { .. } | Call::Lock { .. } => true,
            Call::AddShared { .. } | Call::SetShared { .. } | Call::Return { .. } => true,
            // Views that were forgotten make room when their frames are written.
            Call::View { filetype, .. } => self.has_room_for(filetype.len()) || !is_writing,
            _ => !is_coming(),
        }
    }

    /// A file is opened, or cannot be.
    ///
    /// # Errors
    /// If the number is in use, or there are too many.
    pub fn open(&mut self, file: FileNumber, failure: Option<Failure>) -> Result<(), Breach> {
        if self.files.len() >= CLIENT_FILES_MAX || self.files.contains_key(&file) {
            return Err(Breach::Number);
        }
        self.files.insert(file, File { failure });
        Ok(())
    }

    /// A file is closed; its views are forgotten.
    pub fn close(&mut self, file: FileNumber) {
        self.find_views();
        self.files.remove(&file);
        let views = self.views.extract_if(|_, seen| seen.file == file);
        self.forgotten
            .extend(views.map(|(view, seen)| (view, seen.with(Arc::downgrade(&seen.view)))));
        self.forgotten.retain(|_, seen| seen.view.strong_count() > 0);
    }

    /// Why a file cannot be used; `None` if it can.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn failure_of(&self, file: FileNumber) -> Result<Option<Failure>, Breach> {
        self.files.get(&file).map(|it| it.failure).ok_or(Breach::Unknown)
    }

    /// A view is set; its encoded filetype has this many bytes. If it is invalid, or too large, the
    /// reason is returned, and the file cannot be used any more: frames of the view may be in
    /// flight. Writes through earlier views continue.
    ///
    /// # Errors
    /// If the number is in use, there are too many, or there is no such file.
    pub fn set_view(
        &mut self,
        number: ViewNumber,
        file: FileNumber,
        bytes: usize,
        view: Result<View, Failure>,
    ) -> Result<Option<Failure>, Breach> {
        if self.views.len() >= CLIENT_VIEWS_MAX || self.views.contains_key(&number) {
            return Err(Breach::Number);
        }
        let has_room = self.has_room_for(bytes);
        let of = self.files.get_mut(&file).ok_or(Breach::Unknown)?;
        let view = view.and_then(|view| if has_room { Ok(view) } else { Err(NO_ROOM) });
        let failure = view.as_ref().err().copied();
        of.failure = of.failure.or(failure);
        let bytes = if failure.is_some() { 0 } else { bytes };
        let view = Arc::new(view.unwrap_or_else(|_| View::whole()));
        self.views.insert(number, Seen { file, view, bytes, failure: of.failure });
        Ok(failure)
    }

    /// A view is not needed any more.
    pub fn forget(&mut self, view: ViewNumber) {
        self.find_views();
        let gone = self.views.remove(&view);
        self.forgotten.extend(gone.map(|seen| (view, seen.with(Arc::downgrade(&seen.view)))));
        self.forgotten.retain(|_, seen| seen.view.strong_count() > 0);
    }

    /// The view with this number, and its file.
    ///
    /// # Errors
    /// If there is none.
    pub fn view(&self, view: ViewNumber) -> Result<(FileNumber, Arc<View>), Breach> {
        let seen = self.views.get(&view).ok_or(Breach::Unknown)?;
        Ok((seen.file, Arc::clone(&seen.view)))
    }

    /// A frame has come. Returns its number.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub fn on_frame(&mut self, rows: &[Row]) -> Result<u64, Breach> {
        let [row] = rows else { return Err(Breach::Frame) };
        let of = FrameOf::of_entry(row.block.entry);
        let positions = row.block.offset..row.block.end();
        let number = self.frames;
        self.frames += 1;
        self.coming.push_back(Frame { number, of, positions, seen: None });
        Ok(number)
    }

    /// The next frame whose place is known, in the order in which they came. `is_expected` tells
    /// whether the announcement of an announced one is here. A frame that was refused is expected,
    /// and is written even if the client has asked for its file to be closed meanwhile: the close
    /// waits for it.
    pub fn next_placed(&mut self, is_expected: impl Fn(WriteNumber) -> bool) -> Option<Placed> {
        self.find_views();
        let Self { files, coming, .. } = self;
        let is_expected = |of: &FrameOf| of.is_announced && is_expected(of.write);
        let failure_of = |of: &FrameOf, seen: &Seen<Arc<View>>| {
            let is_closed = !files.contains_key(&seen.file) && !is_expected(of);
            is_closed.then_some(CLOSED).or(seen.failure)
        };
        let is_known = |it: &mut Frame| {
            let is_due = |seen: &Seen<Arc<View>>| {
                let is_failed = failure_of(&it.of, seen).is_some();
                !it.of.is_announced || is_failed || is_expected(&it.of)
            };
            it.seen.as_ref().is_some_and(is_due)
        };
        let Frame { number: frame, of, positions, seen } = coming.pop_front_if(is_known)?;
        let FrameOf { write, is_announced, .. } = of;
        let seen = seen?;
        let failure = failure_of(&of, &seen);
        let extent = Extent::new(seen.view, positions);
        let failure = failure.or_else(|| extent.reach().is_empty().then_some(BEYOND));
        Some(Placed { frame, file: seen.file, write, is_announced, extent, failure })
    }

    /// The number of frames that are here and not placed.
    #[must_use]
    pub fn coming_count(&self) -> usize {
        self.coming.len()
    }

    /// Takes the numbers of these frames, which will not be placed: they are the last that have
    /// come. They count as not come.
    pub fn take_coming(&mut self) -> Vec<u64> {
        self.frames -= self.coming.len() as u64;
        self.coming.drain(..).map(|frame| frame.number).collect()
    }

    /// The numbers of the next request and the next frame.
    #[must_use]
    pub fn come(&self) -> (u64, u64) {
        (self.requests, self.frames)
    }

    /// Whether one more filetype may be kept, of this many bytes.
    fn has_room_for(&self, bytes: usize) -> bool {
        let known = self.views.values().map(|seen| seen.bytes);
        let forgotten = self.forgotten.values().filter(|seen| seen.view.strong_count() > 0);
        let all = known.chain(forgotten.map(|seen| seen.bytes));
        all.sum::<usize>() + bytes <= CLIENT_FILETYPES_BYTES_MAX
    }

    /// Finds the views of frames that have become known.
    fn find_views(&mut self) {
        let Self { views, forgotten, coming, .. } = self;
        let remembered = |view: &ViewNumber| {
            let seen = forgotten.get(view)?;
            Some(seen.with(seen.view.upgrade()?))
        };
        for frame in coming.iter_mut().filter(|frame| frame.seen.is_none()) {
            let view = &frame.of.view;
            frame.seen = views.get(view).cloned().or_else(|| remembered(view));
        }
    }
}

/// What a piece for a file that was closed fails with: `EBADF`.
const CLOSED: Failure = Failure { operation: crate::issue::Operation::Write, errno: 9 };

/// What a piece beyond the largest file fails with: `EFBIG`.
const BEYOND: Failure = Failure { operation: crate::issue::Operation::Write, errno: 27 };

/// What a view fails with whose filetype is one too many: `ENOMEM`.
const NO_ROOM: Failure = Failure { operation: crate::issue::Operation::Examine, errno: 12 };

#[cfg(test)]
mod tests;
