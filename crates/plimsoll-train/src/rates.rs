//! The measured speed of the machine, stored until a run contradicts it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_disk::atomic;
use plimsoll_graph::Program;
use plimsoll_memory::{Digest, host};
use plimsoll_plan::{Backend, Rates};
use plimsoll_run::{CacheFolder, Machine};
use serde::{Deserialize, Serialize};

/// The share of the memory limit that measuring may take; nothing else is reserved at that time.
const PART_OF_LIMIT: u64 = 8;

/// The largest file of rates that is read: a hundred times what one has.
const LARGEST: u64 = 16 << 20;

/// A prediction that is off by more than this share of itself is doubted.
const TOLERANCE: f64 = 0.25;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredRates {
    processor: String,
    backend: String,
    rates: Rates,
    doubtful: Doubtful,
}

/// Rates that a run has shown to be wrong, to be measured again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Doubtful {
    /// Those of arithmetic and memory.
    machine: bool,
    /// Kernels by name.
    kernels: BTreeSet<String>,
}

impl StoredRates {
    /// The rates that need not be measured again; `None` if all do.
    fn believed(&self) -> Option<Rates> {
        let mut rates = self.rates.clone();
        rates.kernels.retain(|name, _| !self.doubtful.kernels.contains(name));
        (!self.doubtful.machine).then_some(rates)
    }

    /// Adds what was measured beyond what was `known`. Rates that are not doubtful stay, so that plans of the same programs are the same. Of
    /// a doubtful and a new rate the higher one counts: whatever else a machine does only ever makes a kernel slower.
    fn learn(&mut self, measured: &Rates, known: Option<&Rates>) {
        if known.is_none() && std::mem::take(&mut self.doubtful.machine) {
            self.rates.flops = self.rates.flops.max(measured.flops);
            self.rates.bytes = self.rates.bytes.max(measured.bytes);
        }
        let is_known = |name: &String| known.is_some_and(|known| known.kernels.contains_key(name));
        for (name, rate) in measured.kernels.iter().filter(|(name, _)| !is_known(name)) {
            let is_doubtful = self.doubtful.kernels.remove(name);
            let stored = self.rates.kernels.entry(name.clone()).or_insert(*rate);
            if is_doubtful {
                *stored = stored.max(*rate);
            }
        }
    }

    fn doubt_all(&mut self) {
        let kernels = self.rates.kernels.keys().cloned().collect();
        self.doubtful = Doubtful { machine: true, kernels };
    }
}

/// The rates that this process plans with, by backend and file. They stay for its lifetime, so that it plans the same run in the same way
/// whatever other processes measure. Whoever measures holds the lock: two measurements at once would slow each other down.
static IN_USE: Mutex<BTreeMap<(String, Option<PathBuf>), Rates>> = Mutex::new(BTreeMap::new());

/// Returns a backend that predicts times from the machine's rates for the kernels of some programs.
///
/// Rates are read from `costs-….json` in the cache folder; missing and doubtful ones are measured and stored there. A process uses the first
/// rate that it has of a kernel, so that its plans depend on their input and not on what else runs at the time. They decide which plan counts as the
/// fastest, and in [`fastest_products`](crate::fastest_products) which convolutions of a new run multiply bf16. No other result of a run
/// depends on them.
pub fn measured(
    machine: Machine,
    backend: &dyn Backend,
    programs: &[Program],
    cache: Option<&CacheFolder>,
) -> Arc<dyn Backend> {
    backend.with_rates(rates(machine, backend, programs, cache))
}

/// The rates for the kernels of some programs; `None` if nothing is known and nothing can be measured.
fn rates(
    machine: Machine,
    backend: &dyn Backend,
    programs: &[Program],
    cache: Option<&CacheFolder>,
) -> Option<Rates> {
    let file = costs_file(backend, cache);
    let memory = usize::try_from(machine.limit.0 / PART_OF_LIMIT).unwrap_or(usize::MAX);
    let key = (backend.rated(), file.clone());
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stored = file.as_deref().and_then(read);
    let known = with_more(in_use.get(&key).cloned(), stored.as_ref().and_then(StoredRates::believed));
    // Where threads or memory are refused, times are predicted from what is known, or from doubtful rates.
    let doubtful = stored.as_ref().map(|stored| stored.rates.clone());
    let rates = match backend.measure(known.as_ref(), programs, memory).ok().flatten() {
        None => known,
        Some(learned) => {
            // Another process may have measured the same kernels in the meantime: both then plan with its rates.
            stored = file.as_deref().and_then(read).or(stored);
            let mut stored = stored.unwrap_or_else(|| StoredRates {
                processor: processor(),
                backend: backend.rated(),
                rates: learned.clone(),
                doubtful: Doubtful::default(),
            });
            stored.learn(&learned, known.as_ref());
            // Where nothing can be kept, the next process measures again.
            let _ = file.map(|file| write(&file, &stored));
            stored.rates.kernels.retain(|name, _| learned.kernels.contains_key(name));
            with_more(known, Some(stored.rates))
        }
    };
    let Some(rates) = rates else { return doubtful };
    in_use.insert(key, rates.clone());
    Some(rates)
}

/// Rates of the machine, and of further kernels that other rates have.
fn with_more(rates: Option<Rates>, others: Option<Rates>) -> Option<Rates> {
    let Some(mut rates) = rates else { return others };
    for (name, rate) in others.into_iter().flat_map(|others| others.kernels) {
        rates.kernels.entry(name).or_insert(rate);
    }
    Some(rates)
}

