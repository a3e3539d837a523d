//! Checks rules of the source tree that no compiler checks and every reader relies on.
//!
//! These are tests, not only a step of CI, so that `cargo test` finds violations early. Words that
//! must not occur are put together from parts, because this file is checked, too.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod code;
mod layers;
mod pages;
mod use_of;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the workspace that each crate may depend on. A crate that is in none of these
/// lists must not be a dependency of any other crate, except for those in [`FOR_TESTS`].
const MAY_DEPEND_ON: [(&str, &[&str]); 14] = [
    ("lads-core", &[]),
    ("lads-sys", &[]),
    ("lads-engine", &["lads-core", "lads-sys"]),
    // `lads-mpiio` and `lads-trees` are only for its tests.
    (
        "lads-cli",
        &[
            "lads-core",
            "lads-engine",
            "lads-mpiio",
            "lads-plot",
            "lads-shims",
            "lads-sys",
            "lads-trees",
        ],
    ),
    // `lads-shims` is only for its tests.
    ("lads-mpiio", &["lads-core", "lads-engine", "lads-shims"]),
    ("lads-shims", &[]),
    ("lads-hostile", &["lads-core"]),
    ("lads-fuzz", &["lads-core"]),
    ("lads-sim", &["lads-core", "lads-plot"]),
    ("lads-testbed", &["lads-core", "lads-sys"]),
    ("lads-trees", &[]),
    ("lads-tried", &[]),
    ("lads-plot", &[]),
    ("xtask", &["lads-plot", "lads-shims", "lads-trees", "lads-tried"]),
];

/// Crates of the workspace that all others may use, but only in tests.
const FOR_TESTS: [&str; 2] = ["lads-hostile", "lads-tried"];

/// What the clippy.toml of lads-core must ban, in addition to the names in the next list.
const WALL: [&str; 9] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::fs::File",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::io::Error",
    "std::sync::Mutex",
];

/// What no line of lads-core may contain, whether clippy bans it or not.
const BEYOND_THE_WALL: [&str; 7] = [
    "std::fs",
    "std::net",
    "std::io",
    "std::thread",
    "std::process",
    "std::env",
    "std::sync::atomic",
];

/// Names of sockets. The list below has the files and directories of the engine that may use them:
/// the transport, and some tests.
const SOCKETS: [&str; 8] = [
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "socket2",
    "rustix::net",
];
const MAY_NAME_SOCKETS: [&str; 9] = [
    // It carries the pipes of ends, which know no socket either.
    "daemon",
    "transport/tcp.rs",
    "transport/tcp",
    "transport/contract.rs",
    "patience/tests.rs",
    "remote/tests/middle.rs",
    "remote/tests/resumed.rs",
    "remote/tests/strange.rs",
    "launch/route/tests.rs",
];

const COLUMNS_MAX: usize = 100;
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most lines of a file of code. A longer file should be split.
const FILE_LINES_MAX: usize = 800;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All files of the tree except those that `.gitignore` names, as paths below the root.
fn files() -> Vec<PathBuf> {
    let ignored: Vec<PathBuf> = fs::read_to_string(root().join(".gitignore"))
        .unwrap()
        .lines()
        .map(|line| PathBuf::from(line.trim_matches('/')))
        .chain([PathBuf::from(".git")])
        .collect();
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if ignored.contains(&path) {
                continue;
            }
            let list =
                if entry.file_type().unwrap().is_dir() { &mut directories } else { &mut files };
            list.push(path);
        }
    }
    files.sort();
    files
}

/// The directories of all crates, as paths below the root.
fn crates() -> Vec<PathBuf> {
    let manifests = files().into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let directories = manifests.filter_map(|path| Some(path.parent()?.to_owned()));
    directories.filter(|path| root().join(path).join("src").is_dir()).collect()
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|own| extensions.iter().any(|extension| own == *extension))
}

/// The lines of all files with one of these extensions: path, line number and text.
fn lines_of(extensions: &[&str]) -> Vec<(PathBuf, usize, String)> {
    let mut lines = Vec::new();
    for path in files().into_iter().filter(|path| has_extension(path, extensions)) {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        for (index, line) in text.lines().enumerate() {
            lines.push((path.clone(), index + 1, line.to_owned()));
        }
    }
    lines
}

/// Fails with the place and text of every line for which `is_bad` returns true.
#[track_caller]
fn no_line(extensions: &[&str], what: &str, is_bad: impl Fn(&Path, &str) -> bool) {
    let bad: Vec<String> = lines_of(extensions)
        .into_iter()
        .filter(|(path, _, line)| is_bad(path, line))
        .map(|(path, number, line)| format!("{}:{number}: {}", path.display(), line.trim()))
        .collect();
    assert!(bad.is_empty(), "{what}:\n{}", bad.join("\n"));
}

/// The line without its comment. A `//` in a string cuts off too much, which can only hide what
/// comes after it.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Whether a word is in the text by itself, not as a part of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_letter)
            && !text[at + word.len()..].chars().next().is_some_and(is_letter)
    })
}

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_DEPEND_ON.into_iter().collect();
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} has no row in this test"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            let is_ours = allowed.contains_key(other);
            let is_for_tests = dependency["kind"] == "dev" && FOR_TESTS.contains(&other);
            let is_allowed = !is_ours || is_for_tests || may.contains(&other);
            assert!(is_allowed, "{name} may not depend on {other}");
        }
    }
}

#[test]
fn every_crate_obeys_the_lints_of_the_house() {
    for path in files().into_iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let obeys = text.contains("[lints]\nworkspace = true") || text.contains("[workspace]");
        assert!(obeys, "{} lacks [lints] workspace = true", path.display());
    }
}

