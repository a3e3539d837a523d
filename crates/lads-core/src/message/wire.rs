//! How values become bytes: small values, all of limited size.
//!
//! Numbers are unsigned LEB128 (seven bits a byte, least significant first). Byte strings and lists
//! are a count and then their items. A reader never trusts a count: a list cannot have more items
//! than there are bytes left. See `docs/protocol.md`, section 3.

use crate::limits::LIST_COUNT_MAX;
use thiserror::Error;

/// Why bytes from the peer are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The bytes end before the value does.
    #[error("the message ends too early")]
    Truncated,
    /// A number is out of its range, or a choice is unknown.
    #[error("the message holds a value out of range: {0}")]
    OutOfRange(&'static str),
    /// A list has more rows than any honest end sends in one message.
    #[error("the message holds a list of {0} rows")]
    LongList(u64),
}

/// The bytes of a message, as they are written.
pub type Writer = Vec<u8>;

/// Reads values from the bytes of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    list_count_max: u64,
}

impl<'a> Reader<'a> {
    /// Reads bytes from a peer, from the beginning of `bytes`. No list may have more than
    /// [`LIST_COUNT_MAX`] rows, because a row of one or two bytes takes up to 200 bytes in memory.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, list_count_max: LIST_COUNT_MAX as u64 }
    }

    /// Reads bytes that a process of the same user wrote, or a user's list. Lists may have any
    /// length.
    #[must_use]
    pub fn of_own(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, list_count_max: u64::MAX }
    }

    /// Takes the next `count` bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(WireError::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Returns how many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

/// A value with one form on the wire.
pub trait Wire: Sized {
    /// Appends the value.
    fn put(&self, to: &mut Writer);

    /// Takes the value.
    ///
    /// # Errors
    /// If the bytes are not such a value.
    fn take(from: &mut Reader<'_>) -> Result<Self, WireError>;
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, to: &mut Writer) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl Wire for u64 {
    fn put(&self, to: &mut Writer) {
        let mut rest = *self;
        loop {
            let low = (rest & 0x7f) as u8;
            rest >>= 7;
            if rest == 0 {
                to.push(low);
                return;
            }
            to.push(low | 0x80);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = from.bytes(1)?[0];
            let bits = Self::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::OutOfRange("number"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::OutOfRange("number"))
    }
}

macro_rules! wire_number {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, to: &mut Writer) {
                u64::from(*self).put(to);
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
                Self::try_from(u64::take(from)?).map_err(|_| WireError::OutOfRange("number"))
            }
        }
    )*};
}
wire_number!(u8, u16, u32);

/// Signed numbers are sent in zigzag form: 0, -1, 1, -2 … become 0, 1, 2, 3 …
impl Wire for i64 {
    fn put(&self, to: &mut Writer) {
        ((self << 1) ^ (self >> 63)).cast_unsigned().put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let zigzag = u64::take(from)?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }
}

impl Wire for i32 {
    fn put(&self, to: &mut Writer) {
        i64::from(*self).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Self::try_from(i64::take(from)?).map_err(|_| WireError::OutOfRange("number"))
    }
}

impl Wire for bool {
    fn put(&self, to: &mut Writer) {
        to.push(u8::from(*self));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        match from.bytes(1)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::OutOfRange("a boolean")),
        }
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn put(&self, to: &mut Writer) {
        to.extend_from_slice(self);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(from.bytes(N)?.try_into().expect("as many bytes as asked for"))
    }
}

impl Wire for Vec<u8> {
    fn put(&self, to: &mut Writer) {
        (self.len() as u64).put(to);
        to.extend_from_slice(self);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let count = usize::try_from(u64::take(from)?).map_err(|_| WireError::Truncated)?;
        Ok(from.bytes(count)?.to_vec())
    }
}

impl Wire for String {
    fn put(&self, to: &mut Writer) {
        (self.len() as u64).put(to);
        to.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Self::from_utf8(Vec::<u8>::take(from)?).map_err(|_| WireError::OutOfRange("text"))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut Writer) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

/// Writes a list: the count, then each item. `Vec<u8>` has its own, shorter form.
pub fn put_list<T: Wire>(list: &[T], to: &mut Writer) {
    (list.len() as u64).put(to);
    for value in list {
        value.put(to);
    }
}

/// Reads a list that [`put_list`] wrote.
///
/// # Errors
/// If the bytes are not such a list.
pub fn take_list<T: Wire>(from: &mut Reader<'_>) -> Result<Vec<T>, WireError> {
    let count = u64::take(from)?;
    if count > from.list_count_max {
        return Err(WireError::LongList(count));
    }
    // Every item takes at least one byte, so a count beyond that is a lie. No memory is reserved
    // for it.
    if count > from.remaining() as u64 {
        return Err(WireError::Truncated);
    }
    (0..count).map(|_| T::take(from)).collect()
}

/// Implements the form of lists on the wire for these types.
#[macro_export]
macro_rules! wire_list {
    ($($item:ty),* $(,)?) => {$(
        impl $crate::message::wire::Wire for Vec<$item> {
            fn put(&self, to: &mut $crate::message::wire::Writer) {
                $crate::message::wire::put_list(self, to);
            }

            fn take(
                from: &mut $crate::message::wire::Reader<'_>,
            ) -> Result<Self, $crate::message::wire::WireError> {
                $crate::message::wire::take_list(from)
            }
        }
    )*};
}

/// Implements the form of a struct on the wire: its fields, in the order named.
#[macro_export]
macro_rules! wire_struct {
    ($name:ty { $($field:tt),* $(,)? }) => {
        impl $crate::message::wire::Wire for $name {
            fn put(&self, to: &mut $crate::message::wire::Writer) {
                $(self.$field.put(to);)*
            }

            fn take(
                from: &mut $crate::message::wire::Reader<'_>,
            ) -> Result<Self, $crate::message::wire::WireError> {
                Ok(Self { $($field: $crate::message::wire::Wire::take(from)?),* })
            }
        }

        #[cfg(test)]
        impl $name {
            /// A line for the golden description of the wire ([`$crate::schema`]).
            #[allow(dead_code, reason = "what is only in the journal has one, too")]
            pub(crate) fn wire_form() -> String {
                fn type_of<S, T>(_: fn(&S) -> &T) -> &'static str {
                    core::any::type_name::<T>()
                }
                let fields = [$((stringify!($field), type_of(|it: &Self| &it.$field))),*];
                $crate::schema::struct_form(core::any::type_name::<Self>(), &fields)
            }
        }
    };
}

