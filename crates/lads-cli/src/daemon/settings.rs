//! The configuration of `lads serve`.

use crate::args::{access_of, level_of};
use crate::config::text_of;
use anyhow::{Context, Result, anyhow, bail, ensure};
use lads_core::offer::Access;
use lads_core::protection::DataLevel;
use lads_core::sizes::{parse_bytes, parse_span_with_unit};
use lads_engine::{DaemonConfig, PORT, Peer};
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The number of sessions by default. Each has buffers of 256 MiB at most: 4 GiB. Half leaves a
/// host with many users too few; the double is more memory than small hosts have.
const SESSIONS_MAX: u32 = 16;

/// What may be at the top of the file, and in a table of a peer.
const KEYS: [&str; 5] = ["listen", "key_file", "ports", "sessions_max", "peer"];
const PEER_KEYS: [&str; 9] =
    ["name", "key", "root", "access", "user", "data", "sessions_max", "memory", "time"];

/// Reads the configuration, which other users may not write to.
///
/// # Errors
/// If the file cannot be read or contains any mistake; then every session is refused.
pub(super) fn read(path: &Path) -> Result<DaemonConfig> {
    let shown = path.display();
    let text = text_of(path).with_context(|| format!("cannot use {shown}"))?;
    let text = text.ok_or_else(|| anyhow!("there is no file {shown}"))?;
    parse(&text).with_context(|| format!("{shown}"))
}

/// Reads the text of a configuration.
///
/// # Errors
/// If it is wrong in any way.
pub(crate) fn parse(text: &str) -> Result<DaemonConfig> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| crate::config::line_at(text, &span));
        anyhow!("line {line}: {}", error.message())
    })?;
    let table = Table { table: table.get_ref(), place: String::new() };
    table.check_keys(&KEYS)?;
    let peers = match table.table.get("peer").map(toml::Spanned::get_ref) {
        Some(DeValue::Array(peers)) => peers
            .iter()
            .enumerate()
            .map(|(index, peer)| match peer.get_ref() {
                DeValue::Table(peer) => {
                    peer_of(&Table { table: peer, place: format!("[[peer]] {}: ", index + 1) })
                }
                _ => bail!("write each peer as [[peer]]"),
            })
            .collect::<Result<Vec<Peer>>>()?,
        _ => bail!("there is no [[peer]]: nobody could connect"),
    };
    let (mut names, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for peer in &peers {
        ensure!(names.insert(&peer.name), "two peers have the name {:?}", peer.name);
        ensure!(keys.insert(peer.key), "{} has the key of another peer", peer.name);
    }
    let listen = table.texts("listen")?.unwrap_or_else(|| vec![format!("[::]:{PORT}")]);
    ensure!(!listen.is_empty(), "`listen` names no address");
    let ports = table.text("ports")?.map(|it| crate::args::parse_ports(&it)).transpose();
    Ok(DaemonConfig {
        listen,
        key_file: table.path("key_file")?.context("`key_file` is missing: a path")?,
        ports: ports.map_err(|text| anyhow!("`ports`: {text}"))?,
        sessions_max: table.number("sessions_max")?.unwrap_or(SESSIONS_MAX),
        peers,
    })
}

fn peer_of(table: &Table<'_>) -> Result<Peer> {
    table.check_keys(&PEER_KEYS)?;
    let missing = |what: &str| anyhow!("{}`{what}` is missing", table.place);
    let text = |key: &str| table.text(key);
    let name = text("name")?.ok_or_else(|| missing("name"))?;
    let is_name = !name.is_empty() && !name.chars().any(char::is_control);
    ensure!(is_name, "{}the name has no letters, or control characters", table.place);
    let named = |error: String| anyhow!("peer {name:?}: {error}");
    let key = text("key")?.ok_or_else(|| missing("key"))?.parse().map_err(named)?;
    let root = table.path("root")?.ok_or_else(|| missing("root"))?;
    let access: Access = access_of(&text("access")?.ok_or_else(|| missing("access"))?)
        .map_err(|error| anyhow!("peer {name:?}: {error}"))?;
    let user = text("user")?;
    ensure!(
        user.is_some() || !geteuid().is_root(),
        "peer {name:?} has no `user`: sessions do not run as root"
    );
    ensure!(user.as_deref() != Some("root"), "peer {name:?}: sessions do not run as root");
    let level = text("data")?.map(|it| level_of(&it)).transpose();
    let memory = text("memory")?.map(|it| parse_bytes(&it)).transpose();
    let time = text("time")?.map(|it| parse_span_with_unit(&it)).transpose();
    let wrong = |key: &str, error: String| anyhow!("peer {name:?}: `{key}`: {error}");
    Ok(Peer {
        key,
        root,
        access,
        user,
        level: level.map_err(|it| wrong("data", it))?.unwrap_or(DataLevel::Encrypted),
        sessions_max: table.number("sessions_max")?,
        memory_bytes: memory.map_err(|it| wrong("memory", it))?,
        time: time.map_err(|it| wrong("time", it))?,
        name,
    })
}

/// A table of the file.
struct Table<'a> {
    table: &'a DeTable<'a>,
    /// Where it is, for messages.
    place: String,
}

impl Table<'_> {
    fn check_keys(&self, known: &[&str]) -> Result<()> {
        let unknown = self.table.keys().find(|key| !known.contains(&key.get_ref().as_ref()));
        match unknown {
            Some(key) => bail!("{}`{}` is unknown", self.place, key.get_ref()),
            None => Ok(()),
        }
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        match self.table.get(key).map(toml::Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text.to_string())),
            Some(_) => bail!("{}`{key}` must be a text in quotes", self.place),
        }
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(DeValue::Array(values)) = self.table.get(key).map(toml::Spanned::get_ref) else {
            return Ok(self.text(key)?.map(|text| vec![text]));
        };
        let text = |value: &toml::Spanned<DeValue<'_>>| match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => bail!("{}`{key}` must contain texts in quotes", self.place),
        };
        values.iter().map(text).collect::<Result<_>>().map(Some)
    }

    /// An absolute path.
    fn path(&self, key: &str) -> Result<Option<PathBuf>> {
        let path = self.text(key)?.map(PathBuf::from);
        let is_absolute = path.as_ref().is_none_or(|path| path.is_absolute());
        ensure!(is_absolute, "{}`{key}` must be an absolute path", self.place);
        Ok(path)
    }

    fn number(&self, key: &str) -> Result<Option<u32>> {
        let number = match self.table.get(key).map(toml::Spanned::get_ref) {
            None => return Ok(None),
            Some(DeValue::Integer(number)) if number.radix() == 10 => number.as_str().parse().ok(),
            Some(_) => None,
        };
        let number = number.filter(|number| (1..=10_000).contains(number));
        number.map(Some).with_context(|| format!("{}`{key}` must be 1 to 10000", self.place))
    }
}

#[cfg(test)]
mod tests;
