//! The bytes of the file: messages by `prost`, but for the values of tensors, which are written as they are read.
//!
//! A message in another one has its length before it. Lengths of tensors follow from their shapes, so that the graph's is known before
//! any value is read.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_graph::Shape;
use plimsoll_memory::{Budget, Mapped};
use plimsoll_nn::names;
use plimsoll_nn::weights::SafetensorsFile;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::OPSET;
use super::graph::{Constant, Graph};
use super::proto::{
    Dimension, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, data_type,
};
use crate::RunError;
use crate::export::write_error;

/// The version of the file format that opset 17 came with.
const IR_VERSION: i64 = 8;
/// Numbers of fields: of the graph in a model, of tensors in a graph, of values in a tensor.
const GRAPH: u32 = 7;
const INITIALIZER: u32 = 5;
const RAW_DATA: u32 = 9;
/// The longest message that readers of protobuf accept.
const LONGEST: u64 = (1 << 31) - 1;

/// A parameter of the graph.
pub(super) struct Parameter {
    pub(super) name: String,
    /// The tensor of the checkpoint with its values.
    pub(super) source: String,
    /// Its shape in the checkpoint.
    pub(super) stored: Shape,
    /// Its shape in the graph: the same elements in the same order.
    pub(super) shape: Shape,
}

/// All that is written.
pub(super) struct GraphFile {
    pub(super) graph: Graph,
    pub(super) parameters: Vec<Parameter>,
    /// Shapes of input and output, for one sample.
    pub(super) image: Vec<usize>,
    pub(super) logits: Vec<usize>,
    /// Metadata.
    pub(super) said: Vec<(String, String)>,
}

impl GraphFile {
    /// Writes the file.
    ///
    /// # Errors
    /// If it would be too long for its format, a tensor cannot be read, the budget has no room for the largest, or the disk refuses.
    pub(super) fn write(
        &self,
        from: &mut SafetensorsFile,
        to: &Path,
        budget: &Budget,
    ) -> Result<(), RunError> {
        let nodes = self.nodes().encode_to_vec();
        let constants: Vec<TensorProto> = self.graph.constants.iter().map(constant).collect();
        let heads: Vec<TensorProto> = self.parameters.iter().map(head).collect();
        let of_values =
            self.parameters.iter().zip(&heads).map(|(parameter, head)| framed(tensor_len(head, parameter)));
        let of_constants = constants.iter().map(|tensor| framed(tensor.encoded_len() as u64));
        let graph = nodes.len() as u64 + of_values.chain(of_constants).sum::<u64>();
        let model = self.model().encode_to_vec();
        if graph.saturating_add(model.len() as u64 + 16) > LONGEST {
            return Err(RunError::NotExported {
                what: format!("the weights come to {graph} bytes, and an ONNX file has {LONGEST} at most"),
                hint: "export them with --format safetensors",
            });
        }
        let largest = self.parameters.iter().map(|parameter| parameter.shape.count()).max();
        // A network without parameters has nothing to hold.
        let mut buffer = Mapped::<f32>::zeroed(budget, "weights to export", largest.unwrap_or(1))?;
        let mut write = || {
            let mut file = BufWriter::with_capacity(BUFFER, AtomicFile::create(to)?);
            file.write_all(&model)?;
            file.write_all(&prefix(GRAPH, graph))?;
            file.write_all(&nodes)?;
            for tensor in &constants {
                file.write_all(&prefix(INITIALIZER, tensor.encoded_len() as u64))?;
                file.write_all(&tensor.encode_to_vec())?;
            }
            for (parameter, head) in self.parameters.iter().zip(&heads) {
                let values = buffer.get_mut(..parameter.shape.count());
                let values = values.ok_or_else(|| io::Error::other("a tensor has grown"))?;
                from.read(&parameter.source, &parameter.stored, values).map_err(io::Error::other)?;
                file.write_all(&prefix(INITIALIZER, tensor_len(head, parameter)))?;
                file.write_all(&head.encode_to_vec())?;
                file.write_all(&prefix(RAW_DATA, bytes_of(parameter)))?;
                for value in &*values {
                    file.write_all(&value.to_le_bytes())?;
                }
            }
            file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
        };
        write().map_err(|error: io::Error| write_error(to, error))
    }

    /// The model without its graph.
    fn model(&self) -> ModelProto {
        let said = self.said.iter().cloned();
        ModelProto {
            ir_version: IR_VERSION,
            producer_name: "plimsoll".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: None,
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
            metadata_props: said.map(|(key, value)| StringStringEntryProto { key, value }).collect(),
        }
    }

    /// The graph without its tensors.
    fn nodes(&self) -> GraphProto {
        GraphProto {
            node: self.graph.nodes.clone(),
            name: "predict".into(),
            initializer: Vec::new(),
            input: vec![value(names::IMAGE, &self.image)],
            output: vec![value(names::LOGITS, &self.logits)],
        }
    }
}

/// An input or output: any number of samples of a shape.
fn value(name: &str, shape: &[usize]) -> ValueInfoProto {
    let fixed = |extent: &usize| Dimension { dim_value: Some(*extent as i64), dim_param: None };
    let samples = Dimension { dim_value: None, dim_param: Some("N".into()) };
    let dim = std::iter::once(samples).chain(shape.iter().skip(1).map(fixed)).collect();
    let tensor = TensorTypeProto { elem_type: data_type::FLOAT, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type: Some(tensor) }) }
}

fn constant((name, constant): &(String, Constant)) -> TensorProto {
    let (data_type, count, raw_data) = match constant {
        Constant::Numbers(numbers) => (
            data_type::INT64,
            numbers.len(),
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        ),
        Constant::Values(values) => {
            (data_type::FLOAT, values.len(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
        }
    };
    TensorProto { dims: vec![count as i64], data_type, name: name.clone(), raw_data }
}

/// A tensor without its values.
fn head(parameter: &Parameter) -> TensorProto {
    TensorProto {
        dims: parameter.shape.0.iter().map(|extent| *extent as i64).collect(),
        data_type: data_type::FLOAT,
        name: parameter.name.clone(),
        raw_data: Vec::new(),
    }
}

fn bytes_of(parameter: &Parameter) -> u64 {
    (parameter.shape.count() as u64).saturating_mul(size_of::<f32>() as u64)
}

/// The length of a tensor with its values.
fn tensor_len(head: &TensorProto, parameter: &Parameter) -> u64 {
    let bytes = bytes_of(parameter);
    let before = head.encoded_len() + key_len(RAW_DATA) + encoded_len_varint(bytes);
    bytes.saturating_add(before as u64)
}

/// The length of a tensor of a graph, with the number of its field and its length before it.
fn framed(length: u64) -> u64 {
    length.saturating_add((key_len(INITIALIZER) + encoded_len_varint(length)) as u64)
}

/// The number of a field and the length of what stands in it.
fn prefix(field: u32, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(field, WireType::LengthDelimited, &mut bytes);
    encode_varint(length, &mut bytes);
    bytes
}
