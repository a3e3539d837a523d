//! What a server keeps of its clients for the case that it is started again, in small files of the
//! host: a server that is killed has written its data to the page cache, and these files as well.
//! After a restart of the host, or if a list could not be written, no client can return.
//!
//! ```text
//!   /run/lads-serve-0-192.0.2.1:7000/     below $XDG_RUNTIME_DIR, or else /run, or else /tmp
//!     server                              locked by the server; boot and root
//!     TICKET.files                        what this client has opened: 32 bytes for each file
//!     TICKET.done                         the frames and requests that were done last
//!     lost                                files with writes of clients that did not return, and
//!                                         that others have open: 16 bytes for each
//! ```

use crate::board::lock;
use crate::journal::boot;
use crate::whole::write_all;
use lads_core::remote::locks::FileId;
use lads_core::remote::message::{FileNumber, Ticket};
use lads_core::remote::policy::REPLIES_MAX;
use lads_core::remote::server::Known;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, ftruncate, open};
use rustix::io::{Errno, write};
use rustix::process::geteuid;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the process of a server that was killed may need to end.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// The most frames and requests that are kept of a client: as many as it can be told of in one
/// message.
const DONE_MAX: u64 = 100_000;

/// The length of an opened file in the list: number, whether it is written, device, inode.
const OPENED_BYTES: usize = 32;

/// The length of a file with lost writes: device, inode.
const LOST_BYTES: usize = 16;

/// The length of a frame or request in the list.
const DONE_BYTES: usize = 8;

/// The lists of all clients.
pub(super) struct Lists {
    directory: PathBuf,
    /// Locked as long as this server lives.
    server: Arc<OwnedFd>,
    /// How many frames and requests are kept of each.
    done_max: u64,
    /// Clients of the server before that have not come.
    expected: Mutex<HashSet<Ticket>>,
    /// What the list of lost writes has.
    lost: Mutex<Vec<FileId>>,
}

/// What a server before had: its clients, and the files with lost writes.
pub(super) type Before = (HashMap<Ticket, Known>, Vec<FileId>);

/// The list of one client.
pub(super) struct ClientList {
    files: OwnedFd,
    done: OwnedFd,
    done_max: u64,
    /// How many frames and requests were put there.
    count: AtomicU64,
    server: Arc<OwnedFd>,
}

/// Numbers of frames that were written, and of requests that were done.
pub(super) type Done = (Vec<u64>, Vec<u64>);

impl Lists {
    /// Those of a server at this address for a directory, with room for as many frames of each
    /// client; and what the server before had, if it was one on the same host.
    ///
    /// # Errors
    /// If there is no place for them.
    pub(super) fn open(
        address: SocketAddr,
        root: &Path,
        frames_each: u32,
    ) -> io::Result<(Self, Before)> {
        let name = format!("lads-serve-{}-{address}", geteuid().as_raw());
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = runtime.into_iter().chain([PathBuf::from("/run"), std::env::temp_dir()]);
        let made = places.map(|place| make_directory(&place.join(&name)));
        // The last one tells why.
        let directory = made.reduce(Result::or).unwrap_or_else(|| Err(Errno::NOENT.into()))?;
        Self::open_in(directory, root, frames_each)
    }

    fn open_in(directory: PathBuf, root: &Path, frames_each: u32) -> io::Result<(Self, Before)> {
        let server = directory.join("server");
        let held = open_file(&server, OFlags::RDWR)?;
        lock_within(&held, LOCK_WAIT)?;
        let of_root = fs::metadata(root)?;
        let boot = String::from_utf8_lossy(&boot()).into_owned();
        let own = format!("{boot} {} {}\n", of_root.dev(), of_root.ino());
        let is_same = !boot.is_empty() && fs::read_to_string(&server)? == own;
        let (expected, lost) =
            if is_same { (known(&directory)?, lost(&directory)?) } else { Before::default() };
        let tickets: HashSet<_> = expected.keys().copied().collect();
        let done_max = (2 * u64::from(frames_each) + 4 * REPLIES_MAX as u64).min(DONE_MAX);
        let (tickets, of_lost) = (Mutex::new(tickets), Mutex::new(lost.clone()));
        let held = Arc::new(held);
        let lists = Self { directory, server: held, done_max, expected: tickets, lost: of_lost };
        if !is_same {
            lists.remove_all()?;
            fs::write(&server, own)?;
        }
        Ok((lists, (expected, lost)))
    }

