//! `plimsoll plan --device`

use plimsoll_memory::Bytes;
use plimsoll_plan::PlanError;
use plimsoll_train::{DeviceMemory, DevicePlan, TrainError, plan_on_device};

use crate::backend::{CardArchitecture, card};
use crate::duration::duration;
use crate::failure::{Failure, Outcome};
use crate::jobs::plan::PlanRequest;
use crate::progress::Progress;
use crate::report::{Table, json};

/// What the driver holds on a card for a process: its context and the kernels. A reserve, which no card has been asked about.
const CONTEXT: Bytes = Bytes::mib(512);

/// Plans what a run would hold of a kind of card; fails if it does not fit the line there.
pub fn on_device(request: &PlanRequest, (device, vram): (CardArchitecture, Bytes), as_json: bool) -> Outcome {
    let host = request.draw_line()?;
    let listed = request.open_dataset(&host, as_json)?;
    let fold = listed.first_fold()?;
    let opened = request.inspect(listed, host, as_json)?;
    let config = request.resolve(&request.settings, &opened, &fold)?;
    let facts = opened.data.facts(&config, &opened.data.used(&config.task, &fold))?;
    let progress = Progress::without_end("planning", as_json);
    let memory = DeviceMemory { line: vram, reserved: CONTEXT };
    let is_set = request.settings.micro_batch.is_some();
    let planned = plan_on_device(&config, is_set, (opened.machine, &*card(device)), facts, memory);
    progress.finish();
    let planned = planned.map_err(|error| match error {
        TrainError::Plan(PlanError::Unsupported(missing)) => {
            Failure::new(missing, "another network or loss; docs/gpu.md says what has kernels for GPUs")
        }
        error => error.into(),
    })?;
    if as_json {
        json(&planned)?;
    } else {
        print(&planned);
    }
    if planned.feasible {
        return Ok(());
    }
    let message = format!(
        "the run needs {} of the memory of {}, but the line there is {vram}",
        planned.minimum_bytes, planned.device
    );
    let least = planned.minimum_bytes.0.div_ceil(1 << 20);
    let hint = format!("--vram {least}MiB on a larger card, --precision bf16, or a smaller --patch-size");
    Err(Failure::new(message, hint))
}

fn print(planned: &DevicePlan) {
    let DevicePlan { device, batch_size, micro_batch, accumulation, precision, .. } = planned;
    let [d, h, w] = planned.patch_size;
    println!("{device}, which runs cannot use yet: a plan alone");
    println!(
        "patch {d}×{h}×{w}, batch {batch_size} as {accumulation} × {micro_batch}, features stored as {precision}, {:.0} GFLOP \
         per step, {:+.1} % operations for recomputation; arithmetic and memory of a usual card of this kind bound a step at {}",
        planned.flops_per_step as f64 / 1e9,
        100.0 * planned.recompute_flops_fraction,
        duration(planned.predicted_seconds_per_step)
    );
    let mut table = Table::new(["part", "bytes", "what it is"]);
    let recomputed = planned.recomputed.len();
    let least = planned.arena_lower_bound_bytes;
    let arena = format!(
        "parameters, moments, features, scratch; {recomputed} values recomputed; no placement needs less than {least}"
    );
    let context = "a reserve for the driver's context; not measured".to_string();
    table.row(["arena".into(), planned.arena_bytes.to_string(), arena]);
    table.row(["context".into(), planned.reserved_bytes.to_string(), context]);
    let line = format!("the line is {}", planned.memory_bytes);
    table.row(["total".into(), planned.total_bytes.to_string(), line]);
    table.print();
    println!("the least line for this run is {}", planned.minimum_bytes);
}
