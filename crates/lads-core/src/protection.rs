//! How data connections between two hosts are protected.

use crate::{wire_enum, wire_list, wire_struct};
use std::fmt;

/// What only the two ends of a stream know.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What a user, or the administrator of a host, wants for data in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataLevel {
    /// No protection: an attacker in the network can read and change data.
    Plain,
    /// Whoever is on the way can read it; changes are noticed.
    Authenticated,
    /// Nobody on the way can read it; changes are noticed.
    Encrypted,
}

impl DataLevel {
    /// All levels, the highest first.
    pub const ALL: [Self; 3] = [Self::Encrypted, Self::Authenticated, Self::Plain];

    /// Returns the name in options and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Authenticated => "authenticated",
            Self::Encrypted => "encrypted",
        }
    }

    /// What protects the data if one end asks for this level and the other one, with the setting
    /// `own`, decides; `None` if this level is lower than `own`. `has_aes`: whether both hosts have
    /// instructions for AES.
    #[must_use]
    pub fn protection(self, own: Self, has_aes: bool) -> Option<Protection> {
        let protection = match self {
            Self::Plain => Protection::Plain,
            Self::Authenticated => Protection::Authenticated,
            Self::Encrypted if has_aes => Protection::Aes128Gcm,
            Self::Encrypted => Protection::ChaCha20Poly1305,
        };
        (self >= own).then_some(protection)
    }
}

impl fmt::Display for DataLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What protects the bytes of a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Nothing.
    Plain,
    /// Keyed BLAKE3 of the bytes, which are not encrypted.
    Authenticated,
    /// AES-128-GCM.
    Aes128Gcm,
    /// ChaCha20-Poly1305, for hosts without instructions for AES.
    ChaCha20Poly1305,
}

impl Protection {
    /// The level that it is of.
    #[must_use]
    pub fn level(self) -> DataLevel {
        match self {
            Self::Plain => DataLevel::Plain,
            Self::Authenticated => DataLevel::Authenticated,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => DataLevel::Encrypted,
        }
    }
}

wire_struct!(Secret { 0 });
wire_list!(Secret);
wire_enum!(Protection {
    0 => Plain,
    1 => Authenticated,
    2 => Aes128Gcm,
    3 => ChaCha20Poly1305,
});
wire_enum!(DataLevel { 0 => Plain, 1 => Authenticated, 2 => Encrypted });

#[cfg(test)]
mod tests {
    use super::*;

    /// A lower level is in force only if both hosts set it.
    #[test]
    fn no_level_is_lower_than_what_either_host_wants() {
        for asked in DataLevel::ALL {
            for own in DataLevel::ALL {
                for has_aes in [false, true] {
                    let protection = asked.protection(own, has_aes);
                    assert_eq!(protection.is_some(), asked >= own);
                    assert!(protection.is_none_or(|it| it.level() == asked));
                }
            }
        }
        let encrypted = |has_aes| DataLevel::Encrypted.protection(DataLevel::Plain, has_aes);
        assert_eq!(encrypted(true), Some(Protection::Aes128Gcm));
        assert_eq!(encrypted(false), Some(Protection::ChaCha20Poly1305));
    }
}
