//! Which files a client can name.

use crate::paths::{Directory, open_named_to_look_up, parent_of};
use lads_core::remote::message::PATH_BYTES_MAX;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Which files a client can name.
pub(super) enum Reach {
    /// Those below a directory; no link is followed.
    Below(Arc<Directory>),
    /// All that this process can open: whoever has started it through ssh can open them anyway.
    Everything,
}

impl Reach {
    /// Below a directory.
    pub(super) fn below(root: &Path) -> Result<Self, String> {
        let no_root = |error| format!("cannot open the directory {}: {error}", root.display());
        let handle = open_named_to_look_up(root.as_os_str().as_bytes()).map_err(no_root)?;
        Ok(Self::Below(Directory::root(handle)))
    }

    /// The directory of a file, the name in it, and the flag that says whether a link is followed
    /// there.
    pub(super) fn find<'a>(
        &self,
        path: &'a [u8],
    ) -> Result<(Arc<OwnedFd>, &'a [u8], OFlags), Errno> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let (directory, name, flag) = match self {
            Self::Below(root) => {
                let (directory, name) = parent_of(root, checked(path)?)?;
                (directory, name, OFlags::NOFOLLOW)
            }
            Self::Everything => {
                let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
                let (directory, name) = path.split_at(start);
                (Arc::new(open_named_to_look_up(directory)?), name, OFlags::empty())
            }
        };
        if name.is_empty() { Err(Errno::INVAL) } else { Ok((directory, name, flag)) }
    }
}

/// A path below the root, without slashes at its beginning.
fn checked(path: &[u8]) -> Result<&[u8], Errno> {
    let start = path.iter().position(|&byte| byte != b'/').ok_or(Errno::INVAL)?;
    let path = &path[start..];
    let is_sound = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    if !path.split(|&byte| byte == b'/').all(is_sound) {
        return Err(Errno::INVAL);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, statat};
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    #[test]
    fn paths_stay_below_the_root() {
        for path in ["a", "a/b", "/a/b", "//a", "..a", "a/.b"] {
            let stripped = path.trim_start_matches('/').as_bytes();
            assert_eq!(checked(path.as_bytes()), Ok(stripped), "{path}");
        }
        for path in ["", "/", ".", "..", "a/../b", "a//b", "a/", "./a", "a/.", "a\0b"] {
            checked(path.as_bytes()).unwrap_err();
        }
        let place = tempfile::tempdir().unwrap();
        let below = Reach::below(place.path()).unwrap();
        let long = [b'x'; PATH_BYTES_MAX + 1];
        assert_eq!(below.find(&long).err(), Some(Errno::NAMETOOLONG));
    }

    /// A directory above a file, or the root itself, was opened for reading.
    #[test]
    fn directories_above_a_file_need_not_be_readable() {
        let own = capabilities(None).unwrap();
        if !own.effective.contains(CapabilitySet::CHOWN) {
            lads_tried::not_tried("only root can give a directory to another user");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("home/data");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), b"").unwrap();
        for directory in [place.path(), &place.path().join("home"), &deep] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o711)).unwrap();
            chown(directory, Some(65_534), None).unwrap();
        }
        let overrides = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        let effective = own.effective - overrides;
        set_capabilities(None, CapabilitySets { effective, ..own }).unwrap();
        let below = Reach::below(place.path()).unwrap();
        let path = deep.join("file").into_os_string();
        for (reach, path) in
            [(&below, b"home/data/file".as_slice()), (&Reach::Everything, path.as_bytes())]
        {
            let (directory, name, _) = reach.find(path).unwrap();
            statat(directory, name, AtFlags::empty()).unwrap();
        }
        // The place is removed with the rights of before.
        set_capabilities(None, own).unwrap();
    }

    #[test]
    fn everything_is_found_as_the_system_finds_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a").into_os_string();
        let (_, name, flag) = Reach::Everything.find(path.as_bytes()).unwrap();
        assert_eq!((name, flag), (b"a".as_slice(), OFlags::empty()));
        for path in ["/", "", "/none-of-this-name/a"] {
            Reach::Everything.find(path.as_bytes()).unwrap_err();
        }
        assert_eq!(Reach::Everything.find(b"a").unwrap().1, b"a");
    }
}
