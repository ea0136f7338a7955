//! Mirroring in place.

use crate::raster::Extent;

/// Exchanges left and right.
pub fn horizontally(extent: Extent, channels: usize, samples: &mut [u8]) {
    for row in samples.chunks_exact_mut((extent.width * channels).max(1)).take(extent.height) {
        for column in 0..extent.width / 2 {
            for channel in 0..channels {
                row.swap(column * channels + channel, (extent.width - 1 - column) * channels + channel);
            }
        }
    }
}

/// Exchanges top and bottom.
pub fn vertically(extent: Extent, channels: usize, samples: &mut [u8]) {
    let mut rows = samples.chunks_exact_mut((extent.width * channels).max(1)).take(extent.height);
    while let (Some(top), Some(bottom)) = (rows.next(), rows.next_back()) {
        top.swap_with_slice(bottom);
    }
}
