//! What a user asks for in the hints of an `MPI_Info`, and what is in force.

use lads_core::sizes;
use lads_engine::remote::ClientOptions;
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable for [`Hints::token_file`].
const TOKEN_VARIABLE: &str = "LADS_RFS_TOKEN_FILE";

/// The hints of a file.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    /// `rfs_buffer_size`: memory of a process for what is not at the server yet.
    pub(crate) buffer_bytes: u64,
    /// `rfs_buffering`: whether a write returns before it is at the server.
    pub(crate) buffers: bool,
    /// `rfs_defer_open`: whether an open returns before the file is opened.
    pub(crate) defers_open: bool,
    /// `rfs_defer_close`: whether a close returns before all is durable.
    pub(crate) defers_close: bool,
    /// `rfs_timeout`: a server that is silent for as many seconds is lost.
    pub(crate) timeout_seconds: u64,
    /// `rfs_token_file`: the file with the secret of the server.
    pub(crate) token_file: Option<PathBuf>,
}

impl Default for Hints {
    fn default() -> Self {
        let ClientOptions { buffers_bytes, timeout } = ClientOptions::default();
        Self {
            buffer_bytes: buffers_bytes,
            buffers: true,
            defers_open: false,
            defers_close: false,
            timeout_seconds: timeout.as_secs(),
            token_file: std::env::var_os(TOKEN_VARIABLE)
                .filter(|it| !it.is_empty())
                .map(PathBuf::from),
        }
    }
}

impl Hints {
    /// Takes a hint; unknown keys and values without a meaning are ignored (MPI 4.0, section
    /// 14.2.8).
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        match key {
            "rfs_buffer_size" => take(&mut self.buffer_bytes, sizes::parse_bytes(value).ok()),
            "rfs_buffering" => take(&mut self.buffers, switch(value)),
            "rfs_defer_open" => take(&mut self.defers_open, switch(value)),
            "rfs_defer_close" => take(&mut self.defers_close, switch(value)),
            "rfs_timeout" => {
                let seconds = value.parse().ok().filter(|&seconds| seconds > 0);
                take(&mut self.timeout_seconds, seconds);
            }
            "rfs_token_file" => self.token_file = Some(PathBuf::from(value)),
            _ => {}
        }
    }

    /// The hints in force, as text.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("rfs_buffer_size", self.buffer_bytes.to_string()),
            ("rfs_buffering", self.buffers.to_string()),
            ("rfs_defer_open", self.defers_open.to_string()),
            ("rfs_defer_close", self.defers_close.to_string()),
            ("rfs_timeout", self.timeout_seconds.to_string()),
        ];
        if let Some(path) = &self.token_file {
            all.push(("rfs_token_file", path.display().to_string()));
        }
        all
    }

    /// How a connection is used.
    pub(crate) fn options(&self) -> ClientOptions {
        let timeout = Duration::from_secs(self.timeout_seconds);
        ClientOptions { buffers_bytes: self.buffer_bytes, timeout }
    }
}

fn take<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "true" | "enable" | "1" => Some(true),
        "false" | "disable" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_taken_and_told() {
        let mut hints = Hints::default();
        for (key, value) in [
            ("rfs_buffer_size", "8M"),
            ("rfs_buffering", "disable"),
            ("rfs_defer_close", "true"),
            ("rfs_timeout", "5"),
            ("rfs_token_file", "/t"),
        ] {
            hints.set(key, value);
        }
        let told = hints.all();
        let expected = ["8388608", "false", "false", "true", "5", "/t"];
        assert_eq!(told.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_has_no_meaning_is_ignored() {
        let mut hints = Hints::default();
        let before = hints.all();
        let nonsense =
            [("rfs_buffer_size", "x"), ("rfs_buffering", "2"), ("rfs_timeout", "0"), ("cb", "1")];
        nonsense.iter().for_each(|(key, value)| hints.set(key, value));
        assert_eq!(hints.all(), before);
    }
}
