//! Reads the code of a crate as words and signs, without comments, strings and tests.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A word or sign of code. The content of brackets is between their opening and their closing sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Word(String),
    Sign(char),
    /// A string, a number or a character.
    Literal,
}

impl Token {
    pub(crate) fn is(&self, sign: char) -> bool {
        *self == Self::Sign(sign)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// A file of a crate.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path below the root of the tree.
    pub(crate) path: PathBuf,
    /// The name of the file as a module, such as `["sink", "write"]`; empty for the root of a
    /// crate.
    pub(crate) module: Vec<String>,
    /// Its code without tests.
    pub(crate) tokens: Vec<Token>,
}

/// All files below `directory/src` that are not only for tests.
pub(crate) fn sources(root: &Path, directory: &Path) -> Vec<Source> {
    let src = directory.join("src");
    let mut tests = BTreeSet::new();
    let mut sources: Vec<Source> = super::files()
        .into_iter()
        .filter(|path| path.starts_with(&src) && super::has_extension(path, &["rs"]))
        .map(|path| {
            let module = module_of(path.strip_prefix(&src).expect("starts with it"));
            let text = fs::read_to_string(root.join(&path)).expect("it was listed");
            let stream: TokenStream =
                text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let (mut tokens, mut names) = (Vec::new(), Vec::new());
            flatten(stream, &mut tokens, &mut names);
            tests.extend(names.into_iter().map(|name| [module.clone(), vec![name]].concat()));
            Source { path, module, tokens }
        })
        .collect();
    let is_for_tests = |module: &[String]| (1..=module.len()).any(|n| tests.contains(&module[..n]));
    sources.retain(|source| !is_for_tests(&source.module));
    sources
}

/// `sink/write.rs` is `["sink", "write"]`; the root of a crate has no name.
fn module_of(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut names: Vec<String> =
        path.iter().map(|name| name.to_str().expect("plain names").to_owned()).collect();
    if matches!(names.last().map(String::as_str), Some("lib" | "main" | "mod")) {
        names.pop();
    }
    names
}

/// Adds the tokens of a stream, without items that are only for tests. If such an item is a module
/// in a file of its own, its name is added to `tests`.
fn flatten(stream: TokenStream, to: &mut Vec<Token>, tests: &mut Vec<String>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Punct(sign) if sign.as_char() == '#' => match trees.peek() {
                Some(TokenTree::Group(group)) if group.stream().to_string() == "cfg (test)" => {
                    let mut last = None;
                    for tree in trees.by_ref() {
                        match &tree {
                            TokenTree::Group(it) if it.delimiter() == Delimiter::Brace => break,
                            TokenTree::Punct(sign) if sign.as_char() == ';' => {
                                tests.extend(last);
                                break;
                            }
                            TokenTree::Ident(name) => last = Some(name.to_string()),
                            _ => {}
                        }
                    }
                }
                _ => to.push(Token::Sign('#')),
            },
            TokenTree::Group(group) => {
                let signs = match group.delimiter() {
                    Delimiter::Parenthesis => Some(('(', ')')),
                    Delimiter::Brace => Some(('{', '}')),
                    Delimiter::Bracket => Some(('[', ']')),
                    Delimiter::None => None,
                };
                to.extend(signs.map(|(open, _)| Token::Sign(open)));
                flatten(group.stream(), to, tests);
                to.extend(signs.map(|(_, close)| Token::Sign(close)));
            }
            TokenTree::Ident(word) => to.push(Token::Word(word.to_string())),
            TokenTree::Punct(sign) => to.push(Token::Sign(sign.as_char())),
            TokenTree::Literal(_) => to.push(Token::Literal),
        }
    }
}

/// Whether the tokens at this position are these signs, such as `::`.
pub(crate) fn has_signs(tokens: &[Token], at: usize, signs: &str) -> bool {
    signs.chars().enumerate().all(|(step, sign)| tokens.get(at + step).is_some_and(|t| t.is(sign)))
}
