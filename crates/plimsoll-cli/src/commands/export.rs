//! `plimsoll export`

use std::path::Path;

use plimsoll_memory::Budget;
use plimsoll_models::model_file::ModelFile;
use plimsoll_models::monai::MonaiModel;
use plimsoll_models::nnunet::{NnUnetChoice, NnUnetModel, export_nnunet, find_model};
use plimsoll_models::onnx::{OnnxModel, WeightsGo, export_onnx};
use plimsoll_models::{Model, ModelSource, SegmentationModel, export_weights};
use plimsoll_nn::weights::WeightSource;

use crate::args::{Export, ExportFormat};
use crate::failure::{Failure, Outcome};
use crate::report::json;
use plimsoll::Line;
use plimsoll::pair_run;

/// Writes a model for other programs.
pub fn run(args: &Export, as_json: bool) -> Outcome {
    if args.external_data && args.format != ExportFormat::Onnx {
        let message = "--external-data has no effect without --format onnx";
        return Err(Failure::new(message, "leave it out: other formats have weights of any length"));
    }
    let line = Line::draw(args.ram.ram, 1)?;
    match args.format {
        ExportFormat::Safetensors => write_weights(args, &line.budget, as_json),
        ExportFormat::Nnunet => write_nnunet(args, &line.budget, as_json),
        ExportFormat::Onnx => write_onnx(args, &line.budget, as_json),
    }
}

/// The run that is exported, or one fold of it.
fn run_of(args: &Export, folder: &Path) -> Outcome<Model> {
    let folder = match args.fold {
        Some(fold) => folder.join(format!("fold_{fold}")),
        None => folder.into(),
    };
    Ok(Model::open(&folder, args.checkpoint.unwrap_or_default().into())?)
}

fn write_weights(args: &Export, budget: &Budget, as_json: bool) -> Outcome {
    let model = run_of(args, &args.model)?;
    let checkpoint = &one_fold(args, &model.weights)?.path;
    expect_file(args, "safetensors", "`safetensors.torch.load_file` reads such files in Python")?;
    let net = model.config.training.net.as_architecture();
    let exported = export_weights(checkpoint, net, &args.output, budget)?;
    if as_json {
        return json(&exported);
    }
    let averaged = match exported.averaged {
        0 => String::new(),
        count => format!(", {count} of them averages over the steps"),
    };
    println!(
        "{} tensors{averaged} in {}, {} of them under other names, too",
        exported.tensors,
        args.output.display(),
        exported.duplicates
    );
    Ok(())
}

fn write_nnunet(args: &Export, budget: &Budget, as_json: bool) -> Outcome {
    if args.overwrite {
        let message = "--overwrite has no effect with --format nnunet";
        return Err(Failure::new(message, "name a folder that is not there, or remove the one that is"));
    }
    let exported = export_nnunet(&run_of(args, &args.model)?, &args.output, budget)?;
    if as_json {
        return json(&exported);
    }
    let folds = exported.folds.join(", ");
    println!("{} of fold {folds} in {}", exported.configuration, args.output.display());
    // Without -f it looks for folds 0 to 4.
    println!(
        "nnUNetv2_predict_from_modelfolder -m {} -i IMAGES -o LABELS -f {}",
        args.output.display(),
        exported.folds.join(" ")
    );
    exported.differences.iter().for_each(|difference| println!("- {difference}"));
    Ok(())
}

