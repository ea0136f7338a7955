//! The bytes of the file: messages by `prost`, but for the values of tensors, which are written as they are read.
//!
//! A message in another one has its length before it. Lengths of tensors follow from their shapes, so that the graph's is known before
//! any value is read.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_graph::{Program, Role, TensorId};
use plimsoll_nn::names;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::constant::Constant;
use super::external::{DataFile, remove_others};
use super::graph::{Graph, name};
use super::proto::{
    Dimension, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, data_location, data_type,
};
use super::{OPSET, WeightsGo};
use crate::ModelError;

/// The version of the file format that opset 17 came with.
const IR_VERSION: i64 = 8;
/// Numbers of fields: of the graph in a model, of tensors in a graph, of values in a tensor.
const GRAPH: u32 = 7;
const INITIALIZER: u32 = 5;
const RAW_DATA: u32 = 9;
/// The longest message that readers of protobuf accept.
const LONGEST: u64 = (1 << 31) - 1;

/// A function that takes a parameter and its values.
pub type Visit<'a> = plimsoll_run::Visit<'a, ModelError>;

/// All that is written but for the values of parameters.
pub(super) struct GraphFile<'p> {
    pub(super) program: &'p Program,
    pub(super) graph: Graph,
    /// Shapes of input and output, for one sample.
    pub(super) image: Vec<usize>,
    pub(super) logits: Vec<usize>,
    /// Metadata.
    pub(super) said: Vec<(String, String)>,
}

