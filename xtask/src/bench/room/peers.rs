//! Starts LADS and its rivals between two mounts: unmodified, and as a user would.

use super::super::measure::children;
use super::super::movers::slashed;
use super::contest::{Contestant, End, Move, Run};
use super::route::Route;
use crate::scratch::Scratch;
use crate::sshd::Sshd;
use crate::{setup, shell};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The longest time for one run of a rival. A rival that needs longer gets no figure.
const RUN_MAX_SECONDS: &str = "120";
/// The exit code of `timeout` in that case.
const TIMED_OUT: i32 = 124;

/// LADS with these options.
pub(super) fn lads(lads: &Path, line: &str, at: Option<&str>, options: &[&str]) -> Contestant {
    let lads = lads.to_owned();
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    contestant(line, at, move |route, source, target| {
        let (elapsed, said) = timed(&mut lads_command(&lads, route, &options, source, target))?;
        Ok(Run { elapsed, ends: Some(ends(&said)?) })
    })
}

/// The command that moves the content of the first directory into the second, along a route.
pub(super) fn lads_command(
    lads: &Path,
    route: &Route,
    options: &[String],
    source: &Path,
    target: &Path,
) -> Command {
    let lads = lads.display().to_string();
    let mut command = route.at_source(&lads);
    command.args(["cp", "-q", "--json"]).args(options);
    let [source, mut target] = slashed(source, target);
    if !route.is_local() {
        command.args(["-e", &route.remote_shell, "--remote-lads", &lads]);
        command.args(["--data-address", &route.sink_address]);
        target = format!("sink:{target}");
    }
    command.args([source, target]);
    command
}

/// The resources of both ends, from the summary of LADS.
fn ends(events: &str) -> Result<[End; 2]> {
    let summary: serde_json::Value =
        serde_json::from_str(events.lines().last().context("lads printed nothing")?)?;
    let end = |side: &str| -> Result<End> {
        let number = |key: &str| summary[side][key].as_f64().with_context(|| format!("no {key}"));
        Ok(End {
            cpu_seconds: number("cpu_seconds")?,
            memory_bytes_peak: number("memory_bytes_peak")?,
        })
    };
    Ok([end("source")?, end("sink")?])
}

/// The properties of the work that matter to a user who starts several copies of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// The number of OSTs at each end.
    pub(super) ost_count: u32,
    /// The number of files to move.
    pub(super) file_count: u64,
}

impl Work {
    /// The number of copies that run at a time: as many as LADS by default has threads at the
    /// source, which is four for each OST, and at most 128.
    fn copies(self) -> u64 {
        (u64::from(self.ost_count) * 4).min(128)
    }
}

/// All rivals that are installed here and can use this route, and a list of what is missing.
pub(super) fn all(
    route: &Route,
    notes: &Scratch,
    others: &[(String, String)],
    work: Work,
) -> (Vec<Contestant>, Vec<String>) {
    let mut contestants = Vec::new();
    let mut missing = Vec::new();
    if route.is_local() {
        contestants.push(cp());
        if work.file_count > 1 {
            contestants.extend([8, work.copies()].map(|copies| parallel_cp(copies, work)));
        }
        contestants.extend(shell::find("rsync").map(|_| rsync()));
    }
    let gridftp_programs: &[&str] = &["globus-url-copy", "globus-gridftp-server"];
    let rivals: [(&[&str], &str, Contestant); 5] = [
        (&["rsync"], "rsync", rsync_daemon(notes.join("rsyncd.conf"))),
        (gridftp_programs, GRIDFTP_PACKAGES, gridftp(GRIDFTP, &["-pp", "-p", "4", "-cc", "8"])),
        (gridftp_programs, GRIDFTP_PACKAGES, gridftp(GRIDFTP_PLAIN, &[])),
        (&["scp", "sshd"], SSH_PACKAGES, scp(SCP_PLAIN, notes.join("keys"), &[])),
        (&["scp", "sshd"], SSH_PACKAGES, scp(SCP, notes.join("keys"), &["-c", CIPHER])),
    ];
    for (programs, packages, contestant) in rivals {
        let absent: Vec<&str> =
            programs.iter().filter(|program| shell::find(program).is_none()).copied().collect();
        if !absent.is_empty() {
            let absent = absent.join(" and no ");
            missing.push(format!("{}: {absent} is missing ({packages})", contestant.line));
        } else if route.is_local() || ![SCP, SCP_PLAIN].contains(&contestant.line.as_str()) {
            contestants.push(contestant);
        }
    }
    contestants.extend(others.iter().map(|(name, command)| other(name, command)));
    (contestants, missing)
}

/// The names of the Debian packages.
const GRIDFTP_PACKAGES: &str = "globus-gass-copy-progs globus-gridftp-server-progs";

const SSH_PACKAGES: &str = "openssh-client openssh-server";
const CIPHER: &str = "aes128-gcm@openssh.com";

