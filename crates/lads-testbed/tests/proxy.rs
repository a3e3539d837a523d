//! Tests that the proxy does the faults that it is told to do, and no others.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use lads_testbed::proxy::{Config, Fault, Proxy, Rule};
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Nothing here takes this long; a test that does, hangs.
const HANG: Duration = Duration::from_secs(60);
const BYTES: usize = 300_000;

/// What came through one connection, and how the connection ended.
type Arrival = (Vec<u8>, Option<ErrorKind>);

/// A listener that reads everything, behind a proxy with these rules.
struct Line {
    proxy: Proxy,
    arrivals: Receiver<Arrival>,
}

impl Line {
    fn new(rules: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let (sender, arrivals) = channel();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                thread::spawn(move || sender.send(all_of(&mut stream)));
            }
        });
        Self { proxy: Proxy::start(config(to, rules)).unwrap(), arrivals }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.proxy.port())).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream
    }

    /// Sends the pattern and ends the stream; returns what arrives.
    fn send(&self) -> Arrival {
        let mut stream = self.connect();
        // The connection may be reset before everything is sent.
        let _ = stream.write_all(&pattern()).and_then(|()| stream.shutdown(Shutdown::Write));
        let arrival = self.arrivals.recv_timeout(HANG).unwrap();
        drop(stream);
        arrival
    }
}

fn config(to: SocketAddr, rules: &[&str]) -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        to,
        seed: 1,
        rules: rules.iter().map(|rule| Rule::parse(rule, 1).unwrap()).collect(),
        log: Box::new(std::io::sink()),
    }
}

/// Reads to the end, or to an error.
fn all_of(stream: &mut TcpStream) -> Arrival {
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes);
    (bytes, end.err().map(|error| error.kind()))
}

fn pattern() -> Vec<u8> {
    (0..BYTES).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

#[test]
fn without_rules_everything_comes_as_it_was_sent() {
    assert_eq!(Line::new(&[]).send(), (pattern(), None));
}

#[test]
fn what_is_late_and_slow_and_cut_is_the_same() {
    let line = Line::new(&["delay=5 way=out", "rate=5000000 way=out", "recut=100 way=out"]);
    assert_eq!(line.send(), (pattern(), None));
    assert_eq!(line.proxy.faults_done().len(), 3);
}

#[test]
fn a_flip_changes_one_bit_of_the_byte_that_was_named() {
    let line = Line::new(&["flip way=out after=123456"]);
    let (arrived, _) = line.send();
    let differences: Vec<(usize, u32)> = arrived
        .iter()
        .zip(pattern())
        .enumerate()
        .filter(|(_, (arrived, sent))| *arrived != sent)
        .map(|(index, (arrived, sent))| (index, (arrived ^ sent).count_ones()))
        .collect();
    assert_eq!((arrived.len(), differences), (BYTES, vec![(123_456, 1)]));
    assert_eq!(line.proxy.faults_done(), [Fault::Flip]);
}

#[test]
fn a_reset_is_seen_at_both_ends_and_leaves_other_connections_alone() {
    let line = Line::new(&["reset connection=1 after=1000"]);
    let mut stream = line.connect();
    let written = stream.write_all(&pattern()).map_err(|error| error.kind());
    let (arrived, error) = line.arrivals.recv_timeout(HANG).unwrap();
    assert!(arrived.len() <= 1000, "{}", arrived.len());
    assert_eq!(error, Some(ErrorKind::ConnectionReset));
    // The kernel reports a reset once: in the write, if it came before the write had ended.
    let told = written.err().or_else(|| all_of(&mut stream).1);
    assert_eq!(told, Some(ErrorKind::ConnectionReset));
    assert_eq!(line.send(), (pattern(), None));
}

#[test]
fn what_is_closed_one_way_still_goes_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let proxy = Proxy::start(config(to, &["close way=out after=10"])).unwrap();
    let mut near = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(&[7; 100]).unwrap();
    assert_eq!(all_of(&mut far), (vec![7; 10], None));
    far.write_all(b"still here").unwrap();
    drop(far);
    assert_eq!(all_of(&mut near), (b"still here".to_vec(), None));
}

#[test]
fn a_stopped_connection_takes_nothing_and_goes_on_when_rules_are_cleared() {
    let line = Line::new(&["stop way=out after=1000"]);
    let mut stream = line.connect();
    let sending = thread::spawn(move || stream.write_all(&pattern()));
    while line.proxy.faults_done().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(line.arrivals.try_recv().is_err(), "the stream has not ended");
    line.proxy.clear();
    sending.join().unwrap().unwrap();
    assert_eq!(line.arrivals.recv_timeout(HANG).unwrap(), (pattern(), None));
}

#[test]
fn a_black_hole_takes_everything_and_gives_nothing() {
    let line = Line::new(&["black-hole connection=1 way=out after=1000"]);
    let mut stream = line.connect();
    stream.write_all(&pattern()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(line.send(), (pattern(), None), "another connection is not concerned");
    assert!(line.arrivals.try_recv().is_err(), "the end of the stream is swallowed, too");
    drop(line.proxy);
    let (arrived, _) = line.arrivals.recv_timeout(HANG).unwrap();
    assert!(arrived.len() <= 1000);
}

#[test]
fn connections_are_connected_on_in_another_order() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let proxy = Proxy::start(config(to, &["reorder=6"])).unwrap();
    let nears: Vec<TcpStream> = (0..6_u8)
        .map(|number| {
            let mut near = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
            near.write_all(&[number]).unwrap();
            near
        })
        .collect();
    let order: Vec<u8> = (0..6)
        .map(|_| {
            let mut first = [0];
            listener.accept().unwrap().0.read_exact(&mut first).unwrap();
            first[0]
        })
        .collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    // With fewer than six at a time on a busy machine, the order may happen to be the original one.
    let has_reordered = proxy.faults_done().contains(&Fault::Reorder(6));
    assert!(has_reordered || order == sorted, "{order:?}");
    drop(nears);
}

#[test]
fn the_program_says_its_port_obeys_lines_and_tells_what_it_did() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lads-testbed"));
    command.args(["proxy", "--to", &listener.local_addr().unwrap().to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    let port = u16::try_from(said["port"].as_u64().unwrap()).unwrap();
    let mut near = TcpStream::connect(("127.0.0.1", port)).unwrap();
    near.set_read_timeout(Some(HANG)).unwrap();
    let _far = listener.accept().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(b"nonsense\nreset\n").unwrap();
    assert_eq!(all_of(&mut near).1, Some(ErrorKind::ConnectionReset));
    drop(stdin);
    let ended = process.wait_with_output().unwrap();
    let log = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{log}");
    for event in ["\"connected\"", "\"refused\"", "\"fault\":\"reset\""] {
        assert!(log.contains(event), "{event}: {log}");
    }
}
