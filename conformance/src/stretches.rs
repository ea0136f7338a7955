//! Tensors that are read and written in stretches, and programs that run in stretches of launches.

use plimsoll_graph::DType;
use plimsoll_plan::{Backend, HostSlice, HostSliceMut, Options};

use crate::{Case, engine_for, read, results, run, start, values, write};

/// Stretches of `count` elements that cover all of them, the last first, as long as rows of no layout.
fn stretches(count: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let length = (count / 3 + 1) | 1;
    (0..count.div_ceil(length)).rev().map(move |number| number * length..count.min((number + 1) * length))
}

/// Checks that parameters and states which are written and read in stretches have the values of the whole, and that a program which runs in
/// stretches of its launches, with its states read in between, has the results of one run.
///
/// # Panics
/// Panics if a value differs.
pub fn check_stretches(backend: &dyn Backend, case: &Case) {
    let (mut engine, id) = start(backend, case, Options::default());
    let program = &case.program;
    for tensor in program.ids().filter(|tensor| program.tensor(*tensor).role.is_persistent()) {
        let info = program.tensor(tensor);
        let name = format!("{}: {}", case.name, info.name);
        if matches!(info.dtype, DType::F64 | DType::U8) {
            continue;
        }
        let count = info.shape.count();
        // Exact in sixteen bits.
        let numbers: Vec<f32> = (0..count).map(|place| (place % 251) as f32).collect();
        engine.clear(id, tensor).unwrap();
        assert!(read(&*engine, id, tensor).iter().all(|value| *value == 0.0), "{name} is not cleared");
        for stretch in stretches(count) {
            let values = HostSlice::F32(&numbers[stretch.clone()]);
            engine.write_at(id, tensor, stretch.start, values).unwrap();
        }
        let mut found = vec![f32::NAN; count];
        for stretch in stretches(count) {
            let values = HostSliceMut::F32(&mut found[stretch.clone()]);
            engine.read_from(id, tensor, stretch.start, values).unwrap();
        }
        assert!(found == numbers, "{name}: stretches are not the whole");
        let whole: Vec<f64> = numbers.iter().copied().map(f64::from).collect();
        assert!(read(&*engine, id, tensor) == whole, "{name}: written stretches are not the whole");
        let beyond = engine.write_at(id, tensor, count, HostSlice::F32(&[0.0]));
        assert!(beyond.is_err(), "{name}: a value beyond the tensor was written");
    }
    check_launches(backend, case);
}

fn check_launches(backend: &dyn Backend, case: &Case) {
    let program = &case.program;
    let options = Options::default();
    let whole = run(backend, case, options);
    let mut engine = engine_for(backend, std::slice::from_ref(program), options).unwrap();
    let id = engine.plan().find(&program.name).unwrap();
    for (name, array) in values(case) {
        write(&mut *engine, id, program.find(&name).unwrap(), &array.data);
    }
    let launches = engine.plan().schedule(id).launches.len();
    let mut in_order: Vec<_> = stretches(launches).collect();
    in_order.reverse();
    for stretch in in_order {
        engine.run_launches(id, stretch).unwrap();
        for tensor in program.ids().filter(|tensor| program.tensor(*tensor).role.is_persistent()) {
            read(&*engine, id, tensor);
        }
    }
    assert!(engine.run_launches(id, launches..launches + 1).is_err(), "{}: a launch too many", case.name);
    for tensor in results(program) {
        let name = &program.tensor(tensor).name;
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<u64>>();
        let found = read(&*engine, id, tensor);
        assert!(bits(&found) == bits(&whole[name]), "{}: {name} after launches in stretches", case.name);
    }
}
