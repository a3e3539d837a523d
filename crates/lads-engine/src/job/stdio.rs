//! `-`: standard input as a source, standard output as a target.

use super::{Job, Options, Tunnel, Verify};
use crate::event::ExitCode;
use crate::fatal::Fatal;
use std::time::Duration;

/// The path that stands for standard input or output. `./-` is a file.
pub(crate) const STDIO: &[u8] = b"-";

/// How often a thread that waits for the other end of a pipe, or for a file to grow, looks whether
/// the transfer is to stop. With half, a waiting transfer takes more of a processor than it need;
/// with double, a user waits 0.2 s for Ctrl-C. Not measured.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How much a pipe to or from another program should hold, in bytes: as much as Linux lets a user
/// have, as with the pipes of a tunnel. 1 GiB through a pipe into a file in memory takes 0.53 s
/// (median of 7), and 1.65 s with the 64 KiB that a pipe holds otherwise.
pub(crate) const PIPE_BYTES: usize = 1 << 20;

/// Whether a path stands for standard input or output.
pub(crate) fn is_stdio(path: &[u8]) -> bool {
    path == STDIO
}

/// A path on another host: `-` is a file there, because standard input and output of the process
/// there carry messages.
pub(crate) fn on_other_host(path: &[u8]) -> Vec<u8> {
    if is_stdio(path) { b"./-".to_vec() } else { path.to_vec() }
}

impl Job {
    /// Reports whether an end can be read or written only once, from its beginning to its end:
    /// after an outage, nothing can go on with it.
    #[must_use]
    pub fn is_once(&self) -> bool {
        let is_stdio = self.sources.iter().chain([&self.target]).any(|it| is_stdio(&it.path));
        is_stdio || self.options.copy_devices || self.options.write_devices
    }

    /// Reports whether another attempt may send the data through the remote shell if no separate
    /// connection can be opened.
    pub(crate) fn can_tunnel(&self) -> bool {
        self.remote.tunnel == Tunnel::IfBlocked && !self.is_once()
    }
}

/// Checks that options have a meaning for a source that is a single file of an unusual sort: a
/// pipe, a device, a file that grows.
///
/// # Errors
/// What has none.
pub(crate) fn check_input(paths: &[Vec<u8>], options: &Options) -> Result<(), Fatal> {
    let text = match () {
        () if paths.len() > 1 => "-, a FIFO, a device or a growing file must be the only SRC",
        () if options.check => "lads check needs files that can be read twice",
        () if options.dry_run => "--dry-run needs files that can be examined",
        () if options.deletion.is_some() => "--delete needs whole directories as SRC",
        () if options.removes_sources => {
            "--remove-source-files needs complete regular files as SRC"
        }
        () if options.files_from.is_some() => "--files-from needs a directory as SRC",
        () => return Ok(()),
    };
    Err(Fatal::new(ExitCode::Usage, text))
}

/// Checks that options have a meaning for a target that is a pipe or a device.
///
/// # Errors
/// The option that has none.
pub(crate) fn check_output(options: &Options) -> Result<(), Fatal> {
    let option = match () {
        () if options.check => "lads check",
        () if options.dry_run => "--dry-run",
        () if options.deletion.is_some() => "--delete",
        () if options.removes_sources => "--remove-source-files",
        () if options.verify == Verify::Media => "--verify media",
        () if options.stage.is_some() => "a stage",
        () => return Ok(()),
    };
    Err(Fatal::new(
        ExitCode::Usage,
        format!("{option} cannot be used if DST is a pipe or a device"),
    ))
}
