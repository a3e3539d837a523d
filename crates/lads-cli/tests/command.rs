//! Tests the parts of the `lads` command that need no transfer.

use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn lads(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lads"));
    command.args(arguments).stdin(Stdio::null()).output().expect("it can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn says_its_version() {
    let output = lads(&["--version"]);
    assert_eq!(text(&output.stdout), lads_engine::version() + "\n");
    assert!(text(&output.stdout).starts_with(concat!(
        "lads ",
        env!("CARGO_PKG_VERSION"),
        " (wire "
    )));
}

#[test]
fn help_and_version_are_commands_too() {
    assert_eq!(lads(&["version"]).stdout, lads(&["--version"]).stdout);
    assert_eq!(text(&lads(&["help"]).stdout), text(&lads(&["--help"]).stdout));
    assert_eq!(text(&lads(&["help", "cp"]).stdout), text(&lads(&["cp", "--help"]).stdout));
    let unknown = lads(&["help", "pc"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("unknown command `pc`"));
}

/// A regression test: completions offered options that `lads cp` knows only to refuse them.
#[test]
fn completions_offer_nothing_that_is_refused() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&lads(&["completions", shell]).stdout);
        for refused in ["delete-before", "compress-level", "iconv", "fuzzy"] {
            assert!(!script.contains(refused), "{shell} offers --{refused}");
        }
        for offered in ["bwlimit", "exclude-from", "connect-timeout", "imbalance", "read-only"] {
            assert!(script.contains(offered), "{shell} does not offer {offered}");
        }
    }
}

