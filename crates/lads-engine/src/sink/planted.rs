//! What another user of this host may put in our way, in a directory that this user may write to.
//!
//! It matters if we are root: then a transfer could set the metadata of a file of another user,
//! which was given a further name here. A descriptor says that its file has only
//! one name, but not which: a further name may have been there when the file was opened, and gone
//! when its names were counted.

use crate::paths::NOT_THROUGH_LINKS;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime};

/// How long the status of a file must have been unchanged. The clocks of file systems tick at least
/// a hundred times a second, so a later change then shows as a different time. A file whose status
/// changed less long ago counts as planted, and its data is moved again. Half would do for clocks
/// that agree; double would move more files again that were changed a moment ago.
const SETTLED: Duration = Duration::from_secs(2);

/// Whether nobody else may make or change names in a directory, or we are not root, so that names
/// of others cannot make us do what they may not do themselves.
pub(super) fn is_ours_alone(directory: &OwnedFd) -> Result<bool, Errno> {
    if !geteuid().is_root() {
        return Ok(true);
    }
    let stat = fstat(directory)?;
    let others_write = Mode::WGRP | Mode::WOTH;
    Ok(stat.st_uid == 0 && !Mode::from_raw_mode(stat.st_mode).intersects(others_write))
}

/// Reports whether the file that was opened under a name may have further names, so that setting
/// its metadata would change other entries too: names that are other files at the source, or, if
/// the sink runs as root, another user's file that was given a name here. `seen` is its status when
/// it was opened.
///
/// A further name that exists for a short time shows in the time of the last change of the status.
pub(super) fn may_have_further_names(
    directory: &OwnedFd,
    name: &[u8],
    file: &impl AsFd,
    seen: &Stat,
) -> Result<bool, Errno> {
    if seen.st_nlink > 1 {
        return Ok(true);
    }
    if is_ours_alone(directory)? {
        return Ok(false);
    }
    let is_settled = changed_at(seen)
        .and_then(|then| SystemTime::now().duration_since(then).ok())
        .is_some_and(|age| age >= SETTLED);
    if !is_settled {
        return Ok(true);
    }
    let named = match statat(directory, name, NOT_THROUGH_LINKS) {
        Ok(named) => named,
        Err(Errno::NOENT) => return Ok(true),
        Err(errno) => return Err(errno),
    };
    let after = fstat(file)?;
    let what = |stat: &Stat| (stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec);
    Ok(what(&named) != what(seen) || what(&after) != what(seen) || after.st_nlink > 1)
}

fn changed_at(stat: &Stat) -> Option<SystemTime> {
    let seconds = Duration::from_secs(u64::try_from(stat.st_ctime).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(seconds)
}

/// A directory of ours into which nobody else can put anything: what is made in it is what is found
/// in it. It is removed when this is dropped.
pub(super) struct Hidden<'a> {
    above: &'a OwnedFd,
    name: &'a str,
    handle: OwnedFd,
}

impl<'a> Hidden<'a> {
    /// Makes one under a name of ours.
    ///
    /// # Errors
    /// Of the system calls; `STALE` if somebody put another directory there.
    pub(super) fn make(above: &'a OwnedFd, name: &'a str) -> Result<Self, Errno> {
        mkdirat(above, name, Mode::RWXU)?;
        Self::open(above, name)
    }

    fn open(above: &'a OwnedFd, name: &'a str) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(above, name, flags, Mode::empty())?;
        let hidden = Self { above, name, handle };
        if is_ours_alone(&hidden.handle)? { Ok(hidden) } else { Err(Errno::STALE) }
    }

    pub(super) fn handle(&self) -> &OwnedFd {
        &self.handle
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // If it cannot be removed, it stays under a temporary name; the next run removes it.
        let _ = unlinkat(self.above, self.name, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::PathBuf;

    const NOBODY: u32 = 65_534;

    /// A directory of somebody else's, which only root can make.
    fn place_of_nobody() -> Option<(tempfile::TempDir, OwnedFd)> {
        if !geteuid().is_root() {
            lads_tried::not_tried("what is planted matters to root alone");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        chown(place.path(), Some(NOBODY), None).unwrap();
        let handle = OwnedFd::from(File::open(place.path()).unwrap());
        Some((place, handle))
    }

    #[test]
    fn only_a_directory_in_which_nobody_else_writes_is_taken_for_the_one_that_was_made() {
        let Some((place, handle)) = place_of_nobody() else { return };
        let path = |name: &str| -> PathBuf { place.path().join(name) };
        for name in ["others", "open", "ours"] {
            fs::create_dir(path(name)).unwrap();
        }
        chown(path("others"), Some(NOBODY), None).unwrap();
        fs::set_permissions(path("open"), Permissions::from_mode(0o722)).unwrap();
        let opened = ["others", "open", "ours"].map(|name| Hidden::open(&handle, name).is_ok());
        assert_eq!(opened, [false, false, true]);
        let made = Hidden::make(&handle, "made").unwrap();
        assert!(path("made").exists() && Hidden::make(&handle, "made").is_err());
        drop(made);
        assert!(!path("made").exists());
    }

    #[test]
    fn what_somebody_else_may_have_put_there_a_moment_ago_may_be_planted() {
        let Some((place, handle)) = place_of_nobody() else { return };
        let path = place.path().join("file");
        let file = File::create(&path).unwrap();
        let planted = |directory: &OwnedFd| {
            let seen = fstat(&file).unwrap();
            may_have_further_names(directory, b"file", &file, &seen).unwrap()
        };
        assert!(planted(&handle), "it is too young");
        chown(place.path(), Some(0), None).unwrap();
        assert!(!planted(&handle), "nobody else writes there");
        fs::hard_link(&path, place.path().join("further")).unwrap();
        assert!(planted(&handle), "it has a further name");
    }

    #[test]
    fn a_file_that_has_long_had_only_this_name_is_not_planted() {
        let Some((_place, handle)) = place_of_nobody() else { return };
        // A file that has not changed for two seconds. A full path needs no directory.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let file = File::open(path).unwrap();
        let seen = fstat(&file).unwrap();
        let planted = |seen: &Stat, name: &str| {
            may_have_further_names(&handle, name.as_bytes(), &file, seen).unwrap()
        };
        assert!(!planted(&seen, path));
        let (mut linked, mut changed) = (seen, seen);
        (linked.st_nlink, changed.st_ctime) = (2, seen.st_ctime - 1);
        assert!(planted(&linked, path), "it had a further name");
        assert!(planted(&changed, path), "it has changed");
        assert!(planted(&seen, "/proc/version"), "the name leads to another file");
        assert!(planted(&seen, "nothing"), "the name leads nowhere");
    }
}
