//! Sessions from C have the segmentations of nnInteractive, and errors with texts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "the functions are those of C")]

use std::ffi::{CStr, CString};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};

use crate::*;

const SHAPE: [u64; 3] = [96, 128, 104];

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nninteractive")
}

/// The bytes of an array in an archive of NumPy.
fn array(archive: &str, name: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(fs::File::open(oracle().join(archive)).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    bytes.split_off(10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]])))
}

fn open(path: &Path, ram_bytes: u64) -> (PlimsollStatus, *mut PlimsollSession) {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let options = PlimsollOptions { ram_bytes, threads: 2, ..plimsoll_usual_options() };
    let mut session = null_mut();
    // SAFETY: all are references.
    (unsafe { plimsoll_session_open(path.as_ptr(), &options, &mut session) }, session)
}

fn error(session: *const PlimsollSession) -> String {
    let mut text = [0; 512];
    // SAFETY: the session is open, and the text has as many bytes.
    unsafe {
        plimsoll_session_error(session, text.as_mut_ptr().cast(), 512);
        CStr::from_ptr(text.as_ptr().cast()).to_str().unwrap().into()
    }
}

/// The segmentation of nnInteractive after the first point of a sequence.
fn expected() -> Vec<u8> {
    let bits = array("edges.npz", "step_0");
    bits.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect()
}

#[test]
fn a_session_from_c_has_the_segmentation_of_nninteractive() {
    let (status, session) = open(&oracle().join("model"), 1 << 30);
    assert_eq!(status, PlimsollStatus::Ok, "{}", error(session));
    let image = array("image.npz", "image");
    let expected = expected();
    let mut labels = vec![9; expected.len()];
    let mut changed = PlimsollBox::default();
    // SAFETY: the session is open, and buffers are as long as is said.
    unsafe {
        let bytes = image.len() as u64;
        let early = plimsoll_session_add_point(session, [1, 2, 3].as_ptr(), 1);
        assert_eq!(early, PlimsollStatus::Argument);
        assert!(error(session).starts_with("the session has no image\nhint: "), "{}", error(session));
        let set =
            plimsoll_session_set_image(session, image.as_ptr().cast(), bytes, PLIMSOLL_I16, SHAPE.as_ptr());
        assert_eq!(set, PlimsollStatus::Ok, "{}", error(session));
        assert_eq!(plimsoll_session_add_point(session, [95, 100, 2].as_ptr(), 1), PlimsollStatus::Ok);
        plimsoll_session_stop(session);
        assert_eq!(plimsoll_session_predict(session, null_mut()), PlimsollStatus::Stopped);
        assert_eq!(plimsoll_session_predict(session, &mut changed), PlimsollStatus::Ok);
        let count = labels.len() as u64;
        assert_eq!(plimsoll_session_segmentation(session, labels.as_mut_ptr(), count), PlimsollStatus::Ok);
        assert!(labels == expected);
        assert_eq!(changed, PlimsollBox { start: [59, 60, 0], end: [96, 128, 40] });
        let within = PlimsollBox { start: [1, 1, 1], end: [4, 4, 4] };
        assert_eq!(plimsoll_session_add_box(session, &within, 1), PlimsollStatus::Argument);
        assert!(error(session).contains("does not support a solid box"), "{}", error(session));
        let marks = [1u8; 4];
        let mask =
            PlimsollMask { voxels: marks.as_ptr(), voxel_bytes: 4, start: [5, 5, 5], shape: [1, 2, 2] };
        assert_eq!(plimsoll_session_add_mask(session, PLIMSOLL_LASSO, &mask, 1), PlimsollStatus::Ok);
        assert_eq!(plimsoll_session_add_mask(session, 7, &mask, 1), PlimsollStatus::Argument);
        assert_eq!(
            plimsoll_session_add_mask(session, PLIMSOLL_SCRIBBLE, null(), 1),
            PlimsollStatus::Argument
        );
        assert_eq!(plimsoll_session_undo(session), PlimsollStatus::Ok);
        let initial = plimsoll_session_add_initial_segmentation(session, labels.as_ptr(), count - 1);
        assert_eq!(initial, PlimsollStatus::Argument);
        assert_eq!(plimsoll_session_reset(session), PlimsollStatus::Ok);
        assert_eq!(plimsoll_session_segmentation(session, labels.as_mut_ptr(), count), PlimsollStatus::Ok);
        assert!(labels.iter().all(|label| *label == 0));
        plimsoll_session_free(session);
    }
}

#[test]
fn models_and_limits_that_cannot_be_are_told_apart() {
    let (status, session) = open(&oracle(), 1 << 30);
    assert_eq!(status, PlimsollStatus::Model);
    assert!(error(session).contains("inference_info.json"), "{}", error(session));
    // SAFETY: nobody else has it.
    unsafe { plimsoll_session_free(session) };
    let (status, session) = open(&oracle().join("model"), 1 << 20);
    assert_eq!(status, PlimsollStatus::Memory, "{}", error(session));
    assert!(error(session).contains("ram_bytes"), "{}", error(session));
    // SAFETY: nobody else has it; null handles are allowed.
    unsafe {
        plimsoll_session_free(session);
        plimsoll_session_free(null_mut());
        assert_eq!(plimsoll_session_open(null(), null(), null_mut()), PlimsollStatus::Argument);
        assert_eq!(plimsoll_session_predict(null(), null_mut()), PlimsollStatus::Argument);
    }
}

#[test]
fn the_example_in_c_segments_the_object_at_a_point() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let stored = array("image.npz", "image");
    let image = stored.as_chunks::<2>().0.iter().map(|bytes| f32::from(i16::from_le_bytes(*bytes)));
    fs::write(path("image.raw"), image.flat_map(f32::to_ne_bytes).collect::<Vec<u8>>()).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo builds the example `plimsoll`, the shared library, for every test of this package.
    let library = std::env::current_exe().unwrap().parent().unwrap().join("../examples");
    let compiled = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(sources.join("include"))
        .arg(sources.join("examples/interact.c"))
        .arg("-o")
        .arg(path("interact"))
        .arg("-L")
        .arg(&library)
        .args(["-lplimsoll", &format!("-Wl,-rpath,{}", library.display())])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = |point: [&str; 3]| {
        let mut command = Command::new(path("interact"));
        command.arg(oracle().join("model")).arg(path("image.raw")).args(["96", "128", "104"]);
        command.arg(path("labels.raw")).args(point).output().unwrap()
    };
    let output = run(["95", "100", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "changed from plane 59 to 95\n");
    assert!(fs::read(path("labels.raw")).unwrap() == expected());
    let output = run(["96", "100", "2"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("outside of the image") && said.contains("\nhint: "),
        "{said}"
    );
}
