//! Hints about volumes: each file is broken, and mended as the hint says.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{
    Affine, ElementType, Geometry, Spacing, StoredVolume, VolumeError, VolumeFile, VolumeWriter,
};

const SHAPE: [usize; 3] = [3, 4, 5];
/// The length of a header of NIfTI-1 with the four bytes that announce extensions.
const HEADER: usize = 352;

/// Places of fields in a header of NIfTI-1.
mod field {
    pub const DIM: usize = 40;
    pub const DATATYPE: usize = 70;
    pub const BITPIX: usize = 72;
    pub const PIXDIM: usize = 76;
    pub const VOX_OFFSET: usize = 108;
    pub const SCL_SLOPE: usize = 112;
    pub const XYZT_UNITS: usize = 123;
    pub const QFORM_CODE: usize = 252;
    pub const SFORM_CODE: usize = 254;
    pub const QUATERN: usize = 256;
    pub const SROW: usize = 280;
    pub const MAGIC: usize = 344;
}

fn geometry() -> Geometry {
    Geometry::new(SHAPE, Affine::from_spacing(Spacing([2.0, 1.0, 0.5]))).unwrap()
}

fn write(path: &Path, element: ElementType) -> Result<(), VolumeError> {
    let mut writer = VolumeWriter::create(path, &geometry(), 1, element, None)?;
    writer.write_planes(&vec![1; SHAPE.iter().product::<usize>() * element.size()])?;
    writer.finish()
}

/// Opens and reads a volume.
fn read(path: &Path) -> Result<(), VolumeError> {
    VolumeFile::open(path)?;
    StoredVolume::read(path, &Budget::new(Bytes::mib(8)), "test").map(|_| ())
}

/// Expects an error of a variant whose hint says something.
fn expect_hint(variant: &str, what: &str, refused: Result<(), VolumeError>, says: &str) {
    let Err(problem) = refused else { panic!("{what}: it is accepted") };
    assert!(format!("{problem:?}").contains(variant), "{what}: {problem:?} is no {variant}");
    let hint = problem.remedy().unwrap_or_else(|| panic!("{what}: {problem} has no hint"));
    assert!(hint.contains(says), "{what}: {problem}: {hint}");
}

fn set(path: &Path, fields: &[(usize, &[u8])]) {
    let mut bytes = fs::read(path).unwrap();
    for (place, value) in fields {
        bytes[*place..place + value.len()].copy_from_slice(value);
    }
    fs::write(path, bytes).unwrap();
}

/// A header field that is broken, the hint, and fields that mend it; none if the file is to be written again from its source.
struct Broken<'a> {
    variant: &'a str,
    what: &'a str,
    fields: &'a [(usize, &'a [u8])],
    says: &'a str,
    mended: Option<&'a [(usize, &'a [u8])]>,
}

#[test]
fn headers_that_are_mended_as_is_proposed_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.nii");
    let (nan, two, one) = (f32::NAN.to_le_bytes(), 2.0f32.to_le_bytes(), 1.0f32.to_le_bytes());
    let (zero, rgb) = (0.0f32.to_le_bytes(), 128i16.to_le_bytes());
    let [off, on] = [0i16, 1].map(i16::to_le_bytes);
    let again = "write the image again from its source";
    // The first three numbers of the diagonal.
    let affine: &[(usize, &[u8])] =
        &[(field::SFORM_CODE, &on), (field::SROW, &one), (field::SROW + 20, &one), (field::SROW + 40, &one)];
    for Broken { variant, what, fields, says, mended } in [
        Broken {
            variant: "Magic",
            what: "no signature",
            fields: &[(field::MAGIC, b"abc\0")],
            says: "convert the image to NIfTI",
            mended: Some(&[(field::MAGIC, b"n+1\0")]),
        },
        Broken {
            variant: "Datatype",
            what: "colours",
            fields: &[(field::DATATYPE, &rgb), (field::BITPIX, &24i16.to_le_bytes())],
            says: "convert the voxels to a real number type: integers of 8 to 64 bits",
            mended: Some(&[(field::DATATYPE, &4i16.to_le_bytes()), (field::BITPIX, &16i16.to_le_bytes())]),
        },
        Broken {
            variant: "Unit",
            what: "a unit of no length",
            fields: &[(field::XYZT_UNITS, &[7])],
            says: "set the unit to millimetres (xyzt_units 2)",
            mended: Some(&[(field::XYZT_UNITS, &[2])]),
        },
        Broken {
            variant: "Spacing",
            what: "no spacing",
            fields: &[(field::PIXDIM + 4, &nan), (field::SFORM_CODE, &off), (field::QFORM_CODE, &off)],
            says: "set its affine (the sform) by hand",
            mended: Some(affine),
        },
        Broken {
            variant: "Quaternion",
            what: "a quaternion that turns nothing",
            fields: &[(field::QUATERN, &two), (field::SFORM_CODE, &off), (field::QFORM_CODE, &on)],
            says: "set its affine (the sform) by hand",
            mended: Some(affine),
        },
        Broken {
            variant: "DimensionCount",
            what: "no dimensions",
            fields: &[(field::DIM, &9i16.to_le_bytes())],
            says: again,
            mended: None,
        },
        Broken {
            variant: "Dimension",
            what: "a dimension of nothing",
            fields: &[(field::DIM + 2, &off)],
            says: again,
            mended: None,
        },
        Broken {
            variant: "BitsPerVoxel",
            what: "other bits",
            fields: &[(field::BITPIX, &24i16.to_le_bytes())],
            says: again,
            mended: None,
        },
        Broken {
            variant: "VoxelOffset",
            what: "voxels in the header",
            fields: &[(field::VOX_OFFSET, &one)],
            says: again,
            mended: None,
        },
        Broken {
            variant: "Scaling",
            what: "an intercept that is no number",
            fields: &[(field::SCL_SLOPE, &one), (field::SCL_SLOPE + 4, &nan)],
            says: again,
            mended: None,
        },
        Broken {
            variant: "Spacing",
            what: "no length at all",
            fields: &[(field::PIXDIM + 4, &zero), (field::SFORM_CODE, &off), (field::QFORM_CODE, &off)],
            says: "convert the image again from its source",
            mended: None,
        },
    ] {
        write(&path, ElementType::I16).unwrap();
        set(&path, fields);
        expect_hint(variant, what, read(&path), says);
        match mended {
            Some(fields) => set(&path, fields),
            None => write(&path, ElementType::I16).unwrap(),
        }
        read(&path).unwrap_or_else(|problem| panic!("{what}: still {problem}"));
    }
}

