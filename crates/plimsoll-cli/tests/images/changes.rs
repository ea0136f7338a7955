//! Pictures that a data set has gained, or that have other labels, since a run began.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_data::Fold;
use plimsoll_data::pictures::phantom;

use super::{images, train};
use crate::support::{plimsoll, run_error, run_json};

/// A table of pictures, each patient with two.
struct Table {
    path: PathBuf,
    /// Name, class, patient.
    rows: Vec<[String; 3]>,
}

impl Table {
    fn new(data: &Path) -> Table {
        let mut rows = Vec::new();
        for class in [phantom::GRADES[0], phantom::GRADES[1]] {
            let folder = format!("train/{class}");
            let mut files = fs::read_dir(data.join(&folder)).unwrap();
            let mut names: Vec<String> =
                files.by_ref().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            for (number, name) in names.into_iter().enumerate() {
                rows.push([format!("{folder}/{name}"), class.into(), format!("{class}{}", number / 2)]);
            }
        }
        Table { path: data.join("table.csv"), rows }
    }

    fn write(&self) {
        let lines = self.rows.iter().map(|row| row.join(",") + "\n");
        fs::write(&self.path, format!("image,label,patient\n{}", lines.collect::<String>())).unwrap();
    }

    fn patient(&self, name: &str) -> &str {
        &self.rows.iter().find(|row| row[0] == name).unwrap()[2]
    }
}

#[test]
fn new_pictures_of_a_patient_are_where_the_patient_is_and_other_labels_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = images(dir.path());
    let of_table =
        "[images.table]\nimage = \"image\"\nlabel = { one = \"label\" }\ngroup = { column = \"patient\" }\n";
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("{text}{of_table}")).unwrap();
    let mut table = Table::new(&data);
    table.write();
    let run = dir.path().join("run");
    let path = table.path.clone();
    let args = |fold: &'static str, more: &[&'static str]| {
        let start = train(path.to_str().unwrap(), settings.to_str().unwrap(), run.to_str().unwrap());
        [&start[..], &["--epochs", "1", "--skip-validation", "--fold", fold], more].concat().join("\n")
    };
    let words = |text: &str| text.split('\n').map(String::from).collect::<Vec<_>>();
    let trained = |text: String| {
        let args = words(&text);
        run_json(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let error = |text: String| run_error(&words(&text).iter().map(String::as_str).collect::<Vec<_>>());
    trained(args("0", &[]));
    let folds = || -> Vec<Fold> {
        serde_json::from_slice(&fs::read(run.join("splits_final.json")).unwrap()).unwrap()
    };
    let before = folds();
    assert!(before.len() > 2, "{before:?}");
    // A picture of a patient whom fold 0 validates, one of a patient whom another fold does, and one of a new patient.
    let patients = [0, 2].map(|fold: usize| table.patient(&before[fold].val[0]).to_string());
    let first = data.join(&table.rows[0][0]);
    for (number, patient) in [&patients[0], &patients[1], "new"].into_iter().enumerate() {
        let name = format!("train/{}/more_{number}.png", phantom::GRADES[0]);
        let mut picture = image::open(&first).unwrap().to_rgb8();
        picture.put_pixel(0, 0, image::Rgb([number as u8 * 90; 3]));
        picture.save(data.join(&name)).unwrap();
        table.rows.push([name, phantom::GRADES[0].into(), patient.into()]);
    }
    table.write();
    let said = error(args("1", &[]));
    assert!(said.contains("more_0") && said.contains("hint: add --new-cases include"), "{said}");
    let included = args("1", &["--new-cases", "include"]);
    let output = plimsoll().args(words(&included)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("more_0") && said.contains("only trained on, because a started fold"), "{said}");
    let after = folds();
    assert_eq!(after[0], before[0]);
    for fold in &after[1..] {
        let is_apart =
            |case: &String| fold.train.iter().all(|other| table.patient(case) != table.patient(other));
        assert!(fold.val.iter().all(is_apart), "a patient is both trained on and validated: {fold:?}");
        assert_eq!(fold.train.len() + fold.val.len(), table.rows.len());
    }
    let validates = |part: &str| {
        let has = |fold: &Fold| fold.val.iter().any(|case| case.contains(part));
        after.iter().map(has).enumerate().filter(|(_, has)| *has).map(|(fold, _)| fold).collect::<Vec<_>>()
    };
    assert_eq!((validates("more_0"), validates("more_1")), (vec![], vec![2]));
    assert_eq!(validates("more_2").len(), 1);
    // A label that was edited since.
    let changed = table.rows[1][0].clone();
    table.rows[1][1] = phantom::GRADES[1].into();
    table.write();
    let said = error(args("2", &[]));
    assert!(said.contains("was started with other data; changed since: "), "{said}");
    assert!(said.contains(&changed) && said.contains("--accept-changed-data"), "{said}");
    assert!(!run.join("fold_2").exists());
    trained(args("2", &["--accept-changed-data"]));
}
