//! Advice on what to do about a failure, by operation, side and reason.

use lads_core::issue::Operation::{
    self, Create, Examine, Link, List, Open, Preallocate, Read, Remove, Rename, SetMetadata, Sync,
    Write,
};
use lads_core::issue::Side::{self, Sink, Source};
use lads_core::issue::{Failure, Reason};
use lads_engine::is_daemon;

const AGAIN: &str = "run the same command again to resume";
const CHANGING: &str =
    "stop the program that writes to it, or move a snapshot; then run the same command again";
const OUTAGE: &str = "a storage server does not answer (on Lustre: `lfs check servers`); run the \
                      same command again when it does";

/// Returns one line of advice about a failure of the entry with this path.
pub(super) fn advice(failure: &Failure, path: &[u8], host: Option<&str>) -> &'static str {
    match failure.reason {
        Reason::Os(ENOENT) if failure.side == Source => missing_advice(path, host),
        Reason::Os(errno) => os_advice(failure.side, failure.operation, errno),
        Reason::Changed => CHANGING,
        Reason::Vanished if failure.operation == Read => CHANGING,
        Reason::SameFile => "SRC and DST lead to the same place: nothing was removed there",
        Reason::Vanished => "nothing to do if it was removed on purpose",
        Reason::Checksum => {
            "the network or the memory of a host corrupts data: check both, then run the same \
             command again"
        }
        Reason::Media => {
            "the storage there corrupts data: inform its administrator, and do not trust this \
             file"
        }
        Reason::Special => {
            "to move such entries add -D (--devices for devices needs root); to read one as a \
             file, give it as the only SRC, with --copy-devices"
        }
        Reason::InTheWay if failure.side == Sink => {
            "move it out of the way, or let LADS replace it with --force or --delete (mount points \
             and excluded entries are kept)"
        }
        Reason::InTheWay => {
            "move the existing entry out of the way, then run the same command again"
        }
        Reason::ParentFailed => "see the message about its directory, which is the cause",
        Reason::UnsafeName => "exclude it (--exclude), or rename it at the source",
        Reason::Archived => "restore it first (lfs hsm_restore), or add --restore",
        Reason::Dangling | Reason::Loop => {
            "exclude it with --exclude, or copy links as links (without --copy-links)"
        }
        Reason::LargeMetadata => "move it without its attributes (--no-xattrs)",
        Reason::Limit => "list the remaining entries with -n, then raise --max-delete",
        Reason::ManyNames => "compare its subdirectories one by one, or use --exclude",
        Reason::TooDeep => {
            "move it in a separate transfer, with a deeper directory as the source; files with \
             several names can also be moved with --no-hard-links"
        }
    }
}

/// Returns advice about a source that the user named and that does not exist.
fn missing_advice(path: &[u8], host: Option<&str>) -> &'static str {
    let is_pattern = path.iter().any(|byte| b"*?[".contains(byte));
    match (host, is_pattern) {
        (Some(_), true) => {
            "patterns are not expanded on the other host: name the directory, and choose with \
             --include and --exclude"
        }
        (Some(host), false) if is_daemon(host) => {
            "check its spelling; it is below the directory that this host offers to your key"
        }
        (Some(_), false) => {
            "check its spelling; there, a path that does not begin with / is relative to the home \
             directory"
        }
        (None, _) => "check its spelling and the working directory",
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
            "it is at the sink: get permission to remove it, or omit --remove-source-files"
        }
        (_, _, EROFS) => "that file system is mounted read-only: choose another DST",
        (Source, List | Examine | Open | Read, EACCES | EPERM) => {
            "get permission to read it, or skip it with --exclude"
        }
        (Sink, SetMetadata, EPERM | EACCES) => {
            "the metadata is the cause, not the data: add --no-owner, --no-perms or --no-xattrs for \
             metadata that is not permitted there"
        }
        (Sink, Link, EPERM | EMLINK | EXDEV | ENOSYS | EOPNOTSUPP) => {
            "the file system there has no hard links, or the maximum number of links is reached: \
             add --no-hard-links"
        }
        (Sink, _, EACCES | EPERM) => "get permission to write there, or choose another DST",
        (Source, Examine, ENOTDIR) => "it is not a directory: omit the slash at its end",
        (Sink, _, ENOENT) => {
            "a directory at the sink was removed during the transfer: do not change DST, and run \
             the same command again"
        }
        (_, Preallocate, EOPNOTSUPP | EINVAL) => "add --sink=preallocate=no",
        (Source, Open | Read, EINVAL) => "if direct I/O is the cause, add --source io=buffered",
        (Sink, Write | Sync, EINVAL) => "if direct I/O is the cause, add --sink io=buffered",
        (Sink, Create | Rename, ENAMETOOLONG | EILSEQ | EINVAL) => {
            "the file system there does not support this name: rename it at the source, or skip it \
             with --exclude"
        }
        (Sink, _, EEXIST | ENOTDIR | EISDIR | ENOTEMPTY) => {
            "move the existing entry out of the way, then run the same command again"
        }
        (Sink, Remove, EBUSY) => {
            "a file system is mounted there: unmount it, or skip it with --exclude or -x"
        }
        (Sink, _, EBUSY | ETXTBSY) => "a program there uses it: stop that program, then run again",
        (Sink, _, EPIPE) => "the program that reads it has ended",
        (Source, _, ESPIPE) => {
            "a part of it was lost in transit, and it cannot be read a second time: start over"
        }
        (Sink, _, EFBIG) => {
            "it is longer than the file system or `ulimit -f` there permits: change the limit, or \
             choose another DST"
        }
        (_, _, ELOOP) => "symbolic links form a loop there: repair them",
        (_, _, EMFILE | ENFILE) => "raise the number of open files there (`ulimit -n`)",
        (_, _, ENOMEM) => "free memory there, or use smaller --buffers",
        (_, _, EIO | EUCLEAN | EBADMSG) => {
            "the storage reports damage: inform its administrator; the same command tries again"
        }
        (_, _, ESTALE) => "it was replaced, or its file system was remounted: run again",
        (_, _, ENXIO | ENODEV | ENOTCONN | ESHUTDOWN | ETIMEDOUT | EHOSTDOWN | EHOSTUNREACH) => {
            OUTAGE
        }
        (_, _, ENOLCK) => "locks are exhausted there: inform its administrator, then run again",
        (_, _, ENOKEY | EKEYEXPIRED | EKEYREVOKED) => {
            "the key or ticket for this file system has expired: renew it (`kinit`), then run the \
             same command again"
        }
        _ => AGAIN,
    }
}
