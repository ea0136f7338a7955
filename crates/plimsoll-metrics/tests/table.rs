//! Reading tables of probabilities.

use plimsoll_memory::{Budget, Bytes};
use plimsoll_metrics::classification::{Bootstrap, Labelling, Table, TableError, classify};

fn read(text: &str) -> Result<Table, TableError> {
    read_as(text, Labelling::OneClass)
}

fn read_as(text: &str, labelling: Labelling) -> Result<Table, TableError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.csv");
    std::fs::write(&path, text).unwrap();
    Table::read(&path, labelling, &Budget::new(Bytes::mib(1)))
}

#[test]
fn tables_from_different_programs_are_read() {
    let table = read(
        "\u{feff}case,label,benign,\"cancer, early\"\r\na,benign,0.75,0.25\r\n\r\nb,\"cancer, early\",1e-1,.9",
    );
    let table = table.unwrap();
    assert_eq!(table.classes(), ["benign", "cancer, early"]);
    assert!(table.is_of(0, 0) && table.is_of(1, 1) && !table.is_of(0, 1) && table.cases() == 2);
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
        ("case,label,a,b\n\n\nx,a,1\n", 4, "3 fields instead of 4"),
        ("case,label,a,b\nx,a,1,0,0\n", 2, "5 fields instead of 4"),
        ("case,label,a,b\nx,a,2.5,-1.5\n", 2, "`2.5` is not a probability"),
        ("case,label,a,b\nx,a,nan,1\n", 2, "`nan` is not a probability"),
        ("case,label,a,b\nx,a,0.5,0.4\n", 2, "sum to 0.9"),
        ("case,label,a,b\n\"x,a,0.5,0.5\n", 2, "quote"),
    ] {
        let error = read(text).unwrap_err();
        let found = error.to_string();
        assert!(found.contains(&format!("line {line}:")) && found.contains(problem), "{text}: {found}");
        assert!(error.remedy().is_some());
    }
    let error = read("case,label,a,b\n").unwrap_err();
    assert!(matches!(error, TableError::Empty { .. }), "{error}");
}

#[test]
fn cases_may_have_any_number_of_labels_where_that_is_said() {
    let text = "case,label,spots,blur,predicted\nx,spots|blur,0.75,0.5,spots|blur\ny,,0.25,0,\nz,blur,1,0.25,spots\n";
    let error = read(text).unwrap_err();
    assert!(
        error.to_string().contains("sum to 1.25") && error.remedy().unwrap().contains("‹several_labels›")
    );
    let table = read_as(text, Labelling::SeveralLabels).unwrap();
    let of = |case: usize| [0, 1].map(|class| table.is_of(case, class));
    assert_eq!([of(0), of(1), of(2)], [[true, true], [false, false], [false, true]]);
    let budget = Budget::new(Bytes::mib(1));
    let report = classify(&table, &Bootstrap { resamples: 10, ..Bootstrap::default() }, &budget).unwrap();
    assert_eq!(report.overall["accuracy"].value, Some(2.0 / 3.0));
    assert!(report.confusion_matrix.is_none());
    let spots = report.classes[0].counts;
    assert_eq!((spots.true_positives, spots.false_positives, spots.true_negatives), (1, 1, 1));
    let error = read_as("case,label,a,b\nx,a|c,1,0\n", Labelling::SeveralLabels).unwrap_err().to_string();
    assert!(error.contains("line 2:") && error.contains("`c` is not one"), "{error}");
}

#[test]
fn a_table_over_the_limit_is_refused() {
    let rows: String = (0..60_000).map(|case| format!("{case},a,1,0\n")).collect();
    let error = read(&format!("case,label,a,b\n{rows}")).unwrap_err();
    assert!(matches!(error, TableError::Memory(_)), "{error}");
}
