//! The predicted time of a step of several ranks, against numbers that were computed by hand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use plimsoll_graph::ops::Accumulate;
use plimsoll_graph::{DType, Kind, Program, Shape};
use plimsoll_memory::Bytes;
use plimsoll_nn::{DynUNet, Objective, Optimizer, Training, names};
use plimsoll_ranks::Messages;
use plimsoll_train::{FoldsAtOnce, Link, RankCost, RankScaling, StepExchange, StepSeconds};

/// A gigabyte per second.
const LINK: Link = Link { bits_per_second: 8e9, latency_seconds: 100e-6 };

fn training(shards: usize) -> Training {
    Training {
        net: DynUNet::new(1, 2, &[4, 8], &[[3; 3]; 2], &[[1; 3], [2; 3]]).into(),
        loss: Objective::default(),
        optimizer: Optimizer::adamw(),
        max_grad_norm: None,
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: [8; 3],
        spacing: [1.0; 3],
        batch: shards,
        shards,
        micro_batch: 1,
        precision: DType::F32,
    }
}

/// A program that accumulates the gradients of tensors with these numbers of elements.
fn gradients(elements: &[usize]) -> Program {
    let mut program = Program::new("gradient");
    for (number, elements) in elements.iter().enumerate() {
        let shape = Shape(vec![*elements]);
        let parameter = program.parameter(format!("p{number}"), shape.clone(), Kind::Channels);
        let name = program.tensor(parameter).name.clone();
        program.state(names::gradient(&name), shape, Kind::Channels);
    }
    program
}

fn expect_near(found: f64, expected: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{what}: {found}, expected {expected}");
}

#[test]
fn the_messages_of_two_ranks_are_as_counted_by_hand() {
    // Rank 0 owns the larger tensor. Messages have 262,144 elements at most. Each rank has two of the four shards.
    let exchange = StepExchange::new(&training(4), &gradients(&[100_000, 300_000]), 2);
    let [first, second] = exchange.traffic()[..] else { panic!("another number of ranks") };
    // 13 numbers of 8 bytes: two micro-batches with a loss and its four parts, two cases, the squares of one tensor.
    let (record, wishes) = (104, 2);
    // To rank 1: its gradients in each round, the parameters of rank 0 in two messages, both records, both wishes.
    let sent = 2 * 400_000 + 1_200_000 + 2 * record + 2 * wishes;
    assert_eq!(first.sent, Messages { count: 2 + 2 + 1 + 1, bytes: sent });
    // From rank 1: gradients in two messages a round, its parameters, its record and wishes with the length of each.
    let received = 2 * 1_200_000 + 400_000 + (8 + record) + (8 + wishes);
    assert_eq!(first.received, Messages { count: 4 + 1 + 2 + 2, bytes: received });
    assert_eq!((second.sent, second.received), (first.received, first.sent));
    assert_eq!((exchange.largest_owner(), exchange.tensors()), (0, 2));
}

#[test]
fn the_time_of_two_ranks_is_latencies_and_bytes() {
    let exchange = StepExchange::new(&training(4), &gradients(&[100_000, 300_000]), 2);
    let seconds = exchange.seconds(LINK);
    // Two rounds, in which rank 0 receives 1,200,000 bytes in two messages.
    expect_near(seconds.gradients, 2.0 * (100e-6 + 2e-6 + 1.2e-3), "gradients");
    // 1,200,000 bytes in two messages from rank 0, and at the same time 400,000 from rank 1.
    expect_near(seconds.parameters, 100e-6 + 2e-6 + 1.2e-3, "parameters");
    // A gather of two messages, the second 2 µs after the first, and a broadcast of one; of the record and of the wishes.
    let gathers = 102e-6 + 112e-9 + 102e-6 + 10e-9;
    expect_near(seconds.records, gathers + 100e-6 + 208e-9 + 100e-6 + 4e-9, "records");
    expect_near(seconds.total(), seconds.gradients + seconds.records + seconds.parameters, "all");
}

