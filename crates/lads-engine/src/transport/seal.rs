//! What protects the bytes of a connection: records, below the frames.
//!
//! ```text
//!   length (4 bytes) │ at most 64 KiB, encrypted │ tag (16 bytes)
//! ```
//!
//! Both ends have a secret that came over another way that is encrypted and authenticated, such as
//! a remote shell. From it and from a random salt, which the end that connects sends in clear,
//! follow a key for each direction. Each record has the number of those before it in its nonce and
//! its length in what the tag covers: a record that is changed, missing, repeated, out of order, or
//! of another connection or direction ends the connection. Whoever ends a connection between two
//! records looks like its end: what is done is said by messages, not by the end of a stream.
//!
//! A record ends where the first of some pieces ends, and is read directly into the place where its
//! bytes belong, if there is room for all of them. `docs/decisions` says why this is no TLS.

use crate::whole::fill_random;
use lads_core::protection::Protection;
use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

/// The most bytes of a record. They stay in the cache of the processor between the system call and
/// the cipher.
const RECORD_BYTES: usize = 64 << 10;
/// The length of a record, before it.
const LENGTH_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
/// The most records of a payload that are written by one call.
const RECORDS_WRITTEN: usize = 4;
/// The most bytes of records that are written by one call.
const WRITTEN_BYTES: usize = RECORDS_WRITTEN * (LENGTH_BYTES + RECORD_BYTES + TAG_BYTES);

/// Records with one key: 256 GiB. AES-GCM keeps its promises for 2^34.5 blocks of 16 bytes, twice
/// as many (RFC 8446, section 5.5, where a record has 2^10 blocks). A new key takes a microsecond.
const RECORDS_MAX: u64 = 1 << 22;

/// The length of a secret, in bytes.
pub(crate) const SECRET_BYTES: usize = 32;
/// The length of a salt, in bytes.
pub(crate) const SALT_BYTES: usize = 16;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It connects.
    Connects,
    /// It listens.
    Listens,
}

/// What protects a connection, in both directions.
pub(crate) struct Seals {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
}

/// Makes records.
pub(crate) struct Sealer {
    key: RecordKey,
    records: Vec<u8>,
}

/// Reads records.
pub(crate) struct Opener {
    key: RecordKey,
    /// The length of the next record, as far as it has come.
    length: [u8; LENGTH_BYTES],
    length_filled: usize,
    /// A record that was longer than what was asked for, and how much of it was taken.
    rest: Vec<u8>,
    taken: usize,
}

/// The key of one direction.
struct RecordKey {
    kind: Kind,
    /// What the next key follows from.
    secret: [u8; SECRET_BYTES],
    /// Records with this key.
    count: u64,
    count_max: u64,
}

enum Kind {
    /// Encrypted.
    Aead(Box<LessSafeKey>),
    /// In clear, with a code that only the other end can make.
    Mac([u8; SECRET_BYTES]),
}

/// A token that shows that its owner has the secret, and nothing of the secret.
pub(crate) fn token(secret: &[u8; SECRET_BYTES]) -> [u8; 32] {
    derive("lads 2026-11-29 token of a connection", &[secret])
}

/// A random salt for a connection.
///
/// # Errors
/// If the host has no random bytes.
pub(crate) fn salt() -> io::Result<[u8; SALT_BYTES]> {
    let mut salt = [0; SALT_BYTES];
    fill_random(&mut salt).map(|()| salt)
}

/// Reports whether this host has instructions for AES: without, it takes longer than `ChaCha20`.
#[must_use]
pub fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    let has = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has = false;
    has
}

impl Seals {
    /// Those of a connection with this salt; `None` if nothing protects it.
    pub(crate) fn new(
        protection: Protection,
        secret: &[u8; SECRET_BYTES],
        salt: &[u8; SALT_BYTES],
        role: Role,
    ) -> Option<Self> {
        let of_connecting = derive("lads 2026-11-29 records of who connects", &[secret, salt]);
        let of_listening = derive("lads 2026-11-29 records of who listens", &[secret, salt]);
        let (own, other) = match role {
            Role::Connects => (of_connecting, of_listening),
            Role::Listens => (of_listening, of_connecting),
        };
        let key = |secret| RecordKey::new(protection, secret, RECORDS_MAX);
        Some(Self { sealer: Sealer::new(key(own)?), opener: Opener::new(key(other)?) })
    }
}

impl Sealer {
    fn new(key: RecordKey) -> Self {
        Self { key, records: Vec::new() }
    }

