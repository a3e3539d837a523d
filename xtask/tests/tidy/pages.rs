//! Checks the pages: their titles and lengths, and the tests and files that they name.

use super::{files, has_extension, lines_of, root};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of words of a page, as `wc -w` counts them. A page is as long as its answer.
const WORDS_MAX: [(&str, usize); 3] =
    [("README.md", 900), ("ARCHITECTURE.md", 4_000), ("docs/benchmarks.md", 3_000)];

/// Maximum number of words of each decision record.
const DECISION_WORDS_MAX: usize = 250;

/// Maximum number of words of all pages together.
const ALL_WORDS_MAX: usize = 35_000;

const DECISIONS: &str = "docs/decisions";

fn pages() -> impl Iterator<Item = PathBuf> {
    files().into_iter().filter(|path| has_extension(path, &["md"]))
}

fn text(page: &Path) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

fn words(page: &Path) -> usize {
    text(page).split_whitespace().count()
}

/// The parts of a text that are in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_page_has_one_title() {
    for page in pages() {
        let text = text(&page);
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("# "), "{} does not begin with a title", page.display());
        let is_prose = |index: &usize| index.is_multiple_of(2);
        let prose = text.split("```").enumerate().filter(|(index, _)| is_prose(index));
        let titles = prose.flat_map(|(_, part)| part.lines()).filter(|line| line.starts_with("# "));
        assert_eq!(titles.count(), 1, "titles of {}", page.display());
    }
}

#[test]
fn the_main_pages_are_short() {
    for (page, max) in WORDS_MAX {
        let words = words(Path::new(page));
        assert!(words <= max, "{page} has {words} words, more than {max}");
    }
}

#[test]
fn decision_records_are_short() {
    let records: Vec<PathBuf> = pages().filter(|page| page.starts_with(DECISIONS)).collect();
    assert!(!records.is_empty(), "no decision records in {DECISIONS}");
    for page in records {
        let words = words(&page);
        assert!(words <= DECISION_WORDS_MAX, "{} has {words} words", page.display());
    }
}

#[test]
fn all_pages_together_are_short() {
    let words: usize = pages().map(|page| words(&page)).sum();
    assert!(words <= ALL_WORDS_MAX, "the pages have {words} words, more than {ALL_WORDS_MAX}");
}

/// A decision record keeps its number, because code and pages refer to it.
#[test]
fn decision_records_have_the_numbers_of_their_files() {
    let index = text(Path::new("ARCHITECTURE.md"));
    for page in pages().filter(|page| page.starts_with(DECISIONS)) {
        let name = page.file_name().and_then(|name| name.to_str()).unwrap();
        let number: u32 = name.split('-').next().unwrap().parse().unwrap();
        assert!(text(&page).starts_with(&format!("# {number}. ")), "the title of {name}");
        let link = format!("- [{number}]({DECISIONS}/{name}) ");
        assert!(index.contains(&link), "ARCHITECTURE.md does not list {name}");
    }
}

#[test]
fn every_test_of_a_promise_exists() {
    let promises = text(Path::new("docs/promises.md"));
    let sources: String = lines_of(&["rs"]).into_iter().map(|(_, _, line)| line + "\n").collect();
    let is_test = |name: &&str| {
        name.matches('_').count() > 2 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let names: Vec<&str> = quoted(&promises).filter(is_test).collect();
    assert!(names.len() > 100, "only {} tests found", names.len());
    for name in names {
        assert!(sources.contains(&format!("fn {name}(")), "no test is called {name}");
    }
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let files = files();
    let decisions = pages().filter(|page| page.starts_with(DECISIONS));
    for page in decisions.chain([PathBuf::from("ARCHITECTURE.md")]) {
        for name in quoted(&text(&page)).filter(|name| {
            has_extension(Path::new(name), &["rs", "c", "h", "sh"]) && !name.contains(' ')
        }) {
            let exists = files.iter().any(|file| file.ends_with(name));
            assert!(exists, "{} names {name}, which does not exist", page.display());
        }
    }
}

/// The protocol page shows bytes. The tests of the core must check the same bytes.
#[test]
fn the_golden_bytes_on_the_protocol_page_are_those_that_are_tested() {
    let page = text(Path::new("docs/protocol.md"));
    // The page shows four bytes together.
    let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
    let page = without_spaces(&page);
    let tests = fs::read_to_string(root().join("crates/lads-core/src/message/tests.rs")).unwrap();
    let is_hex =
        |text: &&str| text.len() > 4 && text.chars().all(|c| c == ' ' || (c.is_ascii_hexdigit()));
    let golden: Vec<&str> = tests.split('"').filter(is_hex).filter(|s| s.contains(' ')).collect();
    assert!(golden.len() >= 7, "golden strings not found");
    for bytes in golden {
        assert!(
            page.contains(&without_spaces(bytes)),
            "docs/protocol.md, section 7, lacks {bytes}"
        );
    }
}
