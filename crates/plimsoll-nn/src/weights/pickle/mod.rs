//! Pickles, read as data.
//!
//! A pickle is a program for a stack machine that builds objects, and may call anything on the way. Here the machine runs on plain
//! [`Value`]s and calls nothing: of calls, those that make tensors and dicts are understood by their names, all others are values
//! of which no more is known, and those that no file of weights needs, such as `os.system`, are refused by name.
//!
//! Values are kept once, however often they are fetched from the memo, so that all together take no more than a multiple of the
//! pickle's own length. Each is reserved before it is made.

mod harmful;
mod read;
mod room;
mod value;

use std::collections::HashMap;
use std::io::{self, BufRead};

use plimsoll_memory::OverBudget;

use harmful::is_harmful;
pub(crate) use room::Room;
pub(crate) use value::{Endless, Id, Object, Storage, Tensor, Value, Values};

/// A value among all, in a list that doubles: the old one and the new live together.
const VALUE: u64 = 3 * size_of::<Value>() as u64;
/// A part of a list or tuple, likewise, and the least room of a list.
const ITEM: u64 = 3 * size_of::<Id>() as u64;
const ITEMS: u64 = 4 * size_of::<Id>() as u64;
/// A pair of a dict.
const PAIR: u64 = 2 * ITEM;
/// An entry of the memo, in a table that is less than half full and doubles.
const ENTRY: u64 = 64;
/// A place of the stack, or a mark in it.
const PLACE: u64 = 3 * size_of::<usize>() as u64;
/// A tensor or storage, beside its extents.
const TENSOR: u64 = size_of::<Tensor>() as u64 + 32;
/// An axis of a tensor: extent and stride.
const AXIS: u64 = 2 * 3 * size_of::<u64>() as u64;

/// The call of another call, for tensors of a class of their own.
const REBUILD_FROM_TYPE: &str = "torch._tensor._rebuild_from_type_v2";

/// The beginning of the names of TorchScript's classes.
const TORCH_SCRIPT: &str = "__torch__.";

/// The fault of a pickle that pops from an empty stack.
const NOT_THERE: Refusal = Refusal::NoPickle("its pickle uses a missing value");
const CUT_OFF: Refusal = Refusal::NoPickle("its pickle is cut off");
const NO_STATE_DICT: Refusal = Refusal::NoPickle("its pickle is not the pickle of a state dict");

/// Why a pickle is not read.
pub(crate) enum Refusal {
    /// The file cannot be read.
    Io(io::Error),
    /// It is no pickle.
    NoPickle(&'static str),
    /// It calls what no file of weights needs.
    Calls(Box<str>),
    /// There is no room for its values.
    OverBudget(OverBudget),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => CUT_OFF,
            _ => Refusal::Io(error),
        }
    }
}

impl From<Endless> for Refusal {
    fn from(_: Endless) -> Refusal {
        Refusal::NoPickle("its parts refer to each other too often")
    }
}

/// Reads the next pickle, which has at most this number of bytes, and leaves the bytes that follow it.
pub(crate) fn load(pickle: &mut impl BufRead, length: u64, room: &mut Room) -> Result<Values, Refusal> {
    let (values, stack, marks, memo) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
    let mut machine = Machine { pickle, length, room, values, stack, marks, memo, highest: 0 };
    loop {
        let opcode = machine.byte()?;
        if opcode == b'.' {
            let root = machine.pop()?;
            return Ok(Values { values: machine.values, root });
        }
        machine.step(opcode)?;
    }
}

struct Machine<'a, 'b, R> {
    pickle: &'a mut R,
    /// Bytes that it has at most: a text that claims more is cut off.
    length: u64,
    room: &'a mut Room<'b>,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    /// The most places and marks of the stack so far.
    highest: usize,
}

