//! The numbers of parameters of networks equal the originals', each with one channel and two classes unless stated
//! otherwise.

use plimsoll_graph::{DType, Kind, Program, Role, Shape};
use plimsoll_nn::{
    ForwardMode, Network, PlainConvUNet, ResidualEncoderUNet, SegResNet, SegResNetDS, UpsampleMode, names,
};

/// All parameters of a training pass, and the biases that change nothing, which the originals have.
fn parameters(net: impl Into<Network>) -> usize {
    let net = net.into();
    net.check().unwrap();
    let mut program = Program::new("parameters");
    let image = Shape::volume(1, net.in_channels(), net.extents().next_larger([1; 3]));
    let image = program.input(names::IMAGE, image, Kind::Volume);
    net.forward(&mut program, image, ForwardMode { training: true, precision: DType::F32 }).unwrap();
    let own: usize = program.with_role(Role::Parameter).map(|id| program.shape(id).count()).sum();
    own + net.idle_biases().iter().map(|(_, count)| count).sum::<usize>()
}

/// Features, kernels and strides of nnU-Net's isotropic configurations.
type Stages = (Vec<usize>, Vec<[usize; 3]>, Vec<[usize; 3]>);

fn stages(count: usize, dimensions: usize) -> Stages {
    let (most, kernel, stride) = match dimensions {
        2 => (512, [1, 3, 3], [1, 2, 2]),
        _ => (320, [3; 3], [2; 3]),
    };
    let features = (0..count).map(|stage| (32 << stage).min(most)).collect();
    let mut strides = vec![stride; count];
    strides[0] = [1; 3];
    (features, vec![kernel; count], strides)
}

#[test]
fn u_nets_of_nnunet_have_the_parameters_of_its_networks_in_three_and_two_dimensions() {
    for (dimensions, count, residual, plain) in [
        (3, 5, Some(62_809_928), 16_547_592),
        (3, 6, Some(102_349_770), 31_195_594),
        (3, 7, Some(141_889_612), 45_843_596),
        (2, 6, Some(71_816_586), 20_619_082),
        (2, 7, Some(105_916_812), 33_471_820),
        (2, 8, Some(140_017_038), 46_324_558),
        (2, 9, Some(174_117_264), 59_177_296),
    ] {
        let (features, kernels, strides) = stages(count, dimensions);
        let net = PlainConvUNet::new(1, 2, &features, &kernels, &strides);
        assert_eq!(Network::from(net.clone()).dimensions(), dimensions);
        assert_eq!(parameters(net), plain, "plain, {count} stages, {dimensions}D");
        let net = ResidualEncoderUNet::new(1, 2, &features, &kernels, &strides);
        assert_eq!(Some(parameters(net)), residual, "residual, {count} stages, {dimensions}D");
    }
}

#[test]
fn segresnets_have_the_parameters_of_monais() {
    assert_eq!(parameters(SegResNet::new(1, 2, 8)), 1_176_186);
    assert_eq!(parameters(SegResNet::new(1, 2, 16)), 4_700_914);
    assert_eq!(parameters(SegResNet::new(4, 3, 16)), 4_702_227);
    let deconv = SegResNet { upsample: UpsampleMode::Deconv, ..SegResNet::new(1, 2, 16) };
    assert_eq!(parameters(deconv), 4_744_034);
    assert_eq!(parameters(SegResNet::new(1, 2, 32)), 18_796_002);
    assert_eq!(parameters(SegResNet::new(1, 105, 32)), 18_799_401);
}

#[test]
fn segresnets_with_deep_supervision_have_the_parameters_of_monais() {
    assert_eq!(parameters(SegResNetDS::new(1, 2, 32)), 19_914_146);
    let of_auto3dseg = |deep_supervision| SegResNetDS {
        encoder_blocks: vec![1, 2, 2, 4, 4],
        decoder_blocks: vec![1; 4],
        deep_supervision,
        ..SegResNetDS::new(1, 2, 32)
    };
    assert_eq!(parameters(of_auto3dseg(0)), 87_163_298);
    assert_eq!(parameters(of_auto3dseg(3)), 87_164_200);
}
