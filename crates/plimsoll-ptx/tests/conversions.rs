//! `cvt` and comparisons against definitions of their own: searches for the nearest number, and exact integers.

use crate::common::{Numbers, apply, check, operands};

/// f32 of all kinds.
fn floats(random: usize) -> Vec<Vec<u64>> {
    let special = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        0.499_999_97,
        1e-40,
        -1e-40,
        6.1e-5,
        5.96e-8,
        2.98e-8,
        65504.0,
        65519.0,
        65520.0,
        1e10,
        -1e10,
        3e38,
        2_147_483_600.0,
        4_294_967_300.0,
        9.3e18,
        -9.3e18,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut numbers = Numbers(21);
    let mut rows: Vec<Vec<u64>> = special.iter().map(|value| vec![u64::from(value.to_bits())]).collect();
    for _ in 0..random {
        let value = numbers.float() * 2.0_f32.powi((numbers.bits() % 60) as i32 - 30);
        rows.push(vec![value.to_bits().into()]);
    }
    rows
}

/// The numbers that 16 bits denote, by the formula of IEEE 754.
fn half(bits: u16, exponent_bits: u32) -> f64 {
    let fraction_bits = 15 - exponent_bits;
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let field = i32::from(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
    let bias = (1 << (exponent_bits - 1)) - 1;
    if field == (1 << exponent_bits) - 1 {
        return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    if field == 0 {
        sign * fraction * 2.0_f64.powi(1 - bias)
    } else {
        sign * (1.0 + fraction) * 2.0_f64.powi(field - bias)
    }
}

/// Returns, of all 65,536 patterns, the one that rounding must yield.
fn nearest_half(value: f64, exponent_bits: u32, mode: &str) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = u16::from(value.is_sign_negative()) << 15;
    let size = value.abs();
    let infinity = ((1_u16 << exponent_bits) - 1) << (15 - exponent_bits);
    // The positive patterns ascend with their values.
    let (mut low, mut high) = (0, infinity);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if half(middle, exponent_bits) <= size { low = middle } else { high = middle }
    }
    if size.is_infinite() {
        return sign | infinity;
    }
    let below = half(low, exponent_bits);
    // The step beyond the largest number is as wide as the one before it.
    let above =
        if high == infinity { 2.0 * below - half(low - 1, exponent_bits) } else { half(high, exponent_bits) };
    let up = match mode {
        "rz" => false,
        _ => size - below > above - size || (size - below == above - size && low % 2 == 1),
    };
    sign | if up && size != below { high } else { low }
}

#[test]
fn f32_to_halves() {
    let rows = floats(3000);
    for mode in ["rn", "rz"] {
        for (name, bits) in [("f16", 5), ("bf16", 8)] {
            check("hf", &format!("cvt.{mode}.{name}.f32 $0, $1;"), &rows, |row| {
                nearest_half(f32::from_bits(row[0] as u32).into(), bits, mode).into()
            });
            let pairs: Vec<Vec<u64>> = rows.windows(2).map(|two| vec![two[0][0], two[1][0]]).collect();
            check("rff", &format!("cvt.{mode}.{name}x2.f32 $0, $1, $2;"), &pairs, |row| {
                let [a, b] = [0, 1].map(|at| nearest_half(f32::from_bits(row[at] as u32).into(), bits, mode));
                u64::from(a) << 16 | u64::from(b)
            });
        }
    }
    check("hf", "cvt.rn.relu.bf16.f32 $0, $1;", &rows, |row| {
        let value = f64::from(f32::from_bits(row[0] as u32));
        nearest_half(if value <= 0.0 { 0.0 } else { value }, 8, "rn").into()
    });
}

#[test]
fn halves_to_f32_all_of_them() {
    let rows: Vec<Vec<u64>> = (0..=0xffff).map(|bits| vec![bits]).collect();
    for (name, exponent_bits) in [("f16", 5), ("bf16", 8)] {
        check("fh", &format!("cvt.f32.{name} $0, $1;"), &rows, |row| {
            let value = half(row[0] as u16, exponent_bits);
            if value.is_nan() { 0x7fff_ffff } else { (value as f32).to_bits().into() }
        });
    }
}

