//! What CephFS says of where a file lies, and which object that makes of a byte.
//!
//! A file is cut into *objects*. Stripes of one unit go round this many objects until those are
//! full, and then round the next this many: an object set (Ceph's "File layouts" and `Striper.cc`).
//! Unit, count, object size and pool are told by an attribute as text ([`FileLayout`]). An object
//! has a name made of the file's inode and its number ([`object_name`]); the name says to which
//! placement group of its pool it belongs ([`Pool::group`]), and the cluster says on which OSDs
//! that group is.

mod hash;

use hash::rjenkins;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The attribute of a file.
pub const FILE_ATTRIBUTE: &str = "ceph.file.layout";
/// The attribute of a directory: what new files in it get, if it has an opinion.
pub const DIRECTORY_ATTRIBUTE: &str = "ceph.dir.layout";

/// Units and object sizes are multiples of this, in bytes (`CEPH_MIN_STRIPE_UNIT`).
pub const UNIT_BYTES: u32 = 64 << 10;
/// The largest object that OSDs take unless told otherwise, in bytes (`osd_max_object_size`).
pub const OBJECT_BYTES_MAX: u32 = 128 << 20;

/// The longest text that can be a layout: names of pools and namespaces are not that long.
const TEXT_BYTES_MAX: usize = 4096;

/// How a file is cut into objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectStriping {
    unit: u32,
    count: u32,
    object_size: u32,
}

/// A byte, as its object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectByte {
    /// Which object of the file.
    pub object: u64,
    /// Where in the object, in bytes.
    pub offset: u64,
}

/// The layout of a file, or what a directory gives to new files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// How it is cut into objects.
    pub striping: ObjectStriping,
    /// The pool of the objects: its name, or its number if it has none.
    pub pool: String,
    /// The namespace in that pool; empty if none.
    pub namespace: String,
}

/// A value of a layout that was asked for by itself (`ceph.file.layout.stripe_unit`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Bytes of a stripe.
    StripeUnit(u32),
    /// Objects in turn.
    StripeCount(u32),
    /// Bytes of an object.
    ObjectSize(u32),
    /// The pool.
    Pool(String),
    /// The namespace in it.
    PoolNamespace(String),
}

/// Why a text is not a layout.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// It is not text, or too long.
    #[error("not a layout")]
    Text,
    /// A word is not `key=value`, with a key that layouts have.
    #[error("not a field of a layout: {0:?}")]
    Word(String),
    /// A value is missing, or is there twice.
    #[error("{0} is missing or appears twice")]
    Incomplete(&'static str),
    /// Numbers that no file can have.
    #[error("impossible striping")]
    Striping,
}

impl ObjectStriping {
    /// Stripes of `unit` bytes round `count` objects of `object_size` bytes; `None` if one is zero
    /// or an object does not hold a whole number of units.
    #[must_use]
    pub fn new(unit: u32, count: u32, object_size: u32) -> Option<Self> {
        let is_sound = unit > 0 && count > 0 && object_size > 0 && object_size.is_multiple_of(unit);
        is_sound.then_some(Self { unit, count, object_size })
    }

    /// Bytes of a stripe.
    #[must_use]
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// Objects in turn.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of an object.
    #[must_use]
    pub fn object_size(&self) -> u32 {
        self.object_size
    }

    /// Bytes of an object set: after this many, others take over.
    #[must_use]
    pub fn set_bytes(&self) -> u64 {
        u64::from(self.count) * u64::from(self.object_size)
    }

    /// The object that has the byte at `offset`, and where.
    #[must_use]
    pub fn locate(&self, offset: u64) -> ObjectByte {
        let (unit, count) = (u64::from(self.unit), u64::from(self.count));
        let stripes_per_object = u64::from(self.object_size) / unit;
        let block = offset / unit;
        let (row, column) = (block / count, block % count);
        ObjectByte {
            object: row / stripes_per_object * count + column,
            offset: row % stripes_per_object * unit + offset % unit,
        }
    }

    /// The first byte after those that follow `offset` in its object without a gap.
    #[must_use]
    pub fn run_end(&self, offset: u64) -> u64 {
        let run = u64::from(if self.count == 1 { self.object_size } else { self.unit });
        (offset / run).saturating_add(1).saturating_mul(run)
    }

    /// Returns how many objects the first `size` bytes of a file have.
    #[must_use]
    pub fn object_count(&self, size: u64) -> u64 {
        let (sets, rest) = (size / self.set_bytes(), size % self.set_bytes());
        let rest = rest.div_ceil(self.unit.into()).min(self.count.into());
        (sets * u64::from(self.count)).saturating_add(rest)
    }
}

