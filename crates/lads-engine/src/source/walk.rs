//! The walk: finds what is to be moved, no faster than it is moved.
//!
//! Depth first, files before directories. So what is kept at a time is the window of entries under
//! way, and the names of directories still to visit. Nothing is sorted, and nothing is read twice.
//!
//! Several threads walk, because a metadata server needs time for each answer and answers many
//! requests at once. Their jobs and results are in a [`Plan`], which releases results in the order
//! in which a single thread would have found them.

use super::instead::Instead;
use super::list::{List, Listed};
use super::look::{Sight, Unseen, is_one_file_system, look, look_at_directory, sight};
use super::merge::Level;
use super::roots::missing;
use super::table::Item;
use super::{SourceEnd, failed};
use crate::board::lock;
use crate::deeds::Subject;
use crate::end::try_to_spawn_for;
use crate::hub::Waiter;
use crate::paths::{Directory, Making, open_unnoticed, to_list};
use crate::stat::identity_of;
use lads_core::entry::{Entry, Kind, is_own_name, shortened};
use lads_core::filter::is_included;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::pass::Pass;
use lads_core::source::{Event, Found};
use lads_core::units::EntryId;
use lads_core::walk::{Plan, Step};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags, RawDir};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

mod listed;

use listed::Route;

/// The most entries that are passed to the session in one go.
pub(super) const BATCH: usize = 64;
/// Maximum number of threads that walk; each is started when there is a job for it. With a metadata
/// server that takes 0.3 ms for an answer, 1,000 small files are moved in 1.40 s by one thread, in
/// 1.06 s by four, in 0.97 s by eight and in 0.95 s by sixteen.
const WALKERS: usize = 8;
/// The names that a thread examines in one job. A quarter of this took 1.02 s in the same test,
/// which is within the noise of 0.97. More than half of [`BATCH`] would leave space unused in most
/// batches.
const NAMES_PER_LOT: usize = 32;
/// The space in bytes for names that are read in one call: what the C library uses, enough for
/// about 1,000.
const NAMES_BYTES: usize = 32 << 10;

/// The directories and names still to walk, and the state of the whole walk.
#[derive(Debug)]
pub(super) struct Frontier {
    plan: Mutex<Plan<Job, Report>>,
    /// The listed paths, if only those are moved.
    list: List,
    left_out: Mutex<LeftOut>,
    /// Whether it was reported that several sources have an entry of the same name.
    has_told_of_others: AtomicBool,
    /// Number of threads that were started, with the first one.
    walker_count: AtomicUsize,
}

/// A job of a thread of the walk.
#[derive(Debug)]
enum Job {
    /// Begin with the sources named on the command line.
    Begin,
    /// Announce a directory, and begin with its entries.
    Enter(Pending),
    /// Read names in a directory.
    List(Reading),
    /// Examine names in a directory.
    Meet(Arc<Listing>, Vec<Name>),
    /// Report listed paths below this directory that do not exist.
    Miss(EntryId, Vec<Missing>),
    /// Announce files of a directory without storage, from the file of this number on.
    Invent(Arc<Listing>, u64),
}

/// A directory that the walk has still to visit.
#[derive(Debug)]
struct Pending {
    /// The directories that hold it; several if several sources have one of its name.
    above: Vec<Arc<Directory>>,
    parent: EntryId,
    name: Vec<u8>,
    /// The listed paths that are moved of it.
    listed: Listed,
    /// Whether the name is a symbolic link that the list leads through.
    is_link: bool,
}

/// A name to be examined.
#[derive(Debug)]
struct Name {
    /// Which directory of the level it was found in.
    index: usize,
    bytes: Vec<u8>,
    /// The listed paths that are moved of it.
    listed: Listed,
}

/// A listed path that does not exist.
#[derive(Debug)]
struct Missing {
    directory: Arc<Directory>,
    name: Vec<u8>,
    errno: Errno,
}

/// A directory whose names are being examined.
#[derive(Debug)]
struct Listing {
    entry: EntryId,
    level: Arc<Level>,
    /// The listed paths that are moved of it.
    listed: Listed,
    /// Its directories that were passed to the session.
    subdirectories: Mutex<Vec<Pending>>,
}

