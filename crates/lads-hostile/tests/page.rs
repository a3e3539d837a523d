//! Whether `docs/security.md` says what is tried: the table of each class is that of the code.
//!
//! `UPDATE_EXPECT=1 cargo test -p lads-hostile --test page` writes the tables anew.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use lads_hostile::case::{Case, Role};
use lads_hostile::cases;
use lads_hostile::files;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const HEAD: [&str; 2] = ["| told by | honest end ends with | cases |", "|---|---|---|"];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md")
}

/// Returns the first cells of the row that has a case.
fn cells(case: &Case) -> String {
    let by = match case.role {
        Role::Source => "source",
        Role::Sink => "sink",
        Role::ClientSource => "client that is the source",
        Role::ClientSink => "client that is the sink",
    };
    let by = if case.is_served_too { format!("{by}; client, too") } else { by.to_owned() };
    let codes: Vec<String> = case.exits.iter().map(ToString::to_string).collect();
    let noticed = if case.is_noticed { ", for the lie itself" } else { "" };
    format!("{by} | {}{noticed}", codes.join(" or "))
}

/// Returns a row for each different text of the first cells, with the names of all its cases.
fn rows<'a>(cases: impl Iterator<Item = (String, &'a str)>) -> Vec<String> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for (cells, name) in cases {
        let name = format!("`{name}`");
        match rows.iter_mut().find(|(others, _)| *others == cells) {
            Some((_, names)) => *names += &format!(" {name}"),
            None => rows.push((cells, name)),
        }
    }
    rows.into_iter().map(|(cells, names)| format!("| {cells} | {names} |")).collect()
}

/// The heading of the cases of servers of remote files, and the head of their table.
const FILES: (&str, [&str; 2]) =
    ("Servers of remote files", ["| the client | cases |", "|---|---|"]);

/// The page with the tables that the code has.
fn with_tables(page: &str) -> String {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let of_transfers = cases::classes().into_iter().map(|(title, cases)| {
        (title, HEAD, rows(cases.iter().map(|case| (cells(case), case.name))))
    });
    let of_files = files::cases::all();
    let of_files = of_files.iter().map(|case| (case.end.text().to_owned(), case.name));
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
