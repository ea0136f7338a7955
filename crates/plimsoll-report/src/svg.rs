//! Drawings as SVG: the one place that writes elements, rounds numbers and escapes text.
//!
//! Numbers are rounded to a tenth of a pixel. An element with a number that is not finite has no place in a drawing and is left out: a
//! viewer would refuse it, or put it at the edge as if it belonged there.

use std::fmt::{self, Write as _};
use std::io;

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;

use crate::markup::escaped;

/// The beginning of every file.
pub(crate) const OPENING: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"";

/// Pixels from the left and from the top.
pub type Point = [f64; 2];

/// The point of a line of text that is put at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// An element with its attributes and contents.
#[derive(Clone, Debug)]
pub struct Element {
    name: &'static str,
    /// The attributes as written, each preceded by a space.
    attributes: String,
    /// The contents as written.
    contents: String,
    /// `false` once an attribute had a number that is not finite.
    is_finite: bool,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum Value<'v> {
    /// A length or a place.
    Number(f64),
    /// A word, a colour or a style.
    Text(&'v str),
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Value::Text(text)
    }
}

impl Element {
    fn new(name: &'static str) -> Element {
        Element { name, attributes: String::new(), contents: String::new(), is_finite: true }
    }

    /// The element with another attribute.
    pub fn set<'v>(mut self, name: &'static str, value: impl Into<Value<'v>>) -> Element {
        // Writing to a string cannot fail.
        let _ = match value.into() {
            Value::Number(number) => {
                self.is_finite &= number.is_finite();
                write!(self.attributes, " {name}=\"{}\"", Rounded(number))
            }
            Value::Text(text) => write!(self.attributes, " {name}=\"{}\"", escaped(text)),
        };
        self
    }

    /// The element with a text that viewers show beside the pointer.
    pub fn tooltip(mut self, text: &str) -> Element {
        let _ = write!(self.contents, "<title>{}</title>", escaped(text));
        self
    }

    /// The element with another one in it.
    pub fn with(mut self, child: Element) -> Element {
        self.push(child);
        self
    }

    /// Appends an element to its contents.
    pub fn push(&mut self, child: Element) {
        let _ = write!(self.contents, "{child}");
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Element { name, attributes, contents, is_finite } = self;
        match (is_finite, contents.is_empty()) {
            (false, _) => Ok(()),
            (true, true) => write!(f, "<{name}{attributes}/>"),
            (true, false) => write!(f, "<{name}{attributes}>{contents}</{name}>"),
        }
    }
}

/// A rectangle, from its left top corner.
pub fn rect([x, y]: Point, [width, height]: [f64; 2]) -> Element {
    Element::new("rect").set("x", x).set("y", y).set("width", width).set("height", height)
}

/// A circle.
pub fn circle([x, y]: Point, radius: f64) -> Element {
    Element::new("circle").set("cx", x).set("cy", y).set("r", radius)
}

/// A straight line.
pub fn line(from: Point, to: Point) -> Element {
    Element::new("line").set("x1", from[0]).set("x2", to[0]).set("y1", from[1]).set("y2", to[1])
}

/// A curve of straight pieces.
pub fn path(path: Path) -> Element {
    let mut element = Element::new("path").set("d", path.data.as_str());
    element.is_finite = path.is_finite;
    element
}

/// A line of text on a baseline.
pub fn text([x, y]: Point, anchor: Anchor, text: &str) -> Element {
    labelled(Element::new("text").set("x", x).set("y", y), anchor, text)
}

/// A line of text on a baseline that is turned about its anchor, in degrees clockwise.
pub fn turned_text(at: Point, degrees: f64, anchor: Anchor, text: &str) -> Element {
    let (turn, mut element) = (Rounded(degrees), moved("text", at));
    element.attributes.pop();
    let _ = write!(element.attributes, " rotate({turn})\"");
    labelled(element, anchor, text)
}

/// Elements that are moved together, and have attributes in common.
pub fn group(by: Point) -> Element {
    match by {
        [0.0, 0.0] => Element::new("g"),
        by => moved("g", by),
    }
}

fn moved(name: &'static str, [x, y]: Point) -> Element {
    let mut element = Element::new(name);
    element.is_finite = x.is_finite() && y.is_finite();
    let _ = write!(element.attributes, " transform=\"translate({},{})\"", Rounded(x), Rounded(y));
    element
}

