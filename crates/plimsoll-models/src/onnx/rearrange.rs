//! Ops that put values at other places: merged patches, sub-pixels, voxels of windows, the class without a logit.

use plimsoll_graph::TensorId;
use plimsoll_graph::ops::{AvgPoolGrad, SpaceToDepth, Subpixel};

use super::constant::Constant;
use super::graph::{Writer, int, ints, name, numbers, text};

impl Writer<'_> {
    /// Voxels of blocks one behind the other along the channels.
    pub(super) fn space_to_depth(&mut self, op: &SpaceToDepth, source: TensorId, to: &str) {
        let extent = self.program.shape(source).spatial();
        let output = op.output(extent);
        let behind = [0, 1, 2].map(|axis| output[axis] * op.block[axis] - extent[axis]);
        let mut from = name(self.program, source);
        if behind != [0; 3] {
            let padded = format!("{to}.padded");
            self.pad(from, padded.clone(), [0; 5], [0, 0, behind[0], behind[1], behind[2]]);
            from = padded;
        }
        let ends = [0, 1, 2].map(|axis| output[axis] * op.block[axis]);
        let ends = self.constant(Constant::Numbers(numbers(&ends)));
        let axes = self.constant(Constant::Numbers(vec![2, 3, 4]));
        let steps = self.constant(Constant::Numbers(numbers(&op.block)));
        let mut slices = Vec::new();
        for (k, offset) in op.offsets.iter().enumerate() {
            let starts = self.constant(Constant::Numbers(numbers(offset)));
            let slice = format!("{to}.of_block.{k}");
            let inputs = vec![from.clone(), starts, ends.clone(), axes.clone(), steps.clone()];
            self.push("Slice", inputs, slice.clone(), Vec::new());
            slices.push(slice);
        }
        self.push("Concat", slices, to.into(), vec![int("axis", 1)]);
    }

    /// Channels as voxels of a finer grid, then means over 2 voxels along each doubled axis with zeroes before the first.
    pub(super) fn subpixel(&mut self, op: &Subpixel, source: TensorId, to: &str) {
        let shape = self.program.shape(source);
        let (extent, channels) = (shape.spatial(), shape.channels() / op.parts());
        let factor = op.axes.map(|doubled| 1 + usize::from(doubled));
        let part = |what: &str| format!("{to}.{what}");
        let parts = [&[0, channels as i64][..], &numbers(&factor), &numbers(&extent)].concat();
        let parts = self.constant(Constant::Numbers(parts));
        self.push("Reshape", vec![name(self.program, source), parts], part("parts"), Vec::new());
        self.transpose(part("parts"), part("between"), &[0, 1, 5, 2, 6, 3, 7, 4]);
        let fine = [0, 1, 2].map(|axis| extent[axis] * factor[axis]);
        let fine = [&[0, channels as i64][..], &numbers(&fine)].concat();
        let fine = self.constant(Constant::Numbers(fine));
        self.push("Reshape", vec![part("between"), fine], part("fine"), Vec::new());
        let before = factor.map(|factor| factor - 1);
        self.pad(part("fine"), part("padded"), [0, 0, before[0], before[1], before[2]], [0; 5]);
        let attributes = vec![ints("kernel_shape", &factor), ints("strides", &[1; 3])];
        self.push("AveragePool", vec![part("padded")], to.into(), attributes);
    }

    /// The share of each voxel of a window in a coarser voxel, if windows fill the extent.
    pub(super) fn spread(&mut self, op: &AvgPoolGrad, source: TensorId, to: &str) -> Option<()> {
        let coarse = self.program.shape(source).spatial();
        if (0..3).any(|axis| coarse[axis] * op.window[axis] != op.input[axis]) {
            return None;
        }
        let along = op.window.map(|extent| extent as f32);
        let share = self.constant(Constant::Values(vec![1.0 / along.iter().product::<f32>()]));
        let shares = format!("{to}.shares");
        self.push("Mul", vec![name(self.program, source), share], shares.clone(), Vec::new());
        let scales = self.constant(Constant::Values([&[1.0; 2][..], &along].concat()));
        let attributes = vec![
            text("mode", "nearest"),
            text("coordinate_transformation_mode", "asymmetric"),
            text("nearest_mode", "floor"),
        ];
        self.push("Resize", vec![shares, String::new(), scales], to.into(), attributes);
        Some(())
    }

    /// A class whose logit is zero, before the other one.
    pub(super) fn zero_class(&mut self, source: TensorId, to: &str) {
        let source = name(self.program, source);
        self.pad(source, to.into(), [0, 1, 0, 0, 0], [0; 5]);
    }

    /// Zeroes before and behind what there is along each axis.
    fn pad(&mut self, from: String, to: String, before: [usize; 5], behind: [usize; 5]) {
        let pads = [numbers(&before), numbers(&behind)].concat();
        let pads = self.constant(Constant::Numbers(pads));
        self.push("Pad", vec![from, pads], to, Vec::new());
    }
}
