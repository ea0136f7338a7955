//! Files against PIL, and files that are damaged.

use crate::common;

use common::{compare, file, reference};
use plimsoll_image::{DecodeOptions, Extent, ImageError, ImageFile, Orientation, SampleRange};
use plimsoll_memory::{Budget, Bytes};

fn read(
    path: &std::path::Path,
    options: &DecodeOptions,
    channels: usize,
) -> Result<(Extent, Vec<u8>), ImageError> {
    let budget = Budget::new(Bytes::mib(16));
    let file = ImageFile::open(path, options)?;
    let decoded = file.decode(&budget)?;
    assert!(budget.peak() <= file.decoding_bytes().unwrap(), "{}", path.display());
    assert_eq!(budget.used(), file.image_bytes().unwrap());
    let mut samples = vec![0; file.extent().pixels() * channels];
    decoded.write(&file, channels, &mut samples)?;
    drop(decoded);
    assert_eq!(budget.used(), Bytes::ZERO);
    Ok((file.extent(), samples))
}

#[test]
fn files_are_read_as_pil_reads_them() {
    for case in reference()["files"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        for (channels, out) in [(3, &case["rgb"]), (1, &case["grey"])] {
            if out.is_null() {
                continue;
            }
            // PIL clips grey of 16 bits at 255, and takes the high bytes of colours.
            let range =
                if name.contains("grey") { SampleRange::new(0, 255) } else { Some(SampleRange::FULL) };
            let options = DecodeOptions { range_16_bit: range, ..DecodeOptions::default() };
            let (extent, samples) = read(&file(name), &options, channels).unwrap();
            assert_eq!(extent, common::extent(&out["shape"]), "{name}");
            let difference = compare(&samples, out);
            // Decoders of JPEG round differently, more so if colours are subsampled; all other formats are exact.
            let lossy = match name {
                "progressive.jpg" | "subsampled.jpg" | "large_progressive.jpg" => 4,
                _ if name.ends_with(".jpg") => 2,
                _ => 0,
            };
            assert!(difference.none || lossy > 0, "{name}: {difference:?}");
            assert!(difference.most <= lossy, "{name}: {difference:?}");
            if lossy > 0 {
                println!("{name}, {channels} channels: {difference:?}");
            }
        }
    }
}

#[test]
fn orientation_is_applied_where_it_is_asked_for() {
    let at = |name: &str, orientation| {
        read(&file(name), &DecodeOptions { orientation, ..DecodeOptions::default() }, 3).unwrap()
    };
    let upright = at("rgb.png", Orientation::AsPil);
    for name in ["turned.png", "turned.jpg"] {
        let (extent, plain) = at(name, Orientation::AsPil);
        assert_eq!(extent, upright.0, "{name}");
        let (turned_extent, turned) = at(name, Orientation::Apply);
        assert_eq!(turned_extent, extent.transposed(), "{name}");
        // Orientation 6 is turned by 90° clockwise: the first row becomes the last column.
        let (height, width) = (extent.height, extent.width);
        for column in 0..width {
            let from = &plain[column * 3..][..3];
            assert_eq!(&turned[(column * height + height - 1) * 3..][..3], from, "{name}, {column}");
        }
    }
    assert_eq!(at("turned6.tif", Orientation::Ignore).0, Extent { height: 5, width: 7 });
    assert_eq!(at("turned6.tif", Orientation::AsPil).0, Extent { height: 7, width: 5 });
}

