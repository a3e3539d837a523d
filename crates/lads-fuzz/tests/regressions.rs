//! Inputs that once led to what must not be, and those that the fuzzer begins with, lead nowhere
//! bad.
//!
//! One test, alone in its program: what a target may allocate is counted for the whole process.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn what_was_found_once_is_not_found_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for target in lads_fuzz::TARGETS {
        let kinds = ["seeds", "regressions"].map(|kind| root.join(kind).join(target.name));
        let inputs: Vec<PathBuf> = kinds.iter().flat_map(|kind| files_of(kind)).collect();
        assert!(!inputs.is_empty(), "{} has no seeds", target.name);
        for input in inputs {
            // The last line before an end by force says which one it was.
            println!("{}", input.display());
            lads_fuzz::run(target.name, &fs::read(&input).unwrap());
        }
    }
}

/// Files of a directory; none if it is not there, for most targets have no regression.
fn files_of(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