/// How far the names of a directory have been read.
#[derive(Debug)]
struct Reading {
    listing: Arc<Listing>,
    /// The directory of its level that is being read.
    index: usize,
    /// The handle of that directory, once its first names were read.
    handle: Option<Arc<OwnedFd>>,
}

/// The result of a job, to be passed on when its turn comes.
#[derive(Debug)]
enum Report {
    /// Entries that were found; with the directory, if one of them is to be listed.
    Met(Met, Option<Arc<Listing>>),
    /// Everything in a directory was found.
    Listed(Arc<Listing>),
    /// Not all names of a directory are known.
    NotListed(Arc<Listing>, Failure),
}

/// Entries that were found and not passed on yet.
#[derive(Debug, Default)]
struct Met {
    events: Vec<Event>,
    items: Vec<(EntryId, Arc<Item>)>,
    directories: Vec<Pending>,
    /// Paths of entries that were left out because their names look like LADS's own.
    left_out: Vec<Vec<u8>>,
}

type Following = Vec<Step<Job, Report>>;

/// Entries that were left out because their names look like LADS's own.
#[derive(Debug, Default)]
struct LeftOut {
    count: u64,
    /// The path of the first one, below the root.
    first: Option<Vec<u8>>,
}

impl Frontier {
    /// A walk that has not begun; of `list`, if only listed paths are moved.
    pub(super) fn new(list: Option<&[Vec<u8>]>) -> Self {
        let mut paths = List::default();
        list.into_iter().flatten().for_each(|path| paths.add(path));
        Self {
            plan: Mutex::new(Plan::new(Job::Begin)),
            list: paths,
            left_out: Mutex::default(),
            has_told_of_others: AtomicBool::new(false),
            walker_count: AtomicUsize::new(1),
        }
    }
}

impl Pending {
    /// Its path below the root.
    fn path(&self) -> Vec<u8> {
        match self.name.as_slice() {
            b"." => Vec::new(),
            name => self.above[0].path_of(name),
        }
    }
}

impl Listing {
    fn new(entry: EntryId, level: Arc<Level>, listed: Listed) -> Arc<Self> {
        Arc::new(Self { entry, level, listed, subdirectories: Mutex::default() })
    }
}

/// The jobs that follow from names in a directory.
fn lots(listing: &Arc<Listing>, names: Vec<Name>) -> Following {
    let mut names = names.into_iter();
    let lot = || names.by_ref().take(NAMES_PER_LOT).collect();
    let lots = std::iter::repeat_with(lot).take_while(|lot: &Vec<Name>| !lot.is_empty());
    lots.map(|lot| Step::Job(Job::Meet(Arc::clone(listing), lot))).collect()
}

/// The same, if the directory has no other names.
fn all_of(listing: &Arc<Listing>, names: Vec<Name>) -> Following {
    let mut following = lots(listing, names);
    following.push(Step::Report(Report::Listed(Arc::clone(listing))));
    following
}

/// The job that reads the directories of a level, from this one on.
fn reading_from(listing: &Arc<Listing>, index: usize) -> Following {
    let next = listing.level.whole().find(|&it| it >= index);
    let listing = Arc::clone(listing);
    vec![match next {
        Some(index) => Step::Job(Job::List(Reading { listing, index, handle: None })),
        None => Step::Report(Report::Listed(listing)),
    }]
}

impl Report {
    /// Whether this can be passed on together with what is to be passed on already.
    fn fits(&self, met: &Met) -> bool {
        let count = match self {
            Self::Met(met, _) => met.events.len(),
            Self::Listed(_) | Self::NotListed(..) => 1,
        };
        met.events.len() + count <= BATCH
    }
}

/// One thread of the walk.
pub(super) struct Walker<'a> {
    end: &'a Arc<SourceEnd>,
    /// What the present job has found.
    met: Met,
    /// Listed paths that the present job has found to be missing.
    missing: Vec<Missing>,
    /// The threads that this one has started.
    started: Vec<JoinHandle<()>>,
}