fn labelled(element: Element, anchor: Anchor, text: &str) -> Element {
    let mut element = match anchor {
        Anchor::Start => element,
        Anchor::Middle => element.set("text-anchor", "middle"),
        Anchor::End => element.set("text-anchor", "end"),
    };
    element.contents = escaped(text);
    element
}

/// The course of a curve.
#[derive(Clone, Debug)]
pub struct Path {
    data: String,
    is_finite: bool,
}

impl Path {
    /// Begins at a point.
    pub fn from([x, y]: Point) -> Path {
        Path { data: String::new(), is_finite: true }.then('M', &[x, y])
    }

    /// The straight pieces between points; nothing where there are none.
    pub fn through(points: impl IntoIterator<Item = Point>) -> Path {
        let begun = Path { data: String::new(), is_finite: true };
        points.into_iter().fold(begun, |path, point| {
            let command = if path.data.is_empty() { 'M' } else { 'L' };
            path.then(command, &point)
        })
    }

    /// Goes on at another point, without a line to it.
    pub fn jump(self, point: Point) -> Path {
        self.then('M', &point)
    }

    /// Goes straight to a point.
    pub fn to(self, point: Point) -> Path {
        self.then('L', &point)
    }

    /// Goes across to a place from the left.
    pub fn across_to(self, x: f64) -> Path {
        self.then('H', &[x])
    }

    /// Goes up or down to a place from the top.
    pub fn down_to(self, y: f64) -> Path {
        self.then('V', &[y])
    }

    /// Goes back to the beginning.
    pub fn closed(self) -> Path {
        self.then('Z', &[])
    }

    fn then(mut self, command: char, numbers: &[f64]) -> Path {
        self.data.push(command);
        for (place, number) in numbers.iter().enumerate() {
            self.is_finite &= number.is_finite();
            let space = if place > 0 { " " } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(self.data, "{space}{}", Rounded(*number));
        }
        self
    }
}

/// A drawing: a part of a page, or a file.
#[derive(Clone, Debug)]
pub struct Drawing {
    root: Element,
}

impl Drawing {
    /// A drawing of a size in pixels.
    pub fn new([width, height]: [f64; 2]) -> Drawing {
        let Drawing { root } = Drawing::scalable([width, height]);
        Drawing { root: root.set("width", width).set("height", height) }
    }

    /// A drawing that takes the room it is given, with sides in the ratio of these.
    pub fn scalable([width, height]: [f64; 2]) -> Drawing {
        let view = format!("0 0 {} {}", Rounded(width), Rounded(height));
        let mut root = Element::new("svg").set("viewBox", view.as_str());
        root.is_finite = width.is_finite() && height.is_finite();
        Drawing { root }
    }

    /// The drawing with an attribute, which holds for all of its elements.
    pub fn set<'v>(self, name: &'static str, value: impl Into<Value<'v>>) -> Drawing {
        Drawing { root: self.root.set(name, value) }
    }

    /// The drawing with rules of CSS, on a white ground.
    pub fn styled(mut self, rules: &'static str) -> Drawing {
        let _ = write!(self.root.contents, "\n<style>{rules}</style>");
        self.on_white()
    }

    /// The drawing on a white ground.
    pub fn on_white(mut self) -> Drawing {
        let ground = Element::new("rect").set("width", "100%").set("height", "100%").set("fill", "#fff");
        self.push(ground);
        self
    }

    /// Appends an element, which covers those before it.
    pub fn push(&mut self, element: Element) {
        let _ = write!(self.root.contents, "\n{element}");
    }

    /// The drawing as a part of a page.
    pub fn in_page(self) -> String {
        let mut root = self.root.set("role", "img");
        root.contents.push('\n');
        root.to_string()
    }

    /// Writes the drawing as a file.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails.
    pub fn write(&self, to: &mut dyn io::Write) -> io::Result<()> {
        self.stream(to, &mut |_| Ok(()))
    }

    /// Writes the drawing as a file, and behind its elements those that `more` writes one by one: a file of many pictures need not be held.
    ///
    /// # Errors
    /// Returns an error if writing to `to` fails, or `more` does.
    pub fn stream(
        &self,
        to: &mut dyn io::Write,
        more: &mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let Element { attributes, contents, .. } = &self.root;
        writeln!(to, "{OPENING}{attributes}>{contents}")?;
        more(to)?;
        writeln!(to, "</svg>")
    }
}

