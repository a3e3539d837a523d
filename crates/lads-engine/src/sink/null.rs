//! The sink that keeps nothing: every entry ends well, and no storage is called.

use super::{SinkEnd, is_file};
use crate::fatal::Fatal;
use crate::job::Options;
use crate::job::null::{check_null_sink, is_null_sink};
use lads_core::entry::Entry;
use lads_core::layout::Layout;
use lads_core::message::Answer;
use lads_core::sink::{Commit, Committed, Event, Examined};
use lads_core::units::{EntryId, OstId};

/// Whether the target keeps nothing. If so, the options are made to fit.
///
/// # Errors
/// An option that has no meaning then.
pub(super) fn prepare(target: &[u8], options: &mut Options) -> Result<bool, Fatal> {
    if !is_null_sink(target) {
        return Ok(false);
    }
    check_null_sink(options)?;
    // Nothing is left that another attempt could find.
    options.journal = false;
    Ok(true)
}

impl SinkEnd {
    /// Wants the data of every file; anything else counts as made.
    pub(super) fn want_all(&self, entries: Vec<Entry>) {
        let want = |entry: Entry| {
            let is_wanted = is_file(&entry.kind) && !self.options.dry_run;
            let examined = match is_wanted {
                true => {
                    let layout = Layout::on(OstId(0));
                    Examined::Want { done: Vec::new(), layout, extents: Vec::new() }
                }
                false if self.options.dry_run => Examined::Answer(Answer::Would),
                false => Examined::Answer(Answer::Made),
            };
            if !is_wanted && !entry.is_directory() {
                self.table.remove(entry.id);
            }
            (entry.id, examined)
        };
        self.tell_last(Event::Examined(entries.into_iter().map(want).collect()));
    }

    /// Files of which all blocks have come are done.
    pub(super) fn forget_files(&self, commits: &[Commit]) {
        let forget = |commit: &Commit| {
            self.table.remove(commit.entry);
            (commit.entry, Committed::Complete)
        };
        self.tell_last(Event::Committed(commits.iter().map(forget).collect()));
    }

    /// Directories in which everything has ended are done.
    pub(super) fn forget_directories(&self, entries: &[EntryId]) {
        let forget = |&entry: &EntryId| {
            self.table.remove(entry);
            (entry, None)
        };
        self.tell_last(Event::Closed(entries.iter().map(forget).collect()));
    }
}
