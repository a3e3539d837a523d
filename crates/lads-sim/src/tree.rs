//! What lies at the source, and how it changes.
//!
//! A file is a row of versions; each has its own size, holes and identity. A path leads to a file,
//! a directory or a symbolic link; several paths may lead to one file. The root is the path ``.

use crate::content::Content;
use crate::options::{Options, PAGE, draw_layout, moved_on};
use crate::rng::Rng;
use lads_core::entry::{Identity, Timestamp};
use lads_core::layout::Layout;
use lads_core::plan::align_data;
use lads_core::range::RangeSet;
use std::collections::BTreeMap;

/// One state of a file.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) identity: Identity,
    /// Where it has data, if it has holes.
    pub(crate) data: Option<RangeSet>,
    /// Its bytes: the same as an older version's if only the inode changed.
    pub(crate) content: Content,
}

impl Version {
    /// Its bytes of data, holes left out.
    pub(crate) fn data_set(&self) -> RangeSet {
        let size = self.identity.size;
        self.data.clone().unwrap_or_else(|| std::iter::once(0..size).collect())
    }
}

/// A file with all it ever was.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) versions: Vec<Version>,
    pub(crate) layout: Layout,
    /// Where it lies once more.
    pub(crate) mirrors: Vec<Layout>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    Symlink(Vec<u8>),
    /// Index of the file.
    File(usize),
}

/// What lies at the source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    pub(crate) nodes: BTreeMap<String, Node>,
    /// Grows with every change; the world's clock as far as file times go.
    change_count: i64,
}

impl Tree {
    pub(crate) fn draw(rng: &mut Rng, options: &Options) -> Self {
        let mut tree = Self::default();
        let mut directories = vec![String::new()];
        for index in 0..options.entry_count {
            let parent = rng.pick(&directories).clone();
            match rng.below(20) {
                0 | 1 => {
                    let path = join(&parent, &format!("d{index}"));
                    tree.nodes.insert(path.clone(), Node::Directory);
                    directories.push(path);
                }
                2 => {
                    let path = join(&parent, &format!("l{index}"));
                    tree.nodes.insert(path, Node::Symlink(b"anywhere".to_vec()));
                }
                3 if !tree.files.is_empty() => {
                    let file = rng.index(tree.files.len());
                    tree.nodes.insert(join(&parent, &format!("h{index}")), Node::File(file));
                }
                _ => {
                    let file = tree.add_file(rng, options);
                    tree.nodes.insert(join(&parent, &format!("f{index}")), Node::File(file));
                }
            }
        }
        tree
    }

    /// Files of one size, each in stripes on this many OSTs, the next file from the next OST on.
    pub(crate) fn of_files(count: usize, size: u64, stripes: &[Layout]) -> Self {
        let mut tree = Self::default();
        for index in 0..count {
            tree.change_count += 1;
            let moment = Timestamp { seconds: tree.change_count, nanos: 0 };
            let identity = Identity { size, mtime: moment, ctime: moment, inode: index as u64 };
            let content = Content { file: index, version: 0 };
            let layout = stripes[index % stripes.len()].clone();
            let versions = vec![Version { identity, data: None, content }];
            tree.files.push(File { versions, layout, mirrors: Vec::new() });
            tree.nodes.insert(format!("f{index:05}"), Node::File(index));
        }
        tree
    }

    fn add_file(&mut self, rng: &mut Rng, options: &Options) -> usize {
        let version = self.draw_version(rng, options, self.files.len());
        let ost_count = options.source_osts.len();
        let layout = draw_layout(rng, ost_count);
        // One file in four has two copies.
        let is_mirrored = self.files.len() % 4 == 3;
        let mirrors = is_mirrored.then(|| moved_on(&layout, ost_count)).into_iter().collect();
        self.files.push(File { versions: vec![version], layout, mirrors });
        self.files.len() - 1
    }

    fn draw_version(&mut self, rng: &mut Rng, options: &Options, file: usize) -> Version {
        self.change_count += 1;
        let size = match rng.below(1000) {
            0..50 => 0,
            roll if roll < 50 + u64::from(options.large_per_mille) => {
                rng.of_any_size(u64::from(options.source.block_size), options.file_pages_max * PAGE)
            }
            _ => rng.of_any_size(1, 40 * PAGE),
        };
        let moment = Timestamp { seconds: self.change_count, nanos: 0 };
        let inode = file as u64;
        let identity = Identity { size, mtime: moment, ctime: moment, inode };
        let has_holes = size > PAGE && rng.hits(120);
        let version = self.files.get(file).map_or(0, |file| file.versions.len());
        let content = Content { file, version };
        Version { identity, data: has_holes.then(|| draw_data(rng, size)), content }
    }

