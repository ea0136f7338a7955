//! Graphs of ONNX: ops and networks as ONNX Runtime computes it, against the definitions in f64.
//!
//! `oracles/onnx_graphs.py` runs what this test writes with `ONNX_FOLDER` set, and makes the numbers that it compares with without.
#![allow(clippy::unwrap_used, clippy::panic)] // Test helpers may panic as well.

mod onnx_oracle;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_disk::faults::{Fault, FaultKind, State, crash_states, inject, record, state_of};
use plimsoll_graph::ops::{
    AvgPool, AvgPoolGrad, ChannelScale, ConvTranspose, DepthToSpace, Gelu, MaxPool, Prelu, SpaceToDepth,
    Subpixel, TokenNorm, Upsample2, WindowAttention, ZeroClass,
};
use plimsoll_graph::{Array, DType, Kind, Op, Program, Role, Shape, TensorId, Window};
use plimsoll_memory::Fnv1a;
use plimsoll_models::ModelError;
use plimsoll_models::onnx;
use plimsoll_models::onnx::proto::{ModelProto, TensorProto, data_location};
use plimsoll_models::onnx::{Visit, WeightsGo, export_program};
use plimsoll_nn::{
    AttentionUnet, Head, Merging, MonaiUNet, Network, NetworkSize, Primus, SEResNeXt50, SegResNet,
    SegResNetDS, StemPool, StuNet, SwinUnetr, UNetNorm, Unetr, UpsampleMode, names, predict,
};
use prost::Message;
use serde_json::Value;

use onnx_oracle::{checksum, largest_and_off};

/// The formula of oracles/unet_training.py: numbers in (−1, 1).
fn noise(seed: u64, i: usize) -> f64 {
    let mut x = seed << 32 ^ i as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for multiplier in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        x = (x ^ x >> 30).wrapping_mul(multiplier);
    }
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// The values of a parameter: any values for a trained network, but variances are above zero.
fn values(program: &Program, id: TensorId) -> Vec<f32> {
    let info = program.tensor(id);
    let mut seed = Fnv1a::default();
    seed.update(info.name.as_bytes());
    let seed = seed.finish() >> 32;
    let inputs = info.shape.0.iter().skip(1).product::<usize>().max(1) as f64;
    let value = |i: usize| match info.kind {
        _ if info.name.ends_with("running_var") => 1.0 + 0.5 * noise(seed, i),
        Kind::Weights => (3.0 / inputs).sqrt() * noise(seed, i),
        _ if info.name.ends_with("weight") => 1.0 + 0.5 * noise(seed, i),
        _ => 0.5 * noise(seed, i),
    };
    (0..info.shape.count()).map(|i| value(i) as f32).collect()
}

/// A program for a number of samples.
type Make = Box<dyn Fn(usize) -> Program>;

/// A program of one op, given the image and parameters.
fn graph_of_op(image: Shape, parameters: Vec<(Shape, Kind)>, op: impl Into<Op>) -> Make {
    let op = op.into();
    Box::new(move |samples| {
        let mut program = Program::new("one op");
        let shape = Shape::volume(samples, image.channels(), image.spatial());
        let mut operands = vec![program.input(names::IMAGE, shape, Kind::Volume)];
        for (n, (shape, kind)) in parameters.iter().enumerate() {
            operands.push(program.parameter(format!("operand {n}"), shape.clone(), *kind));
        }
        let result = program.push(op.clone(), &operands).unwrap()[0];
        program.mark_output(result, names::LOGITS);
        program
    })
}

fn graph_of_network(net: impl Into<Network>, patch: [usize; 3]) -> Make {
    let net = net.into();
    Box::new(move |samples| predict(net.as_architecture(), patch, samples, DType::F32).unwrap())
}

/// A window attention of one image.
struct AttentionCase {
    spatial: [usize; 3],
    window: [usize; 3],
    shift: [usize; 3],
    table_window: [usize; 3],
    heads: usize,
    channels: usize,
    padded_bias: bool,
}

fn attention(case: AttentionCase) -> Make {
    let AttentionCase { spatial, window, shift, table_window, heads, channels, padded_bias } = case;
    let op = WindowAttention { heads, window, shift, table_window, padded_bias, dropout: 0.0, layer: 0 };
    let mut parameters = vec![(Shape(vec![op.positions().rows(), heads]), Kind::Table)];
    if padded_bias {
        parameters.push((Shape(vec![3 * channels]), Kind::Channels));
    }
    graph_of_op(Shape::volume(1, 3 * channels, spatial), parameters, op)
}

