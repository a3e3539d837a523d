//! The orders that a running emulated file system takes.

use super::congestion::Pattern;
use super::queues::Rate;
use super::space::TargetState;
use crate::rate::parse_rate;
use clap::ValueEnum;
use lads_core::sizes::parse_bytes;
use std::time::Duration;

/// An order, as one line of `.pfs/control`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// `rate OST|all BYTES_PER_SECOND|unlimited`
    Rate(Vec<usize>, Rate),
    /// `latency OST|all MICROSECONDS`
    Latency(Vec<usize>, Duration),
    /// `jitter OST|all MICROSECONDS`
    Jitter(Vec<usize>, Duration),
    /// `seek OST|all MICROSECONDS`
    Seek(Vec<usize>, Duration),
    /// `oss-rate OSS|all BYTES_PER_SECOND|unlimited`
    OssRate(Vec<usize>, Rate),
    /// `state OST|all up|degraded|full|down|no-create`
    State(Vec<usize>, TargetState),
    /// `capacity OST|all BYTES`
    Capacity(Vec<usize>, u64),
    /// `metadata-latency MICROSECONDS`
    MetadataLatency(Duration),
    /// `grow on|off`
    Grow(bool),
    /// `layout-latency MICROSECONDS`
    LayoutLatency(Duration),
    /// `congest fixed OSTS=a,b RATE=r`, `congest moving COUNT=k DWELL=seconds RATE=r SEED=n`,
    /// `congest spider SEED=n RATE=r SCALE=s`
    Congest { pattern: Pattern, rate: u64, seed: u64 },
    /// `congest off`
    CongestOff,
    /// `reset-stats`
    ResetStats,
    /// `record on|off`
    Record(bool),
}

/// The number of OSTs and OSSes that orders can name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// The number of OSTs.
    pub(super) osts: usize,
    /// The number of OSSes.
    pub(super) osses: usize,
}

impl Order {
    /// Parses a line.
    ///
    /// # Errors
    /// What is wrong with the line, in words for a person.
    pub(super) fn parse(line: &str, counts: Counts) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let osts = |text| indices(text, counts.osts, "OST");
        match words[..] {
            ["rate", which, rate] => Ok(Self::Rate(osts(which)?, parse_rate(rate)?)),
            ["latency", which, time] => Ok(Self::Latency(osts(which)?, micros(time)?)),
            ["jitter", which, time] => Ok(Self::Jitter(osts(which)?, micros(time)?)),
            ["seek", which, time] => Ok(Self::Seek(osts(which)?, micros(time)?)),
            ["oss-rate", which, rate] => {
                Ok(Self::OssRate(indices(which, counts.osses, "OSS")?, parse_rate(rate)?))
            }
            ["state", which, state] => {
                let explain = |_| format!("no such state: {state}");
                Ok(Self::State(osts(which)?, TargetState::from_str(state, false).map_err(explain)?))
            }
            ["capacity", which, bytes] => Ok(Self::Capacity(osts(which)?, parse_bytes(bytes)?)),
            ["metadata-latency", time] => Ok(Self::MetadataLatency(micros(time)?)),
            ["grow", "on"] => Ok(Self::Grow(true)),
            ["grow", "off"] => Ok(Self::Grow(false)),
            ["layout-latency", time] => Ok(Self::LayoutLatency(micros(time)?)),
            ["congest", "off"] => Ok(Self::CongestOff),
            ["congest", kind, ref settings @ ..] => congest(kind, settings, counts),
            ["reset-stats"] => Ok(Self::ResetStats),
            ["record", "on"] => Ok(Self::Record(true)),
            ["record", "off"] => Ok(Self::Record(false)),
            _ => Err(format!("no such order: {line}")),
        }
    }
}

/// Parses `all`, or numbers with commas between them.
fn indices(text: &str, count: usize, noun: &str) -> Result<Vec<usize>, String> {
    if text == "all" {
        return Ok((0..count).collect());
    }
    let index = |text: &str| {
        let index = text.parse().map_err(|_| format!("`{text}` is not a number of an {noun}"))?;
        if index < count { Ok(index) } else { Err(format!("there is no {noun} {index}")) }
    };
    text.split(',').map(index).collect()
}

