//! Requests: which are to be sent, which were sent and are not answered, and which wait until
//! frames are sent.

use super::{After, CallError, Client, Wait};
use crate::remote::message::{
    Call, Failure, FileNumber, OpenMode, Outcome, Request, ToServer, ViewNumber,
};
use crate::remote::reading::ChunkBytes;
use crate::remote::taken::Taken;
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::standing::Standing;
use super::tail::Target;
use crate::remote::reading::Prefetch;

/// The requests of a client.
#[derive(Debug)]
pub(super) struct Requests<R> {
    /// How many were made.
    pub(super) count: u64,
    /// Those that the server may not have, those that are to be sent, and reads whose bytes are not
    /// here.
    made: BTreeMap<u64, Request>,
    /// The number of the next one to be sent.
    sent: u64,
    /// What is sent before all of them, to a server that was started again.
    returning: Vec<ToServer>,
    pub(super) standing: Standing,
    /// Reads that were made again, and the number under which they are known here.
    again: HashMap<u64, u64>,
    /// Whether a heartbeat is to be sent.
    pub(super) is_lively: bool,
    /// Those whose reply a call of the program waits for.
    waited_for: HashMap<u64, Waited<R>>,
    /// Those for which nobody waits, and their files.
    pub(super) deferred: HashMap<u64, FileNumber>,
    /// Those that are made when certain frames are sent.
    pub(super) held: Vec<Held>,
    /// Files whose close was deferred and is not done.
    closing: Vec<Closing>,
    /// Files that were closed before the server was started again, and whose close is not answered.
    /// They are opened and closed once more, which fails if they were deleted then.
    pub(super) closed_before: BTreeSet<FileNumber>,
    /// The first failure of each file that no call has returned.
    pub(super) failures: HashMap<FileNumber, Failure>,
    /// The files and views at the server.
    pub(super) taken: Taken,
    /// How many files and views have a number.
    numbers: u32,
}

/// A request whose reply a call waits for.
#[derive(Debug)]
struct Waited<R> {
    /// Whether other clients decide when it is done.
    is_for_others: bool,
    /// Whether bytes come as well, unless there are none or the request fails.
    is_read: bool,
    outcome: Option<Outcome>,
    bytes: Option<(R, Range<usize>)>,
}

/// A request that is made later.
#[derive(Debug)]
pub(super) struct Held {
    file: FileNumber,
    after: HeldAfter,
    call: Call,
}

#[derive(Debug)]
enum HeldAfter {
    View(ViewNumber),
    Frames(u64),
}

/// A file that is closed later.
#[derive(Debug)]
struct Closing {
    file: FileNumber,
    path: Vec<u8>,
}

/// A reply, and where the bytes are that came with it.
pub(super) type Reply<R> = (Outcome, Option<(R, Range<usize>)>);

impl<R> Default for Requests<R> {
    fn default() -> Self {
        Self {
            count: 0,
            made: BTreeMap::new(),
            sent: 0,
            returning: Vec::new(),
            standing: Standing::default(),
            again: HashMap::new(),
            is_lively: false,
            waited_for: HashMap::new(),
            deferred: HashMap::new(),
            held: Vec::new(),
            closing: Vec::new(),
            closed_before: BTreeSet::new(),
            failures: HashMap::new(),
            taken: Taken::default(),
            numbers: 0,
        }
    }
}

impl<R> Requests<R> {
    pub(super) fn next_number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// Adds a request to those that are to be sent. Returns its number.
    pub(super) fn add(
        &mut self,
        frames_before: u64,
        call: Call,
        deferred: Option<FileNumber>,
    ) -> u64 {
        let number = self.count;
        self.count += 1;
        if let Some(file) = deferred {
            self.deferred.insert(number, file);
        } else {
            let is_read = matches!(call, Call::Read { .. });
            let is_for_others = matches!(call, Call::Lock { .. });
            let waited = Waited { is_for_others, is_read, outcome: None, bytes: None };
            self.waited_for.insert(number, waited);
        }
        self.taken.on_call(&call);
        self.made.insert(number, Request { number, frames_before, call });
        number
    }

