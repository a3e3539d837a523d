//! A job as an argument of the command that starts the other end.
//!
//! It is said again on standard input, and must be the same there. A command that was set for the
//! key of a user (`command=` in `authorized_keys`) gets no argument; then that is all there is.
//! Whoever looks at the processes of the other host sees what is moved there, as with rsync. The
//! tokens of the data streams are never arguments.

use lads_core::schema::DIGEST;

/// A job, as text that no shell changes: the digest of the wire, then the job.
pub(super) fn argument(job: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity((DIGEST.len() + job.len()) * 2);
    for byte in DIGEST.iter().chain(job) {
        write!(text, "{byte:02x}").expect("text has room");
    }
    text
}

/// The job in an argument. `None` if another build has made it: what follows on standard input says
/// which one.
pub(super) fn job(argument: &str) -> Option<Vec<u8>> {
    let digits = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok().filter(|it| !it.starts_with('+'))?;
        u8::from_str_radix(text, 16).ok()
    };
    let (pairs, rest) = argument.as_bytes().as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|pair| digits(pair)).collect::<Option<_>>()?;
    let job = bytes.strip_prefix(&DIGEST)?;
    rest.is_empty().then(|| job.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        for bytes in [&b""[..], &[0, 255, b'\n', 16], &[7; 300]] {
            assert_eq!(job(&argument(bytes)).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn what_is_no_job_of_this_build_is_none() {
        let own = argument(b"job");
        let other = format!("{}{}", if own.starts_with('0') { '1' } else { '0' }, &own[1..]);
        let cut = &own[..own.len() - 1];
        for text in ["", "serve", "é", &other, cut, &format!("{own}+1"), &own[..8]] {
            assert_eq!(job(text), None, "{text}");
        }
    }
}
