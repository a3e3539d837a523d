//! Names of remote files.
//!
//! `rfs:HOST:PORT:PATH` and `rfs://HOST:PORT/PATH` are below the root of a server that listens.
//! Without a port, `rfs:[USER@]HOST:PATH` is a path of that user there, as ssh and `lads cp` take
//! it, and `rfs://[USER@]HOST/PATH` is `/PATH`. Several hosts stand one after the other, with
//! commas between them: `rfs:HOST:PORT,HOST:PORT:PATH`. An IPv6 address is in brackets.
//!
//! `rfs:lads://HOST[:PORT]/PATH` is a file of a session of `lads serve`, below its root.
//!
//! `abt:PATH` is a path of this host, as a program opens it: its writes are buffered in the same
//! way (active buffering with threads, the RFS paper, section 3.2).
//!
//! A number behind the host and a colon is a port if a colon or a comma follows. So a path that
//! begins with such a number is written with `./` before it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Where a remote file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The servers that show it, at least one, all of one kind.
    pub servers: Vec<Server>,
    /// The path there.
    pub path: Vec<u8>,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// It listens at this `host:port`.
    At(String),
    /// It is started on this `[user@]host`.
    StartedOn(String),
    /// It is part of the process itself.
    Here,
}

/// The beginning of the name of a daemon.
const DAEMON: &[u8] = b"lads://";

/// The beginning of the name of a file of this host.
pub const THIS_HOST: &[u8] = b"abt:";

/// Returns the path of a file of this host whose writes are buffered; `None` for other names, and
/// for a name without a path.
#[must_use]
pub fn on_this_host(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(THIS_HOST).filter(|path| !path.is_empty())
}

/// Reports whether a name is meant to be one of a remote file.
pub fn is_remote(name: &[u8]) -> bool {
    name.starts_with(b"rfs:") || name.starts_with(THIS_HOST)
}

/// Takes a name apart.
///
/// # Errors
/// If it does not say host and path.
pub fn parse(name: &[u8]) -> Result<Name, String> {
    parts(name).ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        format!(
            "`{name}` is not a name of a remote file: rfs:host:port:path, rfs://host:port/path, or \
             rfs:host:path for a server through ssh; with several hosts, host:port,host:port; or \
             abt:path on this host"
        )
    })
}

/// A number for the path of a remote file: names with other paths have another one, but by chance.
/// Servers are left out: several may show the same directory. 0 if it is not remote.
#[must_use]
pub fn digest(name: &[u8]) -> u64 {
    if !is_remote(name) {
        return 0;
    }
    let (path, has_root) = parts(name).map_or_else(
        || (name.to_vec(), false),
        |name| (name.path, matches!(name.servers[0], Server::At(_))),
    );
    // Below a root it makes no difference whether a path begins with a slash.
    let slashes = path.iter().take_while(|&&byte| has_root && byte == b'/').count();
    let mut hasher = DefaultHasher::new();
    path[slashes..].hash(&mut hasher);
    hasher.finish().max(1)
}

fn parts(name: &[u8]) -> Option<Name> {
    if let Some(path) = on_this_host(name) {
        return Some(Name { servers: vec![Server::Here], path: path.to_vec() });
    }
    let rest = name.strip_prefix(b"rfs:")?;
    if let Some(rest) = rest.strip_prefix(DAEMON) {
        return of_daemon(rest);
    }
    let (servers, path) = match rest.strip_prefix(b"//") {
        Some(rest) => url(rest)?,
        None => classic(rest)?,
    };
    let is_started = |server: &Server| matches!(server, Server::StartedOn(_));
    let is_one_kind = servers.iter().all(|server| is_started(server) == is_started(&servers[0]));
    (is_one_kind && !path.is_empty()).then_some(Name { servers, path })
}

/// `HOST[:PORT]/PATH`: the path is below the directory that the daemon offers.
fn of_daemon(rest: &[u8]) -> Option<Name> {
    let (host, path) = rest.split_at(rest.iter().position(|&byte| byte == b'/')?);
    let path = &path[path.iter().position(|&byte| byte != b'/')?..];
    let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty())?;
    let host = format!("{}{host}", String::from_utf8_lossy(DAEMON));
    Some(Name { servers: vec![Server::StartedOn(host)], path: path.to_vec() })
}

/// `HOST:PORT,HOST:PORT/PATH`. Servers that are started have no root of their own.
fn url(rest: &[u8]) -> Option<(Vec<Server>, Vec<u8>)> {
    let (mut all, path) = rest.split_at(rest.iter().position(|&byte| byte == b'/')?);
    let mut servers = Vec::new();
    loop {
        let (server, rest) = server(all)?;
        let path = if matches!(server, Server::At(_)) { &path[1..] } else { path };
        servers.push(server);
        match rest.split_first() {
            None => return Some((servers, path.to_vec())),
            Some((b',', rest)) => all = rest,
            Some(_) => return None,
        }
    }
}

/// `HOST:PORT,HOST:PORT:PATH`
fn classic(mut rest: &[u8]) -> Option<(Vec<Server>, Vec<u8>)> {
    let mut servers = Vec::new();
    loop {
        let (server, after) = server(rest)?;
        servers.push(server);
        match after.split_first()? {
            (b':', path) => return Some((servers, path.to_vec())),
            (_, more) => rest = more,
        }
    }
}

