//! What a source may say to a sink.

use super::{ProtocolError, check_frame_counts, check_text};
use crate::entry::{Entry, Kind, Metadata, Timestamp, Xattr, is_safe_name, is_safe_path};
use crate::layout::STRIPE_COUNT_MAX;
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, DEPTH_MAX, DIRECTORIES_OPEN_MAX,
    DIRECTORY_METADATA_BYTES_MAX, ENTRIES_OPEN_MAX, ENTRY_BYTES_MAX, FILE_BYTES_MAX,
    LINK_BYTES_MAX, METADATA_BYTES_MAX, OSTS_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
use crate::message::{Ending, Message, Root};
use crate::units::{EntryId, EntryMap, EntrySet};

const NANOS_PER_SECOND: u32 = 1_000_000_000;
/// All mode bits that `chmod` can set.
const MODE_BITS: u32 = 0o7777;
/// The number that means "no change" to `chown`.
const NO_ID: u32 = u32::MAX;

/// The entries that a source has announced and that have not ended, and whether the source has sent
/// ROOTS.
#[derive(Debug)]
pub struct AtSink {
    has_roots: bool,
    live: EntryMap<Live>,
    /// Entries that have ended here while blocks of them were still being written.
    late: EntrySet,
    announced_last: EntryId,
    directory_count: usize,
    metadata_bytes: u64,
}

/// An entry that has not ended.
#[derive(Clone, Copy, Debug)]
struct Live {
    is_directory: bool,
    parent: EntryId,
    /// Directories in it that have not ended.
    directories_open: u32,
    /// Whether the source has said that everything in it has ended.
    is_closing: bool,
    /// The number of directories above it, without the root.
    depth: u32,
    bytes: u64,
}

impl Default for AtSink {
    fn default() -> Self {
        Self {
            has_roots: false,
            live: EntryMap::default(),
            late: EntrySet::default(),
            announced_last: EntryId::ROOT,
            directory_count: 0,
            metadata_bytes: 0,
        }
    }
}

