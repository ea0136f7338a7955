//! Everything outside of the bodies of kernels: targets, variables, parameters.

use std::collections::BTreeMap;

use super::ParseError;
use super::body::Body;
use super::lexer::tokens;
use super::operand::Cursor;
use crate::instruction::Space;
use crate::machine::windows;
use crate::module::Module;
use crate::types::Type;

/// Instructions that a warp may run unless the caller sets another limit.
const LIMIT: u64 = 100_000_000;

/// The most elements of a variable: more than any memory of a kernel holds, and few enough for the host.
const MOST: usize = 1 << 28;

/// A variable: its address within its space.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub space: Space,
    pub address: u64,
}

/// A declaration as it is written.
#[derive(Debug)]
pub(crate) struct Declaration<'a> {
    pub name: &'a str,
    pub bytes: usize,
    pub align: usize,
    /// Initial values, of as many bytes.
    pub initial: Option<Vec<u8>>,
    /// Declared without a size: where dynamic shared memory begins.
    pub open: bool,
}

/// A variable in shared memory that has no place yet.
#[derive(Clone, Debug)]
pub(crate) struct SharedVariable {
    pub bytes: usize,
    pub align: usize,
    /// `true` if dynamic shared memory begins here.
    pub open: bool,
}

impl SharedVariable {
    /// Returns the variable of a declaration.
    pub fn new(declared: &Declaration<'_>) -> SharedVariable {
        SharedVariable { bytes: declared.bytes, align: declared.align, open: declared.open }
    }
}

/// The next multiple of `align` from `offset` on.
pub(crate) fn aligned(offset: usize, align: usize) -> usize {
    offset.next_multiple_of(align.max(1))
}

/// Reads what follows `.shared`, `.local`, `.const`, `.global` or `.param`; the `;` stays.
pub(crate) fn declaration<'a>(cursor: &mut Cursor<'_, 'a>) -> Result<Declaration<'a>, ParseError> {
    let mut align = None;
    let mut vector: usize = 1;
    let mut element = None;
    let name = loop {
        let word = cursor.take()?;
        match word {
            ".align" => align = Some(cursor.count()?),
            ".ptr" | ".global" | ".shared" | ".const" | ".local" | ".noinline" => {}
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            _ => match word.strip_prefix('.') {
                Some(kind) => {
                    let kind = Type::named(kind)
                        .ok_or_else(|| cursor.error(format!("`{word}` is no type that is known")))?;
                    element = Some(kind);
                }
                None => break word,
            },
        }
    };
    let element = element.ok_or_else(|| cursor.error(format!("`{name}` has no type")))?;
    let element_bytes = (element.width() as usize).div_ceil(8);
    let mut count = vector;
    let mut open = false;
    while cursor.accept("[") {
        if cursor.accept("]") {
            open = true;
            continue;
        }
        count = count
            .checked_mul(cursor.count()?)
            .filter(|&count| count <= MOST)
            .ok_or_else(|| cursor.error(format!("`{name}` has more than {MOST} elements")))?;
        cursor.expect("]")?;
    }
    let mut initial = None;
    if cursor.accept("=") {
        let mut values = Vec::new();
        initial_values(cursor, element_bytes, &mut values)?;
        if open {
            count = values.len() / element_bytes;
            open = false;
        }
        values.resize(count * element_bytes, 0);
        initial = Some(values);
    }
    let bytes = if open { 0 } else { count * element_bytes };
    Ok(Declaration { name, bytes, align: align.unwrap_or(vector * element_bytes), initial, open })
}

fn initial_values(
    cursor: &mut Cursor<'_, '_>,
    element_bytes: usize,
    values: &mut Vec<u8>,
) -> Result<(), ParseError> {
    if !cursor.accept("{") {
        let value = cursor.integer()?.to_le_bytes();
        values.extend_from_slice(value.get(..element_bytes).unwrap_or(&value));
        return Ok(());
    }
    while !cursor.accept("}") {
        initial_values(cursor, element_bytes, values)?;
        cursor.accept(",");
    }
    Ok(())
}

/// Parses a whole file.
pub(crate) fn module(text: &str) -> Result<Module, ParseError> {
    let tokens = tokens(text)?;
    let mut cursor = Cursor::new(&tokens);
    let mut module = Module {
        target: String::new(),
        kernels: BTreeMap::new(),
        lines: text.lines().map(|line| line.trim().to_owned()).collect(),
        constants: Vec::new(),
        limit: LIMIT,
    };
    let mut variables = BTreeMap::new();
    let mut shared = BTreeMap::new();
    while let Some(word) = cursor.peek() {
        cursor.take()?;
        match word {
            ".version" => {
                cursor.take()?;
            }
            ".target" => {
                module.target = cursor.take()?.to_owned();
                while cursor.accept(",") {
                    cursor.take()?;
                }
            }
            ".address_size" => {
                if cursor.count()? != 64 {
                    return Err(cursor.error("addresses have to have 64 bits"));
                }
            }
            ".visible" | ".extern" | ".weak" | ".common" => {}
            ".const" | ".global" => {
                let declared = declaration(&mut cursor)?;
                cursor.expect(";")?;
                let offset = aligned(module.constants.len(), declared.align);
                module.constants.resize(offset, 0);
                module.constants.extend(declared.initial.unwrap_or_else(|| vec![0; declared.bytes]));
                let space = if word == ".const" { Space::Constant } else { Space::Global };
                let address = windows::VARIABLES + offset as u64;
                variables.insert(declared.name.to_owned(), Variable { space, address });
            }
            ".shared" => {
                let declared = declaration(&mut cursor)?;
                shared.insert(declared.name.to_owned(), SharedVariable::new(&declared));
                cursor.expect(";")?;
            }
            ".entry" => {
                let name = cursor.take()?;
                let kernel = Body::parse(&mut cursor, &variables, &shared)?;
                module.kernels.insert(name.to_owned(), kernel);
            }
            ".func" => skip_function(&mut cursor)?,
            _ => return Err(cursor.error(format!("the directive `{word}` is not known to the interpreter"))),
        }
    }
    Ok(module)
}

/// Functions are declared where a kernel calls them; the call is what is refused.
fn skip_function(cursor: &mut Cursor<'_, '_>) -> Result<(), ParseError> {
    loop {
        match cursor.take()? {
            ";" => return Ok(()),
            "{" => return cursor.skip_block(),
            _ => {}
        }
    }
}
