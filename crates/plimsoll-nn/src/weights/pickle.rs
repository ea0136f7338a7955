//! What the objects of a pickle take, before any of them is made.
//!
//! The crate that walks pickles keeps a copy of whatever the pickle memoizes and makes another each time it is fetched, so that a
//! few hundred bytes may stand for hundreds of megabytes. Here the same stack machine runs on weights alone: each object is the
//! bytes it would take, at most. The weight of all that live together is reserved as it grows, and where there is no room, nothing
//! has been built yet.
//!
//! The bytes are those of `pytorch-reader` 0.23 on 64 bits, rounded up. `tests/pickle_memory.rs` counts what it allocates.

use std::collections::HashMap;
use std::io::{self, BufRead};

use plimsoll_memory::{Budget, Bytes, OverBudget, Reservation};

/// An object where it lies: on the stack, in a tuple.
const SLOT: u64 = 112;
/// A place of the stack at its highest: it grows by doubling, and what a mark cuts off is copied.
const STACK: u64 = 4 * SLOT;
/// A list that one appends to has room for four at least.
const LIST: u64 = 4 * SLOT;
/// Its items, while it doubles.
const ITEM: u64 = 3 * SLOT;
/// A dict has room for four pairs at least.
const DICT: u64 = 512;
/// A pair of a dict or an entry of the memo, in a table that is less than half full and doubles; a number is a key as text.
const PAIR: u64 = 432;
/// A tensor without its shape and its key: what is kept to read it later.
const TENSOR: u64 = 448;
/// A storage in the tables of files of PyTorch before 1.6, without its key.
const STORAGE: u64 = 384;
/// A mark of the stack.
const MARK: u64 = 24;
/// Strings up to this length are allocated at once, longer ones as they come.
const AT_ONCE: u64 = 1 << 16;
/// A tensor in the table of the reader and in ours.
const NAMED: u64 = 720;
/// A tensor in ours.
const KEPT: u64 = 272;
/// An index in the name of a tensor.
const INDEX: u64 = 24;

/// What is reserved at a time.
const STEP: u64 = 64 << 10;

/// Why a pickle is not read.
pub(super) enum Refusal {
    /// The file cannot be read.
    Io(io::Error),
    /// It is no pickle.
    NoPickle(&'static str),
    /// There is no room for its objects.
    OverBudget(OverBudget),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Refusal::NoPickle("its pickle is cut off"),
            _ => Refusal::Io(error),
        }
    }
}

/// Bytes of a budget that are taken as they turn out to be needed.
pub(super) struct Room<'a> {
    budget: &'a Budget,
    holder: &'static str,
    needed: u64,
    held: Option<Reservation>,
}

impl<'a> Room<'a> {
    /// Nothing yet.
    pub(super) fn new(budget: &'a Budget, holder: &'static str) -> Room<'a> {
        Room { budget, holder, needed: 0, held: None }
    }

    /// More, beside what is held.
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.needed = self.needed.saturating_add(bytes);
        if self.held.as_ref().is_none_or(|held| held.bytes() < Bytes(self.needed)) {
            self.held = None;
            let bytes = Bytes(self.needed.saturating_add(STEP - 1) / STEP * STEP);
            self.held = Some(self.budget.reserve(self.holder, bytes).map_err(Refusal::OverBudget)?);
        }
        Ok(())
    }

    /// What is held.
    pub(super) fn into_held(self) -> Option<Reservation> {
        self.held
    }
}

/// What a pickle comes to.
pub(super) struct Weight {
    /// Bytes of what remains once its tensors have been taken out.
    pub(super) kept: u64,
    /// Bytes of strings in it.
    pub(super) text: u64,
    /// Bytes of all objects that live together, at most.
    pub(super) peak: u64,
    /// Whether it is a list.
    pub(super) is_list: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    List,
    /// The function that makes a tensor of a storage.
    TensorMaker,
    Other,
}

