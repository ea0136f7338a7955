//! The backend: how programs are lowered to launches of kernels.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_graph::{Cost, DType, Program, TensorId};
use plimsoll_memory::Reservation;
use plimsoll_plan::{
    Backend, DeviceMemory, DeviceState, Engine, EngineError, EngineMemory, LoweredNode, LoweredProgram,
    PlanError, PlaneSums, Rates, Unsupported, VerifiedPlan, agree,
};

use crate::architecture::{Architecture, LAUNCH};
use crate::counts::counted;
use crate::device::{CardMemory, DeviceError, DeviceSource, KernelCode, Opened, Sizes};
use crate::divide::{TooLong, divide};
use crate::engine::{CudaEngine, Memory};
use crate::fuse::{FusedNode, context, fuse};
use crate::layout;
use crate::lower::{ALIGNMENT, Context, Work};
use crate::ops::{tiles, tiles_digest};
use crate::plane_sums::sums_bytes;
use crate::predict::{Prediction, predict};

/// The digest of the kernels' sources, see `kernels/compile.py`.
const KERNELS: &str = include_str!("../kernels/kernels.key");

/// A GPU, or a kind of them to plan for.
#[derive(Clone)]
pub struct CudaBackend {
    source: Arc<dyn DeviceSource>,
    architecture: Architecture,
    rates: Rates,
    poison: bool,
    memory: Option<DeviceMemory>,
}

impl CudaBackend {
    /// On devices from somewhere, with the rates of a usual card of their kind.
    pub fn new(source: Arc<dyn DeviceSource>) -> CudaBackend {
        let architecture = source.architecture();
        CudaBackend { architecture, rates: architecture.rates(), source, poison: false, memory: None }
    }

    /// The same with a limit of the devices' memory. Without one, reservations of arenas are whatever a caller takes them from.
    #[must_use]
    pub fn within(self, memory: DeviceMemory) -> CudaBackend {
        CudaBackend { memory: Some(memory), ..self }
    }

    /// The same, for tests: what no kernel has written yet, and after each node what nobody will read again, is
    /// [poisoned](crate::Device::poison). Inputs are then to be written anew before each run.
    #[must_use]
    pub fn poisoned(self) -> CudaBackend {
        CudaBackend { poison: true, ..self }
    }

    /// The tiles that convolutions on tensor cores may take: what computes them, the places and the channels of a block.
    pub fn tiles(&self) -> impl Iterator<Item = &'static str> + use<> {
        tiles(self.architecture)
    }

    /// The same, to measure and to test tiles: convolutions on tensor cores take the one of this name wherever it fits, and where it does not
    /// what they take otherwise. None if there is none of this name.
    pub fn with_tile(&self, name: &str) -> Option<CudaBackend> {
        let tile = self.tiles().find(|tile| *tile == name)?;
        Some(self.with_architecture(self.architecture.with_tile(tile)))
    }

    /// Returns the kernels of a program whose times are predicted without counts of their instructions.
    ///
    /// # Errors
    /// Returns an error if an op has no kernels.
    pub fn uncounted(&self, program: &Program) -> Result<BTreeSet<String>, Unsupported> {
        let mut kernels = BTreeSet::new();
        for node in fuse(program, self.architecture, true) {
            let work = node.op.kernels().lower(&context(&node, program, self.architecture))?;
            let uncounted =
                work.launches.iter().filter(|launch| counted(self.architecture, launch).is_none());
            kernels.extend(uncounted.map(|launch| launch.kernel().to_string()));
        }
        Ok(kernels)
    }

    fn with_architecture(&self, architecture: Architecture) -> CudaBackend {
        let source = Arc::new(Chosen { devices: self.source.clone(), architecture });
        CudaBackend { source, architecture, ..self.clone() }
    }

    fn node(&self, program: &Program, node: &FusedNode<'_>) -> Result<LoweredNode, Unsupported> {
        // Where operands will lie is not known yet, and changes nothing but addresses.
        let cx = context(node, program, self.architecture);
        let (work, cost) = (node.op.kernels().lower(&cx)?, cost(program, node));
        let Prediction { seconds, bound } = predict(self.architecture, &self.rates, cost, &work);
        // Parts of a launch take its time, and a start each.
        let (work, added) = within_watchdog(&*self.source, &cx, cost, work)?;
        let seconds = seconds + LAUNCH * added as f64;
        let mut covered = node.covers.iter().map(|covered| &program.nodes[*covered]);
        Ok(LoweredNode {
            name: cx.name.into(),
            covers: node.covers.clone(),
            inputs: node.inputs.clone(),
            outputs: node.outputs.clone(),
            scratch: work.scratch,
            in_place: work.in_place,
            may_be_recomputed: covered.all(|node| node.op.rule().may_be_recomputed()),
            cost,
            seconds,
            bound: Some(bound),
        })
    }
}

/// Returns the cost of a node.
pub(crate) fn cost(program: &Program, node: &FusedNode<'_>) -> Cost {
    match &node.covers[..] {
        [one] => program.cost(&program.nodes[*one]),
        covered => {
            let infos = |ids: &[TensorId]| ids.iter().map(|id| program.tensor(*id)).collect::<Vec<_>>();
            let flops = covered.iter().map(|node| program.cost(&program.nodes[*node]).flops);
            let flops = flops.fold(0, u64::saturating_add);
            Cost { flops, ..Cost::streaming(&infos(&node.inputs), &infos(&node.outputs)) }
        }
    }
}

