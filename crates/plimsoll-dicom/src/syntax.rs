//! Transfer syntaxes: how the elements of a file are encoded, and how its pixels are compressed (DICOM PS3.5, Annexes A and 8.2).

/// In which order the bytes of a number are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

/// The coding of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// One after the other.
    Plain(Order),
    /// Run lengths of each byte of all pixels, the highest byte first.
    RunLengths,
    /// JPEG whose pixels are predicted from their neighbours (ITU-T T.81, process 14).
    JpegLossless,
    /// JPEG of 8 bits, by cosine transforms (ITU-T T.81, processes 1, 2 and 4).
    Jpeg,
    /// ITU-T T.87.
    JpegLs,
    /// ITU-T T.800.
    Jpeg2000,
    /// Plain, and each frame deflated (DICOM PS3.5, A.4.13).
    Deflated,
}

/// A transfer syntax.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Syntax {
    uid: &'static str,
    /// The usual name.
    pub(crate) name: &'static str,
    pub(crate) coding: Coding,
    /// Tells whether elements state their types.
    pub(crate) is_explicit: bool,
    /// Tells whether all elements are compressed.
    pub(crate) is_deflated: bool,
    /// Tells whether the compression may change pixels.
    pub(crate) is_lossy: bool,
}

const fn plain(uid: &'static str, name: &'static str, is_explicit: bool, order: Order) -> Syntax {
    Syntax { uid, name, coding: Coding::Plain(order), is_explicit, is_deflated: false, is_lossy: false }
}

const fn compressed(uid: &'static str, name: &'static str, coding: Coding, is_lossy: bool) -> Syntax {
    Syntax { uid, name, coding, is_explicit: true, is_deflated: false, is_lossy }
}

/// All that are read.
static ALL: [Syntax; 14] = [
    plain(Syntax::IMPLICIT, "Implicit VR Little Endian", false, Order::Little),
    plain(Syntax::EXPLICIT, "Explicit VR Little Endian", true, Order::Little),
    plain("1.2.840.10008.1.2.2", "Explicit VR Big Endian", true, Order::Big),
    Syntax {
        is_deflated: true,
        ..plain("1.2.840.10008.1.2.1.99", "Deflated Explicit VR Little Endian", true, Order::Little)
    },
    compressed("1.2.840.10008.1.2.8.1", "Deflated Image Frame Compression", Coding::Deflated, false),
    compressed("1.2.840.10008.1.2.5", "RLE Lossless", Coding::RunLengths, false),
    compressed("1.2.840.10008.1.2.4.50", "JPEG Baseline", Coding::Jpeg, true),
    compressed("1.2.840.10008.1.2.4.51", "JPEG Extended", Coding::Jpeg, true),
    compressed("1.2.840.10008.1.2.4.57", "JPEG Lossless", Coding::JpegLossless, false),
    compressed(
        "1.2.840.10008.1.2.4.70",
        "JPEG Lossless, First-Order Prediction",
        Coding::JpegLossless,
        false,
    ),
    compressed("1.2.840.10008.1.2.4.80", "JPEG-LS Lossless", Coding::JpegLs, false),
    compressed("1.2.840.10008.1.2.4.81", "JPEG-LS Near-Lossless", Coding::JpegLs, true),
    compressed("1.2.840.10008.1.2.4.90", "JPEG 2000 Lossless", Coding::Jpeg2000, false),
    compressed("1.2.840.10008.1.2.4.91", "JPEG 2000", Coding::Jpeg2000, true),
];

impl Syntax {
    /// Implicit VR Little Endian.
    pub(crate) const IMPLICIT: &'static str = "1.2.840.10008.1.2";
    /// Explicit VR Little Endian.
    pub(crate) const EXPLICIT: &'static str = "1.2.840.10008.1.2.1";

    /// The transfer syntax with a unique identifier; `None` if it is not read.
    pub(crate) fn named(uid: &str) -> Option<&'static Syntax> {
        ALL.iter().find(|syntax| syntax.uid == uid)
    }

    /// In which order the bytes of its elements are.
    pub(crate) fn order(&self) -> Order {
        match self.coding {
            Coding::Plain(order) => order,
            _ => Order::Little,
        }
    }
}
