//! Functions of CUDA's mathematical library, as NVRTC inlines them, against the host's: long sequences of all
//! kinds of instructions whose result is known.

use crate::common::{Call, Device, Numbers};
use plimsoll_ptx::Module;

fn library() -> Module {
    Module::parse(include_str!("kernels/library.ptx")).unwrap()
}

#[test]
fn singles() {
    let (mut device, mut numbers) = (Device::new(), Numbers(31));
    let x: Vec<f32> = (0..200).map(|_| 8.0 * numbers.float()).collect();
    let dx = device.upload(&x);
    let dy = device.empty(4 * 32 * 200);
    Call::line(4, 64).reads(dx).writes(dy).value(200_i32).run(&library(), "singles", &mut device).unwrap();
    for (&x, found) in x.iter().zip(device.download::<f32>(dy).chunks_exact(32)) {
        // Operands are rounded to f32 like the kernel's; results are not.
        let [v, p] = [x, x.abs() + 0.01].map(f64::from);
        let expected = [
            v.sin(),
            v.cos(),
            f64::from(x * 1e6).sin(),
            v.tan(),
            v.exp(),
            v.exp2(),
            p.ln(),
            p.log2(),
            p.log10(),
            p.powf(2.3_f32.into()),
            p.sqrt(),
            v.cbrt(),
            v.atan2(2.0),
            f64::from(x / 16.0).asin(),
            v.sinh(),
            v.tanh(),
            p.ln_1p(),
            v.exp_m1(),
            v.floor(),
            v.ceil(),
            v.round(),
            v.round_ties_even(),
            v.trunc(),
            v % f64::from(0.3_f32),
            v.hypot(3.0),
            v * 32.0,
            p.copysign(v),
            1.0 / p.sqrt(),
            v / p,
            1.0 / p,
            v.min(1.0),
            v.max(-1.0),
        ];
        for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
            // A few units in the last place; logarithms near one and remainders cancel.
            let error = (f64::from(*found) - expected).abs();
            assert!(error <= 1e-6 * expected.abs() + 1e-7, "result {k} of {x}: {found}, not {expected}");
        }
    }
}

#[test]
fn doubles() {
    let (mut device, mut numbers) = (Device::new(), Numbers(32));
    let x: Vec<f64> =
        (0..200).map(|_| f64::from(numbers.float()) * 8.0 + f64::from(numbers.float()) * 1e-7).collect();
    let dx = device.upload(&x);
    let dy = device.empty(8 * 16 * 200);
    Call::line(4, 64).reads(dx).writes(dy).value(200_i32).run(&library(), "doubles", &mut device).unwrap();
    for (&v, found) in x.iter().zip(device.download::<f64>(dy).chunks_exact(16)) {
        let p = v.abs() + 0.01;
        let expected = [
            v.exp(),
            p.ln(),
            v.tanh(),
            v.cbrt(),
            v.atan(),
            v % 0.3,
            v.round(),
            v.floor(),
            p.sqrt(),
            v.round_ties_even(),
            v.exp2(),
            1.0 / p,
            p.ln_1p(),
            v.exp_m1(),
            v.hypot(3.0),
            1.0 / p.sqrt(),
        ];
        for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs();
            assert!(error <= 2e-15 * expected.abs() + 1e-17, "result {k} of {v}: {found}, not {expected}");
        }
    }
}

#[test]
fn integers() {
    let (mut device, mut numbers) = (Device::new(), Numbers(33));
    let x: Vec<u32> = (0..400).map(|_| numbers.bits() >> (numbers.bits() % 32)).collect();
    let dx = device.upload(&x);
    let dy = device.empty(8 * 24 * 200);
    Call::line(4, 64).reads(dx).writes(dy).value(200_i32).run(&library(), "integers", &mut device).unwrap();
    for (pair, found) in x.chunks_exact(2).zip(device.download::<u64>(dy).chunks_exact(24)) {
        let (a, b) = (pair[0], pair[1] | 1);
        let c = u64::from(a).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b.into());
        let d = c as i64;
        let (sa, sb) = (a as i32, b as i32);
        let bytes: Vec<u8> = a.to_le_bytes().into_iter().chain(b.to_le_bytes()).collect();
        let signed = |value: i64| value as u64;
        let expected = [
            (u64::from(a) * u64::from(b)) >> 32,
            signed((i64::from(sa) * i64::from(sb)) >> 32),
            ((u128::from(c) * u128::from(!c)) >> 64) as u64,
            c / u64::from(b),
            c % u64::from(b),
            signed(d.wrapping_div(sb.into())),
            signed(d.wrapping_rem(sb.into())),
            c.count_ones().into(),
            c.leading_zeros().into(),
            if a == 0 { 0 } else { u64::from(a.trailing_zeros()) + 1 },
            c.reverse_bits(),
            u32::from_le_bytes([bytes[4], bytes[2], bytes[7], bytes[3]]).into(),
            u64::from(((u64::from(b) << 32 | u64::from(a)) << (a % 32) >> 32) as u32),
            u64::from(a.abs_diff(b).wrapping_add(7)),
            c >> (b % 64),
            signed(d >> (b % 64)),
            signed((a as i8).into()),
            signed((b as i16).into()),
            signed(d / 7),
            c % 1_000_003,
            c as f32 as u64,
            signed((sa as f32 as i32).into()),
            (a / 10).into(),
            signed((sa % 10).into()),
        ];
        for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(*found, expected, "result {k} of {a} and {b}");
        }
    }
}
