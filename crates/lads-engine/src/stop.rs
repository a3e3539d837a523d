//! Whether somebody wants the transfer to stop, why, and since when.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tells a running transfer to stop, from another thread or a signal handler's thread.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    asked: Arc<Mutex<Option<Asked>>>,
}

/// Somebody asked to stop.
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

    /// Asks the transfer to stop in a state from which the same command goes on. It returns within
    /// 5 seconds, whatever hangs. A call to storage that hangs keeps its thread, and so its process
    /// from ending, until it returns.
    pub fn set(&self, reason: &str) {
        let at = std::time::Instant::now();
        self.lock().get_or_insert_with(|| Asked { reason: reason.to_owned(), at });
    }

    /// Whether it was asked to.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.lock().as_ref().map(|asked| asked.reason.clone())
    }

    /// Since when it has been asked for.
    pub(crate) fn since(&self) -> Option<std::time::Instant> {
        self.lock().as_ref().map(|asked| asked.at)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
