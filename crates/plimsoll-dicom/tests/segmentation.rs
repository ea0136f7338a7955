//! Segmentations say of each voxel what the labels said, and others read them so: `oracles/dicom_seg.py` has highdicom, pydicom and DCMTK read the
//! files that these tests write into the folder `DICOM_SEG_FOLDER`, and `oracles/dicom_seg.json` is what highdicom found in them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::segmentations::*;
use dicom_core::{DataElement, PrimitiveValue, VR};
use dicom_dictionary_std::tags;
use dicom_object::{DefaultDicomObject, InMemDicomObject, Tag};
use plimsoll_dicom::{SegmentationType, Series, is_dicom_name};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, LabelTable};
use serde::Deserialize;

/// Returns the labels as they are written: labels without a name are background.
fn named(labels: &[u16], names: &LabelTable) -> Vec<u16> {
    let has_name = |label: &u16| names.labels.iter().any(|(value, _)| value == label);
    labels.iter().map(|label| if has_name(label) { *label } else { 0 }).collect()
}

/// Writes labels of a series, and returns the file.
fn write(
    folder: &Path,
    of: &str,
    kind: SegmentationType,
    names: &LabelTable,
    labels: &[u16],
    element: ElementType,
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

/// highdicom's result for a file.
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
        let file = write(dir.path(), of, kind, &organs(), &labels(), ElementType::U8);
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
        let file = write(dir.path(), "tilted", kind, &organs(), &labels(), ElementType::U8);
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
    let file = write(dir.path(), "short", SegmentationType::LabelMap, &organs(), &labels(), ElementType::U8);
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
        let file = write(dir.path(), "short", kind, &organs(), labels, ElementType::U8);
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
        let file = write(dir.path(), "floats", kind, &wide, &high, ElementType::U16);
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
    let file = write(dir.path(), "short", SegmentationType::Binary, &organs(), &nothing, ElementType::U8);
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

/// A series of slices of this number of rows and columns, like the oracle's.
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
