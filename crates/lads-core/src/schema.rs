//! Whether two builds mean the same by what they say, to the last field.
//!
//! Versions are raised by people, who forget it. So the wire is written down: every message, struct
//! and choice with the names and types of its fields, and bytes of whatever has a form of its own.
//! The code writes that description itself, in a test, and the test compares it with two files:
//! `schema/messages.txt` (this crate) and `schema/transports.txt` (JOB and what opens or shares a
//! connection, which are the engine's). Whoever changes the wire changes the files, and with them
//! [`DIGEST`], which both ends say in HELLO and compare.

/// The digest of the description: FNV-1a, 64 bits. It finds accidents; who lies gains nothing, for
/// a peer is checked whatever it says.
pub const DIGEST: [u8; 8] = {
    let messages = fnv1a(0xcbf2_9ce4_8422_2325, include_bytes!("schema/messages.txt"));
    fnv1a(messages, include_bytes!("schema/transports.txt")).to_be_bytes()
};

const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
}

/// A field: its name, and its type as the compiler calls it.
pub type Field<'a> = (&'a str, &'a str);

/// One of an enum: its number, its name, its fields.
pub type Choice<'a> = (u8, &'a str, &'a [Field<'a>]);

/// The line of a struct in the description: its name, then name and type of each field.
#[must_use]
pub fn struct_form(name: &str, fields: &[Field<'_>]) -> String {
    format!("{} = {}\n", plain(name), list(fields))
}

/// The lines of a choice: its name, then for each its number, name and fields.
#[must_use]
pub fn enum_form(name: &str, choices: &[Choice<'_>]) -> String {
    let line = |(number, name, fields): &Choice<'_>| {
        format!("  {number} {name} {}", list(fields)).trim_end().to_owned() + "\n"
    };
    format!("{} is one of\n{}", plain(name), choices.iter().map(line).collect::<String>())
}

fn list(fields: &[Field<'_>]) -> String {
    let field = |(name, of): &Field<'_>| format!("{name}: {}", plain(of));
    fields.iter().map(field).collect::<Vec<_>>().join(", ")
}

/// A type without the modules that it is in: to move one changes nothing on the wire.
fn plain(name: &str) -> String {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut plain = String::new();
    for part in name.split_inclusive(|c| !is_path(c)) {
        plain.push_str(part.rsplit("::").next().unwrap_or(part));
    }
    plain
}

#[cfg(test)]
mod tests;
