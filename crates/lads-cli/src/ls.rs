//! `lads ls`: the entries of directories, in the order of their names.

use crate::args::LsArgs;
use crate::complain;
use crate::display::{PathText, escape};
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use lads_core::sizes;
use lads_engine::{Names, names_of_groups, names_of_users};
use rustix::fs::{FileType, Mode};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Lists every path. If a path cannot be listed, this is reported, and the others are listed.
pub(crate) fn run(args: &LsArgs) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut failed_count = 0u64;
    let mut fail = |path: &Path, error: &io::Error| {
        failed_count += 1;
        complain(&format!("{}: {error}", path.display()));
    };
    let (mut entries, mut directories) = (Vec::new(), Vec::new());
    for path in &args.paths {
        match Entry::read(path.clone(), path.as_os_str().to_owned()) {
            Ok(entry) if entry.leads_to_directory() && !args.directory => directories.push(path),
            Ok(entry) => entries.push(entry),
            Err(error) => fail(path, &error),
        }
    }
    print(&entries, args, &mut out)?;
    let has_titles = args.paths.len() > 1 && !args.json;
    let mut is_first = entries.is_empty();
    for directory in directories {
        let listed = match list(directory, args, &mut fail) {
            Ok(listed) => listed,
            Err(error) => {
                fail(directory, &error);
                continue;
            }
        };
        if has_titles {
            let gap = if is_first { "" } else { "\n" };
            writeln!(out, "{gap}{}:", escape(directory.as_os_str().as_bytes()))?;
        }
        is_first = false;
        print(&listed, args, &mut out)?;
    }
    out.flush().context("cannot write to standard output")?;
    drop(out);
    ensure!(failed_count == 0, "{} not listed", sizes::counted(failed_count, "entry"));
    Ok(())
}

/// Returns the entries of a directory.
fn list(
    directory: &Path,
    args: &LsArgs,
    fail: &mut impl FnMut(&Path, &io::Error),
) -> io::Result<Vec<Entry>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<io::Result<Vec<OsString>>>()?;
    names.retain(|name| args.all || !name.as_bytes().starts_with(b"."));
    names.sort();
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        let path = directory.join(&name);
        let shown = if args.json { path.clone().into_os_string() } else { name };
        match Entry::read(path.clone(), shown) {
            Ok(entry) => entries.push(entry),
            // It was removed since the directory was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => fail(&path, &error),
        }
    }
    Ok(entries)
}

/// Entry of a directory, or a path of the command line.
struct Entry {
    path: PathBuf,
    /// Name to print.
    name: OsString,
    metadata: Metadata,
    /// Target of a symbolic link.
    target: Option<PathBuf>,
}

impl Entry {
    fn read(path: PathBuf, name: OsString) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(&path)?;
        let target = metadata.is_symlink().then(|| fs::read_link(&path).ok()).flatten();
        Ok(Self { path, name, metadata, target })
    }

    fn leads_to_directory(&self) -> bool {
        self.metadata.is_dir() || self.target.is_some() && self.path.is_dir()
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.metadata.mode())
    }

    /// Returns the printed name: directories end with a slash.
    fn shown(&self) -> String {
        let name = self.name.as_bytes();
        let slash = if self.metadata.is_dir() && !name.ends_with(b"/") { "/" } else { "" };
        format!("{}{slash}", escape(name))
    }

    fn changed(&self) -> Option<Timestamp> {
        let nanos = i32::try_from(self.metadata.mtime_nsec()).ok()?;
        Timestamp::new(self.metadata.mtime(), nanos).ok()
    }

    fn json(&self) -> Described<'_> {
        Described {
            path: PathText::new(self.name.as_bytes()),
            kind: kind_word(self.kind()),
            bytes: self.metadata.size(),
            mode: format!("{:04o}", self.metadata.mode() & 0o7777),
            uid: self.metadata.uid(),
            gid: self.metadata.gid(),
            mtime: self.changed().map(|it| it.to_string()),
            target: self.target.as_ref().map(|it| it.to_string_lossy()),
        }
    }

    fn columns(&self, users: &Names, groups: &Names) -> [String; 5] {
        let (uid, gid) = (self.metadata.uid(), self.metadata.gid());
        let named =
            |names: &Names, id: u32| names.get(&id).cloned().unwrap_or_else(|| id.to_string());
        let changed = self.changed().map(|it| it.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        [
            permissions(self.kind(), self.metadata.mode()),
            named(users, uid),
            named(groups, gid),
            sizes::bytes(self.metadata.size()),
            changed.unwrap_or_else(|| self.metadata.mtime().to_string()),
        ]
    }
}