/// What an object is called in its pool: inode and number, in hexadecimal.
#[must_use]
pub fn object_name(inode: u64, object: u64) -> String {
    format!("{inode:x}.{object:08x}")
}

/// What must be known of a pool to say to which of its placement groups an object belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// How many groups it has; not zero.
    pub group_count: u32,
}

impl Pool {
    /// The number of the group of an object: a hash of its name, folded so that most objects stay
    /// where they are while groups are added (`ceph_stable_mod`).
    #[must_use]
    pub fn group(&self, namespace: &str, object: &str) -> u32 {
        let hash = match namespace {
            "" => rjenkins(object.as_bytes()),
            _ => rjenkins(&[namespace.as_bytes(), b"\x1f", object.as_bytes()].concat()),
        };
        let count = self.group_count.max(1);
        let mask = u32::MAX.checked_shr((count - 1).leading_zeros()).unwrap_or(0);
        match hash & mask {
            group if group < count => group,
            _ => hash & (mask >> 1),
        }
    }
}

impl FromStr for FileLayout {
    type Err = LayoutError;

    /// Reads `stripe_unit=… stripe_count=… object_size=… pool=…[ pool_namespace=…]`, in any order.
    fn from_str(text: &str) -> Result<Self, LayoutError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(LayoutError::Text);
        }
        let (mut unit, mut count, mut object_size) = (None, None, None);
        let (mut pool, mut namespace) = (None, None);
        for word in text.trim_end_matches('\0').split_whitespace() {
            let is_new = match Field::parse(word)? {
                Field::StripeUnit(value) => unit.replace(value).is_none(),
                Field::StripeCount(value) => count.replace(value).is_none(),
                Field::ObjectSize(value) => object_size.replace(value).is_none(),
                Field::Pool(value) => pool.replace(value).is_none(),
                Field::PoolNamespace(value) => namespace.replace(value).is_none(),
            };
            if !is_new {
                return Err(LayoutError::Word(word.to_owned()));
            }
        }
        let unit = unit.ok_or(LayoutError::Incomplete("stripe_unit"))?;
        let count = count.ok_or(LayoutError::Incomplete("stripe_count"))?;
        let object_size = object_size.ok_or(LayoutError::Incomplete("object_size"))?;
        Ok(Self {
            striping: ObjectStriping::new(unit, count, object_size).ok_or(LayoutError::Striping)?,
            pool: pool.ok_or(LayoutError::Incomplete("pool"))?,
            namespace: namespace.unwrap_or_default(),
        })
    }
}

impl FileLayout {
    /// Reads the value of the attribute.
    ///
    /// # Errors
    /// If it is not the text of a layout.
    pub fn parse(value: &[u8]) -> Result<Self, LayoutError> {
        std::str::from_utf8(value).map_err(|_| LayoutError::Text)?.parse()
    }
}

impl fmt::Display for FileLayout {
    /// As the attribute has it, and takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pool={}", self.striping, self.pool)?;
        match self.namespace.as_str() {
            "" => Ok(()),
            namespace => write!(f, " pool_namespace={namespace}"),
        }
    }
}

impl fmt::Display for ObjectStriping {
    /// As the attribute takes it from who has no wish about the pool.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, count, object_size } = self;
        write!(f, "stripe_unit={unit} stripe_count={count} object_size={object_size}")
    }
}

impl Field {
    /// Reads one `key=value`.
    ///
    /// # Errors
    /// If layouts have no such key, or the key no such value.
    pub fn parse(word: &str) -> Result<Self, LayoutError> {
        let refused = || LayoutError::Word(word.to_owned());
        let (key, value) = word.split_once('=').ok_or_else(refused)?;
        Self::of(key, value).ok_or_else(refused)
    }

    /// The value of a key that was asked for by itself; `None` if layouts have no such key, or the
    /// key no such value.
    #[must_use]
    pub fn of(key: &str, value: &str) -> Option<Self> {
        // The kernel ends the whole text with a NUL, and no name holds one.
        if value.contains('\0') {
            return None;
        }
        let is_digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let number = || value.parse().ok().filter(|_| is_digits);
        let name = || value.to_owned();
        match key {
            "stripe_unit" => number().map(Self::StripeUnit),
            "stripe_count" => number().map(Self::StripeCount),
            "object_size" => number().map(Self::ObjectSize),
            "pool" => Some(Self::Pool(name())).filter(|_| !value.is_empty()),
            "pool_namespace" => Some(Self::PoolNamespace(name())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
