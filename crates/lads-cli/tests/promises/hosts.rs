//! Two hosts with a cable between them and sshd on one: network namespaces of this machine.

use crate::world::{World, has, is_root, not_tried};
use lads_tried::Sshd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Address of the host on which sshd runs.
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// Address of the host on which commands are started.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

/// Two hosts. They share the file systems.
pub(crate) struct Hosts {
    here: Namespace,
    there: Namespace,
    pub(crate) sshd: Sshd,
}

impl Hosts {
    /// Connects two hosts and starts sshd; returns `None` if that is not possible here.
    pub(crate) fn start(world: &World) -> Option<Self> {
        let has_all = is_root() && ["ip", "unshare", "iptables-legacy"].into_iter().all(has);
        if !has_all {
            return None;
        }
        let (here, there) = (Namespace::new()?, Namespace::new()?);
        let (pid, other_pid) = (here.holder.id(), there.holder.id());
        let is_connected = sh(&format!(
            "ip link add cable netns {pid} type veth peer name cable netns {other_pid}"
        ));
        if !is_connected {
            not_tried("network namespaces cannot be connected here");
            return None;
        }
        for (namespace, address) in [(&here, HERE), (&there, THERE)] {
            let is_up = namespace.inside(|| {
                sh(&format!(
                    "ip link set lo up; ip addr add {address}/24 dev cable; ip link set cable up"
                ))
            });
            assert!(is_up, "{address}");
        }
        let sshd = there.inside(|| Sshd::start_at(&world.path(""), THERE).unwrap())?;
        Some(Self { here, there, sshd })
    }

    /// Blocks all ports of the other host except that of sshd. `verdict` is a target of iptables,
    /// with its options. Returns `false` if that is not possible here.
    pub(crate) fn block(&self, verdict: &str) -> bool {
        self.block_at(&self.there, verdict)
    }

    /// Blocks all ports of the host on which commands are started.
    pub(crate) fn block_here(&self, verdict: &str) -> bool {
        self.block_at(&self.here, verdict)
    }

    fn block_at(&self, host: &Namespace, verdict: &str) -> bool {
        let port = self.sshd.port;
        let rule = format!(
            "iptables-legacy -F INPUT && \
             iptables-legacy -A INPUT -i cable -p tcp --syn ! --dport {port} -j {verdict}"
        );
        let is_blocked = host.inside(|| sh(&rule));
        if !is_blocked {
            not_tried(&format!("iptables cannot {verdict} here"));
        }
        is_blocked
    }

    /// Calls a function on the host on which commands are started.
    pub(crate) fn here<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.here.inside(work)
    }
}

/// A network namespace. It ends with its process, which ends with this process.
struct Namespace {
    holder: Child,
}

impl Namespace {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", "echo && exec cat"]).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut namespace = Self { holder: command.spawn().unwrap() };
        let output = namespace.holder.stdout.as_mut().unwrap();
        if output.read_exact(&mut [0]).is_err() {
            not_tried("network namespaces are not permitted here");
            return None;
        }
        Some(namespace)
    }

    /// Calls a function on a thread of the namespace. The processes that it starts are in there,
    /// too.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap();
        let enter = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            work()
        };
        thread::scope(|scope| {
            // It has the name of the test.
            let name = thread::current().name().unwrap_or_default().to_owned();
            let inside = thread::Builder::new().name(name).spawn_scoped(scope, enter).unwrap();
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs a command of the shell; returns whether it succeeds.
fn sh(script: &str) -> bool {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    if !output.status.success() {
        eprintln!("{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}
