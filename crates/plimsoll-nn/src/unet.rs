//! U-Nets: MONAI's DynUNet and nnU-Net's PlainConvUNet, which are one network under two sets of names.
//!
//! Stage by stage down: convolutions (the first strided) each followed by instance normalisation and leaky ReLU. Up again:
//! a transposed convolution with kernel = stride, then convolutions over its result and the encoder's map of that stage. A
//! 1×1×1 head makes logits of the last map, and with deep supervision of the coarser ones too (Isensee et al. 2021,
//! doi:10.1038/s41592-020-01008-z).

use plimsoll_graph::ops::{Conv, ConvTranspose, Dropout, Load, NOISE, NormAct, NormStats};
use plimsoll_graph::{GraphError, Kind, Program, Shape, Side, TensorId, Window};
use serde::{Deserialize, Serialize};

use crate::{ConfigError, names};

/// Whose names the parameters have, and what goes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// `monai.networks.nets.DynUNet`: two convolutions per stage.
    DynUNet,
    /// `dynamic_network_architectures`' `PlainConvUNet`: any number of convolutions per stage. Its convolutions have biases
    /// which, before a normalisation, change nothing: they are left out here and written as zeroes.
    PlainConvUNet,
}

/// The shape of a U-Net. All lists go from the finest stage to the coarsest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UNet {
    /// Whose names the parameters have.
    pub family: Family,
    /// Channels of the image.
    pub in_channels: usize,
    /// Classes, background included.
    pub classes: usize,
    /// Channels of each stage.
    pub features: Vec<usize>,
    /// Kernel of each stage.
    pub kernels: Vec<[usize; 3]>,
    /// Stride into each stage; that into the first is 1.
    pub strides: Vec<[usize; 3]>,
    /// Convolutions of each stage on the way down.
    pub encoder_convs: Vec<usize>,
    /// Convolutions of each stage but the coarsest on the way up.
    pub decoder_convs: Vec<usize>,
    /// Whether normalisations have a scale and a shift.
    pub affine: bool,
    /// Added to the variance in normalisations.
    pub epsilon: f32,
    /// Of the leaky ReLU.
    pub slope: f32,
    /// Whether transposed convolutions have a bias.
    pub transposed_bias: bool,
    /// How many coarser maps get a head of their own while training.
    pub deep_supervision: usize,
    /// The probability with which an element of a convolution's result is dropped while training.
    #[serde(default)]
    pub dropout: f32,
}

impl UNet {
    /// `DynUNet(3, in_channels, classes, kernels, strides, strides[1:], filters=features)` with two convolutions per stage,
    /// and normalisations with scale and shift.
    pub fn dynunet(
        in_channels: usize,
        classes: usize,
        features: &[usize],
        kernels: &[[usize; 3]],
        strides: &[[usize; 3]],
    ) -> UNet {
        let stages = features.len();
        UNet {
            family: Family::DynUNet,
            in_channels,
            classes,
            features: features.to_vec(),
            kernels: kernels.to_vec(),
            strides: strides.to_vec(),
            encoder_convs: vec![2; stages],
            decoder_convs: vec![2; stages.saturating_sub(1)],
            affine: true,
            epsilon: 1e-5,
            slope: 0.01,
            transposed_bias: false,
            deep_supervision: 0,
            dropout: 0.0,
        }
    }

    /// nnU-Net's network for a plan: two convolutions per stage, biases on transposed convolutions, and a head on every map
    /// of the decoder.
    pub fn plain_conv(
        in_channels: usize,
        classes: usize,
        features: &[usize],
        kernels: &[[usize; 3]],
        strides: &[[usize; 3]],
    ) -> UNet {
        UNet {
            family: Family::PlainConvUNet,
            transposed_bias: true,
            deep_supervision: features.len().saturating_sub(2),
            ..UNet::dynunet(in_channels, classes, features, kernels, strides)
        }
    }

    fn stages(&self) -> usize {
        self.features.len()
    }

