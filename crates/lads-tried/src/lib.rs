//! What a test needs that not every machine has: programs, root, file systems that can be mounted.
//!
//! A test that misses something says so and passes. So that this is not taken for a promise that
//! was kept, it is said past the test runner, which hides what a test that passes prints; and if
//! [`LIST_VARIABLE`] names a file, it is written there, too: `cargo xtask ci` counts it.

mod lack;
mod pace;
mod script;
mod sshd;

pub use lack::{LIST_VARIABLE, Lack, NotTried, find, has, is_root, not_tried};
pub use pace::Stopwatch;
pub use script::write_script;
pub use sshd::{Account, Sshd};
