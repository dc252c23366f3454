//! The `onceway` binary: hands the arguments to `onceway::cli` and returns its exit code.
//!
//! With the feature `jemalloc` it chooses the allocator, which gives memory back when connections
//! close (docs/measurements.md).
//! It must not do anything else.

/// Its settings are in `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    onceway::cli::run()
}
