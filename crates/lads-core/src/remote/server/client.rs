//! What a server knows of one client.

use super::super::extent::Extent;
use super::super::locks::FileId;
use super::super::message::{
    CLIENT_READS_MAX, Call, FRAME_BYTES, Failure, FileNumber, Outcome, Request, Ticket, ToClient,
    Unsent, VERSION, ViewNumber, Written,
};
use super::super::order::{Breach, Order};
use super::super::policy::REPLIES_MAX;
use super::super::replies::Replies;
use super::super::writes::{Access, Writes};
use super::returning::{Known, Return};
use super::{Act, Task};
use crate::frame::{Header, Row};
use crate::issue::Operation;
use crate::room::{Grants, Uses};
use crate::tuning::Tuning;
use crate::units::{Instant, OstId};
use crate::view::{Datatype, View};
use std::collections::{HashMap, VecDeque};

/// The only "OST" of the grants of a client: it does not know the OSTs of its files.
const ALL: OstId = OstId(0);

/// A client that is connected, or was and has something that is being done.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) order: Order,
    pub(super) replies: Replies,
    pub(super) files: HashMap<FileNumber, Opened>,
    /// Requests that have come and whose turn has not.
    pub(super) requests: VecDeque<Request>,
    /// The files that it had open before the server was started again.
    pub(super) known: Known,
    pub(super) returns: Return,
    /// The file that is being opened.
    pub(super) opening: Option<(FileNumber, [u8; 16])>,
    /// Requests that wait, or whose task is not done.
    pub(super) later: HashMap<u64, Later>,
    /// Tasks that nobody has taken.
    pub(super) tasks: VecDeque<Task>,
    /// Tasks that were taken and are not done.
    running: u32,
    /// Reads among these whose bytes are being sent.
    sending: u32,
    /// The files of frames that are here and not being written.
    pub(super) placed: HashMap<u64, FileNumber>,
    /// Frames that are here, and those of them that are being written.
    frames: usize,
    started: usize,
    /// Reads that are not answered.
    pub(super) reads: u32,
    grants: Grants,
    pub(super) ticket: Option<Ticket>,
    /// Its connection is broken since then.
    pub(super) away_since: Option<Instant>,
    /// When its connection ends, it does not connect again.
    pub(super) is_leaving: bool,
    /// When it sent something last, or something was done for it.
    pub(super) active_at: Instant,
    pub(super) is_over: bool,
}

/// A file that a client has open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) id: FileId,
    pub(super) group: [u8; 16],
}

/// A request that is not answered at once.
#[derive(Debug)]
pub(super) struct Later {
    pub(super) call: Call,
    file: FileNumber,
    /// `None` if the file could not be opened.
    pub(super) opened: Option<Opened>,
    /// Why the file cannot be used.
    pub(super) failure: Option<Failure>,
    /// What is read, or the view whose end is asked for.
    extent: Option<Extent>,
}

impl Later {
    pub(super) fn is_read(&self) -> bool {
        matches!(self.call, Call::Read { .. })
    }

    /// The file, if it is being closed.
    pub(super) fn closing(self) -> Option<(FileNumber, Opened)> {
        match self.call {
            Call::Close { file } => Some((file, self.opened?)),
            _ => None,
        }
    }

    /// The position of the view at the end of a file with this length.
    pub(super) fn position_at(&self, size: u64) -> Outcome {
        let position = self.extent.as_ref().map(|it| it.view().position_at(size));
        match position {
            Some(Ok(position)) => Outcome::Number(position),
            _ => Outcome::Failed(Failure { operation: Operation::Examine, errno: TOO_LARGE }),
        }
    }

    /// What is to be done when its turn has come.
    fn act(&self) -> Option<Act> {
        Some(match &self.call {
            Call::Read { .. } => Act::Read { file: self.file, extent: self.extent.clone()? },
            Call::Sync { file } => Act::Sync(*file),
            Call::Close { file } => Act::Close { file: *file, is_usable: self.failure.is_none() },
            Call::Size { file } => Act::Size(*file),
            Call::End { .. } => Act::Size(self.file),
            Call::SetSize { file, size } => Act::SetSize(*file, *size),
            Call::Preallocate { file, size } => Act::Preallocate(*file, *size),
            _ => return None,
        })
    }
}

