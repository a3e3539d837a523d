//! A mover that does what WDT does, and nothing else.
//!
//! Facebook's WDT (<https://github.com/facebook/wdt>, `SenderThread.cpp`, `ReceiverThread.cpp`) has
//! one thread for each stream at both ends. Each has one buffer of 256 KiB, so the bytes stay in
//! the cache of its processor between the calls that touch them. Files travel in blocks of at most
//! 16 MiB, with a header before each block and, if that was asked for, a crc32c after it. The sink
//! creates each file under its own name and writes what a read brought. One such read may bring
//! many small files.
//!
//! With promises, it calls the system as often for each file as LADS must: the source looks for
//! extended attributes, and sees that the file has not changed; the sink makes a file without a
//! name, compares its checksum, sets its time, syncs it, and gives it its name. So it shows what
//! these promises cost at least. Only files of one block are possible.

use super::{Block, HEAD_BYTES, blocks, create, is_read, on_all_streams, put_head, take_head};
use crate::tree;
use anyhow::{Context, Result, anyhow, bail};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustix::fs::{
    AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, futimens, linkat, llistxattr, openat,
};
use std::fs::{self, File, Metadata};
use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const SLICE_BYTES: usize = 256 << 10;
const BLOCK_BYTES: usize = 16 << 20;
/// What follows a block: its checksum, and the time of the last change of its file.
const TAIL_BYTES: usize = 16;

/// What is done for each file beside moving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// Nothing.
    No,
    /// A checksum.
    Sums,
    /// All that LADS promises.
    Promises,
    /// Encryption.
    Sealed,
}

impl Care {
    /// Whether something follows each block.
    fn has_tail(self) -> bool {
        matches!(self, Self::Sums | Self::Promises)
    }
}

/// Sends all files below a directory to the sink on this loopback port.
pub(super) fn source(root: &Path, port: u16, care: Care) -> Result<()> {
    let files = tree::files(root)?;
    let blocks = blocks(&files, BLOCK_BYTES)?;
    let next = AtomicUsize::new(0);
    on_all_streams(|| {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let mut stream = Link::new(stream, care);
        let mut buffer = vec![0; HEAD_BYTES + SLICE_BYTES + TAIL_BYTES];
        while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            send(root, block, care, &mut buffer, &mut stream)?;
        }
        stream.stream.shutdown(std::net::Shutdown::Write)?;
        stream.stream.read_exact(&mut [0]).context("the bare sink failed")
    })
}

fn send(
    root: &Path,
    block: &Block<'_>,
    care: Care,
    buffer: &mut [u8],
    stream: &mut Link,
) -> Result<()> {
    let path = root.join(block.path);
    let before = match care {
        Care::Promises => {
            llistxattr(&path, &mut [0_u8; 256][..])?;
            Some(path.symlink_metadata()?)
        }
        _ => None,
    };
    let file = File::open(path)?;
    put_head(block, buffer)?;
    let (mut begin, mut sent, mut sum) = (HEAD_BYTES, 0, 0);
    loop {
        let mut end = begin + (block.length - sent).min(SLICE_BYTES);
        file.read_exact_at(&mut buffer[begin..end], block.offset + sent as u64)?;
        sent += end - begin;
        if care.has_tail() {
            sum = crc32c::crc32c_append(sum, &buffer[begin..end]);
        }
        let is_last = sent == block.length;
        if is_last && care.has_tail() {
            let (seconds, nanos) = match &before {
                Some(before) => {
                    let after = file.metadata()?;
                    let time = |it: &Metadata| (it.mtime(), it.mtime_nsec());
                    if time(&after) != time(before) {
                        bail!("{} has changed", block.path.display());
                    }
                    time(&after)
                }
                None => (0, 0),
            };
            let tail = &mut buffer[end..end + TAIL_BYTES];
            tail[..4].copy_from_slice(&sum.to_le_bytes());
            tail[4..12].copy_from_slice(&seconds.to_le_bytes());
            tail[12..].copy_from_slice(&u32::try_from(nanos)?.to_le_bytes());
            end += TAIL_BYTES;
        }
        stream.send(&mut buffer[..end])?;
        if is_last {
            return Ok(());
        }
        begin = 0;
    }
}

/// Receives files into a directory, from the streams that a listener accepts.
pub(super) fn sink(root: &Path, listener: &TcpListener, care: Care) -> Result<()> {
    on_all_streams(|| {
        let (stream, _) = listener.accept()?;
        let buffer = vec![0; HEAD_BYTES + SLICE_BYTES + TAIL_BYTES];
        let stream = Link::new(stream, care);
        let mut arriving = Arriving { stream, buffer, begin: 0, end: 0 };
        let mut unnamed = Unnamed::default();
        while let Some(head) = arriving.take(HEAD_BYTES)? {
            let (path, mut offset, length) =
                take_head(head.try_into().expect("as long as was asked for"))?;
            let path = root.join(path);
            let file = match care {
                Care::Promises => unnamed.make(&path)?,
                _ => create(&path)?,
            };
            let (mut left, mut sum) = (length, 0);
            while left > 0 {
                let bytes = arriving.take_some(left)?;
                if care.has_tail() {
                    sum = crc32c::crc32c_append(sum, bytes);
                }
                file.write_all_at(bytes, offset)?;
                (offset, left) = (offset + bytes.len() as u64, left - bytes.len());
            }
            if !care.has_tail() {
                continue;
            }
            let tail = arriving.take(TAIL_BYTES)?.context("a block has no checksum")?;
            if tail[..4] != sum.to_le_bytes() {
                bail!("{} was damaged", path.display());
            }
            if care == Care::Promises {
                unnamed.finish(&file, &path, tail)?;
            }
        }
        Ok(arriving.stream.stream.write_all(&[1])?)
    })
}

