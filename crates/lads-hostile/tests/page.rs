//! Whether `docs/security.md` says what is tried: the table of each class is that of the code.
//!
//! `UPDATE_EXPECT=1 cargo test -p lads-hostile --test page` writes the tables again.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use lads_hostile::case::{Case, Role};
use lads_hostile::cases;
use lads_hostile::files;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The head of the table of a class of cases.
const HEAD: [&str; 2] = ["| liar | exit codes | cases |", "|---|---|---|"];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md")
}

/// The columns of a case before its name: the end that tells the lie, and the exit codes.
fn columns(case: &Case) -> String {
    let by = match case.role {
        Role::Source => "source",
        Role::Sink => "sink",
        Role::ClientSource => "client (source)",
        Role::ClientSink => "client (sink)",
    };
    let by = if case.is_served_too { format!("{by}; client") } else { by.to_owned() };
    let codes: Vec<String> = case.exits.iter().map(ToString::to_string).collect();
    let noticed = if case.is_noticed { ", refused" } else { "" };
    format!("{by} | {}{noticed}", codes.join(", "))
}

/// Returns one row for all cases with equal columns, in the order of the first case of each row.
fn rows(cases: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for (columns, name) in cases {
        let name = format!("`{name}`");
        match rows.iter_mut().find(|(own, _)| *own == columns) {
            Some((_, names)) => names.push(name),
            None => rows.push((columns, vec![name])),
        }
    }
    rows.iter().map(|(columns, names)| format!("| {columns} | {} |", names.join(", "))).collect()
}

/// The heading of the cases of servers of remote files, and the head of their table.
const FILES: (&str, [&str; 2]) =
    ("Servers of remote files", ["| the client | cases |", "|---|---|"]);

/// The page with the tables that the code has.
fn with_tables(page: &str) -> String {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let of_transfers = cases::classes().into_iter().map(|(title, cases)| {
        let cases = cases.iter().map(|case| (columns(case), case.name.to_owned()));
        (title, HEAD, rows(cases))
    });
    let of_files = files::cases::all();
    let of_files = of_files.iter().map(|it| (it.end.text().to_owned(), it.name.to_owned()));
    let of_files = (FILES.0, FILES.1, rows(of_files));
    for (title, head, rows) in of_transfers.chain([of_files]) {
        let heading = format!("## {title}");
        let at = lines.iter().position(|line| *line == heading);
        let at = at.unwrap_or_else(|| panic!("docs/security.md has no section {title}"));
        let begin = at + lines[at..].iter().position(|line| line.starts_with('|')).unwrap();
        let length = lines[begin..].iter().take_while(|line| line.starts_with('|')).count();
        let table = head.map(str::to_owned).into_iter().chain(rows);
        lines.splice(begin..begin + length, table);
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_page_has_the_cases_that_are_tried() {
    let there = fs::read_to_string(page()).unwrap();
    let wanted = with_tables(&there);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(page(), wanted).unwrap();
        return;
    }
    let old: BTreeSet<&str> = there.lines().collect();
    let missing: Vec<&str> = wanted.lines().filter(|line| !old.contains(line)).collect();
    assert!(there == wanted, "docs/security.md is not what is tried; it lacks:\n{missing:#?}");
}

#[test]
fn no_two_cases_have_one_name() {
    let all = cases::all();
    let names: BTreeSet<&str> = all.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), all.len());
    let all = files::cases::all();
    let names: BTreeSet<&str> = all.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn there_are_cases_of_every_role() {
    for role in [Role::Source, Role::Sink, Role::ClientSource] {
        assert!(cases::all().iter().any(|case| case.role == role), "{role:?}");
    }
}
