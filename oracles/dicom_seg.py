"""Reads segmentations as others read them, and writes down what they found: `oracles/dicom_seg.json`.

    mkdir seg; DICOM_SEG_FOLDER=$PWD/seg cargo test --release -p plimsoll-dicom --test all segmentation::
    python oracles/dicom_seg.py seg
    python oracles/dicom_seg.py FILE LABELS.nii.gz    # a segmentation of a series, and a label map of the same

needs highdicom, pydicom, numpy, nibabel for the second, and DCMTK (`dcmdump`, `dcmdrle`, `dcmconv`); with `dciodvfy` of dicom3tools in the path,
that, too. The test names the files; it compares labels and pixels with what is written here.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import highdicom as hd
import numpy as np
import pydicom
from pydicom.sr import _concepts_dict as concepts

HERE = Path(__file__).parent
ANATOMY = HERE.parent / "crates/plimsoll-dicom/src/segmentation/anatomy.rs"

# Not known to dciodvfy of 2022: label maps.
NEWER = "1.2.840.10008.5.1.4.1.1.66.7"


def place_of(item):
    """The place of a frame's slice: the last index, or the only one."""
    indices = item.FrameContentSequence[0].DimensionIndexValues
    return int(indices if isinstance(indices, int) else indices[-1]) - 1


def labels_of(seg, frames):
    """The segment of each voxel, (slice, row, column), by the indices of frames."""
    depth = len(seg.ReferencedSeriesSequence[0].ReferencedInstanceSequence)
    labels = np.zeros((depth, seg.Rows, seg.Columns), int)
    for item, frame in zip(seg.PerFrameFunctionalGroupsSequence, frames.reshape(-1, seg.Rows, seg.Columns)):
        place = place_of(item)
        if seg.SegmentationType == "LABELMAP":
            labels[place] = frame
        else:
            number = item.SegmentIdentificationSequence[0].ReferencedSegmentNumber
            assert not (labels[place][frame > 0]).any(), "two segments at one voxel"
            labels[place][frame > 0] = number
    return labels


def by_dcmtk(path, seg):
    """Pixels as DCMTK has them: run lengths decoded, and written again."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.dcm"
        command = "dcmdrle" if seg.file_meta.TransferSyntaxUID.is_encapsulated else "dcmconv"
        subprocess.run([command, str(path), str(plain)], check=True)
        data = pydicom.dcmread(plain)
        if seg.SegmentationType == "BINARY":
            return np.unpackbits(np.frombuffer(data.PixelData, np.uint8), bitorder="little")[: seg.NumberOfFrames * seg.Rows * seg.Columns]
        return np.frombuffer(data.PixelData, {8: np.uint8, 16: "<u2"}[seg.BitsAllocated])[: seg.NumberOfFrames * seg.Rows * seg.Columns]


def check(path):
    """Reads a file in all ways that there are. Returns it as highdicom has it, its labels, and its pixels as they are stored."""
    data = pydicom.dcmread(path)
    seg = hd.seg.segread(path)
    frames = seg.pixel_array
    labels = labels_of(seg, frames)
    assert (labels == labels_of(seg, data.pixel_array)).all()
    assert (labels == labels_of(seg, by_dcmtk(path, seg))).all()
    # highdicom's own volume: in its order of slices, which may be the other way round.
    volume = seg.get_volume(combine_segments=True, allow_missing_positions=True)
    positions = [item.PlanePositionSequence[0].ImagePositionPatient for item in seg.PerFrameFunctionalGroupsSequence]
    for item, position in zip(seg.PerFrameFunctionalGroupsSequence, positions):
        place = place_of(item)
        at = volume.map_reference_to_indices(np.array([[float(value) for value in position]]))
        assert np.abs(at - np.round(at)).max() < 1e-2, at
        slice_, row, column = np.round(at[0]).astype(int)
        assert (row, column) == (0, 0)
        assert (volume.array[slice_] == labels[place]).all()
    told = subprocess.run(["dcmdump", "+L", str(path)], check=True, capture_output=True)
    assert not told.stderr, told.stderr
    if shutil.which("dciodvfy") and data.SOPClassUID != NEWER:
        told = subprocess.run(["dciodvfy", str(path)], capture_output=True, text=True).stderr
        errors = [line for line in told.splitlines() if line.startswith("Error")]
        assert not errors, errors
        print("dciodvfy:", [line for line in told.splitlines() if line.startswith("Warning")])
    if data.file_meta.TransferSyntaxUID.is_encapsulated:
        pixels = b"".join(pydicom.encaps.generate_fragments(data.PixelData[8:]))
    else:
        pixels = data.PixelData
    # Which can be converted: highdicom's white is D65, and ICC's D50.
    colours = [segment.RecommendedDisplayCIELabValue for segment in seg.SegmentSequence]
    assert len({tuple(colour) for colour in colours}) == len(colours)
    for colour in colours:
        hd.color.CIELabColor.from_dicom_value(colour).to_rgb(clip=True)
    return seg, labels, pixels


def codes():
    """Which codes of the table are in DICOM's dictionary of concepts, and with which meaning."""
    known = {code: meaning for entry in concepts.concepts["SCT"].values() for code, (meaning, _) in entry.items()}
    table = re.findall(r'\("(\w+)", "(\d+)", "([^"]+)"\)', ANATOMY.read_text())
    assert len(table) > 100
    alone = [name for name, code, _ in table if code not in known]
    for name, code, meaning in table:
        # `Aorta` is the aortic structure: four letters are enough to see that it is no other.
        if code in known and meaning.lower()[:4] not in known[code].lower():
            print(f"{name}: {meaning}, in DICOM {known[code]}")
    print(f"{len(table)} codes, of which {len(alone)} are of SNOMED CT alone: {' '.join(alone)}")


def main(folder):
    found = {}
    for path in sorted(Path(folder).glob("*.dcm")):
        seg, labels, pixels = check(path)
        print(path.name, path.stat().st_size, "bytes,", seg.NumberOfFrames, "frames,", len(np.unique(labels)) - 1, "labels")
        if path.stem.split("_")[0] in ("short", "tilted"):
            found[path.stem] = {"pixels": pixels.hex(), "labels": labels.ravel().tolist()}
    assert len(found) == 4
    (HERE / "dicom_seg.json").write_text(json.dumps(found) + "\n")
    codes()


def compare(path, labels):
    import nibabel

    seg, found, _ = check(path)
    # Both have the slices of the series in their order: of NIfTI the axes are reversed.
    expected = np.asarray(nibabel.load(labels).dataobj).T
    if seg.SegmentationType == "BINARY":
        expected = np.where(expected > 0, expected, 0)
    assert found.shape == expected.shape and (found == expected).all()
    print(f"{expected.size} voxels, {len(np.unique(expected)) - 1} labels: all the same; {Path(path).stat().st_size} bytes")


main(*sys.argv[1:]) if len(sys.argv) == 2 else compare(*sys.argv[1:])
