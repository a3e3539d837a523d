//! Layouts of CephFS: a file is cut into objects, and the cluster says on which OSD each is.
//!
//! An attribute of a file says how the file is cut. Which OSD holds an object follows from the
//! object's name and from the cluster's placement groups. Ceph's own tool reports the groups
//! ([`cluster`]); LADS asks once at the beginning, and again every few minutes. So no file costs a
//! question. If the tool does not answer, the file system is one OST.
//!
//! OSTs are the OSDs in the order of their numbers, without gaps; in very large clusters, the hosts
//! that hold the OSDs. One more OST, at the end, stands for objects without a known OSD.
//!
//! LADS can choose how a file is cut, but not the OSD of an object. So wishes are heeded as far as
//! that goes. A new file gets the layout of its directory, is given another one while it is empty,
//! and is then asked which one it has.

mod cluster;

use super::mount::{mounts, nearest_existing, on_which};
use super::new_file::make;
use super::{FileAt, Heeds, Layouts, Located, NewFile, Placed, Provider, Target};
use crate::metadata::read_all;
use crate::paths::proc_path;
use crate::thread::spawn;
use cluster::{Cluster, Osd};
use lads_core::ceph::{
    DIRECTORY_ATTRIBUTE, FILE_ATTRIBUTE, FileLayout, OBJECT_BYTES_MAX, ObjectStriping, UNIT_BYTES,
    object_name,
};
use lads_core::layout::{Layout, OBJECTS_MAX};
use lads_core::placement::{OstState, Wish};
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use rustix::fs::{
    AtFlags, FsWord, OFlags, XattrFlags, fgetxattr, fsetxattr, fstat, getxattr, lgetxattr, statat,
    statfs,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The type of file systems of the kernel's client, as `statfs` reports it.
const FILE_SYSTEM_TYPE: FsWord = 0x00c3_6400;

/// The type of all file systems that programs serve, as `statfs` reports it.
const FUSE_TYPE: FsWord = 0x6573_5546;

/// The types of `ceph-fuse` in the mount table, present and former.
const FUSE_TYPES: [&str; 2] = ["fuse.ceph-fuse", "fuse.ceph"];

/// The attribute that says to which cluster a file belongs.
const CLUSTER_ATTRIBUTE: &str = "ceph.cluster_fsid";

/// Requests that an OSD should have at a time: one that is served, one that is next, and two that
/// are on their way.
const IN_FLIGHT_MAX: u32 = 4;
/// The same for many OSDs together, for example for a whole file system whose OSDs are unknown.
const IN_FLIGHT_MAX_OF_MANY: u32 = 16;

/// The most OSTs: each needs a buffer at the sink, which has 256.
const OSTS_MAX: usize = 128;

/// The greatest age of an answer of the cluster: OSDs fail and return, and groups move.
const AGE_MAX: Duration = Duration::from_secs(300);

/// Numbers of inodes are below this; above it, a client may store the number of a snapshot.
const INODE_BITS: u64 = (1 << 48) - 1;

/// The names of the attributes that hold layouts.
#[derive(Clone, Copy, Debug)]
struct Attributes {
    file: &'static str,
    directory: &'static str,
}

/// The row in the table of providers.
pub(super) const PROVIDER: Provider = Provider {
    name: "ceph",
    at: |path| Some(Box::new(Ceph::at(path)?)),
    refusal: "is not on CephFS",
    #[cfg(test)]
    put_to_test: tests::keep_the_contract,
};

/// A file system of Ceph.
#[derive(Debug)]
struct Ceph {
    attributes: Attributes,
    /// The OSTs, except the last, which stands for no OSD.
    rows: Vec<Row>,
    /// The OST of each OSD.
    osts: HashMap<i64, OstId>,
    latest: Arc<Latest>,
}

/// An OST: an OSD, or all OSDs of a host.
#[derive(Debug)]
struct Row {
    name: String,
    osds: Vec<i64>,
}

/// What the cluster said last.
#[derive(Debug)]
struct Latest {
    answer: RwLock<Answer>,
    is_asking: AtomicBool,
}

#[derive(Clone, Debug)]
struct Answer {
    cluster: Arc<Cluster>,
    at: Instant,
}

impl Ceph {
    /// The CephFS that `path` is on; `None` if it is not on CephFS.
    fn at(path: &Path) -> Option<Self> {
        let here = nearest_existing(path);
        let is_ceph = match statfs(&here).ok()?.f_type {
            FILE_SYSTEM_TYPE => true,
            FUSE_TYPE => on_which(&here, &mounts())
                .is_some_and(|mount| FUSE_TYPES.contains(&mount.kind.as_str())),
            _ => false,
        };
        if !is_ceph {
            return None;
        }
        let fsid = read_all(|to| getxattr(&here, CLUSTER_ATTRIBUTE, to.as_mut_slice())).ok();
        let is_this = |cluster: &Cluster| {
            fsid.as_ref().is_none_or(|fsid| fsid.trim_ascii() == cluster.fsid.as_bytes())
        };
        let cluster = Cluster::ask().filter(is_this).unwrap_or_default();
        let attributes = Attributes { file: FILE_ATTRIBUTE, directory: DIRECTORY_ATTRIBUTE };
        Some(Self::over(attributes, cluster))
    }

    /// A file system of this cluster, with layouts in these attributes.
    fn over(attributes: Attributes, cluster: Cluster) -> Self {
        let rows = rows_of(&cluster.osds);
        let numbered = (0..).map(OstId).zip(&rows);
        let osts = numbered.flat_map(|(ost, row)| row.osds.iter().map(move |&osd| (osd, ost)));
        let osts = osts.collect();
        let answer = Answer { cluster: Arc::new(cluster), at: Instant::now() };
        let (answer, is_asking) = (RwLock::new(answer), AtomicBool::new(false));
        Self { attributes, rows, osts, latest: Arc::new(Latest { answer, is_asking }) }
    }

    /// The last answer of the cluster. If it is old, starts a new question without waiting for the
    /// answer.
    fn cluster(&self) -> Arc<Cluster> {
        let answer = self.latest.answer.read().unwrap_or_else(PoisonError::into_inner).clone();
        let is_due = !self.osts.is_empty() && answer.at.elapsed() > AGE_MAX;
        if is_due && !self.latest.is_asking.swap(true, Ordering::Relaxed) {
            let latest = Arc::clone(&self.latest);
            let fsid = answer.cluster.fsid.clone();
            if spawn("lads-ceph", move || latest.ask_again(&fsid)).is_err() {
                self.latest.is_asking.store(false, Ordering::Relaxed);
            }
        }
        answer.cluster
    }

    fn layout(&self, text: &[u8], inode: u64, size: u64) -> Layout {
        let (cluster, elsewhere) = (self.cluster(), self.elsewhere());
        let Some(file) = FileLayout::parse(text).ok().filter(|_| !self.osts.is_empty()) else {
            return Layout::on(elsewhere);
        };
        let Some(pool) = cluster.pool(&file.pool) else { return Layout::on(elsewhere) };
        let ost_of = |object| {
            let group = pool.group(&file.namespace, &object_name(inode & INODE_BITS, object));
            let osd = cluster.primaries.get(&(pool.id, group));
            osd.and_then(|osd| self.osts.get(osd)).copied().unwrap_or(elsewhere)
        };
        let count = file.striping.object_count(size).clamp(1, OBJECTS_MAX as u64);
        let osts: Vec<OstId> = (0..count).map(ost_of).collect();
        Layout::in_objects(file.striping, &osts).unwrap_or_else(|| Layout::on(elsewhere))
    }

    fn elsewhere(&self) -> OstId {
        OstId(u32::try_from(self.rows.len()).expect("at most OSTS_MAX"))
    }

    /// Sets the wished layout of a new file as far as possible. Returns the layout that it has.
    fn settle(&self, handle: &OwnedFd, file: &NewFile<'_>) -> Result<Placed, Errno> {
        let inode = fstat(handle)?.st_ino;
        let told = || read_all(|to| fgetxattr(handle, self.attributes.file, to.as_mut_slice()));
        let text = told()?;
        let striping = FileLayout::parse(&text).ok().map(|it| it.striping);
        let wished = striping.and_then(|given| wished(file.wish, given));
        let Some(wished) = wished.filter(|wished| Some(*wished) != striping) else {
            return Ok(made(self.layout(&text, inode, file.size), None));
        };
        let value = wished.to_string();
        let refusal =
            fsetxattr(handle, self.attributes.file, value.as_bytes(), XattrFlags::empty()).err();
        let text = told()?;
        let found = FileLayout::parse(&text).ok().map(|it| it.striping);
        let difference = (found != Some(wished)).then(|| differs(wished, found, refusal));
        Ok(made(self.layout(&text, inode, file.size), difference))
    }
}

impl Latest {
    fn ask_again(&self, fsid: &str) {
        let before = self.answer.read().unwrap_or_else(PoisonError::into_inner).clone();
        let cluster = Cluster::ask().filter(|it| it.fsid == fsid).map(Arc::new);
        // A cluster that does not answer is asked again only after the same time.
        let answer = Answer { cluster: cluster.unwrap_or(before.cluster), at: Instant::now() };
        *self.answer.write().unwrap_or_else(PoisonError::into_inner) = answer;
        self.is_asking.store(false, Ordering::Relaxed);
    }
}

impl Layouts for Ceph {
    fn kind(&self) -> &'static str {
        PROVIDER.name
    }

    fn remarks(&self) -> Vec<String> {
        if !self.osts.is_empty() {
            return Vec::new();
        }
        vec![
            "the map of the cluster is not available, so it is treated as one target: `ceph pg \
             map` must work here for this user (CEPH_CONF and CEPH_ARGS select the credentials)"
                .to_owned(),
        ]
    }

    fn osts(&self) -> Vec<OstSpec> {
        let many = |count: usize| if count > 1 { IN_FLIGHT_MAX_OF_MANY } else { IN_FLIGHT_MAX };
        let row = |row: &Row| OstSpec::new(row.name.clone(), many(row.osds.len()));
        let (name, in_flight_max) = match self.rows.is_empty() {
            true => ("CephFS".to_owned(), IN_FLIGHT_MAX_OF_MANY),
            false => ("elsewhere".to_owned(), IN_FLIGHT_MAX),
        };
        let last = OstSpec::new(name, in_flight_max);
        self.rows.iter().map(row).chain([last]).collect()
    }

    fn targets(&self) -> Vec<Target> {
        let cluster = self.cluster();
        let now: HashMap<i64, &Osd> = cluster.osds.iter().map(|osd| (osd.id, osd)).collect();
        let present =
            |row: &Row| row.osds.iter().filter_map(|id| now.get(id).copied()).collect::<Vec<_>>();
        self.rows.iter().map(|row| target_of(&row.name, &present(row))).collect()
    }

    fn of_file(&self, file: &FileAt<'_>) -> Located {
        let path = proc_path(file.directory, file.name);
        let attribute = self.attributes.file;
        let text = read_all(|to| lgetxattr(path.as_slice(), attribute, to.as_mut_slice()));
        Located::at(self.layout(&text.unwrap_or_default(), file.inode, file.size))
    }

    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno> {
        if file.is_there {
            let (directory, name) = (file.directory, file.name.as_bytes());
            let stat = statat(directory, file.name, AtFlags::SYMLINK_NOFOLLOW)?;
            let (device, inode, size) = (stat.st_dev, stat.st_ino, file.size);
            let located = self.of_file(&FileAt { directory, name, device, inode, size });
            return Ok(Placed::at(located.layout));
        }
        self.settle(&make(file, OFlags::empty())?, file)
    }

    fn raw(&self, file: &FileAt<'_>) -> Option<Vec<u8>> {
        let path = proc_path(file.directory, file.name);
        let read = |attribute: &str| {
            read_all(|to| lgetxattr(path.as_slice(), attribute, to.as_mut_slice())).ok()
        };
        read(self.attributes.file).or_else(|| read(self.attributes.directory))
    }

    fn heeds(&self) -> Heeds {
        Heeds::Striping
    }
}

