//! The data sets: files of one length, or of lengths as on a real file system.

use super::super::moves::{Noise, Uniform};
use crate::tree::{self, Extent};
use anyhow::Result;
use serde::Serialize;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// A data set. It has the same bytes each time it is made.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) enum DataSet {
    /// Files of one length.
    Uniform {
        /// The number of files.
        files: u64,
        /// The number of bytes in each file.
        bytes_each: u64,
    },
    /// Files with lengths between two limits. Each power of two is as frequent as the next.
    Between {
        /// The number of files.
        files: u64,
        /// The length of the shortest file, in bytes.
        bytes_min: u64,
        /// The length of the longest file, in bytes.
        bytes_max: u64,
        /// The seed, which selects one of the many possible sets.
        seed: u64,
    },
    /// Lengths as in LADS (FAST '15), figure 6: 86.76 % of the files are below 1 MiB, 90.35 %
    /// below 4 MiB, and the rest holds most of the bytes.
    Spider {
        /// The number of files.
        files: u64,
        /// The total number of bytes, within one percent.
        bytes: u64,
        /// The seed, which selects one of the many possible sets.
        seed: u64,
    },
}

impl DataSet {
    /// Makes the files in `root`.
    pub(super) fn make(self, root: &Path) -> Result<Extent> {
        match self {
            Self::Uniform { files, bytes_each } => Uniform { files, bytes_each }.make(root),
            Self::Between { files, bytes_min, bytes_max, seed } => {
                make_files(root, &lengths_between(files, bytes_min, bytes_max, seed), seed)?;
                tree::extent(root)
            }
            Self::Spider { files, bytes, seed } => {
                make_files(root, &spider(files, bytes, seed), seed)?;
                tree::extent(root)
            }
        }
    }

    /// The number of files.
    pub(super) fn file_count(self) -> u64 {
        match self {
            Self::Uniform { files, .. }
            | Self::Between { files, .. }
            | Self::Spider { files, .. } => files,
        }
    }

    /// The approximate total number of bytes, or an upper limit of it.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Between { files, bytes_max, .. } => files * bytes_max,
            Self::Uniform { files, bytes_each } => files * bytes_each,
            Self::Spider { bytes, .. } => bytes,
        }
    }
}

const FILES_PER_DIRECTORY: usize = 100;

fn make_files(root: &Path, lengths: &[u64], seed: u64) -> Result<()> {
    let mut noise = Noise::new(seed);
    let mut buffer = vec![0; 1 << 20];
    for (number, length) in lengths.iter().enumerate() {
        let directory = root.join(format!("d{:04}", number / FILES_PER_DIRECTORY));
        fs::create_dir_all(&directory)?;
        let mut file = File::create(directory.join(format!("f{number:07}")))?;
        let mut left = *length;
        while left > 0 {
            noise.fill(&mut buffer);
            let count = left.min(buffer.len() as u64);
            file.write_all(&buffer[..usize::try_from(count)?])?;
            left -= count;
        }
    }
    Ok(())
}

const MIB: f64 = (1 << 20) as f64;
/// The smallest length that is drawn. The figure's first column is everything below 1 MiB.
const LEAST: f64 = 512.0;
/// The Pareto exponent of the lengths of large files, with which few files hold most of the bytes.
const TAIL: f64 = 1.1;

fn between(least: f64, most: f64, share: f64) -> f64 {
    least * (most / least).powf(share)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths are positive and far below 2^53"
)]
fn lengths_between(files: u64, bytes_min: u64, bytes_max: u64, seed: u64) -> Vec<u64> {
    let mut noise = Noise::new(seed);
    let length = |_| between(bytes_min as f64, bytes_max as f64, noise.share()) as u64;
    (0..files).map(length).collect()
}

/// Lengths in the shares of the figure, in random order.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths are positive and far below 2^53"
)]
fn spider(files: u64, bytes: u64, seed: u64) -> Vec<u64> {
    let mut noise = Noise::new(seed);
    let count = usize::try_from(files).expect("as many files fit into memory");
    let (small, medium) = (count * 8676 / 10_000, count * 9035 / 10_000);
    let mut lengths: Vec<f64> = (0..count)
        .map(|index| match index {
            index if index < small => between(LEAST, MIB, noise.share()),
            index if index < medium => between(MIB, 4.0 * MIB, noise.share()),
            _ => (1.0 - noise.share()).powf(-1.0 / TAIL).min(1000.0),
        })
        .collect();
    let few: f64 = lengths[..medium].iter().sum();
    let least = 4.0 * MIB;
    let large = &mut lengths[medium..];
    // The lengths of large files above 4 MiB are scaled so that the sum is right.
    let above: f64 = large.iter().map(|times| times - 1.0).sum();
    let room = (bytes as f64 - few - least * large.len() as f64).max(0.0);
    for length in large {
        *length = least + (*length - 1.0) / above.max(f64::EPSILON) * room;
    }
    // Large files must be anywhere in the order, not at the end.
    let mut lengths: Vec<(f64, f64)> =
        lengths.into_iter().map(|length| (noise.share(), length)).collect();
    lengths.sort_by(|left, right| left.0.total_cmp(&right.0));
    lengths.into_iter().map(|(_, length)| length as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spiders_lengths_have_the_shares_of_the_figure() {
        let lengths = spider(10_000, 20 << 30, 1);
        let below = |limit: u64| lengths.iter().filter(|&&length| length < limit).count();
        assert_eq!((below(1 << 20), below(4 << 20)), (8676, 9035));
        let total: u64 = lengths.iter().sum();
        assert!(total.abs_diff(20 << 30) < (20 << 30) / 100, "{total}");
        let large: u64 = lengths.iter().filter(|&&length| length >= 4 << 20).sum();
        assert!(large * 2 > total, "the large files hold most of the bytes");
    }

    #[test]
    fn lengths_between_two_are_no_others_and_every_power_of_two_is_there() {
        let lengths = lengths_between(1000, 4096, 65_536, 1);
        assert!(lengths.iter().all(|length| (4096..=65_536).contains(length)));
        for power in 12..16 {
            let count = lengths.iter().filter(|length| length.ilog2() == power).count();
            assert!((200..300).contains(&count), "2^{power}: {count}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_lengths_again() {
        assert_eq!(spider(300, 256 << 20, 7), spider(300, 256 << 20, 7));
        assert_ne!(spider(300, 256 << 20, 7), spider(300, 256 << 20, 8));
    }
}
