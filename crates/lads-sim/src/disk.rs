//! What lies at the sink, and what of it survives a crash.
//!
//! A body is a file's data, kept twice: as programs see it (volatile) and as it would be after the
//! power went off (durable). Names lead to bodies; unfinished files have temporary names, one for
//! each path, as the engine derives them.

use crate::content::{Content, Extents};
use crate::findings::Stats;
use crate::rng::Rng;
use lads_core::entry::{Identity, Timestamp};
use lads_core::growth::Extent;
use lads_core::layout::Layout;
use lads_core::range::RangeSet;
use std::collections::{BTreeMap, BTreeSet};

/// The data of one file.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) volatile: Extents,
    pub(crate) durable: Extents,
    /// Ranges that were good when they were written, and were found rotten when they were read
    /// back. The sink may still say that they are done, and then asks for them again.
    pub(crate) rotten: RangeSet,
    pub(crate) layout: Layout,
    /// If it can grow: what it consists of.
    pub(crate) extents: Vec<Extent>,
    pub(crate) size: u64,
    /// Set when the file gets its name.
    pub(crate) mtime: Timestamp,
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Directory,
    Symlink(Vec<u8>),
    /// Index of the body.
    File(usize),
}

/// A name, or a temporary name.
#[derive(Clone, Debug)]
pub(crate) struct Lasting<T> {
    pub(crate) what: T,
    pub(crate) is_durable: bool,
}

/// What a power cut brings back if it takes a name away.
#[derive(Clone, Debug)]
struct Renamed {
    temporary: Lasting<usize>,
    replaced: Option<Lasting<Name>>,
}

/// The journal's file.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalFile {
    pub(crate) bytes: Vec<u8>,
    /// This many of them would survive.
    pub(crate) durable_count: usize,
}

/// All storage at the sink.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) bodies: Vec<Body>,
    pub(crate) names: BTreeMap<String, Lasting<Name>>,
    /// Bodies of unfinished files, by the path that they are to get.
    pub(crate) unfinished: BTreeMap<String, Lasting<usize>>,
    /// Files that have a name which is not durable, by that.
    renamed: BTreeMap<String, Renamed>,
    pub(crate) journal: JournalFile,
    /// What the source was told is done, by path: the journal must know it after every crash.
    pub(crate) promised: BTreeMap<String, (Identity, RangeSet)>,
}

impl Disk {
    /// An empty unfinished file for this path, in place of any that is there.
    pub(crate) fn create(
        &mut self,
        path: &str,
        layout: Layout,
        extents: Vec<Extent>,
        size: u64,
    ) -> usize {
        let (volatile, durable) = (Extents::default(), Extents::default());
        self.bodies.push(Body {
            volatile,
            durable,
            rotten: RangeSet::new(),
            layout,
            extents,
            size,
            mtime: Timestamp::default(),
        });
        let what = self.bodies.len() - 1;
        self.unfinished.insert(path.to_owned(), Lasting { what, is_durable: false });
        what
    }

    /// The file under a path.
    pub(crate) fn file(&self, path: &str) -> Option<&Body> {
        match self.names.get(path)?.what {
            Name::File(body) => Some(&self.bodies[body]),
            _ => None,
        }
    }

    /// Gives an unfinished file its name; name and data are durable.
    pub(crate) fn commit(&mut self, path: &str, mtime: Timestamp) {
        let Some(Lasting { what, .. }) = self.unfinished.remove(path) else { return };
        let body = &mut self.bodies[what];
        body.mtime = mtime;
        body.durable = body.volatile.clone();
        self.names.insert(path.to_owned(), Lasting { what: Name::File(what), is_durable: true });
    }

    /// An unfinished file is durable, under its temporary name.
    pub(crate) fn sync_file(&mut self, path: &str) {
        let Some(name) = self.unfinished.get_mut(path) else { return };
        name.is_durable = true;
        let body = &mut self.bodies[name.what];
        body.durable = body.volatile.clone();
    }

