//! What is under an entry's name at the sink, and what is done about it before any data comes.

use super::{Instead, Place, SinkEnd, failed, is_file, journal_failed};
use crate::board::lock;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::hub::Inner;
use crate::job::{DIRECT_BYTES_MIN, Options};
use crate::journal::{Durable, Journal};
use crate::layout;
use crate::layout::lustre::ends_before;
use crate::metadata::{Handle, Held, apply, is_asked_for, make_usable};
use crate::paths::{
    Directory, NOT_THROUGH_LINKS, open_named_to_look_up, remove_left_over, sync_names,
};
use crate::sink::check::{clear_outside, unchanged};
use crate::sink::comparison::difference_of_file;
use crate::sink::planted::may_have_further_names;
use crate::sink::table::Item;
use crate::sink::times::ByDevice;
use crate::sink::unnamed::Unnamed;
use crate::sink::usable::{open_to_work_in, open_usable};
use crate::sink::write::reopen_temporary;
use crate::stat::{identity_of, mtime_of};
use lads_core::entry::UNSIZED_PLACED_BYTES;
use lads_core::entry::{Entry, Identity, Kind, Metadata, is_own_name};
use lads_core::growth::Extent;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::journal::{Begun, BlockRecord, PATH_BYTES_MAX};
use lads_core::layout::Layout;
use lads_core::message::{Answer, Root, Verb};
use lads_core::reduction::Reductions;
use lads_core::sink::{Event, Examined, Placement};
use lads_core::units::EntryId;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, fsync, mkdirat, openat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

impl SinkEnd {
    /// Finds the directory into which everything goes, by rsync's rules, and makes it if need be.
    pub(super) fn open_place(&self, roots: &[Root]) -> Result<Place, Fatal> {
        let target = self.target.as_slice();
        if let Some(instead) = &self.instead {
            let is_file = matches!(roots, [Root { is_directory: false, .. }]);
            if matches!(instead, Instead::Output(_)) && !is_file {
                let name = String::from_utf8_lossy(target);
                let text = format!(
                    "only a single file can be written to {name}, and SRC is not a single file"
                );
                return Err(Fatal::new(ExitCode::SinkRefuses, text));
            }
            return self.missing_place();
        }
        if !self.see_to_parents(target)? {
            return self.missing_place();
        }
        let there = statat(CWD, named(target), AtFlags::empty());
        let is_directory = there
            .as_ref()
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        let single = match roots {
            [root] if !root.is_directory && !target.ends_with(b"/") => Some(root),
            _ => None,
        };
        if is_directory {
            let root = self.open_directory(target)?;
            if roots.iter().any(|root| root.is_contents_only) && !self.options.dry_run {
                open_usable(&root).map_err(|errno| self.cannot("write to", target, errno))?;
            }
            return self.open_root(target, root, None);
        }
        match (&there, single) {
            (Ok(_), None) => Err(Fatal::new(
                ExitCode::SinkRefuses,
                format!(
                    "the target {} is a file, and the sources need a directory",
                    String::from_utf8_lossy(target)
                ),
            )),
            (Ok(_) | Err(Errno::NOENT), Some(_)) => {
                let cut = target.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
                let (above, name) = target.split_at(cut);
                self.open_root(above, self.open_directory(above)?, Some(name.to_vec()))
            }
            (Err(Errno::NOENT), None) if self.options.dry_run && !self.options.check => {
                self.missing_place()
            }
            (Err(Errno::NOENT), None) if !self.options.check => self.make_root(target),
            (Err(errno), _) => Err(self.cannot("examine the target", target, *errno)),
        }
    }

    /// The place of a sink that keeps nothing, and of a dry run whose target would be made.
    fn missing_place(&self) -> Result<Place, Fatal> {
        let place = self.open_root(b"/", self.open_directory(b"/")?, None)?;
        Ok(Place { is_missing: true, ..place })
    }

