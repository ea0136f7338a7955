//! Labels from C are those that are written for the same image in a file, byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "the functions are those of C")]

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::*;
use plimsoll_cpu::{CpuBackend, CpuOptions};
use plimsoll_data::{Case, ChannelFile, Dataset, Reading};
use plimsoll_infer::{CaseRequest, PredictOptions, Predictor};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel, is_nnunet};
use plimsoll_models::{Model, SegmentationModel};
use plimsoll_run::CheckpointKind;
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeFile, VolumeWriter, VoxelBox};

const LIMIT: u64 = 512 << 20;

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet").join(name)
}

/// The folder of a configuration of a model.
fn trained(name: &str, configuration: &str) -> PathBuf {
    let inside =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let folders = inside(&oracle(name).join("results")).into_iter().flat_map(|dataset| inside(&dataset));
    let mut found =
        folders.filter(|folder| folder.to_string_lossy().ends_with(&format!("__{configuration}")));
    found.next().unwrap()
}

/// A model, and `true` if it is mirrored by default.
fn opened(path: &Path) -> (SegmentationModel, bool) {
    let budget = Budget::new(Bytes(LIMIT));
    match is_nnunet(path).unwrap() {
        true => (NnUnetModel::open(path, &NnUnetChoice::default(), &budget).unwrap().model, true),
        false => (Model::open(path, CheckpointKind::Final).unwrap().try_into().unwrap(), false),
    }
}

/// Labels of a case in files, as they are stored.
fn predict_files(model: &Path, case: &Case) -> Vec<u8> {
    let budget = Budget::new(Bytes(LIMIT));
    let (opened, mirror) = opened(model);
    let options = PredictOptions::new(0.5, mirror, 1);
    let backend = Arc::new(CpuBackend::new(CpuOptions::new(1)).unwrap());
    let mut predictor = Predictor::new(opened, options, backend, &budget).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let labels = folder.path().join("labels.nii");
    let request = CaseRequest { case, earlier: None, within: None, labels: &labels, probabilities: None };
    predictor.predict(&request, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let mut file = VolumeFile::open(&labels).unwrap();
    stored(&mut file)
}

fn stored(file: &mut VolumeFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.stored_bytes()).unwrap()];
    file.read_region(0, VoxelBox::whole(file.geometry().shape()), &mut bytes).unwrap();
    bytes
}

/// A handle of C.
struct Handle(*mut PlimsollModel);

impl Handle {
    /// Opens, whatever comes of it.
    fn open(path: &Path, change: impl FnOnce(&mut PlimsollOptions)) -> (PlimsollStatus, Handle) {
        let mut options = plimsoll_usual_options();
        (options.ram_bytes, options.threads) = (LIMIT, 2);
        change(&mut options);
        let path = CString::new(path.to_str().unwrap()).unwrap();
        let mut model = null_mut();
        // SAFETY: the path ends in zero, and the others are references.
        let status = unsafe { plimsoll_open(path.as_ptr(), &options, &mut model) };
        (status, Handle(model))
    }

    fn sound(path: &Path) -> Handle {
        let (status, handle) = Handle::open(path, |_| {});
        assert_eq!(status, PlimsollStatus::Ok, "{}", handle.error());
        handle
    }

    fn error(&self) -> String {
        let mut text = [0; 2048];
        // SAFETY: the handle is not freed, and the text has as many bytes as it says.
        let needed = unsafe { plimsoll_error(self.0, text.as_mut_ptr(), 2048) };
        assert!(needed < 2048);
        // SAFETY: a zero was written behind the text.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().into()
    }

    fn predict(&self, image: &PlimsollImage, labels: &mut [u8], element: u32) -> PlimsollStatus {
        let (to, bytes) = (labels.as_mut_ptr().cast::<c_void>(), labels.len() as u64);
        // SAFETY: the image is of slices that outlive the call, and so are labels.
        unsafe { plimsoll_predict(self.0, image, to, element, bytes, null_mut()) }
    }

