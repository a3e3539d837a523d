//! What both ends say before a transfer begins.

use super::wire::{Reader, Wire, WireError, Writer};
use crate::protection::Secret;
use crate::wire_struct;
use core::fmt;

/// The first bytes of every HELLO. They tell LADS from a login shell that prints text.
pub const MAGIC: [u8; 8] = *b"\x00LADS\r\n\x01";

/// The newest protocol version of this build.
pub const VERSION: u16 = 2;

/// The oldest protocol version that this build still speaks.
pub const VERSION_MIN: u16 = 2;

/// Who this end is, and which protocol versions it speaks: the first message, both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// The oldest protocol version that this end speaks.
    pub version_min: u16,
    /// The newest protocol version that this end speaks.
    pub version: u16,
    /// One bit for each optional feature. Unknown bits are ignored; both ends use the features that
    /// both have.
    pub features: u64,
    /// The name and version of the program, for messages to a user.
    pub software: String,
    /// The host's own name, for messages to a user.
    pub host: String,
    /// A digest of the wire that this end speaks, field by field: [`crate::schema::DIGEST`].
    pub schema: SchemaDigest,
}

/// A digest of everything that a build says and understands on the wire. It is the last field of
/// HELLO, because older builds have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaDigest(pub Option<[u8; 8]>);

impl Wire for SchemaDigest {
    fn put(&self, to: &mut Writer) {
        if let Some(digest) = self.0 {
            digest.put(to);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, WireError> {
        if from.remaining() == 0 {
            return Ok(Self(None));
        }
        Wire::take(from).map(|digest| Self(Some(digest)))
    }
}

impl fmt::Display for SchemaDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(digest) => digest.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            None => f.write_str("unknown"),
        }
    }
}

/// Where an end listens for data streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataPort {
    /// Its address, as this end sees itself; empty if unknown.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// One secret for each stream: its token and its keys follow from it.
    pub secrets: Vec<Secret>,
    /// How many bytes its host lets a stream have in flight: sends, if it is the source, or takes,
    /// if it is the sink.
    pub window_bytes: u64,
}

wire_struct!(Hello { magic, version_min, version, features, software, host, schema });
wire_struct!(DataPort { address, port, secrets, window_bytes });