    /// Returns the list of a new client. If it cannot be created, no client can return after a
    /// restart: the files to which this client has written would be unknown.
    pub(super) fn begin(&self, ticket: Ticket) -> Option<ClientList> {
        let list = self.list(ticket).ok();
        if list.is_none() {
            end(&self.server);
        }
        list
    }

    fn list(&self, ticket: Ticket) -> io::Result<ClientList> {
        let path = self.path(ticket);
        let files = open_file(&path.with_extension("files"), OFlags::WRONLY | OFlags::APPEND)?;
        let done = open_file(&path.with_extension("done"), OFlags::WRONLY)?;
        let (done_max, count) = (self.done_max, AtomicU64::new(0));
        Ok(ClientList { files, done, done_max, count, server: Arc::clone(&self.server) })
    }

    /// The list of a client that was connected to the server before, and what was done for it last.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn resume(&self, ticket: Ticket) -> io::Result<(ClientList, Done)> {
        let bytes = fs::read(self.path(ticket).with_extension("done"))?;
        let (mut written, mut done) = Done::default();
        for word in bytes.as_chunks::<DONE_BYTES>().0 {
            match u64::from_le_bytes(*word).checked_sub(1) {
                None => {}
                Some(word) if word % 2 == 0 => written.push(word / 2),
                Some(word) => done.push(word / 2),
            }
        }
        Ok((self.list(ticket)?, (written, done)))
    }

    /// A client does not return.
    pub(super) fn remove(&self, ticket: Ticket) {
        remove(&self.path(ticket));
    }

    /// Removes the lists of clients that were expected and that the server does not know any more.
    pub(super) fn remove_unknown(&self, knows: impl Fn(Ticket) -> bool) {
        let gone: Vec<_> = lock(&self.expected).extract_if(|ticket| !knows(*ticket)).collect();
        gone.into_iter().for_each(|ticket| self.remove(ticket));
    }

    /// Writes to the files that `lost` returns are lost, and to no others. It is called alone, so
    /// that no older state replaces a newer one. Returns whether that is kept.
    pub(super) fn set_lost(&self, lost: impl FnOnce() -> Vec<FileId>) -> bool {
        let mut before = lock(&self.lost);
        let files = lost();
        if *before == files {
            return true;
        }
        let bytes: Vec<_> = files.iter().flat_map(|it| [it.device, it.inode]).collect();
        let bytes: Vec<_> = bytes.into_iter().flat_map(u64::to_le_bytes).collect();
        let new = self.directory.join("lost.new");
        let is_kept = fs::write(&new, bytes)
            .and_then(|()| fs::rename(&new, self.directory.join("lost")))
            .is_ok();
        if is_kept {
            *before = files;
        }
        is_kept
    }

    fn remove_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "files" || it == "done")
                || path.ends_with("lost")
            {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn path(&self, Ticket(ticket): Ticket) -> PathBuf {
        let digits: String = ticket.iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(digits)
    }
}

impl ClientList {
    /// A file is open. The client is told afterwards.
    pub(super) fn add_file(&self, FileNumber(file): FileNumber, id: FileId, writes: bool) {
        let words = [file.into(), u64::from(writes), id.device, id.inode];
        let bytes = words.map(u64::to_le_bytes).concat();
        // The file is appended to.
        self.note(
            write(&self.files, &bytes)
                .and_then(|count| if count == OPENED_BYTES { Ok(()) } else { Err(Errno::NOSPC) }),
        );
    }

    /// A frame is written. The client is told afterwards.
    pub(super) fn add_written(&self, frame: u64) {
        self.add_done(frame.wrapping_mul(2));
    }

