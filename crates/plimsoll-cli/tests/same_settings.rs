//! `plan` and `train` accept the same settings, for every task.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_data::pictures::phantom::{self, PhantomImages};

use crate::support::{Ended, Tiny, plimsoll};

/// A data set with the settings of a run of one step.
struct Subject {
    name: &'static str,
    data: PathBuf,
    top: &'static str,
    tables: &'static str,
}

fn subjects(tiny: &Tiny) -> [Subject; 3] {
    let images = tiny.path("images");
    phantom::write(&images, &PhantomImages { images: [4, 2, 1], side: 40, seed: 2 }).unwrap();
    let small = "[network]\nnet = \"dynunet\"\nfeatures = [4, 8]\n";
    [
        Subject {
            name: "volumes",
            data: tiny.data.clone(),
            top: "patch_size = [8, 8, 8]\nepochs = 1\niterations_per_epoch = 1\nvalidation_iterations = 1\n",
            tables: small,
        },
        Subject {
            name: "slices",
            data: tiny.data.clone(),
            top: "dimensions = 2\npatch_size = [1, 16, 16]\nbatch_size = 2\nepochs = 1\niterations_per_epoch = 1\n\
                  validation_iterations = 1\n",
            tables: small,
        },
        Subject {
            name: "images",
            data: images,
            top: "batch_size = 2\nepochs = 1\niterations_per_epoch = 1\n",
            tables: "[network]\nfeatures = [128, 128, 128, 128]\n[images]\nsize = [32, 32]\n",
        },
    ]
}

/// Keys at the top of a file, and its tables.
const SETTINGS: [(&str, &str); 21] = [
    ("", ""),
    ("", "[early_stopping]\npatience = 5\n"),
    ("", "[early_stopping]\npatience = 5\nscore = \"ema_pseudo_dice\"\n"),
    ("", "[early_stopping]\npatience = 5\nscore = \"accuracy\"\n"),
    ("", "[early_stopping]\npatience = 5\nscore = \"kappa\"\n"),
    ("", "[early_stopping]\npatience = 5\nscore = \"validation_loss\"\n"),
    ("", "[early_stopping]\npatience = 0\n"),
    ("", "[early_stopping]\npatience = 1\nmin_delta = -1.0\n"),
    ("", "[bad_numbers]\nname = \"rollback\"\nlimit = 2\n"),
    ("learning_rate = 0.0\n", ""),
    ("min_learning_rate = 1.0\n", ""),
    ("warmup_steps = 1\n", ""),
    ("", "[decay]\nname = \"plateau\"\nfactor = 2.0\n"),
    ("", "[decay]\nname = \"plateau\"\n"),
    ("ema = 0.9\n", ""),
    ("frozen = [\"nothing\"]\n", ""),
    ("micro_batch = 3\n", ""),
    ("oversample_foreground = 1.0\n", ""),
    ("oversampling = \"random\"\n", ""),
    ("", "[[loss.components]]\nname = \"weighted_bce\"\nactivation = \"sigmoid\"\n"),
    (
        "",
        "[[loss.components]]\nname = \"soft_dice\"\n[[loss.components]]\nname = \"cldice\"\nfrom_epoch = 5\n",
    ),
];

fn error_of(ended: &Ended) -> Option<String> {
    (ended.status != Some(0)).then(|| {
        let line = ended.said.lines().find(|line| line.starts_with("error: "));
        line.map_or_else(|| format!("{ended:?}"), String::from)
    })
}

fn run(command: &str, data: &Path, config: &Path, more: &[&str]) -> Option<String> {
    let mut process = plimsoll();
    process.arg(command).arg(data).arg("--config").arg(config);
    error_of(&Ended::run(process.args(["--ram", "512MiB", "--threads", "1"]).args(more)))
}

#[test]
fn plan_and_train_accept_and_refuse_the_same_settings_for_every_task() {
    let tiny = Tiny::new();
    let (mut accepted, mut refused) = (0, 0);
    for subject in subjects(&tiny) {
        for (number, (top, tables)) in SETTINGS.iter().enumerate() {
            let config = tiny.path(&format!("{} {number}.toml", subject.name));
            fs::write(&config, format!("{}{top}{}{tables}", subject.top, subject.tables)).unwrap();
            let out = tiny.path(&format!("{} {number}", subject.name));
            let planned = run("plan", &subject.data, &config, &[]);
            let more = ["--out", out.to_str().unwrap(), "--skip-validation"];
            let trained = run("train", &subject.data, &config, &more);
            assert_eq!(planned, trained, "{}: {top}{tables}", subject.name);
            assert_eq!(out.exists(), trained.is_none(), "{}: {top}{tables}", subject.name);
            match planned {
                None => accepted += 1,
                Some(_) => refused += 1,
            }
            if number < 2 {
                assert_eq!(trained, None, "{}: {top}{tables}", subject.name);
            }
        }
    }
    assert!(accepted > 20 && refused > 20, "{accepted} accepted, {refused} refused");
}
