//! Series of DICOM.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_dicom::{DicomError, Series, has_dicom};
use plimsoll_memory::{Budget, Bytes};

use crate::folder::Folder;
use crate::granted;

/// Room for a few small slices, and for what decoding them takes.
const ROOM: Bytes = Bytes::mib(4);

/// The separator between two files of one input.
const BETWEEN: &[u8] = b"\n--\n";

/// The most files that an input is divided into.
const MOST_FILES: usize = 4;

/// Up to four files of DICOM in a folder.
pub fn dicom(bytes: &[u8]) {
    let folder = Folder::new();
    let mut rest = bytes;
    for number in 0..MOST_FILES {
        let end = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN);
        let end = end.filter(|_| number + 1 < MOST_FILES);
        folder.write(&format!("series/{number}.dcm"), rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest));
        match end.and_then(|end| rest.get(end + BETWEEN.len()..)) {
            Some(behind) => rest = behind,
            None => break,
        }
    }
    read(&folder, &folder.path().join("series"));
}

/// A ZIP archive of such files.
pub fn dicom_archive(bytes: &[u8]) {
    let folder = Folder::with("series.zip", bytes);
    read(&folder, &folder.path().join("series.zip"));
}

/// Finds a series and writes it; what cannot must say why.
fn read(folder: &Folder, path: &Path) {
    let budget = Budget::new(ROOM);
    let image = folder.path().join("image.nii");
    if let Err(error) = write(path, &image, &budget) {
        let told = error.to_string();
        let is_room = matches!(error, DicomError::OverBudget(_) | DicomError::Memory(_));
        assert!(is_room || told.contains(&*path.to_string_lossy()), "{told}");
        assert!(!told.contains('\n'), "{told}");
        error.remedy();
        assert!(!image.exists(), "{told}");
    }
    assert_eq!(budget.used(), Bytes::ZERO);
    granted(budget.peak());
}

fn write(path: &Path, image: &Path, budget: &Budget) -> Result<(), DicomError> {
    if !has_dicom(path)? {
        return Ok(());
    }
    let series = Series::find(path, budget)?;
    assert!(series.warnings().iter().all(|warning| warning.lines().count() == 1));
    series.write(image, budget, &AtomicBool::new(false))
}
