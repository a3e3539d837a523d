//! The bytes themselves: both byte orders are read, little endian is written.

use super::{
    Body, Component, Composite, Foreign, Form, Lov, LovError, Object, POOL_BYTES_MAX, Stripes,
    WIDE_STRIPE_COUNT_MIN,
};
use crate::units::OstId;

const MAGIC_V1: u32 = 0x0bd1_0bd0;
const MAGIC_V3: u32 = 0x0bd3_0bd0;
const MAGIC_SPECIFIC: u32 = 0x0bd5_0bd0;
const MAGIC_COMPOSITE: u32 = 0x0bd6_0bd0;
const MAGIC_FOREIGN: u32 = 0x0bd7_0bd0;
/// A composite with extensions; clients mostly say [`MAGIC_COMPOSITE`] instead.
const MAGIC_EXTENDING: u32 = 0x0bd8_0bd0;
/// What all magics have in their low half.
const MAGIC_MARK: u32 = 0x0bd0;
/// A bit that may be set in a magic inside Lustre.
const MAGIC_DEFINED: u32 = 0x1000_0000;

/// Bytes of the struct before the objects, and of one that names a pool.
const V1_BYTES: usize = 32;
const V3_BYTES: usize = 48;
const POOL_FIELD_BYTES: usize = 16;
const OBJECT_BYTES: usize = 24;
const COMPOSITE_BYTES: usize = 32;
const ENTRY_BYTES: usize = 48;
const FOREIGN_BYTES: usize = 16;

impl Lov {
    /// Reads the value of the attribute, in either byte order.
    ///
    /// # Errors
    /// If the bytes are not a layout.
    pub fn parse(bytes: &[u8]) -> Result<Self, LovError> {
        let little = Bytes { bytes, is_swapped: false };
        let is_swapped = little.u32(0)? & 0xffff != MAGIC_MARK;
        let bytes = Bytes { bytes, is_swapped };
        match bytes.magic()? {
            MAGIC_COMPOSITE | MAGIC_EXTENDING => parse_composite(bytes),
            _ => parse_body(bytes).map(Self::single),
        }
    }

    /// The value of the attribute, in little endian.
    ///
    /// # Panics
    /// If it would be longer than 4 GiB, or is plain and has more than one component.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (&self.composite, self.components.as_slice()) {
            (Some(composite), components) => put_composite(composite, components, &mut bytes),
            (None, [component]) => put_body(&component.body, &mut bytes),
            (None, components) => panic!("a plain layout of {} components", components.len()),
        }
        bytes
    }
}

/// Bytes that are taken for numbers in one byte order.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    bytes: &'a [u8],
    is_swapped: bool,
}

impl<'a> Bytes<'a> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], LovError> {
        let field = at.checked_add(N).and_then(|end| self.bytes.get(at..end));
        let mut array: [u8; N] =
            field.and_then(|field| field.try_into().ok()).ok_or(LovError::Truncated)?;
        if self.is_swapped {
            array.reverse();
        }
        Ok(array)
    }

    fn u16(self, at: usize) -> Result<u16, LovError> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32, LovError> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64, LovError> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn magic(self) -> Result<u32, LovError> {
        self.u32(0).map(|magic| magic & !MAGIC_DEFINED)
    }

    fn part(self, at: usize, length: usize) -> Option<Self> {
        let bytes = self.bytes.get(at..at.checked_add(length)?)?;
        Some(Self { bytes, ..self })
    }
}

fn parse_composite(bytes: Bytes<'_>) -> Result<Lov, LovError> {
    let length = bytes.u32(4)? as usize;
    let bytes = bytes.part(0, length).ok_or(LovError::Truncated)?;
    let count = usize::from(bytes.u16(14)?);
    if COMPOSITE_BYTES + ENTRY_BYTES * count > length {
        return Err(LovError::Truncated);
    }
    let composite = Composite {
        generation: bytes.u32(8)?,
        mirror_state: bytes.u16(12)?,
        extra_mirrors: bytes.u16(16)?,
    };
    // Components that all pointed to the same bytes would take far more memory than those.
    let mut budget = length;
    let mut components = Vec::with_capacity(count);
    for index in 0..count {
        let at = COMPOSITE_BYTES + ENTRY_BYTES * index;
        let (offset, size) = (bytes.u32(at + 24)? as usize, bytes.u32(at + 28)? as usize);
        let outside = LovError::Unsound("a component is not at its offset");
        let body = bytes.part(offset, size).ok_or(outside)?;
        budget = budget.checked_sub(size).ok_or(LovError::Unsound("components overlap"))?;
        components.push(Component {
            id: bytes.u32(at)?,
            flags: bytes.u32(at + 4)?,
            extent: bytes.u64(at + 8)?..bytes.u64(at + 16)?,
            body: parse_body(body)?,
        });
    }
    Ok(Lov { composite: Some(composite), components })
}

