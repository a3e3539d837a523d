//! A simulated program that computes and writes by turns, a network and a disk.

use super::super::message::{FRAME_BYTES, FileNumber, ViewNumber};
use super::super::outbox::{Goes, Next, Outbox, Staging};
use super::*;
use crate::staging::Slots;

const MB: f64 = 1e6;

/// A program with outputs of one size, all its memory for buffers as large as one.
struct Program {
    output_bytes: u64,
    buffers_bytes: u64,
    outputs: u32,
    /// The part of an output that can be sent in a phase.
    sendable: f64,
    remote: f64,
    local: f64,
    /// By how much phases are longer and shorter in turn.
    jitter: f64,
    told: Told,
}

const PROGRAM: Program = Program {
    output_bytes: 64 << 20,
    buffers_bytes: 64 << 20,
    outputs: 5,
    sendable: 0.6,
    remote: 11.7 * MB,
    local: 500.0 * MB,
    jitter: 0.0,
    told: Told { interval: None, output_bytes: None },
};

/// How many bytes were staged.
#[derive(Debug, Default)]
struct Staged {
    foreground: u64,
    background: u64,
}

/// Runs a program in steps of 1 ms.
fn run(program: &Program) -> Staged {
    let slots = Slots::new(1 << 40, FRAME_BYTES, 4);
    let buffers = u32::try_from(program.buffers_bytes / u64::from(FRAME_BYTES)).unwrap();
    let mut outbox: Outbox<(), ()> = Outbox::new(buffers, slots);
    outbox.on_grant(u32::MAX);
    let mut outlook = Outlook::new(program.told);
    let mut staged = Staged::default();
    let frame = u64::from(FRAME_BYTES);
    let phase = program.output_bytes as f64 * program.sendable / program.remote;
    let step = Duration::from_millis(1);
    let (mut now, mut put) = (Duration::ZERO, 0);
    // When the frame under way is written, and when the disk is free.
    let mut sent_until: Option<(Duration, u64)> = None;
    let mut disk_until = Duration::ZERO;
    let remote_time = Duration::from_secs_f64(frame as f64 / program.remote);
    let local_time = Duration::from_secs_f64(frame as f64 / program.local);
    let all_bytes = program.buffers_bytes;
    let memory = |outbox: &Outbox<(), ()>| Memory {
        all_bytes,
        free_bytes: all_bytes - u64::from(outbox.in_memory()) * frame,
        buffer_bytes: FRAME_BYTES,
    };
    for output in 0..program.outputs {
        let sign = if output % 2 == 0 { 1.0 } else { -1.0 };
        let computes_until = now + Duration::from_secs_f64(phase * (1.0 + sign * program.jitter));
        let mut left = program.output_bytes;
        while now < computes_until || left > 0 {
            if let Some((until, number)) = sent_until.filter(|(until, _)| *until <= now) {
                outbox.on_written(number);
                outlook.on_written(until, frame, !outbox.is_empty());
                sent_until = None;
            }
            if sent_until.is_none()
                && let Some(Next { number, .. }) = outbox.next(false)
            {
                sent_until = Some((now + remote_time, number));
            }
            let is_computing = now < computes_until;
            if !is_computing {
                outlook.on_write(now);
            }
            while !is_computing && left > 0 && disk_until <= now {
                if memory(&outbox).free_bytes < frame {
                    let Some(Staging { id, slot, .. }) = outbox.start_staging() else { break };
                    outbox.on_staged(id, slot);
                    staged.foreground += frame;
                    disk_until = now + local_time;
                    outlook.on_staged(now, frame, local_time);
                }
                let (positions, reach) = (put..put + 1, put..put + 1);
                let goes = Goes { file: FileNumber(1), view: ViewNumber(1), positions, reach };
                outlook.on_put(now);
                outbox.put(goes, (), ());
                (put, left) = (put + 1, left - frame);
            }
            if !is_computing {
                outlook.on_write_done(now, program.output_bytes);
                outlook.output_bytes = program.output_bytes - left;
            } else if disk_until <= now
                && outlook.next_staging(now, memory(&outbox)).is_some_and(|wait| wait < step)
                && let Some(Staging { id, slot, .. }) = outbox.start_staging_ahead()
            {
                outbox.on_staged(id, slot);
                staged.background += frame;
                disk_until = now + local_time;
                outlook.on_staged(now, frame, local_time);
            }
            now += step;
        }
    }
    staged
}

