//! Which entries are left out: `--include` and `--exclude`, with rsync's patterns.
//!
//! Rules are tried in the order given; the first that matches decides, and what none matches is
//! in. A pattern that ends in `/` matches only directories. A pattern that begins with `/` is
//! matched against the path below the source named; one with another `/` or with `**` against the
//! end of that path; any other against the last component. `*` matches anything but `/`, `**`
//! anything, `?` one byte but `/`, `[a-z]` one byte of a set. A leading `**/` matches nothing, too,
//! and so does `/***` at the end after a directory.

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
    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let mut pattern = self.pattern.as_slice();
        if let Some(shorter) = pattern.strip_suffix(b"/") {
            if !is_directory {
                return false;
            }
            pattern = shorter;
        }
        // As in rsync, `***` at the end matches the directory itself, too.
        let with_slash = (is_directory && pattern.ends_with(b"***")).then(|| [path, b"/"].concat());
        let path = with_slash.as_deref().unwrap_or(path);
        if let Some(anchored) = pattern.strip_prefix(b"/") {
            return is_match(anchored, path, |at| at == 0);
        }
        if pattern.starts_with(b"**") {
            // As in rsync, the slash of `**/a` may stand before the whole path.
            return is_match(pattern, &[b"/", path].concat(), |at| at == 0);
        }
        let is_path_pattern = pattern.contains(&b'/') || pattern.windows(2).any(|two| two == b"**");
        if is_path_pattern {
            return is_match(pattern, path, |at| at == 0 || path[at - 1] == b'/');
        }
        let last = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        is_match(pattern, &path[last..], |at| at == 0)
    }
}

/// Whether an entry is moved; `path` is its path below the source named.
#[must_use]
pub fn is_included(rules: &[Rule], path: &[u8], is_directory: bool) -> bool {
    let rule = rules.iter().find(|rule| rule.matches(path, is_directory));
    rule.is_none_or(|rule| rule.verdict == Verdict::Include)
}

/// Whether a pattern without anchors matches all of `text` from one of the starts on.
///
/// Takes time in proportion to the product of both lengths, whatever they say: for each piece of
/// the pattern, all places are found at which a match of the pieces so far may end. Going back to
/// stars instead takes the square of the length of the text for some patterns.
fn is_match(mut pattern: &[u8], text: &[u8], is_start: impl Fn(usize) -> bool) -> bool {
    let mut ends: Vec<bool> = (0..=text.len()).map(is_start).collect();
    // Looked for once, not for each of many brackets that are never closed.
    let behind_sets = pattern.iter().rev().take_while(|&&byte| byte != b']').count();
    while let Some((piece, width)) = Piece::first_of(pattern, pattern.len() > behind_sets) {
        let is_possible = piece.go_on(&mut ends, text);
        if !is_possible {
            return false;
        }
        pattern = &pattern[width..];
    }
    ends[text.len()]
}

/// A piece of a pattern.
#[derive(Clone, Copy)]
enum Piece<'a> {
    /// `**`: any bytes.
    Any,
    /// `*`: any bytes but slashes.
    AnyInComponent,
    /// `?`: one byte but a slash.
    One,
    /// This byte.
    Literal(u8),
    /// `[abc]` or `[a-z]`: one of these, no slash; or one of all others.
    Set { set: &'a [u8], is_negated: bool },
}

impl<'a> Piece<'a> {
    /// The first piece of a pattern and how many bytes of it that is; `None` if nothing is left.
    /// Without a `]` somewhere (`has_set_end`), it is no set.
    fn first_of(pattern: &'a [u8], has_set_end: bool) -> Option<(Self, usize)> {
        Some(match pattern {
            [b'*', b'*', ..] => (Self::Any, 2),
            [b'*', ..] => (Self::AnyInComponent, 1),
            [b'?', ..] => (Self::One, 1),
            [b'\\', literal, ..] => (Self::Literal(*literal), 2),
            [b'[', ..] if has_set_end => Self::set(pattern).unwrap_or((Self::Literal(b'['), 1)),
            [literal, ..] => (Self::Literal(*literal), 1),
            [] => return None,
        })
    }

    /// `[abc]`, `[a-z]`, `[!x]` or `[^x]`; a `[` that is never closed stands for itself.
    fn set(pattern: &'a [u8]) -> Option<(Self, usize)> {
        let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
        let first = if is_negated { 2 } else { 1 };
        let length = pattern.iter().skip(first + 1).position(|&byte| byte == b']')?;
        let end = first + 1 + length;
        Some((Self::Set { set: &pattern[first..end], is_negated }, end + 1))
    }

    /// Goes from where matches of the pieces before may end to where they may end with this one.
    /// Says whether there is such a place.
    fn go_on(self, ends: &mut [bool], text: &[u8]) -> bool {
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
            _ => {
                let mut is_possible = false;
                for (at, &byte) in text.iter().enumerate().rev() {
                    ends[at + 1] = ends[at] && self.is_match(byte);
                    is_possible |= ends[at + 1];
                }
                ends[0] = false;
                is_possible
            }
        }
    }

    fn is_match(self, byte: u8) -> bool {
        match self {
            Self::Any => true,
            Self::AnyInComponent | Self::One => byte != b'/',
            Self::Literal(literal) => literal == byte,
            Self::Set { set, is_negated } => is_in_set(set, byte) != is_negated && byte != b'/',
        }
    }
}

fn is_in_set(set: &[u8], byte: u8) -> bool {
    let mut at = 0;
    while at < set.len() {
        let is_range = at + 2 < set.len() && set[at + 1] == b'-';
        let last = if is_range { at + 2 } else { at };
        if (set[at]..=set[last]).contains(&byte) {
            return true;
        }
        at = last + 1;
    }
    false
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
            ("f[0-9].dat", "x/f7.dat", true),
            ("f[!0-9].dat", "x/f7.dat", false),
            ("f?", "f/", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[", "[", true),
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
        for (start, unit) in [("**a*", "a"), ("**[a]*", "[a-b]"), ("**a*", "[")] {
            let pattern = [start.as_bytes(), &unit.as_bytes().repeat(1000), b"c"].concat();
            let rules = [Rule { verdict: Verdict::Exclude, pattern }];
            assert!(is_included(&rules, &path, false), "{start}{unit}… on a path without c");
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
