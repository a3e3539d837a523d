//! All lies of a server of remote files. A case is a line in the table.

use super::server::{FILE_BYTES, Server, hello, read_frame};
use super::{Case, End};
use crate::frame::Frame;
use crate::peer::Told;
use lads_core::issue::Operation;
use lads_core::remote::message::{
    Call, Failure, Outcome, Request, Ticket, ToClient, VERSION, WriteNumber, Written,
};

/// All cases.
#[must_use]
pub fn all() -> Vec<Case> {
    CASES.to_vec()
}

const fn refused(name: &'static str, lie: fn(&mut Server) -> Told) -> Case {
    Case { name, lie, end: End::Refuses, prints: "" }
}

const fn lost(name: &'static str, lie: fn(&mut Server) -> Told) -> Case {
    Case { name, lie, end: End::Loses, prints: "" }
}

const fn harmless(name: &'static str, lie: fn(&mut Server) -> Told) -> Case {
    Case { name, lie, end: End::Continues, prints: "" }
}

const fn printing(case: Case, prints: &'static str) -> Case {
    Case { prints, ..case }
}

const CASES: &[Case] = &[
    harmless("files_honest_server", |server| {
        server.greet()?;
        server.note_lie();
        Ok(())
    }),
    // The handshake and the greeting.
    lost("files_connection_closed_in_the_handshake", |server| {
        server.hang_up();
        Ok(())
    }),
    lost("files_handshake_answered_with_garbage", |server| server.put_below(&[0xff; 64])),
    lost("files_handshake_answered_in_clear", |server| server.put_below(&[1])),
    lost("files_silence_in_the_handshake", silent),
    printing(
        refused("files_handshake_with_another_token", Server::admit_with_another_token),
        "has another token: copy the token file",
    ),
    lost("files_silence_after_the_handshake", |server| {
        server.admit()?;
        silent(server)
    }),
    lost("files_silence_after_the_greeting", |server| {
        server.greet()?;
        silent(server)
    }),
    lost("files_connection_closed_after_the_greeting", |server| {
        server.greet()?;
        server.hang_up();
        Ok(())
    }),
    lost("files_heartbeats_and_nothing_else", |server| {
        server.greet()?;
        server.stay_alive()
    }),
    refused("files_greeting_of_another_version", |server| {
        server.admit()?;
        server.say(&ToClient::Hello { version: VERSION + 1, name: String::new() })
    }),
    refused("files_greeting_that_is_missing", |server| {
        server.admit()?;
        server.say(&ToClient::Grant(4))
    }),
    refused("files_greeting_twice", |server| {
        server.greet()?;
        server.say(&hello())
    }),
    refused("files_greeting_of_a_mebibyte", |server| {
        server.admit()?;
        server.say(&ToClient::Hello { version: VERSION, name: "x".repeat((1 << 20) - 64) })
    }),
    // Connections that break.
    harmless("files_break_and_a_new_connection", |server| {
        let request = ticket_until(server, is_size)?;
        resumed(server, request.number, 0)
    }),
    refused("files_ticket_twice", |server| {
        server.greet()?;
        server.say(&TICKET)?;
        server.say(&TICKET)
    }),
    refused("files_resumed_without_a_break", |server| {
        server.greet()?;
        server.say(&ToClient::Resumed { requests: 0, frames: 0 })
    }),
    refused("files_resumed_with_requests_that_were_not_sent", |server| {
        ticket_until(server, is_size)?;
        resumed(server, u64::MAX, 0)
    }),
    refused("files_resumed_with_frames_that_were_not_sent", |server| {
        ticket_until(server, is_size)?;
        resumed(server, 0, u64::MAX)
    }),
    refused("files_new_connection_without_resumed", |server| {
        ticket_until(server, is_size)?;
        server.break_off()?;
        server.say(&hello())?;
        server.say(&ToClient::Grant(4))
    }),
    harmless("files_break_and_a_server_that_was_restarted", |server| {
        ticket_until(server, is_size)?;
        server.break_off()?;
        server.say(&hello())?;
        server.say(&RESTARTED)?;
        server.say(&ToClient::Grant(4))
    }),
    refused("files_restarted_without_a_break", |server| {
        server.greet()?;
        server.say(&RESTARTED)
    }),
    refused("files_restarted_twice", |server| {
        ticket_until(server, is_size)?;
        server.break_off()?;
        server.say(&hello())?;
        server.say(&RESTARTED)?;
        server.say(&RESTARTED)
    }),
    refused("files_restarted_after_resumed", |server| {
        let request = ticket_until(server, is_size)?;
        resumed(server, request.number, 0)?;
        server.say(&RESTARTED)
    }),
    refused("files_resumed_after_restarted", |server| {
        ticket_until(server, is_size)?;
        server.break_off()?;
        server.say(&hello())?;
        server.say(&RESTARTED)?;
        server.say(&ToClient::Resumed { requests: 0, frames: 0 })
    }),
    refused("files_restarted_in_place_of_a_greeting", |server| {
        ticket_until(server, is_size)?;
        server.break_off()?;
        server.say(&RESTARTED)
    }),
    harmless("files_restarted_with_numbers_of_nothing", |server| {
        ticket_until(server, is_size)?;
        server.break_off()?;
        server.say(&hello())?;
        let numbers = || (0..100).chain((0..10_000).map(|it| u64::MAX - it % 1000)).collect();
        server.say(&ToClient::Restarted { written: numbers(), done: numbers() })?;
        server.say(&ToClient::Grant(4))
    }),
    lost("files_connections_that_are_restarted_and_break", |server| {
        ticket_until(server, is_size)?;
        loop {
            server.break_off()?;
            server.say(&hello())?;
            server.say(&RESTARTED)?;
        }
    }),
    lost("files_connections_that_break_at_once", |server| {
        ticket_until(server, is_size)?;
        loop {
            server.break_off()?;
        }
    }),
    lost("files_connections_that_are_resumed_and_break", |server| {
        ticket_until(server, is_size)?;
        loop {
            resumed(server, 0, 0)?;
        }
    }),
    // Bytes that are no record, or no message.
    lost("files_record_of_4_gib", |server| {
        server.greet()?;
        server.put_below(&[0xff; 64])
    }),
    printing(
        lost("files_record_of_somebody_else", |server| {
            server.greet()?;
            server.put_below(&[&[8, 0, 0, 0][..], &[0xa5; 24]].concat())
        }),
        "changed on its way",
    ),
    lost("files_bytes_that_are_no_packet", |server| {
        server.greet()?;
        server.put_raw(b"HTTP/1.1 200 OK\r\n\r\n")
    }),
    lost("files_packet_of_4_gib", |server| {
        server.greet()?;
        server.put_raw(b"LP\0\0\xff\xff\xff\xff")
    }),
    lost("files_packet_of_another_stream", |server| {
        server.greet()?;
        server.put_raw(b"LP\x09\0\x01\0\0\0x")
    }),
    refused("files_message_of_4_gib", |server| {
        server.greet()?;
        server.say_raw(&[0xff; 4])
    }),
    refused("files_message_of_no_bytes", |server| {
        server.greet()?;
        server.say_raw(&[0; 4])
    }),
    refused("files_message_of_unknown_type", |server| {
        server.greet()?;
        server.say_raw(&[2, 0, 0, 0, 99, 0])
    }),
    refused("files_list_of_2_to_63", |server| {
        server.greet()?;
        let count = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1];
        server.say_raw(&[&[11, 0, 0, 0, 3][..], &count].concat())
    }),
    refused("files_text_that_is_no_text", |server| {
        server.greet()?;
        server.say_raw(&[4, 0, 0, 0, 6, 2, 0xff, 0xfe])
    }),
    lost("files_half_a_message", |server| {
        server.greet()?;
        server.say_raw(&[9, 0, 0, 0, 6])?;
        server.hang_up();
        Ok(())
    }),
    // Answers.
    refused("files_answer_to_no_request", |server| {
        server.greet()?;
        server.say(&ToClient::Reply { number: 1 << 40, outcome: Outcome::Done })
    }),
    refused("files_answer_twice", |server| {
        let request = server.greet_until(|call| matches!(call, Call::Flush { .. }))?;
        server.answer(&request)?;
        server.reply(&request, Outcome::Done)
    }),
    refused("files_number_for_an_open", |server| number_for(server, is_open)),
    refused("files_number_for_a_sync", |server| {
        number_for(server, |call| matches!(call, Call::Sync { .. }))
    }),
    refused("files_no_number_for_a_size", |server| {
        let request = server.greet_until(is_size)?;
        server.reply(&request, Outcome::Done)
    }),
    refused("files_no_number_for_a_read", |server| {
        let request = server.greet_until(is_read)?;
        server.reply(&request, Outcome::Done)
    }),
    refused("files_size_of_2_to_63", |server| impossible(server, is_size, 1 << 63)),
    refused("files_size_of_all_ones", |server| impossible(server, is_size, u64::MAX)),
    refused("files_end_of_all_ones", |server| {
        impossible(server, |call| matches!(call, Call::End { .. }), u64::MAX)
    }),
    refused("files_shared_pointer_of_all_ones", |server| {
        impossible(server, |call| matches!(call, Call::AddShared { .. }), u64::MAX)
    }),
    refused("files_error_of_number_zero", |server| fails(server, 0)),
    refused("files_error_below_zero", |server| fails(server, i32::MIN)),
    refused("files_error_that_does_not_exist", |server| fails(server, i32::MAX)),
    // Reads.
    refused("files_more_bytes_told_than_asked_for", |server| {
        let request = server.greet_until(is_read)?;
        server.reply(&request, Outcome::Number(u64::MAX))
    }),
    refused("files_fewer_bytes_than_told", |server| {
        let request = server.greet_until(is_read)?;
        let (position, length) = asked(&request);
        server.send(&read_frame(request.number, position, length - 1))?;
        server.reply(&request, Outcome::Number(length as u64))
    }),
    refused("files_bytes_after_an_end", |server| {
        let request = server.greet_until(is_read)?;
        let (position, length) = asked(&request);
        server.reply(&request, Outcome::Number(0))?;
        server.send(&read_frame(request.number, position, length))
    }),
    refused("files_bytes_before_an_error", |server| {
        let request = server.greet_until(is_read)?;
        let (position, length) = asked(&request);
        server.send(&read_frame(request.number, position, length))?;
        server.reply(&request, Outcome::Failed(Failure { operation: Operation::Read, errno: 5 }))
    }),
    refused("files_bytes_that_were_not_asked_for", |server| {
        server.greet_until(is_read)?;
        server.send(&read_frame(1 << 40, 0, 10))
    }),
    refused("files_bytes_twice", |server| {
        let request = server.greet_until(is_read)?;
        let (position, length) = asked(&request);
        server.send(&read_frame(request.number, position, length))?;
        server.send(&read_frame(request.number, position, length))
    }),
    refused("files_bytes_of_another_place", |server| {
        let request = server.greet_until(is_read)?;
        let (position, length) = asked(&request);
        server.send(&read_frame(request.number, position + 1, length))
    }),
    refused("files_bytes_beyond_those_asked_for", |server| {
        let request = server.greet_until(is_read)?;
        let (position, length) = asked(&request);
        server.send(&read_frame(request.number, position, length + 1))
    }),
    lost("files_bytes_of_4_gib", |server| {
        with_frame(server, |frame| {
            frame.rows[0].length = u32::MAX;
            frame.payload_bytes = Some(u32::MAX);
        })
    }),
    refused("files_bytes_that_are_damaged", |server| {
        with_frame(server, |frame| frame.payload[0] ^= 1)
    }),
    lost("files_frame_of_no_rows", |server| with_frame(server, |frame| frame.rows.clear())),
    lost("files_frame_of_two_rows", |server| {
        with_frame(server, |frame| {
            let mut second = frame.rows[0];
            second.offset += u64::from(second.length);
            frame.rows.push(second);
            frame.payload.extend(frame.payload.clone());
        })
    }),
    lost("files_frame_of_sums_only", |server| {
        with_frame(server, |frame| *frame = frame.clone().only_sums())
    }),
    lost("files_frame_with_a_damaged_head", |server| {
        with_frame(server, |frame| frame.header_crc = Some(1))
    }),
    lost("files_half_a_frame_then_nothing", |server| {
        let request = server.greet_until(is_read)?;
        let (position, length) = asked(&request);
        let bytes = read_frame(request.number, position, length).bytes(0);
        server.send_raw(&bytes[..bytes.len() - 1])?;
        server.stay_alive()
    }),
    harmless("files_file_that_is_shorter_at_each_read", |server| {
        server.greet()?;
        let mut length = FILE_BYTES;
        loop {
            let request = server.until(is_read)?;
            let (position, wanted) = asked(&request);
            length -= 1000;
            let count = length.saturating_sub(position).min(wanted as u64);
            if count > 0 {
                server.send(&read_frame(
                    request.number,
                    position,
                    usize::try_from(count).unwrap(),
                ))?;
            }
            server.reply(&request, Outcome::Number(count))?;
        }
    }),
    // Writes.
    refused("files_frame_written_that_was_not_sent", |server| {
        server.greet()?;
        server.say(&written(1 << 40, None))
    }),
    refused("files_frame_written_twice", |server| {
        server.greet()?;
        let frame = server.until_frame()?;
        server.say(&written(frame, None))?;
        server.say(&written(frame, None))
    }),
    refused("files_frame_written_twice_in_one_message", |server| {
        server.greet()?;
        let frame = server.until_frame()?;
        server.say(&ToClient::Written(vec![Written { frame, failure: None }; 2]))
    }),
    refused("files_frame_with_an_error_that_does_not_exist", |server| {
        server.greet()?;
        let frame = server.until_frame()?;
        server.say(&written(frame, Some(Failure { operation: Operation::Write, errno: -1 })))
    }),
    refused("files_frame_refused_that_was_not_sent", |server| {
        server.greet()?;
        server.say(&ToClient::Again(1 << 40))
    }),
    refused("files_frame_refused_that_was_written", |server| {
        server.greet()?;
        let frame = server.until_frame()?;
        server.say(&written(frame, None))?;
        server.say(&ToClient::Again(frame))
    }),
    harmless("files_recalls_of_writes_that_do_not_exist", |server| {
        server.greet()?;
        (0..10_000).try_for_each(|write| server.say(&ToClient::Recall(WriteNumber(write))))
    }),
    refused("files_size_that_is_lost", |server| {
        let request = server.greet_until(is_size)?;
        server.reply(&request, Outcome::Lost)
    }),
    lost("files_no_room_for_any_frame", |server| {
        server.admit()?;
        server.note_lie();
        server.say(&hello())?;
        server.until_frame().map(drop)
    }),
    harmless("files_room_for_all_frames_for_ever", |server| {
        server.greet()?;
        (0..10_000).try_for_each(|_| server.say(&ToClient::Grant(u32::MAX)))
    }),
    // Texts and floods.
    printing(
        refused("files_reason_with_commands_of_a_terminal", |server| {
            server.greet()?;
            let text = "\x1b[2J\x1b]0;owned\x07\u{202e}no\r\n\x08\u{9b}31m".to_owned();
            server.say(&ToClient::Fatal(text))
        }),
        "\\u{1b}[2J\\u{1b}]0;owned",
    ),
    refused("files_reason_of_a_mebibyte", |server| {
        server.greet()?;
        server.say(&ToClient::Fatal("x".repeat((1 << 20) - 64)))
    }),
    harmless("files_heartbeats_by_the_million", |server| {
        server.greet()?;
        (0..200_000).try_for_each(|_| server.say(&ToClient::Heartbeat))
    }),
    refused("files_answers_by_the_million", |server| {
        server.greet()?;
        let reply = |number| ToClient::Reply { number, outcome: Outcome::Number(5) };
        (1 << 20..2 << 20).try_for_each(|number| server.say(&reply(number)))
    }),
];

