//! The promises of [`KeyStore`](onceway_ports::KeyStore), by subject. Suites run in this order.

pub mod claims;
pub mod jobs;
pub mod outcomes;
pub mod reading;
pub mod upkeep;

pub use super::bench::{Foreign, LONG, StoreBench, asked};

pub async fn suite(bench: &impl StoreBench) {
    claims::suite(bench).await;
    outcomes::suite(bench).await;
    reading::suite(bench).await;
    jobs::suite(bench).await;
    upkeep::suite(bench).await;
    outcomes::stand_ins(bench).await;
}
