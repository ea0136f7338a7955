use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

/// Bytes like the bytes of voxels: noise of some bits in 16, on a slope, with a constant part.
fn voxels(count: usize, noise: u32) -> Vec<u8> {
    let mut state = 7u64;
    let voxel = |at: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let value = (state >> 40) as u32 & ((1 << noise) - 1);
        if (at / 300).is_multiple_of(3) { 0 } else { (value + (at / 700) as u32) as u16 }
    };
    (0..count).map(voxel).flat_map(u16::to_le_bytes).collect()
}

fn gzip(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

struct Written {
    folder: tempfile::TempDir,
    path: std::path::PathBuf,
}

impl Written {
    fn new(compressed: &[u8]) -> Written {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.nii.gz");
        std::fs::write(&path, compressed).unwrap();
        Written { folder, path }
    }

    fn indexes(&self) -> IndexFolder {
        IndexFolder::new(self.folder.path().join("points"))
    }

    fn open(&self) -> Deflated {
        Deflated::new(File::open(&self.path).unwrap(), Stretch::GZIP_FILE).unwrap()
    }

    fn indexed(&self, holds: usize) -> Deflated {
        let mut members = self.open();
        members.index_in(&self.indexes(), &self.path, holds as u64);
        members
    }
}

fn all(members: &mut Deflated) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    let mut part = vec![0; 5000];
    loop {
        match members.read(&mut part)? {
            0 => return Ok(found),
            count => found.extend(&part[..count]),
        }
    }
}

