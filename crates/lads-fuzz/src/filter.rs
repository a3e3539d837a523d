//! Whether patterns match what they should, whatever they are, and in a time that grows with the
//! product of both lengths.

use lads_core::filter::{Rule, Verdict, is_included};

/// Longer inputs, in bytes, only have to end: trying all that a pattern might stand for needs stack
/// and memory in proportion to the product of the lengths.
const TRIED_BYTES_MAX: usize = 512;

/// Reads bytes as lines: a path, and a pattern in each line after it. The first byte says whether
/// the path is that of a directory. If matching takes too long, libFuzzer notices (`-timeout`).
///
/// # Panics
/// If a pattern does not match as the rules on `--exclude`, taken word by word, say.
pub fn run(bytes: &[u8]) {
    let Some((&first, lines)) = bytes.split_first() else { return };
    let is_directory = first % 2 == 1;
    let mut lines = lines.split(|&byte| byte == b'\n');
    let path = lines.next().unwrap_or_default();
    let patterns: Vec<&[u8]> = lines.collect();
    let rule = |pattern: &&[u8]| Rule { verdict: Verdict::Exclude, pattern: pattern.to_vec() };
    let rules: Vec<Rule> = patterns.iter().map(rule).collect();
    let is_excluded = !is_included(&rules, path, is_directory);
    if bytes.len() > TRIED_BYTES_MAX {
        return;
    }
    let expected = patterns.iter().any(|pattern| is_matched(pattern, path, is_directory));
    assert_eq!(is_excluded, expected, "{path:?} by {patterns:?}");
}

/// Whether a pattern matches a path, by trying all that it might stand for.
fn is_matched(pattern: &[u8], path: &[u8], is_directory: bool) -> bool {
    let (pattern, is_for_directories) =
        pattern.strip_suffix(b"/").map_or((pattern, false), |pattern| (pattern, true));
    if is_for_directories && !is_directory {
        return false;
    }
    let mut path = path.to_vec();
    if is_directory && pattern.ends_with(b"***") {
        path.push(b'/');
    }
    if let Some(anchored) = pattern.strip_prefix(b"/") {
        return Search::new(anchored, &path).is_match(0, 0);
    }
    if pattern.starts_with(b"**") {
        path.insert(0, b'/');
        return Search::new(pattern, &path).is_match(0, 0);
    }
    let slashes = (0..path.len()).filter(|&at| path[at] == b'/').map(|at| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(slashes).collect();
    let is_of_path = pattern.contains(&b'/') || pattern.windows(2).any(|two| two == b"**");
    let starts = if is_of_path { &starts[..] } else { &starts[starts.len() - 1..] };
    let mut search = Search::new(pattern, &path);
    starts.iter().any(|&start| search.is_match(0, start))
}

/// A search that never tries the same twice.
struct Search<'a> {
    pattern: &'a [u8],
    path: &'a [u8],
    /// By place in the pattern and in the path, whether they were tried in vain.
    refused: Vec<Vec<bool>>,
}

impl<'a> Search<'a> {
    fn new(pattern: &'a [u8], path: &'a [u8]) -> Self {
        let refused = vec![vec![false; path.len() + 1]; pattern.len() + 1];
        Self { pattern, path, refused }
    }

    /// Whether the pattern from `p` on matches all of the path from `t` on.
    fn is_match(&mut self, p: usize, t: usize) -> bool {
        if self.refused[p][t] {
            return false;
        }
        let is_found = self.is_match_now(p, t);
        self.refused[p][t] = !is_found;
        is_found
    }

    fn is_match_now(&mut self, p: usize, t: usize) -> bool {
        let next = self.path.get(t).copied();
        let rest = &self.pattern[p..];
        match rest {
            [] => next.is_none(),
            [b'*', b'*', ..] => {
                self.is_match(p + 2, t) || (next.is_some() && self.is_match(p, t + 1))
            }
            [b'*', ..] => {
                let is_eaten = next.is_some_and(|byte| byte != b'/');
                self.is_match(p + 1, t) || (is_eaten && self.is_match(p, t + 1))
            }
            _ => {
                let (width, is_one) = one_of(rest, next);
                is_one && self.is_match(p + width, t + 1)
            }
        }
    }
}

/// How long what stands for one byte is, and whether it stands for this one.
fn one_of(pattern: &[u8], next: Option<u8>) -> (usize, bool) {
    let Some(byte) = next else { return (1, false) };
    match pattern {
        [b'?', ..] => (1, byte != b'/'),
        [b'\\', literal, ..] => (2, byte == *literal),
        [b'[', rest @ ..] => {
            let is_negated = matches!(rest, [b'!' | b'^', ..]);
            let set = &rest[usize::from(is_negated)..];
            // A bracket that comes first is in the set.
            let Some(length) = set.iter().skip(1).position(|&it| it == b']') else {
                return (1, byte == b'[');
            };
            let is_in = is_in_set(&set[..=length], byte);
            (1 + usize::from(is_negated) + length + 2, is_in != is_negated && byte != b'/')
        }
        [literal, ..] => (1, byte == *literal),
        [] => (0, false),
    }
}

fn is_in_set(set: &[u8], byte: u8) -> bool {
    match set {
        [] => false,
        [first, b'-', last, rest @ ..] => (*first..=*last).contains(&byte) || is_in_set(rest, byte),
        [one, rest @ ..] => *one == byte || is_in_set(rest, byte),
    }
}
