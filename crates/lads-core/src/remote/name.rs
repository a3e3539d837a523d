//! Names of remote files: `rfs:host:port:path` and `rfs://host:port/path`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Where a remote file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Host and port, as `host:port`.
    pub at: String,
    /// The path below the root of the server.
    pub path: Vec<u8>,
}

/// Whether a name is meant to be one of a remote file.
pub fn is_remote(name: &[u8]) -> bool {
    name.starts_with(b"rfs:")
}

/// Takes a name apart.
///
/// # Errors
/// If it does not say host, port and path.
pub fn parse(name: &[u8]) -> Result<Name, String> {
    parts(name).ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        format!("`{name}` is no name of a remote file: rfs:host:port:path, or rfs://host:port/path")
    })
}

/// A number for the path of a remote file: names with other paths have another one, but by chance.
/// Servers are left out: several may show the same directory. 0 if it is not remote.
#[must_use]
pub fn digest(name: &[u8]) -> u64 {
    if !is_remote(name) {
        return 0;
    }
    let path = parts(name).map_or_else(|| name.to_vec(), |name| name.path);
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    let mut hasher = DefaultHasher::new();
    path[slashes..].hash(&mut hasher);
    hasher.finish().max(1)
}

fn parts(name: &[u8]) -> Option<Name> {
    let rest = name.strip_prefix(b"rfs:")?;
    let (rest, before_path) = match rest.strip_prefix(b"//") {
        Some(rest) => (rest, b'/'),
        None => (rest, b':'),
    };
    let (host, rest) = match rest.first()? {
        // An IPv6 address has colons of its own.
        b'[' => rest.split_at(rest.iter().position(|&byte| byte == b']')? + 1),
        _ => rest.split_at(rest.iter().position(|&byte| byte == b':')?),
    };
    let rest = rest.strip_prefix(b":")?;
    let (port, path) = rest.split_at(rest.iter().position(|&byte| byte == before_path)?);
    let path = &path[1..];
    let (host, port) = (std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?);
    let port: u16 = port.parse().ok()?;
    let is_sound = !host.is_empty() && port > 0 && !path.is_empty();
    is_sound.then(|| Name { at: format!("{host}:{port}"), path: path.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        for (name, at, path) in [
            ("rfs:host:7000:a/b", "host:7000", "a/b"),
            ("rfs:host:7000:/a:b", "host:7000", "/a:b"),
            ("rfs://host:7000/a/b", "host:7000", "a/b"),
            ("rfs:[::1]:7000:a", "[::1]:7000", "a"),
        ] {
            let name = parse(name.as_bytes()).unwrap();
            assert_eq!((name.at.as_str(), name.path.as_slice()), (at, path.as_bytes()));
        }
    }

    #[test]
    fn one_file_has_one_digest() {
        let same = ["rfs:host:7000:a/b", "rfs://other:7001/a/b", "rfs:host:7000:/a/b"];
        assert_eq!(same.map(|name| digest(name.as_bytes())), [digest(b"rfs:host:7000:a/b"); 3]);
        for other in ["rfs:host:7000:a/c", "rfs:no-name", "a/b"] {
            assert_ne!(digest(other.as_bytes()), digest(b"rfs:host:7000:a/b"), "{other}");
        }
        assert_eq!(digest(b"a/b"), 0);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in
            ["rfs:", "rfs:h", "rfs:h:p:x", "rfs:h:0:x", "rfs:h:1:", "rfs::1:x", "rfs:[::1:1:x"]
        {
            assert!(is_remote(name.as_bytes()));
            parse(name.as_bytes()).unwrap_err();
        }
        assert!(!is_remote(b"/tmp/rfs:h:1:x") && !is_remote(b"ufs:x"));
    }
}
