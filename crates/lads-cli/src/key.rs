//! `lads key`: this user's key, and the keys of the hosts that are trusted. `lads dial`: the
//! connection to one of them.

use crate::args::{DialArgs, KeyArgs};
use crate::config::text_of;
use crate::has_open_pipes;
use anyhow::{Context, Result, anyhow};
use lads_engine::{DaemonPlace, ExitCode, KeyPair, PublicKey, dial};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The hosts that all users of this host trust.
const SYSTEM_HOSTS: &str = "/etc/lads/known_hosts";

/// Prints a public key, or trusts one.
pub(crate) fn run(args: &KeyArgs) -> Result<()> {
    let say = |line: &str| writeln!(io::stdout(), "{line}").context("cannot write to stdout");
    if let Some((place, key)) = args.trusted().map_err(|text| anyhow!(text))? {
        let path = own_path("known_hosts")?;
        trust(&path, &place, key).with_context(|| format!("cannot write {}", path.display()))?;
        return say(&format!("{place} is trusted with the key {key} ({})", path.display()));
    }
    let path = args.file.clone().map_or_else(|| own_path("key"), Ok)?;
    say(&key_at(&path)?.public().to_string())
}

/// Connects to a daemon, and copies between the connection and stdin and stdout.
pub(crate) fn connect(args: &DialArgs) -> std::process::ExitCode {
    let connected = has_open_pipes().and_then(|()| {
        let key = key_at(&own_path("key")?)?;
        Ok((key, known(&args.place)?))
    });
    let pipes = io::stdin().as_fd().try_clone_to_owned().and_then(|input| {
        io::stdout().as_fd().try_clone_to_owned().map(|output| (input.into(), output.into()))
    });
    let outcome = match (connected, pipes) {
        (Ok((key, known)), Ok(pipes)) => dial(&args.place, &key, known, &args.command, pipes),
        (Err(error), _) => Err((ExitCode::Usage, format!("{error:#}"))),
        (_, Err(error)) => Err((ExitCode::Other, error.to_string())),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err((code, text)) => crate::exit(Err(anyhow!(text)), code),
    }
}

/// The key in a file, which is made if there is none.
fn key_at(path: &Path) -> Result<KeyPair> {
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let shown = path.display();
    KeyPair::make(path).with_context(|| format!("cannot create the key {shown}"))?;
    KeyPair::read(path).with_context(|| format!("cannot use the key {shown}"))
}

/// A file of this user's configuration.
fn own_path(name: &str) -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let directory = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let directory = directory.context("neither XDG_CONFIG_HOME nor HOME is set")?;
    Ok(directory.join("lads").join(name))
}

/// The key of a daemon that this user, or this host, trusts.
fn known(place: &DaemonPlace) -> Result<Option<PublicKey>> {
    for path in [own_path("known_hosts")?, PathBuf::from(SYSTEM_HOSTS)] {
        let shown = path.display();
        let text = text_of(&path).with_context(|| format!("cannot use {shown}"))?;
        let found = find(&text.unwrap_or_default(), place);
        if let Some(key) = found.with_context(|| format!("{shown}"))? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// The key of a daemon in a list: lines with a host and a key.
fn find(text: &str, place: &DaemonPlace) -> Result<Option<PublicKey>> {
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let mut words = line.split_whitespace();
        let Some(host) = words.next() else { continue };
        if DaemonPlace::parse(host).as_ref() == Some(place) {
            let key = words.next().unwrap_or_default();
            return key.parse().map(Some).map_err(|text: String| anyhow!(text));
        }
    }
    Ok(None)
}

/// Adds a host to a list, in the place of an older line.
fn trust(path: &Path, place: &DaemonPlace, key: PublicKey) -> Result<()> {
    let old = text_of(path)?.unwrap_or_default();
    let is_other = |line: &&str| {
        let host = line.split_whitespace().next().unwrap_or_default();
        DaemonPlace::parse(host).as_ref() != Some(place)
    };
    let mut text: String = old.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
    text += &format!("{place} {key}\n");
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    // The rename replaces the list at once, so that no reader sees a part of it.
    let new = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(&new, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_trusted_with_its_last_key() {
        let place = tempfile::tempdir().unwrap();
        let list = place.path().join("deep/known_hosts");
        let host = |text| DaemonPlace::parse(text).unwrap();
        let key = |digit: char| -> PublicKey {
            format!("ed25519:{}", digit.to_string().repeat(64)).parse().unwrap()
        };
        trust(&list, &host("lads://a"), key('1')).unwrap();
        std::fs::write(&list, format!("# mine\n{}", std::fs::read_to_string(&list).unwrap()))
            .unwrap();
        trust(&list, &host("lads://a:7"), key('2')).unwrap();
        trust(&list, &host("lads://a:5237"), key('3')).unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        assert!(text.starts_with("# mine\n") && text.lines().count() == 3, "{text}");
        let found = |text: &str, at| find(text, &host(at)).unwrap();
        assert_eq!(found(&text, "lads://a"), Some(key('3')));
        assert_eq!(found(&text, "lads://a:7"), Some(key('2')));
        assert_eq!(found(&text, "lads://b"), None);
    }

    #[test]
    fn a_damaged_line_is_no_trust() {
        let host = DaemonPlace::parse("lads://a").unwrap();
        for line in ["lads://a", "lads://a ed25519:12", "lads://a ssh-ed25519 AAAA"] {
            assert!(find(line, &host).is_err(), "{line}");
        }
    }
}
