//! Layouts of OrangeFS, by two of its extended attributes; no library of its maker is needed.
//!
//! The attributes name data files by handles. Clients are not told which server has which handles;
//! that is in the configuration of the servers, of which this provider needs a copy. Without a
//! copy, the file system is one target. Servers are numbered in the order of the configuration, and
//! the last number stands for bytes on no known server.
//!
//! Attributes of a directory decide where its new files go. They belong to the directory's owner
//! and are not changed; so a file is made, and then asked where it is.

use super::mount::{Mount, mounts, nearest_existing, on_which};
use super::new_file::make;
use super::{FileAt, Layouts, Located, NewFile, Placed, Provider, Target};
use crate::metadata::read_all;
use crate::paths::proc_path;
use lads_core::layout::Layout;
use lads_core::orangefs::{
    Distribution, HANDLES_ATTRIBUTE, RULE_ATTRIBUTE, Server, parse_config, parse_handles,
};
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use rustix::fs::{OFlags, lgetxattr};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The type of its mounts.
const MOUNT_TYPE: &str = "pvfs2";

/// Where a copy of the servers' configuration may lie.
const CONFIGS: [&str; 5] = [
    "/etc/orangefs/orangefs-server.conf",
    "/etc/orangefs-server.conf",
    "/etc/orangefs/server.conf",
    "/opt/orangefs/etc/orangefs-server.conf",
    "/etc/pvfs2-fs.conf",
];

/// Requests that a server should have at a time: one that is served, one that is next, and two that
/// are on their way there or back.
const IN_FLIGHT_MAX: u32 = 4;

/// A remark that holds wherever this provider is used.
const REMARK: &str = "implemented from the published sources of OrangeFS (release 2.9) and tested \
                      on golden bytes; not tried on a real OrangeFS. Attributes of a directory \
                      determine where its new files are placed";

/// The row in the table of providers.
pub(super) const PROVIDER: Provider = Provider {
    name: "orangefs",
    at: |path| Some(Box::new(Orangefs::at(path)?)),
    refusal: "is not on OrangeFS, or there is no copy of its servers' /etc/orangefs-server.conf",
    #[cfg(test)]
    put_to_test: tests::keep_the_contract,
};

/// A file system of OrangeFS whose servers are known.
#[derive(Debug)]
struct Orangefs {
    servers: Vec<Server>,
    /// The names of the two attributes: distribution and handles.
    attributes: [&'static str; 2],
}

impl Orangefs {
    /// The OrangeFS that `path` is on; `None` without a copy of its configuration.
    fn at(path: &Path) -> Option<Self> {
        let here = nearest_existing(path);
        CONFIGS.iter().find_map(|config| {
            let config = std::fs::read_to_string(config).ok()?;
            let mounts = mounts();
            let mount = on_which(&here, &mounts).filter(|mount| mount.kind == MOUNT_TYPE)?;
            Self::over(&config, name_of(mount), [RULE_ATTRIBUTE, HANDLES_ATTRIBUTE])
        })
    }

    fn over(config: &str, file_system: &str, attributes: [&'static str; 2]) -> Option<Self> {
        let servers = parse_config(config, file_system);
        (!servers.is_empty()).then_some(Self { servers, attributes })
    }

    fn elsewhere(&self) -> OstId {
        number(self.servers.len())
    }

    fn ost(&self, handle: u64) -> OstId {
        let holds = |server: &Server| server.handles.iter().any(|range| range.contains(&handle));
        let index = self.servers.iter().position(holds);
        number(index.unwrap_or(self.servers.len()))
    }

    /// The values of both attributes, as far as they exist.
    fn values(&self, directory: &OwnedFd, name: &[u8]) -> [Option<Vec<u8>>; 2] {
        let path = proc_path(directory, name);
        self.attributes.map(|attribute| {
            read_all(|to| lgetxattr(path.as_slice(), attribute, to.as_mut_slice())).ok()
        })
    }

    fn layout(&self, directory: &OwnedFd, name: &[u8]) -> Layout {
        let [rule, handles] = self.values(directory, name);
        let told = || {
            let osts = parse_handles(&handles?).map(|handle| self.ost(handle)).collect();
            Distribution::parse(&rule?)?.layout(osts)
        };
        told().unwrap_or_else(|| Layout::on(self.elsewhere()))
    }
}

impl Layouts for Orangefs {
    fn kind(&self) -> &'static str {
        PROVIDER.name
    }

    fn remarks(&self) -> Vec<String> {
        vec![REMARK.to_owned()]
    }

    fn osts(&self) -> Vec<OstSpec> {
        let names = self.servers.iter().map(|server| server.alias.as_str()).chain(["elsewhere"]);
        names.map(|name| OstSpec::new(name, IN_FLIGHT_MAX)).collect()
    }

    fn targets(&self) -> Vec<Target> {
        let target = |server: &Server| {
            let address = server.address.split_once("://").map_or("", |(_, address)| address);
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            Target { name: server.alias.clone(), server: host.to_owned(), ..Target::default() }
        };
        self.servers.iter().map(target).collect()
    }

    fn of_file(&self, file: &FileAt<'_>) -> Located {
        Located::at(self.layout(file.directory, file.name))
    }

    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno> {
        if !file.is_there {
            make(file, OFlags::empty())?;
        }
        let layout = self.layout(file.directory, file.name.as_bytes());
        Ok(Placed { is_made: !file.is_there, ..Placed::at(layout) })
    }

    /// Both attributes, one behind the other.
    fn raw(&self, file: &FileAt<'_>) -> Option<Vec<u8>> {
        let [rule, handles] = self.values(file.directory, file.name);
        Some([rule?, handles?].concat())
    }
}

fn number(index: usize) -> OstId {
    OstId(u32::try_from(index).expect("a configuration has few servers"))
}

/// The name of the file system in the source of a mount: `tcp://io1:3334/orangefs`.
fn name_of(mount: &Mount) -> &str {
    let name = mount.source.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests;
