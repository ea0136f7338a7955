//! Deflates the PTX and the tables in `kernels/`, which are built in: 5 MB of text shrink to a tenth of that.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Each piece, by the name of its constant.
const PIECES: [(&str, &str); 7] = [
    ("PLAIN", "kernels.ptx"),
    ("VOLTA", "tensor70.ptx"),
    ("TURING", "tensor75.ptx"),
    ("AMPERE", "tensor80.ptx"),
    ("HOPPER", "tensor90.ptx"),
    ("COUNTS", "counts.csv"),
    ("RESOURCES", "resources.csv"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    let mut constants = String::new();
    for (name, file) in PIECES {
        let path = Path::new("kernels").join(file);
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read(&path)?;
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&text)?;
        fs::write(Path::new(&out).join(format!("{file}.z")), encoder.finish()?)?;
        let deflated = format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}.z\"))");
        writeln!(
            constants,
            "const {name}: Piece = Piece {{ bytes: {}, deflated: {deflated} }};",
            text.len()
        )?;
    }
    fs::write(Path::new(&out).join("pieces.rs"), constants)?;
    Ok(())
}
