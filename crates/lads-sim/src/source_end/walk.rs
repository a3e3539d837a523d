//! The walk over the source's tree: what is told to the session, in which order.
//!
//! In each directory first what is no directory, then how many directories there are, then those,
//! each before what is in it.

use super::{EIO, Item, SourceEnd};
use crate::findings::Checked;
use crate::world::{Happening, World};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::source::{Event, Source};
use lads_core::units::{EntryId, Instant};
use std::collections::VecDeque;

#[derive(Debug)]
enum Step {
    /// Something that is no directory.
    Meet {
        path: String,
        parent: EntryId,
    },
    /// All but the directories was met.
    Listed {
        directory: EntryId,
        subdirectory_count: u64,
    },
    /// A directory.
    Enter {
        path: String,
        parent: EntryId,
    },
    End,
}

/// The walk, and how far it has come.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    steps: VecDeque<Step>,
    is_under_way: bool,
    is_depth_first: bool,
    asks_again_at: Option<Instant>,
}

impl Walk {
    pub(crate) fn new(world: &World) -> Self {
        let is_depth_first = world.options.is_depth_first;
        let mut walk = Self { is_depth_first, ..Self::default() };
        walk.steps.push_back(Step::End);
        walk.list(world, "", EntryId::ROOT);
        walk
    }

    /// Whether a step should be taken that is not yet on its way; if so, it is now. If not, a
    /// wake-up is set for the time at which the session wants to be asked again.
    pub(crate) fn may_go_on(&mut self, world: &mut World, session: &mut Source) -> bool {
        if self.is_under_way || self.steps.is_empty() {
            return false;
        }
        match session.may_go_on(world.now) {
            Ok(()) => self.is_under_way = true,
            Err(Some(at)) if self.asks_again_at.is_none_or(|asks_at| asks_at <= world.now) => {
                self.asks_again_at = Some(at);
                world.at(at, Happening::Wake);
            }
            Err(_) => {}
        }
        self.is_under_way
    }

    /// Takes a step.
    pub(crate) fn step(&mut self, world: &mut World, end: &mut SourceEnd) -> Checked {
        self.is_under_way = false;
        match self.steps.pop_front() {
            Some(Step::Meet { path, parent }) => self.meet(world, end, &path, parent),
            Some(Step::Listed { directory, subdirectory_count }) => {
                end.tell(world, Event::Listed { directory, subdirectory_count })
            }
            Some(Step::Enter { path, parent }) => self.enter(world, end, &path, parent),
            Some(Step::End) => end.tell(world, Event::WalkEnded),
            None => Ok(()),
        }
    }

    fn meet(&self, world: &mut World, end: &mut SourceEnd, path: &str, parent: EntryId) -> Checked {
        let fails = world.fails(world.faults.list_error / 4, path);
        let found = if fails { None } else { end.find(world, path, parent) };
        match found {
            Some(found) => end.tell(world, Event::Found(Box::new(found))),
            // It cannot be looked at, or has gone since its directory was listed.
            None => Self::tell_unreadable(world, end, path, parent, false),
        }
    }

    fn enter(
        &mut self,
        world: &mut World,
        end: &mut SourceEnd,
        path: &str,
        parent: EntryId,
    ) -> Checked {
        if world.fails(world.faults.list_error, path) {
            return Self::tell_unreadable(world, end, path, parent, true);
        }
        let found = end.find(world, path, parent).expect("directories do not vanish");
        let directory = found.entry.id;
        end.tell(world, Event::Found(Box::new(found)))?;
        if world.fails(world.faults.list_error, path) {
            let failure = Failure::new(Side::Source, Operation::List, Reason::Os(EIO));
            return end.tell(world, Event::NotListed { directory, failure });
        }
        self.list(world, path, directory);
        Ok(())
    }

    fn list(&mut self, world: &World, path: &str, directory: EntryId) {
        let (others, directories) = world.tree.list(path);
        let subdirectory_count = directories.len() as u64;
        let enter = |path| Step::Enter { path, parent: directory };
        if self.is_depth_first {
            directories.into_iter().rev().for_each(|path| self.steps.push_front(enter(path)));
        } else {
            let last = self.steps.pop_back();
            self.steps.extend(directories.into_iter().map(enter));
            self.steps.extend(last);
        }
        self.steps.push_front(Step::Listed { directory, subdirectory_count });
        for path in others.into_iter().rev() {
            self.steps.push_front(Step::Meet { path, parent: directory });
        }
    }

    fn tell_unreadable(
        world: &World,
        end: &mut SourceEnd,
        path: &str,
        parent: EntryId,
        is_counted: bool,
    ) -> Checked {
        let entry = end.new_item(Item { path: path.to_owned(), parent, file: None });
        let failure = Failure::new(Side::Source, Operation::Examine, Reason::Os(EIO));
        end.tell(world, Event::Unreadable { entry, parent, is_counted, failure })
    }
}
