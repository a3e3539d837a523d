//! A limited number of places: for the clients of a server, and for their open files.

use crate::board::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The places.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Free>,
}

/// The number of places that are free.
#[derive(Debug)]
struct Free {
    count: Mutex<u32>,
    is_more: Condvar,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Free>);

impl Places {
    /// Limits the number of places.
    pub(super) fn new(max: u32) -> Self {
        Self { free: Arc::new(Free { count: Mutex::new(max), is_more: Condvar::new() }) }
    }

    /// Takes a place; returns `None` if all are taken.
    pub(super) fn take(&self) -> Option<Place> {
        self.take_within(Duration::ZERO)
    }

    /// Takes a place that is free within some time.
    pub(super) fn take_within(&self, time: Duration) -> Option<Place> {
        let Free { count, is_more } = &*self.free;
        let waited = is_more.wait_timeout_while(lock(count), time, |count| *count == 0);
        let (mut count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count = count.checked_sub(1)?;
        Some(Place(Arc::clone(&self.free)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *lock(&self.0.count) += 1;
        self.0.is_more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let places = Places::new(2);
        let taken = [places.take().unwrap(), places.take().unwrap()];
        assert!(places.take().is_none() && places.take().is_none());
        drop(taken);
        assert!(places.take().is_some());
    }
}
