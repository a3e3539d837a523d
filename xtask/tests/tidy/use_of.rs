//! Checks that everything is used: dependencies, public items, and variants of public enums.
//!
//! The compiler checks this for private items, but it cannot know who uses what a crate makes
//! public. This check goes by names, so if two things have the same name, it does not notice that
//! one of them is unused.

use crate::code::{Source, Token, has_signs, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crates that exist for tests. Their items count as used even if only tests of other crates use
/// them.
const ARE_FOR_TESTS: [&str; 6] =
    ["lads-fuzz", "lads-hostile", "lads-sim", "lads-testbed", "lads-trees", "lads-tried"];

/// Functions that macros of the core call in tests of other crates. So they have to be public,
/// although only tests use them.
const FOR_TESTS_OF_OTHERS: [&str; 2] = ["struct_form", "enum_form"];

#[test]
fn every_dependency_is_used() {
    let metadata = super::metadata();
    let mut unused = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let directory = manifest.parent().unwrap().strip_prefix(super::root()).unwrap();
        let in_code: BTreeSet<String> =
            sources(super::root(), directory).iter().flat_map(words).collect();
        let in_tests: String = super::files()
            .iter()
            .filter(|path| path.starts_with(directory) && super::has_extension(path, &["rs"]))
            .map(|path| fs::read_to_string(super::root().join(path)).unwrap())
            .collect();
        for dependency in package["dependencies"].as_array().unwrap() {
            let name =
                dependency["rename"].as_str().or_else(|| dependency["name"].as_str()).unwrap();
            let word = name.replace('-', "_");
            let is_used = match dependency["kind"].as_str() {
                None => in_code.contains(&word),
                Some(_) => super::has_word(&in_tests, &word),
            };
            if !is_used {
                unused.push(format!("{}: {name}", directory.display()));
            }
        }
    }
    assert!(unused.is_empty(), "dependencies that nothing uses:\n{}", unused.join("\n"));
}

#[test]
fn every_dependency_of_the_workspace_is_taken_by_a_crate() {
    let manifest = fs::read_to_string(super::root().join("Cargo.toml")).unwrap();
    let listed = manifest.split("[workspace.dependencies]").nth(1).expect("there is a list");
    let listed = listed.split("\n[").next().unwrap();
    let names = listed.lines().filter_map(|line| Some(line.split_once(" = ")?.0));
    let manifests: String = super::crates()
        .iter()
        .map(|directory| fs::read_to_string(super::root().join(directory).join("Cargo.toml")))
        .map(Result::unwrap)
        .collect();
    for name in names {
        let short = format!("\n{name}.workspace = true");
        let long = format!("\n{name} = {{ workspace = true");
        let is_taken = manifests.contains(&short) || manifests.contains(&long);
        assert!(is_taken, "no crate takes {name} of the workspace");
    }
}

#[test]
fn every_public_item_is_used() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut items = Vec::new();
    for directory in super::crates() {
        for source in sources(super::root(), &directory) {
            words(&source).for_each(|word| *counts.entry(word).or_default() += 1);
            items.extend(public_items(&source).map(|it| (it, source.path.clone())));
        }
    }
    let in_tests = words_of_tests();
    let mut definitions: BTreeMap<&str, usize> = BTreeMap::new();
    items.iter().for_each(|(name, _)| *definitions.entry(name).or_default() += 1);
    let unused = items.iter().filter(|(name, path)| {
        let is_for_tests =
            ARE_FOR_TESTS.iter().any(|it| path.starts_with(Path::new("crates").join(it)));
        let is_for_tests = is_for_tests || FOR_TESTS_OF_OTHERS.contains(&name.as_str());
        counts[name] <= definitions[name.as_str()] && !(is_for_tests && in_tests.contains(name))
    });
    let unused: Vec<String> =
        unused.map(|(name, path)| format!("{}: {name}", path.display())).collect();
    assert!(unused.is_empty(), "public, and used by nothing but tests:\n{}", unused.join("\n"));
}

#[test]
fn every_variant_of_a_public_enum_is_made() {
    let mut variants = Vec::new();
    let mut made: BTreeSet<String> = BTreeSet::new();
    for directory in super::crates() {
        for source in sources(super::root(), &directory) {
            variants
                .extend(public_variants(&source).into_iter().map(|it| (it, source.path.clone())));
            made.extend(made_variants(&source));
        }
    }
    assert!(variants.len() > 100, "no variants found");
    let in_tests = words_of_tests();
    let dead = variants.iter().filter(|((_, variant), path)| {
        let is_for_tests =
            ARE_FOR_TESTS.iter().any(|it| path.starts_with(Path::new("crates").join(it)));
        let is_made = made.contains(variant) || is_for_tests && in_tests.contains(variant);
        !is_made
    });
    let dead: Vec<String> = dead
        .map(|((name, variant), path)| format!("{}: {name}::{variant}", path.display()))
        .collect();
    assert!(dead.is_empty(), "variants that nothing makes:\n{}", dead.join("\n"));
}

