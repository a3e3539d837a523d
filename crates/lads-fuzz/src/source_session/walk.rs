//! The tree that a source walks: directories, each told of when all in it has been met.

use crate::choices::Choices;
use crate::nonsense;
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::issue::Side;
use lads_core::layout::Layout;
use lads_core::placement::Striping;
use lads_core::plan::align_data;
use lads_core::range::RangeSet;
use lads_core::source::{Event, Found, LinkName};
use lads_core::units::{EntryId, OstId};
use std::collections::BTreeMap;

/// OSTs of the source.
pub(super) const OST_COUNT: u32 = 3;

/// Entries that a tree has at most.
const ENTRIES_MAX: u64 = 60;

/// Pieces of 2 KiB in the largest file.
const PIECES_MAX: u32 = 24;
const PIECE_BYTES: u64 = 2048;

/// A walk through a tree that is made up on the way.
#[derive(Debug)]
pub(super) struct Walk {
    entry_last: u64,
    /// The directory in which the walk is.
    inside: Option<EntryId>,
    /// Parents of the directories that are still to be met.
    promised: Vec<EntryId>,
    has_ended: bool,
    /// What was found, by number.
    pub(super) found: BTreeMap<EntryId, Found>,
}

impl Walk {
    /// A walk that has met nothing yet.
    pub(super) fn new() -> Self {
        let (inside, promised, found) = (Some(EntryId::ROOT), Vec::new(), BTreeMap::new());
        Self { entry_last: 0, inside, promised, has_ended: false, found }
    }

    /// A number that was not used before.
    pub(super) fn next_id(&mut self) -> EntryId {
        self.entry_last += 1;
        EntryId(self.entry_last)
    }

    /// What is met next: a file if that can be had, otherwise the end of a directory; if not
    /// `is_good`, something that cannot be looked at.
    pub(super) fn next(&mut self, choices: &mut Choices<'_>, is_good: bool) -> Option<Event> {
        let is_full = self.entry_last >= ENTRIES_MAX;
        let Some(parent) = self.inside else { return self.enter(choices, is_good) };
        match choices.below(8) {
            0..=5 if !is_full && is_good => {
                let found = self.find(parent, choices);
                Some(Event::Found(Box::new(found)))
            }
            0..=5 if !is_full => {
                let failure = nonsense::failure(choices, Side::Source);
                let entry = self.next_id();
                Some(Event::Unreadable { entry, parent, is_counted: false, failure })
            }
            _ => Some(self.leave(parent, choices, is_good)),
        }
    }

    /// What is left of the walk, as quickly as can be.
    pub(super) fn last(&mut self, choices: &mut Choices<'_>) -> Option<Event> {
        match self.inside {
            Some(directory) => {
                self.inside = None;
                Some(Event::Listed { directory, subdirectory_count: 0 })
            }
            None => self.enter(choices, true),
        }
    }

    fn leave(&mut self, directory: EntryId, choices: &mut Choices<'_>, is_good: bool) -> Event {
        self.inside = None;
        if !is_good && directory != EntryId::ROOT {
            let failure = nonsense::failure(choices, Side::Source);
            return Event::NotListed { directory, failure };
        }
        let count = choices.below(3);
        self.promised.extend((0..count).map(|_| directory));
        Event::Listed { directory, subdirectory_count: count.into() }
    }

    fn enter(&mut self, choices: &mut Choices<'_>, is_good: bool) -> Option<Event> {
        let Some(parent) = self.promised.pop() else {
            let is_first = !std::mem::replace(&mut self.has_ended, true);
            return is_first.then_some(Event::WalkEnded);
        };
        let id = self.next_id();
        if !is_good {
            let failure = nonsense::failure(choices, Side::Source);
            return Some(Event::Unreadable { entry: id, parent, is_counted: true, failure });
        }
        self.inside = Some(id);
        Some(Event::Found(Box::new(Found::new(entry(id, parent, Kind::Directory)))))
    }

    fn find(&mut self, parent: EntryId, choices: &mut Choices<'_>) -> Found {
        let id = self.next_id();
        let found = match choices.below(8) {
            7 => Found::new(entry(id, parent, Kind::Symlink { target: b"there".to_vec() })),
            _ => file(id, parent, choices),
        };
        self.found.insert(id, found.clone());
        found
    }

    /// A file is looked at anew.
    pub(super) fn find_again(&mut self, old: EntryId) -> Found {
        let mut found = self.found[&old].clone();
        found.entry.id = self.next_id();
        (found.link, found.replaces) = (None, Some(old));
        self.found.insert(found.entry.id, found.clone());
        found
    }
}

fn entry(id: EntryId, parent: EntryId, kind: Kind) -> Entry {
    let name = format!("n{}", id.0).into_bytes();
    Entry { id, parent, name, kind, metadata: Metadata::default() }
}

fn file(id: EntryId, parent: EntryId, choices: &mut Choices<'_>) -> Found {
    let size = u64::from(choices.below(PIECES_MAX)) * PIECE_BYTES + u64::from(choices.below(2));
    let data = choices.is_one_in(6).then(|| holes(size, choices));
    let link = choices.is_one_in(8).then(|| LinkName {
        device: 1,
        inode: choices.below(2).into(),
        name_count: 2 + u64::from(choices.below(3)),
        path: format!("n{}", id.0).into_bytes(),
    });
    let inode = link.as_ref().map_or(id.0 + 100, |link| link.inode);
    let kind = Kind::File {
        identity: Identity { size, inode, ..Identity::default() },
        data_bytes: data.as_ref().map_or(size, RangeSet::byte_count),
        striping: Striping::default(),
        source_ost: OstId(0),
        is_different: false,
    };
    let mirror_count = if choices.is_one_in(6) { 1 + choices.below(2) } else { 0 };
    Found {
        layout: layout(choices),
        mirrors: (0..mirror_count).map(|_| layout(choices)).collect(),
        data,
        disk_offset: choices.is_one_in(8).then(|| choices.number()),
        link,
        ..Found::new(entry(id, parent, kind))
    }
}

/// Where a file of this size has data: in some of its pages.
fn holes(size: u64, choices: &mut Choices<'_>) -> RangeSet {
    let mut data = RangeSet::new();
    for _ in 0..choices.below(4) {
        let start = u64::from(choices.below(PIECES_MAX)) * PIECE_BYTES;
        data.insert(start.min(size)..(start + PIECE_BYTES).min(size));
    }
    align_data(&data, size)
}

fn layout(choices: &mut Choices<'_>) -> Layout {
    let (first, count) = (choices.below(OST_COUNT), 1 + choices.below(OST_COUNT));
    let osts = (0..count).map(|stripe| OstId((first + stripe) % OST_COUNT)).collect();
    Layout::striped(PIECE_BYTES << choices.below(3), osts).expect("it has a size and OSTs")
}
