//! MONAI's UNet: its size, and the names of its parameters. What it predicts is compared in `crates/plimsoll-cli/tests/monai.rs`.

use plimsoll_graph::{DType, Kind, Program, Role, Shape};
use plimsoll_nn::{Architecture, ForwardMode, MonaiUNet, UNetNorm, names};

/// `sum(p.numel() for p in UNet(3, 1, 2, (16, 32, 64, 128, 256), (2, 2, 2, 2), num_res_units=2, norm="batch").parameters())` is 4,808,917, of which
/// 17 are slopes of PReLUs.
#[test]
fn it_has_as_many_parameters_as_monais_spleen_model() {
    let mut net = MonaiUNet::new(1, 2, &[16, 32, 64, 128, 256], &[[2; 3]; 4]);
    (net.norm, net.affine) = (UNetNorm::Batch { conv_bias: true }, true);
    let mut program = Program::new("forward");
    let image = program.input(names::IMAGE, Shape::volume(1, 1, [32; 3]), Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training: false, precision: DType::F32 }).unwrap();
    let parameters = program.with_role(Role::Parameter).map(|id| program.tensor(id));
    let trained = parameters.filter(|info| net.is_trained(&info.name));
    let count: usize = trained.map(|info| info.shape.count()).sum();
    assert_eq!(count + net.slopes.len(), 4_808_917);
    let scheme = net.naming_schemes().pop().unwrap();
    assert_eq!(
        scheme.weight_name("model.1.submodule.2.0.conv.below.weight"),
        "model.1.submodule.2.0.conv.weight"
    );
    assert_eq!(net.activations()[0], "model.0.conv.unit0.adn.A");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let net = || MonaiUNet::new(1, 2, &[4, 8, 8], &[[2; 3], [2; 3]]);
    net().check().unwrap();
    for (changed, says) in [
        (MonaiUNet { slopes: vec![0.1; 3], ..net() }, "`slopes`"),
        (MonaiUNet { strides: vec![[2; 3]], ..net() }, "`strides`"),
        (MonaiUNet { strides: vec![[2; 3], [4, 1, 1]], ..net() }, "`strides`"),
        (MonaiUNet { kernel: [2; 3], ..net() }, "`kernels`"),
        (MonaiUNet { norm: UNetNorm::Batch { conv_bias: true }, ..net() }, "`affine`"),
        (MonaiUNet { dimensions: 2, ..net() }, "`dimensions`"),
    ] {
        let said = changed.check().unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
}
