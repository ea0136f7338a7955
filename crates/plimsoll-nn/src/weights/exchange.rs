//! Matrices with their axes exchanged, in place.

/// Exchanges the axes of a matrix in place: from `rows` rows to `rows` columns. Takes no memory.
///
/// Each place is filled with the value that belongs there, which is where it stood first or where an earlier exchange put it.
pub fn exchange_axes(values: &mut [f32], rows: usize) {
    let Some(columns) = values.len().checked_div(rows) else { return };
    // The place in the first matrix of what belongs to a place of the second.
    let source = |place: usize| place % rows * columns + place / rows;
    for place in 0..rows * columns {
        let mut from = source(place);
        while from < place {
            from = source(from);
        }
        values.swap(place, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        for (rows, columns) in [(1, 5), (2, 3), (3, 2), (4, 4), (7, 12), (32, 2), (5, 1)] {
            let first: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            let mut values = first.clone();
            exchange_axes(&mut values, rows);
            for (place, value) in values.iter().enumerate() {
                let (column, row) = (place / rows, place % rows);
                assert_eq!(*value, first[row * columns + column], "{rows} × {columns}");
            }
            exchange_axes(&mut values, columns);
            assert_eq!(values, first);
        }
        exchange_axes(&mut [], 0);
    }
}
