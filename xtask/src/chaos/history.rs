//! Records all contents that each file has ever had: the target may hold any of them under its
//! name.

use super::moves::Moves;
use super::plan::Step;
use super::view::view;
use lads_trees::{hash_of, is_own_name, visit};
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Everything that was ever below the source, below a rival's source, or at the target before the
/// round. Paths are relative to the root of the tree.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The hashes of the whole files.
    versions: HashMap<PathBuf, HashSet<u64>>,
    /// All names that each file has ever had, by device and inode.
    names: HashMap<(u64, u64), HashSet<PathBuf>>,
    /// The paths of all entries, of any type.
    known: HashSet<PathBuf>,
    /// Files whose content has changed, but whose size and modification time have not.
    pub(super) stealthy: HashSet<PathBuf>,
    /// Whether the command of the current step copies what links lead to.
    follows_links: bool,
    /// The entries that the commands remove at the source.
    pub(super) moves: Moves,
    /// Files that have changed since [`Self::begin_step`].
    changed: HashSet<PathBuf>,
    /// Whether the source has lost a name.
    pub(super) has_lost_names: bool,
}

impl History {
    /// Records everything that is below `root` now: all of it may be at the target.
    pub(super) fn learn(&mut self, root: &Path) {
        view(root, self.follows_links, &mut |path, metadata| self.learn_one(root, path, metadata));
    }

    fn learn_one(&mut self, root: &Path, path: &Path, metadata: &Metadata) {
        let below = path.strip_prefix(root).expect("it lies there").to_owned();
        if metadata.is_file()
            && let Some(hash) = hash_of(path)
        {
            self.versions.entry(below.clone()).or_default().insert(hash);
            let inode = (metadata.dev(), metadata.ino());
            self.names.entry(inode).or_default().insert(below.clone());
        }
        self.known.insert(below);
    }

    /// Records that the entry at `path` below the source `root` has changed, under this name and
    /// under all other names of the same file.
    pub(super) fn on_changed(&mut self, root: &Path, path: &Path) {
        let own = path.symlink_metadata().map(|metadata| metadata.ino()).ok();
        self.changed.extend(path.strip_prefix(root).map(Path::to_owned));
        view(root, self.follows_links, &mut |other, metadata| {
            if other == path || (metadata.is_file() && Some(metadata.ino()) == own) {
                self.learn_one(root, other, metadata);
                let below = other.strip_prefix(root).expect("it lies there");
                self.changed.insert(below.to_owned());
                self.moves.on_changed(below, other, metadata);
            }
        });
    }

    /// Records that chaos has removed this name of a file from the source `root`.
    pub(super) fn on_removed(&mut self, root: &Path, path: &Path, metadata: &Metadata) {
        let below = path.strip_prefix(root).expect("it lies there");
        self.has_lost_names = true;
        self.changed.insert(below.to_owned());
        // With --copy-links, the name may have been seen at several paths.
        let names = self.names.get(&(metadata.dev(), metadata.ino())).into_iter().flatten();
        let gone = names.filter(|name| root.join(name).symlink_metadata().is_err());
        self.moves.forget(gone.map(PathBuf::as_path).chain([below]));
    }

    /// Whether the file, or another name of it, is at the target with one of the contents that the
    /// file has ever had.
    pub(super) fn has_version_at(&self, target: &Path, below: &Path) -> bool {
        hash_of(&target.join(below)).is_some_and(|hash| self.is_version(below, hash))
    }

    /// All known names of the file that is or was at this path of the source.
    pub(super) fn names_of(&self, below: &Path) -> impl Iterator<Item = &Path> {
        let files = self.names.values().filter(move |names| names.contains(below));
        files.flatten().map(PathBuf::as_path)
    }

    /// Whether the file, under this name or under another one, has ever had this content. LADS
    /// finds out which names belong to the same file before it moves the file, and that may change
    /// in the meantime.
    fn is_version(&self, below: &Path, hash: u64) -> bool {
        let has_had = |name: &Path| self.versions.get(name).is_some_and(|all| all.contains(&hash));
        let mut files = self.names.values().filter(|names| names.contains(below));
        has_had(below) || files.any(|names| names.iter().any(|name| has_had(name)))
    }

    /// Starts a step: changes until now belong to earlier steps.
    pub(super) fn begin_step(&mut self, step: &Step, source: &Path) {
        self.changed.clear();
        self.follows_links = step.choice.follows_links();
        if self.follows_links {
            self.learn(source);
        }
        self.moves.begin_step(step, source);
    }

    /// Whether the source has changed in this step.
    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The faults below `target`: files whose content is no version of them, and entries that
    /// nobody put there. LADS's own temporary names are left out.
    pub(super) fn faults(&self, target: &Path) -> Vec<String> {
        let mut faults = Vec::new();
        visit(target, &mut |path, metadata| {
            let below = path.strip_prefix(target).expect("it was met there");
            if is_own_name(path) {
                return;
            }
            let is_whole = || hash_of(path).is_some_and(|hash| self.is_version(below, hash));
            if !self.known.contains(below) {
                faults.push(format!("{below:?} at the target was never at the source"));
            } else if metadata.is_file() && !is_whole() {
                faults.push(format!("{below:?} at the target is incomplete"));
            }
        });
        faults
    }
}

/// LADS's own temporary names below a directory.
pub(super) fn own_names(root: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    visit(root, &mut |path, _| {
        if is_own_name(path) {
            names.push(path.to_owned());
        }
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;

    #[test]
    fn a_name_may_have_what_another_name_of_the_file_has_had() {
        let scratch = Scratch::new(&std::env::temp_dir(), "lads-names").unwrap();
        let (source, target) = (scratch.join("src"), scratch.join("dst"));
        for directory in [&source, &target] {
            fs::create_dir(directory).unwrap();
        }
        let [one, two, other] = ["one", "two", "other"].map(|name| source.join(name));
        fs::write(&one, "first").unwrap();
        fs::hard_link(&one, &two).unwrap();
        fs::write(&other, "another file").unwrap();
        let mut history = History::default();
        history.learn(&source);
        fs::remove_file(&two).unwrap();
        fs::write(&one, "later").unwrap();
        history.on_changed(&source, &one);
        for (content, is_known) in [("first", true), ("later", true), ("another file", false)] {
            fs::write(target.join("two"), content).unwrap();
            assert_eq!(history.faults(&target).is_empty(), is_known, "{content}");
        }
    }

    #[test]
    fn a_mixed_file_and_one_from_nowhere_are_faults_and_old_versions_are_not() {
        let scratch = Scratch::new(&std::env::temp_dir(), "lads-history").unwrap();
        let (source, target) = (scratch.join("src"), scratch.join("dst"));
        for directory in [&source, &target] {
            fs::create_dir(directory).unwrap();
        }
        let mut history = History::default();
        fs::write(source.join("file"), "one one").unwrap();
        history.learn(&source);
        fs::write(source.join("file"), "two two").unwrap();
        history.on_changed(&source, &source.join("file"));
        for (content, is_whole) in [("one one", true), ("two two", true), ("one two", false)] {
            fs::write(target.join("file"), content).unwrap();
            assert_eq!(history.faults(&target).is_empty(), is_whole, "{content}");
        }
        fs::write(target.join("file"), "two two").unwrap();
        fs::write(target.join(".lads-0.part"), "half").unwrap();
        assert_eq!(history.faults(&target), Vec::<String>::new());
        fs::write(target.join("other"), "").unwrap();
        assert_eq!(history.faults(&target).len(), 1);
    }
}
