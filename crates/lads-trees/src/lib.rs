//! Random trees for tests: everything that a file system can hold and that is easily lost on the
//! way, and what can be seen of a tree, to compare before with after.
//!
//! Used by the promise tests of `lads cp` and by `cargo xtask chaos`. Whatever the file system
//! refuses ends the test: the functions panic.
#![allow(clippy::unwrap_used, reason = "what cannot be made ends the test")]

mod rng;

pub use rng::Rng;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, lsetxattr,
    makedev, mknodat, utimensat,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

const DIRECTORY_MODES: [u32; 7] = [0o755, 0o700, 0o555, 0o1777, 0o2755, 0o500, 0o311];
const FILE_MODES: [u32; 9] = [0o644, 0o600, 0, 0o4755, 0o2755, 0o444, 0o6711, 0o1644, 0o777];
/// Moments as file systems of all ages have them, in seconds since 1970.
const MOMENTS: [i64; 8] =
    [0, -1, -1_000_000_000, 1, 946_684_800, 1_700_000_000, 2_147_483_648, 4_000_000_000];

/// How large a random tree is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// How many directories it has at most, the root not counted.
    pub directories: usize,
    /// How many files, links and specials it has at most.
    pub entries: usize,
    /// The longest file that is not sparse, in bytes.
    pub file_bytes_max: usize,
    /// Whether there are FIFOs, and as root devices.
    pub has_specials: bool,
}

impl Scale {
    /// A few dozen files, less than 1 MiB.
    pub const SMALL: Self =
        Self { directories: 5, entries: 25, file_bytes_max: 100_000, has_specials: false };
    /// A hundred files, some of them of several blocks.
    pub const LARGE: Self =
        Self { directories: 12, entries: 120, file_bytes_max: 3 << 20, has_specials: false };
}

