//! A firewall that lets only ssh through: the transfer continues through ssh, and says so in time.

use crate::doctor::{doctor, found};
use crate::hosts::{Hosts, THERE};
use crate::world::{
    Ended, LADS, Rng, Stopwatch, World, assert_identical, has, lads, run, start, wait_for,
};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Time in which the user reads that the ports are blocked.
const NOTICE_MAX: Duration = Duration::from_secs(3);

/// Verdicts of firewalls about packets, and the errors that connections get.
const VERDICTS: [(&str, &str); 3] = [
    ("DROP", "no reply in time"),
    ("REJECT --reject-with tcp-reset", "refused"),
    ("REJECT --reject-with icmp-admin-prohibited", "No route"),
];

/// Returns a world and two hosts; `None` if that is not possible here.
fn world_with_hosts() -> Option<(World, Hosts)> {
    // Trees are compared with it.
    if !has("rsync") {
        return None;
    }
    let world = World::with_files(&mut Rng::new(8));
    let hosts = Hosts::start(&world)?;
    Some((world, hosts))
}

/// Returns the command for a push or a pull.
fn transfer(hosts: &Hosts, world: &World, pulls: bool, options: &[&str]) -> Command {
    let there = |path: &str| format!("{}:{path}", hosts.sshd.host);
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    let mut command = lads(&["-e", &hosts.sshd.shell, "--remote-lads", LADS]);
    command.args(options);
    match pulls {
        true => command.args([there(&source), target]),
        false => command.args([source, there(&target)]),
    };
    command
}

/// Runs a transfer that reports blocked ports in time.
fn run_with_notice(hosts: &Hosts, command: Command) -> Ended {
    hosts.here(|| {
        let watch = Stopwatch::start();
        let running = start(command);
        wait_for("the notice", || running.told("data connections to").then_some(()));
        assert!(watch.elapsed() < NOTICE_MAX, "{:?}", watch.elapsed());
        running.end()
    })
}

#[test]
fn data_goes_through_ssh_if_a_firewall_blocks_the_ports() {
    let Some((world, hosts)) = world_with_hosts() else { return };
    for (verdict, error) in VERDICTS {
        if !hosts.block(verdict) {
            return;
        }
        for pulls in [false, true] {
            let ended = run_with_notice(&hosts, transfer(&hosts, &world, pulls, &[])).expect(0);
            assert_identical(&world.source(), &world.target());
            let summary = ended.summary();
            assert_eq!(summary["is_port_blocked"], true, "{verdict}");
            assert_eq!(summary["data_protection"], "ssh", "{verdict}");
            let retry = &ended.events_of("retry")[0];
            let message = retry["message"].as_str().unwrap();
            assert!(message.contains(error) && message.contains("--ports"), "{verdict}: {message}");
            fs::remove_dir_all(world.target()).unwrap();
        }
    }
}

/// The other end connects to the address from which ssh came.
#[test]
fn a_firewall_there_does_not_matter_if_the_end_there_connects() {
    let Some((world, hosts)) = world_with_hosts() else { return };
    if !hosts.block("DROP") {
        return;
    }
    for (pulls, end) in [(false, "sink"), (true, "source")] {
        let options = ["--connect", end, "--ports", "5000-5003"];
        let ended = hosts.here(|| run(transfer(&hosts, &world, pulls, &options))).expect(0);
        assert_identical(&world.source(), &world.target());
        let summary = ended.summary();
        assert_eq!(summary["is_port_blocked"], false);
        assert_eq!(
            (&summary["attempts"], &summary["data_protection"]),
            (&1.into(), &"encrypted".into())
        );
        fs::remove_dir_all(world.target()).unwrap();
    }
}

/// Then the other end cannot connect, either.
#[test]
fn data_goes_through_ssh_if_the_end_there_cannot_connect() {
    let Some((world, hosts)) = world_with_hosts() else { return };
    for (verdict, error) in VERDICTS {
        if !hosts.block_here(verdict) {
            return;
        }
        let options = ["--connect", "sink"];
        let ended = run_with_notice(&hosts, transfer(&hosts, &world, false, &options)).expect(0);
        assert_identical(&world.source(), &world.target());
        assert_eq!(ended.summary()["is_port_blocked"], true, "{verdict}");
        fs::remove_dir_all(world.target()).unwrap();
        let strict = transfer(&hosts, &world, false, &["--connect", "sink", "--no-tunnel"]);
        let ended = hosts.here(|| run(strict)).expect(5);
        ended.says(&["cannot connect a data stream to 10.79.0.1:", error, "--ports FIRST-LAST"]);
    }
}

#[test]
fn the_summary_names_the_firewall_and_without_one_no_data_goes_through_ssh() {
    let Some((world, hosts)) = world_with_hosts() else { return };
    let ended = hosts.here(|| run(transfer(&hosts, &world, false, &[]))).expect(0);
    assert_eq!(ended.summary()["is_port_blocked"], false);
    assert_eq!(ended.summary()["data_protection"], "encrypted");
    fs::remove_dir_all(world.target()).unwrap();
    if !hosts.block("DROP") {
        return;
    }
    let mut command = Command::new(LADS);
    command.args(["cp", "-e", &hosts.sshd.shell, "--remote-lads", LADS, &world.source_contents()]);
    command.arg(format!("{}:{}", hosts.sshd.host, world.target().display()));
    let ended = hosts.here(|| run(command)).expect(0);
    for text in ["data connections to", "through ssh", "the port for data is blocked"] {
        assert!(ended.stderr.contains(text), "{ended:?}");
    }
    assert_identical(&world.source(), &world.target());
}

#[test]
fn without_the_tunnel_a_blocked_port_fails_with_the_remedy() {
    let Some((world, hosts)) = world_with_hosts() else { return };
    for (verdict, error) in VERDICTS {
        if !hosts.block(verdict) {
            return;
        }
        let strict = transfer(&hosts, &world, false, &["--no-tunnel"]);
        let to = format!("cannot connect a data stream to {THERE}:");
        let ended = hosts.here(|| run(strict)).expect(5);
        ended.says(&[&to, error, "--ports FIRST-LAST", "--tunnel"]);
    }
}

#[test]
fn the_doctor_reports_a_firewall() {
    let Some((_world, hosts)) = world_with_hosts() else { return };
    let look = || {
        let command = doctor(&hosts.sshd.shell, &[&hosts.sshd.host]);
        hosts.here(|| run(command))
    };
    let (is_ok, text, _) = &found(&look(), "port")[0];
    assert!(is_ok, "{text}");
    for verdict in ["DROP", "REJECT --reject-with tcp-reset"] {
        if !hosts.block(verdict) {
            return;
        }
        let ended = look().expect(1);
        let (is_ok, text, todo) = &found(&ended, "port")[0];
        assert!(!is_ok && text.contains(&THERE.to_string()), "{verdict}: {text}");
        assert!(todo.contains("--ports FIRST-LAST") && todo.contains("--tunnel"), "{todo}");
        // Connections in the other direction are not blocked.
        let (_, text, _) = &found(&ended, "port back")[0];
        assert!(text.ends_with("to this host succeed"), "{text}");
        // The time through ssh takes its place.
        let (_, text, _) = &found(&ended, "round trip")[0];
        assert!(text.ends_with("through ssh"), "{text}");
    }
}