    /// Takes the requests that are to be sent.
    pub(super) fn take_unsent(&mut self) -> Vec<ToServer> {
        let mut messages = std::mem::take(&mut self.returning);
        let unsent = self.made.range(std::mem::replace(&mut self.sent, self.count)..);
        messages.extend(unsent.map(|(_, request)| ToServer::Request(request.clone())));
        messages
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.returning.is_empty() || self.made.range(self.sent..).next().is_some()
    }

    /// How many requests were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The connection is lost: none is sent any more.
    pub(super) fn forget_made(&mut self) {
        self.made.clear();
        self.returning.clear();
        self.sent = self.count;
    }

    /// A reply has arrived. Returns the request, unless it is a read, which needs its bytes as
    /// well, or was made again.
    pub(super) fn on_reply(&mut self, number: u64) -> Option<Request> {
        let is_read = matches!(self.made.get(&number)?.call, Call::Read { .. });
        if is_read { None } else { self.made.remove(&number) }
    }

    /// Whether a request is not answered, or is a read whose bytes are not here.
    pub(super) fn is_made(&self, number: u64) -> bool {
        self.made.contains_key(&number)
    }

    /// Whether a request is not answered and cannot be repeated.
    pub(super) fn is_done_once(&self, number: u64) -> bool {
        self.made.get(&number).is_some_and(|request| request.call.is_done_once())
    }

    /// A request was done before the server was started again. It is not answered.
    pub(super) fn on_done_before(&mut self, number: u64) {
        if let Some(Call::Close { file }) = self.made.get(&number).map(|it| &it.call) {
            self.closed_before.insert(*file);
        }
    }

    /// The outcome of a request: what was done for a file that was closed before the server was
    /// started again does not fail.
    pub(super) fn outcome_of(&self, number: u64, outcome: Outcome) -> Outcome {
        let file = match self.made.get(&number).map(|it| &it.call) {
            None => self.standing.file_of(number),
            Some(Call::Open { file, .. } | Call::View { file, .. }) => Some(*file),
            Some(Call::Sync { file } | Call::Flush { file } | Call::Close { file }) => Some(*file),
            Some(_) => None,
        };
        let was_closed = file.is_some_and(|file| self.closed_before.contains(&file));
        if was_closed { Outcome::Done } else { outcome }
    }

    /// The number of frames before a request that is not answered.
    pub(super) fn frames_before(&self, number: u64) -> u64 {
        self.made.get(&number).map_or(0, |request| request.frames_before)
    }

    /// The requests that are not answered.
    pub(super) fn made(&mut self) -> impl Iterator<Item = &mut Request> {
        self.made.values_mut()
    }

    /// Views that frames need still are forgotten again.
    pub(super) fn forget_again(&mut self) {
        for request in self.standing.forgotten() {
            // One that is not answered since an earlier restart has another place by now.
            self.made.entry(request.number).or_insert_with(|| request.clone());
        }
    }

    /// The server was started again: all requests are sent again, after these messages.
    pub(super) fn return_with(&mut self, messages: Vec<ToServer>) {
        (self.returning, self.sent) = (messages, 0);
    }

    /// The number under which a read is known here.
    pub(super) fn known(&self, number: u64) -> u64 {
        self.again.get(&number).copied().unwrap_or(number)
    }

    /// The server has as many requests: the others are sent again.
    pub(super) fn resume(&mut self, requests: u64) {
        self.returning.clear();
        self.sent = requests;
    }

    /// Takes the reads that the server had before the connection broke, and whose bytes are not
    /// here: the number of each at the server, and the one under which it is known here.
    pub(super) fn take_unread(&mut self, requests: u64) -> Vec<(u64, u64, Call)> {
        let is_read = |it: &Request| matches!(it.call, Call::Read { .. });
        let reads = self.made.extract_if(..requests, |_, it| is_read(it));
        let reads: Vec<_> = reads.map(|(number, request)| (number, request.call)).collect();
        let known = |(number, call)| (number, self.again.remove(&number).unwrap_or(number), call);
        let reads = reads.into_iter().map(known).collect::<Vec<_>>();
        reads.into_iter().filter(|(_, known, _)| !self.is_answered(*known)).collect()
    }