    /// A request is done that must not be done a second time. The client is told afterwards.
    pub(super) fn add_request(&self, request: u64) {
        self.add_done(request.wrapping_mul(2) + 1);
    }

    fn add_done(&self, word: u64) {
        let place = self.count.fetch_add(1, Ordering::Relaxed) % self.done_max;
        let bytes = word.wrapping_add(1).to_le_bytes();
        self.note(write_all(&self.done, &bytes, place * DONE_BYTES as u64));
    }

    /// If a list is incomplete, no client can return after a restart.
    fn note(&self, result: Result<(), Errno>) {
        if result.is_err() {
            end(&self.server);
        }
    }
}

/// The server that is started next expects nobody: all clients hear that it does not know them.
fn end(server: &OwnedFd) {
    // A file can be cut although there is no space.
    let _ = ftruncate(server, 0);
}

/// What is known of the clients of the server before. The first entry of a number counts: a client
/// does not use it again.
fn known(directory: &Path) -> io::Result<HashMap<Ticket, Known>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let Some(ticket) = name.strip_suffix(".files").and_then(ticket_of) else { continue };
        let mut known = Known::new();
        for entry in fs::read(&path)?.as_chunks::<OPENED_BYTES>().0 {
            let word = |at: usize| u64::from_le_bytes(entry.as_chunks().0[at]);
            let Ok(file) = u32::try_from(word(0)) else { continue };
            let id = FileId { device: word(2), inode: word(3) };
            let writes = word(1) != 0;
            known.entry(FileNumber(file)).or_insert((id, writes));
        }
        all.insert(ticket, known);
    }
    Ok(all)
}

fn lost(directory: &Path) -> io::Result<Vec<FileId>> {
    let bytes = match fs::read(directory.join("lost")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes?,
    };
    let word = |entry: &[u8], at: usize| u64::from_le_bytes(entry.as_chunks().0[at]);
    let entries = bytes.as_chunks::<LOST_BYTES>().0;
    Ok(entries.iter().map(|it| FileId { device: word(it, 0), inode: word(it, 1) }).collect())
}

fn ticket_of(digits: &str) -> Option<Ticket> {
    let mut ticket = [0; 16];
    for (at, byte) in ticket.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (digits.len() == 32).then_some(Ticket(ticket))
}

fn remove(path: &Path) {
    // They are in memory or in a directory for what does not last.
    let _ = fs::remove_file(path.with_extension("files"));
    let _ = fs::remove_file(path.with_extension("done"));
}

/// A directory that is this user's alone.
fn make_directory(path: &Path) -> io::Result<PathBuf> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(path)?;
    let is_own = found.is_dir() && found.uid() == geteuid().as_raw();
    if !is_own || found.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("{} belongs to others", path.display())));
    }
    Ok(path.to_owned())
}

