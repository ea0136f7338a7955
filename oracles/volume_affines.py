"""nibabel's view of image files: shapes, affines, orientations and voxels.

    python oracles/volume_affines.py SOURCE

SOURCE is a folder with the real images that crates/plimsoll-volume/tests/data/README.md names. They are copied there
(one is subsampled), a few small images with other headers are written beside them, and nibabel's values for all of them
go into oracles/volume_affines.json. Arrays are transposed from nibabel's (i, j, k) to (depth, height, width).
"""

import json
import shutil
import sys
from pathlib import Path

import nibabel
import numpy

here = Path(__file__).resolve().parent
data = here.parent / "crates/plimsoll-volume/tests/data"
source = Path(sys.argv[1])
random = numpy.random.default_rng(1)

for name in ["anatomical.nii", "functional.nii", "reoriented_anat_moved.nii", "example_nifti2.nii.gz"]:
    shutil.copyfile(source / name, data / name)
# Every eighth voxel along i and j and every fourth along k; nibabel adapts the affine.
oblique = nibabel.load(source / "ct_oblique.nii.gz").slicer[::8, ::8, ::4]
nibabel.save(oblique, data / "ct_oblique_thinned.nii.gz")


def turn(degrees, axis):
    angle = numpy.deg2rad(degrees)
    i, j = [k for k in range(3) if k != axis]
    matrix = numpy.eye(3)
    matrix[i, i] = matrix[j, j] = numpy.cos(angle)
    matrix[i, j], matrix[j, i] = -numpy.sin(angle), numpy.sin(angle)
    return matrix


def affine(linear, shift):
    result = numpy.eye(4)
    result[:3, :3], result[:3, 3] = linear, shift
    return result


def save(
    name, voxels, matrix=None, sform=0, qform=0, q_matrix=None, unit="mm", kind=nibabel.Nifti1Image, endianness="<",
    extension=None,
):
    header = kind.header_class(endianness=endianness)
    header.set_data_dtype(voxels.dtype.newbyteorder(endianness))
    image = kind(voxels, None, header)
    header = image.header
    header.set_xyzt_units(unit)
    if sform:
        header.set_sform(matrix, sform)
    if qform:
        header.set_qform(matrix if q_matrix is None else q_matrix, qform)
    if not sform:
        header["sform_code"] = 0
    if not qform:
        header["qform_code"] = 0
        header["pixdim"][1:4] = [1.5, 2.25, 3.0]
    if extension:
        header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", extension))
    nibabel.save(image, data / name)


def whole(shape, kind):
    return random.integers(0, 100, shape).astype(kind)


gentle = turn(11, 0) @ turn(-7, 1) @ turn(19, 2)
grid = (3, 4, 5)
nifti2 = nibabel.Nifti2Image
stretched = affine(gentle @ numpy.diag([-1.2, 0.7, 2.5]), [12.5, -31.25, 77.125])
save("sform_over_qform.nii", whole(grid, "i2"), stretched, sform=1, qform=1, q_matrix=numpy.eye(4))
sheared = affine([[0, 0.1, 3], [-0.9, 0.3, 0], [0, 0.9, 1]], [1, 2, 3])
save("sform_sheared.nii", whole(grid, "u2"), sheared, sform=2)
left_handed = affine(gentle @ numpy.diag([0.8, 0.9, -2.0]), [-5, 6, 7])
save("qform_left_handed_big_endian.nii", whole(grid, "u1"), left_handed, qform=1, endianness=">")
half_turn = affine(turn(180, 2) @ turn(180, 0) @ numpy.diag([0.8, 0.9, 2.0]), [-5, 6, 7])
save("qform_half_turn.nii.gz", whole(grid, "f4"), half_turn, qform=2)
upright = affine(turn(90, 0) @ turn(30, 2) @ numpy.diag([0.8, 0.9, 2.0]), [-5, 6, 7])
save("qform_nifti2.nii", whole(grid, "u4"), upright, qform=2, kind=nifti2)
save("pixdim_only.nii.gz", whole(grid, "f8"))
microns = affine(numpy.diag([500, 250, 1000]), [100, 200, -300])
save("microns_pair.hdr", whole(grid, "i4"), microns, sform=1, unit="micron", kind=nibabel.Nifti1Pair)
metres = affine(numpy.diag([0.002, 0.003, 0.004]), [0.1, 0.2, -0.3])
save("metres_nifti2_big_endian.nii", whole(grid, "i8"), metres, sform=1, unit="meter", kind=nifti2, endianness=">")
straight = affine(numpy.diag([2, 3, 4]), [1, 2, 3])
save("flat.nii", whole((6, 5), "u1"), straight, sform=1)
save("vector_with_extension.nii.gz", whole((3, 4, 5, 1, 3), "f4"), straight, sform=1, extension=b"x" * 100)

# Real values stored in 16 bits: nibabel chooses slope and intercept.
header = nibabel.nifti1.Nifti1PairHeader(endianness=">")
image = nibabel.Nifti1Pair(random.normal(100, 30, grid), numpy.diag([1, -1, 2, 1]), header)
image.header.set_data_dtype(">i2")
nibabel.save(image, data / "scaled_pair_big_endian.img.gz")

millimetres = {"mm": 1.0, "unknown": 1.0, "micron": 0.001, "meter": 1000.0}
result = {}
for path in sorted(data.glob("*")):
    if not path.name.endswith((".nii", ".nii.gz", ".hdr", ".hdr.gz")):
        continue
    image = nibabel.load(path)
    header = image.header
    matrix = image.affine.astype(float)
    if header["sform_code"] <= 0 and header["qform_code"] <= 0:
        # nibabel centres such images and flips x; method 1 of the NIfTI standard does neither.
        matrix = affine(numpy.diag(header["pixdim"][1:4].astype(float)), [0, 0, 0])
    letters = "".join(reversed(nibabel.aff2axcodes(matrix)))
    matrix = matrix * millimetres[header.get_xyzt_units()[0]]
    voxels = numpy.asarray(image.get_fdata(dtype=numpy.float64))
    while voxels.ndim < 3:
        voxels = voxels[..., None]
    voxels = voxels.reshape(voxels.shape[:3] + (-1,), order="F").transpose(3, 2, 1, 0)
    samples = [tuple(int(random.integers(n)) for n in voxels.shape) for _ in range(8)]
    result[path.name] = {
        "channels": voxels.shape[0],
        "shape": voxels.shape[1:],
        "affine": [[row[2], row[1], row[0], row[3]] for row in matrix[:3].tolist()],
        "letters": letters,
        "obliqueness": float(numpy.rad2deg(nibabel.affines.obliquity(matrix)).max()),
        "type": f"{header.get_data_dtype().kind}{header.get_data_dtype().itemsize * 8}",
        "sum": float(voxels.sum()),
        "samples": [[*at, float(voxels[at])] for at in samples],
    }

(here / "volume_affines.json").write_text(json.dumps(result, indent=1) + "\n")
