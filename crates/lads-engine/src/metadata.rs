//! Reads and sets the metadata of entries: owner, mode, times, extended attributes.
//!
//! Everything is set through a descriptor ([`Handle`]), never by name: whoever may write in a
//! directory can put another entry under a name between two calls.

mod handle;
mod permitted;

use crate::job::Options;
use crate::paths::proc_path;
use crate::stat::mtime_of;
use lads_core::acl::mode_without;
use lads_core::entry::{Metadata, Timestamp, Xattr};
use lads_core::reduction::{Reduction, Reductions};
use rustix::fs::{
    FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, fstat, lgetxattr, llistxattr,
};
use rustix::io::Errno;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use handle::{Handle, Held};
pub(crate) use permitted::{Permitted, is_asked_for, permitted};

/// The attribute that holds a POSIX ACL.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory that gives an ACL to files made in it.
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;
const PERMISSION_BITS: u32 = 0o7777;

/// Returns the metadata of a name in an open directory of the source, and the reductions.
///
/// # Errors
/// Of the system calls: without its attributes the file would not be the same at the sink.
pub(crate) fn metadata_at(
    directory: &OwnedFd,
    name: &[u8],
    stat: &Stat,
    options: &Options,
) -> Result<(Metadata, Reductions), Errno> {
    let mut metadata = metadata_of(stat);
    let mut reductions = Reductions::default();
    if options.xattrs {
        metadata.xattrs = xattrs_at(directory, name, &mut reductions)?;
    } else if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink
        && Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG)
    {
        let path = proc_path(directory, name);
        let acl = read_all(|to| lgetxattr(path.as_slice(), ACCESS_ACL, to.as_mut_slice()));
        // An error means that there is no ACL.
        metadata.mode = acl.map_or(metadata.mode, |acl| mode_without(metadata.mode, &acl));
    }
    Ok((metadata, reductions))
}

/// Mode, owner and times; extended attributes are read separately.
pub(crate) fn metadata_of(stat: &Stat) -> Metadata {
    Metadata {
        mode: stat.st_mode & PERMISSION_BITS,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: mtime_of(stat),
        xattrs: Vec::new(),
    }
}

/// Attributes in which Lustre, overlays and similar file systems keep their own state: on a copy of
/// the file they would be wrong. Their names begin with these.
const BOOKS: [&[u8]; 11] = [
    b"trusted.lov",
    b"trusted.lma",
    b"trusted.lmv",
    b"trusted.dmv",
    b"trusted.link",
    b"trusted.fid",
    b"trusted.version",
    b"trusted.hsm",
    b"trusted.som",
    b"trusted.lfsck",
    b"trusted.overlay",
];

/// Whether an attribute is moved. Attributes that say how *this* file system stores the file
/// (layouts of Lustre, Ceph and others), or how this host labels it, are not.
fn is_moved(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || (name.starts_with(b"trusted.") && !BOOKS.iter().any(|it| name.starts_with(it)))
        || name == b"security.capability"
        || name == ACCESS_ACL
        || name == DEFAULT_ACL
}

/// Whether an attribute can give a file rights that its owner does not have: capabilities, and
/// `trusted.` attributes, which only root can set. Moved only with `--privileges`.
fn is_privilege(name: &[u8]) -> bool {
    name == b"security.capability" || name.starts_with(b"trusted.")
}

/// Whether an owner without privilege cannot read and set this attribute.
fn takes_privilege(name: &[u8]) -> bool {
    !name.starts_with(b"user.")
}

fn split_names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == 0).filter(|name| is_moved(name))
}

