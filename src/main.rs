//! The `onceway` binary: hands the arguments to `onceway::cli` and returns its exit code.
//!
//! It must not do anything else.

fn main() -> std::process::ExitCode {
    onceway::cli::run()
}
