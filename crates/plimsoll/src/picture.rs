//! A picture of a case: three slices through it, or the plain image that it is, with the outlines of the reference and of the
//! prediction.

use std::io::{self, Write};
use std::path::Path;

use plimsoll_memory::{Budget, Mapped};
use plimsoll_volume::{
    Geometry, Outside, Reorientation, SourceBlock, VolumeFile, VoxelBox, VoxelMap, pull_linear, pull_nearest,
};

use crate::failure::{Failure, Outcome};
use crate::report::write;

/// Pixels of a slice along its longer side.
const PANEL: usize = 360;
/// Pixels between slices.
const GAP: usize = 6;

const REFERENCE: [u8; 3] = [60, 220, 90];
const PREDICTION: [u8; 3] = [255, 90, 30];
const BOTH: [u8; 3] = [255, 230, 60];

/// The files of a case.
pub struct Files<'a> {
    pub image: &'a Path,
    pub reference: &'a Path,
    pub prediction: &'a Path,
}

/// Which way up a slice is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// As one looks at a patient.
    Patient,
    /// As its rows and columns are stored.
    Stored,
}

/// One slice as it is looked at: anterior or the head up, the patient's right on the left.
#[derive(Clone)]
struct View {
    /// From (0, row, column) of the slice to stored voxels.
    map: VoxelMap,
    height: usize,
    width: usize,
}

/// Draws the slices (axial, coronal, sagittal) that have the most foreground in the reference, and writes a PNG. A plain image is
/// drawn as it is stored.
pub fn draw(files: &Files<'_>, path: &Path, budget: &Budget) -> Outcome {
    let mut reference = VolumeFile::open_labels(files.reference)?;
    reference.decode(budget)?;
    let geometry = *reference.geometry();
    let views = match VolumeFile::open(files.image)?.is_picture() {
        true => vec![view(&geometry, 0, 0, Shown::Stored)],
        false => {
            let at = most_foreground(&mut reference, &geometry, budget)?;
            [0, 1, 2].map(|axis| view(&geometry, axis, at[axis], Shown::Patient)).to_vec()
        }
    };
    drop(reference);
    let height = views.iter().map(|view| view.height).max().unwrap_or(1);
    let width = views.iter().map(|view| view.width + GAP).sum::<usize>() - GAP;
    let mut pixels = Mapped::<u8>::zeroed(budget, "picture", 3 * height * width)?;
    let mut left = 0;
    for view in &views {
        let slice = slice(files, view, budget)?;
        for row in 0..view.height {
            for column in 0..view.width {
                let to = 3 * (row * width + left + column);
                pixels[to..to + 3].copy_from_slice(&slice.colour(row, column));
            }
        }
        left += view.width + GAP;
    }
    write(path, |file| write_png(file, [height, width], &pixels))
}

/// Writes red, green and blue of each pixel, `[row][column][channel]`, as a PNG.
pub fn write_png(to: &mut dyn Write, [height, width]: [usize; 2], samples: &[u8]) -> io::Result<()> {
    let side =
        |pixels: usize| u32::try_from(pixels).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let mut encoder = png::Encoder::new(to, side(width)?, side(height)?);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(samples)?;
    Ok(writer.finish()?)
}

/// The place along each canonical axis with the most foreground; the middle, where there is none.
fn most_foreground(labels: &mut VolumeFile, geometry: &Geometry, budget: &Budget) -> Outcome<[usize; 3]> {
    let [depth, height, width] = geometry.shape();
    let mut counts = [vec![0u64; depth], vec![0u64; height], vec![0u64; width]];
    let mut plane = Mapped::<u8>::zeroed(budget, "picture", height * width)?;
    for d in 0..depth {
        labels.region_labels(0, VoxelBox { start: [d, 0, 0], shape: [1, height, width] }, &mut plane)?;
        for (i, _) in plane.iter().enumerate().filter(|(_, label)| **label > 0) {
            counts[0][d] += 1;
            counts[1][i / width] += 1;
            counts[2][i % width] += 1;
        }
    }
    let (_, turned) = geometry.canonical();
    Ok([0, 1, 2].map(|axis| {
        let counts = &counts[turned.source_axis()[axis]];
        let best = (0..counts.len()).max_by_key(|i| (counts[*i], i.abs_diff(0).min(counts.len() - i)));
        let stored = best.unwrap_or(counts.len() / 2);
        if turned.flip()[axis] { counts.len() - 1 - stored } else { stored }
    }))
}