#[test]
fn a_wrong_command_line_exits_with_2_and_one_line_for_each_reason() {
    let output = lads(&["cp", "-avC", "--inplace", "a", "b"]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert_eq!(told.lines().filter(|line| line.starts_with("lads: -")).count(), 2, "{told}");
    assert_eq!(lads(&["cp", "--no-such-option"]).status.code(), Some(2));
    assert_eq!(lads(&["cp", "only"]).status.code(), Some(2));
    assert_eq!(lads(&["cp", "h1:a", "h2:b", "c"]).status.code(), Some(2));
    assert_eq!(lads(&["cp", "--log", "/nowhere/log", "a", "b"]).status.code(), Some(2));
}

#[test]
fn a_program_gets_a_summary_even_if_the_command_line_is_refused() {
    let output = lads(&["cp", "--json", "h1:a", "h2:b", "c"]);
    let events = text(&output.stdout);
    let event: Value = serde_json::from_str(&events).expect("it is one event");
    assert_eq!((&event["event"], &event["exit_code"]), (&"summary".into(), &2.into()));
}

#[test]
fn short_help_is_help_and_no_error() {
    let output = lads(&["cp", "-h"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("Usage: lads cp"));
}

#[test]
fn writes_manual_pages_and_completions() {
    let directory = tempfile::tempdir().expect("there is room");
    let pages = directory.path().join("man/man1");
    assert!(lads(&["man", pages.to_str().expect("it is text")]).status.success());
    assert!(pages.join("lads.1").is_file() && pages.join("lads-cp.1").is_file());
    let probe = fs::read_to_string(pages.join("lads-probe.1")).expect("it is there");
    assert!(probe.contains("\\-\\-json") && probe.contains("[default: .]"), "{probe}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(text(&lads(&["completions", shell]).stdout).contains("lads"), "{shell}");
    }
}

#[test]
fn shows_where_a_file_lies() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("file");
    fs::write(&path, vec![1; 3 << 20]).expect("it can be written");
    let path = path.to_str().expect("it is text");
    let synthetic = "--layout=synthetic:osts=4,stripe_count=3,stripe_size=1M";
    let shown = text(&lads(&["layout", synthetic, path]).stdout);
    assert!(shown.contains("3.0 MiB on 3 OSTs (synthetic)"), "{shown}");
    let json = text(&lads(&["layout", "--json", synthetic, path]).stdout);
    let value: Value = serde_json::from_str(&json).expect("it is one object");
    assert_eq!(value["osts"].as_array().map(Vec::len), Some(3), "{value}");
    assert_eq!(lads(&["layout", "/no/such/file", path]).status.code(), Some(3));
}

#[test]
fn shows_the_targets_of_a_file_system() {
    let table = text(&lads(&["osts", "/"]).stdout);
    assert!(table.starts_with("OST "), "{table}");
    let json = text(&lads(&["osts", "--json", "/"]).stdout);
    let first = json.lines().next().expect("there is one");
    let value: Value = serde_json::from_str(first).expect("it is an object");
    assert_eq!((&value["ost"], &value["state"]), (&0.into(), &"up".into()));
}

/// Returns the output of a command that is started in a directory, and its first line as an object,
/// if it is one.
fn printed_in(directory: &Path, arguments: &[&str]) -> (String, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lads"));
    let output = command.args(arguments).current_dir(directory).stdin(Stdio::null()).output();
    let output = output.expect("it can be started");
    let told = text(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let object = told.lines().next().and_then(|line| serde_json::from_str(line).ok());
    (told, object.unwrap_or_default())
}

/// `/dev/shm` is a file system of its own on every Linux, so the output for the current directory
/// differs from the output for another one.
#[test]
fn the_file_system_of_the_current_directory_is_shown_if_none_is_named() {
    let here = Path::new("/dev/shm");
    for command in ["osts", "probe"] {
        let shown = |arguments: &[&str]| printed_in(here, arguments).1;
        let of_target = |told: Value| match command {
            "osts" => told["name"].clone(),
            _ => told["targets"][0]["name"].clone(),
        };
        let unnamed = of_target(shown(&[command, "--json"]));
        assert!(unnamed.is_string(), "{command}: {unnamed}");
        assert_eq!(unnamed, of_target(shown(&[command, "--json", "/dev/shm"])), "{command}");
        assert_ne!(unnamed, of_target(shown(&[command, "--json", "/proc"])), "{command}");
    }
    let (told, _) = printed_in(here, &["probe"]);
    assert!(told.starts_with("Path: .\n"), "{told}");
}

#[test]
fn a_probe_tells_a_program_the_same_in_one_object() {
    let directory = tempfile::tempdir().expect("there is room");
    fs::write(directory.path().join("file"), "x").expect("it can be written");
    let (told, of_file) = printed_in(directory.path(), &["probe", "--json", "file"]);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert_eq!((&of_file["path"], &of_file["is_directory"]), (&json!("file"), &json!(false)));
    assert_eq!((&of_file["kind"], &of_file["layout"]["osts"]), (&json!("local"), &json!([0])));
    let direct_io = &of_file["direct_io"];
    let errno = &direct_io["errno"];
    assert_eq!(direct_io["is_possible"].as_bool(), Some(errno.is_null()), "{direct_io}");
    assert_eq!(of_file["new_files"]["not_tried"], "not-a-directory");

    let targets = printed_in(directory.path(), &["osts", "--json"]).1;
    let (_, of_directory) = printed_in(directory.path(), &["probe", "--json"]);
    assert_eq!(of_directory["targets"][0]["name"], targets["name"]);
    assert_eq!(of_directory["direct_io"], Value::Null);
    assert_eq!(of_directory["new_files"]["not_tried"], "nothing-to-choose");
    let (_, of_directory) = printed_in(directory.path(), &["probe", "--json", "--read-only"]);
    assert_eq!(of_directory["new_files"]["not_tried"], "read-only");

    let strange = OsStr::from_bytes(b"not\xfftext");
    fs::write(directory.path().join(strange), "x").expect("it can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lads"));
    command.args(["probe", "--json"]).arg(strange).current_dir(directory.path());
    let output = command.output().expect("it can be started");
    let found: Value = serde_json::from_slice(&output.stdout).expect("it is an object");
    assert_eq!(found["path_hex"], "6e6f74ff74657874");
}

#[test]
fn the_page_for_programs_shows_the_keys_that_are_told() {
    let page = include_str!("../../../docs/json.md");
    let keys = |object: &Value| -> Vec<String> {
        object.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    for (command, first_key) in [("osts", "{\"ost\""), ("probe", "{\"path\"")] {
        let (_, section) = page.split_once(&format!("### lads {command}\n")).expect("it is there");
        let example = section.lines().find(|line| line.starts_with(first_key));
        let example: Value = serde_json::from_str(example.expect("it is there")).expect("JSON");
        let (_, told) = printed_in(Path::new("/"), &[command, "--json"]);
        assert_eq!(keys(&told), keys(&example), "{command}");
        for part in ["layout", "new_files"] {
            assert_eq!(keys(&told[part]), keys(&example[part]), "{command}: {part}");
        }
    }
}

#[test]
fn a_probe_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("there is room");
    let output = lads(&["probe", directory.path().to_str().expect("it is text")]);
    let told = text(&output.stdout);
    assert!(output.status.success() && told.contains("treated as local"), "{told}");
    let left = fs::read_dir(directory.path()).expect("it is there").count();
    assert_eq!(left, 0);
}

#[test]
fn a_command_whose_output_nobody_reads_ends_without_a_word() {
    let looks = [
        "osts /",
        "osts --json /",
        "layout /",
        "probe --read-only /",
        "probe --json --read-only /",
        "completions bash",
    ];
    for look in looks {
        let (reader, writer) = std::io::pipe().expect("there are handles");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_lads"));
        let command = command.args(look.split(' ')).stdin(Stdio::null()).stdout(writer);
        let output = command.output().expect("it can be started");
        assert_eq!(
            (text(&output.stderr).as_str(), output.status.code()),
            ("", Some(141)),
            "{look}"
        );
    }
}

#[test]
fn storage_is_measured_with_a_file_that_is_gone_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().join("storage");
    fs::create_dir(&here).unwrap();
    let (here, page) = (here.to_str().unwrap(), directory.path().join("modes.html"));
    // A busy machine needs the time.
    let few = ["--time=4", "--size=4M", "--requests=64K,1M", "--threads=1,2"];
    let bench = |more: &[&str]| lads(&[&["bench"], &few[..], more, &[here]].concat());

    let output = bench(&["--json", "--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = found["figures"].as_array().unwrap();
    assert!(figures.len() == 8 || figures.len() == 16, "with direct I/O or without: {found}");
    for best in ["best_read", "best_write"] {
        assert!(found[best]["bytes_per_second"].as_f64().unwrap() > 0.0, "{found}");
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("class=\"best\"") && page.ends_with("</html>\n"), "{page}");

    let output = bench(&[]);
    let told = text(&output.stdout);
    for words in
        ["reading, through the page cache", "write best", "serial", "lads cp --sink threads="]
    {
        assert!(told.contains(words), "{words} in {told}");
    }
    assert_eq!(fs::read_dir(here).unwrap().count(), 0);

    let refused = lads(&["bench", "/proc"]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    assert!(text(&refused.stderr).contains("too little space"), "{refused:?}");
}
