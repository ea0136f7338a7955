//! Integer and bit instructions against definitions of their own: numbers of 128 bits, and bits one by one.

use crate::common::{apply, check, operands};

/// The integer that `bits` of a register denote.
fn value(register: u64, bits: u32, signed: bool) -> i128 {
    let modulus = 1_i128 << bits;
    let value = i128::from(register) & (modulus - 1);
    if signed && value >= modulus / 2 { value - modulus } else { value }
}

fn truncated(value: i128, bits: u32) -> u64 {
    (value & ((1_i128 << bits) - 1)) as u64
}

const TYPES: [(&str, char, u32, bool); 6] = [
    ("s16", 'h', 16, true),
    ("u16", 'h', 16, false),
    ("s32", 'r', 32, true),
    ("u32", 'r', 32, false),
    ("s64", 'd', 64, true),
    ("u64", 'd', 64, false),
];

#[test]
fn arithmetic_of_two_operands() {
    for (name, class, bits, signed) in TYPES {
        let rows = operands(&[bits, bits], 300, 1);
        let classes = format!("{class}{class}{class}");
        let two = |operation: &str, definition: &dyn Fn(i128, i128) -> i128| {
            check(&classes, &format!("{operation}.{name} $0, $1, $2;"), &rows, |row| {
                truncated(definition(value(row[0], bits, signed), value(row[1], bits, signed)), bits)
            });
        };
        two("add", &|a, b| a + b);
        two("sub", &|a, b| a - b);
        two("mul.lo", &|a, b| a.wrapping_mul(b));
        two("min", &|a, b| a.min(b));
        two("max", &|a, b| a.max(b));
        two("div", &|a, b| if b == 0 { -1 } else { a / b });
        two("rem", &|a, b| if b == 0 { -1 } else { a % b });
        if bits < 64 {
            two("mul.hi", &|a, b| (a * b) >> bits);
        } else {
            // Schoolbook multiplication of halves, since the product does not fit into 128 bits with a sign.
            check(&classes, &format!("mul.hi.{name} $0, $1, $2;"), &rows, |row| {
                let (a, b) = (row[0], row[1]);
                let (a1, a0, b1, b0) = (a >> 32, a & 0xffff_ffff, b >> 32, b & 0xffff_ffff);
                let low = |product: u64| product & 0xffff_ffff;
                let middle = ((a0 * b0) >> 32) + low(a1 * b0) + low(a0 * b1);
                let mut high = a1 * b1 + ((a1 * b0) >> 32) + ((a0 * b1) >> 32) + (middle >> 32);
                if signed && a >> 63 == 1 {
                    high = high.wrapping_sub(b);
                }
                if signed && b >> 63 == 1 {
                    high = high.wrapping_sub(a);
                }
                high
            });
        }
    }
}

#[test]
fn products_that_are_added_or_wide() {
    for (name, class, bits, signed) in TYPES {
        let rows = operands(&[bits, bits, bits], 300, 2);
        let classes = format!("{class}{class}{class}{class}");
        check(&classes, &format!("mad.lo.{name} $0, $1, $2, $3;"), &rows, |row| {
            row[0].wrapping_mul(row[1]).wrapping_add(row[2]) & truncated(-1, bits)
        });
        check(&classes, &format!("sad.{name} $0, $1, $2, $3;"), &rows, |row| {
            let (a, b) = (value(row[0], bits, signed), value(row[1], bits, signed));
            truncated((a - b).abs() + i128::from(row[2]), bits)
        });
        if bits == 64 {
            continue;
        }
        check(&classes, &format!("mad.hi.{name} $0, $1, $2, $3;"), &rows, |row| {
            let [a, b, c] = [0, 1, 2].map(|at| value(row[at], bits, signed));
            truncated(((a * b) >> bits) + c, bits)
        });
        let wide = if bits == 16 { 'r' } else { 'd' };
        let rows = operands(&[bits, bits, 2 * bits], 300, 3);
        check(&format!("{wide}{class}{class}"), &format!("mul.wide.{name} $0, $1, $2;"), &rows, |row| {
            truncated(value(row[0], bits, signed) * value(row[1], bits, signed), 2 * bits)
        });
        let classes = format!("{wide}{class}{class}{wide}");
        check(&classes, &format!("mad.wide.{name} $0, $1, $2, $3;"), &rows, |row| {
            let product = value(row[0], bits, signed) * value(row[1], bits, signed);
            truncated(product + i128::from(row[2]), 2 * bits)
        });
    }
}

