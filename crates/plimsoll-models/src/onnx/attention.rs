//! The parts of transformers: normalised tokens, their positions, the Gaussian error linear unit, attention within windows.

use plimsoll_graph::ops::{OTHER_REGION, TokenNorm, WindowAttention};
use plimsoll_graph::{Shape, TensorId};

use super::constant::Constant;
use super::graph::{Writer, float, int, name, numbers};

/// The operands and the result of an attention.
pub(super) struct Attended {
    /// Queries, keys and values.
    pub(super) qkv: TensorId,
    /// The table of biases.
    pub(super) table: TensorId,
    /// The values of padded tokens; `None` for zeros.
    pub(super) padding: Option<TensorId>,
    /// The result.
    pub(super) result: TensorId,
}

impl Writer<'_> {
    /// Layer normalisation of each voxel's channels, for which ONNX needs the channels as the last axis.
    pub(super) fn token_norm(
        &mut self,
        norm: &TokenNorm,
        source: TensorId,
        affine: Option<[TensorId; 2]>,
        to: &str,
    ) {
        let channels = self.program.shape(source).channels();
        let [scale, shift] = match affine {
            Some(pair) => pair.map(|id| name(self.program, id)),
            None => [1.0, 0.0].map(|value| self.constant(Constant::Values(vec![value; channels]))),
        };
        let part = |what: &str| format!("{to}.{what}");
        let source = name(self.program, source);
        self.transpose(source, part("tokens"), &[0, 2, 3, 4, 1]);
        let inputs = vec![part("tokens"), scale, shift];
        let attributes = vec![int("axis", -1), float("epsilon", norm.epsilon)];
        self.push("LayerNormalization", inputs, part("normalised"), attributes);
        self.transpose(part("normalised"), to.into(), &[0, 4, 1, 2, 3]);
    }

    /// A vector for each voxel, added to the voxels of all samples.
    pub(super) fn positions(&mut self, source: TensorId, table: TensorId, to: &str) {
        let shape = self.program.shape(source);
        let extent = [&[1, shape.channels() as i64][..], &numbers(&shape.spatial())].concat();
        let extent = self.constant(Constant::Numbers(extent));
        let part = |what: &str| format!("{to}.{what}");
        self.transpose(name(self.program, table), part("across"), &[1, 0]);
        self.push("Reshape", vec![part("across"), extent], part("positions"), Vec::new());
        self.push("Add", vec![name(self.program, source), part("positions")], to.into(), Vec::new());
    }

    /// A tensor of zeroes.
    pub(super) fn zeroes(&mut self, shape: &Shape, to: String) {
        let shape = self.constant(Constant::Numbers(numbers(&shape.0)));
        self.push("ConstantOfShape", vec![shape], to, Vec::new());
    }

    /// ½ x (1 + erf(x / √2)), in the order of nodes that runtimes know as one.
    pub(super) fn gelu(&mut self, source: TensorId, to: &str) {
        let source = name(self.program, source);
        let part = |what: &str| format!("{to}.{what}");
        let [root, one, half] =
            [std::f32::consts::SQRT_2, 1.0, 0.5].map(|value| self.constant(Constant::Values(vec![value])));
        self.push("Div", vec![source.clone(), root], part("scaled"), Vec::new());
        self.push("Erf", vec![part("scaled")], part("erf"), Vec::new());
        self.push("Add", vec![part("erf"), one], part("raised"), Vec::new());
        self.push("Mul", vec![source, part("raised")], part("doubled"), Vec::new());
        self.push("Mul", vec![part("doubled"), half], to.into(), Vec::new());
    }

    /// Attention within windows: tokens are gathered window by window, and what comes out is gathered voxel by voxel.
    pub(super) fn attention(&mut self, op: &WindowAttention, of: &Attended) {
        let shape = self.program.shape(of.qkv).clone();
        let windows = op.windows(shape.spatial());
        let (count, tokens) = (windows.count() as i64, windows.tokens() as i64);
        let (channels, heads) = (shape.channels(), op.heads as i64);
        let head_channels = channels / (3 * op.heads);
        let to = name(self.program, of.result);
        let part = |what: &str| format!("{to}.{what}");

        let flat = self.constant(Constant::Numbers(vec![0, channels as i64, -1]));
        self.push("Reshape", vec![name(self.program, of.qkv), flat], part("voxels"), Vec::new());
        let is_padded = windows.voxels() < windows.count() * windows.tokens();
        let voxels = match is_padded {
            true => {
                self.padded(&part("voxels"), channels, of.padding);
                part("voxels.padded")
            }
            false => part("voxels"),
        };
        let gathered = self.constant(Constant::Tokens(windows));
        self.push("Gather", vec![voxels, gathered], part("windows"), vec![int("axis", 2)]);
        let by_heads = vec![0, 3 * heads, head_channels as i64, count, tokens];
        let by_heads = self.constant(Constant::Numbers(by_heads));
        self.push("Reshape", vec![part("windows"), by_heads], part("heads"), Vec::new());
        self.transpose(part("heads"), part("tokens"), &[0, 1, 3, 4, 2]);
        let thirds = ["queries", "keys", "values"].map(part).to_vec();
        self.push_several("Split", vec![part("tokens")], thirds, vec![int("axis", 1)]);

        let scale = self.constant(Constant::Values(vec![op.scale(head_channels) as f32]));
        self.push("Mul", vec![part("queries"), scale], part("scaled"), Vec::new());
        self.transpose(part("keys"), part("across"), &[0, 1, 2, 4, 3]);
        self.push("MatMul", vec![part("scaled"), part("across")], part("products"), Vec::new());
        let rows = self.constant(Constant::Rows(op.positions(), windows.tokens()));
        self.push("Gather", vec![name(self.program, of.table), rows], part("rows"), vec![int("axis", 0)]);
        self.transpose(part("rows"), part("biases"), &[2, 0, 1]);
        let of_heads = self.constant(Constant::Numbers(vec![1, heads, 1, tokens, tokens]));
        self.push("Reshape", vec![part("biases"), of_heads], part("bias"), Vec::new());
        self.push("Add", vec![part("products"), part("bias")], part("biased"), Vec::new());
        let logits = match op.shift {
            [0, 0, 0] => part("biased"),
            _ => {
                let regions = [Constant::QueryRegions(windows), Constant::KeyRegions(windows)];
                let regions = regions.map(|regions| self.constant(regions)).to_vec();
                self.push("Equal", regions, part("neighbours"), Vec::new());
                let [none, other] =
                    [0.0, OTHER_REGION].map(|value| self.constant(Constant::Values(vec![value])));
                self.push("Where", vec![part("neighbours"), none, other], part("mask"), Vec::new());
                self.push("Add", vec![part("biased"), part("mask")], part("masked"), Vec::new());
                part("masked")
            }
        };
        self.push("Softmax", vec![logits], part("probabilities"), vec![int("axis", -1)]);

        self.push("MatMul", vec![part("probabilities"), part("values")], part("attended"), Vec::new());
        self.transpose(part("attended"), part("channels"), &[0, 1, 4, 2, 3]);
        let results = (channels / 3) as i64;
        let flat = self.constant(Constant::Numbers(vec![0, results, count * tokens]));
        self.push("Reshape", vec![part("channels"), flat], part("flat"), Vec::new());
        let places = self.constant(Constant::Places(windows));
        self.push("Gather", vec![part("flat"), places], part("gathered"), vec![int("axis", 2)]);
        let extent = [&[0, results][..], &numbers(&shape.spatial())].concat();
        let extent = self.constant(Constant::Numbers(extent));
        self.push("Reshape", vec![part("gathered"), extent], to.clone(), Vec::new());
    }

    /// `FROM.padded`: one more voxel behind the last one of each sample, that tokens of the padding are.
    fn padded(&mut self, from: &str, channels: usize, padding: Option<TensorId>) {
        let part = |what: &str| format!("{from}.{what}");
        let padding = match padding {
            Some(bias) => name(self.program, bias),
            None => self.constant(Constant::Values(vec![0.0; channels])),
        };
        let channels = channels as i64;
        let one = self.constant(Constant::Numbers(vec![1, channels, 1]));
        self.push("Reshape", vec![padding, one], part("one"), Vec::new());
        let of_sample = self.constant(Constant::Numbers(vec![channels, 1]));
        self.push("Shape", vec![from.into()], part("samples"), vec![int("start", 0), int("end", 1)]);
        self.push("Concat", vec![part("samples"), of_sample], part("extent"), vec![int("axis", 0)]);
        self.push("Expand", vec![part("one"), part("extent")], part("all"), Vec::new());
        self.push("Concat", vec![from.into(), part("all")], part("padded"), vec![int("axis", 2)]);
    }
}
