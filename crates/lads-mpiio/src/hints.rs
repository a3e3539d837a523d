//! What a user asks for in the hints of an `MPI_Info`, and what is in force.

use lads_core::remote::hints::pairs;
use lads_core::sizes;
use lads_engine::RemoteShell;
use lads_engine::remote::{
    ClientOptions, Prefetch, ReadCacheOptions, StageOptions, StageSettings, Told,
};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The environment variable for [`Hints::token_file`].
const TOKEN_VARIABLE: &str = "LADS_RFS_TOKEN_FILE";
/// The one for [`Hints::ssh`].
const SSH_VARIABLE: &str = "LADS_RSH";
/// The value of `rfs_remote_lads` with which LADS is looked for on the other host, and is sent
/// there if it is missing.
const LOOKED_FOR: &str = "auto";
/// The one for [`Hints::remote_lads`].
const REMOTE_LADS_VARIABLE: &str = "LADS_REMOTE_LADS";

/// The environment variable with hints for programs that give none: `key=value;key=value`. Hints of
/// the program go before.
const HINTS_VARIABLE: &str = "LADS_RFS_HINTS";

/// The default of [`Hints::cache_bytes`]: 64 times the memory. Half is half as many outputs of a
/// program that computes too briefly; with double, 64 processes of a host take 512 GiB of a disk
/// that others use, too.
const CACHE_BYTES: u64 = 4 << 30;

/// The default of [`Hints::consistency`].
const CONSISTENCY: Consistency = Consistency::Local;

/// When the program began, as far as is known.
static BEGUN: OnceLock<Instant> = OnceLock::new();

/// The program begins.
pub(crate) fn begin() {
    BEGUN.get_or_init(Instant::now);
}

/// The hints of a file.
#[derive(Clone, Debug)]
pub(crate) struct Hints {
    /// `rfs_buffer_size`: memory of a process for what is not at the server yet.
    pub(crate) buffer_bytes: u64,
    /// `rfs_buffering`: whether a write returns before it is at the server.
    pub(crate) buffers: bool,
    /// `rfs_consistency`: when another process sees data that was written.
    pub(crate) consistency: Consistency,
    /// `rfs_defer_open`: whether an open returns before the file is opened.
    pub(crate) defers_open: bool,
    /// `rfs_defer_close`: whether a close returns before all is durable.
    pub(crate) defers_close: bool,
    /// `rfs_timeout`: a server that is silent for as many seconds is lost.
    pub(crate) timeout_seconds: u64,
    /// `rfs_token_file`: the file with the secret of the server.
    pub(crate) token_file: Option<PathBuf>,
    /// `rfs_ssh`: the command that runs a command on another host, for servers that are started.
    pub(crate) ssh: String,
    /// `rfs_remote_lads`: the path of LADS there, or [`LOOKED_FOR`].
    pub(crate) remote_lads: String,
    /// `rfs_cache_dir`: where to put what does not fit into memory.
    pub(crate) cache_directory: Option<PathBuf>,
    /// `rfs_cache_size`: the most bytes of a process there.
    pub(crate) cache_bytes: u64,
    /// `rfs_cache_sync`: whether what is put there is durable at once.
    pub(crate) syncs_cache: bool,
    /// `rfs_staging`: when something is put there.
    pub(crate) staging: Staging,
    /// `rfs_prefetch`, and `rfs_read_cache`: what is read ahead, and whether anything is kept.
    pub(crate) prefetch: Prefetch,
    pub(crate) keeps_reads: bool,
    /// `rfs_read_buffer_size`: memory of a process for what was read.
    pub(crate) read_bytes: u64,
    /// `rfs_output_interval`, `rfs_output_size`: what the user tells about the program's outputs.
    pub(crate) told: Told,
}

/// Event after which data that a process has written is visible to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// Sync, barrier, sync, as MPI requires.
    Mpi,
    /// Any message of MPI between them, as on a local file system.
    Local,
}

impl Consistency {
    fn of(name: &str) -> Option<Self> {
        [Self::Mpi, Self::Local].into_iter().find(|it| it.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mpi => "mpi",
            Self::Local => "local",
        }
    }
}

/// When buffers go to the local disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staging {
    /// When a write finds none free, and while the program computes.
    Both,
    /// When a write finds none free.
    Foreground,
    /// While the program computes.
    Background,
    /// When the connection is lost.
    None,
}

impl Staging {
    const NAMES: [(&'static str, Self); 4] = [
        ("both", Self::Both),
        ("foreground", Self::Foreground),
        ("background", Self::Background),
        ("none", Self::None),
    ];

    fn of(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(it, _)| *it == name).map(|(_, staging)| *staging)
    }

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }
}

impl Default for Hints {
    /// Those of the environment.
    fn default() -> Self {
        let mut hints = Self::built_in();
        let told = std::env::var(HINTS_VARIABLE).unwrap_or_default();
        pairs(&told).for_each(|(key, value)| hints.set(key, value));
        hints
    }
}

