//! Deflates the PTX and the tables in `kernels/`, which are built in: 5 MB of text shrink to a tenth of that. The same of machine code, if
//! `PLIMSOLL_CUBINS` names a folder with it: `kernels/assemble.py --cubins` makes it, and `release/build` calls that.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
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

/// Machine code: the capability, and its pieces in the order in which they are loaded.
const CUBINS: [(&str, &[&str]); 5] = [
    ("70", &["kernels", "tensor70"]),
    ("75", &["kernels", "tensor75"]),
    ("80", &["kernels", "tensor80"]),
    ("86", &["kernels", "tensor80"]),
    ("90", &["kernels", "tensor80", "tensor90"]),
];

const FOLDER: &str = "PLIMSOLL_CUBINS";

/// Deflates a file into the folder of this build, and returns the piece as an expression.
fn deflate(path: &Path, out: &Path) -> Result<String, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", path.display());
    let name = path.file_name().and_then(|name| name.to_str()).ok_or("a file without a name")?;
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&text)?;
    fs::write(out.join(format!("{name}.z")), encoder.finish()?)?;
    let deflated = format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.z\"))");
    Ok(format!("Piece {{ bytes: {}, deflated: {deflated} }}", text.len()))
}

/// Checks that machine code is of the PTX that is built in, by the digest in the first line of the table of resources.
fn check(folder: &Path) -> Result<(), Box<dyn Error>> {
    let of = folder.join("ptx");
    println!("cargo::rerun-if-changed={}", of.display());
    let found = fs::read_to_string(&of).map_err(|error| format!("{}: {error}", of.display()))?;
    let table = fs::read_to_string("kernels/resources.csv")?;
    let expected =
        table.lines().next().and_then(|line| line.strip_prefix("# ")).ok_or("a table without a digest")?;
    match found.trim() == expected {
        true => Ok(()),
        false => Err(format!(
            "the machine code in {FOLDER}={} is of other PTX: kernels/assemble.py --cubins makes it",
            folder.display()
        )
        .into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-env-changed={FOLDER}");
    let mut constants = String::new();
    for (name, file) in PIECES {
        let piece = deflate(&Path::new("kernels").join(file), &out)?;
        writeln!(constants, "const {name}: Piece = {piece};")?;
    }
    constants.push_str("const CUBINS: &[(u32, &[Piece])] = &[");
    if let Some(folder) = env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from) {
        check(&folder)?;
        for (card, pieces) in CUBINS {
            let of = |piece: &&str| deflate(&folder.join(format!("{piece}.sm_{card}.cubin")), &out);
            let pieces = pieces.iter().map(of).collect::<Result<Vec<_>, _>>()?;
            write!(constants, "({card}, &[{}]),", pieces.join(", "))?;
        }
    }
    constants.push_str("];\n");
    fs::write(out.join("pieces.rs"), constants)?;
    Ok(())
}
