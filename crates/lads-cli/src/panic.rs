//! What happens if LADS has a bug: a thread that panics ends the process.
//!
//! Otherwise its part would never be done, the other threads would still give signs of life, and
//! the transfer would neither go on nor end. What is on record stays on record.

use std::io::{self, Write};

/// From now on, a panic in any thread ends the process, in a state that the same command goes on
/// from.
pub(crate) fn end_the_process() {
    let say_where = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say_where(panic);
        // This is not a macro such as `eprintln`, which would panic in turn if standard error is
        // closed.
        let _ = io::stderr().write_all(
            b"lads: this is a bug in LADS; please report it with the lines above. The same command \
              resumes.\n",
        );
        std::process::exit(lads_engine::ExitCode::Interrupted as i32);
    }));
}

/// Panics in a thread of its own as soon as somebody opens the FIFO that `LADS_FAULT_PANIC` names,
/// as `cp:PATH` or `serve:PATH`: for the tests, and in debug builds only.
#[cfg(debug_assertions)]
pub(crate) fn when_asked(subcommand: &str) {
    let asked = std::env::var("LADS_FAULT_PANIC").unwrap_or_default();
    let Some((of, fifo)) = asked.split_once(':').filter(|(of, _)| *of == subcommand) else {
        return;
    };
    let (of, fifo) = (of.to_owned(), fifo.to_owned());
    std::thread::spawn(move || {
        // This blocks until another process opens the FIFO to write to it.
        let opened = std::fs::File::open(&fifo);
        panic!("asked for in {of}: {opened:?}");
    });
}
