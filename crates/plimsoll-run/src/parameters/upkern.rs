//! Resampling of kernels to another extent, which the authors of MedNeXt call UpKern (Roy et al. 2023, arXiv:2303.09975), with which a network of
//! kernels of 5³ voxels starts from a trained one of 3³.

use plimsoll_graph::Shape;
use plimsoll_nn::weights::{WeightError, WeightFile};

/// The shape `[O, I, d, h, w]` of the weights in a file, if they differ from others in the extent of their kernel alone. Kernels without a
/// depth have one of 1.
pub(super) fn other_kernel(found: &Shape, expected: &Shape) -> Option<Shape> {
    let found = match found.0[..] {
        [outputs, inputs, h, w] => Shape(vec![outputs, inputs, 1, h, w]),
        [_, _, _, _, _] => found.clone(),
        _ => return None,
    };
    let is_kernel = |shape: &Shape| shape.0.len() == 5 && shape.0.iter().all(|extent| *extent > 0);
    let fits = is_kernel(&found) && is_kernel(expected) && found.0[..2] == expected.0[..2];
    (fits && found != *expected).then_some(found)
}

/// The share that each of `from` voxels has in each of `to` voxels along an axis: linear interpolation between centres, as
/// `torch.nn.functional.interpolate` does by default, `[to][from]`.
pub(super) fn shares(from: usize, to: usize) -> Vec<Vec<f32>> {
    let step = from as f64 / to as f64;
    let of_voxel = |voxel: usize| {
        let centre = ((voxel as f64 + 0.5) * step - 0.5).clamp(0.0, (from - 1) as f64);
        let (before, part) = (centre as usize, centre.fract());
        let mut shares = vec![0.0; from];
        shares[before] += (1.0 - part) as f32;
        shares[(before + 1).min(from - 1)] += part as f32;
        shares
    };
    (0..to).map(of_voxel).collect()
}

/// Reads weights of the shape `stored`, which [`other_kernel`] gave, and resamples their kernels to the extent of `shape`.
pub(super) fn read_resampled(
    file: &mut WeightFile,
    name: &str,
    stored: &Shape,
    shape: &Shape,
    values: &mut [f32],
) -> Result<(), WeightError> {
    let ([_, from_height, from_width], to) = (stored.spatial(), shape.spatial());
    let [depth, height, width] = [0, 1, 2].map(|axis| shares(stored.spatial()[axis], to[axis]));
    let (from_taps, to_taps) = (stored.spatial().iter().product::<usize>(), to.iter().product::<usize>());
    values.fill(0.0);
    file.each_run(name, stored, &mut |first, run| {
        for (place, weight) in (first..).zip(run) {
            let (kernel, tap) = (place / from_taps, place % from_taps);
            let at = [tap / (from_height * from_width), tap / from_width % from_height, tap % from_width];
            let Some(kernel) = values.get_mut(kernel * to_taps..(kernel + 1) * to_taps) else { return };
            for (tap, value) in kernel.iter_mut().enumerate() {
                let share = depth[tap / (to[1] * to[2])][at[0]]
                    * height[tap / to[2] % to[1]][at[1]]
                    * width[tap % to[2]][at[2]];
                *value += share * weight;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::path::Path;

    use plimsoll_memory::{Budget, Bytes};
    use plimsoll_nn::weights::safetensors;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        shape: Vec<usize>,
        size: Vec<usize>,
        kernel: Vec<f32>,
        resampled: Vec<f32>,
    }

    /// `oracles/mednext_training.py upkern` made the numbers.
    #[test]
    fn kernels_are_resampled_as_pytorch_interpolates() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/data/upkern.json");
        let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.safetensors");
        for Case { shape, size, kernel, resampled } in cases {
            let tensors = [("kernel".to_string(), Shape(shape.clone()))];
            let fill = |_, values: &mut [f32]| {
                values.copy_from_slice(&kernel);
                Ok(())
            };
            let mut to = File::create(&path).unwrap();
            safetensors::write(&mut to, &tensors, &BTreeMap::new(), &mut vec![0.0; kernel.len()], fill)
                .unwrap();
            let mut file = WeightFile::open(&path, &Budget::new(Bytes::mib(1))).unwrap();
            let [outputs, inputs, ..] = shape[..] else { panic!("no kernel") };
            let [d, h, w] = if size.len() == 3 { [size[0], size[1], size[2]] } else { [1, size[0], size[1]] };
            let expected = Shape(vec![outputs, inputs, d, h, w]);
            let stored = other_kernel(&file.shape("kernel").unwrap(), &expected).unwrap();
            let mut values = vec![f32::NAN; resampled.len()];
            read_resampled(&mut file, "kernel", &stored, &expected, &mut values).unwrap();
            for (value, expected) in values.iter().zip(&resampled) {
                assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
            }
        }
    }

    #[test]
    fn only_the_kernel_may_differ() {
        let other = |found: &[usize], expected: &[usize]| {
            other_kernel(&Shape(found.to_vec()), &Shape(expected.to_vec())).map(|shape| shape.0)
        };
        assert_eq!(other(&[8, 1, 3, 3, 3], &[8, 1, 5, 5, 5]), Some(vec![8, 1, 3, 3, 3]));
        assert_eq!(other(&[8, 1, 3, 3], &[8, 1, 1, 5, 5]), Some(vec![8, 1, 1, 3, 3]));
        assert_eq!(other(&[8, 1, 3, 3, 3], &[8, 1, 3, 3, 3]), None);
        assert_eq!(other(&[16, 1, 3, 3, 3], &[8, 1, 5, 5, 5]), None);
        assert_eq!(other(&[8], &[16]), None);
        assert_eq!(other(&[8, 1, 0, 3, 3], &[8, 1, 5, 5, 5]), None);
    }
}
