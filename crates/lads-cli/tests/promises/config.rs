//! Defaults of options: from variables, the user's file and the system's file.

use crate::world::{Ended, LADS, RUN_HERE, World, has, is_root, run};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Longer than a command needs that does not wait.
const SOON: Duration = Duration::from_secs(10);

/// The home directory of a user with a configuration file.
struct Home {
    world: World,
}

impl Home {
    fn with(text: &str) -> Self {
        let world = World::new();
        world.write("home/.config/lads/config.toml", text.as_bytes());
        world.write("src/a.tmp", b"a");
        world.write("src/b", b"b");
        Self { world }
    }

    fn file(&self) -> PathBuf {
        self.world.path("home/.config/lads/config.toml")
    }

    /// A command of this user.
    fn lads(&self, words: &[&str]) -> Command {
        let mut command = Command::new(LADS);
        command.env("HOME", self.world.path("home")).args(words);
        for variable in ["LADS_CONFIG", "XDG_CONFIG_HOME"] {
            command.env_remove(variable);
        }
        command
    }

    /// A copy into a new target.
    fn cp(&self, words: &[&str]) -> Command {
        let _ = fs::remove_dir_all(self.world.target());
        let mut command = self.lads(&["cp", "--json"]);
        command.args(words).arg(self.world.source_contents()).arg(self.world.target());
        command
    }

    /// What `lads config` prints, without its remarks on files.
    fn shown(&self, words: &[&str]) -> Vec<String> {
        let mut command = self.lads(&["config"]);
        command.args(words);
        shown(run(command))
    }

    fn copied(&self) -> Vec<String> {
        let entries = fs::read_dir(self.world.target()).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with(".lads")).collect();
        names.sort();
        names
    }
}

fn shown(ended: Ended) -> Vec<String> {
    let text = String::from_utf8(ended.expect(0).stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("# "));
    lines.map(|line| line.split("  # ").next().unwrap().trim_end().to_owned()).collect()
}

#[test]
fn an_option_of_the_command_line_goes_before_a_variable_and_that_before_a_file() {
    let home = Home::with("exclude = ['*.tmp']\n");
    run(home.cp(&[])).expect(0);
    assert_eq!(home.copied(), ["b"]);
    let mut command = home.cp(&[]);
    command.env("LADS_EXCLUDE", "b");
    run(command).expect(0);
    assert_eq!(home.copied(), ["a.tmp"]);
    let mut command = home.cp(&["--exclude=x"]);
    command.env("LADS_EXCLUDE", "b");
    run(command).expect(0);
    assert_eq!(home.copied(), ["a.tmp", "b"]);
}

#[test]
fn a_list_has_all_its_values() {
    let home = Home::with("exclude = ['*.tmp', 'b']\n");
    run(home.cp(&[])).expect(0);
    assert_eq!(home.copied(), [""; 0]);
}

#[test]
fn typed_settings_are_added_to_those_of_a_file_and_go_before_them() {
    let home = Home::with("source = \"pin=65000,threads=2\"\nlab = \"journal=no\"\n");
    let refused = run(home.cp(&["--source=threads=3"])).expect(2);
    assert!(format!("{refused:?}").contains("no processor 65000"), "{refused:?}");
    run(home.cp(&["--source", "pin=0"])).expect(0);
    let mut command = home.cp(&["--source=pin=0"]);
    command.env("LADS_SOURCE", "pin=64999");
    run(command).expect(0);
}

