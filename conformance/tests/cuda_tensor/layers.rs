//! Programs of one convolution with its gradients.

use conformance::Case;
use plimsoll_graph::ops::{Conv, ConvTranspose, ConvWeightGrad};
use plimsoll_graph::{DType, Kind, Program, Shape, TensorId, Window};

/// A convolution with all its gradients.
pub(crate) struct Layer {
    window: Window,
    batch: usize,
    extent: [usize; 3],
    /// The channels of each source.
    channels: &'static [usize],
    outputs: usize,
}

pub(crate) fn volume(program: &mut Program, name: &str, shape: Shape, stored: DType) -> TensorId {
    let id = program.input(name, shape, Kind::Volume);
    program.tensors[id.index()].dtype = stored;
    id
}

/// The directions of a layer that a case covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Source,
    Weights,
}

pub(crate) const ALL: [Direction; 3] = [Direction::Forward, Direction::Source, Direction::Weights];

/// The types of the volumes of a layer.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) sources: DType,
    pub(crate) gradient: DType,
    pub(crate) results: DType,
}

impl Layer {
    /// A case whose operands that are volumes are stored as one type.
    pub(crate) fn case(&self, directions: &[Direction], stored: DType, results: DType) -> Case {
        self.case_of(directions, Stored { sources: stored, gradient: stored, results })
    }

    pub(crate) fn case_of(&self, directions: &[Direction], stored: Stored) -> Case {
        let Stored { sources: of_sources, gradient, results: dtype } = stored;
        let &Layer { window, batch, extent, channels, outputs } = self;
        let mut program = Program::new("layer");
        let mut sources: Vec<TensorId> = Vec::new();
        for (i, channels) in channels.iter().enumerate() {
            sources.push(volume(
                &mut program,
                &format!("x{i}"),
                Shape::volume(batch, *channels, extent),
                of_sources,
            ));
        }
        let [kd, kh, kw] = window.kernel;
        let shape = Shape(vec![outputs, channels.iter().sum(), kd, kh, kw]);
        let weights = program.input("weights", shape, Kind::Weights);
        let output = window.output(extent).unwrap();
        let dy = volume(&mut program, "dy", Shape::volume(batch, outputs, output), gradient);
        if directions.contains(&Direction::Forward) {
            let bias = program.input("bias", Shape(vec![outputs]), Kind::Channels);
            let operands: Vec<TensorId> = sources.iter().copied().chain([weights, bias]).collect();
            let y = program.push_one(Conv::new(window, true, dtype), &operands).unwrap();
            program.mark_output(y, "y");
        }
        let mut first_channel = 0;
        for (i, channels) in channels.iter().copied().enumerate() {
            let back = ConvTranspose {
                window,
                groups: 1,
                first_channel,
                channels,
                output: extent,
                bias: false,
                dtype,
            };
            if directions.contains(&Direction::Source) {
                let dx = program.push_one(back, &[dy, weights]).unwrap();
                program.mark_output(dx, format!("dx{i}"));
            }
            first_channel += channels;
        }
        if directions.contains(&Direction::Weights) {
            sources.push(dy);
            let dw = program.push_one(ConvWeightGrad { window, groups: 1 }, &sources).unwrap();
            program.mark_output(dw, "dw");
        }
        let name = format!(
            "{channels:?}→{outputs} of {batch}×{extent:?}, {window:?}, {of_sources} and {gradient} → {dtype}"
        );
        Case::new(name, program, 1)
    }
}

pub(crate) fn layer(
    window: Window,
    batch: usize,
    extent: [usize; 3],
    channels: &'static [usize],
    outputs: usize,
) -> Layer {
    Layer { window, batch, extent, channels, outputs }
}
