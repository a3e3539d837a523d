//! Which entries are moved, and under which names: the same as with rsync, and as the dry run says.

use crate::tree::{Scale, describe, grow, visit};
use crate::world::{
    AS_RSYNC, Ended, LADS, Rng, World, assert_identical, for_seeds, has, lads, run,
};
use lads_core::filter::{Rule, Verdict, is_included};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn the_dry_run_says_exactly_what_is_done() {
    for_seeds(20, 1000, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        grow(&mut rng, &world.source(), &Scale::SMALL);
        if rng.is_one_in(2) {
            // Some entries exist at the target already, some of them the same and some not.
            run(world.cp(&["--exclude", "*5*"])).expect(0);
            world.write("src/plainnew", b"new");
            world.write("dst/other", b"only here");
        }
        let before = describe(&world.path(""));
        let said = lines(&world, "-n");
        assert_eq!(describe(&world.path("")), before, "the dry run changed something");
        assert_eq!(lines(&world, "-v"), said);
    });
}

/// A regression test: in a dry run the directory of the other name is missing, which counted as an
/// error of the sink.
#[test]
fn the_dry_run_needs_no_directory_of_another_name_of_a_file() {
    for there in ["dst/a/one", "dst/b/two"] {
        let world = World::new();
        world.write("src/a/one", b"one file");
        fs::create_dir(world.path("src/b")).unwrap();
        fs::hard_link(world.path("src/a/one"), world.path("src/b/two")).unwrap();
        world.write(there, b"something else");
        run(world.cp(&["--dry-run"])).expect(0);
    }
}

/// Returns the lines about paths, sorted.
fn lines(world: &World, option: &str) -> Vec<String> {
    let ended = run(world.cp(&[option])).expect(0);
    let mut lines: Vec<String> =
        ended.events_of("line").into_iter().map(|line| line.to_string()).collect();
    lines.sort();
    assert!(!lines.is_empty());
    lines
}

#[test]
fn trailing_slashes_mean_what_they_mean_to_rsync() {
    if !has("rsync") {
        return;
    }
    for (sources, target, there) in [
        (&["dir"][..], "new", None),
        (&["dir"], "new/", None),
        (&["dir"], "there", Some("there/x")),
        (&["dir"], "there/", Some("there/x")),
        (&["dir/"], "new", None),
        (&["dir/"], "there", Some("there/x")),
        (&["dir/."], "new", None),
        (&["dir/sub/.."], "new", None),
        (&["dir/sub/../"], "new", None),
        (&["dir/sub//"], "new", None),
        (&["./dir"], "there", Some("there/x")),
        (&["."], "../new", None),
        (&["dir", "dir2"], "there", Some("there/x")),
        (&["dir/", "dir2/"], "there", Some("there/x")),
        (&["dir/a", "dir2"], "there", Some("there/x")),
        (&["dir/a"], "new", None),
        (&["dir/a"], "new/", None),
        (&["dir/a"], "there", Some("there/x")),
        (&["dir/a"], "there/", Some("there/x")),
        (&["dir/a"], "there/other", Some("there/x")),
        (&["dir/a"], "there/a", Some("there/a")),
        (&["dir/a", "dir/b"], "there", Some("there/x")),
        (&["dir/a", "dir/b"], "new", None),
        (&["dir/link"], "new", None),
        (&["dir/link"], "there", Some("there/x")),
        (&["dir/dirlink"], "there", Some("there/x")),
        (&["dir/dirlink/"], "there", Some("there/x")),
    ] {
        let [ours, theirs] = [LADS, "rsync"].map(|program| {
            let world = World::new();
            moved(&world, program, sources, target, there)
        });
        assert_eq!(ours, theirs, "{sources:?} to {target}");
    }
}

