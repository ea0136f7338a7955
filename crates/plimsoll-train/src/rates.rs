//! What the machine does per second, measured once and remembered.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_cpu::{KernelRates, Level, Rates};
use plimsoll_data::atomic;
use plimsoll_graph::Program;
use serde::{Deserialize, Serialize};

use crate::Machine;

/// The part of the line that measuring may take; nothing else is held at that time.
const PART_OF_LINE: u64 = 8;

#[derive(Serialize, Deserialize)]
struct Kept {
    processor: String,
    simd: String,
    threads: usize,
    flops_per_second: f64,
    bytes_per_second: f64,
    kernels: KernelRates,
}

/// The machine's rates, for the convolutions of some programs: from `plimsoll/costs-….json` in the user's cache folder,
/// and what is not there measured and written there. They decide which plan is thought the fastest, never what comes out of
/// a run.
pub fn rates(machine: Machine, programs: &[Program]) -> Rates {
    let (processor, simd) = (processor(), Level::from_environment().to_string());
    let file = cache_folder().map(|folder| {
        let version = env!("CARGO_PKG_VERSION");
        let hash = fnv1a(&format!("{processor}\n{simd}\n{}\n{version}", machine.threads));
        folder.join("plimsoll").join(format!("costs-{hash:016x}.json"))
    });
    let memory = usize::try_from(machine.line.0 / PART_OF_LINE).unwrap_or(usize::MAX);
    let known = file.as_deref().and_then(read);
    let is_known = known.is_some();
    let Some(mut rates) = known.or_else(|| Rates::measure(machine.threads, memory).ok()) else {
        return Rates::NOMINAL;
    };
    // Where threads or memory are refused, what is not measured is predicted from what was.
    let learned = rates.learn(programs, machine.threads, memory).unwrap_or(true);
    if let Some(file) = file.filter(|_| learned || !is_known) {
        let kept = Kept {
            processor,
            simd,
            threads: machine.threads,
            flops_per_second: rates.flops,
            bytes_per_second: rates.bytes,
            kernels: rates.kernels.clone(),
        };
        // Where nothing can be kept, it is measured again the next time.
        let _ = write(&file, &kept);
    }
    rates
}

fn read(file: &Path) -> Option<Rates> {
    let Kept { flops_per_second: flops, bytes_per_second: bytes, kernels, .. } =
        serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let mut all = [flops, bytes].into_iter().chain(kernels.values().copied());
    all.all(|rate| rate.is_finite() && rate > 0.0).then_some(Rates { flops, bytes, kernels })
}

fn write(file: &Path, kept: &Kept) -> std::io::Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let text = serde_json::to_vec_pretty(kept)?;
    atomic::write(file, |out| out.write_all(&text))
}

/// As the XDG base directory specification says.
fn cache_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
}

fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or("unknown", |(_, name)| name.trim()).into()
}

/// The 64-bit FNV-1a hash: the same in every version of this program.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
