//! All lies, by class. A class is a file; a case is a line in its table.

mod answers;
mod comparisons;
mod counts;
mod data_port;
mod endings;
mod frames;
mod greeting;
mod honest;
mod links;
mod metadata;
mod names;
mod order;
mod pipe;
mod planted;
mod removal;
mod silence;
mod wire;

use crate::case::Case;

/// The classes, by the titles of their sections in `docs/security.md`, and their cases.
#[must_use]
pub fn classes() -> [(&'static str, &'static [Case]); 17] {
    [
        ("No lie", honest::CASES),
        ("Names", names::CASES),
        ("Links", links::CASES),
        ("Rights and numbers", metadata::CASES),
        ("Counts and floods", counts::CASES),
        ("Bytes that are no message", wire::CASES),
        ("Messages out of place", order::CASES),
        ("Data frames", frames::CASES),
        ("Comparisons", comparisons::CASES),
        ("Answers of a sink", answers::CASES),
        ("Endings, streams and texts", endings::CASES),
        ("What is to be removed", removal::CASES),
        ("Greeting", greeting::CASES),
        ("Silence", silence::CASES),
        ("The data port", data_port::CASES),
        ("One pipe for all", pipe::CASES),
        ("Planted files", planted::CASES),
    ]
}

/// All cases.
#[must_use]
pub fn all() -> Vec<Case> {
    classes().into_iter().flat_map(|(_, cases)| cases).copied().collect()
}

/// The case of this name.
#[must_use]
pub fn find(name: &str) -> Option<Case> {
    all().into_iter().find(|case| case.name == name)
}