/// The first server of a list, and what follows: nothing, a comma or a colon first.
fn server(from: &[u8]) -> Option<(Server, &[u8])> {
    let is_end = |&byte: &u8| byte == b':' || byte == b',';
    let user = from.iter().position(|&byte| byte == b'[').filter(|&at| {
        // An IPv6 address has colons of its own.
        at == 0 || (from[at - 1] == b'@' && !from[..at].iter().any(is_end))
    });
    let start = match user {
        Some(at) => at + from[at..].iter().position(|&byte| byte == b']')? + 1,
        None => 0,
    };
    let end = from[start..].iter().position(is_end).map_or(from.len(), |at| start + at);
    // Between a bracket and a colon there is nothing.
    let is_sound = start == 0 || start == end;
    let (host, rest) = from.split_at(end);
    let host = std::str::from_utf8(host).ok().filter(|host| {
        // ssh would take it for an option.
        is_sound && !host.is_empty() && !host.starts_with('-')
    })?;
    let number = rest.strip_prefix(b":").map(|rest| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest.split_at(digits)
    });
    match number {
        Some((digits @ [_, ..], after)) if after.first().is_none_or(is_end) => {
            let port: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
            let is_place = port > 0 && !host.contains('@');
            is_place.then(|| (Server::At(format!("{host}:{port}")), after))
        }
        _ => Some((Server::StartedOn(host.replace(['[', ']'], "")), rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at: &str) -> Server {
        Server::At(at.to_owned())
    }

    fn on(host: &str) -> Server {
        Server::StartedOn(host.to_owned())
    }

    #[test]
    fn a_file_of_a_daemon_is_below_its_root() {
        let of = |name: &str| parse(name.as_bytes()).ok().map(|it| (it.servers, it.path));
        let file = |host: &str, path: &[u8]| Some((vec![on(host)], path.to_vec()));
        assert_eq!(of("rfs:lads://dtn1/run7/out.nc"), file("lads://dtn1", b"run7/out.nc"));
        assert_eq!(of("rfs:lads://dtn1:7//a"), file("lads://dtn1:7", b"a"));
        assert_eq!(of("rfs:lads://[::1]:7/a"), file("lads://[::1]:7", b"a"));
        for wrong in ["rfs:lads://", "rfs:lads:///a", "rfs:lads://dtn1", "rfs:lads://dtn1/"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_are_taken_apart() {
        for (name, servers, path) in [
            ("rfs:host:7000:a/b", vec![at("host:7000")], "a/b"),
            ("rfs:host:7000:/a:b", vec![at("host:7000")], "/a:b"),
            ("rfs://host:7000/a/b", vec![at("host:7000")], "a/b"),
            ("rfs:[::1]:7000:a", vec![at("[::1]:7000")], "a"),
            ("rfs:host:a/b", vec![on("host")], "a/b"),
            ("rfs:host:/a", vec![on("host")], "/a"),
            ("rfs:me@host:a:b", vec![on("me@host")], "a:b"),
            ("rfs:host:p:x", vec![on("host")], "p:x"),
            ("rfs:host:7000/a:b", vec![on("host")], "7000/a:b"),
            ("rfs:host:./7000:a", vec![on("host")], "./7000:a"),
            ("rfs:[::1]:a", vec![on("::1")], "a"),
            ("rfs:me@[fe80::1]:a", vec![on("me@fe80::1")], "a"),
            ("rfs://host/a/b", vec![on("host")], "/a/b"),
            ("rfs://me@[::1]/a", vec![on("me@::1")], "/a"),
            ("rfs:h1:1,h2:2:a,b", vec![at("h1:1"), at("h2:2")], "a,b"),
            ("rfs:[::1]:1,h2:2:a", vec![at("[::1]:1"), at("h2:2")], "a"),
            ("rfs://h1:1,h2:2/a", vec![at("h1:1"), at("h2:2")], "a"),
            ("rfs:h1,h2:a", vec![on("h1"), on("h2")], "a"),
            ("rfs://h1,me@h2/a", vec![on("h1"), on("me@h2")], "/a"),
            ("rfs:h:a[1]:b", vec![on("h")], "a[1]:b"),
        ] {
            let parsed = parse(name.as_bytes()).unwrap();
            assert_eq!(
                (parsed.servers, parsed.path),
                (servers, path.as_bytes().to_vec()),
                "{name}"
            );
        }
    }

    #[test]
    fn one_file_has_one_digest() {
        let same = ["rfs:host:7000:a/b", "rfs://other:7001/a/b", "rfs:host:7000:/a/b"];
        assert_eq!(same.map(|name| digest(name.as_bytes())), [digest(b"rfs:host:7000:a/b"); 3]);
        assert_eq!(digest(b"rfs:host:/a/b"), digest(b"rfs://me@other/a/b"));
        assert_ne!(digest(b"rfs:host:/a/b"), digest(b"rfs:host:a/b"), "below the home directory");
        for other in ["rfs:host:7000:a/c", "rfs:no-name", "a/b"] {
            assert_ne!(digest(other.as_bytes()), digest(b"rfs:host:7000:a/b"), "{other}");
        }
        assert_eq!(digest(b"a/b"), 0);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in [
            "rfs:",
            "rfs:h",
            "rfs:h:",
            "rfs:h:0:x",
            "rfs:h:65536:x",
            "rfs:h:1:",
            "rfs:h:1",
            "rfs::1:x",
            "rfs::x",
            "rfs:[::1:1:x",
            "rfs:[::1]x:1:x",
            "rfs:-oProxyCommand=x:a",
            "rfs:me@h:1:x",
            "rfs:h1:1,h2:x",
            "rfs:h1,h2:2:x",
            "rfs:h:1,x",
            "rfs:h1,,h2:x",
            "rfs://h:1",
            "rfs:///x",
            "rfs://h:1/",
            "rfs://h:x/y",
        ] {
            assert!(is_remote(name.as_bytes()));
            parse(name.as_bytes()).expect_err(name);
        }
        assert!(!is_remote(b"/tmp/rfs:h:1:x") && !is_remote(b"ufs:x"));
    }
}
