//! An emulated regular file: its layout, its size, the room it takes, and its bytes.

use super::backing::{Backing, Bytes};
use super::placement::{self, Defaults};
use super::service::Share;
use super::space::Space;
use lads_core::layout::Layout;
use lads_core::lov::{Lov, Stand};
use lads_core::range::RangeSet;
use lads_core::units::OstId;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Room is allocated in pages of this many bytes.
const PAGE_BYTES: u64 = 4096;

/// Stands for the MDT in layouts; the MDT has no queue.
const MDT: OstId = OstId(u32::MAX);

/// Stands for parts of a layout that have no object yet.
const NOWHERE: OstId = OstId(u32::MAX - 1);

/// The state that all files of a file system share.
pub(super) struct Store {
    /// Where the bytes are.
    pub(super) backing: Backing,
    /// The room on the storage targets. To avoid a deadlock, lock it after a file, never before.
    pub(super) space: Mutex<Space>,
    /// The values that replace zeros and blanks in a wish for a layout.
    pub(super) defaults: Defaults,
}

impl Store {
    /// Locks the room on the storage targets.
    pub(super) fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().expect("no thread panics while it holds the lock")
    }
}

/// A regular file.
pub(super) struct FileBody {
    inode: u64,
    store: Arc<Store>,
    /// The layout that its directory has for new files.
    template: Arc<Lov>,
    state: Mutex<State>,
}

struct State {
    size: u64,
    placed: Option<Placed>,
    /// The whole pages that hold data, and so take room.
    kept: RangeSet,
    /// How many times it is open; `bytes` is present while it is open.
    open_count: usize,
    bytes: Option<Arc<Bytes>>,
    /// Whether it has a name.
    is_named: bool,
    /// Whether components have been added since it was opened.
    has_grown: bool,
}

impl State {
    /// Returns where the next data or hole begins, by the pages that were written or reserved.
    fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        let (SeekFrom::Data(from) | SeekFrom::Hole(from)) = to else { return Err(Errno::INVAL) };
        if from >= self.size {
            return Err(Errno::NXIO);
        }
        let kept = self.kept.next_from(from).filter(|kept| kept.start < self.size);
        match (to, kept) {
            (SeekFrom::Data(_), None) => Err(Errno::NXIO),
            (SeekFrom::Data(_), Some(kept)) => Ok(kept.start),
            (_, Some(kept)) if kept.start == from => Ok(kept.end.min(self.size)),
            _ => Ok(from),
        }
    }
}

/// A layout, in Lustre's form and in the form used for look-ups.
struct Placed {
    lov: Lov,
    layout: Layout,
}

impl Placed {
    fn new(lov: Lov) -> Self {
        let layout = lov.layout(Stand { mdt: MDT, elsewhere: NOWHERE });
        Self { lov, layout }
    }

    /// Adds the number of bytes of a range that each OST holds.
    fn shares(&self, range: Range<u64>, shares: &mut Vec<Share>) {
        let mut at = range.start;
        while at < range.end {
            let end = self.layout.stripe_end(at).min(range.end);
            let ost = self.layout.ost_at(at);
            if ost < NOWHERE {
                match shares.iter_mut().find(|(it, _)| *it == ost.index()) {
                    Some((_, bytes)) => *bytes += end - at,
                    None => shares.push((ost.index(), end - at)),
                }
            }
            at = end;
        }
    }
}

impl FileBody {
    /// Makes an empty file without a layout.
    pub(super) fn new(inode: u64, store: Arc<Store>, template: Arc<Lov>) -> Self {
        let state = State {
            size: 0,
            placed: None,
            kept: RangeSet::new(),
            open_count: 0,
            bytes: None,
            is_named: true,
            has_grown: false,
        };
        Self { inode, store, template, state: Mutex::new(state) }
    }

    /// Opens its bytes; each call needs a matching [`Self::release`].
    ///
    /// # Errors
    /// Those of opening a file.
    pub(super) fn open(&self) -> std::io::Result<()> {
        let mut state = self.lock();
        if state.bytes.is_none() {
            state.bytes = Some(Arc::new(self.store.backing.open(self.inode)?));
        }
        state.open_count += 1;
        Ok(())
    }

    /// Undoes one [`Self::open`]; the last one closes the bytes.
    pub(super) fn release(&self) {
        let mut state = self.lock();
        state.open_count -= 1;
        if state.open_count == 0 {
            state.bytes = None;
            state.has_grown = false;
        }
        self.discard_if_unused(&mut state);
    }

    /// Call this when its last name is gone: once it is closed, nobody can reach it.
    pub(super) fn on_unlinked(&self) {
        let mut state = self.lock();
        state.is_named = false;
        self.discard_if_unused(&mut state);
    }

