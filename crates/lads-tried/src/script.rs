//! Scripts that replace programs.

use std::io::Result;
use std::path::Path;
use std::process::Command;

/// Writes a shell script that can be started at once.
///
/// Another process writes the file. A child that another thread of this process forks at the same
/// time inherits all open files until it calls exec, and the kernel does not start a script that is
/// open for writing (`ETXTBSY`).
///
/// # Errors
///
/// If the script cannot be written.
pub fn write_script(path: &Path, text: &str) -> Result<()> {
    const WRITE: &str = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
    let status = Command::new("sh").args(["-c", WRITE, "sh"]).arg(path).arg(text).status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(status.to_string())) }
}
