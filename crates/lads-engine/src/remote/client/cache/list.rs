//! The list of a [`Cache`](super::Cache), as it is written.

use lads_core::remote::client::About;
use lads_core::remote::kept::{Kept, Record, encode};
use lads_core::remote::message::ViewNumber;
use lads_core::remote::outbox::Staging;
use lads_core::staging::Slot;
use lads_sys::{Buffer, without_file_size_signal};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// A list that is being written. Frames are added whole or not at all: one that is on the list
/// although it stayed in memory would be sent again after a crash, over what was written later.
#[derive(Debug)]
pub(super) struct Listed {
    /// Locked as long as it is open.
    file: File,
    /// The offset at which the next records are written, in bytes: that of the end mark.
    end: u64,
    /// Makes the file durable, if the user wants that.
    sync: fn(BorrowedFd<'_>) -> Result<(), Errno>,
    /// A sync has failed. The next one would say that all is well although what was written before
    /// never reached the disk, so nothing is promised any more.
    has_failed: bool,
    views: HashSet<ViewNumber>,
    checksums: HashMap<Slot, u64>,
    /// Frames that are gone, of which the list does not say so yet.
    unsaid: Vec<u64>,
    /// Whether it says since the last sync that a frame is gone.
    has_gone: bool,
    records: Vec<u8>,
}

impl Listed {
    /// Begins a list in an empty file, which `sync` makes durable.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn begin(
        file: File,
        sync: fn(BorrowedFd<'_>) -> Result<(), Errno>,
        begin: &Record,
    ) -> io::Result<Self> {
        let mut list = Self {
            file,
            end: 0,
            sync,
            has_failed: false,
            views: HashSet::new(),
            checksums: HashMap::new(),
            unsaid: Vec::new(),
            has_gone: false,
            records: Vec::new(),
        };
        list.add([begin])?;
        Ok(list)
    }

    /// The checksum of the frame in a slot.
    pub(super) fn checksum(&self, slot: Slot) -> Option<u64> {
        self.checksums.get(&slot).copied()
    }

    /// Adds frames that are in their slots.
    ///
    /// # Errors
    /// If it cannot be written, or not made durable. Then it says nothing of these frames.
    pub(super) fn keep(&mut self, frames: &[Staging<Arc<Buffer>, About>]) -> io::Result<()> {
        let (mut records, mut views) = (Vec::new(), Vec::new());
        for Staging { id, about: About { target, position, length }, buffer, slot } in frames {
            let (id, view, position, length, slot) = (*id, target.view, *position, *length, *slot);
            let checksum = XxHash3_64::oneshot(&buffer[..length as usize]);
            self.checksums.insert(slot, checksum);
            if self.views.insert(view) {
                views.push(view);
                records.push(Record::View {
                    view,
                    file: target.file,
                    path: target.path.clone(),
                    displacement: target.displacement,
                    filetype: target.filetype.clone(),
                });
            }
            records.push(Record::Kept(Kept { id, view, position, length, slot, checksum }));
        }
        let before = self.end;
        let kept = self.add(&records).and_then(|()| self.sync());
        if kept.is_err() {
            self.cut(before);
            self.views.retain(|view| !views.contains(view));
        }
        kept
    }

    /// Frames are written at the server.
    pub(super) fn on_gone(&mut self, ids: &[u64]) {
        self.unsaid.extend(ids);
        // If it fails, `settle` tries again.
        let _ = self.say_gone();
    }

    /// Says which frames are gone, and makes that durable.
    ///
    /// # Errors
    /// If it cannot be written, or not made durable.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.say_gone()?;
        if self.has_gone { self.sync() } else { Ok(()) }
    }

    fn say_gone(&mut self) -> io::Result<()> {
        if self.unsaid.is_empty() {
            return Ok(());
        }
        let gone: Vec<_> = self.unsaid.iter().map(|&id| Record::Gone { id }).collect();
        self.add(&gone)?;
        self.unsaid.clear();
        self.has_gone = true;
        Ok(())
    }

