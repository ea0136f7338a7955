//! The header that is committed is the one that the interface has.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

#[test]
fn the_header_says_what_the_library_has() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["src/error.rs", "src/types.rs", "src/interface.rs", "src/session.rs", "src/evaluation.rs"] {
        builder = builder.with_src(folder.join(file));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let path = folder.join("include/plimsoll.h");
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read(&path).unwrap();
    assert!(committed == made, "the interface has changed: bless the header, and look at what changed in it");
    for name in [
        "plimsoll_open",
        "plimsoll_plan",
        "plimsoll_estimate",
        "plimsoll_predict",
        "plimsoll_session_open",
        "plimsoll_session_set_image",
        "plimsoll_session_predict",
        "plimsoll_session_free",
        "plimsoll_evaluate",
        "plimsoll_error",
        "plimsoll_limit_warnings",
        "plimsoll_free",
    ] {
        assert!(
            String::from_utf8_lossy(&committed).contains(&format!(" {name}("))
                || String::from_utf8_lossy(&committed).contains(&format!("*{name}(")),
            "{name}"
        );
    }
}
