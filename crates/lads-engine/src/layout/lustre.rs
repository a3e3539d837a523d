//! Layouts of Lustre, by its extended attribute; no library of its maker is needed.
//!
//! A client of Lustre is recognised by the type of its file system. An emulated one answers the
//! same attribute, and lists its OSTs in a hidden directory; only [`table`] knows the difference.
//!
//! OSTs keep their numbers. Two more numbers follow them: one for the MDT, and one for bytes at an
//! unknown place.
//!
//! A new file is made without a layout, is given the wished one, and is then asked for its layout.
//! The server may choose otherwise, or its administrator may have forbidden to choose; then setting
//! a layout succeeds and does nothing.

mod table;

use super::mount::{mount_of, nearest_existing};
use super::new_file::{Order, difference, make};
use super::{FileAt, Heeds, Layouts, Located, Mirror, NewFile, Placed, Provider, Target};
use crate::metadata::read_all;
use crate::paths::proc_path;
use lads_core::growth::{self, Extent};
use lads_core::layout::{Layout, Part};
use lads_core::lov::{ATTRIBUTE, Body, Lov, STRIPE_SIZE_UNIT, Stand};
use lads_core::placement::{OstState, Wish};
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use rustix::fs::{
    FsWord, OFlags, XattrFlags, fgetxattr, fsetxattr, ftruncate, getxattr, lgetxattr, statfs,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use table::Table;

/// The type of the file system, as `statfs` says it.
const FILE_SYSTEM_TYPE: FsWord = 0x0bd0_0bd0;

/// Makes a file without giving it a layout: `O_LOV_DELAY_CREATE`, two flags that have no meaning
/// for a regular file (`O_NOCTTY` and `FASYNC`). Other file systems ignore them.
const DELAY_LAYOUT: OFlags = OFlags::from_bits_retain(0o20_400);

/// Requests that an OST should have at a time: one that is served, one that is next, and two that
/// are on their way to or from the server. The client itself sends at most eight.
const IN_FLIGHT_MAX: u32 = 4;

/// A remark that holds wherever this provider is used.
const REMARK: &str = "implemented from the published sources of Lustre (releases 2.12 to 2.17) and \
                      tested on golden bytes and an emulator; not tried on a real Lustre";

/// The largest stripe size that can be set.
const STRIPE_SIZE_MAX: u32 = u32::MAX - 0xffff;

/// The row in the table of providers.
pub(super) const PROVIDER: Provider = Provider {
    name: "lustre",
    at: |path| Some(Box::new(Lustre::at(path)?)),
    refusal: "is not on Lustre",
    #[cfg(test)]
    put_to_test: tests::keep_the_contract,
};

/// A file system of Lustre, or one that answers in the same way.
#[derive(Debug)]
struct Lustre {
    attribute: &'static str,
    table: Table,
    /// What is known of each OST from the start, and of the two numbers that stand for no OST.
    specs: Vec<OstSpec>,
    stand: Stand,
    stripe_size: u64,
}

impl Lustre {
    /// The Lustre that `path` is on; `None` if it is not on Lustre.
    fn at(path: &Path) -> Option<Self> {
        let here = nearest_existing(path);
        let is_client = statfs(&here).is_ok_and(|it| it.f_type == FILE_SYSTEM_TYPE);
        if is_client {
            return Self::over(ATTRIBUTE, Table::of_client(&here)?, &here);
        }
        let template = read_all(|to| getxattr(&here, ATTRIBUTE, to.as_mut_slice())).ok()?;
        Lov::parse(&template).ok()?;
        Self::over(ATTRIBUTE, Table::of_emulator(&mount_of(&here))?, &here)
    }

    /// A file system with these OSTs and with layouts in this attribute.
    fn over(attribute: &'static str, table: Table, directory: &Path) -> Option<Self> {
        let targets = table.read();
        let ost_count = u32::try_from(targets.len()).ok().filter(|&count| count > 0)?;
        let mut specs: Vec<OstSpec> = targets.into_iter().map(|it| spec(it.name)).collect();
        specs.extend(["MDT", "elsewhere"].map(|name| spec(name.to_owned())));
        let stand = Stand { mdt: OstId(ost_count), elsewhere: OstId(ost_count + 1) };
        let template = read_all(|to| getxattr(directory, attribute, to.as_mut_slice()));
        let stripe_size = template.ok().and_then(|bytes| stripe_size_of(&bytes));
        let stripe_size = stripe_size.unwrap_or(1 << 20);
        Some(Self { attribute, table, specs, stand, stripe_size })
    }

    fn lov(&self, directory: &OwnedFd, name: &[u8]) -> Option<Lov> {
        Lov::parse(&self.bytes(directory, name)?).ok()
    }

    fn lov_of(&self, file: &OwnedFd) -> Option<Lov> {
        let bytes = read_all(|to| fgetxattr(file, self.attribute, to.as_mut_slice())).ok()?;
        Lov::parse(&bytes).ok()
    }

    fn bytes(&self, directory: &OwnedFd, name: &[u8]) -> Option<Vec<u8>> {
        let path = proc_path(directory, name);
        read_all(|to| lgetxattr(path.as_slice(), self.attribute, to.as_mut_slice())).ok()
    }

    /// A layout in our numbers. An OST that was added after the start counts as an unknown place.
    fn layout(&self, lov: Option<&Lov>) -> Layout {
        let elsewhere = self.stand.elsewhere;
        lov.map_or_else(|| Layout::on(elsewhere), |lov| self.known(lov.layout(self.stand)))
    }

    /// The extents of a growing file, in our numbers, and its layout as if the last extent had no
    /// end.
    fn open(&self, lov: Option<&Lov>) -> Option<(Vec<Extent>, Layout)> {
        let extents = lov?.open_extents()?;
        let are_known = extents.iter().all(|extent| extent.ost.index() < self.stand.mdt.index());
        let layout = growth::layout_of(&extents).filter(|_| are_known)?;
        Some((extents, layout))
    }

    /// Every copy of a file that can be read by itself, the usual one first. Empty unless there are
    /// several and the usual one is among them.
    fn mirrors(&self, lov: &Lov, usual: &Layout) -> Vec<Mirror> {
        let mirrors = lov.mirrors(self.stand).into_iter();
        let known = |(number, layout)| Mirror { number, layout: self.known(layout) };
        let mut mirrors: Vec<Mirror> = mirrors.map(known).collect();
        mirrors.sort_by_key(|it| it.layout != *usual);
        if mirrors.len() < 2 || mirrors[0].layout != *usual {
            mirrors.clear();
        }
        mirrors
    }

    fn known(&self, layout: Layout) -> Layout {
        let elsewhere = self.stand.elsewhere;
        if layout.osts().all(|ost| ost.index() < self.specs.len()) {
            return layout;
        }
        let known = |ost: OstId| if ost < elsewhere { ost } else { elsewhere };
        let parts = layout.parts().into_iter();
        let parts =
            parts.map(|part| Part { osts: part.osts.into_iter().map(known).collect(), ..part });
        Layout::composite(parts).expect("as sound as it was")
    }

    /// Makes a file with the wished layout. If the server refuses the layout, makes it without, and
    /// returns the error.
    fn make(&self, file: &NewFile<'_>) -> Result<(OwnedFd, Option<Errno>), Errno> {
        let plainly = OFlags::empty();
        let Some(wish) = lov_of(file.wish) else { return Ok((make(file, plainly)?, None)) };
        let wish = match file.first_extent_bytes {
            Some(end) => Lov::wish_composite([(end, wish)]),
            None => wish,
        };
        let handle = make(file, DELAY_LAYOUT)?;
        match fsetxattr(&handle, self.attribute, &wish.encode(), XattrFlags::empty()) {
            Ok(()) => Ok((handle, None)),
            Err(errno) => {
                // It has no layout, and would get one with its first byte, too late to be known.
                drop(handle);
                Ok((make(file, plainly)?, Some(errno)))
            }
        }
    }

    /// The extents of a new file (none if it does not grow), and its layout. In a composite file
    /// that does not grow, a component gets its objects with its first byte. So the file is given
    /// its length, `file.size` bytes, and asked again.
    fn settled(&self, handle: &OwnedFd, file: &NewFile<'_>) -> (Vec<Extent>, Layout) {
        let lov = self.lov_of(handle);
        if let Some(open) = self.open(lov.as_ref()).filter(|_| file.first_extent_bytes.is_some()) {
            return open;
        }
        let layout = self.layout(lov.as_ref());
        let elsewhere = layout.osts().position(|ost| ost == self.stand.elsewhere);
        let starts = elsewhere.and_then(|position| layout.next_at(position, 0));
        let is_to_come = lov.is_some_and(|lov| lov.composite.is_some())
            && starts.is_some_and(|start| start < file.size);
        if !is_to_come || ftruncate(handle, file.size).is_err() {
            return (Vec::new(), layout);
        }
        (Vec::new(), self.layout(self.lov_of(handle).as_ref()))
    }
}

impl Layouts for Lustre {
    fn kind(&self) -> &'static str {
        PROVIDER.name
    }

    fn remarks(&self) -> Vec<String> {
        vec![REMARK.to_owned()]
    }

    fn osts(&self) -> Vec<OstSpec> {
        self.specs.clone()
    }

    fn targets(&self) -> Vec<Target> {
        let mut targets = self.table.read();
        // Numbers after those of the start stand for something else.
        targets.resize_with(self.stand.mdt.index(), || Target {
            state: OstState::Absent,
            ..Target::default()
        });
        targets
    }

    /// The bytes leave for the OST when they are written, so the time of a write shows how busy the
    /// OST is. Through the page cache they would leave later, from few threads, all at once.
    fn prefers_direct_writes(&self) -> bool {
        true
    }

    fn of_file(&self, file: &FileAt<'_>) -> Located {
        let lov = self.lov(file.directory, file.name);
        let is_archived = lov.as_ref().is_some_and(Lov::is_released);
        let layout = self.layout(lov.as_ref());
        let mirrors = lov.map_or_else(Vec::new, |lov| self.mirrors(&lov, &layout));
        Located { layout, mirrors, is_archived }
    }

    fn choose_mirror(&self, file: &OwnedFd, number: u16) -> Result<(), Errno> {
        lads_sys::lustre::choose_mirror(file, number)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno> {
        if file.is_there {
            let lov = self.lov(file.directory, file.name.as_bytes());
            return Ok(match self.open(lov.as_ref()) {
                Some((extents, layout)) => Placed { extents, ..Placed::at(layout) },
                None => Placed::at(self.layout(lov.as_ref())),
            });
        }
        let (handle, refusal) = self.make(file)?;
        let (extents, layout) = self.settled(&handle, file);
        let difference = difference(file.wish, &layout, Order::Kept, refusal, &self.specs);
        Ok(Placed { extents, is_made: true, file: Some(handle), difference, ..Placed::at(layout) })
    }

    fn extents(&self) -> Option<(u64, u32)> {
        Some((STRIPE_SIZE_UNIT.into(), self.stand.mdt.0))
    }

    fn add_extents(&self, file: &OwnedFd, extents: &[Extent]) -> Result<(), Errno> {
        let Some(first) = extents.first() else { return Ok(()) };
        let stripe_size = size_of(self.stripe_size);
        let wish = |extent: &Extent| (extent.range.end, Lov::wish_on(stripe_size, &[extent.ost]));
        let addition = Lov::wish_components(first.range.start, extents.iter().map(wish));
        self.table.add_components(file, &addition.encode())
    }

    fn raw(&self, file: &FileAt<'_>) -> Option<Vec<u8>> {
        self.bytes(file.directory, file.name)
    }

    fn heeds(&self) -> Heeds {
        Heeds::Place
    }

    fn stripe_size(&self) -> u64 {
        self.stripe_size
    }
}

/// Whether a part of the first `size` bytes of a file cannot be written, because it was to grow
/// further. Another provider may serve this file system now, and know nothing of it.
pub(crate) fn ends_before(file: &OwnedFd, size: u64) -> bool {
    let lov = read_all(|to| fgetxattr(file, ATTRIBUTE, to.as_mut_slice()));
    let extents = lov.ok().and_then(|bytes| Lov::parse(&bytes).ok()?.open_extents());
    extents.and_then(|it| it.last().cloned()).is_some_and(|last| last.range.end < size)
}

fn spec(name: String) -> OstSpec {
    OstSpec::new(name, IN_FLIGHT_MAX)
}

/// The stripe size that a directory gives to new files.
fn stripe_size_of(template: &[u8]) -> Option<u64> {
    let lov = Lov::parse(template).ok()?;
    let sizes = lov.components.iter().filter_map(|it| match &it.body {
        Body::Stripes(stripes) => Some(u64::from(stripes.stripe_size)),
        Body::Foreign(_) => None,
    });
    sizes.max().filter(|&size| size > 0)
}

/// A stripe size in the form that Lustre accepts.
fn size_of(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).min(STRIPE_SIZE_MAX)
}

fn lov_of(wish: &Wish) -> Option<Lov> {
    match wish {
        Wish::Default => None,
        Wish::Striped { stripe_size, stripe_count } => {
            let stripe_count = u16::try_from(*stripe_count).unwrap_or(u16::MAX).min(2000);
            Some(Lov::wish(size_of(*stripe_size), stripe_count))
        }
        Wish::On { stripe_size, osts } => Some(Lov::wish_on(size_of(*stripe_size), osts)),
    }
}

#[cfg(test)]
mod tests;
