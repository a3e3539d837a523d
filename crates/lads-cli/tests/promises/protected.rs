//! Data connections between two hosts: an attacker in the network cannot read or change data.

use crate::proxy::free_port;
use crate::tree::assert_nothing_left_over;
use crate::world::{Ended, RUN_HERE, World, assert_identical, has, run, there};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The file consists of repetitions of this text.
const PASSAGE: &[u8] = b"nobody on the way reads this passage";

/// A change of the bytes that an attacker passes on from the source to the sink, after the
/// opening of the connection.
type Deed = fn(&mut Vec<u8>);

/// Somebody on the way, who sees all that goes through one port.
struct Eve {
    port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Eve {
    /// Listens, and connects to `to_port`. Does something to the bytes of the first connection.
    fn start(to_port: u16, deed: Deed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut deed = Some(deed);
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", to_port)) else { continue };
                let (mut back_from, mut back_to) =
                    (far.try_clone().unwrap(), near.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut back_from, &mut back_to);
                    let _ = back_to.shutdown(Shutdown::Write);
                });
                let (all, deed) = (Arc::clone(&all), deed.take());
                std::thread::spawn(move || pass(near, far, &all, deed));
            }
        });
        Self { port, seen }
    }

    fn has_seen(&self, passage: &[u8]) -> bool {
        self.seen.lock().unwrap().windows(passage.len()).any(|it| it == passage)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>, mut deed: Option<Deed>) {
    let mut opening = [0; 58];
    if from.read_exact(&mut opening).and_then(|()| to.write_all(&opening)).is_err() {
        return;
    }
    let mut bytes = vec![0; 256 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut some = bytes[..count].to_vec();
        seen.lock().unwrap().extend_from_slice(&some);
        if let Some(deed) = deed.take() {
            deed(&mut some);
        }
        if to.write_all(&some).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A world with a file that can be recognised.
fn world() -> World {
    let world = World::new();
    world.write("src/file", &PASSAGE.repeat(100_000));
    world
}

/// Pushes through a proxy of an attacker. `setting`: configuration file of the other host.
fn push_past(world: &World, deed: Deed, options: &[&str], setting: &str) -> (Ended, Eve) {
    let config = world.write("there.toml", setting.as_bytes());
    let script = format!("export LADS_CONFIG='{}'; {RUN_HERE}", config.display());
    let shell = world.fake_shell(&script);
    let port = free_port();
    let eve = Eve::start(port, deed);
    let (ports, address) = (format!("{port}-{port}"), format!("127.0.0.1:{}", eve.port));
    let mut command = there(&shell);
    command.args(["--ports", &ports, "--data-address", &address, "--streams", "3"]);
    command.args(options).arg(world.source_contents());
    command.arg(format!("there:{}", world.target().display()));
    (run(command), eve)
}

#[test]
fn data_between_hosts_is_encrypted_unless_both_want_less() {
    if !has("rsync") {
        return;
    }
    for (level, protection, shows) in [
        ("encrypted", "encrypted", false),
        ("authenticated", "authenticated", true),
        ("plain", "none", true),
    ] {
        let (world, setting) = (world(), format!("data = \"{level}\"\n"));
        let (ended, eve) = push_past(&world, |_| (), &["--data", level], &setting);
        let ended = ended.expect(0);
        assert_eq!(ended.summary()["data_protection"], protection);
        assert_eq!(ended.summary()["is_clear"], shows);
        assert_eq!(eve.has_seen(PASSAGE), shows, "{level}");
        assert_identical(&world.source(), &world.target());
    }
    let world = world();
    let (ended, eve) = push_past(&world, |_| (), &[], "");
    assert_eq!(ended.expect(0).summary()["data_protection"], "encrypted");
    assert!(!eve.has_seen(PASSAGE) && !eve.has_seen(b"nobody on"));
}

#[test]
fn no_host_gets_less_protection_than_it_wants() {
    for (asked, setting, named) in [
        ("plain", "", "encrypted"),
        ("authenticated", "", "encrypted"),
        ("plain", "data = \"authenticated\"\n", "authenticated"),
        ("authenticated", "data = \"encrypted\"\n", "encrypted"),
    ] {
        let world = world();
        let (ended, eve) = push_past(&world, |_| (), &["--data", asked], setting);
        let why = format!("--data {asked} is refused by");
        ended.expect(4).says(&[&why, &format!("where data is {named}"), "config.toml"]);
        assert!(eve.seen.lock().unwrap().is_empty() && !world.target().join("file").exists());
    }
    // More than a host wants is no harm.
    let (ended, _eve) = push_past(&world(), |_| (), &[], "data = \"plain\"\n");
    assert_eq!(ended.expect(0).summary()["data_protection"], "encrypted");
    let (ended, _eve) = push_past(&world(), |_| (), &["--data", "plain"], "data = \"none\"\n");
    ended.expect(4).says(&["data = \"none\"", "is no level"]);
}

/// The stream is lost; the other streams send its blocks again.
#[test]
fn what_was_changed_on_the_way_is_not_written() {
    if !has("rsync") {
        return;
    }
    let flip: Deed = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    let cut_out: Deed = |bytes| {
        bytes.drain(4..24);
    };
    let repeat: Deed = |bytes| bytes.extend_from_within(..);
    for deed in [flip, cut_out, repeat] {
        for level in ["encrypted", "authenticated"] {
            let (world, setting) = (world(), format!("data = \"{level}\"\n"));
            let (ended, _eve) = push_past(&world, deed, &["--data", level], &setting);
            // The only stream with data may be the one that is lost.
            assert!(matches!(ended.code, Some(0 | 5)), "{ended:?}");
            if ended.code == Some(5) {
                push_past(&world, |_| (), &["--data", level], &setting).0.expect(0);
            }
            assert_identical(&world.source(), &world.target());
            assert_nothing_left_over(&world.target());
        }
    }
}

/// Whoever lists processes, or reads logs, finds no key.
#[test]
fn no_secret_is_an_argument_a_variable_or_in_a_log() {
    let world = world();
    let log = world.path("log");
    let said = world.path("said");
    // Keeps the messages of the other end: LISTEN contains the secrets.
    let script = format!(
        "shift; tr '\\0' '\\n' < /proc/$$/environ > '{0}.env'; printf '%s ' \"$@\" > '{0}.words'; \
         \"$@\" | tee '{0}'",
        said.display()
    );
    let shell = world.fake_shell(&script);
    let mut command = there(&shell);
    command.arg("--log").arg(&log).args(["-vv", "--streams", "3"]);
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    let ended = run(command).expect(0);
    let all = fs::read(&said).unwrap();
    // Type 3, LISTEN: an address of no bytes, the port, AES-128-GCM, the number of secrets.
    let secrets = secrets_in(&all);
    assert_eq!(secrets.len(), 3, "{} bytes", all.len());
    let mut public = vec![ended.stdout.clone(), ended.stderr.clone().into_bytes()];
    public.push(fs::read(&log).unwrap());
    for end in ["env", "words"] {
        public.push(fs::read(format!("{}.{end}", said.display())).unwrap());
    }
    for text in public {
        for secret in &secrets {
            let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            for form in [&secret[..], digits.as_bytes()] {
                assert!(!text.windows(form.len()).any(|it| it == form));
            }
        }
    }
}

/// The secrets in LISTEN, the second message that an end says.
fn secrets_in(said: &[u8]) -> Vec<[u8; 32]> {
    use lads_core::message::{LENGTH_BYTES, Message, decode};
    use lads_core::protection::Secret;
    let mut rest = said;
    loop {
        let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>().unwrap();
        let (message, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        if let Message::Listen { port, .. } = decode(message).unwrap() {
            return port.secrets.into_iter().map(|Secret(secret)| secret).collect();
        }
        rest = after;
    }
}

/// Within a host, and through ssh, LADS has nothing to encrypt.
#[test]
fn nothing_is_encrypted_twice() {
    let world = world();
    let ended = run(world.cp(&[])).expect(0);
    assert_eq!(ended.summary()["data_protection"], "local");
    let world = self::world();
    let mut command = there(&world.fake_shell(RUN_HERE));
    command.arg("--tunnel").arg(world.source_contents());
    command.arg(format!("there:{}", world.target().display()));
    assert_eq!(run(command).expect(0).summary()["data_protection"], "ssh");
}
