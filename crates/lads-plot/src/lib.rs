//! Plots as SVG, by writers small enough to be read.
//!
//! [`curves`] draws curves and clouds of points over two axes of numbers; [`groups`] draws bars, or
//! points joined by lines, for each of a few settings, with the spread of the samples. Both name
//! colours by classes (`s0`, `s1`, ...), so that one picture serves light and dark pages.

pub mod curves;
pub mod groups;
mod svg;

pub use svg::escaped;
