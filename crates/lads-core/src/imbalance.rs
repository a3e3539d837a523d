//! How unevenly the targets of a storage system are used, for how long at a time, and how often.
//!
//! The analysis of "Layout-Aware I/O Scheduling for Terabits Data Movement" (2013), section III,
//! over any series of bandwidth per target ([`Series`]): how the least, the mean and the greatest
//! of all targets are distributed (figure 3a), how the deviation across targets is (3b), how it
//! depends on bandwidth (3c), how long periods of imbalance last (4a), and how long it is from one
//! to the next (4b). A period of imbalance is a run of moments whose deviation is above a
//! [`Threshold`]: a share of the mean at that moment, a rate, or, as in the paper, a percentile of
//! the deviation itself, of which it takes the 80th and the 95th.
//!
//! A percentile says how long periods are if a fifth of the time counts as imbalance. It cannot say
//! whether there is any: of an even system, too, a fifth of the time is above the 80th percentile,
//! and of one that is uneven for half of the time only the worse part is. The other two can.
//!
//! Reading files and drawing pictures is left to others.

mod distribution;
mod series;

pub use distribution::Distribution;
pub use series::{Moment, Refusal, Sampling, Series, Values};

/// A pause in a series: moments that are this many times the usual interval apart.
const PAUSE_INTERVALS: f64 = 3.0;

/// Into how many bands, with about as many moments each, bandwidth is cut.
const BANDS: usize = 10;
/// With fewer moments, a band says nothing.
const BAND_MOMENTS_MIN: usize = 5;

/// What there is to know of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// The median time from one moment to the next, in seconds.
    pub interval_seconds: f64,
    /// How long was looked at, pauses left out, in seconds.
    pub seconds: f64,
    /// Of the least bandwidth of any target at each moment, in bytes per second.
    pub minimum: Distribution,
    /// Of the mean bandwidth of all targets at each moment, in bytes per second.
    pub mean: Distribution,
    /// Of the greatest bandwidth of any target at each moment, in bytes per second.
    pub maximum: Distribution,
    /// Of the instant standard deviation across targets, in bytes per second.
    pub deviation: Distribution,
    /// The same as a share of the mean at that moment; moments without any bandwidth left out.
    pub relative_deviation: Distribution,
    /// Periods above each threshold, in the order asked for.
    pub imbalances: Vec<Imbalance>,
    /// How the deviation depends on bandwidth, from the least bandwidth to the greatest.
    pub bands: Vec<Band>,
    /// Pearson's correlation of mean bandwidth and deviation; `None` if either never changes.
    pub correlation: Option<f64>,
}

/// Which deviations are imbalance: those that are greater than this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// This share of the mean of all targets at the same moment; 1 is as much as the mean.
    OfMean(f64),
    /// This many bytes per second.
    Rate(f64),
    /// This percentile of the deviation at all moments.
    Percentile(f64),
}

/// Periods in which the deviation is above a threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Imbalance {
    /// What they are above.
    pub threshold: Threshold,
    /// What that is in bytes per second; `None` if it is another at each moment.
    pub rate: Option<f64>,
    /// The part of the time that is spent above it, from 0 to 1.
    pub share: f64,
    /// Each period, in the order of time.
    pub periods: Vec<Period>,
    /// How long each period lasted, in seconds.
    pub lifetimes: Distribution,
    /// From the end of each period to the beginning of the next, in seconds; not across pauses.
    pub distances: Distribution,
}

/// Moments of imbalance in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// When it begins, by the clock of the series: a moment stands for the time since the one
    /// before it, so this is when the last even moment ends.
    pub begin: f64,
    /// How long it lasts, in seconds.
    pub seconds: f64,
}

/// What the deviation is while bandwidth is in some range.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// The least mean bandwidth of all targets in it, in bytes per second.
    pub from: f64,
    /// The greatest, in bytes per second.
    pub to: f64,
    /// Of the instant standard deviation at its moments, in bytes per second.
    pub deviation: Distribution,
}

impl Analysis {
    /// Analyses a series, with periods of imbalance above these thresholds. `None` if the series
    /// has no moment.
    #[must_use]
    pub fn of(series: &Series, thresholds: &[Threshold]) -> Option<Self> {
        let moments = series.moments();
        if moments.is_empty() {
            return None;
        }
        let of = |value: fn(&Moment) -> f64| moments.iter().map(value).collect::<Distribution>();
        let deviation = of(|it| it.deviation);
        let (interval_seconds, spans) = spans(moments);
        let imbalance = |&threshold: &Threshold| {
            let rate = threshold.rate(&deviation);
            let periods = Periods::above(|it| threshold.is_exceeded(it, rate), moments, &spans);
            periods.imbalance(threshold, rate)
        };
        let relative = |it: &Moment| (it.mean > 0.0).then(|| it.deviation / it.mean);
        Some(Self {
            interval_seconds,
            seconds: spans.iter().map(|it| it.seconds).sum(),
            minimum: of(|it| it.minimum),
            mean: of(|it| it.mean),
            maximum: of(|it| it.maximum),
            relative_deviation: moments.iter().filter_map(relative).collect(),
            imbalances: thresholds.iter().map(imbalance).collect(),
            bands: bands(moments),
            correlation: correlation(moments),
            deviation,
        })
    }
}

