//! Runs that start from trained weights. `oracles/pretrained.py` made the checkpoints.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Tiny, run, run_error, run_json};

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/pretrained").join(name)
}

/// The arguments of a short run from a start.
fn from<'a>(job: &'a str, tiny: &'a Tiny, start: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec![job, tiny.data.to_str().unwrap(), "--start", start.to_str().unwrap()];
    args.extend(["--ram", "512MiB", "--threads", "1", "--validation-iterations", "1"]);
    if !more.contains(&"--config") {
        args.extend(["--config", "/dev/null"]);
    }
    args.extend(["--iterations", "2"]);
    args.extend(more);
    args
}

/// The arguments of a training into a folder, of which no fold is validated.
fn training<'a>(tiny: &'a Tiny, start: &'a Path, out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    from("train", tiny, start, &[&["--out", out, "--skip-validation"][..], more].concat())
}

/// The number of tensors of a kind of fate in a plan.
fn count(plan: &Value, fate: &str) -> usize {
    plan["start"]["tensors"].as_array().unwrap().iter().filter(|tensor| tensor["fate"] == fate).count()
}

/// The value of a key, wherever it stands.
fn below<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(all) => all.get(key).or_else(|| all.values().find_map(|value| below(value, key))),
        Value::Array(all) => all.iter().find_map(|value| below(value, key)),
        _ => None,
    }
}

/// A folder with the plan of the oracle, changed, and weights.
fn changed(tiny: &Tiny, name: &str, weights: &str, change: &dyn Fn(&mut Value)) -> PathBuf {
    let folder = tiny.path(name);
    fs::create_dir(&folder).unwrap();
    let mut plan: Value =
        serde_json::from_slice(&fs::read(oracle("resenc/adaptation_plan.json")).unwrap()).unwrap();
    change(&mut plan);
    fs::write(folder.join("adaptation_plan.json"), plan.to_string()).unwrap();
    fs::copy(oracle(weights), folder.join(weights)).unwrap();
    folder
}

#[test]
fn a_plan_shows_the_fate_of_each_tensor_and_settings_are_adopted_on_request() {
    let tiny = Tiny::new();
    let folder = oracle("resenc");
    let plan = |more: &[&str]| run_json(&from("plan", &tiny, &folder, more));
    let own = plan(&["--adopt", "topology,patch,normalisation"]);
    assert_eq!(own["patch_size"], serde_json::json!([16, 16, 16]));
    assert_eq!(own["batch_size"], 2);
    // Stem, eight convolutions of blocks and two of shortcuts, each with scale and shift.
    assert_eq!((count(&own, "taken"), count(&own, "adapted")), (33, 0));
    // The encoder for another patch, kernel and depth.
    let flat = ["--net", "resenc", "--patch-size", "8,16,16", "--features", "4,6"];
    let flat = plan(&flat);
    assert_eq!(flat["patch_size"], serde_json::json!([8, 16, 16]));
    assert!(count(&flat, "unused") > 0, "{flat}");
    // The data set is finer by far than the pre-training, so that its spacing is refused, and one that is like it is adopted.
    let error = run_error(&from("plan", &tiny, &folder, &["--adopt", "spacing"]));
    assert!(error.contains("`spacing` is 1, 1, 1 mm"), "{error}");
    let fine = changed(&tiny, "fine", "same.safetensors", &|plan| {
        plan["pretrain_plan"]["configurations"]["onemmiso"]["spacing"] =
            serde_json::json!([0.002, 0.001, 0.001]);
    });
    let out = tiny.path("none").to_str().unwrap().to_string();
    let adopted = ["--adopt", "spacing,topology,normalisation", "--print-settings"];
    let described = run_json(&training(&tiny, &fine, &out, &adopted));
    let task = &described["config"]["task"]["segmentation"];
    assert_eq!(task["spacing"], serde_json::json!([0.002, 0.001, 0.001]), "{described}");
    assert_eq!(task["dataset"]["channels"][0]["normalisation"], "ZScoreNormalization", "{described}");
    // A checkpoint without its folder has the plan as well.
    let file = oracle("resenc/checkpoint_final.pth");
    let alone = run_json(&from("plan", &tiny, &file, &["--adopt", "topology,patch"]));
    assert_eq!(alone["start"], own["start"]);
}

