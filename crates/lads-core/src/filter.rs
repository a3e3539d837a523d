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
            return is_match(anchored, path);
        }
        if pattern.starts_with(b"**") {
            // As in rsync, the slash of `**/a` may stand before the whole path.
            return is_match(pattern, &[b"/", path].concat());
        }
        let is_path_pattern = pattern.contains(&b'/') || pattern.windows(2).any(|two| two == b"**");
        let starts = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(i, _)| i + 1);
        if is_path_pattern {
            return std::iter::once(0).chain(starts).any(|start| is_match(pattern, &path[start..]));
        }
        let last = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        is_match(pattern, &path[last..])
    }
}

/// Whether an entry is moved; `path` is its path below the source named.
#[must_use]
pub fn is_included(rules: &[Rule], path: &[u8], is_directory: bool) -> bool {
    let rule = rules.iter().find(|rule| rule.matches(path, is_directory));
    rule.is_none_or(|rule| rule.verdict == Verdict::Include)
}

/// Whether a pattern without anchors matches all of `text`.
///
/// Takes time in proportion to both lengths: only the last star is ever gone back to, once for
/// `*` and once for `**`.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut double_star: Option<(usize, usize)> = None;
    loop {
        if pattern[p..].starts_with(b"**") {
            p += 2;
            double_star = Some((p, t));
            star = None;
            continue;
        }
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if p == pattern.len() && t == text.len() {
            return true;
        }
        if let Some(&byte) = text.get(t)
            && let Some(width) = match_one(&pattern[p..], byte)
        {
            p += width;
            t += 1;
            continue;
        }
        // Let the last star take one byte more.
        if let Some((after, from)) = star
            && text.get(from).is_some_and(|&byte| byte != b'/')
        {
            star = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else if let Some((after, from)) = double_star
            && from < text.len()
        {
            star = None;
            double_star = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
}

/// How many bytes of the pattern match this one byte, if they do.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern.first()? {
        b'?' => (byte != b'/').then_some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => match_set(pattern, byte),
        &literal => (literal == byte).then_some(1),
    }
}

/// `[abc]`, `[a-z]`, `[!x]` or `[^x]`; a `[` that is never closed stands for itself.
fn match_set(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if is_negated { 2 } else { 1 };
    let Some(length) = pattern.iter().skip(first + 1).position(|&b| b == b']') else {
        return (byte == b'[').then_some(1);
    };
    let end = first + 1 + length;
    let set = &pattern[first..end];
    let mut at = 0;
    let mut is_in = false;
    while at < set.len() {
        if at + 2 < set.len() && set[at + 1] == b'-' {
            is_in |= (set[at]..=set[at + 2]).contains(&byte);
            at += 3;
        } else {
            is_in |= set[at] == byte;
            at += 1;
        }
    }
    (is_in != is_negated && byte != b'/').then_some(end + 1)
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
