//! Whether the transfer goes on, has come to its end, or is stopped.

/// Whether somebody asked to stop, and whether the sink has done so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// The sink was told to stop, and has not yet said that everything is recorded.
    Asked,
    Done,
}

/// The course of the transfer.
#[derive(Debug)]
pub(super) struct Course {
    stop: Stop,
    is_finished: bool,
}

impl Course {
    /// The sink has not said anything yet.
    pub(super) fn new() -> Self {
        Self { stop: Stop::No, is_finished: false }
    }

    /// Whether neither end has asked to stop.
    pub(super) fn goes_on(&self) -> bool {
        self.stop == Stop::No
    }

    /// Somebody asks to stop. Returns `false` if somebody did so before.
    pub(super) fn stop(&mut self) -> bool {
        let is_first = self.goes_on();
        if is_first {
            self.stop = Stop::Asked;
        }
        is_first
    }

    /// Everything has ended, and the sink says that it has finished.
    pub(super) fn on_finished(&mut self) {
        self.is_finished = true;
    }

    /// The sink says that it has stopped.
    pub(super) fn on_stopped(&mut self) {
        self.stop = Stop::Done;
    }

    /// Whether everything has ended and the transfer was not stopped.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether the transfer has finished or stopped.
    pub(super) fn is_over(&self) -> bool {
        self.is_finished || self.stop == Stop::Done
    }
}
