"""Small series of DICOM as scanners write them, and what SimpleITK (GDCM) makes of them: `oracles/dicom/`.

    python oracles/dicom_series.py

needs pydicom, SimpleITK and numpy. Files are named so that their order is not that of the slices.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pydicom
import SimpleITK as sitk
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, ImplicitVRLittleEndian, RLELossless, generate_uid

HERE = Path(__file__).parent / "dicom"
ROWS, COLUMNS, SLICES = 9, 12, 6


def rotation(degrees):
    """About x, then about z."""
    a, b = np.radians(degrees)
    about_x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    about_z = np.array([[np.cos(b), -np.sin(b), 0], [np.sin(b), np.cos(b), 0], [0, 0, 1]])
    return about_z @ about_x


def write(path, pixels, position, turned, series, number, syntax, signed, bits, slope, intercept):
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[str(path)])
    meta.TransferSyntaxUID = ExplicitVRLittleEndian if syntax == RLELossless else syntax
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    data.PatientName, data.PatientID = "Phantom", "1"
    data.Modality, data.SeriesDescription = "CT", series
    data.StudyInstanceUID = generate_uid(entropy_srcs=["study"])
    data.SeriesInstanceUID = generate_uid(entropy_srcs=[series])
    data.FrameOfReferenceUID = generate_uid(entropy_srcs=["frame"])
    data.InstanceNumber = number
    data.ImagePositionPatient = [f"{value:.6f}" for value in position]
    data.ImageOrientationPatient = [f"{value:.6f}" for value in np.concatenate([turned[:, 0], turned[:, 1]])]
    data.PixelSpacing = ["0.8", "0.7"]
    data.SliceThickness = "2.5"
    data.Rows, data.Columns = pixels.shape
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, bits, bits - 1
    data.PixelRepresentation = int(signed)
    data.RescaleSlope, data.RescaleIntercept = str(slope), str(intercept)
    data.PixelData = pixels.astype("<i2" if signed else "<u2").tobytes()
    if syntax == RLELossless:
        data.compress(RLELossless)
    data.save_as(path, enforce_file_format=True)


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    random = np.random.default_rng(3)
    found = {}
    cases = {
        # As most CT is stored; as some is, by the same rules.
        "short": (ExplicitVRLittleEndian, False, 12, 1, -1024, (0, 0)),
        "tilted": (ImplicitVRLittleEndian, True, 16, 1, 0, (17, -31)),
        "floats": (RLELossless, False, 16, 0.5, -10.25, (90, 0)),
    }
    for name, (syntax, signed, bits, slope, intercept, degrees) in cases.items():
        folder = HERE / name
        folder.mkdir(parents=True)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
        turned = rotation(degrees)
        for number in range(SLICES):
            # Smooth enough for run lengths, with the extremes of the type.
            pixels = np.repeat(random.integers(low, high, (ROWS, COLUMNS // 3)), 3, axis=1)
            pixels[0, :2] = low, high - 1
            position = np.array([-40.5, 20.25, 310.0]) + turned[:, 2] * 2.5 * number
            path = folder / f"{(number * 5 + 2) % SLICES:02}.dcm"
            write(path, pixels, position, turned, name, SLICES - number, syntax, signed, bits, slope, intercept)
        files = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder))
        image = sitk.ReadImage(files, sitk.sitkFloat64)
        assert image.GetSize() == (COLUMNS, ROWS, SLICES)
        found[name] = {
            "voxels": sitk.GetArrayFromImage(image).ravel().tolist(),
            # Of the voxels (0, 0, 0), (5, 0, 0), (0, 8, 0) and (0, 0, 11) (depth, height, width), in LPS millimetres.
            "points": [
                image.TransformIndexToPhysicalPoint(at)
                for at in [(0, 0, 0), (0, 0, SLICES - 1), (0, ROWS - 1, 0), (COLUMNS - 1, 0, 0)]
            ],
        }
    (HERE / "series.json").write_text(json.dumps(found) + "\n")


main()
