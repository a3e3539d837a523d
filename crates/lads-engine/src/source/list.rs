//! The paths that the user listed (`--files-from`), in the form that the walk needs: by directory.

use std::collections::BTreeMap;

/// Listed paths, as a tree of their names.
///
/// All names are in one vector and refer to each other by number. So a tree of any depth is walked
/// and dropped without recursion.
#[derive(Debug)]
pub(super) struct List {
    nodes: Vec<ListNode>,
}

/// The number of a name in a [`List`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListPlace(usize);

/// The part of a list that concerns one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// The place of the entry; `None` if neither the entry nor anything below it is in the list.
    place: Option<ListPlace>,
    /// Whether the entry is moved; a directory with everything in it. Otherwise only the listed
    /// paths below it are moved.
    pub(super) is_whole: bool,
}

/// A name in a list of paths, with the names below it.
#[derive(Debug, Default)]
struct ListNode {
    children: BTreeMap<Vec<u8>, ListPlace>,
    /// Whether a path without a slash ends here.
    is_plain: bool,
    /// Whether a path with a slash ends here: a link to a directory then stands for the directory.
    has_slash: bool,
}

/// A listed path below an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedPath {
    /// Names from the entry downwards, separated by slashes.
    pub(super) path: Vec<u8>,
    /// Whether the path was listed with a slash at its end.
    pub(super) has_slash: bool,
}

impl ListNode {
    /// Reports whether a path ends here.
    fn is_end(&self) -> bool {
        self.is_plain || self.has_slash
    }
}

impl ListPlace {
    const ROOT: Self = Self(0);
}

impl Listed {
    /// An entry that is moved whole, and that no list mentions.
    pub(super) const WHOLE: Self = Self { place: None, is_whole: true };
}

impl Default for List {
    fn default() -> Self {
        Self { nodes: vec![ListNode::default()] }
    }
}

impl List {
    /// Adds a path. Empty names, `.` and `..` are skipped.
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
        let node = &mut self.nodes[place.0];
        match path.ends_with(b"/") {
            true => node.has_slash = true,
            false => node.is_plain = true,
        }
    }

    fn node(&self, listed: Listed) -> Option<&ListNode> {
        listed.place.map(|place| &self.nodes[place.0])
    }

    /// Returns the source itself.
    pub(super) fn root(&self) -> Listed {
        Listed { place: Some(ListPlace::ROOT), is_whole: self.nodes[0].is_end() }
    }

    /// Returns the listed names in a directory, in order.
    pub(super) fn names_in(&self, listed: Listed) -> Vec<(Vec<u8>, Listed)> {
        let children = self.node(listed).into_iter().flat_map(|node| &node.children);
        let child = |(name, &place): (&Vec<u8>, &ListPlace)| {
            let is_whole = listed.is_whole || self.nodes[place.0].is_end();
            (name.clone(), Listed { place: Some(place), is_whole })
        };
        children.map(child).collect()
    }

    /// Reports whether a name in a directory is listed, or the start of a listed path.
    pub(super) fn has_name(&self, directory: Listed, name: &[u8]) -> bool {
        self.node(directory).is_some_and(|node| node.children.contains_key(name))
    }

    /// Reports whether the list leads below an entry: to paths below it, or into the directory that
    /// it links to.
    pub(super) fn leads_below(&self, listed: Listed) -> bool {
        self.node(listed).is_some_and(|node| node.has_slash || !node.children.is_empty())
    }

    /// Reports whether the user wrote the path of this entry into the list.
    pub(super) fn is_end(&self, listed: Listed) -> bool {
        self.node(listed).is_some_and(ListNode::is_end)
    }

    /// Reports whether the user listed this entry without a slash at its end.
    pub(super) fn is_plain(&self, listed: Listed) -> bool {
        self.node(listed).is_some_and(|node| node.is_plain)
    }

    /// Reports whether the user listed this entry with a slash at its end.
    pub(super) fn has_slash(&self, listed: Listed) -> bool {
        self.node(listed).is_some_and(|node| node.has_slash)
    }

    /// Returns the listed paths below an entry, in order.
    pub(super) fn paths_below(&self, listed: Listed) -> impl Iterator<Item = ListedPath> + '_ {
        let push_children =
            |stack: &mut Vec<(ListPlace, Vec<u8>)>, node: &ListNode, path: &[u8]| {
                stack.extend(node.children.iter().rev().map(|(name, &place)| {
                    let parts = [path, name.as_slice()];
                    (place, parts[usize::from(path.is_empty())..].join(&b'/'))
                }));
            };
        let mut stack = Vec::new();
        if let Some(node) = self.node(listed) {
            push_children(&mut stack, node, b"");
        }
        std::iter::from_fn(move || {
            loop {
                let (place, path) = stack.pop()?;
                let node = &self.nodes[place.0];
                push_children(&mut stack, node, &path);
                if node.is_end() {
                    return Some(ListedPath { path, has_slash: node.has_slash });
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(paths: &[&str]) -> List {
        let mut list = List::default();
        paths.iter().for_each(|path| list.add(path.as_bytes()));
        list
    }

    fn below(list: &List, listed: Listed) -> Vec<String> {
        let text = |it: ListedPath| {
            String::from_utf8(it.path).unwrap() + if it.has_slash { "/" } else { "" }
        };
        list.paths_below(listed).map(text).collect()
    }

    #[test]
    fn paths_below_a_name_are_those_that_were_listed() {
        let list = list(&["a/b/c", "a/b", "a/d/", "e"]);
        assert_eq!(below(&list, list.root()), ["a/b", "a/b/c", "a/d/", "e"]);
        let (name, a) = list.names_in(list.root()).remove(0);
        assert_eq!((name.as_slice(), a.is_whole, list.is_end(a)), (&b"a"[..], false, false));
        assert_eq!(below(&list, a), ["b", "b/c", "d/"]);
        let children = list.names_in(a);
        assert!(children.iter().all(|(_, child)| child.is_whole && list.is_end(*child)));
        assert_eq!(
            children.iter().map(|(_, it)| list.has_slash(*it)).collect::<Vec<_>>(),
            [false, true]
        );
    }

    #[test]
    fn names_in_a_directory_that_is_listed_are_whole_too() {
        let list = list(&["a", "a/b/c"]);
        let (_, a) = list.names_in(list.root()).remove(0);
        let (_, b) = list.names_in(a).remove(0);
        assert!(b.is_whole && !list.is_end(b) && list.has_name(a, b"b"));
        assert!(below(&list, Listed::WHOLE).is_empty() && !list.has_name(Listed::WHOLE, b"b"));
    }
}
