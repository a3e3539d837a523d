//! Bars, or points joined by lines, for each of a few settings. A bar or line ends at the median; a
//! whisker shows the least and the most.

use crate::curves::nice_step;
use crate::svg::{escaped, line as straight, text, vertical_label};
use serde::Serialize;
use std::fmt::Write as _;

/// One picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What is varied, with its unit.
    pub x_label: String,
    /// The values of what is varied, or the names of bars.
    pub ticks: Vec<String>,
    /// What is measured, with its unit.
    pub y_label: String,
    /// Lines, or bars of one colour.
    pub series: Vec<Series>,
    /// How they are drawn.
    pub kind: Kind,
}

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Points joined by lines.
    Lines,
    /// Bars side by side.
    Bars,
}

/// One line of a plot, or one bar at each tick.
#[derive(Clone, Debug)]
pub struct Series {
    /// As the legend says.
    pub name: String,
    /// For each tick; `None` where nothing was measured.
    pub values: Vec<Option<Spread>>,
    /// Whether it is one value that holds at all ticks: drawn dashed, without points.
    pub is_level: bool,
}

/// Median, least and most of several samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The sample in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of these samples.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn of(samples: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.collect();
        sorted.sort_by(f64::total_cmp);
        let last = *sorted.last().expect("at least one sample");
        Self { median: sorted[sorted.len() / 2], min: sorted[0], max: last }
    }
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 34.0;
const AXIS: f64 = 46.0;
const LEGEND_LINE: f64 = 18.0;
/// More than this would be told apart by nobody.
const COLOURS: usize = 8;

impl Plot {
    /// The picture as an SVG element.
    #[must_use]
    pub fn svg(&self) -> String {
        let frame = Frame::of(self);
        let height = frame.bottom + AXIS + self.bar_label_room() + frame.legend_height;
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{0}\">\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"16\">{0}</text>\n",
            escaped(&self.title)
        );
        self.axes(&frame, &mut out);
        for (index, series) in self.series.iter().enumerate() {
            match self.kind {
                Kind::Lines => line(series, index, &frame, &mut out),
                Kind::Bars => self.bars(series, index, &frame, &mut out),
            }
        }
        self.legend(&frame, &mut out);
        out.push_str("</svg>\n");
        out
    }

    fn most(&self) -> f64 {
        let values = self.series.iter().flat_map(|series| series.values.iter().flatten());
        values.map(|spread| spread.max).fold(0.0, f64::max)
    }

    /// Names of bars are long, and written slanting.
    fn bar_label_room(&self) -> f64 {
        let longest = self.ticks.iter().map(|tick| tick.chars().count()).max().unwrap_or(0);
        if self.kind == Kind::Bars { longest as f64 * 3.2 } else { 0.0 }
    }

    fn axes(&self, frame: &Frame, out: &mut String) {
        let right = WIDTH - RIGHT;
        let values = (0..).map(|index| f64::from(index) * frame.step);
        for value in values.take_while(|value| *value <= frame.top_value * 1.001) {
            let y = frame.y(value);
            *out += &straight("grid", (LEFT, y), (right, y));
            *out += &text("tick", "end", LEFT - 6.0, y + 4.0, &number(value, frame.step));
        }
        for (index, tick) in self.ticks.iter().enumerate() {
            let (x, y) = (frame.x(index), frame.bottom + 16.0);
            let turned = if self.kind == Kind::Bars {
                format!("text-anchor=\"end\" transform=\"rotate(-28 {x:.1} {y:.1})\"")
            } else {
                "text-anchor=\"middle\"".to_owned()
            };
            let tick = escaped(tick);
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\" {turned}>{tick}</text>"
            );
        }
        let below = frame.bottom + AXIS - 10.0 + self.bar_label_room();
        *out += &text("label", "middle", f64::midpoint(LEFT, right), below, &self.x_label);
        *out += &vertical_label(f64::midpoint(frame.bottom, TOP), &self.y_label);
    }

    fn bars(&self, series: &Series, index: usize, frame: &Frame, out: &mut String) {
        let count = self.series.len() as f64;
        let slot = frame.slot() * 0.8;
        let width = (slot / count).min(40.0);
        for (tick, value) in series.values.iter().enumerate() {
            let Some(spread) = value else { continue };
            let middle = frame.x(tick) + (index as f64 - (count - 1.0) / 2.0) * width;
            let (y, height) = (frame.y(spread.median), frame.bottom - frame.y(spread.median));
            let _ = writeln!(
                out,
                "<rect class=\"f{}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"{height:.1}\"><title>{}: {}</title></rect>",
                index % COLOURS,
                middle - width / 2.0 + 1.0,
                width - 2.0,
                escaped(&series.name),
                said(*spread)
            );
            whisker(*spread, middle, frame, "whisker", out);
        }
    }

    fn legend(&self, frame: &Frame, out: &mut String) {
        let top = frame.bottom + AXIS + self.bar_label_room();
        for (index, series) in self.series.iter().enumerate() {
            let (column, row) = (index % 2, index / 2);
            let x = LEFT + column as f64 * (WIDTH - LEFT) / 2.0;
            let y = top + row as f64 * LEGEND_LINE + 6.0;
            let dash = if series.is_level { " dashed" } else { "" };
            let class = format!("s{} key{dash}", index % COLOURS);
            *out += &straight(&class, (x, y), (x + 22.0, y));
            *out += &text("tick", "start", x + 28.0, y + 4.0, &series.name);
        }
    }
}

