"""Starts from pre-trained checkpoints, by nnU-Net's own code.

    pip install nnunetv2==2.8.1 dynamic-network-architectures==0.4.4 huggingface_hub einops
    git clone https://github.com/MIC-DKFZ/nnUNet nnunet && git -C nnunet checkout 0e495086
    git clone https://github.com/MIC-DKFZ/nnssl nnssl && git -C nnssl checkout 70448644
    PYTHONPATH=nnunet:nnssl/src python oracles/pretrained.py

The checkout of nnU-Net is of the version 2.8.1 of its repository, which has the trainers for checkpoints of nnssl; the package of that
version has them not yet.

Writes oracles/pretrained/:

    resenc/, plain/, primus/ a checkpoint as nnssl's trainers save it, with random weights, and its adaptation_plan.json beside it;
                           the plan of primus names the size S, of which the network has the layers, fewer and narrower
    nnunet.pth             a checkpoint of nnU-Net's, without a plan
    CASE.safetensors       the encoder and the stem of the target network after nnU-Net has loaded the checkpoint; of a case in which
                           nnU-Net stops with sizes that do not match, what its functions make of each tensor
    pretrained.json        the target network of each case and the tensors that kept their random values; learning rates of each epoch
"""

import contextlib
import inspect
import io
import json
import os
import re
import tempfile
from pathlib import Path

for name in ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results"):
    os.environ[name] = tempfile.gettempdir()

import torch
from dynamic_network_architectures.architectures.primus import Primus
from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet
from nnssl.adaptation_planning.adaptation_plan import AdaptationPlan, ArchitecturePlans, DynamicArchitecturePlans
from nnssl.architectures.evaMAE_module import EvaMAE
from nnssl.experiment_planning.experiment_planners.plan import ConfigurationPlan, Plan
from nnunetv2.run.load_pretrained_weights import load_pretrained_weights
from nnunetv2.training.nnUNetTrainer.pretraining import pretrainedTrainer, thrp_primusx_finetuning
from nnunetv2.training.nnUNetTrainer.pretraining.dynamicPretrainedTrainer import DynamicPretrainedTrainer
from nnunetv2.training.nnUNetTrainer.pretraining.pretrainedTrainer import PretrainedTrainer
from nnunetv2.utilities.load_weights_utils import adapt_conv_kernel_size
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).parent / "pretrained"
KINDS = {"resenc": ResidualEncoderUNet, "plain": PlainConvUNet}
BLOCKS = {"resenc": "n_blocks_per_stage", "plain": "n_conv_per_stage"}


def network(kind, channels, classes, features, kernels, strides, blocks, seed, supervised=False):
    """A network of random weights; normalisations too, which would begin as ones and zeros."""
    torch.manual_seed(seed)
    net = KINDS[kind](
        input_channels=channels, n_stages=len(features), features_per_stage=features, conv_op=nn.Conv3d, kernel_sizes=kernels,
        strides=strides, **{BLOCKS[kind]: blocks}, num_classes=classes, n_conv_per_stage_decoder=[1] * (len(features) - 1),
        conv_bias=True, norm_op=nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True}, dropout_op=None,
        dropout_op_kwargs=None, nonlin=nn.LeakyReLU, nonlin_kwargs={"inplace": True}, deep_supervision=supervised)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return net


def described(kind, channels, classes, features, kernels, strides, blocks, **_):
    """The network as configurations of this program have it."""
    shape = {"in_channels": channels, "classes": classes, "features": features, "kernels": kernels, "strides": strides}
    shape |= {"encoder_blocks" if kind == "resenc" else "encoder_convs": blocks, "decoder_convs": [1] * (len(features) - 1)}
    shape |= {"affine": True, "epsilon": 1e-5, "slope": 0.01, "deep_supervision": 0}
    return {"name": kind} | shape | ({} if kind == "resenc" else {"transposed_bias": True})


HALVED = [[1, 1, 1], [2, 2, 2], [2, 2, 2], [1, 2, 2]]
SOURCE = {
    "resenc": dict(channels=1, classes=1, features=[4, 6, 8], kernels=[[3, 3, 3]] * 3, strides=HALVED[:3], blocks=[1, 2, 1]),
    "plain": dict(channels=1, classes=1, features=[4, 6, 8], kernels=[[3, 3, 3]] * 3, strides=HALVED[:3], blocks=[2, 2, 2]),
}