    /// A read is made once more, under another number for the server.
    pub(super) fn add_again(&mut self, known: u64, frames_before: u64, call: Call) -> u64 {
        let number = self.count;
        self.count += 1;
        self.made.insert(number, Request { number, frames_before, call });
        self.again.insert(number, known);
        if let Some(waited) = self.waited_for.get_mut(&known) {
            (waited.outcome, waited.bytes) = (None, None);
        }
        number
    }

    /// A read has its bytes, or no call waits for them.
    fn end_read(&mut self, known: u64) {
        let again = self.again.extract_if(|_, it| *it == known).map(|(number, _)| number);
        let number = again.last().unwrap_or(known);
        self.made.remove(&number);
    }

    /// Takes a deferred request that is answered. Returns its file.
    pub(super) fn take_deferred(&mut self, number: u64) -> Option<FileNumber> {
        let file = self.deferred.remove(&number)?;
        let is_open = self.deferred.values().any(|it| *it == file)
            || self.held.iter().any(|held| held.file == file);
        if !is_open {
            self.closing.retain(|closing| closing.file != file);
        }
        Some(file)
    }

    /// The outcome of a request has arrived. Returns whether a call or a read ahead waits for it.
    pub(super) fn set_outcome(&mut self, number: u64, outcome: Outcome) -> bool {
        let waited = self.waited_for.get_mut(&number);
        waited.map(|it| it.outcome = Some(outcome)).is_some()
    }

    /// The bytes of a read have arrived.
    pub(super) fn set_bytes(&mut self, number: u64, bytes: R, part: Range<usize>) {
        if let Some(waited) = self.waited_for.get_mut(&number) {
            waited.bytes = Some((bytes, part));
        }
    }

    /// Nobody waits for the reply to a request.
    pub(super) fn forget(&mut self, number: u64) {
        if self.waited_for.remove(&number).is_some_and(|it| it.is_read) {
            self.end_read(number);
        }
    }

    /// Whether the reply to a request is there. Bytes and outcome arrive on two ways.
    pub(super) fn is_answered(&self, number: u64) -> bool {
        self.waited_for.get(&number).is_none_or(|it| match it.outcome {
            Some(Outcome::Number(count)) if count > 0 => !it.is_read || it.bytes.is_some(),
            outcome => outcome.is_some(),
        })
    }

    /// Takes the reply to a request, if it is there.
    pub(super) fn take_reply(&mut self, number: u64) -> Option<Reply<R>> {
        if !self.is_answered(number) {
            return None;
        }
        let Waited { outcome, bytes, is_read, .. } = self.waited_for.remove(&number)?;
        if is_read {
            self.end_read(number);
        }
        Some((outcome?, bytes))
    }

    /// Whether the server has something to do that it alone decides about.
    pub(super) fn is_owed(&self) -> bool {
        !self.deferred.is_empty() || self.waited_for.values().any(|it| !it.is_for_others)
    }

    /// The same, without bytes that are read: they change nothing at the server.
    pub(super) fn is_owed_beside_bytes(&self) -> bool {
        let is_owed = |it: &Waited<R>| !it.is_for_others && !it.is_read;
        !self.deferred.is_empty() || self.waited_for.values().any(is_owed)
    }

    /// Whether a file with this path is being closed.
    pub(super) fn is_closing(&self, path: &[u8]) -> bool {
        self.closing.iter().any(|closing| is_same(&closing.path, path))
    }

    /// Whether the close of a file waits for frames.
    pub(super) fn is_closing_any(&self) -> bool {
        self.held.iter().any(|held| matches!(held.call, Call::Close { .. }))
    }

