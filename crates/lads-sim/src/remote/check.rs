//! What must hold for the bytes of remote files: each write and each read knows what happened
//! before it (a vector clock), and each byte of a file holds the number of the write that put it
//! there.
//!
//! A component of a clock counts the writes through one file that a process opened. A process knows
//! of its own writes through the same file at once. It knows of other writes after a flush, a lock,
//! or a message that followed a fence.

use super::bytes::Stamp;
use super::disk::DiskFile;
use crate::findings::Checked;
use lads_core::remote::message::FileNumber;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of processes in a world.
pub(super) const PROCESSES_MAX: usize = 12;
/// Files that a process may have open, in all.
pub(super) const SLOTS: usize = 4;

/// The number of writes that are known, for each component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock([u32; PROCESSES_MAX * SLOTS]);

/// A component of clocks.
pub(super) type Component = usize;

impl Default for Clock {
    fn default() -> Self {
        Self([0; PROCESSES_MAX * SLOTS])
    }
}

impl Clock {
    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own = other.max(*own));
    }

    pub(super) fn raise(&mut self, component: Component, count: u32) {
        self.0[component] = self.0[component].max(count);
    }
}

/// A write, or a cut of a file.
#[derive(Debug)]
struct Write {
    component: Component,
    /// Its number within the component.
    count: u32,
    clock: Clock,
    path: usize,
    places: BTreeSet<u64>,
    is_cut: bool,
    /// Bytes that were put into the file.
    applied: BTreeSet<u64>,
    is_synced: bool,
    /// It failed, its call failed, or a crash may have removed it.
    is_excused: bool,
    /// Its process is gone.
    is_orphan: bool,
    /// Its process is gone, and no client has had the file open since.
    is_forgotten: bool,
    failure: Reported,
}

/// Writes that are compared with the bytes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    All,
    /// Those of a process.
    Process(usize),
    /// Those of a process that are durable.
    Synced(usize),
}

/// Whether a storage failure of a write was returned by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    NoFailure,
    NotYet,
    Yes,
}

/// All writes of a world.
#[derive(Debug)]
pub(super) struct Check {
    writes: Vec<Write>,
    at: Vec<BTreeMap<u64, Vec<Stamp>>>,
    /// Cuts in flight, by process and request.
    cuts: BTreeMap<(usize, u64), Stamp>,
    /// What processes knew that gave an exclusive lock back, by process.
    released: Vec<BTreeMap<usize, Clock>>,
    /// Processes with a lock: process, component, whether it is exclusive.
    holders: Vec<Vec<(usize, Component, bool)>>,
    /// Processes that are not connected any more.
    gone: BTreeSet<usize>,
    /// Files to which a process wrote, nobody knows where.
    all_lost: BTreeSet<usize>,
    /// The component of each file that was opened, and the number of its writes before.
    opened: BTreeMap<(usize, FileNumber), (Component, u32)>,
    /// Components whose file could not be opened.
    bad: BTreeSet<Component>,
}

fn process_of(component: Component) -> usize {
    component / SLOTS
}

impl Check {
    pub(super) fn new(paths: usize) -> Self {
        Self {
            writes: Vec::new(),
            at: vec![BTreeMap::new(); paths],
            cuts: BTreeMap::new(),
            released: vec![BTreeMap::new(); paths],
            holders: vec![Vec::new(); paths],
            gone: BTreeSet::new(),
            all_lost: BTreeSet::new(),
            opened: BTreeMap::new(),
            bad: BTreeSet::new(),
        }
    }

    fn write(&self, stamp: Stamp) -> Option<&Write> {
        self.writes.get((stamp as usize).checked_sub(1)?)
    }

    fn write_mut(&mut self, stamp: Stamp) -> Option<&mut Write> {
        self.writes.get_mut((stamp as usize).checked_sub(1)?)
    }

    /// A process opens a file.
    pub(super) fn on_open(&mut self, file: (usize, FileNumber), of: (Component, u32)) {
        self.opened.insert(file, of);
        self.bad.remove(&of.0);
    }

    /// A file could not be opened: what is written to it fails. If a server that was started again
    /// could not open it, its lock is lost with it.
    pub(super) fn on_not_opened(&mut self, file: (usize, FileNumber)) {
        let Some((component, first)) = self.opened.get(&file).copied() else { return };
        self.bad.insert(component);
        self.holders.iter_mut().for_each(|of| of.retain(|it| it.1 != component));
        let own = |it: &&mut Write| it.component == component && it.count > first;
        self.writes.iter_mut().filter(own).for_each(|it| it.is_excused = true);
    }

    /// Adds a write to places of a file.
    pub(super) fn begin_write(
        &mut self,
        (component, count): (Component, u32),
        clock: Clock,
        path: usize,
        places: impl IntoIterator<Item = u64>,
        is_cut: bool,
    ) -> Stamp {
        let places: BTreeSet<u64> = places.into_iter().collect();
        let stamp = Stamp::try_from(self.writes.len() + 1).expect("there are fewer");
        for place in &places {
            self.at[path].entry(*place).or_default().push(stamp);
        }
        self.writes.push(Write {
            component,
            count,
            clock,
            path,
            places,
            is_cut,
            applied: BTreeSet::new(),
            is_synced: false,
            is_excused: self.bad.contains(&component),
            is_orphan: false,
            is_forgotten: false,
            failure: Reported::NoFailure,
        });
        stamp
    }

