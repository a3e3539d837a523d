//! LADS brings itself to a host that has only sshd.

use crate::world::{LADS, World, assert_identical, has, run, start, write_script};
use lads_tried::{Account, Sshd, is_root};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server for an account with an empty home directory, and a small data set.
struct Host {
    world: World,
    sshd: Sshd,
}

impl Host {
    fn with(change: impl FnOnce(&World, &mut Account)) -> Option<Self> {
        Self::with_shell("bash", change)
    }

    /// `None` if this cannot be tried here.
    fn with_shell(shell: &str, change: impl FnOnce(&World, &mut Account)) -> Option<Self> {
        if !is_root() || !has("unshare") || !has(shell) {
            return None;
        }
        let world = World::on_disk();
        for name in ["home", "shared", "src"] {
            fs::create_dir(world.path(name)).unwrap();
        }
        fs::write(world.path("src/file"), vec![7; 3 << 20]).unwrap();
        let shell = lads_tried::find(shell).unwrap();
        let mut account = Account::new(&world.path("home"), &shell);
        account.preparation = "mount --bind shared /var/tmp".to_owned();
        change(&world, &mut account);
        let sshd = Sshd::start_for(&world.path(""), &account).unwrap()?;
        Some(Self { world, sshd })
    }

    fn cp_with(&self, lads: &Path, options: &[&str], target: &str) -> Command {
        let mut command = Command::new(lads);
        let to = format!("{}:{}", self.sshd.host, self.world.path(target).display());
        command.env_remove("LADS_REMOTE_LADS");
        command.args(["cp", "--json", "-e", &self.sshd.shell]).args(options);
        command.args([&self.world.source_contents(), &to]);
        command
    }

    fn cp(&self, target: &str) -> Command {
        self.cp_with(LADS.as_ref(), &[], target)
    }

    fn copies_to(&self, target: &str) {
        run(self.cp(target)).expect(0);
        assert_identical(&self.world.source(), &self.world.path(target));
    }

    /// The copies of LADS in a directory, and nothing else is in it.
    fn copies_in(&self, directory: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.world.path(directory)) else { return Vec::new() };
        let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        let is_copy =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("lads-");
        assert!(paths.iter().all(is_copy), "{paths:?}");
        paths
    }
}

const CACHE: &str = "home/.cache/lads";
const SHARED: &str = "shared/lads-0";

#[test]
fn a_host_with_nothing_but_ssh_gets_lads_once_whatever_its_login_shell_is() {
    for shell in ["bash", "dash", "zsh", "fish", "tcsh"] {
        let Some(host) = Host::with_shell(shell, |_, _| {}) else { continue };
        host.copies_to("first");
        let copies = host.copies_in(CACHE);
        assert_eq!(copies.len(), 1, "{shell}");
        let before = fs::metadata(&copies[0]).unwrap();
        assert_eq!(before.mode() & 0o777, 0o700);
        host.copies_to("second");
        let after = fs::metadata(&copies[0]).unwrap();
        assert_eq!((before.ino(), host.copies_in(CACHE).len()), (after.ino(), 1), "{shell}");
    }
}

#[test]
fn a_command_about_storage_there_sends_it_first() {
    let Some(host) = Host::with(|_, _| {}) else { return };
    for _ in 0..2 {
        let mut command = Command::new(LADS);
        command.env_remove("LADS_REMOTE_LADS").env("LADS_RSH", &host.sshd.shell);
        command.args(["layout", "--json", "--layout=local"]);
        command.arg(format!("{}:{}", host.sshd.host, host.world.source().display()));
        let ended = run(command).expect(0);
        assert!(ended.stdout.starts_with(b"{"), "{ended:?}");
        assert_eq!(host.copies_in(CACHE).len(), 1);
    }
}

/// The applets of busybox are the only programs.
#[test]
fn a_host_with_busybox_gets_lads() {
    let Some(busybox) = has("busybox").then(|| lads_tried::find("busybox").unwrap()) else {
        return;
    };
    let Some(host) = Host::with(|world, account| {
        let (programs, shell) = (world.path("programs"), world.path("programs/sh"));
        fs::create_dir(&programs).unwrap();
        let mut install = Command::new(&busybox);
        assert!(install.args(["--install", "-s"]).arg(&programs).status().unwrap().success());
        account.path = programs.display().to_string();
        account.preparation += "; mount --bind programs/sh /bin/sh";
        account.shell = shell;
    }) else {
        return;
    };
    host.copies_to("first");
    assert_eq!(host.copies_in(CACHE).len(), 1);
}

