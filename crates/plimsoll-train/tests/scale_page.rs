//! The tables of docs/scale.md are what the code computes: `PLIMSOLL_BLESS=1` writes them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::fs;
use std::path::Path;

use plimsoll_graph::{DType, Program};
use plimsoll_memory::Bytes;
use plimsoll_nn::{DynUNet, Network, Objective, Optimizer, RankPlace, ResidualEncoderUNet, Training};
use plimsoll_train::{Link, RunPrograms, StepExchange};

/// Samples of a rank.
const SAMPLES: usize = 2;
/// The bandwidths in Gbit/s, with the latencies in µs.
const LINKS: [(f64, f64); 5] = [(1.0, 50.0), (10.0, 50.0), (25.0, 50.0), (100.0, 5.0), (200.0, 5.0)];
/// The floating-point operations of a rank in a second: of a node's processors, and of a GPU.
const RATES: [f64; 2] = [1e12, 30e12];

fn training(net: Network, ranks: usize) -> Training {
    Training {
        net,
        loss: Objective::default(),
        optimizer: Optimizer::nnunet(),
        max_grad_norm: Some(12.0),
        ema: None,
        groups: Vec::new(),
        frozen: Vec::new(),
        patch: [128; 3],
        spacing: [1.0; 3],
        batch: SAMPLES * ranks,
        shards: ranks,
        micro_batch: SAMPLES,
        precision: DType::F32,
    }
}

/// The program of the gradients of a shard.
fn gradients(net: &Network) -> Program {
    let programs = RunPrograms::new(&training(net.clone(), 2), RankPlace::ALONE).unwrap();
    programs[programs.fullest()].clone()
}

fn seconds(seconds: f64) -> String {
    match seconds {
        small if small < 0.0095 => format!("{:.1} ms", small * 1e3),
        small if small < 0.95 => format!("{:.0} ms", small * 1e3),
        large if large < 9.5 => format!("{large:.1} s"),
        large => format!("{large:.0} s"),
    }
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 10.0 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// The tables of a network.
fn tables(net: &Network) -> String {
    let program = gradients(net);
    let flops = program.flops() as f64;
    let link = |(gigabits, microseconds): (f64, f64)| Link {
        bits_per_second: gigabits * 1e9,
        latency_seconds: microseconds * 1e-6,
    };
    let exchanges = (0..=10)
        .map(|power| 1 << power)
        .map(|ranks: usize| (ranks, StepExchange::new(&training(net.clone(), ranks), &program, ranks)));
    let exchanges: Vec<(usize, StepExchange)> = exchanges.collect();
    let tensors = exchanges[0].1.tensors();
    let parameters: usize =
        plimsoll_nn::trained_tensors(&program, 1).iter().map(|tensor| tensor.elements).sum();
    let largest =
        plimsoll_nn::trained_tensors(&program, 1).iter().map(|tensor| tensor.elements).max().unwrap();
    let mut text = format!(
        "{:.1} million parameters in {tensors} tensors, the largest of {:.2} million; {:.1} TFLOP of a rank in a step.\n\n",
        parameters as f64 / 1e6,
        largest as f64 / 1e6,
        flops / 1e12
    );
    let heading = |first: &str| {
        let columns: Vec<String> =
            LINKS.iter().map(|(gigabits, _)| format!(" {gigabits} Gbit/s |")).collect();
        let lines = "---:|".repeat(LINKS.len() + first.matches('|').count());
        format!("|{first}{}\n|{lines}\n", columns.concat())
    };
    let name = |ranks: usize| if ranks > tensors { format!("{ranks} *") } else { ranks.to_string() };
    text.push_str(&heading(" ranks | sent | received |"));
    for (ranks, exchange) in exchanges.iter().skip(1) {
        let traffic = exchange.traffic();
        let sent = traffic.iter().map(|traffic| traffic.sent.bytes).max().unwrap();
        let received = traffic.iter().map(|traffic| traffic.received.bytes).max().unwrap();
        write!(text, "| {} | {} | {} |", name(*ranks), Bytes(sent), Bytes(received)).unwrap();
        for rates in LINKS {
            write!(text, " {} |", seconds(exchange.seconds(link(rates)).total())).unwrap();
        }
        text.push('\n');
    }
    text.push_str("\nEfficiency in %, of ranks with 1 TFLOP/s and with 30 TFLOP/s:\n\n");
    text.push_str(&heading(" ranks |"));
    for (ranks, exchange) in &exchanges {
        write!(text, "| {} |", name(*ranks)).unwrap();
        for rates in LINKS {
            let [slow, fast] = RATES.map(|rate| {
                let computing = flops / rate;
                percent(computing / (computing + exchange.added_seconds(link(rates), computing)))
            });
            write!(text, " {slow}, {fast} |").unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_page_about_scale_has_the_tables_that_the_code_computes() {
    let features = [32, 64, 128, 256, 320, 320];
    let mut strides = [[2; 3]; 6];
    strides[0] = [1; 3];
    let dynunet: Network = DynUNet::new(1, 3, &features, &[[3; 3]; 6], &strides).into();
    let resenc: Network = ResidualEncoderUNet::new(1, 3, &features, &[[3; 3]; 6], &strides).into();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scale.md");
    let page = fs::read_to_string(&path).unwrap();
    let mut expected = page.clone();
    for (heading, net) in [("## DynUNet\n\n", dynunet), ("## ResEnc-L\n\n", resenc)] {
        let first = expected.find(heading).unwrap() + heading.len();
        let last = expected[first..].find("\n## ").map_or(expected.len(), |length| first + length);
        expected.replace_range(first..last, &tables(&net));
    }
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == expected,
        "docs/scale.md has other tables than the code computes: bless them with PLIMSOLL_BLESS=1, and look at what changed"
    );
}
