//! Label maps whose files name their values: classes follow from the names.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use plimsoll_data::{
    DataOptions, DataSettings, Dataset, FoundData, InspectConfig, Inspection, LabelCensus, SegmentRule,
    SegmentsBy, Severity,
};
use plimsoll_memory::{Budget, Bytes};

const GRID: [usize; 3] = [4, 4, 4];

/// A file of NRRD of bytes, of voxels of 1 mm, with segments of these names and values.
fn nrrd(path: &Path, sizes: [usize; 3], origin: usize, segments: &[(&str, u8)], voxels: &[u8]) {
    let [w, h, d] = sizes;
    let mut text = format!(
        "NRRD0004\ntype: uchar\ndimension: 3\nspace: left-posterior-superior\nsizes: {w} {h} {d}\n\
         space directions: (1,0,0) (0,1,0) (0,0,1)\nkinds: domain domain domain\nencoding: raw\nspace origin: ({origin},{origin},{origin})\n"
    );
    for (at, (name, value)) in segments.iter().enumerate() {
        text += &format!("Segment{at}_Name:={name}\nSegment{at}_LabelValue:={value}\nSegment{at}_Layer:=0\n");
    }
    text.push('\n');
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [text.as_bytes(), voxels].concat()).unwrap();
}

/// Two cases, of 3 voxels of the organ and 2 of the tumour each; the second has other values, and its segmentation is cropped.
fn data_set(folder: &Path, first: [(&str, u8); 2], second: [(&str, u8); 2]) {
    for case in ["a", "b"] {
        let voxels: Vec<u8> = (0..64).collect();
        nrrd(&folder.join(format!("raw/{case}.nrrd")), GRID, 0, &[], &voxels);
    }
    let mut labels = [0; 64];
    let [(_, organ), (_, tumour)] = first;
    labels[..5].copy_from_slice(&[organ, organ, organ, tumour, tumour]);
    nrrd(&folder.join("seg/a.seg.nrrd"), GRID, 0, &first, &labels);
    let [(_, organ), (_, tumour)] = second;
    let labels = [organ, 0, organ, 0, tumour, tumour, 0, organ];
    nrrd(&folder.join("seg/b.seg.nrrd"), [2, 2, 2], 1, &second, &labels);
}

fn described(folder: &Path, more: &str) {
    let text = r#"{"channel_names": {"0": "CT"}, "labels": {"background": 0, "organ": 1, "tumour": 2}, MORE "file_ending": ".nrrd",
        "numTraining": 2, "dataset": {"a": {"images": ["raw/a.nrrd"], "label": "seg/a.seg.nrrd"},
        "b": {"images": ["raw/b.nrrd"], "label": "seg/b.seg.nrrd"}}}"#;
    fs::write(folder.join("dataset.json"), text.replace("MORE", more)).unwrap();
}

fn inspected(dataset: &Dataset) -> Inspection {
    let config = InspectConfig { threads: 1, seed: 0 };
    Inspection::run(dataset, config, &Budget::new(Bytes::mib(32)), &|_, _| ()).unwrap()
}

fn errors(inspection: &Inspection) -> Vec<String> {
    let errors = inspection.problems.iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(ToString::to_string).collect()
}

fn counts(dataset: &Dataset) -> Vec<Vec<u64>> {
    let inspection = inspected(dataset);
    assert_eq!(errors(&inspection), [""; 0]);
    let fingerprint = inspection.fingerprint.unwrap();
    fingerprint.cases.iter().map(|case| case.label_voxels.clone()).collect()
}

fn census(found: &FoundData) -> LabelCensus {
    LabelCensus::take(found, 2, &Budget::new(Bytes::mib(8)), &|_| ()).unwrap()
}

