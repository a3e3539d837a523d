//! Which process writes to a journal, and whether it still runs. It replaces a lock on file systems
//! without locks.

use lads_core::journal::Holder;
use rustix::system::uname;
use std::fs::{read_dir, read_to_string};
use std::io;

/// The state of the process that a journal names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs on this host.
    Runs,
    /// It has ended, or its host was restarted since.
    Ended,
    /// It runs, or ran, on another host.
    Elsewhere,
}

/// This process.
pub(super) fn own() -> Holder {
    let pid = std::process::id();
    let started_ticks = read_stat(pid).ok().and_then(|stat| started_ticks(pid, &stat)).unwrap_or(0);
    Holder { host: host(), boot: boot(), pid, started_ticks }
}

/// Whether a process still runs.
pub(super) fn state_of(holder: &Holder) -> State {
    if holder.host != host() {
        State::Elsewhere
    } else if holder.boot == boot() {
        state_by(read_stat(holder.pid), holder)
    } else {
        State::Ended
    }
}

/// Returns the state of the process whose `stat` is read like this. A confined process can only see
/// that a process of this number runs, which may be the holder.
fn state_by(stat: io::Result<String>, holder: &Holder) -> State {
    let runs = match stat {
        Ok(stat) => started_ticks(holder.pid, &stat) == Some(holder.started_ticks),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    };
    if runs { State::Runs } else { State::Ended }
}

fn read_stat(pid: u32) -> io::Result<String> {
    read_to_string(format!("/proc/{pid}/stat"))
}

fn host() -> Vec<u8> {
    uname().nodename().to_bytes().to_vec()
}

/// What tells one start of the host from another; nothing if the system does not say.
pub(crate) fn boot() -> Vec<u8> {
    let text = read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().as_bytes().to_vec()
}

/// When a process started: the 22nd field of its `stat`. The second field is a name in parentheses
/// that may contain anything. `None` if the process has ended, even if its parent has not yet
/// collected it: then its state is `Z`. But while another thread of it is in a call, that call may
/// still write.
fn started_ticks(pid: u32, stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let thread_count = read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    if *fields.first()? == "Z" && thread_count <= 1 {
        return None;
    }
    fields.get(19)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_runs_until_it_has_ended_or_its_number_is_used_again() {
        let own = own();
        assert!(own.started_ticks > 0 && !own.boot.is_empty(), "{own:?}");
        assert_eq!(state_of(&own), State::Runs);
        let later = Holder { started_ticks: own.started_ticks + 1, ..own.clone() };
        assert_eq!(state_of(&later), State::Ended);
        let before = Holder { boot: b"before".to_vec(), ..own.clone() };
        assert_eq!(state_of(&before), State::Ended);
        let elsewhere = Holder { host: b"not this host".to_vec(), ..own };
        assert_eq!(state_of(&elsewhere), State::Elsewhere);
    }

    #[test]
    fn a_process_that_cannot_be_examined_may_be_the_holder() {
        let state = |kind: io::ErrorKind| state_by(Err(kind.into()), &own());
        assert_eq!(state(io::ErrorKind::PermissionDenied), State::Runs);
        assert_eq!(state(io::ErrorKind::NotFound), State::Ended);
    }

    /// A sink that was killed with its parent stays in the table of processes where nobody waits.
    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let ticks = started_ticks(pid, &read_stat(pid).unwrap()).unwrap();
        let holder = Holder { pid, started_ticks: ticks, ..own() };
        assert_eq!(state_of(&holder), State::Runs);
        drop(child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(60);
        while state_of(&holder) == State::Runs {
            assert!(Instant::now() < deadline, "it has ended, and is not seen to have");
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