/// Makes files that have no name until they are whole.
#[derive(Default)]
struct Unnamed {
    /// The directory of the last one, which is kept open.
    directory: Option<(PathBuf, File)>,
}

impl Unnamed {
    fn make(&mut self, path: &Path) -> Result<File> {
        let above = path.parent().context("every file has a directory")?;
        if self.directory.as_ref().is_none_or(|(path, _)| path != above) {
            fs::create_dir_all(above)?;
            self.directory = Some((above.to_owned(), File::open(above)?));
        }
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Ok(openat(self.directory()?, ".", flags, Mode::from_raw_mode(0o644))?.into())
    }

    fn finish(&self, file: &File, path: &Path, tail: &[u8]) -> Result<()> {
        let (seconds, nanos) = tail[4..].split_first_chunk().context("a tail is too short")?;
        let last_modification = Timespec {
            tv_sec: i64::from_le_bytes(*seconds),
            tv_nsec: u32::from_le_bytes(nanos.try_into()?).into(),
        };
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        futimens(file, &Timestamps { last_access, last_modification })?;
        file.sync_all()?;
        let name = path.file_name().context("every file has a name")?;
        Ok(linkat(file, "", self.directory()?, name, AtFlags::EMPTY_PATH)?)
    }

    fn directory(&self) -> Result<&File> {
        Ok(&self.directory.as_ref().context("no directory is open")?.1)
    }
}

/// A stream, and what encrypts it, as WDT does: AES-128-GCM in the buffer itself. Here, each buffer
/// is a record. Nobody has agreed on the key, so this protects nothing.
struct Link {
    stream: TcpStream,
    key: Option<LessSafeKey>,
    number: u64,
}

impl Link {
    fn new(stream: TcpStream, care: Care) -> Self {
        let key = || LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("its length"));
        Self { stream, key: (care == Care::Sealed).then(key), number: 0 }
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.number.to_le_bytes());
        self.number += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn send(&mut self, bytes: &mut [u8]) -> Result<()> {
        let nonce = self.nonce();
        let Some(key) = &self.key else { return Ok(self.stream.write_all(bytes)?) };
        let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), bytes);
        let tag = tag.map_err(|_| anyhow!("cannot encrypt"))?;
        let head = u32::try_from(bytes.len())?.to_le_bytes();
        let mut pieces = [&head, &*bytes, tag.as_ref()].map(IoSlice::new);
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            let count = self.stream.write_vectored(left)?;
            IoSlice::advance_slices(&mut left, count);
        }
        Ok(())
    }

    /// Reads at least one byte, or a whole record. Returns how many; 0 at the end of the stream.
    fn receive(&mut self, to: &mut [u8]) -> Result<usize> {
        let nonce = self.nonce();
        let Some(key) = &self.key else { return Ok(self.stream.read(to)?) };
        let mut head = [0; 4];
        if !is_read(&mut self.stream, &mut head)? {
            return Ok(0);
        }
        let count = u32::from_le_bytes(head) as usize;
        let record = to.get_mut(..count).context("a record is too long")?;
        let mut tag = [0; 16];
        self.stream.read_exact(record)?;
        self.stream.read_exact(&mut tag)?;
        key.open_in_place_separate_tag(nonce, Aad::empty(), tag.into(), record, 0..)
            .map_err(|_| anyhow!("a record was damaged"))?;
        Ok(count)
    }
}

/// What a stream brings, a buffer at a time.
struct Arriving {
    stream: Link,
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
                match self.stream.receive(&mut self.buffer[self.end..])? {
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
            let room = match self.stream.key {
                Some(_) => self.buffer.len(),
                None => count.min(self.buffer.len()),
            };
            (self.begin, self.end) = (0, self.stream.receive(&mut self.buffer[..room])?);
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
    fn files_of_all_lengths_arrive_with_and_without_care() {
        for care in [Care::No, Care::Sums, Care::Promises, Care::Sealed] {
            let scratch = Scratch::new(Path::new("/dev/shm"), "lads-slices").unwrap();
            let [source_root, target] = ["source", "target"].map(|name| scratch.join(name));
            fs::create_dir_all(source_root.join("below")).unwrap();
            fs::create_dir(&target).unwrap();
            let more = if care == Care::Promises { BLOCK_BYTES } else { BLOCK_BYTES + 5 };
            for bytes in [0, 1, SLICE_BYTES - 1, SLICE_BYTES + 1, more] {
                let text: Vec<u8> = (0..=250).cycle().take(bytes).collect();
                fs::write(source_root.join(format!("below/{bytes}")), text).unwrap();
            }
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            thread::scope(|scope| {
                let sink = scope.spawn(|| sink(&target, &listener, care));
                source(&source_root, port, care).unwrap();
                sink.join().unwrap().unwrap();
            });
            tree::compare(&source_root, &target).unwrap();
            if care == Care::Promises {
                let times = [&source_root, &target].map(|it| it.join("below/1"));
                let [from, to] = times.map(|it| it.metadata().unwrap().modified().unwrap());
                assert_eq!(from, to);
            }
        }
    }
}
