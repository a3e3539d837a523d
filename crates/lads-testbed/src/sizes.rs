//! How sizes and rates are written on command lines of the machine room: `4096`, `64K`, `50M`,
//! `50MB`.

/// A number of bytes. `K`, `M`, `G` and `T` are powers of 1024; with a `B` behind them, of 1000.
///
/// # Errors
/// If it is not written like that, in words for a person.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let explain = || format!("`{text}` is not a size; write it like 4096, 64K, 50M or 50MB");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| explain())?;
    let (base, letter) = match text[digits..].to_ascii_uppercase().as_str() {
        "" | "B" => (1024, String::new()),
        unit if unit.ends_with("IB") => (1024, unit.trim_end_matches("IB").to_owned()),
        unit if unit.ends_with('B') => (1000, unit.trim_end_matches('B').to_owned()),
        unit => (1024u64, unit.to_owned()),
    };
    let power = ["", "K", "M", "G", "T"].iter().position(|it| *it == letter);
    let power = u32::try_from(power.ok_or_else(explain)?).expect("below five");
    number.checked_mul(base.pow(power)).ok_or_else(explain)
}

/// Bytes in a second; `unlimited` is `None`.
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
    fn reads_binary_and_decimal_units() {
        let sizes = ["0", "4096", "64K", "50M", "50MB", "1GiB", "2b"].map(parse_bytes);
        let expected = [0, 4096, 65536, 50 << 20, 50_000_000, 1 << 30, 2].map(Ok);
        assert_eq!(sizes, expected);
        assert_eq!(parse_rate("unlimited"), Ok(None));
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in ["", "M", "-1", "1X", "1.5M", "1KK", "99999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