    /// Whether a request of a file is held that the server must not get after a later one. A view
    /// that is forgotten late harms nobody.
    fn is_holding(&self, file: FileNumber) -> bool {
        self.held.iter().any(|it| it.file == file && !matches!(it.call, Call::Forget { .. }))
    }
}

impl<B: Clone, R: ChunkBytes> Client<B, R> {
    /// Whether something that a request comes after is not sent.
    pub(super) fn is_unsent(&self, after: &After) -> bool {
        let outbox = &self.sending.outbox;
        match after {
            After::Nothing => false,
            After::Frames { file, count } => {
                outbox.is_unsent(*file, *count) || self.requests.is_holding(*file)
            }
            After::Bytes { file, reach, count } => outbox.is_unsent_in(*file, reach, *count),
        }
    }

    pub(super) fn is_held(&self, held: &Held) -> bool {
        match held.after {
            HeldAfter::View(view) => {
                self.sending.outbox.is_unsent_of_view(view) || self.reading.is_read_through(view)
            }
            HeldAfter::Frames(count) => self.sending.outbox.is_unsent(held.file, count),
        }
    }

    /// A held request whose frames are sent.
    pub(super) fn next_held(&mut self) -> Option<(FileNumber, Call)> {
        let ready = self.requests.held.iter().position(|held| !self.is_held(held))?;
        let Held { file, call, .. } = self.requests.held.remove(ready);
        Some((file, call))
    }

    /// Makes a request whose reply the program waits for, with [`Wait::Reply`]. Before, it waits
    /// with [`Wait::Sent`] for what the request comes after. Returns the number of the request.
    pub fn ask(&mut self, after: &After, call: Call) -> u64 {
        self.request(!matches!(after, After::Nothing), call, None)
    }

    /// Takes the reply to a request, if it is there: the number that the server returned, or zero.
    ///
    /// # Errors
    /// If the request failed, or the connection is lost.
    pub fn take_reply(&mut self, number: u64) -> Option<Result<u64, CallError>> {
        let reply = self.take_whole_reply(number)?;
        Some(reply.and_then(|(outcome, _)| match outcome {
            Outcome::Done => Ok(0),
            Outcome::Number(number) => Ok(number),
            Outcome::Failed(failure) => Err(CallError::Failed(failure)),
            Outcome::Lost => Err(CallError::Gone),
        }))
    }

    /// Takes a reply and its bytes, if both are there, or the connection is lost.
    pub(super) fn take_whole_reply(&mut self, number: u64) -> Option<Result<Reply<R>, CallError>> {
        if let Some(reply) = self.requests.take_reply(number) {
            return Some(Ok(reply));
        }
        self.line.loss.as_ref()?;
        self.requests.forget(number);
        Some(Err(CallError::Lost))
    }

    /// Makes the request that opens a file, after [`Wait::RoomForFile`]. With `defers` nobody waits
    /// for the reply. Returns its number; `None` if the server takes no more files.
    pub fn open(
        &mut self,
        file: FileNumber,
        path: &[u8],
        mode: OpenMode,
        group: [u8; 16],
        defers: bool,
    ) -> Option<u64> {
        if !self.requests.taken.has_room_for_file() {
            return None;
        }
        let call = Call::Open { file, path: path.to_vec(), mode, group };
        Some(self.request(false, call, defers.then_some(file)))
    }

    /// A file could not be opened. The server keeps its number until it is closed; nobody needs to
    /// know the reply to that.
    pub fn close_unopened(&mut self, file: FileNumber) {
        let number = self.request(false, Call::Close { file }, None);
        self.requests.forget(number);
    }

    /// Sets a view of a file, after [`Wait::RoomForView`]: it is read through it from now on.
    pub fn begin_view(
        &mut self,
        (file, path): (FileNumber, &[u8]),
        (displacement, filetype, shape): (u64, &[u8], View),
        prefetch: Prefetch,
    ) -> Arc<Target> {
        let view = ViewNumber(self.next_number());
        let (path, filetype) = (path.to_vec(), filetype.to_vec());
        let target = Arc::new(Target { file, path, view, displacement, filetype, shape });
        self.set_view(&target);
        self.reading.begin_view(&target, prefetch);
        target
    }

