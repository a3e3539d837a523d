//! From which source an entry is taken if several sources have one that would get the same name.
//!
//! As in rsync, the first named source wins, but a directory wins over anything else. Directories
//! of the same name become one directory, with the entries of all and the metadata of the first.
//! Each name is looked up in the other sources when it is met. So nothing is kept, the answer does
//! not depend on an earlier attempt, and where only one source has a directory, nothing is looked
//! up below it.

use super::roots::WalkRoot;
use crate::paths::Directory;
use std::collections::HashMap;
use std::sync::Arc;

/// The directories of the sources that are one directory at the sink.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// In the order in which the sources were named.
    directories: Vec<Arc<Directory>>,
    /// The indices of directories that are moved whole.
    whole: Vec<usize>,
    /// The indices of directories of which only one name is moved, by that name.
    named: HashMap<Vec<u8>, Vec<usize>>,
}

impl Level {
    /// The sources named on the command line.
    pub(super) fn of(roots: &[WalkRoot]) -> Self {
        let mut level = Self::default();
        for (index, root) in roots.iter().enumerate() {
            level.directories.push(Arc::clone(&root.directory));
            match root.is_contents_only {
                true => level.whole.push(index),
                false => level.named.entry(root.name.clone()).or_default().push(index),
            }
        }
        level
    }

    /// Directories that are moved with everything in them.
    pub(super) fn below(directories: Vec<Arc<Directory>>) -> Self {
        let whole = (0..directories.len()).collect();
        Self { directories, whole, named: HashMap::new() }
    }

    /// One of the directories.
    pub(super) fn directory(&self, index: usize) -> &Arc<Directory> {
        &self.directories[index]
    }

    /// All of them.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Arc<Directory>> {
        self.directories.iter()
    }

    /// The indices of directories that may provide an entry of this name, in the order in which the
    /// sources were named.
    pub(super) fn with_name(&self, name: &[u8]) -> Vec<usize> {
        let named = self.named.get(name).into_iter().flatten();
        let mut indices: Vec<usize> = named.chain(&self.whole).copied().collect();
        indices.sort_unstable();
        indices
    }

    /// Whether only one name of this directory is moved: the one that the user gave.
    pub(super) fn is_named(&self, index: usize) -> bool {
        !self.whole.contains(&index)
    }

    /// The indices of directories that are moved whole.
    pub(super) fn whole(&self) -> impl Iterator<Item = usize> {
        self.whole.iter().copied()
    }

    /// From which directories an entry is taken whose name was met in one of them: from that one,
    /// and if it is a directory, from later ones, too. `None` if it is taken from others.
    ///
    /// `look` returns whether the entry of this name in another directory is a directory; `None` if
    /// none exists or it is not moved.
    pub(super) fn taken_from(
        &self,
        index: usize,
        name: &[u8],
        is_directory: bool,
        look: impl Fn(&Arc<Directory>) -> Option<bool>,
    ) -> Option<Vec<Arc<Directory>>> {
        let mut from = vec![Arc::clone(&self.directories[index])];
        if self.directories.len() == 1 {
            return Some(from);
        }
        for other in self.with_name(name).into_iter().filter(|&other| other != index) {
            let directory = &self.directories[other];
            let Some(is_theirs_directory) = look(directory) else { continue };
            let is_theirs_first = other < index;
            match (is_directory, is_theirs_directory) {
                (false, true) => return None,
                (true, false) => {}
                _ if is_theirs_first => return None,
                (true, true) => from.push(Arc::clone(directory)),
                (false, false) => {}
            }
        }
        Some(from)
    }
}
