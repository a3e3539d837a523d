//! Links and special files: they have no data, and are made when they are looked at.

use super::examine::is_same_inode;
use super::planted::{Hidden, is_ours_alone, may_have_further_names};
use super::table::Item;
use super::{SinkEnd, failed};
use crate::metadata::{Held, apply};
use crate::paths::{NOT_THROUGH_LINKS, parent_of, remove_left_over};
use lads_core::entry::{Entry, Kind};
use lads_core::issue::{Failure, Operation};
use lads_core::message::Answer;
use lads_core::sink::Examined;
use rustix::fs::{
    AtFlags, FileType, Mode, Stat, linkat, mknodat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

impl SinkEnd {
    /// Links and specials, which have no data and are made here.
    pub(super) fn examine_other(
        &self,
        entry: &Entry,
        item: &Item,
        handle: &OwnedFd,
        there: Option<&Stat>,
    ) -> Result<Examined, Failure> {
        let is_same = match (&entry.kind, there) {
            (_, None) => false,
            // The source and the sink may have one link: removed there, it would be gone. A new one
            // is another one for the source.
            (Kind::Symlink { .. } | Kind::Special { .. }, _) if self.options.is_move() => false,
            (Kind::HardLink { target }, Some(stat)) => {
                self.is_named(target, stat).map_err(|errno| failed(Operation::Examine, errno))?
            }
            (_, Some(_)) => self
                .mend_other(entry, item, handle)
                .map_err(|errno| failed(Operation::SetMetadata, errno))?,
        };
        let answer = match (is_same, self.options.dry_run) {
            (true, is_dry_run) => {
                if !is_dry_run {
                    self.clear_left_over(item, handle);
                }
                Answer::Have
            }
            (false, true) => Answer::Would,
            (false, false) => {
                let operation = match entry.kind {
                    Kind::HardLink { .. } => Operation::Link,
                    _ => Operation::Create,
                };
                self.make_other(entry, item, handle, operation)?;
                Answer::Made
            }
        };
        Ok(Examined::Answer(answer))
    }

    /// Whether a path below the root is a name of this file.
    fn is_named(&self, path: &[u8], file: &Stat) -> Result<bool, Errno> {
        let (directory, name) = match parent_of(&self.place().root, path) {
            // A dry run has not made it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            found => found?,
        };
        Ok(statat(&directory, name, NOT_THROUGH_LINKS).is_ok_and(|it| is_same_inode(&it, file)))
    }

    /// Whether the same link or special file is there already; its metadata is set as at the
    /// source. If it has several names, another one may belong to somebody else: then it counts
    /// only if its metadata is right already, and otherwise a new one replaces it.
    fn mend_other(&self, entry: &Entry, item: &Item, handle: &OwnedFd) -> Result<bool, Errno> {
        let held = match Held::open(handle, &item.name) {
            Err(Errno::NOENT) => return Ok(false),
            held => held?,
        };
        if !held.is(&entry.kind)? {
            return Ok(false);
        }
        let stat = held.stat();
        if self.options.dry_run || !self.differs_from(&item.metadata, handle, &held, stat) {
            return Ok(true);
        }
        if may_have_further_names(handle, &item.name, &held, stat)? {
            return Ok(false);
        }
        let mode = self.mode_of_existing(item);
        item.reduce(apply(&held, stat, &item.metadata, mode, &self.options, true)?);
        Ok(true)
    }

    /// Makes it under a temporary name and renames it, so that what was there is replaced at once.
    fn make_other(
        &self,
        entry: &Entry,
        item: &Item,
        handle: &OwnedFd,
        operation: Operation,
    ) -> Result<(), Failure> {
        let of_operation = |errno| failed(operation, errno);
        let journal = &self.place().journal;
        let _claim = journal.claim(&item.path()).ok_or_else(|| of_operation(Errno::BUSY))?;
        let temporary = journal.temporary_name(&item.path());
        let temporary = temporary.as_str();
        remove_left_over(handle, temporary, journal.own().uid).map_err(of_operation)?;
        let is_link = matches!(entry.kind, Kind::HardLink { .. });
        let hidden = match is_link || is_ours_alone(handle).map_err(of_operation)? {
            true => None,
            false => Some(Hidden::make(handle, temporary).map_err(of_operation)?),
        };
        let workshop = hidden.as_ref().map_or(handle, Hidden::handle);
        let made = self
            .make_temporary_other(entry, item, workshop, temporary)
            .map_err(of_operation)
            .and_then(|()| {
                let rename = || renameat(workshop, temporary, handle, item.name.as_slice());
                self.name_replacing(item, rename)
            });
        if made.is_err() {
            let _ = unlinkat(workshop, temporary, AtFlags::empty());
        }
        made
    }

    fn make_temporary_other(
        &self,
        entry: &Entry,
        item: &Item,
        handle: &OwnedFd,
        temporary: &str,
    ) -> Result<(), Errno> {
        match &entry.kind {
            Kind::Symlink { target } => symlinkat(target.as_slice(), handle, temporary)?,
            Kind::HardLink { target } => {
                let (directory, name) = parent_of(&self.place().root, target)?;
                return linkat(&directory, name, handle, temporary, AtFlags::empty());
            }
            Kind::Special { file_type, device } => {
                let file_type = FileType::from_raw_mode(*file_type);
                let mode = Mode::RUSR | Mode::WUSR;
                mknodat(handle, temporary, file_type, mode, *device)?;
            }
            Kind::File { .. } | Kind::Directory => return Err(Errno::INVAL),
        }
        let held = Held::open(handle, temporary.as_bytes())?;
        if !held.is(&entry.kind)? || !held.is_as_made() {
            return Err(Errno::STALE);
        }
        let inherits_acl = self.inherits_acl(item, handle);
        let mode = Some(self.mode_of_new(item, handle));
        let reductions =
            apply(&held, held.stat(), &item.metadata, mode, &self.options, inherits_acl);
        item.reduce(reductions?);
        Ok(())
    }
}