/// The bytes that have to be staged, by the model: for each output but the last, what cannot be
/// sent of what the next one needs.
fn needed(program: &Program) -> f64 {
    let phase = program.output_bytes as f64 * program.sendable / program.remote;
    let missing = program.output_bytes as f64 - phase * program.remote;
    let once = missing.max(0.0) / (1.0 - program.remote / program.local);
    once * f64::from(program.outputs - 1)
}

fn share(bytes: u64, program: &Program) -> f64 {
    bytes as f64 / (program.output_bytes as f64 * f64::from(program.outputs))
}

#[test]
fn as_much_is_staged_as_the_model_says() {
    for sendable in [0.3, 0.47, 0.6, 0.72, 0.9, 1.0, 1.2, 2.0] {
        for local in [50.0, 500.0] {
            let program = Program { sendable, local: local * MB, ..PROGRAM };
            let staged = run(&program);
            let foreground = share(staged.foreground, &program);
            // Buffers are staged whole, and one is under way: 3 of the 64 of an output.
            let unit = 3.0 * f64::from(FRAME_BYTES) * f64::from(program.outputs - 1);
            let background = staged.background as f64;
            assert!(foreground < 0.02, "{sendable} {local}: {foreground}");
            assert!(
                background <= 1.25 * needed(&program) + unit,
                "{sendable} {local}: {background}"
            );
        }
    }
}

#[test]
fn phases_that_change_cost_little() {
    for sendable in [0.47, 0.72, 1.0] {
        let staged = run(&Program { sendable, jitter: 0.1, ..PROGRAM });
        assert!(share(staged.foreground, &PROGRAM) < 0.06, "{sendable}: {staged:?}");
    }
}

#[test]
fn what_the_user_tells_is_believed() {
    let told = Told { interval: Some(Duration::from_secs(3600)), output_bytes: None };
    assert_eq!(run(&Program { told, ..PROGRAM }).background, 0);
    let told = Told { interval: None, output_bytes: Some(0) };
    assert_eq!(run(&Program { told, ..PROGRAM }).background, 0);
}

#[test]
fn a_disk_that_is_slower_than_the_network_is_not_used_in_the_background() {
    let staged = run(&Program { local: 10.0 * MB, ..PROGRAM });
    // The first one is staged before its rate is known.
    assert!(staged.background <= u64::from(FRAME_BYTES), "{staged:?}");
}

#[test]
fn equation_one() {
    let mut outlook = Outlook::new(Told {
        interval: Some(Duration::from_secs(10)),
        output_bytes: Some(900_000_000),
    });
    outlook.on_write(Duration::from_secs(1));
    outlook.on_write_done(Duration::from_secs(2), 900_000_000);
    outlook.on_put(Duration::from_secs(1));
    outlook.on_written(Duration::from_secs(2), 20_000_000, true);
    outlook.on_staged(Duration::from_secs(2), 100_000_000, Duration::from_secs(1));
    let buffer_bytes = FRAME_BYTES;
    let memory = Memory { all_bytes: 600_000_000, free_bytes: 200_000_000, buffer_bytes };
    // (600 MB - 200 MB - 10 s * 20 MB/s) / (1 - 20 / 100)
    assert_eq!(outlook.to_stage(Duration::from_secs(2), memory), 250_000_000);
    // 239 buffers in three quarters of 10 s.
    let wait = outlook.next_staging(Duration::from_secs(2), memory);
    assert_eq!(wait, None, "the program may still be writing");
    let wait = outlook.next_staging(Duration::from_millis(2050), memory);
    assert!(wait.is_some(), "it computes");
}