/// Divides the launches of a node that the watchdog of its card might end. Returns the number of launches that were added as well.
///
/// # Errors
/// Returns an error if one cannot be divided.
pub(crate) fn within_watchdog(
    source: &dyn DeviceSource,
    cx: &Context<'_>,
    cost: Cost,
    mut work: Work,
) -> Result<(Work, usize), Unsupported> {
    let Some(longest) = source.watchdog() else { return Ok((work, 0)) };
    match divide(cx.architecture, longest, cost, &mut work) {
        Ok(added) => Ok((work, added)),
        Err(TooLong(seconds)) => Err(cx.unsupported(format!(
            "a launch that cannot be divided is predicted to take {seconds:.1} s, and the watchdog of this GPU's display allows {longest} s: half precision \
             (‹precision›), a smaller patch (‹patch_size›) or micro-batch makes launches shorter, and a GPU without a display has no watchdog"
        ))),
    }
}

/// Devices of another source, whose convolutions take other kernels: those that round f32 to tf32, or one tile.
struct Chosen {
    devices: Arc<dyn DeviceSource>,
    architecture: Architecture,
}

impl DeviceSource for Chosen {
    fn architecture(&self) -> Architecture {
        self.architecture
    }

    fn watchdog(&self) -> Option<f64> {
        self.devices.watchdog()
    }

    fn code(&self) -> Option<KernelCode> {
        self.devices.code()
    }

    fn memory(&self) -> Result<CardMemory, DeviceError> {
        self.devices.memory()
    }

    fn state(&self) -> Option<DeviceState> {
        self.devices.state()
    }

    fn open(&self, sizes: Sizes) -> Result<Opened, DeviceError> {
        self.devices.open(sizes)
    }
}

impl Backend for CudaBackend {
    fn identity(&self) -> String {
        let products = if self.architecture.rounds_products() { ", tf32 products" } else { "" };
        let tile = self.architecture.tile().map_or(String::new(), |tile| format!(", tiles {tile}"));
        let groups = if self.architecture.lacks_warp_groups() { " without warp groups" } else { "" };
        format!("CUDA, {}{groups}{products}{tile}", self.architecture)
    }

    /// Names the kernels, who made their machine code, and the table of tiles as well: others may sum in another order.
    fn arithmetic(&self) -> String {
        let code = match self.source.code() {
            None => String::new(),
            Some(KernelCode::Built) => " as machine code".into(),
            Some(KernelCode::Compiled { by }) => format!(" compiled by CUDA {by}"),
        };
        let tiles = tiles_digest(self.architecture);
        format!("{}, kernels {}{code}, tiles {tiles:016x}", self.identity(), KERNELS.trim())
    }

    /// The half precision that the card's tensor cores multiply; of two that need as long bf16, which needs no loss scale.
    fn usual_storage(&self) -> DType {
        if self.architecture.multiplies(DType::Bf16) { DType::Bf16 } else { DType::F16 }
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn lower(&self, programs: &[Program], inline: bool) -> Result<Vec<LoweredProgram>, PlanError> {
        agree(programs)?;
        let lowered = programs.iter().map(|program| {
            let fused = fuse(program, self.architecture, inline);
            let nodes = fused.iter().map(|node| self.node(program, node));
            Ok(LoweredProgram {
                bytes: program.tensors.iter().map(layout::bytes).collect(),
                nodes: nodes.collect::<Result<_, Unsupported>>()?,
            })
        });
        lowered.collect()
    }

    /// The reservation is one of the device's memory.
    fn engine(&self, plan: VerifiedPlan, arena: Reservation) -> Result<Box<dyn Engine>, EngineError> {
        plan.expect_for(self)?;
        Ok(Box::new(CudaEngine::new(
            self.source.clone(),
            plan,
            Memory { arena, staging: None, ahead: None },
            self.poison,
        )?))
    }

    fn staged_engine(
        &self,
        plan: VerifiedPlan,
        memory: EngineMemory,
    ) -> Result<Box<dyn Engine>, EngineError> {
        plan.expect_for(self)?;
        let EngineMemory { arena, staging, ahead } = memory;
        let memory = Memory { arena, staging: Some(staging), ahead };
        Ok(Box::new(CudaEngine::new(self.source.clone(), plan, memory, self.poison)?))
    }

    fn device_memory(&self) -> Option<&DeviceMemory> {
        self.memory.as_ref()
    }

    fn plane_sums(&self, of: &PlaneSums) -> Option<usize> {
        Some(sums_bytes(of))
    }

    fn shared_by(&self, engines: usize) -> Option<Arc<dyn Backend>> {
        let memory = self.memory.clone()?.shared_by(engines);
        Some(Arc::new(self.clone().within(memory)))
    }

    fn with_tf32_products(&self) -> Result<Arc<dyn Backend>, PlanError> {
        let refused = || PlanError::Tf32Products { backend: self.identity() };
        let architecture = self.architecture.with_tf32_products().ok_or_else(refused)?;
        Ok(Arc::new(self.with_architecture(architecture)))
    }

    fn with_rates(&self, rates: Option<Rates>) -> Arc<dyn Backend> {
        let mut usual = self.architecture.rates();
        if let Some(given) = rates {
            // Rates that were not given are the usual ones.
            usual.kernels.extend(given.kernels);
            (usual.flops, usual.bytes) = (given.flops, given.bytes);
        }
        Arc::new(CudaBackend { rates: usual, ..self.clone() })
    }
}
