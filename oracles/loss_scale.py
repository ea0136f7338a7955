"""The scale of the loss over steps some of which overflow, as PyTorch's GradScaler has it.

    python oracles/loss_scale.py > oracles/loss_scale.json

`torch.amp.GradScaler` with its defaults, over steps whose gradient is one number that is infinite in some of them. Of 9000 steps those are
kept after which the scale is another, with the scale; and the number of steps that the optimizer took. PyTorch 2.15.
"""
import json
import math

import torch

STEPS = 9000
OVERFLOWS = [0, 1, 2, 2003, 2004, 4100, 8200]

parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.0)
taken = 0
optimizer.register_step_post_hook(lambda *_: globals().__setitem__("taken", taken + 1))
scaler = torch.amp.GradScaler("cpu")
changes = []
last = scaler.get_scale()
for step in range(STEPS):
    optimizer.zero_grad()
    scaler.scale(parameter.sum()).backward()
    if step in OVERFLOWS:
        parameter.grad.fill_(math.inf)
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() != last:
        last = scaler.get_scale()
        changes.append([step, last])
print(json.dumps({"steps": STEPS, "overflows": OVERFLOWS, "changes": changes, "taken": taken}))