/// Names of rivals that are used in several places. Rivals take part with their default options,
/// and also with options that make them fast.
pub(super) const CP: &str = "cp -r";
const RSYNC_PLAIN: &str = "rsync -a, one host";
pub(super) const RSYNC: &str = "rsync daemon -aW";
const GRIDFTP: &str = "GridFTP, two servers, -pp -p 4 -cc 8";
const GRIDFTP_PLAIN: &str = "GridFTP, two servers";
const SCP_PLAIN: &str = "scp -r";
const SCP: &str = "scp -r, AES-GCM";

/// The rivals that move one file after the other, in one stream.
pub(super) const SERIAL: [&str; 6] = [CP, RSYNC_PLAIN, RSYNC, GRIDFTP_PLAIN, SCP_PLAIN, SCP];

fn contestant(
    line: &str,
    at: Option<&str>,
    run: impl Fn(&Route, &Path, &Path) -> Result<Run> + 'static,
) -> Contestant {
    let run: Move = Box::new(run);
    Contestant { line: line.to_owned(), at: at.map(str::to_owned), run }
}

/// A rival that consists of a command only.
fn rival(
    line: &str,
    run: impl Fn(&Route, &Path, &Path) -> Result<Duration> + 'static,
) -> Contestant {
    contestant(line, None, move |route, source, target| {
        Ok(Run { elapsed: run(route, source, target)?, ends: None })
    })
}

fn cp() -> Contestant {
    rival(CP, |route, source, target| {
        let mut command = limited(route);
        Ok(timed(command.args(["cp", "-r"]).arg(source.join(".")).arg(target))?.0)
    })
}

/// Runs several copies of `cp`, as a user does who knows that a single `cp` is slow. On the
/// emulated file system, `close` waits until a file is written, unlike on Lustre. So this runs
/// twice: with eight copies at once, and with enough copies that some always work while others
/// wait. Each copy takes several files if there are many.
fn parallel_cp(copies: u64, work: Work) -> Contestant {
    const BATCHES_EACH: u64 = 4;
    let files_each = (work.file_count / (copies * BATCHES_EACH)).max(1).to_string();
    let copies = copies.to_string();
    rival(&format!("{copies} × cp"), move |route, source, target| {
        let script = "cd \"$1\" && find . -type d -print0 | (cd \"$2\" && xargs -0 mkdir -p) && \
                      find . -type f -print0 | \
                      xargs -0 -P \"$3\" -n \"$4\" cp --parents -t \"$2\"";
        let mut command = limited(route);
        command.args(["sh", "-c", script, "sh"]).arg(source).arg(target);
        Ok(timed(command.args([&copies, &files_each]))?.0)
    })
}

/// rsync with default options and without a network: both directories are on this host.
fn rsync() -> Contestant {
    rival(RSYNC_PLAIN, |route, source, target| {
        let mut command = limited(route);
        Ok(timed(command.args(["rsync", "-a"]).args(slashed(source, target)))?.0)
    })
}

fn rsync_daemon(config: PathBuf) -> Contestant {
    rival(RSYNC, move |route, source, target| {
        let port = route.free_port()?;
        let owner = if setup::is_root() { "uid = 0\ngid = 0\n" } else { "" };
        let path = target.display();
        let address = &route.sink_address;
        let module = format!("[sink]\npath = {path}\nread only = no\nuse chroot = no\n{owner}");
        fs::write(&config, format!("port = {port}\naddress = {address}\n{module}"))?;
        let mut command = route.at_sink("rsync");
        command.args(["--daemon", "--no-detach", "--config"]).arg(&config);
        let _daemon = Daemon::start(&mut command, port)?;
        let url = format!("rsync://{address}:{port}/sink/");
        let source = format!("{}/", source.display());
        Ok(timed(limited(route).args(["rsync", "-aW", &source, &url]))?.0)
    })
}

