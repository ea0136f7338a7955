//! Times the distance transform on masks of several kinds; `--serve` compares it with other programs.
//!
//! ```text
//! cargo run --release -p plimsoll-morphology --example edt_bench                   a table of medians
//! cargo run --release -p plimsoll-morphology --example edt_bench -- --serve        commands on stdin, see `serve`
//! ```

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use plimsoll_morphology::{Distance, EdtOptions, edt, scratch_bytes};

const KINDS: [&str; 6] = ["blobs", "vessels", "borders", "sparse", "noise", "one"];

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|argument| argument == "--serve") {
        return serve();
    }
    println!(
        "{:<10}{:>14}{:>10}{:>14}{:>14}{:>14}",
        "mask", "shape", "threads", "median ms", "ns per voxel", "of a copy"
    );
    for shape in [[72, 136, 136], [256, 256, 256]] {
        let copies = [1, 2].map(|threads| copy_seconds(shape.iter().product(), threads));
        for kind in KINDS {
            let mask = mask(kind, shape).ok_or("no such kind of mask")?;
            for (threads, copy) in (1..).zip(copies) {
                let mut bench = Bench::new(mask.clone(), shape, [1.0; 3], Distance::ToBackground, threads);
                let median = median((0..15).map(|_| bench.run()).collect::<Result<_, _>>()?);
                println!(
                    "{kind:<10}{:>14}{threads:>10}{:>14.2}{:>14.2}{:>14.2}",
                    format!("{}x{}x{}", shape[0], shape[1], shape[2]),
                    median * 1e3,
                    median * 1e9 / mask.len() as f64,
                    median / copy
                );
            }
        }
    }
    Ok(())
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// The time to copy one `f32` per voxel: a lower bound for every transform, whose result has that size.
fn copy_seconds(voxels: usize, threads: usize) -> f64 {
    let (from, mut to) = (vec![1.0f32; voxels], vec![0.0f32; voxels]);
    let part = voxels.div_ceil(threads);
    let once = |_| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let mut parts = from.chunks(part).zip(to.chunks_mut(part));
            let own = parts.next();
            for (from, to) in parts {
                scope.spawn(|| to.copy_from_slice(from));
            }
            own.into_iter().for_each(|(from, to)| to.copy_from_slice(from));
        });
        start.elapsed().as_secs_f64()
    };
    median((0..15).map(once).collect())
}

struct Bench {
    mask: Vec<u8>,
    shape: [usize; 3],
    spacing: [f64; 3],
    options: EdtOptions,
    threads: usize,
    out: Vec<f32>,
    scratch: Vec<u8>,
}

impl Bench {
    fn new(mask: Vec<u8>, shape: [usize; 3], spacing: [f64; 3], distance: Distance, threads: usize) -> Bench {
        let options = EdtOptions { distance, squared: false };
        let scratch = vec![0; scratch_bytes(shape, &options, threads)];
        let out = vec![0.0; mask.len()];
        Bench { mask, shape, spacing, options, threads, out, scratch }
    }

