//! Settings of the region's Postgres that differ from `deploy/postgres/onceway.conf`: hints, which
//! block nothing.
//!
//! Required settings (version and `wal_level`) are checked elsewhere. A test compares the table
//! with the file.

use tokio_postgres::Client;

use super::plan::{Error, Hint, get, query};

/// The settings of `deploy/postgres/onceway.conf` without `wal_level`, as Postgres shows them.
const RECOMMENDED: [(&str, &str); 21] = [
    ("max_wal_senders", "20"),
    ("max_replication_slots", "20"),
    ("max_logical_replication_workers", "16"),
    ("max_worker_processes", "24"),
    ("wal_sender_timeout", "10s"),
    ("wal_receiver_timeout", "10s"),
    ("wal_retrieve_retry_interval", "200ms"),
    ("wal_writer_delay", "10ms"),
    ("max_slot_wal_keep_size", "16GB"),
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("synchronous_commit", "on"),
    ("jit", "off"),
    ("max_connections", "200"),
    ("log_error_verbosity", "terse"),
    ("log_min_error_statement", "panic"),
    ("log_statement", "none"),
    ("log_parameter_max_length", "0"),
    ("log_parameter_max_length_on_error", "0"),
    ("password_encryption", "scram-sha-256"),
    ("ssl", "on"),
];

/// Reads the settings that fall short of the recommendation.
pub async fn hints(client: &Client) -> Result<Vec<Hint>, Error> {
    const WHAT: &str = "reading the server's settings";
    let names: Vec<&str> = RECOMMENDED.iter().map(|(name, _)| *name).collect();
    let sql = "select name, current_setting(name) from unnest($1::text[]) as name";
    let mut hints = Vec::new();
    for row in &query(client, WHAT, sql, &[&names]).await? {
        let (setting, is): (String, String) = (get(row, WHAT, 0)?, get(row, WHAT, 1)?);
        let known = RECOMMENDED.iter().find(|(known, _)| *known == setting);
        if let Some((_, recommended)) = known.filter(|(_, recommended)| lacks(&setting, &is, recommended)) {
            hints.push(Hint { setting, is, recommended });
        }
    }
    Ok(hints)
}

/// True if a setting falls short. For numbers, more is as good. The amount of WAL to keep depends
/// on the disk, as long as it is bounded.
fn lacks(name: &str, is: &str, wanted: &str) -> bool {
    match (is.parse::<i64>(), wanted.parse::<i64>()) {
        _ if name == "max_slot_wal_keep_size" => is == "-1",
        (Ok(is), Ok(wanted)) if wanted > 0 => is < wanted,
        _ => is != wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insufficient_settings_are_told_from_sufficient_ones() {
        for (name, is, wanted, expected) in [
            ("max_connections", "100", "200", true),
            ("max_connections", "500", "200", false),
            ("max_slot_wal_keep_size", "-1", "16GB", true),
            ("max_slot_wal_keep_size", "4GB", "16GB", false),
            ("log_parameter_max_length", "-1", "0", true),
            ("log_parameter_max_length", "80", "0", true),
            ("log_parameter_max_length", "0", "0", false),
            ("wal_sender_timeout", "1min", "10s", true),
            ("jit", "on", "off", true),
            ("jit", "off", "off", false),
        ] {
            assert_eq!(lacks(name, is, wanted), expected, "{name} = {is}");
        }
    }
}