/// An object that is not made.
#[derive(Clone, Copy)]
struct Object {
    /// Bytes beside its own slot.
    held: u64,
    /// Those of them that are text.
    text: u64,
    /// Tensors in it.
    tensors: u64,
    /// Bytes of their names.
    names: u64,
    kind: Kind,
}

impl Object {
    const EMPTY: Object = Object { held: 0, text: 0, tensors: 0, names: 0, kind: Kind::Other };

    fn text(bytes: u64) -> Object {
        Object { held: bytes, text: bytes, ..Object::EMPTY }
    }

    /// This with another in it, whose tensors have that much more to their names.
    fn with(self, other: Object, name: u64) -> Object {
        let longer = other.tensors.saturating_mul(name).saturating_add(other.names);
        Object {
            held: self.held.saturating_add(other.held),
            text: self.text.saturating_add(other.text),
            tensors: self.tensors.saturating_add(other.tensors),
            names: self.names.saturating_add(longer),
            kind: self.kind,
        }
    }

    fn plus(self, bytes: u64) -> Object {
        Object { held: self.held.saturating_add(bytes), ..self }
    }
}

/// Weighs the pickle that comes next, and leaves what follows it. `room` grows to what its objects take together.
pub(super) fn weigh(pickle: &mut impl BufRead, room: &mut Room) -> Result<Weight, Refusal> {
    let mut machine = Machine {
        pickle,
        room,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        live: 0,
        highest: 0,
        peak: 0,
        longest: 0,
    };
    loop {
        let opcode = machine.byte()?;
        if opcode == b'.' {
            return machine.stop();
        }
        machine.step(opcode)?;
        // Of an opcode that copies nothing, one slot and its own bytes are all there is.
        machine.reserve(0)?;
    }
}

struct Machine<'a, 'b, R> {
    pickle: &'a mut R,
    room: &'a mut Room<'b>,
    stack: Vec<Object>,
    marks: Vec<usize>,
    memo: HashMap<u32, Object>,
    /// Bytes that the objects on the stack and in the memo hold.
    live: u64,
    /// Bytes of the stack and its marks at their highest.
    highest: u64,
    peak: u64,
    /// The longest text.
    longest: u64,
}

impl<R: BufRead> Machine<'_, '_, R> {
    fn step(&mut self, opcode: u8) -> Result<(), Refusal> {
        match opcode {
            0x80 => self.skip(1)?,
            0x95 => self.skip(8)?,
            b'N' | b')' | b'}' | 0x88 | 0x89 => self.push(Object::EMPTY),
            b']' | 0x8f => self.push(Object { kind: Kind::List, ..Object::EMPTY }),
            b'K' => self.skip_and_push(1, 0)?,
            b'M' => self.skip_and_push(2, 0)?,
            b'J' => self.skip_and_push(4, 0)?,
            b'G' => self.skip_and_push(8, 0)?,
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            0x8c | b'U' | b'C' => self.string(1)?,
            b'X' | b'T' | b'B' => self.string(4)?,
            0x8d | 0x8e | 0x96 => self.string(8)?,
            b'I' | b'L' | b'F' => {
                let length = self.line(&mut [])?;
                self.reserve(length.saturating_mul(8))?;
                self.push(Object::text(8));
            }
            b'V' => {
                let length = self.line(&mut [])?;
                self.push(Object::text(length.saturating_mul(6).saturating_add(64)));
            }
            b'P' => {
                let length = self.line(&mut [])?;
                self.storage(Object::text(length.saturating_mul(2).saturating_add(64)))?;
            }
            b'Q' => {
                let id = self.pop()?;
                self.storage(id)?;
            }
            b'c' => self.global()?,
            b'(' => {
                self.marks.push(self.stack.len());
                self.highest = self.highest.max(self.height());
            }
            b't' => self.tuple(None)?,
            0x85..=0x87 => self.tuple(Some(usize::from(opcode - 0x84)))?,
            b'l' | 0x91 => {
                self.push(Object { kind: Kind::List, ..Object::EMPTY });
                self.move_under_top()?;
                self.append(None)?;
            }
            b'a' => self.append(Some(1))?,
            b'e' | 0x90 => self.append(None)?,
            b'd' => {
                self.push(Object::EMPTY);
                self.move_under_top()?;
                self.set_items(None)?;
            }
            b's' => self.set_items(Some(2))?,
            b'u' => self.set_items(None)?,
            b'0' if self.marks.last() == Some(&self.stack.len()) => drop(self.marks.pop()),
            b'0' => drop(self.pop()?),
            b'1' => {
                let from = self.mark()?;
                while self.stack.len() > from {
                    self.pop()?;
                }
            }
            b'2' => {
                let top = self.top()?;
                self.push(top);
            }
            b'g' => {
                let index = self.index()?;
                self.get(index)?;
            }
            b'h' => {
                let index = self.number(1)?;
                self.get(index as u32)?;
            }
            b'j' => {
                let index = self.number(4)?;
                self.get(index as u32)?;
            }
            b'p' => {
                let index = self.index()?;
                self.put(index)?;
            }
            b'q' => {
                let index = self.number(1)?;
                self.put(index as u32)?;
            }
            b'r' => {
                let index = self.number(4)?;
                self.put(index as u32)?;
            }
            0x94 => self.put(self.memo.len() as u32)?,
            0x93 | 0x81 => self.call_of(2)?,
            0x92 => self.call_of(3)?,
            b'R' => self.reduce()?,
            b'b' => self.build()?,
            _ => return Err(Refusal::NoPickle("its pickle is none that a state dict has")),
        }
        Ok(())
    }