    /// Makes the directories above the target, if the user asked for that and they are missing.
    /// `false` if a dry run would make them.
    fn see_to_parents(&self, target: &[u8]) -> Result<bool, Fatal> {
        let name_end = target.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        let cut = target[..name_end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let above = &target[..cut];
        // Other errors are told when it is opened.
        let is_missing = || matches!(statat(CWD, above, AtFlags::empty()), Err(Errno::NOENT));
        if above.is_empty() || !is_missing() {
            return Ok(true);
        }
        if !self.options.makes_parents {
            let text = format!(
                "cannot create {}: its parent directory does not exist; add --mkpath to create it, \
                 too",
                self.place_name(target)
            );
            return Err(Fatal::new(ExitCode::SinkRefuses, text));
        }
        if self.options.dry_run {
            return Ok(false);
        }
        let slashes = (1..above.len()).filter(|&at| above[at] == b'/');
        for path in slashes.map(|at| &above[..at]) {
            match mkdirat(CWD, path, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                Ok(()) => sync_name(path)
                    .map_err(|errno| self.cannot("make durable the directory of", path, errno))?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.cannot("create the directory", path, errno)),
            }
        }
        Ok(true)
    }

    /// Makes the target directory. Only we look inside until it gets its mode, at the very end.
    fn make_root(&self, target: &[u8]) -> Result<Place, Fatal> {
        match mkdirat(CWD, named(target), Mode::RWXU) {
            Ok(()) => {}
            // Somebody else has made it since we looked, such as another transfer.
            Err(Errno::EXIST) => return self.open_root(target, self.open_directory(target)?, None),
            Err(errno) => return Err(self.cannot("create the target directory", target, errno)),
        }
        let handle = open_made(target).map_err(|errno| {
            let place = self.place_name(target);
            let text = format!(
                "{place} is not the directory that was created there a moment ago ({errno}): check \
                 which users may write in its parent directory, or create it yourself, then run \
                 the same command again"
            );
            Fatal::new(ExitCode::SinkRefuses, text)
        })?;
        sync_name(target)
            .map_err(|errno| self.cannot("make durable the directory of", target, errno))?;
        let place = self.open_root(target, Directory::root(handle), None)?;
        place.journal.record_root_made().map_err(|error| {
            let place = self.place_name(target);
            Fatal::new(
                ExitCode::SinkRefuses,
                format!("cannot write the journal in {place}: {error}"),
            )
        })?;
        let _ = place.root.was_made.set(());
        Ok(Place { is_root_made: true, ..place })
    }

    /// Opens a directory that the user named.
    fn open_directory(&self, path: &[u8]) -> Result<Arc<Directory>, Fatal> {
        open_named_to_look_up(path)
            .map(Directory::root)
            .map_err(|errno| self.cannot("open the target directory", path, errno))
    }

    /// Sets the open directory into which everything goes.
    fn open_root(
        &self,
        path: &[u8],
        root: Arc<Directory>,
        renamed: Option<Vec<u8>>,
    ) -> Result<Place, Fatal> {
        let handle = root.open().map_err(|e| self.cannot("open the target directory", path, e))?;
        let target = self.place_name(path);
        let stat = fstat(&*handle).map_err(|e| self.cannot("examine the directory", path, e))?;
        if self.options.is_move() {
            sync_name(path).map_err(|e| self.cannot("make durable the directory of", path, e))?;
        }
        let journal = match self.options.dry_run || self.instead.is_some() {
            true => Journal::of_dry_run(handle, &target)?,
            false => Journal::open(handle, &target, self.job_key, &self.board)?,
        };
        let is_root_made = journal.take_root_made();
        let root_metadata = Mutex::default();
        let (is_missing, sources) = (false, Vec::new());
        let unnamed = Unnamed::new(stat.st_dev, self.layouts.links_durably());
        Ok(Place {
            root,
            unnamed,
            journal,
            renamed,
            is_root_made,
            root_metadata,
            is_missing,
            sources,
            kept_times: ByDevice::default(),
        })
    }

    fn cannot(&self, what: &str, path: &[u8], errno: Errno) -> Fatal {
        crate::fatal::refused(&format!("cannot {what} {}", self.place_name(path)), errno)
    }

    fn place_name(&self, path: &[u8]) -> String {
        self.board.place(Side::Sink, named(path))
    }

