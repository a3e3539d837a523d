//! Checks whether every dependency may be used: `deny.toml` allows its licence and its origin, and
//! it has no known vulnerability.
//!
//! `cargo deny` does this better, but it takes minutes to build, which is too long for CI. If it is
//! installed, it is used. Otherwise this module reads the same list of licences, so that a clean
//! machine checks the same rule. Known vulnerabilities are in a database on the network. Without
//! `cargo deny` or without the database they are not checked, and the output says so.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::Stdio;

/// Checks all dependencies.
pub(crate) fn run() -> Result<()> {
    if has_cargo_deny() {
        let check = ["deny", "--offline", "check", "bans", "licenses", "sources"];
        shell::run(shell::cargo().args(check))?;
        return advisories();
    }
    let allowed = allowed(&fs::read_to_string(shell::root().join("deny.toml"))?)?;
    let metadata = shell::metadata(&[])?;
    let packages = metadata["packages"].as_array().context("cargo metadata")?;
    let mut refused = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or_default();
        let source = package["source"].as_str();
        if !is_allowed(licence, &allowed) || !is_known(source) {
            let (name, source) =
                (package["name"].as_str().unwrap_or("?"), source.unwrap_or("here"));
            refused.push(format!("{name} ({licence}, from {source})"));
        }
    }
    if !refused.is_empty() {
        bail!("licences or sources that deny.toml does not allow: {}", refused.join(", "));
    }
    println!("{} packages, all of crates.io, all under {}", packages.len(), allowed.join(", "));
    println!(
        "NOT checked: advisories, because cargo-deny is not installed (cargo install --locked \
         cargo-deny, which takes minutes, once)"
    );
    Ok(())
}

/// Checks for known vulnerabilities of dependencies. The database changes without us. A
/// vulnerability that it lists fails this step; a database that cannot be reached does not.
fn advisories() -> Result<()> {
    if let Err(error) = shell::run(shell::cargo().args(["deny", "fetch", "db"])) {
        println!("NOT checked: advisories, because their database cannot be reached ({error:#})");
        return Ok(());
    }
    shell::run(shell::cargo().args(["deny", "--offline", "check", "advisories"]))
}

/// Whether a package comes from crates.io or is a crate of this workspace.
fn is_known(source: Option<&str>) -> bool {
    source.is_none_or(|source| source == "registry+https://github.com/rust-lang/crates.io-index")
}

fn has_cargo_deny() -> bool {
    let mut command = shell::cargo();
    command.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The strings of the list `allow = […]` in the section `[licenses]`.
fn allowed(deny: &str) -> Result<Vec<String>> {
    let section = deny.split("[licenses]").nth(1).context("deny.toml has no [licenses]")?;
    let list = section.split("allow = [").nth(1).and_then(|rest| rest.split(']').next());
    let list = list.context("deny.toml allows no licence")?;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Whether an SPDX expression can be met with the allowed licences.
///
/// Old manifests write `/` instead of OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut terms = Terms { words: &words, allowed };
    terms.any_of() && terms.words.is_empty()
}

/// Reads an expression from left to right: OR binds less tightly than AND, and AND less tightly
/// than WITH.
struct Terms<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Terms<'_> {
    fn any_of(&mut self) -> bool {
        let mut is_met = self.all_of();
        while self.skip("OR") {
            is_met |= self.all_of();
        }
        is_met
    }

    fn all_of(&mut self) -> bool {
        let mut is_met = self.one();
        while self.skip("AND") {
            is_met &= self.one();
        }
        is_met
    }

    fn one(&mut self) -> bool {
        if self.skip("(") {
            let is_met = self.any_of();
            return self.skip(")") && is_met;
        }
        let Some(name) = self.take() else { return false };
        let mut licence = name.to_owned();
        if self.skip("WITH") {
            licence = format!("{licence} WITH {}", self.take().unwrap_or_default());
        }
        self.allowed.contains(&licence)
    }

    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }

    fn take(&mut self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_list_that_cargo_deny_reads() {
        let deny = "[bans]\nallow = [\"x\"]\n[licenses]\nallow = [\n \"MIT\",\n \"ISC\",\n]\n";
        assert_eq!(allowed(deny).unwrap(), ["MIT", "ISC"]);
    }

    #[test]
    fn packages_come_from_here_or_from_crates_io() {
        assert!(is_known(None));
        assert!(is_known(Some("registry+https://github.com/rust-lang/crates.io-index")));
        assert!(!is_known(Some("git+https://github.com/somebody/something#0123")));
    }

    #[test]
    fn an_expression_is_met_by_what_is_allowed() {
        let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned()];
        for (expression, expected) in [
            ("MIT", true),
            ("Apache-2.0 OR MIT", true),
            ("MIT/Apache-2.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT AND GPL-3.0-only", false),
            ("GPL-3.0-only", false),
            ("MIT WITH some-exception", false),
            ("", false),
            ("MIT MIT", false),
            ("(MIT", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }
}
