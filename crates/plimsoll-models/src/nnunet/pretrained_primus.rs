//! The Primus of an adaptation plan: one whose name says its size, or one whose arguments are written out, as nnFoundationViT has them.
//!
//! nnssl trains version 1 alone, and nnU-Net 2.8.1 makes no other of a plan (`get_network_via_name.py`, `thrp_primusx_finetuning.py`).

use plimsoll_nn::bounds::MOST_FEATURES;
use plimsoll_nn::{Architecture, NetworkSize, Primus};

use super::NnUnetError;
use super::adaptation_plan::unknown;
use super::entry::Entry;

/// The names of networks whose sizes follow.
const SIZES: [(&str, NetworkSize); 4] = [
    ("PrimusS", NetworkSize::S),
    ("PrimusB", NetworkSize::B),
    ("PrimusM", NetworkSize::M),
    ("PrimusL", NetworkSize::L),
];
/// The name of a network with arguments.
pub(super) const WITH_ARGUMENTS: &str = "PrimusX";
/// Arguments that are read here, or describe the decoder and the pre-training alone.
const ARGUMENTS: [&str; 14] = [
    "input_channels",
    "embed_dim",
    "patch_embed_size",
    "output_channels",
    "input_shape",
    "encoder_eva_depth",
    "encoder_eva_numheads",
    "decoder_eva_depth",
    "decoder_eva_numheads",
    "patch_drop_rate",
    "drop_path_rate",
    "attn_drop_rate",
    "init_values",
    "scale_attn_inner",
];
/// Voxels of a token along each axis.
const TOKEN: [usize; 3] = [8; 3];

/// The patch of the fine-tuning, with its entry.
#[derive(Clone, Copy)]
pub(super) struct Patch<'a, 'b> {
    pub(super) entry: &'a Entry<'b>,
    pub(super) extents: [usize; 3],
}

/// Returns the size that a name says; `None` of other networks.
pub(super) fn size_of(name: &str) -> Option<NetworkSize> {
    SIZES.into_iter().find_map(|(primus, size)| (primus == name).then_some(size))
}

/// Returns the network of a size. As nnU-Net makes it by this name, it skips no blocks.
///
/// # Errors
/// Returns an error if the network does not take the patch.
pub(super) fn sized(size: NetworkSize, channels: usize, patch: Patch<'_, '_>) -> Result<Primus, NnUnetError> {
    let primus = Primus { path_dropout: 0.0, ..Primus::new(channels, 1, size, 1, patch.extents) };
    primus.check().map_err(|source| patch.entry.refuse(source.to_string()))?;
    Ok(primus)
}

/// Returns the network of arguments. nnU-Net skips blocks of it as its trainers of Primus do, whatever the pre-training did.
///
/// # Errors
/// Returns an error if an argument is missing, unknown, or of another network, or the network does not take the patch.
pub(super) fn described(
    arguments: &Entry<'_>,
    channels: usize,
    patch: Patch<'_, '_>,
) -> Result<Primus, NnUnetError> {
    if let Some((name, value)) = unknown(arguments, &ARGUMENTS)?.into_iter().next() {
        return Err(value.refuse(format!("networks with `{name}` are not supported")));
    }
    let token = arguments.need("patch_embed_size")?;
    if token.wholes(3, 1, MOST_FEATURES)?[..] != TOKEN {
        return Err(token.refuse("tokens of other than 8 × 8 × 8 voxels are not supported"));
    }
    let normalised = arguments.need("scale_attn_inner")?;
    if !normalised.truth()? {
        return Err(
            normalised.refuse("it must be true: attention without its own normalisation is not supported")
        );
    }
    // Without it, branches have no scales. Its value is that before the pre-training.
    arguments.need("init_values")?;
    let primus = Primus {
        hidden_size: arguments.need("embed_dim")?.whole(1, MOST_FEATURES)?,
        depths: vec![arguments.need("encoder_eva_depth")?.whole(1, MOST_FEATURES)?],
        num_heads: vec![arguments.need("encoder_eva_numheads")?.whole(1, MOST_FEATURES)?],
        ..Primus::new(channels, 1, NetworkSize::S, 1, patch.extents)
    };
    primus.check().map_err(|source| arguments.refuse(source.to_string()))?;
    Ok(primus)
}
