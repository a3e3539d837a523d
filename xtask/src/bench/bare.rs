//! Minimal movers, which show what the machine can do.
//!
//! They have two streams and two threads at each end. They have no metadata, no durability, no
//! scheduling, and no answer except one byte at the end. The additional time that LADS takes is the
//! price of its promises.

mod slices;

use crate::tree;
use anyhow::{Context, Result, bail};
use slices::Care;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// Blocks of 1 MiB, pread and send, recv and pwrite, no checksum.
    Blocks,
    /// As WDT does, without checksums.
    Slices,
    /// As WDT does, with crc32c.
    SlicesWithSums,
    /// The same, and what LADS promises.
    Promises,
    /// As WDT does, with AES-128-GCM.
    Sealed,
}

impl Way {
    fn care(self) -> Option<Care> {
        match self {
            Self::Blocks => None,
            Self::Slices => Some(Care::No),
            Self::SlicesWithSums => Some(Care::Sums),
            Self::Promises => Some(Care::Promises),
            Self::Sealed => Some(Care::Sealed),
        }
    }
}

const STREAMS: usize = 2;
const BLOCK_BYTES: usize = 1 << 20;
/// Offset (8 bytes), length (4), length of the name (4), then the name.
const HEAD_BYTES: usize = 128;
const NAME_AT: usize = 16;

/// One block of one file.
struct Block<'a> {
    path: &'a Path,
    offset: u64,
    length: usize,
}

/// Sends all files below a directory to the sink on this loopback port.
pub(crate) fn source(root: &Path, port: u16, way: Way) -> Result<()> {
    if let Some(care) = way.care() {
        return slices::source(root, port, care);
    }
    let files = tree::files(root)?;
    let blocks = blocks(&files, BLOCK_BYTES)?;
    let next = AtomicUsize::new(0);
    on_all_streams(|| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        // As LADS does on loopback, if the kernel has it. So the congestion control is no reason
        // for a difference.
        let _ = rustix::net::sockopt::set_tcp_congestion(&stream, "reno");
        let mut buffer = vec![0; HEAD_BYTES + BLOCK_BYTES];
        let mut open: Option<(&Path, File)> = None;
        while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            put_head(block, &mut buffer)?;
            let file = match open.take() {
                Some((path, file)) if path == block.path => file,
                _ => File::open(root.join(block.path))?,
            };
            let end = HEAD_BYTES + block.length;
            file.read_exact_at(&mut buffer[HEAD_BYTES..end], block.offset)?;
            open = Some((block.path, file));
            stream.write_all(&buffer[..end])?;
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        stream.read_exact(&mut [0]).context("the bare sink failed")
    })
}

/// Receives files into a directory. Prints the port that it listens on.
pub(crate) fn sink(root: &Path, way: Way) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    if let Some(care) = way.care() {
        return slices::sink(root, &listener, care);
    }
    on_all_streams(|| {
        let (mut stream, _) = listener.accept()?;
        let mut head = [0; HEAD_BYTES];
        let mut buffer = vec![0; BLOCK_BYTES];
        let mut open: Option<(PathBuf, File)> = None;
        while is_read(&mut stream, &mut head)? {
            let (path, offset, length) = take_head(&head)?;
            stream.read_exact(&mut buffer[..length])?;
            let file = match open.take() {
                Some((before, file)) if before == path => file,
                _ => create(&root.join(&path))?,
            };
            file.write_all_at(&buffer[..length], offset)?;
            open = Some((path, file));
        }
        drop(open);
        Ok(stream.write_all(&[1])?)
    })
}

/// Sends `bytes` from memory after each interval, this often, as a program does that sends its
/// results while it computes.
pub(crate) fn sender(
    address: SocketAddr,
    bytes: u64,
    interval_seconds: f64,
    times: u32,
) -> Result<()> {
    let results = vec![1; usize::try_from(bytes)?];
    let mut stream = TcpStream::connect(address)?;
    let begun = Instant::now();
    for time in 1..=times {
        let due = Duration::from_secs_f64(interval_seconds * f64::from(time));
        thread::sleep(due.saturating_sub(begun.elapsed()));
        results.chunks(BLOCK_BYTES).try_for_each(|block| stream.write_all(block))?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0]).context("the bare receiver did not finish")
}

/// Writes what a sender sends into a file. Prints the address that it listens on.
pub(crate) fn receiver(address: IpAddr, path: &Path) -> Result<()> {
    let listener = TcpListener::bind((address, 0))?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    let mut file = File::create(path)?;
    let mut buffer = vec![0; BLOCK_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            length => file.write_all(&buffer[..length])?,
        }
    }
    Ok(stream.write_all(&[1])?)
}

fn on_all_streams(work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..STREAMS).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("does not panic"))
    })
}

fn blocks(files: &[(PathBuf, u64)], block_bytes: usize) -> Result<Vec<Block<'_>>> {
    let mut blocks = Vec::new();
    for (path, size) in files {
        let mut offset = 0;
        loop {
            let length = usize::try_from(size - offset)?.min(block_bytes);
            blocks.push(Block { path, offset, length });
            offset += length as u64;
            if offset >= *size {
                break;
            }
        }
    }
    Ok(blocks)
}

fn put_head(block: &Block<'_>, to: &mut [u8]) -> Result<()> {
    let name = block.path.as_os_str().as_encoded_bytes();
    if name.len() > HEAD_BYTES - NAME_AT {
        bail!("the name {} is too long", block.path.display());
    }
    to[0..8].copy_from_slice(&block.offset.to_le_bytes());
    to[8..12].copy_from_slice(&u32::try_from(block.length)?.to_le_bytes());
    to[12..16].copy_from_slice(&u32::try_from(name.len())?.to_le_bytes());
    to[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
    Ok(())
}

fn take_head(head: &[u8; HEAD_BYTES]) -> Result<(PathBuf, u64, usize)> {
    let (offset, rest) = head.split_first_chunk().expect("128 bytes");
    let (length, rest) = rest.split_first_chunk().expect("120 bytes");
    let (name_length, name) = rest.split_first_chunk().expect("116 bytes");
    let name =
        name.get(..u32::from_le_bytes(*name_length) as usize).context("an invalid header")?;
    let length = u32::from_le_bytes(*length) as usize;
    Ok((PathBuf::from(std::str::from_utf8(name)?), u64::from_le_bytes(*offset), length))
}

/// Reads a head. Returns `false` if the stream is at its end.
fn is_read(stream: &mut TcpStream, head: &mut [u8]) -> Result<bool> {
    match stream.read_exact(head) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().context("every file has a directory")?)?;
            Ok(options.open(path)?)
        }
        result => Ok(result?),
    }
}