const TICKET: ToClient = ToClient::Ticket(Ticket([7; 16]));

const RESTARTED: ToClient = ToClient::Restarted { written: Vec::new(), done: Vec::new() };

/// Gives the client a ticket, and answers until a request for which this is true.
fn ticket_until(server: &mut Server, is_wanted: fn(&Call) -> bool) -> Told<Request> {
    server.greet()?;
    server.say(&TICKET)?;
    server.until(is_wanted)
}

/// Breaks the connection, and says on the next one that this is there.
fn resumed(server: &mut Server, requests: u64, frames: u64) -> Told {
    server.break_off()?;
    server.say(&hello())?;
    server.say(&ToClient::Resumed { requests, frames })
}

fn is_open(call: &Call) -> bool {
    matches!(call, Call::Open { .. })
}

fn is_read(call: &Call) -> bool {
    matches!(call, Call::Read { .. })
}

fn is_size(call: &Call) -> bool {
    matches!(call, Call::Size { .. })
}

/// Returns the position and the number of bytes of a read.
fn asked(request: &Request) -> (u64, usize) {
    let Call::Read { position, length, .. } = &request.call else { unreachable!("it is a read") };
    (*position, *length as usize)
}

fn written(frame: u64, failure: Option<Failure>) -> ToClient {
    ToClient::Written(vec![Written { frame, failure }])
}

fn silent(server: &mut Server) -> Told {
    server.stop_heartbeats();
    server.stay_alive()
}

fn number_for(server: &mut Server, is_it: fn(&Call) -> bool) -> Told {
    let request = server.greet_until(is_it)?;
    server.reply(&request, Outcome::Number(5))
}

fn impossible(server: &mut Server, is_it: fn(&Call) -> bool, number: u64) -> Told {
    let request = server.greet_until(is_it)?;
    server.reply(&request, Outcome::Number(number))
}

fn fails(server: &mut Server, errno: i32) -> Told {
    let request = server.greet_until(is_size)?;
    server.reply(&request, Outcome::Failed(Failure { operation: Operation::Examine, errno }))
}

/// Answers a read with a frame in which something is changed.
fn with_frame(server: &mut Server, change: fn(&mut Frame)) -> Told {
    let request = server.greet_until(is_read)?;
    let (position, length) = asked(&request);
    server.send(&read_frame(request.number, position, length).with(change))?;
    server.reply(&request, Outcome::Number(length as u64))
}
