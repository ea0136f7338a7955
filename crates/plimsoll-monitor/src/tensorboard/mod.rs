//! Event files of TensorBoard.
//!
//! A file is a row of records (TFRecord), each an `Event` in the wire format of protobuf: `tensorflow/core/util/event.proto` and
//! `tensorflow/core/framework/summary.proto` of TensorFlow. TensorBoard reads all files of a folder in the order of their names.

mod file;
mod messages;
mod records;

pub use file::EventFile;
pub use messages::{Event, Image, SessionLog, SourceMetadata, Summary, Value};
pub use records::{each_event, masked_crc32c};