#[test]
fn samples_of_16_bits_are_scaled_by_the_range_of_the_data_set() {
    let options = DecodeOptions { range_16_bit: Some(SampleRange::FULL), ..DecodeOptions::default() };
    let (extent, samples) = read(&file("grey16.png"), &options, 1).unwrap();
    // v · 257 with its lowest bits changed, which is nearest to v of 255.
    let expected: Vec<u8> = common::image(extent, 3).into_iter().step_by(3).collect();
    assert_eq!(samples, expected);
    // Grey and colours, PNG and TIFF: round(255 (v − low) / (high − low)), clipped.
    let folder = tempfile::tempdir().unwrap();
    let values = [0u16, 2000, 2001, 2080, 2081, 21500, 42919, 42920, 43000, 43001, u16::MAX];
    let expected = [0, 0, 0, 0, 1, 121, 254, 255, 255, 255, 255];
    let range_16_bit = SampleRange::new(2000, 43000);
    let options = DecodeOptions { range_16_bit, ..DecodeOptions::default() };
    for ending in ["png", "tif"] {
        let path = folder.path().join(format!("grey.{ending}"));
        let width = values.len() as u32;
        image::ImageBuffer::<image::Luma<u16>, _>::from_raw(width, 1, values.to_vec())
            .unwrap()
            .save(&path)
            .unwrap();
        assert_eq!(read(&path, &options, 1).unwrap().1, expected, "{ending}");
        let error = read(&path, &DecodeOptions::default(), 1).unwrap_err();
        assert!(matches!(error, ImageError::NoRange { .. }), "{error}");
        let path = folder.path().join(format!("rgb.{ending}"));
        let colours = values.iter().flat_map(|value| [*value, 2000, 43000]).collect();
        image::ImageBuffer::<image::Rgb<u16>, Vec<u16>>::from_raw(width, 1, colours)
            .unwrap()
            .save(&path)
            .unwrap();
        let red: Vec<u8> = read(&path, &options, 3).unwrap().1.into_iter().step_by(3).collect();
        assert_eq!(red, expected, "{ending}");
    }
}

#[test]
fn files_that_are_cut_off_are_refused_by_name_wherever_they_end() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "rgb.png",
        "grey16.png",
        "baseline.jpg",
        "progressive.jpg",
        "turned.jpg",
        "plain.tif",
        "lzw.tif",
        "rgb.bmp",
    ] {
        let bytes = std::fs::read(file(name)).unwrap();
        // The last bytes of some formats say nothing: the end chunk of a PNG, the directory of a TIFF, padding.
        for share in [0.0, 0.02, 0.1, 0.3, 0.6, 0.9] {
            let path = folder.path().join(name);
            std::fs::write(&path, &bytes[..(bytes.len() as f64 * share) as usize]).unwrap();
            let error = match read(&path, &DecodeOptions::default(), 3) {
                Err(error) => error,
                Ok(_) => panic!("{name} with {share} of its bytes is read"),
            };
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
            assert!(error.remedy().is_some(), "{error}");
        }
    }
}

#[test]
fn what_is_refused_is_said_with_numbers_and_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("text.png"), "no image").unwrap();
    std::fs::write(path("empty.png"), "").unwrap();
    // A header of a PNG that claims 100 000 × 100 000 pixels.
    let mut huge = std::fs::read(file("rgb.png")).unwrap();
    huge[16..20].copy_from_slice(&100_000u32.to_be_bytes());
    huge[20..24].copy_from_slice(&100_000u32.to_be_bytes());
    let crc = crc32(&huge[12..29]);
    huge[29..33].copy_from_slice(&crc.to_be_bytes());
    std::fs::write(path("huge.png"), &huge).unwrap();
    let small = DecodeOptions { most_bytes: Bytes(100), ..DecodeOptions::default() };
    let few = DecodeOptions { most_pixels: 2000, ..DecodeOptions::default() };
    let usual = DecodeOptions::default();
    for (path, options, says) in [
        (path("text.png"), &usual, "starts with 6e 6f 20 69 6d 61 67 65"),
        (path("empty.png"), &usual, "is empty"),
        (path("absent.png"), &usual, "cannot read"),
        (path("huge.png"), &usual, "100000 × 100000 pixels; from 1 to 268435456"),
        (file("rgb.png"), &few, "40 × 56 pixels; from 1 to 2000"),
        (file("rgb.png"), &small, "at most 100 B"),
        (file("cmyk.jpg"), &usual, "JPEG with CMYK colours"),
    ] {
        let error = read(&path, options, 3).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(says) && said.contains(&*path.to_string_lossy()), "{said}");
        assert!(error.remedy().is_some(), "{said}");
        assert_eq!(error.path(), path);
    }
}

#[test]
fn an_image_that_does_not_fit_the_budget_is_refused_before_it_is_decoded() {
    let image = ImageFile::open(file("rgb.png"), &DecodeOptions::default()).unwrap();
    let budget = Budget::new(Bytes(image.decoding_bytes().unwrap().0 - 1));
    let error = image.decode(&budget).unwrap_err();
    assert!(error.is_of_memory() && error.to_string().contains("rgb.png"), "{error}");
    assert_eq!(budget.used(), Bytes::ZERO);
    assert!(image.decode(&Budget::new(image.decoding_bytes().unwrap())).is_ok());
}

/// The check sum of a PNG chunk (ISO 3309).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}
