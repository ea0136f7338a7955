//! Instructions of plain kernels.

use std::collections::BTreeMap;

use conformance::emulator::{Blocks, Emulator, Tally};
use conformance::run;
use plimsoll_cuda::Architecture;
use plimsoll_graph::{DType, Window};
use plimsoll_plan::Options;
use plimsoll_ptx::Counts;

use crate::layers::{ALL, layer};

/// The most instructions of a thread for each multiply-add of a small volume, edges and loops included. Inside a volume the innermost loop of a convolution has
/// 2.2 of them: 4 loads of 16 bytes, 4 of weights, 16 multiply-adds, and 11 others.
const MOST: f64 = 4.5;

/// An upper bound of what a card does: the emulator counts instructions of PTX, in which a load has an addition for its address.
#[test]
fn plain_kernels_load_a_weight_once_for_several_results() {
    let (places, channels, outputs) = ([6, 12, 24], 24, 32);
    let window = Window::same([3; 3], [1; 3]);
    let case = layer(window, 1, places, &[24], outputs).case(&ALL, DType::F32, DType::F32);
    let emulator = Emulator::new(Architecture::new(8, 0).unwrap(), Blocks::Ascending);
    let tally: Tally = emulator.tally();
    run(&emulator.backend(), &case, Options::default());
    let counts: BTreeMap<String, Counts> = tally.lock().unwrap().clone();
    // Those that padding leaves out are counted, too, and all threads of all warps have a result.
    let products = (places.iter().product::<usize>() * 27 * channels * outputs) as f64;
    for kernel in ["conv_f32_f32", "conv_transpose_f32_f32", "conv_weight_grad_f32_f32"] {
        let each = counts[kernel].instructions as f64 * 32.0 / products;
        println!("{kernel}: {each:.2} instructions for each multiply-add");
        assert!(each <= MOST, "{kernel}: {each}");
    }
}