    pub(super) fn set_view(&mut self, target: &Arc<Target>) {
        self.requests.standing.on_view(target);
        self.request(false, target.call(), Some(target.file));
    }

    /// A view of a file ends: the server forgets it when all its frames are sent, and reads through
    /// it have ended.
    pub fn end_view(&mut self, target: &Target) {
        self.reading.end_view(target.file);
        self.forget_later(target.file, target.view);
    }

    pub(super) fn forget_later(&mut self, file: FileNumber, view: ViewNumber) {
        let (after, call) = (HeldAfter::View(view), Call::Forget { view });
        self.requests.held.push(Held { file, after, call });
    }

    /// A view for records of a file, if the server has room for one that the client can do without:
    /// it is set when the records are sent.
    pub fn reserve_view(&mut self, file: FileNumber) -> Option<ViewNumber> {
        if !self.requests.taken.has_room_for_extra_view() {
            return None;
        }
        let view = ViewNumber(self.next_number());
        self.requests.taken.reserve(view, file);
        Some(view)
    }

    /// A file is about to be closed: nothing more is read ahead.
    pub fn end_file(&mut self, file: FileNumber) {
        self.reading.end_file(file);
    }

    /// Closes the file of a target when its frames, up to this many of the connection, are sent.
    pub fn close_later(&mut self, target: &Target, count: u64) {
        let Target { file, ref path, .. } = *target;
        self.requests.closing.push(Closing { file, path: path.clone() });
        let (after, call) = (HeldAfter::Frames(count), Call::Close { file });
        self.requests.held.push(Held { file, after, call });
    }

    /// Gives the lock of a file back when its frames, up to this many of the connection, are sent.
    pub fn unlock_later(&mut self, file: FileNumber, count: u64) {
        let (after, call) = (HeldAfter::Frames(count), Call::Unlock { file });
        self.requests.held.push(Held { file, after, call });
    }

    /// Announces the frames that are not sent, after [`Wait::FewUnsent`]. Returns the number of the
    /// request: when it is answered, every client of the server sees what was written before.
    /// `None` if that is so already.
    pub fn fence(&mut self) -> Option<u64> {
        let is_known = self.sending.outbox.is_empty() && self.requests.deferred.is_empty();
        if is_known || self.line.loss.is_some() {
            return None;
        }
        let outbox = &mut self.sending.outbox;
        let (unsent, count, first) = (outbox.announce(), outbox.count(), outbox.first_unwritten());
        let number = self.request(true, Call::Fence { unsent }, None);
        self.sending.fences.begin(number, count, first);
        Some(number)
    }

    /// The first failure that no call has returned, at the end of the program.
    ///
    /// # Errors
    /// If there is one, or something is left that can neither be done nor fail.
    pub fn finish(&mut self) -> Result<(), CallError> {
        let first = self.requests.failures.keys().min().copied();
        if let Some(failure) = first.and_then(|file| self.requests.failures.remove(&file)) {
            return Err(CallError::Failed(failure));
        }
        match self.line.loss.is_some() && self.is_left() {
            true => Err(CallError::Lost),
            false => Ok(()),
        }
    }

    /// Reports whether something was neither done nor refused.
    #[must_use]
    pub fn is_left(&self) -> bool {
        let requests = &self.requests;
        let is_deferred = !requests.deferred.is_empty() || !requests.held.is_empty();
        is_deferred || !self.sending.outbox.is_empty() || self.line.lost_bytes > 0
    }

    /// The wait for everything that was written so far.
    #[must_use]
    pub fn until_written(&self) -> Wait {
        Wait::Written(self.sending.outbox.count())
    }
}

/// Whether two paths mean the same file, but for links.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let parts =
        |path| <[u8]>::split(path, |&byte| byte == b'/').filter(|it| !matches!(*it, b"" | b"."));
    parts(one).eq(parts(other))
}
