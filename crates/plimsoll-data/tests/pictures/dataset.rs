//! Listing, inspecting and dividing data sets for classification.

use std::path::Path;

use super::common::{file, numbers, reference};
use plimsoll_data::pictures::{
    DatasetError, FoldError, GroupSource, ImageCase, ImageDataset, InspectOptions, Inspection, LabelSource,
    ProblemKind, Split, TableSettings, folds, inspect, separator, state_of,
};
use plimsoll_image::{DecodeOptions, SampleRange};
use plimsoll_memory::{Budget, Bytes};
use tempfile::TempDir;

fn budget() -> Budget {
    Budget::new(Bytes::mib(16))
}

fn put(folder: &TempDir, name: &str, from: &str) {
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::copy(file(from), path).unwrap();
}

fn settings(image: &str, label: &str) -> TableSettings {
    TableSettings {
        image: image.into(),
        label: LabelSource::One(label.into()),
        group: None,
        split: None,
        folder: "images".into(),
        ending: String::new(),
        classes: Vec::new(),
        skip_unlabelled: false,
    }
}

fn table(text: &str, settings: &TableSettings) -> Result<ImageDataset, DatasetError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    std::fs::write(&path, text).unwrap();
    ImageDataset::from_table(&path, settings, &budget())
}

#[test]
fn tables_of_other_separators_are_the_same_data_set() {
    let text = "\u{feff}image,label,note\na.png,1,\"x, y; z\"\nb.png,0,-\n";
    let expected = table(text, &settings("image", "label")).unwrap();
    assert_eq!(expected.cases.len(), 2);
    for separator in [";", "\t"] {
        let cell = |text: &str| text.replace("x, y; z", "@").replace(',', separator).replace('@', "x, y; z");
        let found = table(&cell(text), &settings("image", "label")).unwrap();
        let of = |dataset: &ImageDataset| -> Vec<_> {
            dataset.cases.iter().map(|case| (case.name.clone(), case.labels.clone())).collect()
        };
        assert_eq!((of(&found), &found.classes), (of(&expected), &expected.classes), "{separator:?}");
    }
    assert_eq!(separator(b"\"a;b;c\",label"), b',');
    assert_eq!(separator(b"image"), b',');
}

#[test]
fn a_folder_for_each_class_is_listed_with_and_without_splits() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b/2.png", "b/1.PNG", "a/x/3.jpeg", "a/.hidden.png", "a/notes.txt"] {
        put(&folder, name, "rgb.png");
    }
    let dataset = ImageDataset::from_folders(folder.path(), &budget()).unwrap();
    assert_eq!(dataset.classes, ["a", "b"]);
    let names: Vec<_> = dataset.cases.iter().map(|case| (&*case.name, &*case.labels, case.split)).collect();
    assert_eq!(
        names,
        [("a/x/3.jpeg", &[0][..], None), ("b/1.PNG", &[1][..], None), ("b/2.png", &[1][..], None)]
    );
    assert!(
        dataset.warnings[0].contains("notes.txt") && dataset.warnings.len() == 1,
        "{:?}",
        dataset.warnings
    );
    let all = dataset.in_split(None);
    assert_eq!(dataset.class_counts(&all), [1, 2]);
    assert_eq!(dataset.with_classes(&all, &[1]), [1, 2]);

    let folder = tempfile::tempdir().unwrap();
    for name in ["train/0/1.png", "train/1/2.png", "test/0/3.png"] {
        put(&folder, name, "rgb.png");
    }
    let dataset = ImageDataset::from_folders(folder.path(), &budget()).unwrap();
    assert_eq!(dataset.in_split(Some(Split::Test)), [0]);
    assert_eq!(dataset.in_split(Some(Split::Train)), [1, 2]);
    assert_eq!(dataset.class_counts(&[0]), [1, 0]);
    put(&folder, "other/4.png", "rgb.png");
    let error = ImageDataset::from_folders(folder.path(), &budget()).unwrap_err();
    assert!(matches!(&error, DatasetError::MixedFolders { other, .. } if other == "other"), "{error}");
    let error = ImageDataset::from_folders(folder.path().join("none"), &budget()).unwrap_err();
    assert!(error.to_string().contains("none") && error.remedy().is_some(), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = ImageDataset::from_folders(empty.path(), &budget()).unwrap_err();
    assert!(matches!(error, DatasetError::NoClasses { .. }), "{error}");
}

