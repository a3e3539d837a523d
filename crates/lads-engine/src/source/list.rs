//! The paths that a person has listed (`--files-from`), in the form that the walk needs: by
//! directory.

use std::collections::BTreeMap;

/// Paths to be moved, as a tree of their names.
///
/// All names are in one list and refer to each other by number. So a tree of any depth is walked
/// and dropped without recursion.
#[derive(Debug)]
pub(super) struct List {
    nodes: Vec<ListNode>,
}

/// A name's number in a [`List`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListPlace(usize);

/// A name in a list of paths, with the names below it.
#[derive(Debug, Default)]
struct ListNode {
    children: BTreeMap<Vec<u8>, ListPlace>,
    /// Whether a path ends here. A directory is then moved with everything in it.
    is_whole: bool,
}

impl ListPlace {
    pub(super) const ROOT: Self = Self(0);
}

impl Default for List {
    fn default() -> Self {
        Self { nodes: vec![ListNode::default()] }
    }
}

impl List {
    pub(super) fn add(&mut self, path: &[u8]) {
        let mut place = ListPlace::ROOT;
        for name in path.split(|&byte| byte == b'/') {
            if name.is_empty() || name == b"." || name == b".." {
                continue;
            }
            let new = ListPlace(self.nodes.len());
            let below = *self.nodes[place.0].children.entry(name.to_vec()).or_insert(new);
            if below == new {
                self.nodes.push(ListNode::default());
            }
            place = below;
        }
        self.nodes[place.0].is_whole = true;
    }

    /// The names in a directory, in order.
    pub(super) fn names_in(&self, place: ListPlace) -> Vec<(Vec<u8>, ListPlace)> {
        let children = &self.nodes[place.0].children;
        children.iter().map(|(name, below)| (name.clone(), *below)).collect()
    }

    /// The place, or `None` if everything in the directory is to be moved.
    pub(super) fn unless_whole(&self, place: ListPlace) -> Option<ListPlace> {
        (!self.nodes[place.0].is_whole).then_some(place)
    }
}
