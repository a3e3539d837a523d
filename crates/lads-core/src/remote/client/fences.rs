//! Which fence covers a frame: after a restart of the server, its place among the writes of all
//! clients depends on it.

use std::collections::VecDeque;

/// Fences that may cover a frame that is not written, in their order.
#[derive(Debug, Default)]
pub(super) struct Fences(VecDeque<Fence>);

/// A fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The number of its request.
    pub(super) request: u64,
    /// How many frames were put into the outbox before it.
    pub(super) count: u64,
    /// What it was answered with.
    pub(super) answer: Option<u64>,
}

impl Fences {
    /// A fence is asked for, and the frames before `first` are written.
    pub(super) fn begin(&mut self, request: u64, count: u64, first: u64) {
        self.0.retain(|it| it.answer.is_none() || it.count > first);
        self.0.push_back(Fence { request, count, answer: None });
    }

    /// A request is answered. A later fence that covers the same frames tells nothing.
    pub(super) fn on_answered(&mut self, request: u64, answer: u64) {
        let Some(at) = self.0.iter().position(|it| it.request == request) else { return };
        self.0[at].answer = Some(answer);
        let is_same = |other: &Fence| other.count == self.0[at].count && other.answer.is_some();
        if self.0.iter().take(at).any(is_same) {
            self.0.remove(at);
        }
    }

    /// A fence failed: the server knows of no write because of it.
    pub(super) fn on_failed(&mut self, request: u64) {
        self.0.retain(|it| it.request != request);
    }

    /// The first fence that covers a frame.
    pub(super) fn of(&self, id: u64) -> Option<Fence> {
        self.0.iter().find(|it| it.count > id).copied()
    }
}
