"""Small volumes in every format that is read, as the programs write them that people use, and what these programs read from them.

`python oracles/volume_formats.py` writes `oracles/formats/` and `oracles/formats/known.json`: of each file its voxels (depth, height,
width) and where four corners are in the world (RAS millimetres). `python oracles/volume_formats.py check FOLDER` reads what the tests of
`plimsoll-volume` have written there (`PLIMSOLL_WRITTEN=FOLDER cargo test -p plimsoll-volume --test formats`) with SimpleITK, nibabel and
pynrrd, and compares it with `expected.json` beside it.

SimpleITK 2.5, nibabel 5.3, pynrrd 1.1, NumPy 2.3, zstandard 0.25.
"""

import gzip
import json
import sys
from pathlib import Path

import nibabel
import nrrd
import numpy as np
import SimpleITK as sitk

HERE = Path(__file__).parent / "formats"
SHAPE = (4, 5, 6)


def corners(image):
    depth, height, width = SHAPE
    points = [(0, 0, 0), (0, 0, depth - 1), (0, height - 1, 0), (width - 1, 0, 0)]
    lps = [image.TransformIndexToPhysicalPoint(p) for p in points]
    return [[-x, -y, z] for x, y, z in lps]


def image(dtype, oblique=True):
    values = np.arange(np.prod(SHAPE)).reshape(SHAPE) * 3 - 100
    if np.dtype(dtype).kind == "u":
        values = values % 7
    found = sitk.GetImageFromArray(values.astype(dtype))
    found.SetSpacing((0.7, 0.8, 2.5))
    found.SetOrigin((12.5, -40.0, 77.25))
    if oblique:
        # About two axes, and with the first axis flipped.
        a, b = 0.3, -0.2
        about_z = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
        about_x = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
        found.SetDirection((about_z @ about_x @ np.diag([-1.0, 1.0, -1.0])).flatten().tolist())
    return found


def main():
    HERE.mkdir(exist_ok=True)
    known = {}

    def keep(name, voxels, points):
        known[name] = {"voxels": np.asarray(voxels, float).flatten().tolist(), "corners": points}

    def by_itk(name, found, **how):
        sitk.WriteImage(found, str(HERE / name), **how)
        back = sitk.ReadImage(str(HERE / name))
        keep(name, sitk.GetArrayFromImage(back), corners(back))

    for dtype in ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]:
        by_itk(f"{dtype}.mha", image(dtype))
        by_itk(f"{dtype}.nrrd", image(dtype), useCompression=True)
    by_itk("packed.mha", image("int16"), useCompression=True)
    by_itk("detached.mhd", image("int16"))
    by_itk("detached_packed.mhd", image("int16"), useCompression=True)
    by_itk("raw.nrrd", image("int16"))
    by_itk("detached.nhdr", image("int16"))
    by_itk("detached_packed.nhdr", image("int16"), useCompression=True)
    by_itk("straight.nrrd", image("float32", oblique=False))

    # What SimpleITK does not write: big-endian, RAS, spacings alone; and pynrrd's own.
    values = sitk.GetArrayFromImage(image("int16"))
    header = (
        "NRRD0004\ntype: short\ndimension: 3\nspace: right-anterior-superior\nsizes: 6 5 4\n"
        "space directions: (-0.7,0,0) (0,0.8,0.1) (0,-0.3,2.5)\nkinds: domain domain domain\n"
        "endian: big\nencoding: raw\nspace origin: (1,2,3)\n\n"
    )
    (HERE / "big_ras.nrrd").write_bytes(header.encode() + values.astype(">i2").tobytes())
    back = sitk.ReadImage(str(HERE / "big_ras.nrrd"))
    assert (sitk.GetArrayFromImage(back) == values).all()
    affine = np.array([[-0.7, 0, 0, 1], [0, 0.8, -0.3, 2], [0, 0.1, 2.5, 3], [0, 0, 0, 1]])
    points = [affine @ [x, y, z, 1] for x, y, z in [(0, 0, 0), (0, 0, 3), (0, 4, 0), (5, 0, 0)]]
    keep("big_ras.nrrd", values, [p[:3].tolist() for p in points])
    nrrd.write(
        str(HERE / "pynrrd.nrrd"),
        values.transpose(2, 1, 0),
        {
            "space": "left-posterior-superior",
            "space directions": np.diag([0.7, 0.8, 2.5]),
            "space origin": [1.0, 2.0, 3.0],
            "kinds": ["domain"] * 3,
        },
    )
    back = sitk.ReadImage(str(HERE / "pynrrd.nrrd"))
    keep("pynrrd.nrrd", sitk.GetArrayFromImage(back), corners(back))

    # Arrays: voxels of 1 mm at the origin, or as the file beside them says.
    def straight(spacing):
        d, h, w = spacing
        return [[0, 0, 0], [0, 0, 3 * d], [0, 4 * h, 0], [5 * w, 0, 0]]

    np.save(HERE / "c_order.npy", values)
    keep("c_order.npy", values, straight((1, 1, 1)))
    np.save(HERE / "spaced_0000.npy", values.astype(">f4"))
    (HERE / "spaced.json").write_text('{"spacing": [2.5, 0.8, 0.7]}')
    keep("spaced_0000.npy", values, straight((2.5, 0.8, 0.7)))
    # Stored the other way round, and read as it is stored: axes (width, height, depth).
    np.save(HERE / "fortran.npy", np.asfortranarray(values))
    known["fortran.npy"] = {
        "voxels": values.transpose(2, 1, 0).astype(float).flatten().tolist(),
        "corners": [[0, 0, 0], [5, 0, 0], [0, 4, 0], [0, 0, 3]],
    }

    # NIfTI compressed by Zstandard, in one frame and in two.
    import zstandard

    sitk.WriteImage(image("int16"), str(HERE / "plain.nii"))
    plain = (HERE / "plain.nii").read_bytes()
    (HERE / "plain.nii").unlink()
    back = nibabel.Nifti1Image.from_bytes(plain)
    points = [back.affine @ [x, y, z, 1] for x, y, z in [(0, 0, 0), (0, 0, 3), (0, 4, 0), (5, 0, 0)]]
    points = [p[:3].tolist() for p in points]
    pack = zstandard.ZstdCompressor(level=3, write_checksum=True).compress
    for name, packed in [("one.nii.zst", pack(plain)), ("two.nii.zst", pack(plain[:400]) + pack(plain[400:]))]:
        (HERE / name).write_bytes(packed)
        keep(name, back.get_fdata().transpose(2, 1, 0), points)

    # Channels: together (NRRD's and MetaImage's vectors) and apart (a list).
    pair = sitk.Compose(image("int16"), image("int16") + 1000)
    sitk.WriteImage(pair, str(HERE / "vector.mha"))
    sitk.WriteImage(pair, str(HERE / "vector.nrrd"), useCompression=True)
    (HERE / "known.json").write_text(json.dumps(known))


def check(folder):
    expected = json.loads((folder / "expected.json").read_text())
    for name, known in expected.items():
        back = sitk.ReadImage(str(folder / name))
        values = sitk.GetArrayFromImage(back).astype(float).flatten()
        assert values.tolist() == known["voxels"], name
        assert np.allclose(corners(back), known["corners"], atol=1e-4), (name, corners(back), known["corners"])
        if name.endswith(".nrrd"):
            data, header = nrrd.read(str(folder / name))
            assert data.transpose(2, 1, 0).astype(float).flatten().tolist() == known["voxels"], name
        print(name, "is as it was written")


if __name__ == "__main__":
    check(Path(sys.argv[2])) if sys.argv[1:2] == ["check"] else main()
