//! Finding cases however files are laid out.

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_data::{
    DataOptions, DataSettings, Dataset, DatasetError, FoundData, LabelCensus, Labels, LayoutName, Names,
    Splits,
};
use plimsoll_disk::faults::{Fault, FaultKind, inject};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::ElementType;
use serde_json::json;
use support::{block, grid, write_image};

/// Finds a data set within the memory that tests have.
fn find(place: &Path, options: &DataOptions) -> Result<Option<FoundData>, DatasetError> {
    FoundData::find(place, options, &Budget::new(Bytes::mib(64)))
}

const SHAPE: [usize; 3] = [6, 8, 8];

/// A folder in which empty files and small volumes are put.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(files: &[&str]) -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        files.iter().for_each(|file| place.touch(file));
        place
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn touch(&self, file: &str) {
        self.write(file, "");
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A label map whose block in the middle has this value.
    fn labels(&self, file: &str, value: u8) {
        let voxels: Vec<f32> = block(SHAPE).iter().map(|label| f32::from(*label * value)).collect();
        write_image(&self.path().join(file), &grid(SHAPE, [1.0; 3]), 1, ElementType::U8, &voxels);
    }

    fn image(&self, file: &str, channels: usize) {
        let voxels: Vec<f32> = (0..384 * channels).map(|at| at as f32).collect();
        write_image(&self.path().join(file), &grid(SHAPE, [1.0; 3]), channels, ElementType::I16, &voxels);
    }

    fn find(&self) -> FoundData {
        self.find_with(&DataOptions::default())
    }

    fn find_with(&self, options: &DataOptions) -> FoundData {
        find(self.path(), options).unwrap().unwrap()
    }

    /// The error, which must have a hint.
    fn refused(&self, options: &DataOptions) -> String {
        let error = find(self.path(), options).unwrap_err();
        format!("{error}\n{}", error.remedy().unwrap())
    }
}

/// Each case with its files, relative to the folder.
fn files(found: &FoundData) -> Vec<String> {
    let relative = |path: &Path| path.strip_prefix(&found.folder).unwrap().display().to_string();
    let line = |case: &plimsoll_data::Case| {
        let images: Vec<String> = case.images.iter().map(|file| relative(&file.path)).collect();
        format!("{}: {} | {}", case.id, images.join(" "), relative(case.label.as_deref().unwrap()))
    };
    found.cases.iter().map(line).collect()
}

fn with(data: DataSettings) -> DataOptions {
    DataOptions { data, ..DataOptions::default() }
}

fn names(list: &[&str]) -> Option<Names> {
    Some(Names::Several(list.iter().map(|name| name.to_string()).collect()))
}

#[test]
fn pairs_of_folders_are_matched_by_names() {
    let place = Place::new(&["raw/mv02.nii", "raw/mv01.nii.gz", "seg/mv01_y.nii.gz", "seg/mv02_seg.nii.gz"]);
    place.touch("raw/._mv01.nii.gz");
    place.touch("readme.txt");
    place.touch("seg/mv99_y.nii.gz");
    let found = place.find();
    assert_eq!(
        files(&found),
        ["mv01: raw/mv01.nii.gz | seg/mv01_y.nii.gz", "mv02: raw/mv02.nii | seg/mv02_seg.nii.gz"]
    );
    assert_eq!(found.layout.to_string(), "pairs of folders raw/ + seg/");
    assert_eq!(found.channels[0].name, "image");
    assert!(found.labels.is_none());
    let warnings = found.warnings.join("\n");
    assert!(warnings.contains("mv99_y.nii.gz is left out: there is no image for it"), "{warnings}");
    assert!(warnings.contains("images have different endings: 1 in .nii, 1 in .nii.gz"), "{warnings}");
}

