//! To which address data connections go, and who decides that.
//!
//! The other end names the address under which it was reached, but that is only its word: an
//! attacker who controls the other end could make this host connect, and push data, to any host
//! that it can reach. So data connections go to the address that the user gives
//! (`--data-address`), or to the host that the user named, as this host resolves that name. The
//! other end's word only decides which of those addresses is tried first. The name is resolved as
//! `ssh -G` reports it, because it may be an alias in ssh's configuration.

use super::ssh::Ssh;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::DaemonPlace;
use crate::names::{self, part_port};
use crate::patience::{Cut, Patience};
use crate::thread::spawn_in;
use crate::transport::tcp::{Line, Tcp, await_answer, connect};
use lads_core::message::DataPort;
use lads_core::protection::{Protection, Secret};
use lads_core::units::StreamId;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long it may take to open one data stream. A lost packet that opens a connection is sent
/// again after 1, 3 and 7 s; half of this would give up after the second.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Time in which the first data connection must open if the data can go through the remote shell
/// instead, over all addresses together. A lost first packet is sent again after 1 s; with half of
/// this time, one lost packet would count as a blocked port. The user should read the notice within
/// 3 s: if a firewall drops the packets, it appears 2.4 s after the start of the command (median of
/// 14 between two network namespaces; ssh logs in during the first 0.5 s).
pub(crate) const CONTACT_DEADLINE: Duration = Duration::from_millis(1800);

/// The first and the longest pause before a stream is tried again that the other end closed before
/// it was open. Each pause is twice the one before. The port is full while strangers connect faster
/// than they are checked; shorter pauses would add to the load.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// The number of streams that are opened at a time: more than a transfer has by default, and fewer
/// than may wait at the port of the other end without a token. Each takes a thread for two round
/// trips. At 128 ms, 1 MiB takes 0.90 s with four streams opened at once, and 1.66 s with one after
/// the other. Half and double differ only for transfers with more streams than this.
const AT_ONCE_MAX: usize = 32;

/// How data connections reach the other end.
#[derive(Debug)]
pub(super) struct Route {
    /// The address that the user gives.
    pub(super) data_address: Option<String>,
    pub(super) host: Option<String>,
    /// ssh's settings for that host, if ssh starts the other end.
    pub(super) ssh: Option<Ssh>,
    /// The address at which the other end says it was reached; empty if it does not know.
    pub(super) told: String,
    pub(super) port: u16,
    /// What protects the streams.
    pub(super) protection: Protection,
    /// Time in which the first connection must open; `None`: as long as any connection.
    pub(super) contact_limit: Option<Duration>,
}

impl Route {
    /// To an end that this one started, on that host, if it is another one. `data_address`: what
    /// the user gives.
    pub(super) fn to(
        port: &DataPort,
        protection: Protection,
        (host, ssh): (Option<String>, Option<Ssh>),
        data_address: Option<String>,
        contact_limit: Option<Duration>,
    ) -> Self {
        let (told, port) = (port.address.clone(), port.port);
        Self { data_address, host, ssh, told, port, protection, contact_limit }
    }

    /// To the end that a user started, which this host obeys: to the address that the user gives,
    /// or the one from which ssh came.
    pub(super) fn back(
        port: &DataPort,
        protection: Protection,
        is_local: bool,
    ) -> Result<Self, Fatal> {
        let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let caller = connection.split(' ').next().filter(|it| !it.is_empty());
        let loopback = is_local.then_some("127.0.0.1");
        let given = Some(port.address.as_str()).filter(|it| !it.is_empty());
        let address = given.or(loopback).or(caller).ok_or_else(|| {
            let text = "the remote shell does not tell from which address it was called, so data \
                        connections cannot go there: give one with --data-address, or omit \
                        --connect";
            Fatal::new(ExitCode::Usage, text)
        })?;
        Ok(Self {
            data_address: Some(address.to_owned()),
            host: None,
            ssh: None,
            told: String::new(),
            port: port.port,
            protection,
            contact_limit: None,
        })
    }

    /// Opens a stream for each secret; to another host many at a time, because each takes two round
    /// trips.
    pub(super) fn connect_all(
        &self,
        addresses: &[SocketAddr],
        secrets: &[Secret],
        patience: &Patience<'_>,
        streams: &Tcp,
    ) -> Result<(), Fatal> {
        let per_address = |limit| limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let contact = Contact::within(self.contact_limit.map(per_address));
        let open = |opening: &Opening<'_>| self.connect_one(addresses, opening, patience);
        let openings = self.openings(0, secrets, streams, &contact);
        let opened = match self.host.is_some() || self.data_address.is_some() {
            true => many_at_a_time(&openings, open),
            // Within a host there is no round trip to wait for.
            false => openings.iter().try_for_each(open),
        };
        opened.map_err(|fatal| match contact.is_made() {
            true => Fatal { blocked: None, ..fatal },
            false => fatal,
        })
    }

