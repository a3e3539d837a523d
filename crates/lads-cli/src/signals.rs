//! The signals that stop a transfer, and their descriptions. The first one stops it in a state that
//! can be resumed; a second SIGINT ends it at once ([`crate::front`]).

use crate::not_started;
use anyhow::{Context, Result};
use lads_sys::is_signal_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The signals that stop a transfer, and how each is described to the user.
const STOPPING: [(i32, &str); 4] = [
    (SIGINT, "interrupted (SIGINT)"),
    (SIGTERM, "terminated (SIGTERM)"),
    (SIGHUP, "the terminal was closed (SIGHUP)"),
    (SIGUSR1, "stop requested (SIGUSR1)"),
];

/// The signal that ends a transfer at once if it comes twice.
pub(crate) const INTERRUPT: u8 = 2;

/// A signal that came, by its number.
pub(crate) struct Heard(pub(crate) u8);

impl Heard {
    /// Returns the description of the signal.
    pub(crate) fn reason(&self) -> &'static str {
        let known = STOPPING.iter().find(|(number, _)| *number == i32::from(self.0));
        known.map_or("a signal", |(_, reason)| reason)
    }
}

/// Receives signals: those that came since it was made, and later ones.
pub(crate) struct Watch(Signals);

impl Watch {
    /// From now on, signals are kept until [`Self::listen`] is called.
    pub(crate) fn begin() -> Result<Self> {
        let is_heeded = |number: &i32| *number != SIGHUP || !is_hangup_ignored();
        let numbers = STOPPING.iter().map(|&(number, _)| number).filter(is_heeded);
        Signals::new(numbers).map(Self).context("cannot watch for signals")
    }

    /// The same for a process that SIGHUP does not stop: it comes even if it was ignored.
    pub(crate) fn begin_with_hangup() -> Result<Self> {
        let numbers = STOPPING.iter().map(|&(number, _)| number);
        Signals::new(numbers).map(Self).context("cannot watch for signals")
    }

    /// From now on, a thread calls `act` for each signal.
    pub(crate) fn listen(self, mut act: impl FnMut(u8) + Send + 'static) -> Result<()> {
        let Self(mut signals) = self;
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let listener = move || {
            let numbers = signals.forever();
            numbers.filter_map(|number| u8::try_from(number).ok()).for_each(&mut act);
        };
        thread.spawn(listener).map(drop).map_err(not_started)
    }
}

/// Ends this process after this time as interrupted, whatever its other threads do. If the thread
/// that waits cannot be started, the process ends when its work does.
pub(crate) fn exit_after(time: Duration, before: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name("deadline".to_owned());
    let _ = thread.spawn(move || {
        std::thread::sleep(time);
        before();
        std::process::exit(lads_engine::ExitCode::Interrupted as i32)
    });
}

/// From now on, this process ignores these signals. Programs that it starts react to them again,
/// because a handler does not outlive the start of another program.
pub(crate) fn leave_to_the_front() -> Result<()> {
    for (number, _) in STOPPING {
        if number != SIGHUP || !is_hangup_ignored() {
            signal_hook::flag::register(number, Arc::new(AtomicBool::new(false)))
                .context("cannot watch for signals")?;
        }
    }
    Ok(())
}

/// From now on, a write beyond the maximum size of a file (`ulimit -f`) fails with `EFBIG`, and the
/// signal that comes with the error does not end this process. Programs that this process starts
/// are ended by the signal again, because a handler does not outlive the start of another program.
pub(crate) fn outlive_file_size_limit() {
    if !is_signal_ignored(SIGXFSZ) {
        // If no handler can be installed, the signal ends the process, as before.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// Returns whether SIGHUP was ignored when this process was started, as by nohup(1).
fn is_hangup_ignored() -> bool {
    is_signal_ignored(SIGHUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_that_stops_is_told_by_name() {
        for (number, reason) in STOPPING {
            assert_eq!(Heard(u8::try_from(number).unwrap()).reason(), reason);
        }
        assert_eq!(i32::from(INTERRUPT), SIGINT);
    }
}