#[test]
fn folders_that_are_images_are_found_by_their_names_and_predicted_as_one() {
    let place =
        Place::new(&["raw/a.ome.zarr/.zattrs", "raw/b.tif/b_1.tif", "seg/a_seg.nii.gz", "seg/b_seg.nii.gz"]);
    let found = place.find();
    assert_eq!(files(&found), ["a: raw/a.ome.zarr | seg/a_seg.nii.gz", "b: raw/b.tif | seg/b_seg.nii.gz"]);
    let of = |named: &str| {
        let cases = Dataset::images(place.path().join(named), &found.channels, ".tif").unwrap();
        cases.into_iter().map(|case| case.id).collect::<Vec<_>>()
    };
    assert_eq!(of("raw/b.tif"), ["b"]);
    // A folder of another name is one of images.
    fs::rename(place.path().join("raw/b.tif"), place.path().join("slices")).unwrap();
    assert_eq!(of("slices"), ["b_1"]);
    assert_eq!(Dataset::input_ending(&place.path().join("raw"), ".nii.gz").unwrap(), ".ome.zarr");
    fs::rename(place.path().join("slices"), place.path().join("b.tif")).unwrap();
    assert_eq!(Dataset::input_ending(&place.path().join("b.tif"), ".nii.gz").unwrap(), ".tif");
}

#[test]
fn numbers_of_nnu_nets_channels_are_channels_but_numbers_of_cases_are_not() {
    let place = Place::new(&["images/a_0000.nii", "images/a_0001.nii", "labels/a.nii"]);
    let found = place.find();
    assert_eq!(files(&found), ["a: images/a_0000.nii images/a_0001.nii | labels/a.nii"]);
    let place =
        Place::new(&["images/c_0000.nii", "images/c_0001.nii", "labels/c_0000.nii", "labels/c_0001.nii"]);
    assert_eq!(
        files(&place.find()),
        ["c_0000: images/c_0000.nii | labels/c_0000.nii", "c_0001: images/c_0001.nii | labels/c_0001.nii"]
    );
}

#[test]
fn patterns_and_folders_say_what_names_do_not() {
    let place = Place::new(&["A/im_7_v2.nii", "B/7_GT.nii", "C/7.nii", "B/7_old.nii"]);
    let said = place.refused(&DataOptions::default());
    assert!(
        said.contains("no folder has the name of a folder of label maps; there are: A/, B/, C/"),
        "{said}"
    );
    let data = DataSettings {
        images: names(&["A/im_*_v2.nii", "C"]),
        labels: Some("B/*_GT.nii".into()),
        channels: Some(vec!["CT".into(), "PET".into()]),
        ..DataSettings::default()
    };
    let found = place.find_with(&with(data.clone()));
    assert_eq!(files(&found), ["7: A/im_7_v2.nii C/7.nii | B/7_GT.nii"]);
    assert_eq!(found.channels[0].name, "CT");
    let said = place.refused(&with(DataSettings { images: names(&["A/*_*.nii", "C"]), ..data.clone() }));
    assert!(said.contains("`A/*_*.nii` is not a pattern"), "{said}");
    let said = place.refused(&with(DataSettings { images: names(&["../A"]), ..data.clone() }));
    assert!(said.contains("is outside the data set's folder") && said.contains("‹allow_outside›"), "{said}");
    let said = place.refused(&with(DataSettings { channels: Some(vec!["CT".into()]), ..data.clone() }));
    assert!(said.contains("`data.channels` has 1 names, but there are 2 channels"), "{said}");
    let said = place.refused(&with(DataSettings { case: Some("id".into()), ..data }));
    assert!(said.contains("`data.case` is set, but has no effect on the layout `pairs`"), "{said}");
}

#[test]
fn patterns_of_one_folder_need_no_layout_to_be_named() {
    let place = Place::new(&["a_im.nii", "a_gt.nii", "b_im.nii", "b_gt.nii", "notes.txt"]);
    assert!(find(place.path(), &DataOptions::default()).unwrap().is_none());
    let data = DataSettings {
        images: names(&["*_im.nii"]),
        labels: Some("*_gt.nii".into()),
        ..DataSettings::default()
    };
    assert_eq!(files(&place.find_with(&with(data))), ["a: a_im.nii | a_gt.nii", "b: b_im.nii | b_gt.nii"]);
    // Folders within folders, and of pictures, as well.
    let place = Place::new(&["set/one/1.png", "set/two/1.png"]);
    let data = DataSettings {
        images: names(&["set/one"]),
        labels: Some("set/two".into()),
        ..DataSettings::default()
    };
    assert_eq!(files(&place.find_with(&with(data))), ["1: set/one/1.png | set/two/1.png"]);
}

