//! The names of daemons: `lads://host[:port]`.

use crate::names::part_port;
use std::fmt;

/// The port of daemons, unless another one is given: "lads" on the keys of a telephone.
pub const PORT: u16 = 5237;

/// What their names begin with.
pub(super) const SCHEME: &str = "lads://";

/// A daemon, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DaemonPlace {
    /// The name or address of its host.
    pub name: String,
    /// Its port.
    pub port: u16,
}

impl DaemonPlace {
    /// Reads `lads://host[:port]`, where an address with colons has brackets. `None` if it is
    /// something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let host = text.strip_prefix(SCHEME)?.trim_end_matches('/');
        let (name, port) = part_port(host, PORT);
        let is_name = |it: char| it.is_ascii_alphanumeric() || ".-_:%".contains(it);
        let is_sound = !name.is_empty() && !name.starts_with('-') && name.chars().all(is_name);
        let place = Self { name: name.to_owned(), port };
        // A port that is none, and text behind brackets, get lost on the way.
        let is_whole = host == place.host() || host == format!("{}:{port}", place.host());
        (is_sound && is_whole && port > 0).then_some(place)
    }

    /// The host in brackets, if it needs them.
    fn host(&self) -> String {
        if self.name.contains(':') { format!("[{}]", self.name) } else { self.name.clone() }
    }
}

impl fmt::Display for DaemonPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.host())?;
        if self.port == PORT { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_a_host_and_perhaps_a_port() {
        let parsed = |text| DaemonPlace::parse(text).map(|it| (it.name, it.port));
        let place = |name: &str, port| Some((name.to_owned(), port));
        assert_eq!(parsed("lads://dtn1.example.org"), place("dtn1.example.org", PORT));
        assert_eq!(parsed("lads://dtn1/"), place("dtn1", PORT));
        assert_eq!(parsed("lads://dtn1:7"), place("dtn1", 7));
        assert_eq!(parsed("lads://[2001:db8::1]:7"), place("2001:db8::1", 7));
        assert_eq!(parsed("lads://[::1]"), place("::1", PORT));
        for wrong in [
            "dtn1",
            "lads:",
            "lads://",
            "lads:///",
            "lads://:7",
            "lads://a:b",
            "lads://a:0",
            "lads://a:70000",
            "lads://a:7:8",
            "lads://::1",
            "lads://[::1]7",
            "lads://-o",
            "lads://a b",
            "lads://u@a",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn it_is_shown_as_it_is_written() {
        for text in ["lads://dtn1", "lads://dtn1:7", "lads://[::1]", "lads://[::1]:7"] {
            assert_eq!(DaemonPlace::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(DaemonPlace::parse("lads://dtn1:5237").unwrap().to_string(), "lads://dtn1");
    }
}
