//! Reads the rates of a mounted file system from `.pfs/stats` and `.pfs/series`, for use as a
//! fluid.

use super::curve::Steps;
use super::fluid::{Server, Target, UNLIMITED};
use crate::stats::{OssStats, Stats};
use anyhow::{Context, Result};
use serde::Deserialize;

/// One line of `.pfs/series`. A line with a sample has neither OST nor OSS.
#[derive(Debug, Deserialize)]
struct Event {
    t: f64,
    event: String,
    ost: Option<usize>,
    oss: Option<usize>,
    rate_bytes_per_second: Option<f64>,
}

/// Returns the OSSes of a file system with the rates that they had from second `from` on (on
/// `CLOCK_MONOTONIC`), and with these bytes on its OSTs.
///
/// Rates that do not appear in the series are taken from the stats.
///
/// # Errors
/// If the series is not what a mounted file system writes, or if `bytes` names more OSTs than there
/// are.
pub fn servers(stats: &Stats, series: &str, bytes: &[u64], from: f64) -> Result<Vec<Server>> {
    anyhow::ensure!(
        bytes.len() <= stats.osts.len(),
        "bytes on {} OSTs, but there are {}",
        bytes.len(),
        stats.osts.len()
    );
    let osts = stats.osts.iter().map(|ost| (ost.ost, ost.rate_bytes_per_second));
    let osses = stats.osses.iter().map(|oss| (oss.oss, oss.rate_bytes_per_second));
    let mut ost_rates: Vec<Rates> = osts.map(Rates::as_of_now).collect();
    let mut oss_rates: Vec<Rates> = osses.map(Rates::as_of_now).collect();
    for (number, line) in series.lines().enumerate() {
        let context = || format!("line {} of the series: {line}", number + 1);
        let event: Event = serde_json::from_str(line).with_context(context)?;
        if !event.event.ends_with("rate") {
            continue;
        }
        let rates = match (event.ost, event.oss) {
            (Some(ost), _) => ost_rates.get_mut(ost),
            (None, Some(oss)) => oss_rates.get_mut(oss),
            (None, None) => None,
        };
        let rates = rates.with_context(context)?;
        rates.change(event.t - from, event.rate_bytes_per_second);
    }
    let server = |oss: &OssStats| Server {
        cap: oss_rates[oss.oss].steps(),
        osts: stats
            .osts
            .iter()
            .filter(|ost| ost.oss == oss.oss)
            .map(|ost| Target {
                rate: ost_rates[ost.ost].steps(),
                bytes: bytes.get(ost.ost).map_or(0.0, |&bytes| bytes as f64),
            })
            .collect(),
    };
    Ok(stats.osses.iter().map(server).collect())
}

/// The rates of one OST or OSS.
#[derive(Clone, Debug)]
struct Rates {
    now: f64,
    changed: Option<Steps>,
}

impl Rates {
    fn as_of_now((_, rate): (usize, Option<f64>)) -> Self {
        Self { now: rate.unwrap_or(UNLIMITED), changed: None }
    }

    fn change(&mut self, seconds: f64, rate: Option<f64>) {
        let rate = rate.unwrap_or(UNLIMITED);
        match &mut self.changed {
            Some(steps) => steps.change(seconds, rate),
            // The rate before the first line is unknown; assume the one in that line.
            None => self.changed = Some(Steps::constant(rate)),
        }
    }

    fn steps(&self) -> Steps {
        self.changed.clone().unwrap_or_else(|| Steps::constant(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fluid::Way;
    use super::*;

    const MB: u64 = 1_000_000;

    const STATS: &str = r#"{"osts":[
        {"ost":0,"oss":0,"rate_bytes_per_second":50e6,"used_bytes":7},
        {"ost":1,"oss":1,"rate_bytes_per_second":null,"used_bytes":0}],
        "osses":[{"oss":0,"rate_bytes_per_second":null},{"oss":1,"rate_bytes_per_second":200e6}]}"#;

    fn seconds(series: &str, bytes: &[u64], from: f64) -> f64 {
        let stats: Stats = serde_json::from_str(STATS).unwrap();
        let source = servers(&stats, series, bytes, from).unwrap();
        let way = Way { source, network: Steps::constant(UNLIMITED), sink: None };
        way.bound().seconds.unwrap().round()
    }

    #[test]
    fn without_events_the_stats_hold() {
        assert_eq!(seconds("", &[100_000 * MB, 0], 0.0), 2000.0);
        assert_eq!(seconds("", &[0, 100_000 * MB], 0.0), 500.0);
    }

    #[test]
    fn rates_change_when_the_series_says() {
        let series = "\
{\"t\":5.0,\"event\":\"rate\",\"ost\":0,\"rate_bytes_per_second\":50e6}
{\"t\":6.0,\"event\":\"sample\",\"osts\":[[0,0,0],[0,0,0]]}
{\"t\":1010.0,\"event\":\"rate\",\"ost\":0,\"rate_bytes_per_second\":10e6}
";
        // 1000 s from second 10 on at 50 MB a second, then 10 MB a second.
        assert_eq!(seconds(series, &[60_000 * MB, 0], 10.0), 2000.0);
    }

    #[test]
    fn a_cap_of_an_oss_can_change_too() {
        let series = "{\"t\":1,\"event\":\"oss-rate\",\"oss\":1,\"rate_bytes_per_second\":100e6}";
        assert_eq!(seconds(series, &[0, 100_000 * MB], 3.0), 1000.0);
    }
}