    /// Returns its open bytes.
    ///
    /// # Errors
    /// Those of opening a file.
    pub(super) fn bytes(&self) -> Result<Arc<Bytes>, Errno> {
        let opened = || self.store.backing.open(self.inode).map(Arc::new).map_err(|it| errno(&it));
        self.lock().bytes.clone().map_or_else(opened, Ok)
    }

    /// Returns its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.lock().size
    }

    /// Returns how many bytes of room it takes.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.lock().kept.byte_count()
    }

    /// Returns the OSTs that it lies on; none as long as it has no layout.
    pub(super) fn osts(&self) -> Vec<usize> {
        let state = self.lock();
        let osts = state.placed.iter().flat_map(|placed| placed.layout.osts());
        osts.filter(|ost| *ost < NOWHERE).map(OstId::index).collect()
    }

    /// Returns its layout; `None` as long as it has none.
    pub(super) fn lov(&self) -> Option<Lov> {
        self.lock().placed.as_ref().map(|placed| placement::told(&placed.lov))
    }

    /// Returns whether it is open, and its layout is still open at the end or was extended since it
    /// was opened.
    pub(super) fn is_growing(&self) -> bool {
        let state = self.lock();
        let has_open_end =
            |it: &Placed| !placement::is_covered(&it.lov, &(0..u64::MAX)) || state.has_grown;
        state.open_count > 0 && state.placed.as_ref().is_some_and(has_open_end)
    }

    /// Gives it the layout wished for, if it has none yet. Returns whether it had none.
    ///
    /// # Errors
    /// Those of [`placement::place`].
    pub(super) fn place(&self, wish: &Lov) -> Result<bool, Errno> {
        let mut state = self.lock();
        if state.placed.is_some() {
            return Ok(false);
        }
        let lov = placement::place(wish, self.store.defaults, &mut self.store.space())?;
        state.placed = Some(Placed::new(lov));
        Ok(true)
    }

    /// Adds components at its open end.
    ///
    /// # Errors
    /// Those of [`placement::add`], and `EINVAL` if it has no layout.
    pub(super) fn add_components(&self, addition: &Lov) -> Result<(), Errno> {
        let mut state = self.lock();
        let mut lov = state.placed.as_ref().ok_or(Errno::INVAL)?.lov.clone();
        let ost_count = self.store.space().targets().len();
        placement::add(&mut lov, addition, ost_count)?;
        state.has_grown = true;
        state.placed = Some(Placed::new(lov));
        Ok(())
    }

    /// Replaces its layout by the one wished for, as CephFS allows.
    ///
    /// # Errors
    /// Those of [`placement::place`], and `ENOTEMPTY` if it holds data.
    pub(super) fn place_anew(&self, wish: &Lov) -> Result<(), Errno> {
        let mut state = self.lock();
        if state.size > 0 || !state.kept.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let mut space = self.store.space();
        let lov = placement::place(wish, self.store.defaults, &mut space)?;
        if let Some(before) = state.placed.replace(Placed::new(lov)) {
            placement::remove_objects(&before.lov, &mut space);
        }
        Ok(())
    }

    /// Gives it the default layout of its directory, if it has no layout yet.
    ///
    /// # Errors
    /// Those of [`placement::place`].
    pub(super) fn place_by_default(&self) -> Result<(), Errno> {
        self.place(&self.template).map(|_| ())
    }

    /// Returns the share of each OST in a read, and the number of bytes to read.
    ///
    /// # Errors
    /// `EIO` if an OST is down.
    pub(super) fn read_shares(&self, offset: u64, length: u64) -> Result<(Vec<Share>, u64), Errno> {
        let state = self.lock();
        let end = offset.saturating_add(length).min(state.size);
        let mut shares = Vec::new();
        if let Some(placed) = &state.placed {
            placed.shares(offset..end, &mut shares);
        }
        self.store.space().check_up(&shares)?;
        Ok((shares, end.saturating_sub(offset)))
    }

    /// Takes room for a write; returns the share of each OST.
    ///
    /// # Errors
    /// `EIO` if an OST is down, `ENOSPC` if one is full, `EFBIG`, and `EINVAL` if the write reaches
    /// beyond its last component (`lod_declare_update_plain`).
    pub(super) fn prepare_write(&self, offset: u64, length: u64) -> Result<Vec<Share>, Errno> {
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        self.take_room(&mut self.lock(), offset..end.ok_or(Errno::FBIG)?)
    }

    /// Writes where room was taken. The file is not locked meanwhile, so that others may write to
    /// other places.
    ///
    /// # Errors
    /// That of the system call.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.bytes()?.write(data, offset)?;
        let mut state = self.lock();
        state.size = state.size.max(offset + data.len() as u64);
        Ok(())
    }

    /// Sets the size.
    ///
    /// # Errors
    /// Those of [`placement::place`], that of the system call, and `EINVAL` if the size is beyond
    /// its last component.
    pub(super) fn truncate(&self, size: u64) -> Result<(), Errno> {
        self.place_by_default()?;
        let bytes = self.bytes()?;
        let mut state = self.lock();
        let is_covered =
            state.placed.as_ref().is_none_or(|it| placement::is_covered(&it.lov, &(0..size)));
        if !is_covered {
            return Err(Errno::INVAL);
        }
        bytes.truncate(size)?;
        state.size = size;
        self.give_room_back(&mut state, size.next_multiple_of(PAGE_BYTES)..u64::MAX);
        Ok(())
    }

    /// Reserves room, or makes a hole.
    ///
    /// # Errors
    /// Those of [`Self::write`], and that of the system call.
    pub(super) fn allocate(&self, range: Range<u64>, mode: FallocateFlags) -> Result<(), Errno> {
        let bytes = self.bytes()?;
        let mut state = self.lock();
        let is_hole = mode.contains(FallocateFlags::PUNCH_HOLE);
        if !is_hole {
            self.take_room(&mut state, range.clone())?;
        }
        bytes.allocate(range.clone(), mode)?;
        if is_hole {
            let whole =
                range.start.next_multiple_of(PAGE_BYTES)..range.end / PAGE_BYTES * PAGE_BYTES;
            self.give_room_back(&mut state, whole);
        } else if !mode.contains(FallocateFlags::KEEP_SIZE) {
            state.size = state.size.max(range.end);
        }
        Ok(())
    }

    /// Returns where the next data or hole begins.
    ///
    /// # Errors
    /// `ENXIO` if there is none, and that of the system call.
    pub(super) fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        match &*self.bytes()? {
            Bytes::Kept(file) => rustix::fs::seek(file, to),
            Bytes::Null => self.lock().seek(to),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    /// Makes the objects that a range needs, and takes room for the parts that have none. Returns
    /// how many bytes are on each OST.
    fn take_room(&self, state: &mut State, range: Range<u64>) -> Result<Vec<Share>, Errno> {
        let mut space = self.store.space();
        let mut placed = match state.placed.take() {
            Some(placed) => placed,
            None => Placed::new(placement::place(&self.template, self.store.defaults, &mut space)?),
        };
        if !placement::is_covered(&placed.lov, &range) {
            state.placed = Some(placed);
            return Err(Errno::INVAL);
        }
        let instantiated =
            placement::instantiate(&mut placed.lov, range.clone(), self.store.defaults, &mut space);
        if instantiated == Ok(true) {
            placed = Placed::new(placed.lov);
        }
        let placed = state.placed.insert(placed);
        instantiated?;
        let mut shares = Vec::new();
        placed.shares(range.clone(), &mut shares);
        space.check_up(&shares)?;
        let pages = range.start / PAGE_BYTES * PAGE_BYTES..range.end.next_multiple_of(PAGE_BYTES);
        if !state.kept.contains(pages.clone()) {
            let mut missing = Vec::new();
            for gap in gaps(&state.kept, pages.clone()) {
                placed.shares(gap, &mut missing);
            }
            space.take(&missing)?;
            state.kept.insert(pages);
        }
        Ok(shares)
    }

    fn give_room_back(&self, state: &mut State, range: Range<u64>) {
        let Some(placed) = &state.placed else { return };
        if range.is_empty() {
            return;
        }
        let mut shares = Vec::new();
        for kept in state.kept.iter().filter(|it| it.start < range.end && range.start < it.end) {
            placed.shares(kept.start.max(range.start)..kept.end.min(range.end), &mut shares);
        }
        self.store.space().give_back(&shares);
        state.kept.remove(range);
    }

    fn discard_if_unused(&self, state: &mut State) {
        if state.is_named || state.open_count > 0 {
            return;
        }
        self.give_room_back(state, 0..u64::MAX);
        if let Some(placed) = state.placed.take() {
            placement::remove_objects(&placed.lov, &mut self.store.space());
        }
        self.store.backing.remove(self.inode);
    }
}

/// Returns the parts of a range that are not in a set.
fn gaps(set: &RangeSet, range: Range<u64>) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let next = set.next_from(at).unwrap_or(range.end..range.end);
        if at < next.start {
            gaps.push(at..next.start.min(range.end));
        }
        at = next.end.max(at + 1);
    }
    gaps
}

/// Converts an error of the standard library to its number.
pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
