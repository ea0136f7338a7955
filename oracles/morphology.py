"""Reference numbers for crates/plimsoll-morphology/tests, from SciPy, edt, scikit-image, cc3d and surface-distance.

    python oracles/morphology.py

Versions that made the committed files: numpy 2.4.6, scipy 1.17.1, edt 3.1.2, scikit-image 0.26.0,
connected-components-3d 4.1.1, surface-distance 0.1.
"""

from pathlib import Path

import cc3d
import edt
import numpy as np
import scipy.ndimage as ndi
from skimage import measure, morphology
from surface_distance import lookup_tables

OUT = Path(__file__).parent.parent / "crates/plimsoll-morphology/tests/data"


def save(name, array, dtype):
    np.ascontiguousarray(array, dtype=dtype).tofile(OUT / name)


def blobs(rng, shape, labels, sigma):
    """Smooth noise cut into labels: regions of all sizes, some of which touch the border, some of which are nested."""
    noise = ndi.gaussian_filter(rng.standard_normal(shape), sigma)
    noise /= np.abs(noise).max()
    return np.clip(np.floor((noise + 0.4) * labels), 0, labels - 1).astype(np.uint8)


def distances():
    spacing = (2.5, 0.8, 0.8)
    mask = blobs(np.random.default_rng(1), (28, 44, 52), 5, 3)
    save("edt_mask.u8", mask, np.uint8)
    inside = ndi.distance_transform_edt(mask > 0, sampling=spacing)
    outside = ndi.distance_transform_edt(mask == 0, sampling=spacing)
    labels = edt.edt(mask, anisotropy=spacing, black_border=False)
    for name, array in [("scipy", inside), ("labels", labels), ("signed", outside - inside)]:
        save(f"edt_{name}.f32", array.ravel()[::5], np.float32)


def components():
    """Labels from 1 in the order of first voxels, for all connectivities, of one binary and one labelled mask."""
    rng = np.random.default_rng(2)
    binary = (rng.random((18, 21, 35)) < 0.28).astype(np.uint8)
    labelled = blobs(rng, (16, 20, 30), 6, 1.2)
    save("components_binary.u8", binary, np.uint8)
    save("components_labelled.u8", labelled, np.uint8)
    for rank, name in [(1, 6), (2, 18), (3, 26)]:
        structure = ndi.generate_binary_structure(3, rank)
        save(f"components_binary_{name}.u32", in_order(ndi.label(binary, structure)[0]), np.uint32)
        save(f"components_labelled_{name}.u32", in_order(cc3d.connected_components(labelled, connectivity=name)), np.uint32)


def holes():
    """A mask whose holes are closed to 6 neighbours but open to 26, and the same slice by slice."""
    rng = np.random.default_rng(3)
    mask = (ndi.gaussian_filter(rng.standard_normal((20, 30, 40)), 1.1) > -0.06).astype(np.uint8)
    save("holes.u8", mask, np.uint8)
    for rank, name in [(1, 6), (3, 26)]:
        structure = ndi.generate_binary_structure(3, rank)
        save(f"holes_filled_{name}.u8", ndi.binary_fill_holes(mask, structure), np.uint8)
    save("holes_filled_slices.u8", [ndi.binary_fill_holes(part) for part in mask], np.uint8)


def erosion():
    """Eroded and dilated masks in three and two dimensions; the width is more than a machine word."""
    mask = blobs(np.random.default_rng(4), (14, 17, 75), 2, 1.5)
    save("erosion.u8", mask, np.uint8)
    for rank, name in [(1, 6), (2, 18), (3, 26)]:
        structure = ndi.generate_binary_structure(3, rank)
        for times in [1, 3]:
            save(f"eroded_{name}_{times}.u8", ndi.binary_erosion(mask, structure, times), np.uint8)
            save(f"dilated_{name}_{times}.u8", ndi.binary_dilation(mask, structure, times), np.uint8)
    for rank, name in [(1, 4), (2, 8)]:
        structure = ndi.generate_binary_structure(2, rank)
        save(f"eroded_{name}_2.u8", [ndi.binary_erosion(part, structure, 2) for part in mask], np.uint8)
        save(f"dilated_{name}_2.u8", [ndi.binary_dilation(part, structure, 2) for part in mask], np.uint8)


