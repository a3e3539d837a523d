//! Names that lead out of the target, or to what is ours (rsync CVE-2022-29154, CVE-2024-12087,
//! croc CVE-2023-43619, scp CVE-2019-6111: the peer chooses where a file goes).

use crate::case::Case;
use crate::entries::{Changed, below, directory, file, symlink};
use crate::peer::{Peer, Told};
use crate::world::World;
use lads_core::entry::Entry;
use lads_core::message::{Message, Root};
use lads_core::units::EntryId;
use std::os::unix::ffi::OsStrExt as _;

pub(super) const CASES: &[Case] = &[
    Case::source("name_is_dotdot", |peer| named(peer, b"..")).served_too(),
    Case::source("name_leads_up", |peer| named(peer, b"../canary/new")).served_too(),
    Case::source("name_is_absolute", |peer| {
        let path = peer.world().canary().join("new");
        named(peer, path.as_os_str().as_bytes())
    })
    .served_too(),
    Case::source("name_is_empty", |peer| named(peer, b"")),
    Case::source("name_holds_nul", |peer| named(peer, b"a\0b")),
    Case::source("name_of_256_bytes", |peer| named(peer, &[b'x'; 256])),
    Case::source("name_of_a_mebibyte", |peer| named(peer, &vec![b'x'; 1 << 20])),
    Case::source("name_holds_a_slash", |peer| named(peer, b"a/b")),
    Case::source("name_of_a_directory_leads_up", |peer| {
        peer.say(&Message::NewFile(vec![
            directory(1, "../canary/new"),
            below(1, file(2, "inside", 9)),
        ]))
    })
    .served_too(),
    Case::source("name_of_a_link_leads_up", |peer| {
        peer.say(&Message::NewFile(vec![symlink(1, "../canary/new", "x")]))
    })
    .served_too(),
    Case::source("name_is_a_dot_below", |peer| {
        peer.say(&Message::NewFile(vec![directory(1, "d"), below(1, directory(2, "."))]))
    }),
    Case::source("name_of_a_file_is_a_dot", |peer| named(peer, b".")).exits(&[5, 6]),
    Case::source("name_is_a_dot_twice", |peer| {
        peer.say(&Message::NewFile(vec![directory(1, "."), directory(2, ".")]))
    })
    .exits(&[0, 5, 6]),
    Case::source("id_is_zero", |peer| peer.say(&Message::NewFile(vec![file(0, "a", 9)]))),
    Case::source("id_of_all_ones", |peer| {
        peer.say(&Message::NewFile(vec![file(u64::MAX, "a", 9), file(1, "b", 9)]))
    })
    .exits(&[5]),
    Case::source("parent_is_unknown", |peer| child_of(peer, 999)).exits(&[5, 6]),
    Case::source("parent_is_itself", |peer| child_of(peer, 5)).exits(&[5, 6]),
    Case::source("parent_is_a_file", |peer| {
        peer.announce(&[file(1, "a", 9)])?;
        child_of(peer, 1)
    })
    .exits(&[5, 6]),
    Case::source("parent_has_ended", |peer| {
        peer.deliver(&file(1, "a", 9), 0)?;
        child_of(peer, 1)
    })
    .exits(&[5, 6]),
    Case::source("id_in_use_gets_an_evil_name", live_ids_again).rounds(10).served_too(),
    Case::source("id_in_use_becomes_another_directory", |peer| {
        peer.announce(&[directory(1, "d"), below(1, file(2, "a", 300 << 10))])?;
        peer.say(&Message::NewFile(vec![directory(1, "../canary"), below(1, file(3, "b", 9))]))
    }),
    Case::source("id_is_used_again", |peer| {
        peer.deliver(&file(1, "a", 9), 0)?;
        peer.say(&Message::NewFile(vec![file(1, "b", 9)]))
    })
    .exits(&[0, 5]),
    Case::source("file_below_a_name_that_is_a_link", |peer| {
        peer.announce(&[symlink(1, "d", "../canary")])?;
        peer.expect_answer(1)?;
        let new = below(2, file(3, "new", 9));
        peer.say(&Message::NewFile(vec![directory(2, "d"), new.clone()]))?;
        peer.deliver_if_wanted(&new, 0)?;
        end_with_failures(peer)
    })
    // The directory takes the place of the link.
    .exits(&[0, 5, 6])
    .served_too(),
    Case::source("file_below_an_entry_that_is_a_link", |peer| {
        peer.announce(&[symlink(1, "d", "../canary")])?;
        peer.expect_answer(1)?;
        child_of(peer, 1)
    })
    .exits(&[5, 6])
    .served_too(),
    Case::source("directory_becomes_a_link", |peer| {
        peer.announce(&[directory(1, "d"), below(1, directory(2, "e"))])?;
        let new = below(1, file(4, "x", 9));
        peer.say(&Message::NewFile(vec![symlink(3, "d", "../canary"), new.clone()]))?;
        peer.deliver_if_wanted(&new, 0)
    })
    .exits(&[5, 6]),
    Case::source("file_over_a_link_is_not_written_through", |peer| {
        peer.announce(&[symlink(1, "s", "../canary/secret")])?;
        peer.expect_answer(1)?;
        peer.note_lie();
        peer.deliver(&file(2, "s", 9), 0)?;
        peer.finish()
    })
    .exits(&[0, 5, 6]),
    Case::source("name_of_the_live_journal", |peer| {
        let journal = World::journal_name(peer.job());
        over_our_own(peer, &journal)
    })
    .exits(&[5, 6])
    .served_too(),
    Case::source("name_of_the_next_journal", |peer| {
        let journal = World::journal_name(peer.job()) + ".new";
        over_our_own(peer, &journal)
    })
    .exits(&[5, 6]),
    Case::source("name_of_the_live_lock", |peer| {
        let lock = World::journal_name(peer.job()).replace("journal", "lock");
        over_our_own(peer, &lock)
    })
    .exits(&[0, 5, 6]),
    Case::source("name_of_a_live_part", |peer| {
        let large = file(1, "a", 300 << 10);
        let layout = peer.offer(&large)?;
        peer.send_data(&large, &layout, 0)?;
        let part = our_names(peer.world()).into_iter().find(|name| name.ends_with(".part"));
        over_our_own(peer, &part.unwrap_or_else(|| format!(".lads-{:032x}.part", 7)))
    })
    .exits(&[5, 6]),
    Case::source("roots_of_one_file_lead_up", |peer| one_root(peer, b"../canary/secret"))
        .at(crate::peer::Opening::Connected)
        .exits(&[0, 5]),
    Case::source("roots_of_one_file_hold_nul", |peer| one_root(peer, b"a\0b"))
        .at(crate::peer::Opening::Connected)
        .exits(&[0, 5]),
    Case::source("one_name_is_a_file_and_a_directory", |peer| {
        peer.announce(&[directory(1, "a"), below(1, directory(2, "b"))])?;
        peer.expect_answer(2)?;
        peer.say(&Message::NewFile(vec![file(3, "a", 9)]))
    })
    .exits(&[5, 6]),
];

