//! Makes the trees at the beginning of a round: the source, old entries at the target, and the
//! source of a rival.

use super::plan::Plan;
use anyhow::Result;
use lads_trees::{Rng, set_mtime, visit};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The minimum size of the large file, in bytes. Moving it takes half a second at 6 MiB/s, which is
/// enough time for a dozen changes. Half the size could leave time for too few changes; twice the
/// size makes rounds slow.
const LARGE_BYTES_MIN: usize = 3 << 20;

/// The size of an attribute that does not fit into a block of 1 KiB, in bytes.
const LARGE_ATTRIBUTE_BYTES: usize = 3_000;

/// The modification times of an older and of a newer file, in seconds since 1970.
const OLDER: i64 = 1_000_000_000;
const NEWER: i64 = 3_000_000_000;

/// Makes the source. One link in it points to the canary.
pub(super) fn grow(rng: &mut Rng, source: &Path, plan: &Plan, canary: &Path) -> Result<()> {
    fs::write(canary.join("file"), "this was here")?;
    lads_trees::grow(rng, source, &plan.scale);
    let _ = symlink(canary, source.join("canary"));
    if plan.storage.reduces() {
        let path = source.join("large attribute");
        fs::write(&path, "its attribute is larger than some file systems take")?;
        let value = rng.bytes(LARGE_ATTRIBUTE_BYTES);
        lads_trees::set_xattr(&path, b"user.large", &value);
    }
    if plan.has_large_file {
        let bytes = LARGE_BYTES_MIN + rng.below(LARGE_BYTES_MIN);
        fs::write(source.join("large"), rng.bytes(bytes))?;
    }
    if plan.small_files > 0 {
        let small = source.join("small");
        fs::create_dir(&small)?;
        for number in 0..plan.small_files {
            let bytes = rng.below(3000);
            fs::write(small.join(format!("{number}")), rng.bytes(bytes))?;
        }
    }
    Ok(())
}

/// The files below `root`, sorted by path.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    visit(root, &mut |path, metadata| {
        if metadata.is_file() {
            files.extend(path.strip_prefix(root).map(Path::to_owned));
        }
    });
    files.sort();
    files
}

/// Puts older, newer and equal files at the target, and instead of some files symbolic links that
/// lead out of it.
pub(super) fn plant(rng: &mut Rng, source: &Path, target: &Path, canary: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    fs::write(target.join("only at the target"), "foreign")?;
    for below in files(source) {
        let (from, to) = (source.join(&below), target.join(&below));
        let choice = rng.below(10);
        if choice < 5 {
            continue;
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        let count = 1 + rng.below(5000);
        match choice {
            5 => {
                fs::write(&to, rng.bytes(count))?;
                set_mtime(&to, OLDER, 0);
            }
            6 => {
                fs::write(&to, rng.bytes(count))?;
                set_mtime(&to, NEWER, 0);
            }
            7 => symlink(canary.join("file"), &to)?,
            8 => symlink("/nowhere/at/all", &to)?,
            _ => {
                fs::copy(&from, &to)?;
            }
        }
    }
    Ok(())
}

/// Makes the source of a rival: other files with the same names, and files of its own.
pub(super) fn grow_rival(rng: &mut Rng, source: &Path, rival: &Path) -> Result<()> {
    fs::create_dir_all(rival)?;
    for number in 0..10 {
        let bytes = rng.below(300_000);
        fs::write(rival.join(format!("rival{number}")), rng.bytes(bytes))?;
    }
    for below in files(source) {
        if !rng.is_one_in(3) {
            continue;
        }
        let path = rival.join(&below);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let bytes = rng.below(500_000);
        fs::write(&path, rng.bytes(bytes))?;
        set_mtime(&path, OLDER, i64::try_from(rng.below(1_000_000))?);
    }
    Ok(())
}
