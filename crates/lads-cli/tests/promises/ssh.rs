//! Transfers through a real ssh, to a server on this machine.

use crate::tree::{Scale, grow};
use crate::world::{
    AS_RSYNC, LADS, Rng, World, assert_identical, has, lads, run, send_signal, start, wait_for,
};
use lads_tried::Sshd;
use std::fs;
use std::process::Command;

/// A server, and commands through it.
struct Server {
    sshd: Sshd,
}

impl Server {
    /// Returns `None` if there is no sshd here, or if it does not let us in.
    fn start(world: &World) -> Option<Self> {
        // Trees are compared with it.
        if !has("rsync") {
            return None;
        }
        Sshd::start(&world.path("")).unwrap().map(|sshd| Self { sshd })
    }

    fn cp(&self, options: &[&str], source: &str, target: &str) -> Command {
        Self::cp_through(&self.sshd.shell, options, source, target)
    }

    fn cp_through(shell: &str, options: &[&str], source: &str, target: &str) -> Command {
        let mut command = lads(options);
        command.arg(AS_RSYNC);
        command.args(["-e", shell, "--remote-lads", LADS, source, target]);
        command
    }
}

#[test]
fn push_pull_and_tunnel_through_a_real_ssh_arrive_identical() {
    let world = World::new();
    let Some(server) = Server::start(&world) else { return };
    grow(&mut Rng::new(3), &world.source(), &Scale::LARGE);
    let source = world.source_contents();
    for (number, options) in
        [&[][..], &["--tunnel"], &["--tunnel", "--streams", "3"]].into_iter().enumerate()
    {
        let pushed = world.path(format!("pushed{number}")).display().to_string();
        let remote = format!("{}:{pushed}", server.sshd.host);
        run(server.cp(options, &source, &remote)).expect(0);
        assert_identical(&world.source(), pushed.as_ref());
        let pulled = world.path(format!("pulled{number}")).display().to_string();
        run(server.cp(options, &format!("{remote}/"), &pulled)).expect(0);
        assert_identical(&world.source(), pulled.as_ref());
    }
}

/// A regression test: each tunnel needed its own login, with one more question for a password or a
/// second factor. Each also took one of the server's places for clients that have not logged in
/// yet.
#[test]
fn a_tunnel_of_many_streams_logs_in_once() {
    let world = World::new();
    let Some(server) = Server::start(&world) else { return };
    grow(&mut Rng::new(4), &world.source(), &Scale::LARGE);
    let logins = || {
        let log = server.sshd.log().unwrap();
        log.lines().filter(|line| line.contains("Accepted publickey")).count()
    };
    let (before, source) = (logins(), world.source_contents());
    let pushed = world.path("pushed").display().to_string();
    let remote = format!("{}:{pushed}", server.sshd.host);
    run(server.cp(&["--tunnel", "--streams", "6"], &source, &remote)).expect(0);
    assert_identical(&world.source(), pushed.as_ref());
    assert_eq!(logins() - before, 1, "{}", world.path("sshd.log").display());
    let pulled = world.path("pulled").display().to_string();
    run(server.cp(&["--tunnel", "--streams", "6"], &format!("{remote}/"), &pulled)).expect(0);
    assert_identical(&world.source(), pulled.as_ref());
    assert_eq!(logins() - before, 2);
}

/// Messages and data are lost at the same time. Both ends notice, and only what the same command
/// goes on from is left.
#[test]
fn a_tunnel_whose_ssh_is_killed_is_gone_on_with() {
    let world = World::new();
    let Some(server) = Server::start(&world) else { return };
    world.write("src/large", &vec![7; 24 << 20]);
    let pid_file = world.path("ssh.pid").display().to_string();
    let shell =
        world.fake_shell(&format!("echo $$ > {pid_file}\nexec {} \"$@\"", server.sshd.shell));
    for (number, pulls) in [false, true].into_iter().enumerate() {
        let here = world.path(format!("copy{number}")).display().to_string();
        let (source, target) = match pulls {
            true => (format!("{}:{}", server.sshd.host, world.source_contents()), here.clone()),
            false => (world.source_contents(), format!("{}:{here}", server.sshd.host)),
        };
        let slowly = ["--tunnel", "--bwlimit", "8M"];
        let cut = start(Server::cp_through(&shell, &slowly, &source, &target));
        wait_for("data to be sent", || (cut.bytes_sent() > 4 << 20).then_some(()));
        let pid = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        send_signal(pid, "KILL");
        cut.end().expect(5).says(&["the same command resumes"]);
        let again = wait_for("the other end to let go", || {
            let again = run(server.cp(&["--tunnel"], &source, &target));
            (again.code != Some(5)).then_some(again)
        });
        again.expect(0);
        assert_identical(&world.source(), here.as_ref());
    }
}

#[test]
fn a_server_that_refuses_our_key_is_told() {
    let world = World::new();
    let Some(server) = Server::start(&world) else { return };
    server.sshd.lock_out().unwrap();
    world.write("src/a", b"a");
    let remote = format!("{}:{}", server.sshd.host, world.target().display());
    let ended = run(server.cp(&[], &world.source_contents(), &remote)).expect(4);
    ended.within(std::time::Duration::from_secs(2)).says(&["rejected the login"]);
    assert!(!world.target().exists());
}
