//! What the bytes of Lustre's `lustre.lov` attribute say, and how to say the same.
//!
//! The attribute of a file tells which OST holds which part of it; that of a directory is a
//! template for new files; written to a file that has no layout yet, it is the wish for one. All
//! are one of three forms: plain (`V1`, `V3` with a pool), composite (extents with a layout each:
//! progressive layouts, data on the MDT, self-extending ones, mirrors), or foreign (no OST at all:
//! data in an archive). [`Lov`] is any of them; a plain one has a single component.
//!
//! The bytes may come from anywhere: [`Lov::parse`] neither panics nor takes more memory than a
//! small multiple of what it is given. What is of no use here (ids of the inode, time stamps,
//! erasure codes) is left out, so a layout that is read and written again is the same in effect,
//! not in every byte; LADS never gives the layout of one file to another.
//!
//! Offsets of fields are those of Lustre's `lustre_user.h`, 2.12 to 2.17, which has not changed
//! them.

mod codec;

use crate::growth::Extent;
use crate::layout::{Layout, Part};
use crate::units::OstId;
use std::ops::Range;
use thiserror::Error;

/// Name of the attribute. It needs no privilege, other than `trusted.lov`, which is the same.
pub const ATTRIBUTE: &str = "lustre.lov";

/// Written to a composite file, adds components behind its last one, if that does not reach to the
/// end of all files. Of each, extent, stripe size, stripe count and first OST are taken, not a list
/// of OSTs (Lustre's `lod_object.c`, `lod_declare_layout_add`).
pub const ATTRIBUTE_ADD: &str = "lustre.lov.add";

/// The longest value an attribute can have, in bytes.
pub const BYTES_MAX: usize = 65536;

/// Stripe sizes are multiples of this, in bytes.
pub const STRIPE_SIZE_UNIT: u32 = 65536;

/// First OST of a wish: any.
pub const ANY_OST: u16 = 0xffff;

/// Stripe count of a template: on all OSTs. From [`WIDE_STRIPE_COUNT_MIN`] on, several times.
pub const ALL_OSTS: u16 = 0xffff;

/// From here on a stripe count is no number, but says how wide to stripe; there are no objects.
pub const WIDE_STRIPE_COUNT_MIN: u16 = 0xffe0;

/// Longest name of a pool of OSTs, in bytes.
pub const POOL_BYTES_MAX: usize = 15;

/// Bits of [`Component::flags`].
pub mod flag {
    /// The component's data is older than that of another mirror.
    pub const STALE: u32 = 0x1;
    /// Its mirror is best read.
    pub const PREFERRED_FOR_READS: u32 = 0x2;
    /// It has objects: something was, or may be, written there.
    pub const INSTANTIATED: u32 = 0x10;
    /// Room into which the component before it may grow; it never holds data itself.
    pub const EXTENSION: u32 = 0x40;
    /// It holds erasure codes, not data.
    pub const PARITY: u32 = 0x80;
}

/// Bits of [`Stripes::pattern`].
pub mod pattern {
    /// Striped over objects in turn.
    pub const RAID0: u32 = 0x1;
    /// On the MDT.
    pub const MDT: u32 = 0x100;
    /// Striped, and an OST may come several times.
    pub const OVERSTRIPED: u32 = 0x200;
    /// The data is in an archive; reading it brings it back, which can take hours.
    pub const RELEASED: u32 = 0x8000_0000;
}

/// Why bytes are not a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LovError {
    /// They end before the layout does.
    #[error("the layout ends too early")]
    Truncated,
    /// They begin with a number that no layout begins with.
    #[error("the layout is of an unknown kind ({0:#010x})")]
    UnknownMagic(u32),
    /// A part of it says where it is, and it is not there.
    #[error("the layout contradicts itself: {0}")]
    Unsound(&'static str),
}

/// A layout as Lustre keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lov {
    /// What a composite layout says of itself; `None` for a plain or a foreign one.
    pub composite: Option<Composite>,
    /// Its components; exactly one if it is not composite.
    pub components: Vec<Component>,
}

/// What a composite layout says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Composite {
    /// Changes whenever the layout does.
    pub generation: u32,
    /// State of the mirrors: 0 none, 1 in sync, 2 being written, 3 being brought in sync.
    pub mirror_state: u16,
    /// How many further copies there are; zero for a file that is not mirrored.
    pub extra_mirrors: u16,
}

/// A part of a file, and how it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Which one it is, and of which mirror; zero in a wish.
    pub id: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Bytes of the file; `u64::MAX` as the end means without end.
    pub extent: Range<u64>,
    /// How they lie.
    pub body: Body,
}

