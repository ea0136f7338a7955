//! No command writes over a file that it, the run or the data set reads.

mod training_data;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Tiny, plimsoll, run_error};

/// The place of the output in a command.
const OUT: &str = "OUT";

/// A data set, a run and predictions, and files of every other kind that commands read.
struct Place {
    tiny: Tiny,
    run: PathBuf,
    /// All files, to find any change.
    before: BTreeMap<PathBuf, Vec<u8>>,
}

impl Place {
    fn new() -> Place {
        let tiny = Tiny::new();
        let run = tiny.path("run");
        tiny.trained(&run, &["--fold", "0"]);
        for (name, text) in [
            ("settings.toml", "seed = 1\n"),
            ("splits.json", "[]\n"),
            ("steps.toml", "steps = []\n"),
            ("sweep.toml", "seeds = [0]\n"),
            ("table.csv", "case,label,a,b\nx,a,1,0\ny,b,0,1\n"),
        ] {
            fs::write(tiny.path(name), text).unwrap();
        }
        let validated = run.join("fold_0/validation");
        let predictions = tiny.path("predictions");
        fs::create_dir(&predictions).unwrap();
        for file in fs::read_dir(validated).unwrap() {
            let file = file.unwrap().path();
            if file.to_string_lossy().ends_with(".nii.gz") {
                fs::copy(&file, predictions.join(file.file_name().unwrap())).unwrap();
            }
        }
        let before = files(tiny.dir.path());
        Place { tiny, run, before }
    }

    fn text(&self, name: &str) -> String {
        self.tiny.path(name).to_str().unwrap().into()
    }

