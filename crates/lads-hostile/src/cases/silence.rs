//! Peers that say nothing more, or nothing that counts, at each step (rsync #164 and #282, hangs;
//! CVE-2026-70464, a timeout that is armed too late; CVE-2026-70462, one that the peer disarms).

use crate::case::Case;
use crate::entries::file;
use crate::peer::{Opening, Peer, Told};
use crate::world::World;
use lads_core::entry::Entry;
use lads_core::message::Message;
use std::fs;
use std::time::Duration;

/// With these a peer that is alive and does nothing is left after three seconds.
const STALL: &[&str] = &["--stall-timeout", "3"];

/// So many files that their names do not fit any pipe.
pub(super) fn with_many_files(world: &World) {
    for number in 0..20_000 {
        fs::write(world.source().join(format!("{number:0>200}")), b"").unwrap();
    }
}

pub(super) const CASES: &[Case] = &[
    silent_sink("silence_after_hello_from_a_sink", Opening::Greeted),
    silent_sink("silence_after_job_from_a_sink", Opening::Employed),
    silent_sink("silence_after_streams_from_a_sink", Opening::Connected),
    silent_sink("silence_after_ready", Opening::Ready),
    silent_sink("silence_after_new_file_from_a_sink", Opening::Announced),
    silent_source("silence_after_hello_from_a_source", Opening::Greeted),
    silent_source("silence_after_job_from_a_source", Opening::Employed),
    silent_source("silence_after_streams_from_a_source", Opening::Connected),
    silent_source("silence_after_roots", Opening::Ready),
    Case::source("silence_after_new_file_from_a_source", |peer| {
        peer.offer(&file(1, "a", 300 << 10))?;
        peer.stay_silent()
    })
    .exits(&[5])
    .served_too(),
    Case::source("silence_after_all_data", |peer| {
        let file: Entry = file(1, "a", 300 << 10);
        let layout = peer.offer(&file)?;
        peer.send_data(&file, &layout, 0)?;
        peer.stay_silent()
    })
    .exits(&[5]),
    Case::source("channel_closed_after_roots", |peer| {
        peer.hang_up();
        peer.see_it_go()
    })
    .exits(&[5])
    .served_too(),
    Case::sink("channel_closed_after_new_file", |peer| {
        peer.hang_up();
        peer.see_it_go()
    })
    .exits(&[5])
    .served_too(),
    Case::source("heartbeats_for_ever_from_a_source", |peer| peer.stay_alive(true))
        .options(STALL)
        .exits(&[5]),
    Case::sink("heartbeats_for_ever_from_a_sink", |peer| peer.stay_alive(true))
        .options(STALL)
        .exits(&[5]),
    Case::sink("heartbeats_before_ready", |peer| peer.stay_alive(true))
        .at(Opening::Connected)
        .options(STALL)
        .exits(&[5]),
    Case::sink("heartbeats_instead_of_listen", |peer| peer.stay_alive(true))
        .at(Opening::Employed)
        .options(STALL)
        .exits(&[5]),
    Case::sink("progress_and_nothing_else", |peer| {
        let progress = Message::Progress(lads_core::message::Counters::default());
        loop {
            peer.say(&progress)?;
            std::thread::sleep(Duration::from_millis(100));
        }
    })
    .options(STALL)
    .exits(&[5]),
    Case::sink("alive_but_does_not_listen", |peer| peer.stay_alive(false))
        .at(Opening::Ready)
        .setup(with_many_files)
        .options(STALL)
        .exits(&[5]),
    Case::source("alive_but_does_not_listen_from_a_source", deaf_source).options(STALL).exits(&[5]),
];

const fn silent_sink(name: &'static str, opening: Opening) -> Case {
    Case::sink(name, Peer::stay_silent).at(opening).exits(&[5])
}

const fn silent_source(name: &'static str, opening: Opening) -> Case {
    Case::source(name, Peer::stay_silent).at(opening).exits(&[5])
}

/// Announces files for ever, and hears none of the answers.
fn deaf_source(peer: &mut Peer) -> Told {
    let name = |id: u64| format!("{id:0>200}");
    for id in 1..20_000 {
        peer.say(&Message::NewFile(vec![file(id, name(id), 0)]))?;
    }
    peer.stay_alive(false)
}
