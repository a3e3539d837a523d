//! Transfers between hosts without ssh between them: a daemon that listens, and the connection to
//! one.
//!
//! ```text
//!   lads cp ── lads dial ══ handshake, records ══ lads serve --session ── lads serve --confined
//! ```
//!
//! The daemon itself (`listen`) reads nothing from the network. For each connection, it starts a
//! process that does the handshake (`session`): who it is, and whether the configuration knows the
//! key. That process becomes the user whom the configuration names, starts the other end of the
//! transfer, and from then on only copies bytes between the connection and the pipes of that end.
//! The end confines itself before it reads anything. At the other host, `dial` stands in the place
//! of ssh. So the two ends of a transfer are the same as with a remote shell.

mod account;
mod dial;
mod listen;
mod relay;
mod session;

pub use dial::dial;
pub use listen::{Listening, listen};
pub use session::{SessionEnd, serve_connection};

use crate::keys::PublicKey;
use lads_core::offer::Access;
use lads_core::protection::DataLevel;
use std::path::PathBuf;
use std::time::Duration;

/// The configuration of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonConfig {
    /// The addresses to listen on, each with a port.
    pub listen: Vec<String>,
    /// The file with the private key of this host.
    pub key_file: PathBuf,
    /// The ports for data connections, first and last; `None`: any.
    pub ports: Option<(u16, u16)>,
    /// How many sessions there may be at a time.
    pub sessions_max: u32,
    /// Who may do what.
    pub peers: Vec<Peer>,
}

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name in logs.
    pub name: String,
    /// Its public key.
    pub key: PublicKey,
    /// Directory whose files its sessions can use.
    pub root: PathBuf,
    /// What its sessions can do with these files.
    pub access: Access,
    /// User of the sessions; `None`: the user of the daemon, who is not root.
    pub user: Option<String>,
    /// Lowest permitted protection of data.
    pub level: DataLevel,
    /// Maximum number of its sessions at a time; `None`: that of all peers.
    pub sessions_max: Option<u32>,
    /// Maximum memory of a session, in bytes; `None`: unlimited.
    pub memory_bytes: Option<u64>,
    /// Maximum duration of a session; `None`: unlimited.
    pub time: Option<Duration>,
}
