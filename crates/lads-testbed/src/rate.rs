//! Parses the rate of a storage target on the command lines of the machine room.

use lads_core::sizes::parse_bytes;

/// Parses bytes per second, written as a size is; `unlimited` gives `None`.
///
/// # Errors
/// Those of [`parse_bytes`].
pub(crate) fn parse_rate(text: &str) -> Result<Option<u64>, String> {
    if text == "unlimited" { Ok(None) } else { parse_bytes(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_size_or_has_no_limit() {
        assert_eq!(parse_rate("50MB"), Ok(Some(50_000_000)));
        assert_eq!(parse_rate("unlimited"), Ok(None));
        assert!(parse_rate("fast").is_err());
    }
}
