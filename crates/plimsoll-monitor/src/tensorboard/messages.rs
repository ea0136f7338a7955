//! The messages of event files, with the numbers of their fields in TensorFlow's `.proto` files. Others that TensorFlow has are skipped when
//! they are read.

/// Something at a step: one of the last three.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    /// The step.
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// `brain.Event:2`, in the first event of a file.
    #[prost(string, optional, tag = "3")]
    pub file_version: Option<String>,
    /// Numbers and pictures.
    #[prost(message, optional, tag = "5")]
    pub summary: Option<Summary>,
    /// The start of a process.
    #[prost(message, optional, tag = "7")]
    pub session_log: Option<SessionLog>,
    /// The writer, in the first event of a file.
    #[prost(message, optional, tag = "10")]
    pub source_metadata: Option<SourceMetadata>,
}

/// The writer of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SourceMetadata {
    /// The name of the program, or of a part of it.
    #[prost(string, tag = "1")]
    pub writer: String,
}

/// Numbers and pictures of a step.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Summary {
    /// All of them.
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Value>,
}

/// A number or a picture.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// Its name; what stands before a slash groups it with others.
    #[prost(string, tag = "1")]
    pub tag: String,
    /// The number, if the value is one.
    #[prost(float, optional, tag = "2")]
    pub simple_value: Option<f32>,
    /// The picture, if the value is one.
    #[prost(message, optional, tag = "4")]
    pub image: Option<Image>,
}

/// A picture.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Image {
    /// In pixels.
    #[prost(int32, tag = "1")]
    pub height: i32,
    /// In pixels.
    #[prost(int32, tag = "2")]
    pub width: i32,
    /// 3 is RGB.
    #[prost(int32, tag = "3")]
    pub colorspace: i32,
    /// A PNG.
    #[prost(bytes = "vec", tag = "4")]
    pub encoded_image_string: Vec<u8>,
}

/// The start of a process, at which TensorBoard discards what it has read of this step and later ones.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionLog {
    /// 1 is the start.
    #[prost(int32, tag = "1")]
    pub status: i32,
}
