//! The log on local flash, to which staged blocks are written and from which they are read.
//!
//! `lads_core::staging` decides which block goes to which slot. The file has no name (or loses it
//! as soon as it is open), so nothing of it remains however this process ends. It is read and
//! written bypassing the page cache where its file system allows that, so that it does not use the
//! memory that it is there to save.

use crate::board::Board;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::Options;
use crate::paths::open_named_to_look_up;
use crate::slots::SlotFile;
use crate::whole::fill_random;
use lads_core::entry::OWN_PREFIX;
use lads_core::issue::Side;
use lads_core::staging::Slot;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, openat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The stage of one end.
#[derive(Debug)]
pub(crate) struct StageLog {
    slots: SlotFile,
    side: Side,
    /// The directory, as the user named it.
    place: String,
    board: Arc<Board>,
    has_complained: AtomicBool,
}

impl StageLog {
    /// The stage of an end, if the options give it one.
    ///
    /// # Errors
    /// If the options ask for a stage that cannot be made.
    pub(crate) fn of(
        options: &Options,
        side: Side,
        board: &Arc<Board>,
    ) -> Result<Option<Self>, Fatal> {
        let directory = options.stage.as_ref().filter(|_| options.has_stage(side));
        directory.map(|it| Self::open(it, options.block_size, side, Arc::clone(board))).transpose()
    }

    /// Makes a log in a directory, with slots of `slot_bytes`.
    ///
    /// # Errors
    /// If no file can be made there: then the command line is wrong.
    pub(crate) fn open(
        directory: &[u8],
        slot_bytes: u32,
        side: Side,
        board: Arc<Board>,
    ) -> Result<Self, Fatal> {
        let path = Path::new(OsStr::from_bytes(directory));
        let place = path.display().to_string();
        let file = open_unnamed(path).map_err(|errno| {
            let text = format!(
                "cannot create the stage in {place} at the {0}: {errno}; name another directory \
                 there (--{0} stage=DIR), or omit the stage",
                side.word()
            );
            Fatal::new(ExitCode::Usage, text)
        })?;
        let slots = SlotFile::new(file, slot_bytes);
        Ok(Self { slots, side, place, board, has_complained: AtomicBool::new(false) })
    }

    /// Writes whole pages into a slot. The first failure is reported to the user.
    pub(crate) fn write(&self, slot: Slot, pages: &[u8]) -> Result<(), Errno> {
        self.slots
            .write(slot, pages, pages.len())
            .inspect_err(|errno| self.complain(&format!("cannot write to it: {errno}")))
    }

    /// Reads whole pages back from a slot. The first failure is reported to the user.
    pub(crate) fn read(&self, slot: Slot, pages: &mut [u8]) -> Result<(), Errno> {
        let length = pages.len();
        self.slots
            .read(slot, pages, length)
            .inspect_err(|errno| self.complain(&format!("cannot read from it: {errno}")))
    }

    /// The log returned other bytes than were written. The first time, this is reported to the
    /// person.
    pub(crate) fn on_damage(&self) {
        self.complain("it returned other bytes than were written to it");
    }

    fn complain(&self, what: &str) {
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            self.board.notice(format!(
                "the stage in {0} at the {1} is no longer used: {what}. Staged data is still \
                 moved, but no more data is staged. Check that disk, or name another directory \
                 (--{1} stage=DIR,stage-size=SIZE)",
                self.place,
                self.side.word()
            ));
        }
    }
}

/// Opens a file without a name, for direct I/O if possible.
pub(crate) fn open_unnamed(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let unnamed = |flags| openat(CWD, directory, flags | OFlags::TMPFILE, mode);
    match unnamed(flags | OFlags::DIRECT).or_else(|_| unnamed(flags)) {
        // The file system, or the kernel, has no files without names.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => open_and_unlink(directory, mode),
        result => result,
    }
}

fn open_and_unlink(directory: &Path, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut number = [0; 8];
    fill_random(&mut number).map_err(|_| Errno::IO)?;
    let name = format!("{OWN_PREFIX}{:016x}.stage", u64::from_le_bytes(number));
    let directory = open_named_to_look_up(directory.as_os_str().as_bytes())?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = openat(&directory, name.as_str(), flags, mode)?;
    unlinkat(&directory, name.as_str(), AtFlags::empty())?;
    // If this is refused, the log goes through the page cache.
    let _ = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::DIRECT));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_sys::Arena;

    const SLOT_BYTES: usize = 64 << 10;

    fn log(directory: &Path) -> StageLog {
        let board = Arc::new(Board::new("here".to_owned(), true));
        let slot_bytes = u32::try_from(SLOT_BYTES).unwrap();
        let name = directory.as_os_str().as_bytes();
        StageLog::open(name, slot_bytes, Side::Source, board).unwrap()
    }

    #[test]
    fn what_is_staged_comes_back_and_the_directory_stays_empty() {
        let directory = tempfile::tempdir().unwrap();
        let log = log(directory.path());
        let arena = Arena::new(2, SLOT_BYTES).unwrap();
        let mut buffer = arena.take();
        buffer.fill(7);
        log.write(Slot(3), &buffer).unwrap();
        buffer.fill(9);
        log.write(Slot(0), &buffer[..4096]).unwrap();
        let mut back = arena.take();
        log.read(Slot(3), &mut back).unwrap();
        assert!(back.iter().all(|&byte| byte == 7));
        log.read(Slot(0), &mut back[..4096]).unwrap();
        assert!(back[..4096].iter().all(|&byte| byte == 9));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(log.board.take_happenings().is_empty());
    }

    #[test]
    fn a_file_that_needs_a_name_loses_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = open_and_unlink(directory.path(), Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
    }

    #[test]
    fn trouble_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let log = log(directory.path());
        let mut buffer = Arena::new(1, SLOT_BYTES).unwrap().take();
        assert!(log.read(Slot(5), &mut buffer).is_err(), "nothing was written there");
        log.on_damage();
        assert_eq!(log.board.take_happenings().len(), 1);
    }

    #[test]
    fn a_directory_that_is_not_there_is_a_mistake_of_the_command() {
        let board = Arc::new(Board::new("here".to_owned(), true));
        let fatal = StageLog::open(b"/nowhere/at/all", 65536, Side::Sink, board).unwrap_err();
        assert_eq!(fatal.code, ExitCode::Usage);
        assert!(fatal.text.contains("/nowhere/at/all at the sink"), "{}", fatal.text);
    }
}