#[test]
fn files_that_are_cut_off_or_do_not_belong_together_are_read_once_they_are_mended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.nii");
    write(&path, ElementType::I16).unwrap();
    let whole = fs::read(&path).unwrap();
    for (variant, what, length) in [("NoHeader", "the header", 100), ("TooShort", "voxels", whole.len() - 1)]
    {
        fs::write(&path, &whole[..length]).unwrap();
        expect_hint(variant, what, read(&path), "copy it again");
        fs::write(&path, &whole).unwrap();
        read(&path).unwrap();
    }
    let packed = dir.path().join("packed.nii.gz");
    write(&packed, ElementType::I16).unwrap();
    let compressed = fs::read(&packed).unwrap();
    fs::write(&packed, &compressed[..compressed.len() - 12]).unwrap();
    expect_hint("Damaged", "compressed voxels", read(&packed), "copy it again");
    fs::write(&packed, &compressed).unwrap();
    read(&packed).unwrap();

    // One file with the signature of a pair: renamed as the hint says, with its voxels beside it.
    set(&path, &[(field::MAGIC, b"ni1\0"), (field::VOX_OFFSET, &0.0f32.to_le_bytes())]);
    expect_hint(
        "PairInOneFile",
        "a pair in one file",
        read(&path),
        "rename the header to .hdr and put its voxels beside it as .img",
    );
    let pair: [PathBuf; 2] = ["hdr", "img"].map(|ending| dir.path().join("image").with_extension(ending));
    let bytes = fs::read(&path).unwrap();
    fs::write(&pair[0], &bytes[..HEADER]).unwrap();
    expect_hint(
        "MissingPart",
        "a header alone",
        read(&pair[0]),
        "put both files of the pair into one folder under the same name",
    );
    fs::write(&pair[1], &bytes[HEADER..]).unwrap();
    read(&pair[0]).unwrap();

    // More behind the voxels than a header leaves out.
    let long = dir.path().join("long.nii.gz");
    let mut more =
        flate2::write::GzEncoder::new(fs::File::create(&long).unwrap(), flate2::Compression::fast());
    more.write_all(&whole).unwrap();
    more.write_all(&vec![0; 64 << 20]).unwrap();
    more.finish().unwrap();
    expect_hint("Trailing", "more behind the voxels", read(&long), "write it again from its source");
    write(&long, ElementType::I16).unwrap();
    read(&long).unwrap();
}

#[test]
fn names_and_spacings_that_are_proposed_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    for (variant, name) in [("WritesPair", "image.hdr"), ("UnwrittenName", "image.abc")] {
        expect_hint(
            variant,
            name,
            write(&dir.path().join(name), ElementType::U8),
            "name the output .nii.gz or .nii",
        );
    }
    for name in ["image.nii.gz", "image.nii"] {
        write(&dir.path().join(name), ElementType::U8).unwrap();
    }
    // Planes in a picture that has room for one.
    expect_hint(
        "UnwritablePicture",
        "planes as PNG",
        write(&dir.path().join("planes.png"), ElementType::U8),
        "name the output .nii.gz",
    );
    let unknown = dir.path().join("image.xyz");
    fs::write(&unknown, "no image").unwrap();
    expect_hint(
        "UnknownName",
        "an unknown name",
        read(&unknown),
        "convert a volume to NIfTI and name it .nii.gz",
    );

    let pages = dir.path().join("pages.tif");
    write(&pages, ElementType::U8).unwrap();
    let spacing = dir.path().join("pages.json");
    let proposed = r#"{"spacing": [1.0, 0.5, 0.5]}"#;
    for wrong in [r#"{"spacing": [1.0, 0.5]}"#, r#"{"spacing": [1.0, -0.5, 0.5]}"#, "no JSON"] {
        fs::write(&spacing, wrong).unwrap();
        expect_hint("StackSpacing", wrong, read(&pages), proposed);
        fs::write(&spacing, proposed).unwrap();
        read(&pages).unwrap();
        assert_eq!(VolumeFile::open(&pages).unwrap().geometry().spacing().0, [1.0, 0.5, 0.5]);
    }
}
