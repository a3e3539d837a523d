//! Whether the transfer goes on, comes to its end, or is stopped.
//!
//! ```text
//!   goes on ── FINISH ──► everything has ended ──► finishing ──► finished
//!      │                        │ something is still to be removed
//!      └───────── stop ◄────────┘
//!                  └── what was begun is done ──► stopped
//! ```

use super::event::Task;

/// Whether anything failed at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing failed there.
    Complete,
    /// Something failed there.
    Incomplete,
}

impl End {
    /// The same, as messages say it.
    pub(super) fn of(is_complete: bool) -> Self {
        if is_complete { Self::Complete } else { Self::Incomplete }
    }
}

/// How far the end of the transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    No,
    Asked(End),
    Running,
    Done,
}

/// How far it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    Asked,
    Done,
}

/// The course of the transfer.
#[derive(Debug)]
pub(super) struct Course {
    finish: Finish,
    stop: Stop,
}

impl Course {
    /// It goes on.
    pub(super) fn new() -> Self {
        Self { finish: Finish::No, stop: Stop::No }
    }

    /// Whether neither end has asked to stop.
    pub(super) fn goes_on(&self) -> bool {
        self.stop == Stop::No
    }

    /// Whether the source has said that everything has ended.
    pub(super) fn is_finish_asked(&self) -> bool {
        self.finish != Finish::No
    }

    /// How everything has ended, if it has and what follows has not begun.
    pub(super) fn end(&self) -> Option<End> {
        match self.finish {
            Finish::Asked(end) => Some(end),
            _ => None,
        }
    }

    /// Everything has ended, as the source says, or ends with directories that are being closed.
    pub(super) fn on_finish(&mut self, end: End) {
        self.finish = Finish::Asked(end);
    }

    /// A directory could not be closed, which the source may not have known.
    pub(super) fn on_failed(&mut self) {
        if self.end().is_some() {
            self.finish = Finish::Asked(End::Incomplete);
        }
    }

    /// What is left to be done at the end, if it is time; it has begun with that.
    pub(super) fn next_finish(&mut self) -> Option<Task> {
        let end = self.end().filter(|_| self.goes_on())?;
        self.finish = Finish::Running;
        Some(Task::Finish { is_complete: end == End::Complete })
    }

    /// That is done.
    ///
    /// # Panics
    /// If it had not begun.
    pub(super) fn on_finished(&mut self) {
        assert_eq!(self.finish, Finish::Running, "nobody was told to finish");
        self.finish = Finish::Done;
    }

    /// The transfer is to stop. Returns `false` if it was to stop before.
    pub(super) fn stop(&mut self) -> bool {
        let is_first = self.stop == Stop::No;
        if is_first {
            self.stop = Stop::Asked;
        }
        is_first
    }

    /// Whether it is to stop and has not stopped yet.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop == Stop::Asked
    }

    /// What was begun is done.
    pub(super) fn on_stopped(&mut self) {
        self.stop = Stop::Done;
    }

    /// Whether the transfer came to its end and was not stopped.
    pub(super) fn is_finished(&self) -> bool {
        self.finish == Finish::Done
    }

    /// Whether it is finished or stopped.
    pub(super) fn is_over(&self) -> bool {
        self.is_finished() || self.stop == Stop::Done
    }
}
