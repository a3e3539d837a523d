//! How sizes, rates and times are read from a command line, and how they are shown to a user.
//!
//! Bytes are shown in binary units (`3.2 GiB`), rates in decimal ones (`9.41 GB/s`), as storage and
//! network people each know them.

use std::time::Duration;

const KIB: u64 = 1024;

/// Reads a number of bytes: `4096`, `64K`, `1.5G`, `100MB`. `K`, `M`, `G` and so on are powers of
/// 1024, as are `KiB`, `MiB`; `KB`, `MB` are powers of 1000: as in rsync.
///
/// # Errors
/// If it is not written like that, in words for the user.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, 1)
}

/// Reads the size of a file as rsync does: as [`parse_bytes`], and with `+1` or `-1` behind it a
/// byte more or less.
///
/// # Errors
/// Those of [`parse_bytes`].
pub fn parse_file_size(text: &str) -> Result<u64, String> {
    if let Some(text) = text.strip_suffix("+1") {
        return parse_bytes(text)?.checked_add(1).ok_or_else(|| format!("`{text}` is too large"));
    }
    match text.strip_suffix("-1") {
        Some(text) => parse_bytes(text).map(|bytes| bytes.saturating_sub(1)),
        None => parse_bytes(text),
    }
}

/// Reads a rate as rsync does: a plain number is KiB in a second, units as in [`parse_bytes`];
/// zero is no limit.
///
/// # Errors
/// Those of [`parse_bytes`].
pub fn parse_rate(text: &str) -> Result<u64, String> {
    parse(text, KIB)
}

/// Reads a time: `90` (seconds), `45s`, `10m`, `1.5h`, `2d`.
///
/// # Errors
/// If it is not written like that, in words for the user.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let explain = || format!("`{text}` is not a time; write it like 90, 45s, 10m, 1.5h or 2d");
    let (number, unit_seconds) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let millis = scale(number, unit_seconds * 1000).ok_or_else(explain)?;
    let is_number = number.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    let millis = u64::try_from(millis).ok().filter(|_| is_number).ok_or_else(explain)?;
    Ok(Duration::from_millis(millis))
}

/// The same for a time that other tools count in other units: it must have its unit, and be longer
/// than none.
///
/// # Errors
/// If it is not written like that, in words for the user.
pub fn parse_span_with_unit(text: &str) -> Result<Duration, String> {
    let span = parse_span(text)?;
    match () {
        () if !text.ends_with(|letter: char| letter.is_ascii_alphabetic()) => {
            Err(format!("`{text}` has no unit: write {text}m for minutes, {text}s for seconds"))
        }
        () if span.is_zero() => Err("it must be above 0".to_owned()),
        () => Ok(span),
    }
}

fn parse(text: &str, unit_by_default: u64) -> Result<u64, String> {
    let explain = || format!("`{text}` is not a size; write it like 4096, 64K, 1.5G or 100MB");
    let number_length = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(number_length);
    let unit = if suffix.is_empty() { Some(unit_by_default) } else { unit_of(suffix) };
    let value = scale(number, unit.ok_or_else(explain)?).ok_or_else(explain)?;
    u64::try_from(value).map_err(|_| format!("`{text}` is too large"))
}

fn unit_of(suffix: &str) -> Option<u64> {
    let suffix = suffix.to_ascii_lowercase();
    let power = "bkmgtpe".find(suffix.chars().next()?)?;
    let base: u64 = match &suffix[1..] {
        "" => KIB,
        "ib" if power > 0 => KIB,
        "b" if power > 0 => 1000,
        _ => return None,
    };
    Some(base.pow(u32::try_from(power).expect("it is below seven")))
}

/// A decimal number with an optional fraction, times the unit. Fractions are cut after nine digits.
fn scale(number: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
    let fraction = &fraction[..fraction.len().min(9)];
    let scale = 10u128.pow(u32::try_from(fraction.len()).expect("it is below ten"));
    let unit = u128::from(unit);
    Some(u128::from(digits(whole)?) * unit + u128::from(digits(fraction)?) * unit / scale)
}

const BINARY_UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes with one decimal: `3.2 GiB`; plain below a KiB.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    if bytes < KIB {
        return format!("{bytes} B");
    }
    let mut unit = u128::from(KIB);
    for name in &BINARY_UNITS[1..] {
        let tenths = (u128::from(bytes) * 10 + unit / 2) / unit;
        if tenths < 10 * u128::from(KIB) {
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
        unit *= u128::from(KIB);
    }
    unreachable!("{bytes} bytes are below 1024 EiB")
}

/// Bytes without rounding, in the largest unit that fits: `112 MiB`, `4 KiB`, `117,440,513 bytes`.
#[must_use]
pub fn bytes_exactly(bytes: u64) -> String {
    let power = (bytes.trailing_zeros() / 10).min(6);
    if bytes == 0 || power == 0 {
        return format!("{} bytes", count(bytes));
    }
    format!("{} {}", bytes >> (10 * power), BINARY_UNITS[power as usize])
}