/// Returns what is in the target after a move; `sources` and `target` are below the directory
/// `from`.
fn moved(
    world: &World,
    program: &str,
    sources: &[&str],
    target: &str,
    there: Option<&str>,
) -> (bool, BTreeSet<String>) {
    for (name, bytes) in [("dir/a", "a"), ("dir/sub/c", "c"), ("dir/b", "b"), ("dir2/d", "dd")] {
        world.write(format!("from/{name}"), bytes.as_bytes());
    }
    std::os::unix::fs::symlink("sub", world.path("from/dir/dirlink")).unwrap();
    std::os::unix::fs::symlink("a", world.path("from/dir/link")).unwrap();
    if let Some(there) = there {
        world.write(format!("from/{there}"), b"there before");
    }
    let mut command = Command::new(program);
    if program == "rsync" {
        command.arg("-aH");
    } else {
        command.args(["cp", "-q"]);
    }
    let output =
        command.args(sources).arg(target).current_dir(world.path("from")).output().unwrap();
    (output.status.success(), names_and_bytes(&world.path("")))
}

pub(crate) fn names_and_bytes(root: &Path) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    visit(root, &mut |path, metadata| {
        let below = path.strip_prefix(root).unwrap().display();
        let content = match metadata.file_type() {
            kind if kind.is_file() => fs::read_to_string(path).unwrap(),
            kind if kind.is_symlink() => format!("-> {:?}", fs::read_link(path).unwrap()),
            _ => "/".to_owned(),
        };
        seen.insert(format!("{below} {content}"));
    });
    seen
}

const NAMES: [&str; 8] = ["a", "b", "ab", "core", "x.log", "y.log", "data", "a.b"];
const PATTERNS: [&str; 27] = [
    "*.log",
    "a",
    "/a",
    "a/",
    "/a/",
    "a/*",
    "a/**",
    "**/a",
    "**/a/b",
    "*a*",
    "core",
    "?",
    "??",
    "[ab]",
    "[!a]",
    "a/***",
    "/data/***",
    "**/core/*",
    "[a-d]*",
    "/data/**",
    "*/",
    "*",
    "a/b",
    "/a/b/",
    "data/*.log",
    "*.l?g",
    "**b",
];

#[test]
fn patterns_choose_what_rsync_chooses() {
    if !has("rsync") {
        return;
    }
    for_seeds(25, 1000, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        grow_plain(&mut rng, &world.source(), 3);
        let mut options = Vec::new();
        for _ in 0..=rng.below(5) {
            options.push(rng.pick(&["--include", "--exclude", "--exclude"]));
            options.push(PATTERNS[rng.below(PATTERNS.len())]);
        }
        compare_with_rsync(&world, &options);
    });
}

/// Pieces of random patterns: everything that has a meaning to rsync, and what only looks like it.
const PIECES: [&str; 44] = [
    "a",
    "b",
    "]",
    "-",
    "^",
    "!",
    ":",
    "\\",
    "/",
    "?",
    "*",
    "**",
    "***",
    "[",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "[]a]",
    "[!]]",
    "[\\]]",
    "[a\\-c]",
    "[a-\\c]",
    "[a-]",
    "[-b]",
    "[b-a]",
    "[/a]",
    "[[:digit:]]",
    "[[:alpha:]]",
    "[^[:alnum:]]",
    "[[:punct:]a]",
    "[[:space:][:upper:]]",
    "[[:none:]]",
    "[[:digit]",
    "[[:]",
    "[:a]",
    "[[:xdigit:]-z]",
    "[a-[:b]",
    "\\[",
    "\\*",
    "\\?",
    "\\a",
    "7",
    "A",
];

/// Paths on which random patterns are tried, with all that is special to patterns in their names.
const TRIED: [&str; 22] = [
    "a", "b/", "b/a", "b/b", "b/ab/", "b/ab/a", "b/ab/]", "]", "-", "^a", "!", "a:b", "a\\b", "\\",
    "*", "?a", "[a", "[ab]", "7", "A", " ", "a-c",
];

