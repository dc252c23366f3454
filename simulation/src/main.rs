//! `onceway-sim`: the failover simulation harness at the command line.
//!
//! It starts `simulation::command`.

fn main() -> std::process::ExitCode {
    simulation::command::main()
}
