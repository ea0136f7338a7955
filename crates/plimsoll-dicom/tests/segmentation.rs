//! Segmentations say of each voxel what the labels said, and others read them so: `oracles/dicom_seg.py` has highdicom, pydicom and DCMTK read the
//! files that these tests write into the folder `DICOM_SEG_FOLDER`, and `oracles/dicom_seg.json` is what highdicom found in them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use dicom_core::{DataElement, PrimitiveValue, VR};
use dicom_dictionary_std::tags;
use dicom_object::{DefaultDicomObject, InMemDicomObject, OpenFileOptions, Tag};
use plimsoll_dicom::{DicomError, SegmentationRequest, SegmentationType, Series, is_dicom_name};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, LabelTable, VolumeWriter};
use serde::Deserialize;

/// Of the series of the oracle. A plane has 108 pixels: masks begin within bytes.
const SHAPE: [usize; 3] = [6, 9, 12];

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom").join(name)
}

fn budget() -> Budget {
    Budget::new(Bytes::mib(64))
}

fn series(name: &str) -> Series {
    Series::find(&oracle(name), &budget()).unwrap()
}

fn names(names: &[(u16, &str)]) -> LabelTable {
    LabelTable { labels: names.iter().map(|(value, name)| (*value, (*name).to_string())).collect() }
}

/// Labels that others than background have, too: 9 has no name, and 117 is in two slices only.
fn organs() -> LabelTable {
    names(&[
        (1, "spleen"),
        (5, "liver"),
        (92, "rib_left_1"),
        (117, "costal_cartilages"),
        (200, "nothing_known"),
    ])
}

/// A label for each voxel, in the order (depth, height, width).
fn labels() -> Vec<u16> {
    let [depth, height, width] = SHAPE;
    let places = (0..depth).flat_map(|d| (0..height).flat_map(move |h| (0..width).map(move |w| (d, h, w))));
    let label = |(d, h, w): (usize, usize, usize)| match (d, h, w) {
        (2, ..) => 0,
        (d, h, _) if d > 3 && h == 0 => 117,
        (_, 2..5, 3..9) => 5,
        (_, 7, w) if w % 2 == 0 => 1,
        (_, 8, 11) => 92,
        (_, 5, 5) => 9,
        _ => 0,
    };
    places.map(label).collect()
}

/// What is written of them: labels without a name are background.
fn named(labels: &[u16], names: &LabelTable) -> Vec<u16> {
    let has_name = |label: &u16| names.labels.iter().any(|(value, _)| value == label);
    labels.iter().map(|label| if has_name(label) { *label } else { 0 }).collect()
}

/// A label map of NIfTI.
fn write_labels(path: &Path, shape: [usize; 3], labels: &[u16], element: ElementType) {
    let one = [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]];
    let geometry = Geometry::new(shape, Affine(one)).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, element, None).unwrap();
    let bytes: Vec<u8> = match element {
        ElementType::U8 => labels.iter().map(|label| u8::try_from(*label).unwrap()).collect(),
        _ => labels.iter().flat_map(|label| label.to_ne_bytes()).collect(),
    };
    writer.write_planes(&bytes).unwrap();
    writer.finish().unwrap();
}

fn request(kind: SegmentationType, names: &LabelTable) -> SegmentationRequest<'_> {
    SegmentationRequest { kind, names, description: "total", algorithm: "TotalSegmentator total" }
}

/// Writes labels of a series, and returns the file.
fn write(
    folder: &Path,
    of: &str,
    kind: SegmentationType,
    names: &LabelTable,
    (labels, element): (&[u16], ElementType),
) -> PathBuf {
    let (map, to) = (folder.join("labels.nii.gz"), folder.join(format!("{of}_{kind:?}.dcm").to_lowercase()));
    write_labels(&map, SHAPE, labels, element);
    let budget = budget();
    series(of)
        .write_segmentation(&map, &to, &request(kind, names), &budget, &AtomicBool::new(false))
        .unwrap();
    assert_eq!(budget.used(), Bytes::ZERO);
    fs::remove_file(map).unwrap();
    to
}

