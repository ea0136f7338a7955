//! Images in two dimensions, and tables of them.

use std::path::Path;

use plimsoll_data::pictures::{GroupSource, ImageDataset, LabelSource, TableSettings, folds};
use plimsoll_image::{DecodeOptions, ImageError, ImageFile, Orientation};
use plimsoll_memory::{Budget, Bytes};

use crate::folder::Folder;

/// Room for small images: what a decoder takes at least, and little more.
const ROOM: Bytes = Bytes(900 << 10);

/// Room for the list of a table's images.
const TABLE_ROOM: Bytes = Bytes(512 << 10);

/// A PNG, JPEG, TIFF or BMP file.
pub fn image(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.write("a.png", bytes);
    let budget = Budget::new(ROOM);
    if let Err(error) = read(&path, &budget) {
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
        assert_eq!(error.path(), path);
        error.remedy();
    }
    assert_eq!(budget.used(), Bytes::ZERO);
}

fn read(path: &Path, budget: &Budget) -> Result<(), ImageError> {
    let options = DecodeOptions { orientation: Orientation::Apply, ..DecodeOptions::default() };
    let file = ImageFile::open(path, &options)?;
    let decoded = file.decode(budget)?;
    assert_eq!(Ok(budget.used()), file.image_bytes().map_err(|error| error.to_string()));
    decoded.digest();
    let mut pixels = vec![0; file.extent().pixels().min(1 << 16)];
    decoded.write(&file, 1, &mut pixels)?;
    Ok(())
}

/// A CSV table of images, read in three ways.
pub fn image_table(bytes: &[u8]) {
    let folder = Folder::with("table.csv", bytes);
    let path = folder.path().join("table.csv");
    for label in [
        LabelSource::One("level".into()),
        LabelSource::Several { column: "level".into(), separator: ";".into() },
        LabelSource::Columns(vec!["level".into()]),
    ] {
        let settings = TableSettings {
            image: "image".into(),
            label,
            group: Some(GroupSource::NameUpTo("_".into())),
            split: None,
            folder: "images".into(),
            ending: ".png".into(),
            classes: Vec::new(),
            skip_unlabelled: true,
        };
        let budget = Budget::new(TABLE_ROOM);
        match ImageDataset::from_table(&path, &settings, &budget) {
            Ok(dataset) => {
                assert_eq!(budget.used(), dataset.reserved());
                let labels = dataset.cases.iter().flat_map(|case| &case.labels);
                assert!(labels.into_iter().all(|label| (*label as usize) < dataset.classes.len()));
                let inside = folder.path().join("images");
                assert!(dataset.cases.iter().all(|case| case.path.starts_with(&inside)));
                let few: Vec<usize> = (0..dataset.cases.len().min(50)).collect();
                if let Ok(folds) = folds(&dataset, &few, 2, Some(1)) {
                    assert_eq!(folds.iter().map(|fold| fold.val.len()).sum::<usize>(), few.len());
                }
            }
            Err(error) => {
                assert!(error.to_string().contains("table.csv"), "{error}");
                error.remedy();
            }
        }
        assert_eq!(budget.used(), Bytes::ZERO);
    }
}
