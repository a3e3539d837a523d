//! The JSON output for another program.

use super::Finding;
use lads_core::imbalance::{Band, Distribution, Imbalance, Period, Threshold};
use serde_json::{Map, Value, json};

const PERCENTILES: [u32; 8] = [5, 25, 50, 75, 80, 90, 95, 99];
/// The most periods that are listed one by one (the longest): about 60 KB. Longer lists are seldom
/// looked at, and months of a busy system have a million.
const PERIODS_TOLD_MAX: usize = 1000;

/// Returns the analysis of a series as an object.
pub(super) fn object(finding: &Finding) -> Value {
    let (series, analysis) = (&finding.series, &finding.analysis);
    let targets = series.targets().map(|(name, mean, most)| {
        json!({
            "name": name,
            "mean_bytes_per_second": rounded(mean),
            "max_bytes_per_second": rounded(most),
        })
    });
    json!({
        "name": finding.name,
        "moments": series.moments().len(),
        "moments_left_out": series.lone_count(),
        "counter_resets": series.reset_count(),
        "interval_seconds": rounded(analysis.interval_seconds),
        "seconds": rounded(analysis.seconds),
        "bytes_per_second": {
            "minimum": distribution(&analysis.minimum),
            "mean": distribution(&analysis.mean),
            "maximum": distribution(&analysis.maximum),
            "deviation": distribution(&analysis.deviation),
        },
        "deviation_share_of_mean": distribution(&analysis.relative_deviation),
        "imbalances": analysis.imbalances.iter().map(imbalance).collect::<Vec<_>>(),
        "dispersion": {
            "correlation": analysis.correlation.map(rounded),
            "bands": analysis.bands.iter().map(band).collect::<Vec<_>>(),
        },
        "targets": targets.collect::<Vec<_>>(),
    })
}

fn imbalance(imbalance: &Imbalance) -> Value {
    let (share_of_mean, percentile) = match imbalance.threshold {
        Threshold::OfMean(share) => (Some(share), None),
        Threshold::Percentile(percentile) => (None, Some(percentile)),
        Threshold::Rate(_) => (None, None),
    };
    json!({
        "share_of_mean": share_of_mean,
        "percentile": percentile,
        "threshold_bytes_per_second": imbalance.rate.map(rounded),
        "time_share": rounded(imbalance.share),
        "periods": imbalance.lifetimes.count(),
        "longest_periods": longest(&imbalance.periods),
        "lifetime_seconds": distribution(&imbalance.lifetimes),
        "distance_seconds": distribution(&imbalance.distances),
    })
}

/// Returns the periods one by one, in the order of time; if there are very many, only the longest.
fn longest(periods: &[Period]) -> Vec<Value> {
    let mut longest: Vec<&Period> = periods.iter().collect();
    longest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    longest.truncate(PERIODS_TOLD_MAX);
    longest.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    let told = |it: &Period| {
        let (begin, lifetime) = (rounded(it.begin), rounded(it.seconds));
        json!({"begin_seconds": begin, "lifetime_seconds": lifetime})
    };
    longest.into_iter().map(told).collect()
}

fn band(band: &Band) -> Value {
    json!({
        "mean_bytes_per_second_from": rounded(band.from),
        "mean_bytes_per_second_to": rounded(band.to),
        "moments": band.deviation.count(),
        "deviation_bytes_per_second": distribution(&band.deviation),
    })
}

/// Returns percentiles (`p95`), mean and maximum; `null` if there are no values.
fn distribution(distribution: &Distribution) -> Value {
    if distribution.count() == 0 {
        return Value::Null;
    }
    let at = |percent: u32| {
        (format!("p{percent}"), json!(rounded(distribution.percentile(percent.into()))))
    };
    let mut object: Map<String, Value> = PERCENTILES.into_iter().map(at).collect();
    object.insert("mean".to_owned(), json!(rounded(distribution.mean())));
    object.insert("max".to_owned(), json!(rounded(distribution.maximum())));
    Value::Object(object)
}

/// Rounds to thousandths: further digits are only errors of subtraction.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
