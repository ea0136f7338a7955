//! Images are written completely or not at all, with the expected header.

use std::fs;
use std::io::Read;
use std::path::Path;
#[cfg(unix)]
use std::process::Command;

use crate::support::{Raw, data};
use flate2::read::GzDecoder;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{
    Affine, ElementType, Geometry, LabelTable, NiftiVersion, StoredVolume, VolumeError, VolumeFile,
    VolumeWriter,
};

fn grid(shape: [usize; 3]) -> Geometry {
    Geometry::new(shape, Affine([[0.0, 0.25, -1.5, 10.0], [0.125, 2.0, 0.0, -20.5], [3.0, 0.0, 0.5, 0.75]]))
        .unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn read(path: &Path) -> StoredVolume {
    StoredVolume::read(path, &Budget::new(Bytes::mib(4)), "test").unwrap()
}

/// The bytes of a file, decompressed.
fn content(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut content = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut content).unwrap();
    content
}

fn f32_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

#[test]
fn every_type_reads_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let geometry = grid([3, 4, 5]);
    for element_type in ElementType::ALL {
        for name in ["image.nii", "image.nii.gz"] {
            let path = folder.path().join(name);
            let voxels: Vec<u8> = (0..2 * 60 * element_type.size()).map(|i| (i * 7 % 120) as u8).collect();
            let mut writer = VolumeWriter::create(&path, &geometry, 2, element_type, None).unwrap();
            let plane = writer.plane_bytes();
            assert_eq!(plane, 20 * element_type.size());
            // One plane, then two, then the rest.
            writer.write_planes(&voxels[..plane]).unwrap();
            writer.write_planes(&voxels[plane..3 * plane]).unwrap();
            writer.write_planes(&voxels[3 * plane..]).unwrap();
            writer.finish().unwrap();
            let stored = read(&path);
            assert_eq!(stored.bytes(), voxels, "{element_type}");
            assert_eq!((stored.channels(), stored.element_type()), (2, element_type));
            assert!(stored.scaling().is_none());
            assert_eq!(stored.geometry(), &geometry, "all entries of the affine are f32");
        }
    }
    assert_eq!(names(folder.path()), ["image.nii", "image.nii.gz"]);
}

#[test]
fn without_a_template_the_affine_is_the_sform() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.nii.gz");
    let mut writer = VolumeWriter::create(&path, &grid([3, 4, 5]), 1, ElementType::F32, None).unwrap();
    writer.write_planes(&[0; 240]).unwrap();
    writer.finish().unwrap();
    let bytes = content(&path);
    assert_eq!(bytes.len(), 352 + 240);
    assert_eq!(bytes[..4], 348i32.to_le_bytes());
    let dim: Vec<i16> = (0..8).map(|i| i16_at(&bytes, 40 + 2 * i)).collect();
    assert_eq!(dim, [3, 5, 4, 3, 1, 1, 1, 1]);
    assert_eq!((i16_at(&bytes, 70), i16_at(&bytes, 72)), (16, 32));
    let spacing: Vec<f32> = (0..4).map(|i| f32_at(&bytes, 76 + 4 * i)).collect();
    let expected = [1.0, 2.5f32.sqrt(), 4.0625f32.sqrt(), 9.015_625_f32.sqrt()];
    assert!(spacing.iter().zip(expected).all(|(ours, theirs)| (ours - theirs).abs() < 1e-6), "{spacing:?}");
    assert_eq!((f32_at(&bytes, 108), f32_at(&bytes, 112), f32_at(&bytes, 116)), (352.0, 1.0, 0.0));
    assert_eq!((bytes[38], bytes[123]), (b'r', 2));
    assert_eq!((i16_at(&bytes, 252), i16_at(&bytes, 254)), (0, 1));
    let srow: Vec<f32> = (0..12).map(|i| f32_at(&bytes, 280 + 4 * i)).collect();
    assert_eq!(srow, [-1.5, 0.25, 0.0, 10.0, 0.0, 2.0, 0.125, -20.5, 0.5, 0.0, 3.0, 0.75]);
    assert_eq!(&bytes[344..352], b"n+1\0\0\0\0\0");
}

