//! Moves a directory from within a program of one's own, and lets itself be stopped:
//! `embed PROGRAM SOURCE TARGET [BYTES_PER_SECOND]`.
//!
//! `PROGRAM` is the `lads` command: the other end of the transfer is a process of it. How far the
//! transfer has come is told on standard output. A line on standard input stops it in a state from
//! which the same call goes on.
#![allow(clippy::print_stdout, reason = "it tells on its terminal")]

use lads_engine::{ExitCode, Happening, Job, Location, Observer, StopFlag};
use std::ffi::OsString;
use std::io;

fn main() -> std::process::ExitCode {
    embed(std::env::args_os().skip(1).collect())
}

/// Does what the words say.
pub(crate) fn embed(words: Vec<OsString>) -> std::process::ExitCode {
    match job(words) {
        Some(job) => std::process::ExitCode::from(moved(&job) as u8),
        None => {
            println!("usage: embed PROGRAM SOURCE TARGET [BYTES_PER_SECOND]");
            std::process::ExitCode::from(ExitCode::Usage as u8)
        }
    }
}

fn job(words: Vec<OsString>) -> Option<Job> {
    let mut words = words.into_iter();
    let (program, source, target) = (words.next()?, words.next()?, words.next()?);
    let mut job = Job::new(vec![Location::here(source)], Location::here(target));
    job.program = program.into();
    if let Some(limit) = words.next() {
        job.options.bytes_per_second = limit.to_str()?.parse().ok()?;
    }
    Some(job)
}

fn moved(job: &Job) -> ExitCode {
    let stop = StopFlag::new();
    let stopper = stop.clone();
    std::thread::spawn(move || {
        if io::stdin().read_line(&mut String::new()).is_ok_and(|length| length > 0) {
            stopper.set("a line on standard input");
        }
    });
    let report = lads_engine::run(job, &stop, &mut Teller);
    if let Some(message) = &report.message {
        println!("message: {message}");
    }
    let count = &report.progress.source;
    println!("{:?}: {} files, {} bytes", report.exit_code, count.files_moved, count.bytes_done);
    report.exit_code
}

/// Tells what happens.
struct Teller;

impl Observer for Teller {
    fn on(&mut self, happening: Happening) {
        match happening {
            Happening::Progress(progress) => {
                println!("so far {} bytes", progress.source.bytes_done);
            }
            Happening::Issue(issue) => {
                println!("failed: {}", String::from_utf8_lossy(&issue.path));
            }
            Happening::Notice(text) => println!("notice: {text}"),
            _ => {}
        }
    }
}
