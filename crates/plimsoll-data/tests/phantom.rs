//! The synthetic data set.

use std::fs;

use crate::support::{ids, inspect};
use plimsoll_data::phantom::{PhantomConfig, PhantomError, write};
use plimsoll_data::{Dataset, Normalisation, Splits};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::StoredVolume;

fn small(seed: u64) -> PhantomConfig {
    PhantomConfig { cases: 6, test_cases: 1, size: [32, 48], seed, ..PhantomConfig::default() }
}

#[test]
fn files_depend_on_the_seed_alone() {
    let make = |seed| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &small(seed)).unwrap();
        let dataset = Dataset::open(folder.path()).unwrap();
        let bytes: Vec<Vec<u8>> = dataset
            .cases
            .iter()
            .flat_map(|case| case.files().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>())
            .collect();
        bytes
    };
    assert!(make(1) == make(1));
    assert!(make(1) != make(2));
}

#[test]
fn cases_vary_like_those_of_real_data_sets() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &small(3)).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    assert_eq!((dataset.cases.len(), dataset.test_cases.len(), dataset.warnings.len()), (6, 1, 0));
    assert_eq!(dataset.channels[0].normalisation, Normalisation::ZScore);
    assert!(folder.path().join("labelsTs/vessel_test_000.nii.gz").is_file());
    let inspection = inspect(&dataset);
    assert_eq!(inspection.problems.len(), 1, "the outlier: {:?}", inspection.problems);
    let cases = inspection.fingerprint.unwrap().cases;
    let orientations: Vec<String> =
        cases.iter().map(|case| case.geometry.orientation().to_string()).collect();
    assert!(orientations.iter().any(|letters| *letters != orientations[0]), "{orientations:?}");
    let outliers: Vec<&str> = cases
        .iter()
        .filter(|case| case.spacing().0.iter().all(|length| (length - 0.00497).abs() < 1e-8))
        .map(|case| case.id.as_str())
        .collect();
    let splits = Splits::make(&ids(&dataset)).unwrap();
    assert_eq!(outliers.len(), 1);
    assert!(splits.folds[0].train.contains(&outliers[0].to_string()));
    for case in &cases {
        let share = case.label_voxels[1] as f64 / case.geometry.voxel_count() as f64;
        assert!((0.01..0.25).contains(&share), "{}: {share}", case.id);
    }
}

#[test]
fn no_threshold_segments_the_vessels() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &PhantomConfig { size: [48, 64], ..small(1) }).unwrap();
    for case in Dataset::open(folder.path()).unwrap().cases {
        let budget = Budget::new(Bytes::mib(8));
        let image = StoredVolume::read(&case.images[0].path, &budget, "test").unwrap();
        let labels = StoredVolume::read(case.label.unwrap(), &budget, "test").unwrap();
        let whole = plimsoll_volume::VoxelBox::whole(image.geometry().shape());
        let mut values = vec![0.0; image.geometry().voxel_count()];
        image.region_f32(0, whole, &mut values).unwrap();
        let mut order: Vec<(f32, u8)> = values.into_iter().zip(labels.bytes().iter().copied()).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0));
        let vessels = order.iter().filter(|(_, label)| *label == 1).count() as f64;
        let mut hits = 0.0;
        let best = order.iter().enumerate().fold(0.0, |best: f64, (at, (_, label))| {
            hits += f64::from(*label);
            best.max(2.0 * hits / (at as f64 + 1.0 + vessels))
        });
        assert!(best < 0.6, "{}: the best threshold has Dice {best}", case.id);
    }
}

#[test]
fn settings_out_of_range_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for (config, text) in [
        (PhantomConfig { cases: 0, ..small(1) }, "`cases` of the phantom is 0"),
        (PhantomConfig { size: [8, 48], ..small(1) }, "`size` of the phantom is 8 to 48"),
        (PhantomConfig { size: [64, 48], ..small(1) }, "`size` of the phantom is 64 to 48"),
    ] {
        let error = write(folder.path(), &config).unwrap_err();
        assert!(error.to_string().starts_with(text), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(write(&file, &small(1)), Err(PhantomError::Io { .. })));
}