#[test]
fn a_template_keeps_position_units_and_text_bitwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("labels.nii");
    // Big-endian, a rotated qform that differs from the sform, scaling, four dimensions: everything that could be lost.
    let mut raw = Raw::new([3, 4, 5]);
    raw.big_endian = true;
    raw.dim = [4, 5, 4, 3, 1, 1, 1, 1];
    (raw.slope, raw.intercept, raw.units) = (2.0, -1024.0, 3 | 8);
    (raw.qform_code, raw.sform_code) = (1, 4);
    raw.pixdim = [-1.0, 0.7, 0.8, 0.9, 2.5, 0.0, 0.0, 0.0];
    raw.quatern = [0.1, 0.2, -0.3];
    raw.qoffset = [11.1, 22.2, 33.3];
    raw.srow = [[0.1, 0.7, 0.0, 5.5], [-0.8, 0.1, 0.0, 6.6], [0.0, 0.0, 0.9, 7.7]];
    let mut source = raw.single(&[1; 60]);
    source[148..158].copy_from_slice(b"scanner 42");
    source[228..236].copy_from_slice(b"none.txt");
    source[39] = 0b0011_1001; // dim_info
    source[122] = 3; // slice_code
    source[68..70].copy_from_slice(&1002i16.to_be_bytes()); // intent
    source[124..128].copy_from_slice(&100f32.to_be_bytes()); // cal_max
    let source_path = folder.path().join("source.nii");
    fs::write(&source_path, &source).unwrap();

    let template = VolumeFile::open(&source_path).unwrap();
    assert_eq!(template.header().unwrap().description(), "scanner 42");
    let geometry = template.geometry();
    let mut writer =
        VolumeWriter::create(&path, geometry, 1, ElementType::U8, Some(template.header().unwrap())).unwrap();
    writer.write_planes(&[1; 60]).unwrap();
    writer.finish().unwrap();
    let bytes = content(&path);
    let floats = (76..108).step_by(4).chain((132..140).step_by(4)).chain((256..328).step_by(4));
    for at in floats {
        let big: [u8; 4] = source[at..at + 4].try_into().unwrap();
        assert_eq!(bytes[at..at + 4], f32::from_be_bytes(big).to_le_bytes(), "bytes from {at}");
    }
    assert_eq!(bytes[148..252], source[148..252], "descrip, aux_file");
    assert_eq!((bytes[39], bytes[122], bytes[123]), (source[39], 3, 3 | 8));
    assert_eq!((i16_at(&bytes, 252), i16_at(&bytes, 254)), (1, 4));
    assert_eq!((i16_at(&bytes, 68), f32_at(&bytes, 124)), (0, 0.0), "intent and display range are cleared");
    assert_eq!((f32_at(&bytes, 112), f32_at(&bytes, 116)), (1.0, 0.0));
    assert_eq!((i16_at(&bytes, 40), i16_at(&bytes, 70), i16_at(&bytes, 72)), (3, 2, 8));
    assert_eq!(VolumeFile::open(&path).unwrap().geometry(), geometry);
}

#[test]
fn real_headers_serve_as_templates() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "anatomical.nii",
        "functional.nii",
        "ct_oblique_thinned.nii.gz",
        "example_nifti2.nii.gz",
        "metres_nifti2_big_endian.nii",
        "scaled_pair_big_endian.hdr.gz",
        "vector_with_extension.nii.gz",
        "flat.nii",
    ] {
        let source = VolumeFile::open(data(name)).unwrap();
        let path = folder.path().join("labels.nii.gz");
        let geometry = source.geometry();
        let mut writer =
            VolumeWriter::create(&path, geometry, 1, ElementType::U8, Some(source.header().unwrap()))
                .unwrap();
        writer.write_planes(&vec![1; geometry.voxel_count()]).unwrap();
        writer.finish().unwrap();
        let written = VolumeFile::open(&path).unwrap();
        assert_eq!(written.geometry(), geometry, "{name}");
        assert_eq!(written.header().unwrap().version(), source.header().unwrap().version(), "{name}");
        assert_eq!(written.header().unwrap().description(), source.header().unwrap().description(), "{name}");
        assert_eq!(written.channels(), 1);
    }
}