#[test]
fn two_files_of_one_image_are_one() {
    let place = Place::new(&["raw/a.hdr", "raw/a.img", "seg/a.hdr.gz", "seg/a.img.gz"]);
    assert_eq!(files(&place.find()), ["a: raw/a.hdr | seg/a.hdr.gz"]);
}

#[test]
fn a_series_of_slices_is_an_image_in_all_layouts() {
    let slices = |folder: &str| ["1.dcm", "2.dcm"].map(|slice| format!("{folder}/{slice}"));
    let with_series = |series: &[&str], others: &[&str]| {
        let place = Place::new(others);
        series.iter().flat_map(|folder| slices(folder)).for_each(|slice| place.touch(&slice));
        place
    };
    let pairs = with_series(&["raw/p1", "raw/p2"], &["seg/p1.nii", "seg/p2.nii"]);
    let found = pairs.find();
    assert_eq!(files(&found), ["p1: raw/p1 | seg/p1.nii", "p2: raw/p2 | seg/p2.nii"]);
    assert_eq!(found.file_ending, ".dcm");
    let channels = with_series(&["raw/p1_0000", "raw/p1_0001"], &["seg/p1.nii"]);
    assert_eq!(files(&channels.find()), ["p1: raw/p1_0000 raw/p1_0001 | seg/p1.nii"]);

    let cases = with_series(&["p1/ct", "p2/ct"], &["p1/seg.nii", "p2/seg.nii"]);
    assert_eq!(files(&cases.find()), ["p1: p1/ct | p1/seg.nii", "p2: p2/ct | p2/seg.nii"]);
    // Right in the folder of the case, beside its label map.
    let beside = with_series(&["p1", "p2"], &["p1/seg.nii", "p2/seg.nii"]);
    assert_eq!(files(&beside.find()), ["p1: p1 | p1/seg.nii", "p2: p2 | p2/seg.nii"]);

    let table = with_series(&["scans/a", "scans/b"], &["a.nii", "b.nii"]);
    table.write("cases.csv", "id,image,label\na,scans/a,a.nii\nb,scans/b,b.nii\n");
    let of_table = find(&table.path().join("cases.csv"), &DataOptions::default()).unwrap().unwrap();
    assert_eq!(files(&of_table), ["a: scans/a | a.nii", "b: scans/b | b.nii"]);
    table.write(
        "datalist.json",
        r#"{"modality": {"0": "CT"}, "training": [{"image": "scans/a", "label": "a.nii"}, {"image": "scans/b", "label": "b.nii"}]}"#,
    );
    assert_eq!(files(&table.find()), ["a: scans/a | a.nii", "b: scans/b | b.nii"]);

    // What `inspect --write` writes is the same data set.
    let labels =
        Labels::from_values(Path::new("x"), &[("background".into(), 0), ("a".into(), 1)].into()).unwrap();
    let description = serde_json::to_value(found.description(&labels)).unwrap();
    assert_eq!(description["dataset"]["p2"], json!({"images": ["raw/p2"], "label": "seg/p2.nii"}));

    let alone = with_series(&["p1", "p2"], &[]);
    let said = alone.refused(&DataOptions::default());
    assert!(said.contains("p1 is a series of slices of DICOM") && said.contains("raw/CASE/"), "{said}");
    // What would be predicted into one file is told apart by nobody.
    let both = with_series(&["all/c1", "all/c2"], &["all/c2.dcm"]);
    let error = Dataset::images(both.path().join("all"), &found.channels, ".dcm").unwrap_err();
    assert!(error.to_string().contains("c2 and c2.dcm are two images of one name"), "{error}");
    // Files of which each is an image are no series of their folder.
    assert_eq!(files(&Place::new(&["raw/a.nii", "raw/b.nii", "seg/a.nii", "seg/b.nii"]).find()).len(), 2);
}

