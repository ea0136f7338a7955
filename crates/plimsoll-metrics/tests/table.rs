//! Reading tables of probabilities.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::classification::{Bootstrap, Table, TableError, classify};

fn read(text: &str) -> Result<Table, TableError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.csv");
    std::fs::write(&path, text).unwrap();
    Table::read(&path, &Budget::new(Bytes::mib(1)))
}

#[test]
fn tables_from_different_programs_are_read() {
    let table = read(
        "\u{feff}case,label,benign,\"cancer, early\"\r\na,benign,0.75,0.25\r\n\r\nb,\"cancer, early\",1e-1,.9",
    );
    let table = table.unwrap();
    assert_eq!(table.classes(), ["benign", "cancer, early"]);
    assert_eq!(table.labels(), [0, 1]);
    assert_eq!(table.rows().collect::<Vec<_>>(), [[0.75, 0.25], [0.1, 0.9]]);
    let report = classify(&table, &Bootstrap::default(), &Budget::new(Bytes::mib(1))).unwrap();
    let mut csv = Vec::new();
    report.write_csv(&mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(
        csv.contains("\nall,accuracy,1,1,1\n") && csv.contains("\n\"cancer, early\",auroc,1,1,1\n"),
        "{csv}"
    );
}

#[test]
fn a_wrong_line_is_named() {
    for (text, line, problem) in [
        ("", 1, "header"),
        ("name,label,a,b\nx,a,1,0\n", 1, "header"),
        ("case,label,a\nx,a,1\n", 1, "header"),
        ("case,label,a,a\nx,a,1,0\n", 1, "same name"),
        ("case,label,a,b\nx,a,1,0\ny,c,0,1\n", 3, "`c` is not one of the classes"),
        ("case,label,a,b\n\n\nx,a,1\n", 4, "3 fields where 4"),
        ("case,label,a,b\nx,a,1,0,0\n", 2, "5 fields where 4"),
        ("case,label,a,b\nx,a,2.5,-1.5\n", 2, "`2.5` is not a probability"),
        ("case,label,a,b\nx,a,nan,1\n", 2, "`nan` is not a probability"),
        ("case,label,a,b\nx,a,0.5,0.4\n", 2, "sum to 0.9"),
        ("case,label,a,b\n\"x,a,0.5,0.5\n", 2, "quote"),
    ] {
        let error = read(text).unwrap_err();
        let found = error.to_string();
        assert!(found.contains(&format!("line {line}:")) && found.contains(problem), "{text}: {found}");
        assert!(error.hint().is_some());
    }
    let error = read("case,label,a,b\n").unwrap_err();
    assert!(matches!(error, TableError::Empty { .. }), "{error}");
}

#[test]
fn a_table_over_the_line_is_refused() {
    let rows: String = (0..60_000).map(|case| format!("{case},a,1,0\n")).collect();
    let error = read(&format!("case,label,a,b\n{rows}")).unwrap_err();
    assert!(matches!(error, TableError::Memory(_)), "{error}");
}
