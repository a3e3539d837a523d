//! How signals stop a transfer: the first one in a state that can be resumed, a second SIGINT at
//! once.

use crate::complain;
use anyhow::{Context, Result};
use lads_engine::StopFlag;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// Exit code after a second SIGINT, as shells count: 128 and the signal's number.
const AT_ONCE: i32 = 130;

/// Signals that stop a transfer, and what they are told as.
const STOPPING: [(i32, &str); 4] = [
    (SIGINT, "interrupted (SIGINT)"),
    (SIGTERM, "told to end (SIGTERM)"),
    (SIGHUP, "the terminal is gone (SIGHUP)"),
    (SIGUSR1, "told to stop (SIGUSR1)"),
];

/// From now on, signals set the flag.
pub(crate) fn watch(stop: &StopFlag) -> Result<()> {
    let is_heeded = |number: &i32| *number != SIGHUP || !is_hangup_ignored();
    let numbers = STOPPING.iter().map(|&(number, _)| number).filter(is_heeded);
    let mut signals = Signals::new(numbers).context("cannot watch for signals")?;
    let stop = stop.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut is_interrupted = false;
            for signal in signals.forever() {
                if signal == SIGINT && std::mem::replace(&mut is_interrupted, true) {
                    complain("ended at once");
                    std::process::exit(AT_ONCE);
                }
                let reason = STOPPING.iter().find(|(number, _)| *number == signal);
                stop.set(reason.map_or("a signal", |(_, reason)| reason));
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// Whether whoever started us wants SIGHUP ignored, as nohup(1) does.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}
