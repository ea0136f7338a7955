//! Work on one thread allocates nothing.

use plimsoll_memory::{CountingAllocator, watch_this_thread, watched_allocations};
use plimsoll_morphology::{
    Distance, EdtOptions, Recheck, edt, edt_with_features, scratch_bytes_with_features, tube_scratch_bytes,
    tubed_skeleton,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_distance_transform_on_the_calling_thread_allocates_nothing() {
    let shape = [20, 30, 40];
    let mask: Vec<u8> = (0..24_000).map(|at| (at / 7 % 5) as u8).collect();
    let mut out = vec![0.0; mask.len()];
    let mut features = vec![0; mask.len()];
    for distance in [Distance::ToBackground, Distance::ToOtherLabel, Distance::Signed] {
        let options = EdtOptions { distance, squared: false };
        let mut scratch = vec![0; scratch_bytes_with_features(shape, &options, 1)];
        let before = watched_allocations();
        let watch = watch_this_thread();
        edt(&mask, shape, [1.0; 3], &options, &mut out, &mut scratch, 1).unwrap();
        edt_with_features(&mask, shape, [1.0; 3], &options, &mut out, &mut features, &mut scratch, 1)
            .unwrap();
        drop(watch);
        assert_eq!(watched_allocations(), before);
    }
}

#[test]
fn a_tubed_skeleton_allocates_nothing() {
    let shape = [20, 30, 40];
    let mask: Vec<u8> = (0..24_000).map(|at| u8::from(at / 9 % 3 > 0)).collect();
    let (mut tube, mut scratch) = (vec![0; mask.len()], vec![0; tube_scratch_bytes(shape)]);
    let before = watched_allocations();
    let watch = watch_this_thread();
    tubed_skeleton(&mask, shape, Recheck::Topology, 2, &mut tube, &mut scratch).unwrap();
    drop(watch);
    assert_eq!(watched_allocations(), before);
    assert!(tube.contains(&1));
}
