//! Checks that the modules of a crate form layers: of any two modules, at most one uses the other,
//! directly or through other modules.
//!
//! A use is a path that begins with `crate` or `super`, in a `use` or anywhere else. A file and the
//! files in the directory of the same name count as one module here, because parts of one thing may
//! use each other.

use crate::code::{Source, Token, has_signs, sources};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

/// For each module, the modules that it uses, and the path with which it uses each of them.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn modules_form_layers() {
    let mut circles = Vec::new();
    for directory in super::crates() {
        let name = directory.display().to_string();
        circles.extend(shortest_circle(&uses_of(&directory)).map(|it| format!("{name}: {it}")));
    }
    assert!(circles.is_empty(), "modules that use each other:\n{}", circles.join("\n"));
}

#[test]
fn a_circle_is_found_and_told_by_name() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (user, used) in pairs {
            let row = uses.entry((*user).to_owned()).or_default();
            row.insert((*used).to_owned(), format!("{used}::Thing"));
        }
        uses
    };
    let layers = uses(&[("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]);
    assert_eq!(shortest_circle(&layers), None);
    let circle = uses(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "a")]);
    let told = "b uses c::Thing, c uses d::Thing, d uses b::Thing";
    assert_eq!(shortest_circle(&circle), Some(told.to_owned()));
}

#[test]
fn the_modules_of_the_engine_are_seen_to_use_each_other() {
    let uses = uses_of(&PathBuf::from("crates/lads-engine"));
    assert!(uses["session"].contains_key("sink"), "{uses:?}");
    assert!(uses["sink"].contains_key("journal"), "{uses:?}");
    // Uses in tests do not count.
    assert!(!uses["talk"].contains_key("sink"), "{uses:?}");
}

/// The modules that each module of a crate uses.
fn uses_of(directory: &std::path::Path) -> Uses {
    let sources = sources(super::root(), directory);
    let modules: BTreeSet<&str> =
        sources.iter().filter_map(|source| Some(source.module.first()?.as_str())).collect();
    let roots = Roots::of(&sources, &modules);
    let mut uses = Uses::new();
    for source in &sources {
        let user = source.module.first().map_or_else(|| file_stem(source), Clone::clone);
        for path in paths(source) {
            let Some(first) = path.first() else { continue };
            let used = match modules.contains(first.as_str()) {
                true => first.clone(),
                false => roots.home_of(&user, first),
            };
            if used != user {
                uses.entry(user.clone()).or_default().insert(used, path.join("::"));
            }
        }
    }
    uses
}

fn file_stem(source: &Source) -> String {
    source.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The root files of a crate's libraries and programs.
struct Roots {
    /// For each name that a root imports, as with `pub use`, the module that it comes from.
    taken_in: BTreeMap<String, String>,
    /// For each module, the root that declares it.
    owners: BTreeMap<String, String>,
}

impl Roots {
    fn of(sources: &[Source], modules: &BTreeSet<&str>) -> Self {
        let mut roots = Self { taken_in: BTreeMap::new(), owners: BTreeMap::new() };
        for root in sources.iter().filter(|source| source.module.is_empty()) {
            for (at, token) in root.tokens.iter().enumerate() {
                let next = root.tokens.get(at + 1).and_then(Token::word);
                match (token.word(), next) {
                    (Some("mod"), Some(name)) => {
                        roots.owners.insert(name.to_owned(), file_stem(root));
                    }
                    (Some("use"), Some(module)) if modules.contains(module) => {
                        let mut names = Vec::new();
                        trees(&root.tokens, at + 1, &mut Vec::new(), &mut names);
                        let last = |path: &Vec<String>| path.last().cloned();
                        let names = names.iter().filter_map(last);
                        roots.taken_in.extend(names.map(|name| (name, module.to_owned())));
                    }
                    _ => {}
                }
            }
        }
        roots
    }

    /// The module that a name of the root comes from, or else the root itself.
    fn home_of(&self, user: &str, name: &str) -> String {
        let taken_in = self.taken_in.get(name).or_else(|| self.owners.get(user));
        taken_in.map_or_else(|| user.to_owned(), Clone::clone)
    }
}

/// All paths in a file that begin at the root of its crate, without the word `crate`. Paths that
/// begin with `super` are converted.
fn paths(source: &Source) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut at = 0;
    while at < source.tokens.len() {
        let mut base = match source.tokens[at].word() {
            Some("crate") => Some(Vec::new()),
            Some("super") => Some(source.module.clone()),
            // A root names its modules without a prefix.
            Some("use") if source.module.is_empty() => {
                trees(&source.tokens, at + 1, &mut Vec::new(), &mut paths);
                None
            }
            _ => None,
        };
        while source.tokens[at].word() == Some("super") {
            base.as_mut().and_then(Vec::pop);
            match has_signs(&source.tokens, at + 1, "::") {
                true if source.tokens[at + 3].word() == Some("super") => at += 3,
                _ => break,
            }
        }
        at += 1;
        if let Some(mut base) = base.filter(|_| has_signs(&source.tokens, at, "::")) {
            trees(&source.tokens, at + 2, &mut base, &mut paths);
        }
    }
    paths
}

/// Adds the paths of a tree such as `a::{b, c::d}` below `base`. Returns the position of its end.
fn trees(
    tokens: &[Token],
    mut at: usize,
    base: &mut Vec<String>,
    paths: &mut Vec<Vec<String>>,
) -> usize {
    let depth = base.len();
    match tokens.get(at) {
        Some(Token::Word(word)) => {
            base.push(word.clone());
            at += 1;
            match has_signs(tokens, at, "::") {
                true => at = trees(tokens, at + 2, base, paths),
                false => paths.push(base.clone()),
            }
        }
        Some(Token::Sign('{')) => {
            at += 1;
            while tokens.get(at).is_some_and(|token| !token.is('}')) {
                // The next token may also be a comma, `as`, or the name after it.
                at = trees(tokens, at, base, paths).max(at + 1);
            }
            at += 1;
        }
        _ => paths.push(base.clone()),
    }
    base.truncate(depth);
    at
}

/// The shortest circle of uses from a module back to itself, in words.
fn shortest_circle(uses: &Uses) -> Option<String> {
    let circles = uses.keys().filter_map(|start| circle_from(uses, start));
    let circle = circles.min_by_key(Vec::len)?;
    let steps = circle.iter().zip(circle.iter().cycle().skip(1));
    let told: Vec<String> =
        steps.map(|(user, used)| format!("{user} uses {}", uses[*user][*used])).collect();
    Some(told.join(", "))
}

fn circle_from<'a>(uses: &'a Uses, start: &'a String) -> Option<Vec<&'a String>> {
    let mut came_from: BTreeMap<&String, &String> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(user) = next.pop_front() {
        for used in uses.get(user).into_iter().flat_map(BTreeMap::keys) {
            if used == start {
                let mut circle = vec![user];
                while let Some(before) = came_from.get(circle[circle.len() - 1]) {
                    circle.push(before);
                }
                circle.reverse();
                return Some(circle);
            }
            if let std::collections::btree_map::Entry::Vacant(place) = came_from.entry(used) {
                place.insert(user);
                next.push_back(used);
            }
        }
    }
    None
}
