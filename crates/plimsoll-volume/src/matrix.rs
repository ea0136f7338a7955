//! Arithmetic on 3×4 affine matrices, for [`Affine`](crate::Affine) and [`VoxelMap`](crate::VoxelMap).

/// Row `r` is `[m[r][0], m[r][1], m[r][2] | m[r][3]]`: a linear part and a translation.
pub(crate) type Matrix = [[f64; 4]; 3];

pub(crate) const IDENTITY: Matrix = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];

/// Below this share of the volume that its columns would span if they were perpendicular, a matrix counts as
/// singular. Columns that are parallel but rounded to f32, as files store them, still span about 1e-7.
const SINGULAR: f64 = 1e-6;

/// Every coordinate is summed in this order. Each rounded operation is monotone in each index, so the coordinates of a
/// lattice never leave the range spanned by its corners, not even by a rounding error.
pub(crate) fn coordinate(row: &[f64; 4], at: [f64; 3]) -> f64 {
    ((row[0] * at[0] + row[1] * at[1]) + row[2] * at[2]) + row[3]
}

pub(crate) fn apply(matrix: &Matrix, at: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| coordinate(&row, at))
}

/// The matrix that applies `inner` first, then `outer`.
pub(crate) fn compose(outer: &Matrix, inner: &Matrix) -> Matrix {
    outer.map(|row| {
        std::array::from_fn(|column| {
            let linear: f64 = (0..3).map(|k| row[k] * inner[k][column]).sum();
            if column == 3 { linear + row[3] } else { linear }
        })
    })
}

pub(crate) fn column(matrix: &Matrix, column: usize) -> [f64; 3] {
    matrix.map(|row| row[column])
}

pub(crate) fn length(vector: [f64; 3]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The volume that the columns span, as a share (0 to 1) of what columns of their lengths could span.
pub(crate) fn spanned(matrix: &Matrix) -> f64 {
    let [a, b, c] = [0, 1, 2].map(|axis| {
        let vector = column(matrix, axis);
        let length = length(vector);
        vector.map(|x| x / length)
    });
    dot(a, cross(b, c)).abs()
}

/// The inverse, or `None` if the matrix is singular or nearly so.
pub(crate) fn inverse(matrix: &Matrix) -> Option<Matrix> {
    // The comparison is also false if the matrix is not finite.
    let spans = spanned(matrix) > SINGULAR;
    if !spans {
        return None;
    }
    let [a, b, c] = [0, 1, 2].map(|axis| column(matrix, axis));
    let determinant = dot(a, cross(b, c));
    let shift = column(matrix, 3);
    Some([cross(b, c), cross(c, a), cross(a, b)].map(|row| {
        let [x, y, z] = row.map(|value| value / determinant);
        [x, y, z, -dot([x, y, z], shift)]
    }))
}
