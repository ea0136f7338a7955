//! Archives of TorchScript: modules with their tensors, and the text of their code.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::DeflateDecoder;
use plimsoll_memory::Budget;

use super::PytorchFile;
use super::container::tensors_below;
use crate::weights::WeightError;
use crate::weights::archive::CodeMember;

/// An open archive of TorchScript. Nothing in it is executed: modules and tensors are read as data, and code as a text.
pub struct TorchScriptFile {
    weights: PytorchFile,
    /// The classes of all modules, by their names; the outermost has none.
    classes: BTreeMap<String, String>,
}

/// The longest member with code.
const MOST_CODE: u64 = 64 << 10;
/// The most modules, and their depth: far more than networks have.
const MOST_MODULES: usize = 4096;
const MOST_DEPTH: usize = 32;

impl TorchScriptFile {
    /// Opens an archive. What its pickle says stays reserved in the budget as long as it is open.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is no archive of TorchScript, holds no tensors, or does not fit the budget.
    pub fn open(path: &Path, budget: &Budget) -> Result<TorchScriptFile, WeightError> {
        let weights =
            PytorchFile::open_with(path, budget, |values, room| tensors_below(values, values.root(), room))?;
        let mut script = TorchScriptFile { weights, classes: BTreeMap::new() };
        script.find_modules().map_err(|why| WeightError::format(path, why))?;
        Ok(script)
    }

    fn find_modules(&mut self) -> Result<(), &'static str> {
        let values = &self.weights.values;
        let mut left = vec![(values.root(), String::new(), 0)];
        while let Some((id, name, depth)) = left.pop() {
            let Some(class) = values.class(id) else {
                return Err("it is no archive of TorchScript");
            };
            if depth > MOST_DEPTH || self.classes.len() == MOST_MODULES {
                return Err("its modules refer to each other too often");
            }
            // A module without attributes has no modules inside.
            for (key, value) in values.pairs(id).unwrap_or_default() {
                if let (Some(key), Some(_)) = (values.text(*key), values.class(*value)) {
                    let inner = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
                    left.push((*value, inner, depth + 1));
                }
            }
            self.classes.insert(name, class.to_string());
        }
        Ok(())
    }

    /// The class of a module, such as `__torch__.torch.nn.modules.conv.Conv3d`; the outermost module has an empty name.
    pub fn class(&self, module: &str) -> Option<&str> {
        self.classes.get(module).map(String::as_str)
    }

    /// The tensors of all modules.
    pub fn weights(&self) -> &PytorchFile {
        &self.weights
    }

    /// The same, to read them.
    pub fn into_weights(self) -> PytorchFile {
        self.weights
    }

    /// Reads the text of the code of a class: of all classes that its member holds. A text has at most 64 KiB.
    ///
    /// # Errors
    /// Returns an error if there is no code of the class, it is too long, or it cannot be read or is damaged.
    pub fn code_of(&mut self, class: &str) -> Result<String, WeightError> {
        let refuse = |why: String| WeightError::format(&self.weights.path, why);
        let within = class.rsplit_once('.').map_or(class, |(module, _)| module);
        let name = format!("{}.py", within.replace('.', "/"));
        let Some(CodeMember { member, packed, is_deflated }) = self.weights.code.get(&name).copied() else {
            return Err(refuse(format!("there is no code of the class `{class}`")));
        };
        if member.length > MOST_CODE || packed > MOST_CODE {
            return Err(refuse(format!("`{name}` has {} bytes, more than {MOST_CODE}", member.length)));
        }
        let path = self.weights.path.clone();
        let failed = |error| WeightError::io(&path, error);
        let start = member.start(&mut self.weights.file).map_err(failed)?;
        self.weights.file.seek(SeekFrom::Start(start)).map_err(failed)?;
        let stored = self.weights.file.by_ref().take(packed);
        let mut text = Vec::new();
        // One byte more than there may be, so that a longer text is noticed.
        let most = MOST_CODE + 1;
        #[expect(clippy::disallowed_methods, reason = "`take` limits the bytes")]
        let read = match is_deflated {
            true => DeflateDecoder::new(stored).take(most).read_to_end(&mut text),
            false => stored.take(most).read_to_end(&mut text),
        };
        let is_whole = read.is_ok()
            && text.len() as u64 == member.length
            && (member.checksum == 0 || crc32fast::hash(&text) == member.checksum);
        let damaged = || WeightError::format(&path, format!("`{name}` is damaged"));
        if !is_whole {
            return Err(damaged());
        }
        String::from_utf8(text).map_err(|_| damaged())
    }
}
