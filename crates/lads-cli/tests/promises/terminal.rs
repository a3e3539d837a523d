//! Keyboard and terminal: questions of ssh, Ctrl-C and Ctrl-Z, signals to a process group.

use crate::world::{
    AS_RSYNC, LADS, Rng, World, assert_identical, child_of, has, lads, start, wait_for,
    wait_until_gone,
};
use lads_tried::Sshd;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

/// Ctrl-C and Ctrl-Z.
const INTERRUPT: &str = "\x03";
const SUSPEND: &str = "\x1a";

/// A terminal, and a session that it controls.
struct Session {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    /// Keeps the terminal open when the session has ended.
    terminal: File,
    leader: Child,
}

impl Session {
    /// Runs a command as the leader of a new session on a new terminal.
    fn start(command: &Command) -> Option<Self> {
        if !has("setsid") {
            return None;
        }
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let noctty = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let open = File::options().read(true).write(true).custom_flags(noctty).open(name).unwrap();
        let mut leader = Command::new("setsid");
        leader.arg("--ctty").arg(command.get_program()).args(command.get_args());
        leader.stdin(open.try_clone().unwrap()).stdout(open.try_clone().unwrap());
        leader.stderr(open.try_clone().unwrap());
        let leader = leader.spawn().unwrap();
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut shown, kept) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Some(Self { keyboard, screen, terminal: open, leader })
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    #[track_caller]
    fn wait_until_shown(&self, text: &str) {
        wait_for(text, || self.shown().contains(text).then_some(()));
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Waits until the leader ends, and returns its exit code.
    fn exit_code(&mut self) -> Option<i32> {
        let leader = &mut self.leader;
        wait_for("the session to end", || leader.try_wait().unwrap()).code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}

/// Returns a shell command for ssh that asks whether the host is known, and for a passphrase.
fn asking_shell(world: &World, server: &Sshd) -> String {
    let key = world.path("user_key").display().to_string();
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-p", "-P", "", "-N", "secret", "-f", &key]);
    assert!(command.status().unwrap().success());
    let known = format!("UserKnownHostsFile={}", world.path("known").display());
    let shell = server.shell.replace("BatchMode=yes", "BatchMode=no");
    let shell = shell.replace("StrictHostKeyChecking=no", "StrictHostKeyChecking=ask");
    shell.replace("UserKnownHostsFile=/dev/null", &known)
}

/// A push through a shell.
fn push(world: &World, server: &Sshd, shell: &str, options: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.args(["cp", AS_RSYNC, "-e", shell, "--remote-lads", LADS]).args(options);
    let target = format!("{}:{}", server.host, world.target().display());
    command.arg(world.source_contents()).arg(target);
    command
}

/// Returns the fields of a process from its state on.
fn fields_of(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().map(str::to_owned).collect()
}

fn state_of(pid: u32) -> String {
    fields_of(pid).swap_remove(0)
}

/// Returns the process group in the foreground of the terminal of a process.
fn foreground_group(pid: u32) -> i32 {
    fields_of(pid)[5].parse().unwrap()
}

#[test]
fn ssh_asks_its_questions_on_the_terminal() {
    let world = World::with_files(&mut Rng::new(1));
    let Some(server) = Sshd::start(&world.path("")).unwrap() else { return };
    let shell = asking_shell(&world, &server);
    let Some(mut session) = Session::start(&push(&world, &server, &shell, &[])) else { return };
    session.wait_until_shown("(yes/no");
    session.types("yes\n");
    session.wait_until_shown("passphrase");
    wait_for("the terminal to stop its echo", || (!session.echoes()).then_some(()));
    session.types("secret\n");
    assert_eq!(session.exit_code(), Some(0), "{}", session.shown());
    assert_identical(&world.source(), &world.target());
}

/// The keyboard sends the signal to ssh alone: the terminal is its own while it asks.
#[test]
fn an_interrupt_at_a_question_of_ssh_stops_the_command_and_restores_the_terminal() {
    let world = World::with_files(&mut Rng::new(2));
    let Some(server) = Sshd::start(&world.path("")).unwrap() else { return };
    let shell = format!("{} -o StrictHostKeyChecking=no", asking_shell(&world, &server))
        .replace("StrictHostKeyChecking=ask", "StrictHostKeyChecking=no");
    for by_keyboard in [true, false] {
        let command = push(&world, &server, &shell, &["--retries=3"]);
        let Some(mut session) = Session::start(&command) else { return };
        session.wait_until_shown("passphrase");
        wait_for("the terminal to stop its echo", || (!session.echoes()).then_some(()));
        match by_keyboard {
            true => session.types(INTERRUPT),
            false => crate::world::send_signal(session.leader.id(), "TERM"),
        }
        assert_eq!(session.exit_code(), Some(9), "{}", session.shown());
        assert!(session.echoes(), "{}", session.shown());
    }
}

/// A regression test: ssh was in the process group of the command, and ended by the same signal.
#[test]
fn a_signal_to_the_whole_process_group_does_not_end_ssh_before_the_transfer() {
    let world = World::new();
    world.write("src/large", &vec![7; 24 << 20]);
    let Some(server) = Sshd::start(&world.path("")).unwrap() else { return };
    let remote = format!("{}:{}", server.host, world.target().display());
    for (signal, options) in
        [(Signal::INT, &[][..]), (Signal::TERM, &[]), (Signal::HUP, &["--tunnel"])]
    {
        // nohup, under which these tests may run, lets its programs ignore SIGHUP.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", LADS, "cp", "--json"]).args(options);
        command.args(["--bwlimit=4M", "-e", &server.shell, "--remote-lads", LADS]);
        command.arg(world.source_contents()).arg(&remote).process_group(0);
        let running = start(command);
        wait_for("data to be sent", || (running.bytes_sent() > 1 << 20).then_some(()));
        let group = Pid::from_raw(i32::try_from(running.own_pid()).unwrap()).unwrap();
        kill_process_group(group, signal).unwrap();
        let ended = running.end().expect(9);
        let message = ended.summary()["message"].as_str().unwrap().to_owned();
        assert!(!message.contains("not waiting"), "{message}");
        assert!(message.contains("the same command"), "{message}");
    }
}

#[test]
fn a_remote_shell_that_ignores_sigterm_is_killed_with_its_children() {
    let world = World::with_files(&mut Rng::new(3));
    let pids = world.path("pids");
    let script = format!(
        "trap '' TERM; sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait; sleep 1000",
        pids.display()
    );
    let shell = world.fake_shell(&script);
    let mut command = lads(&["-e", &shell]);
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    let running = start(command);
    let pids = wait_for("the shell to begin", || fs::read_to_string(&pids).ok());
    running.signal("TERM");
    running.end().expect(9);
    pids.split_whitespace().for_each(|pid| wait_until_gone(pid.parse().unwrap()));
}

/// Returns a command line for a push through a shell that asks for the word "secret".
fn asking_command(world: &World) -> String {
    let shell = world.fake_shell(
        "printf 'Password: ' > /dev/tty; read word < /dev/tty; [ \"$word\" = secret ] || exit 255; \
         shift; exec \"$@\"",
    );
    format!(
        "{LADS} cp --no-progress -e {shell} --remote-lads {LADS} --data-address 127.0.0.1 {} \
         there:{}",
        world.source_contents(),
        world.target().display()
    )
}

/// A shell with job control stops the command with ssh's question, and `fg` repeats the question.
#[test]
fn a_question_in_the_background_or_a_suspended_one_is_asked_again_in_the_foreground() {
    if !has("bash") {
        return;
    }
    let world = World::with_files(&mut Rng::new(4));
    let command = asking_command(&world);
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]);
    let Some(mut session) = Session::start(&bash) else { return };
    session.types(&format!("{command} &\n"));
    let front = wait_for("the command to begin", || child_of(session.leader.id()));
    wait_for("the command to stop", || (state_of(front) == "T").then_some(()));
    let own = i32::try_from(session.leader.id()).unwrap();
    assert_eq!(foreground_group(session.leader.id()), own, "bash has the terminal");
    session.types("fg\n");
    let asks = |session: &Session| {
        let command = child_of(session.leader.id()).unwrap();
        let shell = child_of(child_of(command)?)?;
        (foreground_group(shell) == i32::try_from(shell).unwrap()).then_some(())
    };
    wait_for("the question to have the terminal", || asks(&session));
    session.types(SUSPEND);
    wait_for("bash to have the terminal", || {
        (foreground_group(session.leader.id()) == own).then_some(())
    });
    session.types("fg\n");
    wait_for("the question to have the terminal", || asks(&session));
    session.types("secret\n");
    wait_for("bash to have the terminal", || {
        (foreground_group(session.leader.id()) == own).then_some(())
    });
    session.types("echo code $?; exit\n");
    session.wait_until_shown("code 0");
    assert_identical(&world.source(), &world.target());
}

