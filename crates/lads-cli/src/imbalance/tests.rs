use super::*;
use expect_test::expect_file;

/// Ten moments, two seconds apart, of three targets. The tests of [`lads_core::imbalance`] compute
/// the expected results by hand.
const SAMPLES: [[u64; 3]; 10] = [
    [10, 10, 10],
    [10, 10, 10],
    [14, 20, 26],
    [12, 20, 28],
    [10, 10, 10],
    [10, 10, 10],
    [10, 10, 10],
    [20, 30, 40],
    [10, 10, 10],
    [10, 10, 10],
];

/// The thresholds of the analysis. Only the fourth moment is above 35 % of the mean.
const THRESHOLDS: [Threshold; 4] = [
    Threshold::OfMean(0.35),
    Threshold::Rate(7.0),
    Threshold::Percentile(80.0),
    Threshold::Percentile(95.0),
];

fn lines(of: impl Fn(usize, [u64; 3]) -> String) -> String {
    SAMPLES.into_iter().enumerate().map(|(index, rates)| of(index, rates)).collect()
}

fn wide() -> String {
    "time,a,b,c\n".to_owned() + &lines(|index, [a, b, c]| format!("{},{a},{b},{c}\n", index * 2))
}

/// Makes counters: the sums moved up to each moment, with a first value before them.
fn sums(of: impl Fn(usize, [u64; 3]) -> String) -> String {
    let mut sums = [1; 3];
    let mut text = of(0, sums);
    for (index, rates) in SAMPLES.iter().enumerate() {
        sums = std::array::from_fn(|target| sums[target] + rates[target] * 2);
        text += &of(index + 1, sums);
    }
    text
}

fn find(values: Values, every_seconds: Option<f64>, content: &str) -> Result<Vec<Finding>> {
    let mut parts = Parts::new(Reading { sampling: Sampling { values, every_seconds }, unit: 1.0 });
    parts.read(content.as_bytes())?;
    analyse("samples", parts, &THRESHOLDS)
}

