//! The number of files that a gateway and a witness may open: each raises a low limit as far as
//! allowed, and warns if that is too low. In shadow mode the gateway asks no store.
//! `deploy_files/files.rs` compares the unit's limit with a gateway's need.

use crate::by_hand::write;
use crate::support::*;
use crate::witness::house;

const BOUND: Duration = Duration::from_secs(30);
/// A limit below the need of either process here, and one above it.
const FEW: u64 = 1_000;
const ENOUGH: u64 = 2_000;

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (dir, base) = (folder.path(), ports::free_run(30).unwrap());
    write(dir, &FleetPorts::lay_out(base, 2).unwrap().regions);
    let names = ["north", "south"].map(|name| RegionName::parse(name).unwrap());
    files::certify(&program(), dir, "certificates", &names).unwrap();
    let file = dir.join("north.toml");
    let limits = "[listen.limits]\nconnections = 50\nconnections_per_ip = 50\nrequests = 100\n\n[store]\n";
    let text = fs::read_to_string(&file).unwrap().replacen("[store]\n", limits, 1);
    fs::write(file, format!("shadow = true\n{text}")).unwrap();
    folder
}

struct Running {
    process: Mortal,
    log: PathBuf,
}

impl Running {
    /// Starts the program under limits that a shell sets before, and waits until it listens.
    async fn start(dir: &Path, limits: &str, args: &[&str]) -> Running {
        let log = dir.join("log");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits} && exec \"$@\""), "sh", env!("CARGO_BIN_EXE_onceway")]);
        command.args(args).current_dir(dir).env_remove("ONCEWAY_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let running = Running { process: Mortal(command.spawn().unwrap()), log };
        let listens = async || Ok(running.said().contains(" listening ").then_some(()));
        let listens = wait::for_some("the program to listen", BOUND, listens).await;
        listens.unwrap_or_else(|error| panic!("{error}: {}", running.said()));
        running
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The number of files it may open: the soft limit and the hard one (proc_pid_limits(5)).
    fn limits(&self) -> [u64; 2] {
        let text = fs::read_to_string(format!("/proc/{}/limits", self.process.0.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files ")).unwrap();
        let mut words = line.split_whitespace().map(|word| word.parse().unwrap());
        [words.next().unwrap(), words.next().unwrap()]
    }
}

/// Under a soft limit that it may raise far enough, and under one that it may not.
async fn takes_what_it_may(dir: &Path, args: &[&str], lower: bool) {
    let raised = Running::start(dir, &format!("ulimit -S -n 100 && ulimit -H -n {ENOUGH}"), args).await;
    assert_eq!(raised.limits(), [ENOUGH, ENOUGH]);
    assert!(!raised.said().contains("files"), "{}", raised.said());
    drop(raised);
    let short = Running::start(dir, &format!("ulimit -S -n 100 && ulimit -H -n {FEW}"), args).await;
    assert_eq!(short.limits(), [FEW, FEW]);
    let said = short.said();
    let line = said.lines().find(|line| line.contains("WARN") && line.contains("fewer files may be open"));
    let line = line.unwrap_or_else(|| panic!("nothing of files in\n{said}"));
    assert!(line.contains("limit=1000") && line.contains("LimitNOFILE"), "{line}");
    assert_eq!(line.contains("[listen.limits]"), lower, "{line}");
}

#[tokio::test]
async fn a_gateway_raises_its_file_limit_or_warns() {
    let folder = folder();
    takes_what_it_may(folder.path(), &["serve", "--config", "north.toml"], true).await;
}

#[tokio::test]
async fn a_witness_raises_its_file_limit_or_warns() {
    let house = house();
    house.init();
    takes_what_it_may(house.folder.path(), &["witness", "--config", "witness.toml"], false).await;
}