/// Keeps a copy of a file for the oracle.
fn keep(file: &Path) {
    if let Some(kept) = std::env::var_os("DICOM_SEG_FOLDER") {
        fs::copy(file, Path::new(&kept).join(file.file_name().unwrap())).unwrap();
    }
}

fn open(path: &Path) -> DefaultDicomObject {
    OpenFileOptions::new().open_file(path).unwrap()
}

fn text(object: &InMemDicomObject, tag: Tag) -> String {
    object.get(tag).unwrap().to_str().unwrap().trim_end_matches(['\0', ' ']).to_string()
}

fn number(object: &InMemDicomObject, tag: Tag) -> usize {
    object.get(tag).unwrap().to_int().unwrap()
}

fn items(object: &InMemDicomObject, tag: Tag) -> &[InMemDicomObject] {
    object.get(tag).unwrap().items().unwrap()
}

/// The only item of a sequence.
fn item(object: &InMemDicomObject, tag: Tag) -> &InMemDicomObject {
    let [one] = items(object, tag) else { panic!("{tag} has not one item") };
    one
}

/// PackBits, as its description reads: one segment after the other, each from its offset.
fn run_lengths(fragment: &[u8], length: usize) -> Vec<Vec<u8>> {
    let word = |at: usize| u32::from_le_bytes(fragment[4 * at..4 * at + 4].try_into().unwrap()) as usize;
    let segment = |number: usize| {
        let (mut at, mut bytes) = (word(1 + number), Vec::new());
        while bytes.len() < length {
            match fragment[at] {
                128 => at += 1,
                count @ 129.. => {
                    bytes.extend(std::iter::repeat_n(fragment[at + 1], 257 - usize::from(count)));
                    at += 2;
                }
                count => {
                    bytes.extend_from_slice(&fragment[at + 1..at + 2 + usize::from(count)]);
                    at += 2 + usize::from(count);
                }
            }
        }
        bytes
    };
    (0..word(0)).map(segment).collect()
}

/// The pixels of a file as they are stored, and the label of each voxel by its frames and segments.
fn decode(object: &DefaultDicomObject) -> (Vec<u8>, Vec<u16>) {
    let pixels = object.get(tags::PIXEL_DATA).unwrap();
    let plane = SHAPE[1] * SHAPE[2];
    let mut labels = vec![0; SHAPE.iter().product()];
    let frames = items(object, tags::PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE);
    assert_eq!(frames.len(), number(object, tags::NUMBER_OF_FRAMES));
    let indices = |frame: &InMemDicomObject| -> Vec<usize> {
        let content = item(frame, tags::FRAME_CONTENT_SEQUENCE);
        content.get(tags::DIMENSION_INDEX_VALUES).unwrap().to_multi_int().unwrap()
    };
    if text(object, tags::SEGMENTATION_TYPE) == "LABELMAP" {
        assert_eq!(object.meta().transfer_syntax(), "1.2.840.10008.1.2.5");
        let fragments = pixels.value().fragments().unwrap();
        assert_eq!(fragments.len(), SHAPE[0]);
        for (slice, (fragment, frame)) in fragments.iter().zip(frames).enumerate() {
            assert_eq!(indices(frame), [slice + 1]);
            let segments = run_lengths(fragment, plane);
            assert_eq!(segments.len() * 8, number(object, tags::BITS_ALLOCATED));
            for (place, label) in labels[slice * plane..][..plane].iter_mut().enumerate() {
                *label = segments.iter().fold(0, |label, bytes| label << 8 | u16::from(bytes[place]));
            }
        }
        return (fragments.concat(), labels);
    }
    let bytes = pixels.to_bytes().unwrap().into_owned();
    assert_eq!(bytes.len(), (frames.len() * plane).div_ceil(8).next_multiple_of(2));
    for (number, frame) in frames.iter().enumerate() {
        let [segment, slice] = indices(frame)[..] else { panic!("a mask has two indices") };
        let identification = item(frame, tags::SEGMENT_IDENTIFICATION_SEQUENCE);
        assert_eq!(self::number(identification, tags::REFERENCED_SEGMENT_NUMBER), segment);
        for place in 0..plane {
            let bit = number * plane + place;
            if bytes[bit / 8] >> (bit % 8) & 1 == 1 {
                let label = &mut labels[(slice - 1) * plane + place];
                assert_eq!(*label, 0, "two segments at one voxel");
                *label = segment as u16;
            }
        }
    }
    (bytes, labels)
}

