//! Tracks the entries that `--remove-source-files` removes: each is still at the source or at
//! the target with the content that it had.

use super::plan::Step;
use super::view::{Kinds, view};
use lads_trees::hash_of;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The bits of a mode that are the type of an entry.
const TYPE_BITS: u32 = 0o170_000;

/// What an entry other than a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The hash of a file.
    File(u64),
    /// The text of a link.
    Link(PathBuf),
    /// The type and the number of a device; of a FIFO or a socket, the number is 0.
    Special(u32, u64),
}

impl Content {
    /// The content of the entry at `path`; `None` if it is a directory, or cannot be read.
    fn of(path: &Path, metadata: &Metadata) -> Option<Self> {
        let kind = metadata.file_type();
        match () {
            () if kind.is_dir() => None,
            () if kind.is_file() => hash_of(path).map(Self::File),
            () if kind.is_symlink() => fs::read_link(path).ok().map(Self::Link),
            () => Some(Self::Special(metadata.mode() & TYPE_BITS, metadata.rdev())),
        }
    }

    /// Whether the entry at `path` has this content.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        path.symlink_metadata()
            .is_ok_and(|metadata| Self::of(path, &metadata).as_ref() == Some(self))
    }
}

/// The entries that the commands of a round remove at the source. Paths are relative to its root.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Whether the command of this step removes entries.
    is_moving: bool,
    /// The entries that were at the source in this step, with their latest contents.
    at_source: HashMap<PathBuf, Content>,
    /// The entries that earlier commands have removed at the source.
    moved: BTreeMap<PathBuf, Content>,
}

impl Moves {
    /// Starts a step.
    pub(super) fn begin_step(&mut self, step: &Step, source: &Path) {
        self.at_source.clear();
        self.is_moving = step.moves();
        if self.is_moving {
            view(source, step.choice.follows_links(), &mut |path, metadata| {
                self.on_changed(path.strip_prefix(source).expect("it lies there"), path, metadata);
            });
        }
    }

    /// Records the content of an entry of the source, which is new or has changed.
    pub(super) fn on_changed(&mut self, below: &Path, path: &Path, metadata: &Metadata) {
        if self.is_moving
            && let Some(content) = Content::of(path, metadata)
        {
            self.at_source.insert(below.to_owned(), content);
        }
    }

    /// Records that chaos has removed these entries of the source.
    pub(super) fn forget<'a>(&mut self, gone: impl Iterator<Item = &'a Path>) {
        gone.for_each(|below| {
            self.at_source.remove(below);
        });
    }

    /// Records that a rival has copied its files to the target: it may have replaced entries that
    /// were moved there before.
    pub(super) fn on_rival(&mut self, rival: &Kinds) {
        self.moved.retain(|below, _| !may_be_replaced(below, rival));
    }

    /// Records that the target has other versions of these entries.
    pub(super) fn forget_moved(&mut self, below: &[&PathBuf]) {
        self.moved.retain(|moved, _| !below.contains(&moved));
    }

    /// Returns the entries that are not at the source any more, although chaos has not removed
    /// them, with their contents. From now on, all of them count as moved.
    pub(super) fn take_moved(&mut self, source: &Path) -> BTreeMap<PathBuf, Content> {
        let is_gone = |below: &Path| source.join(below).symlink_metadata().is_err();
        // A new entry at or above the path takes its place at the target.
        let is_replaced = |below: &Path| {
            let mut above = below.ancestors().skip(1).map(|above| source.join(above));
            !is_gone(below)
                || above.any(|path| path.symlink_metadata().is_ok_and(|it| !it.is_dir()))
        };
        self.moved.retain(|below, _| !is_replaced(below));
        self.moved.extend(self.at_source.drain().filter(|(below, _)| is_gone(below)));
        self.moved.clone()
    }
}

/// Whether copying a tree replaces this entry of the target.
pub(super) fn may_be_replaced(below: &Path, tree: &Kinds) -> bool {
    let mut above = below.ancestors().skip(1).filter_map(|above| tree.get(above));
    tree.contains_key(below) || above.any(|kind| !kind.is_dir())
}