    /// Looks at entries, makes what needs no data, and tells what becomes of each.
    pub(super) fn examine_all(&self, entries: Vec<Entry>) {
        let mut ended = Vec::new();
        let mut results: Vec<_> = entries
            .into_iter()
            .map(|entry| {
                // The source may have ended it before it was looked at, though it should not.
                let Some(item) = self.table.get(entry.id) else {
                    return (entry.id, Examined::Answer(Answer::Failed(parent_failed())));
                };
                let _asked = self.begin_call(Operation::Examine, entry.id, None);
                let examined = self.examine(&entry, &item).unwrap_or_else(|failure| {
                    self.tell_failure(&item, failure);
                    Examined::Answer(Answer::Failed(failure))
                });
                let is_needed =
                    matches!(examined, Examined::Want { .. } | Examined::Compare { .. });
                let stays = is_needed || entry.is_directory();
                let has_failed = matches!(examined, Examined::Answer(Answer::Failed(_)));
                if !stays
                    && let Some(item) = self.table.remove(entry.id)
                    && !has_failed
                {
                    self.count_reduced(&item);
                    if matches!(examined, Examined::Answer(Answer::Have | Answer::Made)) {
                        ended.push((entry.id, item));
                    }
                }
                (entry.id, examined)
            })
            .collect();
        if self.options.is_move() {
            self.make_examined_durable(&ended, &mut results);
        }
        self.tell_last(Event::Examined(results));
    }

    fn examine(&self, entry: &Entry, item: &Item) -> Result<Examined, Failure> {
        let directory = item.directory.as_ref().ok_or_else(parent_failed)?;
        let is_own = match &entry.kind {
            Kind::HardLink { target } => target.split(|&byte| byte == b'/').any(is_own_name),
            _ => is_own_name(&item.name),
        };
        if is_own || is_own_name(&item.name) {
            return Err(Failure::new(Side::Sink, Operation::Create, Reason::UnsafeName));
        }
        if let Kind::Directory = entry.kind {
            return self.examine_directory(item);
        }
        self.check_is_permitted(&entry.kind)?;
        let passing = &self.options.passing;
        let passed = |pass| Ok(Examined::Answer(Answer::Passed(pass)));
        if self.place().is_missing {
            let pass = passing.at_sink(&entry.kind, None, |_, mtime| mtime);
            return pass.map_or(Ok(Examined::Answer(Answer::Would)), passed);
        }
        let handle = match self.open_examined(directory) {
            Ok(handle) => handle,
            Err(errno) if let Some(pass) = passing.of_directory(errno) => return passed(pass),
            Err(errno) if self.is_absent(errno) => return Ok(Examined::Answer(Answer::Would)),
            Err(_) => return Err(parent_failed()),
        };
        let there = what_is_there(item, directory, &handle)?;
        if let Some(stat) = &there {
            self.note_name(item);
            let _ = item.replaces.set(stat.st_mode);
        }
        if self.options.check {
            return self.examine_difference(entry, item, &handle, there.as_ref());
        }
        let expected = |stat: &Stat, mtime| self.expected_time(&handle, stat, mtime);
        if let Some(pass) = passing.at_sink(&entry.kind, there.as_ref(), expected) {
            if !self.options.dry_run {
                self.clear_left_over(item, &handle);
            }
            return passed(pass);
        }
        let in_the_way =
            there.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        let there = if in_the_way {
            self.check_replacing(item, directory, &handle)?;
            None
        } else {
            there
        };
        if is_file(&entry.kind) {
            return self.examine_file(entry.id, item, &handle, there.as_ref());
        }
        self.examine_other(entry, item, &handle, there.as_ref())
    }

    /// Refuses kinds of entries that the user did not ask for, whatever the source says, and a
    /// further name for a file that is not finished, which would be half a file under a real name.
    fn check_is_permitted(&self, kind: &Kind) -> Result<(), Failure> {
        let refused = |reason| Err(Failure::new(Side::Sink, Operation::Create, reason));
        if !is_asked_for(kind, &self.options) {
            return refused(Reason::Special);
        }
        match kind {
            Kind::HardLink { target } if is_own_name(last_component(target)) => {
                refused(Reason::UnsafeName)
            }
            _ => Ok(()),
        }
    }