/// What highdicom found in a file.
#[derive(Deserialize)]
struct Known {
    /// The value of Pixel Data, or of its fragments, as two hexadecimal digits a byte.
    pixels: String,
    /// The segment of each voxel.
    labels: Vec<u16>,
}

#[test]
fn labels_are_decoded_to_themselves_and_as_highdicom_decodes_them() {
    let dir = tempfile::tempdir().unwrap();
    let expected = named(&labels(), &organs());
    let kinds = [SegmentationType::LabelMap, SegmentationType::Binary];
    let of_series = |of: &'static str| kinds.map(|kind| (of, kind));
    let files = ["short", "tilted"].into_iter().flat_map(of_series).map(|(of, kind)| {
        let file = write(dir.path(), of, kind, &organs(), (&labels(), ElementType::U8));
        keep(&file);
        (kind, file)
    });
    let files: Vec<_> = files.collect();
    let known: HashMap<String, Known> =
        serde_json::from_slice(&fs::read(oracle("../dicom_seg.json")).unwrap()).unwrap();
    for (kind, file) in files {
        let object = open(&file);
        let (pixels, found) = decode(&object);
        // Masks are of segments that are counted from 1 on, in the order of values.
        let values = [0, 1, 5, 92, 117, 200];
        let of_value = |value: &u16| match kind {
            SegmentationType::LabelMap => *value,
            SegmentationType::Binary => values.iter().position(|other| other == value).unwrap() as u16,
        };
        let expected: Vec<u16> = expected.iter().map(of_value).collect();
        assert!(found == expected, "{}", file.display());
        let known = &known[file.file_stem().unwrap().to_str().unwrap()];
        assert!(known.labels == found, "{}", file.display());
        let hexadecimal: String = pixels.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(known.pixels, hexadecimal, "{}", file.display());
    }
}

/// The files of a series from one end to the other.
fn slices(of: &str) -> Vec<DefaultDicomObject> {
    let entries = fs::read_dir(oracle(of)).unwrap();
    let mut slices: Vec<_> = entries.map(|entry| open(&entry.unwrap().path())).collect();
    // The oracle has numbered them from the far end.
    slices.sort_by_key(|slice| std::cmp::Reverse(number(slice, tags::INSTANCE_NUMBER)));
    slices
}

#[test]
fn frames_are_where_their_slices_are_and_refer_to_them() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [SegmentationType::LabelMap, SegmentationType::Binary] {
        let file = write(dir.path(), "tilted", kind, &organs(), (&labels(), ElementType::U8));
        let object = open(&file);
        let slices = slices("tilted");
        let first = &slices[0];
        for tag in [
            tags::PATIENT_NAME,
            tags::PATIENT_ID,
            tags::STUDY_INSTANCE_UID,
            tags::FRAME_OF_REFERENCE_UID,
            tags::ROWS,
            tags::COLUMNS,
        ] {
            assert_eq!(text(&object, tag), text(first, tag));
        }
        assert_ne!(text(&object, tags::SERIES_INSTANCE_UID), text(first, tags::SERIES_INSTANCE_UID));
        let shared = item(&object, tags::SHARED_FUNCTIONAL_GROUPS_SEQUENCE);
        let numbers =
            |object: &InMemDicomObject, tag: Tag| object.get(tag).unwrap().to_multi_float64().unwrap();
        let measures = item(shared, tags::PIXEL_MEASURES_SEQUENCE);
        assert_eq!(numbers(measures, tags::PIXEL_SPACING), numbers(first, tags::PIXEL_SPACING));
        assert!((numbers(measures, tags::SPACING_BETWEEN_SLICES)[0] - 2.5).abs() < 1e-5);
        let orientation = item(shared, tags::PLANE_ORIENTATION_SEQUENCE);
        let tag = tags::IMAGE_ORIENTATION_PATIENT;
        assert_eq!(numbers(orientation, tag), numbers(first, tag));
        for frame in items(&object, tags::PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE) {
            let content = item(frame, tags::FRAME_CONTENT_SEQUENCE);
            let indices: Vec<usize> =
                content.get(tags::DIMENSION_INDEX_VALUES).unwrap().to_multi_int().unwrap();
            let slice = &slices[indices.last().unwrap() - 1];
            let position = item(frame, tags::PLANE_POSITION_SEQUENCE);
            let tag = tags::IMAGE_POSITION_PATIENT;
            assert_eq!(numbers(position, tag), numbers(slice, tag));
            let image = item(item(frame, tags::DERIVATION_IMAGE_SEQUENCE), tags::SOURCE_IMAGE_SEQUENCE);
            assert_eq!(text(image, tags::REFERENCED_SOP_INSTANCE_UID), text(slice, tags::SOP_INSTANCE_UID));
            assert_eq!(text(image, tags::REFERENCED_SOP_CLASS_UID), text(slice, tags::SOP_CLASS_UID));
        }
        let referenced = item(&object, tags::REFERENCED_SERIES_SEQUENCE);
        assert_eq!(items(referenced, tags::REFERENCED_INSTANCE_SEQUENCE).len(), 6);
    }
}

