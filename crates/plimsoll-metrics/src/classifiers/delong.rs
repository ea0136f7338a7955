//! The difference of two areas under ROC curves of the same images.

/// The difference of two areas under ROC curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AreaDifference {
    /// The first less the second.
    pub difference: f64,
    /// Its standard error.
    pub standard_error: f64,
}

/// The difference of two areas from the difference of what each image adds to them: of an image of the class the share of others below it, of others the share
/// of images of the class above it (V₁₀ and V₀₁ of DeLong et al. 1988, whose contrast of two areas this is). Its variance is S₁₀ / m + S₀₁ / n with the
/// variances S of these differences among m images of the class and n others. None with fewer than two of either.
pub fn delong(differences: &[f64], is_of_class: impl Fn(usize) -> bool) -> Option<AreaDifference> {
    let side = |of_class: bool| {
        let own = || differences.iter().enumerate().filter(|(at, _)| is_of_class(*at) == of_class);
        let count = own().count();
        let mean = own().map(|(_, d)| d).sum::<f64>() / count as f64;
        let squares: f64 = own().map(|(_, d)| (d - mean).powi(2)).sum();
        (count > 1).then(|| (mean, squares / (count - 1) as f64 / count as f64))
    };
    let ((difference, of_class), (_, others)) = side(true).zip(side(false))?;
    Some(AreaDifference { difference, standard_error: (of_class + others).sqrt() })
}
