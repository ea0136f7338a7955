//! A network and a patch for a data set, by nnU-Net's rules (Isensee et al. 2021, `ExperimentPlanner`).
//!
//! The patch has the proportions of the median image in millimetres. Axes are halved while they are long enough and not much
//! coarser than the others, so that voxels of deep stages are nearly cubes; a kernel spans an axis once its voxels are within a
//! factor of two of the finest.
//!
//! For slices the depth takes no part in any of this: a patch is one slice, however far the next one is away.

use plimsoll_data::TargetSpacing;
use plimsoll_nn::Design;

/// Axes are not halved below this many voxels (`UNet_featuremap_min_edge_length`).
pub(crate) const SMALLEST: usize = 4;
/// Features of the first stage; doubled from stage to stage.
const FIRST_FEATURES: usize = 32;
/// Features beyond which they are not doubled, for volumes and for slices.
const MOST_FEATURES: [usize; 2] = [320, 512];
/// Voxels that a patch of a volume, and pixels that one of a slice has where nnU-Net begins to look for one that fits.
const FIRST_PATCH: [f64; 2] = [256.0 * 256.0 * 256.0, 2048.0 * 2048.0];

/// Kernels and strides of all stages, the finest first, and a patch that can be halved so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Depth, height, width.
    pub patch: [usize; 3],
    /// Per stage.
    pub kernels: Vec<[usize; 3]>,
    /// Per stage, into it.
    pub strides: Vec<[usize; 3]>,
}

impl Topology {
    /// For a patch about as large as `patch` of voxels of `spacing`; in two dimensions `patch` is one slice.
    pub fn new(spacing: TargetSpacing, patch: [usize; 3]) -> Topology {
        Topology::around(spacing, patch.map(|extent| extent as f64))
    }

    /// For a patch of at least these extents, which need not be whole: a median may lie between two numbers of voxels
    /// (`get_pool_and_conv_props`).
    fn around(spacing: TargetSpacing, patch: [f64; 3]) -> Topology {
        const SHORTEST: f64 = SMALLEST as f64;
        let axes = &Topology::axes(spacing);
        let (mut spacing, mut size) = (spacing.within_patch(), patch);
        let mut kernel = [1; 3];
        let mut halvings = [0u32; 3];
        let (mut kernels, mut strides) = (Vec::new(), vec![[1; 3]]);
        loop {
            let long_enough: Vec<usize> =
                axes.iter().copied().filter(|axis| size[*axis] >= 2.0 * SHORTEST).collect();
            let finest_of_those = long_enough.iter().map(|axis| spacing[*axis]).fold(f64::INFINITY, f64::min);
            let halved: Vec<usize> =
                long_enough.into_iter().filter(|axis| spacing[*axis] / finest_of_those < 2.0).collect();
            if halved.is_empty() || (halved.len() == 1 && size[halved[0]] < 3.0 * SHORTEST) {
                break;
            }
            let finest = axes.iter().map(|axis| spacing[*axis]).fold(f64::INFINITY, f64::min);
            for &axis in axes {
                if spacing[axis] / finest < 2.0 {
                    kernel[axis] = 3;
                }
            }
            let mut stride = [1; 3];
            for axis in halved {
                stride[axis] = 2;
                halvings[axis] += 1;
                spacing[axis] *= 2.0;
                size[axis] = (size[axis] / 2.0).ceil();
            }
            kernels.push(kernel);
            strides.push(stride);
        }
        kernels.push([3; 3]);
        // A single slice has no neighbours.
        for axis in (0..3).filter(|axis| patch[*axis] <= 1.0) {
            kernels.iter_mut().for_each(|kernel| kernel[axis] = 1);
        }
        // The casts saturate.
        let patch = [0, 1, 2].map(|axis| (patch[axis].ceil() as usize).next_multiple_of(1 << halvings[axis]));
        Topology { patch, kernels, strides }
    }

    /// For images of a median shape, with the first patch of nnU-Net's sequence that has at most `voxels`.
    pub fn for_images(spacing: TargetSpacing, median_shape: [f64; 3], voxels: usize) -> Topology {
        Topology::first_of_sequence(spacing, median_shape, SMALLEST, |topology| topology.voxels() <= voxels)
    }

