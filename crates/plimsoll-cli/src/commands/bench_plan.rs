//! `plimsoll bench plan`: how long planning takes, for each network with each loss.

use std::time::Instant;

use plimsoll_memory::Bytes;
use plimsoll_nn::{Classifies, Network, NetworkName, Objective, Optimizer, RankPlace, Training};
use plimsoll_plan::{Backend, Goal, Options, PlanError, Planner, VerifiedPlan};
use plimsoll_run::ALL_COMPONENTS;
use plimsoll_train::{RunPrograms, SPARING};
use serde::Serialize;

use crate::args::BenchPlan;
use crate::failure::{Failure, Outcome};
use crate::report::{Table, json};
use crate::terminal;

/// Six components together, one of them every fourth step.
const SIX: &str = r#"{"components": [
    {"name": "soft_dice"}, {"name": "weighted_bce"}, {"name": "cldice"}, {"name": "morph_skeleton"},
    {"name": "toploss_simple"}, {"name": "surface_distance", "every": 4}
]}"#;

/// The cost of planning.
#[derive(Serialize)]
struct Row {
    net: &'static str,
    loss: String,
    /// Kernels of all programs of a run.
    nodes: usize,
    /// With no limit: what a run on the processor is planned with.
    arena_bytes: usize,
    /// The least that was found.
    minimum_arena_bytes: usize,
    /// With no limit, with a limit a quarter of the way from the least to the most, and with one that is too low.
    seconds: [f64; 3],
}

/// Plans each network with each loss, and prints a table.
pub fn run(args: &BenchPlan, as_json: bool) -> Outcome {
    let nets = if args.net.is_empty() { NetworkName::ALL } else { &args.net[..] };
    let losses = losses()?;
    let backend = args.compute.open_to_plan()?;
    let progress = terminal::observed(as_json).work("planning", (nets.len() * losses.len()) as u64);
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for net in nets {
        for (name, loss) in &losses {
            progress.set((rows.len() + refused.len()) as u64, format!("{net}, {name}"));
            let planned =
                programs(args, *net, loss).and_then(|programs| row(*net, name, &programs, &*backend));
            match planned {
                Ok(row) => rows.push(row),
                Err(why) => refused.push(format!("{net}, {name}: {}", why.line())),
            }
        }
    }
    drop(progress);
    if as_json {
        return json(&rows);
    }
    let mut table =
        Table::new(["network", "loss", "nodes", "arena", "minimum", "fits", "tight", "impossible"]);
    for row in rows {
        let [fits, tight, impossible] = row.seconds.map(|seconds| format!("{seconds:.3} s"));
        let bytes = |bytes: usize| Bytes::from_len(bytes).to_string();
        let sizes = [bytes(row.arena_bytes), bytes(row.minimum_arena_bytes)];
        let [arena, minimum] = sizes;
        table.row([
            row.net.to_string(),
            row.loss,
            row.nodes.to_string(),
            arena,
            minimum,
            fits,
            tight,
            impossible,
        ]);
    }
    table.print();
    for why in refused {
        println!("not planned: {why}");
    }
    Ok(())
}

/// All losses by name.
fn losses() -> Outcome<Vec<(String, Objective)>> {
    let read = |name: &str, text: &str| {
        let loss = serde_json::from_str(text);
        let loss = loss.map_err(|problem| Failure::new(format!("the loss {name}: {problem}"), ""))?;
        Ok::<_, Failure>((name.to_string(), loss))
    };
    let mut losses = vec![("dice and cross-entropy".to_string(), Objective::default())];
    for name in ALL_COMPONENTS {
        let text = format!(
            r#"{{"components": [{{"name": "soft_dice"}}, {{"name": "cross_entropy"}}, {{"name": "{name}"}}]}}"#
        );
        losses.push(read(name, &text)?);
    }
    losses.push(read("six components", SIX)?);
    Ok(losses)
}

/// The programs of a run.
fn programs(args: &BenchPlan, net: NetworkName, loss: &Objective) -> Outcome<RunPrograms> {
    let net = Network::reference(net, None)?;
    let patch = match net.classifies() {
        Classifies::Voxels => args.size,
        Classifies::Images => [1, args.size[1], args.size[2]],
    };
    let training = Training {
        net,
        loss: loss.clone(),
        spacing: [1.0; 3],
        optimizer: Optimizer::adamw(),
        max_grad_norm: None,
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch,
        batch: args.batch,
        shards: 1,
        micro_batch: args.batch,
        precision: args.precision.into(),
    };
    Ok(RunPrograms::new(&training, RankPlace::ALONE)?)
}

fn row(net: NetworkName, loss: &str, programs: &RunPrograms, backend: &dyn Backend) -> Outcome<Row> {
    // Each from the beginning: a planner remembers what it searched.
    let timed = |goal: Goal| {
        let start = Instant::now();
        let plan = Planner::new(programs.all(), backend, Options::default())?.plan_for(goal)?;
        Ok::<(VerifiedPlan, f64), PlanError>((plan, start.elapsed().as_secs_f64()))
    };
    let (roomy, fits) = timed(Goal::Sparing { budget: None, share: SPARING })?;
    let (least, impossible) = timed(Goal::Fastest { budget: Some(0) })?;
    let budget = least.arena_bytes + (roomy.arena_bytes - least.arena_bytes.min(roomy.arena_bytes)) / 4;
    let (_, tight) = timed(Goal::Fastest { budget: Some(budget) })?;
    Ok(Row {
        net: net.as_str(),
        loss: loss.to_string(),
        nodes: roomy.lowered.iter().map(|lowered| lowered.nodes.len()).sum(),
        arena_bytes: roomy.arena_bytes,
        minimum_arena_bytes: least.arena_bytes,
        seconds: [fits, tight, impossible],
    })
}