#[test]
fn arithmetic_of_one_operand() {
    for (name, class, bits, signed) in TYPES {
        if signed {
            let rows = operands(&[bits], 100, 4);
            let classes = format!("{class}{class}");
            check(&classes, &format!("neg.{name} $0, $1;"), &rows, |row| {
                truncated(-value(row[0], bits, true), bits)
            });
            check(&classes, &format!("abs.{name} $0, $1;"), &rows, |row| {
                truncated(value(row[0], bits, true).abs(), bits)
            });
        }
    }
}

#[test]
fn saturated_sums() {
    let rows = operands(&[32, 32], 300, 5);
    for (operation, sign) in [("add", 1), ("sub", -1)] {
        check("rrr", &format!("{operation}.sat.s32 $0, $1, $2;"), &rows, |row| {
            let sum = value(row[0], 32, true) + sign * value(row[1], 32, true);
            truncated(sum.clamp(i32::MIN.into(), i32::MAX.into()), 32)
        });
    }
}

#[test]
fn logic_and_shifts() {
    for (class, bits) in [('h', 16), ('r', 32), ('d', 64)] {
        let rows = operands(&[bits, bits], 200, 6);
        let classes = format!("{class}{class}{class}");
        let bitwise = |definition: &dyn Fn(bool, bool) -> bool, row: &[u64]| {
            let bit = |at: u32| definition(row[0] >> at & 1 == 1, row[1] >> at & 1 == 1);
            (0..bits).filter(|&at| bit(at)).fold(0, |sum, at| sum | 1_u64 << at)
        };
        check(&classes, &format!("and.b{bits} $0, $1, $2;"), &rows, |row| bitwise(&|a, b| a && b, row));
        check(&classes, &format!("or.b{bits} $0, $1, $2;"), &rows, |row| bitwise(&|a, b| a || b, row));
        check(&classes, &format!("xor.b{bits} $0, $1, $2;"), &rows, |row| bitwise(&|a, b| a != b, row));
        let one = format!("{class}{class}");
        check(&one, &format!("not.b{bits} $0, $1;"), &rows, |row| bitwise(&|a, _| !a, row));
        check(&one, &format!("cnot.b{bits} $0, $1;"), &rows, |row| u64::from(row[0] == 0));
        let mut shifts: Vec<Vec<u64>> = Vec::new();
        for row in operands(&[bits], 20, 7) {
            for amount in [0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 65, 1000, 0xffff_ffff] {
                shifts.push(vec![row[0], amount]);
            }
        }
        let classes = format!("{class}{class}r");
        // A bit comes from the one that many places away, if that is one of the register.
        let moved = |row: &[u64], left: bool, fill: u64| {
            (0..i128::from(bits)).fold(0, |sum, at| {
                let distance = i128::from(row[1]);
                let from = if left { at - distance } else { at + distance };
                let inside = (0..i128::from(bits)).contains(&from);
                let bit = if inside { row[0] >> from & 1 } else { fill };
                sum | bit << at
            })
        };
        check(&classes, &format!("shl.b{bits} $0, $1, $2;"), &shifts, |row| moved(row, true, 0));
        check(&classes, &format!("shr.u{bits} $0, $1, $2;"), &shifts, |row| moved(row, false, 0));
        check(&classes, &format!("shr.s{bits} $0, $1, $2;"), &shifts, |row| {
            moved(row, false, row[0] >> (bits - 1) & 1)
        });
    }
}

