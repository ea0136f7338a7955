//! The body as one mask, and its skin, as TotalSegmentator's `extract_skin` finds it: where the density is in the range of skin in the outermost
//! voxels of the body. A few planes are held at a time.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, MapError, Mapped};
use plimsoll_volume::{ElementType, VolumeFile, VolumeWriter};

use crate::error::InferError;
use crate::labels::label_maps::{go_on, plane_of, writing};
use crate::labels::plane_ring::PlaneRing;

/// Densities between which skin is, in Hounsfield units; neither is skin itself.
const DENSITIES: [f32; 2] = [-200.0, 250.0];

/// The number of erosions of the body after one dilation: the skin is what remains outside.
const EROSIONS: usize = 3;

/// Specks of skin of up to so many voxels, which touch by their faces, are removed.
const SPECK: usize = 5;

/// Bits of a voxel on its way: in the dilated body, and in what is left of it after erosions.
const BODY: u8 = 1;
const INNER: u8 = 2;

/// Fills a plane of a number.
type ReadPlane<'a, E> = dyn FnMut(usize, &mut [u8]) -> Result<(), E> + 'a;

/// The files of the two masks, and of the skin before its specks are removed.
pub struct SkinFiles<'a> {
    /// The body.
    pub body: &'a Path,
    /// The skin.
    pub skin: &'a Path,
    /// A file that may be removed afterwards.
    pub meanwhile: &'a Path,
}

/// Writes the masks of the body, all labels of a map of 8 bits together, and of its skin. Of the image and of the skin a few planes are held.
///
/// # Errors
/// Returns an error if a file cannot be read or written, the image and the labels are of different shapes, the budget has no room for a few planes, or `stop`
/// is set.
pub fn write_skin(
    image: &Path,
    labels: &Path,
    files: &SkinFiles<'_>,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    with_specks(image, labels, files, budget, stop)?;
    remove_specks(files.meanwhile, files.skin, budget, stop)
}

fn with_specks(
    image: &Path,
    labels: &Path,
    files: &SkinFiles<'_>,
    budget: &Budget,
    stop: &AtomicBool,
) -> Result<(), InferError> {
    let (mut image, mut map) = (VolumeFile::open(image)?, VolumeFile::open_labels(labels)?);
    let geometry = *image.geometry();
    let expected @ [depth, height, width] = geometry.shape();
    let found = map.geometry().shape();
    if found != expected {
        return Err(InferError::OtherShape { path: labels.into(), found, expected });
    }
    let voxels = height * width;
    let zeroed = |what| Mapped::<u8>::zeroed(budget, what, voxels);
    let (mut body, mut layers) = (zeroed("a plane of labels")?, zeroed("a plane of labels")?);
    let mut values = Mapped::<f32>::zeroed(budget, "a plane of an image", voxels)?;
    let mut stages = Stages::new(expected, budget)?;
    let _writing = writing(2, budget)?;
    let create = |path: &Path| {
        let writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, image.header());
        writer.map_err(InferError::Write)
    };
    let (mut to_body, mut to_skin) = (create(files.body)?, create(files.meanwhile)?);
    for d in 0..depth {
        go_on(labels, stop)?;
        stages.pull(d, &mut layers, &mut |at, plane| {
            map.region_labels(0, plane_of(at, [height, width]), plane)?;
            plane.iter_mut().for_each(|label| *label = u8::from(*label != 0));
            Ok::<(), InferError>(())
        })?;
        stages.body(d, &mut body);
        to_body.write_planes(&body).map_err(InferError::Write)?;
        image.region_f32(0, plane_of(d, [height, width]), &mut values)?;
        for (layer, value) in layers.iter_mut().zip(values.iter()) {
            let is_dense = DENSITIES[0] < *value && *value < DENSITIES[1];
            *layer = u8::from(is_dense && *layer & (BODY | INNER) == BODY);
        }
        to_skin.write_planes(&layers).map_err(InferError::Write)?;
    }
    to_body.finish().map_err(InferError::Write)?;
    to_skin.finish().map_err(InferError::Write)
}

