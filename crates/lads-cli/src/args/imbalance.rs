//! What can be said to `lads imbalance`.

use clap::builder::ValueHint;
use clap::{Args, ValueEnum};
use lads_core::imbalance::Threshold;
use std::path::PathBuf;

/// Arguments of `lads imbalance`.
#[derive(Args, Debug)]
pub(crate) struct ImbalanceArgs {
    /// Bandwidth of every target over time, as CSV or NDJSON; - is standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    /// Read all files as one series, such as one file per day
    #[arg(long)]
    pub(crate) join: bool,

    /// Print JSON, one object per series and line
    #[arg(long)]
    pub(crate) json: bool,

    /// Also write a page with plots, in one file
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,

    /// Also write the plots as a picture
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Unit of the values, per second
    #[arg(long, value_name = "UNIT", default_value = "B")]
    pub(crate) unit: RateUnit,

    /// Values are running totals of bytes, not bandwidth
    #[arg(long)]
    pub(crate) sums: bool,

    /// Combine all samples within this number of seconds
    ///
    /// For a collector that reads each target at a different time, or too often.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) every: Option<f64>,

    /// Deviations that count as imbalance: above 20%mean, 50MB/s or p80; several: 20%mean,p80
    ///
    /// 20%mean is a fifth of the mean of all targets at that moment: the deviation if one target in
    /// eight has less than half of the bandwidth of the others.
    ///
    /// 50MB/s is constant. For targets that are often idle, a rate is more useful than a share of a
    /// small mean.
    ///
    /// p80 is the 80th percentile of the deviation itself, which a fifth of the time exceeds in any
    /// case. The paper uses p80,p95.
    #[arg(long, value_name = "THRESHOLDS", value_delimiter = ',', default_value = ABOVE_DEFAULT)]
    #[arg(value_parser = parse_threshold)]
    pub(crate) above: Vec<Threshold>,
}

/// A share, for it means the same on every system, and says whether there is imbalance at all. One
/// target in eight that has 44 to 47 % of what the others have (by the number of targets) makes a
/// deviation of 20 % of the mean. With half of that, 71 % of it would do, and ordinary differences
/// between samples count; with double, an eighth of the targets may stand still and it is hardly
/// imbalance (that makes 38 to 40 %).
const ABOVE_DEFAULT: &str = "20%mean";

/// What a value of bandwidth is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RateUnit {
    /// Bytes
    #[value(name = "B")]
    B,
    /// 1000 bytes
    #[value(name = "kB")]
    Kb,
    /// 1024 bytes
    #[value(name = "KiB")]
    Kib,
    /// Millions of bytes
    #[value(name = "MB")]
    Mb,
    /// 1024 KiB
    #[value(name = "MiB")]
    Mib,
    /// Thousands of millions of bytes
    #[value(name = "GB")]
    Gb,
    /// 1024 MiB
    #[value(name = "GiB")]
    Gib,
}

impl RateUnit {
    /// How many bytes it is.
    pub(crate) fn bytes(self) -> f64 {
        match self {
            Self::B => 1.0,
            Self::Kb => 1e3,
            Self::Kib => 1024.0,
            Self::Mb => 1e6,
            Self::Mib => 1024.0 * 1024.0,
            Self::Gb => 1e9,
            Self::Gib => 1024.0 * 1024.0 * 1024.0,
        }
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.0);
    seconds.ok_or_else(|| "it must be a number above 0".to_owned())
}

/// What may stand before `/s`, and how many bytes it is.
const RATE_UNITS: [(&str, f64); 10] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("KiB", 1024.0),
    ("MB", 1e6),
    ("MiB", 1024.0 * 1024.0),
    ("GB", 1e9),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
    ("TB", 1e12),
    ("TiB", 1024.0 * 1024.0 * 1024.0 * 1024.0),
];

/// `20%mean`, `50MB/s` or `p80`. A bare number, or one in percent, could be a percentile or a share
/// of the mean: it is answered with both.
fn parse_threshold(text: &str) -> Result<Threshold, String> {
    let compact: String = text.chars().filter(|it| !it.is_whitespace()).collect();
    if let Some(percentile) = compact.strip_prefix('p') {
        let percentile = positive(percentile).filter(|it| *it < 100.0);
        let refusal = || "a percentile is from p0 to below p100".to_owned();
        return percentile.map(Threshold::Percentile).ok_or_else(refusal);
    }
    if let Some(share) = compact.strip_suffix("%mean") {
        let percent = positive(share).ok_or_else(|| "write it like 20%mean".to_owned())?;
        return Ok(Threshold::OfMean(percent / 100.0));
    }
    if let Some(rate) = compact.strip_suffix("/s") {
        return parse_rate(rate).map(Threshold::Rate).ok_or_else(|| "write it like 50MB/s".into());
    }
    match positive(compact.trim_end_matches('%')) {
        Some(it) => Err(format!(
            "{it} of what? {it}%mean is a share of the mean at that moment, p{it} the {it}th \
             percentile of the deviation, {it}MB/s a rate"
        )),
        None => Err("write it like 20%mean, 50MB/s or p80".to_owned()),
    }
}

fn parse_rate(text: &str) -> Option<f64> {
    let unit_at = text.find(|it: char| it.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let (_, bytes) = RATE_UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(positive(number)? * bytes)
}

/// A number that is not below zero, in digits.
fn positive(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|it| it.is_ascii_digit() || it == '.');
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_says_what_it_is_of() {
        for (text, threshold) in [
            ("20%mean", Threshold::OfMean(0.2)),
            ("150 % mean", Threshold::OfMean(1.5)),
            ("p80", Threshold::Percentile(80.0)),
            ("p99.9", Threshold::Percentile(99.9)),
            ("50MB/s", Threshold::Rate(5e7)),
            ("1.5 GiB/s", Threshold::Rate(1_610_612_736.0)),
            ("0B/s", Threshold::Rate(0.0)),
        ] {
            assert_eq!(parse_threshold(text), Ok(threshold), "{text}");
        }
    }

    #[test]
    fn what_could_be_two_things_is_answered_with_both() {
        for text in ["30", "30%", "30 %"] {
            let told = parse_threshold(text).expect_err("it is not said of what");
            assert!(told.contains("30%mean") && told.contains("p30"), "{told}");
        }
        for text in [
            "", "p", "p100", "p-1", "-5%mean", "%mean", "50MB", "MB/s", "5Mb/s", "1e3B/s", "infB/s",
        ] {
            assert!(parse_threshold(text).is_err(), "{text}");
        }
    }
}
