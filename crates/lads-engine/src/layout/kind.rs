//! The names of file systems, and what a client can see of their layouts.
//!
//! Most parallel file systems do not tell clients which target holds which bytes. This module knows
//! their names, so that a user need not guess, and serves each mount of them as one target.
//! `docs/layouts.md` gives the reason for each.

use super::mount::Mount;
use std::path::Path;

/// A file system with several targets that cannot be seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opaque {
    /// What it is called here.
    pub(super) name: &'static str,
    /// The types of its mounts, as the kernel and `mount` say them.
    mount_types: &'static [&'static str],
    /// Its type as `statfs` reports it, if that is unique.
    magic: Option<u64>,
    /// What is known of it, in a sentence.
    pub(super) remark: &'static str,
}

/// Requests that a target should have at a time if it is a whole file system behind a network: it
/// queues for its own disks, and the way there and back takes time. Holds only where the target is
/// not divided into tracks (`--lab schedule=file`).
pub(super) const OPAQUE_IN_FLIGHT_MAX: u32 = 16;

const OPAQUE: [Opaque; 21] = [
    Opaque {
        name: "gpfs",
        mount_types: &["gpfs"],
        magic: Some(0x4750_4653),
        remark: "Storage Scale (GPFS) spreads the blocks of every file over all disks of a pool; \
                 only its own library reports which disk holds which block",
    },
    Opaque {
        name: "panfs",
        mount_types: &["panfs"],
        magic: Some(0xaad7_aaea),
        remark: "PanFS chooses the components of each file itself; its interface is not public",
    },
    Opaque {
        name: "daos",
        mount_types: &["fuse.daos"],
        magic: None,
        remark: "DAOS places data by a hash, and dfuse does not report where; new files get the \
                 object class of their directory",
    },
    Opaque {
        name: "nfs",
        mount_types: &["nfs", "nfs4"],
        magic: Some(0x6969),
        remark: "NFS does not report where data is stored, and the kernel does not expose the \
                 layouts of pNFS that it uses; this includes VAST, Qumulo and others that are \
                 mounted through NFS",
    },
    Opaque {
        name: "smb",
        mount_types: &["cifs", "smb3"],
        magic: Some(0xff53_4d42),
        remark: "SMB does not report where data is stored",
    },
    Opaque {
        name: "weka",
        mount_types: &["wekafs"],
        magic: None,
        remark: "WekaFS spreads every file over all its servers and does not report where",
    },
    Opaque {
        name: "quobyte",
        mount_types: &["fuse.quobyte", "quobyte"],
        magic: None,
        remark: "only Quobyte's own tools report where data is stored",
    },
    Opaque {
        name: "glusterfs",
        mount_types: &["fuse.glusterfs"],
        magic: None,
        remark: "GlusterFS places whole files by a hash of their names",
    },
    Opaque {
        name: "juicefs",
        mount_types: &["fuse.juicefs"],
        magic: None,
        remark: "JuiceFS keeps its data in an object store",
    },
    Opaque {
        name: "moosefs",
        mount_types: &["fuse.mfs", "fuse.lizardfs", "fuse.saunafs"],
        magic: None,
        remark: "only the tools of MooseFS and its forks report where chunks are stored",
    },
    Opaque {
        name: "s3",
        mount_types: &["fuse.s3fs", "fuse.mountpoint-s3", "fuse.goofys", "fuse.geesefs"],
        magic: None,
        remark: "an object store does not report where its data is stored",
    },
    Opaque {
        name: "sshfs",
        mount_types: &["fuse.sshfs"],
        magic: None,
        remark: "data crosses the network twice; the transfer is faster if its end runs on the \
                 host that holds the data",
    },
    Opaque {
        name: "dvs",
        mount_types: &["dvs"],
        magic: None,
        remark: "DVS forwards a file system of other hosts and does not report its layouts",
    },
    Opaque {
        name: "afs",
        mount_types: &["afs"],
        magic: Some(0x5346_414f),
        remark: "AFS keeps each volume on one server",
    },
    Opaque {
        name: "9p",
        mount_types: &["9p"],
        magic: Some(0x0102_1997),
        remark: "a directory of another host, whose disks are not visible",
    },
    Opaque {
        name: "virtiofs",
        mount_types: &["virtiofs"],
        magic: None,
        remark: "a directory of the host of this virtual machine, whose disks are not visible",
    },
    Opaque {
        name: "lustre",
        mount_types: &["lustre"],
        magic: Some(0x0bd0_0bd0),
        remark: "this client of Lustre does not report its targets",
    },
    Opaque {
        name: "ceph",
        mount_types: &["ceph", "fuse.ceph-fuse", "fuse.ceph"],
        magic: Some(0x00c3_6400),
        remark: "this client of CephFS does not report its targets",
    },
    Opaque {
        name: "beegfs",
        mount_types: &["beegfs"],
        magic: Some(0x1983_0326),
        remark: "this client of BeeGFS does not report its targets",
    },
    Opaque {
        name: "orangefs",
        mount_types: &["pvfs2"],
        magic: Some(0x2003_0528),
        remark: "only the configuration of OrangeFS's servers shows where data is stored; with a \
                 copy of it as /etc/orangefs-server.conf, each server is a target",
    },
    Opaque {
        name: "zfs",
        mount_types: &["zfs"],
        magic: Some(0x2fc1_2fc1),
        remark: "ZFS does not report which disks of its pool hold a file",
    },
];

