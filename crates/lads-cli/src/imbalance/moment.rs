//! The time of a sample: seconds since some origin, or a date.

use anyhow::{Result, bail};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Parses seconds as a number, or a date with or without a time zone: `2012-01-01 00:00:02`,
/// `2012-01-01T00:00:02Z`. A date without a time zone counts as UTC; only differences matter.
pub(super) fn parse(text: &str) -> Result<f64> {
    if let Ok(seconds) = text.parse::<f64>()
        && seconds.is_finite()
    {
        return Ok(seconds);
    }
    let timestamp = text.parse::<Timestamp>().or_else(|_| {
        let date: DateTime = text.parse()?;
        Ok::<_, jiff::Error>(date.to_zoned(TimeZone::UTC)?.timestamp())
    });
    match timestamp {
        Ok(timestamp) => Ok(timestamp.as_duration().as_secs_f64()),
        Err(_) => bail!("`{text}` is neither a number of seconds nor a date (2012-01-01 00:00:02)"),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn moments_are_numbers_or_dates() {
        assert_eq!(parse("12.5").unwrap(), 12.5);
        let first = parse("2012-01-01T00:00:00Z").unwrap();
        assert_eq!(first, 1_325_376_000.0);
        assert_eq!(parse("2012-01-01 00:00:02").unwrap() - first, 2.0);
        assert_eq!(parse("2012-01-01T01:00:02.5+01:00").unwrap() - first, 2.5);
        let message = parse("noon").unwrap_err().to_string();
        assert!(message.contains("`noon` is neither"), "{message}");
    }
}
