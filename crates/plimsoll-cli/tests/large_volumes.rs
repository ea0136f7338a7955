//! Volumes whose sums of logits are larger than the limit: they are predicted in strips with the labels of a large limit, and a process that is
//! killed meanwhile leaves nothing that is taken for a result. `benches/predict/large_volumes.py` does it with volumes of gigabytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{dataset, plimsoll, run_json, small_run};
use plimsoll_volume::{Affine, ElementType, Geometry, VolumeFile, VolumeWriter};
use serde_json::Value;

/// The longest that a process is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A model, and an image that is much wider than its windows.
struct Large {
    dir: tempfile::TempDir,
}

impl Large {
    fn new(shape: [usize; 3]) -> Large {
        let dir = tempfile::tempdir().unwrap();
        let data = dataset(dir.path());
        let run = dir.path().join("run");
        run_json(&small_run(data.to_str().unwrap(), run.to_str().unwrap()));
        fs::create_dir(dir.path().join("images")).unwrap();
        let sound = VolumeFile::open(data.join("imagesTs/vessel_test_000_0000.nii.gz")).unwrap();
        let geometry = Geometry::new(shape, Affine::from_spacing(sound.geometry().spacing())).unwrap();
        let path = dir.path().join("images/a_0000.nii.gz");
        let mut writer = VolumeWriter::create(path, &geometry, 1, ElementType::I16, None).unwrap();
        let [depth, height, width] = shape;
        for d in 0..depth {
            let mut plane = Vec::new();
            for voxel in 0..height * width {
                let (h, w) = (voxel / width, voxel % width);
                let vessel = (d + h / 2) % 23 < 4 && (w + h) % 19 < 5;
                let value = (voxel * 7919 + d * 104_729) % 61 + if vessel { 400 } else { 0 };
                plane.extend((value as i16).to_ne_bytes());
            }
            writer.write_planes(&plane).unwrap();
        }
        writer.finish().unwrap();
        Large { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn args(&self, out: &Path, more: &[&str]) -> Vec<String> {
        let (run, images) = (self.path("run"), self.path("images"));
        let args =
            ["predict", run.to_str().unwrap(), "-i", images.to_str().unwrap(), "-o", out.to_str().unwrap()];
        args.iter()
            .chain(&["--threads", "2", "--overlap", "0", "--ring", "f16"])
            .chain(more)
            .map(ToString::to_string)
            .collect()
    }

    fn report(&self, out: &Path, more: &[&str]) -> Value {
        let args = self.args(out, more);
        run_json(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The least limit, from the header.
    fn least(&self) -> u64 {
        let plan = self.report(&self.path("nowhere"), &["--plan", "--ram", "1GiB"]);
        plan[0]["cases"][0]["least_ram_bytes"].as_u64().unwrap()
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Names of what is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

#[test]
fn a_volume_larger_than_the_limit_has_the_labels_and_probabilities_of_a_large_limit() {
    // Sums pass along the axis across which planes are smallest; of equal ones, along the axis of stored planes.
    for (shape, axis) in [([60, 150, 140], 1), ([150, 60, 150], 0), ([60, 60, 190], 2), ([50, 170, 60], 1)] {
        let large = Large::new(shape);
        let (low, high) = (large.path("low"), large.path("high"));
        let files = ["--save_probabilities"];
        let of_high = large.report(&high, &[&files[..], &["--ram", "1GiB"]].concat());
        let planned =
            &large.report(&low, &[&files[..], &["--plan", "--ram", "1GiB"]].concat())[0]["cases"][0];
        let least = number(planned, "least_ram_bytes").to_string();
        let of_low = large.report(&low, &[&files[..], &["--ram", &least]].concat());
        let (plan, of_whole) = (&of_low["cases"][0]["plan"], &of_high["cases"][0]["plan"]);
        println!("{shape:?}: {plan}");
        assert_eq!(number(of_whole, "strips"), 1);
        assert!(number(plan, "strips") > 1, "{plan}");
        assert_eq!(
            number(plan, "windows") - number(plan, "repeated_windows"),
            number(of_whole, "windows"),
            "{plan}"
        );
        assert_eq!(number(plan, "slab_axis"), number(of_whole, "slab_axis"));
        assert_eq!(number(plan, "slab_axis"), axis, "{plan}");
        // Labels and probabilities wait on the disk.
        let voxels = shape.iter().product::<usize>() as u64;
        assert!(number(plan, "spool_file_bytes") >= 9 * voxels, "{plan}");
        // The image is compressed, and there is no room for it: it is decompressed on the disk.
        assert!(number(plan, "decompressed_file_bytes") >= 2 * voxels, "{plan}");
        assert_eq!(number(of_whole, "decompressed_file_bytes"), 0);
        assert!(number(&of_low, "peak_rss_bytes") <= least.parse().unwrap(), "{of_low}");
        for file in ["a.nii.gz", "a.npz"] {
            assert!(
                fs::read(low.join(file)).unwrap() == fs::read(high.join(file)).unwrap(),
                "{shape:?}: {file}"
            );
        }
        assert_eq!(names(&low), names(&high));
    }
}

#[test]
fn what_is_said_of_strips_is_how_many_and_what_they_cost() {
    let large = Large::new([60, 150, 140]);
    let least = large.least().to_string();
    for plan in [&["--plan"][..], &[]] {
        let args = large.args(&large.path("labels"), &[plan, &["--ram", &least]].concat());
        let output = plimsoll().args(args).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.contains(" strips, ") && said.contains(" windows are computed again"), "{said}");
    }
    // Below it, the hint names the limit that would do.
    let too_low = (large.least() - 1).to_string();
    let output = plimsoll().args(large.args(&large.path("other"), &["--ram", &too_low])).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("hint: raise the limit to --ram"), "{said}");
}

#[test]
fn a_prediction_that_is_killed_leaves_nothing_that_is_taken_for_labels_and_is_done_again() {
    let large = Large::new([60, 150, 140]);
    let least = large.least().to_string();
    let (whole, killed) = (large.path("whole"), large.path("killed"));
    let start = Instant::now();
    large.report(&whole, &["--ram", &least]);
    let seconds = start.elapsed();
    for part in [3, 6, 8] {
        let args = large.args(&killed, &["--ram", &least]);
        // A file of the same name that was made later is another one.
        let made = |name: String| {
            let created = fs::metadata(killed.join(&name)).and_then(|found| found.created()).ok();
            (name, created)
        };
        let before: Vec<_> = names(&killed).into_iter().map(made).collect();
        let mut child = plimsoll().args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        // The file of labels is there under another name as soon as the case has begun. Files without a name have one for a moment.
        let begun = || -> Vec<_> {
            let found = names(&killed).into_iter().filter(|name| name.ends_with(".partial")).map(made);
            found.filter(|found| !before.contains(found)).collect()
        };
        let mut seen = Vec::new();
        while !begun().iter().any(|found| seen.contains(found)) {
            assert!(start.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "nothing is begun");
            seen = begun();
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(seconds * part / 20);
        child.kill().unwrap();
        child.wait().unwrap();
        // What waited had no name.
        let left = names(&killed);
        assert!(
            left.iter().all(|name| name.starts_with(".a.nii.gz.") && name.ends_with(".partial")),
            "{left:?}"
        );
        assert_eq!(left.len(), 1, "{left:?}");
        // What the one before left is swept by the next.
        fs::create_dir_all(&killed).unwrap();
    }
    large.report(&killed, &["--continue_prediction", "--ram", &least]);
    assert!(fs::read(killed.join("a.nii.gz")).unwrap() == fs::read(whole.join("a.nii.gz")).unwrap());
    assert_eq!(names(&killed), names(&whole));
}