impl Hints {
    fn built_in() -> Self {
        let ClientOptions { buffers_bytes, read_bytes, timeout, .. } = ClientOptions::default();
        Self {
            buffer_bytes: buffers_bytes,
            buffers: true,
            consistency: CONSISTENCY,
            defers_open: false,
            defers_close: false,
            timeout_seconds: timeout.as_secs(),
            token_file: variable(TOKEN_VARIABLE).map(PathBuf::from),
            ssh: text_of(SSH_VARIABLE).unwrap_or_else(|| "ssh".to_owned()),
            remote_lads: text_of(REMOTE_LADS_VARIABLE).unwrap_or_else(|| LOOKED_FOR.to_owned()),
            cache_directory: None,
            cache_bytes: CACHE_BYTES,
            syncs_cache: false,
            staging: Staging::Both,
            prefetch: Prefetch::Auto,
            keeps_reads: true,
            read_bytes,
            told: Told::default(),
        }
    }

    /// Takes a hint; unknown keys and values without a meaning are ignored (MPI 4.0, section
    /// 14.2.8).
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        match key {
            "rfs_buffer_size" => take(&mut self.buffer_bytes, sizes::parse_bytes(value).ok()),
            "rfs_buffering" => take(&mut self.buffers, switch(value)),
            "rfs_consistency" => take(&mut self.consistency, Consistency::of(value)),
            "rfs_defer_open" => take(&mut self.defers_open, switch(value)),
            "rfs_defer_close" => take(&mut self.defers_close, switch(value)),
            "rfs_timeout" => {
                let seconds = value.parse().ok().filter(|&seconds| seconds > 0);
                take(&mut self.timeout_seconds, seconds);
            }
            "rfs_token_file" => self.token_file = Some(PathBuf::from(value)),
            "rfs_ssh" => {
                let is_command = RemoteShell::words(value).is_ok();
                take(&mut self.ssh, is_command.then(|| value.to_owned()));
            }
            "rfs_remote_lads" => {
                take(&mut self.remote_lads, (!value.is_empty()).then(|| value.to_owned()));
            }
            "rfs_cache_dir" => {
                // The program may change its working directory.
                self.cache_directory = std::path::absolute(value).ok();
            }
            "rfs_cache_size" => take(&mut self.cache_bytes, sizes::parse_bytes(value).ok()),
            "rfs_cache_sync" => take(&mut self.syncs_cache, switch(value)),
            "rfs_staging" => take(&mut self.staging, Staging::of(value)),
            "rfs_prefetch" => take(&mut self.prefetch, prefetch(value)),
            "rfs_read_cache" => take(&mut self.keeps_reads, switch(value)),
            "rfs_read_buffer_size" => take(&mut self.read_bytes, sizes::parse_bytes(value).ok()),
            "rfs_output_interval" => {
                let interval = value.parse().ok().map(Duration::try_from_secs_f64);
                self.told.interval = interval.and_then(Result::ok).or(self.told.interval);
            }
            "rfs_output_size" => {
                let bytes = sizes::parse_bytes(value).ok();
                self.told.output_bytes = bytes.or(self.told.output_bytes);
            }
            _ => {}
        }
    }

    /// How servers are started.
    ///
    /// # Errors
    /// If the environment gives no command.
    pub(crate) fn shell(&self) -> Result<RemoteShell, String> {
        let command =
            RemoteShell::words(&self.ssh).map_err(|error| format!("{SSH_VARIABLE} {error}"))?;
        let lads = (self.remote_lads != LOOKED_FOR).then(|| self.remote_lads.clone());
        Ok(RemoteShell { command, lads, ..RemoteShell::default() })
    }

    /// The hints in force, as text.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("rfs_buffer_size", self.buffer_bytes.to_string()),
            ("rfs_buffering", self.buffers.to_string()),
            ("rfs_consistency", self.consistency.name().to_owned()),
            ("rfs_defer_open", self.defers_open.to_string()),
            ("rfs_defer_close", self.defers_close.to_string()),
            ("rfs_timeout", self.timeout_seconds.to_string()),
            ("rfs_ssh", self.ssh.clone()),
            ("rfs_remote_lads", self.remote_lads.clone()),
            ("rfs_prefetch", prefetch_name(self.prefetch).to_owned()),
            ("rfs_read_cache", self.keeps_reads.to_string()),
            ("rfs_read_buffer_size", self.read_bytes.to_string()),
        ];
        if let Some(path) = &self.token_file {
            all.push(("rfs_token_file", path.display().to_string()));
        }
        if let Some(path) = &self.cache_directory {
            all.push(("rfs_cache_dir", path.display().to_string()));
            all.push(("rfs_cache_size", self.cache_bytes.to_string()));
            all.push(("rfs_cache_sync", self.syncs_cache.to_string()));
            all.push(("rfs_staging", self.staging.name().to_owned()));
        }
        if let Some(interval) = self.told.interval {
            all.push(("rfs_output_interval", interval.as_secs_f64().to_string()));
        }
        if let Some(bytes) = self.told.output_bytes {
            all.push(("rfs_output_size", bytes.to_string()));
        }
        all
    }

    /// How a connection is used.
    pub(crate) fn options(&self) -> ClientOptions {
        let stage = self.cache_directory.clone().map(|directory| {
            let settings = StageSettings {
                bytes_max: self.cache_bytes,
                in_foreground: matches!(self.staging, Staging::Both | Staging::Foreground),
                in_background: matches!(self.staging, Staging::Both | Staging::Background),
                is_synced: self.syncs_cache,
                told: self.told,
            };
            StageOptions { directory, settings }
        });
        let read_cache = self.cache_directory.clone();
        let read_cache =
            read_cache.map(|directory| ReadCacheOptions { directory, bytes_max: self.cache_bytes });
        ClientOptions {
            buffers_bytes: self.buffer_bytes,
            read_bytes: self.read_bytes,
            read_cache,
            timeout: Duration::from_secs(self.timeout_seconds),
            defers_connecting: self.defers_open,
            stage,
            begun: *BEGUN.get_or_init(Instant::now),
            ..ClientOptions::default()
        }
    }
}

