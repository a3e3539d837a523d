//! The secret that a client of remote files shows: 256 random bits, in a file as 64 hex digits.

use crate::whole::fill_random;
use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, fsync, openat};
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The longest file that can hold a token, in bytes: with some blanks around it.
const FILE_BYTES_MAX: u64 = 256;

/// The secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(pub(super) [u8; 32]);

/// Does not show it.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Makes a file with a new token, readable by its owner only; nothing is done if there is one.
///
/// # Errors
/// If the file cannot be made.
pub fn make_token(path: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) {
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        result => result?,
    };
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    let mut token = [0; 32];
    fill_random(&mut token)?;
    let digits: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = File::from(file);
    writeln!(file, "{digits}")?;
    fsync(&file)?;
    Ok(())
}

/// Reads a token from a file.
///
/// # Errors
/// If the file cannot be read, is not this user's alone, or holds no token.
pub fn read_token(path: &Path) -> io::Result<Token> {
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
    parse(text.trim()).ok_or_else(|| io::Error::other("it does not hold 64 hex digits"))
}

fn parse(digits: &str) -> Option<Token> {
    let is_hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |index: usize| u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok();
    let mut token = [0; 32];
    for (index, place) in token.iter_mut().enumerate().filter(|_| is_hex) {
        *place = byte(index)?;
    }
    is_hex.then_some(Token(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_and_read_back() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        make_token(&path).unwrap();
        let token = read_token(&path).unwrap();
        make_token(&path).unwrap();
        assert_eq!(read_token(&path).unwrap(), token);
        assert_ne!(token.0, [0; 32]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        make_token(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        read_token(&path).unwrap_err();
    }

    #[test]
    fn what_is_no_token_is_refused() {
        assert_eq!(parse(&"0a".repeat(32)), Some(Token([10; 32])));
        for digits in [String::new(), "0a".repeat(31), "0a".repeat(33), "+a".repeat(32)] {
            assert_eq!(parse(&digits), None, "{digits}");
        }
    }
}
