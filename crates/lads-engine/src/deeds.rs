//! Which calls to storage the threads of an end are in. With it, LADS can say which file is being
//! moved, and which call does not return.

use crate::board::lock;
use crate::paths::Directory;
use lads_core::issue::{Operation, Side};
use lads_core::units::{EntryId, OstId};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A call that takes longer is reported when the transfer is to stop. A busy disk often takes half
/// of this; with the double, LADS would say nothing of calls that a user waits for.
const LONG: Duration = Duration::from_secs(1);

/// The most calls that are reported one by one: all threads may wait for the same server.
const TOLD_MAX: usize = 3;

/// The file or directory that a call is about.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// An entry that has not ended.
    Entry(EntryId),
    /// A directory, or an entry in it.
    In(Arc<Directory>),
    /// The target directory.
    Target,
}

/// A call that has begun and not returned.
#[derive(Clone, Debug)]
struct Deed {
    number: u64,
    operation: Operation,
    subject: Subject,
    ost: Option<OstId>,
    since: Instant,
}

/// The calls of an end that have begun and not returned.
#[derive(Debug, Default)]
pub(crate) struct Deeds(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    under_way: Vec<Deed>,
    begun: u64,
}

/// Stands for a call in `Deeds`; dropped when the call has returned.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    deeds: &'a Deeds,
    number: u64,
}

impl Deeds {
    /// A thread is about to call storage.
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

    /// The entry whose call has been running longest.
    pub(crate) fn oldest_entry(&self) -> Option<EntryId> {
        let of_entry = |deed: &Deed| match deed.subject {
            Subject::Entry(entry) => Some((deed.number, entry)),
            _ => None,
        };
        let oldest = lock(&self.0).under_way.iter().filter_map(of_entry).min();
        oldest.map(|(_, entry)| entry)
    }

    /// Calls that take longer than [`LONG`], the longest first.
    fn long(&self) -> Vec<Deed> {
        let mut long = lock(&self.0).under_way.clone();
        long.retain(|deed| deed.since.elapsed() >= LONG);
        long.sort_by_key(|deed| deed.number);
        long
    }

    /// Which calls of this end do not return, in words; `None` if none takes long.
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
            "{} {}{ost}, called {} s ago",
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