#[test]
fn the_file_of_the_user_goes_before_that_of_the_system() {
    if !is_root() || !has("unshare") {
        return;
    }
    let home = Home::with("[host.dtn2]\nports = '1-2'\n[host.'*']\nbwlimit = 1\n");
    let system = "ports = '3-4'\ntimeout = 5\n[host.'*']\nbwlimit = 2\ntimeout = 6\nretries = 7\n";
    let system = home.world.write("system", system.as_bytes());
    let shown_of = |words: &str| {
        let script = format!(
            "mount -t tmpfs none /etc && mkdir /etc/lads && cp {} /etc/lads/config.toml && \
             exec {LADS} config {words}",
            system.display()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).env("HOME", home.world.path("home"));
        command.env_remove("LADS_CONFIG").env_remove("XDG_CONFIG_HOME");
        shown(run(command))
    };
    assert_eq!(shown_of(""), ["ports = \"3-4\"", "timeout = 5"]);
    assert_eq!(shown_of("dtn2"), ["bwlimit = 1", "ports = \"1-2\"", "retries = 7", "timeout = 6"]);
    assert_eq!(shown_of("dtn3"), ["bwlimit = 1", "ports = \"3-4\"", "retries = 7", "timeout = 6"]);
}

#[test]
fn a_section_is_for_hosts_that_match_and_the_later_one_goes_before() {
    let home = Home::with(
        "retries = 1\n[host.'dtn*']\nretries = 2\nports = '1-2'\n[host.dtn7]\nretries = 3\n\
         [host.'*.org']\nretries = 4\n",
    );
    assert_eq!(home.shown(&[]), ["retries = 1"]);
    assert_eq!(home.shown(&["dtn2"]), ["ports = \"1-2\"", "retries = 2"]);
    assert_eq!(home.shown(&["dtn7"]), ["ports = \"1-2\"", "retries = 3"]);
    assert_eq!(home.shown(&["dtn7.org"]), ["ports = \"1-2\"", "retries = 4"]);
    assert_eq!(home.shown(&["other"]), ["retries = 1"]);
}

#[test]
fn it_is_shown_where_each_default_is_from() {
    let home = Home::with("\ntunnel = true\n[host.'d*']\nverbose = 2\nprogress = true\n");
    let ended = run({
        let mut command = home.lads(&["config", "dtn2"]);
        command.env("LADS_PORTS", "5000-5009").env("LADS_TUNNEL", "0");
        command
    });
    let file = home.file().display().to_string();
    let told = String::from_utf8(ended.expect(0).stdout).unwrap();
    let expected = format!(
        "# {file}\n# /etc/lads/config.toml(does not exist)\n\
         ports = \"5000-5009\"  # $LADS_PORTS\n\
         progress = true      # {file}:5, [host.\"d*\"]\n\
         tunnel = false       # $LADS_TUNNEL\n\
         verbose = 2          # {file}:4, [host.\"d*\"]\n"
    );
    let is_there = std::path::Path::new("/etc/lads/config.toml").exists();
    assert!(is_there || told == expected, "{told}");
}

