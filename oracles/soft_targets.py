"""Losses and gradients of soft targets in PyTorch, in f64, for crates/plimsoll-nn/tests/soft_targets.rs.

    python oracles/soft_targets.py

torch 2.15.0 made the committed file. Mixed classes: the cross-entropy of shares (Zhang et al. 2018), with and without label
smoothing. Several labels, and thresholds of classes in an order (Niu et al. 2016): the binary cross-entropy of sigmoids.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F

OUT = Path(__file__).with_suffix(".json")


def main():
    random = torch.Generator().manual_seed(7)
    cases = []
    for samples, classes, spread in [(1, 3, 1.0), (5, 4, 3.0), (3, 2, 30.0)]:
        logits = (torch.randn(samples, classes, generator=random) * spread).double().requires_grad_()
        labels = torch.randint(classes, (samples,), generator=random)
        partners = torch.randint(classes, (samples,), generator=random)
        share = torch.rand(samples, 1, generator=random).float().double()
        mixed = share * F.one_hot(labels, classes) + (1 - share) * F.one_hot(partners, classes)
        bits = torch.randint(2, (samples, classes), generator=random).double()
        grade = torch.randint(classes + 1, (samples,), generator=random)
        passed = (grade[:, None] > torch.arange(classes)).double()
        bce = {"name": "weighted_bce", "activation": "sigmoid", "include_background": True}
        for name, component, first, target, loss in [
            ("mixed", {"name": "cross_entropy"}, labels, mixed, F.cross_entropy(logits, mixed)),
            ("smoothed", {"name": "cross_entropy", "label_smoothing": 0.1, "weight": 0.5}, labels, mixed,
             0.5 * F.cross_entropy(logits, mixed, label_smoothing=0.1)),
            ("several", bce, labels * 0, bits, F.binary_cross_entropy_with_logits(logits, bits)),
            ("ordinal", bce, labels * 0, passed, F.binary_cross_entropy_with_logits(logits, passed)),
        ]:
            (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
            cases.append({
                "name": name, "samples": samples, "classes": classes, "components": [component],
                "logits": logits.flatten().tolist(), "labels": first.tolist(), "target": target.flatten().tolist(),
                "value": loss.item(), "gradient": gradient.flatten().tolist(),
            })
    OUT.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