/// Calls `fill` with a buffer that grows until the result fits.
pub(crate) fn read_all(
    mut fill: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; 256];
    loop {
        match fill(&mut bytes) {
            Ok(count) => {
                bytes.truncate(count);
                return Ok(bytes);
            }
            Err(Errno::RANGE) if bytes.len() < 1 << 20 => {
                let size = bytes.len() * 8;
                bytes.resize(size, 0);
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// The names of the attributes of a name in an open directory, each with a zero byte after it.
fn list_xattrs_at(directory: &OwnedFd, name: &[u8], to: &mut [u8]) -> Result<usize, Errno> {
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);
    if !IS_REFUSED.load(Ordering::Relaxed) {
        let listed = lads_sys::list_xattrs_at(directory, name, to);
        match listed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
            // The kernel does not know the call, or a sandbox does not let it pass.
            Err(Errno::NOSYS) => IS_REFUSED.store(true, Ordering::Relaxed),
            Err(Errno::PERM) => {}
            result => return result,
        }
    }
    llistxattr(proc_path(directory, name), to)
}

/// The attributes of a name in an open directory; of a link, those of the link itself. On a file
/// system without attributes the list is empty. Attributes that need privilege to read are left out
/// without it, which is a reduction.
fn xattrs_at(
    directory: &OwnedFd,
    name: &[u8],
    reductions: &mut Reductions,
) -> Result<Vec<Xattr>, Errno> {
    let list = match read_all(|to| list_xattrs_at(directory, name, to)) {
        Ok(list) if list.is_empty() => return Ok(Vec::new()),
        Ok(list) => list,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    let path = proc_path(directory, name);
    let path = path.as_slice();
    let mut xattrs = Vec::new();
    for name in split_names(&list) {
        match read_all(|to| lgetxattr(path, name, to.as_mut_slice())) {
            Ok(value) => xattrs.push(Xattr { name: name.to_vec(), value }),
            // The attribute was removed after it was listed.
            Err(Errno::NODATA) => {}
            Err(Errno::PERM | Errno::ACCESS) if takes_privilege(name) => {
                reductions.insert(Reduction::AttributesUnreadable);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(xattrs)
}

fn xattrs_of(file: &impl Handle) -> Vec<Xattr> {
    let list = read_all(|to| file.list_xattrs(to)).unwrap_or_default();
    let value = |name: &[u8]| read_all(|to| file.xattr(name, to)).ok();
    split_names(&list)
        .filter_map(|name| Some(Xattr { name: name.to_vec(), value: value(name)? }))
        .collect()
}

/// Returns the permissions that new entries of a directory can have: those of its default ACL, or
/// those that the umask leaves.
pub(crate) fn default_permissions(directory: &OwnedFd) -> u32 {
    let acl = read_all(|to| directory.xattr(DEFAULT_ACL, to)).ok();
    let of_acl = acl.and_then(|acl| lads_core::acl::permissions(&acl));
    of_acl.unwrap_or_else(|| !umask() & 0o777)
}

/// The umask of this process. It can be read without being changed for a moment only in `/proc`;
/// without that, new entries are this user's alone.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()).unwrap_or(0o077)
}

/// Whether files made in this directory get a default ACL.
pub(crate) fn has_default_acl(directory: &OwnedFd) -> bool {
    directory.xattr(DEFAULT_ACL, &mut [0u8; 0]).is_ok()
}

/// Sets owner, mode, attributes and times of an entry, as far as the options say and the system
/// permits. Returns the kinds of metadata that the entry does not get. If `mode` is `None`, the
/// entry keeps its mode. `has_others`: the entry may have attributes that it should not have,
/// because it existed before, or got an ACL from its directory.
///
/// # Errors
/// Of the system calls, unless the system refuses metadata that the file system cannot store or
/// that needs privilege.
pub(crate) fn apply(
    file: &impl Handle,
    stat: &Stat,
    wanted: &Metadata,
    mut mode: Option<u32>,
    options: &Options,
    has_others: bool,
) -> Result<Reductions, Errno> {
    let mut reductions = Reductions::default();
    if options.owners
        && let Some(kind) = set_owner(file, stat, wanted)?
    {
        reductions.insert(kind);
        // The file would give the rights of the wrong owner to everybody. The bits of a directory
        // give no rights.
        let bits = mode.filter(|mode| mode & SET_ID_BITS != 0 && file.has_mode());
        if let (Some(bits), false) = (bits, is_directory(stat)) {
            mode = Some(bits & !SET_ID_BITS);
            reductions.insert(Reduction::SetIdBits);
        }
    }
    let mut mode_before = None;
    if options.xattrs {
        // Attributes come before the mode: without root, a read-only file accepts no attributes.
        let lost;
        (lost, mode_before) = set_xattrs_as_owner(file, stat, wanted, options, has_others)?;
        reductions.extend(lost.reductions);
        mode = mode.map(|mode| lost.acl.map_or(mode, |acl| mode_without(mode, acl)));
    }
    let is_chowned = (stat.st_uid, stat.st_gid) != (wanted.uid, wanted.gid);
    if let Some(mode) = mode.or(mode_before)
        && file.has_mode()
        && (stat.st_mode & PERMISSION_BITS != mode || is_chowned || mode_before.is_some())
    {
        match file.set_mode(Mode::from_raw_mode(mode)) {
            // Without `--no-perms`, the user has asked for these permissions.
            Err(errno) if is_not_stored(errno, stat) => {
                if options.permissions {
                    reductions.insert(Reduction::Permissions);
                }
            }
            result => result?,
        }
    }
    if options.times && !set_time(file, stat, wanted.mtime)? {
        reductions.insert(Reduction::Times);
    }
    Ok(reductions)
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Returns whether a call failed because the file system does not store such metadata. `PERM` means
/// this if the entry is this user's, who may change its metadata on other file systems.
pub(crate) fn is_not_stored(errno: Errno, stat: &Stat) -> bool {
    let user = rustix::process::geteuid();
    match errno {
        Errno::OPNOTSUPP | Errno::NOSYS => true,
        Errno::PERM => user.is_root() || stat.st_uid == user.as_raw(),
        _ => false,
    }
}

/// Sets owner and group. Returns the reduction if this is not permitted; the group may be set then.
fn set_owner(
    file: &impl Handle,
    stat: &Stat,
    wanted: &Metadata,
) -> Result<Option<Reduction>, Errno> {
    let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
    if (stat.st_uid, stat.st_gid) == (wanted.uid, wanted.gid) {
        return Ok(None);
    }
    match file.set_owner(Some(uid), gid) {
        Ok(()) => Ok(None),
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            // A group of which this user is a member can be set without privilege.
            let _ = file.set_owner(None, gid);
            let is_root = rustix::process::geteuid().is_root();
            Ok(Some(if is_root { Reduction::OwnerRefused } else { Reduction::Owner }))
        }
        Err(errno) => Err(errno),
    }
}

/// Attributes that an entry does not get.
#[derive(Default)]
struct LostAttributes<'a> {
    reductions: Reductions,
    /// The ACL that decides about access, if it is among them.
    acl: Option<&'a [u8]>,
}

/// Sets extended attributes and ACLs. User attributes need permission to write to the file: if its
/// mode does not give that to its owner, who is this user, the mode is changed. Returns the mode
/// that the file had then.
fn set_xattrs_as_owner<'a>(
    file: &impl Handle,
    stat: &Stat,
    wanted: &'a Metadata,
    options: &Options,
    has_others: bool,
) -> Result<(LostAttributes<'a>, Option<u32>), Errno> {
    match set_xattrs(file, wanted, options, has_others) {
        Err(Errno::ACCESS) => {}
        result => return result.map(|lost| (lost, None)),
    }
    let mode = make_usable(file, stat)?.ok_or(Errno::ACCESS)?;
    let lost = set_xattrs(file, wanted, options, has_others).inspect_err(|_| {
        // The first error counts.
        let _ = file.set_mode(Mode::from_raw_mode(mode));
    })?;
    Ok((lost, Some(mode)))
}

fn set_xattrs<'a>(
    file: &impl Handle,
    wanted: &'a Metadata,
    options: &Options,
    has_others: bool,
) -> Result<LostAttributes<'a>, Errno> {
    if has_others {
        remove_others(file, wanted, options)?;
    }
    let mut lost = LostAttributes::default();
    // ACLs come last: one that does not let the owner write would have the others refused.
    let others = wanted.xattrs.iter().filter(|xattr| !is_acl(&xattr.name));
    let acls = wanted.xattrs.iter().filter(|xattr| is_acl(&xattr.name));
    for Xattr { name, value } in others.chain(acls) {
        let Err(errno) = file.set_xattr(name, value) else { continue };
        lost.reductions.insert(reduction_of(errno, name).ok_or(errno)?);
        if name == ACCESS_ACL {
            lost.acl = Some(value);
        }
    }
    Ok(lost)
}

