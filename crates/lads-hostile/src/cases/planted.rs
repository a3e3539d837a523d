//! What somebody else who may write to the target directory has put there (rsync CVE-2024-12747,
//! CVE-2026-29518 and -43619: names that are swapped under a privileged receiver).

use crate::case::Case;
use crate::entries::{below, directory, file};
use crate::peer::{Opening, Peer, Told, wrong};
use lads_core::message::{Answer, Message};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

/// Somebody else: the owner of what is planted.
const SOMEBODY: u32 = 65_533;

pub(super) const CASES: &[Case] = &[
    planted("journal_is_a_fifo").plants(|_, journal| fifo(journal)),
    planted("journal_is_a_link")
        .plants(|world, journal| symlink(world.canary().join("secret"), journal).unwrap()),
    planted("journal_is_a_hard_link")
        .plants(|world, journal| fs::hard_link(world.victim(), journal).unwrap())
        .for_root(),
    planted("journal_is_a_directory").plants(|_, journal| fs::create_dir(journal).unwrap()),
    planted("journal_of_5_gb_of_somebody_else")
        .plants(|_, journal| {
            let planted = fs::File::create(journal).unwrap();
            planted.set_len(5 << 30).unwrap();
            chown(journal, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        })
        .for_root(),
    planted("journal_of_5_gb_of_our_own").plants(|_, journal| {
        fs::File::create(journal).unwrap().set_len(5 << 30).unwrap();
    }),
    planted("next_journal_is_a_link").plants(|world, journal| {
        let next = PathBuf::from(format!("{}.new", journal.display()));
        symlink(world.canary().join("secret"), next).unwrap();
    }),
    planted("name_is_a_link_out")
        .plants(|world, _| symlink("../canary/secret", world.target().join("a")).unwrap()),
    planted("name_is_a_fifo").plants(|world, _| fifo(&world.target().join("a"))),
    planted("name_is_a_hard_link_out")
        .plants(|world, _| {
            fs::hard_link(world.victim(), world.target().join("a")).unwrap();
        })
        .for_root(),
    Case::source("directory_is_a_link_out", |peer| {
        let new = below(1, file(2, "new", 9));
        peer.say(&Message::NewFile(vec![directory(1, "d"), new.clone()]))?;
        peer.deliver_if_wanted(&new, 0)?;
        peer.finish()
    })
    .plants(|world, _| symlink("../canary", world.target().join("d")).unwrap())
    .exits(&[5, 6]),
    Case::source("directory_is_swapped_for_a_link", swapped).exits(&[0, 5, 6]).rounds(3),
];

/// The transfer goes on without what is planted, or says that it cannot, and why.
const fn planted(name: &'static str) -> Case {
    Case::source(name, arrives).at(Opening::Connected).exits(&[0, 6]).noticed().arrives(ARRIVES)
}

/// What arrives if anything does.
const ARRIVES: &[(&str, usize)] = &[("a", 9), ("b", 200 << 10)];

/// Moves two files, one of which needs the journal, whatever lies there.
fn arrives(peer: &mut Peer) -> Told {
    peer.note_lie();
    peer.make_ready()?;
    peer.deliver(&file(1, "a", 9), 0)?;
    peer.deliver(&file(2, "b", 200 << 10), 1)?;
    peer.finish()
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// While files are made in a directory, its name leads elsewhere again and again.
fn swapped(peer: &mut Peer) -> Told {
    const FILES: u64 = 200;
    let (d, aside) = (peer.world().target().join("d"), peer.world().target().join("e"));
    peer.announce(&[directory(1, "d")])?;
    let Answer::Made = peer.expect_answer(1)? else { return wrong("the directory is not made") };
    peer.note_lie();
    for id in 2..FILES {
        let inside = below(1, file(id, format!("x{id}"), 9));
        fs::rename(&d, &aside).unwrap();
        symlink("../canary", &d).unwrap();
        peer.say(&Message::NewFile(vec![inside.clone()]))?;
        if let Answer::Want { layout, .. } = peer.expect_answer(id)? {
            peer.send_data(&inside, &layout, 0)?;
            peer.expect_ending(id)?;
        }
        fs::remove_file(&d).unwrap();
        fs::rename(&aside, &d).unwrap();
    }
    peer.say(&Message::FileDone(vec![(
        lads_core::units::EntryId(1),
        lads_core::message::Ending::Complete,
    )]))?;
    peer.expect_ending(1)?;
    peer.finish()
}
