//! `plimsoll models`

use std::path::{Path, PathBuf};

use plimsoll::{
    ImportRequest, ModelFileRequest, ShowRequest, ShownModel, VerifyRequest, import_models, show_models,
    verify_model_file, write_model_file,
};
use plimsoll_memory::Bytes;
use plimsoll_run::printable;

use crate::args::{ExportModel, ImportModels, Models, ShowModels, VerifyModel};
use crate::failure::Outcome;
use crate::report::json;
use crate::terminal;

/// The most bytes of a licence that are shown.
const MOST_SHOWN: u64 = 64 << 10;

/// Imports models, or says what they are.
pub fn run(command: &Models, as_json: bool) -> Outcome {
    match command {
        Models::Import(args) => import(args, as_json),
        Models::Show(args) => show(args, as_json),
        Models::Export(args) => export(args, as_json),
        Models::Verify(args) => verify(args, as_json),
    }
}

fn import(args: &ImportModels, as_json: bool) -> Outcome {
    let to = match (&args.output, std::env::var_os("nnUNet_results").filter(|folder| !folder.is_empty())) {
        (Some(to), _) => to.clone(),
        (None, Some(results)) => results.into(),
        (None, None) => PathBuf::from("."),
    };
    let request = ImportRequest { from: args.from.clone(), to, ram: args.ram.ram };
    let imported = import_models(&request, &terminal::observed(as_json))?;
    if as_json {
        return json(&imported);
    }
    for licence in &imported.licences {
        println!("{}:", shown_path(licence));
        match plimsoll_disk::read_to_string(licence, MOST_SHOWN) {
            Ok(text) => println!("{}\n", printable(text.trim_end())),
            Err(error) => println!("(not shown: {error})\n"),
        }
    }
    println!("{} files, {}, in {}", imported.files, Bytes(imported.bytes), shown_path(&imported.folder));
    imported.models.iter().for_each(print);
    Ok(())
}

fn show(args: &ShowModels, as_json: bool) -> Outcome {
    let models = show_models(
        &ShowRequest { path: args.folder.clone(), ram: args.ram.ram },
        &terminal::observed(as_json),
    )?;
    if as_json {
        return json(&models);
    }
    models.iter().for_each(print);
    Ok(())
}

fn export(args: &ExportModel, as_json: bool) -> Outcome {
    let request = ModelFileRequest {
        run: args.run.clone(),
        file: args.file.clone(),
        checkpoint: args.checkpoint.into(),
        overwrite: args.overwrite,
        ram: args.ram.ram,
    };
    let written = write_model_file(&request, &terminal::observed(as_json))?;
    if as_json {
        return json(&written);
    }
    let averaged = match written.averaged {
        0 => String::new(),
        count => format!(", {count} of them averages over the steps"),
    };
    println!(
        "{} tensors{averaged} of {} in {}, digest {}",
        written.tensors,
        folds(written.folds),
        args.file.display(),
        written.digest
    );
    Ok(())
}

/// The number of folds, in words.
fn folds(count: usize) -> String {
    if count == 1 { "one fold".into() } else { format!("{count} folds") }
}

fn verify(args: &VerifyModel, as_json: bool) -> Outcome {
    let request = VerifyRequest { file: args.file.clone(), ram: args.ram.ram };
    let verified = verify_model_file(&request, &terminal::observed(as_json))?;
    if as_json {
        return json(&verified);
    }
    println!(
        "{}: all {} tensors of {} are as they were written, digest {}",
        shown_path(&args.file),
        verified.tensors,
        folds(verified.folds),
        verified.digest
    );
    Ok(())
}

/// A path on one line of a terminal, whatever its names are made of.
fn shown_path(path: &Path) -> String {
    printable(&path.display().to_string()).replace(['\n', '\t'], " ")
}

fn print(model: &ShownModel) {
    println!("{}", shown_path(&model.folder));
    for line in &model.lines {
        println!("  {line}");
    }
    if let Some(error) = &model.error {
        println!("  cannot be used: {error}");
    }
}
