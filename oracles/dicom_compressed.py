"""Small series of DICOM in all transfer syntaxes that are read, of many frames, and in archives, and what pydicom and SimpleITK make of them:
`oracles/dicom/compressed/`.

    python oracles/dicom_compressed.py

needs pydicom, pylibjpeg with its codecs, pyjpegls, python-gdcm, SimpleITK and numpy. Each series is the same volume; those that were
compressed with loss have the voxels that the reference decoder makes of them.
"""

import gzip
import json
import shutil
import zipfile
import zlib
from pathlib import Path

import gdcm
import numpy as np
import pydicom
import SimpleITK as sitk
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate, encapsulate_extended
from pydicom.sequence import Sequence
from pydicom.uid import (
    CTImageStorage,
    DeflatedExplicitVRLittleEndian,
    EnhancedCTImageStorage,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    JPEG2000,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
    RLELossless,
    generate_uid,
)

HERE = Path(__file__).parent / "dicom" / "compressed"
ROWS, COLUMNS, SLICES = 36, 43, 3
DEFLATED_FRAMES = "1.2.840.10008.1.2.8.1"


def volume(bits, signed):
    """Smooth, with noise and the extremes of the type."""
    random = np.random.default_rng(7)
    z, y, x = np.mgrid[:SLICES, :ROWS, :COLUMNS]
    smooth = 0.5 + 0.3 * np.sin(0.2 * x + 0.3 * z) * np.cos(0.25 * y)
    values = smooth * 2**bits + random.normal(0, 2 ** (bits - 8), smooth.shape)
    values = np.clip(values, 0, 2**bits - 1).astype(np.int64)
    values[:, 0, :2] = 0, 2**bits - 1
    values[:, 3:6, 5:20] = 2 ** (bits - 1)
    return values - 2 ** (bits - 1) if signed else values


def position(number):
    return [-40.5, 20.25, 310.0 + 2.5 * number]


def common(name, syntax, storage, bits, signed):
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = storage
    meta.TransferSyntaxUID = syntax
    little = syntax != ExplicitVRBigEndian
    data = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128, is_implicit_VR=False, is_little_endian=little)
    data.SOPClassUID = storage
    data.PatientName, data.PatientID, data.Modality = "Phantom", "1", "CT"
    data.SeriesDescription = name
    data.StudyInstanceUID = generate_uid(entropy_srcs=["study"])
    data.SeriesInstanceUID = generate_uid(entropy_srcs=[name])
    data.FrameOfReferenceUID = generate_uid(entropy_srcs=["frame"])
    data.Rows, data.Columns = ROWS, COLUMNS
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = 8 if bits <= 8 else 16
    data.BitsStored, data.HighBit, data.PixelRepresentation = bits, bits - 1, int(signed)
    return data


def named(data, *sources):
    data.SOPInstanceUID = generate_uid(entropy_srcs=list(map(str, sources)))
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID


def stored(pixels, bits, order="<"):
    return pixels.astype(("u1" if bits <= 8 else f"{order}i2" if pixels.min() < 0 else f"{order}u2")).tobytes()


def by_gdcm(path, syntax, lossless=True):
    """Compresses a file as GDCM does."""
    reader = gdcm.ImageReader()
    reader.SetFileName(str(path))
    assert reader.Read()
    change = gdcm.ImageChangeTransferSyntax()
    change.SetTransferSyntax(gdcm.TransferSyntax(syntax))
    change.SetInput(reader.GetImage())
    assert change.Change(), path
    writer = gdcm.ImageWriter()
    writer.SetFileName(str(path))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()


def single_frames(name, syntax, bits, signed, compress):
    folder = HERE / name
    folder.mkdir(parents=True)
    pixels = volume(bits, signed)
    for number in range(SLICES):
        plain = ExplicitVRLittleEndian if compress else syntax
        data = common(name, plain, CTImageStorage, bits, signed)
        named(data, name, number)
        data.InstanceNumber = number + 1
        data.ImagePositionPatient = position(number)
        data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        data.PixelSpacing, data.SliceThickness = [0.8, 0.7], 2.5
        data.RescaleSlope, data.RescaleIntercept = 1, 0 if signed else -1024
        data.PixelData = stored(pixels[number], bits, ">" if syntax == ExplicitVRBigEndian else "<")
        data["PixelData"].VR = "OW" if bits > 8 else "OB"
        path = folder / f"{number}.dcm"
        data.save_as(path, enforce_file_format=True)
        if compress:
            compress(path, syntax)
    return folder


def by_pydicom(path, syntax):
    data = pydicom.dcmread(path)
    options = {"jls_error": 3} if syntax == JPEGLSNearLossless else {"j2k_psnr": [50]} if syntax == JPEG2000 else {}
    data.compress(syntax, generate_instance_uid=False, **options)
    if syntax in (JPEGLSNearLossless, JPEG2000):
        data.LossyImageCompression, data.LossyImageCompressionRatio = "01", "7.5"
    data.save_as(path)