#[test]
fn counts_and_reversals() {
    for (class, bits) in [('r', 32), ('d', 64)] {
        let rows = operands(&[bits], 300, 8);
        let digits = |row: &[u64]| -> Vec<u64> { (0..bits).map(|at| row[0] >> at & 1).collect() };
        check(&format!("r{class}"), &format!("popc.b{bits} $0, $1;"), &rows, |row| digits(row).iter().sum());
        check(&format!("r{class}"), &format!("clz.b{bits} $0, $1;"), &rows, |row| {
            digits(row).iter().rev().take_while(|&&digit| digit == 0).count() as u64
        });
        check(&format!("{class}{class}"), &format!("brev.b{bits} $0, $1;"), &rows, |row| {
            digits(row).iter().fold(0, |sum, digit| sum << 1 | digit)
        });
        for signed in [false, true] {
            let name = format!("{}{bits}", if signed { 's' } else { 'u' });
            let leading = |row: &[u64]| {
                let sign = if signed { row[0] >> (bits - 1) & 1 } else { 0 };
                digits(row).iter().rposition(|&digit| digit != sign).map(|at| at as u64)
            };
            check(&format!("r{class}"), &format!("bfind.{name} $0, $1;"), &rows, |row| {
                leading(row).unwrap_or(0xffff_ffff)
            });
            check(&format!("r{class}"), &format!("bfind.shiftamt.{name} $0, $1;"), &rows, |row| {
                leading(row).map_or(0xffff_ffff, |at| u64::from(bits) - 1 - at)
            });
        }
    }
}

#[test]
fn fields_of_bits() {
    for (class, bits) in [('r', 32_u32), ('d', 64)] {
        let mut rows = Vec::new();
        for row in operands(&[bits, bits], 40, 9) {
            for (start, length) in
                [(0, 0), (0, 8), (4, 8), (31, 1), (31, 8), (20, 32), (0, 64), (40, 30), (63, 1), (255, 255)]
            {
                rows.push(vec![row[0], row[1], start, length]);
            }
        }
        for signed in [false, true] {
            let name = format!("{}{bits}", if signed { 's' } else { 'u' });
            let instruction = format!("bfe.{name} $0, $1, $3, $4;");
            check(&format!("{class}{class}{class}rr"), &instruction, &rows, |row| {
                // The pseudocode of the manual, bit by bit.
                let (a, start, length, msb) = (row[0], row[2], row[3], u64::from(bits) - 1);
                let sign = if !signed || length == 0 { 0 } else { a >> (start + length - 1).min(msb) & 1 };
                (0..=msb).fold(0, |sum, at| {
                    let inside = at < length && start + at <= msb;
                    sum | (if inside { a >> (start + at) & 1 } else { sign }) << at
                })
            });
        }
        let instruction = format!("bfi.b{bits} $0, $1, $2, $3, $4;");
        check(&format!("{class}{class}{class}rr"), &instruction, &rows, |row| {
            let (start, length) = (row[2], row[3]);
            (0..u64::from(bits)).fold(0, |sum, at| {
                let inside = at >= start && at < start + length;
                sum | (if inside { row[0] >> (at - start) & 1 } else { row[1] >> at & 1 }) << at
            })
        });
    }
}

#[test]
fn bytes_are_permuted() {
    let mut rows = operands(&[32, 32, 32], 300, 10);
    rows.iter_mut().for_each(|row| row[2] &= 0xffff);
    let byte = |row: &[u64], index: u64| {
        let all: Vec<u8> =
            [row[0] as u32, row[1] as u32].iter().flat_map(|word| word.to_le_bytes()).collect();
        all[index as usize]
    };
    check("rrrr", "prmt.b32 $0, $1, $2, $3;", &rows, |row| {
        let bytes = [0, 1, 2, 3].map(|at| {
            let selector = row[2] >> (4 * at) & 15;
            let found = byte(row, selector & 7);
            if selector & 8 == 0 { found } else { ((found as i8) >> 7) as u8 }
        });
        u32::from_le_bytes(bytes).into()
    });
    // The tables of the manual, most significant byte first, for selectors 0 to 3.
    let tables: [(&str, [[u64; 4]; 4]); 6] = [
        ("f4e", [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]]),
        ("b4e", [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]]),
        ("rc8", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecl", [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecr", [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]]),
        ("rc16", [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]),
    ];
    for (mode, table) in tables {
        check("rrrr", &format!("prmt.b32.{mode} $0, $1, $2, $3;"), &rows, |row| {
            let bytes = table[(row[2] & 3) as usize].map(|index| byte(row, index));
            u32::from_be_bytes(bytes).into()
        });
    }
}