def topology():
    """Euler number, components and cavities of random masks: lines of shape, seed of the mask, and the numbers."""
    rng = np.random.default_rng(5)
    masks, lines = [], []
    for case in range(40):
        shape = tuple(rng.integers(1, 12, 2)) + (int(rng.integers(1, 150)),)
        if case % 4 == 0:
            mask = blobs(rng, shape, 2, 1)
        else:
            mask = (rng.random(shape) < rng.random()).astype(np.uint8)
        masks.append(mask.ravel())
        for connectivity, other in [(1, 26), (3, 6)]:
            euler = measure.euler_number(mask, connectivity)
            structure = ndi.generate_binary_structure(3, connectivity)
            components = ndi.label(mask, structure)[1]
            background = np.pad(mask, 1) == 0
            cavities = cc3d.connected_components(background, connectivity=other).max() - 1
            lines.append(" ".join(map(str, [*shape, {1: 6, 3: 26}[connectivity], euler, components, cavities])))
    save("topology.u8", np.concatenate(masks), np.uint8)
    (OUT / "topology.txt").write_text("\n".join(lines) + "\n")


def surface():
    """Areas and lengths of all codes for two spacings, and the codes of a random mask and image."""
    for name, spacing in [("cubes", (1, 1, 1)), ("slabs", (2.5, 0.7, 1.1))]:
        areas = lookup_tables.create_table_neighbour_code_to_surface_area(spacing)
        lengths = lookup_tables.create_table_neighbour_code_to_contour_length(spacing[1:])
        save(f"surface_{name}.f64", np.concatenate([areas, lengths]), np.float64)
    mask = blobs(np.random.default_rng(6), (9, 13, 17), 3, 1)
    save("surface_mask.u8", mask, np.uint8)
    codes = [
        ndi.correlate(np.pad(part.astype(np.uint8), [(0, 1)] * part.ndim), kernel, mode="constant", cval=0)
        for part, kernel in [
            (mask > 0, lookup_tables.ENCODE_NEIGHBOURHOOD_3D_KERNEL),
            (mask[4] > 0, lookup_tables.ENCODE_NEIGHBOURHOOD_2D_KERNEL),
        ]
    ]
    save("surface_codes.u8", codes[0], np.uint8)
    save("contour_codes.u8", codes[1], np.uint8)


def skeletons():
    """Skeletons of tubes and blobs, of noise, and of images."""
    rng = np.random.default_rng(7)
    tubes = np.zeros((30, 40, 90), bool)
    for _ in range(6):
        path = np.cumsum(ndi.gaussian_filter1d(rng.standard_normal((400, 3)), 20, axis=0), axis=0)
        path = (path - path.min(0)) / np.ptp(path, axis=0) * (np.array(tubes.shape) - 9) + 4
        tubes[tuple(path.round().astype(int).T)] = True
    tubes = ndi.distance_transform_edt(~tubes) < 2.6
    lumps = blobs(rng, (24, 32, 70), 2, 2.5)
    noise = rng.random((12, 15, 80)) < 0.5
    images = blobs(rng, (8, 40, 70), 2, 2)
    boxes = np.zeros((12, 16, 16, 16), bool)
    for mask in boxes:
        for _ in range(6):
            first, size = rng.integers(0, 16, 3), rng.integers(1, 8, 3)
            mask[tuple(slice(a, a + b) for a, b in zip(first, size))] = True

    def thin(mask):
        return morphology.skeletonize(mask > 0, method="lee")

    for name, mask in [("tubes", tubes), ("lumps", lumps), ("noise", noise)]:
        save(f"skeleton_{name}.u8", np.packbits(mask), np.uint8)
        save(f"skeleton_{name}_thin.u8", np.packbits(thin(mask)), np.uint8)
    for name, masks in [("images", images), ("boxes", boxes)]:
        save(f"skeleton_{name}.u8", np.packbits(masks), np.uint8)
        save(f"skeleton_{name}_thin.u8", np.packbits([thin(mask) for mask in masks]), np.uint8)


def in_order(labels):
    """The same components, numbered in the order of their first voxels."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.empty(len(first), int)
    rest = [label for label in np.argsort(first) if labels.flat[first[label]] != 0]
    order[rest] = np.arange(1, len(rest) + 1)
    background = [label for label in range(len(first)) if labels.flat[first[label]] == 0]
    order[background] = 0
    return order[inverse].reshape(labels.shape)


if __name__ == "__main__":
    distances()
    components()
    holes()
    erosion()
    topology()
    surface()
    skeletons()
