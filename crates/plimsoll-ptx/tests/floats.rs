//! Floating-point arithmetic against definitions of their own: exact values, and searches for the nearest number.

use crate::common::{Numbers, apply, check};

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// The pattern that PTX gives for what is not a number.
fn bits(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
}

const SPECIAL: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    f32::MIN_POSITIVE,
    1e-40,
    -1e-40,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// All pairs of special values, then random ones of many magnitudes.
fn pairs(seed: u32) -> Vec<Vec<u64>> {
    let mut numbers = Numbers(seed);
    let mut rows: Vec<Vec<u64>> = SPECIAL
        .iter()
        .flat_map(|a| SPECIAL.iter().map(|b| vec![u64::from(a.to_bits()), u64::from(b.to_bits())]))
        .collect();
    for _ in 0..500 {
        rows.push(vec![numbers.bits().into(), numbers.bits().into()]);
    }
    rows
}

#[test]
fn rounded_to_nearest() {
    let rows = pairs(1);
    check("fff", "add.f32 $0, $1, $2;", &rows, |row| bits(f(row[0]) + f(row[1])));
    check("fff", "sub.rn.f32 $0, $1, $2;", &rows, |row| bits(f(row[0]) - f(row[1])));
    check("fff", "mul.rn.f32 $0, $1, $2;", &rows, |row| bits(f(row[0]) * f(row[1])));
    check("fff", "div.rn.f32 $0, $1, $2;", &rows, |row| bits(f(row[0]) / f(row[1])));
    check("ff", "sqrt.rn.f32 $0, $1;", &rows, |row| bits(f(row[0]).sqrt()));
    check("ff", "rcp.rn.f32 $0, $1;", &rows, |row| bits(1.0 / f(row[0])));
    check("ff", "abs.f32 $0, $1;", &rows, |row| bits(f(row[0]).abs()));
    check("ff", "neg.f32 $0, $1;", &rows, |row| bits(-f(row[0])));
    check("fff", "copysign.f32 $0, $1, $2;", &rows, |row| (row[0] & 1 << 31) | (row[1] & !(1 << 31)));
}

#[test]
fn a_fused_product_is_rounded_once() {
    // (1 + 2⁻¹²)² − 1 − 2⁻¹¹ is 2⁻²⁴; a product that was rounded first would have lost it.
    let a = u64::from((1.0_f32 + 2.0_f32.powi(-12)).to_bits());
    let c = u64::from((-1.0_f32 - 2.0_f32.powi(-11)).to_bits());
    let exact = 2.0_f32.powi(-24).to_bits();
    assert_eq!(apply("ffff", "fma.rn.f32 $0, $1, $2, $3;", &[vec![a, a, c]]), [u64::from(exact)]);
    // 1 + 2⁻²⁴ + 2⁻⁶⁰ rounds up to the next f32. In f64 the last term is lost, and the tie goes to 1.
    let one = u64::from(1.0_f32.to_bits());
    let tie = u64::from((2.0_f32.powi(-12)).to_bits());
    let product = u64::from((2.0_f32.powi(-12) * (1.0 + 2.0_f32.powi(-23))).to_bits());
    let next = u64::from(1.0_f32.next_up().to_bits());
    assert_eq!(apply("ffff", "fma.rn.f32 $0, $1, $2, $3;", &[vec![tie, product, one]]), [next]);
}

/// Returns `true` if `result` is `exact` rounded in this mode; both finite.
fn rounds(mode: &str, exact: f64, result: f32) -> bool {
    let value = f64::from(result);
    match mode {
        "rz" => {
            let away = if exact < 0.0 { result.next_down() } else { result.next_up() };
            value.abs() <= exact.abs() && (value == exact || f64::from(away).abs() > exact.abs())
        }
        "rm" => value <= exact && f64::from(result.next_up()) > exact,
        "rp" => value >= exact && f64::from(result.next_down()) < exact,
        _ => value == f64::from(exact as f32),
    }
}