#[test]
fn eyepacs_aptos_and_messidor_are_tables() {
    let eyepacs = TableSettings {
        folder: "train".into(),
        ending: ".jpeg".into(),
        group: Some(GroupSource::NameUpTo("_".into())),
        ..settings("image", "level")
    };
    let dataset = table("image,level\n10_left,0\n10_right,4\n13_left,2\n", &eyepacs).unwrap();
    // Grades that no image has are classes, too.
    assert_eq!(dataset.classes, ["0", "1", "2", "3", "4"]);
    let ImageCase { path, group, labels, .. } = &dataset.cases[1];
    assert!(path.ends_with("train/10_right.jpeg"));
    assert_eq!((group.as_deref(), &**labels), (Some("10"), &[4][..]));
    assert!(dataset.reserved() > Bytes::ZERO);

    let aptos = TableSettings {
        ending: ".png".into(),
        folder: "train_images".into(),
        ..settings("id_code", "diagnosis")
    };
    let dataset =
        table("\u{feff}id_code,diagnosis\r\n000c1434d8d7,2\r\n001639a390f0,4.0\r\n", &aptos).unwrap();
    assert_eq!(dataset.cases[1].labels, [4]);
    assert!(dataset.cases[0].path.ends_with("train_images/000c1434d8d7.png"));

    let messidor = TableSettings {
        folder: "IMAGES".into(),
        skip_unlabelled: true,
        ..settings("image_id", "adjudicated_dr_grade")
    };
    let text = "image_id,adjudicated_dr_grade,adjudicated_dme\n\"a b.png\",1,0\nc.png,,\nd.JPG,0,1\n";
    let dataset = table(text, &messidor).unwrap();
    assert_eq!(dataset.cases.len(), 2);
    assert!(dataset.warnings[0].starts_with("1 rows"), "{:?}", dataset.warnings);
    assert_eq!(dataset.cases[0].name, "a b.png");
}

#[test]
fn several_labels_come_from_one_column_or_from_many() {
    let one = TableSettings {
        label: LabelSource::Several { column: "findings".into(), separator: "|".into() },
        split: Some("set".into()),
        ..settings("file", "")
    };
    let dataset =
        table("file,findings,set\na.png,mass | edema,train\nb.png,,val\nc.png,edema,\n", &one).unwrap();
    assert!(dataset.multi_label);
    assert_eq!(dataset.classes, ["edema", "mass"]);
    let labels: Vec<_> = dataset.cases.iter().map(|case| (case.labels.clone(), case.split)).collect();
    assert_eq!(labels, [(vec![0, 1], Some(Split::Train)), (vec![], Some(Split::Val)), (vec![0], None)]);
    let many = TableSettings {
        label: LabelSource::Columns(vec!["mass".into(), "edema".into()]),
        group: Some(GroupSource::Column("patient".into())),
        ..settings("file", "")
    };
    let dataset = table("patient,file,edema,mass\n7,a.png,1,0\n,b.png,1,1.0\n", &many).unwrap();
    assert_eq!(dataset.classes, ["mass", "edema"]);
    assert_eq!((&*dataset.cases[0].labels, dataset.cases[0].group.as_deref()), (&[1][..], Some("7")));
    assert_eq!((&*dataset.cases[1].labels, dataset.cases[1].group.as_deref()), (&[0, 1][..], None));
}