fn exact(members: &mut Deflated, offset: usize, length: usize) -> io::Result<Vec<u8>> {
    members.seek(offset as u64)?;
    let mut found = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match members.read(&mut found[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(found)
}

#[test]
fn what_flate2_compressed_comes_back_at_every_level() {
    for level in [0, 1, 3, 6, 9] {
        for bytes in [vec![], vec![7], vec![0; 1 << 20], voxels(300_000, 5), voxels(200_000, 12)] {
            let written = Written::new(&gzip(&bytes, level));
            assert!(all(&mut written.open()).unwrap() == bytes, "level {level}, {} bytes", bytes.len());
        }
    }
}

/// The output of a decompressor up to the end or an error, and whether it was the end.
fn until_the_end(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> (Vec<u8>, bool) {
    let (mut found, mut part) = (Vec::new(), vec![0; 3000]);
    loop {
        match read(&mut part) {
            Ok(0) => return (found, true),
            Ok(count) => found.extend(&part[..count]),
            Err(_) => return (found, false),
        }
    }
}

/// All seeds of fuzz targets, as they are where gzip made them, and compressed; with bits that are changed.
#[test]
fn flate2_reads_what_is_read_here_and_refuses_what_is_refused() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/seeds");
    let mut inputs = Vec::new();
    for target in std::fs::read_dir(seeds).unwrap() {
        for seed in std::fs::read_dir(target.unwrap().path()).unwrap() {
            let bytes = std::fs::read(seed.unwrap().path()).unwrap();
            match bytes.starts_with(&[MAGIC, 0x8b]) {
                true => inputs.push(bytes),
                false => inputs.extend([1, 9].map(|level| gzip(&bytes, level))),
            }
        }
    }
    assert!(inputs.len() > 100, "{}", inputs.len());
    let (mut state, mut refused) = (5u64, 0);
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    for input in inputs {
        for change in 0..8 {
            let mut bytes = input.clone();
            match change {
                0 => {}
                1 => bytes.truncate(below(input.len())),
                _ => bytes[below(input.len())] ^= 1 << below(8),
            }
            let mut theirs = flate2::read::MultiGzDecoder::new(&bytes[..]);
            let (theirs, is_whole) = until_the_end(|part| io::Read::read(&mut theirs, part));
            let mut ours = Written::new(&bytes).open();
            let (ours, is_read) = until_the_end(|part| ours.read(part));
            // What comes before an error is given as far as it was decompressed by then. Bytes behind the last member are passed over here.
            let shared = ours.len().min(theirs.len());
            assert!(ours[..shared] == theirs[..shared]);
            assert!(is_read || !is_whole, "{} bytes, change {change}", bytes.len());
            assert!(!is_read || ours.len() >= theirs.len(), "{} bytes, change {change}", bytes.len());
            refused += u32::from(!is_read);
        }
    }
    assert!(refused > 200, "{refused}");
}

#[test]
fn members_follow_each_other_and_what_follows_them_is_ignored() {
    let (one, two) = (voxels(60_000, 6), voxels(50_000, 3));
    let compressed = [gzip(&one, 6), gzip(&[], 6), gzip(&two, 1), vec![0; 100]].concat();
    assert!(all(&mut Written::new(&compressed).open()).unwrap() == [one, two].concat());
}

#[test]
fn regions_are_the_same_from_access_points_and_cost_what_they_hold() {
    let bytes = voxels(2_000_000, 6);
    let parts: Vec<u8> = bytes.chunks(65_280).flat_map(|part| gzip(part, 6)).collect();
    for compressed in [gzip(&bytes, 6), parts] {
        let written = Written::new(&compressed);
        let mut recorded = written.indexed(bytes.len());
        assert!(!recorded.is_indexed());
        assert!(all(&mut recorded).unwrap() == bytes);
        let mut indexed = written.indexed(bytes.len());
        assert!(indexed.is_indexed());
        for (offset, length) in
            [(3_999_000, 1000), (5, 70_000), (2_000_000, 300_000), (1_999_000, 10), (3_000_000, 1), (0, 1)]
        {
            let found = exact(&mut indexed, offset, length).unwrap();
            assert!(found == bytes[offset..offset + length], "{offset}, {length}");
        }
        let Points::Known(index) = &indexed.points else { panic!("it has points") };
        let gaps = index.points.windows(2).map(|pair| pair[1].out - pair[0].out);
        assert!(gaps.max().unwrap() < 400_000);
        let kept = std::fs::metadata(written.indexes().file(&written.path).unwrap()).unwrap().len();
        assert!(kept < compressed.len() as u64 / 3 + 40_000, "{kept} of {}", compressed.len());
        assert!(exact(&mut indexed, bytes.len(), 1).is_err());
        // The whole is checked by its own checksum.
        indexed.rewind().unwrap();
        assert!(all(&mut indexed).unwrap() == bytes);
        assert!(indexed.is_indexed(), "points are known behind the end as well");
    }
}

#[test]
fn points_of_another_file_and_damaged_ones_are_made_again() {
    let bytes = voxels(500_000, 6);
    let written = Written::new(&gzip(&bytes, 6));
    all(&mut written.indexed(bytes.len())).unwrap();
    let kept = written.indexes().file(&written.path).unwrap();
    let good = std::fs::read(&kept).unwrap();
    for at in [good.len() - 1, good.len() - 20, good.len() - 100] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&kept, bad).unwrap();
        assert!(!written.indexed(bytes.len()).is_indexed(), "byte {at}");
    }
    std::fs::write(&kept, &good[..good.len() / 2]).unwrap();
    let mut again = written.indexed(bytes.len());
    assert!(!again.is_indexed() && all(&mut again).unwrap() == bytes);
    assert!(std::fs::read(&kept).unwrap() == good);
    // A window alone: the file is read from its beginning.
    let mut bad = good.clone();
    bad[20..good.len() / 2].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&kept, bad).unwrap();
    let mut damaged = written.indexed(bytes.len());
    assert!(damaged.is_indexed());
    assert!(exact(&mut damaged, 300_000, 1000).unwrap() == bytes[300_000..301_000]);
    std::fs::write(&kept, &good).unwrap();
    let other = gzip(&voxels(500_000, 7), 6);
    std::fs::write(&written.path, other).unwrap();
    assert!(!written.indexed(bytes.len()).is_indexed());
}

