//! Links that reach out of the target (rsync CVE-2024-12087, CVE-2024-12088, CVE-2024-12747 and
//! the link-following ones of 2026).

use crate::case::Case;
use crate::entries::{directory, hard_link, symlink};
use crate::peer::{Peer, Told};
use crate::world::World;
use lads_core::entry::Entry;
use lads_core::message::Message;
use std::os::unix::ffi::OsStrExt as _;

pub(super) const CASES: &[Case] = &[
    Case::source("hard_link_leads_up", |peer| linked(peer, b"../canary/secret")).served_too(),
    Case::source("hard_link_is_absolute", |peer| {
        let path = peer.world().canary().join("secret");
        linked(peer, path.as_os_str().as_bytes())
    })
    .served_too(),
    Case::source("hard_link_is_empty", |peer| linked(peer, b"")),
    Case::source("hard_link_holds_dots", |peer| linked(peer, b"./a")),
    Case::source("hard_link_holds_two_slashes", |peer| linked(peer, b"a//b")),
    Case::source("hard_link_holds_nul", |peer| linked(peer, b"a\0b")),
    Case::source("hard_link_of_4097_bytes", |peer| linked(peer, &[b'x'; 4097])),
    Case::source("hard_link_through_a_link", |peer| {
        made(peer, &symlink(1, "l", "../canary"))?;
        linked_and_ended(peer, b"l/secret")
    })
    .exits(&[5, 6])
    .served_too(),
    Case::source("hard_link_to_a_link", |peer| {
        made(peer, &symlink(1, "l", "../canary/secret"))?;
        linked_and_ended(peer, b"l")
    })
    .exits(&[0, 5, 6]),
    Case::source("hard_link_to_a_directory", |peer| {
        made(peer, &directory(1, "d"))?;
        linked_and_ended(peer, b"d")
    })
    .exits(&[5, 6]),
    Case::source("hard_link_to_itself", |peer| linked_and_ended(peer, b"linked")).exits(&[5, 6]),
    Case::source("hard_link_to_nothing", |peer| linked_and_ended(peer, b"nothing")).exits(&[5, 6]),
    Case::source("hard_link_to_the_live_journal", |peer| {
        let journal = World::journal_name(peer.job());
        linked_and_ended(peer, journal.as_bytes())
    })
    .exits(&[5, 6])
    .served_too(),
    Case::source("hard_link_to_the_live_lock", |peer| {
        let lock = World::journal_name(peer.job()).replace("journal", "lock");
        linked_and_ended(peer, lock.as_bytes())
    })
    .exits(&[5, 6]),
    Case::source("link_to_nothing_at_all", |peer| link_and_ended(peer, b"")).exits(&[5, 6]),
    Case::source("link_of_a_mebibyte", |peer| link_and_ended(peer, &vec![b'x'; 1 << 20]))
        .exits(&[5, 6]),
    Case::source("link_that_holds_nul", |peer| link_and_ended(peer, b"a\0b")).exits(&[5, 6]),
    Case::source("link_to_anywhere_is_not_followed", |peer| {
        let secret = peer.world().canary().join("secret");
        link_and_ended(peer, secret.as_os_str().as_bytes())
    })
    .exits(&[0]),
];

fn made(peer: &mut Peer, entry: &Entry) -> Told {
    peer.announce(std::slice::from_ref(entry))?;
    peer.expect_answer(entry.id.0).map(drop)
}

fn linked(peer: &mut Peer, target: &[u8]) -> Told {
    peer.say(&Message::NewFile(vec![hard_link(9, "linked", target)]))
}

/// What does not break the protocol fails at the sink, which has to know by itself.
fn linked_and_ended(peer: &mut Peer, target: &[u8]) -> Told {
    linked(peer, target)?;
    peer.expect_answer(9)?;
    peer.finish()
}

fn link_and_ended(peer: &mut Peer, target: &[u8]) -> Told {
    peer.say(&Message::NewFile(vec![symlink(9, "link", target)]))?;
    peer.expect_answer(9)?;
    peer.finish()
}