/// Makes a random tree at `root`. As root, some of it belongs to others and cannot be read by all.
pub fn grow(rng: &mut Rng, root: &Path, scale: &Scale) {
    fs::create_dir_all(root).unwrap();
    let mut directories = vec![root.to_owned()];
    for number in 0..scale.directories {
        let parent = &directories[rng.below(directories.len())];
        let path = parent.join(name(rng, number));
        if fs::create_dir(&path).is_ok() {
            directories.push(path);
        }
    }
    let mut files: Vec<PathBuf> = Vec::new();
    let mut others: Vec<PathBuf> = Vec::new();
    for number in 0..scale.entries {
        let path = directories[rng.below(directories.len())].join(name(rng, number + 1000));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match rng.below(10) {
            0 => symlink(OsStr::from_bytes(&link_target(rng)), &path).unwrap(),
            1 if !files.is_empty() => {
                fs::hard_link(&files[rng.below(files.len())], &path).unwrap();
                continue;
            }
            2 if !others.is_empty() && rng.is_one_in(2) => {
                fs::hard_link(&others[rng.below(others.len())], &path).unwrap();
                continue;
            }
            2 => sparse_file(rng, &path),
            3 if scale.has_specials => special(rng, &path),
            _ => {
                let size = file_size(rng, scale.file_bytes_max);
                fs::write(&path, rng.bytes(size)).unwrap();
            }
        }
        if path.symlink_metadata().unwrap().is_file() {
            let mode = FILE_MODES[rng.below(FILE_MODES.len())];
            // Only root can read what nobody may read.
            dress(rng, &path, if is_root() { mode } else { mode | 0o400 });
            files.push(path);
        } else {
            own_and_date(rng, &path);
            others.push(path);
        }
    }
    for directory in directories.iter().rev() {
        if rng.is_one_in(4) {
            set_acl(directory, b"system.posix_acl_default", rng);
        }
        let mode = DIRECTORY_MODES[rng.below(DIRECTORY_MODES.len())];
        // Making things in a directory changes its time: all are dressed when all is made.
        dress(rng, directory, if is_root() { mode } else { 0o755 });
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A file name as people, programs and accidents make them.
fn name(rng: &mut Rng, number: usize) -> PathBuf {
    let mut name = format!("{number}").into_bytes();
    match rng.below(12) {
        0 => name.splice(0..0, *b"-").count(),
        1 => name.splice(0..0, *b"new\nline").count(),
        2 => name.splice(0..0, *b"not\xff\xfeutf8").count(),
        3 => name.splice(0..0, *b" blank \t").count(),
        4 => name.splice(0..0, "gr\u{fc}\u{df}e\u{1f30a}".bytes()).count(),
        5 => name.splice(0..0, *b"--delete*?[]\\'\"$`;&").count(),
        6 => name.splice(0..0, *b".").count(),
        7 => {
            name.resize(255, b'x');
            0
        }
        8 => name.splice(0..0, *b"colon:").count(),
        _ => name.splice(0..0, *b"plain").count(),
    };
    PathBuf::from(OsStr::from_bytes(&name))
}

fn link_target(rng: &mut Rng) -> Vec<u8> {
    match rng.below(6) {
        0 => b"/nowhere/at/all".to_vec(),
        1 => b"..".to_vec(),
        2 => b"plain1".to_vec(),
        3 => vec![b'y'; 1000],
        4 => b"\xff\n*".to_vec(),
        _ => b"/etc/passwd".to_vec(),
    }
}

fn file_size(rng: &mut Rng, max: usize) -> usize {
    match rng.below(10) {
        0 => 0,
        1 => 1,
        2 => 4096 * (1 + rng.below(20)),
        3 => 4095,
        4 => max,
        5 => 65_536 + rng.below(3) - 1,
        6 => rng.below(max),
        _ => rng.below(20_000),
    }
}

fn sparse_file(rng: &mut Rng, path: &Path) {
    let file = fs::File::create(path).unwrap();
    let size = rng.below(5 << 20);
    file.set_len(size as u64).unwrap();
    for _ in 0..rng.below(5) {
        let bytes_max = 1 + rng.below(100_000);
        let offset = rng.below(size + 1);
        let bytes = rng.bytes(bytes_max.min(size - offset));
        file.write_all_at(&bytes, offset as u64).unwrap();
    }
}

/// Makes a FIFO or, as root, a device of no number in use.
fn special(rng: &mut Rng, path: &Path) {
    let kind = match rng.below(4) {
        0 if is_root() => FileType::CharacterDevice,
        1 if is_root() => FileType::BlockDevice,
        _ => FileType::Fifo,
    };
    let is_device = kind != FileType::Fifo;
    let device = if is_device { makedev(250, u32::try_from(rng.below(1000)).unwrap()) } else { 0 };
    mknodat(CWD, path, kind, Mode::RUSR, device).unwrap();
}

/// Gives a file or directory attributes, owner, mode and time of change.
fn dress(rng: &mut Rng, path: &Path, mode: u32) {
    for number in 0..rng.below(3) {
        let value_bytes = rng.below(300);
        let value = rng.bytes(value_bytes);
        set_xattr(path, format!("user.promise{number}").as_bytes(), &value);
    }
    if rng.is_one_in(5) {
        set_acl(path, b"system.posix_acl_access", rng);
    }
    let owner = rng.below(3) * 1234;
    if is_root() {
        own(path, u32::try_from(owner).unwrap());
    }
    let is_plain = lgetxattr_len(path, b"system.posix_acl_access") == 0;
    if is_plain {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    date(rng, path);
}

fn own_and_date(rng: &mut Rng, path: &Path) {
    if is_root() {
        own(path, 77);
    }
    date(rng, path);
}

fn own(path: &Path, id: u32) {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id + 1));
    chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn date(rng: &mut Rng, path: &Path) {
    let seconds = MOMENTS[rng.below(MOMENTS.len())];
    let nanos = if rng.is_one_in(3) { 0 } else { i64::try_from(rng.below(1_000_000_000)).unwrap() };
    set_mtime(path, seconds, nanos);
}

/// Sets the time of change of what lies at `path`, link or not: seconds since 1970 and nanoseconds.
pub fn set_mtime(path: &Path, seconds: i64, nanos: i64) {
    let moment = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: moment, last_modification: moment };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Sets an extended attribute of what lies at `path`, link or not.
pub fn set_xattr(path: &Path, name: &[u8], value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn lgetxattr_len(path: &Path, name: &[u8]) -> usize {
    let mut room = [0; 512];
    rustix::fs::lgetxattr(path, name, &mut room[..]).unwrap_or(0)
}

/// Sets a POSIX ACL with a user of its own, in the form that the kernel takes.
pub fn set_acl(path: &Path, attribute: &[u8], rng: &mut Rng) {
    const NOBODY: u32 = u32::MAX;
    let user = 1000 + u32::try_from(rng.below(5)).unwrap();
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (0x01u16, 7u16, NOBODY),
        (0x02, 5, user),
        (0x04, 5, NOBODY),
        (0x10, 5, NOBODY),
        (0x20, u16::from(rng.is_one_in(2)) * 5, NOBODY),
    ] {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    set_xattr(path, attribute, &value);
}

/// What can be seen of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The type.
    pub kind: fs::FileType,
    /// Kind and mode, owner, size, time of change, content.
    pub what: String,
    /// When anything of it was last touched, even if to the same.
    pub touched: (i64, i64),
}

/// Every path below `root` with all that can be seen of it, to compare before with after.
#[must_use]
pub fn describe(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = BTreeMap::new();
    visit(root, &mut |path, metadata| {
        let below = path.strip_prefix(root).unwrap().to_owned();
        let content = match metadata.file_type() {
            kind if kind.is_file() => format!("{:x}", hash_of(path).unwrap_or(0)),
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(path).unwrap()),
            _ => String::new(),
        };
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        let (mtime, nanos) = (metadata.mtime(), metadata.mtime_nsec());
        let size = if metadata.is_dir() { 0 } else { metadata.size() };
        let what = format!("{mode:o} {uid} {gid} {size} {mtime}.{nanos:09} {content}");
        let touched = (metadata.ctime(), metadata.ctime_nsec());
        all.insert(below, Seen { kind: metadata.file_type(), what, touched });
    });
    all
}

/// Calls `meet` for `root` and every entry below it. Entries that disappear meanwhile are skipped.
pub fn visit(root: &Path, meet: &mut impl FnMut(&Path, &fs::Metadata)) {
    let Ok(metadata) = root.symlink_metadata() else { return };
    meet(root, &metadata);
    if metadata.is_dir() {
        entries(root).for_each(|path| visit(&path, meet));
    }
}

/// Calls `meet` as [`visit`] does, with the files and directories that symbolic links lead to in
/// place of the links. Links that lead nowhere, or to a directory that they lie in, stay links.
pub fn visit_through_links(root: &Path, meet: &mut impl FnMut(&Path, &fs::Metadata)) {
    visit_below(root, &mut Vec::new(), meet);
}

/// Visits `path`, which lies in the directories with the device and inode numbers `above`.
fn visit_below(
    path: &Path,
    above: &mut Vec<(u64, u64)>,
    meet: &mut impl FnMut(&Path, &fs::Metadata),
) {
    let Ok(own) = path.symlink_metadata() else { return };
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    let referent = path.metadata().ok().filter(|it| !above.contains(&identity(it)));
    let metadata = referent.unwrap_or(own);
    meet(path, &metadata);
    if metadata.is_dir() {
        above.push(identity(&metadata));
        entries(path).for_each(|path| visit_below(&path, above, meet));
        above.pop();
    }
}

/// Returns the paths of the entries of a directory.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let names = fs::read_dir(directory).into_iter().flatten();
    names.filter_map(|entry| Some(entry.ok()?.path()))
}

/// A number that stands for a file's bytes; `None` if it is no file, or cannot be read.
#[must_use]
pub fn hash_of(path: &Path) -> Option<u64> {
    // To open a FIFO would wait for somebody who writes into it.
    let is_file = fs::metadata(path).ok()?.is_file();
    is_file.then(|| fs::read(path).ok())?.map(|bytes| hash(&bytes))
}

/// A number that stands for these bytes.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Whether a name is one under which LADS keeps what is not finished.
#[must_use]
pub fn is_own_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".lads-"))
}

/// Nothing of LADS's own is left below `root`.
#[track_caller]
pub fn assert_nothing_left_over(root: &Path) {
    visit(root, &mut |path, _| assert!(!is_own_name(path), "left over: {}", path.display()));
}

/// How many bytes of a file hold data: what was reserved and never written counts as a hole.
#[must_use]
pub fn data_bytes(path: &Path) -> u64 {
    use rustix::fs::{SeekFrom, seek};
    let file = fs::File::open(path).unwrap();
    let (mut bytes, mut offset) = (0, 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(offset)) {
        let end = seek(&file, SeekFrom::Hole(start)).unwrap();
        bytes += end - start;
        offset = end;
    }
    bytes
}