    /// The first file of a folder.
    fn first(&self, folder: &str) -> String {
        let mut found: Vec<PathBuf> =
            fs::read_dir(self.tiny.path(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found[0].strip_prefix(self.tiny.dir.path()).unwrap().to_str().unwrap().into()
    }

    /// Runs a command with an output, and expects that it refuses before it changes anything.
    fn refuses(&self, command: &[&str], out: &Path) {
        let args: Vec<String> = command
            .iter()
            .map(|word| match *word {
                OUT => out.to_str().unwrap().into(),
                word if word.starts_with('@') => self.text(&word[1..]),
                word => word.into(),
            })
            .collect();
        let error = run_error(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let is_guarded =
            ["would replace ", "would put its files among them"].iter().any(|words| error.contains(words));
        assert!(is_guarded, "{args:?}: {error}");
        assert!(error.contains(out.file_stem().unwrap().to_str().unwrap()), "{args:?}: {error}");
        assert!(error.contains("\nhint: name a f"), "{args:?}: {error}");
        let after = files(self.tiny.dir.path());
        for (path, contents) in &self.before {
            assert!(after.get(path) == Some(contents), "{args:?} changed {}", path.display());
        }
    }
}

/// All files below a folder, with their contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.is_symlink() => {}
            true => found.extend(files(&path)),
            false => {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// A command, the output of which is `OUT`, and its inputs.
type Row<'a> = (&'a [&'a str], &'a [&'a str]);

const DATASET: [&str; 3] = ["dataset/dataset.json", "IMAGE", "LABEL"];
const RUN: [&str; 4] = [
    "run/fold_0/checkpoint_final.safetensors",
    "run/fold_0/specification.json",
    "run/fold_0/events.jsonl",
    "run/fold_0/validation/summary.json",
];

const FILES: &[Row<'_>] = &[
    (&["inspect", "@dataset", "--config", "@settings.toml", "--page", OUT], &DATASET),
    (&["inspect", "@dataset", "--config", "@settings.toml", "--page", OUT], &["settings.toml"]),
    (&["plan", "@dataset", "--config", "@settings.toml", "--draw", OUT], &DATASET),
    (&["plan", "@dataset", "--config", "@settings.toml", "--draw", OUT], &["settings.toml"]),
    (&["bench", "load", "@dataset", "--config", "@settings.toml", "--draw", OUT], &DATASET),
    (&["train", "@dataset", "--out", "@new", "--plans-from", "@run", "--openmetrics", OUT], &RUN),
    (
        &["train", "@dataset", "--out", "@new", "--splits", "@splits.json", "--openmetrics", OUT],
        &["splits.json"],
    ),
    (&["train", "@dataset", "--out", "@new", "--start", "@table.csv", "--openmetrics", OUT], &["table.csv"]),
    (&["train", "@dataset", "--out", "@new", "--openmetrics", OUT], &DATASET),
    (
        &[
            "train",
            "@dataset",
            "--out",
            "@new",
            "--nodes",
            "2",
            "--ram",
            "1GiB",
            "--threads",
            "1",
            "--slurm",
            OUT,
        ],
        &DATASET,
    ),
    (
        &[
            "train",
            "@dataset",
            "--out",
            "@new",
            "--nodes",
            "2",
            "--ram",
            "1GiB",
            "--threads",
            "1",
            "--kubernetes",
            OUT,
        ],
        &DATASET,
    ),
    (&["sweep", "@sweep.toml", "@dataset", "--out", "@new", "--slurm", OUT], &DATASET),
    (&["sweep", "@sweep.toml", "@dataset", "--out", "@new", "--slurm", OUT], &["sweep.toml"]),
    (&["sweep", "@sweep.toml", "@dataset", "--out", "@new", "--kubernetes", OUT], &["sweep.toml"]),
    (&["report", "@run", "--dataset", "@dataset", "--output", OUT], &DATASET),
    (&["report", "@run", "--output", OUT], &RUN),
    // The data set that the run was trained on.
    (&["report", "@run", "--output", OUT], &DATASET),
    (&["predict", "@run", "-i", "@dataset/imagesTr", "--overwrite", "-o", OUT], &DATASET),
    (&["predict", "@run", "-i", "@dataset/imagesTr", "--overwrite", "-o", OUT], &RUN),
    (&["predict", "@run", "-i", "@table.csv", "--overwrite", "-o", OUT], &["table.csv"]),
    (&["segment", "-i", "@IMAGE", "--ml", "--overwrite", "-o", OUT], &["IMAGE"]),
    (
        &["postprocess", "-i", "@LABEL", "--steps", "@steps.toml", "--overwrite", "-o", OUT],
        &["LABEL", "steps.toml"],
    ),
    (&["models", "export", "@run", OUT, "--overwrite"], &RUN),
    (&["export", "@run", "--overwrite", "-o", OUT], &RUN),
    (&["export", "@run", "--format", "onnx", "--overwrite", "-o", OUT], &RUN),
    (&["evaluate", "@predictions", "@dataset/labelsTr", "-o", OUT], &["LABEL", "PREDICTION"]),
    (&["evaluate", "@predictions", "@dataset", "-o", OUT], &DATASET),
    (&["evaluate", "--classification", "@table.csv", "--overwrite", "-o", OUT], &["table.csv"]),
    (&["compare", "@run", "@run/fold_0", "--csv", OUT], &RUN),
    (&["compare", "@run", "@run/fold_0", "--picture", OUT], &RUN),
    (
        &["compare", "@run", "@run/fold_0", "--data", "@dataset", "--ensembles", "@new", "--csv", OUT],
        &DATASET,
    ),
];

const FOLDERS: &[Row<'_>] = &[
    (&["train", "@dataset", "--out", OUT], &["dataset", "dataset/imagesTr", "dataset/labelsTr/new"]),
    (&["train", "@dataset", "--plans-from", "@run", "--out", OUT], &["run", "run/fold_0/new"]),
    (&["sweep", "@sweep.toml", "@dataset", "--out", OUT], &["dataset", "dataset/labelsTr"]),
    (
        &["predict", "@run", "-i", "@dataset/imagesTs", "--overwrite", "-o", OUT],
        &[
            "dataset",
            "dataset/imagesTs",
            "dataset/imagesTr",
            "dataset/labelsTr",
            "dataset/labelsTr/new",
            "dataset/imagesTs/new",
        ],
    ),
    (&["segment", "-i", "@dataset/imagesTr", "--overwrite", "-o", OUT], &["dataset/imagesTr"]),
    (
        &["postprocess", "-i", "@predictions", "--steps", "@steps.toml", "--overwrite", "-o", OUT],
        &["predictions"],
    ),
    (&["models", "import", "@run", "-o", OUT], &["run"]),
    (&["export", "@run", "--format", "nnunet", "-o", OUT], &["run", "run/fold_0", "run/fold_0/new"]),
    (
        &["evaluate", "@predictions", "@dataset", "--images", "@dataset/imagesTr", "--pictures", OUT],
        &["predictions", "dataset", "dataset/imagesTr", "dataset/labelsTr"],
    ),
    (&["compare", "@run", "@run/fold_0", "--data", "@dataset", "--ensembles", OUT], &["run", "dataset"]),
];

#[test]
fn no_file_that_a_command_reads_is_replaced_under_any_of_its_names() {
    let place = Place::new();
    let named = [
        ("IMAGE", place.first("dataset/imagesTr")),
        ("LABEL", place.first("dataset/labelsTr")),
        ("PREDICTION", place.first("predictions")),
    ];
    let real =
        |word: &str| named.iter().fold(word.to_string(), |word, (name, file)| word.replace(name, file));
    for (number, (command, inputs)) in FILES.iter().enumerate() {
        let command: Vec<String> = command.iter().map(|word| real(word)).collect();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        for (which, input) in inputs.iter().enumerate() {
            let input = place.tiny.path(&real(input));
            place.refuses(&command, &input);
            // Where a file of scores may be replaced by scores, a link to it is no other file.
            let name = format!("link_{number}_{which}_{}", input.file_name().unwrap().to_str().unwrap());
            let links = tempfile::tempdir_in(place.tiny.dir.path()).unwrap();
            let hard = links.path().join(&name);
            fs::hard_link(&input, &hard).unwrap();
            place.refuses(&command, &hard);
            fs::remove_file(&hard).unwrap();
            #[cfg(unix)]
            {
                let soft = links.path().join(&name);
                std::os::unix::fs::symlink(&input, &soft).unwrap();
                place.refuses(&command, &soft);
                assert!(soft.is_symlink());
            }
        }
    }
}

#[test]
fn no_folder_that_a_command_reads_gets_its_outputs() {
    let place = Place::new();
    for (command, folders) in FOLDERS {
        for folder in *folders {
            place.refuses(command, &place.tiny.path(folder));
        }
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(place.tiny.path("dataset/labelsTr"), place.tiny.path("link")).unwrap();
        place.refuses(
            &["predict", "@run", "-i", "@dataset/imagesTs", "--overwrite", "-o", OUT],
            &place.tiny.path("link"),
        );
    }
}

/// Files beside a named output have names that follow from it.
#[test]
fn files_beside_a_named_output_replace_no_input_either() {
    let place = Place::new();
    let page = ["inspect", "@dataset", "--page", OUT];
    place.refuses(&page, &place.tiny.path("dataset/dataset.html"));
    place.refuses(&page, &place.tiny.path("splits.html"));
    let scores = ["evaluate", "@predictions", "@dataset", "-o", OUT];
    place.refuses(&scores, &place.tiny.path("table.json"));
    place.refuses(
        &["evaluate", "--classification", "@table.csv", "--overwrite", "-o", OUT],
        &place.tiny.path("table.json"),
    );
    let (run, one, same) = (place.text("run"), place.text("one"), place.text("run/../one"));
    let twice = run_error(&["compare", &run, &run, "--csv", &one, "--picture", &same]);
    assert!(twice.contains("would be written twice, by --csv and by --picture"), "{twice}");
}

/// A file that the user has written is not a result of the command, and is not replaced by one.
#[test]
fn files_of_other_contents_are_kept_and_own_results_are_replaced() {
    let place = Place::new();
    place.refuses(
        &["inspect", "@dataset", "--page", OUT],
        &place.tiny.path("splits.json").with_file_name("steps.toml"),
    );
    fs::write(place.run.join("postprocessing.toml"), "steps = []\n").unwrap();
    let kept = run_error(&["postprocess", place.run.to_str().unwrap(), "--choose"]);
    assert!(
        kept.contains("is not a file of steps that were chosen") && kept.contains("hint: move it"),
        "{kept}"
    );
    assert_eq!(fs::read_to_string(place.run.join("postprocessing.toml")).unwrap(), "steps = []\n");
    fs::remove_file(place.run.join("postprocessing.toml")).unwrap();
    let (page, csv, picture) =
        (place.text("dataset/page.html"), place.text("run/c.csv"), place.text("run/c.png"));
    let (dataset, run) = (place.text("dataset"), place.text("run"));
    let report = place.text("run/report.html");
    let (labels, predictions) = (place.text("dataset/labelsTr"), place.text("predictions"));
    let graph = place.text("run/model.onnx");
    let (weights, model) = (place.text("weights.safetensors"), place.text("model.plimsoll"));
    let drawing = place.text("dataset/arena.svg");
    let metrics = place.text("dataset/metrics.prom");
    for _ in 0..2 {
        for command in [
            &["inspect", &dataset, "--page", &page][..],
            &["compare", &run, &format!("{run}/fold_0"), "--csv", &csv, "--picture", &picture],
            &["report", &run, "-o", &report],
            &["evaluate", &predictions, &labels, "--partial"],
            &["export", &run, "--format", "onnx", "--overwrite", "-o", &graph],
            &["export", &run, "--overwrite", "-o", &weights],
            &["models", "export", &run, &model, "--overwrite"],
        ] {
            let done = plimsoll().args(command).output().unwrap();
            assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let more = [
            "--draw",
            &drawing,
            "--config",
            "/dev/null",
            "--patch-size",
            "8",
            "--features",
            "4,8",
            "--net",
            "dynunet",
        ];
        let done = plimsoll().args(["plan", &dataset]).args(more).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let _ = fs::remove_dir_all(place.tiny.path("other"));
        place.tiny.trained(&place.tiny.path("other"), &["--openmetrics", &metrics]);
    }
}

/// A data set may list files of other folders: they are its files, too.
#[test]
fn files_that_a_data_set_lists_elsewhere_are_not_replaced() {
    let mut place = Place::new();
    let data = place.tiny.path("listed");
    fs::create_dir(&data).unwrap();
    for folder in ["scans", "drawn"] {
        fs::create_dir(place.tiny.path(folder)).unwrap();
    }
    let mut cases = Vec::new();
    for label in fs::read_dir(place.tiny.data.join("labelsTr")).unwrap() {
        let label = label.unwrap().path();
        let file = label.file_name().unwrap().to_str().unwrap().to_string();
        let case = file.strip_suffix(".nii.gz").unwrap();
        let image = place.tiny.data.join(format!("imagesTr/{case}_0000.nii.gz"));
        fs::copy(&image, place.tiny.path(&format!("scans/{file}"))).unwrap();
        fs::copy(&label, place.tiny.path(&format!("drawn/{file}"))).unwrap();
        cases.push(format!(r#""{case}": {{"images": ["../scans/{file}"], "label": "../drawn/{file}"}}"#));
    }
    let described = fs::read_to_string(place.tiny.data.join("dataset.json")).unwrap();
    let (start, _) = described.rsplit_once('}').unwrap();
    fs::write(data.join("dataset.json"), format!("{start}, \"dataset\": {{{}}}}}", cases.join(", ")))
        .unwrap();
    let run = place.tiny.path("of_listed");
    let trained = plimsoll()
        .args([
            "train",
            data.to_str().unwrap(),
            "--out",
            run.to_str().unwrap(),
            "--allow-outside",
            "--fold",
            "0",
        ])
        .args([
            "--ram",
            "512MiB",
            "--net",
            "dynunet",
            "--features",
            "4,8",
            "--patch-size",
            "8",
            "--epochs",
            "1",
        ])
        .args([
            "--iterations",
            "1",
            "--validation-iterations",
            "1",
            "--threads",
            "1",
            "--config",
            "/dev/null",
        ])
        .output()
        .unwrap();
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let (image, label) = (place.first("scans"), place.first("drawn"));
    let link = |name: &str, to: &str| {
        let link = place.tiny.path(name);
        fs::hard_link(place.tiny.path(to), &link).unwrap();
        link
    };
    let links = [
        link("image.html", &image),
        link("label.csv", &label),
        link("label.safetensors", &label),
        link("image.plimsoll", &image),
    ];
    place.before = files(place.tiny.dir.path());
    let [page, csv, weights, model] = &links;
    for file in [&place.tiny.path(&image), &place.tiny.path(&label), page] {
        place.refuses(&["inspect", "@listed", "--allow-outside", "--page", OUT], file);
        place.refuses(&["report", "@of_listed", "--output", OUT], file);
        place.refuses(&["report", "@of_listed", "--dataset", "@listed", "--output", OUT], file);
        place.refuses(&["evaluate", "@predictions", "@listed", "--allow-outside", "-o", OUT], file);
    }
    place.refuses(&["compare", "@of_listed", "@of_listed/fold_0", "--csv", OUT], csv);
    place.refuses(&["export", "@of_listed", "--overwrite", "-o", OUT], weights);
    place.refuses(&["models", "export", "@of_listed", OUT, "--overwrite"], model);
    for folder in ["scans", "drawn", "run/../drawn"] {
        let folder = place.tiny.path(folder);
        place.refuses(
            &["predict", "@of_listed", "-i", "@dataset/imagesTs", "--overwrite", "-o", OUT],
            &folder,
        );
        place.refuses(&["train", "@listed", "--allow-outside", "--out", OUT], &folder);
    }
    // A description is written beside what it describes, and nothing else.
    let pairs = place.tiny.path("pairs");
    fs::create_dir(&pairs).unwrap();
    for (folder, name) in [("scans", "images"), ("drawn", "labels")] {
        std::os::unix::fs::symlink(place.tiny.path(folder), pairs.join(name)).unwrap();
    }
    let written = plimsoll().args(["inspect", pairs.to_str().unwrap(), "--write"]).output().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let mut after = files(place.tiny.dir.path());
    assert!(after.remove(&pairs.join("dataset.json")).is_some());
    assert!(after == place.before);
}