    /// What is left at the end, and what its tensors take beside it when they are named.
    fn stop(mut self) -> Result<Weight, Refusal> {
        let root = self.pop()?;
        let named = root.tensors.saturating_mul(NAMED).saturating_add(root.names.saturating_mul(4));
        let walked = root.held.saturating_add(named);
        // A message about it holds its longest text a few times, when all else is gone.
        let end = walked.max(self.longest.saturating_mul(16));
        self.room.add(end.saturating_sub(self.peak))?;
        self.peak = self.peak.max(end);
        let kept = root.tensors.saturating_mul(KEPT).saturating_add(root.names.saturating_mul(2));
        Ok(Weight {
            kept: kept.saturating_add(root.held),
            text: root.text,
            peak: self.peak,
            is_list: root.kind == Kind::List,
        })
    }

    /// Reserves what lives now, with so many bytes for a moment.
    fn reserve(&mut self, moment: u64) -> Result<(), Refusal> {
        let now = self.live.saturating_add(self.highest).saturating_add(moment);
        if now > self.peak {
            self.room.add(now - self.peak)?;
            self.peak = now;
        }
        Ok(())
    }

    fn height(&self) -> u64 {
        self.stack.len() as u64 * STACK + self.marks.len() as u64 * MARK
    }

    fn push(&mut self, object: Object) {
        self.live = self.live.saturating_add(object.held);
        self.stack.push(object);
        self.highest = self.highest.max(self.height());
    }

    fn pop(&mut self) -> Result<Object, Refusal> {
        let object = self.top()?;
        self.stack.pop();
        self.live = self.live.saturating_sub(object.held);
        Ok(object)
    }

    fn top(&self) -> Result<Object, Refusal> {
        match self.stack.last() {
            Some(top) if self.marks.last() != Some(&self.stack.len()) => Ok(*top),
            _ => Err(Refusal::NoPickle("its pickle takes what is not there")),
        }
    }

    /// Where the innermost mark is, which is taken away.
    fn mark(&mut self) -> Result<usize, Refusal> {
        let mark = self.marks.pop().ok_or(Refusal::NoPickle("its pickle takes what is not there"))?;
        Ok(mark.min(self.stack.len()))
    }

