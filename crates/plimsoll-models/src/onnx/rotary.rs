//! The parts of transformers with rotary positions: attention of all voxels, gated units, factors of channels, and their way to logits.

use plimsoll_graph::TensorId;
use plimsoll_graph::ops::{DepthToSpace, RotaryAttention, RotaryPairs};

use super::constant::Constant;
use super::graph::{Writer, int, name, numbers};

impl Writer<'_> {
    /// Attention of all voxels to each other: queries and keys are rotated pair by pair. `None` if heads have no pairs.
    pub(super) fn rotary_attention(
        &mut self,
        op: &RotaryAttention,
        [queries, keys, values]: [TensorId; 3],
        to: &str,
    ) -> Option<()> {
        let shape = self.program.shape(queries).clone();
        let head_channels = shape.channels() / op.heads;
        let pairs = RotaryPairs::new(head_channels)?;
        let (heads, voxels) = (op.heads as i64, shape.voxels() as i64);
        let part = |what: &str| format!("{to}.{what}");
        let turns = self.turns(pairs, shape.spatial(), to);
        self.rotated(queries, [heads, head_channels as i64, voxels], &turns, &part("queries"));
        self.rotated(keys, [heads, head_channels as i64, voxels], &turns, &part("keys"));
        let by_heads = self.constant(Constant::Numbers(vec![0, heads, head_channels as i64, voxels]));
        self.push("Reshape", vec![name(self.program, values), by_heads], part("values"), Vec::new());

        let scale = self.constant(Constant::Values(vec![op.scale(head_channels) as f32]));
        self.push("Mul", vec![part("queries"), scale], part("scaled"), Vec::new());
        self.transpose(part("scaled"), part("rows"), &[0, 1, 3, 2]);
        self.push("MatMul", vec![part("rows"), part("keys")], part("products"), Vec::new());
        self.push("Softmax", vec![part("products")], part("probabilities"), vec![int("axis", -1)]);
        self.transpose(part("probabilities"), part("columns"), &[0, 1, 3, 2]);
        self.push("MatMul", vec![part("values"), part("columns")], part("attended"), Vec::new());
        let extent = [&[0, shape.channels() as i64][..], &numbers(&shape.spatial())].concat();
        let extent = self.constant(Constant::Numbers(extent));
        self.push("Reshape", vec![part("attended"), extent], to.into(), Vec::new());
        Some(())
    }

    /// Cosines and sines of the angles of all pairs at all voxels, as `[1, 1, pairs, 1, voxels]`.
    fn turns(&mut self, pairs: RotaryPairs, extent: [usize; 3], to: &str) -> [String; 2] {
        let [_, height, width] = extent;
        let voxels: usize = extent.iter().product();
        let angle = |place: usize| {
            let (pair, voxel) = (place / voxels, place % voxels);
            let places = [voxel / (height * width), voxel / width % height, voxel % width];
            pairs.angle(places[pair / pairs.bands], pair % pairs.bands)
        };
        let angles: Vec<f64> = (0..pairs.count() * voxels).map(angle).collect();
        let all = self.constant(Constant::Numbers(vec![1, 1, pairs.count() as i64, 1, voxels as i64]));
        let functions = [("cosines", f64::cos as fn(f64) -> f64), ("sines", f64::sin)];
        functions.map(|(what, function)| {
            let values = angles.iter().map(|angle| function(*angle) as f32).collect();
            let values = self.constant(Constant::Values(values));
            let shaped = format!("{to}.{what}");
            self.push("Reshape", vec![values, all.clone()], shaped.clone(), Vec::new());
            shaped
        })
    }

    /// A map as `[N, heads, channels of a head, voxels]`, its pairs of neighbouring channels rotated.
    fn rotated(
        &mut self,
        map: TensorId,
        [heads, channels, voxels]: [i64; 3],
        [cosines, sines]: &[String; 2],
        to: &str,
    ) {
        let part = |what: &str| format!("{to}.{what}");
        let by_pairs = self.constant(Constant::Numbers(vec![0, heads, channels / 2, 2, voxels]));
        self.push("Reshape", vec![name(self.program, map), by_pairs], part("pairs"), Vec::new());
        self.push_several("Split", vec![part("pairs")], vec![part("a"), part("b")], vec![int("axis", 3)]);
        for (of, factor, product) in [
            ("a", cosines, "a.cosine"),
            ("b", sines, "b.sine"),
            ("b", cosines, "b.cosine"),
            ("a", sines, "a.sine"),
        ] {
            self.push("Mul", vec![part(of), factor.clone()], part(product), Vec::new());
        }
        self.push("Sub", vec![part("a.cosine"), part("b.sine")], part("first"), Vec::new());
        self.push("Add", vec![part("b.cosine"), part("a.sine")], part("second"), Vec::new());
        let both = vec![part("first"), part("second")];
        self.push("Concat", both, part("rotated"), vec![int("axis", 3)]);
        let by_heads = self.constant(Constant::Numbers(vec![0, heads, channels, voxels]));
        self.push("Reshape", vec![part("rotated"), by_heads], to.into(), Vec::new());
    }

    /// Values times their gate and its logistic function.
    pub(super) fn swiglu(&mut self, [gate, values]: [TensorId; 2], to: &str) {
        let part = |what: &str| format!("{to}.{what}");
        let gate = name(self.program, gate);
        self.push("Sigmoid", vec![gate.clone()], part("share"), Vec::new());
        self.push("Mul", vec![gate, part("share")], part("gate"), Vec::new());
        self.push("Mul", vec![part("gate"), name(self.program, values)], to.into(), Vec::new());
    }

    /// A map times a factor for each channel, or one for all.
    pub(super) fn channel_scale(&mut self, map: TensorId, factors: TensorId, to: &str) {
        let part = |what: &str| format!("{to}.{what}");
        let along = self.constant(Constant::Numbers(vec![1, -1, 1, 1, 1]));
        self.push("Reshape", vec![name(self.program, factors), along], part("factors"), Vec::new());
        self.push("Mul", vec![name(self.program, map), part("factors")], to.into(), Vec::new());
    }

    /// Channels as the voxels of blocks, plus a shift for each channel that is left.
    pub(super) fn depth_to_space(&mut self, op: &DepthToSpace, source: TensorId, shift: TensorId, to: &str) {
        let shape = self.program.shape(source);
        let extent = shape.spatial();
        let channels = (shape.channels() / op.block.iter().product::<usize>()) as i64;
        let part = |what: &str| format!("{to}.{what}");
        let parts = [&[0, channels][..], &numbers(&op.block), &numbers(&extent)].concat();
        let parts = self.constant(Constant::Numbers(parts));
        self.push("Reshape", vec![name(self.program, source), parts], part("parts"), Vec::new());
        self.transpose(part("parts"), part("between"), &[0, 1, 5, 2, 6, 3, 7, 4]);
        let fine = [0, 1, 2].map(|axis| extent[axis] * op.block[axis]);
        let fine = self.constant(Constant::Numbers([&[0, channels][..], &numbers(&fine)].concat()));
        self.push("Reshape", vec![part("between"), fine], part("fine"), Vec::new());
        let along = self.constant(Constant::Numbers(vec![1, -1, 1, 1, 1]));
        self.push("Reshape", vec![name(self.program, shift), along], part("shift"), Vec::new());
        self.push("Add", vec![part("fine"), part("shift")], to.into(), Vec::new());
    }
}