    /// The call that wrote returned an error: nothing is promised.
    pub(super) fn excuse(&mut self, stamp: Stamp) {
        self.write_mut(stamp).expect("it was begun").is_excused = true;
    }

    pub(super) fn add_cut(&mut self, process: usize, request: u64, stamp: Stamp) {
        self.cuts.insert((process, request), stamp);
    }

    pub(super) fn take_cut(&mut self, process: usize, request: u64) -> Stamp {
        self.cuts.remove(&(process, request)).unwrap_or(0)
    }

    /// Whether one write happened before another one.
    fn is_before(&self, one: Stamp, other: Stamp) -> bool {
        let Some(later) = self.write(other).filter(|_| one != other) else { return false };
        self.write(one).is_none_or(|one| is_known(one, &later.clock))
    }

    /// A byte is written to a file, in place of another one.
    pub(super) fn apply(
        &mut self,
        path: usize,
        offset: u64,
        (before, stamp): (Stamp, Stamp),
        is_replay: bool,
    ) -> Checked {
        let write = self.write_mut(stamp).ok_or("a byte that no program wrote is written")?;
        if write.path != path || !write.places.contains(&offset) {
            return Err(format!("write {stamp} goes to byte {offset} of file {path}"));
        }
        write.applied.insert(offset);
        if write.failure == Reported::NotYet && write.applied == write.places {
            // The server that failed was killed before it said so, and the frame was sent again.
            write.failure = Reported::NoFailure;
        }
        if !is_replay && self.is_before(stamp, before) {
            return Err(format!(
                "byte {offset} of file {path}: {before} is replaced by {stamp}, which was before"
            ));
        }
        Ok(())
    }

    /// The storage failed to write these.
    pub(super) fn fail(&mut self, stamps: &[Stamp]) {
        for stamp in stamps {
            if let Some(write) = self.write_mut(*stamp) {
                (write.is_excused, write.failure) = (true, Reported::NotYet);
            }
        }
    }

    /// A call returned a failure of a file.
    pub(super) fn on_failure(&mut self, component: Component) {
        let failed = self.writes.iter_mut().filter(|it| it.component == component);
        let failed = failed.filter(|it| it.failure == Reported::NotYet);
        failed.for_each(|it| it.failure = Reported::Yes);
    }

    /// A call returned that the first writes of a component are at the server, or durable.
    pub(super) fn on_done(
        &mut self,
        component: Component,
        (first, last): (u32, u32),
        is_durable: bool,
    ) -> Checked {
        let is_one = |count| first < count && count <= last;
        let own = |it: &&mut Write| it.component == component && is_one(it.count);
        for write in self.writes.iter_mut().filter(own) {
            if write.failure == Reported::NotYet {
                return Err(format!("a call hides a failure of file {}", write.path));
            }
            let is_missing = !write.is_excused && write.applied.len() < write.places.len();
            if is_missing && !write.is_cut {
                let count = write.count;
                return Err(format!("write {count} of {component} is said to be at the server"));
            }
            write.is_synced |= is_durable && !write.is_excused;
        }
        Ok(())
    }

    /// Looks for a write that is known, and that happened after the one whose byte was read. The
    /// size of a file does not count writes that are lost with their process.
    fn newer(
        &self,
        (path, offset): (usize, u64),
        stamp: Stamp,
        known: &Clock,
        is_size: bool,
    ) -> Option<Stamp> {
        let all = self.at[path].get(&offset).into_iter().flatten().copied();
        all.filter(|other| self.is_before(stamp, *other)).find(|other| {
            self.write(*other).is_some_and(|write| {
                let is_gone = if is_size { write.is_orphan } else { write.is_forgotten };
                let is_lost = is_gone && !write.applied.contains(&offset);
                is_known(write, known) && !write.is_excused && !is_lost
            })
        })
    }

    /// A process read a byte, and knew of these writes.
    pub(super) fn read(&self, path: usize, offset: u64, stamp: Stamp, known: &Clock) -> Checked {
        let is_there = |it: &Write| it.path == path && it.places.contains(&offset);
        if stamp != 0 && !self.write(stamp).is_some_and(is_there) {
            return Err(format!("byte {offset} of file {path} is {stamp}, of another place"));
        }
        match self.newer((path, offset), stamp, known, false) {
            Some(newer) => Err(format!(
                "byte {offset} of file {path} is read as {stamp}, although {newer} is known"
            )),
            None => Ok(()),
        }
    }