/// The same with nodes that add gradients one after the other, in an order. Each has as many operations as elements.
fn computed_gradients(elements: &[usize], order: &[usize]) -> Program {
    let mut program = gradients(elements);
    for number in order {
        let shape = Shape(vec![elements[*number]]);
        let gradient = program.input(format!("g{number}"), shape, Kind::Channels);
        let sum = program.find(&names::gradient(&format!("p{number}"))).unwrap();
        program.push(Accumulate, &[sum, gradient]).unwrap();
    }
    program
}

#[test]
fn gradients_that_leave_during_the_backward_pass_add_no_time() {
    // Rank 0 owns the larger tensor, which three quarters of the operations complete if it is computed first.
    let program = computed_gradients(&[100_000, 300_000], &[1, 0]);
    let exchange = StepExchange::new(&training(4), &program, 2);
    let seconds = exchange.seconds(LINK);
    let others = seconds.records + seconds.parameters;
    let round = seconds.gradients / 2.0;
    // Two rounds of 10 ms: gradients take less than the last quarter. Of rounds of 2 ms, they take 0.5 ms and more.
    expect_near(exchange.added_seconds(LINK, 20e-3), others, "a long step");
    expect_near(exchange.added_seconds(LINK, 4e-3), others + 2.0 * (round - 0.5e-3), "a short step");
    // They leave with the last of three micro-batches of each shard.
    let in_three = Training { batch: 12, ..training(4) };
    let exchange = StepExchange::new(&in_three, &program, 2);
    let expected = exchange.seconds(LINK).total() - 2.0 * 0.5e-3;
    expect_near(exchange.added_seconds(LINK, 12e-3), expected, "micro-batches");
}

#[test]
fn gradients_that_the_end_of_the_backward_pass_completes_add_their_time() {
    let program = computed_gradients(&[100_000, 300_000], &[0, 1]);
    let exchange = StepExchange::new(&training(4), &program, 2);
    expect_near(
        exchange.added_seconds(LINK, 1.0),
        exchange.seconds(LINK).total(),
        "the larger tensor is last",
    );
    // Rank 0 owns the first and the third tensor, a message each: one is computed after a quarter, the other after three quarters.
    let program = computed_gradients(&[262_144; 4], &[0, 1, 2, 3]);
    let exchange = StepExchange::new(&training(2), &program, 2);
    let StepSeconds { gradients, records, parameters } = exchange.seconds(LINK);
    for (computing, late) in [(2.0, 0.0), (1.0, 0.25), (0.4, 0.7)] {
        let found = exchange.added_seconds(LINK, computing * gradients);
        expect_near(found, late * gradients + records + parameters, "two messages");
    }
}

#[test]
fn parameters_of_all_ranks_go_around_the_ring_at_once() {
    // Each of three ranks sends two messages of 4,000 bytes, and the last passes one more rank.
    let link = Link { bits_per_second: 8e9, latency_seconds: 10e-6 };
    let exchange = StepExchange::new(&training(3), &gradients(&[1000; 3]), 3);
    expect_near(exchange.seconds(link).parameters, 20e-6 + 14e-6, "three tensors");
    // One tensor among three ranks is sent in eight messages of 131,072 elements, which the second rank passes on.
    let exchange = StepExchange::new(&training(3), &gradients(&[1 << 20]), 3);
    let all = 100e-6 + 7.0 * 2e-6 + 4.194_304e-3;
    expect_near(exchange.seconds(LINK).parameters, all + 100e-6 + 0.524_288e-3, "eight messages");
}

#[test]
fn one_rank_sends_nothing() {
    let exchange = StepExchange::new(&training(4), &gradients(&[1000, 10]), 1);
    assert_eq!(exchange.traffic(), [plimsoll_ranks::Traffic::default()]);
    assert!(exchange.seconds(LINK).total() == 0.0);
}

