//! A server of ssh on this machine, for tests.

use crate::lack::{find, has, not_tried};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it listens.
const START_MAX: Duration = Duration::from_secs(20);

/// A server with its own keys on a loopback port; it is ended when this is dropped.
#[derive(Debug)]
pub struct Sshd {
    child: Child,
    directory: PathBuf,
    /// The ssh command that reaches it, and asks nothing.
    pub shell: String,
    /// Our user at its host.
    pub host: String,
}

impl Sshd {
    /// Starts a server that keeps its files in a directory. `None`, and that is said, if there is
    /// no sshd here, or if it does not let us in.
    ///
    /// # Errors
    /// If a file cannot be written or a program does not run.
    pub fn start(directory: &Path) -> io::Result<Option<Self>> {
        if !["sshd", "ssh", "ssh-keygen"].into_iter().all(has) {
            return Ok(None);
        }
        let path = |name: &str| directory.join(name);
        for key in ["host_key", "user_key"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path(key));
            succeed(&mut command)?;
        }
        fs::copy(path("user_key.pub"), path("authorized"))?;
        fs::set_permissions(path("authorized"), fs::Permissions::from_mode(0o600))?;
        // Another program could take it before it is used.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n\
             PermitRootLogin yes\nMaxStartups 100\n",
            path("host_key").display(),
            path("authorized").display(),
        );
        fs::write(path("sshd_config"), config)?;
        // The directory to which sshd confines its part that talks to clients before they log in.
        let _ = fs::create_dir_all("/run/sshd");
        let sshd = find("sshd").ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(sshd);
        command.args(["-D", "-e", "-f"]).arg(path("sshd_config"));
        command.stdin(Stdio::null()).stderr(fs::File::create(path("sshd.log"))?);
        let child = command.spawn()?;
        let shell = format!(
            "ssh -F /dev/null -p {port} -i {} -o BatchMode=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            path("user_key").display(),
        );
        let user = succeed(Command::new("id").arg("-un"))?;
        let host = format!("{}@127.0.0.1", String::from_utf8_lossy(&user).trim());
        let mut server = Self { child, directory: directory.to_owned(), shell, host };
        server.wait_until_it_listens(port)?;
        Ok(server.lets_us_in()?.then_some(server))
    }

    /// What it has said so far.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn log(&self) -> io::Result<String> {
        fs::read_to_string(self.directory.join("sshd.log"))
    }

    /// From now on, it lets nobody in.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn lock_out(&self) -> io::Result<()> {
        fs::write(self.directory.join("authorized"), "")
    }

    fn wait_until_it_listens(&mut self, port: u16) -> io::Result<()> {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if start.elapsed() > START_MAX || self.child.try_wait()?.is_some() {
                return Err(io::Error::other(format!("sshd does not listen: {}", self.log()?)));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn lets_us_in(&self) -> io::Result<bool> {
        let mut words = self.shell.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        let output = command.args(words).arg(&self.host).arg("true").output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            not_tried(&format!("sshd here does not let us in: {said}"));
        }
        Ok(output.status.success())
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command prints.
fn succeed(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(io::Error::other(format!("{command:?}: {output:?}"))),
    }
}
