//! Simulates a bad network: a TCP proxy that delays, damages and breaks what it carries, at places
//! that a seed or a person chooses.
//!
//! It consists of ordinary threads and sockets on this host and needs no privileges. It does not
//! simulate distance: a connection through it is really two connections, and neither sees the
//! losses of the other. `wan` simulates distance.

mod pump;
mod rule;

pub use rule::{Fault, Rule, Way};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use rustix::net::{connect_unspec, sockopt};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead as _, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a connection waits for others, so that they can be connected on in another order. The
/// wait is limited because an end may open its next connection only when the one before is
/// answered.
const REORDER_PATIENCE: Duration = Duration::from_millis(200);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit on bytes that the kernel has received for us and we have not read. Without it, the
/// kernel would take megabytes from a sender after a connection has stopped.
const RECEIVE_BUFFER_BYTES: usize = 128 << 10;

/// A TCP proxy that delays, damages and breaks what it carries
///
/// Prints its port as JSON. While it runs, lines on stdin add rules; `clear` removes all. It ends
/// when stdin is closed. What was done to whom goes to stderr, as JSON, line by line.
///
/// A rule: FAULT [connection=N] [way=out|back] [after=BYTES] [at=SECONDS] [of=all]. Faults:
/// delay=MS, rate=BYTES_PER_SECOND, recut=BYTES, reset, reset-all, close (one way, with way=),
/// stop, black-hole, flip, reorder=CONNECTIONS. A number may be LOW..HIGH, to be drawn. With
/// of=all, bytes of all connections count, and it happens once.
#[derive(Debug, clap::Args)]
pub struct ProxyArgs {
    /// Where to listen; port 0 is a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: String,

    /// Where to connect to
    #[arg(long, value_name = "HOST:PORT")]
    to: String,

    /// Seed of all that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// A rule; may be given several times
    #[arg(long = "fault", value_name = "RULE")]
    faults: Vec<String>,
}

/// Runs a proxy until stdin is closed.
///
/// # Errors
///
/// If it cannot listen, or if a rule is not understood.
pub fn run(args: &ProxyArgs) -> Result<ExitCode> {
    let parse = |text: &String| Rule::parse(text, args.seed).with_context(|| text.clone());
    let config = Config {
        listen: resolve(&args.listen)?,
        to: resolve(&args.to)?,
        seed: args.seed,
        rules: args.faults.iter().map(parse).collect::<Result<_>>()?,
        log: Box::new(std::io::stderr()),
    };
    let proxy = Proxy::start(config)?;
    writeln!(std::io::stdout(), "{}", serde_json::json!({"port": proxy.port()}))?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.trim() {
            "" => {}
            "clear" => proxy.clear(),
            text => match Rule::parse(text, args.seed) {
                Ok(rule) => proxy.add(rule),
                Err(error) => proxy.state.log(&Event::Refused { why: format!("{error:#}") }),
            },
        }
    }
    proxy.stop();
    Ok(ExitCode::SUCCESS)
}

fn resolve(text: &str) -> Result<SocketAddr> {
    let mut found = text.to_socket_addrs().with_context(|| format!("cannot resolve {text}"))?;
    found.next().with_context(|| format!("{text} has no address"))
}

/// The settings of a proxy.
pub struct Config {
    /// Where to listen; port 0 is a free one.
    pub listen: SocketAddr,
    /// Where to connect to.
    pub to: SocketAddr,
    /// The seed of all that is drawn.
    pub seed: u64,
    /// The faults, and where they happen.
    pub rules: Vec<Rule>,
    /// Where to write the log, as lines of JSON.
    pub log: Box<dyn Write + Send>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Config");
        shown.field("listen", &self.listen).field("to", &self.to).field("rules", &self.rules);
        shown.finish_non_exhaustive()
    }
}

