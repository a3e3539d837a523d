//! The loss of the connection, what leads to it, and what is kept.

use super::*;
use crate::limits::CLIENT_ANNOUNCED_MAX;
use crate::remote::message::LockKind;
use std::collections::BTreeSet;

/// One for each kind of wait: another kind does not compile.
fn kind_of(wait: &Wait) -> u32 {
    match wait {
        Wait::Connected => 0,
        Wait::Sent(_) => 1,
        Wait::Closed(_) => 2,
        Wait::Deferred(_) => 3,
        Wait::RoomForFile => 4,
        Wait::RoomForView => 5,
        Wait::RoomForRead => 6,
        Wait::Coming(_) => 7,
        Wait::Reply(_) => 8,
        Wait::Finished => 9,
        Wait::FewUnsent => 10,
        Wait::Written(_) => 11,
    }
}

#[test]
fn the_loss_of_the_connection_ends_every_wait() {
    let mut program = Program::unconnected(None);
    let Program { client, tail, now } = &mut program;
    let (file, path) = (tail.target().file, b"new");
    let mut read = client.begin_read(tail, 0..9 * CHUNK, *now).unwrap();
    assert!(matches!(client.step(&mut read), Step::Wait(_)));
    let asked = client.ask(&After::Nothing, Call::Size { file });
    for _ in 0..=CLIENT_ANNOUNCED_MAX {
        tail.begin(0, 0, BUFFER);
        tail.advance(1);
        tail.seal(client, *now);
    }
    let count = tail.frames();
    client.close_later(tail.target(), count);
    let mut open = |number| client.open(FileNumber(number), b"more", MODE, [0; 16], true);
    assert!((1000..9000).any(|number| open(number).is_none()));
    while !client.is_waiting(&Wait::RoomForView) {
        client.begin_view((file, path), (0, &[], View::whole()), Prefetch::Off);
    }
    let waits = [
        Wait::Connected,
        Wait::Sent(After::Frames { file, count }),
        Wait::Sent(After::Bytes { file, reach: 0..1, count }),
        Wait::Closed(path.to_vec()),
        // Requests: to open the file, to set its view, to read.
        Wait::Deferred(1),
        Wait::RoomForFile,
        Wait::RoomForView,
        Wait::RoomForRead,
        Wait::Coming(2),
        Wait::Reply(asked),
        Wait::Finished,
        Wait::FewUnsent,
        client.until_written(),
    ];
    assert_eq!(waits.iter().map(kind_of).collect::<BTreeSet<_>>(), (0..12).collect());
    assert!(!client.is_waiting(&Wait::Sent(After::Nothing)));
    waits.iter().for_each(|wait| assert!(client.is_waiting(wait), "{wait:?}"));
    program.lose();
    waits.iter().for_each(|wait| assert!(!program.client.is_waiting(wait), "{wait:?}"));
    let ended = program.client.step(&mut read);
    assert!(matches!(ended, Step::End(Err(CallError::Lost))), "{ended:?}");
    assert!(program.calls().is_empty() && program.send().is_empty());
}

#[test]
fn a_silent_server_is_lost() {
    let mut program = Program::new(None);
    assert_eq!(program.look_for(60, false), None);
    let trouble = program.look_for(1, false).unwrap();
    assert_eq!(trouble, Trouble::Broken("it sent nothing for 60 s".to_owned()));
    assert!(!program.client.on_broken("", program.now), "it has given no ticket");
}

#[test]
fn a_server_that_makes_no_progress_is_lost_if_it_owes_something() {
    let mut program = Program::new(None);
    assert_eq!(program.look_for(700, true), None, "it owes nothing");
    program.put(0);
    let trouble = program.look_for(601, true).unwrap();
    let why = "it made no progress for 600 s and sent only heartbeats";
    assert_eq!(trouble, Trouble::Lost(why.to_owned()));
    for owe in [
        |it: &mut Program| {
            it.client.ask(&After::Nothing, Call::Delete { path: vec![b'a'] });
        },
        |it: &mut Program| {
            it.deliver(ToClient::Grant(1));
            it.put(0);
            assert_eq!(it.send(), [0]);
        },
    ] {
        let mut program = Program::new(None);
        owe(&mut program);
        assert_eq!(program.look_for(600, true), None);
        assert!(program.look_for(1, true).is_some());
    }
}

#[test]
fn a_lock_that_others_hold_is_no_lack_of_progress() {
    let mut program = Program::new(None);
    let call = Call::Lock { file: program.file(), kind: LockKind::Exclusive };
    program.client.ask(&After::Nothing, call);
    assert_eq!(program.look_for(700, true), None);
}

#[test]
fn a_process_that_was_stopped_does_not_take_its_own_silence_for_the_servers() {
    let mut program = Program::new(None);
    program.put(0);
    assert_eq!(program.look_for(30, false), None);
    program.now += 1000 * SECOND;
    assert_eq!(program.look_for(30, false), None);
    assert!(program.look_for(2, false).is_some());
}