fn refusal(content: &str) -> String {
    match find(Values::Rates, None, content) {
        Ok(_) => panic!("it was taken: {content}"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn tables_show_what_was_computed_by_hand() {
    let mut shown = Vec::new();
    let findings = find(Values::Rates, None, &wide()).unwrap();
    table::write(&findings[0], &mut shown).unwrap();
    expect_file!["golden/table.txt"].assert_eq(&String::from_utf8(shown).unwrap());
}

/// Returns the analysis with times since the first moment, because clocks begin at different times.
fn analysis(findings: &[Finding]) -> Analysis {
    let Finding { series, analysis, .. } = &findings[0];
    let mut analysis = analysis.clone();
    for period in analysis.imbalances.iter_mut().flat_map(|it| &mut it.periods) {
        period.begin -= series.moments()[0].at;
    }
    analysis
}

#[test]
fn every_format_means_the_same() {
    let expected = analysis(&find(Values::Rates, None, &wide()).unwrap());
    let row = |at: String, [a, b, c]: [u64; 3]| format!("{at},a,{a}\n{at},b,{b}\n{at},c,{c}\n");
    let date = |index: usize| format!("2012-01-01 00:00:{:02}", index * 2);
    let formats = [
        wide().replace(',', ";"),
        wide().replace(',', "\t"),
        "date,target,value\n".to_owned() + &lines(|index, it| row(date(index), it)),
        lines(|index, [a, b, c]| {
            format!("{{\"t\":{},\"a\":{a},\"b\":{b},\"c\":{c}}}\n", index * 2)
        }),
        lines(|index, rates| {
            let line = |(name, rate): (&str, u64)| {
                format!(
                    "{{\"time\":\"{}\",\"ost\":\"{name}\",\"read\":1,\"write\":{}}}\n",
                    date(index),
                    rate - 1
                )
            };
            ["a", "b", "c"].into_iter().zip(rates).map(line).collect()
        }),
        sums(|index, sums| {
            let (at, bytes) = (index * 2, format!("{sums:?}"));
            format!(
                "{{\"version\":1,\"event\":\"osts\",\"elapsed_seconds\":{at},\"side\":\"sink\",\
                 \"bytes\":{bytes}}}\n{{\"version\":1,\"event\":\"progress\"}}\n"
            )
        }),
        sums(|index, [a, b, c]| {
            let at = index * 2;
            format!(
                "{{\"t\":{at},\"event\":\"sample\",\"osts\":[[{a},0,1],[0,{b},0],[0,{c},9]]}}\n"
            )
        }),
    ];
    for content in formats {
        let findings = find(Values::Rates, None, &content).unwrap();
        assert_eq!(analysis(&findings), expected, "{content}");
    }
    let content = "time,a,b,c\n".to_owned()
        + &sums(|index, [a, b, c]| format!("{},{a},{b},{c}\n", index * 2));
    assert_eq!(analysis(&find(Values::Sums, None, &content).unwrap()), expected);
}

#[test]
fn both_ends_of_a_transfer_are_told_apart() {
    let event = |side: &str, at: u32, bytes: &str| {
        format!(
            "{{\"version\":1,\"event\":\"osts\",\"elapsed_seconds\":{at},\"side\":\"{side}\",\
             \"bytes\":{bytes}}}\n"
        )
    };
    let events: String = (1..5)
        .map(|at| {
            event("source", at, &format!("[{at},1,0]")) + &event("sink", at, &format!("[{at}]"))
        })
        .collect();
    let findings = find(Values::Rates, None, &events).unwrap();
    let names: Vec<&str> = findings.iter().map(|it| it.name.as_str()).collect();
    // The sink has one target only, so it is reported and left out; likewise a series with no
    // values.
    assert_eq!(names, ["samples, source"]);
    assert_eq!(findings[0].series.targets().count(), 2);
}

#[test]
fn what_cannot_be_read_is_named_by_its_place() {
    let long = "time,target,value\n";
    let told = [
        String::new(),
        "1,2,3\n".to_owned(),
        "time\n".to_owned(),
        "time,target\n".to_owned(),
        "time,a,b\n0,1,2\n2,x,2\n".to_owned(),
        "time,a,b\n0,1,2\n2,-1,2\n".to_owned(),
        "time,a,b\n0,1,2\n2,1\n".to_owned(),
        "time,a,b\nnoon,1,2\n".to_owned(),
        "time,a,b\n2,1,2\n0,1,2\n".to_owned(),
        "time,a\n0,1\n".to_owned(),
        format!("{long}0,a,1\n0,a,2\n"),
        format!("{long}0,a,1\n1,b,2\n"),
        "{\"t\":0,\"a\":1,\"b\":2}\n{\"t\":1,\"a\":\n".to_owned(),
        "{\"a\":1}\n".to_owned(),
        "{\"t\":1,\"a\":[]}\n".to_owned(),
        "{\"event\":\"osts\",\"side\":\"sink\"}\n".to_owned(),
        "{\"event\":\"start\"}\n".to_owned(),
    ];
    let told: String = told.iter().map(|content| refusal(content) + "\n").collect();
    expect_file!["golden/refusals.txt"].assert_eq(&told);
}

#[test]
fn values_that_are_not_known_are_left_out() {
    let content = "# of a site\ntime,a,b,c\n0,1,,3\n1,-,nan,3\n2,1,2,3\n";
    let finding = find(Values::Rates, None, content).unwrap().remove(0);
    assert_eq!(finding.analysis.mean.count(), 2);
    assert_eq!(table::notes(&finding), ["skipped: 1 moment with a value of only one target"]);
}

#[test]
fn the_page_needs_nothing_else() {
    let page = page::of(&find(Values::Rates, None, &wide()).unwrap());
    assert_eq!(page.matches("<svg").count(), 6);
    for word in ["http", "src=", "<script", "NaN"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn programs_are_told_in_base_units() {
    let finding = find(Values::Rates, None, &wide()).unwrap().remove(0);
    let object = json::object(&finding);
    assert_eq!(object["bytes_per_second"]["deviation"]["p80"], 6.0);
    assert_eq!(object["deviation_share_of_mean"]["max"], 0.4);
    let [of_mean, rate, percentile, _] = object["imbalances"].as_array().unwrap().as_slice() else {
        panic!("four were asked for: {object}")
    };
    assert_eq!((&of_mean["share_of_mean"], &of_mean["percentile"]), (&0.35.into(), &().into()));
    assert_eq!(
        of_mean["longest_periods"],
        serde_json::json!([{"begin_seconds": 4.0, "lifetime_seconds": 2.0}])
    );
    assert_eq!(rate["threshold_bytes_per_second"], 7.0);
    assert_eq!((&percentile["percentile"], &percentile["periods"]), (&80.0.into(), &2.into()));
    assert_eq!(percentile["distance_seconds"]["max"], 6.0);
    assert_eq!(object["targets"][2]["mean_bytes_per_second"], 16.4);
}