    /// Opens a stream for each of these secrets, which come after those that are needed, many at a
    /// time. Says which was opened; does without those that cannot be opened.
    pub(super) fn connect_more(
        &self,
        addresses: &[SocketAddr],
        secrets: &[Secret],
        patience: &Patience<'_>,
        streams: &Tcp,
        on_more: impl Fn(StreamId) + Sync,
    ) {
        let needed_count = u16::try_from(streams.needed_count()).expect("streams have 16 bits");
        let contact = Contact::within(None);
        let _ =
            many_at_a_time(&self.openings(needed_count, secrets, streams, &contact), |opening| {
                let connect = |address| opening.connect_patiently(address, false, patience);
                if addresses.iter().any(|&address| connect(address).is_ok()) {
                    on_more(StreamId(opening.index));
                }
                Ok(())
            });
    }

    /// One for each secret, for the streams from number `first` on.
    fn openings<'a>(
        &self,
        first: u16,
        secrets: &'a [Secret],
        streams: &'a Tcp,
        contact: &'a Contact,
    ) -> Vec<Opening<'a>> {
        let one = |(index, secret)| {
            let key = (secret, self.protection);
            Opening { index, key, streams, contact }
        };
        (first..).zip(secrets).map(one).collect()
    }

    fn connect_one(
        &self,
        addresses: &[SocketAddr],
        opening: &Opening<'_>,
        patience: &Patience<'_>,
    ) -> Result<(), Fatal> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            let is_sure = addresses.len() == 1 || self.is_told(address);
            match opening.connect_patiently(*address, is_sure, patience) {
                Ok(()) => return Ok(()),
                Err(_) if patience.is_stopped() => return Err(Cut::Stopped.fatal("")),
                // The transfer is over, or does without this stream.
                Err(_) if !opening.is_wanted() => return Ok(()),
                Err(error) => last = error,
            }
        }
        let tried: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        Err(self.failed(&last, &tried.join(", ")))
    }

    fn failed(&self, error: &io::Error, tried: &str) -> Fatal {
        let is_timeout = matches!(Cut::of(error), Some(Cut::Silent(_) | Cut::Late(_)));
        let why = match is_timeout {
            true => "no reply in time".to_owned(),
            false => error.to_string(),
        };
        let hint = match self.told.parse::<IpAddr>() {
            Ok(told) if self.host.is_some() && self.data_address.is_none() => {
                format!(" (the other end reports that it was reached at {told})")
            }
            _ => String::new(),
        };
        let text = format!(
            "cannot connect a data stream to {tried}: {why}; open that port (--ports FIRST-LAST), \
             name another address (--data-address){hint}, let the other end connect (--connect), \
             or send data through ssh (--tunnel)"
        );
        let reason = format!("data connections to {tried} fail ({why})");
        Fatal { is_timeout, ..Fatal::new(ExitCode::Network, text).when_blocked(reason) }
    }

    /// The addresses for data streams, the most likely first: the one that the user gives, with
    /// its port if it has one (a forwarded port), or those of the host that the user named.
    pub(super) fn addresses(&self, patience: &Patience<'_>) -> Result<Vec<SocketAddr>, Fatal> {
        if let Some(address) = &self.data_address {
            let (name, port) = part_port(address, self.port);
            return resolve(name, port, patience)?.map_err(|error| self.failed(&error, address));
        }
        let Some(host) = &self.host else {
            return Ok(vec![SocketAddr::from(([127, 0, 0, 1], self.port))]);
        };
        let name = match self.ssh.as_ref().and_then(|ssh| ssh.host_name.as_deref()) {
            Some(name) => name.to_owned(),
            None => match DaemonPlace::parse(host) {
                Some(place) => place.name,
                None => host.rsplit('@').next().unwrap_or(host).to_owned(),
            },
        };
        let mut addresses =
            resolve(&name, self.port, patience)?.map_err(|error| self.unresolved(&name, &error))?;
        // A stable sort: the others keep the order in which the resolver prefers them.
        addresses.sort_by_key(|it| !self.is_told(it));
        Ok(addresses)
    }

    /// Whether the other end says that it was reached at this address.
    fn is_told(&self, address: &SocketAddr) -> bool {
        let told = self.told.parse::<IpAddr>();
        told.is_ok_and(|told| told.to_canonical() == address.ip().to_canonical())
    }

    fn unresolved(&self, name: &str, error: &io::Error) -> Fatal {
        let text = match self.told.parse::<IpAddr>() {
            Ok(told) => format!(
                "data would go to {told}, but only the other end reports that this is its address \
                 ({name} does not resolve here: {error}); confirm it with --data-address {told}, \
                 or use --tunnel"
            ),
            Err(_) => format!(
                "{name} does not resolve here ({error}), so LADS has no address for the data; \
                 give one with --data-address ADDRESS, or use --tunnel"
            ),
        };
        let reason = format!("the address for data connections is unknown ({name}: {error})");
        Fatal::new(ExitCode::Network, text).when_blocked(reason)
    }
}

