//! Readers of files, applied to arbitrary bytes.
//!
//! Each function takes the bytes of a file (a data set's description, a volume, weights, …), gives them to the code that reads
//! such files, and uses what comes out. It may be refused with an error; it must not panic, give a path outside of a data
//! set's folder, or take more heap than [`Heap::most`]. The fuzz targets of `fuzz/` call these functions; the test of this crate
//! tries the inputs in `seeds/` on them: small real files, and whatever once was a fault.

mod changes;
mod data;
mod dicom;
mod folder;
mod images;
mod models;
mod probabilities;
mod runs;
mod serve;
mod volumes;
mod weights;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_memory::{Bytes, forget_heap_peak, heap_use};

pub use changes::Changes;
pub use data::{dataset, fingerprint, is_fingerprint, splits};
pub use dicom::{dicom, dicom_archive};
pub use images::{image, image_table};
pub use models::{adaptation_plan, model_file, monai_bundle, monai_config};
pub use probabilities::npz;
pub use runs::{events, lock, metrics, settings, specification};
pub use serve::{serve_message, serve_parts, serve_upload};
pub use volumes::{meta_image, nifti, nifti_gz, nifti_pair, nifti_zst, npy, npz_image, nrrd, tiff, zarr};
pub use weights::{pytorch, safetensors};

/// A reader of the bytes of a file.
pub type Body = fn(&[u8]);

/// All bodies, by the names of their fuzz targets and of the folders of their inputs.
pub const TARGETS: [(&str, Body); 32] = [
    ("adaptation_plan", adaptation_plan),
    ("dataset", dataset),
    ("dicom", dicom),
    ("dicom_archive", dicom_archive),
    ("events", events),
    ("fingerprint", fingerprint),
    ("image", image),
    ("image_table", image_table),
    ("lock", lock),
    ("meta_image", meta_image),
    ("metrics", metrics),
    ("model_file", model_file),
    ("monai_bundle", monai_bundle),
    ("monai_config", monai_config),
    ("nifti", nifti),
    ("nifti_gz", nifti_gz),
    ("nifti_pair", nifti_pair),
    ("nifti_zst", nifti_zst),
    ("npy", npy),
    ("npz", npz),
    ("npz_image", npz_image),
    ("nrrd", nrrd),
    ("pytorch", pytorch),
    ("safetensors", safetensors),
    ("serve_message", serve_message),
    ("serve_parts", serve_parts),
    ("serve_upload", serve_upload),
    ("settings", settings),
    ("specification", specification),
    ("splits", splits),
    ("tiff", tiff),
    ("zarr", zarr),
];

/// Heap that any input may take: buffers of a fixed size, and networks that fit small images.
const FIXED: u64 = 1 << 20;

/// The heap of a body beside its budget.
const BESIDE: u64 = 256 << 10;

/// The most that a budget granted at a time, of the body that ran last.
static GRANTED: AtomicU64 = AtomicU64::new(0);

/// Records the bytes that the reader of a body reserves.
pub(crate) fn granted(bytes: Bytes) {
    GRANTED.fetch_max(bytes.0, Relaxed);
}

/// The heap that a body used.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// The most heap that it had at a time.
    pub peak: Bytes,
    /// The most that it may have: four times the input's size, rounded up to a power of two, but at least a mebibyte; or what a
    /// budget granted, and a little.
    pub most: Bytes,
}

/// Runs a body, and tells the most heap that it had at a time. The program must have installed
/// [`CountingAllocator`](plimsoll_memory::CountingAllocator), and do nothing else meanwhile.
pub fn heap_of(body: Body, bytes: &[u8]) -> Heap {
    GRANTED.store(0, Relaxed);
    let before = heap_use().now;
    forget_heap_peak();
    body(bytes);
    let peak = heap_use().peak - before;
    let by_size = (bytes.len() as u64).next_power_of_two().saturating_mul(4).max(FIXED);
    let granted = GRANTED.load(Relaxed);
    let most = if granted > 0 { by_size.max(granted.saturating_add(BESIDE)) } else { by_size };
    Heap { peak, most: Bytes(most) }
}
