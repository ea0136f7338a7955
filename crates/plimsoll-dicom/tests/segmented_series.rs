//! Segmentations copy the attributes of their series: missing ones are reported, and texts, losses, frames and
//! positions are carried over.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::segmentations::*;
use dicom_core::{DataElement, PrimitiveValue, VR};
use dicom_dictionary_std::tags;
use dicom_object::{DefaultDicomObject, InMemDicomObject, Tag};
use plimsoll_dicom::{DicomError, SegmentationType, Series};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, LabelTable};

#[test]
fn what_cannot_be_written_is_told_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (map, to) = (dir.path().join("labels.nii.gz"), dir.path().join("out.dcm"));
    write_labels(&map, SHAPE, &labels(), ElementType::U8);
    let (good, known) = (series("short"), organs());
    let error = |series: &Series, names: &LabelTable, map: &Path, budget: &Budget, stop: bool| {
        let request = request(SegmentationType::LabelMap, names);
        let error =
            series.write_segmentation(map, &to, &request, budget, &AtomicBool::new(stop)).unwrap_err();
        assert!(error.remedy().is_some() && error.to_string().lines().count() == 1, "{error}");
        error
    };
    let stopped = error(&good, &known, &map, &budget(), true);
    assert!(matches!(stopped, DicomError::InterruptedWriting { .. }), "{stopped}");
    for kib in [1, 8, 40, 100] {
        let over = error(&good, &known, &map, &Budget::new(Bytes(kib << 10)), false);
        assert!(matches!(over, DicomError::OverBudget(_) | DicomError::Memory(_)), "{over}");
    }
    for wrong in [
        names(&[]),
        names(&[(0, "background")]),
        names(&[(1, "a"), (1, "b")]),
        names(&[(1, "a\\b")]),
        names(&[(1, &"long".repeat(17))]),
    ] {
        let told = error(&good, &wrong, &map, &budget(), false);
        assert!(matches!(told, DicomError::Segments { .. }), "{told}");
    }
    let other = dir.path().join("other.nii.gz");
    write_labels(&other, [2, 9, 12], &[0; 216], ElementType::U8);
    let told = error(&good, &known, &other, &budget(), false).to_string();
    assert!(told.contains("other.nii.gz has 2 × 9 × 12 voxels, but the series has 6 × 9 × 12"), "{told}");

    // Slices without what a segmentation refers to, and one of another study or frame of reference.
    let spoilt = dir.path().join("spoilt");
    let spoil = |element: &[u8], only: Option<&str>, change: &dyn Fn(&mut [u8])| {
        fs::create_dir_all(&spoilt).unwrap();
        for entry in fs::read_dir(oracle("short")).unwrap() {
            let from = entry.unwrap().path();
            let name = from.file_name().unwrap();
            let mut bytes = fs::read(&from).unwrap();
            if only.is_none_or(|only| name == only) {
                let at = bytes.windows(element.len()).position(|found| found == element).unwrap();
                change(&mut bytes[at..]);
            }
            fs::write(spoilt.join(name), bytes).unwrap();
        }
        match Series::find(&spoilt, &budget()) {
            Err(error) => error.to_string(),
            Ok(series) => {
                // It is known before there are labels.
                let early = series.expect_referable(&budget()).unwrap_err().to_string();
                assert_eq!(error(&series, &known, &map, &budget(), false).to_string(), early);
                early
            }
        }
    };
    let other_digit = |element: &mut [u8]| element[8] = if element[8] == b'1' { b'2' } else { b'1' };
    let frame_of_reference = b"\x20\x00\x52\x00UI";
    let told = spoil(frame_of_reference, Some("03.dcm"), &|element| element[2] = 0x51);
    assert!(told.contains("03.dcm: FrameOfReferenceUID is missing"), "{told}");
    let told = spoil(frame_of_reference, None, &|element| element[8] = b'x');
    assert!(told.contains("FrameOfReferenceUID is not a unique identifier"), "{told}");
    let told = spoil(b"\x20\x00\x0E\x00UI", None, &|element| element[8] = b'x');
    assert!(told.contains("SeriesInstanceUID is not a unique identifier"), "{told}");
    let told = spoil(frame_of_reference, Some("03.dcm"), &other_digit);
    assert!(told.contains("03.dcm") && told.contains(" has the frame of reference "), "{told}");
    let told = spoil(b"\x20\x00\x0D\x00UI", Some("03.dcm"), &other_digit);
    assert!(told.contains("03.dcm has the study "), "{told}");
    assert!(!to.exists());
    // Nothing half-written.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

