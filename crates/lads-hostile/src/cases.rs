//! All lies, by class. A class is a file; a case is a line in its table.

mod answers;
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
mod planted;
mod silence;
mod wire;

use crate::case::Case;

/// All cases.
#[must_use]
pub fn all() -> Vec<Case> {
    let tables = [
        honest::CASES,
        names::CASES,
        links::CASES,
        metadata::CASES,
        counts::CASES,
        wire::CASES,
        order::CASES,
        frames::CASES,
        answers::CASES,
        endings::CASES,
        greeting::CASES,
        silence::CASES,
        data_port::CASES,
        planted::CASES,
    ];
    tables.concat()
}