#[test]
fn rounded_in_every_mode() {
    let mut numbers = Numbers(2);
    // Magnitudes close enough for f64 to hold sums and products exactly.
    let rows: Vec<Vec<u64>> = (0..1000)
        .map(|_| {
            (0..3)
                .map(|_| {
                    u64::from((numbers.float() * 2.0_f32.powi((numbers.bits() % 4) as i32 - 2)).to_bits())
                })
                .collect()
        })
        .collect();
    for mode in ["rn", "rz", "rm", "rp"] {
        type Exact = fn(f64, f64, f64) -> f64;
        let operations: [(&str, &str, Exact); 4] = [
            ("add", "$1, $2", |a, b, _| a + b),
            ("sub", "$1, $2", |a, b, _| a - b),
            ("mul", "$1, $2", |a, b, _| a * b),
            ("fma", "$1, $2, $3", |a, b, c| a * b + c),
        ];
        for (name, given, exact) in operations {
            // The last three bits of the operands of fma are cleared, so that product and sum fit into 53 bits.
            let rows: Vec<Vec<u64>> = if name == "fma" {
                rows.iter().map(|row| row.iter().map(|bits| bits & !0xf).collect()).collect()
            } else {
                rows.clone()
            };
            let instruction = format!("{name}.{mode}.f32 $0, {given};");
            for (row, result) in rows.iter().zip(apply("ffff", &instruction, &rows)) {
                let exact = exact(f(row[0]).into(), f(row[1]).into(), f(row[2]).into());
                assert!(rounds(mode, exact, f(result)), "{instruction} of {row:x?}: {result:x}");
            }
        }
        // A quotient or a root fits if it is on the right side of the exact one: compared by multiplying back.
        for (row, result) in rows.iter().zip(apply("fff", &format!("div.{mode}.f32 $0, $1, $2;"), &rows)) {
            let (a, b) = (f64::from(f(row[0])), f64::from(f(row[1])));
            let quotient = f(result);
            let side = |value: f32| (f64::from(value) * b - a) * b.signum();
            let fits = match mode {
                "rm" => side(quotient) <= 0.0 && side(quotient.next_up()) > 0.0,
                "rp" => side(quotient) >= 0.0 && side(quotient.next_down()) < 0.0,
                "rz" if a * b > 0.0 => side(quotient) <= 0.0 && side(quotient.next_up()) > 0.0,
                "rz" => side(quotient) >= 0.0 && side(quotient.next_down()) < 0.0,
                _ => quotient == f(row[0]) / f(row[1]),
            };
            assert!(fits, "div.{mode}.f32 of {a} and {b}: {quotient}");
        }
        for (row, result) in rows.iter().zip(apply("ff", &format!("sqrt.{mode}.f32 $0, $1;"), &rows)) {
            let square = f64::from(f(row[0]));
            let root = f(result);
            let side = |value: f32| f64::from(value) * f64::from(value) - square;
            let fits = match mode {
                _ if square < 0.0 => root.is_nan(),
                "rm" | "rz" => side(root) <= 0.0 && side(root.next_up()) > 0.0,
                "rp" => side(root) >= 0.0 && side(root.next_down()) < 0.0,
                _ => root == f(row[0]).sqrt(),
            };
            assert!(fits, "sqrt.{mode}.f32 of {square}: {root}");
        }
    }
    // x − x is −0 only when rounded down.
    let one = u64::from(1.0_f32.to_bits());
    assert_eq!(apply("fff", "sub.rm.f32 $0, $1, $2;", &[vec![one, one]]), [0x8000_0000]);
    assert_eq!(apply("fff", "sub.rp.f32 $0, $1, $2;", &[vec![one, one]]), [0]);
    // Overflow goes to infinity, or to the largest number if that is the direction.
    let most = u64::from(f32::MAX.to_bits());
    assert_eq!(apply("fff", "add.rz.f32 $0, $1, $2;", &[vec![most, most]]), [most]);
    assert_eq!(
        apply("fff", "add.rp.f32 $0, $1, $2;", &[vec![most, most]]),
        [u64::from(f32::INFINITY.to_bits())]
    );
}

