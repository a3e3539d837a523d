//! Which contents every file has ever had: what the target may hold under its name.

use lads_trees::{hash_of, is_own_name, visit};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// All that was ever below the source, below a rival's source, or at the target before. Paths are
/// below the root of the tree.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Hashes of whole files.
    versions: HashMap<PathBuf, HashSet<u64>>,
    /// Every path of anything.
    known: HashSet<PathBuf>,
    /// Files whose content has changed, but neither size nor time of change.
    pub(super) stealthy: HashSet<PathBuf>,
    /// Files that have changed since [`Self::begin_step`].
    changed: HashSet<PathBuf>,
    /// Whether the source has lost a name.
    pub(super) has_lost_names: bool,
}

impl History {
    /// Everything that is below `root` now may be at the target.
    pub(super) fn learn(&mut self, root: &Path) {
        visit(root, &mut |path, metadata| {
            let below = path.strip_prefix(root).expect("it was met there").to_owned();
            if metadata.is_file()
                && let Some(hash) = hash_of(path)
            {
                self.versions.entry(below.clone()).or_default().insert(hash);
            }
            self.known.insert(below);
        });
    }

    /// Files of a rival, moved while those of `root` are. Where the source has several names of a
    /// file, each may become a link to what the rival has just put under another of them.
    pub(super) fn learn_rival(&mut self, rival: &Path, root: &Path) {
        self.learn(rival);
        let mut names: HashMap<u64, Vec<PathBuf>> = HashMap::new();
        visit(root, &mut |path, metadata| {
            if metadata.is_file() && metadata.nlink() > 1 {
                let below = path.strip_prefix(root).expect("it was met there").to_owned();
                names.entry(metadata.ino()).or_default().push(below);
            }
        });
        for names in names.into_values() {
            let versions = names.iter().filter_map(|name| self.versions.get(name));
            let all: HashSet<u64> = versions.flatten().copied().collect();
            for name in names {
                self.versions.insert(name, all.clone());
            }
        }
    }

    /// What is at `path` below `root` has changed: it, and whatever other name it has.
    pub(super) fn on_changed(&mut self, root: &Path, path: &Path) {
        let inode = path.symlink_metadata().map(|metadata| metadata.ino()).unwrap_or_default();
        let mut names = vec![path.to_owned()];
        visit(root, &mut |other, metadata| {
            if metadata.is_file() && metadata.ino() == inode {
                names.push(other.to_owned());
            }
        });
        for name in names {
            let below = name.strip_prefix(root).expect("it lies there").to_owned();
            if let Some(hash) = hash_of(&name) {
                self.versions.entry(below.clone()).or_default().insert(hash);
            }
            self.known.insert(below.clone());
            self.changed.insert(below);
        }
    }

    /// The changes so far are those of earlier steps.
    pub(super) fn begin_step(&mut self) {
        self.changed.clear();
    }

    /// Whether the source has changed in this step.
    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// What is wrong below `target`: files that are no version of themselves, and what nobody put
    /// there. Names of LADS's own are left out.
    pub(super) fn faults(&self, target: &Path) -> Vec<String> {
        let mut faults = Vec::new();
        visit(target, &mut |path, metadata| {
            let below = path.strip_prefix(target).expect("it was met there");
            if is_own_name(path) {
                return;
            }
            if !self.known.contains(below) {
                faults.push(format!("{below:?} at the target was never at the source"));
            } else if metadata.is_file() {
                let versions = self.versions.get(below);
                let is_whole = hash_of(path)
                    .is_some_and(|hash| versions.is_some_and(|all| all.contains(&hash)));
                if !is_whole {
                    faults.push(format!("{below:?} at the target is not whole"));
                }
            }
        });
        faults
    }
}

/// Names of LADS's own below a directory.
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
