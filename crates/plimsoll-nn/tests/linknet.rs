//! LinkNet: its size, and what it refuses. Its logits are compared in `crates/plimsoll-models/tests/deepbet.rs`.

use plimsoll_graph::{DType, Kind, Program, Role, Shape};
use plimsoll_nn::{Architecture, ForwardMode, LinkNet, names};

fn forward(net: &LinkNet, extent: [usize; 3]) -> Result<Program, plimsoll_nn::ConfigError> {
    let mut program = Program::new("forward");
    let image = program.input(names::IMAGE, Shape::volume(1, net.in_channels, extent), Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training: false, precision: DType::F32 })?;
    Ok(program)
}

/// `sum(p.numel() for p in torch.jit.load("data/models/model.pt").parameters())` of the package deepbet 1.0.2, and the same of `bbox_model.pt`.
#[test]
fn it_has_as_many_parameters_as_deepbets_networks() {
    let net = LinkNet::new(1, 2, 16);
    let program = forward(&net, [64, 64, 96]).unwrap();
    let parameters = program.with_role(Role::Parameter).map(|id| program.shape(id).count());
    let idle = net.idle_biases().into_iter().map(|(_, length)| length);
    assert_eq!(parameters.chain(idle).sum::<usize>(), 2_126_258);
    assert_eq!(net.features(), [16, 32, 64, 128]);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for filters in [0, 2, 6, 8192] {
        let error = LinkNet::new(1, 2, filters).check().unwrap_err().to_string();
        assert!(error.contains("`init_filters`"), "{filters}: {error}");
    }
    assert!(forward(&LinkNet::new(1, 2, 4), [64, 64, 80]).is_err(), "no multiple of 32");
    assert!(
        forward(&LinkNet::new(1, 2, 4), [32; 3]).is_err(),
        "one voxel of the coarsest stage has no deviation"
    );
}
