//! The choice of folds for cases that a data set has gained since a run began.
//!
//! Cases of a group, such as a patient, stay together: one that is validated in a fold must not be trained on there. Of the folds that a
//! group may be validated in, it goes to the one with the fewest cases of its classes, so that classes keep their shares.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_data::Splits;

/// The properties of a case that decide which fold it belongs to.
#[derive(Clone, Copy, Default)]
pub struct Traits<'a> {
    /// The patient.
    pub group: Option<&'a str>,
    /// Its classes; none of label maps, which have all.
    pub labels: &'a [u32],
}

/// The traits of cases by name.
pub type TraitsOf<'a> = BTreeMap<&'a str, Traits<'a>>;

/// Puts new cases into the folds that are `open`. Returns those that are trained on alone, since a begun fold validates their group.
pub(super) fn include(
    splits: &mut Splits,
    open: &[usize],
    new: &[String],
    traits: &TraitsOf<'_>,
) -> Vec<String> {
    // Cases of volumes have no traits: each is a group of its own.
    let of = |case: &str| traits.get(case).copied().unwrap_or_default();
    let mut groups: BTreeMap<(bool, &str), Vec<&String>> = BTreeMap::new();
    for case in new {
        let group = of(case).group;
        groups.entry((group.is_some(), group.unwrap_or(case))).or_default().push(case);
    }
    let mut only_trained = Vec::new();
    for ((is_group, name), cases) in groups {
        let known: BTreeSet<&str> = match is_group {
            true => traits
                .iter()
                .filter(|(_, traits)| traits.group == Some(name))
                .map(|(case, _)| *case)
                .collect(),
            false => BTreeSet::new(),
        };
        let has = |list: &[String]| list.iter().any(|case| known.contains(case.as_str()));
        let folds = || open.iter().filter_map(|number| Some((*number, splits.folds.get(*number)?)));
        let validating: BTreeSet<usize> =
            folds().filter(|(_, fold)| has(&fold.val)).map(|(number, _)| number).collect();
        let is_trained_on = folds().any(|(_, fold)| has(&fold.train));
        let labels: BTreeSet<u32> = cases.iter().flat_map(|case| of(case).labels).copied().collect();
        let of_classes = |case: &&String| of(case).labels.iter().any(|label| labels.contains(label));
        let fewest = folds()
            .min_by_key(|(number, fold)| {
                (fold.val.iter().filter(of_classes).count(), fold.val.len(), *number)
            })
            .map(|(number, _)| number);
        let validating = match (validating.is_empty(), is_trained_on) {
            (false, _) => validating,
            (true, true) => BTreeSet::new(),
            (true, false) => fewest.into_iter().collect(),
        };
        if validating.is_empty() {
            only_trained.extend(cases.iter().map(|case| (*case).clone()));
        }
        for number in open {
            let Some(fold) = splits.folds.get_mut(*number) else { continue };
            let list = if validating.contains(number) { &mut fold.val } else { &mut fold.train };
            list.extend(cases.iter().map(|case| (*case).clone()));
        }
    }
    only_trained
}

#[cfg(test)]
mod tests {
    use plimsoll_data::Fold;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    /// Three folds of six cases, two of each patient; the second case of each is of class 1.
    fn splits() -> (Splits, TraitsOf<'static>) {
        let fold = |val: &[&str], train: &[&str]| Fold { train: names(train), val: names(val) };
        let folds = vec![
            fold(&["a0", "a1"], &["b0", "b1", "c0", "c1"]),
            fold(&["b0", "b1"], &["a0", "a1", "c0", "c1"]),
            fold(&["c0", "c1"], &["a0", "a1", "b0", "b1"]),
        ];
        let known = [("a0", "a"), ("a1", "a"), ("b0", "b"), ("b1", "b"), ("c0", "c"), ("c1", "c")];
        let traits = known.map(|(case, group)| {
            let labels: &[u32] = if case.ends_with('0') { &[0] } else { &[1] };
            (case, Traits { group: Some(group), labels })
        });
        (Splits::from(folds), traits.into())
    }

    #[test]
    fn a_group_stays_together() {
        let (mut splits, mut traits) = splits();
        traits.insert("c2", Traits { group: Some("c"), labels: &[0] });
        traits.insert("a2", Traits { group: Some("a"), labels: &[0] });
        // Fold 0 is begun, and validates patient a.
        let trained = include(&mut splits, &[1, 2], &names(&["a2", "c2"]), &traits);
        assert_eq!(trained, ["a2"]);
        assert_eq!(splits.folds[2].val, ["c0", "c1", "c2"]);
        assert_eq!(splits.folds[1].val, ["b0", "b1"]);
        let added = |fold: usize| splits.folds[fold].train[4..].to_vec();
        assert_eq!((added(0).len(), added(1), added(2)), (0, names(&["a2", "c2"]), names(&["a2"])));
        for fold in &splits.folds {
            let group = |case: &String| traits[case.as_str()].group;
            assert!(fold.val.iter().all(|case| fold.train.iter().all(|other| group(case) != group(other))));
        }
    }

    #[test]
    fn a_new_group_is_validated_as_a_whole_where_its_classes_are_fewest() {
        let (mut splits, mut traits) = splits();
        splits.folds[1].val.push("b2".into());
        traits.insert("b2", Traits { group: Some("b"), labels: &[1] });
        traits.insert("d0", Traits { group: Some("d"), labels: &[1] });
        traits.insert("d1", Traits { group: Some("d"), labels: &[1] });
        traits.insert("e0", Traits { group: None, labels: &[0] });
        assert!(include(&mut splits, &[1, 2], &names(&["d0", "d1", "e0"]), &traits).is_empty());
        // First the case without a group: both have one of class 0, and fold 2 has fewer cases. Then fold 1 has two of class 1, and fold 2 one.
        assert_eq!(splits.folds[2].val, ["c0", "c1", "e0", "d0", "d1"]);
        assert_eq!(splits.folds[1].val, ["b0", "b1", "b2"]);
        assert!(splits.folds[1].train.ends_with(&names(&["e0", "d0", "d1"])));
    }

    #[test]
    fn label_maps_are_validated_where_cases_are_fewest() {
        let (mut splits, _) = splits();
        splits.folds[1].val.push("b2".into());
        include(&mut splits, &[1, 2], &names(&["x", "y"]), &TraitsOf::new());
        assert_eq!(splits.folds[2].val, ["c0", "c1", "x"]);
        assert_eq!(splits.folds[1].val, ["b0", "b1", "b2", "y"]);
    }
}
