//! Zoomed images that several models share: resampled once, and read from the disk by all others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::support::write_image;
use plimsoll_data::{
    Case, ChannelFile, Interpolation, KeptImage, LabelTies, MaskedNormalisation, NnUnetSteps, Normalisation,
    PREPARED_SCRATCH, Planes, PrepareError, Reading, Resizing, Scratch, StepOrder, TargetSpacing,
    VolumeCache, WindowSource, ZoomSteps, ZoomedCase, ZoomedGrid, ZoomedRoom, Zooming,
};
use plimsoll_disk::faults::{Fault, FaultKind, inject};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VoxelBox};

const SHAPE: [usize; 3] = [9, 12, 14];

fn steps(spacing: f64) -> ZoomSteps {
    let resizing = |order| Resizing { order, order_across: Interpolation::Nearest, slices: None };
    let channel = MaskedNormalisation { normalisation: Normalisation::ZScore, inside_mask: false };
    ZoomSteps {
        spacing: Spacing([spacing; 3]),
        then: NnUnetSteps {
            order: StepOrder::NnUnet,
            transposed: [0, 1, 2],
            reorients: false,
            planes: Planes::Any,
            spacing: TargetSpacing::try_from(vec![spacing; 3]).unwrap(),
            channels: vec![channel],
            images: resizing(Interpolation::Cubic),
            logits: resizing(Interpolation::Linear),
            labels: resizing(Interpolation::Linear),
            ties: LabelTies::Nearest,
        },
    }
}

fn geometry() -> Geometry {
    Geometry::new(SHAPE, Affine::from_spacing(Spacing([2.0, 1.5, 1.0]))).unwrap()
}

/// A case whose outermost voxels are zero.
fn case(folder: &Path) -> Case {
    let [depth, height, width] = SHAPE;
    let at = |index: usize| [index / (height * width), index / width % height, index % width];
    let is_inside = |at: [usize; 3]| (0..3).all(|axis| at[axis] > 1 && at[axis] + 2 < SHAPE[axis]);
    let value = |index: usize| if is_inside(at(index)) { (index * 37 % 1000) as f32 - 300.5 } else { 0.0 };
    let path = folder.join("ct.nii.gz");
    let voxels: Vec<f32> = (0..depth * height * width).map(value).collect();
    write_image(&path, &geometry(), 1, ElementType::F32, &voxels);
    let images = vec![ChannelFile { path, index: 0 }];
    Case { id: "ct".into(), images, label: None, reading: Reading::default() }
}

/// The view of a model.
#[derive(Clone, Copy)]
struct View {
    spacing: f64,
    within: Option<VoxelBox>,
}

/// All windows that a model sees, one after the other; neighbours overlap, and some reach beyond the image.
fn windows(case: &Case, view: View, kept: Option<&mut KeptImage>) -> Result<Vec<f32>, PrepareError> {
    let budget = Budget::new(Bytes::mib(64));
    let steps = steps(view.spacing);
    let place = ZoomedGrid::new(&geometry(), view.within, &steps)?;
    let what = Zooming { case, steps: &steps, foreground: &BTreeMap::new() };
    let cache = VolumeCache::new(budget.part("cache", Bytes::mib(8)).unwrap());
    let mut scratch = Scratch::new(&budget, PREPARED_SCRATCH)?;
    let room = ZoomedRoom { cache: &cache, scratch: &mut scratch, budget: &budget };
    let mut opened = ZoomedCase::open(&what, place, kept, room, &AtomicBool::new(false))?;
    let mut all = Vec::new();
    let window = [5, 6, 7];
    for d in [-2, 0, 3] {
        for h in [-1, 2, 9] {
            let mut out = vec![f32::NAN; window.iter().product()];
            opened.window([d, h, h + d], window, &mut out, &mut scratch)?;
            all.extend(out);
        }
    }
    Ok(all)
}

const WHOLE: View = View { spacing: 1.25, within: None };

#[test]
fn models_that_see_an_image_alike_read_what_the_first_has_resampled() {
    let dir = tempfile::tempdir().unwrap();
    let case = case(dir.path());
    let part = View { within: Some(VoxelBox { start: [1; 3], shape: [7, 9, 11] }), ..WHOLE };
    for view in [WHOLE, View { spacing: 3.0, ..WHOLE }, part] {
        let expected = windows(&case, view, None).unwrap();
        assert!(expected.iter().any(|value| *value != 0.0));
        let mut kept = KeptImage::beside(&dir.path().join("seen"));
        assert_eq!(windows(&case, view, Some(&mut kept)).unwrap(), expected);
        // Nothing has a name, and the stored image is not read again.
        let moved = dir.path().join("moved");
        fs::rename(&case.images[0].path, &moved).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(windows(&case, view, Some(&mut kept)).unwrap(), expected);
        // A model that sees it otherwise has to read it.
        let other = View { spacing: view.spacing + 0.5, ..view };
        assert!(windows(&case, other, Some(&mut kept)).is_err());
        fs::rename(&moved, &case.images[0].path).unwrap();
        assert_eq!(windows(&case, other, Some(&mut kept)).unwrap(), windows(&case, other, None).unwrap());
    }
}

#[test]
fn a_disk_without_room_for_resampled_voxels_changes_none_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let (image, scratch) = (dir.path().join("image"), dir.path().join("scratch"));
    for folder in [&image, &scratch] {
        fs::create_dir(folder).unwrap();
    }
    let case = case(&image);
    let expected = windows(&case, WHOLE, None).unwrap();
    let mut failed = 0;
    // Every operation on the disk of the kept voxels fails once: making the file, and writing it. Reading it back is an error of its own.
    for number in 1..400 {
        let mut kept = KeptImage::beside(&scratch.join("seen"));
        let fault = Fault { number, kind: FaultKind::Enospc };
        let (found, reached) = inject(&scratch, fault, || windows(&case, WHOLE, Some(&mut kept)));
        match found {
            Ok(found) => assert_eq!(found, expected),
            Err(PrepareError::Kept { beside, .. }) => {
                assert_eq!(beside, scratch.join("seen"));
                failed += 1;
            }
            Err(other) => panic!("{other}"),
        }
        // A file whose name could not be removed loses it now.
        drop(kept);
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
        if !reached {
            assert!(failed > 0);
            return;
        }
    }
    panic!("there is no end of operations");
}