/// How a component lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// On OSTs, or the MDT.
    Stripes(Stripes),
    /// Elsewhere.
    Foreign(Foreign),
}

/// Data that Lustre itself does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// What kind of place it is in.
    pub kind: u32,
    /// Flags of that kind.
    pub flags: u32,
    /// What that kind needs to find it.
    pub value: Vec<u8>,
}

/// In which of the forms stripes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Without a pool.
    V1,
    /// With a pool.
    V3,
    /// A wish for the OSTs listed.
    Specific,
}

/// Bytes striped over objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// In which form it is written.
    pub form: Form,
    /// Bits of [`pattern`].
    pub pattern: u32,
    /// Bytes before the next object takes over; zero in a template means the default. In a
    /// component that is an extension, how far to grow at a time, in KiB.
    pub stripe_size: u32,
    /// How many stripes there are or, if there are no objects, are wished for: zero for the
    /// default, [`ALL_OSTS`] for all.
    pub stripe_count: u16,
    /// In a wish, the first OST, or [`ANY_OST`]. In what Lustre answers it means nothing.
    pub first_ost: u16,
    /// The pool of OSTs to choose from; empty for none. At most [`POOL_BYTES_MAX`] bytes.
    pub pool: Vec<u8>,
    /// What holds the stripes, in turn. None if nothing was written yet, or the data is on the MDT
    /// or in an archive.
    pub objects: Vec<Object>,
}

/// The part of a file that one OST holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its name on the OST: number.
    pub id: u64,
    /// Its name on the OST: sequence.
    pub sequence: u64,
    /// Generation of the OST.
    pub generation: u32,
    /// The OST.
    pub ost: OstId,
}

/// Where a byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On an OST.
    Ost(OstId),
    /// On the MDT that holds the inode.
    Mdt,
    /// Nowhere: nothing was ever written there.
    Nowhere,
    /// In an archive, from which reading brings it back.
    Archive,
    /// Where a foreign layout says.
    Foreign,
}

/// One of the copies of a byte that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Which mirror it is in; zero if the file is not mirrored.
    pub mirror: u16,
    /// Whether the file system would rather have this mirror read.
    pub is_preferred: bool,
    /// Where it is.
    pub place: Place,
    /// Where in the object, in bytes; for the MDT, where in the file.
    pub object_offset: u64,
    /// The first byte of the file that is not in the same place, or not beside this one there.
    pub end: u64,
}

/// Which of our numbers stand for what has no OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// For the MDT.
    pub mdt: OstId,
    /// For what is nowhere, or nowhere that is known.
    pub elsewhere: OstId,
}

impl Lov {
    /// A wish for stripes, or a template of them: as many as `stripe_count`, anywhere.
    #[must_use]
    pub fn wish(stripe_size: u32, stripe_count: u16) -> Self {
        Self::plain(Stripes {
            form: Form::V1,
            pattern: pattern::RAID0,
            stripe_size,
            stripe_count,
            first_ost: ANY_OST,
            pool: Vec::new(),
            objects: Vec::new(),
        })
    }

    /// A wish for stripes on exactly these OSTs, in turn; an OST may come several times.
    ///
    /// One OST is wished for in the short form, which costs the file system less.
    ///
    /// # Panics
    /// If there are more than 2000, or none.
    #[must_use]
    pub fn wish_on(stripe_size: u32, osts: &[OstId]) -> Self {
        let stripe_count = u16::try_from(osts.len()).expect("at most 2000 OSTs");
        assert!((1..=2000).contains(&stripe_count), "stripes on {stripe_count} OSTs");
        let mut wish = Self::wish(stripe_size, stripe_count);
        let Body::Stripes(stripes) = &mut wish.components[0].body else { return wish };
        let first = u16::try_from(osts[0].0).ok().filter(|&first| first != ANY_OST);
        if let ([_], Some(first)) = (osts, first) {
            stripes.first_ost = first;
            return wish;
        }
        let mut seen = osts.to_vec();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() < osts.len() {
            stripes.pattern |= pattern::OVERSTRIPED;
        }
        stripes.form = Form::Specific;
        stripes.objects = osts.iter().map(|&ost| Object { ost, ..Object::default() }).collect();
        wish
    }

    /// A wish for components that follow each other: where each ends, and how it lies.
    ///
    /// # Panics
    /// If a wish among them is composite itself.
    #[must_use]
    pub fn wish_composite(wishes: impl IntoIterator<Item = (u64, Self)>) -> Self {
        Self::wish_components(0, wishes)
    }

