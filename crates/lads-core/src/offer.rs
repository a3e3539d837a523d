//! What a daemon offers to hosts without ssh between them: who may do what, and how many at a time.

use crate::issue::Side;
use crate::limits::STRANGER_LINES_MAX;
use crate::units::Instant;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// What a peer may do with the files below its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read files.
    Read,
    /// Create and change files. Existing files are also read, to resume and to compare.
    Write,
    /// Both.
    ReadAndWrite,
}

impl Access {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::ReadAndWrite];

    /// The name in configurations and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadAndWrite => "read-write",
        }
    }

    /// Reports whether the daemon's host may be this side of a transfer.
    #[must_use]
    pub fn permits(self, side: Side) -> bool {
        match self {
            Self::Read => side == Side::Source,
            Self::Write => side == Side::Sink,
            Self::ReadAndWrite => true,
        }
    }

    /// Reports whether programs of the peer may open files: who opens one to write may read it.
    #[must_use]
    pub fn permits_programs(self) -> bool {
        self != Self::Write
    }

    /// Reports whether it may change files.
    #[must_use]
    pub fn may_write(self) -> bool {
        self != Self::Read
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reports whether a path that a peer names is below its root as it is written: relative, and
/// without `..`. Links on the way are the kernel's to check.
///
/// ```
/// # use lads_core::offer::is_below_root;
/// assert!(is_below_root(b"run1/a..b/"));
/// assert!(!is_below_root(b"/etc") && !is_below_root(b"run1/../../etc"));
/// ```
#[must_use]
pub fn is_below_root(path: &[u8]) -> bool {
    !path.starts_with(b"/") && path.split(|&byte| byte == b'/').all(|part| part != b"..")
}

/// How many sessions there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Of all peers together.
    pub all: u32,
    /// Of one peer.
    pub of_peer: u32,
}

/// The connections of a daemon, and the peers of its sessions. Strangers (connections that are not
/// authenticated yet) have separate places, so that they never keep out an authenticated peer.
#[derive(Debug)]
pub struct Places<C, P> {
    strangers_max: usize,
    /// From the oldest to the newest.
    strangers: VecDeque<C>,
    sessions: Vec<(C, P)>,
}

impl<C: PartialEq, P: PartialEq> Places<C, P> {
    /// Creates the places, for at most `strangers_max` strangers.
    #[must_use]
    pub fn new(strangers_max: usize) -> Self {
        Self { strangers_max, strangers: VecDeque::new(), sessions: Vec::new() }
    }

    /// A stranger connects. Returns the connection that has to end for it: the stranger who has
    /// taken longest.
    pub fn on_connected(&mut self, connection: C) -> Option<C> {
        let is_crowded = self.strangers.len() >= self.strangers_max;
        let ends = if is_crowded { self.strangers.pop_front() } else { None };
        self.strangers.push_back(connection);
        ends
    }

    /// A stranger has shown that it is this peer. Returns whether it gets a session.
    pub fn on_known(&mut self, connection: &C, peer: P, limits: SessionLimits) -> bool {
        let Some(at) = self.strangers.iter().position(|it| it == connection) else { return false };
        let of_peer = self.sessions.iter().filter(|(_, it)| *it == peer).count();
        let has_room = |count: usize, max: u32| u32::try_from(count).is_ok_and(|it| it < max);
        if !has_room(self.sessions.len(), limits.all) || !has_room(of_peer, limits.of_peer) {
            return false;
        }
        self.sessions.extend(self.strangers.remove(at).map(|it| (it, peer)));
        true
    }