/// Removes the attributes that an entry should not have.
fn remove_others(file: &impl Handle, wanted: &Metadata, options: &Options) -> Result<(), Errno> {
    let is_wanted = |name: &[u8]| wanted.xattrs.iter().any(|xattr| xattr.name == name);
    // A source without privilege does not see the others: that it says nothing of them means
    // nothing. ACLs are permissions.
    let is_ours = |name: &[u8]| name.starts_with(b"user.") || (options.permissions && is_acl(name));
    for Xattr { name, .. } in xattrs_of(file) {
        if !is_ours(&name) || is_wanted(&name) {
            continue;
        }
        match file.remove_xattr(&name) {
            Err(errno) if reduction_of(errno, &name).is_some() => {}
            result => result?,
        }
    }
    Ok(())
}

/// Returns the reduction if an attribute of this name could not be set; `None` if that is a
/// failure of the entry.
fn reduction_of(errno: Errno, name: &[u8]) -> Option<Reduction> {
    match errno {
        Errno::OPNOTSUPP | Errno::NOSYS if is_acl(name) => Some(Reduction::Acls),
        Errno::OPNOTSUPP | Errno::NOSYS => Some(Reduction::Attributes),
        // The space for attributes of an entry is limited, in ext4 to one block: such a file system
        // need not be full. If it is, the next write fails.
        Errno::TOOBIG | Errno::RANGE | Errno::NOSPC | Errno::DQUOT => {
            Some(Reduction::LargeAttributes)
        }
        Errno::PERM if takes_privilege(name) => Some(Reduction::AttributesRefused),
        _ => None,
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == ACCESS_ACL || name == DEFAULT_ACL
}

/// Times that every file system stores: 1980 to 2038, the years that FAT, 32-bit and unsigned
/// seconds have in common.
const USUAL_SECONDS: RangeInclusive<i64> = 315_532_800..=0x7fff_ffff;
/// The coarsest unit in which a file system keeps times, in seconds (FAT).
const COARSEST_UNIT_SECONDS: u64 = 2;

/// Sets the time of change. Returns `false` if the file system does not store it: the kernel then
/// sets the nearest time in the range of the file system, and reports no error.
fn set_time(file: &impl Handle, stat: &Stat, mtime: Timestamp) -> Result<bool, Errno> {
    let is_usual = USUAL_SECONDS.contains(&mtime.seconds);
    match file.set_times(&times(mtime)) {
        Ok(()) if is_usual => Ok(true),
        Ok(()) => {
            let stored = mtime_of(&fstat(file)?).seconds;
            Ok(stored.abs_diff(mtime.seconds) <= COARSEST_UNIT_SECONDS)
        }
        Err(Errno::INVAL | Errno::OVERFLOW | Errno::RANGE) if !is_usual => Ok(false),
        Err(errno) if is_not_stored(errno, stat) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Sets the time of change of an open file or directory.
pub(crate) fn set_mtime(file: &OwnedFd, mtime: Timestamp) -> Result<(), Errno> {
    file.set_times(&times(mtime))
}

fn times(mtime: Timestamp) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let mtime = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
    Timestamps { last_access: omit, last_modification: mtime }
}

/// Reports whether an entry differs from `wanted` in mode, owner or attributes, or from `mtime` in
/// its time: the file system may keep only a part of the time of `wanted`.
pub(crate) fn differs(
    file: &impl Handle,
    stat: &Stat,
    wanted: &Metadata,
    mtime: Timestamp,
    options: &Options,
) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let owner_differs =
        options.owners && (stat.st_gid != wanted.gid || (is_root && stat.st_uid != wanted.uid));
    let has_mode = options.permissions && file.has_mode();
    let mode_differs = has_mode && stat.st_mode & PERMISSION_BITS != wanted.mode;
    let times_differ = options.times && mtime_of(stat) != mtime;
    if owner_differs || mode_differs || times_differ {
        return true;
    }
    options.xattrs && {
        let mut there = xattrs_of(file);
        // Attributes that the source may not ask for are not compared, either.
        there.retain(|xattr| options.privileges || !is_privilege(&xattr.name));
        // ACLs are permissions.
        there.retain(|xattr| options.permissions || !is_acl(&xattr.name));
        let mut here = wanted.xattrs.clone();
        there.sort_by(|a, b| a.name.cmp(&b.name));
        here.sort_by(|a, b| a.name.cmp(&b.name));
        there != here
    }
}

/// If this process owns a file or directory and is not root: permits the owner to read and write
/// it, and to make entries in a directory. Returns the mode that it had, if that had to be changed;
/// the caller sets the mode again.
pub(crate) fn make_usable(entry: &impl Handle, stat: &Stat) -> Result<Option<u32>, Errno> {
    let user = rustix::process::geteuid();
    let mode = stat.st_mode & PERMISSION_BITS;
    let usable = usable(FileType::from_raw_mode(stat.st_mode), mode);
    if stat.st_uid != user.as_raw() || mode == usable || !entry.has_mode() {
        return Ok(None);
    }
    entry.set_mode(Mode::from_raw_mode(usable))?;
    Ok(Some(mode))
}

/// This mode with all permissions that the owner needs to work on such an entry. Root needs none.
pub(crate) fn usable(file_type: FileType, mode: u32) -> u32 {
    match file_type {
        _ if rustix::process::geteuid().is_root() => mode,
        FileType::Directory => mode | 0o700,
        _ => mode | 0o600,
    }
}