#[test]
fn files_that_number_the_same_classes_differently_are_read_by_name() {
    let dir = tempfile::tempdir().unwrap();
    data_set(dir.path(), [("organ", 1), ("tumour", 2)], [("Organ", 2), ("TUMOUR", 1)]);
    described(dir.path(), "");
    let dataset = Dataset::open(dir.path()).unwrap();
    assert_eq!(counts(&dataset), [[59, 3, 2], [59, 3, 2]]);
    // By value, as files were read before, the classes of the second are mixed.
    described(dir.path(), r#""segments": "values","#);
    assert_eq!(counts(&Dataset::open(dir.path()).unwrap()), [[59, 3, 2], [59, 2, 3]]);
    let by_value = SegmentRule::By(SegmentsBy::Values);
    let data = DataSettings { segments: Some(by_value), ..DataSettings::default() };
    described(dir.path(), "");
    let options = DataOptions { data, ..DataOptions::default() };
    assert_eq!(
        counts(&Dataset::open_with(dir.path(), &options, &Budget::new(Bytes::mib(64))).unwrap())[1],
        [59, 2, 3]
    );
}

#[test]
fn a_name_that_no_class_has_is_an_error_and_can_be_said_to_be_one() {
    let dir = tempfile::tempdir().unwrap();
    data_set(dir.path(), [("organ", 1), ("tumour", 2)], [("Segment_1", 2), ("tumour", 1)]);
    described(dir.path(), "");
    let said = errors(&inspected(&Dataset::open(dir.path()).unwrap()));
    assert!(said.len() == 1 && said[0].contains("b.seg.nrrd"), "{said:?}");
    assert!(said[0].contains("3 voxels are \"Segment_1\" (the value 2), which is not a label"), "{said:?}");
    described(dir.path(), r#""segments": {"Segment_1": "organ"},"#);
    assert_eq!(counts(&Dataset::open(dir.path()).unwrap()), [[59, 3, 2], [59, 3, 2]]);
}

#[test]
fn a_value_without_a_segment_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    data_set(dir.path(), [("organ", 1), ("tumour", 2)], [("organ", 1), ("tumour", 2)]);
    nrrd(&dir.path().join("seg/b.seg.nrrd"), [2, 2, 2], 1, &[("organ", 1)], &[1, 0, 0, 0, 0, 0, 0, 2]);
    described(dir.path(), "");
    let said = errors(&inspected(&Dataset::open(dir.path()).unwrap()));
    assert!(said[0].contains("1 voxels are 2, which has no name in the file"), "{said:?}");
}

#[test]
fn without_a_description_classes_are_the_names_in_the_files() {
    let dir = tempfile::tempdir().unwrap();
    data_set(dir.path(), [("organ", 1), ("tumour", 2)], [("organ", 2), ("tumour", 1)]);
    let found =
        FoundData::find(dir.path(), &DataOptions::default(), &Budget::new(Bytes::mib(64))).unwrap().unwrap();
    let census = census(&found);
    assert!(census.warning().unwrap().contains("\"organ\" is 1 and 2"), "{:?}", census.warning());
    let labels = census.labels(&found).unwrap();
    assert_eq!(labels.names(), ["background", "organ", "tumour"]);
    assert_eq!(counts(&found.with_labels(labels)), [[59, 3, 2], [59, 3, 2]]);
    // Values with gaps are no question where names say what they are.
    data_set(dir.path(), [("organ", 5), ("tumour", 9)], [("organ", 5), ("tumour", 9)]);
    let found =
        FoundData::find(dir.path(), &DataOptions::default(), &Budget::new(Bytes::mib(64))).unwrap().unwrap();
    let census = self::census(&found);
    assert_eq!(census.warning(), None);
    let labels = census.labels(&found).unwrap();
    assert_eq!(labels.other_values(), [("organ", 5), ("tumour", 9)]);
    assert_eq!(counts(&found.with_labels(labels)), [[59, 3, 2], [59, 3, 2]]);
}

#[test]
fn a_table_of_bids_is_of_the_label_map_that_it_is_nearest_to() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let mut labels = [0; 64];
    labels[..3].fill(1);
    labels[3..5].fill(2);
    for subject in ["sub-01", "sub-02"] {
        nrrd(
            &root.join(format!("{subject}/anat/{subject}_T1w.nrrd")),
            GRID,
            0,
            &[],
            &(0..64).collect::<Vec<u8>>(),
        );
        let label = root.join(format!("derivatives/manual/{subject}/anat/{subject}_dseg.nrrd"));
        nrrd(&label, GRID, 0, &[], &labels);
    }
    let table = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
    table("derivatives/manual/dseg.tsv", "index\tname\n0\tbackground\n1\torgan\n2\ttumour\n");
    table("derivatives/manual/sub-02/anat/sub-02_dseg.tsv", "\u{feff}index\tname\n1\ttumour\n2\torgan\n");
    let find = || FoundData::find(root, &DataOptions::default(), &Budget::new(Bytes::mib(64)));
    let found = find().unwrap().unwrap();
    let labels = census(&found).labels(&found).unwrap();
    assert_eq!(labels.names(), ["background", "organ", "tumour"]);
    let dataset = found.with_labels(labels);
    assert_eq!(counts(&dataset), [[59, 3, 2], [59, 2, 3]]);
    // What was inspected is of these tables.
    let kept = tempfile::tempdir().unwrap();
    let config = InspectConfig { threads: 1, seed: 0 };
    inspected(&dataset).save(kept.path(), &dataset).unwrap();
    let budget = Budget::new(Bytes::mib(8));
    assert!(Inspection::load_if_current(kept.path(), &dataset, config, &budget).unwrap().is_some());
    let mut other = dataset.clone();
    other.cases[1].reading.label_values =
        Arc::clone(dataset.cases[0].reading.label_values.as_ref().unwrap()).into();
    assert!(Inspection::load_if_current(kept.path(), &other, config, &budget).unwrap().is_none());
    table("derivatives/manual/dseg.tsv", "index\tname\n1\torgan\n1\ttumour\n");
    let said = find().unwrap_err().to_string();
    assert!(said.contains("dseg.tsv: the value 1 has the names \"organ\" and \"tumour\""), "{said}");
}