/// A running proxy. When this is dropped, it ends and resets its connections.
#[derive(Debug)]
pub struct Proxy {
    state: Arc<State>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens, and passes on what comes.
    ///
    /// # Errors
    ///
    /// If it cannot listen.
    pub fn start(config: Config) -> Result<Self> {
        let listener = TcpListener::bind(config.listen)
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            to: config.to,
            seed: config.seed,
            started: Instant::now(),
            rules: Mutex::new((0..).zip(config.rules).collect()),
            rule_count: AtomicU64::new(1 << 32),
            epoch: AtomicU64::new(0),
            happened: Mutex::default(),
            bytes: AtomicU64::new(0),
            connections: Mutex::default(),
            connection_count: AtomicU64::new(0),
            done: Mutex::default(),
            log: Mutex::new(config.log),
            has_ended: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let acceptor = std::thread::spawn(move || shared.accept(&listener));
        Ok(Self { state, address, acceptor: Some(acceptor) })
    }

    /// Returns the port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Adds a rule for present and later connections.
    pub fn add(&self, rule: Rule) {
        let number = self.state.rule_count.fetch_add(1, Ordering::Relaxed);
        self.state.rules.lock().expect("no thread panics with the rules").push((number, rule));
    }

    /// Removes all rules, and ends the lasting effects of their faults.
    pub fn clear(&self) {
        self.state.rules.lock().expect("no thread panics with the rules").clear();
        self.state.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the faults done so far, in order.
    #[must_use]
    pub fn faults_done(&self) -> Vec<Fault> {
        self.state.done.lock().expect("no thread panics with the list").clone()
    }

    /// Returns how many connections came so far.
    #[must_use]
    pub fn connection_count(&self) -> u64 {
        self.state.connection_count.load(Ordering::Relaxed)
    }

    /// Ends the proxy: resets all connections and accepts no more.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.has_ended.store(true, Ordering::Relaxed);
        self.state.reset_all();
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.state.reset_all();
    }
}

/// An event in the log, written as JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Connected { connection: u64 },
    CannotConnect { connection: u64, why: String },
    Fault { fault: Fault, connection: u64, way: Way, position: u64 },
    Ended { connection: u64, way: Way, bytes: u64 },
    Refused { why: String },
}

/// The state that all threads share.
struct State {
    to: SocketAddr,
    seed: u64,
    started: Instant,
    /// The rules, each with its own number.
    rules: Mutex<Vec<(u64, Rule)>>,
    rule_count: AtomicU64,
    /// Increases when the rules are cleared.
    epoch: AtomicU64,
    /// The numbers of the rules that happen only once and have happened.
    happened: Mutex<BTreeSet<u64>>,
    /// The number of bytes passed on by all connections.
    bytes: AtomicU64,
    /// The connections that have not ended.
    connections: Mutex<Vec<Arc<Connection>>>,
    connection_count: AtomicU64,
    done: Mutex<Vec<Fault>>,
    log: Mutex<Box<dyn Write + Send>>,
    has_ended: AtomicBool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("to", &self.to).finish_non_exhaustive()
    }
}