#[test]
fn segments_have_names_codes_and_colours() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        write(dir.path(), "short", SegmentationType::LabelMap, &organs(), (&labels(), ElementType::U8));
    let object = open(&file);
    let found = items(&object, tags::SEGMENT_SEQUENCE).iter().map(|segment| {
        assert_eq!(text(segment, tags::SEGMENT_ALGORITHM_TYPE), "AUTOMATIC");
        assert_eq!(text(segment, tags::SEGMENT_ALGORITHM_NAME), "TotalSegmentator total");
        let colour = segment.get(tags::RECOMMENDED_DISPLAY_CIE_LAB_VALUE).unwrap();
        assert_eq!(colour.to_multi_int::<u16>().unwrap().len(), 3);
        let kind = item(segment, tags::SEGMENTED_PROPERTY_TYPE_CODE_SEQUENCE);
        let label = text(segment, tags::SEGMENT_LABEL);
        (number(segment, tags::SEGMENT_NUMBER), label, text(kind, tags::CODE_VALUE))
    });
    let expected = [
        (0, "Background", "125040"),
        (1, "spleen", "78961009"),
        (5, "liver", "10200004"),
        (92, "rib_left_1", "48535007"),
        (117, "costal_cartilages", "50016007"),
        (200, "nothing_known", "85756007"),
    ];
    assert!(found.eq(expected.map(|(value, name, code)| (value, name.to_string(), code.to_string()))));
}

#[test]
fn the_same_labels_are_the_same_bytes_and_others_have_other_identifiers() {
    let dir = tempfile::tempdir().unwrap();
    let kind = SegmentationType::Binary;
    let write = |labels: &[u16]| {
        let file = write(dir.path(), "short", kind, &organs(), (labels, ElementType::U8));
        (fs::read(&file).unwrap(), text(&open(&file), tags::SOP_INSTANCE_UID))
    };
    let (once, again) = (write(&labels()), write(&labels()));
    assert!(once == again);
    assert!(once.1.starts_with("2.25.") && once.1.len() <= 64);
    let mut other = labels();
    other[0] = 1;
    assert_ne!(write(&other).1, once.1);
}

#[test]
fn labels_above_255_take_16_bits_and_no_label_at_all_is_one_empty_mask() {
    let dir = tempfile::tempdir().unwrap();
    let (wide, mut high) = (names(&[(7020, "one"), (60_000, "other")]), labels());
    high.iter_mut().for_each(|label| *label = if *label == 5 { 60_000 } else { *label * 60 });
    for kind in [SegmentationType::LabelMap, SegmentationType::Binary] {
        let file = write(dir.path(), "floats", kind, &wide, (&high, ElementType::U16));
        keep(&file);
        let numbers: [u16; 2] = if kind == SegmentationType::Binary { [1, 2] } else { [7020, 60_000] };
        let of = |label: &u16| match label {
            7020 => numbers[0],
            60_000 => numbers[1],
            _ => 0,
        };
        let expected: Vec<u16> = high.iter().map(of).collect();
        assert!(decode(&open(&file)).1 == expected);
    }
    let nothing = vec![0; SHAPE.iter().product()];
    let file = write(dir.path(), "short", SegmentationType::Binary, &organs(), (&nothing, ElementType::U8));
    let object = open(&file);
    assert_eq!(number(&object, tags::NUMBER_OF_FRAMES), 1);
    assert!(decode(&object).1 == nothing);
    // A series with its segmentation beside it is the same series.
    assert!(is_dicom_name(&file));
    for entry in fs::read_dir(oracle("short")).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, dir.path().join(from.file_name().unwrap())).unwrap();
    }
    assert_eq!(Series::find(dir.path(), &budget()).unwrap().geometry(), series("short").geometry());
}

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
        assert!(error.hint().is_some() && error.to_string().lines().count() == 1, "{error}");
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
    assert!(told.contains("FrameOfReferenceUID is no unique identifier"), "{told}");
    let told = spoil(b"\x20\x00\x0E\x00UI", None, &|element| element[8] = b'x');
    assert!(told.contains("SeriesInstanceUID is no unique identifier"), "{told}");
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

