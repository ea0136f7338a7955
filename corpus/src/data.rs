//! Files that describe data sets.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use plimsoll_data::{
    Case, Channel, ChannelFile, Dataset, InspectConfig, Inspection, Labels, Layout, Normalisation, Reading,
    Splits, is_case_name,
};
use plimsoll_memory::{Budget, Bytes};

use crate::folder::Folder;

/// Names of the cases that data sets have here.
const CASES: [&str; 3] = ["a", "b", "c"];

/// Room for an index of foreground voxels, and to read a fingerprint.
const ROOM: Bytes = Bytes::mib(4);

thread_local! {
    /// A data set of either layout but for its description; images are never opened.
    static DATASET: Folder = {
        let folder = Folder::new();
        for case in CASES {
            for name in ["imagesTr/CASE_0000.nii.gz", "imagesTr/CASE.nii.gz", "labelsTr/CASE.nii.gz"] {
                folder.write(&name.replace("CASE", case), b"");
            }
        }
        folder.write("imagesTs/d_0000.nii.gz", b"");
        folder
    };
}

/// A `dataset.json` of a folder with a few images.
pub fn dataset(bytes: &[u8]) {
    DATASET.with(|folder| {
        folder.write("dataset.json", bytes);
        match Dataset::open(folder.path()) {
            Ok(dataset) => dataset.cases.iter().chain(&dataset.test_cases).for_each(|case| {
                assert!(is_case_name(&case.id), "{:?}", case.id);
                case.files().for_each(|file| assert_inside(file, folder.path()));
            }),
            Err(error) => {
                assert!(error.to_string().contains(&*folder.path().to_string_lossy()), "{error}");
                error.remedy();
            }
        }
    });
}

fn assert_inside(file: &Path, folder: &Path) {
    let rest = file.strip_prefix(folder);
    let is_inside =
        |rest: &Path| rest.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    assert!(rest.is_ok_and(is_inside), "{}", file.display());
}

/// A `splits_final.json`.
pub fn splits(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.write("splits_final.json", bytes);
    let ids = CASES.map(str::to_string);
    match Splits::read(&path, &ids, &Budget::new(ROOM)) {
        Ok(splits) => {
            assert!(!splits.folds.is_empty());
            let named = splits.folds.iter().flat_map(|fold| fold.train.iter().chain(&fold.val));
            named.for_each(|case| assert!(ids.contains(case), "{case}"));
        }
        Err(error) => {
            assert!(error.to_string().contains("splits_final.json"), "{error}");
            error.remedy();
        }
    }
}

/// An `inspection.jsonl`, then a zero, the length of a `foreground_index.bin` in two bytes, little-endian, that, and a
/// `nonzero_masks.bin`.
pub fn fingerprint(bytes: &[u8]) {
    is_fingerprint(bytes);
}

/// Uses bytes as the stored inspection of the data set here. Returns `true` if they are one.
pub fn is_fingerprint(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let folder = Folder::with("inspection.jsonl", parts.next().unwrap_or_default());
    let rest = parts.next().unwrap_or_default();
    let (length, rest) = rest.split_at(rest.len().min(2));
    let length = length.iter().rev().fold(0, |length, byte| (length << 8) | usize::from(*byte));
    let (index, masks) = rest.split_at(length.min(rest.len()));
    folder.write("foreground_index.bin", index);
    folder.write("nonzero_masks.bin", masks);
    let Some(dataset) = known_dataset() else { return false };
    let budget = Budget::new(ROOM);
    let config = InspectConfig { threads: 1, seed: 0 };
    let read = Inspection::load_if_current(folder.path(), &dataset, config, &budget);
    let is_known = matches!(read, Ok(Some(_)));
    if let Ok(Some(inspection)) = &read {
        use_inspection(inspection, &dataset);
    }
    drop(read);
    assert_eq!(budget.used(), Bytes::ZERO);
    is_known
}

/// Uses an inspection as a run does.
fn use_inspection(inspection: &Inspection, dataset: &Dataset) {
    let Some(fingerprint) = &inspection.fingerprint else { return };
    assert_eq!(fingerprint.cases.len(), inspection.foreground.len());
    let mut channels = dataset.channels.clone();
    inspection.choose_masks(&mut channels);
    for (case, index) in fingerprint.cases.iter().zip(&inspection.foreground) {
        let shape = case.geometry.shape();
        for class in index.present() {
            assert!(dataset.labels.is_foreground(class));
            let positions = index.positions(class);
            for voxel in (0..positions.len()).filter_map(|nth| positions.voxel(nth, shape)) {
                assert!(voxel.iter().zip(shape).all(|(at, extent)| *at < extent), "{voxel:?} of {shape:?}");
            }
        }
        let foreground = &fingerprint.foreground_intensity_properties_per_channel;
        // Without any foreground there may be none.
        let _ = case.intensities(&channels, foreground);
    }
}

/// The data set whose fingerprint is read. Its files are not there, so none of them has changed.
fn known_dataset() -> Option<Dataset> {
    let folder = Path::new("/nowhere/plimsoll-corpus").to_path_buf();
    let case = |id: &str| Case {
        id: id.into(),
        images: vec![ChannelFile { path: folder.join(format!("imagesTr/{id}_0000.nii.gz")), index: 0 }],
        label: Some(folder.join(format!("labelsTr/{id}.nii.gz"))),
        reading: Reading::default(),
    };
    Some(Dataset {
        name: "corpus".into(),
        layout: Layout::NnUnet,
        channels: vec![Channel { name: "T1".into(), normalisation: Normalisation::for_channel("T1") }],
        labels: labels()?,
        file_ending: ".nii.gz".into(),
        cases: CASES.map(case).into(),
        test_cases: Vec::new(),
        folds: BTreeMap::new(),
        warnings: Vec::new(),
        memory: Default::default(),
        folder,
    })
}

fn labels() -> Option<Labels> {
    serde_json::from_str(r#"{"names": ["background", "vessel"], "ignore": null}"#).ok()
}