/// Ctrl-C would end ssh, and not stop the transfer.
#[test]
fn the_command_has_the_terminal_again_when_the_question_is_answered() {
    let world = World::new();
    world.write("src/large", &vec![7; 8 << 20]);
    let command = asking_command(&world).replace("--no-progress", "--no-progress --bwlimit=256K");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {command}")]);
    let Some(mut session) = Session::start(&shell) else { return };
    let own = i32::try_from(session.leader.id()).unwrap();
    let is_lent = |session: &Session| foreground_group(session.leader.id()) != own;
    session.wait_until_shown("Password");
    wait_for("the question to have the terminal", || is_lent(&session).then_some(()));
    session.types("secret\n");
    wait_for("the command to have the terminal", || (!is_lent(&session)).then_some(()));
    session.types(INTERRUPT);
    assert_eq!(session.exit_code(), Some(9), "{}", session.shown());
}

#[test]
fn a_question_without_a_shell_that_continues_the_command_is_an_error_at_once() {
    if !has("bash") {
        return;
    }
    let world = World::with_files(&mut Rng::new(5));
    let shell = world.fake_shell("read word < /dev/tty; exit 255");
    // The inner subshell ends at once, which leaves the command in an orphaned background group.
    let script = format!(
        "set -m; (({LADS} cp -e {shell} {} there:x; echo code $?) &); exec sleep 1000",
        world.source_contents()
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]);
    let Some(session) = Session::start(&bash) else { return };
    session.wait_until_shown("code 4");
    session.wait_until_shown("runs in the background");
}

/// With `stty tostop`, the kernel stops a process in the background that writes to the terminal.
#[test]
fn a_notice_while_the_remote_shell_has_the_terminal_does_not_stop_the_command() {
    if !has("bash") || !has("stty") {
        return;
    }
    let world = World::with_files(&mut Rng::new(6));
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]);
    let Some(mut session) = Session::start(&bash) else { return };
    session.types("stty tostop\n");
    session.types(&format!("{}\n", asking_command(&world)));
    session.wait_until_shown("waited 3 s");
    session.types("secret\n");
    let own = i32::try_from(session.leader.id()).unwrap();
    wait_for("bash to have the terminal", || {
        (foreground_group(session.leader.id()) == own).then_some(())
    });
    session.types("echo code $?; exit\n");
    session.wait_until_shown("code 0");
    assert_identical(&world.source(), &world.target());
}
