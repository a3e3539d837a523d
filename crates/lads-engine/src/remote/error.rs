//! What a program is told when something with a remote file fails.

use lads_core::errno;
use lads_core::remote::client::Loss;
use lads_core::remote::message::Failure;
use rustix::io::Errno;
use std::io;
use thiserror::Error;

/// Why something with a remote file failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct RemoteError {
    /// Linux's `errno`.
    pub errno: i32,
    /// What failed, where.
    pub text: String,
}

impl From<Loss> for RemoteError {
    fn from(Loss { errno, text }: Loss) -> Self {
        Self { errno, text }
    }
}

impl RemoteError {
    pub(super) fn of(failure: Failure, what: &str) -> Self {
        let Failure { operation, errno } = failure;
        let name = errno::name(errno).map_or_else(String::new, |name| format!(" ({name})"));
        let cause = io::Error::from_raw_os_error(errno);
        Self { errno, text: format!("cannot {} {what}: {cause}{name}", operation.verb()) }
    }

    pub(super) fn gone(what: &str) -> Self {
        Self::lost(format!(
            "cannot read {what}: another process wrote there, and ended or lost its connection \
             before its data was sent"
        ))
    }

    pub(super) fn unusable(server: &str, error: &io::Error) -> Self {
        Self::lost(format!("cannot use the server {server}: {error}"))
    }

    pub(super) fn lost(text: impl Into<String>) -> Self {
        Self { errno: Errno::IO.raw_os_error(), text: text.into() }
    }
}