    /// Changes a file in place, puts another in its place, or removes a name of it. Says which
    /// paths are concerned, and what was done.
    pub(crate) fn change(
        &mut self,
        rng: &mut Rng,
        options: &Options,
    ) -> Option<(Vec<String>, String)> {
        let paths: Vec<String> = self.file_paths().map(|(path, _)| path.to_owned()).collect();
        if paths.is_empty() {
            return None;
        }
        let linked: Vec<&String> = paths.iter().filter(|path| self.has_other_names(path)).collect();
        // Files with several names are few, and much can go wrong with them.
        let path = match linked.as_slice() {
            [] => rng.pick(&paths).clone(),
            _ if rng.hits(700) => rng.pick(&paths).clone(),
            linked => (*rng.pick(linked)).clone(),
        };
        let Node::File(file) = self.nodes[&path] else { return None };
        let names = self.names_of(file);
        let text = match rng.below(6) {
            0 => {
                self.nodes.remove(&path);
                // One name less changes the time of change of the file's inode.
                let mut version = self.files[file].versions.last()?.clone();
                self.change_count += 1;
                version.identity.ctime.seconds = self.change_count;
                self.files[file].versions.push(version);
                format!("{path} vanishes")
            }
            1 => {
                let new = self.add_file(rng, options);
                self.nodes.insert(path.clone(), Node::File(new));
                format!("{path} is replaced by file {new}")
            }
            _ => {
                let version = self.draw_version(rng, options, file);
                let size = version.identity.size;
                self.files[file].versions.push(version);
                format!("{path} changes, now {size} bytes")
            }
        };
        Some((names, text))
    }

    /// The newest version of a file.
    pub(crate) fn current(&self, file: usize) -> &Version {
        self.files[file].versions.last().expect("a file begins with a version")
    }

    /// The version with this identity.
    pub(crate) fn version_of(&self, identity: &Identity) -> Option<&Version> {
        let file = usize::try_from(identity.inode).ok()?;
        self.files.get(file)?.versions.iter().find(|version| version.identity == *identity)
    }

    /// The file under a path, if there is one.
    pub(crate) fn file_at(&self, path: &str) -> Option<usize> {
        match self.nodes.get(path) {
            Some(Node::File(file)) => Some(*file),
            _ => None,
        }
    }

    /// All paths of a file.
    pub(crate) fn names_of(&self, file: usize) -> Vec<String> {
        self.file_paths().filter(|(_, other)| *other == file).map(|(p, _)| p.to_owned()).collect()
    }

    fn has_other_names(&self, path: &str) -> bool {
        self.file_at(path).is_some_and(|file| self.names_of(file).len() > 1)
    }

    /// How many levels below the root the deepest directory is.
    pub(crate) fn depth(&self) -> u64 {
        let directories = self.nodes.iter().filter(|(_, node)| **node == Node::Directory);
        let depths = directories.map(|(path, _)| path.split('/').count() as u64);
        depths.max().unwrap_or(0)
    }

    /// The names in a directory, those of directories last.
    pub(crate) fn list(&self, directory: &str) -> (Vec<String>, Vec<String>) {
        let inside = self.nodes.iter().filter(|(path, _)| parent_of(path) == directory);
        let (directories, others): (Vec<_>, Vec<_>) =
            inside.partition(|(_, node)| **node == Node::Directory);
        let paths =
            |nodes: Vec<(&String, &Node)>| nodes.into_iter().map(|(p, _)| p.clone()).collect();
        (paths(others), paths(directories))
    }

    fn file_paths(&self) -> impl Iterator<Item = (&str, usize)> {
        self.nodes.iter().filter_map(|(path, node)| match node {
            Node::File(file) => Some((path.as_str(), *file)),
            _ => None,
        })
    }
}

fn draw_data(rng: &mut Rng, size: u64) -> RangeSet {
    let mut data = RangeSet::new();
    for _ in 0..rng.below(5) {
        let start = rng.below(size);
        let end = (start + rng.of_any_size(1, size)).min(size);
        data.insert(start..end);
    }
    align_data(&data, size)
}

/// The directory that a path lies in.
pub(crate) fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The last component of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// A path in a directory.
pub(crate) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}
