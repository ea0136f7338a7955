//! The body of a kernel: declarations, labels, instructions.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use super::directives::{SharedVariable, Variable, aligned, declaration};
use super::operand::{Cursor, Operand};
use super::registers::Registers;
use super::{Opcode, ParseError, control, memory, sync, tensor, warpgroup};
use crate::function::{self, Function};
use crate::instruction::{Flag, Instruction, Operation, Space};
use crate::lanes::{Slot, extend_sign, low};
use crate::module::Kernel;
use crate::types::{Kind, Type};

/// A kernel while it is parsed.
pub(crate) struct Body {
    pub kernel: Kernel,
    pub(super) registers: Registers,
    variables: BTreeMap<String, Variable>,
    /// Declared outside of the kernel, and not named in it yet.
    module_shared: BTreeMap<String, SharedVariable>,
    /// Labels of the innermost block in braces.
    labels: HashMap<String, usize>,
    /// Jumps of the innermost block whose labels are not known yet.
    jumps: Vec<Jump>,
    /// Lists of labels for `brx.idx`.
    tables: HashMap<String, Vec<String>>,
    opcodes: HashMap<String, usize>,
    pub(super) dynamic: Vec<(String, usize)>,
    line: usize,
}

/// A jump to labels that come later.
struct Jump {
    instruction: usize,
    labels: Vec<String>,
    line: usize,
}

impl Body {
    /// Parses a kernel from its parameters on.
    pub fn parse(
        cursor: &mut Cursor<'_, '_>,
        variables: &BTreeMap<String, Variable>,
        shared: &BTreeMap<String, SharedVariable>,
    ) -> Result<Kernel, ParseError> {
        let mut kernel = Kernel::default();
        let registers = Registers::new(&mut kernel);
        let mut body = Body {
            kernel,
            registers,
            variables: variables.clone(),
            module_shared: shared.clone(),
            labels: HashMap::new(),
            jumps: Vec::new(),
            tables: HashMap::new(),
            opcodes: HashMap::new(),
            dynamic: Vec::new(),
            line: cursor.line(),
        };
        body.parameters(cursor)?;
        body.attributes(cursor)?;
        body.block(cursor)?;
        if let Some(jump) = body.jumps.first() {
            let what = format!("there is no label `{}`", jump.labels.join("` or `"));
            return Err(ParseError::at(jump.line, what));
        }
        body.place_dynamic();
        // A kernel may end without `ret`.
        let opcode = body.opcode("ret");
        let line = body.line;
        body.kernel.code.push(Instruction { guard: None, operation: Operation::Exit, line, opcode });
        Ok(body.kernel)
    }

    fn parameters(&mut self, cursor: &mut Cursor<'_, '_>) -> Result<(), ParseError> {
        if !cursor.accept("(") {
            return Ok(());
        }
        while !cursor.accept(")") {
            cursor.expect(".param")?;
            let declared = declaration(cursor)?;
            let offset = aligned(self.kernel.parameter_bytes, declared.align);
            self.kernel.parameter_bytes = offset + declared.bytes;
            let variable = Variable { space: Space::Parameter, address: offset as u64 };
            self.variables.insert(declared.name.to_owned(), variable);
            cursor.accept(",");
        }
        Ok(())
    }

    fn attributes(&mut self, cursor: &mut Cursor<'_, '_>) -> Result<(), ParseError> {
        loop {
            match cursor.take()? {
                "{" => return Ok(()),
                word @ (".maxntid" | ".reqntid") => {
                    let mut sizes = [1; 3];
                    for size in &mut sizes {
                        *size = cursor.count()? as u32;
                        if !cursor.accept(",") {
                            break;
                        }
                    }
                    if word == ".maxntid" {
                        let threads =
                            sizes.iter().try_fold(1_u32, |product, &size| product.checked_mul(size));
                        self.kernel.max_threads = threads;
                    } else {
                        self.kernel.required_threads = Some(sizes);
                    }
                }
                ".minnctapersm" | ".maxnreg" | ".maxclusterrank" => {
                    cursor.count()?;
                }
                word => {
                    return Err(
                        cursor.error(format!("the directive `{word}` is not known to the interpreter"))
                    );
                }
            }
        }
    }

    /// Places a variable in shared memory.
    fn place_shared(&mut self, name: &str, declared: &SharedVariable) -> Variable {
        let mut address = 0;
        if declared.open {
            self.dynamic.push((name.to_owned(), declared.align));
        } else {
            address = aligned(self.kernel.shared_bytes, declared.align);
            self.kernel.shared_bytes = address + declared.bytes;
        }
        let variable = Variable { space: Space::Shared, address: address as u64 };
        self.variables.insert(name.to_owned(), variable.clone());
        variable
    }