#[test]
fn missing_partners_and_ambiguous_names_are_named() {
    let place = Place::new(&["raw/a.nii", "raw/b.nii", "raw/c.nii", "seg/a.nii"]);
    let said = place.refused(&DataOptions::default());
    assert!(said.contains("case b has no label map in") && said.contains("(and 1 more)"), "{said}");
    let place = Place::new(&["raw/a.nii", "seg/a_mask.nii", "seg/a_seg.nii"]);
    let said = place.refused(&DataOptions::default());
    assert!(said.contains("case a has two label maps: a_mask.nii and a_seg.nii"), "{said}");
    let data = DataSettings { labels: Some("seg/*_seg.nii".into()), ..DataSettings::default() };
    assert_eq!(files(&place.find_with(&with(data))), ["a: raw/a.nii | seg/a_seg.nii"]);
    let place = Place::new(&["raw/a.nii", "seg1_seg/a.nii", "masks/a.nii"]);
    let said = place.refused(&DataOptions::default());
    assert!(
        said.contains("several folders have names of folders of label maps; there are: masks/, seg1_seg/"),
        "{said}"
    );
    let place = Place::new(&["ct/a.nii", "pet/a.nii", "seg/a.nii"]);
    let said = place.refused(&DataOptions::default());
    assert!(said.contains("more than one folder beside seg/ may hold the images: ct/, pet/"), "{said}");
    let found =
        place.find_with(&with(DataSettings { images: names(&["ct", "pet"]), ..DataSettings::default() }));
    assert_eq!(found.channels.iter().map(|channel| &*channel.name).collect::<Vec<_>>(), ["CT", "PET"]);
}

#[test]
fn folders_of_classes_are_no_pairs() {
    let place = Place::new(&["cats/1.png", "dogs/2.png"]);
    assert!(find(place.path(), &DataOptions::default()).unwrap().is_none());
    // What is asked for is not taken for something else.
    let data = DataSettings { layout: None, channels: Some(vec!["CT".into()]), ..DataSettings::default() };
    assert!(place.refused(&with(data)).contains("it holds cats/, dogs/"));
    let place = Place::new(&["images/1.png", "masks/1.png"]);
    assert_eq!(files(&place.find()), ["1: images/1.png | masks/1.png"]);
}

#[test]
fn a_folder_for_each_case_has_channels_and_labels_by_the_ends_of_names() {
    let mut list = Vec::new();
    for id in ["BraTS-1", "BraTS-2"] {
        list.extend(["t1c", "flair", "seg"].map(|role| format!("{id}/{id}-{role}.nii.gz")));
    }
    let place = Place::new(&list.iter().map(String::as_str).collect::<Vec<_>>());
    let found = place.find();
    assert_eq!(
        files(&found)[0],
        "BraTS-1: BraTS-1/BraTS-1-flair.nii.gz BraTS-1/BraTS-1-t1c.nii.gz | BraTS-1/BraTS-1-seg.nii.gz"
    );
    assert_eq!(found.layout.to_string(), "a folder for each case with flair, t1c and seg");
    let data = DataSettings { images: names(&["t1c"]), ..DataSettings::default() };
    assert_eq!(place.find_with(&with(data)).channels.len(), 1);
    // What folders of cases are called does not make them BIDS.
    let subjects = Place::new(&["sub-1/ct.nii", "sub-1/seg.nii", "sub-2/ct.nii", "sub-2/seg.nii"]);
    assert_eq!(files(&subjects.find())[0], "sub-1: sub-1/ct.nii | sub-1/seg.nii");
    let unusual = Place::new(&["p1/ct.nii", "p1/tumour.nii", "p2/ct.nii", "p2/tumour.nii"]);
    let data = DataSettings { labels: Some("tumour".into()), ..DataSettings::default() };
    assert_eq!(files(&unusual.find_with(&with(data)))[1], "p2: p2/ct.nii | p2/tumour.nii");
    fs::remove_file(place.path().join("BraTS-2/BraTS-2-flair.nii.gz")).unwrap();
    let said = place.refused(&DataOptions::default());
    assert!(said.contains("case BraTS-2 has no file for channel 0 (flair)"), "{said}");
    fs::remove_file(place.path().join("BraTS-2/BraTS-2-seg.nii.gz")).unwrap();
    place.touch("BraTS-2/BraTS-2-flair.nii.gz");
    let data = DataSettings { layout: Some(LayoutName::Cases), ..DataSettings::default() };
    assert!(place.refused(&with(data)).contains("case BraTS-2 has no label map in"));
}

