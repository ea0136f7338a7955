//! The order of slices that are files of their own: by the one number in which their names differ.

use std::collections::BTreeMap;

/// The most names that a message lists.
const LISTED: usize = 4;

/// Sorts names by the number in which they differ: `a_2`, `a_10`. Numbers are as far from each other everywhere.
///
/// # Errors
/// In words, with names: if they differ in more than one number or in letters, a number is there twice, or one is missing.
pub(super) fn sort(names: Vec<Box<str>>) -> Result<Vec<Box<str>>, String> {
    let Some(first) = names.first() else { return Err("it has no slices".into()) };
    if names.len() == 1 {
        return Ok(names);
    }
    let pattern = pieces(first);
    let mut varies = vec![false; pattern.len()];
    for name in &names {
        let own = pieces(name);
        let is_alike = |(a, b): (&Piece, &Piece)| a.is_number() == b.is_number() && (a.is_number() || a == b);
        if own.len() != pattern.len() || !own.iter().zip(&pattern).all(is_alike) {
            return Err(format!(
                "{first} and {name} differ in more than a number, but the slices of one volume must be numbered"
            ));
        }
        for (varies, (own, first)) in varies.iter_mut().zip(own.iter().zip(&pattern)) {
            *varies |= own.number() != first.number();
        }
    }
    let mut varying = (0..pattern.len()).filter(|piece| varies[*piece]);
    let place = match (varying.next(), varying.next()) {
        (Some(place), None) => place,
        (None, _) => return Err(format!("{first} and others have the same number")),
        _ => {
            return Err(format!(
                "its names, like {first}, differ in several numbers, but names of slices of one volume must differ in one"
            ));
        }
    };
    let mut ordered = BTreeMap::new();
    for name in &names {
        let number = pieces(name).get(place).and_then(Piece::number);
        let number = number.ok_or_else(|| format!("the number of {name} is too long"))?;
        if let Some(other) = ordered.insert(number, name.clone()) {
            return Err(format!("{other} and {name} have the same number"));
        }
    }
    expect_no_gaps(&ordered)?;
    Ok(ordered.into_values().collect())
}

fn expect_no_gaps(ordered: &BTreeMap<u64, Box<str>>) -> Result<(), String> {
    let steps = || ordered.iter().zip(ordered.iter().skip(1));
    let Some(step) = steps().map(|((a, _), (b, _))| b - a).min() else { return Ok(()) };
    let gaps: Vec<String> = steps()
        .filter(|((a, _), (b, _))| *b - *a != step)
        .map(|((a, before), (b, after))| match b - a {
            distance if distance == 2 * step => {
                format!("number {} between {before} and {after}", a + step)
            }
            distance if !distance.is_multiple_of(step) => {
                format!("{before} and {after} are {distance} apart, others {step}")
            }
            _ => format!("numbers {} to {} between {before} and {after}", a + step, b - step),
        })
        .collect();
    match gaps.len() {
        0 => Ok(()),
        count => {
            let first = gaps[..count.min(LISTED)].join(", ");
            let more = if count > LISTED { format!(" and {} more", count - LISTED) } else { String::new() };
            Err(format!("slices are missing: {first}{more}"))
        }
    }
}

/// A part of a name: digits, or what is between them.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Digits(&'a str),
    Other(&'a str),
}

impl Piece<'_> {
    fn is_number(&self) -> bool {
        matches!(self, Piece::Digits(_))
    }

    fn number(&self) -> Option<u64> {
        match self {
            Piece::Digits(digits) => digits.parse().ok(),
            Piece::Other(_) => None,
        }
    }
}

/// The pieces of a name without its ending.
fn pieces(name: &str) -> Vec<Piece<'_>> {
    let mut rest = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let mut pieces = Vec::new();
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|letter: char| letter.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (piece, behind) = rest.split_at(end);
        pieces.push(if is_digit { Piece::Digits(piece) } else { Piece::Other(piece) });
        rest = behind;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(names: &[&str]) -> Result<Vec<Box<str>>, String> {
        sort(names.iter().map(|name| (*name).into()).collect())
    }

    #[test]
    fn slices_are_in_the_order_of_their_numbers() {
        let found = sorted(&["b2_10.tif", "b2_9.tif", "b2_11.TIFF"]).unwrap();
        assert_eq!(found, ["b2_9.tif", "b2_10.tif", "b2_11.TIFF"].map(Box::from));
        // Each second one is as good.
        assert_eq!(sorted(&["4.tif", "2.tif", "6.tif"]).unwrap()[0], "2.tif".into());
        assert_eq!(sorted(&["only.tif"]).unwrap().len(), 1);
    }

    #[test]
    fn gaps_duplicates_and_other_files_are_named() {
        for (names, says) in [
            (&["a_1.tif", "a_2.tif", "a_4.tif"][..], "number 3 between a_2.tif and a_4.tif"),
            (&["a_1.tif", "a_2.tif", "a_9.tif"], "numbers 3 to 8"),
            (&["a_2.tif", "a_4.tif", "a_7.tif"], "a_4.tif and a_7.tif are 3 apart, others 2"),
            (&["a_1.tif", "a_01.tif", "a_2.tif"], "same number"),
            (&["a_1.tif", "a_01.tif"], "same number"),
            (&["a_1.tif", "mask_1.tif"], "a_1.tif and mask_1.tif differ"),
            (&["z1_c1.tif", "z1_c2.tif", "z2_c1.tif"], "several numbers"),
            (&["a.tif", "b.tif"], "differ"),
            (&["a_1.tif", "a_99999999999999999999999.tif"], "too long"),
            (&[], "no slices"),
        ] {
            let error = sorted(names).unwrap_err();
            assert!(error.contains(says), "{names:?}: {error}");
        }
    }
}
