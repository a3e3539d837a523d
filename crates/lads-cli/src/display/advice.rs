//! Advice on what to do about a failure, by operation, side and reason.

use lads_core::issue::Operation::{
    self, Create, Examine, Link, List, Open, Preallocate, Read, Remove, Rename, SetMetadata, Sync,
    Write,
};
use lads_core::issue::Side::{self, Sink, Source};
use lads_core::issue::{Failure, Reason};

const AGAIN: &str = "run the same command again to resume";
const CHANGING: &str =
    "stop the program that writes to it, or move a snapshot; then run the same command again";
const OUTAGE: &str = "a storage server does not answer (on Lustre: `lfs check servers`); run the \
                      same command again when it does";

/// Returns one line of advice about a failure of the entry with this path.
pub(super) fn advice(failure: &Failure, path: &[u8], is_remote: bool) -> &'static str {
    match failure.reason {
        Reason::Os(ENOENT) if failure.side == Source => missing_advice(path, is_remote),
        Reason::Os(errno) => os_advice(failure.side, failure.operation, errno),
        Reason::Changed => CHANGING,
        Reason::Vanished if failure.operation == Read => CHANGING,
        Reason::SameFile => "SRC and DST lead to the same place: nothing was removed there",
        Reason::Vanished => "nothing to do if it was removed on purpose",
        Reason::Checksum => {
            "the network or the memory of a host damages data: have both checked, then run the \
             same command again"
        }
        Reason::Media => {
            "the storage there damages data: inform its administrator, and do not trust this file"
        }
        Reason::Special => {
            "to move such entries add -D (--devices for devices needs root); to read one as a file, \
             name it alone, with --copy-devices"
        }
        Reason::InTheWay if failure.side == Sink => {
            "move it out of the way, or let LADS replace it: --force, or --delete (mount points and \
             excluded entries stay)"
        }
        Reason::InTheWay => "move what is there out of the way, then run the same command again",
        Reason::ParentFailed => "see the message about its directory, which is the cause",
        Reason::UnsafeName => "exclude it (--exclude), or rename it at the source",
        Reason::Archived => "bring it back first (lfs hsm_restore), or add --restore",
        Reason::Dangling | Reason::Loop => {
            "exclude it with --exclude, or copy links as links (without --copy-links)"
        }
        Reason::LargeMetadata => "move it without its attributes (--no-xattrs)",
        Reason::Limit => "see with -n what is left, then allow more with --max-delete",
        Reason::ManyNames => "compare directories of it one by one, or with --exclude",
        Reason::TooDeep => {
            "move it in a transfer of its own, with a directory further down as the source; files \
             with several names also go with --no-hard-links"
        }
    }
}

/// Returns advice about a source that the user named and that does not exist.
fn missing_advice(path: &[u8], is_remote: bool) -> &'static str {
    let is_pattern = path.iter().any(|byte| b"*?[".contains(byte));
    match (is_remote, is_pattern) {
        (true, true) => {
            "patterns are not expanded on the other host: name the directory, and choose with \
             --include and --exclude"
        }
        (true, false) => {
            "see how it is spelled; there, a path that does not begin with / is below the home \
             directory"
        }
        (false, _) => "see how it is spelled, and from which directory",
    }
}

// The numbers are Linux's, because both ends exchange those.
const EPERM: i32 = 1;
pub(super) const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EXDEV: i32 = 18;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ETXTBSY: i32 = 26;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const ESPIPE: i32 = 29;
const EROFS: i32 = 30;
const EMLINK: i32 = 31;
const EPIPE: i32 = 32;
const ENAMETOOLONG: i32 = 36;
const ENOLCK: i32 = 37;
const ENOSYS: i32 = 38;
const ENOTEMPTY: i32 = 39;
const ELOOP: i32 = 40;
const EBADMSG: i32 = 74;
const EILSEQ: i32 = 84;
const EOPNOTSUPP: i32 = 95;
const ENOTCONN: i32 = 107;
const ESHUTDOWN: i32 = 108;
const ETIMEDOUT: i32 = 110;
const EHOSTDOWN: i32 = 112;
const EHOSTUNREACH: i32 = 113;
const ESTALE: i32 = 116;
const EUCLEAN: i32 = 117;
const EDQUOT: i32 = 122;
const ENOKEY: i32 = 126;
const EKEYEXPIRED: i32 = 127;
const EKEYREVOKED: i32 = 128;

