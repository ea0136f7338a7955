//! The layout of a picture: the part of the image that is shown, and the panels, which together fill the frame in true proportions.

use plimsoll_volume::{Geometry, VoxelMap};

use super::foreground::Foreground;

/// The size of a picture.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Pixels across.
    pub width: f64,
    /// The most pixels down; a picture that would have more is less wide.
    pub most_height: f64,
}

impl Frame {
    /// For pictures by themselves.
    pub const LARGE: Frame = Frame { width: 1200.0, most_height: 1000.0 };
    /// For pictures among others on a page.
    pub const SMALL: Frame = Frame { width: 720.0, most_height: 480.0 };
}

/// Pixels between slices.
const GAP: f64 = 6.0;

/// The least share of the image's extent that is shown along an axis.
const LEAST_SHARE: f64 = 0.5;
/// The extent that is shown, as a multiple of the extent of the labels, if the image is that large.
const AROUND: f64 = 1.6;
/// The factor by which another division of panels must be better to be chosen.
const BETTER: f64 = 1.05;

/// A plane across a canonical axis.
#[derive(Clone, Copy)]
pub struct Plane {
    across: usize,
}

impl Plane {
    /// The plane across an axis: axial, coronal, sagittal.
    pub fn across(axis: usize) -> Plane {
        Plane { across: axis }
    }

    /// Those in which an image is shown: all three; of a picture and of one slice that one.
    pub fn shown_for(geometry: &Geometry, is_picture: bool) -> Vec<Plane> {
        let thin = geometry.canonical().0.shape().iter().position(|length| *length == 1);
        match thin {
            Some(axis) => vec![Plane::across(axis)],
            None if is_picture => vec![Plane::across(0)],
            None => [0, 1, 2].map(Plane::across).to_vec(),
        }
    }

    /// The axis that it is across.
    pub fn axis(self) -> usize {
        self.across
    }

    /// The axes that run down and across the picture.
    fn axes(self) -> [usize; 2] {
        match self.across {
            0 => [1, 2],
            1 => [0, 2],
            _ => [0, 1],
        }
    }
}

/// A part of a slice.
pub struct Window {
    /// Voxels along an axis are from −½ to as many less ½: where it begins and ends, down and across.
    ends: [[f64; 2]; 2],
    /// Its extent in mm, down and across.
    extent: [f64; 2],
    plane: Plane,
    at: usize,
    is_picture: bool,
    to_stored: VoxelMap,
}

impl Window {
    /// The part of a slice that is around labels. Pictures are shown as they are stored.
    pub fn around(
        plane: Plane,
        at: usize,
        geometry: &Geometry,
        found: &Foreground,
        is_picture: bool,
    ) -> Window {
        let (canonical, turned) = geometry.canonical();
        let (shape, spacing) = (canonical.shape(), canonical.spacing().0);
        let axes = plane.axes();
        let ends = axes.map(|axis| {
            let length = shape[axis] as f64;
            let Some([first, last]) = found.ends(axis).filter(|_| !is_picture) else {
                return [-0.5, length - 0.5];
            };
            let (first, last) = (first as f64 - 0.5, last as f64 - 0.5);
            let shown = (AROUND * (last - first)).max(LEAST_SHARE * length).min(length);
            let start = ((first + last - shown) / 2.0).clamp(-0.5, length - 0.5 - shown);
            [start, start + shown]
        });
        let extent = [0, 1].map(|side| (ends[side][1] - ends[side][0]) * spacing[axes[side]]);
        let to_stored = turned.voxel_map(geometry.shape());
        Window { ends, extent, plane, at, is_picture, to_stored }
    }