/// All ops that only some networks have, and networks that have them.
fn cases() -> Vec<(&'static str, Make)> {
    let image = |channels, spatial| Shape::volume(1, channels, spatial);
    let of_channels = |channels| (Shape(vec![channels]), Kind::Channels);
    let merging_14 = vec![[0; 3], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 1], [1; 3]];
    let transposed = ConvTranspose {
        window: Window::same([3; 3], [2; 3]),
        groups: 1,
        first_channel: 0,
        channels: 2,
        output: [4, 6, 8],
        bias: true,
        dtype: DType::F32,
    };
    let swin = SwinUnetr {
        dimensions: 2,
        num_heads: vec![1, 2, 2, 4],
        patch_norm: true,
        window_size: 3,
        ..SwinUnetr::new(2, 3, 4)
    };
    let swin_v2 = SwinUnetr {
        use_v2: true,
        qkv_bias: false,
        normalize: false,
        merging: Merging::MergingV2,
        ..swin.clone()
    };
    let segresnet = |upsample| {
        let blocks = (vec![1, 1], vec![1]);
        SegResNet { upsample, encoder_blocks: blocks.0, decoder_blocks: blocks.1, ..SegResNet::new(1, 2, 8) }
    };
    let segresnet_ds = SegResNetDS {
        encoder_blocks: vec![1, 1, 1],
        decoder_blocks: vec![1, 1],
        deep_supervision: 1,
        ..SegResNetDS::new(2, 3, 8)
    };
    let flat_ds = SegResNetDS {
        dimensions: 2,
        upsample: UpsampleMode::PixelShuffle,
        deep_supervision: 0,
        ..segresnet_ds.clone()
    };
    let slices_ds = SegResNetDS { resolution: Some([3.0, 1.0, 1.0]), ..segresnet_ds.clone() };
    let unet = MonaiUNet::new(2, 3, &[4, 6, 8], &[[2; 3], [1, 2, 2]]);
    let flat_unet = MonaiUNet {
        dimensions: 2,
        kernel: [1, 3, 3],
        up_kernel: [1, 3, 3],
        norm: UNetNorm::Batch { conv_bias: false },
        affine: true,
        residual_units: 0,
        bias: false,
        ..MonaiUNet::new(1, 2, &[4, 6, 8], &[[1, 2, 2]; 2])
    };
    let flat_unet = MonaiUNet { slopes: vec![0.25; flat_unet.activations().len()], ..flat_unet };
    let narrow = SEResNeXt50 { features: vec![128; 4], ..SEResNeXt50::new(3, 5) };
    let with_layers = SEResNeXt50 {
        pool: StemPool::Ceil,
        head: Head::Mlp,
        classes: 2,
        single_logit: true,
        ..narrow.clone()
    };
    let spread = AvgPoolGrad { window: [1, 2, 3], input: [1, 6, 6] };
    let unetr = Unetr {
        feature_size: 2,
        hidden_size: 12,
        num_heads: vec![2],
        mlp_ratio: 1.5,
        ..Unetr::new(1, 3, [16, 32, 16])
    };
    let primus = |version| Primus {
        hidden_size: 24,
        depths: vec![1],
        num_heads: vec![2],
        ..Primus::new(2, 3, NetworkSize::S, version, [8, 16, 24])
    };
    let stunet = StuNet {
        features: vec![4, 6, 8],
        kernels: vec![[3; 3]; 3],
        strides: vec![[1; 3], [2; 3], [1, 2, 2]],
        encoder_blocks: vec![1, 2, 1],
        deep_supervision: 1,
        ..StuNet::new(1, 3, NetworkSize::S)
    };
    vec![
        ("gelu", graph_of_op(image(3, [2, 2, 3]), Vec::new(), Gelu)),
        (
            "token_norm",
            graph_of_op(
                image(5, [2, 2, 3]),
                vec![of_channels(5), of_channels(5)],
                TokenNorm { epsilon: 1e-5, affine: true },
            ),
        ),
        (
            "token_norm_plain",
            graph_of_op(image(4, [1, 3, 2]), Vec::new(), TokenNorm { epsilon: 1e-5, affine: false }),
        ),
        (
            "merging",
            graph_of_op(image(2, [3, 4, 5]), Vec::new(), SpaceToDepth { block: [2; 3], offsets: merging_14 }),
        ),
        (
            "merging_flat",
            graph_of_op(
                image(2, [1, 4, 6]),
                Vec::new(),
                SpaceToDepth { block: [1, 2, 2], offsets: vec![[0; 3], [0, 1, 0], [0, 0, 1], [0, 1, 1]] },
            ),
        ),
        (
            "attention",
            attention(AttentionCase {
                spatial: [4, 3, 6],
                window: [2, 3, 3],
                shift: [0; 3],
                table_window: [2, 3, 3],
                heads: 2,
                channels: 4,
                padded_bias: false,
            }),
        ),
        (
            "attention_padded",
            attention(AttentionCase {
                spatial: [4, 3, 5],
                window: [3; 3],
                shift: [0; 3],
                table_window: [3; 3],
                heads: 2,
                channels: 4,
                padded_bias: true,
            }),
        ),
        (
            "attention_shifted",
            attention(AttentionCase {
                spatial: [4, 3, 5],
                window: [3; 3],
                shift: [1, 0, 1],
                table_window: [3; 3],
                heads: 2,
                channels: 4,
                padded_bias: true,
            }),
        ),
        (
            "attention_without_bias",
            attention(AttentionCase {
                spatial: [4, 4, 5],
                window: [3; 3],
                shift: [1; 3],
                table_window: [3; 3],
                heads: 1,
                channels: 3,
                padded_bias: false,
            }),
        ),
        (
            "attention_clipped",
            attention(AttentionCase {
                spatial: [2; 3],
                window: [2; 3],
                shift: [0; 3],
                table_window: [3; 3],
                heads: 3,
                channels: 6,
                padded_bias: false,
            }),
        ),
        ("subpixel", graph_of_op(image(16, [2, 3, 2]), Vec::new(), Subpixel { axes: [true; 3] })),
        (
            "subpixel_flat",
            graph_of_op(image(8, [2, 3, 2]), Vec::new(), Subpixel { axes: [false, true, true] }),
        ),
        ("upsample", graph_of_op(image(2, [2, 3, 4]), Vec::new(), Upsample2 { axes: [false, true, true] })),
        ("prelu", graph_of_op(image(3, [2, 3, 2]), vec![of_channels(1)], Prelu)),
        ("spread", graph_of_op(image(2, [1, 3, 2]), Vec::new(), spread)),
        ("zero_class", graph_of_op(image(1, [1, 2, 3]), Vec::new(), ZeroClass)),
        ("avg_pool", graph_of_op(image(2, [1, 5, 4]), Vec::new(), AvgPool { window: [1, 2, 2] })),
        (
            "max_pool_ceil",
            graph_of_op(
                image(2, [1, 6, 7]),
                Vec::new(),
                MaxPool { window: Window::new([1, 3, 3], [1, 2, 2], [0; 3]), ceil: true },
            ),
        ),
        (
            "conv_transpose",
            graph_of_op(
                image(3, [2, 3, 4]),
                vec![(Shape(vec![3, 2, 3, 3, 3]), Kind::Weights), of_channels(2)],
                transposed,
            ),
        ),
        ("swinunetr", graph_of_network(swin, [1, 64, 64])),
        ("swinunetr_v2", graph_of_network(swin_v2, [1, 64, 64])),
        ("segresnet", graph_of_network(segresnet(UpsampleMode::PixelShuffle), [4, 8, 8])),
        ("segresnet_deconv", graph_of_network(segresnet(UpsampleMode::Deconv), [4, 8, 8])),
        ("segresnetds", graph_of_network(segresnet_ds, [8; 3])),
        ("segresnetds_flat", graph_of_network(flat_ds, [1, 16, 8])),
        ("segresnetds_slices", graph_of_network(slices_ds, [4, 8, 8])),
        ("unet", graph_of_network(unet, [4, 8, 8])),
        ("unet_flat", graph_of_network(flat_unet, [1, 8, 12])),
        ("stunet", graph_of_network(stunet, [4, 8, 8])),
        ("unetr", graph_of_network(unetr, [16, 32, 16])),
        ("factors", graph_of_op(image(3, [2, 3, 2]), vec![of_channels(3)], ChannelScale { shared: false })),
        ("factor", graph_of_op(image(3, [2, 3, 2]), vec![of_channels(1)], ChannelScale { shared: true })),
        (
            "depth_to_space",
            graph_of_op(image(12, [2, 3, 2]), vec![of_channels(2)], DepthToSpace { block: [1, 2, 3] }),
        ),
        ("primus", graph_of_network(primus(1), [8, 16, 24])),
        ("primus_v2", graph_of_network(primus(2), [8, 16, 24])),
        ("attentionunet", graph_of_network(AttentionUnet::new(2, 3, &[4, 6, 8]), [4, 8, 8])),
        ("seresnext50", graph_of_network(narrow, [1, 32, 32])),
        ("seresnext50_mlp", graph_of_network(with_layers, [1, 40, 32])),
    ]
}

