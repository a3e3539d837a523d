//! Where files lie: one provider for each kind of file system.
//!
//! A provider answers three questions. Which storage targets are there ([`Layouts::osts`],
//! [`Layouts::targets`])? Where does a file lie ([`Layouts::of_file`])? Where will a new file lie
//! ([`Layouts::of_new_file`], which makes the file if it can only be placed when it is made)? A
//! provider maps its file system's names for targets to [`OstId`]s, numbered from zero without
//! gaps, so that they can be rows of a table.

mod beegfs;
mod ceph;
mod disk;
mod kind;
mod local;
pub(crate) mod lustre;
mod mount;
mod new_file;
mod orangefs;
mod synthetic;

use lads_core::growth::Extent;
use lads_core::issue::Side;
use lads_core::layout::Layout;
use lads_core::placement::{OstState, Wish};
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Says where files lie, or will lie. One for each kind of file system.
pub trait Layouts: Send + Sync {
    /// The kind of file system, in a word.
    fn kind(&self) -> &'static str;

    /// Remarks for the user: what cannot be seen through this provider, and what was never tried on
    /// a real file system.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// The OSTs, numbered from zero; at least one.
    fn osts(&self) -> Vec<OstSpec>;

    /// The OSTs as they are now, in the same order. Numbers that were made up for bytes without an
    /// OST may be left out at the end. By default nothing is known but their names.
    fn targets(&self) -> Vec<Target> {
        self.osts()
            .into_iter()
            .map(|spec| Target { name: spec.name, ..Target::default() })
            .collect()
    }

    /// Where an existing file lies. Never brings data back from an archive.
    fn of_file(&self, file: &FileAt<'_>) -> Located;

    /// Makes reads of an open file use this copy, one of [`Located::mirrors`]. The file is open for
    /// reading bypassing the page cache.
    ///
    /// # Errors
    /// If the copy cannot be chosen; then any copy is read.
    fn choose_mirror(&self, _file: &OwnedFd, _number: u16) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Where on its disk a file begins, in bytes, if the disk rotates, so that it is worth reading
    /// files in that order. `None` elsewhere.
    fn disk_offset(&self, _file: &FileAt<'_>) -> Option<u64> {
        None
    }

    /// Where a new file will lie. Makes the file if that is the only way to know.
    ///
    /// # Errors
    /// If it cannot be made.
    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno>;

    /// If new files can grow: the unit of extents in bytes (extents begin and end at multiples of
    /// it), and the number of OSTs on which extents can lie.
    fn extents(&self) -> Option<(u64, u32)> {
        None
    }

    /// Adds extents to a growing new file ([`Placed::extents`]).
    ///
    /// # Errors
    /// If it cannot be done.
    fn add_extents(&self, _file: &OwnedFd, _extents: &[Extent]) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// The layout of a file or directory as the file system itself stores it.
    fn raw(&self, _file: &FileAt<'_>) -> Option<Vec<u8>> {
        None
    }

    /// How far it respects wishes where new files should go.
    fn heeds(&self) -> Heeds {
        Heeds::Nothing
    }

    /// The stripe size in bytes of a new file for which nothing else is asked.
    fn stripe_size(&self) -> u64 {
        1 << 20
    }

    /// Divides each target that hides its OSTs into `tracks.count` tracks, for a transfer of blocks
    /// of at most `tracks.block_size` bytes. By default no target does.
    fn divide(&mut self, _tracks: TracksWanted) {}

    /// Whether storage should begin to write each block as soon as it is in the page cache.
    fn starts_writeback(&self) -> bool {
        false
    }

    /// Whether large files are best written bypassing the page cache. On a block device they are:
    /// the data is durable when the write is, so putting blocks on record does not stall the
    /// writers.
    fn prefers_direct_writes(&self) -> bool {
        false
    }

    /// Whether everything is kept in memory. Then no write-back is started, which has nothing to
    /// do, and no space is reserved, which would fill it with zeros: two files of 1 GiB take 1.6
    /// to 4.8 s into tmpfs with it, and 0.9 to 1.2 s without; `cp` takes 0.8 to 2.4 s.
    fn is_memory(&self) -> bool {
        false
    }

    /// Whether a file that was made without a name, and synced, is durable as soon as it has got a
    /// name and its directory was synced: on the file system of the first root. Not so on btrfs,
    /// which does not write what it knows of a file without a name.
    fn links_durably(&self) -> bool {
        false
    }

    /// Waits as long as a pretended OST would take for one request.
    fn pretend(&self, _ost: OstId) {}
}

/// How to divide targets that hide their OSTs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracksWanted {
    /// The number of tracks of each; at least one.
    pub count: u32,
    /// The longest block, in bytes.
    pub block_size: u32,
    /// Whether files are read there or written.
    pub side: Side,
}

/// How far a file system respects the wish where a new file should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heeds {
    /// Not at all.
    Nothing,
    /// The number of stripes and their size, but not their OSTs.
    Striping,
    /// Completely.
    Place,
}

/// A file, by directory and name, and by its numbers.
#[derive(Clone, Copy, Debug)]
pub struct FileAt<'a> {
    /// The directory that holds it.
    pub directory: &'a OwnedFd,
    /// Its name in there.
    pub name: &'a [u8],
    /// The number of its file system.
    pub device: u64,
    /// The number of the file in its file system.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
}

