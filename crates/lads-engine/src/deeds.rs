//! What the threads of an end ask of storage just now: so that a person can be told which file is
//! being moved, and which call it is that does not return.

use crate::board::lock;
use crate::paths::Directory;
use lads_core::issue::{Operation, Side};
use lads_core::units::{EntryId, OstId};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A call that takes longer is told when the transfer is to stop. Half of it is what a disk that
/// is in use takes for much; double of it would keep silent about what a person waits for.
const LONG: Duration = Duration::from_secs(1);

/// So many calls are told of one by one: all threads may wait for the same server.
const TOLD_MAX: usize = 3;

/// What a call is about.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// An entry that has not ended.
    Entry(EntryId),
    /// A directory, or something in it.
    In(Arc<Directory>),
    /// The directory into which everything goes.
    Target,
}

/// A call that has not returned.
#[derive(Clone, Debug)]
struct Deed {
    number: u64,
    operation: Operation,
    subject: Subject,
    ost: Option<OstId>,
    since: Instant,
}

/// The calls of an end that have not returned.
#[derive(Debug, Default)]
pub(crate) struct Deeds(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    under_way: Vec<Deed>,
    begun: u64,
}

/// A call that has not returned; it has when this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    deeds: &'a Deeds,
    number: u64,
}

impl Deeds {
    /// A thread is about to ask something of storage.
    pub(crate) fn begin(
        &self,
        operation: Operation,
        subject: Subject,
        ost: Option<OstId>,
    ) -> UnderWay<'_> {
        let mut list = lock(&self.0);
        list.begun += 1;
        let number = list.begun;
        list.under_way.push(Deed { number, operation, subject, ost, since: Instant::now() });
        UnderWay { deeds: self, number }
    }

    /// The entry that has been in a call longest.
    pub(crate) fn oldest_entry(&self) -> Option<EntryId> {
        let of_entry = |deed: &Deed| match deed.subject {
            Subject::Entry(entry) => Some((deed.number, entry)),
            _ => None,
        };
        let oldest = lock(&self.0).under_way.iter().filter_map(of_entry).min();
        oldest.map(|(_, entry)| entry)
    }

    /// Those that take longer than storage should, the longest first.
    fn long(&self) -> Vec<Deed> {
        let mut long = lock(&self.0).under_way.clone();
        long.retain(|deed| deed.since.elapsed() >= LONG);
        long.sort_by_key(|deed| deed.number);
        long
    }

    /// Which calls of this end do not return, in words; `None` if all of them do.
    pub(crate) fn what_hangs(
        &self,
        side: Side,
        path_of: impl Fn(EntryId) -> Option<Vec<u8>>,
    ) -> Option<String> {
        let long = self.long();
        let told: Vec<String> =
            long.iter().take(TOLD_MAX).map(|deed| deed.told(&path_of)).collect();
        if told.is_empty() {
            return None;
        }
        let others = match long.len() - told.len() {
            0 => String::new(),
            count => format!("; and {count} more"),
        };
        let side = side.word();
        Some(format!("storage at the {side} has not answered: {}{others}", told.join("; ")))
    }
}

impl Deed {
    /// `write run7/a (OST0003), asked 13 s ago`
    fn told(&self, path_of: impl Fn(EntryId) -> Option<Vec<u8>>) -> String {
        let path = match &self.subject {
            Subject::Entry(entry) => path_of(*entry),
            Subject::In(directory) => Some(directory.path()),
            Subject::Target => None,
        };
        let path =
            path.filter(|path| !path.is_empty()).unwrap_or_else(|| b"its directory".to_vec());
        let path = lads_core::entry::shortened(path);
        let ost = self.ost.map_or_else(String::new, |ost| format!(" ({ost})"));
        format!(
            "{} {}{ost}, asked {} s ago",
            self.operation.verb(),
            String::from_utf8_lossy(&path),
            self.since.elapsed().as_secs()
        )
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut list = lock(&self.deeds.0);
        if let Some(at) = list.under_way.iter().position(|deed| deed.number == self.number) {
            list.under_way.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_returned_is_not_told_and_the_oldest_is_first() {
        let deeds = Deeds::default();
        let begin = |entry| deeds.begin(Operation::Read, Subject::Entry(EntryId(entry)), None);
        assert_eq!(deeds.oldest_entry(), None);
        let (first, second) = (begin(1), begin(2));
        assert_eq!(deeds.oldest_entry(), Some(EntryId(1)));
        drop(first);
        assert_eq!(deeds.oldest_entry(), Some(EntryId(2)));
        assert!(deeds.long().is_empty());
        drop(second);
        assert_eq!(deeds.oldest_entry(), None);
    }
}
