//! Jobs that are divided among processes: together they write what one process writes, also if some are killed and repeated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Ended, Tiny, error_of, plimsoll, run_error, run_json};
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};

const FORTY: usize = 40;

/// Writes a volume of bytes that depend on a number.
fn volume(path: &Path, shape: [usize; 3], number: usize, values: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([1e-3; 3]))).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::U8, None).unwrap();
    let count = shape.iter().product::<usize>();
    let voxels: Vec<u8> = (0..count).map(|at| ((at * 7919 + number * 104_729) / 13 % values) as u8).collect();
    writer.write_planes(&voxels).unwrap();
    writer.finish().unwrap();
}

/// A model, and images of different sizes.
struct Job {
    tiny: Tiny,
    model: PathBuf,
    images: PathBuf,
}

impl Job {
    fn new(images: usize) -> Job {
        let tiny = Tiny::new();
        let (model, folder) = (tiny.path("run"), tiny.path("images"));
        tiny.trained(&model, &["--fold", "all"]);
        for number in 0..images {
            let shape = [16 + number % 3 * 4, 20 + number % 5 * 2, 18];
            volume(&folder.join(format!("case_{number:02}_0000.nii.gz")), shape, number, 251);
        }
        Job { tiny, model, images: folder }
    }

    fn predict(&self, output: &Path, more: &[&str]) -> Command {
        let mut command = plimsoll();
        command.arg("predict").arg(&self.model).arg("-i").arg(&self.images).arg("-o").arg(output);
        command.args(["--ram", "512MiB", "--threads", "1"]).args(more);
        command
    }

    fn predicted(&self, output: &Path, more: &[&str]) -> Ended {
        let ended = Ended::run(&mut self.predict(output, more));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        ended
    }
}

/// The label maps of a folder.
fn labels(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let maps = files.filter(|path| path.to_string_lossy().ends_with(".nii.gz"));
    maps.map(|path| (path.file_name().unwrap().to_str().unwrap().into(), fs::read(&path).unwrap())).collect()
}

fn record(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("run.json")).unwrap()).unwrap()
}

fn count(record: &Value, list: &str) -> usize {
    record[list].as_array().unwrap().len()
}

/// Kills a process as soon as a condition holds.
fn kill_when(command: &mut Command, is_time: impl Fn() -> bool) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !is_time() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended before it was killed");
        thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "it was not killed");
}

