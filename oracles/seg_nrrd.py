"""Reads a .seg.nrrd of the small CT in `oracles/total_segmentator/` as others read it, and compares it with TotalSegmentator's labels.

    plimsoll segment total -i oracles/total_segmentator/ct.nii.gz --weights oracles/total_segmentator/weights --ml -o total.seg.nrrd
    python oracles/seg_nrrd.py total.seg.nrrd

needs pynrrd, slicerio, SimpleITK and nibabel. `crates/plimsoll-cli/tests/outputs.rs` reads the same file without them.
"""

import sys
from pathlib import Path

import nibabel as nib
import nrrd
import numpy as np
import SimpleITK as sitk
import slicerio

HERE = Path(__file__).parent / "total_segmentator"


def main(path):
    expected = nib.load(HERE / "total.nii.gz")
    labels = np.asarray(expected.dataobj)
    image = sitk.ReadImage(path)
    assert (sitk.GetArrayFromImage(image).T == labels).all()
    reference = sitk.ReadImage(str(HERE / "ct.nii.gz"))
    for found, known in [
        (image.GetOrigin(), reference.GetOrigin()),
        (image.GetSpacing(), reference.GetSpacing()),
        (image.GetDirection(), reference.GetDirection()),
    ]:
        assert np.allclose(found, known, atol=1e-5), (found, known)
    voxels, header = nrrd.read(path)
    assert (voxels == labels).all() and header["space"] == "left-posterior-superior"
    segmentation = slicerio.read_segmentation(path)
    assert (segmentation["voxels"] == labels).all()
    lps = np.diag([-1, -1, 1, 1])
    assert np.allclose(segmentation["ijkToLPS"], lps @ expected.affine, atol=1e-5)
    segments = segmentation["segments"]
    assert len(segments) == 117 and segments[0]["name"] == "spleen" and segments[0]["labelValue"] == 1
    for segment in segments:
        where = np.argwhere(labels == segment["labelValue"])
        box = [0, -1] * 3 if len(where) == 0 else np.stack([where.min(0), where.max(0)], 1).ravel().tolist()
        assert list(segment["extent"]) == box, segment
    print(f"{len(segments)} segments, {len(np.unique(labels)) - 1} of them with voxels: the same for SimpleITK, pynrrd and slicerio")


main(sys.argv[1])