    /// What the extents of a patch must be multiples of.
    pub fn multiple(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.strides.iter().map(|stride| stride[axis]).product())
    }

    /// Checks the configuration by itself.
    ///
    /// # Errors
    /// If lists differ in length, or a number is impossible.
    pub fn check(&self) -> Result<(), ConfigError> {
        let stages = self.stages();
        let value = |setting, found: String, expected: &str| {
            Err(ConfigError::Value { setting, found, expected: expected.into() })
        };
        if stages < 2 {
            return value("features", stages.to_string(), "at least two stages are needed");
        }
        for (list, found, expected) in [
            ("kernels", self.kernels.len(), stages),
            ("strides", self.strides.len(), stages),
            ("encoder_convs", self.encoder_convs.len(), stages),
            ("decoder_convs", self.decoder_convs.len(), stages - 1),
        ] {
            if found != expected {
                return Err(ConfigError::Length { list, found, stages, expected });
            }
        }
        if self.strides[0] != [1; 3] {
            return value("strides", format!("{:?} first", self.strides[0]), "the first must be 1");
        }
        if self.strides.iter().flatten().any(|stride| *stride == 0) {
            return value("strides", format!("{:?}", self.strides), "none may be 0");
        }
        if let Some(kernel) = self.kernels.iter().find(|kernel| kernel.iter().any(|k| k % 2 == 0)) {
            return value("kernels", format!("{kernel:?}"), "extents must be odd");
        }
        let counts = self.features.iter().chain(&self.encoder_convs).chain(&self.decoder_convs);
        if counts.chain([&self.in_channels]).any(|count| *count == 0) {
            return value("features", "0".into(), "channels and convolutions are counted from 1");
        }
        if !(2..=255).contains(&self.classes) {
            return value("classes", self.classes.to_string(), "2 to 255 are possible, with the background");
        }
        if self.family == Family::DynUNet
            && self.encoder_convs.iter().chain(&self.decoder_convs).any(|count| *count != 2)
        {
            return value("encoder_convs", format!("{:?}", self.encoder_convs), "DynUNet has 2 per stage");
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return value("dropout", self.dropout.to_string(), "a probability from 0 to below 1");
        }
        if self.deep_supervision > stages - 2 {
            let found = self.deep_supervision.to_string();
            let expected = format!("at most {} are possible with {stages} stages", stages - 2);
            return Err(ConfigError::Value { setting: "deep_supervision", found, expected });
        }
        Ok(())
    }

    /// Checks that a patch can go down all stages and up again.
    ///
    /// # Errors
    /// If an extent is not a multiple of the product of the strides.
    pub fn check_patch(&self, patch: [usize; 3]) -> Result<(), ConfigError> {
        let multiple = self.multiple();
        match (0..3).all(|axis| patch[axis] > 0 && patch[axis].is_multiple_of(multiple[axis])) {
            true => Ok(()),
            false => Err(ConfigError::Patch { patch, multiple }),
        }
    }

    /// Appends the forward pass to a program: logits of the image `[N, C, D, H, W]`. In `training` also those of the coarser
    /// maps that have a head, the finest first, and dropout, for which the program then has the input [`names::NOISE`].
    ///
    /// # Errors
    /// If the configuration is impossible, or the image does not fit.
    pub fn forward(
        &self,
        program: &mut Program,
        image: TensorId,
        training: bool,
    ) -> Result<Vec<TensorId>, ConfigError> {
        self.check()?;
        self.check_patch(program.shape(image).spatial())?;
        let noise = (training && self.dropout > 0.0)
            .then(|| program.input(names::NOISE, Shape(vec![NOISE]), Kind::Table));
        let mut writer = Writer { net: self, program, noise, dropouts: 0 };
        let mut skips = Vec::with_capacity(self.stages());
        let mut map = image;
        for stage in 0..self.stages() {
            for conv in 0..self.encoder_convs[stage] {
                let stride = if conv == 0 { self.strides[stage] } else { [1; 3] };
                let name = self.encoder_name(stage, conv);
                map =
                    writer.conv_norm_act(&name, &[map], self.features[stage], self.kernels[stage], stride)?;
            }
            skips.push(map);
        }
        let mut logits = Vec::new();
        for stage in (0..self.stages() - 1).rev() {
            let up = writer.up(stage, map)?;
            let mut sources = vec![up, skips[stage]];
            for conv in 0..self.decoder_convs[stage] {
                let name = self.decoder_name(stage, conv);
                let kernel = self.kernels[self.decoder_kernel(stage)];
                map = writer.conv_norm_act(&name, &sources, self.features[stage], kernel, [1; 3])?;
                sources = vec![map];
            }
            if stage == 0 || (training && stage <= self.deep_supervision) {
                logits.push(writer.head(stage, map)?);
            }
        }
        logits.reverse();
        Ok(logits)
    }

    /// The stage whose kernel the decoder uses: DynUNet takes that of the next coarser stage, nnU-Net that of its own.
    fn decoder_kernel(&self, stage: usize) -> usize {
        match self.family {
            Family::DynUNet => stage + 1,
            Family::PlainConvUNet => stage,
        }
    }

    fn encoder_name(&self, stage: usize, conv: usize) -> ConvName {
        match self.family {
            Family::DynUNet => {
                let block = match stage {
                    0 => "input_block".into(),
                    last if last == self.stages() - 1 => "bottleneck".into(),
                    between => format!("downsamples.{}", between - 1),
                };
                ConvName::dynunet(&block, conv)
            }
            Family::PlainConvUNet => ConvName::plain(&format!("encoder.stages.{stage}.0.convs.{conv}")),
        }
    }

    /// Both families count decoder stages from the coarsest.
    fn place_from_coarsest(&self, stage: usize) -> usize {
        self.stages() - 2 - stage
    }

    fn decoder_name(&self, stage: usize, conv: usize) -> ConvName {
        let place = self.place_from_coarsest(stage);
        match self.family {
            Family::DynUNet => ConvName::dynunet(&format!("upsamples.{place}.conv_block"), conv),
            Family::PlainConvUNet => ConvName::plain(&format!("decoder.stages.{place}.convs.{conv}")),
        }
    }

    fn transposed_name(&self, stage: usize) -> String {
        let place = self.place_from_coarsest(stage);
        match self.family {
            Family::DynUNet => format!("upsamples.{place}.transp_conv.conv"),
            Family::PlainConvUNet => format!("decoder.transpconvs.{place}"),
        }
    }

    fn head_name(&self, stage: usize) -> String {
        match (self.family, stage) {
            (Family::DynUNet, 0) => "output_block.conv.conv".into(),
            (Family::DynUNet, coarser) => format!("deep_supervision_heads.{}.conv.conv", coarser - 1),
            (Family::PlainConvUNet, stage) => {
                format!("decoder.seg_layers.{}", self.place_from_coarsest(stage))
            }
        }
    }

    /// Biases that a weight file of this family holds beside our parameters, with their lengths: those that a normalisation
    /// takes away again.
    pub fn idle_biases(&self) -> Vec<(String, usize)> {
        if self.family == Family::DynUNet {
            return Vec::new();
        }
        let encoder = (0..self.stages()).flat_map(|stage| {
            (0..self.encoder_convs[stage]).map(move |conv| (stage, self.encoder_name(stage, conv)))
        });
        let decoder = (0..self.stages() - 1).flat_map(|stage| {
            (0..self.decoder_convs[stage]).map(move |conv| (stage, self.decoder_name(stage, conv)))
        });
        encoder
            .chain(decoder)
            .map(|(stage, name)| (format!("{}.bias", name.conv), self.features[stage]))
            .collect()
    }
}