    /// The first of the [sequence](Topology::sequence) that fits, or else its last.
    pub(crate) fn first_of_sequence(
        spacing: TargetSpacing,
        median_shape: [f64; 3],
        shortest: usize,
        fits: impl Fn(&Topology) -> bool,
    ) -> Topology {
        let mut last = None;
        for topology in Topology::sequence(spacing, median_shape, shortest) {
            if fits(&topology) {
                return topology;
            }
            last = Some(topology);
        }
        last.unwrap_or_else(|| Topology::new(spacing, [1; 3]))
    }

    /// The topologies that nnU-Net tries for images of a median shape, the largest patch first (`get_plans_for_configuration`). It begins
    /// with the proportions of the spacing, at most the median image, and shortens the axis along which the patch covers the largest share
    /// of the image. No axis is shortened to less than `shortest` voxels.
    pub fn sequence(
        spacing: TargetSpacing,
        median_shape: [f64; 3],
        shortest: usize,
    ) -> impl Iterator<Item = Topology> {
        let axes = Topology::axes(spacing);
        // As many millimetres along each axis, and as many voxels as nnU-Net starts from.
        let inverse = spacing.within_patch().map(|mm| 1.0 / mm);
        let first = FIRST_PATCH[usize::from(spacing.is_of_slices())];
        let density: f64 = axes.iter().map(|axis| inverse[*axis]).product();
        let scale = (first / density).powf(1.0 / axes.len() as f64);
        let median_shape = median_shape.map(|extent| extent.max(1.0));
        let mut patch = [1.0; 3];
        for &axis in &axes {
            patch[axis] = (inverse[axis] * scale).round_ties_even().clamp(1.0, median_shape[axis]);
        }
        std::iter::successors(Some(Topology::around(spacing, patch)), move |topology| {
            let cover = |axis: usize| topology.patch[axis] as f64 / median_shape[axis];
            let axis = axes
                .iter()
                .copied()
                .filter(|axis| topology.patch[*axis] > topology.multiple(*axis).max(shortest))
                .max_by(|a, b| cover(*a).total_cmp(&cover(*b)))?;
            // A patch that is shorter by the multiple may be halved less often. The patch is shortened by the multiple of that, so that no
            // possible patch is left out.
            let shortened = |voxels: usize| {
                let mut patch = topology.patch;
                patch[axis] = patch[axis].saturating_sub(voxels).max(1);
                Topology::new(spacing, patch)
            };
            let next = shortened(shortened(topology.multiple(axis)).multiple(axis));
            (next.patch[axis] < topology.patch[axis]).then_some(next)
        })
    }

    /// The number that a patch must be a multiple of along an axis.
    fn multiple(&self, axis: usize) -> usize {
        self.strides.iter().map(|stride| stride[axis]).product()
    }

    /// The axes along which a patch has neighbours, in nnU-Net's order: the coarsest first.
    pub(crate) fn axes(spacing: TargetSpacing) -> Vec<usize> {
        if spacing.is_of_slices() {
            return vec![1, 2];
        }
        let lengths = spacing.within_patch();
        let coarsest =
            (1..3).fold(0, |coarsest, axis| if lengths[axis] > lengths[coarsest] { axis } else { coarsest });
        std::iter::once(coarsest).chain((0..3).filter(|axis| *axis != coarsest)).collect()
    }

    /// Voxels of its patch.
    pub fn voxels(&self) -> usize {
        self.patch.iter().product()
    }

    /// The design of a network for these numbers of channels and classes.
    pub fn design(&self, in_channels: usize, classes: usize) -> Design {
        Design {
            in_channels,
            classes,
            patch: self.patch,
            strides: self.strides.clone(),
            kernels: self.kernels.clone(),
            features: self.features(),
        }
    }