impl AtSink {
    /// Checks whether the source may send this message now. Changes nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, message: &Message) -> Result<(), ProtocolError> {
        let has_begun = matches!(
            message,
            Message::Roots(_) | Message::Stop(_) | Message::Heartbeat | Message::Frames(_)
        );
        if !has_begun && !self.has_roots {
            return Err(ProtocolError::OutOfPlace("a message before ROOTS"));
        }
        match message {
            Message::Roots(_) if self.has_roots => Err(ProtocolError::OutOfPlace("a second ROOTS")),
            Message::Roots(roots) => roots.iter().try_for_each(check_root),
            Message::NewFile(entries) => self.check_entries(entries),
            Message::FileDone(endings) => {
                endings.iter().try_for_each(|(entry, ending)| self.check_ending(*entry, ending))
            }
            Message::Finish { .. } if !self.live.values().all(|live| live.is_closing) => {
                Err(ProtocolError::OutOfPlace("FINISH before all entries have ended"))
            }
            // THERE is compared with its question by the session.
            Message::Finish { .. }
            | Message::Heartbeat
            | Message::Staged(_)
            | Message::There { .. } => Ok(()),
            Message::Stop(text) => check_text(text),
            Message::Frames(counts) => check_frame_counts(counts),
            _ => Err(ProtocolError::OutOfPlace("a message that only a sink sends")),
        }
    }

    /// The source has sent ROOTS.
    pub fn on_roots(&mut self) {
        self.has_roots = true;
    }

    /// An entry was announced, and passed [`Self::check`].
    pub fn on_announced(&mut self, entry: &Entry) {
        let bytes = bytes_of(entry);
        let above = self.live.get(&entry.parent);
        let depth = above.map_or(0, |above| above.depth.saturating_add(1));
        let live = Live {
            is_directory: entry.is_directory(),
            parent: entry.parent,
            directories_open: 0,
            is_closing: false,
            depth,
            bytes,
        };
        self.directory_count += usize::from(live.is_directory);
        if live.is_directory
            && let Some(above) = self.live.get_mut(&entry.parent)
        {
            above.directories_open += 1;
        }
        self.metadata_bytes += bytes;
        self.announced_last = self.announced_last.max(entry.id);
        self.live.insert(entry.id, live);
    }

    /// An entry has ended. No table has anything of it, and its number may not be used any more.
    /// Returns the directory that it is in, if that one was to be closed and waited only for this.
    pub fn on_ended(&mut self, entry: EntryId) -> Option<EntryId> {
        let live = self.live.remove(&entry)?;
        self.metadata_bytes -= live.bytes;
        if !live.is_directory {
            return None;
        }
        self.directory_count -= 1;
        let above = self.live.get_mut(&live.parent)?;
        above.directories_open -= 1;
        (above.is_closing && above.directories_open == 0).then_some(live.parent)
    }

    /// An entry has ended while blocks of it are still being written. Its number stays in use until
    /// [`Self::on_written`].
    pub fn on_ended_early(&mut self, entry: EntryId) {
        self.on_ended(entry);
        self.late.insert(entry);
    }

    /// The last write of an entry that ended early is complete.
    pub fn on_written(&mut self, entry: EntryId) {
        self.late.remove(&entry);
    }

    /// The source says that everything in this entry has ended. Returns whether the entry is a
    /// directory that may be closed now. One in which other directories are being closed has to
    /// wait: afterwards its mode may not let anybody in.
    pub fn on_closing(&mut self, entry: EntryId) -> bool {
        match self.live.get_mut(&entry) {
            Some(live) if live.is_directory => {
                live.is_closing = true;
                live.directories_open == 0
            }
            _ => false,
        }
    }

    /// Reports whether all entries have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Reports whether this is the number of a directory that has not ended.
    #[must_use]
    pub fn is_directory(&self, entry: EntryId) -> bool {
        self.live.get(&entry).is_some_and(|live| live.is_directory)
    }

    /// Checks that an entry was announced; it may have ended since.
    ///
    /// # Errors
    /// If it was not.
    pub fn check_was_announced(&self, entry: EntryId) -> Result<(), ProtocolError> {
        let was_announced = entry != EntryId::ROOT && entry <= self.announced_last;
        if was_announced { Ok(()) } else { Err(ProtocolError::UnknownEntry(entry)) }
    }

    fn check_entries(&self, entries: &[Entry]) -> Result<(), ProtocolError> {
        // The depth of each directory that this message itself announces; `None` for other entries.
        let mut new: EntryMap<Option<u32>> = EntryMap::default();
        new.reserve(entries.len());
        let (mut directory_count, mut bytes) = (self.directory_count, self.metadata_bytes);
        for entry in entries {
            check_entry(entry)?;
            let is_used = entry.id == EntryId::ROOT
                || self.live.contains_key(&entry.id)
                || self.late.contains(&entry.id);
            if is_used || new.contains_key(&entry.id) {
                return Err(ProtocolError::OutOfPlace("NEW_FILE with a number in use"));
            }
            let Some(depth) = self.depth_in(entry.parent, &new) else {
                return Err(ProtocolError::OutOfPlace("NEW_FILE without a directory"));
            };
            if entry.is_directory() && depth > DEPTH_MAX {
                return Err(ProtocolError::TooMuch("levels of directories"));
            }
            new.insert(entry.id, entry.is_directory().then_some(depth));
            directory_count += usize::from(entry.is_directory());
            bytes += bytes_of(entry);
        }
        let other_count = self.live.len() + new.len() - directory_count;
        if directory_count > DIRECTORIES_OPEN_MAX + BATCH_ENTRIES_MAX
            || other_count > ENTRIES_OPEN_MAX + BATCH_ENTRIES_MAX
        {
            return Err(ProtocolError::TooMuch("entries that have not ended"));
        }
        if bytes > METADATA_BYTES_MAX + BATCH_BYTES_MAX + DIRECTORY_METADATA_BYTES_MAX {
            return Err(ProtocolError::TooMuch("names and attributes"));
        }
        Ok(())
    }

    /// How deep an entry in this directory lies; `None` if there is no such directory, or if
    /// nothing may be added to it any more.
    fn depth_in(&self, parent: EntryId, new: &EntryMap<Option<u32>>) -> Option<u32> {
        if parent == EntryId::ROOT {
            return Some(0);
        }
        let live = self.live.get(&parent).filter(|it| it.is_directory && !it.is_closing);
        let above = live.map(|it| it.depth).or_else(|| new.get(&parent).copied().flatten())?;
        Some(above.saturating_add(1))
    }

    fn check_ending(&self, entry: EntryId, ending: &Ending) -> Result<(), ProtocolError> {
        let live = self.live.get(&entry);
        match (ending, live) {
            (Ending::Failed(_), _) => Err(ProtocolError::OutOfPlace("FILE_DONE of a failure")),
            (Ending::Same | Ending::Different, _) => {
                Err(ProtocolError::OutOfPlace("FILE_DONE of a comparison"))
            }
            (Ending::Incomplete, Some(live)) if !live.is_directory => {
                Err(ProtocolError::OutOfPlace("FILE_DONE that closes a file like a directory"))
            }
            (Ending::CompleteAt { size, mtime }, _)
                if *size > FILE_BYTES_MAX || !is_moment(*mtime) =>
            {
                Err(ProtocolError::Impossible("the end of an unsized file"))
            }
            (Ending::CompleteAt { .. }, Some(live)) if live.is_directory => Err(
                ProtocolError::OutOfPlace("FILE_DONE that ends a directory like an unsized file"),
            ),
            (Ending::Dropped, Some(live)) if live.is_directory => {
                Err(ProtocolError::OutOfPlace("FILE_DONE that drops a directory"))
            }
            (Ending::Complete | Ending::Incomplete, Some(live)) if live.is_closing => {
                Err(ProtocolError::OutOfPlace("a second FILE_DONE for a directory"))
            }
            (_, Some(_)) => Ok(()),
            // The entry may have failed here while this message was under way.
            (_, None) => self.check_was_announced(entry),
        }
    }
}