    /// Opens a directory whose entries are examined, and made unless this is a dry run or a check.
    fn open_examined(&self, directory: &Arc<Directory>) -> Result<Arc<OwnedFd>, Errno> {
        if self.options.dry_run { directory.open() } else { open_to_work_in(directory) }
    }

    fn examine_directory(&self, item: &Item) -> Result<Examined, Failure> {
        let own = item.own.as_ref().ok_or_else(parent_failed)?;
        if self.options.check {
            return self.examine_difference_of_directory(item, own);
        }
        let is_missing = self.place().is_missing;
        let opened = if is_missing { Err(Errno::NOENT) } else { self.open_examined(own) };
        let answer = match opened {
            // The target itself is made in any case, as rsync does.
            Err(_) if is_missing && item.name == b"." => Answer::Would,
            Err(errno) if let Some(pass) = self.options.passing.of_directory(errno) => {
                Answer::Passed(pass)
            }
            Ok(_) if own.was_made.get().is_some() => Answer::Made,
            Ok(_) => Answer::Have,
            Err(errno) if self.is_absent(errno) => Answer::Would,
            Err(errno) => return Err(failed(Operation::Create, errno)),
        };
        Ok(Examined::Answer(answer))
    }

    fn examine_file(
        &self,
        entry: EntryId,
        item: &Item,
        handle: &OwnedFd,
        there: Option<&Stat>,
    ) -> Result<Examined, Failure> {
        let identity = item.identity.expect("files are announced with it");
        let of_its_size = there.filter(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && u64::try_from(stat.st_size) == Ok(identity.size)
                && !item.is_known_different
        });
        self.check_is_another(&identity, there)?;
        let is_compared = self.options.checksum && identity.size > 0;
        if let (true, Some(stat)) = (is_compared, of_its_size) {
            return self.begin_comparison(item, handle, stat);
        }
        let same = of_its_size.filter(|stat| {
            let has_its_time =
                || mtime_of(stat) == self.expected_time(handle, stat, identity.mtime);
            // An empty file has the same contents as any other empty file.
            self.options.checksum || !self.options.ignores_times && has_its_time()
        });
        if let Some(stat) = same
            && (self.options.dry_run || self.mend_metadata(item, handle, stat)?)
        {
            self.clear_left_over(item, handle);
            return Ok(Examined::Answer(Answer::Have));
        }
        if self.options.dry_run {
            return Ok(Examined::Answer(Answer::Would));
        }
        let path = item.path();
        self.claim(item, &path)?;
        let done = self.left_from_before(item, handle, &path)?;
        let (layout, extents) = self.place_file(entry, item, handle, &path)?;
        Ok(Examined::Want { done, layout, extents })
    }

    /// An earlier attempt may have begun to make an entry that need not be made now.
    pub(super) fn clear_left_over(&self, item: &Item, handle: &OwnedFd) {
        let journal = &self.place().journal;
        if journal.is_inherited() {
            let path = item.path();
            // Whether it is on record or not. If it cannot be removed, it stays under its temporary
            // name.
            let _ = journal.take_begun(&path);
            let _ = remove_left_over(handle, &journal.temporary_name(&path), journal.own().uid);
            journal.forget(&path);
        }
    }

    /// Where the file will lie: where it lies already, or where it is placed now.
    fn place_file(
        &self,
        entry: EntryId,
        item: &Item,
        directory: &OwnedFd,
        path: &[u8],
    ) -> Result<(Layout, Vec<Extent>), Failure> {
        let size = if item.is_unsized() { UNSIZED_PLACED_BYTES } else { item.known_size() };
        self.look_at_osts();
        let Placement { wish, first_extent_bytes } = self
            .hub
            .with(|Inner { session, .. }| session.place(self.clock.now(), entry, item.striping));
        let file = layout::NewFile {
            directory,
            name: &self.place().journal.temporary_name(path),
            number: self.new_file_count.fetch_add(1, Ordering::Relaxed),
            size,
            wish: &wish,
            first_extent_bytes,
            is_there: item.goes_on.get().is_some(),
        };
        let placed =
            self.layouts.of_new_file(&file).map_err(|errno| failed(Operation::Create, errno))?;
        self.tell_other_place(&placed, path);
        if placed.is_made {
            // A large file is opened anew, to be written past the page cache.
            let file = placed.file.filter(|_| size < DIRECT_BYTES_MIN);
            lock(&item.temporary).on_made(file.and_then(|file| self.kept_open.keep(file)));
        }
        Ok((placed.layout, self.begin_growing(item, placed.extents)?))
    }

    /// Takes the temporary name for an entry, until it has ended.
    fn claim(&self, item: &Item, path: &[u8]) -> Result<(), Failure> {
        let claim = self.place().journal.claim(path).ok_or_else(is_in_use)?;
        *item.claim.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim);
        Ok(())
    }

    /// Blocks that an earlier attempt left, if the source file is still the same and the temporary
    /// file still there.
    fn left_from_before(
        &self,
        item: &Item,
        handle: &OwnedFd,
        path: &[u8],
    ) -> Result<Vec<BlockRecord>, Failure> {
        let journal = &self.place().journal;
        if path.len() > PATH_BYTES_MAX {
            return Err(failed(Operation::Create, Errno::NAMETOOLONG));
        }
        let identity = item.identity.expect("files are announced with it");
        let Some(begun) = journal.take_begun(path) else {
            journal.settle().map_err(|error| journal_failed(&error))?;
            return Ok(Vec::new());
        };
        let name = journal.temporary_name(path);
        let knows_extents = self.layouts.extents().is_some();
        let file = reopen_temporary(handle, &name, identity.size, journal.own())
            .filter(|file| knows_extents || !ends_before(file, identity.size));
        if let Some(file) = file.filter(|_| begun.identity == identity) {
            let stat = fstat(&file).map_err(|errno| failed(Operation::Examine, errno))?;
            let part = identity_of(&stat);
            let blocks = match part == begun.part {
                true => Some(begun.blocks),
                false => self.still_sound(item, &file, part, begun)?,
            };
            if let Some(blocks) = blocks {
                let _ = item.goes_on.set(());
                return Ok(blocks);
            }
        }
        journal.forget_durably(path).map_err(|error| journal_failed(&error))?;
        Ok(Vec::new())
    }

    /// The blocks on record that are still right, of a file that has changed since the last of them
    /// was recorded. Somebody may have written to it, or LADS itself before it was killed. So the
    /// blocks are compared with their checksums. `None` if the file is of no use.
    fn still_sound(
        &self,
        item: &Item,
        file: &OwnedFd,
        part: Identity,
        begun: Begun,
    ) -> Result<Option<Vec<BlockRecord>>, Failure> {
        let (path, identity, count) = (item.path(), begun.identity, begun.blocks.len());
        let blocks = unchanged(file, begun.blocks);
        if !item.is_dense && clear_outside(file, &blocks, identity.size).is_err() {
            return Ok(None);
        }
        if blocks.len() < count {
            self.board.notice(format!(
                "{}: its data at the sink was changed since the last attempt: {} of {count} blocks \
                 are sent again",
                String::from_utf8_lossy(&path),
                count - blocks.len()
            ));
            // The next record will hold the status of the file at that time. It must not vouch for
            // these blocks.
            self.place()
                .journal
                .record_instead(Durable { path, identity, part, blocks: &blocks })
                .map_err(|error| journal_failed(&error))?;
        }
        Ok(Some(blocks))
    }

    /// Sets the metadata of a file whose data is the same as at the source; `there` is its status
    /// as examined. `false` if its metadata must not be set: then the file is sent, and replaces
    /// the one that is there.
    pub(super) fn mend_metadata(
        &self,
        item: &Item,
        handle: &OwnedFd,
        there: &Stat,
    ) -> Result<bool, Failure> {
        let of_examine = |errno| failed(Operation::Examine, errno);
        let opened = OpenedToMend::open(handle, &item.name).map_err(of_examine)?;
        // This user may not even read a file of another user, so its metadata stays as it is.
        let Some(mut opened) = opened else { return Ok(true) };
        let stat = opened.stat().map_err(of_examine)?;
        if !is_same_inode(&stat, there) {
            return Err(failed(Operation::Examine, Errno::STALE));
        }
        if !self.differs_from(&item.metadata, handle, &opened.file, &stat) {
            return Ok(true);
        }
        let of_metadata = |errno| failed(Operation::SetMetadata, errno);
        if may_have_further_names(handle, &item.name, &opened.file, &stat).map_err(of_metadata)? {
            return Ok(false);
        }
        let mode = self.mode_of_existing(item);
        let reductions = opened.set(&item.metadata, mode, &self.options).map_err(of_metadata)?;
        item.reduce(reductions);
        fsync(&opened.file).map_err(|errno| failed(Operation::Sync, errno))?;
        Ok(true)
    }

    /// Whether a directory that cannot be opened does not exist, or is another kind of entry, in a
    /// dry run or a comparison, which create and replace nothing. The entries in it are not
    /// examined.
    fn is_absent(&self, errno: Errno) -> bool {
        self.options.dry_run && matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
    }

    /// How what is there differs from a file, link or special of the source; files of the same size
    /// are to be compared.
    fn examine_difference(
        &self,
        entry: &Entry,
        item: &Item,
        handle: &OwnedFd,
        there: Option<&Stat>,
    ) -> Result<Examined, Failure> {
        let of_examine = |errno| failed(Operation::Examine, errno);
        let difference = match &item.identity {
            Some(identity) => match difference_of_file(there, identity.size) {
                // It has no contents with which its metadata would be compared.
                None if identity.size == 0 => {
                    let held = Held::open(handle, &item.name);
                    self.difference_of_metadata(item, handle, &held.map_err(of_examine)?)
                }
                difference => difference,
            },
            None => self.difference_of_other(entry, item, handle, there)?,
        };
        if let Some(verb) = difference {
            self.tell_difference(item, verb);
            return Ok(Examined::Answer(Answer::Would));
        }
        match there {
            Some(stat) if entry.size() > 0 => self.begin_comparison(item, handle, stat),
            _ => Ok(Examined::Answer(Answer::Have)),
        }
    }

    fn difference_of_other(
        &self,
        entry: &Entry,
        item: &Item,
        handle: &OwnedFd,
        there: Option<&Stat>,
    ) -> Result<Option<Verb>, Failure> {
        if there.is_none() {
            return Ok(Some(Verb::OnlyAtSource));
        }
        let of_examine = |errno| failed(Operation::Examine, errno);
        let held = Held::open(handle, &item.name).map_err(of_examine)?;
        if !held.is(&entry.kind).map_err(of_examine)? {
            let file_type = FileType::from_raw_mode(held.stat().st_mode);
            let is_of_kind = match entry.kind {
                Kind::Symlink { .. } => file_type == FileType::Symlink,
                Kind::Special { file_type: of_source, .. } => {
                    file_type == FileType::from_raw_mode(of_source)
                }
                _ => false,
            };
            let verb = if is_of_kind { Verb::OtherTarget } else { Verb::OtherKind };
            return Ok(Some(verb));
        }
        Ok(self.difference_of_metadata(item, handle, &held))
    }

    fn difference_of_metadata(&self, item: &Item, handle: &OwnedFd, held: &Held) -> Option<Verb> {
        let is_other = self.differs_from(&item.metadata, handle, held, held.stat());
        is_other.then_some(Verb::OtherMetadata)
    }

    fn examine_difference_of_directory(
        &self,
        item: &Item,
        own: &Arc<Directory>,
    ) -> Result<Examined, Failure> {
        let verb = match own.open() {
            Ok(handle) => {
                self.note_name(item);
                let stat = fstat(&*handle).map_err(|errno| failed(Operation::Examine, errno))?;
                let is_other = self.differs_from(&item.metadata, &handle, &*handle, &stat);
                is_other.then_some(Verb::OtherMetadata)
            }
            Err(errno) => {
                let above = item.directory.as_ref().ok_or_else(parent_failed)?;
                match (above.open().is_ok(), errno) {
                    (false, errno) if self.is_absent(errno) => None,
                    (true, Errno::NOENT) => Some(Verb::OnlyAtSource),
                    (true, Errno::NOTDIR | Errno::LOOP) => {
                        self.note_name(item);
                        Some(Verb::OtherKind)
                    }
                    _ => return Err(failed(Operation::Open, errno)),
                }
            }
        };
        if let Some(verb) = verb {
            self.tell_difference(item, verb);
        }
        Ok(Examined::Answer(Answer::Have))
    }
}

