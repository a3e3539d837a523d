//! Which harm is done to which connection, and when.
//!
//! A rule is a line: `FAULT [connection=N] [way=out|back] [after=BYTES] [at=SECONDS] [of=all]`.

use anyhow::{Context as _, Error, Result, bail, ensure};
use fastrand::Rng;
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// `delay=MS`: from then on, everything comes so much later.
    Delay(Duration),
    /// `rate=BYTES_PER_SECOND`: from then on, no more than that.
    Rate(u64),
    /// `recut=BYTES`: from then on, written in pieces of random sizes up to this.
    Recut(usize),
    /// `reset`: both ends see the connection reset.
    Reset,
    /// `reset-all`: all connections are reset.
    ResetAll,
    /// `close`: whoever reads sees the end of the stream; what comes after is lost.
    Close,
    /// `stop`: nothing is taken any more, so that whoever writes fills its buffers and waits.
    Stop,
    /// `black-hole`: everything is taken, nothing comes out.
    BlackHole,
    /// `flip`: one bit of the byte is another.
    Flip,
    /// `reorder=N`: this many accepted connections are connected on in another order.
    Reorder(usize),
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From whom connected to the proxy to whom it connects to.
    Out,
    /// The other way.
    Back,
}

/// A fault, and where it happens: once on each connection that it is about, in each way that it is
/// about.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What is done.
    pub fault: Fault,
    /// To which connection, the first being 1; `None`: to each.
    pub connection: Option<u64>,
    /// To what goes this way; `None`: to either.
    pub way: Option<Way>,
    /// After this many bytes went this way.
    pub after: u64,
    /// Not before the connection is so old.
    pub at: Option<Duration>,
    /// Whether `after` counts the bytes of all connections; then it happens once.
    pub counts_all: bool,
}

impl Rule {
    /// Reads a rule; numbers written `LOW..HIGH` are drawn.
    ///
    /// # Errors
    ///
    /// Says which word is not understood.
    pub fn parse(text: &str, seed: u64) -> Result<Self> {
        // A rule draws the same numbers, whatever other rules there are.
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

/// `7`, or one of `5..9`.
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