fn open_file(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

fn lock_within(file: &OwnedFd, time: Duration) -> io::Result<()> {
    let begun_at = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun_at.elapsed() < time => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    const ONE: Ticket = Ticket([0xa1; 16]);
    const OTHER: Ticket = Ticket([2; 16]);

    fn opened(place: &TempDir, root: &Path) -> (Lists, HashMap<Ticket, Known>) {
        let (lists, (expected, _)) = begin(place, root);
        (lists, expected)
    }

    fn begin(place: &TempDir, root: &Path) -> (Lists, Before) {
        let directory = make_directory(&place.path().join("lists")).unwrap();
        Lists::open_in(directory, root, 4).unwrap()
    }

    fn id(inode: u64) -> FileId {
        FileId { device: 1, inode }
    }

    #[test]
    fn a_server_that_is_started_again_knows_what_its_clients_had_open() {
        let place = tempfile::tempdir().unwrap();
        let (lists, expected) = opened(&place, place.path());
        assert!(expected.is_empty());
        let (one, other) = (lists.begin(ONE).unwrap(), lists.begin(OTHER).unwrap());
        one.add_file(FileNumber(1), id(5), true);
        one.add_file(FileNumber(2), id(6), false);
        // A server that was started again meanwhile found another file.
        one.add_file(FileNumber(1), id(7), true);
        [3, 0, u64::MAX >> 1].into_iter().for_each(|frame| one.add_written(frame));
        one.add_request(8);
        drop((one, other, lists));
        let (lists, expected) = opened(&place, place.path());
        let known = [(FileNumber(1), (id(5), true)), (FileNumber(2), (id(6), false))];
        assert_eq!(expected, [(ONE, known.into()), (OTHER, Known::new())].into());
        let (_, (written, done)) = lists.resume(ONE).unwrap();
        assert_eq!((written, done), (vec![3, 0, u64::MAX >> 1], vec![8]));
        lists.remove_unknown(|ticket| ticket == ONE);
        assert!(lists.resume(OTHER).is_err(), "it is not expected any more");
        lists.remove(ONE);
        drop(lists);
        assert!(opened(&place, place.path()).1.is_empty());
    }

    #[test]
    fn what_was_done_last_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let (lists, _) = opened(&place, place.path());
        let one = lists.begin(ONE).unwrap();
        let count = lists.done_max + 3;
        (0..count).for_each(|frame| one.add_written(frame));
        let (_, (mut written, _)) = lists.resume(ONE).unwrap();
        written.sort_unstable();
        assert!(written.into_iter().eq(3..count));
    }

    /// Its numbers may mean other files.
    #[test]
    fn nobody_returns_to_a_server_of_another_directory() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir(&root).unwrap();
        drop(opened(&place, place.path()).0.begin(ONE).unwrap());
        assert!(opened(&place, &root).1.is_empty());
        assert!(opened(&place, place.path()).1.is_empty(), "they were removed");
    }

    /// What a client had written to would not be known.
    #[test]
    fn nobody_returns_if_a_list_is_not_complete() {
        type Fault = fn(&Lists, &mut ClientList);
        let of_files: Fault = |_, one| {
            one.files = fs::File::open("/dev/null").unwrap().into();
            one.add_file(FileNumber(1), id(5), true);
        };
        let of_frames: Fault = |_, one| {
            one.done = fs::File::open("/dev/null").unwrap().into();
            one.add_written(3);
        };
        let of_another: Fault = |lists, _| {
            fs::create_dir(lists.path(OTHER).with_extension("done")).unwrap();
            assert!(lists.begin(OTHER).is_none());
            fs::remove_dir(lists.path(OTHER).with_extension("done")).unwrap();
        };
        for fault in [of_files, of_frames, of_another] {
            let place = tempfile::tempdir().unwrap();
            let (lists, _) = opened(&place, place.path());
            let mut one = lists.begin(ONE).unwrap();
            fault(&lists, &mut one);
            drop((one, lists));
            assert!(opened(&place, place.path()).1.is_empty());
        }
    }

    #[test]
    fn files_with_lost_writes_are_kept_until_nobody_has_them_open() {
        let place = tempfile::tempdir().unwrap();
        for files in [vec![id(3), id(5)], vec![id(5)], Vec::new()] {
            let (lists, _) = begin(&place, place.path());
            assert!(lists.set_lost(|| files.clone()));
            drop(lists);
            assert_eq!(begin(&place, place.path()).1.1, files);
        }
    }

    #[test]
    fn a_directory_that_others_can_use_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lists");
        make_directory(&path).unwrap();
        make_directory(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        make_directory(&path).unwrap_err();
        fs::remove_dir(&path).unwrap();
        fs::write(&path, b"").unwrap();
        make_directory(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/", &path).unwrap();
        make_directory(&path).unwrap_err();
    }

    #[test]
    fn two_servers_do_not_share_lists() {
        let place = tempfile::tempdir().unwrap();
        let (_held, _) = opened(&place, place.path());
        let directory = make_directory(&place.path().join("lists")).unwrap();
        assert!(Lists::open_in(directory, place.path(), 4).is_err());
    }
}
