//! An ssh server for tests, the demo and benchmarks: on a loopback port or in a network namespace,
//! with keys of its own.

use crate::{setup, shell};
use anyhow::{Context, Result, bail};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Sshd {
    child: Child,
    at: SocketAddr,
    key: PathBuf,
}

/// How long a server may take until it listens.
const START_MAX: Duration = Duration::from_secs(10);

impl Sshd {
    /// Starts a server on a loopback port that keeps its files in `directory`; `None` if there is
    /// no sshd here.
    pub(crate) fn start(directory: &Path) -> Result<Option<Self>> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        Self::start_at(directory, |program| shell::command(program), at)
    }

    /// Starts a server that listens at `at`, with a program that `command` makes a command of.
    pub(crate) fn start_at(
        directory: &Path,
        command: impl Fn(&str) -> Command,
        at: SocketAddr,
    ) -> Result<Option<Self>> {
        let (Some(sshd), Some(keygen)) = (shell::find("sshd"), shell::find("ssh-keygen")) else {
            return Ok(None);
        };
        let key = directory.join("key");
        let missing = [key.clone(), directory.join("host_key")];
        for path in missing.iter().filter(|path| !path.exists()) {
            let generate = ["-q", "-t", "ed25519", "-N", "", "-f"];
            shell::output(shell::command(&keygen).args(generate).arg(path))?;
        }
        fs::copy(directory.join("key.pub"), directory.join("authorized_keys"))?;
        if setup::is_root() {
            // The directory for the privilege separation of sshd. It does not exist where sshd
            // never ran.
            fs::create_dir_all("/run/sshd")?;
        }
        let config = directory.join("sshd_config");
        fs::write(&config, config_text(directory, at))?;
        let log = directory.join("sshd.log");
        // A server before may have listened, too.
        let _ = fs::remove_file(&log);
        let child = command(&sshd.display().to_string())
            .args(["-D", "-f"])
            .arg(&config)
            .arg("-E")
            .arg(&log)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start sshd")?;
        let mut server = Self { child, at, key };
        server.wait_until_it_listens(&log)?;
        Ok(Some(server))
    }

    pub(crate) fn port(&self) -> u16 {
        self.at.port()
    }

    /// The file of the private key that may log in.
    pub(crate) fn key(&self) -> &Path {
        &self.key
    }

    /// The command that reaches the server, for `lads cp -e`.
    pub(crate) fn remote_shell(&self) -> String {
        format!("ssh {}", self.options().join(" "))
    }

    /// Options with which `ssh` and `scp` reach the server and ask no questions.
    pub(crate) fn options(&self) -> Vec<String> {
        let host = format!("HostName={}", self.at.ip());
        let port = format!("Port={}", self.at.port());
        let key = format!("IdentityFile={}", self.key.display());
        let fixed = ["BatchMode=yes", "StrictHostKeyChecking=no", "LogLevel=ERROR"];
        let none = "UserKnownHostsFile=/dev/null";
        let options =
            [&host, &port, &key].map(String::as_str).into_iter().chain(fixed).chain([none]);
        options.flat_map(|option| ["-o".to_owned(), option.to_owned()]).collect()
    }

    fn wait_until_it_listens(&mut self, log: &Path) -> Result<()> {
        let start = Instant::now();
        let said = || fs::read_to_string(log).unwrap_or_default();
        while start.elapsed() < START_MAX && self.child.try_wait()?.is_none() {
            if said().contains("Server listening on") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("sshd does not accept connections: {}", said());
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // An error means that the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// bash reads `.bashrc` where sshd starts it, unless it takes itself for a shell within a shell. On
/// some machines that takes longer than a round trip that is to be measured: 0.13 s with pyenv.
fn config_text(directory: &Path, at: SocketAddr) -> String {
    let directory = directory.display();
    let (address, port) = (at.ip(), at.port());
    format!(
        "ListenAddress {address}\nPort {port}\nHostKey {directory}/host_key\n\
         AuthorizedKeysFile {directory}/authorized_keys\nPidFile none\nStrictModes no\n\
         UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n\
         SetEnv SHLVL=1\nAcceptEnv LADS_CACHE LADS_DATA\n"
    )
}

/// A free loopback port. Another program could take it before it is used.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
