//! The backend: how programs are lowered to the kernels of this crate.

use std::sync::Arc;

use plimsoll_graph::{DType, Program};
use plimsoll_memory::{Reservation, fnv1a};
use plimsoll_parallel::{Level, MOST_THREADS, TaskLog};
use plimsoll_plan::{
    Backend, Bf16Products, Engine, EngineError, LoweredNode, LoweredProgram, PlanError, Rates, Unsupported,
    VerifiedPlan, agree,
};

use crate::engine::CpuEngine;
use crate::fuse::{FusedNode, fuse};
use crate::isolated::Isolated;
use crate::layout::VolumeLayout;
use crate::layout::assign::assign;
use crate::lower::{ALIGNMENT, Context, Kernels, unsupported};
use crate::lowered::{CpuNode, CpuProgram};
use crate::measure::measure;
use crate::options::{CpuOptions, Products};
use crate::rates;
use crate::simd::dot::DotLevel;

/// The CPU with some threads and an instruction set.
#[derive(Clone)]
pub struct CpuBackend {
    options: CpuOptions,
    rates: Rates,
    /// The convolutions whose products are not of bf16, if products are of bf16.
    but: Arc<Bf16Products>,
    /// For measuring single kernels: how the volumes of the one program lie.
    pinned: Option<Arc<[VolumeLayout]>>,
}

impl CpuBackend {
    /// With options, and nominal rates.
    ///
    /// # Errors
    /// Returns an error if there are no threads or too many, or the machine does not have the instruction set.
    pub fn new(options: CpuOptions) -> Result<CpuBackend, EngineError> {
        let wrong =
            |option, found: String, expected: String| Err(EngineError::Options { option, found, expected });
        if !(1..=MOST_THREADS).contains(&options.threads) {
            return wrong(
                "threads",
                options.threads.to_string(),
                format!("1 to {MOST_THREADS} are possible"),
            );
        }
        let best = Level::detect();
        if options.level > best {
            let expected = format!("the best that this machine has is {best}");
            return wrong("level", options.level.to_string(), expected);
        }
        Ok(CpuBackend { options, rates: rates::NOMINAL, but: Arc::new(Bf16Products::ALL), pinned: None })
    }

    /// The same with nominal rates for the program of one convolution.
    fn pinned(&self, isolated: &Isolated, program: &Program) -> CpuBackend {
        CpuBackend {
            options: CpuOptions { products: isolated.products(), ..self.options },
            rates: rates::NOMINAL,
            but: Arc::new(Bf16Products::ALL),
            pinned: Some(isolated.volumes(program).into()),
        }
    }

    /// The level of dot products of bf16, if they are requested.
    fn dot(&self) -> Option<DotLevel> {
        match self.options.products {
            Products::F32 => None,
            Products::Bf16 => Some(DotLevel::from_level(self.options.level)),
        }
    }