#[test]
fn the_wall_around_the_core_stands() {
    let wall = fs::read_to_string(root().join("crates/lads-core/clippy.toml")).unwrap();
    for path in WALL {
        assert!(wall.contains(&format!("path = \"{path}\"")), "clippy.toml does not ban {path}");
    }
    let core = fs::read_to_string(root().join("crates/lads-core/src/lib.rs")).unwrap();
    assert!(core.contains("#![forbid(unsafe_code)]"));
    no_line(&["rs"], "lads-core decides, it does not do", |path, line| {
        path.starts_with("crates/lads-core")
            && BEYOND_THE_WALL.iter().any(|name| code(line).contains(name))
    });
}

#[test]
fn only_lads_sys_is_trusted() {
    let keyword = concat!("un", "safe");
    let lint = concat!("un", "safe_code)");
    no_line(&["rs"], "belongs into lads-sys", |path, line| {
        let is_lifted = code(line).contains(lint) && !code(line).contains("forbid(");
        // A C interface is made of raw pointers; they become references in one file.
        let is_c_interface = path == Path::new("crates/lads-mpiio/src/abi.rs");
        let is_trusted = path.starts_with("crates/lads-sys") || is_c_interface;
        // The word may be part of a quoted name, such as an option of rsync.
        let is_quoted = line.contains('"');
        !is_trusted && (has_word(code(line), keyword) && !is_quoted || is_lifted)
    });
}

/// The output of a program that embeds the engine belongs to that program.
#[test]
fn the_engine_prints_nothing() {
    // These files may use the streams: the second process of a transfer talks over them, and a job
    // may ask for them, also as its source or its target.
    let may_open = [
        "crates/lads-engine/src/session.rs",
        "crates/lads-engine/src/launch/other.rs",
        "crates/lads-engine/src/source/input.rs",
        "crates/lads-engine/src/sink/output.rs",
    ];
    let macros = ["print", "println", "eprint", "eprintln"];
    let streams = ["stdin", "stdout", "stderr"];
    for name in ["lads-core", "lads-sys", "lads-engine"] {
        for source in code::sources(root(), &Path::new("crates").join(name)) {
            let path = source.path.display();
            for (at, token) in source.tokens.iter().enumerate() {
                let Some(word) = token.word() else { continue };
                let is = |signs| code::has_signs(&source.tokens, at + 1, signs);
                assert!(!(macros.contains(&word) && is("!")), "{path} prints");
                let opens = streams.contains(&word) && is("()") && !is_field(&source.tokens, at);
                let may = may_open.iter().any(|may| source.path == Path::new(may));
                assert!(may || !opens, "{path} uses the {word} of its process");
            }
        }
    }
}

/// Whether a word is a field or a method, because a dot precedes it.
fn is_field(tokens: &[code::Token], at: usize) -> bool {
    at > 0 && tokens[at - 1].is('.')
}

/// Code above the trait `Transport` does not use sockets.
#[test]
fn the_engine_knows_no_socket() {
    no_line(&["rs"], "belongs into lads-engine/src/transport", |path, line| {
        let Ok(path) = path.strip_prefix("crates/lads-engine/src") else { return false };
        let may_name = MAY_NAME_SOCKETS.iter().any(|may| path.starts_with(may));
        !may_name && SOCKETS.iter().any(|word| code(line).contains(word))
    });
}

/// The static program cannot contain glibc's resolver, and an address that is text calls it.
#[test]
fn the_static_program_resolves_no_text() {
    let programs = ["crates/lads-cli/src", "crates/lads-engine/src", "crates/lads-sys/src"];
    no_line(&["rs"], "an address as text", |path, line| {
        let is_in_program = programs.iter().any(|program| path.starts_with(program));
        let calls = ["bind((\"", "connect((\"", ".to_socket_addrs()"];
        is_in_program
            && !path.ends_with("lads-engine/src/names.rs")
            && calls.iter().any(|call| code(line).contains(call))
    });
}

#[test]
fn lines_fit_the_screen() {
    no_line(&["rs"], "longer than 100 columns", |_, line| {
        // Golden bytes stay on one line, so that a search finds them.
        let is_golden = line.trim_start().starts_with('"') || line.contains("expect![");
        line.chars().count() > COLUMNS_MAX && !is_golden
    });
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];
    no_line(&["rs", "md", "toml", "sh", "yml"], "do it now, or open an issue", |_, line| {
        marks.iter().any(|mark| has_word(line, mark)) || macros.iter().any(|m| line.contains(m))
    });
}

#[test]
fn every_test_is_run() {
    let mark = concat!("#[ig", "nore");
    no_line(&["rs"], "a test that is not run says nothing", |_, line| code(line).contains(mark));
}

#[test]
fn no_file_is_large() {
    for path in files() {
        let bytes = fs::symlink_metadata(root().join(&path)).unwrap().len();
        assert!(bytes <= FILE_BYTES_MAX, "{} has {bytes} bytes", path.display());
    }
}

#[test]
fn no_file_of_code_is_long() {
    for path in files().into_iter().filter(|path| has_extension(path, &["rs"])) {
        let lines = fs::read_to_string(root().join(&path)).unwrap().lines().count();
        let path = path.display();
        assert!(lines <= FILE_LINES_MAX, "{path} has {lines} lines");
    }
}

#[test]
fn no_path_of_one_machine_is_named() {
    let homes = [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];
    no_line(&["rs", "md", "toml", "sh", "yml", "svg"], "nobody else has it", |_, line| {
        homes.iter().any(|home| {
            // The match must not be a part of a longer path, below another directory.
            line.match_indices(home).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-*}/".contains(c))
            })
        })
    });
}