#[test]
fn flushed_and_saturated() {
    let rows = pairs(3);
    let flush = |value: f32| if value.is_subnormal() { 0.0_f32.copysign(value) } else { value };
    check("fff", "add.ftz.f32 $0, $1, $2;", &rows, |row| bits(flush(flush(f(row[0])) + flush(f(row[1])))));
    check("fff", "mul.ftz.f32 $0, $1, $2;", &rows, |row| bits(flush(flush(f(row[0])) * flush(f(row[1])))));
    check("fff", "fma.rn.ftz.f32 $0, $1, $2, $1;", &rows, |row| {
        let (a, b) = (flush(f(row[0])), flush(f(row[1])));
        bits(flush(a.mul_add(b, a)))
    });
    check("fff", "add.sat.f32 $0, $1, $2;", &rows, |row| {
        let sum = f(row[0]) + f(row[1]);
        if sum > 0.0 { bits(sum.min(1.0)) } else { 0 }
    });
}

#[test]
fn minima_and_maxima() {
    let rows = pairs(4);
    let order = |a: f32, b: f32| a.total_cmp(&b).is_lt();
    for (name, min) in [("min", true), ("max", false)] {
        let pick = |a: f32, b: f32| if order(a, b) == min { a } else { b };
        check("fff", &format!("{name}.f32 $0, $1, $2;"), &rows, |row| {
            let (a, b) = (f(row[0]), f(row[1]));
            bits(if a.is_nan() {
                b
            } else if b.is_nan() {
                a
            } else {
                pick(a, b)
            })
        });
        check("fff", &format!("{name}.NaN.f32 $0, $1, $2;"), &rows, |row| {
            let (a, b) = (f(row[0]), f(row[1]));
            if a.is_nan() || b.is_nan() { 0x7fff_ffff } else { bits(pick(a, b)) }
        });
    }
}

#[test]
fn doubles() {
    let mut numbers = Numbers(5);
    let mut rows: Vec<Vec<u64>> = (0..300)
        .map(|_| (0..3).map(|_| u64::from(numbers.bits()) << 32 | u64::from(numbers.bits())).collect())
        .collect();
    rows.push([0.0_f64, -0.0, f64::NAN].map(f64::to_bits).into());
    let d = f64::from_bits;
    let bits = |value: f64| if value.is_nan() { 0x7fff_ffff_ffff_ffff } else { value.to_bits() };
    check("ggg", "add.f64 $0, $1, $2;", &rows, |row| bits(d(row[0]) + d(row[1])));
    check("ggg", "sub.f64 $0, $1, $2;", &rows, |row| bits(d(row[0]) - d(row[1])));
    check("ggg", "mul.f64 $0, $1, $2;", &rows, |row| bits(d(row[0]) * d(row[1])));
    check("ggg", "div.rn.f64 $0, $1, $2;", &rows, |row| bits(d(row[0]) / d(row[1])));
    check("gggg", "fma.rn.f64 $0, $1, $2, $3;", &rows, |row| bits(d(row[0]).mul_add(d(row[1]), d(row[2]))));
    check("gg", "sqrt.rn.f64 $0, $1;", &rows, |row| bits(d(row[0]).sqrt()));
    check("gg", "neg.f64 $0, $1;", &rows, |row| bits(-d(row[0])));
    check("gg", "abs.f64 $0, $1;", &rows, |row| bits(d(row[0]).abs()));
    check("ggg", "min.f64 $0, $1, $2;", &rows[..300], |row| {
        let (a, b) = (d(row[0]), d(row[1]));
        bits(if a.is_nan() || b < a { b } else { a })
    });
}

