//! Windows of prepared cases against nnU-Net's preprocessed images.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::support::{hash, numbers, oracle, shape, three, write_image};
use plimsoll_data::{
    Case, Channel, ChannelFile, IntensityProperties, Interpolation, LabelTies, MaskedNormalisation,
    NnUnetSteps, Normalisation, PREPARED_SCRATCH, Planes, PrepareError, PreparedCase, PreparedGrid,
    Preparing, Reading, Resizing, Scratch, StepOrder, TargetSpacing, VolumeCache, WindowSource,
    inspect_images,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing};
use serde_json::Value;

fn resizing(order: Interpolation) -> Resizing {
    Resizing { order, order_across: Interpolation::Nearest, slices: None }
}

fn steps(example: &Value) -> NnUnetSteps {
    let channel = |channel: &Value| MaskedNormalisation {
        normalisation: serde_json::from_value(channel[0].clone()).unwrap(),
        inside_mask: channel[1].as_bool().unwrap(),
    };
    NnUnetSteps {
        order: StepOrder::NnUnet,
        transposed: shape(&example["transposed"]),
        reorients: example["reorients"].as_bool().unwrap(),
        planes: Planes::Any,
        spacing: TargetSpacing::try_from(numbers(&example["target"])).unwrap(),
        channels: example["channels"].as_array().unwrap().iter().map(channel).collect(),
        images: resizing(Interpolation::Cubic),
        logits: resizing(Interpolation::Linear),
        labels: resizing(Interpolation::Linear),
        ties: LabelTies::Nearest,
    }
}

fn geometry(example: &Value) -> Geometry {
    let (spacing, flipped) = (three(&example["spacing"]), numbers(&example["flipped"]));
    let mut rows = [[0.0; 4]; 3];
    for (stored, canonical) in shape(&example["order"]).into_iter().enumerate() {
        // Canonical depth, height and width are the world's z, y and x.
        rows[2 - canonical][stored] = if flipped[stored] == 1.0 { -spacing[stored] } else { spacing[stored] };
    }
    Geometry::new(shape(&example["shape"]), Affine(rows)).unwrap()
}

fn is_in(bounds: &Value, at: [usize; 3]) -> bool {
    let ends: Vec<Vec<f64>> = bounds.as_array().unwrap().iter().map(numbers).collect();
    (0..3).all(|axis| (ends[axis][0] as usize..ends[axis][1] as usize).contains(&at[axis]))
}

/// The images of an example, its earlier labels in the file after them.
fn write(example: &Value, folder: &Path) -> Case {
    let geometry = geometry(example);
    let [depth, height, width] = geometry.shape();
    let voxels = depth * height * width;
    let place = |at: usize| [at / (height * width), at / width % height, at % width];
    let mut images = Vec::new();
    for (channel, bounds) in example["boxes"].as_array().unwrap().iter().enumerate() {
        let value = |at: usize| match is_in(bounds, place(at)) && !is_in(&example["hole"], place(at)) {
            true => hash((channel * voxels + at) as u64) as f32 / 1000.0 - 500.0,
            false => 0.0,
        };
        let path = folder.join(format!("a_{channel:04}.nii"));
        write_image(&path, &geometry, 1, ElementType::F32, &(0..voxels).map(value).collect::<Vec<_>>());
        images.push(ChannelFile { path, index: 0 });
    }
    let labels: Vec<f32> = (0..voxels).map(|at| ((hash(at as u64 / 5) >> 10) % 4) as f32).collect();
    write_image(&folder.join("earlier.nii"), &geometry, 1, ElementType::U8, &labels);
    Case { id: "a".into(), images, label: None, reading: Reading::default() }
}

/// Opens an example, with its earlier labels or without.
fn open(
    example: &Value,
    folder: &Path,
    has_earlier: bool,
) -> Result<(PreparedCase, PreparedGrid), PrepareError> {
    let case = write(example, folder);
    let steps = steps(example);
    let budget = Budget::new(Bytes::mib(4));
    let going = AtomicBool::new(false);
    let channel = |(index, channel): (usize, &MaskedNormalisation)| Channel {
        name: index.to_string(),
        normalisation: channel.normalisation,
    };
    let channels: Vec<Channel> = steps.channels.iter().enumerate().map(channel).collect();
    let (problems, fingerprint) = inspect_images(&case, &channels, None, &budget, &going).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let fingerprint = fingerprint.unwrap();
    let foreground: IntensityProperties = serde_json::from_value(example["foreground"].clone()).unwrap();
    let foreground = BTreeMap::from_iter((0..channels.len()).map(|index| (index, foreground)));
    let stated = Spacing(three(&example["spacing"]));
    let grid = PreparedGrid::new(&fingerprint.geometry, stated, fingerprint.nonzero_box, &steps)?;
    let earlier = folder.join("earlier.nii");
    let what = Preparing {
        case: &case,
        fingerprint: &fingerprint,
        steps: &steps,
        foreground: &foreground,
        earlier: has_earlier.then_some((&earlier, 3)),
    };
    let cache = VolumeCache::new(Budget::new(Bytes::ZERO));
    let planned = grid.bytes(&steps, has_earlier)?;
    // It takes no more than it says.
    let prepared = PreparedCase::open(&what, grid.clone(), &cache, &Budget::new(planned), &going)?;
    Ok((prepared, grid))
}

fn scratch(bytes: Bytes) -> Scratch {
    Scratch::new(&Budget::new(Bytes::mib(16)), bytes).unwrap()
}