#[test]
fn f32_to_tf32() {
    // Ten bits of mantissa: 13 are rounded away, ties away from zero.
    check("rf", "cvt.rna.tf32.f32 $0, $1;", &floats(1000), |row| {
        let value = f32::from_bits(row[0] as u32);
        if value.is_nan() {
            return 0x7fff_e000;
        }
        if value.is_infinite() {
            return row[0];
        }
        (row[0] + 0x1000) & 0xffff_e000
    });
}

#[test]
fn floats_to_integers() {
    let rows = floats(1000);
    type Round = fn(f64) -> f64;
    let modes: [(&str, Round); 4] =
        [("rni", f64::round_ties_even), ("rzi", f64::trunc), ("rmi", f64::floor), ("rpi", f64::ceil)];
    let targets = [
        ("s16", 'h', -32768.0, 32767.0, 16),
        ("u16", 'h', 0.0, 65535.0, 16),
        ("s32", 'r', -2_147_483_648.0, 2_147_483_647.0, 32),
        ("u32", 'r', 0.0, 4_294_967_295.0, 32),
        ("s64", 'd', -9_223_372_036_854_775_808.0, 9_223_372_036_854_775_807.0, 64),
        ("u64", 'd', 0.0, 18_446_744_073_709_551_615.0, 64),
    ];
    for (mode, round) in modes {
        for (name, class, least, most, bits) in targets {
            check(&format!("{class}f"), &format!("cvt.{mode}.{name}.f32 $0, $1;"), &rows, |row| {
                let value = f64::from(f32::from_bits(row[0] as u32));
                if value.is_nan() {
                    return if bits == 64 { 1 << 63 } else { 0 };
                }
                let value = round(value).clamp(least, most);
                // 2⁶³ and 2⁶⁴ themselves are beyond the largest integer.
                let wide =
                    (value as i128).min(if least < 0.0 { (1 << (bits - 1)) - 1 } else { (1 << bits) - 1 });
                (wide & ((1_i128 << bits) - 1)) as u64
            });
        }
    }
    assert_eq!(apply("rg", "cvt.rzi.s32.f64 $0, $1;", &[vec![f64::NAN.to_bits()]]), [0x8000_0000]);
    assert_eq!(
        apply("rg", "cvt.rni.u32.f64 $0, $1;", &[vec![2.5_f64.to_bits()], vec![(-7.0_f64).to_bits()]]),
        [2, 0]
    );
}

#[test]
fn integers_to_floats() {
    for (name, class, bits, signed) in
        [("s32", 'r', 32, true), ("u32", 'r', 32, false), ("s64", 'd', 64, true), ("u64", 'd', 64, false)]
    {
        let rows = operands(&[bits], 500, 22);
        let exact = |row: &[u64]| {
            let value = i128::from(row[0]);
            if signed && value >> (bits - 1) == 1 { value - (1 << bits) } else { value }
        };
        for mode in ["rn", "rz", "rm", "rp"] {
            let results = apply(&format!("f{class}"), &format!("cvt.{mode}.f32.{name} $0, $1;"), &rows);
            for (row, result) in rows.iter().zip(results) {
                let result = f32::from_bits(result as u32);
                let whole = |value: f32| value as i128;
                let exact = exact(row);
                let (below, above) = (result.next_down(), result.next_up());
                let fits = match mode {
                    _ if whole(result) == exact && result.fract() == 0.0 => true,
                    "rz" => {
                        whole(result).abs() <= exact.abs()
                            && whole(if exact < 0 { below } else { above }).abs() > exact.abs()
                    }
                    "rm" => whole(result) <= exact && (whole(above) > exact || result == 0.0),
                    "rp" => whole(result) >= exact && (whole(below) < exact || result == 0.0),
                    _ => {
                        let error = (whole(result) - exact).abs();
                        let others = [below, above].map(|other| (whole(other) - exact).abs());
                        error < others[0].min(others[1])
                            || (error == others[0].min(others[1]) && result.to_bits().is_multiple_of(2))
                            || error == 0
                    }
                };
                assert!(fits, "cvt.{mode}.f32.{name} of {exact}: {result}");
            }
        }
        check(&format!("g{class}"), &format!("cvt.rn.f64.{name} $0, $1;"), &rows, |row| {
            (exact(row) as f64).to_bits()
        });
    }
}