def deflated_frame(path, syntax):
    """Each frame by itself (DICOM PS3.5, A.4.13)."""
    data = pydicom.dcmread(path)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data.PixelData = encapsulate([packer.compress(data.PixelData) + packer.flush()])
    data["PixelData"].is_undefined_length = True
    data["PixelData"].VR = "OB"
    data.file_meta.TransferSyntaxUID = RLELossless
    data.save_as(path)
    # pydicom does not know it: the unique number is exchanged, in its element and in the length of its group.
    old, new = RLELossless.encode(), syntax.encode() + b"\0"
    old += b"\0" * (len(old) % 2)
    raw = path.read_bytes()
    at = raw.index(old)
    assert raw[at - 2 : at] == bytes([len(old), 0]) and len(new) % 2 == 0
    length = int.from_bytes(raw[140:144], "little") + len(new) - len(old)
    raw = raw[:140] + length.to_bytes(4, "little") + raw[144 : at - 2] + bytes([len(new), 0]) + new + raw[at + len(old) :]
    path.write_bytes(raw)


def enhanced(name, syntax, order, pieces):
    """One file of all slices. `order` are the slices of its frames."""
    folder = HERE / name
    folder.mkdir(parents=True)
    pixels = volume(12, False)
    data = common(name, syntax, EnhancedCTImageStorage, 12, False)
    named(data, name)
    data.NumberOfFrames = SLICES
    shared, orientation, measures, values = Dataset(), Dataset(), Dataset(), Dataset()
    orientation.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    measures.PixelSpacing, measures.SliceThickness = [0.8, 0.7], 2.5
    values.RescaleSlope, values.RescaleIntercept, values.RescaleType = 1, -1024, "HU"
    shared.PlaneOrientationSequence = Sequence([orientation])
    shared.PixelMeasuresSequence = Sequence([measures])
    data.SharedFunctionalGroupsSequence = Sequence([shared])
    groups = []
    for number in order:
        group, place, content = Dataset(), Dataset(), Dataset()
        place.ImagePositionPatient = position(number)
        content.StackID, content.InStackPositionNumber = "1", number + 1
        group.FrameContentSequence = Sequence([content])
        group.PlanePositionSequence = Sequence([place])
        # Only of frames: the groups of all frames do not have it then.
        group.PixelValueTransformationSequence = Sequence([values])
        groups.append(group)
    data.PerFrameFunctionalGroupsSequence = Sequence(groups)
    if pieces == "undefined":
        for element in data.iterall():
            if element.VR == "SQ":
                element.is_undefined_length = True
                for item in element.value:
                    item.is_undefined_length_sequence_item = True
    frames = [stored(pixels[number], 12) for number in order]
    if syntax in (ExplicitVRLittleEndian, DeflatedExplicitVRLittleEndian):
        data.PixelData = b"".join(frames)
    else:
        encoded = [pydicom.pixels.get_encoder(syntax).encode(np.frombuffer(frame, "<u2").reshape(ROWS, COLUMNS),
                   rows=ROWS, columns=COLUMNS, number_of_frames=1, samples_per_pixel=1, bits_allocated=16, bits_stored=12,
                   pixel_representation=0, photometric_interpretation="MONOCHROME2") for frame in frames]
        if pieces == "extended":
            data.PixelData, data.ExtendedOffsetTable, data.ExtendedOffsetTableLengths = encapsulate_extended(encoded)
        else:
            # Two pieces for each frame, told apart by the table alone.
            data.PixelData = encapsulate(encoded, fragments_per_frame=2 if pieces == "two" else 1, has_bot=pieces == "two")
        data["PixelData"].is_undefined_length = True
    data["PixelData"].VR = "OW" if syntax in (ExplicitVRLittleEndian, DeflatedExplicitVRLittleEndian) else "OB"
    data.save_as(folder / "all.dcm", enforce_file_format=True)


def archive(name, source, method):
    """A series as hospitals hand them out: in folders, beside other files."""
    with zipfile.ZipFile(HERE / f"{name}.zip", "w", method) as packed:
        packed.writestr(zipfile.ZipInfo("README.TXT", (2020, 1, 1, 0, 0, 0)), "A disk with images.\r\n", method)
        for path in sorted((HERE / source).iterdir()):
            entry = zipfile.ZipInfo(f"DICOM/S0001/{path.name}", (2020, 1, 1, 0, 0, 0))
            packed.writestr(entry, path.read_bytes(), method)