fn micros(text: &str) -> Result<Duration, String> {
    let explain = |_| format!("`{text}` is not a number of microseconds");
    text.parse().map(Duration::from_micros).map_err(explain)
}

/// Parses `NAME=VALUE` in any order; a value without a name is the rate.
fn congest(kind: &str, settings: &[&str], counts: Counts) -> Result<Order, String> {
    let (mut osts, mut count, mut dwell, mut scale) = (Vec::new(), 1, Duration::from_secs(1), 1.0);
    let (mut rate, mut seed) = (None, 1);
    for setting in settings {
        let (name, value) = setting.split_once('=').unwrap_or(("RATE", setting));
        let explain = || format!("`{value}` is not a value for {name}");
        match name {
            "OSTS" => osts = indices(value, counts.osts, "OST")?,
            "COUNT" => count = value.parse().map_err(|_| explain())?,
            "DWELL" => dwell = seconds(value).ok_or_else(explain)?,
            "SCALE" => scale = seconds(value).ok_or_else(explain)?.as_secs_f64(),
            "RATE" => rate = Some(parse_bytes(value)?),
            "SEED" => seed = value.parse().map_err(|_| explain())?,
            _ => return Err(format!("congest knows no {name}")),
        }
    }
    let pattern = match kind {
        "fixed" if osts.is_empty() => return Err("congest fixed needs OSTS=".to_owned()),
        "fixed" => Pattern::Fixed(osts),
        "moving" => Pattern::Moving { count, dwell },
        "spider" => Pattern::Spider { scale },
        _ => return Err(format!("no such congestion: {kind}")),
    };
    let rate = rate.ok_or_else(|| "congest needs RATE=".to_owned())?;
    Ok(Order::Congest { pattern, rate, seed })
}

/// Parses a duration above zero.
fn seconds(text: &str) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    (!time.is_zero()).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Order, String> {
        Order::parse(line, Counts { osts: 4, osses: 2 })
    }

    #[test]
    fn reads_orders() {
        for (line, order) in [
            ("rate 3 10M", Order::Rate(vec![3], Some(10 << 20))),
            ("rate all unlimited", Order::Rate(vec![0, 1, 2, 3], None)),
            ("latency 0,2 500", Order::Latency(vec![0, 2], Duration::from_micros(500))),
            ("seek 1 8000", Order::Seek(vec![1], Duration::from_millis(8))),
            ("oss-rate 1 5", Order::OssRate(vec![1], Some(5))),
            ("state 1 no-create", Order::State(vec![1], TargetState::NoCreate)),
            (" record  on ", Order::Record(true)),
            ("grow off", Order::Grow(false)),
            ("layout-latency 7", Order::LayoutLatency(Duration::from_micros(7))),
        ] {
            assert_eq!(parse(line), Ok(order), "{line}");
        }
    }

    #[test]
    fn reads_congestion() {
        let moving = Pattern::Moving { count: 2, dwell: Duration::from_millis(700) };
        let spider = Pattern::Spider { scale: 0.1 };
        for (line, pattern, rate, seed) in [
            ("congest fixed OSTS=1,3 9", Pattern::Fixed(vec![1, 3]), 9, 1),
            ("congest moving COUNT=2 DWELL=0.7 RATE=5K SEED=8", moving, 5120, 8),
            ("congest spider SEED=3 RATE=1 SCALE=0.1", spider, 1, 3),
        ] {
            assert_eq!(parse(line), Ok(Order::Congest { pattern, rate, seed }), "{line}");
        }
        assert_eq!(parse("congest off"), Ok(Order::CongestOff));
    }

    #[test]
    fn says_what_is_wrong() {
        for (line, reason) in [
            ("rate 4 5", "there is no OST 4"),
            ("rate x 5", "`x` is not a number of an OST"),
            ("oss-rate 2 5", "there is no OSS 2"),
            ("state 1 sad", "no such state: sad"),
            ("congest moving", "congest needs RATE="),
            ("congest moving DWELL=0 RATE=1", "`0` is not a value for DWELL"),
            ("make coffee", "no such order: make coffee"),
        ] {
            assert_eq!(parse(line), Err(reason.to_owned()), "{line}");
        }
    }
}