#[test]
fn heartbeats_are_sent_while_a_process_uses_another_server_and_do_not_pile_up() {
    let mut program = Program::new(None);
    assert_eq!(program.look_for(3, true), None);
    assert!(!program.client.has_messages());
    program.client.begin_presence();
    assert_eq!(program.look_for(3, true), None);
    let [ToServer::Heartbeat { .. }] = *program.client.next_messages() else { panic!("none") };
    program.client.end_presence();
    assert_eq!(program.look_for(3, true), None);
    assert!(!program.client.has_messages());
}

#[test]
fn everything_is_kept_once_after_the_loss_of_the_connection() {
    let mut program = Program::new(Some(1 << 10));
    program.deliver(ToClient::Grant(1));
    (0..3).for_each(|index| program.put(100 * index));
    assert_eq!(program.send(), [0]);
    program.lose();
    assert!(program.client.is_keeping());
    let mut kept = Vec::new();
    while let Some(staging) = program.client.start_keeping() {
        kept.push(staging.id);
        program.client.on_staged(&[staging], Some(MS), Why::Loss, program.now);
    }
    assert_eq!((kept, program.client.forget_in_memory()), (vec![0, 1, 2], 0));
    assert_eq!(program.client.unwritten_bytes(), 3 * u64::from(BUFFER));
    program.client.end_keeping(0, "; kept");
    assert_eq!(program.client.loss().unwrap().text, "cut; kept");
    assert!(!program.client.is_keeping() && !program.client.is_written());
    assert_eq!(program.client.finish(), Err(CallError::Lost));
}

#[test]
fn what_finds_no_room_on_the_local_disk_is_lost() {
    let mut program = Program::new(Some(u64::from(BUFFER)));
    (0..3).for_each(|index| program.put(100 * index));
    program.lose();
    let staging = program.client.start_keeping().unwrap();
    program.client.on_staged(&[staging], Some(MS), Why::Loss, program.now);
    assert!(program.client.start_keeping().is_none());
    assert_eq!(program.client.forget_in_memory(), 2 * u64::from(BUFFER));
    program.client.end_keeping(2 * u64::from(BUFFER), "");
    assert!(program.client.is_left());
}

/// Another thread than the one that receives messages may report the loss.
#[test]
fn messages_after_the_loss_of_the_connection_change_nothing() {
    let mut program = Program::new(Some(0));
    program.deliver(ToClient::Grant(1));
    program.put(0);
    assert_eq!(program.send(), [0]);
    program.lose();
    assert_eq!(program.client.forget_in_memory(), u64::from(BUFFER));
    program.deliver(ToClient::Again(0));
    program.deliver(ToClient::Fatal("full".to_owned()));
    program.client.end_keeping(u64::from(BUFFER), "");
    assert!(program.client.is_left());
}

#[test]
fn requests_after_the_loss_of_the_connection_fail_and_take_no_memory() {
    let mut program = Program::new(None);
    program.client.ask(&After::Nothing, Call::Delete { path: vec![b'a'] });
    program.lose();
    assert!(!program.client.requests.has_unsent());
    let call = Call::Size { file: program.file() };
    let number = program.client.ask(&After::Nothing, call);
    assert_eq!(program.client.take_reply(number), Some(Err(CallError::Lost)));
    assert!(!program.client.requests.has_unsent());
}

#[test]
fn times_without_end_do_not_overflow() {
    let told = Told { interval: Some(Duration::MAX), output_bytes: Some(1 << 30) };
    let settings = Settings {
        buffers: 2,
        buffer_bytes: BUFFER,
        chunks_max: 4,
        read_cache_bytes: 0,
        stage: Some(StageSettings {
            bytes_max: 1 << 20,
            in_foreground: true,
            in_background: true,
            is_synced: false,
            told,
        }),
        timeout: Duration::MAX,
        stall_timeouts: 10,
        has_other_servers: false,
    };
    let mut client = Client::<u32, Chunk>::new(settings);
    client.on_connected(SECOND);
    client.begin_write(OTHER, &(0..1), true, SECOND).unwrap();
    client.end_write(OTHER, true, (1, false), SECOND).unwrap();
    assert!(client.next_staging(9 * SECOND).is_err());
    assert_eq!(client.look(9 * SECOND), None);
}

/// A program that ended well while something was read ahead for it did not say so, and its server
/// kept everything for it.
#[test]
fn a_program_that_ends_says_so_although_bytes_are_on_their_way() {
    let mut program = Program::new(None);
    program.client.set_prefetch(&mut program.tail, Prefetch::Always, program.now);
    let mut read = program.read(0..100);
    assert!(matches!(program.client.step(&mut read), Step::Wait(Wait::Reply(2))));
    assert!(program.calls().len() > 1);
    program.arrive(2, 0, 100);
    assert!(matches!(program.client.step(&mut read), Step::Copy(0, _, _)));
    assert!(matches!(program.client.step(&mut read), Step::End(Ok(100))));
    assert_eq!(program.client.farewell(), Some(ToServer::Bye));
    program.client.ask(&After::Nothing, Call::Size { file: program.file() });
    assert_eq!(program.client.farewell(), None);
}
