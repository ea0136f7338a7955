//! `plimsoll export`

use std::path::Path;

use plimsoll_memory::Budget;
use plimsoll_run::nnunet::export_nnunet;
use plimsoll_run::onnx::export_onnx;
use plimsoll_run::{Model, export_weights};

use crate::args::{Export, ExportFormat};
use crate::failure::{Failure, Outcome};
use crate::jobs::line::Line;
use crate::report::json;

/// Writes a model for other programs.
pub fn run(args: &Export, as_json: bool) -> Outcome {
    let model = Model::open(&args.model, args.checkpoint.into())?;
    let line = Line::draw(args.ram.ram, 1)?;
    match args.format {
        ExportFormat::Safetensors => write_weights(args, &model, &line.budget, as_json),
        ExportFormat::Nnunet => write_nnunet(args, &model, &line.budget, as_json),
        ExportFormat::Onnx => write_onnx(args, &model, &line.budget, as_json),
    }
}

fn write_weights(args: &Export, model: &Model, budget: &Budget, as_json: bool) -> Outcome {
    let checkpoint = one_fold(args, model)?;
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

fn write_nnunet(args: &Export, model: &Model, budget: &Budget, as_json: bool) -> Outcome {
    if args.overwrite {
        let message = "--overwrite has no effect with --format nnunet";
        return Err(Failure::new(message, "name a folder that is not there, or remove the one that is"));
    }
    let exported = export_nnunet(model, &args.output, budget)?;
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

fn write_onnx(args: &Export, model: &Model, budget: &Budget, as_json: bool) -> Outcome {
    let checkpoint = one_fold(args, model)?;
    expect_file(args, "onnx", "ONNX runtimes know such files by it")?;
    let exported = export_onnx(checkpoint, &model.config, &args.output, budget)?;
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
    Ok(())
}

/// The weights of the only fold.
fn one_fold<'a>(args: &Export, model: &'a Model) -> Outcome<&'a Path> {
    match model.weights.as_slice() {
        [checkpoint] => Ok(&checkpoint.path),
        several => {
            let message = format!("{} has {} folds, and a file has one", args.model.display(), several.len());
            Err(Failure::new(message, format!("name one, like {}", args.model.join("fold_0").display())))
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