fn cost(ranks: usize, seconds: f64) -> RankCost {
    RankCost {
        state_bytes: Bytes::ZERO,
        ranks,
        samples: 8 / ranks,
        fits: true,
        total_bytes: Bytes::mib(1),
        minimum_ram_bytes: Bytes::mib(1),
        minimum_vram_bytes: None,
        sent_bytes_per_step: Bytes::ZERO,
        received_bytes_per_step: Bytes::ZERO,
        compute_seconds_per_step: seconds,
        communication_seconds_per_step: 0.0,
        predicted_seconds_per_step: seconds,
        efficiency: None,
    }
}

#[test]
fn a_number_of_ranks_is_useful_while_the_next_one_saves_a_tenth() {
    let costs = [(1, 8.0), (2, 4.4), (4, 2.6), (8, 2.5)].map(|(ranks, seconds)| cost(ranks, seconds));
    let scaling = RankScaling::new(&training(8), LINK, 5, costs.to_vec());
    for (cost, efficiency) in scaling.costs.iter().zip([1.0, 8.0 / 8.8, 8.0 / 10.4, 0.4]) {
        expect_near(cost.efficiency.unwrap(), efficiency, "efficiency");
    }
    // 2.5 s is more than nine tenths of 2.6 s.
    assert_eq!(scaling.useful_ranks, Some(4));
    // Five folds: 5 × 2.5 s one by one; by one rank each 8 s; four at once twice 4.4 s; two at once three times 2.6 s.
    let best = scaling.folds_at_once.unwrap();
    expect_near(best.predicted_seconds, 7.8, "at once");
    expect_near(best.one_by_one_seconds, 12.5, "one by one");
    assert_eq!(best, FoldsAtOnce { folds: 5, at_once: 2, ranks_each: 4, ..best.clone() });
    // Ranks that compute without loss: folds at once would not finish earlier.
    let ideal = [(1, 8.0), (2, 4.0), (4, 2.0)].map(|(ranks, seconds)| cost(ranks, seconds));
    let scaling = RankScaling::new(&training(4), LINK, 4, ideal.to_vec());
    assert_eq!((scaling.useful_ranks, scaling.folds_at_once), (Some(4), None));
    let tight = RankScaling::new(&training(2), LINK, 5, vec![RankCost { fits: false, ..cost(1, 1.0) }]);
    assert_eq!((tight.useful_ranks, tight.folds_at_once), (None, None));
    // One rank has too little memory, so two are what four are compared with: 2 × 4.4 s of 4 × 2.6 s.
    let costs = vec![RankCost { fits: false, ..cost(1, 1.0) }, cost(2, 4.4), cost(4, 2.6)];
    let tight = RankScaling::new(&training(4), LINK, 5, costs).costs;
    assert_eq!((tight[0].efficiency, tight[1].efficiency), (None, Some(1.0)));
    expect_near(tight[2].efficiency.unwrap(), 8.8 / 10.4, "efficiency");
}

#[test]
fn a_network_is_written_with_its_units() {
    let read = |text: &str| text.parse::<Link>().unwrap();
    let link = |bits_per_second, latency_seconds| Link { bits_per_second, latency_seconds };
    assert_eq!(read("25Gbit"), link(25e9, 50e-6));
    assert_eq!(read("800 mbit, 1.5 ms"), link(800e6, 1.5e-3));
    assert_eq!(read("2.5Gbit,30us"), read("2500Mbit,30µs"));
    assert_eq!(read("25Gbit,30us").to_string(), "25 Gbit/s and 30 µs");
    assert_eq!(read("800Mbit").to_string(), "800 Mbit/s and 50 µs");
    for wrong in
        ["", "25", "25GB", "Gbit", "-1Gbit", "0Gbit", "infGbit", "nanMbit", "1Gbit,", "1Gbit,5", "1Gbit,-1us"]
    {
        let error = wrong.parse::<Link>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{wrong}`")) && error.contains("25Gbit,30us"), "{error}");
    }
}
