//! The options of the line between source and sink: distance, rate, buffer, loss.

use anyhow::{Result, anyhow, bail, ensure};
use clap::ValueEnum;
use lads_core::sizes::parse_bytes;
use std::time::Duration;

/// The bytes of IPv4 and TCP headers (with timestamps) in each wire packet of a super-packet.
const HEADER_BYTES: u64 = 52;
/// The smallest default buffer: four super-packets, so that a single one does not overrun it.
const BUFFER_BYTES_MIN: u64 = 256 << 10;

/// The line
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LineOptions {
    /// Round trip time, half of it each way: 26.8ms, 280us, 0.1s
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "26.8ms")]
    rtt: Duration,

    /// A loop of the XDD paper (table I) instead of --rtt
    #[arg(long, value_enum, conflicts_with = "rtt")]
    preset: Option<Preset>,

    /// Rate each way: 10Gbit, 1.25GB (decimal, per second); without, as fast as the machine is
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<u64>,

    /// Buffer before the bottleneck, each way, in bytes (K, M, G: binary); what does not fit is
    /// dropped. Without, what is under way at --rate in one round trip
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "rate")]
    buffer: Option<u64>,

    /// Probability that a wire packet is lost, each way
    #[arg(long, value_name = "P", value_parser = parse_probability, default_value = "0")]
    pub(crate) loss: f64,

    /// Largest packet on the wire, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 9000,
          value_parser = clap::value_parser!(u32).range(576..=65_535))]
    pub(crate) mtu: u32,

    /// TCP congestion control that connections have by default; without, the host's
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion_control: Option<String>,

    /// Limit the windows of TCP as a kernel does that nobody has tuned: at most 6 MiB to receive
    /// and 4 MiB to send; without, memory does not limit a connection
    #[arg(long)]
    pub(crate) untuned: bool,

    /// Seed of the losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Round trip times of the XDD paper's loops, table I
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Preset {
    /// 0.28 ms
    Ornl,
    /// 26.8 ms
    Chicago,
    /// 128 ms
    Seattle,
    /// 163 ms
    Sunnyvale,
}

impl LineOptions {
    /// Returns the round trip time asked for.
    pub(crate) fn rtt(&self) -> Duration {
        match self.preset {
            None => self.rtt,
            Some(Preset::Ornl) => Duration::from_micros(280),
            Some(Preset::Chicago) => Duration::from_micros(26_800),
            Some(Preset::Seattle) => Duration::from_millis(128),
            Some(Preset::Sunnyvale) => Duration::from_millis(163),
        }
    }

    /// Returns how many bytes may wait before the bottleneck; `None` if there is no bottleneck.
    pub(crate) fn buffer_bytes(&self) -> Option<u64> {
        let rate = self.rate?;
        let product = u128::from(rate) * self.rtt().as_nanos() / 1_000_000_000;
        let product = u64::try_from(product).unwrap_or(u64::MAX);
        Some(self.buffer.unwrap_or_else(|| product.max(BUFFER_BYTES_MIN)))
    }

    /// Returns whether super-packets must be split before the line, so that each wire packet can be
    /// lost by itself.
    pub(crate) fn splits(&self) -> bool {
        self.loss > 0.0
    }

    /// Returns the number of wire packets in a packet of this many bytes, and their bytes with all
    /// headers.
    pub(crate) fn on_the_wire(&self, bytes: u64) -> (u64, u64) {
        let payload_max = u64::from(self.mtu) - HEADER_BYTES;
        let packets = bytes.saturating_sub(HEADER_BYTES).div_ceil(payload_max).max(1);
        (packets, bytes + (packets - 1) * HEADER_BYTES)
    }
}

/// Parses `26.8ms`, `280us`, `1s`.
fn parse_time(text: &str) -> Result<Duration> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => bail!("a time ends with us, ms or s"),
    };
    ensure!(seconds <= 10.0, "at most 10 seconds");
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses bytes per second.
fn parse_rate(text: &str) -> Result<u64> {
    let (number, unit) = split(text)?;
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let (prefix, factor) = if let Some(prefix) = unit.strip_suffix("bit") {
        (prefix, 0.125)
    } else if let Some(prefix) = unit.strip_suffix('B') {
        (prefix, 1.0)
    } else {
        bail!("a rate ends with bit or B: 10Gbit, 1.25GB");
    };
    let scale = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => bail!("k, M and G are known, {prefix} is not"),
    };
    let rate = whole(number * factor * scale)?;
    ensure!(rate >= 1000, "at least 1 kB per second");
    Ok(rate)
}

fn parse_probability(text: &str) -> Result<f64> {
    let probability: f64 = text.parse()?;
    ensure!((0.0..=1.0).contains(&probability), "a probability is between 0 and 1");
    Ok(probability)
}

/// Splits a text into a number and its unit.
fn split(text: &str) -> Result<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..end].parse().map_err(|_| anyhow!("{text} does not begin with a number"))?;
    Ok((number, text[end..].trim()))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn whole(number: f64) -> Result<u64> {
    ensure!((0.0..1e15).contains(&number), "too large");
    Ok(number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        line: LineOptions,
    }

    fn line(words: &str) -> LineOptions {
        let words = ["line"].into_iter().chain(words.split_whitespace());
        Program::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).line
    }

    #[test]
    fn rates_are_bits_or_bytes() {
        assert_eq!(line("--rate 10Gbit").rate, Some(1_250_000_000));
        assert_eq!(line("--rate 1.25GB").rate, Some(1_250_000_000));
        assert_eq!(line("--rate 500MB/s").rate, Some(500_000_000));
        assert!(parse_rate("10").is_err());
    }

    #[test]
    fn the_buffer_is_what_is_under_way_in_a_round_trip() {
        assert_eq!(line("").buffer_bytes(), None);
        assert_eq!(line("--rate 1GB --rtt 100ms").buffer_bytes(), Some(100_000_000));
        assert_eq!(line("--rate 1GB --rtt 1us").buffer_bytes(), Some(BUFFER_BYTES_MIN));
        assert_eq!(line("--rate 1GB --buffer 4M").buffer_bytes(), Some(4 << 20));
    }

    #[test]
    fn a_super_packet_is_as_many_wire_packets_as_it_takes() {
        let line = line("--mtu 1552");
        assert_eq!(line.on_the_wire(40), (1, 40));
        assert_eq!(line.on_the_wire(1552), (1, 1552));
        assert_eq!(line.on_the_wire(3052), (2, 3104));
    }

    #[test]
    fn presets_are_the_loops_of_the_paper() {
        assert_eq!(line("--preset sunnyvale").rtt(), Duration::from_millis(163));
        assert_eq!(line("").rtt(), Duration::from_micros(26_800));
    }
}
