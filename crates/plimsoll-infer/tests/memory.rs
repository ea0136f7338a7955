//! The memory of predictions: sums in half precision if the limit has no room for more, features in 16 bits on request, and the
//! next case while one is computed.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_cpu::{CpuBackend, CpuOptions, Products};
use plimsoll_data::{Case, Dataset, prediction_ending};
use plimsoll_graph::DType;
use plimsoll_infer::{
    CaseEstimate, CaseRequest, Destination, InferError, LabelNames, Outcome, PredictOptions, PredictPlan,
    Predictor, RingStorage, predict_cases,
};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel};

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet").join(name)
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A model of nnU-Net's with images, and how they are predicted.
#[derive(Clone, Copy)]
struct Prediction {
    name: &'static str,
    configuration: &'static str,
    limit: Bytes,
    threads: usize,
    ring: Option<RingStorage>,
    precision: Option<DType>,
    products: Products,
    window_batch: usize,
    /// The number of cases.
    cases: usize,
    /// `true` if the files of probabilities are compared as well.
    probabilities: bool,
}

/// Room for everything.
const ROOMY: Bytes = Bytes::mib(512);

impl Prediction {
    fn new(name: &'static str, configuration: &'static str) -> Prediction {
        Prediction {
            name,
            configuration,
            limit: ROOMY,
            threads: 2,
            ring: None,
            precision: None,
            products: Products::F32,
            window_batch: 1,
            cases: usize::MAX,
            probabilities: false,
        }
    }

    fn open(self) -> (Predictor, Vec<Case>, String, Budget) {
        let (predictor, cases, ending, budget) = self.try_open();
        (predictor.unwrap(), cases, ending, budget)
    }

    fn try_open(self) -> (Result<Predictor, InferError>, Vec<Case>, String, Budget) {
        let budget = Budget::new(self.limit);
        let folders =
            inside(&oracle(self.name).join("results")).into_iter().flat_map(|dataset| inside(&dataset));
        let ending = format!("__{}", self.configuration);
        let folder = folders.into_iter().find(|folder| folder.to_string_lossy().ends_with(&ending)).unwrap();
        let model = NnUnetModel::open(&folder, &NnUnetChoice::default(), &budget).unwrap().model;
        let images = oracle(self.name).join("images");
        let mut cases = Dataset::images(images, &model.channels, &model.file_ending).unwrap();
        cases.truncate(self.cases);
        let ending = prediction_ending(&model.file_ending).to_string();
        let Prediction { threads, ring, precision, window_batch, .. } = self;
        let options =
            PredictOptions { ring, precision, window_batch, ..PredictOptions::new(0.5, true, threads) };
        let backend = CpuOptions { products: self.products, ..CpuOptions::new(threads) };
        let backend = Arc::new(CpuBackend::new(backend).unwrap());
        (Predictor::new(model, options, backend, &budget), cases, ending, budget)
    }

    /// The labels of each case as they are in its file, and its plan.
    fn predict(self) -> BTreeMap<String, (Vec<u8>, PredictPlan)> {
        let (mut predictor, cases, ending, budget) = self.open();
        let folder = tempfile::tempdir().unwrap();
        let to = Destination {
            folder: folder.path().into(),
            names: LabelNames::Cases,
            ending,
            overwrite: false,
            probabilities: self.probabilities,
            earlier: None,
        };
        let going = AtomicBool::new(false);
        let report = predict_cases(&mut predictor, &cases, &to, &going, &mut |_| {}).unwrap();
        let mut most = Bytes::ZERO;
        let found = report.cases.into_iter().map(|case| match case.outcome {
            Outcome::Predicted { plan, .. } => {
                most = most.max(plan.total_bytes);
                let mut labels = voxels(&case.file);
                if self.probabilities {
                    labels.extend(fs::read(to.folder.join(format!("{}.npz", case.case))).unwrap());
                }
                (case.case, (labels, plan))
            }
            other => panic!("{}: {other:?}", case.case),
        });
        let found = found.collect();
        assert!(most <= self.limit);
        // What is reserved for a case is reserved at the same time, and nothing else is; looking at images before may take more than a case
        // that is small.
        let peak = budget.peak();
        assert!(peak == most || peak > most && peak <= self.limit, "{}: {peak}, {most}", self.name);
        found
    }

    /// The least limit for the case that needs most, from the headers.
    fn least(self) -> Bytes {
        let (predictor, cases, ..) = self.open();
        let nowhere = Path::new("/nowhere");
        let request =
            |case| CaseRequest { case, earlier: None, within: None, labels: nowhere, probabilities: None };
        let requests: Vec<CaseRequest<'_>> = cases.iter().map(request).collect();
        predictor
            .plan(&requests)
            .unwrap()
            .into_iter()
            .map(|planned| planned.unwrap().least_ram_bytes)
            .max()
            .unwrap()
    }
}