    /// Gives an unfinished file its name. Until that is durable, a power cut may take it back.
    pub(crate) fn rename(&mut self, path: &str, mtime: Timestamp) {
        let Some(temporary) = self.unfinished.remove(path) else { return };
        self.bodies[temporary.what].mtime = mtime;
        let what = Name::File(temporary.what);
        let replaced = self.names.insert(path.to_owned(), Lasting { what, is_durable: true });
        self.renamed.insert(path.to_owned(), Renamed { temporary, replaced });
    }

    /// All renames in a directory are durable.
    pub(crate) fn sync_renames_in(&mut self, directory: &str) {
        self.renamed.retain(|path, _| crate::tree::parent_of(path) != directory);
    }

    /// Whether a power cut may take back that something has this name.
    pub(crate) fn may_lose_name(&self, path: &str) -> bool {
        let is_volatile = |name: &Lasting<Name>| !name.is_durable;
        self.renamed.contains_key(path) || self.names.get(path).is_none_or(is_volatile)
    }

    /// A rename is durable.
    pub(crate) fn sync_rename(&mut self, path: &str) {
        self.renamed.remove(path);
    }

    /// Puts a name there that need not survive yet.
    pub(crate) fn make(&mut self, path: &str, what: Name) {
        self.names.insert(path.to_owned(), Lasting { what, is_durable: false });
    }

    /// Paths of unfinished files in which something is not what was written.
    pub(crate) fn rotten(&self) -> BTreeSet<String> {
        let is_rotten = |body: &Body| body.volatile.iter().any(|(_, c)| c == Content::GARBAGE);
        let rotten = self.unfinished.iter().filter(|(_, name)| is_rotten(&self.bodies[name.what]));
        rotten.map(|(path, _)| path.clone()).collect()
    }

    /// All names are durable.
    pub(crate) fn sync_names(&mut self) {
        self.renamed.clear();
        self.names.values_mut().for_each(|name| name.is_durable = true);
    }

    /// The power goes off: what is not durable may be lost, or half lost.
    pub(crate) fn cut_power(&mut self, rng: &mut Rng, stats: &mut Stats) {
        for body in &mut self.bodies {
            body.durable = survivors(rng, &body.volatile, &body.durable);
            body.volatile = body.durable.clone();
        }
        self.take_renames_back(rng, stats);
        self.names.retain(|_, name| name.is_durable || rng.hits(500));
        self.unfinished.retain(|_, name| name.is_durable || rng.hits(500));
        let journal = &mut self.journal;
        let tail = journal.bytes.len() - journal.durable_count;
        let kept = rng.index(tail + 1);
        journal.bytes.truncate(journal.durable_count + kept);
        if kept > 0 && rng.hits(300) {
            let at = journal.durable_count + rng.index(kept);
            journal.bytes[at] ^= 1 << rng.below(8);
        }
        journal.durable_count = journal.bytes.len();
    }
}

impl Disk {
    /// A rename that is not durable has happened, or not; never half.
    fn take_renames_back(&mut self, rng: &mut Rng, stats: &mut Stats) {
        for (path, Renamed { temporary, replaced }) in std::mem::take(&mut self.renamed) {
            if rng.hits(500) {
                continue;
            }
            stats.renames_lost += 1;
            match replaced {
                Some(name) => self.names.insert(path.clone(), name),
                None => self.names.remove(&path),
            };
            self.unfinished.insert(path, temporary);
        }
    }
}

/// Which extents are there after the power was off: the durable ones, and chance decides about
/// what was written over or beside them since.
fn survivors(rng: &mut Rng, volatile: &Extents, durable: &Extents) -> Extents {
    let mut after = durable.clone();
    for (range, content) in volatile.iter() {
        match rng.below(3) {
            0 => after.put(range, content),
            1 => {}
            _ => after.put(range, Content::GARBAGE),
        }
    }
    for (range, content) in durable.iter() {
        if volatile.single(range.clone()) == Some(content) {
            after.put(range, content);
        }
    }
    after
}