/// Which of them is mounted; by the number of `statfs`, if the mount does not say. `None` if the
/// file system is local, or unknown.
pub(super) fn opaque(mount: &Mount, magic: Option<u64>) -> Option<&'static Opaque> {
    let by_type = |it: &&Opaque| it.mount_types.contains(&mount.kind.as_str());
    let by_magic = |it: &&Opaque| mount.kind.is_empty() && it.magic.is_some() && it.magic == magic;
    OPAQUE.iter().find(by_type).or_else(|| OPAQUE.iter().find(by_magic))
}

/// The server in the source of a mount, as in `server:/export` and `//server/share`; empty if there
/// is none.
pub(super) fn server_of(source: &Path) -> String {
    let source = source.to_string_lossy();
    let server = match source.strip_prefix("//") {
        Some(rest) => rest.split('/').next(),
        None => source.split_once(":/").map(|(server, _)| server),
    };
    server.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: &str, magic: Option<u64>) -> Option<&'static str> {
        let mount = Mount { kind: kind.to_owned(), ..Mount::unknown(Path::new("/")) };
        opaque(&mount, magic).map(|it| it.name)
    }

    #[test]
    fn a_file_system_is_known_by_the_type_of_its_mount() {
        for (kind, name) in [("gpfs", "gpfs"), ("nfs4", "nfs"), ("fuse.daos", "daos")] {
            assert_eq!(named(kind, None), Some(name));
        }
        assert_eq!(named("ext4", Some(0x6969)), None, "the mount tells, and knows better");
    }

    #[test]
    fn a_file_system_whose_mount_is_not_seen_is_known_by_its_number() {
        assert_eq!(named("", Some(0x4750_4653)), Some("gpfs"));
        assert_eq!(named("", Some(0xaad7_aaea)), Some("panfs"));
        assert_eq!(named("", None), None);
    }

    #[test]
    fn no_type_is_that_of_two_file_systems() {
        let types = || OPAQUE.iter().flat_map(|it| it.mount_types);
        assert!(types().all(|kind| types().filter(|other| *other == kind).count() == 1));
    }

    #[test]
    fn the_server_of_a_network_mount_is_in_its_source() {
        let server = |source: &str| server_of(Path::new(source));
        assert_eq!(server("nas1:/export/a"), "nas1");
        assert_eq!(server("[fe80::1]:/export"), "[fe80::1]");
        assert_eq!(server("//winter/share"), "winter");
        assert_eq!(server("gpfs0"), "");
    }
}