/// A series of slices of so many rows and columns, like those of the oracle.
fn write_series(folder: &Path, [depth, height, width]: [usize; 3]) {
    fs::create_dir(folder).unwrap();
    let mut slice = open(&oracle("short").join("00.dcm"));
    slice.put(DataElement::new(tags::ROWS, VR::US, PrimitiveValue::from(height as u16)));
    slice.put(DataElement::new(tags::COLUMNS, VR::US, PrimitiveValue::from(width as u16)));
    let pixels = PrimitiveValue::U16(vec![0; height * width].into());
    slice.put(DataElement::new(tags::PIXEL_DATA, VR::OW, pixels));
    for d in 0..depth {
        slice.put_str(tags::SOP_INSTANCE_UID, VR::UI, format!("2.25.{d}"));
        slice.put_str(tags::IMAGE_POSITION_PATIENT, VR::DS, format!("0\\0\\{d}"));
        slice.write_to_file(folder.join(format!("{d}.dcm"))).unwrap();
    }
}

/// 117 balls of 6 to 18 mm, of which those that come later cover earlier ones.
fn balls([depth, height, width]: [usize; 3]) -> Vec<u16> {
    let mut labels = vec![0; depth * height * width];
    for label in 1..=117u16 {
        // Fractions of multiples of irrational numbers are spread evenly.
        let part = |factor: f64| (f64::from(label) * factor).fract();
        let radius = 6.0 + 12.0 * part(0.754_877_7);
        let centre = [(depth, 0.569_840_3), (height, 0.324_717_9), (width, 0.618_034)];
        let centre = centre.map(|(length, factor)| length as f64 * part(factor));
        for (place, voxel) in labels.iter_mut().enumerate() {
            let at = [place / (height * width), place / width % height, place % width];
            let away: f64 = at.into_iter().zip(centre).map(|(at, centre)| (at as f64 - centre).powi(2)).sum();
            if away <= radius * radius {
                *voxel = label;
            }
        }
    }
    labels
}

#[test]
fn a_label_map_of_117_labels_takes_less_than_a_tenth_of_their_masks() {
    let dir = tempfile::tempdir().unwrap();
    let shape = [40, 192, 192];
    let (folder, map) = (dir.path().join("series"), dir.path().join("balls.nii"));
    write_series(&folder, shape);
    let labels = balls(shape);
    write_labels(&map, shape, &labels, ElementType::U8);
    let series = Series::find(&folder, &budget()).unwrap();
    let table = LabelTable { labels: (1..=117).map(|value| (value, format!("ball {value}"))).collect() };
    let [labelmap, masks] = [SegmentationType::LabelMap, SegmentationType::Binary].map(|kind| {
        let to = dir.path().join(format!("balls_{kind:?}.dcm").to_lowercase());
        // Less than the masks take: they are written as they are made.
        let budget = Budget::new(Bytes::mib(3));
        series
            .write_segmentation(&map, &to, &request(kind, &table), &budget, &AtomicBool::new(false))
            .unwrap();
        keep(&to);
        fs::metadata(to).unwrap().len()
    });
    println!("{labelmap} bytes of labels, {masks} of masks");
    assert!(labelmap * 10 < masks, "{labelmap} bytes of labels, {masks} of masks");
}
