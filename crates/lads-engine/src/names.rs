//! The addresses of host names, and the names of users and groups.
//!
//! A static program of glibc does not call its resolver: glibc loads libraries of the host for it
//! (`nsswitch.conf`), and aborts the program if they belong to another version of glibc. Such a
//! program starts `getent`, which belongs to the host.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

/// Returns all addresses of a host, the preferred ones first. `name` may be an address.
///
/// # Errors
/// If the name has no address, with the reason of the resolver.
pub(crate) fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match name.parse::<IpAddr>() {
        Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
        Err(_) => look_up(name, port),
    }
}

/// Returns the preferred address of `host:port`; the host may be a name, an address, or an address
/// in brackets.
///
/// # Errors
/// If there is no port, or the name has no address.
pub fn address_of(text: &str) -> io::Result<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "write it like host:7000");
    let (name, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    if name.is_empty() || name.contains(':') {
        return Err(wrong());
    }
    let none = || io::Error::new(io::ErrorKind::NotFound, "this host has no address");
    resolve(name, port)?.into_iter().next().ok_or_else(none)
}

/// Names of users or groups, by number.
pub type Names = BTreeMap<u32, String>;

/// Returns the names of users; numbers without a name are missing.
#[must_use]
pub fn names_of_users(ids: &BTreeSet<u32>) -> Names {
    names_of("passwd", ids)
}

/// Returns the names of groups; numbers without a name are missing.
#[must_use]
pub fn names_of_groups(ids: &BTreeSet<u32>) -> Names {
    names_of("group", ids)
}

/// Runs `getent`, which looks keys up in a database of the host, and returns its output. Keys that
/// are not found are missing in the output.
pub(crate) fn getent(
    database: &str,
    keys: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> io::Result<Vec<u8>> {
    let mut command = Command::new("getent");
    command.args([database, "--"]).args(keys).stdin(Stdio::null()).stderr(Stdio::null());
    command.output().map(|output| output.stdout)
}

/// Returns the names in a database; numbers without a name are missing.
fn names_of(database: &str, ids: &BTreeSet<u32>) -> Names {
    if ids.is_empty() {
        return Names::new();
    }
    let printed = getent(database, ids.iter().map(u32::to_string)).unwrap_or_default();
    let text = String::from_utf8_lossy(&printed);
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        Some((id, name.to_owned()))
    };
    text.lines().filter_map(entry).collect()
}

/// Splits what a user gave as `address`, `address:port` or `[address]:port` into address and
/// port. An address with colons needs brackets.
pub(crate) fn part_port(address: &str, port_otherwise: u16) -> (&str, u16) {
    let bracketed = address.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (name, port) = match (bracketed, address.rsplit_once(':')) {
        (Some((name, rest)), _) => (name, rest.strip_prefix(':')),
        (None, Some((name, port))) if !name.contains(':') => (name, Some(port)),
        _ => (address, None),
    };
    (name, port.and_then(|port| port.parse().ok()).unwrap_or(port_otherwise))
}

#[cfg(not(target_feature = "crt-static"))]
fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    use std::net::ToSocketAddrs as _;
    Ok((name, port).to_socket_addrs()?.collect())
}

#[cfg(target_feature = "crt-static")]
fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let printed = getent("ahosts", [name]).map_err(|error| {
        let text = format!("cannot start getent, which looks up names: {error}; use an address");
        io::Error::new(error.kind(), text)
    })?;
    let addresses = of_getent(&String::from_utf8_lossy(&printed), port);
    match addresses.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "getent finds no address for it")),
        false => Ok(addresses),
    }
}

/// Returns the addresses that `getent ahosts` prints, one for each type of socket and address.
#[cfg(any(test, target_feature = "crt-static"))]
fn of_getent(printed: &str, port: u16) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next()?;
        words.next().filter(|kind| *kind == "STREAM")?;
        // An address of one link has the name or number of an interface behind a percent sign.
        let bracketed = format!("[{address}]:{port}").parse().ok();
        bracketed.or_else(|| Some(SocketAddr::new(address.parse().ok()?, port)))
    };
    printed.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_no_resolver() {
        let shown = |name| resolve(name, 7).unwrap()[0].to_string();
        assert_eq!(shown("192.0.2.1"), "192.0.2.1:7");
        assert_eq!(shown("2001:db8::1"), "[2001:db8::1]:7");
    }

    #[test]
    fn each_address_that_getent_prints_counts_once_and_in_order() {
        let printed = "2001:db8::1     STREAM dtn2.example\n2001:db8::1     DGRAM\n\
                       fe80::1%3       STREAM\n192.0.2.1       STREAM\n192.0.2.1       RAW\n\n";
        let shown: Vec<_> = of_getent(printed, 7).iter().map(SocketAddr::to_string).collect();
        assert_eq!(shown, ["[2001:db8::1]:7", "[fe80::1%3]:7", "192.0.2.1:7"]);
        assert!(of_getent("", 7).is_empty());
    }

    #[test]
    fn a_name_without_an_address_is_an_error() {
        assert!(!resolve("localhost", 7).unwrap().is_empty());
        resolve("no-such-host.invalid", 7).unwrap_err();
    }
}