    /// The last few objects, or those above the innermost mark, with the place of the first.
    fn last(&mut self, count: Option<usize>) -> Result<usize, Refusal> {
        let Some(count) = count else { return self.mark() };
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|from| *from >= floor);
        from.ok_or(Refusal::NoPickle("its pickle takes what is not there"))
    }

    /// Moves the top, which has just been pushed, below all that is above the innermost mark.
    fn move_under_top(&mut self) -> Result<(), Refusal> {
        let from = self.marks.last().copied().unwrap_or(0).min(self.stack.len());
        if let Some(moved) = self.stack.get_mut(from..) {
            moved.rotate_right(1);
        }
        match self.marks.last_mut() {
            Some(mark) => *mark += 1,
            None => return Err(Refusal::NoPickle("its pickle takes what is not there")),
        }
        Ok(())
    }

    fn tuple(&mut self, count: Option<usize>) -> Result<(), Refusal> {
        let from = self.last(count)?;
        let mut tuple = Object::EMPTY;
        for item in self.stack.drain(from..) {
            self.live = self.live.saturating_sub(item.held);
            tuple = tuple.with(item, INDEX).plus(SLOT);
        }
        self.push(tuple);
        Ok(())
    }

    fn append(&mut self, count: Option<usize>) -> Result<(), Refusal> {
        let from = self.last(count)?;
        let mut list = Object::EMPTY.plus(LIST);
        for item in self.stack.drain(from..) {
            self.live = self.live.saturating_sub(item.held);
            list = list.with(item, INDEX).plus(ITEM);
        }
        self.put_into_top(list)
    }

    fn set_items(&mut self, count: Option<usize>) -> Result<(), Refusal> {
        let from = self.last(count)?;
        let mut dict = Object::EMPTY.plus(DICT);
        let mut name = 0;
        for (place, item) in self.stack.drain(from..).enumerate() {
            self.live = self.live.saturating_sub(item.held);
            if place % 2 == 0 {
                name = item.text.saturating_add(INDEX);
                dict = dict.with(item, 0).plus(PAIR);
            } else {
                dict = dict.with(item, name);
            }
        }
        self.put_into_top(dict)
    }

    fn put_into_top(&mut self, more: Object) -> Result<(), Refusal> {
        let top = self.pop()?;
        self.push(top.with(more, 0));
        Ok(())
    }

    fn get(&mut self, index: u32) -> Result<(), Refusal> {
        let found = self.memo.get(&index).copied();
        self.push(found.ok_or(Refusal::NoPickle("its pickle takes what is not there"))?);
        Ok(())
    }

    /// A copy of the top is kept.
    fn put(&mut self, index: u32) -> Result<(), Refusal> {
        let copy = self.top()?.plus(PAIR);
        self.live = self.live.saturating_add(copy.held);
        self.reserve(0)?;
        // What was fetched has no entry of its own.
        let fetched = Object { held: copy.held - PAIR, ..copy };
        if let Some(before) = self.memo.insert(index, fetched) {
            self.live = self.live.saturating_sub(before.held.saturating_add(PAIR));
        }
        Ok(())
    }

    /// A storage, by what names it.
    fn storage(&mut self, id: Object) -> Result<(), Refusal> {
        self.reserve(id.held.saturating_mul(4))?;
        self.live = self.live.saturating_add(STORAGE).saturating_add(id.text.saturating_mul(3));
        self.push(Object::text(id.text));
        Ok(())
    }

    /// An object that is not interpreted: the last few become one, of whose names one is kept.
    fn call_of(&mut self, count: usize) -> Result<(), Refusal> {
        let mut called = Object::EMPTY;
        for _ in 0..count {
            called = called.with(self.pop()?, 0);
        }
        self.reserve(called.held.saturating_mul(3))?;
        self.push(called);
        Ok(())
    }

    fn reduce(&mut self) -> Result<(), Refusal> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let both = arguments.with(function, 0);
        self.reserve(both.held.saturating_mul(4).saturating_add(DICT))?;
        self.push(match function.kind {
            // Of its shape and its strides, eight bytes for each extent, four times.
            Kind::TensorMaker => Object {
                held: (arguments.held / 4).saturating_add(arguments.text).saturating_add(TENSOR),
                text: arguments.text,
                tensors: 1,
                ..Object::EMPTY
            },
            // A tensor, or a table of items that were a list, by names no longer than the longest text.
            _ => Object {
                held: both.held.saturating_mul(4).saturating_add(TENSOR + DICT),
                tensors: both.tensors.saturating_add(1),
                names: both.tensors.saturating_mul(self.longest + INDEX).saturating_add(both.names),
                text: both.text,
                kind: Kind::Other,
            },
        });
        Ok(())
    }

    /// Two dicts become one, of which a copy goes to the memo.
    fn build(&mut self) -> Result<(), Refusal> {
        let (state, object) = (self.pop()?, self.pop()?);
        let built = object.with(state, 0);
        self.live = self.live.saturating_add(built.held).saturating_add(PAIR);
        self.reserve(built.held.saturating_mul(4))?;
        self.push(built);
        Ok(())
    }

    fn global(&mut self) -> Result<(), Refusal> {
        let (mut module, mut name) = ([0; 16], [0; 32]);
        let lengths = (self.line(&mut module)?, self.line(&mut name)?);
        let length = lengths.0.saturating_add(lengths.1);
        let makes = (module.starts_with(b"torch._utils\n") && lengths.0 == 12)
            && (name.starts_with(b"_rebuild_tensor_v2\n") && lengths.1 == 18);
        let kind = if makes { Kind::TensorMaker } else { Kind::Other };
        self.push(Object { kind, ..Object::text(length.saturating_mul(2).saturating_add(64)) });
        Ok(())
    }

    fn string(&mut self, digits: u64) -> Result<(), Refusal> {
        let length = self.number(digits)?;
        let grown = if length > AT_ONCE { length.saturating_add(64) } else { 0 };
        self.longest = self.longest.max(length);
        // Reserved before it is skipped: a length may be anything.
        self.reserve(0)?;
        self.skip_and_push(length, length.saturating_add(grown))
    }

    fn long(&mut self, digits: u64) -> Result<(), Refusal> {
        let length = self.number(digits)?;
        self.skip_and_push(length, 8)?;
        self.reserve(length.saturating_mul(2).saturating_add(64))
    }

    fn skip_and_push(&mut self, length: u64, text: u64) -> Result<(), Refusal> {
        self.skip(length)?;
        self.push(Object::text(text));
        Ok(())
    }

    fn skip(&mut self, length: u64) -> Result<(), Refusal> {
        let skipped = io::copy(&mut io::Read::take(&mut *self.pickle, length), &mut io::sink())?;
        if skipped == length { Ok(()) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) }
    }

    fn byte(&mut self) -> Result<u8, Refusal> {
        let mut byte = [0];
        self.pickle.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn number(&mut self, digits: u64) -> Result<u64, Refusal> {
        let mut number = 0;
        for place in 0..digits {
            number |= u64::from(self.byte()?) << (8 * place);
        }
        Ok(number)
    }

    /// The length of a line without its end, and its beginning with its end if that fits.
    fn line(&mut self, start: &mut [u8]) -> Result<u64, Refusal> {
        let mut length = 0;
        loop {
            let byte = self.byte()?;
            if let Some(place) = start.get_mut(length as usize) {
                *place = byte;
            }
            if byte == b'\n' {
                self.longest = self.longest.max(length);
                return Ok(length);
            }
            length += 1;
        }
    }

    /// The number of an entry of the memo, in decimal.
    fn index(&mut self) -> Result<u32, Refusal> {
        let mut digits = [0; 16];
        let length = self.line(&mut digits)? as usize;
        let text = digits.get(..length).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = text.and_then(|text| text.strip_suffix('\r').unwrap_or(text).parse().ok());
        number.ok_or(Refusal::NoPickle("its pickle is none that a state dict has"))
    }
}