    fn run(&mut self) -> Result<f64, Box<dyn Error>> {
        let start = Instant::now();
        edt(
            &self.mask,
            self.shape,
            self.spacing,
            &self.options,
            &mut self.out,
            &mut self.scratch,
            self.threads,
        )?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Reads commands from stdin, one per line, and answers each with one line on stdout: `mask KIND DEPTH HEIGHT WIDTH
/// SPACING SPACING SPACING DISTANCE THREADS FILE` makes a mask and writes it to a file, one byte per voxel; `run TIMES`
/// transforms it so often and prints the seconds of each; `save FILE` writes the distances.
fn serve() -> Result<(), Box<dyn Error>> {
    let mut bench: Option<Bench> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match (words.as_slice(), &mut bench) {
            (["mask", kind, d, h, w, sd, sh, sw, distance, threads, file], _) => {
                let shape = [d.parse()?, h.parse()?, w.parse()?];
                let mask = mask(kind, shape).ok_or("no such kind of mask")?;
                std::fs::write(file, &mask)?;
                let distance = match *distance {
                    "labels" => Distance::ToOtherLabel,
                    "signed" => Distance::Signed,
                    _ => Distance::ToBackground,
                };
                let spacing = [sd.parse()?, sh.parse()?, sw.parse()?];
                bench = Some(Bench::new(mask, shape, spacing, distance, threads.parse()?));
                "ready".to_string()
            }
            (["run", times], Some(bench)) => {
                let seconds = (0..times.parse()?).map(|_: usize| Ok(bench.run()?.to_string()));
                seconds.collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(" ")
            }
            (["save", file], Some(bench)) => {
                let bytes: Vec<u8> = bench.out.iter().flat_map(|value| value.to_le_bytes()).collect();
                std::fs::write(file, bytes)?;
                "saved".to_string()
            }
            _ => return Err(format!("unknown command `{line}`").into()),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The mask of a kind, deterministic for a shape: one byte per voxel, 0 for background.
fn mask(kind: &str, shape: [usize; 3]) -> Option<Vec<u8>> {
    let [d, h, w] = shape;
    let mut random = Random(1);
    let mut mask = vec![0u8; d * h * w];
    let smallest = d.min(h).min(w) as f64;
    match kind {
        // Organs: a few dozen ellipsoids, some overlapping; about a fifth of the volume.
        "blobs" => {
            for label in 0..24 {
                let centre = [d, h, w].map(|n| random.unit() * n as f64);
                let radii = [0; 3].map(|_| smallest * (0.06 + 0.14 * random.unit()));
                ball(&mut mask, shape, centre, radii, label % 6 + 1);
            }
        }
        // Vessels: branching, tapering tubes, one or two per cent of the volume.
        "vessels" => {
            for _ in 0..6 {
                let mut at = [d, h, w].map(|n| random.unit() * n as f64);
                let mut heading = [0; 3].map(|_| random.unit() - 0.5);
                let mut radius = smallest * 0.025;
                while radius > 0.8 {
                    ball(&mut mask, shape, at, [radius; 3], 1);
                    for axis in 0..3 {
                        heading[axis] += 0.3 * (random.unit() - 0.5);
                        at[axis] = (at[axis] + heading[axis]).rem_euclid(shape[axis] as f64);
                    }
                    radius *= 0.998;
                }
            }
        }
        // The input of a surface distance: everything is foreground except the outlines of the blobs.
        "borders" => {
            let blobs = self::mask("blobs", shape)?;
            mask.fill(1);
            for at in 0..blobs.len() - h * w {
                if (blobs[at] > 0) != (blobs[at + h * w] > 0) || (blobs[at] > 0) != (blobs[at + 1] > 0) {
                    mask[at] = 0;
                }
            }
        }
        // Everything is foreground except one voxel in a hundred thousand.
        "sparse" => {
            mask.fill(1);
            for _ in 0..mask.len().div_ceil(100_000) {
                let at = random.below(mask.len());
                mask[at] = 0;
            }
        }
        "noise" => mask.fill_with(|| random.below(2) as u8),
        "one" => {
            mask.fill(1);
            mask[(d / 3 * h + h / 4) * w + w / 5] = 0;
        }
        _ => return None,
    }
    Some(mask)
}

fn ball(mask: &mut [u8], shape: [usize; 3], centre: [f64; 3], radii: [f64; 3], label: u8) {
    let range = |axis: usize| {
        let low = (centre[axis] - radii[axis]).ceil().max(0.0) as usize;
        low..((centre[axis] + radii[axis]).floor() as usize + 1).min(shape[axis])
    };
    let part = |axis: usize, at: usize| ((at as f64 - centre[axis]) / radii[axis]).powi(2);
    for z in range(0) {
        for y in range(1) {
            for x in range(2) {
                if part(0, z) + part(1, y) + part(2, x) <= 1.0 {
                    mask[(z * shape[1] + y) * shape[2] + x] = label;
                }
            }
        }
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
