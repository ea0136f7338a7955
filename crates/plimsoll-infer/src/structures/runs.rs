//! Runs of voxels with one label in the rows of a plane.

/// Voxels of a row that follow each other and have one label, of which a structure is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The structure by its place in the table of names.
    pub(super) structure: usize,
    /// The row.
    pub(super) row: usize,
    /// The first voxel in the row.
    pub(super) start: usize,
    /// The voxel behind the last one.
    pub(super) end: usize,
}

/// The structure of each label by its place in the table of names; `None` for labels without a name.
pub(super) type Places = [Option<usize>; 256];

/// Calls `visit` with each run of the plane, row by row.
pub(super) fn for_each_run(plane: &[u8], width: usize, places: &Places, mut visit: impl FnMut(Run)) {
    for (row, labels) in plane.chunks_exact(width).enumerate() {
        let mut start = 0;
        for run in labels.chunk_by(|one, other| one == other) {
            let end = start + run.len();
            if let Some(structure) = run.first().and_then(|label| places[usize::from(*label)]) {
                visit(Run { structure, row, start, end });
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_with_their_row_and_labels_without_a_name_have_none() {
        let mut places: Places = [None; 256];
        (places[3], places[7]) = (Some(0), Some(1));
        let mut found = Vec::new();
        for_each_run(&[0, 3, 3, 3, 7, 9], 3, &places, |run| found.push(run));
        let run = |structure, row, start, end| Run { structure, row, start, end };
        assert_eq!(found, [run(0, 0, 1, 3), run(0, 1, 0, 1), run(1, 1, 1, 2)]);
    }
}