/// Writes a picture as an element, its pixels as `png` encodes them.
///
/// # Errors
/// Returns an error if writing to `to` fails, or `png` does.
pub fn write_picture(
    to: &mut dyn io::Write,
    corner: Point,
    size: [f64; 2],
    png: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    let [[x, y], [width, height]] = [corner, size].map(|pair| pair.map(Rounded));
    write!(
        to,
        "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" href=\"data:image/png;base64,"
    )?;
    let mut encoded = EncoderWriter::new(&mut *to, &STANDARD);
    png(&mut encoded)?;
    encoded.finish()?;
    drop(encoded);
    writeln!(to, "\"/>")
}

/// A number to a tenth, without zeros that say nothing.
#[derive(Clone, Copy)]
struct Rounded(f64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded = (self.0 * 10.0).round() / 10.0;
        // Neither `-0` nor a sign of a number that rounds to it.
        let rounded = if rounded == 0.0 { 0.0 } else { rounded };
        write!(f, "{rounded}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_tenth_at_most_and_no_sign_of_zero() {
        let shown = |number| Rounded(number).to_string();
        assert_eq!(
            [0.0, -0.0, -0.04, 12.0, 12.04, 12.06, -3.25, 1e6].map(shown),
            ["0", "0", "0", "12", "12", "12.1", "-3.3", "1000000"]
        );
    }

    #[test]
    fn text_cannot_end_an_element_or_an_attribute_and_has_no_control_characters() {
        let hostile = "</text><script>\"&\u{1b}\u{202e}\u{ffff}";
        let safe = "&lt;/text&gt;&lt;script&gt;&quot;&amp;\\u001b\\u202e\\uffff";
        assert_eq!(
            text([1.0, 2.0], Anchor::End, hostile).to_string(),
            format!("<text x=\"1\" y=\"2\" text-anchor=\"end\">{safe}</text>")
        );
        assert_eq!(
            circle([0.0; 2], 3.0).set("fill", hostile).tooltip(hostile).to_string(),
            format!("<circle cx=\"0\" cy=\"0\" r=\"3\" fill=\"{safe}\"><title>{safe}</title></circle>")
        );
    }

    #[test]
    fn an_element_without_a_place_is_left_out_and_others_stay() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut drawing = Drawing::new([10.0, 5.0]);
            drawing.push(circle([number, 1.0], 2.0));
            drawing.push(path(Path::from([0.0, number]).across_to(1.0)));
            drawing.push(turned_text([number, 0.0], -40.0, Anchor::End, "a"));
            drawing
                .push(group([1.0, 2.0]).with(rect([0.0; 2], [number, 1.0])).with(line([0.0; 2], [1.0; 2])));
            assert_eq!(
                drawing.in_page().replace('\n', ""),
                "<svg viewBox=\"0 0 10 5\" width=\"10\" height=\"5\" role=\"img\"><g transform=\"translate(1,2)\">\
                 <line x1=\"0\" x2=\"1\" y1=\"0\" y2=\"1\"/></g></svg>"
            );
        }
    }

    #[test]
    fn curves_name_their_pieces() {
        let data = |path: Path| path.data;
        assert_eq!(data(Path::from([1.0, 2.0]).across_to(3.5).down_to(4.0).closed()), "M1 2H3.5V4Z");
        assert_eq!(
            data(Path::through([[0.0, 1.0], [2.0, 3.0]]).jump([4.0, 5.0]).to([6.0, 7.0])),
            "M0 1L2 3M4 5L6 7"
        );
        assert_eq!(data(Path::through([])), "");
    }

    #[test]
    fn a_file_names_what_it_is_and_holds_pictures() {
        let mut file = Vec::new();
        let drawing = Drawing::scalable([10.0, 5.0]).on_white();
        drawing
            .stream(&mut file, &mut |to| write_picture(to, [1.0, 2.0], [3.0, 4.0], |to| to.write_all(b"abc")))
            .unwrap();
        assert_eq!(
            String::from_utf8(file).unwrap(),
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 10 5\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <image x=\"1\" y=\"2\" width=\"3\" height=\"4\" href=\"data:image/png;base64,YWJj\"/>\n</svg>\n"
        );
    }
}
