//! Facts about an end: its storage, and the limits of its host.

use crate::layouts;
use crate::subject::Subject;
use lads_core::sizes;
use lads_engine::{TcpLimits, has_aes};
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Facts about an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) host: String,
    pub(super) system: String,
    /// Address at which ssh reached this host; empty if it is unknown.
    pub(super) reached_at: String,
    /// Address from which ssh connected; empty if it is unknown.
    pub(super) client: String,
    /// Port of the trial connection, or the reason why none could be opened.
    pub(super) port: Result<u16, String>,
    pub(super) tcp: Tcp,
    /// Maximum number of open files; `None`: unlimited.
    pub(super) open_files_max: Option<u64>,
    /// Maximum size of a file, in bytes.
    pub(super) file_bytes_max: Option<u64>,
    /// Maximum number of processes and threads of this user.
    pub(super) threads_max: Option<u64>,
    /// Rate of the fastest network interface, in megabits per second, if it is known.
    pub(super) link_megabits: Option<u64>,
    /// Largest MTU of the network interfaces other than loopback, in bytes.
    pub(super) link_mtu: Option<u32>,
    /// Name of the protection level in the configuration of this host, or the error of reading it.
    pub(super) data_level: Result<String, String>,
    /// Whether its processors have instructions for AES.
    pub(super) has_aes: bool,
    pub(super) storage: Result<Storage, String>,
}

/// Limits for TCP connections; see [`TcpLimits`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Tcp {
    pub(super) receive_bytes_max: u64,
    pub(super) send_bytes_max: u64,
    pub(super) congestion: String,
}

impl Tcp {
    pub(super) fn limits(&self) -> TcpLimits {
        TcpLimits {
            receive_bytes_max: self.receive_bytes_max,
            send_bytes_max: self.send_bytes_max,
            congestion: self.congestion.clone(),
        }
    }
}

/// Storage of a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Storage {
    /// The directory, or the nearest existing one above it.
    pub(super) path: String,
    /// Kind of the file system, as `lads osts` prints it.
    pub(super) kind: String,
    pub(super) osts: u64,
    /// Stripes of new files, if the file system has them.
    pub(super) stripes: Option<String>,
    pub(super) free_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) free_files: u64,
    pub(super) is_read_only: bool,
    pub(super) is_writable: bool,
}

impl Facts {
    /// Collects the facts of this host, except those of the connection.
    pub(super) fn collect(path: &Path) -> Self {
        let uname = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let limits = TcpLimits::of_this_host();
        let limit = |resource| getrlimit(resource).maximum;
        let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let word = |index| connection.split(' ').nth(index).unwrap_or_default().to_owned();
        Self {
            host: text(uname.nodename()),
            system: format!(
                "{} {} {}",
                text(uname.sysname()),
                text(uname.release()),
                text(uname.machine())
            ),
            reached_at: word(2),
            client: word(0),
            port: Err("not opened".to_owned()),
            tcp: Tcp {
                receive_bytes_max: limits.receive_bytes_max,
                send_bytes_max: limits.send_bytes_max,
                congestion: limits.congestion,
            },
            open_files_max: limit(Resource::Nofile),
            // The soft limit: LADS does not raise it.
            file_bytes_max: getrlimit(Resource::Fsize).current,
            threads_max: getrlimit(Resource::Nproc).current,
            link_megabits: of_links("speed").into_iter().max(),
            link_mtu: of_links("mtu").into_iter().max().and_then(|it| u32::try_from(it).ok()),
            data_level: crate::data_level().map(|level| level.name().to_owned()),
            has_aes: has_aes(),
            storage: Storage::of(path),
        }
    }
}

/// Returns a number of each network interface that is up, except loopback.
fn of_links(name: &str) -> Vec<u64> {
    let Ok(links) = std::fs::read_dir("/sys/class/net") else { return Vec::new() };
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let read = |name: &str| std::fs::read_to_string(path.join(name)).ok();
        let is_up = read("operstate").is_some_and(|state| state.trim() == "up");
        // An unknown speed is -1.
        read(name)?.trim().parse::<u64>().ok().filter(|&it| is_up && it > 0)
    };
    links.filter_map(number).collect()
}

impl Storage {
    fn of(path: &Path) -> Result<Self, String> {
        let existing = path.ancestors().find(|it| it.exists()).unwrap_or_else(|| Path::new("."));
        let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
        let subject = Subject::open(existing, "auto").map_err(|error| format!("{error:#}"))?;
        let space =
            statvfs(existing).map_err(|errno| format!("{}: {errno}", existing.display()))?;
        let template = subject.lov().filter(|_| subject.is_directory());
        Ok(Self {
            path: existing.canonicalize().unwrap_or_else(|_| existing.into()).display().to_string(),
            kind: subject.layouts.kind().to_owned(),
            osts: subject.layouts.osts().len() as u64,
            stripes: template.as_ref().map(layouts::template),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
            // File systems without a limit report zero for both.
            free_files: if space.f_files == 0 { u64::MAX } else { space.f_favail },
            is_read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
            is_writable: access(existing, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        })
    }

    /// Describes the file system in one line.
    pub(super) fn described(&self) -> String {
        let osts = sizes::counted(self.osts, "OST");
        let stripes = self.stripes.as_ref().map(|it| format!(", new files: {it}"));
        format!(
            "{}: {}, {osts}{}, {} of {} free",
            self.path,
            self.kind,
            stripes.unwrap_or_default(),
            sizes::bytes(self.free_bytes),
            sizes::bytes(self.total_bytes)
        )
    }
}