/// Where on the picture a value lies.
struct Frame {
    bottom: f64,
    legend_height: f64,
    ticks: usize,
    /// Between two lines of the grid.
    step: f64,
    /// At the top of the grid.
    top_value: f64,
}

impl Frame {
    fn of(plot: &Plot) -> Self {
        let step = nice_step(plot.most() / 5.0);
        Self {
            bottom: HEIGHT - AXIS,
            legend_height: plot.series.len().div_ceil(2) as f64 * LEGEND_LINE + 8.0,
            ticks: plot.ticks.len().max(1),
            step,
            top_value: step * (plot.most() / step).ceil().max(1.0),
        }
    }

    fn slot(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.ticks as f64
    }

    fn x(&self, tick: usize) -> f64 {
        LEFT + (tick as f64 + 0.5) * self.slot()
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - value / self.top_value * (self.bottom - TOP)
    }
}

fn line(series: &Series, index: usize, frame: &Frame, out: &mut String) {
    let class = format!("s{}", index % COLOURS);
    let measured =
        || series.values.iter().enumerate().filter_map(|(tick, value)| Some((tick, (*value)?)));
    if series.is_level {
        if let Some((_, spread)) = measured().next() {
            let y = frame.y(spread.median);
            let _ = writeln!(
                out,
                "<line class=\"{class} dashed\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" \
                 y2=\"{y:.1}\"><title>{}: {}</title></line>",
                WIDTH - RIGHT,
                escaped(&series.name),
                said(spread)
            );
        }
        return;
    }
    let points: Vec<String> = measured()
        .map(|(tick, spread)| format!("{:.1},{:.1}", frame.x(tick), frame.y(spread.median)))
        .collect();
    let _ = writeln!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    for (tick, spread) in measured() {
        let (x, y) = (frame.x(tick), frame.y(spread.median));
        whisker(spread, x, frame, &class, out);
        let _ = writeln!(
            out,
            "<circle class=\"f{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}: {}</title>\
             </circle>",
            index % COLOURS,
            escaped(&series.name),
            said(spread)
        );
    }
}

fn whisker(spread: Spread, x: f64, frame: &Frame, class: &str, out: &mut String) {
    let (least, most) = (frame.y(spread.min), frame.y(spread.max));
    if least - most >= 1.0 {
        *out += &straight(&format!("{class} thin"), (x, least), (x, most));
    }
}

/// A number with as many digits as the step between its neighbours needs.
fn number(value: f64, step: f64) -> String {
    let digits = [1.0, 0.1, 0.01].iter().take_while(|least| step < **least).count();
    format!("{value:.digits$}")
}

fn said(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.3} [{min:.3} to {max:.3}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Option<Spread> {
        Some(Spread { median, min: median - 1.0, max: median + 1.0 })
    }

    fn plot(kind: Kind) -> Plot {
        let series = |name: &str, is_level| Series {
            name: name.to_owned(),
            values: vec![spread(10.0), None, spread(47.0)],
            is_level,
        };
        Plot {
            title: "a < b".to_owned(),
            x_label: "threads".to_owned(),
            ticks: ["1", "2", "4"].map(str::to_owned).to_vec(),
            y_label: "MB/s".to_owned(),
            series: vec![series("one", false), series("two", true)],
            kind,
        }
    }

    #[test]
    fn a_step_is_one_two_or_five() {
        assert_eq!([0.7, 3.0, 11.0, 50.0, 0.03].map(nice_step), [1.0, 5.0, 20.0, 50.0, 0.05]);
    }

    #[test]
    fn nothing_lies_outside_the_picture() {
        for kind in [Kind::Lines, Kind::Bars] {
            let svg = plot(kind).svg();
            let numbers = svg.split(['"', ' ', ',']).filter_map(|word| word.parse::<f64>().ok());
            assert!(numbers.into_iter().all(|number| (-30.0..=600.0).contains(&number)), "{svg}");
        }
    }

    #[test]
    fn words_cannot_break_the_page() {
        assert!(plot(Kind::Lines).svg().contains("a &lt; b"));
    }
}
