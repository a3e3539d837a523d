//! In which order a server does what one client asks for.
//!
//! A client's requests are done one after the other, in the order of their numbers; the requests of
//! other clients are not waited for (the RFS paper, section 3.3). Frames are written as they come,
//! several at a time. MPI wants accesses of one process through one file to be as if they followed
//! each other (MPI 4.0, section 14.6.1). So:
//!
//! - A request waits until all frames that were sent before it have come; one that is about data
//!   waits until these frames are written, and one that reads waits until those of them are that
//!   may have bytes of the file in common with what it reads.
//!   Such a read may find a file shorter than an earlier frame makes it, which is written further
//!   behind: a client that is told of an end asks again when all its frames are written.
//! - A frame waits until its view and those of all earlier frames are known, and until earlier
//!   frames are written that may have bytes of the file in common with it.
//!
//! Messages and frames overtake each other on the way: a frame may come before its view. For the
//! same reason, a client sends nothing that could change the answer to a request before it has the
//! answer.

use super::message::{Call, Failure, FileNumber, ViewNumber, Written};
use crate::frame::Row;
use crate::limits::{CLIENT_FILES_MAX, CLIENT_FILETYPES_BYTES_MAX, CLIENT_VIEWS_MAX};
use crate::view::View;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Weak};
use thiserror::Error;

/// How a client breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Breach {
    /// A request does not have the next number.
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
}

/// A frame whose turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The number of frames that came before it.
    pub frame: u64,
    /// The file.
    pub file: FileNumber,
    /// The view.
    pub view: Arc<View>,
    /// The positions of its bytes in the stream of the view.
    pub positions: Range<u64>,
}

/// What one client has asked for, and what has become of it.
#[derive(Debug, Default)]
pub struct Order {
    files: HashMap<FileNumber, File>,
    views: HashMap<ViewNumber, Arc<Seen>>,
    /// Views that were forgotten while frames still needed them: they take memory, too.
    forgotten: Vec<Weak<Seen>>,
    requests: u64,
    /// Frames that have come.
    frames: u64,
    /// Frames that are not written yet.
    open: BTreeMap<u64, Frame>,
}

/// A view that is set.
#[derive(Debug)]
struct Seen {
    file: FileNumber,
    view: Arc<View>,
    /// The bytes of its filetype as it travelled.
    bytes: usize,
    /// Why nothing can be written through it.
    failure: Option<Failure>,
}

#[derive(Debug, Default)]
struct File {
    /// Why it cannot be used.
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Frame {
    view: ViewNumber,
    positions: Range<u64>,
    /// Known when the view is.
    place: Option<Place>,
    is_started: bool,
}

/// Where a frame goes. It keeps its view, which the client may have forgotten.
#[derive(Debug)]
struct Place {
    seen: Arc<Seen>,
    /// The bytes of the file between the first and the last of the frame.
    reach: Range<u64>,
}

impl Order {
    /// A request comes.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub fn on_request(&mut self, number: u64) -> Result<(), Breach> {
        if number != self.requests {
            return Err(Breach::Request);
        }
        self.requests += 1;
        Ok(())
    }

    /// Reports whether a request may be executed now. `frames_before` is the number in the request.
    #[must_use]
    pub fn is_ready(&self, frames_before: u64, call: &Call) -> bool {
        if self.frames < frames_before {
            return false;
        }
        let file = match call {
            Call::Open { .. } | Call::Forget { .. } => return true,
            // Views that were forgotten make room when their frames are written.
            Call::View { filetype, .. } => {
                return self.has_room_for(filetype.len()) || !self.is_writing();
            }
            Call::AddShared { .. } | Call::SetShared { .. } | Call::Lock { .. } => return true,
            Call::Delete { .. } => None,
            Call::Read { view, position, length } => {
                return !self.is_open_in(frames_before, *view, *position, *length);
            }
            Call::End { view } => self.file_of(*view),
            Call::Sync { file } | Call::Flush { file } | Call::Close { file } => Some(*file),
            Call::Size { file } | Call::Unlock { file } => Some(*file),
            Call::SetSize { file, .. } | Call::Preallocate { file, .. } => Some(*file),
        };
        let is_of = |frame: &Frame| match (&frame.place, file) {
            (Some(place), Some(file)) => place.seen.file == file,
            // It may be of any file.
            _ => true,
        };
        !self.open.range(..frames_before).any(|(_, frame)| is_of(frame))
    }

    /// Whether one of the first frames is not written that may have bytes in common with what is to
    /// be read.
    fn is_open_in(&self, frames_before: u64, view: ViewNumber, position: u64, length: u32) -> bool {
        let end = position.saturating_add(length.into());
        let wanted = self.views.get(&view).map(|it| (it.file, it.view.reach(&(position..end))));
        self.open.range(..frames_before).any(|(_, frame)| match (frame.bytes(), &wanted) {
            (Some(bytes), Some(wanted)) => meet(&bytes, wanted),
            // They may be of any file.
            _ => true,
        })
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
        self.find_places();
        self.files.remove(&file);
        let views = self.views.extract_if(|_, seen| seen.file == file);
        self.forgotten.extend(views.map(|(_, seen)| Arc::downgrade(&seen)));
        self.forgotten.retain(|seen| seen.strong_count() > 0);
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
        let seen = Seen { file, view, bytes, failure: of.failure };
        self.views.insert(number, Arc::new(seen));
        Ok(failure)
    }

