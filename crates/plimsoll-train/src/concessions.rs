//! What changes a run's results so that it fits its line: taken only where its user allows it, in the order that they set.

use plimsoll_data::Fingerprint;
use plimsoll_graph::DType;
use plimsoll_memory::Bytes;

use crate::plan_run::{Site, first_that_fits, least, plan_run};
use crate::{Machine, PlannedRun, RunConfig, TrainError, WayOut};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concession {
    /// Features are stored as bf16.
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
    fn steps(self, config: &RunConfig) -> Vec<RunConfig> {
        let changed = |change: &dyn Fn(&mut RunConfig)| {
            let mut config = config.clone();
            change(&mut config);
            config
        };
        match self {
            Concession::Precision if config.training.precision == DType::Bf16 => Vec::new(),
            Concession::Precision => vec![changed(&|config| config.training.precision = DType::Bf16)],
            Concession::LossScale => {
                std::iter::successors(config.training.loss.coarser(), |loss| loss.coarser())
                    .map(|loss| changed(&|config| config.training.loss.clone_from(&loss)))
                    .collect()
            }
            Concession::Patch => smaller_patches(config)
                .into_iter()
                .map(|patch| changed(&|config| config.training.patch = patch))
                .collect(),
            Concession::Features => narrower(&config.training.net.features)
                .into_iter()
                .map(|features| changed(&|config| config.training.net.features.clone_from(&features)))
                .collect(),
        }
    }

    /// What it changed, if anything, for people.
    fn difference(self, from: &RunConfig, to: &RunConfig) -> Option<String> {
        let (from, to) = (&from.training, &to.training);
        let (what, before, after) = match self {
            Concession::Precision => {
                ("precision", format!("{:?}", from.precision), format!("{:?}", to.precision))
            }
            Concession::LossScale => {
                ("loss scales", format!("{:?}", from.loss.scales()), format!("{:?}", to.loss.scales()))
            }
            Concession::Patch => ("patch", format!("{:?}", from.patch), format!("{:?}", to.patch)),
            Concession::Features => {
                ("features", format!("{:?}", from.net.features), format!("{:?}", to.net.features))
            }
        };
        (before != after).then(|| format!("{what} {before} → {after}").to_lowercase())
    }

    /// The flags that set what it changed.
    fn flags(self, to: &RunConfig) -> String {
        let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        match self {
            Concession::Precision => "--precision bf16".into(),
            Concession::LossScale => "--allow loss-scale".into(),
            Concession::Patch => format!("--patch-size {}", list(&to.training.patch)),
            Concession::Features => format!("--features {}", list(&to.training.net.features)),
        }
    }

    /// Takes over from another configuration what this kind of change changes.
    pub fn adopt(self, config: &mut RunConfig, from: &RunConfig) {
        match self {
            Concession::Precision => config.training.precision = from.training.precision,
            Concession::LossScale => config.training.loss.clone_from(&from.training.loss),
            Concession::Patch => config.training.patch = from.training.patch,
            Concession::Features => config.training.net.features.clone_from(&from.training.net.features),
        }
    }
}

