//! Scripts in place of programs.

use std::io::Result;
use std::path::Path;
use std::process::Command;

/// Writes a shell script that can be started at once.
///
/// Another program writes it. If this process wrote it, a program that another thread starts at the
/// same moment would hold the script open for writing until it runs, and until then the kernel
/// starts no script that is open for writing (`ETXTBSY`).
///
/// # Errors
///
/// If the script cannot be written.
pub fn write_script(path: &Path, text: &str) -> Result<()> {
    const WRITE: &str = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
    let status = Command::new("sh").args(["-c", WRITE, "sh"]).arg(path).arg(text).status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(status.to_string())) }
}
