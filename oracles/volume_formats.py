"""Small volumes in every format that is read, as the programs write them that people use, and what these programs read from them.

`python oracles/volume_formats.py` writes `oracles/formats/` and `oracles/formats/known.json`: of each file its voxels (depth, height,
width) and where four corners are in the world (RAS millimetres). `python oracles/volume_formats.py check FOLDER` reads what the tests of
`plimsoll-volume` have written there (`PLIMSOLL_WRITTEN=FOLDER cargo test -p plimsoll-volume --test all formats::`) with SimpleITK, nibabel and
pynrrd, and compares it with `expected.json` beside it.

SimpleITK 2.5, nibabel 5.3, pynrrd 1.1, NumPy 2.3, zstandard 0.25, tifffile 2026.3, zarr 3.1, numcodecs 0.16, ome-zarr 0.18.
"""

import gzip
import json
import shutil
import sys
from pathlib import Path

import nibabel
import nrrd
import numpy as np
import SimpleITK as sitk
import zstandard

HERE = Path(__file__).parent / "formats"
SHAPE = (4, 5, 6)


def corners(image):
    width, height, depth = image.GetSize()
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
    tiffs(keep, straight)
    archives(values, keep, straight)
    zarrs(values, keep, straight)
    (HERE / "known.json").write_text(json.dumps(known))


def tiffs(keep, straight):
    """Stacks with the lengths of ImageJ and OME, in millimetres and micrometres, and folders of slices."""
    import tifffile

    values = (np.arange(np.prod(SHAPE)).reshape(SHAPE) * 3).astype(np.uint16)

    def stack(name, spacing, **how):
        tifffile.imwrite(HERE / name, values, **how)
        back = tifffile.imread(HERE / name)
        assert (back == values).all(), name
        keep(name, back, straight(spacing))

    for name, unit, factor in [("imagej.tif", "mm", 1), ("imagej_um.tif", "\\u00B5m", 1000)]:
        metadata = {"spacing": 2.5 * factor, "unit": unit, "axes": "ZYX"}
        stack(name, (2.5, 0.8, 0.7), imagej=True, resolution=(1 / 0.7 / factor, 1 / 0.8 / factor), metadata=metadata)
        with tifffile.TiffFile(HERE / name) as file:
            assert file.imagej_metadata["spacing"] == 2.5 * factor
    sizes = {"PhysicalSizeX": 700.0, "PhysicalSizeY": 800.0, "PhysicalSizeZ": 2.5, "PhysicalSizeZUnit": "mm"}
    stack("sizes.ome.tif", (2.5, 0.8, 0.7), metadata={"axes": "ZYX", **sizes})
    with tifffile.TiffFile(HERE / "sizes.ome.tif") as file:
        assert file.is_ome
    stack("big.tif", (1, 1, 1), bigtiff=True, compression="zlib", photometric="minisblack")
    folder = HERE / "slices_0000.tif"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    planes = values.astype(np.float32) / 4
    for number, plane in enumerate(planes, 8):
        tifffile.imwrite(folder / f"slice_{number}.tif", plane, compression="zlib" if number == 9 else None)
    (folder / "scanner.log").write_text("what else lies there")
    (HERE / "slices.json").write_text('{"spacing": [2.5, 0.8, 0.7]}')
    back = tifffile.imread(folder / "slice_10.tif")
    assert (back == planes[2]).all()
    keep(folder.name, planes, straight((2.5, 0.8, 0.7)))


def archives(values, keep, straight):
    np.savez(HERE / "one.npz", values)
    keep("one.npz", np.load(HERE / "one.npz")["arr_0"], straight((1, 1, 1)))
    np.savez_compressed(HERE / "packed_0000.npz", other=np.zeros(3), data=values.astype(">f8"))
    (HERE / "packed.json").write_text('{"spacing": [2.5, 0.8, 0.7]}')
    keep("packed_0000.npz", np.load(HERE / "packed_0000.npz")["data"], straight((2.5, 0.8, 0.7)))