/// The names of a convolution and of the normalisation behind it.
struct ConvName {
    conv: String,
    norm: String,
}

impl ConvName {
    fn dynunet(block: &str, conv: usize) -> ConvName {
        let number = conv + 1;
        ConvName { conv: format!("{block}.conv{number}.conv"), norm: format!("{block}.norm{number}") }
    }

    fn plain(block: &str) -> ConvName {
        ConvName { conv: format!("{block}.conv"), norm: format!("{block}.norm") }
    }
}

/// A forward pass being written.
struct Writer<'a> {
    net: &'a UNet,
    program: &'a mut Program,
    noise: Option<TensorId>,
    dropouts: u32,
}

impl Writer<'_> {
    fn weights(
        &mut self,
        name: &str,
        outputs: usize,
        sources: Vec<usize>,
        kernel: [usize; 3],
        (from, to): (Side, Side),
    ) -> TensorId {
        let [d, h, w] = kernel;
        let shape = Shape(vec![outputs, sources.iter().sum(), d, h, w]);
        self.program.parameter(format!("{name}.weight"), shape, Kind::Weights { sources, from, to })
    }

    fn channels(&mut self, name: String, channels: usize) -> TensorId {
        self.program.parameter(name, Shape(vec![channels]), Kind::Channels)
    }

    fn conv_norm_act(
        &mut self,
        name: &ConvName,
        sources: &[TensorId],
        features: usize,
        kernel: [usize; 3],
        stride: [usize; 3],
    ) -> Result<TensorId, GraphError> {
        let from = self.program.tensor(sources[0]).kind.side().unwrap_or(Side::Features);
        let channels = sources.iter().map(|id| self.program.shape(*id).channels()).collect();
        let weights = self.weights(&name.conv, features, channels, kernel, (from, Side::Features));
        let mut operands = sources.to_vec();
        operands.push(weights);
        let conv = Conv::new(Window::same(kernel, stride), sources.len(), false, Side::Features);
        let mut y = self.program.push_one(conv, &operands)?;
        if let Some(noise) = self.noise {
            let dropout = Dropout { p: self.net.dropout, layer: self.dropouts };
            y = self.program.push_one(dropout, &[y, noise])?;
            self.dropouts += 1;
        }
        let statistics = self.program.push_one(NormStats { epsilon: self.net.epsilon }, &[y])?;
        let mut operands = vec![y, statistics];
        if self.net.affine {
            operands.push(self.channels(format!("{}.weight", name.norm), features));
            operands.push(self.channels(format!("{}.bias", name.norm), features));
        }
        let act = NormAct { slope: self.net.slope, affine: self.net.affine };
        let z = self.program.push_one(act, &operands)?;
        self.program.rename(y, format!("{} raw", name.conv));
        self.program.rename(z, name.norm.clone());
        Ok(z)
    }

    fn up(&mut self, stage: usize, map: TensorId) -> Result<TensorId, GraphError> {
        let name = self.net.transposed_name(stage);
        let shape = self.program.shape(map).clone();
        let (features, stride) = (self.net.features[stage], self.net.strides[stage + 1]);
        let sides = (Side::Features, Side::Features);
        let weights = self.weights(&name, shape.channels(), vec![features], stride, sides);
        let mut operands = vec![map, weights];
        if self.net.transposed_bias {
            operands.push(self.channels(format!("{name}.bias"), features));
        }
        let spatial = shape.spatial();
        let up = ConvTranspose {
            window: Window::blocks(stride),
            groups: 1,
            load: Load::Plain,
            first_channel: 0,
            channels: features,
            output: [0, 1, 2].map(|axis| spatial[axis] * stride[axis]),
            to: Side::Features,
            bias: self.net.transposed_bias,
            accumulate: false,
        };
        let up = self.program.push_one(up, &operands)?;
        self.program.rename(up, name);
        Ok(up)
    }

    fn head(&mut self, stage: usize, map: TensorId) -> Result<TensorId, GraphError> {
        let name = self.net.head_name(stage);
        let channels = vec![self.program.shape(map).channels()];
        let weights = self.weights(&name, self.net.classes, channels, [1; 3], (Side::Features, Side::Image));
        let bias = self.channels(format!("{name}.bias"), self.net.classes);
        let conv = Conv::new(Window::point(), 1, true, Side::Image);
        let logits = self.program.push_one(conv, &[map, weights, bias])?;
        self.program.rename(logits, format!("{name} logits"));
        Ok(logits)
    }
}