#[test]
fn a_template_on_another_grid_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let template = VolumeFile::open(data("anatomical.nii")).unwrap();
    let geometry = grid(template.geometry().shape());
    let create = |geometry, path| {
        VolumeWriter::create(path, geometry, 1, ElementType::U8, Some(template.header().unwrap()))
    };
    let error = create(&geometry, folder.path().join("a.nii")).unwrap_err();
    assert!(matches!(error, VolumeError::TemplateDiffers { .. }) && error.remedy().is_some());
    assert!(error.to_string().contains("mm apart"), "{error}");
    let error = create(&grid([1, 2, 3]), folder.path().join("a.nii")).unwrap_err();
    assert!(error.to_string().contains("shape [1, 2, 3] against [25, 41, 33]"), "{error}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_long_axis_makes_it_nifti_2() {
    let folder = tempfile::tempdir().unwrap();
    for (width, version) in [(32767, NiftiVersion::One), (32768, NiftiVersion::Two)] {
        let path = folder.path().join("long.nii");
        let geometry = Geometry::new([1, 1, width], *grid([1; 3]).affine()).unwrap();
        let mut writer = VolumeWriter::create(&path, &geometry, 1, ElementType::U8, None).unwrap();
        writer.write_planes(&vec![5; width]).unwrap();
        writer.finish().unwrap();
        let file = VolumeFile::open(&path).unwrap();
        assert_eq!(file.header().unwrap().version(), version);
        assert_eq!(file.geometry(), &geometry);
    }
}