impl<'a> Walker<'a> {
    pub(super) fn new(end: &'a Arc<SourceEnd>) -> Self {
        Self { end, met: Met::default(), missing: Vec::new(), started: Vec::new() }
    }

    /// Walks until everything was found or the transfer is over, and all threads that it started
    /// have ended.
    pub(super) fn run(mut self) {
        while self.do_next().is_some() {}
        for walker in self.started {
            // If it panicked, the transfer has ended.
            let _ = walker.join();
        }
    }

    /// Starts further threads for jobs that no thread will take soon: this one takes one of them.
    /// The walk continues without a thread that cannot be started.
    fn start_others(&mut self, untaken_count: usize) {
        let count = &self.end.frontier.walker_count;
        let is_new = |_: &usize| count.fetch_add(1, Ordering::Relaxed) < WALKERS;
        let walk = |end: Arc<SourceEnd>| Walker::new(&end).run();
        let others = (1..untaken_count).take_while(is_new);
        self.started.extend(others.filter_map(|_| try_to_spawn_for(self.end, "walk", walk).ok()));
    }

    /// Waits for a job, does it, and passes on the results that are due. `None` when the transfer
    /// is over.
    fn do_next(&mut self) -> Option<()> {
        let (hub, plan) = (&self.end.hub, &self.end.frontier.plan);
        let (number, job) = hub.wait_for(Waiter::Walker, |_| lock(plan).take().ok_or(None))?;
        let (listing, following) = match job {
            Job::Begin => self.begin(),
            Job::Enter(pending) => self.enter(&pending),
            Job::List(reading) => self.read_names(reading),
            Job::Meet(listing, names) => {
                names.into_iter().for_each(|name| self.meet(&listing, name));
                let following = self.reports_of_missing(listing.entry);
                (Some(listing), following)
            }
            Job::Miss(parent, missing) => {
                missing.into_iter().for_each(|it| self.report_missing(parent, it));
                (None, Vec::new())
            }
            Job::Invent(listing, first) => self.invent(listing, first),
        };
        let report = Report::Met(std::mem::take(&mut self.met), listing);
        let untaken_count = hub.with(|inner| {
            let mut plan = lock(plan);
            plan.put(number, report, following);
            hub.wake_walkers(inner, plan.job_count())
        });
        self.start_others(untaken_count);
        self.tell_what_is_due()
    }

    /// Passes results to the session in order, when the session wants more.
    fn tell_what_is_due(&mut self) -> Option<()> {
        let (end, plan) = (self.end, &self.end.frontier.plan);
        if !lock(plan).begin_telling() {
            return Some(());
        }
        loop {
            let mut met = Met::default();
            let (untaken_count, is_all) = end.hub.with(|inner| {
                let mut plan = lock(plan);
                while let Some(report) = plan.next_report(|it| it.fits(&met)) {
                    self.take_in(report, &mut met, &mut plan);
                }
                (end.hub.wake_walkers(inner, plan.job_count()), plan.is_empty())
            });
            self.start_others(untaken_count);
            self.tell(met)?;
            if is_all {
                self.tell_left_out();
                end.tell(Event::WalkEnded);
            }
            if lock(plan).end_telling() {
                return Some(());
            }
        }
    }

    /// Adds a report whose turn has come to what is passed on next.
    fn take_in(&self, report: Report, told: &mut Met, plan: &mut Plan<Job, Report>) {
        match report {
            Report::Met(met, listing) => {
                told.events.extend(met.events);
                told.items.extend(met.items);
                if let Some(listing) = listing {
                    lock(&listing.subdirectories).extend(met.directories);
                }
                let mut left_out = lock(&self.end.frontier.left_out);
                left_out.count += met.left_out.len() as u64;
                if let Some(path) = met.left_out.into_iter().next() {
                    left_out.first.get_or_insert(path);
                }
            }
            Report::Listed(listing) => {
                let subdirectories = std::mem::take(&mut *lock(&listing.subdirectories));
                let (directory, subdirectory_count) = (listing.entry, subdirectories.len() as u64);
                told.events.push(Event::Listed { directory, subdirectory_count });
                plan.put_first(subdirectories.into_iter().map(Job::Enter));
            }
            Report::NotListed(listing, failure) => {
                told.events.push(Event::NotListed { directory: listing.entry, failure });
            }
        }
    }

