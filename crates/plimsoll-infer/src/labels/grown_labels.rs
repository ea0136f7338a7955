//! Labels that grow into the background around them, as far as a length in millimetres. A few planes are held at a time.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{Problem, Severity};
use plimsoll_memory::{Budget, Bytes, Mapped, Reservation};
use plimsoll_volume::{ElementType, Spacing, VolumeFile, VolumeWriter};

use crate::error::InferError;
use crate::labels::label_maps::{go_on, plane_of, writing};
use crate::labels::plane_ring::PlaneRing;

/// The most voxels along an axis that labels grow by.
const MOST_VOXELS: f64 = 256.0;

/// The distance by which labels grow, and the voxels to which they may.
pub struct Growth<'a> {
    /// The length.
    pub radius_mm: f64,
    /// The spacing along depth, height and width that it is measured with.
    pub spacing: Spacing,
    /// A label map on the same grid, and its label: beyond it there is background afterwards.
    pub inside: Option<(&'a Path, u8)>,
}

/// Writes a label map of 8 bits with its labels grown: background becomes the least label of those within reach.
///
/// # Errors
/// Returns an error if a file cannot be read or written, the two maps are of different shapes, the length is more than 256 voxels along an axis, the budget has
/// no room for the planes within reach, or `stop` is set.
pub fn grow_labels(
    labels: &Path,
    to: &Path,
    growth: &Growth<'_>,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    let mut file = VolumeFile::open_labels(labels)?;
    let geometry = *file.geometry();
    let shape @ [depth, height, width] = geometry.shape();
    let mut inside = match growth.inside {
        None => None,
        Some((path, label)) => {
            let other = VolumeFile::open_labels(path)?;
            let found = other.geometry().shape();
            if found != shape {
                return Err(InferError::OtherShape { path: path.into(), found, expected: shape });
            }
            Some((other, label, Mapped::<u8>::zeroed(budget, "a plane of labels", height * width)?))
        }
    };
    check_radius(labels, growth)?;
    let reach = Reach::new(growth, shape, budget)?;
    let _writing = writing(1, budget)?;
    let mut ring = PlaneRing::new(depth, height * width, reach.planes(), budget)?;
    let mut grown = Mapped::<u8>::zeroed(budget, "a plane of labels", height * width)?;
    let mut writer =
        VolumeWriter::create(to, &geometry, 1, ElementType::U8, file.header()).map_err(InferError::Write)?;
    for d in 0..depth {
        go_on(to, stop)?;
        ring.advance(d, |at, plane| file.region_labels(0, plane_of(at, [height, width]), plane))?;
        grow_plane(&ring, d, [height, width], &reach, &mut grown);
        if let Some((other, label, plane)) = &mut inside {
            other.region_labels(0, plane_of(d, [height, width]), plane)?;
            let pairs = grown.iter_mut().zip(plane.iter());
            pairs.filter(|(_, other)| *other != label).for_each(|(voxel, _)| *voxel = 0);
        }
        writer.write_planes(&grown).map_err(InferError::Write)?;
    }
    writer.finish().map_err(InferError::Write)
}

/// The background of a plane becomes the least label within reach.
fn grow_plane(ring: &PlaneRing, d: usize, [height, width]: [usize; 2], reach: &Reach, grown: &mut [u8]) {
    let Some(own) = ring.plane(d, 0) else { return };
    grown.copy_from_slice(own);
    for ([depth, row], columns) in &reach.rows {
        let Some(plane) = ring.plane(d, *depth) else { continue };
        for h in 0..height {
            let Some(from) = h.checked_add_signed(*row).filter(|from| *from < height) else { continue };
            let from = &plane[from * width..][..width];
            // Most rows of a scan have no label.
            if from.iter().all(|label| *label == 0) {
                continue;
            }
            let line = h * width..(h + 1) * width;
            for (w, (voxel, own)) in grown[line.clone()].iter_mut().zip(&own[line]).enumerate() {
                if *own != 0 {
                    continue;
                }
                for column in columns.clone() {
                    let label =
                        w.checked_add_signed(column).and_then(|at| from.get(at)).copied().unwrap_or(0);
                    if label != 0 && (*voxel == 0 || label < *voxel) {
                        *voxel = label;
                    }
                }
            }
        }
    }
}

/// Refuses a length of implausibly many voxels, which comes from a wrong spacing.
fn check_radius(labels: &Path, growth: &Growth<'_>) -> Result<(), InferError> {
    let Growth { radius_mm, spacing, .. } = growth;
    if spacing.0.iter().all(|length| radius_mm / length <= MOST_VOXELS) {
        return Ok(());
    }
    let [depth, height, width] = spacing.0;
    let problem = Problem {
        severity: Severity::Error,
        case: labels.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        file: labels.into(),
        text: format!(
            "labels grow by {radius_mm} mm, which at a spacing of {depth} × {height} × {width} mm are more than {MOST_VOXELS} voxels"
        ),
        hint: Some(
            "check the spacing in the file: it is probably damaged, or in other units than the file says"
                .into(),
        ),
    };
    Err(InferError::Unsound { problem: Box::new(problem) })
}

/// A row of voxels around one: offsets along depth and height, and along width.
type Row = ([isize; 2], Range<isize>);

/// The voxels around a voxel from which its label may come.
struct Reach {
    rows: Vec<Row>,
    _room: Reservation,
}