#[test]
fn a_dropped_writer_leaves_nothing_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["image.nii", "image.nii.gz"] {
        let path = folder.path().join(name);
        fs::write(&path, "precious").unwrap();
        let mut writer = VolumeWriter::create(&path, &grid([3, 4, 5]), 1, ElementType::U8, None).unwrap();
        writer.write_planes(&[0; 40]).unwrap();
        assert_eq!(names(folder.path()).len(), 2, "the temporary file is beside it");
        drop(writer);
        assert_eq!(names(folder.path()), [name]);
        // Too few planes are refused.
        let mut writer = VolumeWriter::create(&path, &grid([3, 4, 5]), 1, ElementType::U8, None).unwrap();
        writer.write_planes(&[0; 40]).unwrap();
        let error = writer.finish().unwrap_err();
        assert!(matches!(error, VolumeError::PlaneCount { planes: 3, written: 2, .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert_eq!(names(folder.path()), [name]);
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn only_whole_planes_and_not_too_many_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.nii");
    let mut writer = VolumeWriter::create(&path, &grid([3, 4, 5]), 1, ElementType::U8, None).unwrap();
    assert!(matches!(
        writer.write_planes(&[0; 30]),
        Err(VolumeError::PartialPlane { found: 30, plane: 20, .. })
    ));
    assert!(matches!(
        writer.write_planes(&[0; 80]),
        Err(VolumeError::PlaneCount { planes: 3, written: 4, .. })
    ));
    // Neither wrote anything.
    writer.write_planes(&[9; 60]).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&path).bytes(), [9; 60]);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let mut bad = vec![folder.path().join("missing/image.nii"), folder.path().join("file/image.nii.gz")];
    if cfg!(target_os = "linux") {
        // Not even the superuser can make files there.
        bad.push("/proc/image.nii".into());
    }
    for path in bad {
        let error = VolumeWriter::create(&path, &grid([1; 3]), 1, ElementType::U8, None).unwrap_err();
        let VolumeError::Io { path: named, action: "create", .. } = error else { panic!("{error:?}") };
        assert_eq!(named, path);
    }
    for name in ["image.hdr", "image.img.gz", "image.bmp", "image"] {
        let path = folder.path().join(name);
        let error = VolumeWriter::create(&path, &grid([1; 3]), 1, ElementType::U8, None).unwrap_err();
        assert!(error.to_string().contains(name) && error.remedy().is_some(), "{error}");
    }
    assert!(
        VolumeWriter::create(folder.path().join("a.nii"), &grid([1; 3]), 0, ElementType::U8, None).is_err()
    );
    assert_eq!(names(folder.path()), ["file"]);
}

/// The variable by which the test below runs itself as another process.
#[cfg(unix)]
const CHILD: &str = "PLIMSOLL_TEST_LITTLE_DISK";

/// Checks every write under a limit on the size of files, which fails writes as a full disk does.
#[cfg(unix)]
fn check_with_little_disk(folder: &Path) {
    // Incompressible noise from an xorshift generator.
    let mut state = 1u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    })
    .take(1 << 20)
    .collect();
    for name in ["image.nii", "image.nii.gz"] {
        let path = folder.join(name);
        // In the middle of the planes.
        let mut writer = VolumeWriter::create(&path, &grid([4, 512, 512]), 1, ElementType::U8, None).unwrap();
        let error = writer.write_planes(&noise).unwrap_err();
        assert!(matches!(error, VolumeError::Io { action: "write", .. }), "{error:?}");
        assert!(matches!(writer.write_planes(&noise), Err(VolumeError::Abandoned { .. })));
        assert!(writer.finish().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        // Only at the end, when the buffer is written out.
        let mut writer = VolumeWriter::create(&path, &grid([1, 4, 9000]), 1, ElementType::U8, None).unwrap();
        writer.write_planes(&noise[..36000]).unwrap();
        let error = writer.finish().unwrap_err();
        assert!(matches!(error, VolumeError::Io { action: "write", .. }), "{error:?}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
    assert_eq!(names(folder), ["image.nii", "image.nii.gz"], "no temporary file is left");
    println!("all writes failed as they should");
}

#[test]
#[cfg(unix)]
fn a_failing_disk_is_an_error_and_the_older_file_is_kept() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return check_with_little_disk(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["image.nii", "image.nii.gz"] {
        fs::write(folder.path().join(name), "precious").unwrap();
    }
    let this = std::env::current_exe().unwrap();
    // SIGXFSZ is ignored, so that a write beyond the limit returns an error instead.
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact \"$1\" --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(this)
        .arg("writing::a_failing_disk_is_an_error_and_the_older_file_is_kept")
        .env(CHILD, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("all writes failed"), "{output:?}");
}

#[test]
fn names_of_labels_stand_in_an_extension_and_the_voxels_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let geometry = grid([2, 2, 3]);
    let labels = LabelTable { labels: vec![(1, "aorta".into()), (2, "left ]]> right".into())] };
    for (name, width) in [("one.nii", 3), ("two.nii.gz", 40_000)] {
        let path = folder.path().join(name);
        // An axis that the first version cannot have.
        let header = if width > 32_767 { 540 } else { 348 };
        let grid = Geometry::new([2, 2, width], *geometry.affine()).unwrap();
        let voxels: Vec<u8> = (0..4 * width).map(|i| (i % 3) as u8).collect();
        let mut writer = VolumeWriter::create_named(&path, &grid, ElementType::U8, None, &labels).unwrap();
        writer.write_planes(&voxels).unwrap();
        writer.finish().unwrap();
        let bytes = content(&path);
        assert_eq!(bytes[header..header + 4], [1, 0, 0, 0]);
        let size = i32::from_le_bytes(bytes[header + 4..header + 8].try_into().unwrap()) as usize;
        assert!(size.is_multiple_of(16) && bytes.len() == header + 4 + size + voxels.len());
        let text = String::from_utf8_lossy(&bytes[header + 12..header + 4 + size]);
        let text = text.trim_end_matches('\0');
        assert!(text.contains("<Label Key=\"1\"") && text.contains("<![CDATA[aorta]]>"), "{text}");
        assert!(text.contains("left ]]]]><![CDATA[> right"), "{text}");
        assert!(text.starts_with("<?xml") && text.trim_end().ends_with("</CaretExtension>"), "{text}");
        assert_eq!(read(&path).bytes(), voxels);
    }
}
