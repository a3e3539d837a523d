//! Files whose size is not what `stat` reports, because their contents are made up when they are
//! read: those of the kernel (`/proc`, `/sys`) and of some FUSE servers.
//!
//! Such a file is announced as unsized, as a pipe is, and read from one open file in order to its
//! end. Its size and times mean nothing, so they are not compared before and after reading.

use super::SourceEnd;
use super::input::Input;
use super::read::not_opened;
use super::table::Item;
use lads_core::entry::{Identity, UNSIZED_BYTES};
use lads_core::source::ReadOutcome;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fstatfs, openat};
use rustix::io::{Errno, read};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// File systems of the kernel whose files have no size, by the number in their `statfs`: proc,
/// sysfs, debugfs, tracefs, cgroup, cgroup2, securityfs, configfs, selinuxfs, smackfs, fusectl,
/// bpf, binfmt_misc, resctrl, xenfs.
const OF_KERNEL: [i64; 15] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x0027_e0eb,
    0x6367_7270,
    0x7363_6673,
    0x6265_6570,
    0xf97c_ff8c,
    0x4341_5d53,
    0x6573_5543,
    0xcafe_4a11,
    0x4249_4e4d,
    0x0765_5821,
    0xabba_1974,
];

/// The number of FUSE. Its servers report the size zero for files whose size they do not know.
const FUSE: i64 = 0x6573_5546;

/// How far the sizes that a file system reports are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    True,
    /// Files of size zero may have contents.
    MayBeZero,
    /// No size is true.
    MadeUp,
}

impl Sizes {
    fn of(type_number: i64) -> Self {
        match type_number {
            FUSE => Self::MayBeZero,
            number if OF_KERNEL.contains(&number) => Self::MadeUp,
            _ => Self::True,
        }
    }
}

/// The file systems of which it is known how far their sizes are true, by their device number.
#[derive(Debug, Default)]
pub(super) struct FileSystems {
    known: RwLock<HashMap<u64, Sizes>>,
}

impl FileSystems {
    /// Reports whether the size of a regular file is not what its status says.
    ///
    /// # Errors
    /// Of opening or reading a file that may be longer than zero bytes.
    pub(super) fn is_size_unknown(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        stat: &Stat,
    ) -> Result<bool, Errno> {
        // Such a file takes no space. Most others take some, and nothing more is asked about them.
        if stat.st_blocks != 0 {
            return Ok(false);
        }
        match self.sizes_at(directory, name, stat)? {
            Sizes::True => Ok(false),
            Sizes::MadeUp => Ok(true),
            Sizes::MayBeZero => Ok(stat.st_size == 0 && has_contents(directory, name)),
        }
    }

    fn sizes_at(&self, directory: &OwnedFd, name: &[u8], stat: &Stat) -> Result<Sizes, Errno> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sizes) = known.get(&stat.st_dev) {
            return Ok(*sizes);
        }
        drop(known);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, name, flags, Mode::empty())?;
        let sizes = Sizes::of(fstatfs(&file)?.f_type);
        if fstat(&file)?.st_dev == stat.st_dev {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.insert(stat.st_dev, sizes);
        }
        Ok(sizes)
    }
}

/// Reports whether a file has at least one byte. A file that cannot be read counts as what its
/// status says.
fn has_contents(directory: &OwnedFd, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = openat(directory, name, flags, Mode::empty());
    open.is_ok_and(|file| read(&file, &mut [0_u8; 1]).is_ok_and(|count| count > 0))
}

/// The identity that a file without a known size is announced with.
pub(super) fn unsized_identity(identity: Identity) -> Identity {
    Identity { size: UNSIZED_BYTES, ..identity }
}

impl Item {
    /// Reports whether the size of the file is not known before its end.
    pub(super) fn is_unsized(&self) -> bool {
        self.identity.is_some_and(|identity| identity.size == UNSIZED_BYTES)
    }
}

impl SourceEnd {
    /// Returns the open file of an item whose size is not known; opens it if no block of the file
    /// was read before.
    pub(super) fn input_of(&self, item: &Item) -> Result<Arc<Input>, ReadOutcome> {
        let mut place = item.input.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(input) = &*place {
            return Ok(Arc::clone(input));
        }
        let of_open = |errno| not_opened(item, errno);
        let directory = item.directory.open().map_err(of_open)?;
        let file = openat(&directory, item.name.as_slice(), item.open_flags(), Mode::empty())
            .map_err(of_open)?;
        let stat = fstat(&file).map_err(of_open)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(ReadOutcome::Changed);
        }
        let input = Arc::new(Input::made_up(&item.name, &stat, file));
        *place = Some(Arc::clone(&input));
        Ok(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    fn is_size_unknown(path: &str) -> bool {
        let path = Path::new(path);
        let directory = OwnedFd::from(File::open(path.parent().unwrap()).unwrap());
        let name = path.file_name().unwrap().as_encoded_bytes();
        let stat = rustix::fs::stat(path).unwrap();
        FileSystems::default().is_size_unknown(&directory, name, &stat).unwrap()
    }

    #[test]
    fn files_of_the_kernel_have_no_size_and_empty_files_have_one() {
        assert!(is_size_unknown("/proc/self/status"));
        assert!(is_size_unknown("/sys/kernel/mm/transparent_hugepage/enabled"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("empty");
        File::create(&path).unwrap();
        assert!(!is_size_unknown(path.to_str().unwrap()));
    }
}
