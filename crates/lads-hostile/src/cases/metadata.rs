//! Rights that nobody asked to give, and numbers that no file system has (bbcp and scp take modes
//! as they come; rsync 2026: metadata applied by name).

use crate::case::Case;
use crate::entries::{Changed, file, special, with_xattr};
use crate::peer::{Peer, Told, wrong};
use lads_core::entry::{Entry, Kind};
use lads_core::message::{Answer, Message};
use lads_core::placement::Striping;
use lads_core::units::OstId;

/// Regular, FIFO, character device, directory, block device, socket and link (`S_IF…`).
const S_IFREG: u32 = 0o100_000;
const S_IFIFO: u32 = 0o010_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFBLK: u32 = 0o060_000;
const S_IFSOCK: u32 = 0o140_000;
const S_IFLNK: u32 = 0o120_000;

/// The device number of `/dev/null`, and of memory: nobody should be able to have the second.
const DEV_NULL: u64 = 0x103;
const DEV_MEM: u64 = 0x101;

/// What may come of an entry that is made harmless, fails, or is a breach.
const HARMLESS: &[i32] = &[0, 5, 6];

pub(super) const CASES: &[Case] = &[
    Case::source("device_nobody_asked_for", |peer| node(peer, S_IFCHR, DEV_MEM))
        .exits(HARMLESS)
        .served_too(),
    Case::source("block_device_nobody_asked_for", |peer| node(peer, S_IFBLK, DEV_NULL))
        .exits(HARMLESS),
    Case::source("fifo_nobody_asked_for", |peer| node(peer, S_IFIFO, 0)).exits(HARMLESS),
    Case::source("socket_nobody_asked_for", |peer| node(peer, S_IFSOCK, 0)).exits(HARMLESS),
    Case::source("special_that_is_a_file", |peer| node(peer, S_IFREG, 0)).exits(HARMLESS),
    Case::source("special_that_is_a_directory", |peer| node(peer, S_IFDIR, 0)).exits(HARMLESS),
    Case::source("special_that_is_a_link", |peer| node(peer, S_IFLNK, 0)).exits(HARMLESS),
    Case::source("special_of_no_type", |peer| node(peer, 0, 0)).exits(HARMLESS),
    Case::source("special_of_all_types", |peer| node(peer, u32::MAX, u64::MAX)).exits(HARMLESS),
    Case::source("special_that_is_a_file_with_D", |peer| node(peer, S_IFREG | 0o4755, 0))
        .options(&["-D"])
        .exits(&[0, 5, 6]),
    Case::source("attribute_that_gives_capabilities", |peer| {
        attribute(
            peer,
            "security.capability",
            &[1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        )
    })
    .exits(HARMLESS)
    .served_too(),
    Case::source("attribute_of_a_label", |peer| attribute(peer, "security.selinux", b"evil_t"))
        .exits(HARMLESS),
    Case::source("attribute_that_is_trusted", |peer| attribute(peer, "trusted.evil", b"1"))
        .exits(HARMLESS)
        .served_too(),
    Case::source("attribute_of_lustres_books", |peer| attribute(peer, "trusted.lov", &[0xff; 64]))
        .exits(HARMLESS),
    Case::source("attribute_of_overlays_books", |peer| {
        attribute(peer, "trusted.overlay.redirect", b"/etc")
    })
    .exits(HARMLESS),
    Case::source("attribute_that_is_no_acl", |peer| {
        attribute(peer, "system.posix_acl_access", &[0xff; 100])
    })
    .exits(&[0, 5, 6, 13]),
    Case::source("attribute_of_no_namespace", |peer| attribute(peer, "evil", b"1")).exits(HARMLESS),
    Case::source("attribute_with_nul_in_its_name", |peer| attribute(peer, "user.a\0b", b"1"))
        .exits(HARMLESS),
    Case::source("attribute_with_a_long_name", |peer| {
        attribute(peer, &format!("user.{}", "x".repeat(5000)), b"1")
    })
    .exits(HARMLESS),
    Case::source("attribute_of_a_mebibyte", |peer| attribute(peer, "user.a", &vec![1; 1 << 20]))
        .exits(HARMLESS),
    Case::source("set_user_id_bit", |peer| mode(peer, 0o6755)).exits(HARMLESS).served_too(),
    Case::source("mode_of_too_many_bits", |peer| mode(peer, 0o107_777)).exits(HARMLESS),
    Case::source("mode_of_all_bits", |peer| mode(peer, u32::MAX)).exits(HARMLESS),
    Case::source("time_beyond_all_time", |peer| time(peer, i64::MAX, 0)).exits(HARMLESS),
    Case::source("time_before_all_time", |peer| time(peer, i64::MIN, 0)).exits(HARMLESS),
    Case::source("nanoseconds_of_a_second", |peer| time(peer, 1, 1_000_000_000)).exits(HARMLESS),
    Case::source("nanoseconds_that_mean_now", |peer| time(peer, 1, 0x3fff_ffff)).exits(HARMLESS),
    Case::source("owner_of_all_ones", |peer| {
        deliver(
            peer,
            &file(1, "a", 9).with(|entry| {
                (entry.metadata.uid, entry.metadata.gid) = (u32::MAX, u32::MAX);
            }),
        )
    })
    .exits(HARMLESS),
    Case::source("size_of_2_to_63", |peer| size(peer, 1 << 63, 9)).exits(&[5, 6]),
    Case::source("size_of_all_ones", |peer| size(peer, u64::MAX, 9)).exits(&[5, 6]),
    Case::source("more_data_than_size", |peer| size(peer, 9, 10)).exits(&[5, 6]),
    Case::source("data_of_all_ones", |peer| size(peer, 9, u64::MAX)).exits(&[5, 6]),
    Case::source("source_ost_of_all_ones", |peer| {
        deliver(peer, &file(1, "a", 9).with(|entry| begins_on(entry, u32::MAX)))
    })
    .exits(HARMLESS),
    Case::source("striping_that_cannot_be", |peer| {
        deliver(
            peer,
            &file(1, "a", 9).with(|entry| {
                if let Kind::File { striping, .. } = &mut entry.kind {
                    *striping = Striping { size: 1, count: u32::MAX };
                }
            }),
        )
    })
    .options(&["--sink", "layout=synthetic:osts=4", "--sink", "place=same"])
    .exits(HARMLESS),
];

/// Sets the OST of the source on which a file is said to begin.
pub(super) fn begins_on(entry: &mut Entry, ost: u32) {
    if let Kind::File { source_ost, .. } = &mut entry.kind {
        *source_ost = OstId(ost);
    }
}

fn node(peer: &mut Peer, file_type: u32, device: u64) -> Told {
    peer.say(&Message::NewFile(vec![special(1, "node", file_type, device)]))?;
    peer.expect_answer(1)?;
    peer.finish()
}

fn attribute(peer: &mut Peer, name: &str, value: &[u8]) -> Told {
    deliver(peer, &with_xattr(file(1, "a", 9), name, value))
}

fn mode(peer: &mut Peer, mode: u32) -> Told {
    deliver(peer, &file(1, "a", 9).with(|entry| entry.metadata.mode = mode))
}

fn time(peer: &mut Peer, seconds: i64, nanos: u32) -> Told {
    deliver(
        peer,
        &file(1, "a", 9).with(|entry| {
            entry.metadata.mtime.seconds = seconds;
            entry.metadata.mtime.nanos = nanos;
            if let Kind::File { identity, .. } = &mut entry.kind {
                identity.mtime = entry.metadata.mtime;
            }
        }),
    )
}

fn size(peer: &mut Peer, size: u64, data: u64) -> Told {
    let file = file(1, "a", size).with(|entry| {
        if let Kind::File { data_bytes, .. } = &mut entry.kind {
            *data_bytes = data;
        }
    });
    peer.say(&Message::NewFile(vec![file]))?;
    peer.expect_answer(1)?;
    // Nothing of it can come, so nothing more is said.
    Ok(())
}

/// A lie in a file that otherwise arrives as it should, if it is let in; with one that is not,
/// the transfer goes on.
fn deliver(peer: &mut Peer, file: &Entry) -> Told {
    peer.say(&Message::NewFile(vec![file.clone()]))?;
    match peer.expect_answer(file.id.0)? {
        Answer::Want { layout, .. } => {
            peer.send_data(file, &layout, 0)?;
            peer.expect_ending(file.id.0)?;
        }
        Answer::Failed(_) => {}
        answer => return wrong(format!("a new file: {answer:?}")),
    }
    peer.finish()
}
