use super::*;

/// Three targets with so much each, every two seconds: deviation and mean can be told at a glance,
/// for (m - d, m, m + d) has the mean m and the deviation d.
fn series(samples: &[(f64, f64)]) -> Series {
    let mut series = Series::new(Sampling::default());
    let targets = ["a", "b", "c"].map(|name| series.target(name));
    for (index, (mean, deviation)) in samples.iter().enumerate() {
        let rates = [mean - deviation, *mean, mean + deviation];
        let values: Vec<(usize, f64)> = targets.into_iter().zip(rates).collect();
        series.add(index as f64 * 2.0, &values).unwrap();
    }
    series.end();
    series
}

/// Ten moments: above 6 are two periods of one moment each, six seconds apart; above 0 are one of
/// two moments and one of one.
const SAMPLES: [(f64, f64); 10] = [
    (10.0, 0.0),
    (10.0, 0.0),
    (20.0, 6.0),
    (20.0, 8.0),
    (10.0, 0.0),
    (10.0, 0.0),
    (10.0, 0.0),
    (30.0, 10.0),
    (10.0, 0.0),
    (10.0, 0.0),
];

#[test]
fn distributions_are_as_computed_by_hand() {
    let analysis = Analysis::of(&series(&SAMPLES), &[]).unwrap();
    let at = |distribution: &Distribution| {
        [50.0, 80.0, 90.0, 95.0].map(|it| distribution.percentile(it))
    };
    assert_eq!(at(&analysis.minimum), [10.0, 12.0, 14.0, 20.0]);
    assert_eq!(at(&analysis.mean), [10.0, 20.0, 20.0, 30.0]);
    assert_eq!(at(&analysis.maximum), [10.0, 26.0, 28.0, 40.0]);
    assert_eq!(at(&analysis.deviation), [0.0, 6.0, 8.0, 10.0]);
    assert_eq!(analysis.mean.mean(), 14.0);
    assert_eq!((analysis.interval_seconds, analysis.seconds), (2.0, 20.0));
}

#[test]
fn periods_are_as_computed_by_hand() {
    let thresholds = [80.0, 70.0].map(Threshold::Percentile);
    let analysis = Analysis::of(&series(&SAMPLES), &thresholds).unwrap();
    let [high, low] = &analysis.imbalances[..] else { panic!("two were asked for") };
    assert_eq!((high.rate, high.share), (Some(6.0), 0.2));
    assert_eq!((high.lifetimes.count(), high.lifetimes.maximum()), (2, 2.0));
    assert_eq!((high.distances.count(), high.distances.maximum()), (1, 6.0));
    assert_eq!((low.rate, low.share), (Some(0.0), 0.3));
    assert_eq!(low.lifetimes.curve(9).collect::<Vec<_>>(), [(2.0, 0.5), (4.0, 1.0)]);
    assert_eq!((low.distances.count(), low.distances.mean()), (1, 6.0));
}

#[test]
fn dispersion_is_as_computed_by_hand() {
    let analysis = Analysis::of(&series(&SAMPLES), &[]).unwrap();
    // Five moments make a band, and all seven of equal bandwidth are in the first.
    let [low, high] = &analysis.bands[..] else { panic!("{:?}", analysis.bands) };
    assert_eq!((low.from, low.to, low.deviation.count()), (10.0, 10.0, 7));
    assert_eq!((high.from, high.to, high.deviation.percentile(50.0)), (20.0, 30.0, 8.0));
    // Means are 10 seven times, 20, 20, 30; deviations 0 seven times, 6, 8, 10. So the sums of
    // products about their means of 14 and 2.4 are 440, 142.4 and 244.
    let expected = 244.0 / (440.0_f64 * 142.4).sqrt();
    assert!((analysis.correlation.unwrap() - expected).abs() < 1e-12);
    assert_eq!(Analysis::of(&series(&SAMPLES[..2]), &[]).unwrap().correlation, None);
}

#[test]
fn the_deviation_is_that_of_a_sample() {
    let mut series = Series::new(Sampling::default());
    let (a, b) = (series.target("a"), series.target("b"));
    series.add(0.0, &[(a, 1.0), (b, 3.0)]).unwrap();
    series.end();
    // The squares sum up to two, and two targets have one degree of freedom.
    assert_eq!(series.moments()[0].deviation, 2.0_f64.sqrt());
}