impl Client {
    pub(super) fn new(name: String, frames_max: u32, ticket: Option<Ticket>, now: Instant) -> Self {
        let all = [Uses { in_flight_max: frames_max, is_track: false }];
        let mut replies = Replies::default();
        replies.add_first(ToClient::Hello { version: VERSION, name });
        if let Some(ticket) = ticket {
            replies.keep();
            replies.add_first(ToClient::Ticket(ticket));
        }
        Self {
            order: Order::default(),
            replies,
            files: HashMap::new(),
            known: Known::new(),
            returns: Return::default(),
            requests: VecDeque::new(),
            opening: None,
            later: HashMap::new(),
            tasks: VecDeque::new(),
            running: 0,
            sending: 0,
            placed: HashMap::new(),
            frames: 0,
            started: 0,
            reads: 0,
            grants: Grants::new(frames_max, &Tuning::DEFAULT, all.into_iter(), false),
            ticket,
            away_since: None,
            is_leaving: false,
            active_at: now,
            is_over: false,
        }
    }

    /// Bounded, like the other lists of requests: a request may be as long as the largest filetype.
    pub(super) fn has_room_for_message(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn on_arrival(&mut self, header: &Header) -> bool {
        header.sink_ost == ALL && self.grants.on_arrival(ALL, header.is_last_grant)
    }

    pub(super) fn on_frame(&mut self, rows: &[Row]) -> Result<u64, Breach> {
        self.grants.on_arrived(ALL);
        let frame = self.order.on_frame(rows)?;
        self.frames += 1;
        Ok(frame)
    }

    pub(super) fn on_frame_lost(&mut self) {
        self.grants.on_lost(ALL);
    }

    /// A frame is being written from now on. Returns its file; `None` if it is not here.
    pub(super) fn start(&mut self, frame: u64) -> Option<FileNumber> {
        let file = self.placed.remove(&frame)?;
        self.started += 1;
        Some(file)
    }

    /// A frame that was started is written, or could not be.
    pub(super) fn on_written(&mut self, written: Written) {
        self.started -= 1;
        self.give_back(Some(written));
    }

    /// The bytes of a frame are not here any more. The client is told what has become of it, unless
    /// it sends it again.
    pub(super) fn give_back(&mut self, written: Option<Written>) {
        self.frames -= 1;
        self.grants.on_release(ALL);
        if let Some(written) = written {
            self.replies.add_written(written);
        }
    }

    /// Whether it shows this when it connects again.
    pub(super) fn has_ticket(&self, ticket: Ticket) -> bool {
        !self.is_over && self.ticket == Some(ticket)
    }

    /// Whether it can connect again and find everything.
    pub(super) fn may_return(&self) -> bool {
        self.replies.is_kept() && !self.is_leaving && self.returns != Return::Begun
    }

    /// Whether it has no connection, and frames that are here.
    pub(super) fn has_memory(&self) -> bool {
        self.frames > 0 && (self.is_over || self.away_since.is_some())
    }

    /// Its connection is broken, and it may connect again. Then it asks again for what it has not
    /// read, and sends again the frames that are here and whose place is not known: nothing of it
    /// takes memory for bytes meanwhile. Returns these frames.
    pub(super) fn begin_absence(&mut self, now: Instant) -> Vec<u64> {
        self.away_since = Some(now);
        self.requests.retain(|it| !matches!(it.call, Call::Read { .. }));
        self.later.retain(|_, later| !later.is_read());
        self.tasks.retain(|task| !matches!(task.act, Act::Read { .. }));
        self.reads = 0;
        self.running -= std::mem::take(&mut self.sending);
        let coming = self.order.take_coming();
        self.frames -= coming.len();
        coming.iter().for_each(|_| self.grants.on_dropped(ALL));
        coming
    }

    /// It is connected again, and has heard as many counted messages. Returns whether it can have.
    pub(super) fn end_absence(&mut self, name: String, heard: u64, now: Instant) -> bool {
        (self.away_since, self.active_at) = (None, now);
        let can_have = self.replies.begin_again(heard);
        let (requests, frames) = self.order.come();
        self.replies.add_first(ToClient::Hello { version: VERSION, name });
        self.replies.add_first(ToClient::Resumed { requests, frames });
        can_have
    }

    /// It is gone. Returns frames that are here and will not be written.
    pub(super) fn end(&mut self) -> Vec<u64> {
        self.is_over = true;
        self.requests.clear();
        self.tasks.clear();
        self.running -= std::mem::take(&mut self.sending);
        let coming = self.order.take_coming();
        self.frames -= coming.len();
        coming
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_over && self.placed.is_empty() && !self.is_busy()
    }

    /// Whether something is being done for it.
    pub(super) fn is_busy(&self) -> bool {
        self.running > 0 || self.started > 0
    }

    /// The next request, if its turn has come.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        let is_full = self.replies.is_full()
            || self.later.len() >= REPLIES_MAX
            || self.tasks.len() >= REPLIES_MAX;
        if self.opening.is_some() || is_full {
            return None;
        }
        let Self { requests, order, frames, .. } = self;
        let is_writing = *frames > order.coming_count();
        requests.pop_front_if(|it| order.is_ready(it.frames_before, &it.call, is_writing))
    }