def pretraining(patch):
    """The plan of the data of a pre-training."""
    configuration = ConfigurationPlan(
        data_identifier="nnsslPlans_onemmiso", preprocessor_name="DefaultPreprocessor", spacing_style="onemmiso",
        normalization_schemes=["ZScoreNormalization"], use_mask_for_norm=[False], resampling_fn_data="resample_data_or_seg_to_shape",
        resampling_fn_data_kwargs={"is_seg": False, "order": 3, "order_z": 0, "force_separate_z": None},
        resampling_fn_mask="resample_data_or_seg_to_shape",
        resampling_fn_mask_kwargs={"is_seg": True, "order": 1, "order_z": 0, "force_separate_z": None}, spacing=[1.0, 1.0, 1.0],
        patch_size=patch)
    return Plan(
        dataset_name="Dataset745_OpenMind", plans_name="nnsslPlans", original_median_spacing_after_transp=[1.0, 0.9, 0.9],
        image_reader_writer="SimpleITKIO", transpose_forward=[0, 1, 2], transpose_backward=[0, 1, 2],
        experiment_planner_used="FixedResEncUNetPlanner", configurations={"onemmiso": configuration})


# Tokens of 12 channels, two blocks of two heads: a masked autoencoder as nnssl's BaseEvaMAETrainer makes it, but for its size and the
# share of masked tokens, which has no weights.
PRIMUS = dict(embed_dim=12, depth=2, heads=2, patch=[16, 24, 32])
# name: image channels and the patch of the target network
PRIMUS_CASES = {
    "primus_same": (1, [16, 24, 32]),
    "primus_channels": (3, [16, 24, 32]),
    "primus_larger": (1, [32, 24, 40]),
    "primus_smaller": (2, [24, 16, 16]),
}


def noise(net, seed):
    torch.manual_seed(seed)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return net


def autoencoder():
    return noise(EvaMAE(
        input_channels=1, embed_dim=PRIMUS["embed_dim"], patch_embed_size=(8, 8, 8), output_channels=1,
        input_shape=tuple(PRIMUS["patch"]), encoder_eva_depth=PRIMUS["depth"], encoder_eva_numheads=PRIMUS["heads"],
        decoder_eva_depth=1, decoder_eva_numheads=PRIMUS["heads"], drop_path_rate=0.2, init_values=0.1,
        scale_attn_inner=True), 5)


def primus(channels, patch, seed):
    """As PrimusS, PrimusM and so on make it, but for its size."""
    return noise(Primus(channels, PRIMUS["embed_dim"], (8, 8, 8), 3, PRIMUS["depth"], PRIMUS["heads"], tuple(patch),
                        init_values=0.1, scale_attn_inner=True), seed)


def primus_cases():
    saved = primus_plan()
    for number, (name, (channels, patch)) in enumerate(PRIMUS_CASES.items()):
        before = {key: value.clone() for key, value in primus(channels, patch, 300 + number).state_dict().items()}
        with contextlib.redirect_stdout(io.StringIO()):
            net = PretrainedTrainer.load_pretrained_weights(
                primus(channels, patch, 300 + number), str(HERE / "primus" / "checkpoint_final.pth"),
                saved["pretrain_num_input_channels"], channels, saved["pretrain_plan"]["configurations"]["onemmiso"]["patch_size"],
                patch, saved["key_to_encoder"], saved["key_to_stem"], saved["keys_to_in_proj"], saved["key_to_lpe"])[0]
        after = {key: value for key, value in net.state_dict().items() if key != "mask_token"}
        new = sorted(key for key, value in after.items() if torch.equal(value, before[key]))
        assert all(key.startswith("up_projection.") for key in new)
        save_file({key: value.contiguous().clone() for key, value in after.items() if key not in new}, HERE / f"{name}.safetensors")
        network = {"name": "primus", "in_channels": channels, "classes": 3, "version": 1, "image_size": patch,
                   "hidden_size": PRIMUS["embed_dim"], "depths": [PRIMUS["depth"]], "num_heads": [PRIMUS["heads"]], "path_dropout": 0.0}
        yield name, {"source": "primus", "network": network, "new": new, "by": "PretrainedTrainer"}


