//! Commands that are killed while they write: the same command then writes whole files, and no temporary file remains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Ended, Tiny, plimsoll, results};

/// About so many operations of each command are tried.
const SAMPLE: usize = 6;

/// Operations that are tried, the later ones first, until one is reached.
const ATTEMPTS: usize = 4;

/// A command that writes into a folder.
struct Job<'a> {
    name: &'static str,
    /// The arguments for a folder of outputs.
    args: &'a dyn Fn(&str) -> Vec<String>,
    /// Arguments of the same command after it was killed.
    again: &'a dyn Fn(&Path) -> Vec<&'static str>,
}

/// All temporary files below a folder.
fn temporaries(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(temporaries(&path));
        } else if path.extension().is_some_and(|ending| ending == "partial") {
            found.push(path);
        }
    }
    found
}

/// Results but for records of when and how long a command ran.
fn lasting(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let is_of_time = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Pages and drawings name the place and the peak of memory.
        ["sweep.json", "page.json"].contains(&name.as_str()) || name.ends_with(".html")
    };
    results(folder).into_iter().filter(|(path, _)| !is_of_time(path)).collect()
}

impl Job<'_> {
    fn command(&self, tiny: &Tiny, out: &Path, more: &[&str]) -> Command {
        let mut command = plimsoll();
        command.args((self.args)(out.to_str().unwrap())).args(more).arg("--ram=512MiB");
        command.env("XDG_CACHE_HOME", tiny.path("cache"));
        command
    }

    /// Kills it at operations that change the folder of outputs, and runs it again.
    fn kill(&self, tiny: &Tiny) -> usize {
        let place = |name: &str| {
            let place = tiny.path(name);
            let _ = fs::remove_dir_all(&place);
            let _ = fs::remove_dir_all(tiny.path("cache"));
            fs::create_dir(&place).unwrap();
            place
        };
        let (whole, trace) = (place("place"), tiny.path("trace"));
        let _ = fs::remove_file(&trace);
        let ended = Ended::run(self.command(tiny, &whole, &[]).env("PLIMSOLL_DISK_TRACE", &trace));
        assert_eq!(ended.status, Some(0), "{}: {ended:?}", self.name);
        let expected = lasting(&whole);
        let pages = |folder: &Path| fs::read_to_string(folder.join("page.html")).ok();
        let has_page = pages(&whole).is_some();
        let operations = fs::read_to_string(&trace).unwrap();
        let changes: Vec<(usize, &str)> = (1..)
            .zip(operations.lines())
            .filter(|(_, line)| line.contains("/place/"))
            .filter(|(_, line)| {
                let kind = line.split(' ').nth(1).unwrap();
                ["create", "write", "sync", "rename", "sync-folder", "lock"].contains(&kind)
            })
            .collect();
        assert!(changes.len() >= 3, "{}: {operations}", self.name);
        let mut left = 0;
        let last = changes.len() - 1;
        let mut chosen: Vec<usize> = (0..SAMPLE).map(|at| at * last / (SAMPLE - 1)).collect();
        chosen.dedup();
        for at in chosen {
            // The number of operations varies a little from call to call, so the last ones may not come: then one before it fails.
            let (when, out, ended) = (0..ATTEMPTS)
                .map(|earlier| {
                    let (number, line) = changes[at.saturating_sub(earlier)];
                    let out = place("place");
                    let fault = format!("{number}:abort");
                    let ended = Ended::run(self.command(tiny, &out, &[]).env("PLIMSOLL_DISK_FAULT", fault));
                    (format!("{} killed at `{line}`", self.name), out, ended)
                })
                .find(|(.., ended)| ended.status != Some(0))
                .unwrap_or_else(|| panic!("{}: operation {at} and those before it do not come", self.name));
            assert_eq!(ended.status, None, "{when}: {ended:?}");
            left += temporaries(tiny.dir.path()).len();
            let again = Ended::run(&mut self.command(tiny, &out, &(self.again)(&out)));
            // A name that was given just before the end belongs to a complete file.
            let is_whole = again.said.contains("already exists") && lasting(&out) == expected;
            assert!(again.status == Some(0) || is_whole, "after {when}: {again:?}");
            assert_eq!(temporaries(tiny.dir.path()), Vec::<PathBuf>::new(), "after {when}");
            let found = lasting(&out);
            let names =
                |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
            assert_eq!(names(&found), names(&expected), "after {when}");
            for ((path, found), (_, expected)) in found.iter().zip(&expected) {
                assert!(found == expected, "{} differs after {when}", path.display());
            }
            if has_page {
                assert!(pages(&out).unwrap().ends_with("</body></html>\n"), "after {when}");
            }
        }
        left
    }
}