    fn tell(&self, met: Met) -> Option<()> {
        if met.events.is_empty() {
            return Some(());
        }
        let end = self.end;
        end.table.insert(met.items);
        end.hub.wait_for(Waiter::Other, |inner| {
            let now = end.clock.now();
            inner.session.may_go_on(now).map_err(|at| at.map(|at| at.since(now)))
        })?;
        end.tell_all(met.events);
        Some(())
    }

    /// Begins with the sources named on the command line, or with the listed paths below the
    /// source.
    fn begin(&mut self) -> (Option<Arc<Listing>>, Following) {
        let end = self.end;
        let level = Arc::clone(&end.top);
        let listing = Listing::new(EntryId::ROOT, level, Listed::WHOLE);
        if let Some(instead) = &end.instead {
            let (parent, name) = (EntryId::ROOT, instead.name().to_vec());
            let above = vec![Arc::clone(listing.level.directory(0))];
            match instead.is_directory() {
                true => {
                    let (listed, is_link) = (Listed::WHOLE, false);
                    self.met.directories.push(Pending { above, parent, name, listed, is_link });
                }
                false => {
                    self.invent_files(instead, &listing, 0, 1);
                }
            }
            let following = all_of(&listing, Vec::new());
            return (Some(listing), following);
        }
        let listed = match end.options.files_from {
            Some(_) => end.frontier.list.root(),
            None => Listed::WHOLE,
        };
        let whole = end.top.whole();
        let contents: Vec<_> = whole.map(|it| Arc::clone(end.top.directory(it))).collect();
        if !contents.is_empty() {
            let (parent, name) = (EntryId::ROOT, b".".to_vec());
            let (above, is_link) = (contents, false);
            self.met.directories.push(Pending { above, parent, name, listed, is_link });
        }
        let roots = end.roots.iter().enumerate().filter(|(_, root)| !root.is_contents_only);
        let listed = Listed::WHOLE;
        let names = roots.map(|(index, root)| Name { index, bytes: root.name.clone(), listed });
        let following = all_of(&listing, names.collect());
        (Some(listing), following)
    }

    /// Announces at most `count` files of a source that no walk finds, from the file of this number
    /// on. Returns how many there were.
    fn invent_files(
        &mut self,
        instead: &Instead,
        listing: &Listing,
        first: u64,
        count: usize,
    ) -> usize {
        let (directory, parent) = (listing.level.directory(0), listing.entry);
        let identities = instead.identities_from(first).take(count);
        let files = (first..).zip(identities).map(|(number, identity)| {
            let id = self.end.table.new_id();
            let name = match instead.is_directory() {
                true => format!("{number:07}").into_bytes(),
                false => instead.name().to_vec(),
            };
            let item = Item::new(Arc::clone(directory), parent, name.clone());
            self.keep(id, Item { identity: Some(identity), ..item });
            self.found(instead.found(id, parent, name, identity));
        });
        files.count()
    }

    /// Announces some files of a directory without storage.
    fn invent(&mut self, listing: Arc<Listing>, first: u64) -> (Option<Arc<Listing>>, Following) {
        let Some(instead) = &self.end.instead else { return (None, Vec::new()) };
        let count = self.invent_files(instead, &listing, first, NAMES_PER_LOT);
        let following = match count < NAMES_PER_LOT {
            true => all_of(&listing, Vec::new()),
            false => vec![Step::Job(Job::Invent(listing, first + count as u64))],
        };
        (None, following)
    }

    /// Announces a directory without storage, and begins with its files.
    fn enter_instead(
        &mut self,
        instead: &Instead,
        pending: &Pending,
    ) -> (Option<Arc<Listing>>, Following) {
        let (id, above) = (self.end.table.new_id(), &pending.above[0]);
        self.keep(id, Item::new(Arc::clone(above), pending.parent, pending.name.clone()));
        self.found(instead.found_directory(id, pending.parent));
        let level = Level::below(vec![above.child(&pending.name, Making::Never)]);
        let listing = Listing::new(id, level.into(), Listed::WHOLE);
        (None, vec![Step::Job(Job::Invent(listing, 0))])
    }