#[test]
fn what_is_wrong_with_a_table_is_said_with_its_line() {
    let plain = settings("image", "level");
    let known = TableSettings { classes: vec!["0".into(), "1".into()], ..plain.clone() };
    let divided = TableSettings { split: Some("split".into()), ..plain.clone() };
    for (text, settings, says) in [
        ("image,grade\na,0\n", &plain, "no column `level`, but image, grade"),
        (
            "image,level\na,0\nb,1\nc,mild\n",
            &plain,
            "line 4: the label `mild` is not a whole number, but 2 other",
        ),
        ("image,level\na,0\nb,7\n", &known, "line 3, column `level`: the label `7` is not one of 0, 1"),
        ("image,level\na,0\nb,\n", &plain, "line 3, column `level`: there is no label"),
        ("image,level\na,0\na,0\n", &plain, "line 3: the image `a` is already in line 2"),
        ("image,level\n../a,0\n", &plain, "line 2, column `image`"),
        ("image,level\n/etc/a,0\n", &plain, "line 2, column `image`"),
        ("image,level\na,0,3\n", &plain, "is not a table"),
        ("image,level\na,0\nb,5000\n", &plain, "have 5001 values"),
        ("image,level\n", &plain, "has no images"),
        ("", &plain, "no column"),
        ("image,level,split\na,0,validation\n", &divided, "`validation` is not train, val or test"),
        ("image,level\n\u{1}\0,0\n", &plain, "line 2, column `image`"),
    ] {
        let error = table(text, settings).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(says) && said.contains("table.csv"), "{text:?}: {said}");
        assert!(error.remedy().is_some(), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    std::fs::write(&path, "image,level\na,0\n").unwrap();
    let error = ImageDataset::from_table(&path, &plain, &Budget::new(Bytes(100))).unwrap_err();
    assert!(matches!(error, DatasetError::Memory { .. }), "{error}");
}

#[test]
fn what_is_wrong_with_images_is_found_and_told_apart_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let text = "image,level,patient,split\n\
                rgb.png,0,p1,train\n\
                same_pixels.tif,0,p1,train\n\
                other_label.bmp,1,p2,train\n\
                other_split.png,0,p3,test\n\
                missing.png,1,p4,train\n\
                text.png,1,p5,train\n\
                constant.png,1,p6,train\n\
                fine.jpg,3,p3,train\n";
    std::fs::write(folder.path().join("table.csv"), text).unwrap();
    for (name, from) in [
        ("rgb.png", "rgb.png"),
        ("same_pixels.tif", "lzw.tif"),
        ("other_label.bmp", "rgb.bmp"),
        ("other_split.png", "turned.png"),
        ("fine.jpg", "baseline.jpg"),
    ] {
        put(&folder, &format!("images/{name}"), from);
    }
    std::fs::write(folder.path().join("images/text.png"), "no image").unwrap();
    image::RgbImage::from_pixel(9, 7, image::Rgb([3, 4, 5]))
        .save(folder.path().join("images/constant.png"))
        .unwrap();
    let settings = TableSettings {
        group: Some(GroupSource::Column("patient".into())),
        split: Some("split".into()),
        ..settings("image", "level")
    };
    let dataset = ImageDataset::from_table(folder.path().join("table.csv"), &settings, &budget()).unwrap();
    let options = |contents, threads| InspectOptions {
        decode: DecodeOptions::default(),
        channels: 3,
        contents,
        threads,
    };
    let found = inspect(&dataset, &options(true, 3), &budget()).unwrap();
    let kinds: Vec<_> = found.problems.iter().map(|problem| (problem.kind, problem.case)).collect();
    assert_eq!(
        kinds,
        [
            (ProblemKind::Missing, Some(4)),
            (ProblemKind::Unreadable, Some(5)),
            (ProblemKind::ContradictingDuplicate, Some(2)),
            (ProblemKind::DuplicateAcrossSplits, Some(3)),
            (ProblemKind::Duplicate, Some(1)),
            (ProblemKind::Constant, Some(6)),
            (ProblemKind::GroupAcrossSplits, Some(7)),
            // No grade 2 for training; 1, 2 and 3 for testing.
            (ProblemKind::EmptyClass, None),
            (ProblemKind::EmptyClass, None),
            (ProblemKind::EmptyClass, None),
            (ProblemKind::EmptyClass, None),
        ],
        "{:#?}",
        found.problems
    );
    let text: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
    assert!(text[2].contains("rgb.png") && text[2].contains("labels 0 and 1"), "{}", text[2]);
    assert!(text[6].contains("group p3"), "{}", text[6]);
    assert!(found.problems.iter().all(|problem| !problem.remedy().is_empty()));
    assert_eq!(found.readable, [true, true, true, true, false, false, true, true]);
    // Whatever the threads.
    assert_eq!(found, inspect(&dataset, &options(true, 1), &budget()).unwrap());
    let headers = inspect(&dataset, &options(false, 1), &budget()).unwrap();
    assert!(headers.problems.iter().all(|problem| problem.kind != ProblemKind::Duplicate));
    assert_eq!(headers.largest, found.largest);
    assert_eq!((found.largest.pixels, found.largest.longest), (40 * 56, 56));
    // What is kept is what was found, of this state and so many cases alone.
    let (path, cases) = (folder.path().join("kept.json"), dataset.cases.len());
    let state = state_of(&dataset, &options(true, 3));
    let load = |state, cases| Inspection::load_if_current(&path, state, cases, &budget()).unwrap();
    assert_eq!(load(state, cases), None, "nothing is kept yet");
    found.save(&path, state).unwrap();
    assert_eq!(load(state, cases).as_ref(), Some(&found));
    assert_eq!(load(state, cases + 1), None);
    assert_eq!(state_of(&dataset, &options(true, 1)), state, "whatever the threads");
    assert_ne!(state_of(&dataset, &options(false, 3)), state);
    std::fs::write(folder.path().join("images/text.png"), "no  image").unwrap();
    let changed = state_of(&dataset, &options(true, 3));
    assert!(changed != state && load(changed, cases).is_none());
    let text = std::fs::read_to_string(&path).unwrap();
    for damaged in [&text[..text.len() / 2], "", "[]", &text.replace("\"version\":2", "\"version\":0")] {
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(load(state, cases), None, "{damaged}");
    }
    let small = Budget::new(Bytes(1000));
    std::fs::write(&path, &text).unwrap();
    assert!(Inspection::load_if_current(&path, state, cases, &small).is_err(), "reading takes more");
}

