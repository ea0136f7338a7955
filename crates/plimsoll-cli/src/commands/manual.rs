//! `plimsoll manual`

use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use plimsoll_disk::atomic;
use serde_json::json;

use crate::args::{Args, Manual};
use crate::failure::{Failure, Outcome};
use crate::report;

/// A page of the manual.
struct Page {
    path: PathBuf,
    text: Vec<u8>,
}

/// Writes a manual page for each command, like `plimsoll-train.1`.
pub fn run(manual: &Manual, as_json: bool) -> Outcome {
    let mut root = Args::command();
    root.build();
    let mut pages = Vec::new();
    add_pages(&root, root.get_name(), manual, &mut pages)?;
    if let Some(page) = pages.iter().find(|page| page.path.exists() && !manual.overwrite) {
        let message = format!("{} exists", page.path.display());
        return Err(Failure::new(message, "choose another folder, or replace it with --overwrite"));
    }
    plimsoll_disk::create_dir_all(&manual.folder)
        .map_err(|error| Failure::at_path(&manual.folder, &error))?;
    for page in &pages {
        atomic::write(&page.path, |out| out.write_all(&page.text))
            .map_err(|error| Failure::at_path(&page.path, &error))?;
    }
    if as_json {
        let paths: Vec<_> = pages.iter().map(|page| page.path.display().to_string()).collect();
        return report::json(&json!({ "pages": paths }));
    }
    println!("{} pages in {}", pages.len(), manual.folder.display());
    Ok(())
}

/// Adds the page of a command called `name`, and the pages of the commands below it.
fn add_pages(command: &Command, name: &str, manual: &Manual, pages: &mut Vec<Page>) -> Outcome {
    let path = manual.folder.join(format!("{name}.1"));
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text).map_err(|error| Failure::at_path(&path, &error))?;
    pages.push(Page { path, text });
    // `help` only repeats the pages of others.
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        add_pages(below, &format!("{name}-{}", below.get_name()), manual, pages)?;
    }
    Ok(())
}