#[test]
fn approximations_are_close() {
    let mut numbers = Numbers(6);
    let rows: Vec<Vec<u64>> = (0..300).map(|_| vec![u64::from((4.0 * numbers.float()).to_bits())]).collect();
    type Exact = fn(f64) -> f64;
    let functions: [(&str, Exact); 8] = [
        ("ex2.approx.f32", f64::exp2),
        ("lg2.approx.f32", f64::log2),
        ("sin.approx.f32", f64::sin),
        ("cos.approx.f32", f64::cos),
        ("tanh.approx.f32", f64::tanh),
        ("rsqrt.approx.f32", |x| x.powf(-0.5)),
        ("rcp.approx.ftz.f32", |x| x.powi(-1)),
        ("sqrt.approx.f32", |x| x.powf(0.5)),
    ];
    for (name, exact) in functions {
        for (row, result) in rows.iter().zip(apply("ff", &format!("{name} $0, $1;"), &rows)) {
            let (exact, result) = (exact(f(row[0]).into()), f64::from(f(result)));
            let fits =
                (exact.is_nan() && result.is_nan()) || (result - exact).abs() <= exact.abs() / 8_388_608.0;
            assert!(fits, "{name} of {}: {result}, not {exact}", f(row[0]));
        }
    }
    let zero = vec![0];
    assert_eq!(
        apply("ff", "lg2.approx.f32 $0, $1;", std::slice::from_ref(&zero)),
        [u64::from(f32::NEG_INFINITY.to_bits())]
    );
    assert_eq!(apply("ff", "rcp.approx.f32 $0, $1;", &[zero]), [u64::from(f32::INFINITY.to_bits())]);
    // A subnormal operand is flushed.
    assert_eq!(apply("ff", "rcp.approx.ftz.f32 $0, $1;", &[vec![1]]), [u64::from(f32::INFINITY.to_bits())]);
}