fn made(layout: Layout, difference: Option<String>) -> Placed {
    Placed { is_made: true, difference, ..Placed::at(layout) }
}

/// One OST for each OSD, if these are not too many; otherwise one for each host; otherwise several
/// hosts to an OST.
fn rows_of(osds: &[Osd]) -> Vec<Row> {
    if osds.len() <= OSTS_MAX {
        let row = |osd: &Osd| Row { name: osd.name.clone(), osds: vec![osd.id] };
        return osds.iter().map(row).collect();
    }
    let mut hosts: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for osd in osds {
        hosts.entry(&osd.host).or_default().push(osd.id);
    }
    let mut rows: Vec<Row> = Vec::new();
    for (number, (host, osds)) in hosts.into_iter().enumerate() {
        match rows.get_mut(number % OSTS_MAX) {
            Some(row) => row.osds.extend(osds),
            None => rows.push(Row { name: host.to_owned(), osds }),
        }
    }
    rows
}

/// What is known of an OST from its OSDs.
fn target_of(name: &str, osds: &[&Osd]) -> Target {
    let best = osds.iter().find(|osd| osd.state == OstState::Up).or_else(|| osds.first());
    let is_flash = osds.first().and_then(|osd| osd.is_flash);
    Target {
        name: name.to_owned(),
        server: best.map_or_else(String::new, |osd| osd.host.clone()),
        state: best.map_or(OstState::Absent, |osd| osd.state),
        capacity_bytes: osds.iter().map(|osd| osd.capacity_bytes).sum(),
        free_bytes: osds.iter().map(|osd| osd.free_bytes).sum(),
        is_flash: is_flash.filter(|_| osds.iter().all(|osd| osd.is_flash == is_flash)),
    }
}

