//! Divides the file descriptors of a server among the connections whose handshake is not done, its
//! clients, and their open files. Without shares, the files of one client could take the
//! descriptors that other clients need to connect.

use super::policy::VISITORS_MAX;

/// Descriptors of the process itself: standard streams, the port, the root, signals, layouts.
const OWN: u64 = 24;

/// Descriptors of a client: three of its connection, and two directories and a file while a path is
/// looked up.
const PER_CLIENT: u64 = 6;

/// The least number of connections in their handshake, for a process with few descriptors.
const VISITORS_MIN: u64 = 4;

/// The numbers of descriptors for each purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Connections whose handshake is not done.
    pub visitors: usize,
    /// Clients at a time.
    pub clients: u32,
    /// Open files of all clients together, and directories that are open until the name of a file
    /// in them is durable.
    pub files: u32,
}

impl Descriptors {
    /// Divides the descriptors of a process that may have `limit` of them. There are fewer clients
    /// than `clients_max` if there would be no more descriptors for files than for clients.
    #[must_use]
    pub fn of(limit: u64, clients_max: u32) -> Self {
        let visitors = (limit / 8).clamp(VISITORS_MIN, VISITORS_MAX);
        let rest = limit.saturating_sub(OWN + visitors);
        let clients = (rest / (2 * PER_CLIENT)).clamp(1, clients_max.max(1).into());
        let files = rest.saturating_sub(clients * PER_CLIENT).max(1);
        Self {
            visitors: usize::try_from(visitors).expect("it was limited"),
            clients: u32::try_from(clients).expect("it was limited"),
            files: u32::try_from(files).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_leave_descriptors_for_clients_and_for_connections() {
        for (limit, clients_max, expected) in [
            (16_384, 64, (100, 64, 15_876)),
            (1024, 64, (100, 64, 516)),
            (256, 64, (32, 16, 104)),
            (64, 64, (8, 2, 20)),
            (64, 1, (8, 1, 26)),
            (10, 64, (4, 1, 1)),
            (u64::MAX, 4, (100, 4, u32::MAX)),
        ] {
            let Descriptors { visitors, clients, files } = Descriptors::of(limit, clients_max);
            assert_eq!((visitors, clients, files), expected, "{limit} {clients_max}");
        }
    }
}
