//! Label maps and probabilities: written as planes are decided, merged, grown, measured and brought to other grids.

pub(crate) mod ensemble;
pub(crate) mod grown_labels;
pub(crate) mod label_maps;
pub(crate) mod label_output;
pub(crate) mod label_sink;
pub(crate) mod label_statistics;
pub(crate) mod npz;
pub(crate) mod npz_reader;
pub(crate) mod plane_ring;
pub(crate) mod segmentation_file;
pub(crate) mod skin;
pub(crate) mod slice_output;
pub(crate) mod slices;
pub(crate) mod spool;
pub(crate) mod wanted;
pub(crate) mod zoomed_labels;
