//! An ssh server for tests and the demo: on a loopback port, with new keys.

use crate::{setup, shell};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A running server; stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Sshd {
    child: Child,
    port: u16,
    key: PathBuf,
}

/// How long a server may take to answer.
const START_MAX: Duration = Duration::from_secs(10);

impl Sshd {
    /// Starts a server that keeps its files in `directory`; `None` if there is no sshd here.
    pub(crate) fn start(directory: &Path) -> Result<Option<Self>> {
        let (Some(sshd), Some(keygen)) = (shell::find("sshd"), shell::find("ssh-keygen")) else {
            return Ok(None);
        };
        let key = directory.join("key");
        for path in [&key, &directory.join("host_key")] {
            let generate = ["-q", "-t", "ed25519", "-N", "", "-f"];
            shell::output(shell::command(&keygen).args(generate).arg(path))?;
        }
        fs::copy(directory.join("key.pub"), directory.join("authorized_keys"))?;
        if setup::is_root() {
            // The directory for the privilege separation of sshd. It does not exist where sshd
            // never ran.
            fs::create_dir_all("/run/sshd")?;
        }
        let port = free_port()?;
        let config = directory.join("sshd_config");
        fs::write(&config, config_text(directory, port))?;
        let log = directory.join("sshd.log");
        let child = shell::command(&sshd)
            .args(["-D", "-f"])
            .arg(&config)
            .arg("-E")
            .arg(&log)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start sshd")?;
        let mut server = Self { child, port, key };
        server.wait_until_it_answers(&log)?;
        Ok(Some(server))
    }

    /// The command that reaches the server, for `lads cp -e`.
    pub(crate) fn remote_shell(&self) -> String {
        format!("ssh {}", self.options().join(" "))
    }

    /// Options with which `ssh` and `scp` reach the server and ask no questions.
    pub(crate) fn options(&self) -> Vec<String> {
        let port = format!("Port={}", self.port);
        let key = format!("IdentityFile={}", self.key.display());
        let fixed = ["BatchMode=yes", "StrictHostKeyChecking=no", "LogLevel=ERROR"];
        let none = "UserKnownHostsFile=/dev/null";
        let options = [&port, &key].map(String::as_str).into_iter().chain(fixed).chain([none]);
        options.flat_map(|option| ["-o".to_owned(), option.to_owned()]).collect()
    }

    fn wait_until_it_answers(&mut self, log: &Path) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_MAX && self.child.try_wait()?.is_none() {
            let mut banner = [0; 4];
            let answer = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
                .and_then(|mut stream| stream.read_exact(&mut banner));
            if answer.is_ok() && &banner == b"SSH-" {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("sshd does not answer: {}", fs::read_to_string(log).unwrap_or_default());
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // An error means that the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config_text(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {directory}/host_key\n\
         AuthorizedKeysFile {directory}/authorized_keys\nPidFile none\nStrictModes no\n\
         UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
    )
}

/// A free loopback port. Another program could take it before it is used.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
