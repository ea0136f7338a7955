//! Changes of results that make a run fit its limit: made only if the user allows them, in the user's order.

use plimsoll_graph::DType;
use plimsoll_memory::Bytes;
use plimsoll_plan::DeviceMemory;
use plimsoll_run::{Precision, Products, RunConfig, Task, WayOut};

use crate::TrainError;
use crate::candidate::{Needs, Site};
use crate::fit::{first_that_fits, fits, least};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concession {
    /// Features are stored as bf16, and convolutions multiply what is stored, as they do with `--precision bf16`: where f32 was
    /// rounded to tf32, that is no longer done.
    Precision,
    /// Components of the loss that see shapes are computed at a lower resolution. (Computing them less often would save time, but
    /// no memory: the steps that have them would need as much.)
    LossScale,
    /// Patches become smaller, along their longest axis first.
    Patch,
    /// The network becomes narrower.
    Features,
}

/// All kinds, from what changes results the least to what changes them the most.
const ALL: [Concession; 4] =
    [Concession::Precision, Concession::LossScale, Concession::Patch, Concession::Features];

impl Concession {
    /// The configurations that it may lead to, from the least change to the greatest.
    pub(crate) fn steps(self, config: &RunConfig) -> Vec<RunConfig> {
        let changed = |change: &dyn Fn(&mut RunConfig)| {
            let mut config = config.clone();
            change(&mut config);
            config
        };
        match self {
            Concession::Precision if config.training.precision != DType::F32 => Vec::new(),
            Concession::Precision => vec![changed(&|config| {
                config.training.precision = Precision::Bf16.storage();
                config.products = Precision::Bf16.products();
            })],
            Concession::LossScale => {
                std::iter::successors(config.training.loss.coarser(), |loss| loss.coarser())
                    .map(|loss| changed(&|config| config.training.loss.clone_from(&loss)))
                    .collect()
            }
            // The input is a whole image then, whose size is not set by the patch.
            Concession::Patch if matches!(config.task, Task::Classification(_)) => Vec::new(),
            Concession::Patch => config
                .training
                .net
                .extents()
                .smaller(config.training.patch)
                .into_iter()
                .map(|patch| changed(&|config| config.training.patch = patch))
                .collect(),
            Concession::Features => config
                .training
                .net
                .narrower()
                .into_iter()
                .map(|net| changed(&|config| config.training.net.clone_from(&net)))
                .collect(),
        }
    }

    /// A description of the change, if there is one.
    pub(crate) fn difference(self, from: &RunConfig, to: &RunConfig) -> Option<String> {
        let precision = |config: &RunConfig| match (config.training.precision, &config.products) {
            (DType::F32, Products::Tf32) => "tf32".to_string(),
            (stored, _) => format!("{stored:?}"),
        };
        let precisions = (precision(from), precision(to));
        let (from, to) = (&from.training, &to.training);
        let (what, before, after) = match self {
            Concession::Precision => ("precision", precisions.0, precisions.1),
            Concession::LossScale => {
                ("loss scales", format!("{:?}", from.loss.scales()), format!("{:?}", to.loss.scales()))
            }
            Concession::Patch => ("patch", format!("{:?}", from.patch), format!("{:?}", to.patch)),
            Concession::Features => {
                ("features", format!("{:?}", from.net.features()), format!("{:?}", to.net.features()))
            }
        };
        (before != after).then(|| format!("{what} {before} → {after}").to_lowercase())
    }

    /// The flags that set what it changed.
    fn flags(self, to: &RunConfig) -> String {
        match self {
            Concession::Precision => "‹precision=bf16›".into(),
            Concession::LossScale => "‹allow=loss-scale›".into(),
            Concession::Patch => {
                let [d, h, w] = to.training.patch;
                format!("‹patch_size={d},{h},{w}›")
            }
            Concession::Features => to.training.net.features_flag(),
        }
    }

    /// Takes over from another configuration what this kind of change changes.
    pub fn adopt(self, config: &mut RunConfig, from: &RunConfig) {
        match self {
            Concession::Precision => {
                config.training.precision = from.training.precision;
                config.products.clone_from(&from.products);
            }
            Concession::LossScale => config.training.loss.clone_from(&from.training.loss),
            Concession::Patch => config.training.patch = from.training.patch,
            Concession::Features => {
                // Only the features: what else the networks differ in is not what was conceded.
                let features = from.training.net.features();
                let adopted =
                    config.training.net.narrower().into_iter().find(|net| net.features() == features);
                config.training.net = adopted.unwrap_or_else(|| config.training.net.clone());
            }
        }
    }
}

/// The changes that would make a run fit, each with its plan: a higher limit; a limit for features in half precision; the smallest
/// sufficient change of one kind, or of all kinds together if none suffices.
pub(crate) fn ways_out(
    config: &RunConfig,
    micro_batch_is_set: bool,
    site: Site<'_>,
    minimum: Needs,
) -> Result<Vec<WayOut>, TrainError> {
    let least = |config: &RunConfig| least(config, micro_batch_is_set, site);
    let way = |change: Option<String>, needs: Needs| {
        let raised = |parameter: &str, needed: Bytes, limit: Bytes| {
            (needed > limit).then(|| format!("‹{parameter}={}MiB›", needed.0.div_ceil(1 << 20)))
        };
        let device = needs.vram.zip(site.backend.device_memory().map(DeviceMemory::limit));
        let vram = device.and_then(|(needed, limit)| raised("vram", needed, limit));
        let flags = [change, raised("ram", needs.ram, site.machine.limit), vram];
        WayOut {
            flags: flags.into_iter().flatten().collect::<Vec<_>>().join(" "),
            minimum_ram_bytes: needs.ram,
            minimum_vram_bytes: needs.vram,
        }
    };
    let mut ways = vec![way(None, minimum)];
    let (mut fits_by_one, mut furthest) = (false, config.clone());
    for concession in ALL {
        let steps = concession.steps(config);
        let Some(last) = steps.last() else { continue };
        furthest = concession.steps(&furthest).pop().unwrap_or(furthest);
        let found = first_that_fits(steps.len(), |step| fits(&steps[step], micro_batch_is_set, site))?;
        fits_by_one |= found.is_some();
        let chosen = match found {
            Some(step) => &steps[step],
            // With a larger limit it is the change that does the least.
            None if concession == Concession::Precision => last,
            None => continue,
        };
        ways.push(way(Some(concession.flags(chosen)), least(chosen)?));
    }
    if !fits_by_one {
        let all = "‹allow=precision,loss-scale,patch,features›".to_string();
        ways.push(way(Some(all), least(&furthest)?));
    }
    Ok(ways)
}