#[test]
fn integers_to_integers() {
    let types = [("s8", 8, true), ("u8", 8, false), ("s16", 16, true), ("u16", 16, false), ("s32", 32, true)];
    let types = types.into_iter().chain([("u32", 32, false), ("s64", 64, true), ("u64", 64, false)]);
    let class = |bits| if bits == 64 { 'd' } else { 'r' };
    for (from, from_bits, from_signed) in types.clone() {
        let rows = operands(&[from_bits], 100, 23);
        for (to, to_bits, to_signed) in types.clone() {
            let exact = |row: &[u64]| {
                let value = i128::from(row[0]);
                if from_signed && value >> (from_bits - 1) & 1 == 1 {
                    value - (1 << from_bits)
                } else {
                    value
                }
            };
            let classes = format!("{}{}", class(to_bits), class(from_bits));
            let register = to_bits.max(32);
            // A signed result is extended to its register.
            let stored = |value: i128| {
                let cut = value & ((1_i128 << to_bits) - 1);
                let cut = if to_signed && cut >> (to_bits - 1) == 1 { cut - (1 << to_bits) } else { cut };
                (cut & ((1_i128 << register) - 1)) as u64
            };
            check(&classes, &format!("cvt.{to}.{from} $0, $1;"), &rows, |row| stored(exact(row)));
            let (least, most) = if to_signed {
                (-(1_i128 << (to_bits - 1)), (1_i128 << (to_bits - 1)) - 1)
            } else {
                (0, (1 << to_bits) - 1)
            };
            check(&classes, &format!("cvt.sat.{to}.{from} $0, $1;"), &rows, |row| {
                stored(exact(row).clamp(least, most))
            });
        }
    }
}

#[test]
fn between_f32_and_f64() {
    let rows = floats(500);
    check("gf", "cvt.f64.f32 $0, $1;", &rows, |row| {
        let value = f64::from(f32::from_bits(row[0] as u32));
        if value.is_nan() { 0x7fff_ffff_ffff_ffff } else { value.to_bits() }
    });
    let mut numbers = Numbers(24);
    let doubles: Vec<Vec<u64>> = (0..500)
        .map(|_| {
            let value = f64::from(numbers.float()) * (1.0 + f64::from(numbers.float()) / 1e8);
            vec![(value * 2.0_f64.powi((numbers.bits() % 300) as i32 - 150)).to_bits()]
        })
        .collect();
    for mode in ["rn", "rz", "rm", "rp"] {
        for (row, result) in doubles.iter().zip(apply("fg", &format!("cvt.{mode}.f32.f64 $0, $1;"), &doubles))
        {
            let exact = f64::from_bits(row[0]);
            let result = f32::from_bits(result as u32);
            let value = f64::from(result);
            let fits = match mode {
                "rn" => result == exact as f32,
                "rz" => {
                    value.abs() <= exact.abs()
                        && f64::from(f32::from_bits(result.to_bits() + 1)).abs() > exact.abs()
                }
                "rm" => value <= exact && f64::from(result.next_up()) > exact,
                _ => value >= exact && f64::from(result.next_down()) < exact,
            };
            assert!(fits, "cvt.{mode}.f32.f64 of {exact}: {result}");
        }
    }
    check("ff", "cvt.sat.f32.f32 $0, $1;", &rows, |row| {
        let value = f32::from_bits(row[0] as u32);
        if value.is_nan() { 0 } else { (value.clamp(0.0, 1.0) + 0.0).to_bits().into() }
    });
    check("ff", "cvt.rni.ftz.f32.f32 $0, $1;", &rows, |row| {
        let value = f32::from_bits(row[0] as u32);
        if value.is_nan() { 0x7fff_ffff } else { value.round_ties_even().to_bits().into() }
    });
}