    pub(super) fn next_task(&mut self) -> Option<Task> {
        let task = self.tasks.pop_front()?;
        self.running += 1;
        Some(task)
    }

    pub(super) fn on_task_done(&mut self, now: Instant) {
        self.running -= 1;
        self.active_at = now;
    }

    pub(super) fn has_messages(&self) -> bool {
        !self.replies.is_empty() || self.is_granted() && self.grants.has_new()
    }

    /// Whether it may send frames. A client that returns says first what their numbers are.
    fn is_granted(&self) -> bool {
        self.returns != Return::Begun
    }

    pub(super) fn next_messages(&mut self) -> Vec<ToClient> {
        // With one OST, there is a buffer for each of its grants.
        let lot = self.is_granted().then(|| self.grants.take_new());
        lot.into_iter()
            .flat_map(|lot| lot.osts)
            .for_each(|(_, count)| self.replies.add(ToClient::Grant(count)));
        self.replies.take()
    }

    pub(super) fn reply(&mut self, number: u64, outcome: Outcome) {
        self.replies.add(ToClient::Reply { number, outcome });
    }

    /// Answers a request that has waited.
    pub(super) fn answer_later(&mut self, request: u64, outcome: Outcome) {
        let Some(later) = self.later.remove(&request) else { return };
        self.reads -= u32::from(later.is_read());
        self.reply(request, outcome);
    }

    /// How many bytes a read returns that found `count` before the end of the file. It has waited
    /// for all writes of its bytes; others may make the file longer.
    pub(super) fn count_before_end(&self, request: u64, count: u32, writes: &Writes) -> u32 {
        let later = self.later.get(&request);
        let read = later.and_then(|it| Some((it.extent.as_ref()?, it.opened?)));
        let Some((extent, opened)) = read else { return count };
        let positions = extent.positions();
        let found = positions.start + u64::from(count);
        if found >= positions.end {
            return count;
        }
        let end = extent.view().position_at(writes.end_of(opened.id)).unwrap_or(positions.end);
        let end = end.clamp(found, positions.end);
        u32::try_from(end - positions.start).expect("a read is shorter")
    }

    /// The bytes of a read are to be sent, unless the connection broke meanwhile. Returns whether
    /// they are.
    pub(super) fn begin_sending(&mut self, request: u64) -> bool {
        let is_asked = !self.is_over && self.later.contains_key(&request);
        self.sending += u32::from(is_asked);
        is_asked
    }