/// GridFTP from one server to another, as sites use it, but without security. `-r -cd` is needed
/// for a directory.
fn gridftp(line: &'static str, options: &'static [&'static str]) -> Contestant {
    rival(line, move |route, source, target| {
        let from_port = route.free_port()?;
        let from = route.at_source(GRIDFTP_SERVER);
        let _from = gridftp_server(from, &route.source_address, from_port)?;
        // The second port is chosen only now, when the first one is in use. In a namespace of its
        // own it may be the same.
        let to_port = route.free_port()?;
        let to = route.at_sink(GRIDFTP_SERVER);
        let _to = gridftp_server(to, &route.sink_address, to_port)?;
        let from = format!("ftp://{}:{from_port}{}/", route.source_address, source.display());
        let to = format!("ftp://{}:{to_port}{}/", route.sink_address, target.display());
        let mut command = limited(route);
        command.arg("globus-url-copy").args(["-r", "-cd"]).args(options);
        Ok(timed(command.args([from, to]))?.0)
    })
}

const GRIDFTP_SERVER: &str = "globus-gridftp-server";

fn gridftp_server(mut command: Command, address: &str, port: u16) -> Result<Daemon> {
    command.args(["-aa", "-log-level", "error", "-p", &port.to_string()]);
    for interface in ["-control-interface", "-data-interface"] {
        command.args([interface, address]);
    }
    if setup::is_root() {
        command.args(["-anonymous-user", "root", "-allow-root"]);
    }
    Daemon::start(&mut command, port)
}

fn scp(line: &'static str, keys: PathBuf, options: &'static [&'static str]) -> Contestant {
    rival(line, move |route, source, target| {
        let _ = fs::remove_dir_all(&keys);
        fs::create_dir_all(&keys)?;
        let sshd = Sshd::start(&keys)?.context("sshd is missing")?;
        let to = format!("localhost:{}/", target.display());
        let mut command = limited(route);
        command.args(["scp", "-q", "-r"]).args(options).args(sshd.options());
        Ok(timed(command.arg(source.join(".")).arg(to))?.0)
    })
}

/// Any other program: a shell command with `{src}`, `{dst}`, and `{sink}`, which is the sink's
/// address.
fn other(name: &str, command: &str) -> Contestant {
    let text = command.to_owned();
    rival(name, move |route, source, target| {
        let text = text
            .replace("{src}", &source.display().to_string())
            .replace("{dst}", &target.display().to_string())
            .replace("{sink}", &route.sink_address);
        Ok(timed(limited(route).args(["sh", "-c", &text]))?.0)
    })
}

/// A command at the source. It is stopped if it takes too long.
fn limited(route: &Route) -> Command {
    let mut command = route.at_source("timeout");
    command.arg(RUN_MAX_SECONDS);
    command
}

/// Runs a command. Returns how long it takes and what it prints.
fn timed(command: &mut Command) -> Result<(Duration, String)> {
    let start = Instant::now();
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    let elapsed = start.elapsed();
    if !output.status.success() {
        let first = reason(&output);
        if output.status.code() == Some(TIMED_OUT) {
            bail!("not done after {RUN_MAX_SECONDS} s");
        }
        bail!("{}: {first}", output.status);
    }
    Ok((elapsed, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Why a command failed: the first line on its stderr, or the message in the summary of LADS.
pub(super) fn reason(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    if let Some(first) = said.trim().lines().next() {
        return first.to_owned();
    }
    let events = String::from_utf8_lossy(&output.stdout);
    let summary = events.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let message =
        summary.and_then(|it: serde_json::Value| Some(it["message"].as_str()?.to_owned()));
    message.unwrap_or_default()
}

/// A server at the sink. When this is dropped, it is stopped and waited for.
struct Daemon(Child);

impl Daemon {
    /// Starts the server and waits until it listens on its port.
    fn start(command: &mut Command, port: u16) -> Result<Self> {
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the server at the sink")?;
        let mut daemon = Self(child);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if is_listening(daemon.0.id(), port) {
                return Ok(daemon);
            }
            if let Some(status) = daemon.0.try_wait()? {
                bail!("the server at the sink has ended: {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server at the sink does not accept connections")
    }
}

/// Whether a process listens on this port, in the network namespace of the process `pid`. This
/// makes no connection, because a server that serves only one connection at a time would take it
/// for its client.
fn is_listening(pid: u32, port: u16) -> bool {
    const LISTENS: &str = "0A";
    let port = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|family| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{family}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|own| own.ends_with(&port)) && words.nth(1) == Some(LISTENS)
        })
    })
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Processes that served a connection end by themselves. Only then does their time count.
        let start = Instant::now();
        while !children(self.0.id()).is_empty() && start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn every_rival_that_is_here_copies_a_tree() {
        let scratch = Scratch::new(&std::env::temp_dir(), "rivals").unwrap();
        let source = scratch.join("source");
        for name in ["a/one", "a/b/two", "a/b/three"] {
            let path = source.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name.repeat(1000)).unwrap();
        }
        let by_hand = ("by hand".to_owned(), "cp -r {src}/. {dst}".to_owned());
        let route = Route::loopback();
        let work = Work { ost_count: 2, file_count: 3 };
        let (rivals, missing) = all(&route, &scratch, &[by_hand], work);
        missing.iter().for_each(|missing| println!("not tried: {missing}"));
        for rival in rivals {
            let target = scratch.join("target");
            fs::create_dir(&target).unwrap();
            (rival.run)(&route, &source, &target)
                .and_then(|_| tree::compare(&source, &target))
                .unwrap_or_else(|error| panic!("{}: {error:#}", rival.line));
            fs::remove_dir_all(&target).unwrap();
        }
    }

    #[test]
    fn a_rival_that_fails_says_why() {
        let nobody = other("nobody", "echo no such planet >&2; exit 3");
        let route = Route::loopback();
        let error = (nobody.run)(&route, Path::new("/"), Path::new("/")).unwrap_err();
        assert_eq!(error.to_string(), "exit status: 3: no such planet");
    }
}