#[test]
fn lads_that_is_installed_there_is_used_if_it_is_of_this_version() {
    for (place, is_right) in [("bin", true), (".local/bin", true), (".cargo/bin", false)] {
        let Some(host) = Host::with(|world, _| {
            let directory = world.path("home").join(place);
            fs::create_dir_all(&directory).unwrap();
            let installed = directory.join("lads");
            match is_right {
                true => drop(std::os::unix::fs::symlink(LADS, installed)),
                false => write_script(&installed, "echo lads 0.0.1").unwrap(),
            }
        }) else {
            return;
        };
        host.copies_to("first");
        assert_eq!(host.copies_in(CACHE).len(), usize::from(!is_right), "{place}");
    }
}

#[test]
fn the_next_directory_is_taken_if_one_is_full_or_lets_nothing_be_executed_or_belongs_to_others() {
    for mount in ["size=1m", "size=100m,noexec", "size=100m,uid=1"] {
        let Some(host) = Host::with(|world, account| {
            let home = world.path("home").display().to_string();
            let make = format!("mkdir -p {home}/.cache/lads; chown 1 {home}/.cache/lads");
            account.preparation += &format!("; mount -t tmpfs -o {mount} none {home}");
            if mount.contains("uid") {
                account.preparation += &format!("; {make}");
            }
        }) else {
            return;
        };
        host.copies_to("first");
        assert_eq!(host.copies_in(SHARED).len(), 1, "{mount}");
    }
}

#[test]
fn where_no_directory_is_fit_that_is_said() {
    let Some(host) = Host::with(|world, account| {
        let home = world.path("home").display().to_string();
        account.preparation =
            format!("mount -t tmpfs -o noexec none {home}; mount -t tmpfs -o noexec none /var/tmp");
    }) else {
        return;
    };
    run(host.cp("first")).expect(2).says(&["in which programs may be started", "/var/tmp/lads-0"]);
}

/// Another user could have made it before.
#[test]
fn a_shared_directory_that_others_can_write_to_is_not_used() {
    let make_own =
        |directory: &Path| fs::set_permissions(directory, fs::Permissions::from_mode(0o777));
    let make_others = |directory: &Path| chown(directory, Some(1), None);
    for change in [&make_own as &dyn Fn(&Path) -> _, &make_others] {
        let Some(host) = Host::with(|world, account| {
            let directory = world.path(SHARED);
            fs::create_dir(&directory).unwrap();
            change(&directory).unwrap();
            let home = world.path("home").display().to_string();
            account.preparation += &format!("; mount -t tmpfs -o noexec none {home}");
        }) else {
            return;
        };
        run(host.cp("first")).expect(2).says(&["in which programs may be started"]);
        assert!(host.copies_in(SHARED).is_empty());
    }
}

#[test]
fn a_copy_that_is_damaged_is_replaced() {
    let Some(host) = Host::with(|_, _| {}) else { return };
    host.copies_to("first");
    let copy = host.copies_in(CACHE).remove(0);
    let whole = fs::read(&copy).unwrap();
    for damaged in [&whole[..whole.len() / 3], b""] {
        fs::write(&copy, damaged).unwrap();
        host.copies_to("second");
        assert!(fs::read(&copy).unwrap() == whole);
    }
}

#[test]
fn several_commands_may_bring_it_at_once() {
    let Some(host) = Host::with(|_, _| {}) else { return };
    let names: Vec<_> = (0..4).map(|number| format!("copy{number}")).collect();
    let running: Vec<_> = names.iter().map(|name| start(host.cp(name))).collect();
    for (name, running) in names.iter().zip(running) {
        running.end().expect(0);
        assert_identical(&host.world.source(), &host.world.path(name));
    }
    assert_eq!(host.copies_in(CACHE).len(), 1);
}

#[test]
fn a_host_that_executes_only_certain_commands_may_have_lads() {
    let only_lads = format!("command=\"{LADS} serve\"");
    // As sites check the command of a key.
    let only_if = "case $SSH_ORIGINAL_COMMAND in lads*) exec $SSH_ORIGINAL_COMMAND;; esac; exit 1";
    let checked = format!("command=\"{only_if}\"");
    for key_options in [only_lads, checked] {
        let Some(host) = Host::with(|world, account| {
            std::os::unix::fs::symlink(LADS, world.path("home/lads")).unwrap();
            account.path = format!("{}:/usr/bin:/bin", world.path("home").display());
            account.key_options.clone_from(&key_options);
        }) else {
            return;
        };
        host.copies_to("first");
        assert!(host.copies_in(CACHE).is_empty());
    }
}