    /// Announces a directory, and begins with its entries.
    fn enter(&mut self, pending: &Pending) -> (Option<Arc<Listing>>, Following) {
        if let Some(instead) = &self.end.instead {
            return self.enter_instead(instead, pending);
        }
        let Some((entry, directories)) = self.announce_directory(pending) else {
            return (None, Vec::new());
        };
        let level = match pending.name.as_slice() {
            b"." => Arc::clone(&self.end.top),
            _ => Level::below(self.entered(pending, directories)).into(),
        };
        let listing = Listing::new(entry, level, pending.listed);
        let names = self.end.frontier.list.names_in(pending.listed).into_iter();
        let names = names.map(|(bytes, listed)| Name { index: 0, bytes, listed }).collect();
        let following = match pending.listed.is_whole {
            true => {
                let mut following = lots(&listing, names);
                following.extend(reading_from(&listing, 0));
                following
            }
            false => all_of(&listing, names),
        };
        (None, following)
    }

    /// Reads some names of a directory.
    fn read_names(&mut self, reading: Reading) -> (Option<Arc<Listing>>, Following) {
        let Reading { listing, index, handle } = reading;
        let mut names = Vec::new();
        let read = self.read_some(&listing, index, handle, &mut names);
        let mut following = lots(&listing, names);
        match read {
            Ok(Some(handle)) => {
                let reading = Reading { listing, index, handle: Some(handle) };
                following.push(Step::Job(Job::List(reading)));
            }
            Ok(None) => following.extend(reading_from(&listing, index + 1)),
            Err(errno) => {
                self.end.lookup.on_not_listed(listing.level.directory(index).path());
                let failure = failed(Operation::List, errno);
                following.push(Step::Report(Report::NotListed(listing, failure)));
            }
        }
        (None, following)
    }

    /// Reads as many names as one system call returns; `None` if there are no more.
    fn read_some(
        &self,
        listing: &Listing,
        index: usize,
        handle: Option<Arc<OwnedFd>>,
        read: &mut Vec<Name>,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        let directory = listing.level.directory(index);
        let subject = Subject::In(Arc::clone(directory));
        let _asked = self.end.hub.deeds.begin(Operation::List, subject, None);
        let handle = handle.map_or_else(|| self.handle_to_list(directory), Ok)?;
        let mut buffer = Vec::with_capacity(NAMES_BYTES);
        let mut names = RawDir::new(&*handle, buffer.spare_capacity_mut());
        loop {
            let Some(name) = names.next() else { return Ok(None) };
            let name = name?;
            let bytes = name.file_name().to_bytes();
            let is_listed = self.end.frontier.list.has_name(listing.listed, bytes);
            if bytes != b"." && bytes != b".." && !is_listed {
                read.push(Name { index, bytes: bytes.to_vec(), listed: Listed::WHOLE });
            }
            if names.is_buffer_empty() {
                return Ok(Some(handle));
            }
        }
    }

    /// Those directories of this name that the walk enters.
    fn entered(&self, pending: &Pending, directories: Vec<Arc<Directory>>) -> Vec<Arc<Directory>> {
        if self.end.options.deletion.is_some() {
            for (directory, above) in directories.iter().zip(&pending.above) {
                self.end.lookup.on_entered(above, &pending.name, directory);
            }
        }
        // A source that the person named is entered whatever is mounted on it.
        if !self.end.options.one_file_system || pending.parent == EntryId::ROOT {
            return directories;
        }
        let both = directories.into_iter().zip(&pending.above);
        both.filter(|(directory, above)| is_one_file_system(above, directory))
            .map(|(directory, _)| directory)
            .collect()
    }

