//! Files with several names: the first name met is moved, the others become links to it.
//!
//! A further name can be linked only when the first has its own name at the sink, so it waits until
//! then. If the first fails, the next waiting name takes its place.

use super::LinkName;
use crate::entry::{PATH_BYTES_MAX, Timestamp};
use std::collections::HashMap;

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkKey {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// What to do with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkRole {
    /// Move the file under this name.
    First,
    /// Hold it back.
    Waits,
    /// Link it to this name at the sink; `None` if the path of that name is too long for a message.
    Further { target: Option<Vec<u8>> },
}

/// How the first name ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// It is at the sink.
    There,
    /// It is not at the sink, or leads to another file by now.
    Failed,
}

/// An entry that can wait: it knows its name.
pub(super) trait Named {
    /// Its name, and the file that it leads to.
    fn link_name(&self) -> &LinkName;
}

impl Named for Box<super::Found> {
    fn link_name(&self) -> &LinkName {
        self.link.as_ref().expect("held back with its name")
    }
}

/// The length and the time of change of a file.
pub(super) type Version = (u64, Timestamp);

#[derive(Debug)]
struct Group<T> {
    /// The version of the first name.
    version: Version,
    /// The path of the first name; `None` if it is too long for a message.
    path: Option<Vec<u8>>,
    is_there: bool,
    names_left: u64,
    waiting: Vec<T>,
}

/// Files with several names, of which some names have not been met.
#[derive(Debug)]
pub(super) struct Links<T> {
    groups: HashMap<LinkKey, Group<T>>,
}

impl<T> Default for Links<T> {
    fn default() -> Self {
        Self { groups: HashMap::new() }
    }
}

impl<T: Named> Links<T> {
    /// A name was met. Returns what to do with it. If the sink has the first name already and the
    /// file has another version, it may be another file: the number of the first file is free again
    /// when all its names were removed.
    pub(super) fn on_found(&mut self, name: &LinkName, version: Version) -> LinkRole {
        let key = LinkKey { device: name.device, inode: name.inode };
        let known = self.groups.get_mut(&key);
        let Some(group) = known.filter(|it| !it.is_there || it.version == version) else {
            let group = Group {
                version,
                path: told(name),
                is_there: false,
                names_left: name.name_count.saturating_sub(1),
                waiting: Vec::new(),
            };
            self.groups.insert(key, group);
            return LinkRole::First;
        };
        group.names_left = group.names_left.saturating_sub(1);
        if !group.is_there {
            return LinkRole::Waits;
        }
        let target = group.path.clone();
        if group.names_left == 0 {
            self.groups.remove(&key);
        }
        LinkRole::Further { target }
    }

    /// Holds a name back that was told to wait.
    pub(super) fn hold(&mut self, name: T) {
        let LinkName { device, inode, .. } = *name.link_name();
        let key = LinkKey { device, inode };
        self.groups.get_mut(&key).expect("it was told to wait").waiting.push(name);
    }

    /// The first name has ended. Returns the names that waited, each with what to do with it.
    pub(super) fn on_first_ended(&mut self, key: LinkKey, first: First) -> Vec<(T, LinkRole)> {
        let Some(group) = self.groups.get_mut(&key) else { return Vec::new() };
        if first == First::There {
            group.is_there = true;
            let target = group.path.clone();
            let released = std::mem::take(&mut group.waiting);
            if group.names_left == 0 {
                self.groups.remove(&key);
            }
            let further = LinkRole::Further { target };
            return released.into_iter().map(|name| (name, further.clone())).collect();
        }
        if group.waiting.is_empty() {
            self.groups.remove(&key);
            return Vec::new();
        }
        let next = group.waiting.remove(0);
        group.path = told(next.link_name());
        vec![(next, LinkRole::First)]
    }
}

/// The path of a name; `None` if it is too long for a message.
fn told(name: &LinkName) -> Option<Vec<u8>> {
    (name.path.len() <= PATH_BYTES_MAX).then(|| name.path.clone())
}
