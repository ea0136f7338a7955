//! Target maps: correct, computed only for the steps that need them, within the announced memory.

use std::sync::{Arc, Mutex};

use crate::support::{ids, inspect, phantom};
use plimsoll_data::{
    BatchReader, BatchShape, Dataset, Fold, Inspection, Loader, LoaderConfig, Mode, PatchGrid, Patches,
    SampleShape, Sampler, SamplerConfig, TargetKind, TargetMap, Targets, VolumeCache,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_morphology::{Distance, EdtOptions, edt, scratch_bytes};

const PATCH: [usize; 3] = [16, 20, 13];
const COARSE: [usize; 3] = [8, 10, 7];
const SPACING: [f64; 3] = [2.0, 0.7, 0.7];
const SIGNED: EdtOptions = EdtOptions { distance: Distance::Signed, squared: false };

/// Two maps, the second of which is for every third step and validation; of one class that is present and one that is
/// absent.
fn targets(asked: Arc<Mutex<Vec<(u64, usize)>>>) -> Targets {
    let map = |extent, validation| TargetMap {
        extent,
        kind: TargetKind::Distance { spacing: SPACING },
        training: true,
        validation,
    };
    Targets {
        maps: vec![map(PATCH, false), map(COARSE, true)],
        foreground: 2,
        ignore: None,
        needed: Some(Arc::new(move |step, map| {
            asked.lock().unwrap().push((step, map));
            map == 0 || step % 3 == 0
        })),
    }
}

fn patches(dataset: &Dataset, inspection: &Arc<Inspection>, targets: Targets) -> Arc<Patches> {
    let spacing = inspection.fingerprint.as_ref().unwrap().target_spacing;
    let config = SamplerConfig::new(PatchGrid { patch: PATCH, spacing: spacing.into() }, 2);
    let sampler = Sampler::new(Arc::clone(inspection), &Fold::all(&ids(dataset)), config).unwrap();
    let cache = Arc::new(VolumeCache::new(Budget::new(Bytes::mib(16))));
    Arc::new(Patches::new(dataset, sampler, cache).unwrap().with_targets(targets))
}

/// Distances to class 1, then to class 2, which is absent.
fn expected(labels: &[u8], extent: [usize; 3]) -> Vec<f32> {
    let mut out = Vec::new();
    for sample in labels.chunks_exact(PATCH.iter().product()) {
        // `nearest-exact`: the middle of a coarse voxel.
        let near =
            |axis: usize, at: usize| ((at as f64 + 0.5) * PATCH[axis] as f64 / extent[axis] as f64) as usize;
        let place = |at: usize| {
            let [d, h, w] = [at / extent[1] / extent[2], at / extent[2] % extent[1], at % extent[2]];
            (near(0, d) * PATCH[1] + near(1, h)) * PATCH[2] + near(2, w)
        };
        let count = extent.iter().product();
        let mask: Vec<bool> = (0..count).map(|at| sample[place(at)] == 1).collect();
        let mut distances = vec![0.0; count];
        let mut scratch = vec![0; scratch_bytes(extent, &SIGNED, 1)];
        edt(&mask[..], extent, SPACING, &SIGNED, &mut distances, &mut scratch, 1).unwrap();
        out.extend(distances);
        out.extend(vec![f32::INFINITY; count]);
    }
    out
}

#[test]
fn batches_come_with_exact_distances_on_the_steps_that_need_them() {
    let (_folder, dataset) = phantom(3);
    let inspection = Arc::new(inspect(&dataset));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let targets = targets(Arc::clone(&asked));
    let config = LoaderConfig {
        mode: Mode::Training,
        seed: 4,
        first_step: 0,
        batch_size: 2,
        numbers: plimsoll_data::SampleNumbers::ALL,
        slots: 3,
        threads: 2,
        scratch: Bytes(64 << 10),
    };
    let bytes = config.bytes(SampleShape::patch(1, PATCH), &targets).unwrap();
    let plain = config.bytes(SampleShape::patch(1, PATCH), &Targets::default()).unwrap();
    let maps: usize = [PATCH, COARSE].iter().map(|extent| extent.iter().product::<usize>() * 2 * 2 * 4).sum();
    assert!(bytes - plain >= Bytes::from_len(3 * maps), "{bytes} with maps, {plain} without");
    let budget = Budget::new(bytes);
    let patches = patches(&dataset, &inspection, targets.clone());
    let mut loader = Loader::start(config, patches.clone(), &budget).unwrap();
    assert_eq!(budget.used(), bytes);
    for step in 0..7 {
        let batch = loader.next_batch().unwrap();
        assert!(batch.target(0) == expected(batch.labels(), PATCH), "step {step}");
        let coarse = expected(batch.labels(), COARSE);
        assert_eq!(batch.target(1) == coarse, step % 3 == 0, "step {step}");
    }
    drop(loader);
    assert_eq!(budget.peak(), bytes);
    assert!(asked.lock().unwrap().contains(&(3, 1)));
    // Validation has the second map alone, on every step.
    let shape = BatchShape { batch_size: 2, sample: SampleShape::patch(1, PATCH) };
    let bytes = BatchReader::bytes(shape, Mode::Validation, Bytes(64 << 10), &targets).unwrap();
    let budget = Budget::new(bytes);
    let mut reader = BatchReader::new(patches, Mode::Validation, 4, 2, Bytes(64 << 10), &budget).unwrap();
    assert_eq!(budget.used(), bytes);
    let batch = reader.load(1).unwrap();
    assert!(batch.target(0).is_empty());
    assert!(batch.target(1) == expected(batch.labels(), COARSE));
}

#[test]
fn an_invalid_spacing_is_refused_before_anything_is_reserved() {
    let mut targets = targets(Arc::default());
    targets.maps[1].kind = TargetKind::Distance { spacing: [1.0, f64::NAN, 1.0] };
    let shape = BatchShape { batch_size: 1, sample: SampleShape::patch(1, PATCH) };
    let error = BatchReader::bytes(shape, Mode::Validation, Bytes(4096), &targets).unwrap_err();
    assert!(error.to_string().starts_with("label map: "), "{error}");
}
