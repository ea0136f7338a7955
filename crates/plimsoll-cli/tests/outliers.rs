//! Cases with far more windows than the others, predicted at another spacing than the training spacing on request.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::support::{Tiny, plimsoll, run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{VolumeError, VolumeFile};
use serde_json::Value;

/// Depth, height and width of all images here.
const SHAPE: [usize; 3] = [22, 26, 24];

/// Images of which one, `wide`, has voxels several times as large as the others, and one, `twin`, has its voxels in the usual size.
struct Folders {
    dir: tempfile::TempDir,
    model: PathBuf,
}

impl Folders {
    fn new(model: PathBuf, usual: f32, wide: f32) -> Folders {
        let folders = Folders { dir: tempfile::tempdir().unwrap(), model };
        fs::create_dir(folders.images()).unwrap();
        for (case, spacing, seed) in
            [("a", usual, 5), ("b", usual, 3), ("c", usual, 2), ("twin", usual, 7), ("wide", wide, 7)]
        {
            let file = folders.images().join(format!("{case}_0000.nii.gz"));
            write_image(&file, spacing, seed);
        }
        folders
    }

    fn images(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    fn labels(&self, folder: &str, case: &str) -> PathBuf {
        self.dir.path().join(folder).join(format!("{case}.nii.gz"))
    }

    fn args(&self, folder: &str, more: &[&str]) -> Vec<String> {
        let (images, labels) = (self.images(), self.dir.path().join(folder));
        let [model, images, labels] = [&self.model, &images, &labels].map(|path| path.to_str().unwrap());
        let args = ["predict", model, "-i", images, "-o", labels, "--threads", "2"];
        args.iter().chain(more).map(|arg| arg.to_string()).collect()
    }

    fn json(&self, folder: &str, more: &[&str]) -> Value {
        let args = self.args(folder, more);
        run_json(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn error(&self, more: &[&str]) -> String {
        let args = self.args("none", more);
        let said = run_error(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(!self.dir.path().join("none").exists(), "{said}");
        said
    }

    /// The output of a command for people, and its error stream.
    fn said(&self, folder: &str, more: &[&str]) -> [String; 2] {
        let output = plimsoll().args(self.args(folder, more)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap())
    }
}

fn case<'a>(cases: &'a Value, name: &str) -> &'a Value {
    cases.as_array().unwrap().iter().find(|case| case["case"] == name).unwrap()
}

/// A packed NIfTI-1 file of shorts without sform and qform, whose voxels follow from a seed.
fn write_image(file: &Path, spacing: f32, seed: usize) {
    let mut header = vec![0u8; 352];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    let [depth, height, width] = SHAPE;
    put(0, &348i32.to_le_bytes());
    for (axis, extent) in [3, width, height, depth, 1, 1, 1, 1].into_iter().enumerate() {
        put(40 + 2 * axis, &(extent as i16).to_le_bytes());
    }
    put(70, &4i16.to_le_bytes());
    put(72, &16i16.to_le_bytes());
    for axis in 0..4 {
        let length = if axis == 0 { 1.0 } else { spacing };
        put(76 + 4 * axis, &length.to_le_bytes());
    }
    put(108, &352f32.to_le_bytes());
    put(344, b"n+1\0");
    let mut packed = flate2::write::GzEncoder::new(fs::File::create(file).unwrap(), Default::default());
    packed.write_all(&header).unwrap();
    for at in 0..depth * height * width {
        let [d, h, w] = [at / (height * width), at / width % height, at % width];
        // Blobs whose size and place depend on the seed, and noise.
        let blob = ((d * seed) as f32 / 9.0).sin() * ((h + seed) as f32 / 4.0).cos() * (w as f32 / 5.0).sin();
        let noise = at * 7919 % 251;
        packed.write_all(&((600.0 * blob) as i16 + noise as i16).to_le_bytes()).unwrap();
    }
    packed.finish().unwrap();
}

/// Shape and labels of a file.
fn labels(file: &Path) -> ([usize; 3], Vec<u8>) {
    let mut file = VolumeFile::open(file).unwrap();
    let mut all = Vec::new();
    let planes = file.for_each_plane(0, &Budget::new(Bytes::mib(64)), |_, plane| {
        all.extend_from_slice(plane);
        Ok::<(), VolumeError>(())
    });
    planes.unwrap();
    (file.geometry().shape(), all)
}

/// Checks the offered spacing, its request and its result; returns the share of voxels of `wide` that have the label of `twin`, whose
/// voxels the network sees as well when it sees `wide` at its own spacing.
fn check(folders: &Folders, spacing: f64, more: &[&str]) -> f64 {
    let with = |flags: &[&'static str]| [flags, more].concat();
    let plan =
        |flags: &[&'static str]| folders.json("none", &with(&[&["--plan"], flags].concat()))[0].clone();
    let usual = plan(&[]);
    let of_wide = case(&usual["cases"], "wide");
    let offered = &of_wide["outlier"]["other_spacing"];
    let windows = |plan: &Value| case(&plan["cases"], "wide")["plan"]["windows"].as_u64().unwrap();
    assert_eq!(offered["is_used"], false, "{of_wide}");
    assert_eq!(offered["flag"], "--outlier-spacing native");
    assert_eq!(of_wide["outlier"]["windows"], windows(&usual));
    for (key, length) in [("trained_mm", spacing), ("seen_mm", 5.0 * spacing)] {
        let found: Vec<f64> = serde_json::from_value(offered[key].clone()).unwrap();
        assert!(found.iter().all(|found| (found / length - 1.0).abs() < 1e-6), "{key}: {found:?}");
    }
    let [_, warned] = folders.said("none", &with(&["--plan"]));
    let way_out = format!("with --outlier-spacing native: {} windows, about ", offered["windows"]);
    assert!(warned.contains(&way_out), "{warned}");

    // Asked for, the plan says what changes.
    let native = plan(&["--outlier-spacing", "native"]);
    let used = &case(&native["cases"], "wide")["outlier"];
    assert_eq!(
        (&used["other_spacing"]["is_used"], &used["windows"]),
        (&Value::from(true), &of_wide["outlier"]["windows"])
    );
    assert_eq!(Value::from(windows(&native)), offered["windows"]);
    assert_eq!(windows(&native), case(&native["cases"], "twin")["plan"]["windows"].as_u64().unwrap());
    assert!(case(&native["cases"], "a")["outlier"].is_null());
    assert!(native["predicted_seconds"].as_f64() < usual["predicted_seconds"].as_f64());
    let [_, warned] = folders.said("none", &with(&["--plan", "--outlier-spacing", "native"]));
    assert!(
        warned.contains("it is predicted at ") && warned.contains("was not trained at that spacing"),
        "{warned}"
    );

    // Labels are on the grid of the case, and so are the labels of a continued prediction.
    let asked = with(&["--outlier-spacing", "native"]);
    let report = folders.json("labels", &asked);
    let predicted = case(&report["cases"], "wide");
    assert_eq!(predicted["windows"], offered["windows"]);
    assert_eq!(predicted["other_spacings"][0], used["other_spacing"]);
    assert_eq!(case(&report["cases"], "twin")["other_spacings"], Value::Array(Vec::new()));
    let file = folders.labels("labels", "wide");
    let whole = fs::read(&file).unwrap();
    // All others are there, so that nothing is left to compare its windows with but what is kept.
    fs::remove_file(&file).unwrap();
    let [said, _] = folders.said("labels", &asked);
    assert!(said.contains("wide was seen at ") && said.contains("the network was trained at "), "{said}");
    assert_eq!(fs::read(&file).unwrap(), whole);
    let (wide, twin) = (labels(&file), labels(&folders.labels("labels", "twin")));
    assert_eq!(wide.0, SHAPE);
    assert!(twin.1.iter().any(|label| *label != twin.1[0]), "the network tells nothing apart");
    let same = wide.1.iter().zip(&twin.1).filter(|(a, b)| a == b).count();
    same as f64 / wide.1.len() as f64
}

#[test]
fn an_outlier_is_seen_at_its_own_spacing_on_request_by_a_model_of_our_own() {
    const SPACING: f32 = 2e-3;
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--fold", "all", "--spacing", "0.002", "--iterations", "12"]);
    let folders = Folders::new(run, SPACING, 5.0 * SPACING);
    let same = check(&folders, f64::from(SPACING), &[]);
    // The spacing in a header has single precision, so that voxels are interpolated at a ten-millionth beside where they are.
    assert!(same > 0.999, "{same}");

    // A coarser one that is given takes fewer windows, too.
    let windows = |flags: &[&str]| {
        let plan = folders.json("none", &[&["--plan"], flags].concat());
        case(&plan[0]["cases"], "wide")["plan"]["windows"].as_u64().unwrap()
    };
    let given = windows(&["--outlier-spacing", "0.006,0.004,0.004"]);
    assert!(windows(&["--outlier-spacing", "native"]) < given && given < windows(&[]));

    // What has no use is refused before anything is written.
    let said = folders.error(&["--outlier-spacing", "0.002,0.001,0.002"]);
    assert!(said.contains("wide: --outlier-spacing 0.002,0.001,0.002 does not help"), "{said}");
    assert!(said.contains("hint: name a coarser one"), "{said}");
    for spacing in ["0", "1,-1,1", "own"] {
        let output = plimsoll().args(folders.args("none", &["--outlier-spacing", spacing])).output().unwrap();
        assert!(!output.status.success(), "{spacing}");
    }
    let said = folders.error(&["--outlier-spacing", "1e30"]);
    assert!(said.contains("wide: ") && said.contains("1.00e30"), "{said}");
    fs::remove_file(folders.images().join("wide_0000.nii.gz")).unwrap();
    let [_, said] = folders.said("none", &["--plan", "--outlier-spacing", "native"]);
    assert!(said.contains("warning: no case has far more windows than the others"), "{said}");
}

fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles")
}

#[test]
fn an_outlier_is_seen_at_its_own_spacing_on_request_by_a_model_of_nn_unet() {
    let model =
        oracles().join("nnunet/cascade/results/Dataset105_Cascade/nnUNetTrainer__nnUNetPlans__3d_fullres");
    let folders = Folders::new(model, 1.0, 5.0);
    assert_eq!(check(&folders, 1.0, &["--disable_tta"]), 1.0, "of the same voxels the same labels");
}

#[test]
fn a_model_whose_own_steps_say_the_spacing_refuses_another_one_by_name() {
    let folders = Folders::new(oracles().join("monai/bundle"), 1.0, 5.0);
    let said = folders.error(&["--outlier-spacing", "native"]);
    assert!(said.contains("--outlier-spacing has no effect: the transforms of the bundle"), "{said}");
}
