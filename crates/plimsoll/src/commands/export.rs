//! `plimsoll export`

use plimsoll_run::{Model, export_weights};

use crate::args::Export;
use crate::failure::{Failure, Outcome};
use crate::jobs::line::Line;
use crate::report::json;

/// Writes the weights of one fold to a file.
pub fn run(args: &Export, as_json: bool) -> Outcome {
    let model = Model::open(&args.model, args.checkpoint.into())?;
    let [checkpoint] = model.weights.as_slice() else {
        let message =
            format!("{} has {} folds, and a file has one", args.model.display(), model.weights.len());
        return Err(Failure::new(message, format!("name one, like {}", args.model.join("fold_0").display())));
    };
    let output = &args.output;
    if output.extension().is_none_or(|ending| ending != "safetensors") {
        let message = format!("{} does not end in .safetensors", output.display());
        return Err(Failure::new(message, "`safetensors.torch.load_file` reads such files in Python"));
    }
    if output.exists() && !args.overwrite {
        let message = format!("{} is there already", output.display());
        return Err(Failure::new(message, "choose another file, or --overwrite"));
    }
    let line = Line::draw(args.ram.ram, 1)?;
    let net = model.config.training.net.as_architecture();
    let exported = export_weights(checkpoint, net, output, &line.budget)?;
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
        output.display(),
        exported.duplicates
    );
    Ok(())
}
