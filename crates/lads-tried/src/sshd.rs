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

/// A server with its own keys; it is ended when this is dropped.
#[derive(Debug)]
pub struct Sshd {
    child: Child,
    directory: PathBuf,
    /// The ssh command that reaches it, and asks nothing.
    pub shell: String,
    /// Our user at its host.
    pub host: String,
    /// The port on which it listens.
    pub port: u16,
}

impl Sshd {
    /// Starts a server on a loopback port that keeps its files in a directory. Returns `None`, and
    /// prints the reason, if there is no sshd here, or if it rejects the key.
    ///
    /// # Errors
    /// If a file cannot be written or a program does not run.
    pub fn start(directory: &Path) -> io::Result<Option<Self>> {
        Self::start_at(directory, Ipv4Addr::LOCALHOST)
    }

    /// Starts a server that listens on another address of the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(directory: &Path, address: Ipv4Addr) -> io::Result<Option<Self>> {
        Self::start_with(directory, address, None)
    }

    /// The same, for another account of the user, in a mount namespace of its own. Only root can
    /// do this.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_for(directory: &Path, account: &Account) -> io::Result<Option<Self>> {
        Self::start_with(directory, Ipv4Addr::LOCALHOST, Some(account))
    }

    fn start_with(
        directory: &Path,
        address: Ipv4Addr,
        account: Option<&Account>,
    ) -> io::Result<Option<Self>> {
        if !["sshd", "ssh", "ssh-keygen"].into_iter().all(has) {
            return Ok(None);
        }
        let path = |name: &str| directory.join(name);
        for key in ["host_key", "user_key"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path(key));
            succeed(&mut command)?;
        }
        let key = fs::read_to_string(path("user_key.pub"))?;
        let key_options = account.map_or("", |account| &account.key_options);
        fs::write(path("authorized"), [key_options, &key].join(" "))?;
        fs::set_permissions(path("authorized"), fs::Permissions::from_mode(0o600))?;
        // Another program could take it before it is used.
        let port = TcpListener::bind((address, 0))?.local_addr()?.port();
        let config = format!(
            "Port {port}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n\
             PermitRootLogin yes\nMaxStartups 100\n{}",
            path("host_key").display(),
            path("authorized").display(),
            account.map_or_else(String::new, Account::settings),
        );
        fs::write(path("sshd_config"), config)?;
        // The directory to which sshd confines its part that talks to clients before they log in.
        let _ = fs::create_dir_all("/run/sshd");
        let sshd = find("sshd").ok_or(io::ErrorKind::NotFound)?;
        let mut command = match account {
            Some(account) => account.command(directory, &sshd)?,
            None => Command::new(sshd),
        };
        command.args(["-D", "-e", "-f"]).arg(path("sshd_config"));
        command.stdin(Stdio::null()).stderr(fs::File::create(path("sshd.log"))?);
        let child = command.spawn()?;
        let shell = format!(
            "ssh -F /dev/null -p {port} -i {} -o BatchMode=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            path("user_key").display(),
        );
        let user = succeed(Command::new("id").arg("-un"))?;
        let host = format!("{}@{address}", String::from_utf8_lossy(&user).trim());
        let mut server = Self { child, directory: directory.to_owned(), shell, host, port };
        server.wait_until_it_listens(address)?;
        // It may execute only certain commands.
        let is_open =
            account.is_some_and(|it| !it.key_options.is_empty()) || server.lets_us_in()?;
        Ok(is_open.then_some(server))
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

    fn wait_until_it_listens(&mut self, address: Ipv4Addr) -> io::Result<()> {
        let start = Instant::now();
        while TcpStream::connect((address, self.port)).is_err() {
            if start.elapsed() > START_MAX || self.child.try_wait()?.is_some() {
                return Err(io::Error::other(format!(
                    "sshd does not accept connections: {}",
                    self.log()?
                )));
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

/// An account of the user at a server.
#[derive(Clone, Debug)]
pub struct Account {
    /// The home directory.
    pub home: PathBuf,
    /// The login shell.
    pub shell: PathBuf,
    /// The search path for programs.
    pub path: String,
    /// Further variables of the environment.
    pub variables: Vec<(String, String)>,
    /// Options of the key in `authorized_keys`; empty if there are none.
    pub key_options: String,
    /// Shell commands that prepare the mount namespace of the server.
    pub preparation: String,
}

impl Account {
    /// An account with a home directory and a login shell, which finds the programs of the system.
    #[must_use]
    pub fn new(home: &Path, shell: &Path) -> Self {
        Self {
            home: home.to_owned(),
            shell: shell.to_owned(),
            path: "/usr/bin:/bin".to_owned(),
            variables: Vec::new(),
            key_options: String::new(),
            preparation: String::new(),
        }
    }

    fn settings(&self) -> String {
        let path = [("PATH", self.path.as_str())].into_iter();
        let others = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<_> = path.chain(others).map(|(name, it)| format!("{name}={it}")).collect();
        format!("SetEnv {}\n", all.join(" "))
    }

    /// A command that runs a program, where the accounts of the system are replaced by this one.
    fn command(&self, directory: &Path, program: &Path) -> io::Result<Command> {
        let (home, shell) = (self.home.display(), self.shell.display());
        let accounts = fs::read_to_string("/etc/passwd")?;
        let others = accounts.lines().filter(|line| !line.starts_with("root:"));
        let own = format!("root:x:0:0:root:{home}:{shell}");
        let all: Vec<_> = [own.as_str()].into_iter().chain(others).collect();
        fs::write(directory.join("passwd"), all.join("\n") + "\n")?;
        let preparation = &self.preparation;
        let script = format!(
            "mount --bind passwd /etc/passwd; {preparation}\nprogram=$0; exec \"$program\" \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-ec", &script]).arg(program).current_dir(directory);
        Ok(command)
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