/// Saves a grey image of 16 bits, 20 × 20, whose samples rise from `low` to `high`.
fn put_grey_16(folder: &Path, name: &str, low: u16, high: u16) {
    let value = |at: u32| low + (u32::from(high - low) * at / 399) as u16;
    let image = image::ImageBuffer::from_fn(20, 20, |x, y| image::Luma([value(20 * y + x)]));
    std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
    image.save(folder.join(name)).unwrap();
}

#[test]
fn images_are_judged_as_the_network_sees_them_by_the_range_of_the_data_set() {
    let folder = tempfile::tempdir().unwrap();
    put_grey_16(folder.path(), "train/low/a.png", 2000, 5000);
    put_grey_16(folder.path(), "train/high/b.tif", 40000, 43000);
    put_grey_16(folder.path(), "train/high/c.png", 40000, 40010);
    // What is set aside for the end has no part in the range.
    put_grey_16(folder.path(), "test/low/d.png", 0, 65535);
    let white = image::RgbaImage::from_fn(20, 20, |x, y| match (x, y) {
        (0, 0) => image::Rgba([0, 0, 0, 255]),
        _ => image::Rgba([255, 255, 255, x as u8]),
    });
    white.save(folder.path().join("train/low/white.png")).unwrap();
    // Alpha is dropped, so that an image whose alpha alone varies is constant.
    let alpha = image::RgbaImage::from_fn(20, 20, |x, _| image::Rgba([9, 9, 9, x as u8]));
    alpha.save(folder.path().join("train/high/alpha.png")).unwrap();
    let dataset = ImageDataset::from_folders(folder.path(), &budget()).unwrap();
    let options =
        InspectOptions { decode: DecodeOptions::default(), channels: 3, contents: true, threads: 2 };
    let found = inspect(&dataset, &options, &budget()).unwrap();
    assert_eq!(found.range_16_bit, SampleRange::new(2000, 43000));
    let of = |kind| found.problems.iter().filter(move |problem| problem.kind == kind).collect::<Vec<_>>();
    let (constant, saturated) = (of(ProblemKind::Constant), of(ProblemKind::Saturated));
    assert_eq!(constant.len(), 2, "{:#?}", found.problems);
    assert!(constant[0].text.contains("alpha.png"), "{}", constant[0]);
    assert!(constant[1].text.contains("c.png are the same; its 16-bit samples are 40000 to 40010"));
    assert!(saturated.len() == 1 && saturated[0].text.contains("99.8 % of the pixels"), "{saturated:?}");
    assert_eq!(of(ProblemKind::MixedDepths).len(), 1);
    // With one pixel that is much brighter than all others, these have few levels.
    std::fs::remove_file(folder.path().join("train/high/c.png")).unwrap();
    put_grey_16(folder.path(), "train/high/c.png", 2000, 3000);
    let dataset = ImageDataset::from_folders(folder.path(), &budget()).unwrap();
    let found = inspect(&dataset, &options, &budget()).unwrap();
    let few = found.problems.iter().find(|problem| problem.kind == ProblemKind::FewLevels).unwrap();
    assert!(few.text.contains("c.png has only the levels 0 to 6 of 0 to 255"), "{few}");
    // A range that is set holds.
    let range_16_bit = SampleRange::new(0, 100);
    let decode = DecodeOptions { range_16_bit, ..DecodeOptions::default() };
    let found = inspect(&dataset, &InspectOptions { decode, ..options }, &budget()).unwrap();
    assert_eq!(found.range_16_bit, range_16_bit);
    let constant = found.problems.iter().filter(|problem| problem.kind == ProblemKind::Constant).count();
    assert_eq!(constant, 4, "{:#?}", found.problems);
}