    fn plan(&self, shape: [u64; 3], affine: [f64; 12]) -> (PlimsollStatus, PlimsollPlan) {
        let mut plan = PlimsollPlan::default();
        // SAFETY: references to as many numbers as are read.
        let status =
            unsafe { plimsoll_plan(self.0, shape.as_ptr(), affine.as_ptr(), PLIMSOLL_F32, &mut plan) };
        (status, plan)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { plimsoll_free(self.0) };
    }
}

fn element_of(element: ElementType) -> u32 {
    match element {
        ElementType::U8 => PLIMSOLL_U8,
        ElementType::U16 => PLIMSOLL_U16,
        ElementType::I16 => PLIMSOLL_I16,
        ElementType::F32 => PLIMSOLL_F32,
        other => panic!("{other:?}"),
    }
}

/// An image of C, of files that are read whole.
struct InMemory {
    voxels: Vec<Vec<u8>>,
    pointers: Vec<*const c_void>,
    image: PlimsollImage,
}

impl InMemory {
    fn from_case(case: &Case) -> InMemory {
        let mut files: Vec<VolumeFile> =
            case.image_files().map(|path| VolumeFile::open(path).unwrap()).collect();
        let geometry = *files[0].geometry();
        let element = files[0].element_type();
        // An image in memory has channels of one type.
        if files.iter().any(|file| file.element_type() != element) {
            let real = |file: &mut VolumeFile| {
                let mut voxels = vec![0f32; geometry.voxel_count()];
                file.region_f32(0, VoxelBox::whole(geometry.shape()), &mut voxels).unwrap();
                bytemuck::cast_slice(&voxels).to_vec()
            };
            return InMemory::new(geometry, PLIMSOLL_F32, files.iter_mut().map(real).collect());
        }
        let voxels = files.iter_mut().map(stored).collect();
        InMemory::new(geometry, element_of(element), voxels)
    }

    fn new(geometry: Geometry, element: u32, voxels: Vec<Vec<u8>>) -> InMemory {
        let pointers: Vec<*const c_void> = voxels.iter().map(|channel| channel.as_ptr().cast()).collect();
        let image = PlimsollImage {
            channels: pointers.as_ptr(),
            channel_count: pointers.len() as u64,
            channel_bytes: voxels[0].len() as u64,
            element,
            shape: geometry.shape().map(|extent| extent as u64),
            affine: geometry.affine().0.concat().try_into().unwrap(),
        };
        InMemory { voxels, pointers, image }
    }

    fn voxels(&self) -> usize {
        self.image.shape.iter().product::<u64>() as usize
    }
}

/// Runs and models of nnU-Net, and images for them.
fn models() -> Vec<(PathBuf, PathBuf)> {
    let theirs = [
        ("fullres", "3d_fullres"),
        ("resenc_regions", "3d_fullres"),
        ("flat", "2d"),
        ("anisotropic", "3d_fullres"),
    ];
    let theirs =
        theirs.map(|(name, configuration)| (trained(name, configuration), oracle(name).join("images")));
    let own = oracle("../exported");
    let own = ["plain", "flat"].map(|net| (own.join(net).join("run"), own.join("images")));
    theirs.into_iter().chain(own).collect()
}