impl State {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut chance = Rng::with_seed(self.seed);
        while let Ok((first, _)) = listener.accept() {
            let mut group = vec![first];
            self.wait_for_others(listener, &mut group);
            if self.has_ended.load(Ordering::Relaxed) {
                return;
            }
            while !group.is_empty() {
                let near = group.remove(chance.usize(..group.len()));
                let number = self.connection_count.fetch_add(1, Ordering::Relaxed) + 1;
                self.connect(near, number);
            }
        }
    }

    /// Waits for the other connections of a group that is connected on in another order.
    fn wait_for_others(&self, listener: &TcpListener, group: &mut Vec<TcpStream>) {
        let Some(size) = self.reorder() else { return };
        let started = Instant::now();
        let _ = listener.set_nonblocking(true);
        while group.len() < size && started.elapsed() < REORDER_PATIENCE {
            match listener.accept() {
                Ok((near, _)) => group.push(near),
                Err(_) => std::thread::sleep(pump::TICK),
            }
        }
        let _ = listener.set_nonblocking(false);
        if group.len() > 1 {
            self.done.lock().expect("no thread panics with the list").push(Fault::Reorder(size));
        }
    }

    fn reorder(&self) -> Option<usize> {
        let rules = self.rules.lock().expect("no thread panics with the rules");
        rules.iter().find_map(|(_, rule)| match rule.fault {
            Fault::Reorder(size) => Some(size),
            _ => None,
        })
    }

    fn connect(self: &Arc<Self>, near: TcpStream, number: u64) {
        let connected = TcpStream::connect_timeout(&self.to, CONNECT_TIMEOUT)
            .and_then(|far| Connection::new(number, near, far));
        match connected {
            Ok(connection) => {
                self.log(&Event::Connected { connection: number });
                let connection = Arc::new(connection);
                let mut all = self.connections.lock().expect("no thread panics with the list");
                all.push(Arc::clone(&connection));
                drop(all);
                pump::start(self, &connection, Way::Out);
                pump::start(self, &connection, Way::Back);
            }
            Err(error) => {
                self.log(&Event::CannotConnect { connection: number, why: error.to_string() });
            }
        }
    }

    fn reset_all(&self) {
        let connections = self.connections.lock().expect("no thread panics with the list").clone();
        connections.iter().for_each(|connection| connection.reset());
    }

    /// Returns whether this is the first time for a rule that happens only once.
    fn is_first(&self, number: u64) -> bool {
        self.happened.lock().expect("no thread panics with the set").insert(number)
    }

    fn has_happened(&self, number: u64) -> bool {
        self.happened.lock().expect("no thread panics with the set").contains(&number)
    }

    fn on_fault(&self, fault: Fault, connection: &Connection, way: Way, position: u64) {
        self.done.lock().expect("no thread panics with the list").push(fault);
        self.log(&Event::Fault { fault, connection: connection.number, way, position });
    }

    /// Forgets a connection when both ways have ended.
    fn on_way_ended(&self, connection: &Connection, way: Way, bytes: u64) {
        self.log(&Event::Ended { connection: connection.number, way, bytes });
        if connection.ways_ended.fetch_add(1, Ordering::Relaxed) == 1 {
            let mut all = self.connections.lock().expect("no thread panics with the list");
            all.retain(|other| other.number != connection.number);
        }
    }

    fn log(&self, event: &Event) {
        let mut line = serde_json::json!({"seconds": self.started.elapsed().as_secs_f64()});
        if let (Some(line), Ok(serde_json::Value::Object(event))) =
            (line.as_object_mut(), serde_json::to_value(event))
        {
            line.extend(event);
        }
        let mut log = self.log.lock().expect("no thread panics with the log");
        // If the log cannot be written, the test goes on without it.
        let _ = writeln!(log, "{line}").and_then(|()| log.flush());
    }
}

/// A connection to the proxy, and the proxy's connection to the target.
struct Connection {
    number: u64,
    accepted: Instant,
    near: TcpStream,
    far: TcpStream,
    is_gone: AtomicBool,
    ways_ended: AtomicU64,
}

impl Connection {
    fn new(number: u64, near: TcpStream, far: TcpStream) -> std::io::Result<Self> {
        for socket in [&near, &far] {
            sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER_BYTES)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(pump::TICK * 5))?;
            socket.set_write_timeout(Some(pump::TICK * 5))?;
        }
        let accepted = Instant::now();
        Ok(Self {
            number,
            accepted,
            near,
            far,
            is_gone: AtomicBool::new(false),
            ways_ended: AtomicU64::new(0),
        })
    }

    fn reads_from(&self, way: Way) -> &TcpStream {
        match way {
            Way::Out => &self.near,
            Way::Back => &self.far,
        }
    }

    fn writes_to(&self, way: Way) -> &TcpStream {
        match way {
            Way::Out => &self.far,
            Way::Back => &self.near,
        }
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Ends it as a crash would: sends RST to both ends.
    fn reset(&self) {
        if self.is_gone.swap(true, Ordering::Relaxed) {
            return;
        }
        for socket in [&self.near, &self.far] {
            let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
            // This sends RST at once, though threads may be reading from the socket. If the kernel
            // refuses because of them, RST is sent when the last thread has finished. Only the
            // reading side is shut down to wake these threads: shutting down the writing side would
            // tell the other end that the connection was closed in order.
            if connect_unspec(socket).is_err() {
                let _ = socket.shutdown(Shutdown::Read);
            }
        }
    }
}