    /// A description of products that are not f32.
    fn products(&self) -> &'static str {
        match self.dot() {
            None => "",
            Some(level) if level.is_native() => ", bf16 products",
            Some(_) => ", bf16 products in steps of f32",
        }
    }

    /// Lowers programs that are known to be sound.
    fn kernels(&self, programs: &[Program], inline: bool) -> Result<Vec<CpuProgram>, PlanError> {
        programs.iter().try_for_each(|program| self.check_storage(program))?;
        let layouts = assign(programs, self.pinned.as_deref())?;
        let lowered = programs.iter().zip(layouts).map(|(program, layouts)| {
            let nodes = fuse(program, inline).into_iter().map(|node| {
                let cx = Context {
                    name: node.op.name(),
                    program,
                    layouts: &layouts,
                    inputs: &node.inputs,
                    outputs: &node.outputs,
                    threads: self.options.threads,
                    dot: self.dot(),
                    in_f32: &self.but.in_f32,
                };
                let kernels = node.op.lowering().lower(&cx)?;
                self.node(&cx, &node, kernels)
            });
            let nodes = nodes.collect::<Result<_, _>>()?;
            Ok(CpuProgram { layouts, nodes })
        });
        lowered.collect::<Result<_, Unsupported>>().map_err(PlanError::from)
    }

    /// Checks that all volumes of a program are of a type that kernels load and store.
    fn check_storage(&self, program: &Program) -> Result<(), PlanError> {
        match program.tensors.iter().any(|tensor| tensor.dtype == DType::F16) {
            true => Err(PlanError::Storage { backend: self.identity(), dtype: DType::F16 }),
            false => Ok(()),
        }
    }

    fn node(&self, cx: &Context<'_>, node: &FusedNode, kernels: Kernels) -> Result<CpuNode, Unsupported> {
        let Some(scratch) = kernels.scratch_bytes() else {
            return Err(unsupported(cx.name, "its scratch is larger than any memory"));
        };
        let covered = || node.covers.iter().map(|covered| &cx.program.nodes[*covered]);
        let cost = match (kernels.cost, &node.covers[..]) {
            (Some(cost), _) => cost,
            (None, [one]) => cx.program.cost(&cx.program.nodes[*one]),
            (None, _) => cx.streaming(),
        };
        let seconds = rates::seconds(&self.rates, &kernels, cost);
        let Kernels { scratch: pieces, in_place, isolated, bind, .. } = kernels;
        Ok(CpuNode {
            lowered: LoweredNode {
                name: cx.name.into(),
                covers: node.covers.clone(),
                inputs: node.inputs.clone(),
                outputs: node.outputs.clone(),
                scratch,
                in_place,
                may_be_recomputed: covered().all(|node| node.op.rule().may_be_recomputed()),
                cost,
                seconds,
                bound: None,
            },
            scratch: pieces,
            isolated,
            bind,
        })
    }
}

impl Backend for CpuBackend {
    fn identity(&self) -> String {
        let CpuOptions { threads, level, .. } = self.options;
        let pinned = if self.pinned.is_some() { ", one kernel" } else { "" };
        let but = &self.but.in_f32;
        let but = match (self.dot(), but.len()) {
            (None, _) | (_, 0) => String::new(),
            (Some(_), count) => {
                let names: Vec<&[u8]> = but.iter().map(|name| name.as_bytes()).collect();
                format!(" but for {count} shapes ({:08x})", fnv1a(&names.join(&b'\n')) as u32)
            }
        };
        format!("CPU, {level}{}{but}, {threads} threads{pinned}", self.products())
    }

    fn rated(&self) -> String {
        // The names of kernels say what their products are of.
        let CpuOptions { threads, level, .. } = self.options;
        format!("CPU, {level}, {threads} threads")
    }

    fn arithmetic(&self) -> String {
        let pinned = if self.pinned.is_some() { ", one kernel" } else { "" };
        // Exponentials and logarithms come from the C library of the system, and each library rounds in its own way.
        let library = match std::env::consts::OS {
            "linux" => String::new(),
            system => format!(", functions of {system}"),
        };
        format!("CPU, {}{}{pinned}{library}", self.options.level, self.products())
    }