    /// A handle to list a directory; in a comparison, one that leaves the time of access as it is.
    fn handle_to_list(&self, directory: &Arc<Directory>) -> Result<Arc<OwnedFd>, Errno> {
        let handle = directory.open()?;
        if !self.end.options.check {
            return to_list(handle);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open_unnoticed(&*handle, c".", flags).map(Arc::new)
    }

    /// Examines a directory and announces it; `None` if it cannot be opened. If several directories
    /// have this name, the metadata is that of the first.
    fn announce_directory(&mut self, pending: &Pending) -> Option<(EntryId, Vec<Arc<Directory>>)> {
        let Pending { above: all_above, parent, name, .. } = pending;
        let above = &all_above[0];
        let id = self.end.table.new_id();
        let item = Item::new(Arc::clone(above), *parent, name.clone());
        self.keep(id, item);
        let is_top = name == b".";
        let open = |it: &Arc<Directory>| match () {
            () if is_top => Arc::clone(it),
            () if pending.is_link => it.child_through_link(name),
            () => it.child(name, Making::Never),
        };
        let directories: Vec<_> = all_above.iter().map(open).collect();
        let end = self.end;
        let in_directory = Subject::In(Arc::clone(above));
        let asked = end.hub.deeds.begin(Operation::Examine, in_directory, None);
        let depth = directories[0].depth();
        let metadata = look_at_directory(end, above, name, depth, pending.is_link);
        drop(asked);
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(failure) => {
                self.end.lookup.on_not_listed(pending.path());
                self.unreadable(id, *parent, true, failure);
                return None;
            }
        };
        let (parent, name) = (*parent, name.clone());
        let entry = Entry { id, parent, name, kind: Kind::Directory, metadata };
        self.found(Found::new(entry));
        match directories[0].open() {
            Ok(_) => Some((id, directories)),
            Err(errno) => {
                self.end.lookup.on_not_listed(pending.path());
                let failure = failed(Operation::List, errno);
                self.met.events.push(Event::NotListed { directory: id, failure });
                None
            }
        }
    }

    /// Examines a name. Directories are entered later; everything else is passed to the session.
    fn meet(&mut self, listing: &Listing, name: Name) {
        let (end, parent, level) = (self.end, listing.entry, &listing.level);
        let Name { index, bytes: name, mut listed } = name;
        let directory = level.directory(index);
        end.hub.on_move();
        let in_directory = Subject::In(Arc::clone(directory));
        let asked = end.hub.deeds.begin(Operation::Examine, in_directory, None);
        let looked_at = sight(&end.options, directory, &name);
        // The user listed this name, so it is reported if it is missing, also if it is excluded.
        let is_missing = looked_at.is_err() && end.frontier.list.is_end(listed);
        if end.frontier.list.leads_below(listed) && !is_own_name(&name) {
            match self.follow_list(listing, &name, listed, &looked_at) {
                Route::Below(pending) => return self.met.directories.push(pending),
                Route::Entry if listed.is_whole => listed = Listed::WHOLE,
                Route::Entry | Route::Nowhere => return,
            }
        }
        drop(asked);
        let is_directory = looked_at.as_ref().is_ok_and(Sight::is_directory);
        if !is_missing && !self.is_wanted(directory, parent, &name, is_directory) {
            return;
        }
        let look_in = |other: &Arc<Directory>| {
            // An entry that cannot be examined counts as existing. The walk reports it later.
            let is_directory = match sight(&end.options, other, &name) {
                Ok(sight) => sight.is_directory(),
                Err(Unseen::Failed(Errno::NOENT | Errno::NOTDIR)) => return None,
                Err(_) => false,
            };
            let is_moved =
                !is_own_name(&name) && self.is_included(other, parent, &name, is_directory);
            is_moved.then_some(is_directory)
        };
        let Some(above) = level.taken_from(index, &name, is_directory, look_in) else {
            if !is_directory {
                self.tell_of_others(&directory.path_of(&name));
            }
            return;
        };
        if is_directory {
            if end.options.copy_links
                && let Ok(sight) = &looked_at
                && directory.is_within(&sight.stat).unwrap_or(false)
            {
                let failure = Failure::new(Side::Source, Operation::Examine, Reason::Loop);
                let id = end.table.new_id();
                self.keep(id, Item::new(Arc::clone(directory), parent, name));
                return self.unreadable(id, parent, false, failure);
            }
            let is_link = end.options.copy_links;
            return self.met.directories.push(Pending { above, parent, name, listed, is_link });
        }
        self.meet_other(directory, parent, name, looked_at, is_missing);
    }