    /// A wish for components that follow each other from `start` on: where each ends, and how it
    /// lies. What [`ATTRIBUTE_ADD`] takes.
    ///
    /// # Panics
    /// If a wish among them is composite itself.
    #[must_use]
    pub fn wish_components(mut start: u64, wishes: impl IntoIterator<Item = (u64, Self)>) -> Self {
        let components = wishes.into_iter().map(|(end, wish)| {
            assert!(wish.composite.is_none(), "components are plain");
            let body = wish.components.into_iter().next().expect("a plain one has one").body;
            let extent = std::mem::replace(&mut start, end)..end;
            Component { id: 0, flags: 0, extent, body }
        });
        let components = components.collect();
        Self { composite: Some(Composite::default()), components }
    }

    /// What a file consists of to which components can be added, if each of those that it has is on
    /// one OST; `None` if none can be added. Of a component in which nothing was written yet, the
    /// OST is not known: it counts as that of the one before.
    #[must_use]
    pub fn open_extents(&self) -> Option<Vec<Extent>> {
        let composite = self.composite?;
        if composite.mirror_state != 0 || composite.extra_mirrors != 0 {
            return None;
        }
        let mut extents: Vec<Extent> = Vec::new();
        for component in &self.components {
            let Body::Stripes(stripes) = &component.body else { return None };
            let start = extents.last().map_or(0, |it| it.range.end);
            let is_next = component.extent.start == start && !component.extent.is_empty();
            if !is_next || stripes.stripe_count != 1 || stripes.pattern != pattern::RAID0 {
                return None;
            }
            let ost = match component.place(start) {
                Place::Ost(ost) => ost,
                Place::Nowhere => extents.last()?.ost,
                _ => return None,
            };
            extents.push(Extent { range: component.extent.clone(), ost });
        }
        (extents.last()?.range.end < u64::MAX).then_some(extents)
    }

    /// A layout of stripes alone.
    #[must_use]
    pub fn plain(stripes: Stripes) -> Self {
        Self::single(Body::Stripes(stripes))
    }

    fn single(body: Body) -> Self {
        let component = Component { id: 0, flags: flag::INSTANTIATED, extent: 0..u64::MAX, body };
        Self { composite: None, components: vec![component] }
    }

    /// Reports whether the data, or some of it, is in an archive.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.components.iter().any(|it| it.place(it.extent.start) == Place::Archive)
    }

    /// The copies of the byte at `offset` that can be read; none if nothing is said of it.
    pub fn replicas_at(&self, offset: u64) -> impl Iterator<Item = Replica> + '_ {
        let covering = self.components.iter().filter(move |it| it.extent.contains(&offset));
        covering.filter(|it| it.is_readable()).map(move |it| it.replica(offset))
    }

    /// The copy of the byte at `offset` that a client reads if it is not told otherwise: of a
    /// mirror that is preferred, or else the first.
    #[must_use]
    pub fn usual_replica_at(&self, offset: u64) -> Option<Replica> {
        self.usual_component_at(offset).map(|it| it.replica(offset))
    }

    /// Returns where each byte lies, for schedules: of mirrors, the one that a client reads.
    #[must_use]
    pub fn layout(&self, stand: Stand) -> Layout {
        self.layout_by(stand, |offset| self.usual_component_at(offset))
    }

    /// Number and layout of each mirror that can be read from beginning to end, and is not older
    /// than others in any of its parts; none if the file is not mirrored.
    #[must_use]
    pub fn mirrors(&self, stand: Stand) -> Vec<(u16, Layout)> {
        let mut numbers: Vec<u16> = self.components.iter().map(Component::mirror).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let of = |number| self.components.iter().filter(move |it| it.mirror() == number);
        let can_be_read = |it: &Component| {
            let is_away = matches!(it.place(it.extent.start), Place::Archive | Place::Foreign);
            it.flags & (flag::STALE | flag::PARITY) == 0 && !is_away
        };
        let is_sound = |number: &u16| *number > 0 && of(*number).all(can_be_read);
        let layout = |number| {
            let at = |offset| of(number).find(|it| it.is_readable() && it.extent.contains(&offset));
            (number, self.layout_by(stand, at))
        };
        numbers.into_iter().filter(is_sound).map(layout).collect()
    }

    fn layout_by<'a>(
        &'a self,
        stand: Stand,
        component_at: impl Fn(u64) -> Option<&'a Component>,
    ) -> Layout {
        let mut borders: Vec<u64> =
            self.components.iter().flat_map(|it| [it.extent.start, it.extent.end]).collect();
        borders.extend([0, u64::MAX]);
        borders.sort_unstable();
        borders.dedup();
        let parts = borders.windows(2).map(|border| {
            let (start, end) = (border[0], border[1]);
            let component = component_at(start);
            let (stripe_size, osts) =
                component.map_or_else(|| (u64::MAX, vec![stand.elsewhere]), |it| it.stripes(stand));
            Part { end, stripe_size, osts }
        });
        Layout::composite(parts).unwrap_or_else(|| Layout::on(stand.elsewhere))
    }

    fn usual_component_at(&self, offset: u64) -> Option<&Component> {
        let covering = self.components.iter().filter(|it| it.extent.contains(&offset));
        covering.filter(|it| it.is_readable()).min_by_key(|it| {
            let replica = it.replica(offset);
            (replica.place == Place::Nowhere, !replica.is_preferred)
        })
    }
}