#[test]
fn bids_has_its_label_maps_among_derivatives() {
    let place = Place::new(&[
        "dataset_description.json",
        "sub-01/ses-1/anat/sub-01_ses-1_T1w.nii.gz",
        "sub-01/ses-1/anat/sub-01_ses-1_FLAIR.nii.gz",
        "sub-02/anat/sub-02_T1w.nii.gz",
        "sub-02/anat/sub-02_FLAIR.nii.gz",
        "sub-02/func/sub-02_task-rest_bold.nii.gz",
        "sub-03/anat/sub-03_T1w.nii.gz",
        "sub-03/anat/sub-03_FLAIR.nii.gz",
    ]);
    let said = place.refused(&DataOptions::default());
    assert!(said.contains("no label maps are among its derivatives"), "{said}");
    // Of no subject.
    place.touch("sub-01/ses-1/anat/scan_T1w.nii.gz");
    place.touch("derivatives/manual/sub-01/ses-1/anat/sub-01_ses-1_space-T1w_dseg.nii.gz");
    place.touch("derivatives/manual/sub-02/anat/sub-02_dseg.nii.gz");
    place.write("derivatives/manual/dseg.tsv", "index\tname\n0\tbackground\n1\tlesion\n");
    let found = place.find();
    assert_eq!(
        files(&found),
        [
            "sub-01_ses-1: sub-01/ses-1/anat/sub-01_ses-1_FLAIR.nii.gz sub-01/ses-1/anat/sub-01_ses-1_T1w.nii.gz | \
             derivatives/manual/sub-01/ses-1/anat/sub-01_ses-1_space-T1w_dseg.nii.gz",
            "sub-02: sub-02/anat/sub-02_FLAIR.nii.gz sub-02/anat/sub-02_T1w.nii.gz | \
             derivatives/manual/sub-02/anat/sub-02_dseg.nii.gz",
        ]
    );
    assert_eq!(found.test_cases[0].id, "sub-03");
    assert!(found.warnings[0].contains("1 subjects have no label map, like sub-03"), "{:?}", found.warnings);
    let named = |case: &plimsoll_data::Case| case.reading.segments.clone().unwrap();
    assert!(found.cases.iter().all(|case| named(case).names_of(1) == ["lesion"]));
    place.touch("derivatives/other/sub-02/anat/sub-02_desc-other_dseg.nii.gz");
    let said = place.refused(&DataOptions::default());
    assert!(said.contains("sub-02 has") && said.contains("which both end in _dseg"), "{said}");
    let data = DataSettings { labels: Some("desc-other_dseg".into()), ..DataSettings::default() };
    assert_eq!(place.find_with(&with(data)).cases.len(), 1);
}

