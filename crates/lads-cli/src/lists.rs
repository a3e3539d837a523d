//! Reads the files that `--exclude-from`, `--include-from` and `--files-from` name.

use anyhow::{Context, Result, bail, ensure};
use lads_core::filter::{Rule, Verdict};
use lads_sys::Standard;
use std::io::Read;
use std::path::Path;

/// What separates the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// A line ends with a line feed, a carriage return, or both.
    Line,
    /// Entries end with a zero byte.
    Zero,
}

/// The entries of a file, without empty ones and comments; `-` is stdin.
pub(crate) fn read(path: &Path, separator: Separator) -> Result<Vec<Vec<u8>>> {
    let content = if path == Path::new("-") {
        ensure!(!Standard::Input.was_closed(), "cannot read stdin: it is closed");
        let mut content = Vec::new();
        std::io::stdin().read_to_end(&mut content).context("cannot read stdin")?;
        content
    } else {
        std::fs::read(path).with_context(|| format!("cannot read the list {}", path.display()))?
    };
    Ok(split(&content, separator))
}

fn split(content: &[u8], separator: Separator) -> Vec<Vec<u8>> {
    let is_end = |byte: &u8| match separator {
        Separator::Line => matches!(byte, b'\n' | b'\r'),
        Separator::Zero => *byte == 0,
    };
    let is_comment = |entry: &&[u8]| matches!(entry.first(), None | Some(b'#' | b';'));
    content.split(is_end).filter(|entry| !is_comment(entry)).map(<[u8]>::to_vec).collect()
}

/// Adds a pattern to the rules as rsync does. A pattern that begins with `+ ` or `- ` says itself
/// whether to include or exclude; `!` removes all rules so far.
pub(crate) fn push_pattern(rules: &mut Vec<Rule>, verdict: Verdict, pattern: &[u8]) {
    let (verdict, pattern) = match pattern {
        b"!" => return rules.clear(),
        [b'+', b' ', rest @ ..] => (Verdict::Include, rest),
        [b'-', b' ', rest @ ..] => (Verdict::Exclude, rest),
        _ => (verdict, pattern),
    };
    rules.push(Rule { verdict, pattern: pattern.to_vec() });
}

/// Returns a path below the source, as `--files-from` gives it, without redundant slashes. A slash
/// at the end remains: a link to a directory then stands for the directory. A path that leads out
/// of the source is an error.
pub(crate) fn relative_path(path: &[u8]) -> Result<Vec<u8>> {
    let is_needless = |part: &&[u8]| part.is_empty() || *part == b".";
    let parts: Vec<&[u8]> =
        path.split(|&byte| byte == b'/').filter(|part| !is_needless(part)).collect();
    if parts.contains(&b"..".as_slice()) {
        bail!(
            "`{}` in --files-from leads out of SRC",
            String::from_utf8_lossy(path).escape_debug()
        );
    }
    let mut joined = parts.join(&b'/');
    let last = path.rsplit(|&byte| byte == b'/').next();
    if !joined.is_empty() && last.is_some_and(|part| is_needless(&part)) {
        joined.push(b'/');
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_zero_bytes_part_entries_and_comments_are_left_out() {
        let content = b"# comment\n\na b\r\n; other\nc\n";
        assert_eq!(split(content, Separator::Line), [b"a b".to_vec(), b"c".to_vec()]);
        let content = b"a\nb\0\0#c\0d\0";
        assert_eq!(split(content, Separator::Zero), [b"a\nb".to_vec(), b"d".to_vec()]);
    }

    #[test]
    fn patterns_may_say_themselves_what_they_do() {
        let mut rules = Vec::new();
        for pattern in ["forgotten", "!", "*.o", "+ *.h", "- *"] {
            push_pattern(&mut rules, Verdict::Exclude, pattern.as_bytes());
        }
        let rules: Vec<_> = rules.iter().map(|rule| (rule.verdict, &rule.pattern[..])).collect();
        assert_eq!(
            rules,
            [
                (Verdict::Exclude, b"*.o".as_slice()),
                (Verdict::Include, b"*.h".as_slice()),
                (Verdict::Exclude, b"*".as_slice()),
            ]
        );
    }

    #[test]
    fn listed_paths_stay_below_the_source() {
        assert_eq!(relative_path(b"/a//./b").unwrap(), b"a/b");
        assert_eq!(relative_path(b"a//b//").unwrap(), b"a/b/");
        assert_eq!(relative_path(b"a/.").unwrap(), b"a/");
        assert_eq!(relative_path(b"a/./").unwrap(), b"a/");
        assert_eq!(relative_path(b"./#a").unwrap(), b"#a");
        assert_eq!(relative_path(b"./").unwrap(), b"");
        assert!(relative_path(b"a/../../b").is_err());
    }
}
