//! How a client uses a server.

pub use lads_core::remote::client::StageSettings;
use lads_core::remote::policy::{BUFFERS_BYTES, READ_BYTES, STALL_TIMEOUTS, TIMEOUT};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How a client uses a server.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Memory for what was written and is not at the server yet, in bytes: at least two frames.
    pub buffers_bytes: u64,
    /// A server that says nothing for as long counts as lost.
    pub timeout: Duration,
    /// After this number of timeouts without progress, a server that only sends heartbeats counts
    /// as lost.
    pub stall_timeouts: u32,
    /// Whether the program goes on while the connection is made. Then a later call says that the
    /// server cannot be reached.
    pub defers_connecting: bool,
    /// Where to put what does not fit into memory; if there is no such place, a write waits.
    pub stage: Option<StageOptions>,
    /// Memory for what was read ahead, and for what is kept of what was read, in bytes.
    pub read_bytes: u64,
    /// Where else to keep what was read.
    pub read_cache: Option<ReadCacheOptions>,
    /// When the program began.
    pub begun: Instant,
}

/// Where a client keeps what it has read.
#[derive(Clone, Debug)]
pub struct ReadCacheOptions {
    /// A directory.
    pub directory: PathBuf,
    /// The most bytes that are there at a time, beside what is staged.
    pub bytes_max: u64,
}

/// What a client does with a local disk.
#[derive(Clone, Debug)]
pub struct StageOptions {
    /// A directory.
    pub directory: PathBuf,
    /// How it is used.
    pub settings: StageSettings,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let (stage, read_cache) = (None, None);
        let (buffers_bytes, read_bytes, timeout) = (BUFFERS_BYTES, READ_BYTES, TIMEOUT);
        let (defers_connecting, begun) = (false, Instant::now());
        let stall_timeouts = STALL_TIMEOUTS;
        Self {
            buffers_bytes,
            timeout,
            stall_timeouts,
            defers_connecting,
            stage,
            read_bytes,
            read_cache,
            begun,
        }
    }
}