/// A file whose metadata is compared and set.
struct OpenedToMend {
    file: OwnedFd,
    /// If this user owns the file and its mode does not let the owner read it: that mode, which the
    /// file gets back.
    mode_before: Option<u32>,
}

impl OpenedToMend {
    /// Opens a file. `None` if it belongs to another user, and this user may not read it.
    fn open(directory: &OwnedFd, name: &[u8]) -> Result<Option<Self>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(directory, name, flags, Mode::empty()) {
            Err(Errno::ACCESS) => {}
            opened => return opened.map(|file| Some(Self { file, mode_before: None })),
        }
        let held = Held::open(directory, name)?;
        let Some(mode) = make_usable(&held, held.stat())? else { return Ok(None) };
        let file = held.read().inspect_err(|_| {
            // The first error counts.
            let _ = held.set_mode(Mode::from_raw_mode(mode));
        })?;
        Ok(Some(Self { file, mode_before: Some(mode) }))
    }

    /// Returns the status of the file with the mode that it had.
    fn stat(&self) -> Result<Stat, Errno> {
        let mut stat = fstat(&self.file)?;
        if let Some(mode) = self.mode_before {
            stat.st_mode = FileType::from_raw_mode(stat.st_mode).as_raw_mode() | mode;
        }
        Ok(stat)
    }

    fn set(
        &mut self,
        to: &Metadata,
        mode: Option<u32>,
        options: &Options,
    ) -> Result<Reductions, Errno> {
        let mode = mode.or(self.mode_before);
        let reductions = apply(&self.file, &fstat(&self.file)?, to, mode, options, true)?;
        self.mode_before = None;
        Ok(reductions)
    }
}