#[test]
fn forty_images_in_four_parts_with_one_killed_twice_have_the_labels_of_one_process() {
    let job = Job::new(FORTY);
    let [whole, parts] = ["whole", "parts"].map(|name| job.tiny.path(name));
    job.predicted(&whole, &[]);
    let part = |part: &str| {
        let mut command = job.predict(&parts, &["--part", part]);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        command
    };
    let others: Vec<_> = ["1/4", "3/4", "4/4"].map(|text| part(text).spawn().unwrap()).into();
    let lines = || fs::read(parts.join("run.parts/2-of-4.cases.jsonl")).unwrap_or_default();
    let count_lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    kill_when(&mut part("2/4"), || count_lines(&lines()) >= 2);
    // The second time, the lines of the first go into the record of the part, and others follow.
    let first = lines();
    kill_when(&mut part("2/4"), || count_lines(&lines()) >= 1 && !first.starts_with(&lines()));
    for other in others {
        let ended: Ended = other.wait_with_output().unwrap().into();
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
    assert!(!parts.join("run.json").exists(), "a part is missing");
    let ended = job.predicted(&parts, &["--part", "2/4"]);
    assert!(ended.said.contains("part 2/4: ") && ended.said.contains(" of 40 cases, "), "{ended:?}");
    assert!(ended.said.contains("all 4 parts are finished"), "{ended:?}");
    assert!(labels(&parts) == labels(&whole) && labels(&whole).len() == FORTY);
    let record = record(&parts);
    assert_eq!((count(&record, "cases") + count(&record, "kept"), count(&record, "failed")), (FORTY, 0));
    assert!(count(&record, "kept") >= 3, "what was finished before the kills was kept");
    let earlier = record["kept"].as_array().unwrap().iter().filter(|kept| kept["earlier"].is_object());
    assert_eq!(earlier.count(), count(&record, "kept"), "their times are recorded");
    assert_eq!(count(&record, "parts"), 4);
    // Each part has about a quarter of the planned work.
    for part in record["parts"].as_array().unwrap() {
        let cases = part["cases"].as_u64().unwrap() + part["kept"].as_u64().unwrap();
        assert!((8..=12).contains(&cases), "{part}");
    }
    // A part is repeated alone, and the record of the others stays.
    job.predicted(&parts, &["--part", "3/4", "--overwrite"]);
    let repeated = self::record(&parts);
    assert_eq!((count(&repeated, "cases") + count(&repeated, "kept"), count(&repeated, "parts")), (FORTY, 4));
    assert!(labels(&parts) == labels(&whole));
    // One process takes over what parts have recorded, and removes their files.
    job.predicted(&parts, &[]);
    let taken = self::record(&parts);
    assert_eq!(count(&taken, "cases") + count(&taken, "kept"), FORTY);
    assert!(!parts.join("run.parts").exists());
}

#[test]
fn a_launcher_or_an_array_gives_each_process_its_part_and_one_process_finishes_the_rest() {
    let job = Job::new(5);
    let [whole, parts] = ["whole", "parts"].map(|name| job.tiny.path(name));
    job.predicted(&whole, &[]);
    let with = |variables: &[(&str, &str)], more: &[&str]| {
        Ended::run(job.predict(&parts, more).envs(variables.iter().copied()))
    };
    let ended = with(&[("PMI_RANK", "0"), ("PMI_SIZE", "3")], &[]);
    assert!(ended.status == Some(0) && ended.said.contains("it takes part 1/3 of the cases"), "{ended:?}");
    assert!(ended.said.contains("1 of 3 parts are finished; missing: 2/3, 3/3"), "{ended:?}");
    let array = [
        ("SLURM_ARRAY_TASK_ID", "2"),
        ("SLURM_ARRAY_TASK_COUNT", "3"),
        ("SLURM_ARRAY_TASK_MIN", "1"),
        ("SLURM_ARRAY_TASK_STEP", "1"),
    ];
    let ended = with(&array, &[]);
    assert!(ended.status == Some(0) && ended.said.contains("it takes part 2/3 of the cases"), "{ended:?}");
    // The arguments come first.
    let ended = with(&array, &["--part", "1/3"]);
    assert!(ended.status == Some(0) && ended.said.contains(" already existed and "), "{ended:?}");
    let ended = with(&[], &["--part", "1/4"]);
    let said = ended.error(1);
    assert!(said.contains("has parts of another division, like 1/3"), "{said}");
    assert!(said.contains("divide into 3 parts as before, or finish the folder with one process"), "{said}");
    job.predicted(&parts, &[]);
    assert!(labels(&parts) == labels(&whole));
    let record = record(&parts);
    assert_eq!(count(&record, "cases") + count(&record, "kept"), 5);
    assert!(record["kept"].as_array().unwrap().iter().all(|kept| kept["earlier"].is_object()), "{record}");
}

#[test]
fn a_record_of_a_part_that_lacks_a_number_is_refused_and_the_hint_completes_the_job() {
    let job = Job::new(2);
    let parts = job.tiny.path("parts");
    job.predicted(&parts, &["--part", "1/2"]);
    let path = parts.join("run.parts/1-of-2.json");
    let mut damaged: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    damaged["times"].as_object_mut().unwrap().remove("read_seconds");
    fs::write(&path, damaged.to_string()).unwrap();
    let said = Ended::run(&mut job.predict(&parts, &["--part", "2/2"])).error(1);
    assert!(said.contains("1-of-2.json is a damaged record of predictions: `times` "), "{said}");
    assert!(said.contains("missing field `read_seconds`"), "{said}");
    assert!(said.contains("hint: remove this file, and predict the part again with --part 1/2"), "{said}");
    assert!(labels(&parts).len() == 2 && !parts.join("run.json").exists(), "no sums without the number");
    fs::remove_file(&path).unwrap();
    let ended = job.predicted(&parts, &["--part", "1/2"]);
    assert!(ended.said.contains("all 2 parts are finished"), "{ended:?}");
    assert_eq!(count(&record(&parts), "parts"), 2);
}

#[test]
fn a_launcher_of_several_processes_is_refused_for_commands_of_one() {
    let tiny = Tiny::new();
    let (data, out) = (tiny.data.to_str().unwrap().to_string(), tiny.path("run"));
    let refused = |variables: [(&str, &str); 2]| {
        let mut command = plimsoll();
        command.envs(variables);
        let error = error_of(
            &mut command,
            &["train", &data, "--one-vs-one", "--out", out.to_str().unwrap(), "--ram", "1GiB"],
        );
        assert!(!out.exists());
        error
    };
    let said = refused([("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")]);
    assert!(said.contains("mpirun of Open MPI started 4 processes, but this command runs in one"), "{said}");
    let said = refused([("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")]);
    assert!(said.contains("srun of Slurm started 2 processes"), "{said}");
    let said = refused([("PMI_RANK", "2"), ("PMI_SIZE", "2")]);
    assert!(said.contains("PMI_RANK is 2, but PMI_SIZE is 2"), "{said}");
    // A batch script is one process, and so is a launcher's only one.
    for variables in [[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")], [("PMI_RANK", "0"), ("PMI_SIZE", "1")]]
    {
        let ended = Ended::run(tiny.train(&tiny.path(variables[1].0), &["--fold", "all"]).envs(variables));
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
    let said = run_error(&["predict", "model", "-i", "images", "-o", "out", "--part", "5/4"]);
    assert!(said.contains("`5/4` is no part: write I/N"), "{said}");
}

#[test]
fn parts_of_an_evaluation_merge_to_the_bytes_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let [predictions, references] = ["predictions", "references"].map(|name| dir.path().join(name));
    for number in 0..7 {
        let shape = [6 + number, 12, 10];
        volume(&predictions.join(format!("case_{number}.nii.gz")), shape, number, 3);
        volume(&references.join(format!("case_{number}.nii.gz")), shape, number + 1, 3);
    }
    let [predictions, references] = [&predictions, &references].map(|path| path.to_str().unwrap());
    let output = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let args = |output: &str, more: &[&str]| {
        let args = ["evaluate", predictions, references, "--metrics", "overlap,surface", "-o", output];
        args.iter().chain(more).map(|arg| arg.to_string()).collect::<Vec<String>>()
    };
    let run = |args: &[String]| run_json(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let (whole, parts) = (output("whole.json"), output("parts.json"));
    run(&args(&whole, &[]));
    let first = run(&args(&parts, &["--part", "1/3"]));
    assert!((2..=3).contains(&count(&first, "metric_per_case")), "the scores of the part");
    let mut others: Vec<_> = ["2/3", "3/3"]
        .map(|part| plimsoll().args(args(&parts, &["--part", part])).stdout(Stdio::null()).spawn().unwrap())
        .into();
    for other in &mut others {
        assert!(other.wait().unwrap().success());
    }
    for ending in ["json", "csv", "svg"] {
        let bytes = |path: &str| fs::read(Path::new(path).with_extension(ending)).unwrap();
        assert!(bytes(&whole) == bytes(&parts), "{ending}");
    }
    // After a prediction has changed, the part that scored it is repeated.
    let summary = fs::read(&parts).unwrap();
    let changed = first["metric_per_case"][0]["prediction_file"].as_str().unwrap().to_string();
    let shape = plimsoll_volume::VolumeFile::open(&changed).unwrap().geometry().shape();
    volume(Path::new(&changed), shape, 99, 2);
    let ended = Ended::run(plimsoll().args(args(&parts, &["--part", "2/3"])));
    assert!(ended.status == Some(0) && ended.said.contains("part 1/3 scored other files"), "{ended:?}");
    assert_eq!(fs::read(&parts).unwrap(), summary, "nothing is merged");
    let merged = run(&args(&parts, &["--part", "1/3"]));
    assert_eq!(count(&merged, "metric_per_case"), 7);
    run(&args(&whole, &[]));
    assert!(fs::read(&whole).unwrap() == fs::read(&parts).unwrap());
}

#[test]
fn parts_of_a_segmentation_write_the_label_maps_of_one_process() {
    let oracle = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name);
        path.canonicalize().unwrap().to_str().unwrap().to_string()
    };
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("images");
    fs::create_dir(&images).unwrap();
    for case in ["a", "b", "c"] {
        fs::copy(oracle("total_segmentator/ct.nii.gz"), images.join(format!("{case}.nii.gz"))).unwrap();
    }
    let weights = oracle("total_segmentator/weights");
    let segment = |input: &Path, output: &str, more: &[&str]| {
        let output = dir.path().join(output);
        let mut command = plimsoll();
        command.args(["segment", "total", "--fast", "--ml", "--weights", &weights, "-i"]).arg(input);
        Ended::run(command.arg("-o").arg(&output).args(more))
    };
    assert_eq!(segment(&images, "whole", &[]).status, Some(0));
    for part in ["2/2", "1/2"] {
        let ended = segment(&images, "parts", &["--part", part]);
        assert!(ended.status == Some(0) && ended.said.contains(&format!("part {part}: ")), "{ended:?}");
    }
    assert!(labels(&dir.path().join("parts")) == labels(&dir.path().join("whole")));
    assert_eq!(labels(&dir.path().join("parts")).len(), 3);
    let said = segment(&images.join("a.nii.gz"), "one.nii.gz", &["--part", "1/2"]).error(1);
    assert!(said.contains("--part 1/2 has no effect") && said.contains("is one image"), "{said}");
}

#[test]
fn parts_of_an_inspection_merge_to_the_bytes_of_one_process_and_one_that_failed_is_repeated() {
    let tiny = Tiny::new();
    let cache = |name: &str| tiny.path(name);
    let inspect = |name: &str, more: &[&str]| {
        let mut command = plimsoll();
        command.arg("inspect").arg(&tiny.data).args(["--ram", "512MiB"]).args(more);
        Ended::run(command.env("XDG_CACHE_HOME", cache(name)))
    };
    // The only data set that a cache has.
    let folder = |name: &str| {
        let inspected = fs::read_dir(cache(name).join("plimsoll/inspected")).unwrap();
        inspected.map(|entry| entry.unwrap().path()).next().unwrap()
    };
    let whole = inspect("whole", &[]);
    assert_eq!(whole.status, Some(0), "{whole:?}");
    let ended = inspect("parts", &["--part", "2/3"]);
    assert!(
        ended.status == Some(0) && ended.said.contains("1 of 3 parts are finished; missing: 1/3, 3/3"),
        "{ended:?}"
    );
    assert_eq!(ended.printed, "part 2/3 is inspected\n");
    let ended = inspect("parts", &["--part", "2/3", "--json"]);
    let printed: Value = serde_json::from_str(&ended.printed).unwrap();
    assert_eq!(printed, serde_json::json!({"part": "2/3"}));
    let ended = inspect("parts", &["--part", "3/3"]);
    assert!(ended.said.contains("missing: 1/3"), "{ended:?}");
    fs::write(folder("parts").join("parts/2-of-3.jsonl"), "damaged").unwrap();
    let ended = inspect("parts", &["--part", "1/3"]);
    assert!(
        ended.status == Some(0)
            && ended.said.contains("part 2/3 has read other files, or is damaged: repeat it"),
        "{ended:?}"
    );
    let ended = inspect("parts", &["--part", "2/3"]);
    assert!(ended.said.contains("all 3 parts are finished"), "{ended:?}");
    assert_eq!(ended.printed, whole.printed);
    for name in ["inspection.jsonl", "foreground_index.bin", "dataset_fingerprint.json"] {
        let bytes = |cache: &str| fs::read(folder(cache).join(name)).unwrap();
        assert!(bytes("whole") == bytes("parts"), "{name}");
    }
    assert!(!folder("parts").join("parts").exists());
    let ended = inspect("parts", &["--part", "1/3"]);
    assert!(
        ended.said.contains("the data set is inspected already") && ended.printed == whole.printed,
        "{ended:?}"
    );
    // The place among several processes is a part, as of a prediction.
    let mut command = plimsoll();
    command.arg("inspect").arg(&tiny.data).env("XDG_CACHE_HOME", cache("ranks"));
    let ended = Ended::run(command.envs([("PMI_RANK", "0"), ("PMI_SIZE", "2")]));
    assert!(ended.said.contains("it takes part 1/2 of the cases"), "{ended:?}");
    let mut command = plimsoll();
    command.arg("inspect").arg(&tiny.data).args(["--write", "--part", "1/2"]);
    let said = Ended::run(&mut command).error(1);
    assert!(said.contains("--write describes all cases, but part 1/2"), "{said}");
}