    /// Writes records over the end mark, and the end mark behind them.
    fn add<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) -> io::Result<()> {
        let mut bytes = mem::take(&mut self.records);
        bytes.clear();
        records.into_iter().for_each(|record| encode(record, &mut bytes));
        let length = bytes.len() as u64;
        encode(&Record::End, &mut bytes);
        let written = without_file_size_signal(|| self.file.write_all_at(&bytes, self.end));
        match written {
            Ok(()) => self.end += length,
            // A torn record would count as damage to the list.
            Err(_) => self.cut(self.end),
        }
        self.records = bytes;
        written
    }

    /// Takes the records from an offset on off the list.
    fn cut(&mut self, end: u64) {
        self.end = end;
        let mut mark = Vec::new();
        encode(&Record::End, &mut mark);
        // If the disk fails here, the list is reported as damaged when it is read.
        let write = || self.file.write_all_at(&mark, end);
        let _ = self.file.set_len(end).and_then(|()| without_file_size_signal(write));
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier call to make it durable failed"));
        }
        (self.sync)(self.file.as_fd()).inspect_err(|_| self.has_failed = true)?;
        self.has_gone = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::remote::client::Target;
    use lads_core::remote::kept::{List, begin, read};
    use lads_core::remote::message::FileNumber;
    use lads_core::remote::name::Server;
    use lads_core::view::{Datatype, View};
    use lads_sys::Arena;
    use std::cell::Cell;
    use std::fs::{self, OpenOptions};
    use tempfile::NamedTempFile;

    thread_local! {
        /// Number of times that this thread made a list durable.
        static SYNCS: Cell<usize> = const { Cell::new(0) };
    }

    fn listed(file: &NamedTempFile) -> Listed {
        let sync = |file: BorrowedFd<'_>| {
            SYNCS.set(SYNCS.get() + 1);
            rustix::fs::fdatasync(file)
        };
        Listed::begin(file.reopen().unwrap(), sync, &begin(Server::Here, 4096)).unwrap()
    }

    fn frame(id: u64, view: u32) -> Staging<Arc<Buffer>, About> {
        let buffer = Arc::new(Arena::new(1, 4096).unwrap().take());
        let target = Target {
            view: ViewNumber(view),
            file: FileNumber(1),
            path: b"a".to_vec(),
            displacement: 0,
            filetype: vec![0, 1],
            shape: View::new(0, &Datatype::Bytes(1)).unwrap(),
        };
        let about = About { target: Arc::new(target), position: id, length: 10 };
        Staging { id, about, buffer, slot: Slot(u32::try_from(id).unwrap()) }
    }

    fn ids(file: &NamedTempFile) -> Vec<u64> {
        let List { frames, damage, .. } = read(&fs::read(file.path()).unwrap()).unwrap();
        assert_eq!(damage, None);
        frames.iter().map(|kept| kept.id).collect()
    }

    impl Listed {
        /// Uses another file for a while.
        fn with<T>(&mut self, file: File, act: impl FnOnce(&mut Self) -> T) -> T {
            let own = mem::replace(&mut self.file, file);
            let result = act(self);
            self.file = own;
            result
        }
    }

    /// A file in which nothing can be written.
    fn unwritable(file: &NamedTempFile) -> File {
        File::open(file.path()).unwrap()
    }

    /// A file that is written, and never made durable.
    fn never_durable() -> File {
        OpenOptions::new().write(true).open("/dev/zero").unwrap()
    }

    #[test]
    fn frames_are_on_the_list_until_they_are_gone() {
        let file = NamedTempFile::new().unwrap();
        let mut list = listed(&file);
        list.keep(&[frame(1, 1), frame(2, 1)]).unwrap();
        list.keep(&[frame(3, 2)]).unwrap();
        assert_eq!((ids(&file), SYNCS.get()), (vec![1, 2, 3], 2));
        list.on_gone(&[2]);
        assert_eq!((ids(&file), SYNCS.get()), (vec![1, 3], 2));
        list.settle().unwrap();
        list.settle().unwrap();
        assert_eq!(SYNCS.get(), 3);
    }

    #[test]
    fn frames_that_cannot_be_added_are_not_on_the_list() {
        let file = NamedTempFile::new().unwrap();
        let mut list = listed(&file);
        list.keep(&[frame(1, 1)]).unwrap();
        list.with(unwritable(&file), |list| list.keep(&[frame(2, 2)])).unwrap_err();
        assert_eq!(ids(&file), [1]);
        // Its view is told with the next frame.
        list.keep(&[frame(3, 2)]).unwrap();
        assert_eq!(ids(&file), [1, 3]);
    }

    #[test]
    fn what_is_torn_or_taken_back_does_not_hide_what_comes_after_it() {
        let file = NamedTempFile::new().unwrap();
        let mut list = listed(&file);
        let before = list.end;
        list.keep(&[frame(1, 1), frame(2, 1), frame(3, 1)]).unwrap();
        list.cut(before);
        list.views.clear();
        list.keep(&[frame(4, 1)]).unwrap();
        assert_eq!(ids(&file), [4]);
        let end = fs::read(file.path()).unwrap().split_off(usize::try_from(list.end).unwrap());
        let mut mark = Vec::new();
        encode(&Record::End, &mut mark);
        assert_eq!(end, mark, "nothing of what was taken back is left");
    }

    #[test]
    fn a_frame_that_is_gone_is_said_to_be_as_soon_as_it_can_be_written() {
        let file = NamedTempFile::new().unwrap();
        let mut list = listed(&file);
        list.keep(&[frame(1, 1), frame(2, 1)]).unwrap();
        list.with(unwritable(&file), |list| {
            list.on_gone(&[1]);
            list.settle().unwrap_err();
        });
        assert_eq!(ids(&file), [1, 2]);
        list.on_gone(&[2]);
        assert_eq!(ids(&file), Vec::<u64>::new());
        list.settle().unwrap();
    }

    #[test]
    fn after_a_sync_that_failed_nothing_is_promised() {
        let file = NamedTempFile::new().unwrap();
        let mut list = listed(&file);
        list.keep(&[frame(1, 1)]).unwrap();
        list.on_gone(&[1]);
        list.with(never_durable(), Listed::settle).unwrap_err();
        list.settle().unwrap_err();
        list.keep(&[frame(2, 1)]).unwrap_err();
        assert_eq!(ids(&file), Vec::<u64>::new());
    }
}
