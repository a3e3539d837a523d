//! Expands `~` and patterns in paths that the user wrote for another host, because no shell expands
//! them there.

use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::names::getent;
use lads_core::filter::{Rule, Verdict};
use lads_core::issue::Side;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Expands the paths of an end as a shell expands unquoted words: `~` and `~user` at the beginning
/// become home directories; at the source, `*`, `?` and `[...]` match existing names, in the order
/// of their bytes. Only a dot matches a dot at the beginning of a name.
///
/// Unlike in a shell, a path of an existing entry is never a pattern. A pattern without a match is
/// kept, and then reported as missing.
///
/// # Errors
///
/// If a user is unknown.
pub(crate) fn expand(paths: Vec<Vec<u8>>, side: Side) -> Result<Vec<Vec<u8>>, Fatal> {
    let paths: Result<Vec<_>, _> = paths.into_iter().map(|path| at_home(path, side)).collect();
    match side {
        Side::Source => Ok(paths?.into_iter().flat_map(matched).collect()),
        Side::Sink => paths,
    }
}

/// Expands paths as those of a source.
///
/// # Errors
///
/// If a user is unknown, with the exit code of a transfer for the same reason.
pub fn expand_paths(paths: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, (ExitCode, String)> {
    expand(paths, Side::Source).map_err(|fatal| (fatal.code, fatal.text))
}

/// Replaces `~` or `~user` at the beginning of a path.
fn at_home(path: Vec<u8>, side: Side) -> Result<Vec<u8>, Fatal> {
    let Some(behind) = path.strip_prefix(b"~") else { return Ok(path) };
    let end = behind.iter().position(|&byte| byte == b'/').unwrap_or(behind.len());
    let (user, rest) = behind.split_at(end);
    let home = match user {
        b"" => own_home(),
        user => home_of(user),
    };
    let home = home.ok_or_else(|| {
        let code = match side {
            Side::Source => ExitCode::SourceUnreadable,
            Side::Sink => ExitCode::SinkRefuses,
        };
        let user = String::from_utf8_lossy(user);
        let text = format!("~{user} has no home directory; write ./~{user} for such a name");
        Fatal::new(code, text)
    })?;
    Ok([&home, rest].concat())
}

fn own_home() -> Option<Vec<u8>> {
    let home = std::env::var_os("HOME").map(OsStringExt::into_vec);
    let uid = rustix::process::getuid().as_raw().to_string();
    home.filter(|home| home.starts_with(b"/")).or_else(|| home_of(uid.as_bytes()))
}

/// Returns the home directory of a user.
fn home_of(user: &[u8]) -> Option<Vec<u8>> {
    let printed = getent("passwd", [OsStr::from_bytes(user)]).ok()?;
    let line = printed.split(|&byte| byte == b'\n').next()?;
    let home = line.split(|&byte| byte == b':').nth(5)?;
    home.starts_with(b"/").then(|| home.to_vec())
}

/// Returns the entries that match a path.
fn matched(path: Vec<u8>) -> Vec<Vec<u8>> {
    if !is_wild(&path) || is_there(&path) {
        return vec![path];
    }
    let mut found = vec![if path.starts_with(b"/") { b"/".to_vec() } else { Vec::new() }];
    let mut rest = path.as_slice();
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let slashes = rest[end..].iter().take_while(|&&byte| byte == b'/').count();
        let (component, slash) = (&rest[..end], if slashes > 0 { &b"/"[..] } else { b"" });
        rest = &rest[end + slashes..];
        if component.is_empty() {
            continue;
        }
        let names = |directory: &Vec<u8>| match is_wild(component) {
            true => names(directory, component),
            false => vec![component.to_vec()],
        };
        found = found
            .iter()
            .flat_map(|directory| {
                let place = |name: Vec<u8>| [directory, name.as_slice(), slash].concat();
                names(directory).into_iter().map(place).collect::<Vec<_>>()
            })
            .filter(|path| is_there(path))
            .collect();
    }
    if found.is_empty() { vec![path] } else { found }
}

fn is_wild(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| b"*?[".contains(byte))
}

/// Reports whether an entry exists; with a slash at the end of the path, whether it is a directory.
fn is_there(path: &[u8]) -> bool {
    fs::symlink_metadata(Path::new(OsStr::from_bytes(path))).is_ok()
}

/// Returns the names in a directory that match a pattern, in the order of their bytes.
fn names(directory: &[u8], pattern: &[u8]) -> Vec<Vec<u8>> {
    let directory = if directory.is_empty() { b"." } else { directory };
    let Ok(entries) = fs::read_dir(OsStr::from_bytes(directory)) else { return Vec::new() };
    let rule = Rule { verdict: Verdict::Include, pattern: pattern.to_vec() };
    let is_match = |name: &Vec<u8>| {
        name.starts_with(b".") == pattern.starts_with(b".") && rule.matches(name, false)
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().into_vec()));
    let mut names: Vec<_> = names.filter(is_match).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests;