/// The slice at a place along a canonical axis.
fn view(geometry: &Geometry, axis: usize, at: usize, shown: Shown) -> View {
    let (canonical, turned): (Geometry, Reorientation) = geometry.canonical();
    let (shape, spacing) = (canonical.shape(), canonical.spacing().0);
    let (down, across) = match axis {
        0 => (1, 2),
        1 => (0, 2),
        _ => (0, 1),
    };
    let extent = |axis: usize| shape[axis] as f64 * spacing[axis];
    let pixel = extent(down).max(extent(across)) / PANEL as f64;
    let pixels = |axis: usize| ((extent(axis) / pixel).round() as usize).max(1);
    let mut rows = [[0.0; 4]; 3];
    rows[axis][3] = at as f64;
    for (column, along) in [(1, down), (2, across)] {
        let step = pixel / spacing[along];
        (rows[along][column], rows[along][3]) = match shown {
            // Both axes run the other way on the screen: up, and towards the patient's left or back.
            Shown::Patient => (-step, shape[along] as f64 - 0.5 - 0.5 * step),
            Shown::Stored => (step, 0.5 * step - 0.5),
        };
    }
    let map = VoxelMap::new(rows).then(&turned.voxel_map(geometry.shape()));
    View { map, height: pixels(down), width: pixels(across) }
}

/// A slice through all three volumes.
struct Slice {
    height: usize,
    width: usize,
    grey: Vec<u8>,
    reference: Vec<u8>,
    prediction: Vec<u8>,
}

fn slice(files: &Files<'_>, view: &View, budget: &Budget) -> Outcome<Slice> {
    let out_shape = [1, view.height, view.width];
    let pixels = view.height * view.width;
    let wrong = |error: &dyn std::fmt::Display| {
        let hint = "leave --pictures out, and look at the case with `plimsoll inspect`";
        Failure::new(format!("cannot draw a slice: {error}"), hint)
    };
    let labels_of = |path: &Path| -> Outcome<Vec<u8>> {
        let mut file = VolumeFile::open_labels(path)?;
        file.decode(budget)?;
        let shape = file.geometry().shape();
        let region = view.map.clamped_source_box(out_shape, shape, 1).unwrap_or(VoxelBox::whole(shape));
        let voxels = region.voxel_count().unwrap_or(0);
        let mut source = Mapped::<u8>::zeroed(budget, "picture", voxels)?;
        file.region_labels(0, region, &mut source)?;
        let block = SourceBlock::new(&source[..], region, shape).map_err(|error| wrong(&error))?;
        let mut labels = vec![0; pixels];
        pull_nearest(&block, &view.map, out_shape, Outside::Clamp, &mut labels).map_err(|e| wrong(&e))?;
        Ok(labels)
    };
    let (reference, prediction) = (labels_of(files.reference)?, labels_of(files.prediction)?);
    let mut file = VolumeFile::open(files.image)?;
    file.decode(budget)?;
    let shape = file.geometry().shape();
    let region = view.map.clamped_source_box(out_shape, shape, 1).unwrap_or(VoxelBox::whole(shape));
    let mut source = Mapped::<f32>::zeroed(budget, "picture", region.voxel_count().unwrap_or(0))?;
    file.region_f32(0, region, &mut source)?;
    let block = SourceBlock::new(&source[..], region, shape).map_err(|error| wrong(&error))?;
    let mut image = vec![0.0; pixels];
    pull_linear(&block, &view.map, out_shape, Outside::Clamp, &mut image).map_err(|e| wrong(&e))?;
    Ok(Slice { height: view.height, width: view.width, grey: windowed(&image), reference, prediction })
}

/// Grey values from the 1st to the 99th percentile.
fn windowed(image: &[f32]) -> Vec<u8> {
    let mut sorted: Vec<f32> = image.to_vec();
    sorted.sort_by(f32::total_cmp);
    let at = |share: f64| sorted.get((share * (sorted.len() - 1) as f64) as usize).copied().unwrap_or(0.0);
    let (low, high) = (at(0.01), at(0.99));
    let scale = 255.0 / (high - low).max(f32::MIN_POSITIVE);
    image.iter().map(|value| ((value - low) * scale).clamp(0.0, 255.0) as u8).collect()
}

impl Slice {
    /// Whether a pixel is at the rim of its class: two pixels wide, so that it is seen.
    fn is_outline(&self, labels: &[u8], row: usize, column: usize) -> bool {
        let label = labels[row * self.width + column];
        let differs =
            |r: usize, c: usize| labels[r.min(self.height - 1) * self.width + c.min(self.width - 1)] != label;
        let near = (row.saturating_sub(1)..=row + 1)
            .any(|r| (column.saturating_sub(1)..=column + 1).any(|c| differs(r, c)));
        label > 0 && near
    }

    fn colour(&self, row: usize, column: usize) -> [u8; 3] {
        let outlines =
            (self.is_outline(&self.reference, row, column), self.is_outline(&self.prediction, row, column));
        match outlines {
            (true, true) => BOTH,
            (true, false) => REFERENCE,
            (false, true) => PREDICTION,
            (false, false) => [self.grey[row * self.width + column]; 3],
        }
    }
}
