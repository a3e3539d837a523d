//! The file with the token of a server, as this shell has it.

use super::problem::{Problem, quoted};
use lads_engine::remote::{Token, read_token};
use std::path::{Path, PathBuf};

/// The environment variable that names it.
pub(super) const VARIABLE: &str = "LADS_RFS_TOKEN_FILE";

/// Where the documentation puts it, below the home directory.
const USUAL: &str = ".rfs-token";

/// The file that the environment names.
pub(super) fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|it| !it.is_empty()).map(PathBuf::from)
}

/// The file where it usually is, if there is one.
pub(super) fn usual() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(USUAL)).filter(|path| path.is_file())
}

/// Reads the token; it is used only if it is this user's alone.
pub(super) fn read(path: &Path) -> Result<Token, Problem> {
    let shown = path.display();
    let todo = match path.exists() {
        true => format!(
            "it must belong to you, with mode 600: chmod 600 {}",
            quoted(&shown.to_string())
        ),
        false => {
            "copy the file that lads rfs serve --token-file created on the server's host".to_owned()
        }
    };
    read_token(path)
        .map_err(|error| Problem::new(format!("cannot use the token in {shown}: {error}"), todo))
}

/// Nothing says where the token is.
pub(super) fn missing() -> Problem {
    let todo = match usual() {
        Some(path) => format!("export {VARIABLE}={}", quoted(&path.display().to_string())),
        None => format!(
            "copy the file that lads rfs serve --token-file created on the server's host, and set \
             {VARIABLE} to it"
        ),
    };
    Problem::new(
        format!(
            "no token: {VARIABLE} is not set (a program may give the hint rfs_token_file instead)"
        ),
        todo,
    )
}