    /// A process learned that a file ends before a byte.
    pub(super) fn read_end(
        &self,
        path: usize,
        offset: u64,
        known: &Clock,
        is_size: bool,
    ) -> Checked {
        let all = self.at[path].get(&offset).into_iter().flatten().copied();
        let cuts = all.filter(|stamp| self.write(*stamp).is_some_and(|it| it.is_cut));
        let mut may_be = std::iter::once(0).chain(cuts);
        match may_be.any(|it| self.newer((path, offset), it, known, is_size).is_none()) {
            true => Ok(()),
            false => Err(format!("file {path} ends before byte {offset}, which was written")),
        }
    }

    /// Whether a read may find that another client is gone with bytes of a file.
    pub(super) fn may_be_gone(&self, path: usize) -> bool {
        let is_gone = |it: &Write| it.is_orphan && it.applied.len() < it.places.len();
        self.all_lost.contains(&path) || self.writes.iter().any(|it| it.path == path && is_gone(it))
    }

    /// A process is gone; its unsent writes are lost.
    pub(super) fn on_gone(&mut self, process: usize) {
        let own = |it: &&mut Write| process_of(it.component) == process;
        self.writes.iter_mut().filter(own).for_each(|it| it.is_orphan = true);
        self.holders.iter_mut().for_each(|of| of.retain(|it| it.0 != process));
        // The server may not have been asked for it.
        self.released.iter_mut().for_each(|of| of.retain(|holder, _| *holder != process));
        self.gone.insert(process);
    }

    /// Writes to a file were lost before the server was started again, and it is not known where.
    pub(super) fn on_all_lost(&mut self, path: usize) {
        self.all_lost.insert(path);
    }

    /// No client has a file open.
    pub(super) fn on_idle(&mut self, path: usize) {
        self.all_lost.remove(&path);
        let of = self.writes.iter_mut().filter(|it| it.path == path && it.is_orphan);
        of.for_each(|it| it.is_forgotten = true);
    }

    /// The server crashed: only durable writes are certain.
    pub(super) fn on_crash(&mut self) {
        let lost = self.writes.iter_mut().filter(|it| !it.is_synced);
        lost.for_each(|it| it.is_excused = true);
        self.cuts.clear();
    }

    /// Checks that no byte was replaced by a write that happened before. With a process, only its
    /// own writes are compared.
    pub(super) fn check_files(&self, files: &[DiskFile], of: Compared) -> Checked {
        for (path, file) in files.iter().enumerate() {
            for (offset, stamp) in file.all() {
                self.check_byte(path, offset, stamp, of)?;
            }
        }
        Ok(())
    }

    fn check_byte(&self, path: usize, offset: u64, stamp: Stamp, of: Compared) -> Checked {
        let is_compared = |it: &Write| match of {
            Compared::All => true,
            Compared::Process(process) => process_of(it.component) == process,
            Compared::Synced(process) => process_of(it.component) == process && it.is_synced,
        };
        let is_own = |it: &Write| of == Compared::All || is_compared(it);
        if !self.write(stamp).is_none_or(is_own) {
            return Ok(());
        }
        let all = self.at[path].get(&offset).into_iter().flatten().copied();
        for other in all.filter(|other| self.is_before(stamp, *other)) {
            let Some(write) = self.write(other) else { continue };
            let is_lost = write.is_orphan && !write.applied.contains(&offset);
            if is_compared(write) && !(write.is_excused || is_lost) {
                return Err(format!(
                    "byte {offset} of file {path} is {stamp} at the end, and not {other}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that everything that a process wrote is in the files, or was.
    pub(super) fn check_kept(&self, process: usize) -> Checked {
        let own = self.writes.iter().filter(|it| process_of(it.component) == process);
        let mut missing =
            own.filter(|it| !it.is_excused && !it.is_cut && it.applied.len() < it.places.len());
        match missing.next() {
            Some(it) => {
                Err(format!("write {} of {} was kept and is missing", it.count, it.component))
            }
            None => Ok(()),
        }
    }

    /// A process has a lock now. Returns what it knows since.
    pub(super) fn hold(
        &mut self,
        path: usize,
        (process, component): (usize, Component),
        is_exclusive: bool,
    ) -> Checked<Clock> {
        let mut known = Clock::default();
        if self.gone.contains(&process) {
            return Ok(known);
        }
        let excludes = |it: &&(usize, Component, bool)| is_exclusive || it.2;
        if let Some(other) = self.holders[path].iter().find(excludes) {
            return Err(format!("{process} has a lock of file {path} that {} has", other.0));
        }
        self.holders[path].push((process, component, is_exclusive));
        self.released[path].values().for_each(|clock| known.merge(clock));
        Ok(known)
    }

    /// A process gives a lock back, and knew this.
    pub(super) fn release(&mut self, path: usize, component: Component, known: &Clock) {
        let process = process_of(component);
        let held = self.holders[path].extract_if(.., |it| it.1 == component);
        if held.last().is_some_and(|it| it.2) && !self.gone.contains(&process) {
            self.released[path].entry(process).or_default().merge(known);
        }
    }
}

fn is_known(write: &Write, clock: &Clock) -> bool {
    write.count <= clock.0[write.component]
}