#[test]
fn damage_is_found_where_a_region_is_read() {
    let bytes = voxels(500_000, 6);
    let compressed = gzip(&bytes, 6);
    let written = Written::new(&compressed);
    all(&mut written.indexed(bytes.len())).unwrap();
    let stamp = std::fs::metadata(&written.path).unwrap().modified().unwrap();
    let mut bad = compressed.clone();
    let at = bad.len() / 2;
    bad[at] ^= 4;
    std::fs::write(&written.path, bad).unwrap();
    std::fs::File::options().write(true).open(&written.path).unwrap().set_modified(stamp).unwrap();
    let mut indexed = written.indexed(bytes.len());
    assert!(indexed.is_indexed());
    assert!(exact(&mut indexed, 10_000, 1000).unwrap() == bytes[10_000..11_000]);
    let found = exact(&mut indexed, 470_000, 60_000);
    assert_eq!(found.unwrap_err().kind(), io::ErrorKind::InvalidData);
    // A whole pass finds it at the end at the latest.
    assert!(all(&mut written.open()).is_err());
}

#[test]
fn damage_before_the_first_access_point_is_found_by_the_first_byte_that_is_read() {
    // With several points, and with none.
    for (bytes, may_be_elsewhere) in [(voxels(500_000, 6), true), (voxels(9_000, 6), false)] {
        let compressed = gzip(&bytes, 6);
        let written = Written::new(&compressed);
        all(&mut written.indexed(bytes.len())).unwrap();
        let stamp = std::fs::metadata(&written.path).unwrap().modified().unwrap();
        let mut bad = compressed.clone();
        bad[3000] ^= 4;
        std::fs::write(&written.path, bad).unwrap();
        std::fs::File::options().write(true).open(&written.path).unwrap().set_modified(stamp).unwrap();
        assert!(
            exact(&mut written.open(), 0, 1000).unwrap() == bytes[..1000],
            "without points it is not seen"
        );
        // A header is read before points are known.
        let mut begun = written.open();
        assert!(exact(&mut begun, 0, 352).unwrap() == bytes[..352]);
        begun.index_in(&written.indexes(), &written.path, bytes.len() as u64);
        for (mut indexed, at) in [(written.indexed(bytes.len()), 0), (begun, 352)] {
            assert!(indexed.is_indexed());
            for _ in 0..2 {
                let found = exact(&mut indexed, at, 10);
                assert_eq!(found.unwrap_err().kind(), io::ErrorKind::InvalidData);
                indexed.rewind().unwrap();
            }
            if may_be_elsewhere {
                assert!(exact(&mut indexed, 700_000, 1000).unwrap() == bytes[700_000..701_000]);
            }
        }
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_an_error() {
    let bytes = voxels(900, 6);
    for level in [0, 1, 6] {
        let compressed = gzip(&bytes, level);
        for length in 2..compressed.len() {
            let error = all(&mut Written::new(&compressed[..length]).open()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length} of {}", compressed.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_come_back(
        parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..40), 1usize..3000), 0..30),
        level in 0u32..10,
    ) {
        let bytes: Vec<u8> = parts.iter().flat_map(|(part, times)| part.repeat(*times / part.len() + 1)).collect();
        let found = all(&mut Written::new(&gzip(&bytes, level)).open()).unwrap();
        prop_assert!(found == bytes);
    }

    #[test]
    fn damaged_deflate_is_what_flate2_makes_of_it(at in 10usize..3000, bit in 0u8..8) {
        let mut compressed = gzip(&voxels(4000, 4), 6);
        let at = 10 + at % (compressed.len() - 18);
        compressed[at] ^= 1 << bit;
        let mut expected = Vec::new();
        let mut decoder = flate2::bufread::DeflateDecoder::new(&compressed[10..]);
        let is_whole = io::Read::read_to_end(&mut decoder, &mut expected).is_ok();
        let mut members = Written::new(&compressed).open();
        let mut found = Vec::<u8>::new();
        let mut part = vec![0; 700];
        while let Ok(count @ 1..) = members.read(&mut part) {
            found.extend(&part[..count]);
        }
        let same = found.len().min(expected.len());
        prop_assert!(found[..same] == expected[..same]);
        prop_assert!(!is_whole || found == expected);
    }
}
