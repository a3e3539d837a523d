//! Bytes that are no message: lengths, counts and numbers that lie (rsync CVE-2024-12084, a length
//! from the peer larger than the buffer; CVE-2026-43618, arithmetic).

use crate::case::Case;
use crate::entries::file;
use crate::peer::{Peer, Told};
use crate::raw::{Raw, kind};
use lads_core::message::{Message, encode};

pub(super) const CASES: &[Case] = &[
    Case::source("message_of_no_bytes", |peer| peer.say_raw(&[0; 4])),
    Case::source("message_of_unknown_type", |peer| peer.say_raw(&Raw::message(200).framed()))
        .served_too(),
    Case::source("message_of_type_zero", |peer| peer.say_raw(&Raw::message(0).framed())),
    Case::source("message_of_16_mib_of_zeros", |peer| {
        peer.say_raw(&Raw::message(0).bytes(&vec![0; (16 << 20) - 1]).framed())
    })
    .served_too(),
    Case::source("message_longer_than_the_longest", |peer| {
        peer.say_raw(&((16u32 << 20) + 1).to_le_bytes())
    }),
    Case::source("message_of_4_gib", |peer| peer.say_raw(&u32::MAX.to_le_bytes())).served_too(),
    Case::source("count_of_2_to_63", |peer| {
        peer.say_raw(&Raw::message(kind::NEW_FILE).number(1 << 63).framed())
    }),
    Case::source("count_of_all_bytes_that_follow", |peer| {
        // The most elements that a count may claim: as many as there are bytes left.
        let bytes = vec![0xff; (16 << 20) - 16];
        let raw = Raw::message(kind::NEW_FILE).number(bytes.len() as u64).bytes(&bytes);
        peer.say_raw(&raw.framed())
    }),
    Case::source("list_of_empty_things", |peer| {
        // Each of 16 million issues of one zero byte would take far more in memory.
        let raw = Raw::message(15).number((16 << 20) - 16).bytes(&vec![0; (16 << 20) - 16]);
        peer.say_raw(&raw.framed())
    })
    .exits(&[1, 3, 5, 6]),
    Case::source("bytes_longer_than_the_message", |peer| {
        peer.say_raw(&Raw::message(kind::NOTICE).number(u64::MAX).framed())
    }),
    Case::source("number_of_eleven_bytes", |peer| {
        let raw = Raw::message(kind::NEW_FILE).bytes(&[0x80; 10]).bytes(&[1]);
        peer.say_raw(&raw.framed())
    }),
    Case::source("number_beyond_64_bits", |peer| {
        peer.say_raw(&Raw::message(kind::NEW_FILE).bytes(&[0xff; 9]).bytes(&[2]).framed())
    }),
    Case::source("text_that_is_no_text", |peer| {
        peer.say_raw(&Raw::message(kind::NOTICE).counted(&[0xff, 0xfe]).framed())
    }),
    Case::source("choice_that_there_is_not", |peer| {
        let raw = Raw::message(kind::NEW_FILE).number(1).number(1).number(0).counted(b"a");
        peer.say_raw(&raw.number(99).framed())
    }),
    Case::source("yes_or_no_that_is_two", |peer| {
        peer.say_raw(&Raw::message(4).number(1).counted(b"a").bytes(&[2, 2]).framed())
    }),
    Case::source("message_cut_short", |peer| {
        let bytes = announcement();
        peer.say_raw(&bytes[..bytes.len() / 2])?;
        peer.hang_up();
        Ok(())
    })
    .exits(&[5]),
    Case::source("half_a_message_then_silence", |peer| {
        let bytes = announcement();
        peer.say_raw(&bytes[..bytes.len() / 2])?;
        peer.stay_silent()
    })
    .exits(&[5])
    .served_too(),
    Case::sink("message_of_unknown_type_from_a_sink", |peer| {
        peer.say_raw(&Raw::message(99).framed())
    }),
    Case::sink("count_of_2_to_63_from_a_sink", |peer| {
        peer.say_raw(&Raw::message(kind::FILE_ID).number(1 << 63).framed())
    }),
    Case::sink("message_of_4_gib_from_a_sink", |peer| peer.say_raw(&u32::MAX.to_le_bytes())),
    Case::sink("half_a_message_then_silence_from_a_sink", half_an_answer).exits(&[5]),
];

fn announcement() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Message::NewFile(vec![file(1, "a", 9)]), &mut bytes);
    bytes
}

fn half_an_answer(peer: &mut Peer) -> Told {
    peer.say_raw(&[100, 0, 0, 0, kind::FILE_ID])?;
    peer.stay_silent()
}