/// The series `short` with other elements in each of its slices.
fn changed(folder: &Path, change: &dyn Fn(&mut DefaultDicomObject)) -> Series {
    fs::create_dir(folder).unwrap();
    for entry in fs::read_dir(oracle("short")).unwrap() {
        let from = entry.unwrap().path();
        let mut slice = open(&from);
        change(&mut slice);
        slice.write_to_file(folder.join(from.file_name().unwrap())).unwrap();
    }
    Series::find(folder, &budget()).unwrap()
}

/// An element with these bytes.
fn bytes(tag: Tag, kind: VR, value: &[u8]) -> DataElement<InMemDicomObject> {
    DataElement::new(tag, kind, PrimitiveValue::U8(value.into()))
}

/// The segmentation of a series whose first voxels are spleen.
fn spleen_of(series: &Series, folder: &Path) -> DefaultDicomObject {
    let (map, to) = (folder.join("spleen.nii"), folder.join("spleen.out.dcm"));
    let shape = series.geometry().shape();
    let mut labels = vec![0; shape.iter().product()];
    labels[..5].fill(1);
    write_labels(&map, shape, &labels, ElementType::U8);
    let names = organs();
    let request = request(SegmentationType::LabelMap, &names);
    series.write_segmentation(&map, &to, &request, &budget(), &AtomicBool::new(false)).unwrap();
    open(&to)
}

#[test]
fn texts_are_decoded_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let of = |number: usize, set: Option<&[u8]>, name: &[u8]| {
        changed(&dir.path().join(number.to_string()), &|slice| {
            if let Some(set) = set {
                slice.put(bytes(tags::SPECIFIC_CHARACTER_SET, VR::CS, set));
            }
            slice.put(bytes(tags::PATIENT_NAME, VR::PN, name));
        })
    };
    let latin: &[u8] = b"M\xFCller";
    type Refused<'a> = (Option<&'a [u8]>, &'a [u8], &'a str);
    let refused: [Refused<'_>; 5] = [
        (Some(b"\\ISO 2022 IR 149 "), b"\x1B$)C\xB1\xE8^x", "is `\\ISO 2022 IR 149`"),
        (Some(b"ISO_IR 203"), latin, "is `ISO_IR 203`"),
        (Some(b"ISO_IR 192"), latin, "is `ISO_IR 192`"),
        // The second byte of this letter is a separator of values.
        (Some(b"GB18030 "), b"\x81\\ab", "is `GB18030`"),
        (None, latin, "is missing"),
    ];
    for (number, (set, name, expected)) in refused.into_iter().enumerate() {
        let told = of(number, set, name).expect_referable(&budget()).unwrap_err().to_string();
        assert!(told.contains(&format!("SpecificCharacterSet {expected}")), "{told}");
    }
    let decoded: [(&[u8], &[u8]); 2] = [(b"ISO_IR 100", latin), (b"ISO_IR 192", "Müller ".as_bytes())];
    for (number, (set, name)) in (5..).zip(decoded) {
        let found = spleen_of(&of(number, Some(set), name), dir.path());
        assert_eq!(text(&found, tags::PATIENT_NAME), "Müller");
    }
}