/// A dilation and erosions by the faces of voxels, one after the other, each with the planes that it looks at.
struct Stages {
    shape: [usize; 3],
    /// The input of each stage: the body, then the result of the stage before.
    rings: Vec<PlaneRing>,
}

impl Stages {
    fn new(shape @ [depth, height, width]: [usize; 3], budget: &Budget) -> Result<Stages, MapError> {
        // The body itself is asked for when all stages have passed it.
        let reach = |stage: usize| if stage == 0 { EROSIONS + 1 } else { 1 };
        let ring = |stage| PlaneRing::new(depth, height * width, reach(stage), budget);
        Ok(Stages { shape, rings: (0..=EROSIONS).map(ring).collect::<Result<_, _>>()? })
    }

    /// The body in plane `d`, which was pulled last.
    fn body(&self, d: usize, out: &mut [u8]) {
        if let Some(plane) = self.rings.first().and_then(|ring| ring.plane(d, 0)) {
            out.copy_from_slice(plane);
        }
    }

    /// Fills `out` with plane `d` behind all stages; `read` gives planes of the body.
    fn pull<E>(&mut self, d: usize, out: &mut [u8], read: &mut ReadPlane<'_, E>) -> Result<(), E> {
        pull(&mut self.rings, self.shape, d, out, read)
    }
}

fn pull<E>(
    rings: &mut [PlaneRing],
    shape: [usize; 3],
    d: usize,
    out: &mut [u8],
    read: &mut ReadPlane<'_, E>,
) -> Result<(), E> {
    let [_, height, width] = shape;
    let Some((last, before)) = rings.split_last_mut() else { return read(d, out) };
    last.advance(d, |at, plane| pull(before, shape, at, plane, read))?;
    let planes = [-1, 0, 1].map(|away| last.plane(d, away));
    let is_first = before.is_empty();
    for h in 0..height {
        for w in 0..width {
            let at = h * width + w;
            let of = |plane: usize, at: Option<usize>| {
                at.and_then(|at| planes[plane]?.get(at)).copied().unwrap_or(0)
            };
            let own = of(1, Some(at));
            // What is out of the image is outside of the body.
            let around = [
                of(0, Some(at)),
                of(2, Some(at)),
                of(1, at.checked_sub(width)),
                of(1, Some(at + width)),
                of(1, (w > 0).then(|| at - 1)),
                of(1, (w + 1 < width).then_some(at + 1)),
            ];
            out[at] = match is_first {
                true => around.iter().fold(own, |any, layer| any | layer) * (BODY | INNER),
                false => (own & BODY) | (around.iter().fold(own, |all, layer| all & layer) & INNER),
            };
        }
    }
    Ok(())
}

/// Writes a mask without its components of up to [`SPECK`] voxels.
fn remove_specks(mask: &Path, to: &Path, budget: &Budget, stop: &AtomicBool) -> Result<(), InferError> {
    let mut file = VolumeFile::open_labels(mask)?;
    let geometry = *file.geometry();
    let [depth, height, width] = geometry.shape();
    let _writing = writing(1, budget)?;
    // A component of up to so many voxels, and one more, reaches no farther from any of them.
    let mut ring = PlaneRing::new(depth, height * width, SPECK, budget)?;
    let mut plane = Mapped::<u8>::zeroed(budget, "a plane of labels", height * width)?;
    let mut writer =
        VolumeWriter::create(to, &geometry, 1, ElementType::U8, file.header()).map_err(InferError::Write)?;
    for d in 0..depth {
        go_on(to, stop)?;
        ring.advance(d, |at, plane| file.region_labels(0, plane_of(at, [height, width]), plane))?;
        for (at, voxel) in plane.iter_mut().enumerate() {
            let is_foreground = ring.plane(d, 0).and_then(|plane| plane.get(at)) == Some(&1);
            *voxel =
                u8::from(is_foreground && !is_speck(&ring, d, [height, width], [at / width, at % width]));
        }
        writer.write_planes(&plane).map_err(InferError::Write)?;
    }
    writer.finish().map_err(InferError::Write)
}