def primus_plan():
    """The plan that BaseEvaMAETrainer makes."""
    configuration = pretraining(PRIMUS["patch"])
    return AdaptationPlan(
        architecture_plans=ArchitecturePlans("PrimusS"), pretrain_plan=configuration, pretrain_num_input_channels=1,
        recommended_downstream_patchsize=tuple(PRIMUS["patch"]), key_to_encoder="eva", key_to_stem="down_projection",
        keys_to_in_proj=("down_projection.proj",), key_to_lpe="eva.pos_embed").serialize()


def plan(kind):
    """The plan that nnssl's trainers make of such a network."""
    source = SOURCE[kind]
    arguments = dict(
        n_stages=len(source["features"]), features_per_stage=source["features"], conv_op=nn.Conv3d,
        kernel_sizes=source["kernels"], strides=source["strides"], n_blocks_per_stage=source["blocks"],
        n_conv_per_stage_decoder=[1] * (len(source["features"]) - 1), conv_bias=True, norm_op=nn.InstanceNorm3d,
        norm_op_kwargs={"eps": 1e-5, "affine": True}, dropout_op=None, dropout_op_kwargs=None, nonlin=nn.LeakyReLU,
        nonlin_kwargs={"inplace": True})
    configuration = pretraining([16, 16, 16])
    net = network(kind, **source, seed=0)
    return AdaptationPlan(
        architecture_plans=ArchitecturePlans(KINDS[kind].__name__, DynamicArchitecturePlans(**arguments)),
        pretrain_plan=configuration, pretrain_num_input_channels=source["channels"], recommended_downstream_patchsize=(16, 16, 16),
        key_to_encoder=net.key_to_encoder, key_to_stem=net.key_to_stem, keys_to_in_proj=tuple(net.keys_to_in_proj)).serialize()


def checkpoint(net, **more):
    """What the trainers save beside the weights."""
    return {"network_weights": net.state_dict(), "optimizer_state": {"state": {}, "param_groups": [{"lr": 0.01}]},
            "grad_scaler_state": None, "logging": {}, "_best_ema": 0.5, "current_epoch": 1000, "init_args": {}} | more


def sources():
    for seed, kind in enumerate(KINDS):
        folder = HERE / kind
        folder.mkdir(parents=True, exist_ok=True)
        saved = plan(kind)
        net = network(kind, **SOURCE[kind], seed=seed + 1)
        torch.save(checkpoint(net, trainer_name="BaseMAETrainer", nnssl_adaptation_plan=saved, citations=[]),
                   folder / "checkpoint_final.pth")
        (folder / "adaptation_plan.json").write_text(json.dumps(saved, indent=4) + "\n")
    folder = HERE / "primus"
    folder.mkdir(parents=True, exist_ok=True)
    saved = primus_plan()
    torch.save(checkpoint(autoencoder(), trainer_name="BaseEvaMAETrainer", nnssl_adaptation_plan=saved, citations=[]),
               folder / "checkpoint_final.pth")
    (folder / "adaptation_plan.json").write_text(json.dumps(saved, indent=4) + "\n")
    net = network("resenc", **SOURCE["resenc"], seed=3)
    torch.save(checkpoint(net, trainer_name="nnUNetTrainer", inference_allowed_mirroring_axes=(0, 1, 2)), HERE / "nnunet.pth")


def target(kind, **changes):
    return SOURCE[kind] | dict(classes=3) | changes


# name: the kind, and the changes of the target network
CASES = {
    "same": ("resenc", {}),
    "channels": ("resenc", dict(channels=3)),
    "flat_kernels": ("resenc", dict(kernels=[[1, 3, 3], [1, 3, 3], [3, 3, 3]], strides=[[1, 1, 1], [1, 2, 2], [2, 2, 2]])),
    "flat_and_channels": ("resenc", dict(channels=2, kernels=[[1, 3, 3], [3, 3, 3], [3, 1, 1]])),
    "shallower": ("resenc", dict(features=[4, 6], kernels=[[3, 3, 3]] * 2, strides=HALVED[:2], blocks=[1, 2])),
    "deeper": ("resenc", dict(features=[4, 6, 8, 8], kernels=[[3, 3, 3]] * 4, strides=HALVED, blocks=[1, 3, 1, 1])),
    "other_features": ("resenc", dict(features=[4, 6, 10])),
    "fewer_blocks": ("resenc", dict(blocks=[1, 1, 1])),
    "plain_same": ("plain", {}),
    "plain_deeper": ("plain", dict(features=[4, 6, 8, 8], kernels=[[3, 3, 3]] * 4, strides=HALVED, blocks=[2, 2, 2, 2])),
    "plain_channels": ("plain", dict(channels=2)),
    "plain_flat": ("plain", dict(kernels=[[1, 3, 3], [3, 3, 3], [3, 3, 3]])),
}