#[test]
fn files_of_commands_that_were_killed_are_whole_after_the_next_run() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--fold", "0", "--net", "plain", "--epochs", "1"]);
    let text = |path: PathBuf| path.to_str().unwrap().to_string();
    let (run, data) = (text(run), text(tiny.data.clone()));
    let (fold, labels) = (format!("{run}/fold_0"), format!("{data}/labelsTr"));
    let model = tiny.path("model");
    let exported =
        plimsoll().args(["export", &run, "--format", "nnunet", "-o"]).arg(&model).output().unwrap();
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let model = text(model);
    let steps = text(tiny.path("steps.toml"));
    fs::write(&steps, "[[steps]]\nstep = \"keep_largest\"\nlabels = [1]\n").unwrap();
    let sweep = text(tiny.path("sweep.toml"));
    let settings = "patch_size = [8, 8, 8]\nepochs = 1\niterations_per_epoch = 1\nvalidation_iterations = 1\n\
                    [settings.network]\nnet = 'dynunet'\nfeatures = [4, 8]\n";
    fs::write(
        &sweep,
        format!("dataset = 'dataset'\nfolds = [0]\n[settings]\n{settings}[[arm]]\nname = 'a'\n"),
    )
    .unwrap();
    let strings = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let with = |words: Vec<String>, copies: &[(&str, &str)], out: &str| {
        for (from, to) in copies {
            let to = Path::new(out).join(to);
            if !to.exists() {
                copy(Path::new(from), &to);
            }
        }
        words
    };
    let same: &dyn Fn(&Path) -> Vec<&'static str> = &|_| Vec::new();
    let overwriting: &dyn Fn(&Path) -> Vec<&'static str> = &|_| vec!["--overwrite"];
    let jobs = [
        Job {
            name: "inspect --page",
            args: &|out| strings(&["inspect", &data, "--page", &format!("{out}/page.html")]),
            again: same,
        },
        Job {
            name: "inspect --write",
            args: &|out| {
                let images = [(format!("{data}/imagesTr"), "data/images"), (labels.clone(), "data/labels")];
                let images = images.each_ref().map(|(from, to)| (from.as_str(), *to));
                with(strings(&["inspect", &format!("{out}/data"), "--write"]), &images, out)
            },
            again: same,
        },
        Job {
            name: "evaluate",
            args: &|out| {
                let scores = format!("{out}/scores.json");
                strings(&["evaluate", &labels, &data, "--metrics", "all", "--output", &scores])
            },
            again: same,
        },
        Job {
            name: "compare",
            args: &|out| {
                let (csv, png) = (format!("{out}/c.csv"), format!("{out}/c.png"));
                strings(&["compare", &run, &fold, "--resamples", "10", "--csv", &csv, "--picture", &png])
            },
            again: same,
        },
        Job {
            name: "report",
            args: &|out| strings(&["report", &run, "-o", &format!("{out}/page.html")]),
            again: same,
        },
        Job {
            name: "postprocess",
            args: &|out| {
                strings(&["postprocess", "-i", &labels, "--steps", &steps, "-o", &format!("{out}/labels")])
            },
            again: same,
        },
        Job {
            name: "postprocess --choose",
            args: &|out| {
                let copied = format!("{out}/run");
                with(strings(&["postprocess", &copied, "--choose"]), &[(&run, "run")], out)
            },
            again: same,
        },
        Job {
            name: "export",
            args: &|out| strings(&["export", &run, "-o", &format!("{out}/weights.safetensors")]),
            again: overwriting,
        },
        Job {
            name: "export --format onnx",
            args: &|out| {
                let graph = format!("{out}/model.onnx");
                strings(&["export", &run, "--format", "onnx", "--external-data", "-o", &graph])
            },
            again: overwriting,
        },
        Job {
            name: "export --format nnunet",
            args: &|out| strings(&["export", &run, "--format", "nnunet", "-o", &format!("{out}/model")]),
            again: same,
        },
        Job {
            name: "models export",
            args: &|out| strings(&["models", "export", &run, &format!("{out}/model.plimsoll")]),
            again: overwriting,
        },
        Job {
            name: "models import",
            args: &|out| strings(&["models", "import", &model, "-o", &format!("{out}/models")]),
            again: same,
        },
        Job {
            name: "predict",
            args: &|out| {
                let images = format!("{data}/imagesTs");
                strings(&["predict", &run, "-i", &images, "--preview", "-o", &format!("{out}/labels")])
            },
            again: same,
        },
        Job {
            name: "sweep",
            args: &|out| strings(&["sweep", &sweep, "--threads", "1", "-o", &format!("{out}/sweep")]),
            again: &|out| match out.join("sweep/sweep.json").exists() {
                true => vec!["--resume"],
                false => Vec::new(),
            },
        },
    ];
    let mut left = 0;
    for job in &jobs {
        let of_job = job.kill(&tiny);
        println!("{}: {of_job} temporary files were left and removed", job.name);
        left += of_job;
    }
    assert!(left > 2 * jobs.len(), "only {left} kills left a temporary file");
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        match path.is_dir() {
            true => copy(&path, &to),
            false => {
                fs::copy(&path, &to).unwrap();
            }
        }
    }
}
