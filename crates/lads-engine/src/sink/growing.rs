//! Adding extents to a file while it is written.
//!
//! The session decides which extent goes where, in the order of the file. A thread gets the extents
//! together with the write that needs them. Several threads may be about to add extents to the same
//! file: each waits for its turn, and each writer waits until its bytes have an extent.

use super::table::Item;
use super::{SinkEnd, failed, growth};
use crate::board::lock;
use lads_core::growth::Extent;
use lads_core::issue::{Failure, Operation};
use lads_core::sink::Write;
use std::sync::{Condvar, Mutex, PoisonError};

/// How far a file has grown.
#[derive(Debug)]
pub(super) struct Growing {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Bytes before this one have an extent.
    end: u64,
    failure: Option<Failure>,
}

impl Growing {
    /// A file whose extents end here.
    pub(super) fn new(end: u64) -> Self {
        Self { state: Mutex::new(State { end, failure: None }), changed: Condvar::new() }
    }

    /// Adds extents when it is their turn.
    fn add(
        &self,
        extents: &[Extent],
        add: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return Ok(()) };
        self.wait_for(first.range.start)?;
        // No other thread adds an extent meanwhile, because the next one begins where this one
        // ends.
        let added = add();
        match added {
            Ok(()) => lock(&self.state).end = last.range.end,
            Err(failure) => lock(&self.state).failure = Some(failure),
        }
        self.changed.notify_all();
        added
    }

    /// The file is dropped, or can grow no further. All waiting threads go on with this failure.
    pub(super) fn close(&self, failure: Failure) {
        lock(&self.state).failure.get_or_insert(failure);
        self.changed.notify_all();
    }

    /// Waits until all bytes before this one have an extent.
    fn wait_for(&self, end: u64) -> Result<(), Failure> {
        let is_waited_for = |state: &mut State| state.end < end && state.failure.is_none();
        let state = self.changed.wait_while(lock(&self.state), is_waited_for);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        state.failure.map_or(Ok(()), Err)
    }
}

impl SinkEnd {
    /// Prepares a file with these extents to grow. Returns the extents that the session should know
    /// of. An earlier attempt may have left a growing file that must not grow now: it gets one
    /// extent for the rest at once.
    pub(super) fn begin_growing(
        &self,
        item: &Item,
        extents: Vec<Extent>,
    ) -> Result<Vec<Extent>, Failure> {
        let Some(last) = extents.last() else { return Ok(extents) };
        let _ = self.grows.set(());
        let growing = item.growing.get_or_init(|| Growing::new(last.range.end));
        let extents_max =
            growth(&self.options, self.layouts.as_ref()).map_or(0, |it| it.extents_max);
        let Some(rest) = extent_of_rest(&extents, extents_max) else { return Ok(extents) };
        self.add_extents(item, growing, &[rest])?;
        Ok(Vec::new())
    }

    fn add_extents(
        &self,
        item: &Item,
        growing: &Growing,
        extents: &[Extent],
    ) -> Result<(), Failure> {
        growing.add(extents, || {
            let temporary = self.temporary(item)?;
            let added = self.layouts.add_extents(&temporary.file, extents);
            added.map_err(|errno| failed(Operation::Preallocate, errno))
        })
    }

    /// Sees to it that what is about to be written has its extent.
    pub(super) fn grow(&self, write: &Write) -> Result<(), Failure> {
        let Some((row, _)) = write.rows.first().filter(|_| self.grows.get().is_some()) else {
            return Ok(());
        };
        let Some(item) = self.table.get(row.block.entry) else { return Ok(()) };
        let Some(growing) = item.growing.get() else { return Ok(()) };
        let _asked = self.begin_call(Operation::Preallocate, row.block.entry, Some(write.ost));
        if !write.extents.is_empty() {
            // The session must hear of OSTs that take no more, too, when no new file is placed.
            self.look_at_osts();
        }
        self.add_extents(&item, growing, &write.extents)?;
        growing.wait_for(write.rows.iter().map(|(row, _)| row.block.end()).max().unwrap_or(0))
    }
}

/// Returns the extent for the rest of a file that has these extents, if it may grow by no others.
fn extent_of_rest(extents: &[Extent], extents_max: u32) -> Option<Extent> {
    let last = extents.last().filter(|_| extents.len() >= extents_max as usize)?;
    Some(Extent { range: last.range.end..u64::MAX, ost: last.ost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::units::OstId;

    #[test]
    fn only_a_file_with_as_many_extents_as_permitted_gets_one_for_the_rest() {
        let extents = [0, 1, 2].map(|at| Extent { range: at * 10..(at + 1) * 10, ost: OstId(7) });
        let rest = |count| extent_of_rest(&extents[..count], 2);
        assert_eq!([rest(0), rest(1)], [None, None]);
        for (count, start) in [(2, 20), (3, 30)] {
            assert_eq!(rest(count), Some(Extent { range: start..u64::MAX, ost: OstId(7) }));
        }
    }
}