#[test]
fn what_was_predicted_is_no_reference_wherever_derivatives_are() {
    let names =
        ["dataset_description.json", "sub-01/anat/sub-01_T1w.nii.gz", "sub-02/anat/sub-02_T1w.nii.gz"];
    let ours = r#"{"Name": "x", "BIDSVersion": "1.10.0", "GeneratedBy": [{"Name": "Plimsoll"}]}"#;
    let asked = || DataSettings { labels: Some("desc-plimsoll_dseg".into()), ..DataSettings::default() };
    for folder in ["derivatives", "derivatives/plimsoll"] {
        let place = Place::new(&names);
        place.touch(&format!("{folder}/sub-01/anat/sub-01_desc-plimsoll_dseg.nii.gz"));
        place.write(&format!("{folder}/dataset_description.json"), ours);
        let said = place.refused(&DataOptions::default());
        assert!(said.contains("no label maps are among its derivatives"), "{folder}: {said}");
        assert_eq!(place.find_with(&with(asked())).cases[0].id, "sub-01", "{folder}");
        place.touch("derivatives/manual/sub-02/anat/sub-02_dseg.nii.gz");
        assert_eq!(
            files(&place.find()),
            ["sub-02: sub-02/anat/sub-02_T1w.nii.gz | derivatives/manual/sub-02/anat/sub-02_dseg.nii.gz"],
            "{folder}"
        );
    }
    // A description that cannot be read may be one of ours.
    let place = Place::new(&names);
    place.touch("derivatives/plimsoll/sub-01/anat/sub-01_desc-plimsoll_dseg.nii.gz");
    place.touch("derivatives/plimsoll/dataset_description.json/file");
    let error = find(place.path(), &DataOptions::default()).unwrap_err().to_string();
    assert!(error.contains("dataset_description.json"), "{error}");
}

fn table(place: &Place, text: &str) -> (PathBuf, DataOptions) {
    place.write("cases.csv", text);
    (place.path().join("cases.csv"), DataOptions::default())
}

#[test]
fn a_table_has_columns_of_paths() {
    let place = Place::new(&["x/1.nii", "x/2.nii", "y/1.nii", "y/2.nii", "z/1.nii", "z/2.nii"]);
    let text = "patient,age,t1,t2,mask\np1,40,x/1.nii,z/1.nii,y/1.nii\np2,50,x/2.nii,z/2.nii,y/2.nii\n";
    let (path, options) = table(&place, text);
    let found = find(&path, &options).unwrap().unwrap();
    assert_eq!(files(&found), ["p1: x/1.nii z/1.nii | y/1.nii", "p2: x/2.nii z/2.nii | y/2.nii"]);
    assert_eq!(found.layout.to_string(), "the table cases.csv, columns t1, t2 and mask");
    let refused = |text: &str, data: DataSettings| {
        let (path, _) = table(&place, text);
        let error = find(&path, &with(data)).unwrap_err();
        format!("{error}\n{}", error.remedy().unwrap())
    };
    let none = DataSettings::default;
    let said = refused(text, DataSettings { labels: Some("seg".into()), ..none() });
    assert!(said.contains("it has no column `seg`; its columns are: patient, age, t1, t2, mask"), "{said}");
    let said = refused("image,mask\nx/1.nii,y/9.nii\n", none());
    assert!(said.contains("line 2, column `mask`:") && said.contains("y/9.nii is missing"), "{said}");
    let said = refused("image,mask\nx/1.nii,../y/1.nii\n", none());
    assert!(said.contains("is outside the data set's folder"), "{said}");
    let said = refused("image,mask\nx/1.nii,y/1.nii\nx/1.nii,y/2.nii\n", none());
    assert!(said.contains("lists the case 1 twice"), "{said}");
    let said = refused("image,mask\nx/1.nii,y/1.nii\nx/2.nii\n", none());
    assert!(said.contains("it is not a table"), "{said}");
    // Of images with classes.
    let (path, options) = table(&place, "image,label\n1.png,cat\n");
    assert!(find(&path, &options).unwrap().is_none());
}

