//! Layouts in CephFS's words: `stripe_unit=… stripe_count=… object_size=… pool=…`, as a whole or
//! field by field.
//!
//! Only the words are Ceph's. Files are placed by the same rules as under Lustre's name: CephFS
//! scatters objects by a hash, which a layout of stripes cannot express. So the object size has no
//! effect here. The reported object size is the least multiple of the stripe unit that is not below
//! Ceph's default.

use lads_core::lov::{Body, Lov};
use rustix::io::Errno;

const FILE: &str = "ceph.file.layout";
const DIRECTORY: &str = "ceph.dir.layout";

/// The only pool.
const POOL: &str = "data";

/// Ceph's default object size, in bytes.
const OBJECT_SIZE_MIN: u64 = 4 << 20;

/// Returns the field that an attribute is about; the empty text stands for all fields.
pub(super) fn field(name: &str, is_directory: bool) -> Option<&str> {
    let rest = name.strip_prefix(if is_directory { DIRECTORY } else { FILE })?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('.') }
}

/// Returns the value of a field.
///
/// # Errors
/// `ENODATA` if there is no such field.
pub(super) fn tell(lov: &Lov, field: &str) -> Result<String, Errno> {
    let shape = Shape::of(lov);
    let object_size = OBJECT_SIZE_MIN.next_multiple_of(shape.stripe_unit.into());
    let (unit, count) = (shape.stripe_unit, shape.stripe_count);
    match field {
        "" => Ok(format!(
            "stripe_unit={unit} stripe_count={count} object_size={object_size} pool={POOL}"
        )),
        "stripe_unit" => Ok(unit.to_string()),
        "stripe_count" => Ok(count.to_string()),
        "object_size" => Ok(object_size.to_string()),
        "pool" => Ok(POOL.to_owned()),
        _ => Err(Errno::NODATA),
    }
}

/// Returns the layout wished for when a field of a layout is set to a value.
///
/// # Errors
/// `EINVAL` if the field cannot have this value.
pub(super) fn wish(lov: &Lov, field: &str, value: &[u8]) -> Result<Lov, Errno> {
    let value = str::from_utf8(value).map_err(|_| Errno::INVAL)?.trim_end_matches('\0');
    let mut shape = Shape::of(lov);
    let mut object_size = None;
    let whole = value.split_whitespace().map(|setting| setting.split_once('='));
    let single = [Some((field, value))];
    let settings: Vec<_> = if field.is_empty() { whole.collect() } else { single.into() };
    for setting in settings {
        match setting.ok_or(Errno::INVAL)? {
            ("stripe_unit", value) => shape.stripe_unit = number(value)?,
            ("stripe_count", value) => shape.stripe_count = number(value)?,
            ("object_size", value) => object_size = Some(number::<u32>(value)?),
            ("pool", POOL) => {}
            _ => return Err(Errno::INVAL),
        }
    }
    let is_sound = shape.stripe_unit > 0
        && shape.stripe_count > 0
        && object_size.is_none_or(|size| size > 0 && size.is_multiple_of(shape.stripe_unit));
    if is_sound { Ok(Lov::wish(shape.stripe_unit, shape.stripe_count)) } else { Err(Errno::INVAL) }
}

/// The properties that Ceph's words and Lustre's have in common.
struct Shape {
    stripe_unit: u32,
    stripe_count: u16,
}

impl Shape {
    fn of(lov: &Lov) -> Self {
        match lov.components.first().map(|it| &it.body) {
            Some(Body::Stripes(it)) => {
                Self { stripe_unit: it.stripe_size, stripe_count: it.stripe_count }
            }
            _ => Self { stripe_unit: 1 << 20, stripe_count: 1 },
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Errno> {
    text.parse().map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_layout_as_a_whole_and_by_field() {
        let lov = Lov::wish(1 << 20, 4);
        let whole = "stripe_unit=1048576 stripe_count=4 object_size=4194304 pool=data";
        assert_eq!(tell(&lov, "").as_deref(), Ok(whole));
        assert_eq!(tell(&lov, "stripe_count").as_deref(), Ok("4"));
        assert_eq!(tell(&lov, "pool_namespace"), Err(Errno::NODATA));
        assert_eq!(field("ceph.file.layout.pool", false), Some("pool"));
        assert_eq!(field("ceph.dir.layout", true), Some(""));
        assert_eq!(field("ceph.dir.layout", false), None);
    }

    #[test]
    fn what_it_tells_can_be_wished_for() {
        let lov = Lov::wish(3 << 16, 5);
        assert_eq!(wish(&Lov::wish(1, 1), "", tell(&lov, "").unwrap().as_bytes()), Ok(lov));
        assert_eq!(wish(&Lov::wish(1 << 16, 1), "stripe_count", b"7"), Ok(Lov::wish(1 << 16, 7)));
    }

    #[test]
    fn nonsense_is_refused() {
        for value in ["what", "stripe_unit=x", "pool=other", "stripe_unit=65536 object_size=70000"]
        {
            let refused = wish(&Lov::wish(1 << 16, 1), "", value.as_bytes());
            assert_eq!(refused, Err(Errno::INVAL), "{value}");
        }
    }
}