/// A host says that it is of another kind, by its own `uname`.
fn of_machine(machine: &str) -> Option<Host> {
    Host::with(|world, account| {
        let programs = world.path("programs");
        fs::create_dir(&programs).unwrap();
        let script =
            format!("case $1 in -m) echo {machine};; *) exec /usr/bin/uname \"$@\";; esac");
        write_script(&programs.join("uname"), &script).unwrap();
        account.path = format!("{}:/usr/bin:/bin", programs.display());
    })
}

#[test]
fn a_host_of_another_architecture_gets_the_build_next_to_this_one() {
    let other = if cfg!(target_arch = "x86_64") { "aarch64" } else { "x86_64" };
    let Some(host) = of_machine(other) else { return };
    let own = host.world.path("lads");
    fs::copy(LADS, &own).unwrap();
    let ended = run(host.cp_with(&own, &[], "first")).expect(2);
    ended.says(&[&format!("put lads-{other} of that version next to"), "/lads"]);
    fs::copy(LADS, host.world.path(format!("lads-{other}"))).unwrap();
    run(host.cp_with(&own, &[], "first")).expect(0);
    assert_eq!(host.copies_in(CACHE).len(), 1);
}

#[test]
fn a_build_that_does_not_run_there_is_not_kept() {
    let Some(host) = Host::with(|_, _| {}) else { return };
    let own = host.world.path("lads");
    fs::copy(LADS, &own).unwrap();
    // It prints what a loader prints that finds too old a library.
    let build = host.world.path(format!("lads-{}", std::env::consts::ARCH));
    fs::write(&build, "#!/bin/sh\necho version GLIBC_9.99 not found >&2; exit 1\n").unwrap();
    let ended = run(host.cp_with(&own, &[], "first")).expect(2);
    ended.says(&["it does not run there: version GLIBC_9.99 not found"]);
    assert!(host.copies_in(CACHE).is_empty());
}

#[test]
fn nothing_is_brought_against_the_will_of_the_user() {
    let Some(host) = Host::with(|_, _| {}) else { return };
    let ended = run(host.cp_with(LADS.as_ref(), &["--no-deploy"], "first")).expect(2);
    ended.says(&["there is no LADS", "--no-deploy"]);
    assert!(host.copies_in(CACHE).is_empty());
}

#[test]
fn a_command_sends_it_ahead_of_time_and_another_removes_it() {
    let Some(host) = Host::with(|_, _| {}) else { return };
    let deploy = |options: &[&str]| {
        let mut command = Command::new(LADS);
        command.args(["deploy", "-e", &host.sshd.shell, &host.sshd.host]).args(options);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(deploy(&[]).ends_with("was sent\n"));
    let copy = host.copies_in(CACHE).remove(0);
    assert!(deploy(&[]).ends_with("was already present\n"));
    fs::write(host.world.path(CACHE).join("lads-0.0.9-x86_64-0123"), "of last year").unwrap();
    fs::write(host.world.path(CACHE).join("other"), "not ours").unwrap();
    let said = deploy(&["--remove"]);
    assert!(said.contains(&format!("removed {}", copy.display())), "{said}");
    let left = fs::read_dir(host.world.path(CACHE)).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["other"]);
    assert!(deploy(&["--remove"]).ends_with("nothing to remove\n"));
    let option = Command::new(LADS).args(["deploy", "-e", "false", "--", "-oX"]).output().unwrap();
    assert_eq!(option.status.code(), Some(2));
}

/// The first part runs on that host alone.
#[test]
fn a_benchmark_sends_it_before_the_first_part() {
    let Some(host) = Host::with(|_, _| {}) else { return };
    let source = format!("{}:{}", host.sshd.host, host.world.path("src").display());
    let bench = |options: &[&str]| {
        let mut command = Command::new(LADS);
        command.args(["bench", "--time", "24s", &source]).arg(host.world.path("dst"));
        command.args(["--", "-e", &host.sshd.shell]).args(options).output().unwrap()
    };
    let refused = bench(&["--no-deploy"]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && errors.contains("there is no LADS"), "{errors}");
    fs::create_dir(host.world.path("dst")).unwrap();
    let measured = bench(&[]);
    assert_eq!(measured.status.code(), Some(0), "{}", String::from_utf8_lossy(&measured.stderr));
    assert_eq!(host.copies_in(CACHE).len(), 1);
}
