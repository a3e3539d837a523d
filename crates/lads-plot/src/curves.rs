//! Curves and clouds of points over two axes of numbers.

mod scale;

use crate::svg::{escaped, line, text, vertical_label};
pub use scale::Quantity;
use scale::Scale;
pub(crate) use scale::nice_step;
use std::fmt::Write as _;

/// One picture.
#[derive(Debug)]
pub struct Plot<'a> {
    /// What it shows.
    pub title: &'a str,
    /// To the right.
    pub x: Axis<'a>,
    /// Upwards.
    pub y: Axis<'a>,
    /// The first is drawn first.
    pub layers: Vec<Layer>,
    /// Values of `x` to be marked, and what to write there.
    pub marks: Vec<(f64, String)>,
}

/// What one direction means.
#[derive(Debug)]
pub struct Axis<'a> {
    /// What its values are.
    pub label: &'a str,
    /// Of which kind they are.
    pub quantity: Quantity,
    /// Whether equal factors are equally far apart.
    pub is_logarithmic: bool,
}

/// Values that belong together.
#[derive(Debug)]
pub struct Layer {
    /// As the legend says.
    pub name: String,
    /// Values of both axes.
    pub points: Vec<(f64, f64)>,
    /// Whether they are joined.
    pub is_line: bool,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
/// Half as wide as `100 MB/s` at the last tick.
const RIGHT: f64 = 30.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
const LEGEND_LINE: f64 = 18.0;
/// More than this would be told apart by nobody.
const COLOURS: usize = 4;
/// About as wide as a letter of a tick, with what must be free between two ticks: a little more
/// than usual fonts of that size have.
const LETTER_WIDTH: f64 = 6.4;
const TICK_GAP: f64 = 8.0;
/// As high as a line of small letters.
const TICK_LINE: f64 = 14.0;
/// How large a picture is, with a legend of two lines.
pub const CELL: (f64, f64) = (WIDTH, HEIGHT + 2.0 * LEGEND_LINE);

/// How plots look. Some programs that draw SVG know no variables, so there are none.
pub const STYLE: &str = "\
svg text { fill: #1c2330; font: 11px system-ui, sans-serif; }
svg .title { font-size: 14px; font-weight: 600; }
svg .label { font-size: 12px; }
svg polyline, svg path { fill: none; }
svg polyline, svg line { stroke-width: 1.8; }
svg .grid { stroke: #dfe3ea; stroke-width: 1; }
svg .mark { stroke: #1c2330; stroke-width: 1; stroke-dasharray: 4 4; }
svg .s0 { stroke: #2f6fde; } svg .s1 { stroke: #2a9d61; } svg .s2 { stroke: #d9662b; }
svg .s3 { stroke: #8e44ad; }
svg .dots { stroke-width: 4; stroke-linecap: round; stroke-opacity: .45; }
svg .paper { fill: #fff; }
@media (prefers-color-scheme: dark) {
  svg text { fill: #e6e9ef; }
  svg .grid { stroke: #333b48; } svg .mark { stroke: #e6e9ef; } svg .paper { fill: #14181f; }
}
";

impl Plot<'_> {
    /// The picture as an SVG element.
    #[must_use]
    pub fn svg(&self) -> String {
        let legend = self.layers.len().div_ceil(2) as f64 * LEGEND_LINE;
        self.element(&format!("viewBox=\"0 0 {WIDTH} {:.0}\"", HEIGHT + legend))
    }

    /// The same as a part of another picture, of which it fills a [`CELL`].
    #[must_use]
    pub fn svg_at(&self, x: f64, y: f64) -> String {
        let (width, height) = CELL;
        self.element(&format!(
            "x=\"{x:.0}\" y=\"{y:.0}\" width=\"{width:.0}\" height=\"{height:.0}\""
        ))
    }

    fn element(&self, attributes: &str) -> String {
        let points = self.layers.iter().flat_map(|it| &it.points);
        let marks = self.marks.iter().map(|mark| mark.0);
        let values = points.clone().map(|it| it.0).chain(marks);
        let x = Scale::of(values, self.x.quantity, self.x.is_logarithmic);
        let y = Scale::of(points.map(|it| it.1), self.y.quantity, self.y.is_logarithmic);
        let mut out = format!(
            "<svg {attributes} role=\"img\" aria-label=\"{0}\">\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"16\">{0}</text>\n",
            escaped(self.title)
        );
        draw_grid(&x, &y, &mut out);
        self.draw_marks(&x, &mut out);
        self.draw_labels(&x, &y, &mut out);
        for (index, layer) in self.layers.iter().enumerate() {
            let at = |&(a, b): &(f64, f64)| (x_of(&x, a), y_of(&y, b));
            draw_layer(layer, index, layer.points.iter().map(at), &mut out);
            draw_key(layer, index, &mut out);
        }
        if self.layers.iter().all(|it| it.points.is_empty()) {
            let (x, y) = (f64::midpoint(LEFT, WIDTH - RIGHT), f64::midpoint(TOP, HEIGHT - BOTTOM));
            out += &text("label", "middle", x, y, "none");
        }
        out.push_str("</svg>\n");
        out
    }

    /// Each on a line of its own: they may be at nearly the same place.
    fn draw_marks(&self, x: &Scale, out: &mut String) {
        let bottom = HEIGHT - BOTTOM;
        for (index, (value, said)) in self.marks.iter().enumerate() {
            let at = x_of(x, *value);
            let is_right = at > WIDTH * 0.8;
            let (side, anchor) = if is_right { (-4.0, "end") } else { (4.0, "start") };
            let height = bottom - 6.0 - index as f64 * TICK_LINE;
            *out += &line("mark", (at, TOP), (at, bottom));
            *out += &text("tick", anchor, at + side, height, said);
        }
    }

    fn draw_labels(&self, x: &Scale, y: &Scale, out: &mut String) {
        let label = |axis: &Axis<'_>, scale: &Scale| match scale.unit {
            Some(unit) => format!("{} ({unit})", axis.label),
            None => axis.label.to_owned(),
        };
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        *out += &text("label", "middle", middle, HEIGHT - 10.0, &label(&self.x, x));
        *out += &vertical_label(f64::midpoint(TOP, HEIGHT - BOTTOM), &label(&self.y, y));
    }
}

/// Lines at all ticks, and what is written there if there is room for it.
fn draw_grid(x: &Scale, y: &Scale, out: &mut String) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (value, said) in &y.ticks {
        let at = y_of(y, *value);
        *out += &line("grid", (LEFT, at), (right, at));
        *out += &text("tick", "end", LEFT - 6.0, at + 4.0, said);
    }
    let mut free_from = 0.0;
    for (value, said) in &x.ticks {
        let at = x_of(x, *value);
        *out += &line("grid", (at, TOP), (at, bottom));
        let half = said.chars().count() as f64 * LETTER_WIDTH / 2.0;
        if at - half >= free_from {
            *out += &text("tick", "middle", at, bottom + 16.0, said);
            free_from = at + half + TICK_GAP;
        }
    }
}

fn draw_layer(
    layer: &Layer,
    index: usize,
    points: impl Iterator<Item = (f64, f64)>,
    out: &mut String,
) {
    let colour = index % COLOURS;
    if layer.is_line {
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(out, "<polyline class=\"s{colour}\" points=\"{}\"/>", points.join(" "));
        return;
    }
    // One path of many dots is much shorter than as many circles.
    let dots: String = points.map(|(x, y)| format!("M{x:.1} {y:.1}h0")).collect();
    let _ = writeln!(out, "<path class=\"s{colour} dots\" d=\"{dots}\"/>");
}

fn draw_key(layer: &Layer, index: usize, out: &mut String) {
    let x = LEFT + (index % 2) as f64 * (WIDTH - LEFT) / 2.0;
    let y = HEIGHT + (index / 2) as f64 * LEGEND_LINE + 6.0;
    let colour = format!("s{}", index % COLOURS);
    *out += &line(&colour, (x, y), (x + 22.0, y));
    *out += &text("tick", "start", x + 28.0, y + 4.0, &layer.name);
}

fn x_of(scale: &Scale, value: f64) -> f64 {
    LEFT + scale.part(value) * (WIDTH - RIGHT - LEFT)
}

fn y_of(scale: &Scale, value: f64) -> f64 {
    HEIGHT - BOTTOM - scale.part(value) * (HEIGHT - BOTTOM - TOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(is_logarithmic: bool, points: Vec<(f64, f64)>) -> String {
        let axis = || Axis { label: "a < b", quantity: Quantity::Rate, is_logarithmic };
        let layer = Layer { name: "one".to_owned(), points, is_line: true };
        let marks = vec![(2.0, "here".to_owned())];
        Plot { title: "t", x: axis(), y: axis(), layers: vec![layer], marks }.svg()
    }

    #[test]
    fn nothing_lies_outside_the_picture() {
        let clouds = [vec![], vec![(0.0, 0.0)], vec![(0.0, 1e12), (1e-9, 3.0), (7.0, 7.0)]];
        for (is_logarithmic, points) in [true, false]
            .into_iter()
            .flat_map(|is_logarithmic| clouds.clone().map(move |points| (is_logarithmic, points)))
        {
            let svg = plot(is_logarithmic, points);
            let words = svg.split(" points=\"").nth(1).and_then(|it| it.split('"').next()).unwrap();
            let numbers = words.split([' ', ',']).filter_map(|word| word.parse::<f64>().ok());
            assert!(numbers.into_iter().all(|number| (0.0..=WIDTH).contains(&number)), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    /// What is written at the ticks of the horizontal axis, and where.
    fn ticks(svg: &str) -> Vec<(f64, String)> {
        let ticks = svg.lines().filter(|line| line.contains("class=\"tick\""));
        let below = ticks.filter(|line| line.contains(&format!("y=\"{:.1}\"", HEIGHT - 30.0)));
        let tick = |line: &str| {
            let x = line.split("x=\"").nth(1)?.split('"').next()?.parse().ok()?;
            Some((x, line.split(['<', '>']).nth(2)?.to_owned()))
        };
        below.filter_map(tick).collect()
    }

    #[test]
    fn ticks_do_not_touch_each_other() {
        for exponent in -20..130 {
            let most = 10_f64.powf(f64::from(exponent) / 10.0);
            for is_logarithmic in [true, false] {
                let svg = plot(is_logarithmic, vec![(most / 2e5, 0.0), (most, 1.0)]);
                let ticks = ticks(&svg);
                assert!(ticks.len() > 2, "{ticks:?}");
                for pair in ticks.windows(2) {
                    let letters = pair[0].1.chars().count() + pair[1].1.chars().count();
                    let room = pair[1].0 - pair[0].0 - letters as f64 * LETTER_WIDTH / 2.0;
                    assert!(room >= TICK_GAP - 0.2, "{ticks:?}");
                }
            }
        }
    }

    #[test]
    fn a_plot_of_nothing_says_so() {
        assert!(plot(false, vec![]).contains(">none<"));
    }

    #[test]
    fn words_cannot_break_the_page() {
        assert!(plot(false, vec![(1.0, 1.0)]).contains("a &lt; b"));
    }
}
