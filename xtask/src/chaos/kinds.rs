//! Changes the kinds of entries of the source between two steps: a file becomes a directory, a
//! directory a link, and so on.

use super::history::History;
use anyhow::Result;
use lads_trees::{Rng, visit};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::{lchown, symlink};
use std::path::{Path, PathBuf};

/// The maximum number of entries that change before a step.
const CHANGES_MAX: usize = 5;

/// A kind that an entry may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewKind {
    File,
    EmptyDirectory,
    FullDirectory,
    Link,
    Fifo,
}

const NEW_KINDS: [NewKind; 5] =
    [NewKind::File, NewKind::EmptyDirectory, NewKind::FullDirectory, NewKind::Link, NewKind::Fifo];

impl NewKind {
    fn is_of(self, kind: fs::FileType) -> bool {
        match self {
            Self::File => kind.is_file(),
            Self::EmptyDirectory | Self::FullDirectory => kind.is_dir(),
            Self::Link => kind.is_symlink(),
            Self::Fifo => !(kind.is_file() || kind.is_dir() || kind.is_symlink()),
        }
    }

    fn make(self, rng: &mut Rng, path: &Path, link_text: &Path) -> Result<()> {
        let bytes = 1 + rng.below(100_000);
        match self {
            Self::File => fs::write(path, rng.bytes(bytes))?,
            Self::EmptyDirectory => fs::create_dir(path)?,
            Self::FullDirectory => {
                fs::create_dir(path)?;
                fs::write(path.join("one"), rng.bytes(bytes))?;
                fs::write(path.join("two"), "two")?;
            }
            Self::Link => symlink(link_text, path)?,
            Self::Fifo => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?,
        }
        Ok(())
    }
}

/// Changes the kinds of some entries below `root`. New links have this text, and new entries belong
/// to the user `owner`. Returns a description.
pub(super) fn change(
    seed: u64,
    root: &Path,
    link_text: &Path,
    owner: Option<u32>,
    history: &mut History,
) -> Result<Vec<String>> {
    let mut rng = Rng::new(seed);
    let mut said = Vec::new();
    for _ in 0..=rng.below(CHANGES_MAX) {
        let entries = entries(root);
        if entries.is_empty() {
            break;
        }
        let path = &entries[rng.below(entries.len())];
        let old = path.symlink_metadata()?.file_type();
        let new = NEW_KINDS[rng.below(NEW_KINDS.len())];
        if new.is_of(old) {
            continue;
        }
        if old.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
        new.make(&mut rng, path, link_text)?;
        if owner.is_some() {
            visit(path, &mut |path, _| lchown(path, owner, owner).expect("chaos is root"));
        }
        said.push(format!("  {path:?} becomes {new:?}"));
    }
    history.has_lost_names = true;
    history.learn(root);
    Ok(said)
}

/// Every entry below `root`, in an order that does not depend on the file system.
fn entries(root: &Path) -> Vec<PathBuf> {
    let mut entries = Vec::new();
    visit(root, &mut |path, _| entries.push(path.to_owned()));
    entries.retain(|path| path != root);
    entries.sort();
    entries
}
