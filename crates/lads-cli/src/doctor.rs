//! `lads doctor`: checks the way to another host, and both ends of it, before a transfer.
//!
//! LADS is started on the other host (`end`), reports its facts, and answers a trial connection.
//! `findings` judges; this asks and prints.

mod end;
mod facts;
mod findings;
mod trial;

use crate::args::HostDoctorArgs;
use crate::complain;
use crate::display::{escape_text, message};
use anyhow::{Context, Result, anyhow, ensure};
use facts::Facts;
use findings::{Connection, Finding};
use lads_engine::{ExitCode, Location, RemoteShell, StopFlag, connect_for_data, deploy, version};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use end::run as run_end;

/// Time in which the other end answers: its storage may be slow.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// Maximum length of a line of the other end, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Number of times that the clock is read; the shortest round trip counts.
const CLOCK_READINGS: usize = 4;

/// Checks everything and prints the findings. Returns 1 if one of them is a problem, or the exit
/// code of a transfer if LADS cannot be started on the other host.
pub(crate) fn run(args: &HostDoctorArgs) -> std::process::ExitCode {
    let mut findings = Vec::new();
    let code = match look(args, &mut findings) {
        Ok(()) if findings.iter().all(|finding| finding.is_ok) => ExitCode::Ok,
        Ok(()) => ExitCode::Other,
        Err((code, error)) => {
            let (check, todo) = match code {
                ExitCode::Network | ExitCode::Refused => ("ssh", "`ssh HOST true` must succeed"),
                ExitCode::Usage => ("lads", "follow the message"),
                _ => ("lads", "send LADS there again: lads deploy --remove HOST"),
            };
            findings.push(Finding::problem(check, format!("{error:#}"), todo));
            code
        }
    };
    match print(&findings, code, args.json) {
        Ok(()) => std::process::ExitCode::from(code as u8),
        Err(error) => {
            complain(&format!("cannot write to standard output: {error}"));
            std::process::ExitCode::from(ExitCode::Other as u8)
        }
    }
}

fn look(
    args: &HostDoctorArgs,
    findings: &mut Vec<Finding>,
) -> Result<(), (ExitCode, anyhow::Error)> {
    let usage = |error| (ExitCode::Usage, error);
    let (host, path) = place(args).map_err(usage)?;
    let shown = escape_text(&host);
    let remote = RemoteShell {
        command: RemoteShell::words(&args.rsh).map_err(|it| usage(anyhow!("--rsh {it}")))?,
        lads: args.remote_lads.clone(),
        deploys: !args.no_deploy,
        data_address: args.data_address.clone(),
        ..RemoteShell::default()
    };
    let begun = Instant::now();
    let is_sent = deploy(&remote, &host, Path::new("/proc/self/exe"), &StopFlag::new())
        .map_err(|(code, text)| (code, anyhow!(text)))?;
    let seconds = begun.elapsed().as_secs_f64();
    findings.push(Finding::ok("ssh", format!("{shown} answers after {seconds:.1} s")));
    let did = if is_sent { "was sent" } else { "was already present" };
    findings.push(Finding::ok("lads", format!("{} {did}", version())));
    let other = |error| (ExitCode::Other, error);
    let mut end = OtherEnd::start(&remote, &host, args.ports, &path).map_err(other)?;
    let there: Facts = end.facts().map_err(other)?;
    let here = facts_here(&args.path).map_err(other)?;
    look_at_network(&mut end, &remote, &host, (&here, &there), findings).map_err(other)?;
    findings.push(findings::of_protection(&here, &there));
    for facts in [&here, &there] {
        findings.push(findings::of_storage(facts));
        findings.push(findings::of_limits(facts));
    }
    Ok(())
}

/// Returns the host and the directory there.
fn place(args: &HostDoctorArgs) -> Result<(String, Vec<u8>)> {
    let (host, path) = match Location::parse(&args.host) {
        Some(Location { host: Some(host), path }) => (host, path),
        _ => {
            let host = args.host.to_str().context("the host is not text")?;
            (host.to_owned(), Vec::new())
        }
    };
    ensure!(!host.is_empty() && !host.contains('/'), "{host:?} is not a host");
    ensure!(!host.starts_with('-'), "a host cannot begin with a dash");
    Ok((host, path))
}

/// Collects the facts of this host. Storage that does not answer is a finding, too.
fn facts_here(path: &Path) -> Result<Facts> {
    let (done, result) = channel();
    let path = path.to_owned();
    let collect = move || {
        // If it takes too long, no thread waits for it.
        let _ = done.send(Facts::collect(&path));
    };
    thread::Builder::new().spawn(collect).map_err(crate::not_started)?;
    result.recv_timeout(ANSWER_DEADLINE).context("storage of this host does not answer")
}

