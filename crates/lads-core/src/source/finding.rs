//! What the walk finds, and what of it is announced.

use super::Source;
use super::event::{Found, Note, Outcome};
use super::file::{File, Known, Place, Step, Tries};
use super::links::{First, LinkKey, LinkRole};
use super::settling::Held;
use crate::entry::{Entry, Kind};
use crate::issue::{Failure, Operation, Reason, Side};
use crate::layout::Layout;
use crate::limits::{DIRECTORY_METADATA_BYTES_MAX, ENTRY_BYTES_MAX};
use crate::pass::Pass;
use crate::units::{EntryId, Instant};

impl Source {
    /// The walk met an entry.
    pub(super) fn on_found(&mut self, now: Instant, mut found: Box<Found>) {
        self.count_found(&found);
        for settled_at in [&mut found.settled_at, &mut found.settled_at_sink] {
            *settled_at = settled_at.filter(|&settled_at| settled_at > now);
        }
        if found.entry.is_directory() {
            self.on_directory(found.entry);
        } else if found.entry.variable_bytes() > ENTRY_BYTES_MAX {
            self.on_too_large(&found);
        } else if let Some(old) = found.replaces {
            self.on_found_anew(old, *found);
        } else {
            self.on_found_first(found);
        }
    }

    /// The walk could not look at an entry.
    pub(super) fn on_unreadable(&mut self, entry: EntryId, parent: EntryId, failure: Failure) {
        self.window.on_open();
        self.end(entry, parent, Outcome::Failed(failure));
    }

    /// The walk passes over an entry.
    pub(super) fn on_passed(&mut self, entry: EntryId, parent: EntryId, pass: Pass) {
        self.directories.on_child(parent);
        self.window.on_open();
        self.counters.files_found += 1;
        self.counters.passed.add(pass);
        self.end(entry, parent, Outcome::Passed);
    }

    /// A file that changed is gone, and cannot be tried again.
    pub(super) fn on_gone(&mut self, entry: EntryId, failure: Failure) {
        if self.files.get(entry).is_some() {
            self.end_file(entry, Outcome::Failed(failure));
        }
    }

    fn count_found(&mut self, found: &Found) {
        if found.entry.is_directory() {
            self.counters.directories_found += 1;
        } else if found.replaces.is_none() {
            self.counters.files_found += 1;
        }
    }

    /// A directory with too many attributes is announced without them, so that its entries still
    /// arrive.
    fn on_directory(&mut self, mut entry: Entry) {
        let bytes = entry.variable_bytes();
        let all_bytes = self.directories.metadata_bytes().saturating_add(bytes as u64);
        let is_too_large = bytes > ENTRY_BYTES_MAX || all_bytes > DIRECTORY_METADATA_BYTES_MAX;
        if is_too_large {
            entry.metadata.xattrs.clear();
        }
        self.directories.on_found(entry.id, entry.parent, entry.variable_bytes() as u64);
        if is_too_large {
            self.directories.on_failed(entry.id, large_metadata());
        }
        self.outbox.announce(entry);
    }

    /// An entry that is not a directory has more attributes than fit into a message: it fails.
    fn on_too_large(&mut self, found: &Found) {
        let outcome = Outcome::Failed(large_metadata());
        if let Some(old) = found.replaces {
            if self.files.get(old).is_some() {
                self.end_file(old, outcome);
            }
            return;
        }
        self.directories.on_child(found.entry.parent);
        self.window.on_open();
        self.end(found.entry.id, found.entry.parent, outcome);
    }

    /// A file was looked at again, and replaces the entry that it was before.
    fn on_found_anew(&mut self, old: EntryId, mut found: Found) {
        let Some(mut file) = self.files.remove(old) else { return };
        if let Kind::File { is_different, .. } = &mut found.entry.kind {
            *is_different = file.known() == Known::Different;
        }
        self.files.on_failed(old, &file);
        let link = self.keep_link(&found.entry, file.link());
        self.counters.bytes_found -= file.data_bytes();
        self.outbox.note(Note { entry: old, outcome: Outcome::Replaced });
        let tries = file.tries();
        file.step(Step::Ended);
        self.open_file(found, tries, link);
    }

    fn on_found_first(&mut self, mut found: Box<Found>) {
        self.window.on_open();
        self.directories.on_child(found.entry.parent);
        let version = (found.entry.size(), found.entry.metadata.mtime);
        let mut key = None;
        if let Some(name) = found.link.take() {
            key = Some(LinkKey { device: name.device, inode: name.inode });
            match self.links.on_found(&name, version) {
                LinkRole::First => {}
                LinkRole::Waits => {
                    found.link = Some(name);
                    self.links.hold(found);
                    return;
                }
                LinkRole::Further { target } => return self.open_further(*found, target),
            }
        }
        self.open_file(*found, Tries::default(), key);
    }

    /// A further name of a file that the sink has under its first name. If the path of the first
    /// name is too long for a message, the further name fails: sent as a file of its own, it would
    /// not be a name of the same file.
    fn open_further(&mut self, mut found: Found, target: Option<Vec<u8>>) {
        let Some(target) = target else {
            let failure = Failure::new(Side::Source, Operation::Examine, Reason::TooDeep);
            return self.end(found.entry.id, found.entry.parent, Outcome::Failed(failure));
        };
        found.entry.kind = Kind::HardLink { target };
        self.open_file(found, Tries::default(), None);
    }

    /// Keeps the link group of a first name that was looked at again, if that name still leads to
    /// the same file. Otherwise the next name becomes first.
    fn keep_link(&mut self, entry: &Entry, link: Option<LinkKey>) -> Option<LinkKey> {
        let key = link?;
        if matches!(entry.kind, Kind::File { identity, .. } if identity.inode == key.inode) {
            return Some(key);
        }
        self.on_first_ended(key, First::Failed);
        None
    }

    /// The first of several names has ended: the others need not wait any more.
    pub(super) fn on_first_ended(&mut self, key: LinkKey, first: First) {
        for (mut found, role) in self.links.on_first_ended(key, first) {
            found.link = None;
            match role {
                LinkRole::Further { target } => self.open_further(*found, target),
                LinkRole::First | LinkRole::Waits => {
                    self.open_file(*found, Tries::default(), Some(key));
                }
            }
        }
    }

    /// Announces a file, link or special file, at once or when any change of it would show.
    fn open_file(&mut self, found: Found, tries: Tries, link: Option<LinkKey>) {
        match self.settling.until(&found) {
            Some(until) => self.settling.hold(until, Held { found, tries, link }),
            None => self.announce(found, tries, link),
        }
    }

    /// Announces the files that were held back until now.
    pub(super) fn announce_settled(&mut self, now: Instant) {
        while let Some(Held { found, tries, link }) = self.settling.next(now) {
            self.announce(found, tries, link);
        }
    }

    fn announce(&mut self, found: Found, tries: Tries, link: Option<LinkKey>) {
        let Found { entry, layout, mirrors, data, disk_offset, .. } = found;
        let layout = layout.in_pages();
        let mirrors = mirrors.into_iter().map(Layout::in_pages).collect();
        let place = entry.is_file().then_some(Place { layout, mirrors, data, disk_offset });
        let file = File::new(&entry, place, tries, link);
        self.counters.bytes_found += file.data_bytes();
        self.files.add(entry.id, file);
        self.outbox.announce(entry);
    }
}

fn large_metadata() -> Failure {
    Failure::new(Side::Source, Operation::Examine, Reason::LargeMetadata)
}
