//! The sources that a user named.

use crate::board::Board;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::{Options, null};
use crate::paths::{Directory, NOT_THROUGH_LINKS, open_named, open_named_to_look_up};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::message::Root;
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A source named on the command line.
#[derive(Debug)]
pub(crate) struct WalkRoot {
    given: Vec<u8>,
    /// The directory in which the name is looked up; the named directory itself for its contents.
    pub(super) directory: Arc<Directory>,
    pub(super) name: Vec<u8>,
    pub(super) is_directory: bool,
    pub(super) is_contents_only: bool,
}

impl WalkRoot {
    /// The place of a source that no walk finds. Nothing is looked up in it.
    pub(super) fn without_storage(name: &[u8], is_directory: bool) -> Result<Self, Fatal> {
        let directory = open_named(b"/").map_err(|errno| {
            Fatal::new(ExitCode::SourceUnreadable, format!("cannot open the directory /: {errno}"))
        })?;
        Ok(Self {
            given: null::PLACE.to_vec(),
            directory: Directory::root(directory),
            name: name.to_vec(),
            is_directory,
            is_contents_only: false,
        })
    }

    pub(super) fn os_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.given))
    }

    /// The source as the sink is told.
    pub(super) fn announced(&self) -> Root {
        Root {
            name: self.name.clone(),
            is_directory: self.is_directory,
            is_contents_only: self.is_contents_only,
        }
    }
}

/// Looks up the named sources. Each one that is missing is reported as an entry that failed. It is
/// an error only if none is left.
pub(super) fn find_roots(
    paths: &[Vec<u8>],
    options: &Options,
    board: &Board,
) -> Result<Vec<WalkRoot>, Fatal> {
    if options.files_from.is_some() && paths.len() > 1 {
        let text =
            format!("--files-from needs exactly one SRC; the pattern matches {}", paths.len());
        return Err(Fatal::new(ExitCode::Usage, text));
    }
    let mut roots = Vec::new();
    let mut absent = Vec::new();
    for path in paths {
        match find_root(path, options) {
            Ok(root) => roots.push(root),
            Err(errno) => absent.push((path, errno)),
        }
    }
    for (path, errno) in &absent {
        board.issue((*path).clone(), missing(*errno));
    }
    if roots.is_empty() && !absent.is_empty() {
        let text = "there is nothing to move: none of the named sources can be examined";
        return Err(Fatal::new(ExitCode::SourceUnreadable, text));
    }
    Ok(roots)
}

/// The failure of a named source.
pub(super) fn missing(errno: Errno) -> Failure {
    Failure::new(Side::Source, Operation::Examine, Reason::Os(errno.raw_os_error()))
}

fn find_root(path: &[u8], options: &Options) -> Result<WalkRoot, Errno> {
    let trimmed = path.trim_suffix_slashes();
    let last = trimmed.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
    let is_list = options.files_from.is_some();
    let is_contents_only = is_list || path.ends_with(b"/") || matches!(last, b"" | b"." | b"..");
    if is_contents_only {
        // A list names the entries.
        let open = if is_list { open_named_to_look_up } else { open_named };
        let directory = Directory::root(open(path)?);
        let given = path.to_vec();
        let name = b".".to_vec();
        return Ok(WalkRoot { given, directory, name, is_directory: true, is_contents_only });
    }
    let parent = &trimmed[..trimmed.len() - last.len()];
    let directory = Directory::place_of_root(open_named_to_look_up(parent)?);
    let flags = if options.copy_links { AtFlags::empty() } else { NOT_THROUGH_LINKS };
    let stat = statat(directory.open()?, last, flags)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let (given, name) = (path.to_vec(), last.to_vec());
    Ok(WalkRoot { given, directory, name, is_directory, is_contents_only })
}

trait TrimSlashes {
    fn trim_suffix_slashes(&self) -> &[u8];
}

impl TrimSlashes for [u8] {
    fn trim_suffix_slashes(&self) -> &[u8] {
        let count = self.iter().rev().take_while(|&&byte| byte == b'/').count();
        &self[..self.len() - count]
    }
}
