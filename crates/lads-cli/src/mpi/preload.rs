//! What this shell preloads into its programs, and whether it is the right shim.

use super::problem::Problem;
use super::program::Program;
use super::shims::mpi_of_shim;
use lads_shims::Mpi;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The environment variable that names it.
pub(super) const VARIABLE: &str = "LD_PRELOAD";

/// What the environment says.
pub(super) fn value() -> OsString {
    std::env::var_os(VARIABLE).unwrap_or_default()
}

/// The libraries in it.
pub(super) fn entries(value: &OsStr) -> impl Iterator<Item = &OsStr> {
    let parts = value.as_bytes().split(|byte| b" :".contains(byte));
    parts.filter(|it| !it.is_empty()).map(OsStr::from_bytes)
}

/// Whether an entry is, or is called like, a shim.
pub(super) fn is_meant_as_shim(entry: &OsStr) -> bool {
    let name = Path::new(entry).file_name().unwrap_or_default();
    name.as_bytes().starts_with(b"librfs") || mpi_of_shim(Path::new(entry)).is_some()
}

/// Judges what this shell preloads. `todo` sets it right.
pub(super) fn judge(
    program: Option<&Program>,
    mpi: Option<Mpi>,
    todo: &str,
) -> Result<String, Problem> {
    let value = value();
    let bad = |what: String| Err(Problem::new(what, todo));
    if value.is_empty() {
        return bad(format!("{VARIABLE} is not set"));
    }
    let shims: Vec<&Path> =
        entries(&value).filter(|it| is_meant_as_shim(it)).map(Path::new).collect();
    let [shim] = shims.as_slice() else {
        let count = if shims.is_empty() { "no shim" } else { "more than one shim" };
        return bad(format!("{VARIABLE} names {count}: {}", value.display()));
    };
    let shown = shim.display();
    if !shim.is_absolute() {
        return bad(format!("{VARIABLE} names {shown}, which is not an absolute path"));
    }
    let Some(of_shim) = mpi_of_shim(shim) else {
        let lack = if shim.exists() { "is not a shim of LADS" } else { "does not exist" };
        return bad(format!("{VARIABLE} names {shown}, which {lack}"));
    };
    if let Some(mpi) = mpi.filter(|mpi| *mpi != of_shim) {
        let (of_shim, mpi) = (of_shim.title(), mpi.title());
        return bad(format!("{VARIABLE} names {shown}, which is for {of_shim}, not for {mpi}"));
    }
    match program {
        Some(program) => judge_loaded(program, &value, shim),
        None => Ok(format!("{shown}, for {}", of_shim.title())),
    }
}

/// Lets the loader of the program say what it makes of it.
fn judge_loaded(program: &Program, value: &OsStr, shim: &Path) -> Result<String, Problem> {
    let (loaded, shown) = (program.loaded(value)?, shim.display());
    if !loaded.has(shim) {
        return Err(Problem::new(
            format!("{} is not loaded: {}", shown, loaded.complaints),
            "build the shim again on this host, in a checkout of LADS: cargo xtask shims",
        ));
    }
    // The shim may bring another library with the same binary interface. The program's own comes
    // first, so that both use that one.
    Ok(format!("{shown} is loaded with {}", program.name()))
}
