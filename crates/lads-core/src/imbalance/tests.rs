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
    let analysis = Analysis::of(&series(&SAMPLES), &[80.0, 70.0]).unwrap();
    let [high, low] = &analysis.imbalances[..] else { panic!("two were asked for") };
    assert_eq!((high.threshold, high.share), (6.0, 0.2));
    assert_eq!((high.lifetimes.count(), high.lifetimes.maximum()), (2, 2.0));
    assert_eq!((high.distances.count(), high.distances.maximum()), (1, 6.0));
    assert_eq!((low.threshold, low.share), (0.0, 0.3));
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
    let analysis = Analysis::of(&series, &[20.0]).unwrap();
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
    assert_eq!(Analysis::of(&Series::new(Sampling::default()), &[80.0]), None);
    let nothing = Distribution::default();
    assert_eq!(
        (nothing.percentile(50.0), nothing.mean(), nothing.curve(10).count()),
        (0.0, 0.0, 0)
    );
}