fn each(program: &Program, visit: &mut Visit<'_>) -> Result<(), ModelError> {
    let mut parameters = program.with_role(Role::Parameter);
    parameters.try_for_each(|id| visit(id, &values(program, id)))
}

fn write(make: &Make, to: &Path, weights: WeightsGo) -> onnx::ExportedGraph {
    let program = make(1);
    export_program(&program, to, weights, &mut |visit| each(&program, visit)).unwrap()
}

fn decoded(path: &Path) -> ModelProto {
    ModelProto::decode(&fs::read(path).unwrap()[..]).unwrap()
}

#[test]
fn onnx_runtime_makes_of_ops_and_networks_what_the_definitions_do() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/onnx_graphs.json");
    let folder = tempfile::tempdir().unwrap();
    let written = std::env::var_os("ONNX_FOLDER").map(PathBuf::from);
    let expected: Option<Value> =
        written.is_none().then(|| serde_json::from_slice(&fs::read(path).unwrap()).unwrap());
    let mut faults = Vec::new();
    for (name, make) in cases() {
        let to = written.as_deref().unwrap_or(folder.path()).join(format!("{name}.onnx"));
        write(&make, &to, WeightsGo::Inside);
        let Some(expected) = expected.as_ref().map(|all| &all[name]) else { continue };
        assert_eq!(checksum(&decoded(&to)), expected["checksum"].as_str().unwrap(), "{name}");

        // The definitions of all ops in f64, of two samples.
        let program = make(2);
        let mut known = HashMap::new();
        for id in program.with_role(Role::Parameter) {
            let info = program.tensor(id);
            let data = values(&program, id).into_iter().map(f64::from).collect();
            known.insert(info.name.clone(), Array { shape: info.shape.clone(), data });
        }
        let (of_runtime, step) = (&expected["logits"], expected["step"].as_u64().unwrap() as usize);
        let (largest, worst) = largest_and_off(&program, known, of_runtime, step);
        println!("{name}: logits up to {largest}, off by {worst:e}");
        if !(largest > 0.1 && worst <= 1e-4 * largest) {
            faults.push(format!("{name}: {worst} of {largest}"));
        }
    }
    assert!(faults.is_empty(), "{faults:?}");
}