/// What would make a run fit that does not, each planned: a larger line; what a line must be with features stored in half the
/// bytes; the least change of any one kind that is enough, or of all kinds together where none is.
pub(crate) fn ways_out(
    config: &RunConfig,
    micro_batch_is_set: bool,
    site: Site,
    minimum: Bytes,
) -> Result<Vec<WayOut>, TrainError> {
    let line = site.machine.line;
    let least = |config: &RunConfig| least(config, micro_batch_is_set, site);
    let raised = |needed: Bytes| format!("--ram {}MiB", needed.0.div_ceil(1 << 20));
    let with_line = |flags: String, needed: Bytes| match needed > line {
        true => format!("{flags} {}", raised(needed)),
        false => flags,
    };
    let mut ways = vec![WayOut { flags: raised(minimum), minimum_ram_bytes: minimum }];
    let (mut fits_by_one, mut furthest) = (false, config.clone());
    for concession in ALL {
        let steps = concession.steps(config);
        let Some(last) = steps.last() else { continue };
        furthest = concession.steps(&furthest).pop().unwrap_or(furthest);
        let found = first_that_fits(steps.len(), |step| Ok(least(&steps[step])? <= line))?;
        fits_by_one |= found.is_some();
        let chosen = match found {
            Some(step) => &steps[step],
            // With a larger line it is the change that does the least.
            None if concession == Concession::Precision => last,
            None => continue,
        };
        let needed = least(chosen)?;
        let flags = with_line(concession.flags(chosen), needed);
        ways.push(WayOut { flags, minimum_ram_bytes: needed });
    }
    if !fits_by_one {
        let needed = least(&furthest)?;
        let flags = with_line("--allow precision,loss-scale,patch,features".into(), needed);
        ways.push(WayOut { flags, minimum_ram_bytes: needed });
    }
    Ok(ways)
}

/// Plans a run: with the micro-batch that is set, or else with that which is the fastest within the line. If none fits, makes
/// the changes that are allowed, one kind after the other, each as far as is needed; what was changed stands in
/// [`RunPlan::changes`](crate::RunPlan::changes).
///
/// # Errors
/// If the configuration makes no programs, or no plan.
pub fn plan_run_allowing(
    allowed: &[Concession],
    config: &RunConfig,
    micro_batch_is_set: bool,
    machine: Machine,
    fingerprint: &Fingerprint,
    index_bytes: Bytes,
) -> Result<PlannedRun, TrainError> {
    let site = Site::new(machine, index_bytes);
    if allowed.is_empty() || least(config, micro_batch_is_set, site)? <= machine.line {
        return plan_run(config, micro_batch_is_set, machine, fingerprint, index_bytes);
    }
    let mut changed = config.clone();
    for concession in allowed {
        let steps = concession.steps(&changed);
        let fits = |step: usize| Ok(least(&steps[step], micro_batch_is_set, site)? <= machine.line);
        if let Some(step) = first_that_fits(steps.len(), fits)? {
            changed = steps[step].clone();
            break;
        }
        changed = steps.into_iter().next_back().unwrap_or(changed);
    }
    let mut planned = plan_run(&changed, micro_batch_is_set, machine, fingerprint, index_bytes)?;
    planned.numbers.changes =
        allowed.iter().filter_map(|concession| concession.difference(config, &changed)).collect();
    Ok(planned)
}

/// Ever smaller patches: the longest extent is shortened by one step of the network at a time.
fn smaller_patches(config: &RunConfig) -> Vec<[usize; 3]> {
    let multiple = config.training.net.multiple();
    let mut patch = config.training.patch;
    let mut patches = Vec::new();
    // Two voxels are left at the coarsest stage, so that there is something to normalise.
    while let Some(axis) =
        (0..3).filter(|axis| patch[*axis] > 2 * multiple[*axis]).max_by_key(|axis| patch[*axis])
    {
        patch[axis] -= multiple[axis];
        patches.push(patch);
    }
    patches
}

/// Three, two and one quarter of the features, in eights.
fn narrower(features: &[usize]) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![features.to_vec()];
    for quarters in [3, 2, 1] {
        let narrowed: Vec<usize> =
            features.iter().map(|count| ((count * quarters / 4).next_multiple_of(8)).min(*count)).collect();
        if all.last() != Some(&narrowed) {
            all.push(narrowed);
        }
    }
    all.remove(0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_narrowed_in_eights_until_nothing_is_left_to_take() {
        assert_eq!(narrower(&[32, 320]), [vec![24, 240], vec![16, 160], vec![8, 80]]);
        assert_eq!(narrower(&[8, 16]), [vec![8, 8]]);
        assert!(narrower(&[4, 8]).is_empty());
    }
}