fn dataset(labels: &[f64], groups: &[f64]) -> ImageDataset {
    let rows: String = labels
        .iter()
        .zip(groups)
        .enumerate()
        .map(|(at, (label, group))| format!("{at:03},{label},{group:03}\n"))
        .collect();
    let settings =
        TableSettings { group: Some(GroupSource::Column("group".into())), ..settings("image", "label") };
    table(&format!("image,label,group\n{rows}"), &settings).unwrap()
}

#[test]
fn folds_are_those_of_scikit_learn() {
    for case in reference()["folds"].as_array().unwrap() {
        let dataset = dataset(&numbers(&case["labels"]), &numbers(&case["groups"]));
        let count = case["count"].as_u64().unwrap() as usize;
        let folds = folds(&dataset, &dataset.in_split(None), count, None).unwrap();
        let expected = numbers(&case["fold"]);
        for (number, fold) in folds.iter().enumerate() {
            let val: Vec<usize> = (0..expected.len()).filter(|at| expected[*at] == number as f64).collect();
            assert_eq!(fold.val, val, "fold {number} of {count}");
        }
    }
}

#[test]
fn folds_keep_groups_together_and_depend_on_the_seed_alone() {
    let labels: Vec<f64> = (0..200).map(|at| f64::from(at * at % 7 % 3)).collect();
    let groups: Vec<f64> = (0..200).map(|at| f64::from(at / 2)).collect();
    let dataset = dataset(&labels, &groups);
    let all = dataset.in_split(None);
    let divided = folds(&dataset, &all, 5, Some(1)).unwrap();
    assert_eq!(divided, folds(&dataset, &all, 5, Some(1)).unwrap());
    assert_ne!(divided, folds(&dataset, &all, 5, Some(2)).unwrap());
    let totals = dataset.class_counts(&all);
    let mut seen = vec![0; 200];
    for fold in &divided {
        assert_eq!(fold.train.len() + fold.val.len(), 200);
        fold.val.iter().for_each(|at| seen[*at] += 1);
        let group = |at: &usize| dataset.cases[*at].group.clone();
        assert!(fold.val.iter().all(|val| fold.train.iter().all(|train| group(train) != group(val))));
        for (count, total) in dataset.class_counts(&fold.val).into_iter().zip(&totals) {
            // A fifth, but for a group.
            assert!((count as f64 - *total as f64 / 5.0).abs() <= 2.0, "{count} of {total}");
        }
    }
    assert!(seen.iter().all(|count| *count == 1));
    assert_eq!(folds(&dataset, &all, 1, None), Err(FoldError::TooFew { count: 1 }));
    assert_eq!(folds(&dataset, &all[..4], 3, None), Err(FoldError::TooFewGroups { groups: 2, count: 3 }));
}

#[test]
fn paths_are_below_the_folder_of_the_table() {
    let dataset = table("image,level\nsub/a.png,0\n", &settings("image", "level")).unwrap();
    assert!(dataset.cases[0].path.ends_with(Path::new("images/sub/a.png")));
}