/// The label of each voxel, of a file with eight bits for each.
fn voxels(path: &Path) -> Vec<u8> {
    let mut file = plimsoll_volume::VolumeFile::open(path).unwrap();
    assert_eq!(file.element_type().size(), 1);
    let mut labels = Vec::new();
    file.for_each_plane(0, &Budget::new(Bytes::mib(4)), |_, plane| {
        labels.extend_from_slice(plane);
        Ok::<(), plimsoll_volume::VolumeError>(())
    })
    .unwrap();
    labels
}

type Labels = BTreeMap<String, (Vec<u8>, PredictPlan)>;

/// The share of voxels with the same label, of the case with the fewest.
fn agreement(one: &Labels, other: &Labels) -> f64 {
    let mut worst = 1.0f64;
    for (case, (labels, _)) in one {
        assert!(labels.iter().any(|label| *label > 0), "{case} is all background, which proves nothing");
        let others = &other[case].0;
        let same = labels.iter().zip(others).filter(|(one, other)| one == other).count();
        assert_eq!(labels.len(), others.len());
        worst = worst.min(same as f64 / labels.len() as f64);
    }
    worst
}

#[test]
fn sums_in_half_precision_keep_nearly_all_labels_and_take_half_the_memory() {
    for (name, configuration) in [
        ("fullres", "3d_fullres"),
        ("resenc_regions", "3d_fullres"),
        ("flat", "2d"),
        ("cascade", "3d_lowres"),
    ] {
        let exact = Prediction::new(name, configuration);
        let halves = Prediction { ring: Some(RingStorage::F16), ..exact };
        let (exact, found) = (exact.predict(), halves.predict());
        let agreement = agreement(&exact, &found);
        println!("{name}: {:.4} % of labels are the same with sums in half precision", 100.0 * agreement);
        assert!(agreement >= 0.999, "{name}: {agreement}");
        for (case, (_, plan)) in &exact {
            let other = &found[case].1;
            assert_eq!((plan.ring, other.ring), (RingStorage::F32, RingStorage::F16));
            assert!(other.logits_bytes < plan.logits_bytes);
            assert_eq!(
                other.f32_ring_ram_bytes,
                other.minimum_ram_bytes - other.logits_bytes + plan.logits_bytes
            );
        }
        let threads = Prediction { threads: 3, ..halves }.predict();
        assert!(
            found.iter().all(|(case, (labels, _))| *labels == threads[case].0),
            "{name}: other bits on more threads"
        );
    }
}

#[test]
fn windows_at_once_have_the_bits_of_one_at_a_time_within_what_is_planned() {
    for (name, configuration, batches) in [
        // Of eight looks at a window, and of windows in rows, three do not go without a rest.
        ("fullres", "3d_fullres", [3, 8]),
        ("resenc_regions", "3d_fullres", [2, 5]),
        ("flat", "2d", [3, 16]),
        ("batch_norm", "3d_fullres", [2, 64]),
    ] {
        let one = Prediction { cases: 1, probabilities: true, ..Prediction::new(name, configuration) };
        let alone = one.predict();
        for window_batch in batches {
            let at_once = Prediction { window_batch, limit: Bytes::mib(2048), ..one };
            let found = at_once.predict();
            for (case, (bytes, plan)) in &alone {
                let (together, other) = &found[case];
                assert_eq!((plan.window_batch, other.window_batch), (1, window_batch));
                assert!(other.arena_bytes > plan.arena_bytes && other.window_bytes >= plan.window_bytes);
                assert_eq!((other.windows, other.looks), (plan.windows, plan.looks));
                assert!(bytes == together, "{name}, {case}: other bits of {window_batch} windows at once");
            }
            if window_batch == batches[1] {
                let threads = Prediction { threads: 3, ..at_once }.predict();
                let is_same = |(case, (bytes, _)): (&String, &(Vec<u8>, _))| *bytes == threads[case].0;
                assert!(found.iter().all(is_same), "{name}: other threads");
            }
        }
    }
}

