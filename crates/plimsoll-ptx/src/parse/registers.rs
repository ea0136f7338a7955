//! Names of registers to their numbers, scope by scope.

use std::collections::{BTreeMap, HashMap};

use crate::lanes::Slot;
use crate::module::{Kernel, Special};
use crate::types::{Kind, Type};

/// The meaning of a register's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    /// A value of this width in bits.
    Value(Slot, u32),
    Predicate(Slot),
}

/// All registers of a kernel that is being parsed.
pub(crate) struct Registers {
    /// Blocks in braces may declare registers of their own; the innermost is last.
    scopes: Vec<HashMap<String, Register>>,
    /// `.reg .b32 %r<10>` of each scope: registers get a number when they are first used.
    ranges: Vec<Vec<(String, usize, Type)>>,
    numbers: BTreeMap<u64, Slot>,
    specials: HashMap<String, Slot>,
    sink: Option<Slot>,
}

impl Registers {
    pub fn new(kernel: &mut Kernel) -> Registers {
        kernel.predicate_names.extend(["false".to_owned(), "true".to_owned()]);
        Registers {
            scopes: vec![HashMap::new()],
            ranges: vec![Vec::new()],
            numbers: BTreeMap::new(),
            specials: HashMap::new(),
            sink: None,
        }
    }

    pub fn open_scope(&mut self) {
        self.scopes.push(HashMap::new());
        self.ranges.push(Vec::new());
    }

    pub fn close_scope(&mut self) {
        self.scopes.pop();
        self.ranges.pop();
    }

    /// Declares one register.
    pub fn declare(&mut self, kernel: &mut Kernel, name: &str, kind: Type) -> Register {
        let register = if kind.kind == Kind::Predicate {
            kernel.predicate_names.push(name.to_owned());
            Register::Predicate(kernel.predicate_names.len() - 1)
        } else {
            Register::Value(fresh(kernel, name), kind.width())
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), register);
        }
        register
    }

    /// Declares `start0` to `start(count-1)`.
    pub fn declare_range(&mut self, start: &str, count: usize, kind: Type) {
        if let Some(ranges) = self.ranges.last_mut() {
            ranges.push((start.to_owned(), count, kind));
        }
    }

    /// The register of this name, from the innermost scope that has it.
    pub fn find(&mut self, kernel: &mut Kernel, name: &str) -> Option<Register> {
        for depth in (0..self.scopes.len()).rev() {
            if let Some(&found) = self.scopes.get(depth)?.get(name) {
                return Some(found);
            }
            let declared = self.ranges.get(depth)?.iter().find_map(|(start, count, kind)| {
                let index: usize = name.strip_prefix(start.as_str())?.parse().ok()?;
                (index < *count).then_some(*kind)
            });
            if let Some(kind) = declared {
                let register = if kind.kind == Kind::Predicate {
                    kernel.predicate_names.push(name.to_owned());
                    Register::Predicate(kernel.predicate_names.len() - 1)
                } else {
                    Register::Value(fresh(kernel, name), kind.width())
                };
                self.scopes.get_mut(depth)?.insert(name.to_owned(), register);
                return Some(register);
            }
        }
        None
    }

    /// The register that always holds `value`.
    pub fn number(&mut self, kernel: &mut Kernel, value: u64) -> Slot {
        *self.numbers.entry(value).or_insert_with(|| {
            let slot = fresh(kernel, "a constant");
            kernel.constants.push((slot, value));
            slot
        })
    }

    /// The register that the machine sets, if there is one of this name.
    pub fn special(&mut self, kernel: &mut Kernel, name: &str) -> Option<Slot> {
        let special = Special::named(name)?;
        Some(*self.specials.entry(name.to_owned()).or_insert_with(|| {
            let slot = fresh(kernel, name);
            kernel.specials.push((slot, special));
            slot
        }))
    }

    /// The register that takes results that nobody wants: `_`.
    pub fn sink(&mut self, kernel: &mut Kernel) -> Slot {
        *self.sink.get_or_insert_with(|| fresh(kernel, "_"))
    }
}

fn fresh(kernel: &mut Kernel, name: &str) -> Slot {
    kernel.register_names.push(name.to_owned());
    kernel.register_names.len() - 1
}
