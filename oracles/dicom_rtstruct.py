"""Reads structures as others read them, and writes down what they found: `oracles/dicom_rtstruct.json`.

    mkdir rt; DICOM_RTSTRUCT_FOLDER=$PWD/rt cargo test -p plimsoll-dicom --test all rt_structures::outlines
    python oracles/dicom_rtstruct.py rt
    python oracles/dicom_rtstruct.py FILE.dcm SERIES LABELS.nii.gz      # structures of a series, and a label map of the same

needs pydicom 3, numpy and matplotlib; nibabel for the second. Polygons are filled with `matplotlib.path.Path.contains_points` at the
centres of pixels, which counts how often they wind round, where the test counts crossings.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pydicom
from matplotlib.path import Path as Polygon

HERE = Path(__file__).parent


def slices_of(folder):
    found = [pydicom.dcmread(p) for p in sorted(folder.rglob("*")) if p.is_file()]
    normal = np.cross(*np.array(found[0].ImageOrientationPatient, float).reshape(2, 3))
    # From feet to head, as the program stacks them, or along the normal where they are upright.
    found.sort(key=lambda s: float(np.dot(s.ImagePositionPatient, normal * np.sign(normal[np.abs(normal).argmax()]))))
    return found


def labels_of(file, slices):
    """The number of the structure of each voxel, (slice, row, column), and names by numbers."""
    rt = pydicom.dcmread(file)
    assert rt.SOPClassUID == pydicom.uid.RTStructureSetStorage and rt.Modality == "RTSTRUCT"
    assert rt.StudyInstanceUID == slices[0].StudyInstanceUID
    names = {int(roi.ROINumber): roi.ROIName for roi in rt.StructureSetROISequence}
    place = {s.SOPInstanceUID: n for n, s in enumerate(slices)}
    rows, columns = slices[0].Rows, slices[0].Columns
    labels = np.zeros((len(slices), rows, columns), int)
    y, x = np.mgrid[:rows, :columns]
    centres = np.stack([x.ravel(), y.ravel()], 1)
    for roi in rt.ROIContourSequence:
        for contour in roi.get("ContourSequence", []):
            assert contour.ContourGeometricType == "CLOSED_PLANAR"
            uid = contour.ContourImageSequence[0].ReferencedSOPInstanceUID
            s = slices[place[uid]]
            points = np.array(contour.ContourData, float).reshape(-1, 3)
            assert len(points) == contour.NumberOfContourPoints
            along_row, along_column = np.array(s.ImageOrientationPatient, float).reshape(2, 3)
            offset = points - np.array(s.ImagePositionPatient, float)
            assert np.abs(offset @ np.cross(along_row, along_column)).max() < 1e-3
            corners = np.stack([offset @ along_row / s.PixelSpacing[1], offset @ along_column / s.PixelSpacing[0]], 1)
            inside = Polygon(np.vstack([corners, corners[:1]]), closed=True).contains_points(centres).reshape(rows, columns)
            found = labels[place[uid]]
            assert not found[inside].any(), "two structures at one voxel"
            found[inside] = int(roi.ReferencedROINumber)
    return labels, names


def main(arguments):
    if len(arguments) == 3:
        import nibabel

        labels, names = labels_of(arguments[0], slices_of(Path(arguments[1])))
        expected = np.asarray(nibabel.load(arguments[2]).dataobj).T
        counts = {names[n]: int((labels == n).sum()) for n in names}
        return print(labels.shape, expected.shape, "labelled alike in", (np.sort(np.bincount(labels.ravel())) == np.sort(np.bincount(expected.ravel())[np.unique(expected)])).all(), counts)
    record = {}
    for file in sorted(Path(arguments[0]).glob("*.dcm")):
        labels, names = labels_of(file, slices_of(HERE / "dicom" / file.stem))
        record[file.stem] = {"names": names, "labels": labels.ravel().tolist()}
        print(file.name, names, np.bincount(labels.ravel()))
    (HERE / "dicom_rtstruct.json").write_text(json.dumps(record) + "\n")


main(sys.argv[1:])
