//! An error that ends a transfer.

use crate::event::ExitCode;
use lads_core::gate::ProtocolError;
use rustix::io::Errno;

/// Why it cannot go on.
#[derive(Clone, Debug)]
pub(crate) struct Fatal {
    pub(crate) code: ExitCode,
    /// What failed, where, what to do.
    pub(crate) text: String,
    /// True if the other host was reached before it failed, or if this host failed: then it is no
    /// outage if another attempt fails in the same way.
    pub(crate) is_reached: bool,
    /// Reason why no data connection could be opened, if a tunnel may help.
    pub(crate) blocked: Option<String>,
    /// True if no answer arrived in time: meanwhile, the other end could report another reason.
    pub(crate) is_timeout: bool,
}

impl Fatal {
    pub(crate) fn new(code: ExitCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), is_reached: false, blocked: None, is_timeout: false }
    }

    /// Marks this as an error that a tunnel may avoid.
    pub(crate) fn when_blocked(self, reason: String) -> Self {
        Self { blocked: Some(reason), ..self }
    }

    /// Marks this as an error of a host that was reached.
    pub(crate) fn when_reached(self) -> Self {
        Self { is_reached: true, ..self }
    }
}

/// The error that the storage of the sink refuses what the whole transfer needs, with advice if the
/// reason is known. `text` names the call and the path.
pub(crate) fn refused(text: &str, errno: Errno) -> Fatal {
    let advice = match errno {
        Errno::NOSPC => "; free space or inodes there, then run the same command again",
        Errno::DQUOT => {
            "; free or raise the quota there (`quota`, `lfs quota`), then run the same command \
             again"
        }
        Errno::ACCESS | Errno::PERM => "; get permission to do that, or choose another DST",
        Errno::ROFS => "; that file system is mounted read-only: choose another DST",
        _ => "",
    };
    Fatal::new(ExitCode::SinkRefuses, format!("{text}: {errno}{advice}"))
}

/// The name of this host, for messages.
pub(crate) fn own_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The other end broke the protocol.
pub(crate) fn breach(error: &ProtocolError) -> Fatal {
    Fatal::new(ExitCode::Network, format!("the transfer cannot continue: {error}"))
}

/// The exit code for a code that the other end sent.
pub(crate) fn exit_code_from(code: u8) -> ExitCode {
    [
        ExitCode::Usage,
        ExitCode::SourceUnreadable,
        ExitCode::Refused,
        ExitCode::Network,
        ExitCode::SinkRefuses,
        ExitCode::Mismatch,
        ExitCode::SourceChanged,
        ExitCode::Interrupted,
        ExitCode::Running,
    ]
    .into_iter()
    .find(|known| *known as u8 == code)
    .unwrap_or(ExitCode::Other)
}
