//! All comparisons of several classifiers.

use plimsoll_memory::{Budget, Bytes, MapError, Mapped};
use serde::Serialize;

use super::bootstrap::{Resamples, bootstrap_p};
use super::delong::delong;
use super::difference::{ImageDifference, ImageTest, TestName};
use super::pairing::PairedClassifiers;
use super::score::ImageScore;
use super::signs::{sign_flip, sign_flip_bytes};
use super::verdict::{Evidence, undefined, verdict};
use crate::classification::scores::Scorer;
use crate::classification::{Bootstrap, Labelling};
use crate::comparison::{
    CandidateName, Choice, ComparisonError, OverRepeats, holm, kendall_tau, percentile, standing,
};
use crate::normal;
use crate::quantile::quantile;
use crate::{Better, OverFolds};

/// Standard errors below this are of sums that were rounded: the areas are the same.
const ROUNDING: f64 = 1e-12;

/// The settings of a comparison.
#[derive(Clone, Debug)]
pub struct ClassifierSettings {
    /// The scores.
    pub scores: Vec<ImageScore>,
    /// The classes, of scores that are of single classes; all if none are named.
    pub classes: Option<Vec<String>>,
    /// The resamples of all intervals and rankings. Its confidence also applies to all tests.
    pub bootstrap: Bootstrap,
}

/// A score of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreOfClassifier {
    /// The candidate.
    pub candidate: String,
    /// The class; none of all classes together.
    pub class: Option<String>,
    /// The mean over repeats; `None` if it is undefined for one.
    pub value: Option<f64>,
    /// Its interval by the percentile bootstrap.
    pub interval: Option<[f64; 2]>,
    /// The spread over repeats, if the candidate was trained more than once.
    pub over_repeats: Option<OverRepeats>,
    /// The share of resamples of images in which it is the best, each of several having its part; of scores that are undefined none.
    pub first_share: Option<f64>,
}

/// All about one score.
#[derive(Clone, Debug, Serialize)]
pub struct ScoreOfClassifiers {
    /// The score.
    pub score: ImageScore,
    /// The direction in which scores are better.
    pub better: Better,
    /// The score of each candidate, of all classes together first.
    pub candidates: Vec<ScoreOfClassifier>,
    /// The difference of each pair, in the same order.
    pub differences: Vec<ImageDifference>,
    /// The mean of Kendall's τ between the order of the candidates and the orders of resamples; `None` if ties leave none.
    pub mean_tau: Option<f64>,
    /// Its quantile of (1 − confidence) / 2.
    pub low_tau: Option<f64>,
    /// The one to take; none by a score of single classes.
    pub choice: Option<Choice>,
}

/// All about several classifiers.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifierComparison {
    /// The candidates.
    pub candidates: Vec<CandidateName>,
    /// The images that were compared.
    pub images: Vec<String>,
    /// Those that not all had.
    pub left_out: Vec<String>,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// Resamples, and the confidence of all intervals and tests.
    pub bootstrap: Bootstrap,
    /// Score by score.
    pub scores: Vec<ScoreOfClassifiers>,
}

/// A requested score of a class, or of all classes together.
#[derive(Clone, Copy)]
struct Item {
    score: ImageScore,
    class: Option<usize>,
    /// The index among the scores of a [`Resamples`].
    at: usize,
}

/// Buffers that all scores share.
struct Scratch {
    /// A score of each resample.
    column: Mapped<f64>,
    /// A number for each image.
    components: Mapped<f64>,
}

/// All that differences follow from.
struct Evaluated<'a> {
    paired: &'a PairedClassifiers,
    scorers: Vec<Vec<Scorer<'a>>>,
    resamples: Resamples,
    bootstrap: Bootstrap,
}

