//! Answers the sink's questions about names, which the sink asks before it removes anything.
//!
//! The answer is looked up when the question comes, by path from the named sources. So it is true
//! at that moment, and nothing is kept of a tree of any size. A tree that is hidden must not look
//! as if it were gone: a directory is compared with what was mounted there when it was listed. If
//! that differs, or if the directory cannot be examined, the answer is "unknown".

use super::look::{Unseen, sight_in};
use super::merge::Level;
use super::{SourceEnd, failed};
use crate::board::lock;
use crate::paths::Directory;
use lads_core::entry::is_own_name;
use lads_core::filter::is_included;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::message::{Presence, Question};
use lads_core::source::Event;
use rustix::fd::OwnedFd;
use rustix::fs::{Stat, fstat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// The most mount points below the sources that are kept. In directories beyond this number,
/// nothing is removed. The double takes a MiB more; half is still more than most hosts have.
const MOUNTS_MAX: usize = 10_000;

/// The most directories that could not be listed and are kept. With more, nothing at all is
/// removed. This matters only with `--ignore-errors`; the double takes a few MiB more.
const NOT_LISTED_MAX: usize = 10_000;

/// The state that is needed to look up answers.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// The directories on the path to the directory of the last question.
    way: Mutex<Vec<(Vec<u8>, Arc<Level>)>>,
    mounts: Mutex<HashMap<MountPoint, u64>>,
    /// The paths of directories of which not all names are known.
    not_listed: Mutex<HashSet<Vec<u8>>>,
    /// The last directory that was reported as changed.
    told: Mutex<Option<Vec<u8>>>,
}

/// A directory on which another file system is mounted: the numbers of the file system and of the
/// directory that holds it, and its name.
type MountPoint = (u64, u64, Vec<u8>);

/// Why nothing is known of a directory; `None` if the walk did not enter it.
type Unknown = Option<Failure>;

impl Lookup {
    /// The walk enters a directory: the same file system must be mounted there later.
    pub(super) fn on_entered(&self, above: &Arc<Directory>, name: &[u8], below: &Arc<Directory>) {
        if let Ok((point, above)) = point_of(above, name)
            && let Ok(below) = below.open().and_then(|handle| fstat(&*handle))
            && below.st_dev != above.st_dev
        {
            let mut mounts = lock(&self.mounts);
            if mounts.len() < MOUNTS_MAX {
                mounts.insert(point, below.st_dev);
            }
        }
    }

    /// The walk could not list a directory: nothing may be removed there.
    pub(super) fn on_not_listed(&self, path: Vec<u8>) {
        let mut paths = lock(&self.not_listed);
        if paths.len() <= NOT_LISTED_MAX {
            paths.insert(path);
        }
    }

    /// Whether a directory was listed, as far as is known. If too many were not, none counts as
    /// listed.
    fn was_listed(&self, path: &[u8]) -> bool {
        let paths = lock(&self.not_listed);
        paths.len() <= NOT_LISTED_MAX && !paths.contains(path)
    }

    /// Whether the same file system is mounted on a directory as when the walk entered it.
    fn is_as_listed(&self, point: &MountPoint, above: &Stat, below: &Stat) -> bool {
        let listed = lock(&self.mounts).get(point).copied();
        listed.unwrap_or(above.st_dev) == below.st_dev
    }
}

fn point_of(above: &Arc<Directory>, name: &[u8]) -> Result<(MountPoint, Stat), Errno> {
    let stat = fstat(&*above.open()?)?;
    Ok(((stat.st_dev, stat.st_ino, name.to_vec()), stat))
}

/// Answers a question of the sink.
pub(super) fn look_up(end: &SourceEnd, question: Question) {
    let answers = match names_in(end, &question) {
        Ok(answers) => answers,
        Err(unknown) => {
            if let Some(failure) = unknown {
                tell(end, &question.directory, failure);
            }
            vec![Presence::Unknown; question.names.len()]
        }
    };
    end.tell(Event::LookedUp { question, answers });
}

/// Reports a directory once, not for each question about it.
fn tell(end: &SourceEnd, directory: &[u8], failure: Failure) {
    let mut told = lock(&end.lookup.told);
    if told.as_deref() != Some(directory) {
        *told = Some(directory.to_vec());
        end.board.issue_when_room(directory.to_vec(), failure);
    }
}

