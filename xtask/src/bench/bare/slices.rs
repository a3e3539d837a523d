//! A mover that does what WDT does, and nothing else.
//!
//! Facebook's WDT (<https://github.com/facebook/wdt>, `SenderThread.cpp`, `ReceiverThread.cpp`) has
//! one thread for each stream at both ends. Each has one buffer of 256 KiB, so the bytes stay in
//! the cache of its processor between the calls that touch them. Files travel in blocks of at most
//! 16 MiB, with a header before each block and, if that was asked for, a crc32c after it. The sink
//! creates each file under its own name and writes what a read brought. One such read may bring
//! many small files.

use super::{Block, HEAD_BYTES, blocks, create, on_all_streams, put_head, take_head};
use crate::tree;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const SLICE_BYTES: usize = 256 << 10;
const BLOCK_BYTES: usize = 16 << 20;
const SUM_BYTES: usize = 4;

/// Sends all files below a directory to the sink on this loopback port.
pub(super) fn source(root: &Path, port: u16, has_sums: bool) -> Result<()> {
    let files = tree::files(root)?;
    let blocks = blocks(&files, BLOCK_BYTES)?;
    let next = AtomicUsize::new(0);
    on_all_streams(|| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let mut buffer = vec![0; HEAD_BYTES + SLICE_BYTES + SUM_BYTES];
        while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            send(root, block, has_sums, &mut buffer, &mut stream)?;
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        stream.read_exact(&mut [0]).context("the bare sink failed")
    })
}

fn send(
    root: &Path,
    block: &Block<'_>,
    has_sums: bool,
    buffer: &mut [u8],
    stream: &mut TcpStream,
) -> Result<()> {
    let file = File::open(root.join(block.path))?;
    put_head(block, buffer)?;
    let (mut begin, mut sent, mut sum) = (HEAD_BYTES, 0, 0);
    loop {
        let mut end = begin + (block.length - sent).min(SLICE_BYTES);
        file.read_exact_at(&mut buffer[begin..end], block.offset + sent as u64)?;
        sent += end - begin;
        if has_sums {
            sum = crc32c::crc32c_append(sum, &buffer[begin..end]);
        }
        let is_last = sent == block.length;
        if is_last && has_sums {
            buffer[end..end + SUM_BYTES].copy_from_slice(&sum.to_le_bytes());
            end += SUM_BYTES;
        }
        stream.write_all(&buffer[..end])?;
        if is_last {
            return Ok(());
        }
        begin = 0;
    }
}

/// Receives files into a directory, from the streams that a listener accepts.
pub(super) fn sink(root: &Path, listener: &TcpListener, has_sums: bool) -> Result<()> {
    on_all_streams(|| {
        let (stream, _) = listener.accept()?;
        let mut arriving = Arriving { stream, buffer: vec![0; SLICE_BYTES], begin: 0, end: 0 };
        while let Some(head) = arriving.take(HEAD_BYTES)? {
            let (path, mut offset, length) =
                take_head(head.try_into().expect("as long as was asked for"))?;
            let file = create(&root.join(&path))?;
            let (mut left, mut sum) = (length, 0);
            while left > 0 {
                let bytes = arriving.take_some(left)?;
                if has_sums {
                    sum = crc32c::crc32c_append(sum, bytes);
                }
                file.write_all_at(bytes, offset)?;
                (offset, left) = (offset + bytes.len() as u64, left - bytes.len());
            }
            if has_sums {
                let told = arriving.take(SUM_BYTES)?.context("a block has no checksum")?;
                if told != sum.to_le_bytes() {
                    bail!("{} was damaged", path.display());
                }
            }
        }
        Ok(arriving.stream.write_all(&[1])?)
    })
}

/// What a stream brings, a buffer at a time.
struct Arriving {
    stream: TcpStream,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Arriving {
    /// Takes this many bytes; `None` at the end of the stream.
    fn take(&mut self, count: usize) -> Result<Option<&[u8]>> {
        if self.end - self.begin < count {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            while self.end < count {
                match self.stream.read(&mut self.buffer[self.end..])? {
                    0 if self.end == 0 => return Ok(None),
                    0 => bail!("the stream ends within a block"),
                    read => self.end += read,
                }
            }
        }
        self.begin += count;
        Ok(Some(&self.buffer[self.begin - count..self.begin]))
    }

    /// Takes what there is of the next `count` bytes, at least one.
    fn take_some(&mut self, count: usize) -> Result<&[u8]> {
        if self.begin == self.end {
            let room = count.min(self.buffer.len());
            (self.begin, self.end) = (0, self.stream.read(&mut self.buffer[..room])?);
            if self.end == 0 {
                bail!("the stream ends within a block");
            }
        }
        let begin = self.begin;
        self.begin += count.min(self.end - begin);
        Ok(&self.buffer[begin..self.begin])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;
    use std::thread;

    #[test]
    fn files_of_all_lengths_arrive_with_and_without_checksums() {
        for has_sums in [false, true] {
            let scratch = Scratch::new(&std::env::temp_dir(), "lads-slices").unwrap();
            let [source_root, target] = ["source", "target"].map(|name| scratch.join(name));
            fs::create_dir_all(source_root.join("below")).unwrap();
            fs::create_dir(&target).unwrap();
            for bytes in [0, 1, SLICE_BYTES - 1, SLICE_BYTES + 1, BLOCK_BYTES + 5] {
                let text: Vec<u8> = (0..=250).cycle().take(bytes).collect();
                fs::write(source_root.join(format!("below/{bytes}")), text).unwrap();
            }
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            thread::scope(|scope| {
                let sink = scope.spawn(|| sink(&target, &listener, has_sums));
                source(&source_root, port, has_sums).unwrap();
                sink.join().unwrap().unwrap();
            });
            tree::compare(&source_root, &target).unwrap();
        }
    }
}