/// Implements the form of an enum on the wire: the number of the variant, then its fields.
#[macro_export]
macro_rules! wire_enum {
    ($name:ident {
        $($number:literal => $variant:ident $(($($field:ident),*))? $({$($named:ident),*})?),*
        $(,)?
    }) => {
        impl $crate::message::wire::Wire for $name {
            fn put(&self, to: &mut $crate::message::wire::Writer) {
                match self {
                    $(Self::$variant $(($($field),*))? $({$($named),*})? => {
                        to.push($number);
                        $($($field.put(to);)*)?
                        $($($named.put(to);)*)?
                    })*
                }
            }

            fn take(
                from: &mut $crate::message::wire::Reader<'_>,
            ) -> Result<Self, $crate::message::wire::WireError> {
                match from.bytes(1)?[0] {
                    $($number => Ok(Self::$variant
                        $(($({ let $field = $crate::message::wire::Wire::take(from)?; $field }),*))?
                        $({$($named: $crate::message::wire::Wire::take(from)?),*})?),)*
                    _ => Err($crate::message::wire::WireError::OutOfRange(stringify!($name))),
                }
            }
        }

        #[cfg(test)]
        impl $name {
            /// A line for the golden description of the wire ([`$crate::schema`]).
            #[allow(dead_code, reason = "what is only in the journal has one, too")]
            #[allow(unreachable_patterns, reason = "a choice of one")]
            pub(crate) fn wire_form() -> String {
                #[allow(dead_code, reason = "not every choice has fields")]
                fn type_of<S, T>(_: fn(&S) -> &T) -> &'static str {
                    core::any::type_name::<T>()
                }
                let choices: &[$crate::schema::Choice<'_>] = &[$((
                    $number,
                    stringify!($variant),
                    &[
                        $($((stringify!($field), type_of(|it: &Self| match it {
                            Self::$variant($field) => $field,
                            _ => unreachable!(),
                        }))),*)?
                        $($((stringify!($named), type_of(|it: &Self| match it {
                            Self::$variant { $named, .. } => $named,
                            _ => unreachable!(),
                        }))),*)?
                    ],
                )),*];
                $crate::schema::enum_form(core::any::type_name::<Self>(), choices)
            }
        }
    };
}

wire_list!(String, u64, Vec<u8>, [u8; 32]);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
        let mut bytes = Writer::new();
        value.put(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(T::take(&mut reader).as_ref(), Ok(value));
        assert_eq!(reader.remaining(), 0);
    }

    proptest! {
        #[test]
        fn numbers_and_strings_come_back(a: u64, b: i64, c: u32, d: Vec<u8>, e: Option<u16>) {
            round_trip(&a);
            round_trip(&b);
            round_trip(&c);
            round_trip(&d);
            round_trip(&e);
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes: Vec<u8>) {
            let _ = Vec::<u64>::take(&mut Reader::new(&bytes));
            let _ = <Option<String> as Wire>::take(&mut Reader::new(&bytes));
        }
    }

    #[test]
    fn a_hostile_count_reserves_nothing() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Vec::<u8>::take(&mut Reader::new(&bytes)), Err(WireError::Truncated));
        let long = Err(WireError::LongList(u64::MAX));
        assert_eq!(Vec::<u64>::take(&mut Reader::new(&bytes)), long);
        assert_eq!(Vec::<u64>::take(&mut Reader::of_own(&bytes)), Err(WireError::Truncated));
    }

    #[test]
    fn a_list_from_a_peer_has_no_more_rows_than_it_may() {
        for (count, is_taken) in [(LIST_COUNT_MAX, true), (LIST_COUNT_MAX + 1, false)] {
            let mut bytes = Writer::new();
            put_list(&vec![7u64; count], &mut bytes);
            assert_eq!(Vec::<u64>::take(&mut Reader::new(&bytes)).is_ok(), is_taken);
            assert!(Vec::<u64>::take(&mut Reader::of_own(&bytes)).is_ok());
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(u64::take(&mut Reader::new(&bytes)).is_err());
    }
}