fn parse_body(bytes: Bytes<'_>) -> Result<Body, LovError> {
    let form = match bytes.magic()? {
        MAGIC_V1 => Form::V1,
        MAGIC_V3 => Form::V3,
        MAGIC_SPECIFIC => Form::Specific,
        MAGIC_FOREIGN => return parse_foreign(bytes),
        magic => return Err(LovError::UnknownMagic(magic)),
    };
    let header = form.header_bytes();
    if bytes.bytes.len() < header {
        return Err(LovError::Truncated);
    }
    let pool = match form {
        Form::V1 => &[],
        Form::V3 | Form::Specific => &bytes.bytes[V1_BYTES..V1_BYTES + POOL_BYTES_MAX],
    };
    let pool = pool.iter().copied().take_while(|&byte| byte != 0).collect();
    let stripe_count = bytes.u16(28)?;
    let object_count = match stripe_count {
        WIDE_STRIPE_COUNT_MIN.. => 0,
        count => usize::from(count).min((bytes.bytes.len() - header) / OBJECT_BYTES),
    };
    let objects = (0..object_count)
        .map(|index| parse_object(bytes, header + index * OBJECT_BYTES))
        .collect::<Result<_, _>>()?;
    Ok(Body::Stripes(Stripes {
        form,
        pattern: bytes.u32(4)?,
        stripe_size: bytes.u32(24)?,
        stripe_count,
        first_ost: bytes.u16(30)?,
        pool,
        objects,
    }))
}

fn parse_object(bytes: Bytes<'_>, at: usize) -> Result<Object, LovError> {
    Ok(Object {
        id: bytes.u64(at)?,
        sequence: bytes.u64(at + 8)?,
        generation: bytes.u32(at + 16)?,
        ost: OstId(bytes.u32(at + 20)?),
    })
}

fn parse_foreign(bytes: Bytes<'_>) -> Result<Body, LovError> {
    let value = bytes.part(FOREIGN_BYTES, bytes.u32(4)? as usize).ok_or(LovError::Truncated)?;
    let (kind, flags) = (bytes.u32(8)?, bytes.u32(12)?);
    Ok(Body::Foreign(Foreign { kind, flags, value: value.bytes.to_vec() }))
}

impl Form {
    fn header_bytes(self) -> usize {
        match self {
            Self::V1 => V1_BYTES,
            Self::V3 | Self::Specific => V3_BYTES,
        }
    }

    fn magic(self) -> u32 {
        match self {
            Self::V1 => MAGIC_V1,
            Self::V3 => MAGIC_V3,
            Self::Specific => MAGIC_SPECIFIC,
        }
    }
}

fn put_composite(composite: &Composite, components: &[Component], to: &mut Vec<u8>) {
    let bodies: Vec<Vec<u8>> = components
        .iter()
        .map(|component| {
            let mut body = Vec::new();
            put_body(&component.body, &mut body);
            body
        })
        .collect();
    let entries_end = COMPOSITE_BYTES + ENTRY_BYTES * components.len();
    let length = entries_end + bodies.iter().map(Vec::len).sum::<usize>();
    to.extend(MAGIC_COMPOSITE.to_le_bytes());
    to.extend(length_field(length));
    to.extend(composite.generation.to_le_bytes());
    to.extend(composite.mirror_state.to_le_bytes());
    let count = u16::try_from(components.len()).expect("at most 65535 components");
    to.extend(count.to_le_bytes());
    to.extend(composite.extra_mirrors.to_le_bytes());
    to.resize(COMPOSITE_BYTES, 0);
    let mut offset = entries_end;
    for (component, body) in components.iter().zip(&bodies) {
        let entry_end = to.len() + ENTRY_BYTES;
        to.extend(component.id.to_le_bytes());
        to.extend(component.flags.to_le_bytes());
        to.extend(component.extent.start.to_le_bytes());
        to.extend(component.extent.end.to_le_bytes());
        to.extend(length_field(offset));
        to.extend(length_field(body.len()));
        to.resize(entry_end, 0);
        offset += body.len();
    }
    to.extend(bodies.concat());
}

fn length_field(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("layouts are far shorter than 4 GiB").to_le_bytes()
}

fn put_body(body: &Body, to: &mut Vec<u8>) {
    match body {
        Body::Stripes(stripes) => put_stripes(stripes, to),
        Body::Foreign(foreign) => {
            to.extend(MAGIC_FOREIGN.to_le_bytes());
            to.extend(length_field(foreign.value.len()));
            to.extend(foreign.kind.to_le_bytes());
            to.extend(foreign.flags.to_le_bytes());
            to.extend(&foreign.value);
        }
    }
}

fn put_stripes(stripes: &Stripes, to: &mut Vec<u8>) {
    let start = to.len();
    to.extend(stripes.form.magic().to_le_bytes());
    to.extend(stripes.pattern.to_le_bytes());
    // The id of the inode, which only the file system knows.
    to.extend([0; 16]);
    to.extend(stripes.stripe_size.to_le_bytes());
    to.extend(stripes.stripe_count.to_le_bytes());
    to.extend(stripes.first_ost.to_le_bytes());
    if stripes.form != Form::V1 {
        let pool = &stripes.pool[..stripes.pool.len().min(POOL_BYTES_MAX)];
        to.extend(pool);
        to.resize(start + V1_BYTES + POOL_FIELD_BYTES, 0);
    }
    for object in &stripes.objects {
        to.extend(object.id.to_le_bytes());
        to.extend(object.sequence.to_le_bytes());
        to.extend(object.generation.to_le_bytes());
        to.extend(object.ost.0.to_le_bytes());
    }
}