/// The values of a tensor, in the file or beside it.
fn read(tensor: &TensorProto, folder: &Path) -> Vec<u8> {
    if tensor.data_location != Some(data_location::EXTERNAL) {
        return tensor.raw_data.clone();
    }
    assert!(tensor.raw_data.is_empty());
    let said = |key: &str| &tensor.external_data.iter().find(|entry| entry.key == key).unwrap().value;
    let bytes = fs::read(folder.join(said("location"))).unwrap();
    let [offset, length] = ["offset", "length"].map(|key| said(key).parse::<usize>().unwrap());
    assert!(offset.is_multiple_of(4096), "{offset}");
    bytes[offset..offset + length].to_vec()
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn weights_beside_a_graph_are_those_in_it_and_go_when_another_graph_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let net = |features| graph_of_network(MonaiUNet::new(1, 2, &[features, 8], &[[2; 3]]), [4; 3]);
    fs::write(folder.path().join("model.onnx.notes.data"), "of the user").unwrap();
    write(&net(4), &path, WeightsGo::Inside);
    let whole = decoded(&path);
    let exported = write(&net(4), &path, WeightsGo::Beside);
    let data = exported.data.unwrap();
    let name = data.file_name().unwrap().to_str().unwrap().to_string();
    assert_eq!(files(folder.path()), ["model.onnx", &name, "model.onnx.notes.data"]);
    let beside = decoded(&path);
    let tensors = |model: &ModelProto| -> Vec<(String, Vec<i64>, Vec<u8>)> {
        let initializers = &model.graph.as_ref().unwrap().initializer;
        let of =
            |tensor: &TensorProto| (tensor.name.clone(), tensor.dims.clone(), read(tensor, folder.path()));
        initializers.iter().map(of).collect()
    };
    assert_eq!(tensors(&beside), tensors(&whole));
    assert!(fs::metadata(&path).unwrap().len() * 2 < fs::metadata(&data).unwrap().len());

    // The same again is the same files; other weights are another file, and the old one goes; so it does with weights inside.
    let bytes = fs::read(&path).unwrap();
    assert_eq!(write(&net(4), &path, WeightsGo::Beside).data.unwrap(), data);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let other = write(&net(6), &path, WeightsGo::Beside).data.unwrap();
    assert!(other != data && !data.exists() && other.exists());
    write(&net(4), &path, WeightsGo::Inside);
    assert_eq!(files(folder.path()), ["model.onnx", "model.onnx.notes.data"]);
    assert_eq!(decoded(&path), whole);
}

