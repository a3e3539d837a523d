//! Patterns of rsync: the rules of `--include` and `--exclude` that choose which entries are moved.
//!
//! Rules are tried in the order given, and the first rule that matches decides. An entry that no
//! rule matches is moved.
//!
//! | pattern | matches |
//! |---|---|
//! | ends in `/` | only directories |
//! | begins with `/` | the path below the source |
//! | has *n* other slashes | the last *n* + 1 components of the path |
//! | begins with `**` | the path, with a slash before it |
//! | has `**` elsewhere | the end of the path, from any component on |
//! | any other | the last component |
//! | `*` | any bytes but slashes |
//! | `**` | any bytes |
//! | `***` at the end | also the directory itself, as if its path ended in a slash |
//! | `?` | one byte but a slash |
//! | `[a-z]`, `[!a-z]`, `[^a-z]` | one byte of a set or outside of it, but no slash |
//! | `[[:digit:]]` | one byte of a class of ASCII characters |
//! | `\\` | the next byte stands for itself, also in a set |
//!
//! A pattern without `*`, `?` and `[` is compared byte by byte, backslashes too. A pattern with a
//! set that is never closed, or with an unknown class, matches nothing. rsync does the same; tests
//! compare the two.

use std::ops::RangeInclusive;

/// What a rule does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Move it.
    Include,
    /// Leave it out, and what is in it.
    Exclude,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it does with what it matches.
    pub verdict: Verdict,
    /// The pattern, as given.
    pub pattern: Vec<u8>,
}

impl Rule {
    /// Reports whether the pattern matches an entry; `path` is its path below the source.
    #[must_use]
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let mut pattern = self.pattern.as_slice();
        if pattern.len() > 1
            && let Some(shorter) = pattern.strip_suffix(b"/")
        {
            if !is_directory {
                return false;
            }
            pattern = shorter;
        }
        let is_wild = pattern.iter().any(|byte| b"*?[".contains(byte));
        let crosses_slashes = is_wild && pattern.windows(2).any(|two| two == b"**");
        let slash_count = slashes(pattern).count();
        let (pattern, is_anchored) = match pattern.strip_prefix(b"/") {
            Some(anchored) => (anchored, true),
            None => (pattern, false),
        };
        if !is_wild {
            let is_end = |end: &[u8]| end == pattern;
            return match is_anchored {
                true => is_end(path),
                false => last_components(path, slash_count).is_some_and(is_end),
            };
        }
        if !crosses_slashes {
            return match is_anchored {
                true => is_match(pattern, path, |at| at == 0),
                false => last_components(path, slash_count)
                    .is_some_and(|end| is_match(pattern, end, |at| at == 0)),
            };
        }
        let is_prefix = !is_anchored && pattern.starts_with(b"**");
        let before = if is_prefix { &b"/"[..] } else { b"" };
        let behind = if is_directory && pattern.ends_with(b"***") { &b"/"[..] } else { b"" };
        let text = [before, path, behind].concat();
        let may_start_anywhere = !is_anchored && !is_prefix;
        is_match(pattern, &text, |at| at == 0 || may_start_anywhere && text[at - 1] == b'/')
    }
}

/// Returns the positions of the slashes of a path.
fn slashes(path: &[u8]) -> impl DoubleEndedIterator<Item = usize> + '_ {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at)
}

/// Returns the end of a path with this number of slashes; `None` if the path has fewer.
fn last_components(path: &[u8], slash_count: usize) -> Option<&[u8]> {
    match slashes(path).rev().nth(slash_count) {
        Some(at) => Some(&path[at + 1..]),
        None => (slashes(path).count() == slash_count).then_some(path),
    }
}

/// Reports whether an entry is moved; `path` is its path below the source.
#[must_use]
pub fn is_included(rules: &[Rule], path: &[u8], is_directory: bool) -> bool {
    let rule = rules.iter().find(|rule| rule.matches(path, is_directory));
    rule.is_none_or(|rule| rule.verdict == Verdict::Include)
}

/// Reports whether a pattern without anchors matches all of `text` from one of the starts on.
///
/// Takes time in proportion to the product of both lengths, whatever they contain: for each piece
/// of the pattern, all positions are found at which a match of the pieces so far may end.
/// Backtracking to stars instead takes the square of the length of the text for some patterns.
fn is_match(mut pattern: &[u8], text: &[u8], is_start: impl Fn(usize) -> bool) -> bool {
    let mut ends: Vec<bool> = (0..=text.len()).map(is_start).collect();
    while let Some((piece, width)) = Piece::first_of(pattern) {
        let is_possible = piece.advance(&mut ends, text);
        if !is_possible {
            return false;
        }
        pattern = &pattern[width..];
    }
    ends[text.len()]
}

/// A piece of a pattern.
#[derive(Clone, Copy)]
enum Piece {
    /// `**`: any bytes.
    Any,
    /// `*`: any bytes but slashes.
    AnyInComponent,
    /// One byte of this set.
    One(Bytes),
    /// A malformed set: matches nothing.
    Nothing,
}

