//! Unique identifiers that follow from what is identified.

use plimsoll_memory::Digester;

/// The root of identifiers that are made of UUIDs (ITU-T X.667, PS3.5 B.2).
const ROOT: &str = "2.25";

/// Version 8 of a UUID, and the variant of RFC 9562: its bits are as whoever makes it chooses.
const VERSION: (u128, u128) = (0xF << 76, 8 << 76);
const VARIANT: (u128, u128) = (0b11 << 62, 0b10 << 62);

/// The identifiers of a file.
pub(super) struct Unique(Digester);

impl Unique {
    /// Those of a file with this digest of all that is in it but identifiers.
    pub(super) fn new(content: &Digester) -> Unique {
        Unique(content.clone())
    }

    /// The identifier of the file.
    pub(super) fn instance(&self) -> String {
        self.identifier("instance")
    }

    /// The identifier of its series, which has no other file.
    pub(super) fn series(&self) -> String {
        self.identifier("series")
    }

    /// The identifier of the order of its frames.
    pub(super) fn dimensions(&self) -> String {
        self.identifier("dimensions")
    }

    fn identifier(&self, role: &str) -> String {
        // Two halves of 64 bits, of texts that differ in their last letter.
        let half = |half: u8| {
            let mut digest = self.0.clone();
            digest.update(role.as_bytes());
            digest.update(&[half]);
            u128::from(digest.finish().0)
        };
        let bits = half(0) << 64 | half(1);
        let uuid = bits & !(VERSION.0 | VARIANT.0) | VERSION.1 | VARIANT.1;
        format!("{ROOT}.{uuid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_uuids_that_differ_by_content_and_role() {
        let of = |content: &[u8]| {
            let mut digest = Digester::default();
            digest.update(content);
            let unique = Unique::new(&digest);
            [unique.instance(), unique.series(), unique.dimensions()]
        };
        assert_eq!(of(b"one"), of(b"one"));
        let mut all = [of(b"one"), of(b"other")].concat();
        for uid in &all {
            assert!(uid.len() <= 64, "{uid}");
            let uuid: u128 = uid.strip_prefix("2.25.").unwrap().parse().unwrap();
            assert_eq!((uuid >> 76 & 0xF, uuid >> 62 & 0b11), (8, 0b10));
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 6);
    }
}