/// Compares all pairs of classifiers. Holm's correction is over all pairs and classes of a score; scores of all classes together are a
/// family of their own. Memory of resamples and rankings is of `budget`.
///
/// # Errors
/// Returns an error if a score or a class is not there, or memory.
pub fn compare_classifiers(
    paired: &PairedClassifiers,
    settings: &ClassifierSettings,
    budget: &Budget,
) -> Result<ClassifierComparison, ComparisonError> {
    let (classes, labelling) = (chosen(paired, settings.classes.as_deref())?, paired.labelling());
    let (mut items, mut places) = (Vec::new(), Vec::new());
    for score in &settings.scores {
        let before = items.len();
        // Of two classes that exclude each other both have the same area.
        let of_each = *score != ImageScore::AUROC || !is_binary(paired);
        let single = classes.iter().filter(|_| of_each).map(|class| Some(*class));
        for class in [None].into_iter().chain(single) {
            if let Some(place) = score.place(class, labelling) {
                items.push(Item { score: *score, class, at: places.len() });
                places.push(place);
            }
        }
        if items.len() == before {
            return Err(ComparisonError::NoImageScore { score: score.name() });
        }
    }
    let mut scorers = Vec::new();
    for candidate in paired.candidates() {
        let own = candidate.repeats.iter().map(|(_, table)| Scorer::new(table, budget));
        scorers.push(own.collect::<Result<Vec<_>, _>>()?);
    }
    let resamples = Resamples::new(&mut scorers, paired, &places, &settings.bootstrap, budget)?;
    let all = Evaluated { paired, scorers, resamples, bootstrap: settings.bootstrap };
    let mut scratch = Scratch {
        column: Mapped::zeroed(budget, "bootstrap", settings.bootstrap.resamples)?,
        components: Mapped::zeroed(budget, "areas", paired.images().len())?,
    };
    let repeats =
        paired.candidates().iter().map(|candidate| candidate.repeats.len() as u64).max().unwrap_or(1);
    let of_signs = sign_flip_bytes(paired.images().len(), repeats * repeats);
    let _signs = budget.reserve("exact tests", Bytes::from_len(of_signs)).map_err(MapError::from)?;
    let mut scores = Vec::new();
    for score in &settings.scores {
        let own: Vec<Item> = items.iter().filter(|item| item.score == *score).copied().collect();
        scores.push(all.score(*score, &own, &mut scratch));
    }
    let names = paired.candidates().iter().map(|candidate| CandidateName {
        name: candidate.name.clone(),
        repeats: candidate.repeats.iter().map(|(name, _)| name.clone()).collect(),
    });
    Ok(ClassifierComparison {
        candidates: names.collect(),
        images: paired.images().to_vec(),
        left_out: paired.left_out().to_vec(),
        classes: classes.iter().map(|class| paired.classes()[*class].clone()).collect(),
        bootstrap: settings.bootstrap,
        scores,
    })
}

/// Returns `true` if there are two classes that exclude each other.
fn is_binary(paired: &PairedClassifiers) -> bool {
    paired.classes().len() == 2 && paired.labelling() == Labelling::OneClass
}

/// The places of the classes that are asked for, each once.
fn chosen(paired: &PairedClassifiers, asked: Option<&[String]>) -> Result<Vec<usize>, ComparisonError> {
    let known = paired.classes();
    let Some(asked) = asked else { return Ok((0..known.len()).collect()) };
    match asked.iter().find(|class| !known.contains(class)) {
        None => Ok((0..known.len()).filter(|place| asked.contains(&known[*place])).collect()),
        Some(class) => Err(ComparisonError::NoClassNamed { class: class.clone(), known: known.to_vec() }),
    }
}

