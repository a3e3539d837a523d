//! The settings of an emulated file system.

use crate::rate::parse_rate;
use clap::ValueEnum;
use lads_core::lov::{self, Lov};
use lads_core::sizes::parse_bytes;
use serde::Serialize;
use std::path::PathBuf;

/// What can be chosen at mount; all of it is in the statistics.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub(super) struct Settings {
    /// Number of storage targets
    #[arg(long, default_value_t = 8, value_parser = ost_count)]
    pub(super) osts: usize,
    /// Number of servers that hold them
    #[arg(long, default_value_t = 2)]
    pub(super) osses: usize,
    /// Which server holds which target
    #[arg(long, value_enum, default_value_t = OssMap::RoundRobin)]
    pub(super) oss_map: OssMap,
    /// What a target moves in a second: bytes, or `unlimited`
    #[arg(long, default_value = "unlimited", value_parser = rate)]
    pub(super) rate: SomeRate,
    /// What all targets of a server together move in a second
    #[arg(long, default_value = "unlimited", value_parser = rate)]
    pub(super) oss_rate: SomeRate,
    /// Microseconds before a target begins to move the bytes of a request
    #[arg(long, default_value_t = 0)]
    pub(super) latency: u64,
    /// Up to this many microseconds more, by chance
    #[arg(long, default_value_t = 0)]
    pub(super) jitter: u64,
    /// Microseconds more for a request that does not begin where the last one of its target has
    /// ended, as on a disk whose arm must move
    #[arg(long, default_value_t = 0)]
    pub(super) seek: u64,
    /// Microseconds that an operation on names takes
    #[arg(long, default_value_t = 0)]
    pub(super) metadata_latency: u64,
    /// Microseconds more that a call takes which sets or extends a layout
    #[arg(long, default_value_t = 0)]
    pub(super) layout_latency: u64,
    /// Decides what is by chance
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Bytes in a stripe, where nothing else is wished for; a multiple of 64K
    #[arg(long, default_value = "1M", value_parser = stripe_size)]
    pub(super) stripe_size: u32,
    /// Number of stripes, where nothing else is wished for; -1 for all targets
    #[arg(long, default_value = "1", allow_negative_numbers = true, value_parser = stripe_count)]
    pub(super) stripe_count: u16,
    /// This many bytes at the beginning of a file lie on one target, whatever comes behind them
    #[arg(long, value_name = "BYTES", value_parser = first_part)]
    pub(super) one_stripe_until: Option<u64>,
    /// Bytes that a target can hold
    #[arg(long, default_value = "10G", value_parser = parse_bytes)]
    pub(super) capacity: u64,
    /// Directory in which the bytes are kept while it is mounted
    #[arg(long, default_value = "/dev/shm")]
    pub(super) backing: PathBuf,
    /// Keep no bytes: what is written is dropped, what is read is zero
    #[arg(long, conflicts_with = "backing")]
    pub(super) null: bool,
    /// How far the kernel reads ahead for programs that read without O_DIRECT, in bytes
    #[arg(long, default_value = "8M", value_parser = parse_bytes)]
    pub(super) readahead: u64,
    /// Let the kernel collect what programs write without O_DIRECT
    #[arg(long)]
    pub(super) writeback: bool,
    /// Threads that take requests from the kernel; none of them waits for a storage target
    #[arg(long, default_value_t = 4)]
    pub(super) threads: usize,
    /// How a file tells where it lies
    #[arg(long, value_enum, default_value_t = LayoutStyle::Lustre)]
    pub(super) layout_style: LayoutStyle,
}

/// Which server holds which target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OssMap {
    /// Targets go round the servers: 0, 1, 0, 1.
    RoundRobin,
    /// Each server has targets that follow each other: 0, 0, 1, 1.
    Sequential,
}

/// How a file tells where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LayoutStyle {
    /// `lustre.lov`, as Lustre does.
    Lustre,
    /// `ceph.file.layout` and `ceph.dir.layout`, as CephFS does.
    Ceph,
    /// Not at all, as most file systems do: what is said of layouts are attributes like others.
    None,
}

/// Bytes per second, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct SomeRate(pub(super) Option<u64>);

impl Settings {
    /// Returns the layout of new files in a directory that has no default of its own.
    pub(super) fn default_layout(&self) -> Lov {
        let all = Lov::wish(self.stripe_size, self.stripe_count);
        match self.one_stripe_until {
            Some(end) => {
                Lov::wish_composite([(end, Lov::wish(self.stripe_size, 1)), (u64::MAX, all)])
            }
            None => all,
        }
    }

    /// Returns the server of each target.
    pub(super) fn oss_of(&self) -> Vec<usize> {
        let osses = self.osses.clamp(1, self.osts);
        let oss = |ost| match self.oss_map {
            OssMap::RoundRobin => ost % osses,
            OssMap::Sequential => ost * osses / self.osts,
        };
        (0..self.osts).map(oss).collect()
    }
}

fn ost_count(text: &str) -> Result<usize, String> {
    let explain = || "a number from 1 to 2000".to_owned();
    text.parse().ok().filter(|it| (1..=2000).contains(it)).ok_or_else(explain)
}

fn rate(text: &str) -> Result<SomeRate, String> {
    parse_rate(text).map(SomeRate)
}

fn stripe_size(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(parse_bytes(text)?).map_err(|_| "at most 4G".to_owned())?;
    let is_sound = bytes > 0 && bytes.is_multiple_of(lov::STRIPE_SIZE_UNIT);
    if is_sound { Ok(bytes) } else { Err("a stripe is a multiple of 64K".to_owned()) }
}

fn first_part(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let is_sound = bytes > 0 && bytes.is_multiple_of(lov::STRIPE_SIZE_UNIT.into());
    if is_sound { Ok(bytes) } else { Err("parts end at multiples of 64K".to_owned()) }
}

fn stripe_count(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(-1) => Ok(lov::ALL_OSTS),
        Ok(count @ 1..=2000) => u16::try_from(count).map_err(|_| "at most 2000".to_owned()),
        _ => Err("a number from 1 to 2000, or -1 for all".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        settings: super::Settings,
    }

    #[test]
    fn targets_are_dealt_to_servers_in_both_ways() {
        let oss_of = |map| {
            let args = ["pfs", "--osts", "6", "--osses", "2", "--oss-map", map];
            Program::parse_from(args).settings.oss_of()
        };
        assert_eq!(oss_of("round-robin"), [0, 1, 0, 1, 0, 1]);
        assert_eq!(oss_of("sequential"), [0, 0, 0, 1, 1, 1]);
    }
}
