//! The memory of remembered plans has a bound, which the heap agrees with.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "plans/paper.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod paper;

use plimsoll_graph::ops::{Add, LeakyRelu};
use plimsoll_graph::{Kind, Program, Shape};
use plimsoll_memory::{CountingAllocator, heap_use};
use plimsoll_plan::{Goal, Options, Planner, Plans};

use paper::Paper;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A program of this number of nodes with skip connections.
fn chain(nodes: usize) -> Program {
    let mut program = Program::new("step");
    let mut values = vec![program.input("image", Shape::volume(1, 16, [2, 2, 2]), Kind::Volume)];
    for place in 0..nodes {
        let last = values[place];
        let next = match place % 3 {
            2 => program.push_one(Add, &[last, values[place - 2]]),
            _ => program.push_one(LeakyRelu { slope: 0.01 }, &[last]),
        };
        values.push(next.unwrap());
    }
    program.mark_output(values[nodes], "result");
    program
}

#[test]
fn remembered_plans_take_what_is_counted_and_no_more_than_their_bound() {
    let plans = Plans::default();
    let plan = |nodes: usize, budget: usize| {
        let given = [chain(nodes)];
        let planner = Planner::new(&given, &Paper, Options::default()).unwrap();
        plans.plan(&planner, Goal::Fastest { budget: Some(budget) }).unwrap();
        Plans::most_bytes(&given)
    };
    let empty = heap_use().now.0;
    let mut most = 0;
    for budget in 0..20 {
        most = plan(2000, (1 << 30) + budget);
        let (counted, held) = (plans.bytes() as f64, (heap_use().now.0 - empty) as f64);
        assert!(plans.bytes() <= most, "{counted} of {most} bytes");
        assert!((0.8..=1.25).contains(&(counted / held)), "{counted} bytes are counted, {held} are held");
    }
    assert!(plans.bytes() > most / 3, "several plans are remembered: {} of {most} bytes", plans.bytes());
    // A run of a small network holds none of a large one's.
    let small = plan(10, 1 << 30);
    assert!(small < most && plans.bytes() <= small, "{} of {small} bytes", plans.bytes());
    // Nor after its plan was found again.
    assert_eq!(plan(10, 1 << 30), small);
    assert!(plans.bytes() <= small);
}
