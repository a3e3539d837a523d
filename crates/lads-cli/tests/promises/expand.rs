//! Paths on another host that a shell would expand there.

use crate::world::{LADS, RUN_HERE, World, check, run};
use std::fs;
use std::process::Command;

/// A host whose home directory is that of the world.
fn host() -> (World, String) {
    let world = World::new();
    for name in ["home/run1/out.h5", "home/run2/out.h5", "home/run2/log", "home/.run3/out.h5"] {
        world.write(name, name.as_bytes());
    }
    let shell =
        world.fake_shell(&format!("export HOME={}\n{RUN_HERE}", world.path("home").display()));
    (world, shell)
}

fn with_shell(mut command: Command, shell: &str) -> Command {
    command.args(["-e", shell, "--remote-lads", LADS, "--data-address", "127.0.0.1"]);
    command
}

fn cp(shell: &str) -> Command {
    with_shell(crate::world::lads(&[""; 0]), shell)
}

/// The files below the target, sorted.
fn files(world: &World) -> Vec<String> {
    let target = world.target();
    let mut found = Vec::new();
    lads_trees::visit(&target, &mut |path, metadata| {
        if metadata.is_file() && !path.to_string_lossy().contains("/.lads") {
            found.push(path.strip_prefix(&target).unwrap().display().to_string());
        }
    });
    found.sort();
    found
}

#[test]
fn a_pattern_of_another_host_is_expanded_there() {
    let (world, shell) = host();
    let mut command = cp(&shell);
    command.args(["there:~/run*", "there:~/run1/out.h5"]).arg(world.target());
    run(command).expect(0);
    assert_eq!(files(&world), ["out.h5", "run1/out.h5", "run2/log", "run2/out.h5"]);
}

#[test]
fn with_a_slash_a_pattern_stands_for_the_contents() {
    let (world, shell) = host();
    let mut command = cp(&shell);
    command.arg("there:~/run[2-9]/").arg(world.target());
    run(command).expect(0);
    assert_eq!(files(&world), ["log", "out.h5"]);
}

#[test]
fn the_home_directory_there_may_be_a_target() {
    let (world, shell) = host();
    world.write("src/new", b"new");
    let mut command = cp(&shell);
    command.arg(world.source_contents()).arg("me@there:~/run1");
    run(command).expect(0);
    assert_eq!(fs::read(world.path("home/run1/new")).unwrap(), b"new");
    // A pattern is none at the sink.
    let mut command = cp(&shell);
    command.arg(world.source_contents()).arg("there:~/run*");
    run(command).expect(0);
    assert_eq!(fs::read(world.path("home/run*/new")).unwrap(), b"new");
    // The pattern is that directory now.
    let mut command = with_shell(check(&[""; 0]), &shell);
    command.arg("there:~/run*/").arg(world.source_contents());
    run(command).expect(0);
}

#[test]
fn a_pattern_that_matches_nothing_is_missing_and_so_is_an_unknown_user() {
    let (world, shell) = host();
    let mut command = cp(&shell);
    command.args(["there:~/run*", "there:~/walk*"]).arg(world.target());
    let ended = run(command).expect(3);
    let issue = ended.issue();
    assert!(issue["path"].as_str().unwrap().ends_with("home/walk*"), "{issue}");
    assert_eq!(files(&world), ["run1/out.h5", "run2/log", "run2/out.h5"]);
    let mut command = cp(&shell);
    command.arg("there:~no-such-user/x").arg(world.target());
    run(command).expect(3).says(&["~no-such-user has no home directory"]);
    let mut command = cp(&shell);
    command.arg(world.path("home")).arg("there:~no-such-user/x");
    run(command).expect(6).says(&["~no-such-user has no home directory"]);
}

#[test]
fn a_list_is_for_one_directory() {
    let (world, shell) = host();
    let list = world.write("list", b"out.h5\n");
    let mut command = cp(&shell);
    command.arg("--files-from").arg(&list).arg("there:~/run*").arg(world.target());
    run(command).expect(2).says(&["--files-from needs exactly one SRC"]);
    let mut command = cp(&shell);
    command.arg("--files-from").arg(&list).arg("there:~/*1").arg(world.target());
    run(command).expect(0);
    assert_eq!(files(&world), ["out.h5"]);
}

/// Here, the user's shell has expanded them already.
#[test]
fn on_this_host_nothing_is_expanded() {
    let (world, _) = host();
    let mut command = crate::world::lads(&[""; 0]);
    command.arg(world.path("home/run*")).arg(world.target());
    run(command).expect(3);
    let mut command = crate::world::lads(&["home/run1/", "~"]);
    command.current_dir(world.path(""));
    run(command).expect(0);
    assert!(world.path("~/out.h5").exists());
}