/// Bytes in a second with three digits, in decimal units: `9.41 GB/s`.
#[must_use]
pub fn rate(bytes_per_second: f64) -> String {
    let mut value = bytes_per_second;
    for unit in ["B/s", "kB/s", "MB/s", "GB/s"] {
        // What would round to 1000 belongs into the next unit.
        if value < 999.5 {
            return format!("{value:.*} {unit}", decimals(value, unit));
        }
        value /= 1000.0;
    }
    format!("{value:.*} TB/s", decimals(value, "TB/s"))
}

fn decimals(value: f64, unit: &str) -> usize {
    match value {
        _ if unit == "B/s" => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    }
}

/// A count with its thousands parted: `4,192`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut parted = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            parted.push(',');
        }
        parted.push(digit);
    }
    parted
}

/// A count with its noun, in the plural where due: `1 file`, `4,192 files`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

/// A span in the two largest units that matter: `0.8 s`, `2 min 12 s`, `3 h 04 min`.
#[must_use]
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let seconds = (span + Duration::from_millis(500)).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if days > 0 => format!("{days} d {:02} h", hours % 24),
        () if hours > 0 => format!("{hours} h {:02} min", minutes % 60),
        () => format!("{minutes} min {:02} s", seconds % 60),
    }
}

/// A time to go, as a clock shows it: `0:09`, `12:34`, `1:02:03`.
#[must_use]
pub fn clock(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_may_be_mistaken_needs_its_unit() {
        assert_eq!(parse_span_with_unit("90s"), Ok(Duration::from_secs(90)));
        assert!(parse_span_with_unit("90").unwrap_err().contains("write 90m for minutes"));
        assert!(parse_span_with_unit("0s").is_err() && parse_span_with_unit("s").is_err());
    }

    #[test]
    fn reads_sizes_as_rsync_does() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("512b", 512),
            ("64K", 65536),
            ("64k", 65536),
            ("1MiB", 1 << 20),
            ("1MB", 1_000_000),
            ("1.5g", 3 << 29),
            (".5K", 512),
            ("16E", 0),
        ] {
            match expected {
                0 if text != "0" => assert!(parse_bytes(text).is_err(), "{text}"),
                _ => assert_eq!(parse_bytes(text), Ok(expected), "{text}"),
            }
        }
    }

    #[test]
    fn reads_times() {
        let millis = |text| parse_span(text).map(|span| span.as_millis());
        for (text, expected) in
            [("90", 90_000), ("45s", 45_000), ("10m", 600_000), ("1.5h", 5_400_000), ("0", 0)]
        {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        assert_eq!(millis("2d"), Ok(172_800_000));
        for text in ["", "h", "-1", "1 h", "1w", "1h30m", "99999999999999999999d"] {
            assert!(parse_span(text).unwrap_err().contains("write it like"), "{text}");
        }
    }

    #[test]
    fn reads_a_plain_rate_as_kib() {
        assert_eq!(parse_rate("100"), Ok(102_400));
        assert_eq!(parse_rate("1.5M"), Ok(3 << 19));
        assert_eq!(parse_rate("10MB"), Ok(10_000_000));
        assert_eq!(parse_rate("0"), Ok(0));
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in ["", ".", "K", "-1", "1x", "1Kx", "1bb", "1..2", "1 K", "é", "1é", "+1"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shows_bytes_in_binary_units() {
        for (number, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (3_435_973_837, "3.2 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), expected);
        }
    }

    #[test]
    fn shows_offsets_without_rounding() {
        for (number, expected) in [
            (0, "0 bytes"),
            (4096, "4 KiB"),
            (117_440_512, "112 MiB"),
            (117_440_513, "117,440,513 bytes"),
        ] {
            assert_eq!(bytes_exactly(number), expected);
        }
    }

    #[test]
    fn shows_rates_with_three_digits() {
        for (number, expected) in [
            (0.0, "0 B/s"),
            (999.0, "999 B/s"),
            (999.6, "1.00 kB/s"),
            (9_410_000_000.0, "9.41 GB/s"),
            (94_140_000.0, "94.1 MB/s"),
            (999_600_000.0, "1.00 GB/s"),
            (9_996.0, "10.0 kB/s"),
            (5e15, "5000 TB/s"),
        ] {
            assert_eq!(rate(number), expected);
        }
    }

    #[test]
    fn shows_spans_and_clocks() {
        let of = Duration::from_millis;
        for (millis, expected, expected_clock) in [
            (0, "0.0 s", "0:00"),
            (59_940, "59.9 s", "0:59"),
            (59_960, "1 min 00 s", "0:59"),
            (132_000, "2 min 12 s", "2:12"),
            (11_040_000, "3 h 04 min", "3:04:00"),
            (180_000_000, "2 d 02 h", "50:00:00"),
        ] {
            assert_eq!(span(of(millis)), expected);
            assert_eq!(clock(of(millis)), expected_clock);
        }
    }

    #[test]
    fn counts_with_thousands_parted() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(2, "block"), "2 blocks");
    }
}