/// Returns `true` if the component of a voxel has no more than [`SPECK`] voxels: found by going from voxel to voxel until there are more.
fn is_speck(ring: &PlaneRing, d: usize, [height, width]: [usize; 2], [h, w]: [usize; 2]) -> bool {
    const FACES: [[isize; 3]; 6] = [[0, 0, 1], [0, 0, -1], [0, 1, 0], [0, -1, 0], [1, 0, 0], [-1, 0, 0]];
    let is_foreground = |[z, y, x]: [isize; 3]| {
        let (y, x) = (h.checked_add_signed(y).filter(|y| *y < height), w.checked_add_signed(x));
        let at = y.zip(x.filter(|x| *x < width)).map(|(y, x)| y * width + x);
        at.and_then(|at| ring.plane(d, z)?.get(at)) == Some(&1)
    };
    let mut found = [[0isize; 3]; SPECK];
    let (mut count, mut seen) = (1, 0);
    while seen < count {
        let from = found[seen];
        seen += 1;
        for step in FACES {
            let at = [0, 1, 2].map(|axis| from[axis] + step[axis]);
            if found[..count].contains(&at) || !is_foreground(at) {
                continue;
            }
            if count == SPECK {
                return false;
            }
            found[count] = at;
            count += 1;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::Bytes;

    fn ring(mask: &[u8], [depth, height, width]: [usize; 3]) -> PlaneRing {
        let mut ring = PlaneRing::new(depth, height * width, depth, &Budget::new(Bytes::mib(1))).unwrap();
        ring.advance(depth, |at, plane| {
            plane.copy_from_slice(&mask[at * height * width..][..height * width]);
            Ok::<(), ()>(())
        })
        .unwrap();
        ring
    }

    #[test]
    fn five_voxels_are_a_speck_and_six_are_none() {
        for (voxels, expected) in [(1, true), (5, true), (6, false), (7, false)] {
            let mut mask = [0; 2 * 9];
            mask[..voxels].fill(1);
            for at in 0..voxels {
                assert_eq!(is_speck(&ring(&mask, [1, 2, 9]), 0, [2, 9], [0, at]), expected, "{voxels}, {at}");
            }
        }
        // Over planes, and not over corners: three and two.
        let mask = [1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1];
        let ring = ring(&mask, [2, 2, 3]);
        assert!(is_speck(&ring, 0, [2, 3], [0, 0]) && is_speck(&ring, 0, [2, 3], [1, 2]));
    }

    #[test]
    fn a_layer_of_two_voxels_stays_inside_and_one_outside() {
        // A block of 9³ in a volume of 13³: dilated by one, and eroded by three.
        let is_inside = |at: [usize; 3]| at.iter().all(|at| (2..11).contains(at));
        let budget = Budget::new(Bytes::mib(1));
        let mut stages = Stages::new([13; 3], &budget).unwrap();
        let mut plane = [0; 169];
        for d in 0..13 {
            stages
                .pull(d, &mut plane, &mut |at, plane| {
                    for (index, voxel) in plane.iter_mut().enumerate() {
                        *voxel = u8::from(is_inside([at, index / 13, index % 13]));
                    }
                    Ok::<(), ()>(())
                })
                .unwrap();
            for (index, layers) in plane.iter().enumerate() {
                let at = [d, index / 13, index % 13];
                let beyond = at.map(|at| usize::from(at < 2) + usize::from(at > 10));
                let is_dilated = match beyond.iter().sum::<usize>() {
                    0 => true,
                    1 => at.iter().all(|at| (1..12).contains(at)),
                    _ => false,
                };
                assert_eq!(layers & BODY != 0, is_dilated, "{at:?}");
                if at[1] == 6 && at[2] == 6 {
                    assert_eq!(layers & INNER != 0, (4..9).contains(&d), "{d}");
                }
            }
        }
    }
}