    /// Returns the map from (0, row, column) of a panel of this size in pixels to stored voxels.
    pub fn map(&self, size: [usize; 2]) -> VoxelMap {
        let mut rows = [[0.0; 4]; 3];
        rows[self.plane.across][3] = self.at as f64;
        for (side, axis) in self.plane.axes().into_iter().enumerate() {
            let [start, end] = self.ends[side];
            let step = (end - start) / size[side] as f64;
            (rows[axis][side + 1], rows[axis][3]) = match self.is_picture {
                true => (step, start + 0.5 * step),
                // Both axes run the other way on the screen: up, and towards the patient's left or back.
                false => (-step, end - 0.5 * step),
            };
        }
        VoxelMap::new(rows).then(&self.to_stored)
    }

    /// Its extent in mm, down and across.
    pub fn extent(&self) -> [f64; 2] {
        self.extent
    }

    /// Across by down.
    fn aspect(&self) -> f64 {
        self.extent[1] / self.extent[0]
    }
}

/// The place of a slice in the picture.
pub struct Panel {
    /// The upper left pixel: row, column.
    pub at: [usize; 2],
    /// Rows and columns.
    pub size: [usize; 2],
}

/// All panels.
pub struct Layout {
    pub panels: Vec<Panel>,
    /// Rows and columns.
    pub size: [usize; 2],
}

/// The corner and the sides of a panel, row and column, before they are whole pixels.
type Placed = [[f64; 2]; 2];

/// Arranges slices: all in a row of one height; or the first one beside the two others, where these are so wide that a row would be low.
pub fn arrange(windows: &[Window], Frame { width, most_height }: Frame) -> Layout {
    let row = in_row(windows, width);
    let scale = |placed: &[Placed]| {
        let scales = placed.iter().zip(windows).map(|(placed, window)| placed[1][1] / window.extent[1]);
        scales.fold(f64::INFINITY, f64::min)
    };
    let placed = match beside(windows, width) {
        Some(other) if scale(&other) > BETTER * scale(&row) => other,
        _ => row,
    };
    let bottom =
        |placed: &[Placed]| placed.iter().map(|placed| placed[0][0] + placed[1][0]).fold(0.0, f64::max);
    // Smaller as a whole, where it would be too high.
    let shrink = (most_height / bottom(&placed)).min(1.0);
    let pixels = |length: f64| (length * shrink).round() as usize;
    let panels: Vec<Panel> = placed
        .iter()
        .map(|[at, size]| {
            let corner = at.map(pixels);
            let end = [pixels(at[0] + size[0]), pixels(at[1] + size[1])];
            let size = [0, 1].map(|side| end[side].saturating_sub(corner[side]).max(1));
            Panel { at: corner, size }
        })
        .collect();
    let end = |side: usize| panels.iter().map(|panel| panel.at[side] + panel.size[side]).max().unwrap_or(1);
    Layout { size: [end(0), end(1)], panels }
}

fn in_row(windows: &[Window], all: f64) -> Vec<Placed> {
    let aspects: f64 = windows.iter().map(Window::aspect).sum();
    let height = (all - GAP * windows.len().saturating_sub(1) as f64) / aspects;
    let mut left = 0.0;
    let place = |window: &Window| {
        let width = height * window.aspect();
        let placed = [[0.0, left], [height, width]];
        left += width + GAP;
        placed
    };
    windows.iter().map(place).collect()
}

/// The first one as high as the two others below each other, which are as wide as each other.
fn beside(windows: &[Window], all: f64) -> Option<Vec<Placed>> {
    let [first, second, third] = windows else { return None };
    let (a, b, c) = (first.aspect(), second.aspect(), third.aspect());
    // a · (w / b + gap + w / c) + gap + w = all
    let width = (all - GAP - GAP * a) / (1.0 + a * (1.0 / b + 1.0 / c));
    let heights = [width / b, width / c];
    let height = heights[0] + GAP + heights[1];
    let left = a * height + GAP;
    (width > 1.0).then(|| {
        vec![
            [[0.0, 0.0], [height, a * height]],
            [[0.0, left], [heights[0], width]],
            [[heights[0] + GAP, left], [heights[1], width]],
        ]
    })
}