/// All addresses of a name; the inner error is the resolver's.
fn resolve(
    name: &str,
    port: u16,
    patience: &Patience<'_>,
) -> Result<io::Result<Vec<SocketAddr>>, Fatal> {
    let name = name.to_owned();
    let resolved = patience.result_of("lads-resolve", move || names::resolve(&name, port));
    resolved.map_err(|cut| cut.fatal("the resolver of host names"))
}

/// Opens streams, each on a thread of its own, until one cannot be opened.
fn many_at_a_time(
    openings: &[Opening<'_>],
    open: impl Fn(&Opening<'_>) -> Result<(), Fatal> + Sync,
) -> Result<(), Fatal> {
    for some in openings.chunks(AT_ONCE_MAX) {
        let opened: Result<Vec<()>, Fatal> = std::thread::scope(|scope| {
            let open = &open;
            let begin = |it| spawn_in(scope, "lads-connect", move || open(it));
            let threads: Vec<_> = some.iter().map(begin).collect();
            threads.into_iter().map(|it| it?.join().expect("it does not panic")).collect()
        });
        opened?;
    }
    Ok(())
}

/// Record of the first connection to the other end.
#[derive(Debug)]
struct Contact {
    is_made: AtomicBool,
    limit: Option<Duration>,
}

impl Contact {
    fn within(limit: Option<Duration>) -> Self {
        Self { is_made: AtomicBool::new(false), limit }
    }

    fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Relaxed)
    }
}

/// A stream that is being opened.
#[derive(Debug)]
struct Opening<'a> {
    index: u16,
    key: (&'a Secret, Protection),
    streams: &'a Tcp,
    contact: &'a Contact,
}

impl Opening<'_> {
    /// Tries again for a while if the other end closes the connection before it is open: its port
    /// may have been full of strangers. `is_sure` says that the other end is at this address: then
    /// data goes there before the answer has come.
    fn connect_patiently(
        &self,
        address: SocketAddr,
        is_sure: bool,
        patience: &Patience<'_>,
    ) -> io::Result<()> {
        let patience = patience.part(CONNECT_DEADLINE).unless(self.streams.ended(self.number()));
        let (mut pause, pause_max) = RETRY_PAUSES;
        loop {
            let error = match self.connect(address, is_sure, &patience) {
                Err(error) if was_closed(&error) => error,
                result => return result,
            };
            // The error of the closed connection says more than that the time is over.
            patience.pause(pause).map_err(|_| error)?;
            pause = (pause * 2).min(pause_max);
        }
    }

    fn connect(
        &self,
        address: SocketAddr,
        is_sure: bool,
        patience: &Patience<'_>,
    ) -> io::Result<()> {
        let line = self.reach(address, patience)?;
        let answer = |socket: &OwnedFd| await_answer(socket, patience);
        if is_sure {
            return self.streams.open_early(self.number(), line, answer);
        }
        answer(line.socket())?;
        self.streams.open(self.number(), line);
        Ok(())
    }

    /// Opens the connection. Until the first connection is open, this takes at most as long as the
    /// limit for it.
    fn reach(&self, address: SocketAddr, patience: &Patience<'_>) -> io::Result<Line> {
        let connect = |patience: &Patience<'_>| connect(address, self.index, self.key, patience);
        let limit = self.contact.limit.filter(|_| !self.contact.is_made());
        let line = match limit.map(|limit| connect(&patience.part(limit))) {
            // Another connection is open: only this one has lost packets.
            Some(Err(error)) if Cut::of(&error).is_some() && self.contact.is_made() => {
                connect(patience)
            }
            Some(result) => result,
            None => connect(patience),
        }?;
        self.contact.is_made.store(true, Ordering::Relaxed);
        Ok(line)
    }

    fn is_wanted(&self) -> bool {
        self.streams.wants(self.number())
    }

    fn number(&self) -> usize {
        self.index.into()
    }
}

/// Whether the other end closed a connection before it was open.
fn was_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests;
