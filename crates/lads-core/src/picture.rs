//! Whether a picture of states in a module's doc shows the ways that its table has.

/// One way: from a state, by a step, to a state.
pub(crate) type Way = (&'static str, &'static str, &'static str);

/// Compares the lines with arrows in a module's doc with these ways, drawn.
///
/// # Panics
/// If they are not the same; says how they should be.
pub(crate) fn check(source: &str, ways: &[Way]) {
    let doc = source.lines().map_while(|line| line.strip_prefix("//!"));
    let drawn: Vec<&str> = doc.map(str::trim).filter(|line| line.contains('►')).collect();
    let expected = draw(ways);
    let picture: String = expected.iter().map(|line| format!("//! {line}\n")).collect();
    assert!(drawn == expected, "the picture should be\n{picture}");
}

fn draw(ways: &[Way]) -> Vec<String> {
    let longest = |names: fn(&Way) -> &str| {
        ways.iter().map(|way| names(way).chars().count()).max().unwrap_or(0)
    };
    let (from_width, step_width) = (longest(|way| way.0) + 4, longest(|way| way.1) + 4);
    let line = |(from, step, to): &Way| {
        let from = format!("{from} ");
        let step = format!("{step} ");
        format!("{from:─<from_width$} {step:─<step_width$}► {to}")
    };
    ways.iter().map(line).collect()
}

#[test]
#[should_panic(expected = "the picture should be\n//! on ─── switched ───► off\n")]
fn a_picture_that_shows_another_way_is_noticed() {
    check("//! on ─── switched ───► on\n", &[("on", "switched", "off")]);
}