#[test]
fn sums_are_rates_of_what_was_before() {
    let mut series = Series::new(Sampling { values: Values::Sums, every_seconds: None });
    let (a, b) = (series.target("a"), series.target("b"));
    for (at, sums) in [(0.0, [0.0, 100.0]), (2.0, [20.0, 100.0]), (3.0, [5.0, 130.0])] {
        series.add(at, &[(a, sums[0]), (b, sums[1])]).unwrap();
    }
    series.end();
    let moment = series.moments()[0];
    assert_eq!((moment.at, moment.minimum, moment.maximum), (2.0, 0.0, 10.0));
    // At the end the counter of `a` had begun anew, so one target is left.
    assert_eq!((series.moments().len(), series.reset_count(), series.lone_count()), (1, 1, 1));
}

#[test]
fn targets_asked_at_moments_of_their_own_are_gathered() {
    let mut series = Series::new(Sampling { values: Values::Rates, every_seconds: Some(2.0) });
    let (a, b) = (series.target("a"), series.target("b"));
    for (at, target, rate) in [(0.1, a, 1.0), (0.2, b, 5.0), (1.3, a, 3.0), (2.1, a, 7.0)] {
        series.add(at, &[(target, rate)]).unwrap();
    }
    series.end();
    let moment = series.moments()[0];
    assert_eq!((moment.at, moment.minimum, moment.maximum), (2.0, 2.0, 5.0));
    assert_eq!((series.moments().len(), series.lone_count()), (1, 1));
    assert_eq!(series.targets().collect::<Vec<_>>(), [("a", 4.5, 7.0), ("b", 5.0, 5.0)]);
}

#[test]
fn no_period_and_no_distance_spans_a_pause() {
    let mut series = Series::new(Sampling::default());
    let (a, b) = (series.target("a"), series.target("b"));
    for (at, rate) in [(0.0, 9.0), (1.0, 9.0), (2.0, 0.0), (60.0, 9.0), (61.0, 0.0), (62.0, 9.0)] {
        series.add(at, &[(a, 0.0), (b, rate)]).unwrap();
    }
    series.end();
    series.add(0.0, &[(a, 0.0), (b, 9.0)]).unwrap();
    series.end();
    let analysis = Analysis::of(&series, &[Threshold::Percentile(20.0)]).unwrap();
    let imbalance = &analysis.imbalances[0];
    assert_eq!(
        imbalance.lifetimes.curve(9).map(|it| it.0).collect::<Vec<_>>(),
        [1.0, 1.0, 1.0, 2.0]
    );
    assert_eq!(imbalance.distances.curve(9).map(|it| it.0).collect::<Vec<_>>(), [1.0]);
    assert_eq!(analysis.seconds, 7.0);
}

#[test]
fn time_that_does_not_go_on_is_refused() {
    let mut series = Series::new(Sampling::default());
    let a = series.target("a");
    series.add(2.0, &[(a, 1.0)]).unwrap();
    assert_eq!(series.add(2.0, &[]), Err(Refusal::Backwards { at: 2.0, before: 2.0 }));
}

#[test]
fn nothing_is_known_of_nothing() {
    assert_eq!(Analysis::of(&Series::new(Sampling::default()), &[Threshold::OfMean(0.2)]), None);
    let nothing = Distribution::default();
    assert_eq!(
        (nothing.percentile(50.0), nothing.mean(), nothing.curve(10).count()),
        (0.0, 0.0, 0)
    );
}

#[test]
fn a_rate_and_a_share_of_the_mean_say_how_it_is() {
    let thresholds = [Threshold::Rate(7.0), Threshold::OfMean(0.35), Threshold::OfMean(0.5)];
    let analysis = Analysis::of(&series(&SAMPLES), &thresholds).unwrap();
    let begins = |it: &Imbalance| it.periods.iter().map(|it| it.begin).collect::<Vec<_>>();
    let [rate, share, never] = &analysis.imbalances[..] else { panic!("three were asked for") };
    // Deviations of 8 of 20 and of 10 of 30: both are above 7, and the first is above 35 %.
    assert_eq!((rate.rate, rate.share, begins(rate)), (Some(7.0), 0.2, vec![4.0, 12.0]));
    assert_eq!((share.rate, share.share, begins(share)), (None, 0.1, vec![4.0]));
    assert_eq!((never.share, never.lifetimes.count()), (0.0, 0));
    let relative = &analysis.relative_deviation;
    assert_eq!((relative.percentile(50.0), relative.maximum()), (0.0, 0.4));
}

