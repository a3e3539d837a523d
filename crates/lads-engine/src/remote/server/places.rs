//! A limited number of places: for the clients of a server, and for their open files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The places.
#[derive(Debug)]
pub(super) struct Places {
    taken: Arc<AtomicU32>,
    max: u32,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicU32>);

impl Places {
    /// Limits the number of places.
    pub(super) fn new(max: u32) -> Self {
        Self { taken: Arc::default(), max }
    }

    /// Takes a place; returns `None` if all are taken.
    pub(super) fn take(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.taken));
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        (before < self.max).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