impl Component {
    /// The number of the mirror that it belongs to; zero if the file is not mirrored.
    #[must_use]
    pub fn mirror(&self) -> u16 {
        u16::try_from((self.id >> 16) & 0x7fff).expect("15 bits")
    }

    fn is_readable(&self) -> bool {
        self.flags & (flag::STALE | flag::PARITY | flag::EXTENSION) == 0
    }

    fn replica(&self, offset: u64) -> Replica {
        let (object_offset, run_end) = match &self.body {
            Body::Stripes(stripes) => stripes.run(offset),
            Body::Foreign(_) => (offset, u64::MAX),
        };
        Replica {
            mirror: self.mirror(),
            is_preferred: self.flags & flag::PREFERRED_FOR_READS != 0,
            place: self.place(offset),
            object_offset,
            end: run_end.min(self.extent.end),
        }
    }

    fn place(&self, offset: u64) -> Place {
        match &self.body {
            Body::Foreign(_) => Place::Foreign,
            Body::Stripes(stripes) if stripes.is_released() => Place::Archive,
            Body::Stripes(_) if self.flags & flag::INSTANTIATED == 0 => Place::Nowhere,
            Body::Stripes(stripes) => stripes.place(offset),
        }
    }

    /// Stripe size and OSTs for a schedule.
    fn stripes(&self, stand: Stand) -> (u64, Vec<OstId>) {
        match (self.place(self.extent.start), &self.body) {
            (Place::Mdt, _) => (u64::MAX, vec![stand.mdt]),
            (Place::Ost(_), Body::Stripes(stripes)) => {
                let osts = stripes.striped().iter().map(|object| object.ost).collect();
                (u64::from(stripes.stripe_size), osts)
            }
            _ => (u64::MAX, vec![stand.elsewhere]),
        }
    }
}

impl Stripes {
    fn is_released(&self) -> bool {
        self.pattern & pattern::RELEASED != 0
    }

    /// The objects, if all stripes have one and bytes are in them.
    fn striped(&self) -> &[Object] {
        let count = usize::from(self.stripe_count);
        let is_striped =
            self.pattern & pattern::RAID0 != 0 && !self.is_released() && self.stripe_size > 0;
        self.objects.get(..count).filter(|_| is_striped).unwrap_or(&[])
    }

    /// Which object has the byte at `offset`: counted from the beginning of the file, wherever
    /// the component begins (Lustre's `lov_offset.c`).
    fn object_at(&self, offset: u64) -> Option<&Object> {
        let objects = self.striped();
        let stripe =
            (offset / u64::from(self.stripe_size.max(1))).checked_rem(objects.len() as u64);
        objects.get(usize::try_from(stripe?).expect("less than a number of objects"))
    }

    fn place(&self, offset: u64) -> Place {
        if self.pattern & pattern::MDT != 0 {
            return Place::Mdt;
        }
        self.object_at(offset).map_or(Place::Nowhere, |object| Place::Ost(object.ost))
    }

    /// Where in its object the byte at `offset` is, and where its neighbours end.
    fn run(&self, offset: u64) -> (u64, u64) {
        let stripe_size = u64::from(self.stripe_size);
        match self.striped().len() as u64 {
            0 | 1 => (offset, u64::MAX),
            count => {
                let object_offset =
                    offset / (stripe_size * count) * stripe_size + offset % stripe_size;
                (object_offset, (offset / stripe_size + 1).saturating_mul(stripe_size))
            }
        }
    }
}

#[cfg(test)]
mod tests;
