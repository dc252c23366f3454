//! Four machines on this one: the desk and one per region, each a shell with its own network,
//! processes, mounts, host name and folders. All end with the desk's first process, which a guard
//! ends when the test ends, however it ends: nothing is left behind.

use crate::guide::{DESK, REGIONS};
use crate::support::*;
use onceway_lab::proctable;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Programs of this computer that machines are made of, or that the guide assumes.
const PROGRAMS: [&str; 8] =
    ["apt-get", "curl", "ip", "mount", "nsenter", "openssl", "pg_createcluster", "unshare"];
/// The addresses that the guide gives its machines, in the order of [`REGIONS`].
const ADDRESSES: [&str; 3] = ["10.1.0.10/8", "10.2.0.10/8", "10.3.0.10/8"];
const DESK_ADDRESS: &str = "10.0.0.10/8";
const WITHIN: Duration = Duration::from_secs(150);
/// A mark that no line of the guide prints.
const MARK: &str = "\u{1}guide\u{1}";

/// The reason why no machines can be made here, and advice.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some(
            "the guide is played on machines made of namespaces and mounts, which only root may make: run this test as root, such as \
             `sudo env \"PATH=$PATH\" cargo test --test long guide::`"
                .to_owned(),
        );
    }
    if let Err(why) = Binaries::find_or_install() {
        return Some(format!("{why:#}"));
    }
    let there = |name: &&&str| !PATH.split(':').any(|folder| Path::new(folder).join(name).is_file());
    let missing: Vec<&str> = PROGRAMS.iter().filter(there).copied().collect();
    (!missing.is_empty()).then(|| {
        format!(
            "{} not installed, and the guide is for Debian: install what is missing of `iproute2 curl openssl postgresql`",
            missing.join(", ")
        )
    })
}

pub struct Machine {
    name: &'static str,
    shell: Child,
    typed: ChildStdin,
    said: Receiver<String>,
    folder: PathBuf,
    blocks: usize,
}

pub struct CommandOutput {
    pub text: String,
    /// Commands that did not end with 0, each with its code.
    pub failed: Vec<String>,
}

impl Machine {
    /// Starts its shell by these words, which end in namespaces of its own.
    fn boot(name: &'static str, words: &[String], folder: &Path) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["bash", "--noprofile", "--norc", "-s"]);
        command.env_clear().env("PATH", PATH).env("HOME", "/root").env("USER", "root").env("TERM", "dumb");
        command.stdin(Stdio::piped()).stdout(writer.try_clone().unwrap()).stderr(writer).process_group(0);
        let mut shell = command.spawn().unwrap();
        drop(command);
        let typed = shell.stdin.take().unwrap();
        let (tell, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                if tell.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Self { name, shell, typed, said, folder: folder.to_owned(), blocks: 0 }
    }

    pub fn begin(&mut self, text: &str) {
        self.blocks += 1;
        let file = format!("{}-{}.sh", self.name, self.blocks);
        fs::write(self.folder.join(&file), format!("{text}\ntrap - ERR\n")).unwrap();
        // A file that cannot be read to its end leaves the trap for itself. Before its folder is
        // bound there, a machine sees the file at its original place.
        let lines = format!(
            "set -E; trap 'printf \"\\n{MARK}failed with %s: %s\\n\" $? \"$BASH_COMMAND\" >&2' ERR\n\
             if [ -d /run/guide ]; then . /run/guide/{file}; else . {}/{file}; fi </dev/null\n\
             trap - ERR; printf '\\n{MARK}done\\n'\n",
            self.folder.display()
        );
        self.typed.write_all(lines.as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    pub fn end(&mut self) -> CommandOutput {
        let deadline = Instant::now() + WITHIN;
        let mut said = CommandOutput { text: String::new(), failed: Vec::new() };
        loop {
            match self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix(MARK) {
                    Some("done") => return said,
                    Some(failed) => said.failed.push(failed.to_owned()),
                    None => said.text.extend([line.as_str(), "\n"]),
                },
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}: not done within {WITHIN:?}\n{}", self.name, said.text)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{}: its shell is gone: {:?}\n{}", self.name, said.failed, said.text)
                }
            }
        }
    }

    fn set_up(&mut self, variables: &[(&str, &str)], script: &str) {
        let set: String = variables.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
        self.begin(&format!("{set}{script}"));
    }

    /// The numbers of all processes below the machine's shell, once that many exist.
    fn below(&self, many: usize) -> Vec<i32> {
        let pid = Pid::from_child(&self.shell);
        let mut found = Vec::new();
        let there = wait::blocking_until("a shell in its namespaces", Duration::from_secs(20), || {
            let below = proctable::descendants(pid);
            found = below.iter().map(|entry| entry.pid.as_raw_nonzero().get()).collect();
            found.len() >= many
        });
        if let Err(error) = there {
            panic!("{}: {error}: {}", self.name, self.said.try_iter().collect::<Vec<_>>().join("\n"));
        }
        found
    }

    fn is_up(&mut self) {
        let said = self.end();
        assert!(said.failed.is_empty(), "{}: {:?}\n{}", self.name, said.failed, said.text);
    }
}