/// Compares the predicted time of a step with the measured median. If they differ by more than a quarter of the prediction, all rates of
/// the machine are marked as doubtful, so that the next plan measures again those that it needs. Returns a line about it.
pub(crate) fn doubt(
    backend: &dyn Backend,
    cache: Option<&CacheFolder>,
    predicted: f64,
    median: f64,
) -> Option<String> {
    if (median - predicted).abs() <= TOLERANCE * predicted {
        return None;
    }
    let marked = costs_file(backend, cache).is_some_and(|file| {
        read(&file).is_some_and(|mut stored| {
            stored.doubt_all();
            write(&file, &stored).is_ok()
        })
    });
    let then = if marked { "; the next process measures the speed of the machine again" } else { "" };
    Some(format!(
        "a step was predicted to take {predicted:.3} s, but half of them took {median:.3} s or more{then}"
    ))
}

/// A machine that does not say what processor it has keeps its rates under no name.
fn processor() -> String {
    host::processor_model().unwrap_or("unknown".into())
}

/// The file of the rates of a backend on this machine; `None` without a cache folder.
fn costs_file(backend: &dyn Backend, cache: Option<&CacheFolder>) -> Option<PathBuf> {
    let cache = cache?;
    let key = format!("{}\n{}\n{}", processor(), backend.rated(), env!("CARGO_PKG_VERSION"));
    let name = format!("costs-{}.json", Digest::compute(key.as_bytes()));
    Some(cache.path().join(name))
}

fn read(file: &Path) -> Option<StoredRates> {
    let stored: StoredRates = serde_json::from_slice(&plimsoll_disk::read(file, LARGEST).ok()?).ok()?;
    Some(stored).filter(|stored| stored.rates.are_sound())
}

fn write(file: &Path, stored: &StoredRates) -> std::io::Result<()> {
    plimsoll_disk::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    let text = serde_json::to_vec_pretty(stored)?;
    atomic::write(file, |out| out.write_all(&text))
}

#[cfg(test)]
mod tests {
    use plimsoll_cpu::{CpuBackend, CpuOptions};
    use plimsoll_memory::Bytes;

    use super::*;

    fn rates(flops: f64, kernels: &[(&str, f64)]) -> Rates {
        let kernels = kernels.iter().map(|(name, rate)| (name.to_string(), *rate)).collect();
        Rates { flops, bytes: 10.0, kernels }
    }

    #[test]
    fn the_higher_rate_is_kept_and_an_unmeasured_rate_stays_doubtful() {
        let mut stored = StoredRates {
            processor: "p".into(),
            backend: "b".into(),
            rates: rates(100.0, &[("slow", 1.0), ("fast", 9.0), ("other", 5.0)]),
            doubtful: Doubtful::default(),
        };
        assert_eq!(stored.believed(), Some(stored.rates.clone()));
        stored.doubt_all();
        assert_eq!(stored.believed(), None, "all of it is measured again");
        stored.learn(&rates(80.0, &[("slow", 4.0), ("fast", 3.0), ("new", 2.0)]), None);
        assert_eq!(stored.rates, rates(100.0, &[("slow", 4.0), ("fast", 9.0), ("other", 5.0), ("new", 2.0)]));
        assert_eq!(stored.doubtful.kernels, BTreeSet::from(["other".to_string()]));
        let believed = stored.believed().unwrap();
        assert_eq!(believed, rates(100.0, &[("slow", 4.0), ("fast", 9.0), ("new", 2.0)]));
    }

    #[test]
    fn a_rate_that_is_not_doubtful_is_kept() {
        let mut stored = StoredRates {
            processor: "p".into(),
            backend: "b".into(),
            rates: rates(100.0, &[("known", 5.0)]),
            doubtful: Doubtful::default(),
        };
        stored.learn(&rates(120.0, &[("known", 7.0), ("new", 2.0)]), None);
        assert_eq!(stored.rates, rates(100.0, &[("known", 5.0), ("new", 2.0)]));
    }

    #[test]
    fn a_process_that_knows_a_rate_neither_changes_it_nor_ends_the_doubts_of_others() {
        let mut stored = StoredRates {
            processor: "p".into(),
            backend: "b".into(),
            rates: rates(100.0, &[("used", 5.0)]),
            doubtful: Doubtful::default(),
        };
        stored.doubt_all();
        let in_use = rates(90.0, &[("used", 4.0)]);
        let known = with_more(Some(in_use.clone()), stored.believed());
        assert_eq!(known, Some(in_use));
        let learned = rates(90.0, &[("used", 4.0), ("new", 2.0)]);
        stored.learn(&learned, known.as_ref());
        assert_eq!(stored.rates, rates(100.0, &[("used", 5.0), ("new", 2.0)]));
        assert!(stored.doubtful.machine && stored.doubtful.kernels.contains("used"));
        assert_eq!(with_more(known, Some(stored.rates)), Some(rates(90.0, &[("used", 4.0), ("new", 2.0)])));
    }

    #[test]
    fn eight_threads_get_the_same_rates_with_and_without_a_cache() {
        let dir = tempfile::tempdir().unwrap();
        let folder = CacheFolder::new(dir.path().join("cache"));
        for cache in [Some(&folder), None] {
            let machine = Machine { limit: Bytes::mib(512), threads: 1, loader_threads: 1 };
            let found: Vec<Option<Rates>> = std::thread::scope(|scope| {
                let measure = || {
                    let backend = CpuBackend::new(CpuOptions::new(1)).unwrap();
                    super::rates(machine, &backend, &[], cache)
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(measure)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(found[0].is_some());
            assert!(found.iter().all(|rates| *rates == found[0]), "{found:?}");
        }
    }
}
