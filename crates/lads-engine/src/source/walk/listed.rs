//! Names that a list of paths (`--files-from`) leads through.
//!
//! As in rsync: a listed path may lead through symbolic links, which become directories at the
//! sink. The directories on the way are moved although patterns exclude them, but only if at least
//! one of the listed paths below exists and is not excluded. Every listed path that does not exist
//! is reported.

use super::super::list::{Listed, ListedPath};
use super::super::look::{Sight, Unseen, is_directory};
use super::super::roots::missing;
use super::super::table::Item;
use super::{Following, Job, Listing, Missing, NAMES_PER_LOT, Pending, Walker};
use crate::paths::{Directory, Making, NOT_THROUGH_LINKS};
use lads_core::filter::is_included;
use lads_core::units::EntryId;
use lads_core::walk::Step;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;
use std::sync::Arc;

/// Where the list leads at a name.
pub(super) enum Route {
    /// Into this directory.
    Below(Pending),
    /// To the entry itself, if it is listed.
    Entry,
    /// To a directory behind a link that is not moved.
    Nowhere,
}

impl Walker<'_> {
    /// Looks at a name that the list leads through. If nothing that the list leads to is moved, the
    /// paths below that do not exist are reported.
    pub(super) fn follow_list(
        &mut self,
        listing: &Listing,
        name: &[u8],
        listed: Listed,
        looked_at: &Result<Sight, Unseen>,
    ) -> Route {
        // A list has one source.
        let directory = listing.level.directory(0);
        let (handle, is_link) = match way_through(name, looked_at) {
            Ok(it) => it,
            Err(errno) => {
                self.miss_all_below(directory, name, listed, |_| Err(errno));
                return Route::Entry;
            }
        };
        let list = &self.end.frontier.list;
        // Unless links are copied, a link stands for its directory only if a slash follows it, and
        // for itself only if none does.
        let is_kept_link = is_link && !self.end.options.copy_links;
        let is_whole = if is_kept_link { list.has_slash(listed) } else { listed.is_whole };
        let is_entry = !is_kept_link || listing.listed.is_whole || list.is_plain(listed);
        let is_whole = is_whole && self.is_included(directory, listing.entry, name, true);
        let mut below = list.paths_below(listed);
        if below.any(|it| self.is_moved(handle, directory, name, &it)) || is_whole && is_link {
            let (above, parent, name) = (vec![Arc::clone(directory)], listing.entry, name.to_vec());
            let mut listed = listed;
            listed.is_whole = is_whole;
            return Route::Below(Pending { above, parent, name, listed, is_link });
        }
        drop(below);
        let look = |it: &ListedPath| status_of(handle, &[name, &it.path].join(&b'/'), it.has_slash);
        self.miss_all_below(directory, name, listed, look);
        if is_entry { Route::Entry } else { Route::Nowhere }
    }

    /// Reports whether a listed path below a name exists and is not excluded.
    fn is_moved(
        &self,
        handle: &OwnedFd,
        directory: &Directory,
        name: &[u8],
        listed: &ListedPath,
    ) -> bool {
        let path = [name, &listed.path].join(&b'/');
        let filters = &self.end.options.filters;
        match status_of(handle, &path, listed.has_slash) {
            Ok(stat) => is_included(filters, &directory.path_of(&path), is_directory(&stat)),
            // A path that is too long for one call is looked up one name at a time later.
            Err(errno) => errno == Errno::NAMETOOLONG,
        }
    }

    /// Notes all listed paths below a name that do not exist.
    fn miss_all_below(
        &mut self,
        directory: &Arc<Directory>,
        name: &[u8],
        listed: Listed,
        look: impl Fn(&ListedPath) -> Result<Stat, Errno>,
    ) {
        for it in self.end.frontier.list.paths_below(listed) {
            let Err(errno) = look(&it) else { continue };
            let mut names = it.path.split(|&byte| byte == b'/');
            let last = names.next_back().unwrap_or_default().to_vec();
            // Never opened: it only gives the path its names.
            let below = names.fold(directory.child(name, Making::Never), |it, name| {
                it.child(name, Making::Never)
            });
            self.missing.push(Missing { directory: below, name: last, errno });
        }
    }

    /// Returns the jobs that report the missing paths, a few in each.
    pub(super) fn reports_of_missing(&mut self, parent: EntryId) -> Following {
        let mut missing = std::mem::take(&mut self.missing).into_iter();
        let lot = || missing.by_ref().take(NAMES_PER_LOT).collect();
        let lots = std::iter::repeat_with(lot).take_while(|lot: &Vec<Missing>| !lot.is_empty());
        lots.map(|lot| Step::Job(Job::Miss(parent, lot))).collect()
    }

    /// Reports a listed path that does not exist.
    pub(super) fn report_missing(&mut self, parent: EntryId, it: Missing) {
        let id = self.end.table.new_id();
        self.keep(id, Item::new(it.directory, parent, it.name));
        self.unreadable(id, parent, false, missing(it.errno));
    }
}

/// Returns the handle that a name was looked up in, and whether the name is a link, if the name
/// leads to a directory.
fn way_through<'a>(
    name: &[u8],
    looked_at: &'a Result<Sight, Unseen>,
) -> Result<(&'a OwnedFd, bool), Errno> {
    let Sight { handle, stat, is_followed } = match looked_at {
        Ok(sight) => sight,
        Err(Unseen::Dangling) => return Err(Errno::NOENT),
        Err(Unseen::Failed(errno)) => return Err(*errno),
    };
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let leads_to_directory = match is_link {
        true => is_directory(&statat(handle, name, AtFlags::empty())?),
        false => is_directory(stat),
    };
    if leads_to_directory { Ok((handle, is_link || *is_followed)) } else { Err(Errno::NOTDIR) }
}

/// Returns the status of a path below a directory. Only a path that was listed with a slash may end
/// in a link to a directory.
fn status_of(handle: &OwnedFd, path: &[u8], has_slash: bool) -> Result<Stat, Errno> {
    let through = has_slash.then(|| statat(handle, path, AtFlags::empty()));
    match through {
        Some(Ok(stat)) if is_directory(&stat) => Ok(stat),
        _ => statat(handle, path, NOT_THROUGH_LINKS),
    }
}
