//! What the machine does per second, measured once and remembered.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_data::atomic;
use plimsoll_graph::Program;
use plimsoll_memory::{fnv1a, host};
use plimsoll_plan::{Backend, Rates};
use serde::{Deserialize, Serialize};

use crate::Machine;

/// The part of the line that measuring may take; nothing else is held at that time.
const PART_OF_LINE: u64 = 8;

#[derive(Serialize, Deserialize)]
struct StoredRates {
    processor: String,
    backend: String,
    rates: Rates,
}

/// A backend that predicts times from the machine's rates, for the kernels of some programs: from `plimsoll/costs-….json` in
/// the user's cache folder, and what is not there measured and written there. They decide which plan is thought the fastest,
/// never what comes out of a run.
pub fn measured(machine: Machine, backend: &dyn Backend, programs: &[Program]) -> Arc<dyn Backend> {
    // A machine that does not say what processor it has keeps its rates under no name.
    let (processor, identity) = (host::processor_model().unwrap_or("unknown".into()), backend.identity());
    let file = cache_folder().map(|folder| {
        let key = format!("{processor}\n{identity}\n{}", env!("CARGO_PKG_VERSION"));
        folder.join("plimsoll").join(format!("costs-{:016x}.json", fnv1a(key.as_bytes())))
    });
    let memory = usize::try_from(machine.line.0 / PART_OF_LINE).unwrap_or(usize::MAX);
    let known = file.as_deref().and_then(read);
    // Where threads or memory are refused, times are predicted from what is known.
    let learned = backend.measure(known.as_ref(), programs, memory).ok().flatten();
    if let (Some(file), Some(rates)) = (file, &learned) {
        let stored = StoredRates { processor, backend: identity, rates: rates.clone() };
        // Where nothing can be kept, it is measured again the next time.
        let _ = write(&file, &stored);
    }
    backend.with_rates(learned.or(known))
}

fn read(file: &Path) -> Option<Rates> {
    let stored: StoredRates = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some(stored.rates).filter(Rates::are_sound)
}

fn write(file: &Path, stored: &StoredRates) -> std::io::Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let text = serde_json::to_vec_pretty(stored)?;
    atomic::write(file, |out| out.write_all(&text))
}

/// As the XDG base directory specification says.
fn cache_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
}
