//! Starts each mover: LADS, and the programs that a user would use instead.

use super::Bench;
use super::bare::Way;
use super::measure::children;
use super::race::Mover;
use crate::shell;
use crate::sshd::{self, Sshd};
use anyhow::{Context, Result, bail};
use clap::ValueEnum as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// LADS from one process to another over loopback TCP, with these options.
pub(super) fn lads<'a>(bench: &Bench, name: &str, target: PathBuf, options: &[&str]) -> Mover<'a> {
    program(&bench.lads, name, target, options)
}

/// A program of LADS, as in [`lads()`].
pub(super) fn program<'a>(lads: &Path, name: &str, target: PathBuf, options: &[&str]) -> Mover<'a> {
    let lads = lads.to_owned();
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    Mover::new(name, target, move |source, target| {
        timed(shell::command(&lads).args(["cp", "-q"]).args(&options).args(slashed(source, target)))
    })
}

/// A minimal mover that moves bytes in this way.
pub(super) fn bare<'a>(name: &str, way: Way, target: PathBuf) -> Mover<'a> {
    Mover::new(name, target, move |source, target| {
        let sink = bare_sink(shell::command(std::env::current_exe()?), target, way)?;
        sink.take_from(source, way)
    })
}

/// A minimal mover that encrypts; its sink is started through ssh, as one starts WDT's.
pub(super) fn bare_through_ssh<'a>(name: &str, target: PathBuf, keys: PathBuf) -> Mover<'a> {
    Mover::new(name, target, move |source, target| {
        let sshd = Sshd::start(&keys)?.context("sshd is missing")?;
        let mut command = shell::command("ssh");
        command.stdin(Stdio::null()).args(sshd.options()).arg(HOST).arg(std::env::current_exe()?);
        let start = Instant::now();
        bare_sink(command, target, Way::Sealed)?.take_from(source, Way::Sealed)?;
        Ok(start.elapsed())
    })
}

/// A running sink of a minimal mover.
struct BareSink {
    child: Child,
    port: String,
}

/// Starts a sink; `command` is this program.
fn bare_sink(mut command: Command, target: &Path, way: Way) -> Result<BareSink> {
    let mut child = command
        .arg("bare-sink")
        .arg(target)
        .arg(name_of(way))
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the bare sink")?;
    let mut port = String::new();
    let stdout = child.stdout.take().expect("piped above");
    BufReader::new(stdout).read_line(&mut port)?;
    Ok(BareSink { child, port: port.trim().to_owned() })
}

impl BareSink {
    /// Sends a directory to it. Returns how long the source took.
    fn take_from(mut self, source: &Path, way: Way) -> Result<Duration> {
        let mut sender = shell::command(std::env::current_exe()?);
        sender.arg("bare-source").arg(source).args([&self.port, &name_of(way)]);
        let elapsed = timed(&mut sender);
        let status = self.child.wait()?;
        if !status.success() {
            bail!("bare sink: {status}");
        }
        elapsed
    }
}

fn name_of(way: Way) -> String {
    way.to_possible_value().expect("it can be named").get_name().to_owned()
}

/// rsync with a daemon at the sink, on a loopback port, so that ssh does not slow it down.
pub(super) fn rsync_daemon<'a>(target: PathBuf) -> Mover<'a> {
    Mover::new("rsync daemon -aW", target, |source, target| {
        let daemon = RsyncDaemon::start(target)?;
        let url = format!("rsync://127.0.0.1:{}/sink/", daemon.port);
        let source = format!("{}/", source.display());
        timed(shell::command("rsync").args(["-aW", &source, &url]))
    })
}

/// `cp -r`: one process, no network.
pub(super) fn cp<'a>(target: PathBuf) -> Mover<'a> {
    Mover::new("cp -r (no network)", target, |source, target| {
        timed(shell::command("cp").arg("-r").arg(source.join(".")).arg(target))
    })
}

/// LADS to another host, which is this one, with this protection of the data.
pub(super) fn lads_through_ssh<'a>(
    name: &str,
    target: PathBuf,
    (keys, lads): (PathBuf, PathBuf),
    level: &'static str,
) -> Mover<'a> {
    through_ssh(name, target, keys, move |sshd, source, target| {
        let mut command = shell::command(&lads);
        // The other host permits it, too.
        let shell = format!("{} -oSetEnv=LADS_DATA={level}", sshd.remote_shell());
        command.args(["cp", "-q", "--no-tunnel", "--data", level, "-e", &shell, "--remote-lads"]);
        let [source, target] = slashed(source, target);
        command.arg(&lads).args([source, format!("{HOST}:{target}")]);
        command
    })
}