impl Reach {
    /// The voxels whose labels reach one: an ellipsoid, as TotalSegmentator's `get_ellipsoid_structuring_element` and SciPy's
    /// `binary_dilation` have them together. Along an axis on which the radius is no whole number of voxels, the element begins at minus
    /// the radius, so that it is not symmetric. No offset leaves a volume of this shape.
    ///
    /// # Errors
    /// Returns an error if the budget has no room for its rows.
    fn new(growth: &Growth<'_>, shape: [usize; 3], budget: &Budget) -> Result<Reach, InferError> {
        // In single precision, as spacings of NIfTI are.
        let radii = growth.spacing.0.map(|length| growth.radius_mm as f32 / length as f32);
        let steps = [0, 1, 2].map(|axis| {
            let radius = radii[axis];
            // The cast saturates.
            let count = ((radius + 1.0) + radius).ceil() as usize;
            let centre = count / 2;
            // Steps that are longer than the axis lead out of the volume from each of its voxels.
            let steps = centre.saturating_sub(shape[axis])..count.min(centre.saturating_add(shape[axis]));
            steps.map(move |step| {
                let at = step as f32 - radius;
                // A label spreads along the step, so that it comes from where the step leads away from.
                (centre as isize - step as isize, at * at / (radius * radius))
            })
        });
        let [depths, heights, widths] = steps;
        let most = depths.len().saturating_mul(heights.len());
        let bytes = Bytes::from_len(most.saturating_mul(size_of::<Row>()));
        let room = budget.reserve("rows within reach of labels", bytes)?;
        let mut rows = Vec::with_capacity(most);
        for (d, depth) in depths {
            for (h, height) in heights.clone() {
                // NIfTI's axes in their order, from width to depth: each addition is rounded. What is within is one run, from high to low.
                let mut within =
                    widths.clone().filter(|(_, width)| (width + height) + depth <= 1.0).map(|(w, _)| w);
                if let Some(high) = within.next() {
                    rows.push(([d, h], within.next_back().unwrap_or(high)..high + 1));
                }
            }
        }
        Ok(Reach { rows, _room: room })
    }

    /// Returns the distance of the farthest one, in planes.
    fn planes(&self) -> usize {
        self.rows.iter().map(|([depth, _], _)| depth.unsigned_abs()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_volume::{Affine, Geometry, StoredVolume};
    use std::path::PathBuf;

    /// The cases of `oracles/total_segmentator_more.py`, made by TotalSegmentator's own functions.
    #[derive(serde::Deserialize)]
    struct Vertebrae {
        kind: String,
        shape: [usize; 3],
        spacing: [f64; 3],
        labels: Vec<u8>,
        body: Vec<u8>,
        refined: Vec<u8>,
    }

    #[test]
    fn labels_grow_and_are_cut_as_by_total_segmentator_whatever_the_spacing() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/total_segmentator_more/vertebrae.json");
        let cases: Vec<Vertebrae> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::new(Bytes::mib(8));
        for case in cases {
            let geometry = Geometry::new(case.shape, Affine::from_spacing(Spacing(case.spacing))).unwrap();
            let write = |name: &str, voxels: &[u8]| -> PathBuf {
                let path = folder.path().join(name);
                let mut writer = VolumeWriter::create(&path, &geometry, 1, ElementType::U8, None).unwrap();
                writer.write_planes(voxels).unwrap();
                writer.finish().unwrap();
                path
            };
            let (labels, body) = (write("labels.nii.gz", &case.labels), write("body.nii.gz", &case.body));
            let to = folder.path().join("refined.nii.gz");
            let growth = Growth { radius_mm: 2.0, spacing: Spacing(case.spacing), inside: Some((&body, 1)) };
            grow_labels(&labels, &to, &growth, &budget, &AtomicBool::new(false)).unwrap();
            let refined = StoredVolume::read(&to, &budget, "test").unwrap();
            assert!(refined.bytes() == case.refined, "{}: {:?}", case.kind, case.spacing);
            assert_ne!(refined.bytes(), case.labels, "{}: nothing has changed", case.kind);
        }
    }

    #[test]
    fn a_ball_of_whole_voxels_is_symmetric() {
        let growth = Growth { radius_mm: 3.0, spacing: Spacing([1.5; 3]), inside: None };
        let budget = Budget::new(Bytes::mib(1));
        let reach = Reach::new(&growth, [20; 3], &budget).unwrap();
        assert!(budget.used() >= Bytes::from_len(reach.rows.len() * size_of::<Row>()));
        // x² + y² + z² ≤ 4 has 33 points.
        assert_eq!(reach.rows.iter().map(|(_, columns)| columns.len()).sum::<usize>(), 33);
        assert_eq!(reach.planes(), 2);
    }

    #[test]
    fn a_length_of_hundreds_of_voxels_is_refused() {
        let of = |length| Growth { radius_mm: 2.0, spacing: Spacing([1.0, 1.0, length]), inside: None };
        check_radius(Path::new("labels.nii"), &of(0.0078125)).unwrap();
        for length in [0.0078, 1e-30, f64::NAN] {
            let error = check_radius(Path::new("labels.nii"), &of(length)).unwrap_err();
            assert!(error.to_string().contains("labels.nii") && error.to_string().contains("256"), "{error}");
            assert!(error.remedy().unwrap().contains("spacing"));
        }
    }
}