fn os_advice(side: Side, operation: Operation, errno: i32) -> &'static str {
    match (side, operation, errno) {
        (Sink, _, ENOSPC) => {
            "free space or inodes there (on Lustre `lfs df` shows full OSTs), then run the same \
             command again to resume"
        }
        (_, _, EDQUOT) => {
            "free or raise the quota there (`quota`, `lfs quota`), then run the same command \
             again to resume"
        }
        (Source, Remove, EACCES | EPERM | EROFS) => {
            "it is at the sink: get permission to remove it, or leave out --remove-source-files"
        }
        (_, _, EROFS) => "that file system is mounted read-only: choose another DST",
        (Source, List | Examine | Open | Read, EACCES | EPERM) => {
            "get permission to read it, or leave it out with --exclude"
        }
        (Sink, SetMetadata, EPERM | EACCES) => {
            "its data is not at fault: add --no-owner, --no-perms or --no-xattrs for what is not \
             permitted there"
        }
        (Sink, Link, EPERM | EMLINK | EXDEV | ENOSYS | EOPNOTSUPP) => {
            "the file system there has no hard links, or the maximum number of links is reached: \
             add --no-hard-links"
        }
        (Sink, _, EACCES | EPERM) => "get permission to write there, or choose another DST",
        (Source, Examine, ENOTDIR) => "it is no directory: leave out the slash at its end",
        (Sink, _, ENOENT) => {
            "a directory at the sink was removed meanwhile: leave DST alone, and run the same \
             command again"
        }
        (_, Preallocate, EOPNOTSUPP | EINVAL) => "add --sink=preallocate=no",
        (Source, Open | Read, EINVAL) => "if it is direct I/O that fails: add --source io=buffered",
        (Sink, Write | Sync, EINVAL) => "if it is direct I/O that fails: add --sink io=buffered",
        (Sink, Create | Rename, ENAMETOOLONG | EILSEQ | EINVAL) => {
            "the file system there does not take this name: rename it at the source, or --exclude \
             it"
        }
        (Sink, _, EEXIST | ENOTDIR | EISDIR | ENOTEMPTY) => {
            "move what is there out of the way, then run the same command again"
        }
        (Sink, Remove, EBUSY) => {
            "something is mounted there: unmount it, or leave it out with --exclude or -x"
        }
        (Sink, _, EBUSY | ETXTBSY) => "a program there uses it: end it, then run again",
        (Sink, _, EPIPE) => "the program that reads it has ended",
        (Source, _, ESPIPE) => {
            "a part of it was lost on its way, and it cannot be read a second time: begin anew"
        }
        (Sink, _, EFBIG) => {
            "it is longer than the file system or `ulimit -f` there permits: change the limit, or \
             choose another DST"
        }
        (_, _, ELOOP) => "symbolic links lead in a circle there: repair them",
        (_, _, EMFILE | ENFILE) => "raise the number of open files there (`ulimit -n`)",
        (_, _, ENOMEM) => "free memory there, or give fewer --buffers",
        (_, _, EIO | EUCLEAN | EBADMSG) => {
            "the storage reports damage: inform its administrator; the same command tries again"
        }
        (_, _, ESTALE) => "it was replaced or its file system mounted anew; run again",
        (_, _, ENXIO | ENODEV | ENOTCONN | ESHUTDOWN | ETIMEDOUT | EHOSTDOWN | EHOSTUNREACH) => {
            OUTAGE
        }
        (_, _, ENOLCK) => "locks are exhausted there: inform its administrator, then run again",
        (_, _, ENOKEY | EKEYEXPIRED | EKEYREVOKED) => {
            "the key or ticket for this file system has expired: renew it (`kinit`), then run again"
        }
        _ => AGAIN,
    }
}