    /// The bytes of a read are sent, or the connection broke.
    pub(super) fn end_sending(&mut self, request: u64, length: u32) {
        if !self.later.contains_key(&request) {
            return;
        }
        self.sending -= 1;
        self.end_read(request, Outcome::Number(length.into()));
    }

    /// A read was taken, and is done.
    pub(super) fn end_read(&mut self, request: u64, outcome: Outcome) {
        self.running -= 1;
        self.answer_later(request, outcome);
    }

    /// A request that has waited is executed.
    pub(super) fn push_task(&mut self, request: u64) {
        let act = self.later.get(&request).and_then(Later::act);
        self.tasks.extend(act.map(|act| Task { request, act }));
    }

    /// A file that can be used.
    pub(super) fn usable(&self, file: FileNumber) -> Result<Result<Opened, Failure>, Breach> {
        if let Some(failure) = self.order.failure_of(file)? {
            return Ok(Err(failure));
        }
        self.files.get(&file).copied().map(Ok).ok_or(Breach::Unknown)
    }

    pub(super) fn set_view(
        &mut self,
        view: ViewNumber,
        file: FileNumber,
        displacement: u64,
        filetype: &[u8],
    ) -> Result<Outcome, Breach> {
        let made = Datatype::take(filetype).and_then(|it| View::new(displacement, &it));
        let failure = self.order.set_view(view, file, filetype.len(), made.map_err(|_| NO_VIEW))?;
        Ok(failure.map_or(Outcome::Done, Outcome::Failed))
    }

    /// Where a write goes that was not sent; `None` if its file could not be opened.
    pub(super) fn unsent(&self, it: Unsent) -> Result<Option<(FileId, Extent)>, Breach> {
        let (file, extent) = self.extent(it.view, it.position, it.length)?;
        Ok(self.files.get(&file).map(|opened| (opened.id, extent)))
    }

    /// A request that is about data, and the writes that it has to wait for.
    pub(super) fn later(&mut self, call: Call) -> Result<(Later, Access), Breach> {
        let (file, extent, access) = match call {
            Call::Read { view, position, length } => {
                if length > FRAME_BYTES {
                    return Err(Breach::Frame);
                }
                // A client may ask for more as soon as it has the bytes, before it has the answer.
                if self.reads >= 2 * CLIENT_READS_MAX {
                    return Err(Breach::Reads);
                }
                let (file, extent) = self.extent(view, position, length)?;
                (file, Some(extent.clone()), Access::Read(extent))
            }
            Call::End { view } => {
                let (file, extent) = self.extent(view, 0, 0)?;
                (file, Some(extent), Access::Own)
            }
            Call::SetSize { file, size } => (file, None, Access::Cut(size)),
            Call::Sync { file } | Call::Flush { file } | Call::Close { file } => {
                (file, None, Access::Own)
            }
            Call::Size { file } | Call::Preallocate { file, .. } => (file, None, Access::Own),
            Call::Unlock { file } => (file, None, Access::Own),
            _ => return Err(Breach::Request),
        };
        let failure = self.order.failure_of(file)?;
        let mut opened = self.files.get(&file).copied();
        if opened.is_none() && failure.is_none() {
            return Err(Breach::Unknown);
        }
        if matches!(call, Call::Close { .. }) {
            // From here on it has no number.
            self.order.close(file);
            opened = self.files.remove(&file);
        }
        Ok((Later { call, file, opened, failure, extent }, access))
    }

    fn extent(
        &self,
        view: ViewNumber,
        position: u64,
        length: u32,
    ) -> Result<(FileNumber, Extent), Breach> {
        let (file, view) = self.order.view(view)?;
        let end = position.saturating_add(length.into());
        Ok((file, Extent::new(view, position..end)))
    }
}

/// Linux's `EFBIG`.
const TOO_LARGE: i32 = 27;

/// A filetype that is none: `EINVAL`.
const NO_VIEW: Failure = Failure { operation: Operation::Examine, errno: 22 };