#[test]
fn a_run_records_its_start_follows_nnu_nets_schedule_and_resumes_without_the_file() {
    let tiny = Tiny::new();
    let start = tiny.path("start");
    fs::create_dir(&start).unwrap();
    for file in ["adaptation_plan.json", "checkpoint_final.pth"] {
        fs::copy(oracle("resenc").join(file), start.join(file)).unwrap();
    }
    let out = tiny.path("run");
    let out_text = out.to_str().unwrap().to_string();
    let adopted = ["--adopt", "topology,patch,normalisation"];
    run_json(&training(&tiny, &start, &out_text, &[&adopted[..], &["--epochs", "10"]].concat()));
    let fold = out.join("fold_0");
    let read = |name: &str| fs::read_to_string(fold.join(name)).unwrap();
    let specification: Value = serde_json::from_str(&read("specification.json")).unwrap();
    let initial = &specification["initial"];
    assert_eq!(
        (&initial["rule"]["name"], &initial["rule"]["stem"]),
        (&"encoder".into(), &"encoder.stem".into())
    );
    assert!(initial["content"].is_string() || initial["content"].is_number(), "{initial}");
    // PretrainedTrainer: 0.001 · (1 − (epoch − warm-up) / (epochs − warm-up))^0.9, with one epoch of warm-up.
    let rates: Vec<f64> = read("metrics.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["learning_rate"].as_f64().unwrap())
        .collect();
    assert_eq!(rates.len(), 10);
    for (epoch, rate) in rates.iter().enumerate() {
        let expected = 1e-3 * (1.0 - epoch.saturating_sub(1) as f64 / 9.0).powf(0.9);
        assert!((rate - expected).abs() < 1e-9, "epoch {epoch}: {rate} for {expected}");
    }
    // A table of all tensors is printed.
    let again = tiny.path("again").to_str().unwrap().to_string();
    let args = training(&tiny, &start, &again, &[&adopted[..], &["--epochs", "1"]].concat());
    let printed = run(&args);
    let printed = String::from_utf8([printed.stdout, printed.stderr].concat()).unwrap();
    for line in [
        "encoder.stem.convs.0.conv.weight: taken",
        "decoder.stages.0.convs.0.conv.weight: new (decoder)",
        "start: 33 tensors taken, ",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    fs::remove_dir_all(&start).unwrap();
    let more = [&adopted[..], &["--epochs", "12", "--resume"]].concat();
    let resumed = run_json(&training(&tiny, &start, &out_text, &more));
    assert_eq!(resumed["steps"], 24, "{resumed}");
}

#[test]
fn a_transformer_starts_for_another_patch_with_the_settings_of_nnu_nets_trainer() {
    let tiny = Tiny::new();
    let start = oracle("primus");
    let record: Value = serde_json::from_slice(&fs::read(oracle("pretrained.json")).unwrap()).unwrap();
    let theirs = &record["primus"];
    let settings = tiny.path("plimsoll.toml");
    let small = "[network]\nnet = \"primus\"\nhidden_size = 12\ndepths = [2]\nnum_heads = [2]\n";
    fs::write(&settings, small).unwrap();
    let size = ["--patch-size", "16", "--config", settings.to_str().unwrap()];
    let plan = run_json(&from("plan", &tiny, &start, &size));
    let of = |name: &str| {
        let all = plan["start"]["tensors"].as_array().unwrap();
        all.iter().find(|tensor| tensor["name"] == name).unwrap_or_else(|| panic!("{name}: {plan}"))
    };
    assert_eq!(of("eva.pos_embed")["fate"], "adapted");
    assert_eq!(of("down_projection.proj.weight")["fate"], "taken");
    assert_eq!(of("up_projection.decode.2.weight")["fate"], "new");
    let out = tiny.path("none").to_str().unwrap().to_string();
    let described = run_json(&training(&tiny, &start, &out, &[&size[..], &["--print-settings"]].concat()));
    assert_eq!(below(&described, "max_grad_norm"), Some(&theirs["max_grad_norm"]), "{described}");
    assert_eq!(below(&described, "learning_rate"), Some(&theirs["learning_rate"]), "{described}");
    let optimizer = below(&described, "optimizer").unwrap();
    assert_eq!((&optimizer["name"], &theirs["optimizer"]), (&"adamw".into(), &"AdamW".into()), "{described}");
    let close = |own: &Value, theirs: &Value| (own.as_f64().unwrap() - theirs.as_f64().unwrap()).abs() < 1e-6;
    assert!(close(&optimizer["beta2"], &theirs["betas"][1]), "{optimizer}");
    assert!(close(&optimizer["weight_decay"], &theirs["weight_decay"]), "{optimizer}");
    let out = tiny.path("run").to_str().unwrap().to_string();
    let report = run_json(&training(&tiny, &start, &out, &[&size[..], &["--epochs", "1"]].concat()));
    assert_eq!(report["steps"], 2, "{report}");
}

#[test]
fn plans_of_transformers_need_the_place_and_the_grid_of_their_positions() {
    let tiny = Tiny::new();
    let plan = |name: &str, change: &dyn Fn(&mut Value)| {
        let folder = tiny.path(name);
        fs::create_dir(&folder).unwrap();
        let read = fs::read(oracle("primus/adaptation_plan.json")).unwrap();
        let mut plan: Value = serde_json::from_slice(&read).unwrap();
        change(&mut plan);
        fs::write(folder.join("adaptation_plan.json"), plan.to_string()).unwrap();
        fs::copy(oracle("primus_same.safetensors"), folder.join("primus_same.safetensors")).unwrap();
        folder
    };
    let elsewhere = plan("elsewhere", &|plan| plan["key_to_lpe"] = "encoder.positions".into());
    let missing = plan("missing", &|plan| plan["key_to_lpe"] = Value::Null);
    let odd = plan("odd", &|plan| plan["pretrain_patch_size"] = serde_json::json!([16, 20, 32]));
    let whole = plan("whole", &|plan| {
        plan["pretrain_plan"]["configurations"]["onemmiso"]["patch_size"] = Value::Null;
    });
    let arguments = plan("arguments", &|plan| {
        plan["architecture_plans"]["arch_kwargs"] = serde_json::json!({ "embed_dim": 12 });
    });
    for (start, says) in [
        (&elsewhere, "it must be `eva.pos_embed`"),
        (&missing, "there is no `key_to_lpe`"),
        (&odd, "`pretrain_patch_size` is [16,20,32]"),
        (&whole, "there is no `pretrain_plan.configurations.onemmiso.patch_size`"),
        (&arguments, "PrimusS has no arguments"),
    ] {
        let error = run_error(&from("plan", &tiny, start, &["--adopt", "topology,patch"]));
        assert!(error.contains(says), "{}: {error}", start.display());
    }
}

/// The plan of nnFoundationViT (nnssl's `nnFoundationViT.py`) with the sizes of the oracle's transformer, in place of 1056, 40 and 16.
#[test]
fn a_transformer_whose_arguments_are_written_out_is_that_of_its_checkpoint() {
    let tiny = Tiny::new();
    let plan = |name: &str, change: &dyn Fn(&mut Value)| {
        let folder = tiny.path(name);
        fs::create_dir(&folder).unwrap();
        let read = fs::read(oracle("primus/adaptation_plan.json")).unwrap();
        let mut plan: Value = serde_json::from_slice(&read).unwrap();
        plan["architecture_plans"] = serde_json::json!({"arch_class_name": "PrimusX", "arch_kwargs": {
            "input_channels": 1, "embed_dim": 12, "patch_embed_size": [8, 8, 8], "output_channels": 1,
            "input_shape": [16, 24, 32], "encoder_eva_depth": 2, "encoder_eva_numheads": 2, "decoder_eva_depth": 1,
            "decoder_eva_numheads": 2, "patch_drop_rate": 0.8, "drop_path_rate": 0.2, "attn_drop_rate": 0,
            "init_values": 0.1, "scale_attn_inner": true
        }});
        change(&mut plan["architecture_plans"]);
        fs::write(folder.join("adaptation_plan.json"), plan.to_string()).unwrap();
        // Names and values are those of the pre-trained encoder where nothing was adapted.
        fs::copy(oracle("primus_same.safetensors"), folder.join("primus_same.safetensors")).unwrap();
        folder
    };
    let written_out = plan("written_out", &|_| {});
    let started = run_json(&from("plan", &tiny, &written_out, &["--adopt", "topology,patch"]));
    assert_eq!(started["patch_size"], serde_json::json!([16, 24, 32]));
    let tensors = started["start"]["tensors"].as_array().unwrap();
    let of_encoder = |tensor: &&Value| {
        let name = tensor["name"].as_str().unwrap();
        name.starts_with("eva.") || name.starts_with("down_projection.")
    };
    let encoder: Vec<&Value> = tensors.iter().filter(of_encoder).collect();
    assert!(encoder.len() > 20 && encoder.iter().all(|tensor| tensor["fate"] == "taken"), "{encoder:?}");
    let second = &plan("second", &|network| network["arch_class_name"] = "PrimusV2M".into());
    let small = &plan("small", &|network| {
        // As nnFoundationViT-small.
        network["arch_kwargs"]["scale_attn_inner"] = false.into();
        network["arch_kwargs"]["init_values"] = Value::Null;
    });
    let unscaled = &plan("unscaled", &|network| network["arch_kwargs"]["init_values"] = Value::Null);
    let coarse = &plan("coarse", &|network| {
        network["arch_kwargs"]["patch_embed_size"] = serde_json::json!([16, 16, 16])
    });
    let heads = &plan("heads", &|network| network["arch_kwargs"]["encoder_eva_numheads"] = 3.into());
    let more = &plan("more", &|network| network["arch_kwargs"]["num_register_tokens"] = 4.into());
    for (start, says) in [
        (second, "unknown pre-trained network `PrimusV2M`; known: ResEncL"),
        (small, "attention without its own normalisation is not supported"),
        (unscaled, "there is no `architecture_plans.arch_kwargs.init_values`"),
        (coarse, "tokens of other than 8 × 8 × 8 voxels"),
        (heads, "multiples of six"),
        (more, "networks with `num_register_tokens` are not supported"),
    ] {
        let error = run_error(&from("plan", &tiny, start, &["--adopt", "topology,patch"]));
        assert!(error.contains(says) && error.contains("hint: "), "{}: {error}", start.display());
    }
}

/// The remedy for plans of Primus of later versions, which nnssl does not write: weights without a plan, for a network of the settings.
#[test]
fn weights_of_a_later_primus_start_without_a_plan() {
    let tiny = Tiny::new();
    let settings = tiny.path("plimsoll.toml");
    let network =
        "[network]\nnet = \"primus\"\nversion = 2\nhidden_size = 12\ndepths = [1]\nnum_heads = [2]\n";
    fs::write(&settings, network).unwrap();
    let config = ["--config", settings.to_str().unwrap(), "--patch-size", "16"];
    let out = tiny.path("run").to_str().unwrap().to_string();
    let data = tiny.data.to_str().unwrap();
    let train = [
        "train",
        data,
        "--out",
        &out,
        "--fold",
        "all",
        "--skip-validation",
        "--ram",
        "512MiB",
        "--threads",
        "1",
    ];
    run_json(
        &[&train[..], &["--epochs", "1", "--iterations", "2", "--validation-iterations", "1"], &config]
            .concat(),
    );
    let weights = tiny.path("weights.safetensors").to_str().unwrap().to_string();
    run_json(&["export", &format!("{out}/fold_all"), "-o", &weights]);
    let started = run_json(&from("plan", &tiny, Path::new(&weights), &config));
    assert!(count(&started, "taken") > 20 && count(&started, "new") == 0, "{started}");
}

#[test]
fn starts_that_cannot_be_used_are_refused_by_name_and_leave_nothing_behind() {
    let tiny = Tiny::new();
    let out = tiny.path("none").to_str().unwrap().to_string();
    let truncated = tiny.path("truncated.pth");
    let whole = fs::read(oracle("resenc/checkpoint_final.pth")).unwrap();
    fs::write(&truncated, &whole[..whole.len() / 2]).unwrap();
    let no_plan = tiny.path("no_plan");
    fs::create_dir(&no_plan).unwrap();
    fs::copy(oracle("nnunet.pth"), no_plan.join("checkpoint_final.pth")).unwrap();
    let with = |name: &str, change: &dyn Fn(&mut Value)| changed(&tiny, name, "same.safetensors", change);
    let unknown =
        with("unknown", &|plan| plan["architecture_plans"]["arch_class_name"] = "NoSkipResEncL".into());
    let channels = with("channels", &|plan| plan["pretrain_num_input_channels"] = 2.into());
    let entry = with("entry", &|plan| plan["key_to_adapter"] = "adapter".into());
    let mask =
        with("argument", &|plan| plan["architecture_plans"]["arch_kwargs"]["stem_channels"] = 7.into());
    let missing = with("missing", &|plan| drop(plan.as_object_mut().unwrap().remove("key_to_stem")));
    let renamed = with("renamed", &|plan| plan["key_to_encoder"] = "backbone".into());
    let adopted: &[&str] = &["--adopt", "topology,patch"];
    let file = oracle("nnunet.pth");
    for (start, more, says) in [
        (&truncated, adopted, "truncated.pth"),
        (&no_plan, adopted, "it has no adaptation_plan.json"),
        (
            &unknown,
            adopted,
            "unknown pre-trained network `NoSkipResEncL`; known: ResEncL, ResidualEncoderUNet",
        ),
        (&channels, adopted, "pre-trained on 2 image channels, but the images have 1"),
        (&entry, adopted, "plans with `key_to_adapter` are not supported"),
        (&mask, adopted, "`architecture_plans.arch_kwargs.stem_channels` is 7"),
        (&missing, adopted, "there is no `key_to_stem`"),
        (&renamed, adopted, "`backbone.…` is without a tensor that fits"),
        (
            &oracle("resenc"),
            &["--net", "resenc", "--patch-size", "16", "--features", "8,8"],
            "cannot be adapted to",
        ),
        (
            &oracle("resenc"),
            &["--net", "dynunet", "--patch-size", "16"],
            "cannot start from a pre-trained encoder",
        ),
        (&oracle("resenc"), &["--new-head"], "--new-head has no effect"),
        (&file, &["--adopt", "patch"], "a file of weights does not describe it"),
        (&tiny.data, &[], "it holds neither a run"),
        (&tiny.path("nowhere"), &[], "it does not exist"),
    ] {
        let error = run_error(&training(&tiny, start, &out, more));
        assert!(error.contains(says), "{}: {error}", start.display());
        assert!(!Path::new(&out).exists(), "{}", start.display());
    }
    // The hint of both errors about the network is followed.
    for network in [&["--features", "8,8", "--net", "resenc"][..], &["--net", "dynunet"]] {
        let start = oracle("resenc");
        let size = ["--patch-size", "16"];
        let error = run_error(&from("plan", &tiny, &start, &[network, &size].concat()));
        assert!(error.contains("with --adopt topology, without settings of the network"), "{error}");
        run_json(&from("plan", &tiny, &start, &[&["--adopt", "topology"][..], &size].concat()));
    }
    let error = run_error(&["plan", tiny.data.to_str().unwrap(), "--adopt", "patch"]);
    assert!(error.contains("--start"), "{error}");
}