/// Entry as JSON.
#[derive(Serialize)]
struct Described<'a> {
    #[serde(flatten)]
    path: PathText,
    kind: &'static str,
    bytes: u64,
    mode: String,
    uid: u32,
    gid: u32,
    mtime: Option<String>,
    target: Option<Cow<'a, str>>,
}

fn print(entries: &[Entry], args: &LsArgs, out: &mut dyn Write) -> io::Result<()> {
    if args.json {
        return entries.iter().try_for_each(|entry| {
            serde_json::to_writer(&mut *out, &entry.json())?;
            writeln!(out)
        });
    }
    if !args.long {
        return entries.iter().try_for_each(|entry| writeln!(out, "{}", entry.shown()));
    }
    let ids = |id: fn(&Metadata) -> u32| -> BTreeSet<u32> {
        entries.iter().map(|entry| id(&entry.metadata)).collect()
    };
    let users = names_of_users(&ids(Metadata::uid));
    let groups = names_of_groups(&ids(Metadata::gid));
    let rows: Vec<_> = entries.iter().map(|entry| entry.columns(&users, &groups)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(1), width(2), width(3)];
    for (entry, [mode, user, group, size, changed]) in entries.iter().zip(&rows) {
        let [user_width, group_width, size_width] = widths;
        write!(out, "{mode} {user:user_width$} {group:group_width$} {size:>size_width$} ")?;
        write!(out, "{changed} {}", entry.shown())?;
        match &entry.target {
            Some(target) => writeln!(out, " -> {}", escape(target.as_os_str().as_bytes()))?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn kind_word(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character-device",
        FileType::BlockDevice => "block-device",
        _ => "unknown",
    }
}

/// Returns kind and permissions as `ls -l` prints them: `drwxr-sr-x`.
fn permissions(kind: FileType, mode: u32) -> String {
    let mode = Mode::from_raw_mode(mode);
    let kind = match kind {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '-',
    };
    let classes = [
        (Mode::RUSR, Mode::WUSR, Mode::XUSR, Mode::SUID, 's'),
        (Mode::RGRP, Mode::WGRP, Mode::XGRP, Mode::SGID, 's'),
        (Mode::ROTH, Mode::WOTH, Mode::XOTH, Mode::SVTX, 't'),
    ];
    let mut text = String::from(kind);
    for (read, write, execute, special, letter) in classes {
        text.push(if mode.contains(read) { 'r' } else { '-' });
        text.push(if mode.contains(write) { 'w' } else { '-' });
        text.push(match (mode.contains(execute), mode.contains(special)) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Returns the pattern of all paths that begin with `prefix`.
pub(crate) fn pattern_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::new();
    for &byte in prefix {
        if b"*?[\\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_printed_as_ls_prints_them() {
        for (kind, mode, expected) in [
            (FileType::RegularFile, 0o644, "-rw-r--r--"),
            (FileType::Directory, 0o1777, "drwxrwxrwt"),
            (FileType::Directory, 0o2755, "drwxr-sr-x"),
            (FileType::RegularFile, 0o4644, "-rwSr--r--"),
            (FileType::Symlink, 0o777, "lrwxrwxrwx"),
            (FileType::Fifo, 0, "p---------"),
        ] {
            assert_eq!(permissions(kind, mode), expected);
        }
    }
}