/// rsync through ssh, with its fastest cipher.
pub(super) fn rsync_through_ssh<'a>(target: PathBuf, keys: PathBuf) -> Mover<'a> {
    through_ssh("rsync -aW, ssh", target, keys, |sshd, source, target| {
        let shell = format!("{} -c {CIPHER}", sshd.remote_shell());
        let [source, target] = slashed(source, target);
        let mut command = shell::command("rsync");
        command.args(["-aW", "-e", &shell, &source, &format!("{HOST}:{target}")]);
        command
    })
}

/// scp with its fastest cipher.
pub(super) fn scp<'a>(target: PathBuf, keys: PathBuf) -> Mover<'a> {
    through_ssh("scp -r", target, keys, |sshd, source, target| {
        let mut command = shell::command("scp");
        command.args(["-q", "-r", "-c", CIPHER]).args(sshd.options());
        command.arg(source.join(".")).arg(format!("{HOST}:{}/", target.display()));
        command
    })
}

/// rclone over SFTP, several files at a time, without comparing their checksums afterwards.
pub(super) fn rclone<'a>(target: PathBuf, keys: PathBuf) -> Mover<'a> {
    through_ssh("rclone, sftp", target, keys, |sshd, source, target| {
        let mut command = shell::command("rclone");
        command.args(["copy", "--config", "/dev/null", "--transfers", "8", "--checkers", "8"]);
        command.args(["--sftp-host", "127.0.0.1", "--sftp-port", &sshd.port().to_string()]);
        command.args(["--sftp-user", "root", "--sftp-disable-hashcheck", "--sftp-key-file"]);
        command.arg(sshd.key()).arg(source).arg(format!(":sftp:{}", target.display()));
        command
    })
}

/// The name of the host that is reached through ssh.
const HOST: &str = "sink";

/// The cipher of ssh that is fastest on processors with instructions for AES.
const CIPHER: &str = "aes128-gcm@openssh.com";

/// A mover that logs in to an ssh server. That is started before, so that its processor time counts
/// and its start does not.
fn through_ssh<'a>(
    name: &str,
    target: PathBuf,
    keys: PathBuf,
    command: impl Fn(&Sshd, &Path, &Path) -> Command + 'a,
) -> Mover<'a> {
    Mover::new(name, target, move |source, target| {
        let sshd = Sshd::start(&keys)?.context("sshd is missing")?;
        timed(&mut command(&sshd, source, target))
    })
}

/// Returns how long a command takes.
pub(super) fn timed(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    let elapsed = start.elapsed();
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(elapsed)
}

/// The paths of source and target, each with a slash at its end, so that `lads cp` and rsync move
/// the content of the source.
pub(super) fn slashed(source: &Path, target: &Path) -> [String; 2] {
    [source, target].map(|path| format!("{}/", path.display()))
}

/// A running rsync daemon. When this is dropped, it is stopped and waited for.
struct RsyncDaemon {
    child: Child,
    port: u16,
    /// The configuration file. The daemon reads it again for each connection, so it must stay as
    /// long as the daemon runs.
    config: PathBuf,
}

impl RsyncDaemon {
    fn start(target: &Path) -> Result<Self> {
        let port = sshd::free_port()?;
        let config = target.with_extension("rsyncd.conf");
        let owner = if crate::setup::is_root() { "uid = 0\ngid = 0\n" } else { "" };
        let path = target.display();
        let module = format!("[sink]\npath = {path}\nread only = no\nuse chroot = no\n{owner}");
        fs::write(&config, format!("port = {port}\naddress = 127.0.0.1\n{module}"))?;
        let child = shell::command("rsync")
            .args(["--daemon", "--no-detach", "--config"])
            .arg(&config)
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the rsync daemon")?;
        let daemon = Self { child, port, config };
        daemon.wait_until_it_answers()?;
        Ok(daemon)
    }

    fn wait_until_it_answers(&self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            let mut greeting = [0; 8];
            let answer = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
                .and_then(|mut stream| stream.read_exact(&mut greeting));
            if answer.is_ok() && &greeting == b"@RSYNCD:" {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the rsync daemon does not reply")
    }

    /// Waits until the processes that served a connection have ended and the daemon has waited for
    /// them. Otherwise their processor time would not count.
    fn wait_until_it_is_idle(&self) {
        let start = Instant::now();
        while !children(self.child.id()).is_empty() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RsyncDaemon {
    fn drop(&mut self) {
        self.wait_until_it_is_idle();
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.config);
    }
}
