//! Remote files for MPI programs: a server, and what a client needs to use one.
//!
//! The path of a write, one file a step: a program's bytes are copied into a buffer
//! (`client/file.rs`), a thread sends the buffer in a frame (`client/link/sending.rs`), the server
//! waits until it is the frame's turn (`server/session.rs`), finds out where in the file the bytes
//! lie, queues them by OST, and writes them (`server/storage.rs`). Both sides only act: the
//! sessions of [`lads_core::remote`] decide.

mod client;
mod error;
mod line;
mod replay;
mod server;
mod token;
mod wire;

pub use client::{
    Client, ClientOptions, FileHandle, Presence, ReadBytes, ReadCacheOptions, StageOptions,
    StageSettings, StagedBytes,
};
pub use error::RemoteError;
pub use lads_core::remote::outlook::Told;
pub use lads_core::remote::reading::Prefetch;
pub use replay::{Replay, ReplayError};
pub use server::{FileServer, OwnServerConfig, ServerConfig, serve_own_client};
pub use token::{Token, make_token, read_token};

#[cfg(test)]
mod tests;
