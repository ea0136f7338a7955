"""Operations on images by PIL, torchvision and OpenCV, and files as PIL reads them.

    pip install pillow torch torchvision opencv-python-headless scikit-learn
    python oracles/image_pipeline.py

Writes oracles/image_pipeline.json and oracles/image_files/. The input of an operation has at row y, column x and channel c
inside of the ellipse that touches the borders the value (3 s + n) // 4, with s = [255 x // (w - 1), 255 y // (h - 1),
255 (x + y) // (h + w - 2)][c] and n = ((i + 1) * 2654435761 mod 2^32) >> 24 of the sample's index i; n // 64 outside. Outputs
are given by the FNV-1a hash of all their bytes and every n-th of their samples.
"""

import io
import json
from pathlib import Path

import cv2
import numpy
import torch
import torchvision.transforms.functional as functional
from PIL import Image
from sklearn.model_selection import StratifiedGroupKFold
from torchvision.transforms import InterpolationMode

HERE = Path(__file__).resolve().parent
FILES = HERE / "image_files"


def image(height, width, channels=3):
    y, x = numpy.mgrid[:height, :width]
    smooth = [255 * x // (width - 1), 255 * y // (height - 1), 255 * (x + y) // (height + width - 2)]
    smooth = numpy.stack(smooth[:channels], -1)
    index = numpy.arange(height * width * channels, dtype=numpy.uint64)
    noise = (((index + 1) * 2654435761 % 2**32) >> 24).astype(int).reshape(height, width, channels)
    inside = ((2 * x + 1 - width) * height) ** 2 + ((2 * y + 1 - height) * width) ** 2 <= (height * width) ** 2
    return numpy.where(inside[..., None], (3 * smooth + noise) // 4, noise // 64).astype(numpy.uint8)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def out(array, every):
    array = numpy.ascontiguousarray(array)
    return {
        "shape": list(array.shape[:2]),
        "hash": fnv1a(array.tobytes()),
        "every": every,
        "samples": array.reshape(-1)[::every].tolist(),
    }


result = {"resize": [], "clahe": [], "lab": [], "graham": [], "affine": [], "colour": [], "blur": [], "files": [], "folds": []}

FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}
for size in [(97, 131, 48, 64), (60, 70, 100, 33), (224, 224, 224, 150), (50, 40, 21, 40)]:
    for name, filter in FILTERS.items():
        resized = Image.fromarray(image(*size[:2])).resize((size[3], size[2]), filter)
        result["resize"].append({"from": size[:2], "to": size[2:], "filter": name, "out": out(resized, 29)})

for height, width, clip, tiles in [
    (224, 224, 2.5, (8, 8)), (299, 299, 3.0, (8, 8)), (384, 512, 40.0, (8, 8)), (512, 384, 2.0, (4, 6)), (299, 224, 2.5, (8, 8)), (64, 64, 0.0, (2, 2)),
]:
    plane = numpy.ascontiguousarray(image(height, width)[..., 2])
    equalised = cv2.createCLAHE(clip, (tiles[1], tiles[0])).apply(plane)
    result["clahe"].append({"from": (height, width), "clip": clip, "tiles": tiles, "out": out(equalised, 997)})

lab = cv2.cvtColor(image(120, 150), cv2.COLOR_RGB2LAB)
# Lab values all over, also those that are no colours.
anything = image(90, 110)
result["lab"] = {
    "of_rgb": out(lab, 7),
    "back": out(cv2.cvtColor(lab, cv2.COLOR_LAB2RGB), 7),
    "of_anything": out(cv2.cvtColor(anything, cv2.COLOR_LAB2RGB), 7),
}
colour = cv2.cvtColor(image(299, 224), cv2.COLOR_RGB2LAB)
colour[..., 0] = cv2.createCLAHE(2.5, (8, 8)).apply(numpy.ascontiguousarray(colour[..., 0]))
result["lab"]["clahe"] = out(cv2.cvtColor(colour, cv2.COLOR_LAB2RGB), 97)

for height, width, sigma in [(90, 101, 10.0), (128, 128, 4.2666), (60, 40, 1.5)]:
    source = image(height, width)
    blurred = cv2.GaussianBlur(source, (0, 0), sigma)
    sharp = cv2.addWeighted(source, 4, blurred, -4, 128)
    result["graham"].append({"from": (height, width), "sigma": sigma, "blurred": out(blurred, 31), "out": out(sharp, 31)})

photograph = numpy.pad(image(70, 80), ((11, 5), (3, 20), (0, 0)))
grey = cv2.cvtColor(photograph, cv2.COLOR_RGB2GRAY) > 7
rows, columns = numpy.flatnonzero(grey.any(1)), numpy.flatnonzero(grey.any(0))
result["crop"] = [int(rows[0]), int(columns[0]), int(rows[-1] - rows[0] + 1), int(columns[-1] - columns[0] + 1)]

AFFINE = [
    (10.0, (0, 0), 1.0, (0.0, 0.0)), (-37.5, (5, -3), 0.8, (0.0, 0.0)), (25.0, (0, 0), 1.3, (12.0, -7.0)),
    (0.0, (4, 9), 1.0, (0.0, 0.0)), (0.0, (0, 0), 1.17, (0.0, 0.0)), (180.0, (0, 0), 1.0, (0.0, 0.0)), (90.0, (1, 1), 0.5, (0.0, 20.0)),
]
for height, width in [(64, 64), (51, 76)]:
    for degrees, shift, scale, shear in AFFINE:
        for name, mode in [("nearest", InterpolationMode.NEAREST), ("bilinear", InterpolationMode.BILINEAR)]:
            moved = functional.affine(
                Image.fromarray(image(height, width)), degrees, list(shift), scale, list(shear), interpolation=mode, fill=[9, 8, 7]
            )
            result["affine"].append({
                "from": (height, width), "degrees": degrees, "shift": shift, "scale": scale, "shear": shear,
                "interpolation": name, "out": out(moved, 41),
            })

for kind, factors in [
    ("brightness", [0.0, 0.7, 1.0, 1.3, 2.5]), ("contrast", [0.0, 0.6, 1.05, 1.9]), ("saturation", [0.0, 0.5, 1.4, 3.0]),
    ("hue", [-0.5, -0.13, 0.05, 0.31, 0.5]),
]:
    for factor in factors:
        changed = getattr(functional, f"adjust_{kind}")(Image.fromarray(image(70, 90)), factor)
        result["colour"].append({"from": (70, 90), "kind": kind, "factor": factor, "out": out(changed, 23)})

for size, sigma in [(5, 0.7), (3, 1.9), (9, 2.0), (21, 0.1)]:
    source = torch.from_numpy(image(50, 61).transpose(2, 0, 1).copy())
    blurred = functional.gaussian_blur(source, [size, size], [sigma, sigma]).numpy().transpose(1, 2, 0)
    result["blur"].append({"from": (50, 61), "size": size, "sigma": sigma, "out": out(blurred, 17)})

tensor = functional.normalize(
    functional.to_tensor(Image.fromarray(image(20, 30))), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
)
result["normalised"] = {"from": (20, 30), "bits": tensor.numpy().reshape(-1)[::7].view(numpy.uint32).tolist()}

# Files.
FILES.mkdir(exist_ok=True)
source = image(40, 56)
colour, grey = Image.fromarray(source), Image.fromarray(source).convert("L")
wide = (source.astype(numpy.uint16) * 257) ^ 0x35
exif = Image.Exif()
exif[0x112] = 6
colour.save(FILES / "rgb.png")
grey.save(FILES / "grey.png")
colour.convert("P", palette=Image.ADAPTIVE, colors=40).save(FILES / "palette.png")
grey.convert("1").save(FILES / "bits.png")
Image.fromarray(numpy.concatenate([source, source[..., :1]], -1)).save(FILES / "alpha.png")
Image.fromarray(numpy.stack([source[..., 0], source[..., 1]], -1), "LA").save(FILES / "grey_alpha.png")
Image.fromarray(wide[..., 0]).save(FILES / "grey16.png")
Image.fromarray((wide[..., 0] >> 7)).save(FILES / "grey_12_of_16.tif")
cv2.imwrite(str(FILES / "rgb16.png"), wide[..., ::-1])
colour.save(FILES / "turned.png", exif=exif)
colour.save(FILES / "baseline.jpg", quality=92, subsampling=0)
colour.save(FILES / "subsampled.jpg", quality=85, subsampling=2)
colour.save(FILES / "progressive.jpg", quality=85, progressive=True)
colour.save(FILES / "turned.jpg", quality=92, subsampling=0, exif=exif)
grey.save(FILES / "grey.jpg", quality=90)
colour.save(FILES / "plain.tif")
colour.save(FILES / "lzw.tif", compression="tiff_lzw")
colour.save(FILES / "deflate.tif", compression="tiff_adobe_deflate")
for orientation in range(2, 9):
    colour.crop((0, 0, 7, 5)).save(FILES / f"turned{orientation}.tif", tiffinfo={274: orientation})
colour.save(FILES / "rgb.bmp")
grey.save(FILES / "grey.bmp")
# Large enough that what a decoder takes for it is more than its fixed parts.
Image.fromarray(cv2.GaussianBlur(image(600, 800), (0, 0), 9)).save(FILES / "large_progressive.jpg", quality=60, progressive=True)
colour.convert("CMYK").save(FILES / "cmyk.jpg", quality=80)
for path in sorted(FILES.iterdir()):
    if path.name == "cmyk.jpg":
        continue
    opened = Image.open(path)
    result["files"].append({
        "name": path.name, "rgb": out(opened.convert("RGB"), 997 if "large" in path.name else 11),
        "grey": out(opened.convert("RGB").convert("L"), 997 if "large" in path.name else 11) if not path.name.endswith("16.png") else None,
    })

# All steps of a pipeline together.
opened = Image.open(FILES / "rgb.png").convert("RGB").resize((32, 24), Image.BICUBIC)
opened = functional.affine(opened, 12.0, [1, -2], 1.1, [3.0, 0.0], interpolation=InterpolationMode.BILINEAR, fill=[0, 0, 0])
opened = functional.vflip(functional.hflip(opened))
opened = functional.adjust_brightness(functional.adjust_hue(functional.adjust_contrast(opened, 0.8), 0.1), 1.2)
tensor = functional.normalize(functional.to_tensor(opened), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
result["pipeline"] = tensor.numpy().reshape(-1).view(numpy.uint32).tolist()

# Folds of groups: without shuffling scikit-learn's are determined.
random = numpy.random.default_rng(7)
for cases, groups, classes, folds in [(60, 60, 3, 5), (100, 31, 5, 4), (40, 12, 2, 3)]:
    labels = random.integers(0, classes, cases)
    group = random.integers(0, groups, cases)
    splitter = StratifiedGroupKFold(n_splits=folds)
    fold = numpy.zeros(cases, int)
    for number, (_, test) in enumerate(splitter.split(labels, labels, group)):
        fold[test] = number
    result["folds"].append({"labels": labels.tolist(), "groups": group.tolist(), "count": folds, "fold": fold.tolist()})

(HERE / "image_pipeline.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