fn names_in(end: &SourceEnd, question: &Question) -> Result<Vec<Presence>, Unknown> {
    if !end.lookup.was_listed(&question.directory) {
        return Err(None);
    }
    let level = find(end, &question.directory)?;
    let handles = level.directories().map(open_again).collect::<Result<Vec<_>, _>>();
    let handles = handles.map_err(|errno| Some(failed(Operation::List, errno)))?;
    let presence = |name: &Vec<u8>| presence(end, &level, &handles, name);
    Ok(question.names.iter().map(presence).collect())
}

/// Opens a directory again, unless it was removed: then every name in it would look absent.
fn open_again(directory: &Arc<Directory>) -> Result<Arc<OwnedFd>, Errno> {
    let handle = directory.open()?;
    match fstat(&*handle)?.st_nlink {
        0 => Err(Errno::NOENT),
        _ => Ok(handle),
    }
}

fn presence(end: &SourceEnd, level: &Level, handles: &[Arc<OwnedFd>], name: &[u8]) -> Presence {
    let mut presence = Presence::Absent;
    for index in level.with_name(name) {
        let is_directory = match sight_in(&end.options, Arc::clone(&handles[index]), name) {
            Ok(sight) => sight.is_directory(),
            Err(Unseen::Failed(Errno::NOENT)) => continue,
            Err(Unseen::Failed(_) | Unseen::Dangling) => return Presence::Unknown,
        };
        if !is_moved(end, level.directory(index), name, is_directory) {
            continue;
        }
        match (is_directory, presence) {
            (true, _) => presence = Presence::Directory,
            (false, Presence::Absent) => presence = Presence::Other,
            (false, _) => {}
        }
    }
    presence
}

fn is_moved(end: &SourceEnd, directory: &Directory, name: &[u8], is_directory: bool) -> bool {
    let filters = &end.options.filters;
    !is_own_name(name)
        && (filters.is_empty() || is_included(filters, &directory.path_of(name), is_directory))
}

/// The directories of the sources that have this path below the root.
fn find(end: &SourceEnd, path: &[u8]) -> Result<Arc<Level>, Unknown> {
    let mut way = lock(&end.lookup.way);
    let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|it| !it.is_empty()).collect();
    let common = way.iter().zip(&names).take_while(|((known, _), name)| known == *name).count();
    way.truncate(common);
    for name in &names[common..] {
        let above = way.last().map_or_else(|| Arc::clone(&end.top), |(_, it)| Arc::clone(it));
        let level = below(end, &above, name)?;
        way.push((name.to_vec(), Arc::new(level)));
    }
    Ok(way.last().map_or_else(|| Arc::clone(&end.top), |(_, it)| Arc::clone(it)))
}

/// The directories that become one directory at the sink: all with this name that the walk enters.
fn below(end: &SourceEnd, level: &Level, name: &[u8]) -> Result<Level, Unknown> {
    let mut directories = Vec::new();
    let mut is_there = false;
    for index in level.with_name(name) {
        let above = level.directory(index);
        let directory = end.child_of(above, name);
        let looked_at =
            point_of(above, name).and_then(|point| Ok((point, fstat(&*directory.open()?)?)));
        let ((point, above_stat), stat) = match looked_at {
            Ok(looked_at) => looked_at,
            // In another source the name may be a directory.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(errno) => return Err(Some(failed(Operation::List, errno))),
        };
        if !is_moved(end, above, name, true) {
            continue;
        }
        is_there = true;
        if !end.lookup.is_as_listed(&point, &above_stat, &stat) {
            return Err(Some(Failure::new(Side::Source, Operation::List, Reason::Changed)));
        }
        // A source that the person named is entered whatever is mounted on it.
        let is_left_out = end.options.one_file_system
            && stat.st_dev != above_stat.st_dev
            && !level.is_named(index);
        if !is_left_out {
            directories.push(directory);
        }
    }
    match (directories.is_empty(), is_there) {
        (false, _) => Ok(Level::below(directories)),
        (true, true) => Err(None),
        (true, false) => Err(Some(Failure::new(Side::Source, Operation::List, Reason::Vanished))),
    }
}
