//! Collects what the tests left out, and why, for the end of `cargo xtask ci`.
//!
//! A test leaves out what the machine does not have or does not permit, and adds a line to a list
//! (`lads-tried`). If the environment has `CI` set, everything that `cargo xtask setup` installs
//! must be there: a test that misses it has failed.

use crate::{setup, shell};
use anyhow::{Context, Result, bail};
use lads_tried::{LIST_VARIABLE, Lack, NotTried};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;

/// The file in which tests list what they left out.
#[derive(Debug)]
pub(crate) struct NotTriedList {
    path: PathBuf,
}

impl NotTriedList {
    /// An empty list.
    pub(crate) fn begin() -> Self {
        let name = format!("lads-not-tried-{}", std::process::id());
        Self { path: std::env::temp_dir().join(name) }
    }

    /// The environment variable that tells tests where the list is.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (LIST_VARIABLE, self.path.clone())
    }

    /// Prints what was not tried.
    ///
    /// # Errors
    /// If something is missing that should be there.
    pub(crate) fn judge(&self) -> Result<()> {
        let text = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("cannot read {}", self.path.display()))?,
        };
        // Usually the file does not exist.
        let _ = std::fs::remove_file(&self.path);
        let lacks = by_lack(&text);
        let tests: BTreeSet<&String> = lacks.values().flatten().collect();
        println!("{} tests skipped a part", tests.len());
        for (lack, tests) in &lacks {
            println!("{:>8}  {lack}", tests.len());
        }
        let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        match should_be_there(&lacks, |program| shell::find(program).is_some(), is_ci) {
            missing if missing.is_empty() => Ok(()),
            missing => bail!("not tried, though `cargo xtask setup` installs it: {missing:?}"),
        }
    }
}

/// The tests that miss each thing.
fn by_lack(list: &str) -> BTreeMap<Lack, BTreeSet<String>> {
    let mut lacks: BTreeMap<Lack, BTreeSet<String>> = BTreeMap::new();
    for NotTried { test, lack } in list.lines().filter_map(NotTried::parse) {
        lacks.entry(lack).or_default().insert(test);
    }
    lacks
}

/// The programs that a test missed although they are installed or must be.
fn should_be_there(
    lacks: &BTreeMap<Lack, BTreeSet<String>>,
    is_there: impl Fn(&str) -> bool,
    is_ci: bool,
) -> Vec<String> {
    let programs = lacks.keys().filter_map(|lack| match lack {
        Lack::Program(name) => Some(name),
        Lack::Machine(_) => None,
    });
    programs.filter(|name| is_there(name) || is_ci && setup::installs(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "program\trsync\ta_test\nmachine\tthis needs root\tb_test\n\
                        program\trsync\tc_test\nprogram\todd\tc_test\nprogram\trsync\ta_test\n";

    #[test]
    fn tests_are_counted_by_what_they_miss() {
        let counts: Vec<(String, usize)> = by_lack(LIST)
            .into_iter()
            .map(|(lack, tests)| (lack.to_string(), tests.len()))
            .collect();
        let expected = [("odd is not installed", 1), ("rsync is not installed", 2)];
        let expected = expected.into_iter().chain([("this needs root", 1)]);
        assert_eq!(counts, expected.map(|(it, count)| (it.to_owned(), count)).collect::<Vec<_>>());
    }

    #[test]
    fn what_setup_installs_must_be_there_in_ci_and_elsewhere_need_not() {
        let lacks = by_lack(LIST);
        assert_eq!(should_be_there(&lacks, |_| false, true), ["rsync"]);
        assert!(should_be_there(&lacks, |_| false, false).is_empty());
        assert_eq!(should_be_there(&lacks, |program| program == "odd", false), ["odd"]);
    }
}
