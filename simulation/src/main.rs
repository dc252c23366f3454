//! `onceway-sim`: the failover simulation harness at the command line.
//!
//! It starts `simulation::command`. It must not do anything but start.

fn main() -> std::process::ExitCode {
    simulation::command::main()
}
