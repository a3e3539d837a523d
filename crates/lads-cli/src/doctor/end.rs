//! The part of `lads doctor` on the other host: prints its facts, answers on a port, and obeys
//! requests on standard input until that ends.

use super::facts::Facts;
use super::trial;
use crate::args::DoctorEndArgs;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::thread;
use std::time::SystemTime;

/// Runs the part. One line of JSON comes first; then each request has one line as its answer.
pub(crate) fn run(args: &DoctorEndArgs) -> Result<()> {
    let path = match args.path.is_empty() {
        true => b".".to_vec(),
        false => args.path.as_bytes().to_vec(),
    };
    // The name of a user without a home directory is reported as a path that does not exist.
    let expanded = lads_engine::expand_paths(vec![path.clone()]).unwrap_or_default();
    let path = expanded.into_iter().next().unwrap_or(path);
    let path = PathBuf::from(OsString::from_vec(path));
    let mut facts = Facts::collect(&path);
    let listener = listen(args.port_first, args.port_last);
    facts.port = match &listener {
        Ok(listener) => listener.local_addr().map(|it| it.port()).map_err(|it| it.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Ok(listener) = listener {
        let serve = move || listener.incoming().flatten().for_each(|stream| trial::serve(&stream));
        thread::Builder::new().spawn(serve).map_err(crate::not_started)?;
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&facts)?)?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        let line = line.context("standard input")?;
        let answer = match line.split_once(' ') {
            None if line == "clock" => clock_nanos().to_string(),
            Some(("connect", address)) => match connect(address) {
                Ok(()) => "open".to_owned(),
                Err(error) => error.to_string().replace('\n', " "),
            },
            _ => "unknown".to_owned(),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

/// Returns the time of this host, in nanoseconds since 1970.
pub(super) fn clock_nanos() -> i128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

/// Listens on a free port of a range, on all addresses. They are no text: a static program cannot
/// contain the resolver, which text would need.
pub(super) fn listen(first: u16, last: u16) -> io::Result<TcpListener> {
    let mut result = Err(io::ErrorKind::AddrInUse.into());
    for port in first..=last {
        // With IPv6, connections of IPv4 arrive, too.
        result = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)));
        if result.is_ok() {
            break;
        }
    }
    result
}

fn connect(address: &str) -> io::Result<()> {
    let address = address.parse().map_err(|_| io::Error::other("not an address"))?;
    TcpStream::connect_timeout(&address, trial::DEADLINE).map(drop)
}
