//! The keys by which hosts and people know each other where no remote shell vouches for them:
//! Ed25519, of which the private part stays in a file of its owner.

use crate::whole::fill_random;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, fsync, openat};
use rustix::process::geteuid;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// The length of a public key, and of the seed of a private key, in bytes.
pub(crate) const KEY_BYTES: usize = 32;

/// The longest file that can hold a secret, in bytes: with some blanks around it.
const FILE_BYTES_MAX: u64 = 256;

/// What a public key begins with as text.
const PUBLIC: &str = "ed25519:";

/// A public key. As text, `ed25519:` and 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub(crate) [u8; KEY_BYTES]);

/// A private key and its public one.
#[derive(Clone)]
pub struct KeyPair {
    pair: Arc<Ed25519KeyPair>,
}

impl KeyPair {
    /// The pair with this seed (RFC 8032, section 5.1.5).
    pub(crate) fn from_seed(seed: &[u8; KEY_BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        Self { pair: Arc::new(pair.expect("each 32 bytes are a seed")) }
    }

    /// Signs a message.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }

    /// The key that others are given.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let bytes = self.pair.public_key().as_ref().try_into();
        PublicKey(bytes.expect("a public key has 32 bytes"))
    }

    /// Makes a file with a new private key, readable by its owner only; nothing is done if there is
    /// one.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn make(path: &Path) -> io::Result<()> {
        make_secret(path)
    }

    /// Reads a private key from a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not this user's alone, or contains no key.
    pub fn read(path: &Path) -> io::Result<Self> {
        read_secret(path).map(|seed| Self::from_seed(&seed))
    }
}

/// Without the private key.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyPair").field(&self.public()).finish()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PUBLIC)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = text.strip_prefix(PUBLIC).and_then(from_hex).map(Self);
        key.ok_or_else(|| format!("a public key is {PUBLIC} and 64 hex digits, and not {text:?}"))
    }
}

/// Makes a file with 32 random bytes as hex digits, readable by its owner only; nothing is done if
/// there is one.
///
/// # Errors
/// If the file cannot be made.
pub(crate) fn make_secret(path: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) {
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        result => result?,
    };
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    let mut secret = [0; KEY_BYTES];
    fill_random(&mut secret)?;
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = File::from(file);
    writeln!(file, "{digits}")?;
    fsync(&file)?;
    Ok(())
}

/// Reads 32 secret bytes from a file.
///
/// # Errors
/// If the file cannot be read, is not this user's alone, or contains something else.
pub(crate) fn read_secret(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    // A FIFO must not hold up whoever reads it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    if stat.st_mode & 0o077 != 0 || (stat.st_uid != geteuid().as_raw() && stat.st_uid != 0) {
        return Err(io::Error::other(
            "other users can read it: it must belong to you, with mode 600 (chmod 600)",
        ));
    }
    let mut text = String::new();
    File::from(file).take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    from_hex(text.trim()).ok_or_else(|| io::Error::other("it does not hold 64 hex digits"))
}

fn from_hex(digits: &str) -> Option<[u8; KEY_BYTES]> {
    let is_hex = digits.len() == 2 * KEY_BYTES && digits.bytes().all(|it| it.is_ascii_hexdigit());
    let byte = |index: usize| u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok();
    let mut bytes = [0; KEY_BYTES];
    for (index, place) in bytes.iter_mut().enumerate().filter(|_| is_hex) {
        *place = byte(index)?;
    }
    is_hex.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_made_once_and_read_back() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        KeyPair::make(&path).unwrap();
        let key = KeyPair::read(&path).unwrap();
        KeyPair::make(&path).unwrap();
        assert_eq!(KeyPair::read(&path).unwrap().public(), key.public());
        assert_ne!(read_secret(&path).unwrap(), [0; KEY_BYTES]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        KeyPair::make(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = KeyPair::read(&path).unwrap_err().to_string();
        assert!(error.contains("other users can read it"), "{error}");
    }

    #[test]
    fn only_64_hex_digits_are_a_secret() {
        assert!(from_hex(&"0".repeat(64)).is_some());
        for wrong in ["", "xyz", &"0".repeat(63), &"0".repeat(65), &"+1".repeat(32)] {
            assert!(from_hex(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_public_key_is_the_same_after_a_trip_through_text() {
        // RFC 8032, section 7.1, test 1.
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let key = KeyPair::from_seed(&from_hex(seed).unwrap()).public();
        let text = key.to_string();
        assert_eq!(
            text,
            "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
        );
        assert_eq!(text.parse(), Ok(key));
        for wrong in ["", "ed25519:", &text[8..], &text[..71], "ssh-ed25519 AAAA"] {
            assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_private_key_is_not_shown() {
        let key = KeyPair::from_seed(&[7; KEY_BYTES]);
        assert_eq!(format!("{key:?}"), format!("KeyPair({})", key.public()));
    }
}
