//! The figures of the papers, as far as their text and tables give numbers.

use lads_plot::groups::{Kind, Plot, Series, Spread};

/// The plot of a paper, and its source.
#[derive(Clone, Debug)]
pub(super) struct Paper {
    /// The plot.
    pub(super) plot: Plot,
    /// Where the numbers are from.
    pub(super) source: &'static str,
}

fn exactly(value: f64) -> Option<Spread> {
    Some(Spread { median: value, min: value, max: value })
}

fn plot(title: &str, ticks: &[&str], y_label: &str, kind: Kind, series: Vec<Series>) -> Plot {
    let x_label = if kind == Kind::Lines { "I/O threads (LADS), streams (bbcp)" } else { "" };
    Plot {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        ticks: ticks.iter().map(|&tick| tick.to_owned()).collect(),
        y_label: y_label.to_owned(),
        series,
        kind,
    }
}

fn series(name: &str, values: &[Option<f64>]) -> Series {
    let values = values.iter().map(|value| value.and_then(exactly)).collect();
    Series { name: name.to_owned(), values, is_level: false }
}

/// Figure 7: the text gives the highest value of LADS, and says that it rises almost linearly.
pub(super) fn figure_7(most: f64, range: Option<(f64, f64)>) -> Paper {
    let rising = [1.0, 2.0, 4.0, 8.0].map(|threads| exactly(most * threads / 8.0));
    let mut lads =
        Series { name: "LADS (straight line)".to_owned(), values: rising.into(), is_level: false };
    if let Some((min, max)) = range {
        lads.values[3] = Some(Spread { median: most, min, max });
    }
    Paper {
        plot: plot("The paper: big files", &["1", "2", "4", "8"], "MB/s", Kind::Lines, vec![lads]),
        source: "Read off the text of section 4.2: 400 to 450 MB/s at most, \"almost a perfect \
                 linear scaling\" from 1 to 8 threads; \"little improvement in bbcp\", whose \
                 figures the text does not give. The line between is drawn, not measured.",
    }
}

/// Figure 8: memory is almost constant.
pub(super) fn figure_8_memory() -> Paper {
    let memory = |name: &str, value: f64| Series {
        name: name.to_owned(),
        values: vec![exactly(value); 4],
        is_level: true,
    };
    let both = vec![memory("most", 300.0), memory("least", 280.0)];
    let ticks = ["1", "2", "4", "8"];
    Paper {
        plot: plot("The paper: memory", &ticks, "MB", Kind::Lines, both),
        source: "Read off the text of section 4.2: \"almost constant at 280-300 MB\", of which 256 \
                 MB are the buffers.",
    }
}

/// The complete table 2.
pub(super) fn table_2() -> Paper {
    let lads = [58.71, 116.30, 228.38, 407.02].map(Some);
    let bbcp = [59.91, 58.46, 57.85, 59.49].map(Some);
    Paper {
        plot: plot(
            "The paper: table 2",
            &["1", "2", "4", "8"],
            "MB/s",
            Kind::Lines,
            vec![series("LADS", &lads), series("bbcp", &bbcp)],
        ),
        source: "Table 2 of LADS (FAST '15), all numbers.",
    }
}

/// Figure 28: the text gives two points.
pub(super) fn figure_28() -> Paper {
    let xdd = [None, None, Some(829.0), None, Some(596.0)];
    let mut plot = plot(
        "The paper: figure 28",
        &["1", "2", "4", "8", "16"],
        "MB/s",
        Kind::Lines,
        vec![series("XDD", &xdd)],
    );
    plot.x_label = "I/O threads".to_owned();
    Paper {
        plot,
        source: "Read off the text of section IV.G: 829 MB/s with 4 threads, 596 with 16; \"almost \
                 twice as fast as the best performing BBcp configuration\".",
    }
}

/// Figure 6 of the scheduling paper: one number, and two fractions of it.
pub(super) fn ndm_6() -> Paper {
    let normal = [Some(424.6), Some(424.6)];
    let congested = [Some(424.6 * 0.84), Some(424.6 * 0.70)];
    Paper {
        plot: plot(
            "The paper: figure 6",
            &["layout-aware, 4 threads", "naive, 4 threads"],
            "MB/s",
            Kind::Bars,
            vec![series("normal", &normal), series("source congested", &congested)],
        ),
        source: "Read off the text of section V.C: 424.6 MB/s with four threads, both alike; under \
                 congestion 16 % less by layout, 30 % less file by file.",
    }
}

/// Figure 8 of the scheduling paper: one number, and two fractions of it.
pub(super) fn ndm_8() -> Paper {
    let normal = [Some(1270.0), Some(1270.0)];
    let congested = [Some(1270.0 * 0.9), Some(1270.0 * 0.63)];
    Paper {
        plot: plot(
            "The paper: figure 8",
            &["layout-aware, 8 threads", "the others on average"],
            "MB/s",
            Kind::Bars,
            vec![series("normal", &normal), series("sink congested", &congested)],
        ),
        source: "Read off the text of section V.C: 1.27 GB/s at most; under congestion just under \
                 10 % less by layout, 37 % less on average for the others.",
    }
}
