//! `plimsoll export`

use plimsoll::{ExportFormat, ExportRequest, ExportedModel, export};

use crate::args::{self, Export};
use crate::failure::Outcome;
use crate::report::json;
use crate::terminal::observed;

/// Writes a model for other programs.
pub fn run(args: &Export, as_json: bool) -> Outcome {
    let request = ExportRequest {
        model: args.model.clone(),
        output: args.output.clone(),
        format: match args.format {
            args::ExportFormat::Safetensors => ExportFormat::Safetensors,
            args::ExportFormat::Nnunet => ExportFormat::Nnunet,
            args::ExportFormat::Onnx => ExportFormat::Onnx,
        },
        fold: args.fold,
        external_data: args.external_data,
        checkpoint: args.checkpoint.map(Into::into),
        overwrite: args.overwrite,
        ram: args.ram.ram,
    };
    let exported = export(&request, &observed(as_json))?;
    if as_json {
        return json(&exported);
    }
    let output = args.output.display();
    match exported {
        ExportedModel::Weights(weights) => {
            let averaged = match weights.averaged {
                0 => String::new(),
                count => format!(", {count} of them averages over the steps"),
            };
            println!(
                "{} tensors{averaged} in {output}, {} of them under other names, too",
                weights.tensors, weights.duplicates
            );
        }
        ExportedModel::Folder(folder) => {
            let folds = folder.folds.join(", ");
            println!("{} of fold {folds} in {output}", folder.configuration);
            // Without -f it looks for folds 0 to 4.
            let folds = folder.folds.join(" ");
            println!("nnUNetv2_predict_from_modelfolder -m {output} -i IMAGES -o LABELS -f {folds}");
            folder.differences.iter().for_each(|difference| println!("- {difference}"));
        }
        ExportedModel::Graph(graph) => {
            println!(
                "{} nodes and {} tensors in {output}, opset {}: image {:?} to logits {:?}",
                graph.nodes, graph.tensors, graph.opset, graph.image, graph.logits
            );
            if let Some(data) = &graph.data {
                println!("weights in {}, which must stay beside it", data.display());
            }
        }
    }
    Ok(())
}
