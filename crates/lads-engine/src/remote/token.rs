//! The secret that a server of remote files and its clients have: 256 random bits, in a file as 64
//! hex digits.

use crate::keys::{KEY_BYTES, KeyPair, make_secret, read_secret};
use std::io;
use std::path::Path;

/// The secret.
///
/// It never goes over a connection. The keys of both ends follow from it: in the handshake, a
/// client expects the one key of the server, and the server the one key of its clients. So nobody
/// has a second secret file to copy, and whoever has another token, or stands between the two with
/// none, gets no connection and learns nothing of the token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; KEY_BYTES]);

impl Token {
    /// The keys of the server.
    pub(super) fn of_server(&self) -> KeyPair {
        self.keys("lads 2026-11-29 key of a server of remote files")
    }

    /// The keys of all clients.
    pub(super) fn of_clients(&self) -> KeyPair {
        self.keys("lads 2026-11-29 key of the clients of a server of remote files")
    }

    fn keys(&self, context: &str) -> KeyPair {
        KeyPair::from_seed(&blake3::derive_key(context, &self.0))
    }
}

/// Does not show it.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Makes a file with a new token, readable by its owner only; nothing is done if there is one.
///
/// # Errors
/// If the file cannot be made.
pub fn make_token(path: &Path) -> io::Result<()> {
    make_secret(path)
}

/// Reads a token from a file.
///
/// # Errors
/// If the file cannot be read, is not this user's alone, or holds no token.
pub fn read_token(path: &Path) -> io::Result<Token> {
    read_secret(path).map(Token)
}
