//! Messages for the sink and notes for the owner that wait, and how much goes into one message.

use super::event::Note;
use crate::entry::Entry;
use crate::message::{Ending, Message};
use crate::tuning::Tuning;
use crate::units::EntryId;
use std::collections::VecDeque;

/// About how many bytes an entry takes in NEW_FILE besides its name and attributes.
const ENTRY_BYTES: usize = 100;

/// What waits to be sent, each kind in its own order.
#[derive(Debug)]
pub(super) struct Outbox {
    tuning: Tuning,
    new_files: VecDeque<Entry>,
    endings: VecDeque<(EntryId, Ending)>,
    /// The number of staged bytes that the sink was last told.
    staged_bytes_told: u64,
    messages: VecDeque<Message>,
    notes: VecDeque<Note>,
}

impl Outbox {
    /// Nothing waits.
    pub(super) fn new(tuning: Tuning) -> Self {
        Self {
            tuning,
            new_files: VecDeque::new(),
            endings: VecDeque::new(),
            staged_bytes_told: 0,
            messages: VecDeque::new(),
            notes: VecDeque::new(),
        }
    }

    /// Announces an entry.
    pub(super) fn announce(&mut self, entry: Entry) {
        self.new_files.push_back(entry);
    }

    /// Tells the sink how an entry ends, as far as this end is concerned.
    pub(super) fn tell_ending(&mut self, entry: EntryId, ending: Ending) {
        self.endings.push_back((entry, ending));
    }

    /// Any other message, after all messages that were added before.
    pub(super) fn tell(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// Notes for the owner how an entry ended.
    pub(super) fn note(&mut self, note: Note) {
        self.notes.push_back(note);
    }

    /// The next entry that ended.
    pub(super) fn next_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// How many notes the owner has not read.
    pub(super) fn note_count(&self) -> usize {
        self.notes.len()
    }

    /// Whether nothing waits for the sink, if the stage holds `staged_bytes`.
    pub(super) fn is_empty(&self, staged_bytes: u64) -> bool {
        self.new_files.is_empty()
            && self.endings.is_empty()
            && self.messages.is_empty()
            && !self.has_stage_news(staged_bytes)
    }

    /// Entries to announce now, as many as one message should hold.
    pub(super) fn next_new_files(&mut self) -> Vec<Entry> {
        let mut bytes = 0;
        let mut entries = Vec::new();
        while bytes < self.tuning.announced_bytes
            && let Some(entry) = self.new_files.pop_front()
        {
            bytes += ENTRY_BYTES + entry.variable_bytes();
            entries.push(entry);
        }
        entries
    }

    /// The next other message, if the stage holds `staged_bytes`.
    pub(super) fn next(&mut self, staged_bytes: u64) -> Option<Message> {
        if !self.endings.is_empty() {
            let count = self.endings.len().min(self.tuning.rows_per_message);
            return Some(Message::FileDone(self.endings.drain(..count).collect()));
        }
        if self.has_stage_news(staged_bytes) {
            self.staged_bytes_told = staged_bytes;
            return Some(Message::Staged(staged_bytes));
        }
        self.messages.pop_front()
    }

    /// Whether the sink should be told how many bytes are staged.
    fn has_stage_news(&self, bytes: u64) -> bool {
        let told = self.staged_bytes_told;
        bytes.abs_diff(told) >= self.tuning.staged_step_bytes || (bytes == 0 && told > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Kind, Metadata};

    #[test]
    fn entries_with_long_names_are_announced_together_too() {
        let tuning = Tuning { announced_bytes: 3 * (ENTRY_BYTES + 200), ..Tuning::DEFAULT };
        let mut outbox = Outbox::new(tuning);
        for number in 1..=9 {
            let (id, parent, name) = (EntryId(number), EntryId::ROOT, vec![b'n'; 200]);
            let metadata = Metadata::default();
            outbox.announce(Entry { id, parent, name, kind: Kind::Directory, metadata });
        }
        assert_eq!([0; 4].map(|_| outbox.next_new_files().len()), [3, 3, 3, 0]);
    }

    #[test]
    fn the_sink_hears_of_large_steps_of_the_stage_and_that_it_is_empty() {
        let mut outbox = Outbox::new(Tuning::DEFAULT);
        let step = Tuning::DEFAULT.staged_step_bytes;
        assert_eq!(outbox.next(0), None);
        assert_eq!(outbox.next(step - 1), None);
        assert_eq!(outbox.next(step), Some(Message::Staged(step)));
        assert_eq!(outbox.next(1), None);
        assert_eq!(outbox.next(0), Some(Message::Staged(0)));
        assert_eq!(outbox.next(0), None);
    }
}
