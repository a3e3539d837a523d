//! Elements of a picture.

/// A straight line between two points.
pub(crate) fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!(
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
    )
}

/// Text that begins at a point, ends there, or has it in its middle.
pub(crate) fn text(class: &str, anchor: &str, x: f64, y: f64, said: &str) -> String {
    let said = escaped(said);
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{said}</text>\n"
    )
}

/// The label of a vertical axis, around a height.
pub(crate) fn vertical_label(y: f64, said: &str) -> String {
    let said = escaped(said);
    format!(
        "<text class=\"label\" text-anchor=\"middle\" transform=\"translate(14 {y:.1}) \
         rotate(-90)\">{said}</text>\n"
    )
}

/// Text that may stand in HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