fn look_at_network(
    end: &mut OtherEnd,
    remote: &RemoteShell,
    host: &str,
    (here, there): (&Facts, &Facts),
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let shown = escape_text(host);
    let (ahead, over_ssh) = end.clock()?;
    let connection = match &there.port {
        Ok(port) => {
            let connection = connected(remote, host, there, *port);
            findings.push(findings::of_port(&shown, *port, &connection));
            connection.ok()
        }
        Err(reason) => {
            let text = format!("{shown} cannot open a port: {}", message(reason));
            let todo = "choose other ports (--ports FIRST-LAST), or use lads cp --tunnel";
            findings.push(Finding::problem("port", text, todo));
            None
        }
    };
    if let Some(answer) = end.way_back(there)? {
        findings.push(findings::of_way_back(&shown, &message(&answer)));
    }
    let measured = connection.as_ref().and_then(|it| it.round_trip);
    let round_trip = measured.unwrap_or(over_ssh);
    let way = if measured.is_some() { "" } else { " through ssh" };
    let millis = round_trip.as_secs_f64() * 1e3;
    findings.push(Finding::ok("round trip", format!("{millis:.1} ms{way}")));
    findings.extend(connection.as_ref().and_then(|it| findings::of_mtu(here, there, it)));
    findings.extend(findings::of_windows(here, there, round_trip));
    findings.push(findings::of_clocks(&shown, ahead, over_ssh / 2));
    Ok(())
}

/// Tries a connection to a port of the other host.
fn connected(
    remote: &RemoteShell,
    host: &str,
    there: &Facts,
    port: u16,
) -> Result<Connection, String> {
    let socket = connect_for_data(remote, host, &there.reached_at, port, trial::DEADLINE)?;
    let stream = TcpStream::from(socket);
    let arrival = trial::send(&stream);
    Ok(Connection {
        arrival,
        round_trip: lads_sys::round_trip(&stream),
        path_mtu: lads_sys::path_mtu(&stream),
    })
}

/// The part of `lads doctor` on the other host.
struct OtherEnd {
    child: Child,
    requests: ChildStdin,
    lines: Receiver<String>,
}

impl OtherEnd {
    fn start(
        remote: &RemoteShell,
        host: &str,
        ports: Option<(u16, u16)>,
        path: &[u8],
    ) -> Result<Self> {
        let (first, last) = ports.unwrap_or((0, 0));
        let words = [b"doctor-end".to_vec(), first.to_string().into_bytes()];
        let rest = [last.to_string().into_bytes(), b"--".to_vec(), path.to_vec()];
        let words: Vec<Vec<u8>> = words.into_iter().chain(rest).collect();
        // It is there: it was found, or sent.
        let remote = RemoteShell { deploys: false, ..remote.clone() };
        let mut command = remote.lads_command_on(host, Path::new("/proc/self/exe"), &words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(crate::not_started)?;
        let requests = child.stdin.take().context("piped above")?;
        let mut output = BufReader::new(child.stdout.take().context("piped above")?);
        let (said, lines) = channel();
        let read = move || {
            let mut line = Vec::new();
            while let Ok(count) = output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)
                && count > 0
                && said.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_ok()
            {
                line.clear();
            }
        };
        thread::Builder::new().spawn(read).map_err(crate::not_started)?;
        Ok(Self { child, requests, lines })
    }

    fn line(&self) -> Result<String> {
        let line = self.lines.recv_timeout(ANSWER_DEADLINE);
        line.context("lads on the other host does not answer, or has ended")
    }

    fn facts(&self) -> Result<Facts> {
        let line = self.line()?;
        let facts = serde_json::from_str(&line);
        facts.with_context(|| format!("lads on the other host printed {:?}", message(&line)))
    }

    fn ask(&mut self, request: &str) -> Result<String> {
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        sent.context("lads on the other host has ended")?;
        self.line()
    }

    /// Returns the nanoseconds by which the clock there is ahead, and the round trip through ssh.
    fn clock(&mut self) -> Result<(i128, Duration)> {
        let mut best: Option<(i128, Duration)> = None;
        for _ in 0..CLOCK_READINGS {
            let (before, begun) = (end::clock_nanos(), Instant::now());
            let answer = self.ask("clock")?;
            let round_trip = begun.elapsed();
            let there: i128 = answer.parse().context("the clock of the other host")?;
            let half = i128::try_from(round_trip.as_nanos() / 2).unwrap_or(0);
            if best.is_none_or(|(_, shortest)| round_trip < shortest) {
                best = Some((there.saturating_sub(before).saturating_sub(half), round_trip));
            }
        }
        best.context("the clock was read")
    }

    /// Returns the answer of the other end to the request to connect to this host; `None` if it
    /// does not know an address of this host.
    fn way_back(&mut self, there: &Facts) -> Result<Option<String>> {
        let Ok(address) = there.client.parse() else { return Ok(None) };
        let Ok(listener) = end::listen(0, 0) else { return Ok(None) };
        let port = listener.local_addr().context("a port of this host")?.port();
        self.ask(&format!("connect {}", SocketAddr::new(address, port))).map(Some)
    }
}

impl Drop for OtherEnd {
    fn drop(&mut self) {
        // It ends by itself when its standard input ends, but its storage may not answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn print(findings: &[Finding], code: ExitCode, is_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if is_json {
        let object = serde_json::json!({
            "exit_code": code as u8,
            "is_ok": code == ExitCode::Ok,
            "checks": findings,
        });
        return writeln!(out, "{object}");
    }
    for Finding { check, is_ok, text, todo } in findings {
        let mark = if *is_ok { "ok" } else { "PROBLEM" };
        writeln!(out, "{mark:7}  {check:11}  {}", message(text))?;
        if let Some(todo) = todo {
            writeln!(out, "{:22}{}", "", message(todo))?;
        }
    }
    out.flush()
}
