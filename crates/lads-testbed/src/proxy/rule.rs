//! The rules: which fault happens to which connection, and when.
//!
//! A rule is a line: `FAULT [connection=N] [way=out|back] [after=BYTES] [at=SECONDS] [of=all]`.

use anyhow::{Context as _, Error, Result, bail, ensure};
use fastrand::Rng;
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// `delay=MS`: from then on, everything arrives later by this time.
    Delay(Duration),
    /// `rate=BYTES_PER_SECOND`: from then on, bytes move no faster than this.
    Rate(u64),
    /// `recut=BYTES`: from then on, bytes are written in pieces of random sizes up to this.
    Recut(usize),
    /// `reset`: both ends see the connection reset.
    Reset,
    /// `reset-all`: all connections are reset.
    ResetAll,
    /// `close`: the receiver sees the end of the stream; bytes that come after it are lost.
    Close,
    /// `stop`: the proxy reads no more bytes, so that the sender fills its buffers and waits.
    Stop,
    /// `black-hole`: the proxy reads all bytes and passes none on.
    BlackHole,
    /// `flip`: one bit of the byte is flipped.
    Flip,
    /// `reorder=N`: this many accepted connections are connected on in another order.
    Reorder(usize),
}

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From the program that connected to the proxy to the one that the proxy connects to.
    Out,
    /// In the opposite direction.
    Back,
}

/// A fault, and where it happens: once on each connection and in each direction that it concerns.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// The number of the connection, counted from 1; `None` means each connection.
    pub connection: Option<u64>,
    /// The direction; `None` means both.
    pub way: Option<Way>,
    /// The number of bytes after which it happens.
    pub after: u64,
    /// The age of the connection before which it does not happen.
    pub at: Option<Duration>,
    /// Whether `after` counts the bytes of all connections; if so, the fault happens once.
    pub counts_all: bool,
}

impl Rule {
    /// Parses a rule; numbers written as `LOW..HIGH` are drawn.
    ///
    /// # Errors
    ///
    /// The word that is not understood.
    pub fn parse(text: &str, seed: u64) -> Result<Self> {
        // A rule draws the same numbers, no matter what other rules there are.
        let mut chance = Rng::with_seed(
            text.bytes()
                .fold(seed, |all, byte| all.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)),
        );
        let mut words = text.split_whitespace();
        let fault = words.next().context("a rule begins with a fault")?;
        let mut rule = Self::of(parse_fault(fault, &mut chance)?);
        for word in words {
            rule.take(word, &mut chance).with_context(|| format!("in {word}"))?;
        }
        Ok(rule)
    }

    /// A fault that happens to each connection at once.
    #[must_use]
    pub fn of(fault: Fault) -> Self {
        Self { fault, connection: None, way: None, after: 0, at: None, counts_all: false }
    }

    fn take(&mut self, word: &str, chance: &mut Rng) -> Result<()> {
        match word.split_once('=').context("a condition has a value")? {
            ("connection", value) => self.connection = Some(number(value, chance)?),
            ("way", "out") => self.way = Some(Way::Out),
            ("way", "back") => self.way = Some(Way::Back),
            ("after", value) => self.after = number(value, chance)?,
            ("at", value) => {
                let seconds = value.parse().context("not a number")?;
                self.at = Some(Duration::try_from_secs_f64(seconds)?);
            }
            ("of", "all") => self.counts_all = true,
            _ => bail!("unknown condition"),
        }
        Ok(())
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text, 0)
    }
}

fn parse_fault(word: &str, chance: &mut Rng) -> Result<Fault> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let mut value = || number(value, chance).with_context(|| format!("{name} needs a number"));
    let fault = match name {
        "delay" => Fault::Delay(Duration::from_millis(value()?)),
        "rate" => Fault::Rate(value()?.max(1)),
        "recut" => Fault::Recut(usize::try_from(value()?.max(1))?),
        "reorder" => Fault::Reorder(usize::try_from(value()?)?),
        "reset" => Fault::Reset,
        "reset-all" => Fault::ResetAll,
        "close" => Fault::Close,
        "stop" => Fault::Stop,
        "black-hole" => Fault::BlackHole,
        "flip" => Fault::Flip,
        _ => bail!("{name} is no fault"),
    };
    Ok(fault)
}

/// Parses `7`, or draws a number from `5..9`.
fn number(text: &str, chance: &mut Rng) -> Result<u64> {
    let Some((low, high)) = text.split_once("..") else {
        return text.parse().context("not a number");
    };
    let (low, high): (u64, u64) = (low.parse()?, high.parse()?);
    ensure!(low < high, "no number is from {low} to below {high}");
    Ok(chance.u64(low..high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_says_what_to_whom_and_when() {
        let rule: Rule = "reset connection=2 way=back after=4096 at=0.5".parse().unwrap();
        let at = Some(Duration::from_millis(500));
        let expected = Rule {
            connection: Some(2),
            way: Some(Way::Back),
            after: 4096,
            at,
            ..Rule::of(Fault::Reset)
        };
        assert_eq!(rule, expected);
    }

    #[test]
    fn drawn_numbers_are_the_same_for_the_same_seed() {
        let drawn = |seed| Rule::parse("flip after=100..1000", seed).unwrap().after;
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert!((1..100).all(|seed| (100..1000).contains(&drawn(seed))));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in ["", "explode", "delay", "reset after", "reset after=x", "reset way=up"] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
        assert!("flip after=5..5".parse::<Rule>().is_err());
    }
}
