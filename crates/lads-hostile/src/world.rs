//! Where a case happens: what is to be moved, the target, and what must stay as it is.
//!
//! ```text
//!   WORLD/src      what an honest source moves
//!   WORLD/dst      where an honest sink writes: the only place where anything may change
//!   WORLD/canary   what a lie would reach: watched byte by byte
//!   WORLD/peer     what the peer writes down, and what the honest end printed
//! ```

use crate::entries::content_of;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// What every file outside holds, so that it is known if it travels.
pub const SECRET: &[u8] = b"this-must-never-leave-its-place-3f9c1a";

/// Files of an honest source: path below `src`, and bytes.
pub const SOURCE_FILES: [(&str, usize); 3] =
    [("one", 300 << 10), ("two", 10), ("dir/three", 5 << 10)];

/// The paths of one case.
#[derive(Clone, Debug)]
pub struct World {
    root: PathBuf,
}

impl World {
    /// The world in this directory.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// All of it.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where an honest sink writes.
    #[must_use]
    pub fn target(&self) -> PathBuf {
        self.root.join("dst")
    }

    /// What an honest source reads.
    #[must_use]
    pub fn source(&self) -> PathBuf {
        self.root.join("src")
    }

    /// How many regular files an honest source finds.
    #[must_use]
    pub fn source_file_count(&self) -> usize {
        let mut waiting = vec![self.source()];
        let mut count = 0;
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => waiting.push(entry.path()),
                    false => count += 1,
                }
            }
        }
        count
    }

    /// What must not change.
    #[must_use]
    pub fn canary(&self) -> PathBuf {
        self.root.join("canary")
    }

    /// What the peer and the command write down.
    #[must_use]
    pub fn peer(&self) -> PathBuf {
        self.root.join("peer")
    }

    /// A file of somebody else, to which links are planted: its names may go, nothing else.
    #[must_use]
    pub fn victim(&self) -> PathBuf {
        self.peer().join("victim")
    }

    /// Makes everything.
    pub(crate) fn make(&self) {
        for directory in [self.source(), self.target(), self.canary(), self.peer()] {
            fs::create_dir(directory).unwrap();
        }
        for (name, size) in SOURCE_FILES {
            let path = self.source().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let base = Path::new(name).file_name().unwrap();
            fs::write(&path, content_of(base.as_encoded_bytes(), size)).unwrap();
        }
        let canary = self.canary();
        fs::create_dir(canary.join("inner")).unwrap();
        for name in ["secret", "inner/secret", "linked"] {
            fs::write(canary.join(name), SECRET).unwrap();
            fs::set_permissions(canary.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        fs::hard_link(canary.join("linked"), canary.join("linked-too")).unwrap();
        fs::write(self.victim(), SECRET).unwrap();
        fs::set_permissions(self.victim(), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("secret", canary.join("link")).unwrap();
        File::create(self.notes()).unwrap();
    }

    /// Writes down what the peer has come to; the peer may be killed at any moment.
    pub fn note(&self, what: &str) {
        let mut notes = OpenOptions::new().append(true).open(self.notes()).unwrap();
        writeln!(notes, "{}", what.escape_debug()).unwrap();
    }

    /// What was written down, line by line.
    #[must_use]
    pub fn noted(&self) -> Vec<String> {
        fs::read_to_string(self.notes()).unwrap().lines().map(str::to_owned).collect()
    }

    fn notes(&self) -> PathBuf {
        self.peer().join("notes")
    }

    /// The name of the journal of the job with these bytes: it ends with a key, whether it is
    /// local, and two ports, none of which is set here (`docs/protocol.md`, sections 4 and 9).
    #[must_use]
    pub fn journal_name(job: &[u8]) -> String {
        const FIELDS_BEHIND: usize = 3;
        let key = &job[..job.len() - FIELDS_BEHIND];
        let (last, before) = key.split_last().unwrap();
        let carried = before.iter().rev().take_while(|&&byte| byte & 0x80 != 0).count();
        let digits = before[before.len() - carried..].iter().chain([last]);
        let number = digits.rev().fold(0u64, |number, byte| number << 7 | u64::from(byte & 0x7f));
        format!(".lads-{number:016x}.journal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::message::wire::Wire as _;

    #[test]
    fn the_journal_is_named_after_the_key_at_the_end_of_the_job() {
        for key in [7u64, 0x80, 0x53cf_e9ee_f00a_ec28, u64::MAX] {
            let mut job = vec![1, 2, 0];
            key.put(&mut job);
            job.extend_from_slice(&[0, 0, 0]);
            assert_eq!(World::journal_name(&job), format!(".lads-{key:016x}.journal"));
        }
    }
}
