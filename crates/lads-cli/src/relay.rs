//! How the data connections of `lads cp --tunnel` go through the remote shell: this joins its
//! stdin and stdout with a TCP port on the other host.

use crate::args::RelayArgs;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

/// The port is on this very host, or beside it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that go on at a time: ssh takes less.
const PUMP_BYTES: usize = 256 << 10;

/// Pumps both ways until both directions have ended. Each ends on its own, and its end is passed
/// on, as on a TCP connection. If nobody reads what comes from the port any more, because the other
/// host or the way to it is gone, that is the end, too: the port may have nothing to say for ever.
pub(crate) fn run(args: &RelayArgs) -> Result<()> {
    let stream = connect(args).with_context(|| {
        format!("the data tunnel cannot connect to {} port {}", args.address, args.port)
    })?;
    let (mut input, mut output) = own_stdio().context("the data tunnel has no stdin or stdout")?;
    let mut upstream = stream.try_clone().context("the data tunnel cannot share its socket")?;
    let mut downstream = stream;
    let up = thread::Builder::new()
        .name("relay up".to_owned())
        .spawn(move || {
            let outcome = pump(&mut input, &mut upstream);
            // It fails if the connection is gone, and then there is nothing to say.
            let _ = upstream.shutdown(Shutdown::Write);
            outcome
        })
        .context("cannot start a thread")?;
    let (down, is_unread) = match pump_while_read(&mut downstream, &mut output) {
        Ok(end) => (Ok(()), end == End::Unread),
        Err(error) => (Err(error), false),
    };
    if is_unread {
        // The other direction is left as it is: it may wait for a word that nobody will say.
        return Ok(());
    }
    // Closed, so that the other end sees that nothing more comes.
    drop(output);
    let up = up.join().expect("the thread does not panic");
    up.and(down).context("the data tunnel broke")
}

/// Copies until the end. Not `io::copy`, which splices on Linux: a splice from a socket holds the
/// lock of the pipe that it fills while it waits for more, so that sshd, which reads that pipe,
/// does not get what is in it already.
fn pump(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; PUMP_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// How a direction came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing more comes.
    Closed,
    /// Nobody reads it.
    Unread,
}

/// The same, but ends when nobody reads `to` any more, be it that nothing comes.
fn pump_while_read(from: &mut TcpStream, to: &mut File) -> io::Result<End> {
    let mut buffer = vec![0; PUMP_BYTES];
    loop {
        if !is_read_until_more_comes(from.as_fd(), to.as_fd())? {
            return Ok(End::Unread);
        }
        match from.read(&mut buffer) {
            Ok(0) => return Ok(End::Closed),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits until there is something to pump; `false` if nobody reads it.
fn is_read_until_more_comes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<bool> {
    loop {
        // Of a pipe whose reader is gone, an error is told unasked; of a socket, a hangup.
        let mut polled = [PollFd::new(&from, PollFlags::IN), PollFd::new(&to, PollFlags::empty())];
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) if polled[1].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
                return Ok(false);
            }
            Ok(_) => return Ok(true),
        }
    }
}

fn connect(args: &RelayArgs) -> io::Result<TcpStream> {
    let mut outcome = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in (args.address.as_str(), args.port).to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        if outcome.is_ok() {
            break;
        }
    }
    let stream = outcome?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Stdin and stdout as files that close when dropped: the standard library's own are buffered and
/// never close.
fn own_stdio() -> io::Result<(File, File)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok((input.into(), output.into()))
}