/// Where a file lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Which OST holds which byte; if there are several copies, of the primary one.
    pub layout: Layout,
    /// All copies, if there are several and one can be chosen for reading; the primary one first.
    pub mirrors: Vec<Mirror>,
    /// Whether the data is in an archive, from which a read brings it back.
    pub is_archived: bool,
}

/// One of several copies of a file, which the file system keeps identical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The file system's own number of the copy.
    pub number: u16,
    /// Which OST holds which byte.
    pub layout: Layout,
}

/// A file to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// The directory in which to make it.
    pub directory: &'a OwnedFd,
    /// Its name in there. An existing file of that name is removed if it is ours; if not, the new
    /// file is not made. With [`Self::is_there`], the existing file is used.
    pub name: &'a str,
    /// How many new files of this transfer were made before it.
    pub number: u64,
    /// How long it will be, in bytes.
    pub size: u64,
    /// Where it should go, if the file system respects that.
    pub wish: &'a Wish,
    /// If the file may grow: the length of its first extent in bytes.
    pub first_extent_bytes: Option<u64>,
    /// Whether an earlier attempt has made it: then the provider only says where it lies.
    pub is_there: bool,
}

/// Where a new file will lie.
#[derive(Debug)]
pub struct Placed {
    /// Which OST will hold which byte.
    pub layout: Layout,
    /// If the file can grow: the extents that it has.
    pub extents: Vec<Extent>,
    /// Whether the file was made, which may be the only way to know; it has no data.
    pub is_made: bool,
    /// If the file was made and is still open: its descriptor, for reading and writing.
    pub file: Option<OwnedFd>,
    /// How the layout differs from the wish, in words; `None` if it does not.
    pub difference: Option<String>,
}

/// A storage target as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// What people call it.
    pub name: String,
    /// The server that holds it; empty if not known.
    pub server: String,
    /// What it can be used for now.
    pub state: OstState,
    /// Its size in bytes; zero if unknown.
    pub capacity_bytes: u64,
    /// Its free space in bytes; zero if unknown.
    pub free_bytes: u64,
    /// Whether it is flash, if that is known.
    pub is_flash: Option<bool>,
}

impl Located {
    /// An existing file that can be read.
    #[must_use]
    pub fn at(layout: Layout) -> Self {
        Self { layout, mirrors: Vec::new(), is_archived: false }
    }
}

impl<'a> NewFile<'a> {
    /// The first new file of a transfer, which must be made, and does not grow.
    #[must_use]
    pub fn new(directory: &'a OwnedFd, name: &'a str, size: u64, wish: &'a Wish) -> Self {
        let (number, first_extent_bytes, is_there) = (0, None, false);
        Self { directory, name, number, size, wish, first_extent_bytes, is_there }
    }
}

impl Placed {
    /// A place of a file that need not be made to know where it will lie.
    #[must_use]
    pub fn at(layout: Layout) -> Self {
        Self { layout, extents: Vec::new(), is_made: false, file: None, difference: None }
    }
}

/// A kind of file system that says where files lie.
struct Provider {
    /// The name of the kind.
    name: &'static str,
    /// Opens the provider for a path; `None` if the path is not on such a file system.
    at: fn(&Path) -> Option<Box<dyn Layouts>>,
    /// The message for a path that is not on such a file system.
    refusal: &'static str,
    /// Runs the contract on a provider with a stand-in for the file system, or with the real one.
    #[cfg(test)]
    put_to_test: fn(contract::Check),
}

/// The providers, in the order in which they are tried.
const PROVIDERS: &[Provider] =
    &[lustre::PROVIDER, ceph::PROVIDER, beegfs::PROVIDER, orangefs::PROVIDER];

/// The names of all providers, besides `auto` and `synthetic:…`.
#[must_use]
pub fn names() -> Vec<&'static str> {
    PROVIDERS.iter().map(|provider| provider.name).chain([LOCAL]).collect()
}

/// The provider for disks of this host, and for everything that no other provider knows.
const LOCAL: &str = "local";

/// The provider that `choice` names (`auto`, one of [`names`], or `synthetic:…`), for data below
/// `root`.
///
/// # Errors
/// If there is no such provider, or it cannot serve this place; the text says which.
pub fn open(choice: &str, root: &Path) -> Result<Box<dyn Layouts>, String> {
    open_all(choice, &[root])
}

/// As [`open`], for data below several roots. The first root decides the provider; local roots may
/// be on several disks.
///
/// # Errors
/// As [`open`].
///
/// # Panics
/// If there is no root.
pub fn open_all(choice: &str, roots: &[&Path]) -> Result<Box<dyn Layouts>, String> {
    let root = *roots.first().expect("the caller has one");
    if let Some(parameters) = choice.strip_prefix("synthetic:") {
        return synthetic::Synthetic::parse(parameters).map(|it| Box::new(it) as Box<dyn Layouts>);
    }
    if let Some(provider) = PROVIDERS.iter().find(|provider| provider.name == choice) {
        return (provider.at)(root)
            .ok_or_else(|| format!("{} {}", root.display(), provider.refusal));
    }
    match choice {
        "auto" => {
            let seen = PROVIDERS.iter().find_map(|provider| (provider.at)(root));
            Ok(seen.unwrap_or_else(|| Box::new(local::Local::of(roots))))
        }
        LOCAL => Ok(Box::new(local::Local::of(roots))),
        other => Err(format!(
            "unknown layout provider {other:?}: use auto, {} or synthetic:osts=8,stripe_size=1M",
            names().join(", ")
        )),
    }
}

#[cfg(test)]
mod contract;