impl Drop for OpenedToMend {
    fn drop(&mut self) {
        if let Some(mode) = self.mode_before {
            // If it fails, the next run sets the mode.
            let _ = self.file.set_mode(Mode::from_raw_mode(mode));
        }
    }
}

/// What is under the name of an entry. A directory that was made for this transfer is empty, so the
/// server need not be asked: one call less for each file of a new tree.
fn what_is_there(
    item: &Item,
    directory: &Directory,
    handle: &OwnedFd,
) -> Result<Option<Stat>, Failure> {
    if directory.was_made.get().is_some() {
        return Ok(None);
    }
    match statat(handle, item.name.as_slice(), NOT_THROUGH_LINKS) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed(Operation::Examine, errno)),
    }
}

/// Makes the name of a directory that a user named durable in the directory above.
fn sync_name(path: &[u8]) -> Result<(), Errno> {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let cut = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    sync_names(&open_named_to_look_up(&path[..cut])?)
}

/// Opens a directory that we made under this name a moment ago.
///
/// # Errors
/// If somebody put something else there: `LOOP` or `NOTDIR`, or `STALE` if we are root and it is
/// somebody else's.
fn open_made(path: &[u8]) -> Result<OwnedFd, Errno> {
    // With a slash at the end, a link would be followed all the same.
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(CWD, &path[..end], flags, Mode::empty())?;
    let is_ours = !geteuid().is_root() || fstat(&handle)?.st_uid == 0;
    if is_ours { Ok(handle) } else { Err(Errno::STALE) }
}

pub(super) fn is_same_inode(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

fn named(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// Another entry of the same path is not done yet.
fn is_in_use() -> Failure {
    failed(Operation::Create, Errno::BUSY)
}

fn parent_failed() -> Failure {
    Failure::new(Side::Sink, Operation::Create, Reason::ParentFailed)
}

#[cfg(test)]
mod tests;
