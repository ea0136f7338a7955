//! No command that reads a run writes over a file of the data set that the run was trained on, wherever it lies.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_data::pictures::phantom::{self, PhantomImages};

use super::{OUT, Place, files};
use crate::support::plimsoll;

impl Place {
    /// Hard links to a file, under names that outputs have.
    fn links<const N: usize>(&self, file: &Path, names: [&str; N]) -> [PathBuf; N] {
        names.map(|name| {
            let link = self.tiny.path(name);
            fs::hard_link(file, &link).unwrap();
            link
        })
    }

    /// Checks that a command with an output succeeds and replaces it.
    fn replaces(&self, command: &[&str], out: &Path) {
        let before = fs::read(out).unwrap();
        let text = |word: &&str| match *word {
            OUT => out.to_str().unwrap().into(),
            word if word.starts_with('@') => self.text(&word[1..]),
            word => word.to_string(),
        };
        let ended = plimsoll().args(command.iter().map(text)).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(fs::read(out).unwrap() != before, "{command:?}");
    }
}

/// The pictures that a classifier was trained on are files of its data set, whether folders or a table list them.
#[test]
fn pictures_that_a_classifier_was_trained_on_are_not_replaced() {
    let mut place = Place::new();
    let images = place.tiny.path("images");
    phantom::write(&images, &PhantomImages { images: [4, 2, 1], side: 40, seed: 2 }).unwrap();
    let picture = place.first(&format!("images/train/{}", phantom::GRADES[0]));
    let original = fs::read(place.tiny.path(&picture)).unwrap();
    let rows = phantom::GRADES.iter().flat_map(|grade| {
        let folder = place.tiny.path(&format!("images/train/{grade}"));
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        files
            .map(|file| format!("images/train/{grade}/{},{grade}\n", file.to_str().unwrap()))
            .collect::<Vec<_>>()
    });
    let table = place.tiny.path("pictures.csv");
    fs::write(&table, format!("image,label\n{}", rows.collect::<String>())).unwrap();
    let settings = place.tiny.path("images.toml");
    let text =
        "batch_size = 4\nepochs = 1\n[network]\nfeatures = [128, 128, 128, 128]\n[images]\nsize = [32, 32]\n";
    fs::write(&settings, text).unwrap();
    for (data, run) in [("images", "of_folders"), ("pictures.csv", "of_table")] {
        let (data, run) = (place.text(data), place.text(run));
        let common = ["--config", settings.to_str().unwrap(), "--ram", "512MiB", "--threads", "1"];
        let trained = plimsoll().args(["train", &data, "--out", &run, "--fold", "0"]).args(common).output();
        let trained = trained.unwrap();
        assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    }
    // A one-vs-one run has a run for each pair.
    fs::create_dir_all(place.tiny.path("of_pairs/pair_0_1")).unwrap();
    copy_folder(&place.tiny.path("of_folders/fold_0"), &place.tiny.path("of_pairs/pair_0_1/fold_0"));
    let names = ["picture_link.csv", "picture_link.safetensors", "picture_link.plimsoll"];
    let [predictions, weights, model] = &place.links(&place.tiny.path(&picture), names);
    place.before = files(place.tiny.dir.path());
    for run in ["@of_folders", "@of_table", "@of_pairs", "@of_pairs/pair_0_1"] {
        for (command, link) in [
            (&["predict", run, "-i", "@images/test", "-o", OUT][..], predictions),
            (&["export", run, "--overwrite", "-o", OUT], weights),
            (&["models", "export", run, OUT, "--overwrite"], model),
        ] {
            place.refuses(command, link);
            place.refuses(command, &place.tiny.path(&picture));
        }
    }
    place.refuses(&["export", "@of_table", "--overwrite", "-o", OUT], &table);
    // Classes are folders: a new one would become a class.
    for run in ["@of_folders", "@of_pairs"] {
        let folder = place.tiny.path(&format!("images/train/{}", phantom::GRADES[0]));
        place.refuses(&["predict", run, "-i", "@images/test", "-o", OUT], &folder);
        place.refuses(&["compare", run, "@of_table", "--ensembles", OUT], &folder);
    }
    // A data set that was moved protects nothing, and hinders nothing.
    fs::rename(place.tiny.path("images"), place.tiny.path("moved")).unwrap();
    place.replaces(&["export", "@of_folders", "--overwrite", "-o", OUT], weights);
    assert_eq!(fs::read(place.tiny.path(&picture.replacen("images", "moved", 1))).unwrap(), original);
}

/// The volumes that a table lists are known from the table, which need not lie in a data set of its own.
#[test]
fn volumes_of_a_table_that_a_run_was_trained_on_are_not_replaced() {
    let mut place = Place::new();
    let folder = place.tiny.path("scans");
    fs::create_dir(&folder).unwrap();
    let mut table = String::from("case,ct,mask\n");
    for label in fs::read_dir(place.tiny.data.join("labelsTr")).unwrap() {
        let label = label.unwrap().path();
        let file = label.file_name().unwrap().to_str().unwrap();
        let case = file.strip_suffix(".nii.gz").unwrap();
        fs::copy(
            place.tiny.data.join(format!("imagesTr/{case}_0000.nii.gz")),
            folder.join(format!("{case}.i.nii.gz")),
        )
        .unwrap();
        fs::copy(&label, folder.join(format!("{case}.m.nii.gz"))).unwrap();
        table += &format!("{case},../scans/{case}.i.nii.gz,../scans/{case}.m.nii.gz\n");
    }
    fs::create_dir(place.tiny.path("lists")).unwrap();
    fs::write(place.tiny.path("lists/cases.csv"), table).unwrap();
    fs::write(place.tiny.path("table.toml"), "[data]\nimages = [\"ct\"]\nlabels = \"mask\"\n").unwrap();
    let (data, run, config) =
        (place.text("lists/cases.csv"), place.text("of_table"), place.text("table.toml"));
    let ended = plimsoll()
        .args(["train", &data, "--out", &run, "--config", &config, "--allow-outside", "--fold", "0"])
        .args("--ram 512MiB --net dynunet --features 4,8 --patch-size 8 --epochs 1 --iterations 1".split(' '))
        .args("--validation-iterations 1 --threads 1 --skip-validation".split(' '))
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let image = place.tiny.path(&place.first("scans"));
    let [weights, model, csv] = &place.links(&image, ["link.safetensors", "link.plimsoll", "link.csv"]);
    place.before = files(place.tiny.dir.path());
    for file in [weights, &image] {
        place.refuses(&["export", "@of_table", "--overwrite", "-o", OUT], file);
    }
    place.refuses(&["models", "export", "@of_table", OUT, "--overwrite"], model);
    place.refuses(&["compare", "@of_table", "@run", "--csv", OUT], csv);
    let predict = ["predict", "@of_table", "-i", "@dataset/imagesTs", "--overwrite", "-o", OUT];
    place.refuses(&predict, &folder);
    // The run of a second model counts, too.
    let both =
        ["predict", "-m", "@run", "-m", "@of_table", "-i", "@dataset/imagesTs", "--overwrite", "-o", OUT];
    place.refuses(&both, &folder);
    // A table that cannot be read any more still says where its data set lies.
    fs::write(place.tiny.path("lists/cases.csv"), "nothing\n").unwrap();
    let table = place.tiny.path("lists/cases.csv");
    place.before = files(place.tiny.dir.path());
    place.refuses(&["export", "@of_table", "--overwrite", "-o", OUT], &table);
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_folder(&path, &copy),
            false => assert!(fs::copy(&path, &copy).is_ok()),
        }
    }
}