fn named(peer: &mut Peer, name: &[u8]) -> Told {
    peer.say(&Message::NewFile(vec![file(1, name, 9)]))
}

/// A file in something that is no directory: it may be a breach, or fail.
fn child_of(peer: &mut Peer, parent: u64) -> Told {
    let child = below(parent, file(5, "a", 9));
    peer.say(&Message::NewFile(vec![child.clone()]))?;
    peer.deliver_if_wanted(&child, 0)?;
    end_with_failures(peer)
}

/// What failed at the sink is not told by this source: the sink has to know by itself.
fn end_with_failures(peer: &mut Peer) -> Told {
    peer.finish()
}

/// The threads of the sink are at work on links with good names when the same numbers get others.
fn live_ids_again(peer: &mut Peer) -> Told {
    const COUNT: u64 = 400;
    let links = |name: fn(u64) -> String| -> Vec<Entry> {
        (1..=COUNT).map(|id| symlink(id, name(id), "x")).collect()
    };
    peer.announce(&links(|id| format!("good{id}")))?;
    peer.say(&Message::NewFile(links(|id| format!("../canary/evil{id}"))))
}

fn over_our_own(peer: &mut Peer, name: &str) -> Told {
    let over = file(8, name, 9);
    peer.say(&Message::NewFile(vec![over.clone()]))?;
    peer.deliver_if_wanted(&over, 1)?;
    peer.finish()
}

/// Names of LADS' own that lie in the target now.
fn our_names(world: &World) -> Vec<String> {
    let names = std::fs::read_dir(world.target()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".lads-")).collect()
}

fn one_root(peer: &mut Peer, name: &[u8]) -> Told {
    let root = Root { name: name.to_vec(), is_directory: false, is_contents_only: false };
    peer.say(&Message::Roots(vec![root]))?;
    let only = file(1, "only", 9).with(|entry| entry.parent = EntryId::ROOT);
    peer.expect(|heard| {
        use crate::peer::Heard::Said;
        matches!(heard, Said(Message::Ready { .. })).then_some(())
    })?;
    peer.deliver(&only, 0)?;
    peer.finish()
}