pub struct Machines {
    /// The desk, then the regions in the order of [`REGIONS`].
    machines: Vec<Machine>,
    guard: Child,
}

impl Machines {
    /// Boots them, as fresh machines in one network. If this computer lacks something, panics with
    /// a line of advice. `stable_for` replaces the reference's value.
    pub fn boot(folder: &Path, program: &Path, stable_for: &str) -> Self {
        if let Some(why) = missing() {
            panic!("{why}");
        }
        const OWN: [&str; 8] =
            ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child"];
        let own = OWN.map(str::to_owned).into_iter().chain(["--mount-proc".to_owned()]);
        let own: Vec<String> = own.collect();
        let desk = Machine::boot(DESK, &own, folder);
        let mut guard = Command::new("sh");
        guard.args(["-c", "cat >/dev/null; kill -KILL \"$0\"", &desk.shell.id().to_string()]);
        let guard = guard.stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        let first = desk.below(1)[0];
        let mut all = Self { machines: vec![desk], guard };
        let inside = ["nsenter", "--target", &first.to_string(), "--pid"].map(str::to_owned);
        for name in REGIONS {
            all.machines.push(Machine::boot(name, &[&inside[..], &own].concat(), folder));
        }
        all.set_up(folder, program, stable_for);
        all
    }

    fn set_up(&mut self, folder: &Path, program: &Path, stable_for: &str) {
        const MACHINE: &str = include_str!("machine.sh");
        let scratch = folder.to_str().unwrap();
        // Machines have a /tmp of their own, and the program may be in this computer's.
        fs::copy(program, folder.join("built")).unwrap();
        for machine in &mut self.machines {
            fs::create_dir(folder.join(machine.name)).unwrap();
            let kind = if machine.name == DESK { "desk" } else { "region" };
            let checkout = env!("CARGO_MANIFEST_DIR");
            let own = [("NAME", machine.name), ("KIND", kind), ("SCRATCH", scratch)];
            machine
                .set_up(&[&own[..], &[("CHECKOUT", checkout), ("STABLE_FOR", stable_for)]].concat(), MACHINE);
        }
        self.machines.iter_mut().for_each(Machine::is_up);
        let desk = [("ADDRESS", DESK_ADDRESS), ("BINARY", "/run/guide/built")];
        self.machines[0].set_up(&desk, include_str!("desk.sh"));
        self.machines[0].is_up();
        let lines = self.machines[1..].iter().zip(ADDRESSES).map(|(machine, address)| {
            // The second of nsenter, unshare and the shell. The desk sees it by its number there.
            let unshare = machine.below(2)[0];
            let status = fs::read_to_string(format!("/proc/{unshare}/status")).unwrap();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
            let seen = numbers.split_whitespace().nth(1).unwrap();
            format!("connect {} {seen} {address}\n", machine.name)
        });
        let lines: String = lines.collect();
        self.machines[0].set_up(&[], &lines);
        self.machines[0].is_up();
    }

    /// Types a block at some machines at the same time. Returns the output of each.
    pub fn run(&mut self, at: &[&'static str], text: &str) -> Vec<(&'static str, CommandOutput)> {
        let mut these: Vec<&mut Machine> =
            self.machines.iter_mut().filter(|machine| at.contains(&machine.name)).collect();
        these.iter_mut().for_each(|machine| machine.begin(text));
        these.iter_mut().map(|machine| (machine.name, machine.end())).collect()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let ended = self.guard.wait().is_ok();
        let ended = self.machines.iter_mut().all(|machine| machine.shell.wait().is_ok()) && ended;
        assert!(ended || std::thread::panicking(), "a machine is left");
    }
}