    /// Writes these pieces, with `write`, which writes all that it is given. The first one has a
    /// record of its own.
    ///
    /// # Errors
    /// Those of `write`. Then nothing more can be written.
    pub(crate) fn write(
        &mut self,
        pieces: &[IoSlice<'_>],
        write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.write_after(1, pieces, write)
    }

    /// The same; the first `head_count` pieces have a record of their own.
    ///
    /// # Errors
    /// Those of `write`. Then nothing more can be written.
    pub(crate) fn write_after(
        &mut self,
        head_count: usize,
        pieces: &[IoSlice<'_>],
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.records.clear();
        let mut begin = 0;
        for (index, piece) in pieces.iter().enumerate() {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                if self.records.len() == begin {
                    self.records.extend([0; LENGTH_BYTES]);
                }
                let room = begin + LENGTH_BYTES + RECORD_BYTES - self.records.len();
                let (now, later) = rest.split_at(rest.len().min(room));
                self.records.extend_from_slice(now);
                rest = later;
                if now.len() == room {
                    self.end_record(&mut begin, &mut write)?;
                }
            }
            if index + 1 == head_count {
                self.end_record(&mut begin, &mut write)?;
            }
        }
        self.end_record(&mut begin, &mut write)?;
        if self.records.is_empty() { Ok(()) } else { write(&self.records) }
    }

    /// As [`Self::write_after`] with a payload behind the heads that is encrypted in its place.
    ///
    /// # Errors
    /// Those of `write`. Then nothing more can be written.
    pub(crate) fn write_last(
        &mut self,
        heads: &[&[u8]],
        payload: &mut [u8],
        mut write: impl FnMut(&mut [IoSlice<'_>]) -> io::Result<()>,
    ) -> io::Result<()> {
        // The record of the heads goes before those of the payload.
        self.records.clear();
        self.records.extend([0; LENGTH_BYTES]);
        heads.iter().for_each(|head| self.records.extend_from_slice(head));
        self.seal_from(0);
        let mut some = payload.chunks_mut(RECORDS_WRITTEN * RECORD_BYTES).peekable();
        if some.peek().is_none() {
            return write(&mut [IoSlice::new(&self.records)]);
        }
        for payload in some {
            let mut edges = [([0; LENGTH_BYTES], [0; TAG_BYTES]); RECORDS_WRITTEN];
            let records = payload.chunks_mut(RECORD_BYTES);
            for ((length, tag), record) in edges.iter_mut().zip(records) {
                *length = length_of(record);
                *tag = self.key.seal(*length, record);
            }
            let mut pieces = [IoSlice::new(&[]); 1 + 3 * RECORDS_WRITTEN];
            let mut count = 1;
            pieces[0] = IoSlice::new(&self.records);
            for ((length, tag), record) in edges.iter().zip(payload.chunks(RECORD_BYTES)) {
                for part in [&length[..], record, tag] {
                    pieces[count] = IoSlice::new(part);
                    count += 1;
                }
            }
            write(&mut pieces[..count])?;
            self.records.clear();
        }
        Ok(())
    }

    /// Seals the record that begins there.
    fn seal_from(&mut self, begin: usize) {
        let (head, body) = self.records[begin..].split_at_mut(LENGTH_BYTES);
        let length = length_of(body);
        head.copy_from_slice(&length);
        let tag = self.key.seal(length, body);
        self.records.extend_from_slice(&tag);
    }

    /// Seals the record that begins there, if there is one, and writes all if there is enough.
    fn end_record(
        &mut self,
        begin: &mut usize,
        write: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.records.len() == *begin {
            return Ok(());
        }
        self.seal_from(*begin);
        *begin = self.records.len();
        if *begin + LENGTH_BYTES + RECORD_BYTES + TAG_BYTES > WRITTEN_BYTES {
            write(&self.records)?;
            self.records.clear();
            *begin = 0;
        }
        Ok(())
    }
}

fn length_of(body: &[u8]) -> [u8; LENGTH_BYTES] {
    u32::try_from(body.len()).expect("at most a record").to_le_bytes()
}

impl Opener {
    fn new(key: RecordKey) -> Self {
        Self { key, length: [0; LENGTH_BYTES], length_filled: 0, rest: Vec::new(), taken: 0 }
    }

    /// Reads at least one byte to `wanted`, with `read`, which may return fewer bytes than there is
    /// room for. Returns how many; 0 if the connection ends between two records.
    ///
    /// # Errors
    /// Those of `read`; if the connection ends within a record, or a record is not genuine. Then
    /// nothing of it is in `wanted`, and nothing more can be read.
    pub(crate) fn read(
        &mut self,
        wanted: &mut [u8],
        mut read: impl FnMut(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.taken < self.rest.len() {
            return Ok(self.take_rest(wanted));
        }
        while self.length_filled < LENGTH_BYTES {
            let mut to = [IoSliceMut::new(&mut self.length[self.length_filled..])];
            match read(&mut to)? {
                0 if self.length_filled == 0 => return Ok(0),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.length_filled += count,
            }
        }
        let bytes = u32::from_le_bytes(self.length) as usize;
        if bytes == 0 || bytes > RECORD_BYTES {
            return Err(not_genuine());
        }
        if bytes <= wanted.len() {
            self.read_record(&mut wanted[..bytes], &mut read)?;
            return Ok(bytes);
        }
        let mut record = std::mem::take(&mut self.rest);
        record.resize(bytes, 0);
        self.read_record(&mut record, &mut read)?;
        (self.rest, self.taken) = (record, 0);
        Ok(self.take_rest(wanted))
    }

    fn take_rest(&mut self, wanted: &mut [u8]) -> usize {
        let rest = &self.rest[self.taken..];
        let count = rest.len().min(wanted.len());
        wanted[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        count
    }

    /// Reads the record whose length has come, and the length of the next one if it is there.
    fn read_record(
        &mut self,
        body: &mut [u8],
        read: &mut impl FnMut(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let length = self.length;
        let (mut tag, mut filled) = ([0; TAG_BYTES], 0);
        let whole = body.len() + TAG_BYTES;
        while filled < whole {
            let in_tag = filled.saturating_sub(body.len());
            let in_body = filled.min(body.len());
            let mut to = [&mut body[in_body..], &mut tag[in_tag..], &mut self.length[..]]
                .map(IoSliceMut::new);
            let first = usize::from(in_body == whole - TAG_BYTES);
            match read(&mut to[first..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        self.length_filled = filled - whole;
        self.key.open(length, body, tag)
    }
}

impl RecordKey {
    fn new(protection: Protection, secret: [u8; SECRET_BYTES], count_max: u64) -> Option<Self> {
        let aead = |algorithm: &'static ring::aead::Algorithm, context| {
            let key = derive(context, &[&secret]);
            let key = UnboundKey::new(algorithm, &key[..algorithm.key_len()]);
            Kind::Aead(Box::new(LessSafeKey::new(key.expect("it has the length of a key"))))
        };
        let kind = match protection {
            Protection::Plain => return None,
            Protection::Authenticated => {
                Kind::Mac(derive("lads 2026-11-29 keyed BLAKE3", &[&secret]))
            }
            Protection::Aes128Gcm => aead(&AES_128_GCM, "lads 2026-11-29 AES-128-GCM"),
            Protection::ChaCha20Poly1305 => {
                aead(&CHACHA20_POLY1305, "lads 2026-11-29 ChaCha20-Poly1305")
            }
        };
        Some(Self { kind, secret, count: 0, count_max })
    }

    /// The number of the next record with this key; a new key if this one has enough.
    fn next(&mut self) -> u64 {
        if self.count == self.count_max {
            let secret = derive("lads 2026-11-29 next key", &[&self.secret]);
            let next = Self::new(self.protection(), secret, self.count_max);
            *self = next.expect("it is protected");
        }
        self.count += 1;
        self.count - 1
    }

    fn protection(&self) -> Protection {
        match &self.kind {
            Kind::Mac(_) => Protection::Authenticated,
            Kind::Aead(key) if *key.algorithm() == AES_128_GCM => Protection::Aes128Gcm,
            Kind::Aead(_) => Protection::ChaCha20Poly1305,
        }
    }

    fn seal(&mut self, length: [u8; LENGTH_BYTES], body: &mut [u8]) -> [u8; TAG_BYTES] {
        let number = self.next();
        match &self.kind {
            Kind::Aead(key) => {
                let tag = key.seal_in_place_separate_tag(nonce(number), Aad::from(length), body);
                let tag = tag.expect("a record is far below the limit of the cipher");
                tag.as_ref().try_into().expect("it has 16 bytes")
            }
            Kind::Mac(key) => mac(key, number, length, body),
        }
    }

    fn open(
        &mut self,
        length: [u8; LENGTH_BYTES],
        body: &mut [u8],
        tag: [u8; TAG_BYTES],
    ) -> io::Result<()> {
        let number = self.next();
        let is_genuine = match &self.kind {
            Kind::Aead(key) => {
                let (nonce, tag) = (nonce(number), Tag::from(tag));
                let opened =
                    key.open_in_place_separate_tag(nonce, Aad::from(length), tag, body, 0..);
                opened.is_ok()
            }
            Kind::Mac(key) => {
                let own = mac(key, number, length, body);
                let is_same = own.iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b)) == 0;
                if !is_same {
                    body.fill(0);
                }
                is_same
            }
        };
        if is_genuine { Ok(()) } else { Err(not_genuine()) }
    }
}

/// Without the key.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

/// Without the key.
impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}

fn not_genuine() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the data on a connection was changed on its way")
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn mac(
    key: &[u8; SECRET_BYTES],
    number: u64,
    length: [u8; LENGTH_BYTES],
    body: &[u8],
) -> [u8; TAG_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&number.to_le_bytes()).update(&length).update(body);
    let mut tag = [0; TAG_BYTES];
    hasher.finalize_xof().fill(&mut tag);
    tag
}

fn derive(context: &str, from: &[&[u8]]) -> [u8; SECRET_BYTES] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    from.iter().for_each(|part| {
        hasher.update(part);
    });
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests;
