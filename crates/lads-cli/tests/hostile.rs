//! Tests `lads` against a lying peer: runs every case of `lads-hostile` against the real command.
//!
//! `cargo test -p lads-cli --test hostile NAME` runs the cases with this in their names. The table
//! of the cases and what they stand for is in `docs/security.md`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests")]

#[path = "hostile/client.rs"]
mod client;
#[path = "hostile/liar.rs"]
mod liar;

use lads_hostile::cases;
use lads_hostile::files;
use lads_hostile::process::raise_descriptor_limit;
use lads_hostile::trial::{self, Programs};
use libtest_mimic::{Arguments, Trial};
use std::path::PathBuf;
use std::process::ExitCode;

/// Most cases wait for a timeout most of the time, so more of them run than there are processors.
const THREADS: usize = 12;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // `lads cp` starts this same program as its remote shell.
    if matches!(words.first().map(String::as_str), Some("peer" | "job")) {
        trial::serve(&words);
        return ExitCode::SUCCESS;
    }
    // The client of a server that lies is this program, too.
    if let [role, at, token] = &words[..]
        && role == "client"
    {
        client::run(at, token);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    raise_descriptor_limit();
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    let programs = Programs {
        lads: PathBuf::from(env!("CARGO_BIN_EXE_lads")),
        peer: std::env::current_exe().unwrap(),
    };
    // Without root, leave out the cases that need it, and the runs with the honest end as another
    // user.
    let is_root = lads_tried::is_root();
    let mut trials = Vec::new();
    for case in files::cases::all() {
        let programs = programs.clone();
        trials.push(Trial::test(format!("file_server::{}", case.name), move || {
            files::run(&programs, &case).map_err(Into::into)
        }));
    }
    for lie in liar::ALL {
        let programs = programs.clone();
        trials.push(Trial::test(format!("file_client::{}", lie.0), move || {
            liar::run(&programs.lads, lie).map_err(Into::into)
        }));
    }
    for case in cases::all() {
        for manner in case.manners(is_root) {
            let programs = programs.clone();
            trials.push(Trial::test(case.test_name(manner), move || {
                trial::run(&programs, &case, manner).map_err(Into::into)
            }));
        }
    }
    trials
}