#[test]
fn tables_of_three_bits() {
    let rows = operands(&[32, 32, 32], 100, 11);
    // The manual's way to make tables: the function of these three bytes.
    let (ta, tb, tc) = (0xf0_u64, 0xcc_u64, 0xaa_u64);
    type Table = fn(u64, u64, u64) -> u64;
    let functions: [Table; 4] =
        [|a, b, c| a & b & c, |a, b, c| (a & b) | c, |a, b, c| a ^ b ^ c, |a, b, c| (a & b) | (!a & c)];
    for function in functions {
        let table = function(ta, tb, tc) & 0xff;
        check("rrrr", &format!("lop3.b32 $0, $1, $2, $3, {table};"), &rows, |row| {
            function(row[0], row[1], row[2]) & 0xffff_ffff
        });
    }
}

#[test]
fn shifts_through_two_registers() {
    let rows = operands(&[32, 32, 7], 300, 12);
    for (left, clamp) in [(true, true), (true, false), (false, true), (false, false)] {
        let name = format!("{}.{}", if left { 'l' } else { 'r' }, if clamp { "clamp" } else { "wrap" });
        check("rrrr", &format!("shf.{name}.b32 $0, $1, $2, $3;"), &rows, |row| {
            let amount = if clamp { row[2].min(32) } else { row[2] % 32 };
            let both = u128::from(row[1]) << 32 | u128::from(row[0]);
            let shifted = if left { both << amount >> 32 } else { both >> amount };
            (shifted & 0xffff_ffff) as u64
        });
    }
}

#[test]
fn dot_products_of_bytes() {
    let rows = operands(&[32, 32, 32], 200, 13);
    for (a_signed, b_signed) in [(true, true), (true, false), (false, true), (false, false)] {
        let name = |signed| if signed { "s32" } else { "u32" };
        let instruction = format!("dp4a.{}.{} $0, $1, $2, $3;", name(a_signed), name(b_signed));
        check("rrrr", &instruction, &rows, |row| {
            let sum: i128 = (0..4)
                .map(|at| value(row[0] >> (8 * at), 8, a_signed) * value(row[1] >> (8 * at), 8, b_signed))
                .sum();
            truncated(sum + i128::from(row[2]), 32)
        });
    }
}

#[test]
fn operands_are_the_low_bits_of_wider_registers() {
    // The manual's table of relaxed type checking: an integer instruction reads the low bits of a wider register for cvt and
    // stores; immediates are cut to the type.
    assert_eq!(apply("rr", "cvt.u32.u8 $0, $1;", &[vec![0x1234_56f8]]), [0xf8]);
    assert_eq!(apply("rr", "cvt.s32.s8 $0, $1;", &[vec![0x1234_56f8]]), [0xffff_fff8]);
    assert_eq!(apply("rr", "add.s32 $0, $1, -1;", &[vec![0]]), [0xffff_ffff]);
    assert_eq!(apply("hh", "add.s16 $0, $1, -1;", &[vec![0]]), [0xffff]);
    assert_eq!(apply("dr", "mov.b64 $0, {$1, $1};", &[vec![7]]), [7 << 32 | 7]);
    assert_eq!(apply("rd", "{ .reg .b32 low; mov.b64 {low, $0}, $1; }", &[vec![7 << 32 | 9]]), [7]);
}
