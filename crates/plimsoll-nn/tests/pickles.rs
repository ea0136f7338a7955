//! Pickles that were made to harm end in one error each, and nothing of them is executed.

use std::path::{Path, PathBuf};

use crate::archive::{TENSOR, archive, string};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_nn::weights::{PytorchFile, Said, WeightError, WeightFile};

fn open(pickle: &[u8]) -> Result<PytorchFile, WeightError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.pth");
    std::fs::write(&path, archive(pickle)).unwrap();
    PytorchFile::open(&path, &Budget::new(Bytes::mib(64)))
}

/// A state dict of one tensor, and another entry.
fn beside(entry: &[u8]) -> Vec<u8> {
    [b"\x80\x02}", &string(1)[..], TENSOR, b"s", b"X\x01\x00\x00\x00b", entry, b"s."].concat()
}

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/nnunet").join(name)
}

#[test]
fn calls_that_do_something_to_the_machine_are_refused_by_name() {
    let calls: [(&[u8], &str); 6] = [
        (b"cposix\nsystem\n(X\x04\x00\x00\x00truetR", "posix.system"),
        (b"cos\nsystem\n(X\x04\x00\x00\x00truetR", "os.system"),
        (b"csubprocess\nPopen\n(X\x04\x00\x00\x00truetR", "subprocess.Popen"),
        (b"c__builtin__\neval\n(X\x01\x00\x00\x001tR", "__builtin__.eval"),
        (b"cbuiltins\ngetattr\n(NNtR", "builtins.getattr"),
        // The same by a name that is made on the stack, as newer protocols have it.
        (b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93(tR", "os.system"),
    ];
    for (call, name) in calls {
        let error = open(&beside(call)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(&format!("it calls `{name}`")), "{error}");
        assert!(error.to_string().contains("nothing was executed"), "{error}");
        assert!(error.remedy().unwrap().contains("PyTorch"));
    }
    // What is made by a call that harms nobody is passed over.
    let file = open(&beside(b"ctorch\ndevice\n(X\x03\x00\x00\x00cudatR")).map(|_| ());
    assert!(matches!(file, Err(WeightError::Format { .. })), "a text of another length cuts what follows");
    assert!(open(&beside(b"ctorch\ndevice\n(X\x04\x00\x00\x00cudatR")).is_ok());
}

#[test]
fn pickles_that_grow_nest_or_end_early_are_errors_of_the_file() {
    let deep = [&b"]".repeat(100_000)[..], &b"a".repeat(99_999)].concat();
    let bomb = [b"N", &b"q\x00h\x00\x86".repeat(64)[..]].concat();
    let lists = [b"]", &b"q\x000]h\x00ah\x00a".repeat(64)[..]].concat();
    let itself = b"]q\x00h\x00a".to_vec();
    // A call whose arguments are the same call, and themselves: followed, it has no end.
    let call = b"ctorch._tensor\n_rebuild_from_type_v2\nq\x00]q\x01(h\x00Nh\x01eR".to_vec();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nested deeply", beside(&deep), "too often"),
        ("doubled", beside(&bomb), "too often"),
        ("doubled lists", beside(&lists), "too often"),
        ("a list of itself", beside(&itself), "too often"),
        ("a call of itself", beside(&call), "not the pickle of a state dict"),
        ("a long number", beside(b"\x8b\xff\xff\xff\x7f"), "cut off"),
        ("a long text", beside(b"X\xff\xff\xff\xff"), "cut off"),
        ("a text beyond all files", beside(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), "cut off"),
        ("an unknown opcode", beside(b"\xff"), "not the pickle of a state dict"),
        ("nothing on the stack", b"\x80\x02R.".to_vec(), "uses a missing value"),
        ("no tensors", b"\x80\x02}.".to_vec(), "no tensors"),
        ("an unknown memo", beside(b"h\x07"), "uses a missing value"),
    ];
    for (what, pickle, says) in cases {
        let error = open(&pickle).map(|_| ()).map_err(|error| error.to_string());
        let error = error.expect_err(what);
        assert!(error.contains(says) && error.lines().count() == 1, "{what}: {error}");
    }
    let whole = beside(b"K\x01");
    for length in 3..whole.len() {
        assert!(open(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
    }
    assert!(open(&whole).is_ok());
}

#[test]
fn a_tensor_whose_elements_are_not_in_the_file_is_refused_before_it_is_read() {
    // One element of a storage that the archive does not have.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.pth");
    std::fs::write(&path, archive(&beside(b"N"))).unwrap();
    let mut file = PytorchFile::open(&path, &Budget::new(Bytes::mib(1))).unwrap();
    let shape = file.shape("k").unwrap();
    let error = file.read("k", &shape, &mut [0.0]).unwrap_err().to_string();
    assert!(error.contains("`k`") && error.contains("more than its storage `0`"), "{error}");
    // An offset behind the end of the storage.
    let moved = [&beside(b"N")[..]].concat();
    let place = moved.windows(4).position(|bytes| bytes == b"QK\x00K").unwrap();
    let moved = [&moved[..place + 2], b"\x07", &moved[place + 3..]].concat();
    std::fs::write(&path, archive(&moved)).unwrap();
    let mut file = PytorchFile::open(&path, &Budget::new(Bytes::mib(1))).unwrap();
    let error = file.read("k", &shape, &mut [0.0]).unwrap_err().to_string();
    assert!(error.contains("claims 1 elements after 7, but its storage has 1"), "{error}");
}

#[test]
fn a_checkpoint_of_nnu_net_says_what_it_is_of() {
    let path = oracle(
        "fullres/results/Dataset101_Fullres/nnUNetTrainer__nnUNetPlans__3d_fullres/fold_0/checkpoint_final.pth",
    );
    let budget = Budget::new(Bytes::mib(64));
    let file = PytorchFile::open(&path, &budget).unwrap();
    assert_eq!(file.said(&["trainer_name"]), Some(Said::Text("nnUNetTrainer")));
    assert_eq!(file.said(&["init_args", "configuration"]), Some(Said::Text("3d_fullres")));
    assert_eq!(file.said(&["init_args", "fold"]), Some(Said::Number(0)));
    assert_eq!(file.said(&["inference_allowed_mirroring_axes"]), Some(Said::Numbers(vec![0, 1, 2])));
    assert_eq!(file.said(&["grad_scaler_state"]), Some(Said::Nothing));
    assert_eq!(file.said(&["init_args", "device"]), Some(Said::Else));
    assert_eq!(file.said(&["init_args", "no such thing"]), None);
    // Only the network's own tensors, not the optimizer's.
    assert!(file.names().all(|name| name.starts_with("encoder.") || name.starts_with("decoder.")));
    assert!(file.contains("decoder.seg_layers.1.weight"));
}

#[test]
fn every_tensor_of_a_checkpoint_has_its_checksum_and_damage_is_named() {
    let path = oracle(
        "batch_norm/results/Dataset106_BatchNorm/nnUNetTrainerBN__nnUNetPlans__3d_fullres/fold_0/checkpoint_final.pth",
    );
    let (folder, budget) = (tempfile::tempdir().unwrap(), Budget::new(Bytes::mib(64)));
    let copy = folder.path().join("checkpoint.pth");
    let name = "encoder.stages.1.0.convs.1.conv.weight";
    let mut file = PytorchFile::open(&path, &budget).unwrap();
    let shape = file.shape(name).unwrap();
    let mut values = vec![0.0; shape.count()];
    file.read(name, &shape, &mut values).unwrap();
    assert!(values.iter().all(|value| value.is_finite()) && values.iter().any(|value| *value != 0.0));
    let mut bytes = std::fs::read(&path).unwrap();
    let first: Vec<u8> = values.iter().take(4).flat_map(|value| value.to_le_bytes()).collect();
    let place = bytes.windows(16).position(|window| window == first).unwrap();
    bytes[place] ^= 1;
    std::fs::write(&copy, &bytes).unwrap();
    let mut damaged = WeightFile::open(&copy, &budget).unwrap();
    let error = damaged.read_named(name, &shape, &mut values).unwrap_err();
    assert!(matches!(&error, WeightError::Damaged { tensor: Some(found), .. } if found == name), "{error}");
}