#[test]
fn comparisons_know_what_is_not_a_number() {
    let values = [f32::NAN, f32::NEG_INFINITY, -1.0, -0.0, 0.0, 1e-40, 1.0, f32::INFINITY];
    let rows: Vec<Vec<u64>> = values
        .iter()
        .flat_map(|a| values.iter().map(|b| vec![u64::from(a.to_bits()), u64::from(b.to_bits())]))
        .collect();
    use std::cmp::Ordering::{Equal, Greater, Less};
    let relations = [
        ("eq", vec![Equal]),
        ("ne", vec![Less, Greater]),
        ("lt", vec![Less]),
        ("le", vec![Less, Equal]),
        ("gt", vec![Greater]),
        ("ge", vec![Greater, Equal]),
    ];
    for (name, accepted) in relations {
        for (suffix, unordered) in [("", false), ("u", true)] {
            let instruction = format!("setp.{name}{suffix}.f32 %p1, $1, $2; selp.b32 $0, 1, 0, %p1;");
            check("rff", &instruction, &rows, |row| {
                let [a, b] = [0, 1].map(|at| f32::from_bits(row[at] as u32));
                a.partial_cmp(&b).map_or(unordered, |order| accepted.contains(&order)).into()
            });
        }
        for (kind, class, bits, signed) in
            [("s32", 'r', 32, true), ("u32", 'r', 32, false), ("s64", 'd', 64, true), ("u16", 'h', 16, false)]
        {
            let instruction = format!("setp.{name}.{kind} %p1, $1, $2; selp.b32 $0, 1, 0, %p1;");
            check(&format!("r{class}{class}"), &instruction, &operands(&[bits, bits], 50, 25), |row| {
                let exact = |bits_of: u64| {
                    let value = i128::from(bits_of);
                    if signed && value >> (bits - 1) & 1 == 1 { value - (1 << bits) } else { value }
                };
                accepted.contains(&exact(row[0]).cmp(&exact(row[1]))).into()
            });
        }
    }
    for (name, wanted) in [("num", false), ("nan", true)] {
        let instruction = format!("setp.{name}.f32 %p1, $1, $2; selp.b32 $0, 1, 0, %p1;");
        check("rff", &instruction, &rows, |row| {
            (row.iter().any(|&bits| f32::from_bits(bits as u32).is_nan()) == wanted).into()
        });
    }
    // Flushed, a subnormal number equals zero.
    assert_eq!(apply("rff", "setp.eq.ftz.f32 %p1, $1, $2; selp.b32 $0, 1, 0, %p1;", &[vec![1, 0]]), [1]);
}

#[test]
fn comparisons_combine_with_predicates() {
    let rows = operands(&[32, 32], 20, 26);
    type Logic = fn(bool, bool) -> bool;
    let logics: [(&str, Logic); 3] = [("and", |a, b| a && b), ("or", |a, b| a || b), ("xor", |a, b| a != b)];
    for (name, logic) in logics {
        for negated in [false, true] {
            let third = if negated { "!%p3" } else { "%p3" };
            let instruction = format!(
                "setp.gt.u32 %p3, $2, 100; setp.lt.{name}.s32 %p1|%p2, $1, $2, {third}; selp.b32 %r30, 1, 0, %p1; \
                 selp.b32 %r31, 2, 0, %p2; or.b32 $0, %r30, %r31;"
            );
            check("rrr", &instruction, &rows, |row| {
                let less = (row[0] as i32) < (row[1] as i32);
                let third = (row[1] > 100) != negated;
                u64::from(logic(less, third)) | u64::from(logic(!less, third)) << 1
            });
        }
    }
}

#[test]
fn selections_and_classes() {
    let rows = operands(&[32, 32, 32], 50, 27);
    check("rrrr", "slct.u32.s32 $0, $1, $2, $3;", &rows, |row| row[if row[2] as i32 >= 0 { 0 } else { 1 }]);
    check("rrrf", "slct.u32.f32 $0, $1, $2, $3;", &rows, |row| {
        row[if f32::from_bits(row[2] as u32) >= 0.0 { 0 } else { 1 }]
    });
    type Class = fn(f32) -> bool;
    let classes: [(&str, Class); 6] = [
        ("finite", f32::is_finite),
        ("infinite", f32::is_infinite),
        ("number", |value| !value.is_nan()),
        ("notanumber", f32::is_nan),
        ("normal", f32::is_normal),
        ("subnormal", f32::is_subnormal),
    ];
    for (name, class) in classes {
        let instruction = format!("testp.{name}.f32 %p1, $1; selp.b32 $0, 1, 0, %p1;");
        check("rf", &instruction, &floats(10), |row| class(f32::from_bits(row[0] as u32)).into());
    }
    check("rrr", "set.lt.u32.s32 $0, $1, $2;", &rows, |row| {
        if (row[0] as i32) < (row[1] as i32) { 0xffff_ffff } else { 0 }
    });
}