fn write_onnx(args: &Export, budget: &Budget, as_json: bool) -> Outcome {
    expect_file(args, "onnx", "ONNX runtimes know such files by it")?;
    let to = |model: &OnnxModel<'_>| {
        let weights = if args.external_data { WeightsGo::Beside } else { WeightsGo::Inside };
        export_onnx(model, &args.output, weights, budget)
    };
    let exported = match opened(args, budget)? {
        Opened::Run(run) => to(&OnnxModel::of_run(&run.config, one_fold(args, &run.weights)?)?)?,
        Opened::Other(model) => to(&OnnxModel::of_model(&model, one_fold(args, &model.weights)?)?)?,
    };
    if as_json {
        return json(&exported);
    }
    println!(
        "{} nodes and {} tensors in {}, opset {}: image {:?} to logits {:?}",
        exported.nodes,
        exported.tensors,
        args.output.display(),
        exported.opset,
        exported.image,
        exported.logits
    );
    if let Some(data) = &exported.data {
        println!("weights in {}, which has to stay beside it", data.display());
    }
    Ok(())
}

/// A model with all its folds, or the one that was asked for.
enum Opened {
    Run(Box<Model>),
    Other(Box<SegmentationModel>),
}

fn opened(args: &Export, budget: &Budget) -> Outcome<Opened> {
    let without_folds = |opened: MonaiModel| match args.fold {
        None => Ok(Opened::Other(Box::new(opened.model))),
        Some(fold) => {
            let message = format!("--fold {fold} has no effect with {}", args.model.display());
            Err(Failure::new(message, "leave it out: models of MONAI have no folds"))
        }
    };
    let source = ModelSource::of(&args.model)?;
    if args.checkpoint.is_some() && !matches!(source, ModelSource::Run(_)) {
        let message =
            format!("--checkpoint has no effect with {}: it is no folder of a run", args.model.display());
        return Err(Failure::new(message, "leave it out"));
    }
    match source {
        ModelSource::Run(folder) => Ok(Opened::Run(Box::new(run_of(args, &folder)?))),
        ModelSource::File(file) => {
            let mut model = ModelFile::open(&file)?.model();
            if let Some(fold) = args.fold {
                model.weights.retain(|weights| weights.prefix == format!("fold_{fold}."));
            }
            Ok(Opened::Run(Box::new(model)))
        }
        ModelSource::NnUnet(folder) => {
            let choice = NnUnetChoice { folds: args.fold.into_iter().collect(), ..NnUnetChoice::default() };
            let opened = NnUnetModel::open(&find_model(&folder)?, &choice, budget)?;
            Ok(Opened::Other(Box::new(opened.model)))
        }
        ModelSource::MonaiBundle(folder) => without_folds(MonaiModel::open_bundle(&folder, budget)?),
        ModelSource::MonaiConfig(file) => without_folds(MonaiModel::open_config(&file, budget)?),
        ModelSource::Pairs { folder, pairs } => {
            let message = format!("{} has classifiers of {} pairs", folder.display(), pairs.len());
            let first = pairs.first().map(|pair| pair_run(&folder, *pair).path().to_path_buf());
            let hint = first.map(|run| format!("name one, like {}", run.display()));
            Err(Failure::new(message, hint.unwrap_or_else(|| "name one of them".into())))
        }
    }
}

/// The weights of the only fold.
fn one_fold<'a>(args: &Export, weights: &'a [WeightSource]) -> Outcome<&'a WeightSource> {
    match weights {
        [only] => Ok(only),
        [] => {
            let fold = args.fold.map(|fold| format!(" {fold}")).unwrap_or_default();
            let message = format!("{} has no fold{fold}", args.model.display());
            Err(Failure::new(message, "`plimsoll models show` says which it has"))
        }
        several => {
            let message = format!("{} has {} folds, and a file has one", args.model.display(), several.len());
            Err(Failure::new(message, "name one with --fold, like --fold 0"))
        }
    }
}

/// That the output is a file of an ending that may be written.
fn expect_file(args: &Export, ending: &str, hint: &str) -> Outcome {
    let output = &args.output;
    if output.extension().is_none_or(|found| found != ending) {
        return Err(Failure::new(format!("{} does not end in .{ending}", output.display()), hint));
    }
    if output.exists() && !args.overwrite {
        let message = format!("{} is there already", output.display());
        return Err(Failure::new(message, "choose another file, or --overwrite"));
    }
    Ok(())
}
