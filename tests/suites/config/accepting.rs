//! Mistakes about accepted requests, and the exact message for each.
//!
//! `cases.rs` has all other mistakes and the files that these change. It must not load a file
//! itself.

use crate::config::cases::Case;

#[rustfmt::skip]
pub const ACCEPT_CASES: &[Case] = &[
    ("routes", "hold = \"10s\"", "hold = \"10s\"\nmode = \"async\"",
        "routes.toml:9: route \"charges\": mode: must be \"sync\" or \"prefer\" or \"accept\", not \"async\""),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\n[route.accept]\nmax_runs = 2\n",
        "routes.toml:10: route \"charges\": [route.accept] has no effect where mode = \"sync\": remove it, or write mode = \"prefer\" or \"accept\""),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\nmode = \"accept\"\n[route.accept]\nmax_runs = 0\nbackof = \"1s\"\n",
        "routes.toml:12: route \"charges\" [route.accept]: max_runs: must be a whole number from 1 to 1000\n\
         routes.toml:13: route \"charges\" [route.accept]: unknown key \"backof\": did you mean \"backoff\"?"),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\nmode = \"accept\"\n[route.accept]\nbackoff = \"10m\"\n",
        "routes.toml:11: route \"charges\" [route.accept]: backoff is longer than backoff_most: shorten backoff, or lengthen backoff_most"),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\nmode = \"accept\"\nretention = \"1h\"\n",
        "routes.toml:1: route \"charges\": request_retention 1d is longer than retention 1h: shorten request_retention, or lengthen retention"),
    ("routes", "upstream_timeout = \"5s\"\n", "upstream_timeout = \"5s\"\nmode = \"accept\"\n[route.accept]\nkeep_headers = [\"Cookie\"]\n",
        "routes.toml:12: route \"charges\" [route.accept]: keep_headers: \"Cookie\" is a credential: it is stored only where requests are sealed ([accept] key_env)"),
    ("region", "[upstream]", "[accept]\nkey_file = \"absent\"\n[upstream]",
        "region.toml:12: [accept]: key_file: cannot read absent: No such file or directory (os error 2)"),
    ("region", "[upstream]", "[accept]\nkey_file = \"ring.toml\"\n[upstream]",
        "region.toml:12: [accept]: key_file: ring.toml must hold 32 bytes as base64: `openssl rand -base64 32` makes such a key"),
    ("region", "[upstream]", "[accept]\nkey_env = \"ONCEWAY_TEST_UNSET\"\n[upstream]",
        "region.toml:12: [accept]: key_env: the environment variable ONCEWAY_TEST_UNSET is not set: set it to the secret"),
];