/// The layout to ask for: as near to the wish as possible for a file that would get `given`.
///
/// The chosen OSTs are lost, only their number counts. Objects follow each other over all OSDs in
/// any case, so a file never gets fewer stripes than its directory gives.
fn wished(wish: &Wish, given: ObjectStriping) -> Option<ObjectStriping> {
    let (stripe_size, count) = match wish {
        Wish::Default => return None,
        Wish::Striped { stripe_size, stripe_count } => (*stripe_size, *stripe_count),
        Wish::On { osts, .. } if osts.len() <= given.count() as usize => return None,
        Wish::On { stripe_size, osts } => (*stripe_size, osts.len()),
    };
    let count = u32::try_from(count).ok()?;
    if count == 1 {
        // Then objects follow each other, and the size of a stripe means nothing.
        return ObjectStriping::new(given.object_size(), 1, given.object_size());
    }
    let unit = u32::try_from(stripe_size).unwrap_or(OBJECT_BYTES_MAX).min(OBJECT_BYTES_MAX);
    let unit = unit.next_multiple_of(UNIT_BYTES);
    let object_size = given.object_size().next_multiple_of(unit);
    ObjectStriping::new(
        unit,
        count,
        if object_size > OBJECT_BYTES_MAX { unit } else { object_size },
    )
}

fn differs(
    wished: ObjectStriping,
    found: Option<ObjectStriping>,
    refusal: Option<Errno>,
) -> String {
    let found = found.map_or_else(|| "an unknown layout".to_owned(), |found| found.to_string());
    let because = refusal.map_or_else(String::new, |errno| format!(" ({errno})"));
    format!("requested {wished}, got {found}{because}")
}

#[cfg(test)]
mod tests;