fn bytes_of(entry: &Entry) -> u64 {
    entry.variable_bytes() as u64
}

fn check_root(root: &Root) -> Result<(), ProtocolError> {
    let is_safe = is_safe_name(&root.name, EntryId::ROOT);
    if is_safe { Ok(()) } else { Err(ProtocolError::UnsafeName) }
}

fn check_entry(entry: &Entry) -> Result<(), ProtocolError> {
    if !is_safe_name(&entry.name, entry.parent) || (entry.name == b"." && !entry.is_directory()) {
        return Err(ProtocolError::UnsafeName);
    }
    if entry.variable_bytes() > ENTRY_BYTES_MAX {
        return Err(ProtocolError::TooMuch("attributes of one entry"));
    }
    check_metadata(&entry.metadata)?;
    match &entry.kind {
        Kind::File { identity, data_bytes, striping, source_ost, is_different: _ } => {
            let is_possible = identity.size <= FILE_BYTES_MAX
                && *data_bytes <= identity.size
                && is_moment(identity.mtime)
                && is_moment(identity.ctime)
                && striping.count as usize <= STRIPE_COUNT_MAX
                && source_ost.0 < OSTS_MAX;
            if is_possible {
                Ok(())
            } else {
                Err(ProtocolError::Impossible("the fields of a file"))
            }
        }
        Kind::Symlink { target } => {
            let is_possible = (1..=LINK_BYTES_MAX).contains(&target.len()) && !target.contains(&0);
            if is_possible {
                Ok(())
            } else {
                Err(ProtocolError::Impossible("an invalid target of a link"))
            }
        }
        Kind::HardLink { target } if !is_safe_path(target) => Err(ProtocolError::UnsafeName),
        Kind::HardLink { .. } | Kind::Directory | Kind::Special { .. } => Ok(()),
    }
}

fn check_metadata(metadata: &Metadata) -> Result<(), ProtocolError> {
    let is_possible = metadata.mode <= MODE_BITS
        && metadata.uid != NO_ID
        && metadata.gid != NO_ID
        && is_moment(metadata.mtime)
        && metadata.xattrs.iter().all(is_attribute);
    if is_possible { Ok(()) } else { Err(ProtocolError::Impossible("invalid metadata")) }
}

fn is_moment(moment: Timestamp) -> bool {
    moment.nanos < NANOS_PER_SECOND
}

fn is_attribute(xattr: &Xattr) -> bool {
    (1..=XATTR_NAME_BYTES_MAX).contains(&xattr.name.len())
        && !xattr.name.contains(&0)
        && xattr.value.len() <= XATTR_VALUE_BYTES_MAX
}