fn words(source: &Source) -> impl Iterator<Item = String> + '_ {
    source.tokens.iter().filter_map(Token::word).map(str::to_owned)
}

/// All words in integration tests, examples and fuzz targets.
fn words_of_tests() -> BTreeSet<String> {
    let is_test = |path: &Path| {
        let outside = ["tests", "examples", "benches", "targets"];
        path.iter().any(|part| outside.iter().any(|it| part == *it))
    };
    super::lines_of(&["rs"])
        .into_iter()
        .filter(|(path, _, _)| is_test(path))
        .flat_map(|(_, _, line)| {
            let is_letter = |c: char| c.is_alphanumeric() || c == '_';
            line.split(|c| !is_letter(c)).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

/// The names of public functions, types, constants and traits.
fn public_items(source: &Source) -> impl Iterator<Item = String> + '_ {
    let kinds = ["fn", "struct", "enum", "const", "static", "trait", "type"];
    let tokens = &source.tokens;
    (0..tokens.len()).filter_map(move |at| {
        (tokens[at].word() == Some("pub")).then_some(())?;
        let mut at = at + 1;
        while tokens.get(at)?.word() == Some("const") && tokens.get(at + 1)?.word() == Some("fn") {
            at += 1;
        }
        kinds.contains(&tokens.get(at)?.word()?).then_some(())?;
        tokens.get(at + 1)?.word().map(str::to_owned)
    })
}

/// The names of public enums, each with a variant.
fn public_variants(source: &Source) -> Vec<(String, String)> {
    let tokens = &source.tokens;
    let mut variants = Vec::new();
    for at in 0..tokens.len().saturating_sub(3) {
        let is_public = tokens[at].word() == Some("pub") && tokens[at + 1].word() == Some("enum");
        let Some(name) = tokens[at + 2].word().filter(|_| is_public) else { continue };
        let Some(body) = tokens[at..].iter().position(|it| it.is('{')).map(|it| at + it) else {
            continue;
        };
        let mut depth = 0;
        let mut may_begin = true;
        for token in &tokens[body + 1..] {
            match token {
                Token::Sign('(' | '{' | '[') => depth += 1,
                Token::Sign('}') if depth == 0 => break,
                Token::Sign(')' | '}' | ']') => depth -= 1,
                Token::Sign(',') if depth == 0 => may_begin = true,
                Token::Word(variant) if depth == 0 && may_begin => {
                    may_begin = false;
                    variants.push((name.to_owned(), variant.clone()));
                }
                _ => {}
            }
        }
    }
    variants
}

/// Names that are used to make a value: after `::`, or in a macro that maps numbers to variants. A
/// name before `=>`, `|` or `=` is a pattern and does not count.
fn made_variants(source: &Source) -> Vec<String> {
    let tokens = &source.tokens;
    let mut made = Vec::new();
    for (at, token) in tokens.iter().enumerate().skip(2) {
        let Some(word) = token.word().filter(|it| it.starts_with(char::is_uppercase)) else {
            continue;
        };
        let is_path = has_signs(tokens, at - 2, "::");
        // `3 => Variant` in `wire_enum!`, and match arms that return an imported variant.
        let is_mapped = has_signs(tokens, at - 2, "=>");
        let is_alone = tokens[at - 1].is('(') || tokens[at - 1].is(',');
        let next = after_fields(tokens, at + 1);
        let is_pattern = has_signs(tokens, next, "=>")
            || tokens.get(next).is_some_and(|it| it.is('|'))
            || has_signs(tokens, next, "=") && !has_signs(tokens, next, "==");
        if (is_path || is_mapped || is_alone) && !is_pattern {
            made.push(word.to_owned());
        }
    }
    made
}

/// The position after the fields of a variant, if fields begin here; otherwise the same position.
fn after_fields(tokens: &[Token], at: usize) -> usize {
    if !tokens.get(at).is_some_and(|it| it.is('(') || it.is('{')) {
        return at;
    }
    let mut depth = 0;
    for (step, token) in tokens[at..].iter().enumerate() {
        match token {
            Token::Sign('(' | '{' | '[') => depth += 1,
            Token::Sign(')' | '}' | ']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + step + 1;
        }
    }
    tokens.len()
}