#[test]
fn loss_is_told_and_other_places_are_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let of_loss = |name: &str, lossy: &str| {
        let series = changed(&dir.path().join(name), &|slice| {
            slice.put_str(tags::LOSSY_IMAGE_COMPRESSION, VR::CS, lossy);
            slice.put_str(tags::LOSSY_IMAGE_COMPRESSION_RATIO, VR::DS, "8");
        });
        spleen_of(&series, dir.path())
    };
    let (lossy, exact) = (of_loss("lossy", "01"), of_loss("exact", "00"));
    assert_eq!(text(&lossy, tags::LOSSY_IMAGE_COMPRESSION), "01");
    assert_eq!(text(&lossy, tags::LOSSY_IMAGE_COMPRESSION_RATIO), "8");
    assert_eq!(text(&exact, tags::LOSSY_IMAGE_COMPRESSION), "00");
    assert!(exact.get(tags::LOSSY_IMAGE_COMPRESSION_RATIO).is_none());

    let moved = changed(&dir.path().join("moved"), &|slice| {
        let position = slice.get(tags::IMAGE_POSITION_PATIENT).unwrap().to_multi_float64().unwrap();
        let [x, y, z] = position[..] else { panic!("a position has three numbers") };
        slice.put_str(tags::IMAGE_POSITION_PATIENT, VR::DS, format!("{}\\{y}\\{z}", x + 1.0));
    });
    let [there, here] = [&moved, &series("short")].map(|series| spleen_of(series, dir.path()));
    assert_ne!(text(&there, tags::SOP_INSTANCE_UID), text(&here, tags::SOP_INSTANCE_UID));

    // What is too long is no value.
    let long = changed(&dir.path().join("long"), &|slice| {
        slice.put(bytes(tags::SERIES_DESCRIPTION, VR::LO, &[b'a'; 600]));
    });
    let values = long.values(0, &[(0x0008, 0x103E)], &budget()).unwrap();
    assert!(values.len() == 1 && values[0].is_none());
}

#[test]
fn frames_of_one_file_are_referred_to_in_an_archive_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&oracle("compressed/enhanced/all.dcm"));
    let found = spleen_of(&series("compressed/enhanced"), dir.path());
    let position = |frame: &InMemDicomObject| {
        let plane = item(frame, tags::PLANE_POSITION_SEQUENCE);
        plane.get(tags::IMAGE_POSITION_PATIENT).unwrap().to_multi_float64().unwrap()
    };
    let image = |frame: &InMemDicomObject| {
        item(item(frame, tags::DERIVATION_IMAGE_SEQUENCE), tags::SOURCE_IMAGE_SEQUENCE).clone()
    };
    let sources = items(&source, tags::PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE);
    let frames = items(&found, tags::PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE);
    assert_eq!((sources.len(), frames.len()), (3, 3));
    for frame in frames {
        let image = image(frame);
        assert_eq!(text(&image, tags::REFERENCED_SOP_INSTANCE_UID), text(&source, tags::SOP_INSTANCE_UID));
        assert_eq!(position(&sources[number(&image, tags::REFERENCED_FRAME_NUMBER) - 1]), position(frame));
    }
    let instances = |object: &InMemDicomObject| {
        items(item(object, tags::REFERENCED_SERIES_SEQUENCE), tags::REFERENCED_INSTANCE_SEQUENCE).len()
    };
    assert_eq!(instances(&found), 1);

    let found = spleen_of(&series("compressed/stored.zip"), dir.path());
    let frames = items(&found, tags::PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE);
    let numbers = frames.iter().map(|frame| number(&image(frame), tags::REFERENCED_FRAME_NUMBER));
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(instances(&found), 1);

    // Of files of one slice there are no frames.
    let found = spleen_of(&series("compressed/deflate.zip"), dir.path());
    let frames = items(&found, tags::PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE);
    assert!(frames.iter().all(|frame| image(frame).get(tags::REFERENCED_FRAME_NUMBER).is_none()));
    assert_eq!(instances(&found), 3);
}
