//! Chooses what of the source is moved: everything, or what patterns and lists choose. rsync takes
//! the same options.

use anyhow::Result;
use lads_trees::{Rng, visit};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The paths of the source that a command moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    All,
    /// The patterns of this row of [`PATTERNS`].
    Patterns(usize),
    /// The patterns of this row of [`FILES`], read from a file.
    PatternFile(usize),
    /// Half of all paths, listed in a file.
    Listed,
}

/// Patterns for the names that [`lads_trees::grow`] makes.
const PATTERNS: [&[&str]; 4] = [
    &["--exclude=plain*"],
    &["--include=*7*", "--exclude=*1*"],
    &["--exclude=*/new*", "--exclude=/-*"],
    &["--include=*/", "--exclude=*0"],
];
/// Pattern files: the option that reads each of them, and its content.
const FILES: [(&str, &[u8]); 2] =
    [("--exclude-from", b"plain*\n+ *2*\n*9\n"), ("--include-from", b"*3\n- *4*\n")];

impl Selection {
    /// Draws a selection. Most are `All`.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        match rng.below(12) {
            0 => Self::Patterns(rng.below(PATTERNS.len())),
            1 => Self::PatternFile(rng.below(FILES.len())),
            2 => Self::Listed,
            _ => Self::All,
        }
    }

    /// Writes the files that [`Self::words`] refers to into `directory`, for the tree at `source`.
    pub(super) fn prepare(self, directory: &Path, source: &Path) -> Result<()> {
        match self {
            Self::PatternFile(which) => fs::write(directory.join("patterns"), FILES[which].1)?,
            Self::Listed => fs::write(directory.join("list"), half_of(source))?,
            Self::All | Self::Patterns(_) => {}
        }
        Ok(())
    }

    /// The options for `lads cp` and rsync. [`Self::prepare`] must run first.
    pub(super) fn words(self, directory: &Path) -> Vec<String> {
        match self {
            Self::All => Vec::new(),
            Self::Patterns(which) => PATTERNS[which].iter().map(|&it| it.to_owned()).collect(),
            Self::PatternFile(which) => {
                vec![format!("{}={}", FILES[which].0, directory.join("patterns").display())]
            }
            Self::Listed => {
                let list = directory.join("list");
                vec!["--from0".to_owned(), format!("--files-from={}", list.display())]
            }
        }
    }
}

/// Every other path below `source`, each followed by a zero byte.
fn half_of(source: &Path) -> Vec<u8> {
    let mut list = Vec::new();
    let mut count = 0;
    visit(source, &mut |path, _| {
        let below = path.strip_prefix(source).expect("it was met there");
        count += 1;
        if count % 2 == 0 && !below.as_os_str().is_empty() {
            list.extend_from_slice(below.as_os_str().as_bytes());
            list.push(0);
        }
    });
    list
}
