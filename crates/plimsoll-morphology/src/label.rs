//! The element types of masks.

/// A voxel's label. The default value is the background.
pub trait Label: Copy + Eq + Default + Send + Sync + sealed::Sealed {
    /// The label as a number; the background is 0.
    fn number(self) -> u32;

    /// Returns `true` if this is anything but background.
    #[inline(always)]
    fn is_foreground(self) -> bool {
        self != Self::default()
    }
}

mod sealed {
    /// Seals [`super::Label`] to the types of this file.
    pub trait Sealed {}
}

macro_rules! labels {
    ($($label:ty),*) => {$(
        impl sealed::Sealed for $label {}
        impl Label for $label {
            #[inline(always)]
            fn number(self) -> u32 {
                u32::from(self)
            }
        }
    )*};
}
labels!(bool, u8, u16, u32);
