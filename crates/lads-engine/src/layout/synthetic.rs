//! Pretended OSTs: files are spread over them by number, wherever they really lie.
//!
//! For trying out schedules, and for tests, on a machine without a parallel file system:
//! `synthetic:osts=8,stripe_size=1M,stripe_count=1,copies=1,latency_ms=5`. Each OST serves one
//! request at a time, like the paper's, and takes `latency_ms` longer for it. If a file has several
//! copies, each copy lies on the OSTs after those of the copy before.

use super::{FileAt, Layouts, Located, Mirror, NewFile, Placed};
use lads_core::layout::{Layout, STRIPE_COUNT_MAX};
use lads_core::schedule::OstSpec;
use lads_core::sizes::parse_bytes;
use lads_core::units::OstId;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const COPIES_MAX: u64 = 8;

/// Pretended OSTs.
#[derive(Debug)]
pub(super) struct Synthetic {
    ost_count: u32,
    stripe_size: u64,
    stripe_count: u32,
    copies: u64,
    latency: Duration,
    /// A thread holds the lock of an OST while that OST serves it: one thread at a time.
    turns: Vec<Mutex<()>>,
}

impl Synthetic {
    /// Reads `osts=8,stripe_size=1M,stripe_count=1,copies=1,latency_ms=5`; each has a default.
    pub(super) fn parse(parameters: &str) -> Result<Self, String> {
        let mut it = Self {
            ost_count: 8,
            stripe_size: 1 << 20,
            stripe_count: 1,
            copies: 1,
            latency: Duration::ZERO,
            turns: Vec::new(),
        };
        for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter
                .split_once('=')
                .ok_or_else(|| format!("synthetic layout: {parameter:?} is not name=value"))?;
            let number =
                parse_bytes(value).map_err(|explained| format!("synthetic layout: {explained}"))?;
            let small = u32::try_from(number).ok().filter(|&n| n as usize <= STRIPE_COUNT_MAX);
            match (name, small) {
                ("osts", Some(count @ 1..)) => it.ost_count = count,
                ("stripe_count", Some(count @ 1..)) => it.stripe_count = count,
                ("copies", _) if (1..=COPIES_MAX).contains(&number) => it.copies = number,
                ("latency_ms", Some(ms)) => it.latency = Duration::from_millis(ms.into()),
                ("stripe_size", _) if number >= 4096 && number.is_multiple_of(4096) => {
                    it.stripe_size = number;
                }
                _ => {
                    return Err(format!(
                        "synthetic layout: {parameter:?} is invalid; the parameters are osts and \
                         stripe_count (1 to {STRIPE_COUNT_MAX}), stripe_size (a multiple of 4096), \
                         copies (1 to {COPIES_MAX}), latency_ms (0 to {STRIPE_COUNT_MAX})"
                    ));
                }
            }
        }
        it.stripe_count = it.stripe_count.min(it.ost_count);
        it.turns = (0..it.ost_count).map(|_| Mutex::new(())).collect();
        Ok(it)
    }

    fn spread(&self, number: u64) -> Layout {
        let count = u64::from(self.ost_count);
        let first = number % count;
        let osts = (0..u64::from(self.stripe_count))
            .map(|step| OstId(u32::try_from((first + step) % count).expect("below ost_count")))
            .collect();
        Layout::striped(self.stripe_size, osts).expect("sizes were checked when parsed")
    }
}

impl Layouts for Synthetic {
    fn kind(&self) -> &'static str {
        "synthetic"
    }

    fn osts(&self) -> Vec<OstSpec> {
        let name = |index| format!("OST{index:04x}");
        (0..self.ost_count).map(|index| OstSpec::new(name(index), 1)).collect()
    }

    fn of_file(&self, file: &FileAt<'_>) -> Located {
        let copy = |number: u64| {
            let first = file.inode.wrapping_add(number * u64::from(self.stripe_count));
            let number = u16::try_from(number).expect("at most COPIES_MAX");
            Mirror { number, layout: self.spread(first) }
        };
        let mut located = Located::at(self.spread(file.inode));
        if self.copies > 1 {
            located.mirrors = (0..self.copies).map(copy).collect();
        }
        located
    }

    fn choose_mirror(&self, _file: &OwnedFd, _number: u16) -> Result<(), Errno> {
        Ok(())
    }

    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno> {
        Ok(Placed::at(self.spread(file.number)))
    }

    fn pretend(&self, ost: OstId) {
        if !self.latency.is_zero() {
            let _turn = self.turns[ost.index()].lock().unwrap_or_else(PoisonError::into_inner);
            std::thread::sleep(self.latency);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_have_defaults() {
        let it = Synthetic::parse("osts=4,stripe_size=64K,stripe_count=2,latency_ms=5").unwrap();
        let striped = Layout::striped(64 << 10, vec![OstId(3), OstId(0)]);
        assert_eq!(Some(it.spread(3)), striped);
        assert_eq!(Synthetic::parse("").unwrap().osts().len(), 8);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in ["osts=0", "stripe_size=1000", "stripes=3", "osts", "osts=x", "osts=9999999"] {
            assert!(Synthetic::parse(text).is_err(), "{text}");
        }
    }
}