/// Eight targets that differ a little at all times, and one of them at a tenth during what was
/// planted; sampled once a second. A sample in which something begins or ends is the mean of both.
fn planted(slowdowns: &[(f64, f64)], seconds: u32) -> Series {
    let mut series = Series::new(Sampling::default());
    let targets: Vec<usize> = (0..8).map(|it| series.target(&format!("ost{it}"))).collect();
    for second in 0..seconds {
        let (from, to) = (f64::from(second), f64::from(second + 1));
        let within = |&(begin, end): &(f64, f64)| (end.min(to) - begin.max(from)).max(0.0);
        let slow: f64 = slowdowns.iter().map(within).sum();
        let rate = |&target: &usize| {
            // Within 10 % of 100, never the same: the upper bits of products are spread evenly.
            let target_number = u32::try_from(target).unwrap();
            let drawn = (second * 8 + target_number + 1).wrapping_mul(0x9E37_79B1);
            let drawn = (drawn ^ (drawn >> 15)).wrapping_mul(0x85EB_CA77);
            let even = 90.0 + 20.0 * f64::from(drawn) / f64::from(u32::MAX);
            let is_hit = target == second as usize / 40 % 8;
            (target, if is_hit { even * (1.0 - 0.9 * slow) } else { even })
        };
        let values: Vec<_> = targets.iter().map(rate).collect();
        series.add(to, &values).unwrap();
    }
    series.end();
    series
}

/// The 80th percentile says of every system that a fifth of the time is imbalance. What was planted
/// is found as it was, by the share of the mean that `lads imbalance` takes.
#[test]
fn planted_slowdowns_are_found_as_they_were_planted() {
    let slowdowns = [(20.3, 24.1), (31.0, 33.0), (60.7, 79.4), (200.2, 203.9), (300.0, 360.0)];
    let series = planted(&slowdowns, 600);
    let thresholds = [Threshold::OfMean(0.2), Threshold::Percentile(80.0)];
    let analysis = Analysis::of(&series, &thresholds).unwrap();
    let [found, paper] = &analysis.imbalances[..] else { panic!("two were asked for") };

    let is_near = |found: f64, planted: f64| (found - planted).abs() <= 1.0;
    assert_eq!(found.periods.len(), slowdowns.len(), "{:?}", found.periods);
    for (period, (begin, end)) in found.periods.iter().zip(slowdowns) {
        assert!(is_near(period.begin, begin), "{period:?}");
        assert!(is_near(period.seconds, end - begin), "{period:?}");
    }
    let mut distances: Vec<f64> = slowdowns.windows(2).map(|it| it[1].0 - it[0].1).collect();
    distances.sort_by(f64::total_cmp);
    let distances_found: Vec<f64> = found.distances.curve(99).map(|it| it.0).collect();
    assert_eq!(distances_found.len(), distances.len());
    assert!(distances_found.iter().zip(&distances).all(|(&a, &b)| is_near(a, b)));
    let planted: f64 = slowdowns.iter().map(|(begin, end)| end - begin).sum();
    assert!((found.share - planted / 600.0).abs() < 0.01, "{}", found.share);

    assert!((paper.share - 0.2).abs() < 0.01, "{}", paper.share);
    assert!(paper.periods.len() > 2 * slowdowns.len(), "{:?}", paper.periods);
}

#[test]
fn an_even_system_has_no_imbalance() {
    let thresholds = [Threshold::OfMean(0.2), Threshold::Percentile(80.0)];
    let analysis = Analysis::of(&planted(&[], 600), &thresholds).unwrap();
    assert_eq!(analysis.imbalances[0].share, 0.0);
    assert!(analysis.imbalances[1].share > 0.15, "by construction");
}
