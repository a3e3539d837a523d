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

/// Reports whether a pattern matches a path, by trying everything that the pattern may stand for.
fn is_matched(pattern: &[u8], path: &[u8], is_directory: bool) -> bool {
    let (pattern, is_for_directories) = match pattern {
        [start @ .., b'/'] if !start.is_empty() => (start, true),
        _ => (pattern, false),
    };
    if is_for_directories && !is_directory {
        return false;
    }
    let components: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    // The path from each of its components on, first to last.
    let ends: Vec<Vec<u8>> = (0..components.len()).map(|at| components[at..].join(&b'/')).collect();
    let is_wild = pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
    let is_one = |pattern: &[u8], end: &[u8]| match is_wild {
        true => Search::new(pattern, end).is_match(0, 0),
        false => pattern == end,
    };
    let has_two_stars = pattern.windows(2).any(|two| two == b"**");
    let behind = if is_directory && pattern.ends_with(b"***") { &b"/"[..] } else { b"" };
    if let Some(anchored) = pattern.strip_prefix(b"/") {
        return is_one(anchored, &[path, behind].concat());
    }
    if pattern.starts_with(b"**") {
        return is_one(pattern, &[b"/", path, behind].concat());
    }
    if has_two_stars {
        return ends.iter().any(|end| is_one(pattern, &[end, behind].concat()));
    }
    let slash_count = pattern.iter().filter(|&&byte| byte == b'/').count();
    ends.iter().rev().nth(slash_count).is_some_and(|end| is_one(pattern, end))
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
                let width = rest.iter().take_while(|&&byte| byte == b'*').count();
                self.is_match(p + width, t) || (next.is_some() && self.is_match(p, t + 1))
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

/// Returns the length of the piece of a pattern that stands for one byte, and whether it stands for
/// this byte.
fn one_of(pattern: &[u8], next: Option<u8>) -> (usize, bool) {
    let Some(byte) = next else { return (1, false) };
    match pattern {
        [b'?', ..] => (1, byte != b'/'),
        [b'\\', literal, ..] => (2, byte == *literal),
        [b'\\'] => (1, false),
        [b'[', rest @ ..] => {
            let is_negated = matches!(rest, [b'!' | b'^', ..]);
            let set = &rest[usize::from(is_negated)..];
            match is_in_set(set, byte) {
                Some((width, is_in)) => {
                    let width = 1 + usize::from(is_negated) + width;
                    (width, is_in != is_negated && byte != b'/')
                }
                None => (1, false),
            }
        }
        [literal, ..] => (1, byte == *literal),
        [] => (0, false),
    }
}

/// Returns the length of a set behind its opening bracket, and whether the byte is in the set;
/// `None` if the set is malformed.
fn is_in_set(set: &[u8], byte: u8) -> Option<(usize, bool)> {
    let (mut rest, mut is_in, mut before) = (set, false, None);
    while rest.len() == set.len() || rest.first() != Some(&b']') {
        (rest, before) = match (rest, before) {
            ([b'-', b'\\', last, rest @ ..], Some(first)) => {
                is_in |= (first..=*last).contains(&byte);
                (rest, None)
            }
            ([b'-', last, rest @ ..], Some(first)) if !matches!(last, b']' | b'\\') => {
                is_in |= (first..=*last).contains(&byte);
                (rest, None)
            }
            ([b'[', b':', behind @ ..], _) => {
                let (name, rest_behind) =
                    behind.split_at(behind.iter().position(|&it| it == b']')?);
                match name {
                    [name @ .., b':'] => {
                        is_in |= is_in_class(std::str::from_utf8(name).ok()?, byte)?;
                        (&rest_behind[1..], None)
                    }
                    _ => {
                        is_in |= byte == b'[';
                        (&rest[1..], Some(b'['))
                    }
                }
            }
            ([b'\\', literal, rest @ ..], _) => {
                is_in |= byte == *literal;
                (rest, Some(*literal))
            }
            ([b'\\'] | [], _) => return None,
            ([literal, rest @ ..], _) => {
                is_in |= byte == *literal;
                (rest, Some(*literal))
            }
        };
    }
    Some((set.len() - rest.len() + 1, is_in))
}

/// Reports whether a byte is in a class of ASCII characters; `None` if no class has this name.
fn is_in_class(name: &str, byte: u8) -> Option<bool> {
    let (is_upper, is_lower) = (byte.is_ascii_uppercase(), byte.is_ascii_lowercase());
    let (is_digit, is_graph) = (byte.is_ascii_digit(), (0x21..0x7f).contains(&byte));
    let is_alnum = is_upper || is_lower || is_digit;
    Some(match name {
        "alnum" => is_alnum,
        "alpha" => is_upper || is_lower,
        "blank" => b" \t".contains(&byte),
        "cntrl" => byte < 0x20 || byte == 0x7f,
        "digit" => is_digit,
        "graph" => is_graph,
        "lower" => is_lower,
        "print" => is_graph || byte == b' ',
        "punct" => is_graph && !is_alnum,
        "space" => b" \t\n\x0b\x0c\r".contains(&byte),
        "upper" => is_upper,
        "xdigit" => is_digit || b"abcdefABCDEF".contains(&byte),
        _ => return None,
    })
}
