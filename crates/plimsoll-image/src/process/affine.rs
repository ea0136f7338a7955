//! Rotation, scale, shear and shift in one pull, as torchvision's `affine` on PIL images.

use serde::{Deserialize, Serialize};

use crate::raster::{Extent, Raster};

/// The interpolation between pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The nearest: torchvision's default.
    #[default]
    Nearest,
    /// The four around it, weighted.
    Bilinear,
}

/// A change of position about the centre of the image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffineChange {
    /// Clockwise.
    pub degrees: f64,
    /// Whole pixels to the right and down, after the rotation.
    pub shift: [i64; 2],
    /// Above 1 enlarges.
    pub scale: f64,
    /// Degrees parallel to the x and the y axis.
    pub shear: [f64; 2],
}

impl AffineChange {
    /// Nothing moves.
    pub const NONE: AffineChange = AffineChange { degrees: 0.0, shift: [0; 2], scale: 1.0, shear: [0.0; 2] };

    /// The inverse map: x and y in the source of a point in the output, `[[xx, xy, x0], [yx, yy, y0]]`, in pixels whose
    /// corners are whole numbers.
    ///
    /// Forward, the map is T · C · R · S · Hy · Hx · C⁻¹: shears first, then scale, rotation and shift.
    fn inverse(&self, extent: Extent) -> [[f64; 3]; 2] {
        let centre = [extent.width as f64 * 0.5, extent.height as f64 * 0.5];
        let (angle, sx, sy) =
            (self.degrees.to_radians(), self.shear[0].to_radians(), self.shear[1].to_radians());
        let a = (angle - sy).cos() / sy.cos();
        let b = -(angle - sy).cos() * sx.tan() / sy.cos() - angle.sin();
        let c = (angle - sy).sin() / sy.cos();
        let d = -(angle - sy).sin() * sx.tan() / sy.cos() + angle.cos();
        // The determinant of the matrix without scale is 1.
        let rows = [[d / self.scale, -b / self.scale], [-c / self.scale, a / self.scale]];
        let from = [-centre[0] - self.shift[0] as f64, -centre[1] - self.shift[1] as f64];
        let mut map = [[0.0; 3]; 2];
        for ((to, row), centre) in map.iter_mut().zip(rows).zip(centre) {
            *to = [row[0], row[1], row[0] * from[0] + row[1] * from[1] + centre];
        }
        map
    }
}

/// Pulls the changed image out of `from`; what lies outside of it becomes `fill`, a value for each channel.
pub fn pull(
    from: Raster<'_>,
    change: &AffineChange,
    interpolation: Interpolation,
    fill: &[u8],
    out: &mut [u8],
) {
    let map = change.inverse(from.extent);
    match interpolation {
        Interpolation::Nearest if map[0][1] == 0.0 && map[1][0] == 0.0 => scaled(from, map, fill, out),
        Interpolation::Nearest => nearest(from, map, fill, out),
        Interpolation::Bilinear => bilinear(from, map, fill, out),
    }
}

/// Runs `sample` for each pixel of the output; it returns false where there is no source.
fn for_each_pixel(
    from: Raster<'_>,
    fill: &[u8],
    out: &mut [u8],
    mut sample: impl FnMut(usize, usize, &mut [u8]) -> bool,
) {
    let length = (from.extent.width * from.channels).max(1);
    for (row, line) in out.chunks_exact_mut(length).take(from.extent.height).enumerate() {
        for (column, pixel) in line.chunks_exact_mut(from.channels).enumerate() {
            if !sample(row, column, pixel) {
                for (to, fill) in pixel.iter_mut().zip(fill) {
                    *to = *fill;
                }
            }
        }
    }
}

fn copy(from: Raster<'_>, row: usize, column: usize, to: &mut [u8]) -> bool {
    let at = column * from.channels;
    to.copy_from_slice(&from.row(row)[at..at + from.channels]);
    true
}

/// Without rotation or shear PIL steps through rows and columns by themselves, in doubles that are added up.
fn scaled(from: Raster<'_>, map: [[f64; 3]; 2], fill: &[u8], out: &mut [u8]) {
    let start = |axis: usize| map[axis][2] + map[axis][axis] * 0.5;
    let whole = |at: f64| if at < 0.0 { usize::MAX } else { at as usize };
    let (mut y, mut x, mut last_row) = (start(1), start(0), 0);
    let Extent { height, width } = from.extent;
    for_each_pixel(from, fill, out, |row, column, to| {
        if row != last_row {
            y += map[1][1];
            last_row = row;
        }
        x = if column == 0 { start(0) } else { x + map[0][0] };
        let (y, x) = (whole(y), whole(x));
        y < height && x < width && copy(from, y, x, to)
    });
}

/// PIL's fixed point, 16 bits behind the point.
fn nearest(from: Raster<'_>, map: [[f64; 3]; 2], fill: &[u8], out: &mut [u8]) {
    let fixed = |value: f64| (value * 65536.0 + 0.5).floor() as i64;
    let [x, y] = map.map(|[dx, dy, start]| [fixed(dx), fixed(dy), fixed(start + dx * 0.5 + dy * 0.5)]);
    let at = |[dx, dy, start]: [i64; 3], row: usize, column: usize| {
        let place =
            start.wrapping_add(dx.wrapping_mul(column as i64)).wrapping_add(dy.wrapping_mul(row as i64));
        usize::try_from(place >> 16).ok()
    };
    let Extent { height, width } = from.extent;
    for_each_pixel(from, fill, out, |row, column, to| match (at(y, row, column), at(x, row, column)) {
        (Some(y), Some(x)) if y < height && x < width => copy(from, y, x, to),
        _ => false,
    });
}

/// In doubles; results are cut off, not rounded, as PIL does.
fn bilinear(from: Raster<'_>, map: [[f64; 3]; 2], fill: &[u8], out: &mut [u8]) {
    let Extent { height, width } = from.extent;
    for_each_pixel(from, fill, out, |row, column, to| {
        let point = [column as f64 + 0.5, row as f64 + 0.5];
        let [x, y] = map.map(|[dx, dy, start]| dx * point[0] + dy * point[1] + start);
        if !(x >= 0.0 && x < width as f64 && y >= 0.0 && y < height as f64) {
            return false;
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (dx, dy) = (x - left, y - top);
        let clamped = |at: f64, count: usize| at.clamp(0.0, count as f64 - 1.0) as usize;
        let columns = [clamped(left, width), clamped(left + 1.0, width)];
        let rows = [clamped(top, height), clamped(top + 1.0, height)];
        let lines = rows.map(|row| from.row(row));
        for (channel, to) in to.iter_mut().enumerate() {
            let [above, below] = lines.map(|line| {
                let [left, right] = columns.map(|column| f64::from(line[column * from.channels + channel]));
                left + (right - left) * dx
            });
            *to = (above + (below - above) * dy) as u8;
        }
        true
    });
}
