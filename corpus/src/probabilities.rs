//! Probabilities of other models.

use std::sync::atomic::AtomicBool;

use plimsoll_infer::{EnsembleRequest, InferError, label_by_mean};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::Answers;
use plimsoll_volume::{Affine, ElementType, Geometry, GeometryError, Spacing, VolumeError, VolumeWriter};

use crate::folder::Folder;

/// Room for the readers of three outputs and a plane of each.
const ROOM: Bytes = Bytes::mib(2);

/// The image that the probabilities are of.
const SHAPE: [usize; 3] = [2, 3, 4];

/// Probabilities in NumPy's `.npz`, averaged with themselves.
pub fn npz(bytes: &[u8]) {
    let folder = Folder::with("a.npz", bytes);
    let image = folder.path().join("image.nii");
    #[allow(clippy::panic, reason = "this crate is for tests alone")]
    let Ok(Ok(())) = geometry().map(|geometry| empty(&image, &geometry)) else {
        panic!("{}: a small image cannot be written", image.display())
    };
    let probabilities = folder.path().join("a.npz");
    let request = EnsembleRequest {
        case: "a",
        probabilities: &[probabilities.clone(), probabilities.clone()],
        answers: &Answers::Classes(3),
        image: &image,
        labels: &folder.path().join("labels.nii"),
    };
    if let Err(error) = label_by_mean(&request, &Budget::new(ROOM), &AtomicBool::new(false)) {
        assert!(matches!(error, InferError::Probabilities { .. }), "{error}");
        assert!(error.to_string().contains(&*probabilities.to_string_lossy()), "{error}");
        assert!(error.remedy().is_some());
    }
}

fn geometry() -> Result<Geometry, GeometryError> {
    Geometry::new(SHAPE, Affine::from_spacing(Spacing([1.0; 3])))
}

fn empty(path: &std::path::Path, geometry: &Geometry) -> Result<(), VolumeError> {
    let mut writer = VolumeWriter::create(path, geometry, 1, ElementType::U8, None)?;
    writer.write_planes(&[0; SHAPE[0] * SHAPE[1] * SHAPE[2]])?;
    writer.finish()
}
