//! What `--threshold window=40,limit_ms=50,skips=16` means.

use lads_core::congestion::Threshold;

/// Reads the parts that are given; the others stay as published.
pub(super) fn parse(text: &str) -> Result<Threshold, String> {
    let mut threshold = Threshold::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) =
            part.split_once('=').ok_or_else(|| format!("{part:?} is not name=value"))?;
        match (name, value.parse().ok()) {
            ("window", Some(count @ 1..)) => threshold.window = count,
            ("skips", Some(count)) => threshold.skips = count,
            ("limit_ms", Some(millis @ 1..=1_000_000)) => threshold.limit_micros = millis * 1000,
            _ => {
                return Err(format!(
                    "{part:?} is invalid; the settings are window (requests, at least 1), limit_ms \
                     (mean time for 1 MiB) and skips (threads)"
                ));
            }
        }
    }
    Ok(threshold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_stays_as_published() {
        let published = Threshold { window: 40, limit_micros: 50_000, skips: 16 };
        assert_eq!(parse(""), Ok(published));
        assert_eq!(parse("skips=4"), Ok(Threshold { skips: 4, ..published }));
        let all = Threshold { window: 8, limit_micros: 12_000, skips: 0 };
        assert_eq!(parse("window=8,limit_ms=12,skips=0"), Ok(all));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["40", "window=0", "window=1.5", "limit_ms=0", "limit_ms=x", "skips=-1", "w=1"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
