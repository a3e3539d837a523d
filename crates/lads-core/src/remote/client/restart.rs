//! The server was started again: what it had of this client, it gets once more.

use super::Client;
use crate::limits::CLIENT_ANNOUNCED_MAX;
use crate::remote::message::{Call, Fenced, Outcome, Request, ToServer, Unsent, Written};
use crate::remote::outbox::Unwritten;
use crate::remote::reading::ChunkBytes;
use crate::staging::Slot;
use std::collections::HashMap;
use std::time::Duration;

impl<B: Clone, R: ChunkBytes> Client<B, R> {
    /// The server knows this client and has nothing of it. Files are opened again, views are set
    /// and locks are taken under their old numbers; then all requests that were not answered and
    /// all frames that were not written are sent, in their old order. Returns the staged frames
    /// that are written, as [`Self::on_message`].
    pub(super) fn restart(
        &mut self,
        (written, done): (&[u64], &[u64]),
        now: Duration,
    ) -> Result<Vec<(u64, Slot)>, String> {
        let in_flight = |it: &&u64| self.sending.outbox.is_in_flight(**it);
        let written = written.iter().filter(in_flight);
        let written: Vec<_> = written.map(|&frame| Written { frame, failure: None }).collect();
        // That the connection is there again is no progress.
        let staged = if written.is_empty() { Vec::new() } else { self.on_written(&written, now) };
        for number in done {
            self.requests.on_done_before(*number);
            if self.requests.is_done_once(*number) && self.line.gate.settle(*number) {
                self.on_reply(*number, Outcome::Done);
            }
        }
        let unwritten = self.sending.outbox.restart();
        let (writes, unsent) = self.announce_again(&unwritten);
        if writes.len() > CLIENT_ANNOUNCED_MAX {
            return Err(format!(
                "it was started again, and more than {CLIENT_ANNOUNCED_MAX} writes were announced"
            ));
        }
        let frames = self.renumber(&unwritten, unsent);
        self.return_with(frames, writes);
        // No answer to a read under its old number comes any more.
        self.read_again(self.requests.count);
        self.line.on_restarted();
        Ok(staged)
    }

    /// The reply to a request that was made again, or to a read that is made under another number.
    pub(super) fn on_reply_again(&mut self, number: u64, outcome: Outcome) {
        let file = self.requests.standing.file_of(number);
        // The program had its reply before, and learns of a failure with the next call.
        if let (Some(file), Outcome::Failed(failure)) = (file, outcome) {
            self.requests.failures.entry(file).or_insert(failure);
        }
    }

    /// Finds what is to be announced: writes that a fence covers which was answered, and those of
    /// each that was not.
    fn announce_again(
        &mut self,
        unwritten: &[Unwritten],
    ) -> (Vec<Fenced>, HashMap<u64, Vec<Unsent>>) {
        let (mut writes, mut unsent) = (Vec::new(), HashMap::<u64, Vec<Unsent>>::new());
        for it in unwritten {
            let Some(fence) = self.sending.fences.of(it.id) else { continue };
            if let Some(fence) = fence.answer {
                writes.push(Fenced { fence, unsent: it.unsent });
            } else {
                // The fence waits for a frame that was sent before it.
                let frames_before = self.requests.frames_before(fence.request);
                if it.before.is_some_and(|before| before < frames_before) {
                    continue;
                }
                unsent.entry(fence.request).or_default().push(it.unsent);
            }
            self.sending.outbox.announce_one(it.id);
        }
        (writes, unsent)
    }

    /// Requests come after the same frames as before. Returns the number of the first frame.
    fn renumber(&mut self, unwritten: &[Unwritten], mut unsent: HashMap<u64, Vec<Unsent>>) -> u64 {
        let mut before: Vec<_> = unwritten.iter().filter_map(|it| it.before).collect();
        before.sort_unstable();
        let first = self.sending.outbox.sent() - before.len() as u64;
        self.requests.forget_again();
        for request in self.requests.made() {
            let count = before.partition_point(|it| *it < request.frames_before);
            request.frames_before = first + count as u64;
            if let Call::Fence { unsent: own } = &mut request.call {
                *own = unsent.remove(&request.number).unwrap_or_default();
            }
            // A read is made again under another number, or has its bytes.
            if !matches!(request.call, Call::Read { .. }) {
                self.line.gate.on_asked(request.number, &request.call);
            }
        }
        first
    }

    /// What is sent before all requests that were not answered.
    fn return_with(&mut self, frames: u64, writes: Vec<Fenced>) {
        let calls = self.requests.standing.calls();
        calls.iter().for_each(|(number, call)| self.line.gate.on_asked(*number, call));
        let last = (self.requests.count, Call::Return { frames, writes });
        let all = calls.into_iter().chain([last]);
        let request = |(number, call)| Request { number, frames_before: 0, call };
        self.requests.return_with(all.map(request).map(ToServer::Request).collect());
    }
}