    /// Features of each stage.
    pub fn features(&self) -> Vec<usize> {
        let most = MOST_FEATURES[usize::from(self.patch[0] == 1)];
        (0..self.strides.len()).map(|stage| (FIRST_FEATURES << stage.min(16)).min(most)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_volume::Spacing;

    fn volume(spacing: [f64; 3]) -> TargetSpacing {
        Spacing(spacing).into()
    }

    #[test]
    fn isotropic_patches_are_halved_alike() {
        let topology = Topology::new(volume([1.0; 3]), [64; 3]);
        assert_eq!(topology.patch, [64; 3]);
        assert_eq!(topology.strides, [[1; 3], [2; 3], [2; 3], [2; 3], [2; 3]]);
        assert_eq!(topology.kernels, [[3; 3]; 5]);
        assert_eq!(topology.features(), [32, 64, 128, 256, 320]);
    }

    #[test]
    fn thick_slices_are_halved_late_and_get_flat_kernels_first() {
        // nnU-Net's plan of the Medical Segmentation Decathlon's prostate: 3.6 mm slices, 20 × 320 × 256.
        let topology = Topology::new(volume([3.6, 0.625, 0.625]), [20, 320, 256]);
        assert_eq!(topology.patch, [20, 320, 256]);
        assert_eq!(topology.strides[..4], [[1, 1, 1], [1, 2, 2], [1, 2, 2], [2, 2, 2]]);
        assert_eq!(topology.kernels[..3], [[1, 3, 3], [1, 3, 3], [3, 3, 3]]);
        assert_eq!(topology.strides.len(), 7);
    }

    #[test]
    fn the_patch_has_the_proportions_of_the_images() {
        let topology = Topology::for_images(volume([1.0; 3]), [120.0, 126.0, 164.0], 64 * 64 * 64);
        let voxels: usize = topology.patch.iter().product();
        assert!(voxels <= 64 * 64 * 64 && voxels > 32 * 64 * 64, "{:?}", topology.patch);
        assert!(topology.patch[2] >= topology.patch[0]);
        let small = Topology::for_images(volume([1.0; 3]), [9.0, 20.0, 20.0], 64 * 64 * 64);
        assert!(small.patch[0] <= 16 && small.patch[1] <= 32, "{:?}", small.patch);
    }

    #[test]
    fn patches_are_those_that_nnu_net_tries_and_become_smaller() {
        // nnU-Net's plans of 3d_fullres at its reference memory: the Decathlon's hippocampus has 40 × 56 × 40, and its median image
        // 36 × 50 × 35 voxels of 1 mm.
        let mut sequence = Topology::sequence(volume([1.0; 3]), [36.0, 50.0, 35.0], SMALLEST);
        assert_eq!(sequence.next().unwrap().patch, [40, 56, 40]);
        let all: Vec<usize> = Topology::sequence(volume([1.0; 3]), [300.0, 400.0, 400.0], SMALLEST)
            .map(|t| t.voxels())
            .collect();
        assert!(all.len() > 20 && all.windows(2).all(|pair| pair[1] < pair[0]), "{all:?}");
        assert!(all[0] > 200 * 200 * 200 && *all.last().unwrap() <= 16 * 16 * 16, "{all:?}");
    }

    #[test]
    fn slices_are_halved_down_to_four_pixels_whatever_lies_between_them() {
        // Eight stages of 512², as nnU-Net's, which has at least 4 pixels along an edge and at most 512 features.
        let topology = Topology::new(TargetSpacing::InPlane([0.7, 0.7]), [1, 512, 512]);
        assert_eq!(topology.patch, [1, 512, 512]);
        assert_eq!(topology.strides, [vec![[1; 3]], vec![[1, 2, 2]; 7]].concat());
        assert_eq!(topology.kernels, [[1, 3, 3]; 8]);
        assert_eq!(topology.features(), [32, 64, 128, 256, 512, 512, 512, 512]);
    }

    #[test]
    fn a_patch_of_slices_has_the_proportions_of_the_slices_and_one_of_them() {
        for (spacing, slice, expected) in [
            ([0.7, 0.7], [100.0, 512.0, 512.0], [1, 512, 512]),
            ([1.0, 1.0], [1.0, 96.0, 200.0], [1, 96, 224]),
            ([0.5, 2.0], [7.0, 4096.0, 1024.0], [1, 1024, 256]),
        ] {
            let topology = Topology::for_images(TargetSpacing::InPlane(spacing), slice, 512 * 512);
            assert_eq!(topology.patch, expected, "{spacing:?} {slice:?}");
        }
    }
}
