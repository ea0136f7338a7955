//! Operands to registers: names, numbers, variables, addresses.

use super::ParseError;
use super::body::{Body, DYNAMIC};
use super::operand::Operand;
use super::registers::Register;
use crate::instruction::{Address, Flag, Space};
use crate::lanes::Slot;
use crate::module::{FALSE, TRUE};

impl Body {
    /// The register that an operand reads: one of its own, a constant, the address of a variable.
    pub fn value(&mut self, operands: &[Operand<'_>], at: usize) -> Result<Slot, ParseError> {
        let operand = operands.get(at).ok_or_else(|| self.missing(at))?;
        self.value_of(operand)
    }

    /// Like [`Self::value`], for an operand in hand.
    pub fn value_of(&mut self, operand: &Operand<'_>) -> Result<Slot, ParseError> {
        match operand {
            Operand::Number(value) => Ok(self.registers.number(&mut self.kernel, *value)),
            Operand::Name("WARP_SZ") => Ok(self.registers.number(&mut self.kernel, 32)),
            Operand::Name(name) => self.named(name, 0),
            Operand::Near(name, distance) => self.named(name, *distance),
            _ => Err(self.error("a register or a number was expected")),
        }
    }

    fn named(&mut self, name: &str, distance: i64) -> Result<Slot, ParseError> {
        if let Some(register) = self.registers.find(&mut self.kernel, name) {
            return match register {
                Register::Value(slot, _) if distance == 0 => Ok(slot),
                _ => Err(self.error(format!("`{name}` cannot be used as a value here"))),
            };
        }
        if let Some(variable) = self.variable(name) {
            let dynamic = self.dynamic.iter().any(|(known, _)| known == name);
            let start = if dynamic { DYNAMIC } else { variable.address };
            let address = start.wrapping_add_signed(distance);
            return Ok(self.registers.number(&mut self.kernel, address));
        }
        self.registers
            .special(&mut self.kernel, name)
            .ok_or_else(|| self.error(format!("`{name}` is not declared, or not known to the interpreter")))
    }

    /// The space of a variable.
    pub fn space_of(&mut self, name: &str) -> Option<Space> {
        self.variable(name).map(|variable| variable.space)
    }

    /// The register that an operand writes, and its bits.
    pub fn result(&mut self, operands: &[Operand<'_>], at: usize) -> Result<(Slot, u32), ParseError> {
        let operand = operands.get(at).ok_or_else(|| self.missing(at))?;
        self.result_of(operand)
    }

    /// Like [`Self::result`], for an operand in hand.
    pub fn result_of(&mut self, operand: &Operand<'_>) -> Result<(Slot, u32), ParseError> {
        let Operand::Name(name) = operand else {
            return Err(self.error("a register was expected for the result"));
        };
        if *name == "_" {
            return Ok((self.registers.sink(&mut self.kernel), 64));
        }
        match self.registers.find(&mut self.kernel, name) {
            Some(Register::Value(slot, bits)) => Ok((slot, bits)),
            _ => Err(self.error(format!("`{name}` is no register that can hold this result"))),
        }
    }

    /// The registers of a list, or the one.
    pub fn results(&mut self, operands: &[Operand<'_>], at: usize) -> Result<Vec<Slot>, ParseError> {
        match operands.get(at) {
            Some(Operand::List(list)) => list.iter().map(|operand| Ok(self.result_of(operand)?.0)).collect(),
            _ => Ok(vec![self.result(operands, at)?.0]),
        }
    }

    /// The values of a list, or the one.
    pub fn values(&mut self, operands: &[Operand<'_>], at: usize) -> Result<Vec<Slot>, ParseError> {
        match operands.get(at) {
            Some(Operand::List(list)) => list.iter().map(|operand| self.value_of(operand)).collect(),
            _ => Ok(vec![self.value(operands, at)?]),
        }
    }

    /// The number of a predicate register.
    pub fn predicate_slot(&mut self, name: &str) -> Result<Slot, ParseError> {
        match self.registers.find(&mut self.kernel, name) {
            Some(Register::Predicate(slot)) => Ok(slot),
            _ => Err(self.error(format!("`{name}` is no predicate"))),
        }
    }

    /// A predicate that is read, perhaps its opposite, perhaps a constant.
    pub fn flag(&mut self, operands: &[Operand<'_>], at: usize) -> Result<Flag, ParseError> {
        match operands.get(at) {
            Some(Operand::Name(name)) => Ok(Flag { slot: self.predicate_slot(name)?, negated: false }),
            Some(Operand::Not(name)) => Ok(Flag { slot: self.predicate_slot(name)?, negated: true }),
            Some(Operand::Number(value)) => {
                Ok(Flag { slot: if *value == 0 { FALSE } else { TRUE }, negated: false })
            }
            _ => Err(self.error("a predicate was expected")),
        }
    }

    /// Returns `true` if an operand names a predicate register.
    pub fn is_predicate(&mut self, operand: Option<&Operand<'_>>) -> bool {
        match operand {
            Some(Operand::Name(name) | Operand::Not(name)) => {
                matches!(self.registers.find(&mut self.kernel, name), Some(Register::Predicate(_)))
            }
            _ => false,
        }
    }

    /// An address in brackets.
    pub fn address(&mut self, operands: &[Operand<'_>], at: usize) -> Result<Address, ParseError> {
        match operands.get(at) {
            Some(Operand::Address(base, offset)) => {
                Ok(Address { base: self.named(base, 0)?, offset: *offset })
            }
            Some(Operand::Absolute(value)) => {
                Ok(Address { base: self.registers.number(&mut self.kernel, *value), offset: 0 })
            }
            _ => Err(self.error("an address in brackets was expected")),
        }
    }

    fn missing(&self, at: usize) -> ParseError {
        self.error(format!("operand {} is missing", at + 1))
    }
}
