//! A checkpoint's pickle: dictionaries, texts, tuples of whole numbers, and tensors whose values are in members of their own.
//!
//! Protocol 2, as PyTorch's `torch.save` writes it; Python's `pickletools` documents the bytes.

use plimsoll_graph::Shape;

/// A pickle being written.
pub(super) struct Pickle(Vec<u8>);

impl Pickle {
    /// An empty one.
    pub(super) fn new() -> Pickle {
        // PROTO 2.
        Pickle(b"\x80\x02".to_vec())
    }

    /// All of it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.push(b'.');
        self.0
    }

    /// A dictionary, of whose entries `fill` writes first the key and then the value.
    pub(super) fn dictionary(&mut self, fill: impl FnOnce(&mut Pickle)) {
        // EMPTY_DICT, MARK, …, SETITEMS.
        self.0.extend(b"}(");
        fill(self);
        self.0.push(b'u');
    }

    /// The same, one that Python knows to have an order.
    pub(super) fn ordered_dictionary(&mut self, fill: impl FnOnce(&mut Pickle)) {
        self.new_ordered_dictionary();
        self.0.push(b'(');
        fill(self);
        self.0.push(b'u');
    }

    fn new_ordered_dictionary(&mut self) {
        self.global("collections", "OrderedDict");
        // EMPTY_TUPLE, REDUCE.
        self.0.extend(b")R");
    }

    fn global(&mut self, module: &str, name: &str) {
        self.0.extend(format!("c{module}\n{name}\n").bytes());
    }

    /// A text.
    pub(super) fn text(&mut self, text: &str) {
        self.0.push(b'X');
        // Names of tensors and the like are far shorter than 4 GiB.
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.bytes());
    }

    /// A whole number.
    pub(super) fn number(&mut self, number: usize) {
        match i32::try_from(number) {
            Ok(number) => {
                self.0.push(b'J');
                self.0.extend(number.to_le_bytes());
            }
            Err(_) => {
                // LONG1 of nine bytes: the last is zero, since the first bit of the last would be a sign.
                self.0.extend(b"\x8a\x09");
                self.0.extend((number as u64).to_le_bytes());
                self.0.push(0);
            }
        }
    }

    /// A tuple of whole numbers.
    pub(super) fn tuple(&mut self, numbers: &[usize]) {
        self.0.push(b'(');
        numbers.iter().for_each(|number| self.number(*number));
        self.0.push(b't');
    }

    /// A tensor of single precision whose values are all of a storage, which another tensor may have as well.
    pub(super) fn tensor(&mut self, storage: usize, shape: &Shape) {
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.0.extend(b"((");
        self.text("storage");
        self.global("torch", "FloatStorage");
        self.text(&storage.to_string());
        self.text("cpu");
        self.number(shape.count());
        // The tuple ends; BINPERSID gives it to whoever loads it.
        self.0.extend(b"tQ");
        self.number(0);
        self.tuple(&shape.0);
        self.tuple(&strides(shape));
        // NEWFALSE: no gradient is required.
        self.0.push(b'\x89');
        self.new_ordered_dictionary();
        self.0.extend(b"tR");
    }
}

/// Elements from one index to the next along each axis, where the last axis lies together.
fn strides(shape: &Shape) -> Vec<usize> {
    let mut strides = vec![1; shape.0.len()];
    for axis in (1..shape.0.len()).rev() {
        strides[axis - 1] = strides[axis] * shape.0[axis];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_lie_row_by_row() {
        assert_eq!(strides(&Shape(vec![4, 3, 2, 5])), [30, 10, 5, 1]);
        assert_eq!(strides(&Shape(vec![7])), [1]);
    }

    #[test]
    fn numbers_beyond_31_bits_are_long() {
        let of = |number: usize| {
            let mut pickle = Pickle(Vec::new());
            pickle.number(number);
            pickle.0
        };
        assert_eq!(of(3), b"J\x03\0\0\0");
        assert_eq!(of(1 << 31), b"\x8a\x09\0\0\0\x80\0\0\0\0\0");
    }
}