#[test]
fn random_patterns_match_what_they_match_for_rsync() {
    if !has("rsync") {
        return;
    }
    let world = World::new();
    for path in TRIED {
        match path.strip_suffix('/') {
            Some(directory) => fs::create_dir_all(world.source().join(directory)).unwrap(),
            None => drop(world.write(format!("src/{path}"), b"")),
        }
    }
    for_seeds(400, 20_000, |seed| {
        let mut rng = Rng::new(seed);
        let rules: Vec<(bool, String)> = (0..=rng.below(2))
            .map(|_| {
                let count = 1 + rng.below(4);
                (rng.is_one_in(3), (0..count).map(|_| rng.pick(&PIECES)).collect())
            })
            .collect();
        let mut command = Command::new("rsync");
        command.args(["-rn", "--out-format=%n"]);
        for (is_included, pattern) in &rules {
            let option = if *is_included { "include" } else { "exclude" };
            command.arg(format!("--{option}={pattern}"));
        }
        let theirs = command.args([&world.source_contents(), "/nowhere/"]).output().unwrap();
        assert!(theirs.status.success(), "{theirs:?}");
        let rules: Vec<Rule> = rules
            .into_iter()
            .map(|(is_included, pattern)| Rule {
                verdict: if is_included { Verdict::Include } else { Verdict::Exclude },
                pattern: pattern.into_bytes(),
            })
            .collect();
        let ours: BTreeSet<&str> =
            TRIED.into_iter().filter(|path| is_moved(&rules, path)).collect();
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        let theirs: BTreeSet<&str> = theirs.lines().filter(|line| TRIED.contains(line)).collect();
        assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(&rules[0].pattern));
    });
}

/// Reports whether rules let an entry and all directories above it through; the path of a directory
/// ends in a slash.
fn is_moved(rules: &[Rule], path: &str) -> bool {
    let is_directory = path.ends_with('/');
    let path = path.trim_end_matches('/');
    let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
    above.all(|directory| is_included(rules, directory.as_bytes(), true))
        && is_included(rules, path.as_bytes(), is_directory)
}

#[test]
fn a_list_of_files_chooses_what_rsync_chooses() {
    if !has("rsync") {
        return;
    }
    for_seeds(30, 1000, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        grow_plain(&mut rng, &world.source(), 3);
        for _ in 0..rng.below(5) {
            plant_link(&mut rng, &world.source());
        }
        let list: String = (0..=rng.below(6)).map(|_| listed_path(&mut rng)).collect();
        let list = world.write("list", list.as_bytes());
        // LADS moves a directory with its contents, as rsync does with -r.
        let mut options = vec!["-r", "--files-from", list.to_str().unwrap()];
        if rng.below(3) == 0 {
            options.extend(["--exclude", PATTERNS[rng.below(PATTERNS.len())]]);
        }
        let theirs = copy_by_rsync(&world, &options);
        let missing = missing_to_rsync(&world, &theirs);
        assert_eq!(theirs.status.code(), Some(if missing.is_empty() { 0 } else { 23 }));
        let ours = run(world.cp(&options)).expect(if missing.is_empty() { 0 } else { 3 });
        let list = fs::read_to_string(&list).unwrap();
        assert_eq!(reported(&world, &ours), missing, "{list}{options:?}");
        assert_eq!(
            names_and_bytes(&world.target()),
            names_and_bytes(&world.path("theirs")),
            "{list}{options:?}"
        );
    });
}

/// Makes a link in a directory of a tree, which may lead to a file, a directory, itself, or
/// nowhere.
fn plant_link(rng: &mut Rng, root: &Path) {
    let mut directory = root.to_owned();
    while directory.join(NAMES[0]).is_dir() && rng.below(2) == 0 {
        directory.push(NAMES[0]);
    }
    let target = Path::new(rng.pick(&["", "..", "."])).join(NAMES[rng.below(NAMES.len())]);
    let name = directory.join(rng.pick(&["link", "a", "data"]));
    let _ = std::os::unix::fs::symlink(target, name);
}

