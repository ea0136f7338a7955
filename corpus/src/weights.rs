//! Weight files.

use std::path::Path;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::{SafetensorsFile, WeightError, WeightFile};

use crate::folder::Folder;
use crate::granted;

/// Room for tensors of a `.pth` file, and for what its pickle builds.
const ROOM: Bytes = Bytes(16 << 20);

/// More elements than any small file has: what claims more has no place in a network that it could be read into.
const MOST_ELEMENTS: usize = 1 << 14;

/// A `.safetensors` file.
pub fn safetensors(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.write("a.safetensors", bytes);
    read(&path);
    if let Ok(mut file) = SafetensorsFile::open(&path) {
        file.metadata();
        if let Err(error) = file.verify_all() {
            assert!(file.has_checksums(), "{error}");
        }
    }
}

/// A file of `torch.save`.
pub fn pytorch(bytes: &[u8]) {
    let folder = Folder::new();
    read(&folder.write("a.pth", bytes));
}

fn read(path: &Path) {
    let budget = Budget::new(ROOM);
    if let Err(error) = read_all(path, &budget) {
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
        error.remedy();
    }
    assert_eq!(budget.used(), Bytes::ZERO);
    granted(budget.peak());
}

fn read_all(path: &Path, budget: &Budget) -> Result<(), WeightError> {
    let mut file = WeightFile::open(path, budget)?;
    let names: Vec<String> = file.names().into_iter().map(str::to_string).collect();
    let mut values = vec![0.0; MOST_ELEMENTS];
    for name in names {
        let Some(shape) = file.shape(&name) else { continue };
        let count = shape.0.iter().try_fold(1usize, |count, extent| count.checked_mul(*extent));
        if let Some(values) = count.and_then(|count| values.get_mut(..count)) {
            file.read_named(&name, &shape, values)?;
        }
    }
    Ok(())
}