#[test]
fn a_limit_that_is_too_low_for_windows_at_once_is_told_from_when_on_one_would_do() {
    let of = Prediction { cases: 1, ..Prediction::new("fullres", "3d_fullres") };
    let many = Prediction { window_batch: 16, ..of };
    let (least, of_many) = (of.least(), many.least());
    assert!(least < of_many);
    let (predictor, cases, ..) = Prediction { limit: of_many - Bytes(1 << 16), ..many }.open();
    let nowhere = Path::new("/nowhere");
    let request =
        CaseRequest { case: &cases[0], earlier: None, within: None, labels: nowhere, probabilities: None };
    let refused = predictor.plan(&[request]).unwrap().remove(0).unwrap_err();
    let hint = refused.remedy().unwrap();
    assert!(hint.contains("‹window_batch=1›"), "{hint}");
    let InferError::Infeasible { alternatives, .. } = &refused else { panic!("{refused}") };
    let needed =
        alternatives.iter().find(|alternatives| alternatives.setting == "‹window_batch=1›").unwrap().needed;
    // With sums in single precision, as they are asked for in neither.
    Prediction { limit: needed, ..of }.predict();
    // Not even the windows themselves have room.
    let refused = Prediction { limit: needed, window_batch: 1024, ..of }.try_open().0.err().unwrap();
    assert!(refused.to_string().starts_with("1024 windows at once: "), "{refused}");
    assert!(refused.remedy().unwrap().contains("a smaller ‹window_batch›"));
}

#[test]
fn between_the_totals_of_both_sums_the_plan_takes_halves_and_above_them_the_same_bits() {
    let of = Prediction { cases: 1, ..Prediction::new("fullres", "3d_fullres") };
    let in_halves = Prediction { ring: Some(RingStorage::F16), ..of };
    let (roomy, halves) = (of.predict(), in_halves.predict());
    let minimum = |of: &Labels| of["first"].1.minimum_ram_bytes;
    assert!(minimum(&halves) < minimum(&roomy));
    let above = Prediction { limit: minimum(&roomy), ..of }.predict();
    assert_eq!(above["first"].1.ring, RingStorage::F32);
    assert!(roomy["first"].0 == above["first"].0);
    for limit in [Bytes(minimum(&roomy).0 - 1), minimum(&halves)] {
        let below = Prediction { limit, ..of }.predict();
        assert_eq!(below["first"].1.ring, RingStorage::F16);
        assert!(halves["first"].0 == below["first"].0, "other bits than with ‹ring=f16›");
    }
}