def voxels(folder):
    """By pydicom, with each frame where it is."""
    found = []
    for path in sorted(folder.iterdir()):
        data = pydicom.dcmread(path)
        pixels = data.pixel_array.astype(np.int64).reshape(-1, ROWS, COLUMNS)
        for frame, values in enumerate(pixels):
            if "PerFrameFunctionalGroupsSequence" in data:
                group = data.PerFrameFunctionalGroupsSequence[frame]
                place, meaning = group.PlanePositionSequence[0], group.PixelValueTransformationSequence[0]
            else:
                place = meaning = data
            real = values * float(meaning.RescaleSlope) + float(meaning.RescaleIntercept)
            found.append((float(place.ImagePositionPatient[2]), real.astype(np.int64)))
    return np.stack([values for _, values in sorted(found, key=lambda pair: pair[0])])


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    found, volumes = {}, []
    files = {
        "big_endian": (ExplicitVRBigEndian, 16, True, None),
        "deflated": (DeflatedExplicitVRLittleEndian, 12, False, None),
        "deflated_frame": (DEFLATED_FRAMES, 12, False, deflated_frame),
        "rle": (RLELossless, 16, True, by_pydicom),
        "rle_8": (RLELossless, 8, False, by_pydicom),
        "jpeg_lossless": (JPEGLossless, 12, False, lambda path, _: by_gdcm(path, gdcm.TransferSyntax.JPEGLosslessProcess14)),
        "jpeg_lossless_sv1": (JPEGLosslessSV1, 16, True, lambda path, _: by_gdcm(path, gdcm.TransferSyntax.JPEGLosslessProcess14_1)),
        "jpeg_lossless_8": (JPEGLosslessSV1, 8, False, lambda path, _: by_gdcm(path, gdcm.TransferSyntax.JPEGLosslessProcess14_1)),
        "jpeg": (JPEGBaseline8Bit, 8, False, lambda path, _: by_gdcm(path, gdcm.TransferSyntax.JPEGBaselineProcess1)),
        "jpeg_ls": (JPEGLSLossless, 12, False, by_pydicom),
        "jpeg_ls_signed": (JPEGLSLossless, 16, True, by_pydicom),
        "jpeg_ls_near": (JPEGLSNearLossless, 12, False, by_pydicom),
        "jpeg_2000": (JPEG2000Lossless, 12, False, by_pydicom),
        "jpeg_2000_signed": (JPEG2000Lossless, 16, True, by_pydicom),
        "jpeg_2000_lossy": (JPEG2000, 12, False, by_pydicom),
    }
    for name, (syntax, bits, signed, compress) in files.items():
        single_frames(name, syntax, bits, signed, compress)
    enhanced("enhanced", ExplicitVRLittleEndian, [2, 0, 1], "defined")
    enhanced("enhanced_undefined", ExplicitVRLittleEndian, [0, 1, 2], "undefined")
    enhanced("enhanced_deflated", DeflatedExplicitVRLittleEndian, [2, 1, 0], "defined")
    enhanced("enhanced_rle", RLELossless, [1, 2, 0], "one")
    enhanced("enhanced_pieces", JPEG2000Lossless, [1, 0, 2], "two")
    enhanced("enhanced_offsets", JPEGLSLossless, [0, 2, 1], "extended")
    for folder in sorted(HERE.iterdir()):
        if folder.name in ("deflated_frame",):
            # Not read by either; its voxels are those of the volume.
            values = volume(12, False) - 1024
        else:
            values = voxels(folder)
        paths = sorted(folder.iterdir())
        if len(paths) == SLICES and folder.name not in ("deflated_frame", "deflated", "rle_8"):
            image = sitk.GetArrayFromImage(sitk.ReadImage(list(map(str, paths)), sitk.sitkInt32))
            if not np.array_equal(image, values):
                print(folder.name, "differs between SimpleITK and pydicom by", np.abs(image - values).max())
        original = next((volume(bits, signed) - (0 if signed else 1024) for name, (_, bits, signed, _) in files.items() if name == folder.name), volume(12, False) - 1024)
        error = int(np.abs(values - original).max())
        print(folder.name, "largest error", error, "bytes", sum(path.stat().st_size for path in paths))
        # Lossless ones are those that were written; of lossy ones, the voxels of the reference decoder.
        listed = values.ravel().tolist()
        if listed not in volumes:
            volumes.append(listed)
        found[folder.name] = {"error": error, "volume": volumes.index(listed)}
    archive("deflate", "rle", zipfile.ZIP_DEFLATED)
    archive("stored", "enhanced_pieces", zipfile.ZIP_STORED)
    found["deflate.zip"], found["stored.zip"] = found["rle"], found["enhanced_pieces"]
    packed = json.dumps({"series": found, "volumes": volumes}, separators=(",", ":"))
    (HERE / "voxels.json.gz").write_bytes(gzip.compress(packed.encode(), mtime=0))


main()
