//! Kernels of everyday CUDA C++, as NVRTC compiles them, against the same on the host.

use crate::common::{Call, Device, Numbers};
use plimsoll_ptx::Module;

fn basics() -> Module {
    Module::parse(include_str!("kernels/basics.ptx")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_file_says_its_kernels_and_its_target() {
    let module = basics();
    let names: Vec<&str> = module.kernels().collect();
    assert_eq!(
        names,
        ["block_sums", "blur", "collatz", "histogram", "median", "mixture", "saxpy", "transpose"]
    );
    assert_eq!(module.target(), "sm_70");
}

#[test]
fn saxpy() {
    let (mut device, mut numbers) = (Device::new(), Numbers(1));
    let (x, y) = (numbers.floats(1000), numbers.floats(1000));
    let (dx, dy) = (device.upload(&x), device.upload(&y));
    let call = Call::line(8, 128).reads(dx).writes(dy).value(1.5_f32).value(1000_i32);
    let counts = call.run(&basics(), "saxpy", &mut device).unwrap_or_else(|fault| panic!("{fault}"));
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x.mul_add(1.5, *y)).collect();
    assert_eq!(device.download::<f32>(dy), expected);
    assert_eq!(counts.sectors_stored, 125);
    assert_eq!(counts.sectors_loaded, 250);
    assert_eq!(counts.global_bytes_stored, 4000);
}

#[test]
fn sums_by_shuffles() {
    let (mut device, mut numbers) = (Device::new(), Numbers(2));
    let x: Vec<f32> = (0..5000).map(|_| (numbers.bits() % 100) as f32).collect();
    let dx = device.upload(&x);
    let sums = device.empty(4 * 4);
    let call = Call::line(4, 256).reads(dx).writes(sums).value(5000_i32).shuffled(3);
    call.run(&basics(), "block_sums", &mut device).unwrap_or_else(|fault| panic!("{fault}"));
    let total: f32 = device.download::<f32>(sums).iter().sum();
    assert_eq!(total, x.iter().sum::<f32>());
}

#[test]
fn a_transpose_through_shared_memory() {
    let (mut device, mut numbers) = (Device::new(), Numbers(3));
    let (rows, columns) = (50, 70);
    let x = numbers.floats(rows * columns);
    let dx = device.upload(&x);
    let dy = device.empty(4 * rows * columns);
    let call = Call::new([3, 2, 1], [32, 8, 1]).reads(dx).writes(dy).value(rows as i32).value(columns as i32);
    let counts = call.run(&basics(), "transpose", &mut device).unwrap_or_else(|fault| panic!("{fault}"));
    let y = device.download::<f32>(dy);
    for row in 0..rows {
        for column in 0..columns {
            assert_eq!(y[column * rows + row], x[row * columns + column]);
        }
    }
    assert_eq!(counts.bank_conflicts, 0);
}

#[test]
fn a_histogram_by_atomic_operations() {
    let (mut device, mut numbers) = (Device::new(), Numbers(4));
    let x: Vec<u8> = (0..10_000).map(|_| (numbers.bits() >> 20) as u8).collect();
    let dx = device.upload(&x);
    let counts = device.upload(&[0_u32; 256]);
    let call = Call::line(5, 192).shared(1024).reads(dx).writes(counts).value(10_000_i32).shuffled(7);
    call.run(&basics(), "histogram", &mut device).unwrap_or_else(|fault| panic!("{fault}"));
    let mut expected = vec![0_u32; 256];
    x.iter().for_each(|&value| expected[usize::from(value)] += 1);
    assert_eq!(device.download::<u32>(counts), expected);
}

#[test]
fn special_functions_and_doubles() {
    let (mut device, mut numbers) = (Device::new(), Numbers(5));
    let x = numbers.floats(4 * 200);
    let dx = device.upload(&x);
    let dy = device.empty(8 * 100);
    let call = Call::line(1, 128)
        .reads(dx)
        .writes(dy)
        .align(16)
        .value(100_i32)
        .value(2_i32)
        .value(0.25_f64)
        .value(0.0_f32)
        .value(7.0_f32)
        .value(0.0_f32)
        .value(0.0_f32);
    call.run(&basics(), "mixture", &mut device).unwrap_or_else(|fault| panic!("{fault}"));
    // Abramowitz and Stegun 7.1.26 is not exact enough: the series of the error function.
    let erf = |x: f64| {
        let mut term = x;
        let mut sum = x;
        for n in 1..40 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    };
    for (i, y) in device.download::<f64>(dy).into_iter().enumerate() {
        let [a, b, c, d] = [0, 1, 2, 3].map(|k| f64::from(x[8 * i + k]));
        let e = a.exp()
            + (b.abs() + 1.0).ln()
            + c.abs().sqrt()
            + d.tanh()
            + 1.0 / (1.0 + (-a).exp())
            + erf(b)
            + 1.0 / (c.abs() + 0.5).sqrt()
            + 7.0;
        let expected = 0.25 * e + d.abs().sqrt() / (1.0 + a * a) + b.exp();
        assert!((y - expected).abs() < 2e-6, "{y} for {expected}");
    }
}

#[test]
fn lanes_part_and_meet_again() {
    let mut device = Device::new();
    let x: Vec<u32> = (1..=300).collect();
    let dx = device.upload(&x);
    let dy = device.empty(4 * 300);
    let call = Call::line(3, 128).reads(dx).writes(dy).value(300_i32);
    call.run(&basics(), "collatz", &mut device).unwrap_or_else(|fault| panic!("{fault}"));
    let expected: Vec<u32> = x
        .iter()
        .map(|&x| {
            let (mut value, mut count) = (u64::from(x), 0_u32);
            while value != 1 {
                value = if value % 2 == 1 { 3 * value + 1 } else { value / 2 };
                count += 1;
            }
            match count % 7 {
                0 => count + 100,
                1 => count * 3,
                2 => count ^ 0x55,
                3 => count.count_ones(),
                4 => count.leading_zeros(),
                5 => count.reverse_bits(),
                _ => count.wrapping_sub(7),
            }
        })
        .collect();
    assert_eq!(device.download::<u32>(dy), expected);
}

#[test]
fn arrays_in_local_memory() {
    let (mut device, mut numbers) = (Device::new(), Numbers(6));
    let x = numbers.floats(200);
    let dx = device.upload(&x);
    let dy = device.empty(4 * 200);
    let call = Call::line(2, 128).reads(dx).writes(dy).value(200_i32);
    let counts = call.run(&basics(), "median", &mut device).unwrap_or_else(|fault| panic!("{fault}"));
    let expected: Vec<f32> = (0..200_i32)
        .map(|i| {
            let mut window: Vec<f32> = (i - 4..=i + 4).map(|j| x[j.clamp(0, 199) as usize]).collect();
            window.sort_by(f32::total_cmp);
            window[4]
        })
        .collect();
    assert_eq!(device.download::<f32>(dy), expected);
    assert!(counts.local_bytes > 0);
}

#[test]
fn constants_and_bytes() {
    let (mut device, mut numbers) = (Device::new(), Numbers(7));
    let x: Vec<u8> = (0..333).map(|_| (numbers.bits() >> 24) as u8).collect();
    let dx = device.upload(&x);
    let dy = device.empty(333);
    let call = Call::line(3, 128).reads(dx).writes(dy).value(333_i32);
    call.run(&basics(), "blur", &mut device).unwrap_or_else(|fault| panic!("{fault}"));
    let expected: Vec<u8> = (0..333_i32)
        .map(|i| {
            let at = |k: i32| f32::from(x[(i + k).clamp(0, 332) as usize]);
            (0.0625 * at(-2) + 0.25 * at(-1) + 0.375 * at(0) + 0.25 * at(1) + 0.0625 * at(2))
                .round_ties_even() as u8
        })
        .collect();
    assert_eq!(device.download::<u8>(dy), expected);
}