impl Threshold {
    /// What it is in bytes per second, if that is the same at each moment.
    fn rate(self, deviation: &Distribution) -> Option<f64> {
        match self {
            Self::OfMean(_) => None,
            Self::Rate(rate) => Some(rate),
            Self::Percentile(percent) => Some(deviation.percentile(percent)),
        }
    }

    /// Whether a moment's deviation is above it; `rate` is what [`Self::rate`] says.
    fn is_exceeded(self, moment: &Moment, rate: Option<f64>) -> bool {
        let threshold = match self {
            Self::OfMean(share) => Some(share * moment.mean),
            Self::Rate(_) | Self::Percentile(_) => rate,
        };
        threshold.is_some_and(|threshold| moment.deviation > threshold)
    }
}

/// What a moment stands for: the time since the one before it.
#[derive(Clone, Copy, Debug)]
struct Span {
    seconds: f64,
    /// Whether nothing is known of the time before it.
    is_after_pause: bool,
}

/// The usual interval, and the span of each moment. After a pause, and at the beginning, a moment
/// stands for the usual interval.
fn spans(moments: &[Moment]) -> (f64, Vec<Span>) {
    let step = |pair: &[Moment]| (!pair[1].is_first).then(|| pair[1].at - pair[0].at);
    let steps: Distribution = moments.windows(2).filter_map(step).collect();
    let interval = if steps.count() == 0 { 0.0 } else { steps.percentile(50.0) };
    let pause = Span { seconds: interval, is_after_pause: true };
    let span = |pair: &[Moment]| match step(pair) {
        Some(seconds) if seconds <= PAUSE_INTERVALS * interval => {
            Span { seconds, is_after_pause: false }
        }
        _ => pause,
    };
    let spans = std::iter::once(pause).chain(moments.windows(2).map(span)).collect();
    (interval, spans)
}

/// Gathers periods above a threshold.
#[derive(Debug, Default)]
struct Periods {
    ended: Vec<Period>,
    /// The one in which we are.
    current: Option<Period>,
    distances: Vec<f64>,
    seconds: f64,
}

impl Periods {
    fn above(is_above: impl Fn(&Moment) -> bool, moments: &[Moment], spans: &[Span]) -> Self {
        let mut periods = Self::default();
        // Since the last period ended, if there was one and no pause since.
        let mut distance: Option<f64> = None;
        for (moment, span) in moments.iter().zip(spans) {
            if span.is_after_pause {
                periods.end();
                distance = None;
            }
            periods.seconds += span.seconds;
            if is_above(moment) {
                periods.distances.extend(distance.take());
                let begin = moment.at - span.seconds;
                let period = periods.current.get_or_insert(Period { begin, seconds: 0.0 });
                period.seconds += span.seconds;
            } else {
                if periods.end() {
                    distance = Some(0.0);
                }
                distance = distance.map(|so_far| so_far + span.seconds);
            }
        }
        periods.end();
        periods
    }

    /// Ends the period in which we are; whether there is one.
    fn end(&mut self) -> bool {
        let ended = self.current.take();
        self.ended.extend(ended);
        ended.is_some()
    }

    fn imbalance(self, threshold: Threshold, rate: Option<f64>) -> Imbalance {
        let lifetimes = self.ended.iter().map(|it| it.seconds);
        // A sum of none would be below zero, and be shown so.
        let seconds_above = lifetimes.clone().fold(0.0, |sum, seconds| sum + seconds);
        let share = if self.seconds > 0.0 { seconds_above / self.seconds } else { 0.0 };
        Imbalance {
            threshold,
            rate,
            share,
            lifetimes: lifetimes.collect(),
            distances: self.distances.into_iter().collect(),
            periods: self.ended,
        }
    }
}

/// Moments in the order of their bandwidth, cut into bands; those of equal bandwidth are in one.
fn bands(moments: &[Moment]) -> Vec<Band> {
    let mut ordered: Vec<&Moment> = moments.iter().collect();
    ordered.sort_unstable_by(|a, b| a.mean.total_cmp(&b.mean));
    let step = ordered.len().div_ceil(BANDS).max(BAND_MOMENTS_MIN);
    let mut bands = Vec::new();
    let mut rest = &ordered[..];
    while !rest.is_empty() {
        let last = rest[step.min(rest.len()) - 1].mean;
        let (within, above) = rest.split_at(rest.partition_point(|it| it.mean <= last));
        let deviation = within.iter().map(|it| it.deviation).collect();
        bands.push(Band { from: within[0].mean, to: last, deviation });
        rest = above;
    }
    bands
}

fn correlation(moments: &[Moment]) -> Option<f64> {
    let count = moments.len() as f64;
    let x_mean = moments.iter().map(|it| it.mean).sum::<f64>() / count;
    let y_mean = moments.iter().map(|it| it.deviation).sum::<f64>() / count;
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for moment in moments {
        let (x, y) = (moment.mean - x_mean, moment.deviation - y_mean);
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests;