#[test]
fn labels_in_memory_are_those_of_a_file() {
    for (model, images) in models() {
        let name = model.display().to_string();
        let (opened, _) = opened(&model);
        let cases = Dataset::images(images, &opened.channels, &opened.file_ending).unwrap();
        let handle = Handle::sound(&model);
        for case in &cases {
            let expected = predict_files(&model, case);
            let image = InMemory::from_case(case);
            assert_eq!(image.voxels.len(), image.pointers.len());
            let mut labels = vec![9; image.voxels()];
            let status = handle.predict(&image.image, &mut labels, PLIMSOLL_U8);
            assert_eq!(status, PlimsollStatus::Ok, "{name}: {}", handle.error());
            assert!(labels == expected, "{name}, {}", case.id);
            assert!(labels.iter().filter(|label| **label > 0).count() > 100, "{name}");
            let mut wide = vec![9; 2 * image.voxels()];
            assert_eq!(handle.predict(&image.image, &mut wide, PLIMSOLL_U16), PlimsollStatus::Ok);
            let narrowed: Vec<u8> =
                wide.as_chunks::<2>().0.iter().map(|label| u16::from_ne_bytes(*label) as u8).collect();
            assert!(narrowed == expected, "{name}, {} in 16 bits", case.id);
            let (status, plan) = handle.plan(image.image.shape, image.image.affine);
            assert_eq!(status, PlimsollStatus::Ok, "{}", handle.error());
            let parts = [
                plan.overhead_bytes,
                plan.arena_bytes,
                plan.window_bytes,
                plan.logits_bytes,
                plan.preparation_bytes,
                plan.decoding_bytes,
                plan.spool_bytes,
            ];
            let least = parts.iter().sum::<u64>() + plan.image_bytes;
            let total = least + plan.cache_bytes + plan.queue_bytes;
            assert_eq!((plan.minimum_bytes, plan.total_bytes), (least, total));
            assert!(
                plan.windows > 0 && plan.total_bytes <= LIMIT && plan.image_bytes as usize > image.voxels()
            );
        }
    }
}

/// A smooth object, as the two channels of the model have it.
fn phantom(shape: [usize; 3]) -> Vec<Vec<f32>> {
    let value = |channel: usize| {
        let mut voxels = Vec::new();
        for z in 0..shape[0] {
            for y in 0..shape[1] {
                for x in 0..shape[2] {
                    let place = [z, y, x].map(|place| place as f32 - 14.0);
                    let distance = place.iter().map(|length| length * length).sum::<f32>().sqrt();
                    let wave = (0.7 * place[0]).sin() * (0.5 * place[1] + channel as f32).cos();
                    voxels.push(if distance > 13.0 { 0.0 } else { 300.0 - 17.0 * distance + 20.0 * wave });
                }
            }
        }
        voxels
    };
    vec![value(0), value(1)]
}

#[test]
fn a_program_in_c_predicts_what_a_file_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (shape, model) = ([28, 30, 32], trained("fullres", "3d_fullres"));
    let channels = phantom(shape);
    fs::write(path("image.raw"), bytemuck::cast_slice::<f32, u8>(&channels.concat())).unwrap();
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([0.9; 3]))).unwrap();
    let mut images = Vec::new();
    for (number, voxels) in channels.iter().enumerate() {
        let file = path(&format!("image_000{number}.nii"));
        let mut writer = VolumeWriter::create(&file, &geometry, 1, ElementType::F32, None).unwrap();
        writer.write_planes(bytemuck::cast_slice(voxels)).unwrap();
        writer.finish().unwrap();
        images.push(ChannelFile { path: file, index: 0 });
    }
    let expected =
        predict_files(&model, &Case { id: "image".into(), images, label: None, reading: Reading::default() });
    assert!(expected.iter().filter(|label| **label > 0).count() > 100);

    let program = path("predict");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo builds the example `plimsoll`, the shared library, for every test of this package.
    let library = std::env::current_exe().unwrap().parent().unwrap().join("../examples");
    assert!(library.join("libplimsoll.so").is_file(), "{}", library.display());
    let compiled = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(sources.join("include"))
        .arg(sources.join("examples/predict.c"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&library)
        .args(["-lplimsoll", &format!("-Wl,-rpath,{}", library.display())])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = |model: &Path| {
        let mut command = Command::new(&program);
        command.arg(model).arg(path("image.raw")).args(["28", "30", "32", "0.9"]).arg(path("labels.raw"));
        command.output().unwrap()
    };
    let output = run(&model);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} {said}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("windows"));
    assert!(fs::read(path("labels.raw")).unwrap() == expected);
    // Its own labels as the reference.
    fs::write(path("reference.raw"), &expected).unwrap();
    let mut scored = Command::new(&program);
    scored.arg(&model).arg(path("image.raw")).args(["28", "30", "32", "0.9"]);
    let output = scored.arg(path("labels.raw")).arg(path("reference.raw")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).to_string();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("at least ") && said.contains("Dice 1.000, Hausdorff distance 0.00 mm"), "{said}");
    let output = run(&path("nothing"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("nothing") && said.contains("\nhint: "), "{said}");
}