    /// A view is not needed any more.
    pub fn forget(&mut self, view: ViewNumber) {
        self.find_places();
        self.forgotten.extend(self.views.remove(&view).map(|seen| Arc::downgrade(&seen)));
        self.forgotten.retain(|seen| seen.strong_count() > 0);
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
        let view = ViewNumber::of_entry(row.block.entry).ok_or(Breach::Frame)?;
        let positions = row.block.offset..row.block.end();
        let number = self.frames;
        self.frames += 1;
        self.open.insert(number, Frame { view, positions, place: None, is_started: false });
        Ok(number)
    }

    /// Frames that cannot be written, and why. They are not waited for any more.
    pub fn take_failed(&mut self) -> Vec<Written> {
        self.find_places();
        let mut failed = Vec::new();
        for (number, frame) in self.open.iter().filter(|(_, frame)| !frame.is_started) {
            let Some(Place { seen, reach }) = &frame.place else { continue };
            let closed = (!self.files.contains_key(&seen.file)).then_some(CLOSED);
            let beyond = reach.is_empty().then_some(BEYOND);
            if let Some(failure) = closed.or(seen.failure).or(beyond) {
                failed.push(Written { frame: *number, failure: Some(failure) });
            }
        }
        failed.iter().for_each(|written| drop(self.open.remove(&written.frame)));
        failed
    }

    /// Frames whose turn has come. Those that cannot be written are taken before. A frame whose
    /// view is not known may have any bytes in common with later ones, whose view may be an older
    /// one.
    pub fn take_starts(&mut self) -> Vec<Start> {
        self.find_places();
        // Those that are being written may come later: their views were known first.
        let started = self.open.values().filter(|frame| frame.is_started);
        let mut before: Vec<_> = started.filter_map(Frame::bytes).collect();
        let mut starts = Vec::new();
        for (number, frame) in self.open.iter_mut().filter(|(_, frame)| !frame.is_started) {
            let (Some(bytes), Some(place)) = (frame.bytes(), &frame.place) else { break };
            if !before.iter().any(|other| meet(other, &bytes)) {
                frame.is_started = true;
                let (file, view) = (place.seen.file, Arc::clone(&place.seen.view));
                starts.push(Start {
                    frame: *number,
                    file,
                    view,
                    positions: frame.positions.clone(),
                });
            }
            before.push(bytes);
        }
        starts
    }

    /// A frame is written, or could not be.
    pub fn on_written(&mut self, frame: u64) {
        self.open.remove(&frame);
    }

    /// Reports whether a frame is being written.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.open.values().any(|frame| frame.is_started)
    }

    fn file_of(&self, view: ViewNumber) -> Option<FileNumber> {
        self.views.get(&view).map(|seen| seen.file)
    }

    /// Whether one more filetype may be kept, of this many bytes.
    fn has_room_for(&self, bytes: usize) -> bool {
        let known = self.views.values().map(|seen| seen.bytes);
        let forgotten = self.forgotten.iter().filter_map(Weak::upgrade).map(|seen| seen.bytes);
        known.chain(forgotten).sum::<usize>() + bytes <= CLIENT_FILETYPES_BYTES_MAX
    }

    /// Finds out where frames go whose view has become known.
    fn find_places(&mut self) {
        for frame in self.open.values_mut().filter(|frame| frame.place.is_none()) {
            let Some(seen) = self.views.get(&frame.view) else { continue };
            let reach = seen.view.reach(&frame.positions);
            frame.place = Some(Place { seen: Arc::clone(seen), reach });
        }
    }
}

impl Frame {
    /// Its file, and where in it the first and the last of its bytes lie, if that is known.
    fn bytes(&self) -> Option<(FileNumber, Range<u64>)> {
        let place = self.place.as_ref()?;
        Some((place.seen.file, place.reach.clone()))
    }
}

/// Whether two frames may have bytes in common.
fn meet(one: &(FileNumber, Range<u64>), other: &(FileNumber, Range<u64>)) -> bool {
    one.0 == other.0 && one.1.start < other.1.end && other.1.start < one.1.end
}

/// What a piece for a file that was closed fails with: `EBADF`.
const CLOSED: Failure = Failure { operation: crate::issue::Operation::Write, errno: 9 };

/// What a piece beyond the largest file fails with: `EFBIG`.
const BEYOND: Failure = Failure { operation: crate::issue::Operation::Write, errno: 27 };

/// What a view fails with whose filetype is one too many: `ENOMEM`.
const NO_ROOM: Failure = Failure { operation: crate::issue::Operation::Examine, errno: 12 };

#[cfg(test)]
mod tests;
