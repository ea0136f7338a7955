"""Reference convolutions in groups for conformance/tests/groups.rs, from PyTorch in f64.

    python oracles/grouped_convolutions.py

Version that made the committed file: torch 2.15.0. Operands are given by a formula that the test shares, so only results
are stored.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F

from losses import noise

OUT = Path(__file__).with_suffix(".json")
# inputs, outputs, groups, extent, kernel, stride, padding
CASES = [
    (6, 6, 6, (2, 3, 5), (3, 3, 3), (1, 1, 1), (1, 1, 1)),
    (6, 9, 3, (1, 4, 5), (1, 3, 3), (1, 2, 2), (0, 1, 1)),
    (8, 8, 2, (3, 4, 3), (3, 1, 2), (2, 1, 1), (1, 0, 0)),
    (20, 40, 4, (1, 3, 2), (1, 2, 2), (1, 1, 1), (0, 0, 0)),
]


def operand(seed, *shape):
    """conformance::values: multiples of 1/128."""
    count = torch.Size(shape).numel()
    # Rust rounds halves away from zero; there are none.
    return torch.round(torch.tensor(noise(seed, count)) * 128).div(128).reshape(shape)


cases = []
for inputs, outputs, groups, extent, kernel, stride, padding in CASES:
    x = operand(1, 2, inputs, *extent).requires_grad_()
    w = operand(2, outputs, inputs // groups, *kernel).requires_grad_()
    y = F.conv3d(x, w, None, stride, padding, 1, groups)
    dy = operand(3, *y.shape)
    y.backward(dy)
    # The transposed convolution is the gradient, as Plimsoll defines it.
    out_padding = [n + 2 * p - k - (m - 1) * s for n, p, k, m, s in zip(extent, padding, kernel, y.shape[2:], stride)]
    transposed = F.conv_transpose3d(dy, w.detach(), None, stride, padding, out_padding, groups)
    assert torch.allclose(transposed, x.grad, rtol=0, atol=1e-12)
    results = {"y": y.detach(), "dx": x.grad, "dw": w.grad}
    case = dict(inputs=inputs, outputs=outputs, groups=groups, extent=extent, kernel=kernel, stride=stride, padding=padding)
    case |= {name: [round(v, 9) for v in value.flatten().tolist()] for name, value in results.items()}
    cases.append(case)
OUT.write_text(json.dumps(cases) + "\n")