/// A line of a list: a path that often does not exist.
fn listed_path(rng: &mut Rng) -> String {
    let names = ["a", "b", "data", "link", "link", "ab", "core"];
    let count = 1 + rng.below(3);
    let path: Vec<&str> = (0..count).map(|_| rng.pick(&names)).collect();
    let (first, last) = (rng.pick(&["", "", "./", "/"]), rng.pick(&["", "", "", "/", "/."]));
    format!("{first}{}{last}\n", path.join("/"))
}

#[test]
fn every_listed_path_that_is_missing_is_reported_by_its_name() {
    let world = World::new();
    world.write("src/file", b"x");
    world.write("src/real/there", b"x");
    std::os::unix::fs::symlink("real", world.path("src/link")).unwrap();
    let absent: Vec<String> = (0..100).map(|n| format!("real/absent{n}")).collect();
    let paths = ["file/below", "link/there", "link/absent/x", "nothing/a/b"];
    let list = [&paths.map(str::to_owned)[..], &absent].concat().join("\n");
    let list = world.write("list", list.as_bytes());
    let ended = run(world.cp(&["--files-from", list.to_str().unwrap()])).expect(3);
    let missing = ["file/below", "link/absent/x", "nothing/a/b"].map(str::to_owned);
    assert_eq!(reported(&world, &ended), missing.into_iter().chain(absent).collect());
    let expected = [" /", "link /", "link/there x"].map(str::to_owned).into();
    assert_eq!(names_and_bytes(&world.target()), expected);
}

/// Returns the paths that failed, below the source.
fn reported(world: &World, ended: &Ended) -> BTreeSet<String> {
    let path = |issue: &serde_json::Value| {
        let path = Path::new(issue["path"].as_str().unwrap());
        path.strip_prefix(world.source()).unwrap().display().to_string()
    };
    ended.events_of("issue").iter().map(path).collect()
}

/// Returns the listed paths that rsync did not find, below the source.
fn missing_to_rsync(world: &World, theirs: &Output) -> BTreeSet<String> {
    let start = format!("link_stat \"{}/", world.source().display());
    let errors = String::from_utf8_lossy(&theirs.stderr).into_owned();
    let paths = errors.lines().filter_map(|line| line.split_once(&start)?.1.split_once('"'));
    paths.map(|(path, _)| path.trim_end_matches("/.").to_owned()).collect()
}

fn copy_by_rsync(world: &World, options: &[&str]) -> Output {
    // The target must exist: otherwise rsync would take it for the new name of a single file.
    fs::create_dir_all(world.target()).unwrap();
    fs::create_dir_all(world.path("theirs")).unwrap();
    let mut command = Command::new("rsync");
    command.arg("-aH").args(options).arg(world.source_contents()).arg(world.path("theirs"));
    command.output().unwrap()
}

fn compare_with_rsync(world: &World, options: &[&str]) {
    let theirs = copy_by_rsync(world, options);
    assert!(theirs.status.success(), "{options:?}: {theirs:?}");
    run(world.cp(options)).expect(0);
    let names = |root: &Path| names_and_bytes(root);
    assert_eq!(names(&world.target()), names(&world.path("theirs")), "{options:?}");
}

/// Makes a tree of names that the patterns are about.
fn grow_plain(rng: &mut Rng, root: &Path, depth: usize) {
    fs::create_dir_all(root).unwrap();
    for name in NAMES {
        let path = root.join(name);
        match rng.below(4) {
            0 if depth > 0 => grow_plain(rng, &path, depth - 1),
            1 | 2 => fs::write(&path, name).unwrap(),
            _ => {}
        }
    }
}

#[test]
fn a_directory_named_alone_is_made_below_the_target() {
    if !has("rsync") {
        return;
    }
    let world = World::new();
    grow(&mut Rng::new(11), &world.source(), &Scale::SMALL);
    let mut command = lads(&[AS_RSYNC]);
    command.arg(world.source()).arg(world.target());
    run(command).expect(0);
    assert_identical(&world.source(), &world.target().join("src"));
}
