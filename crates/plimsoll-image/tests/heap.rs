//! Decoders take no more heap than was reserved for them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use plimsoll_image::{DecodeOptions, ImageFile};
use plimsoll_memory::{Budget, Bytes, CountingAllocator, forget_heap_peak, heap_use};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// One test alone, since all heap of the process counts.
#[test]
fn decoding_takes_no_more_heap_than_was_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths: Vec<_> =
        std::fs::read_dir(common::file("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let samples = common::image(plimsoll_image::Extent { height: 700, width: 900 }, 3);
    let large = image::RgbImage::from_raw(900, 700, samples).unwrap();
    for name in ["large.png", "large.jpg", "large.tif", "large.bmp"] {
        let path = folder.path().join(name);
        large.save(&path).unwrap();
        paths.push(path);
    }
    let budget = Budget::new(Bytes::mib(64));
    for path in paths {
        let Ok(file) = ImageFile::open(&path, &DecodeOptions::default()) else { continue };
        let allowed = file.decoding_bytes().unwrap() - file.image_bytes().unwrap();
        let before = heap_use().now;
        forget_heap_peak();
        let decoded = file.decode(&budget).unwrap();
        let taken = heap_use().peak - before;
        assert!(taken <= allowed, "{}: {taken} of {allowed}", path.display());
        println!("{}: {taken} of {allowed}", path.display());
        drop(decoded);
    }
}