impl Piece {
    /// Returns the first piece of a pattern and its length in bytes; `None` if the pattern is
    /// empty.
    fn first_of(pattern: &[u8]) -> Option<(Self, usize)> {
        Some(match pattern {
            [b'*', b'*', ..] => {
                (Self::Any, pattern.iter().take_while(|&&byte| byte == b'*').count())
            }
            [b'*', ..] => (Self::AnyInComponent, 1),
            [b'?', ..] => (Self::One(Bytes::EMPTY.negated().without_slash()), 1),
            [b'\\', literal, ..] => (Self::One(Bytes::EMPTY.with(*literal)), 2),
            // The text has no zero byte for a backslash at the end of the pattern.
            [b'\\'] => (Self::Nothing, 1),
            [b'[', ..] => match Set::parse(pattern) {
                Some((bytes, width)) => (Self::One(bytes), width),
                None => (Self::Nothing, pattern.len()),
            },
            [literal, ..] => (Self::One(Bytes::EMPTY.with(*literal)), 1),
            [] => return None,
        })
    }

    /// Replaces the positions at which a match of the pieces before may end by those at which a
    /// match with this piece may end. Reports whether there is such a position.
    fn advance(self, ends: &mut [bool], text: &[u8]) -> bool {
        match self {
            Self::Any => {
                let first = ends.iter().position(|&is_end| is_end).unwrap_or(ends.len());
                ends[first..].fill(true);
                first < ends.len()
            }
            Self::AnyInComponent => {
                for (at, &byte) in text.iter().enumerate() {
                    ends[at + 1] |= ends[at] && byte != b'/';
                }
                true
            }
            Self::One(bytes) => {
                let mut is_possible = false;
                for (at, &byte) in text.iter().enumerate().rev() {
                    ends[at + 1] = ends[at] && bytes.has(byte);
                    is_possible |= ends[at + 1];
                }
                ends[0] = false;
                is_possible
            }
            Self::Nothing => false,
        }
    }
}

/// A set of bytes.
#[derive(Clone, Copy)]
struct Bytes([u64; 4]);

impl Bytes {
    const EMPTY: Self = Self([0; 4]);

    fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & Self::bit(byte) != 0
    }

    fn with(mut self, byte: u8) -> Self {
        self.0[usize::from(byte >> 6)] |= Self::bit(byte);
        self
    }

    fn without_slash(mut self) -> Self {
        self.0[usize::from(b'/' >> 6)] &= !Self::bit(b'/');
        self
    }

    fn negated(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    fn bit(byte: u8) -> u64 {
        1 << (byte & 63)
    }
}

/// A set in brackets, as far as it was parsed.
struct Set<'a> {
    pattern: &'a [u8],
    at: usize,
    bytes: Bytes,
    /// The byte before the present one, if a range may begin with it.
    first: Option<u8>,
    /// A position of a `]` that was found.
    closed_at: usize,
}

impl<'a> Set<'a> {
    /// Returns the set at the start of a pattern and its length in bytes; `None` if the set is
    /// malformed.
    fn parse(pattern: &'a [u8]) -> Option<(Bytes, usize)> {
        let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
        let at = if is_negated { 2 } else { 1 };
        let mut set = Self { pattern, at, bytes: Bytes::EMPTY, first: None, closed_at: 0 };
        // A bracket at the first position belongs to the set.
        loop {
            set.first = set.parse_item()?;
            set.at += 1;
            if *pattern.get(set.at)? == b']' {
                break;
            }
        }
        let bytes = if is_negated { set.bytes.negated() } else { set.bytes };
        Some((bytes.without_slash(), set.at + 1))
    }

    /// Adds the item at the present position, and moves to its last byte. Returns the byte with
    /// which a range may begin.
    fn parse_item(&mut self) -> Option<Option<u8>> {
        let byte = *self.pattern.get(self.at)?;
        let next = self.pattern.get(self.at + 1).copied();
        match (byte, self.first) {
            (b'-', Some(first)) if next.is_some_and(|next| next != b']') => {
                self.at += 1;
                let last = self.parse_literal()?;
                self.add(first..=last);
                Some(None)
            }
            (b'[', _) if next == Some(b':') => self.parse_class(),
            _ => {
                let literal = self.parse_literal()?;
                self.add(literal..=literal);
                Some(Some(literal))
            }
        }
    }

    /// Returns the byte at the present position, or the one behind a backslash.
    fn parse_literal(&mut self) -> Option<u8> {
        self.at += usize::from(self.pattern.get(self.at) == Some(&b'\\'));
        self.pattern.get(self.at).copied()
    }

    /// Adds a class, such as `[:digit:]`. A `[:` without `:]` before the next `]` is not a class.
    fn parse_class(&mut self) -> Option<Option<u8>> {
        let start = self.at + 2;
        if self.closed_at < start {
            // Searched for again only behind the one found last, so that all searches together
            // take time in proportion to the length of the pattern.
            let length = self.pattern.get(start..)?.iter().position(|&byte| byte == b']')?;
            self.closed_at = start + length;
        }
        let Some(name) = self.pattern[start..self.closed_at].strip_suffix(b":") else {
            self.add(b'['..=b'[');
            return Some(Some(b'['));
        };
        let is_in = class(name)?;
        (0..=u8::MAX).filter(is_in).for_each(|byte| self.add(byte..=byte));
        self.at = self.closed_at;
        Some(None)
    }

