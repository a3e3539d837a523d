//! A line of progress on a terminal, for commands that do one thing after the other.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The shortest time between two redraws of the line.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// The line. Where stderr is no terminal, nothing is shown.
pub(crate) struct ProgressLine {
    is_shown: bool,
    drawn: Instant,
}

impl ProgressLine {
    /// An empty line; with `is_quiet` it stays empty.
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_shown: io::stderr().is_terminal() && !is_quiet, drawn: Instant::now() }
    }

    /// Shows a text, unless one was shown a moment ago and this is not the last.
    pub(crate) fn show(&mut self, is_last: bool, text: impl FnOnce() -> String) {
        if self.is_shown && (is_last || self.drawn.elapsed() >= REDRAW_INTERVAL) {
            self.drawn = Instant::now();
            // If stderr is closed, nobody waits for progress.
            let _ = write!(io::stderr(), "\rlads: {}\x1b[K", text());
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
