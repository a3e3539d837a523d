//! No lies: without these, all others could fail for a fault of the peer.

use crate::case::Case;
use crate::entries::{below, directory, file};
use crate::peer::{Peer, Told};
use lads_core::message::{Ending, Message};
use lads_core::units::EntryId;

pub(super) const CASES: &[Case] = &[
    Case::source("honest_source", source)
        .exits(&[0])
        .arrives(&[("one", 300 << 10), ("two", 10), ("dir/three", 5000)])
        .served_too(),
    Case::source("honest_odd_names", odd_names).exits(&[0]).arrives(&[(" ", 9), ("-rf", 9)]),
    Case::sink("honest_sink", sink).exits(&[0]).served_too(),
];

fn source(peer: &mut Peer) -> Told {
    peer.note_lie();
    peer.deliver(&file(1, "one", 300 << 10), 0)?;
    peer.deliver(&file(2, "two", 10), 1)?;
    peer.announce(&[directory(3, "dir")])?;
    peer.deliver(&below(3, file(4, "three", 5000)), 0)?;
    peer.speak(&Message::FileDone(vec![(EntryId(3), Ending::Complete)]))?;
    peer.expect_complete(3)?;
    peer.finish()
}

/// Names that are odd and may be so.
fn odd_names(peer: &mut Peer) -> Told {
    peer.note_lie();
    let names: [&[u8]; 6] = [b" ", b"-rf", b"...", b"\xff\xfe", b"a\nb", &[b'x'; 255]];
    for (id, name) in (1..).zip(names) {
        peer.deliver(&file(id, name, 9), 0)?;
    }
    peer.finish()
}

fn sink(peer: &mut Peer) -> Told {
    peer.note_lie();
    peer.sink_honestly()
}