def dynamic(kind, shape, net):
    """nnU-Net's trainer for other topologies."""
    saved = plan(kind)
    with contextlib.redirect_stdout(io.StringIO()):
        return DynamicPretrainedTrainer.load_pretrained_weights_dynamic(
            net, pretrained_weights_path=str(HERE / kind / "checkpoint_final.pth"),
            pt_input_channels=saved["pretrain_num_input_channels"], downstream_input_channels=shape["channels"],
            pt_input_patchsize=[16] * 3, downstream_input_patchsize=[16] * 3, pt_key_to_encoder=saved["key_to_encoder"],
            pt_key_to_stem=saved["key_to_stem"], pt_keys_to_in_proj=saved["keys_to_in_proj"], pt_key_to_lpe=saved["key_to_lpe"],
            target_kernel_sizes=shape["kernels"], target_n_stages=len(shape["features"]))[0]


def fixed(kind, shape, net):
    """nnU-Net's trainer for the checkpoint's own topology."""
    saved = plan(kind)
    return PretrainedTrainer.load_pretrained_weights(
        net, str(HERE / kind / "checkpoint_final.pth"), saved["pretrain_num_input_channels"], shape["channels"], [16] * 3, [16] * 3,
        saved["key_to_encoder"], saved["key_to_stem"], saved["keys_to_in_proj"], saved["key_to_lpe"])[0]


def by_tensor(kind, shape, net):
    """The repetition of the stem and the adaptation of kernels, tensor by tensor."""
    weights = torch.load(HERE / kind / "checkpoint_final.pth", weights_only=True)["network_weights"]
    own = net.state_dict()
    for name, value in own.items():
        found = weights.get(name)
        if not name.startswith("encoder.") or found is None:
            continue
        if found.ndim == 5:
            if found.shape[1] != value.shape[1]:
                found = found.repeat(1, shape["channels"], 1, 1, 1) / shape["channels"]
            found = adapt_conv_kernel_size(found, list(value.shape[2:]), list(found.shape[2:]))
        own[name] = found
    net.load_state_dict(own)
    return net


def is_own(name):
    return name.startswith("encoder.") and ".all_modules." not in name


def cases():
    for number, (name, (kind, changes)) in enumerate(CASES.items()):
        shape = target(kind, **changes)
        make = lambda: network(kind, **shape, seed=100 + number)
        before = {key: value.clone() for key, value in make().state_dict().items()}
        record = {"source": kind, "network": described(kind, **shape)}
        try:
            net, record["by"] = dynamic(kind, shape, make()), "DynamicPretrainedTrainer"
            if name in ("same", "channels", "plain_same"):
                other = fixed(kind, shape, make()).state_dict()
                assert all(torch.equal(value, other[key]) for key, value in net.state_dict().items())
        except RuntimeError as error:
            assert "size mismatch" in str(error)
            net, record["by"] = by_tensor(kind, shape, make()), "functions"
        after = {key: value for key, value in net.state_dict().items() if is_own(key)}
        record["new"] = sorted(key for key, value in after.items() if torch.equal(value, before[key]))
        # Nothing of the decoder is taken.
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items()
                   if key.startswith("decoder.") and not key.startswith("decoder.encoder."))
        save_file({key: value.contiguous().clone() for key, value in after.items() if key not in record["new"]},
                  HERE / f"{name}.safetensors")
        yield name, record