#[test]
fn windows_are_what_nnunet_makes_of_the_whole_image() {
    let examples = oracle("nnunet_voxels.json");
    let both = |example| [(example, true), (example, false)];
    let mut changed = 0;
    for (example, has_earlier) in examples.as_array().unwrap().iter().flat_map(both) {
        let name = &example["name"];
        let folder = tempfile::tempdir().unwrap();
        let (mut prepared, grid) = open(example, folder.path(), has_earlier).unwrap();
        let seen_shape: Vec<usize> =
            numbers(&example["seen_shape"]).iter().map(|extent| *extent as usize).collect();
        assert_eq!(grid.grid().shape()[..], seen_shape[1..], "{name}");
        let extent = grid.grid().shape();
        let voxels: usize = extent.iter().product();
        // Where there are earlier labels, and they change how the image is normalised.
        let after = numbers(&example["seen_after"]);
        let is_changed = has_earlier && !after.is_empty();
        let expected = if is_changed { after } else { numbers(&example["seen"]) };
        changed += usize::from(is_changed);
        let images = seen_shape[0];
        let range = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        let labels: Vec<char> = example["labels"].as_str().unwrap().chars().collect();
        // Whole, in pieces that barely fit, and by small windows that reach beyond the image.
        let window = [5, 6, 7];
        let least = Bytes(2 * 4 * 45 * 45 * 45);
        for (window, scratch_bytes) in
            [(extent, PREPARED_SCRATCH), (extent, least), (window, PREPARED_SCRATCH)]
        {
            let mut scratch = scratch(scratch_bytes);
            let starts = |axis: usize| (-2..extent[axis] as i64).step_by(window[axis]);
            let mut compared = 0;
            for from in starts(0).flat_map(|d| starts(1).flat_map(move |h| starts(2).map(move |w| [d, h, w])))
            {
                let count: usize = window.iter().product();
                let mut out = vec![f32::NAN; count * prepared.channels()];
                prepared.window(from, window, &mut out, &mut scratch).unwrap();
                for (number, value) in out.iter().enumerate() {
                    let (channel, at) = (number / count, number % count);
                    let place = [at / (window[1] * window[2]), at / window[2] % window[1], at % window[2]];
                    let place = [0, 1, 2].map(|axis| from[axis] + place[axis] as i64);
                    let is_inside = (0..3).all(|axis| (0..extent[axis] as i64).contains(&place[axis]));
                    let [d, h, w] = place.map(|at| at as usize);
                    let expected = match is_inside {
                        false => 0.0,
                        true if channel < images => {
                            expected[channel * voxels + (d * extent[1] + h) * extent[2] + w]
                        }
                        true => {
                            let label =
                                labels[(d * extent[1] + h) * extent[2] + w].to_digit(10).unwrap() as usize;
                            f64::from(u8::from(label == channel + 1 - images))
                        }
                    };
                    compared += usize::from(is_inside);
                    let error = (f64::from(*value) - expected).abs();
                    assert!(
                        error <= 1e-5 * range,
                        "{name}: channel {channel} at {place:?} is {value}, not {expected}, windows of {window:?}"
                    );
                }
            }
            assert_eq!(compared, voxels * (images + 3 * usize::from(has_earlier)), "{name}");
        }
    }
    assert_eq!(changed, 4);
}

#[test]
fn impossible_steps_and_labels_of_another_image_are_refused() {
    let examples = oracle("nnunet_voxels.json");
    let example = &examples[0];
    let stored = geometry(example);
    let refusal = |steps: NnUnetSteps| {
        let nonzero = plimsoll_volume::VoxelBox::whole(stored.shape());
        let error = PreparedGrid::new(&stored, stored.spacing(), nonzero, &steps).unwrap_err();
        assert!(error.remedy().is_some());
        error.to_string()
    };
    assert!(refusal(NnUnetSteps { transposed: [0, 1, 1], ..steps(example) }).contains("[0, 1, 1]"));
    assert!(refusal(NnUnetSteps { transposed: [0, 1, 3], ..steps(example) }).contains("[0, 1, 3]"));
    let spline = resizing(Interpolation::Cubic);
    assert!(refusal(NnUnetSteps { logits: spline, ..steps(example) }).starts_with("logits"));
    assert!(refusal(NnUnetSteps { labels: spline, ..steps(example) }).starts_with("labels"));

    let folder = tempfile::tempdir().unwrap();
    let case = write(example, folder.path());
    let budget = Budget::new(Bytes::mib(4));
    let going = AtomicBool::new(false);
    let channels = [Channel { name: "0".into(), normalisation: Normalisation::ZScore }];
    let fingerprint = inspect_images(&case, &channels, None, &budget, &going).unwrap().1.unwrap();
    let steps = steps(example);
    let grid = PreparedGrid::new(&stored, stored.spacing(), fingerprint.nonzero_box, &steps).unwrap();
    let other = folder.path().join("other.nii");
    let small = Geometry::new([2, 3, 4], *stored.affine()).unwrap();
    write_image(&other, &small, 1, ElementType::U8, &[0.0; 24]);
    let none = BTreeMap::new();
    let open = |case: &Case, earlier: Option<&Path>, stop: bool| {
        let earlier = earlier.map(|path| (path, 3));
        let what = Preparing { case, fingerprint: &fingerprint, steps: &steps, foreground: &none, earlier };
        let cache = VolumeCache::new(Budget::new(Bytes::ZERO));
        PreparedCase::open(&what, grid.clone(), &cache, &budget, &AtomicBool::new(stop)).err().unwrap()
    };
    assert!(matches!(open(&case, Some(&other), false), PrepareError::EarlierShape { found: [2, 3, 4], .. }));
    let two = Case { images: [case.images.clone(), case.images.clone()].concat(), ..case.clone() };
    assert!(matches!(open(&two, None, false), PrepareError::Channels { found: 2, expected: 1 }));
    let earlier = folder.path().join("earlier.nii");
    assert!(matches!(open(&case, Some(&earlier), true), PrepareError::Stopped));
}