#[test]
fn a_description_without_its_folders_says_which_are_missing_and_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    data_set(dir.path(), [("organ", 1), ("tumour", 2)], [("organ", 1), ("tumour", 2)]);
    let text = r#"{"channel_names": {"0": "CT"}, "labels": {"background": 0, "organ": 1, "tumour": 2}, "file_ending": ".nrrd",
        "numTraining": 2}"#;
    // Windows' editors begin a text of UTF-8 with a mark.
    fs::write(dir.path().join("dataset.json"), format!("\u{feff}{text}")).unwrap();
    let error = Dataset::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("there is no folder imagesTr"), "{error}");
    assert!(error.remedy().unwrap().contains("layout = \"pairs\""));
    // What the hint says is accepted.
    let data = DataSettings { layout: Some(plimsoll_data::LayoutName::Pairs), ..DataSettings::default() };
    let options = DataOptions { data, ..DataOptions::default() };
    let found = FoundData::find(dir.path(), &options, &Budget::new(Bytes::mib(64))).unwrap().unwrap();
    assert_eq!(census(&found).labels(&found).unwrap().names(), ["background", "organ", "tumour"]);
}

#[test]
fn tables_of_spreadsheets_in_other_countries_are_read() {
    let dir = tempfile::tempdir().unwrap();
    data_set(dir.path(), [("organ", 1), ("tumour", 2)], [("organ", 2), ("tumour", 1)]);
    for separator in [",", ";", "\t"] {
        let text = "\u{feff}case,image,label\na,raw/a.nrrd,seg/a.seg.nrrd\nb,raw/b.nrrd,seg/b.seg.nrrd\n";
        let table = dir.path().join("cases.csv");
        fs::write(&table, text.replace(',', separator)).unwrap();
        let found =
            FoundData::find(&table, &DataOptions::default(), &Budget::new(Bytes::mib(64))).unwrap().unwrap();
        let labels = census(&found).labels(&found).unwrap();
        assert_eq!(counts(&found.with_labels(labels)), [[59, 3, 2], [59, 3, 2]], "{separator:?}");
    }
}

#[test]
fn labels_above_255_are_refused_with_their_number_and_read_by_name() {
    let dir = tempfile::tempdir().unwrap();
    data_set(dir.path(), [("organ", 1), ("tumour", 2)], [("organ", 1), ("tumour", 2)]);
    described(dir.path(), "");
    let path = dir.path().join("dataset.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"tumour\": 2", "\"tumour\": 1035")).unwrap();
    let error = Dataset::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("the label `tumour` has the value 1035"), "{error}");
    assert!(error.remedy().unwrap().contains("labels[labels == 1035]"), "{:?}", error.remedy());
    // By name no value has to be said.
    fs::write(&path, text).unwrap();
    let labels = dir.path().join("seg/b.seg.nrrd");
    let wide: Vec<u8> =
        [1000u16, 0, 1000, 0, 1035, 1035, 0, 1000].into_iter().flat_map(u16::to_le_bytes).collect();
    let header = "NRRD0004\ntype: ushort\ndimension: 3\nspace: left-posterior-superior\nsizes: 2 2 2\nspace directions: (1,0,0) (0,1,0) (0,0,1)\n\
                  endian: little\nencoding: raw\nspace origin: (1,1,1)\nSegment0_Name:=organ\nSegment0_LabelValue:=1000\nSegment1_Name:=tumour\n\
                  Segment1_LabelValue:=1035\n\n";
    fs::write(labels, [header.as_bytes(), &wide].concat()).unwrap();
    assert_eq!(counts(&Dataset::open(dir.path()).unwrap()), [[59, 3, 2], [59, 3, 2]]);
}