#[test]
fn features_in_16_bits_are_asked_for_and_named_where_a_limit_is_too_low() {
    let of = Prediction { cases: 1, ..Prediction::new("fullres", "3d_fullres") };
    let halved = Prediction { precision: Some(DType::Bf16), ..of };
    assert!(halved.least() < of.least());
    let (exact, found) = (of.predict(), halved.predict());
    let agreement = agreement(&exact, &found);
    println!("{:.3} % of labels are the same with features in bfloat16", 100.0 * agreement);
    assert!(agreement >= 0.99, "{agreement}");
    assert_eq!(found["first"].1.precision, DType::Bf16);
    // A limit that is too low is refused, with the flag and the limit that would do.
    let limit = halved.least();
    let (mut predictor, cases, ..) = Prediction { limit, ..of }.open();
    let out = tempfile::tempdir().unwrap();
    let labels = out.path().join("a.nii.gz");
    let request =
        CaseRequest { case: &cases[0], earlier: None, within: None, labels: &labels, probabilities: None };
    let refused = predictor.predict(&request, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    let InferError::Infeasible { needed, alternatives, .. } = &refused else { panic!("{refused}") };
    assert!(*needed > limit);
    assert_eq!((alternatives.len(), alternatives[0].setting), (1, "‹precision=bf16›"));
    assert!(alternatives[0].needed <= limit);
    let hint = refused.remedy().unwrap();
    assert!(hint.contains("‹precision=bf16›") && hint.contains("suffice"), "{hint}");
    assert_eq!(inside(out.path()).len(), 0);
    let would_do = Prediction { limit: alternatives[0].needed, ..halved }.predict();
    assert!(would_do["first"].1.total_bytes <= alternatives[0].needed);
}

#[test]
fn products_of_bf16_keep_nearly_all_labels_and_have_the_same_bits_on_more_threads() {
    for (name, configuration) in [("fullres", "3d_fullres"), ("resenc_regions", "3d_fullres"), ("flat", "2d")]
    {
        let exact = Prediction::new(name, configuration);
        let stored = Prediction { precision: Some(DType::Bf16), ..exact };
        let dot = Prediction { products: Products::Bf16, ..stored };
        let (exact, stored, found) = (exact.predict(), stored.predict(), dot.predict());
        let [of_stored, of_products] = [agreement(&exact, &stored), agreement(&exact, &found)];
        println!(
            "{name}: {:.4} % of labels are the same with features in bfloat16, {:.4} % with products of them",
            100.0 * of_stored,
            100.0 * of_products
        );
        assert!(of_products >= 0.99, "{name}: {of_products}");
        let threads = Prediction { threads: 1, ..dot }.predict();
        assert!(
            found.iter().all(|(case, (labels, _))| *labels == threads[case].0),
            "{name}: other bits on one thread"
        );
    }
}

#[test]
fn cases_one_after_the_other_have_the_bits_of_each_alone_and_the_next_one_is_read_meanwhile() {
    let of = Prediction::new("flat", "2d");
    let together = of.predict();
    assert_eq!(together.keys().collect::<Vec<_>>(), ["first", "second"]);
    let (first, second) = (&together["first"].1, &together["second"].1);
    assert!(first.ahead_bytes > Bytes::ZERO && first.queue_bytes > Bytes::ZERO);
    // It was read into what becomes its cache.
    assert_eq!((second.ahead_bytes, second.cache_bytes), (Bytes::ZERO, first.ahead_bytes));
    let (mut predictor, cases, ending, _) = of.open();
    let nowhere = Path::new("/nowhere");
    let request =
        |case| CaseRequest { case, earlier: None, within: None, labels: nowhere, probabilities: None };
    let requests: Vec<CaseRequest<'_>> = cases.iter().map(request).collect();
    // As it is planned: beside the last case none is read, and beside none where each is predicted alone.
    let ahead = |planned: Vec<Result<CaseEstimate, InferError>>| -> Vec<Bytes> {
        planned.into_iter().map(|planned| planned.unwrap().plan.ahead_bytes).collect()
    };
    assert_eq!(ahead(predictor.plan(&requests).unwrap()), [first.ahead_bytes, Bytes::ZERO]);
    assert_eq!(ahead(predictor.plan_alone(&requests).unwrap()), [Bytes::ZERO; 2]);
    let out = tempfile::tempdir().unwrap();
    for case in &cases {
        let labels = out.path().join(format!("{}{ending}", case.id));
        let request = CaseRequest { case, earlier: None, within: None, labels: &labels, probabilities: None };
        let alone = predictor.predict(&request, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!(alone.plan.ahead_bytes, Bytes::ZERO);
        assert!(voxels(&labels) == together[&case.id].0);
        assert!(alone.times.forward_seconds > 0.0 && alone.times.all() > alone.times.forward_seconds);
    }
    // Without room for a cache, a queue and the next case.
    let least = Prediction { limit: of.least(), ..of }.predict();
    assert!(least.values().all(|(_, plan)| plan.ahead_bytes == Bytes::ZERO));
    if least.values().all(|(_, plan)| plan.ring == RingStorage::F16) {
        let halves = Prediction { ring: Some(RingStorage::F16), ..of }.predict();
        assert!(least.iter().all(|(case, (labels, _))| *labels == halves[case].0));
    }
}

#[test]
fn below_the_limit_for_whole_planes_a_case_is_predicted_in_strips_with_the_same_bits() {
    let mut in_strips = 0;
    for (name, configuration) in [
        ("fullres", "3d_fullres"),
        ("resenc_regions", "3d_fullres"),
        ("flat", "2d"),
        ("cascade", "3d_lowres"),
    ] {
        let of = Prediction { cases: 1, probabilities: true, ..Prediction::new(name, configuration) };
        for ring in RingStorage::ALL {
            let of = Prediction { ring: Some(ring), ..of };
            let whole = of.predict();
            let (labels, plan) = whole.values().next().unwrap();
            assert_eq!((plan.strips, plan.repeated_windows), (1, 0));
            // Ever lower limits, down to the least that headers ask for: they do not say how an image is cut, which may round strips to a few
            // voxels, and so pages, more.
            let below = plan.minimum_ram_bytes.0 - 1;
            let least = of.least().0 + (16 << 10);
            if least > below {
                // Looking at the images of a small case takes more than its planes do.
                continue;
            }
            let mut last = 1;
            for limit in [below, least + (below - least) / 2, least].map(Bytes) {
                let found = Prediction { limit, ..of }.predict();
                let (found, plan) = found.values().next().unwrap();
                println!("{name}, {ring}, below {limit}: {} strips, {} windows", plan.strips, plan.windows);
                assert!(found == labels, "{name}, {ring}: other bits in {} strips", plan.strips);
                assert!(plan.strips >= last, "{} strips, but {last} of a higher limit", plan.strips);
                assert!(plan.repeated_windows == 0 || plan.strips > 1);
                assert!(plan.spool_file_bytes > Bytes::ZERO || plan.strips == 1);
                last = plan.strips;
                in_strips += usize::from(plan.strips > 1);
            }
        }
    }
    assert!(in_strips > 0, "no model was predicted in strips, which proves nothing");
}
