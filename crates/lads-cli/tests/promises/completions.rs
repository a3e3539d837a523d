//! Completions in real shells: local paths are offered for local words, and none after `host:`.

use crate::world::{LADS, World, has};
use std::fs;
use std::process::{Command, Stdio};

/// Prints the words of a command that was completed and run.
const PRINT_WORDS: &str = "lads() { printf 'RAN'; printf '[%s]' \"$@\"; echo; }";

/// Makes a world with a file `local-file` and the completions for a shell.
fn world_for(shell: &str) -> World {
    let world = World::new();
    world.write("local-file", b"");
    let script = Command::new(LADS).args(["completions", shell]).output().unwrap();
    assert!(script.status.success());
    world.write("completions", &script.stdout);
    world
}

/// Types a line, a tab and a new line into an interactive shell on a terminal of its own. Returns
/// the words that the shell then ran.
fn typed(world: &World, shell: &str, line: &str) -> String {
    let input = world.write("input", format!("{line}\t\nexit\n").as_bytes());
    let mut command = Command::new("script");
    command.args(["-qec", shell, "/dev/null"]).current_dir(world.path(""));
    command.env("ZDOTDIR", world.path("")).env("TERM", "dumb");
    command.stdin(fs::File::open(input).unwrap()).stderr(Stdio::null());
    let output = String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
    let ran = output.split("RAN").last().unwrap_or_default();
    ran.lines().next().unwrap_or_default().to_owned()
}

/// Words as they are typed, and as they are completed.
const WORDS: [(&str, &str); 6] = [
    ("lads cp lo", "[cp][local-file]"),
    ("lads cp host:lo", "[cp][host:lo]"),
    ("lads cp -v other me@host:lo", "[cp][-v][other][me@host:lo]"),
    ("lads check host:lo", "[check][host:lo]"),
    ("lads cp host:a\\ lo", "[cp][host:a lo]"),
    ("lads cp ./lo", "[cp][./local-file]"),
];

#[test]
fn bash_offers_no_local_paths_of_another_host() {
    if !has("bash") || !has("script") {
        return;
    }
    let world = world_for("bash");
    world.write("rc", format!("source ./completions\n{PRINT_WORDS}\n").as_bytes());
    for (line, completed) in WORDS {
        assert_eq!(typed(&world, "bash --rcfile rc -i", line), completed, "{line}");
    }
}

#[test]
fn zsh_offers_no_local_paths_of_another_host() {
    if !has("zsh") || !has("script") {
        return;
    }
    let world = world_for("zsh");
    let rc = "autoload -Uz compinit; compinit -u -d ./dump\nsource ./completions\n";
    world.write(".zshrc", format!("{rc}{PRINT_WORDS}\n").as_bytes());
    for (line, completed) in WORDS {
        assert_eq!(typed(&world, "zsh -i", line), completed, "{line}");
    }
}

#[test]
fn fish_offers_no_local_paths_of_another_host() {
    if !has("fish") {
        return;
    }
    let world = world_for("fish");
    let offers = |line: &str| {
        let complete = format!("source completions; complete -C '{line}'");
        let mut command = Command::new("fish");
        command.args(["--no-config", "-c", &complete]).current_dir(world.path(""));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for line in ["lads cp lo", "lads cp a lo", "lads cp ./lo", "lads layout lo"] {
        assert!(offers(line).contains("local-file"), "{line}: {}", offers(line));
    }
    for line in ["lads cp host:", "lads cp host:lo", "lads cp a me@h:lo", "lads check host:lo"] {
        assert_eq!(offers(line), "", "{line}");
    }
}