impl<R: BufRead> Machine<'_, '_, R> {
    /// Runs an instruction.
    fn step(&mut self, opcode: u8) -> Result<(), Refusal> {
        match opcode {
            0x80 => self.skip(1)?,
            0x95 => self.skip(8)?,
            b'N' => self.push(Value::None)?,
            truth @ (0x88 | 0x89) => self.push(Value::Bool(truth == 0x88))?,
            b')' => self.push(Value::Tuple(Vec::new()))?,
            b']' | 0x8f => self.push(Value::List(Vec::new()))?,
            b'}' => self.push(Value::Dict(Vec::new()))?,
            b'K' => self.whole(1)?,
            b'M' => self.whole(2)?,
            b'J' => {
                let number = self.number(4)? as u32 as i32;
                self.push(Value::Int(number.into()))?;
            }
            b'G' => self.fraction()?,
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            0x8c | b'U' => self.text(1)?,
            b'X' | b'T' => self.text(4)?,
            0x8d => self.text(8)?,
            b'C' => self.bytes(1)?,
            b'B' => self.bytes(4)?,
            0x8e | 0x96 => self.bytes(8)?,
            b'I' | b'L' => self.decimal()?,
            b'F' => {
                let line = self.line()?;
                self.push(line.trim().parse().map_or(Value::Opaque, Value::Float))?;
            }
            b'V' => {
                let line = self.line()?;
                self.push(Value::Text(line.into()))?;
            }
            b'Q' => self.storage()?,
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.room.add(2 * (module.len() + name.len() + 1) as u64)?;
                self.push(Value::Global(format!("{module}.{name}").into()))?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let length = |id| self.text_of(id).map_or(0, str::len);
                self.room.add(2 * (length(name) + length(module) + 1) as u64)?;
                let (name, module) = (self.text_of(name), self.text_of(module));
                let (Some(name), Some(module)) = (name, module) else { return Err(NO_STATE_DICT) };
                let global = format!("{module}.{name}");
                self.push(Value::Global(global.into()))?;
            }
            b'R' | 0x81 => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.call(function, arguments)?;
            }
            0x92 => {
                let (_, arguments, function) = (self.pop()?, self.pop()?, self.pop()?);
                self.call(function, arguments)?;
            }
            _ => self.arrange(opcode)?,
        }
        Ok(())
    }

    /// Runs an instruction that collects, moves or drops values of the stack, or keeps them in the memo.
    fn arrange(&mut self, opcode: u8) -> Result<(), Refusal> {
        match opcode {
            b'(' => {
                self.marks.push(self.stack.len());
                self.pay_for_height()?;
            }
            b't' => self.gather(None, Value::Tuple)?,
            0x85..=0x87 => self.gather(Some(usize::from(opcode - 0x84)), Value::Tuple)?,
            b'l' | 0x91 => self.gather(None, Value::List)?,
            b'a' => self.append(Some(1))?,
            b'e' | 0x90 => self.append(None)?,
            b'd' => {
                let items = self.above_mark()?;
                self.push(Value::Dict(Vec::new()))?;
                self.fill(&items)?;
            }
            b's' => self.set_items(Some(2))?,
            b'u' => self.set_items(None)?,
            b'0' if self.marks.last() == Some(&self.stack.len()) => drop(self.marks.pop()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.above_mark()?),
            b'2' => {
                let top = self.top()?;
                self.put_on_stack(top)?;
            }
            b'g' => {
                let index = self.index()?;
                self.fetch(index)?;
            }
            b'h' => {
                let index = self.number(1)?;
                self.fetch(index as u32)?;
            }
            b'j' => {
                let index = self.number(4)?;
                self.fetch(index as u32)?;
            }
            b'p' => {
                let index = self.index()?;
                self.keep(index)?;
            }
            b'q' => {
                let index = self.number(1)?;
                self.keep(index as u32)?;
            }
            b'r' => {
                let index = self.number(4)?;
                self.keep(index as u32)?;
            }
            0x94 => self.keep(self.memo.len() as u32)?,
            b'b' => self.build()?,
            _ => return Err(NO_STATE_DICT),
        }
        Ok(())
    }

    /// A call, as far as it makes a tensor or a dict.
    fn call(&mut self, function: Id, arguments: Id) -> Result<(), Refusal> {
        let (function, arguments) = self.unwrapped(function, arguments)?;
        let Some(Value::Global(global)) = self.values.get(function as usize) else {
            return self.push(Value::Opaque);
        };
        if is_harmful(global) {
            return Err(Refusal::Calls(global.clone()));
        }
        let parts = self.items_of(arguments);
        match &**global {
            "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor" => {
                let axes = parts.get(2).map_or(0, |shape| self.items_of(*shape).len());
                self.room.add(TENSOR + axes as u64 * AXIS)?;
                let tensor = self.tensor(self.items_of(arguments)).ok_or(NO_STATE_DICT)?;
                self.push(Value::Tensor(Box::new(tensor)))
            }
            "torch._utils._rebuild_parameter"
            | "torch._utils._rebuild_parameter_with_state"
            | "torch.Size" => {
                let first = parts.first().copied().ok_or(NO_STATE_DICT)?;
                self.put_on_stack(first)
            }
            // In itself, which PyTorch never writes: the arguments may be a list of itself, which would have no end.
            REBUILD_FROM_TYPE => Err(NO_STATE_DICT),
            "collections.OrderedDict" | "collections.defaultdict" | "builtins.dict" | "__builtin__.dict" => {
                self.dict_of(arguments)
            }
            class if class.starts_with(TORCH_SCRIPT) => {
                self.push(Value::Object(Object { class: function, attributes: None }))
            }
            _ => self.push(Value::Opaque),
        }
    }

    /// Takes the attributes of the object that is below them. Those of other programs' objects are no weights.
    fn build(&mut self) -> Result<(), Refusal> {
        let attributes = self.pop()?;
        if let Some(place) = self.stack.last().map(|id| *id as usize)
            && let Some(Value::Object(object)) = self.values.get_mut(place)
        {
            object.attributes = Some(attributes);
        }
        Ok(())
    }

    /// A function and its arguments, which a call may have as its own arguments: a function, a type, and the arguments of the
    /// function.
    fn unwrapped(&self, function: Id, arguments: Id) -> Result<(Id, Id), Refusal> {
        match self.values.get(function as usize) {
            Some(Value::Global(global)) if **global == *REBUILD_FROM_TYPE => {
                match *self.items_of(arguments) {
                    [function, _, arguments, ..] => Ok((function, arguments)),
                    _ => Err(NO_STATE_DICT),
                }
            }
            _ => Ok((function, arguments)),
        }
    }

    /// A dict that is called with a list of its pairs, or without.
    fn dict_of(&mut self, arguments: Id) -> Result<(), Refusal> {
        let pairs = self.items_of(arguments).iter().flat_map(|list| self.items_of(*list));
        let pairs = pairs.filter(|pair| self.items_of(**pair).len() == 2);
        let count = pairs.clone().count();
        self.room.add(PAIR * count as u64)?;
        let pairs = self.items_of(arguments).iter().flat_map(|list| self.items_of(*list));
        let pairs = pairs.filter_map(|pair| match self.items_of(*pair) {
            [key, value] => Some((*key, *value)),
            _ => None,
        });
        let pairs = pairs.collect();
        self.push(Value::Dict(pairs))
    }

    /// The tensor that PyTorch makes of these: a storage, the first element, extents, strides.
    fn tensor(&self, parts: &[Id]) -> Option<Tensor> {
        let [storage, offset, shape, strides, ..] = *parts else { return None };
        let Some(Value::Storage(storage)) = self.values.get(storage as usize) else { return None };
        let number = |id: Id| match self.values.get(id as usize) {
            Some(Value::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let list = |id: Id| -> Option<Vec<u64>> {
            match self.values.get(id as usize) {
                Some(Value::Tuple(items) | Value::List(items)) => {
                    items.iter().map(|item| number(*item)).collect()
                }
                _ => None,
            }
        };
        let (offset, shape, strides) = (number(offset)?, list(shape)?, list(strides)?);
        let storage = (**storage).clone();
        (shape.len() == strides.len()).then_some(Tensor { storage, offset, shape, strides })
    }

    /// Reads a reference to data outside of the pickle: a storage, by the type of its elements, its name and their
    /// number.
    fn storage(&mut self) -> Result<(), Refusal> {
        let id = self.pop()?;
        let [what, kind, key, _, count, view @ ..] = self.items_of(id) else {
            return self.push(Value::Opaque);
        };
        let is_view =
            view.first().is_some_and(|view| !matches!(self.values.get(*view as usize), Some(Value::None)));
        let (Some("storage"), false) = (self.text_of(*what), is_view) else {
            return self.push(Value::Opaque);
        };
        let dtype = match self.values.get(*kind as usize) {
            Some(Value::Global(kind)) => dtype_of(kind),
            _ => "unknown",
        };
        let count = match self.values.get(*count as usize) {
            Some(Value::Int(count)) => u64::try_from(*count).map_err(|_| NO_STATE_DICT)?,
            _ => return Err(NO_STATE_DICT),
        };
        if self.text_of(*key).is_none() {
            return Err(NO_STATE_DICT);
        }
        let storage = Storage { dtype, key: *key, count };
        self.room.add(TENSOR)?;
        self.push(Value::Storage(Box::new(storage)))
    }

    fn text_of(&self, id: Id) -> Option<&str> {
        match self.values.get(id as usize) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn items_of(&self, id: Id) -> &[Id] {
        match self.values.get(id as usize) {
            Some(Value::List(items) | Value::Tuple(items)) => items,
            _ => &[],
        }
    }

    /// Makes a value and puts it on the stack.
    fn push(&mut self, value: Value) -> Result<(), Refusal> {
        self.room.add(VALUE)?;
        let id = Id::try_from(self.values.len()).map_err(|_| NO_STATE_DICT)?;
        self.values.push(value);
        self.put_on_stack(id)
    }

    fn put_on_stack(&mut self, id: Id) -> Result<(), Refusal> {
        self.stack.push(id);
        self.pay_for_height()
    }

    fn pay_for_height(&mut self) -> Result<(), Refusal> {
        let height = self.stack.len() + self.marks.len();
        if height > self.highest {
            self.room.add(PLACE)?;
            self.highest = height;
        }
        Ok(())
    }

    fn top(&self) -> Result<Id, Refusal> {
        match self.stack.last() {
            Some(top) if self.marks.last() != Some(&self.stack.len()) => Ok(*top),
            _ => Err(NOT_THERE),
        }
    }

    fn pop(&mut self) -> Result<Id, Refusal> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Takes what is above the innermost mark, and the mark.
    fn above_mark(&mut self) -> Result<Vec<Id>, Refusal> {
        let mark = self.marks.pop().ok_or(NOT_THERE)?.min(self.stack.len());
        self.room.add((self.stack.len() - mark) as u64 * size_of::<Id>() as u64)?;
        // Not `split_off`, which hands over all the room that the stack has.
        Ok(self.stack.drain(mark..).collect())
    }

    /// Takes the last few, or what is above the innermost mark.
    fn last(&mut self, count: Option<usize>) -> Result<Vec<Id>, Refusal> {
        let Some(count) = count else { return self.above_mark() };
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|from| *from >= floor).ok_or(NOT_THERE)?;
        self.room.add(count as u64 * size_of::<Id>() as u64)?;
        Ok(self.stack.drain(from..).collect())
    }

    fn gather(&mut self, count: Option<usize>, make: fn(Vec<Id>) -> Value) -> Result<(), Refusal> {
        let items = self.last(count)?;
        self.push(make(items))
    }

    fn append(&mut self, count: Option<usize>) -> Result<(), Refusal> {
        let items = self.last(count)?;
        let list = self.top()?;
        self.room.add(ITEMS + ITEM * items.len() as u64)?;
        match self.values.get_mut(list as usize) {
            Some(Value::List(list)) => list.extend(items),
            // An object of which nothing is known is not looked into.
            Some(Value::Opaque) => {}
            _ => return Err(NOT_THERE),
        }
        Ok(())
    }

    fn set_items(&mut self, count: Option<usize>) -> Result<(), Refusal> {
        let items = self.last(count)?;
        self.fill(&items)
    }

    /// Puts keys and values, one after the other, into the dict on top.
    fn fill(&mut self, items: &[Id]) -> Result<(), Refusal> {
        let dict = self.top()?;
        self.room.add(ITEMS * 2 + PAIR * items.len() as u64 / 2)?;
        let pairs = items.as_chunks::<2>().0.iter().map(|[key, value]| (*key, *value));
        match self.values.get_mut(dict as usize) {
            Some(Value::Dict(dict)) => dict.extend(pairs),
            Some(Value::Opaque) => {}
            _ => return Err(NOT_THERE),
        }
        Ok(())
    }

    fn fetch(&mut self, index: u32) -> Result<(), Refusal> {
        let found = self.memo.get(&index).copied().ok_or(NOT_THERE)?;
        self.put_on_stack(found)
    }

    fn keep(&mut self, index: u32) -> Result<(), Refusal> {
        let top = self.top()?;
        self.room.add(ENTRY)?;
        self.memo.insert(index, top);
        Ok(())
    }
}

/// Returns the type of a storage's elements, by the name of its class.
fn dtype_of(global: &str) -> &'static str {
    match global.strip_prefix("torch.").and_then(|name| name.strip_suffix("Storage")) {
        Some("Double") => "F64",
        Some("Float") => "F32",
        Some("Half") => "F16",
        Some("BFloat16") => "BF16",
        Some("Long") => "I64",
        Some("Int") => "I32",
        Some("Short") => "I16",
        Some("Char") => "I8",
        Some("Byte") => "U8",
        Some("Bool") => "BOOL",
        _ => "unknown",
    }
}