    /// A connection has ended.
    pub fn on_ended(&mut self, connection: &C) {
        self.strangers.retain(|it| it != connection);
        self.sessions.retain(|(it, _)| it != connection);
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// The lines of a log about connections that no peer has made: many connections are not many lines.
#[derive(Debug, Default)]
pub struct StrangerLines {
    /// When the minute began.
    since: Option<Instant>,
    /// The number of connections in it.
    count: u32,
}

impl StrangerLines {
    /// Somebody connects. Returns whether the log gets a line of it even if it is no peer; and if a
    /// minute has ended, the number of connections in it that had none, unless a peer made them.
    pub fn on_connected(&mut self, now: Instant) -> (bool, Option<u32>) {
        let mut omitted = None;
        if self.since.is_none_or(|since| now.since(since) >= MINUTE) {
            omitted = self.count.checked_sub(STRANGER_LINES_MAX).filter(|&count| count > 0);
            (self.since, self.count) = (Some(now), 0);
        }
        self.count = self.count.saturating_add(1);
        (self.count <= STRANGER_LINES_MAX, omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_strangers_are_few_lines_and_are_counted() {
        let mut lines = StrangerLines::default();
        let at = |seconds| Instant::after_start(Duration::from_secs(seconds));
        for _ in 0..STRANGER_LINES_MAX {
            assert_eq!(lines.on_connected(at(5)), (true, None));
        }
        for _ in 0..3 {
            assert_eq!(lines.on_connected(at(64)), (false, None));
        }
        assert_eq!(lines.on_connected(at(65)), (true, Some(3)));
        assert_eq!(lines.on_connected(at(1000)), (true, None));
    }

    #[test]
    fn access_is_for_one_side_or_both() {
        let permitted = |access: Access| [Side::Source, Side::Sink].map(|it| access.permits(it));
        assert_eq!(permitted(Access::Read), [true, false]);
        assert_eq!(permitted(Access::Write), [false, true]);
        assert_eq!(permitted(Access::ReadAndWrite), [true, true]);
        assert_eq!(Access::ALL.map(Access::may_write), [false, true, true]);
        assert_eq!(Access::ALL.map(Access::permits_programs), [true, false, true]);
    }

    #[test]
    fn a_path_stays_below_the_root() {
        for inside in ["", ".", "a", "a/", "a/b", "./a", "...", "a/..b", "a//b"] {
            assert!(is_below_root(inside.as_bytes()), "{inside}");
        }
        for outside in ["/", "/a", "//a", "..", "../a", "a/..", "a/../../b", "./.."] {
            assert!(!is_below_root(outside.as_bytes()), "{outside}");
        }
    }

    const LIMITS: SessionLimits = SessionLimits { all: 3, of_peer: 2 };

    #[test]
    fn strangers_push_out_each_other_and_nobody_who_is_known() {
        let mut places = Places::new(2);
        assert_eq!(places.on_connected(1), None);
        assert!(places.on_known(&1, 'a', LIMITS));
        assert_eq!(places.on_connected(2), None);
        assert_eq!(places.on_connected(3), None);
        assert_eq!(places.on_connected(4), Some(2));
        assert!(places.on_known(&4, 'b', LIMITS));
        assert_eq!(places.on_connected(5), None);
        assert_eq!(places.on_connected(6), Some(3));
        assert!(!places.on_known(&2, 'b', LIMITS), "it was ended");
    }

    #[test]
    fn no_peer_takes_the_places_of_others() {
        let mut places = Places::new(8);
        let mut enter = |id: u32, peer| {
            places.on_connected(id);
            places.on_known(&id, peer, LIMITS)
        };
        assert!(enter(1, 'a') && enter(2, 'a') && !enter(3, 'a'));
        assert!(enter(4, 'b') && !enter(5, 'b') && !enter(6, 'c'));
        places.on_ended(&1);
        assert!(places.on_known(&3, 'a', LIMITS));
        places.on_ended(&3);
        assert!(places.on_known(&6, 'c', LIMITS));
        let none = SessionLimits { all: 0, of_peer: 0 };
        assert_eq!(places.on_connected(7), None);
        assert!(!places.on_known(&7, 'd', none));
    }

    #[test]
    fn who_has_left_takes_no_place() {
        let mut places = Places::new(1);
        for id in 0..10 {
            assert_eq!(places.on_connected(id), None);
            assert!(id % 2 == 1 || places.on_known(&id, 'a', LIMITS));
            places.on_ended(&id);
            assert!(!places.on_known(&id, 'a', LIMITS));
        }
    }
}