/// The number that an f16 or a bf16 denotes.
fn half(bits: u64, bfloat: bool) -> f64 {
    let (exponent_bits, fraction_bits) = if bfloat { (8, 7) } else { (5, 10) };
    let field = (bits >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
    let fraction = (bits & ((1 << fraction_bits) - 1)) as f64 / f64::from(1 << fraction_bits);
    let bias = (1 << (exponent_bits - 1)) - 1;
    let sign = if bits >> 15 & 1 == 1 { -1.0 } else { 1.0 };
    match field {
        0 => sign * fraction * 2.0_f64.powi(1 - bias),
        _ if field == 2 * bias + 1 && fraction == 0.0 => sign * f64::INFINITY,
        _ if field == 2 * bias + 1 => f64::NAN,
        _ => sign * (1.0 + fraction) * 2.0_f64.powi(field - bias),
    }
}

/// Returns `true` if no pattern next to `result` is nearer to `exact`, and ties go to even.
fn is_nearest(result: u64, exact: f64, bfloat: bool) -> bool {
    let distance = |bits: u64| (half(bits, bfloat) - exact).abs();
    let neighbours = [result.wrapping_sub(1) & 0xffff, (result + 1) & 0xffff];
    let finite =
        neighbours.into_iter().filter(|&bits| half(bits, bfloat).is_finite() && bits & 0x7fff != 0x7fff);
    finite.clone().all(|other| {
        distance(result) < distance(other)
            || (distance(result) == distance(other) && result.is_multiple_of(2))
    })
}

#[test]
fn halves_are_rounded_once() {
    let mut numbers = Numbers(7);
    for (name, bfloat) in [("f16", false), ("bf16", true)] {
        // Around one, so that all sums and products are exact in f64.
        let around_one = |numbers: &mut Numbers| {
            let field = if bfloat { 120 + numbers.bits() % 14 } else { 10 + numbers.bits() % 10 };
            let fraction = if bfloat { numbers.bits() % 128 } else { numbers.bits() % 1024 };
            u64::from((numbers.bits() & 0x8000) | field << if bfloat { 7 } else { 10 } | fraction)
        };
        let rows: Vec<Vec<u64>> =
            (0..2000).map(|_| (0..3).map(|_| around_one(&mut numbers)).collect()).collect();
        type Exact = fn(f64, f64, f64) -> f64;
        let operations: [(&str, &str, Exact); 4] = [
            ("add", "$1, $2", |a, b, _| a + b),
            ("sub", "$1, $2", |a, b, _| a - b),
            ("mul", "$1, $2", |a, b, _| a * b),
            ("fma.rn", "$1, $2, $3", |a, b, c| a * b + c),
        ];
        for (operation, given, exact) in operations {
            let results = apply("hhhh", &format!("{operation}.{name} $0, {given};"), &rows);
            for (row, &result) in rows.iter().zip(&results) {
                let exact = exact(half(row[0], bfloat), half(row[1], bfloat), half(row[2], bfloat));
                assert!(is_nearest(result, exact, bfloat), "{operation}.{name} of {row:x?}: {result:x}");
            }
            // A pair is two of them.
            let paired: Vec<Vec<u64>> = rows
                .chunks_exact(2)
                .map(|two| (0..3).map(|at| two[0][at] | two[1][at] << 16).collect())
                .collect();
            let pairs = apply("rrrr", &format!("{operation}.{name}x2 $0, {given};"), &paired);
            for (pair, two) in pairs.iter().zip(results.chunks_exact(2)) {
                assert_eq!(*pair, two[0] | two[1] << 16, "{operation}.{name}x2");
            }
        }
        check("hh", &format!("neg.{name} $0, $1;"), &rows, |row| row[0] ^ 0x8000);
        check("hh", &format!("abs.{name} $0, $1;"), &rows, |row| row[0] & 0x7fff);
        check("hhh", &format!("max.{name} $0, $1, $2;"), &rows, |row| {
            row[if half(row[0], bfloat) > half(row[1], bfloat) { 0 } else { 1 }]
        });
        check("rhh", &format!("setp.lt.{name} %p1, $1, $2; selp.b32 $0, 1, 0, %p1;"), &rows, |row| {
            (half(row[0], bfloat) < half(row[1], bfloat)).into()
        });
    }
    check(
        "hh",
        "fma.rn.relu.f16 $0, $1, $1, -1.0;".replace("-1.0", "0xbc00").as_str(),
        &[vec![0], vec![0x4000]],
        |row| {
            if row[0] == 0 { 0 } else { 0x4200 }
        },
    );
}

#[test]
fn sums_of_doubles_in_every_mode() {
    let d = f64::from_bits;
    // Whole numbers and quarters below 2⁵³: their sums are exact in 128 bits.
    let mut numbers = Numbers(8);
    let rows: Vec<Vec<u64>> = (0..500)
        .map(|_| {
            let mut value = || {
                let whole = f64::from(numbers.bits()) * 2_097_152.0 + f64::from(numbers.bits() % 2_097_152);
                let scaled = whole * 2.0_f64.powi((numbers.bits() % 12) as i32);
                if numbers.bits().is_multiple_of(2) { scaled } else { -scaled }
            };
            vec![value().to_bits(), value().to_bits()]
        })
        .collect();
    for (mode, name) in
        [("rz", "add"), ("rm", "add"), ("rp", "add"), ("rn", "add"), ("rz", "sub"), ("rp", "sub")]
    {
        for (row, result) in rows.iter().zip(apply("ggg", &format!("{name}.{mode}.f64 $0, $1, $2;"), &rows)) {
            let sign = if name == "add" { 1 } else { -1 };
            let exact = d(row[0]) as i128 + sign * d(row[1]) as i128;
            let whole = |value: f64| value as i128;
            let result = d(result);
            let away = if exact < 0 { result.next_down() } else { result.next_up() };
            let fits = whole(result) == exact
                || match mode {
                    "rz" => whole(result).abs() < exact.abs() && whole(away).abs() > exact.abs(),
                    "rm" => whole(result) < exact && whole(result.next_up()) > exact,
                    "rp" => whole(result) > exact && whole(result.next_down()) < exact,
                    _ => result == exact as f64,
                };
            assert!(fits, "{name}.{mode}.f64 of {} and {}: {result}", d(row[0]), d(row[1]));
        }
    }
    let most = f64::MAX.to_bits();
    assert_eq!(apply("ggg", "add.rz.f64 $0, $1, $2;", &[vec![most, most]]), [most]);
    assert_eq!(apply("ggg", "add.rp.f64 $0, $1, $2;", &[vec![most, most]]), [f64::INFINITY.to_bits()]);
    assert_eq!(apply("ggg", "sub.rm.f64 $0, $1, $2;", &[vec![most, most]]), [(-0.0_f64).to_bits()]);
}