#[test]
fn a_list_of_monai_needs_neither_labels_nor_channels() {
    let place = Place::new(&["a/label.nii.gz", "b/image.nii.gz", "b/label.nii.gz"]);
    place.image("a/image.nii.gz", 2);
    let list = json!({
        "training": [
            {"image": "a/image.nii.gz", "label": "a/label.nii.gz", "fold": 0},
            {"image": "b/image.nii.gz", "label": "b/label.nii.gz", "fold": 1},
        ],
        "testing": [{"image": "a/image.nii.gz"}],
    });
    place.write("datalist.json", &list.to_string());
    let found = place.find();
    assert_eq!(files(&found)[0], "a_image: a/image.nii.gz a/image.nii.gz | a/label.nii.gz");
    assert_eq!((found.channels.len(), found.cases.len(), found.test_cases.len()), (2, 2, 1));
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert_eq!(found.folds, [("a_image".to_string(), 0), ("b_image".to_string(), 1)].into());
    let splits = Splits::from_numbers(&found.folds).unwrap();
    let names = |list: &[String]| list.join(" ");
    let folds: Vec<_> = splits.folds.iter().map(|fold| (names(&fold.train), names(&fold.val))).collect();
    assert_eq!(folds, [("b_image".into(), "a_image".into()), ("a_image".into(), "b_image".to_string())]);
    let same = Splits::from_numbers(&[("a".to_string(), 3), ("b".to_string(), 3)].into()).unwrap_err();
    assert!(same.to_string().contains("all 2 cases of the list have the same `fold`"), "{same}");
    // Several files are channels.
    let list =
        json!({"training": [{"image": ["a/image.nii.gz", "b/image.nii.gz"], "label": "a/label.nii.gz"}]});
    place.write("datalist.json", &list.to_string());
    assert_eq!(files(&place.find()), ["image: a/image.nii.gz b/image.nii.gz | a/label.nii.gz"]);
}