/// An environment variable that is not empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|it| !it.is_empty())
}

fn text_of(name: &str) -> Option<String> {
    variable(name).and_then(|it| it.into_string().ok())
}

fn take<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

const PREFETCH_NAMES: [(&str, Prefetch); 3] =
    [("auto", Prefetch::Auto), ("true", Prefetch::Always), ("false", Prefetch::Never)];

fn prefetch(value: &str) -> Option<Prefetch> {
    let known = PREFETCH_NAMES.iter().find(|(name, _)| *name == value).map(|(_, it)| *it);
    let of_switch = |is_on| if is_on { Prefetch::Always } else { Prefetch::Never };
    known.or_else(|| switch(value).map(of_switch))
}

fn prefetch_name(prefetch: Prefetch) -> &'static str {
    PREFETCH_NAMES.iter().find(|(_, it)| *it == prefetch).map_or("", |(name, _)| name)
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "true" | "enable" | "1" => Some(true),
        "false" | "disable" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_taken_and_told() {
        let mut hints = Hints { token_file: None, ..Hints::built_in() };
        for (key, value) in [
            ("rfs_buffer_size", "8M"),
            ("rfs_buffering", "disable"),
            ("rfs_consistency", "mpi"),
            ("rfs_defer_close", "true"),
            ("rfs_timeout", "5"),
            ("rfs_prefetch", "enable"),
            ("rfs_read_cache", "false"),
            ("rfs_read_buffer_size", "4M"),
            ("rfs_token_file", "/t"),
            ("rfs_ssh", "ssh -p 7"),
            ("rfs_remote_lads", "/opt/lads"),
            ("rfs_cache_dir", "/flash"),
            ("rfs_cache_size", "1G"),
            ("rfs_cache_sync", "true"),
            ("rfs_staging", "background"),
            ("rfs_output_interval", "2.5"),
            ("rfs_output_size", "1M"),
        ] {
            hints.set(key, value);
        }
        let told = hints.all();
        let expected = [
            "8388608",
            "false",
            "mpi",
            "false",
            "true",
            "5",
            "ssh -p 7",
            "/opt/lads",
            "true",
            "false",
            "4194304",
            "/t",
            "/flash",
            "1073741824",
            "true",
            "background",
            "2.5",
            "1048576",
        ];
        assert_eq!(told.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_directory_on_the_local_disk_does_not_depend_on_the_working_directory() {
        let mut hints = Hints::built_in();
        hints.set("rfs_cache_dir", "flash");
        let directory = std::env::current_dir().unwrap().join("flash");
        assert_eq!(hints.cache_directory, Some(directory));
    }

    #[test]
    fn what_has_no_meaning_is_ignored() {
        let mut hints = Hints::default();
        let before = hints.all();
        let nonsense = [
            ("rfs_buffer_size", "x"),
            ("rfs_buffering", "2"),
            ("rfs_consistency", "posix"),
            ("rfs_timeout", "0"),
            ("rfs_prefetch", "yes"),
            ("rfs_read_buffer_size", "-"),
            ("rfs_cache_dir", ""),
            ("rfs_staging", "maybe"),
            ("rfs_output_interval", "-1"),
            ("rfs_output_interval", "1e99"),
            ("rfs_output_size", "many"),
            ("rfs_ssh", "'ssh"),
            ("rfs_remote_lads", ""),
            ("cb", "1"),
        ];
        nonsense.iter().for_each(|(key, value)| hints.set(key, value));
        assert_eq!(hints.all(), before);
    }
}
