//! The standard descriptors that were closed when the process started.
//!
//! Before `main`, the runtime of Rust opens `/dev/null` in place of a closed one, so that no file
//! gets its number. A program then cannot distinguish `>&-` from `>/dev/null`: it would read an
//! empty input, and report output as written that is lost. So this module looks before the runtime
//! does.

use std::sync::atomic::{AtomicU8, Ordering};

/// A standard descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standard {
    /// Standard input.
    Input = 0,
    /// Standard output.
    Output = 1,
    /// Standard error.
    Error = 2,
}

impl Standard {
    /// Reports whether the descriptor was closed when this process started.
    #[must_use]
    pub fn was_closed(self) -> bool {
        CLOSED.load(Ordering::Relaxed) & (1 << self as u8) != 0
    }
}

/// The closed descriptors, one bit each.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Functions in this section run before `main`, and before the runtime of Rust.
#[used]
// SAFETY: the section holds pointers to C functions, and the C library passes arguments that such a
// function may ignore.
#[unsafe(link_section = ".init_array")]
static LOOK_AT_START: extern "C" fn() = look;

/// Uses nothing of the standard library that needs its runtime.
extern "C" fn look() {
    for descriptor in 0..=2 {
        // SAFETY: F_GETFD takes any number and touches no memory of ours.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}