def from_nnunet():
    """`-pretrained_weights`, which takes everything but the heads."""
    shape = target("resenc")
    net = network("resenc", **shape, seed=200)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    trusting, torch.load = torch.load, lambda *args, **options: trusting(*args, **options)
    with contextlib.redirect_stdout(io.StringIO()):
        load_pretrained_weights(net, str(HERE / "nnunet.pth"))
    torch.load = trusting
    after = {key: value for key, value in net.state_dict().items()
             if ".all_modules." not in key and not key.startswith("decoder.encoder.")}
    new = sorted(key for key, value in after.items() if torch.equal(value, before[key]))
    save_file({key: value.contiguous().clone() for key, value in after.items() if key not in new}, HERE / "nnunet.safetensors")
    return {"network": described("resenc", **shape), "new": new}


class Quiet:
    def __getattr__(self, name):
        return lambda *args, **options: None


def attributes(trainer):
    """Epochs, warm-up and highest rate that a trainer sets for itself, without its base class, which needs a data set."""
    made = object.__new__(trainer)
    base = pretrainedTrainer.nnUNetTrainer.__init__
    pretrainedTrainer.nnUNetTrainer.__init__ = lambda self, *args: self.__dict__.update(
        num_epochs=1000, weight_decay=3e-5, device=torch.device("cpu"), plans_manager=type("Plans", (), {"plans": {"pretrain_info": {"checkpoint_path": "x"}}}))
    plans = {"configurations": {"3d_fullres": {}}}
    made.__init__(plans, "3d_fullres", 0, {}, torch.device("cpu"))
    pretrainedTrainer.nnUNetTrainer.__init__ = base
    return made, plans["configurations"]["3d_fullres"]["batch_size"]


def rates(trainer):
    """The learning rate of each epoch, as the trainer's hook sets it."""
    made, batch = attributes(trainer)
    made.network, made.is_ddp, made.local_rank, made.logger = nn.Conv3d(1, 1, 1), False, 0, Quiet()
    made.print_to_log_file = lambda *args, **options: None
    made.current_epoch = 0
    made.optimizer, made.lr_scheduler = made.configure_optimizers()
    found = []
    for made.current_epoch in range(made.num_epochs):
        made.on_train_epoch_start()
        found.append(made.optimizer.param_groups[0]["lr"])
    group = made.optimizer.param_groups[0]
    return {
        "epochs": made.num_epochs, "warmup_epochs": made.warmup_duration_whole_net, "learning_rate": made.initial_lr,
        "batch_size": batch, "deep_supervision": made.enable_deep_supervision, "momentum": group["momentum"],
        "nesterov": group["nesterov"], "weight_decay": group["weight_decay"], "rates": found}


def primus_schedule():
    """What the trainer of transformers sets beside the epochs."""
    made, batch = attributes(pretrainedTrainer.PretrainedTrainer_Primus)
    made.network, made.is_ddp = nn.Conv3d(1, 1, 1), False
    made.print_to_log_file = lambda *args, **options: None
    made.current_epoch = 0
    optimizer = made.configure_optimizers()[0]
    group = optimizer.param_groups[0]
    clip = re.search(r"clip_grad_norm_\(self.network.parameters\(\), (\d+)\)", inspect.getsource(type(made).train_step)).group(1)
    return {"epochs": made.num_epochs, "warmup_epochs": made.warmup_duration_whole_net, "learning_rate": made.initial_lr,
            "batch_size": batch, "betas": group["betas"], "weight_decay": group["weight_decay"], "epsilon": group["eps"],
            "max_grad_norm": float(clip), "optimizer": type(optimizer).__name__}


def warmup_of(trainer):
    made, _ = attributes(trainer)
    return [made.num_epochs, made.warmup_duration_whole_net]


def main():
    sources()
    record = {"cases": dict(cases()) | dict(primus_cases()), "nnunet": from_nnunet()}
    record["schedules"] = [
        rates(PretrainedTrainer), rates(pretrainedTrainer.PretrainedTrainer_150ep), rates(pretrainedTrainer.PretrainedTrainer_300ep)]
    record["primus"] = primus_schedule()
    # The shortest of nnU-Net's schedules is of a transformer.
    record["shortest"] = warmup_of(thrp_primusx_finetuning.PretrainedTrainer_Primusx_30ep)
    assert inspect.getmro(DynamicPretrainedTrainer)[1] is PretrainedTrainer
    (HERE / "pretrained.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")


main()