#[test]
fn files_outside_are_read_only_where_that_is_allowed_but_links_are_the_users_own() {
    let outside = Place::new(&["image.nii", "label.nii"]);
    let list = |path: &Path| {
        let pair = json!({"image": path.join("image.nii"), "label": path.join("label.nii")});
        json!({"modality": {"0": "CT"}, "training": [pair]}).to_string()
    };
    let place = Place::new(&[]);
    place.write("dataset.json", &list(outside.path()));
    let said = place.refused(&DataOptions::default());
    assert!(said.contains("is outside the data set's folder") && said.contains("‹allow_outside›"), "{said}");
    let found = place.find_with(&DataOptions { allow_outside: true, ..DataOptions::default() });
    assert_eq!(found.cases[0].images[0].path, outside.path().join("image.nii"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(outside.path(), place.path().join("linked")).unwrap();
        place.write("dataset.json", &list(Path::new("linked")));
        assert_eq!(place.find().cases[0].images[0].path, place.path().join("linked/image.nii"));
    }
}

#[test]
fn what_is_found_can_be_written_down_and_read_again() {
    let place = Place::new(&[]);
    for (id, value) in [("a", 255), ("b", 128)] {
        place.image(&format!("raw/{id}.nii.gz"), 1);
        place.labels(&format!("seg/{id}_seg.nii.gz"), value);
    }
    let found = place.find();
    let budget = Budget::new(Bytes::mib(8));
    let census = LabelCensus::take(&found, 2, &budget, &|_| ()).unwrap();
    assert_eq!(census.values.keys().copied().collect::<Vec<_>>(), [0, 128, 255]);
    assert_eq!(census.values[&128], (1, census.values[&255].1));
    // Values that are not numbers of classes are not guessed.
    let error = census.labels(&found).unwrap_err();
    assert!(error.to_string().contains("the values 0, 128, 255, but the classes of these values"), "{error}");
    let hint = error.remedy().unwrap();
    assert!(hint.contains("labels = { \"label 128\" = 128, \"label 255\" = 255 }"), "{hint}");
    let classes = [("background".to_string(), 0), ("vein".into(), 128), ("artery".into(), 255)];
    let labels = Labels::from_values(place.path(), &classes.into_iter().collect()).unwrap();
    place.write("dataset.json", &serde_json::to_string(&found.description(&labels)).unwrap());
    let dataset = Dataset::open(place.path()).unwrap();
    assert_eq!(dataset.labels.names(), ["background", "vein", "artery"]);
    assert_eq!(dataset.labels.other_values(), [("vein", 128), ("artery", 255)]);
    let written: Vec<&Path> = dataset.cases.iter().flat_map(|case| case.files()).collect();
    assert_eq!(written, found.cases.iter().flat_map(|case| case.files()).collect::<Vec<_>>());
    // Counts are of classes, and so are labels of patches.
    let inspection = support::inspect(&dataset);
    assert!(inspection.problems.is_empty(), "{:?}", inspection.problems);
    let fingerprint = inspection.fingerprint.unwrap();
    let of_case = |at: usize| fingerprint.cases[at].label_voxels.clone();
    let voxels = census.values[&255].1;
    assert_eq!((of_case(0), of_case(1)), (vec![384 - voxels, 0, voxels], vec![384 - voxels, voxels, 0]));
}

#[test]
fn a_label_map_that_is_none_is_named() {
    let place = Place::new(&[]);
    place.image("raw/a.nii.gz", 1);
    place.image("seg/a.nii.gz", 1);
    let found = place.find();
    let error = LabelCensus::take(&found, 1, &Budget::new(Bytes::mib(8)), &|_| ()).unwrap_err();
    assert!(error.to_string().contains("seg/a.nii.gz is not a label map"), "{error}");
}

#[test]
fn classes_are_numbered_in_the_order_of_their_values() {
    let labels = |pairs: &[(&str, u64)]| {
        let values = pairs.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        Labels::from_values(Path::new("dataset.json"), &values)
    };
    let found = labels(&[("background", 0), ("vessel", 255), ("ignore", 9)]).unwrap();
    assert_eq!((found.classes(), found.ignore()), (2, Some(2)));
    let values = found.file_values().unwrap();
    assert_eq!([0, 255, 9, 1].map(|value| values.class(value)), [Some(0), Some(1), Some(2), None]);
    assert!(labels(&[("background", 0), ("vessel", 1)]).unwrap().file_values().is_none());
    let said = |pairs: &[(&str, u64)]| labels(pairs).unwrap_err().to_string();
    assert!(said(&[("a", 0), ("b", 1), ("c", 1)]).contains("the labels `b` and `c` both have the value 1"));
    assert!(said(&[("a", 0), ("b", 256)]).contains("the label `b` has the value 256"));
    assert!(said(&[("a", 1)]).contains("no label has the value 0"));
}

/// Does something while a folder, and all that is in it, cannot be read.
fn unreadable<'a, T>(folder: &'a Path, does: Box<dyn FnOnce() -> T + 'a>) -> T {
    // More often than any test looks into it.
    const MOST: u64 = 32;
    fn failing<'a, T>(folder: &'a Path, number: u64, does: Box<dyn FnOnce() -> T + 'a>) -> T {
        let fault = Fault { number, kind: FaultKind::Eio };
        match number {
            0 => does(),
            _ => inject(folder, fault, || failing(folder, number - 1, does)).0,
        }
    }
    failing(folder, MOST, does)
}

#[test]
fn a_folder_that_cannot_be_read_is_named_where_it_may_be_of_images_and_not_asked_for_where_it_is_none() {
    let place = Place::new(&["images/a.nii", "labels/a.nii", "more/deep/b.nii"]);
    let images = place.path().join("images");
    let find = |data: DataSettings| self::find(place.path(), &with(data));
    let error = unreadable(&images, Box::new(|| find(DataSettings::default()))).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot list {}", images.display()));
    let said = || DataSettings {
        images: names(&["images"]),
        labels: Some("labels".into()),
        ..DataSettings::default()
    };
    for more in ["more", "more/deep"].map(|folder| place.path().join(folder)) {
        let found = unreadable(&more, Box::new(|| find(said()))).unwrap().unwrap();
        assert_eq!(files(&found), ["a: images/a.nii | labels/a.nii"]);
    }
    let error = unreadable(&images, Box::new(|| find(said()))).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot list {}", images.display()));
}