    fn add(&mut self, range: RangeInclusive<u8>) {
        self.bytes = range.fold(self.bytes, Bytes::with);
    }
}

/// Returns the test of the bytes in a class of this name; `None` if no class has this name.
fn class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exclude(pattern: &str) -> Vec<Rule> {
        vec![Rule { verdict: Verdict::Exclude, pattern: pattern.as_bytes().to_vec() }]
    }

    fn is_excluded(pattern: &str, path: &str) -> bool {
        !is_included(&exclude(pattern), path.as_bytes(), false)
    }

    #[test]
    fn matches_as_rsync_does() {
        for (pattern, path, expected) in [
            ("*.o", "a/b/c.o", true),
            ("*.o", "a/b.o/c", false),
            ("/a", "a", true),
            ("/a", "b/a", false),
            ("b/c", "a/b/c", true),
            ("b/*", "a/b/c", true),
            ("a/*", "a/b/c", false),
            ("a/**", "a/b/c", true),
            ("**/c", "a/b/c", true),
            ("**/c", "c", true),
            ("**c", "a/bc", true),
            ("a**c", "a/b/c", true),
            ("a**c", "d/a/b/c", true),
            ("a**c", "da/b/c", false),
            ("/a**c", "d/a/b/c", false),
            ("f[0-9].dat", "x/f7.dat", true),
            ("f[!0-9].dat", "x/f7.dat", false),
            ("f?", "f/", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[", "[", false),
            ("[a", "[a", false),
            ("[]a]", "]", true),
            ("[]a]", "a", true),
            ("[!]a]", "]", false),
            ("[\\]]", "]", true),
            ("[a\\-c]", "b", false),
            ("[a\\-c]", "-", true),
            ("[+-\\]]", "A", true),
            ("[a-]", "-", true),
            ("[-a]", "-", true),
            ("[a-c-e]", "d", false),
            ("run[[:digit:]]", "run7", true),
            ("run[[:digit:]]", "runx", false),
            ("[^[:alpha:]]*", "7x", true),
            ("a[[:print:]]b", "a~b", true),
            ("a[[:print:]]b", "a\x7fb", false),
            ("[[:digit:]-z]", "-", true),
            ("[[:none:]]", "n", false),
            ("[[:digit]", ":", true),
            ("[[:]", "[", true),
            ("[[:x]-b]", "x-b]", true),
            ("x[/y]", "d/xy", false),
            ("a\\b", "a\\b", true),
            ("a\\b", "ab", false),
            ("a\\b*", "abc", true),
            ("a\\b*", "a\\bc", false),
            ("*\\", "a\\", false),
            ("a*b*c", "aXbXXc", true),
        ] {
            assert_eq!(is_excluded(pattern, path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn three_stars_at_the_end_match_the_directory_too() {
        for pattern in ["a/***", "/a/***"] {
            assert!(!is_included(&exclude(pattern), b"a", true), "{pattern}");
            assert!(is_included(&exclude(pattern), b"a", false), "{pattern}");
            assert!(is_excluded(pattern, "a/b"), "{pattern}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let mut rules = vec![Rule { verdict: Verdict::Include, pattern: b"*.h".to_vec() }];
        rules.extend(exclude("*"));
        assert!(is_included(&rules, b"a.h", false));
        assert!(!is_included(&rules, b"a.c", false));
    }

    #[test]
    fn a_pattern_with_a_slash_at_its_end_is_for_directories() {
        assert!(is_included(&exclude("tmp/"), b"tmp", false));
        assert!(!is_included(&exclude("tmp/"), b"tmp", true));
    }

    /// Going back to the last star of each kind took the square of the length of the path, times
    /// the length of the pattern: many minutes for these.
    #[test]
    fn the_time_grows_with_the_product_of_the_lengths_only() {
        let path = vec![b'a'; 1 << 14];
        let units = [("**a*", "a", 1000), ("**[a]*", "[a-b]", 1000), ("[", "[:", 1 << 20)];
        for (start, unit, count) in units {
            for end in ["c", "]c"] {
                let unit = unit.as_bytes().repeat(count);
                let pattern = [start.as_bytes(), &unit, end.as_bytes()].concat();
                let rules = [Rule { verdict: Verdict::Exclude, pattern }];
                assert!(is_included(&rules, &path, false), "{start}… on a path without c");
            }
        }
    }

    proptest! {
        #[test]
        fn any_pattern_ends(pattern: Vec<u8>, path: Vec<u8>) {
            let rule = Rule { verdict: Verdict::Exclude, pattern };
            let _ = rule.matches(&path, true);
        }

        #[test]
        fn a_literal_matches_itself_only(a in "[a-z]{1,8}", b in "[a-z]{1,8}") {
            prop_assert_eq!(is_excluded(&a, &b), a == b);
        }
    }
}
