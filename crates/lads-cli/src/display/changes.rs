//! Counts the changes that a dry run reports, for its summary.

use lads_core::message::{Line, Verb};
use lads_core::sizes::{bytes, counted};

/// The number of changes of each kind.
#[derive(Debug, Default)]
pub(super) struct Changes {
    files: u64,
    /// Bytes of `files`.
    bytes: u64,
    /// Links, devices, FIFOs and sockets.
    others: u64,
    directories: u64,
    deletions: u64,
}

impl Changes {
    /// Counts a line if it reports a change.
    pub(super) fn count(&mut self, line: &Line) {
        match line.verb {
            Verb::Send => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(line.bytes);
            }
            Verb::Symlink | Verb::HardLink | Verb::Special => self.others += 1,
            Verb::Directory => self.directories += 1,
            Verb::Delete => self.deletions += 1,
            _ => {}
        }
    }

    /// Returns a text such as `2 files (3.0 MiB) and 1 directory`; `nothing` if there are none.
    /// Deletions are not in it.
    pub(super) fn transfers(&self) -> String {
        let parts = [
            (self.files, format!("{} ({})", counted(self.files, "file"), bytes(self.bytes))),
            (self.others, other_entries(self.others)),
            (self.directories, directories(self.directories)),
        ];
        let parts: Vec<String> =
            parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
        match parts.split_last() {
            None => "nothing".to_owned(),
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
        }
    }

    /// Returns the number of entries that would be deleted.
    pub(super) fn deletions(&self) -> u64 {
        self.deletions
    }
}

/// `3 other entries`: links, devices, FIFOs and sockets.
pub(super) fn other_entries(number: u64) -> String {
    match number {
        1 => "1 other entry".to_owned(),
        _ => format!("{} other entries", lads_core::sizes::count(number)),
    }
}

/// `3 directories`
fn directories(number: u64) -> String {
    match number {
        1 => "1 directory".to_owned(),
        _ => format!("{} directories", lads_core::sizes::count(number)),
    }
}

/// `3 entries`
pub(super) fn entries(number: u64) -> String {
    match number {
        1 => "1 entry".to_owned(),
        _ => format!("{} entries", lads_core::sizes::count(number)),
    }
}