    fn storage(&self, precision: DType) -> DType {
        // Every f16 is an f32.
        if precision == DType::F16 { DType::F32 } else { precision }
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn lower(&self, programs: &[Program], inline: bool) -> Result<Vec<LoweredProgram>, PlanError> {
        agree(programs)?;
        let lowered = self.kernels(programs, inline)?.into_iter().zip(programs).map(|(lowered, program)| {
            let tensors = program.tensors.iter().zip(&lowered.layouts);
            LoweredProgram {
                bytes: tensors.map(|(tensor, layout)| layout.bytes(tensor)).collect(),
                nodes: lowered.nodes.into_iter().map(|node| node.lowered).collect(),
            }
        });
        Ok(lowered.collect())
    }

    fn engine(&self, plan: VerifiedPlan, arena: Reservation) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(self.open(plan, arena, None)?))
    }

    fn with_rates(&self, rates: Option<Rates>) -> Arc<dyn Backend> {
        Arc::new(CpuBackend { rates: rates.unwrap_or(rates::NOMINAL), ..self.clone() })
    }

    fn with_bf16_products(&self, which: &Bf16Products) -> Result<Arc<dyn Backend>, PlanError> {
        let options = CpuOptions { products: Products::Bf16, ..self.options };
        Ok(Arc::new(CpuBackend { options, but: Arc::new(which.clone()), ..self.clone() }))
    }

    fn fastest_products(&self, programs: &[Program]) -> Result<Bf16Products, PlanError> {
        let native = DotLevel::from_level(self.options.level).is_native();
        let rate = |isolated: &Isolated| self.rates.kernels.get(&isolated.name());
        let is_faster = |isolated: &Isolated| match (rate(isolated), rate(&isolated.clone().in_f32())) {
            (Some(bf16), Some(f32)) => bf16 >= f32,
            _ => native,
        };
        let slower =
            self.isolated(programs)?.into_iter().filter(|isolated| isolated.products() == Products::Bf16);
        let in_f32 = slower.filter(|isolated| !is_faster(isolated)).map(|isolated| isolated.in_f32().name());
        Ok(Bf16Products { in_f32: in_f32.collect() })
    }

    fn measure(
        &self,
        known: Option<&Rates>,
        programs: &[Program],
        memory: usize,
    ) -> Result<Option<Rates>, EngineError> {
        let mut learned = known.is_none();
        let mut rates = match known {
            Some(known) => known.clone(),
            None => rates::measure(self.options.threads, memory)?,
        };
        // What cannot be lowered is not planned either: the planner will say so.
        let Ok(lowered) = self.isolated(programs) else { return Ok(learned.then_some(rates)) };
        let native = DotLevel::from_level(self.options.level).is_native();
        // Several instructions for a product are never the faster way: they are not measured.
        let of_bf16 = |isolated: &Isolated| isolated.products() == Products::Bf16;
        let both = lowered.into_iter().flat_map(|isolated| {
            let in_f32 = of_bf16(&isolated).then(|| isolated.clone().in_f32());
            [Some(isolated).filter(|isolated| native || !of_bf16(isolated)), in_f32]
        });
        for isolated in both.flatten() {
            let name = isolated.name();
            if rates.kernels.contains_key(&name) {
                continue;
            }
            let Some(program) = isolated.program() else { continue };
            let pinned = self.pinned(&isolated, &program);
            if let Some(rate) = measure(&program, &pinned, memory)? {
                rates.kernels.insert(name, rate);
                learned = true;
            }
        }
        Ok(learned.then_some(rates))
    }
}

impl CpuBackend {
    /// An engine of a plan with one program that runs on one thread, and the log of what each task of its launches takes there.
    ///
    /// # Errors
    /// Returns the errors of [`Backend::engine`], and an error if the plan has several programs.
    pub fn logged_engine(
        &self,
        plan: VerifiedPlan,
        arena: Reservation,
    ) -> Result<(Box<dyn Engine>, Arc<TaskLog>), EngineError> {
        if plan.programs.len() != 1 {
            let found = format!("of {} programs", plan.programs.len());
            return Err(EngineError::Options {
                option: "a logged plan",
                found,
                expected: "one is possible".into(),
            });
        }
        let log = Arc::new(TaskLog::default());
        let engine = self.open(plan, arena, Some(Arc::clone(&log)))?;
        Ok((Box::new(engine), log))
    }

    fn open(
        &self,
        plan: VerifiedPlan,
        arena: Reservation,
        log: Option<Arc<TaskLog>>,
    ) -> Result<CpuEngine, EngineError> {
        plan.expect_for(self)?;
        // The verifier has compared the plan with this lowering.
        let lowered = self
            .kernels(&plan.programs, plan.inline)
            .map_err(|problem| EngineError::Internal(problem.to_string()))?;
        CpuEngine::new(self.options, lowered, plan, arena, log)
    }

    /// The kernels of some programs that are worth measuring.
    fn isolated(&self, programs: &[Program]) -> Result<Vec<Isolated>, PlanError> {
        agree(programs)?;
        let lowered = self.kernels(programs, true)?;
        Ok(lowered.into_iter().flat_map(|program| program.nodes).filter_map(|node| node.isolated).collect())
    }
}