    /// Examines an entry that is not a directory, and passes it to the session. `is_missing`: a
    /// list has its name, and nothing is there.
    fn meet_other(
        &mut self,
        directory: &Arc<Directory>,
        parent: EntryId,
        name: Vec<u8>,
        looked_at: Result<Sight, Unseen>,
        is_missing: bool,
    ) {
        let (end, id) = (self.end, self.end.table.new_id());
        if let Ok(Sight { stat, .. }) = &looked_at
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && end.options.passing.is_size_passed(identity_of(stat).size)
        {
            self.keep(id, Item::new(Arc::clone(directory), parent, name));
            return self.met.events.push(Event::Passed { entry: id, parent, pass: Pass::Size });
        }
        let mut item = Item::new(Arc::clone(directory), parent, name.clone());
        let asked =
            end.hub.deeds.begin(Operation::Examine, Subject::In(Arc::clone(directory)), None);
        let seen = looked_at.and_then(|sight| {
            item.is_followed = sight.is_followed;
            item.identity = Some(identity_of(&sight.stat));
            Ok(look(end, &item, &sight)?)
        });
        drop(asked);
        let failure = match seen {
            Ok(Ok(mut seen)) => {
                item.identity = seen.identity().or(item.identity);
                item.link.clone_from(&seen.link);
                item.mirrors = Item::mirrors_of(&seen.mirrors);
                item.ranges = seen.ranges.take();
                self.keep(id, item);
                return self.found(seen.found(id, parent, name));
            }
            Ok(Err(failure)) => failure,
            // The name comes from a list, not from a directory: it may never have existed.
            Err(Unseen::Failed(errno @ Errno::NOENT)) if is_missing => missing(errno),
            Err(unseen) => unseen.failure(),
        };
        self.keep(id, item);
        self.unreadable(id, parent, false, failure);
    }

    fn is_wanted(
        &mut self,
        directory: &Directory,
        parent: EntryId,
        name: &[u8],
        is_directory: bool,
    ) -> bool {
        let is_included = self.is_included(directory, parent, name, is_directory);
        if is_included && is_own_name(name) {
            self.met.left_out.push(directory.path_of(name));
            return false;
        }
        is_included
    }

    fn is_included(
        &self,
        directory: &Directory,
        parent: EntryId,
        name: &[u8],
        is_directory: bool,
    ) -> bool {
        let filters = &self.end.options.filters;
        filters.is_empty()
            || parent == EntryId::ROOT && name == b"."
            || is_included(filters, &directory.path_of(name), is_directory)
    }

    /// Reports, once, that an entry is left out because another source has one of its name.
    fn tell_of_others(&self, path: &[u8]) {
        if !self.end.frontier.has_told_of_others.swap(true, Ordering::Relaxed) {
            let path = shortened(path.to_vec());
            self.end.board.notice(format!(
                "several sources contain {}: of entries with the same name, the first source wins; \
                 directories win over files",
                String::from_utf8_lossy(&path)
            ));
        }
    }

    fn keep(&mut self, id: EntryId, item: Item) {
        self.met.items.push((id, Arc::new(item)));
    }

    fn found(&mut self, found: Found) {
        self.met.events.push(Event::Found(Box::new(found)));
    }

    fn unreadable(&mut self, entry: EntryId, parent: EntryId, is_counted: bool, failure: Failure) {
        self.met.events.push(Event::Unreadable { entry, parent, is_counted, failure });
    }

    fn tell_left_out(&self) {
        let LeftOut { count, first } = &*lock(&self.end.frontier.left_out);
        if let Some(first) = first {
            let first = String::from_utf8_lossy(&shortened(first.clone())).into_owned();
            let text = format!(
                "skipped at the source, because their names are those of unfinished files and \
                 journals of LADS: {count} (the first: {first})"
            );
            self.end.board.notice(text);
        }
    }
}
