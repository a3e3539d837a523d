//! How curves and clouds of points are drawn as SVG.
//!
//! Colours are names of classes (`s0`, `f0`, ...), so that one picture serves light and dark pages.

use std::fmt::Write as _;

/// One picture.
pub(super) struct Plot<'a> {
    /// What it shows.
    pub(super) title: &'a str,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    pub(super) layers: Vec<Layer>,
    /// Values of `x` to be marked, and what to write there.
    pub(super) marks: Vec<(f64, String)>,
}

/// What one direction means.
pub(super) struct Axis<'a> {
    pub(super) label: &'a str,
    /// How a value is written.
    pub(super) said: fn(f64) -> String,
    pub(super) is_logarithmic: bool,
}

/// Values that belong together.
pub(super) struct Layer {
    /// As the legend says.
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Whether they are joined.
    pub(super) is_line: bool,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
const LEGEND_LINE: f64 = 18.0;
/// More than this would be told apart by nobody.
const COLOURS: usize = 4;
/// On a logarithmic axis, what is less than this part of the greatest lies at the edge.
const DECADES_MAX: f64 = 6.0;
/// About this many lines of a grid.
const GRID: f64 = 5.0;

impl Plot<'_> {
    /// The picture as an SVG element.
    pub(super) fn svg(&self) -> String {
        let scale = |of: fn(&(f64, f64)) -> f64, axis: &Axis<'_>| {
            Scale::of(self.layers.iter().flat_map(|it| &it.points).map(of), axis.is_logarithmic)
        };
        let (x, y) = (scale(|it| it.0, &self.x), scale(|it| it.1, &self.y));
        let legend = self.layers.len().div_ceil(2) as f64 * LEGEND_LINE;
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{1}\">\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"16\">{1}</text>\n",
            HEIGHT + legend,
            escaped(self.title)
        );
        self.draw_axes(&x, &y, &mut out);
        for (index, layer) in self.layers.iter().enumerate() {
            let at = |&(a, b): &(f64, f64)| (x_of(&x, a), y_of(&y, b));
            draw_layer(layer, index, layer.points.iter().map(at), &mut out);
            draw_key(layer, index, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }

    fn draw_axes(&self, x: &Scale, y: &Scale, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in y.grid() {
            let (at, said) = (y_of(y, value), escaped(&(self.y.said)(value)));
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{said}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        for value in x.grid() {
            let (at, said) = (x_of(x, value), escaped(&(self.x.said)(value)));
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
                 <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{said}</text>",
                bottom + 16.0
            );
        }
        for (value, said) in &self.marks {
            let (at, said) = (x_of(x, *value), escaped(said));
            let is_right = at > WIDTH * 0.8;
            let (side, anchor) = if is_right { (-4.0, "end") } else { (4.0, "start") };
            let _ = writeln!(
                out,
                "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"{anchor}\">{said}</text>",
                at + side,
                bottom - 6.0
            );
        }
        let _ = writeln!(
            out,
            "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text class=\"label\" text-anchor=\"middle\" transform=\"translate(14 {:.1}) \
             rotate(-90)\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 10.0,
            escaped(self.x.label),
            f64::midpoint(TOP, bottom),
            escaped(self.y.label)
        );
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
    let _ = writeln!(
        out,
        "<line class=\"s{}\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        index % COLOURS,
        x + 22.0,
        x + 28.0,
        y + 4.0,
        escaped(&layer.name)
    );
}

fn x_of(scale: &Scale, value: f64) -> f64 {
    LEFT + scale.part(value) * (WIDTH - RIGHT - LEFT)
}

fn y_of(scale: &Scale, value: f64) -> f64 {
    HEIGHT - BOTTOM - scale.part(value) * (HEIGHT - BOTTOM - TOP)
}

/// From which value to which an axis goes.
struct Scale {
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl Scale {
    /// For all values; a straight one begins at zero, or at the least if that is far from it.
    fn of(values: impl Iterator<Item = f64> + Clone, is_logarithmic: bool) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        if is_logarithmic {
            let positive = values.filter(|value| *value > 0.0);
            let least = positive.fold(most, f64::min).max(most / 10_f64.powf(DECADES_MAX));
            let (from, to) = (least.log10().floor(), most.log10().ceil());
            return Self {
                from: 10_f64.powf(from),
                to: 10_f64.powf(to.max(from + 1.0)),
                is_logarithmic,
            };
        }
        let least = values.fold(most, f64::min);
        Self { from: if least > most / 2.0 { least } else { 0.0 }, to: most, is_logarithmic }
    }

    /// Where a value lies, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let part = match self.is_logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn grid(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let powers = std::iter::successors(Some(self.from), |value| Some(value * 10.0));
            return powers.take_while(|value| *value <= self.to * 1.001).collect();
        }
        let step = nice_step((self.to - self.from) / GRID);
        let first = (self.from / step).ceil();
        let values = (0..).map(|index| (first + f64::from(index)) * step);
        values.take_while(|value| *value <= self.to * 1.000_001).collect()
    }
}

/// 1, 2 or 5 times a power of ten, not below the wish.
fn nice_step(wish: f64) -> f64 {
    if wish <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(wish.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= wish * 0.999);
    power * times.unwrap_or(10.0)
}

/// Text that may stand in HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(is_logarithmic: bool, points: Vec<(f64, f64)>) -> String {
        let axis = || Axis { label: "a < b", said: |value| value.to_string(), is_logarithmic };
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

    #[test]
    fn words_cannot_break_the_page() {
        assert!(plot(false, vec![(1.0, 1.0)]).contains("a &lt; b"));
    }
}