impl Evaluated<'_> {
    fn score(&self, score: ImageScore, items: &[Item], scratch: &mut Scratch) -> ScoreOfClassifiers {
        let count = self.paired.candidates().len();
        let (overall, single): (Vec<Item>, Vec<Item>) = items.iter().partition(|item| item.class.is_none());
        let mut candidates = Vec::new();
        for item in overall.iter().chain(&single) {
            let first = standing(
                (0..count).map(|one| self.resamples.resampled(one, item.at)).collect(),
                score.better(),
            );
            for (candidate, first_share) in first.into_iter().enumerate() {
                candidates.push(self.candidate_score(candidate, *item, first_share, &mut scratch.column));
            }
        }
        let mut family = |items: &[Item]| self.family(items, &mut *scratch);
        let (of_all, of_classes) = (family(&overall), family(&single));
        let (mut taus, mut choice) = (Vec::new(), None);
        if let [item] = overall[..] {
            taus = self.taus(item);
            choice = self.choice(item, &candidates[..count], &of_all);
        }
        taus.sort_unstable_by(f64::total_cmp);
        ScoreOfClassifiers {
            score,
            better: score.better(),
            candidates,
            differences: of_all.into_iter().chain(of_classes).collect(),
            mean_tau: (!taus.is_empty()).then(|| taus.iter().sum::<f64>() / taus.len() as f64),
            low_tau: quantile(taus.len(), |at| taus[at], (1.0 - self.bootstrap.confidence) / 2.0),
            choice,
        }
    }

    fn candidate_score(
        &self,
        candidate: usize,
        item: Item,
        first_share: Option<f64>,
        column: &mut [f64],
    ) -> ScoreOfClassifier {
        let finite = |value: f64| value.is_finite().then_some(value);
        let resampled = sorted_finite(self.resamples.resampled(candidate, item.at).iter().copied(), column);
        let repeats = &self.resamples.repeats[candidate];
        let over_repeats = (repeats.len() > 1).then(|| {
            let means: Vec<Option<f64>> = repeats.iter().map(|scores| finite(scores[item.at])).collect();
            let defined: Vec<f64> = means.iter().copied().flatten().collect();
            let sd = OverFolds::new(&defined).filter(|over| over.folds > 1).map(|over| over.sd);
            OverRepeats { means, sd }
        });
        ScoreOfClassifier {
            candidate: self.name(candidate).to_string(),
            class: self.class(item),
            value: finite(self.resamples.value(candidate, item.at)),
            interval: percentile(resampled, self.bootstrap.confidence),
            over_repeats,
            first_share,
        }
    }

    /// All pairs in all of these, which are corrected together.
    fn family(&self, items: &[Item], scratch: &mut Scratch) -> Vec<ImageDifference> {
        let count = self.paired.candidates().len();
        let pairs: Vec<[usize; 2]> =
            (0..count).flat_map(|first| (first + 1..count).map(move |second| [first, second])).collect();
        let mut found = Vec::new();
        for item in items {
            for pair in &pairs {
                found.push(self.difference(*pair, *item, &mut *scratch));
            }
        }
        let p: Vec<f64> = found.iter().filter_map(|found| Some(found.test?.p)).collect();
        let mut corrected = holm(&p).into_iter();
        let scores = items.iter().flat_map(|item| pairs.iter().map(|_| item.score));
        for (found, score) in found.iter_mut().zip(scores) {
            let (Some(test), [Some(own), Some(other)]) = (found.test, found.scores) else { continue };
            let Some(p_holm) = corrected.next() else { continue };
            found.p_holm = Some(p_holm);
            found.verdict = verdict(&Evidence {
                names: [&found.first, &found.second],
                score,
                class: found.class.as_deref(),
                images: found.images,
                scores: [own, other],
                interval: found.interval,
                standard_error: found.standard_error,
                test,
                p_holm,
                alpha: 1.0 - self.bootstrap.confidence,
                tests: p.len(),
            });
        }
        found
    }

    /// A pair, before it is corrected for the others.
    fn difference(&self, pair: [usize; 2], item: Item, scratch: &mut Scratch) -> ImageDifference {
        let [first, second] = pair;
        let scores = pair.map(|candidate| Some(self.resamples.value(candidate, item.at)));
        let scores = scores.map(|score| score.filter(|score| score.is_finite()));
        let class = self.class(item);
        let names = pair.map(|candidate| self.name(candidate));
        let mut found = ImageDifference {
            verdict: undefined(names, item.score, class.as_deref()),
            class,
            first: names[0].to_string(),
            second: names[1].to_string(),
            images: self.paired.images().len(),
            scores,
            difference: None,
            interval: None,
            standard_error: None,
            test: None,
            p_holm: None,
        };
        let [Some(own), Some(other)] = scores else { return found };
        found.difference = Some(own - other);
        let z = normal::normal_quantile((1.0 + self.bootstrap.confidence) / 2.0);
        if let Some((difference, se)) =
            self.areas(pair, item, &mut scratch.components).filter(|(_, se)| *se > ROUNDING)
        {
            found.interval = Some([difference - z * se, difference + z * se]);
            found.standard_error = Some(se);
            let p = (2.0 * normal::above((difference / se).abs())).min(1.0);
            found.test = Some(ImageTest { test: TestName::Delong, right_in_one_alone: None, p });
            return found;
        }
        let both =
            self.resamples.resampled(first, item.at).iter().zip(self.resamples.resampled(second, item.at));
        let resampled = sorted_finite(both.map(|(own, other)| own - other), &mut scratch.column);
        found.interval = percentile(resampled, self.bootstrap.confidence);
        found.standard_error = OverFolds::new(resampled).filter(|over| over.folds > 1).map(|over| over.sd);
        found.test = match self.signs(pair, item) {
            Some((images, test)) => {
                found.images = images;
                Some(test)
            }
            None => bootstrap_p(resampled).map(|p| ImageTest {
                test: TestName::Bootstrap,
                right_in_one_alone: None,
                p,
            }),
        };
        found
    }

    /// The difference of areas and its standard error; none of other scores, and of means over several classes.
    fn areas(&self, pair: [usize; 2], item: Item, components: &mut [f64]) -> Option<(f64, f64)> {
        if item.score != ImageScore::AUROC {
            return None;
        }
        let class = match item.class {
            Some(class) => class,
            None if is_binary(self.paired) => 1,
            None => return None,
        };
        // What the first adds is added up, and what the second adds is taken off, each the mean over its repeats.
        let [first, second] = pair.map(|candidate| &self.scorers[candidate]);
        let ratio = first.len() as f64 / second.len() as f64;
        components.fill(0.0);
        second.iter().for_each(|scorer| scorer.ranking(class).add_components(components));
        components.iter_mut().for_each(|sum| *sum *= -ratio);
        first.iter().for_each(|scorer| scorer.ranking(class).add_components(components));
        components.iter_mut().for_each(|sum| *sum /= first.len() as f64);
        let table = &self.paired.candidates()[0].repeats[0].1;
        let found = delong(components, |image| table.is_of(image, class))?;
        Some((found.difference, found.standard_error))
    }

    /// The exact test of what only one of both gets right, with the number of images that it is of; none of scores that are no share of images
    /// that are right.
    fn signs(&self, [first, second]: [usize; 2], item: Item) -> Option<(usize, ImageTest)> {
        let table = &self.paired.candidates()[0].repeats[0].1;
        let counts: Box<dyn Fn(usize) -> bool + '_> = match (item.score, item.class) {
            (ImageScore::ACCURACY, None) => Box::new(|_| true),
            (ImageScore::SENSITIVITY, Some(class)) => Box::new(move |image| table.is_of(image, class)),
            (ImageScore::SPECIFICITY, Some(class)) => Box::new(move |image| !table.is_of(image, class)),
            _ => return None,
        };
        let right = |candidate: usize, image: usize| {
            let own = self.scorers[candidate].iter();
            own.filter(|scorer| scorer.is_right(image, item.class)).count() as i64
        };
        let [repeats, others] = [first, second].map(|candidate| self.scorers[candidate].len() as i64);
        let images = (0..self.paired.images().len()).filter(|image| counts(*image));
        // The difference of shares of repeats, times the repeats of both.
        // Room for all images, which is what is reserved: collected after a filter, it would grow to more.
        let mut differences: Vec<i64> = Vec::with_capacity(self.paired.images().len());
        differences.extend(images.map(|image| others * right(first, image) - repeats * right(second, image)));
        let count = |is: fn(&i64) -> bool| differences.iter().filter(|d| is(d)).count() as u64;
        let test = match (repeats, others) {
            (1, 1) => TestName::Mcnemar,
            _ => TestName::SignFlip,
        };
        let right_in_one_alone = Some([count(|d| *d > 0), count(|d| *d < 0)]);
        Some((differences.len(), ImageTest { test, right_in_one_alone, p: sign_flip(&differences) }))
    }

    /// Kendall's τ between the order of candidates and the order in each resample.
    fn taus(&self, item: Item) -> Vec<f64> {
        let count = self.paired.candidates().len();
        let values: Vec<f64> = (0..count).map(|one| self.resamples.value(one, item.at)).collect();
        let of = |resample: usize| -> Option<f64> {
            let drawn: Vec<f64> =
                (0..count).map(|one| self.resamples.resampled(one, item.at)[resample]).collect();
            let is_defined = values.iter().chain(&drawn).all(|value| value.is_finite());
            if is_defined { kendall_tau(&values, &drawn) } else { None }
        };
        (0..self.bootstrap.resamples).filter_map(of).collect()
    }

    /// The best by a score of all classes together.
    fn choice(
        &self,
        item: Item,
        candidates: &[ScoreOfClassifier],
        differences: &[ImageDifference],
    ) -> Option<Choice> {
        let mut order: Vec<(&ScoreOfClassifier, f64)> =
            candidates.iter().filter_map(|candidate| Some((candidate, candidate.value?))).collect();
        order.sort_by(|(_, one), (_, other)| match item.score.better() {
            Better::Higher => other.total_cmp(one),
            Better::Lower => one.total_cmp(other),
        });
        let (first, value) = *order.first().filter(|_| order.len() == candidates.len())?;
        let rest = order[1..].iter().map(|(candidate, _)| candidate.candidate.as_str()).collect();
        let verdicts = differences.iter().map(|found| ([&*found.first, &*found.second], &found.verdict));
        let standing = format!("{} {value:.4} of {} candidates", item.score.name(), order.len());
        Some(Choice::among(&first.candidate, first.first_share?, &standing, rest, verdicts.collect()))
    }

    fn name(&self, candidate: usize) -> &str {
        &self.paired.candidates()[candidate].name
    }

    fn class(&self, item: Item) -> Option<String> {
        item.class.map(|class| self.paired.classes()[class].clone())
    }
}

/// The finite ones of values, sorted, in `column`.
fn sorted_finite(values: impl Iterator<Item = f64>, column: &mut [f64]) -> &[f64] {
    let mut count = 0;
    for value in values.filter(|value| value.is_finite()) {
        column[count] = value;
        count += 1;
    }
    let found = &mut column[..count];
    found.sort_unstable_by(f64::total_cmp);
    found
}
