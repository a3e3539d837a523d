//! Commands about storage on another host.

use crate::world::{LADS, World, run};
use std::process::Command;

/// A world whose directory is the home directory there, and the command that leads to it.
fn host() -> (World, String) {
    let world = World::new();
    world.write("data/file", b"some bytes");
    world.write("data/-odd", b"");
    // As ssh does, it gives all words to a shell.
    let home = home_of(&world);
    let script = format!("shift; export HOME={home}; cd && eval \"$*\"");
    let shell = world.fake_shell(&script);
    (world, shell)
}

fn home_of(world: &World) -> String {
    world.path("").display().to_string().trim_end_matches('/').to_owned()
}

fn lads(shell: &str, words: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.env("LADS_RSH", shell).env("LADS_REMOTE_LADS", LADS).args(words);
    command
}

fn printed(command: Command) -> String {
    String::from_utf8(run(command).expect(0).stdout).unwrap()
}

#[test]
fn what_is_told_of_another_host_is_what_lads_tells_there() {
    let (world, shell) = host();
    for words in [["osts", "--json"], ["layout", "--json"], ["layout", "--layout=local"]] {
        for path in ["data/file", "~/data/file", "./data/file"] {
            let there = format!("me@there:{path}");
            let theirs = printed(lads(&shell, &[words[0], words[1], &there]));
            let mut here = Command::new(LADS);
            here.current_dir(world.path("")).args(words).arg(path.trim_start_matches("~/"));
            // Paths are printed as given.
            let home = format!("{}/", home_of(&world));
            let plain = |text: String| {
                let text = text.replace("./data", "data").replace(&home, "");
                // Other tests write there, too.
                match text.split_once("\"free_bytes\":") {
                    Some((before, after)) => {
                        let after = after.trim_start_matches(|it: char| it.is_ascii_digit());
                        format!("{before}{after}")
                    }
                    None => text,
                }
            };
            assert_eq!(plain(theirs), plain(printed(here)), "{words:?} {path}");
        }
    }
    let told = printed(lads(&shell, &["probe", "--read-only", "--json", "there:"]));
    assert!(told.starts_with('{'), "{told}");
    printed(lads(&shell, &["layout", "there:data/-odd", "there:data/file"]));
    printed(lads(&shell, &["bench", "-q", "--time=1", "--size=1M", "--threads=1", "there:data"]));
}

#[test]
fn remains_are_removed_on_another_host() {
    let (world, shell) = host();
    printed(lads(&shell, &["clean", "--dry-run", "there:data"]));
    assert!(world.path("data/file").exists());
}

#[test]
fn an_error_there_is_an_error_here() {
    let (_world, shell) = host();
    let ended = run(lads(&shell, &["osts", "there:nothing"]));
    assert!(ended.code != Some(0) && ended.stderr.contains("nothing"), "{ended:?}");
    let ended = run(lads(&shell, &["layout", "there:data/file", "data/file"])).expect(2);
    assert!(ended.stderr.contains("all paths must be on the same host"), "{ended:?}");
    run(lads("sh -c 'exit 255'", &["osts", "there:/"])).expect(5);
    let ended = run(lads(&shell, &["osts", "-x:/"])).expect(2);
    assert!(!ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn entries_of_another_host_are_listed() {
    let (world, shell) = host();
    world.write("data/.hidden", b"");
    world.write("data/run1/out.h5", b"12345");
    world.write("data/run2/out.h5", b"");
    world.write("data/a:b", b"");
    std::os::unix::fs::symlink("file", world.path("data/link")).unwrap();
    let ls = |words: &[&str]| printed(lads(&shell, &[&["ls"], words].concat()));
    assert_eq!(ls(&["there:data"]), "-odd\na:b\nfile\nlink\nrun1/\nrun2/\n");
    assert_eq!(ls(&["-a", "there:~/data"]).lines().next(), Some("-odd"));
    assert_eq!(ls(&["-a", "there:data"]).lines().nth(1), Some(".hidden"));
    assert_eq!(ls(&["there:data/run*/out.h5"]), "data/run1/out.h5\ndata/run2/out.h5\n");
    assert_eq!(ls(&["there:data/a:b"]), "data/a:b\n");
    assert_eq!(ls(&["-d", "there:data/-odd"]), "data/-odd\n");
    assert_eq!(ls(&["there:data/run1", "there:data/run2"]).matches("out.h5").count(), 2);
    let long = ls(&["-l", "there:data"]);
    let line = long.lines().find(|line| line.contains("link")).unwrap();
    assert!(line.starts_with("lrwxrwxrwx ") && line.ends_with("Z link -> file"), "{long}");
    let own = rustix::process::getuid().as_raw();
    let name = Command::new("id").args(["-nu", &own.to_string()]).output().unwrap().stdout;
    let name = String::from_utf8(name).unwrap();
    assert_eq!(line.split_whitespace().nth(1), Some(name.trim()), "{long}");
    let json = ls(&["--json", "there:data/run1"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["path"], &json["bytes"]), (&"data/run1/out.h5".into(), &5.into()));
    let ended = run(lads(&shell, &["ls", "there:data/nothing", "there:data/file"])).expect(3);
    assert!(ended.stderr.contains("nothing"), "{ended:?}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "data/file\n");
}

#[test]
fn a_reader_that_has_gone_ends_it_without_a_message() {
    let (_world, shell) = host();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = lads(&shell, &["ls", "there:data"]);
    let ended = command.stdout(writer).output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(141), Vec::new()));
}

#[test]
fn listed_entries_are_those_of_ls() {
    let (world, _shell) = host();
    world.write("data/with space", b"x");
    let words = |program: &str, options: &[&str]| {
        let mut command = Command::new(program);
        if program == LADS {
            command.arg("ls");
        }
        command.env("LC_ALL", "C").args(options).arg(world.path("data"));
        printed(command)
    };
    for options in [&[][..], &["-a"]] {
        let theirs = words("ls", &[options, &["-p"]].concat());
        let theirs: Vec<_> = theirs.lines().filter(|name| !["./", "../"].contains(name)).collect();
        let ours = words(LADS, options);
        assert_eq!(ours.lines().collect::<Vec<_>>(), theirs, "{options:?}");
    }
    let modes = |text: String| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with("total"));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(modes(words(LADS, &["-l"])), modes(words("ls", &["-l"])));
}

#[test]
fn paths_of_another_host_are_completed() {
    let (world, shell) = host();
    world.write("data/run1/out.h5", b"");
    world.write("data/run*2", b"");
    let complete = |word: &str| printed(lads(&shell, &["complete", word]));
    assert_eq!(complete("there:data/ru"), "there:data/run*2\nthere:data/run1/\n");
    assert_eq!(complete("there:data/run*"), "there:data/run*2\n");
    assert_eq!(complete("there:da"), "there:data/\n");
    assert_eq!(complete("me@there:data/run1/"), "me@there:data/run1/out.h5\n");
    assert_eq!(complete("there:nothing"), "");
    assert_eq!(complete("data"), "");
    let mut missing = lads("sh -c 'exit 255'", &["complete", "there:da"]);
    missing.env_remove("LADS_REMOTE_LADS");
    assert_eq!(printed(missing), "");
}
