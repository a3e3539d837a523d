//! Whether the transfer goes on, has come to its end, or is stopped.

/// How far it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// Said to the sink, which has not yet said that all is on record.
    Asked,
    Done,
}

/// The course of the transfer.
#[derive(Debug)]
pub(super) struct Course {
    /// Whether the sink has said what it is.
    is_ready: bool,
    stop: Stop,
    is_finished: bool,
}

impl Course {
    /// The sink has not said anything.
    pub(super) fn new() -> Self {
        Self { is_ready: false, stop: Stop::No, is_finished: false }
    }

    /// The sink has said what it is.
    pub(super) fn on_ready(&mut self) {
        self.is_ready = true;
    }

    /// Whether entries may be announced.
    pub(super) fn has_begun(&self) -> bool {
        self.is_ready && self.goes_on()
    }

    /// Whether neither end has asked to stop.
    pub(super) fn goes_on(&self) -> bool {
        self.stop == Stop::No
    }

    /// Somebody asks to stop; `false` if somebody did before.
    pub(super) fn stop(&mut self) -> bool {
        let is_first = self.goes_on();
        if is_first {
            self.stop = Stop::Asked;
        }
        is_first
    }

    /// Everything has ended, and the sink says that it is finished.
    pub(super) fn on_finished(&mut self) {
        self.is_finished = true;
    }

    /// The sink says that it has stopped.
    pub(super) fn on_stopped(&mut self) {
        self.stop = Stop::Done;
    }

    /// Whether everything was ended, not stopped.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether it is finished or stopped.
    pub(super) fn is_over(&self) -> bool {
        self.is_finished || self.stop == Stop::Done
    }
}
