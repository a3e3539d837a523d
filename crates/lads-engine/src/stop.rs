//! Whether somebody wants the transfer to stop, why, and since when.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tells a running transfer to stop. It can be set from another thread, or from a signal handler's
/// thread.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    asked: Arc<Mutex<Option<Asked>>>,
}

/// A request to stop: its reason and its time.
#[derive(Clone, Debug)]
struct Asked {
    reason: String,
    at: std::time::Instant,
}

impl StopFlag {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the transfer to stop in a state from which the same command can go on. [`crate::run`]
    /// then returns within 5 seconds, whatever hangs. A thread that hangs in a call to storage
    /// stays, and keeps its process from ending until the call returns.
    pub fn set(&self, reason: &str) {
        let at = std::time::Instant::now();
        self.lock().get_or_insert_with(|| Asked { reason: reason.to_owned(), at });
    }

    /// Reports whether the flag was set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.lock().as_ref().map(|asked| asked.reason.clone())
    }

    /// Returns the time since the flag was set; `None` if it is not set.
    #[must_use]
    pub fn elapsed(&self) -> Option<std::time::Duration> {
        self.since().map(|at| at.elapsed())
    }

    /// When the flag was set first.
    pub(crate) fn since(&self) -> Option<std::time::Instant> {
        self.lock().as_ref().map(|asked| asked.at)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
