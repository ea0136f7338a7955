//! The content of a pickle, as data: nothing is called, imported or constructed.

use std::collections::HashMap;

/// The index of a value within its pickle.
pub(crate) type Id = u32;

/// A value of a pickle. Values refer to their parts by index, so that a value that occurs often is stored once.
pub(crate) enum Value {
    /// `None`
    None,
    /// A truth.
    Bool(bool),
    /// A whole number of up to 64 bits.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(Box<str>),
    /// A list.
    List(Vec<Id>),
    /// A tuple.
    Tuple(Vec<Id>),
    /// A dict, in the order in which it was filled.
    Dict(Vec<(Id, Id)>),
    /// Something that is imported, by its module and its name: nothing is.
    Global(Box<str>),
    /// The elements of tensors, elsewhere in the file.
    Storage(Box<Storage>),
    /// A tensor.
    Tensor(Box<Tensor>),
    /// An object of a class of TorchScript.
    Object(Object),
    /// Something else: bytes, a number of more digits, an object that is made by a call.
    Opaque,
}

/// An object of a class of TorchScript.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    /// The class, which is imported by its name.
    pub(crate) class: Id,
    /// The dict of its attributes, once it is there.
    pub(crate) attributes: Option<Id>,
}

/// Elements of tensors.
#[derive(Clone)]
pub(crate) struct Storage {
    /// The type of an element: `F32`, …
    pub(crate) dtype: &'static str,
    /// The text that it has as its name in the file.
    pub(crate) key: Id,
    /// The number of elements.
    pub(crate) count: u64,
}

/// A tensor: some elements of a storage.
#[derive(Clone)]
pub(crate) struct Tensor {
    /// Whose elements.
    pub(crate) storage: Storage,
    /// Its first element.
    pub(crate) offset: u64,
    /// Its extents.
    pub(crate) shape: Vec<u64>,
    /// From one element to the next along each axis.
    pub(crate) strides: Vec<u64>,
}

impl Tensor {
    /// Returns `true` if its elements follow each other in its storage.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut expected = 1u64;
        self.shape.iter().zip(&self.strides).rev().all(|(extent, stride)| {
            let fits = *extent <= 1 || *stride == expected;
            expected = expected.saturating_mul(*extent);
            fits
        })
    }
}

/// All values of a pickle.
pub(crate) struct Values {
    pub(super) values: Vec<Value>,
    pub(super) root: Id,
}

/// Deeper than anything that holds weights.
const MOST_DEPTH: usize = 64;

/// A part of the name of a tensor: its key in one dict or its number in one list. The text of the file is referenced
/// and not copied, since it may be long and occur often.
#[derive(Clone, Copy)]
enum Part<'a> {
    Text(&'a str),
    Number(i64),
}

impl Part<'_> {
    /// Its bytes in a name.
    fn length(self) -> usize {
        match self {
            Part::Text(text) => text.len(),
            Part::Number(number) => {
                let digits = number.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1);
                digits + usize::from(number < 0)
            }
        }
    }

    fn write_to(self, name: &mut String) {
        match self {
            Part::Text(text) => name.push_str(text),
            Part::Number(number) => name.push_str(&number.to_string()),
        }
    }
}

/// Something refers to itself, or to the same so often that all of its parts cannot be named.
pub(crate) struct Endless;

impl Values {
    /// The value that the pickle is.
    pub(crate) fn root(&self) -> Id {
        self.root
    }

    /// A value.
    pub(crate) fn get(&self, id: Id) -> &Value {
        self.values.get(id as usize).unwrap_or(&Value::Opaque)
    }

    /// The text that a value is.
    pub(crate) fn text(&self, id: Id) -> Option<&str> {
        match self.get(id) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The parts of a list or tuple.
    pub(crate) fn items(&self, id: Id) -> Option<&[Id]> {
        match self.get(id) {
            Value::List(items) | Value::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The class of an object of TorchScript.
    pub(crate) fn class(&self, id: Id) -> Option<&str> {
        match self.get(id) {
            Value::Object(object) => match self.get(object.class) {
                Value::Global(name) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The pairs of a dict, or of the attributes of an object.
    pub(crate) fn pairs(&self, id: Id) -> Option<&[(Id, Id)]> {
        let dict = match self.get(id) {
            Value::Object(object) => object.attributes?,
            _ => id,
        };
        match self.get(dict) {
            Value::Dict(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// Returns the value under a key of a dict; the last if there are several.
    pub(crate) fn entry(&self, dict: Id, name: &str) -> Option<Id> {
        let Value::Dict(pairs) = self.get(dict) else { return None };
        pairs.iter().rev().find(|(key, _)| self.text(*key) == Some(name)).map(|(_, value)| *value)
    }

    /// All storages.
    pub(crate) fn storages(&self) -> impl Iterator<Item = &Storage> {
        self.values.iter().filter_map(|value| match value {
            Value::Storage(storage) => Some(&**storage),
            _ => None,
        })
    }

    /// All tensors below a value, by the names of the dicts and the numbers of the lists that lead to them, joined by
    /// dots. `add` is called before each name is made, with its length in bytes and the number of the tensor's axes.
    ///
    /// # Errors
    /// Returns an error if values refer to each other without end, or `add` refuses.
    pub(crate) fn tensors<E: From<Endless>>(
        &self,
        from: Id,
        mut add: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<HashMap<String, Tensor>, E> {
        // What is there twice is visited twice, as tied weights are; what doubles itself is not followed to its end.
        let mut left = self.values.len().saturating_mul(4).saturating_add(MOST_DEPTH * MOST_DEPTH);
        let mut found = HashMap::new();
        // A value, and which of its parts is next.
        let mut path: Vec<(Id, usize)> = vec![(from, 0)];
        let mut name: Vec<Part<'_>> = Vec::new();
        while let Some((id, next)) = path.last_mut() {
            let key = |key: Id| match self.get(key) {
                Value::Text(text) => Some(Part::Text(text)),
                Value::Int(number) => Some(Part::Number(*number)),
                _ => None,
            };
            let part = match self.get(*id) {
                Value::Dict(_) | Value::Object(_) => {
                    let pair = self.pairs(*id).and_then(|pairs| pairs.get(*next));
                    pair.map(|(k, value)| (key(*k), *value))
                }
                Value::List(items) | Value::Tuple(items) => {
                    items.get(*next).map(|value| (Some(Part::Number(*next as i64)), *value))
                }
                _ => None,
            };
            let Some((part_name, value)) = part else {
                path.pop();
                name.pop();
                continue;
            };
            *next += 1;
            left = left.checked_sub(1).ok_or(Endless)?;
            let Some(part_name) = part_name else { continue };
            match self.get(value) {
                Value::Tensor(tensor) => {
                    let length: usize =
                        name.iter().map(|part| part.length() + 1).sum::<usize>() + part_name.length();
                    add(length, tensor.shape.len())?;
                    let mut full = String::with_capacity(length);
                    for part in &name {
                        part.write_to(&mut full);
                        full.push('.');
                    }
                    part_name.write_to(&mut full);
                    found.insert(full, (**tensor).clone());
                }
                Value::Dict(_) | Value::List(_) | Value::Tuple(_) | Value::Object(_) => {
                    if path.len() >= MOST_DEPTH {
                        return Err(Endless.into());
                    }
                    path.push((value, 0));
                    name.push(part_name);
                }
                _ => {}
            }
        }
        Ok(found)
    }
}
