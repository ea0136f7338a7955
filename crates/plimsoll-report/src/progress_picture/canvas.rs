//! Pixels, with smooth lines and text of fonts that are part of the program.

use std::convert::Infallible;
use std::io;

use embedded_graphics::Drawable;
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::{DrawTarget, OriginDimensions, Pixel, Point, RgbColor, Size};
use embedded_graphics::text::{Alignment, Text};

use crate::picture::write_png;

/// Red, green, blue.
pub type Colour = [u8; 3];

/// An image that is drawn on. Coordinates are pixels, from the top left.
pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    /// A white image.
    pub fn new(width: usize, height: usize) -> Canvas {
        Canvas { width, height, pixels: vec![255; 3 * width * height] }
    }

    /// Mixes a share of a colour into a pixel; outside of the image nothing happens.
    fn blend(&mut self, x: i64, y: i64, colour: Colour, share: f64) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        if x >= self.width || y >= self.height {
            return;
        }
        let at = 3 * (y * self.width + x);
        for (pixel, part) in self.pixels.iter_mut().skip(at).zip(colour) {
            *pixel = (f64::from(*pixel) * (1.0 - share) + f64::from(part) * share).round() as u8;
        }
    }

    /// Fills a rectangle, the second corner left out, with a share of a colour.
    pub fn fill(&mut self, [x0, y0]: [f64; 2], [x1, y1]: [f64; 2], colour: Colour, share: f64) {
        for y in y0.round() as i64..y1.round() as i64 {
            for x in x0.round() as i64..x1.round() as i64 {
                self.blend(x, y, colour, share);
            }
        }
    }

    /// A straight line with round ends and smooth edges.
    pub fn line(&mut self, from: [f64; 2], to: [f64; 2], width: f64, colour: Colour) {
        let half = width / 2.0;
        let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
        let squared = dx * dx + dy * dy;
        let low = |axis: usize| (from[axis].min(to[axis]) - half - 1.0).floor() as i64;
        let high = |axis: usize| (from[axis].max(to[axis]) + half + 1.0).ceil() as i64;
        for y in low(1)..=high(1) {
            for x in low(0)..=high(0) {
                let (px, py) = (x as f64 - from[0], y as f64 - from[1]);
                let along = if squared > 0.0 { ((px * dx + py * dy) / squared).clamp(0.0, 1.0) } else { 0.0 };
                let distance = (px - along * dx).hypot(py - along * dy);
                let covered = (half + 0.5 - distance).clamp(0.0, 1.0);
                if covered > 0.0 {
                    self.blend(x, y, colour, covered);
                }
            }
        }
    }

    /// A dashed horizontal line.
    pub fn dashes(&mut self, [from, to]: [f64; 2], y: f64, colour: Colour) {
        let mut x = from;
        while x < to {
            self.line([x, y], [(x + 7.0).min(to), y], 1.6, colour);
            x += 12.0;
        }
    }

    /// A disc.
    pub fn dot(&mut self, at: [f64; 2], radius: f64, colour: Colour) {
        self.line(at, at, 2.0 * radius, colour);
    }

    /// A line of text, whose baseline begins, is centred or ends at a point.
    pub fn text(&mut self, text: &str, at: [f64; 2], font: &MonoFont<'_>, colour: Colour, to: Alignment) {
        let style = MonoTextStyle::new(font, Rgb888::new(colour[0], colour[1], colour[2]));
        let at = Point::new(at[0].round() as i32, at[1].round() as i32);
        let Ok(_) = Text::with_alignment(text, at, style, to).draw(self);
    }

    /// Encodes the canvas as a PNG.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        let mut file = Vec::new();
        write_png(&mut file, [self.height, self.width], &self.pixels)?;
        Ok(file)
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        Size::new(self.width as u32, self.height as u32)
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            self.blend(at.x.into(), at.y.into(), [colour.r(), colour.g(), colour.b()], 1.0);
        }
        Ok(())
    }
}