#[test]
fn what_cannot_be_is_refused_with_a_text_and_the_handle_goes_on() {
    let model = trained("fullres", "3d_fullres");
    let handle = Handle::sound(&model);
    let geometry = Geometry::new([28, 30, 32], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let voxels =
        || phantom([28, 30, 32]).iter().map(|channel| bytemuck::cast_slice(channel).to_vec()).collect();
    let sound = InMemory::new(geometry, PLIMSOLL_F32, voxels());
    let mut labels = vec![0; sound.voxels()];
    let mut first = vec![0; sound.voxels()];
    assert_eq!(handle.predict(&sound.image, &mut first, PLIMSOLL_U8), PlimsollStatus::Ok);
    let mut refuse = |image: PlimsollImage, element: u32, length: usize, words: &[&str]| {
        let status = handle.predict(&image, &mut labels[..length], element);
        assert_eq!(status, PlimsollStatus::Argument, "{words:?}");
        let error = handle.error();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    };
    let (image, all) = (sound.image, sound.voxels());
    refuse(image, PLIMSOLL_U8, all - 1, &["labels", "26880", "26879"]);
    refuse(image, PLIMSOLL_U16, all, &["labels", "53760"]);
    refuse(image, PLIMSOLL_F32, all, &["8 or 16 bits"]);
    refuse(PlimsollImage { element: 77, ..image }, PLIMSOLL_U8, all, &["77"]);
    refuse(
        PlimsollImage { element: PLIMSOLL_I16, ..image },
        PLIMSOLL_U8,
        all,
        &["channel 0", "53760", "107520"],
    );
    refuse(PlimsollImage { channel_count: 1, ..image }, PLIMSOLL_U8, all, &["2 channels", "1 are given"]);
    refuse(PlimsollImage { channel_count: 0, ..image }, PLIMSOLL_U8, all, &["0 channels"]);
    refuse(PlimsollImage { channel_count: u64::MAX, ..image }, PLIMSOLL_U8, all, &["4096"]);
    refuse(PlimsollImage { channels: std::ptr::null(), ..image }, PLIMSOLL_U8, all, &["null pointer"]);
    refuse(PlimsollImage { shape: [0, 30, 32], ..image }, PLIMSOLL_U8, all, &["geometry"]);
    refuse(PlimsollImage { shape: [u64::MAX; 3], ..image }, PLIMSOLL_U8, all, &["geometry"]);
    refuse(
        PlimsollImage { shape: [1 << 21, 1 << 21, 1 << 20], ..image },
        PLIMSOLL_U8,
        all,
        &["labels must have"],
    );
    refuse(PlimsollImage { affine: [0.0; 12], ..image }, PLIMSOLL_U8, all, &["geometry"]);
    refuse(PlimsollImage { affine: [f64::NAN; 12], ..image }, PLIMSOLL_U8, all, &["geometry"]);
    let missing = [image.channels, std::ptr::null()];
    let missing: [*const c_void; 2] = [sound.pointers[0], missing[1].cast()];
    refuse(
        PlimsollImage { channels: missing.as_ptr(), ..image },
        PLIMSOLL_U8,
        all,
        &["channel 1", "null pointer"],
    );
    // Values that are no numbers are the image's fault, and are said to be in a channel, not in a file of the process.
    let mut spoilt: Vec<Vec<u8>> = voxels();
    spoilt[1][..4].copy_from_slice(&f32::NAN.to_ne_bytes());
    let spoilt = InMemory::new(geometry, PLIMSOLL_F32, spoilt);
    assert_eq!(handle.predict(&spoilt.image, &mut labels, PLIMSOLL_U8), PlimsollStatus::Image);
    let error = handle.error();
    assert!(error.contains("channel 1") && !error.contains("/proc"), "{error}");
    // After all that the handle does what it did.
    assert_eq!(handle.predict(&sound.image, &mut labels, PLIMSOLL_U8), PlimsollStatus::Ok);
    assert!(labels == first);

    // SAFETY: null is allowed everywhere.
    unsafe {
        let mut description = PlimsollDescription::default();
        assert_eq!(plimsoll_describe(std::ptr::null(), &mut description), PlimsollStatus::Argument);
        assert_eq!(plimsoll_describe(handle.0, null_mut()), PlimsollStatus::Argument);
        assert!(handle.error().contains("description is a null pointer"), "{}", handle.error());
        assert_eq!(plimsoll_describe(handle.0, &mut description), PlimsollStatus::Ok);
        assert_eq!((description.channels, description.largest_label, description.ram_bytes), (2, 3, LIMIT));
        assert_eq!(
            plimsoll_predict(null_mut(), null_mut(), null_mut(), 0, 0, null_mut()),
            PlimsollStatus::Argument
        );
        assert_eq!(
            plimsoll_predict(handle.0, null_mut(), null_mut(), 0, 0, null_mut()),
            PlimsollStatus::Argument
        );
        assert_eq!(plimsoll_open(std::ptr::null(), std::ptr::null(), null_mut()), PlimsollStatus::Argument);
        assert_eq!(
            plimsoll_affine(std::ptr::null(), std::ptr::null(), std::ptr::null(), null_mut()),
            PlimsollStatus::Argument
        );
        plimsoll_stop(null_mut());
        plimsoll_free(null_mut());
        let mut begin = [1; 4];
        assert!(plimsoll_error(handle.0, begin.as_mut_ptr(), 4) > 4 && begin[3] == 0 && begin[2] != 0);
        assert!(CStr::from_ptr(plimsoll_version()).to_str().unwrap().starts_with(char::is_numeric));
    }
}

#[test]
fn what_cannot_be_opened_leaves_a_handle_that_says_why() {
    let refused = |path: &Path, change: fn(&mut PlimsollOptions), expected: PlimsollStatus, word: &str| {
        let (status, handle) = Handle::open(path, change);
        let error = handle.error();
        assert!(status == expected && error.contains(word), "{status:?}: {error}");
        assert_eq!(handle.plan([28; 3], [0.0; 12]).0, PlimsollStatus::Argument);
        assert!(handle.error().contains("could not be opened"));
    };
    let model = trained("fullres", "3d_fullres");
    refused(Path::new("/nowhere"), |_| {}, PlimsollStatus::Model, "/nowhere");
    refused(&trained("cascade", "3d_cascade_fullres"), |_| {}, PlimsollStatus::Model, "3d_lowres");
    refused(&model, |options| options.ram_bytes = 1 << 20, PlimsollStatus::Memory, "ram_bytes");
    refused(&model, |options| options.ram_bytes = u64::MAX, PlimsollStatus::Memory, "is above the");
    refused(&model, |options| options.threads = 0, PlimsollStatus::Argument, "threads is 0");
    refused(&model, |options| options.step = f64::NAN, PlimsollStatus::Argument, "NaN");
    refused(&model, |options| options.mirror = 3, PlimsollStatus::Argument, "mirror");
}

#[test]
fn the_least_limit_of_an_estimate_suffices_and_less_does_not() {
    let model = trained("fullres", "3d_fullres");
    let shape = [28, 30, 32];
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let voxels = phantom(shape).iter().map(|channel| bytemuck::cast_slice(channel).to_vec()).collect();
    let image = InMemory::new(geometry, PLIMSOLL_F32, voxels);
    let estimate = |handle: &Handle| {
        let mut estimate = PlimsollEstimate::default();
        let (shape, affine) = (image.image.shape, image.image.affine);
        // SAFETY: references to as many numbers as are read.
        let status = unsafe {
            plimsoll_estimate(handle.0, shape.as_ptr(), affine.as_ptr(), PLIMSOLL_F32, &mut estimate)
        };
        assert_eq!(status, PlimsollStatus::Ok, "{}", handle.error());
        estimate
    };
    let roomy = estimate(&Handle::sound(&model));
    assert!(roomy.least_bytes < roomy.total_bytes && roomy.total_bytes <= LIMIT, "{roomy:?}");
    assert!(
        roomy.windows > 0 && roomy.predicted_seconds > 0.0 && roomy.predicted_seconds < 600.0,
        "{roomy:?}"
    );
    let predict = |ram_bytes: u64| {
        let (status, handle) = Handle::open(&model, |options| options.ram_bytes = ram_bytes);
        let mut labels = vec![0; image.voxels()];
        match status {
            PlimsollStatus::Ok => handle.predict(&image.image, &mut labels, PLIMSOLL_U8),
            refused => refused,
        }
    };
    assert_eq!(predict(roomy.least_bytes), PlimsollStatus::Ok);
    assert_eq!(predict(roomy.least_bytes - (1 << 20)), PlimsollStatus::Memory);
}

#[test]
fn a_limit_that_is_too_low_for_an_image_says_what_it_must_be_above() {
    let model = trained("fullres", "3d_fullres");
    // Above the size of this test program, which has the whole library.
    let (status, handle) = Handle::open(&model, |options| options.ram_bytes = 256 << 20);
    assert_eq!(status, PlimsollStatus::Ok, "{}", handle.error());
    let mut affine = [0.0; 12];
    // SAFETY: arrays of as many numbers as are read and written.
    unsafe { plimsoll_affine([1.0; 3].as_ptr(), std::ptr::null(), std::ptr::null(), affine.as_mut_ptr()) };
    assert_eq!(affine, [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    let (status, _) = handle.plan([600; 3], affine);
    assert_eq!(status, PlimsollStatus::Memory);
    let error = handle.error();
    let above: u64 = error.split_once("raise ram_bytes above ").unwrap().1.trim().parse().unwrap();
    assert!(above > 2 * 4 * 600 * 600 * 600, "{error}");
}

#[test]
fn a_prediction_ends_when_another_thread_stops_it_before_or_while_it_is_done() {
    let handle = Handle::sound(&trained("fullres", "3d_fullres"));
    let geometry = Geometry::new([150; 3], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let voxels = vec![bytemuck::cast_slice(&vec![100i16; 150 * 150 * 150]).to_vec(); 2];
    let image = InMemory::new(geometry, PLIMSOLL_I16, voxels);
    let mut labels = vec![0; image.voxels()];
    let address = handle.0 as usize;
    // SAFETY: the handle is freed at the end.
    unsafe { plimsoll_stop(handle.0) };
    let status = handle.predict(&image.image, &mut labels, PLIMSOLL_U8);
    assert_eq!(status, PlimsollStatus::Stopped, "{}", handle.error());
    std::thread::scope(|scope| {
        // Said once, it counts whether the prediction has begun by then or not.
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            // SAFETY: the handle is freed after the scope.
            unsafe { plimsoll_stop(address as *const PlimsollModel) };
        });
        let status = handle.predict(&image.image, &mut labels, PLIMSOLL_U8);
        assert_eq!(status, PlimsollStatus::Stopped, "{}", handle.error());
    });
    // A stop ends only the call that it is for.
    let shape = [28, 30, 32];
    let geometry = Geometry::new(shape, Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
    let voxels = phantom(shape).iter().map(|channel| bytemuck::cast_slice(channel).to_vec()).collect();
    let small = InMemory::new(geometry, PLIMSOLL_F32, voxels);
    let status = handle.predict(&small.image, &mut labels[..small.voxels()], PLIMSOLL_U8);
    assert_eq!(status, PlimsollStatus::Ok, "{}", handle.error());
}