#[test]
fn a_transfer_has_the_defaults_of_its_host_and_the_other_end_has_none() {
    let home = Home::with("");
    // The other end would end with an error if it read its file.
    let broken = home.world.write("broken", b"not toml");
    let shell = home.world.fake_shell(&format!(
        "export LADS_CONFIG={} LADS_VERIFY=nonsense\n{RUN_HERE}",
        broken.display()
    ));
    let text = format!("[host.there]\nrsh = '{shell}'\nremote-lads = '{LADS}'\ntunnel = true\n");
    fs::write(home.file(), text).unwrap();
    let mut command = home.lads(&["cp", "--json"]);
    let to = format!("me@there:{}", home.world.target().display());
    command.arg(home.world.source_contents()).arg(to);
    let ended = run(command).expect(0);
    assert_eq!(ended.summary()["data_protection"], "ssh", "{ended:?}");
    assert_eq!(home.copied(), ["a.tmp", "b"]);
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_line_and_nothing_is_done() {
    let cases = [
        ("prots = '1-2'", ":1: there is no option prots; did you mean ports?"),
        ("\n\nzzzzzzz = 1", ":3: there is no option zzzzzzz"),
        ("ports = '9-1'", ":1: invalid value '9-1' for '--ports <A-B>': write it like 5000-5009"),
        ("verify = 'hope'", ":1: invalid value 'hope' for '--verify <HOW>'"),
        ("ports = true", ":1: ports needs a value"),
        ("ports = ['1', '2']", ":1: ports takes one value"),
        ("tunnel = 'yes'", ":1: tunnel must be true or false"),
        ("verbose = 1e9", ":1: verbose must be a number below 10"),
        ("ports = 1979-05-27", ":1: not a possible value of an option"),
        ("ports = 0x10", ":1: not a possible value of an option"),
        ("[hosts]\nports = 1", ":1: unknown section [hosts]; only [host.\"PATTERN\"] exists"),
        ("[host]\ndtn2 = 1", ":1: write a section: [host.\"dtn2\"]"),
        ("[host.a.b]\nports = 1", ":1: unknown section [b]; only [host.\"PATTERN\"] exists"),
        ("ports = 1\nports = 2", ":2: duplicate key"),
        ("ports = ", ":1: "),
        ("delete = true\nremove-source-files = true", "cannot be used with"),
    ];
    for (text, told) in cases {
        let home = Home::with(text);
        let ended = run(home.cp(&[])).expect(2);
        let is_told = ended.stderr.contains(&format!("{}", home.file().display()))
            && ended.stderr.contains(told);
        assert!(is_told, "{text:?}: {ended:?}");
        assert_eq!(ended.summary()["exit_code"], 2, "{text:?}");
        assert!(!home.world.target().exists(), "{text:?}");
    }
}

#[test]
fn a_default_that_an_option_excludes_is_left_out() {
    let home = Home::with("delete = true\n");
    run(home.cp(&["--remove-source-files"])).expect(0);
    assert_eq!(fs::read_dir(home.world.source()).unwrap().count(), 0);
    // And one that another option takes back.
    let home = Home::with("progress = 1\n");
    run(home.cp(&["--no-progress"])).expect(0);
}

#[test]
fn a_variable_that_is_wrong_is_named() {
    let home = Home::with("");
    for (name, value, told) in [
        ("LADS_PORTS", "nine", "$LADS_PORTS: invalid value 'nine'"),
        ("LADS_TUNNEL", "perhaps", "$LADS_TUNNEL must be 0 or 1"),
        ("LADS_CONFIG", "/nonexistent", "$LADS_CONFIG: no file /nonexistent"),
    ] {
        let mut command = home.cp(&[]);
        command.env(name, value);
        let ended = run(command).expect(2);
        assert!(ended.stderr.contains(told), "{ended:?}");
    }
}

#[test]
fn a_file_that_others_may_write_to_is_refused_and_one_that_is_no_file() {
    let home = Home::with("tunnel = true\n");
    let refused = |told: &str| {
        let ended = run(home.cp(&[])).expect(2).within(SOON);
        assert!(ended.stderr.contains(told), "{ended:?}");
    };
    for mode in [0o620, 0o602] {
        fs::set_permissions(home.file(), fs::Permissions::from_mode(mode)).unwrap();
        refused("chmod go-w");
    }
    if is_root() {
        fs::set_permissions(home.file(), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(home.file(), Some(12_345), None).unwrap();
        refused("it must belong to you or to root");
    }
    fs::remove_file(home.file()).unwrap();
    assert!(Command::new("mkfifo").arg(home.file()).status().unwrap().success());
    refused("it is not a regular file");
    fs::remove_file(home.file()).unwrap();
    fs::write(home.file(), "#".repeat(2 << 20)).unwrap();
    refused("it is larger than");
    fs::write(home.file(), b"\xff").unwrap();
    refused("cannot use");
    // All the same, help is to be had, and a run without any file.
    run(home.lads(&["cp", "--help"])).expect(0);
    let mut command = home.cp(&[]);
    command.env("LADS_CONFIG", "/dev/null");
    run(command).expect(0);
}

/// Options that a command does not have are no error: one file is for all commands.
#[test]
fn a_default_is_for_the_commands_that_have_the_option() {
    let home = Home::with("delete = true\njson = true\n");
    let ended = run(home.lads(&["osts", "/"])).expect(0);
    assert!(ended.stdout.starts_with(b"{"), "{ended:?}");
    let mut command = home.lads(&["check"]);
    run(home.cp(&[])).expect(0);
    command.arg(home.world.source_contents()).arg(home.world.target());
    run(command).expect(0);
}