def zarrs(values, keep, straight):
    """Arrays of both versions with every compressor that is read, and images of OME's."""
    import numcodecs
    import zarr
    from ome_zarr.format import FormatV04, FormatV05
    from ome_zarr.writer import write_multiscales_metadata
    from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec

    def array(name, chunks, dtype="int16", **how):
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        made = zarr.create_array(folder, shape=SHAPE, chunks=chunks, dtype=dtype, fill_value=0, **how)
        made[:] = values.astype(dtype)
        back = zarr.open_array(folder, mode="r")[:]
        assert (back == values.astype(dtype)).all(), name
        keep(name, back, straight((1, 1, 1)))

    compressors = {
        "none": None,
        "gzip": numcodecs.GZip(),
        "zlib": numcodecs.Zlib(),
        "zstd": numcodecs.Zstd(),
        "lz4": numcodecs.LZ4(),
        "blosc": numcodecs.Blosc(),
        "blosc_bits": numcodecs.Blosc("zstd", shuffle=numcodecs.Blosc.BITSHUFFLE, blocksize=512),
        "blosc_odd_bits": numcodecs.Blosc("lz4hc", shuffle=numcodecs.Blosc.BITSHUFFLE),
        "blosc_blocks": numcodecs.Blosc("lz4", clevel=1),
        "blosc_lz": numcodecs.Blosc("blosclz", clevel=9, blocksize=1024),
        "blosc_zlib": numcodecs.Blosc("zlib", shuffle=numcodecs.Blosc.NOSHUFFLE),
    }
    for number, (name, compressor) in enumerate(compressors.items()):
        # Blosc cuts chunks into blocks from some size on; blocks of few elements it does not take apart.
        chunks = {"none": (3, 3, 3), "blosc_odd_bits": (3, 3, 3), "blosc_blocks": (2, 241, 361)}.get(name, (2, 24, 36))
        dtype = ["int16", ">i4", "float64", "int8"][number % 4]
        separator = {"name": "v2", "separator": "/." [number % 2]}
        array(f"{name}_2.zarr", chunks, dtype, zarr_format=2, compressors=compressor, chunk_key_encoding=separator)
    array("zstd_3.zarr", (2, 4, 4), zarr_format=3, compressors=ZstdCodec(checksum=True))
    array("blosc_3.zarr", (2, 24, 36), "float32", zarr_format=3, compressors=BloscCodec())
    array("plain_3.zarr", (2, 4, 4), "uint8" if values.min() >= 0 else "int64", zarr_format=3, compressors=None, serializer=BytesCodec(endian="big"))
    array("checked_3.zarr", (2, 4, 4), zarr_format=3, compressors=[GzipCodec(), Crc32cCodec()])
    array("shards_3.zarr", (2, 2, 2), zarr_format=3, shards=(4, 4, 6), compressors=ZstdCodec())
    start = ShardingCodec(chunk_shape=(2, 5, 3), codecs=[BytesCodec(), BloscCodec()], index_location="start")
    array("shards_start_3.zarr", (4, 5, 6), zarr_format=3, serializer=start, compressors=None)

    # Images of OME's: two channels, lengths in micrometres, not at the origin; and three axes alone.
    space = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    axes = [{"name": "t", "type": "time"}, {"name": "c", "type": "channel"}, *space]
    scale = [1.0, 1.0, 2500.0, 800.0, 700.0]
    place = [0.0, 0.0, 7000.0, -3000.0, 12000.0]
    steps = [[{"type": "scale", "scale": scale}, {"type": "translation", "translation": place}]]
    corner = np.array([12.0, -3.0, 7.0])
    points = (np.array(straight((2.5, 0.8, 0.7))) + corner).tolist()
    for name, form in [("image_4.ome.zarr", FormatV04()), ("image_5.ome.zarr", FormatV05())]:
        shutil.rmtree(HERE / name, ignore_errors=True)
        group = zarr.open_group(HERE / name, mode="w", zarr_format=form.zarr_format)
        both = np.stack([values, values + 1000])[None].astype("int16")
        made = group.create_array("0", shape=both.shape, chunks=(1, 2, 2, 3, 4), dtype="int16")
        made[:] = both
        datasets = [{"path": "0", "coordinateTransformations": steps[0]}]
        write_multiscales_metadata(group, datasets, fmt=form, axes=axes)
        back = zarr.open_group(HERE / name, mode="r")["0"][0, 0]
        assert (back == values).all(), name
        keep(name, back, points)


def check(folder):
    expected = json.loads((folder / "expected.json").read_text())
    for name, known in expected.items():
        path = folder / name
        if name.endswith(".zst"):
            # SimpleITK does not read it as it is.
            plain = path.with_suffix("")
            plain = plain.with_name(f"plain_{plain.name}")
            with path.open("rb") as packed:
                reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
                plain.write_bytes(reader.read())
            path = plain
        back = sitk.ReadImage(str(path))
        values = sitk.GetArrayFromImage(back).astype(float).flatten()
        assert values.tolist() == known["voxels"], name
        assert np.allclose(corners(back), known["corners"], atol=1e-4), (name, corners(back), known["corners"])
        if name.endswith(".nrrd"):
            data, header = nrrd.read(str(folder / name))
            assert data.transpose(2, 1, 0).astype(float).flatten().tolist() == known["voxels"], name
        print(name, "is as it was written")


if __name__ == "__main__":
    check(Path(sys.argv[2])) if sys.argv[1:2] == ["check"] else main()
