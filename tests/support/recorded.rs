//! Recorded histories of real stores, in `simulation/histories/`: compared with new ones, or
//! written down.
//!
//! `contract.rs` and `histories.rs` play them here, the simulation's `contract.rs` plays them on
//! the simulated store. It must not forgive a line.

/// Compares a played history with the file. With `ONCEWAY_RECORD=1` it is written there first.
pub fn as_recorded(played: &str, file: &str) {
    let file = format!("{}/simulation/histories/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ONCEWAY_RECORD").is_some() {
        std::fs::write(&file, played).unwrap();
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    for (number, (played, recorded)) in played.lines().zip(recorded.lines()).enumerate() {
        assert_eq!(played, recorded, "line {}", number + 1);
    }
    assert_eq!(played.lines().count(), recorded.lines().count());
}
