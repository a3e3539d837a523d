use super::*;

const KEY: &str = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

fn with_peer(more: &str) -> String {
    format!(
        "key_file = \"/etc/lads/serve.key\"\n[[peer]]\nname = \"beamline\"\nkey = \"{KEY}\"\n\
         root = \"/data\"\naccess = \"read\"\nuser = \"nobody\"\n{more}"
    )
}

fn failure(text: &str) -> String {
    format!("{:#}", parse(text).unwrap_err())
}

#[test]
fn little_has_to_be_said() {
    let config = parse(&with_peer("")).unwrap();
    assert_eq!(config.listen, ["[::]:5237"]);
    assert_eq!((config.ports, config.sessions_max), (None, 16));
    let [peer] = &config.peers[..] else { panic!("{config:?}") };
    assert_eq!((peer.name.as_str(), peer.key), ("beamline", KEY.parse().unwrap()));
    assert_eq!((peer.access, peer.level), (Access::Read, DataLevel::Encrypted));
    assert_eq!((peer.memory_bytes, peer.time), (None, None));
}

#[test]
fn all_can_be_said() {
    let top =
        "listen = [\"192.0.2.1:7\", \"[::1]:7\"]\nports = \"50000-50100\"\nsessions_max = 3\n";
    let peer = with_peer("data = \"plain\"\nsessions_max = 2\nmemory = \"1G\"\ntime = \"12h\"\n");
    let config = parse(&format!("{top}{peer}")).unwrap();
    assert_eq!(config.listen, ["192.0.2.1:7", "[::1]:7"]);
    assert_eq!((config.ports, config.sessions_max), (Some((50000, 50100)), 3));
    let peer = &config.peers[0];
    assert_eq!((peer.level, peer.memory_bytes), (DataLevel::Plain, Some(1 << 30)));
    assert_eq!(peer.sessions_max, Some(2));
    assert_eq!(peer.time.map(|it| it.as_secs()), Some(12 * 3600));
}

#[test]
fn whatever_is_wrong_lets_nobody_in() {
    let sound = with_peer("");
    let without = |line: &str| {
        let lines = sound.lines().filter(|it| !it.starts_with(line));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    for (missing, told) in [
        ("key_file", "`key_file` is missing"),
        ("name", "[[peer]] 1: `name` is missing"),
        ("key =", "[[peer]] 1: `key` is missing"),
        ("root", "[[peer]] 1: `root` is missing"),
        ("access", "[[peer]] 1: `access` is missing"),
    ] {
        let why = failure(&without(missing));
        assert!(why.contains(told), "{missing}: {why}");
    }
    let changed = |from: &str, to: &str| failure(&sound.replacen(from, to, 1));
    for (from, to, told) in [
        ("\"/data\"", "\"data\"", "must be an absolute path"),
        ("\"read\"", "\"all\"", "\"all\" is no access"),
        ("ed25519:d7", "ed25519:", "a public key is ed25519: and 64 hex digits"),
        ("user", "usr", "[[peer]] 1: `usr` is unknown"),
        ("key_file", "keyfile", "`keyfile` is unknown"),
        ("[[peer]]", "[peer]", "there is no [[peer]]"),
        ("\"nobody\"", "\"root\"", "sessions do not run as root"),
        ("\"nobody\"", "7", "must be a text in quotes"),
        ("\"beamline\"", "\"a\\nb\"", "control characters"),
        ("key_file", "sessions_max = 0\nkey_file", "`sessions_max` must be 1 to 10000"),
        ("key_file", "ports = \"7-6\"\nkey_file", "`ports`"),
        ("key_file", "listen = []\nkey_file", "names no address"),
        ("key_file", "key_file = [", "line 1: "),
    ] {
        let why = changed(from, to);
        assert!(why.contains(told), "{to}: {why}");
    }
    for (more, told) in [
        ("data = \"secret\"", "is no level"),
        ("memory = \"much\"", "`memory`"),
        ("time = \"5\"", "`time`"),
    ] {
        let why = failure(&with_peer(more));
        assert!(why.contains(told), "{more}: {why}");
    }
    assert!(failure("").contains("there is no [[peer]]"));
}

#[test]
fn two_peers_with_one_name_or_key_are_refused() {
    let peer = with_peer("");
    let second = &peer[peer.find("[[peer]]").unwrap()..];
    let same_name = second.replace("ed25519:d", "ed25519:e");
    assert!(failure(&format!("{peer}{same_name}")).contains("two peers have the name"));
    let same_key = second.replace("beamline", "other");
    assert!(failure(&format!("{peer}{same_key}")).contains("has the key of another peer"));
}

/// No text causes a panic, and no accepted peer has a relative root or runs as root.
#[test]
fn damaged_configurations_are_read_without_harm() {
    let sound = with_peer("memory = \"1G\"\ntime = \"12h\"\n").into_bytes();
    let mut rng = lads_trees::Rng::new(1);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut text = sound.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(text.len().max(1));
            if text.len() < 2 {
                break;
            }
            match rng.below(4) {
                0 => text[at] = rng.bytes(1)[0],
                1 => drop(text.remove(at)),
                2 => text.truncate(at.max(1)),
                _ => {
                    let from = rng.below(text.len());
                    let some = text[from.min(at)..from.max(at)].to_vec();
                    text.splice(at..at, some);
                }
            }
        }
        let Ok(config) = parse(&String::from_utf8_lossy(&text)) else { continue };
        read += 1;
        for peer in config.peers {
            assert!(peer.root.is_absolute() && peer.user.as_deref() != Some("root"), "{peer:?}");
        }
    }
    assert!((100..19_000).contains(&read), "{read}");
}