    /// The variable of this name. One that the module declares in shared memory takes room in the kernels that name it only.
    pub(super) fn variable(&mut self, name: &str) -> Option<Variable> {
        match self.variables.get(name) {
            Some(variable) => Some(variable.clone()),
            None => self.module_shared.remove(name).map(|declared| self.place_shared(name, &declared)),
        }
    }

    /// Dynamic shared memory begins behind the static one. Until here its address was [`DYNAMIC`], since the size of all other
    /// variables was not known.
    fn place_dynamic(&mut self) {
        let align = self.dynamic.iter().map(|(_, align)| *align).max().unwrap_or(1);
        if !self.dynamic.is_empty() {
            self.kernel.shared_bytes = aligned(self.kernel.shared_bytes, align);
        }
        let start = self.kernel.shared_bytes as u64;
        for (_, value) in &mut self.kernel.constants {
            if *value & DYNAMIC_MASK == DYNAMIC & DYNAMIC_MASK {
                *value = value.wrapping_sub(DYNAMIC).wrapping_add(start);
            }
        }
    }

    fn block(&mut self, cursor: &mut Cursor<'_, '_>) -> Result<(), ParseError> {
        // Those of the block around this one.
        let outer = (mem::take(&mut self.labels), mem::take(&mut self.jumps));
        while !cursor.accept("}") {
            self.line = cursor.line();
            self.statement(cursor)?;
        }
        let labels = mem::replace(&mut self.labels, outer.0);
        for jump in mem::replace(&mut self.jumps, outer.1) {
            let targets: Option<Vec<usize>> =
                jump.labels.iter().map(|label| labels.get(label).copied()).collect();
            let Some(targets) = targets else {
                // The label may be one of the block around this one.
                self.jumps.push(jump);
                continue;
            };
            if let Some(instruction) = self.kernel.code.get_mut(jump.instruction) {
                match (&mut instruction.operation, targets.first()) {
                    (Operation::Branch { target }, Some(&first)) => *target = first,
                    (Operation::Switch { targets: all, .. }, _) => *all = targets,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn statement(&mut self, cursor: &mut Cursor<'_, '_>) -> Result<(), ParseError> {
        let word = cursor.take()?;
        match word {
            ";" => return Ok(()),
            "{" => {
                self.registers.open_scope();
                self.block(cursor)?;
                self.registers.close_scope();
                return Ok(());
            }
            ".reg" => return self.declare_registers(cursor),
            ".shared" => {
                let declared = declaration(cursor)?;
                self.place_shared(declared.name, &SharedVariable::new(&declared));
                return cursor.expect(";");
            }
            ".local" => {
                let declared = declaration(cursor)?;
                let address = aligned(self.kernel.local_bytes, declared.align);
                self.kernel.local_bytes = address + declared.bytes;
                let variable = Variable { space: Space::Local, address: address as u64 };
                self.variables.insert(declared.name.to_owned(), variable);
                return cursor.expect(";");
            }
            ".pragma" => {
                while cursor.take()? != ";" {}
                return Ok(());
            }
            _ => {}
        }
        if cursor.accept(":") {
            if cursor.accept(".branchtargets") {
                let mut targets = Vec::new();
                while !cursor.accept(";") {
                    targets.push(cursor.take()?.to_owned());
                    cursor.accept(",");
                }
                self.tables.insert(word.to_owned(), targets);
            } else {
                self.labels.insert(word.to_owned(), self.kernel.code.len());
            }
            return Ok(());
        }
        let mut guard = None;
        let mut opcode = word;
        if word == "@" {
            let negated = cursor.accept("!");
            let name = cursor.take()?;
            guard = Some(Flag { slot: self.predicate_slot(name)?, negated });
            opcode = cursor.take()?;
        }
        // The operands of a call have a syntax of their own; `.param` within a body declares them.
        if opcode == ".param" || opcode == "call" || opcode.starts_with("call.") {
            return Err(self.error(format!(
                "the interpreter calls no functions, here {}: everything has to be inlined, and nothing printed",
                called(opcode, cursor).unwrap_or("one without a name")
            )));
        }
        let operands = cursor.operands()?;
        let operation = self.instruction(opcode, &operands)?;
        let index = self.opcode(opcode);
        self.kernel.code.push(Instruction { guard, operation, line: self.line, opcode: index });
        Ok(())
    }

    fn declare_registers(&mut self, cursor: &mut Cursor<'_, '_>) -> Result<(), ParseError> {
        let word = cursor.take()?;
        let kind = word
            .strip_prefix('.')
            .and_then(Type::named)
            .filter(|kind| kind.bits <= 64)
            .ok_or_else(|| cursor.error(format!("registers of type `{word}` are not known")))?;
        loop {
            let name = cursor.take()?;
            if cursor.accept("<") {
                let count = cursor.count()?;
                cursor.expect(">")?;
                self.registers.declare_range(name, count, kind);
            } else {
                self.registers.declare(&mut self.kernel, name, kind);
            }
            if cursor.accept(";") {
                return Ok(());
            }
            cursor.expect(",")?;
        }
    }

    fn opcode(&mut self, name: &str) -> usize {
        let next = self.kernel.opcodes.len();
        let index = *self.opcodes.entry(name.to_owned()).or_insert(next);
        if index == next {
            self.kernel.opcodes.push(name.to_owned());
        }
        index
    }

    fn instruction(&mut self, word: &str, operands: &[Operand<'_>]) -> Result<Operation, ParseError> {
        let mut opcode = Opcode::new(word, self.line);
        let parsers = [control::parse, memory::parse, sync::parse, tensor::parse, warpgroup::parse];
        for parse in parsers {
            if let Some(operation) = parse(self, &mut opcode, operands)? {
                opcode.finish()?;
                return Ok(operation);
            }
        }
        self.arithmetic(&mut opcode, operands)
    }

    fn arithmetic(
        &mut self,
        opcode: &mut Opcode<'_>,
        operands: &[Operand<'_>],
    ) -> Result<Operation, ParseError> {
        let signed_result = opcode.name == "cvt";
        let result = opcode.first_type();
        let Some(function) = function::arithmetic(opcode)? else { return Err(opcode.unknown()) };
        opcode.finish()?;
        let (to, register) = self.result(operands, 0)?;
        // A signed result that is narrower than its register is extended with its sign.
        let function = match result {
            Some(kind) if signed_result && kind.kind == Kind::Signed && kind.bits < register => {
                extended(function, kind.bits, register)
            }
            _ => function,
        };
        let count = operands.len() - 1;
        let slots: Result<Vec<Slot>, ParseError> = (1..=count).map(|at| self.value(operands, at)).collect();
        match (function, slots?.as_slice()) {
            (Function::Unary(function), &[a]) => Ok(Operation::Unary { to, a, function }),
            (Function::Binary(function), &[a, b]) => Ok(Operation::Binary { to, a, b, function }),
            (Function::Ternary(function), &[a, b, c]) => Ok(Operation::Ternary { to, a, b, c, function }),
            (Function::Quaternary(function), &[a, b, c, d]) => {
                Ok(Operation::Quaternary { to, a, b, c, d, function })
            }
            _ => Err(self.error(format!("`{}` does not take {count} operands", opcode.name))),
        }
    }

    /// A jump to labels that may come later.
    pub fn jump(&mut self, labels: Vec<String>) {
        let jump = Jump { instruction: self.kernel.code.len(), labels, line: self.line };
        self.jumps.push(jump);
    }

    /// The labels of a table for `brx.idx`.
    pub fn table(&self, name: &str) -> Option<Vec<String>> {
        self.tables.get(name).cloned()
    }

    /// An error at the line of the instruction.
    pub fn error(&self, what: impl Into<String>) -> ParseError {
        ParseError::at(self.line, what)
    }
}

/// The function of the next call: the first name behind `call` that is no result in parentheses.
fn called<'a>(opcode: &'a str, cursor: &Cursor<'_, 'a>) -> Option<&'a str> {
    let mut cursor = cursor.clone();
    let mut word = opcode;
    while word != "call" && !word.starts_with("call.") {
        word = cursor.take().ok()?;
    }
    if cursor.accept("(") {
        while cursor.take().ok()? != ")" {}
        cursor.accept(",");
    }
    cursor.take().ok()
}

/// Stands for the start of dynamic shared memory until it is known. No address of any space looks like it.
pub(super) const DYNAMIC: u64 = 0x5eed_8000_0000_0000;
const DYNAMIC_MASK: u64 = 0xffff_0000_0000_0000;

/// `function` with its result of `bits` extended by its sign to a register of `register` bits.
fn extended(function: Function, bits: u32, register: u32) -> Function {
    match function {
        Function::Unary(inner) => {
            Function::Unary(Box::new(move |a| inner(a).map(|value| extend_sign(value, bits) & low(register))))
        }
        other => other,
    }
}