/// The values of the tensors of a graph in some files, inside or beside it; `None` without a graph.
fn model_of(state: &State) -> Option<Vec<Vec<u8>>> {
    let model = ModelProto::decode(&state.get(Path::new("model.onnx"))?[..]).unwrap();
    let values = |tensor: &TensorProto| {
        let said = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key);
        let Some(location) = said("location") else { return tensor.raw_data.clone() };
        let [offset, length] =
            ["offset", "length"].map(|key| said(key).unwrap().value.parse::<usize>().unwrap());
        let data = state.get(Path::new(&location.value));
        data.unwrap_or_else(|| panic!("{} is not there", location.value))[offset..offset + length].to_vec()
    };
    Some(model.graph.unwrap().initializer.iter().map(values).collect())
}

/// Whatever instant the process or the power fails at, there is the old graph with its weights or the new one with its own.
#[test]
fn a_graph_and_its_weights_are_there_together_wherever_writing_ends() {
    let net = |features| graph_of_network(MonaiUNet::new(1, 2, &[features, 8], &[[2; 3]]), [4; 3]);
    let program = net(4)(1);
    let export = |folder: &Path| {
        let to = folder.join("model.onnx");
        export_program(&program, &to, WeightsGo::Beside, &mut |visit| each(&program, visit))
    };
    let folder = tempfile::tempdir().unwrap();
    write(&net(6), &folder.path().join("model.onnx"), WeightsGo::Beside);
    let before = state_of(folder.path()).unwrap();
    let (result, operations) = record(folder.path(), || export(folder.path()));
    result.unwrap();
    let after = state_of(folder.path()).unwrap();
    assert_eq!(after.len(), 2);
    let (old, new) = (model_of(&before).unwrap(), model_of(&after).unwrap());
    let mut found = [0, 0];
    for state in crash_states(&before, &operations) {
        let model = model_of(&state).unwrap();
        assert!(model == old || model == new);
        found[usize::from(model == new)] += 1;
    }
    assert!(found[0] > 5 && found[1] > 0, "{found:?}");

    // And where there was none before, none or a whole one.
    for kind in [FaultKind::Eio, FaultKind::Torn] {
        for number in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let (result, reached) = inject(folder.path(), Fault { number, kind }, || export(folder.path()));
            let state = state_of(folder.path()).unwrap();
            match model_of(&state) {
                None => assert!(result.is_err() && state.is_empty(), "{number}: {:?}", state.keys()),
                Some(model) => assert!(model == new, "{number}"),
            }
            if !reached {
                assert!(result.is_ok() && number > 10, "{number}");
                break;
            }
        }
    }
}

/// `python oracles/onnx_graphs.py ONNX_FOLDER/large.onnx` loads and runs what this writes.
#[test]
#[ignore = "writes 2.2 GB"]
fn weights_of_more_than_2_gib_go_beside_the_graph() {
    let temporary = tempfile::tempdir().unwrap();
    let folder =
        std::env::var_os("ONNX_FOLDER").map_or_else(|| temporary.path().to_path_buf(), PathBuf::from);
    let (program, to) = (graph_of_network(SwinUnetr::new(1, 2, 144), [32; 3])(1), folder.join("large.onnx"));
    let refused = export_program(&program, &to, WeightsGo::Inside, &mut |visit| each(&program, visit));
    assert!(refused.is_err() && !to.exists());
    let exported = export_program(&program, &to, WeightsGo::Beside, &mut |visit| each(&program, visit));
    let data = exported.unwrap().data.unwrap();
    assert!(fs::metadata(&data).unwrap().len() > 1 << 31);
    assert!(fs::metadata(&to).unwrap().len() < 1 << 22);
}

#[test]
fn an_op_of_training_is_refused_by_its_name() {
    let make = graph_of_op(
        Shape::volume(1, 3, [2; 3]),
        vec![(Shape(vec![plimsoll_graph::ops::NOISE]), Kind::Table)],
        plimsoll_graph::ops::Dropout { p: 0.5, layer: 0, whole_channels: false },
    );
    let folder = tempfile::tempdir().unwrap();
    let program = make(1);
    let to = folder.path().join("model.onnx");
    let error =
        export_program(&program, &to, WeightsGo::Inside, &mut |visit| each(&program, visit)).unwrap_err();
    assert!(error.to_string().contains("has the op dropout"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
