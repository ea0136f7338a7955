//! The geometry of a convolution: kernel, stride, padding, dilation, per axis.

use serde::{Deserialize, Serialize};

/// Kernel extent, stride, zero padding (on both ends) and dilation along depth, height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Extent.
    pub kernel: [usize; 3],
    /// Step.
    pub stride: [usize; 3],
    /// Zeroes before the first and after the last voxel.
    pub padding: [usize; 3],
    /// Voxels from one voxel of the kernel to the next.
    pub dilation: [usize; 3],
}

impl Window {
    /// A window whose voxels are neighbours.
    pub fn new(kernel: [usize; 3], stride: [usize; 3], padding: [usize; 3]) -> Window {
        Window { kernel, stride, padding, dilation: [1; 3] }
    }

    /// Padding (k − 1) / 2, as U-Nets have it: with stride 1 and odd kernels the extent is kept.
    pub fn same(kernel: [usize; 3], stride: [usize; 3]) -> Window {
        Window::new(kernel, stride, kernel.map(|k| (k - 1) / 2))
    }

    /// Stride 1 and padding d · (k − 1) / 2, with which an odd kernel of dilation d keeps the extent.
    pub fn dilated(kernel: [usize; 3], dilation: [usize; 3]) -> Window {
        let padding = [0, 1, 2].map(|axis| dilation[axis] * (kernel[axis] - 1) / 2);
        Window { dilation, ..Window::new(kernel, [1; 3], padding) }
    }

    /// Padding ⌊(k − s + 1) / 2⌋, with which an odd kernel divides extents by the stride; none where the kernel is shorter than the
    /// stride by more than one, which would need a negative padding.
    pub fn dividing(kernel: [usize; 3], stride: [usize; 3]) -> Option<Window> {
        let mut padding = [0; 3];
        for axis in 0..3 {
            padding[axis] = (kernel[axis] + 1).checked_sub(stride[axis])? / 2;
        }
        Some(Window::new(kernel, stride, padding))
    }

    /// Kernel and stride alike, no padding: each voxel has a block of its own.
    pub fn blocks(stride: [usize; 3]) -> Window {
        Window::new(stride, stride, [0; 3])
    }

    /// One voxel to one voxel.
    pub fn point() -> Window {
        Window::blocks([1; 3])
    }

    /// Voxels of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// `true` if voxels of the kernel are neighbours.
    pub fn is_dense(&self) -> bool {
        (0..3).all(|axis| self.kernel[axis] == 1 || self.dilation[axis] == 1)
    }

    /// Voxels from the first of the kernel to its last along an axis, both included: d · (k − 1) + 1; none where the kernel is empty,
    /// there is no dilation, or numbers overflow.
    fn reach(&self, axis: usize) -> Option<usize> {
        let (steps, dilation) = (self.kernel[axis].checked_sub(1)?, self.dilation[axis]);
        if dilation == 0 { None } else { steps.checked_mul(dilation)?.checked_add(1) }
    }

    /// The extent after the convolution: ⌊(in + 2 p − d (k − 1) − 1) / s⌋ + 1; none where the kernel does not fit, is empty, or numbers
    /// overflow.
    pub fn output(&self, input: [usize; 3]) -> Option<[usize; 3]> {
        let mut output = [0; 3];
        for axis in 0..3 {
            let stride = self.stride[axis];
            if stride == 0 {
                return None;
            }
            let padded = self.padding[axis].checked_mul(2)?.checked_add(input[axis])?;
            output[axis] = padded.checked_sub(self.reach(axis)?)? / stride + 1;
        }
        Some(output)
    }

    /// The extent after the transposed convolution, where it is the only one: (in − 1) s − 2 p + d (k − 1) + 1.
    pub fn transposed_output(&self, input: [usize; 3]) -> Option<[usize; 3]> {
        let mut output = [0; 3];
        for axis in 0..3 {
            let last = input[axis].checked_sub(1)?.checked_mul(self.stride[axis])?;
            let end = last.checked_add(self.reach(axis)?)?;
            let extent = end.checked_sub(self.padding[axis].checked_mul(2)?)?;
            output[axis] = Some(extent).filter(|extent| *extent > 0)?;
        }
        Some(output)
    }
}