impl GraphFile<'_> {
    /// Parameters of the program, and how many values each has.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (TensorId, usize)> {
        self.program.with_role(Role::Parameter).map(|id| (id, self.program.shape(id).count()))
    }

    /// Writes the file, and returns the file of weights beside it, if there is one. `each` passes the values of each parameter to its
    /// argument once, in any order.
    ///
    /// # Errors
    /// Returns an error if the file would be too long for its format, `each` fails or leaves a parameter out, or the disk refuses.
    /// Existing files then stay.
    pub(super) fn write(
        &self,
        to: &Path,
        weights: WeightsGo,
        each: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), ModelError>,
    ) -> Result<Option<PathBuf>, ModelError> {
        let at = |error: io::Error| ModelError::io(to, error);
        match weights {
            WeightsGo::Inside => {
                self.write_whole(to, each)?;
                remove_others(to, None).map_err(at)?;
                Ok(None)
            }
            WeightsGo::Beside => {
                let (heads, data, is_new) = self.write_data(to, each)?;
                let written = self.write_graph(to, &heads);
                // Where there is no graph nothing names the weights. Where there is one, it may be the new one, of which only the folder
                // could not be synchronised; else they are removed with the next export.
                if written.is_err() && is_new && !plimsoll_disk::exists(to).unwrap_or(true) {
                    let _ = plimsoll_disk::remove_file(&data);
                }
                written?;
                remove_others(to, Some(&data)).map_err(at)?;
                Ok(Some(data))
            }
        }
    }

    /// The graph with its parameters.
    fn write_whole(
        &self,
        to: &Path,
        each: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let heads: Vec<(TensorId, TensorProto)> =
            self.parameters().map(|(id, _)| (id, self.head(id))).collect();
        let lengths = heads.iter().map(|(id, head)| framed(tensor_len(head, self.bytes_of(*id))));
        let at = |error: io::Error| ModelError::io(to, error);
        let mut file = self.begin(to, lengths.sum())?;
        self.each_once(each, &mut |id, values| {
            let head = heads.iter().find(|(known, _)| *known == id).map(|(_, head)| head);
            let head = head.ok_or_else(|| twice_or_never(&name(self.program, id)))?;
            let bytes = self.bytes_of(id);
            let mut write = || {
                file.write_all(&prefix(INITIALIZER, tensor_len(head, bytes)))?;
                file.write_all(&head.encode_to_vec())?;
                file.write_all(&prefix(RAW_DATA, bytes))?;
                write_values(&mut file, values)
            };
            write().map_err(at)
        })?;
        commit(file).map_err(at)
    }

    /// The values of all parameters, in a file of their own; what of them stands in the graph, the file, and whether it is a new one.
    fn write_data(
        &self,
        graph: &Path,
        each: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), ModelError>,
    ) -> Result<(Vec<TensorProto>, PathBuf, bool), ModelError> {
        let at = |error: io::Error| ModelError::io(graph, error);
        let mut file = DataFile::create(graph).map_err(at)?;
        let mut heads: Vec<(TensorProto, u64)> = Vec::new();
        self.each_once(each, &mut |id, values| {
            let offset = file.align().map_err(at)?;
            write_values(&mut file, values).map_err(at)?;
            heads.push((
                TensorProto { data_location: Some(data_location::EXTERNAL), ..self.head(id) },
                offset,
            ));
            Ok(())
        })?;
        let (data, is_new) = file.commit().map_err(at)?;
        let location = data.file_name().map(|name| name.to_string_lossy().into_owned());
        let location = location.ok_or_else(|| at(io::Error::other("weights without a name")))?;
        let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
        let told = heads.into_iter().map(|(head, offset)| {
            let bytes: u64 =
                head.dims.iter().fold(size_of::<f32>() as u64, |all, dim| all * dim.unsigned_abs());
            let external_data = vec![
                entry("location", location.clone()),
                entry("offset", offset.to_string()),
                entry("length", bytes.to_string()),
            ];
            TensorProto { external_data, ..head }
        });
        Ok((told.collect(), data, is_new))
    }

    /// The graph of parameters whose values are elsewhere.
    fn write_graph(&self, to: &Path, heads: &[TensorProto]) -> Result<(), ModelError> {
        let mut file = self.begin(to, heads.iter().map(|head| framed(head.encoded_len() as u64)).sum())?;
        let mut write = || {
            for head in heads {
                file.write_all(&prefix(INITIALIZER, head.encoded_len() as u64))?;
                file.write_all(&head.encode_to_vec())?;
            }
            Ok(())
        };
        write().and_then(|()| commit(file)).map_err(|error| ModelError::io(to, error))
    }

    /// Begins a file with all of the model but the parameters, which take `of_parameters` bytes after it.
    fn begin(&self, to: &Path, of_parameters: u64) -> Result<BufWriter<AtomicFile>, ModelError> {
        let (nodes, model) = (self.nodes().encode_to_vec(), self.model().encode_to_vec());
        let constants: Vec<(TensorProto, &Constant)> = self
            .graph
            .constants
            .iter()
            .map(|(name, constant)| (constant_head(name, constant), constant))
            .collect();
        let of_constants =
            constants.iter().map(|(head, constant)| framed(tensor_len(head, constant.bytes())));
        let graph = of_constants.fold(of_parameters.saturating_add(nodes.len() as u64), u64::saturating_add);
        if graph.saturating_add(model.len() as u64 + 16) > LONGEST {
            return Err(ModelError::NotExported {
                what: format!(
                    "the graph and its weights take {graph} bytes, but an ONNX file may have at most {LONGEST}"
                ),
                hint: "put the weights into a file beside it with ‹external_data›",
            });
        }
        let write = || {
            let mut file = BufWriter::with_capacity(BUFFER, AtomicFile::create(to)?);
            file.write_all(&model)?;
            file.write_all(&prefix(GRAPH, graph))?;
            file.write_all(&nodes)?;
            for (head, constant) in &constants {
                file.write_all(&prefix(INITIALIZER, tensor_len(head, constant.bytes())))?;
                file.write_all(&head.encode_to_vec())?;
                file.write_all(&prefix(RAW_DATA, constant.bytes()))?;
                constant.write(&mut file)?;
            }
            Ok(file)
        };
        write().map_err(|error| ModelError::io(to, error))
    }

    /// Passes each parameter on, and checks that it comes exactly once.
    fn each_once(
        &self,
        each: &mut dyn FnMut(&mut Visit<'_>) -> Result<(), ModelError>,
        visit: &mut Visit<'_>,
    ) -> Result<(), ModelError> {
        let mut left: Vec<(TensorId, usize)> = self.parameters().collect();
        each(&mut |id, values| {
            let place = left.iter().position(|(known, count)| (*known, *count) == (id, values.len()));
            left.remove(place.ok_or_else(|| twice_or_never(&name(self.program, id)))?);
            visit(id, values)
        })?;
        match left.first() {
            None => Ok(()),
            Some((missing, _)) => Err(twice_or_never(&name(self.program, *missing))),
        }
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

    /// A parameter without its values.
    fn head(&self, id: TensorId) -> TensorProto {
        TensorProto {
            dims: dims(&self.program.shape(id).0),
            data_type: data_type::FLOAT,
            name: name(self.program, id),
            ..TensorProto::default()
        }
    }

    fn bytes_of(&self, id: TensorId) -> u64 {
        (self.program.shape(id).count() as u64).saturating_mul(size_of::<f32>() as u64)
    }
}

/// A fault of ours: no file leads here.
fn twice_or_never(parameter: &str) -> ModelError {
    ModelError::NotExported {
        what: format!("the values of {parameter} were not read just once"),
        hint: "this is a bug: report it with the command and this message",
    }
}

fn commit(file: BufWriter<AtomicFile>) -> io::Result<()> {
    file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
}

fn write_values(to: &mut dyn Write, values: &[f32]) -> io::Result<()> {
    values.iter().try_for_each(|value| to.write_all(&value.to_le_bytes()))
}

fn dims(extents: &[usize]) -> Vec<i64> {
    extents.iter().map(|extent| *extent as i64).collect()
}

/// An input or output: any number of samples of a shape.
fn value(name: &str, shape: &[usize]) -> ValueInfoProto {
    let fixed = |extent: &usize| Dimension { dim_value: Some(*extent as i64), dim_param: None };
    let samples = Dimension { dim_value: None, dim_param: Some("N".into()) };
    let dim = std::iter::once(samples).chain(shape.iter().skip(1).map(fixed)).collect();
    let tensor = TensorTypeProto { elem_type: data_type::FLOAT, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type: Some(tensor) }) }
}

/// A constant without its values.
fn constant_head(name: &str, constant: &Constant) -> TensorProto {
    TensorProto {
        dims: dims(&constant.dims()),
        data_type: constant.data_type(),
        name: name.into(),
        ..TensorProto::default()
    }
}

/// The length of a tensor with `bytes` bytes of values.
fn tensor_len(head: &TensorProto, bytes: u64) -> u64 {
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
