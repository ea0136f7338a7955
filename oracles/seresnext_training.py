"""Reference logits, gradients, losses and running statistics of SE-ResNeXt50 32x4d, from timm.

    python oracles/seresnext_training.py             writes oracles/seresnext_{padded,ceil,mlp}.json (committed)
    python oracles/seresnext_training.py full DIR    whole gradients as well, into DIR
    python oracles/seresnext_training.py load DIR    loads what the test `exports` wrote into timm and MONAI, strictly

Needs torch, timm, monai, safetensors. Weights and images are given by a formula that the tests share, so that only results are
stored.
"""

import copy
import json
import sys
from pathlib import Path

import numpy as np
import timm
import torch
from safetensors.torch import load_file, save_file

torch.set_num_threads(2)

CLASSES = 3
STEPS = 10
PLACES = 8
BATCH = 6


def noise(seed, count):
    """conformance::noise: numbers in (-1, 1), exactly the same as in Rust."""
    x = (np.uint64(seed) << np.uint64(32)) ^ np.arange(count, dtype=np.uint64) ^ np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for m in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            x = (x ^ (x >> np.uint64(30))) * np.uint64(m)
    return (x >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def of_head(name):
    """The name of a tensor where a head of several layers is a module of its own beside the network."""
    return name.replace("fc.", "classifier.", 1) if name.startswith("fc.") and name.count(".") == 2 else name


def mlp(dropout=0.0):
    """The head of a retinopathy job: layers 1, 5 and 9 are linear, 3 and 7 normalise."""
    half = dropout / 2
    return torch.nn.Sequential(
        torch.nn.Dropout(dropout), torch.nn.Linear(2048, 512), torch.nn.ReLU(), torch.nn.BatchNorm1d(512),
        torch.nn.Dropout(half), torch.nn.Linear(512, 128), torch.nn.ReLU(), torch.nn.BatchNorm1d(128),
        torch.nn.Dropout(half), torch.nn.Linear(128, CLASSES),
    )


def fill(net):
    """Values off the initial ones, so that gradients are informative; by the place of a name in alphabetical order."""
    state = {of_head(name): tensor for name, tensor in net.state_dict().items()}
    for rank, name in enumerate(sorted(n for n in state if not n.endswith("num_batches_tracked"))):
        tensor = state[name]
        x = noise(1000 + rank, tensor.numel())
        last = name.rsplit(".", 1)[1]
        if tensor.ndim > 1:
            fan_in = tensor.numel() // tensor.shape[0]
            x = x * np.sqrt(6.0 / fan_in)
        elif last == "running_var" or (last == "weight" and not name.endswith("bn3.weight")):
            x = 1.0 + 0.25 * x
        elif last == "weight":
            x = 0.25 + 0.125 * x
        else:
            x = 0.125 * x
        tensor.copy_(torch.tensor(x, dtype=torch.float32).reshape(tensor.shape))
    return net


def batch(step, size):
    labels = np.floor((noise(2 * step + 2, BATCH) + 1.0) / 2.0 * CLASSES)
    image = noise(2 * step + 1, BATCH * 3 * size * size).reshape(BATCH, 3, size, size)
    image = image + 0.25 * (labels - 1.0)[:, None, None, None]
    return torch.tensor(image, dtype=torch.float32), torch.tensor(labels, dtype=torch.int64)


def some(values):
    """Some numbers of a tensor, evenly spaced."""
    flat = values.detach().double().flatten()
    return flat[:: max(1, len(flat) // PLACES)][:PLACES].tolist()


def train(net, size):
    dtype = next(net.parameters()).dtype
    net.train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses, logits, first, running = [], None, None, None
    for step in range(STEPS):
        image, labels = batch(step, size)
        optimizer.zero_grad()
        out = net(image.to(dtype))
        loss = torch.nn.functional.cross_entropy(out, labels)
        loss.backward()
        if step == 0:
            logits = out.detach().double()
            first = {of_head(k): p.grad.detach().clone() for k, p in net.named_parameters()}
        optimizer.step()
        losses.append(float(loss.detach()))
        if step == 2:
            running = {of_head(k): v.clone() for k, v in net.state_dict().items() if ".running_" in k}
            batches = sorted({int(v) for k, v in net.state_dict().items() if k.endswith("num_batches_tracked")})
    net.eval()
    with torch.no_grad():
        trained = net(batch(STEPS, size)[0].to(dtype)).double()
    return losses, logits, first, running, batches, trained


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def run(pool, name, size, folder, whole, head="linear"):
    # timm gives its legacy networks a dropout of 0.2.
    net = timm.create_model(name, num_classes=CLASSES, drop_rate=0.0, pretrained=False)
    if head == "mlp":
        net.fc = mlp()
    fill(net)
    exact = copy.deepcopy(net).double()
    with torch.no_grad():
        net.eval(), exact.eval()
        evaluated = [m(batch(0, size)[0].to(next(m.parameters()).dtype)).double() for m in (net, exact)]
    own = train(net, size)
    losses, logits, gradients, running, batches, trained = train(exact, size)
    off = {k: relative(own[2][k], g) for k, g in gradients.items()}
    record = dict(
        pool=pool, head=head, model=name, size=size, batch=BATCH, classes=CLASSES, torch=torch.__version__, timm=timm.__version__,
        evaluated=evaluated[1].tolist(), evaluated_error=relative(*evaluated),
        logits=logits.tolist(), logits_error=relative(own[1], logits),
        losses=own[0], exact_losses=losses, batches_tracked=batches,
        running={k: dict(norm=v.double().norm().item(), some=some(v)) for k, v in running.items()},
        running_error=max(relative(own[3][k], v) for k, v in running.items()),
        gradients={k: dict(norm=v.norm().item(), some=some(v)) for k, v in gradients.items()},
        gradient_error=max(off.values()), gradient_errors=sorted(off.values())[:: len(off) // 4],
        trained=trained.tolist(), trained_error=relative(own[5], trained),
    )
    label = pool if head == "linear" else head
    (folder / f"seresnext_{label}.json").write_text(json.dumps(record) + "\n")
    if whole:
        save_file({k: v.float().contiguous() for k, v in gradients.items()}, folder / f"seresnext_{label}.safetensors")
    print(f"{label} at {size}: losses {losses[0]:.4f} to {losses[-1]:.4f}; PyTorch in f32 is off PyTorch in f64 by "
          f"{max(abs(a - b) / b for a, b in zip(own[0], losses)):.1e} in losses, {max(off.values()):.1e} in gradients, "
          f"{record['trained_error']:.1e} in logits after training")


def load(folder):
    """Our files, strictly, and the logits that they then come to."""
    from monai.networks.nets import SEResNext50

    def of_monai():
        return SEResNext50(spatial_dims=2, in_channels=3, num_classes=CLASSES)

    for scheme, make in [
        ("timm", lambda: timm.create_model("seresnext50_32x4d", num_classes=CLASSES)),
        ("legacy", lambda: timm.create_model("legacy_seresnext50_32x4d", num_classes=CLASSES)),
        ("monai", of_monai),
    ]:
        net = make()
        print(scheme, net.load_state_dict(load_file(folder / f"{scheme}.safetensors"), strict=True), end=" ")
        net.double().eval()
        ours = torch.tensor(json.loads((folder / f"{scheme}.json").read_text()), dtype=torch.float64).reshape(BATCH, CLASSES)
        with torch.no_grad():
            print(f"logits off by {relative(ours, net(batch(0, 64)[0].double())):.1e}")
        counts = {int(v) for k, v in net.state_dict().items() if k.endswith("num_batches_tracked")}
        print("batches tracked", counts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        load(Path(sys.argv[2]))
    else:
        whole = sys.argv[1:2] == ["full"]
        folder = Path(sys.argv[2]) if whole else Path(__file__).parent
        folder.mkdir(parents=True, exist_ok=True)
        run("padded", "seresnext50_32x4d", 64, folder, whole)
        run("ceil", "legacy_seresnext50_32x4d", 75, folder, whole)
        run("padded", "seresnext50_32x4d", 64, folder, whole, head="mlp")
