//! How samples of a collector become moments: bandwidth of all targets over the same time.
//!
//! Samples may be rates, or sums that grow; of all targets at once, or of one at a time, at moments
//! of its own: then they must be gathered ([`Sampling::every_seconds`]). Of each moment only four
//! numbers are kept, so months of samples fit into memory.

use std::collections::HashMap;

/// Bandwidth across targets over the time that ends at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// When, in seconds.
    pub at: f64,
    /// Whether nothing is known of what was before it.
    pub is_first: bool,
    /// The least of any target, in bytes per second.
    pub minimum: f64,
    /// The mean of all targets, in bytes per second.
    pub mean: f64,
    /// The greatest of any target, in bytes per second.
    pub maximum: f64,
    /// The standard deviation across targets, of a sample (divided by n - 1, as in the paper), in
    /// bytes per second.
    pub deviation: f64,
}

/// What the values of a sample are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Values {
    /// Bandwidth since the sample before, in bytes per second.
    #[default]
    Rates,
    /// Bytes since some beginning: the difference to the sample before counts.
    Sums,
}

/// How samples are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Sampling {
    /// What their values are.
    pub values: Values,
    /// All samples within this many seconds are one moment; `None`: each is one.
    pub every_seconds: Option<f64>,
}

/// Why a sample cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// It is no later than the one before.
    #[error("time does not increase: {at} s follows {before} s")]
    Backwards {
        /// The moment of the sample.
        at: f64,
        /// That of the one before.
        before: f64,
    },
}

/// Bandwidth of targets over time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    sampling: Sampling,
    moments: Vec<Moment>,
    targets: Vec<Target>,
    /// The number of each target by its name.
    numbers: HashMap<String, usize>,
    /// When the last sample was.
    last: Option<f64>,
    bin: Bin,
    is_first: bool,
    lone: u64,
    resets: u64,
}

/// One target.
#[derive(Clone, Debug)]
struct Target {
    name: String,
    /// Its last sum, and when.
    sum: Option<(f64, f64)>,
    rate_sum: f64,
    rate_count: u64,
    rate_max: f64,
}

/// Samples that make one moment.
#[derive(Clone, Debug, Default)]
struct Bin {
    /// Number of the bin since the beginning, if there is anything in it.
    number: Option<f64>,
    at: f64,
    /// For each target: sum of rates, and how many.
    rates: Vec<(f64, u32)>,
}

impl Series {
    /// A series without samples.
    #[must_use]
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, is_first: true, ..Self::default() }
    }

    /// The number of a target, by which samples name it.
    pub fn target(&mut self, name: &str) -> usize {
        self.numbers.get(name).copied().unwrap_or_else(|| {
            let name = name.to_owned();
            self.numbers.insert(name.clone(), self.targets.len());
            self.targets.push(Target {
                name,
                sum: None,
                rate_sum: 0.0,
                rate_count: 0,
                rate_max: 0.0,
            });
            self.targets.len() - 1
        })
    }

    /// Takes a sample: what each target's value is at a moment. Targets that are not named are not
    /// known then.
    ///
    /// # Errors
    /// If it is no later than the sample before, or, where samples are gathered, earlier.
    ///
    /// # Panics
    /// If there is no such target.
    pub fn add(&mut self, at: f64, values: &[(usize, f64)]) -> Result<(), Refusal> {
        let is_gathered = self.sampling.every_seconds.is_some();
        if let Some(before) = self.last
            && (at < before || (at == before && !is_gathered))
        {
            return Err(Refusal::Backwards { at, before });
        }
        self.last = Some(at);
        let number = self.sampling.every_seconds.map_or(at, |every| (at / every).floor());
        if self.bin.number.is_some_and(|it| it != number) {
            self.close_bin();
        }
        for &(target, value) in values {
            if let Some(rate) = self.rate(target, at, value) {
                self.bin.rates.resize(self.targets.len(), (0.0, 0));
                let (sum, count) = &mut self.bin.rates[target];
                *sum += rate;
                *count += 1;
                self.bin.number = Some(number);
                self.bin.at =
                    self.sampling.every_seconds.map_or(at, |every| (number + 1.0) * every);
            }
        }
        Ok(())
    }

    /// No more samples come, or what comes has nothing to do with what was.
    pub fn end(&mut self) {
        self.close_bin();
        self.last = None;
        self.is_first = true;
        self.targets.iter_mut().for_each(|it| it.sum = None);
    }

    /// What has been gathered, in the order of time.
    #[must_use]
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// Name, mean and greatest bandwidth of each target, in bytes per second.
    pub fn targets(&self) -> impl Iterator<Item = (&str, f64, f64)> {
        let mean = |it: &Target| it.rate_sum / it.rate_count.max(1) as f64;
        self.targets.iter().map(move |it| (it.name.as_str(), mean(it), it.rate_max))
    }

    /// Returns how many moments were left out, because fewer than two targets were known: one has
    /// no deviation.
    #[must_use]
    pub fn lone_count(&self) -> u64 {
        self.lone
    }

    /// Returns how many values were left out because a sum was less than before: its counter had
    /// begun again.
    #[must_use]
    pub fn reset_count(&self) -> u64 {
        self.resets
    }

    /// The rate that a value means.
    fn rate(&mut self, target: usize, at: f64, value: f64) -> Option<f64> {
        match self.sampling.values {
            Values::Rates => Some(value),
            Values::Sums => {
                let (since, before) = self.targets[target].sum.replace((at, value))?;
                let has_reset = value < before;
                self.resets += u64::from(has_reset);
                (!has_reset && at > since).then(|| (value - before) / (at - since))
            }
        }
    }

    fn close_bin(&mut self) {
        let bin = std::mem::take(&mut self.bin);
        if bin.number.is_none() {
            return;
        }
        let mut rates = Vec::with_capacity(bin.rates.len());
        for (target, (sum, count)) in self.targets.iter_mut().zip(&bin.rates) {
            if *count > 0 {
                let rate = sum / f64::from(*count);
                target.rate_sum += rate;
                target.rate_count += 1;
                target.rate_max = target.rate_max.max(rate);
                rates.push(rate);
            }
        }
        match rates.len() {
            0 | 1 => self.lone += 1,
            _ => {
                let is_first = std::mem::take(&mut self.is_first);
                self.moments.push(Moment::of(bin.at, is_first, &rates));
            }
        }
    }
}

impl Moment {
    /// At least two rates.
    fn of(at: f64, is_first: bool, rates: &[f64]) -> Self {
        let count = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        Self {
            at,
            is_first,
            minimum: rates.iter().copied().fold(f64::INFINITY, f64::min),
            mean,
            maximum: rates.iter().copied().fold(0.0, f64::max),
            deviation: (squares / (count - 1.0)).sqrt(),
        }
    }
}
